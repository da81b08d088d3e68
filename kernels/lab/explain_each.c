/* explain_each.c: ops whose elements stand alone: rope, silu_mul, add, copies. Nothing is added up in an
 * order, but there are ways to compute an element: what is fused, what is rounded on the way, whose exp.
 * Every known way is tried, and one counts only if it gives every bit of every row. The functions are
 * transcriptions, beside the kernels' code. Knows no kernel.
 *
 * rope       y0 = x0*cos - x1*sin, y1 = x0*sin + x1*cos: both products rounded; or one of them joins the
 *            sum unrounded, FMA: that of cos with its own channel, or the other.
 * silu_mul   e = exp(-g) of libm or of kernels/PINNED.md; g / (1 + e) * u, g * (1 / (1 + e)) * u,
 *            g * u / (1 + e).
 * add, copies  one way.
 *
 * Each also with what is rounded on the way (the products; silu(g)) kept in bf16 or f16. */
#include "kernels/lab/explain_each.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/explain_weigh.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CASTS = 3, ROPE_WAYS = 3, SILU_WAYS = 3 };

int ds_explain_stands_alone(int op)
{
    return op == DS_OP_ROPE || op == DS_OP_SILU_MUL || op == DS_OP_ADD || ds_explain_copies(op);
}

/* ---- one element ----------------------------------------------------------------------------- */

void ds_each_terms(const struct ds_explain *e, int side, size_t row, int64_t column,
                   struct ds_each_terms *t)
{
    const struct ds_explain_input *in = &e->rows[row].input[side];
    *t = (struct ds_each_terms){.at = DS_EACH_ONE};
    if (e->op == DS_OP_EMBED) {
        t->v[0] = e->shared.embed.table[in->number * e->shared.embed.width + column];
        return;
    }
    t->v[0] = in->in[0][column];
    if (e->op == DS_OP_ADD || e->op == DS_OP_SILU_MUL)
        t->v[1] = in->in[1][column];
    if (e->op != DS_OP_ROPE)
        return;
    const struct ds_rope_args *a = &e->shared.rope;
    const int64_t half = a->rope_dim / 2, c = column % a->head_dim, head = column - c,
                  pair = a->neox ? c % (half ? half : 1) : c / 2,
                  first = head + (a->neox ? pair : 2 * pair);
    if (c >= a->rope_dim) {
        t->at = DS_EACH_COPIED;
        return;
    }
    t->at = (a->neox ? c >= half : c % 2) ? DS_EACH_SECOND : DS_EACH_FIRST;
    t->v[0] = in->in[0][first];
    t->v[1] = in->in[0][first + (a->neox ? half : 1)];
    t->v[2] = a->cos_sin[((int64_t)in->number * half + pair) * 2];
    t->v[3] = a->cos_sin[((int64_t)in->number * half + pair) * 2 + 1];
}

static float kept(int cast, float v)
{
    return cast == 1   ? ds_bf16_value(ds_bf16_round(v))
           : cast == 2 ? ds_f16_value(ds_f16_round(v))
                       : v;
}

static float rope_value(int way, int cast, const struct ds_each_terms *t)
{
    const float own = t->at == DS_EACH_FIRST ? t->v[0] : t->v[1],
                other = t->at == DS_EACH_FIRST ? -t->v[1] : t->v[0];
    switch (way) {
    case 0:
        return kept(cast, own * t->v[2]) + kept(cast, other * t->v[3]);
    case 1:
        return fmaf(own, t->v[2], kept(cast, other * t->v[3]));
    default:
        return fmaf(other, t->v[3], kept(cast, own * t->v[2]));
    }
}

static float silu_value(int way, int cast, const struct ds_each_terms *t)
{
    const float g = t->v[0], u = t->v[1],
                below = 1.0f + ds_weigh_exp(way < SILU_WAYS ? DS_EXP_LIBM : DS_EXP_PINNED, -g);
    switch (way % SILU_WAYS) {
    case 0:
        return kept(cast, g / below) * u;
    case 1:
        return kept(cast, g * (1.0f / below)) * u;
    default:
        return kept(cast, g * u) / below;
    }
}

