/* test_digest.c: the digest on every instruction set this CPU has, against the library and the
 * xxhsum tool; the row scans that live beside it. */
#include "tests/unit/testing.h"

#include "base/hash.h"
#include "probes/driftscope_probe.h"
#include "probes/scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

static uint32_t noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state ^ *state >> 15;
}

static void fill(unsigned char *bytes, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)noise(&seed);
}

static void test_every_isa_equals_the_library(void **state)
{
    (void)state;
    static const size_t large[] = {3072, 6144, 65537, 196608, 1048579};
    size_t room = 1048579 + 8;
    unsigned char *bytes = malloc(room);
    assert_non_null(bytes);
    fill(bytes, room, 7);
    const char *name = NULL;
    ds_hash_fn *hash, *last = NULL;
    assert_string_equal(ds_scan_isa_at(0)->name, ds_scan_isa_base()->name);
    for (size_t k = 0; (hash = ds_hash_at(k, &name)); k++) {
        for (size_t n = 0; n <= 2000; n++)
            for (size_t shift = 0; shift < 2; shift++)
                assert_true(hash(bytes + shift * 3, n) == XXH3_64bits(bytes + shift * 3, n));
        for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
            assert_true(hash(bytes + 1, large[i]) == XXH3_64bits(bytes + 1, large[i]));
        print_message("    checked: %s\n", name);
        last = hash;
    }
    assert_true(last && last == ds_hash_best());
    assert_true(ds_digest(bytes, 2304) == XXH3_64bits(bytes, 2304));
    free(bytes);
}

static void test_avx512_if_this_cpu_has_it(void **state)
{
    (void)state;
    for (size_t k = 0; ds_scan_isa_at(k); k++)
        if (strcmp(ds_scan_isa_at(k)->name, "avx512") == 0)
            return; /* covered by the tests over all of them */
    print_message("    this CPU cannot run the AVX-512 digest\n");
    skip();
}

/* Published by the xxHash project for the empty input, seed 0. */
static void test_known_value(void **state)
{
    (void)state;
    assert_true(ds_digest("", 0) == 0x2d06800538d394c2u);
}

static void test_digest_of_digests_is_over_little_endian_bytes(void **state)
{
    (void)state;
    uint64_t digests[3] = {0x0123456789abcdefu, 1, UINT64_MAX};
    unsigned char bytes[24];
    for (size_t i = 0; i < 24; i++)
        bytes[i] = (unsigned char)(digests[i / 8] >> (i % 8 * 8));
    for (size_t n = 0; n <= 3; n++)
        assert_true(ds_digest_of(digests, n) == XXH3_64bits(bytes, 8 * n));
}

static void test_equals_the_xxhsum_tool(void **state)
{
    (void)state;
    if (system("xxhsum --version >/dev/null 2>&1") != 0) {
        print_message("    xxhsum is not installed\n");
        skip();
    }
    static const size_t sizes[] = {0, 1, 16, 240, 241, 768, 2304, 6144, 196608};
    unsigned char *bytes = malloc(196608);
    assert_non_null(bytes);
    fill(bytes, 196608, 99);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char path[] = "/tmp/driftscope-test-XXXXXX", command[128], line[256] = "";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_true(write(fd, bytes, sizes[i]) == (ssize_t)sizes[i]);
        close(fd);
        snprintf(command, sizeof command, "xxhsum -H3 < %s", path);
        FILE *tool = popen(command, "r");
        assert_non_null(tool);
        assert_non_null(fgets(line, sizeof line, tool));
        assert_int_equal(pclose(tool), 0);
        unlink(path);
        const char *tag =
            strstr(line, "= "); /* "XXH3 (stdin) = HEX", in newer versions "XXH3_HEX  stdin" */
        const char *hex = tag ? tag + 2 : strncmp(line, "XXH3_", 5) == 0 ? line + 5 : line;
        assert_true(strtoull(hex, NULL, 16) == ds_digest(bytes, sizes[i]));
    }
    free(bytes);
}

