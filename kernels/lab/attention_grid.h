/* attention_grid.h: which lengths, pages and shapes the attention check tries. Pure functions; all
 * lists ascend. */
#ifndef DS_LAB_ATTENTION_GRID_H
#define DS_LAB_ATTENTION_GRID_H

#include "kernels/lab/shape.h"

#include <stdint.h>

/* The longest list below, and what may be added to it. */
enum { DS_GRID_MOST = 384 };

/* 1..64; multiples of 16 up to 1024, each with the numbers beside it; 4096; 32768. Returns how many
 * (at most DS_GRID_MOST). */
int ds_grid_kv(int32_t kv[DS_GRID_MOST]);
/* 1..16, 64, 128. */
int ds_grid_q(int32_t q[DS_GRID_MOST]);
/* Sequences in a call: 1..64. */
int ds_grid_sequences(int32_t n[DS_GRID_MOST]);
/* 1, 16, 64, 256. */
int ds_grid_pages(int32_t size[DS_GRID_MOST]);

/* Adds a length to an ascending list, unless it is there or the list is full; the new n. */
int ds_grid_insert(int32_t *list, int n, int32_t value);

/* Shapes that differ from the given one in head_dim (64, 80, 128, 192, 256) or in the group of heads
 * that share a KV head (1, 3, 4, 8, each on two KV heads: with one no wrong mapping shows). Returns
 * how many (at most DS_GRID_MOST). */
int ds_grid_shapes(const struct ds_shape *given, struct ds_shape shape[DS_GRID_MOST]);

#endif
