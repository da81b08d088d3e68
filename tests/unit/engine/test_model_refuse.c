/* test_model_refuse.c: GGUF files that hold no model this build can run: each refusal names the
 * file and the field. */
#include "tests/unit/testing.h"

#include "engine/model.h"
#include "tests/unit/engine/gguf_builder.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        print_error("\"%s\" does not contain \"%s\"\n", text, part);
        fail();
    }
}

/* What a case changes in an otherwise right model of two layers. */
struct change {
    const char *drop_key; /* a key left out */
    void (*more_keys)(struct builder *b);
    const char *tensor; /* this tensor: left out, or given this type and shape */
    uint32_t type;
    uint64_t cols, rows;
    size_t bytes;
    const char *extra_tensor; /* an f32 vector [8] besides */
    const char *want, *hint;
};

static const struct {
    const char *key;
    uint32_t value;
} base_keys[] = {{"llama.block_count", 2},
                 {"llama.context_length", 64},
                 {"llama.embedding_length", 8},
                 {"llama.feed_forward_length", 16},
                 {"llama.attention.head_count", 2}};

static void base_tensor(struct builder *b, const struct change *c, const char *name, uint64_t cols,
                        uint64_t rows)
{
    if (c->tensor && strcmp(c->tensor, name) == 0) {
        if (c->rows)
            add_tensor(b, name, c->type, c->cols, c->rows, c->bytes);
        return;
    }
    add_tensor(b, name, 0, cols, rows, (size_t)(cols * rows * 4));
}

static unsigned char *build_model(const struct change *c, size_t *size)
{
    struct builder b = {0};
    if (!c->drop_key || strcmp(c->drop_key, "general.architecture") != 0)
        add_text(&b, "general.architecture", "llama");
    for (size_t i = 0; i < COUNT(base_keys); i++)
        if (!c->drop_key || strcmp(c->drop_key, base_keys[i].key) != 0)
            add_u32(&b, base_keys[i].key, base_keys[i].value);
    if (!c->drop_key || strcmp(c->drop_key, "llama.attention.layer_norm_rms_epsilon") != 0)
        add_f32(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (c->more_keys)
        c->more_keys(&b);
    base_tensor(&b, c, "token_embd.weight", 8, 24);
    for (int l = 0; l < 2; l++) {
        static const struct {
            const char *name;
            uint64_t cols, rows;
        } parts[] = {{"attn_norm", 8, 1}, {"attn_q", 8, 8},      {"attn_k", 8, 8},
                     {"attn_v", 8, 8},    {"attn_output", 8, 8}, {"ffn_norm", 8, 1},
                     {"ffn_gate", 8, 16}, {"ffn_up", 8, 16},     {"ffn_down", 16, 8}};
        for (size_t i = 0; i < COUNT(parts); i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, parts[i].name);
            base_tensor(&b, c, name, parts[i].cols, parts[i].rows);
        }
    }
    base_tensor(&b, c, "output_norm.weight", 8, 1);
    if (c->extra_tensor)
        add_tensor(&b, c->extra_tensor, 0, 8, 1, 32);
    return finish(&b, size);
}

static char temp_path[] = "/tmp/driftscope-model-XXXXXX";

