/* test_cache_formats.c: whole sweeps with caches of fewer bits: the cache is blamed and nothing else,
 * what it holds depends on nothing but the row, and outlier channels of k cost more than v. */
#define SWEEP_PROMPT 10
#include "tests/whole/sweep_in_memory.h"

#define WIDE_HEADS                                                                                 \
    "random:llama,layers=3,hidden=64,heads=2,kv_heads=1,ffn=96,vocab=128,ctx=64,bias=1,seed=5"

static const char *const formats[] = {"f16", "bf16", "fp8-e4m3", "q8", "q4"};
enum { FORMATS = sizeof formats / sizeof formats[0] };

/* Squared error that the drifting rows of a site have against arm 0. */
static double added(const struct outcome *x, uint32_t arm, int32_t layer, const char *part)
{
    double sum = 0;
    for (size_t t = 0; t < x->n_trials; t++)
        for (size_t i = 0; x->trials[t].info.arm == arm && x->trials[t].info.repeat == 0 &&
                           x->trials[t].info.pass == DS_PASS_NATURAL && i < x->trials[t].n_drifts;
             i++) {
            const struct ds_drift *d = &x->trials[t].drifts[i];
            const struct ds_site *s = &x->header.sites[d->site];
            if (d->ref_arm == 0 && s->layer == layer && strcmp(s->stage, "kv_write") == 0 &&
                strcmp(s->part, part) == 0)
                sum += d->diff_sq;
        }
    return sum;
}

static void test_each_format(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const char *what = formats[i];
        char kernels[64];
        struct outcome x;
        snprintf(kernels, sizeof kernels, "pinned,pinned+cache=%s", what);
        struct ask q = {.model = WIDE_HEADS,
                        .poison = 1,
                        .repeats = 2,
                        .factor = {[DS_FACTOR_KERNELS] = kernels}};
        judge(&x, &q);
        check(what, x.result.failed == 0 && x.v.stable);
        check_text(what, x.v.first.stage, "kv_write");
        check_text(what, x.v.first.part, "k");
        check_text(what, x.v.first.op, "cache");
        check_text(what, x.v.first.variant, what);
        check(what, x.v.first.layer == 0 && x.v.first.label == DS_LABEL_ORIGIN);
        check(what, x.v.first.kind == DS_KIND_LOWER_PRECISION);
        for (size_t k = 0; k < x.v.n_kernels; k++)
            check(what, x.v.kernels[k].origins == 0 || strcmp(x.v.kernels[k].op, "cache") == 0);
        done(&x);
    }
}

/* As invariant as the cache of whole numbers of bits: no factor moves a stored value. */
static void test_formats_are_invariant(void **state)
{
    (void)state;
    for (int i = 2; i < FORMATS; i++) {
        const char *what = formats[i];
        char kernels[64];
        struct outcome x;
        snprintf(kernels, sizeof kernels, "pinned+cache=%s", what);
        struct ask q = {.model = WIDE_HEADS,
                        .factor = {[DS_FACTOR_KERNELS] = kernels,
                                   [DS_FACTOR_BATCH] = "1,3",
                                   [DS_FACTOR_SLOT] = "first,last",
                                   [DS_FACTOR_PADDING] = "0,3",
                                   [DS_FACTOR_CHUNK] = "0,4",
                                   [DS_FACTOR_DTYPE] = i % 2 ? "bf16" : "f32",
                                   [DS_FACTOR_MODE] = "prefill,decode"}};
        judge(&x, &q);
        check(what, x.v.result == DS_RESULT_SAME && x.result.failed == 0);
        done(&x);
    }
}

/* O-37: a bias of 50 on two channels of k. */
static void test_outlier_channels(void **state)
{
    const char *what = "outlier channels of k";
    struct outcome x;
    struct ds_error err;
    struct ask q = {.factor = {[DS_FACTOR_KERNELS] = "pinned,pinned+cache=q4"}};
    (void)state;
    assert_ok(ds_model_open(WIDE_HEADS, 1, &q.opened, &err), err);
    for (int l = 0; l < 3; l++)
        q.opened->layers[l].k_bias->data[3] = q.opened->layers[l].k_bias->data[17] = 50;
    judge(&x, &q);
    check_text(what, x.v.first.stage, "kv_write");
    check_text(what, x.v.first.part, "k");
    check(what, x.v.first.layer == 0);
    check(what, added(&x, 1, 0, "v") > 0);
    if (!(added(&x, 1, 0, "k") > 10 * added(&x, 1, 0, "v")))
        fail_msg("k is off by %g, v by %g", added(&x, 1, 0, "k"), added(&x, 1, 0, "v"));
    done(&x);
}

/* Heads of 16 channels are one short block each: formats of blocks work as all others do. */
static void test_short_heads(void **state)
{
    (void)state;
    for (int i = FORMATS - 2; i < FORMATS; i++) {
        const char *what = formats[i];
        char kernels[64];
        struct outcome x;
        snprintf(kernels, sizeof kernels, "pinned,pinned+cache=%s", what);
        struct ask q = {.factor = {[DS_FACTOR_KERNELS] = kernels}};
        judge(&x, &q);
        check(what, x.result.failed == 0 && x.v.first.kind == DS_KIND_LOWER_PRECISION);
        check_text(what, x.v.first.stage, "kv_write");
        check_text(what, x.v.first.variant, what);
        done(&x);
        q = (struct ask){.factor = {[DS_FACTOR_KERNELS] = kernels + strlen("pinned,"),
                                    [DS_FACTOR_BATCH] = "1,3",
                                    [DS_FACTOR_CHUNK] = "0,4",
                                    [DS_FACTOR_MODE] = "prefill,decode"}};
        judge(&x, &q);
        check(what, x.v.result == DS_RESULT_SAME && x.result.failed == 0);
        done(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_format),
        cmocka_unit_test(test_formats_are_invariant),
        cmocka_unit_test(test_outlier_channels),
        cmocka_unit_test(test_short_heads),
    };
    return cmocka_run_group_tests_name("cache formats in whole sweeps", tests, NULL, NULL);
}
