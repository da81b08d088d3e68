/* test_heal.c: sweeps with faulty kernels, some of which stand behind others: heal trials judge each on
 * equal inputs, so that all of them are named, in their conditions, and nothing else is. What must be
 * said follows from the few lines of each kernel (specimen_kernels.h). */
#include "tests/whole/specimen_kernels.h"
#include "tests/whole/verdict_checks.h"

static size_t count_pass(const struct outcome *x, uint32_t pass)
{
    size_t n = 0;
    for (size_t i = 0; i < x->n_trials; i++)
        n += x->trials[i].info.pass == pass;
    return n;
}

static struct ask batches(const char *kernels)
{
    return (struct ask){.dump = DS_DUMP_ORIGINS,
                        .repeats = 1,
                        .factor = {[DS_FACTOR_BATCH] = "1,2,8",
                                   [DS_FACTOR_MODE] = "prefill,decode",
                                   [DS_FACTOR_KERNELS] = kernels}};
}

/* The matmul gives other bits in every layer's first call, so attention never has equal inputs by
 * itself. */
static void test_a_fault_behind_another_is_named(void **state)
{
    static const struct culprit both[] = {{"matmul", "split", " batch mode ", NULL},
                                          {"attention", "crowded", " batch ", NULL}};
    const char *what = "split, then crowded";
    struct outcome x;
    struct ask q = batches("pinned+matmul=split+attention=crowded");
    (void)state;
    specimen.from_rows = 2;
    judge(&x, &q);
    only_blames(&x, what, both, 2);
    const struct ds_kernel_verdict *attention = kernel_of(&x.v, "attention", "crowded"),
                                   *matmul = kernel_of(&x.v, "matmul", "split");
    check(what, attention->origins > 0 && matmul->origins > 0);
    check(what, attention->judged == attention->compared);
    check(what, matmul->judged == matmul->compared);
    /* Three arms differ, each from one other. */
    check(what, count_pass(&x, DS_PASS_HEAL) == 3);
    check_text(what, x.v.first.op, "matmul");
    check(what, x.v.first.layer == 0);
    done(&x);

    q.no_heal = 1;
    judge(&x, &q);
    check(what, count_pass(&x, DS_PASS_HEAL) == 0);
    attention = kernel_of(&x.v, "attention", "crowded");
    check(what, attention->judged < attention->compared);
    done(&x);
}

/* Rows stored in 16 bits, and one kernel that reads them before they are rounded. */
static void test_16_bit_rows_are_healed(void **state)
{
    static const struct culprit both[] = {{"matmul", "short-inputs", " kernels ", NULL},
                                          {"attention", "head-map", " kernels ", NULL}};
    static const char *const sets[] = {"pinned,pinned+matmul=short-inputs+attention=head-map",
                                       "fused,fused+matmul=short-inputs+attention=head-map"};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct outcome x;
        struct ask q = only_kernels(sets[i / 2]);
        q.repeats = 1;
        q.factor[DS_FACTOR_DTYPE] = i % 2 ? "f16" : "bf16";
        judge(&x, &q);
        only_blames(&x, sets[i / 2], both, 2);
        for (size_t k = 0; k < 2; k++) {
            const struct ds_kernel_verdict *kv = kernel_of(&x.v, both[k].op, both[k].variant);
            check(sets[i / 2], kv->origins > 0 && kv->judged == kv->compared);
        }
        done(&x);
    }
}

/* A kernel set against another: every kernel that differs is named, in whatever order they stand. */
static void test_every_kernel_of_a_set_that_differs_is_named(void **state)
{
    static const struct culprit differ[] = {{"matmul", "split", " kernels ", NULL},
                                            {"attention", "head-map", " kernels ", NULL},
                                            {"rope", "late", " kernels ", NULL},
                                            {"rmsnorm", "coarse", " kernels ", NULL}};
    const char *what = "four of ten";
    struct outcome x;
    struct ask q = only_kernels("pinned,pinned+matmul=split+attention=head-map+rope=late+rmsnorm="
                                "coarse");
    (void)state;
    q.repeats = 1;
    judge(&x, &q);
    only_blames(&x, what, differ, 4);
    for (size_t i = 0; i < 4; i++)
        check(what, kernel_of(&x.v, differ[i].op, differ[i].variant)->origins > 0);
    check_text(what, x.v.first.op, "rmsnorm");
    done(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_fault_behind_another_is_named, forget_specimen),
        cmocka_unit_test_teardown(test_16_bit_rows_are_healed, forget_specimen),
        cmocka_unit_test_teardown(test_every_kernel_of_a_set_that_differs_is_named,
                                  forget_specimen),
    };
    return cmocka_run_group_tests_name("heal trials", tests, add_specimens, NULL);
}
