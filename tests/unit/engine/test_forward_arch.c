/* test_forward_arch.c: every architecture against float64 (tests/data/arch, made by
 * tests/tools/make_arch_fixtures.py, whose results llama.cpp confirms), and what experts, norms of q
 * and k and windows must keep: pinned bits on every cut of the work, healing, poison, refusals. */
#include "tests/unit/engine/forward_testing.h"

#include "kernels/sim/memory.h"

#include "kernels/cpu/cpu.h"

#include <math.h>

#define DATA "tests/data/arch/"

static const char *const names[] = {"mixtral", "split",    "mixed",    "window", "windows", "qwen2",
                                    "qwen3",   "qwen2moe", "qwen3moe", "sparse", "listed"};
enum { N_NAMES = sizeof names / sizeof names[0], LENGTH = 12 };

static struct ds_model *open_fixture(const char *name, int keep)
{
    char path[64];
    struct ds_error err;
    struct ds_model *m;
    snprintf(path, sizeof path, DATA "%s.gguf", name);
    assert_ok(ds_model_open_as(path, keep, 1, &m, &err), err);
    return m;
}

/* One text in one request, in calls of `chunk` tokens, all logits. */
static struct ds_probe *run(struct ds_model *m, const char *kernels, int dtype, int threads,
                            int32_t chunk, const int32_t *tokens, const struct ds_probe *heal)
{
    struct ds_error err;
    struct ds_forward *f;
    struct setting s = {
        .kernels = kernels, .dtype = dtype, .threads = threads, .page_size = 8, .poison = 1};
    struct ds_forward_config c = config_of(&s, LENGTH, 1, LENGTH);
    assert_ok(ds_forward_new(m, &c, &f, &err), err);
    struct ds_probe *p = keeper_new(m, dtype);
    p->heal = heal;
    for (int32_t done = 0; done < LENGTH; done += chunk) {
        int32_t n = LENGTH - done < chunk ? LENGTH - done : chunk;
        struct ds_batch_seq seq = {.tokens = tokens + done, .n_tokens = n, .record = 1};
        struct ds_batch batch = {.seqs = &seq, .n_seqs = 1, .phase = DS_PHASE_PREFILL};
        const float *logits;
        const int32_t *ids;
        int32_t rows;
        assert_ok(ds_forward_run(f, &batch, p, &logits, &ids, &rows, &err), err);
    }
    ds_forward_free(f);
    return p;
}

/* ---- against float64 ------------------------------------------------------------------------- */

/* Compares one line "LAYER STAGE ROW VALUE..."; returns the values compared. */
static int check_line(const struct ds_probe *p, const char *name, char *line)
{
    char *rest, *layer = strtok_r(line, " \n", &rest), *stage = strtok_r(NULL, " \n", &rest),
                *row = strtok_r(NULL, " \n", &rest), *word;
    uint32_t site = site_of(p, atoi(layer), stage, ""), n = 0;
    const char *bytes = *row_at(p, site, 0, atoi(row));
    int whole = strcmp(p->sites[site].dtype, "i32") == 0;
    assert_non_null(bytes);
    for (; (word = strtok_r(NULL, " \n", &rest)); n++) {
        float x;
        int32_t id;
        assert_true(n < p->sites[site].width);
        memcpy(&x, bytes + n * sizeof x, sizeof x);
        memcpy(&id, bytes + n * sizeof id, sizeof id);
        double want = atof(word), got = whole ? (double)id : (double)x;
        if (!(fabs(got - want) <= (whole ? 0.0 : 5e-5)))
            fail_msg("%s: layer %s %s row %s element %u: %.9g instead of %.9g", name, layer, stage,
                     row, n, got, want);
    }
    assert_int_equal(n, p->sites[site].width);
    return (int)n;
}

static int32_t read_tokens(char *line, int32_t *tokens)
{
    char *rest, *word = strtok_r(line, " \n", &rest);
    int32_t n = 0;
    assert_string_equal(word, "tokens");
    while ((word = strtok_r(NULL, " \n", &rest)) && n < LENGTH)
        tokens[n++] = atoi(word);
    return n;
}

