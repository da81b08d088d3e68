/* table_export.c: rows as text, as tab-separated values, as JSON. What a cell says on the screen may be cut or
 * rounded; here numbers are exact. */
#include "tui/table_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct export
{
    const struct tui_table *t;
    const struct tui_source *s;
    struct ds_buf *out;
    int sections; /* the table has any */
    size_t heading;
    char(*names)[512]; /* [n_columns] under the heading; made unlike each other */
    int *widths;       /* text */
    int rows;          /* written so far: 0 or 1 */
    size_t named;      /* TSV: the heading row whose names stand above, with `rows` */
};

/* ---- which rows ------------------------------------------------------------------------------ */

/* Calls `each` for every row that is exported, with headings where no row is marked. */
static void each_row(struct export *x, void (*each)(struct export *, size_t row))
{
    const struct tui_table *t = x->t;
    uint8_t *seen = t->n_marked ? ds_calloc(x->s->n_rows, 1, "export", NULL) : NULL;

    if (t->n_marked && !seen) {
        x->out->failed = 1;
        return;
    }
    for (size_t i = 0; i < t->n_shown; i++) {
        size_t row = t->shown[i];
        if (seen && !t->marked[row])
            continue;
        each(x, row);
        if (seen)
            seen[row] = 1;
    }
    for (size_t row = 0; seen && row < x->s->n_rows; row++)
        if (t->marked[row] && !seen[row] && !tui_row_is_heading(x->s, row))
            each(x, row);
    free(seen);
}

static int name_taken(const struct export *x, size_t column)
{
    for (size_t i = 0; i < column; i++)
        if (strcmp(x->names[i], x->names[column]) == 0)
            return 1;
    return 0;
}

/* Names under a heading, such that each is one: objects by name would lose a column. */
static void read_names(struct export *x, size_t heading)
{
    x->heading = heading;
    for (size_t i = 0; i < x->s->n_columns; i++) {
        char name[480];
        tui_section_column(x->s, heading, i, name, sizeof name);
        int own = heading != TUI_NOWHERE && tui_row_kind(x->s, heading) == TUI_ROW_HEADS;
        int none = own && i && !name[0]; /* not a column of this section */
        if (own && !i)
            tui_section_column(x->s, TUI_NOWHERE, i, name, sizeof name);
        if (!name[0] && !none)
            snprintf(name, sizeof name, i ? "column %zu" : "name", i + 1);
        snprintf(x->names[i], sizeof x->names[i], "%s", name);
        for (size_t k = 2; !none && name_taken(x, i); k++)
            snprintf(x->names[i], sizeof x->names[i], "%s %zu", name, k);
    }
}

