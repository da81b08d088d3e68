/* test_forward.c: sites and edges, and the bits of the pass: with pinned kernels no cut of the work
 * may change one. */
#include "tests/unit/engine/forward_testing.h"

#include "kernels/sim/memory.h"

static const char small[] =
    "random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=300,vocab=311,bias=1,rope_dim=8,seed=5";
static const char tiny[] =
    "random:llama,layers=2,hidden=32,heads=4,kv_heads=1,ffn=48,vocab=67,tied=1,seed=9";

/* ---- sites ----------------------------------------------------------------------------------- */

static void test_sites_are_in_execution_order(void **state)
{
    (void)state;
    static const char *const before[] = {"positions", "kv_len", "embed"}, *const after[] = {
                                                                              "final_norm",
                                                                              "logits",
                                                                              "logits_processed",
                                                                              "token"};
    static const char *const in_layer[] = {
        "attn_norm rmsnorm",  "q_proj matmul", "k_proj matmul",    "v_proj matmul",
        "q_rope rope",        "k_rope rope",   "kv_write/k cache", "kv_write/v cache",
        "attn_out attention", "o_proj matmul", "resid_attn add",   "ffn_norm rmsnorm",
        "gate matmul",        "up matmul",     "act silu_mul",     "down matmul",
        "resid_ffn add"};
    struct ds_model *m = open_model(small);
    struct ds_probe *p = keeper_new(m, DS_BF16);
    assert_int_equal(p->n_sites, 3 + 2 * 17 + 4);
    for (uint32_t s = 0; s < p->n_sites; s++) {
        const struct ds_site *site = &p->sites[s];
        int inside = s >= 3 && s < 3 + 34;
        char text[64];
        snprintf(text, sizeof text, "%s%s%s %s", site->stage, *site->part ? "/" : "", site->part,
                 site->op);
        assert_int_equal(site->layer, s < 3 ? -1 : inside ? (int)(s - 3) / 17 : 2);
        if (inside)
            assert_string_equal(text, in_layer[(s - 3) % 17]);
        else
            assert_string_equal(site->stage, s < 3 ? before[s] : after[s - 37]);
        int whole = s < 2 || s == p->n_sites - 1;
        assert_string_equal(site->dtype, whole                                ? "i32"
                                         : !strncmp(site->stage, "logits", 6) ? "f32"
                                                                              : "bf16");
    }
    assert_int_equal(p->sites[site_of(p, 1, "gate", "")].width, 300);
    assert_int_equal(p->sites[site_of(p, 1, "k_rope", "")].width, 32);
    assert_int_equal(p->sites[site_of(p, 2, "logits", "")].width, 311);
    keeper_free(p);
    struct ds_error err;
    assert_int_equal(ds_forward_sites(m, DS_I32, NULL, NULL, NULL, NULL, &err), -1);
    assert_non_null(strstr(err.msg, "dtype"));
    ds_model_close(m);
}

