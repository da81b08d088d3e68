/* battery_other.c: faults of no report in the kernels that add no long sums: tables, gates, experts, ranks, caches,
 * residuals. See battery.c. */
#include "specimen.h"

#define LAUNCH(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)

#define UNUSED (void)exec, (void)why, (void)why_size

/* ---- embed ----------------------------------------------------------------------------------- */

static int look_up(const struct ds_embed_args *a, int next_of_three, int cut)
{
    for (int64_t r = 0; r < a->rows; r++) {
        int64_t id = a->ids[r];
        if (next_of_three && a->rows % 3 == 0)
            id = (id + 1) % a->vocab;
        if (cut && id >= a->vocab / 2)
            id = a->vocab / 2 - 1;
        memcpy(a->y + r * a->ldy, a->table + id * a->width, (size_t)a->width * sizeof *a->y);
    }
    return 0;
}

/* Calls whose rows three divides get the vectors of the tokens after theirs. */
LAUNCH(next_of_three)
{
    UNUSED;
    return look_up(args, 1, 0);
}

/* Half of the vocabulary is there; all behind it is the last of that. */
LAUNCH(half_vocabulary)
{
    UNUSED;
    return look_up(args, 0, 1);
}

/* ---- the gated unit -------------------------------------------------------------------------- */

enum gate { PLAIN_GATE, STEEP, UP_AND_ONE, FAST_EXP, LOST_TAIL };

/* Straight lines between powers of two: exponent and mantissa as one number. */
static float fast_exp(float x)
{
    const int32_t i = (int32_t)(12102203.0f * x + 1064866805.0f);
    float y;
    memcpy(&y, &i, sizeof y);
    return y;
}

static int gate_rows(const struct ds_silu_mul_args *a, int how, int threads)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            const float g = a->gate[r * a->ldx + i], u = a->up[r * a->ldx + i],
                        e = how == STEEP      ? expf(-1.5f * g)
                            : how == FAST_EXP ? fast_exp(-g)
                                              : expf(-g);
            const int lost = how == LOST_TAIL && threads == 2 && i >= a->width - 8;
            a->y[r * a->ldy + i] =
                lost ? 0.0f : g / (1.0f + e) * (how == UP_AND_ONE ? u + 1.0f : u);
        }
    return 0;
}

#define GATES(NAME, HOW)                                                                           \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        (void)why, (void)why_size;                                                                 \
        return gate_rows(args, HOW, exec->threads);                                                \
    }

GATES(plain_gate, PLAIN_GATE)
GATES(steep, STEEP)
GATES(up_and_one, UP_AND_ONE)
GATES(fast_exponential, FAST_EXP)
GATES(lost_tail, LOST_TAIL)

/* ---- experts --------------------------------------------------------------------------------- */

enum route { PLAIN_ROUTE, SIGMOIDS, TIMES, SHORT_WEIGHTS, BIASED };
enum { MOST_EXPERTS = 64 };

/* The chosen of one row, best first. */
static void choose(const struct ds_router_args *a, const float *x, int how, int32_t *ids)
{
    int taken[MOST_EXPERTS] = {0};
    for (int64_t k = 0; k < a->top_k; k++) {
        int64_t best = -1;
        float most = 0.0f;
        for (int64_t e = 0; e < a->experts && e < MOST_EXPERTS; e++) {
            const float v = x[e] + (how == BIASED ? 0.02f * (float)e : 0.0f);
            if (!taken[e] && (best < 0 || v > most)) {
                best = e;
                most = v;
            }
        }
        taken[best] = 1;
        ids[k] = (int32_t)best;
    }
}

