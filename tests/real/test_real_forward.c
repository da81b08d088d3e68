/* test_real_forward.c: the forward pass of the real model: every stage against float64, greedy
 * tokens against llama.cpp. Reads fixtures made by tests/tools/make_oracle_fixtures.py; skips where
 * the model is not in the cache. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "engine/forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TOKENS = 256, MAX_PROMPTS = 8, MAX_ROWS = 16 };

static struct ds_model *model;

static int open_real_model(void **state)
{
    (void)state;
    struct ds_error err;
    const char *named = getenv("DRIFTSCOPE_MODEL");
    char path[4096];
    if (!named && ds_model_cache_path("smollm2", path, sizeof path) != 0)
        return 0;
    if (ds_model_open(named ? named : path, 2, &model, &err) == 0)
        return 0;
    print_error("%s\n", err.msg);
    return -1;
}

static int close_real_model(void **state)
{
    (void)state;
    ds_model_close(model);
    return 0;
}

/* Skips, saying why, unless model and kernels are there. */
static void need(const char *kernels, struct ds_kernel_set *set)
{
    struct ds_error err;
    if (!model) {
        print_message("           no real model in the cache (make model)\n");
        skip();
    }
    assert_ok(ds_kernel_set_parse(kernels, set, &err), err);
    if (!strcmp(kernels, "vendor") && ds_blas_open("", &err) != 0) {
        print_message("           %s\n", err.msg);
        skip();
    }
    assert_ok(ds_kernel_set_available(set, &err), err);
}

/* ---- stages against float64 ------------------------------------------------------------------ */

struct oracle_site {
    int32_t layer;
    char stage[24];
    uint32_t width, n;
    const unsigned char *channels, *values; /* little-endian u32 [n]; f32 [n_rows][n] */
};

struct oracle {
    unsigned char *bytes;
    size_t size, at;
    int32_t tokens[MAX_TOKENS];
    uint32_t n_tokens, n_rows, n_sites, rows[MAX_ROWS];
    struct oracle_site *sites;
};

static const unsigned char *take(struct oracle *o, size_t n)
{
    assert_true(n <= o->size - o->at);
    o->at += n;
    return o->bytes + o->at - n;
}

