/* view_tokens_cells.c: the table of Tokens: a step a line, and beside it the top of both sides'
 * logits. */
#include "tui/view_tokens.h"

#include "report/steps.h"

#include "tui/number.h"
#include "tui/view_site.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEP = 0, REF, IS, MINE, MARGIN, DRIFT, ROOM, BAR, NOTE, TIES, FORCED, LABEL };
enum { BAR_CELLS = 6 };

/* ---- cells ----------------------------------------------------------------------------------- */

static void put(struct tui_value *v, int role, const char *text)
{
    snprintf(v->text, sizeof v->text, "%s", text);
    v->role = role;
}

static void missing(struct tui_value *v)
{
    put(v, TUI_MISSING, ".");
    v->null = 1;
}

static void number(struct tui_value *v, int role, double x)
{
    ds_size_text(x, v->text, sizeof v->text);
    v->role = role;
    v->numeric = 1;
    v->key = x;
}

static void whole(struct tui_value *v, int role, int64_t x)
{
    snprintf(v->text, sizeof v->text, "%" PRId64, x);
    v->role = role;
    v->numeric = 1;
    v->key = (double)x;
}

static void token_cell(const struct ds_step_pair *s, int mine, int first, struct tui_value *v)
{
    const struct ds_step *x = mine ? &s->mine : &s->ref;
    if (x->request == DS_UNKNOWN) {
        missing(v);
        return;
    }
    whole(v, ds_step_other_token(s) ? TUI_DIFFERS : TUI_PLAIN, x->token);
    v->attr = first ? TUI_BOLD : 0;
}

static void drift_cell(const struct ds_step_pair *s, struct tui_value *v)
{
    char text[DS_STEP_TEXT];
    ds_step_drift_text(s, text);
    put(v,
        text[0] == '.'         ? TUI_MISSING
        : text[0] == '='       ? TUI_SAME
        : text[0] == '?'       ? TUI_UNKNOWN
        : isfinite(s->max_abs) ? TUI_PLAIN
                               : TUI_NONFINITE,
        text);
    v->null = text[0] == '.' || text[0] == '?';
    v->numeric = !v->null;
    v->key = text[0] == '=' ? 0 : s->max_abs;
}

static void room_cell(const struct ds_step_pair *s, struct tui_value *v)
{
    char text[DS_STEP_TEXT];
    double room = ds_step_room(s);
    ds_step_room_text(s, text);
    put(v,
        isnan(room)              ? TUI_MISSING
        : ds_step_other_token(s) ? TUI_ORIGIN
        : isinf(room)            ? TUI_SAME
        : room <= 1              ? TUI_JUMP
                                 : TUI_PLAIN,
        text);
    v->null = isnan(room);
    v->numeric = !v->null;
    v->key = v->null ? 0 : room;
}

/* Full at a flip, a cell less for every decade of room. */
static void bar_cell(const struct tokens_own *o, size_t i, struct tui_value *v)
{
    const struct ds_step_pair *s = &o->steps->steps[i];
    double room = ds_step_room(s);
    v->null = 1;
    if (isnan(room) || isinf(room))
        return;
    double part = room <= 1 ? BAR_CELLS : BAR_CELLS - log10(room);
    tui_bar_text(part > 0 ? part : 0, BAR_CELLS, BAR_CELLS, o->ascii, v->text, sizeof v->text);
    v->role = room <= 1 ? TUI_ORIGIN : TUI_PLAIN;
}

static void ties_cell(const struct ds_step_pair *s, struct tui_value *v)
{
    const struct ds_step *x = ds_step_side(s);
    if (ds_step_both(s) && s->mine.ties != s->ref.ties) {
        put(v, TUI_DIFFERS, "");
        snprintf(v->text, sizeof v->text, "%d/%d", s->ref.ties, s->mine.ties);
    } else if (x->ties > 1) {
        whole(v, TUI_JUMP, x->ties);
    } else {
        v->numeric = 1;
        v->key = x->ties;
    }
}

/* What was fed next: "=" the chosen token, another one where it was forced, nothing at the end. */
static void forced_cell(const struct ds_step_pair *s, struct tui_value *v)
{
    const struct ds_step *x = s->mine.request != DS_UNKNOWN ? &s->mine : &s->ref;
    if (x->forced < 0)
        missing(v);
    else if (x->forced == x->token)
        put(v, TUI_DIM, "=");
    else
        whole(v, TUI_DIFFERS, x->forced);
}

