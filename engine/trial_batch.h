/* trial_batch.h: the requests of an arm and the calls they are cut into: batch, slot, neighbours,
 * padding, chunk, mode, prefix, rollback. Inside engine/: knows settings and tokens, runs nothing. */
#ifndef DS_TRIAL_BATCH_H
#define DS_TRIAL_BATCH_H

#include "engine/forward.h"
#include "engine/sweep.h"

/* One request of the batch while its trial runs. */
struct ds_member {
    const int32_t *prompt;
    int32_t n_prompt, n_pad;
    const int32_t *feed; /* tokens of the decode steps, repeated; NULL: those of the subject */
    int32_t fed;         /* prompt tokens fed so far */
    int32_t decoded;     /* tokens of decode steps fed so far and kept */
    int32_t accepts;     /* drafts of each step that are kept */
    int32_t request;     /* 0 = the subject, whatever its slot: rows are compared by request */
    int subject;
};

struct ds_trial_batch {
    struct ds_member *member; /* [n] in call order */
    struct ds_batch_seq *seqs;
    int32_t *space; /* tokens of the current call */
    int32_t n, max_rows, capacity;
    int32_t vocab;
    int all_logits;
    /* The subject's logits rows in the call, among all: its next token is chosen from the last prompt
     * row's, or from the token's of the step. -1: none */
    int32_t first_logits, n_logits, choice;
};

int ds_trial_batch_new(const struct ds_sweep *sw, const struct ds_setting *s,
                       struct ds_trial_batch *b, struct ds_error *err);
void ds_trial_batch_free(struct ds_trial_batch *b);

/* Back to the start, but for the subject's first `prefix` tokens. */
void ds_trial_batch_rewind(struct ds_trial_batch *b, int32_t prefix);
/* Fills seqs with the next chunk of every request that has prompt left; returns how many have. */
int32_t ds_trial_next_chunk(struct ds_trial_batch *b, const struct ds_setting *s);
/* One token of every request, and the drafts behind it. `next`: the subject's token of the step
 * after, which no draft may guess; -1: not known. Returns the number of sequences. */
int32_t ds_trial_next_step(struct ds_trial_batch *b, const struct ds_setting *s, int32_t step,
                           int32_t subject_token, int32_t next);

#endif
