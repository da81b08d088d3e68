/* report.h: inside cli/ only: `report`: records as one page, or one figure of a record. */
#ifndef DS_CLI_REPORT_H
#define DS_CLI_REPORT_H

#include "cli/run_plan.h"
#include "report/page.h"

struct ds_report_times;
struct ds_report_changes;
struct ds_report_maker {
    const struct ds_options *o;
    const char *figure;       /* the only one that is wanted; NULL: the page */
    const char *data;         /* folder for the figures' numbers; NULL: none */
    int64_t arm;              /* --arm; -1 */
    size_t n_records, record; /* in all; the one at work, from 0, in the order of their times */
    const char **paths;       /* [n_records] in that order */
    struct ds_report_times *times; /* of several records; NULL: one */
    struct ds_page page;
    struct ds_buf file; /* the wanted figure, as a file */
    /* -m: the model that tokens are told in, of the records that it made. */
    struct ds_run_plan plan;
    int drifts;
    int responses; /* of other systems, no records */
    int32_t *
        concurrency; /* [n_records] of responses, in the order of paths: what --concurrency says; 0: nothing */
};
/* Puts a figure where it is wanted: on the page, into a file of numbers, alone. arm: of whose trial it is; -1: none. */
int ds_report_place_figure(struct ds_report_maker *m, const struct ds_figure *f, int64_t arm,
                           int top, struct ds_error *err);
/* Whether that figure is to be made at all. */
int ds_report_wants(const struct ds_report_maker *m, const char *figure);

/* report_sweep.c, report_storm.c: a record's section. */
int ds_report_sweep(struct ds_report_maker *m, const char *path, struct ds_record *r,
                    struct ds_error *err);
int ds_report_serving(struct ds_report_maker *m, const char *path, struct ds_record *r,
                      struct ds_error *err);
int ds_report_is_serving(const struct ds_header *h);
/* The environment of a record, whose verdict may be NULL. */
int ds_report_machine(struct ds_report_maker *m, const struct ds_report *r,
                      struct ds_record *record, struct ds_error *err);

/* report_responses.c: files of other systems' responses (fingerprint.h) instead of records. */
int ds_report_is_responses(const char *path);
/* When the first of them was made, else when the file was written. */
int ds_report_responses_start(const char *path, char *out, size_t size, struct ds_error *err);
int ds_report_responses(struct ds_report_maker *m, const char *path, struct ds_error *err);

/* report_changes.c: what else is unlike in a record and the one before. names: of that, appended; escaped, in plain text. */
int ds_report_changes_new(struct ds_report_changes **out, struct ds_error *err);
void ds_report_changes_free(struct ds_report_changes *c);
int ds_report_changes_record(struct ds_report_changes *c, const char *path,
                             const struct ds_record *r, struct ds_buf *names, struct ds_error *err);
int ds_report_changes_texts(struct ds_report_changes *c, const char *path, const char *start,
                            const struct ds_text *texts, size_t n, struct ds_buf *names,
                            struct ds_error *err);
void ds_report_changes_place(struct ds_report_maker *m, const struct ds_report_changes *c);

/* report_time.c: answers over time. A record, then its natural trials; then the figure. */
int ds_report_times_new(struct ds_report_times **out, struct ds_error *err);
void ds_report_times_free(struct ds_report_times *t);
int ds_report_times_record(struct ds_report_times *t, const char *path, const struct ds_record *r,
                           struct ds_error *err);
int ds_report_times_trial(struct ds_report_times *t, const struct ds_header *h,
                          const struct ds_trial_data *data, struct ds_error *err);
/* The same of what is no record: what it says of its version and of what else may change, then answers, by series. */
int ds_report_times_texts(struct ds_report_times *t, const char *path, const char *start,
                          const char *version, const struct ds_text *texts, size_t n,
                          struct ds_error *err);
/* key: "prompt ID, ...", escaped, where it is known with DS_REPORT_CONCURRENCY and a number among it; text: what the
 * prompt begins with. */
#define DS_REPORT_CONCURRENCY "concurrency "
int ds_report_times_answer(struct ds_report_times *t, const char *key, const char *text,
                           uint64_t id, const struct ds_step *const *steps, size_t n,
                           struct ds_error *err);
int ds_report_times_place(struct ds_report_maker *m, struct ds_report_times *t,
                          struct ds_error *err);

#endif
