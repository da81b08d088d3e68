/* test_model.c: models from GGUF files: weights, hyperparameters, names in the cache, packing, the
 * rope table. What is refused: test_model_refuse.c. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "engine/model.h"
#include "kernels/registry.h"
#include "tests/unit/engine/gguf_builder.h"

#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#define DATA     "tests/data/gguf/"
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        print_error("\"%s\" does not contain \"%s\"\n", text, part);
        fail();
    }
}

static struct ds_model *open_good(const char *spec, int threads)
{
    struct ds_model *m = NULL;
    struct ds_error err = {0};
    assert_ok(ds_model_open(spec, threads, &m, &err), err);
    return m;
}

static const struct ds_weight *weight(const struct ds_model *m, const char *name)
{
    for (size_t i = 0; i < m->n_weights; i++)
        if (strcmp(m->weights[i].name, name) == 0)
            return &m->weights[i];
    return NULL;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The f32 file holds the package's numbers in the order of the weight list. */
static void check_weights(const char *gguf, const char *f32, int threads)
{
    struct ds_model *m = open_good(gguf, threads);
    size_t size = 0, at = 0;
    unsigned char *want = read_file(f32, &size);
    assert_non_null(want);
    XXH3_state_t *whole = XXH3_createState();
    assert_non_null(whole);
    XXH3_64bits_reset(whole);
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct ds_weight *w = &m->weights[i];
        size_t n = (size_t)(w->rows * w->cols);
        assert_true(at + n * 4 <= size);
        assert_int_equal((uintptr_t)w->data % 64, 0);
        for (size_t e = 0; e < n; e++) {
            float x;
            memcpy(&x, want + at + 4 * e, 4);
            assert_bits_equal(w->name, e, w->data[e], x);
        }
        assert_true(w->digest == XXH3_64bits(want + at, n * 4));
        const struct ds_gguf_tensor *t = ds_gguf_tensor_find(m->gguf, w->name);
        assert_non_null(t);
        assert_true(w->loaded == XXH3_64bits(t->data, t->bytes));
        unsigned char le[8];
        for (int b = 0; b < 8; b++)
            le[b] = (unsigned char)(w->digest >> (8 * b));
        XXH3_64bits_update(whole, w->name, strlen(w->name) + 1);
        XXH3_64bits_update(whole, le, 8);
        at += n * 4;
    }
    assert_int_equal(at, size);
    assert_true(m->digest == XXH3_64bits_digest(whole));
    XXH3_freeState(whole);
    free(want);
    ds_model_close(m);
}

static void test_weights_and_digests(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        check_weights(DATA "tiny.gguf", DATA "tiny.f32", threads);
        check_weights(DATA "full.gguf", DATA "full.f32", threads);
    }
}

/* Kept as the file has them: the same digests, vectors as f32, matrices in the map, embedding rows
 * equal. */
static void check_kept(const char *path)
{
    struct ds_error err = {0};
    struct ds_model *plain = open_good(path, 1), *kept = NULL;
    assert_ok(ds_model_open_as(path, DS_WEIGHTS_FILE, 2, &kept, &err), err);
    assert_true(kept->digest == plain->digest);
    assert_int_equal(kept->n_weights, plain->n_weights);
    size_t in_file = 0;
    for (size_t i = 0; i < kept->n_weights; i++) {
        const struct ds_weight *w = &kept->weights[i], *p = &plain->weights[i];
        assert_string_equal(w->name, p->name);
        assert_true(w->digest == p->digest && w->loaded == p->loaded && w->loaded != 0);
        int matrix = w == kept->embed || w == kept->head || w->rows > 1;
        assert_true((w->data == NULL) == matrix && (w->file_data != NULL) == matrix);
        assert_true(p->data && !p->file_data);
        in_file += w->file_data != NULL;
        if (w->data)
            assert_memory_equal(w->data, p->data, (size_t)(w->rows * w->cols) * sizeof(float));
    }
    assert_true(in_file >= 15 && kept->arena_bytes < plain->arena_bytes / 4);
    const int32_t ids[] = {47, 0, 3, 3, 1};
    float got[5 * 32], want[5 * 32];
    assert_int_equal(kept->hp.d_model, 32);
    ds_model_embed_rows(kept, ids, 5, got);
    ds_model_embed_rows(plain, ids, 5, want);
    assert_memory_equal(got, want, sizeof got);
    assert_memory_equal(got, plain->embed->data + 47 * 32, 32 * sizeof(float));
    ds_model_close(plain);
    ds_model_close(kept);
}

