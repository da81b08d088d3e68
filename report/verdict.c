/* verdict.c: the verdict as text: matrix first, the answer last. Lays out; judges nothing.
 */
#include "report/report_internal.h"

#include "base/dtype.h"
#include "dumps/validity.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Adds one item of a list under a head: after a comma where it fits in 100 columns, else on a line
 * of its own. *column is where the line stands. */
static void add_item(struct ds_buf *out, const char *item, size_t len, int first, size_t *column)
{
    if (!first && *column + 2 + len + 1 > 100) {
        ds_buf_printf(out, ",\n%14s", "");
        *column = 14;
    } else if (!first) {
        ds_buf_puts(out, ", ");
        *column += 2;
    }
    ds_buf_add(out, item, len);
    *column += len;
}

/* ---- what was compared ----------------------------------------------------------------------- */

/* What is wrong with captures; of one kind the first stages, for the rest follows from them as a rule. */
static void add_validity(const struct ds_report *r, struct ds_buf *out)
{
    enum { MOST_OF_A_KIND = 4 };
    const struct ds_validity *w = r->v->validity;
    for (size_t i = 0, of_kind = 0; w && i < w->n_items; i++) {
        const struct ds_validity_item *x = &w->items[i];
        of_kind = i && w->items[i - 1].kind == x->kind ? of_kind + 1 : 0;
        size_t left = 0;
        while (i + left < w->n_items && w->items[i + left].kind == x->kind)
            left++;
        if (of_kind == MOST_OF_A_KIND && left > 1) {
            ds_buf_printf(out, "%14sand %zu more stages\n", "", left);
            i += left - 1;
            continue;
        }
        ds_report_head(r, x->proves_nothing ? "invalid" : "suspect", out);
        ds_report_name(out, x->text);
        if (x->sites > 1)
            ds_buf_printf(out, " (%u layers)", x->sites);
        ds_buf_puts(out, "\n");
    }
}

/* Of a single record; of two, a difference is listed. */
static int keeps_file_weights(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, "weights") == 0)
            return strcmp(h->options[i].value, "file") == 0;
    return 0;
}

static void add_record(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    ds_report_head(r, "record", out);
    ds_report_name(out, r->header ? r->header->model_name : "");
    if (r->header && keeps_file_weights(r->header))
        ds_buf_puts(out, ", weights as in the file");
    ds_buf_printf(out, "\n%14s", "");
    ds_report_arms(v, out);
    ds_buf_printf(out, ", %" PRIu64 " trial%s", v->counts.trials, v->counts.trials == 1 ? "" : "s");
    if (v->counts.heal_trials)
        ds_buf_printf(out, " (and %" PRIu64 " healed)", v->counts.heal_trials);
    ds_buf_printf(out, ", %" PRIu64 " sites, %" PRIu64 " rows; %" PRIu64 " digests compared\n",
                  v->counts.sites, v->counts.rows, v->counts.digests_compared);
    if (r->incomplete || r->damaged)
        ds_buf_printf(out, "%14sleft out: %zu trials cut short, %zu damaged\n", "", r->incomplete,
                      r->damaged);
    for (size_t i = 0; r->header && !r->diff && i < r->header->n_options; i++) {
        if (strcmp(r->header->options[i].name, "mutations") != 0)
            continue;
        ds_report_head(r, "fixture", out);
        ds_report_name(out, r->header->options[i].value);
        ds_buf_puts(out, " changes to the data of a stage were seen by what reads it\n");
    }
    ds_report_damage(r, out);
    add_validity(r, out);
    for (size_t i = 0; i < v->n_notes; i++) {
        ds_report_head(r, "note", out);
        ds_report_name(out, v->notes[i]);
        ds_buf_puts(out, "\n");
    }
}

static size_t most_differences(int kind)
{
    return kind == DS_DIFF_ARM ? 3 : 8;
}

/* What was left out of the comparison, or excused in it, by the options. */
static void add_terms(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_diff *d = r->diff;
    if (d && d->n_ignored) {
        ds_report_head(r, "sites", out);
        ds_buf_printf(out, "%zu of %zu compared\n", d->header.n_sites - d->n_ignored,
                      d->header.n_sites);
    }
    if (!d || !ds_tolerance_given(&d->options.tolerance))
        return;
    ds_report_head(r, "tolerance", out);
    ds_buf_printf(out, "%" PRIu64 " differing rows excused, %" PRIu64 " beyond it", d->excused,
                  d->exceeding);
    if (d->not_dumped)
        ds_buf_printf(
            out, ",\n%14s%" PRIu64 " that it cannot excuse: their bytes are not in both records",
            "", d->not_dumped);
    ds_buf_puts(out, "\n");
}

