/* view_environment_rows.c: cells of Environment. What its lines are is report/environment.h's. */
#include "tui/view_environment.h"

#include <stdio.h>
#include <string.h>

/* ---- cells ----------------------------------------------------------------------------------- */

/* A text, or its part from byte `from` on: what is left out at either end is seen to be. */
static void put_from(struct tui_value *out, const char *text, size_t from, int ascii)
{
    size_t n = strlen(text + from), most = sizeof out->text - 8, at = 0;
    if (from) {
        strcpy(out->text, tui_glyph(TUI_G_LESS, ascii));
        at = strlen(out->text);
    }
    if (n > most) {
        n = most;
        while (n > 0 && ((unsigned char)text[from + n] & 0xc0) == 0x80)
            n--;
    }
    memcpy(out->text + at, text + from, n);
    at += n;
    out->text[at] = '\0';
    if (text[from + n])
        strcpy(out->text + at, "...");
    if (from || text[from + n])
        out->full = text;
}

static void put(struct tui_value *out, const char *text)
{
    put_from(out, text, 0, 0);
}

/* What differs is in sight and marked: a text that begins alike is shown from near there on. */
static void put_difference(struct tui_value *out, const char *mine, const char *other, int cells,
                           int ascii)
{
    struct env_span span[8];
    size_t n = env_difference(mine, other, span, 8), from = 0;
    if (n && cells > 8 && span[0].end > (size_t)cells && span[0].begin > (size_t)cells / 3)
        from = span[0].begin - (size_t)cells / 3;
    while (from > 0 && ((unsigned char)mine[from] & 0xc0) == 0x80)
        from--;
    put_from(out, mine, from, ascii);
    size_t mark = from ? strlen(tui_glyph(TUI_G_LESS, ascii)) : 0;
    out->span_role = TUI_DIFFERS;
    for (size_t i = 0; i < n; i++) {
        size_t begin = span[i].begin - from + mark, end = span[i].end - from + mark;
        if (begin >= sizeof out->text)
            break;
        out->span[i].begin = (uint16_t)begin;
        out->span[i].end = (uint16_t)(end < sizeof out->text ? end : sizeof out->text - 1);
        out->n_spans = (int)i + 1;
    }
}

static void put_side(const struct env_own *o, struct tui_value *out, const struct ds_env_row *r,
                     int side)
{
    const char *mine = o->texts.text[side], *other = o->texts.text[!side];
    if (r->equal && side) {
        put(out, "=");
        out->full = mine;
        out->role = TUI_DIM;
    } else if (!mine) {
        out->null = 1;
        put(out, "-");
        out->role = TUI_MISSING;
    } else if (!r->equal && r->list != DS_ENV_RECORD && other) {
        put_difference(out, mine, other, o->column[1].max, o->ascii);
    } else {
        put(out, mine);
    }
}

static void cell(void *ctx, size_t row, size_t column, struct tui_value *out)
{
    struct env_own *o = ctx;
    const struct tui_whole *w = env_whole(o);
    if (!w || row >= o->env.n)
        return;
    const struct ds_env_row *r = &o->env.rows[row];
    if (r->kind == DS_ENV_HEADING) {
        ds_env_heading(&o->env, r, out->text);
        if (o->env.two && !r->equal && r->list != DS_ENV_RECORD && r->list != DS_ENV_FINDINGS)
            out->role = TUI_DIFFERS;
        return;
    }
    const struct ds_env_of of = env_of(w);
    ds_env_row_texts(&o->env, &of, r, &o->texts);
    if (r->list == DS_ENV_FINDINGS) {
        snprintf(out->text, sizeof out->text, "%s: %s", o->texts.name, o->texts.text[0]);
        out->role = TUI_UNSTABLE;
    } else if (column == 0) {
        put(out, o->texts.name);
    } else {
        put_side(o, out, r, (int)column - 1);
    }
}

static int kind(void *ctx, size_t row)
{
    const struct env_own *o = ctx;
    static const int kinds[] = {
        [DS_ENV_ROW] = TUI_ROW, [DS_ENV_HEADING] = TUI_ROW_SECTION, [DS_ENV_LINE] = TUI_ROW_TEXT};
    return row < o->env.n ? kinds[o->env.rows[row].kind] : TUI_ROW;
}

static int is(void *ctx, size_t row, size_t column)
{
    const struct env_own *o = ctx;
    (void)column;
    return row < o->env.n && o->env.two && o->env.rows[row].kind == DS_ENV_ROW &&
                   !o->env.rows[row].equal && o->env.rows[row].list != DS_ENV_RECORD
               ? TUI_IS_DRIFT
               : 0;
}

void env_source(struct env_own *o, struct tui_source *out)
{
    *out = (struct tui_source){.ctx = o,
                               .columns = o->column,
                               .n_columns = o->env.two ? 3 : 2,
                               .n_rows = o->env.n,
                               .cell = cell,
                               .kind = kind,
                               .is = is,
                               .name = "environment"};
}
