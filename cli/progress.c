/* progress.c: the progress bar. Owns one line of a terminal stderr; prints nothing anywhere else.
 * The clock is used for the bar alone, never for results. */
#include "cli/options.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static struct {
    volatile int shown; /* the bar is on the screen; a signal handler looks */
    int started;
    double begin;  /* seconds at the first call */
    double last;   /* seconds at the last drawing */
    char what[64]; /* what was drawn last */
} bar;

static void put(const char *text, size_t n)
{
    /* A terminal that has gone away is no error of the run. */
    ssize_t ignored = write(STDERR_FILENO, text, n);
    (void)ignored;
}

static int wanted(const struct ds_options *o)
{
    const char *term = getenv("TERM");
    return o && !ds_opt_flag(o, "quiet") && isatty(STDERR_FILENO) && term && term[0] &&
           strcmp(term, "dumb") != 0;
}

static void erase(void)
{
    if (bar.shown)
        put("\r\033[K", 4);
    bar.shown = 0;
}

static int stderr_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

static void eta(char *out, size_t size, double seconds)
{
    long s = seconds < 0 || seconds > 359999 ? 359999 : (long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(out, size, "%ldh%02ldm left", s / 3600, s / 60 % 60);
    else
        snprintf(out, size, "%ld:%02ld left", s / 60, s % 60);
}

static void draw(const char *what, double share, double elapsed)
{
    enum { BAR = 24 };
    char left[32] = "", cells[BAR + 1];
    struct ds_buf b = {0};
    int filled = (int)(share * BAR), columns = stderr_columns();
    if (share > 0.01 && elapsed > 1)
        eta(left, sizeof left, elapsed * (1 - share) / share);
    memset(cells, '-', BAR);
    memset(cells, '#', (size_t)filled);
    cells[BAR] = '\0';
    ds_buf_printf(&b, "[%s] %3d%% %s  ", cells, (int)(share * 100), left);
    size_t head = b.len;
    ds_buf_escape(&b, what, (size_t)-1);
    if (!b.failed && b.data) {
        /* One column stays free: a full line would wrap and could not be erased. Cut at a whole
         * character. */
        size_t most = columns > 1 ? (size_t)columns - 1 : 0, n = b.len < most ? b.len : most;
        while (n > head && n < b.len && ((unsigned char)b.data[n] & 0xc0) == 0x80)
            n--;
        bar.shown = 1;
        put("\r\033[K", 4);
        put(b.data, n);
    }
    ds_buf_free(&b);
}

int ds_cli_progress_shown(void)
{
    return bar.shown;
}

void ds_cli_progress(const struct ds_options *o, const char *what, double done, double total)
{
    if (!what || !(done >= 0) || !(total > 0) || done >= total) {
        erase();
        bar.started = bar.started && what == NULL;
        return;
    }
    if (!wanted(o))
        return;
    double t = ds_seconds(CLOCK_MONOTONIC);
    if (!bar.started) {
        bar.started = 1;
        bar.begin = t;
        bar.last = 0;
    }
    if (bar.shown && t - bar.last < 0.1 && strncmp(bar.what, what, sizeof bar.what - 1) == 0)
        return;
    bar.last = t;
    snprintf(bar.what, sizeof bar.what, "%s", what);
    draw(what, done / total, t - bar.begin);
}
