/* test_data_memory.c: with little room: trials that are let go of and read again, a verdict that does not fit, results
 * that go, allocations that fail. And what comes late: sizes from dumped rows, healed rows. */
#include "tests/unit/tui/data_fixture.h"

#include <malloc.h>
#include <math.h>
#include <xxhash.h>

static struct sweep sweep;

static int make_sweep(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    fixture_plan(&sweep, two_faults);
    sweep_run(&sweep, 5);
    write_sweep(&sweep, test_path("many.h5"), sweep.n_trials);
    return 0;
}

static int free_sweep(void **state)
{
    sweep_free(&sweep);
    return remove_folder(state);
}

static struct tui_data *open_small(const char *path, uint64_t hold)
{
    struct ds_error err;
    struct tui_data *d;
    const struct tui_data_options o = {.path = path, .hold = hold};
    assert_ok(tui_data_open(&o, &d, &err), err);
    return d;
}

/* Words say more than any list of fields. */
static char *words_of(const struct ds_header *h, const struct ds_verdict *v)
{
    struct ds_buf b = {0};
    const struct ds_report r = {.header = h, .v = v};
    ds_report_verdict(&r, &b);
    ds_report_runs(&r, &b);
    assert_false(b.failed);
    return b.data;
}

static size_t bytes_of_trials(const char *path)
{
    struct ds_error err;
    struct ds_record *r;
    size_t bytes = 0;
    assert_ok(ds_record_open(path, &r, &err), err);
    for (size_t i = 0; i < ds_record_trial_count(r); i++)
        bytes += ds_record_trial_bytes(r, i);
    ds_record_close(r);
    return bytes;
}

static void test_the_same_verdict_with_less_room(void **state)
{
    (void)state;
    const char *path = test_path("many.h5");
    struct ds_error err;
    struct ds_record *r;
    struct ds_source s;
    struct ds_verdict v;
    assert_ok(ds_record_open(path, &r, &err), err);
    ds_source_record(&s, r);
    assert_ok(ds_verdict_make(&s, &v, &err), err);
    char *want = words_of(s.header, &v);
    const uint64_t hold = bytes_of_trials(path) / 2;
    struct tui_data *d = open_small(path, hold);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    const struct tui_whole *w = tui_data_whole(d);
    if (w->error)
        print_error("%s\n", w->error);
    assert_non_null(w->verdict);
    char *got = words_of(w->header, w->verdict);
    assert_string_equal(got, want);
    for (uint32_t arm = 0; arm < 4; arm++)
        for (uint32_t site = 0; site < sweep.header.n_sites; site += 5) {
            get_pair(d, arm, 0);
            get_site(d, arm, 0, site);
        }
    free(got);
    got = words_of(tui_data_whole(d)->header, tui_data_whole(d)->verdict);
    assert_string_equal(got, want); /* what it points into is still there */
    tui_data_close(d);
    free(got);
    free(want);
    ds_verdict_free(&v);
    ds_record_close(r);
}

/* With just too little room for the whole. */
static struct tui_data *open_too_small(const char *path)
{
    for (double hold = 4e6;; hold *= 0.9) {
        struct tui_data *d = open_small(path, (uint64_t)hold);
        assert_int_equal(tui_data_wait(d, LONG), 0);
        if (!tui_data_whole(d)->verdict)
            return d;
        tui_data_close(d);
    }
}

