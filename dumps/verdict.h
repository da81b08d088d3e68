/* verdict.h: from a record's digests to the answer. Pure functions: no I/O, no printing; CLI, TUI
 * and tests share them.
 *
 * Life: ds_analysis_new reads every trial once into tables (one digest per arm, site and row), then
 * any number of questions: ds_analysis_verdict for the whole answer, ds_analysis_labels for one arm
 * against its reference. All `const char *` in the results point into the source's header and
 * trials, which must outlive them. */
#ifndef DS_VERDICT_H
#define DS_VERDICT_H

#include "dumps/profile.h"
#include "dumps/record.h"

/* Where the trials come from: a record, or memory (tests). get returns trial i, valid as long as
 * the source; NULL with err. */
struct ds_source {
    const struct ds_header *header;
    size_t n_trials;
    const struct ds_trial *(*info)(void *ctx, size_t i);
    const struct ds_trial_data *(*get)(void *ctx, size_t i, struct ds_error *err);
    void *ctx;
    /* Dumped bytes by digest: 1 found (out->data malloc'ed, the caller frees), 0 not dumped, -1
     * damage, DS_BLOB_UNREAD. NULL: nothing was dumped. */
    int (*blob)(void *ctx, uint64_t digest, struct ds_blob *out, struct ds_error *err);
};
/* What blob does for trials in memory. */
int ds_trials_blob(const struct ds_trial_data *trials, size_t n_trials, uint64_t digest,
                   struct ds_blob *out, struct ds_error *err);
/* Weights as kernels packed them: of each kernel, weight and rank what the first trial that says so had; malloc'ed,
 * sorted by variant. None unless the run was asked for it. */
int ds_packed_list(const struct ds_source *s, struct ds_packed **list, size_t *n,
                   struct ds_error *err);
/* A source that reads from an open record. */
void ds_source_record(struct ds_source *s, struct ds_record *r);

/* The arm that equals `arm` in every factor but `factor`, where it has the base arm's value; -1 if
 * the sweep has none or if `arm` has the base value itself. Never for the factor dtype: rows stored
 * in unlike formats have no bits to compare, so each format is a sweep of its own inside the
 * record. */
int64_t ds_arm_reference(const struct ds_header *h, uint32_t arm, uint32_t factor);

/* ---- labels ---------------------------------------------------------------------------------- */

/* What happened to one row at one site, against a reference arm. Rows differ if their bits do; with a tolerance
 * (ds_analysis_options.recorded) an output beyond it is an origin only where the bits of all inputs are equal. */
enum ds_label {
    DS_LABEL_ABSENT = 0, /* not recorded on both sides, or other tokens were fed before it */
    DS_LABEL_SAME,
    DS_LABEL_HEALED,    /* an input row differs and the output is equal */
    DS_LABEL_WITHIN,    /* output differs, no more than a tolerance allows */
    DS_LABEL_ORIGIN,    /* output differs and all input rows are equal */
    DS_LABEL_INHERITED, /* output differs and an input row differs */
    DS_LABEL_UNKNOWN, /* output differs; an input was not recorded, or is read by the whole call and
                         does not agree */
    DS_LABEL_UNSTABLE /* repeats disagree here (on either side), or it follows from that: never
                         blamed on a factor */
};
const char *ds_label_name(int label);
/* "layer 3 kv_write/k", before the layers "embed"; not escaped. */
enum { DS_SITE_WORDS = 80 };
void ds_site_words(const struct ds_site *s, char *out, size_t size);
/* "prompt", "generated" or "pad", of ds_row.kind. */
const char *ds_row_kind_name(uint32_t kind);
/* "prefill" or "decode", of ds_call.phase. */
const char *ds_phase_name(uint32_t phase);

enum ds_kind {
    DS_KIND_UNKNOWN = 0,
    DS_KIND_ROUNDING_ORDER,
    DS_KIND_LOWER_PRECISION,
    DS_KIND_DIFFERENT_ALGORITHM,
    DS_KIND_WRONG_DATA,
    DS_KIND_NON_FINITE,
    DS_KIND_SELECTION_ONLY,
    DS_KIND_SAME_VALUES
};
const char *ds_kind_name(int kind); /* "rounding-order" .. */
/* Formats of which the rounding of inputs, or of sums on the way, is about as large as a difference: TF32
 * and f16; bf16; whole numbers of 8 bits; fp8 and whole numbers of 4 bits. */
