/* number.c: see number.h. */
#include "tui/number.h"

#include "tui/view.h"

#include <math.h>
#include <string.h>

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

void tui_value_put(struct tui_value *cell, const char *text)
{
    size_t n = strnlen(text, sizeof cell->text - 1);
    memcpy(cell->text, text, n);
    cell->text[n] = '\0';
}

size_t tui_whole_text(int64_t number, char out[TUI_WHOLE_TEXT])
{
    char digits[TUI_WHOLE_TEXT];
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    size_t n = 0, at = 0;
    do
        digits[n++] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        out[at++] = '-';
    while (n)
        out[at++] = digits[--n];
    out[at] = '\0';
    return at;
}

void tui_digest_text(uint64_t digest, char out[TUI_DIGEST_TEXT])
{
    for (size_t i = 0; i < 16; i++)
        out[i] = "0123456789abcdef"[digest >> (60 - 4 * i) & 15];
    out[16] = '\0';
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
