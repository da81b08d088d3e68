/* extra.c: more faults of no report, any op; what each does to its rows is simple, and should be told. */
#include "specimen.h"

#define LAUNCH(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)

#define UNUSED (void)exec, (void)why, (void)why_size

/* From 4 rows on the last product of every sum is lost. */
LAUNCH(lost_product)
{
    const struct ds_matmul_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            float s =
                specimen_chain(a->x + r * a->ldx, a->w.data + j * a->k, 0, a->k - (a->rows >= 4));
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
    return 0;
}

/* With more than one thread the last of several rows is cleared. */
LAUNCH(lost_row)
{
    const struct ds_rmsnorm_args *a = args;
    (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        int lost = exec->threads > 1 && a->rows > 1 && r == a->rows - 1;
        float scale = 1.0f / sqrtf(specimen_chain(x, x, 0, a->width) / (float)a->width + a->eps);
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = lost ? 0.0f : x[i] * scale * a->weight[i];
    }
    return 0;
}

/* Each row of inputs is rounded to 127 steps of its largest value. */
LAUNCH(int8_rows)
{
    const struct ds_matmul_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        float most = 0.0f;
        for (int64_t k = 0; k < a->k; k++)
            most = fmaxf(most, fabsf(x[k]));
        const float step = most > 0.0f ? most / 127.0f : 1.0f;
        for (int64_t j = 0; j < a->n; j++) {
            float s = 0.0f;
            for (int64_t k = 0; k < a->k; k++)
                s += rintf(x[k] / step) * a->w.data[j * a->k + k];
            a->y[r * a->ldy + j] = a->bias ? s * step + a->bias[j] : s * step;
        }
    }
    return 0;
}

/* The mean of a row is subtracted first. */
LAUNCH(with_mean)
{
    const struct ds_rmsnorm_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        float mean = 0.0f, square = 0.0f;
        for (int64_t i = 0; i < a->width; i++)
            mean += x[i];
        mean /= (float)a->width;
        for (int64_t i = 0; i < a->width; i++)
            square += (x[i] - mean) * (x[i] - mean);
        float scale = 1.0f / sqrtf(square / (float)a->width + a->eps);
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = (x[i] - mean) * scale * a->weight[i];
    }
    return 0;
}

/* ---- rope ------------------------------------------------------------------------------------ */

enum turn { ALL, FIRST_HALF, FROM_CALL };

/* How: frequencies of the first half only, or positions counted from the call's first. */
static int rotate(const struct ds_rope_args *a, int64_t wrap, int coarse, int how)
{
    const int64_t half = a->rope_dim / 2, turned = how == FIRST_HALF ? half / 2 : half;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t h = 0; h < a->heads; h++) {
            const float *x = a->x + r * a->ldx + h * a->head_dim;
            float *y = a->y + r * a->ldy + h * a->head_dim;
            int64_t p = wrap ? a->positions[r] % wrap : a->positions[r];
            if (how == FROM_CALL && a->rows > 1)
                p -= a->positions[0];
            memcpy(y, x, (size_t)a->head_dim * sizeof *y);
            for (int64_t i = 0; i < turned; i++) {
                const float *t = a->cos_sin + (p * half + i) * 2;
                float c = coarse ? specimen_short(t[0], 16) : t[0],
                      s = coarse ? specimen_short(t[1], 16) : t[1];
                int64_t one = a->neox ? i : 2 * i, two = a->neox ? i + half : 2 * i + 1;
                y[one] = x[one] * c - x[two] * s;
                y[two] = x[one] * s + x[two] * c;
            }
        }
    return 0;
}

/* A table of 8 positions, read in circles. */
LAUNCH(short_table)
{
    UNUSED;
    return rotate(args, 8, 0, ALL);
}

/* A table of bf16. */
LAUNCH(bf16_table)
{
    UNUSED;
    return rotate(args, 0, 1, ALL);
}

/* Half of the frequencies. */
LAUNCH(half_turned)
{
    UNUSED;
    return rotate(args, 0, 0, FIRST_HALF);
}

