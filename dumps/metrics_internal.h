/* metrics_internal.h: inside dumps/ only: examples of a group while observations come in. */
#ifndef DS_METRICS_INTERNAL_H
#define DS_METRICS_INTERNAL_H

#include "dumps/metrics.h"

enum {
    METRICS_BEST = 5
}; /* tokens whose probabilities the maximum probability divergence looks at */

/* One step of an example: over the observations that were synchronous with the reference there, and had its tokens before. */
struct metrics_position {
    int32_t token, fed; /* of the reference */
    uint32_t n;
    double mean, squares; /* of the chosen token's probability (Welford) */
    int32_t ids[DS_TOP];  /* the reference's best */
    double p[DS_TOP], low[DS_TOP], high[DS_TOP];
    uint8_t known[DS_TOP], best[DS_TOP]; /* told by all so far; among the best 5 of any */
};

struct metrics_example {
    uint64_t id;
    struct metrics_position *at; /* [n] */
    size_t n, shortest;          /* steps of the reference, of the shortest observation */
    size_t divides;              /* Div_Index; SIZE_MAX: none */
    uint64_t *unique;            /* digests of completions, ascending */
    size_t n_unique, cap_unique;
    uint64_t n_observations, choices, flips, decode_steps, no_probability, left_out;
};

struct metrics_group {
    char *name;
    struct metrics_example *examples;
    size_t n_examples, cap_examples;
    struct ds_metrics_summary summary; /* once settled */
};

struct ds_metrics {
    uint64_t seed, most, used;
    struct metrics_group *groups;
    size_t n_groups, cap_groups, first_open; /* groups before first_open are settled */
};

/* metrics_bootstrap.c: fills g->summary. */
int ds_metrics_conclude(struct metrics_group *g, uint64_t seed, struct ds_error *err);

#endif
