/* file_weights.c: from the blocks of a GGUF file to packed panels. See file_weights.h. Only bits move
 * here: no number is converted to f32, so nothing is rounded. */
#include "kernels/cpu/file_weights.h"

#include <string.h>

enum { COLUMNS = 16, BLOCK = 32, HALF = BLOCK / 2 };

static void pack_f32(const unsigned char *src, int64_t k, unsigned char *dst, int column)
{
    (void)k;
    memcpy(dst + 4 * column, src, 4);
}

static void pack_f16(const unsigned char *src, int64_t k, unsigned char *dst, int column)
{
    (void)k;
    memcpy(dst + 2 * column, src, 2);
}

static void pack_bf16(const unsigned char *src, int64_t k, unsigned char *dst, int column)
{
    memcpy(dst + 4 * column, src, 2);
    if (k > 1)
        memcpy(dst + 4 * column + 2, src + 2, 2);
}

static void pack_q8_0(const unsigned char *src, int64_t k, unsigned char *dst, int column)
{
    (void)k;
    memcpy(dst + 2 * column, src, 2);
    for (int j = 0; j < BLOCK / 4; j++)
        memcpy(dst + 2 * COLUMNS + (j * COLUMNS + column) * 4, src + 2 + 4 * j, 4);
}

/* The 32 quants of a block, k and k + 16 in one byte, as four words of eight in ascending k. flip:
 * the bits of each byte that are turned over. */
static void pack_nibbles(const unsigned char *q, int flip, unsigned char *dst, int column)
{
    for (int j = 0; j < 4; j++) {
        unsigned char *word = dst + (j * COLUMNS + column) * 4;
        const unsigned char *from = q + 8 * (j % 2);
        int shift = j < 2 ? 0 : 4;
        for (int i = 0; i < 4; i++) {
            int low = from[2 * i] >> shift & 15, high = from[2 * i + 1] >> shift & 15;
            word[i] = (unsigned char)((low | high << 4) ^ flip);
        }
    }
}

/* q becomes q - 8 in two's complement by turning over its highest bit. */
static void pack_q4_0(const unsigned char *src, int64_t k, unsigned char *dst, int column)
{
    (void)k;
    memcpy(dst + 2 * column, src, 2);
    pack_nibbles(src + 2, 0x88, dst + 2 * COLUMNS, column);
}

static void pack_q4_1(const unsigned char *src, int64_t k, unsigned char *dst, int column)
{
    (void)k;
    memcpy(dst + 2 * column, src, 2);
    memcpy(dst + 2 * COLUMNS + 2 * column, src + 2, 2);
    pack_nibbles(src + 4, 0, dst + 4 * COLUMNS, column);
}

static const struct ds_file_layout layouts[] = {
    {DS_FILE_F32, "f32", 1, 4, 1, 64, pack_f32},
    {DS_FILE_F16, "f16", 1, 2, 1, 32, pack_f16},
    {DS_FILE_BF16, "bf16", 1, 2, 2, 64, pack_bf16},
    {DS_FILE_Q8_0, "q8_0", BLOCK, 2 + BLOCK, BLOCK, COLUMNS *(2 + BLOCK), pack_q8_0},
    {DS_FILE_Q4_0, "q4_0", BLOCK, 2 + HALF, BLOCK, COLUMNS *(2 + HALF), pack_q4_0},
    {DS_FILE_Q4_1, "q4_1", BLOCK, 4 + HALF, BLOCK, COLUMNS *(4 + HALF), pack_q4_1},
};

const struct ds_file_layout *ds_file_layout(int32_t type)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (layouts[i].type == type)
            return &layouts[i];
    return NULL;
}

void ds_file_pack_panel(const struct ds_file_layout *l, const struct ds_weight_view *w,
                        int64_t panel, unsigned char *dst)
{
    const int64_t columns = w->n - COLUMNS * panel < COLUMNS ? w->n - COLUMNS * panel : COLUMNS;
    const size_t row_bytes = (size_t)(w->k / l->block) * (size_t)l->block_bytes;
    const unsigned char *src =
        (const unsigned char *)w->file_data + (size_t)(COLUMNS * panel) * row_bytes;
    if (columns < COLUMNS || w->k % l->group)
        memset(dst, 0, ds_file_panel_bytes(l, w->k));
    const int64_t step = l->group / l->block * l->block_bytes;
    for (int64_t k = 0; k < w->k; k += l->group, dst += l->group_bytes, src += step)
        for (int c = 0; c < columns; c++)
            l->pack(src + (size_t)c * row_bytes, w->k - k < l->group ? w->k - k : l->group, dst, c);
}
