/* forward_show.c: what becomes of a kernel's output: it is rounded to the activation dtype and shown to the probe, in
 * this order and in one place. What a kernel with DS_FEATURE_UNROUNDED reads is kept as it was before. Must not know which
 * kernel comes next, nor what a probe does with what it is shown. */
#include "engine/forward_private.h"

#include "base/dtype.h"
#include "engine/mutate.h"
#include "engine/round.h"

static float *unrounded_twin(const struct ds_forward *f, const float *y)
{
    for (int i = 0; i < f->at.n_twins; i++)
        if (f->at.twin[i].rounded == y)
            return f->at.twin[i].unrounded;
    return NULL;
}

const float *ds_forward_input(const struct ds_forward *f, int stage, const float *x)
{
    const struct ds_kernel *k = f->kernel[ds_stage(stage)->op];
    const float *twin = k->features & DS_FEATURE_UNROUNDED ? unrounded_twin(f, x) : NULL;
    return twin ? twin : x;
}

struct rounding {
    int dtype;
    uint16_t *half;
    float *y;
    int64_t n;
    int widen;
};

static void round_share(void *arg, int thread, int threads)
{
    const struct rounding *r = arg;
    long begin, end;
    ds_team_share((long)r->n, 64, thread, threads, &begin, &end);
    if (begin >= end)
        return;
    if (r->widen)
        ds_widen_many(r->dtype, r->y + begin, r->half + begin, (size_t)(end - begin));
    else
        ds_round_many(r->dtype, r->half + begin, r->y + begin, (size_t)(end - begin));
}

/* What a probe wrote into the rounded rows holds for those before rounding, too: an element that does
 * not round to what stands there was changed. */
static void follow_share(void *arg, int thread, int threads)
{
    const struct rounding *r = arg;
    uint16_t would[64];
    long begin, end;
    ds_team_share((long)r->n, 64, thread, threads, &begin, &end);
    for (long i = begin; i < end; i += 64) {
        size_t n = end - i < 64 ? (size_t)(end - i) : 64;
        ds_round_many(r->dtype, would, r->y + i, n);
        for (size_t k = 0; k < n; k++)
            if (would[k] != r->half[i + (long)k])
                ds_widen_many(r->dtype, r->y + i + (long)k, r->half + i + (long)k, 1);
    }
}

int ds_pass_convert(struct ds_pass *p, float *y, int64_t n, int how)
{
    struct ds_forward *f = p->f;
    struct ds_device *dev = f->at.dev;
    struct rounding r = {.dtype = f->config.dtype,
                         .half = f->at.half,
                         .y = y,
                         .n = n,
                         .widen = how == DS_CONVERT_WIDEN};
    void (*share)(void *, int, int) = how == DS_CONVERT_FOLLOW ? follow_share : round_share;
    if (!ds_forward_host(f))
        return ds_device_check(dev, dev->convert(dev, f->exec.dtype, how, f->at.half, y, n),
                               p->err);
    if (n < 1 << 14)
        share(&r, 0, 1);
    else
        ds_team_run(f->team, share, &r);
    return 0;
}

/* Shows all recorded rows of a stage at one of its sites, if the list of sites has it. */
static int show_at(struct ds_pass *p, int stage, uint32_t site, void *data, size_t element)
{
    struct ds_forward *f = p->f;
    if (!p->probe || !f->n_rec || site == DS_NO_SITE)
        return 0;
    if (!f->launch_known[stage])
        ds_pass_describe(f, stage, NULL);
    int64_t width = ds_stage_width_of(stage, &f->m->hp);
    if (f->config.mutation && f->config.mutation->site == site)
        ds_mutate_rows(f->config.mutation, data, (size_t)f->rows, (size_t)width * element, element);
    if (ds_forward_host(f)) /* most passes: straight there */
        return ds_probe_site(p->probe, site, &f->launch[stage], data, (size_t)width * element,
                             (uint32_t)width, NULL, 0, p->err);
    const struct ds_shown rows = {.data = data,
                                  .stride = (size_t)width * element,
                                  .element = element,
                                  .index = f->at.rec_slot,
                                  .n = f->n_rec,
                                  .width = (uint32_t)width};
    return ds_log_show(p, stage, site, &rows);
}

