/* test_resume.c: a run that is killed, interrupted or out of disk, and what is left: every complete
 * trial, and after --resume the same as undisturbed. Moments are chosen by how far the record has
 * grown, not by time. */
#include "tests/unit/testing.h"

#include "dumps/record.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MODEL "random:llama,layers=2,hidden=48,heads=4,kv_heads=2,ffn=64,vocab=96,ctx=128,seed=3"

#define OTHER_MODEL                                                                                \
    "random:llama,layers=2,hidden=48,heads=4,kv_heads=2,ffn=64,vocab=96,ctx=128,seed=4"

static const char *model = MODEL;
static char folder[] = "/tmp/driftscope-test-XXXXXX";
static char undisturbed[256], record[256];

static const char *program(void)
{
    const char *p = getenv("DRIFTSCOPE");
    return p ? p : "build/driftscope";
}

static const char *kernels = "pinned"; /* of a new run */
static int ends_with = 0;              /* its exit code */

static const char *const sweep_args[] = {"--repeat",
                                         "4",
                                         "--batch",
                                         "1,2,3",
                                         "--threads",
                                         "1,2",
                                         "--slot",
                                         "first,last",
                                         "--chunk",
                                         "0,3",
                                         "--mode",
                                         "prefill,decode",
                                         "-n",
                                         "3",
                                         "--neighbours",
                                         "copies,varied",
                                         "--place",
                                         "one,layers=0:cpu0;1-:cpu1",
                                         "--tp",
                                         "2",
                                         "--digest-packed",
                                         "--prefix",
                                         "0,4",
                                         "--rollback",
                                         "0,2",
                                         "--padding",
                                         "0,2r",
                                         "--all-logits",
                                         "--position-offset",
                                         "7"};

static const char *tokens_from; /* --tokens-from of a new run; NULL */

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
    const char *argv[48];
    int n = 0;
    argv[n++] = "driftscope";
    argv[n++] = "run";
    argv[n++] = "-m";
    argv[n++] = model;
    argv[n++] = resume ? "--resume" : "-o";
    argv[n++] = path;
    if (!resume) {
        argv[n++] = "--kernels";
        argv[n++] = kernels;
    }
    if (!resume)
        for (size_t i = 0; i < sizeof sweep_args / sizeof *sweep_args; i++)
            argv[n++] = sweep_args[i];
    if (!resume && tokens_from) {
        argv[n++] = "--tokens-from";
        argv[n++] = tokens_from;
        argv[n++] = "--force";
    }
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

/* Kills the run when the record has grown to `bytes` (or the run is over). Returns how it ended. Who watches comes first, on
 * one busy CPU too: the run is seen at work, and does not end unseen. */
