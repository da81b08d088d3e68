/* test_verdicts.c: what `driftscope run` and `diff` say of sets, cores and changed models, held
 * against direct calls of the library and against what was changed. Each case runs on a seeded
 * model with the real model's shapes, and again on the real model where it is there. */
#include "tests/unit/testing.h"

#include "base/buf.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "kernels/registry.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHAPED                                                                                     \
    "random:llama,layers=2,hidden=576,heads=9,kv_heads=3,ffn=1536,vocab=640,ctx=256,seed=5"

static char folder[] = "/tmp/driftscope-test-XXXXXX";

static const char *program(void)
{
    const char *p = getenv("DRIFTSCOPE");
    return p ? p : "build/driftscope";
}

/* The real model's path, or NULL. */
static const char *real_model(void)
{
    static char path[4096];
    return ds_model_cache_path("smollm2", path, sizeof path) == 0 ? path : NULL;
}

/* Runs the program with these arguments; parses stdout as JSON. *code: exit code. */
static json_t *run_json(int *code, const char *fmt, ...)
{
    char args[8192], command[9000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(args, sizeof args, fmt, ap);
    va_end(ap);
    snprintf(command, sizeof command, "%s %s", program(), args);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    struct ds_buf out = {0};
    char block[4096];
    size_t n;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        ds_buf_add(&out, block, n);
    int status = pclose(f);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    json_error_t je;
    json_t *json = json_loads(out.data ? out.data : "", 0, &je);
    if (!json)
        print_error("%s\nexit %d, not JSON (%s): %.400s\n", command, *code, je.text,
                    out.data ? out.data : "");
    ds_buf_free(&out);
    return json;
}

static const char *text_at(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "(none)";
}

static json_t *kernel_named(json_t *verdict, const char *op, const char *variant)
{
    size_t i;
    json_t *k;
    json_array_foreach(json_object_get(verdict, "kernels"), i,
                       k) if (strcmp(text_at(k, "op"), op) == 0 &&
                              strcmp(text_at(k, "variant"), variant) == 0) return k;
    return NULL;
}

/* ---- vendor: the switches are the library's own ---------------------------------------------- */

enum { MOST = 48 };

/* In a process of its own, calls the library directly: for M = 1..MOST, is row 0 the same as at M - 1, at the shapes of the
 * layers? Core SkylakeX has one more in the wide ones. Bit M of *mask is set
 * where it is not. */
static int direct_switches(const char *core, int threads, uint64_t *mask)
{
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        enum { HIDDEN = 576, KV = 192, FFN = 1536 };
        static float x[MOST * FFN], w[FFN * FFN], y[MOST * FFN], before[FFN];
        static const int shapes[][2] = {{HIDDEN, HIDDEN}, {KV, HIDDEN}, {FFN, HIDDEN}, {HIDDEN, FFN}};
        struct ds_error err;
        uint64_t m = 0;
        uint32_t z = 12345;
        if (ds_blas_open(core, &err) != 0)
            _exit(1);
        ds_blas_set_threads(threads);
        for (size_t i = 0; i < sizeof x / sizeof *x; i++)
            x[i] = (float)((z = z * 1664525u + 1013904223u) >> 8) / 16777216.0f - 0.5f;
        for (size_t i = 0; i < sizeof w / sizeof *w; i++)
            w[i] = (float)((z = z * 1664525u + 1013904223u) >> 8) / 16777216.0f - 0.5f;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int rows = 1; rows <= MOST; rows++) {
                const int n = shapes[s][0], depth = shapes[s][1];
                ds_blas_sgemm_nt(rows, n, depth, x, depth, w, depth, y, n);
                if (rows > 1 && memcmp(before, y, (size_t)n * sizeof *y) != 0)
                    m |= UINT64_C(1) << rows;
                memcpy(before, y, (size_t)n * sizeof *y);
            }
        _exit(write(fd[1], &m, sizeof m) == sizeof m ? 0 : 1);
    }
    close(fd[1]);
    int got = read(fd[0], mask, sizeof *mask) == sizeof *mask;
    close(fd[0]);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return got ? 0 : -1;
}

