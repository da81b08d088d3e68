/* diff_tolerance.c: rows that differ within a tolerance are given the reference's digest, so that
 * all that follows (classes, repeats, tokens) sees them as equal; what they had is kept beside, since a
 * label goes by the bits of what a kernel read (verdict_label.c). Bytes are read only of rows whose
 * digests differ, once per pair of digests; a row whose bytes are not in the records cannot be
 * excused, and is counted. Uses the analysis' tables: it belongs to the verdict as much as to the
 * diff. */
#include "dumps/diff_internal.h"

#include "base/dtype.h"
#include "dumps/parts.h"
#include "dumps/record_layout.h"
#include "dumps/verdict_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum answer { UNKNOWN = 0, EXCEEDS, EXCUSED, NOT_DUMPED };

enum { STRETCH_ROWS = 512 };

/* A row whose digest differs from the reference's. */
struct differing {
    uint32_t site, row;
    size_t at; /* in its trial's digests */
    uint64_t digest, ref;
};

/* Rows whose bytes are read at once. */
struct stretch {
    struct ds_raw_row mine[STRETCH_ROWS], theirs[STRETCH_ROWS];
    size_t at[STRETCH_ROWS], n;
    uint64_t left[2];
    void *room[2];
};

/* How far a trial's captures are looked through. */
struct cursor {
    size_t capture;
    uint32_t next, last_row;
};

struct work {
    struct ds_diff *d;
    uint8_t *labels;     /* [cells] of the trial's arm against A's */
    int repeats;         /* more than two trials: pairs of digests come again */
    struct ds_map known; /* (digest, reference, side) -> enum answer */
    size_t trial;        /* the one at work */
    uint8_t *answers;    /* [its n_digests] enum answer of what was read in bulk */
    size_t differing;    /* how many of its rows do */
    int changed;
};

int diff_damage(struct ds_diff *d, uint32_t site, const struct ds_row_key *key, int side,
                const struct ds_error *what, struct ds_error *err)
{
    const struct ds_site *s = &d->header.sites[site];
    char name[128], site_words[DS_SITE_WORDS];
    ds_site_words(s, site_words, sizeof site_words);
    snprintf(name, sizeof name, "%s, request %d, position %d", site_words, key->request,
             key->position);
    for (size_t i = 0; i < d->n_items; i++)
        if (d->items[i].kind == DS_DIFF_DAMAGE && strcmp(d->items[i].name, name) == 0)
            return 0;
    return diff_add(d, DS_DIFF_DAMAGE, name, side == 0 ? what->msg : NULL,
                    side == 1 ? what->msg : NULL, err);
}

static enum answer compare_bytes(const struct ds_tolerance *t, const struct ds_blob *x,
                                 const struct ds_blob *y)
{
    int dtype = ds_dtype_parse(x->dtype);
    size_t size = ds_dtype_size(dtype);
    if (strcmp(x->dtype, y->dtype) != 0 || x->elements != y->elements || !size ||
        x->elements > x->bytes / size || x->elements > y->bytes / size)
        return EXCEEDS;
    return ds_tolerance_row(t, dtype, x->data, y->data, x->elements) ? EXCUSED : EXCEEDS;
}

static struct ds_map_key pair_of(uint64_t digest, uint64_t ref, int side)
{
    return (struct ds_map_key){digest, ref, (uint64_t)side, 0};
}

/* Reads both rows and holds them against each other. As ds_diff_options.blob returns; *damaged: whose could not be
 * believed. */
static int read_both(const struct ds_diff_options *o, int side, uint64_t digest, uint64_t ref,
                     enum answer *out, int *damaged, struct ds_error *err)
{
    struct ds_blob x = {0}, y = {0};
    int rc = o->blob ? o->blob(o->ctx, side, digest, &x, err) : 0;
    *damaged = side;
    if (rc == 1) {
        *damaged = 0;
        rc = o->blob(o->ctx, 0, ref, &y, err);
    }
    *out = rc == 1 ? compare_bytes(&o->tolerance, &x, &y) : NOT_DUMPED;
    free(x.data);
    free(y.data);
    return rc;
}

/* The same of one row that differs; damage is listed, and excuses nothing. */
static int judge_alone(struct work *w, const struct differing *j, int side, enum answer *out,
                       struct ds_error *err)
{
    struct ds_error what = {{0}, {0}};
    int damaged, rc = read_both(&w->d->options, side, j->digest, j->ref, out, &damaged, &what);
    if (rc == DS_BLOB_UNREAD)
        return ds_fail(err, "%s", what.msg);
    return rc < 0 ? diff_damage(w->d, j->site, &w->d->analysis->keys[j->row], damaged, &what, err)
                  : 0;
}

static int replace(struct ds_diff *d, size_t trial, size_t at, uint64_t digest,
                   struct ds_error *err)
{
    struct ds_trial_data *t = &d->trials[trial];
    if (!d->own_digests[trial]) {
        uint64_t *own = ds_calloc(t->n_digests, sizeof *own, "digests", err);
        if (!own)
            return -1;
        memcpy(own, t->digests, t->n_digests * sizeof *own);
        d->recorded[trial] = t->digests;
        d->own_digests[trial] = t->digests = own;
        d->own_bytes += t->n_digests * sizeof *own;
    }
    t->digests[at] = digest;
    return 0;
}

