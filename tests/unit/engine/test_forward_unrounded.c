/* test_forward_unrounded.c: kernels that read their inputs as they were before rounding: in f32
 * nothing changes, in 16 bits exactly their own stages do; every stage's rounded bytes are still
 * shown, what a probe writes is what they read, and what they read is shown where it is asked for. */
#include "tests/unit/engine/forward_testing.h"

static const char spec[] =
    "random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=67,seed=9,ctx=40";
enum { LENGTH = 24 };
static const int dtypes[] = {DS_BF16, DS_F16};

/* One text of LENGTH tokens in calls of `chunk` tokens, shown to p. */
static void run_into(struct ds_model *m, const char *kernels, int dtype, int threads, int32_t chunk,
                     struct ds_probe *p)
{
    struct ds_error err;
    struct ds_forward *f;
    struct setting s = {
        .kernels = kernels, .dtype = dtype, .threads = threads, .page_size = 8, .poison = 1};
    struct ds_forward_config c = config_of(&s, LENGTH, 1, LENGTH);
    c.sites = p->sites;
    c.n_sites = p->n_sites;
    assert_ok(ds_forward_new(m, &c, &f, &err), err);
    for (int32_t done = 0; done < LENGTH; done += chunk) {
        int32_t tokens[LENGTH], n = LENGTH - done < chunk ? LENGTH - done : chunk;
        for (int32_t i = 0; i < n; i++)
            tokens[i] = token_of(0, done + i, m->hp.vocab);
        struct ds_batch_seq seq = {.tokens = tokens, .n_tokens = n, .record = 1};
        struct ds_batch batch = {.seqs = &seq, .n_seqs = 1, .phase = DS_PHASE_PREFILL};
        const float *logits;
        const int32_t *ids;
        int32_t rows;
        assert_ok(ds_forward_run(f, &batch, p, &logits, &ids, &rows, &err), err);
    }
    ds_forward_free(f);
}

static struct ds_probe *run(struct ds_model *m, const char *kernels, int dtype, int threads,
                            int32_t chunk)
{
    struct ds_probe *p = keeper_new(m, dtype);
    run_into(m, kernels, dtype, threads, chunk, p);
    return p;
}

static int rows_that_differ(const struct ds_probe *a, const struct ds_probe *b, uint32_t site)
{
    int n = 0;
    for (int32_t pos = 0; pos < LENGTH; pos++)
        n += memcmp(*row_at(a, site, 0, pos), *row_at(b, site, 0, pos),
                    row_bytes(&a->sites[site])) != 0;
    return n;
}

static void test_in_f32_fused_is_pinned(void **state)
{
    (void)state;
    struct ds_model *m = open_model(spec);
    struct ds_probe *a = run(m, "pinned", DS_F32, 1, LENGTH), *b = run(m, "fused", DS_F32, 2, 7);
    assert_true(assert_same_rows(a, 0, b, 0, LENGTH, "fused") > 0);
    keeper_free(a);
    keeper_free(b);
    ds_model_close(m);
}

/* With every other stage healed to the rows of the pinned set, so that each kernel is given equal
 * rounded rows. */
static void test_in_16_bits_only_their_stages_differ(void **state)
{
    static const struct {
        const char *kernels, *stages;
    } cases[] = {
        {"fused", " attn_norm q_rope k_rope ffn_norm act final_norm "},
        {"pinned+rmsnorm=fused", " attn_norm ffn_norm final_norm "},
        {"pinned+rope=fused", " q_rope k_rope "},
        {"pinned+silu_mul=fused", " act "},
    };
    (void)state;
    struct ds_model *m = open_model(spec);
    for (int d = 0; d < 2; d++) {
        struct ds_probe *base = run(m, "pinned", dtypes[d], 1, LENGTH);
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
            struct ds_probe *p = keeper_new(m, dtypes[d]);
            p->heal = base;
            run_into(m, cases[c].kernels, dtypes[d], 1 + (int)c % 2, c % 2 ? 5 : LENGTH, p);
            for (uint32_t s = 0; s < p->n_sites; s++) {
                char word[40];
                snprintf(word, sizeof word, " %s ", p->sites[s].stage);
                int want = strstr(cases[c].stages, word) != NULL;
                if ((rows_that_differ(p, base, s) > 0) != want)
                    fail_msg("%s, %s: layer %d %s%s", cases[c].kernels, p->sites[0].dtype,
                             (int)p->sites[s].layer, p->sites[s].stage,
                             want ? " is the same" : " differs");
            }
            keeper_free(p);
        }
        keeper_free(base);
    }
    ds_model_close(m);
}

