/* test_sim_digest.c: what a probe does on a device, on sim: digests equal libxxhash's for every length
 * and alignment; the watch, the list of differing rows, healing and packing against plain loops; in
 * every order of blocks and threads. */
#include "tests/unit/testing.h"

#include "base/dtype.h"
#include "kernels/cuda/probe_kernels.h"
#include "kernels/device_cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const struct ds_probe_kernels *const codes[] = {&ds_sim_probe_kernels,
                                                       &ds_sim_fma_probe_kernels};

/* Every CPU runs the first; the second needs newer instructions. */
static const struct ds_probe_kernels *code(int i)
{
    return codes[i % 2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")];
}

static struct ds_exec exec_of(int i)
{
    return (struct ds_exec){.threads = 1, .seed = i % 3 ? (uint64_t)i * 77 : 0};
}

static void fill(unsigned char *p, size_t n)
{
    uint64_t u = n;
    for (size_t i = 0; i < n; i++) {
        u = u * 6364136223846793005u + 1442695040888963407u;
        p[i] = (unsigned char)(u >> 56);
    }
}

enum { MOST = 1 << 16, ROWS = 3, GAP = 13 };

static void check_length(const unsigned char *bytes, int64_t n, int offset, int step)
{
    const struct ds_exec exec = exec_of(step);
    uint64_t got[ROWS];
    const struct ds_device_digest x = {
        .n = ROWS, .row_bytes = n, .stride = n + offset, .x = bytes + offset, .digests = got};
    char why[256] = "";
    memset(got, 0xee, sizeof got);
    if (code(step)->digest(&x, &exec, why, sizeof why) != 0) {
        print_error("%d bytes: %s\n", (int)n, why);
        fail();
    }
    for (int r = 0; r < ROWS; r++) {
        const uint64_t want = XXH3_64bits(bytes + offset + r * (n + offset), (size_t)n);
        if (got[r] != want) {
            print_error("%d bytes from %d, row %d: %016llx, want %016llx\n", (int)n, offset, r,
                        (unsigned long long)got[r], (unsigned long long)want);
            fail();
        }
    }
}

static void test_digests(void **state)
{
    static const int lengths[] = {2304,  4095,  4096,  4097,  8191,  8192, 12345,     16384,
                                  20000, 32767, 32768, 65473, 65535, MOST, MOST - 64, MOST - 1};
    unsigned char *bytes = malloc(ROWS * (MOST + GAP) + GAP);
    (void)state;
    assert_non_null(bytes);
    fill(bytes, ROWS * (MOST + GAP) + GAP);
    for (int n = 0; n <= 2048; n++)
        check_length(bytes, n, n % GAP, n);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int offset = 0; offset < 8; offset += i < 4 ? 1 : 5)
            check_length(bytes, lengths[i], offset, (int)i + offset);
    /* More than one chunk of blocks. */
    const struct ds_exec exec = exec_of(1);
    uint64_t got = 0;
    char why[256];
    const struct ds_device_digest x = {
        .n = 1, .row_bytes = ROWS * MOST, .x = bytes, .digests = &got};
    assert_int_equal(code(0)->digest(&x, &exec, why, sizeof why), 0);
    assert_true(got == XXH3_64bits(bytes, ROWS * MOST));
    const struct ds_device_digest none = {.n = 0, .row_bytes = 100, .x = bytes};
    assert_int_equal(code(0)->digest(&none, &exec, why, sizeof why), 0);
    free(bytes);
}

static void test_watch(void **state)
{
    enum { WIDTH = 301, N = 6 };
    static const int elements[] = {DS_ELEMENT_F32, DS_ELEMENT_BF16, DS_ELEMENT_F16};
    static const int dtypes[] = {DS_F32, DS_BF16, DS_F16};
    static float x[N][WIDTH];
    static uint32_t stored[N][WIDTH];
    int32_t count[N], first[N];
    char why[256] = "";
    (void)state;
    for (int r = 0; r < N; r++)
        for (int i = 0; i < WIDTH; i++)
            x[r][i] = (float)(r * 7 - i) * 0.5f;
    x[1][300] = NAN;
    x[2][0] = -INFINITY, x[2][17] = NAN, x[2][299] = INFINITY;
    for (int i = 0; i < WIDTH; i++)
        x[3][i] = INFINITY;
    x[4][128] = 65519.0f, x[4][129] = 65520.0f; /* infinite in f16 alone */
    x[5][5] = -3.4e38f;                         /* also in bf16 it is finite */
    for (int e = 0; e < 3; e++) {
        const size_t size = ds_dtype_size(dtypes[e]);
        const struct ds_probe_rows rows = {stored, N, (int64_t)(WIDTH * size), sizeof stored[0]};
        const struct ds_exec exec = exec_of(e);
        for (int r = 0; r < N; r++)
            ds_round_row(dtypes[e], stored[r], x[r], WIDTH);
        assert_int_equal(code(e)->watch(&rows, elements[e], count, first, &exec, why, sizeof why),
                         0);
        uint64_t digests[N];
        uint32_t largest[N];
        const struct ds_device_digest g = {.n = N,
                                           .row_bytes = rows.bytes,
                                           .stride = rows.ld_bytes,
                                           .x = stored,
                                           .element = elements[e],
                                           .digests = digests,
                                           .largest = largest};
        assert_int_equal(code(e)->digest(&g, &exec, why, sizeof why), 0);
        for (int r = 0; r < N; r++)
            assert_int_equal(largest[r],
                             ds_device_largest(elements[e], stored[r], (size_t)rows.bytes));
        for (int r = 0; r < N; r++) {
            float back[WIDTH];
            int want = 0, at = -1;
            ds_widen_row(dtypes[e], back, stored[r], WIDTH);
            for (int i = WIDTH - 1; i >= 0; i--)
                if (!isfinite(back[i]))
                    want++, at = i;
            assert_int_equal(count[r], want);
            assert_int_equal(first[r], at);
        }
        assert_int_equal(count[4], e == 2);
    }
    const struct ds_probe_rows rows = {stored, N, 4, 4};
    const struct ds_exec exec = exec_of(0);
    assert_int_equal(code(0)->watch(&rows, DS_ELEMENT_I32, count, first, &exec, why, sizeof why),
                     -1);
    assert_non_null(strstr(why, "type 3"));
}

