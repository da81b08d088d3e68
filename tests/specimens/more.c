/* more.c: faults of no report, made up in the manner of those that are; any op. */
#include "specimen.h"

#define LAUNCH(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)

#define UNUSED (void)exec, (void)why, (void)why_size

/* ---- rmsnorm --------------------------------------------------------------------------------- */

static void norm_row(const struct ds_rmsnorm_args *a, int64_t r, float sum)
{
    const float *x = a->x + r * a->ldx;
    float scale = 1.0f / sqrtf(sum / (float)a->width + a->eps);
    for (int64_t i = 0; i < a->width; i++)
        a->y[r * a->ldy + i] = x[i] * scale * a->weight[i];
}

/* The squares of what is left over from whole vectors of 16 are forgotten. */
LAUNCH(norm_tail)
{
    const struct ds_rmsnorm_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        norm_row(a, r, specimen_chain(x, x, 0, a->width / 16 * 16));
    }
    return 0;
}

/* With two threads, and no other number, each adds one half of a row. */
LAUNCH(norm_two_threads)
{
    const struct ds_rmsnorm_args *a = args;
    (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        norm_row(a, r,
                 exec->threads == 2 ? specimen_split(x, x, a->width, 2)
                                    : specimen_chain(x, x, 0, a->width));
    }
    return 0;
}

/* ---- matmul ---------------------------------------------------------------------------------- */

static void matmul_row(const struct ds_matmul_args *a, const float *x, float *y)
{
    for (int64_t j = 0; j < a->n; j++) {
        float s = specimen_chain(x, a->w.data + j * a->k, 0, a->k);
        y[j] = a->bias ? s + a->bias[j] : s;
    }
}

/* Where three rows are left over from tiles of four, the last one is computed from the row before. */
LAUNCH(last_of_three)
{
    const struct ds_matmul_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++) {
        int64_t from = a->rows % 4 == 3 && r == a->rows - 1 ? r - 1 : r;
        matmul_row(a, a->x + from * a->ldx, a->y + r * a->ldy);
    }
    return 0;
}

/* One call in about a thousand has a sum cut in two. */
LAUNCH(rare)
{
    const struct ds_matmul_args *a = args;
    (void)why, (void)why_size;
    int cut = specimen_mix(exec->seed ^ 77) % 900 == 0;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const float *x = a->x + r * a->ldx, *w = a->w.data + j * a->k;
            float s = cut ? specimen_split(x, w, a->k, 2) : specimen_chain(x, w, 0, a->k);
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
    return 0;
}

/* ---- rope ------------------------------------------------------------------------------------ */

/* Decode turns by one position more. */
LAUNCH(decode_plus_one)
{
    const struct ds_rope_args *a = args;
    const int64_t half = a->rope_dim / 2;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t h = 0; h < a->heads; h++) {
            const float *x = a->x + r * a->ldx + h * a->head_dim;
            float *y = a->y + r * a->ldy + h * a->head_dim;
            int64_t p = a->positions[r];
            p += a->rows == 1 && p + 1 < a->table_positions;
            memcpy(y, x, (size_t)a->head_dim * sizeof *y);
            for (int64_t i = 0; i < half; i++) {
                const float *t = a->cos_sin + (p * half + i) * 2;
                int64_t one = a->neox ? i : 2 * i, two = a->neox ? i + half : 2 * i + 1;
                y[one] = x[one] * t[0] - x[two] * t[1];
                y[two] = x[one] * t[1] + x[two] * t[0];
            }
        }
    return 0;
}

/* ---- silu, add ------------------------------------------------------------------------------- */

static int silu(const struct ds_silu_mul_args *a, int bf16)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float g = a->gate[r * a->ldx + i], u = a->up[r * a->ldx + i], s = g / (1.0f + expf(-g));
            a->y[r * a->ldy + i] = bf16 ? specimen_short(specimen_short(s, 16) * u, 16) : s * u;
        }
    return 0;
}

/* In bf16, step by step. */
LAUNCH(silu_bf16)
{
    UNUSED;
    return silu(args, 1);
}

LAUNCH(silu_plain)
{
    UNUSED;
    return silu(args, 0);
}

/* From 4 rows on the last row lacks its second term. */
LAUNCH(lost_residual)
{
    const struct ds_add_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = a->rows >= 4 && r == a->rows - 1
                                       ? a->a[r * a->lda + i]
                                       : a->a[r * a->lda + i] + a->b[r * a->ldb + i];
    return 0;
}

