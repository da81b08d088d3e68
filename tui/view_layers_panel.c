/* view_layers_panel.c: beside the map: the site under the cursor in words, and what the marks mean. */
#include "tui/view_layers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* An origin whose inputs are not there: it may as well be a site before it. */
static int is_bridged(const struct ds_header *h, const struct layers_own *o, uint32_t site)
{
    if (o->kinds[site] != '#' && o->kinds[site] != '@')
        return 0;
    for (size_t i = 0; i < h->n_edges; i++)
        if (h->edges[i].to == site && h->edges[i].from < o->n_sites &&
            o->sums[h->edges[i].from].compared == 0)
            return 1;
    return 0;
}

static void draw_what(struct tui_page *p, const struct ds_header *h, const struct layers_own *o,
                      uint32_t site)
{
    struct ds_buf name = {0};
    tui_site_text(h, site, &name);
    tui_page_line(p, tui_mark_role(o->marks[site]), "%s (%s): %s%s", name.data ? name.data : "",
                  h->sites[site].op, o->marks[site] == '!' ? "NaN or Inf; " : "",
                  is_bridged(h, o, site)
                      ? "origin, or one of the sites before it that are not compared"
                      : tui_mark_words(o->kinds[site]));
    ds_buf_free(&name);
}

static void draw_rows(struct tui_page *p, const struct layers_own *o, uint32_t site)
{
    const struct tui_site_sum *s = &o->sums[site];
    struct ds_buf b = {0};
    uint32_t drift = s->drift[DS_LABEL_ORIGIN] + s->drift[DS_LABEL_INHERITED] +
                     s->drift[DS_LABEL_UNKNOWN] + s->drift[DS_LABEL_UNSTABLE];
    ds_buf_printf(&b, "%" PRIu32 " of %" PRIu32 " rows differ", drift, s->compared);
    for (int i = DS_LABEL_HEALED, n = 0; i <= DS_LABEL_UNSTABLE; i++)
        if (s->drift[i])
            ds_buf_printf(&b, "%s%" PRIu32 " %s", n++ ? ", " : ": ", s->drift[i], ds_label_name(i));
    if (s->drift[DS_LABEL_ABSENT])
        ds_buf_printf(&b, "; %" PRIu32 " not compared", s->drift[DS_LABEL_ABSENT]);
    tui_page_line(p, TUI_PLAIN, "%s", b.data ? b.data : "");
    ds_buf_free(&b);
    if (s->nonfinite || s->ref_nonfinite)
        tui_page_line(p, TUI_NONFINITE,
                      "NaN or Inf: %" PRIu32 " row%s, %" PRIu32 " of the reference", s->nonfinite,
                      s->nonfinite == 1 ? "" : "s", s->ref_nonfinite);
    if (s->sized) {
        char abs[32] = "Inf";
        if (!isinf(s->max_abs))
            snprintf(abs, sizeof abs, "%.3g", s->max_abs);
        tui_page_line(p, TUI_PLAIN,
                      "%" PRIu64 " elements, max %" PRIu64 " ULP, max abs %s, relative rms %.3g",
                      s->elements, s->max_ulp, abs, s->relative_rms);
    }
    if (drift > s->sized)
        tui_page_line(p, TUI_UNKNOWN,
                      s->sized ? "sizes of %" PRIu32 " rows only" : "no sizes recorded", s->sized);
}

static void draw_added(struct tui_page *p, const struct layers_own *o, uint32_t site)
{
    const struct tui_site_sum *s = &o->sums[site];
    if (s->healed_label == DS_LABEL_ORIGIN && s->added_relative_rms > 0)
        tui_page_line(p, TUI_ORIGIN, "adds %" PRIu64 " ULP, relative rms %.3g, on equal inputs",
                      s->added_max_ulp, s->added_relative_rms);
    else if (s->healed_label == DS_LABEL_SAME && layers_is_drift(o->kinds[site]))
        tui_page_line(p, TUI_SAME, "adds nothing: same bits on equal inputs");
    else if (isnan(s->added_relative_rms) && layers_is_drift(o->kinds[site]))
        tui_page_line(p, TUI_DIM, "what it adds is not known: no healed trial of this pair");
}

/* What it reads, as far as it fits. */
static void draw_inputs(struct tui_page *p, const struct ds_header *h, const struct layers_own *o,
                        uint32_t site)
{
    struct ds_buf b = {0};
    for (size_t i = 0, n = 0; i < h->n_edges; i++) {
        const struct ds_edge *e = &h->edges[i];
        if (e->to != site || e->from >= o->n_sites)
            continue;
        ds_buf_printf(&b, "%s%c ", n++ ? ", " : "reads ", o->marks[e->from]);
        tui_site_text(h, e->from, &b);
    }
    if (b.len)
        tui_page_line(p, TUI_PLAIN, "%s", b.data);
    ds_buf_free(&b);
}

static void draw_launch(struct tui_page *p, const struct tui_context *c, uint32_t site)
{
    struct ds_buf b = {0};
    const struct tui_site *s =
        p->y < p->r.h ? tui_data_site(c->data, c->place->arm, c->place->ref, site, NULL) : NULL;
    if (!s || (!s->launch && !s->ref_launch))
        return;
    if (ds_report_launch_difference(s->launch, s->ref_launch, &b)) {
        tui_page_line(p, TUI_DIFFERS, "launched with %s", b.data ? b.data : "");
    } else {
        ds_report_launch(s->launch ? s->launch : s->ref_launch, NULL, &b);
        tui_page_line(p, TUI_PLAIN, "launched alike: %s", b.data ? b.data : "");
    }
    ds_buf_free(&b);
}

enum { LEGEND_LINES = 4 };

static void draw_legend(struct tui_page *p)
{
    int lines = p->r.w < 76 ? LEGEND_LINES : 2;
    if (p->y + lines > p->r.h)
        return;
    p->y = p->r.h - lines;
    tui_page_line(p, TUI_DIM,
                  ". same  , healed  # origin  o own origin  - inherited  x inputs unknown");
    tui_page_line(p, TUI_DIM,
                  "~ unstable  ! NaN, Inf  ? not compared  @ O ^ X the same with a jump");
}

void layers_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                  struct tui_rect r)
{
    const struct layers_own *o = v->own;
    const struct ds_header *h = c->whole->header;
    struct tui_page p = {canvas, r, 0};
    uint32_t site = c->place->site;
    if (!o || !h || site >= o->n_sites || o->n_sites != h->n_sites)
        return;
    draw_what(&p, h, o, site);
    draw_rows(&p, o, site);
    draw_added(&p, o, site);
    draw_inputs(&p, h, o, site);
    draw_launch(&p, c, site);
    layers_lists(&p, h, o, LEGEND_LINES + 1);
    draw_legend(&p);
    /* Beside a map that is shorter than the screen: the place below it is free. */
    int below = (int)v->table.n_shown + 2;
    if (r.x > 0 && v->table.n_shown < (size_t)r.h && below < r.h)
        layers_chart(canvas, (struct tui_rect){r.y + below, 1, r.h - below, r.x - 3}, o);
}
