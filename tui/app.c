/* app.c: the frame: what a key does that is the same in all views. See app.h. */
#include "tui/app.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------------------ */

static int view_of_name(const char *name)
{
    for (int i = 0; name && i < TUI_VIEWS; i++)
        if (strcmp(tui_views[i]->name, name) == 0)
            return i;
    return -1;
}

static int first_view(const struct ds_tui_options *o, struct ds_error *err)
{
    if (o->view) {
        int view = view_of_name(o->view);
        return view >= 0 ? view : ds_fail(err, "there is no view '%.60s'", o->view);
    }
    return 0;
}

int tui_app_new(const struct ds_tui_options *o, struct tui_data *data, struct tui_app **out,
                struct ds_error *err)
{
    int first = first_view(o, err);
    *out = NULL;
    if (first < 0)
        return -1;
    struct tui_app *a = ds_calloc(1, sizeof *a, "screen", err);
    if (!a)
        return -1;
    a->o = o;
    a->data = data;
    a->ascii = o->ascii;
    a->lines = TUI_MIN_LINES;
    a->columns = TUI_MIN_COLUMNS;
    a->cursor_y = -1;
    a->place.metric = TUI_METRIC_ULP;
    for (int i = 0; i < TUI_VIEWS; i++)
        a->views[i].ops = tui_views[i];
    a->views[TUI_HELP_VIEW].ops = &tui_view_help;
    a->stack[0].view = first;
    a->depth = 1;
    a->entered = 1;
    a->whole = tui_data_whole(data);
    tui_app_turn(a);
    *out = a;
    return 0;
}

void tui_app_free(struct tui_app *a)
{
    if (!a)
        return;
    for (int i = 0; i < TUI_ALL_VIEWS; i++) {
        struct tui_view *v = &a->views[i];
        if (v->ops && v->ops->free_own)
            v->ops->free_own(v);
        tui_table_free(&v->table);
        free(v->head);
        free(v->head_role);
    }
    tui_prompt_free(&a->prompt);
    tui_canvas_free(&a->canvas);
    free(a);
}

void tui_app_size(struct tui_app *a, int lines, int columns)
{
    a->lines = lines < 1 ? 1 : lines > 1000 ? 1000 : lines;
    a->columns = columns < 1 ? 1 : columns > 1000 ? 1000 : columns;
    a->drawn = 0;
}

int tui_app_turn(struct tui_app *a)
{
    int fresh = tui_data_turn(a->data);
    a->drawn = 0;
    a->whole = tui_data_whole(a->data);
    a->context = (struct tui_context){.data = a->data,
                                      .whole = a->whole,
                                      .place = &a->place,
                                      .ascii = a->ascii,
                                      .lines = a->lines,
                                      .columns = a->columns,
                                      .program = a->o->program ? a->o->program : "driftscope"};
    tui_app_begin(a);
    const char *note = a->whole->note ? a->whole->note : "";
    if (strncmp(a->noted, note, sizeof a->noted - 1) != 0) {
        if (strcmp(a->message, a->noted) == 0)
            a->message[0] = '\0';
        snprintf(a->noted, sizeof a->noted, "%s", note);
        if (note[0])
            tui_app_say(a, TUI_UNSTABLE, "%s", note);
    }
    return fresh;
}

/* Something is being read that this screen waits for, or the verdict. */
static int waits(const struct tui_app *a)
{
    return tui_data_pending(a->data) || a->state == TUI_WAITING;
}

/* ---- messages -------------------------------------------------------------------------------- */

void tui_app_say(struct tui_app *a, int role, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(a->message, sizeof a->message, fmt, ap);
    va_end(ap);
    a->message_role = role;
}

void tui_app_say_error(struct tui_app *a, const struct ds_error *err)
{
    if (err->hint[0])
        tui_app_say(a, TUI_ERROR, "%s (%s)", err->msg, err->hint);
    else
        tui_app_say(a, TUI_ERROR, "%s", err->msg);
}

/* ---- the table's requests -------------------------------------------------------------------- */

