/* test_stats.c: statistics of a row against a plain definition, and the cases that a careless
 * comparison gets wrong. */
#include "tests/unit/testing.h"

#include "dumps/stats.h"
#include "dumps/stats_block.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct ds_drift compare(int dtype, const void *a, const void *ref, size_t n)
{
    struct ds_drift d;
    memset(&d, 0x5a, sizeof d);
    ds_stats_row(dtype, a, ref, n, &d);
    /* Not the function's to touch. */
    assert_int_equal(d.site, 0x5a5a5a5a);
    assert_int_equal(d.row, 0x5a5a5a5a);
    assert_int_equal(d.ref_arm, 0x5a5a5a5a);
    assert_true(d.digest == 0x5a5a5a5a5a5a5a5au && d.ref_digest == 0x5a5a5a5a5a5a5a5au);
    return d;
}

static struct ds_drift one(uint32_t a, uint32_t ref)
{
    float x = ds_f32_from_bits(a), y = ds_f32_from_bits(ref);
    return compare(DS_F32, &x, &y, 1);
}

static void test_equal_rows(void **state)
{
    (void)state;
    float row[70];
    for (int i = 0; i < 70; i++)
        row[i] = (float)i;
    row[3] = NAN;
    row[69] = -INFINITY;
    struct ds_drift d = compare(DS_F32, row, row, 70);
    assert_int_equal(d.elements, 0);
    assert_true(d.first == UINT32_MAX);
    assert_int_equal(d.flags, 0);
    assert_int_equal(d.max_ulp, 0);
    assert_close("max_abs", 0, d.max_abs, 0, 0);
    assert_close("diff_sq", 0, d.diff_sq, 0, 0);
    /* sum of i^2, i < 69, without 3^2 */
    assert_close("ref_sq", 0, d.ref_sq, 68.0 * 69 * 137 / 6 - 9, 0);
    assert_int_equal(d.nonfinite, 2);
    assert_int_equal(d.ref_nonfinite, 2);
    d = compare(DS_F32, row, row, 0);
    assert_int_equal(d.elements, 0);
    assert_true(d.first == UINT32_MAX);
}

