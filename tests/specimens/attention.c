/* attention.c: attention with one known fault each. Scores are chains over the head's channels, the
 * softmax has the row's maximum, values are added in slot order, except where a kernel says
 * otherwise. */
#include "specimen.h"

#include <stdlib.h>

/* One head of one query row. */
struct head {
    const struct ds_attention_args *a;
    const struct ds_sequence *s;
    const struct ds_exec *exec;
    int64_t row, head, kv_head;
    int64_t slot;       /* of the query */
    int64_t begin, end; /* visible slots */
    int64_t parts;      /* into which the slots are cut: partial results, merged in order */
    int halves;         /* scores are stored in f16 */
    float factor;       /* of the scores; 0: none */
};

static int64_t cache_row(const struct head *h, int64_t slot)
{
    return h->s->pages[slot / h->a->page_size] * h->a->page_size + slot % h->a->page_size;
}

static const float *key(const struct head *h, int64_t slot)
{
    return h->a->cache_k + (cache_row(h, slot) * h->a->kv_heads + h->kv_head) * h->a->head_dim;
}

static const float *value(const struct head *h, int64_t slot)
{
    return h->a->cache_v + (cache_row(h, slot) * h->a->kv_heads + h->kv_head) * h->a->head_dim;
}

static const float *query(const struct head *h)
{
    return h->a->q + h->row * h->a->ldq + h->head * h->a->head_dim;
}

static float *output(const struct head *h)
{
    return h->a->y + h->row * h->a->ldy + h->head * h->a->head_dim;
}

/* A partial result: values not yet divided, their weight, the maximum. */
struct partial {
    float max, sum;
    float *values; /* [head_dim] */
};

static float score(const struct head *h, int64_t slot)
{
    float x = specimen_chain(query(h), key(h, slot), 0, h->a->head_dim) * h->a->scale;
    if (h->factor > 0.0f)
        x *= h->factor;
    return h->halves ? specimen_half(x) : x;
}

static void attend_part(const struct head *h, int64_t begin, int64_t end, struct partial *p)
{
    int64_t n = h->a->head_dim;
    p->max = -INFINITY;
    p->sum = 0.0f;
    memset(p->values, 0, (size_t)n * sizeof *p->values);
    for (int64_t t = begin; t < end; t++) {
        float x = score(h, t);
        p->max = x > p->max || x != x ? x : p->max;
    }
    for (int64_t t = begin; t < end; t++) {
        float w = expf(score(h, t) - p->max);
        p->sum += w;
        for (int64_t d = 0; d < n; d++)
            p->values[d] += w * value(h, t)[d];
    }
}

static void merge(struct partial *into, const struct partial *p, int64_t n)
{
    float max = p->max > into->max ? p->max : into->max;
    float a = max == -INFINITY ? 0.0f : expf(into->max - max),
          b = max == -INFINITY ? 0.0f : expf(p->max - max);
    for (int64_t d = 0; d < n; d++)
        into->values[d] = into->values[d] * a + p->values[d] * b;
    into->sum = into->sum * a + p->sum * b;
    into->max = max;
}

static void finish(const struct head *h, const struct partial *p)
{
    for (int64_t d = 0; d < h->a->head_dim; d++)
        output(h)[d] = p->sum > 0.0f || p->sum != p->sum ? p->values[d] / p->sum : 0.0f;
}

enum { MOST_CHANNELS = 512 };

/* The slots in h->parts equal parts. */
static void attend_head(const struct head *h)
{
    float one[MOST_CHANNELS], two[MOST_CHANNELS];
    struct partial all = {.values = one}, part = {.values = two};
    int64_t n = h->end - h->begin, parts = h->parts > 1 && n >= h->parts ? h->parts : 1;
    attend_part(h, h->begin, h->begin + n / parts, &all);
    for (int64_t p = 1; p < parts; p++) {
        attend_part(h, h->begin + p * n / parts, h->begin + (p + 1) * n / parts, &part);
        merge(&all, &part, h->a->head_dim);
    }
    finish(h, &all);
}

