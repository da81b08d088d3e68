/* structure_gate.c: hypotheses about the gated unit, silu(gate) * up: another activation function, its two
 * inputs exchanged, one of them left out, clamped, of fewer bits, interleaved, or of another row. See
 * structure.h. */
#include "dumps/structure_internal.h"

#include "base/dtype.h"

#include <math.h>
#include <stdlib.h>

enum unit {
    SILU,
    SWAPPED,
    GELU,
    GELU_TANH,
    GELU_QUICK,
    RELU,
    SIGMOID,
    TANH,
    NO_ACTIVATION,
    NO_UP,
    BOTH,
    MINUS,
    SOFTPLUS,
    MISH,
    HARD_SWISH,
    HARD_SIGMOID,
    RELU_SQUARED,
    ELU,
    LEAKY,
    UP_TWICE,
    GATE_TWICE,
    UNITS
};

static const char *const texts[UNITS] = {
    [SWAPPED] = "gate and up are exchanged: silu(up) * gate",
    [GELU] = "the activation is GELU (erf) instead of SiLU",
    [GELU_TANH] = "the activation is GELU (tanh) instead of SiLU",
    [GELU_QUICK] = "the activation is x * sigmoid(1.702 x) (quick GELU) instead of SiLU",
    [TANH] = "the activation is a tanh instead of SiLU",
    [BOTH] = "up goes through SiLU, too",
    [SOFTPLUS] = "the activation is softplus instead of SiLU",
    [MISH] = "the activation is mish, x * tanh(softplus(x)), instead of SiLU",
    [HARD_SWISH] = "the activation is hard swish, x * clamp(x / 6 + 1/2), instead of SiLU",
    [HARD_SIGMOID] = "the activation is a hard sigmoid, clamp(x / 6 + 1/2), instead of SiLU",
    [RELU_SQUARED] = "the activation is a squared ReLU instead of SiLU",
    [ELU] = "the activation is ELU instead of SiLU",
    [LEAKY] = "the activation is a leaky ReLU (0.01) instead of SiLU",
    [UP_TWICE] = "silu(up) * up: up stands for gate, too",
    [GATE_TWICE] = "silu(gate) * gate: gate stands for up, too",
    [MINUS] = "the activation is x * sigmoid(-x) instead of SiLU",
    [RELU] = "the activation is ReLU instead of SiLU",
    [SIGMOID] = "the activation is a sigmoid instead of SiLU",
    [NO_ACTIVATION] = "gate * up, without an activation",
    [NO_UP] = "silu(gate) alone, not times up",
};

static double softplus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

static double unit(int which, double gate, double up)
{
    const double root = sqrt(2 / acos(-1.0));
    switch (which) {
    case SWAPPED:
        return up / (1 + exp(-up)) * gate;
    case GELU:
        return 0.5 * gate * (1 + erf(gate * sqrt(0.5))) * up;
    case GELU_TANH:
        return 0.5 * gate * (1 + tanh(root * (gate + 0.044715 * gate * gate * gate))) * up;
    case GELU_QUICK:
        return gate / (1 + exp(-1.702 * gate)) * up;
    case TANH:
        return tanh(gate) * up;
    case BOTH:
        return gate / (1 + exp(-gate)) * up / (1 + exp(-up));
    case MINUS:
        return gate / (1 + exp(gate)) * up;
    case SOFTPLUS:
        return softplus(gate) * up;
    case MISH:
        return gate * tanh(softplus(gate)) * up;
    case HARD_SWISH:
        return gate * fmax(0, fmin(1, gate / 6 + 0.5)) * up;
    case HARD_SIGMOID:
        return fmax(0, fmin(1, gate / 6 + 0.5)) * up;
    case RELU_SQUARED:
        return gate > 0 ? gate * gate * up : 0;
    case ELU:
        return (gate > 0 ? gate : expm1(gate)) * up;
    case LEAKY:
        return (gate > 0 ? gate : 0.01 * gate) * up;
    case UP_TWICE:
        return up / (1 + exp(-up)) * up;
    case GATE_TWICE:
        return gate / (1 + exp(-gate)) * gate;
    case RELU:
        return gate > 0 ? gate * up : 0;
    case SIGMOID:
        return up / (1 + exp(-gate));
    case NO_ACTIVATION:
        return gate * up;
    case NO_UP:
        return gate / (1 + exp(-gate));
    default:
        return gate / (1 + exp(-gate)) * up;
    }
}

