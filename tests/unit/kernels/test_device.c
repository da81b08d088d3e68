/* test_device.c: devices by name, and struct ds_device of the CPU and of sim: memory, copies, rows, formats,
 * digests, events; that host code which touches sim's memory ends its process, and that a kernel which is
 * given the host's memory for the device's is told. */
#include "tests/unit/testing.h"

#include "base/dtype.h"
#include "kernels/device_cpu.h"
#include "kernels/device_open.h"
#include "kernels/registry.h"
#include "kernels/sim/memory.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

static struct ds_device *open_device(int kind)
{
    struct ds_device *d = NULL;
    struct ds_error err;
    assert_ok(ds_device_open(kind, 0, &d, &err), err);
    return d;
}

static void ok(struct ds_device *d, int rc)
{
    if (rc != 0)
        print_error("%s: %s\n", d->name, d->why);
    assert_int_equal(rc, 0);
}

static void *new_on(struct ds_device *d, size_t bytes)
{
    void *p = NULL;
    ok(d, d->alloc(d, bytes, "test rows", &p));
    assert_non_null(p);
    return p;
}

static void test_names(void **state)
{
    static const struct {
        const char *name;
        int kind, number;
    } good[] = {{"cpu", DS_DEVICE_CPU, 0},     {"sim", DS_DEVICE_SIM, 0},
                {"sim:80", DS_DEVICE_SIM, 80}, {"sim:120", DS_DEVICE_SIM, 120},
                {"cuda", DS_DEVICE_CUDA, 0},   {"cuda:7", DS_DEVICE_CUDA, 7}};
    static const char *const bad[] = {"",         "cu",    "cuda:", "cuda:x", "cuda:1x", "cuda:64",
                                      "cuda:123", "sim:1", "sim:",  "sim:70", "sim:900", "sim:x",
                                      "sim:0",    "cpu0",  "CUDA",  "c",      "cuda:00", "sim:080"};
    struct ds_error err;
    int kind, number;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_ok(ds_device_parse_name(good[i].name, &kind, &number, &err), err);
        assert_int_equal(kind, good[i].kind);
        assert_int_equal(number, good[i].number);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(ds_device_parse_name(bad[i], &kind, &number, &err), -1);
}

static void test_copies(void **state)
{
    enum { N = 1000 };
    (void)state;
    for (int kind = DS_DEVICE_CPU; kind <= DS_DEVICE_SIM; kind++) {
        struct ds_device *d = open_device(kind);
        uint32_t out[N], in[N];
        uint32_t *a = new_on(d, sizeof in), *b = new_on(d, sizeof in);
        assert_true((uintptr_t)a % 64 == 0);
        for (uint32_t i = 0; i < N; i++)
            in[i] = i * 2654435761u;
        ok(d, d->copy_to(d, a, in, sizeof in));
        ok(d, d->fill(d, b, 0x7fc0beefu, N));
        ok(d, d->copy_within(d, b + 10, a + 20, 30 * sizeof *a));
        ok(d, d->copy_from(d, out, b, sizeof out));
        ok(d, d->wait(d));
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(out[i], i >= 10 && i < 40 ? in[i + 10] : 0x7fc0beefu);
        ok(d, d->copy_to(d, a, in, 0));
        d->release(d, a);
        d->release(d, b);
        ds_device_close(d);
    }
}

/* Rows of the test, as text: what goes where. */
static void move(struct ds_device *d, int64_t row_bytes, int64_t stride, int lists)
{
    enum { N = 7, ROOM = 9 };
    const int32_t from[N] = {3, 8, 1, 0, 5, 2, 7}, to[N] = {0, 2, 4, 6, 8, 1, 3};
    const size_t bytes = (size_t)(ROOM * stride);
    unsigned char in[ROOM * 80], out[ROOM * 80];
    unsigned char *x = new_on(d, bytes), *y = new_on(d, bytes);
    int32_t *x_at = new_on(d, sizeof from), *y_at = new_on(d, sizeof to);
    for (size_t i = 0; i < bytes; i++)
        in[i] = (unsigned char)(i * 37 + 1);
    ok(d, d->copy_to(d, x, in, bytes));
    ok(d, d->copy_to(d, x_at, from, sizeof from));
    ok(d, d->copy_to(d, y_at, to, sizeof to));
    memset(out, 0, sizeof out);
    ok(d, d->copy_to(d, y, out, bytes));
    const struct ds_device_rows r = {.n = N,
                                     .row_bytes = row_bytes,
                                     .x = x,
                                     .x_stride = stride,
                                     .x_at = lists & 1 ? x_at : NULL,
                                     .y = y,
                                     .y_stride = stride,
                                     .y_at = lists & 2 ? y_at : NULL};
    ok(d, d->rows(d, &r));
    ok(d, d->copy_from(d, out, y, bytes));
    for (int i = 0; i < N; i++) {
        const int64_t source = lists & 1 ? from[i] : i, target = lists & 2 ? to[i] : i;
        assert_memory_equal(out + target * stride, in + source * stride, (size_t)row_bytes);
        for (int64_t k = row_bytes; k < stride; k++)
            assert_int_equal(out[target * stride + k], 0);
    }
    d->release(d, x);
    d->release(d, y);
    d->release(d, x_at);
    d->release(d, y_at);
}

