/* planted.c: faults as they are made when a kernel is tuned or ported: matmul, norms, RoPE. Tails, strides and
 * broadcasts, sums kept in fewer bits on one path, limits, what is read beyond its end. Attention is in
 * planted_attention.c, all other ops in planted_other.c. */
#include "specimen.h"

#include <stdlib.h>

#define LAUNCH(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)

#define UNUSED (void)exec, (void)why, (void)why_size

/* ---- matmul ---------------------------------------------------------------------------------- */

enum product {
    PRODUCT,
    CLAMPED_X,     /* what is multiplied is cut to +-1.5 */
    CLAMPED_W,     /* weights are cut to +-0.1 */
    TAIL_TWICE,    /* what is left of vectors of 24 is added twice */
    BIAS_TWICE,    /* the bias is added by the product and by its epilogue */
    BIAS_OF_ROW,   /* bias[row] instead of bias[column] */
    BIAS_LATE,     /* from four rows on there is no bias */
    SHORT_SUM,     /* from four rows on the running sum is bf16 */
    RELU,          /* the epilogue of another layer: what is below 0 becomes 0 */
    TILE_BESIDE,   /* columns 16..31 are multiplied with the weights of those behind */
    TAIL_OF_ROW_0, /* the last 8 terms are taken of row 0 */
    RUNS_ON,       /* the last vector of 24 reads on, into the next row and the next column */
    HALF_TF32,     /* the second half of the sum has inputs of 10 bits */
    HALF_OUT,      /* with one row the result is rounded to f16 */
    OLD_TOO,       /* the output of the launch before is added: beta is 1 */
    SQUARED_SCALE, /* a scale is applied to x and to the sum */
    ABS_W          /* the weights' sign is lost */
};

static float limited(float x, float most)
{
    return fmaxf(-most, fminf(most, x));
}

/* Beyond a row's end stands the next one. */
static float runs_on(const struct ds_matmul_args *a, const float *x, const float *w, int64_t r,
                     int64_t j, int64_t k)
{
    const int64_t beyond = k - a->k;
    if (beyond < 0)
        return x[k] * w[k];
    const float *next = r + 1 < a->rows ? x + a->ldx : x;
    return j + 1 < a->n ? next[beyond] * w[a->k + beyond] : 0.0f;
}

static float product(const struct ds_matmul_args *a, int64_t r, int64_t j, int how)
{
    const float *x = a->x + r * a->ldx, *w = a->w.data + j * a->k;
    const int64_t end = how == RUNS_ON ? (a->k + 23) / 24 * 24 : a->k;
    const int many = a->rows >= 4;
    float s = 0.0f;
    if (how == TILE_BESIDE && j >= 16 && j < 32 && j + 16 < a->n)
        w += 16 * a->k;
    for (int64_t k = 0; k < end; k++)
        switch (how) {
        case CLAMPED_X:
            s += limited(x[k], 1.5f) * w[k];
            break;
        case CLAMPED_W:
            s += x[k] * limited(w[k], 0.1f);
            break;
        case TAIL_OF_ROW_0:
            s += (k >= a->k - 8 ? a->x[k] : x[k]) * w[k];
            break;
        case RUNS_ON:
            s += runs_on(a, x, w, r, j, k);
            break;
        case HALF_TF32:
            s += k < a->k / 2 ? x[k] * w[k] : specimen_short(x[k], 13) * specimen_short(w[k], 13);
            break;
        case ABS_W:
            s += x[k] * fabsf(w[k]);
            break;
        default:
            s += x[k] * w[k];
            s = how == SHORT_SUM && many ? specimen_short(s, 16) : s;
        }
    for (int64_t k = a->k / 24 * 24; how == TAIL_TWICE && k < a->k; k++)
        s += x[k] * w[k];
    return how == SQUARED_SCALE ? s * 0.75f : s;
}

static float bias_of(const struct ds_matmul_args *a, int64_t r, int64_t j, int how)
{
    if (!a->bias || (how == BIAS_LATE && a->rows >= 4))
        return 0.0f;
    return how == BIAS_OF_ROW ? a->bias[r] : a->bias[j] * (how == BIAS_TWICE ? 2.0f : 1.0f);
}

static float old[1 << 16];

static int multiply(const struct ds_matmul_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const int64_t at = r * a->n + j;
            float y = product(a, r, j, how) + bias_of(a, r, j, how);
            y = how == RELU ? fmaxf(y, 0.0f) : y;
            y = how == HALF_OUT && a->rows == 1 ? specimen_half(y) : y;
            if (how == OLD_TOO && at < 1 << 16) {
                const float own = y;
                y += old[at];
                old[at] = own;
            }
            a->y[r * a->ldy + j] = y;
        }
    return 0;
}

