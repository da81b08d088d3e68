/* test_check_builtin.c: the measured properties of every built-in variant equal its claims: what it
 * claims holds, and what it does not claim is seen to be broken (but for libraries from outside, which
 * may hold more than they promise). Variants added later are held to it by being in the table. */
#include "tests/unit/testing.h"

#include "kernels/lab/check.h"
#include "kernels/registry.h"

#include <string.h>

static const int threads[] = {1, 2, 3, 4};

/* Small, but large enough for a sum to be worth cutting. */
static const char *shape_text(int op)
{
    switch (op) {
    case DS_OP_MATMUL:
        return "n=96,k=576";
    case DS_OP_EMBED:
        return "vocab=200,width=96";
    default:
        return "";
    }
}

static int from_outside(const struct ds_kernel *k)
{
    return k->op == DS_OP_MATMUL &&
           (strcmp(k->name, "openblas") == 0 || strncmp(k->name, "cblas", 5) == 0);
}

static int wrong_property(const struct ds_kernel *k, const struct ds_check_result *r, int p)
{
    const struct ds_property_result *x = &r->property[p];
    const uint32_t claim = ds_property_claim(p);
    const int promised = ds_property_always(k, p) || (k->claims & claim) != 0;
    if (x->state == DS_STATE_NOT_APPLICABLE)
        return 0;
    if (x->state == DS_STATE_NOT_RUN)
        return 1;
    if (promised)
        return x->state == DS_STATE_BROKEN;
    /* Where calls of one seed agree but repeats do not, that is what drifts. Slot and neighbours share
     * a claim: one of the two is enough. */
    if (r->property[DS_PROPERTY_REPEAT].state == DS_STATE_BROKEN)
        return 0;
    return claim && p != DS_PROPERTY_NEIGHBOURS && !from_outside(k) && x->state == DS_STATE_HOLDS;
}

static void check_op(int op)
{
    const struct ds_check_options opt = {
        .threads = threads, .n_threads = 4, .no_speed = 1, .seed = 7, .budget = 3e8};
    struct ds_shape shape;
    struct ds_error err;
    int bad = 0, ran = 0;
    assert_ok(ds_shape_parse(op, shape_text(op), &shape, &err), err);
    for (size_t i = 0; i < ds_kernel_count(); i++) {
        const struct ds_kernel *k = ds_kernel_at(i);
        struct ds_check_result r;
        if (k->op != op)
            continue;
        assert_ok(ds_check_run(k, &shape, &opt, &r, &err), err);
        if (r.why_not[0]) {
            print_message("%s/%s: not run: %s\n", ds_op_name(op), k->name, r.why_not);
            continue;
        }
        ran++;
        for (int p = 0; p < DS_PROPERTY_COUNT; p++)
            if (wrong_property(k, &r, p)) {
                bad++;
                print_error("%s/%s %s: state %d over %ld comparisons; %s; %s\n", ds_op_name(op),
                            k->name, ds_property_name(p), r.property[p].state,
                            (long)r.property[p].compared, r.property[p].smallest,
                            r.property[p].note);
            }
    }
    if (!ran)
        skip();
    assert_int_equal(bad, 0);
}

static void test_op(void **state)
{
    check_op((int)(intptr_t)*state);
}

/* Sums too short to show what a variant rounds: what longer ones lose is no wrong result. */
static void test_tiny_shapes(void **state)
{
    static const char *const shapes[] = {"n=257,k=1", "n=3,k=2"};
    const struct ds_check_options opt = {.threads = threads,
                                         .n_threads = 1,
                                         .no_speed = 1,
                                         .seed = 1,
                                         .only = 1u << DS_PROPERTY_SIZES};
    (void)state;
    for (size_t i = 0; i < ds_kernel_count() * 2; i++) {
        const struct ds_kernel *k = ds_kernel_at(i / 2);
        struct ds_check_result r;
        struct ds_shape shape;
        struct ds_error err;
        if (k->op != DS_OP_MATMUL)
            continue;
        assert_ok(ds_shape_parse(k->op, shapes[i % 2], &shape, &err), err);
        assert_ok(ds_check_run(k, &shape, &opt, &r, &err), err);
        if (!r.why_not[0] && r.property[DS_PROPERTY_SIZES].state != DS_STATE_HOLDS)
            fail_msg("%s at %s: %s", k->name, shapes[i % 2],
                     r.property[DS_PROPERTY_SIZES].smallest);
    }
}

#define OP(name, op)                                                                               \
    {                                                                                              \
        "test_" name, test_op, NULL, NULL, (void *)(intptr_t)op                                    \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP("embed", DS_OP_EMBED),           OP("rmsnorm", DS_OP_RMSNORM),
        OP("matmul", DS_OP_MATMUL),         OP("rope", DS_OP_ROPE),
        OP("cache", DS_OP_CACHE),           OP("softmax", DS_OP_SOFTMAX),
        OP("silu_mul", DS_OP_SILU_MUL),     OP("add", DS_OP_ADD),
        OP("router", DS_OP_ROUTER),         OP("combine", DS_OP_COMBINE),
        cmocka_unit_test(test_tiny_shapes), OP("sample", DS_OP_SAMPLE),
        OP("allreduce", DS_OP_ALLREDUCE),   OP("transfer", DS_OP_TRANSFER),
        OP("process", DS_OP_PROCESS),
    };
    return cmocka_run_group_tests_name("check of the built-in variants", tests, NULL, NULL);
}
