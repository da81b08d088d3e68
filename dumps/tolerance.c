/* tolerance.c: see tolerance.h. Every comparison is written so that a NaN fails it. */
#include "dumps/tolerance.h"

#include "base/dtype.h"
#include "dumps/tolerance_block.h"

#include <math.h>
#include <string.h>

int ds_tolerance_given(const struct ds_tolerance *t)
{
    return t->ulp > 0 || t->atol > 0 || t->rtol > 0 || t->nmse > 0;
}

static uint32_t bits_at(size_t size, const void *data, size_t i)
{
    uint32_t u = 0;
    uint16_t h;
    if (size == sizeof u) {
        memcpy(&u, (const char *)data + i * sizeof u, sizeof u); /* little-endian, as stored */
        return u;
    }
    memcpy(&h, (const char *)data + i * sizeof h, sizeof h);
    return h;
}

static double value(int dtype, uint32_t bits)
{
    return dtype == DS_BF16  ? (double)ds_bf16_value((uint16_t)bits)
           : dtype == DS_F16 ? (double)ds_f16_value((uint16_t)bits)
                             : (double)ds_f32_from_bits(bits);
}

static int element_passes(const struct ds_tolerance *t, int dtype, uint32_t a, uint32_t ref,
                          double x, double y)
{
    double d = fabs(x - y);
    return (t->ulp > 0 && ds_ulp_distance(dtype, a, ref) <= t->ulp) ||
           (t->atol > 0 && d <= t->atol) || (t->rtol > 0 && d <= t->rtol * fabs(y));
}

/* Elements of f32 at the beginning of a row that all pass, by the code of this CPU: all, or none when
 * one of them does not. */
static size_t pass_at_once(const struct ds_tolerance *t, const void *a, const void *ref, size_t n,
                           int *passed)
{
    const struct ds_tolerance_limits limits = {t->ulp > UINT32_MAX ? UINT32_MAX : (uint32_t)t->ulp,
                                               t->atol, t->rtol};
    n -= n % DS_TOLERANCE_LANES;
    *passed = ds_tolerance_passes()(&limits, a, ref, n);
    return n;
}

int ds_tolerance_row(const struct ds_tolerance *t, int dtype, const void *a, const void *ref,
                     size_t n)
{
    size_t size = ds_dtype_size(dtype);
    int elements = 1;
    double diff_sq = 0, ref_sq = 0;
    if (dtype != DS_F32 && dtype != DS_BF16 && dtype != DS_F16)
        return memcmp(a, ref, n * size) == 0;
    size_t done = 0;
    if (dtype == DS_F32 && !(t->nmse > 0)) {
        int passed;
        done = pass_at_once(t, a, ref, n, &passed);
        if (!passed)
            return 0;
    }
    for (size_t i = done; i < n; i++) {
        uint32_t u = bits_at(size, a, i), v = bits_at(size, ref, i);
        if (u == v && !(t->nmse > 0)) /* nearly all elements of nearly all rows */
            continue;
        double x = value(dtype, u), y = value(dtype, v);
        int finite = isfinite(x) && isfinite(y);
        if (u != v && !finite)
            return 0;
        if (u != v && elements && !element_passes(t, dtype, u, v, x, y))
            elements = 0;
        if (!elements && !(t->nmse > 0))
            return 0;
        if (finite) {
            diff_sq += (x - y) * (x - y);
            ref_sq += y * y;
        }
    }
    return elements || diff_sq <= t->nmse * ref_sq;
}
