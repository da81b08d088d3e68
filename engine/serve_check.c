/* serve_check.c: a plan of steps as data: built piece by piece, checked whoever made it, reduced to one of
 * its requests. See serve.h. Pure. */
#include "engine/serve.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void ds_serve_plan_free(struct ds_serve_plan *p)
{
    free(p->pieces);
    free(p->first);
    free(p->arrival);
    memset(p, 0, sizeof *p);
}

int ds_serve_add_step(struct ds_serve_plan *p, struct ds_error *err)
{
    if (ds_grow(&p->first, &p->cap_steps, p->n_steps + 2, sizeof *p->first, "steps", err) != 0)
        return -1;
    p->first[p->n_steps++] = p->n_pieces;
    p->first[p->n_steps] = p->n_pieces;
    return 0;
}

int ds_serve_add_piece(struct ds_serve_plan *p, const struct ds_serve_piece *piece,
                       struct ds_error *err)
{
    if (ds_grow(&p->pieces, &p->cap_pieces, p->n_pieces + 1, sizeof *p->pieces, "steps", err) != 0)
        return -1;
    p->pieces[p->n_pieces++] = *piece;
    p->first[p->n_steps] = p->n_pieces;
    return 0;
}

/* ---- checking -------------------------------------------------------------------------------- */

struct holder { /* what stands in a slot */
    int32_t request, rows;
    int held; /* the request is not through */
};

struct walk {
    struct ds_serve_plan *p;
    const struct ds_serve_prompt *prompts;
    int32_t n_prompts;
    int32_t *has, *known, *slot; /* [n_requests] rows in the cache; tokens; slot or -1 */
    size_t *seen;                /* [n_requests] 1 + the step of its last piece */
    size_t *next;                /* [n_pieces] the request's next piece, or SIZE_MAX */
    struct holder *holders;
    size_t cap_holders;
};

static const struct ds_serve_prompt *prompt_of(const struct walk *w, int32_t request)
{
    return &w->prompts[request % w->n_prompts];
}

/* Tokens that both requests have in common at their beginning, of what stands in the slot. */
static int32_t shared(const struct walk *w, const struct holder *h, int32_t request)
{
    if (h->request == request)
        return h->rows; /* its own rows, also of tokens that it generated */
    const struct ds_serve_prompt *a = prompt_of(w, h->request), *b = prompt_of(w, request);
    int32_t n = 0;
    while (n < h->rows && n < a->n && n < b->n && a->tokens[n] == b->tokens[n])
        n++;
    return n;
}

/* Rows of the request that stand in a slot, whoever has it. */
static int32_t stands(const struct walk *w, int32_t slot, int32_t request)
{
    return shared(w, &w->holders[slot], request);
}

/* A slot for a request that has none: one that nobody holds, best one where its cached tokens stand. */
static int32_t find_slot(const struct walk *w, const struct ds_serve_piece *piece)
{
    int32_t found = w->p->slots;
    for (int32_t i = w->p->slots; i-- > 0;)
        if (!w->holders[i].held && (found == w->p->slots || piece->cached == 0 ||
                                    stands(w, i, piece->request) >= piece->cached))
            found = i;
    return found;
}

static int open_slot(struct walk *w, int32_t slot, int32_t request, struct ds_error *err)
{
    if (slot >= DS_SERVE_MOST_REQUESTS)
        return ds_fail(err, "slot %d is out of range", slot);
    if (ds_grow(&w->holders, &w->cap_holders, (size_t)slot + 1, sizeof *w->holders, "slots", err) !=
        0)
        return -1;
    for (; w->p->slots <= slot; w->p->slots++)
        w->holders[w->p->slots] = (struct holder){.request = request};
    return 0;
}

/* Where the cached rows of a request that begins come from. */
static int find_rows(struct walk *w, struct ds_serve_piece *piece, struct ds_error *err)
{
    int32_t slot = piece->slot;
    piece->from = piece->copy = -1;
    if (piece->cached == 0)
        return 0;
    for (int32_t i = 0; i < w->p->slots && stands(w, slot, piece->request) < piece->cached; i++)
        if (stands(w, i, piece->request) >= piece->cached)
            slot = i;
    if (stands(w, slot, piece->request) < piece->cached) {
        ds_fail(err, "request %d begins with %d cached tokens that stand in no slot",
                piece->request, piece->cached);
        return ds_hint(err, "a request can begin with what an earlier one computed of the same "
                            "prompt, as long as nobody has taken its slot");
    }
    piece->from = w->holders[slot].request;
    piece->copy = slot == piece->slot ? -1 : slot;
    return 0;
}

