/* run_plan_internal.h: what planning a sweep and resuming one share. For run_plan.c and run_resume.c. */
#ifndef DS_RUN_PLAN_INTERNAL_H
#define DS_RUN_PLAN_INTERNAL_H

#include "cli/recorded_model.h"
#include "cli/run_plan.h"

#include <stddef.h>

extern const char *const ds_plan_weights[]; /* by enum ds_weights */

/* Options of a sweep as lines of the environment, so that a resume does the rest in the same way. */
struct ds_plan_kept {
    const char *name;
    size_t offset; /* of an int32_t in struct ds_sweep_options */
};
/* From the second number on: not in records of all versions. */
enum { DS_PLAN_KEPT = 14, DS_PLAN_FIRST_NEWER = 7 };
extern const struct ds_plan_kept ds_plan_kept[DS_PLAN_KEPT];
int32_t *ds_plan_option(struct ds_sweep_options *s, size_t i);

/* What belongs to this process and not to the sweep: a resume may have others. */
int ds_plan_limits(const struct ds_options *o, struct ds_sweep_options *s, struct ds_error *err);
/* Opens the model of -m, or of the file that the plan is made from: see recorded_model.h. */
int ds_plan_model(const struct ds_options *o, const struct ds_recorded_model *recorded,
                  struct ds_run_plan *p, struct ds_error *err);
/* Requests of the sweep, borrowed from the header's prompts. */
int ds_plan_requests(struct ds_run_plan *p, struct ds_error *err);
/* How many varied neighbours the arms need, and the base arm's dtype. An arm whose kernel could not
 * read the weights is refused before anything runs. */
int ds_plan_neighbours(const struct ds_header *h, int weights, int32_t *neighbours, int *dtype,
                       struct ds_error *err);
/* One more line of the header's options; takes ownership of value. */
int ds_plan_add_option(struct ds_header *h, const char *name, char *value, struct ds_error *err);
/* How tokens are chosen (sampler.c): what the options say; what they do not say stays. Where the verb has no
 * such options (bisect) it is the largest logit. */
int ds_cli_sampler(const struct ds_options *o, struct ds_sampler *s, struct ds_error *err);
/* As options of a record, and back: a record that does not say it chose the largest logit. */
int ds_sampler_keep(struct ds_header *h, const struct ds_sampler *s, struct ds_error *err);
int ds_sampler_recorded(const struct ds_header *h, struct ds_sampler *s, struct ds_error *err);
/* Stages that no arm rounds are f32 in the list of sites, too. */
int ds_plan_keep_f32(struct ds_run_plan *p, int dtype, struct ds_error *err);
/* Whether the kernels of every arm can do it, before anything runs. */
int ds_sampler_fits(const struct ds_header *h, const struct ds_sampler *s, struct ds_error *err);
/* The plan's options, and the tokens that are forced, as lines of the header. */
int ds_plan_keep_options(struct ds_run_plan *p, struct ds_error *err);
/* A line for each --attach (attach.c). */
int ds_plan_attach(const struct ds_options *o, struct ds_header *h, struct ds_error *err);
/* --inputs (inputs_plan.c): reads the file; makes its calls the prompts, of a sweep the one of --call and as many more as
 * there are neighbours; keeps it as options of the record. */
int ds_plan_inputs_read(const struct ds_options *o, struct ds_plan_inputs *x, struct ds_error *err);
int ds_plan_inputs_prompts(const struct ds_options *o, struct ds_run_plan *p, int32_t neighbours,
                           int sweep, struct ds_error *err);
int ds_plan_inputs_keep(const struct ds_options *o, struct ds_run_plan *p, struct ds_error *err);
void ds_plan_inputs_free(struct ds_plan_inputs *x);
/* The inputs of a record; doc NULL: it has none. */
int ds_plan_inputs_of(const struct ds_header *h, struct ds_inputs *in, struct ds_error *err);
/* The same for a plan whose header is a record's, with their calls: these must be the record's prompts. */
int ds_plan_inputs_recorded(struct ds_run_plan *p, struct ds_error *err);
/* Of --inputs beside a record: what has changed since, in a note each. */
int ds_plan_inputs_compare(const struct ds_options *o, const struct ds_run_plan *p,
                           struct ds_error *err);
/* One more prompt (run_prompts.c): there is room for it in the header. Takes ownership of tokens, also on failure. */
int ds_plan_add_prompt(struct ds_run_plan *p, const char *text, int32_t *tokens, size_t n,
                       struct ds_error *err);
/* The same of a text with a NUL behind it, as_chat: in the model's chat form. */
int ds_plan_add_text(struct ds_run_plan *p, const char *text, size_t len, int as_chat,
                     struct ds_error *err);
/* --requests-from: the prompts of a storm, a line each (run_requests.c). */
int ds_run_requests(const struct ds_options *o, struct ds_run_plan *p, const char *path,
                    struct ds_error *err);
/* Names of all factors. */
int ds_plan_factors(struct ds_header *h, struct ds_error *err);
/* Version, build, time and command line. */
int ds_plan_identity(const struct ds_options *o, struct ds_header *h, struct ds_error *err);

/* run_resume.c: whether this process can go on where the record's left off. what: "resumed", for the notes
 * that --force makes of errors; *forced: how many there were, or NULL. */
int ds_plan_check_environment(const struct ds_options *o, const struct ds_header *h,
                              const char *what, size_t *forced, struct ds_error *err);
int ds_plan_check_model(const struct ds_header *h, const struct ds_model *m, struct ds_error *err);
int ds_plan_check_prompts(const struct ds_run_plan *p, int32_t neighbours, struct ds_error *err);

#endif
