/* verdict_nonfinite.c: the first NaN or Inf of a record, in execution order: at which site, in which
 * rows, and whether its inputs had any. Uses only what the probes counted (ds_nonfinite). */
#include "dumps/profile.h"
#include "dumps/verdict_internal.h"

#include <stdlib.h>

static int row_nonfinite(const struct ds_trial_data *d, uint32_t site, uint32_t row)
{
    for (size_t i = 0; i < d->n_nonfinites; i++)
        if (d->nonfinites[i].site == site && d->nonfinites[i].row == row)
            return 1;
    return 0;
}

static int inputs_finite(const struct ds_analysis *a, const struct ds_trial_data *d, uint32_t site,
                         uint32_t row)
{
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++) {
        if (row_nonfinite(d, a->in_from[e], row))
            return 0;
        for (uint32_t r = 0; a->in_kind[e] != DS_EDGE_ROW && r < d->n_rows; r++)
            if (d->rows[r].kind != DS_ROW_PAD && d->rows[r].request == d->rows[row].request &&
                d->rows[r].position <= d->rows[row].position && row_nonfinite(d, a->in_from[e], r))
                return 0;
    }
    return 1;
}

/* Takes row x of trial i for the first one if it is; 1 if so. */
static int take(const struct ds_analysis *a, const struct ds_trial_data *d, size_t i,
                const struct ds_nonfinite *x, struct ds_finding *first)
{
    const struct ds_row *r = &d->rows[x->row];
    const struct ds_site *s = &a->h->sites[x->site];
    struct ds_finding f = {.found = 1, .site = x->site, .step = r->step, .position = r->position};
    if (!finding_before(&f, first))
        return 0;
    f.layer = s->layer;
    f.stage = s->stage;
    f.part = s->part;
    f.op = s->op;
    f.variant = "";
    f.arm = f.ref_arm = d->info.arm;
    f.trial = i;
    f.request = r->request;
    f.occurrence = r->occurrence;
    f.row_kind = r->kind;
    f.phase = d->calls[r->call].phase;
    f.rows_in_call = d->calls[r->call].m;
    f.kind = DS_KIND_NON_FINITE;
    uint32_t row = row_of_key(a, r, 0);
    size_t cell = x->site * a->n_rows + (row == NONE ? 0 : row);
    if (row != NONE && a->arms[f.arm].state[cell] != CELL_ABSENT)
        f.variant = a->kernels[a->arms[f.arm].kernel[cell]].variant;
    *first = f;
    return 1;
}

struct member {
    int32_t position;
    uint8_t state;
};

/* By position, a row with some behind one without. */
static int member_cmp(const void *pa, const void *pb)
{
    const struct member *a = pa, *b = pb;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    return (a->state > b->state) - (a->state < b->state);
}

/* Counts the trial's rows that have some at the finding's site, and names their positions. */
static int profile(const struct ds_trial_data *d, struct ds_finding *f, struct ds_error *err)
{
    struct member *m = ds_calloc(d->n_rows, sizeof *m, "positions", err);
    uint8_t *state = ds_calloc(d->n_rows, 1, "positions", err);
    int32_t *names = ds_calloc(d->n_rows, sizeof *names, "positions", err);
    size_t n = 0, distinct = 0;
    for (size_t k = 0; m && state && names && k < d->n_captures; k++) {
        const struct ds_capture *c = &d->captures[k];
        for (uint32_t r = 0; c->site == f->site && r < c->rows && n < d->n_rows; r++) {
            const int bad = row_nonfinite(d, f->site, c->first_row + r);
            f->rows += (uint32_t)bad;
            m[n++] = (struct member){d->rows[c->first_row + r].position,
                                     bad ? DS_MEMBER_DIFFERS : DS_MEMBER_SAME};
        }
    }
    if (n)
        qsort(m, n, sizeof *m, member_cmp);
    for (size_t i = 0; i < n; i++) {
        distinct += distinct == 0 || names[distinct - 1] != m[i].position;
        names[distinct - 1] = m[i].position;
        state[distinct - 1] = m[i].state;
    }
    const int rc = m && state && names ? 0 : -1;
    if (rc == 0)
        ds_profile_set(state, names, distinct, 1, f->at_positions);
    free(m);
    free(state);
    free(names);
    return rc;
}

int find_nonfinite(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    struct ds_nonfinite_finding *out = &v->nonfinite;
    const struct ds_trial_data *best = NULL, *best_own = NULL;
    uint32_t best_row = 0;
    int only_padding = 1;
    for (size_t i = 0; i < a->src->n_trials; i++) {
        const struct ds_trial_data *d = a->src->info(a->src->ctx, i)->pass == DS_PASS_NATURAL
                                            ? a->src->get(a->src->ctx, i, NULL)
                                            : NULL;
        for (size_t k = 0; d && k < d->n_nonfinites; k++) {
            const struct ds_nonfinite *x = &d->nonfinites[k];
            if (x->site >= a->n_sites || x->row >= d->n_rows)
                continue;
            only_padding &= d->rows[x->row].kind == DS_ROW_PAD;
            if (!ds_site_recomputed(&a->h->sites[x->site]) && take(a, d, i, x, &out->own))
                best_own = d;
            if (!take(a, d, i, x, &out->at))
                continue;
            out->nan = x->nan;
            out->inf = x->inf;
            best = d;
            best_row = x->row;
        }
    }
    if (!best)
        return 0;
    out->only_padding = only_padding;
    out->inputs = inputs_finite(a, best, out->at.site, best_row);
    if (profile(best, &out->at, err) != 0)
        return -1;
    return best_own ? profile(best_own, &out->own, err) : 0;
}
