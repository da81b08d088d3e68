/* scan_isa.h: the text that scan_base.c, scan_avx2.c and scan_avx512.c compile, each with
 * its own flags.
 *
 * Everything here is static, so that no function compiled for a wide instruction set can be picked by
 * the linker for a caller on a CPU without it.
 *
 * Defined by the includer: ISA_NAME, ISA_BYTES (vector width). */
#include "base/dtype.h"
#include "probes/scan.h"

#include <math.h>
#include <string.h>

enum { UNROLL = 4 };

typedef uint32_t lanes32 __attribute__((vector_size(ISA_BYTES)));
typedef uint16_t lanes16 __attribute__((vector_size(ISA_BYTES)));
typedef uint64_t lanes64 __attribute__((vector_size(ISA_BYTES)));
typedef float lanes_f __attribute__((vector_size(ISA_BYTES)));

static int any_lane(lanes64 v)
{
    uint64_t any = 0;
    for (size_t i = 0; i < ISA_BYTES / 8; i++)
        any |= v[i];
    return any != 0;
}

/* A number is NaN or Inf when all exponent bits are set: f32 7f800000, bf16 7f80, f16 7c00. Four
 * accumulators, so that the loop waits for loads and not for the last OR. */
#define SCAN(lanes, mask, p, bytes, i, seen)                                                       \
    do {                                                                                           \
        lanes v0, v1, v2, v3;                                                                      \
        lanes64 s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                            \
        for (; (i) + UNROLL * ISA_BYTES <= (bytes); (i) += UNROLL * ISA_BYTES) {                   \
            memcpy(&v0, (p) + (i), sizeof v0);                                                     \
            memcpy(&v1, (p) + (i) + ISA_BYTES, sizeof v1);                                         \
            memcpy(&v2, (p) + (i) + 2 * ISA_BYTES, sizeof v2);                                     \
            memcpy(&v3, (p) + (i) + 3 * ISA_BYTES, sizeof v3);                                     \
            s0 |= (lanes64)((v0 & (mask)) == (mask));                                              \
            s1 |= (lanes64)((v1 & (mask)) == (mask));                                              \
            s2 |= (lanes64)((v2 & (mask)) == (mask));                                              \
            s3 |= (lanes64)((v3 & (mask)) == (mask));                                              \
        }                                                                                          \
        seen = (s0 | s1) | (s2 | s3);                                                              \
    } while (0)

static int nonfinite32(const char *p, size_t bytes)
{
    const lanes32 mask = (lanes32){0} + 0x7f800000u;
    lanes64 seen;
    size_t i = 0;
    SCAN(lanes32, mask, p, bytes, i, seen);
    uint32_t tail = 0;
    for (; i + 4 <= bytes; i += 4) {
        uint32_t v;
        memcpy(&v, p + i, sizeof v);
        tail |= (v & 0x7f800000u) == 0x7f800000u;
    }
    return (int)tail | any_lane(seen);
}

static int nonfinite16(const char *p, size_t bytes, uint16_t exponent)
{
    const lanes16 mask = (lanes16){0} + exponent;
    lanes64 seen;
    size_t i = 0;
    SCAN(lanes16, mask, p, bytes, i, seen);
    uint32_t tail = 0;
    for (; i + 2 <= bytes; i += 2) {
        uint16_t v;
        memcpy(&v, p + i, sizeof v);
        tail |= (v & exponent) == exponent;
    }
    return (int)tail | any_lane(seen);
}

static int nonfinite(int dtype, const void *bytes, size_t n_bytes)
{
    switch (dtype) {
    case DS_F32:
        return nonfinite32(bytes, n_bytes);
    case DS_BF16:
        return nonfinite16(bytes, n_bytes, 0x7f80u);
    case DS_F16:
        return nonfinite16(bytes, n_bytes, 0x7c00u);
    default:
        return 0;
    }
}

typedef int32_t ilanes32 __attribute__((vector_size(ISA_BYTES)));
typedef int16_t ilanes16 __attribute__((vector_size(ISA_BYTES)));

/* Magnitudes have no sign bit, so that signed lanes compare them rightly. Two accumulators. */
#define LARGEST(NAME, ilanes, type, sign)                                                          \
    static uint32_t NAME(const char *p, size_t bytes)                                              \
    {                                                                                              \
        const ilanes mask = (ilanes){0} + (type)(sign);                                            \
        ilanes v0, v1, m0 = {0}, m1 = {0};                                                         \
        size_t i = 0;                                                                              \
        for (; i + 2 * ISA_BYTES <= bytes; i += 2 * ISA_BYTES) {                                   \
            memcpy(&v0, p + i, sizeof v0);                                                         \
            memcpy(&v1, p + i + ISA_BYTES, sizeof v1);                                             \
            v0 &= mask;                                                                            \
            v1 &= mask;                                                                            \
            ilanes more0 = (ilanes)(v0 > m0), more1 = (ilanes)(v1 > m1);                           \
            m0 = (v0 & more0) | (m0 & ~more0);                                                     \
            m1 = (v1 & more1) | (m1 & ~more1);                                                     \
        }                                                                                          \
        type largest = 0;                                                                          \
        for (size_t l = 0; l < ISA_BYTES / sizeof(type); l++) {                                    \
            largest = m0[l] > largest ? m0[l] : largest;                                           \
            largest = m1[l] > largest ? m1[l] : largest;                                           \
        }                                                                                          \
        for (; i + sizeof(type) <= bytes; i += sizeof(type)) {                                     \
            type v;                                                                                \
            memcpy(&v, p + i, sizeof v);                                                           \
            v = (type)(v & (type)(sign));                                                          \
            largest = v > largest ? v : largest;                                                   \
        }                                                                                          \
        return (uint32_t)largest;                                                                  \
    }
