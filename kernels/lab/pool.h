/* pool.h: rows of content that were made once: check asks for the same rows in hundreds of calls, and
 * copying them costs a tenth of making them. Owns the copies; what a row holds is content.h's. */
#ifndef DS_LAB_POOL_H
#define DS_LAB_POOL_H

#include <stdint.h>

struct ds_pool;

/* The pool of one subject's seed; NULL: there is no memory for one, and none is needed. */
struct ds_pool *ds_pool_new(uint64_t seed);
void ds_pool_free(struct ds_pool *p);

/* n numbers as ds_content_row gives them; p may be NULL if nothing is to be kept. */
void ds_pool_row(struct ds_pool *p, uint64_t seed, float *row, int64_t n, int stream,
                 int32_t sequence, int32_t slot, int content);

#endif
