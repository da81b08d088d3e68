/* test_tolerance.c: the rule of tolerance.h, one element or row at a time. */
#include "tests/unit/testing.h"

#include "base/dtype.h"
#include "dumps/tolerance.h"
#include "dumps/tolerance_block.h"

#include <math.h>
#include <string.h>

#define ULP(n)                                                                                     \
    {                                                                                              \
        .ulp = (n)                                                                                 \
    }
#define ATOL(x)                                                                                    \
    {                                                                                              \
        .atol = (x)                                                                                \
    }
#define RTOL(x)                                                                                    \
    {                                                                                              \
        .rtol = (x)                                                                                \
    }
#define NMSE(x)                                                                                    \
    {                                                                                              \
        .nmse = (x)                                                                                \
    }

static float next(float x, int n)
{
    for (; n > 0; n--)
        x = nextafterf(x, INFINITY);
    return x;
}

static void test_elements(void **state)
{
    (void)state;
    const float nan = ds_f32_from_bits(0x7fc00000), other_nan = ds_f32_from_bits(0x7fc00001),
                most = ds_f32_from_bits(0x7f7fffff);
    const struct {
        const char *what;
        struct ds_tolerance t;
        float a, ref;
        int pass;
    } cases[] = {
        {"equal bits, nothing given", {0}, 1, 1, 1},
        {"1 ULP, nothing given", {0}, next(1, 1), 1, 0},
        {"3 ULP of 3", ULP(3), next(1, 3), 1, 1},
        {"4 ULP of 3", ULP(3), next(1, 4), 1, 0},
        {"-0 and +0 are 0 ULP apart", ULP(1), -0.0f, 0.0f, 1},
        {"-0 and +0 without a tolerance", {0}, -0.0f, 0.0f, 0},
        {"across zero", ULP(2), ds_f32_from_bits(0x80000001), ds_f32_from_bits(1), 1},
        {"atol reached", ATOL(0.5), 1.5f, 1, 1},
        {"atol exceeded", ATOL(0.5), next(1.5f, 1), 1, 0},
        {"rtol of the reference", RTOL(0.25), 5, 4, 1},
        {"rtol is not of the other side", RTOL(0.25), 4, 3, 0},
        {"rtol against zero", RTOL(1e6), 1e-30f, 0, 0},
        {"either of two: ULP", {.ulp = 4, .atol = 1e-12}, next(1, 4), 1, 1},
        {"either of two: atol", {.ulp = 1, .atol = 1e-3}, 1e-4f, 0, 1},
        {"neither of two", {.ulp = 1, .atol = 1e-12}, next(1, 4), 1, 0},
        {"NaN against a number", {.ulp = UINT64_MAX, .atol = INFINITY}, nan, 1, 0},
        {"a number against NaN", {.ulp = UINT64_MAX, .rtol = INFINITY}, 1, nan, 0},
        {"two NaNs of other bits", {.ulp = UINT64_MAX, .nmse = 1}, other_nan, nan, 0},
        {"one NaN twice", ULP(1), nan, nan, 1},
        {"infinity is 1 ULP from the largest number", {.ulp = 5, .nmse = 1}, INFINITY, most, 0},
        {"infinities", ATOL(1), INFINITY, INFINITY, 1},
        {"infinities of both signs", {.ulp = UINT64_MAX, .atol = INFINITY}, INFINITY, -INFINITY, 0},
        {"nmse reached", NMSE(0.25), 3, 2, 1},
        {"nmse exceeded", NMSE(0.2), 3, 2, 0},
        {"nmse of zero", NMSE(1), 1e-30f, 0, 0},
        {"a tolerance that is NaN", ATOL((double)NAN), 2, 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int pass = ds_tolerance_row(&cases[i].t, DS_F32, &cases[i].a, &cases[i].ref, 1);
        if (pass != cases[i].pass)
            print_error("%s: %d\n", cases[i].what, pass);
        assert_int_equal(pass, cases[i].pass);
    }
}

/* Many values against many, one at each place of a row: the code for several at once, of every
 * instruction set that is here, gives what one element alone gives. */
static void test_at_once(void **state)
{
    enum { N = 72 };
    (void)state;
    static const uint32_t bits[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff,
                                    0x00800000, 0x3f800000, 0x3f800001, 0x3f800005, 0xbf800000,
                                    0x40490fdb, 0x40490fe0, 0x7f7fffff, 0xff7fffff, 0x7f800000,
                                    0xff800000, 0x7fc00000, 0x7fc00001, 0xffc00000};
    static const struct ds_tolerance given[] = {ULP(1),
                                                ULP(5),
                                                ULP(1 << 22),
                                                ULP((1 << 22) + 1),
                                                ULP(0x800001),
                                                ULP(UINT64_MAX),
                                                ATOL(1e-6),
                                                ATOL(INFINITY),
                                                RTOL(1e-7),
                                                RTOL(2),
                                                ATOL((double)NAN),
                                                {.ulp = 2, .atol = 1e-30, .rtol = 1e-6},
                                                {0}};
    ds_tolerance_passes_fn *const code[] = {ds_tolerance_passes_base, ds_tolerance_passes()};
    const size_t n_bits = sizeof bits / sizeof *bits;
    for (size_t g = 0; g < sizeof given / sizeof *given; g++)
        for (size_t i = 0; i < 2 * n_bits * n_bits; i++) {
            const int plain = i >= n_bits * n_bits; /* all else is finite, and of one sign */
            const struct ds_tolerance *t = &given[g];
            const struct ds_tolerance_limits limits = {
                t->ulp > UINT32_MAX ? UINT32_MAX : (uint32_t)t->ulp, t->atol, t->rtol};
            float a[N], ref[N], x = ds_f32_from_bits(bits[i / n_bits % n_bits]),
                                y = ds_f32_from_bits(bits[i % n_bits]);
            const int want = ds_tolerance_row(t, DS_F32, &x, &y, 1);
            for (int k = 0; k < N; k++)
                a[k] = ref[k] = plain ? (float)(k + 1) : ds_f32_from_bits(bits[(size_t)k % n_bits]);
            const size_t at = i % N;
            a[at] = x;
            ref[at] = y;
            for (size_t c = 0; c < sizeof code / sizeof *code; c++)
                if (code[c](&limits, a, ref, N) != want) {
                    print_error("tolerance %zu, %08x against %08x at %zu: want %d\n", g,
                                bits[i / n_bits % n_bits], bits[i % n_bits], at, want);
                    fail();
                }
            assert_int_equal(ds_tolerance_row(t, DS_F32, a, ref, N), want);
            assert_int_equal(ds_tolerance_row(t, DS_F32, a + 1, ref + 1, N - 1),
                             at == 0 ? 1 : want);
        }
}

static void test_rows(void **state)
{
    (void)state;
    const float ref[4] = {1, 2, 3, 4}, near[4] = {1, next(2, 1), 3, 4.5f},
                with_nan[4] = {1, 2, NAN, 4}, more_nan[4] = {1, 2.5f, NAN, 4};
    const struct ds_tolerance ulp = ULP(1), atol = ATOL(0.5), nmse = NMSE(0.01), tiny = NMSE(1e-9),
                              both = {.ulp = 1, .nmse = 0.01};
    assert_false(ds_tolerance_row(&ulp, DS_F32, near, ref, 4)); /* one element is enough */
    assert_true(ds_tolerance_row(&ulp, DS_F32, near, ref, 3));
    assert_true(ds_tolerance_row(&atol, DS_F32, near, ref, 4));
    assert_true(ds_tolerance_row(&nmse, DS_F32, near, ref, 4)); /* 0.25 of 30 */
    assert_false(ds_tolerance_row(&tiny, DS_F32, near, ref, 4));
    assert_true(ds_tolerance_row(&both, DS_F32, near, ref, 4));
    /* equal NaNs say nothing of the other elements, and new ones are never excused */
    assert_true(ds_tolerance_row(&nmse, DS_F32, with_nan, with_nan, 4));
    assert_false(ds_tolerance_row(&nmse, DS_F32, with_nan, ref, 4));
    assert_false(ds_tolerance_row(&nmse, DS_F32, more_nan, with_nan, 4)); /* 0.25 of 21 */
    assert_true(ds_tolerance_row(&atol, DS_F32, more_nan, with_nan, 4));
    assert_true(ds_tolerance_row(&ulp, DS_F32, ref, ref, 0));
}

static void test_formats(void **state)
{
    (void)state;
    const struct ds_tolerance ulp = ULP(1), all = {.ulp = 1000, .atol = 1000, .nmse = 1000};
    const uint16_t one = 0x3f80, above = 0x3f81, further = 0x3f82;
    assert_true(ds_tolerance_row(&ulp, DS_BF16, &above, &one, 1)); /* in its own format */
    assert_false(ds_tolerance_row(&ulp, DS_BF16, &further, &one, 1));
    const uint16_t half = 0x3c00, half_above = 0x3c01;
    assert_true(ds_tolerance_row(&ulp, DS_F16, &half_above, &half, 1));
    const int32_t token = 5, other = 6;
    assert_false(ds_tolerance_row(&all, DS_I32, &other, &token, 1));
    assert_true(ds_tolerance_row(&all, DS_I32, &token, &token, 1));
    assert_true(ds_tolerance_given(&ulp));
    const struct ds_tolerance none = {0}, nan = ATOL((double)NAN), negative = RTOL(-1);
    assert_false(ds_tolerance_given(&none));
    assert_false(ds_tolerance_given(&nan));
    assert_false(ds_tolerance_given(&negative));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