/* Every call of a prompt begins at position 0. */
LAUNCH(from_call)
{
    UNUSED;
    return rotate(args, 0, 0, FROM_CALL);
}

/* ---- attention ------------------------------------------------------------------------------- */

struct view {
    const struct ds_attention_args *a;
    const struct ds_sequence *s;
    int64_t row, head, kv_head, slot, begin, end;
    float cap; /* of the scores; 0: none */
    int bf16;  /* the weights of values */
};

static const float *at_slot(const struct view *v, const float *cache, int64_t slot)
{
    int64_t page = slot / v->a->page_size,
            at = v->s->pages[page] * v->a->page_size + slot % v->a->page_size;
    return cache + (at * v->a->kv_heads + v->kv_head) * v->a->head_dim;
}

static float score(const struct view *v, int64_t slot)
{
    const float *q = v->a->q + v->row * v->a->ldq + v->head * v->a->head_dim;
    float x = specimen_chain(q, at_slot(v, v->a->cache_k, slot), 0, v->a->head_dim) * v->a->scale;
    return v->cap > 0.0f ? v->cap * tanhf(x / v->cap) : x;
}

static void attend_view(const struct view *v)
{
    float *y = v->a->y + v->row * v->a->ldy + v->head * v->a->head_dim, max = -INFINITY, sum = 0.0f;
    for (int64_t t = v->begin; t < v->end; t++)
        max = fmaxf(max, score(v, t));
    for (int64_t d = 0; d < v->a->head_dim; d++)
        y[d] = 0.0f;
    for (int64_t t = v->begin; t < v->end; t++) {
        float w = expf(score(v, t) - max);
        sum += w;
        w = v->bf16 ? specimen_short(w, 16) : w;
        for (int64_t d = 0; d < v->a->head_dim; d++)
            y[d] += w * at_slot(v, v->a->cache_v, t)[d];
    }
    for (int64_t d = 0; d < v->a->head_dim && sum > 0.0f; d++)
        y[d] /= sum;
}

static int attend(const void *args, void (*change)(struct view *))
{
    const struct ds_attention_args *a = args;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = s->q_first; r < s->q_first + s->q_len; r++)
            for (int64_t h = 0; h < a->heads; h++) {
                int64_t slot = (int64_t)s->kv_len - s->q_len + (r - s->q_first);
                struct view v = {.a = a,
                                 .s = s,
                                 .row = r,
                                 .head = h,
                                 .kv_head = h / (a->heads / a->kv_heads),
                                 .slot = slot,
                                 .begin = s->kv_first,
                                 .end = slot + 1};
                if (change)
                    change(&v);
                attend_view(&v);
            }
    }
    return 0;
}

#define VIEW(NAME)                                                                                 \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return attend(args, NAME);                                                                 \
    }

LAUNCH(view)
{
    UNUSED;
    return attend(args, NULL);
}

/* The mask is one place too wide: in a prompt each row sees the next key, too. */
static void next_key(struct view *v)
{
    v->end += v->end < v->s->kv_len;
}
VIEW(next_key)

/* No mask: every row sees all that is in the cache. */
static void no_mask(struct view *v)
{
    v->end = v->s->kv_len;
}
VIEW(no_mask)

/* A cap on the scores that the model does not ask for. */
static void capped(struct view *v)
{
    v->cap = 2.0f;
}
VIEW(capped)

/* Weights are bf16 when values are multiplied with them, not in their sum. */
static void bf16_weights(struct view *v)
{
    v->bf16 = 1;
}
VIEW(bf16_weights)

/* One head of the second group reads the first group's keys and values. */
static void one_head(struct view *v)
{
    if (v->head == v->a->heads / v->a->kv_heads)
        v->kv_head = 0;
}
VIEW(one_head)

/* A chunk attends to itself alone; decode is right. */
static void own_chunk(struct view *v)
{
    if (v->s->q_len > 1)
        v->begin = v->s->kv_len - v->s->q_len;
}
VIEW(own_chunk)

