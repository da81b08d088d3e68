/* environment.h: what records were made with, as lists of names and values: of two what differs beside the digests,
 * then what is equal; of one all of it, and what casts doubt on it. Texts are as the records have them: they
 * are escaped where they are shown. */
#ifndef DS_REPORT_ENVIRONMENT_H
#define DS_REPORT_ENVIRONMENT_H

#include "report/report.h"

/* One record, or two as ds_diff joins them. */
struct ds_env_of {
    const struct ds_report *report;       /* paths, and whose arms are whose */
    const struct ds_header *sides[2];     /* the records' own; sides[1] NULL: one record */
    const struct ds_trial *const *trials; /* complete ones, as the (joined) source numbers them */
    size_t n_trials, incomplete, damaged;
    const struct ds_verdict *verdict; /* NULL: there is none, `error` may say why */
    const struct ds_diff *diff;       /* NULL: one record */
    const char *error, *note;
};

enum ds_env_list {
    DS_ENV_RECORD = 0, /* what is unlike in any two records */
    DS_ENV_MODEL,
    DS_ENV_HPARAMS,
    DS_ENV_ENVIRONMENT,
    DS_ENV_OPTIONS,
    DS_ENV_PROMPTS,
    DS_ENV_FACTORS,
    DS_ENV_ARMS,
    DS_ENV_WEIGHTS,
    DS_ENV_LISTS,
    DS_ENV_FINDINGS, /* what casts doubt on the record: validity, notes; no list of a record */
    DS_ENV_ITEMS     /* what differs, as ds_diff has it */
};
enum { DS_ENV_NONE = UINT32_MAX };
enum { DS_ENV_ROW = 0, DS_ENV_HEADING, DS_ENV_LINE /* one text */ };

struct ds_env_row { /* without padding: rows are compared as bytes */
    uint32_t at
        [2]; /* entry of each side's list, DS_ENV_NONE where it has none; findings and items: at[0] */
    uint8_t list, kind; /* a heading: of a list, and items of the kind at[0] */
    uint8_t equal;      /* both sides have it, and it is the same */
    uint8_t unused;
};

struct ds_env {
    int two;        /* records */
    int comparable; /* two, and what differs is listed */
    struct ds_env_row *rows;
    size_t n, cap, n_differ, n_equal;
    char **values[2]; /* [n_factors] a factor's values as one text */
    size_t n_values[2];
    uint32_t *trials[2]; /* [n_arms] natural trials */
    size_t edges[2][3];  /* by kind */
    size_t passes[2][4]; /* trials by pass */
    char blas[2][256];   /* as the trials saw it */
};

/* Fills *e, which is released with ds_env_free also after -1 (no memory). `w` must be the same in all calls. */
int ds_env_make(struct ds_env *e, const struct ds_env_of *w, struct ds_error *err);
void ds_env_free(struct ds_env *e);

/* A row's name and both texts (of one record the first; NULL: that side has none). */
struct ds_env_texts {
    const char *name, *text[2];
    char room[3][512];
};
void ds_env_row_texts(const struct ds_env *e, const struct ds_env_of *w, const struct ds_env_row *r,
                      struct ds_env_texts *out);
/* What the heading of a list, or of items of a kind, says. */
void ds_env_heading(const struct ds_env *e, const struct ds_env_row *r, char out[512]);

/* All of it as text: where two differ a line each, A and B (`show --environment`, `diff --environment`). */
int ds_report_environment(const struct ds_env_of *w, struct ds_buf *out, struct ds_error *err);

#endif