/* The whole does not fit: pairs do. */
static void test_pairs_without_the_whole(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_record *r;
    struct ds_source s;
    struct ds_analysis *a;
    enum { ARMS = 40 };
    struct sweep wide;
    sweep_init(&wide, "batch", 4);
    for (int i = 1; i <= ARMS; i++) {
        char value[8];
        snprintf(value, sizeof value, "%d", i);
        sweep_arm(&wide, value);
    }
    wide.tag = two_faults;
    sweep_run(&wide, 1);
    write_sweep(&wide, test_path("wide.h5"), wide.n_trials);
    sweep_free(&wide);
    assert_ok(ds_record_open(test_path("wide.h5"), &r, &err), err);
    ds_source_record(&s, r);
    assert_ok(ds_analysis_new(&s, NULL, &a, &err), err);
    const size_t rows = ds_analysis_rows(a), sites = s.header->n_sites;
    struct tui_data *d = open_too_small(test_path("wide.h5"));
    const struct tui_whole *w = tui_data_whole(d);
    assert_non_null(strstr(w->error, "of memory; two arms at a time"));
    assert_int_equal(w->n_trials, ARMS);
    for (uint32_t arm = 1; arm < ARMS; arm++) {
        uint8_t *labels;
        const struct tui_pair *p = get_pair(d, arm, 0);
        assert_ok(ds_analysis_labels(a, arm, 0, &labels, &err), err);
        assert_memory_equal(p->labels, labels, sites * rows);
        free(labels);
    }
    for (uint32_t site = 0; site < sites; site += 3) {
        const struct tui_site *x = get_site(d, 3, 0, site);
        for (size_t i = 0; i < rows; i++)
            for (uint32_t arm = 0; arm < ARMS;
                 arm++) { /* arms that are not compared have classes, too */
                uint64_t base, mine;
                const int has = ds_analysis_digest(a, arm, site, i, &mine);
                const uint32_t c = x->class_of[i * ARMS + arm];
                assert_int_equal(c == UINT32_MAX, !has);
                if (has && ds_analysis_digest(a, 0, site, i, &base))
                    assert_int_equal(c == 0, mine == base);
            }
    }
    tui_data_close(d);
    ds_analysis_free(a);
    ds_record_close(r);
}

/* Of two records that do not fit, the base arms are compared. */
static void test_base_arms_without_the_whole(void **state)
{
    (void)state;
    struct tui_data *d = NULL;
    const struct tui_whole *w;
    for (double hold = 4e6;; hold *= 0.9) {
        struct ds_error err;
        const struct tui_data_options o = {
            .path = test_path("wide.h5"), .path_b = test_path("wide.h5"), .hold = (uint64_t)hold};
        assert_ok(tui_data_open(&o, &d, &err), err);
        assert_int_equal(tui_data_wait(d, LONG), 0);
        w = tui_data_whole(d);
        assert_non_null(w->diff); /* it comes to this before nothing fits */
        if (w->note)
            break;
        assert_int_equal(w->diff->pairs, 40);
        tui_data_close(d);
    }
    assert_non_null(strstr(w->note, "only the base arms are compared"));
    assert_int_equal(w->diff->pairs, 1);
    assert_int_equal(w->verdict->result, DS_RESULT_SAME);
    assert_int_equal(get_pair(d, 1, 0)->sites[3].label, DS_LABEL_SAME);
    assert_non_null(get_site(d, 1, 0, 3));
    tui_data_close(d);
}

/* Not even one trial: it says so and shows what it has. */
static void test_nothing_fits(void **state)
{
    (void)state;
    const char *error = NULL;
    struct tui_data *d = open_small(test_path("many.h5"), 1000);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    const struct tui_whole *w = tui_data_whole(d);
    assert_null(w->verdict);
    assert_non_null(strstr(w->error, "of memory"));
    assert_non_null(w->header);
    assert_null(tui_data_pair(d, 2, 0, &error));
    assert_int_equal(tui_data_wait(d, LONG), 0);
    assert_null(tui_data_pair(d, 2, 0, &error));
    assert_non_null(strstr(error, "of memory"));
    tui_data_close(d);
}

/* Results go when there are too many, but none that the last drawing used. */
static void test_results_go(void **state)
{
    (void)state;
    struct tui_data *d = open_data(test_path("many.h5"), NULL, 0);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    for (int turn = 0; turn < 3; turn++)
        for (uint32_t site = 0; site < sweep.header.n_sites; site++) {
            const struct tui_pair *p = get_pair(d, 2, 0);
            const struct tui_site *s = get_site(d, 2, 0, site);
            assert_int_equal(s->site, site);
            p = get_pair(d, 2, 0);
            assert_int_equal(p->labels[0], DS_LABEL_SAME);
        }
    tui_data_close(d);
}