static void test_rows(void **state)
{
    static const int64_t sizes[][2] = {{64, 64}, {16, 80}, {12, 12}, {6, 10}, {2, 2}, {4, 6}};
    (void)state;
    for (int kind = DS_DEVICE_CPU; kind <= DS_DEVICE_SIM; kind++) {
        struct ds_device *d = open_device(kind);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int lists = 0; lists < 4; lists++)
                move(d, sizes[i][0], sizes[i][1], lists);
        ds_device_close(d);
    }
}

/* Values at every border of both formats, and many others. */
static void fill_values(float *y, size_t n)
{
    static const uint32_t some[] = {
        0,           0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u, 0xffffffffu,
        0x477fefffu, 0x477ff000u, 0x47800000u, 0x33000000u, 0x33000001u, 0x32ffffffu, 0x387fffffu,
        0x38800000u, 0x387fe000u, 0x00000001u, 0x7f7fffffu, 0x3f808000u, 0x3f818000u};
    uint32_t z = 12345;
    for (size_t i = 0; i < n; i++) {
        z = z * 1664525u + 1013904223u;
        const uint32_t near_half = 0x33000000u + z % 0x15000000u;
        y[i] = ds_f32_from_bits(i < sizeof some / sizeof some[0] ? some[i] : i % 2 ? z : near_half);
    }
}

static void convert(struct ds_device *d, int element, int dtype)
{
    enum { N = 5000 };
    static float y[N], back[N], want[N];
    static uint16_t half[N], want_half[N];
    float *dy = new_on(d, sizeof y);
    uint16_t *dh = new_on(d, sizeof half);
    fill_values(y, N);
    ok(d, d->copy_to(d, dy, y, sizeof y));
    ok(d, d->convert(d, element, DS_CONVERT_ROUND, dh, dy, N));
    ok(d, d->copy_from(d, half, dh, sizeof half));
    ds_round_row(dtype, want_half, y, N);
    assert_memory_equal(half, want_half, sizeof half);
    /* One element in ten is changed where it is rounded: those follow, the others stay. */
    for (size_t i = 0; i < N; i += 10)
        half[i] = 0x3c00;
    ok(d, d->copy_to(d, dh, half, sizeof half));
    ok(d, d->convert(d, element, DS_CONVERT_FOLLOW, dh, dy, N));
    ok(d, d->copy_from(d, back, dy, sizeof back));
    memcpy(want, y, sizeof want);
    for (size_t i = 0; i < N; i += 10)
        if (want_half[i] != 0x3c00)
            ds_widen_row(dtype, &want[i], &half[i], 1);
    assert_memory_equal(back, want, sizeof back);
    ok(d, d->convert(d, element, DS_CONVERT_WIDEN, dh, dy, N));
    ok(d, d->copy_from(d, back, dy, sizeof back));
    ds_widen_row(dtype, want, half, N);
    assert_memory_equal(back, want, sizeof back);
    assert_int_equal(d->convert(d, DS_ELEMENT_F32, DS_CONVERT_ROUND, dh, dy, N), -1);
    d->release(d, dy);
    d->release(d, dh);
}

static void test_formats(void **state)
{
    (void)state;
    for (int kind = DS_DEVICE_CPU; kind <= DS_DEVICE_SIM; kind++) {
        struct ds_device *d = open_device(kind);
        convert(d, DS_ELEMENT_BF16, DS_BF16);
        convert(d, DS_ELEMENT_F16, DS_F16);
        ds_device_close(d);
    }
}

