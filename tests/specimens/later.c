/* later.c: faults of no report, any op, each of which something simple accounts for: what is read from another
 * place, unpacked wrongly, kept in fewer bits, weighed otherwise, or of another model. */
#include "specimen.h"

#include <stdio.h>

#define LAUNCH(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)

#define UNUSED (void)exec, (void)why, (void)why_size

/* ---- attention ------------------------------------------------------------------------------- */

enum fault {
    NONE,
    OTHER_KEYS,   /* the second group reads the first one's keys, and its own values */
    OTHER_VALUES, /* each group reads the next one's values */
    STALE_KEY,    /* in decode the newest key is the one before it */
    KEYS_BEHIND,  /* every key but the first is the one before it */
    SHORT_QUERY,  /* queries in bf16 */
    SHORT_KEYS,   /* keys in bf16 */
    HALF_A_HEAD,  /* half of the channels of the last head are not written */
    NOT_ITSELF    /* a row does not see its own key */
};

struct head {
    const struct ds_attention_args *a;
    const struct ds_sequence *s;
    int64_t row, head, group, slot;
    int fault;
};

static const float *in_cache(const struct head *h, const float *cache, int64_t slot, int64_t group)
{
    const int64_t at =
        h->s->pages[slot / h->a->page_size] * h->a->page_size + slot % h->a->page_size;
    return cache + (at * h->a->kv_heads + group) * h->a->head_dim;
}

static float score(const struct head *h, int64_t slot)
{
    const struct ds_attention_args *a = h->a;
    const int behind =
        slot > h->s->kv_first &&
        (h->fault == KEYS_BEHIND || (h->fault == STALE_KEY && h->s->q_len == 1 && slot == h->slot));
    const float *q = a->q + h->row * a->ldq + h->head * a->head_dim,
                *k = in_cache(h, a->cache_k, slot - behind,
                              h->fault == OTHER_KEYS && h->group == 1 ? 0 : h->group);
    float sum = 0.0f;
    for (int64_t d = 0; d < a->head_dim; d++)
        sum += (h->fault == SHORT_QUERY ? specimen_short(q[d], 16) : q[d]) *
               (h->fault == SHORT_KEYS ? specimen_short(k[d], 16) : k[d]);
    return sum * a->scale;
}

static void attend_head(const struct head *h)
{
    const struct ds_attention_args *a = h->a;
    const int64_t group = h->fault == OTHER_VALUES ? (h->group + 1) % a->kv_heads : h->group,
                  last = h->slot - (h->fault == NOT_ITSELF && h->slot > h->s->kv_first),
                  channels = h->fault == HALF_A_HEAD && h->head == a->heads - 1 ? a->head_dim / 2
                                                                                : a->head_dim;
    float *y = a->y + h->row * a->ldy + h->head * a->head_dim, max = -INFINITY, sum = 0.0f;
    for (int64_t t = h->s->kv_first; t <= last; t++)
        max = fmaxf(max, score(h, t));
    for (int64_t d = 0; d < a->head_dim; d++)
        y[d] = 0.0f;
    for (int64_t t = h->s->kv_first; t <= last; t++) {
        const float w = expf(score(h, t) - max);
        sum += w;
        for (int64_t d = 0; d < channels; d++)
            y[d] += w * in_cache(h, a->cache_v, t, group)[d];
    }
    for (int64_t d = 0; d < channels; d++)
        y[d] /= sum;
}

static int attend(const void *args, int fault)
{
    const struct ds_attention_args *a = args;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = s->q_first; r < s->q_first + s->q_len; r++)
            for (int64_t n = 0; n < a->heads; n++) {
                const struct head h = {.a = a,
                                       .s = s,
                                       .row = r,
                                       .head = n,
                                       .group = n / (a->heads / a->kv_heads),
                                       .slot = (int64_t)s->kv_len - s->q_len + (r - s->q_first),
                                       .fault = fault};
                attend_head(&h);
            }
    }
    return 0;
}

#define ATTENTION(NAME, FAULT)                                                                     \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return attend(args, FAULT);                                                                \
    }

