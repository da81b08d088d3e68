/* Runs: letters, repeats, pairs, what was lost, and where Enter leads, held against the verdict's census. */
#include "tests/unit/tui/view_fixture.h"

#include "dumps/census.h"

enum { LAYERS = 1, SITE = 2 };

/* Layer 1 q_proj has another result in repeats 1 and 3 of calls of 24 rows, of its own in repeat 3. */
static uint32_t flaky(const struct cell *c)
{
    if (cell_is(c, 1, "q_proj") && c->m >= 4 * SWEEP_PROMPT && c->repeat % 2)
        return c->repeat;
    return cell_is(c, 2, "down") && cell_number(c, "threads", 1) == 2 ? 7 : 0;
}

static void set_run_digests(struct sweep *s)
{
    struct ds_error err;
    for (size_t i = 0; i < s->n_trials; i++) {
        struct ds_trial *t = &s->trials[i].info;
        assert_ok(ds_trial_run_digest(&s->header, &s->trials[i], &t->run_digest, &err), err);
        t->wall_s = 0.25;
        t->cpu_s = 1e-7;
    }
}

static uint32_t find_site(const struct ds_header *h, int32_t layer, const char *stage)
{
    for (uint32_t i = 0; i < h->n_sites; i++)
        if (h->sites[i].layer == layer && strcmp(h->sites[i].stage, stage) == 0)
            return i;
    fail_msg("no site %s", stage);
    return 0;
}

static void write_flaky(const char *path)
{
    struct sweep s;
    fixture_plan(&s, flaky);
    sweep_run(&s, 5);
    set_run_digests(&s);
    s.trials[0].info.threads_seen = DS_UNKNOWN;
    write_sweep(&s, path, s.n_trials);
    sweep_free(&s);
}

static void test_unstable(void **state)
{
    struct shown s;
    struct ds_error err;
    const char *path = test_path("flaky.h5");
    (void)state;
    write_flaky(path);
    shown_open(&s, &tui_view_runs, path, NULL, 60, 150);
    assert_line(&s, "repeats disagree in 1 arm: 2 of 5 trials with the mode, 40 %");
    assert_line(&s, "2 batch 4        1 b     natural ");
    assert_line(&s, "2 batch 4        2 a     natural ");
    assert_line(&s, "2 batch 4        3 c     natural ");
    assert_line(&s, "-repeats     trials runs  ");
    assert_line(
        &s, " 2 batch 4        5 abaca unstable L01 q_proj              3     3     2   11.8 76.9");
    assert_line(&s, " 1 batch 2        5 aaaaa stable ");
    assert_line(&s, "-pairs       repeat runs  against ");
    assert_line(&s, " 2 batch 4        0 a b   1        L01 q_proj ");
    assert_line(&s, " 2 batch 4        1 b c   3        L01 q_proj ");
    assert_line(
        &s,
        "0.2500 1e-07     1      1    ?"); /* CPU time that is not 0; threads that are not known */
    const struct ds_census *census = s.context.whole->verdict->census;
    assert_int_equal(census->n_arms, 4);
    assert_int_equal(census->arms[2].distinct, 3);

    /* e goes to trials unlike the mode, then to the arm, then to its pairs. */
    const char *way[] = {"2 batch 4", "2 batch 4", "2 batch 4", "2 batch 4"};
    tui_table_end(&s.view.table, 0);
    for (size_t i = 0; i < 4; i++) {
        struct tui_value v = {.text = ""};
        assert_int_equal(tui_table_jump(&s.view.table, TUI_IS_DRIFT, 1), 0);
        s.view.table.source.cell(s.view.table.source.ctx, tui_table_row(&s.view.table), 0, &v);
        assert_string_equal(v.text, way[i]);
    }

    uint32_t q = find_site(s.context.whole->header, 1, "q_proj");
    const char *lines[] = {"\"2 batch 4\" repeat=3 pass=natural", "\"2 batch 4\" against=3",
                           "\"2 batch 4\" unstable"};
    for (size_t i = 0; i < 3; i++) {
        s.place = (struct tui_place){0};
        shown_find(&s, lines[i]);
        assert_int_equal(shown_enter(&s, &err), SITE);
        assert_int_equal(s.place.site, q);
        assert_int_equal(s.place.arm, 2);
        assert_int_equal(s.place.ref, 2);
    }
    char want[200];
    snprintf(want, sizeof want, "driftscope show %s --runs --long", path);
    assert_command(&s, want);
    shown_close(&s);
}

