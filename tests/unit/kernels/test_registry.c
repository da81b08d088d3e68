/* test_registry.c: names, the table, sets and their error texts, instruction sets. */
#include "tests/unit/kernels/harness.h"

#include "base/mem.h"

static void test_op_names(void **state)
{
    (void)state;
    for (int op = 0; op < DS_OP_COUNT; op++)
        assert_int_equal(ds_op_parse(ds_op_name(op)), op);
    assert_string_equal(ds_op_name(DS_OP_SILU_MUL), "silu_mul");
    assert_null(ds_op_name(-1));
    assert_null(ds_op_name(DS_OP_COUNT));
    assert_int_equal(ds_op_parse("softmix"), -1);
}

/* Every entry is complete and can be found by its name; no op but custom lacks reference or pinned. */
static void test_table(void **state)
{
    (void)state;
    assert_null(ds_kernel_at(ds_kernel_count()));
    for (size_t i = 0; i < ds_kernel_count(); i++) {
        const struct ds_kernel *k = ds_kernel_at(i);
        assert_int_equal(k->abi, DS_KERNEL_ABI);
        assert_non_null(k->launch);
        assert_true(strlen(k->summary) > 5 && strlen(k->summary) < 110);
        /* What does not even repeat can promise nothing else; only the variant that imitates a race
         * may do so. */
        assert_true(k->claims <= DS_CLAIM_ALL);
        assert_int_equal((k->claims & DS_CLAIM_REPEAT) != 0, strcmp(k->name, "atomic") != 0);
        assert_true((k->claims & DS_CLAIM_REPEAT) || k->claims == 0);
        assert_ptr_equal(ds_kernel_find(k->op, k->name), k);
    }
    for (int op = 0; op < DS_OP_COUNT; op++) {
        if (op == DS_OP_CUSTOM)
            continue;
        assert_int_equal(kernel(op, "pinned")->claims, DS_CLAIM_ALL);
        assert_int_equal(kernel(op, "reference")->claims, DS_CLAIM_ALL);
    }
    assert_null(ds_kernel_find(DS_OP_ADD, "openblas"));
    assert_int_equal(kernel(DS_OP_MATMUL, "openblas")->claims, DS_CLAIM_REPEAT);
    assert_false(kernel(DS_OP_ATTENTION, "vendor")->claims &
                 (DS_CLAIM_THREADS | DS_CLAIM_CHUNK | DS_CLAIM_BATCH));
}

