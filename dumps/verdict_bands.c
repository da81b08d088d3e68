/* verdict_bands.c: at which sizes does a factor change a kernel's bits, and at which does it not? A kernel
 * may take its other path only from a number of visible keys on (decode attention that is cut into
 * parts), only for some numbers of query rows (tiles), only in calls of some rows; a recorded graph may
 * be wrong in bands of lengths. Every row that was judged on equal inputs against the factor's
 * reference is evidence, in natural trials and in heal trials, separately for prefill and decode.
 *
 * Sizes are those of the arm that is not the reference. A measure is told where it parts the sizes
 * cleanly: at each size nearly all rows differ, or none does. Of several such measures the one that
 * parts them with the fewest exceptions, then in the fewest ranges; then what the kernel reads comes
 * before the size of the call. What the rows of a call do to a kernel that reads one row at a time is
 * told by the switches (verdict_rows.c) where the factor changes that number. */
#include "dumps/verdict_internal.h"

#include <stdlib.h>
#include <string.h>

/* Rows without a difference, over all sizes without one, below which their agreement proves little. */
enum { ENOUGH_SAME = 5 };
/* Share of differing rows from which a size counts as differing: rounding hides some. */
#define NEARLY_ALL 0.8

enum { BY_KEYS = 0, BY_QUERY_ROWS, BY_ROWS, MEASURES };
static const char *const measure_names[MEASURES] = {"keys", "query-rows", "rows"};

struct size_count {
    uint16_t kernel;
    uint8_t phase, measure;
    uint32_t size; /* 0: the slot is free */
    uint32_t same, differ;
};

struct band_work { /* of one factor; an open hash table */
    struct size_count *slots;
    size_t n, cap; /* cap: a power of two, or 0 */
};

static size_t hash_of(const struct size_count *x)
{
    uint64_t h = ((uint64_t)x->size << 32 | (uint64_t)x->kernel << 8 |
                  (uint64_t)(x->phase << 4 | x->measure)) *
                 UINT64_C(0xff51afd7ed558ccd);
    return (size_t)(h ^ h >> 32);
}

static struct size_count *slot_of(struct size_count *slots, size_t cap, const struct size_count *x)
{
    size_t i = hash_of(x) & (cap - 1);
    while (slots[i].size && (slots[i].size != x->size || slots[i].kernel != x->kernel ||
                             slots[i].phase != x->phase || slots[i].measure != x->measure))
        i = (i + 1) & (cap - 1);
    return &slots[i];
}

static int make_room(struct band_work *w, struct ds_error *err)
{
    size_t cap = w->cap ? 2 * w->cap : 256;
    struct size_count *wider = ds_calloc(cap, sizeof *wider, "sizes", err);
    if (!wider)
        return -1;
    for (size_t i = 0; i < w->cap; i++)
        if (w->slots[i].size)
            *slot_of(wider, cap, &w->slots[i]) = w->slots[i];
    free(w->slots);
    w->slots = wider;
    w->cap = cap;
    return 0;
}

static int count_one(struct band_work *w, struct size_count x, int differs, struct ds_error *err)
{
    if (x.size == 0)
        return 0;
    if (2 * (w->n + 1) > w->cap && make_room(w, err) != 0)
        return -1;
    struct size_count *s = slot_of(w->slots, w->cap, &x);
    if (!s->size) {
        *s = x;
        w->n++;
    }
    s->differ += differs != 0;
    s->same += !differs;
    return 0;
}

/* Factors whose values change the number of rows in a call. */
static int changes_rows(const char *factor)
{
    static const char *const names[] = {"batch", "slot",   "neighbours", "padding", "chunk",
                                        "mode",  "prefix", "rollback",   NULL};
    for (size_t i = 0; names[i]; i++)
        if (strcmp(factor, names[i]) == 0)
            return 1;
    return 0;
}

static int reads_earlier_rows(const struct ds_analysis *a, size_t site)
{
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++)
        if (a->in_kind[e] == DS_EDGE_CAUSAL)
            return 1;
    return 0;
}

static int count_cell(const struct ds_analysis *a, struct band_work *w, const struct arm_table *t,
                      size_t cell, const char *factor, int reads_earlier, int differs,
                      struct ds_error *err)
{
    const size_t row = cell % a->n_rows;
    const struct ds_row *r = arm_row(t, row);
    struct size_count x = {.kernel = t->kernel[cell], .phase = (uint8_t)arm_call(t, row)->phase};
    if (r->kind == DS_ROW_PAD || r->q_len <= 0)
        return 0;
    if (reads_earlier) {
        x.measure = BY_KEYS;
        x.size = r->kv_len > 0 ? (uint32_t)r->kv_len : 0;
        if (count_one(w, x, differs, err) != 0)
            return -1;
        x.measure = BY_QUERY_ROWS;
        x.size = (uint32_t)r->q_len;
        if (count_one(w, x, differs, err) != 0)
            return -1;
    }
    if (changes_rows(factor))
        return 0;
    x.measure = BY_ROWS;
    x.size = capture_m(t, row, t->capture[cell]);
    return count_one(w, x, differs, err);
}

