/* structure_attend.c: see structure_attend.h. Sums in double, keys in ascending position. */
#include "dumps/structure_attend.h"

#include "base/dtype.h"

#include <math.h>

/* Whether what a family says of where something is read holds of keys, or of values. */
static int concerns(const struct keys *k, int value)
{
    return k->parts == OF_BOTH || (k->parts == OF_VALUES) == value;
}

static uint32_t cached_head(const struct task *t, const struct keys *k, uint32_t head, int value)
{
    uint32_t kv = t->s->kv_heads, own = head / (heads_of(t) / kv);
    switch (concerns(k, value) ? k->family : ALL) {
    case ONE_HEAD:
        return (uint32_t)k->n % kv;
    case MODULO:
        return head % kv;
    case REVERSE:
        return kv - 1 - own;
    case TURNED_ON:
        return (own + (uint32_t)k->n) % kv;
    default:
        return own;
    }
}

static int sees(const struct keys *k, int64_t position, int64_t key)
{
    switch (k->family) {
    case WINDOW:
        return key <= position && key > position - k->n;
    case SHORTER:
        return key <= position - k->n;
    case FIRST:
        return key <= position && key < k->n;
    case SINCE:
        return key <= position && key >= k->n;
    case BUT_AGO:
        return key <= position && key != position - k->n;
    case BUT_AT:
        return key <= position && key != k->n;
    case BEYOND:
        return key <= position + k->n;
    case UPTO:
        return key < k->n;
    case ENDS:
        return key <= position && (key < k->from || key > position - k->n);
    case MASKED:
        return key <= position || key < k->n;
    default:
        return key <= position;
    }
}

int structure_sees_any(const struct task *t, const struct keys *k)
{
    for (size_t r = 0; r < t->n_rows; r++)
        for (int64_t key = 0; t->off_in_row[r] && key <= t->rows[r].position; key++)
            if (sees(k, t->rows[r].position, key))
                return 1;
    return 0;
}

/* To the nearest number with so many mantissa bits; `least`: the smallest exponent. */
static double few_bits(double x, int mantissa, int least, double most)
{
    if (x == 0 || !isfinite(x))
        return x;
    const int e = ilogb(x) < least ? least : ilogb(x);
    const double y = ldexp(rint(ldexp(x, mantissa - e)), e - mantissa);
    return fmax(-most, fmin(most, y));
}

static double rounded(const struct keys *k, int way, double x)
{
    if (k->family != COARSE || k->n != way)
        return x;
    switch (k->dtype) {
    case AS_BF16:
        return (double)ds_bf16_value(ds_bf16_round((float)x));
    case AS_F16:
        return (double)ds_f16_value(ds_f16_round((float)x));
    case AS_E4M3_OF_448:
        return few_bits(x * 448, 3, -6, 448) / 448;
    case AS_E4M3_OF_256:
        return few_bits(x * 256, 3, -6, 448) / 256;
    case AS_E5M2:
        return few_bits(x, 2, -14, 57344);
    default:
        return few_bits(x, 3, -6, 448);
    }
}

/* The row that is read at a key: its values, or its key. NULL: not at hand. */
static const float *cached(const struct ds_structure_row *row, const struct keys *k, int64_t key,
                           int value)
{
    if (key < 0)
        return (value ? row->pad_v : row->pad_k)[row->n_pads + key];
    if (k->family == EXCHANGE && k->n >> value & 1)
        value = !value;
    if ((k->family == BEFORE && key >= k->from) || (k->family == STALE && key == row->position))
        key -= key > 0 && concerns(k, value);
    if (k->family == AHEAD && concerns(k, value))
        key++;
    if (k->family == STRIDE)
        key = key / k->page * k->from + key % k->page;
    if (k->family == PAGE && key / k->page == k->n)
        key = k->from * k->page + key % k->page;
    return key < (int64_t)row->n_keys ? (value ? row->v : row->k)[key] : NULL;
}

/* A page that holds nothing. */
static int is_blank(const struct keys *k, int64_t key)
{
    return k->family == PAGE && k->from < 0 && key >= 0 && key / k->page == k->n;
}

/* The query: the row's own, or another one's of its request. NULL: not at hand. */
static const float *query(const struct task *t, const struct ds_structure_row *row,
                          const struct keys *k)
{
    if (k->family != QUERY)
        return row->input;
    for (size_t o = 0; o < t->n_rows; o++)
        if (t->rows[o].position == row->position - k->n && t->rows[o].k == row->k)
            return t->rows[o].input;
    return NULL;
}

