/* kv_cache.c: see kv_cache.h. Owns the memory and the page table; must not know calls, kernels or
 * probes. */
#include "engine/kv_cache.h"

#include "base/mem.h"
#include "engine/lazy.h"

#include <stdlib.h>
#include <string.h>

/* The number of pages and of cache rows in all layers. Rows of one layer fit an int32_t; overflow
 * is found. */
static int size_up(struct ds_kv_cache *c, size_t *rows, struct ds_error *err)
{
    c->pages_each = (int32_t)(((int64_t)c->capacity + c->page_size - 1) / c->page_size);
    c->pages = (int64_t)c->pages_each * c->n_requests;
    if (c->pages > INT32_MAX / c->page_size)
        return ds_fail(err, "kv cache: %d requests of %d slots in pages of %d: more than %d slots",
                       (int)c->n_requests, (int)c->capacity, (int)c->page_size, INT32_MAX);
    *rows = (size_t)(c->pages * c->page_size) * (size_t)c->n_layers;
    return 0;
}

int ds_kv_cache_init(struct ds_kv_cache *c, int32_t n_layers, int32_t n_requests, int32_t capacity,
                     int32_t page_size, int64_t width, struct ds_error *err)
{
    memset(c, 0, sizeof *c);
    if (n_layers < 1 || width < 1)
        return ds_fail(err, "kv cache: %d layers of width %lld", (int)n_layers, (long long)width);
    if (n_requests < 1 || capacity < 1 || page_size < 0)
        return ds_fail(err,
                       "kv cache: %d requests, capacity %d, page size %d: each must be positive "
                       "(page size 0 = one page)",
                       (int)n_requests, (int)capacity, (int)page_size);
    c->n_layers = n_layers;
    c->n_requests = n_requests;
    c->capacity = capacity;
    c->page_size = page_size ? page_size : capacity;
    c->width = width;
    size_t rows = 0;
    if (size_up(c, &rows, err) != 0)
        return -1;
    c->k = ds_lazy_floats(rows, width, &c->memory[0], "kv cache (k)", err);
    c->v = c->k ? ds_lazy_floats(rows, width, &c->memory[1], "kv cache (v)", err) : NULL;
    c->table =
        c->v ? ds_calloc((size_t)c->pages, sizeof *c->table, "kv cache page table", err) : NULL;
    c->used =
        c->table ? ds_calloc((size_t)n_requests, sizeof *c->used, "kv cache lengths", err) : NULL;
    c->pads =
        c->used ? ds_calloc((size_t)n_requests, sizeof *c->pads, "kv cache padding", err) : NULL;
    if (!c->pads) {
        ds_kv_cache_free(c);
        return -1;
    }
    for (int32_t r = 0; r < n_requests; r++)
        for (int32_t p = 0; p < c->pages_each; p++)
            c->table[(int64_t)r * c->pages_each + p] = (int32_t)((int64_t)p * n_requests + r);
    return 0;
}

void ds_kv_cache_free(struct ds_kv_cache *c)
{
    free(c->memory[0]);
    free(c->memory[1]);
    free(c->table);
    free(c->used);
    free(c->pads);
    memset(c, 0, sizeof *c);
}

void ds_kv_cache_reset(struct ds_kv_cache *c, const float *fill)
{
    memset(c->used, 0, (size_t)c->n_requests * sizeof *c->used);
    memset(c->pads, 0, (size_t)c->n_requests * sizeof *c->pads);
    if (!fill)
        return;
    size_t n = (size_t)(c->n_layers * c->pages * c->page_size * c->width);
    for (size_t i = 0; i < n; i++)
        memcpy(&c->k[i], fill, sizeof *fill); /* by bytes: a float move may quiet or change a NaN */
    memcpy(c->v, c->k, n * sizeof *c->v);
}

float *ds_kv_cache_layer(const struct ds_kv_cache *c, float *base, int32_t layer)
{
    return base + (int64_t)layer * c->pages * c->page_size * c->width;
}

const int32_t *ds_kv_cache_pages(const struct ds_kv_cache *c, int32_t request)
{
    return c->table + (int64_t)request * c->pages_each;
}

int32_t ds_kv_cache_slot_in(const struct ds_kv_cache *c, int32_t request, int64_t row)
{
    int64_t page = row / c->page_size;
    int32_t owner = (int32_t)(page % c->n_requests), number = (int32_t)(page / c->n_requests);
    return owner == request ? number * c->page_size + (int32_t)(row % c->page_size) : -1 - owner;
}

int64_t ds_kv_cache_row(const struct ds_kv_cache *c, int32_t request, int32_t slot)
{
    return (int64_t)ds_kv_cache_pages(c, request)[slot / c->page_size] * c->page_size +
           slot % c->page_size;
}
