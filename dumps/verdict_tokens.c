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

void compare_tokens(const struct ds_analysis *a, uint32_t arm, uint32_t ref, const char *factor,
                    const char *value, struct ds_verdict *v)
{
    const struct arm_table *t = &a->arms[arm], *r = &a->arms[ref];
    int32_t request = -1, until = INT32_MAX;
    int vary = prompts_vary(a), alike = !vary && fed_alike(t, r);
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
