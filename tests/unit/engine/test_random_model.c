/* test_random_model.c: seeded models: the same bits everywhere, nothing inert, and specs that are
 * wrong. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "engine/model.h"
#include "engine/model_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define SMALL    "random:llama,layers=4,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512,seed=7"

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        print_error("\"%s\" does not contain \"%s\"\n", text, part);
        fail();
    }
}

static struct ds_model *open_good(const char *spec, int threads)
{
    struct ds_model *m = NULL;
    struct ds_error err = {0};
    assert_ok(ds_model_open(spec, threads, &m, &err), err);
    return m;
}

/* The definition in random_model.c's head comment, written again: odd 24-bit (20-bit for norms)
 * integers times 2^-e. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static double value(uint64_t seed, const char *name, int bits, int exponent, double centre,
                    uint64_t i)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    uint64_t key = mix(seed + 0x9e3779b97f4a7c15u) ^ mix(h);
    uint64_t x = mix(key + (i + 1) * 0x9e3779b97f4a7c15u) >> (64 - bits);
    double odd = 2.0 * ((double)x - (double)(1 << (bits - 1))) + 1.0;
    return centre + ldexp(odd, exponent);
}

static void test_values_are_what_the_definition_says(void **state)
{
    (void)state;
    struct ds_model *m = open_good(
        "random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=300,vocab=64,seed=12345,bias=1", 2);
    static const struct {
        const char *name;
        int bits, exponent;
        double centre;
    } cases[] = {
        {"token_embd.weight", 24, -24, 0},
        {"blk.0.attn_q.weight", 24, -24 - 3, 0}, /* 3 * 4^3 >= 64 */
        {"blk.1.ffn_down.weight", 24, -24 - 4, 0},
        {"blk.1.attn_norm.weight", 20, -23, 1}, /* 3 * 4^4 >= 300 */
        {"blk.0.attn_k.bias", 24, -27, 0},
        {"output.weight", 24, -24 - 3, 0},
        {"output_norm.weight", 20, -23, 1},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        const struct ds_weight *w = m->weights;
        while (strcmp(w->name, cases[c].name) != 0)
            w++;
        assert_string_equal(w->file_dtype, "random");
        for (int64_t i = 0; i < w->rows * w->cols; i++) {
            double want = value(12345, w->name, cases[c].bits, cases[c].exponent, cases[c].centre,
                                (uint64_t)i);
            assert_true((double)(float)want == want);
            assert_bits_equal(w->name, i, w->data[i], (float)want);
        }
    }
    ds_model_close(m);
}

static void test_the_same_bits_on_every_machine(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        uint64_t digest;
    } golden[] = {
        {SMALL, 0xbfb503c889abeea7u},
        {"random:llama,layers=1,hidden=32,heads=2,tied=1,bias=1,seed=18446744073709551615",
         0xc2ba409df86decbfu},
    };
    for (size_t i = 0; i < COUNT(golden); i++)
        for (int threads = 1; threads <= 3; threads++) {
            struct ds_model *m = open_good(golden[i].spec, threads);
            if (m->digest != golden[i].digest)
                print_error("%s: digest %016llx\n", golden[i].spec, (unsigned long long)m->digest);
            assert_true(m->digest == golden[i].digest);
            ds_model_close(m);
        }
}

static int by_bits(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* No two rows begin alike, no two neighbouring columns are alike, and no tensor repeats another. */
static void test_every_row_column_and_tensor_differs(void **state)
{
    (void)state;
    struct ds_model *m = open_good(SMALL, 2);
    size_t n = 0, cap = 1 << 14;
    uint64_t *starts = malloc(cap * sizeof *starts);
    assert_non_null(starts);
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct ds_weight *w = &m->weights[i];
        for (int64_t r = 0; r < w->rows; r++) {
            assert_true(n < cap);
            memcpy(&starts[n++], w->data + r * w->cols, sizeof *starts);
        }
        for (int64_t c = 1; c < w->cols && w->rows > 1; c++) {
            int same = 1;
            for (int64_t r = 0; r < w->rows; r++)
                same &= w->data[r * w->cols + c] == w->data[r * w->cols + c - 1];
            assert_false(same);
        }
    }
    qsort(starts, n, sizeof *starts, by_bits);
    for (size_t i = 1; i < n; i++)
        assert_true(starts[i] != starts[i - 1]);
    free(starts);
    ds_model_close(m);
}

static void test_layers_and_seed(void **state)
{
    (void)state;
    struct ds_model *two = open_good("random:llama,layers=2", 1),
                    *three = open_good("random:llama,layers=3", 1);
    struct ds_model *other = open_good("random:llama,layers=2,seed=8", 1);
    assert_true(two->layers[1].down->digest == three->layers[1].down->digest);
    assert_true(two->head->digest == three->head->digest);
    for (size_t i = 0; i < two->n_weights; i++) {
        assert_true(two->weights[i].digest != other->weights[i].digest);
        for (size_t j = 0; j < i; j++)
            assert_true(two->weights[i].digest != two->weights[j].digest);
    }
    ds_model_close(two);
    ds_model_close(three);
    ds_model_close(other);
}