static int predict_unit(const struct task *t, size_t r, const void *how)
{
    const float *gate = t->rows[r].term[0], *up = t->rows[r].term[1];
    if (!gate || !up)
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = (float)unit(*(const int *)how, (double)gate[i], (double)up[i]);
    return 1;
}

/* Whether the reference is the unit of these inputs: else nothing is known of another one. */
int structure_is_gate(const struct task *t)
{
    const int silu = SILU;
    uint64_t n = 0, good = 0;
    for (size_t r = 0; r < t->n_rows; r++) {
        if (!t->off_in_row[r] || predict_unit(t, r, &silu) != 1)
            continue;
        for (uint32_t i = 0; i < t->s->width; i++)
            good += fabs((double)t->guess[i] - (double)t->rows[r].ref[i]) <=
                    2 * ds_structure_slack(t->s, t->rows[r].ref[i], t->rows[r].ref[i], t->rms[r]);
        n += t->s->width;
    }
    return n && good * 100 >= n * 97;
}

int structure_makes_gate(const struct task *t)
{
    const int silu = SILU;
    return explains(t, predict_unit, &silu) >= 0.97;
}

/* ---- inputs that are clamped ------------------------------------------------------------------ */

enum cut { GATE_ABOVE, GATE, UP, GATE_ABOVE_AND_UP, CUTS };

static const char *const cut_texts[CUTS] = {
    [GATE_ABOVE] = "gate is clamped to at most %.6g",
    [GATE] = "gate is clamped to +-%.6g",
    [UP] = "up is clamped to +-%.6g",
    [GATE_ABOVE_AND_UP] = "gate is clamped to at most %.6g, and up to +- that",
};

struct clamp {
    int cut;
    double at;
};

static int predict_clamped(const struct task *t, size_t r, const void *how)
{
    const struct clamp *l = how;
    const float *gate = t->rows[r].term[0], *up = t->rows[r].term[1];
    if (!gate || !up)
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++) {
        double g = (double)gate[i], u = (double)up[i];
        g = l->cut == UP ? g : fmin(g, l->at);
        g = l->cut == GATE ? fmax(g, -l->at) : g;
        u = l->cut == UP || l->cut == GATE_ABOVE_AND_UP ? fmax(-l->at, fmin(l->at, u)) : u;
        t->guess[i] = (float)unit(SILU, g, u);
    }
    return 1;
}

/* Where silu, which grows from 0 on, has this value. */
static double silu_at(double y)
{
    double low = 0, high = y + 1;
    for (int step = 0; step < 100; step++) {
        const double x = 0.5 * (low + high);
        *(unit(SILU, x, 1) < y ? &low : &high) = x;
    }
    return low;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What each element that is off says of the limit, as if of gate, or of up: the value that most agree on; 0:
 * they do not. */
static double find_limit(struct task *t, int of_up)
{
    size_t n = 0, most = 0;
    double found = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        for (uint32_t i = 0; t->rows[r].term[0] && t->rows[r].term[1] && i < t->s->width; i++) {
            const double y = (double)t->rows[r].mine[i], g = (double)t->rows[r].term[0][i],
                         u = (double)t->rows[r].term[1][i],
                         x = of_up ? fabs(y / unit(SILU, g, 1)) : y / u;
            if (is_off(t, r, i) && isfinite(x) && x > 0 && n < 2 * (size_t)t->s->width)
                t->sorted[n++] = of_up ? x : silu_at(x);
        }
    qsort(t->sorted, n, sizeof *t->sorted, by_size);
    for (size_t i = 0, j = 0; j < n; j++) {
        while (t->sorted[j] - t->sorted[i] > 1e-3 * t->sorted[j])
            i++;
        if (j - i + 1 > most) {
            most = j - i + 1;
            found = t->sorted[i + (j - i) / 2];
        }
    }
    return 8 * most >= n ? found : 0;
}

static void try_clamps(struct task *t)
{
    for (int cut = 0; cut < CUTS; cut++) {
        struct clamp l = {cut, find_limit(t, cut == UP)};
        double share = l.at > 0 ? explains(t, predict_clamped, &l) : 0;
        if (share > 0 && holds_beside(t, predict_clamped, &l, t->s->width))
            claim(t, share, 0, cut_texts[cut], l.at);
    }
}

/* ---- an input of the row beside -------------------------------------------------------------- */

struct beside {
    int which, behind; /* 0 gate, 1 up; 0 the row before, 1 the row behind */
};

static int predict_beside(const struct task *t, size_t r, const void *how)
{
    const struct beside *h = how;
    const struct ds_structure_row *row = &t->rows[r];
    const float *other = row->term_beside[h->behind][h->which], *gate = row->term[0],
                *up = row->term[1];
    if (!gate || !up || !other)
        return -1;
    gate = h->which == 0 ? other : gate;
    up = h->which == 1 ? other : up;
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = (float)unit(SILU, (double)gate[i], (double)up[i]);
    return 1;
}

/* ---- inputs of fewer bits, or interleaved ------------------------------------------------------ */

struct coarse {
    int dtype, gate, up, silu; /* what is rounded to it */
};

static double kept(int dtype, int is, double x)
{
    if (!is)
        return x;
    return dtype == DS_BF16 ? (double)ds_bf16_value(ds_bf16_round((float)x))
                            : (double)ds_f16_value(ds_f16_round((float)x));
}

static int predict_coarse(const struct task *t, size_t r, const void *how)
{
    const struct coarse *h = how;
    const float *gate = t->rows[r].term[0], *up = t->rows[r].term[1];
    if (!gate || !up)
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++) {
        const double g = kept(h->dtype, h->gate, (double)gate[i]),
                     u = kept(h->dtype, h->up, (double)up[i]);
        t->guess[i] = (float)(kept(h->dtype, h->silu, unit(SILU, g, 1)) * u);
    }
    return 1;
}

