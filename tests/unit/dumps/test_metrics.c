/* test_metrics.c: the published figures of answers made by hand: where observations part, which choices can be compared, standard
 * deviations and differences of probabilities, intervals by prompt, and what is let go of. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "dumps/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16 };

/* A step whose best two tokens are `token` and `second`, with the first one's probability: the rest is far below. */
static struct ds_step step(int32_t number, int32_t token, int32_t second, double p)
{
    struct ds_step s = {.step = number, .token = token, .forced = token, .exp_sum = 1 / p};
    for (int k = 0; k < DS_TOP; k++) {
        s.ids[k] = k == 0 ? token : k == 1 ? second : 1000 + k;
        s.logits[k] = k == 0 ? 4.0f : -90.0f;
    }
    s.logits[1] = 4.0f - 1.0f;
    return s;
}

struct answer {
    struct ds_step steps[MOST];
    const struct ds_step *at[MOST];
    size_t n;
};

static void answer(struct answer *a, const int32_t *tokens, const double *p, size_t n)
{
    a->n = n;
    for (size_t i = 0; i < n; i++) {
        a->steps[i] = step((int32_t)i, tokens[i], 500, p[i]);
        a->at[i] = &a->steps[i];
    }
}

static struct ds_metrics *begin(void)
{
    struct ds_error err;
    struct ds_metrics *m;
    assert_ok(ds_metrics_new(1, 1 << 20, &m, &err), err);
    return m;
}

static struct ds_metrics_row add(struct ds_metrics *m, const char *group, uint64_t example,
                                 const struct answer *a)
{
    struct ds_error err;
    struct ds_metrics_row row;
    assert_ok(ds_metrics_add(m, group, example, a->at, a->n, &row, &err), err);
    return row;
}

static const struct ds_metrics_summary *settle(struct ds_metrics *m)
{
    struct ds_error err;
    assert_ok(ds_metrics_settle(m, &err), err);
    return ds_metrics_summary(m, 0);
}

/* Three answers to one prompt: the third parts at step 2. */
static void test_one_prompt(void **state)
{
    (void)state;
    struct ds_metrics *m = begin();
    struct answer a, b, c;
    answer(&a, (int32_t[]){1, 2, 3, 4}, (double[]){0.5, 0.6, 0.7, 0.8}, 4);
    answer(&b, (int32_t[]){1, 2, 3, 4}, (double[]){0.5, 0.62, 0.7, 0.9}, 4);
    answer(&c, (int32_t[]){1, 2, 9, 4}, (double[]){0.53, 0.6, 0.5, 0.8}, 4);
    c.steps[2].ids[1] = 3; /* the reference's choice comes second, e times less likely */
    struct ds_metrics_row ra = add(m, "g", 7, &a), rb = add(m, "g", 7, &b), rc = add(m, "g", 7, &c);
    assert_int_equal(ra.reference, 1);
    assert_int_equal(rb.reference, 0);
    assert_int_equal(rb.div_index, -1);
    assert_int_equal(rb.flips, 0);
    assert_int_equal(rb.decode_steps, 4);
    assert_true(ra.completion == rb.completion && ra.completion != rc.completion);
    assert_int_equal(rc.div_index, 2);
    assert_int_equal(rc.flips, 1);
    assert_int_equal(rc.decode_steps, 3); /* what came after it had another context */
    assert_close("prob_divergence", 0, ra.prob_divergence, 0, 0);
    assert_close("prob_divergence", 1, rb.prob_divergence, (0.02 + 0.1) / 4, 1e-12);
    assert_close("prob_divergence", 2, rc.prob_divergence, (0.03 + 0 + (0.7 - 0.5 * exp(-1))) / 3,
                 1e-7);
    const struct ds_metrics_summary *s = settle(m);
    assert_int_equal(ds_metrics_groups(m), 1);
    assert_string_equal(ds_metrics_group(m, 0), "g");
    assert_int_equal(s->prompts, 1);
    assert_int_equal(s->observations, 3);
    assert_int_equal(s->choices, 12);
    assert_int_equal(s->unique, 2);
    assert_int_equal(s->diverging, 1);
    assert_close("unique", 0, s->unique_completions.value, 2, 0);
    assert_close("div_index", 0, s->div_index.value, 2, 0);
    assert_close("flips", 0, s->flips_per_decode_step.value, 1.0 / 7, 1e-15);
    /* Steps 0 and 1, before they part: of 0.5 0.5 0.53 and of 0.6 0.62 0.6 with one degree of freedom less. */
    const double first = sqrt((2 * 0.01 * 0.01 + 0.02 * 0.02) / 2),
                 next = sqrt((2 * (0.02 / 3) * (0.02 / 3) + (0.04 / 3) * (0.04 / 3)) / 2);
    assert_close("std", 0, s->avg_std_top1_prob.value, (first + next) / 2, 1e-12);
    assert_close("prob", 0, s->max_prob_divergence.value, (0.03 + 0.02 + (0.7 - 0.5 * exp(-1))) / 3,
                 1e-7);
    assert_int_equal(s->div_index.bounded, 0); /* one prompt: no interval */
    assert_int_equal(s->no_probability, 0);
    assert_int_equal(s->left_out, 2); /* the third's 9, and the reference's 500 */
    ds_metrics_free(m);
}

