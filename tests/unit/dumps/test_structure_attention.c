/* test_structure_attention.c: hypotheses about attention, by the keys and values that it reads, on rows built to show them,
 * and on values that must not. */
#include "tests/unit/dumps/structure_rows.h"

/* ---- attention ------------------------------------------------------------------------------- */

struct seen {
    int from, to, hole, empty; /* keys from..to but one; to counts from the position */
    int map;                   /* 0 right, 1 h % KV, 2 head 0 for all */
    double factor;
    int pads; /* of padding before the first, the last so many */
};

enum { PADS = 4 };
static float padding[2][PADS][KV * DIM];
static const float *pad_keys[PADS], *pad_values[PADS];

static void attend(int r, const struct seen *s, float *y)
{
    for (int h = 0; h < HEADS; h++) {
        int g = s->map == 0 ? h / (HEADS / KV) : s->map == 1 ? h % KV : 0;
        double sum = s->empty, out[DIM] = {0};
        for (int k = s->from > 0 ? s->from : -s->pads; k <= rows[r].position + s->to; k++) {
            double score = 0;
            const float *key = k < 0 ? padding[0][PADS + k] : cached[0][k],
                        *value = k < 0 ? padding[1][PADS + k] : cached[1][k];
            for (int c = 0; c < DIM; c++)
                score += (double)input[r][h * DIM + c] * (double)key[g * DIM + c];
            double weight = k == s->hole ? 0 : exp(score * s->factor / sqrt(DIM));
            sum += weight;
            for (int c = 0; c < DIM; c++)
                out[c] += weight * (double)value[g * DIM + c];
        }
        for (int c = 0; c < DIM; c++)
            y[h * DIM + c] = (float)(out[c] / sum);
    }
}

static void attention(uint64_t seed, struct seen a, struct seen b, int window_a, int window_b)
{
    set_up(seed, DS_STRUCTURE_ATTENTION, DS_F32);
    site.order = 1e-5;
    for (int k = 0; k < PADS; k++) {
        for (int i = 0; i < KV * DIM; i++) {
            padding[0][k][i] = normal();
            padding[1][k][i] = normal();
        }
        pad_keys[k] = padding[0][k];
        pad_values[k] = padding[1][k];
    }
    for (int r = 0; r < ROWS; r++) {
        rows[r].pad_k = pad_keys;
        rows[r].pad_v = pad_values;
        rows[r].n_pads = PADS;
        rows[r].k = key_rows;
        rows[r].v = value_rows;
        rows[r].n_keys = KEYS;
        a.from = window_a ? rows[r].position + 1 - window_a : a.from;
        b.from = window_b ? rows[r].position + 1 - window_b : b.from;
        attend(r, &a, ref[r]);
        attend(r, &b, mine[r]);
    }
    jitter(3e-7);
}

static void test_attention(void **st)
{
    (void)st;
    const struct seen all = {0, 0, -1, 0, 0, 1, 0};
    struct seen x = all;
    attention(70, all, all, 0, 0);
    expect_nothing("the same attention");
    attention(71, all, all, 4, 5);
    expect("attention sees the last 5 keys where the reference sees the last 4 keys");
    attention(72, all, all, 0, 4);
    expect("attention sees the last 4 keys where the reference sees all keys");
    x.to = -1;
    attention(73, all, x, 0, 0);
    expect("attention sees all keys but the last 1 where");
    x = all;
    x.to = 1;
    attention(74, all, x, 0, 0);
    expect("attention sees 1 key of later positions too");
    x = all;
    x.hole = 1;
    attention(75, all, x, 0, 0);
    expect("attention sees all keys but that of position 1");
    x = all;
    x.empty = 3;
    attention(76, all, x, 0, 0);
    expect("attention sees 3 empty keys too");
    x = all;
    x.hole = KEYS; /* none */
    x.pads = 4;
    attention(82, all, x, 0, 0);
    expect(
        "attention sees 4 padding keys too (positions -4 to -1) where the reference sees all keys");
    x.pads = 1;
    attention(83, all, x, 0, 0);
    expect("attention sees 1 padding key too (position -1) where");
    pad_keys[PADS - 1] = NULL; /* not dumped */
    expect_nothing("padding that is not at hand");
    x = all;
    x.map = 1;
    attention(77, all, x, 0, 0);
    expect("head h reads cached head h % kv_heads, not");
    x.map = 2;
    attention(78, all, x, 0, 0);
    expect("every head reads cached head 0, not");
    x = all;
    x.factor = 1.5;
    attention(79, all, x, 0, 0);
    expect("attention multiplies its scores by 1.5");
}

