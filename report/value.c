/* value.c: see value.h. */
#include "report/value.h"

#include "base/dtype.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one value ------------------------------------------------------------------------------- */

struct format {
    int bits, mantissa;
};

static struct format format_of(int dtype)
{
    switch (dtype) {
    case DS_BF16:
        return (struct format){16, 7};
    case DS_F16:
        return (struct format){16, 10};
    case DS_F32:
        return (struct format){32, 23};
    default:
        return (struct format){32, 0};
    }
}

uint32_t ds_value_bits(int dtype, const void *data, size_t i)
{
    uint32_t u = 0;
    size_t size = ds_dtype_size(dtype);
    memcpy(&u, (const char *)data + i * size, size); /* little-endian, as stored */
    return u;
}

int ds_value_kind(int dtype, uint32_t bits)
{
    struct format f = format_of(dtype);
    if (f.mantissa == 0)
        return bits ? DS_VALUE_NORMAL : DS_VALUE_ZERO;
    uint32_t mantissa = bits & ((1u << f.mantissa) - 1),
             most = (1u << (f.bits - 1 - f.mantissa)) - 1, exponent = bits >> f.mantissa & most;
    if (exponent == most)
        return mantissa ? DS_VALUE_NAN : DS_VALUE_INF;
    if (exponent == 0)
        return mantissa                    ? DS_VALUE_SUBNORMAL
               : bits >> (f.bits - 1) & 1u ? DS_VALUE_NEGATIVE_ZERO
                                           : DS_VALUE_ZERO;
    return DS_VALUE_NORMAL;
}

double ds_value_number(int dtype, uint32_t bits)
{
    switch (dtype) {
    case DS_BF16:
        return (double)ds_bf16_value((uint16_t)bits);
    case DS_F16:
        return (double)ds_f16_value((uint16_t)bits);
    case DS_F32:
        return (double)ds_f32_from_bits(bits);
    default:
        return (double)(int32_t)bits;
    }
}

void ds_value_text(int dtype, uint32_t bits, int format, char out[DS_VALUE_TEXT])
{
    int digits = format_of(dtype).bits / 4, kind = ds_value_kind(dtype, bits);
    double x = ds_value_number(dtype, bits);
    if (format == DS_VALUE_HEX)
        snprintf(out, DS_VALUE_TEXT, "%0*" PRIx32, digits, bits);
    else if (kind == DS_VALUE_NAN)
        snprintf(out, DS_VALUE_TEXT, "NaN %0*" PRIx32, digits, bits);
    else if (kind == DS_VALUE_INF)
        snprintf(out, DS_VALUE_TEXT, "%sInf", x < 0 ? "-" : "");
    else if (format_of(dtype).mantissa == 0)
        snprintf(out, DS_VALUE_TEXT, "%" PRId32, (int32_t)bits);
    else
        snprintf(out, DS_VALUE_TEXT, format == DS_VALUE_A ? "%a" : "%.9g", x);
}

void ds_value_binary(int dtype, uint32_t bits, char out[48])
{
    struct format f = format_of(dtype);
    size_t n = 0;
    for (int i = f.bits - 1; i >= 0; i--) {
        out[n++] = bits >> i & 1u ? '1' : '0';
        if (f.mantissa ? i == f.bits - 1 || i == f.mantissa : i && i % 8 == 0)
            out[n++] = ' ';
    }
    out[n] = '\0';
}

/* ---- two values ------------------------------------------------------------------------------- */

const char *ds_value_note(int dtype, uint32_t mine, uint32_t ref)
{
    int a = ds_value_kind(dtype, mine), b = ds_value_kind(dtype, ref);
    int one = a == b; /* of one kind */
    if (a == DS_VALUE_NAN || b == DS_VALUE_NAN)
        return one && mine != ref ? "NaN bits" : "NaN";
    if (a == DS_VALUE_INF || b == DS_VALUE_INF)
        return "Inf";
    if (dtype == DS_I32)
        return "";
    double x = ds_value_number(dtype, mine), y = ds_value_number(dtype, ref);
    if (mine != ref && x == y)
        return "values equal";
    if ((x < 0 && y > 0) || (x > 0 && y < 0))
        return "sign";
    if (a == DS_VALUE_SUBNORMAL || b == DS_VALUE_SUBNORMAL)
        return "subnormal";
    return a == DS_VALUE_NEGATIVE_ZERO || b == DS_VALUE_NEGATIVE_ZERO ? "-0" : "";
}

uint64_t ds_value_ulp(int dtype, uint32_t mine, uint32_t ref)
{
    if (dtype == DS_I32)
        return (uint64_t)llabs((long long)(int32_t)mine - (int32_t)ref);
    return ds_ulp_distance(dtype, mine, ref);
}

void ds_size_text(double size, char *out, size_t n)
{
    if (isnan(size))
        snprintf(out, n, "NaN");
    else if (isinf(size))
        snprintf(out, n, "%sInf", size < 0 ? "-" : "");
    else
        snprintf(out, n, "%.6g", size);
}

/* ---- one row on both sides ------------------------------------------------------------------- */

