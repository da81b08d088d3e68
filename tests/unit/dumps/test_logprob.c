/* test_logprob.c: distances of log-probabilities against values worked out by hand, and the test of two samples against
 * a count of all ways to share them out. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "dumps/logprob.h"

#include <math.h>
#include <string.h>

static void test_log_sum_exp(void **state)
{
    (void)state;
    const double x[] = {log(0.25), log(0.5), log(0.125)}, far[] = {-1000, -1000},
                 big[] = {1000, -1000}, nan[] = {0, (double)NAN};
    assert_close("sum", 0, ds_log_sum_exp(x, 3), log(0.875), 1e-15);
    assert_close("far", 0, ds_log_sum_exp(far, 2), -1000 + log(2), 1e-12);
    assert_close("big", 0, ds_log_sum_exp(big, 2), 1000, 1e-12);
    assert_true(isnan(ds_log_sum_exp(nan, 2)));
    assert_true(isinf(ds_log_sum_exp(x, 0)) && ds_log_sum_exp(x, 0) < 0);
}

static void test_kl(void **state)
{
    (void)state;
    const double p[] = {log(0.5), log(0.5)}, q[] = {log(0.25), log(0.75)},
                 one[] = {0, -(double)INFINITY}, half[] = {log(0.5), log(0.5)};
    assert_close("kl", 0, ds_logprob_kl(p, q, 2), 0.5 * log(2) + 0.5 * log(2.0 / 3), 1e-15);
    assert_close("kl", 1, ds_logprob_kl(p, p, 2), 0, 0);
    assert_close("kl", 2, ds_logprob_kl(one, half, 2), log(2), 1e-15);
    assert_true(isinf(ds_logprob_kl(half, one, 2)));
    /* Merging outcomes can only hide a difference. */
    const double p3[] = {log(0.5), log(0.3), log(0.2)}, q3[] = {log(0.5), log(0.2), log(0.3)},
                 p2[] = {log(0.5), log(0.5)};
    assert_true(ds_logprob_kl(p3, q3, 3) > 0.04);
    assert_close("kl", 3, ds_logprob_kl(p2, p2, 2), 0, 0);
}

static void test_estimators_by_hand(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_logprob_stats s;
    const double a[] = {-1, -2}, b[] = {-1.5, -1.5};
    assert_ok(ds_logprob_compare(a, b, 2, 0.2, &s, &err), err);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.first, 0);
    assert_close("k1", 0, s.k1, 0, 1e-15);
    assert_close("k2", 0, s.k2, 0.125, 1e-15);
    assert_close("k3", 0, s.k3, (exp(-0.5) + exp(0.5)) / 2 - 1, 1e-15);
    assert_close("ratio", 0, s.mean_ratio, exp(0.5), 1e-15);
    assert_close("mean", 0, s.mean, 0.5, 1e-15);
    assert_close("max", 0, s.max, 0.5, 1e-15);
    assert_close("clipped", 0, s.clipped, 1, 0);
    assert_ok(ds_logprob_compare(a, b, 2, 0.7, &s, &err), err);
    assert_close("clipped", 1, s.clipped, 0, 0);
}

/* Over tokens as often as A chooses them, k1 and k3 are the divergence itself. */
static void test_estimators_are_unbiased(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_logprob_stats s;
    const double a[] = {log(0.5), log(0.5), log(0.25), log(0.25)},
                 b[] = {log(0.4), log(0.4), log(0.5), log(0.1)},
                 p[] = {log(0.5), log(0.25), log(0.25)}, q[] = {log(0.4), log(0.5), log(0.1)};
    assert_ok(ds_logprob_compare(a, b, 4, 0.2, &s, &err), err);
    assert_close("k1", 0, s.k1, ds_logprob_kl(p, q, 3), 1e-15);
    assert_close("k3", 0, s.k3, ds_logprob_kl(p, q, 3), 1e-15);
    assert_true(s.k2 > 0);
    assert_int_equal(s.max_at, 3);
}

static void test_equal_and_not_finite(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_logprob_stats s;
    const double a[] = {-1, (double)NAN, -3}, b[] = {-1, -2, -3.25};
    assert_ok(ds_logprob_compare(a, a, 1, 0.2, &s, &err), err);
    assert_true(s.first == (size_t)-1 && s.max == 0 && s.k3 == 0 && s.mean_ratio == 1);
    assert_ok(ds_logprob_compare(a, b, 3, 0.2, &s, &err), err);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.not_finite, 1);
    assert_int_equal(s.first, 2);
    assert_int_equal(s.max_at, 2);
    assert_close("p50", 0, s.p50, 0.125, 1e-15);
    assert_ok(ds_logprob_compare(NULL, NULL, 0, 0.2, &s, &err), err);
    assert_true(s.n == 0 && s.first == (size_t)-1 && s.mean == 0);
    ds_mem_fail_at(1);
    assert_int_equal(ds_logprob_compare(a, b, 3, 0.2, &s, &err), -1);
    ds_mem_fail_at(0);
}

