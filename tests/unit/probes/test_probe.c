/* test_probe.c: what a trial's data hold: digests, captures, launches, order; misuse; allocation
 * failures; the team; time. */
#include "tests/unit/probes/net.h"

#include "base/dtype.h"

#include <math.h>
#include <time.h>

static struct net net;

static struct ds_probe *new_probe(const struct ds_site *sites, uint32_t n, struct ds_team *team)
{
    struct ds_error err;
    struct ds_probe *p;
    struct ds_probe_config config = {.sites = sites, .n_sites = n, .team = team};
    assert_ok(ds_probe_new(&config, &p, &err), err);
    return p;
}

static void test_every_row_has_the_digest_of_its_bytes(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_trial_data t;
    net_init(&net);
    struct ds_header h = net_header(&net, 3);
    struct ds_probe *p = net_probe(&net, NULL, DS_DUMP_NONE, 0);
    assert_ok(net_trial(&net, p, &(struct ds_trial){.arm = 2, .repeat = 1}, NULL, 0, net_chunks, 4,
                        &t, &err),
              err);
    assert_ok(ds_trial_data_check(&h, &t, &err), err);
    assert_int_equal(t.info.arm, 2);
    assert_int_equal(t.info.repeat, 1);
    assert_int_equal(t.n_calls, 4);
    assert_int_equal(t.n_rows, REQUESTS * POSITIONS);
    assert_int_equal(t.n_launches, 1);
    assert_string_equal(t.launches[0].variant, "test");
    assert_int_equal(t.calls[0].m, 8 + 2 * 2);
    assert_int_equal(t.calls[0].phase, DS_PHASE_PREFILL);
    assert_int_equal(t.calls[1].phase, DS_PHASE_DECODE);
    size_t digests = 0;
    for (size_t i = 0; i < t.n_captures; i++) {
        const struct ds_capture *c = &t.captures[i];
        if (i) /* execution order */
            assert_true(c->call > c[-1].call || (c->call == c[-1].call && c->site >= c[-1].site));
        assert_int_equal(c->width, net.site[c->site].width);
        assert_int_equal(c->first_digest, digests);
        for (uint32_t r = 0; r < c->rows; r++, digests++) {
            const struct ds_row *row = &t.rows[c->first_row + r];
            assert_int_equal(row->call, c->call);
            assert_true(t.digests[digests] ==
                        net_digest(&net, (int)c->site, row->request, row->position));
        }
    }
    assert_int_equal(digests, t.n_digests);
    /* every row at every site, and the logits of the last row of each part of a call */
    assert_int_equal(digests, (SITES - 1) * REQUESTS * POSITIONS + 2 + 3 + 2 + 1);
    ds_trial_data_free(&t);
    ds_probe_free(p);
}

/* However the rows are cut into calls, tensor digests and so the run digest are the same. */
static void test_run_digest_does_not_depend_on_calls(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_trial_data whole, chunks;
    uint8_t on[SITES];
    memset(on, 1, sizeof on);
    on[LOGITS_SITE] = 0; /* exist for other rows when calls are cut otherwise */
    net_init(&net);
    struct ds_probe_config config = {.sites = net.site,
                                     .n_sites = SITES,
                                     .edges = net.edge,
                                     .n_edges = net.n_edges,
                                     .site_on = on};
    struct ds_probe *p;
    assert_ok(ds_probe_new(&config, &p, &err), err);
    assert_ok(net_trial(&net, p, &(struct ds_trial){0}, NULL, 0, net_whole, 1, &whole, &err), err);
    assert_ok(net_trial(&net, p, &(struct ds_trial){0}, NULL, 0, net_chunks, 4, &chunks, &err),
              err);
    assert_true(whole.info.run_digest == chunks.info.run_digest);
    /* and it is what the definition says */
    uint64_t tensor[SITES], row[REQUESTS * POSITIONS];
    for (int s = 0; s < LOGITS_SITE; s++) {
        for (int k = 0; k < REQUESTS * POSITIONS; k++)
            row[k] = net_digest(&net, s, k / POSITIONS, k % POSITIONS);
        tensor[s] = ds_digest_of(row, REQUESTS * POSITIONS);
    }
    assert_true(whole.info.run_digest == ds_digest_of(tensor, LOGITS_SITE));
    ds_trial_data_free(&chunks);
    net.bump[net.n_bumps++] = (struct net_bump){FIRST_LAYER_SITE, 2, 11, 1};
    assert_ok(net_trial(&net, p, &(struct ds_trial){0}, NULL, 0, net_chunks, 4, &chunks, &err),
              err);
    assert_true(whole.info.run_digest != chunks.info.run_digest);
    ds_trial_data_free(&chunks);
    ds_trial_data_free(&whole);
    ds_probe_free(p);
}

