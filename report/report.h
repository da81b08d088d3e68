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
    /* What this program's kernel of that name says of itself and of the order in which it adds; NULL: it has none. */
    const char *(*kernel)(const char *device, const char *op, const char *variant);
    const char *(*build)(void); /* as headers have it */
};

/* Damage of a record: found while the verdict was made, or by verifying all of it. */
struct ds_damage_side {
    struct ds_record *record;       /* NULL: none; not looked into here */
    const struct ds_header *header; /* the record's; NULL: none */
    int verified;                   /* all of it was read, not only what the verdict looks at */
    size_t trials;                  /* of which the tables are damaged, where verified */
    uint64_t unread_rows,
        unread_bytes; /* dumped, and not held against their digests; where not verified */
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
    /* NULL: "driftscope", and nothing to load but the model. */
    const struct ds_report_caller *caller;
};

/* ---- the whole and its parts ----------------------------------------------------------------- */

/* A paragraph each, in the order of the whole; of many there is nothing to say: then nothing is added. Lines
 * fit 100 columns; the first begins with the paragraph's name, the others, unless they have a name, too, with 14
 * spaces. */
enum ds_report_part {
    DS_REPORT_RECORD = 0, /* model, counts, what was left out */
    DS_REPORT_VALIDITY,   /* captures that prove nothing or are suspect; notes about the record */
    DS_REPORT_MATRIX,     /* beside it an empty line before and behind */
    DS_REPORT_FACTORS,
    DS_REPORT_SWITCHES,
    DS_REPORT_BANDS,
    DS_REPORT_TERMS,
    DS_REPORT_DIFFERENCES, /* of two records */
    DS_REPORT_UNSTABLE,
    DS_REPORT_FIRSTS,
    DS_REPORT_ORIGINS,
    DS_REPORT_GROWTH,
    DS_REPORT_PRECISIONS, /* the same difference in several formats */
    DS_REPORT_RANGE,
    DS_REPORT_TOKENS, /* experts and values that are not finite, too */
    DS_REPORT_FAILED,
    DS_REPORT_PROBES,
    DS_REPORT_NEXT,
    DS_REPORT_PARTS
};
void ds_report_paragraph(const struct ds_report *r, int part, struct ds_buf *out);

/* The verdict, the answer last. */
void ds_report_verdict(const struct ds_report *r, struct ds_buf *out);
/* Its last line: the verdict in one sentence, without newline and colour. */
void ds_report_sentence(const struct ds_report *r, struct ds_buf *out);
/* The matrix kernel x factor. */
void ds_report_matrix(const struct ds_report *r, struct ds_buf *out);
/* All arms with two trials or more (`show --runs`). */
void ds_report_runs(const struct ds_report *r, struct ds_buf *out);

/* A line for each trial (`show --runs --long`). */
int ds_report_trials(const struct ds_report *r, const struct ds_source *s, struct ds_buf *out,
                     struct ds_error *err);

/* The layer x stage grid of one arm against its reference; labels as from ds_analysis_labels. bad:
 * [n_sites] whether a row of the arm is non-finite there; may be NULL. */
void ds_report_grid(const struct ds_report *r, const struct ds_analysis *a, const uint8_t *labels,
                    const uint8_t *bad, struct ds_buf *out);

/* ---- commands -------------------------------------------------------------------------------- */

/* "driftscope VERB ", with what the program needs to load the same model and kernels; model NULL: the verb
 * loads none. Arguments follow, each through ds_buf_quote. */
void ds_report_command(const struct ds_report_caller *caller, const char *verb, const char *model,
                       struct ds_buf *out);
/* "driftscope run -m MODEL --resume PATH". model NULL: the default. */
void ds_report_resume(const struct ds_report_caller *caller, const char *model, const char *path,
                      struct ds_buf *out);
/* The commands that are useful next, a line each, without a newline at the end; nothing where there is
 * none. Without the one that opens the terminal UI, which the verdict names as well. */
