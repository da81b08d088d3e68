/* risk.h: how near the choices of a record are to other ones. Pure functions on a header and its trials: margins, the
 * drift that was measured, the flips that both lead one to expect (flips.h), the choices most at risk; per layer the
 * drift that would turn one over; and what a record foretells of another one that it has not seen.
 *
 * A group is what was made with the same kernels (and format). Its pairs: in a sweep (`run`) every arm beside the first
 * one of its group, as long as the same tokens were fed; in a serving run (`storm`) every request beside its reference
 * (storm.h); of a text that was generated and scored (`onpolicy`) both. Prompts: in a sweep there is one. */
#ifndef DS_RISK_H
#define DS_RISK_H

#include "dumps/flips.h"
#include "dumps/partings.h"

/* One choice of a reference. */
struct ds_risk_choice {
    const struct ds_step *ref;
    int32_t prompt;
    uint32_t pairs, seen; /* others that made it; of them with another token */
    int nan;              /* its logits, or another's, hold a NaN or +Inf */
    double drift;         /* the largest |drift| of the two best logits; NaN: not known */
    /* Mean probability that it turns over; of no pairs: by the group's sizes. Of a serving run:
     * that one more request turns it over (partings.h). */
    double chance;
};

/* What a layer would have to drift for the choice nearest to a flip, if all grows in proportion. */
struct ds_risk_layer {
    int32_t layer;         /* n_layers: final_norm */
    uint64_t rows;         /* that drift and whose choice has a partner */
    double median;         /* of the relative rms of these rows */
    double needed;         /* the smallest relative rms that would turn its choice over ... */
    int32_t request, step; /* ... and which that is, */
    int32_t prompt;        /* of which prompt */
};

struct ds_risk_group {
    uint32_t arm; /* its first one */
    struct ds_flips flips;
    double margin[5]; /* smallest, 1 %, 10 %, median, largest, of the choices */
    double within
        [3]; /* share of the choices with a margin within the median, 99 % and largest drift */
    double per_1000, low,
        high; /* expected flips in 1,000 choices; the interval where flips.bounded */
    double seen_per_1000;
    double drift_99;
    uint64_t ties; /* choices with several best tokens */
    /* Choices without a margin: their logits are NaN, or what tokens were drawn by is. */
    uint64_t blind;
    /* Other choices with a NaN or +Inf among the logits: of numbers alone their margins are. */
    uint64_t nan;
    struct ds_risk_choice *choices; /* most at risk first */
    size_t n_choices;
    struct ds_partings *partings; /* of a serving run: what it foretells others from; else NULL */
    struct ds_risk_layer *layers; /* none where the record has no sizes */
    size_t n_layers;
};

struct ds_risk {
    struct ds_risk_group *groups; /* by their first arms */
    size_t n_groups;
    size_t
        n_prompts; /* equal ones once; a choice's prompt is the first of the header with its tokens */
};
void ds_risk_free(struct ds_risk *r);

/* trials: [h->n_arms] the first natural trial of each arm, or NULL; borrowed, and to be kept as long as *out. */
int ds_risk_make(const struct ds_header *h, const struct ds_trial_data *const *trials,
                 struct ds_risk *out, struct ds_error *err);

/* What it is worth to exchange something in the first group's kernels (vendor+matmul=pinned beside vendor): the flips that were
 * seen with both, and whether prompts drawn anew, both on the same ones, say that there are fewer. */
enum { DS_GAIN_LOSS = -1, DS_GAIN_NONE, DS_GAIN_SOME, DS_GAIN_ALL };
struct ds_risk_gain {
    size_t group;
    const char *exchanged;       /* borrowed from the header: matmul=pinned */
    double expected[2], seen[2]; /* flips in 1,000 choices, before and after */
    double fewer, low, high;     /* of those seen, before less after; 95 % */
    int bounded;                 /* low and high; not with one prompt */
    int verdict; /* ALL: no choice is moved any more; SOME: low is above 0; LOSS: high is below */
};
/* Those that help first, those that do harm last; then by what is left. malloc'ed, also where *n is 0. */
int ds_risk_gains(const struct ds_header *h, const struct ds_risk *r, struct ds_risk_gain **out,
                  size_t *n, struct ds_error *err);

/* The same of a group of another record of the same prompts, which was made with the same kernels and format, but other stages
 * in f32 (the option dtype_at): out->group is that of h. 1; 0: there is no such group. exchanged is borrowed from `other`. */
int ds_risk_precision(const struct ds_header *h, const struct ds_risk *r,
                      const struct ds_header *other, const struct ds_risk *theirs, size_t group,
                      struct ds_risk_gain *out, struct ds_error *err);

/* What one serving run foretells of another one of the same prompts, from its own margins and drifts, and from which rows of
 * the other one have equal bits: how many of its requests part from their references; and what was seen. */
struct ds_risk_test {
    uint32_t group;    /* of the record that foretells */
    uint64_t requests; /* beside the references */
    int known;         /* else the other one drifts, and this one did not: nothing is foretold */
    double expected, low, high;
    uint64_t seen;
};
/* The arm `arm` of the other record, beside the group with the same kernels and format. 1; 0: there is no such
 * group. -1 also for unlike prompts, or fewer than two. */
int ds_risk_foretell(const struct ds_header *h, const struct ds_risk *r,
                     const struct ds_header *other, const struct ds_trial_data *t, uint32_t arm,
                     struct ds_risk_test *out, struct ds_error *err);

#endif
