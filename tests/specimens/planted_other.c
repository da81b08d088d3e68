/* planted_other.c: faults of the ops that add no long sums, as they are made when a kernel is tuned or ported. See
 * planted.c. */
#include "specimen.h"

#define LAUNCH(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)

#define UNUSED (void)exec, (void)why, (void)why_size

/* ---- embed ----------------------------------------------------------------------------------- */

enum embed { LOOKS_UP, ROOTED, NO_ZERO, FROM_128, SHARDED, HALF_TABLE };

static int look_up(const struct ds_embed_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const int64_t own = a->ids[r], id = how == FROM_128 && own >= 128 ? own - 1
                                            : how == SHARDED              ? own % (a->vocab / 2)
                                                                          : own;
        for (int64_t i = 0; i < a->width; i++) {
            const float x = a->table[id * a->width + i];
            a->y[r * a->ldy + i] = how == ROOTED                ? x * sqrtf((float)a->width)
                                   : how == NO_ZERO && own == 5 ? 0.0f
                                   : how == HALF_TABLE          ? specimen_half(x)
                                                                : x;
        }
    }
    return 0;
}

#define LOOKS(NAME, HOW)                                                                           \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return look_up(args, HOW);                                                                 \
    }

LOOKS(rooted, ROOTED)
LOOKS(no_zero, NO_ZERO)
LOOKS(from_128, FROM_128)
LOOKS(sharded, SHARDED)
LOOKS(half_table, HALF_TABLE)

/* ---- the gated unit -------------------------------------------------------------------------- */

enum gate {
    GATE,
    SOFTPLUS,
    MISH,
    HARD_SWISH,
    SQUARED_RELU,
    ELU,
    TAIL_OF_UP,  /* silu(up) where vectors of 24 leave something over */
    TILE_BESIDE, /* up is that of the tile of 16 behind */
    SHORT_EXP,   /* the exponential's argument stops at +-1 */
    LEAKY,       /* what is below 0 counts a hundredth */
    NO_UP_TAIL   /* up is 1 in the last 8 channels */
};

static float function(int how, float g)
{
    const float e = log1pf(expf(g));
    switch (how) {
    case SOFTPLUS:
        return e;
    case MISH:
        return g * tanhf(e);
    case HARD_SWISH:
        return g * fmaxf(0.0f, fminf(1.0f, (g + 3.0f) / 6.0f));
    case SQUARED_RELU:
        return g > 0.0f ? g * g : 0.0f;
    case ELU:
        return g > 0.0f ? g : expf(g) - 1.0f;
    case SHORT_EXP:
        return g / (1.0f + expf(fmaxf(-1.0f, fminf(1.0f, -g))));
    case LEAKY:
        return g > 0.0f ? g : 0.01f * g;
    default:
        return g / (1.0f + expf(-g));
    }
}

static int gate_rows(const struct ds_silu_mul_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            const int64_t at = r * a->ldx + i;
            float g = a->gate[at], u = a->up[at];
            if (how == TAIL_OF_UP && i >= a->width / 24 * 24)
                g = u;
            if (how == TILE_BESIDE)
                u = a->up[r * a->ldx + (i + 16) % a->width];
            if (how == NO_UP_TAIL && i >= a->width - 8)
                u = 1.0f;
            a->y[r * a->ldy + i] = function(how, g) * u;
        }
    return 0;
}

#define GATES(NAME, HOW)                                                                           \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return gate_rows(args, HOW);                                                               \
    }

GATES(softplus, SOFTPLUS)
GATES(mish, MISH)
GATES(hard_swish, HARD_SWISH)
GATES(squared_relu, SQUARED_RELU)
GATES(elu, ELU)
GATES(tail_of_up, TAIL_OF_UP)
GATES(tile_beside, TILE_BESIDE)
GATES(short_exp, SHORT_EXP)
GATES(leaky, LEAKY)
GATES(no_up_tail, NO_UP_TAIL)

/* ---- residuals ------------------------------------------------------------------------------- */

enum add { ADDS, SECOND_ALONE, TWICE_FIRST, CUT, TAIL_ALONE, SCALED_BOTH, BRANCH_OF_0, SHIFTED };

static int add_rows(const struct ds_add_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            const float x = a->a[r * a->lda + i],
                        b = a->b[(how == BRANCH_OF_0 ? 0 : r) * a->ldb +
                                 (how == SHIFTED ? (i + 1) % a->width : i)],
                        y = how == SECOND_ALONE  ? b
                            : how == TWICE_FIRST ? x + b + x
                            : how == CUT         ? fmaxf(-0.1f, fminf(0.1f, x + b))
                            : how == TAIL_ALONE && i >= a->width / 24 * 24 ? x
                            : how == SCALED_BOTH                           ? (x + b) * 0.70710678f
                                                                           : x + b;
            a->y[r * a->ldy + i] = y;
        }
    return 0;
}

