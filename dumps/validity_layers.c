/* validity_layers.c: one buffer captured for several layers: the same bits from other inputs or weights. */
#include "dumps/validity_internal.h"

#include <stdlib.h>
#include <string.h>

/* "blk.3.ffn_up.weight" is of layer 3; -1: of none. */
static long layer_of_weight(const char *name, const char **rest)
{
    const char *p = strchr(name, '.');
    char *end;
    if (!p || p[1] < '0' || p[1] > '9')
        return -1;
    long layer = strtol(p + 1, &end, 10);
    *rest = end;
    return *end == '.' ? layer : -1;
}

/* Whether the same weight of the two layers differs anywhere. */
static int weights_differ(const struct ds_header *h, int32_t x, int32_t y)
{
    const char *rx, *ry;
    for (size_t i = 0; i < h->n_weights; i++)
        for (size_t k = 0; layer_of_weight(h->weights[i].name, &rx) == x && k < h->n_weights; k++)
            if (layer_of_weight(h->weights[k].name, &ry) == y && strcmp(rx, ry) == 0 &&
                h->weights[i].digest != h->weights[k].digest)
                return 1;
    return 0;
}

static int has_weights(const char *op)
{
    return strcmp(op, "matmul") == 0 || strcmp(op, "rmsnorm") == 0;
}

/* The k-th input of x and of y: whether some pair of them differs in some row. */
static int inputs_differ(const struct ds_analysis *a, const struct arm_table *t, size_t x, size_t y)
{
    uint32_t n = a->in_start[x + 1] - a->in_start[x];
    if (n != a->in_start[y + 1] - a->in_start[y])
        return 1;
    for (uint32_t e = 0; e < n; e++) {
        size_t equal;
        if (validity_common_rows(a, t, a->in_from[a->in_start[x] + e],
                                 a->in_from[a->in_start[y] + e], &equal) > equal)
            return 1;
    }
    return 0;
}

/* Whether a later layer of the same stage has the same bits although it should not. */
static int is_copied(const struct ds_analysis *a, const struct arm_table *t, size_t x, size_t y)
{
    size_t equal, n = validity_may_repeat(a, t, x) ? 0 : validity_common_rows(a, t, x, y, &equal);
    if (n < 2 || equal < n || !validity_varies(a, t, x) || validity_equal_input(a, t, x) ||
        validity_equal_input(a, t, y))
        return 0;
    return inputs_differ(a, t, x, y) ||
           (has_weights(a->h->sites[x].op) &&
            weights_differ(a->h, a->h->sites[x].layer, a->h->sites[y].layer));
}

/* The first later layer whose rows are those of site x. next: [n_sites] of the same stage. */
static int judge_stage(struct validity_work *w, size_t x, const uint32_t *next,
                       struct ds_error *err)
{
    const struct ds_analysis *a = w->a;
    for (uint32_t y = next[x]; y != NONE; y = next[y]) {
        uint32_t shown = 0, arms = 0, where = 0;
        if (a->h->sites[y].layer <= a->h->sites[x].layer)
            continue;
        for (uint32_t arm = 0; arm < a->h->n_arms; arm++) {
            if (!a->arms[arm].n_trials)
                continue;
            arms++;
            if (is_copied(a, &a->arms[arm], x, y))
                where = shown++ ? where : arm;
            else if (arm == 0)
                break; /* the usual case: one look is enough */
        }
        if (!shown)
            continue;
        int nothing = shown == arms, first = !w->copied[x];
        w->copied[x] = w->copied[y] = 1;
        if (first && validity_add_site(w, DS_VALIDITY_LAYERS, where, x, nothing, err) != 0)
            return -1;
        return validity_add_site(w, DS_VALIDITY_LAYERS, where, y, nothing, err);
    }
    return 0;
}

int validity_judge_layers(struct validity_work *w, struct ds_error *err)
{
    const struct ds_analysis *a = w->a;
    uint32_t *next = ds_calloc(a->n_sites, sizeof *next, "stages", err),
             *last = ds_calloc(a->n_stages, sizeof *last, "stages", err);
    w->copied = ds_calloc(a->n_sites, 1, "stages", err);
    int rc = next && last && w->copied ? 0 : -1;
    for (size_t k = 0; rc == 0 && k < a->n_stages; k++)
        last[k] = NONE;
    for (size_t site = a->n_sites; rc == 0 && site-- > 0;) {
        next[site] = last[a->stage_of[site]];
        last[a->stage_of[site]] = (uint32_t)site;
    }
    for (size_t site = 0; rc == 0 && site < a->n_sites; site++)
        if (!validity_whole_number(a, site) && a->h->sites[site].layer >= 0)
            rc = judge_stage(w, site, next, err);
    free(next);
    free(last);
    free(w->copied);
    return rc;
}
