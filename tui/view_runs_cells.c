/* view_runs_cells.c: what the rows of Runs say. Every section has columns of its own: `heads` names them all. */
#include "tui/view_runs.h"

#include "dumps/census.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARM = 0, REPEAT, RUN, PASS, WHERE, N1, N2, N3, N4, N5, N6, NOTE, COLUMNS };

/* Heading rows name them; the names here are those of the first column wherever it is a section's title. */
static const struct tui_column columns[COLUMNS] = {
    [ARM] = {"arm", TUI_LEFT, TUI_COLUMN_FIXED, 0, 32},
    [REPEAT] = {"", TUI_RIGHT, 0, 0, 0},
    [RUN] = {"", TUI_LEFT, 0, 0, 12},
    [PASS] = {"", TUI_LEFT, 0, 0, 0},
    [WHERE] = {"", TUI_LEFT, 0, 0, 28},
    [N1] = {"", TUI_RIGHT, 0, 0, 0},
    [N2] = {"", TUI_RIGHT, 0, 0, 0},
    [N3] = {"", TUI_RIGHT, 0, 0, 0},
    [N4] = {"", TUI_RIGHT, 0, 0, 0},
    [N5] = {"", TUI_RIGHT, 0, 0, 0},
    [N6] = {"", TUI_RIGHT, 0, 0, 0},
    [NOTE] = {"", TUI_LEFT, 0, 0, 0},
};
static const char *const heads[RUNS_SECTIONS][COLUMNS] = {
    [RUNS_TRIALS] = {"trials", "repeat", "run", "pass", "run digest", "wall s", "CPU s", "asked",
                     "max", "seen", "worker", "process"},
    [RUNS_REPEATS] = {"repeats", "trials", "runs", "", "first differ at", "distinct", "modal",
                      "off", "from %", "to %", "excl. %", "kernel"},
    [RUNS_PAIRS] = {"pairs", "repeat", "runs", "against", "first differ at", "digests", "req",
                    "pos", "step", "", "", "kernel"},
    [RUNS_SIZES] = {"sizes from which on repeats disagree"},
    [RUNS_LOST] = {"lost", "repeat", "", "how", "at", "call", "M", "rows", "from", "to", "", "why"},
};

/* ---- cells ----------------------------------------------------------------------------------- */

static void put_text(struct tui_value *out, const char *text)
{
    snprintf(out->text, sizeof out->text, "%s", text ? text : "");
}

static void put_buf(struct tui_value *out, struct ds_buf *b)
{
    put_text(out, b->data && !b->failed ? b->data : "");
    ds_buf_free(b);
}

static void put_whole(struct tui_value *out, double x)
{
    snprintf(out->text, sizeof out->text, "%.0f", x);
    out->numeric = 1;
    out->key = x;
}

static void put_unknown(struct tui_value *out)
{
    put_text(out, "?");
    out->null = 1;
    out->role = TUI_MISSING;
}

static void put_count(struct tui_value *out, int64_t n)
{
    if (n < 0)
        put_unknown(out);
    else
        put_whole(out, (double)n);
}

static void put_seconds(struct tui_value *out, double x)
{
    snprintf(out->text, sizeof out->text, x >= 1000 ? "%.0f" : x >= 0.001 ? "%.4f" : "%.2g", x);
    out->numeric = 1;
    out->key = x;
}

static void put_percent(struct tui_value *out, double x)
{
    snprintf(out->text, sizeof out->text, "%.3g", x);
    out->numeric = 1;
    out->key = x;
}

/* "3 batch 4"; of two records "B3 batch 4". Sorts by number. */
static void put_arm(struct tui_value *out, const struct tui_whole *w, uint32_t arm)
{
    struct ds_buf b = {0};
    ds_buf_printf(&b, "%s%u ",
                  !w->diff  ? ""
                  : arm % 2 ? "B"
                            : "A",
                  ds_report_own_arm(&w->report, arm));
    ds_report_arm_values(w->header, arm, &b);
    put_buf(out, &b);
}

static void put_site(struct tui_value *out, const struct tui_whole *w, uint32_t site)
{
    struct ds_buf b = {0};
    if (site >= w->header->n_sites) {
        put_unknown(out);
        return;
    }
    tui_site_text(w->header, site, &b);
    put_buf(out, &b);
}

static void put_letter(struct tui_value *out, uint32_t class_of, int unlike)
{
    snprintf(out->text, sizeof out->text, "%c", ds_report_class_letter(class_of));
    out->role = class_of == UINT32_MAX ? TUI_MISSING : unlike ? TUI_UNSTABLE : TUI_SAME;
}

