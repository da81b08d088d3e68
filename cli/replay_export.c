/* replay_export.c: `replay --export-schedule` and `--export-inputs`: what a record of a serving run was made from, as files that
 * storm and run read. Runs nothing. */
#include "cli/replay.h"
#include "cli/run_plan_internal.h"

#include <stdlib.h>
#include <string.h>

/* --export-schedule: what the record ran, as `storm --schedule` reads it; no model is asked for. */
static int export_schedule(const struct ds_options *o, struct ds_error *err)
{
    const char *path = ds_opt_operand(o, 0), *text = NULL;
    struct ds_record *r;
    struct ds_serve_plan plan;
    struct ds_buf out = {0};
    if (ds_record_open(path, &r, err) != 0)
        return -1;
    const struct ds_header *h = ds_record_header(r);
    for (size_t i = 0; i < h->n_options; i++)
        text = strcmp(h->options[i].name, "serve_schedule") == 0 ? h->options[i].value : text;
    int rc = text ? ds_schedule_parse("the record's schedule", text, strlen(text), &plan, err)
                  : ds_fail(err, "the record holds no serving run");
    if (rc == 0) {
        ds_schedule_text(&plan, &out);
        rc = out.failed ? ds_fail(err, "out of memory for the schedule")
                        : ds_cli_write_file(ds_opt_text(o, "export-schedule"), &out, err);
        ds_serve_plan_free(&plan);
    } else
        ds_prefix(err, "%s", path);
    ds_buf_free(&out);
    ds_record_close(r);
    return rc;
}

/* What was said in the record where nothing was recorded before. */
static int fill_inputs(const struct ds_options *o, struct ds_record *record, struct ds_inputs *in,
                       struct ds_error *err)
{
    const struct ds_header *h = ds_record_header(record);
    int64_t arm = 0;
    int32_t requests = 0;
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, "serve_requests") == 0)
            requests = (int32_t)strtol(h->options[i].value, NULL, 10);
    if (requests < 1)
        return 0;
    if (ds_opt_given(o, "arm") && ds_opt_int(o, "arm", 0, (int64_t)h->n_arms - 1, &arm, err) != 0)
        return -1;
    const struct ds_trial_data *t = ds_replay_recorded(record, (uint32_t)arm, err);
    return t ? ds_inputs_fill(in, t, (size_t)requests, err) : -1;
}

/* --export-inputs: what the record was made from, as storm and run --inputs read it: one file that needs no other. */
static int export_inputs(const struct ds_options *o, struct ds_error *err)
{
    const char *path = ds_opt_operand(o, 0);
    struct ds_record *r;
    struct ds_inputs in;
    struct ds_buf out = {0};
    if (ds_record_open(path, &r, err) != 0)
        return -1;
    int rc = ds_plan_inputs_of(ds_record_header(r), &in, err);
    if (rc == 0)
        rc = in.doc ? fill_inputs(o, r, &in, err)
                    : ds_fail(err, "the record was made without --inputs");
    if (rc != 0)
        ds_prefix(err, "%s", path);
    if (rc == 0)
        rc = ds_inputs_text(&in, &out, err);
    if (rc == 0)
        rc = ds_cli_write_file(ds_opt_text(o, "export-inputs"), &out, err);
    if (in.doc)
        ds_inputs_free(&in);
    ds_buf_free(&out);
    ds_record_close(r);
    return rc;
}

int ds_replay_export(const struct ds_options *o, struct ds_error *err)
{
    static const char *const flags[] = {"alone", "other-neighbours"};
    static const char *const others[] = {"request",     "kernels", "threads", "temperature",
                                         "top-k",       "top-p",   "min-p",   "repetition-penalty",
                                         "sample-seed", "inputs"};
    const int schedule = ds_opt_given(o, "export-schedule");
    const char *what = schedule ? "export-schedule" : "export-inputs", *more = NULL;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        more = ds_opt_flag(o, flags[i]) ? flags[i] : more;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        more = ds_opt_given(o, others[i]) ? others[i] : more;
    if (schedule && ds_opt_given(o, "arm"))
        more = "arm";
    if (schedule && ds_opt_given(o, "export-inputs"))
        more = "export-inputs";
    if (more)
        return ds_fail(err,
                       "--%s and --%s: nothing is run, what the record was made from is written",
                       what, more);
    return schedule ? export_schedule(o, err) : export_inputs(o, err);
}
