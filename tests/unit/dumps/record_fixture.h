/* record_fixture.h: random but seeded headers and trials, and their comparison field by field;
 * shared by the tests of the record. */
#ifndef DS_RECORD_FIXTURE_H
#define DS_RECORD_FIXTURE_H

#include "tests/unit/testing.h"

#include "dumps/record.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

/* An alarm ends a test that waits for ever: less than what tests/run gives a program, more than a slow machine takes. */
enum { HANG_SECONDS = 600 };

static inline uint64_t rng_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint32_t rng_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(rng_next(state) % n);
}

/* Any bytes at all, so that a field that is lost or cut shows. */
static inline void rng_fill(uint64_t *state, void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)rng_next(state);
}

static inline void rng_text(uint64_t *state, char *text, size_t size)
{
    size_t n = rng_below(state, (uint32_t)size);
    memset(text, 0, size);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)(1 + rng_below(state, 255));
}

static inline char *rng_string(uint64_t *state, size_t most)
{
    char *text = calloc(most + 1, 1);
    rng_text(state, text, most + 1);
    return text;
}

/* ---- making ---------------------------------------------------------------------------------- */

enum { FIXTURE_SITES = 9, FIXTURE_ARMS = 4, FIXTURE_FACTORS = 3, FIXTURE_CALLS = 4 };

static inline void fixture_sweep(uint64_t *s, struct ds_header *h)
{
    h->n_factors = FIXTURE_FACTORS;
    h->factors = calloc(h->n_factors, sizeof *h->factors);
    for (size_t i = 0; i < h->n_factors; i++)
        h->factors[i] = rng_string(s, 20);
    h->n_arms = FIXTURE_ARMS;
    h->arms = calloc(h->n_arms, sizeof *h->arms);
    for (size_t i = 0; i < h->n_arms; i++) {
        h->arms[i].values = calloc(h->n_factors, sizeof *h->arms[i].values);
        for (size_t j = 0; j < h->n_factors; j++)
            h->arms[i].values[j] = rng_string(s, 40);
    }
}

static inline void fixture_header(uint64_t seed, struct ds_header *h)
{
    uint64_t state = seed, *s = &state;
    memset(h, 0, sizeof *h);
    rng_text(s, h->tool_version, sizeof h->tool_version);
    rng_text(s, h->build, sizeof h->build);
    rng_text(s, h->start, sizeof h->start);
    rng_text(s, h->model_name, sizeof h->model_name);
    rng_text(s, h->model_arch, sizeof h->model_arch);
    h->command = rng_string(s, 5000);
    rng_fill(s, &h->model_digest, sizeof h->model_digest);
    h->n_layers = 3 + (int32_t)rng_below(s, 1000);
    rng_fill(s, &h->n_heads, sizeof h->n_heads);
    rng_fill(s, &h->n_kv_heads, sizeof h->n_kv_heads);
    rng_fill(s, &h->head_dim, sizeof h->head_dim);
    rng_fill(s, &h->repeats, sizeof h->repeats);
    h->n_environment = 12;
    h->environment = calloc(h->n_environment, sizeof *h->environment);
    for (size_t i = 0; i < h->n_environment; i++) {
        h->environment[i].name = rng_string(s, 30);
        h->environment[i].value = rng_string(s, i == 3 ? 3000 : 60);
    }
    h->n_hparams = 5;
    h->hparams = calloc(h->n_hparams, sizeof *h->hparams);
    for (size_t i = 0; i < h->n_hparams; i++) {
        h->hparams[i].name = rng_string(s, 30);
        h->hparams[i].value = rng_string(s, 30);
    }
    h->n_options = 3;
    h->options = calloc(h->n_options, sizeof *h->options);
    for (size_t i = 0; i < h->n_options; i++) {
        h->options[i].name = rng_string(s, 20);
        h->options[i].value = rng_string(s, 20);
    }
    h->n_weights = 17;
    h->weights = calloc(h->n_weights, sizeof *h->weights);
    rng_fill(s, h->weights, h->n_weights * sizeof *h->weights);
    for (size_t i = 0; i < h->n_weights; i++) {
        rng_text(s, h->weights[i].name, sizeof h->weights[i].name);
        rng_text(s, h->weights[i].dtype, sizeof h->weights[i].dtype);
    }
    h->n_prompts = 3;
    h->prompts = calloc(h->n_prompts, sizeof *h->prompts);
    for (size_t i = 0; i < h->n_prompts; i++) {
        h->prompts[i].request = (int32_t)i;
        h->prompts[i].text = rng_string(s, i ? 300 : 0);
        h->prompts[i].n_tokens = rng_below(s, 40);
        h->prompts[i].tokens = calloc(h->prompts[i].n_tokens + 1, sizeof(int32_t));
        rng_fill(s, h->prompts[i].tokens, h->prompts[i].n_tokens * sizeof(int32_t));
    }
    h->n_sites = FIXTURE_SITES;
    h->sites = calloc(h->n_sites, sizeof *h->sites);
    rng_fill(s, h->sites, h->n_sites * sizeof *h->sites);
    for (size_t i = 0; i < h->n_sites; i++) {
        h->sites[i].layer = (int32_t)i - 1 < h->n_layers ? (int32_t)i - 1 : h->n_layers;
        rng_text(s, h->sites[i].stage, sizeof h->sites[i].stage);
        rng_text(s, h->sites[i].part, sizeof h->sites[i].part);
        rng_text(s, h->sites[i].op, sizeof h->sites[i].op);
        rng_text(s, h->sites[i].dtype, sizeof h->sites[i].dtype);
    }
    h->n_edges = 11;
    h->edges = calloc(h->n_edges, sizeof *h->edges);
    for (size_t i = 0; i < h->n_edges; i++) {
        struct ds_edge *e = &h->edges[i];
        size_t same;
        do { /* until there is no other like it */
            *e = (struct ds_edge){.to = 1 + rng_below(s, FIXTURE_SITES - 1)};
            e->from = rng_below(s, e->to);
            e->kind = rng_below(s, 3);
            for (same = 0; same < i && memcmp(&h->edges[same], e, sizeof *e) != 0; same++)
                continue;
        } while (same < i);
    }
    fixture_sweep(s, h);
}