static uint32_t u32_at(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void read_oracle(const char *path, struct oracle *o)
{
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    memset(o, 0, sizeof *o);
    fseek(in, 0, SEEK_END);
    o->size = (size_t)ftell(in);
    rewind(in);
    o->bytes = malloc(o->size);
    assert_non_null(o->bytes);
    assert_int_equal(fread(o->bytes, 1, o->size, in), o->size);
    fclose(in);
    assert_memory_equal(take(o, 8), "DSORACLE", 8);
    assert_int_equal(u32_at(take(o, 4)), 1);
    o->n_tokens = u32_at(take(o, 4));
    assert_in_range(o->n_tokens, 1, MAX_TOKENS);
    for (uint32_t i = 0; i < o->n_tokens; i++)
        o->tokens[i] = (int32_t)u32_at(take(o, 4));
    o->n_rows = u32_at(take(o, 4));
    assert_in_range(o->n_rows, 1, MAX_ROWS);
    for (uint32_t i = 0; i < o->n_rows; i++)
        o->rows[i] = u32_at(take(o, 4));
    o->n_sites = u32_at(take(o, 4));
    o->sites = calloc(o->n_sites, sizeof *o->sites);
    assert_non_null(o->sites);
    for (uint32_t i = 0; i < o->n_sites; i++) {
        struct oracle_site *s = &o->sites[i];
        s->layer = (int32_t)u32_at(take(o, 4));
        memcpy(s->stage, take(o, 24), 24);
        s->width = u32_at(take(o, 4));
        s->n = u32_at(take(o, 4));
        s->channels = take(o, s->n * (size_t)4);
        s->values = take(o, s->n * (size_t)4 * o->n_rows);
    }
    assert_int_equal(o->at, o->size);
}

/* A stand-in for the real probe, at link time: compares what it is shown with the oracle. */
struct ds_probe {
    const struct oracle *oracle;
    const struct ds_site *sites;
    uint32_t n_sites;
    struct ds_row rows[MAX_TOKENS];
    uint32_t n_rows;
    double *diff_sq, *size_sq; /* [n_sites] */
    uint32_t *values;          /* [n_sites] compared */
};

int ds_probe_heals(const struct ds_probe *p)
{
    (void)p;
    return 0;
}

/* This test runs on the CPU, where every row is read where it is. */
int ds_probe_wants(const struct ds_probe *p, uint32_t site)
{
    (void)p, (void)site;
    return 1;
}

int ds_probe_site_far(struct ds_probe *p, uint32_t site, const struct ds_launch *launch, void *data,
                      size_t stride_bytes, uint32_t width, const uint32_t *only, uint32_t n_only,
                      struct ds_probe_far *far, struct ds_error *err)
{
    (void)p, (void)site, (void)launch, (void)data, (void)stride_bytes, (void)width, (void)only;
    (void)n_only, (void)far;
    return ds_fail(err, "rows of a device");
}

int ds_probe_begin_call(struct ds_probe *p, uint32_t phase, uint32_t m, uint32_t sequences,
                        const struct ds_row *rows, uint32_t n_rows, struct ds_error *err)
{
    (void)phase, (void)m, (void)sequences, (void)err;
    assert_true(n_rows <= MAX_TOKENS);
    memcpy(p->rows, rows, n_rows * sizeof *rows);
    p->n_rows = n_rows;
    return 0;
}

/* kv_write/k must hold k_rope, kv_write/v must hold v_proj. */
static const char *oracle_name(const struct ds_site *s)
{
    if (strcmp(s->stage, "logits_processed") == 0)
        return "logits"; /* the largest is chosen: they are left as they are */
    if (strcmp(s->stage, "kv_write"))
        return s->stage;
    return *s->part == 'k' ? "k_rope" : "v_proj";
}

static void compare_row(struct ds_probe *p, uint32_t site, const struct oracle_site *o,
                        uint32_t oracle_row, const float *got)
{
    const unsigned char *want = o->values + (size_t)oracle_row * o->n * 4;
    for (uint32_t i = 0; i < o->n; i++) {
        uint32_t channel = u32_at(o->channels + 4 * (size_t)i);
        assert_true(channel < o->width);
        double w = (double)ds_f32_from_bits(u32_at(want + 4 * (size_t)i)),
               d = (double)got[channel] - w;
        p->diff_sq[site] += d * d;
        p->size_sq[site] += w * w;
        p->values[site]++;
    }
}

int ds_probe_site(struct ds_probe *p, uint32_t site, const struct ds_launch *launch, void *data,
                  size_t stride_bytes, uint32_t width, const uint32_t *only, uint32_t n_only,
                  struct ds_error *err)
{
    (void)launch, (void)err;
    for (uint32_t s = 0; s < p->oracle->n_sites; s++) {
        const struct oracle_site *o = &p->oracle->sites[s];
        if (o->layer != p->sites[site].layer || strcmp(o->stage, oracle_name(&p->sites[site])))
            continue;
        assert_int_equal(o->width, width);
        for (uint32_t i = 0; i < (only ? n_only : p->n_rows); i++) {
            const struct ds_row *r = &p->rows[only ? only[i] : i];
            const char *row = (const char *)data + (only ? i : (size_t)r->slot) * stride_bytes;
            for (uint32_t k = 0; k < p->oracle->n_rows; k++)
                if ((uint32_t)r->position == p->oracle->rows[k])
                    compare_row(p, site, o, k, (const float *)(const void *)row);
        }
    }
    return 0;
}

/* Runs the oracle's tokens through `kernels`, in calls of `chunk`, and reports the worst site of
 * every stage. */
static void compare_stages(const char *kernels, int threads, int32_t chunk)
{
    struct ds_forward_config c = {
        .threads = threads, .max_rows = MAX_TOKENS, .n_requests = 1, .capacity = MAX_TOKENS};
    need(kernels, &c.kernels);
    struct ds_error err;
    struct oracle o;
    read_oracle("tests/data/oracle/stages.bin", &o);
    struct ds_site *sites;
    struct ds_edge *edges;
    uint32_t n_sites, n_edges;
    assert_ok(ds_forward_sites(model, DS_F32, &sites, &n_sites, &edges, &n_edges, &err), err);
    struct ds_probe p = {.oracle = &o, .sites = sites, .n_sites = n_sites};
    p.diff_sq = calloc(n_sites, sizeof *p.diff_sq);
    p.size_sq = calloc(n_sites, sizeof *p.size_sq);
    p.values = calloc(n_sites, sizeof *p.values);
    assert_true(p.diff_sq && p.size_sq && p.values);
    struct ds_forward *f;
    assert_ok(ds_forward_new(model, &c, &f, &err), err);
    for (int32_t done = 0, n = (int32_t)o.n_tokens; done < n; done += chunk) {
        struct ds_batch_seq seq = {.tokens = o.tokens + done,
                                   .n_tokens = n - done < chunk ? n - done : chunk,
                                   .record = 1};
        struct ds_batch batch = {.seqs = &seq, .n_seqs = 1};
        const float *logits;
        const int32_t *ids;
        int32_t rows;
        assert_ok(ds_forward_run(f, &batch, &p, &logits, &ids, &rows, &err), err);
    }
    ds_forward_free(f);

    double worst[64] = {0}, worst_of_all = 0;
    int n_stages = 0, bad = 0;
    const char *names[64];
    for (uint32_t s = 0; s < n_sites; s++) {
        if (!strcmp(sites[s].dtype, "i32"))
            continue;
        assert_true(p.values[s] >= 3 * 36); /* every site but whole numbers is in the fixture */
        double d = sqrt(p.diff_sq[s] / p.size_sq[s]);
        int i = 0;
        while (i < n_stages && strcmp(names[i], sites[s].stage))
            i++;
        if (i == n_stages)
            names[n_stages++] = sites[s].stage;
        worst[i] = fmax(worst[i], d);
        worst_of_all = fmax(worst_of_all, d);
        if (!(d <= 1e-5)) {
            print_error("%s: layer %d %s%s: relative L2 %.3g\n", kernels, (int)sites[s].layer,
                        sites[s].stage, sites[s].part, d);
            bad++;
        }
    }
    print_message("           %s, chunk %d, worst relative L2 %.2g; by stage:", kernels, (int)chunk,
                  worst_of_all);
    for (int i = 0; i < n_stages; i++)
        print_message(" %s %.2g", names[i], worst[i]);
    print_message("\n");
    free(p.diff_sq);
    free(p.size_sq);
    free(p.values);
    free(sites);
    free(edges);
    free(o.sites);
    free(o.bytes);
    assert_int_equal(bad, 0);
}

static void test_real_reference_stages(void **state)
{
    (void)state;
    compare_stages("reference", 2, 4);
}

static void test_real_pinned_stages(void **state)
{
    (void)state;
    compare_stages("pinned", 2, MAX_TOKENS);
}

static void test_real_vendor_stages(void **state)
{
    (void)state;
    compare_stages("vendor", 1, MAX_TOKENS);
    compare_stages("vendor", 2, 1);
}

/* ---- greedy tokens against llama.cpp --------------------------------------------------------- */

struct prompt {
    char name[64];
    int32_t ids[MAX_TOKENS], greedy[MAX_TOKENS];
    double margin[MAX_TOKENS];
    int n_ids, n_greedy, n_margin;
};

static int read_ids(char *text, int32_t *out)
{
    int n = 0;
    for (char *word = strtok(text, " \n"); word; word = strtok(NULL, " \n")) {
        assert_true(n < MAX_TOKENS);
        out[n++] = (int32_t)strtol(word, NULL, 10);
    }
    return n;
}

static int read_prompts(const char *path, struct prompt *prompts)
{
    static char line[1 << 16];
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    int n = 0;
    while (fgets(line, sizeof line, in)) {
        if (*line == '#')
            continue;
        if (!strncmp(line, "prompt ", 7)) {
            assert_true(n < MAX_PROMPTS);
            memset(&prompts[n], 0, sizeof prompts[n]);
            snprintf(prompts[n++].name, sizeof prompts[0].name, "%.*s",
                     (int)strcspn(line + 7, "\n"), line + 7);
            continue;
        }
        assert_true(n > 0);
        struct prompt *p = &prompts[n - 1];
        if (!strncmp(line, "ids ", 4))
            p->n_ids = read_ids(line + 4, p->ids);
        else if (!strncmp(line, "greedy ", 7))
            p->n_greedy = read_ids(line + 7, p->greedy);
        else if (!strncmp(line, "margin ", 7))
            for (char *word = strtok(line + 7, " \n"); word && p->n_margin < MAX_TOKENS;
                 word = strtok(NULL, " \n"))
                p->margin[p->n_margin++] = strtod(word, NULL);
    }
    fclose(in);
    for (int i = 0; i < n; i++)
        assert_true(prompts[i].n_ids > 0 && prompts[i].n_greedy == 64 && prompts[i].n_margin == 64);
    return n;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One request under way. */
struct progress {
    int done, step; /* prompt ids fed; tokens chosen */
    int32_t fed;    /* the token fed next */
};

/* What request i feeds next: a piece of its prompt, or llama.cpp's last token. Fed with its tokens
 * rather than ours, so that one close choice does not spoil the rest. */
static struct ds_batch_seq next_piece(const struct prompt *p, struct progress *at, int i,
                                      int32_t chunk)
{
    struct ds_batch_seq seq = {.request = i, .tokens = &at->fed, .n_tokens = 1};
    int left = p->n_ids - at->done;
    if (left > 0) {
        seq.tokens = p->ids + at->done;
        seq.n_tokens = left < chunk ? left : chunk;
        seq.logits_from = left <= chunk ? left - 1 : chunk;
        at->done += seq.n_tokens;
    } else {
        at->fed = p->greedy[at->step - 1];
    }
    return seq;
}

/* Whether our choice is llama.cpp's: 1, or 0 where its margin is too small to tell. Fails
 * otherwise. */
static int judge(const char *kernels, const struct prompt *p, int step, int32_t token)
{
    if (token == p->greedy[step])
        return 1;
    if (!(p->margin[step] < 1e-3))
        fail_msg("%s: %s step %d: token %d, llama.cpp has %d with a margin of %.3g nats", kernels,
                 p->name, step, (int)token, (int)p->greedy[step], p->margin[step]);
    print_message("           %s step %d: token %d, llama.cpp %d; its margin is only %.3g nats\n",
                  p->name, step, (int)token, (int)p->greedy[step], p->margin[step]);
    return 0;
}

/* All prompts in one ragged batch, prefill of one beside decode of another, as a serving engine
 * does. */
static void compare_greedy(const char *kernels, int threads, int steps, int32_t chunk)
{
    static struct prompt prompts[MAX_PROMPTS];
    struct progress at[MAX_PROMPTS] = {{0, 0, 0}};
    struct ds_forward_config c = {.threads = threads,
                                  .max_rows = MAX_TOKENS,
                                  .n_requests = MAX_PROMPTS,
                                  .capacity = MAX_TOKENS,
                                  .page_size = 16};
    need(kernels, &c.kernels);
    struct ds_error err;
    struct ds_forward *f;
    int n_prompts = read_prompts("tests/data/oracle/greedy.txt", prompts), same = 0, close = 0;
    assert_int_equal(n_prompts, 3);
    assert_ok(ds_forward_new(model, &c, &f, &err), err);
    double start = now();
    for (;;) {
        struct ds_batch_seq seqs[MAX_PROMPTS];
        struct ds_batch batch = {.seqs = seqs};
        for (int i = 0; i < n_prompts; i++)
            if (at[i].step < steps)
                seqs[batch.n_seqs++] = next_piece(&prompts[i], &at[i], i, chunk);
        if (!batch.n_seqs)
            break;
        const float *logits;
        const int32_t *ids;
        int32_t rows, row = 0;
        assert_ok(ds_forward_run(f, &batch, NULL, &logits, &ids, &rows, &err), err);
        for (int i = 0; i < batch.n_seqs; i++) {
            if (seqs[i].logits_from == seqs[i].n_tokens)
                continue;
            int r = seqs[i].request, sure = judge(kernels, &prompts[r], at[r].step++, ids[row++]);
            same += sure;
            close += !sure;
        }
        assert_int_equal(row, rows);
    }
    print_message("           %s: %d tokens as llama.cpp, %d too close to call, %.1f s\n", kernels,
                  same, close, now() - start);
    assert_int_equal(same + close, 3 * steps);
    ds_forward_free(f);
}

static void test_real_vendor_greedy(void **state)
{
    (void)state;
    compare_greedy("vendor", 2, 64, MAX_TOKENS);
}

static void test_real_pinned_greedy(void **state)
{
    (void)state;
    compare_greedy("pinned", 2, 64, 17);
}

static void test_real_reference_greedy(void **state)
{
    (void)state;
    compare_greedy("reference", 2, 4, 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_reference_stages), cmocka_unit_test(test_real_pinned_stages),
        cmocka_unit_test(test_real_vendor_stages),    cmocka_unit_test(test_real_vendor_greedy),
        cmocka_unit_test(test_real_pinned_greedy),    cmocka_unit_test(test_real_reference_greedy),
    };
    return cmocka_run_group_tests(tests, open_real_model, close_real_model);
}