static void add_differences(const struct ds_report *r, struct ds_buf *out)
{
    size_t of_kind[DS_DIFF_KINDS] = {0};
    for (size_t i = 0; r->diff && i < r->diff->n_items; i++) {
        const struct ds_diff_item *x = &r->diff->items[i];
        if (x->kind == DS_DIFF_LAUNCH) /* told beside the first drift */
            continue;
        if (x->kind == DS_DIFF_DAMAGE && r->damage) /* told with what damage there is */
            continue;
        if (++of_kind[x->kind] > most_differences(x->kind))
            continue;
        ds_report_head(r, ds_diff_kind_name(x->kind), out);
        ds_report_name(out, x->name);
        ds_buf_puts(out, ": ");
        ds_report_name(out, x->a ? x->a : "none");
        ds_buf_puts(out, " in A, ");
        ds_report_name(out, x->b ? x->b : "none");
        ds_buf_puts(out, " in B\n");
    }
    for (int k = 0; k < DS_DIFF_KINDS; k++)
        if (of_kind[k] > most_differences(k))
            ds_buf_printf(out, "%14sand %zu more differences of kind %s (--json lists all)\n", "",
                          of_kind[k] - most_differences(k), ds_diff_kind_name(k));
    if (r->diff && (r->diff->unpaired[0] || r->diff->unpaired[1])) {
        ds_report_head(r, "unpaired", out);
        ds_buf_printf(out,
                      "%" PRIu64 " digests of A and %" PRIu64
                      " of B have no partner in the arms compared\n",
                      r->diff->unpaired[0], r->diff->unpaired[1]);
    }
}

static void add_phase(const struct ds_factor_verdict *x, const char *name, int phase,
                      struct ds_buf *out)
{
    ds_buf_puts(out, name);
    if (x->phase[phase].compared == 0)
        ds_buf_puts(out, "not compared");
    else
        ds_report_classes(x, x->phase[phase].class_of, 24, out);
}

static void add_factors(const struct ds_report *r, struct ds_buf *out)
{
    for (size_t f = 0; f < r->v->n_factors; f++) {
        const struct ds_factor_verdict *x = &r->v->factors[f];
        const struct ds_factor_phase *all = &x->phase[DS_VERDICT_ALL];
        int formats = strcmp(x->name, "dtype") == 0 && x->n_values > 1;
        if (x->arms == 0 && x->arms_alone == 0 && !formats)
            continue;
        char name[16];
        snprintf(name, sizeof name, "%.13s", x->name);
        struct ds_buf escaped = {0};
        ds_report_name(&escaped, name);
        out->failed |= escaped.failed;
        ds_report_head(r, escaped.data ? escaped.data : "", out);
        ds_buf_free(&escaped);
        if (formats) {
            ds_buf_puts(out, "unlike formats have no bits in common; each is judged on its own");
        } else if (all->compared == 0) {
            ds_buf_puts(out, "nothing compared");
        } else if (all->drifted == 0) {
            ds_buf_printf(out, "no difference over %" PRIu64 " comparisons", all->compared);
        } else {
            add_phase(x, "prefill ", DS_VERDICT_PREFILL, out);
            add_phase(x, "  decode ", DS_VERDICT_DECODE, out);
            ds_buf_printf(out, "; %" PRIu64 " of %" PRIu64 " digests differ, %u rows", all->drifted,
                          all->compared, all->rows);
        }
        if (f == 0 && ds_report_until_stable(r))
            ds_report_excluded(r, out);
        if (all->unstable)
            ds_buf_printf(out, "; %" PRIu64 " unstable", all->unstable);
        if (x->arms_alone)
            ds_buf_printf(out, "; %u arms without a partner yet", x->arms_alone);
        ds_buf_puts(out, "\n");
    }
}

