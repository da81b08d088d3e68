/* case_run.c: one child process per command: `driftscope VERB ... --json --plugin SPECIMENS`, its
 * working directory a temporary folder that goes when the case is done. */
#include "cli/case_run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/program.h"
#include "cli/case_expect.h"
#include "cli/case_explain.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the folder ------------------------------------------------------------------------------ */

static int make_folder(char *path, size_t size, struct ds_error *err)
{
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(path, size, "%s/driftscope-case-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (n < 0 || (size_t)n >= size || !mkdtemp(path))
        return ds_fail(err, "cannot make a folder in %s: %s", tmp && *tmp ? tmp : "/tmp",
                       strerror(errno));
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    remove(path);
    return 0;
}

static void remove_folder(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- a command ------------------------------------------------------------------------------- */

static void argv_free(char **argv, size_t n)
{
    for (size_t i = 0; argv && i < n; i++)
        free(argv[i]);
    free(argv);
}

static char **make_argv(const struct ds_case_step *step, const struct ds_case_setting *s, size_t *n,
                        struct ds_error *err)
{
    const char *more[] = {"--json", "-q", "--plugin", s->plugin};
    size_t extra = sizeof more / sizeof more[0], verb = ds_case_verb(step), own = step->argc - verb;
    *n = 1 + own + extra;
    char **argv = ds_calloc(*n + 1, sizeof *argv, "command", err);
    int ok = argv && (argv[0] = ds_case_argument("driftscope", 0));
    for (size_t i = 0; ok && i < own; i++)
        ok = (argv[1 + i] = ds_case_argument(step->argv[verb + i], s->healthy)) != NULL;
    for (size_t i = 0; ok && i < extra; i++)
        ok = (argv[1 + own + i] = ds_case_argument(more[i], 0)) != NULL;
    if (ok)
        return argv;
    argv_free(argv, *n);
    ds_fail(err, "out of memory for a command");
    return NULL;
}

static void child(const struct ds_case_step *step, char **argv, const char *folder,
                  const char *program, pid_t parent)
{
    int out, log, in = open("/dev/null", O_RDONLY);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || in < 0 || chdir(folder) != 0)
        _exit(126);
    out = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    log = open("err", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (out < 0 || log < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(log, 2) < 0)
        _exit(126);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    for (size_t i = 0; i < ds_case_verb(step); i++)
        if (putenv(step->argv[i]) != 0)
            _exit(126);
    execv("/proc/self/exe", argv); /* the very program, also if its file is another by now */
    execv(program, argv);
    _exit(127);
}

/* Exit code of the process, 128 + signal, or -1 after the time is over. An interruption is passed on, and
 * the process may end in its own way. */
static int wait_child(pid_t pid, int timeout)
{
    int told = 0;
    double until = ds_seconds(CLOCK_MONOTONIC) + timeout;
    const struct timespec nap = {0, 2000000};
    int status;
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (got < 0 && errno != EINTR)
            return -1;
        if (ds_seconds(CLOCK_MONOTONIC) > until) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        if (ds_cli_interrupted() && !told++)
            kill(pid, SIGTERM);
        nanosleep(&nap, NULL);
    }
}

static void first_line(const char *folder, const char *file, struct ds_buf *out)
{
    char path[4200], line[400];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "r");
    if (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        ds_buf_escape(out, line, (size_t)-1);
    }
    if (f)
        fclose(f);
}

static int run_step(const struct ds_case_step *step, const struct ds_case_setting *s,
                    const char *folder, json_t **answer, int *exit_code, struct ds_error *err)
{
    size_t n;
    char **argv = make_argv(step, s, &n, err), path[4200], program[PATH_MAX];
    json_error_t ignored;
    *answer = NULL;
    if (!argv)
        return -1;
    if (ds_program_file(program, sizeof program, err) != 0) {
        argv_free(argv, n);
        return -1;
    }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        child(step, argv, folder, program, parent);
    argv_free(argv, n);
    if (pid < 0)
        return ds_fail(err, "cannot fork: %s", strerror(errno));
    *exit_code = wait_child(pid, s->timeout);
    snprintf(path, sizeof path, "%s/out", folder);
    *answer = json_load_file(path, 0, &ignored);
    return 0;
}

/* ---- a case ---------------------------------------------------------------------------------- */

/* `explain` needs a drift. */
static int asks_for_drift(const struct ds_case_step *step)
{
    const size_t verb = ds_case_verb(step);
    return verb < step->argc && strcmp(step->argv[verb], "explain") == 0;
}

