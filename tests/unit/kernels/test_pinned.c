/* test_pinned.c: the pinned kernels (attention has a file of its own) equal the scalar
 * transcription of PINNED.md bit for bit, on every instruction set, shape, thread count, alignment
 * and number of rows, with every special value. */
#include "tests/unit/kernels/harness.h"
#include "tests/unit/kernels/oracle.h"

struct matmul_case {
    int64_t rows, n, k;
    int skew, bias;
    unsigned special;
};

static struct ds_matmul_args matmul_args(const struct matrix *x, const struct matrix *w,
                                         const struct matrix *y, const float *bias,
                                         const void *prepared)
{
    struct ds_matmul_args a = {.rows = x->rows,
                               .n = w->rows,
                               .k = w->cols,
                               .x = x->p,
                               .ldx = x->ld,
                               .prepared = prepared,
                               .bias = bias,
                               .y = y->p,
                               .ldy = y->ld};
    a.w = (struct ds_weight_view){.data = w->p, .n = w->rows, .k = w->cols};
    return a;
}

static void *prepare(const struct matrix *w)
{
    char why[256];
    void *prepared = NULL;
    size_t bytes = 0;
    struct ds_weight_view view = {.data = w->p, .n = w->rows, .k = w->cols};
    assert_int_equal(
        kernel(DS_OP_MATMUL, "pinned")->prepare(&view, &prepared, &bytes, why, sizeof why), 0);
    assert_true(bytes == (size_t)((w->rows + 15) / 16 * 16 * w->cols) * 4);
    return prepared;
}

static void check_matmul(const struct matmul_case *c)
{
    struct matrix x = matrix_random(c->rows, c->k, c->k + c->skew, c->skew, c->special);
    struct matrix w = matrix_random(c->n, c->k, c->k, c->skew, c->special * 4);
    struct matrix b = matrix_random(1, c->n, c->n, c->skew, c->special);
    struct matrix want = matrix_new(c->rows, c->n, c->n, 0);
    void *prepared = prepare(&w);
    char name[96];
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t j = 0; j < c->n; j++)
            want.p[r * want.ld + j] =
                o_matmul(x.p + r * x.ld, w.p + j * w.ld, c->k, c->bias ? b.p + j : NULL);
    for (int threads = 1; threads <= 4; threads++) {
        struct matrix y = matrix_new(c->rows, c->n, c->n + 3 * c->skew, 2 * c->skew);
        struct ds_matmul_args a = matmul_args(&x, &w, &y, c->bias ? b.p : NULL, prepared);
        launch_named(kernel(DS_OP_MATMUL, "pinned"), &a, threads);
        snprintf(name, sizeof name, "matmul M=%ld N=%ld K=%ld threads=%d", (long)c->rows,
                 (long)c->n, (long)c->k, threads);
        matrix_check(name, &y);
        for (int64_t r = 0; r < c->rows; r++)
            for (int64_t j = 0; j < c->n; j++)
                assert_bits_equal(name, r * c->n + j, y.p[r * y.ld + j], want.p[r * want.ld + j]);
        matrix_free(&y);
    }
    free(prepared);
    matrix_free(&x), matrix_free(&w), matrix_free(&b), matrix_free(&want);
}

static void test_matmul_shapes(void **state)
{
    static const struct matmul_case cases[] = {
        {1, 1, 1, 0, 0, 0},       {1, 16, 16, 0, 0, 0},     {1, 17, 255, 1, 1, 0},
        {1, 128, 256, 0, 1, 0},   {1, 129, 257, 1, 0, 0},   {1, 200, 1536, 3, 1, 0},
        {2, 33, 511, 0, 1, 0},    {2, 65, 512, 2, 0, 0},    {3, 66, 513, 1, 1, 0},
        {4, 31, 300, 1, 0, 0},    {5, 48, 64, 0, 1, 0},     {6, 47, 576, 1, 0, 0},
        {7, 15, 577, 0, 1, 0},    {8, 32, 100, 1, 0, 0},    {11, 40, 257, 1, 1, 0},
        {12, 80, 90, 0, 0, 0},    {13, 1, 700, 1, 1, 0},    {23, 20, 31, 1, 0, 0},
        {24, 33, 260, 3, 1, 0},   {25, 3, 2049, 0, 0, 0},   {64, 5, 800, 1, 1, 0},
        {131, 35, 400, 1, 0, 0},  {250, 17, 257, 1, 1, 0},  {481, 2, 129, 0, 0, 0},
        {3, 40, 600, 1, 1, 40},   {17, 33, 520, 1, 1, 200}, {130, 16, 380, 0, 1, 900},
        {1, 200, 300, 1, 1, 300},
    };
    use_isa(state);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_matmul(&cases[i]);
}

