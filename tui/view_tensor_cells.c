/* view_tensor_cells.c: the table of Tensor: one row of a site, an element a line, both sides as
 * they are stored. */
#include "tui/view_tensor.h"

#include "base/dtype.h"
#include "tui/number.h"
#include "tui/view_site.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- elements -------------------------------------------------------------------------------- */

size_t tensor_elements(const struct tensor_own *o)
{
    return o->n[0] > o->n[1] ? o->n[0] : o->n[1];
}

int tensor_bits(const struct tensor_own *o, int side, size_t i, uint32_t *bits)
{
    if (!o->values || o->dtype[side] < 0 || i >= o->n[side])
        return 0;
    const struct ds_blob *b = side == TENSOR_MINE ? &o->values->mine : &o->values->ref;
    *bits = tui_value_bits(o->dtype[side], b->data, i);
    return 1;
}

int tensor_bin(const struct tensor_own *o, size_t i)
{
    uint32_t mine, ref;
    if (!o->comparable || !tensor_bits(o, TENSOR_MINE, i, &mine) ||
        !tensor_bits(o, TENSOR_REF, i, &ref))
        return -1;
    if (mine == ref)
        return TENSOR_EQUAL;
    uint64_t ulp = tui_pair_ulp(o->dtype[0], mine, ref);
    return ulp == UINT64_MAX ? TENSOR_NAN
           : ulp == 0        ? TENSOR_ZERO
                             : TENSOR_ONE + 63 - __builtin_clzll(ulp);
}

double tensor_difference(const struct tensor_own *o, size_t i, int relative)
{
    uint32_t mine, ref;
    if (!tensor_bits(o, TENSOR_MINE, i, &mine) || !tensor_bits(o, TENSOR_REF, i, &ref))
        return (double)NAN;
    double x = tui_value_number(o->dtype[1], mine), y = tui_value_number(o->dtype[0], ref);
    double d = x == y ? 0 : x - y; /* no sign where there is no difference */
    return relative ? d / fabs(y) : d;
}

/* Of an element that differs, in the metric of the place: what `w` takes for large. NaN on one side
 * is more than any number. */
static double element_size(const struct tensor_own *o, size_t i, int bin)
{
    uint32_t mine, ref;
    if (bin == TENSOR_NAN)
        return (double)INFINITY;
    if (o->at.metric == TUI_METRIC_ABS || o->at.metric == TUI_METRIC_REL)
        return fabs(tensor_difference(o, i, o->at.metric == TUI_METRIC_REL));
    return tensor_bits(o, TENSOR_MINE, i, &mine) && tensor_bits(o, TENSOR_REF, i, &ref)
               ? (double)tui_pair_ulp(o->dtype[0], mine, ref)
               : 0;
}

void tensor_count(struct tensor_own *o)
{
    memset(o->bins, 0, sizeof o->bins);
    o->first = SIZE_MAX;
    o->largest = o->max_abs = 0;
    o->max_ulp = 0;
    o->differ = 0;
    for (size_t i = 0; i < tensor_elements(o); i++) {
        uint32_t mine, ref;
        int bin = tensor_bin(o, i);
        if (bin < 0)
            continue;
        o->bins[bin]++;
        if (bin == TENSOR_EQUAL)
            continue;
        double size = element_size(o, i, bin), d = fabs(tensor_difference(o, i, 0));
        o->first = o->first == SIZE_MAX ? i : o->first;
        o->differ++;
        o->largest = size > o->largest ? size : o->largest;
        o->max_abs = d > o->max_abs ? d : o->max_abs;
        if (bin != TENSOR_NAN && tensor_bits(o, 1, i, &mine) && tensor_bits(o, 0, i, &ref) &&
            tui_pair_ulp(o->dtype[0], mine, ref) > o->max_ulp)
            o->max_ulp = tui_pair_ulp(o->dtype[0], mine, ref);
    }
}

/* ---- cells ----------------------------------------------------------------------------------- */

enum { INDEX = 0, HEAD, CHANNEL, REF, IS, MINE, DIFFERENCE, ULP, NOTE, ALL };

/* Rows without heads have no columns for them. */
static int column_of(const struct tensor_own *o, size_t column)
{
    return (int)column + (o->heads || column == INDEX ? 0 : 2);
}

static int value_role(int dtype, uint32_t bits)
{
    int kind = tui_value_kind(dtype, bits);
    return kind == TUI_VALUE_NAN || kind == TUI_VALUE_INF ? TUI_NONFINITE : TUI_PLAIN;
}

static void value_cell(const struct tensor_own *o, int side, size_t i, struct tui_value *v)
{
    char other[TUI_VALUE_TEXT];
    uint32_t bits, theirs;
    if (!tensor_bits(o, side, i, &bits)) {
        snprintf(v->text, sizeof v->text, ".");
        v->role = TUI_MISSING;
        v->null = 1;
        return;
    }
    char text[TUI_VALUE_TEXT];
    tui_value_text(o->dtype[side], bits, o->at.number, text);
    snprintf(v->text, sizeof v->text, "%s", text);
    v->role = value_role(o->dtype[side], bits);
    v->key = tui_value_number(o->dtype[side], bits);
    v->numeric = o->at.number == TUI_NUMBER_DECIMAL; /* other formats are exported as they stand */
    if (!o->comparable || !tensor_bits(o, !side, i, &theirs) || theirs == bits)
        return;
    tui_value_text(o->dtype[!side], theirs, o->at.number, other);
    tui_value_mark(v, other, o->at.number);
}