enum { DS_SIZE_OF_TF32 = 1, DS_SIZE_OF_BF16 = 2, DS_SIZE_OF_8_BITS = 4, DS_SIZE_OF_4_BITS = 8 };
/* What a kind rests on, weakest first: sizes alone, held against a bound; something that accounts for
 * the values themselves; what the bits are (NaN on one side, other choices, other weights). */
enum { DS_KIND_BY_NOTHING = 0, DS_KIND_BY_SIZE, DS_KIND_BY_VALUES, DS_KIND_BY_FACT };

enum ds_result { DS_RESULT_SAME = 0, DS_RESULT_DRIFT, DS_RESULT_RECORDED, DS_RESULT_INCOMPARABLE };
const char *ds_result_name(int result);

enum ds_condition {
    DS_COND_NOT_RUN = 0,
    DS_COND_SAME,
    DS_COND_DRIFT,
    DS_COND_UNSTABLE,
    DS_COND_UNKNOWN, /* run, but the kernel never had equal inputs */
    DS_COND_WITHIN,  /* bits differ, nowhere by more than a tolerance allows */
    DS_CONDITIONS
};
const char *ds_condition_name(int condition);

/* ---- the verdict ----------------------------------------------------------------------------- */

struct ds_row_key {
    int32_t request, position, occurrence;
};

/* One place where something was found. */
struct ds_finding {
    int found; /* 0: nothing, all else is zero */
    uint32_t site;
    int32_t layer;
    const char *stage, *part, *op, *variant, *ref_variant;
    const char *factor, *value, *ref_value;
    uint32_t arm, ref_arm;
    size_t trial;           /* index in the source */
    int label, kind, basis; /* basis: what the kind rests on, DS_KIND_BY_* */
    int inputs_within; /* inherited: no input that is known differs by more than the tolerance */
    /* Sites between its nearest inputs that both sides recorded and itself, which one of them did not
     * record: the difference may have begun at any of them. `between_first`: the first of them. */
    uint32_t between, between_first;
    char why[320];  /* the evidence for the kind, or why there is none */
    uint32_t phase; /* of the arm's call */
    uint32_t rows_in_call, ref_rows_in_call;
    int32_t request, position, occurrence, step;
    uint32_t row_kind;
    uint32_t rows,
        positions; /* rows that drift at this site in this arm, and their distinct positions */
    /* The first and the last of them by key; `ends` 0: not known. */
    int ends;
    struct ds_row_key first_row, last_row;
    int sized;           /* whether the record holds sizes for it: */
    uint32_t sized_rows; /* of so many of the rows */
    uint64_t elements, max_ulp;
    double max_abs, rms,
        relative_rms; /* rms of the difference over all elements of the drifting rows */
    /* Where it differs (profile.h): heads, "" where the site has none; channels within a head, or of
     * the row; positions. Heads and channels are those of all `mask_rows` rows that drift as the first
     * one does, of which the probe gathered the elements; without (0) those of the `value_rows` rows
     * whose values are dumped, as p99 always is; "" and 0 without both. */
    char heads[DS_PROFILE_TEXT], channels[DS_PROFILE_TEXT], at_positions[DS_PROFILE_TEXT];
    uint32_t value_rows, mask_rows;
    /* The first and the last element that differs in any of those rows; element_ends 0: not known. */
    int element_ends;
    uint32_t first_element, last_element;
    int beyond_rounding; /* heads, channels and positions are those where the difference is more than
                            rounding may be; 0: all that differ */
    uint64_t p99_ulp;    /* of the elements that differ */
    /* Few elements of the row (`concentrated_in` of `concentrated_of`) that hold nearly all of the
     * squared error; "" where it is not so. */
    char concentrated[DS_PROFILE_TEXT];
    uint32_t concentrated_in, concentrated_of;
    double concentrated_share;
    char structure[160]; /* what explains the difference (structure.h); "" nothing that was tried */
    double ratio;        /* this side's values over the reference's, if one number fits; else 0 */
    unsigned formats;    /* lower-precision by size: formats that give as much, DS_SIZE_OF_* */
    uint64_t nonfinite, ref_nonfinite;
    uint32_t flags; /* enum of ds_drift.flags, only if true of every drifting row */
    const struct ds_launch *launch, *ref_launch; /* NULL where not recorded */
    const char *blas_core, *ref_blas_core;
    const struct ds_trial *info, *ref_info; /* the first trials of both arms */
    uint64_t digest, ref_digest;
};

