/* verb_run.c: `driftscope run`: plan, sweep, record, verdict. Owns signals and the record's life;
 * the sweep itself is the engine's. */
#include "cli/cli.h"
#include "cli/kept.h"
#include "cli/lock.h"
#include "cli/require.h"
#include "cli/run_plan_internal.h"
#include "cli/run_tui.h"
#include "cli/verdict.h"

#include "base/mem.h"
#include "dumps/verdict.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Where trials go and come from while a sweep runs. */
struct run {
    const struct ds_options *o;
    struct ds_run_plan plan;
    char path[4096];          /* the record; "" with --no-record */
    struct ds_writer *writer; /* NULL with --no-record */
    struct ds_record *old;    /* the record that is resumed */
    struct ds_kept kept;      /* trials in memory with --no-record */
    char beside[4096 + 16];   /* a resumed record that takes the old one's place at the end; "" = it
                               has already */
    size_t *have;   /* [n_arms][repeats + 1] of the old record; the last is the bare pass */
    int fresh;      /* this run made the record */
    size_t natural; /* natural trials that this run added */
};

/* 1 + the number of the trial in the record that is resumed; 0 = it is not there. */
static size_t *have_cell(struct run *run, uint32_t arm, uint32_t repeat, uint32_t pass)
{
    uint32_t repeats = run->plan.header.repeats;
    if (pass == DS_PASS_HEAL || arm >= run->plan.header.n_arms || repeat >= repeats ||
        (pass == DS_PASS_BARE && repeat > 0))
        return NULL;
    return &run->have[(size_t)arm * (repeats + 1) + (pass == DS_PASS_BARE ? repeats : repeat)];
}

static int have_healed(const struct run *run, const struct ds_trial *t)
{
    for (size_t i = 0; i < ds_record_trial_count(run->old); i++) {
        const struct ds_trial *x = ds_record_trial(run->old, i);
        if (x->pass == DS_PASS_HEAL && x->arm == t->arm && x->healed_to == t->healed_to &&
            x->repeat == t->repeat && ds_record_sound(run->old, i))
            return 1;
    }
    return 0;
}

static int have(void *ctx, const struct ds_trial *t)
{
    struct run *run = ctx;
    if (!run->have)
        return 0;
    if (t->pass == DS_PASS_HEAL)
        return have_healed(run, t);
    const size_t *cell = have_cell(run, t->arm, t->repeat, t->pass);
    return cell && *cell;
}

static const struct ds_trial_data *recall(void *ctx, uint32_t arm, uint32_t repeat)
{
    struct run *run = ctx;
    const size_t *cell = have_cell(run, arm, repeat, DS_PASS_NATURAL);
    return cell && *cell ? ds_record_load(run->old, *cell - 1, NULL) : NULL;
}

static int sink(void *ctx, const struct ds_trial_data *t, struct ds_error *err)
{
    struct run *run = ctx;
    int rc = run->writer ? ds_writer_add(run->writer, t, err) : ds_kept_add(&run->kept, t, err);
    run->natural += rc == 0 && t->info.pass == DS_PASS_NATURAL;
    return rc;
}

static void progress(void *ctx, double done, double total)
{
    const struct run *run = ctx;
    ds_cli_progress(run->o, "trials", done, total);
}

static void note(void *ctx, const char *text)
{
    const struct run *run = ctx;
    ds_cli_note(run->o, "%s", text);
}

/* ---- the record ------------------------------------------------------------------------------ */

static int create_record(struct run *run, struct ds_error *err)
{
    int rc = ds_cli_create_record(run->o, &run->plan.header, run->path, sizeof run->path,
                                  &run->writer, err);
    run->fresh = rc == 0;
    return rc;
}

static int take_place(struct run *run, struct ds_error *err)
{
    if (rename(run->beside, run->path) != 0)
        return ds_fail(err, "cannot rename '%s' to '%s': %s", run->beside, run->path,
                       strerror(errno));
    run->beside[0] = '\0';
    return 0;
}

/* What the old record has. */
static int index_old(struct run *run, struct ds_error *err)
{
    const struct ds_header *h = &run->plan.header;
    size_t cells;
    if (__builtin_mul_overflow(h->n_arms, (size_t)h->repeats + 1, &cells))
        return ds_fail(err, "the record plans too many trials");
    run->have = ds_calloc(cells, sizeof *run->have, "trials", err);
    if (!run->have)
        return -1;
    for (size_t i = 0; i < ds_record_trial_count(run->old); i++) {
        const struct ds_trial *t = ds_record_trial(run->old, i);
        size_t *cell = have_cell(run, t->arm, t->repeat, t->pass);
        if (cell && t->pass != DS_PASS_FAILED && ds_record_sound(run->old, i))
            *cell = i + 1;
    }
    return 0;
}

