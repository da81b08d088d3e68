/* test_record_damage.c: records that were cut, bent, killed while being written, read while being
 * written, or that met a full disk. Nothing may crash, hang or be believed that was not written. An
 * alarm ends the program if anything waits for ever. */
#include "tests/unit/dumps/record_fixture.h"

#include "dumps/parts.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { SEED = 4242, SCALE = 6 };

static void test_what_is_not_a_record(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_record *r = NULL;
    const char *path = fixture_path("odd");
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } cases[] = {
        {"", 0, "empty"},
        {"hello, this is only a text, though it is longer than a superblock is", 68, "signature"},
        {"\x89HDF\r\n\x1a\n", 8, "signature"},
        {"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
         "\0\0\0\0\0\0",
         48, "superblock 0"},
        {"\x89HDF\r\n\x1a\n\3\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
         "\0\0\0\0\0\0\0\0\0\0",
         48, "cannot be opened"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        alarm(HANG_SECONDS);
        file_write(path, cases[i].bytes, cases[i].n);
        assert_int_equal(ds_record_open(path, &r, &err), -1);
        assert_null(r);
        if (!strstr(err.msg, cases[i].says) || !strstr(err.msg, path))
            fail_msg("case %zu: %s", i, err.msg);
    }
    unlink(path);
    assert_int_equal(ds_record_open(path, &r, &err), -1);
    assert_non_null(strstr(err.msg, "No such file"));
    assert_int_equal(ds_record_open(fixture_dir, &r, &err), -1);
    assert_non_null(strstr(err.msg, "directory"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ds_record_open(path, &r, &err), -1);
    assert_non_null(strstr(err.msg, "not a regular file"));
    unlink(path);
    assert_int_equal(ds_record_open("/dev/null", &r, &err), -1);
    alarm(0);
}

/* ---- cut and bent ---------------------------------------------------------------------------- */

/* What a writer leaves that is killed after `n` trials: a copy taken while it is open. */
static void unfinished_record(const char *path, uint32_t n)
{
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w;
    size_t bytes;
    fixture_header(SEED, &h);
    assert_ok(ds_writer_create(path, 0, &h, &w, NULL, &err), err);
    for (uint32_t i = 0; i < n; i++) {
        struct ds_trial_data t;
        fixture_trial(SEED, i, SCALE, &t);
        assert_ok(ds_writer_add(w, &t, &err), err);
        ds_trial_data_free(&t);
    }
    char *copy = file_read(path, &bytes);
    assert_ok(ds_writer_close(w, &err), err);
    file_write(path, copy, bytes);
    free(copy);
    ds_header_free(&h);
}

static void test_truncation(void **state)
{
    (void)state;
    const char *path = fixture_path("cut.h5");
    enum { TRIALS = 60 };
    for (int finished = 0; finished < 2; finished++) {
        size_t n, some = 0;
        if (finished)
            fixture_record(path, SEED, TRIALS, SCALE);
        else
            unfinished_record(path, TRIALS);
        char *bytes = file_read(path, &n);
        for (int percent = 0; percent <= 100; percent += 5) {
            alarm(HANG_SECONDS);
            file_write(path, bytes, n * (size_t)percent / 100);
            struct reading got = read_everything(path, SEED, SCALE);
            if (percent == 100)
                assert_true(got.good == TRIALS && got.bad + got.incomplete + got.damaged == 0);
            else if (finished)
                assert_int_equal(got.opened,
                                 0); /* the library itself knows how long a closed file is */
            else /* what was lost is not made up; the last chunks' tails may be unused */
                assert_true(got.good <= TRIALS);
            some += got.opened && got.good > 0 && got.good < TRIALS;
        }
        print_message("%s: %zu of 20 cuts leave some trials readable\n",
                      finished ? "finished" : "killed", some);
        assert_true(finished || some > 0);
        free(bytes);
        unlink(path);
    }
    alarm(0);
}

static void test_bit_flips(void **state)
{
    (void)state;
    enum { TRIALS = 5, FLIPS = 400 };
    const char *path = fixture_path("bent.h5");
    uint64_t rng = 99;
    size_t n, refused = 0, damaged = 0, unnoticed = 0;
    fixture_record(path, SEED, TRIALS, SCALE);
    char *bytes = file_read(path, &n);
    for (int i = 0; i < FLIPS; i++) {
        /* A third of them in the first 16 KB, where headers and indices lie thickest. */
        size_t bit = rng_below(&rng, (uint32_t)(i % 3 ? n : n < 16384 ? n : 16384) * 8);
        alarm(HANG_SECONDS);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        file_write(path, bytes, n);
        struct reading got = read_everything(path, SEED, SCALE);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        refused += !got.opened;
        int seen = got.bad || got.damaged || got.incomplete;
        damaged += got.opened && seen;
        if (got.opened && !seen) {
            /* Unseen: then all of it must have come back (read_everything compares). */
            assert_int_equal(got.good, TRIALS);
            unnoticed++;
        }
    }
    print_message("%d flips: %zu refused, %zu seen as damage, %zu in unused bytes\n", FLIPS,
                  refused, damaged, unnoticed);
    assert_true(refused > 10 && damaged > 10);
    alarm(0);
    free(bytes);
    unlink(path);
}

/* Every byte of the first trial's stored digests, calls, ... and of the trials' rows: a flip is
 * always seen, never unused space. */
static void test_flips_in_payload_are_always_seen(void **state)
{
    (void)state;
    const char *path = fixture_path("bent.h5");
    struct ds_trial_data t;
    size_t n;
    uint64_t rng = 5;
    fixture_record(path, SEED, 2, SCALE);
    fixture_trial(SEED, 0, SCALE, &t);
    char *bytes = file_read(path, &n);
    const struct {
        const void *data;
        size_t bytes;
    } places[] = {{t.digests, t.n_digests * 8},
                  {t.calls, t.n_calls * sizeof *t.calls},
                  {t.rows, t.n_rows * sizeof *t.rows},
                  {t.captures, t.n_captures * sizeof *t.captures},
                  {t.steps, t.n_steps * sizeof *t.steps},
                  {&t.info.run_digest, 8},
                  {&t.info.wall_s, 8}};
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++)
        for (int i = 0; i < 12 && places[p].bytes; i++) {
            char *at = memmem(bytes, n, places[p].data, places[p].bytes);
            assert_non_null(at);
            size_t bit = rng_below(&rng, (uint32_t)places[p].bytes * 8);
            alarm(HANG_SECONDS);
            at[bit / 8] ^= (char)(1 << bit % 8);
            file_write(path, bytes, n);
            struct reading got = read_everything(path, SEED, SCALE);
            if (!got.opened || got.damaged != 1 || got.good != 1)
                fail_msg("place %zu: opened %d, good %zu, bad %zu, incomplete %zu, damaged %zu", p,
                         got.opened, got.good, got.bad, got.incomplete, got.damaged);
            at[bit / 8] ^= (char)(1 << bit % 8);
        }
    alarm(0);
    ds_trial_data_free(&t);
    free(bytes);
    unlink(path);
}