static const struct ds_site plain[] = {
    {.stage = "embed", .op = "embed", .dtype = "f32", .width = 6},
    {.stage = "scores", .op = "attention", .dtype = "f16"}, /* varying width */
    {.stage = "token", .op = "sample", .dtype = "i32", .width = 1},
};

static void begin(struct ds_probe *p, const struct ds_row *rows, uint32_t n)
{
    struct ds_error err;
    assert_ok(ds_probe_begin_trial(p, &(struct ds_trial){0}, NULL, 0, &err), err);
    assert_ok(ds_probe_begin_call(p, DS_PHASE_PREFILL, 100, 1, rows, n, &err), err);
}

static struct ds_trial_data end(struct ds_probe *p)
{
    struct ds_error err;
    struct ds_trial_data t;
    assert_ok(ds_probe_end_call(p, &err), err);
    assert_ok(ds_probe_end_trial(p, &t, &err), err);
    return t;
}

/* What weak hashes of whole tensors miss. */
static void test_small_differences_are_seen_by_row(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_probe *p = new_probe(plain, 3, NULL);
    struct ds_row rows[4] = {{.slot = 0},
                             {.slot = 1, .position = 1},
                             {.slot = 2, .position = 2},
                             {.slot = 3, .position = 3}};
    float x[4][6] = {
        {1, 2, 3, 4, 5, 6}, {6, 5, 4, 3, 2, 1}, {1, 2, 3, 4, 5, 6}, {0, 0, 0, 0, 0, 0}};
    begin(p, rows, 4);
    assert_ok(ds_probe_site(p, 0, NULL, x, sizeof x[0], 6, NULL, 0, &err), err);
    struct ds_trial_data a = end(p);
    assert_true(a.digests[0] == a.digests[2]); /* equal rows */
    assert_true(a.digests[0] != a.digests[1]);
    float swapped[4][6];
    memcpy(swapped, x, sizeof x);
    memcpy(swapped[0], x[1], sizeof x[0]);
    memcpy(swapped[1], x[0], sizeof x[0]);
    swapped[3][2] = -0.0f;
    begin(p, rows, 4);
    assert_ok(ds_probe_site(p, 0, NULL, swapped, sizeof x[0], 6, NULL, 0, &err), err);
    struct ds_trial_data b = end(p);
    assert_true(b.digests[0] == a.digests[1] && b.digests[1] == a.digests[0]);
    assert_true(b.digests[2] == a.digests[2]);
    assert_true(b.digests[3] != a.digests[3]); /* -0 is not +0 */
    assert_true(a.info.run_digest != b.info.run_digest);
    assert_string_equal(a.launches[0].op, "embed"); /* no launch given: the site's op */
    ds_trial_data_free(&a);
    ds_trial_data_free(&b);
    ds_probe_free(p);
}

static void test_rows_listed_one_by_one_become_runs(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_probe *p = new_probe(plain, 3, NULL);
    struct ds_row rows[9];
    int32_t data[9];
    for (int32_t i = 0; i < 9; i++) {
        rows[i] = (struct ds_row){.slot = 2 * i + 1, .position = i};
        data[i] = 100 + i;
    }
    static const uint32_t only[] = {0, 2, 3, 4, 8};
    begin(p, rows, 9);
    assert_ok(ds_probe_site(p, 2, NULL, data, 4, 1, only, 5, &err), err);
    assert_ok(ds_probe_site(p, 2, NULL, data, 4, 1, only, 0, &err), err); /* none at all */
    static const uint32_t rest[] = {1, 5};
    assert_ok(ds_probe_site(p, 2, NULL, data, 4, 1, rest, 2, &err), err); /* the same site again */
    static const uint32_t wrong[][2] = {{3, 3}, {4, 2}, {0, 9}};
    struct ds_trial_data t = end(p);
    static const uint32_t first[] = {0, 2, 8, 1, 5}, count[] = {1, 3, 1, 1, 1};
    assert_int_equal(t.n_captures, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(t.captures[i].first_row, first[i]);
        assert_int_equal(t.captures[i].rows, count[i]);
    }
    for (size_t i = 0; i < 5; i++)
        assert_true(t.digests[i] == ds_digest(&data[i], 4));
    ds_trial_data_free(&t);
    for (size_t i = 0; i < 3; i++) {
        begin(p, rows, 9);
        assert_int_equal(ds_probe_site(p, 2, NULL, data, 4, 1, wrong[i], 2, &err), -1);
        assert_non_null(strstr(err.msg, "token"));
        ds_probe_abort_trial(p);
    }
    ds_probe_free(p);
}

