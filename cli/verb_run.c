/* verb_run.c: `driftscope run`: plan, sweep, record, verdict. Owns signals and the record's life;
 * the sweep itself is the engine's. */
#include "cli/cli.h"
#include "cli/render_verdict.h"
#include "cli/run_plan.h"

#include "base/mem.h"
#include "dumps/verdict.h"
#include "engine/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop_requests;

static void on_signal(int sig)
{
    (void)sig;
    if (++stop_requests > 1)
        _exit(DS_EXIT_INTERRUPTED);
}

static void catch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

/* Where trials go and come from while a sweep runs. */
struct run {
    const struct ds_options *o;
    struct ds_run_plan plan;
    char path[4096];            /* the record; "" with --no-record */
    struct ds_writer *writer;   /* NULL with --no-record */
    struct ds_record *old;      /* the record that is resumed */
    struct ds_trial_data *kept; /* trials in memory with --no-record */
    size_t n_kept, cap_kept;
    char beside[4096 + 16]; /* a resumed record that takes the old one's place at the end; "" = it
                               has already */
    uint8_t *have;          /* [n_arms][repeats + 1] of the old record; the last is the bare pass */
};

static uint8_t *have_cell(struct run *run, uint32_t arm, uint32_t repeat, uint32_t pass)
{
    uint32_t repeats = run->plan.header.repeats;
    if (arm >= run->plan.header.n_arms || repeat >= repeats)
        return NULL;
    return &run->have[(size_t)arm * (repeats + 1) + (pass == DS_PASS_BARE ? repeats : repeat)];
}

static int have(void *ctx, uint32_t arm, uint32_t repeat, uint32_t pass)
{
    struct run *run = ctx;
    const uint8_t *cell = run->have ? have_cell(run, arm, repeat, pass) : NULL;
    return cell && *cell;
}

/* Takes the arrays of `t` over, leaving it empty. */
static int keep(struct run *run, const struct ds_trial_data *t, struct ds_error *err)
{
    if (ds_grow(&run->kept, &run->cap_kept, run->n_kept + 1, sizeof *run->kept, "trials", err) != 0)
        return -1;
    struct ds_buf copy = {0};
    ds_trial_pack(t, &copy);
    int rc = copy.failed ? ds_fail(err, "out of memory for a trial")
                         : ds_trial_unpack(copy.data, copy.len, &run->kept[run->n_kept], err);
    ds_buf_free(&copy);
    run->n_kept += rc == 0;
    return rc;
}

static int sink(void *ctx, const struct ds_trial_data *t, struct ds_error *err)
{
    struct run *run = ctx;
    return run->writer ? ds_writer_add(run->writer, t, err) : keep(run, t, err);
}

static void progress(void *ctx, double done, double total)
{
    const struct run *run = ctx;
    ds_cli_progress(run->o, "trials", done, total);
}

static void note(void *ctx, const char *text)
{
    const struct run *run = ctx;
    ds_cli_progress(run->o, "", -1, 0);
    ds_cli_note(run->o, "%s", text);
}

/* ---- the record
 * -----------------------------------------------------------------------------------------------------------------------
 */

static void default_path(char *path, size_t size)
{
    time_t t = time(NULL);
    struct tm tm;
    if (localtime_r(&t, &tm) == NULL ||
        strftime(path, size, "driftscope-%Y%m%d-%H%M%S.h5", &tm) == 0)
        snprintf(path, size, "driftscope.h5");
}

static int create_record(struct run *run, struct ds_error *err)
{
    const char *given = ds_opt_text(run->o, "output");
    int local = 0;
    if (given)
        snprintf(run->path, sizeof run->path, "%s", given);
    else
        default_path(run->path, sizeof run->path);
    if (ds_writer_create(run->path, ds_opt_flag(run->o, "force"), &run->plan.header, &run->writer,
                         &local, err) != 0)
        return -1;
    if (local)
        ds_cli_note(run->o,
                    "%s: this file system does not support following a growing record; it is "
                    "written in the "
                    "temporary folder and moved at the end",
                    run->path);
    return 0;
}

static int take_place(struct run *run, struct ds_error *err)
{
    if (rename(run->beside, run->path) != 0)
        return ds_fail(err, "cannot rename '%s' to '%s': %s", run->beside, run->path,
                       strerror(errno));
    run->beside[0] = '\0';
    return 0;
}

/* Copies the complete trials beside the old record and puts the copy in its place: a kill at any
 * moment leaves one or the other. */
static int continue_record(struct run *run, struct ds_error *err)
{
    struct ds_run_plan *p = &run->plan;
    run->have = ds_calloc(p->header.n_arms, p->header.repeats + 1, "trials", err);
    if (!run->have)
        return -1;
    for (size_t i = 0; i < ds_record_trial_count(run->old); i++) {
        const struct ds_trial *t = ds_record_trial(run->old, i);
        uint8_t *cell = have_cell(run, t->arm, t->repeat, t->pass);
        if (cell && ds_record_sound(run->old, i))
            *cell = 1;
    }
    snprintf(run->beside, sizeof run->beside, "%s.resuming", run->path);
    unlink(run->beside);
    if (ds_record_copy(run->old, run->beside, &run->writer, err) != 0) {
        unlink(run->beside);
        return -1;
    }
    /* Where SWMR promises nothing, the copy is written elsewhere and comes to its name when it is
     * closed. */
    return strcmp(ds_writer_path(run->writer), run->beside) == 0 ? take_place(run, err) : 0;
}

