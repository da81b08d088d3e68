/* diff_history.c: what the process of each trial had done before it. Heal trials and passes without probes
 * are not counted: whether there are any depends on what was found, not on what was asked for. What they
 * leave behind, repeats show. */
#include "dumps/diff_internal.h"
#include "dumps/verdict_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct turn {
    int32_t worker;
    double start_s;
    size_t trial;
};

static int turn_cmp(const void *pa, const void *pb)
{
    const struct turn *a = pa, *b = pb;
    if (a->worker != b->worker)
        return a->worker < b->worker ? -1 : 1;
    if (a->start_s < b->start_s || a->start_s > b->start_s)
        return a->start_s < b->start_s ? -1 : 1;
    return (a->trial > b->trial) - (a->trial < b->trial);
}

/* Of one process: its trials in the order in which they ran. A number that does not grow is another
 * process with the number of an old one: the record was resumed. */
static void count_turns(const struct ds_source *s, const struct turn *turns, size_t n,
                        struct ds_history *out)
{
    uint32_t asides = 0, aside_calls = 0;
    for (size_t k = 0; k < n; k++) {
        const struct ds_trial *t = s->info(s->ctx, turns[k].trial);
        const struct ds_trial *last = k && turns[k - 1].worker == turns[k].worker
                                          ? s->info(s->ctx, turns[k - 1].trial)
                                          : NULL;
        if (!last || last->earlier_trials >= t->earlier_trials) {
            asides = aside_calls = 0;
        } else if (last->pass == DS_PASS_HEAL || last->pass == DS_PASS_BARE) {
            asides++;
            aside_calls +=
                t->earlier_calls > last->earlier_calls ? t->earlier_calls - last->earlier_calls : 0;
        }
        out[turns[k].trial] = (struct ds_history){
            t->earlier_trials > asides ? t->earlier_trials - asides : 0,
            t->earlier_calls > aside_calls ? t->earlier_calls - aside_calls : 0};
    }
}

int diff_histories(const struct ds_source *s, struct ds_history **out, struct ds_error *err)
{
    struct turn *turns = ds_calloc(s->n_trials, sizeof *turns, "trials", err);
    *out = ds_calloc(s->n_trials, sizeof **out, "trials", err);
    if (turns && *out) {
        for (size_t i = 0; i < s->n_trials; i++) {
            const struct ds_trial *t = s->info(s->ctx, i);
            turns[i] = (struct turn){t->worker, t->start_s, i};
        }
        if (s->n_trials)
            qsort(turns, s->n_trials, sizeof *turns, turn_cmp);
        count_turns(s, turns, s->n_trials, *out);
    }
    int rc = turns && *out ? 0 : -1;
    free(turns);
    return rc;
}

static void say(const struct ds_history *h, char *text, size_t size)
{
    snprintf(text, size, "after %u trial%s, %u call%s", h->trials, h->trials == 1 ? "" : "s",
             h->calls, h->calls == 1 ? "" : "s");
}

int diff_note_histories(struct ds_diff *d, struct ds_error *err)
{
    char name[200], a[64], b[64];
    for (uint32_t p = 0; p < d->pairs; p++) {
        if (ds_analysis_histories(d->analysis, 2 * p, 2 * p + 1) != DS_HISTORY_HARMLESS)
            continue;
        const struct arm_table *x = &d->analysis->arms[2 * p], *y = x + 1;
        ds_analysis_arm_name(d->analysis, 2 * p, name, sizeof name);
        say(&d->histories[x->trials[0]], a, sizeof a);
        say(&d->histories[y->trials[0]], b, sizeof b);
        if (diff_add(d, DS_DIFF_HISTORY, name, a, b, err) != 0)
            return -1;
    }
    return 0;
}