static void test_edges_tell_what_each_site_reads(void **state)
{
    (void)state;
    static const struct {
        int layer;
        const char *to, *inputs; /* "layer stage/part kind" in any order, joined */
    } cases[] = {
        {-1, "positions", ""},
        {-1, "embed", ""},
        {0, "attn_norm", "-1 embed/ 0;"},
        {1, "attn_norm", "0 resid_ffn/ 0;"},
        {1, "v_proj", "1 attn_norm/ 0;"},
        {1, "q_rope", "-1 positions/ 0;1 q_proj/ 0;"},
        {0, "attn_out", "-1 kv_len/ 0;0 q_rope/ 0;0 kv_write/k 1;0 kv_write/v 1;"},
        {0, "resid_attn", "-1 embed/ 0;0 o_proj/ 0;"},
        {1, "resid_attn", "0 resid_ffn/ 0;1 o_proj/ 0;"},
        {1, "act", "1 gate/ 0;1 up/ 0;"},
        {1, "resid_ffn", "1 resid_attn/ 0;1 down/ 0;"},
        {2, "final_norm", "1 resid_ffn/ 0;"},
        {2, "logits", "2 final_norm/ 0;"},
        {2, "logits_processed", "2 logits/ 0;"},
        {2, "token", "2 logits_processed/ 0;"},
    };
    struct ds_model *m = open_model(small);
    struct ds_probe *p = keeper_new(m, DS_F32);
    for (uint32_t e = 0; e < p->n_edges; e++)
        assert_true(p->edges[e].from < p->edges[e].to && p->edges[e].to < p->n_sites);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char got[256] = "";
        for (uint32_t e = 0; e < p->n_edges; e++) {
            const struct ds_site *from = &p->sites[p->edges[e].from];
            if (p->edges[e].to == site_of(p, cases[i].layer, cases[i].to, ""))
                snprintf(got + strlen(got), sizeof got - strlen(got), "%d %s/%s %u;",
                         (int)from->layer, from->stage, from->part, (unsigned)p->edges[e].kind);
        }
        assert_string_equal(got, cases[i].inputs);
    }
    keeper_free(p);
    ds_model_close(m);
}

/* ---- pinned bits ----------------------------------------------------------------------------- */

/* Every way to cut the work of one text gives the bits of the plain way. */
static void check_cuts(int dtype, int32_t length)
{
    static const struct {
        const char *what;
        int threads;
        int32_t chunk, pads, page_size;
        int poison;
    } cuts[] = {
        {"threads", 3, 0, 0, 0, 0},
        {"chunks of 7", 1, 7, 0, 0, 0},
        {"token by token", 1, 1, 0, 0, 0},
        {"padding", 1, 0, 5, 0, 0},
        {"pages of 1", 1, 7, 0, 1, 0},
        {"pages of 16", 2, 4, 3, 16, 0},
        {"pages of 64", 1, 0, 0, 64, 0},
        {"poison", 2, 7, 3, 16, 1},
        {"token by token, padding", 2, 1, 1, 3, 1},
    };
    struct ds_model *m = open_model(small);
    const int32_t alone[] = {3}, first[] = {3, 0, 1, 2}, last[] = {6, 1, 0, 3}, mid[] = {2, 3, 1};
    struct setting base = {.kernels = "pinned", .dtype = dtype, .threads = 1};
    struct ds_probe *want = run_texts(m, &base, alone, 1, length);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        struct setting s = base;
        s.threads = cuts[i].threads;
        s.chunk = cuts[i].chunk;
        s.pads = cuts[i].pads;
        s.page_size = cuts[i].page_size;
        s.poison = cuts[i].poison;
        struct ds_probe *got = run_texts(m, &s, alone, 1, length);
        long n = assert_same_rows(want, 3, got, 3, length, cuts[i].what);
        assert_int_equal(n, (want->n_sites - 3) * length + 3);
        keeper_free(got);
        const int32_t *groups[] = {first, last, mid};
        got = run_texts(m, &s, groups[i % 3], i % 3 == 2 ? 3 : 4, length);
        assert_same_rows(want, 3, got, 3, length, "batch");
        keeper_free(got);
    }
    keeper_free(want);
    ds_model_close(m);
}

static void test_pinned_bits_hold_in_f32(void **state)
{
    (void)state;
    check_cuts(DS_F32, 21);
}

static void test_pinned_bits_hold_in_bf16(void **state)
{
    (void)state;
    check_cuts(DS_BF16, 21);
}

static void test_pinned_bits_hold_in_f16(void **state)
{
    (void)state;
    check_cuts(DS_F16, 21);
}

/* More keys than one attention block of 256. */
static void test_pinned_bits_hold_over_block_borders(void **state)
{
    (void)state;
    struct ds_model *m = open_model(tiny);
    const int32_t alone[] = {1}, group[] = {0, 1};
    struct setting s = {.kernels = "pinned", .threads = 1};
    struct ds_probe *want = run_texts(m, &s, alone, 1, 300);
    s = (struct setting){
        .kernels = "pinned", .threads = 2, .chunk = 37, .pads = 9, .page_size = 16};
    struct ds_probe *got = run_texts(m, &s, group, 2, 300);
    assert_same_rows(want, 1, got, 1, 300, "chunks, padding, pages, batch");
    keeper_free(want);
    keeper_free(got);
    ds_model_close(m);
}

