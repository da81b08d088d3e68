/* test_kin.c: rows of one trial that were made of equal inputs, whatever their requests: the first that differs is sized, once a
 * family and site, and where nothing was asked for nothing is. */
#include "tests/unit/testing.h"

#include "probes/driftscope_probe.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 4, SITES = 2 };

static uint64_t family_of(void *ctx, const struct ds_row *row)
{
    (void)ctx;
    return row->occurrence ? 0 : (uint64_t)row->position; /* position 0: none */
}

static void make_sites(struct ds_site sites[SITES])
{
    memset(sites, 0, SITES * sizeof *sites);
    for (int i = 0; i < SITES; i++) {
        strcpy(sites[i].stage, i ? "final_norm" : "resid_ffn");
        strcpy(sites[i].op, "add");
        strcpy(sites[i].dtype, "f32");
        sites[i].width = WIDTH;
    }
}

/* One row of a request in a call of its own; its values are 1 but for the first one. */
static void show(struct ds_probe *p, int32_t request, int32_t position, int32_t occurrence,
                 float first)
{
    struct ds_error err;
    const struct ds_row row = {.request = request,
                               .position = position,
                               .occurrence = occurrence,
                               .q_len = 1,
                               .kv_len = 1};
    float data[WIDTH] = {first, 1, 1, 1};
    assert_ok(ds_probe_begin_call(p, DS_PHASE_DECODE, 1, 1, &row, 1, &err), err);
    for (uint32_t s = 0; s < SITES; s++)
        assert_ok(ds_probe_site(p, s, NULL, data, sizeof data, WIDTH, NULL, 0, &err), err);
    assert_ok(ds_probe_end_call(p, &err), err);
}

static void test_the_first_that_differs_is_sized(void **state)
{
    static const uint8_t on[SITES] = {1, 0};
    struct ds_site sites[SITES];
    struct ds_probe *p;
    struct ds_error err;
    (void)state;
    make_sites(sites);
    const struct ds_probe_config config = {
        .sites = sites, .n_sites = SITES, .kin = family_of, .kin_on = on};
    assert_ok(ds_probe_new(&config, &p, &err), err);
    for (int trial = 0; trial < 2; trial++) { /* the second one starts anew */
        const struct ds_trial info = {.arm = 3};
        struct ds_trial_data t;
        assert_ok(ds_probe_begin_trial(p, &info, NULL, 0, &err), err);
        show(p, 0, 0, 0, 1);
        show(p, 1, 0, 0, 9); /* of no family */
        show(p, 0, 5, 0, 1);
        show(p, 1, 5, 0, 1); /* the same bits */
        show(p, 2, 5, 1, 9); /* computed again: of no family */
        show(p, 2, 5, 0, 3); /* row 5 */
        show(p, 3, 5, 0, 4); /* one is enough */
        for (int32_t k = 6; k < 400; k++)
            show(p, 0, k, 0, 1);
        show(p, 1, 399, 0, 1.5f);
        assert_ok(ds_probe_end_trial(p, &t, &err), err);
        assert_int_equal(t.n_drifts, 2);
        const struct ds_drift *d = &t.drifts[0];
        assert_int_equal(d->site, 0);
        assert_int_equal(d->row, 5);
        assert_int_equal(d->ref_arm, 3);
        assert_int_equal(d->elements, 1);
        assert_close("size", 0, d->diff_sq, 4, 1e-12);
        assert_close("of", 0, d->ref_sq, 4, 1e-12);
        const float same[WIDTH] = {1, 1, 1, 1}, other[WIDTH] = {3, 1, 1, 1};
        assert_true(d->ref_digest == ds_digest(same, sizeof same));
        assert_true(d->digest == ds_digest(other, sizeof other));
        assert_int_equal(t.rows[t.drifts[1].row].position, 399);
        assert_close("size", 1, sqrt(t.drifts[1].diff_sq), 0.5, 1e-12);
        ds_trial_data_free(&t);
    }
    ds_probe_free(p);
}

/* A hold has room for the rows of a family alone, at one of two sites: they are kept, and compared with another trial's. */
static void test_of_a_hold_only_they_are_kept(void **state)
{
    static const uint8_t on[SITES] = {1, 0};
    static const uint32_t rows[SITES] = {2, 0}, held = 3;
    struct ds_site sites[SITES];
    struct ds_probe *p;
    struct ds_hold *hold;
    struct ds_error err;
    (void)state;
    make_sites(sites);
    const struct ds_hold_config hc = {.sites = sites,
                                      .n_sites = SITES,
                                      .site_rows = rows,
                                      .arms = &held,
                                      .n_arms = 1,
                                      .budget = 1 << 20};
    assert_ok(ds_hold_new(&hc, &hold, &err), err);
    const struct ds_probe_config config = {
        .sites = sites, .n_sites = SITES, .hold = hold, .kin = family_of, .kin_on = on};
    assert_ok(ds_probe_new(&config, &p, &err), err);
    for (uint32_t arm = 3; arm < 5; arm++) {
        const struct ds_trial info = {.arm = arm};
        struct ds_trial_data t;
        assert_ok(ds_probe_begin_trial(p, &info, arm > 3 ? &held : NULL, arm > 3, &err), err);
        show(p, 0, 0, 0, 1);
        show(p, 0, 5, 0, 1);
        show(p, 0, 5, 1, 1);
        show(p, 0, 6, 0, arm > 3 ? 3 : 1);
        assert_ok(ds_probe_end_trial(p, &t, &err), err);
        assert_int_equal(t.n_drifts, arm > 3);
        if (arm > 3) {
            assert_int_equal(t.drifts[0].site, 0);
            assert_int_equal(t.rows[t.drifts[0].row].position, 6);
            assert_int_equal(t.drifts[0].ref_arm, 3);
            assert_close("size", 0, t.drifts[0].diff_sq, 4, 1e-12);
        }
        ds_trial_data_free(&t);
    }
    ds_probe_free(p);
    ds_hold_free(hold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_that_differs_is_sized),
        cmocka_unit_test(test_of_a_hold_only_they_are_kept),
    };
    return cmocka_run_group_tests_name("kin", tests, NULL, NULL);
}