/* Writes a changed model to the temporary file and opens it. */
static int open_changed(const struct change *c, struct ds_model **m, struct ds_error *err)
{
    size_t size = 0;
    unsigned char *bytes = build_model(c, &size);
    assert_non_null(bytes);
    FILE *f = fopen(temp_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    free(bytes);
    return ds_model_open(temp_path, 1, m, err);
}

static void keys_moe(struct builder *b)
{
    add_u32(b, "llama.expert_count", 8);
}
static void keys_moe_right(struct builder *b)
{
    keys_moe(b);
    add_u32(b, "llama.expert_used_count", 2);
}
static void keys_moe_used(struct builder *b)
{
    keys_moe(b);
    add_u32(b, "llama.expert_used_count", 9);
}
static void keys_moe_alone(struct builder *b)
{
    add_u32(b, "llama.expert_used_count", 2);
}
static void keys_moe_many(struct builder *b)
{
    add_u32(b, "llama.expert_count", 4097);
}
static void keys_moe_file(struct builder *b)
{
    add_u32(b, "llama.expert_count", 4000);
}
static void keys_moe_sigmoid(struct builder *b)
{
    keys_moe_right(b);
    add_u32(b, "llama.expert_gating_func", 2);
}
static void keys_window(struct builder *b)
{
    add_u32(b, "llama.attention.sliding_window", 2147483648u);
}
static void keys_pattern(struct builder *b)
{
    add_key(b, "llama.attention.sliding_window_pattern", DS_GGUF_ARRAY);
    put(&b->meta, DS_GGUF_BOOL, 4);
    put(&b->meta, 3, 8);
    put(&b->meta, 0x010001, 3);
}
static void keys_step(struct builder *b)
{
    keys_moe_right(b);
    add_u32(b, "llama.interleave_moe_layer_step", 3);
}
static void keys_step_huge(struct builder *b)
{
    keys_moe_right(b);
    add_u32(b, "llama.interleave_moe_layer_step", 4294967295u);
}
static void keys_cap(struct builder *b)
{
    add_f32(b, "llama.attn_logit_softcapping", -1.0f);
}
static void keys_qwen2(struct builder *b)
{
    add_text(b, "general.architecture", "qwen2");
}
static void keys_causal(struct builder *b)
{
    add_key(b, "llama.attention.causal", DS_GGUF_BOOL);
    put(&b->meta, 0, 1);
}
static void keys_softcap(struct builder *b)
{
    add_f32(b, "llama.final_logit_softcapping", 30.0f);
}
static void keys_yarn(struct builder *b)
{
    add_text(b, "llama.rope.scaling.type", "yarn");
}
static void keys_scale(struct builder *b)
{
    add_f32(b, "llama.rope.scaling.factor", -2.0f);
}
static void keys_base(struct builder *b)
{
    add_f32(b, "llama.rope.freq_base", NAN);
}
static void keys_kv(struct builder *b)
{
    add_u32(b, "llama.attention.head_count_kv", 3);
}
static void keys_kv_huge(struct builder *b)
{
    add_u32(b, "llama.attention.head_count_kv", 0xffffffffu);
}
static void keys_zero(struct builder *b)
{
    add_u32(b, "llama.block_count", 0);
}
static void keys_layers(struct builder *b)
{
    add_u32(b, "llama.block_count", 2147483647);
}
static void keys_three(struct builder *b)
{
    add_u32(b, "llama.block_count", 3);
}
static void keys_heads(struct builder *b)
{
    add_u32(b, "llama.attention.head_count", 3);
}
static void keys_text(struct builder *b)
{
    add_text(b, "llama.attention.head_count", "2");
}
static void keys_rope(struct builder *b)
{
    add_u32(b, "llama.rope.dimension_count", 6);
}
static void keys_rope_odd(struct builder *b)
{
    add_u32(b, "llama.rope.dimension_count", 3);
}
static void keys_vocab(struct builder *b)
{
    add_u32(b, "llama.vocab_size", 25);
}
static void keys_other(struct builder *b)
{
    add_text(b, "general.architecture", "lamma");
}
static void keys_split(struct builder *b)
{
    add_u32(b, "split.count", 3);
}

static void keys_zero_byte(struct builder *b)
{
    add_key(b, "general.architecture", DS_GGUF_STRING);
    put_str(&b->meta, "llama\0x", 7);
}

static void keys_eps(struct builder *b)
{
    add_f32(b, "llama.attention.layer_norm_rms_epsilon", INFINITY);
}

static void keys_lengths(struct builder *b)
{
    add_u32(b, "llama.attention.key_length", 4);
    add_u32(b, "llama.attention.value_length", 8);
}

static void keys_per_layer(struct builder *b)
{
    add_key(b, "llama.attention.head_count_kv", DS_GGUF_ARRAY);
    put(&b->meta, DS_GGUF_U32, 4);
    put(&b->meta, 2, 8);
    put(&b->meta, 0x200000001u, 8);
}

static const struct change refused[] = {
    {.drop_key = "general.architecture", .want = "general.architecture is missing"},
    {.drop_key = "general.architecture",
     .more_keys = keys_other,
     .want = "general.architecture: unknown architecture \"lamma\"",
     .hint = "did you mean \"llama\"?"},
    {.drop_key = "general.architecture",
     .more_keys = keys_zero_byte,
     .want = "unknown architecture \"llama?x\""},
    {.more_keys = keys_split,
     .want = "split.count is 3: one part of a model in several files",
     .hint = "merge"},
    {.drop_key = "llama.block_count", .want = "llama.block_count is missing"},
    {.drop_key = "llama.context_length", .want = "llama.context_length is missing"},
    {.drop_key = "llama.embedding_length", .want = "llama.embedding_length is missing"},
    {.drop_key = "llama.feed_forward_length", .want = "llama.feed_forward_length is missing"},
    {.drop_key = "llama.attention.head_count", .want = "llama.attention.head_count is missing"},
    {.drop_key = "llama.attention.layer_norm_rms_epsilon",
     .want = "llama.attention.layer_norm_rms_epsilon is missing"},
    {.drop_key = "llama.attention.layer_norm_rms_epsilon",
     .more_keys = keys_eps,
     .want = "epsilon"},
    {.more_keys = keys_moe, .want = "llama.expert_used_count is 0 of 8 experts"},
    {.more_keys = keys_moe_used, .want = "llama.expert_used_count is 9 of 8 experts"},
    {.more_keys = keys_moe_alone,
     .want = "llama.expert_used_count is 2 without llama.expert_count"},
    {.more_keys = keys_moe_many, .want = "llama.expert_count is 4097; at most 4096 are possible"},
    {.more_keys = keys_moe_file,
     .want = "llama.expert_count is 4000, in 2 layers: more than the file can hold"},
    {.more_keys = keys_moe_sigmoid, .want = "llama.expert_gating_func: another choice of experts"},
    {.more_keys = keys_moe_right,
     .want = "llama.block_count is 2, which needs at least 22 tensors"},
    {.more_keys = keys_window, .want = "llama.attention.sliding_window is 2147483648; at most"},
    {.more_keys = keys_pattern,
     .want = "llama.attention.sliding_window_pattern tells of 3 layers, and there are 2"},
    {.more_keys = keys_step,
     .want = "experts in one layer of 3, and not in the first 0: none of 2 layers has any"},
    {.more_keys = keys_step_huge, .want = "llama.interleave_moe_layer_step is 4294967295; at most"},
    {.more_keys = keys_cap, .want = "the soft cap must be a positive number or 0, not -1"},
    {.drop_key = "general.architecture",
     .more_keys = keys_qwen2,
     .want = "qwen2.block_count is missing"},
    {.more_keys = keys_causal, .want = "llama.attention.causal"},
    {.more_keys = keys_softcap, .want = "llama.final_logit_softcapping"},
    {.more_keys = keys_yarn,
     .want = "llama.rope.scaling.type is \"yarn\", which is not supported",
     .hint = "linear"},
    {.more_keys = keys_scale, .want = "the rope scaling factor must be a positive number, not -2"},
    {.more_keys = keys_base, .want = "the rope base must be a positive number, not nan"},
    {.more_keys = keys_kv, .want = "2 heads cannot be shared evenly by 3 kv heads"},
    {.more_keys = keys_kv_huge, .want = "llama.attention.head_count_kv is 4294967295"},
    {.more_keys = keys_per_layer,
     .want = "llama.attention.head_count_kv is an array of 2 u32 values; one whole number"},
    {.drop_key = "llama.block_count", .more_keys = keys_zero, .want = "llama.block_count is 0"},
    {.drop_key = "llama.block_count",
     .more_keys = keys_layers,
     .want = "llama.block_count is 2147483647, which needs at least"},
    {.drop_key = "llama.block_count",
     .more_keys = keys_three,
     .want = "llama.block_count is 3, which needs at least 29 tensors"},
    {.drop_key = "llama.attention.head_count",
     .more_keys = keys_heads,
     .want = "8 is not a multiple of attention.head_count 3"},
    {.drop_key = "llama.attention.head_count",
     .more_keys = keys_text,
     .want = "llama.attention.head_count has type string"},
    {.more_keys = keys_rope, .want = "from 2 to the head's 4 channels, not 6"},
    {.more_keys = keys_rope_odd, .want = "must be even, from 2 to the head's 4 channels, not 3"},
    {.more_keys = keys_vocab,
     .want = "tensor token_embd.weight is 8 x 24, but the hyperparameters ask for 8 x 25"},
    {.more_keys = keys_lengths, .want = "key_length is 4 and value_length is 8"},
    {.tensor = "blk.1.attn_k.weight",
     .extra_tensor = "rope_freqs.weight",
     .want = "tensor blk.1.attn_k.weight is missing"},
    {.tensor = "token_embd.weight",
     .extra_tensor = "blk.0.attn_q.bias",
     .want = "tensor token_embd.weight is missing"},
    {.tensor = "blk.0.ffn_up.weight",
     .cols = 16,
     .rows = 8,
     .bytes = 512,
     .want = "tensor blk.0.ffn_up.weight is 16 x 8, but the hyperparameters ask for 8 x 16"},
    {.tensor = "output_norm.weight",
     .cols = 7,
     .rows = 1,
     .bytes = 28,
     .want = "tensor output_norm.weight is 7, but the hyperparameters ask for 8"},
    {.tensor = "blk.0.ffn_norm.weight",
     .type = 28,
     .cols = 8,
     .rows = 1,
     .bytes = 64,
     .want = "tensor blk.0.ffn_norm.weight has type f64, which is not supported",
     .hint = "supported types: f32 f16 q4_0 q4_1 q8_0 bf16"},
    {.extra_tensor = "blk.2.attn_q.bias",
     .want = "tensor blk.2.attn_q.bias is not part of a llama model"},
    {.extra_tensor = "blk.0.attn_q_norm.weight",
     .want = "tensor blk.0.attn_q_norm.weight is not part of a llama model"},
    {.extra_tensor = "attn_rot_embd.weight", .want = "tensor attn_rot_embd.weight is not part"},
};

static void test_one_wrong_thing_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(refused); i++) {
        struct ds_model *m = NULL;
        struct ds_error err = {0};
        if (open_changed(&refused[i], &m, &err) == 0) {
            print_error("case %zu: accepted, but \"%s\" was expected\n", i, refused[i].want);
            ds_model_close(m);
            fail();
        }
        assert_null(m);
        assert_has(err.msg, refused[i].want);
        assert_has(err.msg, temp_path);
        assert_has(err.hint, refused[i].hint ? refused[i].hint : "");
    }
}

