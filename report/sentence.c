/* sentence.c: the end of a verdict as text: the verdict in one sentence and the command that
 * comes next; and the names that all its parts share. Judges nothing. */
#include "report/report_internal.h"

#include "dumps/census.h"

#include <inttypes.h>
#include <string.h>

void ds_report_place(struct ds_buf *out, int32_t layer, const char *stage, const char *part)
{
    ds_buf_printf(out, "layer %d ", layer);
    ds_report_name(out, stage);
    if (part && part[0]) {
        ds_buf_puts(out, "/");
        ds_report_name(out, part);
    }
}

void ds_report_kernel(struct ds_buf *out, const char *op, const char *variant)
{
    ds_report_name(out, op);
    ds_buf_puts(out, "/");
    ds_report_name(out, variant);
}

void ds_report_head(const struct ds_report *r, const char *name, struct ds_buf *out)
{
    ds_buf_printf(out, "%s%-13s%s ", ds_report_color(r, DS_ROLE_HEAD), name,
                  ds_report_color(r, DS_ROLE_PLAIN));
}

/* An arm without a trial was lost or not run yet: nothing is known of it. */
void ds_report_arms(const struct ds_verdict *v, struct ds_buf *out)
{
    uint64_t arms = v->counts.arms, planned = v->counts.arms_planned;
    ds_buf_printf(out, "%" PRIu64, arms);
    if (planned > arms)
        ds_buf_printf(out, " of %" PRIu64, planned);
    ds_buf_puts(out, planned <= 1 && arms == 1 ? " arm" : " arms");
}

int ds_report_until_stable(const struct ds_report *r)
{
    for (size_t i = 0; !r->diff && r->header && i < r->header->n_options; i++)
        if (strcmp(r->header->options[i].name, "until_stable") == 0)
            return strcmp(r->header->options[i].value, "0") != 0;
    return 0;
}

/* Trials that the record is to have in the end; 0 when that is not a question (diff). */
uint64_t ds_report_planned(const struct ds_report *r)
{
    if (r->diff || !r->header)
        return 0;
    uint64_t planned = (uint64_t)r->header->n_arms * r->header->repeats;
    const struct ds_census *c = r->v->census;
    for (size_t i = 0; c && ds_report_until_stable(r) && i < c->n_arms; i++)
        if (c->arms[i].distinct > 1 && c->arms[i].trials < r->header->repeats)
            planned -= r->header->repeats - c->arms[i].trials;
    return planned;
}

/* " with threads 2": what else is not as in the base arm. */
void ds_report_rest(const struct ds_report *r, const struct ds_finding *f, struct ds_buf *out)
{
    const struct ds_header *h = r->header;
    int first = 1;
    for (size_t i = 0; !r->diff && i < h->n_factors && f->arm < h->n_arms; i++) {
        if (strcmp(h->factors[i], f->factor) == 0 ||
            strcmp(h->arms[f->arm].values[i], h->arms[0].values[i]) == 0)
            continue;
        ds_buf_puts(out, first ? " with " : ", ");
        ds_report_name(out, h->factors[i]);
        ds_buf_puts(out, " ");
        ds_report_name(out, h->arms[f->arm].values[i]);
        first = 0;
    }
}

/* "driftscope VERB ", with what the program needs to load the same model and kernels; model NULL: the
 * verb loads none. */
static void begin(const struct ds_report_caller *c, struct ds_buf *out, const char *verb,
                  const char *model)
{
    if (c) {
        c->begin(out, verb, model);
        return;
    }
    ds_buf_printf(out, "driftscope %s ", verb);
    if (model && model[0]) {
        ds_buf_puts(out, "-m ");
        ds_buf_quote(out, model);
        ds_buf_puts(out, " ");
    }
}

/* Whether the command of the record has one of the options, each with the space before it. */
static int was_given(const struct ds_header *h, const char *const *options, size_t n)
{
    for (size_t i = 0; h->command && i < n; i++)
        if (strstr(h->command, options[i]))
            return 1;
    return 0;
}

