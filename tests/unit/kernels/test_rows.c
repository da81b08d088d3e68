/* test_rows.c: softmax, router, combine and allreduce: pinned equals the scalar transcription of
 * PINNED.md bit for bit, on every instruction set, width, thread count and alignment, with every
 * special value; both variants are near the exact result; who is chosen, to the last tie. */
#include "tests/unit/kernels/harness.h"
#include "tests/unit/kernels/oracle.h"

static const char *const variants[] = {"reference", "pinned"};
static const double U = 0x1p-24;

/* ---- pinned: the bits of PINNED.md ----------------------------------------------------------- */

/* Logits over the range of exp; some rows with special values, one of -infinity alone. */
static struct matrix logits(int64_t rows, int64_t n, int skew)
{
    struct matrix x = matrix_random(rows, n, n + skew, skew, 0);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            float *at = &x.p[r * x.ld + i];
            *at *= r % 4 == 1 ? 120.0f : 8.0f;
            if (r % 4 == 2 && rng() % 7 == 0)
                *at = -INFINITY;
            if ((r % 4 == 3 && rng() % 50 == 0))
                *at = rng_special();
            if (r == 4)
                *at = -INFINITY;
        }
    return x;
}

static void test_softmax(void **state)
{
    static const int64_t widths[] = {1,   2,   15,  16,  17,  31,  32,   33,  100,
                                     255, 256, 257, 271, 272, 512, 1000, 4099};
    enum { ROWS = 9 };
    use_isa(state);
    for (size_t c = 0; c < sizeof widths / sizeof widths[0]; c++) {
        const int64_t n = widths[c];
        const int skew = (int)(c % 3);
        struct matrix x = logits(ROWS, n, skew);
        float *want = malloc((size_t)n * 4);
        for (int threads = 1; threads <= 4; threads++) {
            struct matrix y = matrix_new(ROWS, n, n + 2, 1);
            struct ds_softmax_args a = {ROWS, n, x.p, x.ld, y.p, y.ld, 0};
            launch_named(kernel(DS_OP_SOFTMAX, "pinned"), &a, threads);
            matrix_check("softmax", &y);
            for (int64_t r = 0; r < ROWS; r++) {
                o_softmax(x.p + r * x.ld, n, want);
                for (int64_t i = 0; i < n; i++)
                    assert_bits_equal("softmax", r * n + i, y.p[r * y.ld + i], want[i]);
            }
            matrix_free(&y);
        }
        free(want);
        matrix_free(&x);
    }
}

static void test_router(void **state)
{
    static const struct {
        int64_t experts, top_k;
        int normalise;
    } cases[] = {{1, 1, 0},  {1, 1, 1},   {8, 2, 1},   {8, 8, 1},
                 {60, 4, 0}, {128, 8, 1}, {257, 6, 0}, {384, 1, 1}};
    enum { ROWS = 9 };
    use_isa(state);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const int64_t n = cases[c].experts, k = cases[c].top_k;
        struct matrix x = logits(ROWS, n, (int)(c % 2));
        for (int64_t i = 0; i < n; i++)
            x.p[5 * x.ld + i] = (float)(i % 3); /* a row of ties */
        int32_t *want_ids = malloc((size_t)k * 4);
        float *want = malloc((size_t)k * 4);
        for (int threads = 1; threads <= 4; threads++) {
            struct matrix w = matrix_new(ROWS, k, k, 1), ids = matrix_new(ROWS, k, k, 0);
            struct ds_router_args a = {
                ROWS, n, k, x.p, x.ld, cases[c].normalise, (int32_t *)(void *)ids.p, w.p, 0};
            launch_named(kernel(DS_OP_ROUTER, "pinned"), &a, threads);
            matrix_check("router weights", &w), matrix_check("router ids", &ids);
            for (int64_t r = 0; r < ROWS; r++) {
                o_router(x.p + r * x.ld, n, k, cases[c].normalise, want_ids, want);
                for (int64_t j = 0; j < k; j++) {
                    assert_int_equal(a.ids[r * k + j], want_ids[j]);
                    assert_bits_equal("router", r * k + j, w.p[r * k + j], want[j]);
                }
            }
            matrix_free(&w), matrix_free(&ids);
        }
        free(want);
        free(want_ids);
        matrix_free(&x);
    }
}

