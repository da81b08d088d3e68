/* test_cblas.c: a library with a cblas_sgemm beside OpenBLAS: in one process each gives the bits that
 * it gives alone. The tests' own library (tests/plugins/cblas.c) always runs; BLIS and MKL where they
 * are installed: libblis4-pthread of Debian, and what `make mkl` puts into the cache. Libraries are
 * opened in child processes, since a process has one. */
#include "tests/unit/kernels/harness.h"

#include "kernels/cblas.h"
#include "kernels/lab/order.h"

#include <glob.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_OK = 0, CHILD_SKIP = 77, MOST_ROWS = 16, N = 70, K = 300 };

static char own[] = "/tmp/driftscope-test-XXXXXX/own.so"; /* a folder of this test's own */

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #cond);                                     \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static void in_child(int (*fn)(const char *), const char *library)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn(library));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_SKIP)
        skip();
    assert_int_equal(WEXITSTATUS(status), CHILD_OK);
}

/* ---- the libraries --------------------------------------------------------------------------- */

static int build_own(void **state)
{
    char command[300];
    (void)state;
    *strrchr(own, '/') = '\0';
    if (!mkdtemp(own))
        return -1;
    own[strlen(own)] = '/';
    snprintf(command, sizeof command,
             "gcc -O1 -shared -fPIC -DPACKS -o %s tests/plugins/cblas.c 2>&1", own);
    if (system("command -v gcc >/dev/null 2>&1") == 0 && system(command) != 0)
        return -1;
    return 0;
}

static int remove_own(void **state)
{
    (void)state;
    remove(own);
    *strrchr(own, '/') = '\0';
    return rmdir(own);
}