/* The pass itself adds no order of its own: reference kernels work row by row, so they too must not
 * see the cut. */
static void test_reference_bits_hold(void **state)
{
    (void)state;
    struct ds_model *m = open_model(tiny);
    const int32_t alone[] = {2}, group[] = {0, 2, 4};
    struct setting s = {.kernels = "reference", .threads = 1, .all_logits = 1};
    struct ds_probe *want = run_texts(m, &s, alone, 1, 19);
    s.chunk = 5;
    s.pads = 2;
    s.page_size = 4;
    s.poison = 1;
    struct ds_probe *got = run_texts(m, &s, group, 3, 19);
    assert_int_equal(assert_same_rows(want, 2, got, 2, 19, "reference"), want->n_sites * 19);
    keeper_free(want);
    keeper_free(got);
    ds_model_close(m);
}

/* A text's rows differ from another's: or else everything above compares constants. */
static void test_rows_are_not_inert(void **state)
{
    (void)state;
    struct ds_model *m = open_model(small);
    const int32_t both[] = {0, 3};
    struct setting s = {.kernels = "pinned", .threads = 1, .all_logits = 1};
    struct ds_probe *p = run_texts(m, &s, both, 2, 9);
    for (uint32_t site = 0; site < p->n_sites - 1; site++)
        for (int pos = 0; pos < 9; pos++) {
            int whole = site < 2,
                equal = !memcmp(*row_at(p, site, 0, pos), *row_at(p, site, 3, pos),
                                row_bytes(&p->sites[site]));
            assert_int_equal(equal, whole);
            if (pos && !whole)
                assert_true(memcmp(*row_at(p, site, 0, pos), *row_at(p, site, 0, pos - 1),
                                   row_bytes(&p->sites[site])) != 0);
            int32_t number;
            memcpy(&number, *row_at(p, site, 3, pos), sizeof number);
            if (whole)
                assert_int_equal(number, site == 0 ? pos : pos + 1);
        }
    keeper_free(p);
    ds_model_close(m);
}

/* ---- number formats -------------------------------------------------------------------------- */

/* Each stage's output is the rounded result of what its inputs hold: shown for the additions, where
 * the result is known. */
static void check_rounding(int dtype)
{
    struct ds_model *m = open_model(small);
    const int32_t alone[] = {1};
    struct setting s = {.kernels = "reference", .dtype = dtype, .threads = 1};
    struct ds_probe *p = run_texts(m, &s, alone, 1, 11);
    uint32_t sites[] = {site_of(p, -1, "embed", ""), site_of(p, 0, "o_proj", ""),
                        site_of(p, 0, "resid_attn", "")};
    int inexact = 0;
    for (int pos = 0; pos < 11; pos++) {
        float value[3][64];
        for (int i = 0; i < 3; i++)
            ds_widen_row(dtype, value[i], *row_at(p, sites[i], 1, pos), 64);
        uint16_t want[64];
        for (int i = 0; i < 64; i++) {
            float sum = value[0][i] + value[1][i];
            ds_round_row(dtype, &want[i], &sum, 1);
            inexact += ds_f32_bits(sum) != ds_f32_bits(value[2][i]);
        }
        assert_memory_equal(want, *row_at(p, sites[2], 1, pos), sizeof want);
        assert_memory_equal(*row_at(p, site_of(p, 1, "k_rope", ""), 1, pos),
                            *row_at(p, site_of(p, 1, "kv_write", "k"), 1, pos), 64);
    }
    assert_true(inexact > 100);
    keeper_free(p);
    ds_model_close(m);
}

static void test_every_output_is_rounded(void **state)
{
    (void)state;
    check_rounding(DS_BF16);
    check_rounding(DS_F16);
}

