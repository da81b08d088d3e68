/* forward_draw.c: tokens drawn where the device has no kernel that draws: its logits are read back, and process and sample
 * are the CPU's, on a desk of the host. The launch says so. Must not know the other stages. */
#include "engine/forward_private.h"

#include "engine/sampler.h"

static void exchange(struct ds_forward *f)
{
    const struct ds_desk device = f->at;
    f->at = f->drawer;
    f->drawer = device;
    ds_forward_use(f);
}

static void replace(struct ds_kernel_set *set, int op)
{
    set->op[op] = set->op[op] ? ds_sampler_stand_in(set->op[op]) : NULL;
    for (int32_t i = 0; i < set->n_at; i++)
        if (set->at[i].kernel->op == op)
            set->at[i].kernel = ds_sampler_stand_in(set->at[i].kernel);
}

int ds_forward_draw_new(struct ds_forward *f, struct ds_error *err)
{
    if (!ds_sampler_on_host(&f->config.sampler, &f->config.kernels))
        return 0;
    replace(&f->config.kernels, DS_OP_PROCESS);
    replace(&f->config.kernels, DS_OP_SAMPLE);
    f->drawer = (struct ds_desk){.stored = DS_ELEMENT_F32,
                                 .logits = f->logits,
                                 .processed = f->processed,
                                 .tokens = f->tokens};
    return ds_device_open(DS_DEVICE_CPU, 0, &f->drawer.dev, err);
}

int ds_pass_begin_draw(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    const size_t n = (size_t)(f->n_logits * f->vocab);
    if (!f->drawer.dev || ds_forward_host(f))
        return 0;
    if (ds_log_flush(p) != 0 ||
        ds_desk_from(f, f->logits, f->at.logits, n * sizeof *f->logits, p->err) != 0)
        return -1;
    exchange(f);
    f->drawing = 1;
    return 0;
}

void ds_pass_end_draw(struct ds_pass *p)
{
    if (!p->f->drawing)
        return;
    p->f->drawing = 0;
    exchange(p->f);
}