/* The subject as it was given; the default prompt needs no option. The form of a chat is no text that -p
 * would bring back, but its tokens are. */
static void add_prompt(const struct ds_header *h, struct ds_buf *out)
{
    static const char *const prompts[] = {" -p",     " --prompt",  " -f",
                                          " --file", " --tokens ", " --tokens="},
                             *const chat[] = {" --chat"};
    enum { MOST_TOKENS = 256 };
    const struct ds_prompt *p = h->n_prompts ? &h->prompts[0] : NULL;
    if (!p || !was_given(h, prompts, sizeof prompts / sizeof *prompts))
        return;
    if (p->text && p->text[0] && !was_given(h, chat, 1)) {
        ds_buf_puts(out, "-p ");
        ds_buf_quote(out, p->text);
        ds_buf_puts(out, " ");
    } else if (p->n_tokens <= MOST_TOKENS) {
        ds_buf_puts(out, "--tokens ");
        for (uint32_t i = 0; i < p->n_tokens; i++)
            ds_buf_printf(out, "%s%d", i ? "," : "", p->tokens[i]);
        ds_buf_puts(out, " ");
    }
}

/* Kernels of the base arm that are not the default ones. */
static void add_kernels(const struct ds_header *h, struct ds_buf *out)
{
    for (size_t f = 0; f < h->n_factors && h->n_arms; f++)
        if (strcmp(h->factors[f], "kernels") == 0 && strcmp(h->arms[0].values[f], "vendor") != 0) {
            ds_buf_puts(out, "--kernels ");
            ds_buf_quote(out, h->arms[0].values[f]);
            ds_buf_puts(out, " ");
        }
}

/* Whether the record has values of the first drift, as far as its options tell. */
static int has_values(const struct ds_report *r)
{
    for (size_t i = 0; i < r->header->n_options; i++)
        if (strcmp(r->header->options[i].name, "dump") == 0)
            return strcmp(r->header->options[i].value, "0") != 0;
    return 0;
}

/* A second command, for the kernels whose calls can be made again. */
static void add_explain(const struct ds_report *r, struct ds_buf *out)
{
    if (r->path_b || !has_values(r) || !r->caller || !r->caller->explains(r->v->first.op))
        return;
    ds_buf_printf(out, "\n%14s", "");
    begin(r->caller, out, "explain", r->header->model_name);
    ds_buf_quote(out, r->path);
}

void ds_report_resume(const struct ds_report_caller *caller, const char *model, const char *path,
                      struct ds_buf *out)
{
    begin(caller, out, "run", model ? model : "");
    ds_buf_puts(out, "--resume ");
    ds_buf_quote(out, path);
}

void ds_report_next(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    struct ds_buf b = {0};
    const int side = r->damage && !r->damage[0].n && r->damage[1].n; /* the one that is damaged */
    if (r->damage && r->damage[side].n) {
        ds_report_resume(r->caller, ds_record_header(r->damage[side].record)->model_name,
                         side ? r->path_b : r->path, &b);
    } else if (v->first.found && r->path) {
        begin(r->caller, &b, r->path_b ? "diff" : "show", NULL);
        ds_buf_quote(&b, r->path);
        ds_buf_puts(&b, " ");
        if (r->path_b) {
            ds_buf_quote(&b, r->path_b);
            ds_buf_puts(&b, " ");
        }
        ds_buf_printf(&b, "--site %d,", v->first.layer);
        ds_report_name(&b, v->first.stage);
        if (v->first.part[0]) {
            ds_buf_puts(&b, "/");
            ds_report_name(&b, v->first.part);
        }
        if (!r->path_b && v->stable)
            ds_buf_printf(&b, " --arm %u", v->first.arm);
        add_explain(r, &b);
    } else if (ds_report_planned(r) > v->counts.trials && r->path) {
        ds_report_resume(r->caller, r->header->model_name, r->path, &b);
    } else if (v->result == DS_RESULT_RECORDED) {
        begin(r->caller, &b, "run", r->header->model_name);
        add_prompt(r->header, &b);
        add_kernels(r->header, &b);
        ds_buf_puts(&b, "--repeat 3 --batch 1,2,4,8");
    } else if (v->result == DS_RESULT_SAME && r->path) {
        begin(r->caller, &b, r->path_b ? "diff" : "show", NULL);
        ds_buf_quote(&b, r->path);
        if (r->path_b) {
            ds_buf_puts(&b, " ");
            ds_buf_quote(&b, r->path_b);
        }
        ds_buf_puts(&b, " --sites");
    }
    if (b.len) {
        ds_report_head(r, "next", out);
        ds_buf_add(out, b.data, b.len);
        ds_buf_puts(out, "\n");
    }
    out->failed |= b.failed;
    ds_buf_free(&b);
}

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

