/* verb_tui.c: `driftscope tui REC [REC2]`: the terminal UI on records. Without a terminal the verdict in
 * words. */
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/verdict.h"

#include "tui/tui.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What show and diff print, but as a view, not as a judge: drift is no failure here. */
static int print_summary(const struct ds_options *o)
{
    struct ds_options other = *o;
    other.verb = ds_opt_operands(o) == 2 ? DS_VERB_DIFF : DS_VERB_SHOW;
    int code = other.verb == DS_VERB_DIFF ? ds_verb_diff(&other) : ds_verb_show(&other);
    return code == DS_EXIT_DRIFT ? DS_EXIT_SAME : code;
}

static int read_size(const struct ds_options *o, struct ds_tui_options *t, struct ds_error *err)
{
    const char *text = ds_opt_text(o, "size");
    int used = 0;
    if (sscanf(text, "%dx%d%n", &t->columns, &t->lines, &used) == 2 && !text[used] &&
        t->columns >= 1 && t->lines >= 1 && t->columns <= 1000 && t->lines <= 1000)
        return 0;
    ds_fail(err, "option '--size': bad value '%.40s'", text);
    return ds_hint(err, "it takes COLUMNSxLINES, such as 120x40, each at most 1000");
}

static int read_options(const struct ds_options *o, struct ds_tui_options *t, struct ds_error *err)
{
    const char *color = ds_opt_text(o, "color"), *no = getenv("NO_COLOR");
    t->path = ds_opt_operand(o, 0);
    t->path_b = ds_opt_operands(o) == 2 ? ds_opt_operand(o, 1) : NULL;
    t->follow = ds_opt_flag(o, "follow");
    t->partial = ds_opt_flag(o, "partial");
    t->across_models = ds_opt_flag(o, "across-models");
    t->ascii = ds_opt_flag(o, "ascii");
    t->script = ds_opt_text(o, "script");
    t->view = ds_opt_text(o, "view");
    t->site = ds_opt_text(o, "site");
    t->colour = strcmp(color, "always") == 0 || (strcmp(color, "auto") == 0 && !(no && no[0]));
    t->arm = t->ref = -1;
    if (ds_opt_given(o, "arm") && ds_opt_int(o, "arm", 0, INT32_MAX, &t->arm, err) != 0)
        return -1;
    if (ds_opt_given(o, "size") && !t->script) {
        ds_fail(err, "--size is the size of a --script");
        return ds_hint(err, "a terminal has its own");
    }
    if (t->follow && t->path_b)
        return ds_fail(err, "--follow follows one record");
    return read_size(o, t, err);
}

int ds_verb_tui(const struct ds_options *o)
{
    struct ds_tui_options t = {0};
    struct ds_error err = {{0}, {0}};
    struct ds_buf program = {0};
    if (read_options(o, &t, &err) != 0)
        return ds_cli_error(o, &err);
    ds_cli_stdout_back();
    if (!t.script && !isatty(STDOUT_FILENO))
        return print_summary(o);
    ds_cli_program(&program);
    t.caller = &ds_cli_caller;
    t.program = program.data && !program.failed ? program.data : "driftscope";
    int rc = ds_tui(&t, &err);
    ds_buf_free(&program);
    return rc == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
}
