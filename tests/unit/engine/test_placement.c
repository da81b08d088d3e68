/* test_placement.c: placements of layers as text and as numbers; factors place and tp; models that
 * do not divide. */
#include "tests/unit/testing.h"

#include "engine/forward.h"
#include "engine/placement.h"
#include "engine/sweep.h"

#include <stdlib.h>
#include <string.h>

static void test_texts(void **state)
{
    static const struct {
        const char *text, *printed, *devices; /* of layers 0..5 */
    } good[] = {
        {"one", "one", "000000"},
        {"layers=0-:cpu0", "layers=0-:cpu0", "000000"},
        {"layers=0-1:cpu0;2-:cpu1", "layers=0-1:cpu0;2-:cpu1", "001111"},
        {"layers=00-1:cpu0,2-5:cpu01", "layers=0-1:cpu0;2-5:cpu1", "001111"},
        {"layers=0:cpu3;1-3:cpu0;4-4:cpu1;5-:cpu3", "layers=0:cpu3;1-3:cpu0;4:cpu1;5-:cpu3",
         "300013"},
        {"layers=0-2:sim,3-:cpu", "layers=0-2:sim;3-:cpu", "999888"},
        {"layers=0:cuda;1:cuda:0;2-3:cuda:5;4-:cpu7", "layers=0:cuda;1:cuda;2-3:cuda:5;4-:cpu7",
         "::??77"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct ds_placement p;
        struct ds_error err = {0};
        char text[256], devices[7] = "";
        assert_ok(ds_placement_parse(good[i].text, &p, &err), err);
        ds_placement_print(&p, text, sizeof text);
        assert_string_equal(text, good[i].printed);
        assert_ok(ds_placement_check(&p, 6, &err), err);
        for (int l = 0; l < 6; l++) {
            devices[l] = (char)('0' + ds_placement_device(&p, l));
            assert_int_equal(ds_placement_boundary(&p, l), l > 0 && devices[l] != devices[l - 1]);
        }
        assert_string_equal(devices, good[i].devices);
    }
}

static void test_bad_texts(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "unknown value"},
        {"two", "unknown value"},
        {"layers=", "a range of layers is missing"},
        {"layers=x", "a range of layers is missing"},
        {"layers=0-1", "needs a device"},
        {"layers=0-1:gpu0", "needs a device"},
        {"layers=0-1:cpux", "followed by"},
        {"layers=0-1:sim1", "followed by"},
        {"layers=0-1:cuda:", "a number follows cuda:"},
        {"layers=0-1:cuda:6", "cuda:0 to cuda:5"},
        {"layers=0-1cpu0", "needs a device"},
        {"layers=0-1:cpu8", "devices are cpu0 to cpu7"},
        {"layers=0-1:cpu99999999999999999999", "devices are cpu0 to cpu7"},
        {"layers=1-:cpu0", "without gaps"},
        {"layers=0-1:cpu0;3-:cpu1", "without gaps"},
        {"layers=0-1:cpu0;1-:cpu1", "without gaps"},
        {"layers=0-:cpu0;1-:cpu1", "only the last range"},
        {"layers=0-3:cpu0;4-2:cpu1", "ends before it begins"},
        {"layers=0-x:cpu0", "a range has no end"},
        {"layers=0-99999999999:cpu0", "a range has no end"},
        {"layers=0-1:cpu0;", "a range of layers is missing"},
        {"layers=0-1:cpu0 ", "followed by"},
        {"layers=0:cpu0;1:cpu0;2:cpu0;3:cpu0;4:cpu0;5:cpu0;6:cpu0;7:cpu0;8:cpu0;9:cpu0;10:cpu0;"
         "11:cpu0;12:cpu0;13:cpu0;14:cpu0;15:cpu0;16:cpu0",
         "too many ranges"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ds_placement p;
        struct ds_error err = {0};
        assert_int_equal(ds_placement_parse(bad[i].text, &p, &err), -1);
        if (!strstr(err.msg, bad[i].says) || !err.hint[0])
            fail_msg("'%s': '%s' does not say '%s'", bad[i].text, err.msg, bad[i].says);
    }
}

static void test_models_that_do_not_fit(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"layers=0-1:cpu0;2-:cpu1", "the model has layers 0 to 1"},
               {"layers=0-0:cpu0;1-4:cpu1", "the model has layers 0 to 1"},
               {"layers=0:cpu0", "layers 1 to 1 have no device"}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ds_placement p;
        struct ds_error err = {0};
        assert_ok(ds_placement_parse(bad[i].text, &p, &err), err);
        assert_int_equal(ds_placement_check(&p, 2, &err), -1);
        if (!strstr(err.msg, bad[i].says))
            fail_msg("'%s': '%s' does not say '%s'", bad[i].text, err.msg, bad[i].says);
    }
    static const struct {
        int32_t heads, kv_heads, d_ff, experts, ranks;
        const char *says;
    } models[] = {{4, 4, 96, 0, 4, NULL},
                  {4, 2, 96, 0, 4, NULL}, /* a key-value head serves two ranks */
                  {9, 3, 1536, 0, 1, NULL},
                  {9, 3, 1536, 0, 2, "can have 1, 3 ranks"},
                  {4, 4, 98, 0, 4, "can have 1, 2 ranks"},
                  {6, 3, 96, 0, 2, "can have 1, 3, 6 ranks"},
                  {4, 4, 98, 8, 2, NULL}, /* experts live on ranks whole: columns do not count */
                  {6, 6, 96, 8, 3, "does not divide 6 heads, 6 key-value heads and 8 experts"}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct ds_error err = {0};
        const struct ds_hparams hp = {.n_heads = models[i].heads,
                                      .n_kv_heads = models[i].kv_heads,
                                      .d_ff = models[i].d_ff,
                                      .n_experts = models[i].experts};
        int rc = ds_ranks_check(&hp, models[i].ranks, &err);
        assert_int_equal(rc, models[i].says ? -1 : 0);
        if (models[i].says && !strstr(err.msg, models[i].says) && !strstr(err.hint, models[i].says))
            fail_msg("'%s' '%s' does not say '%s'", err.msg, err.hint, models[i].says);
    }
}

/* A comma separates values, but for one before a digit. */
static void test_factor_values(void **state)
{
    static const char *const want[] = {"one", "layers=0-1:cpu0;2-:cpu1", "layers=0:cpu1;1-:cpu0"};
    struct ds_factor_values v;
    struct ds_error err = {0};
    (void)state;
    assert_ok(ds_factor_parse(DS_FACTOR_PLACE,
                              "one,layers=0-1:cpu0,2-:cpu1,layers=0:cpu1;1-:cpu0,one", &v, &err),
              err);
    assert_int_equal(v.n, 3);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(v.value[i], want[i]);
    ds_factor_free(&v);
    assert_int_equal(ds_factor_parse(DS_FACTOR_PLACE, "one,two", &v, &err), -1);
    assert_non_null(strstr(err.msg, "--place"));
    assert_ok(ds_factor_parse(DS_FACTOR_TP, "1,02,4", &v, &err), err);
    assert_int_equal(v.n, 3);
    assert_string_equal(v.value[1], "2");
    ds_factor_free(&v);
    assert_int_equal(ds_factor_parse(DS_FACTOR_TP, "9", &v, &err), -1);
    assert_int_equal(ds_factor_parse(DS_FACTOR_TP, "0", &v, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_bad_texts),
        cmocka_unit_test(test_models_that_do_not_fit),
        cmocka_unit_test(test_factor_values),
    };
    return cmocka_run_group_tests_name("placement", tests, NULL, NULL);
}