static int kill_at(pid_t pid, const char *path, off_t bytes, int sig)
{
    setpriority(PRIO_PROCESS, (id_t)pid, 19);
    for (;;) {
        int status;
        pid_t gone = waitpid(pid, &status, WNOHANG);
        if (gone == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        if (size_of(path) >= bytes) {
            kill(pid, sig);
            return wait_for(pid);
        }
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

struct digests {
    size_t n, n_healed;
    uint64_t of[400],
        healed[400]; /* healed: at arm and the number among its heal trials' partners */
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
        if (t->pass == DS_PASS_HEAL) {
            size_t at = t->arm * 20 + t->healed_to;
            assert_true(at < 400 && t->healed_to < 20 && t->repeat == 0 && d->healed[at] == 0);
            d->healed[at] = t->run_digest;
            d->n_healed++;
        }
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
    for (size_t i = 0; i < 400; i++) {
        if (part->of[i])
            assert_true(part->of[i] == whole->of[i]);
        if (part->healed[i])
            assert_true(part->healed[i] == whole->healed[i]);
    }
}

static void check_resumes_to_the_whole(const struct digests *whole)
{
    struct digests now;
    assert_int_equal(wait_for(start_run(record, 1, 0)), ends_with);
    read_digests(record, &now);
    assert_int_equal(now.n, whole->n);
    assert_int_equal(now.n_healed, whole->n_healed);
    check_subset(&now, whole);
}

/* What a record has before its first trial. */
static off_t bytes_of_header(void)
{
    struct ds_error err;
    struct ds_record *r;
    struct ds_writer *w;
    assert_ok(ds_record_open(undisturbed, &r, &err), err);
    unlink(record);
    assert_ok(ds_writer_create(record, 0, ds_record_header(r), &w, NULL, &err), err);
    const off_t bytes = size_of(record);
    assert_ok(ds_writer_close(w, &err), err);
    ds_record_close(r);
    unlink(record);
    return bytes;
}

static void test_killed_at_50_moments_and_resumed(void **state)
{
    (void)state;
    struct digests whole, part;
    read_digests(undisturbed, &whole);
    assert_true(whole.n >= 40);
    /* Most of a small record is its header, which appears at once: one kill in five falls anywhere,
     * the others among the trials. */
    off_t full = size_of(undisturbed), header = bytes_of_header();
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
        if (size_of(record) == 0)
            continue; /* killed before the record had its name: it gets it when its header is
                         complete */
        assert_ok(ds_record_open(record, &r, &err), err);
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

/* Writes the whole record's trials, but for the heal trials (heal 0) and, of the arm that drifts, the
 * natural ones from `repeats` on. */
static void write_part(const char *whole, const char *path, int heal, uint32_t repeats)
{
    struct ds_error err;
    struct ds_record *r;
    struct ds_writer *w;
    assert_ok(ds_record_open(whole, &r, &err), err);
    unlink(path);
    assert_ok(ds_writer_create(path, 0, ds_record_header(r), &w, NULL, &err), err);
    for (size_t i = 0; i < ds_record_trial_count(r); i++) {
        const struct ds_trial_data *t = ds_record_load(r, i, &err);
        assert_non_null(t);
        if (t->info.pass == DS_PASS_HEAL
                ? !heal
                : t->info.pass == DS_PASS_NATURAL && t->n_drifts > 0 && t->info.repeat >= repeats)
            continue;
        assert_ok(ds_writer_add(w, t, &err), err);
    }
    assert_ok(ds_writer_close(w, &err), err);
    ds_record_close(r);
}

/* Where an arm drifts, its heal trial comes after its natural ones: whatever is missing of both is done,
 * to the same bits, also when nothing but a heal trial is missing. */
static void test_missing_heal_trials_are_done(void **state)
{
    static const struct {
        int heal;
        uint32_t repeats;
    } cases[] = {{0, 4}, {0, 2}, {0, 0}, {1, 3}};
    (void)state;
    struct digests whole;
    kernels = "pinned,reference";
    ends_with = 1;
    unlink(record);
    assert_int_equal(wait_for(start_run(record, 0, 0)), 1);
    read_digests(record, &whole);
    assert_int_equal(whole.n_healed, 1);
    char all[300];
    snprintf(all, sizeof all, "%s.all", record);
    assert_int_equal(rename(record, all), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_part(all, record, cases[i].heal, cases[i].repeats);
        check_resumes_to_the_whole(&whole);
    }
    kernels = "pinned";
    ends_with = 0;
    unlink(all);
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
    int resumed = 0;
    for (int i = 1; i <= 9; i++) {
        unlink(record);
        assert_int_equal(wait_for(start_run(record, 0, full * i / 10)), 2);
        if (size_of(record) == 0)
            continue; /* not even the header fitted */
        read_digests(record, &part);
        check_subset(&part, &whole);
        assert_true(part.n < whole.n);
        check_resumes_to_the_whole(&whole);
        resumed++;
    }
    assert_true(resumed >= 1);
    unlink(record);
}

/* Trials of another environment in one record would look like instability. */
static void test_another_environment_does_not_resume(void **state)
{
    (void)state;
    struct digests whole;
    read_digests(undisturbed, &whole);
    unlink(record);
    kill_at(start_run(record, 0, 0), record, size_of(undisturbed) / 2, SIGINT);
    assert_int_equal(setenv("OPENBLAS_CORETYPE", "Nehalem", 1), 0);
    assert_int_equal(wait_for(start_run(record, 1, 0)), 2);
    assert_int_equal(unsetenv("OPENBLAS_CORETYPE"), 0);
    check_resumes_to_the_whole(&whole);
    unlink(record);
}

/* Where the bytes of a trial's digests lie, found by content. */
static void damage_digests(const char *path, const uint64_t *digests, size_t n)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    size_t size = (size_t)size_of(path), want = n * sizeof *digests, hits = 0;
    char *bytes = malloc(size);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, size, f), size);
    for (char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), digests, want)); at++) {
        assert_int_equal(fseek(f, at - bytes, SEEK_SET), 0);
        assert_int_not_equal(fputc(*at ^ 1, f), EOF);
        hits++;
    }
    fclose(f);
    free(bytes);
    assert_true(hits > 0);
}

