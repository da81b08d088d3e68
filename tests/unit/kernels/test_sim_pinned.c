/* test_sim_pinned.c: the pinned CUDA kernels, run on the device sim, give the bits of the CPU's pinned
 * kernels: all ops, rows 1 to 64, activations stored as f32, bf16 and f16 (on the CPU f32 results that
 * are rounded), sizes that are multiples of nothing, every kind of content, every order of blocks, warps
 * and threads. */
#include "tests/unit/testing.h"

#include "kernels/lab/subject.h"
#include "kernels/registry.h"

#include <string.h>

static const int stored[] = {DS_ELEMENT_F32, DS_ELEMENT_BF16, DS_ELEMENT_F16};
enum { N_STORED = sizeof stored / sizeof stored[0] };

struct op_case {
    int op;
    const char *shape;
    int most_rows;
    int weights; /* enum ds_content of matmul's and rmsnorm's */
};

static const struct op_case cases[] = {
    {DS_OP_EMBED, "width=67,vocab=91", 64, 0},
    {DS_OP_RMSNORM, "width=1", 64, 0},
    {DS_OP_RMSNORM, "width=577", 64, 0},
    {DS_OP_RMSNORM, "width=64", 64, DS_CONTENT_SPECIAL},
    {DS_OP_MATMUL, "n=1,k=1", 64, 0},
    {DS_OP_MATMUL, "n=65,k=33", 64, DS_CONTENT_SPECIAL},
    {DS_OP_MATMUL, "n=17,k=1", 64, DS_CONTENT_TINY}, /* sums that round to -0 stay that */
    {DS_OP_MATMUL, "n=17,k=771", 64, 0},
    {DS_OP_MATMUL, "n=130,k=512", 9, 0},
    {DS_OP_MATMUL, "n=9,k=4644", 3, 0}, /* more blocks of k than warps */
    {DS_OP_ROPE, "heads=3,head_dim=22,rope_dim=14,neox=0", 64, 0},
    {DS_OP_ROPE, "heads=2,head_dim=64,rope_dim=64,neox=1", 64, 0},
    {DS_OP_CACHE, "width=67", 64, 0},
    {DS_OP_ATTENTION, "heads=4,kv_heads=2,head_dim=19", 64, 0},
    {DS_OP_SOFTMAX, "width=1", 64, 0},
    {DS_OP_SOFTMAX, "width=523", 64, 0},
    {DS_OP_SOFTMAX, "width=2309", 3, 0},
    {DS_OP_SILU_MUL, "width=301", 64, 0},
    {DS_OP_ADD, "width=257", 64, 0},
    {DS_OP_ROUTER, "experts=37,top_k=5", 64, 0},
    {DS_OP_ROUTER, "experts=4,top_k=4", 64, 0},
    {DS_OP_COMBINE, "width=77,top_k=3", 64, 0},
    {DS_OP_ALLREDUCE, "width=77,ranks=4", 64, 0},
    {DS_OP_SAMPLE, "vocab=1031", 64, 0},
    {DS_OP_TRANSFER, "width=77", 64, 0},
    {DS_OP_PROCESS, "vocab=77", 64, 0},
};

static void compare(const struct op_case *c, struct ds_subject *cpu, struct ds_subject *sim,
                    const struct ds_call *call, int content)
{
    struct ds_output want = {0}, got = {0};
    struct ds_error err;
    assert_ok(ds_subject_run(cpu, call, &want, &err), err);
    assert_ok(ds_subject_run(sim, call, &got, &err), err);
    if (want.fault.kind != DS_FAULT_NONE || got.fault.kind != DS_FAULT_NONE) {
        print_error("%s %s, %d rows of %s, type %d: fault %d on cpu, %d on sim: %s\n",
                    ds_op_name(c->op), c->shape, (int)ds_call_rows(call), ds_content_name(content),
                    (int)call->stored, want.fault.kind, got.fault.kind, got.fault.text);
        fail();
    }
    assert_true(want.rows == ds_call_rows(call) && want.rows == got.rows && want.width > 0 &&
                want.width == got.width);
    for (int64_t i = 0; i < want.rows * want.width; i++)
        if (want.bits[i] != got.bits[i]) {
            print_error("%s %s, %d rows of %s, type %d: row %d, element %d: %08x on cpu, %08x on "
                        "sim\n",
                        ds_op_name(c->op), c->shape, (int)want.rows, ds_content_name(content),
                        (int)call->stored, (int)(i / want.width), (int)(i % want.width),
                        want.bits[i], got.bits[i]);
            fail();
        }
    ds_output_free(&want);
    ds_output_free(&got);
}