/* Calls, rows, launches, captures, digests. */
static inline void fixture_execution(uint64_t *s, struct ds_trial_data *t, uint32_t scale)
{
    t->n_calls = FIXTURE_CALLS;
    t->calls = calloc(t->n_calls, sizeof *t->calls);
    t->rows = calloc(FIXTURE_CALLS * (scale + 1), sizeof *t->rows);
    for (uint32_t c = 0; c < t->n_calls; c++) {
        struct ds_call *call = &t->calls[c];
        *call = (struct ds_call){c,
                                 c > 0,
                                 rng_below(s, 1000),
                                 rng_below(s, 8),
                                 (uint32_t)t->n_rows,
                                 1 + rng_below(s, scale)};
        for (uint32_t k = 0; k < call->rows; k++) {
            struct ds_row *row = &t->rows[t->n_rows++];
            rng_fill(s, row, sizeof *row);
            row->call = c;
            row->kind = rng_below(s, 3);
        }
    }
    t->n_launches = 1 + rng_below(s, 5);
    t->launches = calloc(t->n_launches, sizeof *t->launches);
    rng_fill(s, t->launches, t->n_launches * sizeof *t->launches);
    for (size_t i = 0; i < t->n_launches; i++) {
        rng_text(s, t->launches[i].op, sizeof t->launches[i].op);
        rng_text(s, t->launches[i].variant, sizeof t->launches[i].variant);
        rng_text(s, t->launches[i].algo, sizeof t->launches[i].algo);
    }
    t->captures = calloc(FIXTURE_CALLS * FIXTURE_SITES, sizeof *t->captures);
    t->digests = calloc(FIXTURE_SITES * t->n_rows, sizeof *t->digests);
    for (uint32_t c = 0; c < t->n_calls; c++)
        for (uint32_t site = 0; site < FIXTURE_SITES; site++) {
            struct ds_capture *cap = &t->captures[t->n_captures++];
            uint32_t rows = t->calls[c].rows, skip = site == FIXTURE_SITES - 1 ? rows - 1 : 0;
            *cap = (struct ds_capture){c,
                                       site,
                                       rng_below(s, (uint32_t)t->n_launches),
                                       t->calls[c].first_row + skip,
                                       rows - skip,
                                       rng_below(s, 5000),
                                       t->n_digests};
            rng_fill(s, t->digests + t->n_digests, cap->rows * sizeof *t->digests);
            t->n_digests += cap->rows;
        }
}