static void check_fixture(const char *name, struct ds_model *m, const char *kernels)
{
    char path[64], line[4096];
    int32_t tokens[LENGTH];
    snprintf(path, sizeof path, DATA "%s.expect", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_int_equal(read_tokens(line, tokens), LENGTH);
    struct ds_probe *p = run(m, kernels, DS_F32, 1, LENGTH, tokens, NULL);
    int values = 0;
    while (fgets(line, sizeof line, f))
        values += check_line(p, name, line);
    assert_true(values > 400);
    fclose(f);
    keeper_free(p);
}

static void test_every_architecture_is_what_float64_says(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        struct ds_model *m = open_fixture(names[i], DS_WEIGHTS_F32),
                        *kept = open_fixture(names[i], DS_WEIGHTS_FILE);
        assert_true(m->digest == kept->digest && m->n_weights == kept->n_weights);
        check_fixture(names[i], m, "reference");
        check_fixture(names[i], m, "pinned");
        check_fixture(names[i], kept, "pinned");
        ds_model_close(m);
        ds_model_close(kept);
    }
}

/* ---- pinned bits ----------------------------------------------------------------------------- */

static const int32_t text[LENGTH] = {3, 61, 17, 5, 5, 40, 22, 9, 33, 50, 12, 28};

static void test_weights_of_a_file_give_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        struct ds_model *m = open_fixture(names[i], DS_WEIGHTS_F32),
                        *kept = open_fixture(names[i], DS_WEIGHTS_FILE);
        struct ds_probe *a = run(m, "pinned", DS_BF16, 1, LENGTH, text, NULL),
                        *b = run(kept, "pinned", DS_BF16, 2, 5, text, NULL);
        assert_same_rows(a, 0, b, 0, LENGTH, names[i]);
        keeper_free(a);
        keeper_free(b);
        ds_model_close(m);
        ds_model_close(kept);
    }
}

static const char *const specs[] = {
    "random:llama,layers=2,hidden=32,heads=4,ffn=48,vocab=67,experts=4,top_k=2,ctx=64",
    "random:qwen2moe,layers=2,hidden=32,heads=4,ffn=48,vocab=67,experts=5,top_k=3,expert_ffn=20,"
    "shared_ffn=36,ctx=64",
    "random:qwen3moe,layers=2,hidden=32,heads=4,ffn=48,vocab=67,experts=3,top_k=3,ctx=64",
    "random:qwen3,layers=2,hidden=32,heads=4,head_dim=16,ffn=48,vocab=67,window=5,softcap=3,ctx=64",
    "random:qwen2moe,layers=4,hidden=32,heads=4,ffn=48,vocab=67,experts=3,expert_every=2,window=6,"
    "window_layers=0;3,ctx=64",
};
enum { N_SPECS = sizeof specs / sizeof specs[0], TEXT = 19 };

static void test_pinned_bits_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    static const struct {
        int32_t which[3], n, chunk, pads, page_size;
        int threads;
        const char *kernels;
    } cuts[] = {
        {{0}, 1, 1, 0, 0, 1, "pinned"},           {{0}, 1, 7, 0, 4, 2, "pinned"},
        {{0, 1, 2}, 3, 0, 0, 0, 2, "pinned"},     {{2, 1, 0}, 3, 5, 0, 8, 1, "pinned"},
        {{1, 0, 2}, 3, 0, 3, 0, 2, "pinned"},     {{1, 0}, 2, 1, 2, 4, 1, "pinned"},
        {{2, 1, 0}, 3, 9, 2, 8, 1, "sim:pinned"},
    };
    static const int dtypes[] = {DS_F32, DS_BF16, DS_F16};
    for (int m = 0; m < N_SPECS; m++) {
        struct ds_model *model = open_model(specs[m]);
        for (int d = 0; d < 3; d++) {
            struct setting s = {.kernels = "pinned", .dtype = dtypes[d], .threads = 1};
            struct ds_probe *want = run_texts(model, &s, (const int32_t[]){0}, 1, TEXT);
            for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
                struct setting cut = {.kernels = cuts[c].kernels,
                                      .dtype = dtypes[d],
                                      .threads = cuts[c].threads,
                                      .chunk = cuts[c].chunk,
                                      .pads = cuts[c].pads,
                                      .page_size = cuts[c].page_size,
                                      .poison = 1};
                struct ds_probe *got = run_texts(model, &cut, cuts[c].which, cuts[c].n, TEXT);
                assert_same_rows(want, 0, got, 0, TEXT, specs[m]);
                keeper_free(got);
            }
            keeper_free(want);
        }
        ds_model_close(model);
    }
}

