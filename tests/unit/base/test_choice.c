/* test_choice.c: rules of choices among a part of a list: each is named, and random choices are of none. */
#include "tests/unit/testing.h"

#include "base/choice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 32, MOST_N = 64, MOST_TOP = 8 };

static float x[MOST_ROWS][MOST_N];
static int32_t ids[MOST_ROWS][MOST_TOP];
static char text[DS_CHOICE_TEXT];

static uint64_t state;
static uint32_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static void draw_logits(uint64_t seed, int rows, int n)
{
    state = seed;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++)
            x[r][i] = (float)(draw() % 100000) / 1000 - 50;
}

/* Fills row r with the `top` best of what the rule lets take part, those before `from` left out. */
static void choose(int r, int n, int top, int from, int (*part)(int r, int i))
{
    int32_t best[MOST_TOP + 4];
    for (int k = 0; k < top + from; k++) {
        best[k] = -1;
        for (int i = 0; i < n; i++) {
            int taken = 0;
            for (int l = 0; l < k; l++)
                taken |= best[l] == i;
            if (!taken && part(r, i) && (best[k] < 0 || x[r][i] > x[r][best[k]]))
                best[k] = i;
        }
    }
    memcpy(ids[r], best + from, (size_t)top * sizeof *best);
}

static int all(int r, int i)
{
    return r >= 0 && i >= 0;
}

static int second_half(int r, int i)
{
    return r >= 0 && i >= 8;
}

static int third(int r, int i)
{
    return r >= 0 && i % 3 == 1;
}

static int without(int r, int i)
{
    return r >= 0 && i != 2 && i != 7 && i != 9;
}

static int group_of_row(int r, int i)
{
    return i / 4 == r % 4;
}

static int look(int rows, int n, int top)
{
    struct ds_choice_row row[MOST_ROWS];
    uint8_t used[MOST_N];
    for (int r = 0; r < rows; r++)
        row[r] = (struct ds_choice_row){x[r], ids[r]};
    return ds_choice_part(row, (size_t)rows, n, top, "experts", used, text);
}

static void test_each_rule(void **unused)
{
    static const struct {
        int (*part)(int r, int i);
        int top, from;
        const char *want;
    } cases[] = {
        {second_half, 2, 0, "the 2 largest of experts 8-15 alone; in "},
        {third, 2, 0, "the 2 largest of experts 1, 4, 7, ... alone; in "},
        {without, 3, 0, "the 3 largest of all experts but 2, 7, 9, never chosen; in "},
        {group_of_row, 2, 0,
         "the 2 largest of one group of 4 experts alone, another one by row, not always"},
        {all, 2, 1, "the 2 largest behind the first, which is left out; in 32 of 32 rows"},
        {all, 1, 3, "the largest behind the first 3, which are left out; in 32 of 32 rows"},
    };
    (void)unused;
    draw_logits(7, MOST_ROWS, 16);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (int r = 0; r < MOST_ROWS; r++)
            choose(r, 16, cases[c].top, cases[c].from, cases[c].part);
        assert_int_equal(look(MOST_ROWS, 16, cases[c].top), 1);
        if (strncmp(text, cases[c].want, strlen(cases[c].want)) != 0)
            fail_msg("'%s' does not begin with '%s'", text, cases[c].want);
    }
    for (int r = 0; r < MOST_ROWS; r++) { /* by size, whatever the sign */
        float turned[MOST_N];
        memcpy(turned, x[r], sizeof turned);
        for (int i = 0; i < 16; i++)
            x[r][i] = fabsf(x[r][i]);
        choose(r, 16, 2, 0, all);
        memcpy(x[r], turned, sizeof turned);
        if (x[r][ids[r][0]] < x[r][ids[r][1]]) { /* best first, by value */
            const int32_t first = ids[r][0];
            ids[r][0] = ids[r][1];
            ids[r][1] = first;
        }
    }
    assert_int_equal(look(MOST_ROWS, 16, 2), 1);
    assert_non_null(strstr(text, "the 2 largest in size, whatever the sign; in "));
}

/* The largest of all need no rule, and what follows none is of none. */
static void test_no_rule(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        const int n = (int)(8 + seed % 3 * 8), top = (int)(1 + seed % 3);
        draw_logits(seed, MOST_ROWS, n);
        for (int r = 0; r < MOST_ROWS; r++)
            choose(r, n, top, 0, all);
        assert_int_equal(look(MOST_ROWS, n, top), 0);
        /* Random ones, best first, of few rows and of many. */
        for (int r = 0; r < MOST_ROWS; r++) {
            for (int k = 0; k < top; k++)
                for (int again = 1; again;) {
                    ids[r][k] = (int32_t)(draw() % (uint32_t)n);
                    again = 0;
                    for (int l = 0; l < k; l++)
                        again |= ids[r][l] == ids[r][k];
                }
            for (int k = 0; k < top; k++)
                for (int l = k + 1; l < top; l++)
                    if (x[r][ids[r][l]] > x[r][ids[r][k]]) {
                        const int32_t other = ids[r][k];
                        ids[r][k] = ids[r][l];
                        ids[r][l] = other;
                    }
        }
        for (int rows = 1; rows <= MOST_ROWS; rows = rows < 12 ? rows + 1 : rows * 2)
            if (look(rows, n, top))
                fail_msg("seed %d, %d rows, %d of %d: %s", (int)seed, rows, top, n, text);
    }
}

/* Near ties that fall the other way, as rounded logits make them, are of no part. */
static void test_near_ties(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        draw_logits(seed, 8, 16);
        for (int r = 0; r < 8; r++) {
            choose(r, 16, 3, 0, all);
            int32_t next = -1;
            for (int i = 0; i < 16; i++)
                if (i != ids[r][0] && i != ids[r][1] && i != ids[r][2] &&
                    (next < 0 || x[r][i] > x[r][next]))
                    next = i;
            ids[r][2] = next;
        }
        if (look(8, 16, 3))
            fail_msg("seed %d: %s", (int)seed, text);
    }
}

/* What a record may hold: ids outside the list, the same twice, NaN, nothing. */
static void test_bad_rows(void **unused)
{
    static const int32_t bad[] = {-1, 16, INT32_MAX, INT32_MIN};
    (void)unused;
    draw_logits(3, 8, 16);
    for (int r = 0; r < 8; r++)
        choose(r, 16, 2, 0, second_half);
    assert_int_equal(look(8, 16, 2), 1);
    assert_int_equal(look(0, 16, 2), 0);
    assert_int_equal(look(8, 16, 16), 0);
    assert_int_equal(look(8, 0, 0), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const int32_t was = ids[5][1];
        ids[5][1] = bad[i];
        assert_int_equal(look(8, 16, 2), 0);
        ids[5][1] = was;
    }
    ids[5][1] = ids[5][0];
    assert_int_equal(look(8, 16, 2), 0);
    choose(5, 16, 2, 0, second_half);
    x[2][0] = NAN;
    assert_int_equal(look(8, 16, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_rule),
        cmocka_unit_test(test_no_rule),
        cmocka_unit_test(test_near_ties),
        cmocka_unit_test(test_bad_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
