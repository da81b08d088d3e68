/* model_prepare.c: lets a matmul kernel repack the matmul weights, once. Owns the packed copies;
 * knows nothing of their inner layout. Packed weights lie in the memory that the kernel allocated:
 * nobody writes there afterwards, so processes forked later share the same pages, and a worker that
 * goes wild cannot spoil the parent's copy. */
#include "engine/model_priv.h"

#include "base/mem.h"
#include "base/team.h"
#include "kernels/call.h"
#include "kernels/registry.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void drop_also(struct ds_model *m)
{
    for (size_t i = 0; m->also_prepared && i < m->n_weights; i++)
        free(m->also_prepared[i]);
    free(m->also_prepared);
    free(m->also_bytes);
    m->also_prepared = NULL;
    m->also_bytes = NULL;
    m->also_by = NULL;
}

void ds_model_drop_prepared(struct ds_model *m)
{
    drop_also(m);
    for (size_t i = 0; m->prepared && i < m->n_weights; i++)
        free(m->prepared[i]);
    free(m->prepared);
    free(m->prepared_bytes);
    m->prepared = NULL;
    m->prepared_bytes = NULL;
    m->prepared_by = NULL;
}

/* What one packed serves the other, too. */
static int packs_alike(const struct ds_kernel *a, const struct ds_kernel *b)
{
    return a == b || (a && b && a->prepare && a->prepare == b->prepare);
}

struct work {
    struct ds_model *m;
    int give_back; /* f32 numbers that are packed */
    const struct ds_kernel *kernel;
    const struct ds_weight **weights; /* those that a matmul reads */
    size_t n;
    atomic_size_t next, failed; /* failed: lowest index of a weight that failed, or SIZE_MAX */
    char (*why)[128];           /* per thread: the reason of its first failure ... */
    size_t *why_for;            /* ... and the index it belongs to */
};

/* Gives back the whole pages of f32 numbers. */
static void give_back(struct ds_weight *w)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)w->data,
                    to = from + (size_t)(w->rows * w->cols) * sizeof(float),
                    first = (from + page - 1) / page * page, last = to / page * page;
    w->data = NULL;
    if (first < last)
        (void)madvise((void *)first, last - first, MADV_REMOVE);
}

/* A weight is not to lie in memory beside its packed copy: one that stays in its file never, f32 numbers where they
 * are given back, unless the embedding reads them. */
static void release(const struct work *work, const struct ds_weight *w)
{
    const struct ds_model *m = work->m;
    if (work->give_back && w->data && w != m->embed)
        give_back(&m->weights[w - m->weights]);
    const struct ds_quant_type *t = w->file_data ? ds_quant_find((uint32_t)w->file_type) : NULL;
    if (t)
        ds_gguf_release(m->gguf, w->file_data,
                        (size_t)w->rows * (size_t)(w->cols / t->block) * t->bytes);
}

static void prepare_member(void *arg, int thread, int threads)
{
    (void)threads;
    struct work *w = arg;
    w->why_for[thread] = SIZE_MAX;
    for (size_t i;
         (i = atomic_fetch_add(&w->next, 1)) < w->n && atomic_load(&w->failed) == SIZE_MAX;) {
        const struct ds_weight *weight = w->weights[i];
        size_t at = (size_t)(weight - w->m->weights);
        struct ds_weight_view view = ds_weight_view(weight);
        char *why = w->why[thread];
        why[0] = '\0';
        int rc = ds_call_prepare(w->kernel, &view, &w->m->prepared[at], &w->m->prepared_bytes[at],
                                 why, sizeof w->why[thread]);
        if (rc == 0) {
            release(w, weight);
            continue;
        }
        w->why_for[thread] = i;
        size_t lowest = atomic_load(&w->failed);
        while (i < lowest && !atomic_compare_exchange_weak(&w->failed, &lowest, i)) {
        }
        return;
    }
}

/* The weights of all matmuls, layers ascending, then the head. */
static size_t list_weights(const struct ds_model *m, const struct ds_weight **out)
{
    size_t n = 0;
    for (int32_t l = 0; l < m->hp.n_layers; l++) {
        const struct ds_layer *y = &m->layers[l];
        const struct ds_weight *all[] = {y->q,           y->k,         y->v,
                                         y->o,           y->gate,      y->up,
                                         y->down,        y->router,    y->router_shared,
                                         y->gate_shared, y->up_shared, y->down_shared};
        const struct ds_weight *experts[] = {y->gate_exps, y->up_exps, y->down_exps};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            if (all[i])
                out[n++] = all[i];
        for (size_t i = 0; i < sizeof experts / sizeof experts[0]; i++)
            for (int32_t e = 0; experts[i] && e < m->hp.n_experts; e++)
                out[n++] = experts[i] + e;
    }
    out[n++] = m->head;
    return n;
}

static int prepare_all(struct work *w, int threads, struct ds_error *err)
{
    struct ds_team *team = ds_team_new(threads, err);
    if (!team)
        return -1;
    ds_team_run(team, prepare_member, w);
    ds_team_free(team);
    size_t failed = atomic_load(&w->failed);
    if (failed == SIZE_MAX)
        return 0;
    const char *why = "";
    for (int t = 0; t < threads; t++)
        if (w->why_for[t] == failed)
            why = w->why[t];
    return ds_fail(err, "matmul/%s cannot prepare %s: %s", w->kernel->name,
                   w->weights[failed]->name, why[0] ? why : "no reason given");
}

int ds_model_check_kernel(int keep, const struct ds_kernel *matmul, struct ds_error *err)
{
    if (keep == DS_WEIGHTS_F32 || (matmul->features & DS_FEATURE_FILE_WEIGHTS))
        return 0;
    ds_fail(err, "matmul/%s reads f32 weights only, not weights as their file has them",
            matmul->name);
    return ds_hint(err, "use --weights f32, or a kernel set with matmul=pinned");
}