/* M of an expert's launch is the number of rows that chose it; a row has one site a choice. */
static void test_launches_of_experts_have_their_rows(void **state)
{
    (void)state;
    struct ds_model *m = open_model(specs[0]);
    struct setting s = {.kernels = "pinned", .dtype = DS_F32, .threads = 1};
    struct ds_probe *p = run_texts(m, &s, (const int32_t[]){0}, 1, TEXT);
    uint32_t site = site_of(p, 1, "router_ids", "");
    assert_int_equal(p->sites[site].width, 2);
    int32_t of[4] = {0}, last = -1;
    for (int32_t pos = 0; pos < TEXT; pos++) {
        const int32_t *ids = (const int32_t *)(const void *)*row_at(p, site, 0, pos);
        assert_true(ids[0] != ids[1]);
        for (int k = 0; k < 2; k++)
            of[ids[k]]++;
        /* Experts are shown in order: the last launch is that of the highest. */
        last = ids[1] > last ? ids[1] : last;
    }
    assert_int_equal(of[0] + of[1] + of[2] + of[3], 2 * TEXT);
    assert_int_equal(p->launch[site_of(p, 1, "expert_out", "e1")].rows, of[last]);
    assert_int_equal(p->launch[site_of(p, 1, "act", "e0")].rows, 2 * TEXT);
    assert_int_equal(p->launch[site_of(p, 1, "moe_combine", "")].rows, TEXT);
    keeper_free(p);
    ds_model_close(m);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static int32_t wrong_id;

/* The reference, but the first row's last choice is another expert. */
static int launch_wrong(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_router_args *a = args;
    const int sim = exec->memory == DS_MEMORY_DEVICE;
    const struct ds_kernel *k =
        sim ? ds_kernel_find_on(DS_DEVICE_SIM, DS_OP_ROUTER, "pinned") : &ds_router_reference;
    if (k->launch(args, exec, why, why_size) != 0)
        return -1;
    if (sim)
        ds_sim_memory_open();
    if (a->experts > 2)
        a->ids[a->top_k - 1] = wrong_id >= 0 ? wrong_id : a->ids[0];
    if (sim)
        ds_sim_memory_close();
    return 0;
}

static void add_wrong_router(void)
{
    static struct ds_kernel wrong;
    struct ds_error err;
    if (ds_kernel_find(DS_OP_ROUTER, "wrong"))
        return;
    wrong = ds_router_reference;
    wrong.name = "wrong";
    wrong.launch = launch_wrong;
    assert_ok(ds_kernel_add(&wrong, &err), err);
    static struct ds_kernel wrong_on_sim;
    wrong_on_sim = wrong;
    wrong_on_sim.device = DS_DEVICE_SIM;
    assert_ok(ds_kernel_add(&wrong_on_sim, &err), err);
}

/* Healed at every site, a run with another router computes what follows it from the first run's
 * choices: rounding apart it combines the same, although its own ids differ. */
static void test_ids_are_healed(void **state)
{
    (void)state;
    static const char *const with_experts[] = {"mixtral", "qwen2moe", "qwen3moe", "sparse",
                                               "listed"};
    add_wrong_router();
    wrong_id = 0;
    for (int i = 0; i < 6; i++) {
        struct ds_model *m = open_fixture(with_experts[i % 3], DS_WEIGHTS_F32);
        const char *other = i < 3 ? "reference+router=wrong" : "sim:pinned+router=wrong";
        struct ds_probe *a = run(m, "pinned", DS_F32, 1, LENGTH, text, NULL),
                        *b = run(m, other, DS_F32, 1, LENGTH, text, a);
        int other_ids = 0;
        for (int32_t l = 0; l < m->hp.n_layers; l++) {
            uint32_t ids = site_of(a, l, "router_ids", ""), y = site_of(a, l, "moe_combine", "");
            for (int32_t pos = 0; pos < LENGTH; pos++) {
                other_ids += memcmp(*row_at(a, ids, 0, pos), *row_at(b, ids, 0, pos),
                                    row_bytes(&a->sites[ids])) != 0;
                for (int c = 0; c < m->hp.d_model; c++) {
                    const float *u = (const float *)(const void *)*row_at(a, y, 0, pos),
                                *v = (const float *)(const void *)*row_at(b, y, 0, pos);
                    assert_true(fabsf(u[c] - v[c]) <= 1e-5f);
                }
            }
        }
        assert_true(other_ids > 0);
        keeper_free(a);
        keeper_free(b);
        ds_model_close(m);
    }
}

static int run_once(struct ds_model *m, const char *kernels, struct ds_error *err)
{
    struct ds_forward *f;
    struct setting s = {.kernels = kernels, .dtype = DS_F32, .threads = 1};
    struct ds_forward_config c = config_of(&s, LENGTH, 1, LENGTH);
    if (ds_forward_new(m, &c, &f, err) != 0)
        return -1;
    struct ds_batch_seq seq = {.tokens = text, .n_tokens = LENGTH, .record = 1};
    struct ds_batch batch = {.seqs = &seq, .n_seqs = 1, .phase = DS_PHASE_PREFILL};
    const float *logits;
    const int32_t *ids;
    int32_t rows;
    int rc = ds_forward_run(f, &batch, NULL, &logits, &ids, &rows, err);
    ds_forward_free(f);
    return rc;
}

static void test_a_router_that_is_wrong(void **state)
{
    (void)state;
    static const struct {
        int32_t id;
        const char *want; /* NULL: no error */
    } cases[] = {{4, "layer 0 router_ids: router/wrong: row 0 chose expert 4 of 4"},
                 {1 << 30, "row 0 chose expert 1073741824 of 4"},
                 {3, NULL},
                 {-1, NULL}}; /* the same expert twice */
    add_wrong_router();
    struct ds_model *m = open_fixture("mixtral", DS_WEIGHTS_F32);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_error err = {0};
        wrong_id = cases[i].id;
        assert_int_equal(run_once(m, "reference+router=wrong", &err), cases[i].want ? -1 : 0);
        if (cases[i].want && !strstr(err.msg, cases[i].want))
            fail_msg("\"%s\" does not contain \"%s\"", err.msg, cases[i].want);
    }
    ds_model_close(m);
}

