/* test_specimens_diff.c: two sweeps of small models held against each other: other sets of arms,
 * other repeats, one side unstable, what cannot be compared at all, and tokens that part. */
#include "tests/whole/specimen_kernels.h"
#include "tests/whole/sweep_in_memory.h"

#include "dumps/validity.h"

/* What the checks of sweep_in_memory.h show when one does not hold. */
static void done_diff(struct ds_diff *d, struct outcome *a, struct outcome *b)
{
    int failed = cut_short;
    cut_short = 0;
    if (failed) {
        struct ds_buf out = {0};
        struct ds_report r = {.header = &d->header, .v = &d->verdict, .diff = d};
        ds_report_verdict(&r, &out);
        ds_buf_add(&out, "", 1);
        print_error("%s\n", out.data);
        ds_buf_free(&out);
    }
    ds_diff_free(d);
    drop(a);
    if (b != a)
        drop(b);
    if (failed)
        fail();
}

static struct ask ask(const char *kernels, const char *batch)
{
    return (struct ask){.repeats = 2,
                        .factor = {[DS_FACTOR_KERNELS] = kernels, [DS_FACTOR_BATCH] = batch}};
}

static void compare(struct outcome *a, struct outcome *b, struct ds_diff *d)
{
    struct ds_error err;
    assert_ok(ds_diff_make(&a->source, &b->source, NULL, d, &err), err);
}

static int has_item(const struct ds_diff *d, int kind, const char *name)
{
    for (size_t i = 0; i < d->n_items; i++)
        if (d->items[i].kind == kind && strcmp(d->items[i].name, name) == 0)
            return 1;
    return 0;
}

static void test_the_same_record_twice(void **state)
{
    const char *what = "twice the same";
    struct outcome a;
    struct ds_diff d;
    struct ask q = ask("pinned+matmul=split", "1,2,4");
    (void)state;
    specimen.from_rows = 4; /* drifts inside, the same on both sides */
    sweep(&a, &q);
    compare(&a, &a, &d);
    check(what, d.verdict.result == DS_RESULT_SAME && ds_verdict_exit(&d.verdict) == 0);
    check(what, d.pairs == a.header.n_arms && d.n_items == 0 && d.verdict.stable);
    done_diff(&d, &a, &a);
}