enum { DS_VERDICT_ALL = 0, DS_VERDICT_PREFILL, DS_VERDICT_DECODE, DS_VERDICT_PHASES };
#define DS_NO_CLASS UINT32_MAX

/* Values of a factor grouped by identical bits, for one phase. */
struct ds_factor_phase {
    uint64_t compared, drifted, unstable; /* digests */
    uint32_t rows;                        /* distinct rows that drift anywhere */
    uint32_t *class_of; /* [n_values] class number from 0, DS_NO_CLASS = not compared */
    uint32_t n_classes;
    struct ds_finding first;
};

struct ds_factor_verdict {
    const char *name;    /* entry 0 is "repeat" */
    const char **values; /* [n_values] in order of first appearance; [0] is the base arm's */
    uint32_t n_values;
    uint32_t arms;       /* arms that were compared with a reference */
    uint32_t arms_alone; /* arms with another value but no trial or no reference to compare with */
    struct ds_factor_phase phase[DS_VERDICT_PHASES];
};

/* Row counts M at which a kernel's output bits change on equal inputs, at one setting of everything
 * else. */
struct ds_switches {
    char setting[96]; /* "threads 2"; "" at the base setting */
    uint32_t *rows;   /* ascending */
    uint32_t n;
};

/* Where a kernel first gives other bits along a factor, in execution order; of equals in the arm nearest to the base
 * arm. Against the factor's first value where that differs. unstable: where repeats of an arm disagree
 * (arm and ref_arm are that arm, if it is one), told where nothing else is found. */
struct ds_kernel_first {
    int found, unstable;
    uint32_t site, arm, ref_arm;
    int32_t step, request, position;
};

/* Where a kernel gives other bits on equal inputs along a factor: sites, and layers with such a site. */
struct ds_kernel_count {
    uint32_t sites, layers;
};

struct ds_kernel_verdict {
    const char *op, *variant;
    uint8_t *condition;            /* [n_factors] enum ds_condition */
    struct ds_kernel_count *count; /* [n_factors]; none of factor 0, repeat */
    uint32_t *
        *class_of; /* [n_factors][n_values] classes of this kernel's own output on equal inputs */
    struct ds_kernel_first *first; /* [n_factors]; none of factor 0, repeat */
    uint64_t origins, healed, inherited, unknown,
        unstable;      /* digests, against the factors' references */
    uint64_t compared; /* digests compared, any label but unstable */
    uint64_t judged;   /* of those, on equal inputs */
    uint64_t within;   /* of those compared, differing within a tolerance */
    struct ds_switches *switches;
    uint32_t n_switches; /* [0] is at the base setting, if it has any comparison there */
};

struct ds_unstable {
    uint32_t arms;    /* arms whose repeats disagree */
    uint32_t of_arms; /* arms with repeats in which they could: those, and the ones that agree but
                         ran the unstable kernels and may owe it to luck */
    uint32_t trials, disagree; /* over of_arms: trials, and trials that disagree with the modal
                                  digest of some row */
    double low, high;          /* 95 % Wilson interval of disagree / trials */
    uint64_t rows, of_rows;  /* digests with disagreeing repeats, of all with repeats, in of_arms */
    struct ds_finding first; /* factor "repeat"; digest: of the trial that disagrees, ref_digest:
                                the mode */
    /* What all trials of that arm have in common at that site, however they disagree: on equal inputs each is off the
     * arm's reference by `apart_rms` or more (relative), at least DS_APART_TIMES as much as two of them are off each
     * other. apart_trials 0: they are not, or the record holds no such trials. */
    uint32_t apart_trials, apart_ref; /* how many trials; the reference's arm */
    double apart_rms;
};
#define DS_APART_TIMES 16.0