static void add_one_switches(const struct ds_report *r, const struct ds_kernel_verdict *x,
                             const struct ds_switches *s, struct ds_buf *out)
{
    struct ds_buf line = {0};
    ds_report_kernel(&line, x->op, x->variant);
    ds_buf_puts(&line, " gives other bits from M = ");
    for (uint32_t j = 0; j < s->n && j < 12; j++)
        ds_buf_printf(&line, "%s%u", j ? ", " : "", s->rows[j]);
    ds_buf_puts(&line, s->n > 12 ? ", ... rows in the call" : " rows in the call");
    size_t column = 14 + line.len;
    ds_report_head(r, "switches", out);
    ds_buf_add(out, line.data, line.len);
    out->failed |= line.failed;
    line.len = 0;
    if (s->setting[0]) {
        ds_buf_puts(&line, "(");
        ds_report_name(&line, s->setting);
        ds_buf_puts(&line, ")");
        if (column + 1 + line.len > 100)
            ds_buf_printf(out, "\n%14s", "");
        else
            ds_buf_puts(out, " ");
        ds_buf_add(out, line.data, line.len);
    }
    ds_buf_puts(out, "\n");
    ds_buf_free(&line);
}

static void add_switches(const struct ds_report *r, struct ds_buf *out)
{
    for (size_t k = 0; k < r->v->n_kernels; k++)
        for (uint32_t i = 0; i < r->v->kernels[k].n_switches; i++)
            if (r->v->kernels[k].switches[i].n)
                add_one_switches(r, &r->v->kernels[k], &r->v->kernels[k].switches[i], out);
}

static void add_bands(const struct ds_report *r, struct ds_buf *out)
{
    static const char *const of[][2] = {{"keys", "visible keys"},
                                        {"query-rows", "query rows of a request"},
                                        {"rows", "rows in the call"}};
    for (size_t i = 0; i < r->v->n_bands; i++) {
        const struct ds_band *x = &r->v->bands[i];
        const char *what = x->measure;
        for (size_t k = 0; k < sizeof of / sizeof of[0]; k++)
            what = strcmp(x->measure, of[k][0]) == 0 ? of[k][1] : what;
        ds_report_head(r, "sizes", out);
        ds_report_kernel(out, x->op, x->variant);
        ds_buf_puts(out, ", ");
        ds_report_name(out, x->factor);
        ds_buf_printf(out, ": other bits in %s\n%14sonly with %s %s, not with %s\n",
                      ds_phase_name(x->phase), "", x->differ, what, x->equal);
    }
}

/* ---- the first drift ------------------------------------------------------------------------- */

static void add_launch(const struct ds_launch *l, const char *core, struct ds_buf *out)
{
    if (!l) {
        ds_buf_puts(out, "unknown");
        return;
    }
    ds_report_name(out, l->variant);
    if (l->algo[0]) {
        ds_buf_puts(out, " ");
        ds_report_name(out, l->algo);
    } else if (core && core[0] && strcmp(l->op, "matmul") == 0) {
        ds_buf_puts(out, " ");
        ds_report_name(out, core);
    }
    if (l->tile_rows || l->tile_cols || l->tile_k)
        ds_buf_printf(out, ", tile %dx%dx%d", l->tile_rows, l->tile_cols, l->tile_k);
    if (l->split > 1)
        ds_buf_printf(out, ", split %d", l->split);
    if (l->threads > 0)
        ds_buf_printf(out, ", %d thread%s", l->threads, l->threads == 1 ? "" : "s");
}

static void add_size(const struct ds_report *r, const struct ds_finding *f, struct ds_buf *out)
{
    ds_buf_printf(out, "%14s%u row%s", "", f->rows, f->rows == 1 ? "" : "s");
    if (f->positions != f->rows)
        ds_buf_printf(out, " at %u position%s", f->positions, f->positions == 1 ? "" : "s");
    if (f->sized && f->nonfinite + f->ref_nonfinite && f->max_ulp == 0)
        ds_buf_printf(out, ", %" PRIu64 " elements, NaN or Inf on one side", f->elements);
    else if (f->sized)
        ds_buf_printf(out, ", %" PRIu64 " elements; max %" PRIu64 " ULP, max abs %.9g, rms %.3g%s",
                      f->elements, f->max_ulp, f->max_abs, f->rms,
                      f->nonfinite + f->ref_nonfinite ? " where finite" : "");
    else
        ds_buf_puts(out, r->diff ? "; sizes not recorded (run with --dump all to have them)"
                                 : "; sizes not recorded");
    ds_buf_puts(out, "\n");
}

