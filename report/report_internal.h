/* report_internal.h: inside report/ only: paragraphs of the verdict, and what they share. */
#ifndef DS_REPORT_INTERNAL_H
#define DS_REPORT_INTERNAL_H

#include "report/report.h"

/* Further lines of a paragraph begin under the text beside its head. */
#define DS_REPORT_INDENT "              "

/* Adds one item of a list: after a comma where it fits in 100 columns, else on a line of its own. *column is
 * where the line stands. */
void ds_report_item(struct ds_buf *out, const char *indent, const struct ds_buf *item, int first,
                    size_t *column);

/* Adds a text, escaped, word by word: a line that would be longer than 100 columns goes on in the next one, behind
 * `indent`. column: where the line stands. */
void ds_report_wrapped(struct ds_buf *out, const char *indent, size_t column, const char *text);

/* "7 of 9 arms". */
void ds_report_arms(const struct ds_verdict *v, struct ds_buf *out);
/* Whether arms end at their first trial that disagrees. */
int ds_report_until_stable(const struct ds_report *r);
/* Trials that the plan of the record has; those of both where two are compared. */
uint64_t ds_report_planned(const struct ds_report *r);
/* What beside its place is said of a finding: factor, value, label. */
void ds_report_rest(const struct ds_report *r, const struct ds_finding *f, struct ds_buf *out);
/* The paragraph with the next useful command; nothing where there is none. */
void ds_report_next(const struct ds_report *r, struct ds_buf *out);
/* The arms that were lost; the first of them for the last line. */
void ds_report_failed(const struct ds_report *r, struct ds_buf *out);
void ds_report_failed_words(const struct ds_report *r, struct ds_buf *out);
/* Damage, row by row; in a few words of the last line. Nothing where there is none. */
void ds_report_damage(const struct ds_report *r, struct ds_buf *out);
void ds_report_damage_words(const struct ds_report *r, struct ds_buf *out);
/* The first unstable arms in short, and thresholds; nothing when all is stable. */
void ds_report_census(const struct ds_report *r, struct ds_buf *out);
/* The first drift, and those of other factors in a line each. */
void ds_report_firsts(const struct ds_report *r, struct ds_buf *out);
/* Kernels at fault, with what they add, and the innocent ones; growth by layer; how near the end of f16 comes;
 * tokens, experts, values that are not finite. */
void ds_report_origins(const struct ds_report *r, struct ds_buf *out);
void ds_report_growth(const struct ds_report *r, struct ds_buf *out);
void ds_report_precisions(const struct ds_report *r, struct ds_buf *out);
void ds_report_range(const struct ds_report *r, struct ds_buf *out);
void ds_report_tokens(const struct ds_report *r, struct ds_buf *out);
/* "layer 0 q_proj (matmul, f32, 64 wide)", with a newline. */
void ds_report_site_head(const struct ds_site *s, struct ds_buf *out);
/* What of a row is held against what: digests of the reference ([0]) and of the arm ([1]), 0 where it has none.
 * Of repeats (arm and ref are equal) those of the first that disagrees. */
void ds_report_row_digests(const struct ds_report_view *w, uint32_t site, size_t row, int has[2],
                           uint64_t digests[2]);
/* "(2 rows)", "(2 of 17 rows)": over which a figure is. */
void ds_report_of_rows(uint32_t n, uint32_t of, struct ds_buf *out);
/* "1.6 bits below the end of f16, 113.6 of f32": of f16, and of the site's own format in that arm. */
void ds_report_headroom(const struct ds_header *h, uint32_t arm, const struct ds_range_at *x,
                        struct ds_buf *out);
/* Which flake rate the agreeing trials of every arm exclude; nothing where an arm has none. */
void ds_report_excluded(const struct ds_report *r, struct ds_buf *out);

#endif
