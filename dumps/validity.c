/* validity.c: see validity.h. Owns the findings and their order. What can be told from digests alone: equal
 * rows are equal digests, and the digest of a row of zeros, of poison or of one NaN can be computed. */
#include "dumps/validity_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ds_validity_name(int kind)
{
    static const char *const names[DS_VALIDITY_KINDS] = {
        "all-zero",         "constant",       "poisoned", "all-nan",        "equal-layers",
        "equals-its-input", "probes-disturb", "warm-up",  "unlike-history", "inert-fixture"};
    return kind >= 0 && kind < DS_VALIDITY_KINDS ? names[kind] : "unknown";
}

void ds_validity_free(struct ds_validity *v)
{
    if (!v)
        return;
    free(v->items);
    free(v->proves_nothing);
    free(v);
}

int validity_whole_number(const struct ds_analysis *a, size_t site)
{
    return strcmp(a->h->sites[site].dtype, "i32") == 0;
}

/* ---- findings -------------------------------------------------------------------------------- */

struct ds_validity_item *validity_add(struct validity_work *w, int kind, struct ds_error *err,
                                      const char *fmt, ...)
{
    va_list ap;
    if (ds_grow(&w->v->items, &w->cap_items, w->v->n_items + 1, sizeof *w->v->items, "findings",
                err) != 0)
        return NULL;
    struct ds_validity_item *x = &w->v->items[w->v->n_items++];
    *x = (struct ds_validity_item){.kind = kind};
    va_start(ap, fmt);
    vsnprintf(x->text, sizeof x->text, fmt, ap);
    va_end(ap);
    return x;
}

static const char *const sentence[] = {
    [DS_VALIDITY_ZERO] = "all rows are zero, although their inputs are not",
    [DS_VALIDITY_CONSTANT] = "all rows have the same bits, although their inputs vary: a dead or "
                             "stale buffer",
    [DS_VALIDITY_POISON] = "rows hold the poison pattern: nobody wrote them",
    [DS_VALIDITY_NAN] = "every element of every row is NaN: to be equal says nothing",
    [DS_VALIDITY_LAYERS] = "layers have the same bits in every row: one buffer captured for all?",
    [DS_VALIDITY_INPUT] = "every row has the bits of its input: captured before the kernel ran?",
};

int validity_add_site(struct validity_work *w, int kind, uint32_t arm, size_t site,
                      int proves_nothing, struct ds_error *err)
{
    const struct ds_site *s = &w->a->h->sites[site];
    if (proves_nothing)
        w->v->proves_nothing[site] = 1;
    for (size_t i = 0; i < w->v->n_items; i++) {
        struct ds_validity_item *x = &w->v->items[i];
        const struct ds_site *other = &w->a->h->sites[x->site];
        if (x->kind == kind && x->located && strcmp(other->stage, s->stage) == 0 &&
            strcmp(other->part, s->part) == 0) {
            x->sites++;
            x->proves_nothing |= proves_nothing;
            return 0;
        }
    }
    char words[DS_SITE_WORDS];
    ds_site_words(s, words, sizeof words);
    struct ds_validity_item *x = validity_add(w, kind, err, "%s: %s", words, sentence[kind]);
    if (!x)
        return -1;
    x->located = 1;
    x->site = (uint32_t)site;
    x->sites = 1;
    x->arm = arm;
    x->proves_nothing = proves_nothing;
    return 0;
}

/* Digests compared at sites where that proves nothing, and equal rows of NaN elsewhere. */
static void count_void(struct validity_work *w)
{
    const struct ds_analysis *a = w->a;
    for (uint32_t arm = 0; arm < a->h->n_arms; arm++) {
        const struct arm_table *t = &a->arms[arm];
        for (size_t cell = 0; t->n_trials && cell < a->cells; cell++)
            if (t->state[cell] != CELL_ABSENT &&
                (w->v->proves_nothing[cell / a->n_rows] || validity_is_nan(w, t->digest[cell])))
                w->v->void_digests++;
    }
}

static int item_cmp(const void *pa, const void *pb)
{
    const struct ds_validity_item *a = pa, *b = pb;
    if (a->proves_nothing != b->proves_nothing)
        return a->proves_nothing ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return a->site != b->site ? (a->site < b->site ? -1 : 1) : strcmp(a->text, b->text);
}

int judge_validity(struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    struct validity_work w = {.a = a, .v = ds_calloc(1, sizeof *w.v, "validity", err)};
    v->validity = w.v;
    if (!w.v || !(w.v->proves_nothing = ds_calloc(a->n_sites, 1, "validity", err)))
        return -1;
    int rc = validity_collect_nan(&w, err);
    for (size_t site = 0; rc == 0 && site < a->n_sites; site++)
        if (!validity_whole_number(a, site))
            rc = validity_judge_site(&w, site, err);
    if (rc == 0)
        rc = validity_judge_layers(&w, err);
    if (rc == 0)
        rc = validity_judge_trials(&w, v, err);
    if (rc == 0) {
        count_void(&w);
        if (w.v->n_items)
            qsort(w.v->items, w.v->n_items, sizeof *w.v->items, item_cmp);
    }
    free(w.patterns);
    free(w.nan);
    return rc;
}

/* Whether equal digests of this record would be no evidence: those of the answer prove nothing, or
 * those of most sites. Returns the finding to blame. */
const struct ds_validity_item *validity_objection(const struct ds_analysis *a,
                                                  const struct ds_validity *v)
{
    size_t sites = 0, bad = 0, last = SIZE_MAX;
    if (!v || !v->n_items || !v->items[0].proves_nothing)
        return NULL;
    if (!v->items[0].located)
        return &v->items[0];
    for (size_t s = 0; s < a->n_sites; s++) {
        if (validity_whole_number(a, s))
            continue;
        sites++;
        bad += v->proves_nothing[s];
        last = s;
    }
    for (size_t i = 0; i < v->n_items; i++) /* a stage that is dead in every layer */
        if (v->items[i].proves_nothing && v->items[i].located && v->items[i].sites > 1 &&
            (int64_t)v->items[i].sites >= a->h->n_layers)
            return &v->items[i];
    return last != SIZE_MAX && (v->proves_nothing[last] || 2 * bad > sites) ? &v->items[0] : NULL;
}
