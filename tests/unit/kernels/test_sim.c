/* test_sim.c: the device sim: blocks, warps, shuffles, shared memory, atomics, conversions; errors that
 * name the kernel instead of a hang; and the faults of sim_kernels.cu found by check's repeat. */
#include "tests/unit/testing.h"

#include "base/dtype.h"
#include "kernels/device_open.h"
#include "kernels/lab/check.h"
#include "kernels/registry.h"
#include "kernels/sim/sim.h"
#include "tests/unit/kernels/sim_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void no_pause(void *arg, int thread)
{
    (void)arg, (void)thread;
}

/* In order, reversed, and at random. */
static struct ds_exec exec_of(int i)
{
    static const uint64_t seeds[] = {0, 3, 5, 12345, 7};
    return (struct ds_exec){.threads = 1, .seed = seeds[i], .pause = i == 1 ? no_pause : NULL};
}
enum { ORDERS = 5 };

static void run_ok(int which, int order, const void *in, void *out, int n)
{
    char why[256] = "";
    const struct ds_exec exec = exec_of(order);
    if (sim_test_run(which, &exec, in, out, n, why, sizeof why) != 0) {
        print_error("test %d, order %d: %s\n", which, order, why);
        fail();
    }
}

static void test_schedules(void **state)
{
    (void)state;
    const struct ds_exec in_order = exec_of(0), reversed = exec_of(1), random = exec_of(2);
    assert_int_equal(ds_sim_schedule_of(&in_order).order, DS_SIM_IN_ORDER);
    assert_int_equal(ds_sim_schedule_of(&reversed).order, DS_SIM_REVERSED);
    assert_int_equal(ds_sim_schedule_of(&random).order, DS_SIM_RANDOM);
}

static void test_indices(void **state)
{
    unsigned out[12 * 64];
    (void)state;
    for (int order = 0; order < ORDERS; order++) {
        memset(out, 0xff, sizeof out);
        run_ok(SIM_INDICES, order, NULL, out, 0);
        for (unsigned i = 0; i < 12 * 64; i++)
            assert_int_equal(out[i], i / 64 * 1000 + i % 64);
    }
}

static void test_lanes(void **state)
{
    unsigned out[32 * SIM_LANE_WORDS];
    (void)state;
    for (int order = 0; order < ORDERS; order++) {
        run_ok(SIM_LANES, order, NULL, out, 0);
        for (unsigned l = 0; l < 32; l++) {
            const unsigned *o = out + l * SIM_LANE_WORDS;
            const unsigned want[SIM_LANE_WORDS] = {15,
                                                   l + 4 < 32 ? l + 4 : l,
                                                   l >= 4 ? l - 4 : l,
                                                   l ^ 9,
                                                   l % 8 + 3 < 8 ? l + 3 : l,
                                                   l / 16 * 16 + 2,
                                                   0x49249249u,
                                                   1,
                                                   l < 16 ? 0xaaaau : 0xcccc0000u,
                                                   1};
            for (int i = 0; i < SIM_LANE_WORDS; i++)
                if (o[i] != want[i]) {
                    print_error("lane %u, result %d: %x, want %x\n", l, i, o[i], want[i]);
                    fail();
                }
        }
    }
}

static void test_shared_and_vectors(void **state)
{
    static float x[2 * 64 * 4] __attribute__((aligned(16)));
    static float y[2 * 64 * 4] __attribute__((aligned(16)));
    (void)state;
    for (int i = 0; i < 512; i++)
        x[i] = (float)i;
    for (int order = 0; order < ORDERS; order++) {
        memset(y, 0, sizeof y);
        run_ok(SIM_REVERSE, order, x, y, 9);
        for (int i = 0; i < 512; i++)
            assert_true(y[i] == (float)(i / 256 * 256 + (63 - i % 256 / 4) * 4 + i % 4));
    }
}

static void test_atomics(void **state)
{
    (void)state;
    for (int order = 0; order < ORDERS; order++) {
        struct {
            int sum, most, swapped;
            float total;
        } out = {0, 0, 0, 0.0f};
        run_ok(SIM_COUNTS, order, NULL, &out, 0);
        assert_int_equal(out.sum, 480);
        assert_int_equal(out.most, 479);
        assert_int_equal(out.swapped, 7);
        assert_true(out.total == 240.0f);
    }
}

