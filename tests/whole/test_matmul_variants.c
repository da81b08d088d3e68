/* test_matmul_variants.c: whole sweeps with the matmuls that drift on purpose: each brings out in a model
 * what its head comment says, and the verdict blames it, in these conditions only. */
#include "tests/whole/sweep_in_memory.h"

static const char *const factors[] = {"repeat",  "batch",   "slot",  "neighbours",
                                      "padding", "threads", "chunk", "mode"};
enum { N_FACTORS = sizeof factors / sizeof factors[0] };

/* The subject is 9 rows in the call, 18 in a batch of two, one in decoding. */
static void judge_set(struct outcome *x, const char *kernels)
{
    struct ask q = {.dump = DS_DUMP_ORIGINS,
                    .factor = {[DS_FACTOR_BATCH] = "1,2,6,8",
                               [DS_FACTOR_SLOT] = "first,last",
                               [DS_FACTOR_NEIGHBOURS] = "copies,varied",
                               [DS_FACTOR_PADDING] = "0,3",
                               [DS_FACTOR_THREADS] = "1,2",
                               [DS_FACTOR_CHUNK] = "0,4",
                               [DS_FACTOR_MODE] = "prefill,decode",
                               [DS_FACTOR_KERNELS] = kernels}};
    judge(x, &q);
}

/* The conditions in which the variant has `condition`, as " batch chunk ". */
static void conditions_are(const struct outcome *x, const char *what, const char *variant,
                           int condition, const char *want)
{
    char got[200] = " ";
    for (int f = 0; f < N_FACTORS; f++)
        if (condition_of(&x->v, "matmul", variant, factors[f]) == condition)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s ", factors[f]);
    check_text(what, got, want);
}

/* No other kernel is the origin of anything. */
static void nothing_else(const struct outcome *x, const char *what, const char *variant)
{
    for (size_t k = 0; k < x->v.n_kernels; k++) {
        const struct ds_kernel_verdict *kv = &x->v.kernels[k];
        if (strcmp(kv->variant, variant) != 0)
            check(what, kv->origins == 0 && kv->unknown == 0);
    }
}

static const struct {
    const char *kernels, *variant, *drifts, *unstable;
    int kind; /* of the first drift; -1 = there is none */
} cases[] = {
    {"pinned+matmul=split-k", "split-k", " batch threads chunk mode ", " ", DS_KIND_ROUNDING_ORDER},
    {"pinned+matmul=stream-k", "stream-k", " batch slot neighbours padding threads chunk mode ",
     " ", DS_KIND_ROUNDING_ORDER},
    {"pinned+matmul=atomic", "atomic", " ",
     " repeat batch slot neighbours padding threads chunk mode ", DS_KIND_ROUNDING_ORDER},
    {"pinned+matmul=ticket", "ticket", " threads ", " ", DS_KIND_ROUNDING_ORDER},
    {"pinned+matmul=bf16-partials", "bf16-partials", " batch threads chunk mode ", " ",
     DS_KIND_LOWER_PRECISION},
    {"pinned+matmul=tf32", "tf32", " ", " ", -1},
    {"pinned+matmul=q8", "q8", " ", " ", -1},
};

static void test_each_drifts_where_it_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *what = cases[i].kernels, *variant = cases[i].variant;
        struct outcome x;
        judge_set(&x, what);
        conditions_are(&x, what, variant, DS_COND_DRIFT, cases[i].drifts);
        conditions_are(&x, what, variant, DS_COND_UNSTABLE, cases[i].unstable);
        nothing_else(&x, what, variant);
        check(what, x.v.stable == (strcmp(cases[i].unstable, " ") == 0));
        check(what, x.v.first.found == (cases[i].kind >= 0));
        check(what, (x.v.result == DS_RESULT_SAME) == (cases[i].kind < 0));
        if (x.v.first.found) {
            check_text(what, x.v.first.op, "matmul");
            check_text(what, x.v.first.variant, variant);
            check_text(what, x.v.first.stage, "q_proj");
            check_text(what, ds_kind_name(x.v.first.kind), ds_kind_name(cases[i].kind));
        }
        done(&x);
    }
}

/* The set split: its three kernels are blamed, the matmul for the batch on one thread, too. */
static void test_the_set_split(void **state)
{
    struct outcome x;
    (void)state;
    judge_set(&x, "split");
    check("split", x.v.result == DS_RESULT_DRIFT && x.v.stable);
    conditions_are(&x, "split", "split-k", DS_COND_DRIFT, " batch threads chunk mode ");
    check("split", condition_of(&x.v, "rmsnorm", "split", "threads") == DS_COND_DRIFT);
    for (size_t k = 0; k < x.v.n_kernels; k++)
        check("split",
              x.v.kernels[k].origins == 0 || strncmp(x.v.kernels[k].variant, "split", 5) == 0);
    done(&x);
}

/* The less exact ones are another answer than the pinned one, and the kernel set is named. */
static void test_less_exact_sets_differ(void **state)
{
    static const char *const sets[] = {"pinned,pinned+matmul=tf32", "pinned,pinned+matmul=q8"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct outcome x;
        struct ask q = {.dump = DS_DUMP_ORIGINS, .factor = {[DS_FACTOR_KERNELS] = sets[i]}};
        judge(&x, &q);
        check(sets[i], x.v.result == DS_RESULT_DRIFT && x.v.stable);
        check_text(sets[i], x.v.first.factor, "kernels");
        check_text(sets[i], x.v.first.stage, "q_proj");
        check_text(sets[i], ds_kind_name(x.v.first.kind), "lower-precision");
        check(sets[i],
              strstr(x.v.first.why, i == 0 ? "10-bit mantissa" : "8 bits in blocks") != NULL);
        done(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_drifts_where_it_says),
        cmocka_unit_test(test_the_set_split),
        cmocka_unit_test(test_less_exact_sets_differ),
    };
    return cmocka_run_group_tests_name("variants in a model", tests, NULL, NULL);
}