/* Behind a verdict every dumped row is held against its digest, whoever looked at it before; each bent one is named,
 * and what nobody loaded stays unloaded. */
static void test_dumped_rows_are_held_against_their_digests(void **state)
{
    (void)state;
    enum { TRIALS = 12 };
    const char *path = fixture_path("dumps.h5");
    struct ds_error err;
    size_t n, bent = 0, sound = 0;
    fixture_record(path, SEED, TRIALS, SCALE);
    char *bytes = file_read(path, &n);
    for (uint32_t i = 0; i < TRIALS; i++) {
        struct ds_trial_data t;
        fixture_trial(SEED, i, SCALE, &t);
        const struct ds_blob *b = t.n_blobs ? &t.blobs[t.n_blobs - 1] : NULL;
        char *at = b && b->bytes >= 16 ? memmem(bytes, n, b->data, b->bytes) : NULL;
        if (at)
            at[b->bytes / 2] ^= 1;
        file_write(path, bytes, n);
        for (int looked = 0; looked < 2; looked++) {
            ds_parts_set(1 + 2 * looked); /* by one process, and by three */
            struct ds_record *r;
            struct ds_blob blob = {0};
            struct ds_damage *list;
            uint64_t rows, left, unread, unread_bytes;
            size_t n_list;
            assert_ok(ds_record_open(path, &r, &err), err);
            ds_record_unread(r, &rows, &unread_bytes);
            assert_true(rows > 0 && unread_bytes > 0);
            if (looked && b && ds_record_blob(r, t.blobs[0].digest, &blob, &err) == 1) {
                ds_record_unread(r, &unread, &left);
                assert_int_equal(unread, rows - 1);
                assert_int_equal(left, unread_bytes - blob.bytes);
                free(blob.data);
            }
            assert_ok(ds_record_verify_rest(r, &err), err);
            assert_int_equal(ds_record_loaded(r), 0);
            assert_ok(ds_record_damages(r, &list, &n_list, &err), err);
            ds_record_unread(r, &unread, &left);
            assert_int_equal(n_list, at != NULL);
            assert_int_equal(unread, at != NULL);
            if (at) {
                assert_true(list[0].dumped && list[0].digest == b->digest);
                assert_int_equal(list[0].found, XXH3_64bits(at, b->bytes));
            }
            free(list);
            ds_record_close(r);
        }
        bent += at != NULL;
        sound += at == NULL;
        if (at)
            at[b->bytes / 2] ^= 1;
        ds_trial_data_free(&t);
    }
    ds_parts_set(0);
    assert_true(bent >= 4 && sound >= 1);
    free(bytes);
    unlink(path);
}

