/* test_lab.c: what the lab stands on: exact sums against whole numbers, guarded arrays, contained
 * runs, contents, schedules, classes. */
#include "tests/unit/testing.h"

#include "base/buf.h"
#include "kernels/lab/arena.h"
#include "kernels/lab/check_plan.h"
#include "kernels/lab/contain.h"
#include "kernels/lab/content.h"
#include "kernels/lab/exact.h"
#include "kernels/lab/schedule.h"
#include "kernels/lab/truth.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- exact ------------------------------------------------------------------------------------------- */

static float scaled(uint64_t u, int e)
{
    return ldexpf((float)((int32_t)(u >> 40) - (1 << 23)), e);
}

/* Products are whole multiples of 2^-60, so a 128-bit integer holds every sum. */
static void test_exact_against_integers(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 300; round++) {
        struct ds_exact e;
        __int128 sum = 0;
        const int spread = (int)(round % 28);
        ds_exact_zero(&e);
        for (uint64_t i = 0; i < 1 + round * 3; i++) {
            /* Every third term cancels the one before. */
            const uint64_t at = i % 3 == 2 ? i - 1 : i;
            uint64_t u = ds_content_hash(round, 2 * at), v = ds_content_hash(round, 2 * at + 1);
            int eu = -30 + (int)(u % (uint64_t)(spread + 1)), ev = -30 + (int)(v % 3);
            float x = scaled(u, eu), w = scaled(v, ev);
            if (i % 3 == 2)
                x = -x;
            ds_exact_add_product(&e, x, w);
            sum += ((__int128)(int32_t)ldexpf(x, -eu) * (int32_t)ldexpf(w, -ev)) *
                   ((__int128)1 << (eu + 30 + ev + 30));
        }
        double want = ldexp((double)sum, -60), got = ds_exact_value(&e);
        if (memcmp(&want, &got, sizeof want) != 0) {
            print_error("round %ld: got %a, want %a\n", (long)round, got, want);
            fail();
        }
    }
}

static void test_exact_ends(void **state)
{
    const float least = ds_f32_from_bits(1);
    struct ds_exact e;
    (void)state;
    ds_exact_zero(&e);
    assert_true(ds_exact_value(&e) == 0);
    ds_exact_add_product(&e, least, least);
    assert_true(ds_exact_value(&e) == 0x1p-298);
    ds_exact_add_product(&e, FLT_MAX, FLT_MAX);
    ds_exact_add_product(&e, FLT_MAX, FLT_MAX);
    assert_true(ds_exact_value(&e) == 2 * ((double)FLT_MAX * (double)FLT_MAX));
    ds_exact_add_product(&e, -FLT_MAX, FLT_MAX);
    ds_exact_add_product(&e, FLT_MAX, -FLT_MAX);
    assert_true(ds_exact_value(&e) == 0x1p-298); /* nothing was lost */
    ds_exact_add_product(&e, -least, least);
    assert_true(ds_exact_value(&e) == 0);
    ds_exact_subtract(&e, 1.5f);
    assert_true(ds_exact_value(&e) == -1.5);
    ds_exact_add(&e, 1.5f);
    ds_exact_subtract(&e, least);
    assert_true(ds_exact_value(&e) == -0x1p-149);
    ds_exact_add(&e, INFINITY);
    assert_true(isinf(ds_exact_value(&e)) && ds_exact_value(&e) > 0);
    ds_exact_add_product(&e, INFINITY, -1.0f);
    assert_true(isnan(ds_exact_value(&e)));
}

/* The fast way gives the bits of the long accumulator: plain sums, sums that cancel to little or to
 * nothing, magnitudes that lie far apart, zeros, subnormals, values that are not finite. */
