/* test_structure_rules.c: hypotheses that fit numbers of their own: activations, factors of a sum, groups of a norm, a
 * router's rule; and the same on values that must not show them. */
#include "tests/unit/dumps/random_values.h"
#include "tests/unit/testing.h"

#include "base/dtype.h"
#include "dumps/structure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, WIDTH = 96, TERMS = 3, EXPERTS = 8, CHOSEN = 3 };

static float mine[ROWS][WIDTH], ref[ROWS][WIDTH], input[ROWS][WIDTH], term[TERMS][ROWS][WIDTH],
    logits[ROWS][EXPERTS];
static struct ds_structure_row rows[ROWS];
static struct ds_structure_site site;

static void set_up(uint64_t seed, int op)
{
    state = seed;
    site = (struct ds_structure_site){
        .op = op, .dtype = DS_F32, .width = WIDTH, .order = 1e-6, .eps = 1e-5};
    for (int r = 0; r < ROWS; r++) {
        rows[r] = (struct ds_structure_row){
            .mine = mine[r], .ref = ref[r], .input = input[r], .position = r};
        for (int i = 0; i < WIDTH; i++) {
            input[r][i] = normal();
            for (int k = 0; k < TERMS; k++)
                term[k][r][i] = normal();
        }
        for (int e = 0; e < EXPERTS; e++)
            logits[r][e] = 2 * normal();
    }
}

static struct ds_structure find(void)
{
    struct ds_structure s;
    struct ds_error err;
    assert_ok(ds_structure_find(&site, rows, ROWS, &s, &err), err);
    return s;
}

static void expect(const char *text)
{
    struct ds_structure s = find();
    if (!text && s.found)
        fail_msg("told '%s', not nothing", s.text);
    if (text && (!s.found || !strstr(s.text, text)))
        fail_msg("told '%s', not '%s'", s.found ? s.text : "nothing", text);
}

/* An exponential made of exponent and mantissa: straight lines between powers of two. */
static float fast_exp(float x)
{
    const int32_t i = (int32_t)(12102203.0f * x + 1064866805.0f);
    float y;
    memcpy(&y, &i, sizeof y);
    return y;
}

static float unit(int which, float g, float u)
{
    switch (which) {
    case 0:
        return g / (1 + expf(-g)) * (u + 1);
    case 1:
        return g / (1 + expf(-1.5f * g)) * u;
    case 2:
        return g / (1 + expf(-1.702f * g)) * (u + 1);
    case 3:
        return g / (1 + fast_exp(-g)) * u;
    case 4:
        return (g / (1 + expf(-g)) + 0.1f * cosf(g)) * u;
    case 5: /* only of gate's other half */
        return g / (1 + expf(-g)) * u;
    case 6: /* three bits of up: no function of gate */
        return g / (1 + expf(-g)) * (float)(rint((double)u * 8) / 8);
    default:
        return g / (1 + expf(-g)) * u * (1 + 1e-3f * normal());
    }
}

static void test_activations(void **st)
{
    (void)st;
    static const char *const texts[] = {"up has 1 added",
                                        "x * sigmoid(1.5 x) instead of SiLU",
                                        "x * sigmoid(1.702 x) instead of SiLU, and up has 1 added",
                                        "another exponential: off by -3.9 to 2",
                                        "SiLU and another function of gate",
                                        "the two halves of gate are exchanged",
                                        NULL,
                                        NULL};
    for (size_t c = 0; c < sizeof texts / sizeof *texts; c++) {
        set_up(7 + c, DS_STRUCTURE_OTHER);
        site.n_terms = 2;
        site.gated = 1;
        for (int r = 0; r < ROWS; r++) {
            rows[r].term[0] = term[0][r];
            rows[r].term[1] = term[1][r];
            for (int i = 0; i < WIDTH; i++) {
                const float g = term[0][r][i], u = term[1][r][i];
                ref[r][i] = g / (1 + expf(-g)) * u;
                mine[r][i] = unit((int)c, c == 5 ? term[0][r][(i + WIDTH / 2) % WIDTH] : g, u);
            }
        }
        expect(texts[c]);
        assert_int_equal(find().algorithm, c == 3);
    }
}

