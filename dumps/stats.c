/* stats.c: statistics of one row against its reference. Pure: no I/O, no allocation, no state.
 * Knows number formats; must not know records, sites or kernels.
 *
 * How elements count:
 * - elements, first: bits differ, so -0 against +0 and two NaNs with other payloads count; first is
 *   UINT32_MAX if there is none.
 * - max_ulp, max_abs: where neither side is NaN. The difference is taken in double (exact up to its
 *   own rounding). Inf against a finite value or the other Inf gives max_abs +Inf, Inf against the
 *   same Inf 0. -0 and +0 are 0 apart.
 * - diff_sq, ref_sq: over elements finite on both sides, equal ones included in ref_sq. Subnormals
 *   are ordinary values.
 * - nonfinite: NaN and Inf elements of each side, equal ones included.
 * - VALUES_EQUAL: some bits differ and every differing pair compares equal.
 * - NAN_BITS: some pair is NaN on both sides with other bits, and every other differing pair
 *   compares equal.
 *
 * Order of addition: element i goes to partial sum i % 8; the eight are added in ascending order.
 */
#include "dumps/stats.h"

#include "base/dtype.h"
#include "dumps/stats_block.h"

#include <math.h>
#include <string.h>

enum { LANES = DS_STATS_LANES, BLOCK = 64 };

static int32_t line_key(uint32_t bits, uint32_t sign)
{
    int32_t magnitude = (int32_t)(bits & (sign - 1));
    return bits & sign ? -magnitude : magnitude;
}

/* n stored values as f32 and as places on their line, with zeros up to a whole number of groups. */
static void unpack(int dtype, const void *src, size_t n, float *value, int32_t *key)
{
    uint16_t half[BLOCK];
    memset(value, 0, BLOCK * sizeof *value);
    memset(key, 0, BLOCK * sizeof *key);
    if (dtype == DS_F32) {
        memcpy(value, src, n * 4);
        return;
    }
    memcpy(half, src, n * 2);
    ds_widen_row(dtype, value, half, n);
    for (size_t i = 0; i < n; i++)
        key[i] = line_key(half[i], 0x8000u);
}

/* Both sides equal bit for bit: only the reference's own size and its non-finite elements are
 * wanted. The inner loop has a fixed length so that it becomes vector code. */
static void add_equal(struct ds_stats_sums *s, const float *ref, size_t n)
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
    s->nonfinite[0] += bad;
    s->ref_nonfinite[0] += bad;
}

/* The first element that differs; there is one. */
static size_t first_difference(const char *a, const char *ref, size_t size)
{
    size_t i = 0;
    while (memcmp(a + i * size, ref + i * size, size) == 0)
        i++;
    return i;
}

static void compare_floats(int dtype, const char *a, const char *ref, size_t n,
                           struct ds_stats_sums *s, uint32_t *first)
{
    ds_stats_add_fn *add = ds_stats_add();
    size_t size = ds_dtype_size(dtype);
    float va[BLOCK], vr[BLOCK];
    int32_t ka[BLOCK], kr[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = n - i < BLOCK ? n - i : BLOCK;
        const char *pa = a + i * size, *pr = ref + i * size;
        int equal = memcmp(pa, pr, count * size) == 0;
        if (!equal && *first == UINT32_MAX)
            *first = (uint32_t)(i + first_difference(pa, pr, size));
        if (!equal && dtype == DS_F32 && count == BLOCK) {
            add(s, pa, pr, NULL, NULL, BLOCK);
            continue;
        }
        unpack(dtype, pr, count, vr, kr);
        if (equal) {
            add_equal(s, vr, count);
            continue;
        }
        unpack(dtype, pa, count, va, ka);
        int f32 = dtype == DS_F32;
        add(s, va, vr, f32 ? NULL : ka, f32 ? NULL : kr, (count + LANES - 1) / LANES * LANES);
    }
}

static void compare_integers(const char *a, const char *ref, size_t n, struct ds_stats_sums *s,
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
        s->elements[0]++;
        s->max_ulp[0] = distance > s->max_ulp[0] ? distance : s->max_ulp[0];
        s->max_abs[0] = (double)s->max_ulp[0];
    }
}

static uint32_t sum(const uint32_t *lane)
{
    uint32_t n = 0;
    for (int j = 0; j < LANES; j++)
        n += lane[j];
    return n;
}

void ds_stats_row(int dtype, const void *a, const void *ref, size_t n, struct ds_drift *out)
{
    struct ds_stats_sums s;
    memset(&s, 0, sizeof s);
    uint32_t first = UINT32_MAX;
    if (dtype == DS_I32)
        compare_integers(a, ref, n, &s, &first);
    else if (ds_dtype_size(dtype) != 0)
        compare_floats(dtype, a, ref, n, &s, &first);

    uint32_t equal_values = sum(s.equal_values), nan_pairs = sum(s.nan_pairs);
    out->elements = sum(s.elements);
    out->first = first;
    out->flags = 0;
    if (out->elements && equal_values == out->elements)
        out->flags |= DS_DRIFT_VALUES_EQUAL;
    if (nan_pairs && equal_values + nan_pairs == out->elements)
        out->flags |= DS_DRIFT_NAN_BITS;
    out->nonfinite = sum(s.nonfinite);
    out->ref_nonfinite = sum(s.ref_nonfinite);
    out->max_ulp = 0;
    out->max_abs = out->diff_sq = out->ref_sq = 0;
    for (int j = 0; j < LANES; j++) {
        out->max_ulp = s.max_ulp[j] > out->max_ulp ? s.max_ulp[j] : out->max_ulp;
        out->max_abs = s.max_abs[j] > out->max_abs ? s.max_abs[j] : out->max_abs;
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
