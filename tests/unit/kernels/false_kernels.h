/* false_kernels.h: kernels built to break one property each, for test_check.c. Every fault follows
 * from what the kernel is given, never from chance. */
#ifndef DS_TEST_FALSE_KERNELS_H
#define DS_TEST_FALSE_KERNELS_H

#include "tests/unit/testing.h"

#include "kernels/driftscope_kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef int (*launch_fn)(const void *, const struct ds_exec *, char *, size_t);

/* ---- matmul ------------------------------------------------------------------------------------------ */

static inline float dot_up(const float *x, const float *w, int64_t from, int64_t to)
{
    float s = 0.0f;
    for (int64_t k = from; k < to; k++)
        s += x[k] * w[k];
    return s;
}

static inline float dot_down(const float *x, const float *w, int64_t n)
{
    float s = 0.0f;
    for (int64_t k = n; k-- > 0;)
        s += x[k] * w[k];
    return s;
}

/* One output; the kernels below differ in this alone. */
typedef float (*cell_fn)(const struct ds_matmul_args *a, const struct ds_exec *e, int64_t r,
                         const float *x, const float *w);

static inline int each_cell(const struct ds_matmul_args *a, const struct ds_exec *e, cell_fn fn)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            float s = fn(a, e, r, a->x + r * a->ldx, a->w.data + j * a->k);
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
    return 0;
}

