/* view_environment_panel.c: the whole text of both sides of a row, and which parts of them differ. */
#include "tui/view_environment.h"

#include <stdlib.h>
#include <string.h>

/* ---- what differs between two texts ---------------------------------------------------------- */

static int parts_words(char c)
{
    return c == ' ' || c == ',' || c == ';' || c == '\n' || c == '\t';
}

/* The word at or after *at; 0: no more. */
static int next_word(const char *text, size_t *at, struct env_span *out)
{
    while (text[*at] && parts_words(text[*at]))
        ++*at;
    out->begin = *at;
    while (text[*at] && !parts_words(text[*at]))
        ++*at;
    out->end = *at;
    return out->end > out->begin;
}

struct word {
    const char *text;
    size_t n;
};

static int compare_words(const void *pa, const void *pb)
{
    const struct word *a = pa, *b = pb;
    size_t n = a->n < b->n ? a->n : b->n;
    int order = memcmp(a->text, b->text, n);
    return order ? order : a->n < b->n ? -1 : a->n > b->n;
}

enum { MOST_WORDS = 1024 };

static size_t sorted_words(const char *text, struct word out[MOST_WORDS])
{
    struct env_span s;
    size_t at = 0, n = 0;
    while (n < MOST_WORDS && next_word(text, &at, &s))
        out[n++] = (struct word){text + s.begin, s.end - s.begin};
    qsort(out, n, sizeof *out, compare_words);
    return n;
}

static int several_words(const char *text)
{
    struct env_span s;
    size_t at = 0;
    return next_word(text, &at, &s) && next_word(text, &at, &s);
}

/* One span more; where there is no room, the last one goes on to here. */
static size_t add_span(struct env_span *out, size_t n, size_t most, struct env_span s)
{
    if (n < most)
        out[n++] = s;
    else if (most)
        out[most - 1].end = s.end;
    return n;
}

/* Lists, like a processor's flags: words that the other has nowhere. */
static size_t other_words(const char *a, const char *b, struct env_span *out, size_t most)
{
    static _Thread_local struct word words[MOST_WORDS];
    size_t known = sorted_words(b, words), n = 0, at = 0;
    struct env_span s;
    while (next_word(a, &at, &s)) {
        struct word w = {a + s.begin, s.end - s.begin};
        if (!bsearch(&w, words, known, sizeof w, compare_words))
            n = add_span(out, n, most, s);
    }
    return n;
}

