/* test_far.c: rows that the probe cannot read where they are: it finds what it finds of others, and asks for
 * no row that it does not need. */
#include "tests/unit/probes/net.h"

#include <math.h>

static struct net base, now;
static const uint32_t arm0 = 0;

static const struct net_bump faults[] = {
    {EMBED_SITE, 1, 3, 0.5f},
    {FIRST_LAYER_SITE + KEY, 0, 2, -4},
    {FIRST_LAYER_SITE + 5 + MIX, 2, 10, 8},
    {FIRST_LAYER_SITE + 10 + RESID, 0, 11, NAN},
    {POSITION_SITE, 2, 4, 3},
};

/* Arm 0 held, then a trial of `info` with these faults; `far` for both. */
static void run(int far, int compare, int pass, enum ds_dump dump, int bumps,
                struct ds_trial_data *first, struct ds_trial_data *second)
{
    struct ds_error err;
    net_init(&base);
    net_init(&now);
    base.far.on = now.far.on = far;
    for (int i = 0; i < bumps; i++)
        now.bump[now.n_bumps++] = faults[i];
    struct ds_hold *hold = compare ? net_hold(&base, &arm0, 1, 1 << 24) : NULL;
    struct ds_probe *p = net_probe(&base, hold, dump, 4);
    const struct ds_trial info = {.arm = 1, .pass = (uint32_t)pass, .healed_to = 0};
    assert_ok(
        net_trial(&base, p, &(struct ds_trial){.arm = 0}, NULL, 0, net_chunks, 4, first, &err),
        err);
    assert_ok(net_trial(&now, p, &info, &arm0, compare ? 1 : 0, net_chunks, 4, second, &err), err);
    ds_probe_free(p);
    ds_hold_free(hold);
}

#define SAME(LIST, N)                                                                              \
    do {                                                                                           \
        assert_int_equal(a->N, b->N);                                                              \
        if (a->N)                                                                                  \
            assert_memory_equal(a->LIST, b->LIST, a->N * sizeof *a->LIST);                         \
    } while (0)

static void same(const struct ds_trial_data *a, const struct ds_trial_data *b)
{
    SAME(digests, n_digests);
    SAME(captures, n_captures);
    SAME(launches, n_launches);
    SAME(drifts, n_drifts);
    SAME(nonfinites, n_nonfinites);
    SAME(ranges, n_ranges);
    SAME(masks, n_masks);
    SAME(mask_words, n_mask_words);
    assert_int_equal(a->n_blobs, b->n_blobs);
    for (size_t i = 0; i < a->n_blobs; i++) {
        assert_true(a->blobs[i].digest == b->blobs[i].digest);
        assert_int_equal(a->blobs[i].bytes, b->blobs[i].bytes);
        assert_memory_equal(a->blobs[i].data, b->blobs[i].data, a->blobs[i].bytes);
    }
}

static void test_finds_the_same(void **state)
{
    static const struct {
        int compare, pass, dump, bumps;
    } cases[] = {{0, DS_PASS_NATURAL, DS_DUMP_NONE, 5},    {0, DS_PASS_NATURAL, DS_DUMP_ALL, 5},
                 {1, DS_PASS_NATURAL, DS_DUMP_ORIGINS, 5}, {1, DS_PASS_NATURAL, DS_DUMP_ALL, 5},
                 {1, DS_PASS_NATURAL, DS_DUMP_FIRST, 1},   {1, DS_PASS_HEAL, DS_DUMP_ORIGINS, 5},
                 {1, DS_PASS_HEAL, DS_DUMP_NONE, 5}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_trial_data near[2], far[2];
        const int dump = cases[i].dump;
        run(0, cases[i].compare, cases[i].pass, (enum ds_dump)dump, cases[i].bumps, &near[0],
            &near[1]);
        run(1, cases[i].compare, cases[i].pass, (enum ds_dump)dump, cases[i].bumps, &far[0],
            &far[1]);
        if (cases[i].compare)
            assert_true(near[1].n_drifts > 0);
        else
            assert_true(near[1].n_nonfinites > 0);
        for (int t = 0; t < 2; t++) {
            same(&near[t], &far[t]);
            ds_trial_data_free(&near[t]);
            ds_trial_data_free(&far[t]);
        }
    }
}

/* Rows that are read are those that drifted, each once; written, those that are healed. */
static void test_only_what_differs_is_asked_for(void **state)
{
    struct ds_trial_data a, b;
    (void)state;
    run(1, 0, DS_PASS_NATURAL, DS_DUMP_NONE, 0, &a, &b);
    assert_int_equal(now.far.reads, 0); /* digests and magnitudes come without */
    ds_trial_data_free(&a);
    ds_trial_data_free(&b);
    run(1, 1, DS_PASS_NATURAL, DS_DUMP_NONE, 0, &a, &b);
    assert_true(base.far.bytes > 0); /* what is held is read, in one piece a site */
    assert_true(base.far.reads <= SITES * 4);
    assert_int_equal(now.far.reads, 0);
    ds_trial_data_free(&a);
    ds_trial_data_free(&b);
    run(1, 1, DS_PASS_NATURAL, DS_DUMP_NONE, 4, &a, &b);
    assert_int_equal(now.far.reads, b.n_drifts);
    assert_int_equal(now.far.writes, 0);
    ds_trial_data_free(&a);
    ds_trial_data_free(&b);
    run(1, 1, DS_PASS_HEAL, DS_DUMP_NONE, 5, &a, &b);
    assert_int_equal(b.n_drifts, 5);
    assert_int_equal(now.far.reads, 5);
    assert_int_equal(now.far.writes, 5);
    ds_trial_data_free(&a);
    ds_trial_data_free(&b);
}

static void test_a_read_that_fails(void **state)
{
    struct ds_error err;
    struct ds_trial_data t;
    (void)state;
    net_init(&base);
    base.far.on = 1;
    struct ds_hold *hold = net_hold(&base, &arm0, 1, 1 << 24);
    struct ds_probe *p = net_probe(&base, hold, DS_DUMP_ORIGINS, 4);
    const struct ds_trial first = {.arm = 0}, second = {.arm = 1};
    base.far.fail_at = 3;
    assert_int_equal(net_trial(&base, p, &first, NULL, 0, net_whole, 1, &t, &err), -1);
    assert_non_null(strstr(err.msg, "the device does not answer"));
    assert_false(ds_hold_has(hold, 0));
    assert_ok(net_trial(&base, p, &first, NULL, 0, net_whole, 1, &t, &err), err);
    ds_trial_data_free(&t);
    net_init(&now);
    now.far.on = 1;
    now.far.fail_at = 1;
    now.bump[now.n_bumps++] = faults[0];
    assert_int_equal(net_trial(&now, p, &second, &arm0, 1, net_whole, 1, &t, &err), -1);
    assert_non_null(strstr(err.msg, "the device does not answer"));
    ds_probe_free(p);
    ds_hold_free(hold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_same),
        cmocka_unit_test(test_only_what_differs_is_asked_for),
        cmocka_unit_test(test_a_read_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
