/* bench_screen.c: times the terminal UI without a terminal: how long until something is drawn, until the verdict
 * is; from a key to the drawing that answers it, and to the one that has everything; how late a followed record's
 * trials come; and the most memory that took.
 *
 *     bench_screen walk REC.h5 [REC2.h5]
 *     bench_screen follow REC.h5 COPY.h5    writes COPY, a trial of REC after the other, and follows it */
#include "base/clock.h"
#include "dumps/record.h"
#include "tui/app.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEYS = 600, LINES_ = 40, COLUMNS_ = 120, MOST_TRIALS = 20 };

static double seconds(void)
{
    return ds_seconds(CLOCK_MONOTONIC);
}

static double peak_mb(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1000;
}

static int give_up(const struct ds_error *err)
{
    fprintf(stderr, "bench_screen: %s\n", err->msg);
    return 2;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(const char *what, double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_size);
    printf("  %-26s median %8.2f ms   p99 %8.2f ms   most %8.2f ms\n", what, 1000 * values[n / 2],
           1000 * values[n * 99 / 100], 1000 * values[n - 1]);
}

/* ---- a walk ---------------------------------------------------------------------------------- */

/* A walk that sees every view, every kind of step and other arms. */
static const char *const walk[] = {"2", "f", "Enter", "Enter", "j",  "]", "e", "e",  "d", "x",
                                   "3", "w", "}",     "}",     "[",  "j", "j", "^D", "G", "g",
                                   "2", "e", "l",     "j",     "h",  "E", "a", "r",  "s", "S",
                                   "5", "j", "6",     "j",     "^D", "7", "j", "1",  "j", "y"};

static int walk_keys(struct tui_app *a, struct ds_error *err)
{
    static double drawn[KEYS], whole[KEYS];
    for (size_t i = 0; i < KEYS; i++) {
        const double begun = seconds();
        tui_app_key(a, walk[i % (sizeof walk / sizeof walk[0])]);
        tui_app_turn(a);
        if (tui_app_draw(a, err) != 0)
            return -1;
        drawn[i] = seconds() - begun;
        if (tui_app_settle(a, err) != 0)
            return -1;
        whole[i] = seconds() - begun;
    }
    tell("key to drawing", drawn, KEYS);
    tell("key to everything there", whole, KEYS);
    return 0;
}

static int bench_walk(char **paths, int n)
{
    struct ds_error err;
    struct tui_data *d;
    struct tui_app *a;
    const double begun = seconds();
    const struct ds_tui_options o = {.path = paths[0],
                                     .path_b = n > 1 ? paths[1] : NULL,
                                     .program = "driftscope",
                                     .colour = 1,
                                     .script = "walk",
                                     .lines = LINES_,
                                     .columns = COLUMNS_,
                                     .arm = -1,
                                     .ref = -1};
    const struct tui_data_options data = {.path = o.path, .path_b = o.path_b};
    if (tui_data_open(&data, &d, &err) != 0 || tui_app_new(&o, d, &a, &err) != 0)
        return give_up(&err);
    tui_app_size(a, LINES_, COLUMNS_);
    tui_app_turn(a);
    if (tui_app_draw(a, &err) != 0)
        return give_up(&err);
    printf("  %-26s %8.1f ms\n", "first drawing", 1000 * (seconds() - begun));
    tui_app_begin(a);
    if (tui_app_settle(a, &err) != 0)
        return give_up(&err);
    printf("  %-26s %8.1f ms\n", a->whole->verdict ? "verdict drawn" : a->whole->error,
           1000 * (seconds() - begun));
    fflush(stdout);
    if (walk_keys(a, &err) != 0)
        return give_up(&err);
    tui_app_free(a);
    tui_data_close(d);
    printf("  %-26s %8.1f MB\n", "most memory", peak_mb());
    return 0;
}

/* ---- following ------------------------------------------------------------------------------- */

/* Writes the record's trials one by one, and after each the time at which it was there. */
static int write_slowly(const char *from, const char *to, int out)
{
    struct ds_error err;
    struct ds_record *r;
    struct ds_writer *w;
    if (ds_record_open(from, &r, &err) != 0 ||
        ds_writer_create(to, 1, ds_record_header(r), &w, NULL, &err) != 0)
        return give_up(&err);
    for (size_t i = 0; i < ds_record_trial_count(r) && i < MOST_TRIALS; i++) {
        const struct ds_trial_data *t = ds_record_load(r, i, &err);
        usleep(700000);
        if (!t || ds_writer_add(w, t, &err) != 0)
            return give_up(&err);
        const double at = seconds();
        if (write(out, &at, sizeof at) != sizeof at)
            return 2;
    }
    usleep(1500000);
    return ds_writer_close(w, &err) == 0 ? 0 : give_up(&err);
}

static int follow(struct tui_data *d, int in)
{
    static double late[MOST_TRIALS];
    double at;
    size_t n = 0;
    while (n < MOST_TRIALS && read(in, &at, sizeof at) == sizeof at) {
        while (tui_data_whole(d)->n_trials < n + 1) {
            usleep(1000);
            tui_data_turn(d);
        }
        late[n++] = seconds() - at;
    }
    if (n == 0)
        return 2;
    tell("trial written to known", late, n);
    return 0;
}

static int bench_follow(const char *from, const char *to)
{
    struct ds_error err;
    struct tui_data *d;
    int ends[2], status;
    if (pipe(ends) != 0)
        return 2;
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return 2;
    if (pid == 0)
        _exit(write_slowly(from, to, ends[1]));
    close(ends[1]);
    const struct tui_data_options o = {.path = to, .follow = 1};
    if (tui_data_open(&o, &d, &err) != 0)
        return give_up(&err);
    int rc = follow(d, ends[0]);
    tui_data_close(d);
    waitpid(pid, &status, 0);
    printf("  %-26s %8.1f MB\n", "most memory", peak_mb());
    return rc ? rc : status != 0;
}

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "walk") == 0)
        return bench_walk(argv + 2, argc - 2);
    if (argc == 4 && strcmp(argv[1], "follow") == 0)
        return bench_follow(argv[2], argv[3]);
    fprintf(stderr, "usage: bench_screen walk REC.h5 [REC2.h5] | follow REC.h5 COPY.h5\n");
    return 2;
}
