/* census_threshold.c: from which size of a call on, or up to which, does a kernel disagree with
 * itself? Every row whose inputs were equal in all trials of its arm is evidence, in arms that share
 * everything but what changes the number of rows. A size at which few rows were judged, or only in
 * arms whose agreement may be luck, counts as unknown. */
#include "dumps/census.h"

#include "dumps/verdict_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Disagreements that a size should have shown, at the rate of the sizes that show it, to count as
 * stable. */
#define ENOUGH_EXPECTED 5.0

struct sample { /* of one kernel in one setting at one size */
    uint16_t kernel;
    uint32_t group, size;
    uint8_t length; /* the size is of visible tokens, not of rows */
    /* Rows; and launches, each counted once: what goes wrong may go wrong in all rows of a launch at
     * once, which is then one event, or in single rows. */
    uint64_t judged, unstable, launches, unstable_launches;
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

static int sample_arm(struct ds_analysis *a, uint32_t arm, uint8_t *labels, struct samples *s,
                      struct ds_error *err)
{
    const struct arm_table *t = &a->arms[arm];
    uint32_t group = group_of(a, arm);
    struct {
        size_t site;
        uint32_t capture;
        int unstable;
    } last = {SIZE_MAX, 0, 0}; /* the launch of the row before */
    label_pair(a, arm, arm, labels);
    for (size_t cell = 0; cell < a->cells; cell++) {
        uint8_t label = labels[cell] & LABEL_MASK;
        if (!(labels[cell] & LABEL_JUDGED) || !a->kernel_unstable[t->kernel[cell]])
            continue;
        size_t site = cell / a->n_rows, row = cell % a->n_rows;
        uint8_t why = t->excluded[family(a, t, site, cell)];
        if (label != DS_LABEL_ORIGIN && (why == EXCLUDED_LUCK || why == EXCLUDED_ABSENT))
            continue;
        const int unstable = label == DS_LABEL_ORIGIN,
                  again = last.site == site && last.capture == t->capture[cell];
        struct sample x = {.kernel = t->kernel[cell],
                           .group = group,
                           .size = capture_m(t, row, t->capture[cell]),
                           .judged = 1,
                           .unstable = (uint64_t)unstable,
                           .launches = !again,
                           .unstable_launches = unstable && !(again && last.unstable)};
        last.unstable = unstable || (again && last.unstable);
        last.site = site;
        last.capture = t->capture[cell];
        if (add_sample(s, x, err) != 0)
            return -1;
        if (!reads_earlier_rows(a, site) || a->keys[row].position < 0)
            continue;
        x.length = 1; /* every row of a launch has its own: each counts */
        x.launches = 1;
        x.unstable_launches = (uint64_t)unstable;
        x.size = (uint32_t)a->keys[row].position + 1;
        if (add_sample(s, x, err) != 0)
            return -1;
    }
    return 0;
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

/* One kernel, setting and measure: sizes ascending. A threshold is claimed only where all sizes on
 * one side are unstable and all known ones on the other are stable. */
static int judge(const struct ds_analysis *a, const struct sample *x, size_t n,
                 struct ds_census_threshold *out)
{
    uint64_t judged = 0, unstable = 0, launches = 0, unstable_launches = 0;
    uint32_t lowest = UINT32_MAX, highest = 0, below = 0, above = 0, between = 0;
    for (size_t i = 0; i < n; i++) {
        judged += x[i].unstable ? x[i].judged : 0;
        unstable += x[i].unstable;
        launches += x[i].unstable ? x[i].launches : 0;
        unstable_launches += x[i].unstable_launches;
        if (!x[i].unstable)
            continue;
        lowest = x[i].size < lowest ? x[i].size : lowest;
        highest = x[i].size;
    }
    if (!unstable)
        return 0;
    for (size_t i = 0; i < n; i++) {
        double rows = (double)unstable / (double)judged * (double)x[i].judged,
               calls = (double)unstable_launches / (double)launches * (double)x[i].launches,
               expected = rows < calls ? rows : calls;
        if (x[i].unstable || !(expected >= ENOUGH_EXPECTED))
            continue;
        if (x[i].size < lowest)
            below = x[i].size;
        else if (x[i].size > highest)
            above = above ? above : x[i].size;
        else
            between = 1;
    }
    if (between || (below && above) || (!below && !above))
        return 0;
    *out = (struct ds_census_threshold){.op = a->kernels[x->kernel].op,
                                        .variant = a->kernels[x->kernel].variant,
                                        .measure = x->length ? "length" : "rows",
                                        .edge = below ? DS_CENSUS_FROM : DS_CENSUS_UP_TO,
                                        .at = below ? lowest : highest,
                                        .stable = below ? below : above};
    say_setting(a, x->group, out->setting, sizeof out->setting);
    return 1;
}

int census_thresholds(struct ds_analysis *a, uint8_t *labels, struct ds_census *c,
                      struct ds_error *err)
{
    struct samples s = {.tidy_at = 65536};
    int rc = 0;
    size_t cap = 0;
    for (uint32_t arm = 0; rc == 0 && arm < a->h->n_arms; arm++)
        if (a->arms[arm].n_trials >= 2)
            rc = sample_arm(a, arm, labels, &s, err);
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
    free(s.x);
    return rc;
}