static void test_shared_memory_is_poisoned(void **state)
{
    float out[64];
    (void)state;
    for (int order = 0; order < ORDERS; order++) {
        run_ok(SIM_UNWRITTEN, order, NULL, out, 0);
        for (int i = 0; i < 64; i++)
            assert_true(isnan(out[i]));
    }
}

static void test_errors(void **state)
{
    static const struct {
        int which, n;
        const char *says[3];
    } cases[] = {
        {SIM_HALF_AT_BARRIER, 0, {"half_at_barrier", "40 of 64", "has ended"}},
        {SIM_TWO_BARRIERS, 0, {"two_barriers", "divergent __syncthreads", "waits at"}},
        {SIM_LANE_MISSING, 0, {"lane_missing", "shuffle", "lane 7 has ended"}},
        {SIM_LANE_NOT_IN_MASK, 0, {"lane_not_in_mask", "0000ffff", "not in the mask"}},
        {SIM_PARTIAL_WARP, 0, {"lanes", "lane 20 does not exist", "mask ffffffff"}},
        {SIM_MANY_THREADS, 0, {"nothing", "(1025,1,1)", "block"}},
        {SIM_BOUNDED,
         65,
         {"bounded", "(1,65,1)", "more threads than the 64 of its __launch_bounds__"}},
        {SIM_BOUNDED_BY_1, 33, {"bounded_by<1>", "(33,1,1)", "than the 32 of"}},
        {SIM_BOUNDED_BY_8, 257, {"bounded_by<8>", "(257,1,1)", "than the 256 of"}},
        {SIM_MUCH_SHARED, 0, {"nothing", "1048576 bytes", "shared memory"}},
        {SIM_NO_GRID, 0, {"nothing", "grid (0,1,1)", ""}},
#if !defined(__SANITIZE_ADDRESS__)
        {SIM_BEHIND_DYNAMIC, 32, {"behind_dynamic", "128 bytes", "behind"}},
#endif
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int order = 0; order < ORDERS; order++) {
            float out[512];
            char why[256] = "";
            const struct ds_exec exec = exec_of(order);
            assert_int_equal(
                sim_test_run(cases[i].which, &exec, NULL, out, cases[i].n, why, sizeof why), -1);
            for (int s = 0; s < 3; s++)
                if (!strstr(why, cases[i].says[s])) {
                    print_error("case %zu says '%s', not '%s'\n", i, why, cases[i].says[s]);
                    fail();
                }
        }
    test_lanes(NULL); /* what was left in the middle does not harm the next launch */
}

/* As many threads as the bound has, and as many as there are where there is none. */
static void test_launch_bounds(void **state)
{
    int out[256];
    (void)state;
    for (int order = 0; order < ORDERS; order++) {
        run_ok(SIM_BOUNDED, order, NULL, NULL, 64);
        run_ok(SIM_BOUNDED_BY_1, order, NULL, out, 32);
        assert_int_equal(out[31], 1);
        run_ok(SIM_BOUNDED_BY_8, order, NULL, out, 256);
        assert_int_equal(out[255], 8);
    }
}

/* The address sanitizer sees an index outside of shared memory and names the kernel. */
static void test_outside_under_asan(void **state)
{
#if defined(__SANITIZE_ADDRESS__)
    static const struct {
        int which, n;
        const char *kernel;
    } cases[] = {{SIM_BEHIND_DYNAMIC, 32, "behind_dynamic"},
                 {SIM_BEHIND_STATIC, 33, "behind_static"}};
    for (size_t i = 0; i < 2; i++) {
        char text[8192] = "";
        size_t have = 0;
        ssize_t got;
        int fd[2], status;
        assert_int_equal(pipe(fd), 0);
        const pid_t pid = fork();
        if (pid == 0) {
            unsigned out[4];
            char why[256];
            const struct ds_exec exec = exec_of(0);
            dup2(fd[1], 2);
            sim_test_run(cases[i].which, &exec, NULL, out, cases[i].n, why, sizeof why);
            _exit(0);
        }
        close(fd[1]);
        while (have < sizeof text - 1 &&
               (got = read(fd[0], text + have, sizeof text - 1 - have)) > 0)
            have += (size_t)got;
        close(fd[0]);
        waitpid(pid, &status, 0);
        assert_true(WIFEXITED(status) ? WEXITSTATUS(status) != 0 : 1);
        if (!strstr(text, "buffer-overflow") || !strstr(text, cases[i].kernel)) {
            print_error("%s: %s\n", cases[i].kernel, text);
            fail();
        }
    }
    (void)state;
#else
    (void)state;
    print_message("built without the address sanitizer\n");
    skip();
#endif
}

