/* finding.c: one finding in a few sentences: where, against what, how large, of what kind. Judges nothing. */
#include "report/report_internal.h"

#include "base/plural.h"

#include <inttypes.h>
#include <string.h>

/* What was looked up for the verdict's first drift holds for no other finding. */
static int is_first(const struct ds_report *r, const struct ds_finding *f)
{
    const struct ds_finding *first = &r->v->first;
    return first->found && first->site == f->site && first->arm == f->arm &&
           first->ref_arm == f->ref_arm;
}

static void add_sizes(const struct ds_finding *f, struct ds_buf *out)
{
    ds_buf_printf(out, "%s %" PRIu64 " element%s; max %" PRIu64 " ULP, max abs ",
                  f->sized_rows < f->rows ? "" : ",", f->elements, f->elements == 1 ? "" : "s",
                  f->max_ulp);
    ds_report_number(f->max_abs, out);
    ds_buf_printf(out, ", rms %.3g%s", f->rms,
                  f->nonfinite + f->ref_nonfinite ? " where finite" : "");
}

void ds_report_size(const struct ds_report *r, const struct ds_finding *f, const char *indent,
                    struct ds_buf *out)
{
    ds_buf_printf(out, "%s%u row%s", indent, f->rows, f->rows == 1 ? "" : "s");
    if (f->positions != f->rows)
        ds_buf_printf(out, " at %u position%s", f->positions, f->positions == 1 ? "" : "s");
    if (f->sized && f->sized_rows < f->rows)
        ds_buf_printf(out, "; in %u of them", f->sized_rows);
    if (f->sized && f->nonfinite + f->ref_nonfinite && f->max_ulp == 0)
        ds_buf_printf(out, "%s %" PRIu64 " element%s, NaN or Inf on %s",
                      f->sized_rows < f->rows ? "" : ",", f->elements, f->elements == 1 ? "" : "s",
                      f->nonfinite && f->ref_nonfinite ? "both sides"
                      : f->nonfinite                   ? "this side"
                                                       : "the reference's side");
    else if (f->sized)
        add_sizes(f, out);
    else
        ds_buf_puts(out, r->diff
                             ? "; sizes not recorded (run both with --dump all --dump-rows 1000000)"
                             : "; sizes not recorded");
    ds_buf_puts(out, "\n");
}

void ds_report_of_rows(uint32_t n, uint32_t of, struct ds_buf *out)
{
    if (n < of)
        ds_buf_printf(out, "(%u of %u rows)", n, of);
    else
        ds_buf_printf(out, "(%u row%s)", n, n == 1 ? "" : "s");
}

/* Where in the rows: nothing to tell when it is everywhere, or not known. */
void ds_report_where(const struct ds_finding *f, const char *indent, struct ds_buf *out)
{
    struct ds_buf b = {0};
    ds_buf_printf(&b, "%spositions %s", f->beyond_rounding ? "beyond rounding: " : "",
                  f->at_positions);
    if (f->heads[0])
        ds_buf_printf(&b, "; heads %s", f->heads);
    if (f->channels[0])
        ds_buf_printf(&b, "; channels %s", f->channels);
    if (f->value_rows && f->p99_ulp) {
        ds_buf_printf(&b, "; 99 %% within %" PRIu64 " ULP ", f->p99_ulp);
        ds_report_of_rows(f->value_rows, f->rows, &b);
    }
    ds_buf_puts(out, indent);
    ds_report_wrapped(out, indent, strlen(indent), b.data ? b.data : "");
    ds_buf_puts(out, "\n");
    out->failed |= b.failed;
    ds_buf_free(&b);
    if (f->concentrated[0])
        ds_buf_printf(out, "%s%.3g %% of the squared error in %u of %u elements of a row: %s\n",
                      indent, 100 * f->concentrated_share, f->concentrated_in, f->concentrated_of,
                      f->concentrated);
    if (f->structure[0] && !strstr(f->why, f->structure)) {
        ds_buf_puts(out, indent);
        ds_report_wrapped(out, indent, strlen(indent), f->structure);
        ds_buf_puts(out, "\n");
    }
}