/* What has no probability is left out, and counted: a NaN in the row, or scores in the place of logits. */
static void test_what_is_left_out(void **state)
{
    (void)state;
    struct ds_metrics *m = begin();
    struct answer a, b;
    answer(&a, (int32_t[]){1, 2, 3}, (double[]){0.5, 0.6, 0.7}, 3);
    answer(&b, (int32_t[]){1, 2, 3}, (double[]){0.6, 0.6, 0.7}, 3);
    b.steps[1].exp_sum = NAN;
    add(m, "g", 7, &a);
    assert_close("prob_divergence", 0, add(m, "g", 7, &b).prob_divergence, 0.1 / 2, 1e-12);
    const struct ds_metrics_summary *s = settle(m);
    assert_int_equal(s->no_probability, 1);
    assert_int_equal(s->left_out, 0);
    assert_close("std", 0, s->avg_std_top1_prob.value, (0.1 / sqrt(2) + 0) / 2, 1e-12);
    ds_metrics_free(m);
}

/* Under teacher forcing contexts stay equal, and every step can flip; a shorter answer ends the common steps. */
static void test_forced_and_short(void **state)
{
    (void)state;
    struct ds_metrics *m = begin();
    struct answer a, b, c;
    answer(&a, (int32_t[]){1, 2, 3, 4}, (double[]){0.5, 0.6, 0.7, 0.8}, 4);
    answer(&b, (int32_t[]){1, 7, 3, 9}, (double[]){0.5, 0.6, 0.7, 0.8}, 4);
    for (size_t i = 0; i < 4; i++)
        b.steps[i].forced = a.steps[i].token;
    answer(&c, (int32_t[]){1}, (double[]){0.5}, 1);
    add(m, "g", 7, &a);
    struct ds_metrics_row rb = add(m, "g", 7, &b), rc = add(m, "g", 7, &c);
    assert_int_equal(rb.div_index, 1);
    assert_int_equal(rb.flips, 2);
    assert_int_equal(rb.decode_steps, 4);
    assert_int_equal(rc.div_index, -1);
    assert_int_equal(rc.decode_steps, 1);
    const struct ds_metrics_summary *s = settle(m);
    assert_int_equal(s->unique, 3);
    assert_close("div_index", 0, s->div_index.value, 1, 0);
    assert_close("flips", 0, s->flips_per_decode_step.value, 2.0 / 5, 1e-15);
    assert_int_equal(s->avg_std_top1_prob.known, 1);
    assert_close("std", 0, s->avg_std_top1_prob.value, 0, 0);
    ds_metrics_free(m);
}

