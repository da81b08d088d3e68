/* sweep_internal.h: inside the sweep only: what belongs to one run of it. */
#ifndef DS_SWEEP_INTERNAL_H
#define DS_SWEEP_INTERNAL_H

#include "base/dtype.h"
#include "dumps/verdict.h"
#include "engine/failure.h"
#include "engine/load.h"
#include "engine/stall.h"
#include "engine/sweep.h"
#include "engine/worker.h"

/* What belongs to one storage format: held rows and the sites as that format stores them. */
struct format {
    struct ds_hold *hold;
    struct ds_site *sites;
    int ready;
};

/* What the natural trials of an arm showed: what there is to heal. */
struct seen {
    uint8_t drifted[DS_FACTOR_COUNT]; /* from this reference, in some trial */
    uint8_t parted;                   /* repeats gave unlike bits */
    uint32_t trials;
    uint64_t digest; /* of the first */
    uint64_t answer; /* its logits and tokens */
    uint8_t bare_differs;
};

struct sweep_state {
    const struct ds_sweep *s;
    struct ds_setting *settings; /* [n_arms] */
    uint32_t (*refs)[DS_FACTOR_COUNT];
    uint32_t *n_refs;
    uint8_t *is_ref, *rehearsed, *failed;
    struct seen *seen; /* [n_arms] */
    uint8_t *site_on;
    struct format format[DS_DTYPE_COUNT];
    struct ds_worker worker;
    struct ds_place *place;                         /* of the running worker, shared with it */
    struct ds_stall stall;                          /* whether it moves on */
    uint32_t arm;                                   /* that it is at */
    char key[96];                                   /* what the running worker was made for */
    char died[sizeof(((struct ds_error *)0)->msg)]; /* what the last lost trial said */
    int32_t workers;
    int32_t *forced; /* the base arm's tokens, once known */
    int32_t n_forced;
    struct ds_load load;
    uint32_t dumper; /* arm + 1 of the first trial that dumped rows, 0 = none yet */
    double start, done, total;
    struct ds_sweep_result *result;
    uint32_t *missing; /* not NULL: trials are counted, not run */
};

/* sweep_setup.c: the settings of the arms and who is compared with whom; then the sites, what workers
 * share, and the model. */
int sweep_setup_arms(struct sweep_state *st, struct ds_error *err);
int sweep_setup(struct sweep_state *st, struct ds_error *err);
/* Held rows and sites in one storage format, made when the first trial in it comes. */
int sweep_setup_format(struct sweep_state *st, int dtype, struct ds_error *err);
/* Releases what these made, also after one of them failed. */
void sweep_teardown(struct sweep_state *st);

#endif
