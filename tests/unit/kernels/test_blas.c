/* test_blas.c: OpenBLAS behind dlopen. The library is opened in child processes, since its core
 * cannot change in one. No test assumes a core or a switching point: matmul/openblas is compared
 * with a direct call of the library. */
#include "tests/unit/kernels/harness.h"

#include <limits.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

enum { CHILD_OK = 0, CHILD_SKIP = 77 };

/* Runs fn in a child; a failed assertion there ends the child with another status. */
static void in_child(int (*fn)(const char *), const char *arg)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn(arg));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        print_error("%s: child ended by signal %d\n", arg ? arg : "", WTERMSIG(status));
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_SKIP)
        skip();
    assert_int_equal(WEXITSTATUS(status), CHILD_OK);
}

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #cond);                                     \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Opens the library or says that it is absent. */
static int open_or_skip(const char *core)
{
    struct ds_error err;
    if (ds_blas_open(core, &err) == 0)
        return CHILD_OK;
    fprintf(stderr, "%s\n", err.msg);
    return CHILD_SKIP;
}

/* matmul/openblas has the bits of cblas_sgemm for the same sizes, strides and threads, and is
 * accurate. */
static int same_as_direct_call(const char *core)
{
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 192, 576},  {3, 64, 576},
                                       {4, 64, 576}, {13, 100, 257}, {64, 33, 300}};
    int rc = open_or_skip(core);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int threads = 1; threads <= 2; threads++) {
            int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            struct matrix x = matrix_random(m, k, k + 3, 1, 0), w = matrix_random(n, k, k, 0, 0),
                          b = matrix_random(1, n, n, 0, 0);
            struct matrix y = matrix_new(m, n, n + 2, 1), direct = matrix_new(m, n, n + 2, 1);
            struct ds_matmul_args a = {.rows = m,
                                       .n = n,
                                       .k = k,
                                       .x = x.p,
                                       .ldx = x.ld,
                                       .w = {w.p, n, k},
                                       .y = y.p,
                                       .ldy = y.ld,
                                       .bias = i % 2 ? b.p : NULL};
            launch_named(kernel(DS_OP_MATMUL, "openblas"), &a, threads);
            matrix_check("openblas", &y);
            CHECK(ds_blas_set_threads(threads) == 0);
            CHECK(ds_blas_sgemm_nt((int)m, (int)n, (int)k, x.p, (int)x.ld, w.p, (int)k, direct.p,
                                   (int)direct.ld) == 0);
            for (int64_t r = 0; r < m; r++) {
                for (int64_t j = 0; j < n; j++) {
                    double exact = 0, size = 0;
                    float want = direct.p[r * direct.ld + j] + (i % 2 ? b.p[j] : 0.0f);
                    for (int64_t t = 0; t < k; t++) {
                        double term = (double)x.p[r * x.ld + t] * (double)w.p[j * k + t];
                        exact += term, size += fabs(term);
                    }
                    CHECK(ds_f32_bits(y.p[r * y.ld + j]) ==
                          ds_f32_bits(i % 2 ? want : direct.p[r * direct.ld + j]));
                    CHECK(fabs((double)direct.p[r * direct.ld + j] - exact) <=
                          (double)k * 0x1p-23 * size);
                }
            }
            matrix_free(&x), matrix_free(&w), matrix_free(&b), matrix_free(&y),
                matrix_free(&direct);
        }
    }
    struct ds_launch_info info;
    struct ds_exec exec = {.threads = 1};
    CHECK(kernel(DS_OP_MATMUL, "openblas")->describe(NULL, &exec, &info) == 0);
    CHECK(info.threads == 1 && strcmp(info.algo, ds_blas_core()) == 0 &&
          (!core || strcmp(core, info.algo) == 0));
    return CHILD_OK;
}

static void test_every_core(void **state)
{
    const char *core = *state;
    if (core && ds_blas_core_runs_here(core) != 1) {
        print_message("openblas core %s: this CPU lacks its instructions\n", core);
        skip();
    }
    in_child(same_as_direct_call, core);
}

/* What an unrelated thread of the test sees: variables as before, rounding mode as before, one core
 * for good. */
static int opens_once(const char *arg)
{
    struct ds_error err;
    unsigned mxcsr = _mm_getcsr() & 0xffc0u;
    (void)arg;
    CHECK(!ds_blas_is_open() && ds_blas_core()[0] == '\0' && ds_blas_set_threads(1) == -1);
    CHECK(ds_blas_sgemm_nt(1, 1, 1, NULL, 1, NULL, 1, NULL, 1) == -1);
    setenv("OPENBLAS_CORETYPE", "Prescott", 1);
    const char *core = ds_blas_core_runs_here("Haswell") == 1 ? "Haswell" : "Nehalem";
    if (open_or_skip(core))
        return CHILD_SKIP;
    CHECK(strcmp(getenv("OPENBLAS_CORETYPE"), "Prescott") == 0);
    CHECK((_mm_getcsr() & 0xffc0u) == mxcsr);
    CHECK(ds_blas_is_open() && strcmp(ds_blas_core(), core) == 0);
    CHECK(strstr(ds_blas_config(), "OpenBLAS") != NULL);
    CHECK(ds_blas_open(core, &err) == 0 && ds_blas_open(NULL, &err) == 0 &&
          ds_blas_open("", &err) == 0);
    CHECK(ds_blas_open("Prescott", &err) == -1 && strstr(err.msg, "is open with core") != NULL);
    CHECK(ds_blas_max_threads() >= 1);
    CHECK(ds_blas_set_threads(0) == -1 && ds_blas_set_threads(ds_blas_max_threads() + 1) == -1);
    CHECK(ds_blas_set_threads(1) == 0);
    return CHILD_OK;
}

