/* test_explain.c: kinds told apart by what random orders and rounded inputs do to the very rows; rows
 * brought into their call again; measured orders that give every bit. Each side is computed here, so
 * that it is known what was done to it. */
#include "tests/unit/testing.h"

#include "kernels/lab/content.h"
#include "kernels/lab/explain.h"
#include "kernels/lab/subject.h"
#include "kernels/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, MOST_N = 64, MOST_K = 1024 };

struct world {
    struct ds_explain e;
    struct ds_explain_row row[ROWS];
    int64_t n, k;
    float x[ROWS][MOST_K], w[MOST_N * MOST_K], y[DS_SIDES][ROWS][MOST_N];
    double exact[ROWS * MOST_N];
    struct ds_explain_noise noise;
    struct ds_explain_verdict verdict;
};

static struct world *world_new(int64_t n, int64_t k, uint64_t seed)
{
    struct world *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->n = n;
    s->k = k;
    for (int r = 0; r < ROWS; r++) {
        ds_content_row(s->x[r], k, seed, 1, 0, r, DS_CONTENT_PLAIN);
        s->row[r].input[DS_SIDE_A].in[0] = s->row[r].input[DS_SIDE_B].in[0] = s->x[r];
        for (int side = 0; side < DS_SIDES; side++) {
            s->row[r].at[side] = (struct ds_explain_at){.call = 0, .rows = ROWS, .row = r};
            s->row[r].y[side] = s->y[side][r];
        }
    }
    ds_content_fill(s->w, n * k, seed, 2);
    s->e = (struct ds_explain){.op = DS_OP_MATMUL, .rows = s->row, .n_rows = ROWS};
    s->e.shared.matmul =
        (struct ds_matmul_args){.n = n, .k = k, .w = {.data = s->w, .n = n, .k = k}};
    for (int side = 0; side < DS_SIDES; side++)
        s->e.side[side].threads = 1;
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

static void expect(const struct world *s, const char *what, int kind, int side)
{
    if (s->verdict.kind == kind && s->verdict.side == side)
        return;
    print_error("%s at n=%d, k=%d: %s, side %d: %s\n", what, (int)s->n, (int)s->k,
                ds_explain_kind_name(s->verdict.kind), s->verdict.side, s->verdict.why);
    fail();
}

/* ---- how a side may have computed ------------------------------------------------------------ */

static float as_is(float v)
{
    return v;
}

static float bf16(float v)
{
    return ds_bf16_value(ds_bf16_round(v));
}

static float f16(float v)
{
    return ds_f16_value(ds_f16_round(v));
}

static float tf32(float v)
{
    uint32_t u = ds_f32_bits(v);
    return ds_f32_from_bits((u + 0xfffu + (u >> 13 & 1u)) & ~0x1fffu);
}

static float tf32_cut(float v)
{
    return ds_f32_from_bits(ds_f32_bits(v) & ~0x1fffu);
}

struct how {
    float (*x)(float), (*w)(float), (*part)(float);
    int64_t parts, leave_out; /* of the terms, at the end */
};

static void compute(struct world *s, int side, const struct how *h)
{
    for (int r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < s->n; c++) {
            float total = 0;
            for (int64_t p = 0; p < h->parts; p++) {
                float sum = 0;
                int64_t end = s->k * (p + 1) / h->parts;
                end = end > s->k - h->leave_out ? s->k - h->leave_out : end;
                for (int64_t k = s->k * p / h->parts; k < end; k++)
                    sum = fmaf(h->x(s->x[r][k]), h->w(s->w[c * s->k + k]), sum);
                sum = h->part(sum);
                total = p ? h->part(total + sum) : sum;
            }
            s->y[side][r][c] = total;
        }
}

static const struct how plain = {as_is, as_is, as_is, 1, 0};

static void test_kinds(void **state)
{
    static const struct {
        const char *what;
        struct how how;
        int kind, side;
    } cases[] = {
        {"two parts", {as_is, as_is, as_is, 2, 0}, DS_EXPLAIN_ROUNDING_ORDER, -1},
        {"seven parts", {as_is, as_is, as_is, 7, 0}, DS_EXPLAIN_ROUNDING_ORDER, -1},
        {"TF32", {tf32, tf32, as_is, 1, 0}, DS_EXPLAIN_LOWER_PRECISION, DS_SIDE_B},
        {"TF32 in parts", {tf32, tf32, as_is, 4, 0}, DS_EXPLAIN_LOWER_PRECISION, DS_SIDE_B},
        {"TF32 cut off", {tf32_cut, tf32_cut, as_is, 1, 0}, DS_EXPLAIN_LOWER_PRECISION, DS_SIDE_B},
        {"bf16", {bf16, bf16, as_is, 1, 0}, DS_EXPLAIN_LOWER_PRECISION, DS_SIDE_B},
        {"bf16 weights", {as_is, bf16, as_is, 1, 0}, DS_EXPLAIN_LOWER_PRECISION, DS_SIDE_B},
        {"f16", {f16, f16, as_is, 2, 0}, DS_EXPLAIN_LOWER_PRECISION, DS_SIDE_B},
        {"bf16 sums", {as_is, as_is, bf16, 4, 0}, DS_EXPLAIN_LOWER_PRECISION, DS_SIDE_B},
        {"terms left out", {as_is, as_is, as_is, 1, 8}, DS_EXPLAIN_WRONG_DATA, DS_SIDE_B},
        {"terms left out", {as_is, as_is, as_is, 1, 1}, DS_EXPLAIN_WRONG_DATA, DS_SIDE_B},
    };
    static const int64_t sizes[][2] = {{64, 64}, {31, 576}, {16, 1000}};
    (void)state;
    for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct world *s = world_new(sizes[z][0], sizes[z][1], 40 + z);
            compute(s, DS_SIDE_A, &plain);
            compute(s, DS_SIDE_B, &cases[i].how);
            judge(s);
            expect(s, cases[i].what, cases[i].kind, cases[i].side);
            /* The other way round: A is to blame. */
            compute(s, DS_SIDE_A, &cases[i].how);
            compute(s, DS_SIDE_B, &plain);
            judge(s);
            expect(s, cases[i].what, cases[i].kind, cases[i].side < 0 ? -1 : DS_SIDE_A);
            free(s);
        }
}

