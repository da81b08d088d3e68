/* test_forward_device.c: the forward pass on a device with memory of its own: the CPU's bits at every site
 * for every way to cut a call, what crosses between host and device, weights as they were sent, faults. Host
 * code that looks at the device's memory ends these tests with SIGSEGV (kernels/sim/memory.h). */
#include "tests/unit/engine/forward_testing.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/sim/memory.h"

enum { TEXT = 12 };

static const char small[] = "random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=311,"
                            "bias=1,rope_dim=8,seed=5";
static const char *const specs[] = {
    small,
    "random:qwen3,layers=2,hidden=48,heads=3,kv_heads=1,head_dim=20,ffn=64,vocab=101,seed=9",
    "random:qwen2moe,layers=2,hidden=32,heads=2,kv_heads=1,ffn=24,vocab=101,experts=4,top_k=2,"
    "shared_ffn=40,seed=3",
    "random:llama,layers=2,hidden=32,heads=2,kv_heads=2,ffn=40,vocab=101,window=5,softcap=3,seed=3",
};
enum { N_SPECS = sizeof specs / sizeof specs[0] };

static void test_bits_of_the_cpu(void **state)
{
    static const int dtypes[] = {DS_F32, DS_BF16, DS_F16};
    static const struct {
        int32_t which[3], n, chunk, pads, page_size;
        int poison, all_logits;
    } cuts[] = {{{0}, 1, 0, 0, 0, 0, 1}, {{2, 0, 1}, 3, 5, 2, 4, 1, 0}, {{1, 0}, 2, 1, 0, 8, 0, 0}};
    (void)state;
    for (int m = 0; m < N_SPECS; m++) {
        struct ds_model *model = open_model(specs[m]);
        for (int d = 0; d < 3; d++)
            for (size_t c = m == 0 || d == 0 ? 0 : 1; c < sizeof cuts / sizeof cuts[0]; c++) {
                struct setting s = {.kernels = "pinned",
                                    .dtype = dtypes[d],
                                    .threads = 1,
                                    .chunk = cuts[c].chunk,
                                    .pads = cuts[c].pads,
                                    .page_size = cuts[c].page_size,
                                    .poison = cuts[c].poison,
                                    .all_logits = cuts[c].all_logits};
                struct ds_probe *cpu = run_texts(model, &s, cuts[c].which, cuts[c].n, TEXT);
                s.kernels = "sim:pinned";
                struct ds_probe *sim = run_texts(model, &s, cuts[c].which, cuts[c].n, TEXT);
                assert_int_equal(cpu->shown, sim->shown);
                for (int32_t i = 0; i < cuts[c].n; i++)
                    assert_same_rows(cpu, cuts[c].which[i], sim, cuts[c].which[i], TEXT, specs[m]);
                keeper_free(cpu);
                keeper_free(sim);
            }
        ds_model_close(model);
    }
}

static void test_scores(void **state)
{
    struct ds_model *m = open_model(small);
    const int32_t which[] = {1, 0};
    struct setting s = {
        .kernels = "pinned", .dtype = DS_BF16, .threads = 1, .chunk = 5, .score_keys = TEXT};
    (void)state;
    struct ds_probe *cpu = run_texts(m, &s, which, 2, TEXT);
    s.kernels = "sim:pinned";
    struct ds_probe *sim = run_texts(m, &s, which, 2, TEXT);
    assert_int_equal(cpu->shown, sim->shown);
    assert_true(assert_same_rows(cpu, 1, sim, 1, TEXT, "scores") > 0);
    keeper_free(cpu);
    keeper_free(sim);
    ds_model_close(m);
}

/* ---- faults -------------------------------------------------------------------------------------------- */

static int new_pass(struct ds_model *m, struct ds_forward **f, struct ds_error *err)
{
    struct setting s = {.kernels = "sim:pinned", .dtype = DS_F32, .threads = 1};
    struct ds_forward_config c = config_of(&s, TEXT, 1, TEXT);
    *f = NULL;
    return ds_forward_new(m, &c, f, err);
}

static void test_out_of_memory(void **state)
{
    struct ds_model *m = open_model(small);
    struct ds_forward *f;
    struct ds_error err;
    int told = 0;
    (void)state;
    for (size_t limit = 4096; limit < 1 << 24; limit *= 2) {
        ds_sim_memory_limit(limit);
        const int rc = new_pass(m, &f, &err);
        ds_forward_free(f);
        ds_sim_memory_limit(0);
        if (rc == 0)
            break;
        assert_non_null(strstr(err.msg, "out of memory on sim: "));
        assert_non_null(strstr(err.msg, " bytes, "));
        told++;
    }
    assert_true(told > 3);
    ds_model_close(m);
    assert_true(ds_sim_memory_free() == ds_sim_memory_size()); /* all of it was given back */
}

