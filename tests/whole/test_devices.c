/* test_devices.c: whole sweeps over simulated devices and over ranks of tensor parallelism: what the
 * verdict must say of a transfer that loses rows, of a sum of ranks in another order, of partial
 * sums rounded on their way, and of healthy ones. */
#define SWEEP_PROMPT 12
#include "tests/whole/sweep_in_memory.h"

#include "dumps/record.h"

#include <math.h>

#define FOUR       "random:llama,layers=4,hidden=64,heads=4,kv_heads=4,ffn=512,vocab=128,ctx=64,seed=11"
#define TWO_PLACES "one,layers=0-1:cpu0;2-:cpu1"

/* ---- kernels --------------------------------------------------------------------------------- */

static uint64_t scramble(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Every third row of a call arrives as zeros. */
static int lossy_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_transfer_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        if (r % 3 == 2)
            memset(a->y + r * a->ldy, 0, (size_t)a->width * sizeof *a->y);
        else
            memcpy(a->y + r * a->ldy, a->x + r * a->ldx, (size_t)a->width * sizeof *a->y);
    return 0;
}

/* A row in four does not arrive in time, another one each time. */
static int late_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_transfer_args *a = args;
    (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        if (scramble(exec->seed + (uint64_t)r) % 4)
            memcpy(a->y + r * a->ldy, a->x + r * a->ldx, (size_t)a->width * sizeof *a->y);
    return 0;
}

/* (0 + 1) + (2 + 3) in calls of up to four rows, ((0 + 1) + 2) + 3 in larger ones. */
static int by_size_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_allreduce_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            const int64_t at = r * a->ldx + i;
            float s = a->x[0][at] + a->x[1][at];
            if (a->ranks == 4 && a->rows <= 4)
                s += a->x[2][at] + a->x[3][at];
            for (int64_t k = 2; (a->ranks != 4 || a->rows > 4) && k < a->ranks; k++)
                s += a->x[k][at];
            a->y[r * a->ldy + i] = s;
        }
    return 0;
}

static const struct ds_kernel kernels[] = {
    {.abi = DS_KERNEL_ABI, .op = DS_OP_TRANSFER, .name = "lossy", .launch = lossy_launch},
    {.abi = DS_KERNEL_ABI, .op = DS_OP_TRANSFER, .name = "late", .launch = late_launch},
    {.abi = DS_KERNEL_ABI, .op = DS_OP_ALLREDUCE, .name = "by-size", .launch = by_size_launch},
};

static int add_kernels(void **state)
{
    struct ds_error err;
    (void)state;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        assert_ok(ds_kernel_add(&kernels[i], &err), err);
    return 0;
}

/* No kernel of the verdict drifts or disagrees in any factor but those of op. */
static void only_op(const struct outcome *x, const char *what, const char *op)
{
    for (size_t k = 0; k < x->v.n_kernels; k++)
        for (size_t f = 0; f < x->v.n_factors; f++) {
            const struct ds_kernel_verdict *kv = &x->v.kernels[k];
            const int c = kv->condition[f];
            if (strcmp(kv->op, op) != 0 && (c == DS_COND_DRIFT || c == DS_COND_UNSTABLE)) {
                print_error("%s: %s/%s is %s on %s\n", what, kv->op, kv->variant,
                            ds_condition_name(c), x->v.factors[f].name);
                cut_short = 1;
            }
        }
}

/* Captures of a site in the first trial of an arm. */
static size_t captures_of(const struct outcome *x, uint32_t arm, int32_t layer, const char *stage,
                          const char *part)
{
    size_t n = 0;
    for (size_t t = 0; t < x->n_trials; t++)
        for (size_t i = 0; x->trials[t].info.arm == arm && x->trials[t].info.repeat == 0 &&
                           x->trials[t].info.pass == DS_PASS_NATURAL && i < x->trials[t].n_captures;
             i++) {
            const struct ds_site *s = &x->header.sites[x->trials[t].captures[i].site];
            n += s->layer == layer && strcmp(s->stage, stage) == 0 && strcmp(s->part, part) == 0;
        }
    return n;
}

/* ---- devices --------------------------------------------------------------------------------- */

