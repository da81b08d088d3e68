/* explain_weights.c: other weights that would give a matmul's values: the same the other way round, or another
 * tensor of the model with the same sizes (of another layer, another expert, another stage), or its own in blocks
 * that are unpacked wrongly. */
#include "kernels/lab/explain.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_COLUMNS = 64 };

/* The element as these weights give it: k-th weight of column j at data[j * by_column + k * by_term]. */
static double product(const struct ds_explain *e, size_t row, int64_t j, const float *data,
                      int64_t by_column, int64_t by_term)
{
    const struct ds_matmul_args *a = &e->shared.matmul;
    const float *x = e->rows[row].input[DS_SIDE_A].in[0];
    double sum = 0;
    for (int64_t k = 0; k < a->k; k++)
        sum += (double)x[k] * (double)data[j * by_column + k * by_term];
    return a->bias ? sum + (double)a->bias[j] : sum;
}

static int gives(const struct ds_explain *e, int side, double noise,
                 const struct ds_explain_guess *g, const float *data, int64_t by_column,
                 int64_t by_term)
{
    const int64_t n = e->shared.matmul.n, step = n > MOST_COLUMNS ? n / MOST_COLUMNS : 1;
    for (size_t r = 0; r < e->n_rows; r++)
        for (int64_t j = 0; j < n && ds_guess_has(g, r); j += step) {
            const double got = (double)e->rows[r].y[side][j],
                         want = product(e, r, j, data, by_column, by_term);
            if (!(fabs(got - want) <= noise + fabs(want) * 0x1p-22))
                return 0;
        }
    return 1;
}

static int found(struct ds_explain_guess *g, int kind, size_t which, const char *name)
{
    g->kind = kind;
    g->a = (int64_t)which;
    if (kind == DS_GUESS_TRANSPOSED)
        snprintf(g->text, sizeof g->text, "the weights are read the other way round (transposed)");
    else
        snprintf(g->text, sizeof g->text, "the weights are those of %s", name);
    return 1;
}

/* ---- blocks that are unpacked wrongly ---------------------------------------------------------- */

static float largest(const float *w, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(w[i]));
    return most;
}

void ds_explain_block_weights(int fault, int64_t size, const float *w, int64_t k, float *to)
{
    const int64_t blocks = k / size;
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t next = (b + 1) % blocks, before = (b + blocks - 1) % blocks;
        const float *own = w + b * size,
                    *other = w + (fault == DS_BLOCK_SCALE_BEFORE ? before : next) * size;
        const float scale = largest(own, size),
                    by = scale > 0 ? largest(other, size) / scale : 1.0f;
        for (int64_t i = 0; i < size; i++)
            to[b * size + i] = fault == DS_BLOCK_HALVES  ? own[(i + size / 2) % size]
                               : fault == DS_BLOCK_PAIRS ? own[i ^ 1]
                               : fault == DS_BLOCK_NEXT  ? other[i]
                                                         : own[i] * by;
    }
}

static const char *const block_text[DS_BLOCK_FAULTS] = {
    [DS_BLOCK_NEXT_SCALE] = "every block of %d weights has the scale of the next one",
    [DS_BLOCK_SCALE_BEFORE] = "every block of %d weights has the scale of the one before",
    [DS_BLOCK_HALVES] = "in every block of %d weights the two halves are exchanged",
    [DS_BLOCK_PAIRS] = "in every block of %d weights neighbours are exchanged",
    [DS_BLOCK_NEXT] = "every block of %d weights is the next one"};

/* Whether it gives the columns looked at, within what a scale that is only nearly the largest weight leaves:
 * a tenth of what is to be explained. */
static int gives_blocks(const struct ds_explain *e, int side, double noise,
                        const struct ds_explain_guess *g, int fault, int64_t size, float *row)
{
    const struct ds_matmul_args *a = &e->shared.matmul;
    const int64_t step = a->n > MOST_COLUMNS ? a->n / MOST_COLUMNS : 1;
    double off = 0, left = 0;
    for (int64_t j = 0; j < a->n; j += step) {
        ds_explain_block_weights(fault, size, a->w.data + j * a->k, a->k, row);
        for (size_t r = 0; r < e->n_rows; r++) {
            if (!ds_guess_has(g, r))
                continue;
            const double got = (double)e->rows[r].y[side][j],
                         was = got - product(e, r, j, a->w.data, a->k, 1),
                         is = got - (product(e, r, 0, row, 0, 1) -
                                     (a->bias ? (double)a->bias[0] - (double)a->bias[j] : 0));
            off += was * was;
            left += is * is;
        }
        if (100 * left > off + noise * noise)
            return 0;
    }
    return off > 0;
}

static int other_blocks(const struct ds_explain *e, int side, double noise,
                        struct ds_explain_guess *guess, struct ds_error *err)
{
    static const int sizes[] = {32, 16, 64, 128, 256};
    const int64_t k = e->shared.matmul.k;
    float *row = ds_alloc_aligned((size_t)k, sizeof *row, "weights", err);
    int found = 0;
    if (!row)
        return -1;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !found; i++)
        for (int f = 0; f < DS_BLOCK_FAULTS && !found; f++)
            if (k % sizes[i] == 0 && k > sizes[i] &&
                gives_blocks(e, side, noise, guess, f, sizes[i], row)) {
                guess->kind = DS_GUESS_BLOCKS;
                guess->a = f;
                guess->b = sizes[i];
                snprintf(guess->text, sizeof guess->text, block_text[f], sizes[i]);
                found = 1;
            }
    free(row);
    return found;
}

int ds_explain_weights(const struct ds_explain *e, int side, double noise,
                       struct ds_explain_guess *guess, struct ds_error *err)
{
    const struct ds_matmul_args *a = &e->shared.matmul;
    if (e->op != DS_OP_MATMUL || !a->w.data || gives(e, side, noise, guess, a->w.data, a->k, 1))
        return 0;
    if (gives(e, side, noise, guess, a->w.data, 1, a->n))
        return found(guess, DS_GUESS_TRANSPOSED, 0, NULL);
    for (size_t i = 0; i < e->n_others; i++)
        if (gives(e, side, noise, guess, e->others[i].data, a->k, 1))
            return found(guess, DS_GUESS_WEIGHTS, i, e->others[i].name);
    return other_blocks(e, side, noise, guess, err);
}
