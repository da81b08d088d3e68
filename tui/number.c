/* number.c: see number.h. */
#include "tui/number.h"

#include "base/dtype.h"
#include "tui/view.h"

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

uint32_t tui_value_bits(int dtype, const void *data, size_t i)
{
    uint32_t u = 0;
    size_t size = ds_dtype_size(dtype);
    memcpy(&u, (const char *)data + i * size, size); /* little-endian, as stored */
    return u;
}

int tui_value_kind(int dtype, uint32_t bits)
{
    struct format f = format_of(dtype);
    if (f.mantissa == 0)
        return bits ? TUI_VALUE_NORMAL : TUI_VALUE_ZERO;
    uint32_t mantissa = bits & ((1u << f.mantissa) - 1),
             most = (1u << (f.bits - 1 - f.mantissa)) - 1, exponent = bits >> f.mantissa & most;
    if (exponent == most)
        return mantissa ? TUI_VALUE_NAN : TUI_VALUE_INF;
    if (exponent == 0)
        return mantissa                    ? TUI_VALUE_SUBNORMAL
               : bits >> (f.bits - 1) & 1u ? TUI_VALUE_NEGATIVE_ZERO
                                           : TUI_VALUE_ZERO;
    return TUI_VALUE_NORMAL;
}

double tui_value_number(int dtype, uint32_t bits)
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

void tui_value_text(int dtype, uint32_t bits, int number, char out[TUI_VALUE_TEXT])
{
    int digits = format_of(dtype).bits / 4, kind = tui_value_kind(dtype, bits);
    double x = tui_value_number(dtype, bits);
    if (number == TUI_NUMBER_HEX)
        snprintf(out, TUI_VALUE_TEXT, "%0*" PRIx32, digits, bits);
    else if (kind == TUI_VALUE_NAN)
        snprintf(out, TUI_VALUE_TEXT, "NaN %0*" PRIx32, digits, bits);
    else if (kind == TUI_VALUE_INF)
        snprintf(out, TUI_VALUE_TEXT, "%sInf", x < 0 ? "-" : "");
    else if (format_of(dtype).mantissa == 0)
        snprintf(out, TUI_VALUE_TEXT, "%" PRId32, (int32_t)bits);
    else
        snprintf(out, TUI_VALUE_TEXT, number == TUI_NUMBER_A ? "%a" : "%.9g", x);
}

void tui_value_binary(int dtype, uint32_t bits, char out[48])
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

/* ---- two values ------------------------------------------------------------------------------ */

static void add_span(struct tui_value *cell, size_t begin, size_t end)
{
    if (cell->n_spans == (int)(sizeof cell->span / sizeof *cell->span)) {
        cell->span[cell->n_spans - 1].end = (uint16_t)end; /* the last one takes what is left */
        return;
    }
    cell->span[cell->n_spans].begin = (uint16_t)begin;
    cell->span[cell->n_spans++].end = (uint16_t)end;
}

/* Whether digits at one place of both texts have the same weight. */
static int same_places(const char *a, const char *b, int number)
{
    if (strlen(a) != strlen(b) || strncmp(a, "NaN", 3) == 0 || strncmp(b, "NaN", 3) == 0)
        return number == TUI_NUMBER_HEX;
    const char *p = strchr(a, 'p'), *q = strchr(b, 'p');
    return number == TUI_NUMBER_HEX || (number == TUI_NUMBER_A && p && q && strcmp(p, q) == 0);
}

void tui_value_mark(struct tui_value *cell, const char *other, int number)
{
    const char *text = cell->text;
    size_t n = strlen(text), m = strlen(other), i = 0;
    cell->span_role = TUI_DIFFERS;
    if (!same_places(text, other, number)) {
        while (i < n && i < m && text[i] == other[i])
            i++;
        if (i < n)
            add_span(cell, i, n);
        else if (i < m && n)
            add_span(cell, n - 1, n); /* the other one goes on */
        return;
    }
    for (size_t from = n; i <= n; i++) {
        int differs = i < n && (i >= m || text[i] != other[i]);
        if (differs && from == n)
            from = i;
        if (!differs && from < n) {
            add_span(cell, from, i);
            from = n;
        }
    }
}

const char *tui_pair_note(int dtype, uint32_t mine, uint32_t ref)
{
    int a = tui_value_kind(dtype, mine), b = tui_value_kind(dtype, ref);
    int one = a == b; /* of one kind */
    if (a == TUI_VALUE_NAN || b == TUI_VALUE_NAN)
        return one && mine != ref ? "NaN bits" : "NaN";
    if (a == TUI_VALUE_INF || b == TUI_VALUE_INF)
        return "Inf";
    if (dtype == DS_I32)
        return "";
    double x = tui_value_number(dtype, mine), y = tui_value_number(dtype, ref);
    if (mine != ref && x == y)
        return "values equal";
    if ((x < 0 && y > 0) || (x > 0 && y < 0))
        return "sign";
    if (a == TUI_VALUE_SUBNORMAL || b == TUI_VALUE_SUBNORMAL)
        return "subnormal";
    return a == TUI_VALUE_NEGATIVE_ZERO || b == TUI_VALUE_NEGATIVE_ZERO ? "-0" : "";
}

uint64_t tui_pair_ulp(int dtype, uint32_t mine, uint32_t ref)
{
    if (dtype == DS_I32)
        return (uint64_t)llabs((long long)(int32_t)mine - (int32_t)ref);
    return ds_ulp_distance(dtype, mine, ref);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

void tui_size_text(double size, char *out, size_t n)
{
    if (isnan(size))
        snprintf(out, n, "NaN");
    else if (isinf(size))
        snprintf(out, n, "%sInf", size < 0 ? "-" : "");
    else
        snprintf(out, n, "%.6g", size);
}

void tui_bar_text(double part, double most, int width, int ascii, char *out, size_t n)
{
    double share = isnan(part) || !(most > 0) ? 0 : isinf(part) ? 1 : isinf(most) ? 0 : part / most;
    int cells = share >= 1 ? width : (int)lround(share * width);
    const char *full = tui_glyph(TUI_G_SHADE + 4, ascii);
    size_t at = 0, size = strlen(full);
    if (cells == 0 && part > 0)
        cells = 1;
    for (int i = 0; i < cells && at + size < n; i++, at += size)
        memcpy(out + at, full, size);
    out[at < n ? at : n - 1] = '\0';
}
