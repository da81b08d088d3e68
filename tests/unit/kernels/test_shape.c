/* test_shape.c: sizes of an op from text and back, and what is refused. */
#include "tests/unit/kernels/harness.h"

#include "kernels/lab/shape.h"

static void test_parse_and_print(void **state)
{
    static const struct {
        int op;
        const char *text, *printed;
    } cases[] = {
        {DS_OP_MATMUL, "n=1536,k=576", "n=1536,k=576"},
        {DS_OP_MATMUL, "k=7", "n=192,k=7"},
        {DS_OP_ATTENTION, "heads=32,kv_heads=8,head_dim=128", "heads=32,kv_heads=8,head_dim=128"},
        {DS_OP_RMSNORM, "", "width=576"},
        {DS_OP_ROPE, "head_dim=80,neox=1", "heads=9,head_dim=80,rope_dim=80,neox=1"},
        {DS_OP_ROUTER, "experts=60,top_k=4", "experts=60,top_k=4"},
        {DS_OP_EMBED, "vocab=10", "width=576,vocab=10"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_shape s, again;
        struct ds_error err;
        struct ds_buf b = {0};
        assert_ok(ds_shape_parse(cases[i].op, cases[i].text, &s, &err), err);
        ds_shape_print(&b, &s);
        assert_string_equal(b.data, cases[i].printed);
        assert_ok(ds_shape_parse(cases[i].op, b.data, &again, &err), err);
        assert_memory_equal(&s, &again, sizeof s);
        ds_buf_free(&b);
    }
}

static void test_refused(void **state)
{
    static const struct {
        int op;
        const char *text, *msg;
    } cases[] = {
        {DS_OP_MATMUL, "m=5", "no size 'm'"},
        {DS_OP_MATMUL, "n", "n must be"},
        {DS_OP_MATMUL, "n=", "n must be"},
        {DS_OP_MATMUL, "n=0", "n must be"},
        {DS_OP_MATMUL, "n=-1", "n must be"},
        {DS_OP_MATMUL, "n=99999999999999999999", "n must be"},
        {DS_OP_MATMUL, "n=5x", "n must be"},
        {DS_OP_MATMUL, "n=5,n=6", "twice"},
        {DS_OP_MATMUL, "n=5,", "last comma"},
        {DS_OP_MATMUL, ",", "no size ''"},
        {DS_OP_MATMUL, "\033=5", "no size"},
        {DS_OP_ATTENTION, "heads=9,kv_heads=2", "does not divide"},
        {DS_OP_ROPE, "head_dim=64,rope_dim=63", "rope_dim 63"},
        {DS_OP_ROPE, "neox=2", "neox must be a whole number 0..1"},
        {DS_OP_ROUTER, "experts=2,top_k=3", "top_k 3"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_shape s;
        struct ds_error err = {{0}, {0}};
        assert_int_equal(ds_shape_parse(cases[i].op, cases[i].text, &s, &err), -1);
        if (!strstr(err.msg, cases[i].msg))
            fail_msg("'%s' does not say '%s'", err.msg, cases[i].msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_and_print),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("shape", tests, NULL, NULL);
}