/* ---- sections -------------------------------------------------------------------------------- */

static int unlike(const struct runs_own *o, uint32_t trial)
{
    return o->class_of[trial] != UINT32_MAX &&
           o->class_of[trial] != o->groups[o->group_of[trial]].modal;
}

static void put_pass(struct tui_value *out, const struct tui_whole *w, const struct ds_trial *t)
{
    static const char *const names[] = {"natural", "heal", "bare", "lost"};
    if (t->pass == DS_PASS_HEAL)
        snprintf(out->text, sizeof out->text, "heal to %u",
                 ds_report_own_arm(&w->report, t->healed_to));
    else
        put_text(out, t->pass < 4 ? names[t->pass] : "?");
    out->role = t->pass == DS_PASS_FAILED ? TUI_ERROR : TUI_PLAIN;
}

static void put_trial_note(struct tui_value *out, const struct tui_whole *w,
                           const struct ds_trial *t)
{
    const struct ds_failed_arm *f = runs_failure(w, t);
    struct ds_buf b = {0};
    if (f) {
        ds_buf_printf(&b, "%s in ", ds_report_failed_how(f->at->how));
        ds_report_failed_place(f, &b);
        ds_buf_printf(&b, ": %s", f->at->why);
        out->role = TUI_ERROR;
    } else if (t->pass != DS_PASS_FAILED) {
        ds_buf_puts(&b, t->blas_core[0] ? t->blas_core : "no BLAS");
        if (t->earlier_trials)
            ds_buf_printf(&b, ", %u trial%s before it", t->earlier_trials,
                          t->earlier_trials == 1 ? "" : "s");
        else
            ds_buf_puts(&b, ", first of its process");
    }
    put_buf(out, &b);
}

static void trial_cell(const struct runs_own *o, const struct tui_whole *w, uint32_t at, int column,
                       struct tui_value *out)
{
    const struct ds_trial *t = w->trials[at];
    if (column == ARM)
        put_arm(out, w, t->arm);
    else if (column == REPEAT)
        put_whole(out, t->repeat);
    else if (column == PASS)
        put_pass(out, w, t);
    else if (column == NOTE)
        put_trial_note(out, w, t);
    else if (column == RUN)
        put_letter(out, o->class_of[at], t->pass == DS_PASS_NATURAL && unlike(o, at));
    else if (column == WHERE && o->class_of[at] == UINT32_MAX)
        put_unknown(out);
    else if (column == WHERE)
        snprintf(out->text, sizeof out->text, "%016" PRIx64, t->run_digest);
    else if (t->pass == DS_PASS_FAILED && column != N6)
        put_unknown(out);
    else if (column == N1 || column == N2)
        put_seconds(out, column == N1 ? t->wall_s : t->cpu_s);
    else
        put_count(out, column == N3   ? t->threads_asked
                       : column == N4 ? t->threads_max
                       : column == N5 ? t->threads_seen
                                      : t->worker);
}

/* The letters of an arm's repeats: "aabac". */
static void put_letters(struct tui_value *out, const struct runs_own *o, const struct tui_whole *w,
                        const struct ds_census_arm *a)
{
    const struct runs_group *g = runs_of_arm(o, w, a->arm);
    uint32_t n = 0;
    for (uint32_t i = 0; g && i < g->n && n + 1 < sizeof out->text; i++)
        out->text[n++] = ds_report_class_letter(o->class_of[o->order[g->first + i]]);
    out->text[n] = '\0';
    out->role = a->distinct > 1 ? TUI_UNSTABLE : TUI_SAME;
}

static void put_kernel(struct tui_value *out, const char *op, const char *variant)
{
    struct ds_buf b = {0};
    if (op && variant)
        ds_report_kernel(&b, op, variant);
    put_buf(out, &b);
}

static void put_repeat_note(struct tui_value *out, const struct ds_census_arm *a)
{
    put_kernel(out, a->first.op, a->first.variant);
    size_t n = strlen(out->text);
    if (a->first.found)
        snprintf(out->text + n, sizeof out->text - n, "%s%s, %s%u values of one row",
                 a->first.label == DS_LABEL_ORIGIN ? ", inputs equal" : "",
                 a->first_trial ? ", the process's first trial only" : "",
                 a->counted ? "" : "at least ", a->most);
}

