/* case_file.h: a case of the self test: commands that show one known fault, and what each must say.
 * Owns the text form (tests/specimens/README.md); runs nothing. */
#ifndef DS_CLI_CASE_FILE_H
#define DS_CLI_CASE_FILE_H

#include "base/error.h"

#include <stddef.h>

enum ds_expect_kind {
    DS_EXPECT_EXIT, /* the exit code is `number` */
    DS_EXPECT_IS,   /* the value at `path` equals `value` (JSON) */
    DS_EXPECT_NOT,  /* ... does not */
    DS_EXPECT_HAS,  /* the text at `path` has `value` in it */
    DS_EXPECT_AT_LEAST,
    DS_EXPECT_AT_MOST,
    DS_EXPECT_ABSENT, /* null or not there */
    DS_EXPECT_BLAMES, /* `value`: all kernels, and only those, that drift or are unstable */
};

struct ds_expect {
    enum ds_expect_kind kind;
    char *path, *value; /* NULL where the kind has none */
    double number;
    int line;
};

struct ds_case_step {
    char **argv; /* [argc], as written: {sick|healthy} not yet chosen; the first words may be
                    NAME=VALUE, for the command's environment */
    size_t argc;
    struct ds_expect *expects;
    size_t n_expects;
    int line;
};

struct ds_case {
    char *id, *title;
    char *needs; /* "model NAME", or NULL */
    struct ds_case_step *steps;
    size_t n_steps;
};

/* Reads a file of one or more cases and appends them to *cases. -1: the message names file and
 * line; what was read before stays in *cases. */
int ds_case_read(const char *path, struct ds_case **cases, size_t *n, struct ds_error *err);
void ds_cases_free(struct ds_case *cases, size_t n);

/* The argument with every {sick|healthy} replaced by one side; malloc'ed, NULL without memory. */
char *ds_case_argument(const char *text, int healthy);
/* The word of a command that is its verb; argc if it has none. */
size_t ds_case_verb(const struct ds_case_step *s);
/* Whether the argument has such a choice. */
int ds_case_has_choice(const char *text);

#endif