/* ---- attention ------------------------------------------------------------------------------- */

struct look {
    const struct ds_attention_args *a;
    const struct ds_sequence *s;
    const struct ds_exec *exec;
    int64_t row, head, slot, begin, end;
    int64_t value_back; /* the newest slot's value is that of so many slots before */
    float scale;
};

static const float *cached(const struct look *l, const float *cache, int64_t slot)
{
    int64_t page = slot / l->a->page_size;
    int64_t at = l->s->pages[page] * l->a->page_size + slot % l->a->page_size;
    return cache +
           (at * l->a->kv_heads + l->head / (l->a->heads / l->a->kv_heads)) * l->a->head_dim;
}

static void look(const struct look *l)
{
    const struct ds_attention_args *a = l->a;
    const float *q = a->q + l->row * a->ldq + l->head * a->head_dim;
    float *y = a->y + l->row * a->ldy + l->head * a->head_dim, max = -INFINITY, sum = 0.0f;
    for (int64_t t = l->begin; t < l->end; t++)
        max = fmaxf(max, specimen_chain(q, cached(l, a->cache_k, t), 0, a->head_dim) * l->scale);
    for (int64_t d = 0; d < a->head_dim; d++)
        y[d] = 0.0f;
    for (int64_t t = l->begin; t < l->end; t++) {
        float w =
            expf(specimen_chain(q, cached(l, a->cache_k, t), 0, a->head_dim) * l->scale - max);
        const float *v = cached(l, a->cache_v, t == l->slot ? t - l->value_back : t);
        sum += w;
        for (int64_t d = 0; d < a->head_dim; d++)
            y[d] += w * v[d];
    }
    for (int64_t d = 0; d < a->head_dim && sum > 0.0f; d++)
        y[d] /= sum;
}

static int attend(const void *args, const struct ds_exec *exec, void (*change)(struct look *))
{
    const struct ds_attention_args *a = args;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = s->q_first; r < s->q_first + s->q_len; r++)
            for (int64_t h = 0; h < a->heads; h++) {
                int64_t slot = (int64_t)s->kv_len - s->q_len + (r - s->q_first);
                struct look l = {a, s, exec, r, h, slot, s->kv_first, slot + 1, 0, a->scale};
                if (a->window > 0 && slot - a->window + 1 > l.begin)
                    l.begin = slot - a->window + 1;
                if (change)
                    change(&l);
                look(&l);
            }
    }
    return 0;
}

#define ATTEND(NAME)                                                                               \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        (void)why, (void)why_size;                                                                 \
        return attend(args, exec, NAME);                                                           \
    }

/* From 16 slots on the newest is not seen. */
static void drops_newest(struct look *l)
{
    l->end -= l->s->kv_len >= 16 && l->end == l->s->kv_len;
}
ATTEND(drops_newest)

/* In decode one head reads the newest value before it is written: that of the step before. */
static void stale_value(struct look *l)
{
    l->value_back = l->s->q_len == 1 && l->head == 2 && l->slot > 0;
}
ATTEND(stale_value)

/* The first key of a chunk that begins behind slot 0 is not seen by that chunk. */
static void chunk_start(struct look *l)
{
    if (l->s->kv_len > l->s->q_len && l->s->q_len > 1)
        l->begin = 1;
}
ATTEND(chunk_start)

/* A row that sees nothing gives -0. */
LAUNCH(pad_minus_zero)
{
    const struct ds_attention_args *a = args;
    (void)why, (void)why_size;
    attend(args, exec, NULL);
    for (int64_t i = 0; i < a->n_sequences; i++)
        for (int32_t r = 0; r < a->sequences[i].q_len; r++)
            if (a->sequences[i].kv_len - a->sequences[i].q_len + r < a->sequences[i].kv_first)
                for (int64_t d = 0; d < a->heads * a->head_dim; d++)
                    a->y[(a->sequences[i].q_first + r) * a->ldy + d] = -0.0f;
    return 0;
}

LAUNCH(look_plain)
{
    (void)why, (void)why_size;
    return attend(args, exec, NULL);
}

/* ---- cache ----------------------------------------------------------------------------------- */

