/* test_record.c: what is written is read again: sharing, copying, run digests, opening twice; h5py reads it. */
#include "tests/unit/dumps/record_fixture.h"

#include "base/mem.h"
#include "dumps/record_layout.h"

/* Every byte of the structs of record.h is some field's: one added there and forgotten in the
 * layout fails here. */
static void test_layout_covers_every_byte(void **state)
{
    (void)state;
    static const struct {
        int table;
        size_t padding; /* holes that the compiler leaves */
    } cases[] = {
        {DS_TABLE_CALLS, 0},     {DS_TABLE_ROWS, 0},  {DS_TABLE_CAPTURES, 0}, {DS_TABLE_DRIFT, 0},
        {DS_TABLE_NONFINITE, 0}, {DS_TABLE_STEPS, 0}, {DS_TABLE_LAUNCHES, 0}, {DS_TABLE_WEIGHTS, 0},
        {DS_TABLE_SITES, 0},     {DS_TABLE_EDGES, 0}, {DS_TABLE_RANGES, 0},   {DS_TABLE_PACKED, 0},
        {DS_TABLE_FAILURES, 0},  {DS_TABLE_MASKS, 0}, {DS_TABLE_TRIALS, 4},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const struct ds_table *t = ds_table(cases[c].table);
        unsigned char covered[1024] = {0};
        size_t holes = 0;
        assert_true(t->struct_bytes <= sizeof covered);
        for (size_t i = 0; i < t->n_fields; i++)
            for (size_t k = 0; k < t->fields[i].bytes; k++)
                assert_int_equal(covered[t->fields[i].offset + k]++, 0);
        for (size_t k = 0; k < t->struct_bytes; k++)
            holes += !covered[k];
        if (holes != cases[c].padding)
            fail_msg("%s: %zu bytes in no field", t->name, holes);
    }
}

static void test_everything_comes_back(void **state)
{
    (void)state;
    const char *path = fixture_path("r.h5");
    for (uint64_t seed = 1; seed <= 6; seed++) {
        uint32_t scale = seed == 6 ? 900 : 6;
        fixture_record(path, seed, 7, scale);
        struct reading got = read_everything(path, seed, scale);
        assert_int_equal(got.opened, 1);
        assert_int_equal(got.good, 7);
        assert_int_equal(got.bad + got.incomplete + got.damaged, 0);
        assert_int_equal(unlink(path), 0);
    }
}

/* A record with as little as possible: no trials, no sites, one arm of no factors; and a trial of
 * nothing. */
static void test_empty_record(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w;
    struct ds_record *r;
    const char *path = fixture_path("empty.h5");
    memset(&h, 0, sizeof h);
    h.n_arms = 1;
    struct ds_arm arm = {NULL};
    h.arms = &arm;
    assert_ok(ds_writer_create(path, 0, &h, &w, NULL, &err), err);
    assert_ok(ds_writer_close(w, &err), err);
    assert_ok(ds_record_open(path, &r, &err), err);
    assert_int_equal(ds_record_trial_count(r), 0);
    assert_string_equal(ds_record_header(r)->command, "");
    ds_record_close(r);
    struct ds_trial_data t;
    memset(&t, 0, sizeof t);
    assert_ok(ds_writer_create(path, 1, &h, &w, NULL, &err), err);
    assert_ok(ds_writer_add(w, &t, &err), err);
    assert_ok(ds_writer_close(w, &err), err);
    assert_ok(ds_record_open(path, &r, &err), err);
    assert_int_equal(ds_record_trial_count(r), 1);
    assert_non_null(ds_record_load(r, 0, &err));
    assert_int_equal(ds_record_load(r, 0, &err)->n_digests, 0);
    assert_null(ds_record_load(r, 1, &err));
    struct ds_blob blob;
    assert_int_equal(ds_record_blob(r, 1, &blob, &err), 0);
    ds_record_close(r);
    unlink(path);
}

static void test_equal_trials_cost_little(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w;
    struct ds_trial_data t;
    const char *path = fixture_path("dedupe.h5");
    fixture_header(3, &h);
    fixture_trial(3, 0, 400, &t);
    assert_ok(ds_writer_create(path, 0, &h, &w, NULL, &err), err);
    long before = 0, first = 0, each = 0;
    for (int i = 0; i < 21; i++) {
        t.info.repeat = (uint32_t)i;
        t.info.wall_s += 0.5;
        assert_ok(ds_writer_add(w, &t, &err), err);
        if (i == 0)
            first = before = file_bytes(path);
    }
    assert_ok(ds_writer_close(w, &err), err);
    each = (file_bytes(path) - before) / 20;
    print_message("first trial and header %ld bytes, each equal one %ld bytes\n", first, each);
    assert_true(first > 50000);
    assert_true(each <= 1024);
    struct ds_record *r;
    assert_ok(ds_record_open(path, &r, &err), err);
    assert_int_equal(ds_record_trial_count(r), 21);
    const struct ds_trial_data *zero = ds_record_load(r, 0, &err),
                               *last = ds_record_load(r, 20, &err);
    assert_non_null(zero);
    assert_non_null(last);
    assert_true(zero->digests == last->digests); /* held once, too */
    assert_int_equal(last->info.repeat, 20);
    ds_record_close(r);
    ds_trial_data_free(&t);
    ds_header_free(&h);
    unlink(path);
}

