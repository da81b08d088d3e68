/* view_site_cells.c: the cells of Site's table, section by section. */
#include "tui/view_site.h"

#include "tui/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const part_names[SITE_PARTS] = {"row",  "launch",  "input",
                                                   "head", "channel", "position"};

static void put_text(struct tui_value *v, int role, const char *text)
{
    tui_value_put(v, text);
    v->role = role;
}

static void put_nothing(struct tui_value *v)
{
    v->null = 1;
    v->role = TUI_MISSING;
}

static void put_number(struct tui_value *v, int role, double key, int metric)
{
    site_size_text(key, metric, v->text, sizeof v->text);
    v->role = role;
    v->numeric = 1;
    v->key = key;
}

/* What stands for the size of a row: "=" equal bits, "?" not recorded, nothing where there is
 * nothing to compare. */
static void row_size(const struct site_own *o, size_t row, int metric, struct tui_value *v)
{
    const struct tui_row_fact *f = &o->site->facts[row];
    int label = o->site->labels[row];
    if (label == DS_LABEL_ABSENT || o->alone) {
        put_nothing(v);
        put_text(v, TUI_MISSING, ".");
    } else if (!site_drifts(label)) {
        put_text(v, TUI_SAME, "=");
        v->numeric = 1;
    } else if (!f->sized) {
        put_nothing(v);
        put_text(v, TUI_UNKNOWN, "?");
    } else {
        int finite = f->drift.nonfinite == 0 && f->drift.ref_nonfinite == 0;
        put_number(v, finite ? TUI_PLAIN : TUI_NONFINITE, site_drift_size(&f->drift, metric),
                   metric);
        if (!finite && metric != TUI_METRIC_BITS && v->key <= 0)
            put_text(v, TUI_NONFINITE, "NaN");
    }
}

static void row_label(const struct site_own *o, size_t row, struct tui_value *v)
{
    const struct tui_row_fact *f = &o->site->facts[row];
    int label = o->site->labels[row];
    if (o->alone && f->has) {
        put_text(v, TUI_PLAIN, "recorded");
    } else if (label != DS_LABEL_ABSENT) {
        put_text(v, tui_label_role(label), ds_label_name(label));
    } else if (f->has && f->ref_has) {
        put_text(v, TUI_MISSING, "not compared");
    } else if (f->has || f->ref_has) {
        put_text(v, TUI_MISSING, "");
        snprintf(v->text, sizeof v->text, "%s only", tui_side_name(o->whole, &o->at, f->has));
    } else {
        put_text(v, TUI_MISSING, "absent");
    }
}

static void row_digest(const struct tui_row_fact *f, int mine, struct tui_value *v)
{
    if (mine ? !f->has : !f->ref_has) {
        put_nothing(v);
        return;
    }
    tui_digest_text(mine ? f->digest : f->ref_digest, v->text);
    v->role = f->has && f->ref_has && f->digest != f->ref_digest && mine ? TUI_DIFFERS : TUI_DIM;
}

static void row_arm(const struct site_own *o, size_t row, size_t arm, struct tui_value *v)
{
    uint32_t class_of = o->site->class_of[row * o->site->n_arms + arm];
    char letter[2] = {ds_report_class_letter(class_of), '\0'};
    put_text(v, class_of == UINT32_MAX ? TUI_MISSING : class_of ? TUI_DIFFERS : TUI_SAME, letter);
    v->null = class_of == UINT32_MAX;
    v->attr = arm == o->at.arm || arm == o->at.ref ? TUI_BOLD : 0;
}

