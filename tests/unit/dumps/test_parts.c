/* test_parts.c: work that several processes do: all of it is done, whatever becomes of them; and rows held against a tolerance
 * by one process or several, in bulk or one by one, have one answer. */
#include "tests/unit/dumps/record_fixture.h"
#include "tests/unit/dumps/synthetic_sweep.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "dumps/diff.h"
#include "dumps/parts.h"

#include <signal.h>

/* ---- processes ------------------------------------------------------------------------------- */

struct shared {
    int done[4];
    int dies; /* this part does, if it is not the caller's own; -1: none */
    pid_t caller;
};

static void mark(void *ctx, int part, int parts)
{
    struct shared *s = ctx;
    if (part == s->dies && getpid() != s->caller)
        raise(SIGKILL);
    s->done[part] = parts + (getpid() == s->caller ? 10 : 0);
}

static void test_all_parts_are_done(void **state)
{
    (void)state;
    for (int parts = 1; parts <= 4; parts++)
        for (int dies = -1; dies < parts; dies++) {
            struct shared *s = ds_parts_memory(sizeof *s);
            assert_non_null(s);
            s->dies = dies;
            s->caller = getpid();
            ds_parts_run(mark, s, parts);
            assert_int_equal(s->done[0], parts + 10); /* the first is done here */
            for (int i = 1; i < 4; i++)
                assert_int_equal(s->done[i], i < parts && i != dies ? parts : 0);
            ds_parts_release(s, sizeof *s);
        }
    assert_int_equal(ds_parts_worth(1), 1);
    ds_parts_set(3);
    assert_int_equal(ds_parts_worth(1), 3);
    ds_parts_set(0);
}

/* ---- tolerances ------------------------------------------------------------------------------ */

enum { N = 40 };

/* A record of two repeats whose k_proj rows are dumped; those of B have up to 6 units of the last place more. */
static void write_side(const char *path, int side)
{
    struct sweep s;
    struct ds_error err;
    struct ds_writer *w;
    sweep_init(&s, "batch", 3);
    sweep_arm(&s, "1");
    sweep_run(&s, 2);
    for (size_t t = 0; t < s.n_trials; t++) {
        struct ds_trial_data *d = &s.trials[t];
        size_t n = 0;
        d->blobs = calloc(d->n_captures * 64, sizeof *d->blobs);
        for (size_t c = 0; c < d->n_captures; c++) {
            const struct ds_site *site = &s.header.sites[d->captures[c].site];
            for (uint32_t j = 0; strcmp(site->stage, "k_proj") == 0 && j < d->captures[c].rows;
                 j++) {
                const int32_t at = d->rows[d->captures[c].first_row + j].position;
                float *x = malloc(N * sizeof *x);
                for (int i = 0; i < N; i++)
                    x[i] = ds_f32_from_bits(
                        ds_f32_bits((float)(i + 1 + 64 * at + 1000 * site->layer)) +
                        (side && i == 7 ? (uint32_t)(at % 7) : 0));
                const uint64_t digest = XXH3_64bits(x, N * sizeof *x);
                d->digests[d->captures[c].first_digest + j] = digest;
                d->blobs[n++] = (struct ds_blob){
                    .digest = digest, .dtype = "f32", .elements = N, .bytes = 4 * N, .data = x};
            }
        }
        d->n_blobs = n;
    }
    assert_ok(ds_writer_create(path, 1, &s.header, &w, NULL, &err), err);
    for (size_t i = 0; i < s.n_trials; i++)
        assert_ok(ds_writer_add(w, &s.trials[i], &err), err);
    assert_ok(ds_writer_close(w, &err), err);
    sweep_free(&s);
}

/* One bit in two rows of layer 1: their digests are not theirs any more. */
static void bend(const char *path)
{
    size_t n;
    char *bytes = file_read(path, &n);
    for (int32_t at = 1; at < 5; at += 3) {
        float x[6];
        for (int i = 0; i < 6; i++)
            x[i] = (float)(i + 1 + 64 * at + 1000);
        char *found = memmem(bytes, n, x, sizeof x);
        assert_non_null(found);
        found[2] ^= 1;
    }
    file_write(path, bytes, n);
    free(bytes);
}