static void heading_title(const struct export *x, struct tui_value *v)
{
    if (x->heading == TUI_NOWHERE)
        memset(v, 0, sizeof *v);
    else
        tui_row_cell(x->s, x->heading, 0, v);
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* A whole number as it was written, if it is what the key is: a double holds none above 2^53. */
static int whole_text(const struct tui_value *v)
{
    const char *p = v->text + (v->text[0] == '-');
    size_t n = strspn(p, "0123456789");

    return n > 0 && n < 24 && !p[n] && (p[0] != '0' || n == 1) && strtod(v->text, NULL) == v->key;
}

static void put_number(struct ds_buf *out, const struct tui_value *v, const char *quote)
{
    char text[40];

    if (!isfinite(v->key)) {
        ds_buf_printf(out, "%s%s%s", quote,
                      isnan(v->key) ? "NaN"
                      : v->key > 0  ? "Inf"
                                    : "-Inf",
                      quote);
        return;
    }
    if (v->key == 0 && signbit(v->key)) { /* "-0" would be read as the integer 0 */
        ds_buf_puts(out, "-0.0");
        return;
    }
    if (whole_text(v)) {
        ds_buf_puts(out, v->text);
        return;
    }
    snprintf(text, sizeof text, "%.9g", v->key);
    if (strtod(text, NULL) != v->key)
        snprintf(text, sizeof text, "%.17g", v->key);
    ds_buf_puts(out, text);
}

static void put_json_text(struct ds_buf *out, const char *text)
{
    struct ds_buf safe = {0};

    ds_buf_escape(&safe, text, (size_t)-1);
    ds_buf_puts(out, "\"");
    for (const char *p = safe.data; p && *p; p++) {
        if (*p == '"' || *p == '\\')
            ds_buf_add(out, "\\", 1);
        ds_buf_add(out, p, 1);
    }
    ds_buf_puts(out, "\"");
    out->failed |= safe.failed;
    ds_buf_free(&safe);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void widen(struct export *x, size_t column, const char *text)
{
    int w = tui_text_width(text, 0);

    if (x->widths[column] < w)
        x->widths[column] = w;
}

static void measure_row(struct export *x, size_t row)
{
    int kind = tui_row_kind(x->s, row);
    struct tui_value v;

    for (size_t i = 0; i < x->s->n_columns && (kind == TUI_ROW || kind == TUI_ROW_HEADS); i++) {
        tui_row_cell(x->s, row, i, &v);
        widen(x, i, tui_cell_text(&v));
    }
}

static void spaces(struct ds_buf *out, int n)
{
    for (; n > 0; n--)
        ds_buf_add(out, " ", 1);
}

/* Spaces at the end of the line are left out: `held` are those that nothing came behind yet. */
static void put_aligned(struct export *x, size_t column, const char *text, int *held)
{
    int w = tui_text_width(text, 0), rest = x->widths[column] - w;
    int align = x->s->columns[column].align;
    int before = align == TUI_RIGHT ? rest : align == TUI_CENTRE ? rest / 2 : 0;

    if (x->widths[column] == 0)
        return;
    *held += before;
    if (text[0]) {
        spaces(x->out, *held);
        ds_buf_escape(x->out, text, (size_t)-1);
        *held = 0;
    } else {
        *held += w;
    }
    *held += rest - before + 1;
}

static void text_row(struct export *x, size_t row)
{
    int kind = tui_row_kind(x->s, row), held = 0;
    struct tui_value v;

    if (kind == TUI_ROW_SECTION || kind == TUI_ROW_HEADS)
        ds_buf_puts(x->out, x->rows ? "\n" : "");
    x->rows = 1;
    if (kind == TUI_ROW_SECTION || kind == TUI_ROW_TEXT) {
        tui_row_cell(x->s, row, 0, &v);
        ds_buf_escape(x->out, tui_cell_text(&v), (size_t)-1);
    }
    for (size_t i = 0; i < x->s->n_columns && (kind == TUI_ROW || kind == TUI_ROW_HEADS); i++) {
        tui_row_cell(x->s, row, i, &v);
        put_aligned(x, i, tui_cell_text(&v), &held);
    }
    ds_buf_puts(x->out, "\n");
}

static void export_text(struct export *x)
{
    char name[512];
    int held = 0, named = 0;

    each_row(x, measure_row);
    for (size_t i = 0; i < x->s->n_columns; i++) {
        tui_section_column(x->s, TUI_NOWHERE, i, name, sizeof name);
        named |= name[0] != 0;
        widen(x, i, name);
    }
    for (size_t i = 0; i < x->s->n_columns && named; i++) {
        tui_section_column(x->s, TUI_NOWHERE, i, name, sizeof name);
        put_aligned(x, i, name, &held);
    }
    if (named)
        ds_buf_puts(x->out, "\n");
    x->rows = named;
    each_row(x, text_row);
}

/* ---- tab-separated values -------------------------------------------------------------------- */

static void tsv_heads(struct export *x)
{
    const char *tab = "";

    if (x->sections) {
        ds_buf_puts(x->out, "section");
        tab = "\t";
    }
    for (size_t i = 0; i < x->s->n_columns; i++) {
        ds_buf_puts(x->out, tab);
        ds_buf_escape(x->out, x->names[i], (size_t)-1);
        tab = "\t";
    }
    ds_buf_puts(x->out, "\n");
}

/* Follows the headings that rows are under; 1: `row` is one itself. Where all shown rows come by, so do their
 * headings; marked rows are asked for theirs. */
static int under(struct export *x, size_t row)
{
    int is_heading = tui_row_is_heading(x->s, row);
    size_t heading = is_heading ? row : x->t->n_marked ? tui_row_section(x->s, row) : x->heading;

    if (heading != x->heading)
        read_names(x, heading);
    return is_heading;
}

static void tsv_row(struct export *x, size_t row)
{
    struct tui_value v;

    if (under(x, row))
        return;
    size_t names = x->heading != TUI_NOWHERE && tui_row_kind(x->s, x->heading) == TUI_ROW_HEADS
                       ? x->heading
                       : TUI_NOWHERE;
    if (!x->rows || names != x->named)
        tsv_heads(x);
    x->rows = 1;
    x->named = names;
    if (x->sections) {
        heading_title(x, &v);
        ds_buf_escape(x->out, tui_cell_text(&v), (size_t)-1);
    }
    size_t n = tui_row_kind(x->s, row) == TUI_ROW_TEXT ? 1 : x->s->n_columns;
    for (size_t i = 0; i < n; i++) {
        ds_buf_puts(x->out, i || x->sections ? "\t" : "");
        tui_row_cell(x->s, row, i, &v);
        if (v.null)
            continue;
        if (v.numeric)
            put_number(x->out, &v, "");
        else
            ds_buf_escape(x->out, tui_cell_text(&v), (size_t)-1);
    }
    ds_buf_puts(x->out, "\n");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_member(struct export *x, const char *name, const struct tui_value *v, int *any)
{
    ds_buf_puts(x->out, *any ? ", " : "{");
    *any = 1;
    put_json_text(x->out, name);
    ds_buf_puts(x->out, ": ");
    if (v->null)
        ds_buf_puts(x->out, "null");
    else if (v->numeric)
        put_number(x->out, v, "\"");
    else
        put_json_text(x->out, tui_cell_text(v));
}

static void json_row(struct export *x, size_t row)
{
    struct tui_value v;
    int any = 0;

    if (under(x, row))
        return;
    ds_buf_puts(x->out, x->rows ? ",\n  " : "\n  ");
    x->rows = 1;
    if (x->heading != TUI_NOWHERE) {
        heading_title(x, &v);
        v.numeric = v.null = 0;
        json_member(x, "section", &v, &any);
    }
    if (tui_row_kind(x->s, row) == TUI_ROW_TEXT) {
        tui_row_cell(x->s, row, 0, &v);
        v.numeric = v.null = 0;
        json_member(x, "text", &v, &any);
    } else {
        for (size_t i = 0; i < x->s->n_columns; i++) {
            if (!x->names[i][0])
                continue;
            tui_row_cell(x->s, row, i, &v);
            json_member(x, x->names[i], &v, &any);
        }
    }
    ds_buf_puts(x->out, "}");
}

static void export_json(struct export *x)
{
    ds_buf_puts(x->out, "{\"schema\": \"driftscope.table/1\", \"table\": ");
    put_json_text(x->out, x->s->name ? x->s->name : "");
    ds_buf_puts(x->out, ", \"rows\": [");
    each_row(x, json_row);
    ds_buf_puts(x->out, x->rows ? "\n]}\n" : "]}\n");
}

void tui_table_export(const struct tui_table *t, int format, struct ds_buf *out)
{
    struct export x = {.t = t, .s = &t->source, .out = out};

    x.names = ds_calloc(t->source.n_columns, sizeof *x.names, "export", NULL);
    x.widths = ds_calloc(t->source.n_columns, sizeof *x.widths, "export", NULL);
    if (!x.names || !x.widths) {
        out->failed = 1;
    } else {
        for (size_t row = 0; t->source.kind && row < t->source.n_rows && !x.sections; row++)
            x.sections = tui_row_is_heading(&t->source, row);
        read_names(&x, TUI_NOWHERE);
        if (format == TUI_JSON) {
            export_json(&x);
        } else if (format == TUI_TSV) {
            each_row(&x, tsv_row);
            if (!x.rows)
                tsv_heads(&x);
        } else {
            export_text(&x);
        }
    }
    free(x.names);
    free(x.widths);
}
