/* test_attention_variants.c: attention that follows the number of rows, of threads or of new tokens:
 * every output equals a transcription of its order, the claims hold, and what is not claimed is
 * really broken at some setting. */
#include "tests/unit/kernels/attention_world.h"
#include "tests/unit/kernels/oracle_variants.h"

static const char *const variants[] = {"vendor", "split-kv", "stock", "tile-by-qlen"};
enum { N_VARIANTS = sizeof variants / sizeof variants[0] };

/* Every third row, the first, middle and last channel of every head. */
static void compare_with_oracle(const struct ds_kernel *k, const struct ds_attention_args *a,
                                int threads)
{
    const int64_t channels[] = {0, a->head_dim / 2, a->head_dim - 1};
    for (int64_t r = (a->rows - 1) % 3; r < a->rows; r += 3)
        for (int64_t h = 0; h < a->heads; h++)
            for (int c = 0; c < 3; c++) {
                int64_t d = channels[c];
                float got = a->y[r * a->ldy + h * a->head_dim + d],
                      want = o_attend(k->name, a, threads, r, h, d);
                if (isnan(got) && isnan(want))
                    continue; /* which NaN it is is fixed for pinned kernels only */
                assert_bits_equal(k->name, r * a->ldy + h * a->head_dim + d, got, want);
            }
}

static int forget_hook(void **state)
{
    after_attend = NULL;
    return back_to_auto(state);
}

static void test_equals_transcription(void **state)
{
    static const struct {
        int64_t heads, kv_heads, dim, page;
        int32_t kv[2], first[2], chunk;
        unsigned special;
        int threads;
    } cases[] = {
        {2, 1, 64, 1024, {40, 17}, {0, 5}, 64, 0, 2}, {2, 1, 1, 3, {20, 7}, {0, 7}, 4, 0, 3},
        {4, 2, 17, 5, {70, 33}, {1, 0}, 64, 0, 4},    {1, 1, 96, 16, {67, 3}, {0, 1}, 1, 0, 8},
        {3, 3, 40, 7, {66, 60}, {3, 2}, 2, 0, 5},     {1, 1, 33, 64, {90, 1}, {0, 0}, 3, 0, 1},
        {2, 2, 24, 8, {80, 60}, {9, 0}, 64, 40, 2},   {2, 1, 20, 32, {60, 50}, {0, 3}, 1, 40, 16},
    };
    use_isa(state);
    after_attend = compare_with_oracle;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int v = 0; v < N_VARIANTS; v++) {
            struct world w =
                world_new(cases[c].heads, cases[c].kv_heads, cases[c].dim, cases[c].page, 2,
                          cases[c].kv, cases[c].first, cases[c].special);
            struct matrix y[4];
            new_results(&w, y);
            chunked(&w, kernel(DS_OP_ATTENTION, variants[v]), cases[c].chunk, cases[c].threads, y);
            free_results(&w, y);
            world_free(&w);
        }
}

