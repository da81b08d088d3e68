/* test_structure.c: every structural hypothesis but those of attention on tensors built to show it, and the same on
 * tensors that must not: rounding, reordering, short inputs, unrelated values. */
#include "tests/unit/dumps/structure_rows.h"

/* ---- nothing --------------------------------------------------------------------------------- */

static void test_noise_is_never_structure(void **st)
{
    (void)st;
    for (uint64_t seed = 1; seed <= 60; seed++)
        for (int op = DS_STRUCTURE_OTHER; op <= DS_STRUCTURE_ATTENTION; op++) {
            set_up(seed, op, DS_F32);
            jitter(1.5e-6);
            expect_nothing("reordering");
            set_up(seed, op, DS_F32);
            jitter(5e-4);
            expect_nothing("short inputs");
            set_up(seed, op, DS_F32);
            jitter(1.0);
            expect_nothing("unrelated values");
            set_up(seed, op, DS_BF16);
            jitter(4e-3);
            expect_nothing("bf16 steps");
            set_up(seed, op, DS_BF16);
            jitter(4e-2);
            expect_nothing("bf16, short inputs");
        }
}

/* Reordering the sum of squares scales a whole row, by less than it may. */
static void test_a_norm_scaled_by_rounding(void **st)
{
    (void)st;
    set_up(3, DS_STRUCTURE_NORM, DS_F32);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDTH; i++)
            mine[r][i] *= 1 + 8e-7f * (float)(r % 2 ? 1 : -1);
    expect_nothing("a scale of rounding");
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void test_ratios_constants_signs(void **st)
{
    (void)st;
    for (int dtype = DS_F32; dtype <= DS_BF16; dtype++) {
        set_up(5, DS_STRUCTURE_OTHER, dtype);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < WIDTH; i++)
                mine[r][i] *= 1.25f;
        expect("every value is 1.25");
        set_up(5, DS_STRUCTURE_OTHER, dtype);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < WIDTH; i++)
                mine[r][i] *= 1.25f + (float)r;
        expect("each row is a constant times the reference's, 1.25 to 6.2");
        set_up(5, DS_STRUCTURE_OTHER, dtype);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < WIDTH; i++)
                mine[r][i] *= 1.25f + (float)(i / DIM);
        expect("each head is a constant");
        set_up(5, DS_STRUCTURE_OTHER, dtype);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < WIDTH; i++)
                mine[r][i] = -mine[r][i];
        expect("the sign is turned");
        set_up(5, DS_STRUCTURE_OTHER, dtype);
        for (int r = 1; r < ROWS; r++)
            memset(mine[r], 0, sizeof mine[r]);
        expect("values are zero: not written");
        set_up(5, DS_STRUCTURE_OTHER, dtype);
        for (int r = 0; r < ROWS; r++)
            memset(mine[r], 0, sizeof mine[r]);
        expect("values are zero: not written"); /* and not: 0 times the reference's */
        for (int r = 0; r < ROWS - 2; r++) {
            memcpy(mine[r], ref[r], sizeof mine[r]);
            memset(ref[r], 0, sizeof ref[r]);
        }
        expect("values are zero, now on this side");
        for (int r = ROWS - 2; r < ROWS; r++)
            memcpy(mine[r], ref[r], sizeof mine[r]);
        expect("the reference's values are zero, these are not");
    }
    set_up(5, DS_STRUCTURE_OTHER, DS_F32);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDTH; i++)
            mine[r][i] += 3.5f;
    expect("every value has 3.5 added");
}

static void test_numbers_of_channels(void **st)
{
    (void)st;
    set_up(7, DS_STRUCTURE_OTHER, DS_F32);
    float c[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        c[i] = normal();
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < WIDTH; i++)
            mine[r][i] += c[i];
    expect("each channel has a constant added");
    set_up(7, DS_STRUCTURE_OTHER, DS_F32);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDTH; i++)
            mine[r][i] *= 1 + c[i];
    expect("each channel has a factor");
    set_up(7, DS_STRUCTURE_OTHER, DS_F32);
    for (int r = 0; r < 2; r++) /* two rows are too few to tell */
        for (int i = 0; i < WIDTH; i++)
            mine[r][i] += c[i];
    expect_nothing("two rows");
    set_up(7, DS_STRUCTURE_OTHER, DS_F32);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDTH; i++)
            mine[r][i] = 2.5f;
    expect("all elements of a row have one value");
}