/* Any order in which a GPU might run them. */
static void any_order(struct ds_call *call, int rows)
{
    call->seed = rows % 3 == 0 ? 0 : (uint64_t)rows * 77;
    call->disturb = rows % 5 == 0 ? (uint64_t)rows : 0;
}

static void one_call(const struct op_case *c, struct ds_subject *cpu, struct ds_subject *sim,
                     int rows, int type)
{
    const int content = rows % DS_CONTENT_COUNT;
    const struct ds_segment part[] = {
        {.sequence = 0, .first = 0, .length = (rows + 1) / 2, .content = content},
        {.sequence = 1, .first = 5, .length = rows / 2, .content = DS_CONTENT_PLAIN}};
    struct ds_call call = {.segment = part,
                           .n_segments = rows > 1 ? 2 : 1,
                           .threads = 1,
                           .place = rows % 4,
                           .gap = rows % 3,
                           .bias = rows / 8 % 2,
                           .page_size = rows % 2 ? 16 : 0,
                           .permute = (uint64_t)rows,
                           .stored = type,
                           .wide = rows % 7 == 0};
    any_order(&call, rows);
    compare(c, cpu, sim, &call, content);
}

static void both(const struct op_case *c, struct ds_subject **cpu, struct ds_subject **sim)
{
    static struct ds_shape shape; /* which both borrow */
    struct ds_error err;
    assert_ok(ds_shape_parse(c->op, c->shape, &shape, &err), err);
    const struct ds_kernel *of_cpu = ds_kernel_find_on(DS_DEVICE_CPU, c->op, "pinned");
    const struct ds_kernel *of_sim = ds_kernel_find_on(DS_DEVICE_SIM, c->op, "pinned");
    assert_non_null(of_cpu);
    assert_non_null(of_sim);
    assert_int_equal(of_sim->device, DS_DEVICE_SIM);
    assert_int_equal(of_sim->claims, DS_CLAIM_ALL);
    *cpu = ds_subject_new_weights(of_cpu, &shape, 7, c->weights, &err);
    *sim = ds_subject_new_weights(of_sim, &shape, 7, c->weights, &err);
    assert_non_null(*cpu);
    assert_non_null(*sim);
}

/* Every `step`th number of rows. */
static void one_case(const struct op_case *c, int step)
{
    struct ds_subject *cpu, *sim;
    both(c, &cpu, &sim);
    for (int i = 0; i < c->most_rows * N_STORED; i += step)
        one_call(c, cpu, sim, i / N_STORED + 1, stored[i % N_STORED]);
    ds_subject_free(cpu);
    ds_subject_free(sim);
}

/* The tiles of matmul for many rows and columns: each kind, with rows, columns and k that end within one. */
static void test_matmul_tiles(void **state)
{
    static const struct {
        struct op_case c;
        int rows[4], tile_rows;
    } wide[] = {
        {{DS_OP_MATMUL, "n=1027,k=523", 0, 0}, {33, 64, 61, 0}, 32},
        {{DS_OP_MATMUL, "n=2048,k=36", 0, DS_CONTENT_SPECIAL}, {17, 24, 0}, 32},
        {{DS_OP_MATMUL, "n=1030,k=5", 0, DS_CONTENT_TINY}, {40, 0}, 32}, /* sums of -0 */
        {{DS_OP_MATMUL, "n=4101,k=300", 0, 0}, {65, 0}, 128},
        {{DS_OP_MATMUL, "n=2052,k=17", 0, DS_CONTENT_TINY}, {130, 131, 0}, 128},
        {{DS_OP_MATMUL, "n=191,k=3", 0, 0}, {70, 0}, 8}, /* too few of them */
    };
    (void)state;
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        struct ds_subject *cpu, *sim;
        both(&wide[i].c, &cpu, &sim);
        for (const int *rows = wide[i].rows; *rows; rows++) {
            struct ds_launch_info info;
            struct ds_error err;
            const struct ds_segment part = {.length = *rows};
            const struct ds_call call = {.segment = &part, .n_segments = 1, .threads = 1};
            assert_int_equal(ds_subject_describe(sim, &call, &info, &err), 1);
            assert_int_equal(info.tile_rows, wide[i].tile_rows);
            for (int t = 0; t < N_STORED; t++)
                one_call(&wide[i].c, cpu, sim, *rows, stored[t]);
        }
        ds_subject_free(cpu);
        ds_subject_free(sim);
    }
}

static void test_every_op(void **state)
{
    int seen[DS_OP_COUNT] = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        one_case(&cases[i], 1);
        seen[cases[i].op] = 1;
    }
    const struct ds_kernel *k;
    for (size_t i = 0; (k = ds_kernel_at_on(DS_DEVICE_SIM, i)); i++)
        if (k->op != DS_OP_SCHEDULE) /* it computes nothing */
            assert_true(seen[k->op]);
}