/* The factor of term k in row r, by case. */
static double factor_of(int which, int r, int k)
{
    const double own = (double)rows[r].term_weight[k];
    switch (which) {
    case 0:
        return own * own;
    case 1:
        return k == 1 ? 1 : own;
    case 2:
        return k == 0 ? own + (double)rows[r].term_weight[2] : k == 2 ? 0 : own;
    case 3:
        return own * (1 + 0.1 * k * (r + 1));
    case 4:
        return (double)rows[r].weight_beside[0][k];
    default:
        return own;
    }
}

static void test_factors(void **st)
{
    (void)st;
    static const char *const texts[] = {"the factors of the terms are squared",
                                        "the sum has e1 without its factor",
                                        "the sum has e0 in the place of e2",
                                        "the terms have other factors: ",
                                        "the terms have the factors of the position 1 before",
                                        NULL};
    static float before[ROWS][TERMS];
    for (size_t c = 0; c < sizeof texts / sizeof *texts; c++) {
        set_up(90 + c, DS_STRUCTURE_OTHER);
        site.n_terms = TERMS;
        for (int k = 0; k < TERMS; k++)
            snprintf(site.term_name[k], sizeof site.term_name[k], "e%d", k);
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < TERMS; k++) {
                rows[r].term[k] = term[k][r];
                rows[r].term_weight[k] = (float)(0.1 + 0.8 * uniform());
                before[r][k] = (float)(0.1 + 0.8 * uniform());
                rows[r].weight_beside[0] = before[r];
            }
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < WIDTH; i++) {
                double own = 0, other = c == 5 ? (double)normal() : 0; /* 5: something else */
                for (int k = 0; k < TERMS; k++) {
                    own += (double)rows[r].term_weight[k] * (double)term[k][r][i];
                    other += factor_of((int)c, r, k) * (double)term[k][r][i];
                }
                ref[r][i] = (float)own;
                mine[r][i] = (float)other;
            }
        expect(texts[c]);
    }
}

static void test_terms_of_fewer_bits(void **st)
{
    (void)st;
    set_up(5, DS_STRUCTURE_OTHER);
    site.n_terms = TERMS;
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDTH; i++) {
            ref[r][i] = mine[r][i] = 0;
            for (int k = 0; k < TERMS; k++) {
                rows[r].term[k] = term[k][r];
                rows[r].term_weight[k] = 1;
                ref[r][i] += term[k][r][i];
                mine[r][i] += ds_bf16_value(ds_bf16_round(term[k][r][i]));
            }
        }
    expect("every term of the sum is rounded to bf16");
    assert_true(find().precision);
}

/* The second half of every row: its first part has some terms, its second part none. */
static void test_sums_of_some_terms(void **st)
{
    (void)st;
    static const struct {
        uint32_t which; /* a bit for each term */
        const char *text;
    } cases[] = {
        {0, "the sum is not of all terms: channels 48-95 lack all"},
        {6, "the sum is not of all terms: channels 48-71 lack e0, channels 72-95 lack all"},
        {4, "the sum is not of all terms: channels 48-71 have e2, channels 72-95 lack all"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        set_up(11 + c, DS_STRUCTURE_OTHER);
        site.n_terms = TERMS;
        for (int k = 0; k < TERMS; k++)
            snprintf(site.term_name[k], sizeof site.term_name[k], "e%d", k);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < WIDTH; i++) {
                const uint32_t which = i < 48 ? 7 : i < 72 ? cases[c].which : 0;
                ref[r][i] = mine[r][i] = 0;
                for (int k = 0; k < TERMS; k++) {
                    rows[r].term[k] = term[k][r];
                    rows[r].term_weight[k] = 1;
                    ref[r][i] += term[k][r][i];
                    mine[r][i] += which >> k & 1 ? term[k][r][i] : 0.0f;
                }
            }
        expect(cases[c].text);
    }
}

static double root_of(const float *x, int from, int to)
{
    double sum = 0;
    for (int i = from; i < to; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (to - from) + 1e-5);
}