static void test_a_length_that_is_not_renewed(void **st)
{
    (void)st;
    const struct seen all = {0, 0, -1, 0, 0, 1, 0};
    attention(81, all, all, 0, 0);
    for (int r = 0; r < ROWS; r++) {
        struct seen x = all;
        x.to = r < 2 ? 0 : r < 4 ? 1 - r : 3 - r; /* positions 4, 5: keys 0-3; 6, 7: keys 0-5 */
        attend(r, &x, mine[r]);
    }
    expect("attention sees only the first 4 to 6 keys");
}

/* Nothing is claimed of rows whose cached rows are not at hand. */
static void test_attention_without_its_keys(void **st)
{
    (void)st;
    const struct seen all = {0, 0, -1, 0, 0, 1, 0};
    attention(80, all, all, 0, 4);
    key_rows[0] = NULL;
    expect_nothing("a missing key");
    key_rows[0] = cached[0][0];
}

/* ---- inside attention ------------------------------------------------------------------------ */

enum inner {
    PLAIN,
    SLOPES,
    SINKS,
    PAGE_1_IS_0,
    PAGE_1_IS_EMPTY,
    K_AS_V,
    V_AS_K,
    QUERY_BEFORE,
    FP8,
    FAST_EXP,
    HALF_A_SCORE,
    VALUES_LATE
};

static double few_bits(double w)
{
    int e = ilogb(w) < -6 ? -6 : ilogb(w);
    return ldexp(rint(ldexp(w, 3 - e)), e - 3);
}

/* Two to the whole part, and a line between. */
static double fast_exp(double x)
{
    double t = x / log(2), whole = floor(t);
    return ldexp(1 + t - whole, (int)whole);
}

static void attend_inner(int r, int how, float *y)
{
    const float *q = how == QUERY_BEFORE && r > 0 ? input[r - 1] : input[r];
    for (int h = 0; h < HEADS; h++) {
        double score[KEYS], most = -INFINITY, sum = 0, out[DIM] = {0};
        const int g = h / (HEADS / KV) * DIM, last = rows[r].position;
        for (int k = 0; k <= last; k++) {
            const int empty = how == PAGE_1_IS_EMPTY && k / 4 == 1,
                      at = how == PAGE_1_IS_0 && k / 4 == 1 ? k - 4 : k;
            score[k] = 0;
            for (int c = 0; c < (how == HALF_A_SCORE ? DIM / 2 : DIM) && !empty; c++)
                score[k] += (double)q[h * DIM + c] * (double)cached[how == V_AS_K][at][g + c];
            score[k] = score[k] / sqrt(DIM) - (how == SLOPES ? ldexp(last - k, -h - 1) : 0);
            most = fmax(most, score[k]);
        }
        for (int k = 0; k <= last; k++) {
            const int empty = how == PAGE_1_IS_EMPTY && k / 4 == 1,
                      at = how == PAGE_1_IS_0 && k / 4 == 1 ? k - 4
                           : how == VALUES_LATE && k >= 7   ? k - 1
                                                            : k;
            double w = how == FAST_EXP ? fast_exp(score[k] - most) : exp(score[k] - most);
            sum += w;
            w = how == FP8 ? few_bits(w) : w;
            for (int c = 0; c < DIM && !empty; c++)
                out[c] += w * (double)cached[how != K_AS_V][at][g + c];
        }
        sum += how == SINKS ? exp(0.5 + 0.25 * h - most) : 0;
        for (int c = 0; c < DIM; c++)
            y[h * DIM + c] = (float)(out[c] / sum);
    }
}