static void repeats_cell(const struct runs_own *o, const struct tui_whole *w, uint32_t at,
                         int column, struct tui_value *out)
{
    const struct ds_census_arm *a = &w->verdict->census->arms[at];
    if (column == ARM)
        put_arm(out, w, a->arm);
    else if (column == REPEAT)
        put_whole(out, a->trials);
    else if (column == RUN)
        put_letters(out, o, w, a);
    else if (column == PASS)
        put_text(out, a->distinct < 2 ? "stable" : a->first_trial ? "warm-up" : "unstable");
    else if (column == WHERE && a->first.found)
        put_site(out, w, a->first.site);
    else if (column == N1 || column == N2 || column == N3)
        put_whole(out, column == N1 ? a->distinct : column == N2 ? a->modal : a->disagree);
    else if ((column == N4 || column == N5) && a->distinct > 1)
        put_percent(out, 100 * (column == N4 ? a->low : a->high));
    else if (column == N6 && a->distinct < 2)
        put_percent(out, 100 * a->excluded);
    else if (column == NOTE)
        put_repeat_note(out, a);
    if (column == PASS || column == WHERE)
        out->role = a->distinct > 1 ? TUI_UNSTABLE : TUI_SAME;
    out->null = !out->text[0];
}

static void pair_cell(const struct runs_own *o, const struct tui_whole *w,
                      const struct runs_row *at, int column, struct tui_value *out)
{
    const struct ds_census_arm *a = &w->verdict->census->arms[at->at];
    const struct ds_census_pair *p = &a->pairs[at->part];
    switch (column) {
    case ARM:
        put_arm(out, w, a->arm);
        break;
    case REPEAT:
        put_whole(out, p->a);
        break;
    case RUN:
        snprintf(out->text, sizeof out->text, "%c %c",
                 ds_report_class_letter(runs_class(o, w, a->arm, p->a)),
                 ds_report_class_letter(runs_class(o, w, a->arm, p->b)));
        out->role = TUI_UNSTABLE;
        break;
    case PASS:
        put_whole(out, p->b);
        break;
    case WHERE:
        put_site(out, w, p->site);
        break;
    case N1:
        put_whole(out, (double)p->digests);
        break;
    case NOTE:
        if (a->first.found && a->first.site == p->site)
            put_kernel(out, a->first.op, a->first.variant);
        break;
    default:
        if (column <= N4)
            put_whole(out, column == N2 ? p->request : column == N3 ? p->position : p->step);
    }
}

/* The pairs that are not told one by one. */
static void put_other_pairs(struct tui_value *out, const struct tui_whole *w, uint32_t at)
{
    const struct ds_census_arm *a = &w->verdict->census->arms[at];
    struct ds_buf b = {0};
    uint64_t compared = a->of_pairs - a->unseen;
    put_arm(out, w, a->arm);
    ds_buf_printf(&b, "%s: of %" PRIu64 " pairs of different runs", out->text, compared);
    for (uint32_t i = 0; i < a->n_places; i++) {
        ds_buf_printf(&b, "%s %" PRIu64 " at ", i ? "," : " first differ", a->places[i].pairs);
        tui_site_text(w->header, a->places[i].site, &b);
    }
    if (a->elsewhere)
        ds_buf_printf(&b, ", %" PRIu64 " elsewhere", a->elsewhere);
    if (a->unseen)
        ds_buf_printf(&b, "; %" PRIu64 " more were not compared", a->unseen);
    put_buf(out, &b);
}

static void lost_cell(const struct tui_whole *w, uint32_t at, int column, struct tui_value *out)
{
    const struct ds_failed_arm *f = &w->verdict->failed[at];
    const struct ds_failure *x = f->at;
    struct ds_buf b = {0};
    int placed = x->last >= x->first;
    if (column == ARM) {
        put_arm(out, w, f->arm);
    } else if (column == PASS) {
        put_text(out, ds_report_failed_how(x->how));
        out->role = TUI_ERROR;
    } else if (column == WHERE) {
        put_site(out, w, x->site);
    } else if (column == NOTE) {
        if (x->op[0]) {
            ds_report_kernel(&b, x->op, x->variant);
            ds_buf_printf(&b, ", %s: ", ds_phase_name(x->phase));
        }
        ds_buf_puts(&b, x->why);
        put_buf(out, &b);
    } else if (column == N3 && x->rows <= 0) {
        put_unknown(out);
    } else if ((column == N4 || column == N5) && !placed) {
        put_unknown(out);
    } else if (column == REPEAT || (column >= N1 && column <= N5)) {
        put_whole(out, column == REPEAT ? f->repeat
                       : column == N1   ? x->call
                       : column == N2   ? x->m
                       : column == N3   ? (uint32_t)x->rows
                       : column == N4   ? (double)x->first
                                        : (double)x->last);
    }
}

/* ---- the table's source ---------------------------------------------------------------------- */

