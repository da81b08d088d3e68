/* test_risk.c: the model of flips and what risk says of records made by hand: margins, drift, expected flips, choices at
 * risk, layers, what one serving run foretells of another, and what cannot be asked. */
#include "tests/unit/testing.h"

#include "dumps/risk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 64, ARMS = 3 };

/* A record with arms of the kernels a, a, b; requests have prompts in turn. */
struct made {
    struct ds_header h;
    struct ds_prompt prompts[3];
    int32_t tokens[3];
    struct ds_text options[4];
    char *factors[2];
    char *values[ARMS][2];
    struct ds_arm arms[ARMS];
    struct ds_site sites[3];
    struct ds_step steps[ARMS][MOST_STEPS];
    struct ds_row rows[MOST_STEPS];
    struct ds_drift drifts[8];
    struct ds_trial_data t[ARMS];
    const struct ds_trial_data *trials[ARMS];
};

static void begin(struct made *m, char *requests)
{
    static char *const kernels[] = {"a", "a", "b"}, *const batch[] = {"1", "4", "1"};
    memset(m, 0, sizeof *m);
    for (int i = 0; i < 3; i++) {
        m->tokens[i] = i;
        m->prompts[i] = (struct ds_prompt){.request = i, .tokens = &m->tokens[i], .n_tokens = 1};
    }
    m->factors[0] = "batch";
    m->factors[1] = "kernels";
    for (int a = 0; a < ARMS; a++) {
        m->values[a][0] = batch[a];
        m->values[a][1] = kernels[a];
        m->arms[a].values = m->values[a];
        m->t[a].steps = m->steps[a];
        m->t[a].info.arm = (uint32_t)a;
        m->trials[a] = &m->t[a];
    }
    m->options[0] = (struct ds_text){"serve_requests", requests};
    m->options[1] = (struct ds_text){"serve_tokens", "2"};
    m->h = (struct ds_header){.prompts = m->prompts,
                              .n_prompts = requests ? 3 : 1,
                              .options = m->options,
                              .n_options = requests ? 2 : 0,
                              .factors = m->factors,
                              .n_factors = 2,
                              .arms = m->arms,
                              .n_arms = ARMS,
                              .sites = m->sites,
                              .n_sites = 3,
                              .n_layers = 2};
}

/* The logits of tokens 1 and 2, all others far below. */
static void step(struct made *m, int arm, int32_t request, int32_t number, float one, float two)
{
    struct ds_step *s = &m->steps[arm][m->t[arm].n_steps++];
    const int swapped = two > one;
    *s = (struct ds_step){.request = request,
                          .step = number,
                          .token = swapped ? 2 : 1,
                          .forced = 7,
                          .ids = {swapped ? 2 : 1, swapped ? 1 : 2, -1},
                          .logits = {swapped ? two : one, swapped ? one : two},
                          .margin = fabsf(one - two),
                          .ties = 1 + (one == two)};
    s->digest = (uint64_t)(one * 4096) * 1000003 + (uint64_t)(two * 4096);
}

static void test_a_sweep(void **state)
{
    struct made m;
    struct ds_risk r;
    struct ds_error err;
    (void)state;
    begin(&m, NULL);
    static const float margin[] = {1, 0.5f, 0.25f, 0.0625f}, moved[] = {0.125f, 0, 0.125f, 0.125f};
    for (int32_t k = 0; k < 4; k++) {
        step(&m, 0, 0, k, 4 + margin[k], 4);
        step(&m, 1, 0, k, 4 + margin[k] - moved[k], 4);
        step(&m, 2, 0, k, 4 + margin[k], 4);
    }
    assert_ok(ds_risk_make(&m.h, m.trials, &r, &err), err);
    assert_int_equal(r.n_groups, 2);
    assert_int_equal(r.n_prompts, 1);
    const struct ds_risk_group *g = &r.groups[0];
    assert_int_equal(g->flips.choices, 4);
    assert_int_equal(g->flips.seen, 1);    /* the last one: 0.0625 - 0.125 */
    assert_int_equal(g->flips.bounded, 0); /* one prompt */
    assert_close("expected", 0, g->flips.expected, 0.5, 1e-12);
    assert_close("per 1000", 0, g->per_1000, 125, 1e-9);
    assert_close("seen", 0, g->seen_per_1000, 250, 1e-9);
    assert_close("drift", 0, g->flips.drift_most, 0.125, 1e-12);
    assert_close("smallest", 0, g->margin[0], 0.0625, 1e-12);
    assert_close("largest", 0, g->margin[4], 1, 1e-12);
    assert_close("within", 0, g->within[2], 0.25, 1e-12);
    assert_int_equal(g->n_choices, 4);
    assert_int_equal(g->choices[0].ref->step, 3);
    assert_int_equal(g->choices[0].seen, 1);
    assert_close("chance", 0, g->choices[0].chance, 0.5, 1e-12);
    /* one arm alone: margins, and no drift */
    g = &r.groups[1];
    assert_int_equal(g->arm, 2);
    assert_int_equal(g->flips.choices, 0);
    assert_int_equal(g->n_choices, 4);
    assert_true(isnan(g->choices[0].drift) && g->within[2] == 0 && g->per_1000 == 0);
    ds_risk_free(&r);
}

