/* view_tensor_panel.c: beside Tensor's table: the element under the cursor bit by bit, and how far
 * elements are apart. */
#include "tui/view_tensor.h"

#include "base/dtype.h"
#include "tui/number.h"
#include "tui/view_site.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    HIGH = 14 /* lines from which the histogram has a line a bin */,
    LABEL = 12,
    COUNT = 9,
    NAME = 5
};

struct page {
    struct tui_canvas *canvas;
    struct tui_rect r;
    int y;
};

/* ---- one element ----------------------------------------------------------------------------- */

/* As much of it as stands before the bits. */
static const char *short_name(const struct tensor_own *o, int side)
{
    const char *name = tui_side_name(o->whole, &o->at, side);
    return strcmp(name, "reference") == 0 ? "ref" : name;
}

static void draw_digits(struct page *p, const struct tensor_own *o, int side,
                        const char text[2][48])
{
    int y = p->r.y + p->y++, x = p->r.x + NAME;
    tui_put(p->canvas, y, p->r.x, NAME - 1, TUI_DIM, 0, short_name(o, side));
    if (!text[side][0])
        tui_put(p->canvas, y, x, p->r.w - NAME, TUI_MISSING, 0, "not dumped");
    for (size_t k = 0; text[side][k] && (int)k < p->r.w - NAME; k++) {
        char one[2] = {text[side][k], '\0'};
        int differs = o->pair.comparable && text[!side][0] && text[0][k] != text[1][k];
        tui_put(p->canvas, y, x + (int)k, 1, differs ? TUI_DIFFERS : TUI_PLAIN,
                differs ? TUI_BOLD : 0, one);
    }
}

/* The sides' bits under each other; those that differ are marked below, for eyes without colours.
 * */
static void draw_bits(struct page *p, const struct tensor_own *o, size_t i)
{
    char text[2][48] = {"", ""};
    uint32_t bits;
    for (int side = 0; side < 2; side++)
        if (ds_values_bits(&o->pair, side, i, &bits))
            ds_value_binary(o->pair.dtype[side], bits, text[side]);
    for (int side = 0; side < 2 && p->y < p->r.h; side++)
        draw_digits(p, o, side, (const char(*)[48])text);
    if (!o->pair.comparable || p->y >= p->r.h || !text[0][0] || !text[1][0] ||
        strcmp(text[0], text[1]) == 0)
        return;
    for (size_t k = 0; text[0][k] && (int)k < p->r.w - NAME; k++)
        if (text[0][k] != text[1][k])
            tui_put(p->canvas, p->r.y + p->y, p->r.x + NAME + (int)k, 1, TUI_DIFFERS, 0, "^");
    p->y++;
}

/* The number formats that the table does not show. */
static void draw_formats(struct page *p, const struct tensor_own *o, size_t i)
{
    for (int number = 0; number < TUI_NUMBERS && p->y < p->r.h; number++) {
        if (number == o->at.number)
            continue;
        int y = p->r.y + p->y++, x = p->r.x + NAME, wide = (p->r.w - NAME) / 2;
        for (int side = 0; side < 2; side++, x += wide) {
            char text[DS_VALUE_TEXT] = ".";
            uint32_t bits;
            if (ds_values_bits(&o->pair, side, i, &bits))
                ds_value_text(o->pair.dtype[side], bits, number, text);
            tui_put(p->canvas, y, x, wide - 1, TUI_DIM, 0, text);
        }
    }
}

static void draw_element(struct page *p, const struct tensor_own *o, size_t i)
{
    if (p->y >= p->r.h)
        return;
    int y = p->r.y + p->y++;
    if (o->heads)
        tui_putf(p->canvas, y, p->r.x, p->r.w, TUI_HEAD, 0, "element %zu (head %zu, channel %zu)",
                 i, i / o->head_dim, i % o->head_dim);
    else
        tui_putf(p->canvas, y, p->r.x, p->r.w, TUI_HEAD, 0, "element %zu", i);
    draw_bits(p, o, i);
    if (p->r.h >= HIGH)
        draw_formats(p, o, i);
}

/* ---- the histogram --------------------------------------------------------------------------- */

enum { BIN_HIDDEN = 0, BIN_SHOWN, BIN_GAP };

/* Bins up to the largest that has an element are shown, but of more than two empty ones in a row
 * one line tells. */