/* Nothing to compare is not known, and neither is what has no probability. */
static void test_not_known(void **state)
{
    (void)state;
    struct ds_metrics *m = begin();
    struct answer a;
    answer(&a, (int32_t[]){1, 2}, (double[]){0.5, 0.6}, 2);
    add(m, "alone", 7, &a);
    a.steps[0].exp_sum = a.steps[1].exp_sum = NAN;
    add(m, "blind", 7, &a);
    struct ds_metrics_row row = add(m, "blind", 7, &a);
    assert_true(isnan(row.prob_divergence));
    settle(m);
    const struct ds_metrics_summary *alone = ds_metrics_summary(m, 0),
                                    *blind = ds_metrics_summary(m, 1);
    assert_int_equal(alone->unique, 1);
    assert_int_equal(alone->div_index.known, 0);
    assert_int_equal(alone->flips_per_decode_step.known, 0);
    assert_int_equal(alone->avg_std_top1_prob.known, 0);
    assert_int_equal(alone->max_prob_divergence.known, 0);
    assert_int_equal(blind->flips_per_decode_step.known, 1);
    assert_int_equal(blind->avg_std_top1_prob.known, 0);
    assert_int_equal(blind->max_prob_divergence.known, 0);
    ds_metrics_free(m);
}

/* Twenty prompts, of which every fourth one parts: the interval holds the share, is no point, and is the same again. */
static void test_intervals(void **state)
{
    (void)state;
    struct ds_metric once = {0};
    for (int round = 0; round < 2; round++) {
        struct ds_metrics *m = begin();
        struct answer a, b;
        for (uint64_t p = 0; p < 20; p++) {
            answer(&a, (int32_t[]){1, 2, 3}, (double[]){0.5, 0.6, 0.7}, 3);
            answer(&b, (int32_t[]){1, p % 4 == 0 ? 5 : 2, 3}, (double[]){0.5, 0.6, 0.7}, 3);
            add(m, "g", p, &a);
            add(m, "g", p, &b);
        }
        const struct ds_metrics_summary *s = settle(m);
        const struct ds_metric *x = &s->diverging_share;
        assert_int_equal(s->prompts, 20);
        assert_close("share", 0, x->value, 0.25, 0);
        assert_int_equal(x->bounded, 1);
        assert_true(x->low < 0.2 && x->low >= 0);
        assert_true(x->high > 0.3 && x->high < 0.6);
        assert_close("div_index", 0, s->div_index.low, 1, 0); /* all of them part at step 1 */
        assert_close("div_index", 0, s->div_index.high, 1, 0);
        if (round)
            assert_true(once.low == x->low && once.high == x->high);
        once = *x;
        ds_metrics_free(m);
    }
}

/* Settled groups keep their figures, take no memory and no more observations. */
static void test_memory(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_metrics *m;
    struct answer a;
    answer(&a, (int32_t[]){1, 2, 3}, (double[]){0.5, 0.6, 0.7}, 3);
    assert_ok(ds_metrics_new(1, 4096, &m, &err), err);
    for (uint64_t p = 0; p < 100; p++) { /* each alone fits, all together do not */
        char name[16];
        snprintf(name, sizeof name, "g%d", (int)p);
        assert_ok(ds_metrics_add(m, name, p, a.at, a.n, NULL, &err), err);
        assert_ok(ds_metrics_settle(m, &err), err);
    }
    assert_int_equal(ds_metrics_groups(m), 100);
    assert_string_equal(ds_metrics_group(m, 99), "g99");
    assert_int_equal(ds_metrics_summary(m, 42)->unique, 1);
    int rc = 0;
    for (uint64_t p = 0; rc == 0 && p < 100; p++)
        rc = ds_metrics_add(m, "big", p, a.at, a.n, NULL, &err);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(err.msg, "need more than"));
    ds_metrics_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_prompt),       cmocka_unit_test(test_what_is_left_out),
        cmocka_unit_test(test_forced_and_short), cmocka_unit_test(test_not_known),
        cmocka_unit_test(test_intervals),        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
