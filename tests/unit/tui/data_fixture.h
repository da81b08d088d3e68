/* data_fixture.h: small records on disk, and a process that writes one while the test reads it; shared by the
 * tests of tui/data. */
#ifndef DS_DATA_FIXTURE_H
#define DS_DATA_FIXTURE_H

#include "tests/unit/testing.h"

#include "base/clock.h"
#include "tests/unit/dumps/synthetic_sweep.h"
#include "tui/data.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LONG = 600000
}; /* milliseconds: longer than anything here takes, on a slow machine under load */

static char test_folder[64];

static inline const char *test_path(const char *name)
{
    static char path[64][128];
    static int at;
    at = (at + 1) % 64;
    snprintf(path[at], sizeof path[at], "%s/%s", test_folder, name);
    return path[at];
}

static inline int make_folder(void **state)
{
    (void)state;
    snprintf(test_folder, sizeof test_folder, "%s/driftscope-test.XXXXXX",
             getenv("TMPDIR") && strlen(getenv("TMPDIR")) < 30 ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(test_folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", test_folder);
    return system(command);
}

/* q_proj of layer 1 gives other bits from 24 rows on, down of layer 2 with two threads. */
static inline uint32_t two_faults(const struct cell *c)
{
    if (cell_is(c, 1, "q_proj") && c->m >= 4 * SWEEP_PROMPT)
        return 1;
    if (cell_is(c, 2, "down") && cell_number(c, "threads", 1) == 2)
        return 2;
    return 0;
}

static inline uint32_t no_fault(const struct cell *c)
{
    (void)c;
    return 0;
}

/* Arms: base, batch 2, batch 4, threads 2. */
static inline void fixture_plan(struct sweep *s, uint32_t (*tag)(const struct cell *))
{
    sweep_init(s, "batch threads", 4);
    sweep_arm(s, "1 1");
    sweep_arm(s, "2 1");
    sweep_arm(s, "4 1");
    sweep_arm(s, "1 2");
    s->tag = tag;
}

/* One row of a site with its bytes, so that there are values: the digest of the bytes takes the place of the
 * row's in the trial and in its sizes. */
static inline void fixture_blob(struct ds_trial_data *t, uint32_t site, int32_t position,
                                const float *values, uint32_t n, uint64_t digest)
{
    uint32_t row = 0;
    uint64_t *at = sweep_find(t, site, position, &row), before = *at;
    *at = digest;
    for (size_t i = 0; i < t->n_drifts; i++) {
        if (t->drifts[i].site == site && t->drifts[i].row == row)
            t->drifts[i].digest = digest;
        if (t->drifts[i].ref_digest == before && t->drifts[i].site == site)
            t->drifts[i].ref_digest = digest;
    }
    t->blobs = realloc(t->blobs, (t->n_blobs + 1) * sizeof *t->blobs);
    struct ds_blob *b = &t->blobs[t->n_blobs++];
    *b = (struct ds_blob){.digest = digest, .dtype = "f32", .elements = n, .bytes = 4 * n};
    b->data = malloc(4 * (size_t)n);
    memcpy(b->data, values, 4 * (size_t)n);
}

static inline void write_sweep(struct sweep *s, const char *path, size_t n_trials)
{
    struct ds_error err;
    struct ds_writer *w;
    assert_ok(ds_writer_create(path, 1, &s->header, &w, NULL, &err), err);
    for (size_t i = 0; i < n_trials; i++)
        assert_ok(ds_writer_add(w, &s->trials[i], &err), err);
    assert_ok(ds_writer_close(w, &err), err);
}

static inline struct tui_data *open_data(const char *path, const char *path_b, int follow)
{
    struct ds_error err;
    struct tui_data *d;
    struct tui_data_options o = {.path = path, .path_b = path_b, .follow = follow};
    assert_ok(tui_data_open(&o, &d, &err), err);
    return d;
}

static inline const struct tui_pair *get_pair(struct tui_data *d, uint32_t arm, uint32_t ref)
{
    const char *error = NULL;
    if (!tui_data_pair(d, arm, ref, &error))
        assert_int_equal(tui_data_wait(d, LONG), 0);
    const struct tui_pair *p = tui_data_pair(d, arm, ref, &error);
    if (!p)
        print_error("pair %u %u: %s\n", arm, ref, error ? error : "nothing came");
    assert_non_null(p);
    return p;
}

static inline const struct tui_site *get_site(struct tui_data *d, uint32_t arm, uint32_t ref,
                                              uint32_t site)
{
    const char *error = NULL;
    if (!tui_data_site(d, arm, ref, site, &error))
        assert_int_equal(tui_data_wait(d, LONG), 0);
    const struct tui_site *s = tui_data_site(d, arm, ref, site, &error);
    if (!s)
        print_error("site %u: %s\n", site, error ? error : "nothing came");
    assert_non_null(s);
    return s;
}

/* Turns until `is` holds; fails after LONG. */
static inline const struct tui_whole *
turn_until(struct tui_data *d, int (*is)(const struct tui_whole *, size_t), size_t value)
{
    const double until = ds_seconds(CLOCK_MONOTONIC) + LONG / 1000;
    while (!is(tui_data_whole(d), value)) {
        if (ds_seconds(CLOCK_MONOTONIC) >= until) {
            const struct tui_whole *w = tui_data_whole(d);
            print_error("%zu trials, note '%s', error '%s'\n", w->n_trials, w->note ? w->note : "",
                        w->error ? w->error : "");
            fail_msg("it never came");
        }
        tui_data_wait(d, 20);
        usleep(2000);
        tui_data_turn(d);
    }
    return tui_data_whole(d);
}

static inline int has_trials(const struct tui_whole *w, size_t n)
{
    return w->n_trials == n;
}

/* The verdict is about so many trials. */
static inline int has_verdict(const struct tui_whole *w, size_t n)
{
    return w->verdict && w->verdict->counts.trials == n;
}

static inline int has_note(const struct tui_whole *w, size_t n)
{
    (void)n;
    return w->note != NULL;
}

/* ---- a process that writes ------------------------------------------------------------------- */

/* It does one command a byte: '+' the next trial, '.' close and end, 'x' end at once. Begun before the record
 * is opened: a process with two threads in HDF5 could not be copied. */
struct writing {
    pid_t pid;
    int to, from;
};

static inline void writer_process(struct sweep *s, const char *path, int from, int to)
{
    struct ds_error err;
    struct ds_writer *w = NULL;
    size_t next = 0;
    char c;
    while (read(from, &c, 1) == 1) {
        int rc = 0;
        if (c == 'n')
            rc = ds_writer_create(path, 1, &s->header, &w, NULL, &err);
        else if (c == '+')
            rc = ds_writer_add(w, &s->trials[next++], &err);
        else if (c == '.')
            rc = ds_writer_close(w, &err);
        if (write(to, rc == 0 ? "k" : "!", 1) != 1 || c == '.' || c == 'x')
            break;
    }
    _exit(0);
}

static inline struct writing writing_begin(struct sweep *s, const char *path)
{
    int down[2], up[2];
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(down[1]);
        close(up[0]);
        writer_process(s, path, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    return (struct writing){pid, down[1], up[0]};
}

static inline void writing_do(struct writing *w, const char *commands)
{
    for (; *commands; commands++) {
        char answer = 0;
        assert_int_equal(write(w->to, commands, 1), 1);
        assert_int_equal(read(w->from, &answer, 1), 1);
        assert_int_equal(answer, 'k');
    }
}

static inline void writing_end(struct writing *w)
{
    close(w->to);
    close(w->from);
    waitpid(w->pid, NULL, 0);
}

#endif