static void test_digests(void **state)
{
    /* Each of the branches of XXH3: 1-3, 4-8, 9-16, 17-128, 129-240 and more bytes; over one block. */
    static const int64_t bytes[] = {2, 4, 12, 64, 200, 260, 1024, 2304, 5000};
    enum { N = 3, MOST = 5000, STRIDE = 5008 };
    static char rows[N * STRIDE];
    (void)state;
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = (char)(i * 131 + i / 251);
    for (int kind = DS_DEVICE_CPU; kind <= DS_DEVICE_SIM; kind++) {
        struct ds_device *d = open_device(kind);
        char *x = new_on(d, sizeof rows);
        uint64_t *digests = new_on(d, 8 * N), got[N];
        uint32_t *largest = new_on(d, 4 * N), most[N];
        ok(d, d->copy_to(d, x, rows, sizeof rows));
        for (size_t b = 0; b < sizeof bytes / sizeof bytes[0]; b++)
            for (int element = DS_ELEMENT_F32; element <= DS_ELEMENT_I32; element++) {
                struct ds_device_digest g = {.n = N,
                                             .row_bytes = bytes[b],
                                             .stride = STRIDE,
                                             .x = x,
                                             .element = element,
                                             .digests = digests,
                                             .largest = largest};
                ok(d, d->digest(d, &g));
                ok(d, d->copy_from(d, got, digests, sizeof got));
                ok(d, d->copy_from(d, most, largest, sizeof most));
                for (int r = 0; r < N; r++) {
                    const char *row = rows + r * STRIDE;
                    assert_true(got[r] == XXH3_64bits(row, (size_t)bytes[b]));
                    assert_int_equal(most[r], ds_device_largest(element, row, bytes[b]));
                }
            }
        d->release(d, x);
        d->release(d, digests);
        d->release(d, largest);
        ds_device_close(d);
    }
}

static void test_largest(void **state)
{
    const float y[] = {1.0f, -3.0f, 2.0f};
    const uint32_t nan[] = {0x3f800000u, 0xffc00001u};
    const uint16_t half[] = {0x3c00, 0xc200};
    (void)state;
    assert_int_equal(ds_device_largest(DS_ELEMENT_F32, y, sizeof y), 0x40400000);
    assert_int_equal(ds_device_largest(DS_ELEMENT_F32, nan, sizeof nan), 0x7fc00001);
    assert_int_equal(ds_device_largest(DS_ELEMENT_F16, half, sizeof half), 0x4200);
    assert_int_equal(ds_device_largest(DS_ELEMENT_I32, nan, sizeof nan), 0);
}

static void test_events_and_info(void **state)
{
    (void)state;
    for (int kind = DS_DEVICE_CPU; kind <= DS_DEVICE_SIM; kind++) {
        struct ds_device *d = open_device(kind);
        struct ds_device_info info;
        void *begin, *end;
        double seconds = -1;
        ok(d, d->event_new(d, &begin));
        ok(d, d->event_new(d, &end));
        ok(d, d->event_put(d, begin));
        ok(d, d->event_put(d, end));
        ok(d, d->wait(d));
        ok(d, d->elapsed(d, begin, end, &seconds));
        assert_true(seconds >= 0);
        d->event_free(d, begin);
        d->event_free(d, end);
        ok(d, d->info(d, &info));
        assert_true(*info.name != '\0');
        assert_true(info.free_bytes > 0);
        assert_int_equal(info.multiprocessors, kind == DS_DEVICE_SIM ? 64 : 0);
        ds_device_close(d);
    }
}

/* ---- sim's memory ------------------------------------------------------------------------------------ */

/* Whether a process that does it lives. */
static int survives(void (*fn)(void *arg), void *arg)
{
    int status = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL); /* cmocka and sanitizers have handlers of their own */
        fn(arg);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGSEGV);
    return WIFEXITED(status);
}

static void read_it(void *p)
{
    (void)*(volatile float *)p;
}

static void write_it(void *p)
{
    *(volatile float *)p = 1.0f;
}

static void do_nothing(void *p)
{
    (void)p;
}

static void launch_add(struct ds_device *d, float *a, float *y, const char *expected)
{
    const struct ds_kernel *k = ds_kernel_find_on(DS_DEVICE_SIM, DS_OP_ADD, "pinned");
    const struct ds_exec exec = {.threads = 1, .memory = d->memory, .stream = d->stream};
    const struct ds_add_args args = {
        .rows = 1, .width = 8, .a = a, .b = a, .lda = 8, .ldb = 8, .y = y, .ldy = 8};
    char why[256] = "";
    const int rc = k->launch(&args, &exec, why, sizeof why);
    if (!expected) {
        assert_int_equal(rc, 0);
        return;
    }
    assert_int_equal(rc, -1);
    if (!strstr(why, expected))
        print_error("%s\nlacks: %s\n", why, expected);
    assert_non_null(strstr(why, expected));
}