/* A trial of an arm whose repeats agree: where the arm first differs from its reference. */
static void test_stable(void **state)
{
    struct shown s;
    struct ds_error err;
    const char *path = test_path("stable.h5");
    struct sweep sweep;
    (void)state;
    fixture_plan(&sweep, two_faults);
    sweep_run(&sweep, 2);
    set_run_digests(&sweep);
    write_sweep(&sweep, path, sweep.n_trials);
    shown_open(&s, &tui_view_runs, path, NULL, 40, 120);
    assert_line(&s, "all repeats agree; a flake rate above 95 %");
    get_pair(s.data, 2, 0);
    get_pair(s.data, 1, 0);
    shown_find(&s, "\"2 batch 4\" pass=natural");
    assert_int_equal(shown_enter(&s, &err), SITE);
    assert_int_equal(s.place.site, find_site(s.context.whole->header, 1, "q_proj"));
    assert_int_equal(s.place.arm, 2);
    assert_int_equal(s.place.ref, 0);
    shown_find(&s, "\"1 batch 2\" pass=natural");
    assert_int_equal(shown_enter(&s, &err), -1);
    assert_string_equal(err.msg, "no row of it differs from arm 0");
    shown_find(&s, "\"0 base arm\" pass=natural");
    assert_int_equal(shown_enter(&s, &err), -1);
    char want[200];
    snprintf(want, sizeof want, "driftscope show %s --runs --long", path);
    assert_command(&s, want);
    shown_close(&s);

    /* Two records: each row says whose it is, and y shows that one. */
    const char *path_b = test_path("stable-b.h5");
    sweep.trials[0].info.wall_s = 2000;
    write_sweep(&sweep, path_b, sweep.n_trials);
    sweep_free(&sweep);
    shown_open(&s, &tui_view_runs, path, path_b, 40, 120);
    shown_find(&s, "\"A2 batch 4\" pass=natural");
    assert_command(&s, want);
    shown_find(&s, "\"B2 batch 4\" pass=natural");
    snprintf(want, sizeof want, "driftscope show %s --runs --long", path_b);
    assert_command(&s, want);
    shown_close(&s);
}

static void test_lost(void **state)
{
    struct shown s;
    struct ds_error err;
    const char *path = test_path("lost.h5");
    struct sweep sweep;
    (void)state;
    fixture_plan(&sweep, no_fault);
    sweep_run(&sweep, 1);
    set_run_digests(&sweep);
    struct ds_trial_data *t = &sweep.trials[3];
    struct ds_trial_data lost = {.info = t->info, .n_failures = 1};
    struct ds_failure why = {.how = DS_FAILED_DIED,
                             .site = find_site(&sweep.header, 1, "down"),
                             .op = "matmul",
                             .variant = "mine\x1b[2J",
                             .m = 6,
                             .rows = 6,
                             .first = 0,
                             .last = 5,
                             .why = "signal 11"};
    lost.info.pass = DS_PASS_FAILED;
    lost.failures = &why;
    struct ds_trial_data kept = *t;
    *t = lost;
    write_sweep(&sweep, path, sweep.n_trials);
    *t = kept;
    shown_open(&s, &tui_view_runs, path, NULL, 40, 150);
    assert_line(&s, "4 arms, 3 trials (1 planned an arm), 1 lost");
    assert_line(&s, "no arm has two trials");
    assert_line(&s, " 3 threads 2      0 .   lost    ?");
    assert_line(&s, "died in layer 1 down, matmul/mine\\x1b[2J, 6 rows: signal 11");
    assert_line(&s, "-lost ");
    shown_find(&s, "how=died");
    assert_int_equal(shown_enter(&s, &err), SITE);
    assert_int_equal(s.place.site, find_site(s.context.whole->header, 1, "down"));
    assert_int_equal(s.place.arm, 3);
    shown_close(&s);
    sweep_free(&sweep);
}

static void test_few(void **state)
{
    struct shown s;
    const char *path = test_path("few.h5");
    struct sweep sweep;
    (void)state;
    fixture_plan(&sweep, no_fault);
    sweep_run(&sweep, 1);
    write_sweep(&sweep, path, 0);
    shown_open(&s, &tui_view_runs, path, NULL, 24, 80);
    assert_int_equal(shown_load(&s), TUI_EMPTY);
    assert_string_equal(s.why, "the record holds no complete trial");
    shown_close(&s);
    write_sweep(&sweep, path, 1);
    shown_open(&s, &tui_view_runs, path, NULL, 12, 60);
    assert_line(&s, ">0 base arm      0 a   natural ");
    shown_close(&s);
    sweep_free(&sweep);
}

/* The class letters of many trials against a plain count: every pair of one group. */
static uint32_t scattered(const struct cell *c)
{
    return cell_is(c, 0, "q_proj") ? (c->repeat * 7 + c->arm) % 11 / 2 : 0;
}

static void test_letters(void **state)
{
    enum { REPEATS = 40 };
    struct shown s;
    const char *path = test_path("letters.h5");
    struct sweep sweep;
    (void)state;
    fixture_plan(&sweep, scattered);
    sweep.no_sizes = 1;
    sweep_run(&sweep, REPEATS);
    set_run_digests(&sweep);
    write_sweep(&sweep, path, sweep.n_trials);
    shown_open(&s, &tui_view_runs, path, NULL, 40, 120);
    shown_draw(&s);
    const struct tui_source *t = &s.view.table.source;
    char letter[4 * REPEATS];
    for (size_t i = 0; i < 4 * REPEATS; i++) {
        struct tui_value v = {.text = ""};
        t->cell(t->ctx, 1 + i, 2, &v);
        letter[i] = v.text[0];
        assert_in_range(letter[i], 'a', 'z');
    }
    for (size_t i = 0; i < 4 * REPEATS; i++)
        for (size_t k = i / REPEATS * REPEATS; k < i; k++)
            assert_int_equal(letter[i] == letter[k],
                             sweep.trials[i].info.run_digest == sweep.trials[k].info.run_digest);
    shown_close(&s);
    sweep_free(&sweep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unstable), cmocka_unit_test(test_stable),
        cmocka_unit_test(test_lost),     cmocka_unit_test(test_few),
        cmocka_unit_test(test_letters),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
