/* run_plan.h: from the options of `run` (or a record to resume) to everything a sweep needs. */
#ifndef DS_RUN_PLAN_H
#define DS_RUN_PLAN_H

#include "cli/cli.h"
#include "cli/inputs.h"
#include "dumps/record.h"
#include "engine/sweep.h"
#include "engine/tokenizer.h"

/* --inputs: the file, its calls, and for a sweep which of them is the subject. */
struct ds_plan_inputs {
    struct ds_inputs file; /* doc NULL: none */
    struct ds_inputs_call *calls;
    size_t n_calls;
    int32_t subject; /* -1: all are prompts */
};

struct ds_run_plan {
    struct ds_model *model;
    struct ds_tokenizer *tokenizer; /* NULL when the model has none */
    struct ds_header header;
    int owns_header; /* 0: borrowed from the record that is resumed */
    struct ds_sweep_options options;
    struct ds_sweep_request *requests;
    int32_t n_requests;
    int32_t *forced; /* --tokens-from, or what the record to resume fed */
    int32_t n_forced;
    const char *dtype_at; /* --dtype-at, borrowed; NULL: none */
    struct ds_plan_inputs inputs;
};

/* Plans a new sweep from the command line. */
int ds_run_plan_new(const struct ds_options *o, struct ds_run_plan *p, struct ds_error *err);
/* The same with other kernel sets than --kernels says. NULL: those. */
int ds_run_plan_with(const struct ds_options *o, const char *kernels, struct ds_run_plan *p,
                     struct ds_error *err);
/* Plans the rest of a record's sweep. The model comes from the command line and must be the
 * record's; without -m one of seeded weights is taken from the record. */
int ds_run_plan_resume(const struct ds_options *o, struct ds_record *r, struct ds_run_plan *p,
                       struct ds_error *err);
void ds_run_plan_free(struct ds_run_plan *p);

/* The prompts of a sweep: request 0 as given (or a default), then `neighbours` other ones (given,
 * then built-in texts cut to unlike lengths). Fills header.prompts. (run_prompts.c) */
int ds_run_prompts(const struct ds_options *o, struct ds_run_plan *p, int32_t neighbours,
                   struct ds_error *err);

/* The tokens that the base arm of a record was fed, step by step (after the last step: chose).
 * *n = 0 when it has no base trial.
 * malloc'ed. */
int ds_run_tokens_of(struct ds_record *r, int32_t **tokens, int32_t *n, struct ds_error *err);

/* Begins a new record at -o, or at a name of its own, which comes to `path` (record_file.c). */
int ds_cli_create_record(const struct ds_options *o, const struct ds_header *h, char *path,
                         size_t size, struct ds_writer **writer, struct ds_error *err);
/* Ends one after work that gave `rc`; *writer is NULL then. A failed record that holds nothing is removed. -1 where
 * either failed, with err set by the first. */
int ds_cli_close_record(struct ds_writer **writer, const char *path, int holds, int rc,
                        struct ds_error *err);

#endif
