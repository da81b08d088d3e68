/* verdict_choices.c: the first discrete change: a token chosen otherwise (verdict_tokens.c), or
 * experts chosen otherwise for a row. Owns how two choices of experts are told apart; knows nothing
 * of factors. */
#include "dumps/evidence.h"
#include "dumps/verdict_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A router's ids: whole numbers, best first. */
static int is_choice(const struct ds_site *s)
{
    return strcmp(s->op, "router") == 0 && strcmp(s->dtype, "i32") == 0 && s->width > 0;
}

/* Where a choice of experts that drifts stands among all, in the order in which a pass makes them.
 */
static int comes_before(const struct ds_discrete *x, const struct ds_discrete *y)
{
    if (!y->found)
        return 1;
    if (x->step != y->step)
        return x->step < y->step;
    if (x->site != y->site)
        return x->site < y->site;
    if (x->request != y->request)
        return x->request < y->request;
    return x->position < y->position;
}

void compare_experts(const struct ds_analysis *a, uint32_t arm, uint32_t ref, const uint8_t *labels,
                     const char *factor, const char *value, struct ds_verdict *v)
{
    const struct arm_table *t = &a->arms[arm], *r = &a->arms[ref];
    for (uint32_t site = 0; site < a->n_sites; site++) {
        if (!is_choice(&a->h->sites[site]))
            continue;
        for (size_t i = 0; i < a->n_rows; i++) {
            size_t cell = site * a->n_rows + i;
            if (!is_drift(labels[cell]) || t->row[i] == NONE)
                continue;
            struct ds_discrete d = {.found = 1,
                                    .stage = a->h->sites[site].stage,
                                    .factor = factor,
                                    .value = value,
                                    .arm = arm,
                                    .ref_arm = ref,
                                    .request = a->keys[i].request,
                                    .position = a->keys[i].position,
                                    .step = arm_row(t, i)->step,
                                    .layer = a->h->sites[site].layer,
                                    .site = site,
                                    .row = (uint32_t)i,
                                    .a = -1,
                                    .b = -1,
                                    .margin = (double)NAN,
                                    .drift = (double)NAN,
                                    .digest = t->digest[cell],
                                    .ref_digest = r->digest[cell]};
            if (comes_before(&d, &v->expert_change))
                v->expert_change = d;
        }
    }
}

/* ---- which experts --------------------------------------------------------------------------- */

int ids_of(const struct ds_analysis *a, uint64_t digest, uint32_t width, int32_t **out,
           struct ds_error *err)
{
    struct ds_blob b = {0};
    *out = NULL;
    const int rc = a->src->blob ? a->src->blob(a->src->ctx, digest, &b, err) : 0;
    if (rc == DS_BLOB_UNREAD)
        return -1;
    if (rc == 1 && strcmp(b.dtype, "i32") == 0 && b.bytes == width * sizeof(int32_t))
        *out = b.data;
    else if (rc == 1)
        free(b.data);
    return 0;
}

static int has(const int32_t *ids, uint32_t n, int32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return 1;
    return 0;
}

/* Pairs each expert that the reference alone chose with one that this side alone chose, both in
 * their order; when the sets are equal, the first two places that differ. */
static void pair_up(struct ds_discrete *d, const int32_t *ref, const int32_t *mine, uint32_t n)
{
    uint32_t j = 0;
    for (uint32_t i = 0; i < n && d->n_swapped < DS_MOST_SWAPPED; i++) {
        if (has(mine, n, ref[i]))
            continue;
        while (j < n && has(ref, n, mine[j]))
            j++;
        if (j < n)
            d->swapped[d->n_swapped++] = (struct ds_swapped){ref[i], mine[j++], (double)NAN};
    }
    for (uint32_t i = 0; i < n && d->n_swapped == 0; i++)
        if (ref[i] != mine[i])
            d->swapped[d->n_swapped++] = (struct ds_swapped){ref[i], mine[i], (double)NAN};
}

/* The reference's logits of a pair, as far as the row that its router read was dumped. */
static int add_margins(const struct ds_analysis *a, struct ds_discrete *d, struct ds_error *err)
{
    for (uint32_t e = a->in_start[d->site]; e < a->in_start[d->site + 1]; e++) {
        struct row_values x;
        size_t cell = a->in_from[e] * a->n_rows + d->row;
        const struct arm_table *r = &a->arms[d->ref_arm];
        int rc = r->state[cell] != CELL_ABSENT ? values_of(a, r->digest[cell], &x, err) : 0;
        if (rc < 0)
            return -1;
        for (uint32_t i = 0; rc == 1 && i < d->n_swapped; i++) {
            struct ds_swapped *s = &d->swapped[i];
            if (s->a >= 0 && s->b >= 0 && (uint32_t)s->a < x.n && (uint32_t)s->b < x.n)
                s->margin = (double)x.value[s->a] - (double)x.value[s->b];
        }
        if (rc == 1)
            values_free(&x);
    }
    return 0;
}

int find_discrete(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    struct ds_discrete *d = &v->expert_change;
    int rc = 0;
    if (d->found) {
        const uint32_t width = a->h->sites[d->site].width;
        int32_t *mine, *ref = NULL;
        rc = ids_of(a, d->digest, width, &mine, err);
        rc = rc ? rc : ids_of(a, d->ref_digest, width, &ref, err);
        if (mine && ref) {
            pair_up(d, ref, mine, width);
            rc = add_margins(a, d, err);
        }
        if (d->n_swapped) {
            d->a = d->swapped[0].a;
            d->b = d->swapped[0].b;
            d->margin = d->swapped[0].margin;
        }
        free(mine);
        free(ref);
    }
    /* A step's experts are chosen before its token. */
    int experts = d->found && (!v->token_change.found || d->step <= v->token_change.step);
    v->discrete = experts ? *d : v->token_change;
    return rc;
}