static int inside_character(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

size_t env_difference(const char *a, const char *b, struct env_span *out, size_t most)
{
    size_t na = strlen(a), nb = strlen(b), begin = 0, end = 0;
    if (!most || strcmp(a, b) == 0)
        return 0;
    if (several_words(a) && several_words(b)) {
        size_t n = other_words(a, b, out, most);
        if (n)
            return n;
    }
    while (a[begin] && a[begin] == b[begin])
        begin++;
    while (begin > 0 && inside_character(a[begin]))
        begin--;
    while (end < na - begin && end < nb - begin && a[na - 1 - end] == b[nb - 1 - end])
        end++;
    while (end > 0 && inside_character(a[na - end]))
        end--;
    out[0] = (struct env_span){begin, na - end};
    return na - end > begin;
}

/* ---- the panel ------------------------------------------------------------------------------- */

/* Bytes of an escaped text that fill at most w cells, broken behind a space where one is near. */
static size_t line_bytes(const char *text, int w, int ascii)
{
    size_t n = 0, space = 0;
    int used = 0;
    while (text[n]) {
        int len = ds_utf8_len(text + n, strlen(text + n));
        char one[8] = "";
        len = len > 0 ? len : 1;
        memcpy(one, text + n, (size_t)len);
        int cells = tui_text_width(one, ascii);
        if (used + cells > w)
            return space > n / 2 ? space : n ? n : (size_t)len;
        used += cells;
        n += (size_t)len;
        if (one[0] == ' ')
            space = n;
    }
    return n;
}

/* text[from .. to - 1] in the role of each part. */
static void put_line(struct tui_canvas *canvas, int y, struct tui_rect r, const char *text,
                     size_t from, size_t to, const struct env_span *span, size_t n)
{
    char part[1024];
    int x = r.x;
    while (from < to) {
        size_t end = to;
        int role = TUI_PLAIN;
        for (size_t i = 0; i < n; i++) {
            if (span[i].begin > from && span[i].begin < end)
                end = span[i].begin;
            if (span[i].begin <= from && from < span[i].end) {
                role = TUI_DIFFERS;
                end = span[i].end < end ? span[i].end : end;
            }
        }
        size_t len = end - from < sizeof part - 1 ? end - from : sizeof part - 1;
        memcpy(part, text + from, len);
        part[len] = '\0';
        x += tui_put(canvas, y, x, r.x + r.w - x, role, 0, part);
        from = end;
    }
}

/* Returns the lines used. The text is cut, visibly, where the rectangle ends. */
static int put_wrapped(struct tui_canvas *canvas, struct tui_rect r, const char *text,
                       const struct env_span *span, size_t n)
{
    size_t at = 0, len = strlen(text);
    int y = 0;
    for (; at < len && y < r.h; y++) {
        size_t bytes = line_bytes(text + at, r.w, canvas->ascii);
        put_line(canvas, r.y + y, r, text, at, at + bytes, span, n);
        at += bytes;
    }
    if (at < len && y)
        tui_put_glyph(canvas, r.y + y - 1, r.x + r.w - 1, TUI_G_MORE, TUI_DIM, 0);
    return y;
}

static char *escaped(const char *text, struct ds_buf *b)
{
    ds_buf_puts(b, "");
    ds_buf_escape(b, text, (size_t)-1);
    return b->data && !b->failed ? b->data : NULL;
}

static void put_sides(struct tui_canvas *canvas, struct tui_rect r, const struct ds_env_row *row,
                      const struct ds_env_texts *x, int two)
{
    struct ds_buf b[2] = {{0}, {0}};
    const char *text[2] = {NULL, NULL};
    for (int side = 0; side < 1 + (two && !row->equal); side++)
        text[side] = x->text[side] ? escaped(x->text[side], &b[side]) : NULL;
    for (int side = 0; side < 2 && r.h > 0; side++) {
        struct env_span span[16];
        size_t n = text[0] && text[1] && row->list != DS_ENV_RECORD
                       ? env_difference(text[side], text[!side], span, 16)
                       : 0;
        /* The second side must be seen, however long the first is. */
        struct tui_rect part = {r.y, r.x, r.h, r.w};
        if (two && !row->equal) {
            tui_put(canvas, r.y, r.x, 2, TUI_HEAD, TUI_BOLD, side ? "B" : "A");
            part.x += 2;
            part.w -= 2;
            part.h = side ? r.h : (r.h + 1) / 2;
        }
        int used = 1;
        if (text[side] && part.w > 0)
            used = put_wrapped(canvas, part, text[side], span, n);
        else if (two && !row->equal && part.w > 0)
            tui_put(canvas, part.y, part.x, part.w, TUI_MISSING, 0, "-");
        r.y += used;
        r.h -= used;
        if (!two || row->equal)
            break;
    }
    ds_buf_free(&b[0]);
    ds_buf_free(&b[1]);
}

void env_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
               struct tui_rect r)
{
    struct env_own *o = v->own;
    const struct tui_whole *w = o ? env_whole(o) : NULL;
    size_t row = tui_table_row(&v->table);
    (void)c;
    if (!w || row >= o->env.n)
        return;
    const struct ds_env_of of = env_of(w);
    ds_env_row_texts(&o->env, &of, &o->env.rows[row], &o->texts);
    tui_put(canvas, r.y, r.x, r.w, TUI_HEAD, TUI_BOLD, o->texts.name);
    r.y++;
    r.h--;
    put_sides(canvas, r, &o->env.rows[row], &o->texts,
              o->env.two && o->env.rows[row].list != DS_ENV_FINDINGS);
}
