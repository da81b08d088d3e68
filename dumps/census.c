/* census.c: see census.h. Counts runs and compares them in pairs; where an arm's own trials part is
 * judged by verdict_label.c. */
#include "dumps/census.h"

#include "dumps/verdict_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of digests of one arm that are held at once. */
#define MOST_DIGESTS ((size_t)64 << 20)

static const double MISSED = 0.05; /* 1 - the confidence of an exclusion */

void ds_wilson(double k, double n, double *low, double *high)
{
    if (!(n > 0)) {
        *low = 0;
        *high = 1;
        return;
    }
    const double z = 1.959963984540054;
    double p = k / n, mid = p + z * z / (2 * n),
           half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)), scale = 1 + z * z / n;
    *low = k == 0 ? 0 : (mid - half) / scale;
    *high = k == n ? 1 : (mid + half) / scale;
}

double ds_flake_excluded(uint32_t trials)
{
    return trials < 2 ? 1 : 1 - pow(MISSED, 1.0 / (trials - 1));
}

uint32_t ds_flake_trials(double rate)
{
    if (!(rate > 0 && rate < 1))
        return UINT32_MAX;
    double n = 1 + ceil(log(MISSED) / log1p(-rate));
    return n < 4294967295.0 ? (uint32_t)n : UINT32_MAX;
}

void ds_census_free(struct ds_census *c)
{
    if (!c)
        return;
    free(c->arms);
    free(c->thresholds);
    free(c);
}

/* ---- different runs -------------------------------------------------------------------------- */

struct run { /* trials of one arm that agree in every digest */
    uint64_t hash;
    uint32_t first; /* its first trial */
    uint32_t trials;
};

struct runs {
    struct run *run; /* [n] ascending in `first` */
    uint32_t n, compared;
    size_t *cell; /* [n_cells] unstable cells in execution order */
    size_t n_cells;
    uint64_t *digest; /* [compared][n_cells]; 0 = absent */
};

