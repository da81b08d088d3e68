/* test_plan.c: factors, arms and their order; a trial packed and unpacked; worker answers that are
 * cut or nonsense. */
#include "tests/unit/testing.h"

#include "base/buf.h"
#include "base/mem.h"
#include "dumps/verdict.h"
#include "engine/sweep.h"
#include "engine/worker.h"

#include <stdlib.h>
#include <string.h>

struct plan {
    struct ds_factor_values values[DS_FACTOR_COUNT];
    struct ds_header header;
};

static void make_plan(struct plan *p, const char *const *texts, int full)
{
    struct ds_error err;
    memset(p, 0, sizeof *p);
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        assert_ok(ds_factor_parse(f, texts[f], &p->values[f], &err), err);
    assert_ok(ds_plan_arms(p->values, full, &p->header.arms, &p->header.n_arms, &err), err);
    p->header.factors = ds_calloc(DS_FACTOR_COUNT, sizeof *p->header.factors, "factors", &err);
    p->header.n_factors = DS_FACTOR_COUNT;
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        p->header.factors[f] = strdup(ds_factor_names[f]);
}

static void drop_plan(struct plan *p)
{
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        ds_factor_free(&p->values[f]);
    ds_header_free(&p->header);
}

static int find_arm(const struct plan *p, const char *batch, const char *slot, const char *threads)
{
    for (size_t a = 0; a < p->header.n_arms; a++) {
        char **v = p->header.arms[a].values;
        if (strcmp(v[DS_FACTOR_BATCH], batch) == 0 && strcmp(v[DS_FACTOR_SLOT], slot) == 0 &&
            strcmp(v[DS_FACTOR_THREADS], threads) == 0)
            return (int)a;
    }
    return -1;
}

static void test_one_factor_at_a_time(void **state)
{
    (void)state;
    static const char *const texts[DS_FACTOR_COUNT] = {[DS_FACTOR_BATCH] = "1,2,16,4",
                                                       [DS_FACTOR_SLOT] = "first,last",
                                                       [DS_FACTOR_NEIGHBOURS] = "copies,varied",
                                                       [DS_FACTOR_THREADS] = "1,2",
                                                       [DS_FACTOR_CHUNK] = "0,8",
                                                       [DS_FACTOR_MODE] = "prefill,decode"};
    struct plan p;
    make_plan(&p, texts, 0);
    /* 2 thread counts x 4 batches, then one arm for each of slot, neighbours, chunk, mode. */
    assert_int_equal(p.header.n_arms, 12);
    assert_int_equal(find_arm(&p, "1", "first", "1"), 0);
    assert_true(find_arm(&p, "4", "first", "2") > 0);
    assert_true(find_arm(&p, "16", "last", "1") > 0);
    assert_int_equal(find_arm(&p, "4", "last", "1"), -1);
    int64_t ref =
        ds_arm_reference(&p.header, (uint32_t)find_arm(&p, "16", "last", "1"), DS_FACTOR_SLOT);
    assert_int_equal(ref, find_arm(&p, "16", "first", "1"));
    assert_int_equal(
        ds_arm_reference(&p.header, (uint32_t)find_arm(&p, "16", "last", "1"), DS_FACTOR_BATCH),
        -1);
    drop_plan(&p);
}

static void test_every_arm_stands_after_its_references(void **state)
{
    (void)state;
    static const char *const texts[DS_FACTOR_COUNT] = {
        [DS_FACTOR_BATCH] = "2,1,4",    [DS_FACTOR_SLOT] = "last,first",
        [DS_FACTOR_PADDING] = "0,3",    [DS_FACTOR_THREADS] = "2,1",
        [DS_FACTOR_DTYPE] = "f32,bf16", [DS_FACTOR_KERNELS] = "pinned,reference"};
    for (int full = 0; full < 2; full++) {
        struct plan p;
        make_plan(&p, texts, full);
        assert_int_equal(p.header.n_arms, full ? 3 * 2 * 2 * 2 * 2 * 2 : 2 * (6 + 1 + 1 + 1));
        for (uint32_t a = 0; a < p.header.n_arms; a++)
            for (uint32_t f = 0; f < DS_FACTOR_COUNT; f++)
                assert_true(ds_arm_reference(&p.header, a, f) < (int64_t)a);
        drop_plan(&p);
    }
}

static void test_alone_in_the_batch_there_is_no_slot(void **state)
{
    (void)state;
    static const char *const texts[DS_FACTOR_COUNT] = {
        [DS_FACTOR_SLOT] = "first,last", [DS_FACTOR_NEIGHBOURS] = "copies,varied"};
    struct plan p;
    make_plan(&p, texts, 0);
    assert_int_equal(p.header.n_arms, 1);
    drop_plan(&p);
}

