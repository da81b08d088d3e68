/* pinned_attention.h: the pinned attention for one instruction set. Included by pinned_body.h after
 * exp and the matmul's tiles.
 *
 * Order (the same for every output whatever the tile): kernels/PINNED.md, attention. Query vectors
 * that read the same KV head, of all heads of its group and of several rows, are computed side by
 * side, so that keys and values are loaded once for all of them. Each keeps its own chains; a row
 * that sees fewer slots than another leaves the values' chain where its own slots end. */
#include "kernels/cpu/pinned_attention_extra.h"

enum { SCORES_LD = DS_PINNED_BLOCK + 16 }; /* room for sixteen scores from any slot on */

/* One block of visible slots of one request: where their keys and values lie. */
struct kv_block {
    int64_t offset[DS_PINNED_BLOCK]; /* of the slot's row and KV head in cache_k and cache_v */
};

static void find_block(struct kv_block *b, const struct ds_attention_args *a,
                       const struct ds_sequence *s, int64_t slot, int64_t n, int64_t kv_head)
{
    const int64_t width = a->kv_heads * a->head_dim;
    int64_t page = slot / a->page_size, in_page = slot % a->page_size;
    for (int64_t j = 0; j < n; j++) {
        b->offset[j] = (s->pages[page] * a->page_size + in_page) * width + kv_head * a->head_dim;
        if (++in_page == a->page_size) {
            in_page = 0;
            page++;
        }
    }
}

/* scale * dot: 16 interleaved chains over the channels, the fixed tree, then one product. */
static inline float score(const float *q, const float *k, int64_t n, float scale)
{
    v16 sum = v16_set1(0.0f);
    int64_t d = 0;
    for (; d + 16 <= n; d += 16)
        sum = v16_fma(v16_load(q + d), v16_load(k + d), sum);
    if (d < n)
        sum =
            v16_head(v16_fma(v16_load_n(q + d, n - d), v16_load_n(k + d, n - d), sum), sum, n - d);
    return v16_tree_sum(sum) * scale;
}

/* sums[i][j] = the 16 interleaved chains of q_i . k_j, for Q query vectors and n <= 16 slots. A
 * lonely slot at the end is computed as often as there is room. */
#define DEFINE_DOTS(Q)                                                                             \
    static void dots_##Q(const float *q, int64_t n, const float *keys, const int64_t *offset,      \
                         int64_t slots, float *sums)                                               \
    {                                                                                              \
        for (int64_t j = 0; j < slots; j += V16_KEYS) {                                            \
            v16 c[Q][V16_KEYS];                                                                    \
            const float *k[V16_KEYS];                                                              \
            TILE_CLEAR(Q, V16_KEYS, c)                                                             \
            UNROLL for (int s = 0; s < V16_KEYS; s++) k[s] =                                       \
                keys + offset[j + s < slots ? j + s : j];                                          \
            for (int64_t d = 0; d < n; d += 16) {                                                  \
                v16 b[V16_KEYS];                                                                   \
                UNROLL for (int s = 0; s < V16_KEYS; s++) b[s] = v16_load(k[s] + d);               \
                UNROLL for (int i = 0; i < Q; i++)                                                 \
                {                                                                                  \
                    v16 x = v16_load(q + i * n + d);                                               \
                    UNROLL for (int s = 0; s < V16_KEYS; s++) c[i][s] = v16_fma(x, b[s], c[i][s]); \
                }                                                                                  \
            }                                                                                      \
            UNROLL for (int i = 0; i < Q; i++) UNROLL for (int s = 0; s < V16_KEYS; s++)           \
                v16_store(sums + (i * 16 + j + s) * 16, c[i][s]);                                  \
        }                                                                                          \
    }

typedef void (*dots_fn)(const float *q, int64_t n, const float *keys, const int64_t *offset,
                        int64_t slots, float *sums);

