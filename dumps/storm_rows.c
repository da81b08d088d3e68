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
