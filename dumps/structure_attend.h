/* structure_attend.h: an attention row computed again from its query and the cached rows, seeing other keys
 * or with another arithmetic. For structure_attend.c and structure_attention.c. */
#ifndef DS_STRUCTURE_ATTEND_H
#define DS_STRUCTURE_ATTEND_H

#include "dumps/structure_internal.h"

/* Which keys. Numbers are relative to the row's own position, so that one hypothesis can hold for
 * all rows. */
enum family {
    ALL,     /* 0..position */
    WINDOW,  /* the last n */
    SHORTER, /* all but the last n */
    FIRST,   /* the first n, whatever the position */
    SINCE,   /* from position n on */
    BUT_AGO, /* all but the one n positions ago */
    BUT_AT,  /* all but the one at n */
    BEYOND,  /* n more, of later positions */
    UPTO,    /* the first n, of later positions, too */
    EMPTY,   /* n more that hold zeros */
    PADS,    /* the last n of padding before the first token, too */
    ONE_HEAD /* all, but every head reads cached head n */,
    MODULO /* all; head h reads cached head h % kv_heads */,
    REVERSE,   /* all; cached heads from the last to the first */
    TURNED_ON, /* all; a group reads the cached head of the group n further on, in circles */
    BEFORE,    /* all; every key but the first, from `from` on, is that of the position before */
    STALE,     /* all; the row's own key is that of the position before */
    SCALED,    /* all; scores times a number */
    CAPPED,    /* all; scores bent to stay below a number */
    COARSE,    /* all; something is rounded, n: enum coarse */
    EXCHANGE,  /* all; bits of n: values for keys, keys for values */
    PAGE,      /* all; block n of `page` positions holds those of block `from` (-1: nothing) */
    QUERY,     /* all; with the query of the row n positions before */
    PARTIAL,   /* all; scores are products of the first n channels of a head */
    SLOPED,    /* all; scores get a slope by the key's distance, by_head */
    SINK,      /* all; and one more score without a value, by_head */
    BENT_EXP,  /* all; the exponential is off: `bent` */
    AHEAD,     /* all; every key is that of the position behind */
    ENDS,      /* the first `from` and the last n */
    FUNCTION,  /* all; weights are another function of the scores, n: enum weight_function */
    UNSHRUNK, /* all; where the largest score grows what was added is not scaled down, n: enum unshrunk */
    MASKED, /* the first n, later ones with `factor` added to their score, or (from 1) with a score of 0 */
    NO_VALUE,     /* all; the row's own key has a weight and no value */
    QUERY_TURNED, /* all; channels of the query in another order, n: enum query_order */
    CUT_SCORES,   /* all; scores are cut to +-factor */
    STRIDE        /* all; pages of `page` rows are read as if they lay `from` rows apart */
};

enum weight_function {
    W_SOFTPLUS,
    W_SIGMOID_BARE, /* not divided by their sum */
    W_SIGMOID,
    W_RELU,
    W_RELU_SQUARED,
    W_LINEAR,      /* the scores themselves, not divided */
    W_LINEAR_SUM,  /* divided by their sum */
    W_EXP_SQUARES, /* exponentials, divided by the root of the sum of their squares */
    WEIGHT_FUNCTIONS
};
enum unshrunk { SUM_AND_OUTPUT, OUTPUT_ALONE, SUM_ALONE, UNSHRUNK_WAYS };
enum query_order { QUERY_HALVES, QUERY_TO_PAIRS, QUERY_FROM_PAIRS, QUERY_REVERSED, QUERY_ORDERS };

/* What is rounded, to a format of few bits: the weights that values are multiplied with (their sum is not, or
 * is), the weights when they are divided by their sum, the scores, what is read. */
enum coarse { WEIGHTS, WEIGHTS_AND_SUM, SHARES, SCORES, QUERIES, KEYS, VALUES, COARSE_WAYS };
enum few_bits { AS_BF16, AS_F16, AS_E4M3, AS_E4M3_OF_448, AS_E4M3_OF_256, AS_E5M2, FEW_BITS };