double structure_score(const struct task *t, size_t r, uint32_t head, const struct keys *k,
                       int64_t key)
{
    const struct ds_structure_row *row = &t->rows[r];
    const uint32_t d = t->s->head_dim;
    const float *q = row->input + head * d, *x = row->k[key] + cached_head(t, k, head, 0) * d;
    double score = 0;
    for (uint32_t c = 0; c < d; c++)
        score += rounded(k, QUERIES, (double)q[c]) * rounded(k, KEYS, (double)x[c]);
    score = rounded(k, SCORES, score / sqrt(d));
    return k->family == CAPPED ? k->factor * tanh(score / k->factor) : score;
}

/* Halves of a power of two are alike for an exponential made of exponent and mantissa; others are off by how
 * far they go. */
void structure_knot(int by_distance, double below, int *at, double *part)
{
    const double ln2 = log(2), x = by_distance ? 4 * log1p(below) : -below / ln2,
                 place = by_distance ? x : (x - floor(x)) * (BENT_KNOTS - 1);
    *at = place < BENT_KNOTS - 1 ? (int)place : BENT_KNOTS - 2;
    *part = fmin(place - *at, 1);
}

static double exponential(const struct keys *k, double below)
{
    int at;
    double part;
    if (k->family != BENT_EXP)
        return exp(-below);
    structure_knot(k->bent->by_distance, below, &at, &part);
    return exp(-below) * (1 + (1 - part) * k->bent->off[at] + part * k->bent->off[at + 1]);
}

/* The same in two passes, where the largest score is known before anything is rounded: all keys. */
static int attend_twice(const struct task *t, size_t r, uint32_t head, const struct keys *k,
                        double *out)
{
    const struct ds_structure_row *row = &t->rows[r];
    const uint32_t d = t->s->head_dim, at = cached_head(t, k, head, 1) * d;
    double most = -INFINITY, all = 0, sum = 0;
    if (row->position >= (int64_t)row->n_keys)
        return -1;
    for (int64_t key = 0; key <= row->position; key++) {
        if (!row->k[key] || !row->v[key])
            return -1;
        most = fmax(most, structure_score(t, r, head, k, key));
    }
    for (int64_t key = 0; key <= row->position; key++)
        all += exponential(k, most - structure_score(t, r, head, k, key));
    for (uint32_t c = 0; c < d; c++)
        out[c] = 0;
    for (int64_t key = 0; key <= row->position; key++) {
        double exact = exponential(k, most - structure_score(t, r, head, k, key)), weight = exact;
        weight = rounded(k, WEIGHTS, rounded(k, WEIGHTS_AND_SUM, weight));
        weight = k->family == COARSE && k->n == SHARES ? rounded(k, SHARES, weight / all) : weight;
        sum += k->family == COARSE && k->n == WEIGHTS ? exact : weight;
        for (uint32_t c = 0; c < d; c++)
            out[c] += weight * rounded(k, VALUES, (double)row->v[key][at + c]);
    }
    for (uint32_t c = 0; c < d && !(k->family == COARSE && k->n == SHARES); c++)
        out[c] /= sum;
    return 0;
}

/* A softmax as it grows, key by key: what was added so far shrinks where a larger score comes. */
struct running {
    const struct keys *k;
    uint32_t d;
    double *out, sum, most;
};

static void shrink_to(struct running *x, double most)
{
    const int wrong = x->k->family == UNSHRUNK;
    const double shrink = exp(x->most - most);
    if (!wrong || x->k->n == OUTPUT_ALONE)
        x->sum *= shrink;
    for (uint32_t c = 0; c < x->d && (!wrong || x->k->n == SUM_ALONE); c++)
        x->out[c] *= shrink;
    x->most = most;
}

/* A weight that no maximum is taken from. */
static double weight_by(int64_t function, double score)
{
    switch (function) {
    case W_SOFTPLUS:
        return score > 30 ? score : log1p(exp(score));
    case W_SIGMOID_BARE:
    case W_SIGMOID:
        return 1 / (1 + exp(-score));
    case W_RELU:
        return fmax(score, 0);
    case W_RELU_SQUARED:
        return score > 0 ? score * score : 0;
    case W_EXP_SQUARES:
        return exp(score);
    default:
        return score;
    }
}

