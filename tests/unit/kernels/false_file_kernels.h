/* false_file_kernels.h: matmuls that take weights as they lie in a file, Q8_0 and no other type, each
 * wrong in one way, for test_check.c. */
#ifndef DS_TEST_FALSE_FILE_KERNELS_H
#define DS_TEST_FALSE_FILE_KERNELS_H

#include "tests/unit/kernels/false_kernels.h"

#include "base/dtype.h"

enum { Q8_TYPE = 8, Q8_BLOCK = 32, Q8_BYTES = 34 };

static inline int prepare_q8(const struct ds_weight_view *w, void **out, size_t *bytes, char *why,
                             size_t size)
{
    *out = NULL, *bytes = 0;
    if (w->data || w->file_type == Q8_TYPE)
        return 0;
    snprintf(why, size, "reads q8_0 alone");
    return -1;
}

static inline float q8_scale(const unsigned char *block)
{
    return ds_f16_value((uint16_t)(block[0] | block[1] << 8));
}

static inline float q8_scale_or_zero(const unsigned char *block)
{
    return block[1] & 0x7c ? q8_scale(block) : copysignf(0.0f, q8_scale(block));
}

/* A block's terms on s; what the kernels below differ in. */
typedef float (*block_fn)(float s, const unsigned char *block, const float *x);

static inline int each_file_cell(const struct ds_matmul_args *a, block_fn fn)
{
    const int64_t blocks = a->k / Q8_BLOCK;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const float *x = a->x + r * a->ldx;
            const unsigned char *w = a->w.file_data;
            float s = 0.0f;
            if (a->w.data)
                s = dot_up(x, a->w.data + j * a->k, 0, a->k);
            for (int64_t b = 0; b < blocks && !a->w.data; b++)
                s = fn(s, w + (j * blocks + b) * Q8_BYTES, x + b * Q8_BLOCK);
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
    return 0;
}

#define FILE_MATMUL(name, scale, number)                                                           \
    static float name##_block(float s, const unsigned char *block, const float *x)                 \
    {                                                                                              \
        for (int i = 0; i < Q8_BLOCK; i++)                                                         \
            s += x[i] * (scale(block) * (float)(number)block[2 + i]);                              \
        return s;                                                                                  \
    }                                                                                              \
    static int name(const void *args, const struct ds_exec *e, char *why, size_t size)             \
    {                                                                                              \
        (void)e, (void)why, (void)size;                                                            \
        return each_file_cell(args, name##_block);                                                 \
    }

FILE_MATMUL(files, q8_scale, int8_t)
FILE_MATMUL(files_unsigned, q8_scale, uint8_t)
FILE_MATMUL(files_lose_subnormals, q8_scale_or_zero, int8_t)

/* The scale is taken once, on the block's sum: right, and other bits. */
static float files_scaled_late_block(float s, const unsigned char *block, const float *x)
{
    float sum = 0.0f;
    for (int i = 0; i < Q8_BLOCK; i++)
        sum += x[i] * (float)(int8_t)block[2 + i];
    return s + q8_scale(block) * sum;
}

static int files_scaled_late(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    (void)e, (void)why, (void)size;
    return each_file_cell(args, files_scaled_late_block);
}

/* Looks at the byte behind the last row. */
static int files_beyond(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    const struct ds_matmul_args *a = args;
    volatile unsigned char seen = 0;
    if (!a->w.data)
        seen = ((const unsigned char *)a->w.file_data)[a->n * (a->k / Q8_BLOCK) * Q8_BYTES];
    (void)seen;
    return files(args, e, why, size);
}

#endif
