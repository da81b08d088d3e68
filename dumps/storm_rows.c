/* storm_rows.c: see storm_rows.h. Pure. */
#include "dumps/storm_rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void ds_storm_rows_free(struct ds_storm_rows *r)
{
    free(r->first);
    free(r->captures);
    memset(r, 0, sizeof *r);
}

static int index_captures(struct ds_storm_rows *r, struct ds_error *err)
{
    const struct ds_trial_data *t = r->t;
    if (!(r->captures = ds_calloc(t->n_calls + 1, sizeof *r->captures, "calls", err)))
        return -1;
    size_t k = 0;
    for (size_t c = 0; c < t->n_calls; c++) {
        while (k < t->n_captures && t->captures[k].call == c)
            k++;
        r->captures[c + 1] = k;
    }
    return k == t->n_captures ? 0 : ds_fail(err, "the captures are not in the order of the calls");
}

int ds_storm_rows_new(const struct ds_trial_data *t, size_t n_requests, struct ds_storm_rows *out,
                      struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    out->t = t;
    out->n_requests = n_requests;
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct ds_row *row = &t->rows[i];
        if (row->request < 0 || (size_t)row->request >= n_requests || row->position < 0 ||
            row->position > INT32_MAX / 2)
            return ds_fail(err, "row %zu: request %d, position %d: the trial is no serving run's",
                           i, row->request, row->position);
        if ((size_t)row->position >= out->width)
            out->width = (size_t)row->position + 1;
    }
    size_t cells;
    if (__builtin_mul_overflow(n_requests, out->width, &cells))
        return ds_fail(err, "out of memory for rows");
    if (!(out->first = ds_calloc(cells, sizeof *out->first, "rows", err)) ||
        index_captures(out, err) != 0) {
        ds_storm_rows_free(out);
        return -1;
    }
    for (size_t i = 0; i < t->n_rows; i++) {
        uint32_t *cell =
            &out->first[(size_t)t->rows[i].request * out->width + (size_t)t->rows[i].position];
        *cell = *cell ? *cell : (uint32_t)i + 1;
    }
    return 0;
}

/* The next capture from *k on that has the row. */
static const struct ds_capture *next_with(const struct ds_storm_rows *r, uint32_t row, size_t *k)
{
    const size_t end = r->captures[r->t->rows[row].call + 1];
    for (; *k < end; ++*k) {
        const struct ds_capture *c = &r->t->captures[*k];
        if (row >= c->first_row && row - c->first_row < c->rows)
            return c;
    }
    return NULL;
}

size_t ds_storm_rows_compare(const struct ds_storm_rows *a, uint32_t row,
                             const struct ds_storm_rows *b, uint32_t other, int to_the_end,
                             uint64_t *compared, uint64_t *differ)
{
    size_t ka = a->captures[a->t->rows[row].call], kb = b->captures[b->t->rows[other].call],
           found = SIZE_MAX;
    const struct ds_capture *ca = next_with(a, row, &ka), *cb = next_with(b, other, &kb);
    while (ca && cb) {
        if (ca->site < cb->site) {
            ka++;
            ca = next_with(a, row, &ka);
        } else if (cb->site < ca->site) {
            kb++;
            cb = next_with(b, other, &kb);
        } else {
            const int unlike = a->t->digests[ca->first_digest + row - ca->first_row] !=
                               b->t->digests[cb->first_digest + other - cb->first_row];
            ++*compared;
            *differ += (uint64_t)unlike;
            found = unlike && found == SIZE_MAX ? ka : found;
            if (unlike && !to_the_end)
                break;
            ka++;
            kb++;
            ca = next_with(a, row, &ka);
            cb = next_with(b, other, &kb);
        }
    }
    return found;
}

static int check_hits(const struct ds_storm_rows *r, const struct ds_storm_hit *hits, size_t n_hits,
                      size_t *total, struct ds_error *err)
{
    *total = 0;
    for (size_t k = 0; k < n_hits; k++) {
        const struct ds_storm_hit *x = &hits[k];
        if (x->request < 0 || (size_t)x->request >= r->n_requests || x->from < 0 ||
            (size_t)x->from >= r->n_requests || x->n < 0 || (size_t)x->n > r->width ||
            (k > 0 && x->call < hits[k - 1].call))
            return ds_fail(err, "prefix %zu: request %d from %d, %d rows", k, x->request, x->from,
                           x->n);
        *total += (size_t)x->n;
    }
    return 0;
}

int ds_storm_rows_begun(struct ds_storm_rows *r, const struct ds_storm_hit *hits, size_t n_hits,
                        uint32_t **kept, size_t **kept_at, struct ds_error *err)
{
    const struct ds_trial_data *t = r->t;
    size_t total, i = 0;
    *kept = NULL;
    *kept_at = NULL;
    if (check_hits(r, hits, n_hits, &total, err) != 0)
        return -1;
    /* The row that a request has at each position, as the calls go by. */
    uint32_t *now = ds_calloc(r->n_requests * r->width, sizeof *now, "rows", err);
    *kept = ds_calloc(total, sizeof **kept, "rows", err);
    *kept_at = ds_calloc(n_hits + 1, sizeof **kept_at, "rows", err);
    if (!now || !*kept || !*kept_at) {
        free(now);
        return -1;
    }
    memset(r->first, 0, r->n_requests * r->width * sizeof *r->first);
    for (size_t c = 0, k = 0; c < t->n_calls; c++) {
        for (; k < n_hits && hits[k].call == c; k++) {
            const size_t to = (size_t)hits[k].request * r->width,
                         from = (size_t)hits[k].from * r->width, at = (*kept_at)[k];
            (*kept_at)[k + 1] = at + (size_t)hits[k].n;
            for (size_t p = 0; p < (size_t)hits[k].n; p++) {
                now[to + p] = (*kept)[at + p] = now[from + p];
                r->first[to + p] = r->first[to + p] ? r->first[to + p] : now[from + p];
            }
        }
        for (; i < t->n_rows && t->rows[i].call == c; i++) {
            size_t at = (size_t)t->rows[i].request * r->width + (size_t)t->rows[i].position;
            now[at] = (uint32_t)i + 1;
            r->first[at] = r->first[at] ? r->first[at] : now[at];
        }
    }
    free(now);
    return 0;
}