static void test_failed_allocations_are_errors(void **state)
{
    struct ds_model *m = open_model(specs[2]);
    struct ds_error err;
    long n = 0, failed = 0;
    (void)state;
    for (int rc = -1; rc != 0 && n < 10000; n++) {
        struct ds_forward *f;
        ds_mem_fail_at(n + 1);
        rc = new_pass(m, &f, &err);
        ds_mem_fail_at(0);
        failed += rc != 0;
        ds_forward_free(f);
    }
    assert_true(failed > 40 && failed == n - 1);
    ds_model_close(m);
    assert_true(ds_sim_memory_free() == ds_sim_memory_size());
}

/* A second pass finds the weights where the first one put them. */
static void test_weights_are_sent_once(void **state)
{
    struct ds_model *m = open_model(small);
    struct ds_forward *f, *g;
    struct ds_error err;
    (void)state;
    assert_ok(new_pass(m, &f, &err), err);
    const size_t before = ds_sim_memory_free();
    assert_ok(new_pass(m, &g, &err), err);
    const size_t pass = before - ds_sim_memory_free();
    ds_forward_free(f);
    ds_forward_free(g);
    size_t weights = 0;
    for (size_t i = 0; i < m->n_weights; i++)
        weights += (size_t)(m->weights[i].rows * m->weights[i].cols) * sizeof(float);
    assert_true(ds_sim_memory_size() - ds_sim_memory_free() >= weights);
    assert_true(ds_sim_memory_size() - before >= weights + pass);
    ds_model_close(m);
    assert_true(ds_sim_memory_free() == ds_sim_memory_size());
}

static void test_weights_are_those_that_were_sent(void **state)
{
    struct ds_model *m = open_model(small);
    struct ds_forward *f;
    struct ds_error err;
    (void)state;
    m->weights[3].data[1] += 1.0f; /* as if the copy had gone wrong */
    assert_int_equal(new_pass(m, &f, &err), -1);
    assert_non_null(strstr(err.msg, m->weights[3].name));
    assert_non_null(strstr(err.msg, "on sim has digest"));
    ds_model_close(m);
}

/* ---- 16 bits --------------------------------------------------------------------------------------------- */

/* What a kernel of sim was given, and then that kernel's own work. */
static const struct ds_kernel *real_add, *real_matmul;
static int32_t add_stored, x_stored, y_stored, weights_are; /* -2: not launched */
static int logits_seen;

static int watch_add(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_add_args *a = args;
    assert_true(add_stored == -2 || add_stored == a->stored);
    add_stored = a->stored;
    return real_add->launch(args, exec, why, why_size);
}

static int watch_matmul(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    if (a->y_stored != a->stored)
        logits_seen = a->y_stored == DS_ELEMENT_F32 && a->n == 311;
    else
        y_stored = a->y_stored;
    assert_true(x_stored == -2 || x_stored == a->stored);
    x_stored = a->stored;
    if (a->n != 311) /* the head may be the embedding's table */
        weights_are = a->w.data ? 0 : a->w.file_type;
    return real_matmul->launch(args, exec, why, why_size);
}

/* One call of the small model on sim, whose add may take 16-bit rows or not; the memory that it took. */
static size_t run_watched(struct ds_model *m, int dtype, uint32_t add_features, uint32_t *digest)
{
    static struct ds_kernel add, matmul;
    struct setting s = {.kernels = "sim:pinned", .dtype = dtype, .threads = 1};
    struct ds_forward_config c = config_of(&s, TEXT, 1, TEXT);
    struct ds_forward *f;
    struct ds_error err;
    const int32_t tokens[] = {5, 9, 1}, *ids;
    int32_t n;
    const float *logits;
    struct ds_batch_seq seq = {.tokens = tokens, .n_tokens = 3, .logits_from = 2};
    struct ds_batch batch = {.seqs = &seq, .n_seqs = 1};
    real_add = c.kernels.op[DS_OP_ADD];
    real_matmul = c.kernels.op[DS_OP_MATMUL];
    add = *real_add;
    add.launch = watch_add;
    add.features = add_features;
    matmul = *real_matmul;
    matmul.launch = watch_matmul;
    c.kernels.op[DS_OP_ADD] = &add;
    c.kernels.op[DS_OP_MATMUL] = &matmul;
    add_stored = x_stored = y_stored = weights_are = -2;
    logits_seen = 0;
    const size_t before = ds_sim_memory_free();
    assert_ok(ds_forward_new(m, &c, &f, &err), err);
    const size_t took = before - ds_sim_memory_free();
    assert_ok(ds_forward_run(f, &batch, NULL, &logits, &ids, &n, &err), err);
    *digest = 0;
    for (int32_t i = 0; i < 311; i++)
        *digest = *digest * 31 + ds_f32_bits(logits[i]);
    ds_forward_free(f);
    return took;
}

