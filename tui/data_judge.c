/* data_judge.c: what is made of the records: sources of sound trials, analyses, verdicts; and how much memory that
 * takes. Runs in the worker's thread.
 *
 * A trial is read when it is asked for, and let go of when others need the room: its digests first, which the
 * verdict reads once, in full later. What a verdict points into (the first trials of arms: launches, names) is
 * pinned and stays. */
#include "tui/data_internal.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LATEST = 4
}; /* trials that are never let go of: more than any question looks at side by side */

/* ---- memory ---------------------------------------------------------------------------------- */

/* A third for trials, two for the verdict's tables. */
static uint64_t room_for_trials(const struct tui_data *d)
{
    return d->hold / 3;
}

static uint64_t room_for_tables(const struct tui_data *d)
{
    return d->hold - room_for_trials(d);
}

/* The trial used longest ago, of those that were used before `before` and that forgetting in this way would
 * make smaller. */
static size_t oldest(const struct book_side *s, uint64_t before, int pinned_too)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < s->n_trials; i++)
        if (s->used[i] && s->used[i] < before && (pinned_too || !s->pinned[i]) &&
            (best == SIZE_MAX || s->used[i] < s->used[best]))
            best = i;
    return best;
}

static void forget(struct book_side *s, size_t trial, int what)
{
    ds_record_forget(s->record, trial, what);
    if (what == DS_FORGET_ALL)
        s->used[trial] = 0;
}

static void make_room(struct book_side *s)
{
    const uint64_t room = room_for_trials(s->data);
    for (size_t i = 0; i < s->n_trials && ds_record_loaded(s->record) > room; i++)
        if (s->used[i] && s->used[i] < s->clock)
            forget(s, i, DS_FORGET_DIGESTS);
    size_t i;
    while (ds_record_loaded(s->record) > room && s->clock > LATEST &&
           (i = oldest(s, s->clock - LATEST, 0)) != SIZE_MAX)
        forget(s, i, DS_FORGET_ALL);
}

void side_let_go(struct book_side *s)
{
    for (size_t i = 0; i < s->n_trials; i++)
        if (s->used[i])
            forget(s, i, s->pinned[i] ? DS_FORGET_DIGESTS : DS_FORGET_ALL);
}

const struct ds_trial_data *side_load(struct book_side *s, size_t trial, int keep,
                                      struct ds_error *err)
{
    const uint64_t bytes = ds_record_trial_bytes(s->record, trial);
    char words[DS_BYTES_WORDS];
    if (!keep)
        make_room(s);
    if (!s->used[trial] && bytes > s->data->hold / 2) {
        ds_fail(err, "trial %zu takes %s of memory", trial, ds_bytes_words(bytes, words));
        return NULL;
    }
    const struct ds_trial_data *t = ds_record_load(s->record, trial, err);
    if (!t)
        return NULL;
    s->used[trial] = ++s->clock;
    if (ds_record_loaded(s->record) <= s->data->hold)
        return t;
    ds_fail(err, "trials take more than %s of memory", ds_bytes_words(s->data->hold, words));
    return NULL;
}

/* ---- sources --------------------------------------------------------------------------------- */

static const struct ds_trial *list_info(void *ctx, size_t i)
{
    const struct trial_list *l = ctx;
    return i < l->n ? &l->info[i] : NULL;
}

static const struct ds_trial_data *list_get(void *ctx, size_t i, struct ds_error *err)
{
    const struct trial_list *l = ctx;
    if (data_stopped(l->side->data)) {
        ds_fail(err, "given up");
        return NULL;
    }
    if (i >= l->n) {
        ds_fail(err, "trial %zu of %zu", i, l->n);
        return NULL;
    }
    return side_load(l->side, l->use[i], l->keep, err);
}

static int list_blob(void *ctx, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    const struct trial_list *l = ctx;
    if (data_stopped(l->side->data))
        return ds_fail(err, "given up");
    return ds_record_blob(l->side->record, digest, out, err);
}

static int is_wanted(const struct judged *j, const struct ds_trial *t)
{
    return !j->partial || t->arm == j->arm || t->arm == j->ref;
}

/* The trials that an analysis points into: the first of each arm, and of each pair healed, in order of
 * repeats; and the lost ones. */
static int comes_first(const struct trial_list *l, size_t x, size_t y)
{
    const struct ds_trial *a = &l->info[x], *b = &l->info[y];
    return a->repeat != b->repeat ? a->repeat < b->repeat : x < y;
}

static int speaks_for_pair(const struct trial_list *l, size_t i)
{
    const struct ds_trial *t = &l->info[i];
    for (size_t k = 0; k < l->n; k++) {
        const struct ds_trial *x = &l->info[k];
        if (x->pass == DS_PASS_HEAL && x->arm == t->arm && x->healed_to == t->healed_to &&
            comes_first(l, k, i))
            return 0;
    }
    return 1;
}

static int choose_pins(struct trial_list *l, size_t n_arms, struct ds_error *err)
{
    size_t *first = ds_calloc(n_arms, sizeof *first, "arms", err); /* 1 + number in the list */
    if (!first || !(l->pin = ds_calloc(l->n, 1, "trials", err))) {
        free(first);
        return -1;
    }
    for (size_t i = 0; i < l->n; i++) {
        const struct ds_trial *t = &l->info[i];
        if (t->pass == DS_PASS_NATURAL && (!first[t->arm] || comes_first(l, i, first[t->arm] - 1)))
            first[t->arm] = i + 1;
        l->pin[i] = l->keep || t->pass == DS_PASS_FAILED ||
                    (t->pass == DS_PASS_HEAL && speaks_for_pair(l, i));
    }
    for (size_t arm = 0; arm < n_arms; arm++)
        if (first[arm])
            l->pin[first[arm] - 1] = 1;
    free(first);
    return 0;
}