/* What a probe writes over every element is what the kernel reads, as it is. */
static void test_what_a_probe_writes_is_read(void **state)
{
    static const struct {
        const char *kernels, *written, *reads, *control;
    } cases[] = {
        {"pinned+rope=fused", "q_proj", "q_rope", "k_rope"},
        {"pinned+rope=fused", "k_proj", "k_rope", "q_rope"},
        {"pinned+rmsnorm=fused", "embed", "attn_norm", NULL},
    };
    (void)state;
    struct ds_model *m = open_model(spec);
    for (int d = 0; d < 2; d++)
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
            struct ds_probe *p[2];
            for (int i = 0; i < 2; i++) {
                int32_t layer = strcmp(cases[c].written, "embed") == 0 ? -1 : 0;
                p[i] = keeper_new(m, dtypes[d]);
                p[i]->flip_at = site_of(p[i], layer, cases[c].written, "");
                run_into(m, i ? cases[c].kernels : "pinned", dtypes[d], 1, LENGTH, p[i]);
            }
            assert_int_equal(rows_that_differ(p[0], p[1], site_of(p[0], 0, cases[c].reads, "")), 0);
            if (cases[c].control)
                assert_true(rows_that_differ(p[0], p[1], site_of(p[0], 0, cases[c].control, "")) >
                            0);
            keeper_free(p[0]);
            keeper_free(p[1]);
        }
    ds_model_close(m);
}

/* ---- sites before rounding ------------------------------------------------------------------- */

static uint64_t stages_of(const struct ds_model *m, const char *kernels)
{
    struct ds_kernel_set set;
    struct ds_error err;
    assert_ok(ds_kernel_set_parse(kernels, &set, &err), err);
    return ds_forward_unrounded(m, &set);
}

static int has_edge(const struct ds_probe *p, uint32_t from, uint32_t to)
{
    for (uint32_t e = 0; e < p->n_edges; e++)
        if (p->edges[e].from == from && p->edges[e].to == to)
            return 1;
    return 0;
}

static void test_sites_before_rounding(void **state)
{
    static const struct {
        int32_t layer;
        const char *stage, *input, *reader;
        int32_t input_layer, reader_layer;
    } cases[] = {{-1, "embed", NULL, "attn_norm", 0, 0},
                 {0, "q_proj", "attn_norm", "q_rope", 0, 0},
                 {1, "k_proj", "attn_norm", "k_rope", 1, 1},
                 {0, "resid_attn", "o_proj", "ffn_norm", 0, 0},
                 {0, "resid_ffn", "down", "attn_norm", 0, 1},
                 {1, "resid_ffn", "resid_attn", "final_norm", 1, 2},
                 {1, "gate", "ffn_norm", "act", 1, 1},
                 {0, "up", "ffn_norm", "act", 0, 0}};
    (void)state;
    struct ds_model *m = open_model(spec);
    assert_int_equal(stages_of(m, "pinned"), 0);
    assert_int_equal(stages_of(m, "vendor"), 0);
    const uint64_t stages = stages_of(m, "fused");
    struct ds_probe *plain = keeper_new(m, DS_BF16), *p = keeper_new_with(m, DS_BF16, stages);
    assert_int_equal(p->n_sites, plain->n_sites + 1 + 2 * 6);
    for (uint32_t e = 0; e < p->n_edges; e++)
        assert_true(p->edges[e].from < p->edges[e].to);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        uint32_t own = site_of(p, cases[c].layer, cases[c].stage, ""),
                 before = site_of(p, cases[c].layer, cases[c].stage, "unrounded"),
                 reader = site_of(p, cases[c].reader_layer, cases[c].reader, "");
        assert_int_equal(before + 1, own);
        assert_string_equal(p->sites[before].dtype, "f32");
        assert_string_equal(p->sites[own].dtype, "bf16");
        assert_string_equal(p->sites[before].op, p->sites[own].op);
        assert_true(has_edge(p, before, own) && has_edge(p, before, reader) &&
                    has_edge(p, own, reader));
        if (cases[c].input) {
            uint32_t input = site_of(p, cases[c].input_layer, cases[c].input, "");
            assert_true(has_edge(p, input, before) && !has_edge(p, input, own));
        }
    }
    keeper_free(plain);
    keeper_free(p);
    ds_model_close(m);
}

