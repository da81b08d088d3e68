/* test_record_place.c: the file of a record: what was there before, two writers of one name, far file systems, what
 * killed writers left, file locks. */
#include "tests/unit/dumps/record_fixture.h"

#include "dumps/record_place.h"

#include <sys/wait.h>
#include <time.h>

static void test_existing_files_are_safe(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w = NULL;
    const char *path = fixture_path("kept.h5");
    fixture_header(1, &h);
    file_write(path, "precious", 8);
    assert_int_equal(ds_writer_create(path, 0, &h, &w, NULL, &err), -1);
    assert_null(w);
    assert_non_null(strstr(err.msg, "exists already"));
    assert_non_null(strstr(err.hint, "--force"));
    assert_int_equal(file_bytes(path), 8);

    /* A header that cannot be written leaves the old file alone even with force. */
    memset(h.sites[2].stage, 'x', sizeof h.sites[2].stage);
    assert_int_equal(ds_writer_create(path, 1, &h, &w, NULL, &err), -1);
    assert_int_equal(file_bytes(path), 8);
    h.sites[2].stage[1] = '\0';

    /* Through a link, the file is replaced, not the link. */
    const char *alias = fixture_path("link.h5");
    struct stat st;
    assert_int_equal(symlink(path, alias), 0);
    assert_ok(ds_writer_create(alias, 1, &h, &w, NULL, &err), err);
    assert_ok(ds_writer_close(w, &err), err);
    assert_int_equal(lstat(alias, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_true(file_bytes(path) > 8);
    unlink(alias);

    assert_int_equal(ds_writer_create(fixture_dir, 1, &h, &w, NULL, &err), -1);
    assert_non_null(strstr(err.msg, "not a regular file"));
    assert_int_equal(ds_writer_create("", 1, &h, &w, NULL, &err), -1);
    assert_int_equal(ds_writer_create(fixture_path("no/such/folder.h5"), 0, &h, &w, NULL, &err),
                     -1);
    assert_non_null(strstr(err.msg, "No such file"));
    ds_header_free(&h);
    unlink(path);
}

/* Two writers that both saw no file: the second to be born must not replace the first. */
static void test_two_writers_of_one_name(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_place a, b;
    const char *path = fixture_path("one.h5");
    assert_ok(ds_place_open(path, 0, &a, &err), err);
    assert_ok(ds_place_open(path, 0, &b, &err), err);
    assert_ok(ds_place_born(&a, &err), err);
    file_write(path, "first", 5);
    assert_int_equal(ds_place_born(&b, &err), -1);
    ds_place_free(&b);
    ds_place_free(&a);
    assert_int_equal(file_bytes(path), 5);
    unlink(path);
}

static void test_local_record_is_moved_at_close(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w;
    struct ds_trial_data t;
    int local = 0;
    assert_int_equal(ds_place_swmr_works(0xef53), 1);     /* ext4 */
    assert_int_equal(ds_place_swmr_works(0x01021994), 1); /* tmpfs */
    assert_int_equal(ds_place_swmr_works(0x6969), 0);     /* NFS */
    assert_int_equal(ds_place_swmr_works(0x0bd00bd0), 0); /* Lustre */
    assert_int_equal(ds_place_swmr_works(0x65735546), 0); /* FUSE */
    const char *path = fixture_path("far.h5");
    char where[512];
    fixture_header(5, &h);
    for (int force = 0; force < 2; force++) {
        ds_place_distrust = 1;
        int rc = ds_writer_create(path, force, &h, &w, &local, &err);
        ds_place_distrust = 0;
        assert_ok(rc, err);
        assert_int_equal(local, 1);
        snprintf(where, sizeof where, "%s", ds_writer_path(w));
        assert_string_not_equal(where, path);
        fixture_trial(5, 0, 4, &t);
        assert_ok(ds_writer_add(w, &t, &err), err);
        ds_trial_data_free(&t);
        if (!force)
            assert_int_equal(file_bytes(path), -1);
        assert_ok(ds_writer_close(w, &err), err);
        assert_int_equal(file_bytes(where), -1);
        assert_int_equal(read_everything(path, 5, 4).good, 1);
    }
    /* Taken meanwhile by someone else: both survive, and the message says where. */
    ds_place_distrust = 1;
    unlink(path);
    assert_ok(ds_writer_create(path, 0, &h, &w, &local, &err), err);
    ds_place_distrust = 0;
    snprintf(where, sizeof where, "%s", ds_writer_path(w));
    file_write(path, "other", 5);
    assert_int_equal(ds_writer_close(w, &err), -1);
    assert_non_null(strstr(err.hint, where));
    assert_int_equal(file_bytes(path), 5);
    assert_int_equal(read_everything(where, 5, 4).opened, 1);
    unlink(where);
    unlink(path);
    /* Across file systems, where a second one is at hand. */
    const char *tmp = getenv("TMPDIR");
    char *old = tmp ? strdup(tmp) : NULL;
    if (access("/dev/shm", W_OK) == 0) {
        setenv("TMPDIR", "/dev/shm", 1);
        ds_place_distrust = 1;
        assert_ok(ds_writer_create(path, 0, &h, &w, &local, &err), err);
        ds_place_distrust = 0;
        assert_ok(ds_writer_close(w, &err), err);
        assert_int_equal(read_everything(path, 5, 4).opened, 1);
        unlink(path);
        if (old)
            setenv("TMPDIR", old, 1);
        else
            unsetenv("TMPDIR");
    }
    free(old);
    ds_header_free(&h);
}

static void make_file(const char *path, const char *tail, time_t age)
{
    char name[512];
    const struct timespec when[2] = {{.tv_sec = time(NULL) - age}, {.tv_sec = time(NULL) - age}};
    snprintf(name, sizeof name, "%s%s", path, tail);
    file_write(name, "left", 4);
    assert_int_equal(utimensat(AT_FDCWD, name, when, 0), 0);
}

static int is_there(const char *path, const char *tail)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s", path, tail);
    int there = access(name, F_OK) == 0;
    unlink(name);
    return there;
}

/* What a writer left that was killed while it made its record goes with the next record of that name; what
 * may be at work, is young, or is of another name stays. */
static void test_left_overs_of_killed_writers(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w;
    const char *path = fixture_path("left.h5");
    char gone[64], mine[64], other[64], longer[64];
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child); /* so its number is nobody's */
    snprintf(gone, sizeof gone, ".new-%ld-0", (long)child);
    snprintf(other, sizeof other, "x.new-%ld-0", (long)child);
    snprintf(longer, sizeof longer, ".new-%ld-0.h5", (long)child);
    snprintf(mine, sizeof mine, ".new-%ld-7", (long)getpid());
    fixture_header(8, &h);
    for (int young = 0; young < 2; young++) {
        make_file(path, gone, young ? 0 : 3600);
        make_file(path, other, 3600);
        make_file(path, longer, 3600);
        make_file(path, mine, 3600);
        make_file(path, ".new-text-1", 3600);
        assert_ok(ds_writer_create(path, 0, &h, &w, NULL, &err), err);
        assert_ok(ds_writer_close(w, &err), err);
        assert_int_equal(is_there(path, gone), young);
        assert_true(is_there(path, other));
        assert_true(is_there(path, longer));
        assert_true(is_there(path, mine));
        assert_true(is_there(path, ".new-text-1"));
        unlink(path);
    }
    ds_header_free(&h);
}

