/* test_partings.c: dumps/partings on runs made by hand: requests that share an answer, a reference that is the commonest
 * one, what is not known; and whether the interval holds what other runs of the same prompts, with unlike traffic, show. */
#include "tests/unit/testing.h"

#include "dumps/partings.h"
#include "dumps/storm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPTS = 60, EACH = 4, STEPS = 12, REQUESTS = PROMPTS * EACH };

struct made {
    struct ds_header h;
    struct ds_prompt prompts[PROMPTS];
    int32_t tokens[PROMPTS][2]; /* unlike ones: equal prompts are one */
    struct ds_step steps[REQUESTS * STEPS];
    struct ds_trial_data t;
};

static void begin(struct made *m, size_t n_prompts)
{
    memset(m, 0, sizeof *m);
    for (size_t i = 0; i < n_prompts; i++) {
        m->tokens[i][0] = (int32_t)i;
        m->prompts[i] =
            (struct ds_prompt){.request = (int32_t)i, .tokens = m->tokens[i], .n_tokens = 2};
    }
    m->h = (struct ds_header){.prompts = m->prompts, .n_prompts = n_prompts};
    m->t = (struct ds_trial_data){.steps = m->steps};
}

/* A choice between tokens 1 and 2, of which 1 is ahead by `gap`; `bits` says who shares its answer. */
static void step(struct made *m, int32_t request, int32_t number, double gap, uint64_t bits)
{
    const int turned = gap < 0;
    m->steps[m->t.n_steps++] = (struct ds_step){.request = request,
                                                .step = number,
                                                .token = turned ? 2 : 1,
                                                .ids = {turned ? 2 : 1, turned ? 1 : 2, -1},
                                                .logits = {fabsf((float)gap), 0},
                                                .margin = fabsf((float)gap),
                                                .ties = 1,
                                                .digest = bits};
}

static struct ds_partings_forecast foretell(const struct made *of, size_t of_requests,
                                            const struct made *m, size_t n_requests)
{
    struct ds_partings *p;
    struct ds_partings_forecast f;
    struct ds_error err;
    assert_ok(ds_partings_learn(&of->h, &of->t, of_requests, &p, &err), err);
    assert_ok(ds_partings_foretell(p, &m->h, &m->t, n_requests, &f, &err), err);
    ds_partings_free(p);
    return f;
}

/* One choice, by 0.05 and -0.05: either answer is as likely, and the smaller side has parted, whoever the reference is. */
static void test_the_commonest_is_no_bias(void **state)
{
    static struct made m;
    (void)state;
    begin(&m, 1);
    for (int32_t r = 0; r < 4; r++)
        step(&m, r, 0, r == 3 ? -0.05 : 0.05 + r * 1e-9, (uint64_t)r + 1);
    m.steps[0].digest = m.steps[1].digest = m.steps[2].digest = 1;
    const struct ds_partings_forecast two = foretell(&m, 4, &m, 4);
    assert_int_equal(two.requests, 3);
    assert_int_equal(two.known, 1);
    assert_int_equal(two.bounded, 0); /* one prompt */
    /* answers of three and of one: they part with probability one half, and then one request has */
    assert_close("shared", 0, two.expected, 0.5, 0.06);
    /* four answers: 0 and 4 of them leave with 1/16 each, 1 and 3 with 1/4, 2 with 3/8 */
    static struct made each;
    each = m;
    each.h.prompts = each.prompts;
    each.t.steps = each.steps;
    for (uint64_t r = 0; r < 4; r++)
        each.steps[r].digest = r + 1;
    const struct ds_partings_forecast four = foretell(&m, 4, &each, 4);
    assert_close("each", 0, four.expected, 0.5 * 1 + 0.375 * 2, 0.1);
}

static void test_what_is_not_known(void **state)
{
    static struct made still, moved, none;
    struct ds_partings *p;
    struct ds_error err;
    struct ds_partings_forecast f;
    (void)state;
    begin(&still, 1);
    begin(&moved, 1);
    for (int32_t r = 0; r < 3; r++) {
        step(&still, r, 0, 0.05, 1);
        step(&moved, r, 0, 0.05 + 0.01 * r, (uint64_t)r);
    }
    f = foretell(&still, 3, &moved, 3);
    assert_int_equal(f.known, 0);
    f = foretell(&still, 3, &still, 3);
    assert_int_equal(f.known, 1);
    assert_true(f.expected <= 0);
    f = foretell(&moved, 3, &still, 3);
    assert_int_equal(f.known, 1);
    assert_true(f.expected <= 0);
    /* a row of NaN has no gap */
    for (int i = 0; i < 3; i++)
        moved.steps[i].logits[0] = moved.steps[i].margin = NAN;
    f = foretell(&moved, 3, &moved, 3);
    assert_true(f.expected <= 0);
    /* steps that begin elsewhere */
    begin(&none, 1);
    step(&none, 0, 1, 1, 1);
    assert_int_equal(ds_partings_learn(&none.h, &none.t, 1, &p, &err), -1);
    assert_null(p);
    begin(&none, 2);
    for (int32_t r = 0; r < 2; r++)
        step(&none, r, 0, 1, 1);
    assert_ok(ds_partings_learn(&moved.h, &moved.t, 3, &p, &err), err);
    assert_int_equal(ds_partings_foretell(p, &none.h, &none.t, 2, &f, &err), -1);
    assert_true(ds_partings_chance(p, 0, 5) <= 0 && ds_partings_chance(p, 7, 0) <= 0);
    ds_partings_free(p);
}

