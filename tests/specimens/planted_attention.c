/* planted_attention.c: faults of attention and of the cache as they are made when a kernel is tuned or ported. See
 * planted.c. */
#include "specimen.h"

#define LAUNCH(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)

#define UNUSED (void)exec, (void)why, (void)why_size

enum attention {
    SEEN,
    NEIGHBOURS, /* head 2 reads the cache of the call's next sequence */
    SHIFTED, /* every slot is read from the one behind it, which for the newest nobody has written */
    SOFTPLUS,           /* weights are softplus of the scores */
    SIGMOID,            /* weights are sigmoids, not divided by their sum */
    RELU,               /* weights are the scores where those are above 0 */
    POWERS_OF_TWO,      /* 2^x without the factor log2(e) */
    FIRST_AND_LAST,     /* the first two keys and the last four: a window with sinks */
    SWAPPED_KV,         /* one cached head's keys and values are exchanged */
    WHOLE_TILES,        /* the mask ends with a tile of 4 keys: later ones are seen */
    NO_TAIL,            /* what is left of tiles of 4 keys is not seen */
    NO_RESCALE,         /* what was added is not scaled down where the largest score grows */
    SUM_ONLY,           /* the sum is scaled down, what was added is not */
    WEAK_MASK,          /* later keys have -4 added instead of -infinity */
    MASKED_ZERO,        /* later keys have a score of 0 */
    ALL_SEQUENCES,      /* a row sees the keys of the call's next sequence as well */
    SWAPPED_HALVES,     /* the halves of a query are exchanged */
    SHORT_ADDS,         /* what is added up is bf16 after every key */
    LOG_SCALE,          /* scores are scaled by the log of the length */
    OWN_EMPTY,          /* the value of a row's own key is not there yet */
    OTHER_PAGES,        /* the page table is read as if pages had half their size */
    LOST_CHANNELS,      /* the last three channels of a head are not written */
    TEMPERATURE,        /* scores are divided by 0.7 in decode */
    BIASED_LAST,        /* a head's own key has 1 added to its score */
    CLAMPED_SCORES,     /* scores are cut to +-0.3 */
    WINDOW_DECODE,      /* in decode the last 6 keys alone */
    VALUES_SQUARED_SUM, /* divided by the root of the sum of squared weights */
    NO_SCALE,           /* scores are not divided by the root of head_dim */
    TRANSPOSED_OUT      /* heads and channels of the output are exchanged */
};

struct view {
    const struct ds_attention_args *a;
    const struct ds_sequence *s, *other; /* other: the next of the call */
    int64_t row, head, slot;
    int how;
};

static const float *at(const struct view *v, const struct ds_sequence *s, const float *cache,
                       int64_t slot)
{
    const struct ds_attention_args *a = v->a;
    const int64_t size =
                      v->how == OTHER_PAGES && a->page_size > 1 ? a->page_size / 2 : a->page_size,
                  page = s->pages[slot / a->page_size], place = page * size + slot % a->page_size,
                  group = v->head / (a->heads / a->kv_heads);
    return cache + (place * a->kv_heads + group) * a->head_dim;
}

static const float *cached(const struct view *v, const float *cache, int64_t slot)
{
    const struct ds_sequence *s = v->how == NEIGHBOURS && v->head == 2 ? v->other : v->s;
    if (s != v->s && slot >= s->kv_len)
        slot = s->kv_len - 1;
    if (v->how == SHIFTED && slot + 1 < v->a->pages * v->a->page_size)
        slot++;
    if (v->how == SWAPPED_KV && v->head < v->a->heads / v->a->kv_heads)
        cache = cache == v->a->cache_k ? v->a->cache_v : v->a->cache_k;
    return at(v, s, cache, slot);
}

static float score(const struct view *v, const float *key, int64_t slot)
{
    const struct ds_attention_args *a = v->a;
    const float *q = a->q + v->row * a->ldq + v->head * a->head_dim;
    const int64_t half = a->head_dim / 2;
    float s = 0.0f;
    for (int64_t c = 0; c < a->head_dim; c++)
        s += q[v->how == SWAPPED_HALVES ? (c + half) % a->head_dim : c] * key[c];
    s *= v->how == NO_SCALE ? 1.0f : a->scale;
    switch (v->how) {
    case LOG_SCALE:
        return s * logf((float)v->slot + 2.0f);
    case TEMPERATURE:
        return v->s->q_len == 1 ? s / 0.7f : s;
    case BIASED_LAST:
        return slot == v->slot ? s + 1.0f : s;
    case CLAMPED_SCORES:
        return fmaxf(-0.3f, fminf(0.3f, s));
    case WEAK_MASK:
        return slot > v->slot ? s - 4.0f : s;
    case MASKED_ZERO:
        return slot > v->slot ? 0.0f : s;
    default:
        return s;
    }
}

