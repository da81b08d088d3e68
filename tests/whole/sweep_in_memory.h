/* sweep_in_memory.h: a whole sweep of a small seeded model and its verdict, without a file: what
 * the tests of faulty kernels are made of. Include once, in a test of tests/whole. */
#ifndef DS_TESTS_SWEEP_IN_MEMORY_H
#define DS_TESTS_SWEEP_IN_MEMORY_H

#include "tests/unit/testing.h"

#include "base/buf.h"
#include "base/mem.h"
#include "cli/render_json.h"
#include "dumps/diff.h"
#include "dumps/verdict.h"
#include "engine/sweep.h"
#include "engine/worker.h"

#include <stdlib.h>
#include <string.h>

/* Tokens of the prompt; a test that needs more says so before it includes this. */
#ifndef SWEEP_PROMPT
#define SWEEP_PROMPT 9
#endif
enum { PROMPT = SWEEP_PROMPT, NEIGHBOURS = 15 };

/* What is swept. Zero and NULL: the defaults. */
struct ask {
    const char *model;
    struct ds_model *opened; /* NULL, or what is swept; it then belongs to the outcome */
    const char *factor[DS_FACTOR_COUNT];
    int repeats, steps, poison, dump, full, free_run, until_stable, load, no_heal, digest_packed;
    int position_offset, all_logits, score_keys;
    const int32_t *prompt; /* [PROMPT] */
    const int32_t *forced;
    int32_t n_forced;
    const struct outcome *resumed; /* all but its heal trials is there already */
};

struct outcome {
    struct ds_model *model;
    struct ds_header header;
    struct ds_trial_data *trials;
    size_t n_trials, cap;
    struct ds_sweep_result result;
    char note[400]; /* the last one */
    struct ds_source source;
    struct ds_analysis *analysis;
    struct ds_verdict v;
};

static const int32_t subject_prompt[PROMPT] = {5, 9, 1, 44, 23, 8, 2, 60, 31};
static int32_t neighbour_prompt[NEIGHBOURS][PROMPT];

/* Trials that the parent has taken: workers forked later find another number. */
static int trials_kept;

static int keep_trial(void *ctx, const struct ds_trial_data *t, struct ds_error *err)
{
    struct outcome *x = ctx;
    struct ds_buf copy = {0};
    if (ds_grow(&x->trials, &x->cap, x->n_trials + 1, sizeof *x->trials, "trials", err) != 0)
        return -1;
    ds_trial_pack(t, &copy);
    int rc = ds_trial_unpack(copy.data, copy.len, &x->trials[x->n_trials], err);
    ds_buf_free(&copy);
    x->n_trials += rc == 0;
    trials_kept++;
    return rc;
}

static void keep_note(void *ctx, const char *text)
{
    struct outcome *x = ctx;
    snprintf(x->note, sizeof x->note, "%s", text);
}

static const struct ds_trial_data *recall_kept(void *ctx, uint32_t arm, uint32_t repeat)
{
    const struct outcome *x = ctx;
    for (size_t i = 0; i < x->n_trials; i++)
        if (x->trials[i].info.pass == DS_PASS_NATURAL && x->trials[i].info.arm == arm &&
            x->trials[i].info.repeat == repeat)
            return &x->trials[i];
    return NULL;
}

static int have_kept(void *ctx, const struct ds_trial *t)
{
    return t->pass != DS_PASS_HEAL && recall_kept(ctx, t->arm, t->repeat) != NULL;
}

static const struct ds_trial *kept_info(void *ctx, size_t i)
{
    return &((struct outcome *)ctx)->trials[i].info;
}

static const struct ds_trial_data *kept_trial(void *ctx, size_t i, struct ds_error *err)
{
    (void)err;
    return &((struct outcome *)ctx)->trials[i];
}

static int kept_blob(void *ctx, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    const struct outcome *x = ctx;
    return ds_trials_blob(x->trials, x->n_trials, digest, out, err);
}

static void plan(struct outcome *x, const struct ask *q)
{
    struct ds_error err;
    struct ds_factor_values v[DS_FACTOR_COUNT];
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        assert_ok(ds_factor_parse(f, q->factor[f], &v[f], &err), err);
    assert_ok(ds_plan_arms(v, q->full, &x->header.arms, &x->header.n_arms, &err), err);
    x->header.factors = ds_calloc(DS_FACTOR_COUNT, sizeof *x->header.factors, "factors", &err);
    for (; x->header.n_factors < DS_FACTOR_COUNT; x->header.n_factors++)
        x->header.factors[x->header.n_factors] = strdup(ds_factor_names[x->header.n_factors]);
    struct ds_setting base;
    assert_ok(ds_setting_parse(x->header.arms[0].values, &base, &err), err);
    assert_ok(ds_sweep_describe_model(x->model, base.dtype, q->score_keys, &x->header, &err), err);
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        ds_factor_free(&v[f]);
}

/* What the run was asked for, as `run` stores it: of that what verdicts look at. */
static void describe_options(struct outcome *x, const struct ask *q)
{
    struct ds_error err;
    x->header.options = ds_calloc(1, sizeof *x->header.options, "options", &err);
    assert_non_null(x->header.options);
    x->header.options[0] = (struct ds_text){strdup("heal"), strdup(q->no_heal ? "0" : "1")};
    x->header.n_options = 1;
}

/* The subject's prompt in the header, as `run` stores it. */
static void describe_prompt(struct outcome *x, const int32_t *tokens)
{
    struct ds_error err;
    struct ds_prompt *p = ds_calloc(1, sizeof *p, "prompt", &err);
    assert_non_null(p);
    p->n_tokens = PROMPT;
    p->text = strdup("");
    p->tokens = ds_calloc(PROMPT, sizeof *p->tokens, "prompt", &err);
    memcpy(p->tokens, tokens, PROMPT * sizeof *tokens);
    x->header.prompts = p;
    x->header.n_prompts = 1;
}