static int get(void *ctx, int side, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    return ds_record_blob(((struct ds_record **)ctx)[side], digest, out, err);
}

static void locate(void *ctx, int side, uint64_t digest, struct ds_raw_row *out)
{
    ds_record_locate(((struct ds_record **)ctx)[side], digest, out);
}

static void fetch(void *ctx, int side, struct ds_raw_row *rows, size_t n, void *room)
{
    ds_record_fetch(((struct ds_record **)ctx)[side], rows, n, room);
}

static void believe(void *ctx, int side, const struct ds_raw_row *row)
{
    ds_record_believe(((struct ds_record **)ctx)[side], row);
}

/* All that is told of a comparison, as text; of the reading, how many rows of both were not held. */
static void compare(const char *a, const char *b, uint64_t bulk, uint64_t ulp, char *out,
                    size_t size)
{
    struct ds_error err = {{0}, {0}};
    struct ds_record *r[2];
    struct ds_source s[2];
    struct ds_diff d;
    uint64_t rows[2], bytes[2];
    const char *const only = "stages=k_proj";
    assert_ok(ds_record_open(a, &r[0], &err), err);
    assert_ok(ds_record_open(b, &r[1], &err), err);
    struct ds_diff_options o = {.blob = get,
                                .locate = bulk ? locate : NULL,
                                .fetch = fetch,
                                .believe = believe,
                                .bulk_bytes = bulk,
                                .ctx = r,
                                .only = &only,
                                .n_only = 1,
                                .tolerance = {.ulp = ulp}};
    for (int i = 0; i < 2; i++)
        ds_source_record(&s[i], r[i]);
    assert_ok(ds_diff_make(&s[0], &s[1], &o, &d, &err), err);
    for (int i = 0; i < 2; i++)
        ds_record_unread(r[i], &rows[i], &bytes[i]);
    size_t n = (size_t)snprintf(out, size, "%d: %llu %llu %llu, unread %llu %llu %llu %llu;",
                                d.verdict.result, (unsigned long long)d.excused,
                                (unsigned long long)d.exceeding, (unsigned long long)d.not_dumped,
                                (unsigned long long)rows[0], (unsigned long long)rows[1],
                                (unsigned long long)bytes[0], (unsigned long long)bytes[1]);
    for (size_t i = 0; i < d.n_items && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, " %s %s", ds_diff_kind_name(d.items[i].kind),
                              d.items[i].name);
    const struct ds_trial_data *t = ds_analysis_trial(d.analysis, 1); /* sizes of what differs */
    for (size_t i = 0; i < t->n_drifts && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, " %u:%u %u %.9g", t->drifts[i].site,
                              t->drifts[i].row, t->drifts[i].elements, t->drifts[i].diff_sq);
    assert_true(n < size);
    ds_diff_free(&d);
    ds_record_close(r[1]);
    ds_record_close(r[0]);
}

static void test_one_answer_however_rows_are_read(void **state)
{
    (void)state;
    static const uint64_t room[] = {0, 1, 4 * N, 3 * 4 * N + 5, 1 << 16};
    static char want[1 << 16], got[1 << 16];
    char a[256], b[256];
    snprintf(a, sizeof a, "%s", fixture_path("a.h5"));
    snprintf(b, sizeof b, "%s", fixture_path("b.h5"));
    write_side(a, 0);
    write_side(b, 1);
    for (int k = 0; k < 4; k++) {
        const int bent = k / 2;
        const uint64_t ulp = k % 2 ? 4 : 0;
        ds_parts_set(1);
        compare(a, b, 0, ulp, want, sizeof want);
        print_message("%.200s\n", want);
        for (size_t i = 0; i < sizeof room / sizeof *room; i++)
            for (int parts = 1; parts <= 4; parts++) {
                ds_parts_set(parts);
                compare(a, b, room[i], ulp, got, sizeof got);
                assert_string_equal(got, want);
            }
        if (ulp) /* the damaged row is one of a repeat, whose sizes nobody asks for */
            assert_true((strstr(want, " damage layer 1 k_proj") != NULL) == bent);
        if (k == 1)
            bend(b);
    }
    ds_parts_set(0);
    unlink(a);
    unlink(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_parts_are_done),
        cmocka_unit_test(test_one_answer_however_rows_are_read),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
