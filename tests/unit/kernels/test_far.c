/* test_far.c: the lab on a device with memory of its own: what it finds on the host it finds there, too: reads
 * and writes outside of an array, unwritten memory, changed inputs, bits that depend on addresses; and a
 * launch function that looks at the device's memory. */
#include "tests/unit/testing.h"

#include "kernels/device_open.h"
#include "kernels/lab/check.h"
#include "kernels/lab/far.h"
#include "kernels/lab/stopwatch.h"
#include "kernels/lab/subject.h"
#include "kernels/registry.h"
#include "tests/unit/kernels/false_device.h"

#include <stdlib.h>
#include <string.h>

static struct ds_kernel false_add(int fault)
{
    return (struct ds_kernel){.abi = DS_KERNEL_ABI,
                              .op = DS_OP_ADD,
                              .name = "false",
                              .summary = "false",
                              .claims = DS_CLAIM_ALL,
                              .scratch_bytes = ds_false_scratch,
                              .launch = ds_false_adds[fault],
                              .device = DS_DEVICE_SIM};
}

static void check(const struct ds_kernel *k, unsigned only, struct ds_check_result *r)
{
    static const int threads[] = {1};
    const struct ds_check_options opt = {.threads = threads,
                                         .n_threads = 1,
                                         .no_speed = 1,
                                         .only = only,
                                         .seed = 1,
                                         .launch_seconds = 20};
    struct ds_shape shape;
    struct ds_error err;
    assert_ok(ds_shape_parse(k->op, "width=48", &shape, &err), err);
    assert_ok(ds_check_run(k, &shape, &opt, r, &err), err);
    assert_string_equal(r->why_not, "");
}

