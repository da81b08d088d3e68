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

/* Whether SWMR keeps its promise on a file system with this statfs magic. */
int ds_place_swmr_works(unsigned long magic);
/* For tests: every file system counts as one where SWMR promises nothing. */
extern int ds_place_distrust;

#endif
