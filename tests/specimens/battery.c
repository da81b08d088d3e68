/* battery.c: faults of no report in the kernels that add long sums: matmul, norms, attention, and in RoPE. What each
 * needs to be named is another weight, another scale, fewer bits in one place, or a condition. The other ops are in
 * battery_other.c. */
#include "specimen.h"

#define LAUNCH(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)

#define UNUSED (void)exec, (void)why, (void)why_size

enum { BLOCK = 32, MOST_TERMS = 1024 };

/* ---- matmul ---------------------------------------------------------------------------------- */

enum weights {
    RIGHT,
    ZERO_POINT, /* every weight is a step of its block of 4 bits too large */
    RAISED,     /* every weight is too large by one number */
    FP8_SCALES, /* every block's scale has three mantissa bits */
    LOST_LANE,  /* every 16th term is missing */
    SHORT_BIAS  /* the bias is bf16 */
};

/* One block of a column as it is unpacked. */
static void unpack(int how, const float *w, int64_t n, float *to)
{
    float low = INFINITY, high = -INFINITY, most = 0.0f;
    for (int64_t k = 0; k < n; k++) {
        low = fminf(low, w[k]);
        high = fmaxf(high, w[k]);
        most = fmaxf(most, fabsf(w[k]));
    }
    for (int64_t k = 0; k < n; k++)
        to[k] = how == ZERO_POINT   ? w[k] + (high - low) / 15.0f
                : how == RAISED     ? w[k] + 0.02f
                : how == FP8_SCALES ? w[k] * (specimen_short(most, 20) / most)
                : how == LOST_LANE  ? (k % 16 == 15 ? 0.0f : w[k])
                                    : w[k];
}

static int multiply(const struct ds_matmul_args *a, int how)
{
    float w[MOST_TERMS];
    for (int64_t j = 0; j < a->n; j++) {
        const float *own = a->w.data + j * a->k;
        for (int64_t k = 0; k < a->k && a->k <= MOST_TERMS; k += BLOCK)
            unpack(how, own + k, a->k - k < BLOCK ? a->k - k : BLOCK, w + k);
        for (int64_t r = 0; r < a->rows; r++) {
            const float s =
                specimen_chain(a->x + r * a->ldx, a->k <= MOST_TERMS ? w : own, 0, a->k);
            const float bias = !a->bias            ? 0.0f
                               : how == SHORT_BIAS ? specimen_short(a->bias[j], 16)
                                                   : a->bias[j];
            a->y[r * a->ldy + j] = s + bias;
        }
    }
    return 0;
}

#define MULTIPLIES(NAME, HOW)                                                                      \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return multiply(args, HOW);                                                                \
    }

MULTIPLIES(blocks, RIGHT)
MULTIPLIES(zero_point, ZERO_POINT)
MULTIPLIES(raised, RAISED)
MULTIPLIES(fp8_scales, FP8_SCALES)
MULTIPLIES(lost_lane, LOST_LANE)
MULTIPLIES(short_bias, SHORT_BIAS)

/* ---- trials ---------------------------------------------------------------------------------- */

/* Passes that this process has run, counted by a schedule that changes nothing. */
static int passes;

LAUNCH(counted)
{
    const struct ds_schedule_args *a = args;
    UNUSED;
    passes += a->call == 0;
    return 0;
}

/* In the second pass of a process, the one that no probe sees, sums are cut in two. */
LAUNCH(second_pass)
{
    const struct ds_matmul_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const float *x = a->x + r * a->ldx, *w = a->w.data + j * a->k;
            const float s =
                passes == 2 ? specimen_split(x, w, a->k, 2) : specimen_chain(x, w, 0, a->k);
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
    return 0;
}

/* Sums grow a little with every pass, as of something that is never reset. */
LAUNCH(growing)
{
    const struct ds_matmul_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const float s = specimen_chain(a->x + r * a->ldx, a->w.data + j * a->k, 0, a->k);
            a->y[r * a->ldy + j] = (a->bias ? s + a->bias[j] : s) * (1.0f + 1e-5f * (float)passes);
        }
    return 0;
}

