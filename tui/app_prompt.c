/* app_prompt.c: the prompt at work: search while typing, filter, commands; and export. */
#include "tui/app.h"

#include "base/clock.h"
#include "base/rename.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names for completion -------------------------------------------------------------------- */

struct names {
    struct tui_app *a;
    char text[96];
};

static const char *site_name(struct names *n, size_t i)
{
    const struct ds_header *h = n->a->whole->header;
    if (!h || i >= h->n_sites)
        return NULL;
    const struct ds_site *s = &h->sites[i];
    snprintf(n->text, sizeof n->text, "%d,%s%s%s", s->layer, s->stage, s->part[0] ? "/" : "",
             s->part);
    return n->text;
}

static const char *name_of(void *ctx, int kind, const char *before, size_t i)
{
    struct names *n = ctx;
    const struct tui_table *t = &tui_app_view(n->a)->table;
    switch (kind) {
    case TUI_WORD_SITE:
        return site_name(n, i);
    case TUI_WORD_VIEW:
        return i < TUI_VIEWS ? tui_views[i]->name : NULL;
    case TUI_WORD_COLUMN:
        if (i >= t->source.n_columns)
            return NULL;
        tui_table_column_name(t, i, n->text, sizeof n->text);
        for (char *p = n->text; *p; p++)
            *p = *p == ' ' ? '_' : *p;
        return n->text;
    case TUI_WORD_VALUE:
        if (strcmp(before, "metric") == 0)
            return i < TUI_METRICS ? tui_metric_word((int)i) : NULL;
        if (strcmp(before, "number") == 0)
            return i < TUI_NUMBERS ? tui_number_name((int)i) : NULL;
        return i == 0 ? "on" : i == 1 ? "off" : NULL;
    default:
        return NULL;
    }
}

static void complete(struct tui_app *a)
{
    struct names ctx = {.a = a};
    struct tui_names names = {name_of, &ctx};
    struct ds_buf out = {0};
    size_t begin;
    if (a->prompt.kind != TUI_PROMPT_COMMAND)
        return;
    tui_command_complete(a->prompt.text, a->prompt.at, &names, &begin, &out);
    tui_prompt_offer(&a->prompt, begin, out.data && !out.failed ? out.data : "");
    ds_buf_free(&out);
}

/* ---- search and filter while typing ------------------------------------------------------------ */

void tui_app_open_prompt(struct tui_app *a, int kind)
{
    struct tui_table *t = &tui_app_view(a)->table;
    a->search_from = t->cursor;
    a->search_top = t->top;
    snprintf(a->filter_before, sizeof a->filter_before, "%s", t->filter);
    tui_prompt_open(&a->prompt, kind, kind == TUI_PROMPT_FILTER ? t->filter : "");
}

static void to_start(struct tui_app *a)
{
    struct tui_table *t = &tui_app_view(a)->table;
    if (a->search_from < t->n_shown) {
        t->cursor = a->search_from;
        t->top = a->search_top;
    }
}

static void moved(struct tui_app *a)
{
    struct tui_view *v = tui_app_view(a);
    a->placed = 3;
    if (v->ops->moved)
        v->ops->moved(v, &a->context);
}

/* In a large table neither the next key nor the sight of this one waits for what this one asked. */
static int leaves_off(void *ctx)
{
    const struct tui_app *a = ctx;
    return a->input() || ds_seconds(CLOCK_MONOTONIC) >= a->typed_until;
}

static void find_typed(struct tui_app *a, double patience)
{
    struct tui_table *t = &tui_app_view(a)->table;
    struct ds_error err;
    int wrapped;
    a->unfinished = 0;
    if (!tui_app_ready(a))
        return;
    a->typed_until = ds_seconds(CLOCK_MONOTONIC) + patience;
    t->stop = a->input ? leaves_off : NULL;
    t->stop_ctx = a;
    if (a->prompt.kind == TUI_PROMPT_SEARCH) {
        to_start(a);
        tui_table_search(t, a->prompt.text, 0, &wrapped);
    } else if (a->prompt.kind == TUI_PROMPT_FILTER) {
        tui_table_filter(t, a->prompt.text, &err); /* half a word may be no column yet */
    }
    a->unfinished = t->stop && t->stopped;
    t->stop = NULL;
}

static void typed(struct tui_app *a)
{
    find_typed(a, a->patience);
}

void tui_app_finish(struct tui_app *a)
{
    find_typed(a, (double)INFINITY);
}

static void typed_all(struct tui_app *a, int kind, const char *text)
{
    struct tui_table *t = &tui_app_view(a)->table;
    struct ds_error err = {{0}, {0}};
    int wrapped = 0;
    if (kind == TUI_PROMPT_COMMAND) {
        if (tui_app_command(a, text, &err) != 0)
            tui_app_say_error(a, &err);
        return;
    }
    if (!tui_app_ready(a))
        return;
    if (kind == TUI_PROMPT_SEARCH) {
        to_start(a);
        if (tui_table_search(t, text, 0, &wrapped) != 0)
            tui_app_say(a, TUI_PLAIN, "'%s' is not in this view", text);
    } else if (tui_table_filter(t, text, &err) != 0) {
        tui_table_filter(t, a->filter_before, NULL);
        tui_app_say_error(a, &err);
    }
    moved(a);
}

