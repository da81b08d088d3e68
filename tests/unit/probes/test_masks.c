/* Masks: which elements differ, over all rows that say something of a kernel; by brute force. */
#include "tests/unit/probes/net.h"

#include "base/dtype.h"
#include "dumps/mask.h"
#include "dumps/stats.h"

#include <math.h>

static struct net base, now;
static const uint32_t arm0;

static const struct ds_mask *mask_at(const struct ds_trial_data *t, int site, uint32_t phase)
{
    for (size_t i = 0; i < t->n_masks; i++)
        if ((int)t->masks[i].site == site && t->masks[i].phase == phase)
            return &t->masks[i];
    return NULL;
}

static void hold_base(struct ds_hold **hold, struct ds_probe **p)
{
    struct ds_error err;
    struct ds_trial_data t;
    net_init(&base);
    net_init(&now);
    *hold = net_hold(&base, &arm0, 1, 1 << 24);
    *p = net_probe(&base, *hold, DS_DUMP_NONE, 0);
    assert_ok(net_trial(&base, *p, &(struct ds_trial){.arm = 0}, NULL, 0, net_whole, 1, &t, &err),
              err);
    assert_int_equal(t.n_masks + t.n_mask_words, 0);
    ds_trial_data_free(&t);
}

/* Every drift entry's row is in its site's mask of a heal trial, and nothing else is: the bumps are to
 * element 5, so a second kind of element comes from a whole row. */
static void test_a_heal_trial_has_a_mask_of_every_site_that_drifts(void **state)
{
    const int key = FIRST_LAYER_SITE + KEY, mix = FIRST_LAYER_SITE + 5 + MIX;
    const struct ds_trial healing = {.arm = 1, .pass = DS_PASS_HEAL};
    struct ds_error err;
    struct ds_hold *hold;
    struct ds_probe *p;
    struct ds_trial_data t;
    (void)state;
    hold_base(&hold, &p);
    now.n_bumps = 4;
    now.bump[0] = (struct net_bump){key, 0, 2, -4};   /* call 0: prefill */
    now.bump[1] = (struct net_bump){key, 1, 7, 0.5f}; /* call 1: decode, as net_trial has it */
    now.bump[2] = (struct net_bump){key, 1, 8, 0.5f};
    now.bump[3] = (struct net_bump){mix, 2, 11, NAN};
    for (int round = 0; round < 2; round++) { /* twice: nothing is left over */
        assert_ok(net_trial(&now, p, &healing, &arm0, 1, net_chunks, 4, &t, &err), err);
        struct ds_header h = net_header(&base, 2);
        assert_ok(ds_trial_data_check(&h, &t, &err), err);
        assert_int_equal(t.n_masks, 3);
        assert_int_equal(mask_at(&t, key, DS_PHASE_PREFILL)->rows, 1);
        assert_int_equal(mask_at(&t, key, DS_PHASE_DECODE)->rows, 2);
        assert_int_equal(mask_at(&t, mix, DS_PHASE_DECODE)->rows, 1);
        for (size_t i = 0; i < t.n_masks; i++) {
            assert_int_equal(t.masks[i].width, WIDTH);
            assert_int_equal(t.masks[i].planes, 2);
            assert_true(t.mask_words[t.masks[i].first] == 1u << 5);
            assert_true(t.mask_words[t.masks[i].first + 1] == 1u << 5);
        }
        ds_trial_data_free(&t);
    }
    ds_probe_free(p);
    ds_hold_free(hold);
}

