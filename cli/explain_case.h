/* explain_case.h: inside cli/ only: from a record and its model to what the lab explains: the rows of
 * one site whose bits differ, what their kernel read, and how both sides launched it. */
#ifndef DS_EXPLAIN_CASE_H
#define DS_EXPLAIN_CASE_H

#include "cli/cli.h"
#include "dumps/diff.h"
#include "dumps/record.h"
#include "engine/model.h"
#include "kernels/lab/explain.h"

enum { DS_EXPLAIN_MOST_ROWS = 64 };

/* A row of one site as one trial recorded it. */
struct ds_site_row {
    struct ds_row key;
    uint64_t digest;
    uint32_t launch, width;
};

struct ds_case_side {
    const struct ds_trial_data *t;
    uint32_t arm;
    const struct ds_launch *launch; /* of the first row explained */
    char variant[32];
    int64_t rows_least, rows_most; /* in the calls of the rows explained */
    char missing[256];             /* why it cannot be replayed here; "" */
};

/* Whole numbers of which a row has one: rows, those in which each side says what it should, and the
 * first row. */
struct ds_case_numbers {
    size_t rows, right[DS_SIDES];
    struct ds_row first;
    int known; /* what it should be: right_number */
    int32_t number[DS_SIDES], right_number;
};

/* explain_records.c: what is explained is read from: one record, or two that are joined. */
struct ds_explain_records {
    struct ds_record *record[DS_SIDES]; /* [1]: NULL where there is one */
    struct ds_source source[DS_SIDES];
    int joined;
    struct ds_diff diff; /* of two */
    struct ds_analysis *alone;
    struct ds_verdict verdict;
};

struct ds_case {
    const struct ds_header *h;
    struct ds_explain_records *records;
    struct ds_analysis *a;
    const struct ds_source *s;
    struct ds_finding f; /* the place */
    int named;           /* it is the verdict's first drift: kind and evidence are filled in */
    struct ds_model *model;
    struct ds_explain e;
    struct ds_case_side side[DS_SIDES];
    int32_t rank, ranks; /* of a partial sum: which, of how many; ranks 0: none */
    int32_t expert;      /* whose weights the rows explained were multiplied with; -1: none */
    int32_t choice;      /* of a part e0, e1, ...: which of a row's experts; -1: no such part */
    int32_t heads;       /* of a norm of each head: so many a row; else 1 */
    int healed; /* trials whose rows were healed: B's, or of two records those of both sides */
    /* Whose rows a side's kernel read: the side's own trial's; of one that was healed, the trial to which
     * it was healed. */
    struct ds_case_read {
        const struct ds_trial_data *t;
        uint32_t arm;
    } read[DS_SIDES];
    int inputs_equal;                   /* of every row explained */
    struct ds_site_row *rows[DS_SIDES]; /* [e.n_rows] */
    size_t drifting_rows;               /* of the site in this pair of trials */
    size_t differing_inputs, undumped;  /* rows left out, and why */
    size_t other_experts;               /* of those, rows of another expert */
    char not_replayed[160];             /* why its calls are not made again; "" they are */
    struct ds_case_numbers numbers;
    void **owned;
    size_t n_owned, cap_owned;
};

int ds_is_record(const char *path);
/* n: 1 or 2 paths. To be closed also after -1. */
int ds_explain_records_open(struct ds_explain_records *r, const char *const *paths, int n,
                            struct ds_error *err);
void ds_explain_records_close(struct ds_explain_records *r);
/* Fills in what c reads from; the verdict of it. */
const struct ds_verdict *ds_explain_records_case(struct ds_explain_records *r, struct ds_case *c);
/* Where a side's kernels ran: enum ds_device_kind. */
int ds_case_device(const struct ds_case *c, int side);
/* Of an arm: the header of its own record, its number there, and the value of a factor as it has it. */
const struct ds_header *ds_case_header(const struct ds_case *c, uint32_t arm);
uint32_t ds_case_own_arm(const struct ds_case *c, uint32_t arm);
const char *ds_case_setting(const struct ds_case *c, uint32_t arm, const char *factor);
/* Whether the place's kernel was given other weights or hyperparameters in the second record. */
int ds_case_other_data(const struct ds_case *c);

/* The place to explain: `site` as "L,STAGE", NULL for the first drift; `arm` -1: the first one in
 * which that site is an origin. */
int ds_case_find(struct ds_case *c, const struct ds_verdict *v, const char *site, int64_t arm,
                 struct ds_error *err);
