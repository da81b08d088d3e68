/* test_census.c: different runs, the pairs table, the interval and the size at which instability
 * sets in, for repeats that the test controls. */
#include "tests/unit/dumps/verdict_fixture.h"

#include "dumps/census.h"

#include <math.h>

/* Repeats 1 and 4 give other bits at one row of layer 0 q_proj, repeat 3 at one of layer 1. */
static uint32_t two_odd(const struct cell *c)
{
    if (cell_is(c, 0, "q_proj") && c->position == 3)
        return c->repeat == 1 || c->repeat == 4 ? 5 : 0;
    return cell_is(c, 1, "down") && c->position == 2 && c->repeat == 3;
}

static void test_runs_and_pairs(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 2);
    sweep_arm(&s, "1");
    s.tag = two_odd;
    sweep_run(&s, 7);
    run_verdict(&s, &v);
    assert_int_equal(v.census->n_arms, 1);
    const struct ds_census_arm *c = &v.census->arms[0];
    assert_int_equal(c->trials, 7);
    assert_int_equal(c->distinct, 3);
    assert_int_equal(c->modal, 4);
    assert_int_equal(c->disagree, 3);
    assert_int_equal(c->most, 2);
    assert_true(c->counted);
    assert_false(c->first_trial);
    assert_true(c->low < 3.0 / 7 && 3.0 / 7 < c->high);
    /* The first place: inputs equal in all runs, 5 of 7 agree. */
    assert_string_equal(c->first.stage, "q_proj");
    assert_int_equal(c->first.position, 3);
    assert_int_equal(c->first.label, DS_LABEL_ORIGIN);
    assert_int_equal(c->agree, 5);
    assert_int_equal(c->values, 2);
    assert_int_equal(c->of_pairs, 3);
    assert_int_equal(c->n_pairs, 3);
    const struct {
        uint32_t a, b;
        const char *stage;
        int layer, position;
    } want[] = {{0, 1, "q_proj", 0, 3}, {0, 3, "down", 1, 2}, {1, 3, "q_proj", 0, 3}};
    for (size_t i = 0; i < 3; i++) {
        const struct ds_census_pair *p = &c->pairs[i];
        assert_int_equal(p->a, want[i].a);
        assert_int_equal(p->b, want[i].b);
        assert_string_equal(s.header.sites[p->site].stage, want[i].stage);
        assert_int_equal(s.header.sites[p->site].layer, want[i].layer);
        assert_int_equal(p->position, want[i].position);
        assert_true(p->digests > 1);
    }
    assert_int_equal(c->n_places, 2);
    assert_int_equal(c->places[0].pairs + c->places[1].pairs, 3);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* Repeats 0, 3, 5 and 7 give one digest at position 3, 1, 2 and 6 another, 4 a third; at position 4 every repeat gives
 * its own; at position 5 two digests are given four times each. */
static uint32_t three_values(const struct cell *c)
{
    static const uint32_t at_three[] = {1, 2, 2, 1, 3, 1, 2, 1};
    if (!cell_is(c, 0, "q_proj"))
        return 0;
    return c->position == 3   ? at_three[c->repeat]
           : c->position == 4 ? 10 + c->repeat
           : c->position == 5 ? 30 + (c->repeat % 4 > 1)
                              : 0;
}

static void test_what_a_row_gave(void **state)
{
    (void)state;
    static const struct {
        int32_t position;
        uint32_t values, modal, of; /* of: a repeat that gave the mode */
    } rows[] = {{2, 1, 8, 0}, {3, 3, 4, 3}, {4, 8, 1, 0}, {5, 2, 4, 1}};
    struct sweep s;
    struct ds_analysis *a;
    struct ds_census_site c;
    struct ds_error err;
    sweep_init(&s, "batch", 2);
    sweep_arm(&s, "1");
    s.tag = three_values;
    sweep_run(&s, 8);
    struct ds_source src = sweep_source(&s);
    assert_ok(ds_analysis_new(&src, NULL, &a, &err), err);
    uint32_t site = 0, embed = 0;
    while (strcmp(s.header.sites[site].stage, "q_proj") != 0)
        site++;
    assert_ok(ds_census_site(a, 0, site, &c, &err), err);
    assert_int_equal(c.trials, 8);
    assert_int_equal(c.with, SWEEP_PROMPT + SWEEP_STEPS);
    assert_int_equal(c.unstable, 3);
    assert_int_equal(c.most, 8);
    assert_int_equal(c.least, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct ds_census_row *r = &c.rows[rows[i].position];
        uint32_t row;
        assert_int_equal(r->trials, 8);
        assert_int_equal(r->values, rows[i].values);
        assert_int_equal(r->modal, rows[i].modal);
        assert_true(r->digest == *sweep_find(&s.trials[rows[i].of], site, rows[i].position, &row));
    }
    ds_census_site_free(&c);
    /* a site where all agree; a row that only some trials have; what is not there */
    s.trials[6].n_captures = 0;
    assert_ok(ds_census_site(a, 0, embed, &c, &err), err);
    assert_int_equal(c.unstable, 0);
    assert_int_equal(c.most, 1);
    assert_int_equal(c.rows[0].trials, 7);
    assert_int_equal(c.rows[0].modal, 7);
    ds_census_site_free(&c);
    assert_ok(ds_census_site(a, 7, site, &c, &err), err);
    assert_int_equal(c.trials, 0);
    for (long n = 1; n <= 3; n++) {
        ds_mem_fail_at(n);
        assert_int_equal(ds_census_site(a, 0, site, &c, &err), -1);
        ds_mem_fail_at(0);
        assert_null(c.rows);
    }
    ds_analysis_free(a);
    sweep_free(&s);
}