static void test_launches_are_stored_once(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_probe *p = new_probe(plain, 3, NULL);
    struct ds_row row = {.slot = 0};
    float x[6] = {0};
    struct ds_launch a, b;
    memset(&a, 0x55, sizeof a); /* what follows the end of a name does not count */
    strcpy(a.op, "matmul");
    strcpy(a.variant, "openblas");
    strcpy(a.algo, "Haswell");
    a.threads = 2;
    b = a;
    memset(a.op + 8, 0, 4);
    begin(p, &row, 1);
    for (int i = 0; i < 3; i++) {
        assert_ok(ds_probe_site(p, 0, &a, x, 24, 6, NULL, 0, &err), err);
        assert_ok(ds_probe_site(p, 1, &b, x, 24, 12, NULL, 0, &err), err);
    }
    b.split = 4;
    assert_ok(ds_probe_site(p, 0, &b, x, 24, 6, NULL, 0, &err), err);
    assert_ok(ds_probe_site(p, 0, &a, x, 24, 6, NULL, 0, &err), err);
    memset(b.variant, 'v', sizeof b.variant); /* no end */
    assert_ok(ds_probe_site(p, 0, &b, x, 24, 6, NULL, 0, &err), err);
    struct ds_trial_data t = end(p);
    assert_int_equal(t.n_launches, 3);
    assert_string_equal(t.launches[0].algo, "Haswell");
    assert_int_equal(t.launches[1].split, 4);
    assert_int_equal(strlen(t.launches[2].variant), sizeof b.variant - 1);
    static const uint32_t want[] = {0, 0, 0, 0, 0, 0, 1, 0, 2};
    for (size_t i = 0; i < 9; i++)
        assert_int_equal(t.captures[i].launch, want[i]);
    assert_int_equal(t.captures[1].width, 12); /* a site of varying width */
    ds_trial_data_free(&t);
    ds_probe_free(p);
}

static void test_misuse_is_an_error(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_probe *p = new_probe(plain, 3, NULL);
    struct ds_trial_data t;
    struct ds_row rows[2] = {{.slot = 1}, {.slot = 1}};
    float x[12] = {0};
    assert_int_equal(ds_probe_site(p, 0, NULL, x, 24, 6, NULL, 0, &err), -1);
    assert_int_equal(ds_probe_begin_call(p, 0, 9, 1, rows, 1, &err), -1);
    assert_int_equal(ds_probe_end_call(p, &err), -1);
    assert_int_equal(ds_probe_end_trial(p, &t, &err), -1);
    ds_trial_data_free(&t); /* safe */
    ds_probe_abort_trial(p);
    static const struct {
        uint32_t phase, m, n;
    } calls[] = {{2, 9, 1}, {0, 9, 2}, {0, 1, 1}};
    for (size_t i = 0; i < 3; i++) {
        assert_ok(ds_probe_begin_trial(p, &(struct ds_trial){0}, NULL, 0, &err), err);
        assert_int_equal(ds_probe_begin_trial(p, &(struct ds_trial){0}, NULL, 0, &err), -1);
        assert_int_equal(
            ds_probe_begin_call(p, calls[i].phase, calls[i].m, 1, rows, calls[i].n, &err), -1);
        ds_probe_abort_trial(p);
    }
    rows[1].slot = 2;
    begin(p, rows, 2);
    assert_int_equal(ds_probe_site(p, 3, NULL, x, 24, 6, NULL, 0, &err), -1); /* no such site */
    assert_int_equal(ds_probe_site(p, 0, NULL, x, 24, 5, NULL, 0, &err), -1); /* not its width */
    assert_non_null(strstr(err.msg, "embed"));
    assert_int_equal(ds_probe_end_call(p, &err), -1); /* after a failure */
    ds_probe_abort_trial(p);
    begin(p, rows, 2);
    assert_int_equal(ds_probe_site(p, 0, NULL, x, 20, 6, NULL, 0, &err), -1); /* rows overlap */
    ds_probe_abort_trial(p);
    begin(p, rows, 0); /* a call with no recorded rows is nothing to see */
    assert_ok(ds_probe_site(p, 0, NULL, NULL, 24, 6, NULL, 0, &err), err);
    t = end(p);
    assert_int_equal(t.n_captures + t.n_digests, 0);
    ds_trial_data_free(&t);
    ds_probe_free(p);
    struct ds_site bad = plain[0];
    strcpy(bad.dtype, "f64");
    assert_int_equal(ds_probe_new(&(struct ds_probe_config){.sites = &bad, .n_sites = 1}, &p, &err),
                     -1);
    assert_null(p);
    struct ds_edge edge = {0, 3, DS_EDGE_ROW};
    struct ds_probe_config config = {.sites = plain, .n_sites = 3, .edges = &edge, .n_edges = 1};
    assert_int_equal(ds_probe_new(&config, &p, &err), -1);
    assert_non_null(strstr(err.msg, "edge 0"));
    ds_probe_free(NULL);
}