static void test_combine(void **state)
{
    static const int64_t widths[] = {1, 15, 16, 17, 64, 577};
    enum { ROWS = 7 };
    use_isa(state);
    for (size_t c = 0; c < 6 * sizeof widths / sizeof widths[0]; c++) {
        const int64_t n = widths[c / 6], k = 1 + (int64_t)(c % 6);
        struct matrix x = matrix_random(ROWS * k, n, n + 1, 1, c % 2 ? 30 : 0),
                      w = matrix_random(ROWS, k, k, 0, c % 2 ? 60 : 0);
        for (int threads = 1; threads <= 3; threads++) {
            struct matrix y = matrix_new(ROWS, n, n + 3, (int)(c % 2));
            struct ds_combine_args a = {ROWS, n, k, x.p, x.ld, w.p, y.p, y.ld, 0};
            launch_named(kernel(DS_OP_COMBINE, "pinned"), &a, threads);
            matrix_check("combine", &y);
            for (int64_t r = 0; r < ROWS; r++)
                for (int64_t i = 0; i < n; i++) {
                    float s = 0.0f;
                    for (int64_t e = 0; e < k; e++)
                        s = fmaf(w.p[r * k + e], x.p[(r * k + e) * x.ld + i], s);
                    assert_bits_equal("combine", r * n + i, y.p[r * y.ld + i], o_store(s));
                }
            matrix_free(&y);
        }
        matrix_free(&x), matrix_free(&w);
    }
}

enum { MOST_RANKS = 8 };

static void test_allreduce(void **state)
{
    static const int64_t widths[] = {1, 15, 16, 17, 64, 577};
    enum { ROWS = 5 };
    use_isa(state);
    for (size_t c = 0; c < MOST_RANKS * sizeof widths / sizeof widths[0]; c++) {
        const int64_t n = widths[c / MOST_RANKS], ranks = 1 + (int64_t)(c % MOST_RANKS);
        struct matrix x[MOST_RANKS];
        const float *at[MOST_RANKS];
        for (int64_t k = 0; k < ranks; k++) {
            x[k] = matrix_random(ROWS, n, n + 1, (int)(k % 2), c % 3 ? 40 : 0);
            at[k] = x[k].p;
        }
        for (int threads = 1; threads <= 3; threads++) {
            struct matrix y = matrix_new(ROWS, n, n + 2, 1);
            struct ds_allreduce_args a = {ROWS, n, ranks, at, n + 1, y.p, y.ld, 0};
            launch_named(kernel(DS_OP_ALLREDUCE, "pinned"), &a, threads);
            matrix_check("allreduce", &y);
            for (int64_t r = 0; r < ROWS; r++)
                for (int64_t i = 0; i < n; i++) {
                    float s = at[0][r * (n + 1) + i];
                    for (int64_t k = 1; k < ranks; k++)
                        s = s + at[k][r * (n + 1) + i];
                    assert_bits_equal("allreduce", r * n + i, y.p[r * y.ld + i], o_store(s));
                }
            matrix_free(&y);
        }
        for (int64_t k = 0; k < ranks; k++)
            matrix_free(&x[k]);
    }
}

/* ---- both variants --------------------------------------------------------------------------- */

/* Each term within 2u (1 ulp of exp, its argument exact to u of its size), the sum within a few u a
 * term, one quotient. */
static void test_softmax_accuracy(void **state)
{
    static const int64_t widths[] = {1, 16, 300, 3001};
    (void)state;
    for (int v = 0; v < 2; v++)
        for (int c = 0; c < 4; c++) {
            const int64_t n = widths[c];
            struct matrix x = matrix_random(3, n, n, 0, 0), y = matrix_new(3, n, n, 0);
            struct ds_softmax_args a = {3, n, x.p, n, y.p, n, 0};
            launch_named(kernel(DS_OP_SOFTMAX, variants[v]), &a, 2);
            matrix_check(variants[v], &y);
            const double chain = v ? 16.0 + 4.0 + ceil((double)n / 256.0) : (double)n;
            for (int r = 0; r < 3; r++) {
                long double sum = 0;
                for (int64_t i = 0; i < n; i++)
                    sum += expl((long double)x.p[r * n + i]);
                for (int64_t i = 0; i < n; i++) {
                    long double exact = expl((long double)x.p[r * n + i]) / sum;
                    assert_close(variants[v], i, y.p[r * n + i], exact,
                                 (chain + 10.0) * U * (double)exact);
                }
            }
            matrix_free(&x), matrix_free(&y);
        }
}

