/* view_layers_lists.c: what a large screen has room for beside the map: where drift begins, which sites add most, which
 * differ most, and every stage over all layers. */
#include "tui/view_layers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEAST_LINES = 4 /* of one list, its title among them */, NAME = 20, NUMBER = 10 };

/* What a list orders sites by; not above 0: it has not this one. */
static double added_key(const struct layers_own *o, uint32_t s)
{
    const struct tui_site_sum *x = &o->sums[s];
    return x->healed_label == DS_LABEL_ORIGIN ? x->added_relative_rms : 0;
}

static double size_key(const struct layers_own *o, uint32_t s)
{
    return layers_is_drift(o->kinds[s]) ? layers_size(&o->sums[s], o->at.metric) : 0;
}

/* The next site after `last` in falling order, equals in the order of a pass. UINT32_MAX: no more. */
static uint32_t next_largest(const struct layers_own *o,
                             double (*key)(const struct layers_own *, uint32_t), uint32_t last)
{
    uint32_t best = UINT32_MAX;
    double most = last == UINT32_MAX ? 0 : key(o, last), found = 0;
    for (uint32_t s = 0; s < o->n_sites; s++) {
        double k = key(o, s);
        int after = last == UINT32_MAX || k < most || (k == most && s > last);
        if (k > 0 && after && (best == UINT32_MAX || k > found)) {
            best = s;
            found = k;
        }
    }
    return best;
}

static void line(struct tui_page *p, const struct ds_header *h, const struct layers_own *o,
                 uint32_t site, double size, int metric)
{
    char number[16];
    struct ds_buf name = {0};
    int y = p->r.y + p->y++, x = p->r.x;
    tui_site_text(h, site, &name);
    layers_number(size, metric, number);
    char mark[2] = {o->marks[site], '\0'};
    tui_put(p->canvas, y, x, 1, tui_mark_role(o->marks[site]), 0, mark);
    tui_put(p->canvas, y, x + 2, NAME, TUI_PLAIN, 0, name.data ? name.data : "");
    tui_put_right(p->canvas, y, x + 2 + NAME, NUMBER, TUI_PLAIN, 0, size > 0 ? number : "");
    if (p->r.w > NAME + NUMBER + 6)
        tui_put(p->canvas, y, x + 4 + NAME + NUMBER, p->r.w - NAME - NUMBER - 4, TUI_DIM, 0,
                h->sites[site].op);
    ds_buf_free(&name);
}

static void title(struct tui_page *p, const char *fmt, const char *what)
{
    p->y++;
    tui_putf(p->canvas, p->r.y + p->y++, p->r.x, p->r.w, TUI_HEAD, 0, fmt, what);
}

/* The sites where drift begins, in the order of a pass. */
static void draw_origins(struct tui_page *p, const struct ds_header *h, const struct layers_own *o,
                         int lines)
{
    uint32_t n = 0, shown = 0;
    for (uint32_t s = 0; s < o->n_sites; s++)
        n += o->kinds[s] == '#' || o->kinds[s] == '@';
    if (!n || lines < LEAST_LINES)
        return;
    title(p, "drift begins at; %s", tui_metric_name(o->at.metric));
    for (uint32_t s = 0; s < o->n_sites && (int)shown < lines - 3; s++)
        if (o->kinds[s] == '#' || o->kinds[s] == '@') {
            line(p, h, o, s, size_key(o, s), o->at.metric);
            shown++;
        }
    if (n > shown)
        tui_putf(p->canvas, p->r.y + p->y++, p->r.x + 2, p->r.w - 2, TUI_DIM, 0,
                 "and %" PRIu32 " more", n - shown);
}

static void draw_largest(struct tui_page *p, const struct ds_header *h, const struct layers_own *o,
                         double (*key)(const struct layers_own *, uint32_t), const char *fmt,
                         int metric, int lines)
{
    uint32_t s = lines < LEAST_LINES ? UINT32_MAX : next_largest(o, key, UINT32_MAX);
    if (s == UINT32_MAX)
        return;
    title(p, fmt, tui_metric_name(metric));
    for (int i = 0; s != UINT32_MAX && i < lines - 2; i++, s = next_largest(o, key, s))
        line(p, h, o, s, key(o, s), metric);
}

/* ---- stages ---------------------------------------------------------------------------------- */

struct stage_sum {
    uint32_t origin, own, inherited, same, other;
    double most;
};

static struct stage_sum sum_of(const struct layers_own *o, uint32_t stage, uint32_t n)
{
    struct stage_sum x = {0};
    for (uint32_t s = 0; s < o->n_sites; s++) {
        if (o->stage[s] < stage || o->stage[s] >= stage + n)
            continue;
        char kind = o->kinds[s];
        *(kind == '#' || kind == '@'   ? &x.origin
          : kind == 'o' || kind == 'O' ? &x.own
          : kind == '-' || kind == '^' ? &x.inherited
          : kind == '.' || kind == ',' ? &x.same
                                       : &x.other) += 1;
        double size = size_key(o, s);
        x.most = size > x.most ? size : x.most;
    }
    return x;
}

