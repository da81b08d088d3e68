/* data_follow.c: what happens to the files while they are shown: they grow, are cut short, replaced or
 * deleted. What was read stays. Runs in the worker's thread. */
#include "tui/data_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char ENDED[] = "the writer has ended";

static void look_at(const char *path, struct stat *st)
{
    if (stat(path, st) != 0)
        memset(st, 0, sizeof *st);
}

void data_remember(struct tui_data *d)
{
    for (int k = 0; k < 2 && d->path[k]; k++)
        look_at(d->path[k], &d->seen[k]);
}

static int is_alike(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Whether it says something new. */
static int note(struct tui_data *d, const char *text)
{
    char was[sizeof d->note];
    memcpy(was, d->note, sizeof was);
    snprintf(d->note, sizeof d->note, "%.500s", text);
    return strcmp(was, d->note) != 0 ? FOLLOW_NOTE : FOLLOW_NOTHING;
}

/* The first words are what the status line has room for; the error begins with the file's name. */
static int not_read(struct tui_data *d, const struct ds_error *err)
{
    char text[sizeof d->note];
    if (!d->book) /* nor before */
        return note(d, err->msg);
    snprintf(text, sizeof text, "not read again: %.400s", err->msg);
    return note(d, text);
}

/* Whether anything came into the book's lists. */
static int take_in(struct tui_data *d)
{
    struct ds_error ignored;
    return book_sift(d->book, &ignored) == 1 ? FOLLOW_TRIALS | FOLLOW_NOTE : FOLLOW_NOTE;
}

/* Another record lies at a path: everything begins anew. */
static int begin_anew(struct tui_data *d, const char *why)
{
    struct ds_error err;
    struct book *b = book_open(d, &err);
    if (!b)
        return not_read(d, &err);
    judged_release(d->judged);
    judged_release(d->partial);
    judged_release(d->told);
    d->judged = d->partial = d->told = NULL;
    book_release(d->book);
    d->book = b;
    d->since = d->judged_number + 1;
    d->error[0] = '\0';
    note(d, why);
    return FOLLOW_NOTE | FOLLOW_TRIALS;
}

static int read_again(struct tui_data *d, int k, int how)
{
    struct ds_error err;
    struct ds_record *other;
    int rc = ds_record_renew(d->book->side[k].record, &other, &err);
    if (rc < 0) {
        if (d->follow) /* it may have been at a bad moment: tried again */
            memset(&d->seen[k], 0, sizeof d->seen[k]);
        return not_read(d, &err);
    }
    if (rc == 1) {
        check_again(&d->book->side[k]);
        d->note[0] = '\0';
        return take_in(d) | (d->judged ? FOLLOW_NOTHING : FOLLOW_TRIALS);
    }
    ds_record_close(other);
    if (how == LOOK_ONLY_GROWN) {
        memset(&d->seen[k], 0, sizeof d->seen[k]); /* so that it is seen again */
        return FOLLOW_NOTHING;
    }
    return begin_anew(d, "replaced by another record");
}

/* One side: its file before and now. */
static int changed(struct tui_data *d, int k, const struct stat *was, const struct stat *is,
                   int how)
{
    if (!is->st_ino)
        return note(d, "deleted: showing what was read before");
    const int same_file = is->st_ino == was->st_ino && is->st_dev == was->st_dev;
    if (same_file && is->st_size < was->st_size && how != LOOK_NOW)
        return note(d, "cut short: showing what was read before");
    if (!d->follow && how != LOOK_NOW)
        return note(d, same_file ? "the file has changed: R reads it again"
                                 : "the file was replaced: R reads it again");
    return read_again(d, k, how);
}

/* Where the writer could not write in place it moves its record when it has ended. */
static int follow_move(struct tui_data *d)
{
    struct stat here, there;
    struct ds_record *other;
    struct ds_error ignored;
    if (!d->moves_to)
        return FOLLOW_NOTHING;
    look_at(d->path[0], &here);
    look_at(d->moves_to, &there);
    if (here.st_ino || !there.st_ino || is_alike(&there, &d->seen_there))
        return FOLLOW_NOTHING;
    d->seen_there = there;
    int rc = d->book ? ds_record_renew_at(d->book->side[0].record, d->moves_to, &other, &ignored)
                     : 1; /* there was nothing to read before it was moved */
    if (rc == 0)
        ds_record_close(other);
    if (rc != 1) /* the one that it is about to replace, or a bad moment */
        return FOLLOW_NOTHING;
    d->left = d->path[0];
    d->path[0] = d->moves_to;
    d->moves_to = NULL;
    d->seen[0] = there;
    d->note[0] = '\0';
    if (d->book)
        check_again(&d->book->side[0]);
    return d->book ? take_in(d) | (d->judged ? FOLLOW_NOTHING : FOLLOW_TRIALS) : FOLLOW_NOTE;
}

static int look_for_writer(struct tui_data *d)
{
    int live = 0;
    for (int k = 0; k < 2 && d->path[k]; k++)
        live |= ds_record_written(d->path[k]);
    if (live == d->live)
        return FOLLOW_NOTHING;
    d->live = live;
    d->ended = !live;
    if (live && strcmp(d->note, ENDED) == 0)
        d->note[0] = '\0';
    if (!live && !d->note[0])
        note(d, ENDED);
    return FOLLOW_NOTE;
}

int data_follow(struct tui_data *d, int how)
{
    int rc = follow_move(d);
    if (!d->book) {
        data_remember(d);
        rc |= begin_anew(d, "");
        return rc | look_for_writer(d);
    }
    if (how == LOOK_NOW)
        d->error[0] = '\0';
    for (int k = 0; k < d->book->n_sides; k++) {
        struct stat is;
        look_at(d->path[k], &is);
        if (how != LOOK_NOW && is_alike(&is, &d->seen[k]))
            continue;
        const struct stat was = d->seen[k];
        if (how == LOOK_ONLY_GROWN && is.st_ino && was.st_ino &&
            (is.st_ino != was.st_ino || is.st_dev != was.st_dev))
            continue;
        d->seen[k] = is;
        rc |= changed(d, k, &was, &is, how);
    }
    return d->follow ? rc | look_for_writer(d) : rc;
}
