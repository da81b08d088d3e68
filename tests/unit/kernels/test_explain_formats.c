/* test_explain_formats.c: inputs of 8 and 4 bits are no wrong data, and wrong data beside them is. Each
 * format is made here once more, so that the model is not held against itself. */
#include "tests/unit/testing.h"

#include "base/dtype.h"
#include "kernels/lab/content.h"
#include "kernels/lab/explain.h"
#include "kernels/lab/subject.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 8, N = 64, MOST_K = 256 };

struct world {
    struct ds_explain e;
    struct ds_explain_row row[ROWS];
    int64_t k;
    float x[ROWS * MOST_K], w[N * MOST_K], rx[ROWS * MOST_K], rw[N * MOST_K];
    float y[DS_SIDES][ROWS][N];
    double exact[ROWS * N];
    struct ds_explain_noise noise;
    struct ds_explain_verdict verdict;
};

static void multiply(const struct world *s, const float *x, const float *w, float y[ROWS][N])
{
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < N; c++) {
            float sum = 0;
            for (int64_t k = 0; k < s->k; k++)
                sum = fmaf(x[r * s->k + k], w[c * s->k + k], sum);
            y[r][c] = sum;
        }
}

static struct world *world_new(int64_t k, uint64_t seed)
{
    struct world *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->k = k;
    for (int r = 0; r < ROWS; r++) {
        ds_content_row(s->x + r * k, k, seed, 1, 0, r, DS_CONTENT_PLAIN);
        s->row[r].input[DS_SIDE_A].in[0] = s->row[r].input[DS_SIDE_B].in[0] = s->x + r * k;
        for (int side = 0; side < DS_SIDES; side++) {
            s->row[r].at[side] = (struct ds_explain_at){.rows = ROWS, .row = r};
            s->row[r].y[side] = s->y[side][r];
        }
    }
    ds_content_fill(s->w, N * k, seed, 2);
    s->e = (struct ds_explain){.op = DS_OP_MATMUL, .rows = s->row, .n_rows = ROWS};
    s->e.shared.matmul =
        (struct ds_matmul_args){.n = N, .k = k, .w = {.data = s->w, .n = N, .k = k}};
    for (int side = 0; side < DS_SIDES; side++)
        s->e.side[side].threads = 1;
    multiply(s, s->x, s->w, s->y[DS_SIDE_A]);
    return s;
}

static void judge(struct world *s)
{
    struct ds_explain_order none[DS_SIDES];
    struct ds_error err;
    memset(none, 0, sizeof none);
    assert_ok(ds_explain_exact(&s->e, s->exact, &err), err);
    assert_ok(ds_explain_noise(&s->e, s->exact, &s->noise, &err), err);
    ds_explain_judge(&s->e, none, &s->noise, &s->verdict);
}

/* ---- the formats ----------------------------------------------------------------------------- */

/* The nearest of all codes, of two the even one: OCP E4M3, 0x7f is NaN. */
static float e4m3(float v)
{
    double best = INFINITY, value = 0;
    for (int code = 0; code < 0x7f; code++) {
        const int exponent = code >> 3, part = code & 7;
        const double d = exponent ? ldexp(8 + part, exponent - 10) : ldexp(part, -9),
                     off = fabs(fabs((double)v) - d);
        if (off < best || (off == best && code % 2 == 0)) {
            best = off;
            value = d;
        }
    }
    return copysignf((float)value, v);
}

enum how { FP8_BARE, FP8, INT8, INT4, INT4_FROM_LARGEST, INT4_FROM_LEAST };

static void round_block(enum how how, float *to, const float *v, int64_t n)
{
    float least = INFINITY, most = -INFINITY, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        least = fminf(least, v[i]);
        most = fmaxf(most, v[i]);
        largest = fabsf(v[i]) > fabsf(largest) ? v[i] : largest;
    }
    const float step = how == FP8                 ? fabsf(largest) / 448
                       : how == INT8              ? fabsf(largest) / 127
                       : how == INT4              ? fabsf(largest) / 7
                       : how == INT4_FROM_LARGEST ? largest / -8
                                                  : (most - least) / 15;
    for (int64_t i = 0; i < n; i++)
        to[i] = how == FP8_BARE            ? e4m3(v[i])
                : how == FP8               ? e4m3(v[i] / step) * step
                : how == INT4_FROM_LARGEST ? fminf(rintf(v[i] / step), 7) * step
                : how == INT4_FROM_LEAST   ? rintf((v[i] - least) / step) * step + least
                                           : rintf(v[i] / step) * step;
}

static void round_all(enum how how, float *to, const float *v, int64_t n, int64_t block)
{
    for (int64_t i = 0; i < n; i += block)
        round_block(how, to + i, v + i, block);
}

