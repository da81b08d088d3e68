/* metrics.h: how unlike repeated answers are, under the names that papers gave these figures. Pure: tokens and
 * probabilities in, figures out; what was varied between the answers is the caller's to say.
 *
 * An observation is what one request of one trial chose, step by step. Observations of one prompt (an example) in
 * one group are held against each other: the first one that is added is the example's reference. Two
 * observations are synchronous at a step as long as the same tokens were fed before it: the choice can be compared there. Step
 * 0 chooses the first generated token.
 *
 * unique completions: different token sequences. Per prompt the "Count of Unique Outputs" of Zhang et al.,
 *     arXiv 2511.17826, 5.1; as a sum what He et al., "Defeating Nondeterminism in LLM Inference" (Thinking
 *     Machines Lab, 2025) count over 1000 equal requests.
 * Div_Index: the first step at which not all observations of a prompt have the same token; the mean over the prompts that
 *     have one. Yuan et al., arXiv 2506.09501, 3.1.
 * Avg_Std@top1_prob: the sample standard deviation, over the observations, of the probability of the chosen token,
 *     averaged over the steps before Div_Index (all of them where there is none), then over prompts. The same
 *     place. At temperature 0 the chosen token is the top-1 token.
 * flips per decode step: choices unlike the reference's over all synchronous choices, the references' own not
 *     counted. Chu et al., arXiv 2605.30218, abstract: "flips on 0.48 % of synchronous decode steps".
 * maximum probability divergence: at each step the largest difference, over the observations, of the probability of a token
 *     that is among the best 5 of any; averaged over steps, then over prompts. Zhang et al., 5.1. Here: over the steps up to and
 *     with Div_Index, since behind it the contexts are others; among the 8 best of the reference, since a record holds
 *     8; a token that some observation does not have among its 8 best is left out.
 * Probabilities are those at temperature 1: exp(logit - largest) / ds_step.exp_sum. Steps without are left out, and counted.
 *
 * Intervals: 95 %, percentiles of SAMPLES bootstrap samples of prompts, each drawn from a stated seed. */
#ifndef DS_METRICS_H
#define DS_METRICS_H

#include "dumps/record.h"

enum { DS_METRICS_SAMPLES = 2000 };

struct ds_metric {
    int known; /* else nothing to take it from */
    double value;
    int bounded; /* low and high; not with one prompt */
    double low, high;
};

struct ds_metrics_summary {
    uint64_t prompts, observations, choices; /* choices: tokens of all */
    uint64_t unique, diverging;              /* completions; prompts that have a Div_Index */
    uint64_t flips, decode_steps;            /* decode_steps: synchronous ones */
    /* What the probabilities' figures lack: choices up to Div_Index whose token has no probability in the record (NaN
     * among the logits, or it was drawn, or is none of the 8 best), and tokens among the best 5 of an observation or
     * its reference, with one, of which the other holds none. */
    uint64_t no_probability, left_out;
    struct ds_metric unique_completions; /* per prompt */
    struct ds_metric diverging_share;    /* of prompts */
    struct ds_metric div_index, avg_std_top1_prob, flips_per_decode_step, max_prob_divergence;
};

/* One observation against the reference of its example. */
struct ds_metrics_row {
    int reference;     /* it is the reference */
    int32_t div_index; /* first synchronous step with another token; -1: none */
    uint64_t flips, decode_steps;
    /* Mean over the steps up to div_index, this against the reference; NaN: not known. */
    double prob_divergence;
    uint64_t completion; /* XXH3-64 of its tokens (i32, little-endian) */
};

struct ds_metrics;
/* most: bytes that unsettled groups may take; more is an error. */
int ds_metrics_new(uint64_t seed, uint64_t most, struct ds_metrics **out, struct ds_error *err);
void ds_metrics_free(struct ds_metrics *m);
/* steps[0..n-1] are steps 0, 1, ... of one request; example tells prompts apart. row may be NULL. */
int ds_metrics_add(struct ds_metrics *m, const char *group, uint64_t example,
                   const struct ds_step *const *steps, size_t n, struct ds_metrics_row *row,
                   struct ds_error *err);
/* No group so far gets another observation: of all only the figures are kept. */
int ds_metrics_settle(struct ds_metrics *m, struct ds_error *err);
/* After the last observation and ds_metrics_settle: groups in the order of their first observation. */
size_t ds_metrics_groups(const struct ds_metrics *m);
const char *ds_metrics_group(const struct ds_metrics *m, size_t i);
const struct ds_metrics_summary *ds_metrics_summary(const struct ds_metrics *m, size_t i);

/* The probability of a token at a step: NaN where the record does not tell it. */
double ds_step_probability(const struct ds_step *s, int32_t token);

#endif
