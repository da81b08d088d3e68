/* test_model_experts.c: files whose tensors hold a matrix for every expert: each is a weight of its
 * own with the right bytes, and one wrong thing is named. */
#include "tests/unit/testing.h"

#include "engine/model_priv.h"
#include "tests/unit/engine/gguf_builder.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* What a case makes wrong. Zero: nothing. */
struct change {
    const char *tensor; /* this tensor has other dimensions, or none: it is left out */
    uint64_t dims[3];
    uint32_t experts; /* key, else 3 */
    int shared_bytes; /* all experts' tensors lie at the same place */
    const char *want;
};

/* An f32 tensor of three dimensions whose element i is i + 1000 * the tensor's number. */
static void add_numbers(struct builder *b, const struct change *c, const char *name,
                        const uint64_t *dims, uint32_t n_dims)
{
    if (c->tensor && strcmp(c->tensor, name) == 0) {
        if (c->dims[0] == 0)
            return;
        dims = c->dims;
    }
    int again = c->shared_bytes && strstr(name, "_exps") && b->n_tensors > 0;
    while (!again && b->data.len % 32)
        put(&b->data, 0, 1);
    add_info(b, name, 0, n_dims, dims, again ? 0 : b->data.len);
    uint64_t n = dims[0] * dims[1] * (n_dims > 2 ? dims[2] : 1);
    for (uint64_t i = 0; i < n && !again; i++) {
        float v = (float)(1000 * b->n_tensors + i);
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        put(&b->data, bits, 4);
    }
}

static unsigned char *build(const struct change *c, size_t *size)
{
    static const struct {
        const char *name;
        uint64_t dims[3];
        uint32_t n;
    } parts[] = {{"ffn_gate_exps", {8, 16, 3}, 3},
                 {"attn_norm", {8, 1}, 2},
                 {"attn_q", {8, 8}, 2},
                 {"attn_k", {8, 8}, 2},
                 {"attn_v", {8, 8}, 2},
                 {"attn_output", {8, 8}, 2},
                 {"ffn_norm", {8, 1}, 2},
                 {"ffn_gate_inp", {8, 3}, 2},
                 {"ffn_up_exps", {8, 16, 3}, 3},
                 {"ffn_down_exps", {16, 8, 3}, 3}};
    struct builder b = {0};
    add_text(&b, "general.architecture", "llama");
    add_u32(&b, "llama.block_count", 2);
    add_u32(&b, "llama.context_length", 64);
    add_u32(&b, "llama.embedding_length", 8);
    add_u32(&b, "llama.feed_forward_length", 16);
    add_u32(&b, "llama.attention.head_count", 2);
    add_u32(&b, "llama.expert_count", c->experts ? c->experts : 3);
    add_u32(&b, "llama.expert_used_count", 2);
    add_f32(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < COUNT(parts); i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, parts[i].name);
            add_numbers(&b, c, name, parts[i].dims, parts[i].n);
        }
    add_numbers(&b, c, "token_embd.weight", (const uint64_t[]){8, 24}, 2);
    add_numbers(&b, c, "output_norm.weight", (const uint64_t[]){8, 1}, 2);
    return finish(&b, size);
}

static struct ds_model *open_built(const struct change *c, int keep, unsigned char **bytes,
                                   struct ds_error *err)
{
    size_t size = 0;
    struct ds_gguf *g = NULL;
    struct ds_model *m = NULL;
    *bytes = build(c, &size);
    assert_non_null(*bytes);
    if (ds_gguf_open_bytes(*bytes, size, "built", &g, err) != 0 ||
        ds_model_from_gguf(g, keep, 1, &m, err) != 0)
        return NULL;
    return m;
}

static void test_each_expert_is_a_weight(void **state)
{
    (void)state;
    struct ds_error err = {0};
    struct change right = {0};
    unsigned char *bytes[2];
    struct ds_model *m = open_built(&right, DS_WEIGHTS_F32, &bytes[0], &err),
                    *kept = open_built(&right, DS_WEIGHTS_FILE, &bytes[1], &err);
    assert_true(m && kept);
    assert_int_equal(m->n_weights, 2 + 2 * (7 + 9));
    assert_true(m->digest == kept->digest);
    const struct ds_weight *down = m->layers[1].down_exps, *same = kept->layers[1].down_exps;
    for (int e = 0; e < 3; e++) {
        char name[64];
        snprintf(name, sizeof name, "blk.1.ffn_down_exps.weight[%d]", e);
        assert_string_equal(down[e].name, name);
        assert_true(down[e].rows == 8 && down[e].cols == 16 && down[e].expert == e);
        for (int i = 0; i < 128; i++)
            assert_true(down[e].data[i] == down[0].data[0] + (float)(128 * e + i));
        assert_memory_equal(same[e].file_data, down[e].data, 128 * sizeof(float));
        assert_true(same[e].digest == down[e].digest);
    }
    assert_true(m->layers[0].gate == NULL && m->layers[0].router->rows == 3);
    ds_model_close(m);
    ds_model_close(kept);
    free(bytes[0]);
    free(bytes[1]);
}

static const struct change wrong[] = {
    {.tensor = "blk.1.ffn_down_exps.weight",
     .dims = {16, 8, 2},
     .want =
         "tensor blk.1.ffn_down_exps.weight is 16 x 8 x 2, but the hyperparameters ask for 16 x "
         "8 x 3"},
    {.tensor = "blk.0.ffn_up_exps.weight",
     .dims = {16, 8, 3},
     .want =
         "tensor blk.0.ffn_up_exps.weight is 16 x 8 x 3, but the hyperparameters ask for 8 x 16"},
    {.tensor = "blk.1.ffn_gate_exps.weight", .want = "which needs at least 22 tensors"},
    {.tensor = "blk.0.ffn_gate_inp.weight",
     .dims = {8, 4, 1},
     .want = "tensor blk.0.ffn_gate_inp.weight is 8 x 4, but the hyperparameters ask for 8 x 3"},
    {.experts = 4, .want = "the hyperparameters ask for 8 x 4"},
    {.experts = 4000,
     .want = "llama.expert_count is 4000, in 2 layers: more than the file can hold"},
    {.shared_bytes = 1, .want = "the tensors overlap"},
};

static void test_one_wrong_thing_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct ds_error err = {0};
        unsigned char *bytes;
        struct ds_model *m = open_built(&wrong[i], DS_WEIGHTS_F32, &bytes, &err);
        if (m || !strstr(err.msg, wrong[i].want))
            fail_msg("case %zu: \"%s\" does not contain \"%s\"", i, err.msg, wrong[i].want);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_expert_is_a_weight),
        cmocka_unit_test(test_one_wrong_thing_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
