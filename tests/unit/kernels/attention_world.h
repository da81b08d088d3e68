/* attention_world.h: requests with a full cache, and calls over any part of them: what the tests of
 * attention share. */
#ifndef DS_TEST_KERNELS_ATTENTION_WORLD_H
#define DS_TEST_KERNELS_ATTENTION_WORLD_H

#include "tests/unit/kernels/harness.h"

/* A cache and queries for a few requests; each request's slots 0..kv-1 are full. */
struct world {
    int64_t heads, kv_heads, dim, page_size, pages;
    int requests;
    int32_t kv[4], first[4];
    int32_t *page_of[4];
    struct matrix q[4]; /* one row per slot */
    struct matrix k, v;
};

static const float SCALE = 0.125f;

static inline struct world world_new(int64_t heads, int64_t kv_heads, int64_t dim,
                                     int64_t page_size, int requests, const int32_t *kv,
                                     const int32_t *first, unsigned special)
{
    struct world w = {heads, kv_heads, dim,    page_size, 0,   requests,
                      {0},   {0},      {NULL}, {{0}},     {0}, {0}};
    int64_t next = 0;
    for (int i = 0; i < requests; i++) {
        w.kv[i] = kv[i], w.first[i] = first[i];
        w.pages += (kv[i] + page_size - 1) / page_size;
    }
    int32_t *order = malloc((size_t)w.pages * sizeof *order);
    for (int32_t p = 0; p < w.pages; p++)
        order[p] = p;
    for (int64_t p = w.pages - 1; p > 0; p--) {
        int64_t o = rng() % (p + 1);
        int32_t t = order[p];
        order[p] = order[o], order[o] = t;
    }
    w.k = matrix_new(w.pages * page_size, kv_heads * dim, kv_heads * dim, 1);
    w.v = matrix_new(w.pages * page_size, kv_heads * dim, kv_heads * dim, 0);
    for (int i = 0; i < requests; i++) {
        int64_t n = (kv[i] + page_size - 1) / page_size;
        w.page_of[i] = malloc((size_t)n * sizeof **w.page_of);
        memcpy(w.page_of[i], order + next, (size_t)n * sizeof *order);
        next += n;
        w.q[i] = matrix_random(kv[i], heads * dim, heads * dim, 1, special);
        /* Only slots in use and visible are written: padding and free slots keep their poison,
         * which must not be read. */
        for (int64_t t = first[i]; t < kv[i]; t++) {
            int64_t row = w.page_of[i][t / page_size] * page_size + t % page_size;
            for (int64_t c = 0; c < kv_heads * dim; c++) {
                w.k.p[row * w.k.ld + c] =
                    special && rng() % (special * 40) == 0 ? rng_special() : rng_unit() * 3;
                w.v.p[row * w.v.ld + c] =
                    special && rng() % (special * 40) == 0 ? rng_special() : rng_unit();
            }
        }
    }
    free(order);
    return w;
}

static inline void world_free(struct world *w)
{
    for (int i = 0; i < w->requests; i++) {
        free(w->page_of[i]);
        matrix_free(&w->q[i]);
    }
    matrix_free(&w->k), matrix_free(&w->v);
}

/* Looks at every finished call, when set. */
static void (*after_attend)(const struct ds_kernel *k, const struct ds_attention_args *a,
                            int threads);

/* One call: request i gives rows for its slots from[i]..to[i]-1. Results go to y, laid out as w->q.
 */
static inline void attend(const struct world *w, const struct ds_kernel *k, const int32_t *from,
                          const int32_t *to, int threads, struct matrix *y)
{
    struct ds_sequence seqs[4];
    int32_t rows = 0, n = 0, max_q = 0, max_kv = 0;
    for (int i = 0; i < w->requests; i++) {
        if (from[i] >= to[i])
            continue;
        seqs[n++] =
            (struct ds_sequence){i, rows, to[i] - from[i], to[i], w->first[i], w->page_of[i]};
        rows += to[i] - from[i];
        max_q = to[i] - from[i] > max_q ? to[i] - from[i] : max_q;
        max_kv = to[i] > max_kv ? to[i] : max_kv;
    }
    const int64_t width = w->heads * w->dim;
    struct matrix q = matrix_new(rows, width, width + 1, 1),
                  out = matrix_new(rows, width, width + 2, 1);
    for (int32_t s = 0; s < n; s++)
        for (int32_t r = 0; r < seqs[s].q_len; r++)
            memcpy(q.p + (seqs[s].q_first + r) * q.ld,
                   w->q[seqs[s].request].p + (from[seqs[s].request] + r) * width,
                   (size_t)width * 4);
    struct ds_attention_args a = {.rows = rows,
                                  .heads = w->heads,
                                  .kv_heads = w->kv_heads,
                                  .head_dim = w->dim,
                                  .scale = SCALE,
                                  .q = q.p,
                                  .ldq = q.ld,
                                  .cache_k = w->k.p,
                                  .cache_v = w->v.p,
                                  .page_size = w->page_size,
                                  .pages = w->pages,
                                  .sequences = seqs,
                                  .n_sequences = n,
                                  .max_q_len = max_q,
                                  .max_kv_len = max_kv,
                                  .y = out.p,
                                  .ldy = out.ld};
    launch_named(k, &a, threads);
    matrix_check(k->name, &out);
    if (after_attend)
        after_attend(k, &a, threads);
    for (int32_t s = 0; s < n; s++)
        for (int32_t r = 0; r < seqs[s].q_len; r++)
            memcpy(y[seqs[s].request].p + (from[seqs[s].request] + r) * width,
                   out.p + (seqs[s].q_first + r) * out.ld, (size_t)width * 4);
    matrix_free(&q), matrix_free(&out);
}

static inline void new_results(const struct world *w, struct matrix *y)
{
    for (int i = 0; i < w->requests; i++)
        y[i] = matrix_new(w->kv[i], w->heads * w->dim, w->heads * w->dim, 0);
}

static inline void free_results(const struct world *w, struct matrix *y)
{
    for (int i = 0; i < w->requests; i++)
        matrix_free(&y[i]);
}

static inline void assert_same(const char *name, const struct world *w, const struct matrix *got,
                               const struct matrix *want)
{
    for (int i = 0; i < w->requests; i++)
        for (int64_t j = 0; j < w->kv[i] * w->heads * w->dim; j++)
            assert_bits_equal(name, j, got[i].p[j], want[i].p[j]);
}

static inline void prefill(const struct world *w, const struct ds_kernel *k, int threads,
                           struct matrix *y)
{
    static const int32_t zero[4];
    attend(w, k, zero, w->kv, threads, y);
}

/* Every request in chunks of `chunk` rows, all requests in the same calls. */
static inline void chunked(const struct world *w, const struct ds_kernel *k, int32_t chunk,
                           int threads, struct matrix *y)
{
    int32_t from[4] = {0}, to[4];
    for (int busy = 1; busy;) {
        busy = 0;
        for (int i = 0; i < w->requests; i++)
            to[i] = from[i] + chunk < w->kv[i] ? from[i] + chunk : w->kv[i];
        attend(w, k, from, to, threads, y);
        for (int i = 0; i < w->requests; i++) {
            from[i] = to[i];
            busy |= from[i] < w->kv[i];
        }
    }
}

#endif
