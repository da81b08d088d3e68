/* validity_trials.c: what is to be said of trials and of what they were fed: probes that change the answer,
 * a warm-up, unlike histories, a fixture that could not show a fault. */
#include "dumps/validity_internal.h"

#include "dumps/census.h"

#include <string.h>

static int judge_probes(struct validity_work *w, const struct ds_verdict *v, struct ds_error *err)
{
    if (v->disturbs != 1)
        return 0;
    struct ds_validity_item *x = validity_add(
        w, DS_VALIDITY_DISTURBED, err, "%s: the final digests are others without probes",
        v->disturber == DS_DISTURBS_DUMP     ? "dumping rows changes the answer, digests "
                                               "alone do not"
        : v->disturber == DS_DISTURBS_DIGEST ? "taking digests changes the answer"
                                             : "taking digests or dumping changes the "
                                               "answer");
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

/* Trials that ran earlier in the process of this one. In a joined source arms of A are even, of B
 * odd, and the numbers of their processes mean nothing to each other. */
static size_t trials_before(const struct ds_analysis *a, const struct ds_trial *t)
{
    size_t n = 0;
    for (size_t i = 0; i < a->src->n_trials; i++) {
        const struct ds_trial *x = a->src->info(a->src->ctx, i);
        n += x->worker == t->worker && x->start_s < t->start_s && x->arm % 2 == t->arm % 2;
    }
    return n;
}

/* Of two records only: in a sweep one arm runs after the other, and repeats tell whether that
 * matters. */
static int judge_histories(struct validity_work *w, const struct ds_verdict *v,
                           struct ds_error *err)
{
    const struct ds_finding *f = &v->first;
    if (!w->a->options.only_factor || !f->found || f->arm == f->ref_arm)
        return 0;
    size_t mine = trials_before(w->a, &w->a->arms[f->arm].rep->info),
           theirs = trials_before(w->a, &w->a->arms[f->ref_arm].rep->info);
    if (mine == theirs)
        return 0;
    struct ds_validity_item *x = validity_add(
        w, DS_VALIDITY_HISTORY, err,
        "the two trials have unlike histories: %zu trials ran before in one process, %zu "
        "in the other",
        theirs, mine);
    if (x)
        x->arm = f->arm;
    return x ? 0 : -1;
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