static void note_cell(const struct tokens_own *o, const struct ds_step_pair *s, struct tui_value *v)
{
    const char *names[2] = {tui_side_name(o->whole, &o->at, 0), tui_side_name(o->whole, &o->at, 1)};
    char text[DS_STEP_TEXT];
    ds_step_note_text(s, names, text);
    put(v,
        !ds_step_both(s)              ? TUI_PLAIN
        : s->is & DS_STEP_AFTER       ? TUI_MISSING
        : s->is & DS_STEP_FIRST       ? TUI_ORIGIN
        : ds_step_other_token(s)      ? TUI_DIFFERS
        : s->label == DS_LABEL_ABSENT ? TUI_MISSING
                                      : TUI_JUMP,
        text);
}

static void cell(void *ctx, size_t i, size_t column, struct tui_value *v)
{
    const struct tokens_own *o = ctx;
    if (!o->steps || i >= o->n || i >= o->steps->n)
        return;
    const struct ds_step_pair *s = &o->steps->steps[i];
    const struct ds_step *x = ds_step_side(s);
    if (o->alone && (column == IS || column == DRIFT || column == ROOM || column == BAR)) {
        missing(v);
        return;
    }
    switch (column) {
    case STEP:
        if (o->requests)
            snprintf(v->text, sizeof v->text, "%d:%d", x->request, x->step);
        else
            whole(v, TUI_PLAIN, x->step);
        break;
    case REF:
    case MINE:
        token_cell(s, column == MINE, s->is & DS_STEP_FIRST, v);
        break;
    case IS:
        if (ds_step_both(s))
            put(v, ds_step_other_token(s) ? TUI_DIFFERS : TUI_SAME,
                ds_step_other_token(s) ? "!=" : "=");
        break;
    case MARGIN:
        number(v, x->margin > 0 ? TUI_PLAIN : TUI_JUMP, (double)x->margin);
        break;
    case DRIFT:
        drift_cell(s, v);
        break;
    case ROOM:
        room_cell(s, v);
        break;
    case BAR:
        bar_cell(o, i, v);
        break;
    case TIES:
        ties_cell(s, v);
        break;
    case FORCED:
        forced_cell(s, v);
        break;
    case NOTE:
        note_cell(o, s, v);
        break;
    default:
        put(v, o->alone ? TUI_PLAIN : tui_label_role(s->label),
            o->alone ? "recorded" : ds_label_name(s->label));
    }
}

static int is(void *ctx, size_t i, size_t column)
{
    const struct tokens_own *o = ctx;
    (void)column;
    if (!o->steps || i >= o->n || i >= o->steps->n)
        return 0;
    const struct ds_step_pair *s = &o->steps->steps[i];
    return (ds_step_other_token(s) || s->label >= DS_LABEL_ORIGIN ? TUI_IS_DRIFT : 0) |
           (s->is & DS_STEP_FIRST ? TUI_IS_ORIGIN : 0) | (ds_step_room(s) <= 1 ? TUI_IS_JUMP : 0);
}

void tokens_source(struct tokens_own *o, struct tui_source *out)
{
    const struct tui_column columns[TOKENS_COLUMNS] = {
        [STEP] = {"step", TUI_RIGHT, TUI_COLUMN_FIXED, 4, 0},
        [REF] = {tui_side_name(o->whole, &o->at, 0), TUI_RIGHT, 0, 6, 0},
        [IS] = {"is", TUI_LEFT, 0, 2, 2},
        [MINE] = {tui_side_name(o->whole, &o->at, 1), TUI_RIGHT, 0, 6, 0},
        [MARGIN] = {"margin", TUI_RIGHT, 0, 8, 0},
        [DRIFT] = {"drift", TUI_RIGHT, 0, 8, 0},
        [ROOM] = {"to flip", TUI_RIGHT, 0, 7, 0},
        [BAR] = {"bar", TUI_LEFT, 0, BAR_CELLS, BAR_CELLS},
        [TIES] = {"ties", TUI_RIGHT, 0, 0, 0},
        [FORCED] = {"forced", TUI_RIGHT, 0, 0, 0},
        [LABEL] = {"label", TUI_LEFT, 0, 0, 0},
        [NOTE] = {"note", TUI_LEFT, 0, 0, 0},
    };
    memcpy(o->columns, columns, sizeof columns);
    *out = (struct tui_source){.ctx = o,
                               .columns = o->columns,
                               .n_columns = TOKENS_COLUMNS,
                               .n_rows = o->n,
                               .cell = cell,
                               .is = is,
                               .name = "steps"};
}