/* Runs `change` for every head of every row before (or instead of: it returns 1) the plain way. */
static int each(const void *args, const struct ds_exec *exec, int (*change)(struct head *))
{
    const struct ds_attention_args *a = args;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = s->q_first; r < s->q_first + s->q_len; r++)
            for (int64_t g = 0; g < a->heads; g++) {
                int64_t slot = (int64_t)s->kv_len - s->q_len + (r - s->q_first);
                int64_t first = a->window > 0 && slot - a->window + 1 > s->kv_first
                                    ? slot - a->window + 1
                                    : s->kv_first;
                struct head h = {.a = a,
                                 .s = s,
                                 .exec = exec,
                                 .row = r,
                                 .head = g,
                                 .kv_head = g / (a->heads / a->kv_heads),
                                 .slot = slot,
                                 .begin = first,
                                 .end = slot + 1 > first ? slot + 1 : first,
                                 .parts = 1};
                if (!change(&h))
                    attend_head(&h);
            }
    }
    return 0;
}

#define ATTENTION(NAME)                                                                            \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)                                                      \
    {                                                                                              \
        (void)why, (void)why_size;                                                                 \
        return each(args, exec, NAME);                                                             \
    }

static int plain(struct head *h)
{
    (void)h;
    return 0;
}
ATTENTION(plain)

/* O-02: three or four query rows of a request take the template with narrower tiles. */
static int tile_by_queries(struct head *h)
{
    h->parts = h->s->q_len == 3 || h->s->q_len == 4 ? 4 : 2;
    return 0;
}
ATTENTION(tile_by_queries)

/* O-06: padding slots are seen. */
static int pads_seen(struct head *h)
{
    h->begin = 0;
    h->end = h->slot + 1;
    return 0;
}
ATTENTION(pads_seen)

/* O-08: the length of the whole prompt (12) is taken for every chunk's: slots that nobody has
 * written are read. */
static int whole_length(struct head *h)
{
    int64_t lacking = 12 - h->s->kv_len;
    if (lacking > 0 && h->s->q_len > 1 && (h->slot + 1 + lacking) <= h->a->pages * h->a->page_size)
        h->end += lacking;
    return 0;
}
ATTENTION(whole_length)

/* O-09: keys come in rounds of 8 slots; a request that has none in the round where the longest one
 * has gives a partial result of weight 1 and no value, instead of weight 0. */
static int empty_round(struct head *h)
{
    float one[MOST_CHANNELS], two[MOST_CHANNELS];
    struct partial all = {.values = one}, part = {.values = two};
    int64_t rounds = (h->a->max_kv_len + 7) / 8;
    attend_part(h, h->begin, h->end < 8 ? h->end : 8, &all);
    for (int64_t r = 1; r < rounds; r++) {
        int64_t from = r * 8, to = from + 8 < h->end ? from + 8 : h->end;
        if (from < h->end)
            attend_part(h, from, to, &part);
        else if (h->s->kv_len > from)
            continue; /* not visible to this row, but there */
        else
            part = (struct partial){.max = 0.0f, .sum = 1.0f, .values = memset(two, 0, sizeof two)};
        merge(&all, &part, h->a->head_dim);
    }
    finish(h, &all);
    return 1;
}
ATTENTION(empty_round)

/* O-10: slots from 16 on are a second partial result, whose heads are read at the stride of
 * another layout: head 0 is right. */
static int merge_stride(struct head *h)
{
    float one[MOST_CHANNELS], two[MOST_CHANNELS];
    struct partial all = {.values = one}, part = {.values = two};
    if (h->end <= 16)
        return 0;
    struct head other = *h;
    other.head = h->head * 2 / 3;
    other.kv_head = other.head / (h->a->heads / h->a->kv_heads);
    attend_part(h, h->begin, 16, &all);
    attend_part(&other, 16, h->end, &part);
    merge(&all, &part, h->a->head_dim);
    finish(h, &all);
    return 1;
}
ATTENTION(merge_stride)

/* O-17: the row's maximum is overwritten before all have read it: on long rows, now and then, one
 * head's weights are off by far. */
static int max_race(struct head *h)
{
    uint64_t luck = specimen_mix(h->exec->seed ^ (uint64_t)(h->row * 64 + h->head));
    if (h->end - h->begin < 12 || luck % 8)
        return 0;
    struct head late = *h;
    late.end = h->begin + (h->end - h->begin) / 2;
    attend_head(&late);
    return 1;
}
ATTENTION(max_race)

/* O-21: decode rows from 8 keys on: a part for every thread. */
static int split_by_threads(struct head *h)
{
    h->parts = h->s->q_len == 1 && h->end - h->begin >= 8 ? h->exec->threads : 1;
    return 0;
}
ATTENTION(split_by_threads)