static int take_slot(struct walk *w, struct ds_serve_piece *piece, struct ds_error *err)
{
    const int32_t own = w->slot[piece->request];
    piece->from = piece->copy = -1;
    if (piece->slot < 0)
        piece->slot = own >= 0 ? own : find_slot(w, piece);
    if (open_slot(w, piece->slot, piece->request, err) != 0)
        return -1;
    const struct holder *h = &w->holders[piece->slot];
    if (own >= 0 && own != piece->slot)
        return ds_fail(err, "request %d has slot %d, not %d", piece->request, own, piece->slot);
    if (own < 0 && h->held)
        return ds_fail(err, "request %d takes slot %d, which request %d has", piece->request,
                       piece->slot, h->request);
    if (own < 0 && find_rows(w, piece, err) != 0)
        return -1;
    piece->takes = own < 0;
    w->slot[piece->request] = piece->slot;
    if (piece->takes)
        w->holders[piece->slot] =
            (struct holder){piece->from >= 0 ? piece->from : piece->request, piece->cached, 1};
    return 0;
}

static int check_piece(struct walk *w, size_t step, size_t number, struct ds_error *err)
{
    struct ds_serve_piece *piece = &w->p->pieces[number];
    const int32_t r = piece->request;
    if (piece->n_tokens < 1 || piece->cached < 0)
        return ds_fail(err, "request %d: %d new tokens after %d cached ones", r, piece->n_tokens,
                       piece->cached);
    if (w->seen[r] == step + 1)
        return ds_fail(err, "request %d: twice in one step", r);
    w->seen[r] = step + 1;
    if (w->slot[r] >= 0 && piece->cached != w->has[r])
        return ds_fail(err, "request %d: %d tokens are said to be cached; it has %d", r,
                       piece->cached, w->has[r]);
    if (piece->n_tokens > w->known[r] - piece->cached)
        return ds_fail(err, "request %d: %d new tokens after %d cached ones; it has %d in all", r,
                       piece->n_tokens, piece->cached, w->known[r]);
    if (take_slot(w, piece, err) != 0)
        return -1;
    w->has[r] = piece->cached + piece->n_tokens;
    w->p->capacity = w->has[r] > w->p->capacity ? w->has[r] : w->p->capacity;
    piece->chooses = w->has[r] == w->known[r];
    w->known[r] += piece->chooses;
    int32_t tokens = w->known[r] - prompt_of(w, r)->n;
    w->p->tokens = tokens > w->p->tokens ? tokens : w->p->tokens;
    return 0;
}

/* After a step: who is through, or begins again, gives its slot back. */
static void release(struct walk *w, size_t step)
{
    for (size_t k = w->p->first[step]; k < w->p->first[step + 1]; k++) {
        const struct ds_serve_piece *piece = &w->p->pieces[k];
        const size_t next = w->next[k];
        const int32_t r = piece->request;
        const int stays = next != SIZE_MAX && !w->p->pieces[next].begins &&
                          w->p->pieces[next].cached >= w->has[r];
        w->holders[piece->slot] = (struct holder){r, w->has[r], stays};
        if (!stays)
            w->slot[r] = -1;
    }
}

/* Links each piece to the request's next one. */
static int link_pieces(struct walk *w, struct ds_error *err)
{
    size_t *after = ds_calloc((size_t)w->p->n_requests, sizeof *after, "requests", err);
    if (!after)
        return -1;
    for (int32_t i = 0; i < w->p->n_requests; i++)
        after[i] = SIZE_MAX;
    for (size_t k = w->p->n_pieces; k-- > 0;) {
        w->next[k] = after[w->p->pieces[k].request];
        after[w->p->pieces[k].request] = k;
    }
    free(after);
    return 0;
}

static int walk(struct walk *w, size_t *step, struct ds_error *err)
{
    for (size_t s = 0; s < w->p->n_steps; s++) {
        int64_t rows = 0;
        if (step)
            *step = s;
        if (w->p->first[s] == w->p->first[s + 1])
            return ds_fail(err, "step %zu: no request has a token in it", s);
        for (size_t k = w->p->first[s]; k < w->p->first[s + 1]; k++) {
            if (check_piece(w, s, k, err) != 0)
                return ds_prefix(err, "step %zu", s);
            rows += w->p->pieces[k].n_tokens;
        }
        if (rows > INT32_MAX / 2)
            return ds_fail(err, "step %zu: a call of %lld rows is too large", s, (long long)rows);
        w->p->max_rows = rows > w->p->max_rows ? (int32_t)rows : w->p->max_rows;
        release(w, s);
    }
    return 0;
}