/* The first differing setting of two records, and their launches: beside the place it is what one
 * looks for. */
static void add_setting(const struct ds_report *r, struct ds_buf *out)
{
    static const int order[] = {DS_DIFF_WEIGHT, DS_DIFF_HPARAM, DS_DIFF_FACTOR, DS_DIFF_LIBRARY,
                                DS_DIFF_FACTOR};
    const struct ds_diff_item *told = NULL;
    if (!r->diff)
        return;
    for (size_t k = 0; k < sizeof order / sizeof *order && !told; k++)
        for (size_t i = 0; i < r->diff->n_items && !told; i++) {
            const struct ds_diff_item *x = &r->diff->items[i];
            /* A core by the name the library gives says more than the one asked for. */
            if (x->kind == order[k] && !(k == 2 && strcmp(x->name, "blas-core") == 0))
                told = x;
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

static void add_drift_sentence(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    const struct ds_finding *f = &v->first;
    ds_buf_puts(out, v->stable ? "drift: first at " : "drift: unstable, first at ");
    ds_report_place(out, f->layer, f->stage, f->part);
    ds_buf_puts(out, ", ");
    ds_report_kernel(out, f->op, f->variant);
    if (f->label == DS_LABEL_UNKNOWN || f->between)
        ds_buf_puts(out, " or a kernel before it");
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
    ds_buf_printf(out, " (%s, %u rows in the call): %s; ", ds_phase_name(f->phase), f->rows_in_call,
                  ds_kind_name(f->kind));
    if (v->factors[0].arms)
        ds_buf_printf(out, "stable over %u repeats", v->factors[0].n_values);
    else
        ds_buf_puts(out, "not repeated");
}

void ds_report_sentence(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    if (v->result == DS_RESULT_DRIFT) {
        add_drift_sentence(r, out);
    } else if (v->result == DS_RESULT_SAME) {
        uint64_t n = r->diff ? v->factors[v->n_factors - 1].phase[DS_VERDICT_ALL].compared
                             : v->counts.digests_compared;
        ds_buf_printf(out, "same: no difference over %" PRIu64 " comparisons (", n);
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
        ds_buf_printf(out, ", %" PRIu64 " sites, %" PRIu64 " rows; nothing to compare it with yet",
                      v->counts.sites, v->counts.rows);
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
    if (r->diff && v->result == DS_RESULT_SAME && (r->diff->unpaired[0] || r->diff->unpaired[1]))
        ds_buf_printf(out, "; %" PRIu64 " digests of A and %" PRIu64 " of B have no partner",
                      r->diff->unpaired[0], r->diff->unpaired[1]);
    ds_report_damage_words(r, out);
    if (r->damaged)
        ds_buf_printf(out, "; %zu damaged trial%s left out", r->damaged,
                      r->damaged == 1 ? "" : "s");
    if (r->incomplete)
        ds_buf_printf(out, "; %zu cut short", r->incomplete);
}