/* A kernel that gave other bits on equal inputs at one stage, over all layers and comparisons with a
 * reference. Known at every depth from heal trials; without them only where inputs happened to agree. */
struct ds_origin {
    const char *op, *variant, *stage, *part;
    uint64_t digests;
    uint32_t layers; /* sites of the stage where it did */
    uint32_t site;   /* the first of them, in whose comparison: */
    int32_t layer;
    const char *factor, *value;
    uint32_t arm, ref_arm;
    int sized;           /* whether the record holds sizes: */
    double relative_rms; /* error added, at the site of a comparison where it is largest */
    int32_t largest_layer;
    uint64_t max_ulp;
    /* At `site`: what it is, from the trials in which every row had the reference's inputs
     * (healed) or from natural ones. found 0: no row there. */
    struct ds_finding at;
    int healed;
};

/* Of the parts of one stage of a layer (the keys and values that a cache is given) the one with the larger
 * rms comes first, not relative to its values: an offset that all rows have in common makes keys large
 * and carries nothing.
 *
 * Error that a site adds on equal inputs (heal trial) beside all the error that stands there (natural
 * trial), of the pair of the first drift. */
struct ds_added {
    uint32_t site;
    int32_t layer;
    const char *stage, *part;
    uint32_t rows, natural_rows;
    uint64_t max_ulp, natural_max_ulp;
    double relative_rms, natural_relative_rms;
    double rms, natural_rms; /* of the difference, over all elements of those rows */
};

/* Sizes at which a factor changes a kernel's bits on equal inputs, and at which it does not, in one phase;
 * of the arm that is not the reference. measure: "keys" that a row may see, "query-rows" of its request
 * in the call, "rows" that the kernel is given. */
struct ds_band {
    const char *op, *variant, *factor, *measure;
    uint32_t phase;
    char differ[DS_PROFILE_TEXT], equal[DS_PROFILE_TEXT]; /* in ranges */
};

/* How large a factor's difference is in each format of the sweep, at the last stage that is shown. */
enum { DS_MOST_FORMATS = 4 };
enum { DS_PRECISION_UNKNOWN = 0, DS_PRECISION_SHRINKS, DS_PRECISION_ALIKE };
const char *ds_precision_name(int verdict); /* "unknown", "shrinks", "alike" */
struct ds_precision {
    const char *dtype;
    uint32_t arms, rows; /* compared; drifting rows */
    double relative_rms; /* 0: none drifts */
};
struct ds_precisions {
    const char *factor;
    uint32_t site, n;
    struct ds_precision of[DS_MOST_FORMATS];
    int verdict; /* shrinks with the format's step: rounding; alike in all: no rounding */
};

struct ds_growth {
    int32_t layer;
    uint64_t max_ulp;
    double relative_rms;
    uint32_t rows; /* drifting rows with sizes at the layer's last residual */
    /* What the site of the layer that adds most adds; no rows: none does, or there is no heal trial. */
    uint32_t added_rows;
    uint64_t added_max_ulp;
    double added_relative_rms, added_rms;
    const char *added_stage, *added_part;
};

/* An expert that the reference chose, and what this side has in its place. */
struct ds_swapped {
    int32_t a, b;
    double margin; /* of their router logits, reference side; NaN: not in the record */
};
enum { DS_MOST_SWAPPED = 8 };
struct ds_range_at { /* the largest value of a site in the reference arm, and where */
    uint32_t site;
    int32_t request, position, step;
    float max_abs;
};
/* Binary places between a value and the largest number of a format (f16: 65504); negative: it does not
 * fit. Infinite for 0. */
double ds_headroom(double max_abs, int dtype);