/* One whole life: a held base trial, a drifting one with dumps. Every allocation fails once; each
 * failure is an error, leaves the probe usable, and leaks nothing. */
static int whole_life(struct ds_hold *hold, int *stage, struct ds_error *err)
{
    static const uint32_t arm = 0;
    struct ds_trial_data t;
    struct ds_probe *p;
    net.n_bumps = 0;
    struct ds_probe_config config = {.sites = net.site,
                                     .n_sites = SITES,
                                     .edges = net.edge,
                                     .n_edges = net.n_edges,
                                     .dump = DS_DUMP_ALL,
                                     .dump_rows = 2,
                                     .hold = hold};
    *stage = 0;
    if (ds_probe_new(&config, &p, err))
        return -1;
    *stage = 1;
    int rc = net_trial(&net, p, &(struct ds_trial){0}, NULL, 0, net_chunks, 4, &t, err);
    if (!rc) {
        *stage = 2;
        ds_trial_data_free(&t);
        net.bump[net.n_bumps++] = (struct net_bump){FIRST_LAYER_SITE + KEY, 1, 6, 8};
        net.bump[net.n_bumps++] = (struct net_bump){LOGITS_SITE, 0, 4, INFINITY};
        rc = net_trial(&net, p, &(struct ds_trial){.arm = 1}, &arm, 1, net_chunks, 4, &t, err);
    }
    if (!rc)
        ds_trial_data_free(&t);
    else if (*stage == 2) { /* the same probe works again */
        ds_mem_fail_at(0);
        struct ds_error again;
        assert_ok(
            net_trial(&net, p, &(struct ds_trial){.arm = 1}, &arm, 1, net_chunks, 4, &t, &again),
            again);
        assert_true(t.n_drifts > 10 && t.n_blobs > 10 && t.n_nonfinites == 1);
        ds_trial_data_free(&t);
    }
    ds_probe_free(p);
    return rc;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    static const uint32_t arm = 0;
    int failures[3] = {0}, stage, rc = -1;
    net_init(&net);
    for (long n = 1; rc != 0; n++) {
        struct ds_error err = {{0}, {0}};
        struct ds_hold *hold = net_hold(&net, &arm, 1, 1u << 20);
        ds_mem_fail_at(n);
        rc = whole_life(hold, &stage, &err);
        ds_mem_fail_at(0);
        if (rc != 0) {
            failures[stage]++;
            assert_non_null(strstr(err.msg, "out of memory"));
            assert_int_equal(ds_hold_has(hold, 0), stage == 2);
        }
        ds_hold_free(hold);
    }
    assert_true(failures[0] > 5 && failures[1] > 10 && failures[2] > 30);
}

/* ---- team and time --------------------------------------------------------------------------- */

enum { WIDE = 3000, MANY = 257 };

