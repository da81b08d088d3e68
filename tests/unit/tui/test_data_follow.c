/* test_data_follow.c: a record that another process writes, cuts short, replaces or deletes while it is shown. */
#include "tests/unit/tui/data_fixture.h"

#include <hdf5.h>

static struct sweep sweep, other;

static int make_sweeps(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    fixture_plan(&sweep, two_faults);
    sweep_run(&sweep, 1);
    fixture_plan(&other, no_fault);
    other.header.head_dim = 32;
    other.header.n_heads = 18;
    sweep_run(&other, 1);
    return 0;
}

static int free_sweeps(void **state)
{
    sweep_free(&sweep);
    sweep_free(&other);
    return remove_folder(state);
}

static int is_live(const struct tui_whole *w, size_t yes)
{
    return (size_t)w->live == yes;
}

static int has_header(const struct tui_whole *w, size_t heads)
{
    return w->header && (size_t)w->header->n_heads == heads;
}

static int says(const struct tui_whole *w, const char *text)
{
    return w->note && strstr(w->note, text);
}

/* From before the file is there to after its writer has ended. */
static void test_a_record_grows(void **state)
{
    (void)state;
    const char *path = test_path("grow.h5");
    struct writing writer = writing_begin(&sweep, path);
    struct tui_data *d = open_data(path, NULL, 1);
    const struct tui_whole *w = tui_data_whole(d);
    assert_null(w->header);
    assert_non_null(w->note);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    assert_null(tui_data_pair(d, 0, 0, NULL));

    writing_do(&writer, "n");
    w = turn_until(d, has_header, 9);
    assert_int_equal(w->n_trials, 0);
    turn_until(d, is_live, 1);
    writing_do(&writer, "+");
    w = turn_until(d, has_verdict, 1);
    assert_int_equal(w->verdict->result, DS_RESULT_RECORDED);
    const struct tui_pair *p = get_pair(d, 0, 0);
    assert_int_equal(p->sites[0].compared, 9);

    uint64_t generation = tui_data_whole(d)->generation;
    writing_do(&writer, "++");
    w = turn_until(d, has_verdict, 3);
    assert_true(w->generation > generation);
    assert_int_equal(w->verdict->result, DS_RESULT_DRIFT);
    assert_int_equal(w->n_trials, 3);
    p = get_pair(d, 2, 0);
    assert_int_equal(p->sites[w->verdict->first.site].label, DS_LABEL_ORIGIN);
    writing_do(&writer, "+.");
    writing_end(&writer);
    turn_until(d, has_verdict, 4);
    w = turn_until(d, is_live, 0);
    assert_non_null(w->header);
    tui_data_close(d);
}

/* New trials are on the screen in less than a second, whatever the verdict takes. */
static void test_a_killed_writer(void **state)
{
    (void)state;
    const char *path = test_path("killed.h5");
    struct writing writer = writing_begin(&sweep, path);
    writing_do(&writer, "n++");
    struct tui_data *d = open_data(path, NULL, 1);
    assert_int_equal(tui_data_whole(d)->n_trials, 2);
    assert_int_equal(tui_data_whole(d)->live, 1);
    assert_int_equal(tui_data_whole(d)->ended, 0);
    writing_do(&writer, "+");
    kill(writer.pid, SIGKILL);
    writing_end(&writer);
    assert_int_equal(turn_until(d, is_live, 0)->ended, 1);
    turn_until(d, has_verdict, 3);
    assert_int_equal(get_pair(d, 2, 0)->n_rows, SWEEP_PROMPT + SWEEP_STEPS);
    tui_data_close(d);
}

static void test_replaced_by_the_same_with_more(void **state)
{
    (void)state;
    const char *path = test_path("more.h5");
    write_sweep(&sweep, path, 2);
    struct tui_data *d = open_data(path, NULL, 1);
    turn_until(d, has_verdict, 2);
    assert_int_equal(get_pair(d, 1, 0)->arm, 1);
    write_sweep(&sweep, test_path("beside.h5"), 4);
    assert_int_equal(rename(test_path("beside.h5"), path), 0);
    const struct tui_whole *w = turn_until(d, has_verdict, 4);
    assert_false(says(w, "replaced"));
    assert_int_equal(w->ended, 0); /* nobody was seen writing it */
    assert_int_equal(get_pair(d, 2, 0)->arm, 2);
    tui_data_close(d);
}

