/* test_order_blas.c: OpenBLAS's order of addition, core by core, is found and reproduces every
 * output. Each core is opened in a child process, since it cannot change in one. No test assumes an
 * order: the replay is held against the library itself.
 *
 * DRIFTSCOPE_ORDER_FULL=1 (make proof) runs all row counts 1..64 at every matmul shape of SmolLM2-135M:
 * minutes.
 * DS_TEST_CORE leaves the other cores out. */
#include "tests/unit/kernels/harness.h"

#include "kernels/lab/order.h"

#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_OK = 0, CHILD_SKIP = 77 };

static int reproduced(const struct ds_shape *shape, int64_t rows, struct ds_order_library *lib)
{
    struct ds_order_setting s = {
        .kernel = kernel(DS_OP_MATMUL, "openblas"), .shape = *shape, .rows = rows, .threads = 1};
    struct ds_order o;
    struct ds_error err;
    if (ds_order_measure(&s, lib, &o, &err) != 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 0;
    }
    const struct ds_order_sum *u = &o.sum[0];
    int ok = u->fixed && u->compared >= (uint64_t)(rows * shape->n) && u->reproduced == u->compared;
    if (!ok)
        fprintf(stderr, "core %s, n %d, k %d, %d rows: %llu of %llu outputs\n", ds_blas_core(),
                (int)shape->n, (int)shape->k, (int)rows, (unsigned long long)u->reproduced,
                (unsigned long long)u->compared);
    ds_order_free(&o);
    return ok;
}

static int one_core(const char *core)
{
    static const char *const some[] = {"n=192,k=576", "n=65,k=1536", "n=33,k=71"};
    static const char *const all[] = {"n=576,k=576", "n=192,k=576", "n=1536,k=576", "n=576,k=1536",
                                      "n=49152,k=576"};
    static const int64_t few[] = {1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 17, 24, 33, 64};
    const char *full = getenv("DRIFTSCOPE_ORDER_FULL");
    const int whole = full && strcmp(full, "1") == 0;
    struct ds_error err;
    int bad = 0;
    if (ds_blas_open(core, &err) != 0) {
        fprintf(stderr, "%s\n", err.msg);
        return CHILD_SKIP;
    }
    for (size_t i = 0; i < (whole ? 5 : 3); i++) {
        struct ds_order_library lib = {0};
        struct ds_shape shape;
        if (ds_shape_parse(DS_OP_MATMUL, whole ? all[i] : some[i], &shape, &err) != 0)
            return 1;
        for (int64_t m = 0; m < (whole ? 64 : 14); m++)
            bad += !reproduced(&shape, whole ? m + 1 : few[m], &lib);
        ds_order_library_free(&lib);
    }
    return bad ? 1 : CHILD_OK;
}

static void test_core(void **state)
{
    const char *core = *state, *only = getenv("DS_TEST_CORE");
    int status;
    if (only && strcmp(only, core) != 0)
        skip();
    if (ds_blas_core_runs_here(core) != 1) {
        print_message("openblas core %s: this CPU lacks its instructions\n", core);
        skip();
    }
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(one_core(core));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_SKIP)
        skip();
    assert_int_equal(WEXITSTATUS(status), CHILD_OK);
}

#define CORE(name)                                                                                 \
    {                                                                                              \
        "test_core " name, test_core, NULL, NULL, (void *)(uintptr_t)name                          \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {CORE("Haswell"), CORE("Zen"), CORE("SkylakeX"),
                                       CORE("Sandybridge"), CORE("Prescott")};
    return cmocka_run_group_tests_name("order of openblas", tests, NULL, NULL);
}
