/* diff_models.c: whether two records are of one model. Owns the rule.
 *
 * What a model is, its weights say: not its name, which is a path and may be another one for the same file, or the
 * same for another file. Two records of models of one shape (diff_setting.c) are of two models where they have no
 * weight in common: none of the same numbers, none from the same bytes of a file, under whatever name. The same model
 * in another quantisation or file format keeps what is not quantised (norms, biases), a model cut short what is left
 * of it, one with a fault in loading its other weights, or at least their bytes; all of these are compared, and what
 * differs is named. What says nothing of a model counts on neither side: weights that are constant (norms that were
 * never trained), and factors of RoPE, which a family of models shares.
 *
 * Weights that come from no file have no bytes that could tell a fault in making them from another model: under one
 * name they are one model. Of records that list no weights, the digest over all of them and the name decide, both. */
#include "dumps/diff_internal.h"

#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of the longest weight that may be looked at for being constant: norms, biases and scales are shorter. */
enum { LONGEST = 1 << 16 };

/* Digests of a constant, as the last weight's length asked for them. */
struct constants {
    float *numbers; /* [LONGEST] */
    int64_t length; /* whose digests these are; 0: none yet */
    uint64_t zeros, ones;
};

static uint64_t digest_of(struct constants *k, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        k->numbers[i] = value;
    return ds_hash(k->numbers, (size_t)n * sizeof *k->numbers);
}

static int is_constant(struct constants *k, const struct ds_record_weight *w)
{
    const int64_t rows = w->rows, cols = w->cols;
    if (rows <= 0 || cols <= 0 || cols > LONGEST || rows > LONGEST / cols)
        return 0;
    if (k->length != rows * cols) {
        k->length = rows * cols;
        k->zeros = digest_of(k, k->length, 0.0f);
        k->ones = digest_of(k, k->length, 1.0f);
    }
    return w->digest == k->zeros || w->digest == k->ones;
}

static int digest_cmp(const void *pa, const void *pb)
{
    const uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return (a > b) - (a < b);
}

/* What identifies a record's weights: digests of numbers and of bytes, each sorted. */
struct weights {
    uint64_t *made, *loaded;
    size_t n, n_loaded;
};

static int take(struct weights *w, const struct ds_header *h, struct constants *k,
                struct ds_error *err)
{
    w->made = ds_calloc(h->n_weights, sizeof *w->made, "weights", err);
    w->loaded = ds_calloc(h->n_weights, sizeof *w->loaded, "weights", err);
    if (!w->made || !w->loaded)
        return -1;
    for (size_t i = 0; i < h->n_weights; i++) {
        const struct ds_record_weight *x = &h->weights[i];
        if (strncmp(x->name, "rope_", 5) == 0 || is_constant(k, x))
            continue;
        w->made[w->n++] = x->digest;
        if (x->loaded)
            w->loaded[w->n_loaded++] = x->loaded;
    }
    if (w->n)
        qsort(w->made, w->n, sizeof *w->made, digest_cmp);
    if (w->n_loaded)
        qsort(w->loaded, w->n_loaded, sizeof *w->loaded, digest_cmp);
    return 0;
}

static int share(const uint64_t *a, size_t na, const uint64_t *b, size_t nb)
{
    for (size_t i = 0, j = 0; i < na && j < nb;) {
        if (a[i] == b[j])
            return 1;
        if (a[i] < b[j])
            i++;
        else
            j++;
    }
    return 0;
}

/* 1: two models, as far as their weights tell; -1: no memory. */
static int weights_tell(const struct ds_header *a, const struct ds_header *b, int one_name,
                        struct ds_error *err)
{
    struct weights x = {0}, y = {0};
    struct constants k = {.numbers = ds_calloc(LONGEST, sizeof *k.numbers, "weights", err)};
    int rc = k.numbers && take(&x, a, &k, err) == 0 && take(&y, b, &k, err) == 0 ? 0 : -1;
    if (rc == 0 && x.n && y.n) {
        const int unfiled = !x.n_loaded || !y.n_loaded;
        rc = !share(x.made, x.n, y.made, y.n) &&
             !share(x.loaded, x.n_loaded, y.loaded, y.n_loaded) && !(unfiled && one_name);
    }
    free(k.numbers);
    free(x.made);
    free(x.loaded);
    free(y.made);
    free(y.loaded);
    return rc;
}

int diff_models(struct ds_diff *d, const struct ds_header *a, const struct ds_header *b,
                struct ds_error *err)
{
    const int one_name = strcmp(a->model_name, b->model_name) == 0;
    char *text = d->models_words;
    const size_t size = sizeof d->models_words;
    size_t at = 0;
    int two = a->n_weights && b->n_weights   ? weights_tell(a, b, one_name, err)
              : a->n_weights || b->n_weights ? 0
                                             : !one_name && a->model_digest && b->model_digest &&
                                                   a->model_digest != b->model_digest;
    if (two <= 0)
        return two;
    d->two_models = 1;
    if (a->n_layers != b->n_layers)
        at = (size_t)snprintf(text, size, "%d layers in A, %d in B, ", a->n_layers, b->n_layers);
    if (a->n_weights)
        snprintf(text + at, size - at, "no weight of A's %zu is one of B's %zu", a->n_weights,
                 b->n_weights);
    else
        snprintf(text + at, size - at, "digest %016" PRIx64 " in A, %016" PRIx64 " in B",
                 a->model_digest, b->model_digest);
    return d->options.across_models
               ? 0
               : diff_refuse(d, "two models: %s; --across-models compares them all the same", text);
}