static void test_opens_once(void **state)
{
    (void)state;
    in_child(opens_once, NULL);
}

static int bad_cores(const char *arg)
{
    struct ds_error err;
    (void)arg;
    CHECK(ds_blas_core_runs_here("Hasswell") == -1);
    CHECK(ds_blas_open("Hasswell", &err) == -1);
    CHECK(strstr(err.msg, "unknown openblas core 'Hasswell'") && strstr(err.hint, "Haswell"));
    if (ds_blas_core_runs_here("SkylakeX") == 0) {
        CHECK(ds_blas_open("SkylakeX", &err) == -1 && strstr(err.msg, "SkylakeX") &&
              strstr(err.msg, "lacks"));
        /* The variable alone, set by the user, must not lead to an illegal instruction either. */
        setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
        if (ds_blas_open(NULL, &err) == 0)
            CHECK(ds_blas_core_runs_here(ds_blas_core()) == 1);
        else
            CHECK(strstr(err.msg, "SkylakeX") || strstr(err.msg, "cannot be opened"));
    }
    return CHILD_OK;
}

static void test_bad_cores(void **state)
{
    (void)state;
    in_child(bad_cores, NULL);
}

/* Asking whether openblas is there does not choose its core. */
static int asking_leaves_core_open(const char *arg)
{
    struct ds_kernel_set set;
    struct ds_error err;
    (void)arg;
    CHECK(ds_kernel_set_parse("vendor", &set, &err) == 0);
    if (ds_kernel_set_available(&set, &err) != 0) {
        CHECK(strstr(err.msg, "matmul/openblas cannot run here"));
        return CHILD_SKIP;
    }
    CHECK(!ds_blas_is_open());
    CHECK(ds_blas_open("Prescott", &err) == 0 && strcmp(ds_blas_core(), "Prescott") == 0);
    CHECK(ds_kernel_set_available(&set, &err) == 0 && strcmp(ds_blas_core(), "Prescott") == 0);
    return CHILD_OK;
}

static void test_asking_leaves_core_open(void **state)
{
    (void)state;
    in_child(asking_leaves_core_open, NULL);
}

#define CORE(name)                                                                                 \
    {                                                                                              \
        "test_every_core " name, test_every_core, NULL, NULL, (void *)(uintptr_t)name              \
    }

static void nothing(void *arg, int thread, int threads)
{
    (void)arg, (void)thread, (void)threads;
}

/* No member of the caller's team spins beside the library's threads: here they would for minutes. */
static int team_sleeps_beside_the_library(const char *core)
{
    float x[64] = {0}, w[64] = {0}, y[64];
    char why[200] = "";
    struct ds_error err;
    int rc = open_or_skip(core);
    if (rc)
        return rc;
    ds_team_set_spin(INT_MAX);
    struct ds_team *team = ds_team_new(3, &err);
    CHECK(team);
    struct ds_exec exec = {.threads = 3, .team = team, .run = run_team};
    struct ds_matmul_args a = {
        .rows = 8, .n = 8, .k = 8, .x = x, .ldx = 8, .w = {w, 8, 8}, .y = y, .ldy = 8};
    ds_team_run(team, nothing, NULL);
    CHECK(ds_team_asleep(team) == 0);
    CHECK(kernel(DS_OP_MATMUL, "openblas")->launch(&a, &exec, why, sizeof why) == 0);
    while (ds_team_asleep(team) <
           2) /* however long that takes here: a member that never does hangs */
        sched_yield();
    ds_team_free(team);
    return CHILD_OK;
}

static void test_team_sleeps_beside_the_library(void **state)
{
    (void)state;
    in_child(team_sleeps_beside_the_library, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"test_every_core default", test_every_core, NULL, NULL, NULL},
        CORE("Prescott"),
        CORE("Nehalem"),
        CORE("Sandybridge"),
        CORE("Haswell"),
        CORE("Zen"),
        CORE("SkylakeX"),
        CORE("Cooperlake"),
        CORE("SapphireRapids"),
        cmocka_unit_test(test_team_sleeps_beside_the_library),
        cmocka_unit_test(test_opens_once),
        cmocka_unit_test(test_bad_cores),
        cmocka_unit_test(test_asking_leaves_core_open),
    };
    return cmocka_run_group_tests_name("openblas", tests, NULL, NULL);
}
