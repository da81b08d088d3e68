/* test_round.c: the fast 16-bit conversions against their definition in base/dtype.h. */
#include "tests/unit/testing.h"

#include "engine/round.h"

#include <string.h>

/* Every sign, exponent and upper fraction, with lower halves on and around the rounding borders of
 * both formats. */
static void check_rounding(int dtype)
{
    static const uint32_t low[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x3000,
                                   0x7000, 0x7fff, 0x8000, 0x8001, 0xefff, 0xf000, 0xffff};
    enum { N = 15 };
    for (uint32_t high = 0; high < 0x10000; high++) {
        float x[N];
        uint16_t want[N], got[N];
        for (int i = 0; i < N; i++)
            x[i] = ds_f32_from_bits(high << 16 | low[(i + (int)high) % N]);
        ds_round_row(dtype, want, x, N);
        ds_round_many(dtype, got, x, N);
        if (memcmp(want, got, sizeof want) == 0)
            continue;
        for (int i = 0; i < N; i++)
            if (want[i] != got[i])
                fail_msg("%s of %a (%08x): got %04x, want %04x", ds_dtype_name(dtype), (double)x[i],
                         (unsigned)ds_f32_bits(x[i]), got[i], want[i]);
    }
}

static void test_rounding_equals_its_definition(void **state)
{
    (void)state;
    check_rounding(DS_BF16);
    check_rounding(DS_F16);
}

static void test_widening_equals_its_definition(void **state)
{
    (void)state;
    for (int dtype = DS_BF16; dtype <= DS_F16; dtype++)
        for (uint32_t first = 0; first < 0x10000; first += 8) {
            uint16_t h[11];
            float want[11], got[11];
            for (uint32_t i = 0; i < 11; i++)
                h[i] = (uint16_t)(first + i);
            ds_widen_row(dtype, want, h, 11);
            ds_widen_many(dtype, got, h, 11);
            for (int i = 0; i < 11; i++) {
                uint32_t quiet = dtype == DS_F16 && (h[i] & 0x7fff) > 0x7c00 ? 0x400000 : 0;
                assert_int_equal(ds_f32_bits(got[i]) | quiet, ds_f32_bits(want[i]) | quiet);
            }
        }
}

static void test_all_lengths_stay_inside(void **state)
{
    (void)state;
    for (int dtype = DS_BF16; dtype <= DS_F16; dtype++)
        for (size_t n = 0; n < 40; n++) {
            float x[41];
            uint16_t h[41];
            for (int i = 0; i < 41; i++) {
                x[i] = 1.5f;
                h[i] = 7;
            }
            ds_round_many(dtype, h, x, n);
            for (size_t i = 0; i < 41; i++)
                assert_int_equal(h[i] != 7, i < n);
            memset(x, 0, sizeof x);
            ds_widen_many(dtype, x, h, n);
            for (size_t i = 0; i < 41; i++)
                assert_bits_equal("x", i, x[i], i < n ? 1.5f : 0.0f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding_equals_its_definition),
        cmocka_unit_test(test_widening_equals_its_definition),
        cmocka_unit_test(test_all_lengths_stay_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
