/* forward_devices.c: the simulated devices of a pass: each has activation buffers of its own, the
 * pass works in those of one device at a time, and where the next layer lies on another one the
 * residual stream is copied by the transfer kernel and shown on both sides. Owns which buffers
 * belong to a device; must not know what the stages between two borders do. */
#include "engine/forward_private.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Buffer i of the device that the pass works in. */
static float **buffer_at(struct ds_forward *f, int i)
{
    float **list[DS_BUFFERS] = {&f->resid[0], &f->resid[1], &f->norm,   &f->q,        &f->k,
                                &f->v,        &f->q_rope,   &f->k_rope, &f->attn_out, &f->proj,
                                &f->gate,     &f->up,       &f->act,    &f->q_norm,   &f->k_norm};
    return list[i];
}

static void put_away(struct ds_forward *f)
{
    struct ds_device *d = &f->devices[f->device];
    for (int i = 0; i < DS_BUFFERS; i++) {
        d->buffer[i] = *buffer_at(f, i);
        *buffer_at(f, i) = NULL;
    }
    memcpy(d->twin, f->twin, sizeof d->twin);
    d->n_twins = f->n_twins;
    f->n_twins = 0;
}

void ds_forward_to_device(struct ds_forward *f, int32_t device)
{
    if (!f->devices || device == f->device)
        return;
    put_away(f);
    const struct ds_device *d = &f->devices[device];
    for (int i = 0; i < DS_BUFFERS; i++)
        *buffer_at(f, i) = d->buffer[i];
    memcpy(f->twin, d->twin, sizeof f->twin);
    f->n_twins = d->n_twins;
    f->device = device;
}

int ds_forward_devices_new(struct ds_forward *f,
                           int (*allocate)(struct ds_forward *f, struct ds_error *err),
                           struct ds_error *err)
{
    const struct ds_placement *p = &f->config.placement;
    uint32_t made = 0;
    if (p->n == 0)
        return allocate(f, err);
    f->devices = ds_calloc(DS_MOST_DEVICES, sizeof *f->devices, "devices", err);
    if (!f->devices)
        return -1;
    for (int32_t i = 0; i < p->n; i++) {
        const int32_t device = p->part[i].device;
        if (made >> device & 1)
            continue;
        made |= 1u << device;
        ds_forward_to_device(f, device);
        if (allocate(f, err) != 0)
            return -1;
    }
    return 0;
}

void ds_forward_devices_free(struct ds_forward *f)
{
    if (!f->devices) {
        for (int i = 0; i < DS_BUFFERS; i++)
            free(*buffer_at(f, i));
        for (int i = 0; i < f->n_twins; i++)
            free(f->twin[i].unrounded);
        return;
    }
    put_away(f);
    for (int d = 0; d < DS_MOST_DEVICES; d++) {
        for (int i = 0; i < DS_BUFFERS; i++)
            free(f->devices[d].buffer[i]);
        for (int i = 0; i < f->devices[d].n_twins; i++)
            free(f->devices[d].twin[i].unrounded);
    }
    free(f->devices);
}

int ds_pass_enter_layer(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    if (!f->devices || !ds_placement_boundary(&f->config.placement, p->layer))
        return 0;
    const int32_t to = ds_placement_device(&f->config.placement, p->layer);
    const size_t n = (size_t)(f->rows * f->d);
    struct ds_transfer_args a = {.rows = f->rows,
                                 .width = f->d,
                                 .x = f->resid[0],
                                 .ldx = f->d,
                                 .y = f->devices[to].buffer[0],
                                 .ldy = f->d,
                                 .src = f->device,
                                 .dst = to};
    if (ds_pass_emit(p, DS_ST_TRANSFER_SRC, 0, f->resid[0]) != 0 ||
        ds_pass_launch(p, DS_ST_TRANSFER_DST, &a, a.y, n) != 0)
        return -1;
    ds_forward_to_device(f, to);
    return ds_pass_emit(p, DS_ST_TRANSFER_DST, 0, f->resid[0]);
}
