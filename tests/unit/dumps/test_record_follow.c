/* test_record_follow.c: readers that stay open: letting go of trials and reading them again, a record that has
 * grown, was replaced, written over or deleted; and verdicts that are bounded or given up. */
#include "tests/unit/testing.h"

#include "tests/unit/dumps/synthetic_sweep.h"

#include "dumps/record_read.h"

#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

static char folder[64];
static struct sweep sweep, other;

static const char *path_of(const char *name)
{
    static char path[8][128];
    static int at;
    at = (at + 1) % 8;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}

static uint32_t drift_from_24(const struct cell *c)
{
    return cell_is(c, 0, "q_proj") && c->m >= 4 * SWEEP_PROMPT;
}

static void plan(struct sweep *s)
{
    sweep_init(s, "batch", 2);
    sweep_arm(s, "1");
    sweep_arm(s, "4");
    sweep_arm(s, "2");
    s->tag = drift_from_24;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/driftscope-test.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    plan(&sweep);
    sweep_run(&sweep, 1);
    plan(&other);
    other.header.n_heads = 3;
    sweep_run(&other, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    sweep_free(&sweep);
    sweep_free(&other);
    return system(command);
}

static void write_trials(const struct sweep *s, const char *path, size_t n)
{
    struct ds_error err;
    struct ds_writer *w;
    assert_ok(ds_writer_create(path, 1, &s->header, &w, NULL, &err), err);
    for (size_t i = 0; i < n; i++)
        assert_ok(ds_writer_add(w, &s->trials[i], &err), err);
    assert_ok(ds_writer_close(w, &err), err);
}

static struct ds_record *open_record(const char *path)
{
    struct ds_error err;
    struct ds_record *r;
    assert_ok(ds_record_open(path, &r, &err), err);
    return r;
}

static const struct ds_trial_data *load(struct ds_record *r, size_t i)
{
    struct ds_error err = {{0}, {0}};
    const struct ds_trial_data *t = ds_record_load(r, i, &err);
    if (!t)
        print_error("%s\n", err.msg);
    assert_non_null(t);
    return t;
}

static void check_trial(const struct ds_trial_data *got, const struct ds_trial_data *want)
{
    assert_int_equal(got->n_digests, want->n_digests);
    assert_memory_equal(got->digests, want->digests, want->n_digests * sizeof *want->digests);
    assert_int_equal(got->n_rows, want->n_rows);
    assert_memory_equal(got->rows, want->rows, want->n_rows * sizeof *want->rows);
    assert_int_equal(got->n_drifts, want->n_drifts);
}

static void test_digests_are_let_go_of(void **state)
{
    (void)state;
    write_trials(&sweep, path_of("a.h5"), 3);
    struct ds_record *r = open_record(path_of("a.h5"));
    assert_int_equal(ds_record_loaded(r), 0);
    const struct ds_trial_data *t = load(r, 1);
    const uint64_t all = ds_record_loaded(r);
    assert_int_equal(all, ds_record_trial_bytes(r, 1));
    ds_record_forget(r, 1, DS_FORGET_DIGESTS);
    ds_record_forget(r, 1, DS_FORGET_DIGESTS); /* twice is once */
    assert_null(t->digests);
    assert_int_equal(ds_record_loaded(r), all - 8 * sweep.trials[1].n_digests);
    assert_memory_equal(t->rows, sweep.trials[1].rows, t->n_rows * sizeof *t->rows);
    assert_ptr_equal(load(r, 1), t); /* the same place */
    check_trial(t, &sweep.trials[1]);
    assert_int_equal(ds_record_loaded(r), all);
    ds_record_close(r);
}

/* Arms 0 and 2 have equal digests, which they share. */
static void test_what_others_share_stays(void **state)
{
    (void)state;
    write_trials(&sweep, path_of("a.h5"), 3);
    struct ds_record *r = open_record(path_of("a.h5"));
    const struct ds_trial_data *a = load(r, 0), *c = load(r, 2);
    assert_ptr_equal(a->digests, c->digests);
    ds_record_forget(r, 0, DS_FORGET_ALL);
    check_trial(c, &sweep.trials[2]);
    ds_record_forget(r, 2, DS_FORGET_ALL);
    ds_record_forget(r, 99, DS_FORGET_ALL);
    assert_int_equal(ds_record_loaded(r), 0);
    for (size_t i = 0; i < 3; i++)
        check_trial(load(r, i), &sweep.trials[i]);
    ds_record_close(r);
}

/* A block that does not read as it did before is damage, though nobody asks for the trial's checksum again. */
static void test_damage_after_reading(void **state)
{
    (void)state;
    struct ds_error err;
    write_trials(&sweep, path_of("a.h5"), 3);
    struct ds_record *r = open_record(path_of("a.h5"));
    load(r, 1);
    ds_record_forget(r, 1, DS_FORGET_DIGESTS);
    for (size_t i = 0; i < r->n_blocks; i++)
        r->blocks[i].hash ^= r->blocks[i].structs == NULL;
    assert_null(ds_record_load(r, 1, &err));
    assert_non_null(strstr(err.msg, "/digests"));
    ds_record_close(r);
}

static void test_dumped(void **state)
{
    (void)state;
    struct ds_error err;
    float values[2] = {1, 2};
    struct ds_trial_data t = sweep.trials[0];
    struct ds_blob b = {.dtype = "f32", .elements = 2, .bytes = 8, .data = values};
    struct ds_writer *w;
    b.digest = XXH3_64bits(values, sizeof values);
    t.blobs = &b;
    t.n_blobs = 1;
    assert_ok(ds_writer_create(path_of("a.h5"), 1, &sweep.header, &w, NULL, &err), err);
    assert_ok(ds_writer_add(w, &t, &err), err);
    assert_ok(ds_writer_close(w, &err), err);
    struct ds_record *r = open_record(path_of("a.h5"));
    assert_int_equal(ds_record_dumped(r, b.digest, &err), 1);
    assert_int_equal(ds_record_dumped(r, b.digest + 1, &err), 0);
    ds_record_close(r);
}

/* ---- renewing -------------------------------------------------------------------------------- */

static void copy_over(const char *from, const char *to)
{
    char command[300];
    snprintf(command, sizeof command, "cat '%s' >'%s'", from, to);
    assert_int_equal(system(command), 0);
}

/* The record with one more trial: as another file of its name, and written over in place. */
static void test_grown(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_record *none;
    for (int in_place = 0; in_place < 2; in_place++) {
        const char *path = path_of("a.h5"), *beside = path_of("b.h5");
        write_trials(&sweep, path, 2);
        struct ds_record *r = open_record(path);
        const struct ds_header *h = ds_record_header(r);
        const struct ds_trial_data *first = load(r, 0);
        assert_int_equal(ds_record_renew(r, &none, &err), 1); /* nothing has happened */
        assert_int_equal(ds_record_trial_count(r), 2);
        write_trials(&sweep, beside, 3);
        if (in_place)
            copy_over(beside, path);
        else
            assert_int_equal(rename(beside, path), 0);
        assert_int_equal(ds_record_renew(r, &none, &err), 1);
        assert_null(none);
        assert_ptr_equal(ds_record_header(r), h);
        assert_int_equal(ds_record_trial_count(r), 3);
        assert_ptr_equal(load(r, 0), first);
        for (size_t i = 0; i < 3; i++)
            check_trial(load(r, i), &sweep.trials[i]);
        assert_int_equal(ds_record_damaged(r), 0);
        ds_record_close(r);
    }
}

static void test_replaced(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_record *now;
    for (int in_place = 0; in_place < 2; in_place++) {
        const char *path = path_of("a.h5"), *beside = path_of("b.h5");
        write_trials(&sweep, path, 3);
        struct ds_record *r = open_record(path);
        const struct ds_trial_data *first = load(r, 0);
        write_trials(&other, beside, 2);
        if (in_place)
            copy_over(beside, path);
        else
            assert_int_equal(rename(beside, path), 0);
        assert_int_equal(ds_record_renew(r, &now, &err), 0);
        assert_non_null(now);
        assert_int_equal(ds_record_header(now)->n_heads, 3);
        assert_int_equal(ds_record_trial_count(now), 2);
        check_trial(first, &sweep.trials[0]); /* what was loaded stays */
        assert_ptr_equal(load(r, 0), first);
        if (in_place)
            assert_null(ds_record_load(r, 1, &err));
        else
            check_trial(load(r, 1), &sweep.trials[1]); /* its file is still open */
        assert_int_equal(ds_record_damaged(r), 0);
        ds_record_close(now);
        ds_record_close(r);
    }
}

/* Fewer trials than before are another record. */
static void test_fewer_trials(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_record *now;
    write_trials(&sweep, path_of("a.h5"), 3);
    struct ds_record *r = open_record(path_of("a.h5"));
    write_trials(&sweep, path_of("a.h5"), 2);
    assert_int_equal(ds_record_renew(r, &now, &err), 0);
    assert_int_equal(ds_record_trial_count(now), 2);
    ds_record_close(now);
    ds_record_close(r);
}

static void test_gone_and_back(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_record *now;
    const char *path = path_of("a.h5");
    write_trials(&sweep, path, 3);
    struct ds_record *r = open_record(path);
    load(r, 0);
    assert_int_equal(rename(path, path_of("b.h5")), 0);
    assert_int_equal(ds_record_renew(r, &now, &err), -1);
    check_trial(load(r, 1), &sweep.trials[1]);
    assert_int_equal(rename(path_of("b.h5"), path), 0);
    assert_int_equal(ds_record_renew(r, &now, &err), 1);
    /* Cut short: nothing to read any more, but what was loaded; and it may come back. */
    copy_over(path, path_of("b.h5"));
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(ds_record_renew(r, &now, &err), -1);
    assert_int_equal(ds_record_renew(r, &now, &err), -1);
    check_trial(load(r, 0), &sweep.trials[0]);
    assert_null(ds_record_load(r, 2, &err));
    assert_int_equal(ds_record_sound(r, 2), 1); /* not known to be damaged */
    copy_over(path_of("b.h5"), path);
    assert_int_equal(ds_record_renew(r, &now, &err), 1);
    check_trial(load(r, 2), &sweep.trials[2]);
    ds_record_close(r);
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static void test_a_bounded_verdict(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_analysis *a;
    struct ds_analysis_options o = {.memory = 1000};
    const struct ds_source s = sweep_source(&sweep);
    assert_int_equal(ds_analysis_new(&s, &o, &a, &err), -1);
    assert_non_null(strstr(err.msg, "3 tables of 20 sites and 9 rows take 11.3 KB of memory"));
    o.memory = 1000000;
    assert_ok(ds_analysis_new(&s, &o, &a, &err), err);
    ds_analysis_free(a);
}

static int is_set(void *ctx)
{
    return *(const int *)ctx;
}

static void test_a_verdict_given_up(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_analysis *a;
    struct ds_verdict v;
    struct ds_site_profile p;
    int stop = 1;
    const struct ds_analysis_options o = {.stop = is_set, .ctx = &stop};
    const struct ds_source s = sweep_source(&sweep);
    assert_int_equal(ds_analysis_new(&s, &o, &a, &err), -1);
    assert_string_equal(err.msg, "given up");
    stop = 0;
    assert_ok(ds_analysis_new(&s, &o, &a, &err), err);
    stop = 1;
    assert_int_equal(ds_analysis_verdict(a, &v, &err), -1);
    assert_int_equal(ds_analysis_site(a, 1, 0, 2, &p, &err), -1);
    stop = 0; /* and nothing of it stays */
    assert_ok(ds_analysis_verdict(a, &v, &err), err);
    assert_int_equal(v.result, DS_RESULT_DRIFT);
    assert_ok(ds_analysis_site(a, 1, 0, v.first.site, &p, &err), err);
    assert_int_equal(p.at.rows, v.first.rows);
    ds_site_profile_free(&p);
    /* The same place, judged by itself. */
    struct ds_finding f;
    assert_ok(ds_analysis_judged(a, v.first.arm, v.first.ref_arm, v.first.site, 0, &f, &err), err);
    assert_true(f.found && f.label == v.first.label && f.kind == v.first.kind);
    assert_string_equal(f.why, v.first.why);
    assert_int_equal(f.basis, v.first.basis);
    assert_ok(ds_analysis_judged(a, v.first.arm, v.first.ref_arm, v.first.site, 1, &f, &err), err);
    assert_false(f.found); /* there is no heal trial */
    ds_verdict_free(&v);
    ds_analysis_free(a);
}

/* Sites of one pair after the other, of two pairs by turns: each as if it were asked alone. */
static void test_labels_are_kept_for_one_pair(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_analysis *a, *alone;
    const struct ds_source s = sweep_source(&sweep);
    assert_ok(ds_analysis_new(&s, NULL, &a, &err), err);
    for (uint32_t k = 0; k < 3 * sweep.header.n_sites; k++) {
        struct ds_site_profile p, q;
        uint8_t *x, *y;
        const uint32_t site = k / 3, arm = k % 3 ? 1 : 2;
        assert_ok(ds_analysis_new(&s, NULL, &alone, &err), err);
        assert_ok(ds_analysis_site(a, arm, 0, site, &p, &err), err);
        assert_ok(ds_analysis_site(alone, arm, 0, site, &q, &err), err);
        assert_int_equal(p.at.found, q.at.found);
        assert_int_equal(p.at.label, q.at.label);
        assert_int_equal(p.at.rows, q.at.rows);
        assert_int_equal(p.at.max_ulp, q.at.max_ulp);
        assert_int_equal(p.at.between, q.at.between);
        assert_ok(ds_analysis_labels(a, arm, 0, &x, &err), err);
        assert_ok(ds_analysis_labels(alone, arm, 0, &y, &err), err);
        assert_memory_equal(x, y, sweep.header.n_sites * ds_analysis_rows(a));
        free(x);
        free(y);
        ds_site_profile_free(&p);
        ds_site_profile_free(&q);
        ds_analysis_free(alone);
    }
    ds_analysis_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digests_are_let_go_of),
        cmocka_unit_test(test_what_others_share_stays),
        cmocka_unit_test(test_damage_after_reading),
        cmocka_unit_test(test_dumped),
        cmocka_unit_test(test_grown),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_fewer_trials),
        cmocka_unit_test(test_gone_and_back),
        cmocka_unit_test(test_a_bounded_verdict),
        cmocka_unit_test(test_a_verdict_given_up),
        cmocka_unit_test(test_labels_are_kept_for_one_pair),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