static int sees(const struct view *v, int64_t slot)
{
    switch (v->how) {
    case FIRST_AND_LAST:
        return slot <= v->slot && (slot < 2 || slot > v->slot - 4);
    case WHOLE_TILES:
        return slot < (v->slot / 4 + 1) * 4 && slot < v->s->kv_len;
    case NO_TAIL:
        return v->slot < 4 ? slot <= v->slot : slot < (v->slot + 1) / 4 * 4;
    case WEAK_MASK:
    case MASKED_ZERO:
        return slot < v->s->kv_len;
    case WINDOW_DECODE:
        return slot <= v->slot && (v->s->q_len > 1 || slot > v->slot - 6);
    default:
        return slot <= v->slot;
    }
}

static float weight(const struct view *v, float s, float most)
{
    switch (v->how) {
    case SOFTPLUS:
        return log1pf(expf(s));
    case SIGMOID:
        return 1.0f / (1.0f + expf(-s));
    case RELU:
        return fmaxf(s, 0.0f);
    case POWERS_OF_TWO:
        return exp2f(s - most);
    default:
        return expf(s - most);
    }
}

/* In one pass, as the largest score grows. */
static void grow(const struct view *v, float *y, float *sum, float *most, const float *key,
                 const float *value, int64_t slot)
{
    const struct ds_attention_args *a = v->a;
    const float s = score(v, key, slot), larger = fmaxf(*most, s),
                shrink = *most > -INFINITY ? expf(*most - larger) : 1.0f, w = weight(v, s, larger);
    *most = larger;
    *sum = *sum * (v->how == NO_RESCALE ? 1.0f : shrink) + w;
    for (int64_t c = 0; c < a->head_dim; c++) {
        y[c] *= v->how == NO_RESCALE || v->how == SUM_ONLY ? 1.0f : shrink;
        y[c] += w * (v->how == OWN_EMPTY && slot == v->slot ? 0.0f : value[c]);
        y[c] = v->how == SHORT_ADDS ? specimen_short(y[c], 16) : y[c];
    }
}

/* Where the whole row's weights come first. */
static void weigh(const struct view *v, float *y, float *sum, const float *key, const float *value,
                  int64_t slot, float most)
{
    const float w = weight(v, score(v, key, slot), most);
    *sum += v->how == VALUES_SQUARED_SUM ? w * w : w;
    for (int64_t c = 0; c < v->a->head_dim; c++)
        y[c] += w * value[c];
}

static void attend_head(const struct view *v)
{
    const struct ds_attention_args *a = v->a;
    float y[256] = {0}, sum = 0.0f, most = -INFINITY;
    const int twice = v->how == SOFTPLUS || v->how == SIGMOID || v->how == RELU ||
                      v->how == VALUES_SQUARED_SUM || v->how == POWERS_OF_TWO;
    for (int64_t t = v->s->kv_first; twice && t <= v->slot; t++)
        most = fmaxf(most, score(v, cached(v, a->cache_k, t), t));
    if (v->how == ALL_SEQUENCES && v->other != v->s)
        for (int64_t t = 0; t < v->other->kv_len; t++)
            grow(v, y, &sum, &most, at(v, v->other, a->cache_k, t), at(v, v->other, a->cache_v, t),
                 t);
    for (int64_t t = v->s->kv_first; t < v->s->kv_len; t++) {
        if (!sees(v, t))
            continue;
        if (twice)
            weigh(v, y, &sum, cached(v, a->cache_k, t), cached(v, a->cache_v, t), t, most);
        else
            grow(v, y, &sum, &most, cached(v, a->cache_k, t), cached(v, a->cache_v, t), t);
    }
    sum = v->how == VALUES_SQUARED_SUM ? sqrtf(sum) : sum;
    for (int64_t c = 0; c < a->head_dim; c++) {
        const int64_t i = v->head * a->head_dim + c,
                      to = v->how == TRANSPOSED_OUT ? c * a->heads + v->head : i;
        a->y[v->row * a->ldy + to] = v->how == LOST_CHANNELS && c >= a->head_dim - 3 ? 0.0f
                                     : v->how == SIGMOID                             ? y[c]
                                     : sum > 0.0f                                    ? y[c] / sum
                                                                                     : 0.0f;
    }
}

static int attend(const struct ds_attention_args *a, int how)
{
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        const int64_t other = (i + 1) % a->n_sequences;
        for (int64_t r = s->q_first; r < s->q_first + s->q_len; r++)
            for (int64_t h = 0; h < a->heads; h++) {
                const struct view v = {.a = a,
                                       .s = s,
                                       .other = &a->sequences[other],
                                       .row = r,
                                       .head = h,
                                       .slot = (int64_t)s->kv_len - s->q_len + (r - s->q_first),
                                       .how = how};
                attend_head(&v);
            }
    }
    return 0;
}

