/* partings.h: how many requests of a serving run part from the rest of their prompt, foretold from the margins and the
 * drift of another run of the same prompts, or of the same one. Pure.
 *
 * What is learnt, of the choices of each prompt's reference (storm.h), from all requests that made the choice after equal
 * tokens: an *answer* is what the rows that had the same bits gave (those of `final_norm` where the record has them: what
 * the head makes of equal rows differs by next to nothing), so that ten requests with one answer are one measurement.
 * An answer's gap is that of the reference's token to the best other one, its rival: below 0 where it is the other way round.
 * The gap of a choice is the mean over its K answers; how far answers lie from that mean, times sqrt(K / (K - 1)), is the
 * drift, of all prompts together.
 *
 * What is foretold: the run whose bits are looked at says which of its requests share an answer at which step (that is
 * what its traffic does), and nothing else of it is used. Then it is played: at each choice the mean is off by a drift
 * over sqrt(K), since it was measured on K answers, and each answer by one of its own; a request whose gap comes to be
 * below 0 leaves, and with it those that share the answer, for the rival of one of the K. Who leaves for the same one at the same
 * step goes on together, with another text: its choices nobody has measured, so each is played as that of a prompt drawn at random
 * at the same step, and the group may part again. At the end the largest group is the reference's, and all others have parted: so it is counted in what was seen, too, and
 * a reference that is chosen because it is the commonest is nobody's bias.
 *
 * The interval: 95 % of such plays, each of prompts that are drawn anew with replacement, and with the drift of these. */
#ifndef DS_PARTINGS_H
#define DS_PARTINGS_H

#include "dumps/record.h"

struct ds_partings;
/* -1 also for trial data that is no serving run's. */
int ds_partings_learn(const struct ds_header *h, const struct ds_trial_data *t, size_t n_requests,
                      struct ds_partings **out, struct ds_error *err);
void ds_partings_free(struct ds_partings *p);

struct ds_partings_forecast {
    uint64_t requests; /* beside the references */
    int known;         /* else the run drifts, and the one that was learnt from did not */
    double expected;
    int bounded; /* low and high; not with one prompt */
    double low, high;
};
/* h and t: of the run that is foretold; its prompts are those that were learnt. */
int ds_partings_foretell(const struct ds_partings *p, const struct ds_header *h,
                         const struct ds_trial_data *t, size_t n_requests,
                         struct ds_partings_forecast *out, struct ds_error *err);

/* That one more request turns over the reference's choice of this step; 0 where there is none. */
double ds_partings_chance(const struct ds_partings *p, int32_t prompt, int32_t step);

#endif
