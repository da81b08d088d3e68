/* matmul_parts.c: the sum of one part of K for a group of columns, by the pinned inner code, and the
 * adding of parts. Order inside a part: K in blocks of 256 counted from the part's first term, one
 * chain s = fmaf(x, w, s) a block in ascending k from +0, block sums added in ascending order, the
 * first assigned. Which parts there are and in which order they are added is for the variants. */
#include "kernels/cpu/matmul_parts.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/file_weights.h"
#include "kernels/cpu/pinned.h"

int ds_parts_prepare(const struct ds_weight_view *w, void **prepared, size_t *bytes_out, char *why,
                     size_t why_size)
{
    struct ds_weight_view plain = {.data = w->data, .n = w->n, .k = w->k};
    if (!w->data)
        return ds_cpu_refuse(why, why_size, "this variant needs the weights as f32");
    return ds_matmul_pinned.prepare(&plain, prepared, bytes_out, why, why_size);
}

int ds_packed_check(const struct ds_matmul_args *a, char *why, size_t why_size)
{
    if (a->w.n != a->n || a->w.k != a->k)
        return ds_cpu_refuse(why, why_size, "weights are %lld x %lld, the call says %lld x %lld",
                             (long long)a->w.n, (long long)a->w.k, (long long)a->n,
                             (long long)a->k);
    if (!a->prepared)
        return ds_cpu_refuse(why, why_size, "weights were not packed (prepare was not called)");
    return 0;
}

int ds_parts_check(const struct ds_matmul_args *a, char *why, size_t why_size)
{
    if (ds_packed_check(a, why, why_size) != 0)
        return -1;
    if (ds_file_weights_used(&a->w))
        return ds_cpu_refuse(why, why_size, "this variant needs the weights as f32");
    return 0;
}

enum { ROWS_AT_ONCE = 12 };
_Static_assert((int)ROWS_AT_ONCE < (int)DS_PINNED_FEW_ROWS, "more rows would be copied");

/* One panel at a time: as a matmul of its own, so that a part's columns need not lie as far apart
 * as the whole K says. */
void ds_parts_sum(const struct ds_matmul_args *a, int64_t row0, int64_t row1, int64_t g, int64_t k0,
                  int64_t k1, float *out, int64_t ldo)
{
    const int64_t width = ds_parts_width(a, g);
    struct ds_matmul_args part = {.rows = row1 - row0,
                                  .k = k1 - k0,
                                  .x = a->x + row0 * a->ldx + k0,
                                  .ldx = a->ldx,
                                  .ldy = ldo};
    for (int64_t c = 0; c < width; c += DS_PINNED_LANES) {
        const int64_t panel = (g * DS_PARTS_COLUMNS + c) / DS_PINNED_LANES;
        part.n = width - c < DS_PINNED_LANES ? width - c : DS_PINNED_LANES;
        part.w = (struct ds_weight_view){.n = part.n, .k = part.k};
        part.prepared = (const float *)a->prepared + (panel * a->k + k0) * DS_PINNED_LANES;
        part.y = out + c;
        /* Few rows at a time: such a call copies nothing and needs no work memory. */
        for (int64_t r = 0; r < part.rows; r += ROWS_AT_ONCE)
            ds_pinned_code()->matmul(
                &part, r, r + ROWS_AT_ONCE < part.rows ? r + ROWS_AT_ONCE : part.rows, 0, 1, NULL);
    }
}

void ds_parts_add(float *y, int64_t ldy, const float *part, int64_t ldp, int64_t rows,
                  int64_t width)
{
    for (int64_t r = 0; r < rows; r++)
        ds_pinned_code()->add(y + r * ldy, y + r * ldy, part + r * ldp, width);
}

void ds_parts_bias(const struct ds_matmul_args *a, int64_t row0, int64_t row1, int64_t g)
{
    if (!a->bias)
        return;
    const int64_t width = ds_parts_width(a, g);
    float *y = a->y + row0 * a->ldy + g * DS_PARTS_COLUMNS;
    ds_parts_add(y, a->ldy, a->bias + g * DS_PARTS_COLUMNS, 0, row1 - row0, width);
}

int64_t ds_parts_race(const struct ds_matmul_args *a)
{
    const int64_t least = a->k < 3 ? a->k : 3, parts = a->k / 8;
    return parts > 8 ? 8 : parts > least ? parts : least > 0 ? least : 1;
}
