/* forward_desk.c: what lies on the device at work: memory that goes with it, weights and tables as they
 * were copied there, and of every call the ids, positions, row numbers and sequences that kernels read.
 * On the CPU, whose memory is the host's, all but the buffers is the host's own and nothing is copied.
 * Must not know stages, nor what a buffer holds. */
#include "engine/forward_private.h"

#include "base/mem.h"
#include "engine/round.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ds_desk_new(struct ds_forward *f, size_t count, size_t bytes, const char *what, void *out,
                struct ds_error *err)
{
    struct ds_desk *at = &f->at;
    size_t all;
    void *p;
    if (__builtin_mul_overflow(count, bytes, &all) ||
        __builtin_add_overflow(all, 3 + (ds_forward_host(f) ? DS_GUARD_BYTES : 0), &all))
        return ds_fail(err, "%s: %zu times %zu bytes do not fit in memory", what, count, bytes);
    all &= ~(size_t)3; /* whole words can be filled */
    if (ds_grow(&at->owned, &at->cap_owned, at->n_owned + 1, sizeof *at->owned, what, err) != 0 ||
        ds_device_check(at->dev, at->dev->alloc(at->dev, all, what, &p), err) != 0)
        return -1;
    at->owned[at->n_owned++] = p;
    memcpy(out, &p, sizeof p);
    return 0;
}

void ds_desk_forget(struct ds_forward *f, void *p)
{
    struct ds_desk *at = &f->at;
    for (size_t i = 0; p && i < at->n_owned; i++)
        if (at->owned[i] == p) {
            ds_graphs_drop(f);
            at->dev->release(at->dev, p);
            at->owned[i] = at->owned[--at->n_owned];
            return;
        }
}

int ds_desk_copy_of(struct ds_forward *f, const void *host, size_t bytes, const char *what,
                    void *out, struct ds_error *err)
{
    void *p;
    if (ds_forward_host(f)) {
        memcpy(out, &host, sizeof host);
        return 0;
    }
    if (ds_desk_new(f, bytes, 1, what, &p, err) != 0 || ds_desk_to(f, p, host, bytes, err) != 0)
        return -1;
    memcpy(out, &p, sizeof p);
    return 0;
}

void ds_desk_free(struct ds_desk *at)
{
    for (size_t i = 0; at->dev && i < at->n_owned; i++)
        at->dev->release(at->dev, at->owned[i]);
    free(at->owned);
    free(at->weights);
    ds_log_free(&at->log);
    ds_device_close(at->dev);
    memset(at, 0, sizeof *at);
}

int ds_desk_to(struct ds_forward *f, void *dst, const void *host, size_t bytes,
               struct ds_error *err)
{
    return ds_device_check(f->at.dev, f->at.dev->copy_to(f->at.dev, dst, host, bytes), err);
}

int ds_desk_from(struct ds_forward *f, void *host, const void *src, size_t bytes,
                 struct ds_error *err)
{
    return ds_device_check(f->at.dev, f->at.dev->copy_from(f->at.dev, host, src, bytes), err);
}

int ds_desk_rows(struct ds_forward *f, const struct ds_device_rows *r, struct ds_error *err)
{
    return ds_device_check(f->at.dev, f->at.dev->rows(f->at.dev, r), err);
}

int ds_forward_poison(struct ds_forward *f, float *y, size_t n, struct ds_error *err)
{
    return ds_device_check(f->at.dev, f->at.dev->fill(f->at.dev, y, DS_POISON_BITS, n), err);
}

int ds_forward_poison_rows(struct ds_forward *f, float *y, size_t n, struct ds_error *err)
{
    const uint32_t word = f->at.stored == DS_ELEMENT_BF16 ? 0x7fc07fc0u : 0x7e007e00u;
    if (f->at.stored == DS_ELEMENT_F32)
        return ds_forward_poison(f, y, n, err);
    return ds_device_check(f->at.dev, f->at.dev->fill(f->at.dev, y, word, (n + 1) / 2), err);
}

/* ---- activations of 16 bits ----------------------------------------------------------------------- */

int32_t ds_desk_stored(const struct ds_forward *f)
{
    static const int ops[] = {DS_OP_EMBED,  DS_OP_RMSNORM,   DS_OP_MATMUL,    DS_OP_ROPE,
                              DS_OP_CACHE,  DS_OP_ATTENTION, DS_OP_SILU_MUL,  DS_OP_ADD,
                              DS_OP_ROUTER, DS_OP_COMBINE,   DS_OP_ALLREDUCE, DS_OP_TRANSFER};
    const struct ds_forward_config *c = &f->config;
    const struct ds_kernel *k;
    if (ds_forward_host(f) || f->exec.dtype == DS_ELEMENT_F32 || c->f32_at ||
        ds_forward_unrounded(f->m, &c->kernels))
        return DS_ELEMENT_F32;
    /* Kernels of the CPU, where a placement has layers, get its f32 rows. */
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        for (int32_t n = 0; (k = ds_kernel_set_used(&c->kernels, ops[i], n)); n++)
            if (k->device == f->at.dev->kind && !(k->features & DS_FEATURE_STORED))
                return DS_ELEMENT_F32;
    return f->exec.dtype;
}