/* By the next column, or the other way round; the heading shows which. */
static void sort(struct tui_app *a, struct tui_table *t, int reverse)
{
    struct ds_error err = {{0}, {0}};
    int column = t->sort < 0 ? -t->sort : t->sort, n = (int)t->source.n_columns;
    int rc;
    if (reverse && column)
        rc = tui_table_sort(t, column, t->sort > 0, &err);
    else
        rc = tui_table_sort(t, reverse ? 1 : column >= n ? 0 : column + 1, reverse, &err);
    char name[64] = "";
    if (rc != 0) {
        tui_app_say_error(a, &err);
    } else if (t->sort) {
        tui_table_column_name(t, (size_t)(t->sort < 0 ? -t->sort : t->sort) - 1, name, sizeof name);
        tui_app_say(a, TUI_PLAIN, "sorted by %s%s", name[0] ? name : "a column without a name",
                    t->sort < 0 ? ", largest first" : "");
    } else {
        tui_app_say(a, TUI_PLAIN, "in the record's order");
    }
}

static void search(struct tui_app *a, struct tui_table *t, int step)
{
    char text[sizeof t->search];
    int wrapped = 0;
    snprintf(text, sizeof text, "%s", t->search);
    if (!text[0])
        tui_app_say(a, TUI_PLAIN, "nothing was searched yet: / searches");
    else if (tui_table_search(t, text, step, &wrapped) != 0)
        tui_app_say(a, TUI_PLAIN, "'%s' is not in this view", text);
    else if (wrapped)
        tui_app_say(a, TUI_PLAIN, step > 0 ? "went on at the top" : "went on at the bottom");
}

static void jump(struct tui_app *a, struct tui_table *t, int what, int step)
{
    static const char *const names[] = {
        [TUI_IS_DRIFT] = "drift", [TUI_IS_ORIGIN] = "origin", [TUI_IS_JUMP] = "jump in size"};
    if (t->source.is && tui_table_jump(t, what, step) == 0)
        return;
    if (what == TUI_IS_ORIGIN)
        tui_app_first_drift(a);
    else if (!t->source.is)
        tui_app_say(a, TUI_PLAIN, "nothing drifts in this view: 2 shows the layers");
    else
        tui_app_say(a, TUI_PLAIN, "no %s %s here", names[what],
                    step > 0 ? "further down" : "further up");
}

static void move_left_right(struct tui_table *t, int step)
{
    if (t->source.cell_cursor)
        tui_table_move(t, 0, step);
    else
        tui_table_pan(t, 8 * step);
}

/* Movement and marks; 0: the request is none of the table's. */
static int move_table(struct tui_app *a, struct tui_table *t, int request)
{
    switch (request) {
    case TUI_DOWN:
    case TUI_UP:
        tui_table_move(t, request == TUI_DOWN ? 1 : -1, 0);
        return 1;
    case TUI_HALF_DOWN:
    case TUI_HALF_UP:
        tui_table_page(t, request == TUI_HALF_DOWN ? 1 : -1);
        return 1;
    case TUI_PAGE_DOWN:
    case TUI_PAGE_UP:
        tui_table_page(t, request == TUI_PAGE_DOWN ? 2 : -2);
        return 1;
    case TUI_FIRST:
    case TUI_LAST:
        tui_table_end(t, request == TUI_LAST);
        return 1;
    case TUI_LEFT_:
    case TUI_RIGHT_:
        move_left_right(t, request == TUI_RIGHT_ ? 1 : -1);
        return 1;
    case TUI_PAN_LEFT:
    case TUI_PAN_RIGHT:
        tui_table_pan(t, request == TUI_PAN_RIGHT ? 8 : -8);
        return 1;
    case TUI_NEXT_DRIFT:
    case TUI_PREVIOUS_DRIFT:
        jump(a, t, TUI_IS_DRIFT, request == TUI_NEXT_DRIFT ? 1 : -1);
        return 1;
    case TUI_NEXT_JUMP:
    case TUI_PREVIOUS_JUMP:
        jump(a, t, TUI_IS_JUMP, request == TUI_NEXT_JUMP ? 1 : -1);
        return 1;
    case TUI_FIRST_ORIGIN:
        jump(a, t, TUI_IS_ORIGIN, 0);
        return 1;
    default:
        return 0;
    }
}