/* What is recorded is not done; launched, it is done on what lies there then; what waits is refused. */
static void test_graphs(void **state)
{
    enum { N = 64 };
    struct ds_device *d = open_device(DS_DEVICE_SIM), *cpu = open_device(DS_DEVICE_CPU);
    float x[N], y[N];
    uint64_t digest;
    (void)state;
    assert_null(cpu->graph_begin);
    float *far = new_on(d, sizeof x), *twice = new_on(d, 2 * sizeof x);
    uint64_t *digests = new_on(d, sizeof digest);
    void *graph = NULL, *event = NULL;
    ok(d, d->event_new(d, &event));
    ok(d, d->fill(d, twice, 0, 2 * N));
    ok(d, d->graph_begin(d));
    assert_int_equal(d->graph_begin(d), -1);
    const struct ds_device_rows rows = {.n = 1,
                                        .row_bytes = sizeof x,
                                        .x = far,
                                        .x_stride = sizeof x,
                                        .y = twice,
                                        .y_stride = sizeof x};
    const struct ds_device_digest g = {.n = 1,
                                       .row_bytes = 2 * sizeof x,
                                       .stride = 2 * sizeof x,
                                       .x = twice,
                                       .element = DS_ELEMENT_F32,
                                       .digests = digests};
    ok(d, d->rows(d, &rows));
    ok(d, d->copy_within(d, twice + N, far, sizeof x));
    ok(d, d->fill(d, far, 0x40000000, 1));
    ok(d, d->digest(d, &g));
    assert_int_equal(d->copy_to(d, far, x, sizeof x), -1);
    assert_string_equal(d->why, "a copy from the host's memory in a graph that is being captured");
    assert_int_equal(d->copy_from(d, x, far, sizeof x), -1);
    assert_int_equal(d->wait(d), -1);
    assert_int_equal(d->event_put(d, event), -1);
    ok(d, d->graph_end(d, &graph));
    assert_non_null(graph);
    for (int turn = 0; turn < 2; turn++) {
        float both[2 * N];
        for (int i = 0; i < N; i++)
            x[i] = (float)(i + turn);
        ok(d, d->copy_to(d, far, x, sizeof x));
        if (turn == 0) { /* nothing has been done yet */
            ok(d, d->copy_from(d, y, twice, sizeof y));
            assert_true(y[5] == 0.0f);
        }
        ok(d, d->graph_launch(d, graph));
        ok(d, d->copy_from(d, both, twice, sizeof both));
        assert_memory_equal(both, x, sizeof x);
        assert_memory_equal(both + N, x, sizeof x);
        ok(d, d->copy_from(d, &digest, digests, sizeof digest));
        assert_true(digest == XXH3_64bits(both, sizeof both));
        ok(d, d->copy_from(d, y, far, sizeof y));
        assert_true(y[0] == 2.0f);
    }
    d->graph_free(d, graph);
    d->event_free(d, event);
    d->release(d, far);
    d->release(d, twice);
    d->release(d, digests);
    ds_device_close(d);
    ds_device_close(cpu);
}

static void test_sim_memory_is_closed_to_the_host(void **state)
{
    struct ds_device *d = open_device(DS_DEVICE_SIM);
    float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];
    (void)state;
    float *a = new_on(d, sizeof in), *y = new_on(d, sizeof in);
    assert_true(survives(do_nothing, a));
    assert_false(survives(read_it, a));
    assert_false(survives(write_it, a));
    ok(d, d->copy_to(d, a, in, sizeof in));
    launch_add(d, a, y, NULL);
    assert_false(survives(read_it, y)); /* closed again behind a launch */
    ok(d, d->copy_from(d, out, y, sizeof out));
    for (int i = 0; i < 8; i++)
        assert_true(out[i] == 2 * in[i]);
    d->release(d, a);
    d->release(d, y);
    ds_device_close(d);
}