static void test_exact_dot(void **state)
{
    enum { MOST = 600 };
    static const int contents[] = {DS_CONTENT_PLAIN, DS_CONTENT_MIXED, DS_CONTENT_TINY,
                                   DS_CONTENT_ZERO,  DS_CONTENT_HUGE,  DS_CONTENT_SPECIAL};
    float x[MOST], w[MOST];
    (void)state;
    for (uint64_t round = 0; round < 1200; round++) {
        struct ds_exact e;
        const int64_t n = (int64_t)(round % MOST) + 1;
        const float more = round % 3 ? 0.0f : (float)(int)(round % 7) - 3.0f;
        double scale, size = fabs((double)more);
        ds_content_row(x, n, round, 0, 0, 0, contents[round % 6]);
        ds_content_row(w, n, round, 1, 0, 0, contents[round / 6 % 6]);
        for (int64_t k = n / 2; round % 4 == 1 && k < n / 2 * 2; k++) {
            x[k] = -x[k - n / 2];
            w[k] = w[k - n / 2];
        }
        ds_exact_zero(&e);
        for (int64_t k = 0; k < n; k++) {
            ds_exact_add_product(&e, x[k], w[k]);
            size += fabs((double)x[k] * (double)w[k]);
        }
        ds_exact_add(&e, more);
        const double want = ds_exact_value(&e), got = ds_exact_dot(x, w, n, more, &scale);
        if (!(isnan(want) && isnan(got)) && memcmp(&want, &got, sizeof want) != 0)
            fail_msg("round %ld: got %a, want %a", (long)round, got, want);
        assert_true(isnan(size) ? isnan(scale)
                                : !isfinite(size) || fabs(scale - size) <= size * 1e-12);
    }
}

/* A tie of two doubles, and all but one, which the errors alone cannot tell apart. */
static void test_exact_dot_at_ties(void **state)
{
    const float x[] = {0x1p53f, 1.0f, 0x1p-140f}, one[] = {1.0f, 1.0f, 1.0f};
    double scale;
    (void)state;
    assert_true(ds_exact_dot(x, one, 2, 0.0f, &scale) == 0x1p53);
    assert_true(ds_exact_dot(x, one, 3, 0.0f, &scale) == 0x1p53 + 2);
    assert_true(ds_exact_dot(x, one, 1, 3.0f, &scale) == 0x1p53 + 4);
    assert_true(ds_exact_dot(x, one, 0, -0.0f, &scale) == 0 && scale == 0);
}

/* Half way between two doubles goes to the even one, with one bit more it goes up. */
static void test_exact_rounds_to_even(void **state)
{
    struct ds_exact e;
    (void)state;
    ds_exact_zero(&e);
    ds_exact_add(&e, 0x1p53f);
    ds_exact_add(&e, 1.0f);
    assert_true(ds_exact_value(&e) == 0x1p53);
    ds_exact_add(&e, 0x1p-140f);
    assert_true(ds_exact_value(&e) == 0x1p53 + 2);
    ds_exact_zero(&e);
    ds_exact_add(&e, 0x1p53f);
    ds_exact_add(&e, 3.0f);
    assert_true(ds_exact_value(&e) == 0x1p53 + 4);
    ds_exact_zero(&e);
    ds_exact_subtract(&e, 0x1p53f);
    ds_exact_subtract(&e, 1.0f);
    assert_true(ds_exact_value(&e) == -0x1p53);
}

static void test_ulp(void **state)
{
    (void)state;
    assert_true(ds_truth_ulp(1.0) == 0x1p-23);
    assert_true(ds_truth_ulp(-1.99) == 0x1p-23);
    assert_true(ds_truth_ulp(0.99) == 0x1p-24);
    assert_true(ds_truth_ulp(0) == 0x1p-149);
    assert_true(ds_truth_ulp(0x1p-126) == 0x1p-149);
    assert_true(ds_truth_ulp(0x1p-130) == 0x1p-149);
    assert_true(ds_truth_ulp((double)FLT_MAX) == 0x1p104);
}

/* ---- arena --------------------------------------------------------------------------------------------- */