static void test_weights_kept_as_in_the_file(void **state)
{
    (void)state;
    check_kept(DATA "tiny.gguf");
    check_kept(DATA "full.gguf");
    struct ds_model *m = NULL;
    struct ds_error err = {0};
    assert_int_equal(ds_model_open_as("random:llama", DS_WEIGHTS_FILE, 1, &m, &err), -1);
    assert_has(err.msg, "random:llama: a random model has no file");
    assert_has(err.hint, "--weights f32");
    assert_null(m);
}

/* A kernel that reads f32 only never sees such a model. */
static void test_kept_weights_need_a_kernel_that_reads_them(void **state)
{
    (void)state;
    struct ds_model *m = NULL;
    struct ds_error err = {0};
    const struct ds_kernel *pinned = ds_kernel_find(DS_OP_MATMUL, "pinned"),
                           *plain = ds_kernel_find(DS_OP_MATMUL, "reference");
    assert_ok(ds_model_open_as(DATA "full.gguf", DS_WEIGHTS_FILE, 1, &m, &err), err);
    assert_int_equal(ds_model_prepare(m, plain, 1, &err), -1);
    assert_has(err.msg, "matmul/reference reads f32 weights only");
    assert_has(err.hint, "matmul=pinned");
    assert_ok(ds_model_prepare(m, pinned, 1, &err), err);
    size_t bytes = 0;
    for (size_t i = 0; i < m->n_weights; i++)
        bytes += m->prepared_bytes[i];
    assert_non_null(ds_model_prepared(m, pinned, m->layers[0].q));
    assert_null(ds_model_prepared(m, pinned, m->layers[0].attn_norm));
    ds_model_close(m);
    m = open_good(DATA "full.gguf", 1);
    assert_ok(ds_model_prepare(m, pinned, 1, &err), err);
    size_t plain_bytes = 0;
    for (size_t i = 0; i < m->n_weights; i++)
        plain_bytes += m->prepared_bytes[i];
    assert_true(bytes > 0 && bytes < plain_bytes / 2);
    ds_model_close(m);
}

static void test_pointers_and_hyperparameters(void **state)
{
    (void)state;
    struct ds_model *m = open_good(DATA "tiny.gguf", 1);
    assert_string_equal(m->name, "tiny.gguf");
    assert_string_equal(m->path, DATA "tiny.gguf");
    assert_int_equal(m->n_weights, 20);
    assert_ptr_equal(m->head, m->embed);
    assert_int_equal(m->hp.tied, 1);
    assert_null(m->rope_freqs);
    assert_null(m->layers[0].q_bias);
    assert_int_equal(m->hp.rope_dim, 8);
    assert_true(m->hp.rope_base == 10000.0f && m->hp.rope_scale == 1.0f && m->hp.rms_eps == 1e-6f);
    assert_non_null(m->gguf);
    ds_model_close(m);

    m = open_good(DATA "full.gguf", 1);
    static const struct {
        const char *name, *text;
    } want[] = {{"arch", "llama"},      {"n_layers", "2"},
                {"d_model", "32"},      {"n_heads", "4"},
                {"n_kv_heads", "2"},    {"head_dim", "16"},
                {"d_ff", "64"},         {"vocab", "48"},
                {"context", "128"},     {"rope_dim", "8"},
                {"rope_base", "50000"}, {"rope_scale", "2"},
                {"rope_neox", "0"},     {"rms_eps", "9.99999997e-07"},
                {"tied", "0"}};
    const char *name;
    char text[64];
    for (size_t i = 0; i < COUNT(want); i++) {
        assert_int_equal(ds_hparam_text(&m->hp, i, &name, text, sizeof text), 0);
        assert_string_equal(name, want[i].name);
        assert_string_equal(text, want[i].text);
    }
    assert_int_equal(ds_hparam_text(&m->hp, COUNT(want), &name, text, sizeof text), -1);
    for (int l = 0; l < 2; l++) {
        const struct ds_layer *y = &m->layers[l];
        const struct ds_weight *all[] = {y->attn_norm, y->q,        y->q_bias, y->k,
                                         y->k_bias,    y->v,        y->v_bias, y->o,
                                         y->o_bias,    y->ffn_norm, y->gate,   y->gate_bias,
                                         y->up,        y->up_bias,  y->down,   y->down_bias};
        static const char *const names[] = {
            "attn_norm.weight", "attn_q.weight",   "attn_q.bias",     "attn_k.weight",
            "attn_k.bias",      "attn_v.weight",   "attn_v.bias",     "attn_output.weight",
            "attn_output.bias", "ffn_norm.weight", "ffn_gate.weight", "ffn_gate.bias",
            "ffn_up.weight",    "ffn_up.bias",     "ffn_down.weight", "ffn_down.bias"};
        for (size_t i = 0; i < COUNT(all); i++) {
            char full[64];
            snprintf(full, sizeof full, "blk.%d.%s", l, names[i]);
            assert_string_equal(all[i]->name, full);
        }
        assert_string_equal(y->q->file_dtype, l ? "q4_0" : "q4_1");
        assert_true(y->q->rows == 64 && y->q->cols == 32 && y->o->rows == 32 && y->o->cols == 64);
        assert_true(y->k_bias->rows == 1 && y->k_bias->cols == 32);
    }
    assert_string_equal(m->head->name, "output.weight");
    assert_ptr_equal(m->rope_freqs, weight(m, "rope_freqs.weight")->data);
    ds_model_close(m);
}