/* eps 1e-6 instead of 1e-5 on rows of a given mean square; *change: relative, of the first row. */
static void norm_rows(double mean_square, double *change)
{
    for (int r = 0; r < ROWS; r++) {
        double ms = 0, at = mean_square * (1 + 0.3 * r);
        for (int i = 0; i < WIDTH; i++) {
            input[r][i] *= (float)sqrt(at);
            ms += (double)input[r][i] * (double)input[r][i] / WIDTH;
        }
        for (int i = 0; i < WIDTH; i++) {
            double w = 1 + 0.1 * i;
            ref[r][i] = (float)((double)input[r][i] * w / sqrt(ms + 1e-5));
            mine[r][i] = (float)((double)input[r][i] * w / sqrt(ms + 1e-6));
        }
        if (r == 0)
            *change = 1 - sqrt((at + 1e-6) / (at + 1e-5));
    }
}

static void test_epsilon_is_fitted(void **st)
{
    (void)st;
    /* Measured: the relative change at each mean square. */
    static const double expected[][2] = {
        {1, 4.5e-6}, {0.0316, 1.4e-4}, {1e-3, 4.5e-3}, {3.16e-5, 0.115}, {1e-6, 0.57}};
    for (size_t i = 0; i < 5; i++) {
        double change;
        set_up(9 + i, DS_STRUCTURE_NORM, DS_F32);
        norm_rows(expected[i][0], &change);
        if (!(fabs(change - expected[i][1]) <= 0.05 * expected[i][1]))
            fail_msg("mean square %g: change %g, not %g", expected[i][0], change, expected[i][1]);
        expect("epsilon 1e-06 instead of 1e-05 fits");
    }
    double change;
    set_up(20, DS_STRUCTURE_NORM, DS_F32);
    norm_rows(1e-3, &change);
    for (int i = 0; i < WIDTH; i++) /* one row by another ratio: no epsilon gives that */
        mine[2][i] *= 1.1f;
    expect("each row is a constant times");
}

/* ---- permutations ---------------------------------------------------------------------------- */

static void permute(uint32_t (*source)(uint32_t i))
{
    for (int r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < WIDTH; i++)
            mine[r][i] = ref[r][source(i)];
    jitter(5e-7);
}

static uint32_t halves(uint32_t i)
{
    return (i + WIDTH / 2) % WIDTH;
}

static uint32_t head_halves(uint32_t i)
{
    return i / DIM * DIM + (i % DIM + DIM / 2) % DIM;
}

static uint32_t to_pairs(uint32_t i)
{
    return i / DIM * DIM + i % DIM / 2 + i % 2 * (DIM / 2);
}

static uint32_t transposed(uint32_t i)
{
    return i % HEADS * DIM + i / HEADS;
}

static uint32_t one_later(uint32_t i)
{
    return i ? i - 1 : WIDTH - 1;
}

static uint32_t swapped_heads(uint32_t i)
{
    static const uint32_t map[HEADS] = {0, 2, 1, 3};
    return map[i / DIM] * DIM + i % DIM;
}

static uint32_t first_twice(uint32_t i)
{
    return i % (WIDTH / 2);
}

static uint32_t last_twice(uint32_t i)
{
    return WIDTH / 2 + i % (WIDTH / 2);
}

static uint32_t scattered(uint32_t i)
{
    return (i * 29 + 7) % WIDTH;
}