ATTENTION(later, NONE)
ATTENTION(other_keys, OTHER_KEYS)
ATTENTION(other_values, OTHER_VALUES)
ATTENTION(stale_key, STALE_KEY)
ATTENTION(keys_behind, KEYS_BEHIND)
ATTENTION(short_query, SHORT_QUERY)
ATTENTION(short_keys, SHORT_KEYS)
ATTENTION(half_a_head, HALF_A_HEAD)
ATTENTION(not_itself, NOT_ITSELF)

/* ---- rope ------------------------------------------------------------------------------------ */

/* heads: so many are rotated. theta: of a model whose base is larger. */
static int rotate(const struct ds_rope_args *a, int64_t heads, int in_bf16, double theta)
{
    const int64_t half = a->rope_dim / 2;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t h = 0; h < a->heads; h++) {
            const float *x = a->x + r * a->ldx + h * a->head_dim;
            float *y = a->y + r * a->ldy + h * a->head_dim;
            memcpy(y, x, (size_t)a->head_dim * sizeof *y);
            for (int64_t i = 0; i < half && h < heads; i++) {
                const int64_t at = a->neox ? i : 2 * i, apart = a->neox ? half : 1;
                const float *cs = a->cos_sin + (a->positions[r] * half + i) * 2,
                            *one = a->cos_sin + (half + i) * 2;
                const double angle =
                    pow(atan2((double)one[1], (double)one[0]), theta) * a->positions[r];
                const float c = theta > 1 ? (float)cos(angle) : cs[0],
                            s = theta > 1 ? (float)sin(angle) : cs[1],
                            x0 = in_bf16 ? specimen_short(x[at], 16) : x[at],
                            x1 = in_bf16 ? specimen_short(x[at + apart], 16) : x[at + apart];
                y[at] = x0 * c - x1 * s;
                y[at + apart] = x0 * s + x1 * c;
            }
        }
    return 0;
}

LAUNCH(turns)
{
    UNUSED;
    return rotate(args, INT64_MAX, 0, 1);
}

LAUNCH(short_turn)
{
    UNUSED;
    return rotate(args, INT64_MAX, 1, 1);
}

LAUNCH(first_head_turned)
{
    UNUSED;
    return rotate(args, 1, 0, 1);
}

/* 500000 where the model has 10000: a power of every frequency. */
LAUNCH(other_base)
{
    UNUSED;
    return rotate(args, INT64_MAX, 0, 1.4247425);
}

/* ---- the gated unit --------------------------------------------------------------------------- */

enum gate { PLAIN_GATE, QUICK_GELU, IN_TURNS, SHORT_GATE, UP_TOO };

static int gate_rows(const struct ds_silu_mul_args *a, int fault)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            const float *gate = a->gate + r * a->ldx, *up = a->up + r * a->ldx;
            const int64_t n = a->width, at = 2 * i;
            float g = gate[i], u = up[i];
            if (fault == IN_TURNS) {
                g = at < n ? gate[at] : up[at - n];
                u = at + 1 < n ? gate[at + 1] : up[at + 1 - n];
            }
            g = fault == SHORT_GATE ? specimen_short(g, 16) : g;
            u = fault == UP_TOO ? u / (1.0f + expf(-u)) : u;
            a->y[r * a->ldy + i] = g / (1.0f + expf(fault == QUICK_GELU ? -1.702f * g : -g)) * u;
        }
    return 0;
}

#define GATE(NAME, FAULT)                                                                          \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return gate_rows(args, FAULT);                                                             \
    }

GATE(later_gate, PLAIN_GATE)
GATE(quick_gelu, QUICK_GELU)
GATE(in_turns, IN_TURNS)
GATE(short_gate, SHORT_GATE)
GATE(up_too, UP_TOO)

/* ---- sums ------------------------------------------------------------------------------------ */

static int combine(const struct ds_combine_args *a, int reverse, int bare)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < a->top_k; k++) {
                const float w = a->weights[r * a->top_k + (reverse ? a->top_k - 1 - k : k)];
                sum += (bare ? 1.0f : w) * a->x[(r * a->top_k + k) * a->ldx + i];
            }
            a->y[r * a->ldy + i] = sum;
        }
    return 0;
}