void ds_report_ends(const struct ds_finding *f, const char *indent, struct ds_buf *out)
{
    if (!f->ends)
        return;
    ds_buf_printf(out, "%sfirst row ", indent);
    ds_report_row_key(&f->first_row, out);
    ds_buf_puts(out, ", last ");
    ds_report_row_key(&f->last_row, out);
    if (f->element_ends)
        ds_buf_printf(out, "; first element %u, last %u", f->first_element, f->last_element);
    ds_buf_puts(out, "\n");
}

void ds_report_kind(const struct ds_finding *f, const char *indent, struct ds_buf *out)
{
    const size_t start = out->len;
    ds_buf_printf(out, "%s%s%s", indent, ds_kind_name(f->kind), f->why[0] ? ": " : "");
    ds_report_wrapped(out, indent, out->len - start, f->why);
    ds_buf_puts(out, "\n");
}

/* "tile 64 against 128, threads 1 against 2"; 0 if there is nothing to tell. */
static int add_launches(const struct ds_report *r, const char *indent, struct ds_buf *out)
{
    size_t n = 0, column = strlen(indent);
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
            ds_buf_puts(out, indent);
        ds_report_item(out, indent, &item, n++ == 0, &column);
        ds_buf_free(&item);
    }
    ds_buf_puts(out, n ? "\n" : "");
    return n > 0;
}

/* Where sites are missing on a side, the nearest ones before them are the inputs. */
static void add_between(const struct ds_report *r, const struct ds_finding *f, const char *indent,
                        struct ds_buf *out)
{
    const struct ds_header *h = r->diff ? &r->diff->header : r->header;
    ds_buf_printf(out, "%sor at one of %u sites before it that were not recorded on both sides",
                  indent, f->between);
    if (f->between_first < h->n_sites) {
        const struct ds_site *s = &h->sites[f->between_first];
        ds_buf_printf(out, ",\n%sfrom ", indent);
        ds_report_place(out, s->layer, s->stage, s->part);
        ds_buf_puts(out, " on; what they read is equal");
    }
    ds_buf_puts(out, "\n");
}

/* Whether its label rests on what it reads. */
static void add_inputs(const struct ds_report *r, const struct ds_finding *f, const char *indent,
                       struct ds_buf *out)
{
    const struct ds_finding *within = r->diff ? &r->diff->within : NULL;
    const int excused = within && within->found && within->site < f->site;
    if (f->label == DS_LABEL_ORIGIN && f->between)
        add_between(r, f, indent, out);
    else if (f->label == DS_LABEL_ORIGIN && is_first(r, f) && f->site > 1)
        ds_buf_printf(out, "%sits inputs are equal, and so are the %u sites before it%s\n", indent,
                      f->site, excused ? " within the tolerance" : "");
    else if (f->label == DS_LABEL_ORIGIN && is_first(r, f) && f->site == 1)
        ds_buf_printf(out, "%sits inputs are equal, and so is the site before it%s\n", indent,
                      excused ? " within the tolerance" : "");
    else if (f->label == DS_LABEL_ORIGIN)
        ds_buf_printf(out, "%sits inputs are equal\n", indent);
    else if (f->inputs_within)
        ds_buf_printf(out,
                      "%sits inputs differ within the tolerance: what is beyond it may have grown "
                      "from them\n",
                      indent);
    else if (f->label == DS_LABEL_UNKNOWN)
        ds_buf_printf(
            out, "%sits inputs were not compared: any kernel before it may be the cause\n", indent);
}

/* Both launches in full, where no list says what differs. */
static void add_both_launches(const struct ds_finding *f, const char *indent, struct ds_buf *out)
{
    struct ds_buf mine = {0}, theirs = {0};
    ds_report_launch(f->launch, f->blas_core, &mine);
    ds_report_launch(f->ref_launch, f->ref_blas_core, &theirs);
    const char *a = mine.data ? mine.data : "", *b = theirs.data ? theirs.data : "";
    out->failed |= mine.failed || theirs.failed;
    if (strcmp(a, b) == 0)
        ds_buf_printf(out, "%slaunched alike: %s\n", indent, a);
    else
        ds_buf_printf(out, "%s%s against %s\n", indent, a, b);
    ds_buf_free(&mine);
    ds_buf_free(&theirs);
}

