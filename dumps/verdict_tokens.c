/* verdict_tokens.c: token choices: where arms chose differently, and from which step on they were
 * fed different tokens. */
#include "dumps/verdict_internal.h"

#include <math.h>

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

int prompts_vary(const struct ds_analysis *a)
{
    return a->options.prompt_of != NULL;
}

/* -1: not known. */
static int32_t token_fed(const struct ds_analysis *a, uint32_t arm, uint32_t place)
{
    const struct ds_prompt *p = a->options.prompt_of[arm];
    if (place < p->n_tokens)
        return p->tokens[place];
    const struct ds_step *s =
        find_step(a->arms[arm].rep, 0, (int32_t)(place - p->n_tokens), place - p->n_tokens);
    return s ? s->forced : -1;
}

int32_t parted_at(const struct ds_analysis *a, uint32_t arm, uint32_t ref)
{
    const struct ds_prompt *const *p = a->options.prompt_of;
    size_t x = p[arm]->n_tokens + a->arms[arm].rep->n_steps,
           y = p[ref]->n_tokens + a->arms[ref].rep->n_steps, end = x < y ? x : y;
    for (uint32_t i = 0; i < end && i < INT32_MAX; i++) {
        int32_t mine = token_fed(a, arm, i), theirs = token_fed(a, ref, i);
        if (mine >= 0 && theirs >= 0 && mine != theirs)
            return (int32_t)i;
    }
    return INT32_MAX;
}

int32_t place_in_stream(const struct ds_analysis *a, uint32_t arm, const struct ds_row *r)
{
    uint32_t n = a->options.prompt_of[arm]->n_tokens;
    return r->kind == DS_ROW_GENERATED && r->step > 0 && (int64_t)n + r->step - 1 < INT32_MAX
               ? (int32_t)n + r->step - 1
               : r->position;
}

/* The logit of an id, as far as it is among the best; NaN. */
static double logit_of(const struct ds_step *s, int32_t id)
{
    for (int i = 0; i < DS_TOP; i++)
        if (s->ids[i] == id)
            return (double)s->logits[i];
    return (double)NAN;
}

/* The largest change of a logit that is among the best of both; NaN: none is, or none is a number. */
static double logits_drift(const struct ds_step *s, const struct ds_step *b)
{
    double most = (double)NAN;
    for (int i = 0; i < DS_TOP; i++) {
        double d =
            s->ids[i] >= 0 ? fabs((double)s->logits[i] - logit_of(b, s->ids[i])) : (double)NAN;
        most = d > most || most != most ? d : most;
    }
    return most;
}

/* One choice `s` beside the reference's `b`; where: the arms, the factor and its value. */
static void compare_choice(struct ds_verdict *v, const struct ds_step *s, const struct ds_step *b,
                           const struct ds_discrete *where)
{
    v->tokens_compared++;
    if (s->token == b->token) {
        v->tokens_same++;
        return;
    }
    struct ds_discrete *d = &v->token_change;
    if (d->found && (d->step < s->step || (d->step == s->step && d->request <= s->request)))
        return;
    *d = *where;
    d->found = 1;
    d->stage = "token";
    d->request = s->request;
    d->step = s->step;
    d->a = b->token;
    d->b = s->token;
    d->margin = (double)b->margin;
    d->ties = b->ties;
    d->drift = logits_drift(s, b);
}

void count_ties(const struct ds_analysis *a, struct ds_verdict *v)
{
    const struct ds_trial_data *t = a->arms[v->ref_arm].rep;
    for (size_t i = 0; t && i < t->n_steps; i++, v->choices++)
        v->ties += t->steps[i].ties > 1;
}

void compare_tokens(const struct ds_analysis *a, uint32_t arm, uint32_t ref, const char *factor,
                    const char *value, struct ds_verdict *v)
{
    const struct arm_table *t = &a->arms[arm], *r = &a->arms[ref];
    int32_t request = -1, until = INT32_MAX;
    int vary = prompts_vary(a), alike = !vary && fed_alike(t, r);
    const struct ds_discrete where = {.factor = factor, .value = value, .arm = arm, .ref_arm = ref};
    int64_t shift = 0; /* from this arm's steps to the reference's */
    if (vary)
        shift = (int64_t)a->options.prompt_of[arm]->n_tokens - a->options.prompt_of[ref]->n_tokens;
    for (size_t i = 0; i < t->rep->n_steps; i++) {
        const struct ds_step *s = &t->rep->steps[i];
        int64_t step = s->request == 0 ? s->step + shift : s->step;
        const struct ds_step *b =
            step >= 0 && step <= INT32_MAX ? find_step(r->rep, s->request, (int32_t)step, i) : NULL;
        if (!alike && (i == 0 || s->request != request)) {
            request = s->request;
            until = fed_until(t, r, request);
            if (vary && request == 0) { /* the last step whose tokens so far are the same */
                int64_t place = parted_at(a, arm, ref);
                place -= (int64_t)a->options.prompt_of[arm]->n_tokens;
                until = place < 0 ? -1 : place > INT32_MAX ? INT32_MAX : (int32_t)place;
            }
        }
        if (!b || s->step > until)
            continue;
        compare_choice(v, s, b, &where);
    }
}

/* Choices from the same logits are no news: only those whose logits differ, or that do themselves. */
int compare_repeated_tokens(const struct ds_analysis *a, uint32_t arm, struct ds_verdict *v,
                            struct ds_error *err)
{
    const struct arm_table *t = &a->arms[arm];
    const struct ds_factor_verdict *fv = &v->factors[0];
    for (uint32_t k = 1; k < t->n_trials; k++) {
        const struct ds_trial_data *d = a->src->get(a->src->ctx, t->trials[k], err);
        const struct ds_discrete where = {
            .factor = fv->name, .value = fv->values[t->value_of[k]], .arm = arm, .ref_arm = arm};
        int32_t request = -1;
        int parted = 0; /* other tokens were fed before */
        if (!d)
            return -1;
        for (size_t i = 0; i < d->n_steps; i++) {
            const struct ds_step *s = &d->steps[i], *b = find_step(t->rep, s->request, s->step, i);
            parted = parted && s->request == request;
            request = s->request;
            if (!b || parted)
                continue;
            if (s->digest != b->digest || s->token != b->token)
                compare_choice(v, s, b, &where);
            parted = s->forced != b->forced;
        }
    }
    return 0;
}
