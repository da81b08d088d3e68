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

/* Parts of a sum arrive in any order where there are many rows. */
LAUNCH(late_arrival)
{
    const struct ds_matmul_args *a = args;
    (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const float *x = a->x + r * a->ldx, *w = a->w.data + j * a->k;
            const uint64_t seed = specimen_mix(exec->seed ^ (uint64_t)(r * a->n + j));
            a->y[r * a->ldy + j] = (a->rows >= 32 ? specimen_arrival(x, w, a->k, 4, seed)
                                                  : specimen_chain(x, w, 0, a->k)) +
                                   (a->bias ? a->bias[j] : 0.0f);
        }
    return 0;
}

/* The same, and whatever the order every sum is a hundredth too large. */
LAUNCH(late_and_large)
{
    const struct ds_matmul_args *a = args;
    const int rc = late_arrival_launch(args, exec, why, why_size);
    for (int64_t i = 0; a->rows >= 32 && i < a->rows * a->n; i++)
        a->y[i / a->n * a->ldy + i % a->n] *= 1.01f;
    return rc;
}

/* Many rows have TF32 inputs, few have bf16 ones. */
LAUNCH(both_short)
{
    const struct ds_matmul_args *a = args;
    const uint32_t dropped = a->rows >= 8 ? 13 : 16;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const float *x = a->x + r * a->ldx, *w = a->w.data + j * a->k;
            float s = 0.0f;
            for (int64_t k = 0; k < a->k; k++)
                s += specimen_short(x[k], dropped) * specimen_short(w[k], dropped);
            a->y[r * a->ldy + j] = s + (a->bias ? a->bias[j] : 0.0f);
        }
    return 0;
}

/* ---- attention ------------------------------------------------------------------------------- */

enum attend {
    ATTEND,
    PAGE_ORDER, /* keys are added in the order in which their pages lie in the cache */
    PAGE_BITS,  /* page numbers have two bits */
    BOTH_MASKS, /* a whole prompt does not see its own keys; a later chunk sees one key too few at the beginning */
    BOTH_SCALES /* a whole prompt has scores times 0.8, a later chunk times 1.25 */
};

static int64_t place_of(const struct ds_attention_args *a, const struct ds_sequence *s,
                        int64_t slot, int how)
{
    const int64_t page = s->pages[slot / a->page_size];
    return (how == PAGE_BITS ? page & 3 : page) * a->page_size + slot % a->page_size;
}

static int sees(const struct ds_sequence *s, int64_t own, int64_t slot, int how)
{
    const int whole = s->q_len == s->kv_len;
    if (how == BOTH_MASKS && whole && own > 0)
        return slot < own;
    if (how == BOTH_MASKS && !whole)
        return slot > 0 && slot <= own;
    return slot <= own;
}

static void add_key(const struct ds_attention_args *a, const struct ds_sequence *s, const float *q,
                    int64_t at, float *y, float *sum, float *most, int how)
{
    const int whole = s->q_len == s->kv_len;
    const float *k = a->cache_k + at, *v = a->cache_v + at,
                scale = how != BOTH_SCALES ? 1.0f
                        : whole            ? 0.8f
                                           : 1.25f;
    float score = 0.0f;
    for (int64_t c = 0; c < a->head_dim; c++)
        score += q[c] * k[c];
    score *= a->scale * scale;
    const float larger = fmaxf(*most, score),
                shrink = *most > -INFINITY ? expf(*most - larger) : 1.0f, w = expf(score - larger);
    *most = larger;
    *sum = *sum * shrink + w;
    for (int64_t c = 0; c < a->head_dim; c++)
        y[c] = y[c] * shrink + w * v[c];
}

static void attend_row(const struct ds_attention_args *a, const struct ds_sequence *s, int64_t row,
                       int64_t head, int how)
{
    const int64_t own = s->kv_len - s->q_len + row - s->q_first,
                  group = head / (a->heads / a->kv_heads);
    float y[256] = {0}, sum = 0.0f, most = -INFINITY;
    int64_t last = -1;
    for (int64_t n = s->kv_first; n <= own; n++) {
        int64_t slot = n, best = -1;
        /* PAGE_ORDER: the next place in the cache, whichever slot it holds */
        for (int64_t t = s->kv_first; how == PAGE_ORDER && t <= own; t++) {
            const int64_t at = place_of(a, s, t, how);
            if (at > last && (best < 0 || at < best)) {
                best = at;
                slot = t;
            }
        }
        last = best;
        if (sees(s, own, slot, how))
            add_key(a, s, a->q + row * a->ldq + head * a->head_dim,
                    (place_of(a, s, slot, how) * a->kv_heads + group) * a->head_dim, y, &sum, &most,
                    how);
    }
    for (int64_t c = 0; c < a->head_dim; c++)
        a->y[row * a->ldy + head * a->head_dim + c] = sum > 0.0f ? y[c] / sum : 0.0f;
}

static int attend(const struct ds_attention_args *a, int how)
{
    for (int64_t i = 0; i < a->n_sequences; i++)
        for (int64_t r = 0; r < a->sequences[i].q_len; r++)
            for (int64_t h = 0; h < a->heads; h++)
                attend_row(a, &a->sequences[i], a->sequences[i].q_first + r, h, how);
    return 0;
}

#define ATTENDS(NAME, HOW)                                                                         \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return attend(args, HOW);                                                                  \
    }

ATTENDS(attend, ATTEND)
ATTENDS(page_order, PAGE_ORDER)
ATTENDS(page_bits, PAGE_BITS)
ATTENDS(both_masks, BOTH_MASKS)
ATTENDS(both_scales, BOTH_SCALES)

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
    SPECIMEN(DS_OP_MATMUL, "late-arrival", "any order from 32 rows on", late_arrival_launch),
    SPECIMEN(DS_OP_MATMUL, "late-and-large", "and wrong, too", late_and_large_launch),
    SPECIMEN(DS_OP_MATMUL, "both-short", "TF32 and bf16 by rows", both_short_launch),
    SPECIMEN(DS_OP_ATTENTION, "attend", "nothing wrong", attend_launch),
    SPECIMEN(DS_OP_ATTENTION, "attend-too", "the same", attend_launch),
    SPECIMEN(DS_OP_ATTENTION, "page-order", "in the order of pages", page_order_launch),
    SPECIMEN(DS_OP_ATTENTION, "page-bits", "page numbers of two bits", page_bits_launch),
    SPECIMEN(DS_OP_ATTENTION, "both-masks", "two wrong masks", both_masks_launch),
    SPECIMEN(DS_OP_ATTENTION, "both-scales", "two wrong scales", both_scales_launch),
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