#define ATTENDS(NAME, HOW)                                                                         \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return attend(args, HOW);                                                                  \
    }

ATTENDS(seen, SEEN)
ATTENDS(neighbours, NEIGHBOURS)
ATTENDS(shifted, SHIFTED)
ATTENDS(softplus, SOFTPLUS)
ATTENDS(sigmoid, SIGMOID)
ATTENDS(relu, RELU)
ATTENDS(powers_of_two, POWERS_OF_TWO)
ATTENDS(first_and_last, FIRST_AND_LAST)
ATTENDS(swapped_kv, SWAPPED_KV)
ATTENDS(whole_tiles, WHOLE_TILES)
ATTENDS(no_tail, NO_TAIL)
ATTENDS(no_rescale, NO_RESCALE)
ATTENDS(sum_only, SUM_ONLY)
ATTENDS(weak_mask, WEAK_MASK)
ATTENDS(masked_zero, MASKED_ZERO)
ATTENDS(all_sequences, ALL_SEQUENCES)
ATTENDS(swapped_halves, SWAPPED_HALVES)
ATTENDS(short_adds, SHORT_ADDS)
ATTENDS(log_scale, LOG_SCALE)
ATTENDS(own_empty, OWN_EMPTY)
ATTENDS(other_pages, OTHER_PAGES)
ATTENDS(lost_channels, LOST_CHANNELS)
ATTENDS(temperature, TEMPERATURE)
ATTENDS(biased_last, BIASED_LAST)
ATTENDS(clamped_scores, CLAMPED_SCORES)
ATTENDS(window_decode, WINDOW_DECODE)
ATTENDS(root_of_squares, VALUES_SQUARED_SUM)
ATTENDS(no_scale, NO_SCALE)
ATTENDS(transposed_out, TRANSPOSED_OUT)

/* ---- the cache ------------------------------------------------------------------------------- */

enum cache {
    WRITES,
    ONE_ON,        /* rows are written a slot further on, the last one not at all */
    LIMITED,       /* values are cut to +-1, as a scale that is too small does */
    OVER_LAST,     /* in decode the slot before is overwritten */
    TILES_OF_4,    /* what is left of calls of 4 rows is not written */
    HEADS_TURNED,  /* heads are written in reverse order */
    HALF_ROWS,     /* the second half of a row is not written from four rows on */
    LAST_SEQUENCE, /* every sequence is written to the pages of the last one, in calls of several */
    TRUNCATED      /* f32 is cut to bf16, not rounded */
};

static float cut_short(float x)
{
    uint16_t part[2]; /* little-endian: the low half first */
    memcpy(part, &x, sizeof x);
    part[0] = 0;
    memcpy(&x, part, sizeof x);
    return x;
}

static float kept(int how, float x)
{
    switch (how) {
    case LIMITED:
        return fmaxf(-1.0f, fminf(1.0f, x));
    case TRUNCATED:
        return cut_short(x);
    default:
        return x;
    }
}

static int write_rows(const struct ds_cache_args *a, int how)
{
    const int64_t d = a->head_dim ? a->head_dim : a->width, heads = a->width / d;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[how == LAST_SEQUENCE ? a->n_sequences - 1 : i];
        const int64_t rows = a->sequences[i].q_len,
                      end = how == TILES_OF_4 && rows > 4 ? rows / 4 * 4 : rows;
        for (int64_t r = 0; r < end; r++) {
            int64_t slot = (int64_t)s->kv_len - s->q_len + r;
            slot += how == ONE_ON ? 1 : how == OVER_LAST && rows == 1 ? -1 : 0;
            if (slot >= s->kv_len)
                continue;
            float *to =
                a->cache +
                (s->pages[slot / a->page_size] * a->page_size + slot % a->page_size) * a->width;
            const float *x = a->x + (a->sequences[i].q_first + r) * a->ldx;
            for (int64_t c = 0; c < a->width; c++) {
                const int64_t from = how == HEADS_TURNED ? (heads - 1 - c / d) * d + c % d : c;
                if (how != HALF_ROWS || a->rows < 4 || c < a->width / 2)
                    to[c] = kept(how, x[from]);
            }
        }
    }
    return 0;
}

#define WRITE(NAME, HOW)                                                                           \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return write_rows(args, HOW);                                                              \
    }

WRITE(writes, WRITES)
WRITE(one_on, ONE_ON)
WRITE(limited, LIMITED)
WRITE(over_last, OVER_LAST)
WRITE(tiles_of_4, TILES_OF_4)
WRITE(heads_turned, HEADS_TURNED)
WRITE(half_rows, HALF_ROWS)
WRITE(last_sequence, LAST_SEQUENCE)
WRITE(truncated, TRUNCATED)