static int prepare_for(struct ds_model *m, const struct ds_kernel *matmul, int give_back,
                       int threads, struct ds_error *err)
{
    if (ds_model_check_kernel(m->keep, matmul, err) != 0)
        return -1;
    if (!matmul->prepare || packs_alike(m->prepared_by, matmul))
        return 0;
    if (threads < 1)
        return ds_fail(err, "%d threads asked for", threads);
    ds_model_drop_prepared(m); /* first, so that never more than two copies exist */
    struct work w = {.m = m, .kernel = matmul, .give_back = give_back, .failed = SIZE_MAX};
    m->prepared = ds_calloc(m->n_weights, sizeof *m->prepared, "packed weights", err);
    m->prepared_bytes =
        m->prepared ? ds_calloc(m->n_weights, sizeof *m->prepared_bytes, "packed weights", err)
                    : NULL;
    w.weights =
        m->prepared_bytes ? ds_calloc(m->n_weights, sizeof(void *), "packed weights", err) : NULL;
    w.why = w.weights ? ds_calloc((size_t)threads, sizeof *w.why, "packed weights", err) : NULL;
    w.why_for = w.why ? ds_calloc((size_t)threads, sizeof *w.why_for, "packed weights", err) : NULL;
    int rc = -1;
    if (w.why_for) {
        w.n = list_weights(m, w.weights);
        rc = prepare_all(&w, threads, err);
    }
    free(w.weights);
    free(w.why);
    free(w.why_for);
    if (rc)
        ds_model_drop_prepared(m);
    else
        m->prepared_by = matmul;
    return rc;
}

int ds_model_prepare(struct ds_model *m, const struct ds_kernel *matmul, int threads,
                     struct ds_error *err)
{
    return prepare_for(m, matmul, 0, threads, err);
}

int ds_model_prepare_alone(struct ds_model *m, const struct ds_kernel *matmul, int threads,
                           struct ds_error *err)
{
    if (m->keep != DS_WEIGHTS_F32 || !m->arena || !(matmul->features & DS_FEATURE_PACKED))
        return prepare_for(m, matmul, 0, threads, err);
    /* Pages of a mapping that may not be written cannot be given back. */
    (void)mprotect(m->arena, m->arena_bytes, PROT_READ | PROT_WRITE);
    const int rc = prepare_for(m, matmul, 1, threads, err);
    ds_model_seal(m);
    return rc;
}

/* Sets the prepared weights aside, to make room for another kernel's; whatever was aside is freed. */
static void set_aside(struct ds_model *m)
{
    drop_also(m);
    m->also_prepared = m->prepared;
    m->also_bytes = m->prepared_bytes;
    m->also_by = m->prepared_by;
    m->prepared = NULL;
    m->prepared_bytes = NULL;
    m->prepared_by = NULL;
}

static void swap_prepared(struct ds_model *m)
{
    void **prepared = m->also_prepared;
    size_t *bytes = m->also_bytes;
    const struct ds_kernel *by = m->also_by;
    m->also_prepared = m->prepared;
    m->also_bytes = m->prepared_bytes;
    m->also_by = m->prepared_by;
    m->prepared = prepared;
    m->prepared_bytes = bytes;
    m->prepared_by = by;
}

int ds_model_prepare_set(struct ds_model *m, const struct ds_kernel_set *set, int threads,
                         struct ds_error *err)
{
    const struct ds_kernel *packer[2], *k;
    int n = 0;
    for (int32_t i = 0; (k = ds_kernel_set_used(set, DS_OP_MATMUL, i)); i++) {
        if (ds_model_check_kernel(m->keep, k, err) != 0)
            return -1;
        if (!k->prepare || (n > 0 && packs_alike(packer[0], k)) ||
            (n > 1 && packs_alike(packer[1], k)))
            continue;
        if (n == 2)
            return ds_fail(err,
                           "matmul/%s, %s and %s each pack the weights in their own way; a "
                           "pass can have two of them",
                           packer[0]->name, packer[1]->name, k->name);
        packer[n++] = k;
    }
    if (n < 2)
        return n ? ds_model_prepare(m, packer[0], threads, err) : 0;
    for (int i = 0; i < 2; i++) {
        if (packs_alike(m->prepared_by, packer[i]) || packs_alike(m->also_by, packer[i]))
            continue;
        /* What the other one needs must not be the copy that is freed. */
        if (packs_alike(m->also_by, packer[1 - i]))
            swap_prepared(m);
        if (packs_alike(m->prepared_by, packer[1 - i]))
            set_aside(m);
        else
            ds_model_drop_prepared(m);
        void **kept = m->also_prepared;
        size_t *kept_bytes = m->also_bytes;
        const struct ds_kernel *kept_by = m->also_by;
        m->also_prepared = NULL;
        m->also_bytes = NULL;
        m->also_by = NULL;
        int rc = ds_model_prepare(m, packer[i], threads, err);
        m->also_prepared = kept;
        m->also_bytes = kept_bytes;
        m->also_by = kept_by;
        if (rc != 0)
            return -1;
    }
    return 0;
}

const void *ds_model_prepared(const struct ds_model *m, const struct ds_kernel *matmul,
                              const struct ds_weight *w)
{
    if (w < m->weights || w >= m->weights + m->n_weights)
        return NULL;
    if (m->prepared && packs_alike(m->prepared_by, matmul))
        return m->prepared[w - m->weights];
    return m->also_prepared && packs_alike(m->also_by, matmul) ? m->also_prepared[w - m->weights]
                                                               : NULL;
}