/* Their rows round to those of the stage, whoever reads them; healed there, the stage is healed. */
static void test_rows_before_rounding_are_shown(void **state)
{
    static const char *const kernels[] = {"fused", "pinned"};
    (void)state;
    struct ds_model *m = open_model(spec);
    const uint64_t stages = stages_of(m, "fused");
    struct ds_probe *of[2];
    for (int i = 0; i < 2; i++) {
        of[i] = keeper_new_with(m, DS_BF16, stages);
        run_into(m, kernels[i], DS_BF16, 2, 9, of[i]);
        int sites = 0;
        for (uint32_t s = 0; s + 1 < of[i]->n_sites; s++) {
            if (strcmp(of[i]->sites[s].part, "unrounded") != 0)
                continue;
            sites++;
            for (int32_t pos = 0; pos < LENGTH; pos++) {
                uint16_t want[128], *got = (uint16_t *)(void *)*row_at(of[i], s + 1, 0, pos);
                ds_round_row(DS_BF16, want, (float *)(void *)*row_at(of[i], s, 0, pos),
                             of[i]->sites[s].width);
                assert_memory_equal(got, want, row_bytes(&of[i]->sites[s + 1]));
            }
        }
        assert_int_equal(sites, 13);
    }
    /* Healed to the rows of the fused run: every stage's output is that run's, too. */
    struct ds_probe *p = keeper_new_with(m, DS_BF16, stages);
    p->heal = of[0];
    run_into(m, "fused", DS_BF16, 1, LENGTH, p);
    assert_true(assert_same_rows(of[0], 0, p, 0, LENGTH, "healed") > 0);
    keeper_free(p);
    keeper_free(of[0]);
    keeper_free(of[1]);
    ds_model_close(m);
}

static int32_t seen_dtype;

static int watch_silu(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    seen_dtype = exec->dtype;
    return ds_kernel_find(DS_OP_SILU_MUL, "reference")->launch(args, exec, why, why_size);
}

static void test_kernels_are_told_the_activation_type(void **state)
{
    static const struct ds_kernel watch = {
        .abi = DS_KERNEL_ABI, .op = DS_OP_SILU_MUL, .name = "watch-type", .launch = watch_silu};
    static const int32_t want[] = {DS_ELEMENT_F32, DS_ELEMENT_BF16, DS_ELEMENT_F16};
    static const int given[] = {DS_F32, DS_BF16, DS_F16};
    struct ds_error err;
    (void)state;
    struct ds_model *m = open_model(spec);
    assert_ok(ds_kernel_add(&watch, &err), err);
    for (int i = 0; i < 3; i++) {
        keeper_free(run(m, "reference+silu_mul=watch-type", given[i], 1, LENGTH));
        assert_int_equal(seen_dtype, want[i]);
    }
    ds_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_f32_fused_is_pinned),
        cmocka_unit_test(test_in_16_bits_only_their_stages_differ),
        cmocka_unit_test(test_what_a_probe_writes_is_read),
        cmocka_unit_test(test_sites_before_rounding),
        cmocka_unit_test(test_rows_before_rounding_are_shown),
        cmocka_unit_test(test_kernels_are_told_the_activation_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
