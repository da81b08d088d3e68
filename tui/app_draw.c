/* app_draw.c: the frame's drawing: title, the view's parts, status, bottom line, messages. */
#include "tui/app.h"

#include "base/plural.h"

#include <stdio.h>
#include <string.h>

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* ---- title ----------------------------------------------------------------------------------- */

static void place_text(struct tui_app *a, struct ds_buf *b)
{
    const struct ds_header *h = a->whole->header;
    const struct tui_pair *p;
    ds_buf_printf(b, "arm %u", a->place.arm);
    ds_buf_puts(b, " ");
    ds_report_arm_values(h, a->place.arm, b);
    ds_buf_printf(b, " vs %u  ", a->place.ref);
    tui_site_text(h, a->place.site, b);
    p = a->whole->n_trials ? tui_data_pair(a->data, a->place.arm, a->place.ref, NULL) : NULL;
    if (p && a->place.row < p->n_rows) {
        ds_buf_puts(b, "  row ");
        ds_report_row_key(&p->keys[a->place.row], b);
    }
}

static void draw_title(struct tui_app *a)
{
    const struct ds_header *h = a->whole->header;
    struct tui_canvas *c = &a->canvas;
    struct tui_rect r = a->layout.title;
    struct ds_buf left = {0}, right = {0};
    tui_fill(c, r, TUI_G_SPACE, TUI_TITLE);
    ds_buf_printf(&left, " %s%s", r.w < 100 ? "" : "driftscope  ",
                  base_name(a->o->moves_to ? a->o->moves_to : a->o->path));
    if (a->o->path_b)
        ds_buf_printf(&left, "  %s", base_name(a->o->path_b));
    if (h && r.w >= 100)
        ds_buf_printf(&left, "  %s", h->model_name);
    if (h && h->n_sites)
        place_text(a, &right);
    /* The place is what changes: it is what stays when both do not fit. */
    int width = right.data ? tui_text_width(right.data, a->ascii) : 0;
    if (width > r.w - 14)
        width = r.w - 14;
    if (left.data)
        tui_put(c, r.y, r.x, r.w - width - 3, TUI_TITLE, TUI_BOLD, left.data);
    if (right.data)
        tui_put_right(c, r.y, r.x + r.w - width - 1, width, TUI_TITLE, 0, right.data);
    ds_buf_free(&left);
    ds_buf_free(&right);
}

/* ---- status ---------------------------------------------------------------------------------- */

static int is_line(const struct tui_table *t, size_t row)
{
    return !t->source.kind || t->source.kind(t->source.ctx, row) == TUI_ROW;
}

size_t tui_app_lines(const struct tui_table *t, size_t end)
{
    size_t n = 0;
    if (!t->source.kind)
        return end < t->n_shown ? end : t->n_shown;
    for (size_t i = 0; i < end && i < t->n_shown; i++)
        n += (size_t)is_line(t, t->shown[i]);
    return n;
}

/* Texts over all columns are not counted: the cursor on one is at the line before it, if there is one. */
static void position(const struct tui_table *t, struct ds_buf *b)
{
    const size_t at = tui_app_lines(t, t->cursor + 1), all = tui_app_lines(t, t->n_shown);
    if (at == 0 && all > 0)
        ds_buf_printf(b, "top of %zu", all);
    else
        ds_buf_printf(b, "%zu/%zu", at, all);
}

static void position_text(const struct tui_table *t, struct ds_buf *b)
{
    size_t marks = tui_table_marks(t), all = 0;
    if (t->source.n_rows == 0)
        ds_buf_puts(b, "no lines");
    else
        position(t, b);
    if (t->filter[0]) {
        for (size_t i = 0; i < t->source.n_rows; i++)
            all += (size_t)is_line(t, i);
        ds_buf_printf(b, " of %zu, filter %s", all, t->filter);
    }
    if (marks)
        ds_buf_printf(b, "  %zu marked", marks);
}

