/* stats.c: statistics of one row against its reference. Pure: no I/O, no allocation, no state.
 * Knows number formats; must not know records, sites or kernels.
 *
 * How elements count:
 *   elements, first   bits differ (so -0 against +0 and two NaNs with other payloads count); first
 * = UINT32_MAX if none max_ulp, max_abs  where neither side is NaN. The difference is taken in
 * double (exact up to its own rounding). Inf against a finite value or the other Inf gives max_abs
 * +Inf; Inf against the same Inf gives 0. -0 and +0 are 0 apart diff_sq, ref_sq   over elements
 * finite on both sides, equal ones included in ref_sq. Subnormals are ordinary values nonfinite NaN
 * and Inf elements of each side, equal ones included VALUES_EQUAL      some bits differ and every
 * differing pair compares equal NAN_BITS          some pair is NaN on both sides with other bits,
 * and every other differing pair compares equal
 *
 * Order of addition: element i goes to partial sum i % 8; the eight are added in ascending order.
 */
#include "dumps/stats.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

enum { LANES = 8, BLOCK = 64 };

struct sums {
    double diff_sq[LANES], ref_sq[LANES];
    double max_abs;
    uint32_t max_ulp;
    uint32_t elements, equal_values, nan_pairs, nonfinite, ref_nonfinite;
};

/* One block of both sides: raw bits, values, and the position of each value on the line of
 * representable numbers. */
struct block {
    uint32_t bits[2][BLOCK];
    float value[2][BLOCK];
    int32_t key[2][BLOCK];
};

static int32_t line_key(uint32_t bits, uint32_t sign)
{
    int32_t magnitude = (int32_t)(bits & (sign - 1));
    return bits & sign ? -magnitude : magnitude;
}

static void widen(int dtype, const void *src, size_t n, float *value)
{
    uint16_t half[BLOCK];
    if (dtype == DS_F32) {
        memcpy(value, src, n * 4);
        return;
    }
    memcpy(half, src, n * 2);
    ds_widen_row(dtype, value, half, n);
}

static void split_bits(int dtype, const void *src, size_t n, uint32_t *bits, int32_t *key)
{
    uint16_t half[BLOCK];
    uint32_t sign = dtype == DS_F32 ? 0x80000000u : 0x8000u;
    if (dtype == DS_F32)
        memcpy(bits, src, n * 4);
    else
        memcpy(half, src, n * 2);
    for (size_t i = 0; i < n; i++) {
        bits[i] = dtype == DS_F32 ? bits[i] : half[i];
        key[i] = line_key(bits[i], sign);
    }
}

/* Both sides equal bit for bit: only the reference's own size and its non-finite elements are
 * wanted. The inner loop has a fixed length so that it becomes vector code. */
static void add_equal(struct sums *s, const float *ref, size_t n)
{
    uint32_t bad = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) {
            float r = fabsf(ref[i + j]) < INFINITY ? ref[i + j] : 0.0f;
            bad += !(fabsf(ref[i + j]) < INFINITY);
            s->ref_sq[j] += (double)r * (double)r;
        }
    for (; i < n; i++) {
        float r = fabsf(ref[i]) < INFINITY ? ref[i] : 0.0f;
        bad += !(fabsf(ref[i]) < INFINITY);
        s->ref_sq[i % LANES] += (double)r * (double)r;
    }
    s->nonfinite += bad;
    s->ref_nonfinite += bad;
}

static void add_differing(struct sums *s, const struct block *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float a = b->value[0][i], r = b->value[1][i];
        int differ = b->bits[0][i] != b->bits[1][i];
        int a_nan = a != a, r_nan = r != r;
        int a_finite = fabsf(a) < INFINITY, r_finite = fabsf(r) < INFINITY;
        int both = a_finite & r_finite;
        double d = differ ? (double)a - (double)r : 0.0;
        double fd = both ? d : 0.0, fr = both ? (double)r : 0.0;
        s->diff_sq[i % LANES] += fd * fd;
        s->ref_sq[i % LANES] += fr * fr;
        s->nonfinite += !a_finite;
        s->ref_nonfinite += !r_finite;
        s->elements += differ;
        s->equal_values += differ & (a == r);
        s->nan_pairs += differ & a_nan & r_nan;
        if (a_nan | r_nan)
            continue;
        int32_t ka = b->key[0][i], kr = b->key[1][i];
        uint32_t ulp = ka > kr ? (uint32_t)ka - (uint32_t)kr : (uint32_t)kr - (uint32_t)ka;
        s->max_ulp = ulp > s->max_ulp ? ulp : s->max_ulp;
        s->max_abs = fabs(d) > s->max_abs ? fabs(d) : s->max_abs;
    }
}

