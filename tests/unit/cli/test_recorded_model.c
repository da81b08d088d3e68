/* test_recorded_model.c: which model is opened where a record or a lock names one: never a file, and nothing larger than
 * what is listed or than somebody else's name may ask for. */
#include "tests/unit/testing.h"

#include "cli/options.h"
#include "cli/recorded_model.h"
#include "engine/model.h"

#include <stdlib.h>
#include <string.h>

static struct ds_options o, with; /* without -m, and with it */

static int parse_both(void **state)
{
    static char *argv[] = {"driftscope", "replay", "a.h5", "-q", "-m", "given.gguf", NULL};
    struct ds_error err;
    (void)state;
    return ds_options_parse(4, argv, &o, &err) != 0 || ds_options_parse(6, argv, &with, &err) != 0;
}

static int free_both(void **state)
{
    (void)state;
    ds_options_free(&o);
    ds_options_free(&with);
    return 0;
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" lacks \"%s\"", text, part);
}

static struct ds_record_weight *weights_of(const char *name, size_t *n)
{
    struct ds_model *m;
    struct ds_error err;
    assert_ok(ds_model_open(name, 1, &m, &err), err);
    struct ds_record_weight *w = calloc(m->n_weights, sizeof *w);
    assert_non_null(w);
    for (size_t i = 0; i < m->n_weights; i++) {
        snprintf(w[i].name, sizeof w[i].name, "%s", m->weights[i].name);
        w[i].rows = m->weights[i].rows;
        w[i].cols = m->weights[i].cols;
    }
    *n = m->n_weights;
    ds_model_close(m);
    return w;
}

static const char *const models[] = {
    "random:llama,layers=1,hidden=8,heads=2,vocab=8",
    "random:qwen3moe,layers=2,hidden=16,heads=2,experts=4,top_k=2,vocab=16,seed=3",
    "random:qwen2moe,layers=2,hidden=16,heads=2,experts=4,vocab=16,tied=1,bias=1",
};

static void test_a_seeded_model_is_its_name(void **state)
{
    (void)state;
    struct ds_error err;
    const char *name;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct ds_recorded_model r = {.what = "record", .name = models[i]};
        struct ds_record_weight *w = weights_of(models[i], &r.n_weights);
        r.weights = w;
        assert_ok(ds_cli_model(&o, &r, &name, &err), err);
        assert_ptr_equal(name, models[i]);
        assert_ok(ds_cli_model(&with, &r, &name, &err), err);
        assert_string_equal(name, "given.gguf");
        free(w);
        r = (struct ds_recorded_model){.what = "lock", .name = models[i]};
        assert_ok(ds_cli_model(&o, &r, &name, &err), err);
        assert_ptr_equal(name, models[i]);
    }
    assert_ok(ds_cli_model(&o, NULL, &name, &err), err);
    assert_string_equal(name, "smollm2");
}

/* Whatever a file from outside says that is no random: name is not opened. */
static void test_a_file_is_never_taken_from_a_record(void **state)
{
    (void)state;
    static const char *const names[] = {
        "/etc/passwd",   "other.gguf",        "../x.gguf",    "",
        "random",        " random:llama",     "RANDOM:llama", "file:random:llama",
        "smollm2/../..", "/dev/random:llama", "Random:llama", "./random:llama",
    };
    struct ds_error err;
    const char *name;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct ds_recorded_model r = {.what = "record", .name = names[i]};
        assert_ok(ds_cli_model(&o, &r, &name, &err), err);
        assert_string_equal(name, "smollm2");
    }
    const struct ds_recorded_model none = {.what = "lock"};
    assert_ok(ds_cli_model(&o, &none, &name, &err), err);
    assert_string_equal(name, "smollm2");
}

static void refused(const struct ds_recorded_model *r, const char *why)
{
    struct ds_error err = {{0}, {0}};
    const char *name;
    assert_int_equal(ds_cli_model(&o, r, &name, &err), -1);
    assert_has(err.msg, "is not built from its name alone: ");
    assert_has(err.msg, r->what);
    assert_has(err.msg, why);
    assert_has(err.hint, "-m");
    /* With -m the same file is of use. */
    assert_ok(ds_cli_model(&with, r, &name, &err), err);
}

static void test_a_name_asks_for_no_more_than_is_listed(void **state)
{
    (void)state;
    char long_name[300] = "random:llama,seed=";
    struct ds_recorded_model r = {.what = "record"};
    struct ds_record_weight *w = weights_of(models[0], &r.n_weights);
    const size_t n = r.n_weights;
    r.weights = w;
    static const struct {
        const char *name, *why;
    } cases[] = {
        {"random:llama,layers=2,hidden=8,heads=2,vocab=8", "it has more than "},
        {"random:llama,layers=10000,hidden=8,heads=2,vocab=8", "it has more than "},
        {"random:llama,layers=1,hidden=8,heads=2,vocab=9",
         "weight 0 is token_embd.weight of 9 x 8"},
        {"random:llama,layers=1,hidden=1048576,heads=1,vocab=16777216,ffn=4194304", "GiB"},
        {"random:llama,layers=1,hidden=8,heads=2,vocab=8,bias=1", "by the name, "},
        {"random:llama,layers=1,hidden=8,heads=2,vocab=8,tied=1", "it has 11 weights, not 12"},
        {"random:qwen3moe,layers=1,hidden=8,heads=2,vocab=8,experts=4096", "it has more than "},
        {"random:mamba,layers=1", "mamba"},
        {"random:", "random:"},
        {"random:llama,layers=1,path=/etc/passwd", "path"},
        {"random:llama,layers=-1", "layers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        r.name = cases[i].name;
        refused(&r, cases[i].why);
    }
    memset(long_name + strlen(long_name), '7', 237);
    r.name = long_name;
    refused(&r, "too long");
    r.name = models[0];
    r.n_weights = n - 1;
    refused(&r, "it has more than ");
    r.n_weights = n;
    w[3].cols++;
    refused(&r, "weight 3 is ");
    w[3].cols--;
    w[n - 1].name[0] ^= 1;
    refused(&r, "by the name, ");
    free(w);
}

/* A lock lists no weights, and a record's list is no reason for a machine's memory. */
static void test_a_name_has_a_ceiling(void **state)
{
    (void)state;
    static const struct {
        const char *name, *why;
    } cases[] = {
        {"random:llama,layers=10000,hidden=64", "weights"},
        {"random:llama,layers=10000,hidden=1048576,heads=1,vocab=16777216", "weights"},
        {"random:llama,layers=1,hidden=32768,heads=1", "its weights are more than 2.0 GiB"},
        {"random:qwen3moe,layers=256,hidden=8,heads=2,experts=4096,expert_ffn=1", "weights"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct ds_recorded_model r = {.what = "lock", .name = cases[i].name};
        refused(&r, cases[i].why);
    }
    struct ds_record_weight w[] = {
        {.name = "token_embd.weight", .rows = 16777216, .cols = 1024},
        {.name = "output.weight", .rows = 16777216, .cols = 1024},
    };
    const struct ds_recorded_model listed = {.what = "record",
                                             .name =
                                                 "random:llama,layers=1,hidden=1024,vocab=16777216",
                                             .weights = w,
                                             .n_weights = 20};
    refused(&listed, "its weights are more than 2.0 GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_seeded_model_is_its_name),
        cmocka_unit_test(test_a_file_is_never_taken_from_a_record),
        cmocka_unit_test(test_a_name_asks_for_no_more_than_is_listed),
        cmocka_unit_test(test_a_name_has_a_ceiling),
    };
    return cmocka_run_group_tests(tests, parse_both, free_both);
}
