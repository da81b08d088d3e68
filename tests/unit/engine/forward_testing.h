/* forward_testing.h: what the tests of the forward pass share: a stand-in probe that keeps every
 * row it is shown, and a runner that cuts prompts into calls. The stand-in takes the place of the
 * real ds_probe_* functions at link time. */
#ifndef DS_FORWARD_TESTING_H
#define DS_FORWARD_TESTING_H

#include "tests/unit/testing.h"

#include "base/mem.h"
#include "engine/forward.h"
#include "engine/site_map.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_REQUESTS = 8, MAX_POSITIONS = 320 };

/* Rows by (site, request, position), as stored bytes. */
struct ds_probe {
    struct ds_site *sites;
    struct ds_edge *edges;
    uint32_t n_sites, n_edges;
    char **row;               /* [n_sites][MAX_REQUESTS][MAX_POSITIONS] */
    struct ds_launch *launch; /* [n_sites] of the last call */
    struct ds_row rows[4096]; /* of the call under way */
    uint32_t n_rows, m, sequences, phase;
    int64_t last_site;
    long shown;                  /* rows in all */
    const struct ds_probe *heal; /* rows are overwritten with those of this one ... */
    int64_t heal_all_but;        /* ... except at this site */
    int64_t fail_at;             /* ds_probe_site fails here; -1 = nowhere */
    int64_t flip_at;             /* every element shown here changes its sign; -1 = nowhere */
};

static inline size_t row_bytes(const struct ds_site *s)
{
    return s->width * ds_dtype_size(ds_dtype_parse(s->dtype));
}

static inline char **row_at(const struct ds_probe *p, uint32_t site, int32_t request,
                            int32_t position)
{
    return &p->row[((size_t)site * MAX_REQUESTS + (size_t)request) * MAX_POSITIONS +
                   (size_t)position];
}

static inline struct ds_probe *keeper_new_wanting(const struct ds_model *m, int dtype,
                                                  struct ds_site_wants wants)
{
    struct ds_error err;
    struct ds_probe *p = calloc(1, sizeof *p);
    assert_non_null(p);
    assert_ok(
        ds_site_list(&m->hp, dtype, &wants, &p->sites, &p->n_sites, &p->edges, &p->n_edges, &err),
        err);
    p->row = calloc((size_t)p->n_sites * MAX_REQUESTS * MAX_POSITIONS, sizeof *p->row);
    p->launch = calloc(p->n_sites, sizeof *p->launch);
    assert_true(p->row && p->launch);
    p->heal_all_but = p->fail_at = p->flip_at = -1;
    return p;
}

/* unrounded: stages that have a site before rounding, too (DS_STAGE_BITs). */
static inline struct ds_probe *keeper_new_with(const struct ds_model *m, int dtype,
                                               uint64_t unrounded)
{
    return keeper_new_wanting(m, dtype, (struct ds_site_wants){.unrounded = unrounded});
}

static inline struct ds_probe *keeper_new(const struct ds_model *m, int dtype)
{
    return keeper_new_with(m, dtype, 0);
}

static inline void keeper_free(struct ds_probe *p)
{
    for (size_t i = 0; i < (size_t)p->n_sites * MAX_REQUESTS * MAX_POSITIONS; i++)
        free(p->row[i]);
    free(p->row);
    free(p->launch);
    free(p->sites);
    free(p->edges);
    free(p);
}

int ds_probe_begin_call(struct ds_probe *p, uint32_t phase, uint32_t m, uint32_t sequences,
                        const struct ds_row *rows, uint32_t n_rows, struct ds_error *err)
{
    (void)err;
    assert_true(n_rows <= m && n_rows <= sizeof p->rows / sizeof p->rows[0]);
    memcpy(p->rows, rows, n_rows * sizeof *rows);
    for (uint32_t i = 1; i < n_rows; i++)
        assert_true(rows[i - 1].slot < rows[i].slot);
    p->n_rows = n_rows;
    p->m = m;
    p->phase = phase;
    p->sequences = sequences;
    p->last_site = -1;
    return 0;
}

int ds_probe_heals(const struct ds_probe *p)
{
    return p->heal != NULL;
}

