/* validity_trials.c: what is to be said of trials and of what they were fed: probes that change the answer,
 * a warm-up, unlike histories, a fixture that could not show a fault. */
#include "dumps/validity_internal.h"

#include "dumps/census.h"

#include <stdio.h>
#include <string.h>

static int judge_probes(struct validity_work *w, const struct ds_verdict *v, struct ds_error *err)
{
    if (v->disturbs != 1)
        return 0;
    struct ds_validity_item *x = validity_add(
        w, DS_VALIDITY_DISTURBED, err, "%s: the final digests are others without probes",
        v->disturber == DS_DISTURBS_DUMP     ? "the dump changes the answer, digests alone do not"
        : v->disturber == DS_DISTURBS_DIGEST ? "digests change the answer"
                                             : "digests or the dump change the answer");
    if (x)
        x->proves_nothing = 1;
    return x ? 0 : -1;
}

static int judge_warm_up(struct validity_work *w, const struct ds_verdict *v, struct ds_error *err)
{
    for (size_t i = 0; v->census && i < v->census->n_arms; i++) {
        if (!v->census->arms[i].first_trial)
            continue;
        struct ds_validity_item *x = validity_add(
            w, DS_VALIDITY_WARM_UP, err,
            "arm %u: only the first trial that its process ran is unlike the others: a "
            "warm-up was captured",
            v->census->arms[i].arm);
        if (!x)
            return -1;
        x->arm = v->census->arms[i].arm;
        return 0;
    }
    return 0;
}

static const struct ds_history *history_of(const struct ds_analysis *a, const struct arm_table *t,
                                           uint32_t k)
{
    return &a->options.history[t->trials[k]];
}

/* 1: trials with unlike histories agree, so what ran before changes nothing there. */
static int repeats_show(const struct ds_analysis *a, const struct arm_table *t)
{
    int unlike = 0;
    for (uint32_t k = 1; k < t->n_trials; k++) {
        if (t->hash[k][DS_VERDICT_ALL] != t->hash[0][DS_VERDICT_ALL])
            return 0;
        unlike |= history_of(a, t, k)->trials != history_of(a, t, 0)->trials;
    }
    return unlike;
}

int ds_analysis_histories(const struct ds_analysis *a, uint32_t x, uint32_t y)
{
    const struct arm_table *t = &a->arms[x], *r = &a->arms[y];
    int same_trials = 0;
    if (!a->options.history || !t->n_trials || !r->n_trials)
        return DS_HISTORY_ALIKE;
    for (uint32_t i = 0; i < t->n_trials; i++)
        for (uint32_t k = 0; k < r->n_trials && k < 64; k++) {
            const struct ds_history *p = history_of(a, t, i), *q = history_of(a, r, k);
            if (p->trials == q->trials && p->calls == q->calls)
                return DS_HISTORY_ALIKE;
            same_trials |= p->trials == q->trials;
        }
    return same_trials || (repeats_show(a, t) && repeats_show(a, r)) ? DS_HISTORY_HARMLESS
                                                                     : DS_HISTORY_UNLIKE;
}

void ds_analysis_arm_name(const struct ds_analysis *a, uint32_t arm, char *text, size_t size)
{
    const struct ds_header *h = a->h;
    size_t at = 0;
    snprintf(text, size, "the only arm");
    for (int all = 0; all < 2 && at == 0; all++)
        for (size_t f = 0; f + 1 < h->n_factors && at < size; f++) /* the last one is the record */
            if (all || strcmp(h->arms[arm].values[f], h->arms[arm % 2].values[f]) != 0)
                at += (size_t)snprintf(text + at, size - at, "%s%s %s", at ? ", " : "",
                                       h->factors[f], h->arms[arm].values[f]);
}

/* Of two records only: in a sweep one arm runs after the other, and repeats tell whether that
 * matters. Said of the pair of the first drift, else of the first pair. */
static int judge_histories(struct validity_work *w, const struct ds_verdict *v,
                           struct ds_error *err)
{
    const struct ds_analysis *a = w->a;
    uint32_t unlike = 0, pairs = 0, arm = 0;
    for (uint32_t p = 0; a->options.history && p + 1 < a->h->n_arms; p += 2) {
        pairs++;
        if (ds_analysis_histories(a, p, p + 1) != DS_HISTORY_UNLIKE)
            continue;
        if (unlike++ == 0 || (v->first.found && v->first.arm / 2 == p / 2))
            arm = p;
    }
    if (!unlike)
        return 0;
    char name[96], some[48] = "";
    const struct ds_history *x = history_of(a, &a->arms[arm], 0),
                            *y = history_of(a, &a->arms[arm + 1], 0);
    ds_analysis_arm_name(a, arm, name, sizeof name);
    if (pairs > 1)
        snprintf(some, sizeof some, " in %u of %u pairs of arms", unlike, pairs);
    struct ds_validity_item *item =
        validity_add(w, DS_VALIDITY_HISTORY, err,
                     "unlike histories%s: %s ran after %u other trial%s in A's process and %u in "
                     "B's; no repeats show that it does not matter",
                     some, name, x->trials, x->trials == 1 ? "" : "s", y->trials);
    if (item)
        item->arm = arm + 1;
    return item ? 0 : -1;
}

/* What the run found before its first trial, one mutation to a line. */
static int judge_fixture(struct validity_work *w, struct ds_error *err)
{
    const struct ds_header *h = w->a->h;
    for (size_t i = 0; i < h->n_options; i++) {
        if (strcmp(h->options[i].name, "inert") != 0)
            continue;
        for (const char *p = h->options[i].value; *p;) {
            size_t n = strcspn(p, "\n");
            if (n && !validity_add(w, DS_VALIDITY_INERT, err, "the fixture is inert under %.*s",
                                   (int)(n < 150 ? n : 150), p))
                return -1;
            p += n + (p[n] == '\n');
        }
    }
    return 0;
}

int validity_judge_trials(struct validity_work *w, const struct ds_verdict *v, struct ds_error *err)
{
    return judge_probes(w, v, err) != 0 || judge_warm_up(w, v, err) != 0 ||
                   judge_histories(w, v, err) != 0 || judge_fixture(w, err) != 0
               ? -1
               : 0;
}