static void add_number(const char *name, int32_t mine, int32_t theirs, int both, struct ds_buf *out)
{
    if (mine < 0 || theirs < 0)
        return;
    ds_buf_printf(out, "%s %d", name, theirs);
    if (both)
        ds_buf_printf(out, " against %d", mine);
}

/* Threads asked for, the team's most, and those at work, where other numbers were asked for in two arms or one of
 * them alone had more at work (fewer are what a busy machine makes of them); for one arm where they are not those
 * that were asked for. */
static void add_threads(const struct ds_finding *f, const char *indent, struct ds_buf *out)
{
    const struct ds_trial *mine = f->info, *theirs = f->ref_info;
    if (!mine || !theirs)
        return;
    const int used = ds_threads_used(mine), both = f->arm != f->ref_arm;
    if (both ? (used == DS_THREADS_MORE) == (ds_threads_used(theirs) == DS_THREADS_MORE) &&
                   mine->threads_asked == theirs->threads_asked
             : used != DS_THREADS_FEWER && used != DS_THREADS_MORE)
        return;
    ds_buf_printf(out, "%sthreads", indent);
    add_number(" asked", mine->threads_asked, theirs->threads_asked, both, out);
    if (mine->threads_max != mine->threads_asked || theirs->threads_max != theirs->threads_asked)
        add_number(", at most", mine->threads_max, theirs->threads_max, both, out);
    add_number(", seen", mine->threads_seen, theirs->threads_seen, both, out);
    ds_buf_puts(out, used == DS_THREADS_MORE    ? ": more at work than were asked for\n"
                     : used == DS_THREADS_FEWER ? ": fewer at work than were asked for\n"
                                                : "\n");
}

void ds_report_finding(const struct ds_report *r, const struct ds_finding *f, const char *indent,
                       struct ds_buf *out)
{
    ds_report_place(out, f->layer, f->stage, f->part);
    ds_buf_puts(out, ", ");
    ds_report_kernel(out, f->op, f->variant);
    ds_buf_printf(out, ": %s\n", ds_label_name(f->label));
    add_inputs(r, f, indent, out);
    ds_buf_puts(out, indent);
    ds_report_name(out, f->factor);
    ds_buf_puts(out, " ");
    ds_report_name(out, f->value);
    ds_buf_puts(out, " against ");
    ds_report_name(out, f->ref_value);
    ds_report_rest(r, f, out);
    ds_buf_printf(out,
                  "; %s, %u row%s in the call (%u)\n%sfrom step %d, request %d, position %d on\n",
                  ds_phase_name(f->phase), f->rows_in_call, ds_plural(f->rows_in_call),
                  f->ref_rows_in_call, indent, f->step, f->request, f->position);
    ds_report_size(r, f, indent, out);
    ds_report_where(f, indent, out);
    ds_report_kind(f, indent, out);
    if (is_first(r, f) && add_launches(r, indent, out))
        return;
    add_both_launches(f, indent, out);
    add_threads(f, indent, out);
}

/* Trials that disagree, and are all wrong besides. */
static void add_apart(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_unstable *u = &r->v->unstable;
    if (u->apart_trials)
        ds_buf_printf(out,
                      "%sapart from that all %u trials are off arm %u, on equal inputs: relative "
                      "rms %.3g or\n%smore, %.2g times what these two are off each other\n",
                      DS_REPORT_INDENT, u->apart_trials, u->apart_ref, u->apart_rms,
                      DS_REPORT_INDENT, u->apart_rms / u->first.relative_rms);
}

static void add_first(const struct ds_report *r, struct ds_buf *out)
{
    if (!r->v->first.found)
        return;
    ds_report_head(r, r->v->stable ? "first drift" : "first unstable", out);
    ds_report_finding(r, &r->v->first, DS_REPORT_INDENT, out);
    if (!r->v->stable)
        add_apart(r, out);
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

void ds_report_firsts(const struct ds_report *r, struct ds_buf *out)
{
    add_first(r, out);
    add_other_firsts(r, out);
}
