/* main.c: from argv to a verb. Owns the order of things at start; knows no verb's inside. */
#include "cli/options.h"
#include "kernels/device_open.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>

static int version(const struct ds_options *o)
{
    struct ds_buf b = {0};
    struct ds_error err;
    ds_buf_printf(&b, "driftscope %s (%s)\n", ds_cli_version(), ds_cli_build());
    int rc = ds_cli_emit(o, &b, &err);
    ds_buf_free(&b);
    return rc == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
}

static int help(const struct ds_options *o)
{
    struct ds_buf b = {0};
    struct ds_error err;
    if (o->action == DS_ACTION_HELP_SHORT)
        ds_help_short(&b, o->verb);
    else
        ds_help_long(&b, o->verb);
    int rc = ds_cli_emit(o, &b, &err);
    ds_buf_free(&b);
    return rc == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
}

static int verb(const struct ds_options *o)
{
    struct ds_error err;
    ds_cli_interruptible(o);
    ds_device_library_path(ds_opt_text(o, "device-library"));
    if (ds_opt_count(o, "plugin") || ds_opt_given(o, "blas"))
        ds_cli_stdout_aside();
    if (ds_cli_check_output(o, &err) != 0 || ds_cli_plugins(o, &err) != 0 ||
        ds_cli_blas_library(o, &err) != 0)
        return ds_cli_error(o, &err);
    switch (o->verb) {
    case DS_VERB_RUN:
        return ds_verb_run(o);
    case DS_VERB_SHOW:
        return ds_verb_show(o);
    case DS_VERB_DIFF:
        return ds_verb_diff(o);
    case DS_VERB_TUI:
        return ds_verb_tui(o);
    case DS_VERB_KERNELS:
        return ds_verb_kernels(o);
    case DS_VERB_CHECK:
        return ds_verb_check(o);
    case DS_VERB_BENCH:
        return ds_cli_contained(o, ds_verb_bench);
    case DS_VERB_ORDER:
        return ds_cli_contained(o, ds_verb_order);
    case DS_VERB_SELFTEST:
        return ds_verb_selftest(o);
    case DS_VERB_EXPLAIN:
        return ds_cli_contained(o, ds_verb_explain);
    case DS_VERB_BISECT:
        return ds_verb_bisect(o);
    case DS_VERB_STORM:
        return ds_verb_storm(o);
    case DS_VERB_REPLAY:
        return ds_verb_replay(o);
    case DS_VERB_TABLE:
        return ds_verb_table(o);
    case DS_VERB_ONPOLICY:
        return ds_verb_onpolicy(o);
    case DS_VERB_LOCK:
        return ds_verb_lock(o);
    case DS_VERB_VERIFY:
        return ds_verb_verify(o);
    case DS_VERB_REPORT:
        return ds_verb_report(o);
    case DS_VERB_RISK:
        return ds_verb_risk(o);
    case DS_VERB_DOCTOR:
        return ds_verb_doctor(o);
    case DS_VERB_FINGERPRINT:
        return ds_verb_fingerprint(o);
    case DS_VERB_HELP:
        return ds_verb_help(o);
    case DS_VERB_NONE:
        break;
    }
    return DS_EXIT_ERROR;
}

int main(int argc, char **argv)
{
    struct ds_options o;
    struct ds_error err;
    int code;
    ds_cli_guard_descriptors();
    ds_cli_called(argc > 0 ? argv[0] : NULL);
    /* A reader that goes away shows as EPIPE at the write, which is quiet. */
    signal(SIGPIPE, SIG_IGN);
    /* So does a limit on the size of files as EFBIG: like a full disk, it is told. */
    signal(SIGXFSZ, SIG_IGN);
    /* Who is called by a program that ignores it could not ask how a child of its own ended. */
    signal(SIGCHLD, SIG_DFL);
    /* Numbers are written and read in the C locale; only the character set is the user's. */
    setlocale(LC_CTYPE, "");
    const int parsed = ds_options_parse(argc, argv, &o, &err);
    ds_cli_only_leaves_itself(&o);
    if (parsed != 0)
        code = ds_cli_error(&o, &err);
    else if (o.action == DS_ACTION_VERSION)
        code = version(&o);
    else if (o.action != DS_ACTION_VERB)
        code = help(&o);
    else
        code = verb(&o);
    ds_options_free(&o);
    ds_cli_leave(code);
}
