/* report.h: a verdict in words: text for a terminal, a file or a screen, from what dumps/ found. Judges
 * nothing, prints nothing. Knows no options, no terminal, no kernel and no engine: colours and how the
 * program was called are given by the caller. All names from records are escaped. */
#ifndef DS_REPORT_H
#define DS_REPORT_H

#include "base/buf.h"
#include "dumps/diff.h"
#include "dumps/verdict.h"
#include "report/role.h"

/* What the commands that a report suggests must say beside their own arguments. */
struct ds_report_caller {
    /* Adds "driftscope VERB " as it was called and, for a verb that loads a model and kernels (model is
     * not NULL; "" is the default one), the options that load the same: "-m MODEL --plugin FILE ". */
    void (*begin)(struct ds_buf *out, const char *verb, const char *model);
    int (*explains)(const char *op); /* whether calls of the op can be made again, by `explain` */
};

/* Damage of a record: found while the verdict was made, or by verifying all of it. */
struct ds_damage_side {
    struct ds_record *record; /* NULL: none */
    int verified;             /* all of it was read, not only what the verdict looks at */
    size_t trials;            /* of which the tables are damaged, where verified */
    struct ds_damage *list;
    size_t n;
};

struct ds_report {
    const struct ds_header *header; /* model and sites */
    const struct ds_verdict *v;
    const struct ds_diff *diff; /* NULL: one record */
    const char *path, *path_b;  /* records on disk, for the suggested command; NULL: not on disk */
    size_t incomplete, damaged; /* trials left out */
    const struct ds_damage_side *damage; /* [2] of one or two records; NULL: not asked for */
    const uint8_t *healed;               /* grid: labels of the heal trial; NULL: there is none */
    /* What begins text of a role, and with DS_ROLE_PLAIN ends it; NULL: no colour. */
    const char *(*color)(const void *ctx, enum ds_role role);
    const void *color_ctx;
    const struct ds_report_caller
        *caller; /* NULL: "driftscope", and nothing to load but the model */
};

/* ---- the whole and its parts ----------------------------------------------------------------- */

/* The verdict, the answer last. */
void ds_report_verdict(const struct ds_report *r, struct ds_buf *out);
/* Its last line: the verdict in one sentence, without newline and colour. */
void ds_report_sentence(const struct ds_report *r, struct ds_buf *out);
/* The matrix kernel x factor. */
void ds_report_matrix(const struct ds_report *r, struct ds_buf *out);
/* All arms with two trials or more (`show --runs`). */
void ds_report_runs(const struct ds_report *r, struct ds_buf *out);

/* The layer x stage grid of one arm against its reference; labels as from ds_analysis_labels. bad:
 * [n_sites] whether a row of the arm is non-finite there; may be NULL. */
void ds_report_grid(const struct ds_report *r, const struct ds_analysis *a, const uint8_t *labels,
                    const uint8_t *bad, struct ds_buf *out);

/* "driftscope run -m MODEL --resume PATH". model NULL: the default. */
void ds_report_resume(const struct ds_report_caller *caller, const char *model, const char *path,
                      struct ds_buf *out);

/* ---- one pair of arms ------------------------------------------------------------------------ */

struct ds_report_view {
    const struct ds_report *r;
    struct ds_analysis *a;
    const struct ds_source *s;
    uint32_t arm, ref; /* equal: repeats of one arm */
    /* As in ds_diff_options: side 0 is the reference. */
    int (*blob)(void *ctx, int side, uint64_t digest, struct ds_blob *out, struct ds_error *err);
    void *ctx;
};

/* One site: rows, the values of both sides where they are dumped, then its profile. */
int ds_report_site(const struct ds_report_view *w, uint32_t site, struct ds_buf *out,
                   struct ds_error *err);
/* Where and how much the site differs: the finding in a few lines, then a table each for heads, channels
 * and positions. Nothing when no row drifts. */
int ds_report_profile(const struct ds_report_view *w, uint32_t site, struct ds_buf *out,
                      struct ds_error *err);
/* The grid of the pair with its heading. */
int ds_report_sites(const struct ds_report_view *w, struct ds_buf *out, struct ds_error *err);

/* Reads "LAYER,STAGE[/PART]" or "STAGE[/PART]" (first layer that has it), which came from `what`
 * ("--site"). 0, or -1 with an error that names the nearest stage. */
int ds_report_find_site(const struct ds_header *h, const char *what, const char *text,
                        uint32_t *site, struct ds_error *err);

/* ---- pieces ---------------------------------------------------------------------------------- */

/* "" without colour. */
const char *ds_report_color(const struct ds_report *r, enum ds_role role);
/* Escaped; nothing for NULL. */
void ds_report_name(struct ds_buf *out, const char *text);
/* "layer 3 k_rope", "layer 3 kv_write/k"; "matmul/openblas". */
void ds_report_place(struct ds_buf *out, int32_t layer, const char *stage, const char *part);
void ds_report_kernel(struct ds_buf *out, const char *op, const char *variant);
/* The name of a paragraph, padded to the 14 columns that its further lines are indented. */
void ds_report_head(const struct ds_report *r, const char *name, struct ds_buf *out);
/* Classes of one factor, e.g. "1-3|4|8,16"; class_of as in the verdict. At most `most` bytes, else
 * "N classes". */
void ds_report_classes(const struct ds_factor_verdict *f, const uint32_t *class_of, size_t most,
                       struct ds_buf *out);
/* "2 dumped rows do not have their digest"; 0 and nothing where there is no damage. */
int ds_report_damage_said(const struct ds_report *r, char *text, size_t size);
void ds_report_damage_count(const struct ds_report *r, uint64_t *rows, uint64_t *trials);
/* How an arm was lost: "died", "late" or "refused". */
const char *ds_report_failed_how(uint32_t how);
/* The arm's number in the record that it belongs to. */
uint32_t ds_report_own_arm(const struct ds_report *r, uint32_t arm);

#endif
