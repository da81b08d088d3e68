/* storm_match.c: two trials of one plan, or of a part of one, row by row. See storm.h. Pure. */
#include "dumps/storm_rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct match {
    const struct ds_header *h;
    struct ds_storm_rows a, b;
    size_t *begin_a, *begin_b;
    const struct ds_step **steps_a, **steps_b;
    int32_t *parted; /* [n_requests] step of the first token that differs; -1 */
    uint32_t *kept;
    size_t *kept_at;
    struct ds_storm_match *out;
};

static void match_tokens(struct match *m, size_t r)
{
    const size_t na = m->begin_a[r + 1] - m->begin_a[r], nb = m->begin_b[r + 1] - m->begin_b[r];
    for (size_t k = 0; k < na && k < nb; k++) {
        const struct ds_step *x = m->steps_a[m->begin_a[r] + k], *y = m->steps_b[m->begin_b[r] + k];
        m->out->tokens++;
        if (x->token == y->token)
            continue;
        m->out->tokens_differ++;
        /* A text that is scored was fed what was generated, whatever it would have chosen. */
        const int32_t own = x->forced >= 0 ? x->forced : x->token,
                      theirs = y->forced >= 0 ? y->forced : y->token;
        if (m->parted[r] >= 0 || own == theirs)
            continue;
        m->parted[r] = (int32_t)k;
        if (m->out->parted_request < 0) {
            m->out->parted_request = (int64_t)r;
            m->out->parted_step = (int32_t)k;
            m->out->token = x->token;
            m->out->other_token = y->token;
        }
    }
}

/* The other side's row of the same key; UINT32_MAX: there is none. */
static uint32_t partner(const struct match *m, const struct ds_row *x, int loosely)
{
    if ((size_t)x->position >= m->b.width)
        return UINT32_MAX;
    uint32_t row = m->b.first[(size_t)x->request * m->b.width + (size_t)x->position];
    if (loosely)
        return row ? row - 1 : UINT32_MAX;
    for (uint32_t i = row ? row - 1 : 0; row && i < m->b.t->n_rows; i++) {
        const struct ds_row *y = &m->b.t->rows[i];
        if (y->request == x->request && y->position == x->position &&
            y->occurrence == x->occurrence)
            return i;
    }
    return UINT32_MAX;
}

static void match_row(struct match *m, uint32_t row, int loosely)
{
    const struct ds_trial_data *t = m->a.t;
    const struct ds_row *x = &t->rows[row];
    const int32_t prompt = (int32_t)m->h->prompts[(size_t)x->request % m->h->n_prompts].n_tokens;
    if (m->parted[x->request] >= 0 && x->position >= prompt + m->parted[x->request])
        return;
    const uint32_t other = partner(m, x, loosely);
    if (other == UINT32_MAX) {
        m->out->missing++;
        return;
    }
    const size_t k =
        ds_storm_rows_compare(&m->a, row, &m->b, other, 1, &m->out->compared, &m->out->differ);
    struct ds_storm_match *o = m->out;
    if (k == SIZE_MAX || (o->differs && (x->call != o->call || t->captures[k].site >= o->site)))
        return;
    const uint32_t other_call = m->b.t->rows[other].call;
    o->differs = 1;
    o->site = t->captures[k].site;
    o->launch = t->captures[k].launch;
    o->call = x->call;
    o->request = x->request;
    o->position = x->position;
    o->occurrence = x->occurrence;
    o->m = (int32_t)t->calls[x->call].m;
    o->requests = (int32_t)t->calls[x->call].sequences;
    o->other_call = other_call;
    o->other_m = (int32_t)m->b.t->calls[other_call].m;
    o->other_requests = (int32_t)m->b.t->calls[other_call].sequences;
}

static int match(struct match *m, const struct ds_trial_data *t, const struct ds_trial_data *other,
                 size_t n_requests, int64_t request, const struct ds_storm_hit *hits, size_t n_hits,
                 struct ds_error *err)
{
    if (ds_storm_rows_new(t, n_requests, &m->a, err) != 0 ||
        ds_storm_rows_new(other, n_requests, &m->b, err) != 0 ||
        ds_storm_steps(t, n_requests, &m->begin_a, &m->steps_a, err) != 0 ||
        ds_storm_steps(other, n_requests, &m->begin_b, &m->steps_b, err) != 0 ||
        !(m->parted = ds_calloc(n_requests, sizeof *m->parted, "requests", err)))
        return -1;
    if (hits && ds_storm_rows_begun(&m->b, hits, n_hits, &m->kept, &m->kept_at, err) != 0)
        return -1;
    for (size_t r = 0; r < n_requests; r++) {
        m->parted[r] = -1;
        if (request < 0 || r == (size_t)request)
            match_tokens(m, r);
    }
    for (size_t i = 0; i < t->n_rows; i++)
        if (request < 0 || t->rows[i].request == request)
            match_row(m, (uint32_t)i, hits != NULL);
    return 0;
}

int ds_storm_match(const struct ds_header *h, const struct ds_trial_data *t,
                   const struct ds_trial_data *other, size_t n_requests, int64_t request,
                   const struct ds_storm_hit *hits, size_t n_hits, struct ds_storm_match *out,
                   struct ds_error *err)
{
    struct match m = {.h = h, .out = out};
    memset(out, 0, sizeof *out);
    out->parted_request = -1;
    if (h->n_prompts == 0 || n_requests == 0 || request >= (int64_t)n_requests)
        return ds_fail(err, "a serving run has prompts and requests");
    int rc = match(&m, t, other, n_requests, request, hits, n_hits, err);
    ds_storm_rows_free(&m.a);
    ds_storm_rows_free(&m.b);
    free(m.begin_a);
    free(m.begin_b);
    free(m.steps_a);
    free(m.steps_b);
    free(m.parted);
    free(m.kept);
    free(m.kept_at);
    return rc;
}