/* Where in the rows: nothing to tell when it is everywhere, or not known. */
static void add_profile(const struct ds_finding *f, struct ds_buf *out)
{
    ds_buf_printf(out, "%14s%spositions %s", "", f->beyond_rounding ? "beyond rounding: " : "",
                  f->at_positions);
    if (f->heads[0])
        ds_buf_printf(out, "; heads %s", f->heads);
    if (f->channels[0])
        ds_buf_printf(out, "; channels %s", f->channels);
    if (f->value_rows && f->p99_ulp)
        ds_buf_printf(out, "; 99 %% within %" PRIu64 " ULP (%u row%s)", f->p99_ulp, f->value_rows,
                      f->value_rows == 1 ? "" : "s");
    ds_buf_puts(out, "\n");
    if (f->structure[0] && !strstr(f->why, f->structure))
        ds_buf_printf(out, "%14s%s\n", "", f->structure);
}

/* "tile 64 against 128, threads 1 against 2"; 0 if there is nothing to tell. */
static int add_launches(const struct ds_report *r, struct ds_buf *out)
{
    size_t n = 0, column = 14;
    for (size_t i = 0; r->diff && i < r->diff->n_items; i++) {
        const struct ds_diff_item *x = &r->diff->items[i];
        if (x->kind != DS_DIFF_LAUNCH)
            continue;
        struct ds_buf item = {0};
        ds_report_name(&item, x->name);
        ds_buf_puts(&item, " ");
        ds_report_name(&item, x->a ? x->a : "none");
        ds_buf_puts(&item, " against ");
        ds_report_name(&item, x->b ? x->b : "none");
        if (n == 0)
            ds_buf_printf(out, "%14s", "");
        add_item(out, item.data, item.len, n++ == 0, &column);
        out->failed |= item.failed;
        ds_buf_free(&item);
    }
    ds_buf_puts(out, n ? "\n" : "");
    return n > 0;
}

/* Where sites are missing on a side, the nearest ones before them are the inputs. */
static void add_between(const struct ds_report *r, const struct ds_finding *f, struct ds_buf *out)
{
    const struct ds_header *h = r->diff ? &r->diff->header : r->header;
    ds_buf_printf(out, "%14sor at one of %u sites before it that were not recorded on both sides",
                  "", f->between);
    if (f->between_first < h->n_sites) {
        const struct ds_site *s = &h->sites[f->between_first];
        ds_buf_printf(out, ",\n%14sfrom ", "");
        ds_report_place(out, s->layer, s->stage, s->part);
        ds_buf_puts(out, " on; what they read is equal");
    }
    ds_buf_puts(out, "\n");
}

static void add_number(const char *name, int32_t mine, int32_t theirs, int both, struct ds_buf *out)
{
    if (mine < 0 || theirs < 0)
        return;
    ds_buf_printf(out, "%s %d", name, theirs);
    if (both)
        ds_buf_printf(out, " against %d", mine);
}

/* Threads asked for, the team's most, and those at work, where that differs between the two arms or, for
 * one arm, from what was asked for. */
static void add_threads(const struct ds_finding *f, struct ds_buf *out)
{
    const struct ds_trial *mine = f->info, *theirs = f->ref_info;
    if (!mine || !theirs)
        return;
    const int used = ds_threads_used(mine), both = f->arm != f->ref_arm;
    if (both ? used == ds_threads_used(theirs) && mine->threads_asked == theirs->threads_asked
             : used != DS_THREADS_FEWER && used != DS_THREADS_MORE)
        return;
    ds_buf_printf(out, "%14sthreads", "");
    add_number(" asked", mine->threads_asked, theirs->threads_asked, both, out);
    if (mine->threads_max != mine->threads_asked || theirs->threads_max != theirs->threads_asked)
        add_number(", at most", mine->threads_max, theirs->threads_max, both, out);
    add_number(", seen", mine->threads_seen, theirs->threads_seen, both, out);
    ds_buf_puts(out, used == DS_THREADS_MORE    ? ": more at work than were asked for\n"
                     : used == DS_THREADS_FEWER ? ": fewer at work than were asked for\n"
                                                : "\n");
}

