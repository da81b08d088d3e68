/* partings_play.c: see partings.h: runs that might have been, and how many requests part in them. Pure: the same
 * numbers on every machine. */
#include "dumps/partings_internal.h"

#include "base/ascending.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PLAYS = 2000, FEWEST_PLAYS = 200, MOST_REQUESTS_PLAYED = 4000000 };

struct prompt {
    size_t first, n; /* its requests, in `length` and `alike` */
    size_t steps;    /* choices that are known of it */
    size_t *near;    /* [n_near] steps at which a choice may turn over */
    size_t n_near;
};

struct play {
    const struct ds_partings *p;
    const size_t *listed;   /* [p->n_prompts] these prompts in the run that is foretold */
    struct prompt *prompts; /* [p->n_prompts] */
    size_t *near;           /* of all prompts */
    size_t *length;         /* [requests] choices of each, by prompt */
    /* [requests][steps of the prompt] the first of the prompt's with that answer. */
    uint32_t *alike;
    size_t *alike_at; /* [requests] */
    uint64_t random;
    size_t *drawn, *drifts; /* [n_prompts] prompts of this play; drifts of the ones up to here */
    /* of one prompt: */
    uint64_t *left; /* [requests] 0, or how it left */
    uint64_t *seen; /* [requests] when its answer was drawn last */
    uint64_t now;
    size_t *rival; /* [requests] for what its answer leaves: 0 it does not */
    struct group {
        uint64_t left;
        size_t n;
    } * groups; /* [requests] of those that left together */
};

/* ---- the run that is foretold ---------------------------------------------------------------- */

struct same {
    uint64_t bits;
    size_t i;
};

static int by_bits(const void *pa, const void *pb)
{
    const struct same *a = pa, *b = pb;
    if (a->bits != b->bits)
        return a->bits < b->bits ? -1 : 1;
    return a->i < b->i ? -1 : a->i > b->i;
}

/* Of step k. Who left the others in the run that is foretold has an answer of its own from then on. */
static void find_alike(struct play *x, const struct storm_work *w, const uint64_t *bits,
                       size_t prompt, size_t k, struct same *list)
{
    const struct prompt *p = &x->prompts[prompt];
    size_t n = 0, i = 0;
    for (size_t r = partings_begin(w, x->listed[prompt]); r < w->s->n_requests;
         r = partings_next(w, r)) {
        if (w->begin[r] == w->begin[r + 1])
            continue;
        x->alike[x->alike_at[p->first + i] + k] = (uint32_t)i;
        if (partings_open(w, r, k))
            list[n++] = (struct same){bits[w->begin[r] + k], i};
        i++;
    }
    if (n > 1)
        qsort(list, n, sizeof *list, by_bits);
    for (size_t a = 0, first = 0; a < n; a++) {
        first = a > 0 && list[a].bits == list[a - 1].bits ? first : list[a].i;
        x->alike[x->alike_at[p->first + list[a].i] + k] = (uint32_t)first;
    }
}

static void list_requests(struct play *x, const struct storm_work *w)
{
    size_t n = 0, at = 0;
    for (size_t prompt = 0; prompt < x->p->n_prompts; prompt++) {
        struct prompt *p = &x->prompts[prompt];
        p->first = n;
        p->steps = x->p->first[prompt + 1] - x->p->first[prompt];
        for (size_t r = partings_begin(w, x->listed[prompt]); r < w->s->n_requests;
             r = partings_next(w, r))
            if (w->begin[r] < w->begin[r + 1]) {
                x->length[n] = w->begin[r + 1] - w->begin[r];
                x->alike_at[n++] = at;
                at += p->steps;
            }
        p->n = n - p->first;
    }
}

/* Whether any request has an answer that is not all the others'. */
static int drifts(const struct play *x)
{
    for (size_t prompt = 0; prompt < x->p->n_prompts; prompt++) {
        const struct prompt *p = &x->prompts[prompt];
        for (size_t i = 1; i < p->n; i++)
            for (size_t k = 0; k < p->steps && k < x->length[p->first + i]; k++)
                if (x->alike[x->alike_at[p->first + i] + k] != 0)
                    return 1;
    }
    return 0;
}

static void find_near(struct play *x)
{
    size_t *at = x->near;
    for (size_t prompt = 0; prompt < x->p->n_prompts; prompt++) {
        struct prompt *p = &x->prompts[prompt];
        p->near = at;
        for (size_t k = 0; k < p->steps; k++)
            if (x->p->choices[x->p->first[prompt] + k].gap <= 2 * x->p->most)
                *at++ = k;
        p->n_near = (size_t)(at - p->near);
    }
}

/* ---- one play -------------------------------------------------------------------------------- */