static void test_forked_workers_share_the_weights(void **state)
{
    (void)state;
    struct ds_model *m = open_good(DATA "tiny.gguf", 2);
    float was = m->embed->data[0];
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int same = m->embed->data[0] == was;
        m->embed->data[0] = 12.0f; /* seen by the parent only if the memory is one and the same */
        _exit(same ? 0 : 1);
    }
    int status;
    assert_true(waitpid(pid, &status, 0) == pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(m->embed->data[0] == 12.0f);
    ds_model_close(m);
}

/* ---- the real model -------------------------------------------------------------------------- */

/* smollm2.digests was made with the gguf package: every tensor of the real file, bit for bit. */
static void test_real_every_tensor_equals_the_package(void **state)
{
    (void)state;
    char path[4096];
    const char *own = getenv("DRIFTSCOPE_MODEL");
    if (own && *own)
        snprintf(path, sizeof path, "%s", own);
    else if (ds_model_cache_path("smollm2", path, sizeof path) != 0)
        skip();
    struct ds_model *m = open_good(path, 2);
    FILE *f = fopen(DATA "smollm2.digests", "r");
    assert_non_null(f);
    char name[64], dtype[8];
    long rows, cols;
    unsigned long long digest;
    size_t n = 0;
    for (; fscanf(f, "%63s %7s %ld %ld %llx", name, dtype, &rows, &cols, &digest) == 5; n++) {
        const struct ds_weight *w = weight(m, name);
        assert_non_null(w);
        assert_string_equal(w->file_dtype, dtype);
        assert_true(w->rows == rows && w->cols == cols);
        if (w->digest != digest) {
            print_error("%s: digest %016llx, the package's is %016llx\n", name,
                        (unsigned long long)w->digest, digest);
            fail();
        }
    }
    fclose(f);
    assert_int_equal(n, 272);
    assert_int_equal(m->n_weights, 272);
    assert_true(m->hp.n_layers == 30 && m->hp.n_heads == 9 && m->hp.n_kv_heads == 3 &&
                m->hp.rope_base == 100000.0f);
    ds_model_close(m);
}

/* ---- failing allocations --------------------------------------------------------------------- */

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const specs[] = {DATA "full.gguf",
                                        "random:llama,layers=1,hidden=8,heads=2,vocab=8"};
    for (size_t s = 0; s < COUNT(specs); s++) {
        long n = 1;
        for (;; n++) {
            struct ds_model *m = NULL;
            struct ds_error err = {0};
            ds_mem_fail_at(n);
            int rc = ds_model_open(specs[s], 2, &m, &err);
            ds_mem_fail_at(0);
            if (rc == 0) {
                ds_model_close(m);
                break;
            }
            assert_null(m);
            assert_has(err.msg, "out of memory");
        }
        assert_true(n > 5);
    }
}

