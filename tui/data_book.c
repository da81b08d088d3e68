/* data_book.c: the records behind the screen, and what is made of them: sources of sound trials, analysis,
 * and the snapshot that the screen sees. Runs in the worker's thread. */
#include "tui/data_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- records --------------------------------------------------------------------------------- */

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
    if (ds_grow(&s->used, &s->cap_used, n, sizeof *s->used, "trials", err) != 0 ||
        ds_grow(&s->pinned, &s->cap_pinned, n, sizeof *s->pinned, "trials", err) != 0)
        return -1;
    s->n_trials = n;
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
        free(b->side[k].used);
        free(b->side[k].pinned);
        free(b->side[k].damage);
    }
    free(b);
}

/* ---- what the screen sees -------------------------------------------------------------------- */

static int copy_trials(struct snapshot *s, size_t n, struct ds_error *err)
{
    if (!(s->list = ds_calloc(n, sizeof *s->list, "trials", err)) ||
        !(s->trials = ds_calloc(n, sizeof *s->trials, "trials", err)))
        return -1;
    for (size_t i = 0; i < n; i++)
        s->list[i] = &s->trials[i];
    s->whole.trials = s->list;
    s->whole.n_trials = n;
    return 0;
}

static int list_trials(struct snapshot *s, const struct tui_data *d, struct ds_error *err)
{
    const struct ds_diff *diff = s->whole.diff;
    if (diff) {
        int rc = copy_trials(s, diff->n_trials, err);
        for (size_t i = 0; rc == 0 && i < diff->n_trials; i++)
            s->trials[i] = diff->trials[i].info;
        return rc;
    }
    if (!s->whole.header)
        return 0;
    const struct book_side *side = &d->book->side[0];
    int rc = copy_trials(s, side->n_use, err);
    for (size_t i = 0; rc == 0 && i < side->n_use; i++)
        s->trials[i] = *ds_record_trial(side->record, side->use[i]);
    return rc;
}

static void fill_report(struct snapshot *s, const struct tui_data *d)
{
    s->whole.report = (struct ds_report){.header = s->whole.header,
                                         .v = s->whole.verdict,
                                         .diff = s->whole.diff,
                                         .path = d->path[0],
                                         .path_b = d->path[1],
                                         .incomplete = s->whole.incomplete,
                                         .damaged = s->whole.damaged,
                                         .caller = d->caller};
}

struct snapshot *snapshot_new(const struct tui_data *d, struct ds_error *err)
{
    struct snapshot *s = ds_calloc(1, sizeof *s, "records", err);
    if (!s)
        return NULL;
    struct tui_whole *w = &s->whole;
    const struct book *b = d->book;
    const struct judged *j = d->told;
    for (int k = 0; b && k < b->n_sides; k++) {
        w->sides[k] = ds_record_header(b->side[k].record);
        w->incomplete += ds_record_incomplete(b->side[k].record);
        w->damaged += ds_record_damaged(b->side[k].record);
    }
    if (j && j->has_diff) {
        w->header = &j->diff.header;
        w->diff = &j->diff;
    } else if (b && b->n_sides == 1) {
        w->header = w->sides[0];
    }
    w->verdict = j ? judged_verdict(j) : NULL;
    snprintf(s->error, sizeof s->error, "%s", d->error);
    snprintf(s->note, sizeof s->note, "%s", d->note);
    w->error = s->error[0] ? s->error : NULL;
    w->note = s->note[0] ? s->note : NULL;
    w->live = d->live;
    w->ended = d->ended;
    if (list_trials(s, d, err) != 0) {
        free(s->list);
        free(s->trials);
        free(s);
        return NULL;
    }
    fill_report(s, d);
    if (check_tell(s, b, err) != 0) {
        check_free(s);
        free(s->list);
        free(s->trials);
        free(s);
        return NULL;
    }
    if ((s->book = d->book))
        s->book->refs++;
    if ((s->judged = d->told))
        s->judged->refs++;
    s->since = d->since;
    return s;
}
