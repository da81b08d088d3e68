/* test_module.c: the description of a kernel in a cubin or PTX: what it gives a launch; every mistake is
 * named; no text, cut or bent anywhere, does harm. */
#include "tests/unit/testing.h"

#include "kernels/module.h"
#include "kernels/module_kernel.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START     "{\"schema\": \"driftscope.module/1\", "
#define KERNEL    START "\"op\": \"add\", \"variant\": \"v\", \"entry\": \"e\", "
#define ARGUMENTS "\"arguments\": [\"a\", \"y\"]"

static const char whole[] = KERNEL
    "\"summary\": \"a + b\", \"claims\": [\"repeat\", \"chunk\"], \"stored\": [\"f32\", \"bf16\"], "
    "\"grid\": [{\"of\": \"width\", \"per\": 256}, {\"of\": \"rows\"}, 2], "
    "\"block\": [128, 2], \"shared\": 4096, \"arguments\": [\"a\", \"b\", \"y\", \"ldy\", "
    "{\"of\": \"width\", \"as\": \"i32\"}, {\"value\": -3, \"as\": \"i32\"}, "
    "{\"value\": 0.5, \"as\": \"f32\"}, {\"value\": 9, \"as\": \"i64\"}]}";

static void test_whole(void **state)
{
    struct ds_module m;
    struct ds_error err;
    float a, b, y;
    const struct ds_add_args args = {
        .rows = 7, .width = 513, .a = &a, .b = &b, .y = &y, .ldy = 520};
    union ds_module_slot slot[DS_MODULE_MOST_ARGUMENTS];
    uint32_t grid[3];
    (void)state;
    assert_ok(ds_module_parse("k.json", whole, sizeof whole - 1, &m, &err), err);
    assert_int_equal(m.op, DS_OP_ADD);
    assert_string_equal(m.variant, "v");
    assert_string_equal(m.entry, "e");
    assert_string_equal(m.summary, "a + b");
    assert_int_equal(m.claims, DS_CLAIM_REPEAT | DS_CLAIM_CHUNK);
    assert_int_equal(m.stored, 1u << DS_ELEMENT_F32 | 1u << DS_ELEMENT_BF16);
    assert_int_equal(m.block[0] * 10000 + m.block[1] * 10 + m.block[2], 1280021);
    assert_int_equal(m.shared_bytes, 4096);
    assert_int_equal(m.n_arguments, 8);
    assert_ok(ds_module_launch(&m, &args, grid, slot, &err), err);
    assert_true(grid[0] == 3 && grid[1] == 7 && grid[2] == 2);
    assert_true(slot[0].pointer == &a && slot[1].pointer == &b && slot[2].pointer == &y);
    assert_true(slot[3].i64 == 520 && slot[4].i32 == 513 && slot[5].i32 == -3);
    assert_true(slot[6].f32 == 0.5f && slot[7].i64 == 9);
}

static void test_sizes_that_do_not_fit(void **state)
{
    struct ds_module m;
    struct ds_error err;
    struct ds_add_args args = {.rows = 7, .width = 513};
    union ds_module_slot slot[DS_MODULE_MOST_ARGUMENTS];
    uint32_t grid[3];
    (void)state;
    assert_ok(ds_module_parse("k.json", whole, sizeof whole - 1, &m, &err), err);
    args.rows = 65536;
    assert_int_equal(ds_module_launch(&m, &args, grid, slot, &err), -1);
    assert_string_equal(err.msg, "add/v: 65536 blocks in dimension 1 of the grid");
    args.rows = 0;
    assert_int_equal(ds_module_launch(&m, &args, grid, slot, &err), -1);
    args.rows = 1;
    args.width = (int64_t)1 << 31;
    assert_int_equal(ds_module_launch(&m, &args, grid, slot, &err), -1);
    assert_string_equal(err.msg, "add/v: argument 4: 2147483648 is no i32");
    args.width = INT64_MAX;
    assert_int_equal(ds_module_launch(&m, &args, grid, slot, &err), -1);
    args.width = INT64_MIN;
    assert_int_equal(ds_module_launch(&m, &args, grid, slot, &err), -1);
}

