/* record_place.h: where a record lies while it is written: born under a temporary name, moved to
 * its final one without ever destroying a file that was not to be replaced. Knows names and file
 * systems; knows no HDF5. */
#ifndef DS_RECORD_PLACE_H
#define DS_RECORD_PLACE_H

#include "base/error.h"

struct ds_place {
    char *target; /* the name that was asked for (links followed) */
    char *file;   /* where the file is now */
    int force;    /* an existing target may be replaced */
    int local;    /* written elsewhere; moved by ds_place_close */
    int born;     /* the file has left its temporary name */
};

/* Checks the target, chooses the folder, creates an empty file under a temporary name there. */
int ds_place_open(const char *path, int force, struct ds_place *p, struct ds_error *err);
/* The file is complete enough to be seen: it takes its final name (a local one waits for
 * ds_place_close). */
int ds_place_born(struct ds_place *p, struct ds_error *err);
/* Moves a local file to the target. */
int ds_place_close(struct ds_place *p, struct ds_error *err);
/* Removes a file that was never born; frees the names. */
void ds_place_free(struct ds_place *p);

/* A record that is being written is locked (fcntl, advisory, all of the file): the lock belongs to
 * the process, ends with it however it ends, and is not inherited by workers. It ends also when the
 * process closes any other descriptor of the same file. HDF5's own locks (flock) are apart. */
/* Marks a new file as being written by this process. Where there are no locks nothing happens. */
void ds_place_mark(int fd);
/* -1 when another process is writing the file at `path`. */
int ds_place_unmarked(const char *path, struct ds_error *err);
/* Opens `path` and marks it: a descriptor that holds the mark until closed; -1 when another process
 * has marked it or put another file in its place. */
int ds_place_claim(const char *path, struct ds_error *err);

/* Whether SWMR keeps its promise on a file system with this statfs magic. */
int ds_place_swmr_works(unsigned long magic);
/* For tests: every file system counts as one where SWMR promises nothing. */
extern int ds_place_distrust;

#endif
