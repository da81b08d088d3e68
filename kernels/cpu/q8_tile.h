/* q8_tile.h: the inner code of matmul/q8: some rows times a panel of sixteen columns, and the
 * quantiser of a full block; compiled for plain x86-64 and for AVX2. Order and rounding points are
 * those of matmul_q8.c, the same in both: integer sums are exact in any order, and every operation
 * on f32 is one IEEE operation of one column. Private to kernels/. */
#ifndef DS_KERNELS_Q8_TILE_H
#define DS_KERNELS_Q8_TILE_H

#include <stdint.h>

enum { DS_Q8_BLOCK = 32, DS_Q8_PANEL = 16, DS_Q8_MOST_ROWS = 4 };

struct ds_q8_rows {
    const int16_t *q[DS_Q8_MOST_ROWS]; /* [block][32] of each row */
    const float *d[DS_Q8_MOST_ROWS];   /* [block] */
    int n;
};

struct ds_q8_code {
    int tile_rows; /* most rows of a call of tile */
    /* s[row][column] = the sums of a panel: w [block][pair of k][16 columns][2], scale
     * [block][16]. */
    void (*tile)(const struct ds_q8_rows *x, const int8_t *w, const float *scale, int64_t blocks,
                 float s[DS_Q8_MOST_ROWS][DS_Q8_PANEL]);
    /* 32 values: the integers, and d as the result. */
    float (*quantise)(const float *v, int16_t *q);
};

extern const struct ds_q8_code ds_q8_plain, ds_q8_avx2;

/* Of n <= 32 values, in plain C; q[n..31] = 0. */
float ds_q8_quantise(const float *v, int64_t n, int16_t *q);

#endif