static void row_cell(const struct site_own *o, size_t row, size_t column, struct tui_value *v)
{
    const struct tui_row_fact *f = &o->site->facts[row];
    const struct ds_row_key *k = &o->site->keys[row];
    int known = f->has || f->ref_has;
    if (column == SITE_KEY) {
        size_t n = tui_whole_text(k->request, v->text);
        v->text[n++] = ':';
        n += tui_whole_text(k->position, v->text + n);
        if (k->occurrence) {
            v->text[n++] = '#';
            tui_whole_text(k->occurrence, v->text + n);
        }
    } else if (column == SITE_KIND || column == SITE_STEP) {
        if (!known)
            put_nothing(v);
        else if (column == SITE_KIND)
            put_text(v, TUI_DIM, ds_row_kind_name(f->row.kind));
        else
            put_number(v, TUI_PLAIN, f->row.step, TUI_METRIC_BITS);
    } else if (column == SITE_LABEL) {
        row_label(o, row, v);
    } else if (column == SITE_SIZE) {
        row_size(o, row, o->at.metric, v);
    } else if (column == SITE_BAR) {
        if (site_drifts(o->site->labels[row]) && f->sized)
            tui_bar_text(site_drift_size(&f->drift, o->at.metric), o->most[SITE_ROWS],
                         SITE_BAR_CELLS, o->ascii, v->text, sizeof v->text);
        v->null = 1;
    } else if (column < SITE_ARMS + o->n_arms) {
        row_arm(o, row, column - SITE_ARMS, v);
    } else if (column < SITE_ARMS + o->n_arms + SITE_OTHERS) {
        row_size(o, row, site_metric_at(o, column - SITE_ARMS - o->n_arms), v);
    } else {
        row_digest(f, column + 1 == o->n_columns, v);
    }
}

static void profile_cell(const struct site_own *o, struct site_line l, size_t column,
                         struct tui_value *v)
{
    const struct ds_profile_part *p;
    if (l.index >= site_parts(o->site, l.part, &p))
        return;
    p += l.index;
    size_t behind = column - SITE_ARMS - o->n_arms;
    if (column == SITE_KEY)
        put_number(v, TUI_PLAIN, p->index, TUI_METRIC_BITS);
    else if (column == SITE_LABEL)
        put_number(v, TUI_PLAIN, p->rows, TUI_METRIC_BITS);
    else if (column == SITE_SIZE)
        put_number(v, TUI_PLAIN, site_part_size(p, o->at.metric), o->at.metric);
    else if (column == SITE_BAR)
        tui_bar_text(site_part_size(p, o->at.metric), o->most[l.part], SITE_BAR_CELLS, o->ascii,
                     v->text, sizeof v->text);
    else if (column >= SITE_ARMS + o->n_arms && behind < SITE_OTHERS)
        put_number(v, TUI_PLAIN, site_part_size(p, site_metric_at(o, behind)),
                   site_metric_at(o, behind));
    v->null = !v->numeric;
}

static void input_cell(const struct site_own *o, uint32_t index, size_t column, struct tui_value *v)
{
    static const char *const edges[] = {"same row", "rows up to it", "all rows"};
    const struct tui_input *x = &o->site->inputs[index];
    if (column == SITE_KEY)
        tui_site_name(o->h, x->site, v->text, sizeof v->text);
    else if (column == SITE_KIND && x->edge >= 0 && x->edge < 3)
        put_text(v, TUI_DIM, edges[x->edge]);
    else if (column == SITE_LABEL)
        put_text(v, tui_label_role(x->label), ds_label_name(x->label));
}

/* A text line: what both sides did, and beside what is unequal "!=". */
static void launch_text(const struct site_own *o, uint32_t index, struct tui_value *v)
{
    if (index >= o->n_fields) {
        size_t k = index - o->n_fields;
        if (k < o->n_commands)
            snprintf(v->text, sizeof v->text, "%-12s driftscope %s", o->command[k].name,
                     o->command[k].text + o->command[k].verb);
        else if (k - o->n_commands < o->n_kernels)
            snprintf(v->text, sizeof v->text, "%-12s %s", "kernel", o->kernel[k - o->n_commands]);
        else
            snprintf(v->text, sizeof v->text, "%-12s %s", "", o->tree);
        v->role = TUI_DIM;
        return;
    }
    const struct ds_report_launch_field *f = &o->field[index];
    int wide = 0;
    for (size_t i = 0; i < o->n_fields; i++)
        wide = tui_text_width(o->field[i].text[0], o->ascii) > wide
                   ? tui_text_width(o->field[i].text[0], o->ascii)
                   : wide;
    int pad = wide - tui_text_width(f->text[0], o->ascii);
    snprintf(v->text, sizeof v->text, "%-12.12s %s%*s %s %s", f->name, f->text[0],
             pad > 0 ? pad : 0, "", f->differs ? "!=" : " =", f->text[1]);
    v->role = f->differs ? TUI_PLAIN : TUI_DIM;
    if (!f->differs)
        return;
    size_t from = 13, len = strlen(f->text[0]), mine = strlen(f->text[1]), all = strlen(v->text);
    v->span_role = TUI_DIFFERS;
    v->n_spans = 2;
    v->span[0].begin = (uint16_t)from;
    v->span[0].end = (uint16_t)(from + len);
    v->span[1].begin = (uint16_t)(all - mine);
    v->span[1].end = (uint16_t)all;
}