/* The format is named, and its evidence: what it leaves over is noise of f32. */
static void test_format_is_named(void **state)
{
    const struct how how = {as_is, tf32, as_is, 1, 0};
    struct world *s = world_new(40, 576, 3);
    (void)state;
    compute(s, DS_SIDE_A, &plain);
    compute(s, DS_SIDE_B, &how);
    judge(s);
    assert_non_null(strstr(s->verdict.why, "with the weights in TF32"));
    assert_true(s->noise.order_error.most < 1e-5);
    assert_true(s->noise.error[DS_SIDE_B] > 1e-4);
    /* The bound that only excludes: this K's gamma contains it all. */
    assert_true(s->noise.gamma[DS_SIDE_A] < 1);
    free(s);
}

static void test_one_wrong_weight(void **state)
{
    (void)state;
    for (int64_t wrong = 5; wrong < 500; wrong += 163) {
        struct world *s = world_new(64, 576, 9);
        const int64_t at = 17 * s->k + wrong;
        const float right = s->w[at];
        char text[64];
        compute(s, DS_SIDE_A, &plain);
        s->w[at] = right * 1.25f;
        compute(s, DS_SIDE_B, &plain);
        s->w[at] = right;
        judge(s);
        expect(s, "one weight", DS_EXPLAIN_WRONG_DATA, DS_SIDE_B);
        assert_true(s->noise.outside[DS_SIDE_B] <= ROWS);
        assert_true(s->noise.outside[DS_SIDE_B] >= 1);
        snprintf(text, sizeof text, "the weight of column 17, k = %d is", (int)wrong);
        assert_non_null(strstr(s->verdict.why, text));
        free(s);
    }
}