/* Few elements, and only some of the row: what they are is told all the same. */
static void test_few_elements(void **st)
{
    (void)st;
    for (int dtype = DS_F32; dtype <= DS_BF16; dtype++) {
        set_up(60, DS_STRUCTURE_OTHER, dtype);
        mine[2][17] = 0;
        expect("values are zero: not written, or cleared");
        set_up(60, DS_STRUCTURE_OTHER, dtype);
        for (int r = 0; r < ROWS; r++)
            for (int i = 8; i < 13; i++)
                ref[r][i] = 0;
        expect("the reference's values are zero, these are not");
        set_up(60, DS_STRUCTURE_OTHER, dtype);
        store();
        mine[1][9] = ds_f32_from_bits(ds_f32_bits(mine[1][9]) ^ 1u << 27);
        expect(dtype == DS_F32 ? "a bit is flipped: bit 27 of element 9"
                               : "a bit is flipped: bit 11 of element 9");
        mine[3][40] = ds_f32_from_bits(ds_f32_bits(mine[3][40]) ^ 1u << 31);
        expect("in each of 2 elements a bit is flipped, the first bit ");
        mine[3][41] = ds_f32_from_bits(ds_f32_bits(mine[3][41]) ^ 3u << 26);
        expect_nothing("two bits of an element");
    }
    set_up(61, DS_STRUCTURE_OTHER, DS_F32);
    for (int r = 0; r < ROWS; r++)
        mine[r][7] *= 1.001f;
    for (int r = 0; r < ROWS; r++)
        mine[r][50] *= 1.001f;
    expect("the values that differ are 1.001 times the reference's");
    set_up(61, DS_STRUCTURE_OTHER, DS_F32);
    for (int r = 0; r < ROWS; r++) {
        mine[r][10] = ref[r][11];
        mine[r][11] = ref[r][10];
    }
    expect("the same values stand in another order: 11 in 10, 10 in 11");
    set_up(61, DS_STRUCTURE_OTHER, DS_F32);
    for (int r = 0; r < ROWS; r++)
        for (int i = 20; i < 24; i++)
            mine[r][i] = ref[r][3 * i - 50];
    expect("elements hold the values of others: 10 in 20, 13 in 21, 16 in 22, 19 in 23");
    /* one row is too few in 16 bits: some other element fits by chance */
    set_up(61, DS_STRUCTURE_OTHER, DS_BF16);
    for (int i = 20; i < 36; i++)
        mine[0][i] = ref[0][(7 * i + 3) % WIDTH];
    expect_nothing("one row of 16 bits");
}

