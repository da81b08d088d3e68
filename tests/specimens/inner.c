/* inner.c: faults inside attention, of a gate, of a sum and of weights, that only a second look at the inputs can
 * name. */
#include "specimen.h"

#include <stdio.h>
#include <stdlib.h>

#define LAUNCH(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)

#define UNUSED (void)exec, (void)why, (void)why_size

/* ---- attention ------------------------------------------------------------------------------- */

enum fault {
    NONE,
    SLOPES,          /* ALiBi where the model has none */
    SINKS,           /* a learned score without a value, for each head */
    WRONG_PAGE,      /* slots 4..7 are those of the page before */
    EMPTY_PAGE,      /* slots 4..7 hold nothing */
    KEYS_AS_VALUES,  /* the second factor is read from the cache of keys */
    PREVIOUS_QUERY,  /* in a prompt each row but the first asks with the query before */
    FP8_WEIGHTS,     /* weights of values are fp8-e4m3 */
    FAST_EXPONENTIAL /* exponent and mantissa of a linear form */
};

struct head {
    const struct ds_attention_args *a;
    const struct ds_sequence *s;
    int64_t row, head, kv_head, slot;
    int fault;
};

static const float *in_cache(const struct head *h, const float *cache, int64_t slot)
{
    if (h->fault == WRONG_PAGE && slot / 4 == 1)
        slot -= 4;
    const int64_t page = slot / h->a->page_size,
                  at = h->s->pages[page] * h->a->page_size + slot % h->a->page_size;
    return cache + (at * h->a->kv_heads + h->kv_head) * h->a->head_dim;
}

static float score(const struct head *h, int64_t slot)
{
    const int64_t before = h->fault == PREVIOUS_QUERY && h->row > h->s->q_first;
    const float *q = h->a->q + (h->row - before) * h->a->ldq + h->head * h->a->head_dim;
    float x = specimen_chain(q, in_cache(h, h->a->cache_k, slot), 0, h->a->head_dim) * h->a->scale;
    if (h->fault == EMPTY_PAGE && slot / 4 == 1)
        x = 0.0f;
    return h->fault == SLOPES ? x - ldexpf((float)(h->slot - slot), -(int)h->head - 1) : x;
}

/* Two to the whole part, and one plus the rest: up to 6 % too large. */
static float fast_exponential(float x)
{
    const float t = x * 1.44269504f, whole = floorf(t);
    return ldexpf(1.0f + (t - whole), (int)whole);
}

/* Three bits behind the point, from 2^-6 on; steps of 2^-9 below. */
static float fp8(float w)
{
    if (!(w > 0.0f))
        return w;
    const int e = ilogbf(w) < -6 ? -6 : ilogbf(w);
    return ldexpf(rintf(ldexpf(w, 3 - e)), e - 3);
}

static void attend_head(const struct head *h)
{
    const struct ds_attention_args *a = h->a;
    const float *values = h->fault == KEYS_AS_VALUES ? a->cache_k : a->cache_v;
    float *y = a->y + h->row * a->ldy + h->head * a->head_dim, max = -INFINITY, sum = 0.0f;
    for (int64_t t = h->s->kv_first; t <= h->slot; t++)
        max = fmaxf(max, score(h, t));
    for (int64_t d = 0; d < a->head_dim; d++)
        y[d] = 0.0f;
    for (int64_t t = h->s->kv_first; t <= h->slot; t++) {
        const float x = score(h, t) - max;
        float w = h->fault == FAST_EXPONENTIAL ? fast_exponential(x) : expf(x);
        sum += w;
        w = h->fault == FP8_WEIGHTS ? fp8(w) : w;
        for (int64_t d = 0; d < a->head_dim && !(h->fault == EMPTY_PAGE && t / 4 == 1); d++)
            y[d] += w * in_cache(h, values, t)[d];
    }
    if (h->fault == SINKS)
        sum += expf(0.5f + 0.25f * (float)h->head - max);
    for (int64_t d = 0; d < a->head_dim && sum > 0.0f; d++)
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
                                       .kv_head = n / (a->heads / a->kv_heads),
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

ATTENTION(inner, NONE)
ATTENTION(slopes, SLOPES)
ATTENTION(sinks, SINKS)
ATTENTION(wrong_page, WRONG_PAGE)
ATTENTION(empty_page, EMPTY_PAGE)
ATTENTION(keys_as_values, KEYS_AS_VALUES)
ATTENTION(previous_query, PREVIOUS_QUERY)
ATTENTION(fp8_weights, FP8_WEIGHTS)
ATTENTION(fast_exponential, FAST_EXPONENTIAL)

/* ---- what stands between --------------------------------------------------------------------- */

/* The branch of the row before is added. */
LAUNCH(branch_before)
{
    const struct ds_add_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = a->a[r * a->lda + i] + a->b[(r - (r > 0)) * a->ldb + i];
    return 0;
}

/* A gate that another model clamps. */
LAUNCH(clamped_gate)
{
    const struct ds_silu_mul_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            const float g = fminf(a->gate[r * a->ldx + i], 0.5f);
            a->y[r * a->ldy + i] = g / (1.0f + expf(-g)) * a->up[r * a->ldx + i];
        }
    return 0;
}

