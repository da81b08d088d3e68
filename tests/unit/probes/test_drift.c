/* test_drift.c: comparison with held arms: which rows drift, what is dumped, how labels decide it,
 * the non-finite watch. What must be found is worked out by brute force from all values of both
 * runs. */
#include "tests/unit/probes/net.h"

#include "dumps/stats.h"

#include <math.h>

/* ---- brute force ----------------------------------------------------------------------------- */

struct expect {
    const struct net *now;
    const struct net *ref[2];
    int n_refs;
    enum ds_dump dump;
    uint32_t dump_rows;
    uint64_t digest[40000]; /* of blobs that must be there */
    size_t n, drifts;
    uint32_t dumped[SITES], extra[SITES];
    double worst[SITES]; /* relative size of a dumped row, squared */
    int first_site;
};

static struct net base, other, now;
static struct expect expected;

static int differs(const struct expect *e, int r, int site, int q, int t)
{
    return e->ref[r]->made[site][q][t] &&
           net_digest(e->now, site, q, t) != net_digest(e->ref[r], site, q, t);
}

static void want_blob(struct expect *e, const struct net *n, int site, int q, int t)
{
    uint64_t digest = net_digest(n, site, q, t);
    for (size_t i = 0; i < e->n; i++)
        if (e->digest[i] == digest)
            return;
    e->digest[e->n++] = digest;
}

/* The rows that row (q, t) reads over an edge, as a list. */
static int inputs_of(const struct ds_edge *edge, const struct ds_row *rows, uint32_t n_rows, int q,
                     int t, struct ds_row *out)
{
    int n = 0;
    if (edge->kind == DS_EDGE_ROW)
        out[n++] = (struct ds_row){.request = q, .position = t};
    for (int s = 0; s <= t && edge->kind == DS_EDGE_CAUSAL; s++)
        out[n++] = (struct ds_row){.request = q, .position = s};
    for (uint32_t r = 0; r < n_rows && edge->kind == DS_EDGE_ALL; r++)
        out[n++] = rows[r];
    return n;
}

static int origin(const struct expect *e, int r, const struct ds_row *rows, uint32_t n_rows,
                  int site, int q, int t)
{
    struct ds_row in[REQUESTS * POSITIONS];
    for (uint32_t k = 0; k < e->now->n_edges; k++) {
        if ((int)e->now->edge[k].to != site)
            continue;
        int n = inputs_of(&e->now->edge[k], rows, n_rows, q, t, in);
        for (int i = 0; i < n; i++)
            if (differs(e, r, (int)e->now->edge[k].from, in[i].request, in[i].position))
                return 0;
    }
    return 1;
}

static void want_dump(struct expect *e, int r, const struct ds_row *rows, uint32_t n_rows, int site,
                      int q, int t)
{
    struct ds_row in[REQUESTS * POSITIONS];
    want_blob(e, e->now, site, q, t);
    want_blob(e, e->ref[r], site, q, t);
    for (uint32_t k = 0; k < e->now->n_edges; k++) {
        int from = (int)e->now->edge[k].from;
        if ((int)e->now->edge[k].to != site)
            continue;
        int n = inputs_of(&e->now->edge[k], rows, n_rows, q, t, in);
        /* what the call wrote behind the row, too: a kernel without its mask reads it */
        for (uint32_t i = 0; e->now->edge[k].kind == DS_EDGE_CAUSAL && i < n_rows; i++)
            if (rows[i].request == q && rows[i].position > t)
                in[n++] = rows[i];
        for (int i = 0; i < n; i++) {
            want_blob(e, e->ref[r], from, in[i].request, in[i].position);
            if (e->dump == DS_DUMP_ALL)
                want_blob(e, e->now, from, in[i].request, in[i].position);
        }
    }
}

/* The first dump_rows rows of a site, and as many more that are four times as far off as all before
 * them. */
static int room(struct expect *e, int r, int site, int q, int t)
{
    struct ds_drift d;
    size_t bytes;
    const void *a = net_row(e->now, site, q, t, &bytes),
               *b = net_row(e->ref[r], site, q, t, &bytes);
    ds_stats_row(site == POSITION_SITE ? DS_I32 : DS_F32, a, b, bytes / 4, &d);
    double size = d.ref_sq > 0 ? d.diff_sq / d.ref_sq : d.diff_sq > 0 ? HUGE_VAL : 0;
    int few = e->dumped[site] < e->dump_rows;
    if (!few && (!(size > 16 * e->worst[site]) || e->extra[site] >= e->dump_rows))
        return 0;
    e->dumped[site] += (uint32_t)few;
    e->extra[site] += !few;
    e->worst[site] = size > e->worst[site] ? size : e->worst[site];
    return 1;
}