/* What was wrong is said where it is simple. */
static void test_what_was_wrong(void **state)
{
    const struct how tail = {as_is, as_is, as_is, 1, 8};
    struct world *s = world_new(40, 576, 13);
    float bias[40];
    (void)state;
    compute(s, DS_SIDE_A, &plain);
    compute(s, DS_SIDE_B, &tail);
    judge(s);
    assert_string_equal(s->verdict.why, "B is explained when the terms k = 568..575 are missing");
    /* A row that is as it should be does not hide it: not every call has the fault. */
    memcpy(s->y[DS_SIDE_B][0], s->y[DS_SIDE_A][0], sizeof s->y[0][0]);
    judge(s);
    assert_string_equal(s->verdict.why,
                        "B is explained when the terms k = 568..575 are missing in 2 of 3 rows");
    assert_false(ds_guess_has(&s->noise.guess[DS_SIDE_B], 0));
    assert_true(ds_guess_has(&s->noise.guess[DS_SIDE_B], 2));
    ds_content_fill(bias, 40, 1, 3);
    s->e.shared.matmul.bias = bias;
    for (int r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < 40; c++) {
            s->y[DS_SIDE_B][r][c] = s->y[DS_SIDE_A][r][c] + bias[(c + 3) % 40];
            s->y[DS_SIDE_A][r][c] += bias[c];
        }
    judge(s);
    assert_string_equal(s->verdict.why, "B is explained when column j has the bias of column j +3");
    for (int r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < 40; c++)
            s->y[DS_SIDE_B][r][c] =
                s->y[DS_SIDE_A][r][c] - bias[c] + ds_bf16_value(ds_bf16_round(bias[c]));
    judge(s);
    assert_string_equal(s->verdict.why, "B is explained when the bias is rounded to bf16");
    assert_int_equal(s->verdict.kind, DS_EXPLAIN_LOWER_PRECISION);
    assert_int_equal(s->verdict.basis, DS_BASIS_NAMED);
    for (int r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < 40; c++) {
            double lost = 0;
            for (int64_t k = 15; k < 576; k += 16)
                lost += (double)s->x[r][k] * (double)s->w[c * 576 + k];
            s->y[DS_SIDE_B][r][c] = (float)((double)s->y[DS_SIDE_A][r][c] - lost);
        }
    judge(s);
    assert_string_equal(s->verdict.why,
                        "B is explained when the terms k = 15, 31, .. (every 16th) are missing");
    for (int r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < 40; c++)
            s->y[DS_SIDE_B][r][c] = c < 39 ? s->y[DS_SIDE_A][r][c + 1] : 0;
    judge(s);
    assert_string_equal(s->verdict.why,
                        "B is explained when element i is what element i + 1 should be");
    free(s);
}

static void test_wrong_row_scale_and_nan(void **state)
{
    struct world *s = world_new(48, 256, 5);
    (void)state;
    compute(s, DS_SIDE_A, &plain);
    memcpy(s->y[DS_SIDE_B][0], s->y[DS_SIDE_A][1], sizeof s->y[0][0]);
    memcpy(s->y[DS_SIDE_B][1], s->y[DS_SIDE_A][2], sizeof s->y[0][0]);
    memcpy(s->y[DS_SIDE_B][2], s->y[DS_SIDE_A][0], sizeof s->y[0][0]);
    judge(s);
    expect(s, "another row", DS_EXPLAIN_WRONG_DATA, DS_SIDE_B);
    assert_non_null(strstr(s->verdict.why, "row 0 of those dumped is what row 1 should be"));
    for (int r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < s->n; c++)
            s->y[DS_SIDE_B][r][c] = s->y[DS_SIDE_A][r][c] * 1.0625f;
    judge(s);
    expect(s, "a factor", DS_EXPLAIN_DIFFERENT_ALGORITHM, DS_SIDE_B);
    assert_close("ratio", 0, s->noise.ratio[DS_SIDE_B], 1.0625, 1e-6);
    s->y[DS_SIDE_B][1][7] = NAN;
    judge(s);
    expect(s, "NaN", DS_EXPLAIN_NON_FINITE, DS_SIDE_B);
    free(s);
}

