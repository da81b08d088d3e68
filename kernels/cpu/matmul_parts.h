/* matmul_parts.h: a matmul whose K is cut into parts: what the variants that drift on purpose share.
 * Each part is summed as the pinned kernel sums a matmul of those terms alone; the variants differ
 * in where they cut and in which order they add the parts. Private to kernels/. */
#ifndef DS_KERNELS_MATMUL_PARTS_H
#define DS_KERNELS_MATMUL_PARTS_H

#include "kernels/driftscope_kernel.h"

#include <stddef.h>
#include <stdint.h>

/* A group of columns that is computed together: 4 panels of 16. */
enum { DS_PARTS_PANELS = 4, DS_PARTS_COLUMNS = 16 * DS_PARTS_PANELS };

/* prepare of matmul/pinned and of these variants: one function, so that whoever keeps packed weights can see that
 * they are alike. */
int ds_pinned_prepare(const struct ds_weight_view *w, void **prepared, size_t *bytes_out, char *why,
                      size_t why_size);
/* The same of f32 weights alone, for what is then changed. */
int ds_parts_prepare(const struct ds_weight_view *w, void **prepared, size_t *bytes_out, char *why,
                     size_t why_size);

/* Sizes agree and the weights were packed. */
int ds_packed_check(const struct ds_matmul_args *a, char *why, size_t why_size);
/* The same, from f32. */
int ds_parts_check(const struct ds_matmul_args *a, char *why, size_t why_size);

static inline int64_t ds_parts_groups(const struct ds_matmul_args *a)
{
    return (a->n + DS_PARTS_COLUMNS - 1) / DS_PARTS_COLUMNS;
}

/* Columns of group g. */
static inline int64_t ds_parts_width(const struct ds_matmul_args *a, int64_t g)
{
    int64_t left = a->n - g * DS_PARTS_COLUMNS;
    return left < DS_PARTS_COLUMNS ? left : DS_PARTS_COLUMNS;
}

/* First term of part p when K is cut into `parts` contiguous, nearly equal parts. */
static inline int64_t ds_parts_border(int64_t k, int64_t parts, int64_t p)
{
    return k / parts * p + k % parts * p / parts;
}

/* Operations of the whole call, in the unit of ds_cpu_split. */
static inline double ds_parts_work(const struct ds_matmul_args *a)
{
    return 0.25 * (double)a->rows * (double)a->n * (double)a->k;
}

/* out[r - row0][c] = sum over k0 <= k < k1 of x[r][k] * w[64 g + c][k], for rows row0..row1-1 and
 * the columns of group g: blocks of 256 terms counted from k0, one fma chain a block in ascending k
 * from +0, block sums added in ascending order, NaN as 7fc00000. No bias. */
void ds_parts_sum(const struct ds_matmul_args *a, int64_t row0, int64_t row1, int64_t g, int64_t k0,
                  int64_t k1, float *out, int64_t ldo);

/* y = y + part on `rows` rows of `width` columns; NaN as 7fc00000. */
void ds_parts_add(float *y, int64_t ldy, const float *part, int64_t ldp, int64_t rows,
                  int64_t width);

/* y = y + bias for the columns of group g, if there is a bias. y is the call's output at row0. */
void ds_parts_bias(const struct ds_matmul_args *a, int64_t row0, int64_t row1, int64_t g);

/* Parts of atomic and ticket: 8, or fewer where a part would have less than 8 terms, but at least
 * three addends an output (two always commute) where there are three terms. From K alone. */
int64_t ds_parts_race(const struct ds_matmul_args *a);

/* Parts of split-k for a call: see matmul_split_k.c. */
int64_t ds_split_k_parts(const struct ds_matmul_args *a, int threads);
/* Launch and describe of split-k; `bf16`: every part's sum is rounded to bf16 before it is added,
 * unless there is but one part. */
size_t ds_split_k_scratch(const void *args, int threads);
int ds_split_k_launch(const struct ds_matmul_args *a, const struct ds_exec *exec, int bf16,
                      char *why, size_t why_size);
int ds_split_k_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out);

#endif
