/* structure_internal.h: what the files structure*.c share. */
#ifndef DS_STRUCTURE_INTERNAL_H
#define DS_STRUCTURE_INTERNAL_H

#include "dumps/profile.h"
#include "dumps/structure.h"

struct ds_error;

/* Elements that must be off before anything is claimed of them, few hypotheses apart. */
enum { STRUCTURE_LEAST_OFF = 8 };

struct task {
    const struct ds_structure_site *s;
    const struct ds_structure_row *rows;
    size_t n_rows;
    double *rms;     /* [n_rows] of the reference */
    float *guess;    /* [width] a prediction */
    double *sorted;  /* [2 * width] scratch */
    uint8_t *is_off; /* [n_rows][width] */
    uint64_t *off_in_row, off;
    uint64_t least; /* of off that a claim takes */
    size_t probe;   /* attention: the row that is looked at first */
    int turned;     /* mine and ref are exchanged: what is found is the reference's */
    struct ds_structure *best;
};

/* Predicts row r into t->guess; NaN where it cannot tell an element. 0: it has no prediction for
 * such a row (which speaks against it), -1: what it would need is not at hand. */
typedef int (*predict_fn)(const struct task *t, size_t r, const void *how);

int is_off(const struct task *t, size_t r, uint32_t i);
/* Heads in which anything is off, and which they are, as "1-3, 5"; UINT32_MAX: too many heads to tell. */
uint32_t structure_heads_off(const struct task *t, char which[DS_PROFILE_TEXT]);
int fits(const struct task *t, size_t r, uint32_t i, double value);
/* Share of the off elements, of all rows, that the prediction brings back; 0 when most of them are
 * not at hand. */
double explains(const struct task *t, predict_fn predict, const void *how);
/* Whether the prediction is right of the elements beside those that are off, too: in the same unit (a row, a
 * head). Two halves are not swapped where one of them stands in both places, and a row is not rotated as at
 * another position where only some frequencies are. */
int holds_beside(const struct task *t, predict_fn predict, const void *how, uint32_t unit);
/* Takes the hypothesis if it is good enough and better than the best so far: 1. */
int claim(struct task *t, double explained, double ratio, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* For qsort of doubles. */
int structure_by_value(const void *a, const void *b);

void try_numbers(struct task *t);
void try_rope(struct task *t);
int try_attention(struct task *t, struct ds_error *err);
void try_terms(struct task *t);
void try_factors(struct task *t);
/* What is no sum of the terms: the largest of them, their mean, the sum of some. */
void try_reductions(struct task *t);
/* Terms that are read in another place. */
void try_shifts(struct task *t);
/* Any factors, where nothing simpler holds. */
void try_other_factors(struct task *t);
/* A router's weights by another rule. */
void try_router(struct task *t);
/* The gated unit with another function of gate than any that is known, or with an exponential that is off. */
int try_activation(struct task *t, struct ds_error *err);
/* A norm's input in fewer bits, a norm of groups of channels. */
void try_norm(struct task *t);
/* What a norm divides by; an input that is cut to a range before it. */
void try_scale(struct task *t);
void try_cut_input(struct task *t);
void try_values(struct task *t);
void try_gate(struct task *t);
/* Whether the reference is silu(gate) * up of the rows at hand. */
int structure_is_gate(const struct task *t);
/* The same of this side. */
int structure_makes_gate(const struct task *t);
/* Looks with the two sides exchanged; what is found is told of the reference. right: 1: this side is what the op
 * makes of its inputs and the reference is not; -1: the other way round, then it does not look; 0: not known.
 * only_if_right: looks where it is 1 alone. -1: out of memory. */
int structure_turned(struct task *t, int only_if_right, int *right,
                     int (*look)(struct task *, struct ds_error *), struct ds_error *err);
/* Attention: what no weights make of the rows that a row may see; said where nothing else can be. */
void try_mixtures(struct task *t);
void try_mean(struct task *t);
void try_one_vector(struct task *t);
/* Elements that are zero, or differ in one bit: one is enough. */
void try_few(struct task *t);
/* Elements of a row that stand in each other's place, in every row alike. */
int try_moved(struct task *t, struct ds_error *err);
/* What stands to be explained of t's rows: fills rms, is_off and what counts them. */
void structure_look(struct task *t);
void measure_bits(const struct ds_structure_site *s, const struct ds_structure_row *rows,
                  size_t n_rows, struct ds_structure *out);

#endif
