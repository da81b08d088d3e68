/* test_experts.c: whole sweeps of models with experts: a router that rounds before it chooses is
 * blamed, the first discrete change is told with the experts that changed places and their margin;
 * a drift before the router is blamed where it is; healthy kernels are not. */
#include "tests/whole/sweep_in_memory.h"

#include "base/dtype.h"
#include "kernels/cpu/cpu.h"

#include <math.h>

#define EXPERTS                                                                                    \
    "random:llama,layers=3,hidden=64,heads=4,ffn=96,vocab=128,ctx=64,seed=9,experts=8,top_k=2"
/* Router logits so close that bf16 cannot tell some of them apart. */
#define CLOSE EXPERTS ",router_scale=0.02"

/* The reference on logits rounded to bf16. */
static int launch_rounding(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    struct ds_router_args a = *(const struct ds_router_args *)args;
    size_t n = (size_t)(a.rows * a.experts);
    float *rounded = malloc(n * sizeof *rounded);
    uint16_t *half = malloc(n * sizeof *half);
    int rc = -1;
    if (rounded && half) {
        ds_round_row(DS_BF16, half, a.logits, n);
        ds_widen_row(DS_BF16, rounded, half, n);
        a.logits = rounded;
        rc = ds_router_reference.launch(&a, exec, why, why_size);
    }
    free(rounded);
    free(half);
    return rc;
}

/* The reference; the last 20 bits of every element are cut off. */
static int launch_cut(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_rmsnorm_args *a = args;
    const struct ds_kernel *k = ds_kernel_find(DS_OP_RMSNORM, "reference");
    if (k->launch(args, exec, why, why_size) != 0)
        return -1;
    for (int64_t i = 0; i < a->rows * a->ldy; i++) {
        uint32_t bits;
        memcpy(&bits, &a->y[i], sizeof bits);
        bits &= ~0xfffffu;
        memcpy(&a->y[i], &bits, sizeof bits);
    }
    return 0;
}

static int set_up(void **state)
{
    static struct ds_kernel rounding, cut;
    struct ds_error err;
    (void)state;
    rounding = ds_router_reference;
    rounding.name = "rounding";
    rounding.launch = launch_rounding;
    cut = *ds_kernel_find(DS_OP_RMSNORM, "reference");
    cut.name = "cut";
    cut.launch = launch_cut;
    assert_ok(ds_kernel_add(&rounding, &err), err);
    assert_ok(ds_kernel_add(&cut, &err), err);
    return 0;
}

static void judge_set(struct outcome *x, const char *model, const char *kernels)
{
    struct ask q = {.model = model,
                    .repeats = 2,
                    .dump = DS_DUMP_ORIGINS,
                    .factor = {[DS_FACTOR_BATCH] = "1,3", [DS_FACTOR_KERNELS] = kernels}};
    judge(x, &q);
}

/* Each pair is (chosen by the reference only, by this side only); its margin is that of the
 * reference's logits, which bf16 cannot tell apart. */
static void swapped_are_close(const struct outcome *x, const char *what)
{
    const struct ds_discrete *d = &x->v.discrete;
    check(what, d->found && d->n_swapped > 0);
    check_text(what, d->stage, "router_ids");
    check(what, d->a == d->swapped[0].a && d->b == d->swapped[0].b && d->a != d->b);
    for (uint32_t i = 0; i < d->n_swapped; i++)
        check(what, d->swapped[i].a >= 0 && d->swapped[i].a < 8 && d->swapped[i].b >= 0 &&
                        d->swapped[i].b < 8 && d->swapped[i].margin >= 0 &&
                        d->swapped[i].margin < 0.02);
}

static void test_a_router_that_rounds_is_named(void **state)
{
    struct outcome x;
    (void)state;
    judge_set(&x, CLOSE, "reference,reference+router=rounding");
    const char *what = "rounding";
    check(what, x.v.result == DS_RESULT_DRIFT && x.v.stable);
    check_text(what, x.v.first.op, "router");
    check_text(what, x.v.first.variant, "rounding");
    check(what, x.v.first.layer == 0 && x.v.first.label == DS_LABEL_ORIGIN);
    swapped_are_close(&x, what);
    check_text(what, x.v.discrete.factor, "kernels");
    char *text = verdict_text(&x);
    check(what, strstr(text, "experts       first others at layer 0, position ") != NULL);
    free(text);
    /* The first row that drifts at the site is the one that is told. */
    uint32_t site = x.v.discrete.site;
    uint8_t *labels;
    struct ds_error err;
    assert_ok(ds_analysis_labels(x.analysis, x.v.discrete.arm, x.v.discrete.ref_arm, &labels, &err),
              err);
    for (size_t i = 0; i < x.v.discrete.row; i++)
        check(what, labels[site * ds_analysis_rows(x.analysis) + i] == DS_LABEL_SAME);
    free(labels);
    done(&x);
}

/* The cause is an rmsnorm; the experts that change later are told, with their margin, although no
 * router is to blame. */
static void test_experts_that_follow_a_drift_are_told(void **state)
{
    struct outcome x;
    (void)state;
    judge_set(&x, EXPERTS ",router_scale=0.02", "reference,reference+rmsnorm=cut");
    const char *what = "cut";
    check_text(what, x.v.first.op, "rmsnorm");
    check_text(what, x.v.first.stage, "attn_norm");
    check(what, kernel_of(&x.v, "router", "reference")->origins == 0);
    swapped_are_close(&x, what);
    done(&x);
}

