/* canvas.c: see canvas.h. */
#include "tui/canvas.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *utf8;
    char ascii;
} glyphs[TUI_GLYPHS] = {
    [TUI_G_SPACE] = {" ", ' '},     [TUI_G_HLINE] = {"─", '-'},     [TUI_G_VLINE] = {"│", '|'},
    [TUI_G_CROSS] = {"┼", '+'},     [TUI_G_MORE] = {"›", '>'},      [TUI_G_LESS] = {"‹", '<'},
    [TUI_G_UP] = {"↑", '^'},        [TUI_G_DOWN] = {"↓", 'v'},      [TUI_G_BULLET] = {"•", '*'},
    [TUI_G_FOLD] = {"▸", '+'},      [TUI_G_BAR] = {" ", ' '},       [TUI_G_BAR + 1] = {"▁", '.'},
    [TUI_G_BAR + 2] = {"▂", ':'},   [TUI_G_BAR + 3] = {"▃", '-'},   [TUI_G_BAR + 4] = {"▄", '='},
    [TUI_G_BAR + 5] = {"▅", '+'},   [TUI_G_BAR + 6] = {"▆", '*'},   [TUI_G_BAR + 7] = {"▇", '%'},
    [TUI_G_BAR + 8] = {"█", '#'},   [TUI_G_SHADE] = {" ", ' '},     [TUI_G_SHADE + 1] = {"░", '.'},
    [TUI_G_SHADE + 2] = {"▒", ':'}, [TUI_G_SHADE + 3] = {"▓", '+'}, [TUI_G_SHADE + 4] = {"█", '#'},
};

int tui_canvas_new(struct tui_canvas *c, int h, int w, int ascii, struct ds_error *err)
{
    memset(c, 0, sizeof *c);
    if (h < 1 || w < 1 || h > 1000 || w > 1000)
        return ds_fail(err, "a screen of %d lines and %d columns cannot be drawn", h, w);
    c->cells = ds_calloc((size_t)h * (size_t)w, sizeof *c->cells, "screen", err);
    if (!c->cells)
        return -1;
    c->h = h;
    c->w = w;
    c->ascii = ascii;
    tui_canvas_clear(c);
    return 0;
}

void tui_canvas_free(struct tui_canvas *c)
{
    free(c->cells);
    memset(c, 0, sizeof *c);
}

void tui_canvas_clear(struct tui_canvas *c)
{
    for (size_t i = 0; i < (size_t)c->h * (size_t)c->w; i++)
        c->cells[i] = (struct tui_cell){' ', TUI_PLAIN, 0};
}

static struct tui_cell *cell_at(struct tui_canvas *c, int y, int x)
{
    return c->cells + (size_t)y * (size_t)c->w + (size_t)x;
}

/* Whatever wide character had a half here is a space from now on. */
static void unjoin(struct tui_canvas *c, int y, int x)
{
    struct tui_cell *cell = cell_at(c, y, x);
    if (cell->ch == 0 && x > 0)
        cell[-1].ch = ' ';
    if (x + 1 < c->w && cell[1].ch == 0)
        cell[1].ch = ' ';
}