/* ---- killed, full, growing ------------------------------------------------------------------- */

/* Writes trials, telling the pipe after the creation and after each one. Ends by itself after
 * `most`. */
static void write_and_tell(const char *path, int pipe_fd, uint32_t most)
{
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w;
    fixture_header(SEED, &h);
    if (ds_writer_create(path, 0, &h, &w, NULL, &err) != 0 || write(pipe_fd, "c", 1) != 1)
        _exit(3);
    for (uint32_t i = 0; i < most; i++) {
        struct ds_trial_data t;
        fixture_trial(SEED, i, SCALE, &t);
        if (ds_writer_add(w, &t, &err) != 0 || write(pipe_fd, "t", 1) != 1)
            _exit(4);
        ds_trial_data_free(&t);
    }
    _exit(ds_writer_close(w, &err) == 0 ? 0 : 5);
}

static pid_t start_writer(const char *path, uint32_t most, int *from)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        write_and_tell(path, ends[1], most);
    }
    close(ends[1]);
    *from = ends[0];
    return pid;
}

/* How many trials the writer has reported so far, having read at least `until` reports. */
static size_t wait_for_reports(int from, size_t until)
{
    char c;
    size_t n = 0;
    while (n < until && read(from, &c, 1) == 1)
        n++;
    return n;
}

static void test_killed_writers_leave_complete_trials(void **state)
{
    (void)state;
    const char *path = fixture_path("killed.h5");
    uint64_t rng = 31337;
    size_t cut_short = 0, total = 0;
    for (int round = 0; round < 50; round++) {
        int from, status;
        alarm(HANG_SECONDS);
        pid_t pid = start_writer(path, 100000, &from);
        size_t want = 1 + rng_below(&rng, 12), told = wait_for_reports(from, want);
        assert_int_equal(told, want);
        /* A moment inside the next trial: the length of a loop, not a sleep. */
        volatile uint32_t spin = rng_below(&rng, 1000000);
        while (spin)
            spin = spin - 1;
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        told += wait_for_reports(from, (size_t)-1);
        close(from);
        struct reading got = read_everything(path, SEED, SCALE);
        assert_int_equal(got.opened, 1);
        assert_int_equal(got.bad + got.damaged, 0);
        /* One more may have become complete before it was reported. */
        if (got.good < told - 1 || got.good > told)
            fail_msg("round %d: %zu trials reported, %zu read", round, told - 1, got.good);
        assert_true(got.incomplete <= 1);
        cut_short += got.incomplete;
        total += got.good;
        unlink(path);
    }
    print_message("50 kills: %zu complete trials read, %zu cut short\n", total, cut_short);
    alarm(0);
}