/* What one write does to a 3 x 5 output whose rows are 8 apart. */
static void test_arena_finds_writes(void **state)
{
    static const struct {
        int at, kind, row, col;
    } cases[] = {
        {2, DS_FAULT_NONE, 0, 0},
        {-1, DS_FAULT_WROTE_NEAR, 0, -1},
        {-200, DS_FAULT_WROTE_NEAR, 0, -200},
        {5, DS_FAULT_WROTE_NEAR, 0, 5},
        {15, DS_FAULT_WROTE_NEAR, 1, 7},
        {21, DS_FAULT_WROTE_NEAR, 2, 5},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_arena a = {.n = 0};
        struct ds_error err;
        struct ds_fault f;
        ds_arena_begin(&a, 0);
        float *y = ds_arena_place(&a, "y", DS_ARRAY_OUT, 4, 3, 5, 8, 3, &err);
        assert_non_null(y);
        assert_int_equal((uintptr_t)y % 64, 12);
        assert_int_equal(ds_arena_check(&a, &f), 1);
        assert_int_equal(f.kind, DS_FAULT_UNWRITTEN);
        for (int e = 0; e < 15; e++)
            y[e / 5 * 8 + e % 5] = (float)e;
        y[cases[i].at] = 9.0f;
        assert_int_equal(ds_arena_check(&a, &f), cases[i].kind != DS_FAULT_NONE);
        assert_int_equal(f.kind, cases[i].kind);
        if (f.kind) {
            assert_string_equal(f.array, "y");
            assert_int_equal(f.row, cases[i].row);
            assert_int_equal(f.col, cases[i].col);
        }
        ds_arena_free(&a);
    }
}

static void test_arena_rows_of_others(void **state)
{
    struct ds_arena a = {.n = 0};
    struct ds_error err;
    struct ds_fault f;
    (void)state;
    ds_arena_begin(&a, DS_POISON_HUGE);
    uint16_t *y = ds_arena_place(&a, "y", DS_ARRAY_OUT, 2, 3, 4, 4, DS_PLACE_END, &err);
    uint8_t *mask = ds_arena_row_mask(&a, &err);
    assert_non_null(mask);
    mask[1] = 1;
    for (int i = 0; i < 4; i++)
        y[4 + i] = 7;
    assert_int_equal(ds_arena_check(&a, &f), 0);
    y[11] = 7;
    assert_int_equal(ds_arena_check(&a, &f), 1);
    assert_int_equal(f.kind, DS_FAULT_WROTE_OTHER);
    assert_int_equal(f.row, 2);
    ds_arena_begin(&a, 0);
    assert_int_equal(a.n, 0);
    ds_arena_free(&a);
}

/* Arrays end and begin where they are told to, also when the memory of a larger call is used again. */
static void test_arena_places(void **state)
{
    struct ds_arena a = {.n = 0};
    struct ds_error err;
    struct ds_fault f;
    (void)state;
    for (int i = 0; i < 4; i++) {
        ds_arena_begin(&a, 0);
        int64_t cols = i % 2 ? 7 : 50000;
        float *x = ds_arena_place(&a, "x", DS_ARRAY_IN, 4, 1, cols, cols, DS_PLACE_END, &err);
        float *y = ds_arena_place(&a, "y", DS_ARRAY_OUT, 4, 1, cols, cols, DS_PLACE_START, &err);
        assert_int_equal((uintptr_t)(x + cols) % 4096, 0);
        assert_int_equal((uintptr_t)y % 4096, 0);
        assert_int_equal(ds_arena_locate(&a, x + cols, 0, &f), 1);
        assert_int_equal(f.kind, DS_FAULT_OUT_OF_BOUNDS);
        assert_int_equal(f.col, 1);
        assert_int_equal(ds_arena_locate(&a, y - 3, 1, &f), 1);
        assert_int_equal(f.col, -3);
        assert_int_equal(ds_arena_locate(&a, x + 2, 1, &f), 1);
        assert_int_equal(f.kind, DS_FAULT_WROTE_INPUT);
        assert_int_equal(f.col, 2);
        assert_int_equal(ds_arena_locate(&a, &a, 1, &f), 0);
    }
    assert_null(ds_arena_place(&a, "z", DS_ARRAY_IN, 4, INT64_MAX / 2, 8, 8, 0, &err));
    assert_non_null(strstr(err.msg, "array z"));
    ds_arena_free(&a);
}

/* ---- contain --------------------------------------------------------------------------------------------- */

static struct ds_arena guarded;

