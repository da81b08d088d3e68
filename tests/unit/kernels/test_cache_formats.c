/* test_cache_formats.c: what each cache format holds of a row: every code of fp8 and the borders
 * between them by a second definition, binary16 by the compiler's own type, blocks by what GGUF's
 * quantisers made. */
#include "tests/unit/kernels/cache_fixture.h"
#include "tests/unit/kernels/harness.h"

/* One request whose n rows go to slots 2.. of pages 1, 0, 2, ... of four slots. */
static int store(const char *name, const float *x, int64_t rows, int64_t width, int64_t head,
                 int dtype, float *out, char *why, size_t why_size)
{
    enum { PAGE = 4, PAGES = 64 };
    int32_t pages[PAGES];
    for (int i = 0; i < PAGES; i++)
        pages[i] = i ^ 1;
    struct matrix cache = matrix_new(PAGE * PAGES, width, width, 1);
    const struct ds_sequence seq = {0, 0, (int32_t)rows, (int32_t)rows + 2, 1, pages};
    const struct ds_cache_args a = {rows,  width, x, width, cache.p, PAGE,
                                    PAGES, &seq,  1, NULL,  head,    0};
    const struct ds_exec exec = {.threads = 1, .dtype = dtype};
    assert_true(rows + 2 <= PAGE * PAGES);
    int rc = kernel(DS_OP_CACHE, name)->launch(&a, &exec, why, why_size);
    for (int64_t r = 0; rc == 0 && r < rows; r++)
        memcpy(out + r * width, cache.p + (pages[(r + 2) / PAGE] * PAGE + (r + 2) % PAGE) * width,
               (size_t)width * sizeof *out);
    for (int64_t r = 0; r < 2; r++)
        assert_int_equal(ds_f32_bits(cache.p[(pages[0] * PAGE + r) * width]), POISON);
    matrix_free(&cache);
    return rc;
}

static float stored(const char *name, float x)
{
    char why[100] = "";
    float y = 0;
    assert_int_equal(store(name, &x, 1, 1, 0, DS_ELEMENT_F32, &y, why, sizeof why), 0);
    return y;
}

/* OCP E4M3 as its specification words it: sign, 4 bits of exponent with bias 7, 3 of fraction; 0x7f
 * and 0xff are NaN, there is no infinity. */
static double e4m3(int code)
{
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const double size = exponent ? ldexp(1 + fraction / 8.0, exponent - 7) : ldexp(fraction, -9);
    return code & 0x80 ? -size : size;
}

static void test_fp8_codes(void **state)
{
    (void)state;
    assert_close("largest", 0, e4m3(0x7e), 448, 0);
    for (int code = 0; code < 256; code++) {
        if ((code & 0x7f) == 0x7f)
            continue;
        const float v = (float)e4m3(code);
        assert_bits_equal("code", code, stored("fp8-e4m3", v), v);
        if ((code & 0x7f) == 0x7e)
            continue;
        /* Halfway to the next larger size: to the even code; beside it: to the nearer. */
        const float next = (float)e4m3(code + 1), half = (v + next) / 2;
        assert_bits_equal("tie", code, stored("fp8-e4m3", half), code % 2 ? next : v);
        assert_bits_equal("below", code, stored("fp8-e4m3", nextafterf(half, v)), v);
        assert_bits_equal("above", code, stored("fp8-e4m3", nextafterf(half, next)), next);
    }
}

static void test_fp8_ends(void **state)
{
    static const float nan7 = NAN;
    (void)state;
    const float most[] = {448, 449, 464, 480, 1e30f, INFINITY};
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
        assert_bits_equal("most", i, stored("fp8-e4m3", most[i]), 448);
        assert_bits_equal("least", i, stored("fp8-e4m3", -most[i]), -448);
    }
    assert_int_equal(ds_f32_bits(stored("fp8-e4m3", nan7)), 0x7fc00000u);
    assert_int_equal(ds_f32_bits(stored("fp8-e4m3", -nan7)), 0x7fc00000u);
    assert_bits_equal("zero", 0, stored("fp8-e4m3", -0.0f), -0.0f);
    assert_bits_equal("tiny", 0, stored("fp8-e4m3", 0x1p-149f), 0.0f);
    assert_bits_equal("tiny", 1, stored("fp8-e4m3", -0x1p-10f), -0.0f);
    assert_bits_equal("tiny", 2, stored("fp8-e4m3", 0x1.000002p-10f), 0x1p-9f);
}

/* bf16: the nearer of the two values whose lower half is zero, the even one in the middle. */
static float bf16_nearest(float x)
{
    const uint32_t u = ds_f32_bits(x), low = u & 0xffff0000u;
    const double a = (double)ds_f32_from_bits(low), b = (double)ds_f32_from_bits(low + 0x10000u);
    const double below = fabs((double)x - a), above = fabs(b - (double)x);
    const int up = above < below || (!(below < above) && (low >> 16 & 1));
    return ds_f32_from_bits(up ? low + 0x10000u : low);
}

static void test_16_bits(void **state)
{
    (void)state;
    uint32_t u = 1;
    for (int i = 0; i < 20000; i++) {
        u = u * 1664525u + 1013904223u;
        const float x = ds_f32_from_bits(u >> 3 ? u : 0);
        if (!isfinite(x) || fabsf(x) > 1e38f)
            continue;
        assert_bits_equal("bf16", i, stored("bf16", x), bf16_nearest(x));
#ifdef __FLT16_MAX__
        assert_bits_equal("f16", i, stored("f16", x), (float)(_Float16)x);
#endif
    }
    assert_bits_equal("f16", 0, stored("f16", 65519), 65504);
    assert_bits_equal("f16", 1, stored("f16", -65520), -INFINITY);
    assert_bits_equal("f16", 2, stored("f16", 2049), 2048);
    assert_int_equal(ds_f32_bits(stored("f16", NAN)), 0x7fc00000u);
    assert_int_equal(ds_f32_bits(stored("bf16", -NAN)), 0x7fc00000u);
}