static void test_readers_follow_a_growing_record(void **state)
{
    (void)state;
    enum { TRIALS = 150 };
    const char *path = fixture_path("growing.h5");
    int from, status = 0;
    size_t looks = 0, last = 0, partial = 0;
    alarm(HANG_SECONDS);
    pid_t pid = start_writer(path, TRIALS, &from);
    assert_int_equal(wait_for_reports(from, 1), 1);
    for (int running = 1; running; looks++) {
        running = waitpid(pid, &status, WNOHANG) == 0;
        struct reading got = read_everything(path, SEED, SCALE);
        assert_int_equal(got.opened, 1);
        assert_int_equal(got.bad + got.damaged, 0);
        assert_true(got.good >= last);
        assert_true(got.incomplete <= 1);
        last = got.good;
        partial += last > 0 && last < TRIALS;
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(last, TRIALS);
    print_message("%zu looks, %zu of them in the middle\n", looks, partial);
    close(from);
    alarm(0);
    unlink(path);
}

/* A file may not grow past `limit` bytes: like a full disk, a write fails in the middle. The child
 * ends through exit(), with all exit handlers; it tells how many trials were taken. */
static void fill_the_disk(const char *path, int pipe_fd, rlim_t limit)
{
    struct ds_error err = {"", ""};
    struct ds_header h;
    struct ds_writer *w = NULL;
    struct rlimit rl = {limit, limit};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &rl);
    fixture_header(SEED, &h);
    int rc = ds_writer_create(path, 0, &h, &w, NULL, &err);
    for (uint32_t i = 0; rc == 0 && i < 1000; i++) {
        struct ds_trial_data t;
        fixture_trial(SEED, i, SCALE, &t);
        rc = ds_writer_add(w, &t, &err);
        ds_trial_data_free(&t);
        if (rc == 0 && write(pipe_fd, "t", 1) != 1)
            _exit(3);
    }
    if (rc == 0 || !strstr(err.msg, path) || !strstr(err.msg, "ile too large"))
        _exit(4);
    struct ds_trial_data t;
    fixture_trial(SEED, 0, SCALE, &t);
    if (w && ds_writer_add(w, &t, &err) == 0)
        _exit(5);
    ds_trial_data_free(&t);
    if (ds_writer_close(w, &err) != 0)
        _exit(6);
    /* The library is out of bounds now, for reading too: a clear error, no call. */
    struct ds_record *r;
    if (ds_record_open(path, &r, &err) == 0 || !strstr(err.msg, "earlier write failed"))
        _exit(7);
    ds_header_free(&h);
    exit(0);
}

static void test_full_disk(void **state)
{
    (void)state;
    const char *path = fixture_path("full.h5");
    uint64_t rng = 8;
    size_t created = 0;
    for (int round = 0; round < 25; round++) {
        int ends[2], status;
        rlim_t limit = round < 3 ? 1000u + 9000u * (rlim_t)round : 20000 + rng_below(&rng, 900000);
        assert_int_equal(pipe(ends), 0);
        alarm(HANG_SECONDS);
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(ends[0]);
            fill_the_disk(path, ends[1], limit);
        }
        close(ends[1]);
        size_t told = wait_for_reports(ends[0], (size_t)-1);
        close(ends[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("limit %lu: the writer's status is %x", (unsigned long)limit,
                     (unsigned)status);
        if (file_bytes(path) < 0) {
            assert_int_equal(told, 0);
            continue;
        }
        created++;
        struct reading got = read_everything(path, SEED, SCALE);
        assert_int_equal(got.opened, 1);
        assert_int_equal(got.bad + got.damaged, 0);
        if (got.good < told || got.good > told + 1)
            fail_msg("limit %lu: %zu trials written, %zu read", (unsigned long)limit, told,
                     got.good);
        unlink(path);
    }
    assert_true(created > 10);
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_not_a_record),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_bit_flips),
        cmocka_unit_test(test_flips_in_payload_are_always_seen),
        cmocka_unit_test(test_dumped_rows_are_held_against_their_digests),
        cmocka_unit_test(test_killed_writers_leave_complete_trials),
        cmocka_unit_test(test_readers_follow_a_growing_record),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