static void test_mistakes(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "not JSON: line 1"},
        {"[]", "not a JSON object"},
        {"{}", "schema is not a text"},
        {"{\"schema\": \"driftscope.module/2\"}", "schema is 'driftscope.module/2'"},
        {START "\"schema\": 1}", "not JSON"}, /* a key twice */
        {START "\"speed\": 1}", "a key that is not known"},
        {START "\"op\": \"attention\"}", "op 'attention' is none that a module can be"},
        {START "\"op\": \"nothing\"}", "op 'nothing'"},
        {START "\"op\": 3}", "op is not a text"},
        {START "\"op\": \"add\", \"variant\": \"V\", \"entry\": \"e\"}", "variant 'V'"},
        {START "\"op\": \"add\", \"variant\": \"v\", \"entry\": \"\"}", "entry has 0 characters"},
        {START "\"op\": \"add\", \"variant\": \"v\", \"entry\": \"\\u001b[31m\"}", "printable"},
        {START "\"op\": \"add\", \"variant\": \"0123456789012345678901234567890123\"}",
         "variant has 34 characters, 1 to 31"},
        {KERNEL "\"claims\": [\"all\"]}", "claims: element 0"},
        {KERNEL "\"claims\": \"batch\"}", "claims is not a list"},
        {KERNEL "\"stored\": []}", "stored is empty"},
        {KERNEL "\"grid\": 3}", "grid is not a list"},
        {KERNEL "\"grid\": [1, 1, 1, 1]}", "grid is not a list"},
        {KERNEL "\"grid\": [0]}", "grid: element 0"},
        {KERNEL "\"grid\": [{\"of\": \"a\"}]}", "grid: element 0"},
        {KERNEL "\"grid\": [{\"of\": \"rows\", \"per\": 0}]}", "per of element 0"},
        {KERNEL "\"grid\": [{\"of\": \"rows\", \"by\": 2}]}", "grid has a key"},
        {KERNEL "\"block\": [1025]}", "1 to 1024 threads"},
        {KERNEL "\"block\": [64, 32]}", "1 to 1024 threads"},
        {KERNEL "\"shared\": -1}", "shared is not a number of bytes"},
        {KERNEL "\"shared\": 0}", "arguments is not a list of 1 to 32"},
        {KERNEL "\"arguments\": []}", "arguments is not a list of 1 to 32"},
        {KERNEL "\"arguments\": [\"q\"]}", "argument 0 is no member of add"},
        {KERNEL "\"arguments\": [null]}", "argument 0 is neither"},
        {KERNEL "\"arguments\": [{\"of\": 3}]}", "argument 0 is no member"},
        {KERNEL "\"arguments\": [{\"of\": \"a\", \"as\": \"i64\"}]}", "a is of another kind"},
        {KERNEL "\"arguments\": [{\"of\": \"rows\", \"as\": \"f32\"}]}", "rows is of another kind"},
        {KERNEL "\"arguments\": [{\"of\": \"rows\", \"as\": \"u8\"}]}", "none of i32, i64, f32"},
        {KERNEL "\"arguments\": [{\"value\": 3}]}", "a value with its type"},
        {KERNEL "\"arguments\": [{\"value\": 3, \"of\": \"rows\", \"as\": \"i32\"}]}", "neither"},
        {KERNEL "\"arguments\": [{\"value\": 2147483648, \"as\": \"i32\"}]}", "does not fit"},
        {KERNEL "\"arguments\": [{\"value\": 1.5, \"as\": \"i64\"}]}", "does not fit"},
        {KERNEL "\"arguments\": [{\"value\": \"3\", \"as\": \"f32\"}]}", "does not fit"},
        {KERNEL ARGUMENTS "} x", "not JSON"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_module m;
        struct ds_error err;
        const int rc = ds_module_parse("k.json", cases[i].text, strlen(cases[i].text), &m, &err);
        if (rc != -1 || !strstr(err.msg, cases[i].says) ||
            strncmp(err.msg, "module k.json: ", 15)) {
            print_error("%s: '%s', not '%s'\n", cases[i].text, rc ? err.msg : "", cases[i].says);
            fail();
        }
    }
    struct ds_module m;
    struct ds_error err;
    assert_ok(
        ds_module_parse("k.json", KERNEL ARGUMENTS "}", strlen(KERNEL ARGUMENTS "}"), &m, &err),
        err);
}

/* Cut at every byte, every byte replaced by others, nested deeply, long. */
static void test_hostile(void **state)
{
    static const char with[] = {'\0', '"', '{', '[', ',', '9', '-', '\\', '\x7f', (char)0xff};
    struct ds_module m;
    char *text = malloc(sizeof whole), *deep = malloc(100000);
    int accepted = 0;
    (void)state;
    assert_true(text && deep);
    for (size_t n = 0; n < sizeof whole - 1; n++)
        assert_int_equal(ds_module_parse("k.json", whole, n, &m, NULL), -1);
    for (size_t i = 0; i < sizeof whole - 1; i++)
        for (size_t w = 0; w < sizeof with; w++) {
            memcpy(text, whole, sizeof whole);
            text[i] = with[w];
            if (ds_module_parse("k.json", text, sizeof whole - 1, &m, NULL) != 0)
                continue;
            accepted++;
            assert_true(m.n_arguments >= 1 && m.n_arguments <= DS_MODULE_MOST_ARGUMENTS);
            assert_true(memchr(m.entry, '\0', sizeof m.entry) && *m.entry);
            assert_true(m.block[0] * m.block[1] * m.block[2] <= 1024);
        }
    assert_true(accepted > 0);
    memset(deep, '[', 100000);
    assert_int_equal(ds_module_parse("k.json", deep, 60000, &m, NULL), -1);
    assert_int_equal(ds_module_parse("k.json", deep, 100000, &m, NULL), -1);
    free(text);
    free(deep);
}

