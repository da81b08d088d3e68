/* test_census.c: sweeps with kernels that disagree with themselves: how often, from which size on,
 * and when repeating may end. */
#include "tests/whole/specimen_kernels.h"
#include "tests/whole/sweep_in_memory.h"

#include "dumps/census.h"

/* The sum's order is chance from 18 rows in the call on: alone in a batch, and in decoding, it is
 * stable. */
static void test_unstable_from_a_size_on(void **state)
{
    (void)state;
    struct outcome x;
    struct ask q = {
        .factor = {[DS_FACTOR_BATCH] = "1,2,4", [DS_FACTOR_KERNELS] = "reference+matmul=arrival"},
        .repeats = 4};
    specimen.from_rows = 18;
    judge(&x, &q);
    check("arrival", x.v.result == DS_RESULT_DRIFT && !x.v.stable);
    check("arrival", x.v.census->n_arms == 3 && x.v.census->arms[0].distinct == 1);
    check("arrival", x.v.census->arms[1].distinct == 4 && x.v.census->arms[2].distinct == 4);
    check("arrival", x.v.census->arms[1].first.label == DS_LABEL_ORIGIN);
    check_text("arrival", x.v.census->arms[1].first.stage, "q_proj");
    check("arrival", x.v.census->n_thresholds == 1);
    if (x.v.census->n_thresholds == 1) {
        const struct ds_census_threshold *t = &x.v.census->thresholds[0];
        check_text("arrival", t->variant, "arrival");
        check_text("arrival", t->measure, "rows");
        check("arrival", t->edge == DS_CENSUS_FROM && t->at == 18 && t->stable == 9);
    }
    done(&x);
}

/* One launch in so many is odd: whole runs agree most of the time. */
static void test_rare_flake_has_a_mode(void **state)
{
    (void)state;
    struct outcome x;
    struct ask q = {.factor = {[DS_FACTOR_KERNELS] = "reference+matmul=arrival"}, .repeats = 24};
    specimen.one_in = 300;
    judge(&x, &q);
    const struct ds_census_arm *c = &x.v.census->arms[0];
    check("flake", c->distinct > 1 && c->modal > c->trials / 2);
    check("flake", c->disagree == c->trials - c->modal);
    check("flake", c->agree > c->trials / 2 && c->agree < c->trials);
    check("flake", c->low > 0 && c->low < (double)c->disagree / c->trials);
    done(&x);
}

static void test_until_stable(void **state)
{
    (void)state;
    struct outcome x;
    struct ask q = {
        .factor = {[DS_FACTOR_BATCH] = "1,2", [DS_FACTOR_KERNELS] = "reference+matmul=arrival"},
        .repeats = (int)ds_flake_trials(0.4),
        .until_stable = 1,
        .load = 2};
    specimen.from_rows = 18;
    judge(&x, &q);
    check("arms", x.v.census->n_arms == 2);
    check("the stable arm runs to the end", x.v.census->arms[0].trials == ds_flake_trials(0.4));
    check("the stable arm", x.v.census->arms[0].excluded <= 0.4);
    check("the other ends at once", x.v.census->arms[1].trials == 2);
    done(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_unstable_from_a_size_on, forget_specimen),
        cmocka_unit_test_teardown(test_rare_flake_has_a_mode, forget_specimen),
        cmocka_unit_test_teardown(test_until_stable, forget_specimen),
    };
    return cmocka_run_group_tests(tests, add_specimens, NULL);
}