LAUNCH(own_factors)
{
    UNUSED;
    return combine(args, 0, 0);
}

LAUNCH(no_factors)
{
    UNUSED;
    return combine(args, 0, 1);
}

LAUNCH(factors_reversed)
{
    UNUSED;
    return combine(args, 1, 0);
}

/* The last eight columns are those of rank 0 alone. */
LAUNCH(tail_of_ranks)
{
    const struct ds_allreduce_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float sum = a->x[0][r * a->ldx + i];
            for (int64_t k = 1; k < a->ranks && i < a->width - 8; k++)
                sum += a->x[k][r * a->ldx + i];
            a->y[r * a->ldy + i] = sum;
        }
    return 0;
}

/* A branch is rounded to bf16 before it is added. */
LAUNCH(short_branch)
{
    const struct ds_add_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = a->a[r * a->lda + i] + specimen_short(a->b[r * a->ldb + i], 16);
    return 0;
}

/* ---- weights --------------------------------------------------------------------------------- */

enum { BLOCK = 32 };

static float largest(const float *w)
{
    float most = 0.0f;
    for (int i = 0; i < BLOCK; i++)
        most = fmaxf(most, fabsf(w[i]));
    return most;
}

enum weights { AS_THEY_ARE, NEXT_SCALE, HALVES, BLOCK_LOST, ONE_FLIPPED };

static float weight(const struct ds_matmul_args *a, int64_t j, int64_t k, int fault)
{
    const float *w = a->w.data + j * a->k;
    const int64_t block = k / BLOCK * BLOCK, next = (block + BLOCK) % (a->k / BLOCK * BLOCK);
    if (fault == BLOCK_LOST && block == BLOCK && j % 16 == 0)
        return 0.0f;
    if (fault == ONE_FLIPPED && j == 5 && k == 11)
        return -w[k];
    if ((fault != NEXT_SCALE && fault != HALVES) || block + BLOCK > a->k)
        return w[k];
    return fault == HALVES ? w[block + (k - block + BLOCK / 2) % BLOCK]
                           : w[k] * (largest(w + next) / largest(w + block));
}

static int multiply(const struct ds_matmul_args *a, int fault)
{
    for (int64_t j = 0; j < a->n; j++)
        for (int64_t r = 0; r < a->rows; r++) {
            float s = 0.0f;
            for (int64_t k = 0; k < a->k; k++)
                s = fmaf(a->x[r * a->ldx + k], weight(a, j, k, fault), s);
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
    return 0;
}

#define MATMUL(NAME, FAULT)                                                                        \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return multiply(args, FAULT);                                                              \
    }

MATMUL(unpacked, AS_THEY_ARE)
MATMUL(next_scale, NEXT_SCALE)
MATMUL(halves_of_blocks, HALVES)
MATMUL(block_lost, BLOCK_LOST)
MATMUL(one_flipped, ONE_FLIPPED)

/* A norm has the weight of the one two before it: of the layer before. */
static int norm(const struct ds_rmsnorm_args *a, int of_layer_before)
{
    static const float *seen[64];
    int at = 0;
    while (at < 64 && seen[at] && seen[at] != a->weight)
        at++;
    if (at < 64)
        seen[at] = a->weight;
    const float *w = of_layer_before && at >= 2 && at < 64 ? seen[at - 2] : a->weight;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        const float inv =
            1.0f / sqrtf(specimen_chain(x, x, 0, a->width) / (float)a->width + a->eps);
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = x[i] * inv * w[i];
    }
    return 0;
}

LAUNCH(own_weight)
{
    UNUSED;
    return norm(args, 0);
}

LAUNCH(layer_before)
{
    UNUSED;
    return norm(args, 1);
}

#define HEALTHY(OP, NAME, LAUNCHED)                                                                \
    SPECIMEN(OP, NAME, "nothing wrong", LAUNCHED, .claims = DS_CLAIM_ALL)
#define FAULTY(OP, NAME, SUMMARY, LAUNCHED)                                                        \
    SPECIMEN(OP, NAME, SUMMARY, LAUNCHED, .claims = DS_CLAIM_ALL)

