/* view_site_lines.c: the table of Site: rows x arms as class letters, then what else is known of the place, each kind of it
 * a section with column names of its own. */
#include "tui/view_site.h"

#include "base/mem.h"
#include "tui/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAR = 10, WIDE_NAMES = 20, JUMP = 8 };

static const char *const metric_names[TUI_METRICS] = {"elements", "ULP", "abs", "rel"};
static const char *const part_names[SITE_PARTS] = {"row",  "launch",  "input",
                                                   "head", "channel", "position"};

/* ---- sizes ----------------------------------------------------------------------------------- */

double site_drift_size(const struct ds_drift *d, int metric)
{
    switch (metric) {
    case TUI_METRIC_ULP:
        return (double)d->max_ulp;
    case TUI_METRIC_ABS:
        return d->max_abs;
    case TUI_METRIC_REL:
        return d->ref_sq > 0 ? sqrt(d->diff_sq / d->ref_sq) : d->diff_sq > 0 ? (double)INFINITY : 0;
    default:
        return d->elements;
    }
}

static double part_size(const struct ds_profile_part *p, int metric)
{
    switch (metric) {
    case TUI_METRIC_ULP:
        return (double)p->max_ulp;
    case TUI_METRIC_ABS:
        return p->max_abs;
    case TUI_METRIC_REL:
        return p->relative_rms;
    default:
        return (double)p->elements;
    }
}

/* Whole numbers in full. */
void site_size_text(double size, int metric, char *out, size_t n)
{
    if ((metric == TUI_METRIC_BITS || metric == TUI_METRIC_ULP) && size < 1e15)
        snprintf(out, n, "%.0f", size);
    else
        tui_size_text(size, out, n);
}

static int metric_at(const struct site_own *o, size_t other)
{
    int metric = (int)other;
    return metric >= o->at.metric ? metric + 1 : metric;
}

/* ---- lines ----------------------------------------------------------------------------------- */

void site_old_free(struct site_own *o)
{
    free(o->old_columns);
    free(o->old_names);
    o->old_columns = NULL;
    o->old_names = NULL;
}

void site_lines_free(struct site_own *o)
{
    free(o->lines);
    free(o->rows);
    free(o->jump);
    if (o->old_columns) { /* the table does not know those yet that come after */
        free(o->columns);
        free(o->arm_name);
    } else {
        o->old_columns = o->columns;
        o->old_names = o->arm_name;
    }
    o->lines = NULL;
    o->rows = NULL;
    o->jump = NULL;
    o->columns = NULL;
    o->arm_name = NULL;
    o->n_lines = o->n_rows = o->n_columns = 0;
}

static int drifts(int label)
{
    return label >= DS_LABEL_ORIGIN;
}

static int any_arm(const struct tui_site *s, size_t row)
{
    const uint32_t *class_of = s->class_of + row * s->n_arms;
    for (size_t arm = 0; arm < s->n_arms; arm++)
        if (class_of[arm] != UINT32_MAX)
            return 1;
    return 0;
}

/* The rows that there are, which of them are far larger than the one before, the largest. */
static int make_rows(struct site_own *o, struct ds_error *err)
{
    const struct tui_site *s = o->site;
    double before = 0;
    o->rows = ds_calloc(s->n_rows, sizeof *o->rows, "rows", err);
    o->jump = ds_calloc(s->n_rows, 1, "rows", err);
    if (!o->rows || !o->jump)
        return -1;
    o->n_rows = o->n_drift = o->n_missing = o->n_nonfinite = 0;
    for (size_t i = 0; i < s->n_rows; i++) {
        const struct tui_row_fact *f = &s->facts[i];
        if (!f->has && !f->ref_has && !any_arm(s, i))
            continue;
        o->rows[o->n_rows++] = (uint32_t)i;
        o->n_drift += (size_t)drifts(s->labels[i]);
        o->n_missing += s->labels[i] == DS_LABEL_ABSENT;
        o->n_nonfinite += f->sized && (f->drift.nonfinite || f->drift.ref_nonfinite);
        if (!f->sized || !drifts(s->labels[i]))
            continue;
        double size = site_drift_size(&f->drift, o->at.metric),
               relative = site_drift_size(&f->drift, TUI_METRIC_REL);
        if (isfinite(size) && size > o->most[SITE_ROWS])
            o->most[SITE_ROWS] = size;
        o->jump[i] = before > 0 && relative >= JUMP * before;
        before = relative > 0 ? relative : before;
    }
    return 0;
}

static size_t profile_parts(const struct tui_site *s, uint32_t part,
                            const struct ds_profile_part **out)
{
    const struct ds_site_profile *p = s->profile;
    *out = !p                       ? NULL
           : part == SITE_HEADS     ? p->heads
           : part == SITE_CHANNELS  ? p->channels
           : part == SITE_POSITIONS ? p->positions
                                    : NULL;
    return !*out                   ? 0
           : part == SITE_HEADS    ? p->n_heads
           : part == SITE_CHANNELS ? p->n_channels
                                   : p->n_positions;
}