float ds_each_value(int op, int form, const struct ds_each_terms *t)
{
    const int way = form / CASTS, cast = form % CASTS;
    if (op == DS_OP_ROPE && t->at != DS_EACH_COPIED)
        return rope_value(way, cast, t);
    if (op == DS_OP_SILU_MUL)
        return silu_value(way, cast, t);
    return op == DS_OP_ADD ? t->v[0] + t->v[1] : t->v[0];
}

/* ---- forms ----------------------------------------------------------------------------------- */

static int forms_of(int op)
{
    return op == DS_OP_ROPE ? ROPE_WAYS * CASTS : op == DS_OP_SILU_MUL ? 2 * SILU_WAYS * CASTS : 1;
}

int ds_each_cast(int form)
{
    return form % CASTS == 1 ? DS_BF16 : form % CASTS == 2 ? DS_F16 : DS_F32;
}

void ds_each_text(int op, int form, char *text, size_t size)
{
    static const char *const rope[ROPE_WAYS] = {"both products rounded, then their sum",
                                                "FMA(own channel, cos, other channel * sin)",
                                                "FMA(other channel, sin, own channel * cos)"};
    static const char *const silu[SILU_WAYS] = {
        "g / (1 + exp(-g)) * u", "g * (1 / (1 + exp(-g))) * u", "g * u / (1 + exp(-g))"};
    const int way = form / CASTS, cast = form % CASTS;
    const char *kept_in = cast == 1 ? "bf16" : "f16";
    if (op == DS_OP_ROPE)
        snprintf(text, size, "%s%s%s", rope[way], cast ? ", products kept in " : "",
                 cast ? kept_in : "");
    else if (op == DS_OP_SILU_MUL)
        snprintf(text, size, "%s, exp %s%s%s", silu[way % SILU_WAYS],
                 way < SILU_WAYS ? "of libm" : "pinned",
                 !cast                  ? ""
                 : way % SILU_WAYS == 2 ? ", g * u kept in "
                                        : ", silu(g) kept in ",
                 cast ? kept_in : "");
    else
        snprintf(text, size, "%s", op == DS_OP_ADD ? "a + b" : "what was read");
}

static float stored(int dtype, float v)
{
    return dtype == DS_BF16  ? ds_bf16_value(ds_bf16_round(v))
           : dtype == DS_F16 ? ds_f16_value(ds_f16_round(v))
                             : v;
}

/* Pinned kernels store every NaN as 7fc00000. */
static int same(float a, float b)
{
    return ds_f32_bits(a) == ds_f32_bits(b) || (isnan(a) && ds_f32_bits(b) == 0x7fc00000u);
}

static int gives_all(const struct ds_explain *e, int side, int form, float *y)
{
    const int64_t width = ds_explain_width(e->op, &e->shared);
    for (size_t r = 0; r < e->n_rows; r++)
        for (int64_t c = 0; c < width; c++) {
            const float got = e->rows[r].y[side][c];
            struct ds_each_terms t;
            ds_each_terms(e, side, r, c, &t);
            const float v = stored(e->side[side].dtype, ds_each_value(e->op, form, &t));
            if (!same(v, got))
                return 0;
            y[(int64_t)r * width + c] = got;
        }
    return 1;
}

int ds_explain_each(const struct ds_explain *e, int side, struct ds_explain_order *o,
                    struct ds_error *err)
{
    const size_t n = e->n_rows * (size_t)ds_explain_width(e->op, &e->shared);
    if (!(o->y = ds_alloc_aligned(n, sizeof *o->y, "the replay", err)))
        return -1;
    for (int form = 0; form < forms_of(e->op) && !o->replayed; form++)
        if (gives_all(e, side, form, o->y)) {
            o->form = form;
            o->replayed = 1;
            ds_explain_match(e, o->y, &o->match);
        }
    return 0;
}
