/* test_explain_others.c: which other rows of a call move a row: one, any, or several together; none. */
#include "tests/unit/testing.h"

#include "kernels/lab/explain.h"

#include <math.h>
#include <string.h>

enum { N = 2, K = 4, CALL = 9, OWN = 4 };

static int is_large(const struct ds_matmul_args *a, int64_t row)
{
    return row < a->rows && fabsf(a->x[row * a->ldx]) > 2;
}

static int in_any(const struct ds_matmul_args *a)
{
    int any = 0;
    for (int64_t r = 0; r < a->rows; r++)
        any |= is_large(a, r);
    return any;
}

/* y = the row's first element, and one more where the rule says so. */
static int answer(const struct ds_matmul_args *a, int more)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++)
            a->y[r * a->ldy + j] = a->x[r * a->ldx] + (float)more;
    return 0;
}

#define RULE(rule, more)                                                                           \
    static int rule##_launch(const void *args, const struct ds_exec *exec, char *why, size_t size) \
    {                                                                                              \
        const struct ds_matmul_args *a = args;                                                     \
        (void)exec, (void)why, (void)size;                                                         \
        return answer(a, more);                                                                    \
    }                                                                                              \
    static const struct ds_kernel rule = {                                                         \
        .op = DS_OP_MATMUL, .name = #rule, .launch = rule##_launch}

RULE(alone, 0);
RULE(by_next, is_large(a, OWN + 1));
RULE(by_given, is_large(a, 0));
RULE(by_any, in_any(a));
RULE(by_two, is_large(a, 2) && is_large(a, 7));

static int launches;
RULE(by_turns, launches++ % 2);

static struct ds_explain_others ask(const struct ds_kernel *k)
{
    static const float x[K] = {1, 1, 1, 1}, w[N * K] = {1, 1, 1, 1, 1, 1, 1, 1}, y[N] = {1, 1};
    struct ds_explain_row rows[2];
    struct ds_explain e = {.op = DS_OP_MATMUL, .rows = rows, .n_rows = 2};
    struct ds_explain_others o;
    struct ds_error err;
    memset(rows, 0, sizeof rows);
    e.shared.matmul = (struct ds_matmul_args){.n = N, .k = K, .w = {.data = w, .n = N, .k = K}};
    for (int s = 0; s < DS_SIDES; s++) {
        e.side[s].kernel = k;
        e.side[s].threads = 1;
        for (int r = 0; r < 2; r++) {
            rows[r].input[s].in[0] = x;
            rows[r].y[s] = y;
            rows[r].at[s] = (struct ds_explain_at){.rows = CALL, .row = r ? 0 : OWN};
        }
    }
    assert_ok(ds_explain_others(&e, DS_SIDE_B, &o, &err), err);
    assert_int_equal(o.elements, 2 * N);
    return o;
}

static void expect(const struct ds_kernel *k, int64_t guilty, int64_t needed, int64_t alone_too)
{
    const struct ds_explain_others o = ask(k);
    if (o.guilty != guilty || o.needed != needed || o.alone != alone_too)
        print_error("%s: by %d, %d needed, %d alone\n", k->name, (int)o.guilty, (int)o.needed,
                    (int)o.alone);
    assert_int_equal(o.guilty, guilty);
    assert_int_equal(o.needed, needed);
    assert_int_equal(o.alone, alone_too);
}

static void test_guilty_rows(void **state)
{
    (void)state;
    expect(&by_next, OWN + 1, 1, 1);
    expect(&by_given, 0, 1, 1); /* a row that is explained itself */
    expect(&by_any, 0, 1, CALL - 1);
    expect(&by_two, 2, 2, 0);
}

/* Rows that move by themselves, from launch to launch, are moved by no other row. */
static void test_nobody(void **state)
{
    const struct ds_kernel *const kernels[] = {&alone, &by_turns};
    (void)state;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        const struct ds_explain_others o = ask(kernels[i]);
        assert_int_equal(o.moved, 0);
        assert_int_equal(o.guilty, -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guilty_rows),
        cmocka_unit_test(test_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
