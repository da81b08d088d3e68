/* tui.c: the room's entrance: data, terminal and frame put together, and the loop that waits for keys, signals
 * and what has been read. */
#include "tui/tui.h"

#include "base/clock.h"
#include "tui/app.h"
#include "tui/term.h"

#include <langinfo.h>
#include <poll.h>
#include <string.h>

enum { MESSAGE_MS = 6000 };
static const double FIND_SECONDS = 0.02;

static void paint(struct tui_app *a)
{
    tui_term_paint(&a->canvas, a->cursor_y, a->cursor_x);
}

/* ---- script ---------------------------------------------------------------------------------- */

static void read_screen(struct tui_app *a, int attributes, struct ds_buf *out)
{
    paint(a);
    tui_term_screen(attributes, out);
}

static void resize(struct tui_app *a, int lines, int columns)
{
    tui_term_resize(lines, columns);
    tui_app_size(a, lines, columns);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int key_waits(void)
{
    struct pollfd p = {.fd = tui_term_fd(), .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

static void signals(struct tui_app *a)
{
    int what = tui_term_signals(), lines, columns;
    if (what & TUI_SIGNAL_END)
        a->quit = 1;
    if (what & TUI_SIGNAL_STOP)
        a->suspend = 1;
    tui_term_size(&lines, &columns);
    tui_app_size(a, lines, columns);
}

/* All that wait, before anything is painted. */
static void keys(struct tui_app *a)
{
    char name[TUI_KEY_NAME];
    for (int i = 0; i < 1000 && !a->quit && !a->suspend; i++) {
        int rc = tui_term_key(name);
        if (rc < 0)
            a->quit = 1;
        if (rc <= 0)
            break;
        tui_app_key(a, name);
    }
}

static void suspend(struct tui_app *a)
{
    int lines, columns;
    a->suspend = 0;
    tui_term_suspend();
    tui_term_size(&lines, &columns);
    tui_app_size(a, lines, columns);
}

static int loop(struct tui_app *a, struct ds_error *err)
{
    double said = 0;
    char message[sizeof a->message] = "";
    while (!a->quit) {
        if (a->redraw)
            tui_term_redraw();
        a->redraw = 0;
        if (tui_app_draw(a, err) != 0)
            return -1;
        paint(a);
        if (strcmp(message, a->message) != 0) {
            memcpy(message, a->message, sizeof message);
            said = ds_seconds(CLOCK_MONOTONIC);
        }
        struct pollfd p[] = {{.fd = tui_term_fd(), .events = POLLIN},
                             {.fd = tui_term_signal_fd(), .events = POLLIN},
                             {.fd = tui_data_fd(a->data), .events = POLLIN}};
        int timeout = a->unfinished ? 0 : a->message[0] && !a->asking ? MESSAGE_MS : -1;
        int n = poll(p, 3, timeout);
        if (n == 0 && a->unfinished)
            tui_app_finish(a);
        else if (n == 0 ||
                 (timeout > 0 && ds_seconds(CLOCK_MONOTONIC) - said > MESSAGE_MS / 1000.0))
            a->message[0] = '\0';
        if (n > 0 && (p[0].revents & (POLLHUP | POLLERR | POLLNVAL)))
            a->quit = 1;
        signals(a);
        /* Views show what came before keys work on them: what they showed until then may be gone. */
        if (n > 0 && p[2].revents && tui_app_turn(a) && tui_app_draw(a, err) != 0)
            return -1;
        if (n > 0 && (p[0].revents & POLLIN))
            keys(a);
        if (a->suspend)
            suspend(a);
    }
    return 0;
}

/* ---- the entrance ------------------------------------------------------------------------------ */

static int run(const struct ds_tui_options *o, struct tui_data *data, struct ds_error *err)
{
    struct tui_app *a;
    int lines, columns;
    if (tui_app_new(o, data, &a, err) != 0)
        return -1;
    tui_term_size(&lines, &columns);
    tui_app_size(a, lines, columns);
    a->screen = read_screen;
    if (o->script)
        a->resize = resize;
    else
        a->input = key_waits;
    a->patience = FIND_SECONDS;
    int rc = o->script ? tui_app_script(a, o->script, err) : loop(a, err);
    tui_app_free(a);
    return rc;
}

int ds_tui(const struct ds_tui_options *options, struct ds_error *err)
{
    struct ds_tui_options o = *options;
    struct tui_data *data;
    struct tui_data_options d = {o.path,   o.path_b,   o.follow,  o.hold,
                                 o.caller, o.moves_to, o.partial, o.across_models};
    struct tui_term_options t = {o.script != NULL, o.lines, o.columns, o.colour};
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        o.ascii = 1;
    tui_term_find_descriptions();
    if (tui_data_open(&d, &data, err) != 0)
        return -1;
    int rc = tui_term_open(&t, err);
    if (rc == 0) {
        rc = run(&o, data, err);
        tui_term_close();
    }
    tui_data_close(data);
    return rc;
}
