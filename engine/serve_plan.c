/* serve_plan.c: the scheduler: who arrives, who is admitted, what each gets of a step. See serve.h. Pure:
 * knows no model, no clock, no token that is chosen.
 *
 * A step: requests arrive; those that decode get their row, in the order of their admission; then the
 * prompts under way get chunks of what is left of the call; then waiting requests are admitted, first
 * come first served. A row needs a row of the cache: if there is none, the request admitted last gives
 * its slot back and waits in front, to compute all its rows again. */
#include "engine/serve.h"

#include "base/mem.h"
#include "base/random.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- arrivals -------------------------------------------------------------------------------- */

/* exp(-x / DS_SERVE_RATE_UNIT) for x up to one unit, as a fraction of 2^32: the series, in whole
 * numbers, so that every machine has the same arrivals. */
static uint64_t exp_minus(uint64_t x)
{
    const uint64_t one = (uint64_t)1 << 32;
    uint64_t term = one, sum = one;
    for (uint64_t k = 1; k < 20 && term; k++) {
        term = term * x / (k * DS_SERVE_RATE_UNIT);
        sum = k % 2 ? sum - term : sum + term;
    }
    return sum;
}

/* How many arrive in a step: Knuth's product of uniform numbers, for each whole arrival a step and for
 * the rest (sums of Poisson numbers are such). */
static int64_t arrivals(int64_t rate, uint64_t *state)
{
    int64_t n = 0;
    for (int64_t left = rate; left > 0; left -= DS_SERVE_RATE_UNIT) {
        uint64_t limit =
            exp_minus((uint64_t)(left < DS_SERVE_RATE_UNIT ? left : DS_SERVE_RATE_UNIT));
        uint64_t product = (uint64_t)1 << 32;
        for (n--; product >= limit; n++)
            product = product * (ds_random_next(state) >> 32) >> 32;
    }
    return n;
}

/* ---- state ----------------------------------------------------------------------------------- */

struct request {
    int32_t prompt, cached, known; /* known: its prompt and what it has generated */
    int32_t slot;                  /* -1: it waits */
};

struct slot {
    int32_t prompt, rows; /* what an earlier request left: rows of its prompt; rows 0 = nothing */
    int taken;
};

struct scheduler {
    const struct ds_serve_config *c;
    const struct ds_serve_prompt *prompts;
    struct ds_serve_plan *plan;
    struct request *requests;
    int32_t *running, n_running; /* in the order of admission */
    int32_t *waiting, n_waiting; /* the next one last */
    struct slot *slots;
    int64_t free_rows;
    int32_t budget; /* rows that the call may still have */
};

static int32_t prompt_rows(const struct scheduler *s, const struct request *r)
{
    int32_t n = s->prompts[r->prompt].n;
    return r->cached < n ? r->cached : n;
}

static void leave(struct scheduler *s, int32_t place)
{
    struct request *r = &s->requests[s->running[place]];
    s->slots[r->slot] = (struct slot){.prompt = r->prompt, .rows = prompt_rows(s, r)};
    s->free_rows += r->cached;
    r->slot = -1;
    s->n_running--;
    memmove(s->running + place, s->running + place + 1,
            (size_t)(s->n_running - place) * sizeof *s->running);
}

static void preempt_youngest(struct scheduler *s)
{
    int32_t request = s->running[s->n_running - 1];
    leave(s, s->n_running - 1);
    s->requests[request].cached = 0;
    s->waiting[s->n_waiting++] = request;
    s->plan->preemptions++;
}

static int32_t common(const struct ds_serve_prompt *a, const struct ds_serve_prompt *b,
                      int32_t most)
{
    int32_t n = 0;
    while (n < most && n < a->n && n < b->n && a->tokens[n] == b->tokens[n])
        n++;
    return n;
}

/* A free slot: the one whose rows fit best, else one with nothing to lose, else the first. */
static int32_t find_slot(const struct scheduler *s, const struct request *r, int32_t *cached)
{
    int32_t best = -1;
    *cached = 0;
    for (int32_t i = 0; i < s->c->max_batch; i++) {
        const struct slot *slot = &s->slots[i];
        if (slot->taken)
            continue;
        /* At least one row is computed: a token is chosen from it. */
        int32_t most = slot->rows < r->known - 1 ? slot->rows : r->known - 1;
        int32_t n = s->c->reuse && most > 0
                        ? common(&s->prompts[slot->prompt], &s->prompts[r->prompt], most)
                        : 0;
        if (best < 0 || n > *cached ||
            (n == *cached && n == 0 && s->slots[best].rows > 0 && slot->rows == 0)) {
            best = i;
            *cached = n;
        }
    }
    return best;
}

