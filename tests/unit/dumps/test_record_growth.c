/* test_record_growth.c: readers of a record that grows under them, at every moment of its growth. No second process and no
 * luck: what a writer writes is kept, write by write, and done again in a copy between two steps of a reader, wherever the
 * scheduler of a loaded machine might let it go on. The library's calls of the system are those of this file. */
#include "tests/unit/dumps/record_fixture.h"

#include "dumps/record_place.h"

#include <sys/syscall.h>
#include <sys/wait.h>

enum { SEED = 4242, SCALE = 6, TRIALS = 4 };

/* ---- what the writer does --------------------------------------------------------------------- */

struct change {
    off_t at; /* or the file's new length, without bytes */
    size_t n;
    char *bytes;
};

static struct change *changes;
static size_t n_changes, changes_cap;
static int is_kept;

static void keep(off_t at, const void *bytes, size_t n)
{
    if (n_changes == changes_cap) {
        changes_cap = changes_cap ? 2 * changes_cap : 256;
        changes = realloc(changes, changes_cap * sizeof *changes);
    }
    struct change *c = &changes[n_changes++];
    *c = (struct change){.at = at, .n = n, .bytes = bytes ? malloc(n) : NULL};
    if (bytes)
        memcpy(c->bytes, bytes, n);
}

/* ---- what happens while a reader reads -------------------------------------------------------- */

static struct {
    int fd;             /* of the copy; 0: nothing happens */
    size_t done, to;    /* changes that the copy has; what it has after the moment */
    size_t torn;        /* bytes of the next change that are there already */
    size_t steps, when; /* of the reader; the moment */
    size_t again, most; /* the same reads in a row; so many are the moment, too */
    off_t last[2];
} replay;

static void apply(size_t to)
{
    for (; replay.done < to; replay.done++) {
        const struct change *c = &changes[replay.done];
        const long done = c->bytes ? syscall(SYS_pwrite64, replay.fd, c->bytes, c->n, c->at)
                                   : syscall(SYS_ftruncate, replay.fd, c->at);
        assert_int_equal(done, c->bytes ? (long)c->n : 0);
    }
}

static void step(off_t at)
{
    /* The superblock is read in two parts, in turn. */
    replay.again = at == replay.last[0] || at == replay.last[1] ? replay.again + 1 : 0;
    replay.last[1] = replay.last[0];
    replay.last[0] = at;
    if (replay.fd &&
        (replay.steps++ == replay.when || (replay.most && replay.again == replay.most)))
        apply(replay.to);
}

/* The names by which the library knows them; those with 64 are the same where off_t has 64 bits. */
ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    step(at);
    return syscall(SYS_pread64, fd, bytes, n, at);
}

