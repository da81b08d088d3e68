/* test_accuracy.c: every variant against long double, with the bound that its order of addition
 * gives, and the project's exp over its whole range. u = 2^-24 is half a unit in the last place,
 * relative. (Attention: test_attention.c.) */
#include "tests/unit/kernels/harness.h"

#include "kernels/cpu/pinned.h"

static const double U = 0x1p-24;

/* A sum of chains of `chain` roundings each, joined by `joins` more, errs by at most (chain +
 * joins) u times the sum of the terms' sizes (to first order). */
static void test_matmul(void **state)
{
    static const struct {
        const char *name;
        double products; /* roundings per product beside those of the sum */
    } variants[] = {{"reference", 1}, {"pinned", 0}};
    static const int64_t ks[] = {1, 100, 256, 576, 1536, 5000};
    (void)state;
    for (int v = 0; v < 2; v++) {
        for (int i = 0; i < 6; i++) {
            const struct ds_kernel *k = kernel(DS_OP_MATMUL, variants[v].name);
            int64_t n = ks[i];
            struct matrix x = matrix_random(5, n, n, 1, 0), w = matrix_random(19, n, n, 0, 0),
                          b = matrix_random(1, 19, 19, 0, 0);
            struct matrix y = matrix_new(5, 19, 20, 1);
            struct ds_matmul_args a = {.rows = 5,
                                       .n = 19,
                                       .k = n,
                                       .x = x.p,
                                       .ldx = n,
                                       .w = {w.p, 19, n},
                                       .bias = b.p,
                                       .y = y.p,
                                       .ldy = 20};
            void *prepared = NULL;
            size_t bytes;
            char why[200];
            if (k->prepare)
                assert_int_equal(k->prepare(&a.w, &prepared, &bytes, why, sizeof why), 0);
            a.prepared = prepared;
            launch_named(k, &a, 2);
            matrix_check(k->name, &y);
            double chain = v == 0 ? (double)n : fmin((double)n, 256.0) + ceil((double)n / 256.0);
            for (int r = 0; r < 5; r++) {
                for (int j = 0; j < 19; j++) {
                    long double exact = (long double)b.p[j], size = fabsl(exact);
                    for (int64_t t = 0; t < n; t++) {
                        long double term =
                            (long double)x.p[r * n + t] * (long double)w.p[j * n + t];
                        exact += term, size += fabsl(term);
                    }
                    double tol = (chain + variants[v].products + 1) * U * (double)size;
                    assert_close(k->name, r * 19 + j, y.p[r * 20 + j], exact, tol);
                }
            }
            free(prepared);
            matrix_free(&x), matrix_free(&w), matrix_free(&b), matrix_free(&y);
        }
    }
}

/* The sum of squares has no cancellation; half of its relative error reaches the root, then four
 * roundings follow. */
static void test_rmsnorm(void **state)
{
    static const struct {
        const char *name;
        double lanes;
    } variants[] = {{"reference", 1}, {"rows", 4}, {"pinned", 16}};
    static const int64_t widths[] = {1, 15, 64, 576, 3001};
    (void)state;
    for (int v = 0; v < 3; v++) {
        for (int i = 0; i < 5; i++) {
            int64_t n = widths[i];
            struct matrix x = matrix_random(3, n, n, 1, 0), w = matrix_random(1, n, n, 0, 0),
                          y = matrix_new(3, n, n + 1, 1);
            struct ds_rmsnorm_args a = {3, n, x.p, n, w.p, 1e-5f, y.p, n + 1, 0};
            launch_named(kernel(DS_OP_RMSNORM, variants[v].name), &a, 2);
            matrix_check(variants[v].name, &y);
            for (int r = 0; r < 3; r++) {
                long double sum = 0;
                for (int64_t j = 0; j < n; j++)
                    sum += (long double)x.p[r * n + j] * (long double)x.p[r * n + j];
                long double inv = 1 / sqrtl(sum / n + (long double)1e-5f);
                for (int64_t j = 0; j < n; j++) {
                    long double exact = (long double)x.p[r * n + j] * inv * (long double)w.p[j];
                    double tol = (0.5 * (ceil((double)n / variants[v].lanes) + 7) + 4) * U *
                                 (double)fabsl(exact);
                    assert_close(variants[v].name, r * n + j, y.p[r * (n + 1) + j], exact, tol);
                }
            }
            matrix_free(&x), matrix_free(&w), matrix_free(&y);
        }
    }
}

/* exp within 2u (1 ulp), then a sum, a quotient, a product: 5u. */
static void test_silu_mul(void **state)
{
    enum { N = 4000 };
    static const char *const names[] = {"reference", "pinned"};
    (void)state;
    for (int v = 0; v < 2; v++) {
        struct matrix g = matrix_random(1, N, N, 1, 0), u = matrix_random(1, N, N, 1, 0),
                      y = matrix_new(1, N, N, 0);
        for (int i = 0; i < N; i++)
            g.p[i] *= i % 3 ? 10.0f : 80.0f;
        struct ds_silu_mul_args a = {1, N, g.p, u.p, N, y.p, N, 0};
        launch_named(kernel(DS_OP_SILU_MUL, names[v]), &a, 2);
        for (int i = 0; i < N; i++) {
            long double exact =
                (long double)g.p[i] / (1 + expl(-(long double)g.p[i])) * (long double)u.p[i];
            assert_close(names[v], i, y.p[i], exact, 6 * U * (double)fabsl(exact) + 0x1p-140);
        }
        matrix_free(&g), matrix_free(&u), matrix_free(&y);
    }
}