static void test_sets(void **state)
{
    static const struct {
        const char *spec, *rmsnorm, *matmul, *attention, *add;
    } cases[] = {
        {"vendor", "rows", "openblas", "vendor", "reference"},
        {"pinned", "pinned", "pinned", "pinned", "pinned"},
        {"reference", "reference", "reference", "reference", "reference"},
        {"vendor+attention=pinned", "rows", "openblas", "pinned", "reference"},
        {"vendor+attention=pinned+matmul=reference", "rows", "reference", "pinned", "reference"},
        {"split", "split", "split-k", "split-kv", "pinned"},
        {"fused", "fused", "pinned", "pinned", "pinned"},
        {"pinned+rmsnorm=rows+add=reference", "rows", "pinned", "pinned", "reference"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_kernel_set set;
        struct ds_error err;
        assert_ok(ds_kernel_set_parse(cases[i].spec, &set, &err), err);
        for (int op = 0; op < DS_OP_COUNT; op++)
            if (set.op[op])
                assert_int_equal(set.op[op]->op, op);
        assert_string_equal(set.op[DS_OP_RMSNORM]->name, cases[i].rmsnorm);
        assert_string_equal(set.op[DS_OP_MATMUL]->name, cases[i].matmul);
        assert_string_equal(set.op[DS_OP_ATTENTION]->name, cases[i].attention);
        assert_string_equal(set.op[DS_OP_ADD]->name, cases[i].add);
    }
}

/* Every named set can be parsed, and has a variant for every op but custom. */
static void test_set_names(void **state)
{
    (void)state;
    assert_true(ds_kernel_set_count() >= 3);
    assert_string_equal(ds_kernel_set_name(0), "vendor");
    assert_null(ds_kernel_set_name(ds_kernel_set_count()));
    for (size_t i = 0; i < ds_kernel_set_count(); i++) {
        struct ds_kernel_set set;
        struct ds_error err;
        assert_ok(ds_kernel_set_parse(ds_kernel_set_name(i), &set, &err), err);
        for (int op = 0; op < DS_OP_COUNT; op++)
            assert_true((set.op[op] == NULL) == (op == DS_OP_CUSTOM));
    }
}

/* Variants for single layers: the last one that fits counts, and everything used is found. */
static void test_layers_of_a_set(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_kernel_set set;
    assert_ok(ds_kernel_set_parse("vendor+matmul=pinned@0-3+matmul=split-k@2+rmsnorm=split@7", &set,
                                  &err),
              err);
    static const char *const want[] = {"openblas", "pinned", "pinned",
                                       "split-k",  "pinned", "openblas"};
    for (int32_t layer = -1; layer < 5; layer++)
        assert_string_equal(ds_kernel_set_in(&set, DS_OP_MATMUL, layer)->name, want[layer + 1]);
    assert_string_equal(ds_kernel_set_in(&set, DS_OP_RMSNORM, 7)->name, "split");
    assert_string_equal(ds_kernel_set_in(&set, DS_OP_RMSNORM, 8)->name,
                        set.op[DS_OP_RMSNORM]->name);
    assert_string_equal(ds_kernel_set_used(&set, DS_OP_MATMUL, 0)->name, "openblas");
    assert_string_equal(ds_kernel_set_used(&set, DS_OP_MATMUL, 1)->name, "pinned");
    assert_string_equal(ds_kernel_set_used(&set, DS_OP_MATMUL, 2)->name, "split-k");
    assert_null(ds_kernel_set_used(&set, DS_OP_MATMUL, 3));
    assert_true(ds_kernel_set_uses(&set, DS_OP_MATMUL, "split-k"));
    assert_false(ds_kernel_set_uses(&set, DS_OP_MATMUL, "atomic"));
    static const char *const bad[] = {"vendor+matmul=pinned@",      "vendor+matmul=pinned@-1",
                                      "vendor+matmul=pinned@1-",    "vendor+matmul=pinned@3-1",
                                      "vendor+matmul=pinned@99999", "vendor+matmul=pinned@1.5",
                                      "vendor+embed=pinned@1",      "vendor+matmul=pinned@1@2",
                                      "vendor+matmul=pinned@1-2-3", "vendor+matmul=nothing@1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (ds_kernel_set_parse(bad[i], &set, &err) == 0)
            fail_msg("%s was taken", bad[i]);
    char many[4096] = "vendor";
    for (int i = 0; i <= DS_KERNEL_SET_LAYERS; i++)
        strcat(many, "+matmul=pinned@1");
    assert_int_equal(ds_kernel_set_parse(many, &set, &err), -1);
}

static void test_set_errors(void **state)
{
    static const struct {
        const char *spec, *msg, *hint;
    } cases[] = {
        {"vender", "unknown set 'vender'", "did you mean vendor?"},
        {"", "set is missing", "known: vendor, split, pinned, fused, reference"},
        {"zzzzzzzzzz", "unknown set", "known: vendor, split, pinned, fused, reference"},
        {"vendor+", "op is missing", "known: embed"},
        {"vendor+matmull=pinned", "unknown op 'matmull'", "did you mean matmul?"},
        {"vendor+matmul", "op matmul is given no variant", "+matmul=pinned"},
        {"vendor+matmul=", "variant of matmul is missing",
         "known: openblas, cblas, cblas-packed, split-k"},
        {"vendor+matmul=pined", "unknown variant of matmul 'pined'", "did you mean pinned?"},
        {"vendor+matmul=rows", "unknown variant of matmul 'rows'",
         "one of your own comes with --plugin FILE.so"},
        {"vendor+matmul=pinned+matmul=pinned", "op matmul is given a variant twice", ""},
        {"pinned\033[31m", "unknown set 'pinned\\x1b[31m'", "known"},
        {"vendor=pinned", "unknown set", "known"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_kernel_set set = {.n_at = 0};
        struct ds_error err = {{0}, {0}};
        assert_int_equal(ds_kernel_set_parse(cases[i].spec, &set, &err), -1);
        if (!strstr(err.msg, cases[i].msg) || !strstr(err.hint, cases[i].hint)) {
            print_error("%s: '%s' hint '%s'\n", cases[i].spec, err.msg, err.hint);
            fail();
        }
        assert_null(set.op[0]);
        assert_null(strchr(err.msg, '\033'));
    }
    char longer[5000];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    struct ds_kernel_set set;
    struct ds_error err;
    assert_int_equal(ds_kernel_set_parse(longer, &set, &err), -1);
}

/* ---- variants added at run time -------------------------------------------------------------- */

static int launch_nothing(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)args, (void)exec, (void)why, (void)why_size;
    return 0;
}

static int prepare_nothing(const struct ds_weight_view *w, void **prepared, size_t *bytes_out,
                           char *why, size_t why_size)
{
    (void)w, (void)prepared, (void)bytes_out, (void)why, (void)why_size;
    return 0;
}

static int declare_nothing(int64_t rows, int64_t width, struct ds_custom_args *out, char *why,
                           size_t why_size)
{
    (void)rows, (void)width, (void)out, (void)why, (void)why_size;
    return 0;
}

static struct ds_kernel candidate(int op, const char *name)
{
    return (struct ds_kernel){
        .abi = DS_KERNEL_ABI, .op = op, .name = name, .launch = launch_nothing};
}

static void test_a_variant_is_added(void **state)
{
    static struct ds_kernel mine, other;
    struct ds_kernel_set set;
    struct ds_error err;
    size_t before = ds_kernel_count();
    (void)state;
    mine = candidate(DS_OP_MATMUL, "mine-k.2_a");
    other = candidate(DS_OP_RMSNORM, "mine-k.2_a"); /* a name is taken for one op only */
    assert_ok(ds_kernel_add(&mine, &err), err);
    assert_ok(ds_kernel_add(&other, &err), err);
    assert_int_equal(ds_kernel_count(), before + 2);
    assert_ptr_equal(ds_kernel_at(before), &mine);
    assert_ptr_equal(ds_kernel_at(before + 1), &other);
    assert_null(ds_kernel_at(before + 2));
    assert_ptr_equal(ds_kernel_find(DS_OP_MATMUL, "mine-k.2_a"), &mine);
    assert_null(ds_kernel_find(DS_OP_ADD, "mine-k.2_a"));
    assert_ok(ds_kernel_set_parse("vendor+matmul=mine-k.2_a", &set, &err), err);
    assert_ptr_equal(set.op[DS_OP_MATMUL], &mine);
    assert_string_equal(set.op[DS_OP_RMSNORM]->name, "rows");
    assert_ok(ds_kernel_set_available(&set, &err), err);
    /* It is among the known names of its op, and no set takes it unasked. */
    assert_int_equal(ds_kernel_set_parse("pinned+matmul=mine-k.2", &set, &err), -1);
    assert_non_null(strstr(err.hint, "did you mean mine-k.2_a?"));
    assert_ok(ds_kernel_set_parse("pinned", &set, &err), err);
    assert_string_equal(set.op[DS_OP_MATMUL]->name, "pinned");
}

static void test_a_faulty_variant_is_refused(void **state)
{
    static const struct {
        struct ds_kernel k;
        const char *msg;
    } cases[] = {
        {{.abi = 1, .op = DS_OP_ADD, .name = "x", .launch = launch_nothing}, "abi is 1"},
        {{.abi = 0, .op = DS_OP_ADD, .name = NULL, .launch = NULL}, "abi is 0"},
        {{.abi = DS_KERNEL_ABI, .op = DS_OP_COUNT + 1000, .name = "x", .launch = launch_nothing},
         "does not exist"},
        {{.abi = DS_KERNEL_ABI, .op = -1, .name = "x", .launch = launch_nothing},
         "op -1 does not exist"},
        {{.abi = DS_KERNEL_ABI, .op = DS_OP_ADD, .name = "x"}, "add/x: launch is missing"},
        {{.abi = DS_KERNEL_ABI,
          .op = DS_OP_ADD,
          .name = "x",
          .claims = 32,
          .launch = launch_nothing},
         "add/x: claims 0x20"},
        {{.abi = DS_KERNEL_ABI,
          .op = DS_OP_ADD,
          .name = "x",
          .features = 1024,
          .launch = launch_nothing},
         "add/x: features 0x400 has bits that mean nothing"},
        {{.abi = DS_KERNEL_ABI,
          .op = DS_OP_ADD,
          .name = "x",
          .features = DS_FEATURE_SAMPLER,
          .launch = launch_nothing},
         "add/x: features 0x80 belong to another op"},
        {{.abi = DS_KERNEL_ABI,
          .op = DS_OP_MATMUL,
          .name = "x",
          .features = DS_FEATURE_LSE | DS_FEATURE_FILE_WEIGHTS,
          .launch = launch_nothing},
         "matmul/x: features 0x8 belong to another op"},
        {{.abi = DS_KERNEL_ABI,
          .op = DS_OP_ATTENTION,
          .name = "x",
          .features = DS_FEATURE_FILE_WEIGHTS | DS_FEATURE_UNROUNDED,
          .launch = launch_nothing},
         "attention/x: features 0x20 belong to another op"},
        {{.abi = DS_KERNEL_ABI,
          .op = DS_OP_ADD,
          .name = "x",
          .launch = launch_nothing,
          .prepare = prepare_nothing},
         "add/x: prepare is for matmul only"},
        {{.abi = DS_KERNEL_ABI,
          .op = DS_OP_ADD,
          .name = "x",
          .launch = launch_nothing,
          .declare = declare_nothing},
         "add/x: declare is for custom only"},
        {{.abi = DS_KERNEL_ABI, .op = DS_OP_CUSTOM, .name = "x", .launch = launch_nothing},
         "custom/x: declare is missing"},
        {{.abi = DS_KERNEL_ABI, .op = DS_OP_ADD, .name = "pinned", .launch = launch_nothing},
         "add/pinned: there is a variant"},
        {{.abi = DS_KERNEL_ABI, .op = DS_OP_MATMUL, .name = "openblas", .launch = launch_nothing},
         "matmul/openblas: there is a variant"},
    };
    static const char *const names[] = {NULL,
                                        "",
                                        "a+b",
                                        "a,b",
                                        "a=b",
                                        "a b",
                                        "-a",
                                        "A",
                                        "a/b",
                                        ".a",
                                        "\033a",
                                        "ä",
                                        "a23456789012345678901234567890_2"};
    size_t before = ds_kernel_count();
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_error err = {{0}, {0}};
        assert_int_equal(ds_kernel_add(&cases[i].k, &err), -1);
        if (!strstr(err.msg, cases[i].msg))
            fail_msg("'%s' does not say '%s'", err.msg, cases[i].msg);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct ds_error err = {{0}, {0}};
        struct ds_kernel k = candidate(DS_OP_ADD, names[i]);
        assert_int_equal(ds_kernel_add(&k, &err), -1);
        assert_non_null(strstr(err.msg, "name"));
        assert_null(strchr(err.msg, '\033'));
    }
    assert_int_equal(ds_kernel_count(), before);
}

/* More than any table of fixed size would hold; then memory runs out. */
static void test_many_variants(void **state)
{
    static struct ds_kernel many[300];
    static char names[300][8];
    struct ds_error err;
    size_t before = ds_kernel_count(), n = 0;
    (void)state;
    for (; n < 300; n++) {
        snprintf(names[n], sizeof names[n], "v%zu", n);
        many[n] = candidate(DS_OP_ROPE, names[n]);
        assert_ok(ds_kernel_add(&many[n], &err), err);
    }
    assert_int_equal(ds_kernel_count(), before + 300);
    assert_ptr_equal(ds_kernel_find(DS_OP_ROPE, "v0"), &many[0]);
    assert_ptr_equal(ds_kernel_find(DS_OP_ROPE, "v299"), &many[299]);
    assert_int_equal(ds_kernel_at(0)->op, DS_OP_EMBED); /* the built-in ones stay first */
    struct ds_kernel_set set;
    ds_mem_fail_at(1);
    assert_int_equal(ds_kernel_set_parse("pinned+rope=v300", &set, &err), -1);
    ds_mem_fail_at(0);
    assert_non_null(strstr(err.msg, "memory"));
}

static void test_isa(void **state)
{
    struct ds_error err;
    (void)state;
    assert_ok(ds_isa_force("scalar", &err), err);
    assert_string_equal(ds_isa_name(), "scalar");
    assert_int_equal(ds_isa_force("avx22", &err), -1);
    assert_non_null(strstr(err.hint, "avx2"));
    assert_string_equal(ds_isa_name(), "scalar");
    if (!__builtin_cpu_supports("avx512f")) {
        assert_int_equal(ds_isa_force("avx512", &err), -1);
        assert_non_null(strstr(err.msg, "does not have"));
    }
    assert_ok(ds_isa_force("auto", &err), err);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        assert_string_not_equal(ds_isa_name(), "scalar");
}

static void test_available(void **state)
{
    struct ds_kernel_set set;
    struct ds_error err;
    (void)state;
    assert_ok(ds_kernel_set_parse("pinned", &set, &err), err);
    assert_ok(ds_kernel_set_available(&set, &err), err);
    assert_ok(ds_kernel_set_parse("reference", &set, &err), err);
    assert_ok(ds_kernel_set_available(&set, &err), err);
}

/* describe tells the choice without running anything. */
static void test_describe(void **state)
{
    static float x[4096];
    struct ds_matmul_args m = {.rows = 8,
                               .n = 576,
                               .k = 1536,
                               .x = x,
                               .ldx = 1536,
                               .w = {x, 576, 1536},
                               .y = x,
                               .ldy = 576};
    struct ds_exec exec = {.threads = 4, .run = run_team};
    struct ds_launch_info info;
    (void)state;
    assert_int_equal(kernel(DS_OP_MATMUL, "pinned")->describe(&m, &exec, &info), 0);
    assert_int_equal(info.tile_k, 256);
    assert_int_equal(info.split, 6);
    assert_int_equal(info.threads, 4);
    assert_string_equal(info.algo, ds_isa_name());
    m.rows = m.n = m.k = m.w.n = m.w.k = 16;
    assert_int_equal(kernel(DS_OP_MATMUL, "pinned")->describe(&m, &exec, &info), 0);
    assert_int_equal(info.threads, 1);
    int32_t page = 0;
    struct ds_sequence s = {0, 0, 1, 700, 0, &page};
    struct ds_attention_args a = {.rows = 1,
                                  .heads = 9,
                                  .kv_heads = 3,
                                  .head_dim = 64,
                                  .page_size = 1024,
                                  .pages = 1,
                                  .sequences = &s,
                                  .n_sequences = 1,
                                  .max_q_len = 1,
                                  .max_kv_len = 700};
    assert_int_equal(kernel(DS_OP_ATTENTION, "vendor")->describe(&a, &exec, &info), 0);
    assert_int_equal(info.split, 4);
    assert_string_equal(info.algo, "split-kv");
    s.kv_first = 189;
    assert_int_equal(kernel(DS_OP_ATTENTION, "vendor")->describe(&a, &exec, &info), 0);
    assert_int_equal(info.split, 1);
    assert_int_equal(kernel(DS_OP_ATTENTION, "pinned")->describe(&a, &exec, &info), 0);
    assert_int_equal(info.split, 3);
}

static void test_bad_arguments_are_refused(void **state)
{
    float x[64] = {0}, y[64];
    char why[200];
    struct ds_exec exec = {.threads = 1};
    (void)state;
    const int32_t ids[] = {0, 4};
    struct ds_embed_args e = {x, 4, 4, 2, ids, y, 4, 0};
    const int32_t positions[] = {-1};
    struct ds_rope_args r = {1, 1, 4, 4, 0, positions, x, 4, x, 4, y, 4, 0};
    struct ds_matmul_args m = {.rows = 1,
                               .n = 4,
                               .k = 4,
                               .x = x,
                               .ldx = 4,
                               .w = {.data = x, .n = 5, .k = 4},
                               .y = y,
                               .ldy = 4};
    struct ds_weight_view huge = {.data = x, .n = INT64_MAX / 2, .k = INT64_MAX / 2},
                          negative = {.data = x, .n = -1, .k = 4};
    void *prepared;
    size_t bytes;
    static const char *const names[] = {"reference", "pinned"};
    for (int v = 0; v < 2; v++) {
        assert_int_equal(kernel(DS_OP_EMBED, names[v])->launch(&e, &exec, why, sizeof why), -1);
        assert_non_null(strstr(why, "id 4"));
        assert_int_equal(kernel(DS_OP_ROPE, names[v])->launch(&r, &exec, why, sizeof why), -1);
        assert_non_null(strstr(why, "position -1"));
        assert_int_equal(kernel(DS_OP_MATMUL, names[v])->launch(&m, &exec, why, sizeof why), -1);
    }
    m.w.n = 4;
    assert_int_equal(kernel(DS_OP_MATMUL, "pinned")->launch(&m, &exec, why, sizeof why), -1);
    assert_non_null(strstr(why, "packed"));
    assert_int_equal(
        kernel(DS_OP_MATMUL, "pinned")->prepare(&huge, &prepared, &bytes, why, sizeof why), -1);
    assert_int_equal(
        kernel(DS_OP_MATMUL, "pinned")->prepare(&negative, &prepared, &bytes, why, sizeof why), -1);
}

/* Each device has its own variants and sets, under the same names. */
static void test_devices(void **state)
{
    struct ds_kernel_set set;
    struct ds_error err;
    const struct ds_kernel *k;
    (void)state;
    assert_string_equal(ds_device_name(DS_DEVICE_CPU), "cpu");
    assert_null(ds_device_name(DS_DEVICE_KINDS));
    assert_int_equal(ds_device_parse("sim", &err), DS_DEVICE_SIM);
    assert_int_equal(ds_device_parse("sym", &err), -1);
    assert_non_null(strstr(err.hint, "sim"));
    assert_int_equal(ds_device_parse("cuda", &err), -1); /* it has no variants here */
    for (int d = 0; d < DS_DEVICE_KINDS; d++)
        for (size_t i = 0; (k = ds_kernel_at_on(d, i)); i++) {
            assert_int_equal(k->device, d);
            assert_ptr_equal(ds_kernel_find_on(d, k->op, k->name), k);
        }
    assert_true(ds_kernel_find(DS_OP_MATMUL, "pinned") !=
                ds_kernel_find_on(DS_DEVICE_SIM, DS_OP_MATMUL, "pinned"));
    assert_null(ds_kernel_find_on(DS_DEVICE_SIM, DS_OP_MATMUL, "openblas"));
    assert_null(ds_kernel_find_on(-1, DS_OP_MATMUL, "pinned"));
    for (size_t i = 0; i < ds_kernel_set_count_on(DS_DEVICE_SIM); i++) {
        assert_ok(ds_kernel_set_parse_on(DS_DEVICE_SIM, ds_kernel_set_name_on(DS_DEVICE_SIM, i),
                                         &set, &err),
                  err);
        for (int op = 0; op < DS_OP_COUNT; op++)
            assert_true(op == DS_OP_CUSTOM || (set.op[op] && set.op[op]->device == DS_DEVICE_SIM));
        assert_false(ds_kernel_set_changes(&set, DS_OP_SCHEDULE));
    }
    assert_int_equal(ds_kernel_set_parse_on(DS_DEVICE_SIM, "pinned+matmul=openblas", &set, &err),
                     -1);
    assert_int_equal(ds_kernel_set_parse("atomic", &set, &err), -1);
}

/* A name is taken on one device only. */
static void test_add_to_a_device(void **state)
{
    static const struct ds_kernel mine = {.abi = DS_KERNEL_ABI,
                                          .op = DS_OP_MATMUL,
                                          .name = "openblas",
                                          .launch = launch_nothing,
                                          .device = DS_DEVICE_SIM};
    struct ds_kernel nowhere = mine;
    struct ds_kernel_set set;
    struct ds_error err;
    const size_t on_cpu = ds_kernel_count();
    (void)state;
    assert_ok(ds_kernel_add(&mine, &err), err);
    assert_int_equal(ds_kernel_count(), on_cpu);
    assert_ptr_equal(ds_kernel_find_on(DS_DEVICE_SIM, DS_OP_MATMUL, "openblas"), &mine);
    assert_true(ds_kernel_find(DS_OP_MATMUL, "openblas") != &mine);
    assert_ok(ds_kernel_set_parse_on(DS_DEVICE_SIM, "pinned+matmul=openblas", &set, &err), err);
    assert_int_equal(ds_kernel_add(&mine, &err), -1);
    nowhere.device = DS_DEVICE_KINDS;
    assert_int_equal(ds_kernel_add(&nowhere, &err), -1);
    assert_non_null(strstr(err.msg, "device 3 does not exist"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_op_names),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_set_names),
        cmocka_unit_test(test_layers_of_a_set),
        cmocka_unit_test(test_set_errors),
        cmocka_unit_test(test_isa),
        cmocka_unit_test(test_available),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_bad_arguments_are_refused),
        cmocka_unit_test(test_a_variant_is_added),
        cmocka_unit_test(test_a_faulty_variant_is_refused),
        cmocka_unit_test(test_many_variants),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_add_to_a_device),
    };
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
