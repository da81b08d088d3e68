/* forward_launch.c: launching one kernel of a call: scratch, poison, seed, the launch choice, the
 * floating-point control word, and whom to blame. Must not know the order of the stages, nor what
 * the arguments mean. */
#include "engine/forward_private.h"

#include "base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_forward_poison(float *y, size_t n)
{
    uint32_t bits = DS_POISON_BITS;
    for (size_t i = 0; i < n; i++)
        memcpy(&y[i], &bits, sizeof bits);
}

int ds_pass_blame(const struct ds_pass *p, int stage)
{
    const struct ds_stage_info *s = ds_stage(stage);
    const char *part = s->part, *slash = *part ? "/" : "";
    const char *variant = p->f->config.kernels.op[s->op]->name;
    if (p->layer < 0 || p->layer >= p->f->m->hp.n_layers)
        return ds_prefix(p->err, "%s%s%s: %s/%s", s->name, slash, part, ds_op_name(s->op), variant);
    return ds_prefix(p->err, "layer %d %s%s%s: %s/%s", (int)p->layer, s->name, slash, part,
                     ds_op_name(s->op), variant);
}

int ds_forward_scratch(struct ds_forward *f, const struct ds_kernel *k, const void *args,
                       struct ds_error *err)
{
    size_t need = k->scratch_bytes ? k->scratch_bytes(args, f->exec.threads) : 0;
    if (need <= f->exec.scratch_bytes)
        return 0;
    void *grown = ds_alloc_aligned(need, 1, "kernel scratch", err);
    if (!grown)
        return -1;
    free(f->exec.scratch);
    f->exec.scratch = grown;
    f->exec.scratch_bytes = need;
    return 0;
}

void ds_pass_describe(struct ds_forward *f, int stage, const void *args)
{
    const struct ds_stage_info *s = ds_stage(stage);
    struct ds_launch *l = &f->launch[stage];
    f->launch_known[stage] = 1;
    memset(l, 0, sizeof *l);
    snprintf(l->op, sizeof l->op, "%s", ds_stage_op_name(stage));
    l->rows = stage == DS_ST_LOGITS || stage == DS_ST_TOKEN ? f->n_logits : f->rows;
    if (s->op < 0) {
        snprintf(l->variant, sizeof l->variant, "engine");
        return;
    }
    const struct ds_kernel *k = f->config.kernels.op[s->op];
    struct ds_launch_info info;
    memset(&info, 0, sizeof info);
    snprintf(l->variant, sizeof l->variant, "%s", k->name);
    if (!k->describe || k->describe(args, &f->exec, &info) != 0)
        return;
    l->tile_rows = info.tile_rows;
    l->tile_cols = info.tile_cols;
    l->tile_k = info.tile_k;
    l->split = info.split;
    l->threads = info.threads;
    snprintf(l->algo, sizeof l->algo, "%.*s", (int)sizeof info.algo - 1, info.algo);
}

/* Differs from launch to launch; splitmix64 of a counter, so that it is the same in a repetition of
 * the whole run. */
static uint64_t next_seed(struct ds_forward *f)
{
    uint64_t z = f->seed + ++f->launches * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct members_fp {
    uint32_t want;
    atomic_int changed;
};

static void restore_member(void *arg, int thread, int threads)
{
    struct members_fp *m = arg;
    (void)thread;
    (void)threads;
    if (ds_fp_restore(m->want))
        atomic_fetch_add(&m->changed, 1);
}

int ds_pass_restore_team(const struct ds_pass *p)
{
    struct members_fp m = {.want = p->fp_control};
    ds_team_run(p->f->team, restore_member, &m);
    return atomic_load(&m.changed);
}

int ds_pass_launch(struct ds_pass *p, int stage, const void *args, float *y, size_t n)
{
    struct ds_forward *f = p->f;
    const struct ds_kernel *k = f->config.kernels.op[ds_stage(stage)->op];
    if (ds_forward_scratch(f, k, args, p->err) != 0)
        return ds_pass_blame(p, stage);
    if (f->config.poison) {
        if (y)
            ds_forward_poison(y, n);
        ds_forward_poison(f->exec.scratch, f->exec.scratch_bytes / sizeof(float));
    }
    f->exec.seed = next_seed(f);
    if (p->probe && !f->launch_known[stage])
        ds_pass_describe(f, stage, args);
    char why[256] = "";
    if (k->launch(args, &f->exec, why, sizeof why) != 0) {
        ds_fp_restore(p->fp_control);
        ds_pass_restore_team(p);
        ds_fail(p->err, "%s", *why ? why : "the kernel gave no reason");
        return ds_pass_blame(p, stage);
    }
    int changed = ds_fp_restore(p->fp_control);
    if (f->config.poison)
        changed += ds_pass_restore_team(p);
    if (changed) {
        ds_fail(p->err, "the kernel changed the floating-point control word of %d thread(s)",
                changed);
        return ds_pass_blame(p, stage);
    }
    return 0;
}
