/* report_time.h: inside cli/ only: the answers of several records, as they are gathered (report_time.c) and placed on a page
 * (report_time_place.c). */
#ifndef DS_CLI_REPORT_TIME_H
#define DS_CLI_REPORT_TIME_H

#include "cli/report.h"
#include "dumps/metrics.h"

/* One answer of a series in a record. */
struct ds_time_answer {
    size_t point;
    uint64_t completion, logits;
};

struct ds_report_times {
    /* A group is a series: the first record's answer is the reference. */
    struct ds_metrics *metrics, *families;
    struct ds_report_changes *changes;
    struct ds_time_record *records;
    char **keys;   /* [n_series], escaped: also what is shown */
    char **titles; /* [n_series] the beginning of the prompt, escaped; "": it has no text */
    size_t n_records, n_series;
    struct ds_time_point *points;
    double *across; /* [n_points] how far off the family's first record it is */
    size_t n_points;
    struct ds_time_answer *answers;
    size_t n_answers, cap_answers;
};

/* " concurrency=N" in the key of a series, *n bytes long; NULL: it has none. And the key without it, malloc'ed. */
const char *ds_report_times_concurrency(const char *key, size_t *n);
char *ds_report_times_family(const char *key, struct ds_error *err);
/* A number for a list, of that of what came before and the next one. */
uint64_t ds_report_times_mix(uint64_t sum, uint64_t next);

#endif
