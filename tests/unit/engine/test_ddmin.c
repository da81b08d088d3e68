/* test_ddmin.c: minimal sets of made-up predicates: found exactly, 1-minimal always, and each search
 * ends. */
#include "tests/unit/testing.h"

#include "engine/bisect.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 300 };

struct world {
    size_t n, need[8], n_need;
    int odd;      /* also wants an odd number of elements: not monotone */
    size_t tests; /* so far */
    size_t stop_at;
};

static int holds(const struct world *w, const uint8_t *set)
{
    size_t members = 0;
    for (size_t i = 0; i < w->n; i++)
        members += set[i];
    for (size_t i = 0; i < w->n_need; i++)
        if (!set[w->need[i]])
            return 0;
    return !w->odd || members % 2 == 1;
}

static int test_set(void *ctx, const uint8_t *set, struct ds_error *err)
{
    struct world *w = ctx;
    (void)err;
    w->tests++;
    if (w->stop_at && w->tests >= w->stop_at)
        return DS_TRY_STOP;
    return holds(w, set) ? DS_TRY_YES : DS_TRY_NO;
}

static void assert_minimal(const struct world *w, uint8_t *set)
{
    assert_true(holds(w, set));
    for (size_t i = 0; i < w->n; i++) {
        if (!set[i])
            continue;
        set[i] = 0;
        assert_false(holds(w, set));
        set[i] = 1;
    }
}

static void test_finds_what_is_needed(void **state)
{
    (void)state;
    struct world worlds[] = {
        {.n = 1, .need = {0}, .n_need = 1},
        {.n = 2, .need = {1}, .n_need = 1},
        {.n = 9, .need = {4}, .n_need = 1},
        {.n = 100, .need = {0, 99}, .n_need = 2},
        {.n = 270, .need = {31, 32, 33, 34, 200}, .n_need = 5},
        {.n = 8, .need = {0, 1, 2, 3, 4, 5, 6, 7}, .n_need = 8},
    };
    for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++) {
        struct ds_error err;
        struct world *w = &worlds[k];
        uint8_t set[MOST] = {0};
        size_t members = 0;
        assert_int_equal(ds_ddmin(w->n, test_set, w, set, &err), 0);
        for (size_t i = 0; i < w->n; i++)
            members += set[i];
        assert_int_equal(members, w->n_need);
        assert_minimal(w, set);
        assert_true(w->tests < 40 + w->n_need * 60);
    }
}

/* Sets with an even number never pass: the smallest is not found by halves alone. */
static void test_not_monotone(void **state)
{
    (void)state;
    for (size_t a = 0; a < 15; a++)
        for (size_t b = a + 1; b < 15; b++) {
            struct ds_error err;
            struct world w = {.n = 15, .need = {a, b}, .n_need = 2, .odd = 1};
            uint8_t set[MOST] = {0};
            assert_int_equal(ds_ddmin(w.n, test_set, &w, set, &err), 0);
            assert_minimal(&w, set);
        }
}

static void test_stops(void **state)
{
    (void)state;
    struct ds_error err;
    struct world w = {.n = 20, .need = {7}, .n_need = 1, .stop_at = 4};
    uint8_t set[MOST] = {0};
    assert_int_equal(ds_ddmin(w.n, test_set, &w, set, &err), DS_TRY_STOP);
    assert_int_equal(w.tests, 4);
    assert_true(set[7]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_what_is_needed),
        cmocka_unit_test(test_not_monotone),
        cmocka_unit_test(test_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
