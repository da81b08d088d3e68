/* render_explain.h: inside cli/ only: what was found out about one place, as text and as JSON. */
#ifndef DS_RENDER_EXPLAIN_H
#define DS_RENDER_EXPLAIN_H

#include "cli/explain_case.h"

#include <jansson.h>

/* One variant, launched as both sides' calls were. */
struct ds_case_replay {
    const struct ds_kernel *kernel;
    int run[DS_SIDES]; /* 0: `why` says why not */
    char why[DS_SIDES][160];
    struct ds_explain_match match[DS_SIDES];
    uint64_t given; /* digests of repeats that it gives in A's call */
};

/* Rows as the record counts them: of a norm of each head the lab is given as many times more. */
size_t ds_explanation_rows(const struct ds_case *c);

/* explain_repeats.c: repeats of one setting: the distinct digests of the rows explained. */
struct ds_case_repeats {
    size_t trials, n; /* n 0: the place is not about repeats */
    uint32_t *row;    /* [n] */
    uint64_t *digest;
    uint8_t *seen;                      /* since ds_repeats_seen was asked last */
    uint64_t launched, along[DS_SIDES]; /* that launches of A's kernel give; that its order gives */
};
int ds_repeats_collect(struct ds_case_repeats *p, const struct ds_case *c, struct ds_error *err);
void ds_repeats_free(struct ds_case_repeats *p);
/* How many of them the rows y [n_rows][width] are. */
int ds_repeats_count(struct ds_case_repeats *p, const struct ds_case *c, const float *y,
                     uint64_t *given, struct ds_error *err);
/* How many were given at least once since the last time. */
uint64_t ds_repeats_seen(struct ds_case_repeats *p);

struct ds_explanation {
    const struct ds_options *o;
    const struct ds_case *c;
    struct ds_case_replay *replay;
    size_t n_replays;
    struct ds_explain_order order[DS_SIDES];
    struct ds_case_repeats repeats;
    int launches;                 /* of each side's kernel where its order is not fixed; 0 */
    uint64_t seen_once[DS_SIDES]; /* differing elements whose bits came out in one of them */
    struct ds_explain_others others[DS_SIDES]; /* what the other rows of a call do */
    char who[DS_SIDES][96];                    /* whose row the guilty one is; "" */
    struct ds_explain_pages pages[DS_SIDES];   /* attention: what other pages of the cache do */
    int chosen;                                /* the op chooses: choice and verdict are filled */
    struct ds_explain_choice choice;
    int drawn;  /* the op draws by a sampler: verdict is filled */
    int judged; /* what follows is filled: the inputs of both sides are equal */
    struct ds_explain_accuracy accuracy;
    struct ds_explain_noise noise;
    struct ds_explain_verdict verdict;
    struct ds_finding said; /* what the record's verdict says of the place; found 0: nothing */
    int kind;               /* what follows from both (explain_kind.c), and the evidence: */
    char why[480];
    /* Why the verdict's kind, or what it says of it, does not stand; "": it does, or has none. */
    char overruled[256];
    char sharpened[256];    /* it stands, and what is found here says more; "" */
    char unconfirmed[160];  /* it goes by size, and nothing that was tried here gives it; "" */
    const char *reproducer; /* where one was written; NULL */
};

/* The bits of this side come from its own kernel only where it was launched: not from the row's inputs, and its
 * launches on those agree. */
int ds_explanation_depends_on_more(const struct ds_explanation *x, int side);
/* Repeats that disagreed in the run, and do not on what it recorded. */
int ds_explanation_in_situ(const struct ds_explanation *x);

/* explain_kind.c: fills said, kind, why, and how the verdict stands. */
int ds_explanation_settle(struct ds_explanation *x, struct ds_analysis *a, struct ds_error *err);

/* explain_sampler.c: whether the place draws tokens, or processes logits for that; what is claimed then. */
int ds_case_is_drawn(const struct ds_case *c);
void ds_explanation_judge_drawn(struct ds_explanation *x);
void ds_case_sampler_text(const struct ds_sampler *s, char *text, size_t size);

/* The own kernel of a side, launched as that side's calls were, gives every bit of its rows. */
int ds_explanation_reproduced(const struct ds_explanation *x, int side);

/* explain_reproduce.c: `dir` may be made: it is not there, or `force`. Then writes it: a C program and
 * a small HDF5 file. */
int ds_reproducer_check(const char *dir, int force, struct ds_error *err);
int ds_reproducer_write(const struct ds_explanation *x, const char *dir, int force,
                        struct ds_error *err);

void ds_render_explain_text(const struct ds_explanation *x, struct ds_buf *out);
json_t *ds_render_explain_json(const struct ds_explanation *x);

#endif
