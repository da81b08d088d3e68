/* app_command.c: what the commands of command.h do. */
#include "tui/app.h"

#include "base/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char *text, int64_t *out, struct ds_error *err)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || text[0] == ' ')
        return ds_fail(err, "'%.40s' is no whole number", text);
    *out = n;
    return 0;
}

/* The index of a word among `n` names; -1 with an error that names the nearest. */
static int one_of(const char *what, const char *word, const char *const *names, size_t n,
                  struct ds_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], word) == 0)
            return (int)i;
    int near = ds_nearest(word, names, n);
    struct ds_buf all = {0};
    for (size_t i = 0; i < n; i++)
        ds_buf_printf(&all, "%s%s", i ? ", " : "", names[i]);
    ds_fail(err, "there is no %s '%.60s'", what, word);
    if (near >= 0)
        ds_hint(err, "did you mean '%s'?", names[near]);
    else if (all.data && !all.failed)
        ds_hint(err, "%.400s", all.data);
    ds_buf_free(&all);
    return -1;
}

static int to_view(struct tui_app *a, const char *word, struct ds_error *err)
{
    const char *names[TUI_ALL_VIEWS];
    for (int i = 0; i < TUI_ALL_VIEWS; i++)
        names[i] = a->views[i].ops->name;
    int view = one_of("view", word, names, TUI_ALL_VIEWS, err);
    if (view < 0)
        return -1;
    tui_app_open(a, view, view != TUI_HELP_VIEW, &a->place);
    return 0;
}

static int set(struct tui_app *a, const char *setting, const char *value, struct ds_error *err)
{
    static const char *const settings[] = {"metric", "number", "ascii"}, *const onoff[] = {"off",
                                                                                           "on"};
    const char *names[TUI_METRICS + TUI_NUMBERS];
    int which = one_of("setting", setting, settings, 3, err), n;
    if (which < 0)
        return -1;
    if (which == 2) {
        if ((n = one_of("value", value, onoff, 2, err)) < 0)
            return -1;
        if (!n && a->o->ascii)
            return ds_fail(err, "the terminal or --ascii allows ASCII only");
        a->ascii = n;
        return 0;
    }
    size_t most = which ? TUI_NUMBERS : TUI_METRICS;
    for (size_t i = 0; i < most; i++)
        names[i] = which ? tui_number_name((int)i) : tui_metric_word((int)i);
    if ((n = one_of("value", value, names, most, err)) < 0)
        return -1;
    *(which ? &a->place.number : &a->place.metric) = n;
    return 0;
}

static int sort(struct tui_table *t, const struct tui_line *l, struct ds_error *err)
{
    int descending = l->n_words == 2;
    if (descending && strcmp(l->word[1], "desc") != 0)
        return ds_fail(err, "'%.40s' is no order: desc, or nothing", l->word[1]);
    const size_t column = l->n_words ? tui_table_find_column(t, l->word[0]) : 0;
    if (column == SIZE_MAX)
        return ds_fail(err, "this view has no column '%.60s'", l->word[0]);
    return tui_table_sort(t, l->n_words ? (int)column + 1 : 0, descending, err);
}

static int in_table(struct tui_app *a, const struct tui_line *l, struct ds_error *err)
{
    struct tui_view *v = tui_app_view(a);
    int wrapped, rc;
    if (!tui_app_ready(a))
        return ds_fail(err, "not yet: %s", a->why);
    if (l->id == TUI_CMD_SORT)
        rc = sort(&v->table, l, err);
    else if (l->id == TUI_CMD_FILTER)
        rc = tui_table_filter(&v->table, l->word[0], err);
    else if ((rc = tui_table_search(&v->table, l->word[0], 0, &wrapped)) != 0)
        ds_fail(err, "'%.60s' is not in this view", l->word[0]);
    if (rc == 0) {
        a->placed = 3;
        if (v->ops->moved)
            v->ops->moved(v, &a->context);
    }
    return rc;
}

static int press(struct tui_app *a, const struct tui_line *l, struct ds_error *err)
{
    char name[16], text[520];
    const char *p = l->word[0];
    int rc;
    if (l->id == TUI_CMD_KEY) { /* a name is like one in <> */
        size_t n = strlen(p);
        if (ds_utf8_len(p, n) != (int)n) {
            snprintf(text, sizeof text, "<%s>", p);
            p = text;
        }
    }
    while ((rc = tui_command_next_key(&p, name, err)) > 0) {
        tui_app_key(a, name);
        if (tui_app_settle(a, err) != 0)
            return -1;
    }
    return rc;
}

static int size(struct tui_app *a, const char *word, struct ds_error *err)
{
    int columns, lines, used = 0;
    if (sscanf(word, "%dx%d%n", &columns, &lines, &used) != 2 || word[used] || columns < 1 ||
        lines < 1 || columns > 1000 || lines > 1000)
        return ds_fail(err, "'%.40s' is no size: 120x40 is 120 columns and 40 lines", word);
    if (!a->resize)
        return ds_fail(err, "the terminal has the size that it has");
    a->resize(a, lines, columns);
    return 0;
}

static int save_display(struct tui_app *a, const struct tui_line *l, struct ds_error *err)
{
    struct ds_buf out = {0};
    if (l->n_words == 2 && strcmp(l->word[1], "attributes") != 0)
        return ds_fail(err, "'%.40s': only 'attributes' can follow", l->word[1]);
    if (tui_app_settle(a, err) != 0)
        return -1;
    if (a->screen)
        a->screen(a, l->n_words == 2, &out);
    else
        tui_canvas_text(&a->canvas, &out);
    int rc = tui_write_file(l->word[0], 1, &out, err);
    ds_buf_free(&out);
    return rc;
}

int tui_app_do(struct tui_app *a, const struct tui_line *l, struct ds_error *err)
{
    int64_t n;
    switch (l->id) {
    case TUI_CMD_NONE:
        return 0;
    case TUI_CMD_REQUEST:
        tui_app_request(a, l->request);
        return 0;
    case TUI_CMD_GOTO:
        return tui_app_go_site(a, l->word[0], err);
    case TUI_CMD_ARM:
        return number(l->word[0], &n, err) != 0 ? -1 : tui_app_go_arm(a, n, err);
    case TUI_CMD_REF:
        return number(l->word[0], &n, err) != 0 ? -1 : tui_app_go_ref(a, n, err);
    case TUI_CMD_VIEW:
        return to_view(a, l->word[0], err);
    case TUI_CMD_SET:
        return set(a, l->word[0], l->word[1], err);
    case TUI_CMD_SORT:
    case TUI_CMD_FILTER:
    case TUI_CMD_SEARCH:
        return in_table(a, l, err);
    case TUI_CMD_EXPORT:
        return tui_app_export(a, l->word[0], l->word[1], l->force, err);
    case TUI_CMD_KEY:
    case TUI_CMD_KEYS:
        return press(a, l, err);
    case TUI_CMD_SIZE:
        return size(a, l->word[0], err);
    case TUI_CMD_SAVE_DISPLAY:
        return save_display(a, l, err);
    case TUI_CMD_WAIT:
        return tui_app_settle(a, err);
    default:
        return ds_fail(err, "'%s' is no command", l->def ? l->def->name : "this");
    }
}

int tui_app_command(struct tui_app *a, const char *text, struct ds_error *err)
{
    struct tui_line line;
    return tui_command_parse(text, &line, err) != 0 ? -1 : tui_app_do(a, &line, err);
}
