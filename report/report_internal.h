/* report_internal.h: inside report/ only: paragraphs of the verdict, and what they share. */
#ifndef DS_REPORT_INTERNAL_H
#define DS_REPORT_INTERNAL_H

#include "report/report.h"

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
/* Which flake rate the agreeing trials of every arm exclude; nothing where an arm has none. */
void ds_report_excluded(const struct ds_report *r, struct ds_buf *out);

#endif
