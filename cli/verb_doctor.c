/* verb_doctor.c: `driftscope doctor`: this machine, or the launch lines of engines, against the table of what
 * can make results differ. Owns what is looked at; what is looked for is in doctor_rules.c. */
#include "cli/doctor.h"

#include <string.h>

enum { LARGEST_SCRIPT = 4 << 20 };

static int read_commands(struct ds_doctor *d, struct ds_error *err)
{
    const struct ds_options *o = d->o;
    const size_t plain = ds_opt_operands_plain(o), n = ds_opt_operands(o) - plain;
    const char *words[256];
    for (size_t i = 0; i < ds_opt_count(o, "file"); i++) {
        const char *path = ds_opt_at(o, "file", i);
        struct ds_buf text = {0};
        int rc = ds_cli_read_file("script", path, LARGEST_SCRIPT, &text, err);
        if (rc == 0)
            rc = ds_doctor_parse(path, text.data ? text.data : "", text.len, &d->commands, err);
        ds_buf_free(&text);
        if (rc != 0)
            return -1;
    }
    if (n > sizeof words / sizeof words[0])
        return ds_fail(err, "the command has more than %zu words", sizeof words / sizeof words[0]);
    for (size_t i = 0; i < n; i++)
        words[i] = ds_opt_operand(o, plain + i);
    return n ? ds_doctor_argv(words, n, &d->commands, err) : 0;
}

static int look(struct ds_doctor *d, struct ds_error *err)
{
    const int asked =
        ds_opt_given(d->o, "file") || ds_opt_operands(d->o) > ds_opt_operands_plain(d->o);
    if (read_commands(d, err) != 0)
        return -1;
    if (!asked)
        return ds_doctor_judge(d, NULL, err);
    if (d->commands.n == 0) {
        ds_fail(err, "no command of vLLM, SGLang or llama.cpp there (%zu other command%s)",
                d->commands.others, d->commands.others == 1 ? "" : "s");
        return ds_hint(err, "known are: vllm serve, python -m vllm.entrypoints..., python -m "
                            "sglang.launch_server, sglang serve, llama-server, llama-cli");
    }
    if (ds_opt_operands_plain(d->o))
        return ds_fail(err, "'%.80s': files are looked at on this machine only, without a command",
                       ds_opt_operand(d->o, 0));
    for (size_t i = 0; i < d->commands.n; i++)
        if (ds_doctor_read_config(&d->commands.at[i], err) != 0 ||
            ds_doctor_judge(d, &d->commands.at[i], err) != 0)
            return -1;
    return ds_doctor_compare(d, err);
}

int ds_verb_doctor(const struct ds_options *o)
{
    struct ds_doctor d = {.o = o};
    struct ds_buf out = {0};
    struct ds_error err = {{0}, {0}};
    int rc = look(&d, &err), code = DS_EXIT_SAME;
    if (rc == 0 && ds_opt_flag(o, "json"))
        rc = ds_doctor_json(&out, &d, &err);
    else if (rc == 0)
        ds_doctor_text(&out, &d);
    if (rc == 0)
        rc = ds_cli_emit(o, &out, &err);
    for (size_t i = 0; i < d.n_lines; i++)
        if (d.lines[i].status == DS_DOCTOR_FOUND)
            code = DS_EXIT_DRIFT;
    ds_buf_free(&out);
    ds_doctor_free(&d);
    return rc == 0 ? code : ds_cli_error(o, &err);
}