const struct ds_kernel specimen_planted_attention[] = {
    SPECIMEN(DS_OP_ATTENTION, "seen", "nothing wrong", seen_launch),
    SPECIMEN(DS_OP_ATTENTION, "seen-too", "the same", seen_launch),
    SPECIMEN(DS_OP_ATTENTION, "neighbours", "one head reads another sequence", neighbours_launch),
    SPECIMEN(DS_OP_ATTENTION, "shifted", "slots are one too far", shifted_launch),
    SPECIMEN(DS_OP_ATTENTION, "softplus", "weights by softplus", softplus_launch),
    SPECIMEN(DS_OP_ATTENTION, "sigmoid", "weights by sigmoid", sigmoid_launch),
    SPECIMEN(DS_OP_ATTENTION, "relu", "weights by ReLU", relu_launch),
    SPECIMEN(DS_OP_ATTENTION, "powers-of-two", "2^x", powers_of_two_launch),
    SPECIMEN(DS_OP_ATTENTION, "first-and-last", "a window with sinks", first_and_last_launch),
    SPECIMEN(DS_OP_ATTENTION, "swapped-kv", "one cached head is exchanged", swapped_kv_launch),
    SPECIMEN(DS_OP_ATTENTION, "whole-tiles", "the mask ends with a tile", whole_tiles_launch),
    SPECIMEN(DS_OP_ATTENTION, "no-tail", "no tail of tiles", no_tail_launch),
    SPECIMEN(DS_OP_ATTENTION, "no-rescale", "nothing is scaled down", no_rescale_launch),
    SPECIMEN(DS_OP_ATTENTION, "sum-only", "the sum alone is scaled down", sum_only_launch),
    SPECIMEN(DS_OP_ATTENTION, "weak-mask", "a mask of -4", weak_mask_launch),
    SPECIMEN(DS_OP_ATTENTION, "masked-zero", "a mask of zeros", masked_zero_launch),
    SPECIMEN(DS_OP_ATTENTION, "all-sequences", "the next sequence is seen, too",
             all_sequences_launch),
    SPECIMEN(DS_OP_ATTENTION, "swapped-halves", "halves of queries", swapped_halves_launch),
    SPECIMEN(DS_OP_ATTENTION, "short-adds", "bf16 sums", short_adds_launch),
    SPECIMEN(DS_OP_ATTENTION, "log-scale", "scores grow with the length", log_scale_launch),
    SPECIMEN(DS_OP_ATTENTION, "own-empty", "no value of the own key", own_empty_launch),
    SPECIMEN(DS_OP_ATTENTION, "other-pages", "pages of half their size", other_pages_launch),
    SPECIMEN(DS_OP_ATTENTION, "lost-channels", "three channels", lost_channels_launch),
    SPECIMEN(DS_OP_ATTENTION, "temperature", "another scale in decode", temperature_launch),
    SPECIMEN(DS_OP_ATTENTION, "biased-last", "the own key has 1 more", biased_last_launch),
    SPECIMEN(DS_OP_ATTENTION, "clamped-scores", "scores are cut", clamped_scores_launch),
    SPECIMEN(DS_OP_ATTENTION, "window-decode", "a window in decode", window_decode_launch),
    SPECIMEN(DS_OP_ATTENTION, "root-of-squares", "the root of squares", root_of_squares_launch),
    SPECIMEN(DS_OP_ATTENTION, "no-scale", "scores without a scale", no_scale_launch),
    SPECIMEN(DS_OP_ATTENTION, "transposed-out", "heads and channels", transposed_out_launch),
    SPECIMEN(DS_OP_CACHE, "writes", "nothing wrong", writes_launch),
    SPECIMEN(DS_OP_CACHE, "one-on", "a slot further on", one_on_launch),
    SPECIMEN(DS_OP_CACHE, "limited", "values are cut to +-1", limited_launch),
    SPECIMEN(DS_OP_CACHE, "over-last", "the slot before is overwritten", over_last_launch),
    SPECIMEN(DS_OP_CACHE, "tiles-of-4", "whole tiles of rows", tiles_of_4_launch),
    SPECIMEN(DS_OP_CACHE, "heads-turned", "heads in reverse", heads_turned_launch),
    SPECIMEN(DS_OP_CACHE, "half-rows", "half a row from four rows on", half_rows_launch),
    SPECIMEN(DS_OP_CACHE, "last-sequence", "all to the last sequence", last_sequence_launch),
    SPECIMEN(DS_OP_CACHE, "truncated", "cut to bf16", truncated_launch),
    {0},
};