/* A run digest by hand: two sites, rows spread over two calls and out of order. */
static void test_run_digest_follows_row_keys(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_header h;
    memset(&h, 0, sizeof h);
    h.n_sites = 3;
    struct ds_call calls[] = {{0, 0, 3, 1, 0, 3}, {1, 1, 2, 1, 3, 2}};
    struct ds_row rows[] = {{0, 0, 5, 0, 0, 0, 0, 1, 1},
                            {0, 0, 4, 0, 0, 1, 0, 1, 1},
                            {0, 1, 0, 0, 0, 2, 0, 1, 1},
                            {1, 0, 4, 1, 1, 0, 1, 1, 1},
                            {1, -1, 9, 0, 1, 1, 1, 1, 1}};
    struct ds_launch launch;
    memset(&launch, 0, sizeof launch);
    /* Site 1 has nothing; site 2 comes before site 0 in call 1. */
    struct ds_capture captures[] = {
        {0, 0, 0, 0, 3, 8, 0}, {1, 2, 0, 4, 1, 8, 3}, {1, 0, 0, 3, 2, 8, 4}};
    uint64_t digests[] = {50, 40, 100, 900, 41, 9};
    struct ds_trial_data t = {.calls = calls,
                              .n_calls = 2,
                              .rows = rows,
                              .n_rows = 5,
                              .launches = &launch,
                              .n_launches = 1,
                              .captures = captures,
                              .n_captures = 3,
                              .digests = digests,
                              .n_digests = 6};
    /* Keys (-1,9) (0,4,0) (0,4,1) (0,5) (1,0). */
    uint64_t site0[] = {9, 40, 41, 50, 100}, site2[] = {900};
    uint64_t tensors[] = {XXH3_64bits(site0, sizeof site0), XXH3_64bits(site2, sizeof site2)},
             got = 0;
    assert_ok(ds_trial_run_digest(&h, &t, &got, &err), err);
    assert_true(got == XXH3_64bits(tensors, sizeof tensors));
    for (long n = 1; n <= 5; n++) {
        ds_mem_fail_at(n);
        assert_int_equal(ds_trial_run_digest(&h, &t, &got, &err), -1);
        ds_mem_fail_at(0);
    }
}

static void test_copy_keeps_complete_trials(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_record *r;
    struct ds_writer *w;
    struct ds_trial_data t;
    const char *from = fixture_path("from.h5"), *to = fixture_path("to.h5");
    fixture_record(from, 21, 9, 6);
    assert_ok(ds_record_open(from, &r, &err), err);
    assert_int_equal(ds_record_copy(r, from, &w, &err), -1);
    assert_ok(ds_record_copy(r, to, &w, &err), err);
    ds_record_close(r);
    fixture_trial(21, 9, 6, &t);
    assert_ok(ds_writer_add(w, &t, &err), err);
    ds_trial_data_free(&t);
    assert_ok(ds_writer_close(w, &err), err);
    struct reading got = read_everything(to, 21, 6);
    assert_int_equal(got.good, 10);
    assert_int_equal(got.bad + got.incomplete + got.damaged, 0);
    unlink(from);
    unlink(to);
}

/* `diff A A`: one file opened twice; closing one leaves the other at work. */
static void test_a_record_opens_twice(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_record *a, *b;
    const char *path = fixture_path("twice.h5");
    fixture_record(path, 40, 3, 6);
    assert_ok(ds_record_open(path, &a, &err), err);
    assert_ok(ds_record_open(path, &b, &err), err);
    assert_non_null(ds_record_load(a, 0, &err));
    ds_record_close(a);
    for (size_t i = 0; i < 3; i++)
        assert_non_null(ds_record_load(b, i, &err));
    ds_record_close(b);
    unlink(path);
}

/* The record reads with h5py alone, and its dumped rows have their digests by xxhsum:
 * tests/tools/check_record.py. */
static void test_h5py_reads_it(void **state)
{
    (void)state;
    const char *python = getenv("DRIFTSCOPE_PYTHON");
    char command[1024];
    python = python && *python ? python : "python3";
    snprintf(command, sizeof command, "'%s' -c 'import h5py, numpy' >/dev/null 2>&1", python);
    if (system(command) != 0 || system("command -v xxhsum >/dev/null 2>&1") != 0) {
        print_message("no python with h5py, or no xxhsum: skipped\n");
        skip();
    }
    const char *path = fixture_path("h5py.h5");
    fixture_record(path, 77, 8, 6);
    snprintf(command, sizeof command, "'%s' tests/tools/check_record.py '%s' >/dev/null", python,
             path);
    assert_int_equal(system(command), 0);
    /* One changed byte of a dumped row is seen by it, so that it does check. */
    size_t n;
    char *bytes = file_read(path, &n);
    struct ds_trial_data t;
    fixture_trial(77, 0, 6, &t);
    char *hit = NULL;
    for (size_t k = 0; !hit && k < t.n_blobs; k++)
        if (t.blobs[k].bytes > 8)
            hit = memmem(bytes, n, t.blobs[k].data, t.blobs[k].bytes);
    assert_non_null(hit);
    hit[3] ^= 4;
    file_write(path, bytes, n);
    snprintf(command, sizeof command, "'%s' tests/tools/check_record.py '%s' >/dev/null 2>&1",
             python, path);
    assert_int_not_equal(system(command), 0);
    free(bytes);
    ds_trial_data_free(&t);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_covers_every_byte),
        cmocka_unit_test(test_everything_comes_back),
        cmocka_unit_test(test_empty_record),
        cmocka_unit_test(test_equal_trials_cost_little),
        cmocka_unit_test(test_run_digest_follows_row_keys),
        cmocka_unit_test(test_copy_keeps_complete_trials),
        cmocka_unit_test(test_a_record_opens_twice),
        cmocka_unit_test(test_h5py_reads_it),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
