/* explain_weights.c: other weights that would give a matmul's values: the same the other way round, or another
 * tensor of the model with the same sizes (of another layer, another expert, another stage). */
#include "kernels/lab/explain.h"

#include <math.h>
#include <stdio.h>

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

int ds_explain_weights(const struct ds_explain *e, int side, double noise,
                       struct ds_explain_guess *guess)
{
    const struct ds_matmul_args *a = &e->shared.matmul;
    if (e->op != DS_OP_MATMUL || !a->w.data || gives(e, side, noise, guess, a->w.data, a->k, 1))
        return 0;
    if (gives(e, side, noise, guess, a->w.data, 1, a->n))
        return found(guess, DS_GUESS_TRANSPOSED, 0, NULL);
    for (size_t i = 0; i < e->n_others; i++)
        if (gives(e, side, noise, guess, e->others[i].data, a->k, 1))
            return found(guess, DS_GUESS_WEIGHTS, i, e->others[i].name);
    return 0;
}