static int says_deleted(const struct tui_whole *w, size_t yes)
{
    return (size_t)(says(w, "deleted") != 0) == yes;
}

/* Written elsewhere, and moved to its name at the end: until then another record may lie there. */
static void test_moved_by_its_writer(void **state)
{
    (void)state;
    const char *path = test_path("here.h5"), *there = test_path("there.h5");
    const struct tui_data_options o = {.path = path, .follow = 1, .moves_to = there};
    struct tui_data *d;
    struct ds_error err;
    write_sweep(&other, there, 3);
    write_sweep(&sweep, path, 2);
    assert_ok(tui_data_open(&o, &d, &err), err);
    const struct tui_whole *w = turn_until(d, has_verdict, 2);
    assert_string_equal(w->report.path, path);
    assert_int_equal(get_pair(d, 1, 0)->arm, 1);
    assert_int_equal(unlink(path), 0);
    w = turn_until(d, says_deleted, 1);
    assert_int_equal(w->header->n_heads, 9);
    write_sweep(&sweep, test_path("beside.h5"), 4);
    assert_int_equal(rename(test_path("beside.h5"), there), 0);
    w = turn_until(d, has_verdict, 4);
    assert_true(says_deleted(w, 0));
    assert_string_equal(w->report.path, there);
    assert_int_equal(get_pair(d, 2, 0)->arm, 2);
    tui_data_close(d);
    /* Moved before it could be read. */
    assert_ok(tui_data_open(&o, &d, &err), err);
    w = turn_until(d, has_verdict, 4);
    assert_string_equal(w->report.path, there);
    tui_data_close(d);
}

static void test_replaced_by_another(void **state)
{
    (void)state;
    const char *path = test_path("other.h5"), *error = NULL;
    write_sweep(&sweep, path, 4);
    struct tui_data *d = open_data(path, NULL, 1);
    turn_until(d, has_verdict, 4);
    get_pair(d, 2, 0);
    write_sweep(&other, test_path("beside.h5"), 3);
    assert_int_equal(rename(test_path("beside.h5"), path), 0);
    const struct tui_whole *w = turn_until(d, has_header, 18);
    assert_true(says(w, "replaced"));
    assert_null(tui_data_pair(d, 2, 0, &error)); /* what was asked of the other one is gone */
    w = turn_until(d, has_verdict, 3);
    assert_int_equal(w->verdict->result, DS_RESULT_SAME);
    assert_int_equal(get_pair(d, 2, 0)->sites[1].label, DS_LABEL_SAME);
    tui_data_close(d);
}

/* Written over in place, as cp does: the same file with other bytes. */
static void test_written_over(void **state)
{
    (void)state;
    const char *path = test_path("over.h5");
    char command[300];
    write_sweep(&sweep, path, 4);
    write_sweep(&other, test_path("beside.h5"), 3);
    struct tui_data *d = open_data(path, NULL, 1);
    turn_until(d, has_verdict, 4);
    snprintf(command, sizeof command, "cat '%s' > '%s'", test_path("beside.h5"), path);
    assert_int_equal(system(command), 0);
    const double until = ds_seconds(CLOCK_MONOTONIC) + LONG / 1000;
    /* It may be seen as cut short first. */
    while (!has_header(tui_data_whole(d), 18) && ds_seconds(CLOCK_MONOTONIC) < until) {
        tui_data_reload(d);
        tui_data_wait(d, LONG);
        tui_data_turn(d);
    }
    assert_true(has_header(tui_data_whole(d), 18));
    turn_until(d, has_verdict, 3);
    tui_data_close(d);
}

static void cut(const char *path, double share)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, (off_t)((double)st.st_size * share)), 0);
}

