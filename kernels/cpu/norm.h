/* norm.h: what the variants of rmsnorm that follow `rows` share. Private to kernels/cpu. */
#ifndef DS_KERNELS_NORM_H
#define DS_KERNELS_NORM_H

#include "kernels/cpu/cpu.h"

/* The sum of squares of `rows`: 4 interleaved sums p[j] = p[j] + x*x, products rounded, then
 * (p0 + p1) + (p2 + p3). */
float ds_norm_sum4(const float *x, int64_t n);
/* 1 / sqrtf(sum / width + eps) */
float ds_norm_inverse(const struct ds_rmsnorm_args *a, float sum);
/* y = (x * inverse) * weight for one row whose squares add up to sum. */
void ds_norm_scale(const struct ds_rmsnorm_args *a, int64_t row, float sum);
/* The whole of `rows` for rows begin..end-1 (a ds_cpu_part_fn). */
void ds_norm_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                  int64_t end);

#endif