static void test_rope(void **state)
{
    enum { N = 64, ROWS = 40 };
    static const char *const names[] = {"reference", "pinned"};
    int32_t positions[ROWS];
    (void)state;
    for (int v = 0; v < 4; v++) {
        struct matrix x = matrix_random(ROWS, N, N, 0, 0), cs = matrix_random(ROWS, N, N, 1, 0),
                      y = matrix_new(ROWS, N, N, 0);
        for (int r = 0; r < ROWS; r++)
            positions[r] = ROWS - 1 - r;
        struct ds_rope_args a = {ROWS, 1, N, N, v / 2, positions, cs.p, ROWS, x.p, N, y.p, N, 0};
        launch_named(kernel(DS_OP_ROPE, names[v % 2]), &a, 2);
        for (int r = 0; r < ROWS; r++) {
            for (int i = 0; i < N / 2; i++) {
                int i0 = v / 2 ? i : 2 * i, i1 = v / 2 ? i + N / 2 : 2 * i + 1;
                double x0 = (double)x.p[r * N + i0], x1 = (double)x.p[r * N + i1];
                double c = (double)cs.p[positions[r] * N + 2 * i],
                       s = (double)cs.p[positions[r] * N + 2 * i + 1];
                assert_close(names[v % 2], i0, y.p[r * N + i0], x0 * c - x1 * s,
                             2 * U * (fabs(x0 * c) + fabs(x1 * s)));
                assert_close(names[v % 2], i1, y.p[r * N + i1], x0 * s + x1 * c,
                             2 * U * (fabs(x0 * s) + fabs(x1 * c)));
            }
        }
        matrix_free(&x), matrix_free(&cs), matrix_free(&y);
    }
}

/* ---- exp ------------------------------------------------------------------------------------- */

/* Error in units in the last place of the exact value (2^-149 at least, the spacing of subnormals).
 */
static double ulps_off(float x, float got)
{
    long double exact = expl((long double)x);
    int e;
    frexpl(exact, &e);
    return (double)(fabsl((long double)got - exact) / ldexpl(1.0L, e - 24 < -149 ? -149 : e - 24));
}

/* Every 811th float of both signs whose exp is neither 0 nor infinity. */
static void test_exp_error(void **state)
{
    enum { STEP = 811 };
    static const float ends[] = {88.722839f, -103.97208f};
    use_isa(state);
    double worst = 0;
    float at = 0;
    for (int side = 0; side < 2; side++) {
        uint32_t sign = side ? 0x80000000u : 0, end = ds_f32_bits(ends[side]) & 0x7fffffffu;
        for (uint32_t b = 0; b < end; b += 16 * STEP) {
            float x[16], y[16];
            for (uint32_t i = 0; i < 16; i++)
                x[i] = ds_f32_from_bits(sign | (b + i * STEP < end ? b + i * STEP : end - 1));
            ds_pinned_code()->exp(y, x, 16);
            for (int i = 0; i < 16; i++) {
                double off = ulps_off(x[i], y[i]);
                if (!(off <= worst))
                    worst = off, at = x[i];
            }
        }
    }
    print_message("exp (%s): at most %.3f ulp off, at %a\n", ds_isa_name(), worst, (double)at);
    assert_true(worst <= 1.0);
}

static void test_exp_limits(void **state)
{
    static const struct {
        uint32_t x, y;
    } cases[] = {
        {0xff800000u, 0}, /* -infinity */
        {0x7f800000u, 0x7f800000u}, {0x7fc00000u, 0x7fc00000u},
        {0xffc54321u, 0x7fc00000u}, {0x7f800001u, 0x7fc00000u},
        {0, 0x3f800000u},           {0x80000000u, 0x3f800000u},
        {1, 0x3f800000u},           {0x80000001u, 0x3f800000u},
        {0x33000000u, 0x3f800000u}, /* 2^-25: half a unit, to even */
        {0x42b17217u, 0x7f7fff84u}, /* the largest x with a finite exp */
        {0x42b17218u, 0x7f800000u}, /* the next one */
        {0x7f7fffffu, 0x7f800000u}, {0xff7fffffu, 0},
        {0xc2cff1b5u, 0}, /* the largest x below 150 ln 2 */
        {0xc2cff1b4u, 1},           {0xc2ce8ecfu, 1},
    };
    use_isa(state);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float x = ds_f32_from_bits(cases[i].x), y;
        ds_pinned_code()->exp(&y, &x, 1);
        assert_bits_equal("exp", i, y, ds_f32_from_bits(cases[i].y));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),   cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_silu_mul), cmocka_unit_test(test_rope),
        PER_ISA(test_exp_error),         PER_ISA(test_exp_limits),
    };
    return cmocka_run_group_tests_name("accuracy", tests, NULL, NULL);
}
