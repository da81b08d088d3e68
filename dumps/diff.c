/* diff.c: see diff.h. Owns the order of questions: settings, then sites and arms, then the verdict,
 * then sizes and what is to be listed. */
#include "dumps/diff_internal.h"

#include "base/mem.h"
#include "dumps/record_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ds_diff_kind_name(int kind)
{
    static const char *const names[DS_DIFF_KINDS] = {
        "model",  "weight",  "weight bytes", "packed weight", "hyperparameter", "option",
        "prompt", "factor",  "library",      "environment",   "history",        "site",
        "arm",    "repeats", "rows",         "launch",        "damage"};
    return kind >= 0 && kind < DS_DIFF_KINDS ? names[kind] : "unknown";
}

static char *copy_text(const char *text, struct ds_error *err)
{
    char *copy = ds_calloc(strlen(text) + 1, 1, "diff text", err);
    return copy ? strcpy(copy, text) : NULL;
}

int diff_add(struct ds_diff *d, int kind, const char *name, const char *a, const char *b,
             struct ds_error *err)
{
    if (ds_grow_by_one(&d->items, d->n_items, sizeof *d->items, "differences", err) != 0)
        return -1;
    struct ds_diff_item *x = &d->items[d->n_items];
    *x = (struct ds_diff_item){.kind = kind};
    d->n_items++;
    return (x->name = copy_text(name, err)) && (!a || (x->a = copy_text(a, err))) &&
                   (!b || (x->b = copy_text(b, err)))
               ? 0
               : -1;
}

static const struct ds_trial *joined_info(void *ctx, size_t i)
{
    return &((struct ds_diff *)ctx)->trials[i].info;
}

static const struct ds_trial_data *joined_get(void *ctx, size_t i, struct ds_error *err)
{
    (void)err;
    return &((struct ds_diff *)ctx)->trials[i];
}

/* A digest is a digest: either side may hold its bytes. */
static int joined_blob(void *ctx, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    const struct ds_diff *d = ctx;
    int rc = d->options.blob ? d->options.blob(d->options.ctx, 0, digest, out, err) : 0;
    return rc == 0 && d->options.blob ? d->options.blob(d->options.ctx, 1, digest, out, err) : rc;
}

int diff_room(const struct ds_diff *d, uint64_t *left, struct ds_error *err)
{
    const struct ds_diff_options *o = &d->options;
    const uint64_t taken = d->own_bytes + d->cap_drifts * sizeof(struct ds_drift) +
                           (o->loaded ? o->loaded(o->ctx) : 0);
    char words[DS_BYTES_WORDS];
    *left = 0;
    if (!o->memory)
        return 0;
    if (taken >= o->memory)
        return ds_fail(err, "trials take more than %s of memory", ds_bytes_words(o->memory, words));
    *left = o->memory - taken;
    return 0;
}

/* Makes the analysis, or makes it again. */
static int analyse(struct ds_diff *d, struct ds_error *err)
{
    uint64_t left;
    ds_analysis_free(d->analysis);
    d->analysis = NULL;
    if (diff_room(d, &left, err) != 0)
        return -1;
    const struct ds_analysis_options how = {.only_factor = "record",
                                            .data_differs = d->data_differs,
                                            .data_what = diff_data_text,
                                            .data_ctx = d,
                                            .ignored = d->ignored,
                                            .history = d->histories,
                                            .healed_to = d->healed_to,
                                            .prompt_of = d->prompt_of,
                                            .recorded = d->recorded,
                                            .within = d->recorded ? diff_within : NULL,
                                            .within_ctx = d,
                                            .memory = left,
                                            .stop = d->options.stop,
                                            .ctx = d->options.stop_ctx};
    d->joined =
        (struct ds_source){&d->header, d->n_trials, joined_info, joined_get, d, joined_blob};
    return ds_analysis_new(&d->joined, &how, &d->analysis, err);
}

static int judge(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
                 struct ds_error *err)
{
    int changed = 0, rc = analyse(d, err);
    rc = rc ? rc : diff_excuse(d, &changed, err);
    rc = rc || !changed ? rc : analyse(d, err);
    rc = rc ? rc : ds_analysis_verdict(d->analysis, &d->verdict, err);
    rc = rc ? rc : diff_heal(d, a, b, &changed, err);
    if (rc != 0 || !changed || !d->healed_to)
        return rc;
    ds_verdict_free(&d->verdict);
    rc = analyse(d, err);
    return rc ? rc : ds_analysis_verdict(d->analysis, &d->verdict, err);
}

