/* environment.c: which lines the lists of one record or of two have; and all of them as text. See environment.h. */
#include "report/environment_internal.h"

#include "base/mem.h"
#include "dumps/validity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which rows there are -------------------------------------------------------------------- */

static int add_row(struct ds_env *o, struct ds_env_row row, struct ds_error *err)
{
    if (ds_grow(&o->rows, &o->cap, o->n + 1, sizeof *o->rows, "rows", err))
        return -1;
    o->rows[o->n++] = row;
    return 0;
}

static int add_heading(struct ds_env *o, int list, uint32_t at, int equal, struct ds_error *err)
{
    return add_row(
        o,
        (struct ds_env_row){
            .at = {at, at}, .list = (uint8_t)list, .kind = DS_ENV_HEADING, .equal = (uint8_t)equal},
        err);
}

static int add_findings(struct ds_env *o, const struct ds_env_of *w, struct ds_error *err)
{
    const struct ds_verdict *v = w->verdict;
    size_t n = (v && v->validity ? v->validity->n_items : 0) + (v ? v->n_notes : 0);
    int none = w->error || (v && v->result == DS_RESULT_INCOMPARABLE);
    if (w->note)
        n++;
    if ((n || none) && add_heading(o, DS_ENV_FINDINGS, 0, 0, err))
        return -1;
    for (size_t i = 0; i < n + (none ? 1 : 0); i++) {
        uint32_t at = none && i == 0 ? DS_ENV_NONE : (uint32_t)(i - (none ? 1 : 0));
        if (add_row(
                o,
                (struct ds_env_row){.at = {at, at}, .list = DS_ENV_FINDINGS, .kind = DS_ENV_LINE},
                err))
            return -1;
    }
    return 0;
}

/* By kind, in the order in which ds_diff lists the first of each. */
static int add_items(struct ds_env *o, const struct ds_diff *d, struct ds_error *err)
{
    uint8_t done[DS_DIFF_KINDS] = {0};
    for (size_t i = 0; i < d->n_items; i++) {
        int kind = d->items[i].kind;
        if (kind < 0 || kind >= DS_DIFF_KINDS || done[kind]++)
            continue;
        if (add_heading(o, DS_ENV_ITEMS, (uint32_t)kind, 0, err))
            return -1;
        for (size_t k = i; k < d->n_items; k++)
            if (d->items[k].kind == kind &&
                add_row(o,
                        (struct ds_env_row){.at = {(uint32_t)k, (uint32_t)k}, .list = DS_ENV_ITEMS},
                        err))
                return -1;
    }
    o->n_differ = d->n_items;
    return 0;
}

/* Entries of B by name, so that A's find theirs. */
struct named {
    const char *name;
    uint32_t at;
};
struct names {
    struct named *list;
    size_t n;
    struct ds_buf text;
};