/* The caller has seen to it that all of it is on the canvas. */
static void set(struct tui_canvas *c, int y, int x, uint32_t ch, int width, int role, int attr)
{
    unjoin(c, y, x);
    *cell_at(c, y, x) = (struct tui_cell){ch, (uint8_t)role, (uint8_t)attr};
    if (width == 2) {
        unjoin(c, y, x + 1);
        *cell_at(c, y, x + 1) = (struct tui_cell){0, (uint8_t)role, (uint8_t)attr};
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

static uint32_t decode(const char *p, int len)
{
    const unsigned char *s = (const unsigned char *)p;
    if (len == 1)
        return s[0];
    uint32_t ch = s[0] & (0xffu >> (len + 1));
    for (int i = 1; i < len; i++)
        ch = ch << 6 | (s[i] & 0x3fu);
    return ch;
}

uint32_t tui_decode(const char *text)
{
    int len = ds_utf8_len(text, strlen(text));
    return len ? decode(text, len) : 0;
}

static char stand_in(uint32_t ch)
{
    for (int i = 0; i < TUI_GLYPHS; i++)
        if (glyphs[i].utf8[0] & 0x80 && decode(glyphs[i].utf8, 3) == ch)
            return glyphs[i].ascii;
    return 0;
}

/* What the next bytes of a text look like: characters of one width. */
struct piece {
    uint32_t ch[16];
    int n, width;
};

static void escape(struct piece *p, const char *text, int len)
{
    p->width = 1;
    for (int i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        char hex[8];
        int n = c == '\n'   ? snprintf(hex, sizeof hex, "\\n")
                : c == '\t' ? snprintf(hex, sizeof hex, "\\t")
                : c == '\r' ? snprintf(hex, sizeof hex, "\\r")
                            : snprintf(hex, sizeof hex, "\\x%02x", c);
        for (int j = 0; j < n; j++)
            p->ch[p->n++] = (uint32_t)hex[j];
    }
}

/* Returns how many bytes it took. */
static size_t take(const char *text, size_t n, int ascii, struct piece *p)
{
    int len = ds_utf8_len(text, n);
    uint32_t ch = len ? decode(text, len) : 0;
    p->n = 0;
    p->width = len ? tui_char_width(ch) : 0;
    if (p->width && ascii && ch > 0x7e) {
        ch = (uint32_t)stand_in(ch);
        p->width = ch ? 1 : 0;
    }
    if (p->width)
        p->ch[p->n++] = ch;
    else
        escape(p, text, len ? len : 1);
    return len ? (size_t)len : 1;
}

/* Cells of a text; more than `most` are not counted on. */
static int width_up_to(const char *text, int ascii, int most)
{
    size_t n = strlen(text);
    int width = 0;
    struct piece p;
    for (size_t i = 0; i < n && width <= most;) {
        i += take(text + i, n - i, ascii, &p);
        width += p.n * p.width;
    }
    return width;
}

int tui_text_width(const char *text, int ascii)
{
    return width_up_to(text, ascii, 1 << 20);
}

size_t tui_text_break(const char *text, int w, int ascii)
{
    size_t n = 0, space = 0, len = strlen(text);
    char part[5];
    for (int used = 0; n < len;) {
        int bytes = ds_utf8_len(text + n, len - n);
        bytes = bytes ? bytes : 1;
        snprintf(part, sizeof part, "%.*s", bytes, text + n);
        used += tui_text_width(part, ascii);
        if (used > w)
            return space > n / 2 ? space : n ? n : (size_t)bytes;
        n += (size_t)bytes;
        if (text[n - 1] == ' ')
            space = n;
    }
    return n;
}

/* Draws from cell `skip` of the text on, `limit` cells at most; returns how many. */
static int draw(struct tui_canvas *c, int y, int x, int skip, int limit, int role, int attr,
                const char *text)
{
    size_t n = strlen(text);
    int used = 0;
    struct piece p;
    for (size_t i = 0; i < n && used < limit;) {
        i += take(text + i, n - i, c->ascii, &p);
        for (int j = 0; j < p.n && used < limit; j++, skip -= p.width) {
            if (skip > 0) {
                if (skip < p.width)
                    set(c, y, x + used++, ' ', 1, role, attr);
                continue;
            }
            if (used + p.width > limit) /* half a character */
                set(c, y, x + used++, ' ', 1, role, attr);
            else {
                set(c, y, x + used, p.ch[j], p.width, role, attr);
                used += p.width;
            }
        }
    }
    return used;
}

/* Cuts the cells [*x, *x + *w) of a line to the canvas; 0 if nothing is left. */
static int clip(const struct tui_canvas *c, int y, int x, int *w)
{
    if (y < 0 || y >= c->h || x < 0 || x >= c->w || *w <= 0)
        return 0;
    if (*w > c->w - x)
        *w = c->w - x;
    return 1;
}

int tui_put(struct tui_canvas *c, int y, int x, int w, int role, int attr, const char *text)
{
    if (!clip(c, y, x, &w))
        return 0;
    int cut = width_up_to(text, c->ascii, w) > w;
    int used = draw(c, y, x, 0, cut ? w - 1 : w, role, attr, text);
    if (cut)
        tui_put_glyph(c, y, x + used++, TUI_G_MORE, role, attr);
    return used;
}

int tui_putf(struct tui_canvas *c, int y, int x, int w, int role, int attr, const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return n < 0 ? 0 : tui_put(c, y, x, w, role, attr, text);
}

int tui_put_right(struct tui_canvas *c, int y, int x, int w, int role, int attr, const char *text)
{
    if (!clip(c, y, x, &w))
        return 0;
    int width = tui_text_width(text, c->ascii);
    if (width <= w)
        return draw(c, y, x + w - width, 0, width, role, attr, text);
    tui_put_glyph(c, y, x, TUI_G_LESS, role, attr);
    draw(c, y, x + 1, width - (w - 1), w - 1, role, attr, text);
    return w;
}

/* ---- glyphs, rectangles ---------------------------------------------------------------------- */

const char *tui_glyph(int glyph, int ascii)
{
    static const char plain[TUI_GLYPHS][2] = {" ", "-", "|", "+", ">", "<", "^", "v",
                                              "*", "+", " ", ".", ":", "-", "=", "+",
                                              "*", "%", "#", " ", ".", ":", "+", "#"};
    if (glyph < 0 || glyph >= TUI_GLYPHS)
        glyph = TUI_G_SPACE;
    return ascii ? plain[glyph] : glyphs[glyph].utf8;
}

void tui_put_glyph(struct tui_canvas *c, int y, int x, int glyph, int role, int attr)
{
    const char *text = tui_glyph(glyph, c->ascii);
    int w = 1;
    if (clip(c, y, x, &w))
        set(c, y, x, decode(text, (int)strlen(text)), 1, role, attr);
}

void tui_fill(struct tui_canvas *c, struct tui_rect r, int glyph, int role)
{
    for (int y = 0; y < r.h; y++)
        for (int x = 0; x < r.w; x++)
            tui_put_glyph(c, r.y + y, r.x + x, glyph, role, 0);
}

void tui_mark_cells(struct tui_canvas *c, struct tui_rect r, int attr)
{
    for (int y = r.y < 0 ? 0 : r.y; y < r.y + r.h && y < c->h; y++)
        for (int x = r.x < 0 ? 0 : r.x; x < r.x + r.w && x < c->w; x++)
            cell_at(c, y, x)->attr |= (uint8_t)attr;
}

/* ---- as text --------------------------------------------------------------------------------- */

void tui_encode(uint32_t ch, char out[5])
{
    int n = ch < 0x80 ? 1 : ch < 0x800 ? 2 : ch < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[n] = '\0';
    for (int i = n - 1; i > 0; i--, ch >>= 6)
        out[i] = (char)(0x80u | (ch & 0x3fu));
    out[0] = (char)(n == 1 ? ch : (lead[n] | ch));
}

void tui_canvas_text(const struct tui_canvas *c, struct ds_buf *out)
{
    for (int y = 0; y < c->h; y++) {
        const struct tui_cell *line = c->cells + (size_t)y * (size_t)c->w;
        int end = c->w;
        while (end > 0 && line[end - 1].ch == ' ')
            end--;
        for (int x = 0; x < end; x++) {
            char text[5];
            if (line[x].ch == 0)
                continue;
            tui_encode(line[x].ch, text);
            ds_buf_puts(out, text);
        }
        ds_buf_puts(out, "\n");
    }
}