int count_bands(const struct ds_analysis *a, struct band_work **work, uint32_t arm,
                const char *factor, const uint8_t *natural, const uint8_t *healed,
                struct ds_error *err)
{
    const struct arm_table *t = &a->arms[arm];
    if (!*work && !(*work = ds_calloc(1, sizeof **work, "sizes", err)))
        return -1;
    for (size_t site = 0; site < a->n_sites; site++) {
        const int earlier = reads_earlier_rows(a, site);
        for (size_t i = 0; i < a->n_rows; i++) {
            const size_t cell = site * a->n_rows + i;
            const uint8_t label = healed[cell] & LABEL_JUDGED ? healed[cell] : natural[cell];
            if (!(label & LABEL_JUDGED) || (label & LABEL_MASK) == DS_LABEL_UNSTABLE ||
                natural[cell] == DS_LABEL_ABSENT)
                continue;
            if (count_cell(a, *work, t, cell, factor, earlier, is_drift(label), err) != 0)
                return -1;
        }
    }
    return 0;
}

/* ---- what parts them ------------------------------------------------------------------------- */

static int by_size(const void *pa, const void *pb)
{
    const struct size_count *a = pa, *b = pb;
    if (a->kernel != b->kernel)
        return a->kernel < b->kernel ? -1 : 1;
    if (a->phase != b->phase)
        return a->phase < b->phase ? -1 : 1;
    if (a->measure != b->measure)
        return a->measure < b->measure ? -1 : 1;
    return (a->size > b->size) - (a->size < b->size);
}

static int same_question(const struct size_count *a, const struct size_count *b)
{
    return a->kernel == b->kernel && a->phase == b->phase;
}

struct parted {
    int found;
    const struct size_count *x; /* sizes, ascending */
    size_t n;
    double exceptions; /* share of equal rows at sizes that differ */
    uint32_t ranges;
};

static int differs_at(const struct size_count *x)
{
    return (double)x->differ >= NEARLY_ALL * ((double)x->differ + (double)x->same);
}

static struct parted part_sizes(const struct size_count *x, size_t n)
{
    struct parted p = {.x = x, .n = n};
    uint64_t differ = 0, same = 0, exceptions = 0;
    for (size_t i = 0; i < n; i++) {
        if (x[i].differ && !differs_at(&x[i]))
            return p;
        p.ranges += x[i].differ && (i == 0 || !x[i - 1].differ);
        differ += x[i].differ;
        same += x[i].differ ? 0 : x[i].same;
        exceptions += x[i].differ ? x[i].same : 0;
    }
    p.found = differ > 1 && same >= ENOUGH_SAME;
    p.exceptions = differ ? (double)exceptions / (double)(differ + exceptions) : 0;
    return p;
}

static int parts_better(const struct parted *a, const struct parted *b)
{
    if (!a->found || !b->found)
        return a->found;
    if (a->exceptions < b->exceptions || a->exceptions > b->exceptions)
        return a->exceptions < b->exceptions;
    return a->ranges < b->ranges;
}

static int add_band(const struct ds_analysis *a, struct ds_verdict *v, const char *factor,
                    const struct parted *p, struct ds_error *err)
{
    uint8_t *state = ds_calloc(p->n, 1, "sizes", err);
    int32_t *names = ds_calloc(p->n, sizeof *names, "sizes", err);
    int rc =
        state && names ? ds_grow_by_one(&v->bands, v->n_bands, sizeof *v->bands, "bands", err) : -1;
    if (rc == 0) {
        struct ds_band *b = &v->bands[v->n_bands++];
        *b = (struct ds_band){.op = a->kernels[p->x->kernel].op,
                              .variant = a->kernels[p->x->kernel].variant,
                              .factor = factor,
                              .phase = p->x->phase,
                              .measure = measure_names[p->x->measure]};
        for (int turned = 0; turned < 2; turned++) {
            for (size_t i = 0; i < p->n; i++) {
                names[i] = (int32_t)p->x[i].size;
                state[i] = (p->x[i].differ != 0) != turned ? DS_MEMBER_DIFFERS : DS_MEMBER_SAME;
            }
            ds_profile_set(state, names, p->n, 0, turned ? b->equal : b->differ);
        }
    }
    free(state);
    free(names);
    return rc;
}

int tell_bands(const struct ds_analysis *a, struct band_work *w, const char *factor,
               struct ds_verdict *v, struct ds_error *err)
{
    size_t n = 0;
    int rc = 0;
    for (size_t i = 0; w && i < w->cap; i++)
        if (w->slots[i].size)
            w->slots[n++] = w->slots[i];
    if (n)
        qsort(w->slots, n, sizeof *w->slots, by_size);
    for (size_t i = 0, j; rc == 0 && i < n; i = j) {
        struct parted best = {0};
        for (j = i; j < n && same_question(&w->slots[j], &w->slots[i]);) {
            size_t end = j;
            while (end < n && same_question(&w->slots[end], &w->slots[j]) &&
                   w->slots[end].measure == w->slots[j].measure)
                end++;
            struct parted p = part_sizes(&w->slots[j], end - j);
            if (parts_better(&p, &best))
                best = p;
            j = end;
        }
        if (best.found)
            rc = add_band(a, v, factor, &best, err);
    }
    free_bands(w);
    return rc;
}

void free_bands(struct band_work *w)
{
    if (w)
        free(w->slots);
    free(w);
}