/* A NaN in a row is no tie, and it is named also where the best two are numbers. */
static void test_rows_with_nan(void **state)
{
    struct made m;
    struct ds_risk r;
    struct ds_error err;
    (void)state;
    static const struct {
        float one, two, margin;
        double exp_sum;
        int32_t ties;
        char *temperature;
        uint64_t blind, nan, tied;
    } cases[] = {
        {4, 3, 1, 1.5, 1, "0", 0, 0, 0},
        {4, 4, 0, 2, 2, "0", 0, 0, 1},
        {4, 3, 1, NAN, 1, "0", 0, 1, 0},
        {NAN, NAN, NAN, NAN, 0, "0", 1, 0, 0},
        {4, 3, 1, NAN, 1, "0.8", 0, 0, 0},                   /* scores: they have no sum */
        {-INFINITY, -INFINITY, 0, NAN, 512, "0.8", 1, 0, 0}, /* nothing to draw from */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin(&m, NULL);
        m.options[0] = (struct ds_text){"temperature", cases[i].temperature};
        m.h.n_options = 1;
        for (int a = 0; a < 2; a++) {
            step(&m, a, 0, 0, 4, 2);
            step(&m, a, 0, 1, 4, 3);
            struct ds_step *s = &m.steps[a][1];
            s->logits[0] = cases[i].one;
            s->logits[1] = cases[i].two;
            s->margin = cases[i].margin;
            s->ties = cases[i].ties;
            s->exp_sum = cases[i].exp_sum;
        }
        m.trials[2] = NULL;
        assert_ok(ds_risk_make(&m.h, m.trials, &r, &err), err);
        assert_int_equal(r.groups[0].n_choices, 2);
        if (r.groups[0].blind != cases[i].blind || r.groups[0].nan != cases[i].nan ||
            r.groups[0].ties != cases[i].tied)
            fail_msg("case %zu: blind %llu, nan %llu, ties %llu", i,
                     (unsigned long long)r.groups[0].blind, (unsigned long long)r.groups[0].nan,
                     (unsigned long long)r.groups[0].ties);
        ds_risk_free(&r);
    }
}

/* Behind another token that was fed nothing is held against anything. */
static void test_other_tokens_end_it(void **state)
{
    struct made m;
    struct ds_risk r;
    struct ds_error err;
    (void)state;
    begin(&m, NULL);
    for (int32_t k = 0; k < 4; k++) {
        step(&m, 0, 0, k, 5, 4);
        step(&m, 1, 0, k, 5, 4);
    }
    m.steps[1][1].forced = 8;
    m.trials[2] = NULL;
    assert_ok(ds_risk_make(&m.h, m.trials, &r, &err), err);
    assert_int_equal(r.n_groups, 1);
    assert_int_equal(r.groups[0].flips.choices, 2);
    ds_risk_free(&r);
}