static void judge_step(const struct ds_case_step *step, const struct ds_case_setting *s,
                       const char *folder, json_t *answer, int exit_code, struct ds_buf *why)
{
    size_t before = why->len;
    if (exit_code < 0) {
        ds_buf_printf(why, "line %d: not done after %d seconds\n", step->line, s->timeout);
        return;
    }
    if (s->healthy && asks_for_drift(step)) { /* and there must be none */
        if (exit_code != DS_EXIT_ERROR || answer)
            ds_buf_printf(why, "line %d: healthy kernels, and there is something to explain\n",
                          step->line);
    } else if (s->healthy) {
        if (!ds_case_healthy(answer, exit_code, why))
            ds_buf_printf(why, " (the command of line %d)\n", step->line);
    } else {
        for (size_t i = 0; i < step->n_expects; i++)
            if (!ds_case_holds(&step->expects[i], answer, exit_code, why))
                ds_buf_printf(why, " (line %d)\n", step->expects[i].line);
    }
    if (why->len > before && !answer) {
        ds_buf_puts(why, "it said: ");
        first_line(folder, "err", why);
        ds_buf_puts(why, "\n");
    }
}

/* An error always says what it is: one that says nothing could not write it. Then nothing is known of
 * the specimen. */
static int check_heard(const struct ds_case *c, const struct ds_case_step *step, const char *folder,
                       const json_t *answer, int exit_code, struct ds_error *err)
{
    struct ds_buf said = {0};
    if (exit_code != DS_EXIT_ERROR || answer)
        return 0;
    first_line(folder, "err", &said);
    const int mute = said.len == 0 && !said.failed;
    ds_buf_free(&said);
    if (!mute)
        return 0;
    ds_fail(err, "case %s, line %d: the command ended with %d and no word", c->id, step->line,
            exit_code);
    return ds_hint(err, "files of a case are written to %s: is there room?", folder);
}

/* What the step found, explained. */
static int explain_step(const struct ds_case *c, size_t n, const struct ds_case_setting *s,
                        const char *folder, json_t *answer, struct ds_buf *why,
                        struct ds_error *err)
{
    struct ds_case_step step = {.line = c->steps[n].line};
    struct ds_buf said = {0};
    json_t *explanation = NULL;
    int exit_code;
    if (ds_case_explain_words(c, n, answer, &step.argv, err) != 0)
        return -1;
    while (step.argv && step.argv[step.argc])
        step.argc++;
    int rc = step.argv ? run_step(&step, s, folder, &explanation, &exit_code, err) : 0;
    if (rc == 0 && step.argv) {
        const size_t before = why->len;
        first_line(folder, "err", &said);
        ds_case_explain_holds(answer, explanation, said.data ? said.data : "", why);
        if (why->len > before)
            ds_buf_printf(why, " (of line %d)\n", step.line);
    }
    json_decref(explanation);
    ds_buf_free(&said);
    ds_case_words_free(step.argv);
    return rc;
}

int ds_case_run(const struct ds_case *c, const struct ds_case_setting *s,
                struct ds_case_outcome *out, struct ds_error *err)
{
    char folder[4096];
    struct ds_buf why = {0};
    double start = ds_seconds(CLOCK_MONOTONIC);
    memset(out, 0, sizeof *out);
    ds_cli_tidying(1);
    if (make_folder(folder, sizeof folder, err) != 0) {
        ds_cli_tidying(0);
        return -1;
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->n_steps && !ds_cli_interrupted(); i++) {
        int exit_code = -1;
        json_t *answer = NULL;
        rc = run_step(&c->steps[i], s, folder, &answer, &exit_code, err);
        if (rc == 0)
            rc = check_heard(c, &c->steps[i], folder, answer, exit_code, err);
        if (rc == 0)
            judge_step(&c->steps[i], s, folder, answer, exit_code, &why);
        if (rc == 0 && s->explain && !s->healthy && !asks_for_drift(&c->steps[i]))
            rc = explain_step(c, i, s, folder, answer, &why, err);
        if (out->answer && asks_for_drift(&c->steps[i])) {
            json_decref(answer); /* the verdict before it is the case's answer */
            continue;
        }
        json_decref(out->answer);
        out->answer = answer;
    }
    remove_folder(folder);
    ds_cli_tidying(0);
    if (rc == 0 && why.failed)
        rc = ds_fail(err, "out of memory for the outcome of case %s", c->id);
    out->right = why.len == 0;
    out->why = why.data ? why.data : ds_calloc(1, 1, "case", err);
    out->seconds = ds_seconds(CLOCK_MONOTONIC) - start;
    if (rc != 0 || !out->why) {
        ds_case_outcome_free(out);
        return -1;
    }
    return 0;
}

void ds_case_outcome_free(struct ds_case_outcome *x)
{
    free(x->why);
    json_decref(x->answer);
    x->why = NULL;
    x->answer = NULL;
}