static void test_every_key_has_its_effect(void **state)
{
    (void)state;
    struct ds_model *m = open_good(
        "random:llama,layers=3,hidden=48,heads=6,kv_heads=3,head_dim=10,ffn=20,vocab=30,ctx=99,"
        "rope_dim=4,rope_base=5e5,rope_scale=2.5,eps=0.001,tied=1,bias=1,seed=1",
        1);
    static const struct {
        const char *name, *text;
    } want[] = {{"n_layers", "3"},       {"d_model", "48"},     {"n_heads", "6"},
                {"n_kv_heads", "3"},     {"head_dim", "10"},    {"d_ff", "20"},
                {"vocab", "30"},         {"context", "99"},     {"rope_dim", "4"},
                {"rope_base", "500000"}, {"rope_scale", "2.5"}, {"rms_eps", "0.00100000005"},
                {"tied", "1"},           {"arch", "llama"}};
    size_t seen = 0;
    const char *name;
    char text[64];
    for (size_t i = 0; ds_hparam_text(&m->hp, i, &name, text, sizeof text) == 0; i++)
        for (size_t w = 0; w < COUNT(want); w++)
            if (strcmp(name, want[w].name) == 0) {
                assert_string_equal(text, want[w].text);
                seen++;
            }
    assert_int_equal(seen, COUNT(want));
    assert_ptr_equal(m->head, m->embed);
    assert_non_null(m->layers[2].down_bias);
    assert_true(m->layers[0].q->rows == 60 && m->layers[0].k->rows == 30 &&
                m->layers[0].o->cols == 60);
    assert_null(m->gguf);
    assert_string_equal(m->path, "");
    ds_model_close(m);
}

static void test_wrong_specs(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *msg, *hint;
    } cases[] = {
        {"random:", "unknown architecture \"\"", ""},
        {"random:lama", "unknown architecture \"lama\"", "did you mean \"llama\"?"},
        {"random:gpt-neo-extraordinary", "unknown architecture", "known architectures: llama"},
        {"random:llama,", "\"\" is not of the form key=value", ""},
        {"random:llama,layers", "\"layers\" is not of the form key=value", ""},
        {"random:llama,layres=2", "unknown key \"layres\"", "did you mean \"layers\"?"},
        {"random:llama,\033[2J=2", "unknown key \"\\x1b[2J\"", "keys: layers"},
        {"random:llama,layers=0", "layers=0: a whole number from 1 to 10000 is wanted", ""},
        {"random:llama,layers=", "layers=: a whole number", ""},
        {"random:llama,layers=-1", "layers=-1: a whole number", ""},
        {"random:llama,layers=2x", "layers=2x: a whole number", ""},
        {"random:llama,layers=18446744073709551617", "a whole number", ""},
        {"random:llama,layers=2,layers=2", "layers is given twice", ""},
        {"random:llama,seed=18446744073709551616",
         "seed=18446744073709551616: a whole number below 2^64", ""},
        {"random:llama,eps=nan", "eps=nan: a positive number", ""},
        {"random:llama,eps=0", "eps=0: a positive number", ""},
        {"random:llama,rope_base=1e99", "rope_base=1e99: a positive number", ""},
        {"random:llama,rope_base=1e4x", "rope_base=1e4x: a positive number", ""},
        {"random:llama,tied=2", "tied=2: a whole number from 0 to 1", ""},
        {"random:llama,heads=3", "hidden=64 is not a multiple of heads=3", ""},
        {"random:llama,heads=4,kv_heads=3", "4 heads cannot be shared evenly by 3 kv heads", ""},
        {"random:llama,hidden=12,heads=4", "must be even, from 2 to the head's 3 channels, not 3",
         ""},
        {"random:llama,rope_dim=18", "from 2 to the head's 16 channels, not 18", ""},
        {"random:llama,heads=65536,head_dim=65536", "more than 2147483647 channels", ""},
        {"random:llama,layers=10000,hidden=1048576,heads=64,ffn=4194304,vocab=16777216",
         "at most 64 GiB are allowed", ""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ds_model *m = NULL;
        struct ds_error err = {0};
        if (ds_model_open(cases[i].spec, 1, &m, &err) == 0) {
            print_error("%s was accepted\n", cases[i].spec);
            ds_model_close(m);
            fail();
        }
        assert_null(m);
        assert_has(err.msg, cases[i].msg);
        assert_has(err.hint, cases[i].hint);
    }
}

/* A model that this machine has no memory for is refused before memory is touched. */
static void test_more_than_the_memory(void **state)
{
    (void)state;
    uint64_t available = ds_memory_available();
    if (available > (uint64_t)50 << 30)
        skip(); /* nothing under the limit of 64 GiB is surely too large here */
    uint64_t rows = (available + available / 8) / (1 << 16) /
                    4; /* vocab x hidden x 4 bytes = 9/8 of what there is */
    char spec[128];
    snprintf(spec, sizeof spec,
             "random:llama,layers=1,hidden=65536,heads=1024,kv_heads=1,ffn=1,tied=1,vocab=%llu",
             (unsigned long long)rows);
    struct ds_model *m = NULL;
    struct ds_error err = {0};
    assert_int_equal(ds_model_open(spec, 1, &m, &err), -1);
    assert_has(err.msg, "GiB as f32, but only");
    assert_has(err.msg, "random:llama,layers=1,hidden=65536");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_what_the_definition_says),
        cmocka_unit_test(test_the_same_bits_on_every_machine),
        cmocka_unit_test(test_every_row_column_and_tensor_differs),
        cmocka_unit_test(test_layers_and_seed),
        cmocka_unit_test(test_every_key_has_its_effect),
        cmocka_unit_test(test_wrong_specs),
        cmocka_unit_test(test_more_than_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
