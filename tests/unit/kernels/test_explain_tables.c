/* test_explain_tables.c: blocks of weights with other scales or zero points, other tokens' vectors, other weights of a
 * norm; and what none of that explains. */
#include "tests/unit/testing.h"

#include "base/dtype.h"
#include "kernels/lab/explain.h"

#include <math.h>
#include <string.h>

enum { ROWS = 8, K = 64, N = 12, SIZE = 32, BLOCKS = K / SIZE, VOCAB = 20 };

static float x[ROWS][K], w[N][K], y[ROWS][N], table[VOCAB][K], out[ROWS][K], weight[K], other[K];
static struct ds_explain_row rows[ROWS];
static struct ds_explain e;
static struct ds_explain_guess guess;
static uint64_t state;

static float uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 11) * 0x1p-52 - 1);
}

static void set_up(int op, uint64_t seed)
{
    state = seed;
    memset(rows, 0, sizeof rows);
    memset(&guess, 0, sizeof guess);
    e = (struct ds_explain){.op = op, .rows = rows, .n_rows = ROWS};
    for (int k = 0; k < K; k++) {
        weight[k] = 1 + 0.3f * uniform();
        other[k] = 1 + 0.3f * uniform();
        for (int r = 0; r < ROWS; r++)
            x[r][k] = uniform();
        for (int j = 0; j < N; j++)
            w[j][k] = uniform();
        for (int t = 0; t < VOCAB; t++)
            table[t][k] = uniform();
    }
    for (int r = 0; r < ROWS; r++)
        for (int s = 0; s < DS_SIDES; s++) {
            rows[r].input[s].in[0] = x[r];
            rows[r].y[s] = op == DS_OP_MATMUL ? y[r] : out[r];
        }
    guess.rows[0] = (1u << ROWS) - 1; /* all are off */
}

/* ---- blocks ------------------------------------------------------------------------------------ */

enum how { ADDED, STEPS, FACTORS, FEW_BITS, OFFSETS, COLUMNS, NONSENSE };

static double changed(int how, int j, int k)
{
    const double own = (double)w[j][k];
    const int block = k / SIZE;
    double low = INFINITY, high = -INFINITY;
    for (int i = block * SIZE; i < (block + 1) * SIZE; i++) {
        low = fmin(low, (double)w[j][i]);
        high = fmax(high, (double)w[j][i]);
    }
    switch (how) {
    case ADDED:
        return own + 0.25;
    case STEPS:
        return own - 2 * (high - low) / 15;
    case FACTORS:
        return own * (1 + 0.3 * sin(7.0 * j + block));
    case FEW_BITS:
        return own * (1 + 0.05 * sin(7.0 * j + block));
    case COLUMNS: /* what a column has as a whole is no fault of blocks */
        return own * (1 + 0.3 * sin(7.0 * j));
    case OFFSETS:
        return own + 0.2 * sin(7.0 * j + block);
    default:
        return own + 0.1 * (double)uniform();
    }
}

static int look(int how)
{
    struct ds_error err;
    set_up(DS_OP_MATMUL, 3);
    e.shared.matmul = (struct ds_matmul_args){.n = N, .k = K, .w = {.data = w[0], .n = N, .k = K}};
    for (int j = 0; j < N; j++) {
        double sum[ROWS] = {0};
        for (int k = 0; k < K; k++) {
            const double v = changed(how, j, k);
            for (int r = 0; r < ROWS; r++)
                sum[r] += (double)x[r][k] * v;
        }
        for (int r = 0; r < ROWS; r++)
            y[r][j] = (float)sum[r];
    }
    const int found = ds_explain_scales(&e, DS_SIDE_B, 1e-5, &guess, &err);
    assert_true(found >= 0);
    return found;
}