/* ---- allocations that fail ------------------------------------------------------------------- */

static void test_allocations_fail(void **state)
{
    (void)state;
    for (long n = 1; n < 400; n += n < 40 ? 1 : 7) {
        struct ds_error err = {{0}, {0}};
        struct tui_data *d = NULL;
        const struct tui_data_options o = {.path = test_path("many.h5")};
        ds_mem_fail_at(n);
        int rc = tui_data_open(&o, &d, &err);
        if (rc != 0) {
            ds_mem_fail_at(0);
            assert_int_not_equal(err.msg[0], 0);
            continue;
        }
        tui_data_pair(d, 2, 0, NULL);
        tui_data_site(d, 2, 0, 3, NULL);
        tui_data_steps(d, 2, 0, NULL);
        assert_int_equal(tui_data_wait(d, LONG), 0);
        ds_mem_fail_at(0);
        tui_data_reload(d); /* and then everything is there */
        assert_int_equal(tui_data_wait(d, LONG), 0);
        assert_non_null(tui_data_whole(d)->verdict);
        get_pair(d, 2, 0);
        tui_data_close(d);
    }
}

/* ---- what comes late -------------------------------------------------------------------------- */

/* Bytes of every row of down in layer 2, other ones with two threads. */
static void add_dumps(struct sweep *s, uint32_t site, int b)
{
    s->header.sites[site].width = 4;
    for (size_t i = 0; i < s->n_trials; i++) {
        struct ds_trial_data *t = &s->trials[i];
        for (size_t k = 0; k < t->n_captures; k++)
            if (t->captures[k].site == site)
                t->captures[k].width = 4;
        for (int32_t p = 0; p < SWEEP_PROMPT + SWEEP_STEPS; p++) {
            const float v[4] = {1, 2, 3, (float)p + (b ? 0.5f : 0.0f)};
            fixture_blob(t, site, p, v, 4, XXH3_64bits(v, sizeof v));
        }
        t->n_drifts = 0;
    }
}

static void test_sizes_from_dumps(void **state)
{
    (void)state;
    struct sweep a, b;
    fixture_plan(&a, two_faults);
    fixture_plan(&b, two_faults);
    sweep_run(&a, 1);
    sweep_run(&b, 1);
    uint32_t site = 0;
    while (strcmp(a.header.sites[site].stage, "down") != 0 || a.header.sites[site].layer != 2)
        site++;
    add_dumps(&a, site, 0);
    add_dumps(&b, site, 1);
    write_sweep(&a, test_path("a.h5"), a.n_trials);
    write_sweep(&b, test_path("b.h5"), b.n_trials);
    struct tui_data *d = open_data(test_path("a.h5"), test_path("b.h5"), 0);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    for (uint32_t pair = 0; pair < 4;
         pair++) { /* not only that of the first drift, which the verdict sizes */
        const struct tui_pair *p = get_pair(d, 2 * pair + 1, 2 * pair);
        assert_int_equal(p->sites[site].label, DS_LABEL_ORIGIN);
        assert_int_equal(p->sites[site].sized, SWEEP_PROMPT + SWEEP_STEPS);
        assert_int_equal(p->sites[site].elements, SWEEP_PROMPT + SWEEP_STEPS);
        assert_true(p->sites[site].max_abs == 0.5);
        const struct tui_site *s = get_site(d, 2 * pair + 1, 2 * pair, site);
        assert_true(s->facts[3].sized && s->facts[3].drift.first == 3);
    }
    tui_data_close(d);
    sweep_free(&a);
    sweep_free(&b);
}

