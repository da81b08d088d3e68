/* structure_attend.c: see structure_attend.h. Sums in double, keys in ascending position. */
#include "dumps/structure_attend.h"

#include "base/dtype.h"

#include <math.h>

static uint32_t cached_head(const struct task *t, const struct keys *k, uint32_t head)
{
    uint32_t kv = t->s->kv_heads;
    switch (k->family) {
    case ONE_HEAD:
        return (uint32_t)k->n % kv;
    case MODULO:
        return head % kv;
    case REVERSE:
        return kv - 1 - head / (heads_of(t) / kv);
    default:
        return head / (heads_of(t) / kv);
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
    default:
        return key <= position;
    }
}

static double rounded(const struct keys *k, int way, double x)
{
    if (k->family != COARSE || k->n != way)
        return x;
    return k->dtype == DS_BF16 ? (double)ds_bf16_value(ds_bf16_round((float)x))
                               : (double)ds_f16_value(ds_f16_round((float)x));
}

/* The score of a row's head with one cached key. */
static double score_of(const struct task *t, const struct ds_structure_row *row, uint32_t head,
                       const struct keys *k, int64_t key)
{
    const uint32_t d = t->s->head_dim;
    const float *q = row->input + head * d, *x = row->k[key] + cached_head(t, k, head) * d;
    double score = 0;
    for (uint32_t c = 0; c < d; c++)
        score += (double)q[c] * (double)x[c];
    score = rounded(k, SCORES, score / sqrt(d));
    return k->family == CAPPED ? k->factor * tanh(score / k->factor) : score;
}

/* The same in two passes, where the largest score is known before anything is rounded: all keys. */
static int attend_twice(const struct task *t, size_t r, uint32_t head, const struct keys *k,
                        double *out)
{
    const struct ds_structure_row *row = &t->rows[r];
    const uint32_t d = t->s->head_dim, at = cached_head(t, k, head) * d;
    double most = -INFINITY, all = 0, sum = 0;
    if (row->position >= (int64_t)row->n_keys)
        return -1;
    for (int64_t key = 0; key <= row->position; key++) {
        if (!row->k[key] || !row->v[key])
            return -1;
        most = fmax(most, score_of(t, row, head, k, key));
    }
    for (int64_t key = 0; key <= row->position; key++)
        all += exp(score_of(t, row, head, k, key) - most);
    for (uint32_t c = 0; c < d; c++)
        out[c] = 0;
    for (int64_t key = 0; key <= row->position; key++) {
        double exact = exp(score_of(t, row, head, k, key) - most), weight = exact;
        weight = rounded(k, WEIGHTS, rounded(k, WEIGHTS_AND_SUM, weight));
        weight = k->family == COARSE && k->n == SHARES ? rounded(k, SHARES, weight / all) : weight;
        sum += k->family == COARSE && k->n == WEIGHTS ? exact : weight;
        for (uint32_t c = 0; c < d; c++)
            out[c] += weight * (double)row->v[key][at + c];
    }
    for (uint32_t c = 0; c < d && !(k->family == COARSE && k->n == SHARES); c++)
        out[c] /= sum;
    return 0;
}

int structure_attend(const struct task *t, size_t r, uint32_t head, const struct keys *k,
                     double *out)
{
    const struct ds_structure_row *row = &t->rows[r];
    if (k->family == COARSE || k->family == CAPPED)
        return attend_twice(t, r, head, k, out);
    uint32_t d = t->s->head_dim, at = cached_head(t, k, head) * d;
    const float *q = row->input + head * d;
    double sum = 0, most = -INFINITY, scale = (k->family == SCALED ? k->factor : 1) / sqrt(d);
    int64_t last =
        k->family == UPTO ? k->n - 1 : (int64_t)row->position + (k->family == BEYOND ? k->n : 0);
    const int64_t pads = k->family == PADS ? k->n : 0;
    if (last >= (int64_t)row->n_keys || pads > (int64_t)row->n_pads)
        return -1;
    for (uint32_t c = 0; c < d; c++)
        out[c] = 0;
    for (int64_t key = -pads; key <= last; key++) {
        double score = 0;
        if (!sees(k, row->position, key))
            continue;
        const float *key_row = key < 0 ? row->pad_k[row->n_pads + key] : row->k[key],
                    *value_row = key < 0 ? row->pad_v[row->n_pads + key] : row->v[key];
        if (!key_row || !value_row)
            return -1;
        for (uint32_t c = 0; c < d; c++)
            score += (double)q[c] * (double)key_row[at + c];
        score *= scale;
        if (score > most) { /* what was added so far shrinks */
            double shrink = exp(most - score);
            sum *= shrink;
            for (uint32_t c = 0; c < d; c++)
                out[c] *= shrink;
            most = score;
        }
        double weight = exp(score - most);
        sum += weight;
        for (uint32_t c = 0; c < d; c++)
            out[c] += weight * (double)value_row[at + c];
    }
    if (k->family == EMPTY) {
        double top = most > 0 ? most : 0;
        double shrink = exp(most - top);
        for (uint32_t c = 0; c < d; c++)
            out[c] *= shrink;
        sum = sum * shrink + (double)k->n * exp(-top);
    }
    for (uint32_t c = 0; c < d && sum > 0; c++)
        out[c] /= sum;
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
