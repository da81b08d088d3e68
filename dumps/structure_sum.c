/* structure_sum.c: hypotheses about sums of a few rows (a residual, shares of ranks, outputs of
 * experts): a term is left out, or counted twice. And how many mantissa bits hold the values of a
 * side. See structure.h. */
#include "dumps/structure_internal.h"

#include "base/dtype.h"

#include <math.h>

struct term {
    uint32_t which;
    int sign; /* -1: mine lacks it; 1: mine has it once more */
};

static int predict_term(const struct task *t, size_t r, const void *how)
{
    const struct term *h = how;
    const struct ds_structure_row *row = &t->rows[r];
    if (!row->term[h->which])
        return -1;
    for (uint32_t i = 0; i < t->s->width; i++)
        t->guess[i] = (float)((double)row->ref[i] + h->sign * (double)row->term_weight[h->which] *
                                                        (double)row->term[h->which][i]);
    return 1;
}

void try_terms(struct task *t)
{
    for (uint32_t k = 0; k < t->s->n_terms && k < DS_STRUCTURE_TERMS; k++) {
        struct term lacks = {k, -1}, more = {k, 1};
        claim(t, explains(t, predict_term, &lacks), 0, "the sum lacks %s", t->s->term_name[k]);
        claim(t, explains(t, predict_term, &more), 0,
              "the sum has %s once more than the reference's", t->s->term_name[k]);
    }
}

/* Mantissa bits behind the point that this f32 number uses. */
static int bits_of(float x)
{
    uint32_t mantissa = ds_f32_bits(x) & 0x7fffff;
    return mantissa ? 23 - __builtin_ctz(mantissa) : 0;
}

void measure_bits(const struct ds_structure_site *s, const struct ds_structure_row *rows,
                  size_t n_rows, struct ds_structure *out)
{
    if (s->dtype != DS_F32)
        return;
    for (size_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < s->width; i++) {
            int mine = bits_of(rows[r].mine[i]), ref = bits_of(rows[r].ref[i]);
            if (!isfinite(rows[r].mine[i]) || !isfinite(rows[r].ref[i]))
                continue;
            out->mine_bits = mine > out->mine_bits ? mine : out->mine_bits;
            out->ref_bits = ref > out->ref_bits ? ref : out->ref_bits;
        }
}