static void expect_row(struct expect *e, const struct ds_row *rows, uint32_t n_rows, int site,
                       int q, int t)
{
    int dumped = 0;
    for (int r = 0; r < e->n_refs; r++) {
        if (!differs(e, r, site, q, t))
            continue;
        e->drifts++;
        if (e->first_site < 0)
            e->first_site = site;
        if (e->dump == DS_DUMP_NONE || (e->dump == DS_DUMP_FIRST && site != e->first_site) ||
            (e->dump == DS_DUMP_ORIGINS && !origin(e, r, rows, n_rows, site, q, t)) ||
            (!dumped && !room(e, r, site, q, t)))
            continue;
        dumped = 1;
        want_dump(e, r, rows, n_rows, site, q, t);
    }
}

static void expect_all(struct expect *e, const struct net_call *calls, int n_calls)
{
    e->first_site = -1;
    e->n = e->drifts = 0;
    memset(e->dumped, 0, sizeof e->dumped);
    memset(e->extra, 0, sizeof e->extra);
    memset(e->worst, 0, sizeof e->worst);
    for (int c = 0; c < n_calls; c++) {
        struct ds_row rows[REQUESTS * POSITIONS];
        uint32_t m, n = net_rows(&calls[c], rows, &m);
        for (int s = 0; s < SITES; s++)
            for (uint32_t i = 0; i < n; i++)
                if (s != LOGITS_SITE || i + 1 == n || rows[i + 1].request != rows[i].request)
                    expect_row(e, rows, n, s, rows[i].request, rows[i].position);
    }
}

static void check_trial(const struct expect *e, const struct ds_trial_data *t)
{
    assert_int_equal(t->n_drifts, e->drifts);
    for (size_t i = 0; i < t->n_drifts; i++) {
        const struct ds_drift *d = &t->drifts[i];
        const struct ds_row *row = &t->rows[d->row];
        const struct net *ref = e->ref[d->ref_arm - 10];
        int q = row->request, pos = row->position;
        assert_true(d->digest == net_digest(e->now, (int)d->site, q, pos));
        assert_true(d->ref_digest == net_digest(ref, (int)d->site, q, pos));
        assert_true(d->digest != d->ref_digest);
        struct ds_drift again = {0};
        size_t bytes;
        ds_stats_row(d->site == POSITION_SITE ? DS_I32 : DS_F32,
                     net_row(e->now, (int)d->site, q, pos, &bytes),
                     net_row(ref, (int)d->site, q, pos, &bytes), now.site[d->site].width, &again);
        assert_true(again.elements > 0 && again.elements == d->elements && again.first == d->first);
        assert_true(again.max_ulp == d->max_ulp && again.nonfinite == d->nonfinite);
    }
    for (size_t i = 0; i < t->n_blobs; i++) {
        const struct ds_blob *b = &t->blobs[i];
        size_t k = 0;
        while (k < e->n && e->digest[k] != b->digest)
            k++;
        assert_true(k < e->n); /* nothing is dumped that should not be */
        assert_true(ds_digest(b->data, b->bytes) == b->digest);
        assert_int_equal(b->bytes, b->elements * 4);
        assert_string_equal(b->dtype, b->elements == 1 ? "i32" : "f32");
        for (size_t j = 0; j < i; j++)
            assert_true(t->blobs[j].digest != b->digest); /* each content once */
    }
    assert_int_equal(t->n_blobs, e->n);
}

static uint32_t noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 10;
}

