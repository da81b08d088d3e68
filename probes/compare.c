/* compare.c: this trial's rows against the held rows of reference arms. Owns the memory of what
 * drifted in this trial (which tells origin from inherited), the drift entries and the non-finite
 * watch. Knows no file and no dump format; dump.c keeps bytes. */
#include "probes/probe_internal.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "dumps/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- references of a trial and of a call ----------------------------------------------------- */

void probe_refs_free(struct ds_probe *p)
{
    for (size_t i = 0; i < p->refs_cap; i++) {
        free(p->refs[i].guess);
        free(p->refs[i].call_drifts);
        free(p->refs[i].bits);
        free(p->refs[i].first_drift);
        free(p->refs[i].mask);
    }
    free(p->refs);
}

static int ref_begin(struct ds_probe *p, struct probe_ref *ref, struct ds_error *err)
{
    if (!ref->guess &&
        !(ref->guess = ds_calloc(p->c.n_sites, sizeof *ref->guess, "reference rows", err)))
        return -1;
    if (!ref->call_drifts && !(ref->call_drifts = ds_calloc(p->c.n_sites, sizeof *ref->call_drifts,
                                                            "drifting rows", err)))
        return -1;
    memset(ref->guess, 0, p->c.n_sites * sizeof *ref->guess);
    if (ref->mask)
        memset(ref->mask, 0, (size_t)p->c.n_sites * 2 * sizeof *ref->mask);
    return 0;
}

/* Takes the held ones of refs[0..n-1] as this trial's references. */
int probe_refs_begin(struct ds_probe *p, const uint32_t *refs, uint32_t n, struct ds_error *err)
{
    p->n_refs = 0;
    p->n_requests = 0;
    for (uint32_t i = 0; i < n && p->c.hold; i++) {
        long slot = ds_hold_slot(p->c.hold, refs[i]);
        if (slot < 0 || !ds_hold_complete(p->c.hold, slot))
            continue;
        if (ds_grow(&p->refs, &p->refs_cap, p->n_refs + 1, sizeof *p->refs, "references", err))
            return -1;
        struct probe_ref *ref = &p->refs[p->n_refs];
        if (ref_begin(p, ref, err))
            return -1;
        ref->arm = refs[i];
        ref->slot = slot;
        p->n_refs++;
    }
    return 0;
}

/* The small number of a request in this trial. */
static int number_request(struct ds_probe *p, int32_t request, uint32_t *out, struct ds_error *err)
{
    size_t i = 0;
    while (i < p->n_requests && p->requests[i] != request)
        i++;
    *out = (uint32_t)i;
    if (i < p->n_requests)
        return 0;
    size_t need;
    if (ds_grow(&p->requests, &p->requests_cap, i + 1, sizeof *p->requests, "requests", err))
        return -1;
    if (__builtin_mul_overflow(i + 1, (size_t)p->c.n_sites, &need))
        return ds_fail(err, "probe: %zu requests are too many", i + 1);
    for (size_t r = 0; r < p->n_refs; r++) {
        struct probe_ref *ref = &p->refs[r];
        if (ds_grow(&ref->first_drift, &ref->first_drift_cap, need, sizeof(int32_t),
                    "drift by request", err))
            return -1;
        for (size_t k = i * p->c.n_sites; k < need; k++)
            ref->first_drift[k] = INT32_MAX;
    }
    p->requests[p->n_requests++] = request;
    return 0;
}