struct ds_discrete {
    int found;
    const char *stage; /* "token", "router_ids" */
    const char *factor, *value;
    uint32_t arm, ref_arm;
    int32_t request, step;
    int32_t a, b;  /* reference side, this side: tokens, or the first two experts; -1 unknown */
    double margin; /* of the reference, nats */
    int32_t ties;
    double drift; /* of a token: the largest change among the best logits of both; NaN not known */
    /* Experts: */
    int32_t layer, position;
    uint32_t site, row; /* row: of ds_analysis_row */
    uint64_t digest, ref_digest;
    struct ds_swapped swapped[DS_MOST_SWAPPED]; /* none: the rows are not in the record */
    uint32_t n_swapped;
};

struct ds_nonfinite_finding {
    struct ds_finding at; /* at_positions: those of its trial's rows where this site has any */
    uint32_t nan, inf;
    /* Where the first one is in what is only recomputed beside a kernel (ds_site_recomputed): the first
     * that a kernel put out itself; not found when none did. Else the same as `at`. */
    struct ds_finding own;
    int only_padding; /* every row with NaN or Inf in the record is a padding row */
    int inputs;       /* 1 inputs finite, 0 an input is non-finite too, -1 not known */
};

/* The least that probes did in a trial whose answer they changed. */
enum { DS_DISTURBS_NOTHING = 0, DS_DISTURBS_DIGEST, DS_DISTURBS_DUMP, DS_DISTURBS_EITHER };

/* The self-check against a pass without probes. Where repeats of its arm disagree: whether it is like one. */
enum {
    DS_CHECK_NOT_RUN = 0,
    DS_CHECK_AGREES,
    DS_CHECK_DIFFERS,
    DS_CHECK_AGREES_WITH_ONE,
    DS_CHECK_UNSTABLE,
    DS_CHECK_PARTED /* passes without probes disagree with each other, though repeats agree */
};
/* Threads seen in a trial against those asked for. A team and a library beside it may have asked - 1 each
 * beside the caller, so up to 2 asked - 1 are no more than asked for. */
enum { DS_THREADS_UNKNOWN = 0, DS_THREADS_AS_ASKED, DS_THREADS_FEWER, DS_THREADS_MORE };
int ds_threads_used(const struct ds_trial *t);

const char *ds_check_name(int check); /* "not-run" .. */

struct ds_census;
struct ds_validity;
/* An arm without a trial that would be complete. */
struct ds_failed_arm {
    const struct ds_failure *at; /* in the source */
    uint32_t arm, ref_arm, repeat;
    const struct ds_site *site;             /* where the kernel was at work; NULL: not at a site */
    const char *factor, *value, *ref_value; /* NULL: it differs in more than one factor */
};

struct ds_verdict {
    int result;
    int stable;       /* 0 when some arm's repeats disagree */
    char reason[512]; /* incomparable: why; else "" */
    uint32_t ref_arm;
    size_t ref_trial;
    struct {
        uint64_t arms, trials, sites, rows, digests_compared;
        uint64_t heal_trials;
        uint64_t arms_planned; /* more than `arms`: some have no trial (lost, or not run yet) */
    } counts;
    struct ds_finding first; /* the first unstable place if there is one, else the first drift */
    struct ds_factor_verdict *factors;
    size_t n_factors; /* header factors + 1 */
    struct ds_kernel_verdict *kernels;
    size_t n_kernels; /* in order of first use */
    struct ds_unstable unstable;
    struct ds_nonfinite_finding nonfinite;
    struct ds_discrete discrete; /* the first of: */
    struct ds_discrete token_change, expert_change;
    uint64_t tokens_same, tokens_compared;
    uint64_t choices, ties; /* of the reference arm's first trial; those with several best tokens */
    struct ds_census *census;         /* census.h; NULL: no complete trial */
    struct ds_validity *validity;     /* validity.h; NULL likewise */
    struct ds_precisions *precisions; /* by factor; none where one format was run */
    size_t n_precisions;
    struct ds_band *bands; /* by factor, kernel, phase */
    size_t n_bands;
    struct ds_growth *growth; /* of the pair of the first drift, by layer */
    size_t n_growth;
    struct ds_added *added; /* of the same pair, by site; none without a heal trial of it */
    size_t n_added;
    struct ds_origin *origins; /* all that are independent, in execution order */
    size_t n_origins;
    struct ds_range_at *ranges; /* in execution order; empty where a record has none */
    size_t n_ranges;
    uint32_t sites_before; /* sites before the first drift, all bit-identical */
    /* Probe CPU time over pass CPU time; -1: not measured. The overhead is the median over natural
     * trials without a drifting row: what digests cost. The total is over all natural trials: held
     * rows, statistics and dumps included. */
    double overhead_prefill, overhead_decode;
    double total_prefill, total_decode;
    int disturbs;                 /* 1, 0, -1 = not known */
    int check;                    /* DS_CHECK_*: what the self-check showed */
    int disturber;                /* DS_DISTURBS_* */
    struct ds_failed_arm *failed; /* by arm, as they were lost */
    size_t n_failed;
    char **notes; /* findings about the record itself, one sentence each */
    size_t n_notes;
    char **owned; /* texts that belong to no header */
    size_t n_owned;
};
void ds_verdict_free(struct ds_verdict *v);
/* 0 same or recorded, 1 drift, 2 incomparable, or the same over fewer trials than were asked for. */
int ds_verdict_exit(const struct ds_verdict *v);