/* ---- names in the cache ---------------------------------------------------------------------- */

static void test_cache_folder_follows_the_environment(void **state)
{
    (void)state;
    static const char *const variables[] = {"DRIFTSCOPE_CACHE", "XDG_CACHE_HOME", "HOME"};
    static const struct {
        const char *value[3], *path;
    } cases[] = {
        {{"/own", "/xdg", "/home/u"}, "/own/SmolLM2-135M-Instruct.Q4_1.gguf"},
        {{NULL, "/xdg", "/home/u"}, "/xdg/driftscope/SmolLM2-135M-Instruct.Q4_1.gguf"},
        {{"", "relative", "/home/u"}, "/home/u/.cache/driftscope/SmolLM2-135M-Instruct.Q4_1.gguf"},
        {{NULL, NULL, NULL}, ""},
    };
    char *old[3], path[4096];
    for (int v = 0; v < 3; v++)
        old[v] = getenv(variables[v]) ? strdup(getenv(variables[v])) : NULL;
    struct ds_model *m = NULL;
    struct ds_error err = {0};
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (int v = 0; v < 3; v++)
            if (cases[i].value[v])
                setenv(variables[v], cases[i].value[v], 1);
            else
                unsetenv(variables[v]);
        assert_int_equal(ds_model_cache_path("smollm2", path, sizeof path), 1);
        assert_string_equal(path, cases[i].path);
        assert_int_equal(ds_model_open("smollm2", 1, &m, &err), -1);
        assert_has(err.msg, path[0] ? path : "no cache folder");
        assert_has(err.hint, "make model");
    }
    assert_int_equal(ds_model_cache_path("smollm3", path, sizeof path), -1);
    char dir[] = "/tmp/driftscope-cache-XXXXXX";
    assert_non_null(mkdtemp(dir));
    setenv("DRIFTSCOPE_CACHE", dir, 1);
    assert_int_equal(ds_model_cache_path("smollm2", path, sizeof path), 1);
    char target[4096];
    assert_non_null(realpath(DATA "tiny.gguf", target));
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(ds_model_cache_path("smollm2", path, sizeof path), 0);
    assert_ok(ds_model_open("smollm2", 1, &m, &err), err);
    assert_string_equal(m->name, "SmolLM2-135M-Instruct.Q4_1.gguf");
    assert_string_equal(m->path, path);
    ds_model_close(m);
    unlink(path);
    rmdir(dir);
    for (int v = 0; v < 3; v++) {
        if (old[v])
            setenv(variables[v], old[v], 1);
        else
            unsetenv(variables[v]);
        free(old[v]);
    }
}

