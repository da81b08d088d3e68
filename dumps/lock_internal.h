/* lock_internal.h: what the files of locks share. For lock*.c. */
#ifndef DS_LOCK_INTERNAL_H
#define DS_LOCK_INTERNAL_H

#include "dumps/lock.h"

/* ---- lock_values.c --------------------------------------------------------------------------- */

/* A line is the word, so many more words, and a value, which is all that follows. */
/* What the word behind a kind's is: any, a number from 0, or a layer, which may be -1. */
enum { DS_LOCK_INDEX = 1, DS_LOCK_LAYER };
struct ds_lock_kind {
    const char *word;
    int words, number;
    int in_entry;
    int (*fits)(const char *value);
    const char *form; /* of the value, for errors */
};
enum { DS_LOCK_KINDS = 17, DS_LOCK_MOST_VALUES = 1024 /* of a factor */ };
const struct ds_lock_kind *ds_lock_kind_at(size_t i);
/* Of a word of n bytes; NULL: there is none. */
const struct ds_lock_kind *ds_lock_kind_of(const char *word, size_t n);

/* ---- lock_ask.c ------------------------------------------------------------------------------ */

/* Adds what stands in the two buffers, and empties them; an empty value is "-". */
int ds_lock_add_pair(struct ds_lock_lines *l, struct ds_buf *key, struct ds_buf *value,
                     struct ds_error *err);
/* "KIND NAME" = text, which may hold anything. */
int ds_lock_add_text(struct ds_lock_lines *l, const char *kind, const char *name, const char *text,
                     struct ds_error *err);
/* Puts the lines from `first` on in the order of their keys. */
void ds_lock_sort_from(struct ds_lock_lines *l, size_t first);
/* The first natural trial of an arm, SIZE_MAX: none; *n: how many there are. */
size_t ds_lock_first_trial(const struct ds_source *s, uint32_t arm, size_t *n);
/* Of the base arm; NULL with err: there is none. */
const struct ds_trial_data *ds_lock_base_trial(const struct ds_source *s, struct ds_error *err);

/* ---- lock_agree.c ---------------------------------------------------------------------------- */

/* 16 hex digits of the question and the kernels of an entry, as they stand. */
int ds_lock_key(const struct ds_lock_lines *question, const struct ds_lock_lines *entry,
                char key[17], struct ds_error *err);
/* Adds to `out` how many lines of each kind there are in it and `rest` together. */
int ds_lock_count_lines(const struct ds_lock_lines *rest, struct ds_lock_lines *out,
                        struct ds_error *err);

/* ---- lock_judge.c ---------------------------------------------------------------------------- */

struct ds_lock_judging {
    const struct ds_lock_lines *was, *is;
    const struct ds_lock_terms *terms;
    struct ds_lock_verdict *v;
    struct ds_error *err;
};

/* Adds a finding; it counts if it breaks what was asserted. */
int ds_lock_found(struct ds_lock_judging *j, int kind, const struct ds_lock_line *was,
                  const struct ds_lock_line *is, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Calls fn for every line of the kind, with the same line of the other side, or NULL: in the order of `was`, then those
 * that it lacks. */
int ds_lock_each_line(
    const struct ds_lock_lines *was, const struct ds_lock_lines *is, const char *kind,
    int (*fn)(void *ctx, const struct ds_lock_line *was, const struct ds_lock_line *is), void *ctx);

/* ---- lock_steps.c ---------------------------------------------------------------------------- */

int ds_lock_judge_steps(struct ds_lock_judging *j);

/* ---- lock_borders.c -------------------------------------------------------------------------- */

/* What became of the borders between values that both sides have. */
struct ds_lock_borders {
    size_t compared, kept, added, gone, missing; /* missing: values of the lock */
    int judged;     /* the first that was added is of a value that the lock does not have */
    char apart[96]; /* "2 and 4", of the first that was added */
};
int ds_lock_compare_classes(const char *was, const char *is, struct ds_lock_borders *out,
                            struct ds_error *err);

#endif