static void test_quantiles(void **state)
{
    (void)state;
    double x[101];
    for (int i = 0; i <= 100; i++)
        x[i] = i;
    assert_close("q", 0, ds_quantile(x, 101, 0.99), 99, 1e-12);
    assert_close("q", 1, ds_quantile(x, 101, 0), 0, 0);
    assert_close("q", 2, ds_quantile(x, 101, 1), 100, 0);
    assert_close("q", 3, ds_quantile(x, 4, 0.5), 1.5, 1e-15);
    assert_close("q", 4, ds_quantile(x + 7, 1, 0.5), 7, 0);
    assert_true(isnan(ds_quantile(x, 0, 0.5)));
}

/* The share of all ways to choose nx of the values that have at least x's U: by going through them. */
static double count_all(const double *v, unsigned n, unsigned nx)
{
    double want = -1, all = 0, high = 0;
    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned set = 0; set < 1u << n; set++) {
            if ((unsigned)__builtin_popcount(set) != nx || (pass == 0 && set != (1u << nx) - 1))
                continue;
            double u = 0;
            for (unsigned i = 0; i < n; i++)
                for (unsigned j = 0; j < n; j++)
                    if ((set >> i & 1) && !(set >> j & 1))
                        u += v[i] > v[j] ? 1 : v[i] == v[j] ? 0.5 : 0;
            if (pass == 0)
                want = u;
            all += pass;
            high += pass && u >= want;
        }
    return high / all;
}

static void test_two_samples_exactly(void **state)
{
    (void)state;
    static const double cases[][8] = {{4, 5, 6, 1, 2, 3, 0, 0}, {1, 2, 3, 4, 5, 6, 7, 8},
                                      {0, 0, 1, 0, 0, 0, 0, 0}, {2, 1, 2, 2, 3, 1, 1, 2},
                                      {5, 5, 5, 5, 5, 5, 5, 5}, {0, 3, 3, 3, 1, 0, 2, 3}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (unsigned nx = 1; nx < 8; nx++) {
            struct ds_error err;
            struct ds_two_sample t;
            assert_ok(ds_two_sample_test(cases[c], nx, cases[c] + nx, 8 - nx, &t, &err), err);
            assert_true(t.exact);
            assert_close("p", (long)(c * 8 + nx), t.p, count_all(cases[c], 8, nx), 1e-12);
        }
}

static void test_two_samples_by_hand(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_two_sample t;
    const double high[] = {4, 5, 6}, low[] = {1, 2, 3}, zeros[100] = {0};
    assert_ok(ds_two_sample_test(high, 3, low, 3, &t, &err), err);
    assert_close("p", 0, t.p, 1.0 / 20, 1e-15);
    assert_close("larger", 0, t.larger, 1, 0);
    assert_ok(ds_two_sample_test(low, 3, high, 3, &t, &err), err);
    assert_close("p", 1, t.p, 1, 1e-15);
    assert_close("larger", 1, t.larger, 0, 0);
    assert_ok(ds_two_sample_test(zeros, 60, zeros, 100, &t, &err), err);
    assert_close("p", 2, t.p, 1, 0);
    assert_close("larger", 2, t.larger, 0.5, 0);
    assert_ok(ds_two_sample_test(high, 3, NULL, 0, &t, &err), err);
    assert_close("p", 3, t.p, 1, 0);
}

/* Where counting ends, the approximation goes on: 65 values beside 64. */
static void test_two_samples_meet_at_the_border(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_two_sample exact, close;
    double x[33], y[33];
    for (int shift = -6; shift <= 6; shift += 3) {
        for (int i = 0; i < 33; i++) {
            x[i] = i * 7 % 33 + shift;
            y[i] = i * 5 % 33;
        }
        assert_ok(ds_two_sample_test(x, 32, y, 32, &exact, &err), err);
        assert_ok(ds_two_sample_test(x, 33, y, 33, &close, &err), err);
        assert_true(exact.exact && !close.exact);
        assert_close("p", shift, close.p, exact.p, 0.05);
    }
    for (int i = 0; i < 33; i++)
        x[i] = 100 + i;
    assert_ok(ds_two_sample_test(x, 33, y, 33, &close, &err), err);
    assert_true(close.p < 1e-10 && close.larger == 1);
    ds_mem_fail_at(2);
    assert_int_equal(ds_two_sample_test(x, 32, y, 32, &close, &err), -1);
    ds_mem_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_sum_exp),
        cmocka_unit_test(test_kl),
        cmocka_unit_test(test_estimators_by_hand),
        cmocka_unit_test(test_estimators_are_unbiased),
        cmocka_unit_test(test_equal_and_not_finite),
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_two_samples_exactly),
        cmocka_unit_test(test_two_samples_by_hand),
        cmocka_unit_test(test_two_samples_meet_at_the_border),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
