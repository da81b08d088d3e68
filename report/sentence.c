/* sentence.c: the verdict in one sentence. Judges nothing. */
#include "report/report_internal.h"

#include "dumps/census.h"

#include "base/plural.h"

#include <inttypes.h>
#include <string.h>

static void add_against(const struct ds_diff_item *x, struct ds_buf *out)
{
    ds_report_name(out, x->name);
    ds_buf_puts(out, " ");
    ds_report_name(out, x->a ? x->a : "none");
    ds_buf_puts(out, " against ");
    ds_report_name(out, x->b ? x->b : "none");
}

/* How the kernels at the first drift were launched, as far as it is not said yet: two fields at
 * most, and no names of variants, which stand beside the place. */
static void add_launch(const struct ds_report *r, const struct ds_diff_item *told,
                       struct ds_buf *out)
{
    for (size_t i = 0, n = 0; i < r->diff->n_items && n < 2; i++) {
        const struct ds_diff_item *x = &r->diff->items[i];
        if (x->kind != DS_DIFF_LAUNCH || strcmp(x->name, "op") == 0 ||
            strcmp(x->name, "variant") == 0 || strncmp(x->name, "threads ", 8) == 0 ||
            (told && (strcmp(x->name, told->name) == 0 ||
                      (told->kind == DS_DIFF_LIBRARY && strstr(x->name, "BLAS core")) ||
                      (x->a && x->b && told->a && told->b && strcmp(x->a, told->a) == 0 &&
                       strcmp(x->b, told->b) == 0))))
            continue;
        ds_buf_puts(out, n++ ? ", " : "; ");
        add_against(x, out);
    }
}

/* Whether a differing weight or hyperparameter may be why the first difference is where it is: the kernel
 * there, or one of those before it that it stands for, works with it. Where nothing differs, what was given
 * otherwise is worth a word in any case. Other numbers of layers speak where some have no partner. */
static int bears_on(const struct ds_report *r, const struct ds_diff_item *x)
{
    const struct ds_finding *f = &r->v->first;
    if (x->kind == DS_DIFF_MODEL)
        return f->found && f->between && strcmp(x->name, "layers") == 0;
    if (!f->found || (x->kind != DS_DIFF_WEIGHT && x->kind != DS_DIFF_HPARAM))
        return 1;
    int reads = ds_diff_reads(r->diff, x, f->site);
    for (uint32_t s = f->between_first; f->between && s < f->site && !reads; s++)
        reads = ds_diff_reads(r->diff, x, s);
    return reads;
}

/* The first differing setting of two records, and their launches: beside the place it is what one
 * looks for. */
static void add_setting(const struct ds_report *r, struct ds_buf *out)
{
    static const int order[] = {DS_DIFF_MODEL,  DS_DIFF_WEIGHT,  DS_DIFF_HPARAM,
                                DS_DIFF_FACTOR, DS_DIFF_LIBRARY, DS_DIFF_FACTOR};
    const struct ds_diff_item *told = NULL;
    if (!r->diff)
        return;
    for (size_t k = 0, factors = 0; k < sizeof order / sizeof *order && !told; k++) {
        factors += order[k] == DS_DIFF_FACTOR;
        for (size_t i = 0; i < r->diff->n_items && !told; i++) {
            const struct ds_diff_item *x = &r->diff->items[i];
            /* A core by the name the library gives says more than the one asked for. */
            const int later = factors == 1 && strcmp(x->name, "blas-core") == 0;
            if (x->kind == order[k] && !later && bears_on(r, x))
                told = x;
        }
    }
    if (told && told->kind == DS_DIFF_WEIGHT) {
        ds_buf_puts(out, "; weight ");
        ds_report_name(out, told->name);
        ds_buf_puts(out, " differs");
    } else if (told) {
        ds_buf_puts(out, told->kind == DS_DIFF_HPARAM ? "; hyperparameter " : "; ");
        add_against(told, out);
    }
    add_launch(r, told, out);
}

/* Whoever let two models be compared must not read their difference as that of one. */
static const char *between_models(const struct ds_report *r)
{
    return r->diff && r->diff->two_models ? " between two models" : "";
}

