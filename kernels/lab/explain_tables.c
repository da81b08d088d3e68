/* explain_tables.c: other rows of a table that would give a side's values: the vectors of other tokens, and a norm's
 * weight that is left out, applied twice, has 1 added, or is another tensor's. */
#include "kernels/lab/explain.h"

#include "base/dtype.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- tokens ------------------------------------------------------------------------------------ */

/* The token whose vector the row is, bit for bit; -1: none. */
static int32_t token_of(const struct ds_explain *e, int side, size_t r)
{
    const struct ds_embed_args *a = &e->shared.embed;
    for (int64_t id = 0; id < a->vocab; id++)
        if (memcmp(e->rows[r].y[side], a->table + id * a->width,
                   (size_t)a->width * sizeof *a->table) == 0)
            return (int32_t)id;
    return -1;
}

static int other_tokens(const struct ds_explain *e, int side, struct ds_explain_guess *guess)
{
    int32_t first = -1, own = -1, by = 0;
    int alike = 1, same = 1;
    size_t rows = 0;
    for (size_t r = 0; r < e->n_rows; r++) {
        const int32_t id = ds_guess_has(guess, r) ? token_of(e, side, r) : -1,
                      was = e->rows[r].input[side].number;
        if (!ds_guess_has(guess, r))
            continue;
        if (id < 0)
            return 0;
        if (rows++ == 0) {
            first = id;
            own = was;
            by = id - was;
        }
        alike &= id - was == by;
        same &= id == first;
    }
    if (!rows)
        return 0;
    guess->kind = DS_GUESS_TOKENS;
    guess->a = first;
    guess->b = own;
    if (rows > 1 && same)
        snprintf(guess->text, sizeof guess->text, "all rows are the vector of token %" PRId32,
                 first);
    else if (rows > 1 && alike)
        snprintf(guess->text, sizeof guess->text,
                 "rows are vectors of the token %" PRId32 " %s, as %" PRId32 " for %" PRId32,
                 by < 0 ? -by : by, by < 0 ? "before" : "after", first, own);
    else
        snprintf(guess->text, sizeof guess->text,
                 "rows are vectors of other tokens, the first that of %" PRId32 ", not %" PRId32,
                 first, own);
    return 1;
}

/* ---- a norm's weight ----------------------------------------------------------------------------- */

enum form { LEFT_OUT, TWICE, PLUS_ONE, FORMS, AS_BF16, AS_F16, AS_E4M3, ROUNDED };

/* To three mantissa bits. */
static double e4m3(double x)
{
    const int e = x == 0 || ilogb(x) < -6 ? -6 : ilogb(x);
    return ldexp(rint(ldexp(x, 3 - e)), e - 3);
}

static double weight(const float *w, int form, const float *other, int64_t c)
{
    const double own = (double)w[c];
    if (other)
        return (double)other[c];
    switch (form) {
    case TWICE:
        return own * own;
    case PLUS_ONE:
        return 1 + own;
    case AS_BF16:
        return (double)ds_bf16_value(ds_bf16_round(w[c]));
    case AS_F16:
        return (double)ds_f16_value(ds_f16_round(w[c]));
    case AS_E4M3:
        return e4m3(own);
    default:
        return 1;
    }
}

static int weight_is(const struct ds_explain *e, const double *exact, int side, double noise,
                     const struct ds_explain_guess *g, int form, const float *other)
{
    const struct ds_rmsnorm_args *a = &e->shared.rmsnorm;
    for (size_t r = 0; r < e->n_rows; r++)
        for (int64_t c = 0; c < a->width && ds_guess_has(g, r); c++) {
            const double own = (double)a->weight[c],
                         times = weight(a->weight, form, other, c) / own,
                         want = exact[(int64_t)r * a->width + c] * times;
            if (own != 0 && !(fabs((double)e->rows[r].y[side][c] - want) <=
                              noise * fmax(1, fabs(times)) + fabs(want) * 0x1p-21))
                return 0;
        }
    return 1;
}

static int other_norm(const struct ds_explain *e, const double *exact, int side, double noise,
                      struct ds_explain_guess *guess)
{
    static const char *const texts[FORMS] = {[LEFT_OUT] = "its weight is left out",
                                             [TWICE] = "its weight is applied twice",
                                             [PLUS_ONE] = "its weight has 1 added (1 + w)"};
    for (int form = 0; form < FORMS; form++)
        if (weight_is(e, exact, side, noise, guess, form, NULL)) {
            guess->kind = DS_GUESS_NORM;
            guess->a = form;
            snprintf(guess->text, sizeof guess->text, "%s", texts[form]);
            return 1;
        }
    for (int form = AS_BF16; form < ROUNDED; form++)
        if (weight_is(e, exact, side, noise, guess, form, NULL)) {
            guess->kind = DS_GUESS_FEW_BITS;
            guess->precision = 1;
            guess->a = form;
            snprintf(guess->text, sizeof guess->text, "its weight is rounded to %s",
                     form == AS_BF16  ? "bf16"
                     : form == AS_F16 ? "f16"
                                      : "fp8-e4m3");
            return 1;
        }
    for (size_t i = 0; i < e->n_others; i++)
        if (weight_is(e, exact, side, noise, guess, FORMS, e->others[i].data)) {
            guess->kind = DS_GUESS_WEIGHTS;
            guess->a = (int64_t)i;
            snprintf(guess->text, sizeof guess->text, "its weight is %s", e->others[i].name);
            return 1;
        }
    return 0;
}

int ds_explain_tables(const struct ds_explain *e, const double *exact, int side, double noise,
                      struct ds_explain_guess *guess)
{
    if (e->op == DS_OP_EMBED && e->shared.embed.table)
        return other_tokens(e, side, guess);
    if (e->op == DS_OP_RMSNORM && e->shared.rmsnorm.weight)
        return other_norm(e, exact, side, noise, guess);
    return 0;
}
