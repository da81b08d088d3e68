/* replay_change.c: one thing of a recorded serving run changed: other neighbours. Their prompts get other tokens, as many as before, so that
 * every call keeps its shape: what then changes in a request is due to what its neighbours hold, not to how many rows they
 * are. Tokens that a prompt has in common with the request's stay, since it may have begun with their rows. See storm.h. */
#include "cli/storm.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static int32_t in_common(const struct ds_serve_prompt *a, const struct ds_serve_prompt *b)
{
    int32_t n = 0;
    while (n < a->n && n < b->n && a->tokens[n] == b->tokens[n])
        n++;
    return n;
}

/* Fills the prompt of one request. Returns how many tokens are others. The same token at the same place becomes the same other one in
 * all prompts, so that what begins alike still does. */
static int32_t fill(int32_t *to, const struct ds_serve_prompt *own,
                    const struct ds_serve_prompt *subject, int32_t vocab)
{
    const int32_t shared = in_common(own, subject), keep = shared < own->n ? shared : own->n - 1;
    for (int32_t i = 0; i < own->n; i++)
        to[i] = i < keep ? own->tokens[i] : (own->tokens[i] + 1 + i) % vocab;
    return own->n - keep;
}

static int make_prompts(const struct ds_storm_setup *s, int32_t request, int32_t vocab,
                        struct ds_changed_run *c, struct ds_error *err)
{
    const struct ds_serve_prompt *subject = &s->prompts[request % s->n_prompts];
    const int32_t n = s->serve.n_requests;
    size_t total = 0, at = 0;
    for (int32_t r = 0; r < n; r++)
        total += (size_t)s->prompts[r % s->n_prompts].n;
    c->prompts = ds_calloc((size_t)n, sizeof *c->prompts, "prompts", err);
    c->tokens = c->prompts ? ds_calloc(total, sizeof *c->tokens, "tokens", err) : NULL;
    if (!c->tokens)
        return -1;
    for (int32_t r = 0; r < n; r++) {
        const struct ds_serve_prompt *own = &s->prompts[r % s->n_prompts];
        c->prompts[r] = (struct ds_serve_prompt){.tokens = c->tokens + at, .n = own->n};
        if (r == request)
            memcpy(c->tokens + at, own->tokens, (size_t)own->n * sizeof *own->tokens);
        else
            c->changed += (uint64_t)fill(c->tokens + at, own, subject, vocab);
        at += (size_t)own->n;
    }
    c->n_prompts = n;
    return c->changed ? 0 : ds_fail(err, "the request has no neighbours");
}

int ds_replay_neighbours(const struct ds_storm_setup *s, int32_t request, int32_t vocab,
                         struct ds_changed_run *c, struct ds_error *err)
{
    struct ds_buf text = {0};
    int rc = make_prompts(s, request, vocab, c, err);
    if (rc == 0) {
        ds_schedule_text(&s->serve, &text);
        rc = text.failed ? ds_fail(err, "out of memory for the schedule")
                         : ds_schedule_parse("the schedule", text.data, text.len, &c->plan, err);
    }
    if (rc == 0) {
        c->plan.n_requests = s->serve.n_requests;
        rc = ds_serve_check(&c->plan, c->prompts, c->n_prompts, NULL, err);
        if (rc != 0)
            ds_prefix(err, "with other neighbours the schedule cannot be run");
    }
    ds_buf_free(&text);
    return rc;
}

void ds_changed_run_free(struct ds_changed_run *c)
{
    ds_serve_plan_free(&c->plan);
    free(c->prompts);
    free(c->tokens);
}