/* Every other pass cuts its sums in two. */
LAUNCH(by_turns)
{
    const struct ds_matmul_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const float *x = a->x + r * a->ldx, *w = a->w.data + j * a->k;
            const float s =
                passes % 2 ? specimen_split(x, w, a->k, 2) : specimen_chain(x, w, 0, a->k);
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
    return 0;
}

/* ---- norms ----------------------------------------------------------------------------------- */

enum norm {
    PLAIN,
    PLUS_ONE,     /* the weight has 1 added, as another model stores it */
    BARE_FROM_17, /* from the 18th row of a call on there is no weight */
    GROUPS,       /* 16 channels at a time */
    SHORT_INPUT,  /* what is normalised is bf16 */
    SHORT_WEIGHT, /* the weight is bf16 */
    TWICE         /* what comes out is normalised once more */
};

static float normalised(int how, float x)
{
    return how == SHORT_INPUT ? specimen_short(x, 16) : x;
}

static void once_more(const struct ds_rmsnorm_args *a, float *y)
{
    const float scale = 1.0f / sqrtf(specimen_chain(y, y, 0, a->width) / (float)a->width + a->eps);
    for (int64_t i = 0; i < a->width; i++)
        y[i] *= scale * a->weight[i];
}

static int norm_rows(const struct ds_rmsnorm_args *a, int how)
{
    const int64_t unit = how == GROUPS && a->width % 16 == 0 ? 16 : a->width;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t from = 0; from < a->width; from += unit) {
            const float *x = a->x + r * a->ldx;
            float sum = 0.0f;
            for (int64_t i = from; i < from + unit; i++)
                sum += normalised(how, x[i]) * normalised(how, x[i]);
            const float scale = 1.0f / sqrtf(sum / (float)unit + a->eps);
            for (int64_t i = from; i < from + unit; i++) {
                const float own = a->weight[i], w = how == PLUS_ONE       ? 1.0f + own
                                                    : how == SHORT_WEIGHT ? specimen_short(own, 16)
                                                    : how == BARE_FROM_17 && r > 16 ? 1.0f
                                                                                    : own;
                a->y[r * a->ldy + i] = normalised(how, x[i]) * scale * w;
            }
        }
    for (int64_t r = 0; r < a->rows && how == TWICE; r++)
        once_more(a, a->y + r * a->ldy);
    return 0;
}

#define NORM(NAME, HOW)                                                                            \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return norm_rows(args, HOW);                                                               \
    }

NORM(plain_norm, PLAIN)
NORM(plus_one, PLUS_ONE)
NORM(bare_from_17, BARE_FROM_17)
NORM(groups, GROUPS)
NORM(short_input, SHORT_INPUT)
NORM(short_weight, SHORT_WEIGHT)
NORM(twice, TWICE)

/* ---- attention ------------------------------------------------------------------------------- */

enum attention {
    ALL_KEYS,
    HALF_SCORES,  /* scores of half of the channels */
    LATE_VALUES,  /* from slot 17 on the value of the slot before */
    SHORT_SUM,    /* the sum of weights is bf16 */
    NO_FIRST_KEY, /* behind padding the first key is skipped: the first token sees nothing */
    MERGED,       /* the part behind slot 7 is joined with a wrong maximum */
    OWN_TWICE,    /* a row's own key counts twice */
    UNDIVIDED     /* nothing is divided by the sum of weights */
};

struct head {
    const struct ds_attention_args *a;
    const struct ds_sequence *s;
    int64_t row, head, slot;
    int how;
};

static const float *in_cache(const struct head *h, const float *cache, int64_t slot)
{
    const struct ds_attention_args *a = h->a;
    const int64_t at = h->s->pages[slot / a->page_size] * a->page_size + slot % a->page_size,
                  group = h->head / (a->heads / a->kv_heads);
    return cache + (at * a->kv_heads + group) * a->head_dim;
}