/* A drift of 0.1 * sqrt(2) on a mean of two answers: one more is off by that times sqrt(1 + 1 / 2). */
static void test_the_chance_of_one_more(void **state)
{
    static const struct {
        double mean, chance;
    } cases[] = {{0.1, 0.5}, {0.17, 0.5}, {0.18, 0}, {0.11, 0.5}};
    static struct made m;
    struct ds_partings *p;
    struct ds_error err;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(&m, 1);
        step(&m, 0, 0, cases[i].mean + 0.1, 1);
        step(&m, 1, 0, cases[i].mean - 0.1, 2);
        assert_ok(ds_partings_learn(&m.h, &m.t, 2, &p, &err), err);
        assert_close("chance", (long)i, ds_partings_chance(p, 0, 0), cases[i].chance, 1e-9);
        ds_partings_free(p);
    }
}

/* ---- runs of the same prompts ---------------------------------------------------------------- */

static double uniform(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t z = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu + d;
    for (int i = 0; i < 3; i++) {
        z = (z ^ (z >> 31)) * 0xbf58476d1ce4e5b9u;
        z ^= z >> 29;
    }
    return ((double)(z >> 11) + 0.5) * 0x1p-53;
}

/* About normal: twelve uniform numbers. */
static double noise(uint64_t a, uint64_t b, uint64_t c)
{
    double sum = -6;
    for (uint64_t i = 0; i < 12; i++)
        sum += uniform(a, b, c, 100 + i);
    return sum;
}

/* Margins as those of a language model: many near ones, with a drift of 0.035. Traffic: 0 every request has bits of its own;
 * 1 two and two share them; 2 all but the last share them. */
static size_t serve(struct made *m, uint64_t prompts, uint64_t seed, int traffic)
{
    struct ds_storm s;
    struct ds_error err;
    begin(m, PROMPTS);
    for (int32_t r = 0; r < REQUESTS; r++) {
        const int32_t prompt = r % PROMPTS, copy = r / PROMPTS,
                      shares = traffic == 0   ? copy
                               : traffic == 1 ? copy / 2
                                              : copy == EACH - 1;
        int left = 0;
        for (int32_t k = 0; k < STEPS; k++) {
            const uint64_t at = (uint64_t)prompt * STEPS + (uint64_t)k;
            const double gap = -0.8 * log(uniform(prompts, at, 1, 1)) +
                               0.035 * noise(seed, at, (uint64_t)shares + 7);
            step(m, r, k, left ? 5 : gap, (uint64_t)shares + (left ? 100 : 0));
            left |= gap < 0;
            if (left && k + 1 < STEPS && gap >= 0)
                m->steps[m->t.n_steps - 1].token = 3;
        }
    }
    assert_ok(ds_storm_completions(&m->h, &m->t, REQUESTS, NULL, NULL, &s, &err), err);
    const size_t parted = s.parted;
    ds_storm_free(&s);
    return parted;
}

static void test_the_interval_holds_what_others_show(void **state)
{
    enum { SETS = 6 };
    static struct made of, m;
    double expected = 0, seen = 0, narrow = 0;
    int within = 0, tried = 0;
    (void)state;
    for (uint64_t set = 1; set <= SETS; set++) {
        serve(&of, set, 50 + set, (int)(set % 2));
        for (int traffic = 0; traffic < 3; traffic++) {
            const size_t parted = serve(&m, set, 70 * set + (uint64_t)traffic, traffic);
            const struct ds_partings_forecast f = foretell(&of, REQUESTS, &m, REQUESTS);
            assert_int_equal(f.bounded, 1);
            within += (double)parted >= f.low && (double)parted <= f.high;
            tried++;
            expected += f.expected;
            seen += (double)parted;
            narrow += f.high - f.low;
        }
    }
    if (within < tried - 2 || fabs(expected / seen - 1) > 0.2)
        fail_msg("%d of %d within; %.1f expected, %.0f seen", within, tried, expected, seen);
    assert_true(narrow < 2.5 * seen); /* an interval that says something */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_commonest_is_no_bias),
        cmocka_unit_test(test_what_is_not_known),
        cmocka_unit_test(test_the_chance_of_one_more),
        cmocka_unit_test(test_the_interval_holds_what_others_show),
    };
    return cmocka_run_group_tests_name("partings", tests, NULL, NULL);
}