static int add(struct scheduler *s, int32_t request, int32_t n, int begins, struct ds_error *err)
{
    struct request *r = &s->requests[request];
    struct ds_serve_piece piece = {
        .request = request, .cached = r->cached, .n_tokens = n, .slot = r->slot, .begins = begins};
    r->cached += n;
    s->budget -= n;
    s->free_rows -= n;
    return ds_serve_add_piece(s->plan, &piece, err);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static int decodes(const struct scheduler *s, const struct request *r)
{
    return r->known - r->cached == 1 && r->cached >= s->prompts[r->prompt].n;
}

static int step_decodes(struct scheduler *s, struct ds_error *err)
{
    for (int32_t i = 0; i < s->n_running && s->budget > 0; i++) {
        if (!decodes(s, &s->requests[s->running[i]]))
            continue;
        /* Whoever is preempted was admitted later, or is this one: it has no piece yet. */
        while (s->free_rows < 1 && i < s->n_running)
            preempt_youngest(s);
        if (i < s->n_running && add(s, s->running[i], 1, 0, err) != 0)
            return -1;
    }
    return 0;
}

static int32_t fitting(const struct scheduler *s, int32_t wanted)
{
    int32_t n = wanted < s->budget ? wanted : s->budget;
    return n < s->free_rows ? n : (int32_t)s->free_rows;
}

static int step_prompts(struct scheduler *s, struct ds_error *err)
{
    for (int32_t i = 0; i < s->n_running; i++) {
        const struct request *r = &s->requests[s->running[i]];
        /* A request that decodes and has had its row has nothing left. */
        int32_t n = decodes(s, r) ? 0 : fitting(s, r->known - r->cached);
        if (n > 0 && add(s, s->running[i], n, 0, err) != 0)
            return -1;
    }
    return 0;
}

static int step_admit(struct scheduler *s, struct ds_error *err)
{
    while (s->n_waiting > 0 && s->n_running < s->c->max_batch && s->budget > 0) {
        int32_t request = s->waiting[s->n_waiting - 1], cached;
        struct request *r = &s->requests[request];
        if (r->known > s->free_rows)
            return 0; /* nobody overtakes it */
        s->n_waiting--;
        r->slot = find_slot(s, r, &cached);
        s->slots[r->slot].taken = 1;
        r->cached = cached;
        s->free_rows -= cached;
        s->plan->hits += cached > 0;
        s->running[s->n_running++] = request;
        if (add(s, request, fitting(s, r->known - r->cached), 1, err) != 0)
            return -1;
    }
    return 0;
}

static int32_t tokens_of(const struct ds_serve_config *c, const struct ds_serve_prompt *p)
{
    return p->generates > 0 ? p->generates : c->tokens;
}

static int follows(const struct scheduler *s, int32_t request)
{
    return request < s->plan->n_requests && s->prompts[s->requests[request].prompt].follows;
}

/* Puts a request behind all that wait. */
static void queue(struct scheduler *s, int32_t request, size_t step)
{
    memmove(s->waiting + 1, s->waiting, (size_t)s->n_waiting * sizeof *s->waiting);
    s->waiting[0] = request;
    s->n_waiting++;
    s->plan->arrival[request] = (int32_t)step;
}

/* Whoever has fed all its tokens has one more; whoever has all gives its slot back, and what follows it arrives. */
static void step_end(struct scheduler *s)
{
    for (int32_t i = 0; i < s->n_running;) {
        const int32_t request = s->running[i];
        struct request *r = &s->requests[request];
        const struct ds_serve_prompt *p = &s->prompts[r->prompt];
        if (r->cached == r->known)
            r->known++;
        if (r->known == p->n + tokens_of(s->c, p)) {
            leave(s, i);
            if (follows(s, request + 1))
                queue(s, request + 1, s->plan->n_steps);
        } else
            i++;
    }
}

static int step(struct scheduler *s, struct ds_error *err)
{
    const size_t before = s->plan->n_pieces;
    for (;;) {
        s->budget = s->c->chunk > 0 ? s->c->chunk : INT32_MAX;
        if (step_decodes(s, err) != 0 || step_prompts(s, err) != 0 || step_admit(s, err) != 0)
            return -1;
        if (s->plan->n_pieces > before || s->n_running == 0)
            break;
        preempt_youngest(s); /* prompts hold all rows and none can go on */
    }
    step_end(s);
    return 0;
}

/* ---- all steps ------------------------------------------------------------------------------- */

/* The next ones in number, but for those that follow another. */
static void arrive(struct scheduler *s, int64_t n, int32_t *arrived)
{
    for (; n > 0 && *arrived < s->plan->n_requests; n--) {
        queue(s, (*arrived)++, s->plan->n_steps - 1);
        while (follows(s, *arrived))
            ++*arrived;
    }
}

static int run(struct scheduler *s, struct ds_error *err)
{
    uint64_t random = s->c->seed;
    int32_t arrived = 0;
    while (arrived < s->plan->n_requests || s->n_running + s->n_waiting > 0) {
        if (ds_serve_add_step(s->plan, err) != 0)
            return -1;
        do /* a step in which nobody is there does not exist */
            arrive(s, s->c->rate > 0 ? arrivals(s->c->rate, &random) : INT32_MAX, &arrived);
        while (s->n_running + s->n_waiting == 0);
        if (step(s, err) != 0)
            return -1;
    }
    return 0;
}

static int check_config(const struct ds_serve_config *c, const struct ds_serve_prompt *prompts,
                        int32_t n_prompts, int32_t n_requests, struct ds_error *err)
{
    int64_t longest = 0, all = 0;
    if (n_requests < 1 || n_requests > DS_SERVE_MOST_REQUESTS || n_prompts < 1 ||
        prompts[0].follows || c->tokens < 1 || c->tokens > DS_SERVE_MOST_TOKENS ||
        c->max_batch < 1 || c->max_batch > DS_SERVE_MOST_BATCH || c->chunk < 0 ||
        c->cache_rows < 0 || c->rate < 0 ||
        c->rate > (int64_t)DS_SERVE_MOST_RATE * DS_SERVE_RATE_UNIT)
        return ds_fail(err, "a serving plan's settings are out of range");
    for (int32_t i = 0; i < n_prompts; i++) {
        if (prompts[i].n < 1)
            return ds_fail(err, "prompt %d has no tokens", i);
        if (prompts[i].generates < 0 || prompts[i].generates > DS_SERVE_MOST_TOKENS)
            return ds_fail(err, "prompt %d generates %d tokens; the most is %d", i,
                           prompts[i].generates, DS_SERVE_MOST_TOKENS);
        int64_t rows = (int64_t)prompts[i].n + tokens_of(c, &prompts[i]) - 1;
        longest = rows > longest ? rows : longest;
    }
    all = longest * n_requests;
    if (longest > INT32_MAX / 2 || all > (int64_t)1 << 32)
        return ds_fail(err, "%d requests of up to %lld rows are too many", n_requests,
                       (long long)longest);
    if (c->cache_rows > 0 && c->cache_rows < longest)
        return ds_fail(err, "the cache has %d rows; the longest request alone needs %lld",
                       c->cache_rows, (long long)longest);
    return 0;
}

int ds_serve_plan_new(const struct ds_serve_config *c, const struct ds_serve_prompt *prompts,
                      int32_t n_prompts, int32_t n_requests, struct ds_serve_plan *out,
                      struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    if (check_config(c, prompts, n_prompts, n_requests, err) != 0)
        return -1;
    const size_t n = (size_t)n_requests;
    struct scheduler s = {.c = c,
                          .prompts = prompts,
                          .plan = out,
                          .requests = ds_calloc(n, sizeof *s.requests, "requests", err),
                          .running = ds_calloc(n, sizeof *s.running, "requests", err),
                          .waiting = ds_calloc(n, sizeof *s.waiting, "requests", err),
                          .slots = ds_calloc((size_t)c->max_batch, sizeof *s.slots, "slots", err),
                          .free_rows = c->cache_rows > 0 ? c->cache_rows : INT64_MAX / 2};
    out->n_requests = n_requests;
    out->arrival = ds_calloc(n, sizeof *out->arrival, "requests", err);
    int rc = s.requests && s.running && s.waiting && s.slots && out->arrival ? 0 : -1;
    for (int32_t i = 0; rc == 0 && i < n_requests; i++)
        s.requests[i] = (struct request){
            .prompt = i % n_prompts, .known = prompts[i % n_prompts].n, .slot = -1};
    if (rc == 0)
        rc = run(&s, err);
    if (rc == 0)
        rc = ds_serve_check(out, prompts, n_prompts, NULL, err);
    free(s.requests);
    free(s.running);
    free(s.waiting);
    free(s.slots);
    if (rc != 0)
        ds_serve_plan_free(out);
    return rc;
}