static int grow_bounce(struct ds_forward *f, size_t n, struct ds_error *err)
{
    return ds_grow(&f->bounce, &f->cap_bounce, n, sizeof *f->bounce, "16-bit rows", err);
}

int ds_desk_bring(struct ds_forward *f, float *host, const float *there, size_t n,
                  struct ds_error *err)
{
    if (f->at.stored == DS_ELEMENT_F32)
        return ds_desk_from(f, host, there, n * sizeof *host, err);
    if (grow_bounce(f, n, err) != 0 ||
        ds_desk_from(f, f->bounce, there, n * sizeof *f->bounce, err) != 0)
        return -1;
    ds_widen_many(f->config.dtype, host, f->bounce, n);
    return 0;
}

int ds_desk_put(struct ds_forward *f, float *there, const float *host, size_t n,
                struct ds_error *err)
{
    if (f->at.stored == DS_ELEMENT_F32)
        return ds_desk_to(f, there, host, n * sizeof *host, err);
    if (grow_bounce(f, n, err) != 0)
        return -1;
    ds_round_many(f->config.dtype, f->bounce, host, n);
    return ds_desk_to(f, there, f->bounce, n * sizeof *f->bounce, err);
}

const int32_t *ds_desk_list(struct ds_forward *f, int which, const int32_t *host, size_t n,
                            struct ds_error *err)
{
    if (ds_forward_host(f))
        return host;
    int32_t *list = f->at.moe.list + (size_t)which * (size_t)f->config.max_rows *
                                         (size_t)(f->m->hp.top_k > 0 ? f->m->hp.top_k : 1);
    return ds_desk_to(f, list, host, n * sizeof *host, err) == 0 ? list : NULL;
}

/* ---- the call ------------------------------------------------------------------------------------- */

static size_t most_rows(const struct ds_forward *f)
{
    const struct ds_forward_config *c = &f->config;
    return (size_t)(c->max_rows > c->most_kept ? c->max_rows : c->most_kept);
}

static int new_plan(struct ds_forward *f, struct ds_error *err)
{
    struct ds_desk *at = &f->at;
    const size_t rows = most_rows(f), requests = (size_t)f->config.n_requests;
    if (ds_forward_host(f)) {
        at->ids = f->ids;
        at->positions = f->positions;
        at->logit_row = f->logit_row;
        at->own_row = f->own_row;
        return 0;
    }
    int32_t **lists[] = {&at->ids,       &at->positions, &at->rec_slot,
                         &at->rec_cache, &at->logit_row, &at->own_row};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (ds_desk_new(f, rows, sizeof **lists[i], "rows of a call", lists[i], err) != 0)
            return -1;
    if (ds_desk_to(f, at->own_row, f->own_row, (size_t)f->config.max_rows * sizeof *f->own_row,
                   err) != 0)
        return -1;
    return ds_desk_new(f, requests, sizeof *at->sequences, "sequences of a call", &at->sequences,
                       err) != 0 ||
                   ds_desk_new(f, requests, (size_t)f->cache.pages_each * sizeof *at->pages,
                               "page tables of a call", &at->pages, err) != 0
               ? -1
               : 0;
}

/* The sequences with their page tables, whose addresses are the device's. */
static int plan_sequences(struct ds_forward *f, struct ds_error *err)
{
    struct ds_desk *at = &f->at;
    const size_t each = (size_t)f->cache.pages_each, n = (size_t)f->n_seqs;
    for (size_t i = 0; i < n; i++) {
        f->staged[i] = f->seqs[i];
        f->staged[i].pages = at->pages + i * each;
        memcpy(f->staged_pages + i * each, f->seqs[i].pages, each * sizeof *f->staged_pages);
    }
    return ds_desk_to(f, at->sequences, f->staged, n * sizeof *f->staged, err) != 0 ||
                   ds_desk_to(f, at->pages, f->staged_pages, n * each * sizeof *f->staged_pages,
                              err) != 0
               ? -1
               : 0;
}

static int plan_recorded(struct ds_forward *f, struct ds_error *err)
{
    for (uint32_t i = 0; i < f->n_rec; i++)
        f->staged_rows[i] = f->rec[i].slot;
    if (ds_desk_to(f, f->at.rec_slot, f->staged_rows, f->n_rec * sizeof *f->staged_rows, err) != 0)
        return -1;
    for (uint32_t i = 0; i < f->n_rec; i++)
        f->staged_rows[i] = f->cache_row[f->rec[i].slot];
    return ds_desk_to(f, f->at.rec_cache, f->staged_rows, f->n_rec * sizeof *f->staged_rows, err);
}