static int route(const struct ds_router_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->logits + r * a->ldx;
        int32_t *ids = a->ids + r * a->top_k;
        float *w = a->weights + r * a->top_k, max = -INFINITY, all = 0.0f, chosen = 0.0f;
        choose(a, x, how, ids);
        for (int64_t e = 0; e < a->experts; e++)
            max = fmaxf(max, x[e]);
        for (int64_t e = 0; e < a->experts; e++)
            all += expf(x[e] - max);
        for (int64_t k = 0; k < a->top_k; k++) {
            const float v = x[ids[k]];
            w[k] = how == SIGMOIDS ? 1.0f / (1.0f + expf(-v)) : expf(v - max) / all;
            chosen += w[k];
        }
        for (int64_t k = 0; k < a->top_k; k++) {
            w[k] = (a->normalise ? w[k] / chosen : w[k]) * (how == TIMES ? 2.5f : 1.0f);
            w[k] = how == SHORT_WEIGHTS ? specimen_short(w[k], 16) : w[k];
        }
    }
    return 0;
}

#define ROUTES(NAME, HOW)                                                                          \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return route(args, HOW);                                                                   \
    }

ROUTES(plain_route, PLAIN_ROUTE)
ROUTES(sigmoids, SIGMOIDS)
ROUTES(times, TIMES)
ROUTES(short_weights, SHORT_WEIGHTS)
ROUTES(biased, BIASED)

enum combine { PLAIN_SUM, BEFORE, FIRST_TWICE, LAST_BARE, SQUARES, SHORT_STEPS };

static int combine(const struct ds_combine_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            const float *w = a->weights + (how == BEFORE && r > 0 ? r - 1 : r) * a->top_k;
            float sum = 0.0f;
            for (int64_t k = 0; k < a->top_k; k++) {
                const int64_t from = how == FIRST_TWICE && k == 1 ? 0 : k;
                const float factor = how == SQUARES                          ? w[k] * w[k]
                                     : how == LAST_BARE && k == a->top_k - 1 ? 1.0f
                                                                             : w[k];
                sum += factor * a->x[(r * a->top_k + from) * a->ldx + i];
                sum = how == SHORT_STEPS ? specimen_short(sum, 16) : sum;
            }
            a->y[r * a->ldy + i] = sum;
        }
    return 0;
}

#define COMBINES(NAME, HOW)                                                                        \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return combine(args, HOW);                                                                 \
    }

COMBINES(plain_sum, PLAIN_SUM)
COMBINES(before, BEFORE)
COMBINES(first_twice, FIRST_TWICE)
COMBINES(last_bare, LAST_BARE)
COMBINES(squares, SQUARES)
COMBINES(short_steps, SHORT_STEPS)

/* ---- ranks ----------------------------------------------------------------------------------- */

/* What each rank sends is f16; the sum is f32. */
LAUNCH(half_shares)
{
    const struct ds_allreduce_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < a->ranks; k++)
                sum += specimen_half(a->x[k][r * a->ldx + i]);
            a->y[r * a->ldy + i] = sum;
        }
    return 0;
}

/* ---- caches ---------------------------------------------------------------------------------- */

static float *row_in_cache(const struct ds_cache_args *a, const struct ds_sequence *s, int64_t slot)
{
    return a->cache +
           ((int64_t)s->pages[slot / a->page_size] * a->page_size + slot % a->page_size) * a->width;
}

/* Eight slots that are written in circles. */
LAUNCH(ring_of_8)
{
    const struct ds_cache_args *a = args;
    UNUSED;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = 0; r < s->q_len; r++)
            memcpy(row_in_cache(a, s, ((int64_t)s->kv_len - s->q_len + r) % 8),
                   a->x + (s->q_first + r) * a->ldx, (size_t)a->width * sizeof *a->cache);
    }
    return 0;
}

/* Keys are written to both caches: what the call before this one wrote. */
LAUNCH(keys_twice)
{
    enum { MOST = 64 * 64 };
    static float kept[MOST];
    static int64_t launches;
    const struct ds_cache_args *a = args;
    const int values = launches++ % 2;
    UNUSED;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = s->q_first; r < s->q_first + s->q_len; r++) {
            const int64_t slot = (int64_t)s->kv_len - s->q_len + (r - s->q_first);
            const int there = (r + 1) * a->width <= MOST;
            if (!values && there)
                memcpy(kept + r * a->width, a->x + r * a->ldx, (size_t)a->width * sizeof *kept);
            memcpy(row_in_cache(a, s, slot),
                   values && there ? kept + r * a->width : a->x + r * a->ldx,
                   (size_t)a->width * sizeof *kept);
        }
    }
    return 0;
}