static void count_lines(struct site_own *o)
{
    o->count[SITE_ROWS] = o->n_rows;
    o->count[SITE_LAUNCH] = o->n_fields ? o->n_fields + o->n_commands : 0;
    o->count[SITE_INPUTS] = o->site->n_inputs;
    for (uint32_t part = SITE_HEADS; part < SITE_PARTS; part++) {
        const struct ds_profile_part *p;
        o->count[part] = profile_parts(o->site, part, &p);
        for (size_t i = 0; i < o->count[part]; i++) {
            double size = part_size(&p[i], o->at.metric);
            if (isfinite(size) && size > o->most[part])
                o->most[part] = size;
        }
    }
}

static void put_section(struct site_own *o, uint32_t part)
{
    if (o->count[part] == 0)
        return;
    o->lines[o->n_lines++] = (struct site_line){part, SITE_HEAD};
    o->first[part] = o->n_lines;
    if (o->folded[part])
        o->lines[o->n_lines++] = (struct site_line){part, SITE_FOLDED};
    for (size_t i = 0; !o->folded[part] && i < o->count[part]; i++)
        o->lines[o->n_lines++] =
            (struct site_line){part, part == SITE_ROWS ? o->rows[i] : (uint32_t)i};
}

/* ---- columns --------------------------------------------------------------------------------- */

/* Arms are named by their values where there is room for that, else by their numbers. The pair's are marked: ">" this
 * side, "<" the reference. */
static void name_arms(struct site_own *o)
{
    size_t total = 0;
    for (uint32_t arm = 0; arm < o->n_arms; arm++) {
        struct ds_buf text = {0};
        tui_arm_text(o->h, arm, &text);
        const char *mark = arm == o->at.arm ? ">" : arm == o->at.ref ? "<" : "";
        size_t most = sizeof o->arm_name[arm] - 1;
        int whole = text.data && strlen(text.data) <= WIDE_NAMES && strlen(text.data) < most;
        snprintf(o->arm_name[arm], most + 1, "%s%s", mark, whole ? text.data : "");
        if (!whole)
            snprintf(o->arm_name[arm], most + 1, "%sarm %" PRIu32, mark, arm);
        total += strlen(o->arm_name[arm]) + 1;
        ds_buf_free(&text);
    }
    for (size_t arm = 0; total + 48 > (size_t)o->width && arm < o->n_arms; arm++)
        snprintf(o->arm_name[arm], sizeof o->arm_name[arm], "%s%zu",
                 arm == o->at.arm   ? ">"
                 : arm == o->at.ref ? "<"
                                    : "",
                 arm);
}

static int make_columns(struct site_own *o, struct ds_error *err)
{
    o->n_arms = o->site->n_arms < o->h->n_arms ? o->site->n_arms : o->h->n_arms;
    o->n_columns = SITE_ARMS + o->n_arms + SITE_BEHIND;
    o->columns = ds_calloc(o->n_columns, sizeof *o->columns, "columns", err);
    o->arm_name = ds_calloc(o->n_arms, sizeof *o->arm_name, "columns", err);
    if (!o->columns || !o->arm_name)
        return -1;
    name_arms(o);
    struct tui_column *c = o->columns;
    c[SITE_KEY] = (struct tui_column){"row", TUI_LEFT, TUI_COLUMN_FIXED, 6, 28};
    c[SITE_KIND] = (struct tui_column){"kind", TUI_LEFT, 0, 0, 0};
    c[SITE_STEP] = (struct tui_column){"step", TUI_RIGHT, 0, 0, 0};
    c[SITE_LABEL] = (struct tui_column){"label", TUI_LEFT, 0, 9, 0};
    c[SITE_SIZE] = (struct tui_column){metric_names[o->at.metric], TUI_RIGHT, 0, 8, 0};
    c[SITE_BAR] = (struct tui_column){"bar", TUI_LEFT, 0, BAR, BAR};
    for (size_t arm = 0; arm < o->n_arms; arm++)
        c[SITE_ARMS + arm] = (struct tui_column){o->arm_name[arm], TUI_CENTRE, 0, 1, 0};
    c += SITE_ARMS + o->n_arms;
    for (size_t i = 0; i < SITE_OTHERS; i++)
        *c++ = (struct tui_column){metric_names[metric_at(o, i)], TUI_RIGHT, 0, 0, 0};
    *c++ = (struct tui_column){tui_side_name(o->whole, &o->at, 0), TUI_LEFT, 0, 0, 0};
    *c = (struct tui_column){tui_side_name(o->whole, &o->at, 1), TUI_LEFT, 0, 0, 0};
    return 0;
}

int site_lines_make(struct site_own *o, struct ds_error *err)
{
    size_t most = 0;
    site_lines_free(o);
    memset(o->most, 0, sizeof o->most);
    if (make_rows(o, err) != 0 || make_columns(o, err) != 0)
        return -1;
    count_lines(o);
    for (uint32_t part = 0; part < SITE_PARTS; part++)
        most += o->count[part] + 2;
    if (!(o->lines = ds_calloc(most, sizeof *o->lines, "lines", err)))
        return -1;
    for (uint32_t part = 0; part < SITE_PARTS; part++)
        put_section(o, part);
    return 0;
}

