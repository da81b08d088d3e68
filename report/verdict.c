/* verdict.c: the verdict as text: matrix first, the answer last. Lays out; judges nothing.
 */
#include "report/report_internal.h"

#include "dumps/validity.h"

#include "base/plural.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
        ds_report_wrapped(out, DS_REPORT_INDENT, strlen(DS_REPORT_INDENT), x->text);
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
    ds_buf_printf(out, ", %" PRIu64 " site%s, %" PRIu64 " row%s; %" PRIu64 " digest%s compared\n",
                  v->counts.sites, ds_plural(v->counts.sites), v->counts.rows,
                  ds_plural(v->counts.rows), v->counts.digests_compared,
                  ds_plural(v->counts.digests_compared));
    if (r->incomplete || r->damaged)
        ds_buf_printf(out, "%14sleft out: %zu trials cut short, %zu damaged\n", "", r->incomplete,
                      r->damaged);
    struct ds_buf sampler = {0};
    if (r->header && !r->diff)
        ds_report_sampler(r->header, &sampler);
    if (sampler.len) {
        ds_report_head(r, "sampler", out);
        ds_buf_add(out, sampler.data, sampler.len);
    }
    out->failed |= sampler.failed;
    ds_buf_free(&sampler);
    for (size_t i = 0; r->header && !r->diff && i < r->header->n_options; i++) {
        if (strcmp(r->header->options[i].name, "mutations") != 0)
            continue;
        ds_report_head(r, "fixture", out);
        ds_report_name(out, r->header->options[i].value);
        ds_buf_puts(out, " changes to the data of a stage were seen by what reads it\n");
    }
}

static void add_findings(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    ds_report_damage(r, out);
    add_validity(r, out);
    for (size_t i = 0; i < v->n_notes; i++) {
        ds_report_head(r, "note", out);
        ds_report_wrapped(out, DS_REPORT_INDENT, strlen(DS_REPORT_INDENT), v->notes[i]);
        ds_buf_puts(out, "\n");
    }
}

static size_t most_differences(int kind)
{
    return kind == DS_DIFF_ARM || kind == DS_DIFF_REPEATS ? 3 : 8;
}

static void add_matrix(const struct ds_report *r, struct ds_buf *out)
{
    const size_t before = out->len;
    ds_buf_puts(out, "\n");
    const size_t start = out->len;
    if (r->v->n_kernels && !out->failed)
        ds_report_matrix(r, out);
    if (out->len > start)
        ds_buf_puts(out, "\n");
    else if (!out->failed)
        out->data[out->len = before] = '\0'; /* no empty lines around nothing */
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
    if (!d->within.found)
        return;
    ds_buf_printf(out, "%14srows differ within it from ", "");
    ds_report_place(out, d->within.layer, d->within.stage, d->within.part);
    ds_buf_puts(out, ", ");
    ds_report_kernel(out, d->within.op, d->within.variant);
    ds_buf_puts(out, ", on\n");
}

static void add_differences(const struct ds_report *r, struct ds_buf *out)
{
    size_t of_kind[DS_DIFF_KINDS] = {0};
    if (r->diff && r->diff->two_models) {
        ds_report_head(r, "two models", out);
        ds_buf_printf(out, "%s\n", r->diff->models_words);
    }
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
    if (r->diff && r->diff->missing_words[0]) {
        ds_report_head(r, "partial", out);
        struct ds_buf words = {0};
        ds_report_name(&words, r->diff->missing_words);
        ds_report_wrapped(out, DS_REPORT_INDENT, strlen(DS_REPORT_INDENT),
                          words.data ? words.data : "");
        out->failed |= words.failed;
        ds_buf_free(&words);
        ds_buf_puts(out, "\n");
    }
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
        const char *beyond = r->diff && r->diff->excused ? " beyond the tolerance" : "";
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
            ds_buf_printf(out, "no difference%s over %" PRIu64 " comparisons", beyond,
                          all->compared);
        } else {
            add_phase(x, "prefill ", DS_VERDICT_PREFILL, out);
            add_phase(x, "  decode ", DS_VERDICT_DECODE, out);
            ds_buf_printf(out, "; %" PRIu64 " of %" PRIu64 " digests differ%s, %u row%s",
                          all->drifted, all->compared, beyond, all->rows, ds_plural(all->rows));
        }
        if (f == 0 && ds_report_until_stable(r))
            ds_report_excluded(r, out);
        if (all->unstable)
            ds_buf_printf(out, "; %" PRIu64 " unstable", all->unstable);
        if (x->arms_alone)
            ds_buf_printf(out, "; %u arm%s without a partner yet", x->arms_alone,
                          ds_plural(x->arms_alone));
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
        ds_buf_printf(out, ": other bits in %s\n%sonly with %s %s, not with %s\n",
                      ds_phase_name(x->phase), DS_REPORT_INDENT, x->differ, what, x->equal);
    }
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
                     : v->check == DS_CHECK_PARTED
                         ? "; a pass without them does not give the same answer twice\n"
                         : ";\n");
    if (v->check == DS_CHECK_AGREES_WITH_ONE)
        ds_buf_printf(out, "%14sthe answer without them is that of some repeat\n", "");
    if (v->check == DS_CHECK_UNSTABLE)
        ds_buf_printf(out,
                      "%14snot known whether they change the answer: repeats disagree, and none is "
                      "like\n%14sthe pass without them\n",
                      "", "");
}

static void add_instability(const struct ds_report *r, struct ds_buf *out)
{
    add_unstable(r, out);
    ds_report_census(r, out);
}

void ds_report_paragraph(const struct ds_report *r, int part, struct ds_buf *out)
{
    static void (*const add[DS_REPORT_PARTS])(const struct ds_report *, struct ds_buf *) = {
        [DS_REPORT_RECORD] = add_record,
        [DS_REPORT_VALIDITY] = add_findings,
        [DS_REPORT_MATRIX] = add_matrix,
        [DS_REPORT_FACTORS] = add_factors,
        [DS_REPORT_SWITCHES] = add_switches,
        [DS_REPORT_BANDS] = add_bands,
        [DS_REPORT_TERMS] = add_terms,
        [DS_REPORT_DIFFERENCES] = add_differences,
        [DS_REPORT_UNSTABLE] = add_instability,
        [DS_REPORT_FIRSTS] = ds_report_firsts,
        [DS_REPORT_ORIGINS] = ds_report_origins,
        [DS_REPORT_GROWTH] = ds_report_growth,
        [DS_REPORT_PRECISIONS] = ds_report_precisions,
        [DS_REPORT_RANGE] = ds_report_range,
        [DS_REPORT_TOKENS] = ds_report_tokens,
        [DS_REPORT_FAILED] = ds_report_failed,
        [DS_REPORT_PROBES] = add_probe,
        [DS_REPORT_NEXT] = ds_report_next,
    };
    if (part >= 0 && part < DS_REPORT_PARTS)
        add[part](r, out);
}

void ds_report_verdict(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    for (int part = 0; part < DS_REPORT_PARTS; part++)
        ds_report_paragraph(r, part, out);
    ds_buf_puts(out, ds_report_color(r, v->result == DS_RESULT_DRIFT
                                            ? (v->stable ? DS_ROLE_DRIFT : DS_ROLE_UNSTABLE)
                                        : v->result == DS_RESULT_SAME ? DS_ROLE_SAME
                                                                      : DS_ROLE_HEAD));
    ds_report_sentence(r, out);
    ds_buf_puts(out, ds_report_color(r, DS_ROLE_PLAIN));
    ds_buf_puts(out, "\n");
}
