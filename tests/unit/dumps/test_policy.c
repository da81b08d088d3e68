/* test_policy.c: log-probabilities, KL, k1 and k3 of two sets of logits, against values worked out by hand. */
#include "tests/unit/testing.h"

#include "dumps/policy.h"

#include <math.h>

enum { VOCAB = 4 };

/* softmax(a) = 1/2, 1/4, 1/8, 1/8; softmax(b) = 1/4, 1/4, 1/4, 1/4. */
static void two(float a[VOCAB], float b[VOCAB])
{
    const float two = logf(2.0f);
    for (int i = 0; i < VOCAB; i++) {
        a[i] = 5 - two * (float)(i < 3 ? i : 2);
        b[i] = -7;
    }
}

static void test_a_token(void **state)
{
    float a[VOCAB], b[VOCAB];
    struct ds_policy_token t = {.token = 0};
    (void)state;
    two(a, b);
    ds_policy_token(a, b, VOCAB, 1, &t);
    assert_close("log a", 0, t.log_a, log(0.5), 1e-6);
    assert_close("log b", 0, t.log_b, log(0.25), 1e-6);
    assert_close("kl", 0, t.kl, log(2) / 2 - log(2) / 4, 1e-6); /* 1/2 ln 2 + 0 + 2/8 ln 1/2 */
    assert_int_equal(t.same, 0);
    ds_policy_token(a, a, VOCAB, 1, &t);
    assert_true(t.same && t.kl == 0 && t.log_a == t.log_b);
    /* at temperature 2 the shares are those of the square roots */
    ds_policy_token(a, b, VOCAB, 2, &t);
    const double total = sqrt(0.5) + sqrt(0.25) + 2 * sqrt(0.125);
    assert_close("log a at 2", 0, t.log_a, log(sqrt(0.5) / total), 1e-6);
    ds_policy_token(a, b, VOCAB, 0, &t); /* as at 1 */
    assert_close("log a at 0", 0, t.log_a, log(0.5), 1e-6);
}

/* A token that is filtered out on both sides has no part; one on one side only is infinitely far. */
static void test_infinities(void **state)
{
    float a[VOCAB], b[VOCAB];
    struct ds_policy_token t = {.token = 0};
    (void)state;
    two(a, b);
    a[3] = b[3] = -INFINITY;
    ds_policy_token(a, b, VOCAB, 1, &t);
    assert_true(isfinite(t.kl) && t.kl > 0);
    a[3] = 0;
    ds_policy_token(a, b, VOCAB, 1, &t);
    assert_true(isinf(t.kl) && t.kl > 0);
}

/* NaN anywhere in a row leaves no log-probability, and a KL that is no number: never 0. */
static void test_nan(void **state)
{
    float a[VOCAB], b[VOCAB];
    struct ds_policy_token t[2] = {{.token = 0}, {.token = 0, .step = 1}};
    struct ds_policy p;
    struct ds_error err = {{0}, {0}};
    (void)state;
    two(a, b);
    ds_policy_token(a, a, VOCAB, 1, &t[0]);
    a[2] = NAN;
    ds_policy_token(a, a, VOCAB, 1, &t[1]);
    assert_true(t[1].same && isnan(t[1].kl) && isnan(t[1].log_a));
    assert_ok(ds_policy_make(t, 2, &p, &err), err);
    assert_int_equal(p.blind, 1);
    assert_int_equal(p.differ, 0);
    assert_true(isnan(p.kl) && !signbit(p.kl) && isnan(p.drawn.max) && !signbit(p.drawn.max));
}

static void test_means(void **state)
{
    static const double d[] = {0.5, -0.25, 0, 0.125};
    struct ds_policy_token t[4];
    struct ds_policy p;
    struct ds_error err;
    double k1 = 0, k3 = 0;
    (void)state;
    for (int i = 0; i < 4; i++) {
        t[i] = (struct ds_policy_token){
            .request = i / 2, .log_a = -1, .log_b = -1 + d[i], .kl = i, .same = i == 2};
        k1 -= d[i] / 4;
        k3 += (exp(d[i]) - 1 - d[i]) / 4;
    }
    assert_ok(ds_policy_make(t, 4, &p, &err), err);
    assert_int_equal(p.tokens, 4);
    assert_int_equal(p.differ, 3);
    assert_close("k1", 0, p.drawn.k1, k1, 1e-12);
    assert_close("k3", 0, p.drawn.k3, k3, 1e-12);
    assert_close("kl", 0, p.kl, 1.5, 1e-12);
    assert_close("largest kl", 0, p.kl_most, 3, 1e-12);
    assert_close("mean", 0, p.drawn.mean, 0.875 / 4, 1e-12);
    assert_close("largest", 0, p.drawn.max, 0.5, 1e-12);
    assert_int_equal(p.drawn.max_at, 0);
    assert_close("ratio", 0, p.ratio_low, exp(-0.25), 1e-12);
    assert_close("ratio", 1, p.ratio_high, exp(0.5), 1e-12);
    assert_close("request", 0, p.sequence_most, 0.5, 1e-12); /* 0.5 on the way to 0.25 */
    t[3].log_b = NAN; /* the largest of all, not the smallest */
    assert_ok(ds_policy_make(t, 4, &p, &err), err);
    assert_int_equal(p.drawn.max_at, 3);
    assert_true(isnan(p.drawn.max));
    assert_ok(ds_policy_make(t, 0, &p, &err), err);
    assert_true(p.tokens == 0 && p.drawn.k3 == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_token),
        cmocka_unit_test(test_infinities),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_means),
    };
    return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
