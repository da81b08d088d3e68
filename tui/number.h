/* number.h: what a screen adds to values as text (report/value.h): what of a cell differs, and bars. Pure: knows no
 * record and no screen. */
#ifndef DS_TUI_NUMBER_H
#define DS_TUI_NUMBER_H

#include "report/value.h"
#include "tui/table.h"

/* Marks what of the cell's text differs from `other`: digit by digit where places mean the same
 * (hex, and %a with equal exponents), else from the first that differs. Nothing where they are
 * equal. number: enum tui_number of view.h. */
void tui_value_mark(struct tui_value *cell, const char *other, int number);

/* What printf makes of "%s", "%lld" and "%016llx", in a fraction of its time: cells of a table that is searched. */
void tui_value_put(struct tui_value *cell, const char *text);
enum { TUI_WHOLE_TEXT = 24, TUI_DIGEST_TEXT = 17 };
/* Its length. */
size_t tui_whole_text(int64_t number, char out[TUI_WHOLE_TEXT]);
void tui_digest_text(uint64_t digest, char out[TUI_DIGEST_TEXT]);

/* A bar of part / most of `width` cells, at least one for what is not 0, in glyphs of canvas.h. */
void tui_bar_text(double part, double most, int width, int ascii, char *out, size_t n);

#endif
