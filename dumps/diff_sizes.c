/* diff_sizes.c: sizes of what differs, from dumped rows: of the first drift, and of the residual stream (growth). Many
 * rows are read at once by all processors where the records can be read so; what cannot be had or believed there is
 * asked for by itself. */
#include "dumps/diff_internal.h"

#include "base/dtype.h"
#include "dumps/parts.h"
#include "dumps/stats.h"
#include "dumps/verdict_internal.h"

#include <stdlib.h>
#include <string.h>

enum { STRETCH_ROWS = 512 };

/* A row that differs. */
struct differing {
    uint32_t site, row; /* its number in the trial */
    size_t key;         /* and among all */
    uint64_t a, b;
};

struct size {
    struct ds_drift x;
    int done;
};

struct sizing {
    struct ds_diff *d;
    struct differing *rows;
    struct size *sizes; /* [n_rows], seen by all parts; NULL: none is taken in bulk */
    size_t n_rows;
};

/* Rows whose bytes are read at once. */
struct stretch {
    struct ds_raw_row row[2][STRETCH_ROWS];
    size_t of[STRETCH_ROWS], n;
    uint64_t left[2];
    void *room[2];
};

static int compare_rows(const struct ds_blob *a, const struct ds_blob *b, struct ds_drift *out)
{
    const int dtype = ds_dtype_parse(a->dtype);
    if (strcmp(a->dtype, b->dtype) != 0 || a->elements != b->elements || dtype < 0 ||
        a->elements > a->bytes / ds_dtype_size(dtype) ||
        a->elements > b->bytes / ds_dtype_size(dtype))
        return 0;
    ds_stats_row(dtype, b->data, a->data, a->elements, out);
    return 1;
}

/* 1 and *out filled if both sides' bytes are dumped and alike in format and length. */
static int size_row(const struct ds_diff_options *o, uint64_t a, uint64_t b, struct ds_drift *out,
                    int *side, struct ds_error *err)
{
    struct ds_blob x = {0}, y = {0};
    int rc = o->blob(o->ctx, *side = 0, a, &x, err);
    if (rc == 1)
        rc = o->blob(o->ctx, *side = 1, b, &y, err);
    if (rc == 1)
        rc = compare_rows(&x, &y, out);
    free(x.data);
    free(y.data);
    return rc;
}

/* Sizes are many where all rows differ: they count in what may be held, and so does their copy while they
 * grow. */
static int room_for_size(struct ds_diff *d, struct ds_trial_data *t, struct ds_error *err)
{
    uint64_t left;
    char words[DS_BYTES_WORDS];
    if (t->n_drifts < d->cap_drifts)
        return 0;
    if (diff_room(d, &left, err) != 0)
        return -1;
    if (d->options.memory &&
        ds_analysis_bytes(d->analysis) + 2 * (uint64_t)d->cap_drifts * sizeof *t->drifts > left)
        return ds_fail(err, "sizes of %zu rows and more take more than %s of memory", t->n_drifts,
                       ds_bytes_words(left, words));
    return ds_grow(&t->drifts, &d->cap_drifts, t->n_drifts + 1, sizeof *t->drifts, "sizes", err);
}

/* ---- many rows at once ----------------------------------------------------------------------- */

static void size_stretch(const struct sizing *w, struct stretch *s)
{
    const struct ds_diff_options *o = &w->d->options;
    for (int side = 0; side < 2; side++)
        o->fetch(o->ctx, side, s->row[side], s->n, s->room[side]);
    for (size_t i = 0; i < s->n; i++) {
        const struct ds_raw_row *a = &s->row[0][i], *b = &s->row[1][i];
        struct size *out = &w->sizes[s->of[i]];
        if (!ds_raw_row_sound(a) || !ds_raw_row_sound(b))
            continue;
        out->done = compare_rows(&a->row, &b->row, &out->x);
        o->believe(o->ctx, 0, a);
        o->believe(o->ctx, 1, b);
    }
    s->n = 0;
    s->left[0] = s->left[1] = o->bulk_bytes;
}

static void add_row(const struct sizing *w, struct stretch *s, size_t of)
{
    const struct ds_diff_options *o = &w->d->options;
    struct ds_raw_row a, b;
    o->locate(o->ctx, 0, w->rows[of].a, &a);
    o->locate(o->ctx, 1, w->rows[of].b, &b);
    if (a.alone || b.alone || a.row.bytes > o->bulk_bytes || b.row.bytes > o->bulk_bytes)
        return;
    if (s->n == STRETCH_ROWS || a.row.bytes > s->left[0] || b.row.bytes > s->left[1])
        size_stretch(w, s);
    s->row[0][s->n] = a;
    s->row[1][s->n] = b;
    s->of[s->n++] = of;
    s->left[0] -= a.row.bytes;
    s->left[1] -= b.row.bytes;
}

