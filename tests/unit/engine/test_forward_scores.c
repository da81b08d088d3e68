/* test_forward_scores.c: attn_scores and attn_probs against what the shown q_rope rows and cached keys
 * give, and that nobody reads them. */
#include "tests/unit/engine/forward_testing.h"

#include "base/dtype.h"

#include <math.h>

enum { LENGTH = 11, KEYS = LENGTH + 2, HEADS = 4 };

static const char plain[] =
    "random:llama,layers=2,hidden=64,heads=4,kv_heads=2,head_dim=24,ffn=96,vocab=128";

static double element(const struct ds_probe *p, uint32_t site, int32_t position, size_t i)
{
    const char *row = *row_at(p, site, 0, position);
    int dtype = ds_dtype_parse(p->sites[site].dtype);
    float x;
    assert_non_null(row);
    ds_widen_row(dtype, &x, row + i * ds_dtype_size(dtype), 1);
    return (double)x;
}

static float stored(int dtype, double x)
{
    float y = (float)x;
    uint16_t half;
    if (dtype == DS_F32)
        return y;
    ds_round_row(dtype, &half, &y, 1);
    ds_widen_row(dtype, &y, &half, 1);
    return y;
}

/* One head of one row: keys first..position, the rest of the row +0. */
static void check_head(const struct ds_model *m, const struct ds_probe *p, int dtype, int32_t layer,
                       int32_t position, size_t head)
{
    const uint32_t q = site_of(p, layer, "q_rope", ""), k = site_of(p, layer, "kv_write", "k"),
                   scores = site_of(p, layer, "attn_scores", ""),
                   probs = site_of(p, layer, "attn_probs", "");
    const struct ds_hparams *hp = &m->hp;
    const size_t d = (size_t)hp->head_dim, kv = head / (size_t)(hp->n_heads / hp->n_kv_heads) * d;
    int32_t first = hp->window && position >= hp->window ? position - hp->window + 1 : 0;
    double score[KEYS], max = -INFINITY, sum = 0;
    for (int32_t t = 0; t < KEYS; t++) {
        double dot = 0;
        for (size_t c = 0; c < d && t <= position - first; c++)
            dot += element(p, q, position, head * d + c) * element(p, k, first + t, kv + c);
        dot *= (double)(float)(1 / sqrt((double)d));
        if (hp->soft_cap > 0)
            dot = (double)hp->soft_cap * tanh(dot / (double)hp->soft_cap);
        score[t] = element(p, scores, position, head * KEYS + (size_t)t);
        assert_true(score[t] == (double)stored(dtype, dot));
        if (t <= position - first)
            max = score[t] > max ? score[t] : max;
    }
    for (int32_t t = 0; t <= position - first; t++)
        sum += exp(score[t] - max);
    for (int32_t t = 0; t < KEYS; t++) {
        double want = t <= position - first ? exp(score[t] - max) / sum : 0,
               got = element(p, probs, position, head * KEYS + (size_t)t),
               step = dtype == DS_F32   ? 0x1p-21
                      : dtype == DS_F16 ? 0x1p-10
                                        : 0x1p-7;
        assert_false(signbit(got));
        assert_true(fabs(got - want) <= step * want + (dtype == DS_F16 ? 0x1p-24 : 0));
    }
}

static void check_all(const struct ds_model *m, const struct ds_probe *p, int dtype)
{
    for (int32_t layer = 0; layer < m->hp.n_layers; layer++) {
        uint32_t site = site_of(p, layer, "attn_scores", "");
        assert_int_equal(p->sites[site].width, HEADS * KEYS);
        assert_string_equal(p->launch[site].variant, "recomputed");
        assert_string_equal(p->launch[site + 1].variant, "recomputed");
        for (int32_t position = 0; position < LENGTH; position++)
            for (size_t head = 0; head < HEADS; head++)
                check_head(m, p, dtype, layer, position, head);
    }
}

static void test_against_what_is_shown(void **state)
{
    (void)state;
    static const char *const models[] = {
        plain,
        "random:llama,layers=2,hidden=64,heads=4,kv_heads=4,ffn=96,vocab=128,window=4,softcap=2",
        "random:qwen3moe,layers=2,hidden=64,heads=4,kv_heads=1,ffn=96,vocab=128,experts=4,top_k=2"};
    static const int32_t which[] = {2, 0, 1}, alone[] = {0};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct ds_model *m = open_model(models[i]);
        for (int dtype = DS_F32; dtype <= DS_F16; dtype++) {
            struct setting s = {
                .kernels = "pinned", .dtype = dtype, .threads = 1, .score_keys = KEYS};
            struct ds_probe *whole = run_texts(m, &s, alone, 1, LENGTH);
            check_all(m, whole, dtype);
            s.threads = 3;
            s.chunk = 3;
            s.pads = 2;
            s.page_size = 4;
            s.poison = 1;
            struct ds_probe *other = run_texts(m, &s, which, 3, LENGTH);
            check_all(m, other, dtype);
            assert_true(assert_same_rows(whole, 0, other, 0, LENGTH, models[i]) > 0);
            keeper_free(whole);
            keeper_free(other);
        }
        ds_model_close(m);
    }
}

