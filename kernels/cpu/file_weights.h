/* file_weights.h: weights as they lie in a GGUF file, and the same numbers packed for the pinned
 * matmul: the layout of both, one way from the first to the second. Knows no file, no sum.
 *
 * Source of the block layouts: the GGUF specification and ggml's block structs (block_q4_0,
 * block_q4_1, block_q8_0). A row is cut into blocks of consecutive k; d and m are f16,
 * little-endian:
 *
 *   F32, F16, BF16   one number
 *   Q8_0             d, 32 x i8 q                        value = d * q
 *   Q4_0             d, 16 bytes: low nibbles of k 0..15, high nibbles of k 16..31
 *                                                        value = d * (q - 8)
 *   Q4_1             d, m, 16 bytes as in Q4_0           value = d * q + m
 *
 * as f32. Products are exact (11 bits times 8), so that the one sum of Q4_1 is the only rounding.
 *
 * Packed: panels of 16 columns, [ceil(n/16)] of them; in a panel groups of consecutive k; columns
 * past n are zero bytes. A word is 32 bits, little-endian, and belongs to one column, so that
 * sixteen lanes take sixteen columns' words in one load and find the next k by a shift:
 *
 *   F32    group of 1 k:    f32[16]
 *   F16    group of 1 k:    f16[16]
 *   BF16   group of 2 k:    word[16]: the first k in the low half, the second in the high half
 *   Q8_0   group of 32 k:   d[16], word[8][16]: byte i of word j is q of k = 4 j + i
 *   Q4_0   group of 32 k:   d[16], word[4][16]: nibble i of word j is q - 8 of k = 8 j + i, two's
 *                           complement
 *   Q4_1   group of 32 k:   d[16], m[16], word[4][16]: nibble i of word j is q of k = 8 j + i
 *
 * So packed weights take the file's size (BF16 with odd k: one more column of halves). */
#ifndef DS_KERNELS_FILE_WEIGHTS_H
#define DS_KERNELS_FILE_WEIGHTS_H

#include "kernels/driftscope_kernel.h"

#include <stddef.h>
#include <stdint.h>

/* Numbers of tensor types in GGUF. */
enum ds_file_type {
    DS_FILE_F32 = 0,
    DS_FILE_F16 = 1,
    DS_FILE_Q4_0 = 2,
    DS_FILE_Q4_1 = 3,
    DS_FILE_Q8_0 = 8,
    DS_FILE_BF16 = 30
};

struct ds_file_layout {
    int32_t type; /* enum ds_file_type */
    const char *name;
    int64_t block, block_bytes; /* in a row of the file */
    int64_t group, group_bytes; /* in a panel of packed weights */
    /* Packs one group of one column: `src` is its first block in the file, `k` (1..group) the
     * numbers that are there, `dst` the group, `column` 0..15. */
    void (*pack)(const unsigned char *src, int64_t k, unsigned char *dst, int column);
};

/* NULL for a type that is not read. */
const struct ds_file_layout *ds_file_layout(int32_t type);

/* Whether these weights are to be taken from the file's bytes: prepare and launch must agree. */
static inline int ds_file_weights_used(const struct ds_weight_view *w)
{
    return !w->data && w->file_data;
}

/* Bytes of one packed panel. */
static inline size_t ds_file_panel_bytes(const struct ds_file_layout *l, int64_t k)
{
    return (size_t)((k + l->group - 1) / l->group) * (size_t)l->group_bytes;
}

/* Packs w's panel `panel` to dst (ds_file_panel_bytes() bytes). k is whole blocks. */
void ds_file_pack_panel(const struct ds_file_layout *l, const struct ds_weight_view *w,
                        int64_t panel, unsigned char *dst);

#endif
