/* doctor_shell.h: for doctor_command.c and doctor_shell.c only: the words that a shell would make of a text, and
 * its variables. */
#ifndef DS_DOCTOR_SHELL_H
#define DS_DOCTOR_SHELL_H

#include "cli/doctor.h"

enum { DS_SHELL_MOST_HERE = 4, DS_SHELL_MOST_DEPTH = 4, DS_SHELL_MOST_OPEN = 16 };

struct ds_shell {
    const char *name, *text; /* of the file, for errors; what is read */
    size_t len, at, line;
    struct ds_doctor_variable *variables;
    int *exported;
    size_t n_variables, cap_variables, cap_exported;
    struct ds_buf word;
    int has_word; /* '' is a word, too */
    char **words; /* of the command that is being read */
    size_t n_words, cap_words, words_line;
    /* Here-documents that begin behind this line: what ends each, and whether tabs before that do not count. */
    struct ds_buf here_end[DS_SHELL_MOST_HERE];
    int here_tabs[DS_SHELL_MOST_HERE], n_here;
    int depth;   /* of shells within shells */
    int exports; /* set -a: what is assigned is handed on */
    char *sourced; /* the file that was read last by "source FILE", or ". FILE"; NULL: none */
    /* What was set where each subshell that is open began. */
    struct ds_shell_saved {
        struct ds_doctor_variable *variables;
        int *exported;
        size_t n;
    } saved[DS_SHELL_MOST_OPEN];
    int n_open;
    /* Takes a finished command; it may keep the words and set `words` to NULL. */
    int (*command)(struct ds_shell *s, struct ds_error *err);
    void *ctx;
};

/* The length of NAME in "NAME=value"; 0: it is none. */
size_t ds_shell_assigned(const char *word);
/* Sets a variable in a list, which it may join. */
int ds_variable_put(struct ds_doctor_variable **list, size_t *n, size_t *cap, const char *name,
                    size_t name_len, const char *value, struct ds_error *err);
void ds_variables_free(struct ds_doctor_variable *list, size_t n);
/* A variable of the text's shell, else of this process; NULL: neither. */
const char *ds_shell_value(const struct ds_shell *s, const char *name, size_t n);
/* "NAME=value" as a variable of the shell. */
int ds_shell_set(struct ds_shell *s, const char *word, size_t name_len, int exported,
                 struct ds_error *err);

/* Takes a variable away, also one of this process. */
int ds_shell_unset(struct ds_shell *s, const char *name, struct ds_error *err);
/* A text as a shell would read it that this one starts: with all of its variables, or those that it hands on. What is no script is
 * left alone. */
int ds_shell_inner(const struct ds_shell *s, const char *text, size_t len, size_t line, int all,
                   struct ds_error *err);

/* One word more for the command that is being read. */
int ds_shell_add_word(struct ds_shell *s, const char *word, struct ds_error *err);
/* The command that is being read is complete. */
int ds_shell_end_command(struct ds_shell *s, struct ds_error *err);
/* All of the text. */
int ds_shell_read(struct ds_shell *s, struct ds_error *err);
void ds_shell_free(struct ds_shell *s);

#endif
