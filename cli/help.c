/* help.c: help texts, man page and the table of docs/OPTIONS.md, all made from verbs.c and option_table.c.
 * Owns their layout only. */
#include "cli/options.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_COLUMN = 28, WIDTH = 100 };

static const char tagline[] = "layer-by-layer numerical drift debugger for LLM inference";

static const struct {
    const char *code, *meaning;
} exit_codes[] = {
    {"0", "same bits everywhere that was compared, or a single trial recorded"},
    {"1", "drift found"},
    {"2", "error, nothing could be compared, or not as much as was asked for: a damaged record, an "
          "inert fixture, a rate "
          "of --until-stable (another number with --error-exit)"},
    {"130", "interrupted; finished trials are kept"},
};

/* Verbs that answer another question than "same bits?" say themselves what their codes mean. */
static void exits_list(const struct ds_verb_def *v,
                       void (*put)(struct ds_buf *b, const char *code, const char *meaning),
                       struct ds_buf *b)
{
    for (size_t i = 0; i < sizeof exit_codes / sizeof exit_codes[0]; i++) {
        const int own = v && v->exits[0];
        const char *meaning = i < 3 && own ? v->exits[i] : exit_codes[i].meaning;
        if (i == 3 && v && v->id != DS_VERB_RUN)
            meaning = "interrupted";
        if (meaning)
            put(b, exit_codes[i].code, meaning);
    }
}

static const char *const main_examples[] = {
    "driftscope run",
    "find the first layer and kernel whose output depends on batch, slot, threads or chunking",
    "driftscope run -m model.gguf -p 'The sky is' -o sky.h5",
    "the same for your model and prompt",
    "driftscope show sky.h5 --sites",
    "the grid of layers and stages of that record",
    "driftscope diff before.h5 after.h5",
    "what changed between two records",
    "driftscope kernels",
    "the kernels that can be swept, and what they promise",
    NULL};

static int listed(const struct ds_option_def *d)
{
    for (size_t i = 0; i < ds_verb_count; i++)
        if (ds_option_takes(ds_verbs[i].id, d))
            return 1;
    return 0;
}

static const char *verb_of_command(const char *command)
{
    return command + strlen("driftscope ");
}

/* An example is shown only if its verb is there. */
static int example_listed(const char *command)
{
    char name[16];
    const char *word = verb_of_command(command);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, " "), word);
    return ds_verb_find(name) != NULL;
}

/* Appends text wrapped at WIDTH columns, continuation lines indented. `column` is where the cursor
 * stands. */
static void wrap(struct ds_buf *b, const char *text, int column, int indent)
{
    for (const char *p = text; *p;) {
        int len = (int)strcspn(p, " ");
        if (column + len > WIDTH && column > indent) {
            ds_buf_printf(b, "\n%*s", indent, "");
            column = indent;
        }
        ds_buf_printf(b, "%.*s", len, p);
        p += len;
        column += len + 1;
        while (*p == ' ')
            p++;
        if (*p && column + (int)strcspn(p, " ") <= WIDTH)
            ds_buf_puts(b, " ");
    }
    ds_buf_puts(b, "\n");
}

static void two_columns(struct ds_buf *b, const char *left, const char *text, int column)
{
    int n = (int)strlen(left);
    ds_buf_printf(b, "  %s", left);
    if (n + 4 > column)
        ds_buf_printf(b, "\n%*s", column, "");
    else
        ds_buf_printf(b, "%*s", column - n - 2, "");
    wrap(b, text, column, column);
}

/* "-n, --steps N" */
static void spell(const struct ds_option_def *d, char *out, size_t size)
{
    char letter[8] = "    ";
    if (d->letter)
        snprintf(letter, sizeof letter, "-%c, ", d->letter);
    snprintf(out, size, "%s--%s%s%s", letter, d->name, d->arg ? " " : "", d->arg ? d->arg : "");
}

static void options_list(struct ds_buf *b, enum ds_verb_id verb, int headings)
{
    const char *heading = "";
    for (size_t i = 0; i < ds_option_count; i++) {
        const struct ds_option_def *d = &ds_option_defs[i];
        char left[80], text[512];
        if (!ds_option_takes(verb, d))
            continue;
        if (headings && strcmp(ds_option_section(d), heading) != 0) {
            heading = ds_option_section(d);
            ds_buf_printf(b, "\n%s:\n", heading);
        }
        spell(d, left, sizeof left);
        snprintf(text, sizeof text, d->dflt ? "%s [%s]" : "%s", d->help, d->dflt);
        two_columns(b, left, text, TEXT_COLUMN);
    }
}

static void usage(struct ds_buf *b, const struct ds_verb_def *v)
{
    if (v)
        ds_buf_printf(b, "usage: driftscope %s [OPTION...]%s%s\n", v->name,
                      v->operands[0] ? " " : "", v->operands);
    else
        ds_buf_puts(b, "usage: driftscope VERB [OPTION...] [ARGUMENT...]\n");
}