static void test_arms_of_one_side_only(void **state)
{
    static const struct {
        const char *what, *batch_a, *batch_b;
        int repeats_a, repeats_b;
        size_t pairs, alone;
    } cases[] = {
        {"a subset", "1,2,4", "1,2", 2, 2, 2, 1},    {"a superset", "1,2", "1,2,4,8", 2, 2, 2, 2},
        {"crossing", "1,2,4", "1,4,8", 2, 2, 2, 2},  {"another base", "2,4", "1,2", 2, 2, 1, 2},
        {"other repeats", "1,2", "1,2", 1, 3, 2, 0}, {"one trial each", "1", "1", 1, 1, 1, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int changed = 0; changed < 2; changed++) {
            const char *what = cases[i].what;
            struct outcome a, b;
            struct ds_diff d;
            struct ask qa = ask("pinned+matmul=reference", cases[i].batch_a),
                       qb = ask(changed ? "pinned+matmul=split" : "pinned+matmul=reference",
                                cases[i].batch_b);
            qa.repeats = cases[i].repeats_a;
            qb.repeats = cases[i].repeats_b;
            sweep(&a, &qa);
            sweep(&b, &qb);
            compare(&a, &b, &d);
            size_t alone = 0;
            for (size_t k = 0; k < d.n_items; k++)
                alone += d.items[k].kind == DS_DIFF_ARM;
            check(what, d.pairs == cases[i].pairs && alone == cases[i].alone);
            check(what, d.verdict.stable);
            check(what, d.verdict.result == (changed          ? DS_RESULT_DRIFT
                                             : cases[i].alone ? DS_RESULT_INCOMPARABLE
                                                              : DS_RESULT_SAME));
            check(what, d.partial == (cases[i].alone > 0));
            check(what, has_item(&d, DS_DIFF_FACTOR, "kernels") == changed);
            check(what, d.verdict.first.found == changed);
            if (changed) {
                check(what, d.verdict.first.layer == 0 && d.verdict.first.step == 0);
                check_text(what, d.verdict.first.stage, "q_proj");
                check_text(what, d.verdict.first.variant, "split");
                check_text(what, d.verdict.first.ref_variant, "reference");
            }
            done_diff(&d, &a, &b);
        }
}

static void test_one_unstable_side(void **state)
{
    (void)state;
    for (int swapped = 0; swapped < 2; swapped++) {
        const char *what = swapped ? "A unstable" : "B unstable";
        struct outcome a, b;
        struct ds_diff d;
        struct ask q = ask("pinned+attention=reference", "1,2"),
                   u = ask("pinned+attention=coin", "1,2");
        specimen.one_in = 2;
        u.repeats = q.repeats = 4;
        sweep(&a, swapped ? &u : &q);
        sweep(&b, swapped ? &q : &u);
        compare(&a, &b, &d);
        check(what, d.verdict.result == DS_RESULT_DRIFT && !d.verdict.stable);
        check_text(what, d.verdict.first.factor, "repeat");
        check_text(what, d.verdict.first.stage, "attn_out");
        check(what, d.verdict.factors[d.verdict.n_factors - 1].phase[DS_VERDICT_ALL].drifted == 0);
        done_diff(&d, &a, &b);
    }
}

static int either_blob(void *ctx, int side, uint64_t digest, struct ds_blob *out,
                       struct ds_error *err)
{
    const struct outcome *x = ((struct outcome **)ctx)[side];
    return ds_trials_blob(x->trials, x->n_trials, digest, out, err);
}

/* Every origin has a kind, or a reason why there is none. */
static void origins_have_kinds(const char *what, const struct ds_verdict *v, int dumped)
{
    for (size_t i = 0; i < v->n_origins; i++) {
        const struct ds_finding *f = &v->origins[i].at;
        check(what, f->found && f->why[0]);
        check(what, f->kind == (dumped ? DS_KIND_ROUNDING_ORDER : DS_KIND_UNKNOWN));
        check(what, f->sized == dumped);
    }
}

/* Layers in which a stage of the matmul is found to be at fault. */
static uint32_t guilty_layers(const struct ds_verdict *v, const char *stage)
{
    for (size_t i = 0; i < v->n_origins; i++)
        if (strcmp(v->origins[i].stage, stage) == 0)
            return v->origins[i].layers;
    return 0;
}

/* Base arms that agree and heal trials on both sides: every kernel is judged at every depth, as in a sweep. One
 * side may equal its base, and so have no heal trial. Without heal trials only the first layer is. */
static void test_kernels_are_judged_behind_the_first_difference(void **state)
{
    static const struct {
        const char *what;
        int64_t from_rows[2]; /* from which on the matmul splits: 1000 is never, which is a chain */
        int no_heal, tolerance, dump;
        int deep;
    } cases[] = {{"both healed", {2, 1000}, 0, 0, 0, 1},
                 {"swapped", {1000, 2}, 0, 0, 0, 1},
                 {"with dumped rows", {2, 1000}, 0, 0, 1, 1},
                 {"swapped, with dumped rows", {1000, 2}, 0, 0, 1, 1},
                 {"no heal trials", {2, 1000}, 1, 0, 0, 0},
                 {"with a tolerance", {2, 1000}, 0, 1, 1, 1},
                 /* whether what heal trials gave is within it is not known */
                 {"with a tolerance, no dumped rows", {2, 1000}, 0, 1, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *what = cases[i].what;
        struct outcome a, b;
        struct ds_diff d;
        struct ds_error err;
        struct ask q = ask("pinned,pinned+matmul=split", "1");
        struct ds_diff_options options = {.tolerance = {.ulp = (uint64_t)cases[i].tolerance}};
        struct outcome *sides[2] = {&a, &b};
        if (cases[i].dump) {
            q.dump = DS_DUMP_ORIGINS;
            options.blob = either_blob;
            options.ctx = sides;
        }
        q.no_heal = cases[i].no_heal;
        specimen.from_rows = cases[i].from_rows[0];
        sweep(&a, &q);
        specimen.from_rows = cases[i].from_rows[1];
        sweep(&b, &q);
        assert_ok(ds_diff_make(&a.source, &b.source, &options, &d, &err), err);
        const struct ds_verdict *v = &d.verdict;
        check(what, v->result == DS_RESULT_DRIFT && d.pairs == 2 && v->first.layer == 0);
        check_text(what, v->first.stage, "q_proj");
        check(what, (v->counts.heal_trials > 0) == !cases[i].no_heal);
        check(what, guilty_layers(v, "q_proj") == (cases[i].deep ? 2u : 1u));
        check(what, (guilty_layers(v, "down") == 2) == cases[i].deep);
        if (cases[i].deep)
            origins_have_kinds(what, v, cases[i].dump);
        for (size_t k = 0; k < v->n_kernels; k++) {
            const struct ds_kernel_verdict *x = &v->kernels[k];
            check(what, x->origins == 0 || strcmp(x->variant, "split") == 0);
        }
        done_diff(&d, &a, &b);
    }
}

#define OF(arch, heads, kv, ffn, vocab)                                                            \
    "random:" arch ",layers=2,hidden=64,heads=" heads ",kv_heads=" kv ",ffn=" ffn ",vocab=" vocab  \
    ",ctx=64,seed=9"

static void test_what_cannot_be_compared(void **state)
{
    static const int32_t other_prompt[PROMPT] = {5, 9, 1, 44, 23, 8, 2, 60, 32};
    static const struct {
        const char *what, *model_a, *model, *dtype;
        const int32_t *prompt;
        const char *reason;
    } cases[] = {
        {"another prompt", NULL, NULL, NULL, other_prompt, "token 8 is 31 in A, 32 in B"},
        {"another dtype", NULL, NULL, "bf16", NULL, "other formats: f32 in A, bf16 in B"},
        {"more heads", NULL, OF("llama", "8", "2", "96", "128"), NULL, NULL,
         "heads 4 in A, 8 in B"},
        {"more key-value heads", NULL, OF("llama", "4", "4", "96", "128"), NULL, NULL,
         "key-value heads 2 in A, 4 in B"},
        {"a wider residual stream", NULL,
         "random:llama,layers=2,hidden=128,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=9", NULL,
         NULL, "head dimension 16 in A, 32 in B"},
        {"a wider network", NULL, OF("llama", "4", "2", "128", "128"), NULL, NULL,
         "feed-forward network 96 in A, 128 in B"},
        {"a larger vocabulary", NULL, OF("llama", "4", "2", "96", "160"), NULL, NULL,
         "vocabulary 128 in A, 160 in B"},
        {"biases", NULL, OF("qwen2", "4", "2", "96", "128"), NULL, NULL,
         "architectures differ: llama in A, qwen2 in B"},
        {"experts", NULL, SMALL ",experts=4,top_k=2", NULL, NULL, "experts none in A, 4 in B"},
        {"other weights", NULL,
         "random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=8", NULL,
         NULL, "two models: no weight of A's 21 is one of B's 21"},
        {"no experts", SMALL ",experts=4,top_k=2", SMALL, NULL, NULL, "experts 4 in A, none in B"},
        {"more experts", SMALL ",experts=4,top_k=2", SMALL ",experts=8,top_k=2", NULL, NULL,
         "experts 4 in A, 8 in B"},
        {"a layer without experts", SMALL ",experts=4,top_k=2,dense_layers=1",
         SMALL ",experts=4,top_k=2", NULL, NULL, "first layers without experts 1 in A, none in B"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *what = cases[i].what;
        struct outcome a, b;
        struct ds_diff d;
        struct ask q = ask("pinned", "1,2"), o = q;
        q.model = cases[i].model_a;
        o.model = cases[i].model;
        o.prompt = cases[i].prompt;
        o.factor[DS_FACTOR_DTYPE] = cases[i].dtype;
        sweep(&a, &q);
        sweep(&b, &o);
        compare(&a, &b, &d);
        check(what, d.verdict.result == DS_RESULT_INCOMPARABLE);
        check(what, ds_verdict_exit(&d.verdict) == 2);
        check(what, !d.verdict.first.found);
        if (!strstr(d.verdict.reason, cases[i].reason)) {
            print_error("%s: '%s' does not say '%s'\n", what, d.verdict.reason, cases[i].reason);
            cut_short = 1;
        }
        done_diff(&d, &a, &b);
    }
}

/* The same structure and other numbers in it: compared, and the last line says what bears on the place. */
static void test_what_can_be_compared(void **state)
{
    static const struct {
        const char *what, *model_a, *model_b, *stage, *told;
    } cases[] = {
        {"other weights, when asked for", SMALL,
         "random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=8",
         "embed", "weight token_embd.weight differs"},
        {"another epsilon", SMALL, SMALL ",eps=0.001", "attn_norm", "hyperparameter rms_eps"},
        {"another rope base", SMALL, SMALL ",rope_base=500", "q_rope", "hyperparameter rope_base"},
        {"biases for the same network", SMALL, SMALL ",bias=1", "q_proj",
         "weight blk.0.attn_q.bias differs"},
        {"one layer more", SMALL,
         "random:llama,layers=3,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=9",
         "final_norm", "layers 2 against 3"},
        {"fewer experts for a row", SMALL ",experts=4,top_k=2", SMALL ",experts=4,top_k=1", NULL,
         "hyperparameter top_k 2 against 1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *what = cases[i].what;
        struct outcome a, b;
        struct ds_diff d;
        struct ask q = ask("pinned", "1,2"), o = q;
        q.model = cases[i].model_a;
        o.model = cases[i].model_b;
        sweep(&a, &q);
        sweep(&b, &o);
        const struct ds_diff_options across = {.across_models = 1};
        struct ds_error err;
        assert_ok(ds_diff_make(&a.source, &b.source, i == 0 ? &across : NULL, &d, &err), err);
        check(what, d.verdict.result == DS_RESULT_DRIFT && ds_verdict_exit(&d.verdict) == 1);
        check(what, d.verdict.validity->n_items == 0);
        if (cases[i].stage)
            check_text(what, d.verdict.first.stage, cases[i].stage);
        struct ds_buf line = {0};
        struct ds_report r = {.header = &d.header, .v = &d.verdict, .diff = &d};
        ds_report_sentence(&r, &line);
        ds_buf_add(&line, "", 1);
        check(what, !line.failed && strstr(line.data, cases[i].told));
        ds_buf_free(&line);
        done_diff(&d, &a, &b);
    }
}

/* What both have is compared, the layer that only one has is listed, and what follows it is not
 * blamed on the last norm alone. */
static void test_a_model_with_one_layer_more(void **state)
{
    const char *what = "one layer more";
    struct outcome a, b;
    struct ds_diff d;
    struct ask q = ask("pinned", "1,2"), o = q;
    (void)state;
    o.model = "random:llama,layers=3,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=9";
    sweep(&a, &q);
    sweep(&b, &o);
    compare(&a, &b, &d);
    const struct ds_finding *f = &d.verdict.first;
    check(what, d.verdict.result == DS_RESULT_DRIFT && has_item(&d, DS_DIFF_MODEL, "layers"));
    check(what, has_item(&d, DS_DIFF_SITE, "layer 2 q_proj"));
    check_text(what, f->stage, "final_norm");
    check(what, f->label == DS_LABEL_ORIGIN && f->between > 10);
    check(what, d.header.sites[f->between_first].layer == 2);
    for (size_t k = 0; k < d.verdict.n_kernels; k++)
        check(what, d.verdict.kernels[k].origins == 0);
    done_diff(&d, &a, &b);
}

/* A row of the embedding that no token of the sweep asks for: named as a difference, no drift. */
static void test_a_weight_that_nothing_reads(void **state)
{
    const char *what = "an unused row";
    struct ds_error err;
    struct outcome a, b;
    struct ds_diff d;
    struct ask q = ask("pinned", "1,2"), o = q;
    (void)state;
    sweep(&a, &q);
    int used[128] = {0};
    for (int i = 0; i < PROMPT; i++)
        used[subject_prompt[i]] = 1;
    for (size_t t = 0; t < a.n_trials; t++)
        for (size_t i = 0; i < a.trials[t].n_steps; i++)
            used[a.trials[t].steps[i].token] = 1;
    int unused = 0;
    while (used[unused])
        unused++;
    assert_ok(ds_model_open(SMALL, 1, &o.opened, &err), err);
    assert_false(o.opened->hp.tied);
    o.opened->embed->data[unused * o.opened->hp.d_model] += 1.0f;
    ((struct ds_weight *)o.opened->embed)->digest++;
    sweep(&b, &o);
    compare(&a, &b, &d);
    check(what, d.verdict.result == DS_RESULT_SAME && ds_verdict_exit(&d.verdict) == 0);
    check(what, has_item(&d, DS_DIFF_WEIGHT, o.opened->embed->name) && d.n_items == 1);
    check(what, d.verdict.factors[d.verdict.n_factors - 1].phase[DS_VERDICT_ALL].drifted == 0);
    done_diff(&d, &a, &b);
}

/* B feeds other tokens from step 2 on: rows up to there are the same, the rest has no counterpart
 * and is not called drift. */
static void test_other_tokens_were_forced(void **state)
{
    const char *what = "forced tokens";
    struct outcome a, b;
    struct ds_diff d;
    struct ask q = ask("pinned", "1,2"), o = q;
    int32_t forced[4];
    (void)state;
    sweep(&a, &q);
    for (int i = 0; i < 4; i++)
        forced[i] = a.trials[0].steps[i].forced;
    forced[2] = (forced[2] + 1) % 128;
    o.forced = forced;
    o.n_forced = 4;
    sweep(&b, &o);
    compare(&a, &b, &d);
    check(what, d.verdict.result == DS_RESULT_INCOMPARABLE && !d.verdict.first.found);
    check(what, d.partial && d.parted == 2); /* of both arms */
    check(what, d.verdict.n_notes == 1 && strstr(d.verdict.notes[0], "other tokens were fed"));
    /* Steps 0, 1 and 2 were chosen from equal rows. */
    check(what, d.verdict.tokens_compared == 6 && d.verdict.tokens_same == 6);
    done_diff(&d, &a, &b);
}

/* Each side follows its own choice: the first one that differs is told, with its margin; what
 * follows is not compared. */
static void test_tokens_that_part(void **state)
{
    const char *what = "tokens part";
    struct outcome a, b;
    struct ds_diff d;
    struct ask q = ask("pinned", "4"), o = ask("pinned+sample=second-best", "4");
    (void)state;
    specimen.from_rows = 4;
    sweep(&a, &q);
    sweep(&b, &o);
    compare(&a, &b, &d);
    const struct ds_step *base = &a.trials[0].steps[0];
    check(what, d.verdict.result == DS_RESULT_DRIFT && d.verdict.stable);
    check_text(what, d.verdict.first.stage, "token");
    check(what, d.verdict.first.label == DS_LABEL_ORIGIN && d.verdict.first.rows == 1);
    check(what, d.verdict.first.kind == DS_KIND_SELECTION_ONLY);
    check(what, d.verdict.discrete.found && d.verdict.discrete.step == 0);
    check(what, d.verdict.discrete.a == base->ids[0] && d.verdict.discrete.b == base->ids[1]);
    check(what, d.verdict.discrete.margin == (double)base->margin);
    check(what, d.verdict.tokens_compared == 1 && d.verdict.tokens_same == 0);
    done_diff(&d, &a, &b);
}

/* An arm that one side lost is named; the others are compared. */
static void test_an_arm_lost_on_one_side(void **state)
{
    const char *what = "a lost arm";
    struct outcome a, b;
    struct ds_diff d;
    struct ask q = ask("pinned+matmul=refuse", "1,2,4");
    (void)state;
    specimen.at_rows = 1000;
    sweep(&a, &q);
    specimen.at_rows = 36;
    sweep(&b, &q);

    compare(&a, &b, &d);
    check(what, b.result.failed == 1 && d.pairs == 2);
    check(what, d.verdict.result == DS_RESULT_INCOMPARABLE && has_item(&d, DS_DIFF_ARM, "batch 4"));
    check(what, d.partial && d.missing[0].arms == 1 && d.missing[1].arms == 0);
    check(what, d.unmade[0] == 0 && d.unmade[1] == 1);
    ds_diff_free(&d);
    compare(&b, &b, &d); /* nor is what neither has made */
    check(what, d.verdict.result == DS_RESULT_INCOMPARABLE);
    check_text(what, d.missing_words,
               "without a complete trial in A: 1 arm (batch 4); without a complete trial in B: 1 "
               "arm (batch 4)");
    done_diff(&d, &a, &b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_the_same_record_twice, forget_specimen),
        cmocka_unit_test_teardown(test_arms_of_one_side_only, forget_specimen),
        cmocka_unit_test_teardown(test_one_unstable_side, forget_specimen),
        cmocka_unit_test_teardown(test_kernels_are_judged_behind_the_first_difference,
                                  forget_specimen),
        cmocka_unit_test_teardown(test_what_cannot_be_compared, forget_specimen),
        cmocka_unit_test_teardown(test_what_can_be_compared, forget_specimen),
        cmocka_unit_test_teardown(test_a_model_with_one_layer_more, forget_specimen),
        cmocka_unit_test_teardown(test_a_weight_that_nothing_reads, forget_specimen),
        cmocka_unit_test_teardown(test_other_tokens_were_forced, forget_specimen),
        cmocka_unit_test_teardown(test_tokens_that_part, forget_specimen),
        cmocka_unit_test_teardown(test_an_arm_lost_on_one_side, forget_specimen),
    };
    return cmocka_run_group_tests_name("specimens of diff", tests, add_specimens, NULL);
}
