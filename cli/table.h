/* table.h: inside cli/ only: `table`: observations of many records as rows, and the figures of their groups. */
#ifndef DS_CLI_TABLE_H
#define DS_CLI_TABLE_H

#include "cli/cli.h"
#include "cli/json.h"
#include "dumps/metrics.h"
#include "dumps/record.h"

/* What one request of one trial chose. All borrowed. */
struct ds_observation {
    const char *path;
    const struct ds_header *h;
    const struct ds_trial *t;
    const struct ds_prompt *prompt;
    uint64_t prompt_digest; /* of its token ids */
    int32_t request;
    const struct ds_step *const *steps;
    size_t n_steps, trial_steps; /* its own; of the whole trial */
    struct ds_metrics_row row;
};

enum ds_cell_kind { DS_CELL_NONE = 0, DS_CELL_TEXT, DS_CELL_WHOLE, DS_CELL_REAL, DS_CELL_DIGEST };
struct ds_cell {
    enum ds_cell_kind kind;
    const char *text;
    int64_t whole;
    double real;
    uint64_t digest;
};

/* Columns: fixed ones, then the factors of all records, then what was seen. `factors` are borrowed names. */
struct ds_table_columns {
    char **factors;
    size_t n_factors;
};
void ds_table_columns_free(struct ds_table_columns *c);
/* Adds the factors of one more record. */
int ds_table_columns_add(struct ds_table_columns *c, const struct ds_header *h,
                         struct ds_error *err);
size_t ds_table_column_count(const struct ds_table_columns *c);
const char *ds_table_column_name(const struct ds_table_columns *c, size_t i);
void ds_table_cell(const struct ds_table_columns *c, size_t i, const struct ds_observation *o,
                   struct ds_cell *out);
int ds_table_column_is_factor(const struct ds_table_columns *c, size_t i);
/* Whether a column can tell groups apart: it is known before an observation is compared. */
int ds_table_column_groups(const struct ds_table_columns *c, size_t i);

/* A tab-separated value; nothing for none. */
void ds_cell_tsv(const struct ds_cell *c, struct ds_buf *out);
json_t *ds_cell_json(const struct ds_cell *c);

/* ---- render_table.c -------------------------------------------------------------------------- */

struct ds_table_result {
    const struct ds_options *o;
    const struct ds_metrics *metrics;
    const char *const *by; /* names of the columns that tell groups apart */
    size_t n_by;
    size_t records, observations, trials_left_out;
    uint64_t seed;
};
void ds_table_text(const struct ds_table_result *r, struct ds_buf *out);
void ds_table_metrics_tsv(const struct ds_table_result *r, struct ds_buf *out);
/* The object without its rows: from `"groups"` on, closed. */
int ds_table_metrics_json(const struct ds_table_result *r, struct ds_buf *out,
                          struct ds_error *err);

#endif
