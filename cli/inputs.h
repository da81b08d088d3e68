/* inputs.h: inside cli/ only: `--inputs FILE.json`: what entered a conversation from outside (prompts, tool and
 * retrieval texts, the clock) as one recorded file, and the calls of the model that follow from it. The format is
 * described in INPUTS.md. Knows no schedule and no record. */
#ifndef DS_INPUTS_H
#define DS_INPUTS_H

#include "base/buf.h"
#include "base/error.h"
#include "dumps/record.h"
#include "engine/tokenizer.h"

#include <jansson.h>

#include <stdint.h>
#include <time.h>

#define DS_INPUTS_SCHEMA "driftscope.inputs/1"

/* A checked file. Texts that came from other files stand in it, each with its digest, so that it needs nothing else. */
struct ds_inputs {
    json_t *doc;
    size_t n_requests, n_texts; /* texts: of the file and of all its requests */
};
/* `name`: of the file, for errors, which say where: line and column, or request and turn. `folder`: where "file" of a
 * text begins; NULL: no text may be in another file. */
int ds_inputs_parse(const char *name, const char *text, size_t len, const char *folder,
                    struct ds_inputs *in, struct ds_error *err);
int ds_inputs_read(const char *path, struct ds_inputs *in, struct ds_error *err);
void ds_inputs_free(struct ds_inputs *in);
/* The checked file as text, all in one. */
int ds_inputs_text(const struct ds_inputs *in, struct ds_buf *out, struct ds_error *err);
/* What differs from `was`, a line each: "text 'policy': was 0123456789abcdef, is ...". "" = nothing. */
int ds_inputs_changes(const struct ds_inputs *was, const struct ds_inputs *is, struct ds_buf *out,
                      struct ds_error *err);

/* ---- the clock (inputs_clock.c) ---------------------------------------------------------------- */

struct ds_inputs_clock {
    struct tm tm; /* as the file says it, in its own zone */
    char text[48];
    int given;
};
/* "2024-06-03T14:32:00Z", "...+02:00", or whole seconds since 1970. v NULL: the clock is not given. */
int ds_inputs_clock_parse(const json_t *v, struct ds_inputs_clock *c, struct ds_error *err);
/* {{clock}} (n = 0), {{clock:FORMAT}} */
int ds_inputs_clock_text(const struct ds_inputs_clock *c, const char *format, size_t n,
                         struct ds_buf *out, struct ds_error *err);

/* ---- texts (inputs_texts.c) -------------------------------------------------------------------- */

/* Where the names of a request's turns are looked up. */
struct ds_inputs_scope {
    const json_t *own, *shared; /* texts of the request and of the file; NULL: none */
    struct ds_inputs_clock clock;
};
int ds_inputs_scope_of(const struct ds_inputs *in, size_t request, struct ds_inputs_scope *s,
                       struct ds_error *err);
/* Checks the texts of one object, and takes in what stands in files. Counts them in *n. */
int ds_inputs_check_texts(json_t *texts, const char *folder, size_t *n, struct ds_error *err);
/* What a fed turn says: its "content" with placeholders filled in, or its named "text". */
int ds_inputs_said(const struct ds_inputs_scope *s, const json_t *turn, struct ds_buf *out,
                   struct ds_error *err);
/* An error if the object has a member that is not among the words, "a|b|c". */
int ds_inputs_members(const json_t *object, const char *words, struct ds_error *err);

/* ---- calls (inputs_calls.c) -------------------------------------------------------------------- */

/* A turn of the model: one call of it, with all that came before as its prompt. */
struct ds_inputs_call {
    const char *id; /* of its request; borrowed */
    int32_t turn;   /* in the request's turns */
    int32_t first;  /* the number of the conversation's first call */
    char *text;     /* of the prompt; "" where it has parts that are ids */
    int32_t *prompt, *expect;
    size_t n_prompt, n_expect; /* n_expect 0: nothing is recorded */
};
/* tokenizer: NULL if the model has none. */
int ds_inputs_calls(const struct ds_inputs *in, const struct ds_tokenizer *tokenizer, int32_t vocab,
                    struct ds_inputs_call **calls, size_t *n, struct ds_error *err);
void ds_inputs_calls_free(struct ds_inputs_call *calls, size_t n);

/* ---- what came of them (inputs_judge.c) --------------------------------------------------------- */

/* One conversation in a trial, over all its copies. A copy follows the recording when each of its calls gave the
 * recorded tokens; it ends at the first that did not, and what comes after is not judged. */
struct ds_inputs_followed {
    size_t first, calls;             /* its calls */
    size_t copies, followed, parted; /* the rest ended early, or was cut short by the schedule */
    uint64_t judged, left_out;       /* calls */
    /* Where a copy parts first: the earliest call, then the earliest token, then the lowest request. */
    size_t call;
    int32_t request, token, id, expected; /* token: which of the call, from 0 */
    float margin;                         /* of that choice */
    double behind; /* the recorded token's logit below the chosen one's; NaN: not in the top 8 */
    int ties;
};
/* Request r of the trial is call r % n_calls. One entry for each conversation with anything recorded. malloc'ed. */
int ds_inputs_judge(const struct ds_inputs_call *calls, size_t n_calls,
                    const struct ds_trial_data *t, size_t n_requests,
                    struct ds_inputs_followed **out, size_t *n, struct ds_error *err);

/* What the model said in the trial, as token ids, where the inputs have nothing recorded (inputs_fill.c). */
int ds_inputs_fill(struct ds_inputs *in, const struct ds_trial_data *t, size_t n_requests,
                   struct ds_error *err);

#endif