/* What happened to the file has been a message; here its first words stay. */
static void state_text(const struct tui_app *a, int room, struct ds_buf *b)
{
    char measure[64];
    int note = (int)strcspn(a->noted, ":");
    snprintf(measure, sizeof measure, " %s, %s ", tui_metric_name(a->place.metric),
             tui_number_name(a->place.number));
    room -= tui_text_width(measure, a->ascii) + 9;
    if (tui_data_pending(a->data))
        ds_buf_puts(b, " reading ");
    if (a->whole->live)
        ds_buf_printf(b, " following, %zu trial%s ", a->whole->n_trials,
                      ds_plural((long long)a->whole->n_trials));
    else if (a->whole->header && note && note + 2 <= room)
        ds_buf_printf(b, " %.*s ", note, a->noted);
    if (a->whole->damaged)
        ds_buf_printf(b, " %zu damaged ", a->whole->damaged);
    if (a->whole->n_damaged_rows)
        ds_buf_printf(b, " %zu damaged row%s ", a->whole->n_damaged_rows,
                      a->whole->n_damaged_rows == 1 ? "" : "s");
    ds_buf_puts(b, measure);
}

static void draw_status(struct tui_app *a)
{
    struct tui_view *v = tui_app_view(a);
    struct tui_rect r = a->layout.status;
    struct ds_buf left = {0}, right = {0};
    tui_fill(&a->canvas, r, TUI_G_HLINE, TUI_DIM);
    ds_buf_printf(&left, " %s  ", v->ops->name);
    if (a->state == TUI_READY) {
        position_text(&v->table, &left);
        if (v->ops->status) {
            ds_buf_puts(&left, "  ");
            v->ops->status(v, &a->context, &left);
        }
    }
    ds_buf_puts(&left, " ");
    state_text(a, r.w / 2, &right);
    int width = right.data && !right.failed ? tui_text_width(right.data, a->ascii) : 0;
    if (left.data)
        tui_put(&a->canvas, r.y, r.x, width < r.w / 2 ? r.w - width - 1 : r.w / 2, TUI_PLAIN, 0,
                left.data);
    if (width)
        tui_put_right(&a->canvas, r.y, r.x + r.w - (width < r.w / 2 ? width : r.w / 2),
                      width < r.w / 2 ? width : r.w / 2, TUI_DIM, 0, right.data);
    ds_buf_free(&left);
    ds_buf_free(&right);
}

/* ---- the bottom line --------------------------------------------------------------------------- */

static int hint_width(const struct tui_binding *b, int ascii)
{
    return tui_text_width(b->keys[0], ascii) + 1 + tui_text_width(b->label, ascii);
}

/* What the view names, as far as there is room for it beside help and close. */
static void draw_hints(struct tui_app *a)
{
    struct tui_rect r = a->layout.keys;
    const struct tui_binding *last[] = {tui_binding_of(TUI_HELP), tui_binding_of(TUI_CLOSE)},
                             *b[16];
    int room = r.w - 1, n = 0, x = r.x + 1;
    char name[40];
    for (int i = 0; i < 2; i++)
        room -= hint_width(last[i], a->ascii) + 2;
    for (const char *p = tui_app_view(a)->ops->hints; p && *p && n < 14;) {
        size_t len = strcspn(p, " ");
        snprintf(name, sizeof name, "%.*s", (int)(len < 39 ? len : 39), p);
        const struct tui_binding *one = tui_binding_of(tui_request_of_name(name));
        if (one && one != last[0] && one != last[1]) {
            room -= hint_width(one, a->ascii) + 2;
            if (room < 0)
                break;
            b[n++] = one;
        }
        p += len + (p[len] == ' ');
    }
    b[n++] = last[0];
    b[n++] = last[1];
    for (int i = 0; i < n; i++) {
        x += tui_put(&a->canvas, r.y, x, r.w - x, TUI_KEY, 0, b[i]->keys[0]) + 1;
        x += tui_put(&a->canvas, r.y, x, r.w - x, TUI_PLAIN, 0, b[i]->label) + 2;
    }
}

