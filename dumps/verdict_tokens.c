/* verdict_tokens.c: token choices: where arms chose differently, and from which step on they were
 * fed different tokens. */
#include "dumps/verdict_internal.h"

static const struct ds_step *find_step(const struct ds_trial_data *t, int32_t request, int32_t step,
                                       size_t guess)
{
    if (guess < t->n_steps && t->steps[guess].request == request && t->steps[guess].step == step)
        return &t->steps[guess];
    for (size_t i = 0; i < t->n_steps; i++)
        if (t->steps[i].request == request && t->steps[i].step == step)
            return &t->steps[i];
    return NULL;
}

int fed_alike(const struct arm_table *arm, const struct arm_table *ref)
{
    const struct ds_trial_data *a = arm->rep, *b = ref->rep;
    if (a->n_steps != b->n_steps)
        return 0;
    for (size_t i = 0; i < a->n_steps; i++)
        if (a->steps[i].request != b->steps[i].request || a->steps[i].step != b->steps[i].step ||
            a->steps[i].forced != b->steps[i].forced)
            return 0;
    return 1;
}

int32_t fed_until(const struct arm_table *arm, const struct arm_table *ref, int32_t request)
{
    int32_t until = INT32_MAX;
    for (size_t i = 0; i < arm->rep->n_steps; i++) {
        const struct ds_step *s = &arm->rep->steps[i];
        if (s->request != request || s->forced < 0 || s->step >= until)
            continue;
        const struct ds_step *r = find_step(ref->rep, request, s->step, i);
        if (r && r->forced >= 0 && r->forced != s->forced)
            until = s->step;
    }
    return until;
}

void compare_tokens(const struct ds_analysis *a, uint32_t arm, uint32_t ref, const char *factor,
                    const char *value, struct ds_verdict *v)
{
    const struct arm_table *t = &a->arms[arm], *r = &a->arms[ref];
    int32_t request = -1, until = INT32_MAX;
    int alike = fed_alike(t, r);
    for (size_t i = 0; i < t->rep->n_steps; i++) {
        const struct ds_step *s = &t->rep->steps[i], *b = find_step(r->rep, s->request, s->step, i);
        if (!alike && (i == 0 || s->request != request))
            until = fed_until(t, r, request = s->request);
        if (!b || s->step > until)
            continue;
        v->tokens_compared++;
        if (s->token == b->token) {
            v->tokens_same++;
            continue;
        }
        struct ds_discrete *d = &v->token_change;
        if (d->found && (d->step < s->step || (d->step == s->step && d->request <= s->request)))
            continue;
        *d = (struct ds_discrete){.found = 1,
                                  .stage = "token",
                                  .factor = factor,
                                  .value = value,
                                  .arm = arm,
                                  .ref_arm = ref,
                                  .request = s->request,
                                  .step = s->step,
                                  .a = b->token,
                                  .b = s->token,
                                  .margin = (double)b->margin,
                                  .ties = b->ties};
    }
}