static int end_well(void *arg, struct ds_contained *c, struct ds_error *err)
{
    (void)c, (void)err;
    return *(int *)arg;
}
static int end_badly(void *arg, struct ds_contained *c, struct ds_error *err)
{
    (void)arg, (void)c;
    return ds_fail(err, "what was wrong");
}
static int touch_beyond(void *arg, struct ds_contained *c, struct ds_error *err)
{
    float *x = ds_arena_place(&guarded, "x", DS_ARRAY_IN, 4, 1, 9, 9, DS_PLACE_END, err);
    (void)arg, (void)c;
    ds_contain_watch(&guarded);
    return x && *(volatile float *)(x + 11) > 0;
}
static int abort_it(void *arg, struct ds_contained *c, struct ds_error *err)
{
    (void)arg, (void)c, (void)err;
    abort();
}
static int leave(void *arg, struct ds_contained *c, struct ds_error *err)
{
    (void)arg, (void)c, (void)err;
    _Exit(0);
}
static int stand_still(void *arg, struct ds_contained *c, struct ds_error *err)
{
    (void)arg, (void)err;
    for (;;)
        if (c->rc)
            return 0;
}

static void test_contain(void **state)
{
    static const struct {
        ds_contained_fn fn;
        int kind;
        const char *words;
    } cases[] = {{end_well, DS_FAULT_NONE, "nothing"},
                 {end_badly, DS_FAULT_NONE, "nothing"},
                 {touch_beyond, DS_FAULT_OUT_OF_BOUNDS, "past the end of x (3 elements behind it)"},
                 {abort_it, DS_FAULT_CRASH, "crashes (Aborted)"},
                 {leave, DS_FAULT_EXIT, "ends the process"},
                 {stand_still, DS_FAULT_HANG, "does not return"}};
    struct ds_error err;
    struct ds_contained *c = ds_contain_map(sizeof *c, &err);
    int five = 5;
    (void)state;
    assert_non_null(c);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_buf b = {0};
        assert_ok(ds_contain(c, cases[i].fn, &five, 0.3, &err), err);
        assert_int_equal(c->fault.kind, cases[i].kind);
        ds_fault_print(&b, &c->fault);
        assert_non_null(strstr(b.data, cases[i].words));
        ds_buf_free(&b);
        if (cases[i].fn == end_well)
            assert_int_equal(c->rc, 5);
        if (cases[i].fn == end_badly)
            assert_string_equal(c->error.msg, "what was wrong");
    }
    ds_contain_unmap(c, sizeof *c);
}

/* ---- contents -------------------------------------------------------------------------------------------- */

/* A row depends on its key alone, and each content is what it says. */
static void test_contents(void **state)
{
    enum { N = 4000 };
    float x[N], y[N];
    (void)state;
    for (int content = 0; content < DS_CONTENT_COUNT; content++) {
        int nan = 0, huge = 0, subnormal = 0, zero = 0;
        ds_content_row(x, N, 1, 2, 3, 4, content);
        ds_content_row(y, N, 1, 2, 3, 4, content);
        assert_memory_equal(x, y, sizeof x);
        ds_content_row(y, N, 1, 2, 3, 5, content);
        if (content != DS_CONTENT_ZERO)
            assert_memory_not_equal(x, y, sizeof x);
        for (int i = 0; i < N; i++) {
            nan += isnan(x[i]);
            huge += fabsf(x[i]) > 1e37f;
            zero += x[i] == 0;
            subnormal += fpclassify(x[i]) == FP_SUBNORMAL;
            assert_true(ds_f32_bits(x[i]) != DS_POISON_NAN);
        }
        assert_int_equal(nan == N, content == DS_CONTENT_NAN);
        assert_int_equal(zero == N, content == DS_CONTENT_ZERO);
        assert_int_equal(huge == N, content == DS_CONTENT_HUGE);
        assert_int_equal(subnormal > N / 4, content == DS_CONTENT_TINY);
        if (content == DS_CONTENT_SPECIAL)
            assert_true(nan && zero && subnormal && nan < N / 20);
    }
    ds_content_row(x, N, 1, 2, 3, 4, DS_CONTENT_PLAIN);
    ds_content_row(y, N, 1, 2, 3, 4, DS_CONTENT_OTHER);
    assert_memory_not_equal(x, y, sizeof x);
    ds_content_row(y, N, 1, 9, 3, 4, DS_CONTENT_PLAIN);
    assert_memory_not_equal(x, y, sizeof x);
    ds_content_row(y, N, 2, 2, 3, 4, DS_CONTENT_PLAIN);
    assert_memory_not_equal(x, y, sizeof x);
}

