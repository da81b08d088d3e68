/* view_help.c: keys, marks and commands: made from the tables that the program itself works by. */
#include "tui/command.h"
#include "tui/view.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_MARKS = sizeof TUI_MARKS - 1 };

struct line {
    const char *section;
    const struct tui_binding *key;
    const struct tui_command_def *command;
    int mark; /* + 1 */
};
struct help {
    struct line *lines;
    size_t n;
};

static const struct tui_column columns[] = {
    {.name = "key", .min = 16, .flags = TUI_COLUMN_FIXED},
    {.name = "command", .min = 18},
    {.name = "what it does"},
};

static void keys_text(const struct tui_binding *b, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (int k = 0; k < 3 && b->keys[k] && n < size; k++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", k ? " " : "", b->keys[k]);
}

static void cell(void *ctx, size_t row, size_t column, struct tui_value *out)
{
    const struct line *l = &((const struct help *)ctx)->lines[row];
    if (l->section) {
        snprintf(out->text, sizeof out->text, "%s", l->section);
        out->role = TUI_HEAD;
    } else if (l->mark) {
        char mark = TUI_MARKS[N_MARKS - l->mark];
        if (column == 0) {
            snprintf(out->text, sizeof out->text, "%c", mark);
            out->role = tui_mark_role(mark);
        } else if (column == 2) {
            snprintf(out->text, sizeof out->text, "%s", tui_mark_words(mark));
        }
    } else if (column == 0) {
        out->role = TUI_KEY;
        if (l->key)
            keys_text(l->key, out->text, sizeof out->text);
        else
            snprintf(out->text, sizeof out->text, ":%s", l->command->name);
    } else if (column == 1) {
        snprintf(out->text, sizeof out->text, "%s", l->key ? l->key->name : l->command->arguments);
    } else {
        snprintf(out->text, sizeof out->text, "%s", l->key ? l->key->help : l->command->help);
    }
}

static int kind(void *ctx, size_t row)
{
    return ((const struct help *)ctx)->lines[row].section ? TUI_ROW_SECTION : TUI_ROW;
}

static void fill(struct help *h)
{
    size_t n_keys, n_commands;
    const struct tui_binding *b = tui_bindings(&n_keys);
    const struct tui_command_def *c = tui_commands(&n_commands);
    for (size_t i = 0; i < n_keys; i++) {
        if (i == 0 || strcmp(b[i].group, b[i - 1].group) != 0)
            h->lines[h->n++] = (struct line){.section = b[i].group};
        h->lines[h->n++] = (struct line){.key = &b[i]};
    }
    h->lines[h->n++] = (struct line){.section = "Marks"};
    for (int i = 0; i < N_MARKS; i++)
        h->lines[h->n++] = (struct line){.mark = i + 1};
    h->lines[h->n++] = (struct line){.section = "Commands of the : prompt, and of scripts"};
    for (size_t i = 0; i < n_commands; i++)
        h->lines[h->n++] = (struct line){.command = &c[i]};
}

static int load(struct tui_view *v, const struct tui_context *c, char why[256])
{
    size_t n_keys, n_commands;
    struct ds_error err;
    (void)c;
    if (v->own)
        return TUI_READY;
    tui_bindings(&n_keys);
    tui_commands(&n_commands);
    struct help *h = ds_calloc(1, sizeof *h, "help", &err);
    if (h)
        h->lines = ds_calloc(2 * n_keys + n_commands + N_MARKS + 2, sizeof *h->lines, "help", &err);
    v->own = h;
    if (h && h->lines) {
        fill(h);
        struct tui_source s = {.ctx = h,
                               .columns = columns,
                               .n_columns = sizeof columns / sizeof columns[0],
                               .n_rows = h->n,
                               .cell = cell,
                               .kind = kind,
                               .name = "keys"};
        if (tui_table_source(&v->table, &s, &err) == 0)
            return TUI_READY;
    }
    snprintf(why, 256, "%.200s", err.msg);
    if (h)
        free(h->lines);
    free(h);
    v->own = NULL;
    return TUI_EMPTY;
}

static void free_own(struct tui_view *v)
{
    struct help *h = v->own;
    if (h)
        free(h->lines);
    free(h);
    v->own = NULL;
}

static void want(const struct tui_view *v, const struct tui_context *c, struct tui_want *out)
{
    (void)v;
    *out = (struct tui_want){.panel_lines = c->lines >= 18 && c->columns < 130 ? 3 : 0};
}

/* The whole text of the line under the cursor: on 80 columns the table cuts the longer ones. */
static void panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                  struct tui_rect r)
{
    size_t row = tui_table_row(&v->table);
    struct tui_value key = {0}, of = {0}, text = {0};
    struct tui_page p = {canvas, r, 0};

    (void)c;
    if (row == SIZE_MAX || kind(v->own, row) != TUI_ROW)
        return;
    cell(v->own, row, 0, &key);
    cell(v->own, row, 1, &of);
    cell(v->own, row, 2, &text);
    tui_page_line(&p, TUI_HEAD, "%s%s%s", key.text, of.text[0] ? "  " : "", of.text);
    tui_page_line(&p, TUI_PLAIN, "%s", text.text);
}

const struct tui_view_ops tui_view_help = {
    .name = "help",
    .hints = "search-prompt filter-prompt page-down page-up",
    .load = load,
    .want = want,
    .panel = panel,
    .free_own = free_own,
};