static int by_hash(const void *pa, const void *pb)
{
    const struct run *a = pa, *b = pb;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

static int by_first(const void *pa, const void *pb)
{
    const struct run *a = pa, *b = pb;
    return (a->first > b->first) - (a->first < b->first);
}

static int find_runs(const struct arm_table *t, struct runs *r, struct ds_error *err)
{
    if (!(r->run = ds_calloc(t->n_trials, sizeof *r->run, "runs", err)))
        return -1;
    for (uint32_t k = 0; k < t->n_trials; k++)
        r->run[k] = (struct run){t->hash[k][DS_VERDICT_ALL], k, 1};
    qsort(r->run, t->n_trials, sizeof *r->run, by_hash);
    for (uint32_t k = 0; k < t->n_trials; k++) {
        if (r->n && r->run[r->n - 1].hash == r->run[k].hash)
            r->run[r->n - 1].trials++;
        else
            r->run[r->n++] = r->run[k];
    }
    qsort(r->run, r->n, sizeof *r->run, by_first);
    return 0;
}

struct order { /* a row and when a run meets it */
    uint32_t row;
    int32_t step, position;
};

static int by_step(const void *pa, const void *pb)
{
    const struct order *a = pa, *b = pb;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

/* The unstable cells in execution order: by site, then step, then position. */
static int list_cells(const struct ds_analysis *a, const struct arm_table *t, struct runs *r,
                      struct ds_error *err)
{
    struct order *o = ds_calloc(a->n_rows, sizeof *o, "rows", err);
    size_t n = 0;
    r->cell = ds_calloc(t->unstable_cells, sizeof *r->cell, "unstable rows", err);
    if (!o || !r->cell) {
        free(o);
        return -1;
    }
    for (uint32_t i = 0; i < a->n_rows; i++)
        if (t->row[i] != NONE)
            o[n++] = (struct order){i, arm_row(t, i)->step, a->keys[i].position};
    qsort(o, n, sizeof *o, by_step);
    for (size_t site = 0; site < a->n_sites; site++)
        for (size_t i = 0; i < n && r->n_cells < t->unstable_cells; i++)
            if (t->state[site * a->n_rows + o[i].row] == CELL_UNSTABLE && !is_ignored(a, site))
                r->cell[r->n_cells++] = site * a->n_rows + o[i].row;
    free(o);
    return 0;
}

static int read_run(const struct ds_analysis *a, const struct arm_table *t, uint32_t trial,
                    const uint32_t *place, uint64_t *digest, struct ds_error *err)
{
    const struct ds_trial_data *d = a->src->get(a->src->ctx, t->trials[trial], err);
    if (!d)
        return -1;
    for (size_t i = 0; i < d->n_captures; i++) {
        const struct ds_capture *c = &d->captures[i];
        uint32_t row = NONE;
        for (uint32_t j = 0; j < c->rows; j++) {
            row = row_of_key(a, &d->rows[c->first_row + j], row == NONE ? 0 : row + 1);
            uint32_t at = row == NONE ? 0 : place[c->site * a->n_rows + row];
            if (at && !digest[at - 1])
                digest[at - 1] = d->digests[c->first_digest + j];
        }
    }
    return 0;
}

static int read_runs(const struct ds_analysis *a, const struct arm_table *t, struct runs *r,
                     struct ds_error *err)
{
    size_t most = MOST_DIGESTS / sizeof(uint64_t) / (r->n_cells ? r->n_cells : 1);
    r->compared = r->n < DS_CENSUS_RUNS ? r->n : DS_CENSUS_RUNS;
    if (r->compared > most)
        r->compared = most < 2 ? 2 : (uint32_t)most;
    uint32_t *place = ds_calloc(a->cells, sizeof *place, "unstable rows", err); /* 1 + place */
    r->digest = ds_calloc(r->compared * r->n_cells, sizeof *r->digest, "runs", err);
    int rc = place && r->digest ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < r->n_cells; i++)
        place[r->cell[i]] = (uint32_t)i + 1;
    for (uint32_t k = 0; rc == 0 && k < r->compared; k++)
        rc = read_run(a, t, r->run[k].first, place, r->digest + k * r->n_cells, err);
    free(place);
    return rc;
}

/* Different digests of one cell, and the trials that have the most frequent one. */
static uint32_t count_values(const struct runs *r, size_t cell, uint32_t *agree)
{
    uint32_t values = 0;
    *agree = 0;
    for (uint32_t k = 0; k < r->compared; k++) {
        uint64_t mine = r->digest[k * r->n_cells + cell];
        uint32_t trials = r->run[k].trials, old = mine == 0;
        for (uint32_t j = 0; j < k && !old; j++)
            old = r->digest[j * r->n_cells + cell] == mine;
        if (old)
            continue;
        for (uint32_t j = k + 1; j < r->compared; j++)
            trials += r->digest[j * r->n_cells + cell] == mine ? r->run[j].trials : 0;
        values++;
        *agree = trials > *agree ? trials : *agree;
    }
    return values;
}

static void count_place(struct ds_census_arm *c, uint32_t site)
{
    uint32_t k = 0;
    while (k < c->n_places && c->places[k].site != site)
        k++;
    if (k == c->n_places && k < DS_CENSUS_PLACES)
        c->places[c->n_places++] = (struct ds_census_place){site, 0};
    if (k < DS_CENSUS_PLACES)
        c->places[k].pairs++;
    else
        c->elsewhere++;
}

static uint32_t repeat_of(const struct ds_analysis *a, const struct arm_table *t, uint32_t trial)
{
    return a->src->info(a->src->ctx, t->trials[trial])->repeat;
}

static void compare_pairs(const struct ds_analysis *a, const struct arm_table *t,
                          const struct runs *r, struct ds_census_arm *c)
{
    c->of_pairs = (uint64_t)r->n * (r->n - 1) / 2;
    c->unseen = c->of_pairs - (uint64_t)r->compared * (r->compared - 1) / 2;
    for (uint32_t x = 0; x < r->compared; x++)
        for (uint32_t y = x + 1; y < r->compared; y++) {
            const uint64_t *dx = r->digest + x * r->n_cells, *dy = r->digest + y * r->n_cells;
            int tell = c->n_pairs < DS_CENSUS_PAIRS;
            size_t first = r->n_cells;
            uint64_t digests = 0;
            for (size_t i = 0; i < r->n_cells && (tell || first == r->n_cells); i++) {
                if (dx[i] == dy[i] || !dx[i] || !dy[i])
                    continue;
                first = digests++ ? first : i;
            }
            if (first == r->n_cells) { /* they differ in which rows there are, and in no digest */
                c->elsewhere++;
                continue;
            }
            uint32_t site = (uint32_t)(r->cell[first] / a->n_rows);
            const struct ds_row *row = arm_row(t, r->cell[first] % a->n_rows);
            count_place(c, site);
            if (tell)
                c->pairs[c->n_pairs++] = (struct ds_census_pair){repeat_of(a, t, r->run[x].first),
                                                                 repeat_of(a, t, r->run[y].first),
                                                                 site,
                                                                 row->request,
                                                                 row->position,
                                                                 row->step,
                                                                 digests};
        }
}

/* The trial that its process ran first, before all others of the arm, disagrees, and the others
 * (three or more) are one run: what warmed up. */
static int is_warm_up(const struct ds_analysis *a, const struct arm_table *t, const struct runs *r)
{
    if (r->n != 2 || t->n_trials < 4 || r->run[0].trials != 1 || r->run[0].first != 0)
        return 0;
    const struct ds_trial *first = a->src->info(a->src->ctx, t->trials[0]);
    for (size_t i = 0; i < a->src->n_trials; i++) {
        const struct ds_trial *x = a->src->info(a->src->ctx, i);
        /* Of two records one has the even arms: its processes are not the other one's. */
        if (a->options.only_factor && x->arm % 2 != first->arm % 2)
            continue;
        if (x != first && x->worker == first->worker && x->start_s < first->start_s)
            return 0;
    }
    return 1;
}

static int count_arm(struct ds_analysis *a, uint32_t arm, uint8_t *labels, struct ds_census_arm *c,
                     struct ds_error *err)
{
    const struct arm_table *t = &a->arms[arm];
    struct runs r = {0};
    *c = (struct ds_census_arm){.arm = arm,
                                .trials = t->n_trials,
                                .disagree = t->disagree,
                                .rows = t->repeated_cells,
                                .unstable = t->unstable_cells,
                                .excluded = t->disagree ? 1 : ds_flake_excluded(t->n_trials),
                                .most = 1,
                                .counted = 1};
    ds_wilson(t->disagree, t->n_trials, &c->low, &c->high);
    int rc = find_runs(t, &r, err);
    for (uint32_t k = 0; rc == 0 && k < r.n; k++)
        c->modal = r.run[k].trials > c->modal ? r.run[k].trials : c->modal;
    c->distinct = r.n;
    if (rc == 0 && t->unstable_cells) {
        label_pair(a, arm, arm, labels);
        first_drift(a, arm, arm, labels, -1, &c->first);
        rc = list_cells(a, t, &r, err) != 0 || read_runs(a, t, &r, err) != 0 ? -1 : 0;
    }
    for (size_t i = 0; rc == 0 && i < r.n_cells; i++) {
        uint32_t agree, values = count_values(&r, i, &agree);
        const struct ds_row_key *key = &a->keys[r.cell[i] % a->n_rows];
        c->most = values > c->most ? values : c->most;
        if (c->first.found && r.cell[i] / a->n_rows == c->first.site &&
            key->request == c->first.request && key->position == c->first.position &&
            key->occurrence == c->first.occurrence) {
            c->agree = agree;
            c->values = values;
        }
    }
    if (rc == 0 && r.n_cells) {
        c->counted = r.compared == r.n;
        compare_pairs(a, t, &r, c);
        c->first_trial = is_warm_up(a, t, &r);
        census_pattern(a, t, arm, c);
    }
    free(r.run);
    free(r.cell);
    free(r.digest);
    return rc;
}

/* Whether the rate that was asked for is excluded in every arm, or its trials disagree. A record of two has
 * no options of its own: each side was asked by its own run. */
static void hold_against_rate(const struct ds_analysis *a, struct ds_census *c)
{
    long asked = 0;
    for (size_t i = 0; i < a->h->n_options; i++)
        if (strcmp(a->h->options[i].name, "until_stable") == 0)
            asked = strtol(a->h->options[i].value, NULL, 10);
    if (asked < 2 || asked >= 1000000)
        return;
    c->asked = (double)asked / 1e6;
    c->asked_trials = ds_flake_trials(c->asked);
    for (uint32_t arm = 0; arm < a->h->n_arms; arm++)
        c->arms_short += a->arms[arm].disagree == 0 && a->arms[arm].n_trials < c->asked_trials;
}

int take_census(struct ds_analysis *a, uint8_t *labels, struct ds_verdict *v, struct ds_error *err)
{
    struct ds_census *c = v->census = ds_calloc(1, sizeof *c, "census", err);
    if (!c || !(c->arms = ds_calloc(a->h->n_arms, sizeof *c->arms, "census", err)))
        return -1;
    for (uint32_t arm = 0; arm < a->h->n_arms; arm++) {
        if (a->arms[arm].n_trials < 2)
            continue;
        if (count_arm(a, arm, labels, &c->arms[c->n_arms], err) != 0)
            return -1;
        c->n_arms++;
    }
    hold_against_rate(a, c);
    return v->stable ? 0 : census_thresholds(a, labels, c, err);
}
