/* table_sample.h: a small table of every kind of row and cell, and ways to look at what is drawn. */
#ifndef TABLE_SAMPLE_H
#define TABLE_SAMPLE_H

#include "base/buf.h"
#include "tui/table.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct sample_cell {
    const char *text;
    int numeric;
    double key;
    int null;
};
#define T(t)                                                                                       \
    {                                                                                              \
        t, 0, 0.0, 0                                                                               \
    }
#define N(t, k)                                                                                    \
    {                                                                                              \
        t, 1, k, 0                                                                                 \
    }
#define NONE                                                                                       \
    {                                                                                              \
        "-", 0, 0.0, 1                                                                             \
    }

enum { SAMPLE_COLUMNS = 4 };
struct sample_row {
    int kind, is;
    struct sample_cell cell[SAMPLE_COLUMNS];
};
static const struct tui_column sample_columns[SAMPLE_COLUMNS] = {
    {"site", TUI_LEFT, TUI_COLUMN_FIXED, 0, 0},
    {"rows", TUI_RIGHT, 0, 0, 0},
    {"max ULP", TUI_RIGHT, 0, 0, 0},
    {"kernel", TUI_LEFT, 0, 0, 0},
};
static const struct sample_row sample_rows[] = {
    {TUI_ROW_SECTION, 0, {T("prefill")}},
    {TUI_ROW, TUI_IS_DRIFT, {T("L2 q_proj"), N("4", 4), N("17", 17), T("matmul/openblas")}},
    {TUI_ROW, 0, {T("L10 q_proj"), N("12", 12), N("nan", NAN), T("matmul/openblas")}},
    {TUI_ROW,
     TUI_IS_DRIFT | TUI_IS_JUMP,
     {T("L1 attn_out"), N("7", 7), N("2", 2), T("attention/Vendor")}},
    {TUI_ROW_TEXT, 0, {T("not all rows of L1 are in the record")}},
    {TUI_ROW_SECTION, 0, {T("decode")}},
    {TUI_ROW, 0, {T("L1 o_proj"), N("0", 0), NONE, T("matmul/openblas")}},
    {TUI_ROW, TUI_IS_ORIGIN, {T("L0 embed"), N("1", 1), N("3", 3), T("embed/rows")}},
};
enum { SAMPLE_ROWS = (int)(sizeof sample_rows / sizeof sample_rows[0]) };

static inline void sample_cell(void *ctx, size_t row, size_t column, struct tui_value *out)
{
    const struct sample_cell *c = &((const struct sample_row *)ctx)[row].cell[column];

    snprintf(out->text, sizeof out->text, "%s", c->text ? c->text : "");
    out->numeric = c->numeric;
    out->key = c->key;
    out->null = c->null;
}

static inline int sample_kind(void *ctx, size_t row)
{
    return ((const struct sample_row *)ctx)[row].kind;
}

static inline int sample_is(void *ctx, size_t row, size_t column)
{
    (void)column;
    return ((const struct sample_row *)ctx)[row].is;
}

static inline struct tui_source sample_source(const struct sample_row *rows, size_t n)
{
    return (struct tui_source){.ctx = (void *)(uintptr_t)rows,
                               .columns = sample_columns,
                               .n_columns = SAMPLE_COLUMNS,
                               .n_rows = n,
                               .cell = sample_cell,
                               .kind = sample_kind,
                               .is = sample_is,
                               .name = "sites"};
}

static inline void sample_open(struct tui_table *t)
{
    struct tui_source s = sample_source(sample_rows, SAMPLE_ROWS);

    memset(t, 0, sizeof *t);
    assert_int_equal(tui_table_source(t, &s, NULL), 0);
}

/* What the table looks like in h lines of w cells, '|' at the end of each. */
static inline void assert_drawn(struct tui_table *t, int h, int w, int ascii, const char *want)
{
    struct tui_canvas c;
    struct ds_buf got = {0};

    assert_int_equal(tui_canvas_new(&c, h, w, ascii, NULL), 0);
    tui_table_draw(t, &c, (struct tui_rect){0, 0, h, w});
    tui_canvas_text(&c, &got);
    if (strcmp(got.data, want) != 0)
        fail_msg("drawn:\n%swanted:\n%s", got.data, want);
    ds_buf_free(&got);
    tui_canvas_free(&c);
}

/* The source rows that are shown, as "1 2 3". */
static inline void assert_shown(const struct tui_table *t, const char *want)
{
    struct ds_buf got = {0};

    ds_buf_puts(&got, "");
    for (size_t i = 0; i < t->n_shown; i++)
        ds_buf_printf(&got, "%s%zu", i ? " " : "", t->shown[i]);
    assert_string_equal(got.data ? got.data : "", want);
    ds_buf_free(&got);
}

#endif