struct ds_analysis;
struct
    ds_history { /* what ran before a trial in its process, heal trials and passes without probes left
                       out */
    uint32_t trials, calls;
};
struct ds_analysis_options {
    const char *only_factor; /* compare along this factor alone; NULL = all */
    /* [n_sites] 1 where the kernel's weights or hyperparameters differ: a small difference there
     * is no evidence of reordering; NULL = nowhere. */
    const uint8_t *data_differs;
    /* Says what of them: "rms_eps is 1e-05 in A, 1e-06 in B". NULL: it is not known. */
    void (*data_what)(void *ctx, uint32_t site, char *text, size_t size);
    void *data_ctx;
    const uint8_t *ignored; /* [n_sites] 1: what differs there is no finding, though it still is an
                               input of what follows; NULL = nowhere */
    /* [n_trials], of two records: their trials may have unlike ones; NULL = of no interest. */
    const struct ds_history *history;
    /* [n_arms], of two records: the arm of its own to which an arm's heal trials went, where
     * both records' agree; UINT32_MAX none; NULL = for no arm. */
    const uint32_t *healed_to;
    /* [n_arms] the prompt of request 0, where arms may have prompts of other lengths: rows of that
     * request are compared up to the first position at which other tokens were fed; NULL: all
     * arms have the same one, and only the tokens after it are compared */
    const struct ds_prompt *const *prompt_of;
    /* [n_trials] of a trial in whose digests some are replaced by the reference's, since those rows differ within a
     * tolerance: all its digests as they were recorded; NULL: none is. NULL = no tolerance. */
    const uint64_t *const *recorded;
    /* Whether a row of a heal trial is within it of the reference's: 1; 0 beyond; -1 not known, since not both are
     * dumped. NULL: bits. */
    int (*within)(void *ctx, uint64_t ref, uint64_t digest);
    void *within_ctx;
    /* Bytes that the tables may take: more is an error that says how many; 0: any. */
    uint64_t memory;
    /* Asked now and then by what takes long: not 0, and the question at work gives up soon, with an error. What
     * ds_analysis_labels and its like return then is not to be used. NULL: never. */
    int (*stop)(void *ctx);
    void *ctx;
};
/* options may be NULL. The source must outlive the analysis. */
int ds_analysis_new(const struct ds_source *s, const struct ds_analysis_options *options,
                    struct ds_analysis **out, struct ds_error *err);
void ds_analysis_free(struct ds_analysis *a);
int ds_analysis_verdict(struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err);
/* new + verdict + free. */
int ds_verdict_make(const struct ds_source *s, struct ds_verdict *v, struct ds_error *err);

/* ---- single rows ----------------------------------------------------------------------------- */

size_t ds_analysis_rows(const struct ds_analysis *a);
const struct ds_row_key *ds_analysis_row(const struct ds_analysis *a, size_t i); /* ascending */
/* Labels of `arm` against `ref` (they may be equal: repeats against each other): *out is malloc'ed,
 * [n_sites][rows]. */