static void add_first(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_finding *f = &r->v->first;
    if (!f->found)
        return;
    ds_report_head(r, r->v->stable ? "first drift" : "first unstable", out);
    ds_report_place(out, f->layer, f->stage, f->part);
    ds_buf_puts(out, ", ");
    ds_report_kernel(out, f->op, f->variant);
    ds_buf_printf(out, ": %s\n", ds_label_name(f->label));
    if (f->label == DS_LABEL_ORIGIN && f->between)
        add_between(r, f, out);
    else if (f->label == DS_LABEL_ORIGIN)
        ds_buf_printf(out, "%14sits inputs are equal, and so are the %u sites before it\n", "",
                      f->site);
    else if (f->label == DS_LABEL_UNKNOWN)
        ds_buf_printf(
            out, "%14sits inputs were not compared: any kernel before it may be the cause\n", "");
    ds_buf_printf(out, "%14s", "");
    ds_report_name(out, f->factor);
    ds_buf_puts(out, " ");
    ds_report_name(out, f->value);
    ds_buf_puts(out, " against ");
    ds_report_name(out, f->ref_value);
    ds_report_rest(r, f, out);
    ds_buf_printf(out,
                  "; %s, %u rows in the call (%u)\n%14sfrom step %d, request %d, position %d on\n",
                  ds_phase_name(f->phase), f->rows_in_call, f->ref_rows_in_call, "", f->step,
                  f->request, f->position);
    add_size(r, f, out);
    add_profile(f, out);
    ds_buf_printf(out, "%14s%s%s", "", ds_kind_name(f->kind), f->why[0] ? ": " : "");
    ds_report_name(out, f->why);
    ds_buf_puts(out, "\n");
    if (add_launches(r, out))
        return;
    ds_buf_printf(out, "%14s", "");
    struct ds_buf mine = {0}, theirs = {0};
    add_launch(f->launch, f->blas_core, &mine);
    add_launch(f->ref_launch, f->ref_blas_core, &theirs);
    const char *a = mine.data ? mine.data : "", *b = theirs.data ? theirs.data : "";
    out->failed |= mine.failed || theirs.failed;
    if (strcmp(a, b) == 0)
        ds_buf_printf(out, "launched alike: %s\n", a);
    else
        ds_buf_printf(out, "%s against %s\n", a, b);
    ds_buf_free(&mine);
    ds_buf_free(&theirs);
    add_threads(f, out);
}

static void add_unstable(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_unstable *u = &r->v->unstable;
    if (r->v->stable)
        return;
    ds_report_head(r, "unstable", out);
    ds_buf_printf(out,
                  "%u of %u trials disagree with the mode (%.0f %%, 95 %% interval %.0f to %.0f "
                  "%%)\n%14sin %u of the %u arms where they could: %" PRIu64 " of %" PRIu64
                  " repeated digests\n",
                  u->disagree, u->trials, u->trials ? 100.0 * u->disagree / u->trials : 0,
                  100 * u->low, 100 * u->high, "", u->arms, u->of_arms, u->rows, u->of_rows);
}

/* First drift of each factor that is not the one told above. */
static void add_other_firsts(const struct ds_report *r, struct ds_buf *out)
{
    for (size_t i = 1; i < r->v->n_factors; i++) {
        const struct ds_finding *f = &r->v->factors[i].phase[DS_VERDICT_ALL].first;
        if (!f->found || (r->v->first.found && r->v->first.factor == f->factor))
            continue;
        ds_report_head(r, "also", out);
        ds_report_name(out, f->factor);
        ds_buf_puts(out, " ");
        ds_report_name(out, f->value);
        ds_buf_puts(out, ": ");
        ds_report_place(out, f->layer, f->stage, f->part);
        ds_buf_puts(out, ", ");
        ds_report_kernel(out, f->op, f->variant);
        ds_buf_printf(out, " (%s, M = %u): %s\n", ds_phase_name(f->phase), f->rows_in_call,
                      ds_kind_name(f->kind));
    }
}

/* Text under a head, broken at spaces to 100 columns. */
static void add_wrapped(const char *text, struct ds_buf *out)
{
    size_t column = 14;
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column > 14 && column + 1 + word > 100) {
            ds_buf_printf(out, "\n%14s", "");
            column = 14;
        } else if (column > 14) {
            ds_buf_puts(out, " ");
            column++;
        }
        ds_buf_add(out, text, word);
        column += word;
        text += word + (text[word] == ' ');
    }
    ds_buf_puts(out, "\n");
}

