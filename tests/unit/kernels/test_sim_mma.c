/* test_sim_mma.c: the model of a tensor core's sums: what is published about them shows, and it is held
 * to a second writing of the same rules in long double; matmul/pinned-tc is that sum over k at every
 * number of rows, for every type, in every order of threads. */
#include "tests/unit/testing.h"

#include "base/dtype.h"
#include "kernels/lab/subject.h"
#include "kernels/registry.h"
#include "kernels/sim/mma.h"

#include <math.h>
#include <string.h>

static uint64_t rng = 5;
static uint32_t draw(void)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 32);
}

static uint16_t half_of(int element, float v)
{
    return element == DS_ELEMENT_F16 ? ds_f16_round(v) : ds_bf16_round(v);
}
static float value_of(int element, uint16_t h)
{
    return element == DS_ELEMENT_F16 ? ds_f16_value(h) : ds_bf16_value(h);
}

/* ---- what is published ------------------------------------------------------------------------------- */

/* c + sum of a * b, of up to six factors each; the others are 0. */
struct published {
    const char *what;
    float c;
    struct {
        int k, times;
        float a, b;
    } term[4];
    float on80, on90; /* on 89, and on 100 and 120, the same */
};
static const struct published published[] = {
    {"cut off, not rounded", 1.0f, {{0, 1, 0x1p-12f, 0x1.8p-12f}}, 1.0f, 1.0f},
    {"cut off toward zero", -1.0f, {{0, 1, 0x1p-12f, -0x1.8p-12f}}, -1.0f, -1.0f},
    {"one bit behind the last adds up on both",
     1.0f,
     {{0, 2, 0x1p-12f, 0x1p-12f}},
     1.0f + 0x1p-23f,
     1.0f + 0x1p-23f},
    {"two bits behind the last on 90 alone",
     1.0f,
     {{0, 4, 0x1p-12f, 0x1p-13f}},
     1.0f,
     1.0f + 0x1p-23f},
    {"three bits on neither", 1.0f, {{0, 8, 0x1p-13f, 0x1p-13f}}, 1.0f, 1.0f},
    {"eight terms at a time on 80, sixteen on 90",
     0.0f,
     {{0, 1, 0x1p15f, 0x1p15f}, {1, 1, -0x1p15f, 0x1p15f}, {8, 1, 1.0f, 1.0f}},
     1.0f,
     0.0f},
    {"what cancels inside a block takes the small ones along",
     0.0f,
     {{0, 1, 0x1p15f, 0x1p15f}, {1, 1, -0x1p15f, 0x1p15f}, {2, 1, 1.0f, 1.0f}},
     0.0f,
     0.0f},
    {"a product is not normalised before it is aligned: 1.5 * 1.5 counts as 2^0",
     0.0f,
     {{0, 1, 1.5f, 1.5f}, {1, 4, 0x1p-12f, 0x1p-12f}},
     2.25f + 0x1p-22f,
     2.25f + 0x1p-22f},
    {"nor on 90, with one bit more",
     0.0f,
     {{0, 1, 1.5f, 1.5f}, {1, 8, 0x1p-12f, 0x1p-13f}},
     2.25f,
     2.25f + 0x1p-22f},
    {"no bit is lost to a carry on the way: 3 is passed",
     1.0f,
     {{0, 2, 1.0f, 1.0f}, {2, 4, 0x1p-12f, 0x1p-12f}, {6, 2, -1.0f, 1.0f}},
     1.0f + 0x1p-22f,
     1.0f + 0x1p-22f},
    {"subnormal sums", 0x1p-149f, {{0, 1, 0.0f, 1.0f}}, 0x1p-149f, 0x1p-149f},
    {"a sum of zeros is +0", -0.0f, {{0, 1, -0.0f, 1.0f}}, 0.0f, 0.0f},
};

static void hold(const struct published *p, int architecture, int element, const uint16_t *a,
                 const uint16_t *b, float want)
{
    const float got = ds_sim_mma_sum(ds_sim_mma_of(architecture), element, a, b, 16, p->c);
    if (ds_f32_bits(got) == ds_f32_bits(want))
        return;
    print_error("%s: %a, want %a (architecture %d)\n", p->what, (double)got, (double)want,
                architecture);
    fail();
}

static void test_published(void **state)
{
    static const int of_80[] = {80, 89}, of_90[] = {90, 100, 120};
    static const int elements[] = {DS_ELEMENT_F16, DS_ELEMENT_BF16};
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++)
        for (int e = 0; e < 4; e++) {
            const struct published *p = &published[i];
            uint16_t a[16] = {0}, b[16] = {0};
            for (int t = 0; t < 4; t++)
                for (int n = 0; n < p->term[t].times; n++) {
                    a[p->term[t].k + n] = half_of(elements[e / 2], p->term[t].a);
                    b[p->term[t].k + n] = half_of(elements[e / 2], p->term[t].b);
                }
            for (size_t m = 0; m < sizeof of_80 / sizeof of_80[0] && e % 2 == 0; m++)
                hold(p, of_80[m], elements[e / 2], a, b, p->on80);
            for (size_t m = 0; m < sizeof of_90 / sizeof of_90[0] && e % 2 == 1; m++)
                hold(p, of_90[m], elements[e / 2], a, b, p->on90);
        }
}