void ds_report_commands(const struct ds_report *r, struct ds_buf *out);

/* ---- one pair of arms ------------------------------------------------------------------------ */

struct ds_report_view {
    const struct ds_report *r;
    struct ds_analysis *a;
    const struct ds_source *s;
    uint32_t arm, ref; /* equal: repeats of one arm */
    int all;           /* lists are whole, however long */
    /* As in ds_diff_options: side 0 is the reference. */
    int (*blob)(void *ctx, int side, uint64_t digest, struct ds_blob *out, struct ds_error *err);
    void *ctx;
};

/* One site: rows, the values of both sides where they are dumped, then its profile. */
int ds_report_site(const struct ds_report_view *w, uint32_t site, struct ds_buf *out,
                   struct ds_error *err);
/* Before it: every row with its sizes and the class of every arm, launches of both sides field by field, inputs with
 * their labels. */
int ds_report_site_long(const struct ds_report_view *w, uint32_t site, struct ds_buf *out,
                        struct ds_error *err);
/* The launches of the reference and of the arm at the first row that drifts, else at the first that there is; NULL: not
 * known. labels as from ds_analysis_labels. */
void ds_report_site_launches(const struct ds_report_view *w, uint32_t site, const uint8_t *labels,
                             const struct ds_launch *out[2]);
/* One row of it in full: every element on both sides in decimal, %a and hex, distances, notes, a histogram. */
int ds_report_row(const struct ds_report_view *w, uint32_t site, size_t row, struct ds_buf *out,
                  struct ds_error *err);
/* Reads "REQUEST:POSITION[#OCCURRENCE]", which came from `what` ("--row"). */
int ds_report_find_row(const struct ds_analysis *a, const char *what, const char *text, size_t *row,
                       struct ds_error *err);
/* The tokens of both sides, a line a step: margin, drift of the logits, how far from another token, ties; then both
 * sides' top 8 of every step. */
int ds_report_steps(const struct ds_report_view *w, struct ds_buf *out, struct ds_error *err);
/* Where and how much the site differs: the finding in a few lines, then a table each for heads, channels
 * and positions. Nothing when no row drifts. */
/* What the repeats of each of the two arms gave at the site, where they disagree; of one arm also where not. */
int ds_report_site_repeats(const struct ds_report_view *w, uint32_t site, struct ds_buf *out,
                           struct ds_error *err);
int ds_report_profile(const struct ds_report_view *w, uint32_t site, struct ds_buf *out,
                      struct ds_error *err);
/* The grid of the pair with its heading. */
int ds_report_sites(const struct ds_report_view *w, struct ds_buf *out, struct ds_error *err);

/* A line for each site that drifts: rows, elements, max ULP, max abs, relative rms, what it adds on equal inputs. */
int ds_report_sizes(const struct ds_report_view *w, struct ds_buf *out, struct ds_error *err);

/* The pair to look at first: that of the first drift, else the first arm that has a reference, else the
 * verdict's reference with itself. 1, or 0 where there is nothing to look at (v->reason says why). */
int ds_report_pair(const struct ds_verdict *v, const struct ds_analysis *a, size_t n_arms,
                   uint32_t *arm, uint32_t *ref);
/* What an arm is best held against: the reference of the factor whose first drift is in it, else of the first
 * factor that it has one for, else itself (its repeats). */
uint32_t ds_report_reference(const struct ds_verdict *v, const struct ds_analysis *a, uint32_t arm);
/* "arm 3 (batch 4, threads 1) against arm 0: batch 1", with a newline. */
void ds_report_pair_words(const struct ds_report_view *w, struct ds_buf *out);

/* Reads "LAYER,STAGE[/PART]" or "STAGE[/PART]" (first layer that has it), which came from `what`
 * ("--site"). 0, or -1 with an error that names the nearest stage. */
int ds_report_find_site(const struct ds_header *h, const char *what, const char *text,
                        uint32_t *site, struct ds_error *err);

