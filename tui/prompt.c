/* prompt.c: see prompt.h. */
#include "tui/prompt.h"

#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int kind_index(int kind)
{
    return kind == TUI_PROMPT_SEARCH ? 1 : kind == TUI_PROMPT_FILTER ? 2 : 0;
}

static void take_text(struct tui_prompt *p, const char *text)
{
    snprintf(p->text, sizeof p->text, "%s", text);
    p->at = strlen(p->text);
}

void tui_prompt_open(struct tui_prompt *p, int kind, const char *text)
{
    p->kind = kind;
    p->recalled = 0;
    p->offers[0] = '\0';
    take_text(p, text);
}

void tui_prompt_close(struct tui_prompt *p, int keep)
{
    int k = kind_index(p->kind);
    p->kind = TUI_PROMPT_OFF;
    p->offers[0] = '\0';
    if (!keep || !p->text[0])
        return;
    char **line = p->history[k].line;
    int n = p->history[k].n;
    if (n && strcmp(line[n - 1], p->text) == 0)
        return;
    char *copy = strdup(p->text);
    if (!copy)
        return;
    if (n == TUI_PROMPT_HISTORY) {
        free(line[0]);
        memmove(line, line + 1, (size_t)--n * sizeof *line);
    }
    line[n] = copy;
    p->history[k].n = n + 1;
}

void tui_prompt_free(struct tui_prompt *p)
{
    for (int k = 0; k < TUI_PROMPT_KINDS; k++)
        for (int i = 0; i < p->history[k].n; i++)
            free(p->history[k].line[i]);
    memset(p, 0, sizeof *p);
}

/* ---- editing --------------------------------------------------------------------------------- */

static size_t before(const struct tui_prompt *p, size_t at)
{
    size_t i = at ? at - 1 : 0;
    while (i > 0 && ((unsigned char)p->text[i] & 0xc0) == 0x80)
        i--;
    return i;
}

static size_t after(const struct tui_prompt *p, size_t at)
{
    int len = ds_utf8_len(p->text + at, strlen(p->text + at));
    return at + (size_t)len;
}

static int cut(struct tui_prompt *p, size_t begin, size_t end)
{
    if (begin == end)
        return TUI_TYPING;
    memmove(p->text + begin, p->text + end, strlen(p->text + end) + 1);
    p->at = begin;
    return TUI_TYPED;
}

static int insert(struct tui_prompt *p, const char *text, size_t n)
{
    size_t len = strlen(p->text);
    if (len + n + 1 > sizeof p->text)
        return TUI_TYPING;
    memmove(p->text + p->at + n, p->text + p->at, len - p->at + 1);
    memcpy(p->text + p->at, text, n);
    p->at += n;
    return TUI_TYPED;
}

static size_t word_before(const struct tui_prompt *p)
{
    size_t at = p->at;
    while (at > 0 && p->text[at - 1] == ' ')
        at--;
    while (at > 0 && p->text[at - 1] != ' ')
        at--;
    return at;
}

static int recall(struct tui_prompt *p, int step)
{
    int k = kind_index(p->kind), n = p->history[k].n, to = p->recalled + step;
    if (to < 0 || to > n)
        return TUI_TYPING;
    if (p->recalled == 0)
        memcpy(p->kept, p->text, sizeof p->kept);
    p->recalled = to;
    take_text(p, to ? p->history[k].line[n - to] : p->kept);
    return TUI_TYPED;
}

static int move_key(struct tui_prompt *p, const char *key)
{
    size_t at = p->at;
    if (strcmp(key, "Left") == 0 || strcmp(key, "^B") == 0)
        p->at = before(p, at);
    else if (strcmp(key, "Right") == 0 || strcmp(key, "^F") == 0)
        p->at = after(p, at);
    else if (strcmp(key, "Home") == 0 || strcmp(key, "^A") == 0)
        p->at = 0;
    else if (strcmp(key, "End") == 0 || strcmp(key, "^E") == 0)
        p->at = strlen(p->text);
    else
        return 0;
    return 1;
}