/* One row over many slots: where vendor splits, and where there are more threads than heads. */
static void test_long_rows_equal_transcription(void **state)
{
    static const int32_t kv[] = {640, 513}, first[] = {0, 60};
    use_isa(state);
    after_attend = compare_with_oracle;
    struct world w = world_new(2, 1, 12, 48, 2, kv, first, 0);
    struct matrix y[4];
    new_results(&w, y);
    for (int v = 0; v < N_VARIANTS; v++)
        for (int threads = 1; threads <= 9; threads += 4) {
            int32_t from[4] = {639, 512}, to[4] = {640, 512};
            const struct ds_kernel *k = kernel(DS_OP_ATTENTION, variants[v]);
            attend(&w, k, from, to, threads, y);
            from[0] = 640, to[1] = 513;
            attend(&w, k, from, to, threads, y);
            from[0] = 637;
            attend(&w, k, from, to, threads, y);
        }
    free_results(&w, y);
    world_free(&w);
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* Request 1's last row in the call of the given rows of the others. */
static void last_row(const struct world *w, const struct ds_kernel *k, int32_t before,
                     int32_t after, int threads, struct matrix *y)
{
    int32_t from[4], to[4];
    for (int i = 0; i < w->requests; i++)
        from[i] = to[i] = w->kv[i];
    from[0] -= before;
    from[2] -= after;
    from[1]--;
    attend(w, k, from, to, threads, y);
}

static int same_last_row(const struct world *w, const struct matrix *a, const struct matrix *b)
{
    size_t width = (size_t)(w->heads * w->dim), at = (size_t)(w->kv[1] - 1) * width;
    return memcmp(a[1].p + at, b[1].p + at, width * 4) == 0;
}

/* The claims that hold over the settings tried here. */
static uint32_t measured(const struct world *w, const struct ds_kernel *k)
{
    static const int32_t chunks[] = {1, 2, 3, 40, 64};
    uint32_t holds = DS_CLAIM_ALL;
    struct matrix want[4], y[4];
    new_results(w, want), new_results(w, y);
    for (int threads = 1; threads <= 8; threads++) {
        last_row(w, k, 0, 0, threads, want);
        last_row(w, k, 0, 0, threads, y);
        holds &= ~(same_last_row(w, want, y) ? 0u : DS_CLAIM_REPEAT);
        for (int32_t others = 1; others < 9; others++) {
            last_row(w, k, others / 2, others - others / 2, threads, y);
            holds &= ~(same_last_row(w, want, y) ? 0u : DS_CLAIM_BATCH);
        }
        last_row(w, k, 2, 0, threads, want);
        for (int before = 0; before < 2; before++) {
            last_row(w, k, before, 2 - before, threads, y);
            holds &= ~(same_last_row(w, want, y) ? 0u : DS_CLAIM_SLOT);
        }
        last_row(w, k, 0, 0, 1, want);
        last_row(w, k, 0, 0, threads, y);
        holds &= ~(same_last_row(w, want, y) ? 0u : DS_CLAIM_THREADS);
    }
    prefill(w, k, 4, want);
    for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
        chunked(w, k, chunks[c], 4, y);
        for (int i = 0; i < w->requests; i++)
            holds &= ~(memcmp(want[i].p, y[i].p, (size_t)(w->kv[i] * w->heads * w->dim) * 4)
                           ? DS_CLAIM_CHUNK
                           : 0u);
    }
    free_results(w, want), free_results(w, y);
    return holds;
}

static void test_claims_are_what_is_measured(void **state)
{
    static const char *const all[] = {"vendor",       "split-kv", "stock",
                                      "tile-by-qlen", "pinned",   "reference"};
    static const int32_t kv[] = {60, 560, 50}, first[] = {0, 0, 0};
    (void)state;
    struct world w = world_new(2, 1, 8, 64, 3, kv, first, 0);
    for (size_t v = 0; v < sizeof all / sizeof all[0]; v++) {
        const struct ds_kernel *k = kernel(DS_OP_ATTENTION, all[v]);
        uint32_t holds = measured(&w, k);
        if (holds != k->claims) {
            print_error("attention/%s: claims %#x, measured %#x\n", all[v], (unsigned)k->claims,
                        (unsigned)holds);
            fail();
        }
    }
    world_free(&w);
}

/* ---- where they switch ----------------------------------------------------------------------- */

/* O-02: 1 and 2 new tokens agree, 3 and 4 agree, the two differ, at every length above 32. */
static void test_tile_follows_the_new_tokens(void **state)
{
    static const int32_t kv[] = {200}, first[] = {0};
    static const int32_t ends[] = {32, 33, 64, 65, 130, 200};
    const struct ds_kernel *k = kernel(DS_OP_ATTENTION, "tile-by-qlen");
    const size_t width = 12 * 16;
    (void)state;
    struct world w = world_new(12, 1, 16, 16, 1, kv, first, 0);
    struct matrix one[4], y[4];
    new_results(&w, one), new_results(&w, y);
    for (size_t e = 0; e < sizeof ends / sizeof ends[0]; e++)
        for (int32_t rows = 1; rows <= 4; rows++) {
            int32_t from[4] = {ends[e] - rows}, to[4] = {ends[e]};
            attend(&w, k, from, to, 2, rows == 1 ? one : y);
            size_t at = (size_t)(ends[e] - 1) * width;
            int same = rows == 1 || memcmp(one[0].p + at, y[0].p + at, width * 4) == 0;
            assert_int_equal(same, rows <= 2 || ends[e] <= 32);
        }
    free_results(&w, one), free_results(&w, y);
    world_free(&w);
}

