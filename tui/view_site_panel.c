/* view_site_panel.c: beside Site's table: what is known of the row under the cursor, and which
 * settings share its bits. */
#include "tui/view_site.h"

#include "tui/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void draw_key(struct tui_page *p, const struct site_own *o, size_t row)
{
    const struct ds_row_key *k = &o->site->keys[row];
    const struct tui_row_fact *f = &o->site->facts[row];
    tui_page_line(p, TUI_HEAD, "request %d, position %d%s", k->request, k->position,
                  k->occurrence ? ", computed again" : "");
    if (k->occurrence)
        tui_page_line(p, TUI_PLAIN, "occurrence %d", k->occurrence);
    if (!f->has && !f->ref_has)
        return;
    tui_page_line(p, TUI_PLAIN, "%s row, step %d, slot %d", ds_row_kind_name(f->row.kind),
                  f->row.step, f->row.slot);
    if (f->row.q_len || f->row.kv_len)
        tui_page_line(p, TUI_PLAIN, "%d new row%s of its request, sees %d", f->row.q_len,
                      f->row.q_len == 1 ? "" : "s", f->row.kv_len);
}

static void draw_side(struct tui_page *p, const struct site_own *o, size_t row, int mine)
{
    const struct tui_row_fact *f = &o->site->facts[row];
    const char *name = tui_side_name(o->whole, &o->at, mine);
    const uint64_t digest = mine ? f->digest : f->ref_digest;
    const int damaged = tui_whole_damaged(o->whole, digest);
    if (mine ? f->has : f->ref_has)
        tui_page_line(p, damaged ? TUI_ERROR : TUI_PLAIN, "%-9s %016" PRIx64 "%s", name, digest,
                      damaged                              ? "  damaged"
                      : (mine ? f->dumped : f->ref_dumped) ? "  dumped"
                                                           : "");
    else
        tui_page_line(p, TUI_MISSING, "%-9s not recorded", name);
}

/* What the repeats of either side gave for the row. */
static void draw_repeats(struct tui_page *p, const struct site_own *o, size_t row)
{
    for (int i = 0; i < 2; i++) {
        const struct ds_census_site *c = &o->site->repeats[i];
        struct ds_buf text = {0};
        if (!c->unstable || c->rows[row].values < 2)
            continue;
        ds_report_census_row(&c->rows[row], &text);
        tui_page_line(p, TUI_UNSTABLE, "%s%s%s",
                      o->site->arm == o->site->ref ? "" : tui_side_name(o->whole, &o->at, i),
                      o->site->arm == o->site->ref ? "" : ": ", text.data ? text.data : "");
        ds_buf_free(&text);
    }
}

static void draw_sizes(struct tui_page *p, const struct site_own *o, size_t row)
{
    const struct tui_row_fact *f = &o->site->facts[row];
    const struct ds_drift *d = &f->drift;
    char text[4][32];
    int label = o->site->labels[row];
    if (o->alone)
        return;
    tui_page_line(p, tui_label_role(label), "%s", ds_label_name(label));
    if (label != DS_LABEL_ORIGIN && o->pair && o->pair->healed &&
        o->site->site < o->pair->n_sites && row < o->pair->n_rows &&
        o->pair->healed[o->site->site * o->pair->n_rows + row] != DS_LABEL_ABSENT)
        tui_page_line(p, TUI_PLAIN, "on equal inputs: %s",
                      ds_label_name(o->pair->healed[o->site->site * o->pair->n_rows + row]));
    if (label < DS_LABEL_ORIGIN)
        return;
    if (!f->sized) {
        tui_page_line(p, TUI_UNKNOWN, "sizes not recorded");
        return;
    }
    for (int metric = 0; metric < TUI_METRICS; metric++)
        site_size_text(site_drift_size(d, metric), metric, text[metric], sizeof text[metric]);
    tui_page_line(p, TUI_PLAIN, "%s elements, first %" PRIu32, text[TUI_METRIC_BITS], d->first);
    tui_page_line(p, TUI_PLAIN, "max %s ULP, max abs %s", text[TUI_METRIC_ULP],
                  text[TUI_METRIC_ABS]);
    tui_page_line(p, TUI_PLAIN, "relative rms %s", text[TUI_METRIC_REL]);
    if (d->flags & DS_DRIFT_VALUES_EQUAL)
        tui_page_line(p, TUI_DIFFERS, "bits differ, values are equal (-0 and 0)");
    if (d->flags & DS_DRIFT_NAN_BITS)
        tui_page_line(p, TUI_DIFFERS, "only bits of NaN differ");
    if (d->nonfinite || d->ref_nonfinite)
        tui_page_line(p, TUI_NONFINITE, "NaN or Inf: %" PRIu32 " %s, %" PRIu32 " %s",
                      d->ref_nonfinite, tui_side_name(o->whole, &o->at, 0), d->nonfinite,
                      tui_side_name(o->whole, &o->at, 1));
}