static void test_not_finite(void **state)
{
    static const struct {
        float c, a0, b0, a1, b1;
        uint32_t want;
    } cases[] = {
        {0, INFINITY, 0, 0, 0, 0x7fffffff},  {0, INFINITY, 1, INFINITY, -1, 0x7fffffff},
        {0, NAN, 0, 1, 1, 0x7fffffff},       {NAN, 0, 0, 0, 0, 0x7fffffff},
        {-INFINITY, 1, 1, 1, 1, 0xff800000}, {INFINITY, INFINITY, -1, 0, 0, 0x7fffffff},
        {0, INFINITY, 2, 5, 5, 0x7f800000},  {0x1.fffffep127f, 0x1p127f, 1, 0, 0, 0x7f800000},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint16_t a[16] = {ds_bf16_round(cases[i].a0), ds_bf16_round(cases[i].a1)};
        const uint16_t b[16] = {ds_bf16_round(cases[i].b0), ds_bf16_round(cases[i].b1)};
        assert_int_equal(
            ds_f32_bits(ds_sim_mma_sum(ds_sim_mma_of(90), DS_ELEMENT_BF16, a, b, 16, cases[i].c)),
            cases[i].want);
    }
    assert_null(ds_sim_mma_of(70));
    assert_null(ds_sim_mma_of(103));
    assert_int_equal(ds_sim_mma_choose(70), -1);
    assert_int_equal(ds_sim_mma_chosen()->architecture, 90);
}

/* ---- the same rules in long double ------------------------------------------------------------------- */

/* floor(log2 |v|), not below the smallest normal number's. */
static int exponent_of(float v, int least)
{
    int e;
    frexpf(v, &e);
    return e - 1 < least ? least : e - 1;
}

static float oracle(int block, int extra, int element, const uint16_t *a, const uint16_t *b, int n,
                    float c)
{
    const int least = element == DS_ELEMENT_F16 ? -14 : -126;
    for (int at = 0; at < n; at += block) {
        int top = INT32_MIN;
        long double sum = 0;
        for (int i = at; i < at + block && i < n; i++) {
            const float x = value_of(element, a[i]), y = value_of(element, b[i]);
            const int e = exponent_of(x, least) + exponent_of(y, least);
            if (x != 0 && y != 0 && e > top)
                top = e;
        }
        if (c != 0 && exponent_of(c, -126) > top)
            top = exponent_of(c, -126);
        if (top == INT32_MIN)
            return 0.0f;
        for (int i = at; i < at + block && i < n; i++)
            sum += truncl(ldexpl((long double)value_of(element, a[i]) * value_of(element, b[i]),
                                 23 + extra - top));
        sum += truncl(ldexpl(c, 23 + extra - top));
        sum = ldexpl(sum, top - 23 - extra);
        int e;
        frexpl(sum, &e);
        const int last = e - 24 < -149 ? -149 : e - 24;
        c = (float)ldexpl(truncl(ldexpl(sum, -last)), last);
    }
    return c == 0 ? 0.0f : c;
}

static float any_value(void)
{
    const float v = (float)(int32_t)draw() * 0x1p-31f;
    return draw() % 7 == 0 ? 0.0f : ldexpf(v, (int)(draw() % 12) - (int)(draw() % 12));
}

static void test_second_writing(void **state)
{
    (void)state;
    for (int i = 0; i < 40000; i++) {
        const int element = i % 2 ? DS_ELEMENT_F16 : DS_ELEMENT_BF16;
        const struct ds_sim_mma_model *m = ds_sim_mma_of(i % 4 < 2 ? 80 : 90);
        const int tiny = i % 5 == 0, n = i % 3 ? 16 : 32;
        uint16_t a[32], b[32];
        const float c = i % 6 ? any_value() : ldexpf(any_value(), tiny ? -140 : 20);
        for (int k = 0; k < n; k++) {
            a[k] = half_of(element, ldexpf(any_value(), tiny ? -20 : 0));
            b[k] = half_of(element, any_value());
        }
        const float got = ds_sim_mma_sum(m, element, a, b, n, c),
                    want = oracle(m->block, m->extra, element, a, b, n, c);
        if (ds_f32_bits(got) != ds_f32_bits(want)) {
            print_error("sum %d: %a, want %a\n", i, (double)got, (double)want);
            fail();
        }
    }
}

/* ---- the kernel -------------------------------------------------------------------------------------- */

