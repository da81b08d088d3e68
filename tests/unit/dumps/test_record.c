/* test_record.c: what is written is read again; names, places, sharing, copying, want of memory. */
#include "tests/unit/dumps/record_fixture.h"

#include "base/mem.h"
#include "dumps/record_layout.h"
#include "dumps/record_place.h"

#include <sys/wait.h>
#include <time.h>

/* Every byte of the structs of record.h is some field's: one added there and forgotten in the
 * layout fails here. */
static void test_layout_covers_every_byte(void **state)
{
    (void)state;
    static const struct {
        int table;
        size_t padding; /* holes that the compiler leaves */
    } cases[] = {
        {DS_TABLE_CALLS, 0},     {DS_TABLE_ROWS, 0},  {DS_TABLE_CAPTURES, 0}, {DS_TABLE_DRIFT, 0},
        {DS_TABLE_NONFINITE, 0}, {DS_TABLE_STEPS, 0}, {DS_TABLE_LAUNCHES, 0}, {DS_TABLE_WEIGHTS, 0},
        {DS_TABLE_SITES, 0},     {DS_TABLE_EDGES, 0}, {DS_TABLE_RANGES, 0},   {DS_TABLE_PACKED, 0},
        {DS_TABLE_FAILURES, 0},  {DS_TABLE_MASKS, 0}, {DS_TABLE_TRIALS, 4},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const struct ds_table *t = ds_table(cases[c].table);
        unsigned char covered[1024] = {0};
        size_t holes = 0;
        assert_true(t->struct_bytes <= sizeof covered);
        for (size_t i = 0; i < t->n_fields; i++)
            for (size_t k = 0; k < t->fields[i].bytes; k++)
                assert_int_equal(covered[t->fields[i].offset + k]++, 0);
        for (size_t k = 0; k < t->struct_bytes; k++)
            holes += !covered[k];
        if (holes != cases[c].padding)
            fail_msg("%s: %zu bytes in no field", t->name, holes);
    }
}

static void test_everything_comes_back(void **state)
{
    (void)state;
    const char *path = fixture_path("r.h5");
    for (uint64_t seed = 1; seed <= 6; seed++) {
        uint32_t scale = seed == 6 ? 900 : 6;
        fixture_record(path, seed, 7, scale);
        struct reading got = read_everything(path, seed, scale);
        assert_int_equal(got.opened, 1);
        assert_int_equal(got.good, 7);
        assert_int_equal(got.bad + got.incomplete + got.damaged, 0);
        assert_int_equal(unlink(path), 0);
    }
}

/* A record with as little as possible: no trials, no sites, one arm of no factors; and a trial of
 * nothing. */
static void test_empty_record(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w;
    struct ds_record *r;
    const char *path = fixture_path("empty.h5");
    memset(&h, 0, sizeof h);
    h.n_arms = 1;
    struct ds_arm arm = {NULL};
    h.arms = &arm;
    assert_ok(ds_writer_create(path, 0, &h, &w, NULL, &err), err);
    assert_ok(ds_writer_close(w, &err), err);
    assert_ok(ds_record_open(path, &r, &err), err);
    assert_int_equal(ds_record_trial_count(r), 0);
    assert_string_equal(ds_record_header(r)->command, "");
    ds_record_close(r);
    struct ds_trial_data t;
    memset(&t, 0, sizeof t);
    assert_ok(ds_writer_create(path, 1, &h, &w, NULL, &err), err);
    assert_ok(ds_writer_add(w, &t, &err), err);
    assert_ok(ds_writer_close(w, &err), err);
    assert_ok(ds_record_open(path, &r, &err), err);
    assert_int_equal(ds_record_trial_count(r), 1);
    assert_non_null(ds_record_load(r, 0, &err));
    assert_int_equal(ds_record_load(r, 0, &err)->n_digests, 0);
    assert_null(ds_record_load(r, 1, &err));
    struct ds_blob blob;
    assert_int_equal(ds_record_blob(r, 1, &blob, &err), 0);
    ds_record_close(r);
    unlink(path);
}