static void norm(const float *x, const float *w, float *y, int64_t n, float eps)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum = fmaf(x[i], x[i], sum);
    for (int64_t i = 0; i < n; i++)
        y[i] = ds_norm_finish(0, DS_F32, sum, n, eps, x[i], w[i]);
}

/* rmsnorm with another epsilon: each row has a factor of its own. */
static void test_epsilon(void **state)
{
    struct world *s = world_new(64, 64, 11);
    (void)state;
    s->e.op = DS_OP_RMSNORM;
    s->e.shared.rmsnorm = (struct ds_rmsnorm_args){.width = 64, .weight = s->w, .eps = 1e-6f};
    for (int r = 0; r < ROWS; r++) {
        norm(s->x[r], s->w, s->y[DS_SIDE_A][r], 64, 1e-6f);
        norm(s->x[r], s->w, s->y[DS_SIDE_B][r], 64, 1e-2f);
    }
    judge(s);
    expect(s, "epsilon", DS_EXPLAIN_DIFFERENT_ALGORITHM, DS_SIDE_B);
    free(s);
}

/* Both sides round their inputs, and add them up in other orders: what both do is not what differs. */
static void test_what_both_sides_do(void **state)
{
    static const struct how one = {tf32, tf32, as_is, 1, 0}, four = {tf32, tf32, as_is, 4, 0};
    struct world *s = world_new(48, 576, 3);
    (void)state;
    compute(s, DS_SIDE_A, &one);
    compute(s, DS_SIDE_B, &four);
    judge(s);
    expect(s, "TF32 in two orders", DS_EXPLAIN_ROUNDING_ORDER, -1);
    assert_non_null(strstr(s->verdict.why, "neither side is what these inputs alone give"));
    free(s);
}

/* A copy whose rows are zero is no cut into steps, and a right side is no multiple of itself. */
static void test_copies(void **state)
{
    struct world *s = world_new(64, 64, 9);
    (void)state;
    s->e.op = DS_OP_CACHE;
    s->e.shared.cache = (struct ds_cache_args){.width = 64};
    for (int r = 0; r < ROWS; r++) {
        memcpy(s->y[DS_SIDE_A][r], s->x[r], 64 * sizeof(float));
        memset(s->y[DS_SIDE_B][r], 0, 64 * sizeof(float));
    }
    judge(s);
    expect(s, "zeros", DS_EXPLAIN_WRONG_DATA, DS_SIDE_B);
    assert_string_equal(s->verdict.why, "of B 192 of 192 elements are not what was read: in 3 of 3 "
                                        "rows, elements 0 to 63; they are 0");
    assert_int_equal(s->noise.block_bits[DS_SIDE_B], 0);
    for (int r = 0; r < ROWS; r++) {
        memcpy(s->y[DS_SIDE_B][r], s->x[r], 64 * sizeof(float));
        for (int i = 0; i < 64; i++)
            s->y[DS_SIDE_A][r][i] = s->x[r][63 - i];
    }
    judge(s);
    expect(s, "A turned round", DS_EXPLAIN_WRONG_DATA, DS_SIDE_A);
    free(s);
}

/* ---- calls and orders ------------------------------------------------------------------------ */

