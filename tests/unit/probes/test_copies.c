/* Copies between devices: an arm that makes none has no rows there, and those of what would have been
 * copied stand for them: compared with, sized, dumped, healed to. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "probes/driftscope_probe.h"

#include <string.h>

enum { RESID = 0, UNROUNDED, SRC, DST, NORM, SITES, WIDTH = 16, ROWS = 3 };

static const struct ds_site sites[SITES] = {
    {.stage = "resid_ffn", .op = "add", .dtype = "f32", .width = WIDTH},
    {.stage = "resid_ffn", .part = "unrounded", .op = "add", .dtype = "f32", .width = WIDTH},
    {.layer = 1,
     .stage = "transfer",
     .part = "src",
     .op = "custom",
     .dtype = "f32",
     .width = WIDTH},
    {.layer = 1,
     .stage = "transfer",
     .part = "dst",
     .op = "transfer",
     .dtype = "f32",
     .width = WIDTH},
    {.layer = 1, .stage = "attn_norm", .op = "rmsnorm", .dtype = "f32", .width = WIDTH},
};
static const struct ds_edge edges[] = {
    {RESID, UNROUNDED, DS_EDGE_ROW}, {UNROUNDED, SRC, DS_EDGE_ROW}, {RESID, SRC, DS_EDGE_ROW},
    {SRC, DST, DS_EDGE_ROW},         {DST, NORM, DS_EDGE_ROW},      {RESID, NORM, DS_EDGE_ROW}};
static const uint32_t arm0;

static struct ds_hold *make_hold(void)
{
    static const uint32_t rows[SITES] = {ROWS, ROWS, ROWS, ROWS, ROWS};
    struct ds_hold_config c = {.sites = sites,
                               .n_sites = SITES,
                               .site_rows = rows,
                               .arms = &arm0,
                               .n_arms = 1,
                               .budget = 1 << 20};
    struct ds_hold *h;
    struct ds_error err;
    assert_ok(ds_hold_new(&c, &h, &err), err);
    return h;
}

static struct ds_probe *make_probe(struct ds_hold *h, const uint8_t *on)
{
    struct ds_probe_config c = {.sites = sites,
                                .n_sites = SITES,
                                .edges = edges,
                                .n_edges = sizeof edges / sizeof *edges,
                                .site_on = on,
                                .dump = DS_DUMP_ORIGINS,
                                .dump_rows = 8,
                                .hold = h};
    struct ds_probe *p;
    struct ds_error err;
    assert_ok(ds_probe_new(&c, &p, &err), err);
    return p;
}

/* The value of element i of row r everywhere; the other sites have their own. */
static void fill(float *x, uint32_t site, uint32_t r)
{
    for (uint32_t i = 0; i < WIDTH; i++)
        x[r * WIDTH + i] = (float)(r * 10 + i) + (site == UNROUNDED ? 0.25f : site == NORM ? 5 : 0);
}

/* One call. split: with the copies, of which row 1 does not arrive. */
static void trial(struct ds_probe *p, uint32_t arm, uint32_t pass, int split,
                  float got[SITES][ROWS * WIDTH], struct ds_trial_data *out)
{
    struct ds_error err;
    struct ds_row rows[ROWS];
    const struct ds_trial info = {.arm = arm, .pass = pass};
    for (int r = 0; r < ROWS; r++)
        rows[r] = (struct ds_row){.position = r, .slot = r, .q_len = ROWS, .kv_len = r + 1};
    assert_ok(ds_probe_begin_trial(p, &info, arm ? &arm0 : NULL, arm ? 1 : 0, &err), err);
    assert_ok(ds_probe_begin_call(p, DS_PHASE_PREFILL, ROWS, 1, rows, ROWS, &err), err);
    for (uint32_t s = 0; s < SITES; s++) {
        if (!split && (s == SRC || s == DST))
            continue;
        for (uint32_t r = 0; r < ROWS; r++)
            fill(got[s], s, r);
        if (s == DST)
            memset(got[s] + WIDTH, 0, WIDTH * sizeof(float));
        assert_ok(ds_probe_site(p, s, NULL, got[s], WIDTH * sizeof(float), WIDTH, NULL, 0, &err),
                  err);
    }
    assert_ok(ds_probe_end_call(p, &err), err);
    assert_ok(ds_probe_end_trial(p, out, &err), err);
}

static int has_blob(const struct ds_trial_data *t, uint64_t digest)
{
    for (size_t i = 0; i < t->n_blobs; i++)
        if (t->blobs[i].digest == digest)
            return 1;
    return 0;
}

static void test_rows_of_what_is_copied_stand_for_a_copy_that_is_not_made(void **state)
{
    static float got[SITES][ROWS * WIDTH];
    float want[ROWS * WIDTH];
    (void)state;
    for (uint32_t pass = DS_PASS_NATURAL; pass <= DS_PASS_HEAL; pass++) {
        struct ds_hold *h = make_hold();
        struct ds_probe *p = make_probe(h, NULL);
        struct ds_trial_data t;
        trial(p, 0, DS_PASS_NATURAL, 0, got, &t);
        ds_trial_data_free(&t);
        trial(p, 1, pass, 1, got, &t);
        assert_int_equal(t.n_drifts, 1); /* the copy's source agrees with what it would have been */
        assert_int_equal(t.drifts[0].site, DST);
        assert_int_equal(t.drifts[0].row, 1);
        assert_int_equal(t.drifts[0].elements, WIDTH);
        for (uint32_t r = 0; r < ROWS; r++)
            fill(want, DST, r);
        assert_true(t.drifts[0].ref_digest == ds_digest(want + WIDTH, WIDTH * sizeof(float)));
        assert_true(has_blob(&t, t.drifts[0].digest));
        assert_true(has_blob(&t, t.drifts[0].ref_digest));
        if (pass == DS_PASS_HEAL)
            assert_memory_equal(got[DST], want, sizeof want);
        else
            assert_true(got[DST][WIDTH] == 0);
        ds_trial_data_free(&t);
        ds_probe_free(p);
        ds_hold_free(h);
    }
}

/* What stands before a source that is not looked at is another thing than what is copied. */
static void test_nothing_stands_for_a_source_that_is_not_looked_at(void **state)
{
    static const uint8_t on[SITES] = {0, 1, 1, 1, 1};
    static float got[SITES][ROWS * WIDTH];
    struct ds_hold *h = make_hold();
    struct ds_probe *p = make_probe(h, on);
    struct ds_trial_data t;
    (void)state;
    trial(p, 0, DS_PASS_NATURAL, 0, got, &t);
    ds_trial_data_free(&t);
    trial(p, 1, DS_PASS_HEAL, 1, got, &t);
    assert_int_equal(t.n_drifts, 0);
    ds_trial_data_free(&t);
    ds_probe_free(p);
    ds_hold_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_what_is_copied_stand_for_a_copy_that_is_not_made),
        cmocka_unit_test(test_nothing_stands_for_a_source_that_is_not_looked_at),
    };
    return cmocka_run_group_tests_name("copies", tests, NULL, NULL);
}