/* With the library's file locks forced on, readers still follow and nothing is refused. */
static void test_file_locks_do_not_matter(void **state)
{
    (void)state;
    const char *path = fixture_path("locks.h5");
    int up[2], down[2];
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct ds_error err;
        struct ds_header h;
        struct ds_writer *w;
        close(up[0]);
        close(down[1]);
        setenv("HDF5_USE_FILE_LOCKING", "TRUE", 1);
        fixture_header(41, &h);
        if (ds_writer_create(path, 0, &h, &w, NULL, &err) != 0)
            _exit(1);
        /* Left open for the parent to read; it ends when the pipe does. */
        char c;
        _exit(write(up[1], "c", 1) != 1 || read(down[0], &c, 1) != 0 ||
              ds_writer_close(w, &err) != 0);
    }
    char c;
    int status;
    close(up[1]);
    close(down[0]);
    assert_int_equal(read(up[0], &c, 1), 1);
    assert_int_equal(read_everything(path, 41, 6).opened, 1);
    close(down[1]);
    close(up[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read_everything(path, 41, 6).opened, 1);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_existing_files_are_safe),
        cmocka_unit_test(test_two_writers_of_one_name),
        cmocka_unit_test(test_local_record_is_moved_at_close),
        cmocka_unit_test(test_left_overs_of_killed_writers),
        cmocka_unit_test(test_file_locks_do_not_matter),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
