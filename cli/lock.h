/* lock.h: inside cli/ only: what `lock`, `verify` and `run --expect` share: a lock's file, the sweep that it asks for,
 * and holding what came of a sweep against it. */
#ifndef DS_CLI_LOCK_H
#define DS_CLI_LOCK_H

#include "cli/kept.h"
#include "cli/run_plan.h"
#include "dumps/lock.h"

/* Reads and parses a file; every error says FILE:LINE. *out is to be freed also after -1. */
int ds_lock_read(const char *path, struct ds_lock *out, struct ds_error *err);
/* "FILE:LINE: ..." of a line of the lock, which may be NULL. */
int ds_lock_fail(const struct ds_lock *l, const struct ds_lock_line *x, struct ds_error *err,
                 const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* The sweep that a lock asks for, with the model of -m, which must be the lock's; without -m one of seeded weights is
 * taken from the lock (lock_plan.c). */
int ds_lock_plan(const struct ds_options *o, const struct ds_lock *l, struct ds_run_plan *p,
                 struct ds_error *err);
/* What locks need of a sweep beside its digests: values that tell kinds and sizes, and heal trials. */
void ds_lock_wants(struct ds_sweep_options *s);
/* Whether a model is the lock's: its weights and hyperparameters. */
int ds_lock_check_model(const struct ds_lock *l, uint64_t digest, const char *name,
                        const struct ds_text *hparams, size_t n, struct ds_error *err);
/* The tokens that arms are fed, as the lock has them; malloc'ed. */
int ds_lock_forced(const struct ds_lock *l, int32_t vocab, int32_t **ids, int32_t *n,
                   struct ds_error *err);
/* Arm i of a lock whole: a value of every factor, malloc'ed each. 1: there is none. */
int ds_lock_arm(const struct ds_lock *l, size_t i, char **values, struct ds_error *err);
void ds_lock_free_values(char **values);
/* The value that a factor has where nothing is said; malloc'ed. */
char *ds_lock_default(int factor, struct ds_error *err);

/* Runs the plan's sweep, its trials in memory. *interrupted: by a signal. An arm that was lost is an error. */
int ds_lock_sweep(const struct ds_options *o, struct ds_run_plan *p, struct ds_kept *kept,
                  int *interrupted, struct ds_error *err);

/* What `verify` and `run --expect` print, and their exit code: a source held against the nearest entry. `l`: its
 * question need not be the source's, but must have the same model, prompt and tokens; arms that only one of them has
 * are left out. `record`: where the source lies, or "". `tokenizer` may be NULL. */
int ds_lock_verify(const struct ds_options *o, const struct ds_lock *l, const struct ds_source *s,
                   const struct ds_tokenizer *tokenizer, const char *record, int *exit_code,
                   struct ds_error *err);

/* The same of an answer that is there already, whose question is the lock's. */
int ds_lock_verify_lines(const struct ds_options *o, const struct ds_lock *l,
                         const struct ds_lock_lines *is, const char *record, int *exit_code,
                         struct ds_error *err);
/* Whether a question is the lock's, line by line, names and texts left out. file: whose it is. */
int ds_lock_same_question(const struct ds_lock *l, const struct ds_lock_lines *q, const char *file,
                          struct ds_error *err);
/* Whether a question has the lock's rows and choices, whatever arms it has. */
int ds_lock_comparable(const struct ds_lock *l, const struct ds_lock_lines *mine,
                       struct ds_error *err);
/* Text of --entry, or NULL; -1: it is no word. */
int ds_lock_entry_option(const struct ds_options *o, const char **name, struct ds_error *err);

/* ---- printing (render_verify.c) -------------------------------------------------------------- */

struct ds_lock_view {
    const struct ds_options *o;
    const struct ds_lock *lock;
    const struct ds_lock_entry *entry; /* that it was held against */
    const struct ds_lock_lines *is;
    const struct ds_lock_verdict *v;
    const char *record, *assertion;
    const char *alike;    /* where bits differ: another entry that has these; NULL: none */
    int of_locks;         /* another lock was held against it */
    size_t arms, arms_of; /* compared, of so many in the lock */
    const char *has;      /* [arms_of] which; NULL: all */
    int partial;          /* some of what was asserted was not looked at */
    int result;           /* enum ds_result: without --partial, that much alone is incomparable */
};
void ds_lock_verify_text(const struct ds_lock_view *w, struct ds_buf *out);
int ds_lock_verify_json(const struct ds_lock_view *w, struct ds_buf *out, struct ds_error *err);

#endif