static void head_cell(const struct site_own *o, uint32_t part, size_t column, struct tui_value *v)
{
    int sizes = part == SITE_ROWS || part >= SITE_HEADS;
    v->role = TUI_HEAD;
    if (part == SITE_LAUNCH) {
        if (column == SITE_KEY)
            snprintf(v->text, sizeof v->text, "launch       %s != %s",
                     tui_side_name(o->whole, &o->at, 0), tui_side_name(o->whole, &o->at, 1));
        return;
    }
    if (column == SITE_KEY)
        put_text(v, TUI_HEAD, part_names[part]);
    else if (column == SITE_LABEL && part >= SITE_HEADS)
        put_text(v, TUI_HEAD, "rows");
    else if (column == SITE_KIND && part == SITE_INPUTS)
        put_text(v, TUI_HEAD, "reads");
    else if (part == SITE_ROWS || column == SITE_LABEL ||
             (sizes &&
              (column == SITE_SIZE || column == SITE_BAR ||
               (column >= SITE_ARMS + o->n_arms && column < SITE_ARMS + o->n_arms + SITE_OTHERS))))
        put_text(v, TUI_HEAD, column < o->n_columns ? o->columns[column].name : "");
}

static void cell(void *ctx, size_t line, size_t column, struct tui_value *v)
{
    const struct site_own *o = ctx;
    if (!o->site || line >= o->n_lines || column >= o->n_columns)
        return;
    struct site_line l = o->lines[line];
    if (l.index == SITE_HEAD) {
        head_cell(o, l.part, column, v);
    } else if (l.index == SITE_FOLDED) {
        snprintf(v->text, sizeof v->text, "%s %zu line%s folded", tui_glyph(TUI_G_FOLD, o->ascii),
                 o->count[l.part], o->count[l.part] == 1 ? "" : "s");
        v->role = TUI_DIM;
    } else if (l.part == SITE_ROWS) {
        if (l.index < o->site->n_rows)
            row_cell(o, l.index, column, v);
    } else if (l.part == SITE_LAUNCH) {
        launch_text(o, l.index, v);
    } else if (l.part == SITE_INPUTS) {
        if (l.index < o->site->n_inputs)
            input_cell(o, l.index, column, v);
    } else {
        profile_cell(o, l, column, v);
    }
}

static int kind(void *ctx, size_t line)
{
    const struct site_own *o = ctx;
    if (line >= o->n_lines)
        return TUI_ROW;
    struct site_line l = o->lines[line];
    if (l.index == SITE_HEAD)
        return l.part == SITE_LAUNCH ? TUI_ROW_SECTION : TUI_ROW_HEADS;
    return l.index == SITE_FOLDED || l.part == SITE_LAUNCH ? TUI_ROW_TEXT : TUI_ROW;
}

static int is(void *ctx, size_t line, size_t column)
{
    const struct site_own *o = ctx;
    (void)column;
    if (!o->site || line >= o->n_lines || o->lines[line].part != SITE_ROWS ||
        o->lines[line].index >= o->site->n_rows)
        return 0;
    size_t row = o->lines[line].index;
    int label = o->site->labels[row];
    return (site_drifts(label) ? TUI_IS_DRIFT : 0) |
           (label == DS_LABEL_ORIGIN ? TUI_IS_ORIGIN : 0) | (o->jump[row] ? TUI_IS_JUMP : 0);
}

void site_source(struct site_own *o, struct tui_source *out)
{
    *out = (struct tui_source){.ctx = o,
                               .columns = o->columns,
                               .n_columns = o->n_columns,
                               .n_rows = o->n_lines,
                               .cell = cell,
                               .kind = kind,
                               .is = is,
                               .name = "rows"};
}
