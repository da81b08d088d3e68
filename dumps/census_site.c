/* census_site.c: of the census, one site: what each row's repeats gave. Reads every trial of the arm, for as many
 * rows at a time as fit a bound. */
#include "dumps/census.h"

#include "dumps/verdict_internal.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of digests that are held at once. */
#define MOST_BYTES ((size_t)64 << 20)

struct given { /* what one trial gave */
    uint64_t digest;
    uint32_t trial;
};

struct stretch { /* rows first .. first + rows - 1 */
    size_t first, rows;
    struct given *given; /* [rows][trials], the first n of a row */
    uint32_t *n;         /* [rows] */
};

static int by_digest(const void *pa, const void *pb)
{
    const struct given *a = pa, *b = pb;
    if (a->digest != b->digest)
        return a->digest < b->digest ? -1 : 1;
    return (a->trial > b->trial) - (a->trial < b->trial);
}

/* A row that a trial has twice counts as it was first. */
static int read_trial(const struct ds_analysis *a, const struct arm_table *t, uint32_t site,
                      uint32_t trial, const struct stretch *s, struct ds_error *err)
{
    const struct ds_trial_data *d = a->src->get(a->src->ctx, t->trials[trial], err);
    if (!d)
        return -1;
    const uint64_t *digests = recorded_of(a, t->trials[trial], d);
    uint32_t row = NONE;
    for (size_t i = 0; i < d->n_captures; i++) {
        const struct ds_capture *c = &d->captures[i];
        for (uint32_t j = 0; c->site == site && j < c->rows; j++) {
            row = row_of_key(a, &d->rows[c->first_row + j], row == NONE ? 0 : row + 1);
            if (row == NONE || row < s->first || row - s->first >= s->rows)
                continue;
            struct given *list = s->given + (row - s->first) * t->n_trials;
            uint32_t *n = &s->n[row - s->first];
            if (*n == 0 || list[*n - 1].trial != trial)
                list[(*n)++] = (struct given){digests[c->first_digest + j], trial};
        }
    }
    return 0;
}

/* The mode is the digest that most trials gave, of equals the one that came first. */
static struct ds_census_row count_row(struct given *list, uint32_t n)
{
    struct ds_census_row r = {.trials = n};
    uint32_t first = UINT32_MAX;
    if (n)
        qsort(list, n, sizeof *list, by_digest);
    for (uint32_t i = 0, j; i < n; i = j) {
        for (j = i; j < n && list[j].digest == list[i].digest; j++)
            continue;
        r.values++;
        if (j - i < r.modal || (j - i == r.modal && list[i].trial > first))
            continue;
        r.modal = j - i;
        r.digest = list[i].digest;
        first = list[i].trial;
    }
    return r;
}

static void add_up(const struct ds_census_row *r, struct ds_census_site *out)
{
    if (!r->trials)
        return;
    out->with++;
    if (r->values > out->most)
        out->most = r->values;
    if (r->values < 2)
        return;
    if (out->unstable++ == 0 || r->modal < out->least)
        out->least = r->modal;
}

int ds_census_site(const struct ds_analysis *a, uint32_t arm, uint32_t site,
                   struct ds_census_site *out, struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    if (arm >= a->h->n_arms || site >= a->n_sites || !a->arms[arm].n_trials)
        return 0;
    const struct arm_table *t = &a->arms[arm];
    const size_t row_bytes = t->n_trials * sizeof(struct given);
    size_t most = MOST_BYTES / row_bytes;
    most = most < 1 ? 1 : most < a->n_rows ? most : a->n_rows;
    out->trials = t->n_trials;
    struct stretch s = {.given = ds_calloc(most, row_bytes, "repeats of a site", err),
                        .n = ds_calloc(most, sizeof *s.n, "repeats of a site", err)};
    out->rows = ds_calloc(a->n_rows, sizeof *out->rows, "repeats of a site", err);
    int rc = s.given && s.n && out->rows ? 0 : -1;
    for (; rc == 0 && s.first < a->n_rows; s.first += s.rows) {
        s.rows = a->n_rows - s.first < most ? a->n_rows - s.first : most;
        memset(s.n, 0, s.rows * sizeof *s.n);
        for (uint32_t k = 0; rc == 0 && k < t->n_trials; k++)
            rc = is_stopped(a) ? ds_fail(err, "given up") : read_trial(a, t, site, k, &s, err);
        for (size_t i = 0; rc == 0 && i < s.rows; i++) {
            struct ds_census_row *r = &out->rows[s.first + i];
            *r = count_row(s.given + i * t->n_trials, s.n[i]);
            add_up(r, out);
        }
    }
    free(s.given);
    free(s.n);
    if (rc != 0)
        ds_census_site_free(out);
    return rc;
}

void ds_census_site_free(struct ds_census_site *c)
{
    free(c->rows);
    memset(c, 0, sizeof *c);
}