#define ADD(NAME, HOW)                                                                             \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return add_rows(args, HOW);                                                                \
    }

ADD(second_alone, SECOND_ALONE)
ADD(twice_first, TWICE_FIRST)
ADD(cut, CUT)
ADD(tail_alone, TAIL_ALONE)
ADD(scaled_both, SCALED_BOTH)
ADD(branch_of_0, BRANCH_OF_0)
ADD(shifted_branch, SHIFTED)

/* ---- experts --------------------------------------------------------------------------------- */

enum route { ROUTE, FIRST_HALF, SOFT_TWICE, ONE_LESS, SIGNLESS, UNIFORM, HOT };
enum { MOST_EXPERTS = 64 };

static float logit(const float *x, int64_t e, int64_t experts, int how)
{
    return how == FIRST_HALF && e >= experts / 2 ? -INFINITY : how == SIGNLESS ? fabsf(x[e]) : x[e];
}

static void choose(const struct ds_router_args *a, const float *x, int how, int32_t *ids)
{
    int taken[MOST_EXPERTS] = {0};
    for (int64_t k = 0; k < a->top_k; k++) {
        int64_t best = -1;
        float most = 0.0f;
        for (int64_t e = 0; e < a->experts && e < MOST_EXPERTS; e++) {
            const float v = logit(x, e, a->experts, how);
            if (!taken[e] && (best < 0 || v > most)) {
                best = e;
                most = v;
            }
        }
        taken[best] = 1;
        ids[k] = (int32_t)best;
    }
}

static int route(const struct ds_router_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->logits + r * a->ldx;
        int32_t *ids = a->ids + r * a->top_k;
        float *w = a->weights + r * a->top_k, max = -INFINITY, all = 0.0f, chosen = 0.0f, t = 1.0f;
        choose(a, x, how, ids);
        t = how == HOT ? 0.5f : 1.0f;
        for (int64_t e = 0; e < a->experts; e++)
            max = fmaxf(max, x[e] * t);
        for (int64_t e = 0; e < a->experts; e++)
            all += expf(x[e] * t - max);
        for (int64_t k = 0; k < a->top_k; k++) {
            w[k] = expf(x[ids[k]] * t - max) / all;
            w[k] = how == SOFT_TWICE ? expf(w[k]) : how == UNIFORM ? 1.0f : w[k];
            w[k] = how == ONE_LESS && k == a->top_k - 1 ? 0.0f : w[k];
            chosen += w[k];
        }
        for (int64_t k = 0; k < a->top_k; k++)
            w[k] = a->normalise || how == SOFT_TWICE || how == UNIFORM ? w[k] / chosen : w[k];
    }
    return 0;
}

#define ROUTES(NAME, HOW)                                                                          \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return route(args, HOW);                                                                   \
    }

ROUTES(route, ROUTE)
ROUTES(first_half, FIRST_HALF)
ROUTES(soft_twice, SOFT_TWICE)
ROUTES(one_less, ONE_LESS)
ROUTES(signless, SIGNLESS)
ROUTES(uniform, UNIFORM)
ROUTES(hot, HOT)

enum sum { SUM, BY_EXPERT, LAST_ALONE, MEAN, UNSORTED };

/* BY_EXPERT: outputs are read as if those of one expert stood together, rows within. */
static int combine(const struct ds_combine_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float s = 0.0f;
            for (int64_t k = 0; k < a->top_k; k++) {
                const int64_t from = how == BY_EXPERT ? k * a->rows + r : r * a->top_k + k;
                const float w = a->weights[how == UNSORTED ? r * a->top_k + (k + 1) % a->top_k
                                                           : r * a->top_k + k];
                s = how == LAST_ALONE ? w * a->x[from * a->ldx + i]
                                      : s + w * a->x[from * a->ldx + i];
            }
            a->y[r * a->ldy + i] = how == MEAN ? s / (float)a->top_k : s;
        }
    return 0;
}

#define COMBINES(NAME, HOW)                                                                        \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return combine(args, HOW);                                                                 \
    }

COMBINES(sum, SUM)
COMBINES(by_expert, BY_EXPERT)
COMBINES(last_alone, LAST_ALONE)
COMBINES(mean, MEAN)
COMBINES(unsorted, UNSORTED)

/* ---- ranks, devices -------------------------------------------------------------------------- */

enum reduce { REDUCE, AVERAGE, FIRST_TWICE, OLD_RANK, LARGEST };

static float before[1 << 16];