#define SMALL "random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=9"

/* Runs the sweep; no verdict yet. */
static void sweep(struct outcome *x, const struct ask *q)
{
    struct ds_error err;
    struct ds_sweep_request requests[1 + NEIGHBOURS];
    memset(x, 0, sizeof *x);
    trials_kept = 0;
    x->model = q->opened;
    if (!x->model)
        assert_ok(ds_model_open(q->model ? q->model : SMALL, 1, &x->model, &err), err);
    plan(x, q);
    requests[0] = (struct ds_sweep_request){q->prompt ? q->prompt : subject_prompt, PROMPT};
    describe_prompt(x, requests[0].tokens);
    describe_options(x, q);
    for (size_t i = 0; q->resumed && i < q->resumed->n_trials; i++)
        if (q->resumed->trials[i].info.pass != DS_PASS_HEAL)
            assert_ok(keep_trial(x, &q->resumed->trials[i], &err), err);
    for (int i = 0; i < NEIGHBOURS; i++) {
        for (int k = 0; k < PROMPT; k++)
            neighbour_prompt[i][k] = (7 * i + 11 * k + 3) % 64;
        requests[1 + i] = (struct ds_sweep_request){neighbour_prompt[i], 3 + i % (PROMPT - 2)};
    }
    x->header.repeats = (uint32_t)(q->repeats ? q->repeats : 3);
    struct ds_sweep s = {.model = x->model,
                         .header = &x->header,
                         .requests = requests,
                         .n_requests = 1 + NEIGHBOURS,
                         .forced = q->forced,
                         .n_forced = q->n_forced,
                         .ctx = x,
                         .sink = keep_trial,
                         .have = q->resumed ? have_kept : NULL,
                         .recall = q->resumed ? recall_kept : NULL,
                         .note = keep_note,
                         .options = {.repeats = q->repeats ? q->repeats : 3,
                                     .steps = q->steps ? q->steps : 4,
                                     .poison = q->poison,
                                     .heal = !q->no_heal,
                                     .digest_packed = q->digest_packed,
                                     .free_run = q->free_run,
                                     .dump = q->dump,
                                     .until_stable = q->until_stable,
                                     .load = q->load,
                                     .position_offset = q->position_offset,
                                     .all_logits = q->all_logits,
                                     .dump_rows = 64,
                                     .hold = 64 << 20}};
    assert_ok(ds_sweep_run(&s, &x->result, &err), err);
    x->source = (struct ds_source){&x->header, x->n_trials, kept_info, kept_trial, x, kept_blob};
}

/* Sweep and verdict. */
static inline void judge(struct outcome *x, const struct ask *q)
{
    struct ds_error err;
    sweep(x, q);
    assert_ok(ds_analysis_new(&x->source, NULL, &x->analysis, &err), err);
    assert_ok(ds_analysis_verdict(x->analysis, &x->v, &err), err);
}

static void drop(struct outcome *x)
{
    ds_verdict_free(&x->v);
    ds_analysis_free(x->analysis);
    for (size_t i = 0; i < x->n_trials; i++)
        ds_trial_data_free(&x->trials[i]);
    free(x->trials);
    ds_header_free(&x->header);
    ds_model_close(x->model);
}

static inline const struct ds_factor_verdict *factor_of(const struct ds_verdict *v,
                                                        const char *name)
{
    for (size_t f = 0; f < v->n_factors; f++)
        if (strcmp(v->factors[f].name, name) == 0)
            return &v->factors[f];
    fail_msg("the verdict has no factor %s", name);
    return NULL;
}

static inline const struct ds_kernel_verdict *kernel_of(const struct ds_verdict *v, const char *op,
                                                        const char *variant)
{
    for (size_t k = 0; k < v->n_kernels; k++)
        if (strcmp(v->kernels[k].op, op) == 0 && strcmp(v->kernels[k].variant, variant) == 0)
            return &v->kernels[k];
    fail_msg("the verdict has no kernel %s/%s", op, variant);
    return NULL;
}

static inline int condition_of(const struct ds_verdict *v, const char *op, const char *variant,
                               const char *factor)
{
    return kernel_of(v, op, variant)->condition[factor_of(v, factor) - v->factors];
}

/* The whole verdict as text, for a message and for the word check. The caller frees it. */
static inline char *verdict_text(const struct outcome *x)
{
    struct ds_buf out = {0};
    struct ds_report r = {.header = &x->header, .v = &x->v};
    ds_report_verdict(&r, &out);
    ds_buf_add(&out, "", 1);
    return out.data;
}

static int cut_short __attribute__((unused)); /* a check failed: the verdict is shown once */

#define check(what, condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            print_error("%s:%d: %s: %s does not hold\n", __FILE__, __LINE__, what, #condition);    \
            cut_short = 1;                                                                         \
        }                                                                                          \
    } while (0)

#define check_text(what, got, want)                                                                \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        if (!got_ || strcmp(got_, want_) != 0) {                                                   \
            print_error("%s:%d: %s: %s is '%s', not '%s'\n", __FILE__, __LINE__, what, #got,       \
                        got_ ? got_ : "(none)", want_);                                            \
            cut_short = 1;                                                                         \
        }                                                                                          \
    } while (0)

/* Ends a case: shows the verdict and fails if a check did not hold. */
static inline void done(struct outcome *x)
{
    if (cut_short) {
        char *text = verdict_text(x);
        print_error("%s\n", text);
        free(text);
        cut_short = 0;
        drop(x);
        fail();
    }
    drop(x);
}

#endif
