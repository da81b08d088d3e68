/* forward_kept.c: what an earlier pass left in the cache for a request, shown in a call of its own: a
 * prefix cache hit. Nothing is computed but op process, where the results of those rows are delivered,
 * too. Must not know why rows were kept. */
#include "engine/forward_private.h"

#include <stdio.h>
#include <string.h>

/* The rows, as recorded rows of a call: row i at cache row f->cache_row[i]. */
static void list_rows(struct ds_forward *f, int32_t request, int32_t n)
{
    const int32_t pads = f->state[request].pads;
    f->rows = f->n_seqs = 0;
    f->n_rec = (uint32_t)n;
    f->n_logits = n;
    for (int32_t i = 0; i < n; i++) {
        f->rec[i] = (struct ds_row){.request = request,
                                    .position = f->config.position_offset + i,
                                    .slot = i,
                                    .kv_len = i + 1,
                                    .kind = DS_ROW_PROMPT};
        f->cache_row[i] = (int32_t)ds_kv_cache_row(&f->cache, request, pads + i);
        f->logit_rec[i] = (uint32_t)i;
    }
}

/* A capture without a launch in this call names who made the rows. */
static void name_writer(struct ds_forward *f, int stage)
{
    struct ds_launch *l = &f->launch[stage];
    memset(l, 0, sizeof *l);
    snprintf(l->op, sizeof l->op, "%s", ds_stage_op_name(stage));
    snprintf(l->variant, sizeof l->variant, "%s", f->kernel[ds_stage(stage)->op]->name);
    f->launch_known[stage] = 1;
}

/* A result buffer is seldom new memory: a kernel that leaves rows of it as they are hands out what
 * stood there before, which is another thing in every trial. */
static void fill_with_old(const struct ds_forward *f)
{
    uint64_t z = f->seed | 1;
    for (int64_t i = 0; i < f->n_logits * f->vocab; i++) {
        z ^= z << 13;
        z ^= z >> 7;
        z ^= z << 17;
        f->processed[i] = (float)(int32_t)(z >> 40) * 0x1p-20f;
    }
}

static int deliver(struct ds_pass *p, int32_t request, float *results)
{
    struct ds_forward *f = p->f;
    for (int32_t i = 0; i < f->n_logits; i++) {
        f->choice.requests[i] = request;
        f->choice.positions[i] = f->rec[i].position;
        f->choice.steps[i] = 0;
        f->choice.cached[i] = 1;
        f->choice.streams[i] = request;
        f->choice.n_tokens[i] = i + 1;
        f->choice.tokens[i] = f->history + (int64_t)request * f->config.capacity;
    }
    if (ds_kernel_set_changes(&f->config.kernels, DS_OP_PROCESS))
        fill_with_old(f);
    if (ds_forward_host(f))
        return ds_pass_process(p, results);
    if (f->drawer.dev) {
        if (ds_pass_begin_draw(p) != 0)
            return -1;
        const int drawn = ds_pass_process(p, results);
        ds_pass_end_draw(p);
        return drawn;
    }
    const size_t bytes = (size_t)(f->n_logits * f->vocab) * sizeof *results;
    float *there;
    if (ds_desk_copy_of(f, results, bytes, "logits of kept rows", &there, p->err) != 0)
        return -1;
    const int rc = ds_desk_to(f, f->at.processed, f->processed, bytes, p->err) != 0 ||
                           ds_pass_process(p, there) != 0 || ds_log_flush(p) != 0
                       ? -1
                       : 0;
    ds_desk_forget(f, there);
    return rc;
}

/* To the layer, and to its device. */
static int enter(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    const int32_t device = ds_placement_device(&f->config.placement, p->layer);
    ds_forward_enter(f, p->layer);
    if (f->desks && device != f->device) {
        if (ds_log_flush(p) != 0)
            return -1;
        ds_forward_to_device(f, device);
    }
    return ds_desk_plan(f, p->err);
}

static int show_kept(struct ds_forward *f, int32_t request, int phase, float *results,
                     struct ds_probe *probe, struct ds_error *err)
{
    const int32_t n = f->state[request].used - f->state[request].pads;
    struct ds_pass p = {.f = f, .probe = probe, .err = err, .fp_control = ds_fp_control()};
    if (n > f->config.most_kept)
        return ds_fail(err, "request %d: %d kept rows, %d were planned", (int)request, (int)n,
                       (int)f->config.most_kept);
    memset(f->launch_known, 0, sizeof f->launch_known);
    list_rows(f, request, n);
    if (ds_probe_begin_call(probe, (uint32_t)phase, 0, 1, f->rec, f->n_rec, err) != 0)
        return -1;
    f->plans++;
    for (p.layer = 0; p.layer < f->m->hp.n_layers; p.layer++) {
        if (enter(&p) != 0)
            return -1;
        name_writer(f, DS_ST_KV_WRITE_K);
        name_writer(f, DS_ST_KV_WRITE_V);
        name_writer(f, DS_ST_KV_KEPT_K);
        name_writer(f, DS_ST_KV_KEPT_V);
        if (ds_pass_show_cache(&p, DS_ST_KV_WRITE_K, f->layer_k[p.layer]) != 0 ||
            ds_pass_show_kept(&p, DS_ST_KV_KEPT_K, n) != 0 ||
            ds_pass_show_cache(&p, DS_ST_KV_WRITE_V, f->layer_v[p.layer]) != 0 ||
            ds_pass_show_kept(&p, DS_ST_KV_KEPT_V, n) != 0)
            return -1;
    }
    if (ds_log_flush(&p) != 0)
        return -1;
    if (!results)
        return 0;
    p.layer = f->m->hp.n_layers;
    ds_forward_enter(f, p.layer);
    name_writer(f, DS_ST_LOGITS);
    if (ds_pass_show_host(&p, DS_ST_LOGITS, results, sizeof *results) != 0)
        return -1;
    return f->processed ? deliver(&p, request, results) : 0;
}

int ds_forward_show_kept(struct ds_forward *f, int32_t request, int phase, float *results,
                         struct ds_probe *probe, struct ds_error *err)
{
    const int rc = show_kept(f, request, phase, results, probe, err);
    ds_log_drop(f);
    return rc;
}