static void compare_floats(int dtype, const char *a, const char *ref, size_t n, struct sums *s,
                           uint32_t *first)
{
    size_t size = ds_dtype_size(dtype);
    struct block b;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = n - i < BLOCK ? n - i : BLOCK;
        const char *pa = a + i * size, *pr = ref + i * size;
        widen(dtype, pr, count, b.value[1]);
        if (memcmp(pa, pr, count * size) == 0) {
            add_equal(s, b.value[1], count);
            continue;
        }
        widen(dtype, pa, count, b.value[0]);
        split_bits(dtype, pa, count, b.bits[0], b.key[0]);
        split_bits(dtype, pr, count, b.bits[1], b.key[1]);
        for (size_t j = 0; *first == UINT32_MAX && j < count; j++)
            if (b.bits[0][j] != b.bits[1][j])
                *first = (uint32_t)(i + j);
        add_differing(s, &b, count);
    }
}

static void compare_integers(const char *a, const char *ref, size_t n, struct sums *s,
                             uint32_t *first)
{
    for (size_t i = 0; i < n; i++) {
        int32_t x, r;
        memcpy(&x, a + i * 4, 4);
        memcpy(&r, ref + i * 4, 4);
        uint32_t distance = x > r ? (uint32_t)x - (uint32_t)r : (uint32_t)r - (uint32_t)x;
        s->diff_sq[i % LANES] += (double)distance * (double)distance;
        s->ref_sq[i % LANES] += (double)r * (double)r;
        if (distance == 0)
            continue;
        if (*first == UINT32_MAX)
            *first = (uint32_t)i;
        s->elements++;
        s->max_ulp = distance > s->max_ulp ? distance : s->max_ulp;
        s->max_abs = (double)s->max_ulp;
    }
}

void ds_stats_row(int dtype, const void *a, const void *ref, size_t n, struct ds_drift *out)
{
    struct sums s;
    memset(&s, 0, sizeof s);
    uint32_t first = UINT32_MAX;
    if (dtype == DS_I32)
        compare_integers(a, ref, n, &s, &first);
    else if (ds_dtype_size(dtype) != 0)
        compare_floats(dtype, a, ref, n, &s, &first);

    out->elements = s.elements;
    out->first = first;
    out->flags = 0;
    if (s.elements && s.equal_values == s.elements)
        out->flags |= DS_DRIFT_VALUES_EQUAL;
    if (s.nan_pairs && s.equal_values + s.nan_pairs == s.elements)
        out->flags |= DS_DRIFT_NAN_BITS;
    out->nonfinite = s.nonfinite;
    out->ref_nonfinite = s.ref_nonfinite;
    out->max_ulp = s.max_ulp;
    out->max_abs = s.max_abs;
    out->diff_sq = out->ref_sq = 0;
    for (int j = 0; j < LANES; j++) {
        out->diff_sq += s.diff_sq[j];
        out->ref_sq += s.ref_sq[j];
    }
}

/* Exponent bits all ones: Inf when the rest is zero, else NaN. Tests a block at once first: almost
 * every row has none. */
void ds_stats_nonfinite(int dtype, const void *a, size_t n, uint32_t *nan, uint32_t *inf,
                        uint32_t *first)
{
    *nan = *inf = 0;
    *first = UINT32_MAX;
    size_t size = ds_dtype_size(dtype);
    if (dtype == DS_I32 || size == 0)
        return;
    uint32_t infinity = dtype == DS_F32 ? 0x7f800000u : dtype == DS_BF16 ? 0x7f80u : 0x7c00u;
    uint32_t magnitude = dtype == DS_F32 ? 0x7fffffffu : 0x7fffu;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = n - i < BLOCK ? n - i : BLOCK;
        uint32_t bits[BLOCK], any = 0;
        if (size == 4)
            memcpy(bits, (const char *)a + i * 4, count * 4);
        else
            for (size_t j = 0; j < count; j++) {
                uint16_t half;
                memcpy(&half, (const char *)a + (i + j) * 2, 2);
                bits[j] = half;
            }
        for (size_t j = 0; j < count; j++)
            any |= (bits[j] & magnitude) >= infinity;
        for (size_t j = 0; any && j < count; j++) {
            uint32_t m = bits[j] & magnitude;
            if (m < infinity)
                continue;
            *nan += m > infinity;
            *inf += m == infinity;
            if (*first == UINT32_MAX)
                *first = (uint32_t)(i + j);
        }
    }
}
