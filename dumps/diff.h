/* diff.h: two records of the same sites, compared. A pure function: what differs in the setting is
 * listed first, then arms with equal factor values are paired and judged like a sweep whose factor
 * is "record" with the values "A" and "B". */
#ifndef DS_DIFF_H
#define DS_DIFF_H

#include "dumps/tolerance.h"
#include "dumps/verdict.h"

/* What differs beside the digests. `a` or `b` is NULL where that side has none. */
enum ds_diff_kind {
    DS_DIFF_MODEL = 0,
    DS_DIFF_WEIGHT /* its numbers */,
    DS_DIFF_WEIGHT_BYTES /* the same numbers from other bytes of the file */,
    DS_DIFF_PACKED /* as its matmul kernel packed it, from equal numbers */,
    DS_DIFF_HPARAM,
    DS_DIFF_OPTION,  /* of the run */
    DS_DIFF_PROMPT,  /* one is the beginning of the other */
    DS_DIFF_FACTOR,  /* no common value: it is what is compared */
    DS_DIFF_LIBRARY, /* BLAS core as the trials saw it */
    DS_DIFF_ENVIRONMENT,
    DS_DIFF_HISTORY, /* of the processes, before the trials of a pair; repeats show that it is harmless */
    DS_DIFF_SITE,    /* recorded on one side only */
    DS_DIFF_ARM,     /* no partner, or no complete trial */
    DS_DIFF_REPEATS, /* other numbers of trials: each is held against the other side all the same */
    DS_DIFF_ROWS,    /* on one side only, in all pairs */
    DS_DIFF_LAUNCH,  /* of the kernel at the first drift, or of its trial */
    DS_DIFF_DAMAGE,  /* dumped rows that could not be believed */
    DS_DIFF_KINDS
};
/* "model" "weight" "weight bytes" "packed weight" "hyperparameter" "option" "prompt" "factor" "library" "environment"
 * "history" "site" "arm" "repeats" "rows" "launch" "damage" */
const char *ds_diff_kind_name(int kind);

struct ds_diff_item {
    int kind;
    char *name, *a, *b;
};

struct ds_diff_options {
    /* Dumped bytes by digest, of side 0 (A) or 1 (B): 1 found (out->data malloc'ed), 0 not dumped,
     * -1 damage, DS_BLOB_UNREAD. NULL: no sizes. */
    int (*blob)(void *ctx, int side, uint64_t digest, struct ds_blob *out, struct ds_error *err);
    /* The same of many rows at once, as ds_record_locate, ds_record_fetch and ds_record_believe have it; NULL: each is
     * asked for with `blob`. bulk_bytes: of a side's rows that may be there at a time. */
    void (*locate)(void *ctx, int side, uint64_t digest, struct ds_raw_row *out);
    void (*fetch)(void *ctx, int side, struct ds_raw_row *rows, size_t n, void *room);
    void (*believe)(void *ctx, int side, const struct ds_raw_row *row);
    uint64_t bulk_bytes;
    void *ctx;
    /* Which sites count, each text like "layers=0-3,5,stages=attn_out,kv_write/k,parts=k,ops=matmul":
     * a site fits a text if it fits every key in it. With `only`, the sites that fit one of its texts;
     * of those, the ones that fit no text of `ignore`. A name that no site has is an error. */
    const char *const *only, *const *ignore;
    size_t n_only, n_ignore;
    struct ds_tolerance tolerance; /* none set: bits */
    int some_arms; /* the sources hold trials of some arms only: the others are missing on no side */
    int partial;   /* nothing differs in what both have: same, whatever one of them lacks */
    int across_models; /* two models are compared: see diff_models.c */
    /* Bytes that all may take that grows with the records: more is an error that says how many; 0: any. loaded:
     * what the sources keep of trials and indices by now; NULL: not known. */
    uint64_t memory;
    uint64_t (*loaded)(void *ctx);
    int (*stop)(void *ctx); /* as in ds_analysis_options */
    void *stop_ctx;
};

/* How much of one record's work the other lacks: see diff_missing.c. */
struct ds_missing {
    uint64_t arms, layers, rows, sites;
};

struct ds_diff {
    struct ds_diff_item *items;
    size_t n_items;
    size_t pairs;         /* arms compared */
    uint64_t unpaired[2]; /* digests of the paired arms that the other side does not have */
    size_t alone[2];      /* arms that the other side does not have, or has no complete trial of */
    size_t n_ignored;     /* sites that do not count */
    struct ds_missing missing[2]; /* of A's work what B lacks, and the other way round */
    uint64_t unmade[2];           /* arms of A (B) that have no complete trial there */
    uint64_t parted; /* rows of both that were fed with other tokens, or follow such a one */
    int partial;     /* any of these: without options.partial "nothing differs" is no answer */
    char missing_words[400]; /* in one line; "" */
    int two_models; /* the records are of two models; incomparable without options.across_models */
    char models_words[160]; /* what says so; "" */
    /* Rows of B (and of repeats) that differ from A's: excused by the tolerance, beyond it, and those
     * that it cannot excuse, since their bytes are not in the records. */
    uint64_t excused, exceeding, not_dumped;
    struct ds_map *within_known; /* of two digests of heal trials, whether they are within it */
    struct ds_finding
        within; /* the first place in execution order at which rows of a pair differ within it */
    /* Factor "record"; arm and ref_arm are numbers in the joined source below. */
    struct ds_verdict verdict;
    /* The two records as one: arm 2p is pair p of A, 2p + 1 of B. */
    struct ds_diff_options options;
    struct ds_source joined;
    struct ds_header header; /* arrays owned, texts borrowed from both sides */
    struct ds_trial_data *trials;
    struct ds_history *histories; /* [n_trials] */
    size_t n_trials, cap_trials;
    size_t cap_drifts;                  /* room for sizes in the trial that has them */
    const struct ds_prompt *prompts[2]; /* where they have other lengths */
    const struct ds_prompt *
        *prompt_of;        /* [header.n_arms] the subject's prompt; NULL when both are the same */
    uint32_t *site_map[2]; /* [own n_sites] number of a site in the joined header */
    /* [2 pairs] arm of the same side to which its heal trials went, and whose pair agrees;
     * UINT32_MAX: none. NULL: no use. */
    uint32_t *healed_to;
    uint32_t *arm_of;       /* [header.n_arms] number in its own record */
    uint8_t *site_only;     /* [header.n_sites] 1: only A knows the site, 2: only B */
    uint8_t *ignored;       /* [header.n_sites] NULL: every site counts */
    uint64_t own_bytes;     /* of the copies here */
    uint64_t **own_digests; /* [cap_trials] a trial's digests where some are excused, else NULL */
    const uint64_t *
        *recorded; /* [cap_trials] those that it had before; NULL: none is excused anywhere */
    uint8_t *data_differs;        /* [header.n_sites] the site's kernel was given other weights or
                                     hyperparameters */
    struct ds_analysis *analysis; /* NULL when incomparable */
};

/* Both sources must outlive *out, which must not be moved (the joined source points into it).
 * options may be NULL. */
int ds_diff_make(const struct ds_source *a, const struct ds_source *b,
                 const struct ds_diff_options *options, struct ds_diff *out, struct ds_error *err);
void ds_diff_free(struct ds_diff *d);
/* Whether the kernel at a joined site works with the weight or hyperparameter that an item names. */
int ds_diff_reads(const struct ds_diff *d, const struct ds_diff_item *x, uint32_t site);

#endif