#define MATMUL(name, expression)                                                                   \
    static float name##_cell(const struct ds_matmul_args *a, const struct ds_exec *e, int64_t r,   \
                             const float *x, const float *w)                                       \
    {                                                                                              \
        (void)e, (void)r;                                                                          \
        return expression;                                                                         \
    }                                                                                              \
    static int name(const void *args, const struct ds_exec *e, char *why, size_t size)             \
    {                                                                                              \
        (void)why, (void)size;                                                                     \
        return each_cell(args, e, name##_cell);                                                    \
    }

/* A sum in so many parts, added in ascending order from part `first` on, around the ring. */
static inline float in_parts(const float *x, const float *w, int64_t k, int64_t parts,
                             int64_t first)
{
    float s = 0.0f;
    for (int64_t i = 0; i < parts; i++) {
        int64_t p = (i + first) % parts;
        s += dot_up(x, w, k * p / parts, k * (p + 1) / parts);
    }
    return s;
}

MATMUL(honest, dot_up(x, w, 0, a->k))
MATMUL(by_rows, a->rows < 4 ? dot_up(x, w, 0, a->k) : dot_down(x, w, a->k))
MATMUL(by_position, r % 3 == 2 ? dot_down(x, w, a->k) : dot_up(x, w, 0, a->k))
MATMUL(by_neighbour, dot_up(x, w, 0, a->k) + (r + 1 < a->rows ? 0.0f * x[a->ldx] : 0.0f))
MATMUL(by_threads, in_parts(x, w, a->k, e->threads, 0))
MATMUL(by_arrival, in_parts(x, w, a->k, 3, (int64_t)(e->seed % 3)))
MATMUL(by_address, (uintptr_t)a->x / 4 % 4 ? dot_down(x, w, a->k) : dot_up(x, w, 0, a->k))
MATMUL(without_tail, dot_up(x, w, 0, a->k / 4 * 4))
MATMUL(half_precise, (float)(_Float16)dot_up(x, w, 0, a->k))
/* Row 1 changes its order earlier than row 0 does, row 2 on other threads alone, and row 5 by its place. */
MATMUL(row_1_from_3, a->rows >= (r == 1 ? 3 : 9) ? dot_down(x, w, a->k) : dot_up(x, w, 0, a->k))
MATMUL(row_2_by_threads, r == 2 && e->threads == 2 ? dot_down(x, w, a->k) : dot_up(x, w, 0, a->k))
MATMUL(place_5, r == 5 || r == 40 ? dot_down(x, w, a->k) : dot_up(x, w, 0, a->k))
MATMUL(at_100_rows, a->rows == 100 ? dot_down(x, w, a->k) : dot_up(x, w, 0, a->k))

/* Two that are right with every ordinary weight: they lose 0 * NaN, and subnormal weights. */
static inline float dot_of_others(const float *x, const float *w, int64_t n)
{
    float s = 0.0f;
    for (int64_t k = 0; k < n; k++)
        if (x[k] != 0)
            s += x[k] * w[k];
    return s;
}
MATMUL(skips_zeros, dot_of_others(x, w, a->k))

static inline float dot_of_normals(const float *x, const float *w, int64_t n)
{
    float s = 0.0f;
    for (int64_t k = 0; k < n; k++)
        s += x[k] * (fabsf(w[k]) < 0x1p-126f ? copysignf(0.0f, w[k]) : w[k]);
    return s;
}
MATMUL(flushes_weights, dot_of_normals(x, w, a->k))

/* Another order from 333 rows to 349, and it says that something changes there. */
MATMUL(far_away, a->rows >= 333 && a->rows < 350 ? dot_down(x, w, a->k) : dot_up(x, w, 0, a->k))
static int far_away_describe(const void *args, const struct ds_exec *e, struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = args;
    *out = (struct ds_launch_info){.tile_rows = a->rows >= 333 && a->rows < 350 ? 8 : 4,
                                   .threads = e->threads};
    return 0;
}

/* Four row counts out of 512, and 40 rows on more than one thread. */
static inline int in_between(const struct ds_matmul_args *a)
{
    return a->rows >= 203 && a->rows <= 206;
}
MATMUL(briefly, in_between(a) ? dot_down(x, w, a->k) : dot_up(x, w, 0, a->k))
static int briefly_describe(const void *args, const struct ds_exec *e, struct ds_launch_info *out)
{
    (void)e;
    *out = (struct ds_launch_info){.split = in_between(args) ? 2 : 1};
    return 0;
}
static inline int at_40_rows(const struct ds_matmul_args *a, int threads)
{
    return a->rows == 40 && threads > 1;
}
MATMUL(by_threads_at_40, at_40_rows(a, e->threads) ? dot_down(x, w, a->k) : dot_up(x, w, 0, a->k))
static int at_40_describe(const void *args, const struct ds_exec *e, struct ds_launch_info *out)
{
    *out = (struct ds_launch_info){.split = at_40_rows(args, e->threads) ? 2 : 1};
    return 0;
}

/* Of a kernel whose order changes at 4 rows: one says so, one says nothing of it; and one that says so
 * where nothing changes. */
static int by_rows_describe(const void *args, const struct ds_exec *e, struct ds_launch_info *out)
{
    (void)e;
    *out =
        (struct ds_launch_info){.tile_k = ((const struct ds_matmul_args *)args)->rows < 4 ? 8 : 16};
    return 0;
}
static int one_choice(const void *args, const struct ds_exec *e, struct ds_launch_info *out)
{
    (void)args, (void)e;
    *out = (struct ds_launch_info){.tile_k = 8, .algo = "plain"};
    return 0;
}
static int name_alone(const void *args, const struct ds_exec *e, struct ds_launch_info *out)
{
    (void)args, (void)e;
    *out = (struct ds_launch_info){.algo = "plain"};
    return 0;
}

static inline float minus_if_zero(float s)
{
    return s == 0 ? -0.0f : s;
}
MATMUL(gives_minus_zero, minus_if_zero(dot_up(x, w, 0, a->k)))

/* Another order where the call before had more rows. */
static int by_history(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    static int64_t before;
    const struct ds_matmul_args *a = args;
    const int down = before > a->rows;
    before = a->rows;
    for (int64_t r = 0; r < a->rows && down; r++)
        for (int64_t j = 0; j < a->n; j++)
            a->y[r * a->ldy + j] = dot_down(a->x + r * a->ldx, a->w.data + j * a->k, a->k) +
                                   (a->bias ? a->bias[j] : -0.0f);
    return down ? 0 : honest(args, e, why, size);
}

/* Takes x at an address that it knows for what lay there before. */
static int keeps_results(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    enum { MOST = 1 << 16 };
    static float kept[MOST];
    static const float *x;
    static int64_t rows, n;
    const struct ds_matmul_args *a = args;
    const int known = a->x == x && a->rows == rows && a->n == n;
    if (a->rows * a->n > MOST)
        return honest(args, e, why, size);
    if (!known)
        honest(args, e, why, size);
    for (int64_t r = 0; r < a->rows; r++)
        memcpy(known ? a->y + r * a->ldy : kept + r * a->n,
               known ? kept + r * a->n : a->y + r * a->ldy, (size_t)a->n * sizeof *kept);
    x = a->x, rows = a->rows, n = a->n;
    return 0;
}

/* Keeps the first weights of every width that it sees. */
static int keeps_weights(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    enum { MOST = 1024 };
    static float kept[MOST][MOST];
    static int known[MOST];
    const struct ds_rmsnorm_args *a = args;
    (void)e, (void)why, (void)size;
    if (a->width < MOST && !known[a->width]++)
        memcpy(kept[a->width], a->weight, (size_t)a->width * sizeof **kept);
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx, *w = a->width < MOST ? kept[a->width] : a->weight;
        const float inv = 1.0f / sqrtf(dot_up(x, x, 0, a->width) / (float)a->width + a->eps);
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = x[i] * inv * w[i];
    }
    return 0;
}