LARGEST(largest32, ilanes32, int32_t, 0x7fffffff)
LARGEST(largest16, ilanes16, int16_t, 0x7fff)

static uint32_t largest_bits(int dtype, const void *bytes, size_t n_bytes)
{
    if (dtype == DS_F32)
        return largest32(bytes, n_bytes);
    return dtype == DS_BF16 || dtype == DS_F16 ? largest16(bytes, n_bytes) : 0;
}

static size_t next_above(const float *x, size_t begin, size_t n, float limit)
{
    enum { BLOCK = UNROLL * ISA_BYTES / sizeof(float) };
    const lanes_f bound = (lanes_f){0} + limit;
    size_t i = begin;
    for (; i + BLOCK <= n; i += BLOCK) {
        lanes64 above = {0};
        for (size_t u = 0; u < UNROLL; u++) {
            lanes_f v;
            memcpy(&v, x + i + u * (BLOCK / UNROLL), sizeof v);
            above |= (lanes64)(v > bound);
        }
        if (any_lane(above))
            break;
    }
    while (i < n && !(x[i] > limit))
        i++;
    return i;
}

static size_t count_equal(const float *x, size_t n, float value)
{
    enum { LANES = ISA_BYTES / sizeof(float) };
    const lanes_f want = (lanes_f){0} + value;
    lanes32 sum = {0};
    size_t count = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes_f v;
        memcpy(&v, x + i, sizeof v);
        sum -= (lanes32)(v == want); /* true is all ones: minus one */
    }
    for (; i < n; i++)
        count += x[i] == value;
    for (size_t l = 0; l < LANES; l++)
        count += sum[l];
    return count;
}

/* Sixteen lanes whatever the instruction set, so that the order of additions, and with it every bit, is the same: lane l
 * adds x[l], x[l + 16], ... in f32 for 256 elements, these sums in f64; the lanes are added last, halves on halves. */
enum { EXP_LANES = 16, EXP_BLOCK = 256 };
typedef float exp_f __attribute__((vector_size(4 * EXP_LANES)));
typedef uint32_t exp_u __attribute__((vector_size(4 * EXP_LANES)));
typedef double exp_d __attribute__((vector_size(8 * EXP_LANES)));

/* exp(t), t <= 0, within some 1e-7 of itself; 0 below -87. n = t / ln 2 to the nearest whole number, by adding what has no
 * places behind the point; r = t - n ln 2 in two steps; a polynomial; times 2^n. */
static inline void exp_lanes(exp_f *x)
{
    const exp_f t = *x;
    const exp_f round = (exp_f){0} + 12582912.0f, shifted = t * 1.44269504f + round;
    const exp_f n = shifted - round, r = (t - n * 0.693145752f) - n * 1.42860677e-6f;
    const exp_f p =
        1.0f +
        r * (1.0f +
             r * (0.5f + r * (0.166666667f +
                              r * (0.0416666667f + r * (0.00833333333f + r * 0.00138888889f)))));
    const exp_u power = (((exp_u)shifted - (exp_u)round) + 127) << 23;
    *x = (exp_f)((exp_u)(p * (exp_f)power) & ~(exp_u)(t < -87.0f));
}

static double exp_sum(const float *x, size_t n, float max)
{
    const exp_f most = (exp_f){0} + max;
    exp_d sum = {0};
    for (size_t i = 0; i < n;) {
        exp_f part = {0};
        for (const size_t end = n - i < EXP_BLOCK ? n : i + EXP_BLOCK; i < end; i += EXP_LANES) {
            exp_f v = (exp_f){0} - (float)INFINITY;
            memcpy(&v, x + i, end - i < EXP_LANES ? (end - i) * sizeof *x : sizeof v);
            v -= most;
            exp_lanes(&v);
            part += v;
        }
        sum += __builtin_convertvector(part, exp_d);
    }
    for (size_t half = EXP_LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            sum[l] += sum[l + half];
    return sum[0] >= 0 && max - max == 0.0f ? sum[0] : (double)NAN; /* one NaN, whatever made it */
}

static const struct ds_scan_isa isa_table = {.name = ISA_NAME,
                                             .nonfinite = nonfinite,
                                             .largest = largest_bits,
                                             .next_above = next_above,
                                             .count_equal = count_equal,
                                             .exp_sum = exp_sum};