static int find_in_table(struct tui_app *a, struct tui_table *t, int request)
{
    size_t row = tui_table_row(t);
    switch (request) {
    case TUI_SEARCH_NEXT:
    case TUI_SEARCH_PREVIOUS:
        search(a, t, request == TUI_SEARCH_NEXT ? 1 : -1);
        return 1;
    case TUI_SORT:
    case TUI_SORT_REVERSE:
        sort(a, t, request == TUI_SORT_REVERSE);
        return 1;
    case TUI_MARK_:
        tui_table_mark(t, 0);
        tui_table_move(t, 1, 0);
        return 1;
    case TUI_UNMARK:
        if (row != SIZE_MAX && t->marked && t->marked[row])
            tui_table_mark(t, 0);
        return 1;
    case TUI_UNMARK_ALL:
        tui_table_mark(t, 1);
        return 1;
    default:
        return 0;
    }
}

/* ---- requests that are everywhere the same ----------------------------------------------------- */

static void show_command(struct tui_app *a)
{
    struct tui_view *v = tui_app_view(a);
    struct ds_buf b = {0};
    if (v->ops->command && a->whole->header)
        v->ops->command(v, &a->context, &b);
    if (b.len && !b.failed)
        tui_app_say(a, TUI_PLAIN, "%s", b.data);
    else
        tui_app_say(a, TUI_PLAIN, "no command shows this");
    ds_buf_free(&b);
}

/* The process outlives its record by what it has left to tidy up: nothing of a sweep is lost then. */
static int is_sweeping(struct tui_app *a)
{
    return a->o->running && !a->whole->ended && a->o->running(a->o->ctx);
}

static void end(struct tui_app *a)
{
    if (is_sweeping(a)) {
        a->asking = 1;
        tui_app_say(a, TUI_UNSTABLE, "end the sweep? y yes, n no: it goes on; other keys stay");
    } else {
        a->quit = 1;
    }
}

static void give_up(struct tui_app *a)
{
    tui_data_cancel(a->data);
    a->given_up = 1;
    a->given_up_at = a->place;
    a->given_up_seen = a->whole->generation;
    tui_app_say(a, TUI_PLAIN, "given up; R reads again");
}

static void back(struct tui_app *a)
{
    if (a->state == TUI_WAITING && !a->given_up && tui_data_pending(a->data))
        give_up(a);
    else if (!tui_app_back(a))
        tui_app_say(a, TUI_PLAIN, "this is the first view: q ends the program");
}

static void next_view(struct tui_app *a, int step)
{
    int view = a->stack[a->depth - 1].view;
    if (view == TUI_HELP_VIEW)
        view = step > 0 ? -1 : TUI_VIEWS;
    tui_app_open(a, (view + step + TUI_VIEWS) % TUI_VIEWS, 1, &a->place);
}

/* The program's own requests; 0: it is none. */
static int frame_request(struct tui_app *a, int request)
{
    switch (request) {
    case TUI_QUIT:
        end(a);
        return 1;
    case TUI_CLOSE:
        if (!tui_app_back(a))
            end(a);
        return 1;
    case TUI_SUSPEND:
        a->suspend = 1;
        return 1;
    case TUI_REDRAW:
        a->redraw = 1;
        return 1;
    case TUI_RELOAD:
        a->given_up = 0;
        tui_data_reload(a->data);
        tui_app_say(a, TUI_PLAIN, "reading the record again");
        return 1;
    case TUI_CANCEL:
        if (waits(a))
            give_up(a);
        return 1;
    case TUI_HELP:
        if (a->stack[a->depth - 1].view != TUI_HELP_VIEW)
            tui_app_open(a, TUI_HELP_VIEW, 0, &a->place);
        return 1;
    case TUI_PROMPT:
        tui_app_open_prompt(a, TUI_PROMPT_COMMAND);
        return 1;
    case TUI_SEARCH:
    case TUI_FILTER:
        if (tui_app_ready(a))
            tui_app_open_prompt(a, request == TUI_SEARCH ? TUI_PROMPT_SEARCH : TUI_PROMPT_FILTER);
        return 1;
    case TUI_BACK:
        back(a);
        return 1;
    case TUI_NEXT_VIEW:
    case TUI_PREVIOUS_VIEW:
        next_view(a, request == TUI_NEXT_VIEW ? 1 : -1);
        return 1;
    default:
        return 0;
    }
}