int ds_probe_site(struct ds_probe *p, uint32_t site, const struct ds_launch *launch, void *data,
                  size_t stride_bytes, uint32_t width, const uint32_t *only, uint32_t n_only,
                  struct ds_error *err)
{
    if ((int64_t)site == p->fail_at)
        return ds_fail(err, "the probe fails here");
    assert_true(site < p->n_sites && width == p->sites[site].width && launch);
    /* Execution order: ascending; a site again only with other rows (checked below by the empty
     * place). */
    assert_true((int64_t)site >= p->last_site && (only || (int64_t)site > p->last_site));
    p->last_site = site;
    p->launch[site] = *launch;
    assert_string_equal(launch->op, p->sites[site].op);
    for (uint32_t i = 0; i < (only ? n_only : p->n_rows); i++) {
        uint32_t number = only ? only[i] : i;
        assert_true(number < p->n_rows);
        const struct ds_row *r = &p->rows[number];
        char *at = (char *)data + (only ? i : (size_t)r->slot) * stride_bytes;
        char **place = row_at(p, site, r->request, r->position);
        assert_null(*place);
        *place = malloc(row_bytes(&p->sites[site]));
        assert_non_null(*place);
        memcpy(*place, at, row_bytes(&p->sites[site]));
        p->shown++;
        size_t element = row_bytes(&p->sites[site]) / width;
        for (uint32_t e = 0; (int64_t)site == p->flip_at && e < width; e++)
            at[(e + 1) * element - 1] ^= (char)0x80;
        if (p->heal && (int64_t)site != p->heal_all_but) {
            const char *from = *row_at(p->heal, site, r->request, r->position);
            assert_non_null(from);
            memcpy(at, from, row_bytes(&p->sites[site]));
        }
    }
    return 0;
}

int ds_probe_wants(const struct ds_probe *p, uint32_t site)
{
    return site < p->n_sites;
}

/* Rows of a device: their digests are those of what is read back, and the rest is as above. */
int ds_probe_site_far(struct ds_probe *p, uint32_t site, const struct ds_launch *launch, void *data,
                      size_t stride_bytes, uint32_t width, const uint32_t *only, uint32_t n_only,
                      struct ds_probe_far *far, struct ds_error *err)
{
    const uint32_t n = only ? n_only : p->n_rows;
    uint32_t all[sizeof p->rows / sizeof p->rows[0]];
    for (uint32_t i = 0; i < n; i++)
        all[i] = only ? only[i] : i;
    const size_t row = row_bytes(&p->sites[site]);
    char *rows = malloc(n * row), *before = malloc(row);
    assert_true(rows && before && row == stride_bytes);
    far->written = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_ok(far->read(far->arg, (char *)data + i * stride_bytes, rows + i * row, row, err),
                  *err);
        assert_true(far->digests[i] == ds_digest(rows + i * row, row));
    }
    const int rc = ds_probe_site(p, site, launch, rows, row, width, all, n, err);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        assert_ok(far->read(far->arg, (char *)data + i * stride_bytes, before, row, err), *err);
        if (memcmp(before, rows + i * row, row) == 0)
            continue;
        far->written++;
        assert_ok(far->write(far->arg, (char *)data + i * stride_bytes, rows + i * row, row, err),
                  *err);
    }
    free(rows);
    free(before);
    return rc;
}

/* The site of a stage; fails the test when there is none. */
static inline uint32_t site_of(const struct ds_probe *p, int32_t layer, const char *stage,
                               const char *part)
{
    for (uint32_t s = 0; s < p->n_sites; s++)
        if (p->sites[s].layer == layer && !strcmp(p->sites[s].stage, stage) &&
            !strcmp(p->sites[s].part, part))
            return s;
    fail_msg("no site %d %s%s", (int)layer, stage, part);
    return 0;
}

/* Compares request ra of a with request rb of b at every site where either has a row; both must
 * have every prompt row of `positions`, except at logits and token. Returns rows compared. */
static inline long assert_same_rows(const struct ds_probe *a, int32_t ra, const struct ds_probe *b,
                                    int32_t rb, int32_t positions, const char *what)
{
    long n = 0;
    for (uint32_t s = 0; s < a->n_sites; s++)
        for (int32_t pos = 0; pos < positions; pos++) {
            const char *x = *row_at(a, s, ra, pos), *y = *row_at(b, s, rb, pos);
            const struct ds_site *site = &a->sites[s];
            int partial = !strcmp(site->stage, "logits") ||
                          !strcmp(site->stage, "logits_processed") || !strcmp(site->stage, "token");
            if (partial && (!x || !y))
                continue;
            assert_true(x && y);
            n++;
            if (memcmp(x, y, row_bytes(site)) == 0)
                continue;
            fail_msg("%s: layer %d %s%s: request %d position %d differs", what, (int)site->layer,
                     site->stage, site->part, (int)ra, (int)pos);
        }
    return n;
}

