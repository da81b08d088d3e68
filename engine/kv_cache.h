/* kv_cache.h: the paged KV cache of all layers and requests: who owns which page, how many slots
 * are in use. Knows no kernels.
 *
 * Slot s of request r lives in cache row table[r][s / page_size] * page_size + s % page_size of
 * each layer. Pages of different requests interleave, as they do in a serving engine: a kernel that
 * ignores the table reads somebody else's keys. */
#ifndef DS_KV_CACHE_H
#define DS_KV_CACHE_H

#include "base/error.h"

#include <stdint.h>

struct ds_kv_cache {
    int32_t n_layers, n_requests, capacity, page_size;
    int32_t pages_each; /* per request */
    int64_t pages;      /* of all requests: cache rows of a layer = pages * page_size */
    int64_t width;      /* kv_heads * head_dim */
    float *k, *v; /* [n_layers][pages * page_size][width]; memory is touched only where used */
    void *memory[2];
    int32_t *table; /* [n_requests][pages_each] */
    int32_t *used;  /* [n_requests] slots in use */
    int32_t *pads;  /* [n_requests] of them left padding */
};

/* page_size 0: one page per request. All sizes are checked. -1 leaves nothing allocated. */
int ds_kv_cache_init(struct ds_kv_cache *c, int32_t n_layers, int32_t n_requests, int32_t capacity,
                     int32_t page_size, int64_t width, struct ds_error *err);
void ds_kv_cache_free(struct ds_kv_cache *c);
/* Forgets all requests. fill != NULL: every cache element gets this value. */
void ds_kv_cache_reset(struct ds_kv_cache *c, const float *fill);

/* A layer's part of c->k or c->v. */
float *ds_kv_cache_layer(const struct ds_kv_cache *c, float *base, int32_t layer);
const int32_t *ds_kv_cache_pages(const struct ds_kv_cache *c, int32_t request);
/* The other way round: the request's slot that lies in a cache row, or -1 - the request to which the
 * row belongs. */
int32_t ds_kv_cache_slot_in(const struct ds_kv_cache *c, int32_t request, int64_t row);
/* The cache row of a request's slot. */
int64_t ds_kv_cache_row(const struct ds_kv_cache *c, int32_t request, int32_t slot);

#endif