/* Every run of its own: more pairs than are told. */
static uint32_t all_odd(const struct cell *c)
{
    return cell_is(c, 0, "k_proj") ? c->repeat : 0;
}

static void test_many_runs_are_summarised(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    s.tag = all_odd;
    s.no_sizes = 1;
    enum { TRIALS = DS_CENSUS_RUNS + 4 };
    sweep_run(&s, TRIALS);
    run_verdict(&s, &v);
    const struct ds_census_arm *c = &v.census->arms[0];
    assert_int_equal(c->distinct, TRIALS);
    assert_int_equal(c->modal, 1);
    assert_int_equal(c->n_pairs, DS_CENSUS_PAIRS);
    assert_false(c->counted);
    assert_int_equal(c->most, DS_CENSUS_RUNS);
    assert_int_equal(c->of_pairs, TRIALS * (TRIALS - 1) / 2);
    assert_int_equal(c->unseen, c->of_pairs - DS_CENSUS_RUNS * (DS_CENSUS_RUNS - 1) / 2);
    assert_int_equal(c->n_places, 1);
    assert_int_equal(c->places[0].pairs, c->of_pairs - c->unseen);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* Only the first trial of its process is odd. */
static uint32_t warm_up(const struct cell *c)
{
    return cell_is(c, 0, "q_proj") && c->repeat == 0;
}

static void test_warm_up_is_named(void **state)
{
    (void)state;
    for (int earlier = 0; earlier < 2; earlier++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch", 1);
        sweep_arm(&s, "1");
        s.tag = warm_up;
        sweep_run(&s, 5);
        for (size_t i = 0; i < s.n_trials; i++)
            s.trials[i].info.start_s = 10.0 + (double)i;
        s.trials[4].info.start_s = earlier ? 1 : 14; /* it warmed up for the first one */
        run_verdict(&s, &v);
        assert_int_equal(v.census->arms[0].first_trial, !earlier);
        assert_int_equal(v.census->arms[0].distinct, 2);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

/* Every other trial is odd; a pass without probes may stand behind the first. */
static uint32_t by_turns(const struct cell *c)
{
    return cell_is(c, 0, "q_proj") && c->repeat % 2;
}

static uint32_t by_turns_but_one(const struct cell *c)
{
    return cell_is(c, 0, "q_proj") && (c->repeat == 6 || c->repeat % 2);
}

static uint32_t by_turns_behind_the_first(const struct cell *c)
{
    return cell_is(c, 0, "q_proj") && (c->repeat == 0 || c->repeat % 2);
}

static void test_turns_are_told_from_chance(void **state)
{
    (void)state;
    static const struct {
        uint32_t (*tag)(const struct cell *);
        int trials, pattern;
    } cases[] = {{by_turns, 8, DS_CENSUS_IN_TURNS},
                 {by_turns_behind_the_first, 9, DS_CENSUS_IN_TURNS},
                 {by_turns, 6, DS_CENSUS_BY_CHANCE}, /* too few to tell */
                 {by_turns_but_one, 9, DS_CENSUS_BY_CHANCE},
                 {warm_up, 9, DS_CENSUS_BY_CHANCE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch", 1);
        sweep_arm(&s, "1");
        s.tag = cases[i].tag;
        sweep_run(&s, cases[i].trials);
        run_verdict(&s, &v);
        assert_int_equal(v.census->arms[0].pattern, cases[i].pattern);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

/* ---- thresholds ------------------------------------------------------------------------------ */

static uint32_t chance(const struct cell *c)
{
    uint64_t h =
        sweep_mix(c->arm * 131 + c->repeat + 1, c->site_index * 64 + (uint64_t)c->position);
    return 1 + (uint32_t)(h % 4);
}

static uint32_t from_eight_rows(const struct cell *c)
{
    return is_matmul(c) && c->m >= 8 ? chance(c) : 0;
}

static uint32_t below_eight_rows(const struct cell *c)
{
    return is_matmul(c) && c->m < 8 ? chance(c) : 0;
}

static uint32_t from_eight_with_two_threads(const struct cell *c)
{
    return cell_number(c, "threads", 1) > 1 ? from_eight_rows(c) : 0;
}

static uint32_t long_attention(const struct cell *c)
{
    return strcmp(c->site->op, "attention") == 0 && c->position >= 4 ? chance(c) : 0;
}

static uint32_t everywhere(const struct cell *c)
{
    return is_matmul(c) ? chance(c) : 0;
}

static void test_thresholds(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t (*tag)(const struct cell *);
        const char *want; /* measure edge at stable setting */
    } cases[] = {
        {"from 8 rows on", from_eight_rows, "rows from 8/6 []; rows from 12/6 [threads 2]; "},
        {"up to 6 rows", below_eight_rows, "rows up-to 6/8 []; rows up-to 6/12 [threads 2]; "},
        {"two threads", from_eight_with_two_threads, "rows from 12/6 [threads 2]; "},
        {"a long sequence", long_attention, "length from 5/4 []; length from 5/4 [threads 2]; "},
        {"everywhere", everywhere, ""},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct sweep s;
        struct ds_verdict v;
        char got[512] = "";
        usual_arms(&s);
        s.tag = cases[k].tag;
        sweep_run(&s, 4);
        run_verdict(&s, &v);
        for (size_t i = 0; i < v.census->n_thresholds; i++) {
            const struct ds_census_threshold *t = &v.census->thresholds[i];
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s %s %u/%u [%s]; ", t->measure,
                     t->edge == DS_CENSUS_FROM ? "from" : "up-to", t->at, t->stable, t->setting);
        }
        if (strcmp(got, cases[k].want) != 0)
            print_error("%s: %s\n", cases[k].name, got);
        assert_string_equal(got, cases[k].want);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

/* A few launches of one row disagree. The prompt's had six rows each, and were few: that none of them
 * did may be luck, for a launch goes wrong as a whole. */
static uint32_t now_and_then(const struct cell *c)
{
    return cell_is(c, 3, "q_proj") && c->phase == 1 && c->repeat == 1;
}

static void test_rows_of_a_launch_are_one_event(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 4);
    sweep_arm(&s, "1");
    s.tag = now_and_then;
    sweep_run(&s, 4);
    run_verdict(&s, &v);
    assert_false(v.stable);
    assert_int_equal(v.census->n_thresholds, 0);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* ---- the rule -------------------------------------------------------------------------------- */

static void test_flake_rule(void **state)
{
    (void)state;
    static const struct {
        double rate;
        uint32_t trials;
    } want[] = {{0.5, 6}, {0.1, 30}, {0.05, 60}, {0.01, 300}, {0.001, 2996}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        uint32_t n = ds_flake_trials(want[i].rate);
        assert_int_equal(n, want[i].trials);
        assert_true(ds_flake_excluded(n) <= want[i].rate);
        assert_true(ds_flake_excluded(n - 1) > want[i].rate);
    }
    assert_int_equal(ds_flake_trials(0), UINT32_MAX);
    assert_int_equal(ds_flake_trials(1), UINT32_MAX);
    assert_int_equal(ds_flake_trials(NAN), UINT32_MAX);
    assert_int_equal(ds_flake_trials(1e-300), UINT32_MAX);
    assert_close("one trial", 0, ds_flake_excluded(1), 1, 0);
    double low, high; /* Wilson: 3 of 10 is 10.8 to 60.3 % */
    ds_wilson(3, 10, &low, &high);
    assert_close("low", 0, low, 0.10779, 1e-5);
    assert_close("high", 0, high, 0.60322, 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_and_pairs),
        cmocka_unit_test(test_what_a_row_gave),
        cmocka_unit_test(test_many_runs_are_summarised),
        cmocka_unit_test(test_warm_up_is_named),
        cmocka_unit_test(test_turns_are_told_from_chance),
        cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_rows_of_a_launch_are_one_event),
        cmocka_unit_test(test_flake_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