DEFINE_DOTS(1)
#if V16_QUERIES >= 3
DEFINE_DOTS(2)
DEFINE_DOTS(3)
#endif
#if V16_QUERIES >= 4
DEFINE_DOTS(4)
#endif
static const dots_fn dots[V16_QUERIES + 1] = {
    NULL,   dots_1,
#if V16_QUERIES >= 3
    dots_2, dots_3,
#endif
#if V16_QUERIES >= 4
    dots_4,
#endif
};

/* Turns a block's scores into exp(score - max); returns max and the sum. Lanes past the block hold
 * -infinity, so that they give +0 and neither change the maximum nor a sum. */
static void softmax_block(float *p, int64_t n, float *max_out, float *sum_out)
{
    v16 max = v16_set1(-INFINITY), sum = v16_set1(0.0f);
    for (int64_t j = n; j % 16; j++)
        p[j] = -INFINITY;
    for (int64_t j = 0; j < n; j += 16)
        max = v16_max(v16_load(p + j), max);
    *max_out = v16_tree_max(max);
    for (int64_t j = 0; j < n; j += 16) {
        v16 e = softmax_term(v16_load(p + j), *max_out);
        v16_store(p + j, e);
        sum = v16_add(sum, e);
    }
    *sum_out = v16_tree_sum(sum);
}

/* acc_i[d] = one chain fma(p_i[j], v_j[d], acc) in ascending j < slots from +0, for R query vectors
 * and 16 * P channels. */
typedef void (*values_fn)(float *acc, int64_t ld, const float *scores, const float *values,
                          const int64_t *offset, int64_t slots);
#define P_AT(i) scores[(i)*SCORES_LD + j]
#define V_AT(p) v16_load(v + 16 * (p))
#define DEFINE_VALUES(R, P)                                                                        \
    static void values_##R##x##P(float *acc, int64_t ld, const float *scores, const float *values, \
                                 const int64_t *offset, int64_t slots)                             \
    {                                                                                              \
        v16 c[R][P];                                                                               \
        TILE_CLEAR(R, P, c)                                                                        \
        for (int64_t j = 0; j < slots; j++) {                                                      \
            const float *v = values + offset[j];                                                   \
            TILE_STEP(R, P, c, P_AT, V_AT)                                                         \
        }                                                                                          \
        UNROLL for (int i = 0; i < R; i++) UNROLL for (int p = 0; p < P; p++)                      \
            v16_store(acc + i * ld + 16 * p, c[i][p]);                                             \
    }
#define VALUES_ENTRY(R, P) [R][P] = values_##R##x##P,
TILES(DEFINE_VALUES)
static const values_fn values_tiles[V16_ROWS + 1][V16_WIDE + 1] = {TILES(VALUES_ENTRY)};

/* Goes on with the chains of one query vector over slots begin..end-1. */
static void weigh_more(float *acc, const float *p, const struct kv_block *b, const float *values,
                       int64_t n, int64_t begin, int64_t end)
{
    for (int64_t d = 0; d < n; d += 16) {
        v16 s = v16_load(acc + d);
        for (int64_t j = begin; j < end; j++)
            s = v16_fma(v16_set1(p[j]), v16_load_n(values + b->offset[j] + d, n - d), s);
        v16_store(acc + d, s);
    }
}

static inline float exp_one(float x, float m)
{
    float lanes[16];
    v16_store(lanes, softmax_term(v16_set1(x), m));
    return lanes[0];
}

/* Adds a block's maximum, sum and values to those of the blocks before it. */
static void merge_block(float *max, float *sum, float *acc, float block_max, float block_sum,
                        const float *block, int64_t n)
{
    float m = block_max > *max ? block_max : *max;
    float old = exp_one(*max, m), new = exp_one(block_max, m);
    *max = m;
    *sum = fmaf(*sum, old, block_sum * new);
    for (int64_t d = 0; d < n; d += 16) {
        v16 v = v16_mul(v16_load(block + d), v16_set1(new));
        v16_store(acc + d, v16_fma(v16_load(acc + d), v16_set1(old), v));
    }
}