/* ---- many rows at once ----------------------------------------------------------------------- */

static int side_of(const struct work *w)
{
    return (int)(w->d->trials[w->trial].info.arm & 1);
}

/* The next row that differs: 1, or 0: there is none. */
static int next_differing(const struct work *w, struct cursor *k, struct differing *out)
{
    const struct ds_analysis *a = w->d->analysis;
    const struct ds_trial_data *t = &w->d->trials[w->trial];
    const struct arm_table *r = &a->arms[t->info.arm & ~1u];
    for (; k->capture < t->n_captures; *k = (struct cursor){k->capture + 1, 0, NONE}) {
        const struct ds_capture *c = &t->captures[k->capture];
        while (k->next < c->rows) {
            const struct ds_row *of = &t->rows[c->first_row + k->next];
            const uint32_t row = row_of_key(a, of, k->last_row == NONE ? 0 : k->last_row + 1);
            const size_t cell = c->site * a->n_rows + row, at = (size_t)c->first_digest + k->next++;
            k->last_row = row;
            if (row == NONE || w->labels[cell] == DS_LABEL_ABSENT ||
                t->digests[at] == r->digest[cell])
                continue;
            *out = (struct differing){c->site, row, at, t->digests[at], r->digest[cell]};
            return 1;
        }
    }
    return 0;
}

static const uint64_t *known_answer(const struct work *w, const struct differing *x)
{
    const struct ds_map_key pair = pair_of(x->digest, x->ref, side_of(w));
    return w->repeats ? ds_map_get(&w->known, &pair) : NULL;
}

static void judge_stretch(const struct work *w, struct stretch *s)
{
    const struct ds_diff_options *o = &w->d->options;
    o->fetch(o->ctx, side_of(w), s->mine, s->n, s->room[0]);
    o->fetch(o->ctx, 0, s->theirs, s->n, s->room[1]);
    for (size_t i = 0; i < s->n; i++) {
        const struct ds_raw_row *x = &s->mine[i], *y = &s->theirs[i];
        if (!ds_raw_row_sound(x) || !ds_raw_row_sound(y))
            continue;
        w->answers[s->at[i]] = (uint8_t)compare_bytes(&o->tolerance, &x->row, &y->row);
        o->believe(o->ctx, side_of(w), x);
        o->believe(o->ctx, 0, y);
    }
    s->n = 0;
    s->left[0] = s->left[1] = o->bulk_bytes;
}

/* Takes a row up, judging those before where it does not fit beside them. What would not fit alone is left out. */
static void add_row(const struct work *w, struct stretch *s, const struct differing *of)
{
    const struct ds_diff_options *o = &w->d->options;
    struct ds_raw_row x, y;
    o->locate(o->ctx, side_of(w), of->digest, &x);
    if (!x.alone)
        o->locate(o->ctx, 0, of->ref, &y);
    if (x.alone || y.alone || x.row.bytes > o->bulk_bytes || y.row.bytes > o->bulk_bytes)
        return;
    if (s->n == STRETCH_ROWS || x.row.bytes > s->left[0] || y.row.bytes > s->left[1])
        judge_stretch(w, s);
    s->mine[s->n] = x;
    s->theirs[s->n] = y;
    s->at[s->n++] = of->at;
    s->left[0] -= x.row.bytes;
    s->left[1] -= y.row.bytes;
}

/* Answers for a part of the rows that differ. */
static void judge_part(void *ctx, int part, int parts)
{
    const struct work *w = ctx;
    struct ds_error ignored;
    struct cursor at = {0, 0, NONE};
    struct differing x;
    const uint64_t bytes = w->d->options.bulk_bytes;
    const size_t first = w->differing * (size_t)part / (size_t)parts,
                 end = w->differing * (size_t)(part + 1) / (size_t)parts;
    struct stretch *s = ds_calloc(1, sizeof *s, "rows that differ", &ignored);
    if (s && (s->room[0] = ds_alloc((size_t)bytes, "rows that differ", &ignored)) &&
        (s->room[1] = ds_alloc((size_t)bytes, "rows that differ", &ignored))) {
        s->left[0] = s->left[1] = bytes;
        for (size_t i = 0; i < end && next_differing(w, &at, &x); i++)
            if (i >= first && !known_answer(w, &x))
                add_row(w, s, &x);
        judge_stretch(w, s);
    }
    free(s ? s->room[0] : NULL);
    free(s ? s->room[1] : NULL);
    free(s);
}