/* A message takes the bottom line, and as many lines above it as it needs. */
static void draw_message(struct tui_app *a, const char *text, int role)
{
    struct tui_rect r = a->layout.keys;
    enum { MOST = 8 };
    struct {
        const char *at;
        size_t n;
    } line[MOST];
    int n = 0;
    for (const char *p = text; *p && n < MOST; n++) {
        line[n].at = p;
        line[n].n = tui_text_break(p, r.w - 2, a->ascii);
        p += line[n].n;
        if (n == MOST - 1 && *p)
            line[n].n += strlen(p); /* cut where it is drawn */
    }
    for (int i = 0; i < n; i++) {
        int y = r.y - (n - 1) + i;
        tui_fill(&a->canvas, (struct tui_rect){y, r.x, 1, r.w}, TUI_G_SPACE, TUI_PLAIN);
        tui_putf(&a->canvas, y, r.x + 1, r.w - 1, role, 0, "%.*s", (int)line[i].n, line[i].at);
    }
}

static void draw_bottom(struct tui_app *a)
{
    if (a->prompt.kind != TUI_PROMPT_OFF) {
        a->cursor_y = a->layout.keys.y;
        a->cursor_x = tui_prompt_draw(&a->prompt, &a->canvas, a->layout.keys);
        if (a->prompt.offers[0]) {
            struct tui_rect above = a->layout.status;
            tui_fill(&a->canvas, above, TUI_G_SPACE, TUI_PLAIN);
            tui_put(&a->canvas, above.y, above.x + 1, above.w - 1, TUI_DIM, 0, a->prompt.offers);
        }
    } else if (a->message[0]) {
        draw_message(a, a->message, a->message_role);
    } else {
        draw_hints(a);
    }
}

/* ---- the view -------------------------------------------------------------------------------- */

static void draw_text(struct tui_app *a, struct tui_rect r, int role, const char *text)
{
    int y = r.y + (r.h > 2);
    for (const char *p = text; *p && y < r.y + r.h; y++) {
        size_t n = tui_text_break(p, r.w - 4, a->ascii);
        tui_putf(&a->canvas, y, r.x + 2, r.w - 3, role, 0, "%.*s", (int)n, p);
        p += n;
    }
}

/* Its cursor is put back, or it is asked where it stands. */
static void enter(struct tui_app *a)
{
    struct tui_view *v = tui_app_view(a);
    struct tui_table *t = &v->table;
    const struct tui_stop *s = &a->stack[a->depth - 1];
    if (a->entered == 2 && s->cursor < t->n_shown && s->top <= s->cursor) {
        t->cursor = s->cursor;
        t->top = s->top;
        t->pan = s->pan;
        if (s->column < t->source.n_columns)
            t->column = s->column;
    }
    a->entered = 0;
    if (v->ops->moved)
        v->ops->moved(v, &a->context);
}

static int same_place(const struct tui_place *x, const struct tui_place *y)
{
    return x->arm == y->arm && x->ref == y->ref && x->site == y->site && x->row == y->row;
}

/* For a record that cannot be read yet, and why: "PATH: is a record of version 9". */
static void wait_for(struct tui_app *a)
{
    const char *note = a->whole->note;
    const size_t n = strlen(a->o->path);
    if (note && strncmp(note, a->o->path, n) == 0 && note[n] == ':')
        snprintf(a->why, sizeof a->why, "waiting for %.60s%.180s", a->o->path, note + n);
    else
        snprintf(a->why, sizeof a->why, "waiting for %.180s", a->o->path);
}

static void load(struct tui_app *a)
{
    struct tui_view *v = tui_app_view(a);
    a->why[0] = '\0';
    if (a->given_up &&
        (!same_place(&a->given_up_at, &a->place) || a->given_up_seen != a->whole->generation))
        a->given_up = 0;
    if (a->given_up) {
        a->state = TUI_WAITING;
        snprintf(a->why, sizeof a->why, "reading was given up; R reads again");
        return;
    }
    if (!a->whole->header && v->ops != &tui_view_help) {
        a->state = TUI_WAITING;
        wait_for(a);
        return;
    }
    a->state = v->ops->load(v, &a->context, a->why);
    if (a->state == TUI_READY && a->entered) {
        enter(a);
        /* What the view stands on may be another place than it was made for. */
        a->state = v->ops->load(v, &a->context, a->why);
    }
    if (a->state == TUI_WAITING && !a->why[0])
        snprintf(a->why, sizeof a->why, "reading ... (Esc gives up)");
    if (a->state == TUI_EMPTY && !a->why[0])
        snprintf(a->why, sizeof a->why, "nothing to show");
}