/* Rows 0, 3 and 6 of a call of 7 rows, as the kernel itself gives them. */
static void test_rows_in_their_call(void **state)
{
    static const char *const variants[] = {"pinned", "split-k", "reference", "bf16-partials",
                                           "tf32"};
    (void)state;
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        struct world *s = world_new(24, 576, 21);
        const struct ds_kernel *k = ds_kernel_find(DS_OP_MATMUL, variants[v]);
        struct ds_error err;
        struct ds_explain_match m;
        char why[128] = "";
        assert_non_null(k);
        for (int side = 0; side < DS_SIDES; side++) {
            for (int r = 0; r < ROWS; r++)
                s->row[r].at[side] =
                    (struct ds_explain_at){.call = side == DS_SIDE_A ? 0 : (uint32_t)r,
                                           .rows = side == DS_SIDE_A ? 7 : 1,
                                           .row = side == DS_SIDE_A ? 3 * r : 0};
            s->e.side[side].kernel = k;
            assert_ok(ds_explain_run(&s->e, side, k, 1, s->y[side][0], &err), err);
            /* y is [n_rows][width] there, rows of MOST_N here */
            for (int r = ROWS - 1; r > 0; r--)
                memmove(s->y[side][r], s->y[side][0] + r * s->n, (size_t)s->n * sizeof(float));
        }
        float *y = calloc(ROWS * (size_t)s->n, sizeof *y);
        assert_non_null(y);
        assert_int_equal(ds_explain_replay(&s->e, DS_SIDE_A, k, 1, y, why, sizeof why, &err), 0);
        ds_explain_match(&s->e, y, &m);
        assert_int_equal(m.elements, ROWS * s->n);
        assert_int_equal(m.same[DS_SIDE_A], m.elements);
        for (int side = 0; side < DS_SIDES; side++) {
            struct ds_explain_order o;
            assert_ok(ds_explain_order(&s->e, side, &o, &err), err);
            assert_string_equal(o.why, "");
            assert_true(o.fixed && o.replayed && o.n_trees >= 1);
            if (o.match.same[side] != o.match.elements)
                print_error("%s: the order gives %d of %d\n", variants[v], (int)o.match.same[side],
                            (int)o.match.elements);
            assert_int_equal(o.match.same[side], o.match.elements);
            ds_explain_order_free(&o);
        }
        free(y);
        free(s);
    }
}

/* Softmax along the tree of its denominator: with the exp of libm and with the pinned one. */
static void test_softmax_orders(void **state)
{
    static const char *const variants[] = {"pinned", "reference"};
    (void)state;
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        struct world *s = world_new(MOST_N, MOST_N, 31);
        struct ds_explain_order o;
        struct ds_error err;
        const struct ds_kernel *k = ds_kernel_find(DS_OP_SOFTMAX, variants[v]);
        char way[160];
        assert_non_null(k);
        s->e.op = DS_OP_SOFTMAX;
        s->e.shared.softmax = (struct ds_softmax_args){.width = MOST_N};
        s->e.side[DS_SIDE_B].kernel = k;
        assert_ok(ds_explain_run(&s->e, DS_SIDE_B, k, 1, s->y[DS_SIDE_B][0], &err), err);
        assert_ok(ds_explain_order(&s->e, DS_SIDE_B, &o, &err), err);
        assert_string_equal(o.why, "");
        assert_string_equal(o.not_replayed, "");
        assert_true(o.replayed);
        assert_int_equal(o.match.same[DS_SIDE_B], ROWS * MOST_N);
        ds_weigh_form_text(o.form, way, sizeof way);
        assert_non_null(strstr(way, v == 0 ? "the pinned exp" : "exp of libm"));
        ds_explain_order_free(&o);
        /* One bit that no way gives: then there is no replay, and it is said. */
        s->y[DS_SIDE_B][1][5] = nextafterf(s->y[DS_SIDE_B][1][5], 1);
        assert_ok(ds_explain_order(&s->e, DS_SIDE_B, &o, &err), err);
        assert_false(o.replayed);
        assert_non_null(strstr(o.not_replayed, "no known way"));
        ds_explain_order_free(&o);
        free(s);
    }
}