static void test_blocks(void **state)
{
    static const struct {
        const char *name;
        const uint32_t *want;
    } formats[] = {{"q8", fixture_q8}, {"q4", fixture_q4}};
    enum { N = FIXTURE_ROWS * FIXTURE_WIDTH };
    float x[N], y[N];
    char why[100] = "";
    (void)state;
    memcpy(x, fixture_x, sizeof x);
    for (int f = 0; f < 2; f++)
        for (int head = 32; head <= 64; head += 32) {
            assert_int_equal(store(formats[f].name, x, FIXTURE_ROWS, FIXTURE_WIDTH, head,
                                   DS_ELEMENT_F32, y, why, sizeof why),
                             0);
            for (int i = 0; i < N; i++)
                assert_bits_equal(formats[f].name, i, y[i], ds_f32_from_bits(formats[f].want[i]));
        }
}

/* A NaN or an infinity spoils its own block and no other; a scale too large for binary16 shows. */
static void test_block_ends(void **state)
{
    static const char *const names[] = {"q8", "q4"};
    char why[100] = "";
    (void)state;
    for (int f = 0; f < 2; f++) {
        float x[96], y[96];
        for (int i = 0; i < 96; i++)
            x[i] = (float)(i % 7) - 3;
        x[40] = f ? INFINITY : NAN;
        x[64] = 3e38f;
        assert_int_equal(store(names[f], x, 1, 96, 96, DS_ELEMENT_F32, y, why, sizeof why), 0);
        for (int i = 0; i < 96; i++)
            assert_int_equal(isnan(y[i]) != 0, i >= 32 && (i < 64 || i != 64));
        assert_true(isinf(y[64]));
        for (int i = 0; i < 32; i++) /* too small for any scale: no division by zero shows */
            x[i] = i % 2 ? 0x1p-149f : -0x1p-149f;
        assert_int_equal(store(names[f], x, 1, 32, 32, DS_ELEMENT_F32, y, why, sizeof why), 0);
        for (int i = 0; i < 32; i++)
            assert_true(y[i] == 0);
    }
}

/* With 16-bit activations the cache holds values of that type. */
static void test_activation_type(void **state)
{
    float x[FIXTURE_WIDTH], y[FIXTURE_WIDTH];
    char why[100] = "";
    (void)state;
    memcpy(x, fixture_x, sizeof x);
    assert_int_equal(store("q8", x, 1, FIXTURE_WIDTH, 64, DS_ELEMENT_BF16, y, why, sizeof why), 0);
    for (int i = 0; i < FIXTURE_WIDTH; i++)
        assert_bits_equal("q8 bf16", i, y[i], bf16_nearest(ds_f32_from_bits(fixture_q8[i])));
    assert_int_equal(store("bf16", x, 1, FIXTURE_WIDTH, 64, DS_ELEMENT_F16, y, why, sizeof why), 0);
    for (int i = 0; i < FIXTURE_WIDTH; i++)
        assert_bits_equal("bf16 f16", i, y[i], ds_f16_value(ds_f16_round(bf16_nearest(x[i]))));
}

/* The last block of a head is what is left of it: as a whole block whose rest is zeros, and no other
 * head is in it. */
static void test_short_blocks(void **state)
{
    enum { HEADS = 3, MOST = 80 };
    static const int heads[] = {16, 80, 33, 5, 1};
    static const char *const names[] = {"q8", "q4"};
    char why[200] = "";
    (void)state;
    for (int f = 0; f < 2; f++)
        for (size_t k = 0; k < sizeof heads / sizeof heads[0]; k++) {
            const int n = heads[k], padded = (n + 31) / 32 * 32;
            float x[HEADS * MOST], y[HEADS * MOST], wide[96], want[96];
            for (int i = 0; i < HEADS * n; i++) /* heads of unlike sizes */
                x[i] = (float)((i * 37 % 101) - 50) * (i / n == 0 ? 0.01f : i / n == 1 ? 1 : 9);
            x[n] = NAN;
            assert_int_equal(
                store(names[f], x, 1, HEADS * n, n, DS_ELEMENT_F32, y, why, sizeof why), 0);
            for (int h = 0; h < HEADS; h++) {
                memset(wide, 0, sizeof wide);
                memcpy(wide, x + h * n, (size_t)n * sizeof *x);
                assert_int_equal(
                    store(names[f], wide, 1, padded, padded, DS_ELEMENT_F32, want, why, sizeof why),
                    0);
                for (int i = 0; i < n; i++)
                    assert_bits_equal(names[f], h * n + i, y[h * n + i], want[i]);
            }
        }
}

static void test_refusals(void **state)
{
    static const char *const names[] = {"q8", "q4", "f16", "fp8-e4m3"};
    float x[80] = {0}, y[80];
    char why[200];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        why[0] = '\0';
        assert_int_equal(store(names[i], x, 1, 80, 32, DS_ELEMENT_F32, y, why, sizeof why), -1);
        assert_non_null(strstr(why, "rows of 80 channels are no heads of 32"));
        assert_int_equal(store(names[i], x, 1, 80, 0, DS_ELEMENT_F32, y, why, sizeof why), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp8_codes),    cmocka_unit_test(test_fp8_ends),
        cmocka_unit_test(test_16_bits),      cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_block_ends),   cmocka_unit_test(test_activation_type),
        cmocka_unit_test(test_short_blocks), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("cache formats", tests, NULL, NULL);
}
