/* census_threshold.c: from which size of a call on, or up to which, does a kernel disagree with
 * itself? Every row whose inputs were equal in all trials of its arm is evidence, in natural trials and in
 * heal trials, at the stages where the kernel does, in arms that share everything but what changes the
 * number of rows. Each trial beyond the first is a chance to disagree, each heal trial another. Sizes
 * without a disagreement count as stable together, from the nearest one on, as soon as they had chances
 * enough at the rate of those that have some; arms whose agreement may be luck say nothing. */
#include "dumps/census.h"

#include "dumps/verdict_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Disagreements that sizes should have shown, at the rate of the sizes that show it, to count as stable. */
#define ENOUGH_EXPECTED 5.0
/* Rows that disagree, below which their rate is not known. */
enum { ENOUGH_UNSTABLE = 3 };

struct sample { /* of one kernel in one setting at one size */
    uint16_t kernel;
    uint32_t group, size;
    uint8_t length; /* the size is of visible tokens, not of rows */
    /* Rows; and launches, each counted once: what goes wrong may go wrong in all rows of a launch at
     * once, which is then one event, or in single rows. */
    uint64_t judged, unstable, launches, unstable_launches;
    uint64_t chances, launch_chances; /* of all judged rows, of all launches */
};

struct samples {
    struct sample *x;
    size_t n, cap, tidy_at;
};

static int sample_cmp(const void *pa, const void *pb)
{
    const struct sample *a = pa, *b = pb;
    if (a->kernel != b->kernel)
        return a->kernel < b->kernel ? -1 : 1;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->length != b->length)
        return a->length < b->length ? -1 : 1;
    return (a->size > b->size) - (a->size < b->size);
}

static void merge_into(struct sample *s, const struct sample *x)
{
    s->judged += x->judged;
    s->unstable += x->unstable;
    s->launches += x->launches;
    s->unstable_launches += x->unstable_launches;
    s->chances += x->chances;
    s->launch_chances += x->launch_chances;
}

static void tidy(struct samples *s)
{
    size_t n = 0;
    if (s->n)
        qsort(s->x, s->n, sizeof *s->x, sample_cmp);
    for (size_t i = 0; i < s->n; i++) {
        if (n && sample_cmp(&s->x[n - 1], &s->x[i]) == 0) {
            merge_into(&s->x[n - 1], &s->x[i]);
        } else {
            s->x[n++] = s->x[i];
        }
    }
    s->n = n;
    s->tidy_at = n * 2 + 65536;
}

static int add_sample(struct samples *s, struct sample x, struct ds_error *err)
{
    if (s->n && sample_cmp(&s->x[s->n - 1], &x) == 0) {
        merge_into(&s->x[s->n - 1], &x);
        return 0;
    }
    if (s->n && s->n >= s->tidy_at)
        tidy(s);
    if (ds_grow(&s->x, &s->cap, s->n + 1, sizeof *s->x, "repeats by size", err) != 0)
        return -1;
    s->x[s->n++] = x;
    return 0;
}

/* Factors that change which rows are in a call, and nothing else that a kernel sees. */
static int changes_rows(const char *factor)
{
    static const char *const names[] = {"batch", "slot", "neighbours", "padding", "chunk", "mode"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(factor, names[i]) == 0)
            return 1;
    return 0;
}

/* The first arm that agrees with this one in all other factors. */
static uint32_t group_of(const struct ds_analysis *a, uint32_t arm)
{
    size_t nf = a->h->n_factors;
    for (uint32_t j = 0; j < arm; j++) {
        size_t f = 0;
        while (f < nf &&
               (changes_rows(a->h->factors[f]) || a->value[j * nf + f] == a->value[arm * nf + f]))
            f++;
        if (f == nf)
            return j;
    }
    return arm;
}

static int reads_earlier_rows(const struct ds_analysis *a, size_t site)
{
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++)
        if (a->in_kind[e] == DS_EDGE_CAUSAL)
            return 1;
    return 0;
}

/* Labels of some trials of an arm, as evidence: each judged row had so many chances to disagree. */
struct shown {
    const struct arm_table *t;
    const uint8_t *labels;
    const uint8_t *seen;     /* [n_families] unstable anywhere */
    const uint8_t *excluded; /* of the arm */
    int disagrees;           /* the label of a row that does */
    uint32_t group, chances;
};

