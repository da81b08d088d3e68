/* forward_launch.c: launching one kernel of a call: scratch, poison, seed, the launch choice, the
 * floating-point control word, and whom to blame. Must not know the order of the stages, nor what
 * the arguments mean. */
#include "engine/forward_private.h"

#include "base/mem.h"
#include "kernels/call.h"
#include "kernels/plugin.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "layer 3 q_proj: matmul/openblas" */
static void name_launch(int stage, int32_t layer, int32_t n_layers,
                        const struct ds_kernel_set *kernels, char *out, size_t size)
{
    const struct ds_stage_info *s = ds_stage(stage);
    char kernel[160], where[32] = "";
    ds_kernel_full_name(ds_kernel_set_in(kernels, s->op, layer), kernel, sizeof kernel);
    if (layer >= 0 && layer < n_layers)
        snprintf(where, sizeof where, "layer %d ", (int)layer);
    snprintf(out, size, "%s%s%s%s: %s", where, s->name, *s->part ? "/" : "", s->part, kernel);
}

/* Rows of the call that a stage's kernel sees. */
static int32_t launch_rows(const struct ds_forward *f, int stage)
{
    if (f->launch_rows)
        return f->launch_rows;
    return stage == DS_ST_LOGITS || stage == DS_ST_LOGITS_PROCESSED || stage == DS_ST_TOKEN
               ? f->n_logits
               : f->rows;
}

static void keep_place(const struct ds_pass *p, int stage)
{
    struct ds_place *at = p->f->config.place;
    if (!at)
        return;
    at->stage = stage;
    at->layer = p->layer;
    at->rows = launch_rows(p->f, stage);
    at->doing = DS_DOING_LAUNCH;
}

int ds_pass_blame(const struct ds_pass *p, int stage)
{
    char text[256];
    keep_place(p, stage);
    name_launch(stage, p->layer, p->f->m->hp.n_layers, &p->f->config.kernels, text, sizeof text);
    return ds_prefix(p->err, "%s", text);
}

void ds_place_text(const struct ds_place *p, const struct ds_kernel_set *kernels, int32_t n_layers,
                   char *out, size_t size)
{
    struct ds_place at = *p;
    char text[256];
    out[0] = '\0';
    if (at.doing == DS_DOING_PREPARE && at.op >= 0 && at.op < DS_OP_COUNT && kernels->op[at.op]) {
        ds_kernel_full_name(kernels->op[at.op], text, sizeof text);
        snprintf(out, size, " while %s was being prepared", text);
    } else if (at.doing == DS_DOING_LAUNCH && at.stage >= 0 && at.stage < DS_ST_COUNT &&
               ds_stage(at.stage)->op >= 0) {
        name_launch(at.stage, at.layer, n_layers, kernels, text, sizeof text);
        snprintf(out, size, " in %s, %d row%s", text, (int)at.rows, at.rows == 1 ? "" : "s");
    }
}

int ds_forward_scratch(struct ds_forward *f, const struct ds_kernel *k, const void *args,
                       struct ds_error *err)
{
    if (f->config.place)
        f->config.place->op = k->op;
    size_t need = ds_call_scratch(k, args, f->exec.threads);
    if (need <= f->exec.scratch_bytes)
        return 0;
    if (f->capturing) {
        f->lacks.scratch = need;
        return ds_fail(err, "scratch of %zu bytes is needed in a graph", need);
    }
    return ds_forward_grow_scratch(f, need, err);
}

int ds_forward_grow_scratch(struct ds_forward *f, size_t need, struct ds_error *err)
{
    void *grown;
    ds_desk_forget(f, f->at.scratch);
    f->exec.scratch = f->at.scratch = NULL;
    f->exec.scratch_bytes = f->at.scratch_bytes = 0;
    if (ds_desk_new(f, need, 1, "kernel scratch", &grown, err) != 0)
        return -1;
    f->exec.scratch = f->at.scratch = grown;
    f->exec.scratch_bytes = f->at.scratch_bytes = need;
    return 0;
}

void ds_forward_enter(struct ds_forward *f, int32_t layer)
{
    for (int op = 0; op < DS_OP_COUNT; op++) {
        const struct ds_kernel *k = ds_kernel_set_in(&f->config.kernels, op, layer);
        if (k == f->kernel[op])
            continue;
        f->kernel[op] = k;
        for (int stage = 0; stage < DS_ST_COUNT; stage++)
            if (ds_stage(stage)->op == op)
                f->launch_known[stage] = 0;
    }
}

