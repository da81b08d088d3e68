/* view_fixture.h: a view on a record that a test wrote, as the frame would draw it. */
#ifndef VIEW_FIXTURE_H
#define VIEW_FIXTURE_H

#include "tests/unit/tui/data_fixture.h"
#include "tui/view.h"

struct shown {
    struct tui_data *data;
    struct tui_place place;
    struct tui_context context;
    struct tui_view view;
    struct tui_canvas canvas;
    char why[256];
    struct ds_buf text; /* of the screen: head, table, panel */
};

static inline void shown_open(struct shown *s, const struct tui_view_ops *ops, const char *path,
                              const char *path_b, int lines, int columns)
{
    memset(s, 0, sizeof *s);
    s->data = open_data(path, path_b, 0);
    assert_int_equal(tui_data_wait(s->data, LONG), 0);
    s->view.ops = ops;
    s->context = (struct tui_context){.data = s->data,
                                      .place = &s->place,
                                      .ascii = 1,
                                      .lines = lines,
                                      .columns = columns,
                                      .program = "driftscope"};
}

static inline void shown_close(struct shown *s)
{
    if (s->view.ops->free_own)
        s->view.ops->free_own(&s->view);
    free(s->view.head);
    free(s->view.head_role);
    tui_table_free(&s->view.table);
    tui_canvas_free(&s->canvas);
    ds_buf_free(&s->text);
    tui_data_close(s->data);
}

static inline int shown_load(struct shown *s)
{
    tui_data_turn(s->data);
    s->context.whole = tui_data_whole(s->data);
    s->why[0] = '\0';
    return s->view.ops->load(&s->view, &s->context, s->why);
}

/* Without title, status and keys. */
static inline const char *shown_draw(struct shown *s)
{
    struct tui_want want = {0};
    struct tui_layout l;
    struct tui_canvas *c = &s->canvas;
    assert_int_equal(shown_load(s), TUI_READY);
    if (s->view.ops->want)
        s->view.ops->want(&s->view, &s->context, &want);
    tui_layout(s->context.lines, s->context.columns, &want, &l);
    tui_canvas_free(c);
    assert_int_equal(tui_canvas_new(c, s->context.lines, s->context.columns, 1, NULL), 0);
    for (int i = 0; i < l.head.h && i < s->view.n_head; i++)
        tui_put(c, l.head.y + i, l.head.x, l.head.w, s->view.head_role[i], 0, s->view.head[i]);
    tui_table_draw(&s->view.table, c, l.table);
    if (l.panel.h && s->view.ops->panel)
        s->view.ops->panel(&s->view, &s->context, c, l.panel);
    ds_buf_free(&s->text);
    tui_canvas_text(c, &s->text);
    return s->text.data;
}

static inline void assert_line(struct shown *s, const char *line)
{
    const char *text = shown_draw(s);
    if (!strstr(text, line)) {
        fprintf(stderr, "%s", text); /* longer than what cmocka prints */
        fail_msg("not on the screen: '%s'", line);
    }
}

/* Puts the cursor on the first row that fits a filter's words. */
static inline void shown_find(struct shown *s, const char *words)
{
    struct tui_table *t = &s->view.table;
    struct ds_error err = {.msg = ""};
    assert_int_equal(shown_load(s), TUI_READY);
    if (tui_table_filter(t, words, &err) != 0)
        fail_msg("%s: %s (%s)", words, err.msg, err.hint);
    tui_table_end(t, 0);
    if (tui_table_row(t) == SIZE_MAX)
        fail_msg("no row fits '%s'\n%s", words, shown_draw(s));
    assert_int_equal(tui_table_filter(t, "", &err), 0);
}

/* -1: an error, which err has; else the view that Enter leads to, or -2: none. */
static inline int shown_enter(struct shown *s, struct ds_error *err)
{
    int next = -2;
    assert_int_equal(shown_load(s), TUI_READY);
    int rc = s->view.ops->request(&s->view, &s->context, TUI_ENTER, &next, err);
    return rc < 0 ? -1 : rc == 2 ? next : -2;
}

static inline void assert_command(struct shown *s, const char *want)
{
    struct ds_buf b = {0};
    assert_int_equal(shown_load(s), TUI_READY);
    s->view.ops->command(&s->view, &s->context, &b);
    assert_string_equal(b.data ? b.data : "", want);
    ds_buf_free(&b);
}

#endif