int ds_pass_show(struct ds_pass *p, int stage, void *data, size_t element)
{
    return show_at(p, stage, ds_site_map_at(p->f->map, stage, p->layer, 0), data, element);
}

int ds_pass_show_host(struct ds_pass *p, int stage, void *data, size_t element)
{
    struct ds_forward *f = p->f;
    const uint32_t site = ds_site_map_at(f->map, stage, p->layer, 0);
    if (ds_forward_host(f))
        return show_at(p, stage, site, data, element);
    if (!p->probe || !f->n_rec || site == DS_NO_SITE)
        return 0;
    if (!f->launch_known[stage])
        ds_pass_describe(f, stage, NULL);
    const int64_t width = ds_stage_width_of(stage, &f->m->hp);
    return ds_log_flush(p) != 0
               ? -1
               : ds_probe_site(p->probe, site, &f->launch[stage], data, (size_t)width * element,
                               (uint32_t)width, NULL, 0, p->err);
}

int ds_pass_emit(struct ds_pass *p, int stage, uint32_t part, float *y)
{
    struct ds_forward *f = p->f;
    struct ds_device *dev = f->at.dev;
    const uint32_t site = ds_site_map_at(f->map, stage, p->layer, part);
    if (show_at(p, stage, ds_site_map_unrounded(f->map, stage, p->layer), y, sizeof *y) != 0)
        return -1;
    if (f->at.stored != DS_ELEMENT_F32) /* the kernel rounded, and what a probe writes stays */
        return show_at(p, stage, site, y, ds_forward_element(f));
    float *twin = unrounded_twin(f, y);
    const int64_t n = f->rows * ds_stage_width_of(stage, &f->m->hp);
    if (f->config.dtype == DS_F32 || (f->config.f32_at & DS_STAGE_BIT(stage) && !twin))
        return show_at(p, stage, site, y, sizeof *y);
    if (f->config.f32_at & DS_STAGE_BIT(stage))
        return show_at(p, stage, site, y, sizeof *y) != 0
                   ? -1
                   : ds_device_check(dev, dev->copy_within(dev, twin, y, (size_t)n * sizeof *y),
                                     p->err);
    if ((twin && ds_device_check(dev, dev->copy_within(dev, twin, y, (size_t)n * sizeof *y),
                                 p->err) != 0) ||
        ds_pass_convert(p, y, n, DS_CONVERT_ROUND) != 0 ||
        show_at(p, stage, site, f->at.half, sizeof *f->at.half) != 0 ||
        ds_pass_convert(p, y, n, DS_CONVERT_WIDEN) != 0)
        return -1;
    return twin && p->probe ? ds_pass_convert(p, twin, n, DS_CONVERT_FOLLOW) : 0;
}

int ds_pass_show_chosen(struct ds_pass *p, int stage, void *data, size_t element)
{
    struct ds_forward *f = p->f;
    uint32_t site = ds_site_map_at(f->map, stage, p->layer, 0);
    if (!p->probe || !f->n_rec || site == DS_NO_SITE)
        return 0;
    int64_t width = ds_stage_width_of(stage, &f->m->hp);
    size_t stride = (size_t)width * element;
    for (int32_t i = 0, n; i < f->n_logits; i += n) {
        int recorded = f->logit_rec[i] != UINT32_MAX;
        for (n = 1; i + n < f->n_logits && (f->logit_rec[i + n] != UINT32_MAX) == recorded; n++)
            ;
        const struct ds_shown rows = {.data = (char *)data + (size_t)i * stride,
                                      .stride = stride,
                                      .element = element,
                                      .only = f->logit_rec + i,
                                      .n = (uint32_t)n,
                                      .width = (uint32_t)width};
        if (recorded && ds_log_show(p, stage, site, &rows) != 0)
            return -1;
    }
    return 0;
}