static void test_a_team_gives_the_same_digests(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_site site[] = {{.stage = "gate", .op = "matmul", .dtype = "f32", .width = WIDE},
                             {.stage = "up", .op = "matmul", .dtype = "bf16", .width = WIDE}};
    static struct ds_row rows[MANY];
    float *x = calloc((size_t)MANY * 2 * WIDE, sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < MANY; i++)
        rows[i] = (struct ds_row){.slot = i, .position = i};
    for (size_t i = 0; i < (size_t)MANY * 2 * WIDE; i++)
        x[i] = (float)(i % 1021) * 0.37f;
    x[(size_t)2 * 200 * WIDE + 17] = ds_f32_from_bits(0x7f800000u);
    uint64_t run[4];
    for (int threads = 1; threads <= 4; threads++) {
        struct ds_team *team = ds_team_new(threads, &err);
        assert_non_null(team);
        struct ds_probe *p = new_probe(site, 2, team);
        assert_ok(ds_probe_begin_trial(p, &(struct ds_trial){0}, NULL, 0, &err), err);
        for (uint32_t call = 0; call < 3; call++) {
            assert_ok(ds_probe_begin_call(p, 0, MANY, 1, rows, MANY, &err), err);
            assert_ok(ds_probe_site(p, 0, NULL, x, 2 * WIDE * sizeof *x, WIDE, NULL, 0, &err), err);
            assert_ok(ds_probe_site(p, 1, NULL, x, WIDE * sizeof *x, WIDE, NULL, 0, &err), err);
            for (int i = 0; i < MANY; i++)
                rows[i].occurrence++;
            if (call < 2)
                assert_ok(ds_probe_end_call(p, &err), err);
        }
        for (int i = 0; i < MANY; i++)
            rows[i].occurrence = 0;
        struct ds_trial_data t = end(p);
        for (size_t i = 0; i < MANY; i++)
            assert_true(t.digests[i] == ds_digest(x + 2 * i * WIDE, WIDE * sizeof *x));
        run[threads - 1] = t.info.run_digest;
        assert_true(run[threads - 1] == run[0]);
        assert_true(t.nonfinites[0].site == 0 && t.nonfinites[0].row == 200 &&
                    t.nonfinites[0].inf == 1);
        assert_true(t.info.probe_prefill_cpu_s > 0);
        ds_trial_data_free(&t);
        ds_probe_free(p);
        ds_team_free(team);
    }
    free(x);
}

static double thread_cpu(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Time in probes is the thread's CPU time between begin and end of a call when it does nothing else
 * there, in each phase. Twice as much work is done outside and must not be counted: how long that takes is not
 * asked, since the machine may be busy just then. Margins are wide for the same reason. */
static void test_time_is_counted_honestly(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_site site = {.stage = "logits", .op = "matmul", .dtype = "f32", .width = 49152};
    struct ds_row row = {.slot = 0};
    float *x = calloc(49152, sizeof *x);
    assert_non_null(x);
    struct ds_probe *p = new_probe(&site, 1, NULL);
    assert_ok(ds_probe_begin_trial(p, &(struct ds_trial){0}, NULL, 0, &err), err);
    double inside[2] = {0, 0};
    for (int call = 0; call < 20; call++) {
        double a = thread_cpu();
        assert_ok(ds_probe_begin_call(p, call < 10 ? DS_PHASE_PREFILL : DS_PHASE_DECODE, 1, 1, &row,
                                      1, &err),
                  err);
        for (int i = 0; i < 100; i++)
            assert_ok(ds_probe_site(p, 0, NULL, x, 4 * 49152, 49152, NULL, 0, &err), err);
        assert_ok(ds_probe_step(p, 0, call, x, NULL, 49152, 0, -1, &err), err);
        assert_ok(ds_probe_end_call(p, &err), err);
        inside[call >= 10] += thread_cpu() - a;
        uint64_t sum = 0;
        for (int i = 0; i < 200; i++)
            sum += ds_digest(x, 4 * 49152);
        assert_true(sum != 1);
        row.position++;
    }
    double counted = ds_probe_cpu_seconds(p);
    struct ds_trial_data t;
    assert_ok(ds_probe_end_trial(p, &t, &err), err);
    const double phase[2] = {t.info.probe_prefill_cpu_s, t.info.probe_decode_cpu_s};
    for (int i = 0; i < 2; i++)
        assert_close(i ? "decode" : "prefill", 0, phase[i], inside[i], 0.5 * inside[i]);
    assert_close("by phase", 0, phase[0] + phase[1], counted, 0.05 * counted);
    ds_trial_data_free(&t);
    ds_probe_free(p);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_has_the_digest_of_its_bytes),
        cmocka_unit_test(test_run_digest_does_not_depend_on_calls),
        cmocka_unit_test(test_small_differences_are_seen_by_row),
        cmocka_unit_test(test_rows_listed_one_by_one_become_runs),
        cmocka_unit_test(test_launches_are_stored_once),
        cmocka_unit_test(test_misuse_is_an_error),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_a_team_gives_the_same_digests),
        cmocka_unit_test(test_time_is_counted_honestly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