static void inner(uint64_t seed, int reference, int how)
{
    set_up(seed, DS_STRUCTURE_ATTENTION, DS_F32);
    site.order = 1e-5;
    for (int r = 0; r < ROWS; r++) {
        rows[r].position = r + 5;
        rows[r].k = key_rows;
        rows[r].v = value_rows;
        rows[r].n_keys = KEYS;
        attend_inner(r, reference, ref[r]);
        attend_inner(r, how, mine[r]);
    }
    jitter(3e-7);
}

static void test_inside_attention(void **st)
{
    (void)st;
    static const struct {
        int how;
        const char *text, *turned;
    } cases[] = {
        {SLOPES,
         "attention adds a slope to its scores by the distance of the key (ALiBi), 0.0625 to 0.5",
         "the reference's attention adds a slope"},
        {SINKS, "attention has a sink in its softmax, a score without a value: 0.5 to 1.25 by head",
         "the reference's attention has a sink"},
        {PAGE_1_IS_0, "attention reads the keys and values of positions 0 to 3 at positions 4 to 7",
         "the reference's attention reads the keys"},
        {PAGE_1_IS_EMPTY, "attention reads nothing at positions 4 to 7",
         "the reference's attention reads nothing at positions 4 to 7"},
        {K_AS_V, "attention reads keys where values belong",
         "the reference's attention reads keys where values belong, this one does not"},
        {V_AS_K, "attention reads values where keys belong",
         "the reference's attention reads values"},
        {QUERY_BEFORE, "attention asks with the query of the position 1 before",
         "the reference's attention asks with the query"},
        {FP8, "attention rounds the weights of the values to fp8-e4m3",
         "the reference's attention rounds the weights of the values to fp8-e4m3"},
        {FAST_EXP, "attention has another exponential: weights are off by up to",
         "the reference's attention has another exponential"},
        {HALF_A_SCORE, "attention makes its scores of the first 8 of 16 channels",
         "the reference's attention makes its scores of the first 8 of 16 channels"},
        {VALUES_LATE, "attention reads the values of every position from 7 on from the one before",
         "the reference's attention reads the values of every position from 7 on"},
    };
    inner(90, PLAIN, PLAIN);
    expect_nothing("the same attention");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        inner(91 + i, PLAIN, cases[i].how);
        expect(cases[i].text);
        struct ds_structure s = find();
        assert_int_equal(s.precision, cases[i].how == FP8);
        assert_int_equal(s.algorithm, cases[i].how == FAST_EXP);
        inner(91 + i, cases[i].how, PLAIN);
        expect(cases[i].turned);
        inner(91 + i, cases[i].how, cases[i].how == SLOPES ? SINKS : SLOPES);
        expect_nothing("two faults, neither side plain");
        site.page = 4;
        inner(91 + i, PLAIN, cases[i].how);
        for (int r = 0; r < ROWS;
             r++) /* rows that lack a key, or the query: fewer claims, no crash */
            rows[r].n_keys = (uint32_t)(r == ROWS - 1 ? 3 : KEYS);
        find();
        key_rows[KEYS / 2] = NULL;
        rows[0].input = NULL;
        find();
    }
    for (int r = 0; r < ROWS; r++) /* weights that follow nothing: unrelated values */
        for (int i = 0; i < WIDTH; i++)
            mine[r][i] = ref[r][i] * (1 + 0.05f * normal());
    expect_nothing("noise");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_a_length_that_is_not_renewed),
        cmocka_unit_test(test_attention_without_its_keys),
        cmocka_unit_test(test_inside_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