static float score(const struct head *h, int64_t slot)
{
    const struct ds_attention_args *a = h->a;
    return specimen_chain(a->q + h->row * a->ldq + h->head * a->head_dim,
                          in_cache(h, a->cache_k, slot), 0,
                          h->how == HALF_SCORES ? a->head_dim / 2 : a->head_dim) *
           a->scale;
}

static void attend_head(const struct head *h)
{
    const struct ds_attention_args *a = h->a;
    const int64_t first = h->s->kv_first + (h->how == NO_FIRST_KEY && h->s->kv_first > 0);
    float *y = a->y + h->row * a->ldy + h->head * a->head_dim, max = -INFINITY, sum = 0.0f;
    for (int64_t t = first; t <= h->slot; t++)
        max = fmaxf(max, score(h, t));
    for (int64_t d = 0; d < a->head_dim; d++)
        y[d] = 0.0f;
    for (int64_t t = first; t <= h->slot; t++) {
        const float more = (h->how == MERGED && t > 7)             ? expf(0.5f)
                           : (h->how == OWN_TWICE && t == h->slot) ? 2.0f
                                                                   : 1.0f,
                    w = more * expf(score(h, t) - max),
                    *v = in_cache(h, a->cache_v, t - (h->how == LATE_VALUES && t >= 17));
        sum = h->how == SHORT_SUM ? specimen_short(sum + w, 16) : sum + w;
        for (int64_t d = 0; d < a->head_dim; d++)
            y[d] += w * v[d];
    }
    for (int64_t d = 0; d < a->head_dim && h->how != UNDIVIDED; d++)
        y[d] /= sum;
}

static int attend(const struct ds_attention_args *a, int how)
{
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = s->q_first; r < s->q_first + s->q_len; r++)
            for (int64_t n = 0; n < a->heads; n++) {
                const struct head h = {.a = a,
                                       .s = s,
                                       .row = r,
                                       .head = n,
                                       .slot = (int64_t)s->kv_len - s->q_len + (r - s->q_first),
                                       .how = how};
                if (h.slot >= s->kv_first)
                    attend_head(&h);
                else
                    memset(a->y + r * a->ldy + n * a->head_dim, 0,
                           (size_t)a->head_dim * sizeof *a->y);
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

ATTENDS(all_keys, ALL_KEYS)
ATTENDS(half_scores, HALF_SCORES)
ATTENDS(late_values, LATE_VALUES)
ATTENDS(short_sum, SHORT_SUM)
ATTENDS(no_first_key, NO_FIRST_KEY)
ATTENDS(merged, MERGED)
ATTENDS(own_twice, OWN_TWICE)
ATTENDS(undivided, UNDIVIDED)

/* ---- RoPE ------------------------------------------------------------------------------------ */

/* In calls of so many rows that three divides them: sines for cosines, or a position too few. */
static int rotate(const struct ds_rope_args *a, int exchanged, int earlier)
{
    const int64_t half = a->rope_dim / 2;
    const int now = a->rows % 3 == 0;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t h = 0; h < a->heads; h++) {
            const float *x = a->x + r * a->ldx + h * a->head_dim;
            const int64_t p = a->positions[r] - (now && earlier && a->positions[r] > 0);
            float *y = a->y + r * a->ldy + h * a->head_dim;
            memcpy(y, x, (size_t)a->head_dim * sizeof *y);
            for (int64_t i = 0; i < half; i++) {
                const float *cs = a->cos_sin + (p * half + i) * 2;
                const float c = cs[now && exchanged], s = cs[!(now && exchanged)];
                const int64_t at = a->neox ? i : 2 * i, apart = a->neox ? half : 1;
                y[at] = x[at] * c - x[at + apart] * s;
                y[at + apart] = x[at] * s + x[at + apart] * c;
            }
        }
    return 0;
}