/* explain_place.c: the trials of the pair. */
int ds_case_find_trials(struct ds_case *c, struct ds_error *err);
/* The factor's value as a number in 0..most; else 0. */
int64_t ds_case_number(const struct ds_case *c, uint32_t arm, const char *factor, int64_t most);
/* explain_stand.c: where a row of that side stood in its call. */
int ds_case_stand(struct ds_case *c, int side, const struct ds_site_row *r,
                  struct ds_explain_at *at, int32_t *kv_first, struct ds_error *err);
/* Reads rows and inputs and binds the model's weights. */
int ds_case_load(struct ds_case *c, struct ds_error *err);
void ds_case_free(struct ds_case *c);
/* Frees p with the case, or now after -1. */
int ds_case_own(struct ds_case *c, void *p, struct ds_error *err);

/* explain_plain.c: whether calls at the place cannot be made again at all, and why. */
int ds_case_is_plain(const struct ds_case *c, char *why, size_t size);
/* Takes what both sides put out, without inputs; there may be no row. */
int ds_case_load_plain(struct ds_case *c, const char *why, struct ds_error *err);

/* explain_model.c: fills e->shared for the site from the model. */
int ds_case_bind(struct ds_case *c, struct ds_error *err);
/* explain_parts.c: of a site of experts: takes the expert of the first row whose choice is dumped. */
int ds_case_choose_expert(struct ds_case *c, struct ds_error *err);
/* Whether a side's row passed the expert explained: 1, 0 another one or not dumped. */
int ds_case_same_expert(struct ds_case *c, int side, const struct ds_row *key,
                        struct ds_error *err);
/* Where a row stood among those of its call that its expert was given. */
int ds_case_place_in_expert(struct ds_case *c, int side, const struct ds_site_row *r,
                            struct ds_explain_at *at, struct ds_error *err);
/* Makes of every row of a norm of each head as many rows as it has heads. */
int ds_case_split_heads(struct ds_case *c, struct ds_error *err);
/* explain_sampler.c: how each side's tokens were chosen. */
int ds_case_samplers(struct ds_case *c, struct ds_error *err);
/* That the model is the record's; else an error that names the first weight that differs. */
int ds_case_same_model(const struct ds_header *h, const struct ds_model *m, struct ds_error *err);

/* The value of a factor in an arm; "" if the record has no such factor. */
const char *ds_case_factor(const struct ds_header *h, uint32_t arm, const char *factor);

/* ---- explain_inputs.c ------------------------------------------------------------------------ */

/* The format in which a site's rows are stored in an arm. */
int ds_case_stored_as(const struct ds_case *c, uint32_t site, uint32_t arm);
/* The values of a dumped row, made f32 (ids as bits), owned by the case: 1 found, 0 not dumped, -1
 * damage. */
int ds_case_values(struct ds_case *c, uint32_t site, uint32_t arm, uint64_t digest, size_t width,
                   float **out, struct ds_error *err);
/* What the site's kernel read for a row of that side: 1, 0 not dumped. `digests` becomes a number
 * that is equal for equal inputs. */
int ds_case_inputs(struct ds_case *c, int side, const struct ds_row *key,
                   struct ds_explain_input *in, uint64_t *digests, struct ds_error *err);
/* explain_tokens.c: token number `at` of the row's request, from its prompt on: 1 found. */
int ds_case_token(const struct ds_case *c, int side, const struct ds_row *key, int32_t at,
                  int32_t *id);
/* What op process knows of a row: 1, 0 some token is not known. */
int ds_case_tokens(struct ds_case *c, int side, const struct ds_row *key,
                   struct ds_explain_input *in, struct ds_error *err);
/* Takes the kernel from a side whose output is the sum of ranks. */
void ds_case_look_for_ranks(struct ds_case *c, int side);
const struct ds_site_row *ds_site_find_row(const struct ds_site_row *rows, size_t n,
                                           const struct ds_row *key);
/* Calls `take` for every pair of rows of the site that differ, up to as many as are explained: 1 taken (it adds to
 * c->e.n_rows), 0 not dumped, -1 error. */
typedef int ds_case_take_fn(struct ds_case *c, const struct ds_site_row *const r[DS_SIDES],
                            struct ds_error *err);
int ds_case_take_pairs(struct ds_case *c, ds_case_take_fn *take, struct ds_error *err);
/* Rows of a site in a trial, in the order recorded; malloc'ed. */
int ds_site_rows(const struct ds_trial_data *t, uint32_t site, struct ds_site_row **out, size_t *n,
                 struct ds_error *err);

#endif