static void keys_neutral(struct builder *b)
{
    add_u32(b, "llama.expert_count", 0);
    add_f32(b, "llama.logit_scale", 1.0f);
    add_key(b, "llama.attention.causal", DS_GGUF_BOOL);
    put(&b->meta, 1, 1);
    add_text(b, "llama.rope.scaling.type", "none");
    add_f32(b, "llama.rope.scaling.factor", 8.0f);
    add_u32(b, "llama.rope.freq_base", 500000);
}

static void keys_old_scale(struct builder *b)
{
    add_f32(b, "llama.rope.scale_linear", 4.0f);
}

static void test_right_models_are_not_refused(void **state)
{
    (void)state;
    struct ds_model *m = NULL;
    struct ds_error err = {0};
    struct change c = {.more_keys = keys_neutral, .extra_tensor = "blk.1.attn_rot_embd.weight"};
    assert_ok(open_changed(&c, &m, &err), err);
    assert_true(m->hp.rope_scale == 1.0f && m->hp.rope_base == 500000.0f && m->hp.n_kv_heads == 2 &&
                m->hp.vocab == 24);
    assert_int_equal(m->n_weights, 20);
    ds_model_close(m);
    c = (struct change){.more_keys = keys_old_scale};
    assert_ok(open_changed(&c, &m, &err), err);
    assert_true(m->hp.rope_scale == 4.0f);
    ds_model_close(m);
}