static void count_pins(struct trial_list *l, int by)
{
    for (size_t i = 0; l->pin && i < l->n; i++)
        if (l->pin[i])
            l->side->pinned[l->use[i]] = (uint16_t)(l->side->pinned[l->use[i]] + by);
}

static void list_free(struct trial_list *l)
{
    count_pins(l, -1);
    free(l->use);
    free(l->info);
    free(l->pin);
    memset(l, 0, sizeof *l);
}

static int list_side(struct judged *j, int k, struct ds_error *err)
{
    struct book_side *s = &j->book->side[k];
    struct trial_list *l = &j->list[k];
    list_free(l);
    *l = (struct trial_list){.side = s, .keep = j->book->n_sides == 2};
    if (!(l->use = ds_calloc(s->n_use, sizeof *l->use, "trials", err)) ||
        !(l->info = ds_calloc(s->n_use, sizeof *l->info, "trials", err)))
        return -1;
    for (size_t i = 0; i < s->n_use; i++) {
        const struct ds_trial *t = ds_record_trial(s->record, s->use[i]);
        if (!is_wanted(j, t))
            continue;
        l->info[l->n] = *t;
        l->use[l->n++] = s->use[i];
    }
    if (choose_pins(l, ds_record_header(s->record)->n_arms, err) != 0)
        return -1;
    count_pins(l, 1);
    j->own_source[k] = (struct ds_source){.header = ds_record_header(s->record),
                                          .n_trials = l->n,
                                          .info = list_info,
                                          .get = list_get,
                                          .ctx = l,
                                          .blob = list_blob};
    return 0;
}

/* ---- judging --------------------------------------------------------------------------------- */

static int diff_blob(void *ctx, int side, uint64_t digest, struct ds_blob *out,
                     struct ds_error *err)
{
    struct judged *j = ctx;
    return list_blob(&j->list[side], digest, out, err);
}

static int judge_two(struct tui_data *d, struct judged *j, struct ds_error *err)
{
    const struct ds_diff_options options = {.blob = diff_blob,
                                            .ctx = j,
                                            .partial = d->take_partial,
                                            .across_models = d->across_models,
                                            .some_arms = j->partial,
                                            .memory = room_for_tables(d),
                                            .stop = data_stopped,
                                            .stop_ctx = d};
    if (ds_diff_make(&j->own_source[0], &j->own_source[1], &options, &j->diff, err) != 0)
        return -1;
    j->has_diff = 1;
    j->analysis = j->diff.analysis;
    j->source = j->diff.joined;
    return 0;
}

static int judge(struct tui_data *d, struct judged *j, struct ds_error *err)
{
    for (int k = 0; k < j->book->n_sides; k++)
        if (list_side(j, k, err) != 0)
            return -1;
    if (j->book->n_sides == 2)
        return judge_two(d, j, err);
    const struct ds_analysis_options options = {
        .memory = room_for_tables(d), .stop = data_stopped, .ctx = d};
    j->source = j->own_source[0];
    return ds_analysis_new(&j->source, &options, &j->analysis, err);
}

static int judged_make(struct tui_data *d, struct judged *j, struct judged **out,
                       struct ds_error *err)
{
    struct ds_error ignored;
    int rc;
    /* A trial is found damaged when it is read: it is left out, and the rest is judged. */
    while ((rc = judge(d, j, err)) != 0 && !atomic_load(&d->stop)) {
        if (book_sift(j->book, &ignored) != 1)
            break;
    }
    if (rc != 0) {
        struct book *b = j->book;
        b->refs++;
        judged_release(j);
        for (int k = 0; k < b->n_sides; k++)
            side_let_go(&b->side[k]);
        book_release(b);
        return -1;
    }
    *out = j;
    return 0;
}

static struct judged *judged_begin(struct tui_data *d, struct book *b, struct ds_error *err)
{
    struct judged *j = ds_calloc(1, sizeof *j, "verdict", err);
    if (!j)
        return NULL;
    j->refs = 1;
    j->book = b;
    b->refs++;
    j->number = ++d->judged_number;
    return j;
}

int judged_new(struct tui_data *d, struct book *b, struct judged **out, struct ds_error *err)
{
    struct judged *j = judged_begin(d, b, err);
    return j ? judged_make(d, j, out, err) : -1;
}

int judged_pair(struct tui_data *d, struct book *b, uint32_t arm, uint32_t ref, struct judged **out,
                struct ds_error *err)
{
    struct judged *j = judged_begin(d, b, err);
    if (!j)
        return -1;
    j->partial = 1;
    j->arm = arm;
    j->ref = ref;
    return judged_make(d, j, out, err);
}

int judged_verdict_make(struct judged *j, struct ds_error *err)
{
    if (j->has_diff || j->has_verdict)
        return 0;
    if (ds_analysis_verdict(j->analysis, &j->own, err) != 0)
        return -1;
    j->has_verdict = 1;
    return 0;
}

void judged_release(struct judged *j)
{
    if (!j || --j->refs > 0)
        return;
    if (j->has_verdict)
        ds_verdict_free(&j->own);
    if (j->has_diff)
        ds_diff_free(&j->diff);
    else
        ds_analysis_free(j->analysis);
    list_free(&j->list[0]);
    list_free(&j->list[1]);
    for (int k = 0; j->partial && k < j->book->n_sides; k++)
        side_let_go(&j->book->side[k]);
    book_release(j->book);
    free(j);
}

void judged_settle(struct judged *j)
{
    if (!j)
        return;
    ds_analysis_free(j->analysis);
    j->analysis = NULL;
    if (j->has_diff)
        j->diff.analysis = NULL;
}
