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
    REVERSE, /* all; cached heads from the last to the first */
    SCALED,  /* all; scores times a number */
    CAPPED,  /* all; scores bent to stay below a number */
    COARSE   /* all; scores or weights rounded, n: enum coarse */
};

/* What is rounded, to bf16 or to f16: the weights that values are multiplied with (their sum is not, or
 * is), the weights when they are divided by their sum, the scores. */
enum coarse { WEIGHTS, WEIGHTS_AND_SUM, SHARES, SCORES, COARSE_WAYS };
struct keys {
    int family;
    int64_t n;
    double factor; /* SCALED, CAPPED */
    int dtype;     /* COARSE */
};

static inline uint32_t heads_of(const struct task *t)
{
    return t->s->width / t->s->head_dim;
}

/* One head of row r over the keys, into out[head_dim]. -1: a key is not at hand. */
int structure_attend(const struct task *t, size_t r, uint32_t head, const struct keys *k,
                     double *out);
/* All of them: a predict_fn whose `how` is struct keys. */
int structure_predict_keys(const struct task *t, size_t r, const void *how);

#endif