static void test_permutations(void **st)
{
    (void)st;
    static const struct {
        uint32_t (*source)(uint32_t i);
        const char *text;
    } cases[] = {
        {halves, "the two halves of the row are swapped"},
        {first_twice, "the second half of the row repeats the first"},
        {last_twice, "the first half of the row repeats the second"},
        {head_halves, "the two halves of each head are swapped"},
        {to_pairs, "channels are interleaved"},
        {transposed, "heads and channels are transposed"},
        {one_later, "values stand 1 channel after their place"},
        {swapped_heads, "heads are mixed up: 2 in 1, 1 in 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_up(30 + i, DS_STRUCTURE_OTHER, DS_F32);
        permute(cases[i].source);
        expect(cases[i].text);
    }
    set_up(40, DS_STRUCTURE_OTHER, DS_F32);
    for (int r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < WIDTH; i++)
            mine[r][i] = ref[r][scattered(i)];
    expect("the same values stand in another order: ");
}

static void test_rows_of_other_positions(void **st)
{
    (void)st;
    set_up(50, DS_STRUCTURE_OTHER, DS_F32);
    for (int r = 1; r < ROWS; r++)
        memcpy(mine[r], ref[r - 1], sizeof mine[r]);
    expect("rows hold the values of the position 1 before");
    set_up(50, DS_STRUCTURE_OTHER, DS_F32);
    memcpy(mine[3], ref[5], sizeof mine[3]);
    expect("rows hold the values of the position 2 after");
}

/* ---- RoPE ------------------------------------------------------------------------------------ */

static void rotate(const float *x, float *y, int neighbours, double position, double stretch,
                   int from_pair)
{
    for (int h = 0; h < HEADS; h++)
        for (int p = 0; p < DIM / 2; p++) {
            int a = h * DIM + (neighbours ? 2 * p : p), b = neighbours ? a + 1 : a + DIM / 2;
            double angle = position * pow(10000, -2.0 * p / DIM) * (p >= from_pair ? stretch : 1);
            y[a] = (float)((double)x[a] * cos(angle) - (double)x[b] * sin(angle));
            y[b] = (float)((double)x[a] * sin(angle) + (double)x[b] * cos(angle));
        }
}

static void rope(int ref_neighbours, int neighbours, double away, double stretch, int from_pair,
                 double turn)
{
    for (int r = 0; r < ROWS; r++) {
        rotate(input[r], ref[r], ref_neighbours, rows[r].position, 1, 0);
        rotate(input[r], mine[r], neighbours, turn * (rows[r].position + away), stretch, from_pair);
    }
    jitter(5e-7);
}

/* A sum of three rows, the second with a weight: a term is missing, or there twice, or has a factor; or it is
 * none of them. */
static void test_terms_of_a_sum(void **state_)
{
    (void)state_;
    static float terms[3][ROWS][WIDTH];
    static const struct {
        int term, times;
        const char *text;
    } cases[] = {{1, 0, "the sum lacks down"},
                 {0, 2, "the sum has resid_attn once more than the reference's"},
                 {2, 0, "the sum lacks o_proj/r3"},
                 {2, 3, "the sum has o_proj/r3 times 3"},
                 {1, -1, "the sum has down with the other sign"},
                 {0, 1, NULL}}; /* something else is added */
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        set_up(17 + c, DS_STRUCTURE_OTHER, DS_F32);
        site.n_terms = 3;
        snprintf(site.term_name[0], sizeof site.term_name[0], "resid_attn");
        snprintf(site.term_name[1], sizeof site.term_name[1], "down");
        snprintf(site.term_name[2], sizeof site.term_name[2], "o_proj/r3");
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < WIDTH; i++) {
                ref[r][i] = mine[r][i] = 0;
                for (int k = 0; k < 3; k++) {
                    float weight = k == 1 ? 0.25f : 1.0f;
                    terms[k][r][i] = normal();
                    rows[r].term[k] = terms[k][r];
                    rows[r].term_weight[k] = weight;
                    ref[r][i] += weight * terms[k][r][i];
                    mine[r][i] +=
                        weight * terms[k][r][i] * (float)(cases[c].term == k ? cases[c].times : 1);
                }
                mine[r][i] += cases[c].text ? 0 : normal();
            }
        struct ds_structure s = find();
        assert_int_equal(s.found, cases[c].text != NULL);
        if (cases[c].text)
            assert_string_equal(s.text, cases[c].text);
        for (int r = 0; r < ROWS; r++)
            rows[r].term[cases[c].term] = NULL; /* not dumped: nothing is claimed */
        s = find();
        assert_false(s.found);
    }
}

static float silu(float x)
{
    return x / (1 + expf(-x));
}

/* The gated unit, by what it makes of its two inputs; only where the reference is that unit. */
static void test_gated_units(void **st)
{
    (void)st;
    static float gate[ROWS][WIDTH], up[ROWS][WIDTH];
    static const char *const texts[] = {
        "gate and up are exchanged: silu(up) * gate",
        "the activation is ReLU instead of SiLU",
        "the activation is a sigmoid instead of SiLU",
        "gate * up, without an activation",
        "silu(gate) alone, not times up",
    };
    for (size_t c = 0; c < sizeof texts / sizeof texts[0]; c++)
        for (int other = 0; other < 2; other++) {
            set_up(80 + c, DS_STRUCTURE_OTHER, DS_F32);
            site.n_terms = 2;
            site.gated = 1;
            for (int r = 0; r < ROWS; r++) {
                rows[r].term[0] = gate[r];
                rows[r].term[1] = up[r];
                for (int i = 0; i < WIDTH; i++) {
                    float g = gate[r][i] = normal(), u = up[r][i] = normal();
                    const float made[] = {silu(u) * g, g > 0 ? g * u : 0, u / (1 + expf(-g)), g * u,
                                          silu(g)};
                    mine[r][i] = made[c];
                    ref[r][i] = silu(other ? g * g : g) * u;
                }
            }
            if (other)
                assert_false(find().found);
            else
                expect(texts[c]);
        }
}