void ds_pass_describe(struct ds_forward *f, int stage, const void *args)
{
    const struct ds_stage_info *s = ds_stage(stage);
    struct ds_launch *l = &f->launch[stage];
    f->launch_known[stage] = 1;
    memset(l, 0, sizeof *l);
    snprintf(l->op, sizeof l->op, "%s", ds_stage_op_name(stage));
    l->rows = launch_rows(f, stage);
    if (s->op < 0) {
        snprintf(l->variant, sizeof l->variant, "%s",
                 stage == DS_ST_ATTN_SCORES || stage == DS_ST_ATTN_PROBS ? "recomputed" : "engine");
        return;
    }
    const struct ds_kernel *k = f->kernel[s->op];
    struct ds_launch_info info;
    memset(&info, 0, sizeof info);
    snprintf(l->variant, sizeof l->variant, "%s", k->name);
    if (k->describe && f->config.place) {
        f->config.place->stage = stage;
        f->config.place->doing = DS_DOING_LAUNCH;
    }
    int rc = ds_call_describe(k, args, &f->exec, &info);
    if (f->config.place)
        f->config.place->doing = DS_DOING_NOTHING;
    if (f->drawing)
        snprintf(l->algo, sizeof l->algo, "on the host");
    if (rc != 0 || f->drawing)
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

/* A device's fault may show long after its launch: it is told what is launched for which stage. */
static void tell_device(const struct ds_pass *p, int stage)
{
    struct ds_forward *f = p->f;
    char text[256], all[320];
    if (ds_forward_host(f))
        return;
    name_launch(stage, p->layer, f->m->hp.n_layers, &f->config.kernels, text, sizeof text);
    snprintf(all, sizeof all, "%s, %d rows", text, (int)launch_rows(f, stage));
    f->at.dev->at(f->at.dev, all);
}

/* Whether a launch failed because of what an earlier one did on the device, which then says what it knows. */
static int earlier_fault(struct ds_pass *p)
{
    struct ds_device *dev = p->f->at.dev;
    if (ds_forward_host(p->f) || p->f->capturing || dev->wait(dev) == 0)
        return 0;
    (void)ds_device_check(dev, -1, p->err);
    return 1;
}

/* Logits and the weights of experts are f32 whatever activations are. */
static int poison_output(struct ds_forward *f, int stage, float *y, size_t n, struct ds_error *err)
{
    return ds_stage(stage)->store == DS_STORE_ACTIVATION ? ds_forward_poison_rows(f, y, n, err)
                                                         : ds_forward_poison(f, y, n, err);
}

int ds_pass_launch(struct ds_pass *p, int stage, const void *args, float *y, size_t n)
{
    struct ds_forward *f = p->f;
    const struct ds_kernel *k = f->kernel[ds_stage(stage)->op];
    keep_place(p, stage);
    if (ds_forward_scratch(f, k, args, p->err) != 0)
        return ds_pass_blame(p, stage);
    if (f->config.poison &&
        ((y && poison_output(f, stage, y, n, p->err) != 0) ||
         ds_forward_poison(f, f->exec.scratch, f->exec.scratch_bytes / sizeof(float), p->err) != 0))
        return ds_pass_blame(p, stage);
    tell_device(p, stage);
    /* Nothing is added on the way to the choice: that launch moves nobody's order of arrival. */
    f->exec.seed = stage == DS_ST_LOGITS_PROCESSED ? f->seed : next_seed(f);
    f->exec.shown = p->probe != NULL;
    struct ds_inputs read = {.dev = ds_forward_host(f) ? NULL : f->at.dev};
    const int watched = ds_inputs_wanted(p, k);
    if (watched)
        ds_inputs_look(&read, k->op, args);
    struct ds_guard guard = {.at = NULL};
    if (y && p->probe && ds_forward_host(f))
        ds_guard_set(&guard, y, n);
    char why[512] = "";
    const int failed = ds_call_launch_alone(k, args, &f->exec, why, sizeof why) != 0;
    size_t first;
    const size_t beyond = ds_guard_lift(&guard, &first);
    if (failed) {
        ds_fp_restore(p->fp_control);
        ds_pass_restore_team(p);
        ds_fail(p->err, "%s", *why ? why : "the kernel gave no reason");
        if (!earlier_fault(p))
            return ds_pass_blame(p, stage);
        keep_place(p, stage);
        return -1;
    }
    /* Poisoning asks after every launch, so that a fault is its kernel's. */
    if (f->config.poison && ds_device_check(f->at.dev, f->at.dev->wait(f->at.dev), p->err) != 0)
        return ds_pass_blame(p, stage);
    if (f->config.place)
        f->config.place->doing = DS_DOING_NOTHING;
    int changed = ds_fp_restore(p->fp_control);
    if (f->config.poison)
        changed += ds_pass_restore_team(p);
    if (changed) {
        ds_fail(p->err, "the kernel changed the floating-point control word of %d thread(s)",
                changed);
        return ds_pass_blame(p, stage);
    }
    if (beyond) {
        ds_fail(p->err,
                "the kernel wrote past the end of its output: %zu of the %d bytes behind it are "
                "changed, from byte %zu on",
                beyond, DS_GUARD_BYTES, first);
        return ds_pass_blame(p, stage);
    }
    const char *written = watched ? ds_inputs_changed(&read, k->op, args) : NULL;
    if (written) {
        ds_fail(p->err, "the kernel wrote into its input %s", written);
        return ds_pass_blame(p, stage);
    }
    /* Afterwards: a kernel that tunes itself makes its choice when it is first launched. */
    if (p->probe && !f->launch_known[stage])
        ds_pass_describe(f, stage, args);
    return 0;
}