/* ---- running --------------------------------------------------------------------------------- */

struct setting {
    const char *kernels; /* of the device sim: "sim:pinned" */
    int dtype, threads;
    int32_t chunk; /* 0 = one shot */
    int32_t pads;
    int32_t page_size;
    int poison;
    int all_logits;     /* of every token, else of the last one */
    int32_t score_keys; /* attention scores of so many keys; 0: none */
    int flip_scores;    /* in layer 0, as a probe might that writes there */
};

static inline int32_t token_of(int32_t request, int32_t position, int32_t vocab)
{
    return (int32_t)(((uint32_t)request * 7919u + (uint32_t)position * 104729u + 13u) %
                     (uint32_t)vocab);
}

static inline struct ds_forward_config config_of(const struct setting *s, int32_t max_rows,
                                                 int32_t n_requests, int32_t capacity)
{
    struct ds_error err;
    struct ds_forward_config c = {.dtype = s->dtype,
                                  .threads = s->threads,
                                  .max_rows = max_rows,
                                  .n_requests = n_requests,
                                  .capacity = capacity,
                                  .page_size = s->page_size,
                                  .poison = s->poison};
    const int sim = strncmp(s->kernels, "sim:", 4) == 0;
    assert_ok(ds_kernel_set_parse_on(sim ? DS_DEVICE_SIM : DS_DEVICE_CPU,
                                     s->kernels + (sim ? 4 : 0), &c.kernels, &err),
              err);
    return c;
}

/* Runs texts which[0..n-1] (text t has `length` tokens token_of(t, .)), each in the request of its
 * own number, in this order in every call, and keeps their rows (request = t). */
static inline struct ds_probe *run_texts(struct ds_model *m, const struct setting *s,
                                         const int32_t *which, int32_t n, int32_t length)
{
    struct ds_error err;
    struct ds_forward *f;
    struct ds_forward_config c =
        config_of(s, n * (length + s->pads), MAX_REQUESTS, length + s->pads);
    struct ds_probe *p =
        keeper_new_wanting(m, s->dtype, (struct ds_site_wants){.score_keys = s->score_keys});
    c.sites = s->score_keys ? p->sites : NULL;
    c.n_sites = p->n_sites;
    assert_ok(ds_forward_new(m, &c, &f, &err), err);
    if (s->flip_scores)
        p->flip_at = site_of(p, 0, "attn_scores", "");
    int32_t *tokens = calloc((size_t)n * (size_t)(length + s->pads), sizeof *tokens);
    assert_non_null(tokens);
    int32_t chunk = s->chunk ? s->chunk : length;
    for (int32_t done = 0; done < length; done += chunk) {
        int32_t now = length - done < chunk ? length - done : chunk, pads = done ? 0 : s->pads,
                used = 0;
        struct ds_batch_seq seqs[MAX_REQUESTS];
        for (int32_t i = 0; i < n; i++) {
            int32_t *t = tokens + used;
            for (int32_t j = 0; j < pads + now; j++)
                t[j] = j < pads ? 1 : token_of(which[i], done + j - pads, m->hp.vocab);
            int32_t last = done + now == length ? pads + now - 1 : pads + now;
            seqs[i] = (struct ds_batch_seq){.request = which[i],
                                            .tokens = t,
                                            .n_tokens = pads + now,
                                            .n_pad = pads,
                                            .record = 1,
                                            .logits_from = s->all_logits ? pads : last};
            used += pads + now;
        }
        struct ds_batch batch = {
            .seqs = seqs, .n_seqs = n, .phase = now == 1 ? DS_PHASE_DECODE : DS_PHASE_PREFILL};
        const float *logits;
        const int32_t *ids;
        int32_t rows;
        assert_ok(ds_forward_run(f, &batch, p, &logits, &ids, &rows, &err), err);
    }
    free(tokens);
    ds_forward_free(f);
    return p;
}

static inline struct ds_model *open_model(const char *spec)
{
    struct ds_error err;
    struct ds_model *m;
    assert_ok(ds_model_open(spec, 1, &m, &err), err);
    return m;
}

#endif