/* ---- as a variant, launched by a library that adds on the host -------------------------------------------- */

static int loads, launches;

static int fake_load(const void *image, const char *entry, uint32_t shared_bytes, void **kernel,
                     char *why, size_t why_size)
{
    (void)why, (void)why_size;
    loads++;
    assert_string_equal(image, "code");
    assert_string_equal(entry, "e");
    assert_int_equal(shared_bytes, 4096);
    *kernel = &loads;
    return 0;
}

/* a, b, y, ldy, width, -3, 0.5, 9: of the description above. */
static int fake_launch(void *kernel, const uint32_t grid[3], const uint32_t block[3],
                       uint32_t shared_bytes, void *stream, void **argument, char *why,
                       size_t why_size)
{
    const float *const *a = argument[0], *const *b = argument[1];
    float **y = argument[2];
    launches++;
    assert_ptr_equal(kernel, &loads);
    assert_ptr_equal(stream, &launches);
    assert_true(grid[0] == 1 && grid[1] == 1 && grid[2] == 2 && block[0] == 128 && block[1] == 2);
    assert_true(shared_bytes == 4096 && *(int64_t *)argument[3] == 4 &&
                *(int32_t *)argument[5] == -3 && *(float *)argument[6] == 0.5f);
    for (int32_t i = 0; i < *(int32_t *)argument[4]; i++)
        (*y)[i] = (*a)[i] + (*b)[i];
    if (launches < 3)
        return 0;
    snprintf(why, why_size, "an illegal address");
    return -1;
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void test_as_a_variant(void **state)
{
    static const struct ds_device_library library = {.module_load = fake_load,
                                                     .module_launch = fake_launch};
    char folder[] = "/tmp/driftscope-module-XXXXXX", cubin[64], json[64], why[128] = "";
    float a[4] = {1, 2, 3, 4}, b[4] = {10, 20, 30, 40}, y[4] = {0};
    struct ds_add_args args = {.rows = 1, .width = 4, .a = a, .b = b, .y = y, .ldy = 4};
    const struct ds_exec exec = {.stream = &launches};
    const struct ds_kernel *const *list;
    struct ds_error err;
    uint64_t digest = 0;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(cubin, sizeof cubin, "%s/k.cubin", folder);
    snprintf(json, sizeof json, "%s/k.json", folder);
    write_file(json, whole);
    assert_int_equal(ds_module_kernel_new(cubin, &library, &list, &digest, &err), -1);
    write_file(cubin, "code");
    assert_ok(ds_module_kernel_new(cubin, &library, &list, &digest, &err), err);
    const struct ds_kernel *k = list[0];
    assert_null(list[1]);
    assert_true(digest != 0 && k->op == DS_OP_ADD && k->device == DS_DEVICE_CUDA);
    assert_string_equal(k->name, "v");
    assert_int_equal(k->claims, DS_CLAIM_REPEAT | DS_CLAIM_CHUNK);
    assert_int_equal(k->features, DS_FEATURE_STORED);
    assert_int_equal(loads, 0); /* not before it is needed */
    for (int i = 0; i < 2; i++)
        assert_int_equal(k->launch(&args, &exec, why, sizeof why), 0);
    assert_int_equal(loads, 1);
    assert_true(y[0] == 11 && y[3] == 44);
    args.stored = DS_ELEMENT_F16; /* its description has f32 and bf16 */
    assert_int_equal(k->launch(&args, &exec, why, sizeof why), -1);
    assert_non_null(strstr(why, "activations of type 1"));
    args.stored = DS_ELEMENT_BF16;
    assert_int_equal(k->launch(&args, &exec, why, sizeof why), -1);
    assert_string_equal(why, "an illegal address");
    for (int i = 1; i < DS_MODULE_MOST; i++)
        assert_ok(ds_module_kernel_new(cubin, &library, &list, &digest, &err), err);
    assert_int_equal(ds_module_kernel_new(cubin, &library, &list, &digest, &err), -1);
    assert_non_null(strstr(err.msg, "more than 8 modules"));
    unlink(cubin);
    unlink(json);
    rmdir(folder);
}

static void test_names(void **state)
{
    (void)state;
    assert_true(ds_module_is_named("a/k.cubin") && ds_module_is_named("k.ptx"));
    assert_false(ds_module_is_named("k.so") || ds_module_is_named("a.cubin/k") ||
                 ds_module_is_named("cubin"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),    cmocka_unit_test(test_sizes_that_do_not_fit),
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_names),    cmocka_unit_test(test_as_a_variant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