/* A natural trial: rows that inherit say nothing of the kernel. */
static void test_a_natural_trial_has_masks_of_origins(void **state)
{
    const int key = FIRST_LAYER_SITE + KEY, later = FIRST_LAYER_SITE + 10 + NORM;
    struct ds_error err;
    struct ds_hold *hold;
    struct ds_probe *p;
    struct ds_trial_data t;
    (void)state;
    hold_base(&hold, &p);
    now.n_bumps = 2;
    now.bump[0] = (struct net_bump){key, 0, 2, -4};
    now.bump[1] = (struct net_bump){later, 1, 4, 1};
    assert_ok(net_trial(&now, p, &(struct ds_trial){.arm = 1}, &arm0, 1, net_whole, 1, &t, &err),
              err);
    assert_true(t.n_drifts > 20);
    assert_int_equal(t.n_masks, 2);
    assert_int_equal(mask_at(&t, key, DS_PHASE_PREFILL)->rows, 1);
    assert_int_equal(mask_at(&t, later, DS_PHASE_PREFILL)->rows, 1);
    ds_trial_data_free(&t);
    /* A difference of rounding: one step of one element. */
    now.n_bumps = 1;
    float x = base.value[key][0][2][5];
    now.bump[0] = (struct net_bump){key, 0, 2, nextafterf(x, INFINITY) - x};
    assert_ok(net_trial(&now, p, &(struct ds_trial){.arm = 1}, &arm0, 1, net_whole, 1, &t, &err),
              err);
    assert_int_equal(mask_at(&t, key, DS_PHASE_PREFILL)->planes, 1);
    assert_true(t.mask_words[mask_at(&t, key, DS_PHASE_PREFILL)->first] == 1u << 5);
    ds_trial_data_free(&t);
    ds_probe_free(p);
    ds_hold_free(hold);
}

/* Bits against a loop over the elements, with the rule that dumped rows are judged by. */
static void test_bits_equal_brute_force(void **state)
{
    static const uint32_t widths[] = {1, 3, 63, 64, 65, 200};
    static const int dtypes[] = {DS_F32, DS_BF16, DS_F16, DS_I32};
    uint32_t seed = 5;
    (void)state;
    for (size_t n = 0; n < 6 * 4 * 20; n++) {
        uint32_t width = widths[n % 6], a[200], b[200];
        struct ds_structure_site s = {.op = n / 24 % 2 ? DS_STRUCTURE_NORM : DS_STRUCTURE_OTHER,
                                      .dtype = dtypes[n / 6 % 4],
                                      .width = width,
                                      .order = 1e-6};
        size_t size = ds_dtype_size(s.dtype);
        for (uint32_t i = 0; i < width; i++) {
            seed = seed * 1664525u + 1013904223u;
            uint32_t bits = s.dtype == DS_F32    ? 0x3f000000u + (seed >> 9)
                            : s.dtype == DS_BF16 ? 0x3f00u + (seed >> 25)
                                                 : 0x3800u + (seed >> 22);
            uint32_t other = seed % 3 == 0   ? bits
                             : seed % 3 == 1 ? bits + (seed >> 29)
                             : n % 5 == 0    ? 0xffffffffu >> (size == 4 ? 0 : 16)
                                             : bits + (seed >> 31) * 0x40;
            memcpy((char *)a + i * size, &bits, size);
            memcpy((char *)b + i * size, &other, size);
        }
        struct ds_drift d = {0};
        uint64_t differ[4] = {0}, beyond[4] = {0};
        ds_stats_row(s.dtype, b, a, width, &d);
        ds_mask_row(&s, b, a, &d, differ, beyond);
        double rms = sqrt(d.ref_sq / width);
        for (uint32_t i = 0; i < width; i++) {
            float x, y;
            int same = memcmp((char *)a + i * size, (char *)b + i * size, size) == 0, off = 0;
            if (s.dtype != DS_I32) {
                ds_widen_row(s.dtype, &x, (char *)a + i * size, 1);
                ds_widen_row(s.dtype, &y, (char *)b + i * size, 1);
                off = !same && !(fabs((double)y - (double)x) <= ds_structure_slack(&s, x, y, rms));
            }
            assert_int_equal(differ[i / 64] >> i % 64 & 1, !same);
            assert_int_equal(beyond[i / 64] >> i % 64 & 1, off);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_heal_trial_has_a_mask_of_every_site_that_drifts),
        cmocka_unit_test(test_a_natural_trial_has_masks_of_origins),
        cmocka_unit_test(test_bits_equal_brute_force),
    };
    return cmocka_run_group_tests_name("masks", tests, NULL, NULL);
}