/* ---- consequences ---------------------------------------------------------------------------- */

/* Whether a kernel was judged, and never found at fault. */
static int is_innocent(const struct ds_kernel_verdict *x)
{
    return x->judged && !x->origins && !x->unknown && !x->unstable &&
           x->condition[0] != DS_COND_UNSTABLE;
}

/* A list of kernels with a count each; nothing when there is none. */
static void add_innocent(const struct ds_report *r, struct ds_buf *out)
{
    size_t column = 14, some = 0;
    for (size_t k = 0; k < r->v->n_kernels; k++) {
        const struct ds_kernel_verdict *x = &r->v->kernels[k];
        struct ds_buf item = {0};
        if (!is_innocent(x))
            continue;
        ds_report_kernel(&item, x->op, x->variant);
        ds_buf_printf(&item, " (%" PRIu64 ")", x->judged);
        if (some == 0)
            ds_report_head(r, "bit-identical", out);
        add_item(out, item.data, item.len, some++ == 0, &column);
        out->failed |= item.failed;
        ds_buf_free(&item);
    }
    ds_buf_puts(out, some ? "\n" : "");
}

/* Where a kernel is an origin: its stages, and the largest error that it adds. */
static void add_stages(const struct ds_report *r, const struct ds_kernel_verdict *x,
                       struct ds_buf *out)
{
    const struct ds_origin *largest = NULL;
    uint32_t layers = 0, n = 0;
    for (size_t i = 0; i < r->v->n_origins; i++) {
        const struct ds_origin *o = &r->v->origins[i];
        if (strcmp(o->op, x->op) != 0 || strcmp(o->variant, x->variant) != 0)
            continue;
        ds_buf_puts(out, n++ ? " " : ": ");
        ds_report_name(out, o->stage);
        if (o->part[0]) {
            ds_buf_puts(out, "/");
            ds_report_name(out, o->part);
        }
        layers = o->layers > layers ? o->layers : layers;
        if (o->sized && o->relative_rms > 0 &&
            (!largest || o->relative_rms > largest->relative_rms))
            largest = o;
    }
    if (n)
        ds_buf_printf(out, " in %u layer%s", layers, layers == 1 ? "" : "s");
    if (largest) {
        ds_buf_printf(out, ", adds up to %.1e (", largest->relative_rms);
        ds_report_place(out, largest->largest_layer, largest->stage, largest->part);
        ds_buf_puts(out, ")");
    }
}

/* One line for each kernel that gave other bits on equal inputs, wrapped at spaces. */
static int add_guilty(const struct ds_report *r, struct ds_buf *out)
{
    int some = 0;
    for (size_t k = 0; k < r->v->n_kernels; k++) {
        const struct ds_kernel_verdict *x = &r->v->kernels[k];
        struct ds_buf item = {0};
        int has = x->origins != 0;
        for (size_t i = 0; i < r->v->n_origins && !has; i++)
            has = strcmp(r->v->origins[i].op, x->op) == 0 &&
                  strcmp(r->v->origins[i].variant, x->variant) == 0;
        if (!has)
            continue;
        ds_report_kernel(&item, x->op, x->variant);
        if (x->origins)
            ds_buf_printf(&item, " %" PRIu64, x->origins);
        else /* what differs across sites that only one side has is counted for no kernel */
            ds_buf_puts(&item, x->unstable ? " unstable" : " or a kernel before it");
        add_stages(r, x, &item);
        ds_report_head(r, some++ ? "" : "origins", out);
        add_wrapped(item.data ? item.data : "", out);
        out->failed |= item.failed;
        ds_buf_free(&item);
    }
    return some > 0;
}

static void add_origins(const struct ds_report *r, struct ds_buf *out)
{
    if (add_guilty(r, out))
        add_innocent(r, out);
}