/* The heal trial of arm 2: everything as in arm 0, but that q_proj of layer 1 gave its own bits. */
static void add_heal_trial(struct sweep *s, uint32_t site)
{
    struct ds_trial_data *t = sweep_trial(s, 2, 0);
    const struct ds_trial_data *own = &s->trials[2], *ref = &s->trials[0];
    t->info.pass = DS_PASS_HEAL;
    t->info.healed_to = 0;
    for (uint32_t k = 0; k < s->header.n_sites; k++)
        for (int32_t p = 0; p < SWEEP_PROMPT + SWEEP_STEPS; p++) {
            uint32_t row = 0, other = 0;
            uint64_t *mine = sweep_find(t, k, p, &row);
            if (mine)
                *mine = *sweep_find(k == site ? own : ref, k, p, &other);
            if (!mine || k != site || *mine == *sweep_find(ref, k, p, &other))
                continue;
            t->drifts = realloc(t->drifts, (t->n_drifts + 1) * sizeof *t->drifts);
            t->drifts[t->n_drifts++] =
                (struct ds_drift){.site = k,
                                  .row = row,
                                  .elements = 10,
                                  .max_ulp = 7,
                                  .max_abs = 1e-6,
                                  .diff_sq = 4e-6,
                                  .ref_sq = 1,
                                  .digest = *mine,
                                  .ref_digest = *sweep_find(ref, k, p, &other)};
        }
}

static void test_healed(void **state)
{
    (void)state;
    struct ds_error err;
    struct sweep s;
    fixture_plan(&s, two_faults);
    sweep_run(&s, 1);
    uint32_t site = 0;
    while (strcmp(s.header.sites[site].stage, "q_proj") != 0 || s.header.sites[site].layer != 1)
        site++;
    add_heal_trial(&s, site);
    write_sweep(&s, test_path("healed.h5"), s.n_trials);

    const struct ds_source source = sweep_source(&s);
    struct ds_analysis *a;
    uint8_t *healed;
    assert_ok(ds_analysis_new(&source, NULL, &a, &err), err);
    assert_int_equal(ds_analysis_healed(a, 2, 0, &healed, &err), 1);
    struct tui_data *d = open_data(test_path("healed.h5"), NULL, 0);
    const struct tui_pair *p = get_pair(d, 2, 0);
    assert_non_null(p->healed);
    assert_memory_equal(p->healed, healed, s.header.n_sites * p->n_rows);
    assert_int_equal(p->sites[site].healed_label, DS_LABEL_ORIGIN);
    assert_int_equal(p->sites[site].added_max_ulp, 7);
    assert_true(fabs(p->sites[site].added_relative_rms - 2e-3) < 1e-12);
    assert_int_equal(p->sites[site + 1].healed_label, DS_LABEL_SAME);
    assert_int_equal(p->sites[site + 1].label == DS_LABEL_SAME, 1); /* k_proj */
    assert_true(p->sites[site + 1].added_relative_rms == 0);
    assert_true(isnan(get_pair(d, 3, 0)->sites[site].added_relative_rms));
    tui_data_close(d);
    free(healed);
    ds_analysis_free(a);
    sweep_free(&s);
}

/* The largest block that was ever freed decides nothing about the next one. */
static void test_large_blocks_go_back(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* another malloc */
#else
    enum { LARGE = 24 << 20, NEXT = 2 << 20 };
    struct tui_data *d = open_small(test_path("many.h5"), 0);
    volatile char *large = malloc(LARGE);
    assert_non_null((void *)(uintptr_t)large);
    large[0] = 1;
    free((void *)(uintptr_t)large);
    struct mallinfo2 before = mallinfo2();
    volatile char *next = malloc(NEXT);
    assert_non_null((void *)(uintptr_t)next);
    next[0] = 1;
    struct mallinfo2 now = mallinfo2();
    free((void *)(uintptr_t)next);
    tui_data_close(d);
    assert_true(now.hblkhd >= before.hblkhd + NEXT);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_verdict_with_less_room),
        cmocka_unit_test(test_pairs_without_the_whole),
        cmocka_unit_test(test_base_arms_without_the_whole),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_results_go),
        cmocka_unit_test(test_allocations_fail),
        cmocka_unit_test(test_sizes_from_dumps),
        cmocka_unit_test(test_healed),
        cmocka_unit_test(test_large_blocks_go_back),
    };
    return cmocka_run_group_tests(tests, make_sweep, free_sweep);
}