/* ---- healing --------------------------------------------------------------------------------- */

/* A cache kernel that spoils the first element of every row it writes. */
static int spoil_cache(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_cache_args *a = args;
    const int sim = exec->memory == DS_MEMORY_DEVICE;
    const struct ds_kernel *k =
        ds_kernel_find_on(sim ? DS_DEVICE_SIM : DS_DEVICE_CPU, DS_OP_CACHE, "pinned");
    assert_non_null(k);
    int rc = k->launch(args, exec, why, why_size);
    if (sim)
        ds_sim_memory_open();
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int32_t slot = s->kv_len - s->q_len; slot < s->kv_len; slot++)
            a->cache[(s->pages[slot / a->page_size] * a->page_size + slot % a->page_size) *
                     a->width] +=
                4.0f + (float)slot; /* not the same for all keys: softmax would not see that */
    }
    if (sim)
        ds_sim_memory_close();
    return rc;
}
static const struct ds_kernel spoiling = {
    .abi = DS_KERNEL_ABI, .op = DS_OP_CACHE, .name = "spoil", .launch = spoil_cache};

/* Runs text 0 token by token over another model and a spoiled cache, every row overwritten with
 * `ours` except at one site. */
static struct ds_probe *run_healed(struct ds_model *other, const struct ds_probe *ours,
                                   const char *kernels, int dtype, int64_t leave_out)
{
    struct ds_error err;
    struct setting s = {.kernels = kernels, .dtype = dtype, .threads = 1, .page_size = 5};
    struct ds_forward_config c = config_of(&s, 12, 1, 12);
    struct ds_kernel spoils = spoiling;
    spoils.device = c.kernels.device;
    c.kernels.op[DS_OP_CACHE] = &spoils;
    struct ds_forward *f;
    assert_ok(ds_forward_new(other, &c, &f, &err), err);
    struct ds_probe *p = keeper_new(other, dtype);
    p->heal = ours;
    p->heal_all_but = leave_out;
    for (int32_t pos = 0; pos < 12; pos++) {
        int32_t token = token_of(0, pos, 311), n;
        struct ds_batch_seq seq = {
            .request = 0, .tokens = &token, .n_tokens = 1, .record = 1, .logits_from = pos < 11};
        struct ds_batch batch = {.seqs = &seq, .n_seqs = 1};
        const float *logits;
        const int32_t *ids;
        assert_ok(ds_forward_run(f, &batch, p, &logits, &ids, &n, &err), err);
        assert_int_equal(n, pos == 11);
        if (pos == 11)
            assert_memory_equal(logits, *row_at(ours, p->n_sites - 3, 0, 11), 311 * sizeof(float));
    }
    ds_forward_free(f);
    return p;
}

/* What a probe writes over a row is what later stages read: stages without weights give our rows
 * again when all they read is healed, and other rows as soon as one input is left out. */