static void add_growth(const struct ds_report *r, struct ds_buf *out)
{
    size_t n = r->v->n_growth, step = n > 6 ? (n + 4) / 5 : 1; /* six fit a line */
    if (n == 0)
        return;
    ds_report_head(r, "growth", out);
    for (size_t i = 0; i < n; i += step)
        ds_buf_printf(out, "%sL%d %.1e", i ? "  " : "", r->v->growth[i].layer,
                      r->v->growth[i].relative_rms);
    if ((n - 1) % step)
        ds_buf_printf(out, "  L%d %.1e", r->v->growth[n - 1].layer,
                      r->v->growth[n - 1].relative_rms);
    ds_buf_puts(out, "\n");
    if (r->v->n_added == 0)
        return;
    ds_report_head(r, "added", out); /* of each layer the site that adds most */
    for (size_t i = 0; i < n; i++) {
        const struct ds_growth *g = &r->v->growth[i];
        if (i % step && i + 1 != n)
            continue;
        ds_buf_printf(out, "%sL%d ", i ? "  " : "", g->layer);
        if (g->added_rows)
            ds_buf_printf(out, "%.1e", g->added_relative_rms);
        else
            ds_buf_puts(out, "nothing");
    }
    ds_buf_puts(out, "\n");
}

static void add_setting(const struct ds_discrete *d, struct ds_buf *out)
{
    ds_report_name(out, d->factor);
    ds_buf_puts(out, " ");
    ds_report_name(out, d->value);
    ds_buf_puts(out, ")");
}

/* The first row that passes other experts. */
static void add_experts(const struct ds_report *r, const struct ds_discrete *d, struct ds_buf *out)
{
    ds_report_head(r, "experts", out);
    ds_buf_printf(out, "first others at layer %d, position %d, step %d", d->layer, d->position,
                  d->step);
    for (uint32_t i = 0; i < d->n_swapped; i++) {
        ds_buf_printf(out, "%s expert %d instead of %d", i ? "," : ":", d->swapped[i].b,
                      d->swapped[i].a);
        if (isfinite(d->swapped[i].margin))
            ds_buf_printf(out, ", margin %.9g nats", d->swapped[i].margin);
    }
    ds_buf_puts(out, d->n_swapped ? " (" : "; which ones was not dumped (");
    add_setting(d, out);
    ds_buf_puts(out, "\n");
}

enum { TIGHT_BITS = 6 };

/* The largest value, when f16 is near or something is not finite: told before it overflows. */
static void add_range(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_range_at *x = NULL;
    for (size_t i = 0; i < r->v->n_ranges; i++)
        x = !x || r->v->ranges[i].max_abs > x->max_abs ? &r->v->ranges[i] : x;
    double bits = x ? ds_headroom((double)x->max_abs, DS_F16) : 0;
    if (!x || !r->header || (bits > TIGHT_BITS && !r->v->nonfinite.at.found))
        return;
    const struct ds_site *s = &r->header->sites[x->site];
    ds_report_head(r, "range", out);
    ds_buf_printf(out, "up to %.6g at ", (double)x->max_abs);
    ds_report_place(out, s->layer, s->stage, s->part);
    if (bits < 0)
        ds_buf_printf(out, ", position %d: f16 overflows (65504)\n", x->position);
    else
        ds_buf_printf(out, ", position %d: %.1f bits below the end of f16\n", x->position, bits);
}

/* Which rows of the trial. */
static void add_nonfinite_rows(const struct ds_finding *f, struct ds_buf *out)
{
    if (f->rows == 1)
        ds_buf_printf(out, "1 row, position %d\n", f->position);
    else
        ds_buf_printf(out, "%u rows, positions %s\n", f->rows, f->at_positions);
}

static void add_nonfinite(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_nonfinite_finding *n = &r->v->nonfinite;
    const struct ds_finding *own = &n->own;
    ds_report_head(r, "non-finite", out);
    ds_buf_puts(out, "first at ");
    ds_report_place(out, n->at.layer, n->at.stage, n->at.part);
    ds_buf_printf(out, ", %sposition %d, arm %u: %u NaN, %u Inf; inputs %s%s\n",
                  n->at.row_kind == DS_ROW_PAD ? "a padding row, " : "", n->at.position, n->at.arm,
                  n->nan, n->inf, n->inputs ? "finite" : "not finite",
                  n->only_padding ? "; in padding rows only" : "");
    ds_buf_printf(out, "%14s", "");
    add_nonfinite_rows(&n->at, out);
    if (!r->header || !ds_site_recomputed(&r->header->sites[n->at.site]))
        return;
    ds_buf_printf(out,
                  "%14srecomputed beside the attention kernel, which may store none of it;\n%14s",
                  "", "");
    if (!own->found) {
        ds_buf_puts(out, "all that the kernels gave is finite\n");
        return;
    }
    ds_buf_puts(out, "first given by a kernel: ");
    ds_report_place(out, own->layer, own->stage, own->part);
    ds_buf_puts(out, ", ");
    ds_report_name(out, own->op);
    ds_buf_puts(out, "/");
    ds_report_name(out, own->variant);
    ds_buf_printf(out, ", arm %u, %s; ", own->arm, ds_phase_name(own->phase));
    add_nonfinite_rows(own, out);
}

