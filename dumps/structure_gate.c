/* structure_gate.c: hypotheses about the gated unit, silu(gate) * up: another activation function, its two
 * inputs exchanged, one of them left out. See structure.h. */
#include "dumps/structure_internal.h"

#include <math.h>

enum unit { SILU, SWAPPED, GELU, GELU_TANH, RELU, SIGMOID, NO_ACTIVATION, NO_UP, UNITS };

static const char *const texts[UNITS] = {
    [SWAPPED] = "gate and up are exchanged: silu(up) * gate",
    [GELU] = "the activation is GELU (erf) instead of SiLU",
    [GELU_TANH] = "the activation is GELU (tanh) instead of SiLU",
    [RELU] = "the activation is ReLU instead of SiLU",
    [SIGMOID] = "the activation is a sigmoid instead of SiLU",
    [NO_ACTIVATION] = "gate * up, without an activation",
    [NO_UP] = "silu(gate) alone, not times up",
};

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
static int is_reference(const struct task *t)
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

void try_gate(struct task *t)
{
    if (!is_reference(t))
        return;
    for (int which = SWAPPED; which < UNITS; which++)
        claim(t, explains(t, predict_unit, &which), 0, "%s", texts[which]);
}
