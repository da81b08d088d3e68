/* verdict_added.c: all independent origins, and error added against error inherited. Sizes come from the
 * probes' drift entries: those of a heal trial are what a site adds on equal inputs, those of a natural
 * trial what has come together there. Knows nothing of classes and conditions. */
#include "dumps/verdict_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sum { /* drifting rows of one site */
    uint32_t rows;
    uint64_t max_ulp;
    double diff_sq, ref_sq;
};

static double relative(const struct sum *z)
{
    if (z->ref_sq > 0)
        return sqrt(z->diff_sq / z->ref_sq);
    return z->diff_sq > 0 ? HUGE_VAL : 0;
}

/* Of a site whose rows have one width. */
static double absolute(const struct ds_analysis *a, size_t site, const struct sum *z)
{
    const double n = (double)z->rows * a->h->sites[site].width;
    return n > 0 ? sqrt(z->diff_sq / n) : 0;
}

/* Adds the entries against `ref` of one trial to the sums of their sites: all, or those whose label is
 * that of an origin. */
static void add_up(const struct ds_analysis *a, const struct ds_trial_data *d, uint32_t ref,
                   const uint8_t *labels, struct sum *sites)
{
    uint32_t row = NONE;
    for (size_t i = 0; d && i < d->n_drifts; i++) {
        const struct ds_drift *x = &d->drifts[i];
        if (x->ref_arm != ref || x->site >= a->n_sites || x->row >= d->n_rows)
            continue;
        row = row_of_key(a, &d->rows[x->row], row == NONE ? 0 : row + 1);
        if (row == NONE ||
            (labels && (labels[x->site * a->n_rows + row] & LABEL_MASK) != DS_LABEL_ORIGIN))
            continue;
        struct sum *z = &sites[x->site];
        z->rows++;
        z->max_ulp = x->max_ulp != UINT64_MAX && x->max_ulp > z->max_ulp ? x->max_ulp : z->max_ulp;
        z->diff_sq += x->diff_sq;
        z->ref_sq += x->ref_sq;
    }
}

/* ---- origins --------------------------------------------------------------------------------- */

struct origin_work {
    struct ds_analysis *a;
    struct ds_verdict *v;
    const uint8_t *natural, *healed; /* labels; healed: NULL where there is no heal trial */
    int repeats;                     /* of an arm against itself */
    struct sum *sites;
};

/* What the kernel did there on equal inputs: as the heal trial shows it, else the natural one. A
 * kernel that disagrees with itself now and then does so in the one or in the other. */
static int is_origin(const struct origin_work *w, size_t cell)
{
    if (w->repeats && (w->natural[cell] & LABEL_MASK) == DS_LABEL_ORIGIN)
        return 1;
    const uint8_t label =
        w->healed && w->healed[cell] & LABEL_JUDGED ? w->healed[cell] : w->natural[cell];
    return (label & LABEL_MASK) == DS_LABEL_ORIGIN;
}

static struct ds_origin *origin_at(struct origin_work *w, size_t site, size_t kernel,
                                   struct ds_error *err)
{
    struct ds_verdict *v = w->v;
    const struct ds_site *s = &w->a->h->sites[site];
    for (size_t i = 0; i < v->n_origins; i++) {
        struct ds_origin *o = &v->origins[i];
        if (strcmp(o->stage, s->stage) == 0 && strcmp(o->part, s->part) == 0 &&
            strcmp(o->op, w->a->kernels[kernel].op) == 0 &&
            strcmp(o->variant, w->a->kernels[kernel].variant) == 0)
            return o;
    }
    if (ds_grow_by_one(&v->origins, v->n_origins, sizeof *v->origins, "origins", err) != 0)
        return NULL;
    struct ds_origin *o = &v->origins[v->n_origins++];
    *o = (struct ds_origin){.op = w->a->kernels[kernel].op,
                            .variant = w->a->kernels[kernel].variant,
                            .stage = s->stage,
                            .part = s->part,
                            .site = UINT32_MAX};
    return o;
}

static void add_origin(const struct origin_work *w, struct ds_origin *o, uint32_t site,
                       size_t kernel, uint64_t digests, const struct ds_finding *of)
{
    const struct sum *z = &w->sites[site];
    const int number = strcmp(w->a->h->sites[site].dtype, "i32") != 0; /* else no size */
    double rms = relative(z);
    o->digests += digests;
    const uint64_t bit = (uint64_t)1 << (kernel % 64);
    o->layers += !(w->a->origin_seen[site] & bit);
    w->a->origin_seen[site] |= bit;
    if (site < o->site) {
        o->site = site;
        o->layer = w->a->h->sites[site].layer;
        o->factor = of->factor;
        o->value = of->value;
        o->arm = of->arm;
        o->ref_arm = of->ref_arm;
    }
    if (number && z->rows && (!o->sized || rms > o->relative_rms)) {
        o->relative_rms = rms;
        o->largest_layer = w->a->h->sites[site].layer;
    }
    o->max_ulp = z->max_ulp > o->max_ulp ? z->max_ulp : o->max_ulp;
    o->sized |= number && z->rows != 0;
}

