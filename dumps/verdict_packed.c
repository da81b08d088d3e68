/* verdict_packed.c: weights as kernels packed them, trial against trial, for records that hold those
 * digests. Packing depends on the weights alone: two trials that packed one weight in two ways did
 * not multiply by the same numbers, whatever their matmul does. */
#include "dumps/diff_internal.h"
#include "dumps/verdict_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int packed_cmp(const void *pa, const void *pb)
{
    const struct ds_packed *a = pa, *b = pb;
    int c = strcmp(a->variant, b->variant);
    if (c)
        return c;
    if (a->weight != b->weight)
        return a->weight < b->weight ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

struct known { /* first of each, sorted, and the trial that had it */
    struct ds_packed *list;
    size_t n, cap;
};

static struct ds_packed *find(const struct known *k, const struct ds_packed *x)
{
    return k->n ? bsearch(x, k->list, k->n, sizeof *k->list, packed_cmp) : NULL;
}

/* Adds what is not known yet. */
static int learn(struct known *k, const struct ds_trial_data *t, struct ds_error *err)
{
    const size_t before = k->n;
    for (size_t i = 0; i < t->n_packed; i++) {
        const struct known old = {k->list, before, 0};
        if (find(&old, &t->packed[i]))
            continue;
        if (ds_grow(&k->list, &k->cap, k->n + 1, sizeof *k->list, "packed weights", err) != 0)
            return -1;
        k->list[k->n++] = t->packed[i];
    }
    if (k->n > before)
        qsort(k->list, k->n, sizeof *k->list, packed_cmp);
    return 0;
}

static void part_text(const struct ds_packed *x, char *text, size_t size)
{
    text[0] = '\0';
    if (x->rank >= 0)
        snprintf(text, size, " of rank %d", (int)x->rank);
}

int note_packed(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    struct known k = {NULL, 0, 0};
    int any = 0, rc = 0;
    size_t differ = 0, trials = 0;
    struct ds_packed first = {.rank = -1};
    for (size_t i = 0; i < a->h->n_arms; i++)
        any |= a->arms[i].rep && a->arms[i].rep->n_packed > 0;
    for (size_t i = 0; any && rc == 0 && i < a->src->n_trials; i++) {
        const struct ds_trial_data *t = a->src->get(a->src->ctx, i, err);
        size_t here = 0;
        if (!t) {
            rc = -1;
            break;
        }
        for (size_t p = 0; p < t->n_packed; p++) {
            const struct ds_packed *x = &t->packed[p], *was = find(&k, x);
            if (!was || was->digest == x->digest)
                continue;
            if (differ == 0 && here == 0)
                first = *x;
            here++;
        }
        differ += here;
        trials += here != 0;
        rc = learn(&k, t, err);
    }
    free(k.list);
    if (rc != 0 || differ == 0)
        return rc;
    char part[24];
    part_text(&first, part, sizeof part);
    return verdict_note(v, err,
                        "matmul/%s did not always pack alike: %zu trials have other bytes than the "
                        "first, %zu weights in all, %s%s first",
                        first.variant, trials, differ, a->h->weights[first.weight].name, part);
}

/* ---- two records ----------------------------------------------------------------------------- */

static const char *weight_name(const struct ds_header *h, const struct ds_packed *x)
{
    return h->weights[x->weight].name;
}

/* What the first trial that says so packed, of each kernel. */
static int all_packed(const struct ds_source *s, struct known *k, struct ds_error *err)
{
    for (size_t i = 0; i < s->n_trials; i++) {
        const struct ds_trial_data *t = s->get(s->ctx, i, err);
        if (!t || learn(k, t, err) != 0)
            return -1;
    }
    return 0;
}

int ds_packed_list(const struct ds_source *s, struct ds_packed **list, size_t *n,
                   struct ds_error *err)
{
    struct known k = {NULL, 0, 0};
    const int rc = all_packed(s, &k, err);
    *list = k.list;
    *n = k.n;
    return rc;
}

static int was_asked(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, "digest_packed") == 0)
            return strcmp(h->options[i].value, "0") != 0;
    return 0;
}

/* The same part of the same weight, by name: the lists may be in another order. */
static const struct ds_packed *partner(const struct known *k, const struct ds_header *theirs,
                                       const struct ds_header *ours, const struct ds_packed *x)
{
    for (size_t i = 0; i < k->n; i++)
        if (k->list[i].rank == x->rank && strcmp(k->list[i].variant, x->variant) == 0 &&
            strcmp(weight_name(theirs, &k->list[i]), weight_name(ours, x)) == 0)
            return &k->list[i];
    return NULL;
}

int diff_packed(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
                struct ds_error *err)
{
    struct known x = {NULL, 0, 0}, y = {NULL, 0, 0};
    int rc = 0;
    if (!was_asked(a->header) || !was_asked(b->header))
        return 0;
    rc = all_packed(a, &x, err) != 0 || all_packed(b, &y, err) != 0 ? -1 : 0;
    for (size_t i = 0; rc == 0 && i < x.n; i++) {
        const struct ds_packed *mine = &x.list[i],
                               *theirs = partner(&y, b->header, a->header, mine);
        char texts[2][96], part[24];
        if (!theirs || mine->digest == theirs->digest ||
            a->header->weights[mine->weight].digest != b->header->weights[theirs->weight].digest)
            continue; /* other numbers are packed into other bytes: said already */
        part_text(mine, part, sizeof part);
        snprintf(texts[0], sizeof texts[0], "%s %016" PRIx64 "%s", mine->variant, mine->digest,
                 part);
        snprintf(texts[1], sizeof texts[1], "%s %016" PRIx64 "%s", theirs->variant, theirs->digest,
                 part);
        rc = diff_add(d, DS_DIFF_PACKED, weight_name(a->header, mine), texts[0], texts[1], err);
    }
    free(x.list);
    free(y.list);
    return rc;
}
