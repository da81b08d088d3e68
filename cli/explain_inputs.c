/* explain_inputs.c: the values of rows at sites, and what a site's kernel read for a row, as the edges
 * tell. Reads the record, which is hostile: every number that becomes an index or a size is checked
 * here or was by the reader. */
#include "cli/explain_case.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/registry.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows of a trial ------------------------------------------------------------------------- */

int ds_site_rows(const struct ds_trial_data *t, uint32_t site, struct ds_site_row **out, size_t *n,
                 struct ds_error *err)
{
    size_t total = 0;
    for (size_t i = 0; i < t->n_captures; i++)
        total += t->captures[i].site == site ? t->captures[i].rows : 0;
    *n = 0;
    *out = ds_calloc(total, sizeof **out, "rows of a site", err);
    if (!*out)
        return -1;
    for (size_t i = 0; i < t->n_captures; i++) {
        const struct ds_capture *c = &t->captures[i];
        for (uint32_t r = 0; c->site == site && r < c->rows; r++)
            (*out)[(*n)++] = (struct ds_site_row){.key = t->rows[c->first_row + r],
                                                  .digest = t->digests[c->first_digest + r],
                                                  .launch = c->launch,
                                                  .width = c->width};
    }
    return 0;
}

const struct ds_site_row *ds_site_find_row(const struct ds_site_row *rows, size_t n,
                                           const struct ds_row *key)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].key.request == key->request && rows[i].key.position == key->position &&
            rows[i].key.occurrence == key->occurrence)
            return &rows[i];
    return NULL;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

int ds_case_own(struct ds_case *c, void *p, struct ds_error *err)
{
    if (ds_grow(&c->owned, &c->cap_owned, c->n_owned + 1, sizeof *c->owned, "dumped rows", err) !=
        0) {
        free(p);
        return -1;
    }
    c->owned[c->n_owned++] = p;
    return 0;
}

/* The format in which a site's rows are stored in an arm. */
int ds_case_stored_as(const struct ds_case *c, uint32_t site, uint32_t arm)
{
    return ds_dtype_parse(ds_site_dtype(c->h, site, arm));
}