static inline void fixture_findings(uint64_t *s, struct ds_trial_data *t)
{
    t->n_drifts = rng_below(s, 20);
    t->drifts = calloc(t->n_drifts + 1, sizeof *t->drifts);
    rng_fill(s, t->drifts, t->n_drifts * sizeof *t->drifts);
    for (size_t i = 0; i < t->n_drifts; i++) {
        t->drifts[i].site = rng_below(s, FIXTURE_SITES);
        t->drifts[i].row = rng_below(s, (uint32_t)t->n_rows);
        t->drifts[i].ref_arm = rng_below(s, FIXTURE_ARMS);
    }
    t->n_nonfinites = rng_below(s, 5);
    t->nonfinites = calloc(t->n_nonfinites + 1, sizeof *t->nonfinites);
    rng_fill(s, t->nonfinites, t->n_nonfinites * sizeof *t->nonfinites);
    for (size_t i = 0; i < t->n_nonfinites; i++) {
        t->nonfinites[i].site = rng_below(s, FIXTURE_SITES);
        t->nonfinites[i].row = rng_below(s, (uint32_t)t->n_rows);
    }
    t->n_steps = rng_below(s, 10);
    t->steps = calloc(t->n_steps + 1, sizeof *t->steps);
    rng_fill(s, t->steps, t->n_steps * sizeof *t->steps);
    t->n_packed = rng_below(s, 6);
    t->packed = calloc(t->n_packed + 1, sizeof *t->packed);
    rng_fill(s, t->packed, t->n_packed * sizeof *t->packed);
    for (size_t i = 0; i < t->n_packed; i++) {
        rng_text(s, t->packed[i].variant, sizeof t->packed[i].variant);
        t->packed[i].weight = rng_below(s, 17);
    }
    t->n_ranges = rng_below(s, 4);
    t->ranges = calloc(t->n_ranges + 1, sizeof *t->ranges);
    for (size_t i = 0; i < t->n_ranges; i++)
        t->ranges[i] =
            (struct ds_range){rng_below(s, FIXTURE_SITES), rng_below(s, (uint32_t)t->n_rows),
                              (float)rng_below(s, 1000) / 7.0f};
    t->n_masks = rng_below(s, 6);
    t->masks = calloc(t->n_masks + 1, sizeof *t->masks);
    t->mask_words = calloc(6 * 2 * 4, sizeof *t->mask_words);
    for (size_t i = 0; i < t->n_masks; i++) {
        struct ds_mask *m = &t->masks[i];
        *m = (struct ds_mask){rng_below(s, FIXTURE_SITES),
                              rng_below(s, FIXTURE_ARMS),
                              rng_below(s, 2),
                              rng_below(s, (uint32_t)t->n_rows + 1),
                              rng_below(s, 257),
                              1 + rng_below(s, 2),
                              t->n_mask_words};
        for (uint32_t k = 0; k < m->width; k++) {
            uint32_t bits = rng_below(s, 4);
            uint64_t *word = t->mask_words + m->first + k / 64;
            *word |= (uint64_t)(bits & 1) << k % 64;
            if (m->planes == 2)
                word[ds_mask_words(m->width)] |= (uint64_t)(bits == 3) << k % 64;
        }
        t->n_mask_words += m->planes * ds_mask_words(m->width);
    }
    t->n_blobs = rng_below(s, 12);
    t->blobs = calloc(t->n_blobs + 1, sizeof *t->blobs);
    for (size_t i = 0; i < t->n_blobs; i++) {
        struct ds_blob *b = &t->blobs[i];
        int half = i % 2;
        snprintf(b->dtype, sizeof b->dtype, "%s", half ? "bf16" : "f32");
        b->elements = rng_below(s, 700);
        b->bytes = b->elements * (half ? 2 : 4);
        b->data = malloc(b->bytes + 1);
        rng_fill(s, b->data, b->bytes);
        b->digest = XXH3_64bits(b->data, b->bytes);
    }
}

/* Trial `n` of a seed: always the same. */
static inline void fixture_trial(uint64_t seed, uint32_t n, uint32_t scale, struct ds_trial_data *t)
{
    uint64_t state = seed + 1000003u * (n + 1), *s = &state;
    memset(t, 0, sizeof *t);
    rng_fill(s, &t->info, sizeof t->info);
    rng_text(s, t->info.blas_core, sizeof t->info.blas_core);
    rng_text(s, t->info.blas_config, sizeof t->info.blas_config);
    t->info.arm = n % FIXTURE_ARMS;
    t->info.repeat = n / FIXTURE_ARMS;
    t->info.pass = n % 3;
    t->info.healed_to = t->info.pass == 1 ? (n / 3) % FIXTURE_ARMS : 0;
    fixture_execution(s, t, scale);
    fixture_findings(s, t);
}