static void put_number(struct tui_value *v, double x)
{
    tui_size_text(x, v->text, sizeof v->text);
    v->key = x;
    v->numeric = 1;
}

static void put_index(struct tui_value *v, size_t i)
{
    snprintf(v->text, sizeof v->text, "%zu", i);
    v->key = (double)i;
    v->numeric = 1;
}

/* Nothing where bits are equal: what differs stands out. */
static void pair_cell(const struct tensor_own *o, size_t i, int column, struct tui_value *v)
{
    uint32_t mine = 0, ref = 0;
    int bin = tensor_bin(o, i);
    if (bin < 0) {
        v->null = 1;
        return;
    }
    tensor_bits(o, TENSOR_MINE, i, &mine);
    tensor_bits(o, TENSOR_REF, i, &ref);
    v->role = bin == TENSOR_EQUAL ? TUI_SAME : bin == TENSOR_NAN ? TUI_NONFINITE : TUI_PLAIN;
    if (column == IS) {
        snprintf(v->text, sizeof v->text, "%s",
                 bin == TENSOR_EQUAL  ? "="
                 : bin == TENSOR_ZERO ? "~"
                                      : "!=");
    } else if (column == NOTE) {
        snprintf(v->text, sizeof v->text, "%s", tui_pair_note(o->dtype[0], mine, ref));
    } else if (bin == TENSOR_EQUAL) {
        v->numeric = 1;
    } else if (column == ULP) {
        uint64_t ulp = tui_pair_ulp(o->dtype[0], mine, ref);
        v->numeric = 1;
        v->key = ulp == UINT64_MAX ? (double)NAN : (double)ulp;
        if (ulp == UINT64_MAX)
            snprintf(v->text, sizeof v->text, "NaN");
        else
            snprintf(v->text, sizeof v->text, "%" PRIu64, ulp);
    } else {
        put_number(v, tensor_difference(o, i, o->at.metric == TUI_METRIC_REL));
    }
}

static void cell(void *ctx, size_t i, size_t column, struct tui_value *v)
{
    const struct tensor_own *o = ctx;
    if (!o->values || i >= tensor_elements(o))
        return;
    switch (column_of(o, column)) {
    case INDEX:
        put_index(v, i);
        break;
    case HEAD:
        put_index(v, i / o->head_dim);
        break;
    case CHANNEL:
        put_index(v, i % o->head_dim);
        break;
    case REF:
        value_cell(o, TENSOR_REF, i, v);
        break;
    case MINE:
        value_cell(o, TENSOR_MINE, i, v);
        break;
    default:
        pair_cell(o, i, column_of(o, column), v);
    }
}

static int is(void *ctx, size_t i, size_t column)
{
    const struct tensor_own *o = ctx;
    int bin = o->values ? tensor_bin(o, i) : -1;
    (void)column;
    if (bin <= TENSOR_EQUAL)
        return 0;
    return TUI_IS_DRIFT | (i == o->first ? TUI_IS_ORIGIN : 0) |
           (element_size(o, i, bin) >= o->largest ? TUI_IS_JUMP : 0);
}

void tensor_source(struct tensor_own *o, struct tui_source *out)
{
    const struct tui_column all[ALL] = {
        [INDEX] = {"index", TUI_RIGHT, TUI_COLUMN_FIXED, 5, 0},
        [HEAD] = {"head", TUI_RIGHT, 0, 0, 0},
        [CHANNEL] = {"channel", TUI_RIGHT, 0, 0, 0},
        [REF] = {tui_side_name(o->whole, &o->at, 0), TUI_RIGHT, 0, 15, 0},
        [IS] = {"is", TUI_LEFT, 0, 2, 2},
        [MINE] = {tui_side_name(o->whole, &o->at, 1), TUI_RIGHT, 0, 15, 0},
        [DIFFERENCE] = {o->at.metric == TUI_METRIC_REL ? "relative" : "difference", TUI_RIGHT, 0,
                        12, 0},
        [ULP] = {o->dtype[0] == DS_I32 ? "distance" : "ULP", TUI_RIGHT, 0, 5, 0},
        [NOTE] = {"note", TUI_LEFT, 0, 0, 0},
    };
    o->n_columns = 0;
    for (int i = 0; i < ALL; i++)
        if (o->heads || (i != HEAD && i != CHANNEL))
            o->columns[o->n_columns++] = all[i];
    *out = (struct tui_source){.ctx = o,
                               .columns = o->columns,
                               .n_columns = o->n_columns,
                               .n_rows = tensor_elements(o),
                               .cell = cell,
                               .is = is,
                               .name = "elements"};
}
