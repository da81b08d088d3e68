/* storm.h: what traffic did to the answers: the requests of one trial of a serving run, held against each
 * other. Pure functions on trial data: how many completions a prompt got, where each request first had
 * other bits than the one it is held against, where its tokens part, and how many partings the margins and
 * the measured drift would lead one to expect. Knows no scheduler and no kernel.
 *
 * Request r has prompt r % header.n_prompts, or the first one with the same tokens. In each prompt the requests are held
 * against the first one of those with the commonest completion, its reference. Rows are compared in the order of their calls, each
 * with the reference's row of that position that was computed first, as long as the same tokens were fed. */
#ifndef DS_STORM_H
#define DS_STORM_H

#include "dumps/flips.h"

/* A request that began with rows which another one had computed: it has none of its own for them. */
struct ds_storm_hit {
    uint32_t call; /* its first one from there on */
    int32_t request, from;
    int32_t n; /* positions 0..n-1 */
};

/* Where a request first has other bits than its reference. */
struct ds_storm_place {
    uint32_t site;
    int32_t position, occurrence;
    uint32_t call, launch; /* its own */
    int32_t m, requests;   /* rows and requests in that call */
    uint32_t other_call;   /* of the reference's row */
    int32_t other_m, other_requests;
    int32_t from; /* >= 0: it began with that request's rows, which were other ones already; -1 */
};

struct ds_storm_request {
    int32_t prompt, reference;
    int32_t next;        /* request of that prompt; -1: it is the last one */
    uint32_t completion; /* in ds_storm.completions */
    int drifts;          /* `place` is where first */
    struct ds_storm_place place;
    int32_t parted; /* step whose token is the first that differs; -1 = none, or it is shorter */
    int32_t token, other_token;
    float margin, other_margin; /* of that choice; its own and the reference's */
    /* How far the difference of the two tokens' logits moved; NaN: not in the top 8. */
    double drift;
    int tie; /* on one side the two logits are equal */
};

struct ds_storm_completion {
    int32_t prompt, request; /* the first request that has it */
    uint32_t size;           /* how many have it */
};

struct ds_storm {
    struct ds_storm_request *requests;
    size_t n_requests;
    struct ds_storm_completion *completions; /* by prompt, commonest first */
    size_t n_completions;                    /* unique completions */
    size_t n_prompts;                        /* that some request has */
    size_t drifting, parted, ties;           /* requests; of the parted, those with a tie */
    int64_t first_drift, first_parting;      /* the request of the earliest call; -1 = none */
    uint64_t compared;                       /* digests */
    uint64_t blind; /* choices without a margin: made among NaN, whatever the rows hold */
    /* Of partings: a choice is open for every request that had the same tokens until then. */
    struct ds_flips forecast;
};
void ds_storm_free(struct ds_storm *s);

/* Prompts with the same tokens are one, however often they were given: of each of the header the first that has its tokens.
 * [n_prompts], malloc'ed; request r of a serving run has prompt first[r % n_prompts]. */
int ds_storm_prompts(const struct ds_header *h, int32_t **first, struct ds_error *err);

/* hits: ascending by call. -1 also for trial data that is no serving run's. */
int ds_storm_make(const struct ds_header *h, const struct ds_trial_data *t, size_t n_requests,
                  const struct ds_storm_hit *hits, size_t n_hits, struct ds_storm *out,
                  struct ds_error *err);

/* Of that only completions, references and partings, from the tokens alone: nothing is said of drift. Where take is not
 * NULL it is shown every open choice beside the reference's. */
int ds_storm_completions(const struct ds_header *h, const struct ds_trial_data *t,
                         size_t n_requests, ds_flip_take take, void *to, struct ds_storm *out,
                         struct ds_error *err);

/* The steps of every request, by request, then step: [n_requests + 1] where each one's begin, and the steps
 * in that order. Both malloc'ed. */
int ds_storm_steps(const struct ds_trial_data *t, size_t n_requests, size_t **begin,
                   const struct ds_step ***steps, struct ds_error *err);

/* Two trials of one plan, or of a part of one: the rows that both have, of one request or (-1) of all. */
struct ds_storm_match {
    uint64_t compared, differ; /* digests */
    uint64_t missing;          /* rows of `t` without a partner */
    uint64_t tokens, tokens_differ;
    int differs; /* the first digest that differs, by the calls of `t`: */
    uint32_t site, call, launch;
    int32_t request, position, occurrence;
    int32_t m, requests, other_m, other_requests;
    uint32_t other_call;
    int64_t parted_request; /* the first token that differs; -1 = none */
    int32_t parted_step, token, other_token;
};
/* Rows fed with tokens after the first that differs are left out. hits: of the other trial, where `t` is no run of the
 * same plan: then a row is held against what the request first had at its position, its own or not, whatever
 * the occurrence. NULL: keys must be the same. */
int ds_storm_match(const struct ds_header *h, const struct ds_trial_data *t,
                   const struct ds_trial_data *other, size_t n_requests, int64_t request,
                   const struct ds_storm_hit *hits, size_t n_hits, struct ds_storm_match *out,
                   struct ds_error *err);

#endif