/* ---- comparing ------------------------------------------------------------------------------- */

#define SAME(member) (memcmp(&a->member, &b->member, sizeof a->member) == 0)
#define SAME_ARRAY(array, count)                                                                   \
    (a->count == b->count &&                                                                       \
     (a->count == 0 || memcmp(a->array, b->array, a->count * sizeof *a->array) == 0))
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return #condition;                                                                     \
    } while (0)

/* NULL when equal, else what differs. */
static inline const char *info_difference(const struct ds_trial *a, const struct ds_trial *b)
{
    REQUIRE(SAME(arm) && SAME(repeat) && SAME(pass) && SAME(healed_to));
    REQUIRE(SAME(start_s) && SAME(wall_s) && SAME(cpu_s) && SAME(prefill_cpu_s) &&
            SAME(decode_cpu_s));
    REQUIRE(SAME(probe_prefill_cpu_s) && SAME(probe_decode_cpu_s));
    REQUIRE(SAME(threads_asked) && SAME(threads_max) && SAME(threads_seen) && SAME(blas_threads));
    REQUIRE(SAME(worker) && SAME(blas_core) && SAME(run_digest));
    return NULL;
}

/* All but the dumped rows. These structs have no padding (test_layout_covers_every_byte holds them
 * to it). */
static inline const char *trial_difference(const struct ds_trial_data *a,
                                           const struct ds_trial_data *b)
{
    const char *info = info_difference(&a->info, &b->info);
    if (info)
        return info;
    REQUIRE(SAME_ARRAY(calls, n_calls));
    REQUIRE(SAME_ARRAY(rows, n_rows));
    REQUIRE(SAME_ARRAY(launches, n_launches));
    REQUIRE(SAME_ARRAY(captures, n_captures));
    REQUIRE(SAME_ARRAY(digests, n_digests));
    REQUIRE(SAME_ARRAY(drifts, n_drifts));
    REQUIRE(SAME_ARRAY(nonfinites, n_nonfinites));
    REQUIRE(SAME_ARRAY(ranges, n_ranges));
    REQUIRE(SAME_ARRAY(masks, n_masks));
    REQUIRE(SAME_ARRAY(mask_words, n_mask_words));
    REQUIRE(SAME_ARRAY(steps, n_steps));
    REQUIRE(SAME_ARRAY(packed, n_packed));
    return NULL;
}