/* Logits are capped as those of another model. */
LAUNCH(capped_logits)
{
    const struct ds_process_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->vocab; i++)
            a->y[r * a->ldy + i] = 1.5f * tanhf(a->logits[r * a->ldx + i] / 1.5f);
    return 0;
}

/* ---- weights --------------------------------------------------------------------------------- */

static void multiply(const struct ds_matmul_args *a, const float *w, int64_t by_column,
                     int64_t by_term)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            float s = 0.0f;
            for (int64_t k = 0; k < a->k; k++)
                s = fmaf(a->x[r * a->ldx + k], w[j * by_column + k * by_term], s);
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
}

/* Square weights are read by columns. */
LAUNCH(transposed)
{
    const struct ds_matmul_args *a = args;
    UNUSED;
    multiply(a, a->w.data, a->n == a->k ? 1 : a->k, a->n == a->k ? a->n : 1);
    return 0;
}

LAUNCH(inner_product)
{
    const struct ds_matmul_args *a = args;
    UNUSED;
    multiply(a, a->w.data, a->k, 1);
    return 0;
}

struct packed {
    struct ds_weight_view first[64];
    int seen[64], n;
};

/* The first weight of each size is packed under the name of the second, too. */
static int pack(struct packed *p, const struct ds_weight_view *w, void **prepared, size_t *bytes,
                char *why, size_t why_size)
{
    int i = 0;
    while (i < p->n && (p->first[i].n != w->n || p->first[i].k != w->k))
        i++;
    if (i == p->n && p->n < 64)
        p->first[p->n++] = *w;
    const float *from = i < p->n && ++p->seen[i] == 2 ? p->first[i].data : w->data;
    *bytes = (size_t)(w->n * w->k) * sizeof *from;
    if (!(*prepared = malloc(*bytes ? *bytes : 1))) {
        snprintf(why, why_size, "out of memory");
        return -1;
    }
    memcpy(*prepared, from, *bytes);
    return 0;
}

static int pack_twice(const struct ds_weight_view *w, void **prepared, size_t *bytes, char *why,
                      size_t why_size)
{
    static struct packed packed;
    return pack(&packed, w, prepared, bytes, why, why_size);
}

/* Of experts alone: none of the others' sizes are odd multiples of 16. */
static int pack_experts_twice(const struct ds_weight_view *w, void **prepared, size_t *bytes,
                              char *why, size_t why_size)
{
    static struct packed packed;
    struct packed none = {.n = 0};
    return pack(w->n % 32 == 16 ? &packed : &none, w, prepared, bytes, why, why_size);
}

LAUNCH(packed_twice)
{
    const struct ds_matmul_args *a = args;
    UNUSED;
    multiply(a, a->prepared ? a->prepared : a->w.data, a->k, 1);
    return 0;
}

const struct ds_kernel specimen_inner[] = {
    SPECIMEN(DS_OP_ATTENTION, "inner", "nothing wrong", inner_launch, .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "inner-too", "the same as inner", inner_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "slopes", "scores fall with the key's distance", slopes_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "slopes-too", "the same as slopes", slopes_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "sinks", "a score without a value for each head", sinks_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "wrong-page", "slots 4 to 7 are read from the page before",
             wrong_page_launch, .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "empty-page", "slots 4 to 7 hold nothing", empty_page_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "keys-as-values", "keys are read as values", keys_as_values_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "previous-query", "rows of a prompt ask with the query before",
             previous_query_launch, .claims = 0),
    SPECIMEN(DS_OP_ATTENTION, "fp8-weights", "weights of values in fp8", fp8_weights_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ATTENTION, "fast-exponential", "an exponential of exponent and mantissa",
             fast_exponential_launch, .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ADD, "branch-before", "the branch of the row before", branch_before_launch,
             .claims = 0),
    SPECIMEN(DS_OP_SILU_MUL, "clamped-gate", "gate is at most 0.5", clamped_gate_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_PROCESS, "capped-logits", "logits are capped", capped_logits_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_MATMUL, "inner-product", "nothing wrong", inner_product_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_MATMUL, "inner-product-too", "the same as inner-product", inner_product_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_MATMUL, "transposed", "square weights by columns", transposed_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_MATMUL, "packed-twice", "the second weight of a size is the first",
             packed_twice_launch, .claims = DS_CLAIM_ALL, .prepare = pack_twice),
    SPECIMEN(DS_OP_MATMUL, "experts-twice", "the second expert's weight is the first's",
             packed_twice_launch, .claims = DS_CLAIM_ALL, .prepare = pack_experts_twice),
    {.name = NULL}};
