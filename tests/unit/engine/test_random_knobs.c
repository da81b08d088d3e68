/* test_random_knobs.c: seeded models of every architecture, and the knobs that make faults visible:
 * what each changes, and that it changes nothing else. */
#include "tests/unit/testing.h"

#include "engine/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define SIZES    "layers=3,hidden=32,heads=4,kv_heads=2,ffn=24,vocab=40,ctx=64"

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
    fail_msg("no weight %s", name);
    return NULL;
}

static void test_architectures(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        size_t n_weights;
        int32_t neox, experts, top_k, ff_expert, ff_shared, norm_top_k, qk_norm;
        int q_bias;
    } cases[] = {
        {"random:llama," SIZES, 3 + 3 * 9, 0, 0, 0, 0, 0, 0, 0, 0},
        {"random:llama," SIZES ",experts=5", 3 + 3 * (7 + 15), 0, 5, 2, 24, 0, 1, 0, 0},
        {"random:qwen2," SIZES, 3 + 3 * 12, 1, 0, 0, 0, 0, 0, 0, 1},
        {"random:qwen3," SIZES, 3 + 3 * 11, 1, 0, 0, 0, 0, 0, 1, 0},
        {"random:qwen2moe," SIZES ",experts=3,shared_ffn=20", 3 + 3 * (10 + 9 + 4), 1, 3, 2, 24, 20,
         0, 0, 1},
        {"random:qwen3moe," SIZES ",top_k=3,expert_ffn=7,norm_top_k=0", 3 + 3 * (9 + 24), 1, 8, 3,
         7, 0, 0, 1, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ds_model *m = open_good(cases[i].spec, 1), *again = open_good(cases[i].spec, 2);
        const struct ds_hparams *hp = &m->hp;
        assert_int_equal(m->n_weights, cases[i].n_weights);
        assert_true(hp->rope_neox == cases[i].neox && hp->n_experts == cases[i].experts &&
                    hp->top_k == cases[i].top_k && hp->d_ff_expert == cases[i].ff_expert &&
                    hp->d_ff_shared == cases[i].ff_shared &&
                    hp->norm_top_k == cases[i].norm_top_k && hp->qk_norm == cases[i].qk_norm);
        assert_int_equal(m->layers[1].q_bias != NULL, cases[i].q_bias);
        assert_int_equal(m->layers[1].q_norm != NULL, cases[i].qk_norm);
        assert_int_equal(m->layers[1].gate == NULL, cases[i].experts > 0);
        if (cases[i].experts) {
            const struct ds_layer *l = &m->layers[2];
            const struct ds_weight *last = l->up_exps + cases[i].experts - 1;
            char name[64];
            snprintf(name, sizeof name, "blk.2.ffn_up_exps.weight[%d]", cases[i].experts - 1);
            assert_string_equal(last->name, name);
            assert_true(last->rows == cases[i].ff_expert && last->cols == 32 &&
                        l->down_exps->rows == 32 && l->down_exps->cols == cases[i].ff_expert &&
                        l->router->rows == cases[i].experts);
        }
        for (size_t w = 0; w < m->n_weights; w++)
            for (size_t v = 0; v < w; v++)
                assert_true(m->weights[w].digest != m->weights[v].digest);
        assert_true(m->digest == again->digest);
        ds_model_close(m);
        ds_model_close(again);
    }
}

/* Every weight but those that begin with one of the names has the digest that it has without. */
static void others_are_the_same(const struct ds_model *plain, const struct ds_model *m,
                                const char *const *changed, size_t n)
{
    size_t other = 0;
    for (size_t i = 0; i < plain->n_weights; i++) {
        const struct ds_weight *w = &plain->weights[i];
        int may = 0;
        for (size_t k = 0; k < n; k++)
            may |= strncmp(w->name, changed[k], strlen(changed[k])) == 0;
        assert_int_equal(weight(m, w->name)->digest != w->digest, may);
        other += !may;
    }
    assert_true(other > 10);
}

static void test_large_channels_of_k(void **state)
{
    (void)state;
    struct ds_model *plain = open_good("random:qwen2," SIZES, 1),
                    *m = open_good("random:qwen2," SIZES ",k_bias=-300.5@0;9", 1);
    static const char *const changed[] = {"blk.0.attn_k.bias", "blk.1.attn_k.bias",
                                          "blk.2.attn_k.bias"};
    others_are_the_same(plain, m, changed, 3);
    for (int l = 0; l < 3; l++)
        for (int c = 0; c < 16; c++) {
            float was = plain->layers[l].k_bias->data[c], is = m->layers[l].k_bias->data[c];
            assert_true(is == (c == 0 || c == 9 ? was - 300.5f : was));
        }
    ds_model_close(m);
    /* An architecture without biases gets one. */
    m = open_good("random:llama," SIZES ",k_bias=50@3", 1);
    assert_true(m->layers[2].k_bias && m->layers[2].k_bias->data[3] > 49 && !m->layers[2].q_bias);
    ds_model_close(m);
    ds_model_close(plain);
}

