/* lock.h: golden digests as a text that people review and git merges: what was asked (model, prompts, options, arms)
 * and, for each platform that answered, an entry. A line is a key and a value; README.md has the grammar.
 *
 * Four parts: the lines (lock.c), an entry made of a source and its verdict (lock_make.c), whether a lock agrees with
 * itself (lock_agree.c), and one entry held against another (lock_judge.c). Knows no model, no kernel and no file: a lock is read from memory, as hostile input. */
#ifndef DS_LOCK_H
#define DS_LOCK_H

#include "base/buf.h"
#include "dumps/logprob.h"
#include "dumps/verdict.h"

#define DS_LOCK_FORMAT "driftscope.lock"
enum { DS_LOCK_VERSION = 1 };

struct ds_lock_line {
    char *key,
        *value;  /* as they stand in the file: escaped; "class matmul/openblas batch", "1|4" */
    size_t line; /* where, from 1; 0: made, not read */
};

struct ds_lock_lines {
    struct ds_lock_line *at;
    size_t n, cap;
    size_t *order; /* [n] by key; NULL until ds_lock_sort */
};

struct ds_lock_entry {
    char *name;
    struct ds_lock_lines lines;
    size_t line;
};

struct ds_lock {
    char *file; /* for errors */
    struct ds_lock_lines question;
    struct ds_lock_entry *entries;
    size_t n_entries, cap_entries;
};

/* ---- lines (lock.c) -------------------------------------------------------------------------- */

/* Every error says FILE:LINE. *out is to be freed also after -1. */
int ds_lock_parse(const char *file, const char *text, size_t len, struct ds_lock *out,
                  struct ds_error *err);
void ds_lock_text(const struct ds_lock *l, struct ds_buf *out);
void ds_lock_free(struct ds_lock *l);
void ds_lock_lines_free(struct ds_lock_lines *l);

/* Adds a line. The key's words must be words (ds_lock_word), the value one line. */
int ds_lock_add(struct ds_lock_lines *l, const char *key, const char *value, struct ds_error *err);
int ds_lock_addf(struct ds_lock_lines *l, struct ds_error *err, const char *key, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));
/* Puts in order what ds_lock_find looks through. */
int ds_lock_sort(struct ds_lock_lines *l, struct ds_error *err);
const struct ds_lock_line *ds_lock_find(const struct ds_lock_lines *l, const char *key);
/* Its value; NULL: there is no such line. */
const char *ds_lock_get(const struct ds_lock_lines *l, const char *key);
/* An entry with no lines; the lock's until ds_lock_free. NULL: no memory. */
struct ds_lock_entry *ds_lock_new_entry(struct ds_lock *l, const char *name, struct ds_error *err);
struct ds_lock_entry *ds_lock_entry(const struct ds_lock *l, const char *name);

/* Text as a word of a key or a value: blanks, commas, bars, backslashes and what is no printable ASCII become \xNN. */
void ds_lock_word(struct ds_buf *b, const char *text);
/* And back; the bytes of one word. */
void ds_lock_unword(struct ds_buf *b, const char *word, size_t n);
/* Whether a key begins with a word: its kind. */
int ds_lock_is(const struct ds_lock_line *x, const char *kind);

/* ---- what values say ------------------------------------------------------------------------- */

struct ds_lock_step {
    int32_t token;
    double margin;
    /* Log-probabilities over the whole vocabulary; n_top 0: they were not finite. */
    int32_t ids[DS_TOP];
    double logprobs[DS_TOP];
    size_t n_top;
    double noise; /* the most by which repeats differ in that of the token */
};
int ds_lock_read_step(const char *value, struct ds_lock_step *out);

struct ds_lock_origin {
    char kind[24];
    int sized;
    uint64_t max_ulp;
    uint32_t layers;
};
int ds_lock_read_origin(const char *value, struct ds_lock_origin *out);
/* "5,9,1": *ids is malloc'ed. "-" is none. */
int ds_lock_read_ids(const char *value, int32_t **ids, size_t *n, struct ds_error *err);

/* ---- an entry of a run (lock_make.c) --------------------------------------------------------- */

/* What was asked: fills `question`. 1 with err: it cannot be locked (a served storm, a run that was free). */
int ds_lock_ask(const struct ds_source *s, struct ds_lock_lines *question, struct ds_error *err);
/* What was answered. number: [n_arms] what the lines call each arm, UINT32_MAX: not at all; NULL: as the source does.
 * The lines come sorted. */
int ds_lock_answer(const struct ds_source *s, const struct ds_verdict *v,
                   const struct ds_lock_lines *question, const uint32_t *number,
                   struct ds_lock_lines *out, struct ds_error *err);