static int shown(const struct tensor_own *o, int bin, int last)
{
    if (o->pair.bins[bin] || bin == DS_BIN_EQUAL)
        return BIN_SHOWN;
    if (bin < DS_BIN_ONE || bin > last)
        return BIN_HIDDEN;
    int before = 0, after = 0; /* empty ones */
    while (bin - before - 1 >= DS_BIN_ONE && !o->pair.bins[bin - before - 1])
        before++;
    while (bin + after + 1 < last && !o->pair.bins[bin + after + 1])
        after++;
    return before + after < 2 ? BIN_SHOWN : before == 0 ? BIN_GAP : BIN_HIDDEN;
}

static void draw_bin(struct page *p, const struct tensor_own *o, int bin, size_t most, int here)
{
    char name[24], bar[256];
    int wide = p->r.w - LABEL - COUNT - 4, y = p->r.y + p->y++;
    ds_values_bin_name(&o->pair, bin, name, sizeof name);
    tui_put(p->canvas, y, p->r.x, 1, TUI_KEY, 0, here ? ">" : " ");
    tui_put_right(p->canvas, y, p->r.x + 1, LABEL, here ? TUI_HEAD : TUI_PLAIN, 0, name);
    tui_putf(p->canvas, y, p->r.x + LABEL + 2, COUNT, bin ? TUI_PLAIN : TUI_SAME, 0, "%*zu", COUNT,
             o->pair.bins[bin]);
    if (wide <= 0 || bin == DS_BIN_EQUAL)
        return;
    tui_bar_text((double)o->pair.bins[bin], (double)most, wide > 60 ? 60 : wide, o->ascii, bar,
                 sizeof bar);
    tui_put(p->canvas, y, p->r.x + LABEL + COUNT + 3, wide,
            bin == DS_BIN_NAN ? TUI_NONFINITE : TUI_DIFFERS, 0, bar);
}

/* In a few lines, without empty bins: "=: 12  1: 20  [2-3: 15]  512-1023: 1". */
static void draw_short(struct page *p, const struct tensor_own *o, int here)
{
    int x = p->r.x;
    for (int bin = 0; bin < DS_BINS && p->y < p->r.h; bin++) {
        char name[24], text[64];
        if (o->pair.bins[bin] == 0)
            continue;
        ds_values_bin_name(&o->pair, bin, name, sizeof name);
        snprintf(text, sizeof text, bin == here ? "[%s: %zu]" : "%s: %zu", name, o->pair.bins[bin]);
        int wide = tui_text_width(text, o->ascii);
        if (x > p->r.x && x + wide > p->r.x + p->r.w) {
            x = p->r.x;
            if (++p->y >= p->r.h)
                break;
        }
        tui_put(p->canvas, p->r.y + p->y, x, p->r.x + p->r.w - x,
                bin == here ? TUI_HEAD : TUI_PLAIN, 0, text);
        x += wide + 2;
    }
    p->y++;
}

static void draw_histogram(struct page *p, const struct tensor_own *o, size_t i)
{
    int last = DS_BIN_ONE, here = ds_values_bin(&o->pair, i), lines = 0;
    size_t most = 0;
    if (!o->pair.comparable || p->y >= p->r.h)
        return;
    for (int bin = DS_BIN_ZERO; bin < DS_BINS; bin++) {
        most = o->pair.bins[bin] > most ? o->pair.bins[bin] : most;
        if (o->pair.bins[bin] && bin != DS_BIN_NAN)
            last = bin > last ? bin : last;
    }
    for (int bin = 0; bin < DS_BINS; bin++)
        lines += shown(o, bin, last) != BIN_HIDDEN;
    tui_putf(p->canvas, p->r.y + p->y++, p->r.x, p->r.w, TUI_HEAD, 0, "elements by %s",
             o->pair.dtype[0] == DS_I32 ? "distance" : "ULP");
    if (p->r.h - p->y < lines || p->r.h < HIGH) {
        draw_short(p, o, here);
        return;
    }
    for (int bin = 0; bin < DS_BINS; bin++)
        if (shown(o, bin, last) == BIN_GAP)
            tui_put_right(p->canvas, p->r.y + p->y++, p->r.x + 1, LABEL, TUI_DIM, 0, "...");
        else if (shown(o, bin, last) == BIN_SHOWN)
            draw_bin(p, o, bin, most, bin == here);
}

void tensor_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                  struct tui_rect r)
{
    const struct tensor_own *o = v->own;
    struct page p = {canvas, r, 0};
    size_t i = tui_table_row(&v->table);
    (void)c;
    if (!o || !o->values || i >= ds_values_elements(&o->pair))
        return;
    draw_element(&p, o, i);
    draw_histogram(&p, o, i);
}