/* Copies the complete trials beside the old record and puts the copy in its place: a kill at any
 * moment leaves one or the other. */
static int continue_record(struct run *run, struct ds_error *err)
{
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

/* Trials that are still to be run; with --until-stable none of an arm whose trials disagree. */
static size_t missing_trials(struct run *run)
{
    const struct ds_header *h = &run->plan.header;
    const struct ds_record *old = run->old;
    size_t missing = 0;
    for (uint32_t arm = 0; arm < h->n_arms; arm++) {
        size_t have_trials = 0, parted = 0;
        uint64_t first = 0;
        for (size_t i = 0; i < ds_record_trial_count(old); i++) {
            const struct ds_trial *t = ds_record_trial(old, i);
            if (t->arm != arm || t->pass != DS_PASS_NATURAL || !ds_record_sound(old, i))
                continue;
            first = have_trials++ ? first : t->run_digest;
            parted |= t->run_digest != first;
        }
        if (have_trials < h->repeats && !(parted && run->plan.options.until_stable))
            missing += h->repeats - have_trials;
    }
    return missing;
}

/* Options that say what to run have no place beside --resume: the record says it. */
static int check_resume_options(const struct ds_options *o, struct ds_error *err)
{
    static const char *const fixed[] = {
        "prompt",      "file",        "tokens",       "chat",          "steps",
        "free",        "tokens-from", "repeat",       "full",          "sites",
        "dump",        "dump-rows",   "page-size",    "poison",        "no-record",
        "output",      "weights",     "until-stable", "load",          "position-offset",
        "all-logits",  "no-heal",     "mutate",       "digest-packed", "scores",
        "temperature", "top-k",       "top-p",        "min-p",         "repetition-penalty",
        "sample-seed", "expect",      "dtype-at",     "attach",        "inputs",
        "call"};
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

/* ---- the sweep and its verdict --------------------------------------------------------------- */

/* The verdict, or what --expect makes of the trials. */
static int judge(struct run *run, const struct ds_source *s, struct ds_record *r, int *exit_code,
                 struct ds_error *err)
{
    const char *expect = ds_opt_text(run->o, "expect");
    struct ds_lock l;
    if (!expect)
        return ds_cli_verdict(run->o, s, r, r ? run->path : NULL, exit_code, err);
    int rc = ds_lock_read(expect, &l, err);
    rc = rc ? rc : ds_lock_verify(run->o, &l, s, run->plan.tokenizer, run->path, exit_code, err);
    ds_lock_free(&l);
    return rc;
}

/* The verdict, read back from what was written. */
static int report(struct run *run, int *exit_code, struct ds_error *err)
{
    if (!run->path[0]) {
        run->kept.header = &run->plan.header;
        struct ds_source s = ds_kept_source(&run->kept);
        return judge(run, &s, NULL, exit_code, err);
    }
    struct ds_record *r;
    if (ds_record_open(run->path, &r, err) != 0)
        return -1;
    struct ds_source s;
    ds_source_record(&s, r);
    int rc = judge(run, &s, r, exit_code, err);
    ds_record_close(r);
    return rc;
}

static struct ds_sweep sweep_of(struct run *run)
{
    const struct ds_run_plan *p = &run->plan;
    return (struct ds_sweep){.model = p->model,
                             .options = p->options,
                             .header = &p->header,
                             .requests = p->requests,
                             .n_requests = p->n_requests,
                             .forced = p->n_forced ? p->forced : NULL,
                             .n_forced = p->n_forced,
                             .ctx = run,
                             .sink = sink,
                             .have = have,
                             .recall = recall,
                             .progress = progress,
                             .note = note,
                             .stop = ds_cli_stop()};
}

static int sweep(struct run *run, struct ds_sweep_result *result, struct ds_error *err)
{
    const struct ds_sweep s = sweep_of(run);
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

/* What is saved and how to go on, after `why` the run ended early. */
static void tell_saved(struct run *run, const char *why)
{
    const struct ds_header *h = &run->plan.header;
    size_t planned = h->n_arms * h->repeats, saved = run->natural;
    struct ds_buf b = {0};
    if (run->old)
        saved += planned - missing_trials(run);
    ds_buf_puts(&b, why);
    if (run->path[0]) {
        ds_buf_printf(&b, ": %zu of %s%zu trials are saved; go on with: ", saved,
                      run->plan.options.until_stable ? "at most " : "", planned);
        ds_report_resume(&ds_cli_caller, ds_opt_text(run->o, "model"), run->path, &b);
    }
    ds_cli_note(run->o, "%s", b.data ? b.data : why);
    ds_buf_free(&b);
}

static int finish(struct run *run, const struct ds_sweep_result *result, struct ds_error *err)
{
    if (result->interrupted) {
        tell_saved(run, "interrupted");
        return DS_EXIT_INTERRUPTED;
    }
    int exit_code = DS_EXIT_ERROR;
    if (report(run, &exit_code, err) != 0)
        return ds_cli_error(run->o, err);
    if (result->failed > 0) {
        *err = result->first_failure;
        ds_prefix(err, "%u arm%s could not be run; first", result->failed,
                  result->failed == 1 ? "" : "s");
        return ds_cli_error(run->o, err);
    }
    return exit_code;
}

/* After an error that ended the sweep. A record without a single trial would only be in the way of
 * the next try. */
static void clean_up(struct run *run, const struct ds_sweep_result *result)
{
    if (run->fresh && result->trials == 0)
        unlink(run->path);
    else if (run->natural > 0 && run->path[0])
        tell_saved(run, "the run ended early");
}

/* A lock that cannot be held against anything is told before the run, not behind it. */
static int check_expect(const struct run *run, struct ds_error *err)
{
    const char *expect = ds_opt_text(run->o, "expect");
    struct ds_lock l;
    if (!expect)
        return 0;
    int rc = ds_lock_read(expect, &l, err);
    rc = rc ? rc : ds_lock_agrees(&l, err);
    ds_lock_free(&l);
    return rc;
}

static int start(struct run *run, struct ds_error *err)
{
    const char *resume = ds_opt_text(run->o, "resume");
    if (check_expect(run, err) != 0)
        return -1;
    if (!resume) {
        if (ds_run_plan_new(run->o, &run->plan, err) != 0 ||
            ds_cli_require(run->o, &run->plan.header, "--kernels", err) != 0 ||
            ds_plan_attach(run->o, &run->plan.header, err) != 0)
            return -1;
        if (!ds_opt_flag(run->o, "no-record"))
            return create_record(run, err);
        return ds_opt_given(run->o, "output")
                   ? ds_fail(err, "--output names the record that --no-record does without")
                   : 0;
    }
    if (check_resume_options(run->o, err) != 0 || ds_record_open(resume, &run->old, err) != 0)
        return -1;
    snprintf(run->path, sizeof run->path, "%s", resume);
    /* Damaged trials are run again: they must be known before the plan is made. */
    if (ds_record_claim(run->old, err) != 0 || ds_record_verify(run->old, err) != 0)
        return -1;
    if (ds_run_plan_resume(run->o, run->old, &run->plan, err) != 0)
        return ds_prefix(err, "%s", resume);
    const struct ds_sweep s = sweep_of(run);
    uint32_t missing;
    if (ds_cli_require(run->o, &run->plan.header, "a record of --kernels", err) != 0 ||
        index_old(run, err) != 0 || ds_sweep_missing(&s, &missing, err) != 0)
        return -1;
    return missing ? continue_record(run, err) : 0;
}

/* Where the record that is being written can be read. */
static const char *where_it_grows(const struct run *run)
{
    return run->old && !run->beside[0] ? run->path : ds_writer_path(run->writer);
}

static int watched_sweep(struct run *run, struct ds_sweep_result *result, struct ds_error *err)
{
    if (run->writer)
        ds_run_tui_started(run->o, where_it_grows(run), run->path);
    return sweep(run, result, err);
}

static int run_sweep(const struct ds_options *o)
{
    struct run run = {.o = o};
    struct ds_error err = {{0}, {0}};
    struct ds_sweep_result result = {0};
    int code;
    ds_cli_stop_on_signal();
    if (start(&run, &err) != 0)
        code = ds_cli_error(o, &err);
    else if ((run.writer || !run.path[0]) && watched_sweep(&run, &result, &err) != 0) {
        code = ds_cli_error(o, &err);
        clean_up(&run, &result);
    } else
        code = finish(&run, &result, &err);
    if (run.writer)
        ds_writer_close(run.writer, NULL);
    ds_kept_free(&run.kept);
    free(run.have);
    ds_run_plan_free(&run.plan);
    if (run.old)
        ds_record_close(run.old);
    return code;
}

int ds_verb_run(const struct ds_options *o)
{
    return ds_opt_flag(o, "tui") ? ds_run_tui(o, run_sweep) : run_sweep(o);
}