static void test_equal_trials_cost_little(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w;
    struct ds_trial_data t;
    const char *path = fixture_path("dedupe.h5");
    fixture_header(3, &h);
    fixture_trial(3, 0, 400, &t);
    assert_ok(ds_writer_create(path, 0, &h, &w, NULL, &err), err);
    long before = 0, first = 0, each = 0;
    for (int i = 0; i < 21; i++) {
        t.info.repeat = (uint32_t)i;
        t.info.wall_s += 0.5;
        assert_ok(ds_writer_add(w, &t, &err), err);
        if (i == 0)
            first = before = file_bytes(path);
    }
    assert_ok(ds_writer_close(w, &err), err);
    each = (file_bytes(path) - before) / 20;
    print_message("first trial and header %ld bytes, each equal one %ld bytes\n", first, each);
    assert_true(first > 50000);
    assert_true(each <= 1024);
    struct ds_record *r;
    assert_ok(ds_record_open(path, &r, &err), err);
    assert_int_equal(ds_record_trial_count(r), 21);
    const struct ds_trial_data *zero = ds_record_load(r, 0, &err),
                               *last = ds_record_load(r, 20, &err);
    assert_non_null(zero);
    assert_non_null(last);
    assert_true(zero->digests == last->digests); /* held once, too */
    assert_int_equal(last->info.repeat, 20);
    ds_record_close(r);
    ds_trial_data_free(&t);
    ds_header_free(&h);
    unlink(path);
}

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