LAUNCH(sines_first)
{
    UNUSED;
    return rotate(args, 1, 0);
}

LAUNCH(earlier)
{
    UNUSED;
    return rotate(args, 0, 1);
}

const struct ds_kernel specimen_battery[] = {
    SPECIMEN(DS_OP_MATMUL, "blocks", "one chain", blocks_launch),
    SPECIMEN(DS_OP_MATMUL, "blocks-too", "the same", blocks_launch),
    SPECIMEN(DS_OP_MATMUL, "zero-point", "every weight is a step of its block too large",
             zero_point_launch),
    SPECIMEN(DS_OP_MATMUL, "raised", "every weight is 0.02 too large", raised_launch),
    SPECIMEN(DS_OP_MATMUL, "fp8-scales", "scales of blocks have three mantissa bits",
             fp8_scales_launch),
    SPECIMEN(DS_OP_MATMUL, "lost-lane", "every 16th term is missing", lost_lane_launch),
    SPECIMEN(DS_OP_MATMUL, "short-bias", "the bias is bf16", short_bias_launch),
    SPECIMEN(DS_OP_SCHEDULE, "counted", "nothing wrong: counts passes", counted_launch),
    SPECIMEN(DS_OP_MATMUL, "second-pass", "the second pass of a process adds otherwise",
             second_pass_launch),
    SPECIMEN(DS_OP_MATMUL, "growing", "sums grow with every pass", growing_launch),
    SPECIMEN(DS_OP_MATMUL, "by-turns", "every other pass adds otherwise", by_turns_launch),
    SPECIMEN(DS_OP_RMSNORM, "plain-norm", "one chain", plain_norm_launch),
    SPECIMEN(DS_OP_RMSNORM, "plain-norm-too", "the same", plain_norm_launch),
    SPECIMEN(DS_OP_RMSNORM, "plus-one", "the weight has 1 added", plus_one_launch),
    SPECIMEN(DS_OP_RMSNORM, "bare-from-17", "row 17 and those behind it have no weight",
             bare_from_17_launch),
    SPECIMEN(DS_OP_RMSNORM, "groups", "16 channels at a time", groups_launch),
    SPECIMEN(DS_OP_RMSNORM, "short-input", "the input is rounded to bf16", short_input_launch),
    SPECIMEN(DS_OP_RMSNORM, "short-weight", "the weight is bf16", short_weight_launch),
    SPECIMEN(DS_OP_RMSNORM, "twice", "normalised once more", twice_launch),
    SPECIMEN(DS_OP_ATTENTION, "all-keys", "nothing wrong", all_keys_launch),
    SPECIMEN(DS_OP_ATTENTION, "all-keys-too", "the same", all_keys_launch),
    SPECIMEN(DS_OP_ATTENTION, "half-scores", "scores of half of the channels", half_scores_launch),
    SPECIMEN(DS_OP_ATTENTION, "late-values", "values are a slot behind from slot 17 on",
             late_values_launch),
    SPECIMEN(DS_OP_ATTENTION, "short-sum", "the sum of weights is bf16", short_sum_launch),
    SPECIMEN(DS_OP_ATTENTION, "no-first-key", "the first key behind padding is skipped",
             no_first_key_launch),
    SPECIMEN(DS_OP_ATTENTION, "merged", "keys behind slot 7 count too much", merged_launch),
    SPECIMEN(DS_OP_ATTENTION, "own-twice", "a row's own key counts twice", own_twice_launch),
    SPECIMEN(DS_OP_ATTENTION, "undivided", "weights are not divided by their sum",
             undivided_launch),
    SPECIMEN(DS_OP_ROPE, "sines-first", "with three rows sines stand for cosines",
             sines_first_launch),
    SPECIMEN(DS_OP_ROPE, "earlier", "with three rows a position too few", earlier_launch),
    {0},
};