static void test_values_are_checked_and_canonical(void **state)
{
    (void)state;
    struct ds_factor_values v;
    struct ds_error err;
    assert_ok(ds_factor_parse(DS_FACTOR_BATCH, "01,1,2", &v, &err), err);
    assert_int_equal(v.n, 2);
    assert_string_equal(v.value[0], "1");
    ds_factor_free(&v);
    assert_ok(ds_factor_parse(DS_FACTOR_THREADS, "1,all", &v, &err), err);
    assert_string_equal(v.value[0], "1");
    ds_factor_free(&v);
    assert_ok(ds_factor_parse(DS_FACTOR_PADDING, "0r,4,04r,4r", &v, &err), err);
    assert_int_equal(v.n, 3);
    assert_string_equal(v.value[0], "0");
    assert_string_equal(v.value[1], "4");
    assert_string_equal(v.value[2], "4r");
    ds_factor_free(&v);
    static const struct {
        int factor;
        const char *text, *message, *hint;
    } bad[] = {
        {DS_FACTOR_PADDING, "r", "--padding: 'r'", "0,4,4r"},
        {DS_FACTOR_PADDING, "4l", "--padding: '4l'", "0,4,4r"},
        {DS_FACTOR_PADDING, "-1r", "--padding: '-1'", "0,4,4r"},
        {DS_FACTOR_PREFIX, "-1", "--prefix: '-1'", ""},
        {DS_FACTOR_ROLLBACK, "1025", "--rollback: '1025'", ""},
        {DS_FACTOR_BATCH, "0", "--batch: '0'", ""},
        {DS_FACTOR_BATCH, "1,,2", "empty value", ""},
        {DS_FACTOR_BATCH, "2x", "'2x'", ""},
        {DS_FACTOR_SLOT, "fist", "unknown value 'fist'", "first"},
        {DS_FACTOR_MODE, "zzz", "unknown value", "prefill"},
        {DS_FACTOR_KERNELS, "vendro", "--kernels", "vendor"},
        {DS_FACTOR_DTYPE, "f64", "--dtype", ""},
        {DS_FACTOR_BLAS_CORE, "Hasvell", "Hasvell", ""},
        {DS_FACTOR_BATCH, "99999999999999999999", "--batch", ""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ds_factor_parse(bad[i].factor, bad[i].text, &v, &err), -1);
        assert_non_null(strstr(err.msg, bad[i].message));
        assert_non_null(strstr(err.hint, bad[i].hint));
        assert_int_equal(v.n, 0);
    }
}

/* A trial with one of everything. */
static void make_trial(struct ds_trial_data *t)
{
    struct ds_error err;
    memset(t, 0, sizeof *t);
    t->info.arm = 3;
    t->info.wall_s = 0.25;
    t->calls = ds_calloc(t->n_calls = 1, sizeof *t->calls, "t", &err);
    t->rows = ds_calloc(t->n_rows = 2, sizeof *t->rows, "t", &err);
    t->launches = ds_calloc(t->n_launches = 1, sizeof *t->launches, "t", &err);
    t->captures = ds_calloc(t->n_captures = 1, sizeof *t->captures, "t", &err);
    t->digests = ds_calloc(t->n_digests = 2, sizeof *t->digests, "t", &err);
    t->drifts = ds_calloc(t->n_drifts = 1, sizeof *t->drifts, "t", &err);
    t->nonfinites = ds_calloc(0, sizeof *t->nonfinites, "t", &err);
    t->steps = ds_calloc(t->n_steps = 1, sizeof *t->steps, "t", &err);
    t->blobs = ds_calloc(t->n_blobs = 2, sizeof *t->blobs, "t", &err);
    t->digests[1] = 0x0123456789abcdefu;
    t->rows[1].position = 17;
    t->steps[0].margin = 0.5f;
    for (int i = 0; i < 2; i++) {
        t->blobs[i].bytes = 4u + (uint32_t)i;
        t->blobs[i].data = ds_calloc(t->blobs[i].bytes, 1, "t", &err);
        memset(t->blobs[i].data, 'a' + i, t->blobs[i].bytes);
    }
}

