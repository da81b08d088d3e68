/* model_upload.c: weights on devices with memory of their own: each goes there when a pass first asks for it, and
 * stays for the passes that follow, until the model is closed. Owns these copies and the devices that hold
 * them; must not know which layers a pass has where. */
#include "engine/model_priv.h"

#include "base/mem.h"
#include "kernels/device_open.h"

#include <stdlib.h>

struct ds_uploaded {
    int kind, number;
    struct ds_device *dev;
    float **weights;  /* [n_weights], NULL: not there yet */
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
    if (!(u->weights = ds_calloc(m->n_weights, sizeof *u->weights, "weights", err)) ||
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
static int check(const struct ds_uploaded *u, const struct ds_weight *w, const float *there,
                 struct ds_error *err)
{
    struct ds_device *d = u->dev;
    const int64_t bytes = w->rows * w->cols * (int64_t)sizeof(float);
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
    if (digest == w->digest)
        return 0;
    return ds_fail(err, "%s on %s has digest %016llx, not %016llx as it was sent", w->name, d->name,
                   (unsigned long long)digest, (unsigned long long)w->digest);
}

const float *ds_model_upload(struct ds_model *m, int kind, int number, const struct ds_weight *w,
                             struct ds_error *err)
{
    struct ds_uploaded *u = find(m, kind, number);
    const size_t i = (size_t)(w - m->weights),
                 bytes = (size_t)(w->rows * w->cols) * sizeof *w->data;
    void *there = NULL;
    if (!u && !(u = add(m, kind, number, err)))
        return NULL;
    if (u->weights[i])
        return u->weights[i];
    if (ds_device_check(u->dev, u->dev->alloc(u->dev, bytes, w->name, &there), err) != 0)
        return NULL;
    if (ds_device_check(u->dev, u->dev->copy_to(u->dev, there, w->data, bytes), err) != 0 ||
        check(u, w, there, err) != 0) {
        u->dev->release(u->dev, there);
        return NULL;
    }
    return u->weights[i] = there;
}

void ds_model_drop_uploaded(struct ds_model *m)
{
    while (m->uploaded) {
        struct ds_uploaded *u = m->uploaded;
        m->uploaded = u->next;
        for (size_t i = 0; i < m->n_weights; i++)
            if (u->weights[i])
                u->dev->release(u->dev, u->weights[i]);
        u->dev->release(u->dev, u->digest);
        ds_device_close(u->dev);
        free(u->weights);
        free(u);
    }
}