static void try_coarse(struct task *t)
{
    static const struct {
        int gate, up, silu;
        const char *text;
    } ways[] = {{1, 0, 0, "gate is"},
                {0, 1, 0, "up is"},
                {1, 1, 0, "gate and up are"},
                {0, 0, 1, "silu(gate) is"}};
    static const int dtypes[] = {DS_BF16, DS_F16};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes && !t->best->found; d++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            const struct coarse h = {dtypes[d], ways[w].gate, ways[w].up, ways[w].silu};
            t->best->precision |= claim(t, explains(t, predict_coarse, &h), 0, "%s rounded to %s",
                                        ways[w].text, ds_dtype_name(dtypes[d]));
        }
}

/* gate and up are read from one array, in turns: where the reference has all of gate first. */
static int predict_in_turns(const struct task *t, size_t r, const void *how)
{
    const float *gate = t->rows[r].term[0], *up = t->rows[r].term[1];
    const uint32_t n = t->s->width;
    (void)how;
    if (!gate || !up)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t a = 2 * i, b = a + 1;
        t->guess[i] = (float)unit(SILU, (double)(a < n ? gate[a] : up[a - n]),
                                  (double)(b < n ? gate[b] : up[b - n]));
    }
    return 1;
}

/* An input whose halves are exchanged, as where a fused product of both is cut in the wrong place. how: 0 gate, 1 up. */
static int predict_halves(const struct task *t, size_t r, const void *how)
{
    const float *gate = t->rows[r].term[0], *up = t->rows[r].term[1];
    const uint32_t n = t->s->width, half = n / 2;
    const int of_up = *(const int *)how;
    if (!gate || !up)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        t->guess[i] = (float)unit(SILU, (double)gate[of_up ? i : (i + half) % n],
                                  (double)up[of_up ? (i + half) % n : i]);
    return 1;
}

void try_gate(struct task *t)
{
    if (!structure_is_gate(t))
        return;
    for (int which = SWAPPED; which < UNITS; which++)
        claim(t, explains(t, predict_unit, &which), 0, "%s", texts[which]);
    try_coarse(t);
    claim(t, explains(t, predict_in_turns, NULL), 0,
          "gate and up are read in turns (interleaved) from where gate stands before up");
    try_clamps(t);
    for (int of_up = 0; of_up < 2 && t->s->width % 2 == 0; of_up++)
        claim(t, explains(t, predict_halves, &of_up), 0, "the two halves of %s are exchanged",
              of_up ? "up" : "gate");
    for (int which = 0; which < 2; which++)
        for (int behind = 0; behind < 2; behind++) {
            const struct beside h = {which, behind};
            claim(t, explains(t, predict_beside, &h), 0, "%s is that of the position 1 %s",
                  which ? "up" : "gate", behind ? "after" : "before");
        }
}