/* Clears what the last call left. */
int probe_refs_call(struct ds_probe *p, struct ds_error *err)
{
    if (p->n_refs == 0)
        return 0;
    size_t words;
    p->words = ((size_t)p->call_rows + 63) / 64;
    if (__builtin_mul_overflow(p->words, (size_t)p->c.n_sites, &words))
        return ds_fail(err, "probe: a call of %u rows is too large", p->call_rows);
    for (size_t i = 0; i < p->n_refs; i++) {
        struct probe_ref *ref = &p->refs[i];
        if (ds_grow(&ref->bits, &ref->bits_cap, words, sizeof *ref->bits, "drifting rows", err))
            return -1;
        memset(ref->bits, 0, words * sizeof *ref->bits);
        memset(ref->call_drifts, 0, p->c.n_sites * sizeof *ref->call_drifts);
    }
    if (ds_grow(&p->row_request, &p->row_request_cap, p->call_rows, sizeof *p->row_request,
                "requests", err))
        return -1;
    const struct ds_row *rows = p->t.rows + p->call_first;
    for (uint32_t i = 0; i < p->call_rows; i++) {
        if (i && rows[i].request == rows[i - 1].request)
            p->row_request[i] = p->row_request[i - 1];
        else if (number_request(p, rows[i].request, &p->row_request[i], err))
            return -1;
    }
    return 0;
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* Whether row number `row` of this call drifted from ref at `site`. */
int probe_drifted(const struct ds_probe *p, const struct probe_ref *ref, uint32_t site,
                  uint32_t row)
{
    return ref->bits[site * p->words + row / 64] >> (row % 64) & 1u;
}

/* A healed row is what the sites ahead expect. Only who reads the whole call, neighbours too, is not
 * sure of that: those have nobody who heals them. */
static void mark_drift(struct ds_probe *p, struct probe_ref *ref, uint32_t site, uint32_t row)
{
    ref->call_drifts[site]++;
    if (p->heal)
        return;
    int32_t position = p->t.rows[p->call_first + row].position;
    int32_t *first = &ref->first_drift[(size_t)p->row_request[row] * p->c.n_sites + site];
    ref->bits[site * p->words + row / 64] |= (uint64_t)1 << (row % 64);
    /* Nobody reads padding. */
    if (position < *first && p->t.rows[p->call_first + row].kind != DS_ROW_PAD)
        *first = position;
}

/* Origin: no input row of this row differs from the reference. */
static int is_origin(const struct ds_probe *p, const struct probe_ref *ref, uint32_t site,
                     uint32_t row)
{
    const struct probe_input *in = p->inputs + p->links[site].first_input;
    const int32_t *first = ref->first_drift + (size_t)p->row_request[row] * p->c.n_sites;
    int32_t position = p->t.rows[p->call_first + row].position;
    for (uint32_t k = 0; k < p->links[site].n_inputs; k++) {
        uint32_t from = in[k].from;
        if (in[k].kind == DS_EDGE_ROW      ? probe_drifted(p, ref, from, row)
            : in[k].kind == DS_EDGE_CAUSAL ? first[from] <= position
                                           : ref->call_drifts[from] != 0)
            return 0;
    }
    return 1;
}

/* ---- findings -------------------------------------------------------------------------------- */

/* What is chosen from: a minus infinity there is a token that was filtered out, and nothing is wrong. */
static int only_filtered(struct ds_probe *p, const struct probe_rows *r, uint32_t i)
{
    if (strcmp(p->c.sites[r->site].op, "process") != 0 || p->site[r->site].dtype != DS_F32)
        return 0;
    const float *x = (const float *)(const void *)probe_row_bytes(p, r, i);
    for (uint32_t k = 0; k < r->width; k++)
        if (!(x[k] < INFINITY))
            return 0;
    return 1;
}

/* Row i of the set, seen to hold a NaN or an Inf. */
int probe_nonfinite(struct ds_probe *p, const struct probe_rows *r, uint32_t i,
                    struct ds_error *err)
{
    struct ds_trial_data *t = &p->t;
    if (only_filtered(p, r, i))
        return 0;
    if (ds_grow(&t->nonfinites, &p->cap.nonfinites, t->n_nonfinites + 1, sizeof *t->nonfinites,
                "non-finite rows", err))
        return -1;
    struct ds_nonfinite *f = &t->nonfinites[t->n_nonfinites++];
    *f = (struct ds_nonfinite){.site = r->site, .row = p->call_first + probe_row_number(r, i)};
    ds_stats_nonfinite(p->site[r->site].dtype, probe_row_bytes(p, r, i), r->width, &f->nan, &f->inf,
                       &f->first);
    return 0;
}

/* A choice of experts: whole numbers of a router. Whoever is to blame, which experts changed places
 * and by what margin is worth knowing, and both rows are short. */
static int is_choice(const struct ds_probe *p, uint32_t site)
{
    return p->site[site].dtype == DS_I32 && strcmp(p->c.sites[site].op, "router") == 0;
}

static int dump_wanted(const struct ds_probe *p, uint32_t site, int origin)
{
    switch (p->c.dump) {
    case DS_DUMP_NONE:
        return 0;
    case DS_DUMP_FIRST:
        return site == p->first_site || is_choice(p, site);
    case DS_DUMP_ORIGINS:
        return origin || is_choice(p, site);
    default:
        return 1;
    }
}

/* Whether a site is the first of its stage and part that drifts in this trial. */
static int leads(const struct ds_probe *p, uint32_t site)
{
    struct probe_links *s = &p->links[site];
    if (s->leads)
        return s->leads == 1;
    s->leads = 1;
    for (uint32_t i = 0; i < site && s->leads == 1; i++)
        if (p->links[i].leads == 1 && strcmp(p->c.sites[i].stage, p->c.sites[site].stage) == 0 &&
            strcmp(p->c.sites[i].part, p->c.sites[site].part) == 0)
            s->leads = 2;
    return s->leads == 1;
}

/* Whether one more row of a site is dumped: the first dump_rows, and after them one that is four
 * times as far off as all before it, at most as many again. One wrong row among many that are only
 * rounded otherwise must be there to be looked at. When healing, many sites drift on their own: the
 * first of a stage shows what its kernel does, and of the same stage in other layers a row is enough. */
static int has_room(const struct ds_probe *p, uint32_t site, const struct ds_drift *d)
{
    struct probe_links *s = &p->links[site];
    double size = d->ref_sq > 0 ? d->diff_sq / d->ref_sq : d->diff_sq > 0 ? HUGE_VAL : 0;
    uint32_t most = p->c.dump_rows;
    if (p->heal && p->c.dump != DS_DUMP_ALL && most > 1 && !leads(p, site))
        most = 1;
    if (s->dumped >= most) {
        if (!(size > 16 * s->worst) || s->extra >= most)
            return 0;
        s->extra++;
    } else {
        s->dumped++;
    }
    s->worst = size > s->worst ? size : s->worst;
    return 1;
}

/* Row i of the set differs from entry `held` of the reference. *dumped: it is dumped already,
 * against another one. */
static int found_drift(struct ds_probe *p, struct probe_ref *ref, const struct probe_rows *r,
                       uint32_t i, uint32_t held, int *dumped, struct ds_error *err)
{
    struct ds_trial_data *t = &p->t;
    uint32_t row = probe_row_number(r, i), n_held, at = probe_held_at(p, ref, r->site);
    const struct ds_hold_row *entry = &ds_hold_rows(p->c.hold, ref->slot, at, &n_held)[held];
    if (ds_grow(&t->drifts, &p->cap.drifts, t->n_drifts + 1, sizeof *t->drifts, "drifting rows",
                err))
        return -1;
    struct ds_drift *d = &t->drifts[t->n_drifts++];
    *d = (struct ds_drift){.site = r->site, .row = p->call_first + row, .ref_arm = ref->arm};
    const void *bytes = ds_hold_bytes(p->c.hold, ref->slot, at, held);
    ds_stats_row(p->site[r->site].dtype, probe_row_bytes(p, r, i), bytes, r->width, d);
    d->digest = r->digests[i];
    d->ref_digest = entry->digest;

    int origin = is_origin(p, ref, r->site, row);
    if ((origin || p->heal) && probe_mask_row(p, ref, r, i, bytes, d, err))
        return -1;
    mark_drift(p, ref, r->site, row);
    if (p->first_site == NO_SITE)
        p->first_site = r->site;
    if (!dump_wanted(p, r->site, origin))
        return 0;
    if (!*dumped && !has_room(p, r->site, d))
        return 0;
    *dumped = 1;
    return probe_dump_row(p, ref, r, i, held, err);
}

/* Overwrites row i of the set, which was digested, sized and dumped as the kernel left it. */
static void heal_row(struct ds_probe *p, const struct probe_rows *r, uint32_t i, uint32_t held)
{
    uint32_t at = probe_held_at(p, &p->refs[0], r->site);
    const void *bytes = ds_hold_bytes(p->c.hold, p->refs[0].slot, at, held);
    if (r->far)
        probe_far_write(p, r, i, bytes);
    else
        memcpy(probe_row_bytes(p, r, i), bytes, r->row_bytes);
}

static int holds_nonfinite(struct ds_probe *p, const struct probe_rows *r, uint32_t i)
{
    const int dtype = p->site[r->site].dtype;
    if (!r->far)
        return p->isa->nonfinite(dtype, probe_row_bytes(p, r, i), r->row_bytes);
    return dtype != DS_I32 && r->far->largest[i] >= probe_infinity(dtype);
}

static int compare_row(struct ds_probe *p, const struct probe_rows *r, uint32_t i,
                       struct ds_error *err)
{
    long healer = -1; /* the held row that differs */
    const struct ds_row *key = &p->t.rows[p->call_first + probe_row_number(r, i)];
    int differs = 0, equal = 0, dumped = 0;
    for (size_t k = 0; k < p->n_refs && p->site[r->site].held; k++) {
        struct probe_ref *ref = &p->refs[k];
        uint32_t at = probe_held_at(p, ref, r->site);
        long held = ds_hold_find(p->c.hold, ref->slot, at, key, ref->guess[r->site]);
        if (held < 0)
            continue;
        ref->guess[r->site] = (uint32_t)held + 1;
        uint32_t n;
        if (ds_hold_rows(p->c.hold, ref->slot, at, &n)[held].digest == r->digests[i]) {
            equal = 1;
            continue;
        }
        differs = 1;
        healer = held;
        if (found_drift(p, ref, r, i, (uint32_t)held, &dumped, err))
            return -1;
    }
    if ((differs || !equal) && holds_nonfinite(p, r, i) && probe_nonfinite(p, r, i, err))
        return -1;
    /* What padding left in a cache nobody should read: if the first drift is that somebody does, it is told
     * from these bytes. */
    if (!differs && !equal && key->kind == DS_ROW_PAD && p->site[r->site].causal_source &&
        p->first_site == NO_SITE && p->c.dump != DS_DUMP_NONE && !p->heal)
        return probe_keep_row(p, r, i, err);
    if (p->heal) {
        if (differs)
            heal_row(p, r, i, (uint32_t)healer);
        return 0;
    }
    if (differs && p->c.dump == DS_DUMP_ALL && p->site[r->site].has_readers)
        return probe_keep_row(p, r, i, err);
    return 0;
}

static int same_row(const struct ds_hold_row *e, const struct ds_row *key, uint64_t digest)
{
    return e->digest == digest && e->position == key->position && e->request == key->request &&
           e->occurrence == key->occurrence;
}

/* The usual case, kept short: the reference met the same rows in the same order, and all are equal.
 */
static int all_equal(const struct ds_probe *p, const struct probe_ref *ref,
                     const struct probe_rows *r)
{
    uint32_t n, from = ref->guess[r->site];
    const struct ds_hold_row *e = ds_hold_rows(p->c.hold, ref->slot, r->site, &n);
    const struct ds_row *rows = p->t.rows + p->call_first;
    if (from > n || r->n > n - from)
        return 0;
    for (uint32_t i = 0; i < r->n; i++)
        if (!same_row(&e[from + i], &rows[probe_row_number(r, i)], r->digests[i]))
            return 0;
    return 1;
}

static int no_drift(struct ds_probe *p, const struct probe_rows *r)
{
    size_t k = 0;
    while (k < p->n_refs && all_equal(p, &p->refs[k], r))
        k++;
    if (k == 0 || k < p->n_refs)
        return 0;
    for (k = 0; k < p->n_refs; k++)
        p->refs[k].guess[r->site] += r->n;
    return 1;
}

/* Compares rows just digested with every reference, then stores them if this trial's arm is to be
 * held. */
int probe_compare(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err)
{
    int held = p->site[r->site].held;
    if (p->left_out && p->left_out[r->site])
        return 0;
    if (p->n_refs && !(held && no_drift(p, r)))
        for (uint32_t i = 0; i < r->n; i++)
            if (compare_row(p, r, i, err))
                return -1;
    if (p->filling < 0 || !held)
        return 0;
    for (uint32_t i = 0; i < r->n; i++) {
        const uint32_t row = probe_row_number(r, i);
        if (p->c.kin && p->kin.of[row] == 0)
            continue;
        if (ds_hold_store(p->c.hold, p->filling, r->site, &p->t.rows[p->call_first + row],
                          r->digests[i], probe_row_bytes(p, r, i), err))
            return -1;
    }
    return 0;
}