/* The step in which each request is first seen, if nobody said when it arrived. */
static int find_arrivals(struct ds_serve_plan *p, struct ds_error *err)
{
    if (p->arrival)
        return 0;
    if (!(p->arrival = ds_calloc((size_t)p->n_requests, sizeof *p->arrival, "requests", err)))
        return -1;
    for (size_t s = p->n_steps; s-- > 0;)
        for (size_t k = p->first[s]; k < p->first[s + 1]; k++)
            p->arrival[p->pieces[k].request] = (int32_t)s;
    return 0;
}

int ds_serve_check(struct ds_serve_plan *p, const struct ds_serve_prompt *prompts,
                   int32_t n_prompts, size_t *step, struct ds_error *err)
{
    int32_t most = p->n_requests - 1;
    for (size_t k = 0, at = 0; k < p->n_pieces; k++) {
        const int32_t r = p->pieces[k].request;
        while (k >= p->first[at + 1])
            at++;
        if (step)
            *step = at;
        if (r < 0 || r >= DS_SERVE_MOST_REQUESTS)
            return ds_fail(err, "request %d: requests are numbered from 0 to %d", r,
                           DS_SERVE_MOST_REQUESTS - 1);
        most = r > most ? r : most;
    }
    if (p->n_pieces == 0 || n_prompts < 1)
        return ds_fail(err, "the schedule has no steps");
    p->n_requests = most + 1;
    p->slots = p->capacity = p->max_rows = p->tokens = 0;
    const size_t n = (size_t)p->n_requests;
    struct walk w = {.p = p, .prompts = prompts, .n_prompts = n_prompts};
    w.has = ds_calloc(n, sizeof *w.has, "requests", err);
    w.known = ds_calloc(n, sizeof *w.known, "requests", err);
    w.slot = ds_calloc(n, sizeof *w.slot, "requests", err);
    w.seen = ds_calloc(n, sizeof *w.seen, "requests", err);
    w.next = ds_calloc(p->n_pieces, sizeof *w.next, "steps", err);
    int rc = w.has && w.known && w.slot && w.seen && w.next ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        w.known[i] = prompt_of(&w, (int32_t)i)->n;
        w.slot[i] = -1;
    }
    if (rc == 0)
        rc = link_pieces(&w, err);
    if (rc == 0)
        rc = walk(&w, step, err);
    if (rc == 0)
        rc = find_arrivals(p, err);
    free(w.has);
    free(w.known);
    free(w.slot);
    free(w.seen);
    free(w.next);
    free(w.holders);
    return rc;
}

int ds_serve_only(const struct ds_serve_plan *p, int32_t request,
                  const struct ds_serve_prompt *prompts, int32_t n_prompts,
                  struct ds_serve_plan *out, struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    out->n_requests = p->n_requests;
    int rc = 0;
    for (size_t k = 0; k < p->n_pieces && rc == 0; k++) {
        struct ds_serve_piece piece = p->pieces[k];
        if (piece.request != request)
            continue;
        if (piece.takes) {
            piece.n_tokens += piece.cached;
            piece.cached = 0;
            piece.begins = 1;
        }
        piece.slot = 0;
        rc = ds_serve_add_step(out, err);
        rc = rc == 0 ? ds_serve_add_piece(out, &piece, err) : rc;
    }
    if (rc == 0)
        rc = ds_serve_check(out, prompts, n_prompts, NULL, err);
    if (rc != 0)
        ds_serve_plan_free(out);
    return rc;
}

int ds_serve_texts(const struct ds_serve_prompt *texts, int32_t n, struct ds_serve_plan *out,
                   struct ds_error *err)
{
    int rc = 0;
    memset(out, 0, sizeof *out);
    out->n_requests = n;
    for (int32_t r = 0; r < n && rc == 0; r++) {
        const struct ds_serve_piece piece = {
            .request = r, .n_tokens = texts[r].n, .slot = 0, .begins = 1};
        rc = ds_serve_add_step(out, err);
        rc = rc == 0 ? ds_serve_add_piece(out, &piece, err) : rc;
    }
    if (rc == 0)
        rc = ds_serve_check(out, texts, n, NULL, err);
    if (rc != 0)
        ds_serve_plan_free(out);
    return rc;
}