/* The values of a dumped row, made f32 (ids as bits): 1 found, 0 not dumped, -1 damage. */
int ds_case_values(struct ds_case *c, uint32_t site, uint32_t arm, uint64_t digest, size_t width,
                   float **out, struct ds_error *err)
{
    struct ds_blob b = {0};
    const int dtype = ds_case_stored_as(c, site, arm);
    int rc = c->s->blob(c->s->ctx, digest, &b, err);
    if (rc != 1)
        return rc;
    if (dtype < 0 || b.bytes != width * ds_dtype_size(dtype)) {
        free(b.data);
        return ds_fail(err, "layer %d %.24s: a dumped row has %u bytes, not those of %zu elements",
                       c->h->sites[site].layer, c->h->sites[site].stage, b.bytes, width);
    }
    float *y = ds_alloc_aligned(width, sizeof *y, "dumped row", err);
    if (y && dtype == DS_I32)
        memcpy(y, b.data, b.bytes);
    else if (y)
        ds_widen_row(dtype, y, b.data, width);
    free(b.data);
    if (!y || ds_case_own(c, y, err) != 0)
        return -1;
    *out = y;
    return 1;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* The site from which an edge's rows are read by this side's kernel: as they were before rounding,
 * or as stored. -1: the other twin is. */
static int reads(const struct ds_case *c, int side, const struct ds_edge *e)
{
    const struct ds_site *s = &c->h->sites[e->from];
    const struct ds_kernel *k = c->e.side[side].kernel;
    const int raw = k && (k->features & DS_FEATURE_UNROUNDED),
              twin = strcmp(s->part, "unrounded") == 0;
    if (twin || !raw)
        return twin == raw;
    for (size_t i = 0; i < c->h->n_edges; i++) {
        const struct ds_edge *o = &c->h->edges[i];
        const struct ds_site *q = &c->h->sites[o->from];
        if (o->to == e->to && q->layer == s->layer && strcmp(q->stage, s->stage) == 0 &&
            strcmp(q->part, "unrounded") == 0)
            return 0;
    }
    return 1;
}

/* The site whose edges tell what the kernel read: where a stage has a site for its rows before
 * rounding, that one. */
static uint32_t reading_site(const struct ds_case *c)
{
    const struct ds_site *s = &c->h->sites[c->f.site];
    for (size_t i = 0; i < c->h->n_edges; i++) {
        const struct ds_edge *e = &c->h->edges[i];
        const struct ds_site *q = &c->h->sites[e->from];
        if (e->to == c->f.site && q->layer == s->layer && strcmp(q->stage, s->stage) == 0 &&
            strcmp(q->part, "unrounded") == 0)
            return e->from;
    }
    return c->f.site;
}

static int is_number(const struct ds_site *s)
{
    return ds_dtype_parse(s->dtype) == DS_I32;
}

/* The trial whose rows a side's kernel read. */
static const struct ds_case_read *read_from(const struct ds_case *c, int side)
{
    return &c->read[side];
}

/* The digest of the same row at another site of the trial; 1 found. */
static int digest_at(const struct ds_case *c, int side, uint32_t site, const struct ds_row *key,
                     uint64_t *digest, struct ds_error *err)
{
    struct ds_site_row *rows;
    size_t n;
    if (ds_site_rows(read_from(c, side)->t, site, &rows, &n, err) != 0)
        return -1;
    const struct ds_site_row *r = ds_site_find_row(rows, n, key);
    if (r)
        *digest = r->digest;
    free(rows);
    return r != NULL;
}

/* Rows of the request at the visible slots, one after the other. 1, 0 = something is not there. */
static int causal_rows(struct ds_case *c, int side, uint32_t site, const struct ds_row *key,
                       uint64_t *digests, float **out, struct ds_error *err)
{
    const size_t n = (size_t)key->kv_len, width = c->h->sites[site].width;
    const int32_t first = key->position + 1 - key->kv_len;
    struct ds_site_row *rows;
    size_t n_rows;
    int rc = 1;
    if (ds_site_rows(read_from(c, side)->t, site, &rows, &n_rows, err) != 0)
        return -1;
    float *all = n <= n_rows ? ds_alloc_aligned(n * width, sizeof *all, "dumped rows", err) : NULL;
    rc = n > n_rows ? 0 : !all || ds_case_own(c, all, err) != 0 ? -1 : 1;
    for (size_t p = 0; p < n && rc == 1; p++) {
        const struct ds_site_row *best = NULL;
        for (size_t i = 0; i < n_rows; i++)
            if (rows[i].key.request == key->request && rows[i].key.position == first + (int32_t)p &&
                rows[i].key.kv_len > 0 && rows[i].key.call <= key->call)
                best = &rows[i];
        float *y;
        rc = best ? ds_case_values(c, site, read_from(c, side)->arm, best->digest, width, &y, err)
                  : 0;
        if (rc == 1) {
            memcpy(all + p * width, y, width * sizeof *y);
            *digests ^= best->digest * (2 * p + 1);
        }
    }
    free(rows);
    *out = all;
    return rc;
}

/* The next row joins those before it, all in one array of `most`. */
static int add_row(struct ds_case *c, int64_t most, const float *y, size_t width, int *place,
                   struct ds_explain_input *in, uint64_t digest, uint64_t *digests,
                   struct ds_error *err)
{
    float *all = (float *)(uintptr_t)in->in[0];
    if (!all) {
        all = ds_alloc_aligned((size_t)most * width, sizeof *all, "addends", err);
        if (!all || ds_case_own(c, all, err) != 0)
            return -1;
        in->in[0] = all;
    }
    if (*place >= most || (int64_t)width != ds_explain_width(c->e.op, &c->e.shared))
        return ds_fail(err, "layer %d %.24s: it is not known how many rows are added", c->f.layer,
                       c->f.stage);
    memcpy(all + (size_t)*place * width, y, width * sizeof *all);
    *digests ^= digest * (uint64_t)(2 * ++*place + 1);
    return 1;
}

/* What a combine reads: the weights of its addends, and the rows of all experts. */
static int add_addend(struct ds_case *c, const struct ds_site *from, const float *y, int *place,
                      struct ds_explain_input *in, uint64_t digest, uint64_t *digests,
                      struct ds_error *err)
{
    const int64_t addends = c->e.shared.combine.top_k;
    if (strcmp(from->op, "router") != 0)
        return add_row(c, addends, y, from->width, place, in, digest, digests, err);
    if (from->width != addends)
        return ds_fail(err, "layer %d %.24s: %u weights for %lld rows", c->f.layer, c->f.stage,
                       from->width, (long long)addends);
    in->in[1] = y;
    *digests ^= digest * 0x9e3779b97f4a7c15u;
    return 1;
}

/* Sites of another number of ranks than the arm has, say: the trial shows none of their rows. */
static int never_shown(const struct ds_case *c, int side, uint32_t site)
{
    const struct ds_trial_data *t = read_from(c, side)->t;
    for (size_t i = 0; i < t->n_captures; i++)
        if (t->captures[i].site == site)
            return 0;
    return 1;
}

static int is_part_of(const struct ds_case *c, const struct ds_site *s)
{
    const struct ds_site *own = &c->h->sites[c->f.site];
    return s->part[0] == 'r' && s->layer == own->layer && strcmp(s->stage, own->stage) == 0;
}

/* What a matmul really reads: the sums of ranks that stand between lead to what all of them read. */
static uint32_t read_site(const struct ds_case *c, uint32_t from)
{
    for (int depth = 0; depth < 4 && c->e.op == DS_OP_MATMUL; depth++) {
        const struct ds_site *s = &c->h->sites[from];
        if (strcmp(s->op, "allreduce") != 0 && !is_part_of(c, s))
            break;
        for (size_t i = 0; i < c->h->n_edges; i++)
            if (c->h->edges[i].to == from) {
                from = c->h->edges[i].from;
                break;
            }
    }
    return from;
}

/* What added up the partial sums at an allreduce, and how many there were. */
static const struct ds_kernel *reduce_of(const struct ds_case *c, int side, uint32_t site,
                                         int32_t *ranks)
{
    const struct ds_trial_data *t = c->side[side].t;
    const char *variant = "";
    for (size_t i = 0; i < t->n_captures; i++)
        if (t->captures[i].site == site)
            variant = t->launches[t->captures[i].launch].variant;
    *ranks = 0;
    for (size_t i = 0; i < c->h->n_edges; i++)
        *ranks += c->h->edges[i].to == site && !never_shown(c, side, c->h->edges[i].from);
    char name[32];
    snprintf(name, sizeof name, "%.31s", variant);
    return ds_kernel_find_on(ds_case_device(c, side), DS_OP_ALLREDUCE, name);
}

/* A side whose output is the sum of ranks is several launches of its kernel, and one that adds. */
void ds_case_look_for_ranks(struct ds_case *c, int side)
{
    struct ds_explain_side *e = &c->e.side[side];
    for (size_t i = 0; i < c->h->n_edges; i++) {
        const struct ds_site *s = &c->h->sites[c->h->edges[i].from];
        if (c->h->edges[i].to != c->f.site || c->e.op != DS_OP_MATMUL ||
            strcmp(s->op, "allreduce") != 0 || never_shown(c, side, c->h->edges[i].from))
            continue;
        e->reduce = reduce_of(c, side, c->h->edges[i].from, &e->ranks);
        if (e->reduce && e->ranks >= 2 && c->e.shared.matmul.k % e->ranks == 0)
            return;
        e->kernel = NULL;
        e->ranks = 0;
        snprintf(c->side[side].missing, sizeof c->side[side].missing,
                 "it is a sum over ranks, each with a matmul of its own: explain %d,%.24s/r0 and "
                 "%d,allreduce/%.12s look at those",
                 c->f.layer, c->f.stage, c->f.layer, s->part);
    }
}

/* One input row: 1, 0 not dumped. `digests` collects what was read, to hold both sides together. */
static int read_input(struct ds_case *c, int side, const struct ds_edge *e,
                      const struct ds_row *key, int *place, struct ds_explain_input *in,
                      uint64_t *digests, struct ds_error *err)
{
    const uint32_t from = read_site(c, e->from);
    const struct ds_site *s = &c->h->sites[from];
    uint64_t digest = 0;
    float *y;
    if (e->kind == DS_EDGE_CAUSAL && c->e.op == DS_OP_ATTENTION) {
        int rc = causal_rows(c, side, e->from, key, digests, &y, err);
        if (rc == 1)
            *(strcmp(s->part, "v") == 0 ? &in->v : &in->k) = y;
        return rc;
    }
    int rc = digest_at(c, side, from, key, &digest, err);
    if (rc == 1)
        rc = ds_case_values(c, from, read_from(c, side)->arm, digest, s->width, &y, err);
    if (is_number(s)) { /* known from the row's key, too */
        if (rc == 1 && strcmp(s->stage, "positions") == 0)
            memcpy(&in->number, y, sizeof in->number);
        *digests ^= digest * 0x9e3779b97f4a7c15u * (from + 1);
        return rc < 0 ? -1 : 1;
    }
    if (rc != 1)
        return rc;
    if (c->e.op == DS_OP_ROUTER && s->width != c->e.shared.router.experts) {
        *digests ^= digest * 0x9e3779b97f4a7c15u * (from + 1); /* of the expert that all pass */
        return 1;
    }
    if (c->e.op == DS_OP_ALLREDUCE)
        return add_row(c, c->e.shared.allreduce.ranks, y, s->width, place, in, digest, digests,
                       err);
    if (c->e.op == DS_OP_COMBINE)
        return add_addend(c, s, y, place, in, digest, digests, err);
    const int i = *place;
    if (c->ranks && (int64_t)s->width == c->ranks * c->e.shared.matmul.k)
        y += c->rank * c->e.shared.matmul.k;
    else if (i >= 2 || ds_explain_width_in(c->e.op, &c->e.shared, i) != s->width)
        return ds_fail(err, "layer %d %.24s: its kernel reads %lld elements, not the %u of %.24s",
                       c->f.layer, c->f.stage,
                       (long long)ds_explain_width_in(c->e.op, &c->e.shared, i < 2 ? i : 1),
                       s->width, s->stage);
    in->in[(*place)++] = y;
    *digests ^= digest * 0x9e3779b97f4a7c15u * (from + 1);
    return 1;
}

int ds_case_inputs(struct ds_case *c, int side, const struct ds_row *key,
                   struct ds_explain_input *in, uint64_t *digests, struct ds_error *err)
{
    int place = 0, rc = 1;
    const uint32_t site = reading_site(c);
    in->number = key->position;
    in->request = key->request;
    in->step = key->step;
    if (c->e.op == DS_OP_EMBED)
        return ds_case_token(c, side, key, key->kv_len - 1, &in->number);
    if (c->e.op == DS_OP_PROCESS && (rc = ds_case_tokens(c, side, key, in, err)) != 1)
        return rc;
    for (size_t i = 0; i < c->h->n_edges && rc == 1; i++) {
        const struct ds_edge *e = &c->h->edges[i];
        uint64_t digest = 0;
        if (e->to != site || never_shown(c, side, read_site(c, e->from)))
            continue;
        if (reads(c, side, e))
            rc = read_input(c, side, e, key, &place, in, digests, err);
        else if ((rc = digest_at(c, side, e->from, key, &digest, err)) == 0)
            rc = 1; /* a twin that this kernel does not read */
        /* As of one that is read: sides that read other twins of equal rows have equal inputs. */
        *digests ^= digest * 0x9e3779b97f4a7c15u * (read_site(c, e->from) + 1);
    }
    for (int i = 0; i < 2 && rc == 1; i++)
        if (ds_explain_width_in(c->e.op, &c->e.shared, i) > 0 && !in->in[i])
            rc = 0;
    if (rc == 1 && c->e.op == DS_OP_ATTENTION && (!in->k || !in->v))
        rc = 0;
    return rc;
}
