/* trial_pack.c: a trial as one block of bytes and back. Both ends are the same program, so the
 * layout is the machine's own; counts are checked all the same, since a dying worker may have
 * written anything. */
#include "engine/worker.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct part {
    void **data;
    size_t *count;
    size_t size;
};

enum { PARTS = 14 };

/* The arrays of a trial, in their order in the block. */
static void parts_of(struct ds_trial_data *t, struct part *p)
{
    const struct part all[PARTS] = {
        {(void **)&t->calls, &t->n_calls, sizeof *t->calls},
        {(void **)&t->rows, &t->n_rows, sizeof *t->rows},
        {(void **)&t->launches, &t->n_launches, sizeof *t->launches},
        {(void **)&t->captures, &t->n_captures, sizeof *t->captures},
        {(void **)&t->digests, &t->n_digests, sizeof *t->digests},
        {(void **)&t->drifts, &t->n_drifts, sizeof *t->drifts},
        {(void **)&t->nonfinites, &t->n_nonfinites, sizeof *t->nonfinites},
        {(void **)&t->steps, &t->n_steps, sizeof *t->steps},
        {(void **)&t->packed, &t->n_packed, sizeof *t->packed},
        {(void **)&t->failures, &t->n_failures, sizeof *t->failures},
        {(void **)&t->blobs, &t->n_blobs, sizeof *t->blobs},
        {(void **)&t->ranges, &t->n_ranges, sizeof *t->ranges},
        {(void **)&t->masks, &t->n_masks, sizeof *t->masks},
        {(void **)&t->mask_words, &t->n_mask_words, sizeof *t->mask_words},
    };
    memcpy(p, all, sizeof all);
}

int ds_trial_pieces(const struct ds_trial_data *t,
                    int (*put)(void *ctx, const void *bytes, size_t n), void *ctx)
{
    struct ds_trial_data copy = *t;
    struct part p[PARTS];
    parts_of(&copy, p);
    int rc = put(ctx, &copy.info, sizeof copy.info);
    for (int i = 0; i < PARTS && rc == 0; i++)
        rc = put(ctx, p[i].count, sizeof *p[i].count);
    for (int i = 0; i < PARTS && rc == 0; i++)
        if (*p[i].count)
            rc = put(ctx, *p[i].data, *p[i].count * p[i].size);
    for (size_t i = 0; i < t->n_blobs && rc == 0; i++)
        rc = put(ctx, t->blobs[i].data, t->blobs[i].bytes);
    return rc;
}

static int into_buf(void *ctx, const void *bytes, size_t n)
{
    ds_buf_add(ctx, bytes, n);
    return 0;
}

void ds_trial_pack(const struct ds_trial_data *t, struct ds_buf *out)
{
    ds_trial_pieces(t, into_buf, out);
}

struct cursor {
    const char *p;
    size_t left;
};

static int take(struct cursor *c, void *to, size_t n)
{
    if (n > c->left)
        return -1;
    if (n)
        memcpy(to, c->p, n);
    c->p += n;
    c->left -= n;
    return 0;
}

static int unpack_blobs(struct cursor *c, struct ds_trial_data *t, struct ds_error *err)
{
    for (size_t i = 0; i < t->n_blobs; i++)
        t->blobs[i].data = NULL; /* the sender's pointers mean nothing here */
    for (size_t i = 0; i < t->n_blobs; i++) {
        struct ds_blob *b = &t->blobs[i];
        if (b->bytes > c->left)
            return -1;
        if (!(b->data = ds_calloc(b->bytes, 1, "dumped row", err)) ||
            take(c, b->data, b->bytes) != 0)
            return -1;
    }
    return c->left == 0 ? 0 : -1;
}

int ds_trial_unpack(const void *bytes, size_t size, struct ds_trial_data *out, struct ds_error *err)
{
    struct cursor c = {bytes, size};
    struct part p[PARTS];
    size_t counts[PARTS];
    memset(out, 0, sizeof *out);
    parts_of(out, p);
    ds_fail(err, "the worker's answer of %zu bytes is malformed", size);
    if (take(&c, &out->info, sizeof out->info) != 0 || take(&c, counts, sizeof counts) != 0)
        return -1;
    for (int i = 0; i < PARTS; i++) {
        size_t need;
        if (__builtin_mul_overflow(counts[i], p[i].size, &need) || need > c.left ||
            !(*p[i].data = ds_calloc(counts[i], p[i].size, "trial data", err)) ||
            take(&c, *p[i].data, need) != 0) {
            out->n_blobs = 0;
            ds_trial_data_free(out);
            return -1;
        }
        *p[i].count = counts[i];
    }
    if (unpack_blobs(&c, out, err) != 0) {
        ds_trial_data_free(out);
        return -1;
    }
    return 0;
}