static void test_special_pairs(void **state)
{
    (void)state;
    enum {
        ZERO = 0,
        MINUS_ZERO = 0x80000000,
        ONE = 0x3f800000,
        INF = 0x7f800000,
        MINUS_INF = 0xff800000,
        MAX = 0x7f7fffff,
        QNAN = 0x7fc00000,
        OTHER_NAN = 0x7fc00001,
        NEG_NAN = 0xffc00000
    };
    static const struct {
        const char *name;
        uint32_t a, ref;
        uint32_t elements, flags, nonfinite, ref_nonfinite;
        uint64_t max_ulp;
        double max_abs, diff_sq, ref_sq;
    } cases[] = {
        {"-0 against +0", MINUS_ZERO, ZERO, 1, DS_DRIFT_VALUES_EQUAL, 0, 0, 0, 0, 0, 0},
        {"nan against another", OTHER_NAN, QNAN, 1, DS_DRIFT_NAN_BITS, 1, 1, 0, 0, 0, 0},
        {"nan against negative nan", NEG_NAN, QNAN, 1, DS_DRIFT_NAN_BITS, 1, 1, 0, 0, 0, 0},
        {"nan against one", QNAN, ONE, 1, 0, 1, 0, 0, 0, 0, 0},
        {"one against nan", ONE, QNAN, 1, 0, 0, 1, 0, 0, 0, 0},
        {"inf against inf", INF, INF, 0, 0, 1, 1, 0, 0, 0, 0},
        {"inf against -inf", INF, MINUS_INF, 1, 0, 1, 1, 0xff000000u, INFINITY, 0, 0},
        {"inf against largest", INF, MAX, 1, 0, 1, 0, 1, INFINITY, 0, 0},
        {"one against inf", ONE, INF, 1, 0, 0, 1, 0x7f800000u - 0x3f800000u, INFINITY, 0, 0},
        {"smallest against -smallest", 1, 0x80000001u, 1, 0, 0, 0, 2, 0x1p-148, 0x1p-296, 0x1p-298},
        {"one against next", ONE, ONE + 1, 1, 0, 0, 0, 1, 0x1p-23, 0x1p-46,
         0x1.000002p0 * 0x1.000002p0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_drift d = one(cases[i].a, cases[i].ref);
        const char *n = cases[i].name;
        if (d.elements != cases[i].elements || d.flags != cases[i].flags ||
            d.nonfinite != cases[i].nonfinite || d.ref_nonfinite != cases[i].ref_nonfinite ||
            d.max_ulp != cases[i].max_ulp)
            fail_msg("%s: elements %u flags %u nonfinite %u %u ulp %llu", n, d.elements, d.flags,
                     d.nonfinite, d.ref_nonfinite, (unsigned long long)d.max_ulp);
        /* Exact; == also holds for Inf, and for no NaN. */
        if (!(d.max_abs == cases[i].max_abs && d.diff_sq == cases[i].diff_sq &&
              d.ref_sq == cases[i].ref_sq))
            fail_msg("%s: max_abs %a diff_sq %a ref_sq %a", n, d.max_abs, d.diff_sq, d.ref_sq);
    }
}

static void test_flags_need_every_element(void **state)
{
    (void)state;
    float a[200], ref[200];
    for (int i = 0; i < 200; i++)
        a[i] = ref[i] = (float)i + 0.5f;
    a[10] = -0.0f;
    ref[10] = 0.0f;
    assert_int_equal(compare(DS_F32, a, ref, 200).flags, DS_DRIFT_VALUES_EQUAL);
    assert_int_equal(compare(DS_F32, a, ref, 200).first, 10);
    a[150] = ds_f32_from_bits(0x7fc00001u);
    ref[150] = ds_f32_from_bits(0x7fc00000u);
    assert_int_equal(compare(DS_F32, a, ref, 200).flags, DS_DRIFT_NAN_BITS);
    assert_int_equal(compare(DS_F32, a, ref, 200).elements, 2);
    a[199] = nextafterf(a[199], 1000);
    assert_int_equal(compare(DS_F32, a, ref, 200).flags, 0);
    assert_int_equal(compare(DS_F32, a, ref, 199).flags, DS_DRIFT_NAN_BITS);
}

static void test_integers(void **state)
{
    (void)state;
    int32_t a[] = {5, INT32_MIN, 7, -1}, ref[] = {5, INT32_MAX, 9, -1};
    struct ds_drift d = compare(DS_I32, a, ref, 4);
    assert_int_equal(d.elements, 2);
    assert_int_equal(d.first, 1);
    assert_true(d.max_ulp == UINT32_MAX);
    assert_close("max_abs", 0, d.max_abs, 4294967295.0, 0);
    assert_close("diff_sq", 0, d.diff_sq, 4294967295.0 * 4294967295.0 + 4, 0);
    assert_int_equal(d.nonfinite + d.ref_nonfinite + d.flags, 0);
}

/* Against a definition of one line a field, over random bits (every exponent, NaNs, infinities) in
 * all formats and many lengths. */
static void test_random_rows_against_the_definition(void **state)
{
    (void)state;
    uint64_t seed = 7;
    uint32_t a[300], ref[300];
    uint16_t half_a[300], half_ref[300];
    for (int round = 0; round < 600; round++) {
        int dtype = round % 3;
        size_t n = (size_t)(round % 300) + 1;
        double max_abs = 0, diff_sq = 0, ref_sq = 0;
        uint64_t max_ulp = 0;
        uint32_t elements = 0, nonfinite = 0, first = UINT32_MAX, nan = 0, inf = 0,
                 first_bad = UINT32_MAX;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint32_t bits = (uint32_t)(seed >> 32), low = (uint32_t)(seed >> 20) & 7;
            if (round % 2) /* middling exponents, so that the sums mean something */
                bits = dtype == DS_F16 ? (bits & 0xbfff3fffu) | 0x3000u
                                       : (bits & 0xbfffbfffu) | 0x38003800u;
            a[i] = dtype == DS_F32 ? bits : bits & 0xffffu;
            ref[i] = low ? a[i] : a[i] ^ (low + 1);
            half_a[i] = (uint16_t)a[i];
            half_ref[i] = (uint16_t)ref[i];
            float x = dtype == DS_F32    ? ds_f32_from_bits(a[i])
                      : dtype == DS_BF16 ? ds_bf16_value(half_a[i])
                                         : ds_f16_value(half_a[i]);
            float y = dtype == DS_F32    ? ds_f32_from_bits(ref[i])
                      : dtype == DS_BF16 ? ds_bf16_value(half_ref[i])
                                         : ds_f16_value(half_ref[i]);
            uint64_t ulp = ds_ulp_distance(dtype, a[i], ref[i]);
            elements += a[i] != ref[i];
            if (a[i] != ref[i] && first == UINT32_MAX)
                first = (uint32_t)i;
            if (ulp != UINT64_MAX && ulp > max_ulp)
                max_ulp = ulp;
            if (a[i] != ref[i] && fabs((double)x - (double)y) > max_abs)
                max_abs = fabs((double)x - (double)y);
            if (isfinite(x) && isfinite(y)) {
                diff_sq += ((double)x - (double)y) * ((double)x - (double)y);
                ref_sq += (double)y * (double)y;
            }
            nonfinite += !isfinite(x);
            nan += isnan(x) != 0;
            inf += isinf(x) != 0;
            if (!isfinite(x) && first_bad == UINT32_MAX)
                first_bad = (uint32_t)i;
        }
        const void *pa = dtype == DS_F32 ? (void *)a : (void *)half_a,
                   *pr = dtype == DS_F32 ? (void *)ref : (void *)half_ref;
        struct ds_drift d = compare(dtype, pa, pr, n);
        assert_int_equal(d.elements, elements);
        assert_true(d.first == first);
        assert_true(d.max_ulp == max_ulp);
        assert_int_equal(d.nonfinite, nonfinite);
        assert_true(d.max_abs == max_abs);
        assert_close("diff_sq", round, d.diff_sq, diff_sq, diff_sq * 1e-12);
        assert_close("ref_sq", round, d.ref_sq, ref_sq, ref_sq * 1e-12);
        uint32_t got_nan, got_inf, got_first;
        ds_stats_nonfinite(dtype, pa, n, &got_nan, &got_inf, &got_first);
        assert_int_equal(got_nan, nan);
        assert_int_equal(got_inf, inf);
        assert_true(got_first == first_bad);
    }
}