/* Many tensors on the same bytes must not make much memory of a small file. */
static void test_overlap_cannot_multiply_memory(void **state)
{
    (void)state;
    struct builder b = {0};
    add_text(&b, "general.architecture", "llama");
    for (size_t i = 1; i < COUNT(base_keys); i++)
        add_u32(&b, base_keys[i].key, base_keys[i].value);
    add_u32(&b, "llama.block_count", 200);
    add_f32(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    uint64_t embed[2] = {8, 3000}, gate[2] = {8, 16}, down[2] = {16, 8}, square[2] = {8, 8};
    add_info(&b, "token_embd.weight", 0, 2, embed, 0);
    add_info(&b, "output_norm.weight", 0, 1, square, 0);
    for (int l = 0; l < 200; l++) {
        static const char *const parts[] = {"attn_norm", "ffn_norm", "attn_q",
                                            "attn_k",    "attn_v",   "attn_output",
                                            "ffn_gate",  "ffn_up",   "ffn_down"};
        for (size_t i = 0; i < COUNT(parts); i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, parts[i]);
            add_info(&b, name, 0, i < 2 ? 1 : 2, i < 6 ? square : i < 8 ? gate : down, 0);
        }
    }
    for (size_t i = 0; i < 96000; i++)
        put(&b.data, 0, 1);
    size_t size = 0;
    unsigned char *bytes = finish(&b, &size);
    assert_non_null(bytes);
    FILE *f = fopen(temp_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    free(bytes);
    struct ds_model *m = NULL;
    struct ds_error err = {0};
    assert_int_equal(ds_model_open(temp_path, 1, &m, &err), -1);
    assert_has(err.msg, "the tensors overlap");
}

static int make_temp(void **state)
{
    (void)state;
    int fd = mkstemp(temp_path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_temp(void **state)
{
    (void)state;
    return unlink(temp_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_wrong_thing_is_named),
        cmocka_unit_test(test_right_models_are_not_refused),
        cmocka_unit_test(test_overlap_cannot_multiply_memory),
    };
    return cmocka_run_group_tests(tests, make_temp, remove_temp);
}