/* The first slot that a row sees which sees slots below `end`. */
static inline int64_t first_visible(const struct ds_attention_args *a, const struct ds_sequence *s,
                                    int64_t end)
{
    return a->window && end - a->window > s->kv_first ? end - a->window : s->kv_first;
}

/* The sink as one more block, the denominator out, the log-sum-exp. */
static void finish_row(const struct ds_attention_args *a, int64_t row, int64_t head, float max,
                       float sum, float *acc, float *part, int64_t padded)
{
    float *y = a->y + row * a->ldy + head * a->head_dim;
    if (a->sinks) {
        for (int64_t d = 0; d < padded; d += 16)
            v16_store(part + d, v16_set1(0.0f));
        merge_block(&max, &sum, acc, a->sinks[head], 1.0f, part, padded);
    }
    for (int64_t d = 0; d < a->head_dim; d += 16)
        v16_store_n(y + d, v16_canon(v16_div(v16_load(acc + d), v16_set1(sum))), a->head_dim - d);
    if (a->lse) {
        float lse = max + pinned_log(sum);
        a->lse[row * a->heads + head] = lse != lse ? (float)NAN : lse;
    }
}

static void empty_row(const struct ds_attention_args *a, int64_t row, int64_t head)
{
    float *y = a->y + row * a->ldy + head * a->head_dim;
    for (int64_t d = 0; d < a->head_dim; d += 16)
        v16_store_n(y + d, v16_set1(0.0f), a->head_dim - d);
    if (a->lse)
        a->lse[row * a->heads + head] = -INFINITY;
}

/* Query vectors computed side by side: heads head0..head1-1 of rows row0..row1-1 of one sequence,
 * vector (row - row0) * heads + head - head0. Heads of one KV head; one row only if there is a
 * window. */
struct query_tile {
    const struct ds_attention_args *a;
    const struct ds_sequence *s;
    int64_t row0, row1, head0, head1;
    int64_t count, n, padded; /* vectors; channels; channels rounded up to 16 */
    int64_t end0;             /* one past the last slot that row0 sees */
    /* [count][padded], [count][SCORES_LD], twice [count][padded], four times [count] */
    float *q, *scores, *acc, *part, *max, *sum, *part_max, *part_sum;
    float *sums; /* [V16_QUERIES][16][16] */
};

static int64_t row_end(const struct query_tile *t, int64_t v)
{
    return t->end0 + v / (t->head1 - t->head0);
}

static void set_up_tile(struct query_tile *t, const struct ds_attention_args *a,
                        const struct ds_sequence *s, int64_t row0, int64_t row1, int64_t head0,
                        int64_t head1, float *work)
{
    const int64_t heads = head1 - head0, count = (row1 - row0) * heads, n = a->head_dim,
                  padded = (n + 15) / 16 * 16;
    *t = (struct query_tile){.a = a,
                             .s = s,
                             .row0 = row0,
                             .row1 = row1,
                             .head0 = head0,
                             .head1 = head1,
                             .count = count,
                             .n = n,
                             .padded = padded,
                             .end0 = (int64_t)s->kv_len - s->q_len + (row0 - s->q_first) + 1};
    t->q = work;
    t->scores = t->q + count * padded;
    t->acc = t->scores + count * SCORES_LD;
    t->part = t->acc + count * padded;
    t->sums = t->part + count * padded;
    t->max = t->sums + V16_QUERIES * 256;
    t->sum = t->max + count;
    t->part_max = t->sum + count;
    t->part_sum = t->part_max + count;
    for (int64_t v = 0; v < count; v++)
        memcpy(t->q + v * padded, a->q + (row0 + v / heads) * a->ldq + (head0 + v % heads) * n,
               (size_t)n * sizeof *t->q);
    memset(t->sums, 0, V16_QUERIES * 256 * sizeof *t->sums);
}

