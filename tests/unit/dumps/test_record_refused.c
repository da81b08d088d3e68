/* test_record_refused.c: what a record does not take: structures and trials that contradict themselves; and
 * want of memory while it is written and read. */
#include "tests/unit/dumps/record_fixture.h"

#include "base/mem.h"
#include "dumps/record_layout.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_impossible_structures_are_refused),
        cmocka_unit_test(test_refused_trials_leave_the_record_usable),
        cmocka_unit_test(test_want_of_memory_while_writing),
        cmocka_unit_test(test_want_of_memory_while_reading),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
