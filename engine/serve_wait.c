/* serve_wait.c: how long requests wait for their first token, from a plan and the time that each of its steps took. Pure.
 * See serve.h. */
#include "engine/serve.h"

#include "base/ascending.h"
#include "base/mem.h"

#include <stdlib.h>

struct waits {
    double *end; /* [n_steps + 1] when each step ends, counted from the start of the first */
    double *steps, *time; /* [n_requests] of those that got a first token */
    char *served;         /* [n_requests] it has its first token */
    size_t n;
};

static void take_step(struct waits *w, const struct ds_serve_plan *p, size_t s)
{
    for (size_t k = p->first[s]; k < p->first[s + 1]; k++) {
        const int32_t r = p->pieces[k].request, from = p->arrival[r];
        if (!p->pieces[k].chooses || w->served[r] || from < 0)
            continue;
        w->served[r] = 1;
        w->steps[w->n] = (double)(s + 1) - from;
        w->time[w->n++] = w->end[s + 1] - w->end[from];
    }
}

int ds_serve_waits(const struct ds_serve_plan *p, const double *seconds, struct ds_serve_wait *out,
                   struct ds_error *err)
{
    const size_t n = (size_t)p->n_requests;
    struct waits w = {.end = ds_calloc(p->n_steps + 1, sizeof *w.end, "steps", err),
                      .steps = ds_calloc(n, sizeof *w.steps, "requests", err),
                      .time = ds_calloc(n, sizeof *w.time, "requests", err),
                      .served = ds_calloc(n, 1, "requests", err)};
    const int rc = w.end && w.steps && w.time && w.served ? 0 : -1;
    *out = (struct ds_serve_wait){0};
    for (size_t s = 0; rc == 0 && s < p->n_steps; s++) {
        w.end[s + 1] = w.end[s] + seconds[s];
        take_step(&w, p, s);
    }
    if (rc == 0 && w.n > 0) {
        qsort(w.steps, w.n, sizeof *w.steps, ds_ascending);
        qsort(w.time, w.n, sizeof *w.time, ds_ascending);
        *out = (struct ds_serve_wait){.median_steps = w.steps[w.n / 2],
                                      .most_steps = w.steps[w.n - 1],
                                      .median_s = w.time[w.n / 2],
                                      .most_s = w.time[w.n - 1]};
    }
    free(w.end);
    free(w.steps);
    free(w.time);
    free(w.served);
    return rc;
}