static void test_bits_that_values_use(void **state_)
{
    (void)state_;
    set_up(23, DS_STRUCTURE_OTHER, DS_F32);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDTH; i++)
            mine[r][i] = ds_bf16_value(ds_bf16_round(ref[r][i]));
    struct ds_structure s = find();
    assert_int_equal(s.mine_bits, 7);
    assert_true(s.ref_bits > 20);
    mine[0][0] = NAN;
    mine[0][1] = 0;
    s = find();
    assert_int_equal(s.mine_bits, 7);
    site.dtype = DS_BF16; /* all values are short: nothing to see */
    s = find();
    assert_int_equal(s.mine_bits, 0);
}

static void test_rope(void **st)
{
    (void)st;
    for (int n = 0; n < 2; n++) {
        set_up(60, DS_STRUCTURE_ROPE, DS_F32);
        rope(n, 1 - n, 0, 1, 0, 1);
        expect(n ? "RoPE pairs the two halves of a head instead of neighbouring channels"
                 : "RoPE pairs neighbouring channels instead of the two halves of a head");
        set_up(61, DS_STRUCTURE_ROPE, DS_F32);
        rope(n, n, -1, 1, 0, 1);
        expect("rotated as if 1 position earlier");
        set_up(62, DS_STRUCTURE_ROPE, DS_F32);
        rope(n, n, 3, 1, 0, 1);
        expect("rotated as if 3 positions later");
        set_up(63, DS_STRUCTURE_ROPE, DS_F32);
        rope(n, n, 0, 1, 0, -1);
        expect("rotated the other way round");
        set_up(64, DS_STRUCTURE_ROPE, DS_F32);
        rope(n, n, 0, 0.25, 3, 1);
        expect("rotated by 0.25 times the angle in frequencies 3 to 7 of 8");
        set_up(65, DS_STRUCTURE_ROPE, DS_F32);
        rope(n, n, 0, 1, 0, 1);
        memcpy(mine, input, sizeof mine);
        expect("not rotated at all");
    }
    set_up(66, DS_STRUCTURE_ROPE, DS_BF16);
    rope(0, 1, 0, 1, 0, 1);
    expect("RoPE pairs neighbouring channels");
    set_up(67, DS_STRUCTURE_ROPE, DS_F32);
    for (int r = 0; r < ROWS; r++) {
        rows[r].position = 2049 + 2 * r;
        double stored = (double)ds_f16_value(ds_f16_round((float)rows[r].position));
        rotate(input[r], ref[r], 0, rows[r].position, 1, 0);
        rotate(input[r], mine[r], 0, stored, 1, 0);
    }
    expect("positions were rounded to f16");
}

/* ---- values by themselves, gates, rows beside ------------------------------------------------ */

static void test_limits(void **st)
{
    (void)st;
    static const char *const texts[] = {
        "values are clamped to +-0.75", "values above 0.75 are clamped",
        "values below 0 are clamped", "values are capped at 0.75, by a tanh",
        "values have lost their sign"};
    for (int how = 0; how < 5; how++) {
        set_up(110 + (uint64_t)how, DS_STRUCTURE_OTHER, DS_F32);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < WIDTH; i++) {
                const float x = ref[r][i];
                mine[r][i] = how == 0   ? fmaxf(-0.75f, fminf(0.75f, x))
                             : how == 1 ? fminf(0.75f, x)
                             : how == 2 ? fmaxf(0, x)
                             : how == 3 ? 0.75f * tanhf(x / 0.75f)
                                        : fabsf(x);
            }
        expect(texts[how]);
    }
    set_up(116, DS_STRUCTURE_OTHER, DS_F32);
    for (int r = 0; r < ROWS; r++) /* a channel that is stuck is no limit */
        mine[r][7] = mine[r][8] = 0.125f;
    struct ds_structure s = find();
    assert_null(strstr(s.text, "clamped"));
    set_up(117, DS_STRUCTURE_OTHER, DS_F32);
    for (int r = 0; r < ROWS; r++) /* a part that was not written: not all of it is negative */
        for (int i = 0; i < WIDTH / 2; i++)
            mine[r][i] = 0;
    expect("values are zero: not written, or cleared");
}