static void test_scales(void **state)
{
    (void)state;
    struct ds_model *plain = open_good("random:llama," SIZES ",experts=4", 1);
    static const struct {
        const char *spec;
        const char *changed[8];
        size_t n;
        const char *at;
        float factor;
    } cases[] = {
        {",embed_scale=0.03125", {"token_embd.weight"}, 1, "token_embd.weight", 0.03125f},
        {",loud=64@1",
         {"blk.1.ffn_gate_exps", "blk.1.ffn_up_exps", "blk.1.ffn_down_exps"},
         3,
         "blk.1.ffn_up_exps.weight[3]",
         64.0f},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char spec[256];
        snprintf(spec, sizeof spec, "random:llama," SIZES ",experts=4%s", cases[i].spec);
        struct ds_model *m = open_good(spec, 1);
        others_are_the_same(plain, m, cases[i].changed, cases[i].n);
        const struct ds_weight *a = weight(plain, cases[i].at), *b = weight(m, cases[i].at);
        for (int64_t k = 0; k < a->rows * a->cols; k++)
            assert_true(b->data[k] == a->data[k] * cases[i].factor);
        ds_model_close(m);
    }
    ds_model_close(plain);
}

static void test_alike(void **state)
{
    (void)state;
    struct ds_model *plain = open_good("random:llama," SIZES ",experts=4", 1),
                    *m = open_good("random:llama," SIZES ",experts=4,heads_alike=1,bias=1", 1),
                    *near = open_good("random:llama," SIZES ",experts=4,router_scale=0.001", 1);
    const struct ds_layer *l = &m->layers[1];
    for (int h = 1; h < 4; h++)
        assert_memory_equal(l->q->data, l->q->data + h * 8 * 32, 8 * 32 * sizeof(float));
    assert_memory_equal(l->v->data, l->v->data + 8 * 32, 8 * 32 * sizeof(float));
    assert_memory_equal(l->k_bias->data, l->k_bias->data + 8, 8 * sizeof(float));
    assert_true(memcmp(l->o->data, l->o->data + 8, 8 * sizeof(float)) != 0);
    static const char *const changed[] = {"blk.0.ffn_gate_inp", "blk.1.ffn_gate_inp",
                                          "blk.2.ffn_gate_inp"};
    others_are_the_same(plain, near, changed, 3);
    const float *router = near->layers[0].router->data;
    double apart = 0, size = 0;
    for (int c = 0; c < 32; c++) {
        apart = fmax(apart, fabs((double)router[c] - (double)router[32 + c]));
        size = fmax(size, fabs((double)router[c]));
    }
    assert_true(apart > 0 && apart < size / 200);
    ds_model_close(plain);
    ds_model_close(m);
    ds_model_close(near);
}

static void test_wrong_specs(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *msg;
    } cases[] = {
        {"random:qwen2,experts=4", "a qwen2 model has no experts"},
        {"random:qwen3moe,experts=0", "a qwen3moe model has experts"},
        {"random:llama,top_k=2", "top_k is given, but no experts"},
        {"random:llama,experts=4,top_k=5", "5 of 4 experts cannot be chosen"},
        {"random:llama,experts=4,shared_ffn=8", "has no expert that all rows pass"},
        {"random:llama,experts=5000", "experts=5000: a whole number from 0 to 4096"},
        {"random:llama,layers=10000,experts=4096", "4096 experts in 10000 layers are too many"},
        {"random:llama,softcap=-1", "softcap=-1: a positive number"},
        {"random:llama,window=-1", "window=-1: a whole number"},
        {"random:llama,k_bias=3", "k_bias=3: VALUE@CHANNEL"},
        {"random:llama,k_bias=nan@1", "k_bias=nan@1: VALUE@CHANNEL"},
        {"random:llama,k_bias=1@", "k_bias=1@: VALUE@CHANNEL"},
        {"random:llama,k_bias=1@1;;2", "VALUE@CHANNEL"},
        {"random:llama,k_bias=1@1x", "VALUE@CHANNEL"},
        {"random:llama,k_bias=1@1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17", "at most 16 channels"},
        {"random:llama,k_bias=1@99999999999999999999", "VALUE@CHANNEL"},
        {"random:llama,k_bias=1@32", "k_bias: channel 32 of 32"},
        {"random:llama,loud=2", "loud=2: FACTOR@LAYER"},
        {"random:llama,loud=2@4", "loud: layer 4 of 4"},
        {"random:llama,loud=0@1", "loud=0@1: FACTOR@LAYER"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ds_model *m = NULL;
        struct ds_error err = {0};
        assert_int_equal(ds_model_open(cases[i].spec, 1, &m, &err), -1);
        assert_null(m);
        if (!strstr(err.msg, cases[i].msg))
            fail_msg("%s: \"%s\" does not contain \"%s\"", cases[i].spec, err.msg, cases[i].msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_architectures), cmocka_unit_test(test_large_channels_of_k),
        cmocka_unit_test(test_scales),        cmocka_unit_test(test_alike),
        cmocka_unit_test(test_wrong_specs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