/* Rows whose softmax is known without arithmetic. */
static void test_softmax_limits(void **state)
{
    static const struct {
        float x[4], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0.25f, 0.25f, 0.25f, 0.25f}},
        {{1e30f, -1e30f, 1e30f, -INFINITY}, {0.5f, 0, 0.5f, 0}},
        {{-INFINITY, 3, -INFINITY, -INFINITY}, {0, 1, 0, 0}},
        {{-0.0f, 0.0f, -0.0f, 0.0f}, {0.25f, 0.25f, 0.25f, 0.25f}},
        {{1, NAN, 2, 3}, {NAN, NAN, NAN, NAN}},
        {{1, INFINITY, 2, 3}, {NAN, NAN, NAN, NAN}},
        {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, {NAN, NAN, NAN, NAN}},
    };
    enum { N = sizeof cases / sizeof cases[0] };
    (void)state;
    for (int v = 0; v < 2; v++)
        for (int i = 0; i < N; i++) {
            float y[4];
            struct ds_softmax_args a = {1, 4, cases[i].x, 4, y, 4, 0};
            launch_named(kernel(DS_OP_SOFTMAX, variants[v]), &a, 1);
            for (int j = 0; j < 4; j++)
                assert_bits_equal(variants[v], 4 * i + j, o_store(y[j]), o_store(cases[i].want[j]));
        }
}

static void test_who_is_chosen(void **state)
{
    static const struct {
        float x[5];
        int32_t want[5];
    } cases[] = {
        {{1, 3, 2, 3, 0}, {1, 3, 2, 0, 4}},
        {{0, 0, 0, 0, 0}, {0, 1, 2, 3, 4}},
        {{-0.0f, 0.0f, -1, 0.0f, -0.0f}, {0, 1, 3, 4, 2}},
        {{NAN, -5, NAN, -4, -4}, {3, 4, 1, 0, 2}},
        {{NAN, NAN, NAN, NAN, NAN}, {0, 1, 2, 3, 4}},
        {{-INFINITY, NAN, INFINITY, -INFINITY, INFINITY}, {2, 4, 0, 3, 1}},
    };
    enum { N = sizeof cases / sizeof cases[0] };
    (void)state;
    for (int v = 0; v < 2; v++)
        for (int64_t k = 1; k <= 5; k++) {
            int32_t ids[5 * N + 2];
            float weights[5 * N];
            memset(ids, 0x55, sizeof ids);
            struct ds_router_args a = {N, 5,       k,       cases[0].x, sizeof cases[0] / 4,
                                       0, ids + 1, weights, 0};
            launch_named(kernel(DS_OP_ROUTER, variants[v]), &a, 2);
            for (int64_t i = 0; i < N * k; i++)
                assert_int_equal(ids[i + 1], cases[i / k].want[i % k]);
            assert_int_equal(ids[0], 0x55555555);
            assert_int_equal(ids[N * k + 1], 0x55555555);
        }
}

/* The weights of both variants: those of the softmax, near the exact ones, with sum 1 when
 * normalised. */
static void test_router_weights(void **state)
{
    enum { E = 64, K = 6, ROWS = 5 };
    (void)state;
    for (int v = 0; v < 4; v++) {
        struct matrix x = matrix_random(ROWS, E, E, 1, 0);
        int32_t ids[ROWS * K];
        float weights[ROWS * K];
        struct ds_router_args a = {ROWS, E, K, x.p, E, v / 2, ids, weights, 0};
        launch_named(kernel(DS_OP_ROUTER, variants[v % 2]), &a, 2);
        for (int r = 0; r < ROWS; r++) {
            long double all = 0, chosen = 0;
            for (int i = 0; i < E; i++)
                all += expl((long double)x.p[r * E + i]);
            for (int j = 0; j < K; j++)
                chosen += expl((long double)x.p[r * E + ids[r * K + j]]);
            for (int j = 0; j < K; j++) {
                long double exact =
                    expl((long double)x.p[r * E + ids[r * K + j]]) / (v / 2 ? chosen : all);
                assert_close(variants[v % 2], r * K + j, weights[r * K + j], exact,
                             (E + 20) * U * (double)exact);
            }
        }
        matrix_free(&x);
    }
}

