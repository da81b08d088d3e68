/* test_resume.c: a run that is killed, interrupted or out of disk, and what is left: every complete
 * trial, and after --resume the same as undisturbed. Moments are chosen by how far the record has
 * grown, not by time. */
#include "tests/unit/testing.h"

#include "dumps/record.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL "random:llama,layers=2,hidden=48,heads=4,kv_heads=2,ffn=64,vocab=96,ctx=128,seed=3"

static char folder[] = "/tmp/driftscope-test-XXXXXX";
static char undisturbed[256], record[256];

static const char *program(void)
{
    const char *p = getenv("DRIFTSCOPE");
    return p ? p : "build/driftscope";
}

static const char *const sweep_args[] = {"--kernels",    "pinned",         "--repeat",  "4",
                                         "--batch",      "1,2,3",          "--threads", "1,2",
                                         "--slot",       "first,last",     "--chunk",   "0,3",
                                         "--mode",       "prefill,decode", "-n",        "3",
                                         "--neighbours", "copies,varied"};

/* Starts `run` on `path` (or its resume). file_limit: RLIMIT_FSIZE, 0 = none. */
static pid_t start_run(const char *path, int resume, long file_limit)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    /* The program keeps ignored what is ignored at start, and these tests may run under nohup. */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    const char *argv[40];
    int n = 0;
    argv[n++] = "driftscope";
    argv[n++] = "run";
    argv[n++] = "-m";
    argv[n++] = MODEL;
    argv[n++] = resume ? "--resume" : "-o";
    argv[n++] = path;
    if (!resume)
        for (size_t i = 0; i < sizeof sweep_args / sizeof *sweep_args; i++)
            argv[n++] = sweep_args[i];
    argv[n] = NULL;
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    if (file_limit) {
        struct rlimit lim = {(rlim_t)file_limit, (rlim_t)file_limit};
        setrlimit(RLIMIT_FSIZE, &lim);
        signal(SIGXFSZ, SIG_IGN);
    }
    execv(program(), (char *const *)argv);
    _exit(127);
}

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static off_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : 0;
}