/* One bit anywhere, a sign of zero, a NaN payload, a subnormal: each gives another digest. */
static void test_every_bit_counts(void **state)
{
    (void)state;
    float row[192];
    uint32_t seed = 3;
    for (size_t i = 0; i < 192; i++)
        row[i] = (float)(int32_t)noise(&seed) * 1e-9f;
    uint64_t whole = ds_digest(row, sizeof row);
    for (size_t bit = 0; bit < sizeof row * 8; bit++) {
        ((unsigned char *)row)[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_true(ds_digest(row, sizeof row) != whole);
        ((unsigned char *)row)[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_true(ds_digest(row, sizeof row) == whole);
    static const uint32_t pairs[][2] = {{0x00000000u, 0x80000000u},
                                        {0x7fc00000u, 0x7fc00001u},
                                        {0x7fc00000u, 0xffc00000u},
                                        {0x00000000u, 0x00000001u}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        memcpy(&row[77], &pairs[i][0], 4);
        uint64_t a = ds_digest(row, sizeof row);
        memcpy(&row[77], &pairs[i][1], 4);
        assert_true(ds_digest(row, sizeof row) != a);
    }
}

static void test_nonfinite_scan_sees_every_place(void **state)
{
    (void)state;
    static const struct {
        int dtype;
        uint32_t yes[4], no[4];
    } cases[] = {
        {DS_F32,
         {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xff800001u},
         {0x7f7fffffu, 0xff7fffffu, 0x80000000u, 1}},
        {DS_BF16, {0x7f80u, 0xff80u, 0x7fc0u, 0xff81u}, {0x7f7fu, 0xff7fu, 0x8000u, 1}},
        {DS_F16, {0x7c00u, 0xfc00u, 0x7e00u, 0xfc01u}, {0x7bffu, 0xfbffu, 0x8000u, 1}},
    };
    for (size_t k = 0; ds_scan_isa_at(k); k++)
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
            for (size_t n = 1; n < 150; n++) {
                size_t size = ds_dtype_size(cases[c].dtype);
                unsigned char row[150 * 4] = {0};
                for (size_t i = 0; i < n; i++)
                    memcpy(row + i * size, &cases[c].no[i % 4], size);
                assert_int_equal(ds_scan_isa_at(k)->nonfinite(cases[c].dtype, row, n * size), 0);
                for (size_t i = 0; i < n; i++) {
                    memcpy(row + i * size, &cases[c].yes[(i + n) % 4], size);
                    assert_int_equal(ds_scan_isa_at(k)->nonfinite(cases[c].dtype, row, n * size),
                                     1);
                    assert_int_equal(ds_scan_isa_at(k)->nonfinite(DS_I32, row, n * size), 0);
                    memcpy(row + i * size, &cases[c].no[i % 4], size);
                }
            }
}

static void test_largest_magnitude(void **state)
{
    (void)state;
    static const struct {
        int dtype;
        uint32_t sign, magnitude;
    } cases[] = {{DS_F32, 0x80000000u, 0x7fffffffu},
                 {DS_BF16, 0x8000u, 0x7fffu},
                 {DS_F16, 0x8000u, 0x7fffu}};
    uint32_t seed = 5;
    for (size_t k = 0; ds_scan_isa_at(k); k++)
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
            for (size_t n = 0; n < 150; n++) {
                size_t size = ds_dtype_size(cases[c].dtype);
                unsigned char row[150 * 4] = {0};
                uint32_t want = 0;
                for (size_t i = 0; i < n; i++) {
                    uint32_t bits = noise(&seed) & (cases[c].sign | cases[c].magnitude);
                    bits = i % 3 ? bits & ~0x7000u : bits;
                    memcpy(row + i * size, &bits, size);
                    bits &= cases[c].magnitude;
                    want = bits > want ? bits : want;
                }
                assert_int_equal(ds_scan_isa_at(k)->largest(cases[c].dtype, row, n * size), want);
                assert_int_equal(ds_scan_isa_at(k)->largest(DS_I32, row, n * size), 0);
            }
}

static void test_next_above_and_count_equal(void **state)
{
    (void)state;
    float x[200];
    uint32_t seed = 11;
    for (size_t i = 0; i < 200; i++)
        x[i] = (float)(noise(&seed) % 7);
    x[13] = x[150] = NAN;
    x[60] = -0.0f;
    for (size_t k = 0; ds_scan_isa_at(k); k++)
        for (size_t n = 0; n <= 200; n++)
            for (int limit = -1; limit < 7; limit++) {
                size_t begin = n / 3, want = begin, count = 0;
                while (want < n && !(x[want] > (float)limit))
                    want++;
                for (size_t i = 0; i < n; i++)
                    count += x[i] == (float)limit;
                assert_int_equal(ds_scan_isa_at(k)->next_above(x, begin, n, (float)limit), want);
                assert_int_equal(ds_scan_isa_at(k)->count_equal(x, n, (float)limit), count);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_isa_equals_the_library),
        cmocka_unit_test(test_avx512_if_this_cpu_has_it),
        cmocka_unit_test(test_known_value),
        cmocka_unit_test(test_digest_of_digests_is_over_little_endian_bytes),
        cmocka_unit_test(test_equals_the_xxhsum_tool),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_nonfinite_scan_sees_every_place),
        cmocka_unit_test(test_largest_magnitude),
        cmocka_unit_test(test_next_above_and_count_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