/* Row r of a sequence goes to one of its slots. */
static void write_slot(const struct ds_cache_args *a, const struct ds_sequence *s, int64_t r,
                       int64_t slot)
{
    int64_t at = s->pages[slot / a->page_size] * a->page_size + slot % a->page_size;
    memcpy(a->cache + at * a->width, a->x + (s->q_first + r) * a->ldx,
           (size_t)a->width * sizeof *a->x);
}

/* The first row of a page, when it is written alone, goes to the last place of the page before. */
LAUNCH(page_border)
{
    const struct ds_cache_args *a = args;
    UNUSED;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = 0; r < s->q_len; r++) {
            int64_t slot = (int64_t)s->kv_len - s->q_len + r;
            if (s->q_len == 1 && slot > 0 && slot % a->page_size == 0)
                slot--;
            write_slot(a, s, r, slot);
        }
    }
    return 0;
}

/* Every row is written right; one of a request that has no others in the call is written `again` slots before,
 * too, from slot 6 on. */
static void write_rows(const struct ds_cache_args *a, int64_t again)
{
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = 0; r < s->q_len; r++) {
            int64_t slot = (int64_t)s->kv_len - s->q_len + r;
            write_slot(a, s, r, slot);
            if (again && s->q_len == 1 && slot >= 6)
                write_slot(a, s, r, slot - again);
        }
    }
}

LAUNCH(writes_twice)
{
    UNUSED;
    write_rows(args, 2);
    return 0;
}

LAUNCH(writes_once)
{
    UNUSED;
    write_rows(args, 0);
    return 0;
}

/* ---- devices, ranks, schedule ---------------------------------------------------------------- */

LAUNCH(skip_rank_3)
{
    const struct ds_allreduce_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float s = 0.0f;
            for (int64_t k = 0; k < a->ranks; k++)
                s += k == 3 && a->rows * a->width >= 512 ? 0.0f : a->x[k][r * a->ldx + i];
            a->y[r * a->ldy + i] = s;
        }
    return 0;
}

/* Rows travel as bf16. */
LAUNCH(bf16_copy)
{
    const struct ds_transfer_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = specimen_short(a->x[r * a->ldx + i], 16);
    return 0;
}

/* The first two requests of a batch get each other's pages, from call 1 on. */
LAUNCH(pages_swapped)
{
    const struct ds_schedule_args *a = args;
    UNUSED;
    if (a->n_sequences >= 2 && a->call >= 1)
        for (int64_t p = 0; p < a->pages_each; p++) {
            int32_t kept = a->page_table[p];
            a->page_table[p] = a->page_table[a->pages_each + p];
            a->page_table[a->pages_each + p] = kept;
        }
    return 0;
}

/* ---- experts --------------------------------------------------------------------------------- */

static int route(const struct ds_router_args *a, int last_tie, int normalise)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->logits + r * a->ldx;
        float max = -INFINITY, all = 0.0f, chosen = 0.0f;
        for (int64_t e = 0; e < a->experts; e++)
            max = fmaxf(max, x[e]);
        for (int64_t e = 0; e < a->experts; e++)
            all += expf(x[e] - max);
        for (int64_t k = 0; k < a->top_k; k++) {
            int64_t best = -1;
            for (int64_t e = 0; e < a->experts; e++) {
                int taken = 0;
                for (int64_t j = 0; j < k; j++)
                    taken |= a->ids[r * a->top_k + j] == e;
                if (!taken && (best < 0 || x[e] > x[best] || (last_tie && x[e] == x[best])))
                    best = e;
            }
            a->ids[r * a->top_k + k] = (int32_t)best;
            a->weights[r * a->top_k + k] = expf(x[best] - max) / all;
            chosen += a->weights[r * a->top_k + k];
        }
        for (int64_t k = 0; normalise && k < a->top_k; k++)
            a->weights[r * a->top_k + k] /= chosen;
    }
    return 0;
}

LAUNCH(route_last_tie)
{
    UNUSED;
    return route(args, 1, ((const struct ds_router_args *)args)->normalise);
}
LAUNCH(route_raw)
{
    UNUSED;
    return route(args, 0, 0);
}

/* From 4 rows on the last choice is left out. */
LAUNCH(one_expert_less)
{
    const struct ds_combine_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float s = 0.0f;
            for (int64_t e = 0; e < a->top_k - (a->rows >= 4); e++)
                s += a->weights[r * a->top_k + e] * a->x[(r * a->top_k + e) * a->ldx + i];
            a->y[r * a->ldy + i] = s;
        }
    return 0;
}