/* Layer 1 drifts by 1 % where the gap moved by 0.125 of a margin of 1: 8 times as far would turn it over. */
static void test_layers(void **state)
{
    struct made m;
    struct ds_risk r;
    struct ds_error err;
    (void)state;
    begin(&m, NULL);
    static const char *const stages[] = {"resid_ffn", "resid_ffn", "final_norm"};
    for (int i = 0; i < 3; i++) {
        snprintf(m.sites[i].stage, sizeof m.sites[i].stage, "%s", stages[i]);
        m.sites[i].layer = i;
    }
    step(&m, 0, 0, 0, 5, 4);
    step(&m, 1, 0, 0, 4.875f, 4);
    m.rows[0] = (struct ds_row){.position = 3}; /* of the prompt, and not its last */
    m.rows[1] = (struct ds_row){.position = 4};
    m.t[1].rows = m.rows;
    m.t[1].n_rows = 2;
    m.drifts[0] = (struct ds_drift){.site = 1, .row = 0, .diff_sq = 1, .ref_sq = 1};
    m.drifts[1] = (struct ds_drift){.site = 1, .row = 1, .diff_sq = 1e-4, .ref_sq = 1};
    m.drifts[2] = (struct ds_drift){.site = 2, .row = 1, .diff_sq = 4e-4, .ref_sq = 1};
    m.drifts[3] = (struct ds_drift){.site = 0, .row = 1, .ref_arm = 2, .diff_sq = 1, .ref_sq = 1};
    m.t[1].drifts = m.drifts;
    m.t[1].n_drifts = 4;
    assert_ok(ds_risk_make(&m.h, m.trials, &r, &err), err);
    const struct ds_risk_group *g = &r.groups[0];
    assert_int_equal(g->n_layers, 2);
    assert_int_equal(g->layers[0].layer, 1);
    assert_close("measured", 0, g->layers[0].median, 0.01, 1e-9);
    assert_close("needed", 0, g->layers[0].needed, 0.08, 1e-6);
    assert_int_equal(g->layers[1].layer, 2);
    assert_close("needed", 1, g->layers[1].needed, 0.16, 1e-6);
    ds_risk_free(&r);
}

/* Nine requests of three prompts; prompt 0 has a near tie at step 0, of which request 3 chose otherwise. */
static void serve(struct made *m, float shift)
{
    begin(m, "9");
    for (int32_t r = 0; r < 9; r++)
        for (int32_t k = 0; k < 2; k++) {
            const int near = r % 3 == 0 && k == 0;
            const float move = near && r == 3 ? shift : 0;
            step(m, 0, r, k, near ? 4.0625f + move : 6, 4);
        }
    m->trials[1] = m->trials[2] = NULL;
}

static void test_what_a_storm_foretells(void **state)
{
    struct made m, other;
    struct ds_risk r;
    struct ds_risk_test t;
    struct ds_error err;
    (void)state;
    serve(&m, -0.125f);
    assert_ok(ds_risk_make(&m.h, m.trials, &r, &err), err);
    assert_int_equal(r.n_prompts, 3);
    const struct ds_risk_group *g = &r.groups[0];
    /* open: request 3 to its parting, the others two steps each */
    assert_int_equal(g->flips.choices, 1 + 5 * 2);
    assert_int_equal(g->flips.seen, 1);
    /* two answers, by 0.0625 and -0.0625: each is turned over with probability one half, and one of three has parted where
     * one of them is */
    assert_close("expected", 0, g->flips.expected, 0.5, 0.06);
    assert_int_equal(g->flips.bounded, 1);
    serve(&other, 0.03125f);
    assert_int_equal(ds_risk_foretell(&m.h, &r, &other.h, &other.t[0], 0, &t, &err), 1);
    assert_int_equal(t.requests, 6);
    assert_int_equal(t.seen, 0);
    assert_int_equal(t.known, 1);
    assert_close("foretold", 0, t.expected, 0.5, 0.06);
    assert_true(t.low <= t.expected && t.expected <= t.high);
    /* other kernels; other prompts; a sweep */
    assert_int_equal(ds_risk_foretell(&m.h, &r, &other.h, &other.t[0], 2, &t, &err), 0);
    other.tokens[1] = 9;
    assert_int_equal(ds_risk_foretell(&m.h, &r, &other.h, &other.t[0], 0, &t, &err), -1);
    assert_non_null(strstr(err.msg, "same prompts"));
    other.tokens[1] = 1;
    other.options[0].value = "x";
    assert_int_equal(ds_risk_foretell(&m.h, &r, &other.h, &other.t[0], 0, &t, &err), -1);
    assert_non_null(strstr(err.msg, "serving run"));
    ds_risk_free(&r);
    m.options[0].value = "-4";
    assert_int_equal(ds_risk_make(&m.h, m.trials, &r, &err), -1);
    assert_non_null(strstr(err.msg, "-4 requests"));
}

/* Of the choice that requests 0 and 3 made, layer 1 drifts by 1 %, where the gap moved by 0.125 of a margin of 0.0625: half as
 * far would turn it over. Other drifts have no partner, or are no layer's end. */
