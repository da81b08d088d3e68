/* range.c: how large the values of a site become, so that an overflow can be seen coming. Rows that
 * are compared with a reference are not looked at: equal ones have its values. */
#include "probes/probe_internal.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

static float value_of(int dtype, uint32_t bits)
{
    return dtype == DS_F32    ? ds_f32_from_bits(bits)
           : dtype == DS_BF16 ? ds_bf16_value((uint16_t)bits)
                              : ds_f16_value((uint16_t)bits);
}

/* The largest finite value of a row that holds others, too. */
static float largest_finite(int dtype, const char *bytes, size_t n)
{
    size_t size = ds_dtype_size(dtype);
    float largest = 0;
    for (size_t i = 0; i + size <= n; i += size) {
        uint32_t u = 0;
        memcpy(&u, bytes + i, size);
        float v = fabsf(value_of(dtype, u));
        largest = isfinite(v) && v > largest ? v : largest;
    }
    return largest;
}

static int store_range(struct ds_probe *p, const struct probe_rows *r, uint32_t row, float value,
                       struct ds_error *err)
{
    uint32_t *number = &p->links[r->site].range;
    if (*number && !(value > p->t.ranges[*number - 1].max_abs))
        return 0;
    if (*number == 0) {
        if (ds_grow(&p->t.ranges, &p->cap.ranges, p->t.n_ranges + 1, sizeof *p->t.ranges, "ranges",
                    err))
            return -1;
        *number = (uint32_t)++p->t.n_ranges;
    }
    p->t.ranges[*number - 1] = (struct ds_range){r->site, row, value};
    return 0;
}

int probe_range(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err)
{
    int dtype = p->site[r->site].dtype;
    const uint32_t infinity = probe_infinity(dtype);
    uint32_t best = 0;
    float largest = -1;
    if (dtype == DS_I32)
        return 0;
    for (uint32_t i = 0; i < r->n; i++) {
        float v;
        if (p->largest[i] >= infinity) {
            if (probe_nonfinite(p, r, i, err))
                return -1;
            v = largest_finite(dtype, probe_row_bytes(p, r, i), r->row_bytes);
        } else {
            v = value_of(dtype, p->largest[i]);
        }
        best = v > largest ? i : best;
        largest = v > largest ? v : largest;
    }
    return r->n ? store_range(p, r, p->call_first + probe_row_number(r, best), largest, err) : 0;
}
