/* view_layers_map.c: the map of layers and stages: lines, columns, cells, folding. What a site's mark is, is in
 * view_layers_mark.c. */
#include "tui/view_layers.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYER_LEAST = 5,
    NEED_LEAST = 40,
    LEAST_ALIKE = 3,
    BAR_LEAST = 4,
    BAR_BESIDE = 12,
    BAR_MOST = 20,
    WIDE_SCREEN = 200,
    WIDE_CELL = 8,
    NUMBER_CELLS = 9
};

void layers_free(struct layers_own *o)
{
    free(o->sums);
    free(o->marks);
    free(o->kinds);
    free(o->stage);
    free(o->order);
    free(o->line_of);
    free(o->lines);
    free(o->rows);
    free(o->stages);
    free(o->columns);
    free(o->heads);
    o->sums = NULL;
    o->marks = o->kinds = NULL;
    o->stage = o->order = o->line_of = o->stages = NULL;
    o->lines = NULL;
    o->rows = NULL;
    o->columns = NULL;
    o->heads = NULL;
    o->n_sites = o->n_lines = o->n_rows = o->n_stages = o->n_columns = 0;
}

/* ---- sites and lines --------------------------------------------------------------------------- */

static int in_layers(const struct ds_header *h, size_t site)
{
    return h->sites[site].layer >= 0 && h->sites[site].layer < h->n_layers;
}

static int copy_sites(struct layers_own *o, const struct tui_pair *pair, struct ds_error *err)
{
    size_t n = pair->n_sites;
    o->sums = ds_calloc(n, sizeof *o->sums, "map", err);
    o->marks = ds_calloc(n, 1, "map", err);
    o->kinds = ds_calloc(n, 1, "map", err);
    o->stage = ds_calloc(n, sizeof *o->stage, "map", err);
    o->order = ds_calloc(n, sizeof *o->order, "map", err);
    o->line_of = ds_calloc(n, sizeof *o->line_of, "map", err);
    o->lines = ds_calloc(n, sizeof *o->lines, "map", err);
    o->rows = ds_calloc(n, sizeof *o->rows, "map", err);
    o->stages = ds_calloc(n + 1, sizeof *o->stages, "map", err);
    o->columns = ds_calloc(n + 1, sizeof *o->columns, "map", err);
    o->heads = ds_calloc(n + LAYERS_FIRST + 3, sizeof *o->heads, "map", err);
    if (!o->sums || !o->marks || !o->kinds || !o->stage || !o->order || !o->line_of || !o->lines ||
        !o->rows || !o->stages || !o->columns || !o->heads)
        return -1;
    o->n_sites = n;
    memset(o->of, 0, sizeof o->of);
    for (size_t i = 0; i < n; i++) {
        o->sums[i] = pair->sites[i];
        const struct tui_site_sum *x = &o->sums[i];
        char mark = o->kinds[i] = o->alone ? '?' : layers_mark(pair, i);
        mark = o->marks[i] = x->nonfinite || x->ref_nonfinite ? '!' : mark;
        o->of[mark == '.'             ? 0
              : mark == ','           ? 1
              : layers_is_drift(mark) ? 2
              : mark == '!'           ? 3
                                      : 4]++;
    }
    return 0;
}

static int same_stage(const struct ds_site *a, const struct ds_site *b)
{
    return strcmp(a->stage, b->stage) == 0 && strcmp(a->part, b->part) == 0;
}

/* Which column a site is in; mostly that behind the column of the site before. */
static void find_stages(struct layers_own *o, const struct ds_header *h)
{
    size_t next = 0;
    o->n_stages = ds_report_stages(h, o->stages);
    for (size_t s = 0; s < o->n_sites; s++) {
        o->stage[s] = UINT32_MAX;
        for (size_t i = 0; in_layers(h, s) && i < o->n_stages; i++) {
            size_t at = (next + i) % o->n_stages;
            if (!same_stage(&h->sites[o->stages[at]], &h->sites[s]))
                continue;
            o->stage[s] = (uint32_t)at;
            next = at + 1;
            break;
        }
    }
}

static void end_line(struct layers_own *o, struct layers_line *l)
{
    for (uint32_t i = 1; i < l->n; i++) /* nearly sorted */
        for (uint32_t j = l->first + i;
             j > l->first && o->stage[o->order[j]] < o->stage[o->order[j - 1]]; j--) {
            uint32_t swap = o->order[j];
            o->order[j] = o->order[j - 1];
            o->order[j - 1] = swap;
        }
}