static int reduce(const struct ds_allreduce_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float s = 0.0f;
            for (int64_t n = 0; n < a->ranks; n++) {
                float x = a->x[n][r * a->ldx + i];
                const int64_t at = r * a->width + i;
                if (how == OLD_RANK && n == a->ranks - 1 && at < 1 << 16) {
                    const float own = x;
                    x = before[at];
                    before[at] = own;
                }
                s = how == LARGEST && n ? fmaxf(s, x) : s + x;
            }
            s += how == FIRST_TWICE ? a->x[0][r * a->ldx + i] : 0.0f;
            a->y[r * a->ldy + i] = how == AVERAGE ? s / (float)a->ranks : s;
        }
    return 0;
}

#define REDUCES(NAME, HOW)                                                                         \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return reduce(args, HOW);                                                                  \
    }

REDUCES(average, AVERAGE)
REDUCES(first_twice, FIRST_TWICE)
REDUCES(old_rank, OLD_RANK)
REDUCES(largest_rank, LARGEST)

static int copy(const struct ds_transfer_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            const float x = a->x[r * a->ldx + i];
            a->y[r * a->ldy + i] = how == 0 && r == a->rows - 1 ? 0.0f
                                   : how == 1                   ? a->x[r * a->ldx + (i ^ 1)]
                                                                : x;
        }
    return 0;
}

LAUNCH(lost_last)
{
    UNUSED;
    return copy(args, 0);
}

LAUNCH(words_swapped)
{
    UNUSED;
    return copy(args, 1);
}

/* ---- logits ---------------------------------------------------------------------------------- */

enum process { AS_IS, WARM, ONE_BIAS, NO_EOS, PADDED, PENALISED, CUT_LOW };

static int process(const struct ds_process_args *a, int how)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->vocab; i++) {
            const float x = a->logits[r * a->ldx + i];
            float y = x;
            switch (how) {
            case WARM:
                y = x / 0.8f;
                break;
            case ONE_BIAS:
                y = i == 77 ? x + 5.0f : x;
                break;
            case NO_EOS:
                y = i == 2 ? -INFINITY : x;
                break;
            case PADDED:
                y = i >= a->vocab - 16 ? 0.0f : x;
                break;
            case PENALISED:
                for (int32_t t = 0; t < a->n_tokens[r]; t++)
                    if (a->tokens[r][t] == i) {
                        y = x - 0.5f;
                        break;
                    }
                break;
            case CUT_LOW:
                y = fmaxf(x, -0.5f);
                break;
            default:
                break;
            }
            a->y[r * a->ldy + i] = y;
        }
    return 0;
}

#define PROCESSES(NAME, HOW)                                                                       \
    LAUNCH(NAME)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        return process(args, HOW);                                                                 \
    }

PROCESSES(as_is, AS_IS)
PROCESSES(warm, WARM)
PROCESSES(one_bias, ONE_BIAS)
PROCESSES(no_eos, NO_EOS)
PROCESSES(padded, PADDED)
PROCESSES(penalised, PENALISED)
PROCESSES(cut_low, CUT_LOW)

/* Half of the vocabulary is looked at. */
LAUNCH(half_of_tokens)
{
    const struct ds_sample_args *a = args;
    UNUSED;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->logits + r * a->ldx;
        int32_t best = 0;
        for (int32_t i = 1; i < a->vocab / 2; i++)
            best = x[i] > x[best] ? i : best;
        a->ids[r] = best;
        for (int64_t i = 0; a->scores && i < a->vocab; i++)
            a->scores[r * a->ldx + i] = x[i];
    }
    return 0;
}

/* Decode has the position of the token before (after a preemption nobody set it on). */
LAUNCH(stays_behind)
{
    const struct ds_schedule_args *a = args;
    UNUSED;
    for (int64_t r = 0; a->phase == 1 && r < a->rows; r++)
        a->positions[r]--;
    return 0;
}

/* The first slot of a prompt counts as padding. */
LAUNCH(pads_one_more)
{
    const struct ds_schedule_args *a = args;
    UNUSED;
    for (int64_t i = 0; i < a->n_sequences; i++)
        a->sequences[i].kv_first += a->sequences[i].kv_len > 4;
    return 0;
}

