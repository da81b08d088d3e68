/* bisect.h: which kernels bring a difference in? Delta debugging over whole-model passes: the
 * smallest set of kernels that must be exchanged so that two arms agree, and the smallest one that
 * alone makes them differ. Knows no command line and no file. */
#ifndef DS_BISECT_H
#define DS_BISECT_H

#include "engine/sweep.h"

/* ---- minimal sets (pure) --------------------------------------------------------------------- */

enum { DS_TRY_NO = 0, DS_TRY_YES = 1, DS_TRY_STOP = 2 };

/* Shrinks the set of all n elements, which fulfils `test`, to one that still does while no set with
 * one element fewer does (1-minimal; Zeller's ddmin). Elements near each other are dropped together,
 * so neighbours should be alike. in: [n] the result. `test` sees a set and says DS_TRY_*, -1 with
 * err. STOP and -1 end it at once and are returned, with the smallest set so far in `in`; else 0.
 * Where a set fulfils the test although a larger one does not (two effects that cancel), the result
 * is 1-minimal all the same, but another one may exist. */
int ds_ddmin(size_t n, int (*test)(void *ctx, const uint8_t *set, struct ds_error *err), void *ctx,
             uint8_t *in, struct ds_error *err);

/* ---- kernels --------------------------------------------------------------------------------- */

/* What is exchanged as a whole: an op, or an op in one layer. */
struct ds_bisect_atom {
    int op;
    int32_t layer; /* DS_BISECT_EVERYWHERE: in all */
};
enum { DS_BISECT_EVERYWHERE = -2 };

/* An outcome that is known already: of a set given as n characters '0' and '1'. */
struct ds_bisect_known {
    char *set;
    int outcome; /* enum ds_bisect_outcome */
};
enum ds_bisect_outcome { DS_BISECT_DIFFERS = 0, DS_BISECT_AGREES, DS_BISECT_UNSTABLE };

struct ds_bisect {
    /* Set up by the caller: a sweep whose header describes the model, and whose arms 0 and 1 are
     * those that are compared. Sink, have and progress are not looked at. */
    const struct ds_sweep *sweep;
    char *const *a,
        *const *b; /* values of the factors of the two arms; that of kernels is made here */
    struct ds_kernel_set from, to;
    int condition; /* 1: both arms have the same kernels, the condition differs; 0: arm b's kernels
                      are exchanged, arm a has `from` */
    int per_layer;
    int tokens; /* compare the choices of tokens, not the bits of the logits */
    void *ctx;
    /* A set was tried (not taken from `known`); may save. -1 ends the search. */
    int (*tried)(void *ctx, const struct ds_bisect *b, struct ds_error *err);

    /* Made by ds_bisect_run. */
    struct ds_bisect_atom *atoms; /* those whose kernels differ in from and to */
    size_t n_atoms;
    struct ds_bisect_known *known; /* may hold outcomes of an earlier run */
    size_t n_known, cap_known;
    uint64_t trials; /* passes of arms */
    uint32_t sets_tried, sets_known;
    int result;            /* enum ds_bisect_result */
    uint8_t *cure, *cause; /* [n_atoms] */
    size_t n_cure, n_cause;
    /* Of the cause, of the cure: all smaller sets were tried, too, and none does. Else it is 1-minimal: none of it can
     * be left out. */
    int smallest[2];
    char *unstable_set; /* kernels that disagreed with themselves */
};

enum ds_bisect_result {
    DS_BISECT_SAME = 0, /* nothing to find: they agree as they are */
    DS_BISECT_FOUND,
    DS_BISECT_UNCURED, /* they differ also with all kernels exchanged */
    DS_BISECT_NOT_STABLE,
    DS_BISECT_INTERRUPTED
};

/* Lists the atoms; -1 where the two sets are the same or cannot be mixed. */
int ds_bisect_atoms(struct ds_bisect *b, struct ds_error *err);
/* The search. 0: see result. */
int ds_bisect_run(struct ds_bisect *b, struct ds_error *err);
/* The kernel set with the atoms of `set` taken from `to` and the others from `from`, as the text
 * that --kernels takes; malloc'ed. */
char *ds_bisect_set_text(const struct ds_bisect *b, const uint8_t *set, struct ds_error *err);
void ds_bisect_free(struct ds_bisect *b);

#endif