/* Batches 1..most. */
static void check_vendor(const char *model, const char *core, int threads, int most)
{
    uint64_t direct, told = 0;
    int code;
    char batches[256] = "1";
    for (int b = 2; b <= most; b++)
        snprintf(batches + strlen(batches), sizeof batches - strlen(batches), ",%d", b);
    if (direct_switches(core, threads, &direct) != 0) {
        print_message("OpenBLAS with core %s is not to be had here\n", core);
        skip();
    }
    json_t *v = run_json(
        &code,
        "run -m '%s' -q --no-record --json --repeat 2 --kernels vendor --blas-core %s --threads %d "
        "--batch %s --slot first --neighbours copies --chunk 0 --mode prefill "
        "--tokens 3 -n 2 --dump none",
        model, core, threads, batches);
    assert_non_null(v);
    json_t *k = kernel_named(v, "matmul", "openblas"), *m;
    assert_non_null(k);
    size_t i;
    json_array_foreach(json_object_get(k, "switches_rows"), i, m) if (json_integer_value(m) <= most)
        told |= UINT64_C(1) << json_integer_value(m);
    direct &= (UINT64_C(2) << most) - 1;
    if (told != direct)
        print_error("core %s, %d threads: the verdict says rows %#llx, the library itself %#llx\n",
                    core, threads, (unsigned long long)told, (unsigned long long)direct);
    assert_true(told == direct);
    assert_int_equal(code, direct ? 1 : 0);
    if (direct) {
        json_t *first = json_object_get(v, "first_drift");
        assert_int_equal(json_integer_value(json_object_get(first, "layer")), 0);
        assert_string_equal(text_at(first, "stage"), "q_proj");
        assert_string_equal(text_at(first, "op"), "matmul");
        assert_string_equal(text_at(first, "variant"), "openblas");
        assert_string_equal(text_at(first, "label"), "origin");
        assert_string_equal(text_at(first, "factor"), "batch");
        assert_string_equal(text_at(first, "kind"), "rounding-order");
        assert_true(json_is_true(json_object_get(v, "stable")));
    }
    json_decref(v);
}

static void test_vendor_switches_where_the_library_does_1_thread(void **state)
{
    (void)state;
    check_vendor(SHAPED, "Haswell", 1, MOST);
}

static void test_vendor_switches_where_the_library_does_2_threads(void **state)
{
    (void)state;
    check_vendor(SHAPED, "Haswell", 2, MOST);
}

static void test_vendor_switches_where_the_library_does_other_cores(void **state)
{
    (void)state;
    static const char *const cores[] = {"Zen", "Sandybridge", "SkylakeX"};
    int ran = 0;
    for (size_t i = 0; i < 3; i++) {
        if (ds_blas_core_runs_here(cores[i]) != 1) {
            print_message("this CPU cannot run OpenBLAS core %s: skipped\n", cores[i]);
            continue;
        }
        check_vendor(SHAPED, cores[i], 1, MOST);
        ran++;
    }
    if (!ran)
        skip();
}

static void test_real_vendor_switches_where_the_library_does(void **state)
{
    (void)state;
    if (!real_model())
        skip();
    check_vendor(real_model(), "Haswell", 1, 16);
    check_vendor(real_model(), "Haswell", 2, 16);
}

/* ---- pinned: the same on every factor -------------------------------------------------------- */