int tui_prompt_key(struct tui_prompt *p, const char *key)
{
    size_t end = strlen(p->text);
    if (strcmp(key, "Tab") == 0)
        return TUI_COMPLETE;
    p->offers[0] = '\0';
    if (move_key(p, key))
        return TUI_TYPING;
    if (strcmp(key, "Enter") == 0)
        return TUI_DONE;
    if (strcmp(key, "Esc") == 0 || strcmp(key, "^C") == 0 || strcmp(key, "^G") == 0)
        return TUI_GIVEN_UP;
    if (strcmp(key, "Backspace") == 0)
        return end == 0 ? TUI_GIVEN_UP : cut(p, before(p, p->at), p->at);
    if (strcmp(key, "Del") == 0 || strcmp(key, "^D") == 0)
        return p->at < end ? cut(p, p->at, after(p, p->at)) : TUI_TYPING;
    if (strcmp(key, "^U") == 0)
        return cut(p, 0, p->at);
    if (strcmp(key, "^K") == 0)
        return p->at < end ? (p->text[p->at] = '\0', TUI_TYPED) : TUI_TYPING;
    if (strcmp(key, "^W") == 0)
        return cut(p, word_before(p), p->at);
    if (strcmp(key, "Up") == 0 || strcmp(key, "^P") == 0)
        return recall(p, 1);
    if (strcmp(key, "Down") == 0 || strcmp(key, "^N") == 0)
        return recall(p, -1);
    if (strcmp(key, "Space") == 0)
        return insert(p, " ", 1);
    int len = ds_utf8_len(key, strlen(key));
    if (len == 0 || key[len] != '\0' || (unsigned char)key[0] < 0x20)
        return TUI_TYPING; /* a key that is no character */
    return insert(p, key, (size_t)len);
}

/* ---- completion ------------------------------------------------------------------------------ */

void tui_prompt_offer(struct tui_prompt *p, size_t word_begin, const char *candidates)
{
    size_t n = 0, common = 0;
    const char *first = candidates;
    p->offers[0] = '\0';
    if (word_begin > p->at)
        return;
    for (const char *c = candidates; *c; n++) {
        size_t len = strcspn(c, "\n"), same = 0;
        while (same < len && same < common && first[same] == c[same])
            same++;
        common = n ? same : len;
        size_t used = strlen(p->offers);
        snprintf(p->offers + used, sizeof p->offers - used, "%s%.*s", n ? "  " : "", (int)len, c);
        c += len + (c[len] == '\n');
    }
    if (n <= 1)
        p->offers[0] = '\0';
    if (n == 0)
        snprintf(p->offers, sizeof p->offers, "nothing fits");
    if (n == 0 || common < p->at - word_begin)
        return;
    cut(p, word_begin, p->at);
    p->at = word_begin;
    insert(p, first, common);
    if (n == 1 && p->text[p->at] == '\0')
        insert(p, " ", 1);
}

/* ---- drawing --------------------------------------------------------------------------------- */

int tui_prompt_draw(const struct tui_prompt *p, struct tui_canvas *c, struct tui_rect r)
{
    char sign[2] = {(char)p->kind, '\0'}, left[TUI_PROMPT_TEXT];
    snprintf(left, sizeof left, "%.*s", (int)p->at, p->text);
    int room = r.w - 2, cursor = tui_text_width(left, c->ascii);
    tui_put(c, r.y, r.x, 1, TUI_KEY, 0, sign);
    if (cursor <= room) {
        tui_put(c, r.y, r.x + 1, r.w - 1, TUI_PLAIN, 0, p->text);
        return r.x + 1 + cursor;
    }
    tui_put_right(c, r.y, r.x + 1, room, TUI_PLAIN, 0, left);
    return r.x + 1 + room;
}