/* ---- windows --------------------------------------------------------------------------------- */

static void test_a_window_hides_what_is_outside(void **state)
{
    (void)state;
    static const char base[] = "random:llama,layers=1,hidden=32,heads=4,ffn=48,vocab=67,ctx=64";
    char spec[128];
    snprintf(spec, sizeof spec, "%s,window=5", base);
    struct ds_model *all = open_model(base), *five = open_model(spec);
    struct ds_probe *a = run(all, "pinned", DS_F32, 1, LENGTH, text, NULL),
                    *b = run(five, "pinned", DS_F32, 1, LENGTH, text, NULL);
    uint32_t site = site_of(a, 0, "attn_out", "");
    for (int32_t pos = 0; pos < LENGTH; pos++)
        assert_int_equal(memcmp(*row_at(a, site, 0, pos), *row_at(b, site, 0, pos),
                                row_bytes(&a->sites[site])) != 0,
                         pos >= 5);
    keeper_free(a);
    keeper_free(b);
    ds_model_close(all);
    ds_model_close(five);
}

/* A list that a rule can say is that rule; what a spec says twice or of layers that are not there is refused. */
static void test_windows_and_experts_by_layer(void **state)
{
    static const struct {
        const char *spec, *windows, *experts, *why;
    } cases[] = {{"layers=6,window=4,window_layers=0;1;3;4", "110110", "000000", NULL},
                 {"layers=5,window=4,window_layers=0;4", "10001", "00000", NULL},
                 {"layers=6,experts=2,expert_every=3", "000000", "001001", NULL},
                 {"layers=6,experts=2,expert_every=2,dense_layers=3", "000000", "000101", NULL},
                 {"layers=3,window=4,window_layers=3", NULL, NULL, "window_layers: layer 3 of 3"},
                 {"layers=3,window=4,window_layers=1;", NULL, NULL, "LAYER;LAYER;... is wanted"},
                 {"layers=3,window_layers=1", NULL, NULL, "window_layers is given, but no window"},
                 {"layers=3,window=4,window_every=2,window_layers=1", NULL, NULL, "both say"},
                 {"layers=3,expert_every=2", NULL, NULL, "expert_every is given, but no experts"},
                 {"layers=3,experts=2,expert_every=4", NULL, NULL, "none of 3 layers has any"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char spec[128];
        struct ds_model *m;
        struct ds_error err;
        snprintf(spec, sizeof spec, "random:llama,%s", cases[i].spec);
        if (cases[i].why) {
            assert_int_equal(ds_model_open(spec, 1, &m, &err), -1);
            assert_non_null(strstr(err.msg, cases[i].why));
            continue;
        }
        assert_ok(ds_model_open(spec, 1, &m, &err), err);
        for (int32_t l = 0; l < m->hp.n_layers; l++) {
            assert_int_equal(ds_window_of_layer(&m->hp, l), cases[i].windows[l] == '1' ? 4 : 0);
            assert_int_equal(ds_layer_has_experts(&m->hp, l), cases[i].experts[l] == '1');
        }
        assert_int_equal(m->hp.window_listed, i == 1); /* the first one is window_every=3 */
        ds_model_close(m);
    }
}

static void test_attention_without_a_window_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *kernels, *want;
    } cases[] = {
        {"random:llama,layers=1,window=5", "vendor",
         "has a sliding window, which attention/vendor cannot do"},
        {"random:llama,layers=1,softcap=5", "split", "has a soft cap of scores, which attention/"},
        {"random:llama,layers=1,window=12", "reference+attention=vendor", NULL},
        {"random:llama,layers=1,window=5,softcap=5", "reference", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_error err = {0};
        struct ds_model *m = open_model(cases[i].spec);
        assert_int_equal(run_once(m, cases[i].kernels, &err), cases[i].want ? -1 : 0);
        assert_true(!cases[i].want ||
                    (strstr(err.msg, cases[i].want) && strstr(err.hint, "pinned")));
        ds_model_close(m);
    }
}