/* Rows need not be aligned: they come from dumps. */
static void test_unaligned_rows(void **state)
{
    (void)state;
    char raw[4 * 100 + 1], other[4 * 100 + 3];
    memset(raw, 0x11, sizeof raw);
    memset(other, 0x11, sizeof other);
    other[3 + 4 * 77] ^= 1;
    struct ds_drift d = compare(DS_F32, raw + 1, other + 3, 100);
    assert_int_equal(d.elements, 1);
    assert_int_equal(d.first, 77);
    assert_int_equal(d.max_ulp, 1);
    uint32_t nan, inf, first;
    ds_stats_nonfinite(DS_F16, raw + 1, 200, &nan, &inf, &first);
    assert_int_equal(nan + inf, 0);
    assert_true(first == UINT32_MAX);
    ds_stats_nonfinite(DS_I32, raw + 1, 100, &nan, &inf, &first);
    assert_true(first == UINT32_MAX);
}

/* Every bit of the sums is the same with every instruction set, whatever the values. */
static void test_instruction_sets_agree(void **state)
{
    (void)state;
    enum { N = 4096, LONE = 8 };
    static uint32_t a[N], ref[N];
    if (ds_stats_add() == ds_stats_add_base) {
        skip(); /* nothing to compare with on this CPU */
        return;
    }
    static const uint32_t special[] = {0,          0x80000000, 0x7f800000, 0xff800000,
                                       0x7fc00000, 0xffc00001, 0x7fa00000, 0x00000001,
                                       0x807fffff, 0x7f7fffff, 0xff7fffff, 0x3f800000};
    enum { SPECIAL = sizeof special / sizeof special[0] };
    uint64_t random = 7;
    for (size_t i = 0; i < N; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        a[i] = (uint32_t)(random >> 32);
        ref[i] = i % 3 ? a[i] ^ (uint32_t)(random >> 60) : (uint32_t)(random >> 13);
        if (i % 5 == 0)
            a[i] = special[(random >> 20) % SPECIAL];
        if (i % 7 == 0)
            ref[i] = special[(random >> 27) % SPECIAL];
    }
    for (size_t n = LONE; n <= N; n *= 2) {
        struct ds_stats_sums plain, fast;
        memset(&plain, 0, sizeof plain);
        memset(&fast, 0, sizeof fast);
        for (int keys = 0; keys < 2; keys++) {
            const int32_t *ka = keys ? (const int32_t *)ref : NULL;
            const int32_t *kr = keys ? (const int32_t *)a : NULL;
            ds_stats_add_base(&plain, a + N - n, ref + N - n, ka, kr, n);
            ds_stats_add()(&fast, a + N - n, ref + N - n, ka, kr, n);
            assert_memory_equal(&plain, &fast, sizeof plain);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_rows),
        cmocka_unit_test(test_special_pairs),
        cmocka_unit_test(test_flags_need_every_element),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_random_rows_against_the_definition),
        cmocka_unit_test(test_unaligned_rows),
        cmocka_unit_test(test_instruction_sets_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
