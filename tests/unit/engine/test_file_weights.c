/* test_file_weights.c: the pinned matmul on weights in their file's format gives the bits that it
 * gives on what the loader's dequantiser makes of them, whatever the type, shape, number of rows,
 * threads and instruction set, special scales and all. The two read block layouts of their own. */
#include "tests/unit/kernels/harness.h"

#include "engine/gguf.h"
#include "kernels/cpu/file_weights.h"

static const int32_t types[] = {DS_FILE_F32,  DS_FILE_F16,  DS_FILE_BF16,
                                DS_FILE_Q8_0, DS_FILE_Q4_0, DS_FILE_Q4_1};
enum { N_TYPES = sizeof types / sizeof types[0], ROWS = 40 };

/* f16 scales: zeros, subnormals, largest, infinities, NaNs. */
static const uint16_t scales[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x83ff, 0x0400, 0x7bff,
                                  0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7d55, 0x3c01, 0xb555};

enum kind { ORDINARY, SPECIAL, TINY };

/* A scale of about 1/16, a special one (one in four), or the least there is, of either sign. */
static uint16_t scale(enum kind kind)
{
    if (kind == SPECIAL && rng() % 4 == 0)
        return scales[rng() % (sizeof scales / sizeof scales[0])];
    if (kind == TINY)
        return (uint16_t)(1 + rng() % 3 + (rng() & 0x8000u));
    return (uint16_t)((rng() & 0x83ffu) + 0x2c00u);
}

/* Bytes of a tensor as they lie in a file, off by one from any alignment. */
static unsigned char *raw_tensor(const struct ds_quant_type *t, int64_t n, int64_t k,
                                 enum kind kind)
{
    size_t blocks = (size_t)(n * k) / t->block, bytes = blocks * t->bytes;
    unsigned char *raw = malloc(bytes + 1);
    assert_non_null(raw);
    for (size_t i = 0; i < bytes; i++)
        raw[1 + i] = (unsigned char)rng();
    for (size_t b = 0; b < blocks; b++) {
        unsigned char *p = raw + 1 + b * t->bytes;
        uint16_t halves[2] = {scale(kind), scale(kind)};
        float f = kind == SPECIAL && rng() % 16 == 0 ? rng_special() : rng_unit();
        if (kind == TINY)
            f *= 0x1p-140f;
        if (t->ggml == DS_FILE_F32)
            memcpy(p, &f, 4);
        else if (t->ggml == DS_FILE_BF16)
            memcpy(p, (unsigned char *)&f + 2, 2);
        else
            memcpy(p, halves, t->ggml == DS_FILE_Q4_1 ? 4 : 2);
    }
    return raw;
}

static void *prepare(const struct ds_weight_view *w, size_t *bytes)
{
    char why[256] = "";
    void *prepared = NULL;
    if (kernel(DS_OP_MATMUL, "pinned")->prepare(w, &prepared, bytes, why, sizeof why) != 0) {
        print_error("prepare: %s\n", why);
        fail();
    }
    return prepared;
}

struct weights {
    const struct ds_quant_type *t;
    unsigned char *raw;
    float *f32;
    void *packed_file, *packed_f32;
    struct ds_weight_view file, plain;
};

static struct weights weights_new(int32_t type, int64_t n, int64_t k, enum kind kind)
{
    struct weights w = {.t = ds_quant_find((uint32_t)type)};
    size_t file_bytes, plain_bytes;
    assert_non_null(w.t);
    w.raw = raw_tensor(w.t, n, k, kind);
    w.f32 = malloc((size_t)(n * k) * sizeof *w.f32);
    assert_non_null(w.f32);
    w.t->to_f32(w.raw + 1, w.f32, (size_t)(n * k));
    w.file = (struct ds_weight_view){.n = n, .k = k, .file_data = w.raw + 1, .file_type = type};
    w.plain = (struct ds_weight_view){.n = n, .k = k, .data = w.f32};
    w.packed_file = prepare(&w.file, &file_bytes);
    w.packed_f32 = prepare(&w.plain, &plain_bytes);
    size_t padded = (size_t)((n + 15) / 16 * 16);
    size_t k_even = type == DS_FILE_BF16 ? (size_t)(k + 1) / 2 * 2 : (size_t)k;
    assert_int_equal(file_bytes, padded * k_even / w.t->block * w.t->bytes);
    return w;
}

static void weights_free(struct weights *w)
{
    free(w->raw);
    free(w->f32);
    free(w->packed_file);
    free(w->packed_f32);
}

static void run(const struct weights *w, int file, const struct matrix *x, const struct matrix *y,
                const float *bias, int threads)
{
    struct ds_matmul_args a = {.rows = y->rows,
                               .n = w->file.n,
                               .k = w->file.k,
                               .x = x->p,
                               .ldx = x->ld,
                               .w = file ? w->file : w->plain,
                               .prepared = file ? w->packed_file : w->packed_f32,
                               .bias = bias,
                               .y = y->p,
                               .ldy = y->ld};
    launch_named(kernel(DS_OP_MATMUL, "pinned"), &a, threads);
}

/* All row counts, against the f32 weights' result at the largest: a row's bits depend on the row
 * alone, which other tests hold pinned to. */
