/* pinned.h: the pinned kernels' inner code, once per instruction set. Orders and rounding points:
 * kernels/PINNED.md. The tables differ in speed only; bits are equal. Private to kernels/. */
#ifndef DS_KERNELS_PINNED_H
#define DS_KERNELS_PINNED_H

#include "kernels/driftscope_kernel.h"

#include <stdint.h>

enum {
    DS_PINNED_BLOCK = 256, /* terms of K, and KV slots, in a block */
    DS_PINNED_LANES = 16,  /* columns of a weight panel; interleaved partial sums */
    DS_PINNED_ROWS = 264,  /* rows of x whose block of K a matmul keeps in L2 */
    DS_PINNED_QUERIES = 12 /* query vectors side by side in attention */
};

/* Weights packed for the pinned matmul: [ceil(n/16)][k][16], columns past n zero. */
struct ds_pinned_code {
    const char *name;
    int tile_rows, tile_panels; /* largest register tile */

    /* Rows and weight panels (16 columns each) begin..end-1 of a matmul; work:
     * ds_pinned_matmul_floats() floats, 64-byte aligned. */
    void (*matmul)(const struct ds_matmul_args *a, int64_t row0, int64_t row1, int64_t panel0,
                   int64_t panel1, float *work);
    /* The same on weights packed in their file's format (file_weights.h), of a type that
     * ds_file_layout() knows. */
    void (*matmul_file)(const struct ds_matmul_args *a, int64_t row0, int64_t row1, int64_t panel0,
                        int64_t panel1, float *work);
    void (*rmsnorm)(const struct ds_rmsnorm_args *a, int64_t row);
    void (*rope)(const struct ds_rope_args *a, int64_t row);
    /* Heads head0..head1-1 of one KV head, of rows row0..row1-1 of one sequence: at most
     * DS_PINNED_QUERIES vectors; one row only if there is a window. work:
     * ds_pinned_attention_floats() floats, 64-byte aligned. */
    void (*attention)(const struct ds_attention_args *a, const struct ds_sequence *s, int64_t row0,
                      int64_t row1, int64_t head0, int64_t head1, float *work);
    /* The same for one row in two steps: its blocks of KV in any order, then, head by head, their
     * merge. Block 0 is the first that the row sees; one that does not exist is nothing. state:
     * ds_pinned_part_floats() for every head of every block, and of one more. */
    void (*attention_part)(const struct ds_attention_args *a, const struct ds_sequence *s,
                           int64_t row, int64_t head0, int64_t head1, int64_t block, float *work,
                           float *state);
    void (*attention_join)(const struct ds_attention_args *a, const struct ds_sequence *s,
                           int64_t row, int64_t head, float *state);
    /* y[i] = silu(g[i]) * u[i] */
    void (*silu_mul)(float *y, const float *g, const float *u, int64_t n);
    void (*add)(float *y, const float *a, const float *b, int64_t n);
    /* Copies, each NaN as 7fc00000. */
    void (*copy)(float *y, const float *x, int64_t n);
    void (*exp)(float *y, const float *x, int64_t n);
    /* y may be x. */
    void (*softmax)(float *y, const float *x, int64_t n);
    void (*combine)(const struct ds_combine_args *a, int64_t row);
    void (*allreduce)(const struct ds_allreduce_args *a, int64_t row);
};

extern const struct ds_pinned_code ds_pinned_scalar, ds_pinned_avx2, ds_pinned_avx512;

/* The table in use: see ds_isa_force(). */
const struct ds_pinned_code *ds_pinned_code(void);

/* A block of K of the rows at hand; a call of few rows copies nothing and needs no work. */
enum { DS_PINNED_FEW_ROWS = 24 };
static inline int64_t ds_pinned_matmul_floats(int64_t rows)
{
    return rows < DS_PINNED_FEW_ROWS
               ? 0
               : (rows < DS_PINNED_ROWS ? rows : DS_PINNED_ROWS) * DS_PINNED_BLOCK;
}

/* For each query vector three vectors of head_dim rounded up to 16, scores and four numbers; sums. */
static inline int64_t ds_pinned_attention_floats(int64_t head_dim)
{
    return DS_PINNED_QUERIES * (3 * ((head_dim + 15) / 16 * 16) + DS_PINNED_BLOCK + 16 + 4) + 1024;
}

/* What one head keeps of one block of KV. */
static inline int64_t ds_pinned_part_floats(int64_t head_dim)
{
    return 16 + (head_dim + 15) / 16 * 16;
}

#endif
