/* canvas.h: a grid of character cells in memory, and text put into it. Pure: no curses, no terminal;
 * term.c paints it. Everything that is drawn goes through here, so what a view looks like is tested
 * without a screen, at any size.
 *
 * Text is UTF-8 and untrusted: control characters, ill-formed bytes and combining marks never reach a cell
 * (they are shown as base/buf.h escapes them). A backslash is drawn as it is, so that a text which was escaped
 * before is not escaped twice. A wide character takes two cells; one that would be cut is a
 * space. In ASCII mode every glyph has a plain stand-in, and other characters are shown by their bytes. */
#ifndef DS_TUI_CANVAS_H
#define DS_TUI_CANVAS_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* What a cell means; term.c maps it to a colour, and canvas_glyph's texts and letters carry the same meaning
 * without one. */
enum tui_role {
    TUI_PLAIN = 0,
    TUI_SAME,      /* bit-identical */
    TUI_HEALED,    /* an input differs, the output does not */
    TUI_ORIGIN,    /* drift that begins here */
    TUI_INHERITED, /* drift that came in */
    TUI_JUMP,      /* a size far above that before it */
    TUI_UNSTABLE,  /* repeats disagree */
    TUI_NONFINITE, /* NaN, Inf */
    TUI_UNKNOWN,
    TUI_MISSING, /* not recorded, not comparable */
    TUI_DIFFERS, /* the bits, digits or settings that are not equal */
    TUI_DIM,
    TUI_HEAD,  /* column names, section names */
    TUI_TITLE, /* the title line */
    TUI_KEY,   /* a key's name */
    TUI_MATCH, /* text found by a search */
    TUI_MARK,
    TUI_ERROR,
    TUI_ROLES
};
enum {
    TUI_CURSOR = 1,
    TUI_BOLD = 2
}; /* attributes, or'ed; the cursor's line or cell is reversed */

struct tui_cell {
    uint32_t ch; /* code point; 0: right half of a wide character */
    uint8_t role, attr;
};

struct tui_rect {
    int y, x, h, w;
};

struct tui_canvas {
    int h, w, ascii;        /* ascii: only 0x20..0x7e are drawn */
    struct tui_cell *cells; /* [h][w] */
};
/* 1 <= h, w <= 1000. */
int tui_canvas_new(struct tui_canvas *c, int h, int w, int ascii, struct ds_error *err);
void tui_canvas_free(struct tui_canvas *c);
void tui_canvas_clear(struct tui_canvas *c);

/* Puts text at (y, x), cut at `w` cells and at the canvas; returns the cells used. What was cut off is shown by
 * the last cell: the glyph TUI_G_MORE. Out-of-range places draw nothing. */
int tui_put(struct tui_canvas *c, int y, int x, int w, int role, int attr, const char *text);
int tui_putf(struct tui_canvas *c, int y, int x, int w, int role, int attr, const char *fmt, ...)
    __attribute__((format(printf, 7, 8)));
/* The same, right-aligned in w cells; text that does not fit is cut at its left. */
int tui_put_right(struct tui_canvas *c, int y, int x, int w, int role, int attr, const char *text);
/* Fills a rectangle with one glyph. */
void tui_fill(struct tui_canvas *c, struct tui_rect r, int glyph, int role);
/* Sets attributes of cells that are drawn already (the cursor's line). */
void tui_mark_cells(struct tui_canvas *c, struct tui_rect r, int attr);
/* How many cells a text takes when drawn. */
int tui_text_width(const char *text, int ascii);
/* Bytes of a text that fill at most w cells, broken behind a space where one is near, never inside a character; at
 * least one character. */
size_t tui_text_break(const char *text, int w, int ascii);
/* Cells of a code point: 2, 1, or 0 for what joins others or is not drawn. */
int tui_char_width(uint32_t ch);
/* A code point as UTF-8, and the first one of a well-formed text. */
void tui_encode(uint32_t ch, char out[5]);
uint32_t tui_decode(const char *text);

/* Glyphs with an ASCII stand-in. TUI_G_BAR + 0..8: a bar of so many eighths of a cell's height. TUI_G_SHADE +
 * 0..4: from empty to full. */
enum tui_glyph {
    TUI_G_SPACE = 0,
    TUI_G_HLINE, /* - */
    TUI_G_VLINE, /* | */
    TUI_G_CROSS, /* + */
    TUI_G_MORE,  /* > : text goes on */
    TUI_G_LESS,  /* < : text begins before */
    TUI_G_UP,
    TUI_G_DOWN, /* more rows above, below */
    TUI_G_BULLET,
    TUI_G_FOLD, /* + : folded lines */
    TUI_G_BAR,
    TUI_G_SHADE = TUI_G_BAR + 9,
    TUI_GLYPHS = TUI_G_SHADE + 5
};
void tui_put_glyph(struct tui_canvas *c, int y, int x, int glyph, int role, int attr);
/* The glyph as UTF-8, for a text that holds one among others (a sparkline). */
const char *tui_glyph(int glyph, int ascii);

/* The canvas as text, a line a row, spaces at the ends of lines left out. */
struct ds_buf;
void tui_canvas_text(const struct tui_canvas *c, struct ds_buf *out);

#endif
