/* test_explain_reproduce.c: a reproducer whose steps do not give both sides' bits is refused. */
#include "tests/unit/testing.h"

#include "cli/explain_reproduce.h"

#include "base/dtype.h"
#include "kernels/lab/order_replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, TERMS = 3 };

/* x . w of each row: one chain in ascending order, with FMA. */
struct world {
    struct ds_explanation x;
    struct ds_case c;
    struct ds_shown s;
    struct ds_shown_steps t;
    float fx[ROWS * TERMS], fw[TERMS];
    int32_t first[2], zero_start[1], inputs[1], term[TERMS];
    uint8_t kind[TERMS], flags[TERMS];
};

static struct world *world_new(void)
{
    static const float x[ROWS * TERMS] = {0.1f, 0.7f, -3.3f, 1.1f, 0.3f, 5.7f},
                                w[TERMS] = {1.3f, -0.9f, 0.07f};
    struct world *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->c.e.op = DS_OP_MATMUL;
    d->x.c = &d->c;
    d->s.x = &d->x;
    d->s.terms = TERMS;
    d->s.n = ROWS;
    memcpy(d->fx, x, sizeof x);
    memcpy(d->fw, w, sizeof w);
    d->s.factors_x = d->fx;
    d->s.factors_w = d->fw;
    d->first[1] = TERMS;
    d->t.first = d->first;
    d->t.zero_start = d->zero_start;
    d->t.inputs = d->inputs;
    d->t.term = d->term;
    d->t.kind = d->kind;
    d->t.flags = d->flags;
    for (int k = 0; k < TERMS; k++) {
        d->term[k] = k;
        d->kind[k] = k ? DS_STEP_FMA : DS_STEP_PUSH;
    }
    for (int r = 0; r < ROWS; r++) {
        const float *row = x + r * TERMS;
        d->s.row[r] = r;
        d->s.a[r] = fmaf(row[2], w[2], fmaf(row[1], w[1], row[0] * w[0]));
        d->s.b[r] = d->s.a[r];
    }
    return d;
}

static void test_right_steps(void **state)
{
    struct world *d = world_new();
    struct ds_error err;
    (void)state;
    for (int side = 0; side < DS_SIDES; side++)
        assert_ok(ds_reproduce_shows(&d->s, side, &d->t, &err), err);
    free(d);
}

static void test_wrong_steps_or_factors(void **state)
{
    struct world *d = world_new();
    struct ds_error err = {0};
    (void)state;
    d->s.b[1] = ds_f32_from_bits(ds_f32_bits(d->s.b[1]) + 1);
    assert_ok(ds_reproduce_shows(&d->s, DS_SIDE_A, &d->t, &err), err);
    assert_int_equal(ds_reproduce_shows(&d->s, DS_SIDE_B, &d->t, &err), -1);
    assert_non_null(strstr(err.msg, "it would show nothing"));
    assert_non_null(strstr(err.msg, "in B's order, give 1 of 2 elements of B"));
    d->fx[0] = 0;
    assert_int_equal(ds_reproduce_shows(&d->s, DS_SIDE_A, &d->t, &err), -1);
    assert_non_null(strstr(err.msg, "in A's order, give 1 of 2 elements of A"));
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_steps),
        cmocka_unit_test(test_wrong_steps_or_factors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