/* [ceil(n/16)][k][16], columns past n zero. */
static void test_packed_layout(void **state)
{
    enum { N = 37, K = 35 };
    (void)state;
    struct matrix w = matrix_random(N, K, K, 1, 9);
    float *p = prepare(&w);
    for (int64_t j = 0; j < 48; j++)
        for (int64_t k = 0; k < K; k++)
            assert_bits_equal("packed", j * K + k, p[(j / 16 * K + k) * 16 + j % 16],
                              j < N ? w.p[j * K + k] : 0.0f);
    free(p);
    matrix_free(&w);
}

/* Row r of a call of M rows equals the same row alone, for every M from 1 to 64 and at every place.
 */
static void test_matmul_rows_stand_alone(void **state)
{
    enum { N = 37, K = 300 };
    use_isa(state);
    struct matrix x = matrix_random(64, K, K, 1, 0), w = matrix_random(N, K, K, 0, 0);
    struct matrix alone = matrix_new(64, N, N, 0);
    void *prepared = prepare(&w);
    for (int64_t r = 0; r < 64; r++) {
        struct matrix row = x, out = alone;
        row.p += r * x.ld, row.rows = 1;
        out.p += r * alone.ld, out.rows = 1;
        struct ds_matmul_args a = matmul_args(&row, &w, &out, NULL, prepared);
        launch_named(kernel(DS_OP_MATMUL, "pinned"), &a, 1);
    }
    for (int64_t m = 1; m <= 64; m++) {
        struct matrix part = x, y = matrix_new(m, N, N, 1);
        int64_t from = 64 - m;
        part.p += from * x.ld, part.rows = m;
        struct ds_matmul_args a = matmul_args(&part, &w, &y, NULL, prepared);
        launch_named(kernel(DS_OP_MATMUL, "pinned"), &a, (int)(m % 3) + 1);
        for (int64_t i = 0; i < m * N; i++)
            assert_bits_equal("matmul row in a call", i, y.p[i], alone.p[from * N + i]);
        matrix_free(&y);
    }
    free(prepared);
    matrix_free(&x), matrix_free(&w), matrix_free(&alone);
}

static void test_rmsnorm(void **state)
{
    static const int64_t widths[] = {1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 576, 577, 1000, 4096};
    use_isa(state);
    for (size_t i = 0; i < 2 * sizeof widths / sizeof widths[0]; i++) {
        int64_t n = widths[i / 2];
        int skew = (int)(i % 3);
        struct matrix x = matrix_random(9, n, n + skew, skew, i % 2 ? 60 : 0),
                      w = matrix_random(1, n, n, skew, i % 2 ? 500 : 0);
        float *want = malloc((size_t)n * 4);
        for (int threads = 1; threads <= 4; threads++) {
            struct matrix y = matrix_new(9, n, n + 2, skew);
            struct ds_rmsnorm_args a = {9, n, x.p, x.ld, w.p, 1e-5f, y.p, y.ld, 0};
            launch_named(kernel(DS_OP_RMSNORM, "pinned"), &a, threads);
            matrix_check("rmsnorm", &y);
            for (int64_t r = 0; r < 9; r++) {
                o_rmsnorm(x.p + r * x.ld, w.p, 1e-5f, n, want);
                for (int64_t j = 0; j < n; j++)
                    assert_bits_equal("rmsnorm", r * n + j, y.p[r * y.ld + j], want[j]);
            }
            matrix_free(&y);
        }
        free(want);
        matrix_free(&x), matrix_free(&w);
    }
}

