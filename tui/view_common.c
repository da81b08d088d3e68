/* view_common.c: what several views need: names, marks, head lines. See view.h. */
#include "tui/view.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tui_metric_name(int metric)
{
    static const char *const names[TUI_METRICS] = {"elements", "max ULP", "max abs", "rel rms"};
    return metric >= 0 && metric < TUI_METRICS ? names[metric] : "?";
}

const char *tui_metric_word(int metric)
{
    static const char *const names[TUI_METRICS] = {"bits", "ulp", "abs", "rel"};
    return metric >= 0 && metric < TUI_METRICS ? names[metric] : "?";
}

const char *tui_number_name(int number)
{
    static const char *const names[TUI_NUMBERS] = {"decimal", "%a", "hex"};
    return number >= 0 && number < TUI_NUMBERS ? names[number] : "?";
}

int tui_view_heads(struct tui_view *v, int n)
{
    if (n > v->n_head) {
        char(*head)[512] = realloc(v->head, (size_t)n * sizeof *head);
        if (head)
            v->head = head;
        int *role = realloc(v->head_role, (size_t)n * sizeof *role);
        if (role)
            v->head_role = role;
        if (!head || !role)
            return -1;
    }
    v->n_head = n;
    for (int i = 0; i < n; i++) {
        v->head[i][0] = '\0';
        v->head_role[i] = TUI_PLAIN;
    }
    return 0;
}

void tui_view_head(struct tui_view *v, int line, int role, const char *fmt, ...)
{
    va_list ap;
    if (line < 0 || line >= v->n_head)
        return;
    va_start(ap, fmt);
    vsnprintf(v->head[line], sizeof v->head[line], fmt, ap);
    va_end(ap);
    v->head_role[line] = role;
}

int tui_view_section(struct tui_view *v, int step, struct ds_error *err)
{
    struct tui_table *t = &v->table;
    if (tui_table_row(t) >= t->source.n_rows)
        return 1;
    for (size_t i = t->cursor + (size_t)step; i < t->n_shown; i += (size_t)step) {
        int heading = tui_row_is_heading(&t->source, t->shown[i]),
            first = i == 0 || tui_row_is_heading(&t->source, t->shown[i - 1]);
        if (first && !heading) {
            tui_table_go(t, t->shown[i], 0);
            t->top = i - (i > 0); /* with its heading */
            return 1;
        }
    }
    return ds_fail(err, step > 0 ? "this is the last section" : "this is the first section");
}

int tui_view_reset(struct tui_view *v, const struct tui_context *c, const char *name, int state)
{
    const struct tui_source none = {.name = name};
    struct ds_error err;
    v->seen = 0;
    v->at = *c->place;
    if (tui_table_source(&v->table, &none, &err) != 0)
        tui_table_free(&v->table);
    tui_view_heads(v, 0);
    return state;
}

static void add_paths(const struct ds_report *r, int first, int both, struct ds_buf *out)
{
    ds_buf_quote(out, first ? r->path_b : r->path);
    if (both) {
        ds_buf_puts(out, " ");
        ds_buf_quote(out, first ? r->path : r->path_b);
    }
}

void tui_verdict_command(const struct tui_context *c, const char *what, struct ds_buf *out)
{
    const struct ds_report *r = &c->whole->report;
    if (!r->path)
        return;
    ds_report_command(r->caller, r->path_b ? "diff" : "show", NULL, out);
    add_paths(r, 0, r->path_b != NULL, out);
    if (r->diff && r->diff->options.partial)
        ds_buf_puts(out, " --partial");
    if (r->diff && r->diff->options.across_models)
        ds_buf_puts(out, " --across-models");
    ds_buf_printf(out, "%s%s", what[0] ? " " : "", what);
}

/* Of two records, arm 2p of the joined source is pair p of A, 2p + 1 of B. Arms of both are what `diff` shows, the
 * reference's record first; two arms of one record what `show` does. */
void tui_pair_command(const struct tui_context *c, const char *what, struct ds_buf *out)
{
    const struct ds_report *r = &c->whole->report;
    const struct ds_header *h = c->whole->header;
    uint32_t arm = c->place->arm, ref = c->place->ref;
    int both = r->path_b && arm % 2 != ref % 2;
    if (!r->path || !h || !what || arm >= h->n_arms || ref >= h->n_arms)
        return;
    ds_report_command(r->caller, both ? "diff" : "show", NULL, out);
    add_paths(r, r->path_b && (both ? ref : arm) % 2, both, out);
    if (both && r->diff && r->diff->partial)
        ds_buf_puts(out, " --partial");
    if (both && r->diff && r->diff->two_models)
        ds_buf_puts(out, " --across-models");
    ds_buf_printf(out, " %s --arm %" PRIu32, what, ds_report_own_arm(r, arm));
    if (!both || arm / 2 != ref / 2)
        ds_buf_printf(out, " --against %" PRIu32, ds_report_own_arm(r, ref));
}

void tui_page_line(struct tui_page *p, int role, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    int indent = 0;
    for (char *at = text; *at && p->y < p->r.h; indent = 2) {
        size_t n = tui_text_break(at, p->r.w - indent, p->canvas->ascii);
        tui_putf(p->canvas, p->r.y + p->y++, p->r.x + indent, p->r.w - indent, role, 0, "%.*s",
                 (int)n, at);
        at += n + strspn(at + n, " ");
    }
}

void tui_site_text(const struct ds_header *h, uint32_t site, struct ds_buf *out)
{
    if (site >= h->n_sites)
        return;
    const struct ds_site *s = &h->sites[site];
    if (s->layer >= 0 && s->layer < h->n_layers)
        ds_buf_printf(out, "L%02d ", s->layer);
    ds_buf_printf(out, "%s%s%s", s->stage, s->part[0] ? "/" : "", s->part);
}

int tui_alone(const struct tui_whole *w, const struct tui_place *p)
{
    size_t trials = 0;
    for (size_t i = 0; i < w->n_trials && p->arm == p->ref; i++)
        trials += w->trials[i]->arm == p->arm && w->trials[i]->pass == DS_PASS_NATURAL;
    return p->arm == p->ref && trials < 2;
}

int tui_label_role(int label)
{
    switch (label) {
    case DS_LABEL_SAME:
    case DS_LABEL_WITHIN:
        return TUI_SAME;
    case DS_LABEL_HEALED:
        return TUI_HEALED;
    case DS_LABEL_ORIGIN:
        return TUI_ORIGIN;
    case DS_LABEL_INHERITED:
        return TUI_INHERITED;
    case DS_LABEL_UNKNOWN:
        return TUI_UNKNOWN;
    case DS_LABEL_UNSTABLE:
        return TUI_UNSTABLE;
    default:
        return TUI_MISSING;
    }
}
