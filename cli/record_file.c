/* record_file.c: the file of a new record: -o's, or one with a name that nobody has. Owns names only. */
#include "cli/run_plan.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ./driftscope-DATE.h5; with a number from the second of the same second on. */
static void default_path(char *path, size_t size, unsigned number)
{
    char date[32] = "", tail[16] = "";
    time_t t = time(NULL);
    struct tm tm;
    if (localtime_r(&t, &tm))
        strftime(date, sizeof date, "-%Y%m%d-%H%M%S", &tm);
    if (number > 1)
        snprintf(tail, sizeof tail, "-%u", number);
    snprintf(path, size, "driftscope%s%s.h5", date, tail);
}

/* A name that nobody gave never replaces a record, and a run that takes it first is no error. */
static int create_anywhere(const struct ds_header *h, char *path, size_t size,
                           struct ds_writer **writer, int *local, struct ds_error *err)
{
    struct stat st;
    for (unsigned number = 1; number < 1000; number++) {
        default_path(path, size, number);
        if (lstat(path, &st) == 0)
            continue;
        if (ds_writer_create(path, 0, h, writer, local, err) == 0)
            return 0;
        if (lstat(path, &st) != 0)
            return -1;
    }
    return ds_fail(err, "%s: exists already, and so do a thousand names like it", path);
}

int ds_cli_create_record(const struct ds_options *o, const struct ds_header *h, char *path,
                         size_t size, struct ds_writer **writer, struct ds_error *err)
{
    const char *given = ds_opt_text(o, "output");
    int local = 0, rc;
    if (given && strlen(given) >= size)
        return ds_fail(err, "the record's file name is too long (%zu bytes)", strlen(given));
    if (given)
        snprintf(path, size, "%s", given);
    rc = given ? ds_writer_create(path, ds_opt_flag(o, "force"), h, writer, &local, err)
               : create_anywhere(h, path, size, writer, &local, err);
    if (rc == 0 && local)
        ds_cli_note(o,
                    "%s: this file system does not support following a growing record; it is "
                    "written in the temporary folder and moved at the end",
                    path);
    return rc;
}

int ds_cli_close_record(struct ds_writer **writer, const char *path, int holds, int rc,
                        struct ds_error *err)
{
    struct ds_error ignored;
    const int closed = ds_writer_close(*writer, rc == 0 ? err : &ignored);
    *writer = NULL;
    if (rc != 0 && !holds)
        unlink(path);
    return rc == 0 ? closed : rc;
}
