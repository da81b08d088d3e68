/* test_norm_variants.c: rmsnorm in other orders: every output equals a transcription of its order,
 * the claims hold, and what is not claimed is really broken at some setting. */
#include "tests/unit/kernels/harness.h"
#include "tests/unit/kernels/oracle_variants.h"

static const char *const variants[] = {"rows", "split", "tail", "cast-first"};
enum { N_VARIANTS = sizeof variants / sizeof variants[0] };
static const float EPS = 1e-5f;

enum { MOST_THREADS = 9 };
static struct ds_team *teams[MOST_THREADS + 1];

/* launch_named with an activation type, and one team for each number of threads. */
static void launch_as(const struct ds_kernel *k, const struct ds_rmsnorm_args *a, int threads,
                      int32_t dtype)
{
    char why[200] = "";
    struct ds_error err;
    if (!teams[threads])
        teams[threads] = ds_team_new(threads, &err);
    assert_non_null(teams[threads]);
    struct ds_exec exec = {
        .threads = threads, .team = teams[threads], .run = run_team, .dtype = dtype};
    exec.scratch_bytes = k->scratch_bytes ? k->scratch_bytes(a, threads) : 0;
    exec.scratch = exec.scratch_bytes ? aligned_alloc(64, exec.scratch_bytes) : NULL;
    if (k->launch(a, &exec, why, sizeof why) != 0)
        fail_msg("%s: %s", k->name, why);
    free(exec.scratch);
}

static int free_teams(void **state)
{
    (void)state;
    for (int t = 0; t <= MOST_THREADS; t++)
        ds_team_free(teams[t]);
    return 0;
}

static void same_value(const char *name, int64_t at, float got, float want)
{
    if (!(isnan(got) && isnan(want))) /* which NaN it is is fixed for pinned kernels only */
        assert_bits_equal(name, at, got, want);
}

static void test_equals_transcription(void **state)
{
    static const int64_t widths[] = {1, 2, 3, 7, 8, 9, 31, 64, 100, 576, 577};
    static const int64_t counts[] = {1, 2, 3, 4, 5, 9};
    static const int32_t dtypes[] = {DS_ELEMENT_F32, DS_ELEMENT_BF16, DS_ELEMENT_F16};
    (void)state;
    for (int v = 0; v < N_VARIANTS; v++)
        for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
            for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
                const struct ds_kernel *k = kernel(DS_OP_RMSNORM, variants[v]);
                const int64_t n = widths[i], rows = counts[c];
                const int threads = (int)(i + c) % 9 + 1;
                const int32_t dtype = dtypes[(i + c) % 3];
                const unsigned special = i % 4 == 3 ? 60 : 0;
                struct matrix x = matrix_random(rows, n, n + 3, 1, special),
                              w = matrix_random(1, n, n, 1, special),
                              y = matrix_new(rows, n, n + 1, 1);
                struct ds_rmsnorm_args a = {rows, n, x.p, x.ld, w.p, EPS, y.p, y.ld, 0};
                launch_as(k, &a, threads, dtype);
                matrix_check(k->name, &y);
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t j = 0; j < n; j++)
                        same_value(
                            k->name, j, y.p[r * y.ld + j],
                            o_norm(k->name, x.p + r * x.ld, w.p, EPS, n, rows, threads, dtype, j));
                matrix_free(&x), matrix_free(&w), matrix_free(&y);
            }
}

/* Large enough for the kernels to use all threads. */
static void test_large_calls_equal_transcription(void **state)
{
    enum { N = 20001, ROWS = 3, THREADS = 4 };
    (void)state;
    struct matrix x = matrix_random(ROWS, N, N, 0, 0), w = matrix_random(1, N, N, 1, 0),
                  y = matrix_new(ROWS, N, N, 0);
    for (int v = 0; v < N_VARIANTS; v++)
        for (int64_t rows = 1; rows <= ROWS; rows++) {
            struct ds_rmsnorm_args a = {rows, N, x.p, N, w.p, EPS, y.p, N, 0};
            launch_as(kernel(DS_OP_RMSNORM, variants[v]), &a, THREADS, DS_ELEMENT_BF16);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t j = 0; j < N; j += 997)
                    same_value(variants[v], j, y.p[r * N + j],
                               o_norm(variants[v], x.p + r * N, w.p, EPS, N, rows, THREADS,
                                      DS_ELEMENT_BF16, j));
        }
    matrix_free(&x), matrix_free(&w), matrix_free(&y);
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* A sum that is off by a unit in the last place changes the root in one case of two only: so several
 * rows are tried. */