static void make_lines(struct layers_own *o, const struct ds_header *h)
{
    struct layers_line *l = NULL;
    for (uint32_t s = 0; s < o->n_sites; s++) {
        const struct ds_site *x = &h->sites[s];
        o->order[s] = s;
        if (!l || !in_layers(h, s) || l->name[0] || l->layer != x->layer) {
            if (l)
                end_line(o, l);
            l = &o->lines[o->n_lines++];
            *l = (struct layers_line){.layer = x->layer, .first = s, .last = s};
            if (!in_layers(h, s))
                snprintf(l->name, sizeof l->name, "%s%s%s", x->stage, x->part[0] ? "/" : "",
                         x->part);
        }
        l->n++;
        o->line_of[s] = (uint32_t)(o->n_lines - 1);
        /* Growth is of the last residual. */
        if (strcmp(x->op, "add") == 0 || strcmp(h->sites[l->last].op, "add") != 0)
            l->last = s;
    }
    if (l)
        end_line(o, l);
}

/* ---- growth ------------------------------------------------------------------------------------ */

static double added_size(const struct tui_site_sum *s, int metric)
{
    if (s->healed_label != DS_LABEL_ORIGIN || metric == TUI_METRIC_BITS || metric == TUI_METRIC_ABS)
        return -1;
    return metric == TUI_METRIC_ULP ? (double)s->added_max_ulp : s->added_relative_rms;
}

static void widen(struct layers_own *o, double size)
{
    if (!(size > 0) || !isfinite(size))
        return;
    o->low = fmin(o->low, floor(log10(size)));
    o->high = fmax(o->high, ceil(log10(size)));
}

static void find_growth(struct layers_own *o)
{
    o->adds = 0;
    o->low = INFINITY;
    o->high = -INFINITY;
    for (size_t i = 0; i < o->n_lines; i++) {
        struct layers_line *l = &o->lines[i];
        l->size = layers_is_drift(o->marks[l->last]) || o->marks[l->last] == '!'
                      ? layers_size(&o->sums[l->last], o->at.metric)
                      : 0;
        l->added = -1;
        for (uint32_t s = 0; s < l->n; s++) {
            double added = added_size(&o->sums[l->first + s], o->at.metric);
            l->added = added > l->added ? added : l->added;
        }
        if (l->name[0] || o->marks[l->last] == '!' || l->size < 0)
            continue; /* no bar there */
        widen(o, l->size);
        widen(o, l->added);
        o->adds |= l->added > 0;
    }
    if (o->high <= o->low)
        o->high = o->low + 1;
}

/* ---- folding ----------------------------------------------------------------------------------- */

/* Whether two lines look the same in every cell. */
static int alike(const struct layers_own *o, const struct layers_line *a,
                 const struct layers_line *b)
{
    char x[256], y[256];
    if (a->name[0] || b->name[0] || a->n != b->n || a->layer + 1 != b->layer)
        return 0;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t s = o->order[a->first + i], t = o->order[b->first + i];
        if (o->stage[s] != o->stage[t])
            return 0;
        layers_site_text(o, s, x);
        layers_site_text(o, t, y);
        if (strcmp(x, y) != 0)
            return 0;
    }
    if ((a->size > 0 || b->size > 0 || a->added > 0 || b->added > 0) && (o->numbers || o->wide) &&
        (a->size != b->size || a->added != b->added))
        return 0;
    layers_growth_text(o, a, x, sizeof x);
    layers_growth_text(o, b, y, sizeof y);
    return strcmp(x, y) == 0;
}

static void make_rows(struct layers_own *o)
{
    o->n_rows = 0;
    for (size_t i = 0, n; i < o->n_lines; i += n) {
        n = 1;
        while (!o->unfolded && i + n < o->n_lines &&
               alike(o, &o->lines[i + n - 1], &o->lines[i + n]))
            n++;
        n = n < LEAST_ALIKE ? 1 : n;
        o->rows[o->n_rows++] = (struct layers_row){(uint32_t)i, (uint32_t)n};
    }
}

/* ---- columns ----------------------------------------------------------------------------------- */

/* One of many alike: an expert "e3", a rank "r1". */
static int is_numbered(const struct ds_site *s)
{
    return (s->part[0] == 'e' || s->part[0] == 'r') && s->part[1] >= '0' && s->part[1] <= '9';
}

