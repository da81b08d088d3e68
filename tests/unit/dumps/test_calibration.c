/* test_calibration.c: the sizes that the kinds are judged by, measured again: what reordering, short
 * inputs, casts and 16-bit partial sums do to seeded normal numbers. */
#include "tests/unit/testing.h"

#include "base/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { K = 1024, OUTPUTS = 3000 };

static uint64_t state = 12345;

static float normal(void)
{
    double u[2];
    for (int i = 0; i < 2; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        u[i] = (double)(state >> 11) * 0x1p-53;
    }
    return (float)(sqrt(-2 * log(u[0] + 1e-300)) * cos(6.283185307179586 * u[1]));
}

static float x[16384], w[16384];

static void fill(int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = normal();
        w[i] = normal();
    }
}

static float chain(int from, int to, uint32_t dropped)
{
    float s = 0.0f;
    for (int i = from; i < to; i++) {
        uint32_t a = ds_f32_bits(x[i]), b = ds_f32_bits(w[i]),
                 half = dropped ? 1u << (dropped - 1) : 0;
        a = dropped ? (a + half - 1 + (a >> dropped & 1)) >> dropped << dropped : a;
        b = dropped ? (b + half - 1 + (b >> dropped & 1)) >> dropped << dropped : b;
        s += ds_f32_from_bits(a) * ds_f32_from_bits(b);
    }
    return s;
}

static float bf16(float v)
{
    return ds_bf16_value(ds_bf16_round(v));
}

static double exact(int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += (double)x[i] * (double)w[i];
    return s;
}

static void check_near(const char *what, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * want))
        fail_msg("%s: measured %g, expected %g", what, got, want);
}

/* Relative rms of a dot product against the exact one. */
static double dot_error(uint32_t dropped)
{
    double diff = 0, ref = 0;
    state = 99;
    for (int o = 0; o < OUTPUTS; o++) {
        fill(K);
        double e = exact(K), d = (double)chain(0, K, dropped) - e;
        diff += d * d;
        ref += e * e;
    }
    return sqrt(diff / ref);
}

static void test_mantissas(void **st)
{
    (void)st;
    check_near("f32", dot_error(0), 5.6e-7, 0.25);
    check_near("TF32", dot_error(13), 2.95e-4, 0.1);
    check_near("bf16 inputs", dot_error(16), 2.36e-3, 0.1);
    check_near("fp8 inputs", dot_error(20), 3.78e-2, 0.15);
}

/* Share of elements in which a sum cut in parts differs from one chain; in bf16 with rounded_parts the
 * parts are rounded first, and their sums. */
static double split_share(int k, int parts, int store, int rounded_parts)
{
    int differ = 0;
    state = 7;
    for (int o = 0; o < OUTPUTS; o++) {
        fill(k);
        float whole = chain(0, k, 0), s = 0.0f;
        for (int p = 0; p < parts; p++) {
            float part = chain(p * k / parts, (p + 1) * k / parts, 0);
            s = rounded_parts ? bf16(s + bf16(part)) : s + part;
        }
        differ += store ? bf16(s) != bf16(whole) : s != whole;
    }
    return differ / (double)OUTPUTS;
}

static void test_splits(void **st)
{
    (void)st;
    assert_true(split_share(16, 2, 0, 0) > 0.03);
    assert_true(split_share(1024, 2, 0, 0) > 0.7);
    assert_true(split_share(1024, 2, 1, 0) <= 0.002); /* bf16 hides it */
    check_near("bf16 partials of two", split_share(576, 2, 1, 1), 0.37, 0.1);
    check_near("bf16 partials of four", split_share(576, 4, 1, 1), 0.50, 0.1);
}

/* k addends onto zero, in order and in one drawn at random. */
static double order_share(int k)
{
    int differ = 0;
    state = 3;
    for (int o = 0; o < 20 * OUTPUTS; o++) {
        float part[8], up = 0.0f, drawn = 0.0f;
        for (int i = 0; i < k; i++)
            part[i] = normal();
        for (int i = 0; i < k; i++)
            up += part[i];
        for (int left = k; left > 0; left--) {
            (void)normal();
            int pick = (int)((state >> 33) % (uint64_t)left);
            drawn += part[pick];
            part[pick] = part[left - 1];
        }
        differ += up != drawn;
    }
    return differ / (20.0 * OUTPUTS);
}

static void test_orders(void **st)
{
    (void)st;
    assert_true(order_share(2) == 0);
    check_near("three addends", order_share(3), 0.21, 0.25);
    check_near("four addends", order_share(4), 0.35, 0.25);
    check_near("eight addends", order_share(8), 0.59, 0.15);
}

/* RMSNorm in bf16: the weight multiplied before or after the cast. */
static void test_cast_order(void **st)
{
    int equal = 0, steps = 0, n = 0;
    (void)st;
    state = 21;
    for (int r = 0; r < 60; r++) {
        fill(512);
        double ms = 0;
        for (int i = 0; i < 512; i++) {
            x[i] = bf16(x[i]);
            w[i] = bf16(w[i]);
            ms += (double)x[i] * (double)x[i] / 512;
        }
        float scale = (float)(1 / sqrt(ms + 1e-5));
        for (int i = 0; i < 512; i++, n++) {
            uint16_t late = ds_bf16_round(x[i] * scale * w[i]),
                     early = ds_bf16_round(bf16(x[i] * scale) * w[i]);
            equal += late == early;
            steps += ds_ulp_distance(DS_BF16, late, early) > 1;
        }
    }
    check_near("equal elements", equal / (double)n, 0.743, 0.03);
    assert_int_equal(steps, 0);
}

static void test_sixteen_bits(void **st)
{
    (void)st;
    for (int i = 0; i <= 2048; i++)
        assert_true(ds_f16_value(ds_f16_round((float)i)) == (float)i);
    assert_true(ds_f16_value(ds_f16_round(2049.0f)) != 2049.0f);
    assert_true(ds_f16_value(ds_f16_round(65519.0f)) == 65504.0f);
    assert_true(isinf(ds_f16_value(ds_f16_round(65520.0f))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mantissas),    cmocka_unit_test(test_splits),
        cmocka_unit_test(test_orders),       cmocka_unit_test(test_cast_order),
        cmocka_unit_test(test_sixteen_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