static void test_check_finds(void **state)
{
    static const struct {
        int fault, property;
        const char *says; /* NULL: it holds */
    } cases[] = {
        {FALSE_NONE, DS_PROPERTY_MEMORY, NULL},
        {FALSE_READS_BEYOND, DS_PROPERTY_MEMORY, "reads past the end of a (1 element behind it)"},
        {FALSE_READS_BEFORE, DS_PROPERTY_MEMORY,
         "reads before the start of b (1 element before it)"},
        {FALSE_WRITES_BEYOND, DS_PROPERTY_MEMORY, "past the end of y"},
        {FALSE_WRITES_GAP, DS_PROPERTY_MEMORY, "writes outside of y, at row 0, element 48"},
        {FALSE_WRITES_INPUT, DS_PROPERTY_MEMORY, "writes into its input a, at row 0, element 0"},
        {FALSE_LEAVES_ONE, DS_PROPERTY_MEMORY, "leaves y unwritten at row 0, element 47"},
        {FALSE_USES_PADDING, DS_PROPERTY_MEMORY, "where unwritten memory holds NaN against"},
        {FALSE_USES_SCRATCH, DS_PROPERTY_MEMORY, "where unwritten memory holds NaN against"},
        {FALSE_NONE, DS_PROPERTY_ALIGNMENT, NULL},
        {FALSE_BY_ADDRESS, DS_PROPERTY_ALIGNMENT, "packed at a 64-byte boundary against offset 1"},
        {FALSE_LAUNCHES, DS_PROPERTY_MEMORY,
         "reads a, which is on the device, from the host's code"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct ds_kernel k = false_add(cases[i].fault);
        struct ds_check_result r;
        check(&k, 1u << cases[i].property, &r);
        const struct ds_property_result *p = &r.property[cases[i].property];
        const int right = cases[i].says
                              ? p->state == DS_STATE_BROKEN && strstr(p->smallest, cases[i].says)
                              : p->state == DS_STATE_HOLDS && r.n_faults == 0;
        if (!right) {
            print_error("fault %d: state %d, '%s', note '%s'\n", cases[i].fault, p->state,
                        p->smallest, p->note);
            fail();
        }
    }
}

/* ---- devices that cannot guard, and that fail -------------------------------------------------------- */

static void run_on(int fault, struct ds_output *out)
{
    const struct ds_kernel k = false_add(fault);
    const struct ds_segment part = {.length = 2};
    const struct ds_call call = {.segment = &part, .n_segments = 1, .threads = 1};
    struct ds_shape shape;
    struct ds_error err;
    assert_ok(ds_shape_parse(k.op, "width=48", &shape, &err), err);
    struct ds_subject *s = ds_subject_new(&k, &shape, 7, &err);
    assert_non_null(s);
    assert_ok(ds_subject_run(s, &call, out, &err), err);
    ds_subject_free(s);
}

static struct ds_device *sim(void)
{
    struct ds_device *dev;
    struct ds_error err;
    assert_ok(ds_lab_device_of(DS_DEVICE_SIM, &dev, &err), err);
    assert_int_equal(dev->memory, DS_MEMORY_DEVICE);
    return dev;
}

static void test_inputs_are_compared_without_a_guard(void **state)
{
    struct ds_device *dev = sim();
    struct ds_output out = {0};
    int (*guard)(struct ds_device *, void *, size_t, int) = dev->guard;
    (void)state;
    dev->guard = NULL;
    run_on(FALSE_WRITES_INPUT, &out);
    assert_int_equal(out.fault.kind, DS_FAULT_WROTE_INPUT);
    assert_string_equal(out.fault.array, "a");
    assert_int_equal(out.fault.col, 0);
    run_on(FALSE_WRITES_BEYOND, &out); /* y ends with its page */
    assert_int_equal(out.fault.kind, DS_FAULT_OUT_OF_BOUNDS);
    assert_string_equal(out.fault.array, "y");
    assert_int_equal(out.fault.write, 1);
    assert_int_equal(out.fault.col, 1);
    run_on(FALSE_NONE, &out);
    assert_int_equal(out.fault.kind, DS_FAULT_NONE);
    dev->guard = guard;
    ds_output_free(&out);
}

static int wait_fails(struct ds_device *d)
{
    strcpy(d->why, "an illegal address in add");
    return -1;
}

static void test_a_device_that_fails(void **state)
{
    struct ds_device *dev = sim();
    struct ds_output out = {0};
    int (*wait)(struct ds_device *) = dev->wait;
    (void)state;
    dev->wait = wait_fails;
    run_on(FALSE_NONE, &out);
    dev->wait = wait;
    assert_int_equal(out.fault.kind, DS_FAULT_DEVICE);
    assert_string_equal(out.fault.text, "an illegal address in add");
    ds_output_free(&out);
}

/* What one call leaves in a place on the device is not there for the next one. */
static void test_poison_is_sent_again(void **state)
{
    const struct ds_kernel k = false_add(FALSE_LEAVES_ONE);
    const struct ds_segment part = {.length = 3};
    const struct ds_call call = {.segment = &part, .n_segments = 1, .threads = 1};
    struct ds_output out = {0};
    struct ds_shape shape;
    struct ds_error err;
    (void)state;
    assert_ok(ds_shape_parse(k.op, "width=48", &shape, &err), err);
    struct ds_kernel whole = false_add(FALSE_NONE);
    struct ds_subject *s = ds_subject_new(&whole, &shape, 7, &err);
    assert_non_null(s);
    assert_ok(ds_subject_run(s, &call, &out, &err), err);
    assert_int_equal(out.fault.kind, DS_FAULT_NONE);
    whole.launch = k.launch; /* the same places now */
    assert_ok(ds_subject_run(s, &call, &out, &err), err);
    assert_int_equal(out.fault.kind, DS_FAULT_UNWRITTEN);
    assert_int_equal(out.fault.col, 47);
    ds_subject_free(s);
    ds_output_free(&out);
}

/* ---- graphs, time ------------------------------------------------------------------------------------- */

/* A kernel that takes nothing from the host is the same in a graph, launch after launch. */
static void test_graphs_keep_bits(void **state)
{
    struct ds_check_result r;
    struct ds_kernel k = false_add(FALSE_NONE);
    (void)state;
    ds_lab_use_graphs(1);
    check(&k, 0, &r);
    for (int p = 0; p < DS_PROPERTY_COUNT; p++)
        assert_true(r.property[p].state != DS_STATE_BROKEN);
    assert_int_equal(r.property[DS_PROPERTY_REPEAT].state, DS_STATE_HOLDS);
    assert_int_equal(r.n_faults, 0);
    k = false_add(FALSE_LEAVES_ONE);
    check(&k, 1u << DS_PROPERTY_MEMORY, &r);
    assert_int_equal(r.property[DS_PROPERTY_MEMORY].state, DS_STATE_BROKEN);
    ds_lab_use_graphs(0);
}

static int launches;
static int count(void *arg, struct ds_error *err)
{
    (void)arg, (void)err;
    launches++;
    return 0;
}

static void test_stopwatch(void **state)
{
    struct ds_stopwatch *w;
    struct ds_error err;
    double seconds = -1;
    (void)state;
    assert_ok(ds_stopwatch_new(sim(), &w, &err), err);
    for (int flushed = 0; flushed < 2; flushed++) {
        launches = 0;
        assert_ok(ds_stopwatch_time(w, 3, flushed, count, NULL, &seconds, &err), err);
        assert_int_equal(launches, 3);
        assert_true(seconds >= 0);
    }
    ds_stopwatch_free(w);
}

/* ---- every member of every op ------------------------------------------------------------------------- */

/* A place for each pointer: what is no pointer of the table stays as it is. */
static void *shifted(void *arg, const void *host)
{
    (void)arg;
    return (char *)(uintptr_t)host + 0x1000000;
}

static void test_fields_are_pointers(void **state)
{
    (void)state;
    for (int op = 0; op < DS_OP_COUNT; op++) {
        union ds_any_args args, far;
        struct ds_far_field f[DS_FAR_FIELDS];
        struct ds_error err;
        const float **ranks;
        memset(&args, 0, sizeof args);
        if (!ds_subject_known(op))
            continue;
        if (op == DS_OP_CUSTOM)
            args.custom.n_tensors = 2;
        const int n = ds_far_fields(op, &args, f);
        assert_true(n > 0 && n <= DS_FAR_FIELDS);
        for (int i = 0; i < n; i++) {
            void *p = (void *)(uintptr_t)(0x5500000000u + (unsigned)i * 64);
            memcpy((char *)&args + f[i].at, &p, sizeof p);
        }
        assert_ok(ds_far_args(op, &args, &far, &ranks, shifted, NULL, &err), err);
        for (int i = 0; i < n; i++) {
            uintptr_t p;
            memcpy(&p, (char *)&far + f[i].at, sizeof p);
            assert_true(p == 0x5500000000u + (unsigned)i * 64 + 0x1000000);
        }
        free(ranks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_finds),
        cmocka_unit_test(test_inputs_are_compared_without_a_guard),
        cmocka_unit_test(test_a_device_that_fails),
        cmocka_unit_test(test_poison_is_sent_again),
        cmocka_unit_test(test_graphs_keep_bits),
        cmocka_unit_test(test_stopwatch),
        cmocka_unit_test(test_fields_are_pointers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