static void verbs_list(struct ds_buf *b)
{
    size_t longest = 0;
    for (size_t i = 0; i < ds_verb_count; i++)
        if (strlen(ds_verbs[i].name) > longest)
            longest = strlen(ds_verbs[i].name);
    for (size_t i = 0; i < ds_verb_count; i++) {
        if (i == 0 || ds_verbs[i].group != ds_verbs[i - 1].group)
            ds_buf_printf(b, "\n%s:\n", ds_group_headings[ds_verbs[i].group]);
        two_columns(b, ds_verbs[i].name, ds_verbs[i].summary, (int)longest + 4);
    }
}

void ds_help_short(struct ds_buf *b, enum ds_verb_id verb)
{
    const struct ds_verb_def *v = ds_verb_by_id(verb);
    usage(b, v);
    if (v) {
        ds_buf_puts(b, "\n");
        options_list(b, verb, 0);
        ds_buf_printf(b, "\ndriftscope %s --help has examples and exit codes.\n", v->name);
    } else {
        verbs_list(b);
        ds_buf_puts(b, "\ndriftscope VERB -h lists a verb's options; driftscope --help has "
                       "examples and exit codes.\n");
    }
}

static void examples_list(struct ds_buf *b, const char *const *examples)
{
    ds_buf_puts(b, "Examples:\n");
    for (; examples && examples[0]; examples += 2)
        if (example_listed(examples[0])) {
            ds_buf_printf(b, "  %s\n      ", examples[0]);
            wrap(b, examples[1], 6, 6);
        }
}

static void exit_line(struct ds_buf *b, const char *code, const char *meaning)
{
    two_columns(b, code, meaning, 12);
}

void ds_help_long(struct ds_buf *b, enum ds_verb_id verb)
{
    const struct ds_verb_def *v = ds_verb_by_id(verb);
    if (v)
        ds_buf_printf(b, "driftscope %s: %s\n\n", v->name, v->summary);
    else
        ds_buf_printf(b, "driftscope: %s\n\n", tagline);
    examples_list(b, v ? v->examples : main_examples);
    ds_buf_puts(b, "\n");
    usage(b, v);
    if (v && v->text[0]) {
        ds_buf_puts(b, "\n");
        wrap(b, v->text, 0, 0);
    }
    if (!v)
        verbs_list(b);
    options_list(b, verb, 1);
    ds_buf_puts(b, "\nExit codes:\n");
    exits_list(v, exit_line, b);
    if (!v)
        ds_buf_puts(b, "\ndriftscope help VERB explains a verb.\n");
}

/* ---- man page -------------------------------------------------------------------------------- */

static void roff(struct ds_buf *b, const char *text)
{
    for (const char *p = text; *p; p++) {
        int line_start = p == text || p[-1] == '\n';
        if (line_start && (*p == '.' || *p == '\''))
            ds_buf_puts(b, "\\&");
        if (*p == '\\')
            ds_buf_puts(b, "\\e");
        else if (*p == '-')
            ds_buf_puts(b, "\\-");
        else if (*p == '\'')
            ds_buf_puts(b, "\\(aq");
        else
            ds_buf_add(b, p, 1);
    }
}

static void roff_exit(struct ds_buf *b, const char *code, const char *meaning)
{
    ds_buf_printf(b, ".TP\n.B %s\n", code);
    roff(b, meaning);
    ds_buf_puts(b, "\n");
}

static void roff_option(struct ds_buf *b, const struct ds_option_def *d)
{
    char left[80];
    spell(d, left, sizeof left);
    ds_buf_puts(b, ".TP\n.B ");
    roff(b, left + strspn(left, " "));
    ds_buf_puts(b, "\n");
    roff(b, d->help);
    if (d->dflt) {
        ds_buf_puts(b, " (default ");
        roff(b, d->dflt);
        ds_buf_puts(b, ")");
    }
    ds_buf_puts(b, "\n");
}

static void roff_examples(struct ds_buf *b, const char *const *examples)
{
    for (; examples && examples[0]; examples += 2) {
        if (!example_listed(examples[0]))
            continue;
        ds_buf_puts(b, ".TP\n.B ");
        roff(b, examples[0]);
        ds_buf_puts(b, "\n");
        roff(b, examples[1]);
        ds_buf_puts(b, "\n");
    }
}

/* The verbs of each group, in a paragraph of their own. */
static void roff_groups(struct ds_buf *b)
{
    for (size_t i = 0; i < ds_verb_count; i++) {
        int first = i == 0 || ds_verbs[i].group != ds_verbs[i - 1].group;
        if (first) {
            ds_buf_puts(b, i ? "\n.TP\n" : ".TP\n");
            roff(b, ds_group_headings[ds_verbs[i].group]);
            ds_buf_puts(b, "\n");
        }
        ds_buf_printf(b, "%s\\fB%s\\fR", first ? "" : ", ", ds_verbs[i].name);
    }
    ds_buf_puts(b, "\n");
}