static uint16_t input(int format, int stored, const float *p, int64_t i)
{
    const uint16_t *h = (const uint16_t *)(const void *)p;
    return half_of(format, stored == DS_ELEMENT_F32 ? p[i] : value_of(stored, h[i]));
}

static uint32_t expected(const struct ds_matmul_args *a, int format, int64_t r, int64_t j)
{
    float y = 0;
    for (int64_t k = 0; k < a->k; k += 16) {
        uint16_t x[16] = {0}, w[16] = {0};
        for (int64_t t = 0; t < 16 && k + t < a->k; t++) {
            x[t] = input(format, a->stored, a->x, r * a->ldx + k + t);
            w[t] = input(format, DS_ELEMENT_F32, a->w.data, j * a->k + k + t);
        }
        y = ds_sim_mma_sum(ds_sim_mma_chosen(), format, x, w, 16, y);
    }
    y = a->bias ? y + a->bias[j] : y;
    return a->y_stored == DS_ELEMENT_F32 ? (isnan(y) ? 0x7fc00000u : ds_f32_bits(y))
                                         : half_of(a->y_stored, y);
}

static void check_call(struct ds_subject *s, int rows, int stored)
{
    const int content = rows % DS_CONTENT_COUNT;
    const struct ds_segment part = {.first = 3, .length = rows, .content = content};
    const struct ds_call call = {.segment = &part,
                                 .n_segments = 1,
                                 .threads = 1,
                                 .place = rows % 4,
                                 .gap = rows % 3,
                                 .bias = rows % 2,
                                 .seed = (uint64_t)rows * 31,
                                 .stored = stored,
                                 .wide = rows % 5 == 0};
    struct ds_output out = {0};
    struct ds_error err;
    assert_ok(ds_subject_run(s, &call, &out, &err), err);
    assert_int_equal(out.fault.kind, DS_FAULT_NONE);
    const struct ds_matmul_args *a = ds_subject_args(s);
    const int format = stored == DS_ELEMENT_F16 ? DS_ELEMENT_F16 : DS_ELEMENT_BF16;
    for (int64_t i = 0; i < out.rows * out.width; i++)
        if (out.bits[i] != expected(a, format, i / out.width, i % out.width)) {
            print_error("%d rows of %s, type %d: row %d, column %d: %08x, want %08x\n", rows,
                        ds_content_name(content), stored, (int)(i / out.width),
                        (int)(i % out.width), out.bits[i],
                        expected(a, format, i / out.width, i % out.width));
            fail();
        }
    ds_output_free(&out);
}

static void test_kernel(void **state)
{
    static const char *const shapes[] = {"n=11,k=70", "n=66,k=5"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct ds_shape shape;
        struct ds_error err;
        assert_ok(ds_shape_parse(DS_OP_MATMUL, shapes[i % 2], &shape, &err), err);
        struct ds_subject *s = ds_subject_new(
            ds_kernel_find_on(DS_DEVICE_SIM, DS_OP_MATMUL, "pinned-tc"), &shape, 5, &err);
        assert_non_null(s);
        assert_int_equal(ds_sim_mma_choose(i / 2 ? 80 : 90), 0);
        for (int rows = 1; rows <= 64; rows += rows < 20 ? 1 : 11)
            check_call(s, rows, rows % 3);
        ds_subject_free(s);
    }
    assert_int_equal(ds_sim_mma_choose(90), 0);
}

/* Tiles of 128 by 128, rows that can be read eight elements at a time, and some that cannot. */
static void test_large_tiles(void **state)
{
    static const struct {
        const char *shape;
        int rows[4], tile_rows;
    } cases[] = {{"n=20,k=72", {12, 24, 36, 48}, 0},
                 {"n=4099,k=40", {66, 120, 132, 0}, 128},
                 {"n=2050,k=33", {131, 0}, 128}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_shape shape;
        struct ds_error err;
        assert_ok(ds_shape_parse(DS_OP_MATMUL, cases[i].shape, &shape, &err), err);
        struct ds_subject *s = ds_subject_new(
            ds_kernel_find_on(DS_DEVICE_SIM, DS_OP_MATMUL, "pinned-tc"), &shape, 5, &err);
        assert_non_null(s);
        for (int j = 0; j < 4 && cases[i].rows[j]; j++) {
            struct ds_launch_info info;
            const struct ds_segment part = {.length = cases[i].rows[j]};
            const struct ds_call call = {.segment = &part, .n_segments = 1, .threads = 1};
            assert_int_equal(ds_subject_describe(s, &call, &info, &err), 1);
            assert_true(!cases[i].tile_rows || info.tile_rows == cases[i].tile_rows);
            check_call(s, cases[i].rows[j], j % 3);
        }
        ds_subject_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),      cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_second_writing), cmocka_unit_test(test_kernel),
        cmocka_unit_test(test_large_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