static void test_rows_lie_in_16_bits(void **state)
{
    static const int dtypes[] = {DS_BF16, DS_F16}, elements[] = {DS_ELEMENT_BF16, DS_ELEMENT_F16};
    struct ds_model *m = open_model(small);
    uint32_t stored, widened, plain;
    (void)state;
    (void)run_watched(m, DS_F32, DS_FEATURE_STORED, &plain); /* the weights stay there */
    const size_t f32 = run_watched(m, DS_F32, DS_FEATURE_STORED, &plain);
    assert_int_equal(x_stored, DS_ELEMENT_F32);
    for (int i = 0; i < 2; i++) {
        const size_t half = run_watched(m, dtypes[i], DS_FEATURE_STORED, &stored);
        assert_int_equal(add_stored, elements[i]);
        assert_int_equal(x_stored, elements[i]);
        assert_int_equal(y_stored, elements[i]);
        assert_true(logits_seen);
        assert_true(half < f32);
        /* One kernel that cannot, and rows are f32 that hold 16-bit values: the same bits. */
        assert_true(run_watched(m, dtypes[i], 0, &widened) > half);
        assert_int_equal(add_stored, DS_ELEMENT_F32);
        assert_int_equal(x_stored, DS_ELEMENT_F32);
        assert_true(stored == widened && stored != plain);
    }
    ds_model_close(m);
}

/* As if the model's file had them as BF16. */
static void round_weights(struct ds_model *m)
{
    for (size_t i = 0; i < m->n_weights; i++) {
        struct ds_weight *w = &m->weights[i];
        const size_t n = (size_t)(w->rows * w->cols);
        for (size_t k = 0; k < n; k++)
            w->data[k] = ds_bf16_value(ds_bf16_round(w->data[k]));
        w->digest = ds_digest(w->data, n * sizeof *w->data);
        snprintf(w->file_dtype, sizeof w->file_dtype, "bf16");
    }
}

static void test_weights_of_16_bits(void **state)
{
    struct ds_model *m = open_model(small);
    const int32_t which[] = {1, 0};
    (void)state;
    round_weights(m);
    for (int d = 0; d < 2; d++) {
        struct setting s = {.kernels = "pinned", .dtype = d ? DS_BF16 : DS_F32, .threads = 1};
        struct ds_probe *cpu = run_texts(m, &s, which, 2, TEXT);
        s.kernels = "sim:pinned";
        struct ds_probe *sim = run_texts(m, &s, which, 2, TEXT);
        assert_int_equal(cpu->shown, sim->shown);
        assert_same_rows(cpu, 1, sim, 1, TEXT, "weights of 16 bits");
        keeper_free(cpu);
        keeper_free(sim);
    }
    uint32_t digest;
    (void)run_watched(m, DS_BF16, DS_FEATURE_STORED, &digest);
    assert_int_equal(weights_are, 30);
    ds_model_close(m);
    /* Values that the type cannot have are no rounding matter. */
    struct ds_forward *f;
    struct ds_error err;
    m = open_model(small);
    round_weights(m);
    for (size_t i = 0; i < m->n_weights; i++)
        if (strcmp(m->weights[i].name, "blk.1.ffn_up.weight") == 0)
            m->weights[i].data[7] = 0x1.000002p0f;
    assert_int_equal(new_pass(m, &f, &err), -1);
    assert_non_null(strstr(err.msg, "blk.1.ffn_up.weight: its values are not those that bf16 can"));
    ds_model_close(m);
}

/* A kernel that is no kernel: its launch function looks at the device's rows itself. The launch is refused
 * with the site's name when it says so; here it asks for nothing that it must not have. */
static int launch_refused(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)args;
    snprintf(why, why_size, "memory %d, %d multiprocessors", exec->memory, exec->multiprocessors);
    return -1;
}

static void test_faults_name_their_site(void **state)
{
    static const struct ds_kernel refused = {.abi = DS_KERNEL_ABI,
                                             .op = DS_OP_ROPE,
                                             .name = "refused",
                                             .launch = launch_refused,
                                             .device = DS_DEVICE_SIM};
    struct ds_model *m = open_model(small);
    struct setting s = {.kernels = "sim:pinned", .dtype = DS_F32, .threads = 1};
    struct ds_forward_config c = config_of(&s, TEXT, 1, TEXT);
    struct ds_forward *f;
    struct ds_error err;
    const int32_t token = 1, *ids;
    int32_t n;
    const float *logits;
    struct ds_batch_seq seq = {.tokens = &token, .n_tokens = 1};
    struct ds_batch batch = {.seqs = &seq, .n_seqs = 1};
    (void)state;
    c.kernels.op[DS_OP_ROPE] = &refused;
    assert_ok(ds_forward_new(m, &c, &f, &err), err);
    assert_int_equal(ds_forward_run(f, &batch, NULL, &logits, &ids, &n, &err), -1);
    assert_non_null(strstr(err.msg, "layer 0 q_rope: rope/refused: memory 1, 64 multiprocessors"));
    ds_forward_free(f);
    ds_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_of_the_cpu),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_failed_allocations_are_errors),
        cmocka_unit_test(test_weights_are_sent_once),
        cmocka_unit_test(test_weights_are_those_that_were_sent),
        cmocka_unit_test(test_rows_lie_in_16_bits),
        cmocka_unit_test(test_weights_of_16_bits),
        cmocka_unit_test(test_faults_name_their_site),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