static void check_healing(const char *kernels, int dtype)
{
    /* Left out at `left_out`, so `reader` differs; it is healed itself, so `next` is ours again. */
    static const struct {
        const char *left_out, *part, *reader, *next;
    } cases[] = {
        {"q_proj", "", "q_rope", "attn_out"},   {"k_proj", "", "k_rope", "attn_out"},
        {"v_proj", "", "kv_write", "attn_out"}, {"kv_write", "k", "attn_out", "resid_attn"},
        {"kv_write", "v", "attn_out", "act"},   {"o_proj", "", "resid_attn", "resid_ffn"},
        {"gate", "", "act", "resid_ffn"},       {"up", "", "act", "resid_ffn"},
        {"down", "", "resid_ffn", "resid_ffn"}};
    static const char *const weightless[] = {"q_rope",     "k_rope", "attn_out",
                                             "resid_attn", "act",    "resid_ffn"};
    struct ds_model *m = open_model(small),
                    *other =
                        open_model("random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=300,"
                                   "vocab=311,bias=1,rope_dim=8,seed=6");
    const int32_t alone[] = {0};
    struct setting s = {.kernels = "pinned", .dtype = dtype, .threads = 1};
    struct ds_probe *ours = run_texts(m, &s, alone, 1, 12),
                    *p = run_healed(other, ours, kernels, dtype, -1);
    for (int layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < sizeof weightless / sizeof weightless[0]; i++)
            for (int pos = 0; pos < 12; pos++) {
                uint32_t site = site_of(p, layer, weightless[i], "");
                assert_memory_equal(*row_at(p, site, 0, pos), *row_at(ours, site, 0, pos),
                                    row_bytes(&p->sites[site]));
            }
    keeper_free(p);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *part = strcmp(cases[i].reader, "kv_write") ? "" : "v";
        uint32_t reader = site_of(ours, 1, cases[i].reader, part);
        p = run_healed(other, ours, kernels, dtype,
                       site_of(ours, 1, cases[i].left_out, cases[i].part));
        if (!memcmp(*row_at(p, reader, 0, 11), *row_at(ours, reader, 0, 11),
                    row_bytes(&p->sites[reader])))
            fail_msg("%s does not read what was written over %s", cases[i].reader,
                     cases[i].left_out);
        uint32_t next = site_of(ours, 1, cases[i].next, "");
        if (next != reader)
            assert_memory_equal(*row_at(p, next, 0, 11), *row_at(ours, next, 0, 11),
                                row_bytes(&p->sites[next]));
        keeper_free(p);
    }
    keeper_free(ours);
    ds_model_close(m);
    ds_model_close(other);
}

static void test_what_a_probe_writes_is_read_on(void **state)
{
    (void)state;
    check_healing("pinned", DS_F32);
    check_healing("pinned", DS_F16);
    check_healing("sim:pinned", DS_F32);
    check_healing("sim:pinned", DS_F16);
}

/* The kv_write sites show the cache, not what was to be written. */
static void test_a_wrong_cache_write_is_seen(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_model *m = open_model(tiny);
    struct setting s = {.kernels = "reference", .threads = 1, .page_size = 2};
    struct ds_forward_config c = config_of(&s, 3, 1, 3);
    c.kernels.op[DS_OP_CACHE] = &spoiling;
    struct ds_forward *f;
    assert_ok(ds_forward_new(m, &c, &f, &err), err);
    struct ds_probe *p = keeper_new(m, DS_F32);
    const int32_t tokens[] = {5, 6, 7};
    struct ds_batch_seq seq = {.tokens = tokens, .n_tokens = 3, .record = 1, .logits_from = 3};
    struct ds_batch batch = {.seqs = &seq, .n_seqs = 1};
    const float *logits;
    const int32_t *ids;
    int32_t n;
    assert_ok(ds_forward_run(f, &batch, p, &logits, &ids, &n, &err), err);
    for (int pos = 0; pos < 3; pos++) {
        const char *written = *row_at(p, site_of(p, 0, "k_rope", ""), 0, pos);
        const char *cached = *row_at(p, site_of(p, 0, "kv_write", "k"), 0, pos);
        assert_memory_not_equal(written, cached, 4);
        assert_memory_equal(written + 4, cached + 4, 7 * 4);
    }
    keeper_free(p);
    ds_forward_free(f);
    ds_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sites_are_in_execution_order),
        cmocka_unit_test(test_edges_tell_what_each_site_reads),
        cmocka_unit_test(test_pinned_bits_hold_in_f32),
        cmocka_unit_test(test_pinned_bits_hold_in_bf16),
        cmocka_unit_test(test_pinned_bits_hold_in_f16),
        cmocka_unit_test(test_pinned_bits_hold_over_block_borders),
        cmocka_unit_test(test_reference_bits_hold),
        cmocka_unit_test(test_rows_are_not_inert),
        cmocka_unit_test(test_every_output_is_rounded),
        cmocka_unit_test(test_what_a_probe_writes_is_read_on),
        cmocka_unit_test(test_a_wrong_cache_write_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