void ds_help_man(struct ds_buf *b)
{
    ds_buf_printf(
        b, ".TH DRIFTSCOPE 1 \"\" \"driftscope %s\" \"User Commands\"\n.SH NAME\ndriftscope \\- ",
        ds_cli_version());
    roff(b, tagline);
    ds_buf_puts(b, "\n.SH SYNOPSIS\n");
    for (size_t i = 0; i < ds_verb_count; i++) {
        ds_buf_printf(b, ".B driftscope %s\n[OPTION...] ", ds_verbs[i].name);
        roff(b, ds_verbs[i].operands);
        ds_buf_puts(b, i + 1 < ds_verb_count ? "\n.br\n" : "\n");
    }
    ds_buf_puts(b, ".SH EXAMPLES\n");
    roff_examples(b, main_examples);
    ds_buf_puts(b, ".SH VERBS\n");
    roff_groups(b);
    for (size_t i = 0; i < ds_verb_count; i++) {
        const struct ds_verb_def *v = &ds_verbs[i];
        ds_buf_printf(b, ".SS %s\n", v->name);
        roff(b, v->text[0] ? v->text : v->summary);
        ds_buf_puts(b, "\n");
        for (size_t j = 0; j < ds_option_count; j++)
            if (ds_option_defs[j].verbs != DS_ANY_VERB &&
                ds_option_takes(v->id, &ds_option_defs[j]))
                roff_option(b, &ds_option_defs[j]);
        if (v->exits[0]) {
            ds_buf_puts(b, ".PP\nExit status:\n");
            exits_list(v, roff_exit, b);
        }
        ds_buf_puts(b, ".PP\nExamples:\n");
        roff_examples(b, v->examples);
    }
    ds_buf_puts(b, ".SH OPTIONS FOR EVERY VERB\n");
    for (size_t j = 0; j < ds_option_count; j++)
        if (ds_option_defs[j].verbs == DS_ANY_VERB)
            roff_option(b, &ds_option_defs[j]);
    ds_buf_puts(b, ".SH EXIT STATUS\nOf a verb that says nothing else of its own:\n");
    exits_list(NULL, roff_exit, b);
    ds_buf_puts(b, ".SH SEE ALSO\nREADME.md and docs/*.md in share/doc/driftscope, "
                   "where `make install` puts them.\n");
}

/* ---- the table of all options ---------------------------------------------------------------------- */

static void markdown_text(struct ds_buf *b, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '|' || *p == '*' || *p == '<')
            ds_buf_puts(b, "\\");
        ds_buf_add(b, p, 1);
    }
}

void ds_help_markdown(struct ds_buf *b)
{
    ds_buf_puts(b, "| option | verbs | default | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < ds_option_count; i++) {
        const struct ds_option_def *d = &ds_option_defs[i];
        char left[80];
        int n = 0;
        if (!listed(d))
            continue;
        spell(d, left, sizeof left);
        ds_buf_printf(b, "| `%s` | ", left + strspn(left, " "));
        if (d->verbs == DS_ANY_VERB)
            ds_buf_puts(b, "all");
        for (size_t j = 0; d->verbs != DS_ANY_VERB && j < ds_verb_count; j++)
            if (ds_option_takes(ds_verbs[j].id, d))
                ds_buf_printf(b, "%s%s", n++ ? " " : "", ds_verbs[j].name);
        ds_buf_printf(b, " | %s%s%s | ", d->dflt ? "`" : "", d->dflt ? d->dflt : "",
                      d->dflt ? "`" : "");
        markdown_text(b, d->help);
        ds_buf_puts(b, " |\n");
    }
}

/* ---- the verb -------------------------------------------------------------------------------- */

int ds_verb_help(const struct ds_options *o)
{
    struct ds_buf b = {0};
    struct ds_error err;
    const char *name = ds_opt_operand(o, 0), *shell = ds_opt_text(o, "completion");
    const struct ds_verb_def *v = name ? ds_verb_find(name) : NULL;
    int rc = 0;
    if (name && !v)
        rc = ds_unknown_verb(name, &err);
    else if (ds_opt_flag(o, "man"))
        ds_help_man(&b);
    else if (shell)
        rc = ds_help_completion(&b, shell);
    else if (ds_opt_flag(o, "markdown"))
        ds_help_markdown(&b);
    else
        ds_help_long(&b, v ? v->id : DS_VERB_NONE);
    if (rc == 0)
        rc = ds_cli_emit(o, &b, &err);
    ds_buf_free(&b);
    return rc == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
}