static void test_silu_mul_and_add(void **state)
{
    static const int64_t widths[] = {1, 5, 8, 15, 16, 17, 33, 576, 1537};
    use_isa(state);
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        int64_t n = widths[i], ld = n + (int64_t)(i % 2);
        struct matrix g = matrix_random(40, n, ld, (int)(i % 2), 20),
                      u = matrix_random(40, n, ld, 1, 30);
        for (int64_t r = 0; r < 40; r++) /* across the whole range of exp */
            for (int64_t j = 0; j < n; j += 3)
                g.p[r * ld + j] = rng_unit() * 110.0f;
        for (int threads = 1; threads <= 4; threads++) {
            struct matrix y = matrix_new(40, n, n + 1, 1), z = matrix_new(40, n, n + 1, 0);
            struct ds_silu_mul_args s = {40, n, g.p, u.p, ld, y.p, y.ld, 0};
            struct ds_add_args a = {40, n, g.p, u.p, ld, ld, z.p, z.ld, 0};
            launch_named(kernel(DS_OP_SILU_MUL, "pinned"), &s, threads);
            launch_named(kernel(DS_OP_ADD, "pinned"), &a, threads);
            matrix_check("silu_mul", &y), matrix_check("add", &z);
            for (int64_t r = 0; r < 40; r++) {
                for (int64_t j = 0; j < n; j++) {
                    float gate = g.p[r * ld + j], up = u.p[r * ld + j];
                    assert_bits_equal("silu_mul", r * n + j, y.p[r * y.ld + j],
                                      o_silu_mul(gate, up));
                    assert_bits_equal("add", r * n + j, z.p[r * z.ld + j], o_store(gate + up));
                }
            }
            matrix_free(&y), matrix_free(&z);
        }
        matrix_free(&g), matrix_free(&u);
    }
}

static void check_rope(int64_t heads, int64_t dim, int64_t rope_dim, int neox)
{
    enum { ROWS = 11, TABLE = 50 };
    int32_t positions[ROWS];
    const int64_t half = rope_dim / 2, width = heads * dim;
    struct matrix table = matrix_random(TABLE, rope_dim, rope_dim, 1, 0),
                  x = matrix_random(ROWS, width, width + 1, 1, 30);
    for (int r = 0; r < ROWS; r++)
        positions[r] = (int32_t)(rng() % TABLE);
    for (int threads = 1; threads <= 3; threads++) {
        struct matrix y = matrix_new(ROWS, width, width + 2, 0);
        struct ds_rope_args a = {ROWS,  heads, dim,  rope_dim, neox, positions, table.p,
                                 TABLE, x.p,   x.ld, y.p,      y.ld, 0};
        launch_named(kernel(DS_OP_ROPE, "pinned"), &a, threads);
        matrix_check("rope", &y);
        for (int64_t r = 0; r < ROWS; r++) {
            for (int64_t i = 0; i < width; i++) {
                const float *in = x.p + r * x.ld + i / dim * dim,
                            *cs = table.p + positions[r] * rope_dim;
                int64_t d = i % dim, pair = neox ? d % (half ? half : 1) : d / 2,
                        second = neox ? d >= half : d % 2;
                float want;
                if (d >= rope_dim) {
                    want = in[d];
                } else {
                    float x0 = in[neox ? pair : 2 * pair],
                          x1 = in[neox ? pair + half : 2 * pair + 1];
                    float c = cs[2 * pair], s = cs[2 * pair + 1];
                    want = second ? fmaf(x1, c, x0 * s) : fmaf(x0, c, -(x1 * s));
                }
                assert_bits_equal("rope", r * width + i, y.p[r * y.ld + i], o_store(want));
            }
        }
        matrix_free(&y);
    }
    matrix_free(&table), matrix_free(&x);
}

static void test_rope(void **state)
{
    use_isa(state);
    for (int neox = 0; neox < 2; neox++) {
        check_rope(3, 64, 64, neox);
        check_rope(2, 20, 20, neox);
        check_rope(1, 6, 2, neox);
        check_rope(5, 40, 34, neox);
        check_rope(2, 8, 0, neox);
    }
}

