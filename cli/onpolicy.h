/* onpolicy.h: inside cli/ only: what `onpolicy` found, for its two renderers. */
#ifndef DS_CLI_ONPOLICY_H
#define DS_CLI_ONPOLICY_H

#include "cli/storm.h"
#include "dumps/policy.h"

/* What one kernel set gave. */
struct ds_onpolicy_set {
    uint32_t sampled, scored; /* arms of the record */
    struct ds_policy p;
    struct ds_policy_token worst; /* of p.most */
    struct ds_storm_match match;  /* the scored trial against the sampled one */
    struct ds_launch launch;      /* at its first difference */
    int invariant; /* every kernel claims that batch, slot and chunk change nothing */
};

struct ds_onpolicy_result {
    const struct ds_options *o;
    const struct ds_storm_setup *setup;
    const char *path; /* of the record */
    struct ds_onpolicy_set *sets;
    size_t n_sets;
};
int ds_onpolicy_drifts(const struct ds_onpolicy_set *s); /* other bits anywhere */
int ds_onpolicy_code(
    const struct ds_onpolicy_result *r); /* ERROR: no drift, but NaN among the logits */
void ds_onpolicy_text(struct ds_buf *out, const struct ds_onpolicy_result *r);
int ds_onpolicy_json(struct ds_buf *out, const struct ds_onpolicy_result *r, struct ds_error *err);

#endif
