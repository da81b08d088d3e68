/* storm.h: inside cli/ only: what `storm` and `replay` share: a serving run as the options or a record have
 * it, its schedule as text, and what is printed of it. */
#ifndef DS_CLI_STORM_H
#define DS_CLI_STORM_H

#include "cli/json.h"
#include "cli/run_plan.h"
#include "dumps/storm.h"
#include "engine/serve.h"

/* A serving run, ready to be run. */
struct ds_storm_setup {
    struct ds_run_plan plan; /* model, tokenizer, header */
    struct ds_serve_prompt *prompts;
    int32_t n_prompts;
    struct ds_serve_plan serve;
    struct ds_serve_config config;
    int32_t asked; /* requests that the schedule runs: a file's need not run all up to the last */
    int32_t distinct; /* prompts of these, equal ones once */
    double planning;  /* seconds that making the schedule took; 0: it was there */
    int scheduled;    /* the schedule came from a file */
    int scored;       /* what is generated is then scored */
    int resid_only;   /* --sites resid */
    /* Of a record: what of its environment is another now, with --force. */
    size_t environment;
};
/* From the command line. modes: values of the factor mode, an arm each, or NULL. */
int ds_storm_setup_new(const struct ds_options *o, const char *modes, struct ds_storm_setup *s,
                       struct ds_error *err);
/* From a record, whose model and environment must be those of this process: every difference is named in
 * the error, or, with --force, in a note. */
int ds_storm_setup_record(const struct ds_options *o, struct ds_record *r, struct ds_storm_setup *s,
                          struct ds_error *err);
void ds_storm_setup_free(struct ds_storm_setup *s);
/* Whether the kernels of an arm all claim that a row does not depend on the rest of its call. */
int ds_storm_invariant(const struct ds_header *h, uint32_t arm, int *claims, struct ds_error *err);
/* How many requests a schedule runs, and how many prompts they have, equal ones counted once. */
int ds_storm_asked(const struct ds_header *h, const struct ds_serve_plan *p, int32_t *requests,
                   int32_t *prompts, struct ds_error *err);
/* What requests began with. malloc'ed. */
int ds_storm_hits(const struct ds_serve_plan *p, struct ds_storm_hit **hits, size_t *n,
                  struct ds_error *err);

/* The run with other neighbours of one request: their prompts have other tokens, as many as before. */
struct ds_changed_run {
    struct ds_serve_plan plan;
    struct ds_serve_prompt *prompts; /* [n_prompts], one for each request */
    int32_t *tokens, n_prompts;
    uint64_t changed; /* tokens of prompts that are others */
};
int ds_replay_neighbours(const struct ds_storm_setup *s, int32_t request, int32_t vocab,
                         struct ds_changed_run *c, struct ds_error *err);
void ds_changed_run_free(struct ds_changed_run *c);

/* A line a step: {"batch": [{"request": 0, "new": 24, "cached": 0}, ...]}; "slot" and "begins" may be given
 * (storm_schedule.c). `name`: of the file, for errors. */
int ds_schedule_parse(const char *name, const char *text, size_t len, struct ds_serve_plan *p,
                      struct ds_error *err);
int ds_schedule_read(const char *path, struct ds_serve_plan *p, struct ds_error *err);
void ds_schedule_text(const struct ds_serve_plan *p, struct ds_buf *out);

/* What one kernel set gave. */
struct ds_storm_arm {
    uint32_t arm;
    struct ds_storm s;
    struct ds_serve_wait wait;
    double seconds;   /* of all steps */
    double scheduler; /* of that, the scheduler's */
    uint64_t rows, tokens;
    int invariant;           /* every kernel of the set claims that neighbours change nothing */
    struct ds_launch launch; /* at the first drift */
    struct ds_inputs_followed *followed; /* with --inputs, of each conversation */
    size_t n_followed;
    char **
        texts; /* [s.n_completions] what each completion says, as it is shown; NULL: no tokenizer */
};

struct ds_storm_result {
    const struct ds_options *o;
    const struct ds_storm_setup *setup;
    const char *path; /* of the record; "" = none */
    struct ds_storm_arm *arms;
    size_t n_arms;
};
/* "0 q_proj matmul/split-k" of a place, and its parts. */
void ds_storm_site_text(const struct ds_header *h, uint32_t site, const struct ds_launch *l,
                        struct ds_buf *out);
/* A token as the tokenizer has it, quoted; else its id. */
void ds_storm_token(const struct ds_storm_setup *s, int32_t id, struct ds_buf *out);
const char *ds_storm_kernels(const struct ds_header *h, uint32_t arm);
int ds_storm_drifts(const struct ds_storm_arm *a); /* more than one completion of some prompt */
/* "same"; "drift": that, or a conversation that leaves its recording; "incomparable": neither, but some choice was made
 * among NaN; "recorded": nothing was held against anything, as no two requests have a prompt in common. And the exit code. */
const char *ds_storm_verdict(const struct ds_storm_result *r);
/* Why nothing was held against anything, of that many requests, prompts and completions. */
const char *ds_storm_not_held(int32_t requests, int32_t prompts, size_t completions);
int ds_storm_code(const struct ds_storm_result *r);
void ds_storm_text(struct ds_buf *out, const struct ds_storm_result *r);
/* What of an arm's time went into scheduling, the making of the plan included. */
double ds_storm_scheduler_share(const struct ds_storm_setup *s, const struct ds_storm_arm *a);
/* --inputs (render_inputs.c): what the file holds; "" where there is none. The call that a request is: " (ID, turn 3)". What
 * came of the conversations with one kernel set. */
void ds_inputs_head_text(const struct ds_storm_setup *s, struct ds_buf *out);
json_t *ds_inputs_json(const struct ds_storm_setup *s);
void ds_inputs_call_text(const struct ds_storm_setup *s, int64_t request, struct ds_buf *out);
void ds_inputs_followed_text(const struct ds_storm_setup *s, const char *kernels,
                             const struct ds_inputs_followed *list, size_t n, struct ds_buf *out);
json_t *ds_inputs_followed_json(const struct ds_storm_setup *s,
                                const struct ds_inputs_followed *list, size_t n);
int ds_inputs_parted(const struct ds_inputs_followed *list, size_t n);
/* The schedule as an object. */
json_t *ds_storm_schedule_json(const struct ds_storm_setup *s);
int ds_storm_json(struct ds_buf *out, const struct ds_storm_result *r, struct ds_error *err);

#endif
