/* step.c: the token choice after a logits row: the best ids, the margin, the ties, the digest of
 * the row, and what makes probabilities of logits. Knows no model; one pass over the vocabulary that only stops at a
 * logit better than the eighth best so far, and one that adds. */
#include "probes/probe_internal.h"

#include "base/mem.h"

#include <math.h>

/* Puts (id, value) where it belongs among the n best; equal values keep the lower id first, which
 * came earlier. */
static void insert(struct ds_step *s, int *n, int32_t id, float value)
{
    int at = *n < DS_TOP ? (*n)++ : DS_TOP - 1;
    for (; at > 0 && s->logits[at - 1] < value; at--) {
        s->logits[at] = s->logits[at - 1];
        s->ids[at] = s->ids[at - 1];
    }
    s->logits[at] = value;
    s->ids[at] = id;
}

/* Fills the places that numbers left with NaNs, lowest id first, then with nothing. */
static void fill_rest(struct ds_step *s, int n, const float *logits, uint32_t vocab)
{
    for (uint32_t i = 0; i < vocab && n < DS_TOP; i++)
        if (isnan(logits[i])) {
            s->ids[n] = (int32_t)i;
            s->logits[n++] = logits[i];
        }
    for (; n < DS_TOP; n++) {
        s->ids[n] = -1;
        s->logits[n] = NAN;
    }
}

static void choose(struct ds_step *s, const struct ds_scan_isa *isa, const float *logits,
                   uint32_t vocab)
{
    int n = 0; /* numbers among the best so far */
    size_t i = 0;
    for (; i < vocab && n < DS_TOP; i++)
        if (!isnan(logits[i]))
            insert(s, &n, (int32_t)i, logits[i]);
    if (n == DS_TOP)
        while ((i = isa->next_above(logits, i, vocab, s->logits[DS_TOP - 1])) < vocab) {
            insert(s, &n, (int32_t)i, logits[i]);
            i++;
        }
    int numbers = n;
    if (n < DS_TOP)
        fill_rest(s, n, logits, vocab);
    s->ties = 0;
    while (s->ties < numbers && s->logits[s->ties] == s->logits[0])
        s->ties++;
    if (s->ties == DS_TOP) /* there may be more than we listed */
        s->ties = (int32_t)isa->count_equal(logits, vocab, s->logits[0]);
    s->margin = s->ties > 1 ? 0.0f
                            : s->logits[0] -
                                  s->logits[1]; /* two infinities tie too; NaN: no second number */
}

void ds_probe_step_fill(int32_t request, int32_t step, const float *logits, const float *scores,
                        uint32_t vocab, int32_t token, int32_t forced, struct ds_step *out)
{
    const struct ds_scan_isa *isa = ds_scan_isa();
    *out = (struct ds_step){.request = request, .step = step, .token = token, .forced = forced};
    choose(out, isa, scores ? scores : logits, vocab);
    out->digest = ds_digest(logits, vocab * sizeof *logits);
    /* scores are no logits: no probability can be told from them */
    out->exp_sum = scores ? (double)NAN : isa->exp_sum(logits, vocab, out->logits[0]);
}

int ds_probe_step(struct ds_probe *p, int32_t request, int32_t step, const float *logits,
                  const float *scores, uint32_t vocab, int32_t token, int32_t forced,
                  struct ds_error *err)
{
    if (p->state == PROBE_IDLE || p->broken)
        return ds_fail(err, "probe: a step outside a trial, or after a failure");
    if (vocab == 0 || vocab > INT32_MAX)
        return ds_fail(err, "probe: a vocabulary of %u", vocab);
    uint64_t start = ds_ticks_now(&p->clock);
    if (ds_grow(&p->t.steps, &p->cap.steps, p->t.n_steps + 1, sizeof *p->t.steps, "steps", err)) {
        p->broken = 1;
        return -1;
    }
    ds_probe_step_fill(request, step, logits, scores, vocab, token, forced,
                       &p->t.steps[p->t.n_steps++]);
    probe_charge(p, start);
    return 0;
}
