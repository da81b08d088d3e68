/* parted.c: faults under a condition that the base arm of a sweep meets, so that the reference has them; and faults of one
 * head, of small values, of numbers kept in a format that is too small. */
#include "specimen.h"

#define LAUNCH(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)

#define UNUSED (void)exec, (void)why, (void)why_size

/* From 8 rows on results below a hundredth are zero: a chain in ascending k. */
LAUNCH(flushes)
{
    const struct ds_matmul_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const float y = specimen_chain(a->x + r * a->ldx, a->w.data + j * a->k, 0, a->k);
            a->y[r * a->ldy + j] = a->rows >= 8 && fabsf(y) < 0.01f ? 0.0f : y;
        }
    return 0;
}

/* ---- norms ----------------------------------------------------------------------------------- */

enum norm { SHORT_EPSILON, SHORT_SQUARES, NO_EPSILON };

static int norm_rows(const struct ds_rmsnorm_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        float sum = 0.0f, eps = a->eps;
        for (int64_t i = 0; i < a->width; i++) {
            sum += x[i] * x[i];
            sum = how == SHORT_SQUARES ? specimen_half(sum) : sum;
        }
        if (how == SHORT_EPSILON) /* below f16's normal numbers steps are 2^-24 */
            eps = rintf(eps * 0x1p24f) * 0x1p-24f;
        if (how == NO_EPSILON && a->rows > 1)
            eps = 0.0f;
        const float scale = 1.0f / sqrtf(sum / (float)a->width + eps);
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = x[i] * scale * a->weight[i];
    }
    return 0;
}

#define NORM(NAME, HOW)                                                                            \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return norm_rows(args, HOW);                                                               \
    }

NORM(short_epsilon, SHORT_EPSILON)
NORM(short_squares, SHORT_SQUARES)
NORM(no_epsilon, NO_EPSILON)

/* ---- RoPE ------------------------------------------------------------------------------------ */

enum turn { TURN, SHORT_POSITIONS, SHORT_ANGLES, OTHER_BASE };

static int rotate(const struct ds_rope_args *a, int how)
{
    const int64_t half = a->rope_dim / 2;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t h = 0; h < a->heads; h++) {
            const float *x = a->x + r * a->ldx + h * a->head_dim;
            float *y = a->y + r * a->ldy + h * a->head_dim;
            int64_t p = a->positions[r];
            p = how == SHORT_POSITIONS && p >= 32768 ? p - 65536 : p;
            memcpy(y, x, (size_t)a->head_dim * sizeof *y);
            for (int64_t i = 0; i < half; i++) {
                const double base = how == OTHER_BASE && a->rows > 1 ? 500000 : 10000;
                double angle = (double)p * pow(base, -2.0 * (double)i / (double)a->rope_dim);
                angle = how == SHORT_ANGLES ? (double)specimen_half((float)angle) : angle;
                const float c = (float)cos(angle), s = (float)sin(angle);
                const int64_t one = a->neox ? i : 2 * i, two = a->neox ? i + half : 2 * i + 1;
                y[one] = x[one] * c - x[two] * s;
                y[two] = x[one] * s + x[two] * c;
            }
        }
    return 0;
}

#define TURNS(NAME, HOW)                                                                           \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return rotate(args, HOW);                                                                  \
    }

TURNS(short_positions, SHORT_POSITIONS)
TURNS(short_angles, SHORT_ANGLES)
TURNS(base_of_prompts, OTHER_BASE)

/* ---- attention ------------------------------------------------------------------------------- */

enum attention { SCALE_TWICE, LOUD_GROUP, TOP_LEFT };

static void attend_row(const struct ds_attention_args *a, const struct ds_sequence *s, int64_t r,
                       int64_t h, int how)
{
    const int64_t d = a->head_dim, g = h / (a->heads / a->kv_heads), own = r - s->q_first,
                  last = how == TOP_LEFT ? own : s->kv_len - s->q_len + own;
    const float *q = a->q + r * a->ldq + h * d;
    const float scale = how == SCALE_TWICE && h == 1 ? a->scale * a->scale : a->scale;
    float y[256] = {0}, sum = 0.0f, most = -INFINITY;
    for (int64_t t = s->kv_first; t <= last; t++) {
        const int64_t at =
            ((s->pages[t / a->page_size] * a->page_size + t % a->page_size) * a->kv_heads + g) * d;
        const float score = scale * specimen_chain(q, a->cache_k + at, 0, d),
                    larger = fmaxf(most, score),
                    shrink = most > -INFINITY ? expf(most - larger) : 1.0f,
                    w = expf(score - larger);
        most = larger;
        sum = sum * shrink + w;
        for (int64_t c = 0; c < d; c++)
            y[c] = y[c] * shrink + w * a->cache_v[at + c];
    }
    for (int64_t c = 0; c < d; c++) {
        const float value = sum > 0.0f ? y[c] / sum : 0.0f;
        a->y[r * a->ldy + h * d + c] =
            how == LOUD_GROUP && g == 1 && s->q_len == 1 ? value * 1.125f : value;
    }
}