static void add_drift_sentence(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    const struct ds_finding *f = &v->first;
    ds_buf_printf(out, "drift%s: %sfirst ", between_models(r), v->stable ? "" : "unstable, ");
    ds_buf_puts(out, r->diff && r->diff->excused ? "beyond the tolerance at " : "at ");
    ds_report_place(out, f->layer, f->stage, f->part);
    ds_buf_puts(out, ", ");
    ds_report_kernel(out, f->op, f->variant);
    if (f->label == DS_LABEL_UNKNOWN || f->between)
        ds_buf_puts(out, " or a kernel before it");
    if (f->inputs_within)
        ds_buf_puts(out, ", whose inputs differ within it");
    if (!v->stable) {
        ds_buf_printf(out, " (%s): %u of %u trials disagree (95 %% interval %.0f to %.0f %%)",
                      ds_phase_name(f->phase), v->unstable.disagree, v->unstable.trials,
                      100 * v->unstable.low, 100 * v->unstable.high);
        return;
    }
    ds_buf_puts(out, ", ");
    ds_report_name(out, f->factor);
    ds_buf_puts(out, " ");
    ds_report_name(out, f->value);
    ds_report_rest(r, f, out);
    ds_buf_printf(out, " (%s, %u row%s in the call): %s; ", ds_phase_name(f->phase),
                  f->rows_in_call, ds_plural(f->rows_in_call), ds_kind_name(f->kind));
    if (v->factors[0].arms)
        ds_buf_printf(out, "stable over %u repeats", v->factors[0].n_values);
    else
        ds_buf_puts(out, "not repeated");
}

/* Where the reason is that something is missing, it is said there. */
static void add_missing(const struct ds_report *r, struct ds_buf *out)
{
    if (!r->diff || !r->diff->partial || r->v->result == DS_RESULT_INCOMPARABLE)
        return;
    ds_buf_puts(out, "; only what both have was compared: ");
    ds_report_name(out, r->diff->missing_words);
}

void ds_report_sentence(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    if (v->result == DS_RESULT_DRIFT) {
        add_drift_sentence(r, out);
    } else if (v->result == DS_RESULT_SAME) {
        uint64_t n = r->diff ? v->factors[v->n_factors - 1].phase[DS_VERDICT_ALL].compared
                             : v->counts.digests_compared;
        ds_buf_printf(out, "same%s: no difference %sover %" PRIu64 " comparisons (",
                      between_models(r), r->diff && r->diff->excused ? "beyond the tolerance " : "",
                      n);
        ds_report_arms(v, out);
        if (ds_report_planned(r) > v->counts.trials)
            ds_buf_printf(out, ", %" PRIu64 " of %" PRIu64 " trials so far)", v->counts.trials,
                          ds_report_planned(r));
        else
            ds_buf_printf(out, ", %" PRIu64 " trials)", v->counts.trials);
    } else if (v->result == DS_RESULT_RECORDED) {
        ds_buf_puts(out, "recorded: one trial");
        if (ds_report_planned(r) > v->counts.trials)
            ds_buf_printf(out, " of %" PRIu64, ds_report_planned(r));
        ds_buf_printf(
            out, ", %" PRIu64 " site%s, %" PRIu64 " row%s; nothing to compare it with yet",
            v->counts.sites, ds_plural(v->counts.sites), v->counts.rows, ds_plural(v->counts.rows));
    } else {
        ds_buf_puts(out, "incomparable: ");
        ds_report_name(out, v->reason);
    }
    if (v->result == DS_RESULT_DRIFT || v->result == DS_RESULT_SAME)
        add_setting(r, out);
    if (v->census && v->census->arms_short && v->result == DS_RESULT_SAME)
        ds_buf_printf(out,
                      "; a flake rate of %.6g %% is not excluded: that takes %u trials of an arm",
                      100 * v->census->asked, v->census->asked_trials);
    if (v->nonfinite.at.found) {
        ds_buf_puts(out, "; NaN or Inf from ");
        ds_report_place(out, v->nonfinite.at.layer, v->nonfinite.at.stage, v->nonfinite.at.part);
        ds_buf_puts(out, v->nonfinite.only_padding ? " in padding rows only" : "");
        ds_buf_puts(out, v->nonfinite.own.found ? "" : ", which is recomputed: no kernel gave any");
    }
    if (r->diff && r->diff->excused)
        ds_buf_printf(out, "; %" PRIu64 " differing rows within the tolerance", r->diff->excused);
    if (r->diff && r->diff->not_dumped)
        ds_buf_printf(out, "; %" PRIu64 " rows not excused: their bytes are not in both records",
                      r->diff->not_dumped);
    if (r->diff && r->diff->n_ignored && v->result != DS_RESULT_INCOMPARABLE)
        ds_buf_printf(out, "; %zu of %zu sites compared",
                      r->diff->header.n_sites - r->diff->n_ignored, r->diff->header.n_sites);
    /* What the answer does not rest on belongs to the answer. */
    ds_report_failed_words(r, out);
    add_missing(r, out);
    if (r->diff && v->result == DS_RESULT_SAME && !r->diff->partial &&
        (r->diff->unpaired[0] || r->diff->unpaired[1]))
        ds_buf_printf(out, "; %" PRIu64 " digests of A and %" PRIu64 " of B have no partner",
                      r->diff->unpaired[0], r->diff->unpaired[1]);
    ds_report_damage_words(r, out);
    if (r->damaged)
        ds_buf_printf(out, "; %zu damaged trial%s left out", r->damaged,
                      r->damaged == 1 ? "" : "s");
    if (r->incomplete)
        ds_buf_printf(out, "; %zu cut short", r->incomplete);
}