static void copy_file(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    for (int c; (c = fgetc(in)) != EOF;)
        assert_int_not_equal(fputc(c, out), EOF);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* A trial whose row is sound but whose payload is not: it is missing, and so is done again. The
 * base trial, too, whose tokens the others were fed. */
static void test_damaged_trials_are_done_again(void **state)
{
    (void)state;
    struct digests whole;
    struct ds_error err;
    struct ds_record *r;
    read_digests(undisturbed, &whole);
    copy_file(undisturbed, record);
    assert_ok(ds_record_open(undisturbed, &r, &err), err);
    const struct ds_trial_data *t = ds_record_load(r, 0, &err);
    assert_non_null(t);
    assert_true(t->info.arm == 0 && t->n_digests > 4);
    damage_digests(record, t->digests, 4);
    ds_record_close(r);
    assert_ok(ds_record_open(record, &r, &err), err);
    assert_null(ds_record_load(r, 0, &err));
    assert_ok(ds_record_verify(r, &err), err);
    assert_false(ds_record_sound(r, 0));
    ds_record_close(r);
    check_resumes_to_the_whole(&whole);
    unlink(record);
}

static void test_resume_feeds_the_tokens_of_another_record(void **state)
{
    (void)state;
    struct digests whole, part;
    char first[300];
    snprintf(first, sizeof first, "%s/tokens.h5", folder);
    /* Other tokens than this model's own: those of its sibling with another seed. */
    model = OTHER_MODEL;
    unlink(first);
    assert_int_equal(wait_for(start_run(first, 0, 0)), 0);
    model = MODEL;
    tokens_from = first;
    assert_int_equal(wait_for(start_run(record, 0, 0)), 0);
    read_digests(record, &whole);
    off_t full = size_of(record);
    int partial = 0;
    for (int i = 2; i <= 4; i++) {
        unlink(record);
        kill_at(start_run(record, 0, 0), record, full * i / 5, SIGKILL);
        read_digests(record, &part);
        partial += part.n < whole.n;
        check_resumes_to_the_whole(&whole);
    }
    assert_true(partial > 0);
    tokens_from = NULL;
    unlink(first);
    unlink(record);
}

/* Two writers would each rename over the other's file. */
static void test_a_growing_record_is_neither_resumed_nor_replaced(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_record *r;
    struct ds_writer *w;
    struct digests whole;
    read_digests(undisturbed, &whole);
    assert_ok(ds_record_open(undisturbed, &r, &err), err);
    assert_ok(ds_record_copy(r, record, &w, &err), err);
    assert_int_equal(wait_for(start_run(record, 1, 0)), 2);
    tokens_from = undisturbed; /* with --force */
    assert_int_equal(wait_for(start_run(record, 0, 0)), 2);
    tokens_from = NULL;
    assert_ok(ds_writer_close(w, &err), err);
    assert_ok(ds_record_claim(r, &err), err);
    assert_int_equal(wait_for(start_run(undisturbed, 1, 0)), 2);
    ds_record_close(r);
    check_resumes_to_the_whole(&whole);
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
        cmocka_unit_test(test_missing_heal_trials_are_done),
        cmocka_unit_test(test_interrupted_run_says_130_and_resumes),
        cmocka_unit_test(test_full_disk_is_an_error_and_keeps_what_was_complete),
        cmocka_unit_test(test_another_environment_does_not_resume),
        cmocka_unit_test(test_damaged_trials_are_done_again),
        cmocka_unit_test(test_resume_feeds_the_tokens_of_another_record),
        cmocka_unit_test(test_a_growing_record_is_neither_resumed_nor_replaced),
        cmocka_unit_test(test_nothing_missing_is_no_error),
        cmocka_unit_test(test_an_existing_file_is_not_overwritten),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