/* Kills the run when the record has grown to `bytes` (or the run is over). Returns how it ended. */
static int kill_at(pid_t pid, const char *path, off_t bytes, int sig)
{
    for (;;) {
        int status;
        pid_t gone = waitpid(pid, &status, WNOHANG);
        if (gone == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        if (size_of(path) >= bytes) {
            kill(pid, sig);
            return wait_for(pid);
        }
        sched_yield();
    }
}

struct digests {
    size_t n;
    uint64_t of[400];
};

/* Run digest of every natural trial, by arm and repeat; checks that each trial loads. */
static void read_digests(const char *path, struct digests *d)
{
    struct ds_error err;
    struct ds_record *r;
    memset(d, 0, sizeof *d);
    assert_ok(ds_record_open(path, &r, &err), err);
    const struct ds_header *h = ds_record_header(r);
    assert_int_equal(ds_record_damaged(r), 0);
    for (size_t i = 0; i < ds_record_trial_count(r); i++) {
        const struct ds_trial *t = ds_record_trial(r, i);
        const struct ds_trial_data *data = ds_record_load(r, i, &err);
        if (!data)
            fail_msg("%s: trial %zu: %s", path, i, err.msg);
        if (t->pass != DS_PASS_NATURAL)
            continue;
        size_t cell = t->arm * h->repeats + t->repeat;
        assert_true(cell < 400);
        assert_true(d->of[cell] == 0); /* no trial twice */
        d->of[cell] = t->run_digest;
        d->n++;
    }
    ds_record_close(r);
}

static void check_subset(const struct digests *part, const struct digests *whole)
{
    for (size_t i = 0; i < 400; i++)
        if (part->of[i])
            assert_true(part->of[i] == whole->of[i]);
}

static void check_resumes_to_the_whole(const struct digests *whole)
{
    struct digests now;
    assert_int_equal(wait_for(start_run(record, 1, 0)), 0);
    read_digests(record, &now);
    assert_int_equal(now.n, whole->n);
    check_subset(&now, whole);
}

static void test_killed_at_50_moments_and_resumed(void **state)
{
    (void)state;
    struct digests whole, part;
    read_digests(undisturbed, &whole);
    assert_true(whole.n >= 40);
    /* Most of a small record is its header, which appears at once: one kill in five falls anywhere,
     * the others among the trials. */
    unlink(record);
    kill_at(start_run(record, 0, 0), record, 1, SIGKILL);
    off_t full = size_of(undisturbed), header = size_of(record);
    assert_true(header > 0 && header < full);
    uint32_t z = 2463534242u;
    int killed = 0, partial = 0;
    for (int i = 0; i < 50; i++) {
        z ^= z << 13;
        z ^= z >> 17;
        z ^= z << 5;
        unlink(record);
        off_t from = i % 5 ? header : 0;
        int how = kill_at(start_run(record, 0, 0), record,
                          from + 1 + (off_t)(z % (uint32_t)(full - from)), SIGKILL);
        killed += how == -SIGKILL;
        struct ds_error err;
        struct ds_record *r;
        if (ds_record_open(record, &r, &err) != 0)
            continue; /* killed before the header was complete: nothing was promised yet */
        ds_record_close(r);
        read_digests(record, &part);
        check_subset(&part, &whole);
        partial += part.n > 0 && part.n < whole.n;
        /* Each tenth is killed again while it resumes. */
        if (i % 10 == 0)
            kill_at(start_run(record, 1, 0), record, size_of(record) + 1, SIGKILL);
        check_resumes_to_the_whole(&whole);
    }
    print_message("%d of 50 runs were killed, %d of them with some trials complete\n", killed,
                  partial);
    assert_true(killed >= 25);
    assert_true(partial >= 5);
    unlink(record);
}

static void test_interrupted_run_says_130_and_resumes(void **state)
{
    (void)state;
    struct digests whole;
    read_digests(undisturbed, &whole);
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++) {
        unlink(record);
        int how = kill_at(start_run(record, 0, 0), record, size_of(undisturbed) / 2, signals[i]);
        assert_int_equal(how, 130);
        check_resumes_to_the_whole(&whole);
    }
    unlink(record);
}

static void test_full_disk_is_an_error_and_keeps_what_was_complete(void **state)
{
    (void)state;
    struct digests whole, part;
    read_digests(undisturbed, &whole);
    long full = (long)size_of(undisturbed);
    for (int i = 1; i <= 4; i++) {
        unlink(record);
        assert_int_equal(wait_for(start_run(record, 0, full * i / 5)), 2);
        struct ds_error err;
        struct ds_record *r;
        if (ds_record_open(record, &r, &err) != 0)
            continue;
        ds_record_close(r);
        read_digests(record, &part);
        check_subset(&part, &whole);
        assert_true(part.n < whole.n);
        check_resumes_to_the_whole(&whole);
    }
    unlink(record);
}

static void test_nothing_missing_is_no_error(void **state)
{
    (void)state;
    struct digests before, after;
    read_digests(undisturbed, &before);
    assert_int_equal(wait_for(start_run(undisturbed, 1, 0)), 0);
    read_digests(undisturbed, &after);
    assert_memory_equal(&before, &after, sizeof before);
}

static void test_an_existing_file_is_not_overwritten(void **state)
{
    (void)state;
    off_t size = size_of(undisturbed);
    assert_int_equal(wait_for(start_run(undisturbed, 0, 0)), 2);
    assert_int_equal(size_of(undisturbed), size);
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(undisturbed, sizeof undisturbed, "%s/whole.h5", folder);
    snprintf(record, sizeof record, "%s/part.h5", folder);
    return wait_for(start_run(undisturbed, 0, 0)) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    unlink(undisturbed);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_at_50_moments_and_resumed),
        cmocka_unit_test(test_interrupted_run_says_130_and_resumes),
        cmocka_unit_test(test_full_disk_is_an_error_and_keeps_what_was_complete),
        cmocka_unit_test(test_nothing_missing_is_no_error),
        cmocka_unit_test(test_an_existing_file_is_not_overwritten),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
