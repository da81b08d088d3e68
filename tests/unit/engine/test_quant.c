/* test_quant.c: every loadable tensor type gives the bits of the gguf Python package (fixtures:
 * make_gguf_fixtures.py). */
#include "tests/unit/testing.h"

#include "engine/gguf.h"
#include "tests/unit/engine/gguf_builder.h"

#include <string.h>

#define DATA     "tests/data/gguf/"
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static void test_bits_equal_the_package(void **state)
{
    (void)state;
    struct ds_gguf *g;
    struct ds_error err = {0};
    assert_ok(ds_gguf_open(DATA "types.gguf", &g, &err), err);
    size_t size = 0, at = 0;
    unsigned char *want = read_file(DATA "types.f32", &size);
    assert_non_null(want);
    assert_int_equal(ds_gguf_tensor_count(g), 6);
    for (size_t i = 0; i < 6; i++) {
        const struct ds_gguf_tensor *t = ds_gguf_tensor_at(g, i);
        const struct ds_quant_type *type = ds_quant_find(t->type);
        assert_non_null(type);
        assert_string_equal(type->name, t->name);
        size_t n = (size_t)(t->dims[0] * t->dims[1]);
        assert_true(at + n * 4 <= size);
        float *got = malloc(n * sizeof *got);
        assert_non_null(got);
        type->to_f32(t->data, got, n);
        for (size_t e = 0; e < n; e++) {
            float w;
            memcpy(&w, want + at + e * 4, 4);
            assert_bits_equal(t->name, e, got[e], w);
        }
        /* Block by block, from an odd address: the same. */
        unsigned char *moved = malloc(type->bytes + 1);
        float *block = malloc(type->block * sizeof *block);
        assert_true(moved && block);
        for (size_t b = 0; b < n / type->block; b++) {
            memcpy(moved + 1, (const unsigned char *)t->data + b * type->bytes, type->bytes);
            type->to_f32(moved + 1, block, type->block);
            assert_memory_equal(block, got + b * type->block, type->block * sizeof *block);
        }
        free(moved);
        free(block);
        free(got);
        at += n * 4;
    }
    assert_int_equal(at, size);
    free(want);
    ds_gguf_close(g);
}

/* The fixture would prove little if it held ordinary numbers only. */
static void test_the_fixture_has_every_kind_of_value(void **state)
{
    (void)state;
    size_t size = 0;
    unsigned char *bytes = read_file(DATA "types.f32", &size);
    assert_non_null(bytes);
    int nan_kinds = 0, infinite = 0, subnormal = 0, negative_zero = 0, normal = 0;
    uint32_t payloads[64] = {0};
    for (size_t i = 0; i + 4 <= size; i += 4) {
        uint32_t u;
        memcpy(&u, bytes + i, 4);
        uint32_t mag = u & 0x7fffffffu;
        if (mag > 0x7f800000u) {
            int known = 0;
            for (int k = 0; k < nan_kinds; k++)
                known |= payloads[k] == u;
            if (!known && nan_kinds < 64)
                payloads[nan_kinds++] = u;
        }
        infinite += mag == 0x7f800000u;
        subnormal += mag && mag < 0x00800000u;
        negative_zero += u == 0x80000000u;
        normal += mag >= 0x00800000u && mag < 0x7f800000u;
    }
    assert_true(nan_kinds >= 20 && infinite > 10 && subnormal >= 5 && negative_zero > 5 &&
                normal > 1000);
    free(bytes);
}

static void test_table(void **state)
{
    (void)state;
    static const struct {
        uint32_t ggml, block, bytes;
        const char *name;
        int loads;
    } rows[] = {{0, 1, 4, "f32", 1},        {1, 1, 2, "f16", 1},       {2, 32, 18, "q4_0", 1},
                {3, 32, 20, "q4_1", 1},     {8, 32, 34, "q8_0", 1},    {30, 1, 2, "bf16", 1},
                {12, 256, 144, "q4_k", 0},  {14, 256, 210, "q6_k", 0}, {39, 32, 17, "mxfp4", 0},
                {16, 256, 66, "iq2_xxs", 0}};
    char space[32];
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint32_t block, bytes;
        assert_int_equal(ds_quant_layout(rows[i].ggml, &block, &bytes), 0);
        assert_int_equal(block, rows[i].block);
        assert_int_equal(bytes, rows[i].bytes);
        assert_string_equal(ds_quant_name(rows[i].ggml, space, sizeof space), rows[i].name);
        const struct ds_quant_type *t = ds_quant_find(rows[i].ggml);
        assert_int_equal(t != NULL, rows[i].loads);
        assert_true(!t || (t->block == block && t->bytes == bytes));
    }
    static const uint32_t unknown[] = {4, 5, 31, 36, 99, 0xffffffffu};
    for (size_t i = 0; i < COUNT(unknown); i++) {
        uint32_t block, bytes;
        assert_null(ds_quant_find(unknown[i]));
        assert_int_equal(ds_quant_layout(unknown[i], &block, &bytes), -1);
    }
    assert_string_equal(ds_quant_name(99, space, sizeof space), "type 99");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_equal_the_package),
        cmocka_unit_test(test_the_fixture_has_every_kind_of_value),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
