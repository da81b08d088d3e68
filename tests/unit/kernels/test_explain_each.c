/* test_explain_each.c: elements that stand alone: the way to compute them is found from the bits, and what it keeps
 * in fewer bits. Each side is computed here. */
#include "tests/unit/testing.h"

#include "base/dtype.h"
#include "kernels/lab/content.h"
#include "kernels/lab/explain_each.h"
#include "kernels/lab/subject.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, WIDTH = 32, DIM = 16, HALF = 6 };

struct world {
    struct ds_explain e;
    struct ds_explain_row row[ROWS];
    float in[2][ROWS][WIDTH], y[DS_SIDES][ROWS][WIDTH], table[8 * HALF * 2];
    double exact[ROWS * WIDTH];
    struct ds_explain_order order[DS_SIDES];
    struct ds_explain_noise noise;
    struct ds_explain_verdict verdict;
};

static float bf16(float v)
{
    return ds_bf16_value(ds_bf16_round(v));
}

static struct world *world_new(int op, int dtype)
{
    struct world *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->e = (struct ds_explain){.op = op, .rows = s->row, .n_rows = ROWS};
    ds_content_fill(s->table, 8 * HALF * 2, 3, 7);
    if (op == DS_OP_ROPE)
        s->e.shared.rope = (struct ds_rope_args){.heads = WIDTH / DIM,
                                                 .head_dim = DIM,
                                                 .rope_dim = 2 * HALF,
                                                 .table_positions = 8,
                                                 .cos_sin = s->table};
    else
        s->e.shared.silu_mul = (struct ds_silu_mul_args){.width = WIDTH};
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < 2; i++)
            ds_content_row(s->in[i][r], WIDTH, 5, 1 + (uint64_t)i, 0, r, DS_CONTENT_PLAIN);
        for (int c = 0; c < WIDTH && dtype == DS_BF16; c++) {
            s->in[0][r][c] = bf16(s->in[0][r][c]);
            s->in[1][r][c] = bf16(s->in[1][r][c]);
        }
        for (int side = 0; side < DS_SIDES; side++) {
            s->row[r].input[side] =
                (struct ds_explain_input){.in = {s->in[0][r], s->in[1][r]}, .number = 3 + r};
            s->row[r].at[side] = (struct ds_explain_at){.rows = ROWS, .row = r};
            s->row[r].y[side] = s->y[side][r];
            s->e.side[side] = (struct ds_explain_side){.threads = 1, .dtype = dtype};
        }
    }
    return s;
}

static void judge(struct world *s)
{
    struct ds_error err;
    for (int side = 0; side < DS_SIDES; side++) {
        ds_explain_order_free(&s->order[side]);
        assert_ok(ds_explain_order(&s->e, side, &s->order[side], &err), err);
    }
    assert_ok(ds_explain_exact(&s->e, s->exact, &err), err);
    assert_ok(ds_explain_noise(&s->e, s->exact, &s->noise, &err), err);
    ds_explain_judge(&s->e, s->order, &s->noise, &s->verdict);
}

static void world_free(struct world *s)
{
    for (int side = 0; side < DS_SIDES; side++)
        ds_explain_order_free(&s->order[side]);
    free(s);
}

static void silu(struct world *s, int side, int keep, int dtype)
{
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < WIDTH; c++) {
            const float g = s->in[0][r][c], v = g / (1.0f + expf(-g)),
                        y = (keep ? bf16(v) : v) * s->in[1][r][c];
            s->y[side][r][c] = dtype == DS_BF16 ? bf16(y) : y;
        }
}

static void test_silu_kept_in_few_bits(void **state)
{
    (void)state;
    for (int dtype = DS_F32; dtype <= DS_BF16; dtype++) {
        if (dtype != DS_F32 && dtype != DS_BF16)
            continue;
        struct world *s = world_new(DS_OP_SILU_MUL, dtype);
        silu(s, DS_SIDE_A, 0, dtype);
        silu(s, DS_SIDE_B, 1, dtype);
        judge(s);
        /* In bf16 it is a rounding more, in f32 it is bf16 where f32 is asked for. */
        assert_int_equal(s->verdict.kind, dtype == DS_F32 ? DS_EXPLAIN_LOWER_PRECISION
                                                          : DS_EXPLAIN_DIFFERENT_ALGORITHM);
        assert_int_equal(s->verdict.basis, DS_BASIS_BITS);
        assert_non_null(strstr(s->verdict.why, "A is g / (1 + exp(-g)) * u, exp of libm, B"));
        assert_non_null(strstr(s->verdict.why, ", silu(g) kept in bf16"));
        /* One bit that no way gives: nothing is claimed of its way. */
        s->y[DS_SIDE_B][1][5] = nextafterf(s->y[DS_SIDE_B][1][5], 9);
        judge(s);
        assert_false(s->order[DS_SIDE_B].replayed);
        assert_true(s->order[DS_SIDE_A].replayed);
        world_free(s);
    }
}

/* Pairs apart and side by side, channels that are not rotated, FMA on either product. */
static void rope(struct world *s, int side, int fma)
{
    const struct ds_rope_args *a = &s->e.shared.rope;
    for (int r = 0; r < ROWS; r++) {
        memcpy(s->y[side][r], s->in[0][r], sizeof s->y[side][r]);
        for (int h = 0; h < WIDTH / DIM; h++)
            for (int i = 0; i < HALF; i++) {
                const int at = h * DIM + (a->neox ? i : 2 * i), apart = a->neox ? HALF : 1;
                const float x0 = s->in[0][r][at], x1 = s->in[0][r][at + apart],
                            co = s->table[((3 + r) * HALF + i) * 2],
                            si = s->table[((3 + r) * HALF + i) * 2 + 1];
                s->y[side][r][at] = fma == 1   ? fmaf(x0, co, -(x1 * si))
                                    : fma == 2 ? fmaf(-x1, si, x0 * co)
                                               : x0 * co - x1 * si;
                s->y[side][r][at + apart] = fma == 1   ? fmaf(x1, co, x0 * si)
                                            : fma == 2 ? fmaf(x0, si, x1 * co)
                                                       : x0 * si + x1 * co;
            }
    }
}

static void test_rope(void **state)
{
    static const char *const words[] = {"both products rounded, then their sum",
                                        "FMA(own channel, cos, other channel * sin)",
                                        "FMA(other channel, sin, own channel * cos)"};
    (void)state;
    for (int neox = 0; neox < 2; neox++)
        for (int way = 0; way < 3; way++) {
            struct world *s = world_new(DS_OP_ROPE, DS_F32);
            char text[128];
            s->e.shared.rope.neox = neox;
            rope(s, DS_SIDE_A, way);
            rope(s, DS_SIDE_B, (way + 1) % 3);
            judge(s);
            assert_int_equal(s->verdict.kind, DS_EXPLAIN_DIFFERENT_ALGORITHM);
            for (int side = 0; side < DS_SIDES; side++) {
                assert_true(s->order[side].replayed);
                ds_each_text(DS_OP_ROPE, s->order[side].form, text, sizeof text);
                assert_string_equal(text, words[(way + side) % 3]);
            }
            /* The other pairing is none of the ways. */
            s->e.shared.rope.neox = !neox;
            judge(s);
            assert_false(s->order[DS_SIDE_A].replayed);
            world_free(s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silu_kept_in_few_bits),
        cmocka_unit_test(test_rope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