static size_t missing_trials(struct run *run)
{
    const struct ds_header *h = &run->plan.header;
    size_t missing = h->n_arms * h->repeats;
    for (size_t i = 0; i < ds_record_trial_count(run->old); i++) {
        const struct ds_trial *t = ds_record_trial(run->old, i);
        missing -= t->pass == DS_PASS_NATURAL && missing > 0 && ds_record_sound(run->old, i);
    }
    return missing;
}

/* Options that say what to run have no place beside --resume: the record says it. */
static int check_resume_options(const struct ds_options *o, struct ds_error *err)
{
    static const char *const fixed[] = {
        "prompt", "file",  "tokens", "chat",      "steps",     "free",   "tokens-from", "repeat",
        "full",   "sites", "dump",   "dump-rows", "page-size", "poison", "no-record",   "output"};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (ds_opt_given(o, fixed[i]))
            return ds_fail(err,
                           "--%s cannot be given with --resume: the record says what is to be run",
                           fixed[i]);
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        if (ds_opt_given(o, ds_factor_names[f]))
            return ds_fail(err,
                           "--%s cannot be given with --resume: the record says what is to be run",
                           ds_factor_names[f]);
    return 0;
}

/* ---- the sweep and its verdict
 * -------------------------------------------------------------------------------------------------------
 */

static const struct ds_trial *kept_info(void *ctx, size_t i)
{
    return &((struct run *)ctx)->kept[i].info;
}

static const struct ds_trial_data *kept_get(void *ctx, size_t i, struct ds_error *err)
{
    (void)err;
    return &((struct run *)ctx)->kept[i];
}

/* The verdict, read back from what was written. */
static int report(struct run *run, int *exit_code, struct ds_error *err)
{
    if (!run->path[0]) {
        struct ds_source s = {&run->plan.header, run->n_kept, kept_info, kept_get, run};
        return ds_cli_verdict(run->o, &s, NULL, NULL, exit_code, err);
    }
    struct ds_record *r;
    if (ds_record_open(run->path, &r, err) != 0)
        return -1;
    struct ds_source s;
    ds_source_record(&s, r);
    int rc = ds_cli_verdict(run->o, &s, r, run->path, exit_code, err);
    ds_record_close(r);
    return rc;
}

static int sweep(struct run *run, struct ds_sweep_result *result, struct ds_error *err)
{
    struct ds_run_plan *p = &run->plan;
    struct ds_sweep s = {.model = p->model,
                         .options = p->options,
                         .header = &p->header,
                         .requests = p->requests,
                         .n_requests = p->n_requests,
                         .forced = p->n_forced ? p->forced : NULL,
                         .n_forced = p->n_forced,
                         .ctx = run,
                         .sink = sink,
                         .have = have,
                         .progress = progress,
                         .note = note,
                         .stop = &stop_requests};
    int rc = ds_sweep_run(&s, result, err);
    ds_cli_progress(run->o, "", -1, 0);
    if (run->writer) {
        struct ds_error close_err;
        int closed = ds_writer_close(run->writer, rc == 0 ? err : &close_err);
        run->writer = NULL;
        rc = rc == 0 ? closed : rc;
        if (rc == 0 && run->beside[0])
            rc = take_place(run, err);
    }
    return rc;
}

static int finish(struct run *run, const struct ds_sweep_result *result, struct ds_error *err)
{
    if (result->interrupted) {
        if (run->path[0])
            ds_cli_note(run->o,
                        "interrupted: %u trials are saved; go on with: driftscope run -m '%s' "
                        "--resume '%s'",
                        result->trials, ds_opt_text(run->o, "model"), run->path);
        else
            ds_cli_note(run->o, "interrupted");
        return DS_EXIT_INTERRUPTED;
    }
    int exit_code = DS_EXIT_ERROR;
    if (report(run, &exit_code, err) != 0)
        return ds_cli_error(run->o, err);
    if (result->failed > 0) {
        *err = result->first_failure;
        ds_prefix(err, "%u arms could not be run; first", result->failed);
        return ds_cli_error(run->o, err);
    }
    return exit_code;
}

static int start(struct run *run, struct ds_error *err)
{
    const char *resume = ds_opt_text(run->o, "resume");
    if (!resume) {
        if (ds_run_plan_new(run->o, &run->plan, err) != 0)
            return -1;
        return ds_opt_flag(run->o, "no-record") ? 0 : create_record(run, err);
    }
    if (check_resume_options(run->o, err) != 0 || ds_record_open(resume, &run->old, err) != 0)
        return -1;
    snprintf(run->path, sizeof run->path, "%s", resume);
    /* Damaged trials are run again: they must be known before the plan is made. */
    if (ds_record_claim(run->old, err) != 0 || ds_record_verify(run->old, err) != 0)
        return -1;
    if (ds_run_plan_resume(run->o, run->old, &run->plan, err) != 0)
        return ds_prefix(err, "%s", resume);
    if (missing_trials(run) == 0)
        return 0;
    return continue_record(run, err);
}

int ds_verb_run(const struct ds_options *o)
{
    struct run run = {.o = o};
    struct ds_error err = {{0}, {0}};
    struct ds_sweep_result result = {0};
    int code;
    catch_signals();
    if (start(&run, &err) != 0)
        code = ds_cli_error(o, &err);
    else if ((run.writer || !run.path[0]) && sweep(&run, &result, &err) != 0)
        code = ds_cli_error(o, &err);
    else
        code = finish(&run, &result, &err);
    if (run.writer)
        ds_writer_close(run.writer, NULL);
    for (size_t i = 0; i < run.n_kept; i++)
        ds_trial_data_free(&run.kept[i]);
    free(run.kept);
    free(run.have);
    ds_run_plan_free(&run.plan);
    if (run.old)
        ds_record_close(run.old);
    return code;
}
