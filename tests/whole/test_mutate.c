/* test_mutate.c: is a fixture able to show a fault? Known changes at every stage, on models and prompts
 * that can and that cannot. */
#include "tests/unit/testing.h"

#include "base/dtype.h"
#include "engine/mutate.h"

#include <stdlib.h>
#include <string.h>

#define SMALL "random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=9"

static void check_fixture(struct ds_model *m, const int32_t *tokens, int32_t n, int dtype,
                          struct ds_mutate_result *r)
{
    struct ds_error err;
    assert_ok(ds_mutate_fixture(m, tokens, n, dtype, 1, r, &err), err);
    assert_true(r->seen <= r->made);
    assert_int_equal(r->made - r->seen == 0, r->inert[0] == '\0');
}

static struct ds_model *open_small(void)
{
    struct ds_error err;
    struct ds_model *m;
    assert_ok(ds_model_open(SMALL, 1, &m, &err), err);
    return m;
}

static void test_a_good_fixture_shows_everything(void **state)
{
    (void)state;
    static const int32_t prompt[] = {5, 9, 1, 44, 23};
    for (int dtype = DS_F32; dtype <= DS_BF16; dtype += DS_BF16 - DS_F32) {
        struct ds_mutate_result r;
        struct ds_model *m = open_small();
        check_fixture(m, prompt, 5, dtype, &r);
        assert_string_equal(r.inert, "");
        assert_true(r.made > 50);
        free(r.inert);
        ds_model_close(m);
    }
}

/* O-40: heads that are alike hide every fault of mapping. */
static void test_identical_heads_are_inert(void **state)
{
    (void)state;
    static const int32_t prompt[] = {5, 9, 1, 44, 23};
    struct ds_mutate_result r;
    struct ds_model *m = open_small();
    const struct ds_weight *q = m->layers[0].q;
    size_t head = (size_t)m->hp.head_dim * (size_t)q->cols;
    for (int h = 1; h < m->hp.n_heads; h++)
        memcpy((float *)(uintptr_t)q->data + (size_t)h * head, q->data, head * sizeof(float));
    check_fixture(m, prompt, 5, DS_F32, &r);
    assert_string_equal(r.inert, "a swap of two heads at q_proj, layer 0\n"
                                 "a swap of two heads at q_rope, layer 0\n");
    assert_int_equal(r.made - r.seen, 2);
    free(r.inert);
    ds_model_close(m);
}

static void test_a_prompt_can_be_inert(void **state)
{
    (void)state;
    static const int32_t same[] = {7, 7, 7, 7};
    struct ds_mutate_result r, one;
    struct ds_model *m = open_small();
    check_fixture(m, same, 4, DS_F32, &r);
    assert_non_null(strstr(r.inert, "a shift of positions at embed\n"));
    assert_null(strstr(r.inert, "heads"));
    assert_null(strstr(r.inert, "k_rope"));
    check_fixture(m, same, 1, DS_F32, &one); /* no other row to swap with: not tried */
    assert_true(one.made < r.made);
    assert_null(strstr(one.inert, "shift"));
    free(r.inert);
    free(one.inert);
    struct ds_error err;
    assert_int_equal(ds_mutate_fixture(m, same, 0, DS_F32, 1, &r, &err), -1);
    ds_model_close(m);
}

static void test_changes(void **state)
{
    (void)state;
    static const struct {
        int kind, applied;
        size_t head_dim, rows, width;
        const char *want;
    } cases[] = {{DS_MUTATE_ROWS, 1, 2, 3, 4, "89ab4567 0123"},
                 {DS_MUTATE_SHIFT, 1, 2, 3, 4, "89ab0123 4567"},
                 {DS_MUTATE_CHANNELS, 1, 2, 3, 4, "10235467 98ab"},
                 {DS_MUTATE_HEADS, 1, 2, 3, 4, "23016745 ab89"},
                 {DS_MUTATE_HEADS, 0, 4, 3, 4, "01234567 89ab"},
                 {DS_MUTATE_HEADS, 0, 3, 3, 4, "01234567 89ab"},
                 {DS_MUTATE_ROWS, 0, 2, 1, 12, "01234567 89ab"},
                 {DS_MUTATE_SHIFT, 0, 2, 1, 12, "01234567 89ab"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char data[] = "0123456789ab", want[16];
        struct ds_mutation m = {.kind = cases[i].kind, .head_dim = cases[i].head_dim};
        ds_mutate_rows(&m, data, cases[i].rows, cases[i].width, 1);
        snprintf(want, sizeof want, "%.8s%s", cases[i].want, cases[i].want + 9);
        assert_string_equal(data, want);
        assert_int_equal(m.applied, cases[i].applied);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_fixture_shows_everything),
        cmocka_unit_test(test_identical_heads_are_inert),
        cmocka_unit_test(test_a_prompt_can_be_inert),
        cmocka_unit_test(test_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