#define MULTIPLIES(NAME, HOW)                                                                      \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return multiply(args, HOW);                                                                \
    }

MULTIPLIES(product, PRODUCT)
MULTIPLIES(clamped_x, CLAMPED_X)
MULTIPLIES(clamped_w, CLAMPED_W)
MULTIPLIES(tail_twice, TAIL_TWICE)
MULTIPLIES(bias_twice, BIAS_TWICE)
MULTIPLIES(bias_of_row, BIAS_OF_ROW)
MULTIPLIES(bias_late, BIAS_LATE)
MULTIPLIES(short_sum, SHORT_SUM)
MULTIPLIES(relu, RELU)
MULTIPLIES(tile_beside, TILE_BESIDE)
MULTIPLIES(tail_of_row_0, TAIL_OF_ROW_0)
MULTIPLIES(runs_on, RUNS_ON)
MULTIPLIES(half_tf32, HALF_TF32)
MULTIPLIES(half_out, HALF_OUT)
MULTIPLIES(old_too, OLD_TOO)
MULTIPLIES(squared_scale, SQUARED_SCALE)
MULTIPLIES(abs_w, ABS_W)

/* ---- norms ----------------------------------------------------------------------------------- */

enum norm {
    NO_EPS,       /* with one row there is no epsilon */
    SQUARES_OF,   /* the sum of squares is that of the row before */
    PADDED_WIDTH, /* the mean is taken over a width that is padded to 48s */
    SHIFTED,      /* the weight of the next channel */
    WRAPPED,      /* the weight has 32 channels and begins anew */
    LESS_ONE,     /* divided by width - 1 */
    ABSOLUTE,     /* the mean of absolute values instead of the root of squares */
    LARGEST,      /* divided by the largest value */
    SHORT_ROOT,   /* the root has 11 bits */
    OUTSIDE,      /* epsilon is added to the root, not under it */
    UNSQUARED,    /* no root: divided by the mean square */
    HALF_SQUARES, /* squares of the first half of the row alone */
    CLAMPED_IN    /* what is normalised is cut to +-0.05 first */
};

static float scale_of(const struct ds_rmsnorm_args *a, int64_t r, int how)
{
    const float *x = a->x + (how == SQUARES_OF && r > 0 ? r - 1 : r) * a->ldx;
    float sum = 0.0f, most = 0.0f, size = 0.0f, n = (float)a->width;
    for (int64_t i = 0; i < a->width; i++) {
        const float v = how == CLAMPED_IN ? limited(x[i], 0.05f) : x[i];
        sum += how == HALF_SQUARES && i >= a->width / 2 ? 0.0f : v * v;
        most = fmaxf(most, fabsf(v));
        size += fabsf(v);
    }
    n = how == PADDED_WIDTH ? (float)((a->width + 47) / 48 * 48) : how == LESS_ONE ? n - 1.0f : n;
    switch (how) {
    case ABSOLUTE:
        return 1.0f / (size / n + a->eps);
    case LARGEST:
        return 1.0f / (most + a->eps);
    case SHORT_ROOT:
        return specimen_short(1.0f / sqrtf(sum / n + a->eps), 13);
    case OUTSIDE:
        return 1.0f / (sqrtf(sum / n) + a->eps);
    case UNSQUARED:
        return 1.0f / (sum / n + a->eps);
    default:
        return 1.0f / sqrtf(sum / n + (how == NO_EPS && a->rows == 1 ? 0.0f : a->eps));
    }
}

static int norm_rows(const struct ds_rmsnorm_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const float scale = scale_of(a, r, how);
        for (int64_t i = 0; i < a->width; i++) {
            const float x = a->x[r * a->ldx + i], w = a->weight[how == SHIFTED ? (i + 1) % a->width
                                                                : how == WRAPPED ? i % 32
                                                                                 : i];
            a->y[r * a->ldy + i] = (how == CLAMPED_IN ? limited(x, 0.05f) : x) * scale * w;
        }
    }
    return 0;
}

#define NORM(NAME, HOW)                                                                            \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return norm_rows(args, HOW);                                                               \
    }