ssize_t pread64(int fd, void *bytes, size_t n, off_t at)
{
    return pread(fd, bytes, n, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    if (is_kept)
        keep(at, bytes, n);
    return syscall(SYS_pwrite64, fd, bytes, n, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off_t at)
{
    return pwrite(fd, bytes, n, at);
}

int ftruncate(int fd, off_t length)
{
    if (is_kept)
        keep(length, NULL, 0);
    return (int)syscall(SYS_ftruncate, fd, length);
}

int ftruncate64(int fd, off_t length)
{
    return ftruncate(fd, length);
}

/* ---- the record ------------------------------------------------------------------------------- */

static char *born; /* the record as it is when it gets its name */
static size_t born_bytes;
static size_t complete[TRIALS + 1]; /* changes after which so many trials are written */

static int write_record(void **state)
{
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w;
    if (fixture_setup(state) != 0)
        return -1;
    const char *path = fixture_path("grown.h5");
    fixture_header(SEED, &h);
    assert_ok(ds_writer_create(path, 0, &h, &w, NULL, &err), err);
    born = file_read(path, &born_bytes);
    is_kept = 1;
    for (uint32_t i = 0; i < TRIALS; i++) {
        struct ds_trial_data t;
        fixture_trial(SEED, i, SCALE, &t);
        assert_ok(ds_writer_add(w, &t, &err), err);
        ds_trial_data_free(&t);
        complete[i + 1] = n_changes;
    }
    assert_ok(ds_writer_close(w, &err), err);
    is_kept = 0;
    ds_header_free(&h);
    unlink(path);
    return 0;
}

static int forget_record(void **state)
{
    for (size_t i = 0; i < n_changes; i++)
        free(changes[i].bytes);
    free(changes);
    free(born);
    unlink(fixture_path("copy.h5"));
    return fixture_teardown(state);
}

static size_t trials_after(size_t change)
{
    size_t n = 0;
    while (n < TRIALS && complete[n + 1] <= change)
        n++;
    return n;
}

/* One more may be readable before its last change. */
static size_t trials_begun(size_t change)
{
    const size_t n = trials_after(change);
    return n < TRIALS && complete[n] < change ? n + 1 : n;
}

/* A copy with the first `from` changes and `torn` bytes of the next; those up to `to` come when the reader has taken
 * `when` steps. */
static struct reading read_while(const char *path, size_t from, size_t torn, size_t to, size_t when)
{
    replay.done = replay.steps = replay.again = 0;
    /* Never emptied: some file systems write out at once what was. */
    replay.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(replay.fd > 0);
    assert_int_equal(syscall(SYS_ftruncate, replay.fd, born_bytes), 0);
    assert_int_equal(syscall(SYS_pwrite64, replay.fd, born, born_bytes, 0), born_bytes);
    apply(from);
    if (torn && changes[from].bytes)
        assert_int_equal(
            syscall(SYS_pwrite64, replay.fd, changes[from].bytes, torn, changes[from].at), torn);
    replay.to = to;
    replay.when = when;
    struct reading got = read_everything(path, SEED, SCALE);
    close(replay.fd);
    replay.fd = 0;
    return got;
}

static void check(struct reading got, size_t from, size_t to, size_t when)
{
    const size_t least = trials_after(from), most = trials_begun(to);
    if (!got.opened || got.bad || got.damaged || got.incomplete > 1 || got.good < least ||
        got.good > most)
        fail_msg("changes %zu to %zu of %zu at step %zu: opened %d, good %zu (of %zu to %zu), "
                 "bad %zu, damaged %zu, incomplete %zu",
                 from, to, n_changes, when, got.opened, got.good, least, most, got.bad, got.damaged,
                 got.incomplete);
}

/* ---- tests ------------------------------------------------------------------------------------ */

/* The writer stands still, or was killed. */
static void test_at_rest(void **state)
{
    (void)state;
    const char *path = fixture_path("copy.h5");
    for (size_t from = 0; from <= n_changes; from++)
        check(read_while(path, from, 0, from, 0), from, from, 0);
    assert_true(n_changes > 40 * TRIALS); /* the library's writes do come here */
}

/* It goes on at any step of a reader, by one change, by some, to the end. */
static void test_it_goes_on(void **state)
{
    (void)state;
    const char *path = fixture_path("copy.h5");
    uint64_t rng = 11;
    size_t steps = 0;
    for (int i = 0; i < 400; i++) {
        const size_t from = rng_below(&rng, (uint32_t)n_changes);
        const size_t some = 1 + rng_below(&rng, (uint32_t)(n_changes - from));
        const size_t to = i % 3 == 0 ? n_changes : i % 3 == 1 ? from + 1 : from + some;
        const size_t when = rng_below(&rng, i % 2 ? 12 : 200);
        check(read_while(path, from, 0, to, when), from, to, when);
        steps += replay.steps;
    }
    assert_true(steps > 400 * 20);
}

/* It ends, having grown a last time, at each of a reader's first steps: HDF5 holds the length that the superblock tells
 * against the one that the file had before. */
static void test_it_ends_while_it_is_opened(void **state)
{
    (void)state;
    const char *path = fixture_path("copy.h5");
    for (size_t from = 0; from < n_changes; from += 1 + from / 8)
        for (size_t when = 0; when < 12; when++)
            check(read_while(path, from, 0, n_changes, when), from, n_changes, when);
}

/* A reader that comes between the two halves of a write takes another look. */
static void test_half_a_write(void **state)
{
    (void)state;
    const char *path = fixture_path("copy.h5");
    uint64_t rng = 12;
    for (int i = 0; i < 200; i++) {
        const size_t from = rng_below(&rng, (uint32_t)n_changes), when = rng_below(&rng, 40);
        const size_t half = changes[from].n / 2;
        struct reading got = read_while(path, from, half, n_changes, when);
        /* Before the reader's first look the change may be whole. */
        check(got, from, n_changes, when);
    }
}

/* The same where the writer sleeps in the middle of a write: known to be at work, it is waited for. */
static void test_half_a_write_for_long(void **state)
{
    (void)state;
    const char *path = fixture_path("copy.h5");
    size_t waited = 0;
    int ready[2], end[2];
    char c;
    file_write(path, born, born_bytes);
    assert_true(pipe(ready) == 0 && pipe(end) == 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(end[1]);
        ds_place_mark(open(path, O_RDWR));
        _exit(write(ready[1], "r", 1) == 1 && read(end[0], &c, 1) == 0 ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    for (size_t from = 0; from < n_changes; from += 2) {
        replay.most = changes[from].at == 0 ? 45 : 22; /* more than are tried where nobody writes */
        check(read_while(path, from, changes[from].n / 2, from + 1, SIZE_MAX), from, from + 1, 0);
        waited += replay.done > from;
    }
    replay.most = 0;
    close(end[1]);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    close(end[0]);
    print_message("%zu of %zu half written changes were waited for\n", waited, n_changes / 2);
    assert_true(waited > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_rest),
        cmocka_unit_test(test_it_goes_on),
        cmocka_unit_test(test_it_ends_while_it_is_opened),
        cmocka_unit_test(test_half_a_write),
        cmocka_unit_test(test_half_a_write_for_long),
    };
    return cmocka_run_group_tests(tests, write_record, forget_record);
}
