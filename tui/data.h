/* data.h: the records behind the screen. One thread of its own does every HDF5 call and every verdict, so that
 * keys are answered while a large record is read; views ask for what they show and draw again when it
 * has come.
 *
 * All that is handed out is immutable. A pointer from tui_data_* stays valid until the next tui_data_turn (called
 * by the loop between two drawings), never longer: views keep numbers (arm, site, row), not pointers. */
#ifndef DS_TUI_DATA_H
#define DS_TUI_DATA_H

#include "dumps/census.h"
#include "dumps/diff.h"
#include "dumps/steps.h"
#include "report/report.h"

struct tui_data;

struct tui_data_options {
    const char *path, *path_b; /* path_b NULL: one record; else as `driftscope diff path path_b` */
    int follow;                /* the record is still being written, or not even there yet */
    /* Bytes that trials and tables may take, and a quarter of it pairs and rows; 0: 116 MiB. */
    uint64_t hold;
    const struct ds_report_caller *caller; /* of tui_whole.report; outlives the data */
    const char *moves_to; /* where the writer of `path` puts it in the end; NULL: it stays */
    int partial;          /* of two records: as ds_diff_options has it */
    int across_models;    /* likewise */
};
/* Reads the header and the index of trials before it returns (following: waits for nothing), starts the
 * thread. -1: the record cannot be shown at all. */
int tui_data_open(const struct tui_data_options *o, struct tui_data **out, struct ds_error *err);
void tui_data_close(struct tui_data *d);

/* What is known of the whole record now. */
struct tui_whole {
    /* Grows when trials came, the file was replaced, or the verdict is ready. */
    uint64_t generation;
    /* Of the joined source when there are two records; NULL: nothing could be read yet
     * (following). */
    const struct ds_header *header;
    const struct ds_trial *const *trials; /* complete ones, as ds_source numbers them */
    size_t n_trials;
    size_t incomplete, damaged;
    const struct ds_verdict *verdict; /* NULL: being made, or `error` says why there is none */
    const struct ds_diff *diff;       /* NULL: one record */
    const struct ds_header *sides[2]; /* the records' own headers; sides[1] NULL: one record */
    const char *error; /* NULL, or why the verdict cannot be made: pairs may be had all the same */
    /* NULL, or what happened to the file: "replaced", "cut short: showing what was read before",
     * "deleted", "the writer has ended", "written by driftscope 0.9: some of it may not be
     * shown". */
    const char *note;
    /* Digests of dumped rows that do not have them, ascending: none, until all were looked at. */
    const uint64_t *damaged_rows;
    size_t n_damaged_rows;
    int live;                /* another process is writing it */
    int ended;               /* one was, and is no longer */
    struct ds_report report; /* for report/'s functions: header, verdict, diff, paths */
};
const struct tui_whole *tui_data_whole(struct tui_data *d);
/* Whether the row with this digest was dumped, and its bytes do not have it. */
int tui_whole_damaged(const struct tui_whole *w, uint64_t digest);

/* The functions below return NULL while the answer is being read (tui_data_pending then says so) or when it
 * cannot be had: then *error, if not NULL, says why. They never wait. */

/* All sites of one arm against another. */
struct tui_site_sum {
    uint32_t compared;                     /* rows */
    uint32_t drift[DS_LABEL_UNSTABLE + 1]; /* rows by enum ds_label */
    uint32_t sized;                        /* drifting rows with sizes; of them: */
    uint64_t elements, max_ulp;
    double max_abs, relative_rms;
    uint32_t nonfinite,
        ref_nonfinite; /* rows with NaN or Inf in the arm's first trial, and in the other's */
    int label; /* the gravest of its rows: unstable, origin, unknown, inherited, healed, same, absent */
    int healed_label; /* likewise from the heal trial; DS_LABEL_ABSENT where there is none */
    uint64_t added_max_ulp;
    double added_relative_rms; /* from the heal trial; NaN: not known */
    int jump; /* its relative rms is at least 8 times that of the layer's same stage before it */
};
struct tui_pair {
    uint32_t arm, ref;
    size_t n_sites, n_rows;
    const struct ds_row_key *keys; /* [n_rows] */
    const uint8_t *labels,
        *healed; /* [n_sites][n_rows] enum ds_label; healed NULL: no heal trial */
    const struct tui_site_sum *sites; /* [n_sites] */
};
const struct tui_pair *tui_data_pair(struct tui_data *d, uint32_t arm, uint32_t ref,
                                     const char **error);

/* One site: every row in every arm, and one pair's sizes and profile. */
struct tui_row_fact {            /* of the pair, a row each */
    int has, ref_has;            /* recorded */
    uint64_t digest, ref_digest; /* repeats of one arm: of the first that disagrees, where sized */
    struct ds_row row; /* of the arm's first trial, or the reference's where it has none */
    int sized;
    struct ds_drift drift; /* with `sized` */
    int dumped, ref_dumped;
};
struct tui_input { /* a site that this one reads */
    uint32_t site;
    int edge;  /* enum ds_edge_kind */
    int label; /* the gravest of the pair's rows there */
};
struct tui_site {
    uint32_t arm, ref, site;
    size_t n_rows, n_arms;
    const struct ds_row_key *keys;
    const uint8_t *labels; /* [n_rows] of the pair */
    const uint32_t *
        class_of; /* [n_rows][n_arms]: settings of equal number share bits, 0 the base arm's if it has the row;
                                       UINT32_MAX: not recorded (without a verdict: or not read yet) */
    const struct tui_row_fact *facts; /* [n_rows] */
    const struct ds_site_profile *profile;
    const struct ds_launch *launch,
        *ref_launch; /* of the first drifting row's captures, else of the first row's;
                                                    NULL: not recorded */
    const struct tui_input *inputs;
    size_t n_inputs;
    /* What repeats gave: of the reference and of the arm (of one arm alone: the second); trials 0: no such, or not
     * read yet. */
    struct ds_census_site repeats[2];
};
const struct tui_site *tui_data_site(struct tui_data *d, uint32_t arm, uint32_t ref, uint32_t site,
                                     const char **error);

/* The values of one row on both sides; data NULL: not dumped. side: as in ds_diff_options, 0 and 1; 0 for one
 * record. */
struct tui_values {
    struct ds_blob mine, ref;
};
const struct tui_values *tui_data_values(struct tui_data *d, uint32_t arm, uint32_t ref,
                                         uint64_t digest, uint64_t ref_digest, const char **error);

/* Token choices of an arm's first trial beside the reference's. */
struct tui_steps {
    const struct ds_step_pair *steps;
    size_t n;
};
const struct tui_steps *tui_data_steps(struct tui_data *d, uint32_t arm, uint32_t ref,
                                       const char **error);

/* Something is being read. */
int tui_data_pending(const struct tui_data *d);
/* Readable (poll) when something came; tui_data_turn empties it, lets go of what is not used and takes over what
 * came: 1 if there is something to draw. */
int tui_data_fd(const struct tui_data *d);
int tui_data_turn(struct tui_data *d);
/* Waits until nothing is pending (scripts, tests); -1 after `ms` milliseconds. */
int tui_data_wait(struct tui_data *d, int ms);
/* Esc: gives up what is pending, as soon as the read at work ends. */
void tui_data_cancel(struct tui_data *d);
/* R: reads the file again. */
void tui_data_reload(struct tui_data *d);

#endif
