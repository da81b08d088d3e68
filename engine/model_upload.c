/* model_upload.c: weights on devices with memory of their own: each goes there when a pass first asks for it, and
 * stays for the passes that follow, until the model is closed. Owns these copies and the devices that hold
 * them; must not know which layers a pass has where. */
#include "engine/model_priv.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "engine/round.h"
#include "kernels/device_open.h"
#include "probes/driftscope_probe.h"

#include <stdlib.h>
#include <string.h>

struct ds_uploaded {
    int kind, number;
    struct ds_device *dev;
    void **
        weights; /* [n_weights] as f32, and behind them [n_weights] of 16 bits; NULL: not there yet */
    uint64_t *digest; /* on the device */
    struct ds_uploaded *next;
};

static struct ds_uploaded *find(const struct ds_model *m, int kind, int number)
{
    struct ds_uploaded *u = m->uploaded;
    while (u && (u->kind != kind || u->number != number))
        u = u->next;
    return u;
}

static struct ds_uploaded *add(struct ds_model *m, int kind, int number, struct ds_error *err)
{
    struct ds_uploaded *u = ds_calloc(1, sizeof *u, "weights", err);
    void *digest = NULL;
    if (!u)
        return NULL;
    u->kind = kind;
    u->number = number;
    u->next = m->uploaded;
    m->uploaded = u; /* from here on the model's, as far as it was filled in */
    if (!(u->weights = ds_calloc(2 * m->n_weights, sizeof *u->weights, "weights", err)) ||
        ds_device_open(kind, number, &u->dev, err) != 0 ||
        ds_device_check(u->dev, u->dev->alloc(u->dev, sizeof *u->digest, "a digest", &digest),
                        err) != 0) {
        m->uploaded = u->next;
        ds_device_close(u->dev);
        free(u->weights);
        free(u);
        return NULL;
    }
    u->digest = digest;
    return u;
}

/* The digest of what stands on the device, which must be that of what was sent. */
static int check(const struct ds_uploaded *u, const struct ds_weight *w, const void *there,
                 size_t all, uint64_t sent, struct ds_error *err)
{
    struct ds_device *d = u->dev;
    const int64_t bytes = (int64_t)all;
    uint64_t digest = 0;
    const struct ds_device_digest g = {.n = 1,
                                       .row_bytes = bytes,
                                       .stride = bytes,
                                       .x = there,
                                       .element = DS_ELEMENT_I32,
                                       .digests = u->digest};
    if (ds_device_check(d, d->digest(d, &g), err) != 0 ||
        ds_device_check(d, d->copy_from(d, &digest, u->digest, sizeof digest), err) != 0)
        return -1;
    if (digest == sent)
        return 0;
    return ds_fail(err, "%s on %s has digest %016llx, not %016llx as it was sent", w->name, d->name,
                   (unsigned long long)digest, (unsigned long long)sent);
}

enum { GGUF_F16 = 1, GGUF_BF16 = 30 };

int32_t ds_model_half_type(const struct ds_weight *w)
{
    return strcmp(w->file_dtype, "f16") == 0    ? GGUF_F16
           : strcmp(w->file_dtype, "bf16") == 0 ? GGUF_BF16
                                                : 0;
}

static int send(struct ds_uploaded *u, const struct ds_weight *w, const void *from, size_t bytes,
                uint64_t digest, void **out, struct ds_error *err)
{
    struct ds_device *d = u->dev;
    void *there = NULL;
    if (ds_device_check(d, d->alloc(d, bytes, w->name, &there), err) != 0)
        return -1;
    if (ds_device_check(d, d->copy_to(d, there, from, bytes), err) != 0 ||
        check(u, w, there, bytes, digest, err) != 0) {
        d->release(d, there);
        return -1;
    }
    *out = there;
    return 0;
}

/* Whether 16 bits hold all of a weight; every NaN is one. */
static int is_exact(const struct ds_weight *w, int dtype, const uint16_t *half)
{
    const size_t n = (size_t)(w->rows * w->cols);
    float wide[256];
    for (size_t i = 0; i < n; i += 256) {
        const size_t some = n - i < 256 ? n - i : 256;
        ds_widen_many(dtype, wide, half + i, some);
        for (size_t k = 0; k < some; k++)
            if (ds_f32_bits(wide[k]) != ds_f32_bits(w->data[i + k]) &&
                (wide[k] == wide[k] || w->data[i + k] == w->data[i + k]))
                return 0;
    }
    return 1;
}

/* As the file has it: rounding what was widened is exact. */
static int send_half(struct ds_uploaded *u, const struct ds_weight *w, int32_t type, void **out,
                     struct ds_error *err)
{
    const size_t n = (size_t)(w->rows * w->cols);
    uint16_t *half = ds_alloc(n * sizeof *half, "a weight of 16 bits", err);
    if (!half)
        return -1;
    const int dtype = type == GGUF_BF16 ? DS_BF16 : DS_F16;
    ds_round_many(dtype, half, w->data, n);
    const int rc =
        !is_exact(w, dtype, half)
            ? ds_fail(err, "%s: its values are not those that %s can have", w->name, w->file_dtype)
            : send(u, w, half, n * sizeof *half, ds_digest(half, n * sizeof *half), out, err);
    free(half);
    return rc;
}

const void *ds_model_upload(struct ds_model *m, int kind, int number, const struct ds_weight *w,
                            int32_t type, struct ds_error *err)
{
    struct ds_uploaded *u = find(m, kind, number);
    const size_t i = (size_t)(w - m->weights) + (type ? m->n_weights : 0),
                 bytes = (size_t)(w->rows * w->cols) * sizeof *w->data;
    if (!u && !(u = add(m, kind, number, err)))
        return NULL;
    if (!u->weights[i] && (type ? send_half(u, w, type, &u->weights[i], err)
                                : send(u, w, w->data, bytes, w->digest, &u->weights[i], err)) != 0)
        return NULL;
    return u->weights[i];
}

void ds_model_drop_uploaded(struct ds_model *m)
{
    while (m->uploaded) {
        struct ds_uploaded *u = m->uploaded;
        m->uploaded = u->next;
        for (size_t i = 0; i < 2 * m->n_weights; i++)
            if (u->weights[i])
                u->dev->release(u->dev, u->weights[i]);
        u->dev->release(u->dev, u->digest);
        ds_device_close(u->dev);
        free(u->weights);
        free(u);
    }
}