/* Every other row is what it is without them, even when a probe writes into the scores; the
 * probabilities follow what it wrote. */
static void test_nobody_reads_them(void **state)
{
    (void)state;
    static const int32_t which[] = {0, 1};
    struct ds_model *m = open_model(plain);
    for (int dtype = DS_F32; dtype <= DS_F16; dtype++) {
        struct setting s = {.kernels = "reference", .dtype = dtype, .threads = 2, .chunk = 4};
        struct ds_probe *without = run_texts(m, &s, which, 2, LENGTH);
        s.score_keys = KEYS;
        struct ds_probe *with = run_texts(m, &s, which, 2, LENGTH);
        s.flip_scores = 1;
        struct ds_probe *flipped = run_texts(m, &s, which, 2, LENGTH);
        for (uint32_t site = 0; site < without->n_sites; site++) {
            const struct ds_site *w = &without->sites[site];
            uint32_t at = site_of(with, w->layer, w->stage, w->part);
            for (int32_t r = 0; r < 2; r++)
                for (int32_t pos = 0; pos < LENGTH; pos++) {
                    const char *a = *row_at(without, site, r, pos), *b = *row_at(with, at, r, pos),
                               *c = *row_at(flipped, at, r, pos);
                    assert_true(!a == !b && !a == !c);
                    assert_true(
                        !a || (memcmp(a, b, row_bytes(w)) == 0 && memcmp(a, c, row_bytes(w)) == 0));
                }
        }
        uint32_t probs = site_of(with, 0, "attn_probs", "");
        assert_true(memcmp(*row_at(with, probs, 1, LENGTH - 1),
                           *row_at(flipped, probs, 1, LENGTH - 1),
                           row_bytes(&with->sites[probs])) != 0);
        keeper_free(without);
        keeper_free(with);
        keeper_free(flipped);
    }
    ds_model_close(m);
}

/* Rows of padding see nothing: +0 throughout. A list whose rows fit no heads is refused. */
static void test_no_keys_and_bad_widths(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_model *m = open_model(plain);
    struct ds_probe *p = keeper_new_wanting(m, DS_BF16, (struct ds_site_wants){.score_keys = KEYS});
    struct setting s = {.kernels = "pinned", .dtype = DS_BF16, .threads = 1};
    struct ds_forward_config c = config_of(&s, LENGTH, 1, LENGTH);
    c.sites = p->sites;
    c.n_sites = p->n_sites;
    struct ds_forward *f;
    assert_ok(ds_forward_new(m, &c, &f, &err), err);
    const int32_t tokens[] = {9, 9, 4};
    const struct ds_batch_seq seq = {
        .tokens = tokens, .n_tokens = 3, .n_pad = 1, .record_pads = 1, .logits_from = 3};
    const struct ds_batch batch = {&seq, 1, DS_PHASE_PREFILL};
    const float *logits;
    const int32_t *ids;
    int32_t n;
    /* The keeper files rows by position; a row of padding stands before the first. */
    p->row++;
    assert_ok(ds_forward_run(f, &batch, p, &logits, &ids, &n, &err), err);
    for (const char *stage = "attn_scores"; stage;
         stage = strcmp(stage, "attn_probs") ? "attn_probs" : NULL) {
        const char *row = *row_at(p, site_of(p, 1, stage, ""), 0, -1);
        assert_non_null(row);
        for (size_t i = 0; i < HEADS * KEYS * 2; i++)
            assert_int_equal(row[i], 0);
    }
    p->row--;
    ds_forward_free(f);
    const uint32_t bad[] = {HEADS * KEYS + 1, 0, HEADS * (KEYS + 1), 2};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        p->sites[site_of(p, 1, "attn_probs", "")].width = bad[i];
        assert_int_equal(ds_forward_new(m, &c, &f, &err), -1);
        assert_non_null(strstr(err.msg, "layer 1 attn_probs"));
    }
    keeper_free(p);
    ds_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_what_is_shown),
        cmocka_unit_test(test_nobody_reads_them),
        cmocka_unit_test(test_no_keys_and_bad_widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