static void test_layers_of_a_storm(void **state)
{
    struct made m;
    struct ds_risk r;
    struct ds_error err;
    struct ds_capture captures[2];
    static const uint64_t digests[] = {10, 11, 12, 20, 20, 20};
    (void)state;
    serve(&m, -0.125f);
    strcpy(m.sites[0].stage, "resid_ffn");
    strcpy(m.sites[1].stage, "resid_ffn");
    m.sites[1].layer = 1;
    strcpy(m.sites[2].stage, "act");
    for (int i = 0; i < 3; i++) /* prompts have one token: position 0 chooses token 0 */
        m.rows[i] = (struct ds_row){.request = i == 2 ? 1 : 3 * i};
    m.t[0].rows = m.rows;
    m.t[0].n_rows = 3;
    captures[0] = (struct ds_capture){.site = 1, .rows = 3};
    captures[1] = (struct ds_capture){.site = 0, .rows = 3, .first_digest = 3};
    m.t[0].captures = captures;
    m.t[0].n_captures = 2;
    m.t[0].digests = (uint64_t *)(uintptr_t)digests;
    m.t[0].n_digests = 6;
    const struct ds_drift one = {
        .site = 1, .row = 1, .diff_sq = 1e-4, .ref_sq = 1, .digest = 11, .ref_digest = 10};
    for (int i = 0; i < 4; i++)
        m.drifts[i] = one;
    m.drifts[1].ref_digest = 12; /* of another prompt */
    m.drifts[2].site = 2;
    m.drifts[3].ref_arm = 1;
    m.t[0].drifts = m.drifts;
    m.t[0].n_drifts = 4;
    assert_ok(ds_risk_make(&m.h, m.trials, &r, &err), err);
    const struct ds_risk_group *g = &r.groups[0];
    assert_int_equal(g->n_layers, 1);
    assert_int_equal(g->layers[0].layer, 1);
    assert_int_equal(g->layers[0].rows, 1);
    assert_close("measured", 0, g->layers[0].median, 0.01, 1e-9);
    assert_close("needed", 0, g->layers[0].needed, 0.005, 1e-6);
    assert_int_equal(g->layers[0].request, 0);
    ds_risk_free(&r);
}

/* Of request 1's second choice, generated and then scored, layer 0 drifts by 2 %, where the gap moved by 0.25 of a margin of 1. */
static void test_layers_of_a_scored_text(void **state)
{
    struct made m;
    struct ds_risk r;
    struct ds_error err;
    (void)state;
    begin(&m, "3");
    m.options[2] = (struct ds_text){"serve_scored", "1"};
    m.h.n_options = 3;
    strcpy(m.sites[0].stage, "resid_ffn");
    for (int32_t q = 0; q < 3; q++)
        for (int32_t k = 0; k < 2; k++) {
            step(&m, 0, q, k, 5, 4);
            step(&m, 1, q, k, q == 1 && k == 1 ? 4.75f : 5, 4);
        }
    m.trials[2] = NULL;
    m.rows[0] = (struct ds_row){.request = 1, .position = 1, .step = 1};
    m.rows[1] = (struct ds_row){.request = 1, .position = 2};                  /* chooses nothing */
    m.rows[2] = (struct ds_row){.request = 1, .position = 1, .occurrence = 1}; /* again */
    m.t[1].rows = m.rows;
    m.t[1].n_rows = 3;
    const struct ds_drift one = {.row = 0, .diff_sq = 4e-4, .ref_sq = 1};
    for (uint32_t i = 0; i < 5; i++)
        m.drifts[i] = one;
    m.drifts[1].row = 1;
    m.drifts[2].row = 2;
    m.drifts[3].ref_arm = 1;
    m.drifts[4].site = 1;
    m.t[1].drifts = m.drifts;
    m.t[1].n_drifts = 5;
    assert_ok(ds_risk_make(&m.h, m.trials, &r, &err), err);
    const struct ds_risk_group *g = &r.groups[0];
    assert_int_equal(g->flips.choices, 6);
    assert_int_equal(g->n_layers, 1);
    assert_int_equal(g->layers[0].layer, 0);
    assert_int_equal(g->layers[0].rows, 1);
    assert_close("measured", 0, g->layers[0].median, 0.02, 1e-9);
    assert_close("needed", 0, g->layers[0].needed, 0.08, 1e-6);
    assert_int_equal(g->layers[0].request, 1);
    assert_int_equal(g->layers[0].step, 1);
    ds_risk_free(&r);
}

/* ---- what an exchange is worth --------------------------------------------------------------- */

enum { EXCHANGED = 6, GAIN_PROMPTS = 20 };

