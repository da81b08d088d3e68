/* view_overview_panel.c: beside Overview: the cell under the cursor in words. */
#include "tui/view_overview.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ALL_CLASSES = 400 };

static void draw_condition(struct tui_page *p, const struct ds_verdict *v, size_t k, size_t f)
{
    const struct ds_kernel_verdict *x = &v->kernels[k];
    struct ds_buf kernel = {0}, classes = {0};
    ds_report_kernel(&kernel, x->op, x->variant);
    const char *name = kernel.data ? kernel.data : "", *factor = v->factors[f].name;
    if (x->condition[f] == DS_COND_DRIFT)
        ds_report_classes(&v->factors[f], x->class_of[f], ALL_CLASSES, &classes);
    switch (x->condition[f]) {
    case DS_COND_SAME:
        tui_page_line(p, TUI_SAME, "%s, %s: the same bits on equal inputs", name, factor);
        break;
    case DS_COND_DRIFT:
        if (x->count[f].sites)
            ds_buf_printf(&classes, ", at %u site%s", (unsigned)x->count[f].sites,
                          x->count[f].sites == 1 ? "" : "s");
        tui_page_line(p, TUI_ORIGIN, "%s, %s: other bits on equal inputs: %s", name, factor,
                      classes.data ? classes.data : "");
        break;
    case DS_COND_UNSTABLE:
        tui_page_line(p, TUI_UNSTABLE, "%s, %s: unstable, its repeats disagree", name, factor);
        break;
    case DS_COND_UNKNOWN:
        tui_page_line(p, TUI_UNKNOWN,
                      "%s, %s: not judged, its inputs differed already or were not compared", name,
                      factor);
        break;
    default:
        tui_page_line(p, TUI_MISSING, "%s, %s: not run, or nothing to compare with", name, factor);
    }
    ds_buf_free(&kernel);
    ds_buf_free(&classes);
}

static void draw_goal(struct tui_page *p, const struct ds_header *h, const struct overview_goal *g)
{
    struct ds_buf b = {0};
    if (!g || g->arm >= h->n_arms || g->ref >= h->n_arms || g->site >= h->n_sites)
        return;
    tui_site_text(h, g->site, &b);
    ds_buf_printf(&b, ", arm %" PRIu32 " ", g->arm);
    ds_report_arm_values(h, g->arm, &b);
    if (g->arm == g->ref)
        ds_buf_puts(&b, ", its repeats");
    else
        ds_buf_printf(&b, " against %" PRIu32, g->ref);
    tui_page_line(p, TUI_KEY, "Enter  %s", b.data ? b.data : "");
    ds_buf_free(&b);
}

static void draw_counts(struct tui_page *p, const struct ds_verdict *v, size_t k)
{
    const struct ds_kernel_verdict *x = &v->kernels[k];
    struct ds_buf b = {0};
    tui_page_line(p, TUI_PLAIN,
                  "along all factors: %" PRIu64 " digests compared, %" PRIu64
                  " on equal inputs; %" PRIu64 " origins, %" PRIu64 " inherited, %" PRIu64
                  " healed",
                  x->compared, x->judged, x->origins, x->inherited, x->healed);
    for (uint32_t i = 0; i < x->n_switches; i++) {
        const struct ds_switches *s = &x->switches[i];
        b.len = 0;
        for (uint32_t j = 0; j < s->n; j++)
            ds_buf_printf(&b, "%s%" PRIu32, j ? ", " : "", s->rows[j]);
        if (s->n)
            tui_page_line(p, TUI_PLAIN, "other bits from M = %s rows%s%s%s", b.data ? b.data : "",
                          s->setting[0] ? " (" : "", s->setting, s->setting[0] ? ")" : "");
    }
    ds_buf_free(&b);
}

static void draw_factor(struct tui_page *p, const struct ds_factor_verdict *f)
{
    const struct ds_factor_phase *all = &f->phase[DS_VERDICT_ALL];
    tui_page_line(p, TUI_PLAIN,
                  "%s over all kernels: %" PRIu64 " of %" PRIu64 " digests differ, %" PRIu64
                  " unstable",
                  f->name, all->drifted, all->compared, all->unstable);
}

void overview_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                    struct tui_rect r)
{
    const struct overview_own *o = v->own;
    const struct ds_verdict *verdict = c->whole->verdict;
    struct tui_page p = {canvas, r, 0};
    size_t at = tui_table_row(&v->table), column = v->table.column;
    if (!o || !o->made || !verdict || !c->whole->header || at >= o->n_lines)
        return;
    const struct overview_line *l = &o->lines[at];
    const struct overview_goal *g = overview_goal_at(o, at, column);
    if (l->kind == TUI_ROW && column >= 1 && column < o->n_columns &&
        l->kernel < verdict->n_kernels && o->factors[column - 1] < verdict->n_factors) {
        draw_condition(&p, verdict, l->kernel, o->factors[column - 1]);
        draw_goal(&p, c->whole->header, g);
        draw_counts(&p, verdict, l->kernel);
        draw_factor(&p, &verdict->factors[o->factors[column - 1]]);
    } else {
        draw_goal(&p, c->whole->header, g);
    }
}