static void check(int32_t type, int64_t n, int64_t k, enum kind kind)
{
    struct weights w = weights_new(type, n, k, kind);
    struct matrix x = matrix_random(ROWS, k, k + 1, 1, kind == SPECIAL ? 97 : 0);
    struct matrix bias = matrix_random(1, n, n, 0, 0);
    struct matrix want = matrix_new(ROWS, n, n, 0);
    const float *b = kind == TINY || n % 2 ? NULL : bias.p;
    char name[96];
    for (int64_t i = 0; kind == TINY && i < ROWS * x.ld - 1; i++)
        x.p[i] *= 0x1p-120f;
    run(&w, 0, &x, &want, b, 1);
    for (int64_t rows = 1; rows <= ROWS; rows++) {
        struct matrix y = matrix_new(rows, n, n + 5, 3);
        run(&w, 1, &x, &y, b, 1 + (int)(rows % 3));
        snprintf(name, sizeof name, "%s M=%ld N=%ld K=%ld kind=%d", w.t->name, (long)rows, (long)n,
                 (long)k, (int)kind);
        matrix_check(name, &y);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < n; j++)
                assert_bits_equal(name, r * n + j, y.p[r * y.ld + j], want.p[r * n + j]);
        matrix_free(&y);
    }
    matrix_free(&x), matrix_free(&bias), matrix_free(&want);
    weights_free(&w);
}

static void test_bits_of_f32(void **state)
{
    static const struct {
        int64_t n, k;
    } shapes[] = {{16, 32}, {1, 64}, {70, 96}, {33, 288}, {96, 544}};
    use_isa(state);
    rng_state = 11;
    for (int t = 0; t < N_TYPES; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (int kind = ORDINARY; kind <= TINY; kind++)
                check(types[t], shapes[s].n, shapes[s].k, (enum kind)kind);
}

/* Types whose blocks are one number take any k. */
static void test_odd_k(void **state)
{
    static const int64_t ks[] = {1, 2, 3, 255, 257, 513};
    use_isa(state);
    rng_state = 12;
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++)
            check(types[t], 21, ks[i], SPECIAL);
}

/* Many rows: more than stay in a cache at once. */
static void test_tall(void **state)
{
    use_isa(state);
    rng_state = 13;
    for (int t = 0; t < N_TYPES; t++) {
        struct weights w = weights_new(types[t], 40, 320, SPECIAL);
        struct matrix x = matrix_random(500, 320, 320, 0, 0);
        struct matrix got = matrix_new(500, 40, 40, 0), want = matrix_new(500, 40, 40, 0);
        run(&w, 0, &x, &want, NULL, 2);
        run(&w, 1, &x, &got, NULL, 2);
        for (int64_t i = 0; i < 500 * 40; i++)
            assert_bits_equal(w.t->name, i, got.p[i], want.p[i]);
        matrix_free(&x), matrix_free(&got), matrix_free(&want);
        weights_free(&w);
    }
}

/* What a test of bits stands on: the special scales do reach the sums, and signs of zeros differ
 * where a wrong formula (d * q - 8 * d) would make them +0. */
static void test_fixture_is_alive(void **state)
{
    (void)state;
    size_t nan = 0, infinite = 0, negative_zero = 0;
    rng_state = 14;
    struct weights w = weights_new(DS_FILE_Q4_0, 64, 512, SPECIAL);
    for (int64_t i = 0; i < 64 * 512; i++) {
        nan += isnan(w.f32[i]) != 0;
        infinite += isinf(w.f32[i]) != 0;
        negative_zero += ds_f32_bits(w.f32[i]) == 0x80000000u;
    }
    assert_true(nan > 100 && infinite > 100 && negative_zero > 100);
    weights_free(&w);
}

static void test_refusals(void **state)
{
    (void)state;
    unsigned char raw[64] = {0};
    static const struct {
        int32_t type;
        int64_t n, k;
        const char *why;
    } cases[] = {{12, 1, 256, "weights of file type 12 are not read"},
                 {-1, 1, 32, "weights of file type -1 are not read"},
                 {DS_FILE_Q4_1, 1, 33, "q4_1 weights of 1 x 33"},
                 {DS_FILE_Q8_0, -1, 32, "q8_0 weights of -1 x 32"},
                 {DS_FILE_Q8_0, INT64_MAX / 2, INT64_MAX / 64 * 32, "memory"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char why[256] = "";
        void *prepared = NULL;
        size_t bytes = 0;
        struct ds_weight_view w = {
            .n = cases[i].n, .k = cases[i].k, .file_data = raw, .file_type = cases[i].type};
        assert_int_equal(
            kernel(DS_OP_MATMUL, "pinned")->prepare(&w, &prepared, &bytes, why, sizeof why), -1);
        if (!strstr(why, cases[i].why)) {
            print_error("got \"%s\", want \"%s\"\n", why, cases[i].why);
            fail();
        }
        assert_null(prepared);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PER_ISA(test_bits_of_f32),
        PER_ISA(test_odd_k),
        PER_ISA(test_tall),
        cmocka_unit_test(test_fixture_is_alive),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