static double draw_drift(struct play *x)
{
    const size_t n = x->p->n_prompts, all = x->drifts[n];
    if (all == 0)
        return 0;
    const uint64_t random = ds_random_next(&x->random);
    const size_t which = (size_t)(random >> 1) % all;
    size_t low = 0, high = n - 1; /* the last one with drifts[low] <= which */
    while (low < high) {
        const size_t middle = low + (high - low + 1) / 2;
        if (x->drifts[middle] <= which)
            low = middle;
        else
            high = middle - 1;
    }
    const double off = x->p->off[x->p->first_off[x->drawn[low]] + (which - x->drifts[low])];
    return random & 1 ? off : -off;
}

static void draw_prompts(struct play *x)
{
    const size_t n = x->p->n_prompts;
    for (size_t i = 0; i < n; i++) {
        x->drawn[i] = (size_t)(ds_random_next(&x->random) % n);
        x->drifts[i + 1] =
            x->drifts[i] + x->p->first_off[x->drawn[i] + 1] - x->p->first_off[x->drawn[i]];
    }
}

/* How one more answer leaves: 0 it stays, else the number of a rival, and one. */
static size_t draw_answer(struct play *x, const struct parting_choice *c, double shift)
{
    const double gap = c->gap + shift + draw_drift(x);
    if (!(gap < 0 || (gap <= 0 && c->wins)))
        return 0;
    return 1 + (size_t)x->p->rivals[c->rivals + (size_t)(ds_random_next(&x->random) % c->answers)];
}

static void play_choice(struct play *x, const struct prompt *p, size_t prompt, size_t k)
{
    const struct parting_choice *c = &x->p->choices[x->p->first[prompt] + k];
    const double shift = draw_drift(x) / sqrt((double)c->answers);
    x->now++;
    for (size_t i = 0; i < p->n; i++) {
        if (x->left[i] || k >= x->length[p->first + i])
            continue;
        const uint32_t of = x->alike[x->alike_at[p->first + i] + k];
        if (x->seen[of] != x->now) {
            x->seen[of] = x->now;
            x->rival[of] = draw_answer(x, c, shift);
        }
        if (x->rival[of])
            x->left[i] = (uint64_t)k << 32 | x->rival[of];
    }
}

/* Who left goes on with another text, whose choices nobody has measured: they are those of some prompt at that step. NULL: it
 * has none, or none that is near. */
static const struct parting_choice *draw_choice(struct play *x, size_t k)
{
    const size_t prompt = x->drawn[(size_t)(ds_random_next(&x->random) % x->p->n_prompts)];
    if (k >= x->prompts[prompt].steps)
        return NULL;
    const struct parting_choice *c = &x->p->choices[x->p->first[prompt] + k];
    return c->gap <= 2 * x->p->most ? c : NULL;
}

/* Requests that left together may part from each other later; one alone has nobody to part from. */
static void play_left(struct play *x, const struct prompt *p, size_t k)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) {
        size_t g = 0;
        if (!x->left[i] || k >= x->length[p->first + i])
            continue;
        while (g < n && x->groups[g].left != x->left[i])
            g++;
        if (g == n)
            x->groups[n++] = (struct group){.left = x->left[i]};
        x->groups[g].n++;
    }
    for (size_t g = 0; g < n; g++) {
        const uint64_t left = x->groups[g].left;
        const struct parting_choice *c = x->groups[g].n > 1 ? draw_choice(x, k) : NULL;
        if (!c)
            continue;
        const double shift = draw_drift(x) / sqrt((double)c->answers);
        x->now++;
        for (size_t i = 0; i < p->n; i++) {
            if (x->left[i] != left || k >= x->length[p->first + i])
                continue;
            const uint32_t of = x->alike[x->alike_at[p->first + i] + k];
            if (x->seen[of] != x->now) {
                x->seen[of] = x->now;
                x->rival[of] = draw_answer(x, c, shift);
            }
            if (x->rival[of]) {
                const uint64_t how[] = {left, k, x->rival[of]};
                x->left[i] = ds_hash(how, sizeof how) | 1;
            }
        }
    }
}

static int by_number(const void *pa, const void *pb)
{
    const uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return a < b ? -1 : a > b;
}

/* Requests that are not in the largest group. */
static size_t count_parted(struct play *x, size_t n)
{
    size_t gone = 0, largest;
    for (size_t i = 0; i < n; i++)
        if (x->left[i])
            x->left[gone++] = x->left[i];
    largest = n - gone;
    if (gone > 1)
        qsort(x->left, gone, sizeof *x->left, by_number);
    for (size_t i = 0, same = 0; i < gone; i++) {
        same = i > 0 && x->left[i] == x->left[i - 1] ? same + 1 : 1;
        largest = same > largest ? same : largest;
    }
    return n - largest;
}

static int has_left(const struct play *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x->left[i])
            return 1;
    return 0;
}