/* block 0: a row; -1: a tensor. */
static void round_inputs(struct world *s, enum how how, int64_t block, int which)
{
    const int64_t k = s->k;
    memcpy(s->rx, s->x, sizeof s->x);
    memcpy(s->rw, s->w, sizeof s->w);
    if (which & 1)
        round_all(how, s->rx, s->x, ROWS * k, block > 0 ? block : k);
    if (which & 2)
        round_all(how, s->rw, s->w, N * k, block > 0 ? block : block < 0 ? N * k : k);
    multiply(s, s->rx, s->rw, s->y[DS_SIDE_B]);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const struct format {
    const char *what;
    enum how how;
    int block;
    int known; /* the model has it: it is named */
} formats[] = {
    {"fp8 without a scale", FP8_BARE, 0, 1},
    {"fp8 by row", FP8, 0, 1},
    {"fp8 by tensor", FP8, -1, 1},
    {"fp8 by 32", FP8, 32, 0},
    {"8 bits by 32", INT8, 32, 1},
    {"8 bits by row", INT8, 0, 1},
    {"8 bits by tensor", INT8, -1, 1},
    {"4 bits by 32", INT4, 32, 1},
    {"4 bits by row", INT4, 0, 1},
    {"4 bits by tensor", INT4, -1, 1},
    {"4 bits from the largest by 32", INT4_FROM_LARGEST, 32, 0},
    {"4 bits from the largest by row", INT4_FROM_LARGEST, 0, 0},
    {"4 bits from the least by 32", INT4_FROM_LEAST, 32, 0},
    {"4 bits from the least by row", INT4_FROM_LEAST, 0, 0},
};

static void test_formats(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++)
        for (int i = 0; i < 6; i++) {
            const int64_t k = i % 2 ? 256 : 64;
            struct world *s = world_new(k, 100 + (uint64_t)i);
            round_inputs(s, formats[f].how, formats[f].block, 1 + i / 2);
            judge(s);
            const int kind = s->verdict.kind;
            if (kind != DS_EXPLAIN_LOWER_PRECISION &&
                (formats[f].known || kind != DS_EXPLAIN_UNKNOWN)) {
                print_error("%s, k=%d, inputs %d: %s: %s\n", formats[f].what, (int)k, 1 + i / 2,
                            ds_explain_kind_name(kind), s->verdict.why);
                fail();
            }
            if (kind == DS_EXPLAIN_LOWER_PRECISION)
                assert_int_equal(s->verdict.side, DS_SIDE_B);
            free(s);
        }
}

static void expect_wrong(struct world *s, const char *what, const char *damage)
{
    judge(s);
    if (s->verdict.kind == DS_EXPLAIN_WRONG_DATA && s->verdict.side == DS_SIDE_B)
        return;
    print_error("%s in %s, k=%d: %s: %s\n", damage, what, (int)s->k,
                ds_explain_kind_name(s->verdict.kind), s->verdict.why);
    fail();
}

/* In f32: elements that are others', a column of zeros, the row before. */
static void test_wrong_data(void **state)
{
    (void)state;
    for (int64_t k = 64; k <= 256; k *= 4) {
        struct world *s = world_new(k, 7);
        float(*b)[N] = s->y[DS_SIDE_B];
        memcpy(b, s->y[DS_SIDE_A], sizeof s->y[0]);
        b[3][5] = s->y[DS_SIDE_A][3][6];
        b[3][6] = s->y[DS_SIDE_A][3][5];
        expect_wrong(s, "f32", "two elements");
        memcpy(b, s->y[DS_SIDE_A], sizeof s->y[0]);
        for (int r = 0; r < ROWS; r++)
            b[r][11] = 0;
        expect_wrong(s, "f32", "a column of zeros");
        memcpy(b, s->y[DS_SIDE_A], sizeof s->y[0]);
        memcpy(b[4], s->y[DS_SIDE_A][3], sizeof b[4]);
        expect_wrong(s, "f32", "the row before");
        memset(b, 0, sizeof s->y[0]);
        expect_wrong(s, "f32", "zeros");
        free(s);
    }
}

/* Inputs of a few bits excuse no element that is far off beside what they make of any. */
static void test_wrong_data_beside_a_format(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        struct world *s = world_new(256, 31);
        round_inputs(s, formats[f].how, formats[f].block, 3);
        judge(s);
        double most = 0;
        for (size_t i = 0; i < s->noise.n_rounded; i++)
            most = fmax(most, s->noise.rounded[i].most);
        s->y[DS_SIDE_B][2][40] += (float)(8 * most);
        expect_wrong(s, formats[f].what, "one element");
        free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_wrong_data),
        cmocka_unit_test(test_wrong_data_beside_a_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