enum { WIDE = 301, MOST = 9, DRAWS = 12 };

/* Rows first..first+rows-1 of x, on so many threads; the row `subject` of x is kept in out. */
static void one_call(const struct ds_kernel *k, const struct matrix *x, const struct matrix *w,
                     int64_t first, int64_t rows, int64_t subject, int threads, float *out)
{
    struct matrix y = matrix_new(rows, WIDE, WIDE, 0);
    struct ds_rmsnorm_args a = {rows, WIDE, x->p + first * x->ld, x->ld, w->p, EPS, y.p, WIDE, 0};
    launch_as(k, &a, threads, DS_ELEMENT_BF16);
    memcpy(out, y.p + (subject - first) * WIDE, WIDE * sizeof *out);
    matrix_free(&y);
}

static uint32_t measured(const struct ds_kernel *k, const struct matrix *x, const struct matrix *w)
{
    float want[WIDE], y[WIDE];
    uint32_t holds = DS_CLAIM_ALL;
    for (int threads = 1; threads <= 8; threads++) {
        one_call(k, x, w, 4, 1, 4, threads, want);
        one_call(k, x, w, 4, 1, 4, threads, y);
        holds &= ~(memcmp(want, y, sizeof y) ? DS_CLAIM_REPEAT : 0u);
        for (int64_t rows = 2; rows <= MOST; rows++) {
            one_call(k, x, w, 0, rows < 5 ? 5 : rows, 4, threads, y);
            /* a row of a prompt in one call, and alone as in decoding */
            holds &= ~(memcmp(want, y, sizeof y) ? DS_CLAIM_BATCH | DS_CLAIM_CHUNK : 0u);
        }
        one_call(k, x, w, 4, 1, 4, 1, want);
        one_call(k, x, w, 4, 1, 4, threads, y);
        holds &= ~(memcmp(want, y, sizeof y) ? DS_CLAIM_THREADS : 0u);
        one_call(k, x, w, 4, 3, 4, threads, want);
        for (int64_t first = 2; first < 4; first++) {
            one_call(k, x, w, first, 3, 4, threads, y);
            holds &= ~(memcmp(want, y, sizeof y) ? DS_CLAIM_SLOT : 0u);
        }
    }
    return holds;
}

static void test_claims_are_what_is_measured(void **state)
{
    static const char *const all[] = {"rows",   "split", "tail",     "cast-first",
                                      "pinned", "fused", "reference"};
    (void)state;
    struct matrix x = matrix_new(MOST, WIDE, WIDE, 0), w = matrix_random(1, WIDE, WIDE, 0, 0);
    for (size_t v = 0; v < sizeof all / sizeof all[0]; v++) {
        const struct ds_kernel *k = kernel(DS_OP_RMSNORM, all[v]);
        uint32_t holds = DS_CLAIM_ALL;
        for (int draw = 0; draw < DRAWS; draw++) {
            randomise(&x, 0);
            holds &= measured(k, &x, &w);
        }
        if (holds != k->claims) {
            print_error("rmsnorm/%s: claims %#x, measured %#x\n", all[v], (unsigned)k->claims,
                        (unsigned)holds);
            fail();
        }
    }
    matrix_free(&x), matrix_free(&w);
}