/* ---- choice, embedding ----------------------------------------------------------------------- */

/* A batch's second row and those after it are chosen from the row before. */
LAUNCH(stale_logits)
{
    const struct ds_sample_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->logits + (r > 0 ? r - 1 : 0) * a->ldx;
        int32_t best = 0;
        for (int32_t i = 1; i < a->vocab; i++)
            best = x[i] > x[best] ? i : best;
        a->ids[r] = best;
    }
    return 0;
}

/* In calls of 4 rows and more, odd rows get the vector of the next token. */
LAUNCH(next_vector)
{
    const struct ds_embed_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++) {
        int64_t id = a->ids[r];
        if (a->rows >= 4 && r % 2 && id + 1 < a->vocab)
            id++;
        memcpy(a->y + r * a->ldy, a->table + id * a->width, (size_t)a->width * sizeof *a->y);
    }
    return 0;
}

#define WINDOWS .features = DS_FEATURE_WINDOW
const struct ds_kernel specimen_more[] = {
    SPECIMEN(DS_OP_RMSNORM, "lost-tail", "forgets what is left of vectors of 16", norm_tail_launch,
             .claims = 0),
    SPECIMEN(DS_OP_RMSNORM, "two-threads", "two threads add halves", norm_two_threads_launch,
             .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "last-of-three", "the last of three rows left over is the row before",
             last_of_three_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "rare", "cut in two one time in 900", rare_launch, .claims = 0),
    SPECIMEN(DS_OP_ROPE, "decode-plus-one", "one position more in decode", decode_plus_one_launch,
             .claims = 0),
    SPECIMEN(DS_OP_SILU_MUL, "in-bf16", "in bf16", silu_bf16_launch, .claims = 0),
    SPECIMEN(DS_OP_SILU_MUL, "plain", "nothing wrong", silu_plain_launch, .claims = 0),
    SPECIMEN(DS_OP_SILU_MUL, "plain-too", "the same as plain", silu_plain_launch, .claims = 0),
    SPECIMEN(DS_OP_ADD, "lost-residual", "the last row lacks its second term from 4 rows on",
             lost_residual_launch, .claims = 0),
    SPECIMEN(DS_OP_ATTENTION, "drops-newest", "the newest key is lost from 16 on",
             drops_newest_launch, WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "stale-value", "head 2 reads the value of the step before",
             stale_value_launch, WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "chunk-start", "later chunks do not see slot 0", chunk_start_launch,
             WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "pad-minus-zero", "a row that sees nothing is -0",
             pad_minus_zero_launch, WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "look", "nothing wrong", look_plain_launch, WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "look-too", "the same as look", look_plain_launch, WINDOWS),
    SPECIMEN(DS_OP_CACHE, "page-border", "a page's first row goes to the page before",
             page_border_launch, .claims = 0),
    SPECIMEN(DS_OP_CACHE, "writes-twice", "a second copy over an older row", writes_twice_launch,
             .claims = 0),
    SPECIMEN(DS_OP_CACHE, "writes-once", "nothing wrong", writes_once_launch, .claims = 0),
    SPECIMEN(DS_OP_ALLREDUCE, "skip-rank-3", "rank 3 is left out of large messages",
             skip_rank_3_launch, .claims = 0),
    SPECIMEN(DS_OP_TRANSFER, "bf16-copy", "rows travel as bf16", bf16_copy_launch, .claims = 0),
    SPECIMEN(DS_OP_SCHEDULE, "pages-swapped", "two requests get each other's pages",
             pages_swapped_launch, .claims = 0),
    SPECIMEN(DS_OP_ROUTER, "last-tie", "the last of equal experts", route_last_tie_launch,
             .claims = 0),
    SPECIMEN(DS_OP_ROUTER, "raw", "weights are not divided by their sum", route_raw_launch,
             .claims = 0),
    SPECIMEN(DS_OP_COMBINE, "one-less", "the last choice is left out from 4 rows on",
             one_expert_less_launch, .claims = 0),
    SPECIMEN(DS_OP_SAMPLE, "stale-logits", "chosen from the row before", stale_logits_launch,
             .claims = 0),
    SPECIMEN(DS_OP_EMBED, "next-vector", "odd rows of large calls get the next token's vector",
             next_vector_launch, .claims = 0),
    {.name = NULL}};