/* ---- add ---------------------------------------------------------------------------------------------- */

#define ADD(name, element, before, after)                                                          \
    static int name(const void *args, const struct ds_exec *e, char *why, size_t size)             \
    {                                                                                              \
        const struct ds_add_args *a = args;                                                        \
        (void)e, (void)why, (void)size;                                                            \
        before;                                                                                    \
        for (int64_t r = 0; r < a->rows; r++)                                                      \
            for (int64_t i = 0; i < a->width; i++) {                                               \
                float x = a->a[r * a->lda + i], y = a->b[r * a->ldb + i];                          \
                (void)x, (void)y;                                                                  \
                a->y[r * a->ldy + i] = element;                                                    \
            }                                                                                      \
        after;                                                                                     \
        return 0;                                                                                  \
    }

static inline volatile const float *end_of_a(const struct ds_add_args *a)
{
    return a->a + (a->rows - 1) * a->lda + a->width;
}

static inline float *end_of_y(const struct ds_add_args *a)
{
    return a->y + (a->rows - 1) * a->ldy + a->width;
}

static inline void flush_to_zero(void)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8000u);
#elif defined(__aarch64__)
    __builtin_aarch64_set_fpcr(__builtin_aarch64_get_fpcr() | 1u << 24);
#endif
}

static inline float without_subnormals(float x)
{
    return fabsf(x) < 0x1p-126f ? 0.0f : x;
}

/* The loop leaves one out when rows are odd. */
static inline int64_t one_less(const struct ds_add_args *a, int64_t r)
{
    return a->rows % 2 && r == a->rows - 1 ? a->width - 1 : a->width;
}

ADD(reads_beyond, x + y, , (void)*end_of_a(a))
ADD(reads_before, x + y, (void)*(volatile const float *)(a->b - 1), )
ADD(writes_beyond, x + y, , *end_of_y(a) = 1.0f)
ADD(writes_input, x + y, , *(float *)(uintptr_t)a->a = 1.0f)
ADD(uses_padding, x + y + (a->rows > 1 && a->lda > a->width ? 0.0f * a->a[a->width] : 0.0f), , )
ADD(uses_scratch, x + y + 0.0f * ((const float *)e->scratch)[3], , )
ADD(changes_control, x + y, , flush_to_zero())
ADD(flushes, without_subnormals(x + y), , )
ADD(subtracts, x - y, , )
ADD(loses_minus_zero, x + y + 0.0f, , )
ADD(crashes, x + y, , if (a->rows == 3) abort())
ADD(exits, x + y, , if (a->rows == 3) exit(0))
ADD(hangs, x + y, , while (a->rows == 512) __asm__ volatile(""))
ADD(
    refuses, x + y, if (a->rows > 16) {
        memcpy(why, "too many rows", 14);
        return -1;
    }, )