/* "a  base arm; threads 2", a class after the other; as many arms as fit into two lines. */
static void draw_classes(struct tui_page *p, const struct site_own *o, size_t row)
{
    const uint32_t *class_of = o->site->class_of + row * o->site->n_arms;
    uint32_t most = 0;
    for (size_t arm = 0; arm < o->n_arms; arm++)
        if (class_of[arm] != UINT32_MAX && class_of[arm] >= most)
            most = class_of[arm] + 1;
    tui_page_line(p, TUI_HEAD, "the same bits in");
    for (uint32_t c = 0; c < most && p->y < p->r.h; c++) {
        struct ds_buf text = {0};
        size_t n = 0, told = 0;
        for (uint32_t arm = 0; arm < o->n_arms; arm++) {
            if (class_of[arm] != c)
                continue;
            n++;
            if (text.len < 2 * (size_t)p->r.w) {
                ds_buf_puts(&text, told++ ? "; " : "");
                ds_report_arm_values(o->h, arm, &text);
            }
        }
        if (n)
            tui_page_line(p, c ? TUI_DIFFERS : TUI_SAME, "%c  %zu: %s", ds_report_class_letter(c),
                          n, text.data ? text.data : "");
        ds_buf_free(&text);
    }
}

static void draw_inputs(struct tui_page *p, const struct site_own *o)
{
    char name[64];
    if (o->site->n_inputs == 0)
        return;
    tui_page_line(p, TUI_HEAD, "reads");
    for (size_t i = 0; i < o->site->n_inputs && p->y < p->r.h; i++) {
        const struct tui_input *x = &o->site->inputs[i];
        tui_site_name(o->h, x->site, name, sizeof name);
        tui_page_line(p, tui_label_role(x->label), "%-16s %s", name, ds_label_name(x->label));
    }
}

/* Launch fields in three columns; the differing ones marked. */
static void draw_launches(struct tui_page *p, const struct site_own *o)
{
    int wide = (p->r.w - 16) / 2;
    if (o->n_fields == 0 || wide < 4)
        return;
    tui_page_line(p, TUI_HEAD, "%-12s   %-*s %s", "launch", wide,
                  tui_side_name(o->whole, &o->at, 0), tui_side_name(o->whole, &o->at, 1));
    for (size_t i = 0; i < o->n_fields && p->y < p->r.h; i++) {
        const struct ds_report_launch_field *f = &o->field[i];
        int y = p->r.y + p->y++, role = f->differs ? TUI_DIFFERS : TUI_DIM;
        tui_put(p->canvas, y, p->r.x, 12, TUI_DIM, 0, f->name);
        tui_put(p->canvas, y, p->r.x + 13, 1, role, 0, f->differs ? "!" : "");
        tui_put(p->canvas, y, p->r.x + 15, wide, role, 0, f->text[0]);
        tui_put(p->canvas, y, p->r.x + 16 + wide, p->r.w - 16 - wide, role, 0, f->text[1]);
    }
}

/* What the table has in lines of its own, which a narrow screen cuts. */
static void draw_kernels(struct tui_page *p, const struct site_own *o)
{
    if (o->n_fields == 0)
        return;
    for (size_t i = 0; i < o->n_kernels; i++)
        tui_page_line(p, TUI_DIM, "%s", o->kernel[i]);
    if (o->tree[0])
        tui_page_line(p, TUI_DIM, "%s", o->tree);
    for (size_t i = 0; i < o->n_commands; i++)
        tui_page_line(p, TUI_DIM, "%s: driftscope %s", o->command[i].name,
                      o->command[i].text + o->command[i].verb);
}

void site_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                struct tui_rect r)
{
    const struct site_own *o = v->own;
    struct tui_page p = {canvas, r, 0};
    (void)c;
    if (!o || !o->site)
        return;
    size_t row = site_row_of(o, tui_table_row(&v->table));
    if (row < o->site->n_rows) {
        draw_key(&p, o, row);
        draw_side(&p, o, row, 0);
        draw_side(&p, o, row, 1);
        draw_repeats(&p, o, row);
        draw_sizes(&p, o, row);
        draw_classes(&p, o, row);
    }
    draw_inputs(&p, o);
    draw_launches(&p, o);
    draw_kernels(&p, o);
}