/* The number of parts, from outside: the classes of one row by threads. */
static void test_split_kv_describes_its_parts(void **state)
{
    static const struct {
        int32_t rows, kv, first;
        int threads, split, slots;
    } cases[] = {{1, 160, 0, 1, 1, 160}, {1, 160, 0, 2, 2, 80},  {1, 160, 0, 4, 4, 48},
                 {1, 160, 0, 8, 5, 32},  {1, 17, 0, 8, 2, 16},   {1, 16, 0, 8, 1, 16},
                 {2, 160, 0, 8, 4, 48},  {8, 160, 0, 8, 1, 160}, {3, 160, 96, 8, 2, 32}};
    const struct ds_kernel *k = kernel(DS_OP_ATTENTION, "split-kv");
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct ds_sequence s = {0, 0, cases[c].rows, cases[c].kv, cases[c].first, NULL};
        struct ds_attention_args a = {.rows = cases[c].rows,
                                      .heads = 2,
                                      .kv_heads = 1,
                                      .head_dim = 8,
                                      .sequences = &s,
                                      .n_sequences = 1,
                                      .max_kv_len = cases[c].kv};
        struct ds_exec exec = {.threads = cases[c].threads};
        struct ds_launch_info info;
        assert_int_equal(k->describe(&a, &exec, &info), 0);
        assert_int_equal(info.split, cases[c].split);
        assert_int_equal(info.tile_k, cases[c].slots);
        assert_int_equal(kernel(DS_OP_ATTENTION, "stock")->describe(&a, &exec, &info), 0);
        assert_int_equal(info.split, 4);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Left padding moves no border and pads give +0. */
static void test_left_padding(void **state)
{
    enum { N = 90, PAD = 21, WIDTH = 2 * 24 };
    static const int32_t plain_kv[] = {N}, padded_kv[] = {N + PAD}, zero[] = {0}, pad[] = {PAD};
    (void)state;
    struct world a = world_new(2, 1, 24, 16, 1, plain_kv, zero, 0),
                 b = world_new(2, 1, 24, 8, 1, padded_kv, pad, 0);
    for (int64_t t = 0; t < N; t++) {
        int64_t from = a.page_of[0][t / 16] * 16 + t % 16,
                to = b.page_of[0][(t + PAD) / 8] * 8 + (t + PAD) % 8;
        memcpy(b.k.p + to * b.k.ld, a.k.p + from * a.k.ld, 24 * 4);
        memcpy(b.v.p + to * b.v.ld, a.v.p + from * a.v.ld, 24 * 4);
        memcpy(b.q[0].p + (t + PAD) * WIDTH, a.q[0].p + t * WIDTH, WIDTH * 4);
    }
    for (int v = 0; v < N_VARIANTS; v++) {
        struct matrix ya[4], yb[4];
        new_results(&a, ya), new_results(&b, yb);
        prefill(&a, kernel(DS_OP_ATTENTION, variants[v]), 2, ya);
        prefill(&b, kernel(DS_OP_ATTENTION, variants[v]), 2, yb);
        for (int64_t j = 0; j < PAD * WIDTH; j++)
            assert_int_equal(ds_f32_bits(yb[0].p[j]), 0);
        for (int64_t j = 0; j < N * WIDTH; j++)
            assert_bits_equal(variants[v], j, yb[0].p[PAD * WIDTH + j], ya[0].p[j]);
        free_results(&a, ya), free_results(&b, yb);
    }
    world_free(&a), world_free(&b);
}

/* Parts and tiles of scores of -infinity before a finite one count as nothing; only such scores give
 * NaN. */
static void test_minus_infinite_scores(void **state)
{
    static const int32_t kv[] = {220}, zero[] = {0};
    (void)state;
    struct world w = world_new(1, 1, 16, 300, 1, kv, zero, 0);
    for (int64_t t = 0; t < 220; t++)
        for (int64_t d = 0; d < 16; d++) {
            w.q[0].p[t * 16 + d] = d ? 0.0f : 1.0f;
            w.k.p[t * 16 + d] = d ? 0.0f : t < 120 ? -INFINITY : 1.0f;
            w.v.p[t * 16 + d] = t < 120 ? 7.0f : 2.0f;
        }
    for (int v = 0; v < N_VARIANTS; v++)
        for (int32_t chunk = 1; chunk <= 220; chunk += 219) {
            struct matrix y[4];
            new_results(&w, y);
            chunked(&w, kernel(DS_OP_ATTENTION, variants[v]), chunk, 4, y);
            for (int64_t t = 0; t < 220; t++)
                for (int64_t d = 0; d < 16; d++)
                    if (t < 120)
                        assert_true(isnan(y[0].p[t * 16 + d]));
                    else
                        assert_close(variants[v], t, y[0].p[t * 16 + d], 2.0f, 1e-6);
            free_results(&w, y);
        }
    world_free(&w);
}

/* Against long double, with many threads and in single rows, so that everything splits. */
static void test_accuracy(void **state)
{
    static const int32_t kv[] = {700}, first[] = {0};
    (void)state;
    struct world w = world_new(3, 1, 64, 32, 1, kv, first, 0);
    for (int v = 0; v < N_VARIANTS; v++) {
        struct matrix y[4];
        double worst = 0;
        new_results(&w, y);
        for (int32_t r = 99; r < 700; r += 100) {
            int32_t from[4] = {r}, to[4] = {r + 1};
            attend(&w, kernel(DS_OP_ATTENTION, variants[v]), from, to, 6, y);
            for (int64_t h = 0; h < 3; h++) {
                const float *q = w.q[0].p + (r * 3 + h) * 64;
                long double sum = 0, acc[64] = {0};
                for (int64_t t = 0; t <= r; t++) {
                    int64_t at = (w.page_of[0][t / 32] * 32 + t % 32) * 64;
                    long double s = 0;
                    for (int64_t d = 0; d < 64; d++)
                        s += (long double)q[d] * (long double)w.k.p[at + d];
                    long double e = expl(s * (long double)SCALE);
                    sum += e;
                    for (int64_t d = 0; d < 64; d++)
                        acc[d] += e * (long double)w.v.p[at + d];
                }
                for (int64_t d = 0; d < 64; d++) {
                    double diff =
                        fabs((double)(acc[d] / sum - (long double)y[0].p[(r * 3 + h) * 64 + d]));
                    worst = diff > worst || isnan(diff) ? diff : worst;
                }
            }
        }
        print_message("attention/%s: largest error %.2e\n", variants[v], worst);
        assert_true(worst <= 6e-7);
        free_results(&w, y);
    }
    world_free(&w);
}

static void test_bad_arguments_are_refused(void **state)
{
    float x[64] = {0}, y[64], scratch[4096];
    int32_t page[] = {0, 9};
    (void)state;
    for (int v = 0; v < N_VARIANTS; v++) {
        const struct ds_kernel *k = kernel(DS_OP_ATTENTION, variants[v]);
        char why[200] = "";
        struct ds_exec exec = {.threads = 1, .scratch = scratch, .scratch_bytes = sizeof scratch};
        struct ds_sequence s = {7, 0, 1, 1, 0, page};
        struct ds_attention_args a = {.rows = 1,
                                      .heads = 2,
                                      .kv_heads = 1,
                                      .head_dim = 8,
                                      .scale = 1,
                                      .q = x,
                                      .ldq = 16,
                                      .cache_k = x,
                                      .cache_v = x,
                                      .page_size = 4,
                                      .pages = 1,
                                      .sequences = &s,
                                      .n_sequences = 1,
                                      .max_q_len = 1,
                                      .max_kv_len = 8,
                                      .y = y,
                                      .ldy = 16};
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), 0);
        s.kv_len = 5;
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), -1);
        assert_non_null(strstr(why, "request 7: page 9"));
        s.kv_len = 1, a.kv_heads = 3;
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), -1);
        a.kv_heads = 1, exec.scratch_bytes = 8;
        size_t needs = k->scratch_bytes ? k->scratch_bytes(&a, 1) : 0;
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), needs ? -1 : 0);
        assert_true(!needs || strstr(why, "scratch memory of 8 bytes"));
    }
}

#define WITH_HOOK(test)                                                                            \
    {#test " scalar", test, NULL, forget_hook, (void *)(uintptr_t) "scalar"},                      \
    {                                                                                              \
#test " avx2", test, NULL, forget_hook, (void *)(uintptr_t) "avx2"                         \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HOOK(test_equals_transcription),
        WITH_HOOK(test_long_rows_equal_transcription),
        cmocka_unit_test(test_claims_are_what_is_measured),
        cmocka_unit_test(test_tile_follows_the_new_tokens),
        cmocka_unit_test(test_split_kv_describes_its_parts),
        cmocka_unit_test(test_left_padding),
        cmocka_unit_test(test_minus_infinite_scores),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_bad_arguments_are_refused),
    };
    return cmocka_run_group_tests_name("attention variants", tests, NULL, NULL);
}
