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

/* Of an element that differs, in the metric of the place: what `w` takes for large. NaN on one side
 * is more than any number. */
static double element_size(const struct tensor_own *o, size_t i, int bin)
{
    uint32_t mine, ref;
    if (bin == DS_BIN_NAN)
        return (double)INFINITY;
    if (o->at.metric == TUI_METRIC_ABS || o->at.metric == TUI_METRIC_REL)
        return fabs(ds_values_difference(&o->pair, i, o->at.metric == TUI_METRIC_REL));
    return ds_values_bits(&o->pair, DS_VALUES_MINE, i, &mine) &&
                   ds_values_bits(&o->pair, DS_VALUES_REF, i, &ref)
               ? (double)ds_value_ulp(o->pair.dtype[0], mine, ref)
               : 0;
}

void tensor_count(struct tensor_own *o)
{
    o->largest = 0;
    for (size_t i = 0; i < ds_values_elements(&o->pair); i++) {
        int bin = ds_values_bin(&o->pair, i);
        double size = bin > DS_BIN_EQUAL ? element_size(o, i, bin) : 0;
        o->largest = size > o->largest ? size : o->largest;
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
    int kind = ds_value_kind(dtype, bits);
    return kind == DS_VALUE_NAN || kind == DS_VALUE_INF ? TUI_NONFINITE : TUI_PLAIN;
}

static void value_cell(const struct tensor_own *o, int side, size_t i, struct tui_value *v)
{
    char other[DS_VALUE_TEXT];
    uint32_t bits, theirs;
    if (!ds_values_bits(&o->pair, side, i, &bits)) {
        snprintf(v->text, sizeof v->text, ".");
        v->role = TUI_MISSING;
        v->null = 1;
        return;
    }
    char text[DS_VALUE_TEXT];
    ds_value_text(o->pair.dtype[side], bits, o->at.number, text);
    tui_value_put(v, text);
    v->role = value_role(o->pair.dtype[side], bits);
    v->key = ds_value_number(o->pair.dtype[side], bits);
    v->numeric = o->at.number == TUI_NUMBER_DECIMAL; /* other formats are exported as they stand */
    if (!o->pair.comparable || !ds_values_bits(&o->pair, !side, i, &theirs) || theirs == bits)
        return;
    ds_value_text(o->pair.dtype[!side], theirs, o->at.number, other);
    tui_value_mark(v, other, o->at.number);
}

static void put_number(struct tui_value *v, double x)
{
    ds_size_text(x, v->text, sizeof v->text);
    v->key = x;
    v->numeric = 1;
}

static void put_index(struct tui_value *v, size_t i)
{
    tui_whole_text((int64_t)i, v->text);
    v->key = (double)i;
    v->numeric = 1;
}

/* Nothing where bits are equal: what differs stands out. */
static void pair_cell(const struct tensor_own *o, size_t i, int column, struct tui_value *v)
{
    uint32_t mine = 0, ref = 0;
    int bin = ds_values_bin(&o->pair, i);
    if (bin < 0) {
        v->null = 1;
        return;
    }
    ds_values_bits(&o->pair, DS_VALUES_MINE, i, &mine);
    ds_values_bits(&o->pair, DS_VALUES_REF, i, &ref);
    v->role = bin == DS_BIN_EQUAL ? TUI_SAME : bin == DS_BIN_NAN ? TUI_NONFINITE : TUI_PLAIN;
    if (column == IS) {
        tui_value_put(v, bin == DS_BIN_EQUAL ? "=" : bin == DS_BIN_ZERO ? "~" : "!=");
    } else if (column == NOTE) {
        tui_value_put(v, ds_value_note(o->pair.dtype[0], mine, ref));
    } else if (bin == DS_BIN_EQUAL) {
        v->numeric = 1;
    } else if (column == ULP) {
        uint64_t ulp = ds_value_ulp(o->pair.dtype[0], mine, ref);
        v->numeric = 1;
        v->key = ulp == UINT64_MAX ? (double)NAN : (double)ulp;
        if (ulp == UINT64_MAX)
            snprintf(v->text, sizeof v->text, "NaN");
        else
            snprintf(v->text, sizeof v->text, "%" PRIu64, ulp);
    } else {
        put_number(v, ds_values_difference(&o->pair, i, o->at.metric == TUI_METRIC_REL));
    }
}

static void cell(void *ctx, size_t i, size_t column, struct tui_value *v)
{
    const struct tensor_own *o = ctx;
    if (!o->values || i >= ds_values_elements(&o->pair))
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
        value_cell(o, DS_VALUES_REF, i, v);
        break;
    case MINE:
        value_cell(o, DS_VALUES_MINE, i, v);
        break;
    default:
        pair_cell(o, i, column_of(o, column), v);
    }
}

static int is(void *ctx, size_t i, size_t column)
{
    const struct tensor_own *o = ctx;
    int bin = o->values ? ds_values_bin(&o->pair, i) : -1;
    (void)column;
    if (bin <= DS_BIN_EQUAL)
        return 0;
    return TUI_IS_DRIFT | (i == o->pair.first ? TUI_IS_ORIGIN : 0) |
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
        [ULP] = {o->pair.dtype[0] == DS_I32 ? "distance" : "ULP", TUI_RIGHT, 0, 5, 0},
        [NOTE] = {"note", TUI_LEFT, 0, 0, 0},
    };
    o->n_columns = 0;
    for (int i = 0; i < ALL; i++)
        if (o->heads || (i != HEAD && i != CHANNEL))
            o->columns[o->n_columns++] = all[i];
    *out = (struct tui_source){.ctx = o,
                               .columns = o->columns,
                               .n_columns = o->n_columns,
                               .n_rows = ds_values_elements(&o->pair),
                               .cell = cell,
                               .is = is,
                               .name = "elements"};
}