static void test_two_devices_are_one(void **state)
{
    static const char *const dtypes[] = {"f32", "bf16"}, *const sets[] = {"pinned", "fused"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        const char *what = dtypes[i % 2];
        struct outcome x;
        struct ask q = {
            .model = FOUR,
            .poison = 1,
            .factor = {[DS_FACTOR_BATCH] = "1,3",
                       [DS_FACTOR_DTYPE] = dtypes[i % 2],
                       [DS_FACTOR_KERNELS] = sets[i / 2],
                       [DS_FACTOR_PLACE] = TWO_PLACES ",layers=0:cpu1,1-2:cpu0,3:cpu1"}};
        judge(&x, &q);
        /* What is fused with its producer cannot be across a border: there it reads rounded rows. */
        const int same = i / 2 == 0 || i % 2 == 0;
        check(what, x.result.failed == 0 && x.header.n_arms == 4);
        check(what, (x.v.result == DS_RESULT_SAME) == same);
        check(what, factor_of(&x.v, "place")->arms == 2);
        check(what, captures_of(&x, 0, 2, "transfer", "src") == 0);
        check(what, captures_of(&x, 2, 2, "transfer", "src") == 5 &&
                        captures_of(&x, 2, 2, "transfer", "dst") == 5 &&
                        captures_of(&x, 2, 1, "transfer", "dst") == 0);
        check(what, captures_of(&x, 3, 1, "transfer", "dst") == 5 &&
                        captures_of(&x, 3, 3, "transfer", "dst") == 5 &&
                        captures_of(&x, 3, 2, "transfer", "dst") == 0);
        check(what, condition_of(&x.v, "transfer", "pinned", "place") == DS_COND_SAME);
        done(&x);
    }
}

/* O-18: the copy of a row is skipped. */
static void test_a_transfer_that_loses_rows(void **state)
{
    static const char *const names[] = {"pinned+transfer=lossy", "pinned+transfer=late"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *what = names[i];
        struct outcome x;
        struct ask q = {.model = FOUR,
                        .factor = {[DS_FACTOR_KERNELS] = names[i], [DS_FACTOR_PLACE] = TWO_PLACES}};
        judge(&x, &q);
        only_op(&x, what, "transfer");
        check(what, x.v.result == DS_RESULT_DRIFT && x.v.first.label == DS_LABEL_ORIGIN);
        check_text(what, x.v.first.stage, "transfer");
        check_text(what, x.v.first.part, "dst");
        check_text(what, x.v.first.op, "transfer");
        check_text(what, x.v.first.variant, names[i] + strlen("pinned+transfer="));
        check_text(what, x.v.first.factor, i ? "repeat" : "place");
        check(what, x.v.first.layer == 2 && x.v.stable == !i);
        done(&x);
    }
}