const struct ds_kernel specimen_planted_other[] = {
    SPECIMEN(DS_OP_EMBED, "rooted", "times the root of the width", rooted_launch),
    SPECIMEN(DS_OP_EMBED, "no-zero", "one token has no vector", no_zero_launch),
    SPECIMEN(DS_OP_EMBED, "from-128", "tokens from 128 on are those before", from_128_launch),
    SPECIMEN(DS_OP_EMBED, "sharded", "tokens modulo half of the vocabulary", sharded_launch),
    SPECIMEN(DS_OP_EMBED, "half-table", "a table of f16", half_table_launch),
    SPECIMEN(DS_OP_SILU_MUL, "softplus", "softplus", softplus_launch),
    SPECIMEN(DS_OP_SILU_MUL, "mish", "mish", mish_launch),
    SPECIMEN(DS_OP_SILU_MUL, "hard-swish", "hard swish", hard_swish_launch),
    SPECIMEN(DS_OP_SILU_MUL, "squared-relu", "squared ReLU", squared_relu_launch),
    SPECIMEN(DS_OP_SILU_MUL, "elu", "ELU", elu_launch),
    SPECIMEN(DS_OP_SILU_MUL, "tail-of-up", "silu(up) in a tail", tail_of_up_launch),
    SPECIMEN(DS_OP_SILU_MUL, "tile-of-up", "up of the tile behind", tile_beside_launch),
    SPECIMEN(DS_OP_SILU_MUL, "short-exp", "a short exponential", short_exp_launch),
    SPECIMEN(DS_OP_SILU_MUL, "leaky", "leaky ReLU", leaky_launch),
    SPECIMEN(DS_OP_SILU_MUL, "no-up-tail", "no up in a tail", no_up_tail_launch),
    SPECIMEN(DS_OP_ADD, "second-alone", "the branch alone", second_alone_launch),
    SPECIMEN(DS_OP_ADD, "twice-first", "the residual twice", twice_first_launch),
    SPECIMEN(DS_OP_ADD, "cut", "sums are cut", cut_launch),
    SPECIMEN(DS_OP_ADD, "tail-alone", "no branch in a tail", tail_alone_launch),
    SPECIMEN(DS_OP_ADD, "scaled-both", "times 0.7", scaled_both_launch),
    SPECIMEN(DS_OP_ADD, "branch-of-0", "the branch of row 0", branch_of_0_launch),
    SPECIMEN(DS_OP_ADD, "shifted-branch", "the branch's next channel", shifted_branch_launch),
    SPECIMEN(DS_OP_ROUTER, "route", "nothing wrong", route_launch),
    SPECIMEN(DS_OP_ROUTER, "first-half", "experts of the first half", first_half_launch),
    SPECIMEN(DS_OP_ROUTER, "soft-twice", "two softmaxes", soft_twice_launch),
    SPECIMEN(DS_OP_ROUTER, "one-less", "the last has no weight", one_less_launch),
    SPECIMEN(DS_OP_ROUTER, "signless", "by size", signless_launch),
    SPECIMEN(DS_OP_ROUTER, "uniform", "equal weights", uniform_launch),
    SPECIMEN(DS_OP_ROUTER, "hot", "a temperature of 2", hot_launch),
    SPECIMEN(DS_OP_COMBINE, "sum", "nothing wrong", sum_launch),
    SPECIMEN(DS_OP_COMBINE, "by-expert", "another layout", by_expert_launch),
    SPECIMEN(DS_OP_COMBINE, "last-alone", "the last expert alone", last_alone_launch),
    SPECIMEN(DS_OP_COMBINE, "mean", "divided by their number", mean_launch),
    SPECIMEN(DS_OP_COMBINE, "unsorted", "the next one's weight", unsorted_launch),
    SPECIMEN(DS_OP_ALLREDUCE, "average", "the mean", average_launch),
    SPECIMEN(DS_OP_ALLREDUCE, "first-twice", "rank 0 twice", first_twice_launch),
    SPECIMEN(DS_OP_ALLREDUCE, "old-rank", "a rank of the call before", old_rank_launch),
    SPECIMEN(DS_OP_ALLREDUCE, "largest-rank", "the largest", largest_rank_launch),
    SPECIMEN(DS_OP_TRANSFER, "lost-last", "the last row is lost", lost_last_launch),
    SPECIMEN(DS_OP_TRANSFER, "words-swapped", "words of 8 bytes turned", words_swapped_launch),
    SPECIMEN(DS_OP_PROCESS, "as-is", "nothing wrong", as_is_launch),
    SPECIMEN(DS_OP_PROCESS, "warm", "a temperature of 0.8", warm_launch),
    SPECIMEN(DS_OP_PROCESS, "one-bias", "one token is preferred", one_bias_launch),
    SPECIMEN(DS_OP_PROCESS, "no-eos", "one token is forbidden", no_eos_launch),
    SPECIMEN(DS_OP_PROCESS, "padded", "16 tokens are not written", padded_launch),
    SPECIMEN(DS_OP_PROCESS, "penalised", "tokens of before have 0.5 less", penalised_launch),
    SPECIMEN(DS_OP_PROCESS, "cut-low", "a floor", cut_low_launch),
    SPECIMEN(DS_OP_SAMPLE, "half-of-tokens", "half of the vocabulary", half_of_tokens_launch),
    SPECIMEN(DS_OP_SCHEDULE, "stays-behind", "decode is one behind", stays_behind_launch),
    SPECIMEN(DS_OP_SCHEDULE, "pads-one-more", "the first slot is padding", pads_one_more_launch),
    {0},
};