/* value NULL: it holds nothing. */
static void add_key(struct running *x, double score, const float *value)
{
    const int by_function = x->k->family == FUNCTION;
    if (!by_function && score > x->most)
        shrink_to(x, score);
    const double weight = by_function ? weight_by(x->k->n, score) : exp(score - x->most);
    x->sum += by_function && x->k->n == W_EXP_SQUARES ? weight * weight : weight;
    for (uint32_t c = 0; value && c < x->d; c++)
        x->out[c] += weight * (double)value[c];
}

/* What the weighed values are divided by. */
static double divisor(const struct running *x)
{
    if (x->k->family != FUNCTION)
        return x->sum;
    return x->k->n == W_SIGMOID_BARE || x->k->n == W_LINEAR ? 1
           : x->k->n == W_EXP_SQUARES                       ? sqrt(x->sum)
                                                            : x->sum;
}

/* The channel of a query that stands at c. */
static uint32_t query_channel(const struct keys *k, uint32_t c, uint32_t d)
{
    if (k->family != QUERY_TURNED)
        return c;
    switch (k->n) {
    case QUERY_HALVES:
        return (c + d / 2) % d;
    case QUERY_TO_PAIRS:
        return c / 2 + c % 2 * (d / 2);
    case QUERY_FROM_PAIRS:
        return c < d / 2 ? 2 * c : 2 * (c - d / 2) + 1;
    default:
        return d - 1 - c;
    }
}

/* What a family makes of the score of a key that lies `ahead` of the row. */
static double changed_score(const struct keys *k, double score, int64_t ahead)
{
    if (k->family == CUT_SCORES)
        return fmax(-k->factor, fmin(k->factor, score));
    if (k->family == MASKED && ahead > 0)
        return k->from ? 0 : score + k->factor;
    return score;
}

int structure_attend(const struct task *t, size_t r, uint32_t head, const struct keys *k,
                     double *out)
{
    const struct ds_structure_row *row = &t->rows[r];
    if (k->family == COARSE || k->family == CAPPED || k->family == BENT_EXP)
        return attend_twice(t, r, head, k, out);
    const uint32_t d = t->s->head_dim, at = cached_head(t, k, head, 0) * d,
                   value_at = cached_head(t, k, head, 1) * d;
    const uint32_t channels = k->family == PARTIAL ? (uint32_t)k->n : d;
    const float *q = query(t, row, k);
    const double scale = (k->family == SCALED ? k->factor : 1) / sqrt(d);
    struct running x = {.k = k, .d = d, .out = out, .most = -INFINITY};
    int64_t last =
        k->family == UPTO ? k->n - 1 : (int64_t)row->position + (k->family == BEYOND ? k->n : 0);
    if (k->family == MASKED && k->n - 1 > last)
        last = k->n - 1;
    const int64_t pads = k->family == PADS ? k->n : 0;
    if (!q || last >= (int64_t)row->n_keys || pads > (int64_t)row->n_pads)
        return -1;
    for (uint32_t c = 0; c < d; c++)
        out[c] = 0;
    for (int64_t key = -pads; key <= last; key++) {
        double score = 0;
        if (!sees(k, row->position, key))
            continue;
        const int blank = is_blank(k, key);
        const float *key_row = blank ? NULL : cached(row, k, key, 0),
                    *value_row = blank ? NULL : cached(row, k, key, 1);
        if (!blank && (!key_row || !value_row))
            return -1;
        for (uint32_t c = 0; c < channels && !blank; c++)
            score += (double)q[head * d + query_channel(k, c, d)] * (double)key_row[at + c];
        score = changed_score(k, score * scale, key - row->position);
        if (k->family == SLOPED)
            score += k->by_head[head] * (double)(key - row->position);
        add_key(&x, score,
                blank || (k->family == NO_VALUE && key == row->position) ? NULL
                                                                         : value_row + value_at);
    }
    for (int64_t n = 0; k->family == EMPTY && n < k->n; n++)
        add_key(&x, 0, NULL);
    if (k->family == SINK)
        add_key(&x, k->by_head[head], NULL);
    for (uint32_t c = 0; c < d && x.sum != 0; c++)
        out[c] /= divisor(&x);
    return 0;
}

int structure_predict_keys(const struct task *t, size_t r, const void *how)
{
    uint32_t d = t->s->head_dim;
    if (!t->rows[r].input || !t->rows[r].k)
        return -1;
    for (uint32_t h = 0; h < heads_of(t); h++) {
        if (structure_attend(t, r, h, how, t->sorted) != 0)
            return -1;
        for (uint32_t c = 0; c < d; c++)
            t->guess[h * d + c] = (float)t->sorted[c];
    }
    return 1;
}