static int leaves_one(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    const struct ds_add_args *a = args;
    (void)e, (void)why, (void)size;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < one_less(a, r); i++)
            a->y[r * a->ldy + i] = a->a[r * a->lda + i] + a->b[r * a->ldb + i];
    return 0;
}

static size_t some_scratch(const void *args, int threads)
{
    (void)args, (void)threads;
    return 64;
}

/* ---- embed -------------------------------------------------------------------------------------------- */

/* What lies behind a list of few ids is inside the same page, unless the list ends with it. */
static int reads_beyond_ids(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    const struct ds_embed_args *a = args;
    (void)e, (void)why, (void)size;
    (void)*(volatile const int32_t *)(a->ids + a->rows);
    for (int64_t r = 0; r < a->rows; r++)
        memcpy(a->y + r * a->ldy, a->table + a->ids[r] * a->width, (size_t)a->width * sizeof *a->y);
    return 0;
}

/* ---- cache ---------------------------------------------------------------------------------------------- */

/* Ignores the table of pages. */
static int ignores_pages(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    const struct ds_cache_args *a = args;
    (void)e, (void)why, (void)size;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t j = 0; j < s->q_len; j++)
            memcpy(a->cache + (s->pages[0] * a->page_size + s->kv_len - s->q_len + j) * a->width,
                   a->x + (s->q_first + j) * a->ldx, (size_t)a->width * 4);
    }
    return 0;
}

/* ---- custom ------------------------------------------------------------------------------------------------ */

/* y = 2 x + y, and its bf16 copy; shared holds one number for all rows. */
static int declare_axpy(int64_t rows, int64_t width, struct ds_custom_args *out, char *why,
                        size_t size)
{
    const int64_t n = width ? width : 40;
    (void)why, (void)size;
    out->n_tensors = 4;
    out->n_scalars = 1;
    out->scalar[0] = 2.0;
    out->tensor[0] = (struct ds_custom_tensor){
        .name = "x", .role = DS_TENSOR_IN, .per_row = 1, .rows = rows, .cols = n, .ld = n};
    out->tensor[1] = out->tensor[0];
    out->tensor[1].name = "y";
    out->tensor[1].role = DS_TENSOR_IN_OUT;
    out->tensor[2] = out->tensor[0];
    out->tensor[2].name = "copy";
    out->tensor[2].role = DS_TENSOR_OUT;
    out->tensor[2].dtype = DS_ELEMENT_BF16;
    out->tensor[2].ld = n + 3;
    out->tensor[3] = (struct ds_custom_tensor){
        .name = "shared", .role = DS_TENSOR_IN, .rows = 1, .cols = 1, .ld = 1};
    return 0;
}

/* `columns` of the copy are written. */
static inline int axpy(const struct ds_custom_args *a, int64_t columns, float extra)
{
    const struct ds_custom_tensor *x = &a->tensor[0], *y = &a->tensor[1], *copy = &a->tensor[2];
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < x->cols; i++) {
            float *to = (float *)y->data + r * y->ld + i;
            *to = (float)a->scalar[0] * ((const float *)x->data)[r * x->ld + i] + *to +
                  0.0f * *(const float *)a->tensor[3].data + extra;
            if (i < columns)
                ((uint16_t *)copy->data)[r * copy->ld + i] = ds_bf16_round(*to);
        }
    return 0;
}

static int axpy_honest(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    const struct ds_custom_args *a = args;
    (void)e, (void)why, (void)size;
    return axpy(a, a->tensor[0].cols, 0.0f);
}

static int axpy_by_rows(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    const struct ds_custom_args *a = args;
    (void)e, (void)why, (void)size;
    return axpy(a, a->tensor[0].cols, a->rows > 6 ? 1.0f : 0.0f);
}

static int axpy_leaves_one(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    const struct ds_custom_args *a = args;
    (void)e, (void)why, (void)size;
    return axpy(a, a->tensor[0].cols - 1, 0.0f);
}

#endif
