/* test_step.c: the token choice: best ids, ties, NaN, margin, against a plain sort. */
#include "tests/unit/testing.h"

#include "probes/scan.h"
#include "probes/driftscope_probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float *sorted_logits;

/* Best first: numbers before NaN, larger first, lower id on ties. */
static int by_rank(const void *pa, const void *pb)
{
    int32_t a = *(const int32_t *)pa, b = *(const int32_t *)pb;
    float x = sorted_logits[a], y = sorted_logits[b];
    if (isnan(x) != isnan(y))
        return isnan(x) ? 1 : -1;
    if (!isnan(x) && x != y)
        return x > y ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* The sum of exponentials: near that of the C library in double, and with the same bits from every instruction set. */
static void check_sum(const float *logits, uint32_t vocab, const struct ds_step *s)
{
    double want = 0;
    for (uint32_t i = 0; i < vocab; i++)
        want += exp((double)logits[i] - (double)s->logits[0]);
    const struct ds_scan_isa *isa;
    for (size_t k = 0; (isa = ds_scan_isa_at(k)); k++) {
        const double sum = isa->exp_sum(logits, vocab, s->logits[0]);
        assert_memory_equal(&sum, &s->exp_sum, sizeof sum);
    }
    if (isnan(want))
        assert_true(isnan(s->exp_sum));
    else
        assert_close("exp_sum", 0, s->exp_sum, want, 1e-6 * want);
}

static void check_row(const float *logits, uint32_t vocab)
{
    struct ds_step s;
    ds_probe_step_fill(3, 4, logits, NULL, vocab, 5, 6, &s);
    int32_t *ids = malloc(vocab * sizeof *ids), ties = 0;
    assert_non_null(ids);
    for (uint32_t i = 0; i < vocab; i++)
        ids[i] = (int32_t)i;
    sorted_logits = logits;
    qsort(ids, vocab, sizeof *ids, by_rank);
    for (uint32_t i = 0; i < vocab; i++)
        ties += logits[i] == logits[ids[0]];
    for (uint32_t i = 0; i < DS_TOP; i++) {
        assert_int_equal(s.ids[i], i < vocab ? ids[i] : -1);
        if (i < vocab)
            assert_bits_equal("logits", i, s.logits[i], logits[ids[i]]);
        else
            assert_true(isnan(s.logits[i]));
    }
    assert_int_equal(s.ties, ties);
    if (ties > 1)
        assert_bits_equal("margin", 0, s.margin, 0.0f);
    else if (vocab > 1 && !isnan(logits[ids[1]]))
        assert_bits_equal("margin", 0, s.margin, logits[ids[0]] - logits[ids[1]]);
    else
        assert_true(isnan(s.margin));
    assert_int_equal(s.request, 3);
    assert_int_equal(s.step, 4);
    assert_int_equal(s.token, 5);
    assert_int_equal(s.forced, 6);
    assert_true(s.digest == ds_digest(logits, vocab * sizeof *logits));
    check_sum(logits, vocab, &s);
    free(ids);
}

static void test_against_a_sort(void **state)
{
    (void)state;
    static float x[49152];
    uint32_t seed = 5;
    for (uint32_t round = 0; round < 400; round++) {
        uint32_t vocab = round < 40 ? round + 1 : round < 398 ? 1 + round * 7 : 49152;
        uint32_t levels = round % 3 == 0 ? 3 : round % 3 == 1 ? 50 : 100000;
        for (uint32_t i = 0; i < vocab; i++) {
            seed = seed * 1664525u + 1013904223u;
            x[i] = (float)((seed >> 8) % levels) - (float)levels / 2;
            if (round % 5 == 1 && seed % 3 == 0)
                x[i] = NAN;
            if (round % 7 == 2 && seed % 11 == 0)
                x[i] = seed % 2 ? INFINITY : -INFINITY;
        }
        check_row(x, vocab);
    }
}

static void test_special_rows(void **state)
{
    (void)state;
    float x[40];
    for (size_t i = 0; i < 40; i++)
        x[i] = NAN;
    check_row(x, 40); /* all NaN */
    check_row(x, 3);
    x[39] = -INFINITY;
    check_row(x, 40); /* one number, the smallest */
    for (size_t i = 0; i < 40; i++)
        x[i] = i % 2 ? -0.0f : 0.0f;
    check_row(x, 40); /* zeros of both signs tie */
    for (size_t i = 0; i < 40; i++)
        x[i] = (float)i;
    check_row(x, 40); /* ascending: every one is better than all before */
    x[20] = INFINITY;
    check_row(x, 40);
    x[21] = INFINITY;
    check_row(x, 40); /* two infinities tie */
    check_row(x, 1);
}

static void test_probe_step_is_the_same(void **state)
{
    (void)state;
    struct ds_error err;
    const struct ds_site site = {.stage = "logits", .op = "matmul", .dtype = "f32", .width = 9};
    const struct ds_probe_config config = {.sites = &site, .n_sites = 1};
    struct ds_probe *p;
    assert_ok(ds_probe_new(&config, &p, &err), err);
    const float x[9] = {1, 5, 2, 5, 0, -1, NAN, 3, 4};
    assert_int_equal(ds_probe_step(p, 0, 0, x, NULL, 9, 1, -1, &err), -1); /* no trial */
    assert_ok(ds_probe_begin_trial(p, &(struct ds_trial){0}, NULL, 0, &err), err);
    assert_int_equal(ds_probe_step(p, 0, 0, x, NULL, 0, 1, -1, &err), -1); /* no vocabulary */
    assert_ok(ds_probe_step(p, 2, 1, x, NULL, 9, 1, 7, &err), err);
    struct ds_trial_data t;
    assert_ok(ds_probe_end_trial(p, &t, &err), err);
    struct ds_step plain;
    ds_probe_step_fill(2, 1, x, NULL, 9, 1, 7, &plain);
    assert_int_equal(t.n_steps, 1);
    assert_memory_equal(t.steps[0].ids, plain.ids, sizeof plain.ids);
    assert_int_equal(t.steps[0].ids[0], 1);
    assert_int_equal(t.steps[0].ids[1], 3);
    assert_int_equal(t.steps[0].ties, 2);
    assert_true(t.steps[0].digest == plain.digest);
    assert_int_equal(t.steps[0].forced, 7);
    ds_trial_data_free(&t);
    ds_probe_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_a_sort),
        cmocka_unit_test(test_special_rows),
        cmocka_unit_test(test_probe_step_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