static void test_norms(void **st)
{
    (void)st;
    for (int groups = 0; groups < 2; groups++) {
        set_up(31 + (uint64_t)groups, DS_STRUCTURE_NORM);
        for (int r = 0; r < ROWS; r++) {
            float x[WIDTH];
            for (int i = 0; i < WIDTH; i++)
                x[i] = groups ? input[r][i] : ds_bf16_value(ds_bf16_round(input[r][i]));
            for (int i = 0; i < WIDTH; i++) {
                const int from = groups ? i / 24 * 24 : 0, to = groups ? from + 24 : WIDTH;
                ref[r][i] = (float)((double)input[r][i] / root_of(input[r], 0, WIDTH));
                mine[r][i] = (float)((double)x[i] / root_of(x, from, to));
            }
        }
        expect(groups
                   ? "each 24 channels are a constant times the reference's: normalised in 4 groups"
                   : "its input is rounded to bf16");
        assert_int_equal(find().precision, !groups);
    }
}

/* Normalised, and times the weight, once more: a factor for each channel, and one for each row. */
static void test_a_norm_of_a_norm(void **st)
{
    (void)st;
    for (int other = 0; other < 2; other++) {
        set_up(77, DS_STRUCTURE_NORM);
        for (int r = 0; r < ROWS; r++) {
            for (int i = 0; i < WIDTH; i++)
                ref[r][i] =
                    (float)((double)input[r][i] / root_of(input[r], 0, WIDTH) * (1 + 0.3 * sin(i)));
            for (int i = 0; i < WIDTH; i++)
                mine[r][i] = (float)((double)ref[r][i] / root_of(ref[r], 0, WIDTH) *
                                     (1 + 0.3 * sin(i)) * (other ? 1 + 0.1 * sin(i * r) : 1));
        }
        expect(other ? NULL : "each channel has a factor, and each row another");
    }
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static double weight(int rule, const float *sorted, int k, double times)
{
    double all = 0, chosen = 0;
    for (int e = 0; e < EXPERTS; e++)
        all += exp((double)sorted[e]);
    for (int e = 0; e < CHOSEN; e++)
        chosen += rule == 1 ? exp((double)sorted[e]) : 1 / (1 + exp(-(double)sorted[e]));
    const double v = (double)sorted[k];
    return times * (rule == 0   ? exp(v) / all
                    : rule == 1 ? exp(v) / chosen
                    : rule == 2 ? 1 / (1 + exp(-v))
                                : 1 / (1 + exp(-v)) / chosen);
}

/* Rows of three numbers, which no hypothesis about rows would dare to explain. */
static void test_routers(void **st)
{
    (void)st;
    static const struct {
        int ref, mine;
        double times;
        const char *text;
    } cases[] = {{1, 0, 1, "the weights are the softmax over all experts, not divided"},
                 {0, 1, 1, "the weights are the softmax, divided by their sum"},
                 {1, 2, 1, "the weights are the sigmoid of their logits"},
                 {1, 3, 1, "the sigmoid of their logits, divided by their sum"},
                 {1, 1, 2.5, "every value is 2.5 times the reference's"},
                 {0, 3, 2.5, "the sigmoid of their logits, divided by their sum, times 2.5"},
                 {2, 2, 1, NULL}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        set_up(60 + c, DS_STRUCTURE_OTHER);
        site.width = CHOSEN;
        site.n_logits = EXPERTS;
        for (int r = 0; r < ROWS; r++) {
            float sorted[EXPERTS];
            memcpy(sorted, logits[r], sizeof sorted);
            qsort(sorted, EXPERTS, sizeof *sorted, by_size);
            rows[r].logits = logits[r];
            for (int k = 0; k < CHOSEN; k++) {
                ref[r][k] = (float)weight(cases[c].ref, sorted, k, 1);
                mine[r][k] = (float)weight(cases[c].mine, sorted, k, cases[c].times);
            }
        }
        expect(cases[c].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_activations),
                                       cmocka_unit_test(test_factors),
                                       cmocka_unit_test(test_terms_of_fewer_bits),
                                       cmocka_unit_test(test_norms),
                                       cmocka_unit_test(test_sums_of_some_terms),
                                       cmocka_unit_test(test_a_norm_of_a_norm),
                                       cmocka_unit_test(test_routers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