/* ---- pieces ---------------------------------------------------------------------------------- */

/* "0:3", as --row takes it. */
void ds_report_row_key(const struct ds_row_key *key, struct ds_buf *out);
/* "" without colour. */
const char *ds_report_color(const struct ds_report *r, enum ds_role role);
/* Escaped; nothing for NULL. */
void ds_report_name(struct ds_buf *out, const char *text);
/* "layer 3 k_rope", "layer 3 kv_write/k", before the layers "embed"; "matmul/openblas". */
void ds_report_place(struct ds_buf *out, int32_t layer, const char *stage, const char *part);
void ds_report_kernel(struct ds_buf *out, const char *op, const char *variant);
/* The name of a paragraph, padded to the 14 columns that its further lines are indented. */
void ds_report_head(const struct ds_report *r, const char *name, struct ds_buf *out);
/* Classes of one factor, e.g. "1-3|4|8,16"; class_of as in the verdict. At most `most` bytes, else
 * "N classes". */
void ds_report_classes(const struct ds_factor_verdict *f, const uint32_t *class_of, size_t most,
                       struct ds_buf *out);
/* Dumped rows of all records that were not held against their digests, and their bytes. */
void ds_report_unread(const struct ds_report *r, uint64_t *rows, uint64_t *bytes);
void ds_report_damage_count(const struct ds_report *r, uint64_t *rows, uint64_t *trials);
/* Whether there is any; then nothing is the same: such a result becomes incomparable. v: of the report. */
int ds_report_damage_judge(const struct ds_report *r, struct ds_verdict *v);
/* One cell of the matrix, at most `most` bytes where it lists classes: "same", "unstable", "?" (not judged),
 * "-" (nothing compared), or the classes. k: in v->kernels, f: in v->factors. */
void ds_report_cell(const struct ds_verdict *v, size_t k, size_t f, size_t most,
                    struct ds_buf *out);
/* "30": at how many sites the kernel is an origin along that factor; nothing where it is at none. */
void ds_report_cell_count(const struct ds_verdict *v, size_t k, size_t f, struct ds_buf *out);
enum ds_role ds_report_cell_role(int condition); /* of ds_kernel_verdict.condition[f] */

/* The mark of a site in the grid, by the most telling label of its rows: . same, # origin, o origin when healed,
 * - inherited, x drift with unknown inputs, ~ unstable, ! non-finite, ? not compared. bad may be NULL. */
char ds_report_mark(const struct ds_report *r, const struct ds_analysis *a, size_t site,
                    const uint8_t *labels, const uint8_t *bad);
/* The same of one site's rows; healed may be NULL. */
char ds_report_rows_mark(const uint8_t *labels, const uint8_t *healed, size_t rows, int bad);
/* A short heading for a site's stage: "q", "ck", "gate"; not escaped. */
const char *ds_report_stage_short(const struct ds_site *s);
/* The stages of all layers as one list, each by one of its sites: those that only some layers have (copies
 * between devices, experts beside dense layers) stand where such a layer has them. columns: [n_sites].
 * Returns how many. */
size_t ds_report_stages(const struct ds_header *h, uint32_t *columns);

/* A finding in a few sentences, a line each: where and its label, what it reads, against what, how large, where
 * in the rows, its kind and evidence, the launches. `indent` begins all lines but the first. */
void ds_report_finding(const struct ds_report *r, const struct ds_finding *f, const char *indent,
                       struct ds_buf *out);

/* Sentences of it, a line each: how large; where in the rows (heads, channels, positions) and what explains
 * that; its kind and evidence. */
void ds_report_size(const struct ds_report *r, const struct ds_finding *f, const char *indent,
                    struct ds_buf *out);
void ds_report_where(const struct ds_finding *f, const char *indent, struct ds_buf *out);
void ds_report_kind(const struct ds_finding *f, const char *indent, struct ds_buf *out);
/* "first row 0:0, last 0:25; first element 3, last 575": of those that differ at its site. */
void ds_report_ends(const struct ds_finding *f, const char *indent, struct ds_buf *out);