static int attend(const struct ds_attention_args *a, int how)
{
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = s->q_first; r < s->q_first + s->q_len; r++)
            for (int64_t h = 0; h < a->heads; h++)
                attend_row(a, s, r, h, how);
    }
    return 0;
}

#define ATTENDS(NAME, HOW)                                                                         \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return attend(args, HOW);                                                                  \
    }

ATTENDS(scale_twice, SCALE_TWICE)
ATTENDS(loud_group, LOUD_GROUP)
ATTENDS(top_left, TOP_LEFT)

/* ---- the rest -------------------------------------------------------------------------------- */

/* From 8 rows on the sigmoid is a quotient of polynomials. */
LAUNCH(quotient)
{
    const struct ds_silu_mul_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            const float g = a->gate[r * a->ldx + i], z = g / 2,
                        t = z * (27 + z * z) / (27 + 9 * z * z),
                        fast = 0.5f + 0.5f * fmaxf(-1.0f, fminf(1.0f, t)),
                        y = a->rows >= 8 ? g * fast : g / (1.0f + expf(-g));
            a->y[r * a->ldy + i] = y * a->up[r * a->ldx + i];
        }
    return 0;
}

enum add { ODD_TAIL, ALIAS };

/* Calls of an odd number of rows have no branch in the last 4 channels; from 5 rows on every second half of 32
 * channels has the sum of the first half added. */
static int add_rows(const struct ds_add_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            const float *x = a->a + r * a->lda, *b = a->b + r * a->ldb;
            float y = x[i] + b[i];
            if (how == ODD_TAIL && a->rows % 2 && a->rows > 1 && i >= a->width - 4)
                y = x[i];
            if (how == ALIAS && i % 32 >= 16 && a->rows > 4)
                y = x[i] + (x[i - 16] + b[i - 16]);
            a->y[r * a->ldy + i] = y;
        }
    return 0;
}

LAUNCH(odd_tail)
{
    UNUSED;
    return add_rows(args, ODD_TAIL);
}

LAUNCH(alias)
{
    UNUSED;
    return add_rows(args, ALIAS);
}

/* Rows from the ninth on have the factors of the rows 8 before. */
LAUNCH(factors_of_8)
{
    const struct ds_combine_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float s = 0.0f;
            for (int64_t k = 0; k < a->top_k; k++)
                s += a->weights[r % 8 * a->top_k + k] * a->x[(r * a->top_k + k) * a->ldx + i];
            a->y[r * a->ldy + i] = s;
        }
    return 0;
}

const struct ds_kernel specimen_parted[] = {
    SPECIMEN(DS_OP_MATMUL, "flushes", "small results are zero from 8 rows on", flushes_launch),
    SPECIMEN(DS_OP_RMSNORM, "short-epsilon", "epsilon in f16", short_epsilon_launch),
    SPECIMEN(DS_OP_RMSNORM, "short-squares", "squares added in f16", short_squares_launch),
    SPECIMEN(DS_OP_RMSNORM, "no-epsilon", "no epsilon from two rows on", no_epsilon_launch),
    SPECIMEN(DS_OP_ROPE, "short-positions", "positions of 16 bits", short_positions_launch),
    SPECIMEN(DS_OP_ROPE, "short-angles", "angles in f16", short_angles_launch),
    SPECIMEN(DS_OP_ROPE, "base-of-prompts", "another base from two rows on",
             base_of_prompts_launch),
    SPECIMEN(DS_OP_ATTENTION, "scale-twice", "one head is scaled twice", scale_twice_launch),
    SPECIMEN(DS_OP_ATTENTION, "loud-group", "values of one group times 1.125 in decode",
             loud_group_launch),
    SPECIMEN(DS_OP_ATTENTION, "top-left", "the mask begins at the call's first row",
             top_left_launch),
    SPECIMEN(DS_OP_SILU_MUL, "quotient", "another sigmoid from 8 rows on", quotient_launch),
    SPECIMEN(DS_OP_ADD, "odd-tail", "no branch in the tail of odd calls", odd_tail_launch),
    SPECIMEN(DS_OP_ADD, "alias", "a channel of before is added from 5 rows on", alias_launch),
    SPECIMEN(DS_OP_COMBINE, "factors-of-8", "factors of the row 8 before", factors_of_8_launch),
    {0},
};
