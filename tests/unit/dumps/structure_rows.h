/* structure_rows.h: a few rows of heads on two sides, what their kernel read, and what is told of their difference. */
#ifndef STRUCTURE_ROWS_H
#define STRUCTURE_ROWS_H

#include "tests/unit/dumps/random_values.h"
#include "tests/unit/testing.h"

#include "base/dtype.h"
#include "dumps/structure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, HEADS = 4, DIM = 16, WIDTH = HEADS * DIM, KV = 2, KEYS = 16 };

static float mine[ROWS][WIDTH], ref[ROWS][WIDTH], input[ROWS][WIDTH];
static float cached[2][KEYS][KV * DIM];
static const float *key_rows[KEYS], *value_rows[KEYS];
static struct ds_structure_row rows[ROWS];
static struct ds_structure_site site;

static inline void set_up(uint64_t seed, int op, int dtype)
{
    state = seed;
    site = (struct ds_structure_site){.op = op,
                                      .dtype = dtype,
                                      .width = WIDTH,
                                      .head_dim = DIM,
                                      .kv_heads = KV,
                                      .order = 2e-6,
                                      .eps = 1e-5,
                                      .rope_base = 10000};
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < WIDTH; i++) {
            ref[r][i] = mine[r][i] = normal();
            input[r][i] = normal();
        }
        rows[r] = (struct ds_structure_row){
            .mine = mine[r], .ref = ref[r], .input = input[r], .position = r + 2};
    }
    for (int k = 0; k < KEYS; k++) {
        for (int i = 0; i < KV * DIM; i++) {
            cached[0][k][i] = normal();
            cached[1][k][i] = normal();
        }
        key_rows[k] = cached[0][k];
        value_rows[k] = cached[1][k];
    }
}

static inline void store(void)
{
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDTH && site.dtype == DS_BF16; i++) {
            mine[r][i] = ds_bf16_value(ds_bf16_round(mine[r][i]));
            ref[r][i] = ds_bf16_value(ds_bf16_round(ref[r][i]));
        }
}

static inline struct ds_structure find(void)
{
    struct ds_structure s;
    struct ds_error err;
    store();
    assert_ok(ds_structure_find(&site, rows, ROWS, &s, &err), err);
    return s;
}

static inline void expect(const char *text)
{
    struct ds_structure s = find();
    if (!s.found || !strstr(s.text, text))
        fail_msg("told '%s' (%.3f of %llu), not '%s'", s.text, s.explained,
                 (unsigned long long)s.off, text);
}

static inline void expect_nothing(const char *of)
{
    struct ds_structure s = find();
    if (s.found)
        fail_msg("%s: told '%s' (%.3f of %llu)", of, s.text, s.explained,
                 (unsigned long long)s.off);
}

/* Rounding that reordering leaves: of the row's size, and of the element's. */
static inline void jitter(double size)
{
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDTH; i++)
            mine[r][i] = (float)((double)mine[r][i] + size * (2 * uniform() - 1));
}

#endif