static void size_part(void *ctx, int part, int parts)
{
    const struct sizing *w = ctx;
    struct ds_error ignored;
    const size_t bytes = (size_t)w->d->options.bulk_bytes,
                 first = w->n_rows * (size_t)part / (size_t)parts,
                 end = w->n_rows * (size_t)(part + 1) / (size_t)parts;
    struct stretch *s = ds_calloc(1, sizeof *s, "rows that differ", &ignored);
    if (s && (s->room[0] = ds_alloc(bytes, "rows that differ", &ignored)) &&
        (s->room[1] = ds_alloc(bytes, "rows that differ", &ignored))) {
        s->left[0] = s->left[1] = bytes;
        for (size_t i = first; i < end; i++)
            add_row(w, s, i);
        size_stretch(w, s);
    }
    free(s ? s->room[0] : NULL);
    free(s ? s->room[1] : NULL);
    free(s);
}

/* Only where there is room for it beside what is kept of the sizes: else they are taken one by one. */
static void size_in_bulk(struct sizing *w)
{
    const struct ds_diff *d = w->d;
    const uint64_t need =
        w->n_rows * (sizeof *w->rows + sizeof *w->sizes + 2 * sizeof(struct ds_drift)) +
        ds_analysis_bytes(d->analysis);
    struct ds_error ignored;
    struct ds_raw_row one = {.alone = 1}, other;
    uint64_t left;
    if (!d->options.locate || !w->n_rows || diff_room(d, &left, &ignored) != 0 ||
        (d->options.memory && need > left))
        return;
    if (!(w->sizes = ds_parts_memory(w->n_rows * sizeof *w->sizes)))
        return;
    /* One of them speaks for the size of all, and makes the records read their lists of dumped rows for all parts. */
    d->options.locate(d->options.ctx, 0, w->rows[0].a, &one);
    d->options.locate(d->options.ctx, 1, w->rows[0].b, &other);
    ds_parts_run(size_part, w, ds_parts_worth(w->n_rows * 2 * (one.alone ? 0 : one.row.bytes)));
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int is_sized(const struct ds_diff *d, uint32_t site)
{
    return site == d->verdict.first.site || strcmp(d->header.sites[site].stage, "resid_ffn") == 0;
}

/* The rows that differ at the sites to be sized: counted, and listed where there is a list. */
static size_t list_rows(const struct ds_diff *d, uint32_t arm, uint32_t ref, struct differing *list)
{
    const size_t rows = ds_analysis_rows(d->analysis);
    size_t n = 0;
    for (uint32_t s = 0; s < d->header.n_sites; s++)
        for (size_t i = 0; is_sized(d, s) && i < rows; i++) {
            const size_t cell = s * rows + i; /* what a tolerance excused has one digest there */
            uint64_t a, b;
            uint32_t row;
            if (d->analysis->arms[arm].digest[cell] == d->analysis->arms[ref].digest[cell] ||
                !ds_analysis_digest(d->analysis, ref, s, i, &a) ||
                !ds_analysis_digest(d->analysis, arm, s, i, &b) || a == b ||
                !ds_analysis_find_row(d->analysis, arm, i, &row))
                continue;
            if (list)
                list[n] = (struct differing){s, row, i, a, b};
            n++;
        }
    return n;
}

/* Adds the size of a row to B's first trial of the pair. A dump that is damaged is listed: it costs the size, and
 * the answer is no pass. */
static int settle(struct sizing *w, size_t i, struct ds_trial_data *t, uint32_t ref,
                  struct ds_error *err)
{
    const struct differing *r = &w->rows[i];
    struct ds_drift x = {0};
    struct ds_error what = {{0}, {0}};
    int side = 0, rc = w->sizes && w->sizes[i].done;
    if (rc)
        x = w->sizes[i].x;
    else
        rc = size_row(&w->d->options, r->a, r->b, &x, &side, &what);
    if (rc == DS_BLOB_UNREAD)
        return ds_fail(err, "%s", what.msg);
    if (rc < 0)
        return diff_damage(w->d, r->site, ds_analysis_row(w->d->analysis, r->key), side, &what,
                           err);
    if (rc == 0)
        return 0;
    if (room_for_size(w->d, t, err) != 0)
        return -1;
    x.site = r->site;
    x.row = r->row;
    x.ref_arm = ref;
    x.digest = r->b;
    x.ref_digest = r->a;
    t->drifts[t->n_drifts++] = x;
    return 0;
}

int diff_sizes(struct ds_diff *d, struct ds_error *err)
{
    struct ds_verdict *v = &d->verdict;
    if (!d->options.blob || !v->first.found || v->first.arm == v->first.ref_arm)
        return 0;
    const uint32_t arm = v->first.arm, ref = v->first.ref_arm;
    struct ds_trial_data *t = (struct ds_trial_data *)ds_analysis_trial(d->analysis, arm);
    struct sizing w = {.d = d, .n_rows = list_rows(d, arm, ref, NULL)};
    if (!(w.rows = ds_calloc(w.n_rows, sizeof *w.rows, "rows that differ", err)))
        return -1;
    list_rows(d, arm, ref, w.rows);
    size_in_bulk(&w);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < w.n_rows; i++)
        rc = settle(&w, i, t, ref, err);
    ds_parts_release(w.sizes, w.n_rows * sizeof *w.sizes);
    free(w.rows);
    if (rc != 0 || t->n_drifts == 0)
        return rc;
    ds_verdict_free(v);
    return ds_analysis_verdict(d->analysis, v, err);
}