/* The folder that tests/tools/fetch_mkl fills. */
static void cache_folder(char *out, size_t size)
{
    const char *given = getenv("DRIFTSCOPE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (given && *given)
        snprintf(out, size, "%s", given);
    else if (xdg && *xdg == '/')
        snprintf(out, size, "%s/driftscope", xdg);
    else
        snprintf(out, size, "%s/.cache/driftscope", home ? home : "");
}

/* The path of a library that is installed, or a visible skip. */
static const char *library(const char *name)
{
    static char path[512];
    char cache[400];
    glob_t found;
    cache_folder(cache, sizeof cache);
    path[0] = '\0';
    if (strcmp(name, "own") == 0)
        snprintf(path, sizeof path, "%s", own);
    else if (strcmp(name, "blis") == 0)
        snprintf(path, sizeof path, "/usr/lib/x86_64-linux-gnu/blis-pthread/libblis.so.4");
    else
        snprintf(path, sizeof path, "%s/mkl/%s/lib/libmkl_rt.so.*", cache, name);
    const char *result = NULL;
    if (glob(path, 0, NULL, &found) == 0 && found.gl_pathc > 0) {
        snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
        globfree(&found);
        result = path;
    }
    if (!result) {
        print_message("%s is not here%s\n", path, strstr(path, "/mkl/") ? " (make mkl)" : "");
        skip();
    }
    return result;
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* The outputs of a variant for every number of rows up to MOST_ROWS, side by side. */
struct bits {
    float y[MOST_ROWS][MOST_ROWS * N];
};

static void run_all(const char *variant, int threads, struct bits *out)
{
    rng_state = 77;
    struct matrix x = matrix_random(MOST_ROWS, K, K, 0, 0), w = matrix_random(N, K, K, 0, 0);
    memset(out, 0, sizeof *out);
    for (int64_t m = 1; m <= MOST_ROWS; m++) {
        struct ds_matmul_args a = {.rows = m,
                                   .n = N,
                                   .k = K,
                                   .x = x.p,
                                   .ldx = K,
                                   .w = {.data = w.p, .n = N, .k = K},
                                   .y = out->y[m - 1],
                                   .ldy = N};
        launch_named(kernel(DS_OP_MATMUL, variant), &a, threads);
    }
    matrix_free(&x), matrix_free(&w);
}

/* Shared with the children. */
static struct bits *alone_openblas, *alone_other;

static int openblas_alone(const char *path)
{
    struct ds_error err;
    (void)path;
    if (ds_blas_open(NULL, &err) != 0)
        return CHILD_SKIP;
    run_all("openblas", 1, alone_openblas);
    return CHILD_OK;
}

static int other_alone(const char *path)
{
    struct ds_error err;
    CHECK(ds_cblas_choose(path, 60, &err) == 0);
    CHECK(!ds_blas_is_open());
    run_all("cblas", 1, alone_other);
    return CHILD_OK;
}

static int other_first(const char *path)
{
    static struct bits got;
    struct ds_error err;
    CHECK(ds_cblas_choose(path, 60, &err) == 0);
    for (int round = 0; round < 2; round++) {
        run_all("cblas", 1, &got);
        CHECK(memcmp(&got, alone_other, sizeof got) == 0);
        run_all("openblas", 1, &got);
        CHECK(memcmp(&got, alone_openblas, sizeof got) == 0);
    }
    return CHILD_OK;
}

static int openblas_first(const char *path)
{
    static struct bits got;
    struct ds_error err;
    CHECK(ds_cblas_choose(path, 60, &err) == 0);
    run_all("openblas", 1, &got);
    CHECK(memcmp(&got, alone_openblas, sizeof got) == 0);
    run_all("cblas", 1, &got);
    CHECK(memcmp(&got, alone_other, sizeof got) == 0);
    run_all("openblas", 1, &got);
    CHECK(memcmp(&got, alone_openblas, sizeof got) == 0);
    return CHILD_OK;
}

static void test_two_libraries_in_one_process(void **state)
{
    const char *path = library(*state);
    in_child(openblas_alone, NULL);
    in_child(other_alone, path);
    /* Else the comparison would say nothing. */
    assert_true(memcmp(alone_openblas, alone_other, sizeof *alone_other) != 0);
    in_child(other_first, path);
    in_child(openblas_first, path);
}

/* ---- what it does, what it says -------------------------------------------------------------- */

/* Sizes, strides, bias; the order of the tests' own library; NaN-safe closeness for the others. */
static int is_a_matmul(const char *path)
{
    struct ds_error err;
    const int is_own = path == own || strcmp(path, own) == 0;
    CHECK(ds_cblas_choose(path, 60, &err) == 0);
    for (int threads = 1; threads <= 2; threads++) {
        struct matrix x = matrix_random(7, K, K + 3, 1, 0), w = matrix_random(N, K, K, 0, 0),
                      b = matrix_random(1, N, N, 0, 0), y = matrix_new(7, N, N + 2, 1);
        struct ds_matmul_args a = {7,    N,   K,   x.p,  x.ld, {.data = w.p, .n = N, .k = K},
                                   NULL, b.p, y.p, y.ld, 0,    0};
        launch_named(kernel(DS_OP_MATMUL, "cblas"), &a, threads);
        matrix_check("cblas", &y);
        for (int64_t r = 0; r < 7; r++)
            for (int64_t j = 0; j < N; j++) {
                double exact = (double)b.p[j], size = fabs(exact);
                float s = 0.0f, got = y.p[r * y.ld + j];
                for (int64_t k = K - 1; k >= 0; k--) {
                    double term = (double)x.p[r * x.ld + k] * (double)w.p[j * K + k];
                    exact += term, size += fabs(term);
                    s += x.p[r * x.ld + k] * w.p[j * K + k];
                }
                CHECK(fabs((double)got - exact) <= K * 0x1p-23 * size);
                CHECK(!is_own || ds_f32_bits(got) == ds_f32_bits(s + b.p[j]));
            }
        matrix_free(&x), matrix_free(&w), matrix_free(&b), matrix_free(&y);
    }
    struct ds_launch_info one, two;
    struct ds_exec exec = {.threads = 1};
    CHECK(kernel(DS_OP_MATMUL, "cblas")->describe(NULL, &exec, &one) == 0);
    exec.threads = 2;
    CHECK(kernel(DS_OP_MATMUL, "cblas")->describe(NULL, &exec, &two) == 0);
    CHECK(one.threads == !is_own && two.threads == 0); /* 0: unknown */
    CHECK(strncmp(one.algo, ds_cblas_config(), sizeof one.algo - 1) == 0);
    CHECK(strcmp(ds_cblas_config(), "unknown") == 0 ? is_own : !is_own);
    CHECK(ds_cblas_set_threads(0) == -1);
    return CHILD_OK;
}

static void test_is_a_matmul(void **state)
{
    in_child(is_a_matmul, library(*state));
}

/* Weights that the library packed ahead: the matmul it is, at every number of rows, moved as the lab
 * moves them, and the bits of a second call. */
static int packed_ahead(const char *path)
{
    struct ds_error err;
    char why[200] = "";
    const int is_own = strcmp(path, own) == 0;
    const struct ds_kernel *kernel_packed = kernel(DS_OP_MATMUL, "cblas-packed");
    CHECK(ds_cblas_choose(path, 60, &err) == 0);
    if (ds_cblas_packs() == 0)
        return CHILD_SKIP;
    CHECK(ds_cblas_packs() == 1 && kernel_packed->available(why, sizeof why) == 0);
    struct matrix x = matrix_random(MOST_ROWS, K, K, 0, 0), w = matrix_random(N, K, K, 0, 0);
    struct ds_matmul_args a = {.n = N, .k = K, .x = x.p, .ldx = K, .ldy = N};
    static float y[MOST_ROWS * N], again[MOST_ROWS * N];
    void *packed = NULL;
    size_t bytes = 0;
    a.w = (struct ds_weight_view){.data = w.p, .n = N, .k = K};
    CHECK(kernel_packed->prepare(&a.w, &packed, &bytes, why, sizeof why) == 0);
    CHECK(bytes && bytes % DS_CBLAS_PACKED_ALIGN == 0);
    void *moved = aligned_alloc(DS_CBLAS_PACKED_ALIGN, bytes);
    memcpy(moved, packed, bytes);
    memset(packed, 0xff, bytes);
    a.prepared = moved;
    for (int threads = 1; threads <= 2; threads++)
        for (int64_t m = 1; m <= MOST_ROWS; m++) {
            a.rows = m;
            a.y = y;
            launch_named(kernel_packed, &a, threads);
            a.y = again;
            launch_named(kernel_packed, &a, threads);
            CHECK(memcmp(y, again, sizeof(float) * (size_t)(m * N)) == 0);
            for (int64_t i = 0; i < m * N; i++) {
                double exact = 0, size = 0;
                float s = 0.0f;
                for (int64_t k = K - 1; k >= 0; k--) {
                    double term = (double)x.p[i / N * K + k] * (double)w.p[i % N * K + k];
                    exact += term, size += fabs(term);
                    s += x.p[i / N * K + k] * w.p[i % N * K + k];
                }
                CHECK(fabs((double)y[i] - exact) <= K * 0x1p-23 * size);
                CHECK(!is_own || ds_f32_bits(y[i]) == ds_f32_bits(s));
            }
        }
    struct ds_exec exec = {.threads = 1};
    a.prepared = NULL;
    CHECK(kernel_packed->launch(&a, &exec, why, sizeof why) == -1 && strstr(why, "not packed"));
    a.prepared = (char *)packed + 64;
    CHECK(kernel_packed->launch(&a, &exec, why, sizeof why) == -1 && strstr(why, "a page"));
    a.w.data = NULL;
    CHECK(kernel_packed->prepare(&a.w, &packed, &bytes, why, sizeof why) == -1);
    return CHILD_OK;
}

static void test_packed_ahead(void **state)
{
    in_child(packed_ahead, library(*state));
}

/* In which order it adds, at every number of rows: the trees that are measured from outside give its
 * bits, and rows that come out alike are added alike. */
static int order_is_found(const char *path)
{
    struct ds_order_library lib = {0};
    struct ds_error err;
    CHECK(ds_cblas_choose(path, 60, &err) == 0);
    for (int64_t m = 1; m <= MOST_ROWS; m++) {
        const struct ds_order_setting s = {.kernel = kernel(DS_OP_MATMUL, "cblas"),
                                           .shape = {.op = DS_OP_MATMUL, .n = N, .k = K},
                                           .rows = m,
                                           .threads = 1};
        struct ds_order o;
        CHECK(ds_order_measure(&s, &lib, &o, &err) == 0);
        CHECK(o.sum[0].fixed && o.sum[0].compared >= (uint64_t)(m * N));
        CHECK(o.sum[0].reproduced == o.sum[0].compared);
        ds_order_free(&o);
    }
    ds_order_library_free(&lib);
    return CHILD_OK;
}

static void test_order_is_found(void **state)
{
    in_child(order_is_found, library(*state));
}

static int nothing_chosen(const char *path)
{
    struct ds_error err;
    char why[200];
    float x[4] = {0}, y[4];
    struct ds_exec exec = {.threads = 1};
    struct ds_matmul_args a = {.rows = 2, .n = 2, .k = 2, .x = x, .ldx = 2, .y = y, .ldy = 2};
    a.w = (struct ds_weight_view){.data = x, .n = 2, .k = 2};
    (void)path;
    CHECK(kernel(DS_OP_MATMUL, "cblas")->available(why, sizeof why) == -1);
    CHECK(strstr(why, "--blas") != NULL);
    CHECK(kernel(DS_OP_MATMUL, "cblas-packed")->available(why, sizeof why) == -1);
    CHECK(strstr(why, "--blas") != NULL && ds_cblas_packs() == 0);
    CHECK(kernel(DS_OP_MATMUL, "cblas")->launch(&a, &exec, why, sizeof why) == -1);
    CHECK(strstr(why, "no library") != NULL);
    CHECK(ds_cblas_open(&err) == -1 && strstr(err.hint, "--blas") != NULL);
    CHECK(ds_cblas_set_threads(1) == -1 && *ds_cblas_config() == '\0' && !ds_cblas_digest());
    CHECK(ds_cblas_sgemm_nt(1, 1, 1, x, 1, x, 1, y, 1) == -1);
    CHECK(ds_cblas_choose("/nowhere.so", 5, &err) == -1 && strstr(err.msg, "cannot be opened"));
    return CHILD_OK;
}

static void test_nothing_chosen(void **state)
{
    (void)state;
    in_child(nothing_chosen, NULL);
}

#define EACH(test)                                                                                 \
    {#test " own", test, NULL, NULL, (void *)(uintptr_t) "own"},                                   \
        {#test " blis", test, NULL, NULL, (void *)(uintptr_t) "blis"},                             \
        {#test " MKL 2024.2", test, NULL, NULL, (void *)(uintptr_t) "2024.2"},                     \
    {                                                                                              \
#test " MKL 2026.2", test, NULL, NULL, (void *)(uintptr_t) "2026.2"                        \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(test_two_libraries_in_one_process),
        EACH(test_is_a_matmul),
        EACH(test_packed_ahead),
        EACH(test_order_is_found),
        cmocka_unit_test(test_nothing_chosen),
    };
    struct bits *shared =
        mmap(NULL, 2 * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    alone_openblas = shared, alone_other = shared + 1;
    return cmocka_run_group_tests_name("cblas", tests, build_own, remove_own);
}