/* What was read stays; what was not cannot be had, and says so. */
static void test_cut_short(void **state)
{
    (void)state;
    static const double shares[] = {0.9, 0.5, 0.1, 0.001, 0};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        const char *path = test_path("cut.h5"), *error = NULL;
        write_sweep(&sweep, path, 4);
        struct tui_data *d = open_data(path, NULL, 1);
        turn_until(d, has_verdict, 4);
        get_pair(d, 2, 0);
        cut(path, shares[i]);
        const struct tui_whole *w = turn_until(d, has_note, 0);
        assert_true(says(w, "cut short"));
        assert_non_null(w->verdict);
        assert_int_equal(w->n_trials, 4);
        assert_non_null(tui_data_pair(d, 2, 0, &error));
        assert_int_equal(get_pair(d, 3, 0)->arm, 3); /* its trials are in memory */
        tui_data_reload(d);
        assert_int_equal(tui_data_wait(d, LONG), 0);
        w = tui_data_whole(d);
        assert_non_null(w->verdict);
        assert_non_null(w->note);
        assert_int_equal(get_pair(d, 1, 0)->arm, 1);
        tui_data_close(d);
    }
}

static void test_cut_short_while_read(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        const char *path = test_path("cut.h5");
        write_sweep(&sweep, path, 4);
        struct tui_data *d = open_data(path, NULL, i % 2);
        usleep((useconds_t)(i * 30));
        cut(path, 0.4);
        tui_data_pair(d, 2, 0, NULL);
        assert_int_equal(tui_data_wait(d, LONG), 0);
        const struct tui_whole *w = tui_data_whole(d);
        assert_true(w->verdict || w->error);
        tui_data_close(d);
    }
}

static void test_deleted(void **state)
{
    (void)state;
    const char *path = test_path("deleted.h5");
    for (int follow = 0; follow < 2; follow++) {
        write_sweep(&sweep, path, 4);
        struct tui_data *d = open_data(path, NULL, follow);
        assert_int_equal(unlink(path), 0);
        const struct tui_whole *w = turn_until(d, has_note, 0);
        assert_true(says(w, "deleted"));
        turn_until(d, has_verdict, 4); /* the file is still open */
        assert_int_equal(get_pair(d, 2, 0)->arm, 2);
        if (follow) { /* and one with its name is taken for what it is */
            write_sweep(&other, path, 3);
            turn_until(d, has_header, 18);
            turn_until(d, has_verdict, 3);
        }
        tui_data_close(d);
    }
}

/* Not followed: the change is told, and R shows it. */
static void test_not_followed(void **state)
{
    (void)state;
    const char *path = test_path("told.h5");
    write_sweep(&sweep, path, 2);
    struct tui_data *d = open_data(path, NULL, 0);
    turn_until(d, has_verdict, 2);
    write_sweep(&sweep, test_path("beside.h5"), 4);
    assert_int_equal(rename(test_path("beside.h5"), path), 0);
    const struct tui_whole *w = turn_until(d, has_note, 0);
    assert_true(says(w, "R reads it again"));
    assert_int_equal(w->n_trials, 2);
    tui_data_reload(d);
    w = turn_until(d, has_verdict, 4);
    assert_null(w->note);
    tui_data_close(d);
}

/* A version that this program does not read: at first, and in the place of one that it shows. */
static void test_a_newer_version(void **state)
{
    (void)state;
    const char *path = test_path("new.h5"), *beside = test_path("beside.h5");
    const uint32_t version = DS_RECORD_VERSION + 1;
    struct ds_error err;
    struct tui_data *d;
    write_sweep(&sweep, path, 4);
    write_sweep(&sweep, beside, 4);
    hid_t f = H5Fopen(beside, H5F_ACC_RDWR, H5P_DEFAULT), a = H5Aopen(f, "version", H5P_DEFAULT);
    assert_true(H5Awrite(a, H5T_NATIVE_UINT32, &version) >= 0);
    H5Aclose(a);
    H5Fclose(f);
    const struct tui_data_options o = {.path = beside};
    assert_int_equal(tui_data_open(&o, &d, &err), -1);
    assert_non_null(strstr(err.msg, "version 3"));
    d = open_data(path, NULL, 1);
    turn_until(d, has_verdict, 4);
    assert_int_equal(rename(beside, path), 0);
    const struct tui_whole *w = turn_until(d, has_note, 0);
    assert_true(says(w, "version 3"));
    /* The status line keeps what stands before the colon: not the file's name, which says nothing. */
    assert_ptr_equal(strstr(w->note, "not read again: "), w->note);
    assert_non_null(w->verdict);
    assert_int_equal(get_pair(d, 2, 0)->arm, 2);
    tui_data_close(d);
}

