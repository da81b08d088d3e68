/* harness.h: what the kernel tests share: guarded and poisoned memory, random data with special
 * values, launching. */
#ifndef DS_TEST_KERNELS_HARNESS_H
#define DS_TEST_KERNELS_HARNESS_H

#include "tests/unit/testing.h"

#include "base/team.h"
#include "kernels/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CANARIES = 32 };
static const uint32_t CANARY = 0xc0ffee11u, POISON = 0x7fc0deadu;

/* A matrix of f32 in the middle of canaries, not aligned to anything but 4 bytes when `skew` is
 * odd. */
struct matrix {
    float *base, *p;
    int64_t rows, cols, ld;
    size_t total;
};

static inline void fill_bits(float *p, size_t n, uint32_t bits)
{
    for (size_t i = 0; i < n; i++)
        p[i] = ds_f32_from_bits(bits);
}

static inline struct matrix matrix_new(int64_t rows, int64_t cols, int64_t ld, int skew)
{
    struct matrix m = {NULL, NULL, rows, cols, ld, (size_t)(rows * ld) + 2 * CANARIES + 16};
    m.base = aligned_alloc(64, (m.total * 4 + 63) / 64 * 64);
    assert_non_null(m.base);
    m.p = m.base + CANARIES + skew;
    fill_bits(m.base, m.total, CANARY);
    for (int64_t r = 0; r < rows; r++)
        fill_bits(m.p + r * ld, (size_t)cols, POISON);
    return m;
}

/* Nothing outside the matrix's own columns was written, and nothing inside was left unwritten. */
static inline void matrix_check(const char *name, const struct matrix *m)
{
    for (size_t i = 0; i < m->total; i++) {
        ptrdiff_t at = m->base + i - m->p;
        int inside = at >= 0 && at < m->rows * m->ld && at % m->ld < m->cols;
        uint32_t bits = ds_f32_bits(m->base[i]);
        if (!inside && bits != CANARY) {
            print_error("%s: wrote outside at %ld: %08x\n", name, (long)at, bits);
            fail();
        }
        if (inside && bits == POISON) {
            print_error("%s: left row %ld, column %ld unwritten\n", name, (long)(at / m->ld),
                        (long)(at % m->ld));
            fail();
        }
    }
}

static inline void matrix_free(struct matrix *m)
{
    free(m->base);
    m->base = m->p = NULL;
}

static uint64_t rng_state = 1;

static inline uint32_t rng(void)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 32);
}

static inline float rng_unit(void) /* -1..1 */
{
    return (float)((int32_t)rng() >> 8) * 0x1p-23f;
}

/* -0, subnormals, huge values, infinities, NaNs with payloads and signs. */
static inline float rng_special(void)
{
    static const uint32_t bits[] = {
        0x80000000u, 0u,          1u,          0x80000001u, 0x007fffffu, 0x807fffffu, 0x00800000u,
        0x7f7fffffu, 0xff7fffffu, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc12345u, 0x7f800001u,
        0x3f800000u, 0xbf800000u, 0x0da24260u, 0x5f800000u, 0xdf800000u, 0x7fffffffu};
    return ds_f32_from_bits(bits[rng() % (sizeof bits / sizeof bits[0])]);
}

/* Fills with values of about 1; one in `special` (0 = none) is a special value. */
static inline void randomise(struct matrix *m, unsigned special)
{
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->cols; c++)
            m->p[r * m->ld + c] = special && rng() % special == 0 ? rng_special() : rng_unit();
}

static inline struct matrix matrix_random(int64_t rows, int64_t cols, int64_t ld, int skew,
                                          unsigned special)
{
    struct matrix m = matrix_new(rows, cols, ld, skew);
    randomise(&m, special);
    return m;
}

static inline void run_team(void *team, void (*fn)(void *, int, int), void *arg)
{
    ds_team_run(team, fn, arg);
}

/* Runs a kernel on `threads` threads with exactly the scratch memory that it asked for. */
static inline void launch_named(const struct ds_kernel *k, const void *args, int threads)
{
    char why[256] = "";
    struct ds_error err;
    struct ds_team *team = ds_team_new(threads, &err);
    assert_non_null(team);
    struct ds_exec exec = {.threads = threads, .team = team, .run = run_team, .seed = 1};
    exec.scratch_bytes = k->scratch_bytes ? k->scratch_bytes(args, threads) : 0;
    if (exec.scratch_bytes) {
        exec.scratch = aligned_alloc(64, (exec.scratch_bytes + 63) / 64 * 64);
        assert_non_null(exec.scratch);
        fill_bits(exec.scratch, exec.scratch_bytes / 4, POISON);
    }
    if (k->launch(args, &exec, why, sizeof why) != 0) {
        print_error("%s/%s: %s\n", ds_op_name(k->op), k->name, why);
        fail();
    }
    free(exec.scratch);
    ds_team_free(team);
}

static inline const struct ds_kernel *kernel(int op, const char *name)
{
    const struct ds_kernel *k = ds_kernel_find(op, name);
    assert_non_null(k);
    return k;
}

/* Uses one instruction set for a test, or skips it where the CPU lacks it. DS_TEST_ISA leaves the
 * others out: an emulated CPU (tests/tools/emulate) is slow. */
static inline void use_isa(void **state)
{
    struct ds_error err;
    const char *only = getenv("DS_TEST_ISA");
    if (only && *state && strcmp(only, *state) != 0)
        skip();
    if (*state && ds_isa_force(*state, &err) != 0) {
        print_message("%s\n", err.msg);
        skip();
    }
}

static inline int back_to_auto(void **state)
{
    struct ds_error err;
    (void)state;
    return ds_isa_force("auto", &err);
}

#define PER_ISA(test)                                                                              \
    {#test " scalar", test, NULL, back_to_auto, (void *)(uintptr_t) "scalar"},                     \
        {#test " avx2", test, NULL, back_to_auto, (void *)(uintptr_t) "avx2"},                     \
    {                                                                                              \
#test " avx512", test, NULL, back_to_auto, (void *)(uintptr_t) "avx512"                    \
    }

#endif
