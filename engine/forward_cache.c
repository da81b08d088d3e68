/* forward_cache.c: the cache as a pass writes and shows it: the rows of the call, read back, and
 * those that a write had no business with. Must not know the order of the stages. */
#include "engine/forward_private.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "engine/round.h"

#include <string.h>

static int show_host_cache(struct ds_pass *p, int stage, float *cache)
{
    struct ds_forward *f = p->f;
    size_t width = (size_t)f->kv_dim;
    for (uint32_t i = 0; i < f->n_rec; i++) {
        size_t row = (size_t)f->rec[i].slot;
        const float *there = cache + (size_t)f->cache_row[row] * width;
        if (f->at.half)
            ds_round_many(f->config.dtype, f->at.half + row * width, there, width);
        else
            memcpy(f->at.kv_back + row * width, there, width * sizeof *there);
    }
    if (ds_pass_show(p, stage, f->at.half ? (void *)f->at.half : f->at.kv_back,
                     ds_dtype_size(f->config.dtype)) != 0)
        return -1;
    for (uint32_t i = 0; i < f->n_rec; i++) {
        size_t row = (size_t)f->rec[i].slot;
        float *there = cache + (size_t)f->cache_row[row] * width;
        if (!f->at.half) {
            memcpy(there, f->at.kv_back + row * width, width * sizeof *there);
            continue;
        }
        ds_round_many(f->config.dtype, f->half_row, there, width);
        if (memcmp(f->half_row, f->at.half + row * width, width * sizeof *f->at.half) != 0)
            ds_widen_many(f->config.dtype, there, f->at.half + row * width, width);
    }
    return 0;
}

/* On a device: rows as they are stored where they stand, f32 rows of a 16-bit type gathered and rounded first. */
static int show_device_cache(struct ds_pass *p, int stage, float *cache)
{
    struct ds_forward *f = p->f;
    const int64_t row = f->kv_dim * (int64_t)ds_forward_element(f), n = f->n_rec;
    const uint32_t site = ds_site_map_at(f->map, stage, p->layer, 0);
    struct ds_shown rows = {.data = cache,
                            .stride = (size_t)row,
                            .element = ds_forward_element(f),
                            .index = f->at.rec_cache,
                            .n = f->n_rec,
                            .width = (uint32_t)f->kv_dim};
    if (site == DS_NO_SITE)
        return 0;
    if (!f->launch_known[stage])
        ds_pass_describe(f, stage, NULL);
    if (!f->at.half)
        return ds_log_show(p, stage, site, &rows);
    struct ds_device_rows gather = {.n = n,
                                    .row_bytes = row,
                                    .x = cache,
                                    .x_stride = row,
                                    .x_at = f->at.rec_cache,
                                    .y = f->at.kv_back,
                                    .y_stride = row};
    const struct ds_device_rows scatter = {.n = n,
                                           .row_bytes = row,
                                           .x = f->at.kv_back,
                                           .x_stride = row,
                                           .y = cache,
                                           .y_stride = row,
                                           .y_at = f->at.rec_cache};
    rows.data = f->at.half;
    rows.stride = (size_t)f->kv_dim * sizeof *f->at.half;
    rows.element = sizeof *f->at.half;
    rows.index = NULL;
    if (ds_desk_rows(f, &gather, p->err) != 0 ||
        ds_pass_convert(p, f->at.kv_back, n * f->kv_dim, DS_CONVERT_ROUND) != 0 ||
        ds_log_show(p, stage, site, &rows) != 0)
        return -1;
    if (!ds_probe_heals(p->probe))
        return 0;
    return ds_pass_convert(p, f->at.kv_back, n * f->kv_dim, DS_CONVERT_FOLLOW) != 0
               ? -1
               : ds_desk_rows(f, &scatter, p->err);
}

/* Shows what stands in the cache for this call's rows, read back through the page table, so that a
 * wrong write is seen. What a healing probe changed is written back. */
int ds_pass_show_cache(struct ds_pass *p, int stage, float *cache)
{
    if (!p->probe || !p->f->n_rec)
        return 0;
    return ds_forward_host(p->f) ? show_host_cache(p, stage, cache)
                                 : show_device_cache(p, stage, cache);
}

/* ---- what a write should have left alone ------------------------------------------------------ */

/* A kernel that is not the built-in one may write a row right and another one besides. Later rows would
 * then differ although every row that was shown is equal, and attention would be blamed. */

int ds_forward_watch_cache(struct ds_forward *f, struct ds_error *err)
{
    if (ds_site_map_at(f->map, DS_ST_KV_KEPT_K, 0, 0) == DS_NO_SITE)
        return 0;
    size_t there = (size_t)f->cache.pages * (size_t)f->cache.page_size;
    f->before = ds_alloc_aligned(there, (size_t)f->kv_dim * sizeof *f->before,
                                 "cache rows before a write", err);
    f->written = f->before ? ds_calloc(there, sizeof *f->written, "cache rows written", err) : NULL;
    int32_t rows =
        f->config.max_rows > f->config.most_kept ? f->config.max_rows : f->config.most_kept;
    f->changed =
        f->written ? ds_calloc((size_t)rows, sizeof *f->changed, "cache rows changed", err) : NULL;
    return f->changed ? 0 : -1;
}

static int64_t row_at(const struct ds_forward *f, const struct ds_sequence *s, int32_t slot)
{
    return (int64_t)s->pages[slot / f->cache.page_size] * f->cache.page_size +
           slot % f->cache.page_size;
}