int add_origins(struct ds_analysis *a, struct ds_verdict *v, const struct ds_finding *of,
                const uint8_t *natural, const uint8_t *healed, struct ds_error *err)
{
    struct origin_work w = {
        .a = a, .v = v, .natural = natural, .healed = healed, .repeats = of->arm == of->ref_arm};
    const struct heal_table *h = healed_table(a, of->arm, of->ref_arm);
    const struct arm_table *t = &a->arms[of->arm];
    w.sites = ds_calloc(a->n_sites, sizeof *w.sites, "added errors", err);
    if (!w.sites)
        return -1;
    if (h && healed)
        add_up(a, h->t.rep, of->ref_arm, healed, w.sites);
    else
        add_up(a, t->rep, of->ref_arm, natural, w.sites);
    int rc = 0;
    for (size_t site = 0; site < a->n_sites && rc == 0; site++) {
        uint64_t digests = 0;
        size_t kernel = 0;
        for (size_t i = 0; i < a->n_rows; i++)
            if (is_origin(&w, site * a->n_rows + i)) {
                kernel = t->state[site * a->n_rows + i] != CELL_ABSENT || !h
                             ? t->kernel[site * a->n_rows + i]
                             : h->t.kernel[site * a->n_rows + i];
                digests++;
            }
        struct ds_origin *o = digests ? origin_at(&w, site, kernel, err) : NULL;
        if (o)
            add_origin(&w, o, (uint32_t)site, kernel, digests, of);
        rc = digests && !o ? -1 : 0;
    }
    free(w.sites);
    return rc;
}

static int by_site(const void *x, const void *y)
{
    const struct ds_origin *a = x, *b = y;
    return a->site != b->site ? (a->site < b->site ? -1 : 1) : strcmp(a->variant, b->variant);
}

void sort_origins(struct ds_verdict *v)
{
    if (v->n_origins)
        qsort(v->origins, v->n_origins, sizeof *v->origins, by_site);
}

/* ---- added against inherited ------------------------------------------------------------------ */

/* Whether x adds more to its layer than what was found so far. Parts of one stage are held against each
 * other by rms: relative to its values a part that has a large common offset would look exact. */
static int adds_more(const struct ds_added *x, const struct ds_growth *g)
{
    if (!g->added_rows)
        return 1;
    if (strcmp(x->stage, g->added_stage) == 0)
        return x->rms > g->added_rms;
    return x->relative_rms > g->added_relative_rms;
}

static void add_to_growth(struct ds_verdict *v, const struct ds_added *x)
{
    for (size_t i = 0; i < v->n_growth; i++) {
        struct ds_growth *g = &v->growth[i];
        if (g->layer != x->layer || !adds_more(x, g))
            continue;
        g->added_rows = x->rows;
        g->added_relative_rms = x->relative_rms;
        g->added_rms = x->rms;
        g->added_max_ulp = x->max_ulp;
        g->added_stage = x->stage;
        g->added_part = x->part;
    }
}

int find_added(struct ds_analysis *a, struct ds_verdict *v, uint8_t *labels, struct ds_error *err)
{
    const struct ds_finding *f = &v->first;
    const struct heal_table *h = f->found ? healed_table(a, f->arm, f->ref_arm) : NULL;
    if (!h)
        return 0;
    struct sum *natural = ds_calloc(a->n_sites, sizeof *natural, "added errors", err),
               *added = ds_calloc(a->n_sites, sizeof *added, "added errors", err);
    v->added = ds_calloc(a->n_sites, sizeof *v->added, "added errors", err);
    int rc = natural && added && v->added ? 0 : -1;
    if (rc == 0) {
        label_healed(a, h, labels);
        add_up(a, h->t.rep, f->ref_arm, labels, added);
        add_up(a, a->src->get(a->src->ctx, f->trial, NULL), f->ref_arm, NULL, natural);
    }
    for (size_t s = 0; rc == 0 && s < a->n_sites; s++) {
        if (!added[s].rows)
            continue;
        const struct ds_site *site = &a->h->sites[s];
        struct ds_added *x = &v->added[v->n_added++];
        *x = (struct ds_added){.site = (uint32_t)s,
                               .layer = site->layer,
                               .stage = site->stage,
                               .part = site->part,
                               .rows = added[s].rows,
                               .max_ulp = added[s].max_ulp,
                               .relative_rms = relative(&added[s]),
                               .rms = absolute(a, s, &added[s]),
                               .natural_rms = absolute(a, s, &natural[s]),
                               .natural_rows = natural[s].rows,
                               .natural_max_ulp = natural[s].max_ulp,
                               .natural_relative_rms = relative(&natural[s])};
        add_to_growth(v, x);
    }
    free(natural);
    free(added);
    return rc;
}