static size_t play_prompt(struct play *x, size_t prompt)
{
    const struct prompt *p = &x->prompts[prompt];
    if (p->n < 2 || p->n_near == 0)
        return 0;
    memset(x->left, 0, p->n * sizeof *x->left);
    for (size_t i = 0, k = 0, gone = 0; k < p->steps; k++) {
        if (gone)
            play_left(x, p, k);
        if (i < p->n_near && p->near[i] == k) {
            play_choice(x, p, prompt, k);
            i++;
        }
        gone = gone || has_left(x, p->n);
    }
    return count_parted(x, p->n);
}

/* ---- all plays ------------------------------------------------------------------------------- */

static int play_all(struct play *x, size_t plays, struct ds_partings_forecast *out,
                    struct ds_error *err)
{
    double *parted = ds_calloc(plays, sizeof *parted, "samples", err), sum = 0;
    size_t shared = 0;
    if (!parted)
        return -1;
    for (size_t i = 0; i < plays; i++) {
        draw_prompts(x);
        for (size_t k = 0; k < x->p->n_prompts; k++)
            parted[i] += (double)play_prompt(x, x->drawn[k]);
        sum += parted[i];
    }
    qsort(parted, plays, sizeof *parted, ds_ascending);
    for (size_t k = 0; k < x->p->n_prompts; k++)
        shared += x->prompts[k].n > 1;
    out->expected = sum / (double)plays;
    out->bounded = shared > 1;
    out->low = out->bounded ? parted[plays / 40] : 0;
    out->high = out->bounded ? parted[plays - 1 - plays / 40] : 0;
    free(parted);
    return 0;
}

static void stop(struct play *x)
{
    free(x->prompts);
    free(x->near);
    free(x->length);
    free(x->alike);
    free(x->alike_at);
    free(x->drawn);
    free(x->drifts);
    free(x->left);
    free(x->seen);
    free(x->rival);
    free(x->groups);
}

static int start(struct play *x, const struct storm_work *w, const uint64_t *bits,
                 struct ds_error *err)
{
    const size_t n = w->s->n_requests, prompts = x->p->n_prompts;
    size_t cells = 0;
    if (!(x->prompts = ds_calloc(prompts, sizeof *x->prompts, "prompts", err)) ||
        !(x->near = ds_calloc(x->p->first[prompts], sizeof *x->near, "choices", err)) ||
        !(x->length = ds_calloc(n, sizeof *x->length, "requests", err)) ||
        !(x->alike_at = ds_calloc(n, sizeof *x->alike_at, "requests", err)) ||
        !(x->drawn = ds_calloc(prompts, sizeof *x->drawn, "prompts", err)) ||
        !(x->drifts = ds_calloc(prompts + 1, sizeof *x->drifts, "prompts", err)) ||
        !(x->left = ds_calloc(n, sizeof *x->left, "requests", err)) ||
        !(x->seen = ds_calloc(n, sizeof *x->seen, "requests", err)) ||
        !(x->rival = ds_calloc(n, sizeof *x->rival, "requests", err)) ||
        !(x->groups = ds_calloc(n, sizeof *x->groups, "requests", err)))
        return -1;
    list_requests(x, w);
    for (size_t i = 0; i < prompts; i++)
        cells += x->prompts[i].n * x->prompts[i].steps;
    struct same *list = ds_calloc(n, sizeof *list, "requests", err);
    x->alike = list ? ds_calloc(cells, sizeof *x->alike, "answers", err) : NULL;
    for (size_t i = 0; x->alike && i < prompts; i++)
        for (size_t k = 0; k < x->prompts[i].steps; k++)
            find_alike(x, w, bits, i, k, list);
    free(list);
    if (x->alike)
        find_near(x);
    return x->alike ? 0 : -1;
}

int partings_play(const struct ds_partings *p, const struct storm_work *w, const uint64_t *bits,
                  struct ds_partings_forecast *out, struct ds_error *err)
{
    struct play x = {.p = p, .random = 1};
    size_t prompts, *listed;
    memset(out, 0, sizeof *out);
    if (partings_prompts(w, &listed, &prompts, err) != 0)
        return -1;
    x.listed = listed;
    int rc = prompts == p->n_prompts
                 ? 0
                 : ds_fail(err, "%zu of the prompts have requests; what is foretold from had %zu",
                           prompts, p->n_prompts);
    if (rc == 0)
        rc = start(&x, w, bits, err);
    for (size_t r = 0; r < w->s->n_requests && rc == 0; r++)
        out->requests +=
            w->s->requests[r].reference >= 0 && w->s->requests[r].reference != (int32_t)r;
    if (rc == 0) {
        const size_t most = MOST_REQUESTS_PLAYED / w->s->n_requests;
        out->known = p->most > 0 || !drifts(&x);
        rc = play_all(&x,
                      most > PLAYS          ? PLAYS
                      : most < FEWEST_PLAYS ? FEWEST_PLAYS
                                            : most,
                      out, err);
    }
    stop(&x);
    free(listed);
    return rc;
}