static void test_a_trial_survives_the_socket(void **state)
{
    (void)state;
    struct ds_trial_data t, back;
    struct ds_buf b = {0};
    struct ds_error err;
    make_trial(&t);
    ds_trial_pack(&t, &b);
    assert_false(b.failed);
    assert_ok(ds_trial_unpack(b.data, b.len, &back, &err), err);
    assert_int_equal(back.info.arm, 3);
    assert_int_equal(back.n_rows, 2);
    assert_int_equal(back.rows[1].position, 17);
    assert_true(back.digests[1] == t.digests[1]);
    assert_int_equal(back.n_nonfinites, 0);
    assert_bits_equal("margin", 0, back.steps[0].margin, 0.5f);
    assert_memory_equal(back.blobs[1].data, "bbbbb", 5);
    ds_trial_data_free(&back);
    /* Cut anywhere, or longer than it says: refused, nothing leaks. */
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(ds_trial_unpack(b.data, n, &back, &err), -1);
    ds_buf_add(&b, "x", 1);
    assert_int_equal(ds_trial_unpack(b.data, b.len, &back, &err), -1);
    ds_buf_free(&b);
    ds_trial_data_free(&t);
}

static void test_absurd_counts_from_a_worker_are_refused(void **state)
{
    (void)state;
    struct ds_trial_data t, back;
    struct ds_buf b = {0};
    struct ds_error err;
    make_trial(&t);
    ds_trial_pack(&t, &b);
    for (int i = 0; i < 9; i++) {
        size_t saved, absurd = SIZE_MAX / 8;
        char *count = b.data + sizeof t.info + (size_t)i * sizeof saved;
        memcpy(&saved, count, sizeof saved);
        memcpy(count, &absurd, sizeof absurd);
        assert_int_equal(ds_trial_unpack(b.data, b.len, &back, &err), -1);
        memcpy(count, &saved, sizeof saved);
    }
    ds_buf_free(&b);
    ds_trial_data_free(&t);
}

static void test_threads_that_moved_are_counted(void **state)
{
    (void)state;
    struct ds_thread_times before = {.n = 3}, after = {.n = 4};
    for (int i = 0; i < 4; i++) {
        before.t[i].tid = after.t[i].tid = 100 + i;
        before.t[i].ns = 1000;
        after.t[i].ns = i == 1 ? 2000 : 1000; /* the fourth is new: all its time is movement */
    }
    assert_int_equal(ds_thread_times_moved(&before, &after), 2);
    after.t[0].ns = 1010; /* woke up, did nothing */
    assert_int_equal(ds_thread_times_moved(&before, &after), 2);
    after.t[0].ns = 1100;
    assert_int_equal(ds_thread_times_moved(&before, &after), 3);
    before.n = 0;
    assert_int_equal(ds_thread_times_moved(&before, &after), DS_UNKNOWN);
}

/* What a set's name means is the device's matter. */
static void test_kernels_by_device(void **state)
{
    char *values[DS_FACTOR_COUNT];
    struct ds_factor_values v[DS_FACTOR_COUNT];
    struct ds_setting s;
    struct ds_error err;
    (void)state;
    for (int f = 0; f < DS_FACTOR_COUNT; f++) {
        const char *text = f == DS_FACTOR_KERNELS  ? "atomic+rmsnorm=split"
                           : f == DS_FACTOR_DEVICE ? "sim"
                                                   : NULL;
        assert_ok(ds_factor_parse(f, text, &v[f], &err), err);
        values[f] = v[f].value[0];
    }
    assert_ok(ds_setting_parse(values, &s, &err), err);
    assert_int_equal(s.device, DS_DEVICE_SIM);
    assert_int_equal(s.kernels.device, DS_DEVICE_SIM);
    assert_string_equal(s.kernels.op[DS_OP_MATMUL]->name, "atomic");
    assert_int_equal(s.kernels.op[DS_OP_MATMUL]->device, DS_DEVICE_SIM);
    char cpu[] = "cpu";
    values[DS_FACTOR_DEVICE] = cpu;
    assert_int_equal(ds_setting_parse(values, &s, &err), -1);
    assert_non_null(strstr(err.msg, "unknown set 'atomic'"));
    struct ds_factor_values none;
    assert_int_equal(ds_factor_parse(DS_FACTOR_KERNELS, "atomick", &none, &err), -1);
    assert_int_equal(ds_factor_parse(DS_FACTOR_DEVICE, "cuda", &none, &err), -1);
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        ds_factor_free(&v[f]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_factor_at_a_time),
        cmocka_unit_test(test_every_arm_stands_after_its_references),
        cmocka_unit_test(test_alone_in_the_batch_there_is_no_slot),
        cmocka_unit_test(test_values_are_checked_and_canonical),
        cmocka_unit_test(test_a_trial_survives_the_socket),
        cmocka_unit_test(test_absurd_counts_from_a_worker_are_refused),
        cmocka_unit_test(test_threads_that_moved_are_counted),
        cmocka_unit_test(test_kernels_by_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