/* A header that contradicts itself would give a verdict over fewer comparisons than it seems. */
static void test_impossible_structures_are_refused(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w;
    const char *path = fixture_path("structure.h5");
    fixture_header(8, &h);
#define REFUSED(member, value, text)                                                               \
    do {                                                                                           \
        __typeof__(h.member) old_ = h.member;                                                      \
        h.member = (value);                                                                        \
        err.msg[0] = '\0';                                                                         \
        assert_int_equal(ds_writer_create(path, 0, &h, &w, NULL, &err), -1);                       \
        if (!strstr(err.msg, text))                                                                \
            fail_msg("%s: %s", #member, err.msg);                                                  \
        h.member = old_;                                                                           \
        assert_int_equal(access(path, F_OK), -1);                                                  \
    } while (0)
    REFUSED(sites[2].layer, -2, "of layer -2");
    REFUSED(sites[2].layer, h.n_layers + 1, "of layer");
    REFUSED(sites[2], h.sites[1], "is there twice");
    REFUSED(edges[1].from, h.edges[1].to, "edge 1");
    REFUSED(edges[1].to, FIXTURE_SITES, "edge 1");
    REFUSED(edges[1].kind, 3, "edge 1");
    REFUSED(edges[1], h.edges[0], "is there twice");
    /* Edges cost time, each once a row: no file may have more of them than its sites can ask for. */
    enum { MANY = 1000000 };
    struct ds_edge *few = h.edges, *many = malloc(MANY * sizeof *many);
    const size_t n_few = h.n_edges;
    for (size_t i = 0; many && i < MANY; i++)
        many[i] = few[0];
    assert_non_null(many);
    h.edges = many;
    REFUSED(n_edges, MANY, "edges: 1000000 between");
    h.edges = few;
    h.n_edges = n_few;
    free(many);
#undef REFUSED
    ds_header_free(&h);
}

static void test_refused_trials_leave_the_record_usable(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_header h;
    struct ds_writer *w;
    struct ds_trial_data t;
    const char *path = fixture_path("refuse.h5");
    fixture_header(8, &h);
    uint32_t n = 0;
    for (fixture_trial(8, n, 5, &t); t.n_blobs < 2 || !t.n_drifts || !t.n_nonfinites ||
                                     !t.n_steps || !t.n_packed || t.n_masks < 2 ||
                                     t.info.healed_to || t.masks[0].width % 64 == 0 ||
                                     t.masks[0].planes != 2;) {
        ds_trial_data_free(&t);
        fixture_trial(8, ++n, 5, &t);
    }
    assert_ok(ds_writer_create(path, 0, &h, &w, NULL, &err), err);
#define REFUSED(member, value, text)                                                               \
    do {                                                                                           \
        __typeof__(t.member) old_ = t.member;                                                      \
        t.member = (value);                                                                        \
        err.msg[0] = '\0';                                                                         \
        assert_int_equal(ds_writer_add(w, &t, &err), -1);                                          \
        if (!strstr(err.msg, text))                                                                \
            fail_msg("%s: %s", #member, err.msg);                                                  \
        t.member = old_;                                                                           \
    } while (0)
    REFUSED(info.arm, FIXTURE_ARMS, "arm");
    REFUSED(info.pass, 3, "pass");
    REFUSED(calls[1].index, 0, "call 1");
    REFUSED(calls[1].phase, 2, "phase");
    REFUSED(calls[1].first_row, UINT32_MAX, "call 1");
    REFUSED(calls[3].rows, 100000, "call 3");
    REFUSED(rows[0].call, FIXTURE_CALLS, "row 0");
    REFUSED(rows[0].call, 2, "row 0");
    REFUSED(rows[0].kind, 3, "row 0");
    REFUSED(captures[2].call, FIXTURE_CALLS, "capture 2");
    REFUSED(captures[2].site, FIXTURE_SITES, "capture 2");
    REFUSED(captures[2].launch, (uint32_t)t.n_launches, "capture 2");
    REFUSED(captures[2].first_row, (uint32_t)t.n_rows, "capture 2");
    REFUSED(captures[2].rows, t.captures[2].rows + 1, "capture");
    REFUSED(captures[2].first_digest, UINT64_MAX, "capture 2");
    REFUSED(captures[2].first_digest, t.n_digests, "capture 2");
    REFUSED(n_digests, t.n_digests - 1, "capture");
    REFUSED(drifts[0].site, FIXTURE_SITES, "drift 0");
    REFUSED(drifts[0].row, (uint32_t)t.n_rows, "drift 0");
    REFUSED(drifts[0].ref_arm, FIXTURE_ARMS, "drift 0");
    REFUSED(nonfinites[0].site, FIXTURE_SITES, "non-finite row 0");
    REFUSED(nonfinites[0].row, (uint32_t)t.n_rows, "non-finite row 0");
    REFUSED(blobs[0].elements, t.blobs[0].elements + 1, "dumped row 0");
    REFUSED(blobs[0].dtype[0], 'q', "dumped row 0");
    REFUSED(blobs[1].digest, 1, "dumped row 1");
    REFUSED(masks[0].site, FIXTURE_SITES, "mask 0");
    REFUSED(masks[0].ref_arm, FIXTURE_ARMS, "mask 0");
    REFUSED(masks[0].phase, 2, "mask 0");
    REFUSED(masks[0].rows, (uint32_t)t.n_rows + 1, "mask 0");
    REFUSED(masks[0].planes, 0, "mask 0");
    REFUSED(masks[0].planes, 3, "mask 0");
    REFUSED(masks[0].planes, UINT32_MAX, "mask 0");
    REFUSED(masks[0].width, UINT32_MAX, "mask 0");
    REFUSED(masks[0].first, UINT64_MAX, "mask 0");
    REFUSED(masks[0].first, t.n_mask_words, "mask 0");
    REFUSED(n_mask_words, t.n_mask_words - 1, "mask");
    const size_t last = ds_mask_words(t.masks[0].width) - 1; /* of its first plane */
    REFUSED(mask_words[last], t.mask_words[last] | (uint64_t)1 << 63, "no element's");
    REFUSED(mask_words[2 * last + 1], ~t.mask_words[last], "mask 0");
    REFUSED(mask_words, NULL, "mask words");
    REFUSED(steps, NULL, "steps");
    REFUSED(packed, NULL, "packed weights");
    REFUSED(packed[0].weight, (uint32_t)h.n_weights, "packed weight 0");
    assert_ok(ds_writer_add(w, &t, &err), err);
    assert_ok(ds_writer_close(w, &err), err);
    assert_int_equal(read_everything(path, 8, 5).good, 1);
    ds_trial_data_free(&t);
    ds_header_free(&h);
    unlink(path);
}

/* A run digest by hand: two sites, rows spread over two calls and out of order. */
static void test_run_digest_follows_row_keys(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_header h;
    memset(&h, 0, sizeof h);
    h.n_sites = 3;
    struct ds_call calls[] = {{0, 0, 3, 1, 0, 3}, {1, 1, 2, 1, 3, 2}};
    struct ds_row rows[] = {{0, 0, 5, 0, 0, 0, 0, 1, 1},
                            {0, 0, 4, 0, 0, 1, 0, 1, 1},
                            {0, 1, 0, 0, 0, 2, 0, 1, 1},
                            {1, 0, 4, 1, 1, 0, 1, 1, 1},
                            {1, -1, 9, 0, 1, 1, 1, 1, 1}};
    struct ds_launch launch;
    memset(&launch, 0, sizeof launch);
    /* Site 1 has nothing; site 2 comes before site 0 in call 1. */
    struct ds_capture captures[] = {
        {0, 0, 0, 0, 3, 8, 0}, {1, 2, 0, 4, 1, 8, 3}, {1, 0, 0, 3, 2, 8, 4}};
    uint64_t digests[] = {50, 40, 100, 900, 41, 9};
    struct ds_trial_data t = {.calls = calls,
                              .n_calls = 2,
                              .rows = rows,
                              .n_rows = 5,
                              .launches = &launch,
                              .n_launches = 1,
                              .captures = captures,
                              .n_captures = 3,
                              .digests = digests,
                              .n_digests = 6};
    /* Keys (-1,9) (0,4,0) (0,4,1) (0,5) (1,0). */
    uint64_t site0[] = {9, 40, 41, 50, 100}, site2[] = {900};
    uint64_t tensors[] = {XXH3_64bits(site0, sizeof site0), XXH3_64bits(site2, sizeof site2)},
             got = 0;
    assert_ok(ds_trial_run_digest(&h, &t, &got, &err), err);
    assert_true(got == XXH3_64bits(tensors, sizeof tensors));
    for (long n = 1; n <= 5; n++) {
        ds_mem_fail_at(n);
        assert_int_equal(ds_trial_run_digest(&h, &t, &got, &err), -1);
        ds_mem_fail_at(0);
    }
}

static void test_copy_keeps_complete_trials(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_record *r;
    struct ds_writer *w;
    struct ds_trial_data t;
    const char *from = fixture_path("from.h5"), *to = fixture_path("to.h5");
    fixture_record(from, 21, 9, 6);
    assert_ok(ds_record_open(from, &r, &err), err);
    assert_int_equal(ds_record_copy(r, from, &w, &err), -1);
    assert_ok(ds_record_copy(r, to, &w, &err), err);
    ds_record_close(r);
    fixture_trial(21, 9, 6, &t);
    assert_ok(ds_writer_add(w, &t, &err), err);
    ds_trial_data_free(&t);
    assert_ok(ds_writer_close(w, &err), err);
    struct reading got = read_everything(to, 21, 6);
    assert_int_equal(got.good, 10);
    assert_int_equal(got.bad + got.incomplete + got.damaged, 0);
    unlink(from);
    unlink(to);
}

/* `diff A A`: one file opened twice; closing one leaves the other at work. */
static void test_a_record_opens_twice(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_record *a, *b;
    const char *path = fixture_path("twice.h5");
    fixture_record(path, 40, 3, 6);
    assert_ok(ds_record_open(path, &a, &err), err);
    assert_ok(ds_record_open(path, &b, &err), err);
    assert_non_null(ds_record_load(a, 0, &err));
    ds_record_close(a);
    for (size_t i = 0; i < 3; i++)
        assert_non_null(ds_record_load(b, i, &err));
    ds_record_close(b);
    unlink(path);
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

/* Whichever allocation fails while writing: an error, no half-made file, and what was complete
 * stays readable. */
static void test_want_of_memory_while_writing(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_header h;
    struct ds_trial_data t[2];
    const char *path = fixture_path("memory.h5");
    fixture_header(30, &h);
    fixture_trial(30, 0, 4, &t[0]);
    fixture_trial(30, 1, 4, &t[1]);
    long n = 1, failures = 0;
    for (int done = 0; !done; n++) {
        struct ds_writer *w = NULL;
        size_t written = 0;
        ds_mem_fail_at(n);
        int rc = ds_writer_create(path, 0, &h, &w, NULL, &err);
        for (int i = 0; rc == 0 && i < 2; i++) {
            rc = ds_writer_add(w, &t[i], &err);
            written += rc == 0;
        }
        ds_mem_fail_at(0);
        failures += rc != 0;
        done = rc == 0;
        if (rc != 0)
            assert_non_null(strstr(err.msg, "out of memory"));
        if (!w) {
            assert_int_equal(file_bytes(path), -1);
            continue;
        }
        if (rc != 0)
            assert_int_equal(ds_writer_add(w, &t[1], &err), -1);
        assert_ok(ds_writer_close(w, &err), err);
        struct reading got = read_everything(path, 30, 4);
        assert_int_equal(got.good, written);
        assert_int_equal(got.bad + got.damaged, 0);
        unlink(path);
    }
    assert_true(failures > 20);
    ds_trial_data_free(&t[0]);
    ds_trial_data_free(&t[1]);
    ds_header_free(&h);
}

/* ... and while reading: an error, never a trial that counts as damaged. */
static void test_want_of_memory_while_reading(void **state)
{
    (void)state;
    struct ds_error err;
    const char *path = fixture_path("memory.h5"), *copy = fixture_path("copy.h5");
    struct ds_trial_data t;
    fixture_record(path, 31, 2, 4);
    fixture_trial(31, 1, 4, &t);
    long n = 1, failures = 0;
    for (int done = 0; !done; n++) {
        struct ds_record *r = NULL;
        struct ds_writer *w = NULL;
        ds_mem_fail_at(n);
        int rc = ds_record_open(path, &r, &err);
        for (size_t i = 0; rc == 0 && i < 2; i++)
            rc = ds_record_load(r, i, &err) ? 0 : -1;
        for (size_t k = 0; rc == 0 && k < t.n_blobs; k++) {
            struct ds_blob blob;
            rc = ds_record_blob(r, t.blobs[k].digest, &blob, &err) == 1 ? 0 : -1;
            if (rc == 0)
                free(blob.data);
        }
        if (rc == 0)
            rc = ds_record_copy(r, copy, &w, &err);
        ds_mem_fail_at(0);
        failures += rc != 0;
        done = rc == 0;
        if (rc != 0)
            assert_non_null(strstr(err.msg, "out of memory"));
        if (r) {
            assert_int_equal(ds_record_damaged(r), 0);
            assert_int_equal(ds_record_trial_count(r), 2);
        }
        if (w)
            assert_ok(ds_writer_close(w, &err), err);
        assert_int_equal(file_bytes(copy) > 0, rc == 0);
        ds_record_close(r);
    }
    assert_true(failures > 40);
    ds_trial_data_free(&t);
    unlink(copy);
    unlink(path);
}

/* The record reads with h5py alone, and its dumped rows have their digests by xxhsum:
 * tests/tools/check_record.py. */
static void test_h5py_reads_it(void **state)
{
    (void)state;
    const char *python = getenv("DRIFTSCOPE_PYTHON");
    char command[1024];
    python = python && *python ? python : "python3";
    snprintf(command, sizeof command, "'%s' -c 'import h5py, numpy' >/dev/null 2>&1", python);
    if (system(command) != 0 || system("command -v xxhsum >/dev/null 2>&1") != 0) {
        print_message("no python with h5py, or no xxhsum: skipped\n");
        skip();
    }
    const char *path = fixture_path("h5py.h5");
    fixture_record(path, 77, 8, 6);
    snprintf(command, sizeof command, "'%s' tests/tools/check_record.py '%s' >/dev/null", python,
             path);
    assert_int_equal(system(command), 0);
    /* One changed byte of a dumped row is seen by it, so that it does check. */
    size_t n;
    char *bytes = file_read(path, &n);
    struct ds_trial_data t;
    fixture_trial(77, 0, 6, &t);
    char *hit = NULL;
    for (size_t k = 0; !hit && k < t.n_blobs; k++)
        if (t.blobs[k].bytes > 8)
            hit = memmem(bytes, n, t.blobs[k].data, t.blobs[k].bytes);
    assert_non_null(hit);
    hit[3] ^= 4;
    file_write(path, bytes, n);
    snprintf(command, sizeof command, "'%s' tests/tools/check_record.py '%s' >/dev/null 2>&1",
             python, path);
    assert_int_not_equal(system(command), 0);
    free(bytes);
    ds_trial_data_free(&t);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_covers_every_byte),
        cmocka_unit_test(test_everything_comes_back),
        cmocka_unit_test(test_empty_record),
        cmocka_unit_test(test_equal_trials_cost_little),
        cmocka_unit_test(test_existing_files_are_safe),
        cmocka_unit_test(test_two_writers_of_one_name),
        cmocka_unit_test(test_local_record_is_moved_at_close),
        cmocka_unit_test(test_left_overs_of_killed_writers),
        cmocka_unit_test(test_impossible_structures_are_refused),
        cmocka_unit_test(test_refused_trials_leave_the_record_usable),
        cmocka_unit_test(test_run_digest_follows_row_keys),
        cmocka_unit_test(test_copy_keeps_complete_trials),
        cmocka_unit_test(test_a_record_opens_twice),
        cmocka_unit_test(test_file_locks_do_not_matter),
        cmocka_unit_test(test_want_of_memory_while_writing),
        cmocka_unit_test(test_want_of_memory_while_reading),
        cmocka_unit_test(test_h5py_reads_it),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