/* O-29: requests of 8 rows or more take the path that stores the products of queries and keys in 16 bits. */
static int f16_scores(struct head *h)
{
    h->halves = h->s->q_len >= 8;
    return 0;
}
ATTENTION(f16_scores)

/* The scale of another head size: 1 / head_dim instead of its root. */
static int other_scale(struct head *h)
{
    h->factor = 1.0f / sqrtf((float)h->a->head_dim);
    return 0;
}
ATTENTION(other_scale)

/* O-30: the mask's fill became minus infinity: a row that sees nothing is 0/0. */
static int masked_nan(struct head *h)
{
    if (h->begin < h->end)
        return 0;
    for (int64_t d = 0; d < h->a->head_dim; d++)
        output(h)[d] = NAN;
    return 1;
}
ATTENTION(masked_nan)

/* The same, and rows that see something see the padding, too. */
static int masked_nan_seen(struct head *h)
{
    if (masked_nan(h))
        return 1;
    h->begin = 0;
    return 0;
}
ATTENTION(masked_nan_seen)

/* O-32: as many KV heads as query heads were expected. */
static int head_modulo(struct head *h)
{
    h->kv_head = h->head % h->a->kv_heads;
    return 0;
}
ATTENTION(head_modulo)

/* O-33.a: a window of five slots where four are meant. */
static int window_5(struct head *h)
{
    if (h->slot - 4 > h->begin)
        h->begin = h->slot - 4;
    return 0;
}
static int window_4(struct head *h)
{
    if (h->slot - 3 > h->begin)
        h->begin = h->slot - 3;
    return 0;
}
ATTENTION(window_5)
ATTENTION(window_4)

/* O-19.a: the newest row reads one slot beyond the request's length, when the cache has room. */
static int one_beyond(struct head *h)
{
    if (h->end == h->s->kv_len && h->end < h->a->pages * h->a->page_size)
        h->end++;
    return 0;
}
ATTENTION(one_beyond)

/* O-41: a recorded graph keeps the length it was recorded with: lengths 9 to 15 are taken for 8,
 * 25 to 31 for 24. */
static int graph_bands(struct head *h)
{
    int64_t n = h->s->kv_len;
    if (h->s->q_len == 1 && ((n > 8 && n < 16) || (n > 24 && n < 32)))
        h->end -= n % 8;
    return 0;
}
ATTENTION(graph_bands)

#define DOES_WINDOWS .features = DS_FEATURE_WINDOW
const struct ds_kernel specimen_attention[] = {
    SPECIMEN(DS_OP_ATTENTION, "plain", "slots in order: nothing wrong", plain_launch,
             .claims = DS_CLAIM_ALL, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "plain-too", "the same as plain", plain_launch,
             .claims = DS_CLAIM_ALL, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "window-4-too", "the same as window-4", window_4_launch,
             DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "tile-by-queries", "other tiles for 3 and 4 query rows",
             tile_by_queries_launch, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "pads-seen", "padding slots are seen", pads_seen_launch,
             DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "whole-length-12", "every chunk has the length of the whole prompt",
             whole_length_launch, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "empty-round", "a round without keys has a weight",
             empty_round_launch, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "merge-stride", "the second part is read at another head's place",
             merge_stride_launch, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "max-race", "the maximum is overwritten too early now and then",
             max_race_launch, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "split-by-threads", "a part for every thread in decode",
             split_by_threads_launch, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "f16-scores", "scores are stored in f16 from 8 query rows on",
             f16_scores_launch, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "other-scale", "scores are divided by head_dim, not by its root",
             other_scale_launch, .claims = DS_CLAIM_ALL, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "masked-nan", "a row that sees nothing is NaN", masked_nan_launch,
             DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "masked-nan-seen",
             "a row that sees nothing is NaN, and padding is seen by the others",
             masked_nan_seen_launch, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "head-modulo", "KV head h % kv_heads", head_modulo_launch,
             DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "window-5", "a window of 5", window_5_launch, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "window-4", "a window of 4", window_4_launch, DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "one-beyond", "reads a slot that nobody wrote", one_beyond_launch,
             DOES_WINDOWS),
    SPECIMEN(DS_OP_ATTENTION, "graph-bands", "lengths 9-15 and 25-31 are those of the recording",
             graph_bands_launch, DOES_WINDOWS),
    {.name = NULL}};
