/* explain_copy.c: ops that hand rows on as they are: which elements of a side are not what was read, and
 * what they are instead. Pure. */
#include "kernels/lab/explain.h"

#include "base/dtype.h"

#include <stdio.h>
#include <string.h>

int ds_explain_copies(int op)
{
    return op == DS_OP_CACHE || op == DS_OP_TRANSFER || op == DS_OP_EMBED || op == DS_OP_PROCESS;
}

static const float *source(const struct ds_explain *e, const struct ds_explain_input *in)
{
    const struct ds_embed_args *a = &e->shared.embed;
    return e->op == DS_OP_EMBED ? a->table + in->number * a->width : in->in[0];
}

static float stored(int dtype, float v)
{
    return dtype == DS_BF16  ? ds_bf16_value(ds_bf16_round(v))
           : dtype == DS_F16 ? ds_f16_value(ds_f16_round(v))
                             : v;
}

static void look_at(struct ds_explain_copy *c, float read, float got, int64_t i)
{
    const uint32_t bits = ds_f32_bits(got);
    if (c->others++ == 0)
        c->first = c->last = i;
    c->first = i < c->first ? i : c->first;
    c->last = i > c->last ? i : c->last;
    c->zeros += got == 0;
    c->bf16 += bits == ds_f32_bits(stored(DS_BF16, read));
    c->f16 += bits == ds_f32_bits(stored(DS_F16, read));
}

void ds_explain_copied(const struct ds_explain *e, int side, struct ds_explain_copy *c)
{
    const int64_t width = ds_explain_width(e->op, &e->shared);
    memset(c, 0, sizeof *c);
    for (size_t r = 0; r < e->n_rows; r++) {
        const float *x = source(e, &e->rows[r].input[side]), *y = e->rows[r].y[side];
        const uint64_t before = c->others;
        for (int64_t i = 0; i < width; i++, c->elements++)
            if (ds_f32_bits(y[i]) != ds_f32_bits(stored(e->side[side].dtype, x[i])))
                look_at(c, x[i], y[i], i);
        c->rows += c->others > before;
    }
}

void ds_explain_copy_text(const struct ds_explain *e, const struct ds_explain_copy *c, char *text,
                          size_t size)
{
    const char *what = "";
    if (c->others == 0) {
        snprintf(text, size, "all %llu elements are what was read",
                 (unsigned long long)c->elements);
        return;
    }
    if (c->zeros == c->others)
        what = "; they are 0";
    else if (c->bf16 == c->others)
        what = "; they are what was read, rounded to bf16";
    else if (c->f16 == c->others)
        what = "; they are what was read, rounded to f16";
    snprintf(text, size,
             "%llu of %llu elements are not what was read: in %llu of %zu rows, elements "
             "%lld to %lld%s",
             (unsigned long long)c->others, (unsigned long long)c->elements,
             (unsigned long long)c->rows, e->n_rows, (long long)c->first, (long long)c->last, what);
}