static int is_nan16(uint16_t v, int exponent)
{
    return (v & exponent) == exponent && (v & (0x7fff & ~exponent));
}

static void test_conversions(void **state)
{
    uint64_t u = 1;
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const uint16_t v = (uint16_t)h;
        if (!is_nan16(v, 0x7c00))
            assert_int_equal(ds_f32_bits(sim_test_from_f16(v)), ds_f32_bits(ds_f16_value(v)));
        else
            assert_true(isnan(sim_test_from_f16(v)));
        assert_int_equal(ds_f32_bits(sim_test_from_bf16(v)), h << 16);
    }
    for (int i = 0; i < 2000000; i++) {
        u = u * 6364136223846793005u + 1442695040888963407u;
        const float f = ds_f32_from_bits((uint32_t)(u >> 32));
        if (isnan(f)) {
            assert_true(is_nan16(sim_test_f16(f), 0x7c00) && is_nan16(sim_test_bf16(f), 0x7f80));
            continue;
        }
        /* Random bits are f16 values seldom: half of them are brought into its range. */
        const float near = i % 2 ? f : ldexpf((float)(int32_t)(u >> 32), -31 - (int)(u % 28));
        assert_int_equal(sim_test_f16(near), ds_f16_round(near));
        assert_int_equal(sim_test_bf16(near), ds_bf16_round(near));
    }
}

static const struct ds_sim_norm *norm_named(const char *name)
{
    const struct ds_sim_norm *n = ds_sim_norms;
    while (n->name && strcmp(n->name, name) != 0)
        n++;
    assert_non_null(n->name);
    return n;
}

/* Every order but the one in which it was written shows each fault, and gives the same bits again. */
static void test_every_order_shows_faults(void **state)
{
    enum { WIDTH = 301 };
    static const char *const names[] = {"honest", "no-barrier", "race", "arrival"};
    static float x[WIDTH], weight[WIDTH], y[ORDERS][2][WIDTH];
    (void)state;
    for (int i = 0; i < WIDTH; i++) {
        x[i] = sinf((float)i * 1.7f);
        weight[i] = 1.0f;
    }
    for (int f = 0; f < 4; f++)
        for (int i = 0; i < 2 * ORDERS; i++) {
            const int order = i / 2;
            char why[256] = "";
            const struct ds_exec exec = exec_of(order);
            const struct ds_rmsnorm_args a = {.rows = 1,
                                              .width = WIDTH,
                                              .x = x,
                                              .ldx = WIDTH,
                                              .weight = weight,
                                              .eps = 1e-5f,
                                              .y = y[order][i % 2],
                                              .ldy = WIDTH};
            assert_int_equal(norm_named(names[f])->launch(&a, &exec, why, sizeof why), 0);
            if (i % 2)
                assert_memory_equal(y[order][0], y[order][1], sizeof y[order][0]);
            const int differs = memcmp(y[order][0], y[0][0], sizeof y[0][0]) != 0;
            /* A random order may end with a thread whose sum has the same bits. */
            if (f == 2 && order > 1)
                continue;
            if (differs != (f > 0 && order > 0)) {
                print_error("%s, order %d: %s\n", names[f], order,
                            differs ? "other bits than in order" : "the bits of in order");
                fail();
            }
        }
}

static void check_norm(const struct ds_sim_norm *n, struct ds_check_result *r)
{
    static const int threads[] = {1};
    const struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                                .op = DS_OP_RMSNORM,
                                .name = n->name,
                                .claims = DS_CLAIM_ALL,
                                .launch = n->launch,
                                .device = DS_DEVICE_SIM};
    const struct ds_check_options opt = {
        .threads = threads, .n_threads = 1, .no_speed = 1, .seed = 1, .launch_seconds = 5};
    struct ds_shape shape;
    struct ds_error err;
    assert_ok(ds_shape_parse(k.op, "width=48", &shape, &err), err);
    assert_ok(ds_check_run(&k, &shape, &opt, r, &err), err);
    assert_string_equal(r->why_not, "");
}