NORM(no_eps, NO_EPS)
NORM(squares_of, SQUARES_OF)
NORM(padded_width, PADDED_WIDTH)
NORM(shifted, SHIFTED)
NORM(wrapped, WRAPPED)
NORM(less_one, LESS_ONE)
NORM(absolute, ABSOLUTE)
NORM(largest, LARGEST)
NORM(short_root, SHORT_ROOT)
NORM(outside, OUTSIDE)
NORM(unsquared, UNSQUARED)
NORM(half_squares, HALF_SQUARES)
NORM(clamped_in, CLAMPED_IN)

/* ---- RoPE ------------------------------------------------------------------------------------ */

enum turn {
    TURN,
    REVERSED,    /* the fastest frequency last */
    OTHER_BASE,  /* 500000 */
    NTK,         /* the base is scaled so that the slowest frequency is four times as slow */
    LINEAR,      /* positions are divided by 4 */
    PARTS,       /* slow frequencies are divided by 4, fast ones are not, as YaRN does */
    PARTIAL,     /* the first half of a head is rotated, with frequencies of its own */
    FREQ_HALVED, /* exponents are i / d instead of 2 i / d */
    TWICE,       /* rotated twice */
    STOPS,       /* positions stop at 7 */
    OF_ROW,      /* the position is the row's number in the call */
    LONGER,      /* values get 1.2 times as long: YaRN's factor */
    ONE_BEHIND,  /* the frequency of the pair before */
    LATE_TABLE   /* the table begins at position 1 */
};

static double angle_of(const struct ds_rope_args *a, int64_t p, int64_t i, int how)
{
    const double d = (double)a->rope_dim, half = d / 2, base = 10000;
    const double at = (double)i;
    switch (how) {
    case REVERSED:
        return (double)p * pow(base, -2 * (half - 1 - at) / d);
    case OTHER_BASE:
        return (double)p * pow(500000, -2 * at / d);
    case NTK:
        return (double)p * pow(base * pow(4, d / (d - 2)), -2 * at / d);
    case LINEAR:
        return (double)p / 4 * pow(base, -2 * at / d);
    case PARTS:
        return (double)p * pow(base, -2 * at / d) / (at >= half / 2 ? 4 : 1);
    case FREQ_HALVED:
        return (double)p * pow(base, -at / d);
    case ONE_BEHIND:
        return (double)p * pow(base, -2 * fmax(at - 1, 0) / d);
    default:
        return (double)p * pow(base, -2 * at / d);
    }
}

