/* view_site_lines.c: the table of Site: rows x arms as class letters, then what else is known of
 * the place, each kind of it a section with column names of its own. */
#include "tui/view_site.h"

#include "base/mem.h"
#include "tui/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE_NAMES = 20, JUMP = 8 };

static const char *const metric_names[TUI_METRICS] = {"elements", "ULP", "abs", "rel"};
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

double site_part_size(const struct ds_profile_part *p, int metric)
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
    if ((metric == TUI_METRIC_BITS || metric == TUI_METRIC_ULP) && size < 1e15 &&
        n >= TUI_WHOLE_TEXT)
        tui_whole_text((int64_t)rint(size), out);
    else
        ds_size_text(size, out, n);
}

int site_metric_at(const struct site_own *o, size_t other)
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
        o->n_drift += (size_t)site_drifts(s->labels[i]);
        o->n_missing += s->labels[i] == DS_LABEL_ABSENT;
        o->n_nonfinite += f->sized && (f->drift.nonfinite || f->drift.ref_nonfinite);
        if (!f->sized || !site_drifts(s->labels[i]))
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

size_t site_parts(const struct tui_site *s, uint32_t part, const struct ds_profile_part **out)
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
    o->count[SITE_LAUNCH] =
        o->n_fields ? o->n_fields + o->n_commands + o->n_kernels + (o->tree[0] != 0) : 0;
    o->count[SITE_INPUTS] = o->site->n_inputs;
    for (uint32_t part = SITE_HEADS; part < SITE_PARTS; part++) {
        const struct ds_profile_part *p;
        o->count[part] = site_parts(o->site, part, &p);
        for (size_t i = 0; i < o->count[part]; i++) {
            double size = site_part_size(&p[i], o->at.metric);
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

/* Arms are named by their values where there is room for that, else by their numbers. The pair's
 * are marked: ">" this side, "<" the reference. */
static void name_arms(struct site_own *o)
{
    size_t total = 0;
    for (uint32_t arm = 0; arm < o->n_arms; arm++) {
        struct ds_buf text = {0};
        ds_report_arm_values(o->h, arm, &text);
        const char *mark = arm == o->at.arm ? ">" : arm == o->at.ref ? "<" : "";
        size_t most = sizeof o->arm_name[arm] - 1;
        int whole = text.data && strlen(text.data) <= WIDE_NAMES && strlen(text.data) < most;
        snprintf(o->arm_name[arm], most + 1, "%s%s", mark, whole ? text.data : "");
        if (!whole)
            snprintf(o->arm_name[arm], most + 1, "%sarm %" PRIu32, mark, arm);
        total += strlen(o->arm_name[arm]) + 1;
        ds_buf_free(&text);
    }
    for (size_t arm = 0; total + SITE_BEFORE_ARMS > (size_t)o->width && arm < o->n_arms; arm++)
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
    c[SITE_BAR] = (struct tui_column){"bar", TUI_LEFT, 0, SITE_BAR_CELLS, SITE_BAR_CELLS};
    for (size_t arm = 0; arm < o->n_arms; arm++)
        c[SITE_ARMS + arm] = (struct tui_column){o->arm_name[arm], TUI_CENTRE, 0, 1, 0};
    c += SITE_ARMS + o->n_arms;
    for (size_t i = 0; i < SITE_OTHERS; i++)
        *c++ = (struct tui_column){metric_names[site_metric_at(o, i)], TUI_RIGHT, 0, 0, 0};
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
    size_t parts = site_parts(o->site, l.part, &p);
    for (size_t i = 0; i < o->n_rows && l.part >= SITE_HEADS && l.index < parts; i++) {
        size_t row = o->rows[i];
        const struct tui_row_fact *f = &o->site->facts[row];
        if (!site_drifts(o->site->labels[row]) ||
            (l.part == SITE_POSITIONS && o->site->keys[row].position != p[l.index].index))
            continue;
        first = first == SIZE_MAX ? row : first;
        if (f->dumped && f->ref_dumped && best == SIZE_MAX)
            best = row;
    }
    return best != SIZE_MAX ? best : first;
}
