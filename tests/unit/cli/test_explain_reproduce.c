/* test_explain_reproduce.c: what a reproducer shows: elements that the known arithmetic of a side gives, and no
 * others; why a side's is not known; sums along steps. */
#include "tests/unit/testing.h"

#include "cli/explain_reproduce.h"

#include "base/dtype.h"
#include "kernels/lab/order_replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, WIDTH = 3, ALL = ROWS * WIDTH };

/* Two rows of one call, of which all elements differ; both orders give every bit. */
struct world {
    struct ds_explanation x;
    struct ds_case c;
    struct ds_shown s;
    struct ds_explain_row rows[ROWS];
    float y[DS_SIDES][ALL], replayed[DS_SIDES][ALL];
};

static struct world *world_new(void)
{
    struct world *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->c.e.op = DS_OP_MATMUL;
    d->c.e.rows = d->rows;
    d->c.e.n_rows = ROWS;
    d->x.c = &d->c;
    d->s.x = &d->x;
    d->s.width = WIDTH;
    for (int side = 0; side < DS_SIDES; side++) {
        d->x.order[side].fixed = d->x.order[side].replayed = 1;
        d->x.order[side].y = d->replayed[side];
        d->x.order[side].match.drifting = ALL;
        for (int i = 0; i < ALL; i++)
            d->replayed[side][i] = d->y[side][i] = 1 + (float)i + (side == DS_SIDE_B ? 0.5f : 0);
        for (int r = 0; r < ROWS; r++)
            d->rows[r].y[side] = d->y[side] + r * WIDTH;
    }
    return d;
}

static void test_both_sides_known(void **state)
{
    struct world *d = world_new();
    struct ds_error err;
    (void)state;
    d->replayed[DS_SIDE_B][1] = 0;                                       /* one of six: not shown */
    d->y[DS_SIDE_B][3] = d->replayed[DS_SIDE_B][3] = d->y[DS_SIDE_A][3]; /* does not differ */
    ds_shown_know(&d->s);
    assert_true(d->s.known[DS_SIDE_A] && d->s.known[DS_SIDE_B]);
    assert_ok(ds_shown_choose(&d->s, &err), err);
    assert_int_equal(d->s.n, 4);
    for (size_t i = 0; i < d->s.n; i++) {
        const size_t at = d->s.from_row[i] * WIDTH + (size_t)d->s.column[i];
        assert_true(at != 1 && at != 3);
        for (int side = 0; side < DS_SIDES; side++)
            assert_int_equal(ds_f32_bits(d->s.y[side][i]), ds_f32_bits(d->y[side][at]));
    }
    free(d);
}

static void test_one_side_known(void **state)
{
    struct world *d = world_new();
    (void)state;
    for (int i = 0; i < ALL - 1; i++)
        d->replayed[DS_SIDE_B][i] = 0;
    d->x.order[DS_SIDE_B].match.drift_same[DS_SIDE_B] = 1;
    ds_shown_know(&d->s);
    assert_true(d->s.known[DS_SIDE_A]);
    assert_false(d->s.known[DS_SIDE_B]);
    assert_string_equal(d->s.unknown[DS_SIDE_B],
                        "its order of addition gives 1 of the 6 elements that differ");
    free(d);
}

static void test_no_side_known(void **state)
{
    struct world *d = world_new();
    (void)state;
    d->x.order[DS_SIDE_A].replayed = d->x.order[DS_SIDE_B].replayed = 0;
    d->x.order[DS_SIDE_A].fixed = 0;
    d->x.order[DS_SIDE_A].agreeing = 3;
    d->x.order[DS_SIDE_A].repeats = 8;
    strcpy(d->x.order[DS_SIDE_B].why, "the kernel is not here");
    ds_shown_know(&d->s);
    assert_false(d->s.known[DS_SIDE_A] || d->s.known[DS_SIDE_B]);
    assert_string_equal(d->s.unknown[DS_SIDE_A],
                        "no fixed order: 3 of 8 calls on the same data agree");
    assert_string_equal(d->s.unknown[DS_SIDE_B], "the kernel is not here");
    free(d);
}

static void test_no_element_differs(void **state)
{
    struct world *d = world_new();
    struct ds_error err = {0};
    (void)state;
    memcpy(d->y[DS_SIDE_B], d->y[DS_SIDE_A], sizeof d->y[0]);
    assert_int_equal(ds_shown_choose(&d->s, &err), -1);
    assert_non_null(strstr(err.msg, "no element of the rows dumped differs"));
    free(d);
}

/* x . w as one chain in ascending order, with FMA. */
static void test_sums_along_steps(void **state)
{
    enum { TERMS = 3 };
    static const float x[TERMS] = {0.1f, 0.7f, -3.3f}, w[TERMS] = {1.3f, -0.9f, 0.07f};
    int32_t first[2] = {0, TERMS}, zero_start[1] = {0}, inputs[1] = {0}, term[TERMS] = {0, 1, 2};
    uint8_t kind[TERMS] = {DS_STEP_PUSH, DS_STEP_FMA, DS_STEP_FMA}, flags[TERMS] = {0};
    struct world *d = world_new();
    struct ds_error err;
    float sum = 0;
    (void)state;
    d->s.steps[DS_SIDE_A] = (struct ds_shown_steps){.first = first,
                                                    .zero_start = zero_start,
                                                    .inputs = inputs,
                                                    .term = term,
                                                    .kind = kind,
                                                    .flags = flags,
                                                    .n_trees = 1,
                                                    .n = TERMS};
    assert_ok(ds_shown_add(&d->s, DS_SIDE_A, 0, TERMS, x, w, &sum, &err), err);
    assert_int_equal(ds_f32_bits(sum),
                     ds_f32_bits(fmaf(x[2], w[2], fmaf(x[1], w[1], x[0] * w[0]))));
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_sides_known), cmocka_unit_test(test_one_side_known),
        cmocka_unit_test(test_no_side_known),    cmocka_unit_test(test_no_element_differs),
        cmocka_unit_test(test_sums_along_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