static void check_pinned(const char *model, const char *batches, const char *cores)
{
    int code;
    json_t *v = run_json(
        &code,
        "run -m '%s' -q --no-record --json --repeat 2 --kernels pinned --blas-core %s --threads "
        "1,2,3 "
        "--batch %s --slot first,middle,last --neighbours copies,varied --padding 0,3 --chunk "
        "0,1,4,7 "
        "--mode prefill,decode --process 1,2 --tokens 3,9,27,81,243,100,5,17,33,65,129,2 -n 3",
        model, cores, batches);
    assert_non_null(v);
    if (code != 0)
        print_error("first drift: %s\n", json_dumps(json_object_get(v, "first_drift"), 0));
    assert_int_equal(code, 0);
    assert_string_equal(text_at(v, "result"), "same");
    assert_true(json_is_null(json_object_get(v, "first_drift")));
    assert_true(json_integer_value(
                    json_object_get(json_object_get(v, "counts"), "digests_compared")) > 10000);
    size_t i, j;
    json_t *k, *f;
    json_array_foreach(json_object_get(v, "kernels"), i, k)
    {
        const char *factor;
        json_t *cond;
        json_object_foreach(json_object_get(k, "conditions"), factor,
                            cond) if (strcmp(json_string_value(cond), "same") != 0 &&
                                      strcmp(json_string_value(cond), "not-run") != 0)
            fail_msg("%s/%s is '%s' on %s", text_at(k, "op"), text_at(k, "variant"),
                     json_string_value(cond), factor);
    }
    /* Every factor that was varied was also compared. */
    static const char *const varied[] = {"batch", "slot", "neighbours", "padding",  "threads",
                                         "chunk", "mode", "process",    "blas-core"};
    const size_t n =
        sizeof varied / sizeof varied[0] - !strchr(cores, ','); /* one core: not varied */
    for (j = 0; j < n; j++) {
        int seen = 0;
        json_array_foreach(json_object_get(v, "factors"), i, f) seen |=
            strcmp(text_at(f, "factor"), varied[j]) == 0 &&
            json_array_size(json_object_get(f, "classes")) == 1;
        if (!seen)
            fail_msg("factor %s was not compared", varied[j]);
    }
    json_decref(v);
}

/* Cores that run here, comma-separated, "default" first. */
static const char *cores_here(void)
{
    static char list[256];
    static const char *const cores[] = {"Haswell", "Zen", "Sandybridge", "SkylakeX"};
    strcpy(list, "default");
    for (size_t i = 0; i < 4; i++)
        if (ds_blas_core_runs_here(cores[i]) == 1)
            strcat(strcat(list, ","), cores[i]);
        else
            print_message("this CPU cannot run OpenBLAS core %s: skipped\n", cores[i]);
    return list;
}

static void test_pinned_is_the_same_on_every_factor(void **state)
{
    (void)state;
    check_pinned(
        "random:llama,layers=3,hidden=96,heads=6,kv_heads=2,ffn=160,vocab=300,ctx=128,seed=11",
        "1,2,3,4,7,8,13,16", cores_here());
}

/* Rows stored in unlike formats have no bits in common: the factor dtype is never blamed, each
 * format is judged on its own. */
static void test_unlike_formats_are_not_compared(void **state)
{
    (void)state;
    int code;
    json_t *v = run_json(
        &code,
        "run -m random:llama,layers=2,hidden=48,heads=4,kv_heads=2,ffn=64,vocab=96,ctx=64,seed=3 "
        "-q "
        "--no-record --json --repeat 2 --kernels pinned --threads 1 --batch 1,3 --dtype "
        "bf16,f32,f16 -n 2");
    assert_non_null(v);
    assert_int_equal(code, 0);
    assert_string_equal(text_at(v, "result"), "same");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "counts"), "arms")),
                     3 * 6);
    size_t i;
    json_t *f;
    json_array_foreach(json_object_get(v, "factors"), i,
                       f) if (strcmp(text_at(f, "factor"), "dtype") == 0)
        assert_int_equal(json_integer_value(json_object_get(f, "compared")), 0);
    json_decref(v);
}

static void test_real_pinned_is_the_same_on_every_factor(void **state)
{
    (void)state;
    if (!real_model())
        skip();
    check_pinned(real_model(), "1,2,5,16", cores_here());
}

/* ---- changed models: named by diff ----------------------------------------------------------- */

/* A whole file in memory. */
static char *load(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*size);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, f), *size);
    fclose(f);
    return bytes;
}