/* Every stage over all layers: in how many it is what, and the most that it differs. */
static void draw_stages(struct tui_page *p, const struct layers_own *o, int lines)
{
    if (!o->n_columns || lines < (int)o->n_columns + 3)
        return;
    p->y++;
    tui_putf(p->canvas, p->r.y + p->y++, p->r.x, p->r.w, TUI_HEAD, 0, "%-10s%7s%6s%9s%6s%7s%12s",
             "stage", "begins", "adds", "inherits", "same", "other", tui_metric_name(o->at.metric));
    for (size_t i = 0; i < o->n_columns; i++) {
        const struct layers_column *c = &o->columns[i];
        struct stage_sum x = sum_of(o, c->stage, c->n);
        char number[16] = "";
        if (x.most > 0)
            layers_number(x.most, o->at.metric, number);
        int y = p->r.y + p->y++;
        tui_put(p->canvas, y, p->r.x, 10, TUI_PLAIN, 0, c->name);
        tui_putf(p->canvas, y, p->r.x + 10, p->r.w - 10,
                 x.origin  ? TUI_ORIGIN
                 : x.own   ? TUI_HEALED
                 : x.other ? TUI_UNKNOWN
                           : TUI_PLAIN,
                 0, "%7" PRIu32 "%6" PRIu32 "%9" PRIu32 "%6" PRIu32 "%7" PRIu32 "%12s", x.origin,
                 x.own, x.inherited, x.same, x.other, number);
    }
}

void layers_lists(struct tui_page *p, const struct ds_header *h, const struct layers_own *o,
                  int below)
{
    enum { STAGES_WIDE = 58 };
    int lines = p->r.h - p->y - below,
        stages = p->r.w >= STAGES_WIDE && lines > (int)o->n_columns + 3 + 3 * LEAST_LINES
                     ? (int)o->n_columns + 3
                     : 0,
        each = (lines - stages) / 3, begun = p->y;
    if (o->alone || each < LEAST_LINES)
        return;
    draw_origins(p, h, o, each);
    each = (lines - stages - (p->y - begun)) / 2; /* what it did not take is the others' */
    draw_largest(p, h, o, added_key, "add most on equal inputs; %s", TUI_METRIC_REL, each);
    draw_largest(p, h, o, size_key, "differ most; %s", o->at.metric,
                 lines - stages - (p->y - begun));
    draw_stages(p, o, stages);
}

/* ---- growth ---------------------------------------------------------------------------------- */

enum { LEAST_CHART = 10, MOST_CHART = 48, SCALE = 8, MOST_BAR = 7 };

static int height_of(const struct layers_own *o, double size, int high)
{
    double share = size > 0 ? (log10(size) - o->low) / (o->high - o->low) : 0;
    int cells = !(size > 0) ? 0 : isfinite(size) ? (int)lround(share * high) : high;
    return size > 0 && cells < 1 ? 1 : cells > high ? high : cells;
}

static void draw_bar(struct tui_canvas *canvas, struct tui_rect r, const struct layers_own *o,
                     const struct layers_line *l, int wide)
{
    int all = layers_is_drift(o->marks[l->last]) ? height_of(o, l->size, r.h) : 0,
        at = height_of(o, l->added, r.h);
    for (int y = 1; y <= all || y <= at; y++)
        for (int x = 0; x < wide; x++) {
            if (y == at)
                tui_put(canvas, r.y + r.h - y, r.x + x, 1, TUI_ORIGIN, 0, "+");
            else if (y <= all)
                tui_put_glyph(canvas, r.y + r.h - y, r.x + x, TUI_G_SHADE + (o->ascii ? 4 : 3),
                              TUI_DIM, 0);
        }
}

void layers_chart(struct tui_canvas *canvas, struct tui_rect r, const struct layers_own *o)
{
    uint32_t n = 0;
    for (size_t i = 0; i < o->n_lines; i++)
        n += !o->lines[i].name[0];
    int step = n ? (r.w - SCALE) / (int)n : 0, high = r.h - 3;
    if (o->alone || !isfinite(o->low) || high < LEAST_CHART || step < 2)
        return;
    high = high < MOST_CHART ? high : MOST_CHART;
    step = step < MOST_BAR + 1 ? step : MOST_BAR + 1;
    tui_putf(canvas, r.y, r.x, r.w, TUI_HEAD, 0, "growth: %s at the end of each layer%s",
             tui_metric_name(o->at.metric),
             o->adds ? "; + the most that one of its sites adds" : "");
    for (double power = o->low; power <= o->high; power++) {
        int y = r.y + 1 + high - (int)lround((power - o->low) / (o->high - o->low) * high);
        if (y <= r.y + high) /* what is below has no bar of its own */
            tui_putf(canvas, y, r.x, SCALE - 1, TUI_DIM, 0, "%6s%.0f", "1e", power);
    }
    struct tui_rect bar = {r.y + 1, r.x + SCALE, high, step};
    for (size_t i = 0, k = 0; i < o->n_lines; i++) {
        const struct layers_line *l = &o->lines[i];
        if (l->name[0])
            continue;
        draw_bar(canvas, bar, o, l, step - 1);
        if (step >= 4 || k % 2 == 0)
            tui_putf(canvas, bar.y + high, bar.x, step >= 4 ? step : 2 * step, TUI_DIM, 0, "%02d",
                     l->layer);
        bar.x += step;
        k++;
    }
}