/* ---- schedules --------------------------------------------------------------------------------------------- */

static _Atomic(int) visits[8], order_seen[8], arrived;

static void visit(void *arg, int thread, int threads)
{
    const struct ds_exec *e = arg;
    if (e->pause)
        e->pause(e->pause_arg, thread);
    visits[thread] += threads;
    order_seen[arrived++] = thread;
}

/* Every thread number runs once a round, whatever the disturbance; disturbed ones may be paused. */
static void test_schedules(void **state)
{
    struct ds_error err;
    struct ds_schedule *s = ds_schedule_new(4, &err);
    (void)state;
    assert_non_null(s);
    for (uint64_t disturb = 0; disturb < 20; disturb++) {
        struct ds_exec exec = {.threads = 0};
        memset(visits, 0, sizeof visits);
        ds_schedule_exec(s, disturb, &exec);
        assert_int_equal(exec.threads, 4);
        assert_int_equal(exec.pause != NULL, disturb != 0);
        for (int round = 0; round < 3; round++) {
            arrived = 0;
            exec.run(exec.team, visit, &exec);
        }
        for (int i = 0; i < 4; i++)
            assert_int_equal(visits[i], 12);
        assert_false(ds_schedule_fp_changed(s));
    }
    ds_schedule_free(s);
}

static void spoil(void *arg, int thread, int threads)
{
    (void)arg, (void)threads;
#if defined(__x86_64__)
    if (thread == 1)
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8000u);
#endif
}

static void test_schedule_sees_a_member_change_control(void **state)
{
#if !defined(__x86_64__)
    skip();
#endif
    struct ds_error err;
    struct ds_schedule *s = ds_schedule_new(2, &err);
    struct ds_exec exec = {.threads = 0};
    (void)state;
    assert_non_null(s);
    ds_schedule_exec(s, 0, &exec);
    exec.run(exec.team, spoil, NULL);
    assert_true(ds_schedule_fp_changed(s));
    assert_false(ds_schedule_fp_changed(s));
    ds_schedule_free(s);
}

/* ---- classes ---------------------------------------------------------------------------------------------------- */

static void test_classes(void **state)
{
    static const struct {
        const char *bits, *want; /* one letter for each number from 1 on */
    } cases[] = {
        {"a", ""},
        {"aaaa", ""},
        {"aaabbbbc", "1-3 | 4-7 | 8"},
        {"ab", "1 | 2"},
        {"aab", "1-2 | 3"},
        {"abab", "1 3 | 2 4"},
        {"aabb", "1-2 | 3-"},
        {"abbbaa", "1 5- | 2-4"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_property_result p = {.state = 0};
        struct ds_check c = {.property = &p};
        struct ds_classes k = {.n = 0};
        /* Added in the wrong order on purpose. */
        for (int64_t j = (int64_t)strlen(cases[i].bits); j > 0; j--) {
            uint32_t row[2] = {(uint32_t)cases[i].bits[j - 1], 7};
            ds_classes_add(&k, j, row, 2);
        }
        ds_classes_print(&c, &k, "rows");
        assert_string_equal(p.classes, cases[i].want);
        assert_string_equal(p.classes_of, cases[i].want[0] ? "rows" : "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_against_integers),
        cmocka_unit_test(test_exact_dot),
        cmocka_unit_test(test_exact_dot_at_ties),
        cmocka_unit_test(test_exact_ends),
        cmocka_unit_test(test_exact_rounds_to_even),
        cmocka_unit_test(test_ulp),
        cmocka_unit_test(test_arena_finds_writes),
        cmocka_unit_test(test_arena_rows_of_others),
        cmocka_unit_test(test_arena_places),
        cmocka_unit_test(test_contain),
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_schedule_sees_a_member_change_control),
        cmocka_unit_test(test_classes),
    };
    return cmocka_run_group_tests_name("lab", tests, NULL, NULL);
}