/* Whether some row that a kernel gave is in both records. */
static int shares_a_kernels_row(const struct ds_diff *d)
{
    uint64_t x, y;
    for (uint32_t s = 0; s < d->header.n_sites; s++)
        for (uint32_t p = 0; strcmp(d->header.sites[s].op, "schedule") != 0 && p < d->pairs; p++)
            for (size_t i = 0; i < ds_analysis_rows(d->analysis); i++)
                if (ds_analysis_digest(d->analysis, 2 * p, s, i, &x) &&
                    ds_analysis_digest(d->analysis, 2 * p + 1, s, i, &y))
                    return 1;
    return 0;
}

/* Positions and lengths that agree say that the same rows were asked for, not that their numbers agree. */
static void refuse_bookkeeping(struct ds_diff *d)
{
    struct ds_verdict *v = &d->verdict;
    if (v->result != DS_RESULT_SAME || d->options.n_only || d->options.n_ignore ||
        shares_a_kernels_row(d))
        return;
    v->result = DS_RESULT_INCOMPARABLE;
    snprintf(v->reason, sizeof v->reason,
             "the records share positions and lengths, and no row of a kernel");
}

/* Equal as far as both go is not equal. */
static void refuse_partial(struct ds_diff *d)
{
    struct ds_verdict *v = &d->verdict;
    if (!d->partial || d->options.partial || v->result != DS_RESULT_SAME)
        return;
    v->result = DS_RESULT_INCOMPARABLE;
    snprintf(v->reason, sizeof v->reason,
             "no difference over %" PRIu64
             " comparisons, but %s; --partial compares what both have",
             v->factors[v->n_factors - 1].phase[DS_VERDICT_ALL].compared, d->missing_words);
}

int ds_diff_make(const struct ds_source *a, const struct ds_source *b,
                 const struct ds_diff_options *options, struct ds_diff *out, struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    if (options)
        out->options = *options;
    int rc = diff_settings(out, a, b, err);
    rc = rc ? rc : diff_join(out, a, b, err);
    rc = rc ? rc : diff_mark_sites(out, err);
    rc = rc ? rc : diff_filter(out, err);
    rc = rc ? rc : judge(out, a, b, err);
    rc = rc ? rc : diff_sizes(out, err);
    if (rc == 0)
        refuse_bookkeeping(out);
    rc = rc ? rc : diff_note_within(out, err);
    rc = rc ? rc : diff_note_histories(out, err);
    rc = rc ? rc : diff_note_rows(out, err);
    rc = rc ? rc : diff_note_launch(out, err);
    rc = rc ? rc : diff_missing(out, a, b, err);
    if (rc == 0)
        refuse_partial(out);
    if (rc == 1) { /* incomparable: the reason is already there */
        out->verdict.result = DS_RESULT_INCOMPARABLE;
        out->verdict.stable = 1;
        out->verdict.overhead_prefill = out->verdict.overhead_decode = -1;
        out->verdict.disturbs = -1;
        return 0;
    }
    if (rc != 0)
        ds_diff_free(out);
    return rc;
}

void ds_diff_free(struct ds_diff *d)
{
    ds_verdict_free(&d->verdict);
    ds_analysis_free(d->analysis);
    for (size_t i = 0; i < d->n_items; i++) {
        free(d->items[i].name);
        free(d->items[i].a);
        free(d->items[i].b);
    }
    for (size_t i = 0; i < d->n_trials; i++) {
        free(d->trials[i].captures);
        free(d->trials[i].nonfinites);
        free(d->trials[i].drifts);
        if (d->own_digests)
            free(d->own_digests[i]);
    }
    free(d->own_digests);
    free(d->recorded);
    if (d->within_known)
        ds_map_free(d->within_known);
    free(d->within_known);
    free(d->histories);
    free(d->ignored);
    for (size_t i = 0; i < d->header.n_arms; i++)
        free(d->header.arms[i].values);
    free(d->items);
    free(d->trials);
    free(d->site_map[0]);
    free(d->site_map[1]);
    free(d->healed_to);
    free(d->arm_of);
    free(d->prompt_of);
    free(d->data_differs);
    free(d->site_only);
    free(d->header.options); /* borrowed texts */
    free(d->header.arms);
    free(d->header.factors);
    free(d->header.sites);
    free(d->header.edges);
    memset(d, 0, sizeof *d);
}
