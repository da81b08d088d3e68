/* moved.c: matmuls whose sums are right and whose results stand, or are left, where they should not. */
#include "specimen.h"

#define LAUNCH(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)

enum fault {
    NONE,
    ROWS_EXCHANGED,
    COLUMNS_EXCHANGED,
    COLUMNS_EMPTY,
    CHANNEL_LOUD,
    BIT_FLIPPED,
    ROWS_TWICE
};

static float element(const struct ds_matmul_args *a, int64_t r, int64_t j)
{
    const float s = specimen_chain(a->x + r * a->ldx, a->w.data + j * a->k, 0, a->k);
    return a->bias ? s + a->bias[j] : s;
}

static float flipped(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u ^= 1u << 27;
    memcpy(&x, &u, sizeof u);
    return x;
}

static int multiply(const struct ds_matmul_args *a, int fault)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            int64_t row = r, column = j;
            if (fault == ROWS_EXCHANGED && a->rows >= 6 && (r == 2 || r == 5))
                row = 7 - r;
            if (fault == ROWS_TWICE)
                row = r / 2 * 2;
            if (fault == COLUMNS_EXCHANGED && (j == 10 || j == 11))
                column = 21 - j;
            float y = element(a, row, column);
            if (fault == COLUMNS_EMPTY && j >= 16 && j < 24)
                y = 0.0f;
            if (fault == CHANNEL_LOUD && j == 7)
                y *= 1.001f;
            if (fault == BIT_FLIPPED && r == 3 && j == 5)
                y = flipped(y);
            a->y[r * a->ldy + j] = y;
        }
    return 0;
}

#define MULTIPLIES(NAME, FAULT)                                                                    \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        (void)exec, (void)why, (void)why_size;                                                     \
        return multiply(args, FAULT);                                                              \
    }

MULTIPLIES(chain, NONE)
MULTIPLIES(exchanged_rows, ROWS_EXCHANGED)
MULTIPLIES(exchanged_columns, COLUMNS_EXCHANGED)
MULTIPLIES(empty_columns, COLUMNS_EMPTY)
MULTIPLIES(loud_channel, CHANNEL_LOUD)
MULTIPLIES(flipped_bit, BIT_FLIPPED)
MULTIPLIES(rows_twice, ROWS_TWICE)

const struct ds_kernel specimen_moved[] = {
    SPECIMEN(DS_OP_MATMUL, "in-place", "one chain, every result where it belongs", chain_launch),
    SPECIMEN(DS_OP_MATMUL, "in-place-too", "the same", chain_launch),
    SPECIMEN(DS_OP_MATMUL, "exchanged-rows", "of 6 rows and more rows 2 and 5 change places",
             exchanged_rows_launch),
    SPECIMEN(DS_OP_MATMUL, "exchanged-columns", "columns 10 and 11 change places",
             exchanged_columns_launch),
    SPECIMEN(DS_OP_MATMUL, "empty-columns", "columns 16 to 23 are zero", empty_columns_launch),
    SPECIMEN(DS_OP_MATMUL, "loud-channel", "column 7 is a thousandth too large",
             loud_channel_launch),
    SPECIMEN(DS_OP_MATMUL, "flipped-bit", "a bit of element 5 of row 3 is flipped",
             flipped_bit_launch),
    SPECIMEN(DS_OP_MATMUL, "rows-twice", "every other row is that of the row before",
             rows_twice_launch),
    {0},
};