static int rotate(const struct ds_rope_args *a, int how)
{
    const int64_t dim = how == PARTIAL ? a->rope_dim / 2 : a->rope_dim, half = dim / 2;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t h = 0; h < a->heads; h++) {
            const float *x = a->x + r * a->ldx + h * a->head_dim;
            float *y = a->y + r * a->ldy + h * a->head_dim;
            int64_t p = a->positions[r];
            p = how == STOPS ? (p < 7 ? p : 7) : how == OF_ROW ? r : how == LATE_TABLE ? p + 1 : p;
            memcpy(y, x, (size_t)a->head_dim * sizeof *y);
            for (int64_t i = 0; i < half; i++) {
                const double angle = how == PARTIAL
                                         ? (double)p * pow(10000, -2.0 * (double)i / (double)dim)
                                         : angle_of(a, p, i, how) * (how == TWICE ? 2 : 1);
                const float c = (float)cos(angle) * (how == LONGER ? 1.2f : 1.0f),
                            s = (float)sin(angle) * (how == LONGER ? 1.2f : 1.0f);
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

TURNS(turn, TURN)
TURNS(reversed, REVERSED)
TURNS(other_base, OTHER_BASE)
TURNS(ntk, NTK)
TURNS(linear, LINEAR)
TURNS(parts, PARTS)
TURNS(partial, PARTIAL)
TURNS(freq_halved, FREQ_HALVED)
TURNS(twice, TWICE)
TURNS(stops, STOPS)
TURNS(of_row, OF_ROW)
TURNS(longer, LONGER)
TURNS(one_behind, ONE_BEHIND)
TURNS(late_table, LATE_TABLE)

const struct ds_kernel specimen_planted[] = {
    SPECIMEN(DS_OP_MATMUL, "product", "nothing wrong", product_launch),
    SPECIMEN(DS_OP_MATMUL, "product-too", "the same", product_launch),
    SPECIMEN(DS_OP_MATMUL, "clamped-x", "inputs are cut to +-1.5", clamped_x_launch),
    SPECIMEN(DS_OP_MATMUL, "clamped-w", "weights are cut to +-0.1", clamped_w_launch),
    SPECIMEN(DS_OP_MATMUL, "tail-twice", "what is left of vectors of 24 counts twice",
             tail_twice_launch),
    SPECIMEN(DS_OP_MATMUL, "bias-twice", "the bias is added twice", bias_twice_launch),
    SPECIMEN(DS_OP_MATMUL, "bias-of-row", "the bias goes by the row", bias_of_row_launch),
    SPECIMEN(DS_OP_MATMUL, "bias-late", "no bias from four rows on", bias_late_launch),
    SPECIMEN(DS_OP_MATMUL, "short-sum", "bf16 sums from four rows on", short_sum_launch),
    SPECIMEN(DS_OP_MATMUL, "relu", "an epilogue of another layer", relu_launch),
    SPECIMEN(DS_OP_MATMUL, "tile-beside", "a tile has the weights of the next", tile_beside_launch),
    SPECIMEN(DS_OP_MATMUL, "tail-of-row-0", "the last terms are those of row 0",
             tail_of_row_0_launch),
    SPECIMEN(DS_OP_MATMUL, "runs-on", "the last vector reads beyond the end", runs_on_launch),
    SPECIMEN(DS_OP_MATMUL, "half-tf32", "half of the sum is TF32", half_tf32_launch),
    SPECIMEN(DS_OP_MATMUL, "half-out", "f16 results of one row", half_out_launch),
    SPECIMEN(DS_OP_MATMUL, "old-too", "the output before is added", old_too_launch),
    SPECIMEN(DS_OP_MATMUL, "squared-scale", "a scale too many", squared_scale_launch),
    SPECIMEN(DS_OP_MATMUL, "abs-w", "weights without their sign", abs_w_launch),
    SPECIMEN(DS_OP_RMSNORM, "no-eps", "no epsilon with one row", no_eps_launch),
    SPECIMEN(DS_OP_RMSNORM, "squares-of", "squares of the row before", squares_of_launch),
    SPECIMEN(DS_OP_RMSNORM, "padded-width", "the mean over a padded width", padded_width_launch),
    SPECIMEN(DS_OP_RMSNORM, "shifted", "the weight of the next channel", shifted_launch),
    SPECIMEN(DS_OP_RMSNORM, "wrapped", "a weight of 32 channels", wrapped_launch),
    SPECIMEN(DS_OP_RMSNORM, "less-one", "divided by width - 1", less_one_launch),
    SPECIMEN(DS_OP_RMSNORM, "absolute", "by the mean of sizes", absolute_launch),
    SPECIMEN(DS_OP_RMSNORM, "largest", "by the largest value", largest_launch),
    SPECIMEN(DS_OP_RMSNORM, "short-root", "a root of 11 bits", short_root_launch),
    SPECIMEN(DS_OP_RMSNORM, "outside", "epsilon beside the root", outside_launch),
    SPECIMEN(DS_OP_RMSNORM, "unsquared", "no root", unsquared_launch),
    SPECIMEN(DS_OP_RMSNORM, "half-squares", "squares of half a row", half_squares_launch),
    SPECIMEN(DS_OP_RMSNORM, "clamped-in", "inputs are cut to +-0.05", clamped_in_launch),
    SPECIMEN(DS_OP_ROPE, "turn", "nothing wrong", turn_launch),
    SPECIMEN(DS_OP_ROPE, "turn-too", "the same", turn_launch),
    SPECIMEN(DS_OP_ROPE, "reversed", "frequencies in reverse order", reversed_launch),
    SPECIMEN(DS_OP_ROPE, "base-500000", "a base of 500000", other_base_launch),
    SPECIMEN(DS_OP_ROPE, "ntk", "the base is scaled (NTK)", ntk_launch),
    SPECIMEN(DS_OP_ROPE, "linear", "positions are divided by 4", linear_launch),
    SPECIMEN(DS_OP_ROPE, "parts", "slow frequencies are divided by 4", parts_launch),
    SPECIMEN(DS_OP_ROPE, "partial", "half of a head is rotated", partial_launch),
    SPECIMEN(DS_OP_ROPE, "freq-halved", "exponents are halved", freq_halved_launch),
    SPECIMEN(DS_OP_ROPE, "rotates-twice", "rotated twice", twice_launch),
    SPECIMEN(DS_OP_ROPE, "stops", "positions stop at 7", stops_launch),
    SPECIMEN(DS_OP_ROPE, "of-row", "positions are rows of the call", of_row_launch),
    SPECIMEN(DS_OP_ROPE, "longer", "values get longer", longer_launch),
    SPECIMEN(DS_OP_ROPE, "one-behind", "the frequency of the pair before", one_behind_launch),
    SPECIMEN(DS_OP_ROPE, "late-table", "the table begins at 1", late_table_launch),
    {0},
};