/* ---- what stands between --------------------------------------------------------------------- */

static int add_with(const struct ds_add_args *a, float factor)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = a->a[r * a->lda + i] + factor * a->b[r * a->ldb + i];
    return 0;
}

LAUNCH(subtracts)
{
    UNUSED;
    return add_with(args, -1.0f);
}

/* A scale of the branch that belongs to another model. */
LAUNCH(half_branch)
{
    UNUSED;
    return add_with(args, 0.5f);
}

static int gate(const struct ds_silu_mul_args *a, int exchanged)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float x = (exchanged ? a->up : a->gate)[r * a->ldx + i],
                  y = (exchanged ? a->gate : a->up)[r * a->ldx + i];
            float gelu = 0.5f * x * (1.0f + erff(x * 0.70710678f));
            a->y[r * a->ldy + i] = (exchanged ? x / (1.0f + expf(-x)) : gelu) * y;
        }
    return 0;
}

LAUNCH(up_first)
{
    UNUSED;
    return gate(args, 1);
}

LAUNCH(gelu)
{
    UNUSED;
    return gate(args, 0);
}

/* Half of each row arrives, twice. */
LAUNCH(half_twice)
{
    const struct ds_transfer_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = a->x[r * a->ldx + i % (a->width / 2)];
    return 0;
}

/* The rows of a call are written from the last slot to the first. */
LAUNCH(backwards)
{
    const struct ds_cache_args *a = args;
    UNUSED;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = 0; r < s->q_len; r++) {
            int64_t slot = (int64_t)s->kv_len - 1 - r,
                    at = s->pages[slot / a->page_size] * a->page_size + slot % a->page_size;
            memcpy(a->cache + at * a->width, a->x + (s->q_first + r) * a->ldx,
                   (size_t)a->width * sizeof *a->x);
        }
    }
    return 0;
}

const struct ds_kernel specimen_extra[] = {
    SPECIMEN(DS_OP_MATMUL, "lost-product", "the last product is lost from 4 rows on",
             lost_product_launch, .claims = 0),
    SPECIMEN(DS_OP_RMSNORM, "lost-row", "the last row is cleared with several threads",
             lost_row_launch, .claims = 0),
    SPECIMEN(DS_OP_RMSNORM, "with-mean", "the mean is subtracted", with_mean_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ROPE, "short-table", "a table of 8 positions in circles", short_table_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ROPE, "bf16-table", "sines and cosines in bf16", bf16_table_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "view", "nothing wrong", view_launch, .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "view-too", "the same as view", view_launch, .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "next-key", "each row sees the next key, too", next_key_launch,
             .claims = 0),
    SPECIMEN(DS_OP_ATTENTION, "capped", "scores are capped", capped_launch, .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "bf16-weights", "weights of values in bf16", bf16_weights_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "one-head", "one head reads another group", one_head_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "own-chunk", "a chunk sees itself alone", own_chunk_launch,
             .claims = 0),
    SPECIMEN(DS_OP_ADD, "subtracts", "the second term is subtracted", subtracts_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ADD, "half-branch", "the second term counts half", half_branch_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_MATMUL, "int8-rows", "each row of inputs in 127 steps", int8_rows_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ROPE, "half-turned", "half of the frequencies are turned", half_turned_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ROPE, "from-call", "a prompt's positions are counted from the call's first",
             from_call_launch, .claims = 0),
    SPECIMEN(DS_OP_ATTENTION, "no-mask", "every row sees all that is in the cache", no_mask_launch,
             .claims = 0),
    SPECIMEN(DS_OP_SILU_MUL, "up-first", "gate and up are exchanged", up_first_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_SILU_MUL, "gelu", "GELU instead of SiLU", gelu_launch, .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_TRANSFER, "half-twice", "half of a row arrives, twice", half_twice_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_CACHE, "backwards", "a call's rows in reverse order", backwards_launch,
             .claims = 0),
    {.name = NULL}};