static void cell(void *ctx, size_t row, size_t column, struct tui_value *out)
{
    const struct runs_own *o = ctx;
    const struct tui_whole *w = runs_whole(o);
    struct ds_buf b = {0};
    if (!w || row >= o->n)
        return;
    const struct runs_row *r = &o->rows[row];
    if (r->kind == TUI_ROW_HEADS || r->kind == TUI_ROW_SECTION) {
        put_text(out, heads[r->section][column]);
        return;
    }
    switch (r->section) {
    case RUNS_TRIALS:
        trial_cell(o, w, r->at, (int)column, out);
        break;
    case RUNS_REPEATS:
        repeats_cell(o, w, r->at, (int)column, out);
        break;
    case RUNS_PAIRS:
        if (r->part == RUNS_ALL_PAIRS)
            put_other_pairs(out, w, r->at);
        else
            pair_cell(o, w, r, (int)column, out);
        break;
    case RUNS_SIZES:
        ds_report_threshold(&w->verdict->census->thresholds[r->at], &b);
        put_buf(out, &b);
        out->role = TUI_UNSTABLE;
        break;
    case RUNS_LOST:
        lost_cell(w, r->at, (int)column, out);
        break;
    default:
        snprintf(out->text, sizeof out->text, "%s",
                 w->error ? w->error : "the verdict is being made: what repeats say comes with it");
        out->role = w->error ? TUI_ERROR : TUI_DIM;
    }
}

static int kind(void *ctx, size_t row)
{
    const struct runs_own *o = ctx;
    return row < o->n ? o->rows[row].kind : TUI_ROW;
}

static int is(void *ctx, size_t row, size_t column)
{
    const struct runs_own *o = ctx;
    const struct tui_whole *w = runs_whole(o);
    (void)column;
    if (!w || row >= o->n || o->rows[row].kind != TUI_ROW)
        return 0;
    const struct runs_row *r = &o->rows[row];
    if (r->section == RUNS_TRIALS)
        return (w->trials[r->at]->pass == DS_PASS_NATURAL && unlike(o, r->at)) ||
                       w->trials[r->at]->pass == DS_PASS_FAILED
                   ? TUI_IS_DRIFT
                   : 0;
    if (r->section == RUNS_REPEATS)
        return w->verdict->census->arms[r->at].distinct > 1 ? TUI_IS_DRIFT | TUI_IS_ORIGIN : 0;
    return TUI_IS_DRIFT;
}

void runs_source(struct runs_own *o, struct tui_source *out)
{
    *out = (struct tui_source){.ctx = o,
                               .columns = columns,
                               .n_columns = COLUMNS,
                               .n_rows = o->n,
                               .cell = cell,
                               .kind = kind,
                               .is = is,
                               .name = "runs"};
}

/* ---- what load made -------------------------------------------------------------------------- */

const struct tui_whole *runs_whole(const struct runs_own *o)
{
    const struct tui_whole *w = o->data ? tui_data_whole(o->data) : NULL;
    return w && w->generation == o->generation ? w : NULL;
}

const struct runs_group *runs_of_arm(const struct runs_own *o, const struct tui_whole *w,
                                     uint32_t arm)
{
    size_t lo = 0, hi = o->n_groups;
    while (lo < hi) { /* the arm's first group: natural trials come first */
        size_t mid = lo + (hi - lo) / 2;
        if (w->trials[o->order[o->groups[mid].first]]->arm < arm)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == o->n_groups)
        return NULL;
    const struct ds_trial *t = w->trials[o->order[o->groups[lo].first]];
    return t->arm == arm && t->pass == DS_PASS_NATURAL ? &o->groups[lo] : NULL;
}

uint32_t runs_class(const struct runs_own *o, const struct tui_whole *w, uint32_t arm,
                    uint32_t repeat)
{
    const struct runs_group *g = runs_of_arm(o, w, arm);
    uint32_t lo = 0, hi = g ? g->n : 0;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (w->trials[o->order[g->first + mid]]->repeat < repeat)
            lo = mid + 1;
        else
            hi = mid;
    }
    return g && lo < g->n && w->trials[o->order[g->first + lo]]->repeat == repeat
               ? o->class_of[o->order[g->first + lo]]
               : UINT32_MAX;
}

const struct ds_failed_arm *runs_failure(const struct tui_whole *w, const struct ds_trial *t)
{
    const struct ds_verdict *v = w->verdict;
    for (size_t i = 0; v && t->pass == DS_PASS_FAILED && i < v->n_failed; i++)
        if (v->failed[i].arm == t->arm && v->failed[i].repeat == t->repeat)
            return &v->failed[i];
    return NULL;
}