static int is_recorded(const struct ds_forward *f, const struct ds_sequence *s)
{
    for (uint32_t k = 0; k < f->n_rec; k++)
        if (f->rec[k].slot >= s->q_first && f->rec[k].slot < s->q_first + s->q_len)
            return 1;
    return 0;
}

/* A layer's cache as the host reads it: itself, or a copy of what stands on the device. */
static float *on_host(struct ds_pass *p, float *cache)
{
    struct ds_forward *f = p->f;
    const size_t n = (size_t)(f->cache.pages * f->cache.page_size * f->kv_dim);
    if (ds_forward_host(f))
        return cache;
    if (!f->mirror && !(f->mirror = ds_alloc(n * sizeof *cache, "cache rows of a device", p->err)))
        return NULL;
    return ds_desk_bring(f, f->mirror, cache, n, p->err) == 0 ? f->mirror : NULL;
}

/* Copies what recorded requests have in the cache, except where this call writes. */
static void keep_others(struct ds_forward *f, const float *cache)
{
    size_t width = (size_t)f->kv_dim;
    for (int32_t i = 0; i < f->n_seqs; i++) {
        const struct ds_sequence *s = &f->seqs[i];
        for (int32_t slot = 0; is_recorded(f, s) && slot < s->kv_len - s->q_len; slot++) {
            size_t row = (size_t)row_at(f, s, slot);
            memcpy(f->before + row * width, cache + row * width, width * sizeof *cache);
        }
    }
}

/* How many of them the write changed, for every row of the call: of those before the row. */
static void count_others(struct ds_forward *f, const float *cache)
{
    size_t width = (size_t)f->kv_dim;
    memset(f->changed, 0, (size_t)f->rows * sizeof *f->changed);
    for (int32_t r = 0; r < f->rows; r++)
        f->written[f->cache_row[r]] = 1;
    for (int32_t i = 0; i < f->n_seqs; i++) {
        const struct ds_sequence *s = &f->seqs[i];
        int32_t changed = 0;
        for (int32_t slot = 0; is_recorded(f, s) && slot < s->kv_len - s->q_len; slot++) {
            size_t row = (size_t)row_at(f, s, slot);
            changed += !f->written[row] && memcmp(f->before + row * width, cache + row * width,
                                                  width * sizeof *cache) != 0;
        }
        for (int32_t r = s->q_first; r < s->q_first + s->q_len; r++)
            f->changed[r] = changed;
    }
}

/* A healing probe says that none was changed: they are put back. */
static int restore_others(struct ds_pass *p, float *cache)
{
    struct ds_forward *f = p->f;
    size_t width = (size_t)f->kv_dim;
    for (int32_t i = 0; i < f->n_seqs; i++) {
        const struct ds_sequence *s = &f->seqs[i];
        for (int32_t slot = 0; is_recorded(f, s) && slot < s->kv_len - s->q_len; slot++) {
            size_t row = (size_t)row_at(f, s, slot);
            if (!f->written[row] &&
                ds_desk_put(f, ds_forward_behind(f, cache, (int64_t)(row * width)),
                            f->before + row * width, width, p->err) != 0)
                return -1;
        }
    }
    return 0;
}

int ds_pass_show_kept(struct ds_pass *p, int stage, int32_t rows)
{
    if (!p->f->changed)
        return 0;
    memset(p->f->changed, 0, (size_t)rows * sizeof *p->f->changed);
    return ds_pass_show_host(p, stage, p->f->changed, sizeof *p->f->changed);
}

static int show_others(struct ds_pass *p, int written, float *cache)
{
    struct ds_forward *f = p->f;
    int stage = written == DS_ST_KV_WRITE_K ? DS_ST_KV_KEPT_K : DS_ST_KV_KEPT_V, rc = 0;
    int64_t found = 0, wanted = 0;
    const float *there = on_host(p, cache);
    if (!there)
        return -1;
    count_others(f, there);
    for (uint32_t k = 0; k < f->n_rec; k++)
        found += f->changed[f->rec[k].slot];
    f->launch[stage] = f->launch[written];
    f->launch_known[stage] = 1;
    rc = ds_pass_show_host(p, stage, f->changed, sizeof *f->changed);
    for (uint32_t k = 0; k < f->n_rec; k++)
        wanted += f->changed[f->rec[k].slot];
    if (rc == 0 && ds_probe_heals(p->probe) && wanted != found) {
        if (wanted == 0)
            rc = restore_others(p, cache);
        else
            rc = ds_fail(p->err,
                         "layer %d: the reference's cache was overwritten, this one's was not",
                         (int)p->layer);
    }
    for (int32_t r = 0; r < f->rows; r++)
        f->written[f->cache_row[r]] = 0;
    return rc;
}

int ds_pass_cache_write(struct ds_pass *p, int stage, const float *x, float *cache)
{
    struct ds_forward *f = p->f;
    struct ds_cache_args a = {.rows = f->rows,
                              .width = f->kv_dim,
                              .x = x,
                              .ldx = f->kv_dim,
                              .cache = cache,
                              .page_size = f->cache.page_size,
                              .pages = f->cache.pages,
                              .sequences = f->seqs,
                              .n_sequences = f->n_seqs,
                              .device_sequences = f->at.sequences,
                              .head_dim = f->m->hp.head_dim,
                              .stored = f->at.stored};
    int watched = f->before && p->probe && f->n_rec;
    if (watched) {
        const float *there = on_host(p, cache);
        if (!there)
            return -1;
        keep_others(f, there);
    }
    if (ds_pass_launch(p, stage, &a, NULL, 0) != 0 || ds_pass_show_cache(p, stage, cache) != 0)
        return -1;
    return watched ? show_others(p, stage, cache) : 0;
}