static inline const char *header_difference(const struct ds_header *a, const struct ds_header *b)
{
    REQUIRE(SAME(tool_version) && SAME(build) && SAME(start) && SAME(model_name) &&
            SAME(model_arch));
    REQUIRE(strcmp(a->command, b->command) == 0);
    REQUIRE(SAME(model_digest) && SAME(n_layers) && SAME(n_heads) && SAME(n_kv_heads) &&
            SAME(head_dim) && SAME(repeats));
    REQUIRE(a->n_environment == b->n_environment && a->n_hparams == b->n_hparams);
    for (size_t i = 0; i < a->n_environment; i++)
        REQUIRE(strcmp(a->environment[i].name, b->environment[i].name) == 0 &&
                strcmp(a->environment[i].value, b->environment[i].value) == 0);
    for (size_t i = 0; i < a->n_hparams; i++)
        REQUIRE(strcmp(a->hparams[i].name, b->hparams[i].name) == 0 &&
                strcmp(a->hparams[i].value, b->hparams[i].value) == 0);
    REQUIRE(a->n_options == b->n_options);
    for (size_t i = 0; i < a->n_options; i++)
        REQUIRE(strcmp(a->options[i].name, b->options[i].name) == 0 &&
                strcmp(a->options[i].value, b->options[i].value) == 0);
    REQUIRE(SAME_ARRAY(weights, n_weights));
    REQUIRE(SAME_ARRAY(sites, n_sites));
    REQUIRE(SAME_ARRAY(edges, n_edges));
    REQUIRE(a->n_prompts == b->n_prompts && a->n_factors == b->n_factors && a->n_arms == b->n_arms);
    for (size_t i = 0; i < a->n_prompts; i++) {
        const struct ds_prompt *p = &a->prompts[i], *q = &b->prompts[i];
        REQUIRE(p->request == q->request && strcmp(p->text, q->text) == 0 &&
                p->n_tokens == q->n_tokens);
        REQUIRE(memcmp(p->tokens, q->tokens, p->n_tokens * sizeof *p->tokens) == 0);
    }
    for (size_t j = 0; j < a->n_factors; j++)
        REQUIRE(strcmp(a->factors[j], b->factors[j]) == 0);
    for (size_t i = 0; i < a->n_arms; i++)
        for (size_t j = 0; j < a->n_factors; j++)
            REQUIRE(strcmp(a->arms[i].values[j], b->arms[i].values[j]) == 0);
    return NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

static char fixture_dir[256];

static inline int fixture_setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(fixture_dir, sizeof fixture_dir, "%s/ds-record-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return mkdtemp(fixture_dir) ? 0 : -1;
}

static inline int fixture_teardown(void **state)
{
    (void)state;
    return rmdir(fixture_dir); /* fails when a test leaves something behind */
}

static inline const char *fixture_path(const char *name)
{
    static char path[4][512];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", fixture_dir, name);
    return path[next];
}

static inline long file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

static inline char *file_read(const char *path, size_t *n)
{
    *n = (size_t)file_bytes(path);
    char *bytes = malloc(*n + 1);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static inline void file_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A finished record of trials 0 .. n - 1. */
static inline void fixture_record(const char *path, uint64_t seed, uint32_t n, uint32_t scale)
{
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w;
    fixture_header(seed, &h);
    assert_ok(ds_writer_create(path, 0, &h, &w, NULL, &err), err);
    for (uint32_t i = 0; i < n; i++) {
        struct ds_trial_data t;
        fixture_trial(seed, i, scale, &t);
        assert_ok(ds_writer_add(w, &t, &err), err);
        ds_trial_data_free(&t);
    }
    assert_ok(ds_writer_close(w, &err), err);
    ds_header_free(&h);
}

/* What reading a whole record gave. Each trial that could be read is the one that was written, or
 * the test fails. */
struct reading {
    int opened;
    size_t good, bad, incomplete, damaged; /* bad: trials or dumped rows with an error */
};

static inline struct reading read_everything(const char *path, uint64_t seed, uint32_t scale)
{
    struct reading got = {0};
    struct ds_error err = {"", ""};
    struct ds_record *r;
    struct ds_header h;
    if (ds_record_open(path, &r, &err) != 0) {
        assert_true(err.msg[0] != '\0');
        return got;
    }
    got.opened = 1;
    fixture_header(seed, &h);
    const char *difference = header_difference(&h, ds_record_header(r));
    ds_header_free(&h);
    if (difference)
        fail_msg("header: %s", difference);
    for (size_t i = 0; i < ds_record_trial_count(r); i++) {
        const struct ds_trial *info = ds_record_trial(r, i);
        struct ds_trial_data want;
        assert_true(info->arm < FIXTURE_ARMS);
        fixture_trial(seed, info->repeat * FIXTURE_ARMS + info->arm, scale, &want);
        if ((difference = info_difference(&want.info, info)) != NULL)
            fail_msg("row of trial %zu: %s", i, difference);
        const struct ds_trial_data *t = ds_record_load(r, i, &err);
        got.good += t != NULL;
        got.bad += t == NULL;
        if (t && (difference = trial_difference(&want, t)) != NULL)
            fail_msg("trial %zu: %s", i, difference);
        for (size_t k = 0; t && k < want.n_blobs; k++) {
            struct ds_blob blob, *b = &want.blobs[k];
            int found = ds_record_blob(r, b->digest, &blob, &err);
            got.bad += found < 0;
            if (found < 0)
                continue;
            assert_int_equal(found, 1);
            assert_int_equal(blob.bytes, b->bytes);
            assert_memory_equal(blob.data, b->data, b->bytes);
            assert_int_equal(blob.elements, b->bytes ? b->elements : 0);
            assert_true(b->bytes == 0 || strcmp(blob.dtype, b->dtype) == 0);
            free(blob.data);
            /* another one, from the end: rows are found in any order, with and without a copy */
            b = &want.blobs[want.n_blobs - 1 - k];
            found = ds_record_view(r, b->digest, &blob, &err);
            assert_true(found == 1 || found < 0);
            if (found == 1 && (blob.bytes != b->bytes || memcmp(blob.data, b->data, b->bytes) != 0))
                fail_msg("trial %zu: row %zu has other bytes when it is not copied", i, k);
        }
        ds_trial_data_free(&want);
    }
    got.incomplete = ds_record_incomplete(r);
    got.damaged = ds_record_damaged(r);
    ds_record_close(r);
    return got;
}

/* The library leaks small blocks of its own when it refuses a damaged file; ours are still counted.
 */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5_serial";
}

const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
    return "print_suppressions=0";
}

#endif