static void store(const char *path, const char *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* Element i of an F32 tensor inside a GGUF file's bytes. */
static char *f32_in(char *bytes, size_t size, const char *tensor, size_t i)
{
    struct ds_error err;
    struct ds_gguf *g;
    assert_ok(ds_gguf_open_bytes(bytes, size, "model under change", &g, &err), err);
    const struct ds_gguf_tensor *t = ds_gguf_tensor_find(g, tensor);
    assert_non_null(t);
    assert_int_equal(t->type, 0);
    size_t offset = (size_t)((const char *)t->data - bytes) + 4 * i;
    ds_gguf_close(g);
    return bytes + offset;
}

/* The value of an F32 metadata key: it follows the key's text and a 4-byte type. */
static char *f32_value_of(char *bytes, size_t size, const char *key)
{
    char *at = memmem(bytes, size, key, strlen(key));
    assert_non_null(at);
    return at + strlen(key) + 4;
}

enum change { ONE_ULP, NAN_WEIGHT, EPSILON };

static void write_changed(const char *from, const char *to, enum change change, const char *tensor,
                          const char *epsilon_key)
{
    size_t size;
    char *bytes = load(from, &size);
    uint32_t u;
    if (change == EPSILON) {
        float eps = 1e-3f;
        memcpy(f32_value_of(bytes, size, epsilon_key), &eps, 4);
    } else {
        char *at = f32_in(bytes, size, tensor, 7);
        memcpy(&u, at, 4);
        u = change == ONE_ULP ? u + 1 : 0x7fc00000u;
        memcpy(at, &u, 4);
    }
    store(to, bytes, size);
    free(bytes);
}

static void record(const char *model, int code, const char *path)
{
    char command[9000];
    snprintf(
        command, sizeof command,
        "%s run -m '%s' -q --force -o '%s' --repeat 1 --kernels pinned --threads 1 --batch 1 "
        "--slot first --neighbours "
        "copies --chunk 0 --mode prefill --tokens 3,9,27,40,5,17,33 -n 2 --dump all >/dev/null",
        program(), model, path);
    int status = system(command);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

/* diff of the model and a changed one: the changed weight or field is named, and the first drift is
 * at its own site. */
static void check_change(const char *model, enum change change, const char *tensor, int layer,
                         const char *stage)
{
    char changed[256], a[256], b[256];
    int code;
    snprintf(changed, sizeof changed, "%s/changed.gguf", folder);
    snprintf(a, sizeof a, "%s/a.h5", folder);
    snprintf(b, sizeof b, "%s/b.h5", folder);
    write_changed(model, changed, change, tensor, "llama.attention.layer_norm_rms_epsilon");
    record(model, 0, a);
    /* Of a model whose results are NaN throughout the capture itself is an objection. */
    record(changed, change == NAN_WEIGHT ? 2 : 0, b);
    json_t *v = run_json(&code, "diff -q --json %s %s", a, b);
    assert_non_null(v);
    assert_int_equal(code, 1);
    json_t *first = json_object_get(v, "first_drift");
    assert_int_equal(json_integer_value(json_object_get(first, "layer")), layer);
    assert_string_equal(text_at(first, "stage"), stage);
    assert_string_equal(text_at(first, "label"), "origin");
    char *all = json_dumps(v, 0);
    assert_non_null(strstr(all, change == EPSILON ? "rms_eps" : tensor));
    if (change == NAN_WEIGHT) {
        json_t *bad = json_object_get(v, "first_nonfinite");
        assert_true(json_is_object(bad));
        assert_int_equal(json_integer_value(json_object_get(bad, "layer")), layer);
        assert_string_equal(text_at(bad, "stage"), stage);
    }
    free(all);
    json_decref(v);
    unlink(changed);
    unlink(a);
    unlink(b);
}

static void check_all_changes(const char *model, int layer)
{
    char tensor[64];
    snprintf(tensor, sizeof tensor, "blk.%d.ffn_norm.weight", layer);
    check_change(model, ONE_ULP, tensor, layer, "ffn_norm");
    check_change(model, NAN_WEIGHT, tensor, layer, "ffn_norm");
    check_change(model, EPSILON, NULL, 0, "attn_norm");
}

static void test_a_changed_model_is_named(void **state)
{
    (void)state;
    check_all_changes("tests/data/gguf/tiny.gguf", 1);
}

static void test_real_a_changed_model_is_named(void **state)
{
    (void)state;
    if (!real_model())
        skip();
    check_all_changes(real_model(), 17);
}

static void test_diff_names_the_blas_core(void **state)
{
    (void)state;
    const char *other = ds_blas_core_runs_here("SkylakeX") == 1 ? "SkylakeX" : "Sandybridge";
    if (strcmp(other, "SkylakeX") != 0)
        print_message("this CPU cannot run OpenBLAS core SkylakeX: %s stands in\n", other);
    char a[256], b[256], command[9000];
    if (ds_blas_core_runs_here("Haswell") != 1)
        skip();
    for (int i = 0; i < 2; i++) {
        snprintf(i ? b : a, sizeof a, "%s/core%d.h5", folder, i);
        snprintf(command, sizeof command,
                 "%s run -m '%s' -q --force -o '%s' --repeat 1 --blas-core %s --threads 1 --batch "
                 "1,8 --slot first "
                 "--neighbours copies --chunk 0 --mode prefill --tokens 3,9,27,81 -n 2 --dump all "
                 ">/dev/null",
                 program(), SHAPED, i ? b : a, i ? other : "Haswell");
        int status = system(command);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    }
    snprintf(command, sizeof command, "%s diff -q %s %s", program(), a, b);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    static char text[65536];
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    int status = pclose(f);
    assert_int_equal(WEXITSTATUS(status), 1);
    if (!strstr(text, "Haswell") || !strstr(text, other))
        print_error("%s\n", text);
    assert_non_null(strstr(text, "Haswell"));
    assert_non_null(strstr(text, other));
    /* Both sides' rows are dumped, so the size of the difference says what it is. */
    assert_non_null(strstr(text, "rounding-order"));
    unlink(a);
    unlink(b);
}

/* A token that is there twice has the same row twice, and where bits depend on the place in the call,
 * a row has the bits that its twin has on the other side. That is no row in the wrong place. */
static void test_equal_tokens_are_not_misplaced_rows(void **state)
{
    (void)state;
    int code;
    json_t *j = run_json(
        &code,
        "run -q --no-record --json -m "
        "random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128 "
        "--tokens "
        "5,5,5,5,5,5,5,9,9,9,9,9,9,9,5,5,5,5,5,9,9,9,9,9,9,9,9,9,9,5,5,5,5,5,5,5,5,5,5,5,5 -n 2 "
        "--batch 1,2 --threads 1 --slot first --neighbours copies --chunk 0,5 --mode prefill "
        "--repeat 1 "
        "--kernels pinned+matmul=stream-k");
    assert_int_equal(code, 1);
    json_t *first = json_object_get(j, "first_drift");
    assert_string_equal(text_at(first, "stage"), "q_proj");
    assert_string_equal(text_at(first, "kind"), "rounding-order");
    assert_true(json_is_null(json_object_get(first, "structure")));
    size_t i;
    json_t *f;
    json_array_foreach(json_object_get(j, "factors"), i, f)
    {
        json_t *drift = json_object_get(f, "first_drift");
        if (!json_is_null(drift))
            assert_string_not_equal(text_at(drift, "kind"), "wrong-data");
    }
    json_decref(j);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vendor_switches_where_the_library_does_1_thread),
        cmocka_unit_test(test_vendor_switches_where_the_library_does_2_threads),
        cmocka_unit_test(test_vendor_switches_where_the_library_does_other_cores),
        cmocka_unit_test(test_real_vendor_switches_where_the_library_does),
        cmocka_unit_test(test_pinned_is_the_same_on_every_factor),
        cmocka_unit_test(test_unlike_formats_are_not_compared),
        cmocka_unit_test(test_real_pinned_is_the_same_on_every_factor),
        cmocka_unit_test(test_a_changed_model_is_named),
        cmocka_unit_test(test_real_a_changed_model_is_named),
        cmocka_unit_test(test_diff_names_the_blas_core),
        cmocka_unit_test(test_equal_tokens_are_not_misplaced_rows),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
