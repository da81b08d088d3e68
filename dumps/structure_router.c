/* structure_router.c: hypotheses about the weights that a router gives to the experts it chose: by another rule, or
 * times a number. See structure.h. */
#include "dumps/structure_internal.h"

#include <math.h>
#include <string.h>

enum rule { SOFTMAX, OF_CHOSEN, SIGMOID, SIGMOID_OF_CHOSEN, LOGITS, TWICE, LAST_BARE, RULES };

static const char *const texts[RULES] = {
    [SOFTMAX] = "the softmax over all experts, not divided by their sum",
    [OF_CHOSEN] = "the softmax, divided by their sum",
    [SIGMOID] = "the sigmoid of their logits",
    [SIGMOID_OF_CHOSEN] = "the sigmoid of their logits, divided by their sum",
    [LOGITS] = "the logits themselves",
    [TWICE] = "a softmax of the softmax, over the chosen",
    [LAST_BARE] = "the softmax, divided by their sum, and 0 for the last of them"};

struct rules {
    int rule;
    double times, heat; /* heat: logits are multiplied with it; 0 is 1 */
};

/* The k-th largest logit, from 0 on. */
static double nth_logit(const struct task *t, const float *x, uint32_t k)
{
    for (uint32_t i = 0; i < t->s->n_logits; i++) {
        uint32_t above = 0;
        for (uint32_t j = 0; j < t->s->n_logits; j++)
            above += x[j] > x[i] || (!(x[j] < x[i]) && j < i);
        if (above == k)
            return (double)x[i];
    }
    return NAN;
}

/* Weights of the chosen, best first. */
static void weigh(const struct task *t, const float *x, int rule, double heat, float *out)
{
    const uint32_t n = t->s->width;
    const double top = heat * nth_logit(t, x, 0);
    double all = 0, chosen = 0, w[DS_STRUCTURE_TERMS];
    for (uint32_t e = 0; e < t->s->n_logits; e++)
        all += exp(heat * (double)x[e] - top);
    for (uint32_t k = 0; k < n; k++) {
        const double v = heat * nth_logit(t, x, k);
        w[k] = rule == LOGITS                                 ? v
               : rule == SIGMOID || rule == SIGMOID_OF_CHOSEN ? 1 / (1 + exp(-v))
                                                              : exp(v - top) / all;
        w[k] = rule == TWICE ? exp(w[k]) : rule == LAST_BARE && k == n - 1 ? 0 : w[k];
        chosen += w[k];
    }
    for (uint32_t k = 0; k < n; k++)
        out[k] =
            (float)(rule == OF_CHOSEN || rule == SIGMOID_OF_CHOSEN || rule >= TWICE ? w[k] / chosen
                                                                                    : w[k]);
}

static int predict_rule(const struct task *t, size_t r, const void *how)
{
    const struct rules *h = how;
    if (!t->rows[r].logits)
        return -1;
    weigh(t, t->rows[r].logits, h->rule, h->heat > 0 ? h->heat : 1, t->guess);
    for (uint32_t k = 0; k < t->s->width; k++)
        t->guess[k] = (float)(h->times * (double)t->guess[k]);
    return 1;
}

/* The rule by which the reference weighs: else nothing is known of another one. */
static int rule_of_reference(const struct task *t)
{
    for (int rule = 0; rule < RULES; rule++) {
        uint64_t n = 0, good = 0;
        for (size_t r = 0; r < t->n_rows; r++) {
            if (!t->off_in_row[r] || !t->rows[r].logits)
                continue;
            weigh(t, t->rows[r].logits, rule, 1, t->guess);
            for (uint32_t k = 0; k < t->s->width; k++, n++)
                good +=
                    fabs((double)t->guess[k] - (double)t->rows[r].ref[k]) <=
                    2 * ds_structure_slack(t->s, t->rows[r].ref[k], t->rows[r].ref[k], t->rms[r]);
        }
        if (n && good * 100 >= n * 97)
            return rule;
    }
    return -1;
}

/* The factor of the logits that gives the ratio of the first two weights of a row; 0: there is none. */
static double heat_of(const struct task *t, size_t r)
{
    const float *mine = t->rows[r].mine, *x = t->rows[r].logits;
    const double apart = nth_logit(t, x, 0) - nth_logit(t, x, 1),
                 heat = log((double)mine[0] / (double)mine[1]) / apart;
    return isfinite(heat) && heat > 0 ? heat : 0;
}

/* Softmax at another temperature: one of all rows. */
static void try_heat(struct task *t, size_t r, int ref)
{
    struct rules h = {.rule = ref, .times = 1};
    if (t->s->width < 2 || (ref != SOFTMAX && ref != OF_CHOSEN))
        return;
    h.heat = heat_of(t, r);
    if (h.heat > 0 && fabs(h.heat - 1) > 1e-3)
        claim(t, explains(t, predict_rule, &h), 0,
              "the weights are a softmax of %.4g times the logits (another temperature)", h.heat);
}

void try_router(struct task *t)
{
    size_t r = 0;
    if (t->s->width > DS_STRUCTURE_TERMS || t->s->width > t->s->n_logits)
        return;
    const int ref = rule_of_reference(t);
    while (r < t->n_rows && (!t->off_in_row[r] || !t->rows[r].logits))
        r++;
    if (ref < 0 || r == t->n_rows)
        return;
    for (int rule = 0; rule < RULES; rule++) {
        struct rules h = {.rule = rule, .times = 1};
        if (rule != ref)
            claim(t, explains(t, predict_rule, &h), 0, "the weights are %s", texts[rule]);
        weigh(t, t->rows[r].logits, rule, 1, t->guess);
        h.times = (double)t->rows[r].mine[0] / (double)t->guess[0];
        if (!isfinite(h.times) || h.times <= 0 || fabs(h.times - 1) <= 1e-3)
            continue;
        if (rule == ref)
            claim(t, explains(t, predict_rule, &h), h.times,
                  "every value is %.6g times the reference's", h.times);
        else
            claim(t, explains(t, predict_rule, &h), 0, "the weights are %s, times %.6g",
                  texts[rule], h.times);
    }
    if (!t->best->found)
        try_heat(t, r, ref);
}