static void test_sums_accuracy(void **state)
{
    enum { K = 6, N = 100 };
    (void)state;
    for (int v = 0; v < 2; v++) {
        struct matrix x = matrix_random(K, N, N, 0, 0), w = matrix_random(1, K, K, 0, 0),
                      y = matrix_new(1, N, N, 0), z = matrix_new(1, N, N, 0);
        const float *ranks[K];
        for (int k = 0; k < K; k++)
            ranks[k] = x.p + k * N;
        struct ds_combine_args c = {1, N, K, x.p, N, w.p, y.p, N, 0};
        struct ds_allreduce_args a = {1, N, K, ranks, N, z.p, N, 0};
        launch_named(kernel(DS_OP_COMBINE, variants[v]), &c, 2);
        launch_named(kernel(DS_OP_ALLREDUCE, variants[v]), &a, 2);
        matrix_check("combine", &y), matrix_check("allreduce", &z);
        for (int i = 0; i < N; i++) {
            double sum = 0, size = 0, weighted = 0, weighted_size = 0;
            for (int k = 0; k < K; k++) {
                double term = (double)x.p[k * N + i], product = term * (double)w.p[k];
                sum += term, size += fabs(term);
                weighted += product, weighted_size += fabs(product);
            }
            assert_close("combine", i, y.p[i], weighted, (K + 1) * U * weighted_size);
            assert_close("allreduce", i, z.p[i], sum, K * U * size);
        }
        matrix_free(&x), matrix_free(&w), matrix_free(&y), matrix_free(&z);
    }
}

static void test_bad_arguments_are_refused(void **state)
{
    static const struct {
        int64_t experts, top_k;
    } router[] = {{4, 5}, {4, 0}, {0, 0}, {4, -1}, {(int64_t)1 << 32, 2}};
    float x[8] = {0}, y[8];
    const float *ranks[1] = {x};
    int32_t ids[8];
    char why[200];
    struct ds_exec exec = {.threads = 1};
    (void)state;
    for (int v = 0; v < 2; v++) {
        for (size_t i = 0; i < sizeof router / sizeof router[0]; i++) {
            struct ds_router_args a = {1, router[i].experts, router[i].top_k, x, 8, 0, ids, y, 0};
            why[0] = '\0';
            assert_int_equal(kernel(DS_OP_ROUTER, variants[v])->launch(&a, &exec, why, sizeof why),
                             -1);
            assert_non_null(strstr(why, "experts cannot be chosen"));
        }
        struct ds_router_args good = {1, 4, 2, x, 8, 0, ids, y, 0};
        assert_int_equal(kernel(DS_OP_ROUTER, variants[v])->launch(&good, &exec, why, sizeof why),
                         -1);
        assert_non_null(strstr(why, "scratch"));
        struct ds_combine_args c = {1, 4, 0, x, 4, y, y, 4, 0};
        assert_int_equal(kernel(DS_OP_COMBINE, variants[v])->launch(&c, &exec, why, sizeof why),
                         -1);
        struct ds_allreduce_args a = {1, 4, 0, ranks, 4, y, 4, 0};
        assert_int_equal(kernel(DS_OP_ALLREDUCE, variants[v])->launch(&a, &exec, why, sizeof why),
                         -1);
        assert_non_null(strstr(why, "0 ranks"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PER_ISA(test_softmax),
        PER_ISA(test_router),
        PER_ISA(test_combine),
        PER_ISA(test_allreduce),
        cmocka_unit_test(test_softmax_accuracy),
        cmocka_unit_test(test_softmax_limits),
        cmocka_unit_test(test_who_is_chosen),
        cmocka_unit_test(test_router_weights),
        cmocka_unit_test(test_sums_accuracy),
        cmocka_unit_test(test_bad_arguments_are_refused),
    };
    return cmocka_run_group_tests_name("softmax, router, combine, allreduce", tests, NULL, NULL);
}
