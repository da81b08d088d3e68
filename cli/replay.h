/* replay.h: inside cli/ only: what `replay` runs and found, for the verb (verb_replay.c), its texts (render_replay.c) and its
 * exports (replay_export.c). */
#ifndef DS_CLI_REPLAY_H
#define DS_CLI_REPLAY_H

#include "cli/storm.h"

struct ds_replay {
    const struct ds_options *o;
    struct ds_record *record;
    struct ds_storm_setup setup;
    struct ds_serve_plan alone;   /* with --alone */
    struct ds_changed_run others; /* with --other-neighbours */
    struct ds_header header;      /* the arms that are run; all else is the record's */
    uint32_t *arms;               /* [n_arms] whose trials of the record they are held against */
    size_t n_arms;
    int64_t request;           /* -1 = all */
    struct ds_storm_hit *hits; /* of the recorded schedule; not NULL */
    size_t n_hits;
    struct ds_storm_match *matches;
    struct ds_launch *launches; /* of the first differing digest */
    struct ds_inputs_followed *
        *followed; /* with inputs in the record, where all of the storm is run */
    size_t *n_followed;
    size_t n_matches; /* arms that were run: all, unless it was interrupted */
};

/* The trial of an arm of the record. */
const struct ds_trial_data *ds_replay_recorded(struct ds_record *r, uint32_t arm,
                                               struct ds_error *err);
/* The first arm that has other bits or tokens than the record, and which it is; NULL: none. */
const struct ds_storm_match *ds_replay_different(const struct ds_replay *r, size_t *arm);
/* The result, as text or as JSON. */
int ds_replay_report(const struct ds_replay *r, struct ds_error *err);

/* --export-schedule, --export-inputs: what a record was made from, without running it. */
int ds_replay_export(const struct ds_options *o, struct ds_error *err);

#endif