size_t site_line_of(const struct site_own *o, size_t row)
{
    size_t low = 0, high = o->folded[SITE_ROWS] ? 0 : o->n_rows;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (o->rows[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low < o->n_rows && !o->folded[SITE_ROWS] && o->rows[low] == row
               ? o->first[SITE_ROWS] + low
               : SIZE_MAX;
}

size_t site_row_of(const struct site_own *o, size_t line)
{
    size_t best = SIZE_MAX, first = SIZE_MAX;
    const struct ds_profile_part *p = NULL;
    if (line >= o->n_lines || !o->site)
        return SIZE_MAX;
    struct site_line l = o->lines[line];
    if (l.part == SITE_ROWS)
        return l.index < o->site->n_rows ? l.index : SIZE_MAX;
    size_t parts = profile_parts(o->site, l.part, &p);
    for (size_t i = 0; i < o->n_rows && l.part >= SITE_HEADS && l.index < parts; i++) {
        size_t row = o->rows[i];
        const struct tui_row_fact *f = &o->site->facts[row];
        if (!drifts(o->site->labels[row]) ||
            (l.part == SITE_POSITIONS && o->site->keys[row].position != p[l.index].index))
            continue;
        first = first == SIZE_MAX ? row : first;
        if (f->dumped && f->ref_dumped && best == SIZE_MAX)
            best = row;
    }
    return best != SIZE_MAX ? best : first;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void put_text(struct tui_value *v, int role, const char *text)
{
    snprintf(v->text, sizeof v->text, "%s", text);
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

/* What stands for the size of a row: "=" equal bits, "?" not recorded, nothing where there is nothing to
 * compare. */
static void row_size(const struct site_own *o, size_t row, int metric, struct tui_value *v)
{
    const struct tui_row_fact *f = &o->site->facts[row];
    int label = o->site->labels[row];
    if (label == DS_LABEL_ABSENT || o->alone) {
        put_nothing(v);
        put_text(v, TUI_MISSING, ".");
    } else if (!drifts(label)) {
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
    snprintf(v->text, sizeof v->text, "%016" PRIx64, mine ? f->digest : f->ref_digest);
    v->role = f->has && f->ref_has && f->digest != f->ref_digest && mine ? TUI_DIFFERS : TUI_DIM;
}

static void row_arm(const struct site_own *o, size_t row, size_t arm, struct tui_value *v)
{
    uint32_t class_of = o->site->class_of[row * o->site->n_arms + arm];
    char letter[2] = {tui_class_letter(class_of), '\0'};
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
        int n = snprintf(v->text, sizeof v->text, "%d:%d", k->request, k->position);
        if (k->occurrence && n > 0)
            snprintf(v->text + n, sizeof v->text - (size_t)n, "#%d", k->occurrence);
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
        if (drifts(o->site->labels[row]) && f->sized)
            tui_bar_text(site_drift_size(&f->drift, o->at.metric), o->most[SITE_ROWS], BAR,
                         o->ascii, v->text, sizeof v->text);
        v->null = 1;
    } else if (column < SITE_ARMS + o->n_arms) {
        row_arm(o, row, column - SITE_ARMS, v);
    } else if (column < SITE_ARMS + o->n_arms + SITE_OTHERS) {
        row_size(o, row, metric_at(o, column - SITE_ARMS - o->n_arms), v);
    } else {
        row_digest(f, column + 1 == o->n_columns, v);
    }
}

static void profile_cell(const struct site_own *o, struct site_line l, size_t column,
                         struct tui_value *v)
{
    const struct ds_profile_part *p;
    if (l.index >= profile_parts(o->site, l.part, &p))
        return;
    p += l.index;
    size_t behind = column - SITE_ARMS - o->n_arms;
    if (column == SITE_KEY)
        put_number(v, TUI_PLAIN, p->index, TUI_METRIC_BITS);
    else if (column == SITE_LABEL)
        put_number(v, TUI_PLAIN, p->rows, TUI_METRIC_BITS);
    else if (column == SITE_SIZE)
        put_number(v, TUI_PLAIN, part_size(p, o->at.metric), o->at.metric);
    else if (column == SITE_BAR)
        tui_bar_text(part_size(p, o->at.metric), o->most[l.part], BAR, o->ascii, v->text,
                     sizeof v->text);
    else if (column >= SITE_ARMS + o->n_arms && behind < SITE_OTHERS)
        put_number(v, TUI_PLAIN, part_size(p, metric_at(o, behind)), metric_at(o, behind));
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
    return (drifts(label) ? TUI_IS_DRIFT : 0) | (label == DS_LABEL_ORIGIN ? TUI_IS_ORIGIN : 0) |
           (o->jump[row] ? TUI_IS_JUMP : 0);
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
