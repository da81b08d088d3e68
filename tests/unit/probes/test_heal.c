/* test_heal.c: heal trials: every row that differs from the held one is overwritten with it, after its
 * digest and sizes are taken, so that each fault shows where it is made and nowhere else. The network
 * computes on from what the probe leaves. */
#include "tests/unit/probes/net.h"

#include <math.h>

static struct net base, now;

static const uint32_t arm0 = 0;
static const struct ds_trial healing = {.arm = 1, .pass = DS_PASS_HEAL, .healed_to = 0};

/* Faults in every kind of site, of several rows, in two layers. */
static const struct net_bump faults[] = {
    {POSITION_SITE, 2, 4, 3},
    {EMBED_SITE, 1, 3, 0.5f},
    {FIRST_LAYER_SITE + KEY, 0, 2, -4},
    {FIRST_LAYER_SITE + ATTN, 0, 7, 1},
    {FIRST_LAYER_SITE + 5 + NORM, 1, 1, 2},
    {FIRST_LAYER_SITE + 5 + MIX, 2, 10, 8},
    {FIRST_LAYER_SITE + 10 + RESID, 0, 11, NAN},
    {LOGITS_SITE, 0, 11, 1},
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

static void hold_base(struct ds_hold **hold, struct ds_probe **p, enum ds_dump dump,
                      const struct net_call *calls, int n_calls)
{
    struct ds_error err;
    struct ds_trial_data t;
    net_init(&base);
    net_init(&now);
    *hold = net_hold(&base, &arm0, 1, 1 << 24);
    *p = net_probe(&base, *hold, dump, 64);
    assert_ok(net_trial(&base, *p, &(struct ds_trial){.arm = 0}, NULL, 0, calls, n_calls, &t, &err),
              err);
    ds_trial_data_free(&t);
}

static uint64_t recorded(const struct ds_trial_data *t, int site, int q, int position)
{
    for (size_t c = 0; c < t->n_captures; c++)
        for (uint32_t i = 0; (int)t->captures[c].site == site && i < t->captures[c].rows; i++) {
            const struct ds_row *r = &t->rows[t->captures[c].first_row + i];
            if (r->request == q && r->position == position)
                return t->digests[t->captures[c].first_digest + i];
        }
    fail_msg("site %d has no row %d of request %d", site, position, q);
    return 0;
}

/* Whether every row that both made is the same now, and the faults are the only drifts. */
static void check_healed(const struct ds_trial_data *t)
{
    size_t bytes;
    for (int s = 0; s < SITES; s++)
        for (int q = 0; q < REQUESTS; q++)
            for (int k = 0; k < POSITIONS; k++)
                if (base.made[s][q][k] && now.made[s][q][k]) {
                    /* before the assertion, which may read `bytes` first */
                    const void *mine = net_row(&now, s, q, k, &bytes),
                               *theirs = net_row(&base, s, q, k, &bytes);
                    assert_memory_equal(mine, theirs, bytes);
                }
    assert_int_equal(t->n_drifts, FAULTS);
    for (size_t i = 0; i < FAULTS; i++) {
        const struct net_bump *b = &faults[i];
        size_t found = 0;
        for (size_t d = 0; d < t->n_drifts; d++) {
            const struct ds_row *r = &t->rows[t->drifts[d].row];
            if ((int)t->drifts[d].site != b->site || r->request != b->request ||
                r->position != b->position)
                continue;
            found++;
            assert_int_equal(t->drifts[d].ref_arm, 0);
            assert_int_equal(t->drifts[d].elements, 1);
            assert_true(t->drifts[d].digest == recorded(t, b->site, b->request, b->position));
            assert_true(t->drifts[d].ref_digest ==
                        net_digest(&base, b->site, b->request, b->position));
            if (b->site != POSITION_SITE && b->add == b->add)
                assert_true(t->drifts[d].max_abs == (double)(b->add < 0 ? -b->add : b->add));
        }
        assert_int_equal(found, 1);
    }
}

static void test_each_fault_shows_alone_and_its_bytes_are_healed(void **state)
{
    static const struct {
        const struct net_call *calls;
        int n;
    } cases[] = {{net_whole, 1}, {net_chunks, 4}};
    (void)state;
    for (size_t c = 0; c < 2; c++) {
        struct ds_error err;
        struct ds_hold *hold;
        struct ds_probe *p;
        struct ds_trial_data t;
        hold_base(&hold, &p, DS_DUMP_NONE, net_whole, 1);
        memcpy(now.bump, faults, sizeof faults);
        now.n_bumps = FAULTS;
        assert_ok(net_trial(&now, p, &healing, &arm0, 1, cases[c].calls, cases[c].n, &t, &err),
                  err);
        if (cases[c].n == 1)
            check_healed(&t);
        else /* logits of the last row of each call: some have no counterpart */
            assert_int_equal(t.n_drifts, FAULTS);
        struct ds_header h = net_header(&base, 2);
        assert_ok(ds_trial_data_check(&h, &t, &err), err);
        assert_int_equal(t.info.healed_to, 0);
        ds_trial_data_free(&t);
        /* Without faults there is nothing to heal, and a natural trial afterwards heals nothing. */
        now.n_bumps = 0;
        assert_ok(net_trial(&now, p, &healing, &arm0, 1, net_whole, 1, &t, &err), err);
        assert_int_equal(t.n_drifts, 0);
        ds_trial_data_free(&t);
        now.n_bumps = 1;
        now.bump[0] = faults[2];
        assert_ok(
            net_trial(&now, p, &(struct ds_trial){.arm = 1}, &arm0, 1, net_whole, 1, &t, &err),
            err);
        assert_true(t.n_drifts > 10);
        ds_trial_data_free(&t);
        ds_probe_free(p);
        ds_hold_free(hold);
    }
}

/* The reference has only the first rows: the others keep what they are, and what is made from them. */
static void test_a_row_without_a_counterpart_is_left_alone(void **state)
{
    static const struct net_call part[] = {{{{0, 0, 5}, {1, 0, 3}}, 2, 0}};
    struct ds_error err;
    struct ds_hold *hold;
    struct ds_probe *p;
    struct ds_trial_data t;
    const int key = FIRST_LAYER_SITE + KEY, attn = FIRST_LAYER_SITE + ATTN;
    (void)state;
    hold_base(&hold, &p, DS_DUMP_NONE, part, 1);
    now.n_bumps = 2;
    now.bump[0] = (struct net_bump){key, 0, 2, -4};
    now.bump[1] = (struct net_bump){key, 0, 8, -4};
    assert_ok(net_trial(&now, p, &healing, &arm0, 1, net_whole, 1, &t, &err), err);
    assert_int_equal(t.n_drifts, 1);
    assert_int_equal(t.drifts[0].site, key);
    assert_int_equal(t.rows[t.drifts[0].row].position, 2);
    struct net clean;
    memcpy(&clean, &base, sizeof clean);
    struct ds_trial_data u;
    struct ds_probe *plain = net_probe(&clean, NULL, DS_DUMP_NONE, 0);
    assert_ok(
        net_trial(&clean, plain, &(struct ds_trial){.arm = 1}, NULL, 0, net_whole, 1, &u, &err),
        err);
    assert_true(now.value[key][0][8][5] == clean.value[key][0][8][5] - 4);
    assert_true(now.value[attn][0][8][5] != clean.value[attn][0][8][5]);
    assert_memory_equal(now.value[attn][0][4], clean.value[attn][0][4], WIDTH * sizeof(float));
    assert_memory_equal(now.value[attn][0][7], clean.value[attn][0][7], WIDTH * sizeof(float));
    ds_trial_data_free(&u);
    ds_trial_data_free(&t);
    ds_probe_free(plain);
    ds_probe_free(p);
    ds_hold_free(hold);
}

static int has_blob(const struct ds_trial_data *t, uint64_t digest)
{
    for (size_t i = 0; i < t->n_blobs; i++)
        if (t->blobs[i].digest == digest)
            return 1;
    return 0;
}

/* All drifts of a heal trial are origins; but one whose kernel reads the whole call, where another row
 * of it drifted, is not known to be. */
static void test_origins_are_dumped_with_equal_inputs(void **state)
{
    struct ds_error err;
    struct ds_hold *hold;
    struct ds_probe *p;
    struct ds_trial_data t;
    const int attn = FIRST_LAYER_SITE + ATTN, mix = FIRST_LAYER_SITE + MIX,
              second = FIRST_LAYER_SITE + 5 + KEY, third = FIRST_LAYER_SITE + 10 + KEY;
    (void)state;
    hold_base(&hold, &p, DS_DUMP_ORIGINS, net_whole, 1);
    now.n_bumps = 7;
    now.bump[0] = (struct net_bump){attn, 0, 7, 1};
    now.bump[1] = (struct net_bump){mix, 1, 3, 1};
    now.bump[2] = (struct net_bump){second, 2, 5, 1};
    now.bump[3] = (struct net_bump){second, 2, 6, 1};
    now.bump[4] = (struct net_bump){third, 2, 5, 1};
    now.bump[5] = (struct net_bump){third, 2, 6, 1};
    now.bump[6] = (struct net_bump){attn, 0, 8, 1};
    assert_ok(net_trial(&now, p, &healing, &arm0, 1, net_whole, 1, &t, &err), err);
    assert_int_equal(t.n_drifts, 7);
    assert_true(has_blob(&t, recorded(&t, attn, 0, 8)));
    assert_true(has_blob(&t, recorded(&t, attn, 0, 7)));
    assert_true(has_blob(&t, net_digest(&base, attn, 0, 7)));
    assert_true(has_blob(&t, net_digest(&base, FIRST_LAYER_SITE + KEY, 0, 7))); /* its input */
    assert_true(!has_blob(&t, recorded(&t, mix, 1, 3)));
    assert_true(has_blob(&t, recorded(&t, second, 2, 5)));
    assert_true(
        has_blob(&t, recorded(&t, second, 2, 6))); /* the first of its stage: more than one */
    assert_true(has_blob(&t, recorded(&t, third, 2, 5)));
    assert_true(!has_blob(&t, recorded(&t, third, 2, 6))); /* another layer: one is enough */
    ds_trial_data_free(&t);
    ds_probe_free(p);
    ds_hold_free(hold);
}

static void test_healing_needs_one_reference_and_its_rows(void **state)
{
    static const uint32_t both[] = {0, 1};
    struct ds_error err;
    struct ds_trial_data t;
    (void)state;
    net_init(&base);
    struct ds_hold *hold = net_hold(&base, both, 2, 1 << 24);
    struct ds_probe *p = net_probe(&base, hold, DS_DUMP_NONE, 0);
    assert_int_equal(net_trial(&base, p, &healing, &arm0, 1, net_whole, 1, &t, &err), -1);
    assert_non_null(strstr(err.msg, "arm 0"));
    for (uint32_t a = 0; a < 2; a++) {
        assert_ok(
            net_trial(&base, p, &(struct ds_trial){.arm = a}, NULL, 0, net_whole, 1, &t, &err),
            err);
        ds_trial_data_free(&t);
    }
    assert_int_equal(net_trial(&base, p, &healing, both, 2, net_whole, 1, &t, &err), -1);
    assert_int_equal(net_trial(&base, p, &healing, &both[1], 1, net_whole, 1, &t, &err), -1);
    assert_ok(net_trial(&base, p, &healing, both, 1, net_whole, 1, &t, &err), err);
    ds_trial_data_free(&t);
    ds_probe_free(p);
    ds_hold_free(hold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_fault_shows_alone_and_its_bytes_are_healed),
        cmocka_unit_test(test_a_row_without_a_counterpart_is_left_alone),
        cmocka_unit_test(test_origins_are_dumped_with_equal_inputs),
        cmocka_unit_test(test_healing_needs_one_reference_and_its_rows),
    };
    return cmocka_run_group_tests_name("heal", tests, NULL, NULL);
}