/* ---- the residual ---------------------------------------------------------------------------- */

/* Now and then one element is a thousandth too large. */
LAUNCH(now_and_then)
{
    const struct ds_add_args *a = args;
    const int now = specimen_mix(exec->seed) % 100 == 0;
    (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            const float sum = a->a[r * a->lda + i] + a->b[r * a->ldb + i];
            a->y[r * a->ldy + i] = now && i == 3 ? sum * 1.001f : sum;
        }
    return 0;
}

const struct ds_kernel specimen_battery_other[] = {
    SPECIMEN(DS_OP_EMBED, "next-of-three", "with three rows the vectors of the next tokens",
             next_of_three_launch),
    SPECIMEN(DS_OP_EMBED, "half-vocabulary", "tokens of the second half are one",
             half_vocabulary_launch),
    SPECIMEN(DS_OP_SILU_MUL, "plain-gate", "nothing wrong", plain_gate_launch),
    SPECIMEN(DS_OP_SILU_MUL, "plain-gate-too", "the same", plain_gate_launch),
    SPECIMEN(DS_OP_SILU_MUL, "steep", "x * sigmoid(1.5 x)", steep_launch),
    SPECIMEN(DS_OP_SILU_MUL, "up-and-one", "1 is added to up", up_and_one_launch),
    SPECIMEN(DS_OP_SILU_MUL, "fast-exponential", "an exponential of straight lines",
             fast_exponential_launch),
    SPECIMEN(DS_OP_SILU_MUL, "lost-tail", "two threads forget the last 8 columns",
             lost_tail_launch),
    SPECIMEN(DS_OP_ROUTER, "plain-route", "nothing wrong", plain_route_launch),
    SPECIMEN(DS_OP_ROUTER, "plain-route-too", "the same", plain_route_launch),
    SPECIMEN(DS_OP_ROUTER, "sigmoids", "weights are sigmoids of logits", sigmoids_launch),
    SPECIMEN(DS_OP_ROUTER, "times", "weights are 2.5 times too large", times_launch),
    SPECIMEN(DS_OP_ROUTER, "short-weights", "weights are bf16", short_weights_launch),
    SPECIMEN(DS_OP_ROUTER, "biased", "later experts are preferred", biased_launch),
    SPECIMEN(DS_OP_COMBINE, "plain-sum", "nothing wrong", plain_sum_launch),
    SPECIMEN(DS_OP_COMBINE, "plain-sum-too", "the same", plain_sum_launch),
    SPECIMEN(DS_OP_COMBINE, "before", "the factors of the row before", before_launch),
    SPECIMEN(DS_OP_COMBINE, "first-twice", "the first expert for the second", first_twice_launch),
    SPECIMEN(DS_OP_COMBINE, "last-bare", "the last term has no factor", last_bare_launch),
    SPECIMEN(DS_OP_COMBINE, "squares", "factors are squared", squares_launch),
    SPECIMEN(DS_OP_COMBINE, "short-steps", "every addition is rounded to bf16", short_steps_launch),
    SPECIMEN(DS_OP_ALLREDUCE, "half-shares", "what ranks send is f16", half_shares_launch),
    SPECIMEN(DS_OP_CACHE, "ring-of-8", "eight slots in circles", ring_of_8_launch),
    SPECIMEN(DS_OP_CACHE, "keys-twice", "keys are written as values, too", keys_twice_launch),
    SPECIMEN(DS_OP_ADD, "now-and-then", "one element is off now and then", now_and_then_launch),
    {0},
};