static void bump_randomly(struct net *n, uint32_t *seed, int most)
{
    static const float sizes[] = {1.0f, 0.25f, 64.0f, -3.0f};
    n->n_bumps = (int)(noise(seed) % (uint32_t)(most + 1));
    for (int i = 0; i < n->n_bumps; i++)
        n->bump[i] = (struct net_bump){(int)(noise(seed) % SITES), (int)(noise(seed) % REQUESTS),
                                       (int)(noise(seed) % POSITIONS), sizes[noise(seed) % 4]};
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Random disturbances, two references, one-shot and chunked, all dump modes and limits, in memory
 * and spilled. */
static void check_against_brute_force(uint64_t budget)
{
    static const uint32_t arms[] = {10, 11}, refs[] = {11, 77, 10}; /* 77 is not held */
    static const uint32_t limits[] = {0, 1, 2, 1000};
    struct ds_error err;
    uint32_t seed = 17;
    size_t drifts = 0;
    for (int round = 0; round < 40; round++) {
        net_init(&base);
        net_init(&other);
        net_init(&now);
        bump_randomly(&other, &seed, 2);
        bump_randomly(&now, &seed, 3);
        struct ds_hold *hold = net_hold(&base, arms, 2, budget);
        assert_true(budget ? ds_hold_spilled(hold) == 0 : ds_hold_spilled(hold) > 0);
        for (int dump = DS_DUMP_NONE; dump <= DS_DUMP_ALL; dump++)
            for (size_t l = 0; l < 4; l++) {
                struct ds_probe *p = net_probe(&now, hold, (enum ds_dump)dump, limits[l]);
                struct ds_trial_data t;
                struct ds_header h = net_header(&now, 100);
                if (!ds_hold_has(hold, 10)) {
                    assert_ok(net_trial(&base, p, &(struct ds_trial){.arm = 10}, NULL, 0, net_whole,
                                        1, &t, &err),
                              err);
                    ds_trial_data_free(&t);
                    assert_ok(net_trial(&other, p, &(struct ds_trial){.arm = 11}, NULL, 0,
                                        net_chunks, 4, &t, &err),
                              err);
                    ds_trial_data_free(&t);
                }
                const struct net_call *calls = round % 2 ? net_chunks : net_whole;
                int n_calls = round % 2 ? 4 : 1;
                assert_ok(net_trial(&now, p, &(struct ds_trial){.arm = 3}, refs, 3, calls, n_calls,
                                    &t, &err),
                          err);
                assert_ok(ds_trial_data_check(&h, &t, &err), err);
                /* references are met in the order given: 11 first */
                expected = (struct expect){.now = &now,
                                           .ref = {&other, &base},
                                           .n_refs = 2,
                                           .dump = (enum ds_dump)dump,
                                           .dump_rows = limits[l]};
                expect_all(&expected, calls, n_calls);
                expected.ref[0] = &base; /* by arm */
                expected.ref[1] = &other;
                check_trial(&expected, &t);
                drifts += t.n_drifts;
                ds_trial_data_free(&t);
                ds_probe_free(p);
            }
        ds_hold_free(hold);
    }
    assert_true(drifts > 10000); /* the fixture is not inert */
}

static void test_drifts_and_dumps_equal_brute_force(void **state)
{
    (void)state;
    check_against_brute_force(1u << 24);
}

static void test_the_same_when_everything_is_spilled(void **state)
{
    (void)state;
    check_against_brute_force(0);
}

static void test_same_rows_in_other_calls_do_not_drift(void **state)
{
    (void)state;
    static const uint32_t arm = 0;
    struct ds_error err;
    struct ds_trial_data a, b;
    net_init(&base);
    struct ds_hold *hold = net_hold(&base, &arm, 1, 1u << 24);
    struct ds_probe *p = net_probe(&base, hold, DS_DUMP_ALL, 1000);
    assert_int_equal(ds_hold_has(hold, 0), 0);
    assert_ok(net_trial(&base, p, &(struct ds_trial){.arm = 0}, &arm, 1, net_chunks, 4, &a, &err),
              err);
    assert_int_equal(ds_hold_has(hold, 0), 1);
    assert_ok(net_trial(&base, p, &(struct ds_trial){.arm = 1}, &arm, 1, net_whole, 1, &b, &err),
              err);
    assert_int_equal(b.n_drifts + b.n_blobs + b.n_nonfinites, 0);
    ds_trial_data_free(&a);
    ds_trial_data_free(&b);
    /* a repeat of the held arm itself is compared with the held trial */
    base.bump[base.n_bumps++] = (struct net_bump){EMBED_SITE, 1, 4, 1};
    assert_ok(net_trial(&base, p, &(struct ds_trial){.arm = 0, .repeat = 1}, &arm, 1, net_chunks, 4,
                        &a, &err),
              err);
    assert_true(a.n_drifts > 0);
    assert_int_equal(a.rows[a.drifts[0].row].position, 4);
    ds_trial_data_free(&a);
    ds_probe_free(p);
    ds_hold_free(hold);
}

/* Only resid of each layer is looked at: the one before it is its input, through all that lies
 * between. One row of layer 1 is disturbed; in layer 2 later rows drift too, although their own row
 * of layer 1 is equal: through keys. */
static void test_labels_see_through_sites_that_are_off(void **state)
{
    (void)state;
    static const uint32_t arm = 0;
    struct ds_error err;
    struct ds_trial_data t;
    uint8_t on[SITES] = {0};
    for (int l = 0; l < LAYERS; l++)
        on[FIRST_LAYER_SITE + 5 * l + RESID] = 1;
    net_init(&base);
    struct ds_hold *hold = net_hold(&base, &arm, 1, 1u << 24);
    struct ds_probe_config config = {.sites = base.site,
                                     .n_sites = SITES,
                                     .edges = base.edge,
                                     .n_edges = base.n_edges,
                                     .site_on = on,
                                     .dump = DS_DUMP_ORIGINS,
                                     .dump_rows = 1000,
                                     .hold = hold};
    struct ds_probe *p;
    assert_ok(ds_probe_new(&config, &p, &err), err);
    assert_ok(net_trial(&base, p, &(struct ds_trial){.arm = 0}, NULL, 0, net_whole, 1, &t, &err),
              err);
    assert_int_equal(t.n_captures, LAYERS);
    ds_trial_data_free(&t);
    int disturbed = FIRST_LAYER_SITE + 5 + RESID, later = FIRST_LAYER_SITE + 10 + RESID;
    now = base;
    now.bump[now.n_bumps++] = (struct net_bump){disturbed, 2, 3, 64};
    assert_ok(net_trial(&now, p, &(struct ds_trial){.arm = 1}, &arm, 1, net_whole, 1, &t, &err),
              err);
    assert_int_equal(t.n_drifts, 1 + POSITIONS - 3);
    for (size_t i = 0; i < t.n_drifts; i++) {
        int found = 0;
        for (size_t b = 0; b < t.n_blobs; b++)
            found |= t.blobs[b].digest == t.drifts[i].digest;
        assert_int_equal(t.drifts[i].site, i == 0 ? disturbed : later);
        assert_int_equal(found, i == 0);
    }
    ds_trial_data_free(&t);
    ds_probe_free(p);
    ds_hold_free(hold);
}

/* Keys of an earlier call drifted, but attention there did not (the test takes the effect out
 * again) and the one dump of the key site went to another row: a dump of attention in a later call
 * still has the keys that it read. */
static void test_inputs_of_earlier_calls_are_kept(void **state)
{
    (void)state;
    static const struct net_call calls[] = {
        {{{0, 0, 4}, {1, 0, 4}}, 2, 0},
        {{{1, 4, POSITIONS}, {0, 4, POSITIONS}}, 2, 0},
    };
    static const uint32_t arm = 10;
    struct ds_error err;
    struct ds_trial_data t;
    net_init(&base);
    now = base;
    for (int q = 0; q < 2; q++) { /* a quarter of 64 arrives at position 3, exactly */
        now.bump[now.n_bumps++] = (struct net_bump){FIRST_LAYER_SITE + KEY, q, 3, 64};
        now.bump[now.n_bumps++] = (struct net_bump){FIRST_LAYER_SITE + ATTN, q, 3, -16};
    }
    now.bump[now.n_bumps++] = (struct net_bump){FIRST_LAYER_SITE + KEY, 1, 4, 32};
    struct ds_hold *hold = net_hold(&base, &arm, 1, 1u << 24);
    struct ds_probe *p = net_probe(&base, hold, DS_DUMP_ALL, 1);
    assert_ok(net_trial(&base, p, &(struct ds_trial){.arm = 10}, NULL, 0, calls, 2, &t, &err), err);
    ds_trial_data_free(&t);
    assert_ok(net_trial(&now, p, &(struct ds_trial){.arm = 1}, &arm, 1, calls, 2, &t, &err), err);
    expected = (struct expect){
        .now = &now, .ref = {&base}, .n_refs = 1, .dump = DS_DUMP_ALL, .dump_rows = 1};
    expect_all(&expected, calls, 2);
    check_trial(&expected, &t);
    int found = 0;
    for (size_t b = 0; b < t.n_blobs; b++)
        found += t.blobs[b].digest == net_digest(&now, FIRST_LAYER_SITE + KEY, 1, 3) ||
                 t.blobs[b].digest == net_digest(&now, FIRST_LAYER_SITE + KEY, 1, 4);
    assert_int_equal(found, 2);
    for (size_t i = 0; i < t.n_drifts; i++) /* the fixture does what it says */
        if (t.drifts[i].site == FIRST_LAYER_SITE + ATTN)
            assert_int_equal(t.rows[t.drifts[i].row].call, 1);
    ds_trial_data_free(&t);
    ds_probe_free(p);
    ds_hold_free(hold);
}

/* Rows are matched by key and not by place: two requests that changed places and contents are two
 * drifts, and rows that the reference never had are not compared, but watched for NaN. */
static void test_rows_are_matched_by_key(void **state)
{
    (void)state;
    static const struct ds_site site = {
        .stage = "embed", .op = "embed", .dtype = "f32", .width = 2};
    static const uint32_t arm = 0, room = 4;
    struct ds_error err;
    struct ds_trial_data t;
    struct ds_hold *hold;
    struct ds_probe *p;
    assert_ok(ds_hold_new(&(struct ds_hold_config){&site, 1, &room, &arm, 1, 1u << 20, NULL}, &hold,
                          &err),
              err);
    assert_ok(ds_probe_new(&(struct ds_probe_config){.sites = &site, .n_sites = 1, .hold = hold},
                           &p, &err),
              err);
    struct {
        struct ds_row rows[3];
        float x[3][2];
        size_t n, drifts, nonfinites;
    } trials[] = {
        {{{.request = 0, .slot = 0}, {.request = 1, .slot = 1}}, {{1, 2}, {3, 4}}, 2, 0, 0},
        {{{.request = 1, .slot = 0}, {.request = 0, .slot = 1}}, {{3, 4}, {1, 2}}, 2, 0, 0},
        {{{.request = 1, .slot = 0}, {.request = 0, .slot = 1}}, {{1, 2}, {3, 4}}, 2, 2, 0},
        {{{.position = 1, .slot = 0}, {.request = 1, .slot = 1}}, {{1, 2}, {3, 4}}, 2, 0, 0},
        {{{.occurrence = 1, .slot = 0}, {.request = 1, .slot = 1}}, {{1, NAN}, {3, 4}}, 2, 0, 1},
        {{{.request = 0, .slot = 0},
          {.request = 0, .occurrence = 2, .slot = 1},
          {.request = 1, .slot = 2}},
         {{1, 2}, {INFINITY, 2}, {3, NAN}},
         3,
         1,
         2},
    };
    for (uint32_t k = 0; k < sizeof trials / sizeof trials[0]; k++) {
        assert_ok(ds_probe_begin_trial(p, &(struct ds_trial){.arm = k}, &arm, 1, &err), err);
        assert_ok(ds_probe_begin_call(p, 0, 3, 2, trials[k].rows, (uint32_t)trials[k].n, &err),
                  err);
        assert_ok(ds_probe_site(p, 0, NULL, trials[k].x, 8, 2, NULL, 0, &err), err);
        assert_ok(ds_probe_end_call(p, &err), err);
        assert_ok(ds_probe_end_trial(p, &t, &err), err);
        assert_int_equal(t.n_drifts, trials[k].drifts);
        assert_int_equal(t.n_nonfinites, trials[k].nonfinites);
        ds_trial_data_free(&t);
    }
    ds_probe_free(p);
    ds_hold_free(hold);
}

static void test_nonfinite_rows_are_watched(void **state)
{
    (void)state;
    static const uint32_t arm = 0;
    struct ds_error err;
    struct ds_trial_data t;
    net_init(&base);
    base.bump[base.n_bumps++] = (struct net_bump){FIRST_LAYER_SITE + NORM, 1, 11, NAN};
    base.bump[base.n_bumps++] = (struct net_bump){LOGITS_SITE, 2, 11, INFINITY};
    struct ds_hold *hold = net_hold(&base, &arm, 1, 1u << 24);
    struct ds_probe *p = net_probe(&base, hold, DS_DUMP_NONE, 0);
    /* The base trial has no reference: each bad row is reported. Row 11 of request 1 is bad from
     * layer 0 on, to its logits; and the logits of request 2 are. */
    assert_ok(net_trial(&base, p, &(struct ds_trial){.arm = 0}, NULL, 0, net_whole, 1, &t, &err),
              err);
    size_t bad = 0;
    for (int s = EMBED_SITE; s < SITES; s++)
        for (int q = 0; q < REQUESTS; q++)
            for (int pos = 0; pos < POSITIONS; pos++)
                for (int i = 0; i < WIDTH && base.made[s][q][pos]; i++)
                    if (!isfinite(base.value[s][q][pos][i])) {
                        bad++;
                        break;
                    }
    assert_int_equal(bad, 5 * LAYERS + 2);
    /* The largest finite value of every site, and where it is. */
    assert_int_equal(t.n_ranges, SITES - 1); /* positions are whole numbers */
    for (size_t k = 0; k < t.n_ranges; k++) {
        float largest = 0;
        int s = (int)t.ranges[k].site;
        const struct ds_row *at = &t.rows[t.ranges[k].row];
        int seen = 0;
        for (int q = 0; q < REQUESTS; q++)
            for (int pos = 0; pos < POSITIONS; pos++)
                for (int i = 0; i < WIDTH && base.made[s][q][pos]; i++) {
                    float v = fabsf(base.value[s][q][pos][i]);
                    largest = isfinite(v) && v > largest ? v : largest;
                }
        for (int i = 0; i < WIDTH; i++)
            seen |= fabsf(base.value[s][at->request][at->position][i]) == largest;
        assert_true(t.ranges[k].max_abs == largest && seen);
    }
    assert_int_equal(t.n_nonfinites, bad);
    assert_int_equal(t.nonfinites[0].site, FIRST_LAYER_SITE + NORM);
    assert_int_equal(t.rows[t.nonfinites[0].row].position, 11);
    assert_int_equal(t.nonfinites[0].nan, 1);
    assert_int_equal(t.nonfinites[0].first, 5);
    assert_int_equal(t.nonfinites[bad - 1].inf, 1);
    ds_trial_data_free(&t);
    /* the same again: equal to a reference, nothing to report */
    assert_ok(net_trial(&base, p, &(struct ds_trial){.arm = 1}, &arm, 1, net_whole, 1, &t, &err),
              err);
    assert_int_equal(t.n_nonfinites + t.n_drifts + t.n_ranges, 0);
    ds_trial_data_free(&t);
    /* another row gets bad: only what differs is reported */
    base.bump[base.n_bumps++] = (struct net_bump){LOGITS_SITE, 0, 11, -INFINITY};
    assert_ok(net_trial(&base, p, &(struct ds_trial){.arm = 1}, &arm, 1, net_whole, 1, &t, &err),
              err);
    assert_int_equal(t.n_nonfinites, 1);
    assert_int_equal(t.n_drifts, 1);
    assert_int_equal(t.drifts[0].nonfinite, 1);
    ds_trial_data_free(&t);
    ds_probe_free(p);
    ds_hold_free(hold);
}

/* Past the limit a row is dumped only if it is far worse than all before it. */
static void test_one_bad_row_among_many_is_dumped(void **state)
{
    (void)state;
    static const uint32_t arm = 0;
    struct ds_error err;
    struct ds_trial_data t;
    net_init(&base);
    struct ds_hold *hold = net_hold(&base, &arm, 1, 1u << 24);
    struct ds_probe *p = net_probe(&base, hold, DS_DUMP_ORIGINS, 2);
    assert_ok(net_trial(&base, p, &(struct ds_trial){.arm = 0}, NULL, 0, net_whole, 1, &t, &err),
              err);
    ds_trial_data_free(&t);
    now = base;
    for (int pos = 0; pos < 7; pos++)
        now.bump[now.n_bumps++] = (struct net_bump){EMBED_SITE, 0, pos, pos == 5 ? 50.0f : 0.001f};
    assert_ok(net_trial(&now, p, &(struct ds_trial){.arm = 1}, &arm, 1, net_whole, 1, &t, &err),
              err);
    for (int pos = 0; pos < 7; pos++) {
        int there = 0;
        for (size_t k = 0; k < t.n_blobs; k++)
            there |= t.blobs[k].digest == net_digest(&now, EMBED_SITE, 0, pos);
        assert_int_equal(there, pos < 2 || pos == 5);
    }
    ds_trial_data_free(&t);
    ds_probe_free(p);
    ds_hold_free(hold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drifts_and_dumps_equal_brute_force),
        cmocka_unit_test(test_the_same_when_everything_is_spilled),
        cmocka_unit_test(test_same_rows_in_other_calls_do_not_drift),
        cmocka_unit_test(test_labels_see_through_sites_that_are_off),
        cmocka_unit_test(test_inputs_of_earlier_calls_are_kept),
        cmocka_unit_test(test_rows_are_matched_by_key),
        cmocka_unit_test(test_nonfinite_rows_are_watched),
        cmocka_unit_test(test_one_bad_row_among_many_is_dumped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
