/* forward_devices.c: the devices of a pass: each has a desk of its own, the pass works at one of them at a
 * time, and where the next layer lies on another one the residual stream goes there and is shown on both
 * sides. Owns the desks; must not know what the stages between two borders do. */
#include "engine/forward_private.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_forward_use(struct ds_forward *f)
{
    f->exec.stream = f->at.dev ? f->at.dev->stream : NULL;
    f->exec.memory = f->at.dev ? f->at.dev->memory : DS_MEMORY_HOST;
    f->exec.scratch = f->at.scratch;
    f->exec.scratch_bytes = f->at.scratch_bytes;
    f->exec.multiprocessors = f->at.multiprocessors;
}

void ds_forward_to_device(struct ds_forward *f, int32_t device)
{
    if (!f->desks || device == f->device)
        return;
    f->desks[f->device] = f->at;
    f->at = f->desks[device];
    memset(&f->desks[device], 0, sizeof f->desks[device]);
    f->device = device;
    ds_forward_use(f);
}

static int open_desk(struct ds_forward *f, int kind, int number, struct ds_error *err)
{
    struct ds_device_info info;
    if (ds_device_open(kind, number, &f->at.dev, err) != 0 ||
        ds_device_check(f->at.dev, f->at.dev->info(f->at.dev, &info), err) != 0)
        return -1;
    f->at.multiprocessors = info.multiprocessors;
    f->at.stored = ds_desk_stored(f);
    ds_forward_use(f);
    return 0;
}

int ds_forward_devices_new(struct ds_forward *f,
                           int (*set_up)(struct ds_forward *f, struct ds_error *err),
                           struct ds_error *err)
{
    const struct ds_placement *p = &f->config.placement;
    const int kind = f->config.kernels.device, number = f->config.device_number;
    uint32_t made = 0;
    if (p->n == 0)
        return open_desk(f, kind, number, err) != 0 ? -1 : set_up(f, err);
    f->desks = ds_calloc(DS_MOST_DEVICES, sizeof *f->desks, "devices", err);
    if (!f->desks)
        return -1;
    for (int32_t i = 0; i < p->n; i++) {
        const int32_t device = p->part[i].device;
        if (made >> device & 1)
            continue;
        made |= 1u << device;
        ds_forward_to_device(f, device);
        if (open_desk(f, ds_placement_kind(device, kind), ds_placement_number(device, kind, number),
                      err) != 0 ||
            set_up(f, err) != 0)
            return -1;
    }
    return 0;
}

void ds_forward_devices_free(struct ds_forward *f)
{
    ds_desk_free(&f->at);
    ds_desk_free(&f->drawer);
    for (int d = 0; f->desks && d < DS_MOST_DEVICES; d++)
        ds_desk_free(&f->desks[d]);
    free(f->desks);
}

/* Between memories that no kernel reads both of: down to the host, and up again. */
static int through_host(struct ds_pass *p, const struct ds_transfer_args *a)
{
    struct ds_forward *f = p->f;
    const int32_t from = f->device;
    const size_t n = (size_t)(a->rows * a->width);
    struct ds_launch *l = &f->launch[DS_ST_TRANSFER_DST];
    if (!f->crossing &&
        !(f->crossing = ds_alloc((size_t)f->config.max_rows * (size_t)f->d * sizeof *f->crossing,
                                 "rows between devices", p->err)))
        return -1;
    /* Rows of 16 bits are exact in f32, whichever of the two devices has them so. */
    int rc = ds_desk_bring(f, f->crossing, a->x, n, p->err);
    ds_forward_to_device(f, a->dst);
    const char *to = f->at.dev->name;
    rc = rc != 0 ? rc : ds_desk_put(f, a->y, f->crossing, n, p->err);
    ds_forward_to_device(f, from);
    if (rc != 0)
        return ds_pass_blame(p, DS_ST_TRANSFER_DST);
    memset(l, 0, sizeof *l);
    snprintf(l->op, sizeof l->op, "%s", ds_stage_op_name(DS_ST_TRANSFER_DST));
    snprintf(l->variant, sizeof l->variant, "copy");
    snprintf(l->algo, sizeof l->algo, "%.12s to %.12s", f->at.dev->name, to);
    l->rows = f->rows;
    f->launch_known[DS_ST_TRANSFER_DST] = 1;
    return 0;
}

int ds_pass_enter_layer(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    if (!f->desks || !ds_placement_boundary(&f->config.placement, p->layer))
        return 0;
    const int32_t to = ds_placement_device(&f->config.placement, p->layer);
    const size_t n = (size_t)(f->rows * f->d);
    struct ds_transfer_args a = {.rows = f->rows,
                                 .width = f->d,
                                 .x = f->at.resid[0],
                                 .ldx = f->d,
                                 .y = f->desks[to].resid[0],
                                 .ldy = f->d,
                                 .src = f->device,
                                 .dst = to,
                                 .stored = f->at.stored};
    const int copied = ds_placement_through_host(f->device, to, f->config.kernels.device);
    if (ds_pass_emit(p, DS_ST_TRANSFER_SRC, 0, f->at.resid[0]) != 0 || ds_log_flush(p) != 0 ||
        (copied ? through_host(p, &a) : ds_pass_launch(p, DS_ST_TRANSFER_DST, &a, a.y, n)) != 0)
        return -1;
    ds_forward_to_device(f, to);
    return ds_desk_plan(f, p->err) != 0 ? -1
                                        : ds_pass_emit(p, DS_ST_TRANSFER_DST, 0, f->at.resid[0]);
}
