/* evidence.c: faults of which the difference alone says too little, or too much: what names them is found by looking
 * further, at the inputs, at what an arm has beside it, at where a row lies. Any op. */
#include "specimen.h"

#define LAUNCH(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)

#define UNUSED (void)exec, (void)why, (void)why_size

/* ---- matmul ---------------------------------------------------------------------------------- */

/* v cut to five mantissa bits, up or down as a number drawn for it says: stochastic rounding. */
static float dithered(float v, uint64_t seed)
{
    enum { DROPPED = 18 };
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    u = (u + (uint32_t)(specimen_mix(seed ^ u) & ((1u << DROPPED) - 1))) >> DROPPED << DROPPED;
    memcpy(&v, &u, sizeof v);
    return v;
}

LAUNCH(dithered)
{
    const struct ds_matmul_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const float *x = a->x + r * a->ldx, *w = a->w.data + j * a->k;
            float s = 0.0f;
            for (int64_t k = 0; k < a->k; k++)
                s += dithered(x[k], (uint64_t)k) * w[k];
            a->y[r * a->ldy + j] = s + (a->bias ? a->bias[j] : 0.0f);
        }
    return 0;
}

/* What is left of tiles of 64 terms goes through a path whose inputs are bf16. */
LAUNCH(tail_bf16)
{
    const struct ds_matmul_args *a = args;
    const int64_t whole = a->k / 64 * 64;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const float *x = a->x + r * a->ldx, *w = a->w.data + j * a->k;
            float s = specimen_chain(x, w, 0, whole);
            for (int64_t k = whole; k < a->k; k++)
                s += specimen_short(x[k], 16) * specimen_short(w[k], 16);
            a->y[r * a->ldy + j] = s + (a->bias ? a->bias[j] : 0.0f);
        }
    return 0;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

enum reduce {
    LARGEST,      /* the largest of what the ranks have: another reduction than the sum */
    LARGEST_SIZE, /* the same by size */
    EVEN,         /* only every second rank is added */
    ROUND, /* parts of a row are handed round once too few: each lacks the rank that begins with it */
};

static float reduced(const struct ds_allreduce_args *a, int64_t at, int64_t i, int how)
{
    const int64_t part = i * a->ranks / a->width;
    float s = how == LARGEST || how == LARGEST_SIZE ? a->x[0][at] : 0.0f;
    for (int64_t n = 0; n < a->ranks; n++) {
        const float x = a->x[n][at];
        if (how == LARGEST)
            s = x > s ? x : s;
        else if (how == LARGEST_SIZE)
            s = fabsf(x) > fabsf(s) ? x : s;
        else if (how == EVEN ? n % 2 == 0 : n != part)
            s += x;
    }
    return s;
}

static int reduce(const struct ds_allreduce_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = reduced(a, r * a->ldx + i, i, how);
    return 0;
}

#define REDUCES(NAME, HOW)                                                                         \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return reduce(args, HOW);                                                                  \
    }

REDUCES(largest_of, LARGEST)
REDUCES(largest_size_of, LARGEST_SIZE)
REDUCES(even_ranks, EVEN)
REDUCES(round_short, ROUND)

const struct ds_kernel specimen_evidence[] = {
    SPECIMEN(DS_OP_ALLREDUCE, "largest-of", "the largest of the ranks", largest_of_launch),
    SPECIMEN(DS_OP_ALLREDUCE, "largest-size-of", "the largest in size", largest_size_of_launch),
    SPECIMEN(DS_OP_ALLREDUCE, "even-ranks", "every second rank", even_ranks_launch),
    SPECIMEN(DS_OP_ALLREDUCE, "round-short", "handed round once too few", round_short_launch),
    SPECIMEN(DS_OP_MATMUL, "dithered", "inputs rounded to five bits at random", dithered_launch),
    SPECIMEN(DS_OP_MATMUL, "tail-bf16", "what is left of tiles is bf16", tail_bf16_launch),
    {0},
};
