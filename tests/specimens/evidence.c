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

/* ---- experts --------------------------------------------------------------------------------- */

enum route {
    ROUTE,
    FIRST_HALF, /* the second half of the list is not looked at */
    EVEN_ONLY,  /* every second logit is skipped: a stride of two */
    LOST_ONE,   /* expert 3 is never chosen */
    ONE_GROUP,  /* both are of the group of four in which the largest is */
    EACH_HALF,  /* one of each half of the list, as where two threads have one each */
    SECOND_ON   /* the largest is left out */
};

static int looks_at(const struct ds_router_args *a, const int32_t *ids, int64_t k, int64_t e,
                    int how)
{
    switch (how) {
    case FIRST_HALF:
        return e < a->experts / 2;
    case EVEN_ONLY:
        return e % 2 == 0;
    case LOST_ONE:
        return e != 3;
    case ONE_GROUP:
        return k == 0 || e / 4 == ids[0] / 4;
    case EACH_HALF:
        return k == 0 || e / (a->experts / 2) != ids[0] / (a->experts / 2);
    default:
        return 1;
    }
}

static int32_t next_best(const struct ds_router_args *a, const float *x, const int32_t *ids,
                         int64_t k, int how)
{
    int32_t best = -1;
    for (int64_t e = 0; e < a->experts; e++) {
        int taken = 0;
        for (int64_t l = 0; l < k; l++)
            taken |= ids[l] == e;
        if (!taken && looks_at(a, ids, k, e, how) && (best < 0 || x[e] > x[best]))
            best = (int32_t)e;
    }
    return best;
}

static int choose(const struct ds_router_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->logits + r * a->ldx;
        int32_t ids[64], *to = a->ids + r * a->top_k;
        float *w = a->weights + r * a->top_k, most = x[0], all = 0.0f, chosen = 0.0f;
        const int64_t behind = how == SECOND_ON;
        for (int64_t k = 0; k < a->top_k + behind && k < 64; k++)
            ids[k] = next_best(a, x, ids, k, how);
        for (int64_t e = 0; e < a->experts; e++)
            most = fmaxf(most, x[e]);
        for (int64_t e = 0; e < a->experts; e++)
            all += expf(x[e] - most);
        for (int64_t k = 0; k < a->top_k; k++) {
            to[k] = ids[k + behind];
            chosen += w[k] = expf(x[to[k]] - most) / all;
        }
        for (int64_t k = 0; k < a->top_k && a->normalise; k++)
            w[k] /= chosen;
    }
    return 0;
}

#define CHOOSES(NAME, HOW)                                                                         \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return choose(args, HOW);                                                                  \
    }

CHOOSES(choose, ROUTE)
CHOOSES(choose_half, FIRST_HALF)
CHOOSES(choose_even, EVEN_ONLY)
CHOOSES(choose_without, LOST_ONE)
CHOOSES(choose_group, ONE_GROUP)
CHOOSES(choose_each, EACH_HALF)
CHOOSES(choose_second, SECOND_ON)

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
    SPECIMEN(DS_OP_ROUTER, "choose", "nothing wrong", choose_launch),
    SPECIMEN(DS_OP_ROUTER, "choose-too", "the same", choose_launch),
    SPECIMEN(DS_OP_ROUTER, "choose-half", "the first half of the list", choose_half_launch),
    SPECIMEN(DS_OP_ROUTER, "choose-even", "a stride of two", choose_even_launch),
    SPECIMEN(DS_OP_ROUTER, "choose-without", "never expert 3", choose_without_launch),
    SPECIMEN(DS_OP_ROUTER, "choose-group", "of one group", choose_group_launch),
    SPECIMEN(DS_OP_ROUTER, "choose-each", "one of each half", choose_each_launch),
    SPECIMEN(DS_OP_ROUTER, "choose-second", "from the second on", choose_second_launch),
    SPECIMEN(DS_OP_ALLREDUCE, "largest-of", "the largest of the ranks", largest_of_launch),
    SPECIMEN(DS_OP_ALLREDUCE, "largest-size-of", "the largest in size", largest_size_of_launch),
    SPECIMEN(DS_OP_ALLREDUCE, "even-ranks", "every second rank", even_ranks_launch),
    SPECIMEN(DS_OP_ALLREDUCE, "round-short", "handed round once too few", round_short_launch),
    SPECIMEN(DS_OP_MATMUL, "dithered", "inputs rounded to five bits at random", dithered_launch),
    SPECIMEN(DS_OP_MATMUL, "tail-bf16", "what is left of tiles is bf16", tail_bf16_launch),
    {0},
};