/* The same with both on two devices: what leaves is equal, what arrives is not. */
static void test_two_transfers(void **state)
{
    const char *what = "two transfers";
    struct outcome x;
    struct ds_error err;
    uint8_t *labels;
    struct ask q = {.model = FOUR,
                    .factor = {[DS_FACTOR_KERNELS] = "pinned,pinned+transfer=lossy",
                               [DS_FACTOR_PLACE] = "layers=0-1:cpu0;2-:cpu1"}};
    (void)state;
    judge(&x, &q);
    only_op(&x, what, "transfer");
    check_text(what, x.v.first.part, "dst");
    assert_ok(ds_analysis_labels(x.analysis, 1, 0, &labels, &err), err);
    size_t rows = ds_analysis_rows(x.analysis), inherited = 0;
    for (size_t s = 0; s < x.header.n_sites; s++)
        for (size_t r = 0; r < rows; r++) {
            const struct ds_site *site = &x.header.sites[s];
            const int label = labels[s * rows + r];
            const int before =
                site->layer < 2 || (site->layer == 2 && strcmp(site->part, "src") == 0);
            if (before)
                check(what, label == DS_LABEL_SAME);
            inherited += site->layer == 2 && strcmp(site->stage, "attn_norm") == 0 &&
                         label == DS_LABEL_INHERITED;
        }
    check(what, inherited == 4);
    free(labels);
    done(&x);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* O-35: one rank against two and four. */
static void test_ranks_move_the_sums(void **state)
{
    static const char *const dtypes[] = {"f32", "bf16"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *what = dtypes[i];
        struct outcome x;
        struct ask q = {.model = FOUR,
                        .factor = {[DS_FACTOR_KERNELS] = "pinned",
                                   [DS_FACTOR_DTYPE] = dtypes[i],
                                   [DS_FACTOR_BATCH] = "1,3",
                                   [DS_FACTOR_TP] = "1,2,4"}};
        judge(&x, &q);
        only_op(&x, what, "matmul");
        check(what, x.v.stable && x.v.result == DS_RESULT_DRIFT);
        check_text(what, x.v.first.factor, "tp");
        check_text(what, x.v.first.stage, "o_proj");
        check_text(what, x.v.first.part, "");
        check(what, x.v.first.layer == 0 && x.v.first.label == DS_LABEL_ORIGIN);
        check(what, x.v.first.launch->split == 2 && x.v.first.ref_launch->split != 2);
        /* Not for lack of ranks: an arm has the parts of its own, and each rank's is one sum. */
        check(what, captures_of(&x, 0, 0, "o_proj", "r0") == 0 &&
                        captures_of(&x, 0, 0, "allreduce", "o_proj") == 0);
        check(what, captures_of(&x, 2, 0, "o_proj", "r1") == 5 &&
                        captures_of(&x, 2, 0, "o_proj", "r2") == 0);
        check(what, captures_of(&x, 3, 3, "down", "r3") == 5 &&
                        captures_of(&x, 3, 3, "allreduce", "down") == 5);
        check(what, factor_of(&x.v, "tp")->phase[DS_VERDICT_ALL].n_classes == 3);
        check(what, factor_of(&x.v, "batch")->phase[DS_VERDICT_ALL].drifted == 0);
        if (!i)
            check(what, x.v.first.kind == DS_KIND_ROUNDING_ORDER);
        else /* a third of the elements and more are another bf16 number */
            check(what, x.v.first.kind == DS_KIND_LOWER_PRECISION &&
                            strstr(x.v.first.why, "partial sums of 2 ranks are rounded to bf16") &&
                            x.v.first.elements > 64 * x.v.first.rows / 4);
        done(&x);
    }
}

/* Between two and four ranks no share of a sum is held against another one. */
static void test_unlike_numbers_of_ranks(void **state)
{
    const char *what = "tp 2 against 4";
    struct outcome x;
    struct ask q = {.model = FOUR,
                    .factor = {[DS_FACTOR_KERNELS] = "pinned", [DS_FACTOR_TP] = "2,4"}};
    (void)state;
    judge(&x, &q);
    check_text(what, x.v.first.stage, "o_proj");
    check_text(what, x.v.first.part, "");
    check(what, x.v.first.label == DS_LABEL_ORIGIN);
    only_op(&x, what, "matmul");
    done(&x);
}

/* O-34 (a): the order of the sum depends on the number of rows. */
static void test_allreduce_by_size(void **state)
{
    const char *what = "allreduce by size";
    struct outcome x;
    struct ask q = {.model = FOUR,
                    .factor = {[DS_FACTOR_KERNELS] = "pinned+allreduce=by-size",
                               [DS_FACTOR_BATCH] = "1,5",
                               [DS_FACTOR_MODE] = "prefill,decode",
                               [DS_FACTOR_TP] = "4"}};
    (void)state;
    judge(&x, &q);
    only_op(&x, what, "allreduce");
    check(what, x.v.stable && x.v.first.label == DS_LABEL_ORIGIN && x.v.first.layer == 0);
    check_text(what, x.v.first.stage, "allreduce");
    check_text(what, x.v.first.part, "o_proj");
    check_text(what, x.v.first.variant, "by-size");
    check(what, condition_of(&x.v, "allreduce", "by-size", "batch") == DS_COND_DRIFT);
    check(what, condition_of(&x.v, "allreduce", "by-size", "mode") == DS_COND_DRIFT);
    const struct ds_kernel_verdict *kv = kernel_of(&x.v, "allreduce", "by-size");
    check(what, x.v.first.kind == DS_KIND_ROUNDING_ORDER);
    check(what, kv->n_switches > 0 && kv->switches[0].n == 1 && kv->switches[0].rows[0] == 5);
    done(&x);
}

/* Two ranks: a + b is b + a, and however the ranks are added nothing else moves. */
static void test_ranks_with_devices(void **state)
{
    const char *what = "ranks on two devices";
    struct outcome x;
    struct ask q = {.model = FOUR,
                    .poison = 1,
                    .factor = {[DS_FACTOR_KERNELS] = "pinned",
                               [DS_FACTOR_TP] = "2",
                               [DS_FACTOR_THREADS] = "1,2",
                               [DS_FACTOR_CHUNK] = "0,5",
                               [DS_FACTOR_PLACE] = TWO_PLACES}};
    (void)state;
    judge(&x, &q);
    check(what, x.v.result == DS_RESULT_SAME && x.result.failed == 0);
    done(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_devices_are_one),
        cmocka_unit_test(test_a_transfer_that_loses_rows),
        cmocka_unit_test(test_two_transfers),
        cmocka_unit_test(test_ranks_move_the_sums),
        cmocka_unit_test(test_unlike_numbers_of_ranks),
        cmocka_unit_test(test_allreduce_by_size),
        cmocka_unit_test(test_ranks_with_devices),
    };
    return cmocka_run_group_tests_name("devices and ranks", tests, add_kernels, NULL);
}