static void judge_in_bulk(struct work *w)
{
    const struct ds_diff_options *o = &w->d->options;
    struct cursor at = {0, 0, NONE};
    struct differing x;
    struct ds_raw_row mine = {.alone = 1}, theirs;
    for (w->differing = 0; next_differing(w, &at, &x); w->differing++)
        if (w->differing == 0) {
            /* One of them speaks for the size of all; and what has been looked for in a record has made it read its list
             * of dumped rows, which all parts share. */
            o->locate(o->ctx, side_of(w), x.digest, &mine);
            o->locate(o->ctx, 0, x.ref, &theirs);
        }
    if (w->differing)
        ds_parts_run(judge_part, w,
                     ds_parts_worth(w->differing * 2 * (mine.alone ? 0 : mine.row.bytes)));
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* What was told before counts again; what is not to be had in bulk, or not to be believed, is asked for by itself. */
static int settle(struct work *w, const struct differing *x, struct ds_error *err)
{
    struct ds_diff *d = w->d;
    const struct ds_map_key pair = pair_of(x->digest, x->ref, side_of(w));
    const uint64_t *known = known_answer(w, x);
    enum answer answer = known        ? (enum answer) * known
                         : w->answers ? (enum answer)w->answers[x->at]
                                      : UNKNOWN;
    if (answer == UNKNOWN && judge_alone(w, x, side_of(w), &answer, err) != 0)
        return -1;
    if (w->repeats && !known && ds_map_put(&w->known, &pair, answer, err) != 0)
        return -1;
    d->excused += answer == EXCUSED;
    d->exceeding += answer == EXCEEDS;
    d->not_dumped += answer == NOT_DUMPED;
    if (answer != EXCUSED)
        return 0;
    w->changed = 1;
    return replace(d, w->trial, x->at, x->ref, err);
}

static int excuse_trial(struct work *w, size_t trial, struct ds_error *err)
{
    const struct ds_trial_data *t = &w->d->trials[trial];
    const size_t n = t->n_digests;
    struct cursor at = {0, 0, NONE};
    struct differing x;
    int rc = 0;
    w->trial = trial;
    label_pair(w->d->analysis, t->info.arm, t->info.arm & ~1u,
               w->labels); /* what is not compared needs no excuse */
    w->answers = w->d->options.locate ? ds_parts_memory(n) : NULL;
    if (w->answers)
        judge_in_bulk(w);
    while (rc == 0 && next_differing(w, &at, &x))
        rc = settle(w, &x, err);
    ds_parts_release(w->answers, n);
    return rc;
}

int diff_excuse(struct ds_diff *d, int *changed, struct ds_error *err)
{
    struct work w = {.d = d, .repeats = d->n_trials > 2};
    *changed = 0;
    if (!ds_tolerance_given(&d->options.tolerance))
        return 0;
    w.labels = ds_calloc(d->analysis->cells, 1, "labels", err);
    d->own_digests = ds_calloc(d->cap_trials, sizeof *d->own_digests, "digests", err);
    d->recorded = ds_calloc(d->cap_trials, sizeof *d->recorded, "digests", err);
    d->within_known = ds_calloc(1, sizeof *d->within_known, "digests", err);
    int rc = w.labels && d->own_digests && d->recorded && d->within_known ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < d->n_trials; i++)
        rc = excuse_trial(&w, i, err);
    *changed = w.changed;
    ds_map_free(&w.known);
    free(w.labels);
    return rc;
}

int diff_within(void *ctx, uint64_t ref, uint64_t digest)
{
    static const int told[] = {[EXCEEDS] = 0, [EXCUSED] = 1, [NOT_DUMPED] = -1};
    struct ds_diff *d = ctx;
    const struct ds_map_key pair = pair_of(digest, ref, 1);
    const uint64_t *known = ds_map_get(d->within_known, &pair);
    struct ds_error ignored;
    enum answer answer;
    if (known)
        return told[*known];
    if (read_both(&d->options, 1, digest, ref, &answer, &(int){0}, &ignored) < 0)
        answer =
            NOT_DUMPED; /* heal trials are told beside the natural ones, which name what is damaged */
    (void)ds_map_put(d->within_known, &pair, answer, &ignored); /* no room: asked again */
    return told[answer];
}

/* The first cell of a pair that differs within the tolerance; SIZE_MAX: there is none. */
static size_t first_within(const struct ds_diff *d, const uint8_t *labels)
{
    const size_t cells = d->analysis->cells;
    for (size_t cell = 0; cell < cells; cell++)
        if ((labels[cell] & LABEL_MASK) == DS_LABEL_WITHIN)
            return cell;
    return SIZE_MAX;
}

int diff_note_within(struct ds_diff *d, struct ds_error *err)
{
    if (!d->excused)
        return 0;
    uint8_t *labels = ds_calloc(d->analysis->cells, 1, "labels", err);
    for (uint32_t p = 0; labels && p < d->pairs; p++) {
        struct ds_finding f;
        const uint32_t ref = 2 * p, arm = ref + 1;
        if (!d->analysis->arms[arm].n_trials || !d->analysis->arms[ref].n_trials)
            continue;
        label_pair(d->analysis, arm, ref, labels);
        const size_t cell = first_within(d, labels);
        if (cell == SIZE_MAX)
            continue;
        describe_cell(d->analysis, arm, ref, labels, cell, -1, &f);
        if (finding_before(&f, &d->within))
            d->within = f;
    }
    free(labels);
    return labels ? 0 : -1;
}