/* Head lines that do not fit go on in a further line, as long as there are some to spare: the first first. Drawn, or
 * only counted. */
static int put_heads(struct tui_app *a, const struct tui_view *v, struct tui_rect r, int most,
                     int drawn)
{
    int y = 0;
    for (int i = 0; i < v->n_head; i++) {
        const char *text = v->head[i], *p = text;
        for (int part = 0; y < most && (!part || *p); part++, y++) {
            int indent = part ? (int)strspn(text, " ") + 2 : 0, last = y + v->n_head - i >= most;
            size_t n = last ? strlen(p) : tui_text_break(p, r.w - indent, a->ascii);
            if (drawn)
                tui_putf(&a->canvas, r.y + y, r.x + indent, r.w - indent, v->head_role[i], 0,
                         "%.*s", (int)n, p);
            p += n;
        }
    }
    return y;
}

static int spare_lines(int lines)
{
    return lines < 20 ? 0 : lines < 30 ? 2 : 4;
}

static void draw_view(struct tui_app *a)
{
    struct tui_view *v = tui_app_view(a);
    struct tui_layout *l = &a->layout;
    struct tui_canvas *c = &a->canvas;
    if (a->state != TUI_READY) {
        struct tui_rect r = {l->title.h, 0, l->status.y - l->title.h, a->columns};
        draw_text(a, r, a->state == TUI_WAITING ? TUI_DIM : TUI_PLAIN, a->why);
        return;
    }
    put_heads(a, v, l->head, l->head.h, 1);
    tui_table_draw(&v->table, c, l->table);
    if (!l->panel.h || !v->ops->panel)
        return;
    if (l->panel_beside)
        tui_fill(c, (struct tui_rect){l->panel.y, l->panel.x - 1, l->panel.h, 1}, TUI_G_VLINE,
                 TUI_DIM);
    else
        tui_fill(c, (struct tui_rect){l->panel.y - 1, l->panel.x, 1, l->panel.w}, TUI_G_HLINE,
                 TUI_DIM);
    v->ops->panel(v, &a->context, c, l->panel);
}

static void draw_too_small(struct tui_app *a)
{
    char text[120];
    snprintf(text, sizeof text, "driftscope needs %dx%d; this is %dx%d. Q quits", TUI_MIN_COLUMNS,
             TUI_MIN_LINES, a->columns, a->lines);
    struct tui_rect r = {0, -1, a->lines, a->columns + 2};
    int y = 0;
    for (const char *p = text; *p && y < r.h; y++) {
        size_t n = tui_text_break(p, a->columns, a->ascii);
        tui_putf(&a->canvas, y, 0, a->columns, TUI_PLAIN, 0, "%.*s", (int)n, p);
        p += n;
    }
}

int tui_app_draw(struct tui_app *a, struct ds_error *err)
{
    struct tui_want want = {0};
    struct tui_view *v = tui_app_view(a);
    if (a->canvas.h != a->lines || a->canvas.w != a->columns) {
        tui_canvas_free(&a->canvas);
        if (tui_canvas_new(&a->canvas, a->lines, a->columns, a->ascii, err) != 0)
            return -1;
    }
    tui_canvas_clear(&a->canvas);
    a->canvas.ascii = a->ascii;
    a->context.ascii = a->ascii;
    a->context.lines = a->lines;
    a->context.columns = a->columns;
    a->cursor_y = -1;
    load(a);
    a->drawn = 1;
    if (a->state == TUI_READY && v->ops->want)
        v->ops->want(v, &a->context, &want);
    if (want.head_lines >= v->n_head) /* else it has less room than its lines anyway */
        want.head_lines = put_heads(a, v, (struct tui_rect){0, 0, 0, a->columns},
                                    v->n_head + spare_lines(a->lines), 0);
    tui_layout(a->lines, a->columns, &want, &a->layout);
    if (a->layout.too_small) {
        draw_too_small(a);
        return 0;
    }
    draw_title(a);
    draw_view(a);
    draw_status(a);
    draw_bottom(a);
    return 0;
}