/* Whether the cell is evidence. */
static int counts(const struct ds_analysis *a, const struct shown *x, size_t cell)
{
    const size_t site = cell / a->n_rows;
    const uint8_t label = x->labels[cell];
    if (!(label & LABEL_JUDGED) || !x->seen[family(a, x->t, site, cell)])
        return 0;
    const uint8_t why = x->excluded[family(a, x->t, site, cell)];
    return (label & LABEL_MASK) == x->disagrees || (why != EXCLUDED_LUCK && why != EXCLUDED_ABSENT);
}

static int sample_cells(const struct ds_analysis *a, const struct shown *from, struct samples *s,
                        struct ds_error *err)
{
    const struct arm_table *t = from->t;
    struct {
        size_t site;
        uint32_t capture;
        int unstable;
    } last = {SIZE_MAX, 0, 0}; /* the launch of the row before */
    for (size_t cell = 0; cell < a->cells; cell++) {
        if (!counts(a, from, cell))
            continue;
        const size_t site = cell / a->n_rows, row = cell % a->n_rows;
        const int unstable = (from->labels[cell] & LABEL_MASK) == from->disagrees,
                  again = last.site == site && last.capture == t->capture[cell];
        struct sample x = {.kernel = t->kernel[cell],
                           .group = from->group,
                           .size = capture_m(t, row, t->capture[cell]),
                           .judged = 1,
                           .unstable = (uint64_t)unstable,
                           .launches = !again,
                           .unstable_launches = unstable && !(again && last.unstable),
                           .chances = from->chances,
                           .launch_chances = again ? 0 : from->chances};
        last.unstable = unstable || (again && last.unstable);
        last.site = site;
        last.capture = t->capture[cell];
        if (add_sample(s, x, err) != 0)
            return -1;
        const struct ds_row *r = arm_row(t, row);
        if (!reads_earlier_rows(a, site) || r->kind == DS_ROW_PAD || r->kv_len <= 0)
            continue;
        x.length = 1; /* every row of a launch has its own: each counts */
        x.launches = 1;
        x.unstable_launches = (uint64_t)unstable;
        x.launch_chances = from->chances;
        x.size = (uint32_t)r->kv_len;
        if (add_sample(s, x, err) != 0)
            return -1;
    }
    return 0;
}

/* An arm's natural trials against each other; heal trials against the rows that they were healed to where
 * those are the arm's own, else against each other. */
static int sample_arm(struct ds_analysis *a, uint32_t arm, uint8_t *labels, const uint8_t *seen,
                      struct samples *s, struct ds_error *err)
{
    struct shown x = {.t = &a->arms[arm],
                      .labels = labels,
                      .seen = seen,
                      .excluded = a->arms[arm].excluded,
                      .disagrees = DS_LABEL_ORIGIN,
                      .group = group_of(a, arm),
                      .chances = a->arms[arm].n_trials - 1};
    label_pair(a, arm, arm, labels);
    int rc = sample_cells(a, &x, s, err);
    for (size_t i = 0; rc == 0 && i < a->n_healed; i++) {
        const struct heal_table *h = &a->healed[i];
        const int own = h->ref == arm;
        if (h->arm != arm || (!own && h->t.n_trials < 2))
            continue;
        if (own)
            label_unstable(a, h, labels);
        else
            label_healed(a, h, labels);
        x.t = &h->t;
        x.disagrees = own ? DS_LABEL_ORIGIN : DS_LABEL_UNSTABLE;
        x.chances = h->t.n_trials - !own;
        rc = sample_cells(a, &x, s, err);
    }
    return rc;
}

static void say_setting(const struct ds_analysis *a, uint32_t arm, char *out, size_t size)
{
    size_t nf = a->h->n_factors, at = 0;
    out[0] = '\0';
    for (size_t f = 0; f < nf; f++) {
        if (changes_rows(a->h->factors[f]) || a->value[arm * nf + f] == a->value[f])
            continue;
        int n = snprintf(out + at, size - at, "%s%s %s", at ? ", " : "", a->h->factors[f],
                         a->h->arms[arm].values[f]);
        at = n < 0 || (size_t)n >= size - at ? size - 1 : at + (size_t)n;
    }
}

/* How often one chance becomes a disagreement, where `unstable` of `judged` things with `chances` in all
 * show one: one more that shows none is thought of, so that the rate stays below 1. */