static int compare_named(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int names_of(const struct ds_env_of *w, int list, struct names *out, struct ds_error *err)
{
    char room[512];
    size_t at = 0;
    out->n = ds_env_entries(w, 1, list);
    out->list = ds_calloc(out->n, sizeof *out->list, "names", err);
    for (size_t i = 0; out->list && i < out->n; i++) {
        const char *name = ds_env_name(w, 1, list, (uint32_t)i, room);
        ds_buf_add(&out->text, name, strlen(name) + 1);
    }
    if (!out->list || out->text.failed)
        return ds_fail(err, "out of memory: names");
    for (size_t i = 0; i < out->n; i++) {
        out->list[i] = (struct named){out->text.data + at, (uint32_t)i};
        at += strlen(out->list[i].name) + 1;
    }
    qsort(out->list, out->n, sizeof *out->list, compare_named);
    return 0;
}

static uint32_t find_name(const struct names *names, const char *name)
{
    const struct named key = {name, 0},
                       *found = bsearch(&key, names->list, names->n, sizeof key, compare_named);
    return found ? found->at : DS_ENV_NONE;
}

static int is_equal(const struct ds_env *o, const struct ds_env_of *w, int list, uint32_t a,
                    uint32_t b)
{
    char room[2][512];
    return a != DS_ENV_NONE && b != DS_ENV_NONE &&
           strcmp(ds_env_value(o, w, 0, list, a, room[0]),
                  ds_env_value(o, w, 1, list, b, room[1])) == 0;
}

/* One entry of both sides, if it is what is to be told now. */
static int add_pair(struct ds_env *o, const struct ds_env_of *w, int list, int equal, uint32_t a,
                    uint32_t b, size_t *heading, struct ds_error *err)
{
    if (list != DS_ENV_RECORD && is_equal(o, w, list, a, b) != equal)
        return 0;
    if (*heading == SIZE_MAX) {
        *heading = o->n;
        if (add_heading(o, list, 0, equal, err))
            return -1;
    }
    if (list != DS_ENV_RECORD)
        *(equal ? &o->n_equal : &o->n_differ) += 1;
    return add_row(
        o, (struct ds_env_row){.at = {a, b}, .list = (uint8_t)list, .equal = (uint8_t)equal}, err);
}

static int add_both(struct ds_env *o, const struct ds_env_of *w, int list, int equal,
                    struct ds_error *err)
{
    size_t na = ds_env_entries(w, 0, list), nb = ds_env_entries(w, 1, list), heading = SIZE_MAX;
    struct names names = {.n = 0};
    uint8_t *used = ds_calloc(nb, 1, "names", err);
    char room[512];
    int rc = !used || names_of(w, list, &names, err) ? -1 : 0;
    for (uint32_t a = 0; a < na && !rc; a++) {
        uint32_t b = find_name(&names, ds_env_name(w, 0, list, a, room));
        if (b != DS_ENV_NONE)
            used[b] = 1;
        rc = add_pair(o, w, list, equal, a, b, &heading, err);
    }
    for (uint32_t b = 0; b < nb && !rc; b++)
        if (!used[b])
            rc = add_pair(o, w, list, equal, DS_ENV_NONE, b, &heading, err);
    free(used);
    free(names.list);
    ds_buf_free(&names.text);
    return rc;
}

static int add_one(struct ds_env *o, const struct ds_env_of *w, int list, struct ds_error *err)
{
    size_t n = ds_env_entries(w, 0, list);
    if (n && add_heading(o, list, 0, 0, err))
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (add_row(o, (struct ds_env_row){.at = {i, DS_ENV_NONE}, .list = (uint8_t)list}, err))
            return -1;
    return 0;
}

/* What differs comes first: as ds_diff judges it or, of records that it does not compare, all that is unlike. */
static int ds_env_make_rows(struct ds_env *o, const struct ds_env_of *w, struct ds_error *err)
{
    if (ds_env_count(o, w, err) || add_findings(o, w, err) ||
        (o->comparable && add_items(o, w->diff, err)))
        return -1;
    for (int list = DS_ENV_MODEL; list < DS_ENV_LISTS && o->two && !o->comparable; list++)
        if (add_both(o, w, list, 0, err))
            return -1;
    for (int list = 0; list < DS_ENV_LISTS; list++)
        if (o->two ? add_both(o, w, list, list != DS_ENV_RECORD, err) : add_one(o, w, list, err))
            return -1;
    return 0;
}

void ds_env_free(struct ds_env *e)
{
    for (int side = 0; side < 2; side++) {
        for (size_t f = 0; f < e->n_values[side]; f++)
            free(e->values[side][f]);
        free(e->values[side]);
        free(e->trials[side]);
    }
    free(e->rows);
    memset(e, 0, sizeof *e);
}

int ds_env_make(struct ds_env *e, const struct ds_env_of *w, struct ds_error *err)
{
    *e = (struct ds_env){.two = w->sides[1] != NULL,
                         .comparable = w->diff && (w->diff->partial || w->diff->verdict.result !=
                                                                           DS_RESULT_INCOMPARABLE)};
    return ds_env_make_rows(e, w, err);
}

/* ---- as text --------------------------------------------------------------------------------- */

enum { NAME = 30, LONGEST = 8000 };

static void add_text(const char *lead, const char *text, struct ds_buf *out)
{
    const size_t n = text ? strlen(text) : 0;
    ds_buf_puts(out, lead);
    if (text)
        ds_buf_escape(out, text, n < LONGEST ? n : LONGEST);
    else
        ds_buf_puts(out, "-");
    if (n > LONGEST)
        ds_buf_printf(out, " ... (%zu bytes)", n);
    ds_buf_puts(out, "\n");
}

static void add_line(const struct ds_env *e, const struct ds_env_row *r,
                     const struct ds_env_texts *x, struct ds_buf *out)
{
    struct ds_buf name = {0};
    ds_buf_escape(&name, x->name, (size_t)-1);
    ds_buf_printf(out, "  %-*s", NAME, name.data ? name.data : "");
    out->failed |= name.failed;
    ds_buf_free(&name);
    if (!e->two || r->equal) {
        add_text(" ", x->text[0], out);
        return;
    }
    add_text(" A ", x->text[0], out);
    ds_buf_printf(out, "  %-*s", NAME, "");
    add_text(" B ", x->text[1], out);
}

int ds_report_environment(const struct ds_env_of *w, struct ds_buf *out, struct ds_error *err)
{
    struct ds_env e;
    struct ds_env_texts x;
    char heading[512];
    int rc = ds_env_make(&e, w, err);
    for (size_t i = 0; i < e.n && rc == 0; i++) {
        const struct ds_env_row *r = &e.rows[i];
        if (r->kind == DS_ENV_HEADING) {
            ds_env_heading(&e, r, heading);
            ds_buf_printf(out, "%s%s\n", i ? "\n" : "", heading);
            continue;
        }
        ds_env_row_texts(&e, w, r, &x);
        if (r->kind == DS_ENV_LINE) {
            ds_buf_printf(out, "  %s:", x.name);
            add_text(" ", x.text[0], out);
        } else {
            add_line(&e, r, &x, out);
        }
    }
    if (rc == 0 && e.two)
        ds_buf_printf(out, "\n%zu differ, %zu equal\n", e.n_differ, e.n_equal);
    ds_env_free(&e);
    return rc;
}
