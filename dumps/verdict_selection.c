/* verdict_selection.c: the kind of what is not computed but chosen or counted: experts, tokens, positions, lengths. With
 * the ids that tie, or by how much the choice is off. */
#include "dumps/evidence.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void say(struct ds_finding *f, int kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct ds_finding *f, int kind, const char *fmt, ...)
{
    va_list ap;
    f->kind = kind;
    f->basis = DS_KIND_BY_FACT;
    va_start(ap, fmt);
    vsnprintf(f->why, sizeof f->why, fmt, ap);
    va_end(ap);
}

static const struct ds_step *step_of(const struct ds_trial_data *t, const struct ds_finding *f)
{
    for (size_t i = 0; t && i < t->n_steps; i++)
        if (t->steps[i].request == f->request && t->steps[i].step == f->step)
            return &t->steps[i];
    return NULL;
}

/* Which ids tie, as far as the step lists them. */
static void tell_ties(const struct ds_step *mine, const struct ds_step *ref, char *text,
                      size_t size)
{
    size_t at = (size_t)snprintf(text, size, "equal logits: %d chosen instead of %d", mine->token,
                                 ref->token);
    for (int i = 0; i < DS_TOP && i < mine->ties && mine->ties > 1 && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%d",
                               i ? ", " : "; ids that tie: ", mine->ids[i]);
    if (mine->ties > DS_TOP && at < size)
        snprintf(text + at, size - at, " and %d more", mine->ties - DS_TOP);
    else if (mine->ties <= 1 && at < size)
        snprintf(text + at, size - at, "; no tie, margin %.9g", (double)mine->margin);
}

/* Weights of experts that differ because others were chosen, by the same kernel in the same row. */
static int follow_choices(const struct ds_analysis *a, const struct chosen *c,
                          const struct ds_finding *f)
{
    const struct ds_site *s = &a->h->sites[f->site];
    uint32_t ids = 0, rows = 0;
    if (strcmp(s->stage, "router_ids") != 0 || strcmp(s->part, "weights") != 0)
        return 0;
    while (ids < a->n_sites && (a->h->sites[ids].layer != s->layer || a->h->sites[ids].part[0] ||
                                strcmp(a->h->sites[ids].stage, "router_ids") != 0))
        ids++;
    const struct arm_table *mine = chosen_table(a, f->arm, c), *ref = chosen_ref(a, f->ref_arm, c);
    for (size_t i = 0; ids < a->n_sites && i < a->n_rows; i++) {
        const size_t cell = ids * a->n_rows + i;
        if ((c->labels[f->site * a->n_rows + i] & LABEL_MASK) != c->label)
            continue;
        if (mine->state[cell] != CELL_STABLE || ref->state[cell] != CELL_STABLE ||
            mine->digest[cell] == ref->digest[cell])
            return 0;
        rows++;
    }
    return rows > 0;
}

int judge_choice(const struct ds_analysis *a, const struct chosen *c, struct ds_finding *f,
                 struct ds_error *err)
{
    const struct ds_site *s = &a->h->sites[f->site];
    if (f->label == DS_LABEL_ORIGIN && follow_choices(a, c, f)) {
        say(f, DS_KIND_SELECTION_ONLY, "other experts were chosen, and these are their weights");
        return 1;
    }
    /* The weights of a router's choices are numbers: which were chosen is another site. */
    int picks = strcmp(s->op, "sample") == 0 ||
                (strcmp(s->stage, "router_ids") == 0 && strcmp(s->dtype, "i32") == 0);
    if (!picks && strcmp(s->dtype, "i32") != 0)
        return 0;
    if (f->label != DS_LABEL_ORIGIN) {
        f->kind = DS_KIND_UNKNOWN;
        return 1;
    }
    if (!picks) {
        say(f, DS_KIND_WRONG_DATA,
            strcmp(s->op, "cache") == 0
                ? "a write overwrites cache rows of earlier positions, on one side"
                : "whole numbers differ: bookkeeping, not arithmetic");
        f->basis = DS_KIND_BY_FACT;
        return 1;
    }
    const struct ds_step *mine = step_of(a->src->get(a->src->ctx, f->trial, NULL), f),
                         *ref = step_of(a->arms[f->ref_arm].rep, f);
    f->kind = DS_KIND_SELECTION_ONLY;
    f->basis = DS_KIND_BY_FACT;
    if (strcmp(s->op, "sample") == 0 && mine && ref && mine->token != ref->token)
        tell_ties(mine, ref, f->why, sizeof f->why);
    else
        snprintf(f->why, sizeof f->why, "other choices from equal %s",
                 strcmp(s->op, "sample") == 0 ? "logits" : "scores");
    return tell_choice_part(a, c, f, err) != 0 ? -1 : 1;
}