/* Whether a lock agrees with itself (lock_agree.c): each entry's key is that of the question and its kernels, its lines
 * are as many as it says, and what stands in two places is the same. What an entry allows may be changed by hand
 * (classes of values, kinds, bounds). -1: the error says FILE:LINE. */
int ds_lock_agrees(const struct ds_lock *l, struct ds_error *err);
/* A name for an entry: machine and core of the matmul library. */
void ds_lock_name(const struct ds_lock_lines *entry, char *out, size_t size);

/* ---- two entries (lock_judge.c) -------------------------------------------------------------- */

/* An environment line that differs; `weight`: how likely it moves bits, 3 most. */
struct ds_lock_suspect {
    const char *name;
    const char *was, *is; /* NULL: there is none */
    int weight;
};

enum ds_lock_finding_kind {
    DS_LOCK_TENSOR = 0, /* other bits in a tensor of the base arm */
    DS_LOCK_RUN,        /* other bits in another arm */
    DS_LOCK_CLASS,      /* values of a factor that gave equal bits give other ones */
    DS_LOCK_UNSTABLE,   /* repeats of one arm disagree that agreed */
    DS_LOCK_ORIGIN,     /* a kernel starts a drift at a stage, or in layers, where it did not */
    DS_LOCK_KIND,       /* a drift that is known is of another kind */
    DS_LOCK_BOUND,      /* or larger than it was */
    DS_LOCK_TOKEN,      /* another token */
    DS_LOCK_NONFINITE,  /* NaN or Inf that was not there */
    DS_LOCK_KERNEL,     /* another variant at work */
    DS_LOCK_FIELD,      /* a line that was to be the same is another one */
    DS_LOCK_GONE,       /* a drift that the lock allows is not there any more */
    DS_LOCK_BASE,       /* other bits in the base arm, in no tensor that both have */
    DS_LOCK_STEP,       /* a step's numbers are not those of logits with the same bits */
    DS_LOCK_COUNT,      /* as many arms, and another number of what was compared */
    DS_LOCK_FINDINGS
};
const char *ds_lock_finding_name(int kind); /* "tensor" "run" "class" ... */

struct ds_lock_finding {
    int kind;
    int counts;           /* what was asserted does not hold */
    const char *key;      /* of the line */
    const char *was, *is; /* values; NULL: no such line */
    char note[160];       /* what about it: "4 has left 1"; may be "" */
};

enum ds_lock_assert { DS_ASSERT_BITS = 0, DS_ASSERT_TOKENS, DS_ASSERT_TEXT, DS_ASSERT_FIELDS };

struct ds_lock_terms {
    int what;                                 /* enum ds_lock_assert */
    int same_text;                            /* TEXT: 1 the chosen tokens read alike, 0 not */
    int (*field)(void *ctx, const char *key); /* FIELDS: whether a key is asked for */
    void *ctx;
};

struct ds_lock_verdict {
    struct ds_lock_suspect *suspects; /* heaviest first */
    size_t n_suspects, n_environment; /* of how many lines */
    /* Those that count first, then as in enum, then in the order of the entry. */
    struct ds_lock_finding *findings;
    size_t n_findings, cap_findings;
    size_t n_counting;
    /* The first tensor of the base arm with other bits, in execution order: all before it are equal, so that it is
     * an origin. NULL: none. */
    const struct ds_lock_line *first;
    size_t before; /* tensors before it */
    struct {
        size_t tensors, tensors_differ, tensors_unstable, tensors_missing;
        size_t runs, runs_differ, runs_missing;
        size_t classes, classes_missing;
        size_t origins, origins_missing, steps, tokens_differ, fields;
    } counts;
    size_t allowed_classes, allowed_origins; /* drifts that the lock knows, as it knows them */
    int32_t first_token;                     /* step of the first other token; -1 none */
    /* Of steps whose logits both have: */
    struct ds_logprob_stats logprobs;     /* of the lock's tokens */
    int32_t first_logprob, worst_logprob; /* steps; -1 none */
    double kl,
        kl_most; /* mean and largest over the steps, over the tokens that both list and the rest */
    struct ds_two_sample noise; /* of |d| against run-to-run noise of both */
    size_t noise_samples;
    int compared; /* 0: nothing was */
};

/* How unlike two environments are; 0: the same. */
uint64_t ds_lock_distance(const struct ds_lock_lines *a, const struct ds_lock_lines *b);
/* The entry nearest to an answer, the first of equals. -1: the lock has none. */
int64_t ds_lock_nearest(const struct ds_lock *l, const struct ds_lock_lines *is);
/* Holds the answer `is` against the entry `was`; texts in *out are borrowed from both. */
int ds_lock_judge(const struct ds_lock_lines *was, const struct ds_lock_lines *is,
                  const struct ds_lock_terms *terms, struct ds_lock_verdict *out,
                  struct ds_error *err);
void ds_lock_verdict_free(struct ds_lock_verdict *v);

#endif