/* How far an exponential is off, relatively, between knots of what decides it: the place of its exponent
 * between two powers of two, or how far a score is below the largest. */
enum { BENT_KNOTS = 25 };
struct bent {
    int by_distance;
    double off[BENT_KNOTS];
};

/* Whether that is so of keys and values, or of one of them alone. */
enum parts { OF_BOTH = 0, OF_KEYS, OF_VALUES, PARTS };

struct keys {
    int family;
    int parts; /* of families that say where something is read: enum parts */
    int64_t n;
    double factor;      /* SCALED, CAPPED */
    int dtype;          /* COARSE: enum few_bits */
    int64_t page, from; /* PAGE; BEFORE: from */
    const double *by_head;
    const struct bent *bent;
};

static inline uint32_t heads_of(const struct task *t)
{
    return t->s->width / t->s->head_dim;
}

/* One head of row r over the keys, into out[head_dim]. -1: a key is not at hand. */
int structure_attend(const struct task *t, size_t r, uint32_t head, const struct keys *k,
                     double *out);
/* Whether a row that is off sees a key: else it is 0, as rows are that were not written, and that is the simpler
 * thing to say. */
int structure_sees_any(const struct task *t, const struct keys *k);
/* All of them: a predict_fn whose `how` is struct keys. */
int structure_predict_keys(const struct task *t, size_t r, const void *how);
/* The score of a row's head with one cached key; where it lies between the knots of an exponential that is
 * off: knot *at and, by `part`, the next. */
double structure_score(const struct task *t, size_t r, uint32_t head, const struct keys *k,
                       int64_t key);
void structure_knot(int by_distance, double below, int *at, double *part);

/* structure_attention.c, for structure_scores.c: a quick look at one head of row r; the number that brings a
 * head, or the whole row (head -1), nearest, from `from` to `from` * 2^(n / 2). */
int structure_plausible(const struct task *t, size_t r, const struct keys *k);
double structure_fit(const struct task *t, size_t r, struct keys *k, double *number, int64_t head,
                     double from, int n);

/* Who is spoken of, and what follows where it is the reference. */
static inline const char *structure_whose(const struct task *t)
{
    return t->turned ? "the reference's attention" : "attention";
}
static inline const char *structure_but(const struct task *t)
{
    return t->turned ? ", this one does not" : "";
}
/* The share of what is off that k explains, in all rows; 0 where a quick look at `row` speaks against it. */
double structure_share(const struct task *t, size_t row, const struct keys *k);

/* structure_weights.c: weights by another function than the softmax, or by one that goes wrong on the way; masks. */
void try_weights(struct task *t, size_t first, size_t last);
/* structure_parts.c: two parts of the keys in other shares; a sum that nothing is divided by. */
void try_parts(struct task *t, size_t last);
/* structure_scores.c: what stands between scores and values, and where cached rows are read. last: the row in
 * which most can be seen, first: the one with the fewest keys. */
void try_cached_rows(struct task *t, size_t first, size_t last);
int try_other_scores(struct task *t, size_t last, struct ds_error *err);

/* "the last 5 keys"; first: the position at which the request begins. */
void structure_tell_keys(const struct keys *k, int64_t first, char *text, size_t size);
/* Rows that have something to explain: the one with the fewest keys (-1: none), the one with the most from `first` on; the
 * one that is looked at first for these keys. */
int64_t structure_first_row(const struct task *t);
size_t structure_last_row(const struct task *t, size_t first);
size_t structure_probe_for(const struct task *t, const struct keys *k);
/* By which factor row r's scores are multiplied, or at what they are capped, as it seems. */
double structure_find_factor(const struct task *t, size_t r, int family);
/* structure_both.c: neither side is attention to all keys of a row: what each of them did. turned: the rows with their sides
 * exchanged. */
void try_both(struct task *t, const struct ds_structure_row *turned);

#endif
