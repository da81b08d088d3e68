/* explain_weigh.h: softmax and attention again along measured trees: what explain_weigh.c, which looks for
 * the way, and explain_weigh_head.c, which goes it for one head, share. Private to kernels/lab. */
#ifndef DS_LAB_EXPLAIN_WEIGH_H
#define DS_LAB_EXPLAIN_WEIGH_H

#include "kernels/lab/explain.h"
#include "kernels/lab/order_replay.h"

enum { DS_EXP_LIBM, DS_EXP_PINNED, DS_EXPS };
enum { DS_MAX_ONE, DS_MAX_BY_SLOT, DS_MAX_BY_BLOCK, DS_MAXIMA };
enum { DS_MERGE_NONE, DS_MERGE_LSE, DS_MERGE_LARGEST, DS_MERGE_FMA, DS_MERGES };

struct ds_weigh_form {
    int exp, reciprocal, fma, running, merge;
    int sink_last; /* a sink is merged behind all else; 0: it joins the maximum first, the sum last */
    int cut;       /* how parts are found: 0..DS_WEIGH_CUTS - 1, see ds_weigh_parts */
};
enum { DS_WEIGH_CUTS = 3, DS_WEIGH_MOST_PARTS = 64 };

/* Slots begin..end-1, added up. */
struct ds_weigh_part {
    int64_t begin, end;
    float max, sum;
};

struct ds_weigher {
    const struct ds_explain *e;
    int side;
    const struct ds_explain_order *o;
    struct ds_replay *replay, *fused; /* [n_trees]; the trees of values with FMA */
    int64_t slots, dim;               /* that the trees have; channels of a head; softmax: 0 */
    int64_t from, before;             /* first slot that the row sees; slots that no tree has */
    int32_t *cut_of;                  /* o->cut_of */
    float *score, *p, *ones, *column, *room;
    /* Of the row and head at hand: */
    int32_t values, den; /* trees */
    float *acc, *part_acc;
    struct ds_weigh_part *blocks; /* as many as there are slots */
    int most_blocks;
};

/* Form `number` of those that are tried (ds_explain_order.form). */
struct ds_weigh_form ds_weigh_form_of(int number);
/* The steps of a tree; fused: every product that meets a sum joins it unrounded. */
int ds_weigh_compile(const struct ds_tree *t, int fused, struct ds_replay *out,
                     struct ds_error *err);
/* ((P0 + P1) + P2) + ...: what the tree adds last, one after another; each a range of terms, ascending.
 * A single term is no part (cut 0), the last part alone (1), or always one (2), since two
 * terms may be two parts or one. 0: it is not so. */
int ds_weigh_parts(const struct ds_tree *t, int cut, struct ds_weigh_part *out, int most);

/* exp and tanh of a form: libm's, or those of kernels/PINNED.md. These are transcriptions of that page of
 * their own, beside the kernels' code: what is held against a kernel must not be that kernel. */
float ds_weigh_exp(int exp, float x);
float ds_weigh_tanh(int exp, float x);

/* exp(x - max); 0 for a score of -infinity. */
float ds_weigh_term(const struct ds_weigh_form *f, float x, float max);

/* One maximum for all of the part: w->p, the part's sum, and if there are values, theirs in acc. */
void ds_weigh_whole(const struct ds_weigher *w, const struct ds_weigh_form *f,
                    const struct ds_explain_input *in, int64_t row, int64_t head,
                    struct ds_weigh_part *p, float *acc);

/* One head of attention by one form, from w->score; 0: the trees are not of that form. */
int ds_weigh_head(const struct ds_weigher *w, const struct ds_weigh_form *f,
                  const struct ds_explain_input *in, int64_t row, int64_t head, float *y);

#endif
