/* data_book.c: the records behind the screen, and what is made of them: sources of sound trials, analysis,
 * verdict, and the snapshot that the screen sees. Runs in the worker's thread. */
#include "tui/data_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sources --------------------------------------------------------------------------------- */

static const struct ds_trial *side_info(void *ctx, size_t i)
{
    const struct book_side *s = ctx;
    return i < s->n_use ? ds_record_trial(s->record, s->use[i]) : NULL;
}

static const struct ds_trial_data *side_get(void *ctx, size_t i, struct ds_error *err)
{
    struct book_side *s = ctx;
    if (atomic_load(&s->data->stop)) {
        ds_fail(err, "given up");
        return NULL;
    }
    if (i >= s->n_use) {
        ds_fail(err, "trial %zu of %zu", i, s->n_use);
        return NULL;
    }
    return ds_record_load(s->record, s->use[i], err);
}

static int side_blob(void *ctx, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    struct book_side *s = ctx;
    if (atomic_load(&s->data->stop))
        return ds_fail(err, "given up");
    return ds_record_blob(s->record, digest, out, err);
}

static int sift_side(struct book_side *s, struct ds_error *err)
{
    size_t n = ds_record_trial_count(s->record), used = 0;
    size_t *use = ds_calloc(n, sizeof *use, "trials", err);
    if (!use)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (ds_record_sound(s->record, i))
            use[used++] = i;
    int changed = used != s->n_use || (used && memcmp(use, s->use, used * sizeof *use) != 0);
    free(s->use);
    s->use = use;
    s->n_use = used;
    s->source = (struct ds_source){.header = ds_record_header(s->record),
                                   .n_trials = used,
                                   .info = side_info,
                                   .get = side_get,
                                   .ctx = s,
                                   .blob = side_blob};
    return changed;
}

int book_sift(struct book *b, struct ds_error *err)
{
    int changed = 0;
    for (int k = 0; k < b->n_sides; k++) {
        int rc = sift_side(&b->side[k], err);
        if (rc < 0)
            return -1;
        changed |= rc;
    }
    return changed;
}

struct book *book_open(struct tui_data *d, struct ds_error *err)
{
    struct book *b = ds_calloc(1, sizeof *b, "records", err);
    if (!b)
        return NULL;
    b->refs = 1;
    for (int k = 0; k < 2 && d->path[k]; k++) {
        b->side[k].data = d;
        if (ds_record_open(d->path[k], &b->side[k].record, err) != 0) {
            book_release(b);
            return NULL;
        }
        b->n_sides++;
        ds_record_hold(b->side[k].record, 4 << 20);
    }
    if (book_sift(b, err) < 0) {
        book_release(b);
        return NULL;
    }
    return b;
}

void book_release(struct book *b)
{
    if (!b || --b->refs > 0)
        return;
    for (int k = 0; k < b->n_sides; k++) {
        ds_record_close(b->side[k].record);
        free(b->side[k].use);
    }
    free(b);
}

/* ---- judging --------------------------------------------------------------------------------- */

static int diff_blob(void *ctx, int side, uint64_t digest, struct ds_blob *out,
                     struct ds_error *err)
{
    struct book *b = ctx;
    return side_blob(&b->side[side], digest, out, err);
}

static int judge_two(struct judged *j, struct ds_error *err)
{
    const struct ds_diff_options options = {.blob = diff_blob, .ctx = j->book};
    if (ds_diff_make(&j->book->side[0].source, &j->book->side[1].source, &options, &j->diff, err) !=
        0)
        return -1;
    j->has_diff = 1;
    j->analysis = j->diff.analysis;
    j->source = j->diff.joined;
    return 0;
}

static int judge(struct judged *j, struct ds_error *err)
{
    if (j->book->n_sides == 2)
        return judge_two(j, err);
    j->source = j->book->side[0].source;
    return ds_analysis_new(&j->source, NULL, &j->analysis, err);
}

int judged_new(struct tui_data *d, struct book *b, struct judged **out, struct ds_error *err)
{
    struct judged *j = ds_calloc(1, sizeof *j, "verdict", err);
    if (!j)
        return -1;
    j->refs = 1;
    j->book = b;
    b->refs++;
    j->number = ++d->judged_number;
    /* A trial is found damaged when it is read: it is left out, and the rest is judged. */
    int rc;
    while ((rc = judge(j, err)) != 0 && !atomic_load(&d->stop)) {
        struct ds_error ignored;
        if (book_sift(b, &ignored) != 1)
            break;
    }
    if (rc != 0) {
        judged_release(j);
        return -1;
    }
    *out = j;
    return 0;
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

/* ---- what the screen sees -------------------------------------------------------------------- */

static int list_trials(struct snapshot *s, const struct ds_source *of, struct ds_error *err)
{
    size_t n = of->n_trials;
    if (!(s->list = ds_calloc(n, sizeof *s->list, "trials", err)) ||
        !(s->trials = ds_calloc(n, sizeof *s->trials, "trials", err)))
        return -1;
    for (size_t i = 0; i < n; i++) {
        const struct ds_trial *t = of->info ? of->info(of->ctx, i) : NULL;
        if (!t)
            break;
        s->trials[i] = *t;
        s->list[i] = &s->trials[i];
        s->whole.n_trials = i + 1;
    }
    s->whole.trials = s->list;
    return 0;
}

static void fill_report(struct snapshot *s, const struct tui_data *d)
{
    s->whole.report = (struct ds_report){.header = s->whole.header,
                                         .v = s->whole.verdict,
                                         .diff = s->whole.diff,
                                         .path = d->path[0],
                                         .path_b = d->path[1],
                                         .incomplete = s->whole.incomplete,
                                         .damaged = s->whole.damaged};
}

struct snapshot *snapshot_new(const struct tui_data *d, struct ds_error *err)
{
    struct snapshot *s = ds_calloc(1, sizeof *s, "records", err);
    if (!s)
        return NULL;
    struct tui_whole *w = &s->whole;
    const struct book *b = d->book;
    const struct judged *j = d->told;
    const struct ds_source *of = NULL;
    for (int k = 0; b && k < b->n_sides; k++) {
        w->sides[k] = ds_record_header(b->side[k].record);
        w->incomplete += ds_record_incomplete(b->side[k].record);
        w->damaged += ds_record_damaged(b->side[k].record);
    }
    if (j && j->has_diff) {
        w->header = &j->diff.header;
        w->diff = &j->diff;
        of = &j->diff.joined;
    } else if (b && b->n_sides == 1) {
        w->header = w->sides[0];
        of = &b->side[0].source;
    }
    w->verdict = j ? judged_verdict(j) : NULL;
    snprintf(s->error, sizeof s->error, "%s", d->error);
    snprintf(s->note, sizeof s->note, "%s", d->note);
    w->error = s->error[0] ? s->error : NULL;
    w->note = s->note[0] ? s->note : NULL;
    w->live = d->live;
    if (of && list_trials(s, of, err) != 0) {
        free(s->list);
        free(s->trials);
        free(s);
        return NULL;
    }
    fill_report(s, d);
    if ((s->book = d->book))
        s->book->refs++;
    if ((s->judged = d->told))
        s->judged->refs++;
    s->since = d->since;
    return s;
}