static void test_scales(void **st)
{
    (void)st;
    static const struct {
        int how;
        const char *text;
    } cases[] = {
        {ADDED, "every weight has 0.25 added"},
        {STEPS, "every weight is -2 steps of its block of 32 off, of 4 bits (a zero point)"},
        {FACTORS, "every block of 32 weights has another scale, 0.7"},
        {FEW_BITS, "every block of 32 weights has another scale, 0.95"},
        {OFFSETS, "every block of 32 weights has a number added, -0.198 to 0.2 (its zero point)"},
        {COLUMNS, NULL},
        {NONSENSE, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int found = look(cases[i].how);
        assert_int_equal(found, cases[i].text != NULL);
        if (cases[i].text && !strstr(guess.text, cases[i].text))
            fail_msg("told '%s', not '%s'", guess.text, cases[i].text);
        assert_int_equal(guess.precision, cases[i].how == FEW_BITS);
        if (found)
            assert_int_equal(guess.kind, DS_GUESS_SCALES);
    }
}

/* As many numbers as rows explain anything: how many it takes is told. */
static void test_too_few_rows(void **st)
{
    struct ds_error err;
    (void)st;
    look(FACTORS);
    assert_int_equal(guess.rows_wanted, 0);
    memset(&guess, 0, sizeof guess);
    guess.rows[0] = (1u << (BLOCKS + 2)) - 1;
    assert_int_equal(ds_explain_scales(&e, DS_SIDE_B, 1e-5, &guess, &err), 0);
    assert_int_equal(guess.rows_wanted, BLOCKS + 3);
}

/* ---- factors one by one -------------------------------------------------------------------------- */

enum { CUT_X = 100, CUT_W_ABOVE, SIZES_OF_W, POSITIVE_X, BIAS_OF_ROW, SHIFTED_X };

static double term(int how, int r, int j, int k)
{
    const double a = (double)x[r][how == SHIFTED_X ? (k + 1) % K : k], v = (double)w[j][k];
    switch (how) {
    case CUT_X:
        return fmax(-0.7, fmin(0.7, a)) * v;
    case CUT_W_ABOVE:
        return a * fmin(0.4, v);
    case SIZES_OF_W:
        return a * fabs(v);
    case POSITIVE_X:
        return fmax(0, a) * v;
    default:
        return a * v;
    }
}

static void test_factors(void **st)
{
    static float bias[N];
    static double exact[ROWS * N];
    static const struct {
        int how;
        const char *text;
    } cases[] = {{CUT_X, "inputs are cut to +-0.7 before they are multiplied"},
                 {CUT_W_ABOVE, "weights above 0.4 are cut to it before they are multiplied"},
                 {SIZES_OF_W, "weights have lost their sign"},
                 {POSITIVE_X, "inputs below 0 are taken for 0"},
                 {BIAS_OF_ROW, "row r of the call has the bias of column r in every column"},
                 {SHIFTED_X, NULL}};
    struct ds_error err;
    (void)st;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int how = cases[i].how;
        set_up(DS_OP_MATMUL, 3);
        e.shared.matmul = (struct ds_matmul_args){
            .n = N, .k = K, .w = {.data = w[0], .n = N, .k = K}, .bias = bias};
        for (int j = 0; j < N; j++)
            bias[j] = 0.25f * (float)(j + 1);
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < N; j++) {
                double sum = 0, right = (double)bias[j];
                for (int k = 0; k < K; k++) {
                    sum += term(how, r, j, k);
                    right += (double)x[r][k] * (double)w[j][k];
                }
                e.rows[r].at[DS_SIDE_B].row = r % N;
                exact[r * N + j] = right;
                y[r][j] = (float)(sum + (double)bias[how == BIAS_OF_ROW ? r % N : j]);
            }
        const int found = ds_explain_factors(&e, exact, DS_SIDE_B, 1e-5, &guess, &err);
        assert_int_equal(found, cases[i].text != NULL);
        if (cases[i].text)
            assert_string_equal(guess.text, cases[i].text);
    }
}

/* ---- tables ------------------------------------------------------------------------------------ */

static void expect(const double *exact, const char *text)
{
    const int found = ds_explain_tables(&e, exact, DS_SIDE_B, 1e-5, &guess);
    assert_int_equal(found, text != NULL);
    if (text && !strstr(guess.text, text))
        fail_msg("told '%s', not '%s'", guess.text, text);
}

static void test_tokens(void **st)
{
    (void)st;
    static const struct {
        int times, by;
        const char *text;
    } cases[] = {{1, 1, "rows are vectors of the token 1 after, as 4 for 3"},
                 {1, -2, "rows are vectors of the token 2 before, as 1 for 3"},
                 {0, 7, "all rows are the vector of token 7"},
                 {2, 0, "rows are vectors of other tokens, the first that of 6, not 3"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_up(DS_OP_EMBED, 5 + i);
        e.shared.embed = (struct ds_embed_args){.table = table[0], .vocab = VOCAB, .width = K};
        for (int r = 0; r < ROWS - 1; r++) {
            rows[r].input[DS_SIDE_B].number = 3 + r / 2;
            memcpy(out[r], table[cases[i].times * (3 + r / 2) + cases[i].by], sizeof out[r]);
        }
        guess.rows[0] = (1u << (ROWS - 1)) - 1; /* the last is as it should be */
        expect(NULL, cases[i].text);
        out[1][K - 1] += 1;
        expect(NULL, NULL);
    }
}

static void test_norms(void **st)
{
    (void)st;
    static const char *const texts[] = {
        "its weight is left out",        "its weight is applied twice",
        "its weight is rounded to bf16", "its weight has 1 added (1 + w)",
        "its weight is blk.0",           NULL};
    static const struct ds_explain_weight others[] = {{"blk.0", other}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double exact[ROWS * K];
        set_up(DS_OP_RMSNORM, 40 + i);
        e.shared.rmsnorm = (struct ds_rmsnorm_args){.width = K, .weight = weight};
        e.others = others;
        e.n_others = 1;
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < K; k++) {
                const double own = (double)weight[k],
                             form[] = {1,
                                       own * own,
                                       (double)ds_bf16_value(ds_bf16_round(weight[k])),
                                       1 + own,
                                       (double)other[k],
                                       own * own * own};
                exact[r * K + k] = (double)x[r][k] * own;
                out[r][k] = (float)((double)x[r][k] * form[i]);
            }
        expect(exact, texts[i]);
        assert_int_equal(guess.precision, i == 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scales),
                                       cmocka_unit_test(test_too_few_rows),
                                       cmocka_unit_test(test_factors),
                                       cmocka_unit_test(test_tokens), cmocka_unit_test(test_norms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
