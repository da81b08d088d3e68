/* view_layers_mark.c: one site of the map: its mark, its size as a digit. Pure. */
#include "tui/view_layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

char layers_mark(const struct tui_pair *pair, size_t site)
{
    const struct tui_site_sum *s = &pair->sites[site];
    size_t at = site * pair->n_rows;
    char mark = ds_report_rows_mark(pair->labels + at, pair->healed ? pair->healed + at : NULL,
                                    pair->n_rows, 0);
    if (mark == '.' && s->drift[DS_LABEL_HEALED])
        return ',';
    const char *plain = "#o-x", *jump = "@O^X", *is = s->jump ? strchr(plain, mark) : NULL;
    return is ? jump[is - plain] : mark;
}

int tui_mark_role(char mark)
{
    switch (mark) {
    case '.':
        return TUI_SAME;
    case ',':
        return TUI_HEALED;
    case '#':
    case 'o':
        return TUI_ORIGIN;
    case '@':
    case 'O':
    case '^':
    case 'X':
        return TUI_JUMP;
    case '-':
        return TUI_INHERITED;
    case '~':
        return TUI_UNSTABLE;
    case '!':
        return TUI_NONFINITE;
    case 'x':
        return TUI_UNKNOWN;
    default:
        return TUI_MISSING;
    }
}

const char *tui_mark_words(char mark)
{
    static const struct {
        char mark;
        const char *words;
    } all[] = {
        {'.', "bit for bit equal"},
        {',', "healed: an input differs, the output does not"},
        {'#', "origin: equal inputs, other bits"},
        {'o', "inherited, and an origin of its own on equal inputs"},
        {'-', "inherited"},
        {'@', "origin, and a jump in size"},
        {'O', "inherited, an origin of its own, and a jump in size"},
        {'^', "inherited, and a jump in size"},
        {'x', "differs; its inputs are not known"},
        {'X', "differs, with a jump in size; its inputs are not known"},
        {'~', "unstable: repeats disagree"},
        {'!', "NaN or Inf"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].mark == mark)
            return all[i].words;
    return "not compared";
}

int layers_is_drift(char mark)
{
    return mark && strchr("~@#OoX^x-", mark) != NULL;
}

double layers_size(const struct tui_site_sum *s, int metric)
{
    if (!s->sized)
        return -1;
    switch (metric) {
    case TUI_METRIC_ULP:
        return (double)s->max_ulp;
    case TUI_METRIC_ABS:
        return s->max_abs;
    case TUI_METRIC_REL:
        return s->relative_rms;
    default:
        return (double)s->elements;
    }
}

static int counts(int metric)
{
    return metric == TUI_METRIC_BITS || metric == TUI_METRIC_ULP;
}

char layers_digit(double size, int metric)
{
    static const double steps[2][9] = {{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1},
                                       {1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}};
    int digit = 0;
    if (size < 0)
        return ' ';
    if (size != size)
        return '!';
    if (!(size > 0))
        return '=';
    while (digit < 9 && size >= steps[counts(metric)][digit])
        digit++;
    return (char)('0' + digit);
}

void layers_digit_words(char digit, int metric, char *out, size_t n)
{
    int d = digit - '0';
    const char *unit = metric == TUI_METRIC_BITS  ? " elements"
                       : metric == TUI_METRIC_ULP ? " ULP"
                       : metric == TUI_METRIC_ABS ? " abs"
                                                  : " relative";
    if (digit == '=')
        snprintf(out, n, "= is 0: bits differ, values do not");
    else if (d < 0 || d > 9)
        snprintf(out, n, "size not known");
    else if (d == 9)
        snprintf(out, n, "9 is %s and more%s", counts(metric) ? "1e9" : "1", unit);
    else if (d == 0)
        snprintf(out, n, "0 is %s%s", counts(metric) ? "1-9" : "below 1e-8", unit);
    else if (counts(metric))
        snprintf(out, n, "%d is 1e%d-1e%d%s", d, d, d + 1, unit);
    else
        snprintf(out, n, "%d is 1e%d-1e%d%s", d, d - 9, d - 8, unit);
}

void layers_number(double size, int metric, char out[16])
{
    char text[32];
    out[0] = '\0';
    if (size < 0)
        return;
    if (size != size || isinf(size)) {
        snprintf(out, 16, "%s", isinf(size) ? "Inf" : "NaN");
        return;
    }
    if (!(size > 0) || (counts(metric) && size < 1e6)) {
        snprintf(out, 16, "%.0f", size);
        return;
    }
    snprintf(text, sizeof text, "%.1e", size);
    /* 1.2e-07 as 1.2e-7, 1.2e+08 as 1.2e8 */
    char *e = strchr(text, 'e') + 1, *digits = e + 1 + strspn(e + 1, "0");
    snprintf(out, 16, "%.*s%s%s", (int)(e - text), text, *e == '-' ? "-" : "",
             *digits ? digits : "0");
}