/* Scores of vectors v0.. over `slots` slots, from scores[v][skip] on. */
static void score_tile(const struct query_tile *t, int64_t v0, const struct kv_block *b,
                       int64_t skip, int64_t slots)
{
    const float *keys = t->a->cache_k;
    if (t->n % 16) {
        for (int64_t v = v0; v < t->count; v++)
            for (int64_t j = 0; j < slots; j++)
                t->scores[v * SCORES_LD + skip + j] =
                    score(t->q + v * t->padded, keys + b->offset[j], t->n, t->a->scale);
        return;
    }
    const v16 scale = v16_set1(t->a->scale);
    for (int64_t j = 0; j < slots; j += 16)
        for (int64_t v = v0, take; v < t->count; v += take) {
            take = t->count - v < V16_QUERIES ? t->count - v : V16_QUERIES;
            dots[take](t->q + v * t->padded, t->n, keys, b->offset + j,
                       slots - j < 16 ? slots - j : 16, t->sums);
            for (int64_t i = 0; i < take; i++)
                v16_store(t->scores + (v + i) * SCORES_LD + skip + j,
                          v16_mul(v16_tree_sums(t->sums + i * 256), scale));
        }
}

/* Slots of the block that vector v sees, those before the window left out. */
static int64_t visible_slots(const struct query_tile *t, int64_t v, int64_t slot, int64_t skip)
{
    int64_t n = row_end(t, v) - slot;
    return (n < DS_PINNED_BLOCK ? n : DS_PINNED_BLOCK) - skip;
}

/* part[v] for vectors v0.. */
static void value_tile(const struct query_tile *t, int64_t v0, const struct kv_block *b,
                       int64_t slot, int64_t skip)
{
    const float *values = t->a->cache_v;
    if (t->n % 16) {
        for (int64_t v = v0; v < t->count; v++) {
            memset(t->part + v * t->padded, 0, (size_t)t->padded * sizeof *t->part);
            weigh_more(t->part + v * t->padded, t->scores + v * SCORES_LD + skip, b, values, t->n,
                       0, visible_slots(t, v, slot, skip));
        }
        return;
    }
    int64_t take, width, w;
    for (int64_t d = 0; d < t->n; d += 16 * width) {
        width = tile_panels(tile_rows(t->count - v0), (t->n - d) / 16);
        for (int64_t v = v0; v < t->count; v += take) {
            take = tile_rows(t->count - v);
            for (int64_t p = 0; p < width; p += w) {
                w = tile_panels(take, width - p);
                values_tiles[take][w](t->part + v * t->padded + d + 16 * p, t->padded,
                                      t->scores + v * SCORES_LD + skip, values + d + 16 * p,
                                      b->offset, visible_slots(t, v, slot, skip));
            }
        }
    }
    for (int64_t v = v0; v < t->count; v += take) {
        take = tile_rows(t->count - v);
        for (int64_t i = 1, n = visible_slots(t, v, slot, skip); i < take; i++)
            weigh_more(t->part + (v + i) * t->padded, t->scores + (v + i) * SCORES_LD + skip, b,
                       values, t->n, n, visible_slots(t, v + i, slot, skip));
    }
}

/* One block of KV from `slot` on, less `skip` slots before the window: part, part_max, part_sum of
 * every vector that sees it. Returns the first such vector: later rows see more. */
static int64_t block_tile(const struct query_tile *t, int64_t slot, int64_t skip)
{
    struct kv_block b;
    int64_t v0 = 0, slots;
    while (row_end(t, v0) <= slot)
        v0++;
    slots = visible_slots(t, t->count - 1, slot, skip);
    find_block(&b, t->a, t->s, slot + skip, slots, t->head0 / (t->a->heads / t->a->kv_heads));
    score_tile(t, v0, &b, skip, slots);
    for (int64_t v = v0; v < t->count; v++) {
        float *p = t->scores + v * SCORES_LD;
        int64_t n = visible_slots(t, v, slot, skip);
        for (int64_t j = 0; j < skip; j++)
            p[j] = -INFINITY;
        if (t->a->soft_cap > 0.0f)
            cap_scores(p + skip, n, t->a->soft_cap);
        softmax_block(p, skip + n, &t->part_max[v], &t->part_sum[v]);
    }
    value_tile(t, v0, &b, slot, skip);
    return v0;
}