static void test_check_finds_races(void **state)
{
    (void)state;
    int seen = 0;
    for (const struct ds_sim_norm *n = ds_sim_norms; n->name; n++, seen++) {
        struct ds_check_result r;
        if (strcmp(n->name, "divergent") == 0)
            continue;
        check_norm(n, &r);
        const int want = strcmp(n->name, "honest") == 0 ? DS_STATE_HOLDS : DS_STATE_BROKEN;
        if (r.property[DS_PROPERTY_REPEAT].state != want) {
            print_error("%s: repeat is %d, want %d\n", n->name,
                        r.property[DS_PROPERTY_REPEAT].state, want);
            fail();
        }
    }
    assert_int_equal(seen, 5);
    struct ds_check_result r;
    check_norm(&ds_sim_norms[4], &r);
    assert_true(r.n_faults > 0);
    assert_int_equal(r.fault[0].fault.kind, DS_FAULT_DEVICE);
    assert_non_null(strstr(r.fault[0].fault.text, "norm_divergent"));
    assert_int_equal(r.property[DS_PROPERTY_MEMORY].state, DS_STATE_BROKEN);
}

/* ---- what a thread must not touch, on the device ---------------------------------------------------- */

static int on_device(struct ds_device *d, int which, const void *in, void *out, int n, char *why)
{
    const struct ds_exec exec = {.threads = 1, .memory = d->memory, .stream = d->stream};
    return sim_test_run(which, &exec, in, out, n, why, 512);
}

static void expect_fault(struct ds_device *d, int which, const void *in, void *out, int n,
                         const char *words)
{
    char why[512] = "";
    assert_int_equal(on_device(d, which, in, out, n, why), -1);
    if (!strstr(why, words))
        print_error("%s lacks: %s\n", why, words);
    assert_non_null(strstr(why, words));
    assert_non_null(strstr(why, "block (0,0,0)"));
    assert_true(d->failed(d));
}

/* An array that a list on the device points to is a kernel's own; one that nothing points to is not. */
static void test_pointers_on_the_device(void **state)
{
    struct ds_device *d = NULL;
    struct ds_error err;
    float *array, *other, *list[2], **there, *out, value = 5.0f, got = 0.0f;
    char why[512] = "";
    (void)state;
    assert_ok(ds_device_open(DS_DEVICE_SIM, 0, &d, &err), err);
    assert_int_equal(d->alloc(d, 4000, "an array", (void **)&array), 0);
    assert_int_equal(d->alloc(d, 4000, "another array", (void **)&other), 0);
    assert_int_equal(d->alloc(d, sizeof list, "a list", (void **)&there), 0);
    assert_int_equal(d->alloc(d, sizeof got, "a number", (void **)&out), 0);
    list[0] = array + 30;
    assert_int_equal(d->copy_to(d, array + 30, &value, sizeof value), 0);
    assert_int_equal(d->copy_to(d, there, list, sizeof list[0]), 0);
    assert_int_equal(on_device(d, SIM_FOLLOW, there, out, 1, why), 0);
    assert_int_equal(d->copy_from(d, &got, out, sizeof got), 0);
    assert_true(got == value);
    /* One that no memory has; a list that is not where it is said to be; an array that was released. */
    list[0] = (float *)64;
    assert_int_equal(d->copy_to(d, there, list, sizeof list[0]), 0);
    expect_fault(d, SIM_FOLLOW, there, out, 1, "reads at an illegal address, 0x40, which is not");
    expect_fault(d, SIM_FOLLOW, (char *)there - 3 * 4096, out, 1, "reads at an illegal address: ");
    d->release(d, array);
    list[0] = array;
    assert_int_equal(d->copy_to(d, there, list, sizeof list[0]), 0);
    expect_fault(d, SIM_FOLLOW, there, out, 1, "reads at an illegal address: byte -");
    expect_fault(d, SIM_DIVIDE, NULL, out, 0, "divides an integer by 0");
    expect_fault(d, SIM_STACK, NULL, out, 1, "needs more memory for its own variables");
    /* The device goes on. */
    list[0] = other;
    assert_int_equal(d->copy_to(d, other, &value, sizeof value), 0);
    assert_int_equal(d->copy_to(d, there, list, sizeof list[0]), 0);
    assert_int_equal(on_device(d, SIM_FOLLOW, there, out, 1, why), 0);
    assert_false(d->failed(d));
    d->release(d, other);
    d->release(d, there);
    d->release(d, out);
    ds_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_indices),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_shared_and_vectors),
        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_shared_memory_is_poisoned),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_launch_bounds),
        cmocka_unit_test(test_pointers_on_the_device),
        cmocka_unit_test(test_outside_under_asan),
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_check_finds_races),
        cmocka_unit_test(test_every_order_shows_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
