/* model_fill.c: one shared mapping that holds all f32 weights, filled and hashed in parallel.
 * Weights that stay in their file are hashed on their way through a buffer.
 * Owns the arena and the digests; knows nothing of file formats, seeds or architectures. */
#include "engine/model_priv.h"

#include "base/mem.h"
#include "base/team.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Touching more memory than there is would end the process instead of failing, so ask first. */
static int map_arena(struct ds_model *m, struct ds_error *err)
{
    uint64_t available = ds_memory_available();
    if (m->arena_bytes > available) {
        ds_fail(err, "the weights need %.2f GiB as f32, but only %.2f GiB of memory are available",
                (double)m->arena_bytes / 1073741824.0, (double)available / 1073741824.0);
        return ds_hint(err, "use a smaller model");
    }
    void *p = mmap(NULL, m->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return ds_fail(err, "cannot map %zu bytes for the weights: %s", m->arena_bytes,
                       strerror(errno));
    m->arena = p;
    /* Large pages save most of the page faults; where shared memory has none this does nothing. */
    (void)madvise(p, m->arena_bytes, MADV_HUGEPAGE);
    char *at = p;
    for (size_t i = 0; i < m->n_weights; i++) {
        struct ds_weight *w = &m->weights[i];
        if (w->file_data)
            continue;
        w->data = (float *)(void *)at;
        at += ((size_t)(w->rows * w->cols) * sizeof(float) + 63) & ~(size_t)63;
    }
    return 0;
}

struct fill {
    struct ds_model *m;
    const struct model_source *src;
    atomic_size_t next;
};

/* One weight, hashed chunk by chunk, as soon as it is read and as soon as it is written. */
static void fill_weight(const struct fill *f, size_t i)
{
    struct ds_weight *w = &f->m->weights[i];
    const int64_t total = w->rows * w->cols;
    float passing[MODEL_CHUNK];
    XXH3_state_t made, read;
    XXH3_INITSTATE(&made);
    XXH3_INITSTATE(&read);
    XXH3_64bits_reset(&made);
    XXH3_64bits_reset(&read);
    size_t n_read, all_read = 0;
    for (int64_t from = 0; from < total; from += MODEL_CHUNK) {
        int64_t n = total - from < MODEL_CHUNK ? total - from : MODEL_CHUNK;
        float *dst = w->data ? w->data + from : passing;
        f->src->fill(f->src->ctx, i, from, n, dst);
        XXH3_64bits_update(&made, dst, (size_t)n * sizeof(float));
        const void *bytes = f->src->bytes ? f->src->bytes(f->src->ctx, i, from, n, &n_read) : NULL;
        if (!bytes)
            continue;
        XXH3_64bits_update(&read, bytes, n_read);
        all_read += n_read;
    }
    w->digest = XXH3_64bits_digest(&made);
    w->loaded = all_read ? XXH3_64bits_digest(&read) : 0;
    if (f->src->done)
        f->src->done(f->src->ctx, i);
}

/* Members take whole weights in turn; the largest, the embedding, comes first. */
static void fill_member(void *arg, int thread, int threads)
{
    (void)thread, (void)threads;
    struct fill *f = arg;
    for (size_t i; (i = atomic_fetch_add(&f->next, 1)) < f->m->n_weights;)
        fill_weight(f, i);
}

/* XXH3-64 over, per weight in order, its name, a zero byte and its digest in 8 little-endian bytes.
 */
static uint64_t model_digest(const struct ds_model *m)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct ds_weight *w = &m->weights[i];
        unsigned char le[8];
        for (int b = 0; b < 8; b++)
            le[b] = (unsigned char)(w->digest >> (8 * b));
        XXH3_64bits_update(&state, w->name, strlen(w->name) + 1);
        XXH3_64bits_update(&state, le, sizeof le);
    }
    return XXH3_64bits_digest(&state);
}

void ds_model_seal(struct ds_model *m)
{
    if (m->arena)
        (void)mprotect(m->arena, m->arena_bytes, PROT_READ);
}

int ds_model_fill(struct ds_model *m, const struct model_source *src, int threads,
                  struct ds_error *err)
{
    if (map_arena(m, err))
        return -1;
    struct ds_team *team = ds_team_new(threads, err);
    if (!team)
        return -1;
    struct fill f = {.m = m, .src = src};
    ds_team_run(team, fill_member, &f);
    ds_team_free(team);
    m->digest = model_digest(m);
    for (size_t i = 0; i < m->n_weights; i++)
        if (strcmp(m->weights[i].name, "rope_freqs.weight") == 0)
            m->rope_freqs = m->weights[i].data;
    return 0;
}