/* embed and cache move bits, only NaN becomes 7fc00000; pages are found in any order. */
static void test_copies(void **state)
{
    enum { W = 19, VOCAB = 30, ROWS = 9, PAGE = 4 };
    static const int32_t ids[ROWS] = {0, 29, 3, 3, 7, 11, 28, 1, 0}, pages0[] = {5, 1, 3},
                         pages1[] = {2, 0};
    use_isa(state);
    struct matrix table = matrix_random(VOCAB, W, W, 1, 4), y = matrix_new(ROWS, W, W + 1, 1),
                  cache = matrix_new(24, W, W, 1);
    struct ds_embed_args e = {table.p, VOCAB, W, ROWS, ids, y.p, y.ld, 0};
    launch_named(kernel(DS_OP_EMBED, "pinned"), &e, 2);
    matrix_check("embed", &y);
    for (int64_t i = 0; i < ROWS * W; i++)
        assert_bits_equal("embed", i, y.p[i / W * y.ld + i % W],
                          o_store(table.p[ids[i / W] * W + i % W]));
    /* request 0: rows 0-4 at slots 6..10; request 1: rows 5-8 at slots 0..3 */
    const struct ds_sequence seqs[] = {{0, 0, 5, 11, 2, pages0}, {1, 5, 4, 4, 0, pages1}};
    struct ds_cache_args c = {ROWS, W, table.p, W, cache.p, PAGE, 6, seqs, 2, NULL, W, 0};
    launch_named(kernel(DS_OP_CACHE, "pinned"), &c, 2);
    static const int64_t at[ROWS] = {1 * 4 + 2, 1 * 4 + 3, 3 * 4 + 0, 3 * 4 + 1, 3 * 4 + 2,
                                     2 * 4,     2 * 4 + 1, 2 * 4 + 2, 2 * 4 + 3};
    int written[24] = {0};
    for (int64_t r = 0; r < ROWS; r++) {
        written[at[r]] = 1;
        for (int64_t i = 0; i < W; i++)
            assert_bits_equal("cache", r * W + i, cache.p[at[r] * W + i],
                              o_store(table.p[r * W + i]));
    }
    for (int64_t r = 0; r < 24; r++)
        for (int64_t i = 0; i < W && !written[r]; i++)
            assert_int_equal(ds_f32_bits(cache.p[r * W + i]), POISON);
    matrix_free(&table), matrix_free(&y), matrix_free(&cache);
}

static void test_sample(void **state)
{
    static const struct {
        float x[5];
        int32_t want;
    } cases[] = {
        {{1, 3, 2, 3, 0}, 1},
        {{NAN, -5, NAN, -4, -4}, 3},
        {{NAN, NAN, NAN, NAN, NAN}, 0},
        {{-INFINITY, -INFINITY, NAN, -INFINITY, -INFINITY}, 0},
        {{NAN, -INFINITY, -INFINITY, NAN, NAN}, 1},
        {{-0.0f, 0.0f, -1, 0.0f, -0.0f}, 0},
        {{1, INFINITY, NAN, INFINITY, 3}, 1},
        {{-3, -2, -1, -1, NAN}, 2},
    };
    (void)state;
    enum { N = sizeof cases / sizeof cases[0] };
    static const char *const names[] = {"reference", "pinned"};
    for (int v = 0; v < 2; v++) {
        int32_t ids[N + 2];
        memset(ids, 0x55, sizeof ids);
        struct ds_sample_args a = {.rows = N,
                                   .vocab = 5,
                                   .logits = cases[0].x,
                                   .ldx = sizeof cases[0] / 4,
                                   .ids = ids + 1};
        launch_named(kernel(DS_OP_SAMPLE, names[v]), &a, 2);
        for (int i = 0; i < N; i++)
            assert_int_equal(ids[i + 1], cases[i].want);
        assert_int_equal(ids[0], 0x55555555);
        assert_int_equal(ids[N + 1], 0x55555555);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PER_ISA(test_matmul_shapes),
        PER_ISA(test_matmul_rows_stand_alone),
        PER_ISA(test_rmsnorm),
        PER_ISA(test_silu_mul_and_add),
        PER_ISA(test_rope),
        PER_ISA(test_copies),
        cmocka_unit_test(test_packed_layout),
        cmocka_unit_test(test_sample),
    };
    return cmocka_run_group_tests_name("pinned kernels", tests, NULL, NULL);
}