static void look_at(struct ds_values *v, int side, const struct ds_blob *b)
{
    int dtype = b->data ? ds_dtype_parse(b->dtype) : -1;
    v->data[side] = NULL;
    v->dtype[side] = dtype;
    v->n[side] = 0;
    if (dtype < 0)
        return;
    v->data[side] = b->data;
    v->n[side] = b->bytes / ds_dtype_size(dtype);
    if (b->elements < v->n[side])
        v->n[side] = b->elements;
}

size_t ds_values_elements(const struct ds_values *v)
{
    return v->n[0] > v->n[1] ? v->n[0] : v->n[1];
}

int ds_values_bits(const struct ds_values *v, int side, size_t i, uint32_t *bits)
{
    if (!v->data[side] || v->dtype[side] < 0 || i >= v->n[side])
        return 0;
    *bits = ds_value_bits(v->dtype[side], v->data[side], i);
    return 1;
}

int ds_values_bin(const struct ds_values *v, size_t i)
{
    uint32_t mine, ref;
    if (!v->comparable || !ds_values_bits(v, DS_VALUES_MINE, i, &mine) ||
        !ds_values_bits(v, DS_VALUES_REF, i, &ref))
        return -1;
    if (mine == ref)
        return DS_BIN_EQUAL;
    uint64_t ulp = ds_value_ulp(v->dtype[0], mine, ref);
    return ulp == UINT64_MAX ? DS_BIN_NAN
           : ulp == 0        ? DS_BIN_ZERO
                             : DS_BIN_ONE + 63 - __builtin_clzll(ulp);
}

void ds_values_bin_name(const struct ds_values *v, int bin, char *out, size_t n)
{
    int k = bin - DS_BIN_ONE;
    if (bin == DS_BIN_EQUAL)
        snprintf(out, n, "=");
    else if (bin == DS_BIN_ZERO)
        snprintf(out, n, v->dtype[0] == DS_I32 ? "0" : "0 (-0, +0)");
    else if (bin == DS_BIN_NAN)
        snprintf(out, n, "NaN");
    else if (k == 0)
        snprintf(out, n, "1");
    else if (k < 16)
        snprintf(out, n, "%d-%d", 1 << k, (1 << (k + 1)) - 1);
    else
        snprintf(out, n, "2^%d-", k);
}

double ds_values_difference(const struct ds_values *v, size_t i, int relative)
{
    uint32_t mine, ref;
    if (!ds_values_bits(v, DS_VALUES_MINE, i, &mine) || !ds_values_bits(v, DS_VALUES_REF, i, &ref))
        return (double)NAN;
    double x = ds_value_number(v->dtype[1], mine), y = ds_value_number(v->dtype[0], ref);
    double d = x == y ? 0 : x - y; /* no sign where there is no difference */
    return relative ? d / fabs(y) : d;
}

void ds_values_look(struct ds_values *v, const struct ds_blob *ref, const struct ds_blob *mine)
{
    memset(v, 0, sizeof *v);
    look_at(v, DS_VALUES_REF, ref);
    look_at(v, DS_VALUES_MINE, mine);
    v->comparable = v->dtype[0] >= 0 && v->dtype[0] == v->dtype[1];
    v->first = SIZE_MAX;
    for (size_t i = 0; i < ds_values_elements(v); i++) {
        uint32_t x, y;
        int bin = ds_values_bin(v, i);
        if (bin < 0)
            continue;
        v->bins[bin]++;
        if (bin == DS_BIN_EQUAL)
            continue;
        double d = fabs(ds_values_difference(v, i, 0));
        v->first = v->first == SIZE_MAX ? i : v->first;
        v->differ++;
        v->max_abs = d > v->max_abs ? d : v->max_abs;
        if (bin != DS_BIN_NAN && ds_values_bits(v, DS_VALUES_MINE, i, &x) &&
            ds_values_bits(v, DS_VALUES_REF, i, &y) && ds_value_ulp(v->dtype[0], x, y) > v->max_ulp)
            v->max_ulp = ds_value_ulp(v->dtype[0], x, y);
    }
}

void ds_values_words(const struct ds_values *v, const char *const names[2], struct ds_buf *out)
{
    char abs[32];
    ds_size_text(v->max_abs, abs, sizeof abs);
    if (v->dtype[0] < 0 || v->dtype[1] < 0)
        ds_buf_printf(out, "the values of %s are not dumped (run --dump all has both sides)",
                      names[v->dtype[0] < 0 ? 0 : 1]);
    else if (!v->comparable)
        ds_buf_printf(out, "stored as %s and %s: not compared", ds_dtype_name(v->dtype[0]),
                      ds_dtype_name(v->dtype[1]));
    else if (v->differ == 0)
        ds_buf_printf(out, "all %zu elements (%s) have equal bits", ds_values_elements(v),
                      ds_dtype_name(v->dtype[0]));
    else
        ds_buf_printf(out, "%zu of %zu elements (%s) differ, max %" PRIu64 " %s, max abs %s%s",
                      v->differ, ds_values_elements(v), ds_dtype_name(v->dtype[0]), v->max_ulp,
                      v->dtype[0] == DS_I32 ? "apart" : "ULP", abs,
                      v->bins[DS_BIN_NAN] ? ", NaN on a side" : "");
    if (v->n[0] != v->n[1] && v->dtype[0] >= 0 && v->dtype[1] >= 0)
        ds_buf_printf(out, "; lengths %zu and %zu", v->n[0], v->n[1]);
}