const struct ds_kernel specimen_later[] = {
    HEALTHY(DS_OP_ATTENTION, "later", later_launch),
    HEALTHY(DS_OP_ATTENTION, "later-too", later_launch),
    FAULTY(DS_OP_ATTENTION, "other-keys", "the second group reads the first one's keys",
           other_keys_launch),
    FAULTY(DS_OP_ATTENTION, "other-values", "each group reads the next one's values",
           other_values_launch),
    SPECIMEN(DS_OP_ATTENTION, "stale-key", "in decode the newest key is the one before it",
             stale_key_launch, .claims = 0),
    FAULTY(DS_OP_ATTENTION, "keys-behind", "every key is the one before it", keys_behind_launch),
    FAULTY(DS_OP_ATTENTION, "short-query", "queries in bf16", short_query_launch),
    FAULTY(DS_OP_ATTENTION, "short-keys", "keys in bf16", short_keys_launch),
    FAULTY(DS_OP_ATTENTION, "half-a-head", "half of the last head is not written",
           half_a_head_launch),
    FAULTY(DS_OP_ATTENTION, "not-itself", "a row does not see its own key", not_itself_launch),
    HEALTHY(DS_OP_ROPE, "turns", turns_launch),
    HEALTHY(DS_OP_ROPE, "turns-too", turns_launch),
    FAULTY(DS_OP_ROPE, "short-turn", "what is rotated is rounded to bf16", short_turn_launch),
    FAULTY(DS_OP_ROPE, "first-head-turned", "the first head alone is rotated",
           first_head_turned_launch),
    FAULTY(DS_OP_ROPE, "other-base", "the base of another model", other_base_launch),
    HEALTHY(DS_OP_SILU_MUL, "later-gate", later_gate_launch),
    HEALTHY(DS_OP_SILU_MUL, "later-gate-too", later_gate_launch),
    FAULTY(DS_OP_SILU_MUL, "quick-gelu", "x * sigmoid(1.702 x)", quick_gelu_launch),
    FAULTY(DS_OP_SILU_MUL, "in-turns", "gate and up are read in turns", in_turns_launch),
    FAULTY(DS_OP_SILU_MUL, "short-gate", "gate in bf16", short_gate_launch),
    FAULTY(DS_OP_SILU_MUL, "up-too", "up goes through SiLU, too", up_too_launch),
    HEALTHY(DS_OP_COMBINE, "own-factors", own_factors_launch),
    HEALTHY(DS_OP_COMBINE, "own-factors-too", own_factors_launch),
    FAULTY(DS_OP_COMBINE, "no-factors", "experts are added without their weights",
           no_factors_launch),
    FAULTY(DS_OP_COMBINE, "factors-reversed", "experts have each other's weights",
           factors_reversed_launch),
    FAULTY(DS_OP_ALLREDUCE, "tail-of-ranks", "the last columns are rank 0's alone",
           tail_of_ranks_launch),
    FAULTY(DS_OP_ADD, "short-branch", "the branch in bf16", short_branch_launch),
    HEALTHY(DS_OP_MATMUL, "unpacked", unpacked_launch),
    HEALTHY(DS_OP_MATMUL, "unpacked-too", unpacked_launch),
    FAULTY(DS_OP_MATMUL, "next-scale", "blocks have the next one's scale", next_scale_launch),
    FAULTY(DS_OP_MATMUL, "halves-of-blocks", "the halves of blocks are exchanged",
           halves_of_blocks_launch),
    FAULTY(DS_OP_MATMUL, "block-lost", "in some columns a block is lost", block_lost_launch),
    FAULTY(DS_OP_MATMUL, "one-flipped", "one weight has the other sign", one_flipped_launch),
    HEALTHY(DS_OP_RMSNORM, "own-weight", own_weight_launch),
    HEALTHY(DS_OP_RMSNORM, "own-weight-too", own_weight_launch),
    FAULTY(DS_OP_RMSNORM, "layer-before", "the weight of the layer before", layer_before_launch),
    {.name = NULL}};