static void test_failed_allocations_are_errors(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_model *m = open_model(specs[1]);
    struct setting s = {.kernels = "pinned", .dtype = DS_BF16, .threads = 2};
    struct ds_forward_config c = config_of(&s, 4, 2, 8);
    for (long n = 1;; n++) {
        struct ds_forward *f = NULL;
        ds_mem_fail_at(n);
        int rc = ds_forward_new(m, &c, &f, &err);
        ds_mem_fail_at(0);
        if (rc == 0) {
            ds_forward_free(f);
            assert_true(n > 50);
            break;
        }
        assert_non_null(strstr(err.msg, "memory"));
        assert_true(n < 400);
    }
    ds_model_close(m);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Older files have a tensor for every expert: the same model, weight for weight. */
static void test_experts_in_tensors_of_their_own(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        struct ds_model *one = open_fixture("mixtral", keep), *own = open_fixture("split", keep);
        assert_true(one->digest == own->digest);
        assert_int_equal(one->n_weights, own->n_weights);
        for (size_t i = 0; i < one->n_weights; i++) {
            assert_string_equal(one->weights[i].name, own->weights[i].name);
            assert_true(one->weights[i].digest == own->weights[i].digest);
        }
        ds_model_close(one);
        ds_model_close(own);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts_in_tensors_of_their_own),
        cmocka_unit_test(test_every_architecture_is_what_float64_says),
        cmocka_unit_test(test_weights_of_a_file_give_the_same_bits),
        cmocka_unit_test(test_pinned_bits_do_not_depend_on_the_cut),
        cmocka_unit_test(test_launches_of_experts_have_their_rows),
        cmocka_unit_test(test_ids_are_healed),
        cmocka_unit_test(test_a_router_that_is_wrong),
        cmocka_unit_test(test_a_window_hides_what_is_outside),
        cmocka_unit_test(test_windows_and_experts_by_layer),
        cmocka_unit_test(test_attention_without_a_window_is_refused),
        cmocka_unit_test(test_failed_allocations_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
