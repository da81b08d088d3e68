/* evidence.h: the values behind a finding: dumped rows of both sides and of what the kernel read.
 * Inside dumps/ only. */
#ifndef DS_EVIDENCE_H
#define DS_EVIDENCE_H

#include "dumps/profile.h"
#include "dumps/structure.h"
#include "dumps/verdict_internal.h"

/* Which drift entries of a site are meant: those whose reference row has that phase (-1: any), and
 * that label (-1: every drift). labels NULL: all. healed: those of these heal trials, where every row had
 * the reference's inputs, and labels are theirs; NULL: of the arm's natural trials. Where two arms are held
 * against each other that were both healed, to arms that agree: mine and ref are what each of them gave,
 * and `given`, the number of such an arm, what both were given. */
struct chosen {
    const uint8_t *labels;
    int phase, label;
    const struct heal_table *healed;
    const struct arm_table *mine, *ref; /* NULL: not so */
    uint32_t given;
};

static inline const struct arm_table *chosen_table(const struct ds_analysis *a, uint32_t arm,
                                                   const struct chosen *c)
{
    return c->mine ? c->mine : c->healed ? &c->healed->t : &a->arms[arm];
}

static inline const struct arm_table *chosen_ref(const struct ds_analysis *a, uint32_t ref,
                                                 const struct chosen *c)
{
    return c->ref ? c->ref : &a->arms[ref];
}

/* The number of the row that this entry of an arm's trial is about, if it is of the comparison of
 * `arm` with `ref` at `site` and is chosen; else NONE. */
uint32_t chosen_row(const struct ds_analysis *a, const struct ds_trial_data *d,
                    const struct ds_drift *x, uint32_t arm, uint32_t ref, uint32_t site,
                    const struct chosen *c);

/* Values of one row as f32, exactly. NULL: not dumped, or whole numbers. */
struct row_values {
    int dtype;
    uint32_t n;
    float *value;
    void *bytes; /* as stored */
};
/* 1 found, 0 not, -1 out of memory. */
int values_of(const struct ds_analysis *a, uint64_t digest, struct row_values *out,
              struct ds_error *err);
void values_free(struct row_values *v);

struct evidence_row {
    uint32_t row; /* number of its key */
    uint64_t digest, ref_digest;
    struct row_values mine, ref;
};

struct evidence {
    const struct ds_analysis *a;
    const struct ds_finding *f;
    uint32_t given; /* the arm whose rows both sides read */
    int dtype;
    uint32_t width, heads, head_dim; /* heads 0: the row has none */
    struct ds_structure_site site;   /* what rounding may do there */
    struct evidence_row *rows;       /* drifting rows with values of both sides */
    size_t n_rows;
    uint64_t nonfinite; /* NaN and Inf elements in drifting rows, either side */
    uint64_t drifting;  /* rows that drift, with values or without */
};

enum { EVIDENCE_ROWS = 32 };
/* Collects the rows that drift as the finding's first one does. Without memory -1; a row that is
 * not there, or damaged, is only not evidence. */
int evidence_open(const struct ds_analysis *a, const struct ds_finding *f, const struct chosen *c,
                  double terms, struct evidence *e, struct ds_error *err);
void evidence_close(struct evidence *e);

/* Heads, channels and positions of the finding, its p99. member: [a->n_rows] scratch. */
int profile_finding(const struct evidence *e, const struct chosen *c, struct ds_finding *f,
                    struct ds_error *err);

/* The first and the last element of which counts[] is not 0. */
void profile_ends(const uint32_t *counts, uint32_t width, struct ds_finding *f);
/* The same heads and channels from the masks of a trial, if it has them of the chosen rows: sets
 * f->mask_rows. */
int profile_masks(const struct evidence *e, const struct ds_trial_data *d, const struct chosen *c,
                  struct ds_finding *f, struct ds_error *err);

/* Sizes of the drifting rows of a site, added up. */
struct size {
    uint64_t rows, elements, max_ulp, nonfinite, ref_nonfinite,
        one_sided; /* rows non-finite on one side only */
    uint32_t flags;
    double max_abs, diff_sq, ref_sq, worst_row, least_row; /* relative rms of single rows */
    uint32_t worst;                                        /* the worst row's number */
    uint64_t of_size[64]; /* rows by relative rms: from 2^(i - 63) to twice that */
    uint64_t width_sum;
    uint64_t compared; /* rows compared on equal inputs, those that agree included */
};
/* rms of a difference relative to the reference's; infinite against zero. */
double size_ratio(double diff_sq, double ref_sq);

/* verdict_kind.c */
/* How many terms the kernel adds for one element; 0 = it does not add, or not known. */
double terms_added(const struct ds_analysis *a, const struct ds_finding *f);
void judge_kind(const struct ds_analysis *a, struct ds_finding *f, const struct size *z,
                const struct ds_structure *structure);
/* What of the kernel's weights and hyperparameters differs, where something does. */
void data_text(const struct ds_analysis *a, uint32_t site, char *text, size_t size);
/* For choices and whole numbers: 1 and the kind is told, or 0; -1: an error. c: the rows that are judged. */
int judge_choice(const struct ds_analysis *a, const struct chosen *c, struct ds_finding *f,
                 struct ds_error *err);
/* Adds to its evidence of which part of all there is one side's choices are the largest, if it is of one. */
int tell_choice_part(const struct ds_analysis *a, const struct chosen *c, struct ds_finding *f,
                     struct ds_error *err);
/* The ids of a dumped row, as long as the site is wide; *out NULL where they are not in the record. -1: they
 * could not be asked for. */
int ids_of(const struct ds_analysis *a, uint64_t digest, uint32_t width, int32_t **out,
           struct ds_error *err);

/* verdict_places.c: rows that stand in the wrong place: those of this side that are elsewhere in the reference; if
 * most are not, the reference's that are elsewhere on this one. Returns the share of the rows, and says where. */
double find_misplaced(const struct ds_analysis *a, const struct ds_finding *f,
                      const struct chosen *c, char *text, size_t size);

/* What explains the finding, from the dumped rows and from digests; fills f->structure and
 * f->ratio. */
int structure_finding(const struct evidence *e, const struct chosen *c, struct ds_finding *f,
                      struct ds_structure *out, struct ds_error *err);
/* The site as structure.h wants it. */
struct ds_structure_site structure_site(const struct evidence *e, double terms);

#endif