int ds_desk_plan(struct ds_forward *f, struct ds_error *err)
{
    struct ds_desk *at = &f->at;
    const size_t rows = (size_t)f->rows * sizeof(int32_t);
    if (ds_forward_host(f) || at->plan == f->plans)
        return 0;
    at->plan = f->plans;
    return ds_desk_to(f, at->ids, f->ids, rows, err) != 0 ||
                   ds_desk_to(f, at->positions, f->positions, rows, err) != 0 ||
                   ds_desk_to(f, at->logit_row, f->logit_row,
                              (size_t)f->n_logits * sizeof *f->logit_row, err) != 0 ||
                   plan_sequences(f, err) != 0 || plan_recorded(f, err) != 0
               ? -1
               : 0;
}

/* ---- weights and tables ------------------------------------------------------------------------------ */

/* Whether a layer on this device reads it; the embedding belongs to the first one, what comes after the
 * layers to the last. */
static int is_read_here(const struct ds_forward *f, const struct ds_weight *w)
{
    const struct ds_placement *p = &f->config.placement;
    const struct ds_model *m = f->m;
    int layer;
    if (p->n == 0)
        return 1;
    if (sscanf(w->name, "blk.%d.", &layer) == 1)
        return ds_placement_device(p, layer) == f->device;
    return (w == m->embed && ds_placement_device(p, 0) == f->device) ||
           (w != m->embed || w == m->head ? ds_placement_device(p, m->hp.n_layers - 1) == f->device
                                          : 0);
}

/* Not the embedding, which is a table beside a matrix. */
static int32_t half_type(const struct ds_forward *f, const struct ds_weight *w)
{
    return f->at.half_weights && w->rows > 1 && w != f->m->embed ? ds_model_half_type(w) : 0;
}

/* Whether all matmuls of the device at work read weights of 16 bits. */
static int reads_halves(const struct ds_forward *f)
{
    const struct ds_kernel *k;
    for (int32_t i = 0; (k = ds_kernel_set_used(&f->config.kernels, DS_OP_MATMUL, i)); i++)
        if (k->device == f->at.dev->kind && !(k->features & DS_FEATURE_FILE_WEIGHTS))
            return 0;
    return 1;
}

static int new_weights(struct ds_forward *f, struct ds_error *err)
{
    struct ds_desk *at = &f->at;
    struct ds_model *m = f->m;
    if (ds_forward_host(f))
        return 0;
    if (!(at->weights = ds_calloc(m->n_weights, sizeof *at->weights, "weights", err)))
        return -1;
    at->half_weights = reads_halves(f);
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct ds_weight *w = &m->weights[i];
        if (w->data && is_read_here(f, w) &&
            !(at->weights[i] =
                  ds_model_upload(m, at->dev->kind, at->dev->number, w, half_type(f, w), err)))
            return -1;
    }
    return 0;
}

const float *ds_desk_weight(const struct ds_forward *f, const struct ds_weight *w)
{
    return w && f->at.weights ? f->at.weights[w - f->m->weights] : w ? w->data : NULL;
}

struct ds_weight_view ds_desk_matrix(const struct ds_forward *f, const struct ds_weight *w)
{
    const void *there = ds_desk_weight(f, w);
    const int32_t type = half_type(f, w);
    struct ds_weight_view view = {.n = w->rows, .k = w->cols, .file_type = type};
    if (type)
        view.file_data = there;
    else
        view.data = there;
    return view;
}

int ds_desk_set_up(struct ds_forward *f, struct ds_error *err)
{
    const struct ds_model *m = f->m;
    const size_t top_k = (size_t)(m->hp.top_k > 0 ? m->hp.top_k : 1);
    if (new_plan(f, err) != 0 || new_weights(f, err) != 0)
        return -1;
    if (ds_forward_host(f))
        return 0;
    f->at.rope_positions = m->rope_positions;
    return ds_desk_copy_of(f, m->rope_table,
                           (size_t)m->rope_positions * (size_t)m->hp.rope_dim *
                               sizeof *m->rope_table,
                           "the rope table", &f->at.rope_table, err) != 0 ||
                   ds_desk_new(f, 2 * (size_t)f->config.max_rows * top_k, sizeof *f->at.moe.list,
                               "row numbers", &f->at.moe.list, err) != 0
               ? -1
               : 0;
}

void ds_forward_poison_cache(struct ds_forward *f)
{
    const struct ds_kv_cache *c = &f->cache;
    const size_t layer = (size_t)(c->pages * c->page_size * c->width);
    for (int32_t l = 0; l < c->n_layers; l++) {
        ds_forward_to_device(f, ds_placement_device(&f->config.placement, l));
        if (ds_forward_host(f))
            continue;
        (void)ds_forward_poison_rows(f, f->layer_k[l], layer, NULL);
        (void)ds_forward_poison_rows(f, f->layer_v[l], layer, NULL);
    }
}