static void digest_of(const struct ds_probe_kernels *p, const struct ds_probe_rows *x, uint64_t *to,
                      const struct ds_exec *exec)
{
    char why[256] = "";
    const struct ds_device_digest g = {
        .n = x->rows, .row_bytes = x->bytes, .stride = x->ld_bytes, .x = x->data, .digests = to};
    assert_int_equal(p->digest(&g, exec, why, sizeof why), 0);
}

/* Some rows differ, some have no reference: those that differ are listed, healed, and packed. */
static void one_comparison(int rows, int bytes, int step)
{
    unsigned char *x = malloc((size_t)(rows * (bytes + GAP))),
                  *reference = malloc((size_t)(rows * bytes));
    unsigned char *packed = malloc((size_t)(rows * bytes) + 1);
    uint64_t *digest = malloc((size_t)rows * 8), *held = malloc((size_t)rows * 8);
    int32_t *of = malloc((size_t)rows * 4), *list = malloc((size_t)rows * 4), n = -1, want = 0;
    const struct ds_exec exec = exec_of(step);
    const struct ds_probe_kernels *p = code(step);
    char why[256] = "";
    assert_true(x && reference && packed && digest && held && of && list);
    fill(reference, (size_t)(rows * bytes));
    const struct ds_probe_rows now = {x, rows, bytes, bytes + GAP},
                               then = {reference, rows, bytes, bytes};
    for (int r = 0; r < rows; r++) { /* row r's reference is row rows-1-r, every fifth has none */
        of[r] = r % 5 == 4 ? -1 : rows - 1 - r;
        memcpy(x + r * (bytes + GAP), reference + (rows - 1 - r) * bytes, (size_t)bytes);
        x[r * (bytes + GAP) + r % bytes] ^= r % 3 == 0; /* a bit of every third */
    }
    digest_of(p, &now, digest, &exec);
    digest_of(p, &then, held, &exec);
    assert_int_equal(p->compare(digest, rows, held, of, list, &n, &exec, why, sizeof why), 0);
    for (int r = 0; r < rows; r++)
        if (r % 3 == 0 && r % 5 != 4) {
            assert_true(want < n);
            assert_int_equal(list[want++], r);
        }
    assert_int_equal(n, want);
    memset(packed, 0xee, (size_t)(rows * bytes) + 1);
    assert_int_equal(p->pack(&now, list, &n, packed, &exec, why, sizeof why), 0);
    for (int i = 0; i < n; i++)
        assert_memory_equal(packed + i * bytes, x + list[i] * (bytes + GAP), (size_t)bytes);
    assert_int_equal(packed[n * bytes], 0xee);
    assert_int_equal(p->heal(&then, of, list, &n, x, rows, bytes + GAP, &exec, why, sizeof why), 0);
    for (int r = 0; r < rows; r++)
        assert_true((memcmp(x + r * (bytes + GAP), reference + (rows - 1 - r) * bytes,
                            (size_t)bytes) != 0) == (r % 3 == 0 && r % 5 == 4));
    free(x), free(reference), free(packed), free(digest), free(held), free(of), free(list);
}

static void test_compare_heal_pack(void **state)
{
    static const int sizes[][2] = {{1, 4}, {31, 64}, {128, 20}, {129, 7}, {300, 388}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        one_comparison(sizes[i][0], sizes[i][1], (int)i);
    /* Row for row, nothing differs; without rows. */
    const uint64_t same[3] = {1, 2, 3};
    const struct ds_exec exec = exec_of(2);
    int32_t list[3], n = 7;
    char why[256];
    assert_int_equal(code(0)->compare(same, 3, same, NULL, list, &n, &exec, why, sizeof why), 0);
    assert_int_equal(n, 0);
    n = 7;
    assert_int_equal(code(0)->compare(same, 0, same, NULL, list, &n, &exec, why, sizeof why), 0);
    assert_int_equal(n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digests),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_compare_heal_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
