/* fingerprint.h: inside cli/ only: log-probabilities that other systems gave, as OpenAI-style responses, read, paired
 * and held against each other. fingerprint_lines.c and fingerprint_read.c read them, fingerprint_pair.c pairs and aligns them; the numbers
 * are dumps/logprob's and dumps/logprob_cause's. */
#ifndef DS_FINGERPRINT_H
#define DS_FINGERPRINT_H

#include "cli/cli.h"
#include "dumps/logprob.h"
#include "dumps/logprob_cause.h"

#include <jansson.h>

/* ---- a file ----------------------------------------------------------------------------------------- */

struct ds_fp_alternative {
    uint64_t key; /* XXH3-64 of the token's bytes */
    double logprob;
};

struct ds_fp_token {
    uint64_t key;
    int64_t id; /* -1: not given */
    char *text; /* its bytes; NULL: only its id is known */
    size_t len;
    double logprob; /* NaN: not given (a first token) */
    struct ds_fp_alternative *alternatives;
    size_t n_alternatives;
};

/* A choice of a response. */
struct ds_fp_sequence {
    char *request; /* custom_id, else id; NULL: none */
    int custom;    /* it is a custom_id */
    int stopped;   /* the model ended it, not a limit */
    int64_t choice;
    int32_t concurrency; /* how many were asked at a time, as its line says; 0: it does not */
    size_t line;
    int64_t *prompt; /* token ids, where the response has them */
    size_t n_prompt;
    struct ds_fp_token *tokens;
    size_t n_tokens, cap_tokens;
    int open; /* pieces of it, from a stream, may follow */
    int failed; /* the server gave an error instead: it has no tokens, and keeps its place among the others */
};

struct ds_fp_file {
    const char *path;
    int64_t
        created; /* of the earliest response that says so, in seconds since 1970; 0: none does */
    char *model,
        *system; /* of the first that says so: model, system_fingerprint; NULL: none does */
    struct ds_fp_sequence *sequences;
    size_t n, cap;
    size_t
        n_failed; /* of these, errors of the server; the first one's line, and what it says (NULL: nothing) */
    size_t failed_line;
    char *failure;
};

/* Every line a response: chat (choices[].logprobs.content) or completion (tokens, token_logprobs, top_logprobs), or a
 * batch's line around one (custom_id, response.body). Token ids: vLLM's token_ids and prompt_token_ids, and tokens
 * written as token_id:N. A line may say "concurrency": N, at its top or in the response's metadata. Pieces of a stream (chat.completion.chunk, events "data: ...", llama.cpp's "stop": false) are joined.
 * An error names file and line; what was read until then is to be freed, too. A line's text has a NUL behind it. */
int ds_fp_read(const char *path, struct ds_fp_file *out, struct ds_error *err);
int ds_fp_read_line(const char *text, size_t len, size_t line, struct ds_fp_file *out,
                    struct ds_error *err);
void ds_fp_file_free(struct ds_fp_file *f);
/* The JSON of one line; streamed: it was sent as an event, so its choices may go on with those of an earlier line. */
int ds_fp_read_response(const json_t *j, size_t line, int streamed, struct ds_fp_file *out,
                        struct ds_error *err);

/* ---- pairs -------------------------------------------------------------------------------------------- */

enum ds_fp_match {
    DS_FP_EQUAL,       /* the same tokens, or one is the beginning of the other */
    DS_FP_OTHER_TOKEN, /* another token was chosen after equal ones: compared until then */
    DS_FP_PROMPT,      /* other prompts */
    DS_FP_BOS,         /* one side lacks the first token */
    DS_FP_SHIFTED,     /* one side has some tokens more at its beginning */
    DS_FP_RETOKENIZED, /* the same text in other tokens */
    DS_FP_ENDED,       /* one side's model ended where the other's went on: another choice */
    DS_FP_MATCHES
};
/* "equal", "other-token", "other-prompt", "missing-bos", "shifted", "re-tokenised", "ended". */
const char *ds_fp_match_name(int match);

struct ds_fp_pair {
    const struct ds_fp_sequence *a, *b;
    int match;
    size_t equal; /* tokens that are compared */
    /* Where the first difference is: in the prompt for DS_FP_PROMPT and DS_FP_BOS of a prompt. */
    size_t at;
    size_t by;     /* tokens that one side has more, for DS_FP_BOS and DS_FP_SHIFTED */
    int longer;    /* which side: 0 A, 1 B */
    int in_prompt; /* it is the prompt's ids that tell */
};

struct ds_fp_bucket {
    size_t from, to; /* positions, both included */
    struct ds_logprob_stats stats;
};
enum { DS_FP_MOST_BUCKETS = 40, DS_FP_WORST = 20 };

struct ds_fp_worst {
    size_t pair, position;
    double a, b;
};

struct ds_fp_result {
    const struct ds_fp_file *a, *b;
    struct ds_fp_pair *pairs;
    size_t n_pairs, unpaired_a, unpaired_b;
    const char *paired_by; /* "custom_id", "id", "order" */
    /* Responses whose name an earlier one of their file has: they are paired in the order of their lines. */
    size_t repeated_a, repeated_b;
    const char *repeated; /* the first such name; NULL: none */
    size_t matches[DS_FP_MATCHES];
    size_t alone_a, alone_b; /* tokens behind the end of the other side, which a limit set */
    double eps;
    struct ds_logprob_stats tokens;    /* over all tokens compared */
    struct ds_logprob_stats sequences; /* over sums of sequences */
    struct ds_logprob_stats *each;     /* [n_pairs] over the tokens of one */
    struct ds_fp_bucket buckets[DS_FP_MOST_BUCKETS];
    size_t n_buckets;
    struct ds_fp_worst worst[DS_FP_WORST];
    size_t n_worst;
    struct ds_lp_pairs positions;
    /* Tokens behind a sequence's first that have a log-probability on one side only, as where the other gave NaN; the
     * index of the first of them. A first token may have none. */
    size_t one_sided, one_sided_at;
    size_t others,
        others_at; /* positions whose alternatives differ, whatever the chosen token's log-probability */
    struct ds_lp_cause causes[DS_LP_CAUSES];
    size_t n_causes;
};

/* How two sequences stand to each other. Pure. */
void ds_fp_align(struct ds_fp_pair *p);
int ds_fp_compare(const struct ds_fp_file *a, const struct ds_fp_file *b, double eps,
                  struct ds_fp_result *out, struct ds_error *err);
void ds_fp_result_free(struct ds_fp_result *r);
/* Whether anything differs. */
int ds_fp_differs(const struct ds_fp_result *r);
/* Whether responses, or tokens at their ends, have no partner: then equal ones are not all. */
int ds_fp_incomplete(const struct ds_fp_result *r);

void ds_fp_text(struct ds_buf *out, const struct ds_options *o, const struct ds_fp_result *r);
int ds_fp_json(struct ds_buf *out, const struct ds_fp_result *r, struct ds_error *err);

#endif
