/* validity.h: is what was captured worth comparing? Dead buffers, one buffer captured for all
 * layers, rows that hold nothing but NaN, probes that change the answer, trials with unlike
 * histories, fixtures that could not fail. Named before any verdict; part of it
 * (ds_verdict.validity) and pure, as all of it. */
#ifndef DS_VALIDITY_H
#define DS_VALIDITY_H

#include "dumps/verdict.h"

/* What an engine fills memory with before use, so that a read of what nobody wrote can be told: a
 * quiet NaN that no arithmetic produces. */
#define DS_POISON_BITS 0x7fd5a5a5u

enum ds_validity_kind {
    DS_VALIDITY_ZERO = 0,  /* every byte of every row is zero, although its inputs are not */
    DS_VALIDITY_CONSTANT,  /* all rows have the same bits, although each of its inputs varies */
    DS_VALIDITY_POISON,    /* rows hold DS_POISON_BITS and nothing else: nobody wrote them */
    DS_VALIDITY_NAN,       /* every element of every row is NaN: equal NaN compares nothing */
    DS_VALIDITY_LAYERS,    /* layers of other inputs or weights have the same bits in every row */
    DS_VALIDITY_INPUT,     /* every row has the bits of an input, which this op cannot do */
    DS_VALIDITY_DISTURBED, /* the answer is another one without probes */
    DS_VALIDITY_WARM_UP,   /* the first trial of a process is unlike all later ones */
    DS_VALIDITY_HISTORY,   /* of two records: other trials ran before those that are compared */
    DS_VALIDITY_INERT,     /* a change to the data at a stage is not seen by what follows */
    DS_VALIDITY_KINDS
};
/* "all-zero" .. "inert-fixture" */
const char *ds_validity_name(int kind);

/* One finding; the layers of a stage are one. */
struct ds_validity_item {
    int kind;
    int proves_nothing; /* equal digests there are no evidence, in any arm */
    int located;        /* the site is one: */
    uint32_t site;      /* the first */
    uint32_t sites;     /* how many layers of its stage */
    uint32_t arm;       /* an arm that shows it */
    char text[224];     /* in a sentence */
};

struct ds_validity {
    struct ds_validity_item *items; /* in the order of the kinds, then of execution */
    size_t n_items;
    uint8_t *proves_nothing; /* [n_sites] */
    uint64_t void_digests;   /* compared digests at such sites, and equal NaN rows anywhere */
};
void ds_validity_free(struct ds_validity *v);

#endif