static void add_column(struct layers_own *o, const struct ds_header *h, uint32_t stage, uint32_t n)
{
    struct layers_column *c = &o->columns[o->n_columns];
    const struct ds_site *s = &h->sites[o->stages[stage]];
    const char *name = ds_report_stage_short(s);
    *c = (struct layers_column){.stage = stage, .n = n};
    if (n > 1)
        snprintf(c->name, sizeof c->name, "%.14s*%u", s->part[0] == 'r' ? s->stage : name, n);
    else if (is_numbered(s) && s->part[0] == 'e')
        snprintf(c->name, sizeof c->name, "%.12s%.8s", name, s->part + 1);
    else
        snprintf(c->name, sizeof c->name, "%.20s", name);
    c->width = tui_text_width(c->name, o->ascii);
    c->width = c->width < (o->wide ? WIDE_CELL : 2) ? (o->wide ? WIDE_CELL : 2) : c->width;
    o->n_columns++;
}

/* Numbered parts beside each other are one column when they are folded. */
static int make_columns(struct layers_own *o, const struct ds_header *h, int folded, int wide)
{
    int cells = 0;
    o->n_columns = o->n_parts = 0;
    o->wide = wide;
    for (uint32_t i = 0, n; i < o->n_stages; i += n) {
        const struct ds_site *s = &h->sites[o->stages[i]], *t;
        n = 1;
        while (is_numbered(s) && i + n < o->n_stages && (t = &h->sites[o->stages[i + n]]) &&
               is_numbered(t) && strcmp(t->stage, s->stage) == 0)
            n++;
        o->n_parts += n > 1 ? n : 0;
        for (uint32_t k = 0; k < n; k += folded ? n : 1)
            add_column(o, h, i + k, folded ? n : 1);
    }
    for (size_t i = 0; i < o->n_columns; i++)
        cells += o->columns[i].width + 1;
    return cells;
}

/* What the layers' names and the lines' own cells take. */
static int fixed_cells(struct layers_own *o)
{
    char name[48];
    int cells = LAYER_LEAST;
    for (size_t i = 0; i < o->n_rows; i++) {
        if (o->lines[o->rows[i].line].name[0])
            continue;
        layers_row_name(o, i, name);
        cells = (int)strlen(name) > cells ? (int)strlen(name) : cells;
    }
    o->name_cells = cells;
    return 1 + cells + 1 + 1; /* first cell, gaps */
}

static void fit(struct layers_own *o, const struct ds_header *h)
{
    int wide = o->screen >= WIDE_SCREEN && make_columns(o, h, o->parts_folded, 1) + 40 <= o->screen;
    int cells = make_columns(o, h, o->parts_folded, wide), room;
    if (!wide && !o->unfolded && o->n_parts && cells + 8 + BAR_LEAST > o->screen) {
        o->parts_folded = 1;
        cells = make_columns(o, h, 1, 0);
    }
    o->growth_cells = BAR_LEAST;
    o->numbers = 0;
    make_rows(o); /* for the names' width */
    cells += fixed_cells(o);
    room = o->screen - cells - 1;
    o->growth_cells = room < BAR_LEAST || !o->n_columns ? BAR_LEAST
                      : room > BAR_MOST                 ? BAR_MOST
                                                        : room;
    o->numbers = o->n_columns && room >= BAR_BESIDE + 2 * (NUMBER_CELLS + 1);
    if (o->numbers)
        o->growth_cells = BAR_BESIDE;
    make_rows(o);
    o->need = cells + o->growth_cells + (o->numbers ? 2 * (NUMBER_CELLS + 1) : 0) + 1;
    o->need = o->need < NEED_LEAST ? NEED_LEAST : o->need;
}

static void make_heads(struct layers_own *o)
{
    struct tui_column *c = o->heads;
    *c++ = (struct tui_column){"layer", TUI_LEFT, TUI_COLUMN_FIXED, o->name_cells, 0};
    *c++ = (struct tui_column){o->growth_cells < 6 ? "grow" : "growth", TUI_LEFT, TUI_COLUMN_FIXED,
                               o->growth_cells, o->growth_cells};
    for (size_t i = 0; i < o->n_columns; i++)
        *c++ = (struct tui_column){o->columns[i].name, TUI_LEFT, 0, o->columns[i].width, 0};
    if (!o->numbers)
        return;
    *c++ = (struct tui_column){tui_metric_name(o->at.metric), TUI_RIGHT, 0, NUMBER_CELLS, 0};
    *c++ = (struct tui_column){"added", TUI_RIGHT, 0, NUMBER_CELLS, 0};
}

int layers_make(struct layers_own *o, const struct ds_header *h, const struct tui_pair *pair,
                struct ds_error *err)
{
    layers_free(o);
    if (pair->n_sites != h->n_sites)
        return ds_fail(err, "the record has changed");
    if (copy_sites(o, pair, err) != 0)
        return -1;
    find_stages(o, h);
    make_lines(o, h);
    find_growth(o);
    fit(o, h);
    make_heads(o);
    return 0;
}