/* One launch: "openblas Haswell, tile 64x0x0, split 2, 4 threads"; "unknown" for NULL. core: what the BLAS library
 * called itself, for kernels that name no algorithm; may be NULL. */
void ds_report_launch(const struct ds_launch *l, const char *core, struct ds_buf *out);
/* Two launches field by field, those that at least one of them tells. What is unknown on a side differs from
 * nothing. Returns how many fields; a or b may be NULL. */
enum { DS_REPORT_LAUNCH_FIELDS = 9 };
struct ds_report_launch_field {
    const char *name;
    char text[2][136]; /* of a and of b, escaped */
    int differs;
};
size_t ds_report_launch_fields(const struct ds_launch *a, const struct ds_launch *b,
                               struct ds_report_launch_field fields[DS_REPORT_LAUNCH_FIELDS]);
/* What the kernels of both launches, a of arm arm_a, say of themselves and of the order in which they add: an entry for each that
 * this program has. As text a line each, "matmul/split-k: K in ..."; of a record of another build the line says so. Both
 * return how many. */
struct ds_report_kernel {
    const struct ds_launch *launch; /* whose kernel it is */
    const char *text;
    int other_build; /* the record's program is not this one */
};
size_t ds_report_kernel_list(const struct ds_report *r, const struct ds_launch *a, uint32_t arm_a,
                             const struct ds_launch *b, uint32_t arm_b,
                             struct ds_report_kernel out[2]);
size_t ds_report_kernels(const struct ds_report *r, const struct ds_launch *a, uint32_t arm_a,
                         const struct ds_launch *b, uint32_t arm_b, struct ds_buf *out);
/* "tile 64 against 128, threads 1 against 2": what differs from a to b; returns how many fields. */
size_t ds_report_launch_difference(const struct ds_launch *a, const struct ds_launch *b,
                                   struct ds_buf *out);

/* "%.9g", "NaN", "Inf", "-Inf"; a distance in ULP, "NaN" for UINT64_MAX; 16 hex digits. */
void ds_report_number(double x, struct ds_buf *out);
void ds_report_ulp(uint64_t distance, struct ds_buf *out);
void ds_report_digest(uint64_t digest, struct ds_buf *out);

/* "matmul/mine only in calls from 4 rows, not with 3 (threads 2)": where repeats disagree. */
struct ds_census_threshold;
struct ds_census_site;
struct ds_census_row;
/* "8 trials, 5 of 9 rows have several digests, up to 3; ..." and "5 of 8 trials gave 0123456789abcdef, 3 different
 * digests". */
void ds_report_census_site(const struct ds_census_site *c, struct ds_buf *out);
void ds_report_census_row(const struct ds_census_row *r, struct ds_buf *out);
void ds_report_threshold(const struct ds_census_threshold *t, struct ds_buf *out);
/* Where an arm was lost: "layer 0 q_proj, matmul/mine, 7 rows". */
void ds_report_failed_place(const struct ds_failed_arm *f, struct ds_buf *out);
/* How an arm was lost: "died", "late" or "refused". */
const char *ds_report_failed_how(uint32_t how);
/* "batch 4", "base arm", of an arm: the factor values that are not the base arm's; not escaped. */
void ds_report_arm_values(const struct ds_header *h, uint32_t arm, struct ds_buf *out);
/* The letter of a class, a..z then A..Z then 0..9 then '*'; '.' for one that is not recorded. */
char ds_report_class_letter(uint32_t class_of);
/* The arm's number in the record that it belongs to. */
uint32_t ds_report_own_arm(const struct ds_report *r, uint32_t arm);

/* How the tokens of a record were chosen: two lines, the second indented as a paragraph's; nothing where the
 * record does not say (sampler.c). */
void ds_report_sampler(const struct ds_header *h, struct ds_buf *out);

#endif
