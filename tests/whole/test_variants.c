/* test_variants.c: whole sweeps of a small model with the built-in variants that drift on purpose:
 * the verdict names each, at the right stage and condition, and blames nothing else. */
#define SWEEP_PROMPT 40
#include "tests/whole/specimen_kernels.h"
#include "tests/whole/verdict_checks.h"

/* 40 tokens: attention's tiles of 32 slots and of 64 differ from the 33rd on. */
static int32_t long_prompt[PROMPT];

static int set_up(void **state)
{
    for (int i = 0; i < PROMPT; i++)
        long_prompt[i] = (i * 37 + 5) % 128;
    return add_specimens(state);
}

#define LONGER "random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=96,seed=9"

/* Every factor varied around `kernels`, with threads enough to leave some free. */
static struct ask wide_long(const char *kernels)
{
    struct ask q = wide(kernels);
    q.model = LONGER;
    q.prompt = long_prompt;
    q.repeats = 2;
    q.factor[DS_FACTOR_BATCH] = "1,2,5";
    q.factor[DS_FACTOR_THREADS] = "1,4";
    return q;
}

static void test_each_is_named_in_its_conditions(void **state)
{
    static const struct {
        const char *kernels, *op, *variant, *threads, *drifts;
        struct place first; /* position: that one or a later one */
    } cases[] = {
        /* 4 threads: a row is cut when it is decoded alone or beside another, and not in chunks of
         * 4 rows */
        {"pinned+rmsnorm=split",
         "rmsnorm",
         "split",
         "4,1",
         " batch threads mode ",
         {0, "attn_norm", "mode", "decode", DS_PHASE_DECODE, 1, 0, 0, 0, DS_KIND_ROUNDING_ORDER}},
        {"pinned+attention=split-kv",
         "attention",
         "split-kv",
         "4,1",
         " batch threads mode ",
         {0, "attn_out", "mode", "decode", DS_PHASE_DECODE, 1, 0, 16, 0, DS_KIND_ROUNDING_ORDER}},
        /* 1 thread is the base, so batches drift at 4 threads only, and in decode steps */
        {"pinned+attention=split-kv",
         "attention",
         "split-kv",
         "1,4",
         " batch threads ",
         {0, "attn_out", "batch", "2", DS_PHASE_DECODE, 2, 1, PROMPT, 0, DS_KIND_ROUNDING_ORDER}},
        {"pinned+attention=stock",
         "attention",
         "stock",
         "1,4",
         " chunk mode ",
         {0, "attn_out", "chunk", "4", DS_PHASE_PREFILL, 4, 0, 0, 0, DS_KIND_ROUNDING_ORDER}},
        /* O-02; chunks of 4 rows take the wide tile, as the whole prompt does */
        {"pinned+attention=tile-by-qlen",
         "attention",
         "tile-by-qlen",
         "1,4",
         " mode ",
         {0, "attn_out", "mode", "decode", DS_PHASE_DECODE, 1, 0, 32, 0, DS_KIND_ROUNDING_ORDER}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *what = cases[i].kernels;
        struct outcome x;
        struct ask q = wide_long(what);
        struct place p = cases[i].first;
        q.factor[DS_FACTOR_THREADS] = cases[i].threads;
        judge(&x, &q);
        only_blames(&x, what,
                    &(struct culprit){cases[i].op, cases[i].variant, cases[i].drifts, NULL}, 1);
        check(what, x.v.result == DS_RESULT_DRIFT && x.v.stable && ds_verdict_exit(&x.v) == 1);
        check(what, x.v.first.position >= p.position && x.v.first.rows > 0);
        p.rows = x.v.first.rows;
        p.position = x.v.first.position;
        first_is(&x, what, &x.v.first, &p);
        done(&x);
    }
}

/* O-02: a draft of two tokens takes the narrow tile, as decoding does. */
static void test_two_new_tokens_are_a_class_with_one(void **state)
{
    const char *what = "chunks of 1, 2 and 4";
    struct outcome x;
    struct ask q = wide_long("pinned+attention=tile-by-qlen");
    (void)state;
    q.factor[DS_FACTOR_CHUNK] = "0,1,2,4";
    q.factor[DS_FACTOR_BATCH] = "1";
    judge(&x, &q);
    only_blames(&x, what, &(struct culprit){"attention", "tile-by-qlen", " chunk mode ", NULL}, 1);
    classes_are(&x, what, "chunk", DS_VERDICT_ALL, "0,4|1,2");
    done(&x);
}

static void test_two_of_them_are_two_origins(void **state)
{
    static const struct culprit both[] = {{"rmsnorm", "split", " batch threads mode ", NULL},
                                          {"attention", "split-kv", " batch threads mode ", NULL}};
    const char *what = "pinned+rmsnorm=split+attention=split-kv";
    struct outcome x;
    struct ask q = wide_long(what);
    (void)state;
    q.factor[DS_FACTOR_THREADS] = "4,1";
    judge(&x, &q);
    for (size_t k = 0; k < x.v.n_kernels; k++) {
        const struct ds_kernel_verdict *kv = &x.v.kernels[k];
        int guilty = strcmp(kv->variant, "split") == 0 || strcmp(kv->variant, "split-kv") == 0;
        check(what, guilty ? kv->origins > 0 : kv->origins == 0);
    }
    for (size_t i = 0; i < 2; i++)
        check(what, condition_of(&x.v, both[i].op, both[i].variant, "slot") == DS_COND_SAME);
    check(what, x.v.stable);
    done(&x);
}

/* Their order depends on the row alone, so they drift against another kernel only. */
static void test_other_orders_drift_against_kernels_only(void **state)
{
    static const struct {
        const char *alone, *against, *variant, *dtype;
        int kind; /* -1: the bits are the same */
    } cases[] = {
        {"pinned+rmsnorm=tail", "pinned+rmsnorm=rows", "tail", "f32", DS_KIND_ROUNDING_ORDER},
        {"pinned+rmsnorm=cast-first", "pinned+rmsnorm=rows", "cast-first", "f32", -1},
        {"pinned+rmsnorm=cast-first", "pinned+rmsnorm=rows", "cast-first", "bf16",
         DS_KIND_DIFFERENT_ALGORITHM},
        {"fused", "pinned", "fused", "f32", -1},
        {"fused", "pinned", "fused", "bf16", DS_KIND_DIFFERENT_ALGORITHM},
        {"fused", "pinned", "fused", "f16", DS_KIND_DIFFERENT_ALGORITHM},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char what[100];
        struct outcome x;
        struct ask q = wide(cases[i].alone);
        snprintf(what, sizeof what, "%s,%s", cases[i].against, cases[i].alone);
        q.prompt = long_prompt;
        q.repeats = 2;
        q.factor[DS_FACTOR_THREADS] = "4,1";
        q.factor[DS_FACTOR_DTYPE] = cases[i].dtype;
        judge(&x, &q);
        only_blames(&x, cases[i].alone, NULL, 0);
        check(cases[i].alone, x.v.result == DS_RESULT_SAME);
        done(&x);

        q = only_kernels(what);
        q.factor[DS_FACTOR_DTYPE] = cases[i].dtype;
        judge(&x, &q);
        /* A kernel of another set that adds nothing up reads its inputs before rounding. */
        const char *drifts = cases[i].kind < 0 ? NULL : " kernels ";
        int fused = strcmp(cases[i].variant, "fused") == 0;
        only_blames(&x, what,
                    (const struct culprit[]){{"rmsnorm", cases[i].variant, drifts, NULL},
                                             {"rope", "fused", drifts, NULL},
                                             {"silu_mul", "fused", drifts, NULL}},
                    fused ? 3 : 1);
        check(what, (x.v.result == DS_RESULT_SAME) == (cases[i].kind < 0));
        if (cases[i].kind >= 0)
            first_is(&x, what, &x.v.first,
                     &(struct place){0, "attn_norm", "kernels", cases[i].alone, DS_PHASE_PREFILL,
                                     PROMPT, 0, x.v.first.position, x.v.first.rows, cases[i].kind});
        done(&x);
    }
}

static void test_each_fused_kernel_is_named(void **state)
{
    static const struct {
        const char *kernels, *op, *stage;
    } cases[] = {
        {"pinned,pinned+rope=fused", "rope", "q_rope"},
        {"pinned,pinned+silu_mul=fused", "silu_mul", "act"},
        {"pinned,pinned+rmsnorm=fused", "rmsnorm", "attn_norm"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *what = cases[i].kernels;
        struct outcome x;
        struct ask q = only_kernels(what);
        q.factor[DS_FACTOR_DTYPE] = "bf16";
        judge(&x, &q);
        only_blames(&x, what, &(struct culprit){cases[i].op, "fused", " kernels ", NULL}, 1);
        check_text(what, x.v.first.stage, cases[i].stage);
        check(what, x.v.first.layer == 0 && x.v.first.label == DS_LABEL_ORIGIN);
        done(&x);
    }
}

/* A difference that rounding to 16 bits would hide reaches a fused kernel: it is the matmul's all
 * the same, since what the fused kernel read is seen. */
static void test_a_fused_kernel_is_not_blamed_for_what_it_was_given(void **state)
{
    const char *what = "fused behind a matmul that drifts";
    struct outcome x;
    struct ask q = wide("fused+matmul=split");
    (void)state;
    q.model = "random:llama,layers=2,hidden=128,heads=4,kv_heads=2,ffn=128,vocab=128,ctx=96,seed=9";
    q.prompt = long_prompt;
    q.repeats = 2;
    q.factor[DS_FACTOR_DTYPE] = "bf16";
    specimen.from_rows = 4;
    judge(&x, &q);
    only_blames(&x, what, &(struct culprit){"matmul", "split", " batch mode ", NULL}, 1);
    check_text(what, x.v.first.stage, "q_proj");
    check(what, x.v.first.layer == 0);
    done(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_is_named_in_its_conditions),
        cmocka_unit_test(test_two_new_tokens_are_a_class_with_one),
        cmocka_unit_test(test_two_of_them_are_two_origins),
        cmocka_unit_test(test_other_orders_drift_against_kernels_only),
        cmocka_unit_test(test_each_fused_kernel_is_named),
        cmocka_unit_test_teardown(test_a_fused_kernel_is_not_blamed_for_what_it_was_given,
                                  forget_specimen),
    };
    return cmocka_run_group_tests_name("variants", tests, set_up, NULL);
}