/* With enough rows split is rows; in f32 cast-first is rows, in 16 bits it is not; tail never is. */
static void test_what_they_share_with_rows(void **state)
{
    static const struct {
        const char *variant;
        int64_t rows;
        int threads;
        int32_t dtype;
        int same;
    } cases[] = {{"split", 1, 1, DS_ELEMENT_BF16, 1},      {"split", 1, 2, DS_ELEMENT_BF16, 0},
                 {"split", 2, 2, DS_ELEMENT_F32, 1},       {"split", 3, 8, DS_ELEMENT_F32, 0},
                 {"split", 5, 8, DS_ELEMENT_F32, 1},       {"cast-first", 2, 2, DS_ELEMENT_F32, 1},
                 {"cast-first", 2, 2, DS_ELEMENT_BF16, 0}, {"cast-first", 2, 2, DS_ELEMENT_F16, 0},
                 {"tail", 2, 2, DS_ELEMENT_F32, 0}};
    (void)state;
    struct matrix x = matrix_random(MOST, WIDE, WIDE, 0, 0), w = matrix_random(1, WIDE, WIDE, 0, 0);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        float y[2][MOST * WIDE];
        int same = 1;
        for (int draw = 0; draw < DRAWS; draw++) {
            randomise(&x, 0);
            for (int i = 0; i < 2; i++) {
                struct ds_rmsnorm_args a = {cases[c].rows, WIDE, x.p,  WIDE, w.p,
                                            EPS,           y[i], WIDE, 0};
                launch_as(kernel(DS_OP_RMSNORM, i ? cases[c].variant : "rows"), &a,
                          cases[c].threads, cases[c].dtype);
            }
            same &= memcmp(y[0], y[1], (size_t)cases[c].rows * WIDE * 4) == 0;
        }
        if (same != cases[c].same)
            fail_msg("case %zu: rmsnorm/%s is%s rows", c, cases[c].variant,
                     cases[c].same ? " not" : "");
    }
    matrix_free(&x), matrix_free(&w);
}

static void test_refusals_and_choices(void **state)
{
    float x[64] = {0}, y[64];
    char why[200] = "";
    struct ds_rmsnorm_args a = {1, 64, x, 64, x, EPS, y, 64, 0};
    struct ds_exec exec = {.threads = 4, .dtype = DS_ELEMENT_I32};
    struct ds_launch_info info;
    (void)state;
    const struct ds_kernel *split = kernel(DS_OP_RMSNORM, "split");
    assert_int_equal(kernel(DS_OP_RMSNORM, "cast-first")->launch(&a, &exec, why, sizeof why), -1);
    assert_non_null(strstr(why, "activation type 3"));
    assert_int_equal(split->launch(&a, &exec, why, sizeof why), -1);
    assert_non_null(strstr(why, "scratch memory of 0 bytes"));
    static const int split_of[] = {0, 4, 2, 1, 1};
    for (a.rows = 1; a.rows <= 4; a.rows++) {
        assert_int_equal(split->describe(&a, &exec, &info), 0);
        assert_int_equal(info.split, split_of[a.rows]);
    }
    a.rows = 1, a.width = 3; /* no empty parts */
    assert_int_equal(split->describe(&a, &exec, &info), 0);
    assert_int_equal(info.split, 3);
}

/* Half of the relative error of a sum of squares reaches the root, then a few roundings follow. */
static void test_accuracy(void **state)
{
    (void)state;
    for (int v = 0; v < N_VARIANTS; v++)
        for (int64_t n = 1; n <= 3001; n += 1000) {
            struct matrix x = matrix_random(1, n, n, 1, 0), w = matrix_random(1, n, n, 0, 0),
                          y = matrix_new(1, n, n, 1);
            struct ds_rmsnorm_args a = {1, n, x.p, n, w.p, EPS, y.p, n, 0};
            launch_as(kernel(DS_OP_RMSNORM, variants[v]), &a, 3, DS_ELEMENT_F32);
            long double sum = 0;
            for (int64_t j = 0; j < n; j++)
                sum += (long double)x.p[j] * (long double)x.p[j];
            long double inv = 1 / sqrtl(sum / n + (long double)EPS);
            for (int64_t j = 0; j < n; j++) {
                long double exact = (long double)x.p[j] * inv * (long double)w.p[j];
                double lanes = strcmp(variants[v], "tail") == 0 ? 8 : 4;
                double tol =
                    (0.5 * (ceil((double)n / lanes) + 12) + 4) * 0x1p-24 * (double)fabsl(exact);
                assert_close(variants[v], j, y.p[j], exact, tol);
            }
            matrix_free(&x), matrix_free(&w), matrix_free(&y);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_transcription),
        cmocka_unit_test(test_large_calls_equal_transcription),
        cmocka_unit_test(test_claims_are_what_is_measured),
        cmocka_unit_test(test_what_they_share_with_rows),
        cmocka_unit_test(test_refusals_and_choices),
        cmocka_unit_test(test_accuracy),
    };
    return cmocka_run_group_tests_name("norm variants", tests, NULL, free_teams);
}