/* seen[k] flips of 100 choices at the first n prompts of group k, none at the others. */
static void weigh(const char *const *kernels, const double *moved, const uint32_t *seen,
                  const int *n, size_t n_prompts, struct ds_risk_gain **out, size_t *n_out)
{
    static char *factors[] = {"kernels"};
    char *values[EXCHANGED];
    struct ds_arm arms[EXCHANGED];
    struct ds_risk_group groups[EXCHANGED] = {{0}};
    struct ds_risk_choice choices[EXCHANGED][GAIN_PROMPTS];
    /* Behind the prompts the first of them again: it is the same one. */
    int32_t tokens[GAIN_PROMPTS + 1];
    struct ds_prompt prompts[GAIN_PROMPTS + 1];
    struct ds_text options[] = {{"serve_requests", "100"}};
    struct ds_header h = {.factors = factors,
                          .n_factors = 1,
                          .arms = arms,
                          .n_arms = EXCHANGED,
                          .prompts = prompts,
                          .n_prompts = n_prompts + 1,
                          .options = options,
                          .n_options = 1};
    for (size_t p = 0; p <= n_prompts; p++) {
        tokens[p] = p == n_prompts ? 0 : (int32_t)p;
        prompts[p] = (struct ds_prompt){.tokens = &tokens[p], .n_tokens = 1};
    }
    struct ds_risk r = {.groups = groups, .n_groups = EXCHANGED, .n_prompts = n_prompts};
    struct ds_error err;
    memset(choices, 0, sizeof choices);
    for (size_t k = 0; k < EXCHANGED; k++) {
        values[k] = (char *)(uintptr_t)kernels[k];
        arms[k].values = &values[k];
        groups[k].arm = (uint32_t)k;
        groups[k].choices = choices[k];
        groups[k].n_choices = n_prompts;
        groups[k].per_1000 = (double)k;
        groups[k].flips.drift_most = moved[k];
        for (size_t p = 0; p < n_prompts; p++) {
            const uint32_t own = (int)p < n[k] ? seen[k] : 0;
            choices[k][p] = (struct ds_risk_choice){
                .prompt = (int32_t)(p ? p : n_prompts), .pairs = 100, .seen = own};
            groups[k].flips.choices += 100;
            groups[k].flips.seen += own;
        }
    }
    assert_ok(ds_risk_gains(&h, &r, out, n_out, &err), err);
}

static void test_what_an_exchange_is_worth(void **state)
{
    static const char *const kernels[EXCHANGED] = {
        "a+all=q@0-2", "a+all=q@0-2+few=p", "a+all=q@0-2+most=p", "a+all=q@0-2+worse=p",
        "a",           "a+all=p",
    };
    static const double moved[EXCHANGED] = {1, 1, 1, 1, 0, 0};
    static const uint32_t seen[EXCHANGED] = {4, 4, 1, 20, 0, 0};
    static const int n[EXCHANGED] = {10, 9, 5, 20, 0, 0};
    struct ds_risk_gain *g;
    size_t count;
    (void)state;
    weigh(kernels, moved, seen, n, GAIN_PROMPTS, &g, &count);
    static const struct {
        const char *name;
        int verdict;
        double fewer;
    } expected[] = {{"most=p", DS_GAIN_SOME, 17.5},
                    {"all=p", DS_GAIN_ALL, 20},
                    {"few=p", DS_GAIN_NONE, 2},
                    {"worse=p", DS_GAIN_LOSS, -180}};
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(g[i].exchanged, expected[i].name);
        assert_int_equal(g[i].verdict, expected[i].verdict);
        assert_close("fewer", i, g[i].fewer, expected[i].fewer, 1e-9);
        assert_int_equal(g[i].bounded, 1);
        assert_true(g[i].low <= g[i].fewer && g[i].fewer <= g[i].high);
    }
    free(g);
    /* one prompt: nothing but that no choice moves is told */
    weigh(kernels, moved, seen, n, 1, &g, &count);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(g[i].bounded, 0);
        assert_int_equal(g[i].verdict, i == 0 ? DS_GAIN_ALL : DS_GAIN_NONE);
    }
    assert_string_equal(g[0].exchanged, "all=p");
    free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sweep),
        cmocka_unit_test(test_rows_with_nan),
        cmocka_unit_test(test_other_tokens_end_it),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_what_a_storm_foretells),
        cmocka_unit_test(test_layers_of_a_storm),
        cmocka_unit_test(test_layers_of_a_scored_text),
        cmocka_unit_test(test_what_an_exchange_is_worth),
    };
    return cmocka_run_group_tests_name("risk", tests, NULL, NULL);
}