int ds_analysis_labels(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint8_t **out,
                       struct ds_error *err);
/* The same where kernels are judged on equal inputs, from the heal trial of `arm` against `ref`:
 * DS_LABEL_SAME or _ORIGIN where they are, _UNSTABLE, else _ABSENT. 1 there is such a trial, 0 none (*out
 * NULL). */
int ds_analysis_healed(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint8_t **out,
                       struct ds_error *err);
/* The modal digest of a row at a site; of rows within a tolerance that of the arm's first trial, as it was
 * recorded. 0 if the arm has none. */
int ds_analysis_digest(const struct ds_analysis *a, uint32_t arm, uint32_t site, size_t row,
                       uint64_t *digest);
/* Whether an arm has the row at all, and which row of its first trial it is. */
int ds_analysis_has_row(const struct ds_analysis *a, uint32_t arm, size_t row);
int ds_analysis_find_row(const struct ds_analysis *a, uint32_t arm, size_t row, uint32_t *at);
/* The number of a row that a trial has; `guess` is looked at first. SIZE_MAX: there is none. */
size_t ds_analysis_row_of(const struct ds_analysis *a, const struct ds_row *r, size_t guess);
/* Whether an arm has any row of the site. */
int ds_analysis_has_site(const struct ds_analysis *a, uint32_t arm, uint32_t site);
/* Bytes of its tables. */
uint64_t ds_analysis_bytes(const struct ds_analysis *a);
/* Adds the number of digests that one of two arms has and the other has not to n[0] (x) and n[1]
 * (y). */
void ds_analysis_unpaired(const struct ds_analysis *a, uint32_t x, uint32_t y, uint64_t n[2]);
/* Whether the trials of two arms had unlike histories (ds_analysis_options.history). HARMLESS: no two are
 * alike, but on each side trials with unlike ones agree, or as many trials ran before. */
enum { DS_HISTORY_ALIKE = 0, DS_HISTORY_HARMLESS, DS_HISTORY_UNLIKE };
int ds_analysis_histories(const struct ds_analysis *a, uint32_t x, uint32_t y);
/* "batch 2, threads 2": the factors of two records in which an arm differs from the first pair; where it
 * differs in none, all of them. */
void ds_analysis_arm_name(const struct ds_analysis *a, uint32_t arm, char *text, size_t size);
/* Trials of an arm (natural pass), and the first of them; NULL if it has none. */
uint32_t ds_analysis_trials(const struct ds_analysis *a, uint32_t arm);
const struct ds_trial_data *ds_analysis_trial(const struct ds_analysis *a, uint32_t arm);
/* One head, channel or position of a site: what differs there. */
struct ds_profile_part {
    int32_t index;
    uint32_t rows; /* that differ there */
    uint64_t elements, max_ulp;
    double max_abs, rms, relative_rms; /* of the difference; over the reference's rms */
};
struct ds_site_profile {
    /* The site's first drifting row; found 0: no row drifts, all else empty. */
    struct ds_finding at;
    struct ds_profile_part *heads, *channels; /* of the rows whose values are dumped */
    struct ds_profile_part *positions;        /* of all drifting rows with sizes */
    size_t n_heads, n_channels, n_positions;
};
/* What drifts at one site of an arm against `ref` (they may be equal: repeats). */
int ds_analysis_site(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint32_t site,
                     struct ds_site_profile *out, struct ds_error *err);
void ds_site_profile_free(struct ds_site_profile *p);
/* Kind and evidence of what drifts at one site of an arm against `ref` (they may be equal: repeats), as
 * the verdict gives them of its findings; `healed`: of the trials in which every row had the
 * reference's inputs. found 0: no row drifts there, or there is no such trial. */
int ds_analysis_judged(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint32_t site, int healed,
                       struct ds_finding *out, struct ds_error *err);
/* What an arm is compared with: the first factor in which it has a reference with trials. 1 found,
 * 0 none. */
int ds_analysis_pair(const struct ds_analysis *a, uint32_t arm, uint32_t *ref, const char **factor,
                     const char **value);

#endif
