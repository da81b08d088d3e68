/* app_fixture.h: a record of records.h in a folder of the test's own, and the frame opened on it without a terminal. */
#ifndef DS_APP_FIXTURE_H
#define DS_APP_FIXTURE_H

#include "tests/unit/testing.h"

#include "tests/tui/records.h"
#include "tui/app.h"

#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static inline int make_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/driftscope-test.XXXXXX",
             tmp && strlen(tmp) < 30 ? tmp : "/tmp");
    /* Files that commands write lie there, too. */
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return chdir("/") == 0 ? system(command) : -1;
}

static inline const char *record(const char *name)
{
    static char path[4][128];
    static int at;
    struct ds_error err;
    struct stat st;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s.h5", folder, name);
    for (size_t i = 0; i < RECORDS; i++)
        if (strcmp(records_all[i].name, name) == 0 && stat(path[at], &st) != 0)
            assert_ok(records_write(i, path[at], &err), err);
    return path[at];
}

struct opened {
    struct ds_tui_options o;
    struct tui_data *data;
    struct tui_app *a;
};

static inline void settle(struct tui_app *a)
{
    struct ds_error err;
    assert_ok(tui_app_settle(a, &err), err);
}

/* A script's frame: settling waits. */
static inline struct opened *open_app(const char *path, const char *path_b, const char *view)
{
    static struct opened x;
    struct ds_error err;
    struct tui_data_options d = {.path = path, .path_b = path_b};
    x.o = (struct ds_tui_options){
        .path = path, .path_b = path_b, .script = "", .view = view, .arm = -1, .ref = -1};
    assert_ok(tui_data_open(&d, &x.data, &err), err);
    assert_ok(tui_app_new(&x.o, x.data, &x.a, &err), err);
    tui_app_size(x.a, 24, 80);
    settle(x.a);
    return &x;
}

static inline void close_app(struct opened *x)
{
    tui_app_free(x->a);
    tui_data_close(x->data);
}

#endif