/* Choices by rule: ties either way, logits rounded first; and one that no rule gives. */
static void test_choices(void **state)
{
    static const float logits[ROWS][4] = {
        {1.0f, 3.0f, 3.0f, -1.0f}, {1.0f, 1.0009766f, 0, -NAN}, {-1.0f, -2.0f, -0.5f, -0.5f}};
    static const int32_t lowest[ROWS] = {1, 1, 2}, highest[ROWS] = {2, 1, 3},
                         in_bf16[ROWS] = {1, 0, 2}, wrong[ROWS] = {3, 1, 2};
    static const struct {
        const int32_t *b;
        int rule;
        const char *text;
    } cases[] = {{highest, 1, "the highest index where they tie"},
                 {in_bf16, 4, "the largest of the logits rounded to bf16"},
                 {wrong, -1, "B chose what no rule gives"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world *s = world_new(4, 4, 1);
        struct ds_explain_choice c;
        struct ds_error err;
        s->e.op = DS_OP_SAMPLE;
        s->e.shared.sample.vocab = 4;
        for (int r = 0; r < ROWS; r++) {
            memcpy(s->x[r], logits[r], sizeof logits[r]);
            s->y[DS_SIDE_A][r][0] = ds_f32_from_bits((uint32_t)lowest[r]);
            s->y[DS_SIDE_B][r][0] = ds_f32_from_bits((uint32_t)cases[i].b[r]);
        }
        assert_ok(ds_explain_choose(&s->e, &c, &err), err);
        assert_int_equal(c.rule[DS_SIDE_A], 0);
        assert_int_equal(c.rule[DS_SIDE_B], cases[i].rule);
        ds_explain_judge_choice(&s->e, &c, 1, &s->verdict);
        assert_int_equal(s->verdict.kind, DS_EXPLAIN_SELECTION_ONLY);
        assert_non_null(strstr(s->verdict.why, cases[i].text));
        free(s);
    }
}

/* A kernel that refuses or crashes is said, and is no failure of the lab. */
static int refuse(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    (void)args;
    (void)exec;
    snprintf(why, size, "not today");
    return -1;
}

static int crash(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    (void)args;
    (void)exec;
    (void)why;
    (void)size;
    abort();
}

static void test_bad_kernels(void **state)
{
    const struct ds_kernel
        no = {.abi = DS_KERNEL_ABI, .op = DS_OP_MATMUL, .name = "no", .launch = refuse},
        boom = {.abi = DS_KERNEL_ABI, .op = DS_OP_MATMUL, .name = "boom", .launch = crash};
    struct world *s = world_new(8, 32, 1);
    struct ds_error err;
    char why[128] = "";
    float y[ROWS * 8];
    (void)state;
    assert_int_equal(ds_explain_replay(&s->e, DS_SIDE_A, &no, 1, y, why, sizeof why, &err), 1);
    assert_non_null(strstr(why, "not today"));
    assert_int_equal(ds_explain_replay(&s->e, DS_SIDE_A, &boom, 1, y, why, sizeof why, &err), 1);
    assert_true(why[0] != '\0');
    struct ds_explain_order o;
    s->e.side[DS_SIDE_A].kernel = &no;
    assert_ok(ds_explain_order(&s->e, DS_SIDE_A, &o, &err), err);
    assert_non_null(strstr(o.why, "not today"));
    assert_false(o.replayed);
    ds_explain_order_free(&o);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_format_is_named),
        cmocka_unit_test(test_one_wrong_weight),
        cmocka_unit_test(test_what_was_wrong),
        cmocka_unit_test(test_wrong_row_scale_and_nan),
        cmocka_unit_test(test_epsilon),
        cmocka_unit_test(test_what_both_sides_do),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_rows_in_their_call),
        cmocka_unit_test(test_softmax_orders),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_bad_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
