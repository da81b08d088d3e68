/* risk.h: inside cli/ only: what `risk` found, for its two renderers. */
#ifndef DS_CLI_RISK_H
#define DS_CLI_RISK_H

#include "cli/run_plan_internal.h"
#include "dumps/risk.h"

struct ds_risk_record {
    const char *path;
    struct ds_record *record;
    const struct ds_trial_data **trials; /* [n_arms] */
};

struct ds_risk_foretold {
    const char *path;
    struct ds_risk_test t;
};

/* What stages in f32 change, of another record. */
struct ds_risk_precise {
    const char *path;
    char stages[200];
    struct ds_risk_gain g; /* its `exchanged` is no longer there */
};

struct ds_risk_result {
    const struct ds_options *o;
    struct ds_risk_record own;
    struct ds_risk risk;
    struct ds_risk_gain *gains; /* of what was exchanged in its first set */
    size_t n_gains;
    struct ds_risk_foretold *tests; /* of the other records */
    size_t n_tests, cap_tests;
    struct ds_risk_precise *precise;
    size_t n_precise, cap_precise;
    struct ds_run_plan plan; /* model and tokenizer, with -m */
    size_t most;             /* choices listed of each group */
};
/* DRIFT where a choice can turn over: its margin is within the largest drift that was measured in its group; else
 * ERROR where choices have no margin, else SAME. */
int ds_risk_code(const struct ds_risk_result *r);
void ds_risk_text(struct ds_buf *out, const struct ds_risk_result *r);
int ds_risk_json(struct ds_buf *out, const struct ds_risk_result *r, struct ds_error *err);

#endif
