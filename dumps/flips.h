/* flips.h: how choices turn over where each was made by a reference and by others, and the reference was named before: arms
 * of a sweep, a text that was generated and scored (risk.c). Pure. Of requests, whose reference is the commonest among them,
 * and which share what they answer, partings.h is the model.
 *
 * A pair is one choice of the token as it was made twice: by a reference, and by another run that was fed the same
 * tokens until then. A choice with margin m turns over where the difference of the two logits moved by m or more
 * against it. How far it moved is measured for each pair; its direction is taken to be as likely either way, so that a
 * choice which was moved by m or more turns over with probability one half; the same for the third best token,
 * and so on. Where the size is not known, it is one of those that are.
 *
 * Expected flips are the sum of these probabilities. The interval: prompts are drawn anew with replacement, and
 * around each sum a Poisson number, since a few rare events scatter even when their probabilities are known. */
#ifndef DS_FLIPS_H
#define DS_FLIPS_H

#include "dumps/record.h"

struct ds_flip_pair {
    const struct ds_step *ref, *own;
    int32_t prompt; /* 0 .. n_prompts - 1 */
};
/* Shows every pair to `take`, the same ones in the same order each time it is called; -1 when take failed. */
typedef int (*ds_flip_take)(void *to, const struct ds_flip_pair *p, struct ds_error *err);
typedef int (*ds_flip_walk)(void *ctx, ds_flip_take take, void *to, struct ds_error *err);

/* |drift| of the difference of the reference's two best logits, ascending. */
struct ds_flip_sizes {
    double *size;
    size_t n, cap;
};
void ds_flip_sizes_free(struct ds_flip_sizes *s);
/* Of all pairs where it is known. */
int ds_flip_measure(ds_flip_walk walk, void *ctx, struct ds_flip_sizes *out, struct ds_error *err);
/* The size that the share q of them does not exceed; 0 where there is none. */
double ds_flip_size_at(const struct ds_flip_sizes *s, double q);

/* How far the difference of the logits of two tokens moved from step a to step b; NaN if one is not among the best
 * of both. */
double ds_step_moved(const struct ds_step *a, const struct ds_step *b, int32_t first,
                     int32_t second);
/* |drift| of a pair: of the reference's two best logits. NaN: not known. */
double ds_flip_drift(const struct ds_flip_pair *p);
/* That the reference's choice turns over to any of the tokens that were recorded beside the best one, where the
 * difference moves by `drift`; NaN: by one of the sizes. */
double ds_flip_probability(const struct ds_flip_sizes *s, const struct ds_step *ref, double drift);

struct ds_flips {
    uint64_t choices, seen; /* pairs; of them those with another token */
    double expected;
    int bounded; /* low and high: 95 % of bootstrap samples of prompts; not with one prompt */
    double low, high;
    double drift_median, drift_most;
};
/* Only what was seen and measured: nothing is expected. */
int ds_flips_count(ds_flip_walk walk, void *ctx, struct ds_flips *out, struct ds_error *err);
int ds_flips_make(ds_flip_walk walk, void *ctx, size_t n_prompts, struct ds_flips *out,
                  struct ds_error *err);

#endif
