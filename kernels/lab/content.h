/* content.h: the values of the lab's rows: a function of (seed, stream, sequence, slot, content) and
 * of the column. Integer arithmetic only, so equal on every machine. Knows no op. */
#ifndef DS_LAB_CONTENT_H
#define DS_LAB_CONTENT_H

#include <stdint.h>

/* Streams: one for each array of a call (x, up, q, k, v, ...), so that they do not repeat each
 * other. */
void ds_content_row(float *row, int64_t n, uint64_t seed, int stream, int32_t sequence,
                    int32_t slot, int content);
/* Weights and tables: -1..1 like PLAIN. */
void ds_content_fill(float *values, int64_t n, uint64_t seed, int stream);
/* A well mixed 64-bit number of (seed, index). */
uint64_t ds_content_hash(uint64_t seed, uint64_t index);

#endif
