/* round.h: whole buffers between f32 and the 16-bit storage formats, with the bits of base/dtype.h
 * but several at a time. */
#ifndef DS_ROUND_H
#define DS_ROUND_H

#include <stddef.h>
#include <stdint.h>

/* dst[i] = src[i] rounded to DS_BF16 or DS_F16, as ds_round_row does. */
void ds_round_many(int dtype, uint16_t *dst, const float *src, size_t n);
/* dst[i] = src[i] exactly, as ds_widen_row does (a signalling f16 NaN may become quiet). */
void ds_widen_many(int dtype, float *dst, const uint16_t *src, size_t n);

#endif