void tui_app_prompt_key(struct tui_app *a, const char *key)
{
    struct tui_table *t = &tui_app_view(a)->table;
    char text[TUI_PROMPT_TEXT];
    int kind = a->prompt.kind, what = tui_prompt_key(&a->prompt, key);
    if (what == TUI_DONE || what == TUI_GIVEN_UP)
        a->unfinished = 0;
    if (what == TUI_COMPLETE)
        complete(a);
    else if (what == TUI_TYPED)
        typed(a);
    else if (what == TUI_DONE) {
        memcpy(text, a->prompt.text, sizeof text);
        tui_prompt_close(&a->prompt, 1);
        typed_all(a, kind, text);
    } else if (what == TUI_GIVEN_UP) {
        tui_prompt_close(&a->prompt, 0);
        if (kind == TUI_PROMPT_SEARCH && tui_app_ready(a)) {
            tui_table_search(t, "", 0, &what);
            to_start(a);
        } else if (kind == TUI_PROMPT_FILTER && tui_app_ready(a)) {
            tui_table_filter(t, a->filter_before, NULL);
            to_start(a);
        }
    }
}

/* ---- export ---------------------------------------------------------------------------------- */

int tui_write_file(const char *path, int force, const struct ds_buf *text, struct ds_error *err)
{
    struct stat st;
    char beside[1100];
    if (text->failed)
        return ds_fail(err, "out of memory");
    int there = lstat(path, &st) == 0;
    if (there && !force) {
        ds_fail(err, "%.300s: is there already", path);
        return ds_hint(err, "export! replaces it");
    }
    if (there && !S_ISREG(st.st_mode))
        return ds_fail(err, "%.300s: is no regular file", path);
    /* A record may be hours of a machine's work; a slip of the hand must not put a screen in its place. */
    const char *kept = there ? ds_file_kept(path) : NULL;
    if (kept)
        return ds_fail(err, "%.300s: is %s, which is not replaced", path, kept);
    if (snprintf(beside, sizeof beside, "%s.XXXXXX", path) >= (int)sizeof beside)
        return ds_fail(err, "the file name is too long");
    int fd = mkstemp(beside), saved = errno;
    if (fd < 0)
        return ds_fail(err, "%.300s: cannot create: %s", path, strerror(saved));
    mode_t mask = umask(0);
    umask(mask);
    int rc =
        ds_buf_write(text, fd) != 0 || fchmod(fd, there ? st.st_mode & 07777 : 0666 & ~mask) != 0
            ? -1
            : 0;
    saved = errno;
    if (close(fd) != 0 && rc == 0) {
        rc = -1;
        saved = errno;
    }
    /* A file that came meanwhile is not replaced, either. */
    if (rc == 0 && (force ? rename(beside, path) : ds_rename_new(beside, path)) != 0) {
        rc = -1;
        saved = errno;
    }
    if (rc != 0)
        unlink(beside);
    return rc == 0 ? 0 : ds_fail(err, "%.300s: cannot write: %s", path, strerror(saved));
}

static int format_of(const char *format, const char *path, struct ds_error *err)
{
    static const char *const names[] = {
        [TUI_TEXT] = "text", [TUI_TSV] = "tsv", [TUI_JSON] = "json"};
    const char *dot = strrchr(path, '.');
    for (int i = 0; format[0] && i < 3; i++)
        if (strcmp(format, names[i]) == 0)
            return i;
    if (format[0])
        return ds_fail(err, "'%.40s' is no format: text, tsv or json", format);
    /* Without one the file's name says which. */
    return dot && strcmp(dot, ".json") == 0  ? TUI_JSON
           : dot && strcmp(dot, ".tsv") == 0 ? TUI_TSV
                                             : TUI_TEXT;
}

int tui_app_export(struct tui_app *a, const char *path, const char *format, int force,
                   struct ds_error *err)
{
    const struct tui_table *t = &tui_app_view(a)->table;
    struct ds_buf out = {0};
    char full[1024];
    int f = format_of(format, path, err);
    if (f < 0)
        return -1;
    if (!tui_app_ready(a))
        return ds_fail(err, "there is nothing to export: %s", a->why);
    const char *home = path[0] == '~' && path[1] == '/' ? getenv("HOME") : NULL;
    if (snprintf(full, sizeof full, "%s%s", home ? home : "", home ? path + 1 : path) >=
        (int)sizeof full)
        return ds_fail(err, "the file name is too long");
    tui_table_export(t, f, &out);
    int rc = tui_write_file(full, force, &out, err);
    ds_buf_free(&out);
    if (rc == 0) {
        size_t marks = tui_table_marks(t), lines = marks ? marks : tui_app_lines(t, t->n_shown);
        tui_app_say(a, TUI_PLAIN, "%zu %sline%s in %.300s", lines, marks ? "marked " : "",
                    lines == 1 ? "" : "s", path);
    }
    return rc;
}