/* The text is compiled twice: see kernels/sim/kernels.h. */
static void test_without_fused_instructions(void **state)
{
    struct ds_error err;
    (void)state;
    const struct ds_kernel *fused = ds_kernel_find_on(DS_DEVICE_SIM, DS_OP_MATMUL, "pinned");
    const int alike = strcmp(ds_isa_name(), "scalar") == 0;
    assert_ok(ds_isa_force("scalar", &err), err);
    assert_true((ds_kernel_find_on(DS_DEVICE_SIM, DS_OP_MATMUL, "pinned") == fused) == alike);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        one_case(&cases[i], 17);
    assert_ok(ds_isa_force("auto", &err), err);
}

/* More rows than a grid has in its second dimension: in one sequence of the cache, too. */
static void test_more_rows_than_a_grid_is_high(void **state)
{
    static const struct {
        struct op_case c;
        const char *variant;
    } high[] = {
        {{DS_OP_CACHE, "width=2", 0, 0}, "pinned"},
        {{DS_OP_EMBED, "width=1,vocab=7", 0, 0}, "pinned"},
        {{DS_OP_ADD, "width=1", 0, 0}, "pinned"},
        {{DS_OP_MATMUL, "n=1,k=1", 0, 0}, "pinned"},
        {{DS_OP_MATMUL, "n=1,k=1", 0, 0}, "split-k"}, /* of one product */
        {{DS_OP_MATMUL, "n=1,k=1", 0, 0}, "atomic"},
    };
    static const struct ds_segment part = {.length = 65536 + 3};
    static const struct ds_call call = {.segment = &part, .n_segments = 1, .threads = 1};
    (void)state;
    for (size_t i = 0; i < sizeof high / sizeof high[0]; i++) {
        struct ds_shape shape;
        struct ds_error err;
        const struct op_case *c = &high[i].c;
        assert_ok(ds_shape_parse(c->op, c->shape, &shape, &err), err);
        const struct ds_kernel *k = ds_kernel_find_on(DS_DEVICE_SIM, c->op, high[i].variant);
        assert_non_null(k);
        struct ds_subject *cpu = ds_subject_new(ds_kernel_find(c->op, "pinned"), &shape, 3, &err);
        struct ds_subject *sim = ds_subject_new(k, &shape, 3, &err);
        assert_non_null(cpu);
        assert_non_null(sim);
        compare(c, cpu, sim, &call, 0);
        ds_subject_free(cpu);
        ds_subject_free(sim);
    }
}

/* Several blocks of KV, left padding, and what attention can beyond its plain form. */
static void test_attention(void **state)
{
    static const struct ds_segment parts[] = {
        {.sequence = 0, .first = 0, .length = 40},
        {.sequence = 1, .first = 255, .length = 3},
        {.sequence = 2, .first = 530, .length = 1},
        {.sequence = 3, .first = 600, .length = 2, .content = DS_CONTENT_SPECIAL, .padding = 9}};
    static const struct op_case c = {DS_OP_ATTENTION, "heads=2,kv_heads=1,head_dim=33", 0, 0};
    const uint32_t all =
        DS_FEATURE_WINDOW | DS_FEATURE_SOFT_CAP | DS_FEATURE_SINKS | DS_FEATURE_LSE;
    struct ds_shape shape;
    struct ds_error err;
    (void)state;
    assert_ok(ds_shape_parse(c.op, c.shape, &shape, &err), err);
    struct ds_subject *cpu = ds_subject_new(ds_kernel_find(c.op, "pinned"), &shape, 3, &err);
    struct ds_subject *sim =
        ds_subject_new(ds_kernel_find_on(DS_DEVICE_SIM, c.op, "pinned"), &shape, 3, &err);
    assert_non_null(cpu);
    assert_non_null(sim);
    for (uint32_t features = 0; features <= all; features++) {
        if (features & ~all)
            continue;
        struct ds_call call = {.segment = parts,
                               .n_segments = 4,
                               .threads = 1,
                               .page_size = 32,
                               .permute = 5,
                               .spare_slots = 3,
                               .features = features,
                               .window = features & DS_FEATURE_WINDOW ? 300 : 0,
                               .soft_cap = features & DS_FEATURE_SOFT_CAP ? 0.7f : 0.0f,
                               .stored = stored[features % N_STORED]};
        any_order(&call, (int)features);
        compare(&c, cpu, sim, &call, 0);
    }
    ds_subject_free(cpu);
    ds_subject_free(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op),
        cmocka_unit_test(test_matmul_tiles),
        cmocka_unit_test(test_without_fused_instructions),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_more_rows_than_a_grid_is_high),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