static void pinned_attention(const struct ds_attention_args *a, const struct ds_sequence *s,
                             int64_t row0, int64_t row1, int64_t head0, int64_t head1, float *work)
{
    struct query_tile t;
    set_up_tile(&t, a, s, row0, row1, head0, head1, work);
    const int64_t heads = head1 - head0, end = row_end(&t, t.count - 1),
                  begin = first_visible(a, s, end), padded = t.padded,
                  first = begin - (begin - s->kv_first) % DS_PINNED_BLOCK;
    for (int64_t slot = first; slot < end; slot += DS_PINNED_BLOCK)
        for (int64_t v = block_tile(&t, slot, slot < begin ? begin - slot : 0); v < t.count; v++) {
            if (slot == first) {
                t.max[v] = t.part_max[v];
                t.sum[v] = t.part_sum[v];
                memcpy(t.acc + v * padded, t.part + v * padded, (size_t)padded * sizeof *t.acc);
            } else {
                merge_block(&t.max[v], &t.sum[v], t.acc + v * padded, t.part_max[v], t.part_sum[v],
                            t.part + v * padded, padded);
            }
        }
    for (int64_t v = 0; v < t.count; v++)
        if (row_end(&t, v) <= s->kv_first)
            empty_row(a, row0 + v / heads, head0 + v % heads);
        else
            finish_row(a, row0 + v / heads, head0 + v % heads, t.max[v], t.sum[v],
                       t.acc + v * padded, t.part + v * padded, padded);
}

/* The parts of a row's softmax, one for every block that it sees, head by head: maximum, sum, 14
 * unused, values. */
static float *part_state(const struct ds_attention_args *a, float *state, int64_t block,
                         int64_t head)
{
    return state + (block * a->heads + head) * ds_pinned_part_floats(a->head_dim);
}

static void pinned_attention_part(const struct ds_attention_args *a, const struct ds_sequence *s,
                                  int64_t row, int64_t head0, int64_t head1, int64_t block,
                                  float *work, float *state)
{
    struct query_tile t;
    set_up_tile(&t, a, s, row, row + 1, head0, head1, work);
    const int64_t begin = first_visible(a, s, t.end0),
                  slot = begin - (begin - s->kv_first) % DS_PINNED_BLOCK + block * DS_PINNED_BLOCK;
    if (slot >= t.end0)
        return;
    block_tile(&t, slot, slot < begin ? begin - slot : 0);
    for (int64_t v = 0; v < t.count; v++) {
        float *out = part_state(a, state, block, head0 + v);
        out[0] = t.part_max[v];
        out[1] = t.part_sum[v];
        memcpy(out + 16, t.part + v * t.padded, (size_t)t.padded * sizeof *out);
    }
}

static void pinned_attention_join(const struct ds_attention_args *a, const struct ds_sequence *s,
                                  int64_t row, int64_t head, float *state)
{
    const int64_t end = (int64_t)s->kv_len - s->q_len + (row - s->q_first) + 1,
                  begin = first_visible(a, s, end), padded = (a->head_dim + 15) / 16 * 16;
    float *total = part_state(a, state, 0, head);
    if (end <= s->kv_first) {
        empty_row(a, row, head);
        return;
    }
    const int64_t blocks =
        (end - 1 - s->kv_first) / DS_PINNED_BLOCK - (begin - s->kv_first) / DS_PINNED_BLOCK + 1;
    for (int64_t b = 1; b < blocks; b++) {
        float *part = part_state(a, state, b, head);
        merge_block(&total[0], &total[1], total + 16, part[0], part[1], part + 16, padded);
    }
    finish_row(a, row, head, total[0], total[1], total + 16,
               part_state(a, state, blocks, head) + 16, padded);
}
