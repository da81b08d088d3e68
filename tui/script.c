/* script.c: commands and keys from a file, one line after the other, as they would be typed. */
#include "tui/app.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000, MOST_ROUNDS = 10000, MOST_SCRIPT = 16 << 20 };

int tui_app_settle(struct tui_app *a, struct ds_error *err)
{
    for (int i = 0; i < MOST_ROUNDS; i++) {
        tui_app_turn(a);
        if (tui_app_draw(a, err) != 0)
            return -1;
        if (!a->o->script)
            return 0;
        if (tui_data_pending(a->data)) {
            if (tui_data_wait(a->data, PATIENCE_MS) != 0)
                break;
        } else if (!tui_app_turn(a)) { /* nothing came while this was drawn */
            return tui_app_draw(a, err);
        }
    }
    return ds_fail(err, "still reading after %d s", PATIENCE_MS / 1000);
}

static int read_file(const char *path, struct ds_buf *out, struct ds_error *err)
{
    char block[4096];
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ds_fail(err, "%.300s: %s", path, strerror(errno));
    while ((n = read(fd, block, sizeof block)) > 0 && out->len < MOST_SCRIPT)
        ds_buf_add(out, block, (size_t)n);
    int saved = errno;
    close(fd);
    if (n < 0)
        return ds_fail(err, "%.300s: %s", path, strerror(saved));
    if (n > 0)
        return ds_fail(err, "%.300s: longer than a script can be", path);
    if (out->len && !out->failed && memchr(out->data, 0, out->len))
        return ds_fail(err, "%.300s: is no text: it has a zero byte", path);
    return out->failed ? ds_fail(err, "%.300s: out of memory", path) : 0;
}

static int line(struct tui_app *a, const char *text, struct ds_error *err)
{
    struct tui_line l;
    if (tui_command_parse(text, &l, err) != 0)
        return -1;
    /* A message stays until the next thing is done; keys clear it themselves. */
    if (l.id != TUI_CMD_NONE && l.id != TUI_CMD_SAVE_DISPLAY && l.id != TUI_CMD_WAIT)
        a->message[0] = '\0';
    if (tui_app_do(a, &l, err) != 0)
        return -1;
    return l.id == TUI_CMD_NONE ? 0 : tui_app_settle(a, err);
}

int tui_app_script(struct tui_app *a, const char *path, struct ds_error *err)
{
    struct ds_buf text = {0};
    int rc = read_file(path, &text, err), number = 0;
    if (rc == 0)
        rc = tui_app_settle(a, err);
    for (char *p = text.data, *next; rc == 0 && p && *p && !a->quit; p = next) {
        char *end = strchr(p, '\n');
        next = end ? end + 1 : p + strlen(p);
        if (end)
            *end = '\0';
        if (end && end > p && end[-1] == '\r')
            end[-1] = '\0';
        number++;
        rc = line(a, p, err);
        if (rc != 0)
            ds_prefix(err, "%.300s:%d", path, number);
    }
    ds_buf_free(&text);
    return rc;
}