static int show_request(struct tui_app *a, int request)
{
    switch (request) {
    case TUI_METRIC:
        a->place.metric = (a->place.metric + 1) % TUI_METRICS;
        tui_app_say(a, TUI_PLAIN, "differences in %s", tui_metric_name(a->place.metric));
        return 1;
    case TUI_NUMBER:
        a->place.number = (a->place.number + 1) % TUI_NUMBERS;
        tui_app_say(a, TUI_PLAIN, "numbers as %s", tui_number_name(a->place.number));
        return 1;
    case TUI_COMMAND:
        show_command(a);
        return 1;
    default:
        return 0;
    }
}

/* 1: the view has dealt with it. */
static int view_request(struct tui_app *a, int request)
{
    struct tui_view *v = tui_app_view(a);
    struct ds_error err = {{0}, {0}};
    struct tui_place left = a->place;
    int next = -1;
    if (!v->ops->request)
        return 0;
    int rc = v->ops->request(v, &a->context, request, &next, &err);
    if (rc < 0)
        tui_app_say_error(a, &err);
    else if (rc > 0)
        a->placed = 3;
    if (rc == 2 && next >= 0 && next < TUI_VIEWS)
        tui_app_open(a, next, 0, &left);
    return rc != 0;
}

static void do_request(struct tui_app *a, int request)
{
    struct tui_view *v = tui_app_view(a);
    if (frame_request(a, request))
        return;
    if (request >= TUI_VIEW_1 && request <= TUI_VIEW_7) {
        tui_app_open(a, request - TUI_VIEW_1, 1, &a->place);
        return;
    }
    if (!a->whole->header && v->ops != &tui_view_help)
        return;
    if (tui_app_ready(a) && view_request(a, request))
        return;
    if (show_request(a, request) || tui_app_move_place(a, request))
        return;
    if (!tui_app_ready(a))
        return;
    if (move_table(a, &v->table, request) || find_in_table(a, &v->table, request)) {
        a->placed = 3;
        if (v->ops->moved)
            v->ops->moved(v, &a->context);
    } else if (request == TUI_ENTER) {
        tui_app_say(a, TUI_PLAIN, "nothing to open here");
    } else if (request == TUI_FOLD) {
        tui_app_say(a, TUI_PLAIN, "nothing to fold here");
    }
}

void tui_app_request(struct tui_app *a, int request)
{
    struct tui_place before = a->place;
    do_request(a, request);
    /* What the view holds is about another place now. */
    if (memcmp(&before, &a->place, sizeof before) != 0)
        a->drawn = 0;
}

void tui_app_key(struct tui_app *a, const char *key)
{
    struct ds_error err;
    if (!a->drawn)
        tui_app_draw(a, &err);
    a->message[0] = '\0';
    if (a->asking) {
        a->asking = 0;
        if (strcmp(key, "y") == 0 && a->o->stop)
            a->o->stop(a->o->ctx);
        a->quit = strcmp(key, "y") == 0 || strcmp(key, "n") == 0;
        return;
    }
    if (a->prompt.kind != TUI_PROMPT_OFF) {
        tui_app_prompt_key(a, key);
        return;
    }
    int request = tui_request_of_key(key);
    if (request == TUI_NONE)
        tui_app_say(a, TUI_PLAIN, "%s does nothing here; ? lists the keys", key);
    else
        tui_app_request(a, request);
}
