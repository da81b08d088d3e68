/* next.c: the commands that come next: what to type to see more, or to go on. */
#include "report/report_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_report_command(const struct ds_report_caller *c, const char *verb, const char *model,
                       struct ds_buf *out)
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

/* The base arm's value of a factor that is not the default one. */
static void add_factor(const struct ds_header *h, const char *factor, const char *dflt,
                       struct ds_buf *out)
{
    for (size_t f = 0; f < h->n_factors && h->n_arms; f++)
        if (strcmp(h->factors[f], factor) == 0 && strcmp(h->arms[0].values[f], dflt) != 0) {
            ds_buf_printf(out, "--%s ", factor);
            ds_buf_quote(out, h->arms[0].values[f]);
            ds_buf_puts(out, " ");
        }
}

/* Kernels of the base arm that are not the default ones, and where they run. */
static void add_kernels(const struct ds_header *h, struct ds_buf *out)
{
    add_factor(h, "device", "cpu", out);
    add_factor(h, "kernels", "vendor", out);
}

/* Whether the record has values of the first drift, as far as its options tell. */
static int has_values(const struct ds_report *r)
{
    for (size_t i = 0; i < r->header->n_options; i++)
        if (strcmp(r->header->options[i].name, "dump") == 0)
            return strcmp(r->header->options[i].value, "0") != 0;
    return 0;
}

/* The records that were judged; of two, what both have was to do if that was asked. */
static void add_records(const struct ds_report *r, struct ds_buf *out)
{
    ds_buf_quote(out, r->path);
    if (!r->path_b)
        return;
    ds_buf_puts(out, " ");
    ds_buf_quote(out, r->path_b);
    if (r->diff && r->diff->options.partial)
        ds_buf_puts(out, " --partial");
    if (r->diff && r->diff->options.across_models)
        ds_buf_puts(out, " --across-models");
}

static void add_terms(const char *option, const char *const *texts, size_t n, struct ds_buf *out)
{
    for (size_t i = 0; i < n; i++) {
        ds_buf_printf(out, " --%s ", option);
        ds_buf_quote(out, texts[i]);
    }
}

/* With the fewest digits that are this number again. */
static void add_limit(const char *option, double limit, struct ds_buf *out)
{
    char text[40];
    int digits = 1;
    do
        snprintf(text, sizeof text, "%.*g", digits, limit);
    while (strtod(text, NULL) != limit && ++digits <= 17);
    ds_buf_printf(out, " --%s %s", option, text);
}

/* What was compared of two records, and what counts as equal. */
static void add_compared(const struct ds_report *r, struct ds_buf *out)
{
    static const char *const names[] = {"atol", "rtol", "nmse"};
    const struct ds_diff_options *o = r->diff ? &r->diff->options : NULL;
    if (!o)
        return;
    add_terms("only", o->only, o->n_only, out);
    add_terms("ignore", o->ignore, o->n_ignore, out);
    if (o->tolerance.ulp)
        ds_buf_printf(out, " --ulp %llu", (unsigned long long)o->tolerance.ulp);
    const double limits[] = {o->tolerance.atol, o->tolerance.rtol, o->tolerance.nmse};
    for (int i = 0; i < 3; i++)
        if (limits[i] > 0)
            add_limit(names[i], limits[i], out);
}

/* A second command, for the kernels whose calls can be made again. */
static void add_explain(const struct ds_report *r, struct ds_buf *out)
{
    if (r->path_b || !has_values(r) || !r->caller || !r->caller->explains(r->v->first.op))
        return;
    ds_buf_puts(out, "\n");
    ds_report_command(r->caller, "explain", r->header->model_name, out);
    ds_buf_quote(out, r->path);
}

void ds_report_resume(const struct ds_report_caller *caller, const char *model, const char *path,
                      struct ds_buf *out)
{
    ds_report_command(caller, "run", model ? model : "", out);
    ds_buf_puts(out, "--resume ");
    ds_buf_quote(out, path);
}

void ds_report_commands(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    const int side = r->damage && !r->damage[0].n && r->damage[1].n; /* the one that is damaged */
    if (r->damage && r->damage[side].n) {
        ds_report_resume(r->caller, r->damage[side].header->model_name, side ? r->path_b : r->path,
                         out);
    } else if (v->first.found && r->path) {
        ds_report_command(r->caller, r->path_b ? "diff" : "show", NULL, out);
        add_records(r, out);
        ds_buf_printf(out, " --site %d,", v->first.layer);
        ds_report_name(out, v->first.stage);
        if (v->first.part[0]) {
            ds_buf_puts(out, "/");
            ds_report_name(out, v->first.part);
        }
        if (!r->path_b && v->stable)
            ds_buf_printf(out, " --arm %u", v->first.arm);
        add_compared(r, out);
        add_explain(r, out);
    } else if (ds_report_planned(r) > v->counts.trials && r->path) {
        ds_report_resume(r->caller, r->header->model_name, r->path, out);
    } else if (v->result == DS_RESULT_RECORDED) {
        ds_report_command(r->caller, "run", r->header->model_name, out);
        add_prompt(r->header, out);
        add_kernels(r->header, out);
        ds_buf_puts(out, "--repeat 3 --batch 1,2,4,8");
    } else if (v->result == DS_RESULT_SAME && r->path) {
        ds_report_command(r->caller, r->path_b ? "diff" : "show", NULL, out);
        add_records(r, out);
        add_compared(r, out);
        ds_buf_puts(out, " --sites");
    }
}

/* For whoever is at a terminal: from the first drift to the element. */
static void add_tui(const struct ds_report *r, struct ds_buf *out)
{
    if (!r->v->first.found || !r->path || (r->damage && (r->damage[0].n || r->damage[1].n)))
        return;
    ds_buf_puts(out, out->len ? "\n" : "");
    ds_report_command(r->caller, "tui", NULL, out);
    add_records(r, out);
}

void ds_report_next(const struct ds_report *r, struct ds_buf *out)
{
    struct ds_buf b = {0};
    ds_report_commands(r, &b);
    add_tui(r, &b);
    out->failed |= b.failed;
    if (b.len)
        ds_report_head(r, "next", out);
    for (const char *line = b.len ? b.data : ""; *line;) {
        size_t n = strcspn(line, "\n");
        if (line != b.data)
            ds_buf_puts(out, DS_REPORT_INDENT);
        ds_buf_add(out, line, n);
        ds_buf_puts(out, "\n");
        line += n + (line[n] == '\n');
    }
    ds_buf_free(&b);
}
