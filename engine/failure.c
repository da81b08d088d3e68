/* failure.c: see failure.h. */
#include "engine/failure.h"

#include "base/mem.h"
#include "engine/stages.h"

#include <stdio.h>
#include <string.h>

/* The site of a stage in a layer; of numbered parts the first. */
static uint32_t site_of(const struct ds_header *h, int stage, int32_t layer)
{
    const struct ds_stage_info *s = ds_stage(stage);
    int inside = stage >= DS_ST_FIRST_OF_LAYER && stage < DS_ST_FIRST_AFTER;
    for (size_t i = 0; i < h->n_sites; i++) {
        const struct ds_site *x = &h->sites[i];
        int numbered = s->parts != DS_PARTS_ONE;
        if (strcmp(x->stage, s->name) == 0 && (!inside || x->layer == layer) &&
            (numbered || strcmp(x->part, s->part) == 0))
            return (uint32_t)i;
    }
    return DS_NOWHERE;
}

/* The reason alone: what stands before it in the message is told by the other fields. */
static const char *reason(const char *message, const struct ds_failure *f)
{
    char kernel[64];
    snprintf(kernel, sizeof kernel, "%s/%s", f->op, f->variant);
    const char *at = *f->op ? strstr(message, kernel) : NULL;
    const char *colon = at ? strstr(at, ": ") : NULL;
    return colon ? colon + 2 : message;
}

int ds_failure_trial(const struct ds_header *h, const struct ds_kernel_set *kernels,
                     const struct ds_place *place, int how, const char *message,
                     struct ds_trial_data *out, struct ds_error *err)
{
    const struct ds_place at = *place; /* may hold anything: a dying process wrote it */
    struct ds_failure *f = ds_calloc(1, sizeof *f, "a failure", err);
    if (!f)
        return -1;
    int launch = at.doing == DS_DOING_LAUNCH && at.stage >= 0 && at.stage < DS_ST_COUNT;
    int op = launch ? ds_stage(at.stage)->op : at.doing == DS_DOING_PREPARE ? at.op : -1;
    *f = (struct ds_failure){.how = (uint32_t)how,
                             .site = launch ? site_of(h, at.stage, at.layer) : DS_NOWHERE,
                             .rows = launch && at.rows > 0 ? at.rows : 0,
                             .phase =
                                 at.phase == DS_PHASE_DECODE ? DS_PHASE_DECODE : DS_PHASE_PREFILL,
                             .call = at.call > 0 ? (uint32_t)at.call : 0,
                             .m = at.m > 0 ? (uint32_t)at.m : 0,
                             .first = at.first,
                             .last = at.last};
    const struct ds_kernel *k =
        op >= 0 && op < DS_OP_COUNT ? ds_kernel_set_in(kernels, op, launch ? at.layer : 0) : NULL;
    if (k) {
        snprintf(f->op, sizeof f->op, "%s", ds_op_name(op));
        snprintf(f->variant, sizeof f->variant, "%s", k->name);
    }
    snprintf(f->why, sizeof f->why, "%.*s", (int)sizeof f->why - 1,
             how == DS_FAILED_REFUSED ? reason(message, f) : message);
    out->info.pass = DS_PASS_FAILED;
    out->failures = f;
    out->n_failures = 1;
    return 0;
}