/* Memory ends where an allocation ends, on both sides; what was released is nobody's. */
static void test_sim_memory_ends(void **state)
{
    struct ds_device *d = open_device(DS_DEVICE_SIM);
    float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];
    (void)state;
    /* Small ones, and some that have huge pages. */
    for (size_t bytes = 32; bytes < 8 << 20; bytes = bytes * 16 + 32) {
        const size_t n = bytes / sizeof(float);
        char words[96];
        float *a = new_on(d, bytes), *y = new_on(d, bytes);
        ok(d, d->copy_to(d, a, in, sizeof in));
        ok(d, d->copy_to(d, a + n - 8, in, sizeof in));
        launch_add(d, a, y, NULL);
        launch_add(d, a + n - 8, y + n - 8, NULL);
        assert_false(d->failed(d));
        launch_add(d, a + n + 64, y, " reads at an illegal address: byte ");
        assert_true(d->failed(d));
        launch_add(d, a - (1 << 20), y, " reads at an illegal address: byte -");
        launch_add(d, a - 2 * 1024, y, " reads at an illegal address: byte -8192 of test rows");
        launch_add(d, a, y + n + 64, " writes at an illegal address: byte ");
        /* Next to it there is memory, which is looked at. */
        snprintf(words, sizeof words, " wrote byte %zu of test rows, which has %zu", bytes, bytes);
        launch_add(d, a, y + n - 4, words);
        launch_add(d, a, y + n, words);
        snprintf(words, sizeof words, " wrote byte -16 of test rows, which has %zu", bytes);
        if (bytes % 4096)
            launch_add(d, a, y - 4, words);
        ok(d, d->copy_from(d, out, y, sizeof out)); /* and it goes on */
        assert_int_equal(d->copy_from(d, out, y + n, sizeof out), -1);
        d->release(d, a);
        launch_add(d, a, y, " reads at an illegal address: ");
        d->release(d, y);
        launch_add(d, a, y, " reads at an illegal address: ");
    }
    ds_device_close(d);
}

static void test_sim_takes_no_host_pointer(void **state)
{
    struct ds_device *d = open_device(DS_DEVICE_SIM);
    /* Addresses whose low half is small look like numbers: a few blocks, one of which has another. */
    float *host[4];
    (void)state;
    float *y = new_on(d, 32);
    for (int i = 0; i < 4; i++)
        assert_non_null(host[i] = calloc(16 << 20, sizeof(float)));
    int told = 0;
    for (int i = 0; i < 4 && !told; i++)
        told = ((uintptr_t)host[i] & 0xffffffffu) >= 1u << 24;
    for (int i = 0; i < 4; i++)
        if (((uintptr_t)host[i] & 0xffffffffu) >= 1u << 24)
            launch_add(d, host[i], y, "points to the host's memory");
    assert_true(told);
    for (int i = 0; i < 4; i++)
        free(host[i]);
    /* Nor for a copy. */
    float local[8] = {0};
    assert_int_equal(d->copy_within(d, y, local, sizeof local), -1);
    assert_non_null(strstr(d->why, "are not the device's memory"));
    assert_int_equal(d->copy_from(d, local, (char *)y + 240, 32), -1); /* past its end */
    d->release(d, y);
    ds_device_close(d);
}

static void test_sim_runs_out(void **state)
{
    struct ds_device *d = open_device(DS_DEVICE_SIM);
    struct ds_device_info info;
    void *p, *q, *r;
    (void)state;
    ds_sim_memory_limit(1 << 20);
    p = new_on(d, 600 << 10);
    assert_int_equal(d->alloc(d, 500 << 10, "logits", &q), -1);
    assert_non_null(strstr(d->why, "out of memory on sim: logits needs 512000 bytes, 434176 of "
                                   "1048576 are free"));
    q = new_on(d, 400 << 10);
    d->release(d, p);
    r = new_on(d, 500 << 10); /* the gap is used again */
    ok(d, d->info(d, &info));
    assert_true(info.memory_bytes == 1 << 20);
    assert_true(info.free_bytes == (1 << 20) - (900 << 10));
    d->release(d, q);
    d->release(d, r);
    d->release(d, NULL);
    assert_int_equal(d->alloc(d, SIZE_MAX, "all", &q), -1);
    ds_sim_memory_limit(0);
    ds_device_close(d);
}

static void test_no_cuda_here(void **state)
{
    struct ds_error err;
    (void)state;
    ds_device_library_path("/nowhere/libdriftscope_cuda.so");
    struct ds_device *d;
    assert_int_equal(ds_device_open(DS_DEVICE_CUDA, 0, &d, &err), -1);
    assert_null(d);
    assert_non_null(strstr(err.msg, "device cuda: /nowhere/libdriftscope_cuda.so"));
    assert_int_equal(ds_device_probe(DS_DEVICE_CUDA, 0, &err), -1);
    assert_ok(ds_device_probe(DS_DEVICE_SIM, 0, &err), err);
    ds_device_library_path(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_digests),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_events_and_info),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_sim_memory_is_closed_to_the_host),
        cmocka_unit_test(test_sim_memory_ends),
        cmocka_unit_test(test_sim_takes_no_host_pointer),
        cmocka_unit_test(test_sim_runs_out),
        cmocka_unit_test(test_no_cuda_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