static double rate(uint64_t unstable, uint64_t judged, uint64_t chances)
{
    double share = (double)unstable / ((double)judged + 1);
    return 1 - pow(1 - share, (double)judged / (double)chances);
}

struct rates {
    double rows, launches;
};

static double expected(const struct rates *z, const struct sample *x)
{
    double rows = z->rows * (double)x->chances, calls = z->launches * (double)x->launch_chances;
    return rows < calls ? rows : calls;
}

/* Index of the size at which those from `from` on, in steps of `step`, are stable together; n: they are
 * not known to be. */
static size_t stable_from(const struct sample *x, size_t n, size_t from, int step,
                          const struct rates *z)
{
    double sum = 0;
    for (size_t i = from; i < n && !x[i].unstable; i += (size_t)step) { /* below 0: past n */
        sum += expected(z, &x[i]);
        if (sum >= ENOUGH_EXPECTED)
            return i;
    }
    return n;
}

/* One kernel, setting and measure: sizes ascending. A threshold is claimed only where all sizes on
 * one side are unstable and all known ones on the other are stable. */
static int judge(const struct ds_analysis *a, const struct sample *x, size_t n,
                 struct ds_census_threshold *out)
{
    struct sample all = {0};
    size_t lowest = n, highest = 0;
    for (size_t i = 0; i < n; i++) {
        if (!x[i].unstable)
            continue;
        merge_into(&all, &x[i]);
        lowest = lowest == n ? i : lowest;
        highest = i;
    }
    if (all.unstable < ENOUGH_UNSTABLE)
        return 0;
    const struct rates z = {rate(all.unstable, all.judged, all.chances),
                            rate(all.unstable_launches, all.launches, all.launch_chances)};
    for (size_t i = lowest; i < highest; i++)
        if (!x[i].unstable && stable_from(x, n, i, 1, &z) < n)
            return 0;
    const size_t below = lowest ? stable_from(x, n, lowest - 1, -1, &z) : n,
                 above = stable_from(x, n, highest + 1, 1, &z);
    if ((below < n) == (above < n))
        return 0;
    *out = (struct ds_census_threshold){.op = a->kernels[x->kernel].op,
                                        .variant = a->kernels[x->kernel].variant,
                                        .measure = x->length ? "length" : "rows",
                                        .edge = below < n ? DS_CENSUS_FROM : DS_CENSUS_UP_TO,
                                        .at = x[below < n ? lowest : highest].size,
                                        .stable = x[below < n ? below : above].size};
    say_setting(a, x->group, out->setting, sizeof out->setting);
    return 1;
}

/* Kernels at stages where some arm shows that they disagree with themselves. */
static uint8_t *unstable_families(const struct ds_analysis *a, struct ds_error *err)
{
    uint8_t *seen = ds_calloc(a->n_families, 1, "kernels", err);
    for (uint32_t arm = 0; seen && arm < a->h->n_arms; arm++)
        for (size_t k = 0; a->arms[arm].n_trials && k < a->n_families; k++)
            seen[k] |=
                a->arms[arm].excluded[k] == EXCLUDED_SEEN && a->kernel_unstable[k / a->n_stages];
    return seen;
}

int census_thresholds(struct ds_analysis *a, uint8_t *labels, struct ds_census *c,
                      struct ds_error *err)
{
    struct samples s = {.tidy_at = 65536};
    uint8_t *seen = unstable_families(a, err);
    int rc = seen ? 0 : -1;
    size_t cap = 0;
    for (uint32_t arm = 0; rc == 0 && arm < a->h->n_arms; arm++)
        if (a->arms[arm].n_trials >= 2)
            rc = sample_arm(a, arm, labels, seen, &s, err);
    tidy(&s);
    for (size_t i = 0, j; rc == 0 && i < s.n; i = j) {
        struct ds_census_threshold t;
        for (j = i + 1; j < s.n && s.x[j].kernel == s.x[i].kernel && s.x[j].group == s.x[i].group &&
                        s.x[j].length == s.x[i].length;)
            j++;
        if (!judge(a, &s.x[i], j - i, &t))
            continue;
        rc = ds_grow(&c->thresholds, &cap, c->n_thresholds + 1, sizeof t, "thresholds", err);
        if (rc == 0)
            c->thresholds[c->n_thresholds++] = t;
    }
    free(seen);
    free(s.x);
    return rc;
}