static void test_unknown_names(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *msg, *hint;
    } cases[] = {
        {"smolm2", "smolm2: no such file, and no model of that name is known",
         "did you mean \"smollm2\"?"},
        {"zzz", "zzz: no such file", "random:llama"},
        {"/nowhere/x.gguf", "/nowhere/x.gguf: no such file", ""},
        {"/tmp", "/tmp: is a directory", ""},
        {"", "no such file", ""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ds_model *m = NULL;
        struct ds_error err = {0};
        assert_int_equal(ds_model_open(cases[i].spec, 1, &m, &err), -1);
        assert_has(err.msg, cases[i].msg);
        assert_has(err.hint, cases[i].hint);
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

static int prepared_count; /* only changed with one thread */

static int prepare_twice(const struct ds_weight_view *w, void **prepared, size_t *bytes, char *why,
                         size_t why_size)
{
    (void)why, (void)why_size;
    size_t n = (size_t)(w->n * w->k);
    float *p = malloc(n * sizeof *p);
    if (!p)
        return -1;
    for (size_t i = 0; i < n; i++)
        p[i] = 2.0f * w->data[i];
    *prepared = p;
    *bytes = n * sizeof *p;
    return 0;
}

static int prepare_counted(const struct ds_weight_view *w, void **prepared, size_t *bytes,
                           char *why, size_t why_size)
{
    prepared_count++;
    return prepare_twice(w, prepared, bytes, why, why_size);
}

static int prepare_fails(const struct ds_weight_view *w, void **prepared, size_t *bytes, char *why,
                         size_t why_size)
{
    if (w->n == 32 && w->k == 64) { /* ffn_down */
        snprintf(why, why_size, "too wide");
        return -1;
    }
    return prepare_twice(w, prepared, bytes, why, why_size);
}

static const struct ds_kernel *matmul(const char *variant)
{
    return ds_kernel_find(DS_OP_MATMUL, variant);
}

/* Kernels that pack alike share one copy. Where nothing else reads the weights their f32 numbers go, all but the
 * embedding's, and what was packed is what it would have been; the model can still be asked for its digests. */
static void test_packed_weights_alone(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "random:llama,layers=2,hidden=96,heads=4,ffn=160,vocab=96,tied=1",
        "random:llama,layers=2,hidden=96,heads=4,ffn=160,vocab=96,tied=0",
        "random:qwen3moe,layers=1,hidden=64,heads=4,experts=4,ffn=96,vocab=64"};
    struct ds_error err;
    for (size_t c = 0; c < COUNT(specs); c++) {
        struct ds_model *a = open_good(specs[c], 1), *b = open_good(specs[c], 2);
        size_t packed = 0;
        assert_ok(ds_model_prepare(a, matmul("pinned"), 1, &err), err);
        ds_model_seal(b);
        assert_ok(ds_model_prepare_alone(b, matmul("split-k"), 2, &err), err);
        void *const *before = b->prepared;
        assert_ok(ds_model_prepare(b, matmul("pinned"), 1, &err), err);
        assert_ptr_equal(b->prepared, before);
        for (size_t i = 0; i < b->n_weights; i++) {
            const struct ds_weight *w = &b->weights[i];
            const void *is = ds_model_prepared(b, matmul("split-k"), w),
                       *other = ds_model_prepared(a, matmul("pinned"), &a->weights[i]);
            assert_int_equal(is != NULL, other != NULL);
            assert_ptr_equal(is, ds_model_prepared(b, matmul("pinned"), w));
            assert_int_equal(w->data == NULL, is != NULL && w != b->embed);
            if (!is)
                assert_memory_equal(w->data, a->weights[i].data,
                                    (size_t)(w->rows * w->cols) * sizeof(float));
            else
                assert_memory_equal(is, other, b->prepared_bytes[i]);
            packed += is != NULL;
        }
        assert_true(packed >= 8);
        assert_int_equal(a->digest, b->digest);
        ds_model_close(a);
        ds_model_close(b);
    }
    /* A kernel that reads f32 beside what it packed, or packs otherwise, keeps it. */
    struct ds_model *m = open_good(specs[0], 1);
    assert_ok(ds_model_prepare_alone(m, matmul("tf32"), 1, &err), err);
    assert_non_null(m->layers[0].q->data);
    ds_model_close(m);
}

static void test_prepare(void **state)
{
    (void)state;
    static const struct ds_kernel twice = {
        .abi = DS_KERNEL_ABI, .op = DS_OP_MATMUL, .name = "twice", .prepare = prepare_twice};
    static const struct ds_kernel counted = {
        .abi = DS_KERNEL_ABI, .op = DS_OP_MATMUL, .name = "counted", .prepare = prepare_counted};
    static const struct ds_kernel fails = {
        .abi = DS_KERNEL_ABI, .op = DS_OP_MATMUL, .name = "fails", .prepare = prepare_fails};
    static const struct ds_kernel plain = {
        .abi = DS_KERNEL_ABI, .op = DS_OP_MATMUL, .name = "plain"};
    struct ds_error err = {0};
    struct ds_model *m = open_good(DATA "tiny.gguf", 1);
    assert_null(ds_model_prepared(m, &twice, m->head));
    assert_ok(ds_model_prepare(m, &plain, 1, &err), err);
    assert_null(m->prepared);
    assert_ok(ds_model_prepare(m, &counted, 1, &err), err);
    assert_int_equal(prepared_count,
                     15); /* 7 in each of 2 layers, and the head, which is the embedding here */
    assert_ok(ds_model_prepare(m, &counted, 1, &err), err);
    assert_int_equal(prepared_count, 15);
    assert_ok(ds_model_prepare(m, &plain, 1, &err), err); /* changes nothing */
    const float *q = ds_model_prepared(m, &counted, m->layers[1].q);
    assert_non_null(q);
    assert_true(q[5] == 2.0f * m->layers[1].q->data[5]);
    assert_non_null(ds_model_prepared(m, &counted, m->embed));
    assert_null(ds_model_prepared(m, &counted, m->layers[0].attn_norm));
    assert_null(ds_model_prepared(m, &twice, m->layers[1].q));
    assert_ok(ds_model_prepare(m, &twice, 3, &err),
              err); /* replaces the other's; a leak would show under ASan */
    assert_null(ds_model_prepared(m, &counted, m->layers[1].q));
    const float *down = ds_model_prepared(m, &twice, m->layers[0].down);
    assert_non_null(down);
    assert_int_equal(m->prepared_bytes[m->layers[0].down - m->weights], 32 * 64 * 4);
    for (int threads = 1; threads <= 3; threads++) {
        assert_int_equal(ds_model_prepare(m, &fails, threads, &err), -1);
        assert_string_equal(err.msg, "matmul/fails cannot prepare blk.0.ffn_down.weight: too wide");
        assert_null(m->prepared);
        assert_null(m->prepared_by);
        assert_null(ds_model_prepared(m, &fails, m->layers[0].q));
    }
    assert_int_equal(ds_model_prepare(m, &twice, 0, &err), -1);
    for (long n = 1;; n++) {
        ds_mem_fail_at(n);
        int rc = ds_model_prepare(m, &twice, 2, &err);
        ds_mem_fail_at(0);
        if (rc == 0)
            break;
        assert_null(m->prepared);
    }
    ds_model_close(m);
    m = open_good(DATA "full.gguf", 1);
    assert_ok(ds_model_prepare(m, &twice, 2, &err), err);
    assert_non_null(ds_model_prepared(m, &twice, m->head));
    assert_null(ds_model_prepared(m, &twice, m->embed));
    assert_null(ds_model_prepared(m, &twice, m->layers[0].q_bias));
    ds_model_close(m);
}

/* ---- rope table ------------------------------------------------------------------------------ */

static void test_rope_table(void **state)
{
    (void)state;
    static const char *const specs[] = {DATA "tiny.gguf", DATA "full.gguf"};
    for (size_t s = 0; s < COUNT(specs); s++) {
        struct ds_model *m = open_good(specs[s], 1);
        struct ds_error err = {0};
        assert_ok(ds_model_rope_table(m, 0, &err), err);
        assert_int_equal(m->rope_positions, 0);
        for (int64_t want = 3; want <= 200; want += 66) {
            assert_ok(ds_model_rope_table(m, want, &err), err);
            assert_ok(ds_model_rope_table(m, 2, &err), err); /* never shrinks */
            assert_int_equal(m->rope_positions, want);
            for (int64_t p = 0; p < want; p++)
                for (int i = 0; i < 4; i++) {
                    /* Written out on its own; both files have a rope dimension of 8. */
                    double angle =
                        (double)p / (s ? 2.0 : 1.0) / pow(s ? 50000.0 : 10000.0, i / 4.0);
                    static const double divisors[] = {1.0, 1.5, 2.0, 8.0};
                    angle /= s ? divisors[i] : 1.0;
                    assert_close("cos", p, m->rope_table[(p * 4 + i) * 2], cos(angle), 1e-7);
                    assert_close("sin", p, m->rope_table[(p * 4 + i) * 2 + 1], sin(angle), 1e-7);
                }
        }
        ds_mem_fail_at(2);
        assert_int_equal(ds_model_rope_table(m, 300, &err), -1);
        ds_mem_fail_at(0);
        assert_has(err.msg, "rope table: out of memory");
        assert_int_equal(ds_model_rope_table(m, INT64_MAX, &err), -1);
        assert_has(err.msg, "rope table");
        assert_int_equal(m->rope_positions, 135);
        ds_model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_and_digests),
        cmocka_unit_test(test_weights_kept_as_in_the_file),
        cmocka_unit_test(test_kept_weights_need_a_kernel_that_reads_them),
        cmocka_unit_test(test_pointers_and_hyperparameters),
        cmocka_unit_test(test_forked_workers_share_the_weights),
        cmocka_unit_test(test_real_every_tensor_equals_the_package),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_cache_folder_follows_the_environment),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_packed_weights_alone),
        cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_rope_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
