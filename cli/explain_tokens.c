/* explain_tokens.c: which tokens a row's request was fed, from the prompts and steps of the record. */
#include "cli/explain_case.h"

#include "base/mem.h"

static const struct ds_prompt *prompt_of(const struct ds_case *c, uint32_t arm, int32_t request)
{
    const struct ds_header *h = ds_case_header(c, arm);
    for (size_t i = 0; i < h->n_prompts; i++)
        if (h->prompts[i].request == request)
            return &h->prompts[i];
    return NULL;
}

int ds_case_token(const struct ds_case *c, int side, const struct ds_row *key, int32_t at,
                  int32_t *id)
{
    const struct ds_trial_data *t = c->read[side].t;
    const struct ds_prompt *p = prompt_of(c, c->read[side].arm, key->request);
    if (!p || at < 0)
        return 0;
    if ((uint32_t)at < p->n_tokens) {
        *id = p->tokens[at];
        return 1;
    }
    for (size_t i = 0; i < t->n_steps; i++)
        if (t->steps[i].request == key->request && t->steps[i].step == at - (int32_t)p->n_tokens) {
            *id = t->steps[i].forced;
            return 1;
        }
    return 0;
}

int ds_case_tokens(struct ds_case *c, int side, const struct ds_row *key,
                   struct ds_explain_input *in, struct ds_error *err)
{
    const struct ds_case_read *s = &c->read[side];
    int32_t *tokens = ds_calloc((size_t)key->kv_len, sizeof *tokens, "tokens", err);
    if (!tokens || ds_case_own(c, tokens, err) != 0)
        return -1;
    for (int32_t i = 0; i < key->kv_len; i++) {
        if (!ds_case_token(c, side, key, i, &tokens[i]))
            return 0;
        if (tokens[i] < 0 ||
            tokens[i] >= c->e.shared.process.vocab) /* kernels use it as an index */
            return ds_fail(err, "request %d: token %d at %d is not in the vocabulary", key->request,
                           tokens[i], i);
    }
    in->tokens = tokens;
    in->n_tokens = key->kv_len;
    in->cached = s->t->calls[key->call].m == 0;
    return 1;
}