static void add_tokens(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    if (v->tokens_compared) {
        ds_report_head(r, "tokens", out);
        ds_buf_printf(out, "%" PRIu64 " of %" PRIu64 " choices equal", v->tokens_same,
                      v->tokens_compared);
        const struct ds_discrete *d = &v->token_change;
        if (d->found) {
            ds_buf_printf(out, "; first other at step %d: %d instead of %d, margin %.9g nats (",
                          d->step, d->b, d->a, d->margin);
            add_setting(d, out);
        }
        ds_buf_puts(out, "\n");
    }
    if (v->expert_change.found)
        add_experts(r, &v->expert_change, out);
    if (v->nonfinite.at.found)
        add_nonfinite(r, out);
}

static void add_probe(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    if (r->diff || (v->overhead_prefill < 0 && v->overhead_decode < 0))
        return;
    ds_report_head(r, "probes", out);
    if (v->overhead_prefill >= 0)
        ds_buf_printf(out, "%.2f %% of prefill CPU time", 100 * v->overhead_prefill);
    if (v->overhead_decode >= 0)
        ds_buf_printf(out, "%s%.2f %% of decode", v->overhead_prefill >= 0 ? ", " : "",
                      100 * v->overhead_decode);
    if (v->total_prefill > v->overhead_prefill && v->total_prefill >= 0)
        ds_buf_printf(out, "; %.2f %% and %.2f %% with held rows,\n%14sstatistics and dumps",
                      100 * v->total_prefill, 100 * v->total_decode, "");
    ds_buf_puts(out, v->check == DS_CHECK_AGREES    ? "; the answer is the same without them\n"
                     : v->check == DS_CHECK_DIFFERS ? "; THEY CHANGE THE ANSWER\n"
                     : v->check == DS_CHECK_NOT_RUN ? "; not checked against a run without them\n"
                                                    : ";\n");
    if (v->check == DS_CHECK_AGREES_WITH_ONE)
        ds_buf_printf(out, "%14sthe answer without them is that of some repeat\n", "");
    if (v->check == DS_CHECK_UNSTABLE)
        ds_buf_printf(out,
                      "%14snot known whether they change the answer: repeats disagree, and none is "
                      "like\n%14sthe pass without them\n",
                      "", "");
}

void ds_report_verdict(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    add_record(r, out);
    size_t before = out->len;
    ds_buf_puts(out, "\n");
    size_t start = out->len;
    if (v->n_kernels && !out->failed)
        ds_report_matrix(r, out);
    if (out->len > start)
        ds_buf_puts(out, "\n");
    else if (!out->failed)
        out->data[out->len = before] = '\0'; /* no blank lines around nothing */
    add_factors(r, out);
    add_switches(r, out);
    add_bands(r, out);
    add_terms(r, out);
    add_differences(r, out);
    add_unstable(r, out);
    ds_report_census(r, out);
    add_first(r, out);
    add_other_firsts(r, out);
    add_origins(r, out);
    add_growth(r, out);
    add_range(r, out);
    add_tokens(r, out);
    ds_report_failed(r, out);
    add_probe(r, out);
    ds_report_next(r, out);
    ds_buf_puts(out, ds_report_color(r, v->result == DS_RESULT_DRIFT
                                            ? (v->stable ? DS_ROLE_DRIFT : DS_ROLE_UNSTABLE)
                                        : v->result == DS_RESULT_SAME ? DS_ROLE_SAME
                                                                      : DS_ROLE_HEAD));
    ds_report_sentence(r, out);
    ds_buf_puts(out, ds_report_color(r, DS_ROLE_PLAIN));
    ds_buf_puts(out, "\n");
}