/* Experts see other row counts in another batch; with pinned kernels nothing moves. */
static void test_healthy_kernels_are_not_blamed(void **state)
{
    static const char *const sets[] = {"pinned", "reference"};
    static const char *const models[] = {
        CLOSE, "random:qwen2moe,layers=2,hidden=64,heads=4,ffn=96,vocab=128,ctx=64,seed=3",
        "random:qwen3moe,layers=2,hidden=64,heads=4,ffn=96,vocab=128,ctx=64,seed=3,window=6"};
    (void)state;
    for (size_t s = 0; s < 2; s++)
        for (size_t m = 0; m < 3; m++) {
            struct outcome x;
            struct ask q = {.model = models[m],
                            .repeats = 1,
                            .dump = DS_DUMP_ORIGINS,
                            .factor = {[DS_FACTOR_BATCH] = "1,2,6",
                                       [DS_FACTOR_SLOT] = "first,last",
                                       [DS_FACTOR_NEIGHBOURS] = "copies,varied",
                                       [DS_FACTOR_PADDING] = "0,3",
                                       [DS_FACTOR_THREADS] = "1,2",
                                       [DS_FACTOR_CHUNK] = "0,4",
                                       [DS_FACTOR_MODE] = "prefill,decode",
                                       [DS_FACTOR_DTYPE] = "f32,bf16",
                                       [DS_FACTOR_KERNELS] = sets[s]}};
            judge(&x, &q);
            check(sets[s], x.result.failed == 0 && x.v.result == DS_RESULT_SAME);
            check(sets[s], !x.v.discrete.found && !x.v.nonfinite.at.found);
            done(&x);
        }
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* The values of a site's row in one trial: 0 not shown. */
static int values_at(const struct outcome *x, const struct ds_trial_data *t, int32_t layer,
                     const char *stage, const char *part, uint32_t row, void *out, size_t bytes)
{
    for (size_t i = 0; i < t->n_captures; i++) {
        const struct ds_capture *c = &t->captures[i];
        const struct ds_site *s = &x->header.sites[c->site];
        if (s->layer != layer || strcmp(s->stage, stage) != 0 || strcmp(s->part, part) != 0 ||
            row < c->first_row || row >= c->first_row + c->rows)
            continue;
        struct ds_blob b = {0};
        struct ds_error err;
        int found = ds_trials_blob(x->trials, x->n_trials,
                                   t->digests[c->first_digest + row - c->first_row], &b, &err);
        assert_int_equal(found, 1);
        assert_true(b.bytes <= bytes);
        memcpy(out, b.data, b.bytes);
        free(b.data);
        return 1;
    }
    return 0;
}

/* Each rank's share is the weighted sum of the experts that live on it, and the shares' sum is what the
 * stage gives: computed here from the experts' outputs. */
static void test_experts_live_on_ranks(void **state)
{
    enum { WIDTH = 64, TOP = 3, ALL = 8, RANKS = 2 };
    (void)state;
    struct outcome x;
    struct ask q = {.model =
                        "random:llama,layers=2,hidden=64,heads=4,ffn=96,vocab=128,ctx=64,seed=9,"
                        "experts=8,top_k=3",
                    .repeats = 1,
                    .dump = DS_DUMP_ALL,
                    .factor = {[DS_FACTOR_KERNELS] = "reference", [DS_FACTOR_TP] = "2"}};
    judge(&x, &q);
    uint32_t looked = 0;
    for (uint32_t r = 0; r < x.trials[0].n_rows; r++)
        for (int32_t layer = 0; layer < 2; layer++) {
            const struct ds_trial_data *t = &x.trials[0];
            int32_t ids[TOP];
            float weights[TOP], out[TOP][WIDTH], share[RANKS][WIDTH], sum[WIDTH], stage[WIDTH];
            if (!values_at(&x, t, layer, "router_ids", "", r, ids, sizeof ids) ||
                !values_at(&x, t, layer, "router_ids", "weights", r, weights, sizeof weights))
                continue;
            for (int k = 0; k < TOP; k++) {
                const char *const names[] = {"e0", "e1", "e2"};
                assert_true(
                    values_at(&x, t, layer, "expert_out", names[k], r, out[k], sizeof out[k]));
            }
            for (int rank = 0; rank < RANKS; rank++) {
                assert_true(values_at(&x, t, layer, "moe_combine", rank ? "r1" : "r0", r,
                                      share[rank], sizeof share[rank]));
                for (int i = 0; i < WIDTH; i++) {
                    double want = 0;
                    for (int k = 0; k < TOP; k++)
                        want += ids[k] / (ALL / RANKS) == rank
                                    ? (double)weights[k] * (double)out[k][i]
                                    : 0;
                    assert_close("a rank's share", i, (double)share[rank][i], want, 1e-7);
                }
            }
            assert_true(values_at(&x, t, layer, "allreduce", "moe_combine", r, sum, sizeof sum));
            assert_true(values_at(&x, t, layer, "moe_combine", "", r, stage, sizeof stage));
            for (int i = 0; i < WIDTH; i++) {
                assert_true(sum[i] == share[0][i] + share[1][i]);
                assert_true(stage[i] == sum[i]);
            }
            looked++;
        }
    assert_true(looked >= 10);
    drop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts_live_on_ranks),
        cmocka_unit_test(test_a_router_that_rounds_is_named),
        cmocka_unit_test(test_experts_that_follow_a_drift_are_told),
        cmocka_unit_test(test_healthy_kernels_are_not_blamed),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