static void test_gates(void **st)
{
    (void)st;
    static const char *const texts[] = {"gate is clamped to at most 0.5",
                                        "gate is clamped to +-0.5",
                                        "up is clamped to +-0.5",
                                        "gate is clamped to at most 0.5, and up to +- that",
                                        "gate is that of the position 1 before",
                                        "up is that of the position 1 before"};
    static float gate[ROWS][WIDTH], up[ROWS][WIDTH];
    for (int how = 0; how < 6; how++) {
        set_up(120 + (uint64_t)how, DS_STRUCTURE_OTHER, DS_F32);
        site.gated = 1;
        site.n_terms = 2;
        for (int r = 0; r < ROWS; r++) {
            rows[r].term[0] = gate[r];
            rows[r].term[1] = up[r];
            const int before = r > 0 ? r - 1 : 0;
            rows[r].term_beside[0][0] = r > 0 ? gate[before] : NULL;
            rows[r].term_beside[0][1] = r > 0 ? up[before] : NULL;
            for (int i = 0; i < WIDTH; i++) {
                gate[r][i] = normal();
                up[r][i] = normal();
                const float most = how == 2 || how >= 4 ? INFINITY : 0.5f,
                            least = how == 1 ? -0.5f : -INFINITY,
                            limit = how == 2 || how == 3 ? 0.5f : INFINITY;
                const float g = gate[how == 4 ? before : r][i], u = up[how == 5 ? before : r][i];
                ref[r][i] = silu(gate[r][i]) * up[r][i];
                mine[r][i] = silu(fmaxf(least, fminf(most, g))) * fmaxf(-limit, fminf(limit, u));
            }
        }
        struct ds_structure s = find();
        assert_true(s.found);
        assert_string_equal(s.text, texts[how]);
    }
}

/* A sum one of whose terms is the row's before, or behind. */
static void test_a_term_of_the_row_beside(void **st)
{
    (void)st;
    static float terms[2][ROWS][WIDTH];
    for (int behind = 0; behind < 2; behind++) {
        set_up(130, DS_STRUCTURE_OTHER, DS_F32);
        site.n_terms = 2;
        snprintf(site.term_name[0], sizeof site.term_name[0], "embed");
        snprintf(site.term_name[1], sizeof site.term_name[1], "o_proj");
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < 2; k++)
                for (int i = 0; i < WIDTH; i++)
                    terms[k][r][i] = normal();
        for (int r = 0; r < ROWS; r++) {
            const int other = behind ? r + 1 : r - 1;
            for (int k = 0; k < 2; k++) {
                rows[r].term[k] = terms[k][r];
                rows[r].term_weight[k] = 1;
                rows[r].term_beside[behind][k] =
                    other >= 0 && other < ROWS ? terms[k][other] : NULL;
            }
            for (int i = 0; i < WIDTH; i++) {
                ref[r][i] = terms[0][r][i] + terms[1][r][i];
                mine[r][i] =
                    other >= 0 && other < ROWS ? terms[0][r][i] + terms[1][other][i] : ref[r][i];
            }
        }
        expect(behind ? "the sum has o_proj of the position 1 after"
                      : "the sum has o_proj of the position 1 before");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noise_is_never_structure),
        cmocka_unit_test(test_a_norm_scaled_by_rounding),
        cmocka_unit_test(test_ratios_constants_signs),
        cmocka_unit_test(test_numbers_of_channels),
        cmocka_unit_test(test_epsilon_is_fitted),
        cmocka_unit_test(test_few_elements),
        cmocka_unit_test(test_permutations),
        cmocka_unit_test(test_rows_of_other_positions),
        cmocka_unit_test(test_terms_of_a_sum),
        cmocka_unit_test(test_gated_units),
        cmocka_unit_test(test_bits_that_values_use),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_a_term_of_the_row_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