/* A trial whose payload is damaged is left out; the others are judged. */
static void test_a_damaged_trial(void **state)
{
    (void)state;
    const char *path = test_path("damaged.h5");
    write_sweep(&sweep, path, 4);
    const uint64_t want = sweep.trials[2].digests[sweep.trials[2].n_digests / 2];
    FILE *f = fopen(path, "r+");
    struct stat st;
    assert_int_equal(fstat(fileno(f), &st), 0);
    char *all = malloc((size_t)st.st_size);
    assert_int_equal(fread(all, 1, (size_t)st.st_size, f), st.st_size);
    size_t found = 0;
    for (size_t i = 0; i + 8 <= (size_t)st.st_size; i++)
        if (memcmp(all + i, &want, 8) == 0) {
            fseek(f, (long)i, SEEK_SET);
            fputc(all[i] ^ 1, f);
            found++;
        }
    assert_true(found > 0);
    fclose(f);
    free(all);
    struct tui_data *d = open_data(path, NULL, 0);
    assert_int_equal(tui_data_whole(d)->n_trials, 4);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    const struct tui_whole *w = tui_data_whole(d);
    assert_int_equal(w->damaged, 1);
    assert_int_equal(w->n_trials, 3);
    assert_non_null(w->verdict);
    assert_int_equal(w->verdict->counts.trials, 3);
    assert_int_equal(get_pair(d, 3, 0)->arm, 3);
    const char *error = NULL;
    tui_data_pair(d, 2, 0, &error);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    assert_null(tui_data_pair(d, 2, 0, &error));
    assert_non_null(strstr(error, "no complete trial"));
    tui_data_close(d);
}

/* Another run digest than the row's checksum is of. */
static void damage_row(const char *path, size_t row)
{
    uint64_t digests[4];
    hid_t f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), d = H5Dopen2(f, "trials", H5P_DEFAULT),
          field = H5Tcreate(H5T_COMPOUND, sizeof *digests);
    assert_true(H5Tinsert(field, "run_digest", 0, H5T_NATIVE_UINT64) >= 0);
    assert_true(H5Dread(d, field, H5S_ALL, H5S_ALL, H5P_DEFAULT, digests) >= 0);
    digests[row] ^= 1;
    assert_true(H5Dwrite(d, field, H5S_ALL, H5S_ALL, H5P_DEFAULT, digests) >= 0);
    H5Tclose(field);
    H5Dclose(d);
    H5Fclose(f);
}

/* What a trial that was left out had may have differed: where the rest agrees that is no pass. */
static void test_a_damaged_trial_of_a_healthy_sweep(void **state)
{
    (void)state;
    const char *path = test_path("healthy.h5");
    struct sweep healthy;
    fixture_plan(&healthy, no_fault);
    sweep_run(&healthy, 1);
    write_sweep(&healthy, path, 4);
    struct tui_data *d = open_data(path, NULL, 0);
    assert_int_equal(turn_until(d, has_verdict, 4)->verdict->result, DS_RESULT_SAME);
    tui_data_close(d);
    damage_row(path, 3);
    d = open_data(path, NULL, 0);
    assert_int_equal(tui_data_whole(d)->damaged, 1);
    assert_int_equal(turn_until(d, has_verdict, 3)->verdict->result, DS_RESULT_INCOMPARABLE);
    tui_data_close(d);
    sweep_free(&healthy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_record_grows),
        cmocka_unit_test(test_a_killed_writer),
        cmocka_unit_test(test_replaced_by_the_same_with_more),
        cmocka_unit_test(test_moved_by_its_writer),
        cmocka_unit_test(test_replaced_by_another),
        cmocka_unit_test(test_written_over),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_cut_short_while_read),
        cmocka_unit_test(test_deleted),
        cmocka_unit_test(test_not_followed),
        cmocka_unit_test(test_a_newer_version),
        cmocka_unit_test(test_a_damaged_trial),
        cmocka_unit_test(test_a_damaged_trial_of_a_healthy_sweep),
    };
    return cmocka_run_group_tests(tests, make_sweeps, free_sweeps);
}