/* ---- the panel ------------------------------------------------------------------------------- */

static void draw_rank(struct tui_canvas *canvas, int y, struct tui_rect r,
                      const struct ds_step_pair *s, int i)
{
    const struct ds_step *side[2] = {&s->ref, &s->mine};
    int wide = (r.w - 18) / 2, x = r.x + 4;
    int other = ds_step_both(s) && s->ref.ids[i] != s->mine.ids[i];
    float mine;
    tui_putf(canvas, y, r.x, 3, TUI_DIM, 0, "%d%s", i + 1, other ? " !" : "");
    for (int k = 0; k < 2; k++, x += wide + 1) {
        if (side[k]->request == DS_UNKNOWN || side[k]->ids[i] < 0)
            tui_put(canvas, y, x, wide, TUI_MISSING, 0, ".");
        else
            tui_putf(canvas, y, x, wide, other ? TUI_DIFFERS : TUI_PLAIN, 0, "%-6d %.9g",
                     side[k]->ids[i], (double)side[k]->logits[i]);
    }
    if (!ds_step_both(s) || s->ref.ids[i] < 0)
        return;
    if (!ds_step_logit(&s->mine, s->ref.ids[i], &mine))
        tui_put_right(canvas, y, x, r.x + r.w - x, TUI_DIM, 0, "below top 8");
    else if (memcmp(&mine, &s->ref.logits[i], sizeof mine) == 0)
        tui_put_right(canvas, y, x, r.x + r.w - x, TUI_SAME, 0, "=");
    else {
        char text[32];
        ds_size_text((double)mine - (double)s->ref.logits[i], text, sizeof text);
        tui_put_right(canvas, y, x, r.x + r.w - x, TUI_PLAIN, 0, text);
    }
}

static void draw_words(struct tui_canvas *canvas, int y, struct tui_rect r,
                       const struct tokens_own *o, size_t i)
{
    const struct ds_step_pair *s = &o->steps->steps[i];
    char drift[32];
    double room = ds_step_room(s);
    if (ds_step_both(s) && y < r.y + r.h)
        tui_putf(canvas, y++, r.x, r.w, TUI_PLAIN, 0, "margin %.9g against %.9g",
                 (double)s->ref.margin, (double)s->mine.margin);
    if (y >= r.y + r.h || !ds_step_both(s))
        return;
    ds_size_text(s->max_abs, drift, sizeof drift);
    if (s->is & DS_STEP_AFTER)
        tui_putf(canvas, y++, r.x, r.w, TUI_MISSING, 0, "other tokens were fed before it");
    else if (room <= 0 && s->mine.token != s->ref.token)
        tui_putf(canvas, y, r.x, r.w, TUI_ORIGIN, 0, "the token changed");
    else if (isinf(room))
        tui_putf(canvas, y++, r.x, r.w, TUI_SAME, 0, "the logits have equal bits");
    else if (isnan(room))
        tui_putf(canvas, y++, r.x, r.w, TUI_UNKNOWN, 0, "how far the logits drift is not known");
    else
        tui_putf(canvas, y++, r.x, r.w, room <= 1 ? TUI_JUMP : TUI_PLAIN, 0,
                 room <= 1 ? "logits drift by %s: enough to flip it (2 x drift)"
                           : "logits drift by %s; %.3g times that flips it",
                 drift, room);
}

void tokens_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                  struct tui_rect r)
{
    const struct tokens_own *o = v->own;
    size_t i = tui_table_row(&v->table);
    (void)c;
    if (!o || !o->steps || i >= o->n || i >= o->steps->n || r.w < 30)
        return;
    const struct ds_step_pair *s = &o->steps->steps[i];
    int wide = (r.w - 18) / 2, y = r.y;
    tui_put(canvas, y, r.x, 3, TUI_HEAD, 0, "top");
    tui_put(canvas, y, r.x + 4, wide, TUI_HEAD, 0, tui_side_name(o->whole, &o->at, 0));
    tui_put(canvas, y, r.x + 5 + wide, wide, TUI_HEAD, 0, tui_side_name(o->whole, &o->at, 1));
    tui_put_right(canvas, y++, r.x + 6 + 2 * wide, r.w - 6 - 2 * wide, TUI_HEAD, 0, "difference");
    for (int k = 0; k < DS_TOP && y < r.y + r.h; k++)
        draw_rank(canvas, y++, r, s, k);
    if (!o->alone)
        draw_words(canvas, y, r, o, i);
}
