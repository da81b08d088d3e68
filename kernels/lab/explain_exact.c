/* explain_exact.c: the exact result of given rows, and how far both sides are off it. Sums are exact
 * (exact.h) or long double (truth.h); attention is in double (attention_exact.h). */
#include "kernels/lab/explain_formula.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/attention_exact.h"
#include "kernels/lab/truth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A call of this one row: its inputs as they are. */
static void one_row(const struct ds_explain *e, const struct ds_explain_input *in,
                    const float **ranks, union ds_any_args *a)
{
    *a = e->shared;
    switch (e->op) {
    case DS_OP_EMBED:
        a->embed.rows = 1;
        a->embed.ids = &in->number;
        break;
    case DS_OP_RMSNORM:
        a->rmsnorm.rows = 1;
        a->rmsnorm.x = in->in[0];
        break;
    case DS_OP_MATMUL:
        a->matmul.rows = 1;
        a->matmul.x = in->in[0];
        break;
    case DS_OP_ROPE:
        a->rope.rows = 1;
        a->rope.positions = &in->number;
        a->rope.x = in->in[0];
        break;
    case DS_OP_SOFTMAX:
        a->softmax.rows = 1;
        a->softmax.x = in->in[0];
        break;
    case DS_OP_SILU_MUL:
        a->silu_mul.rows = 1;
        a->silu_mul.gate = in->in[0];
        a->silu_mul.up = in->in[1];
        break;
    case DS_OP_TRANSFER:
        a->transfer.rows = 1;
        a->transfer.x = in->in[0];
        break;
    case DS_OP_ADD:
        a->add.rows = 1;
        a->add.a = in->in[0];
        a->add.b = in->in[1];
        break;
    case DS_OP_COMBINE:
        a->combine.rows = 1;
        a->combine.x = in->in[0];
        a->combine.ldx = a->combine.width;
        a->combine.weights = in->in[1];
        break;
    case DS_OP_ALLREDUCE:
        a->allreduce.rows = 1;
        for (int64_t i = 0; i < a->allreduce.ranks; i++)
            ranks[i] = in->in[0] + i * a->allreduce.width;
        a->allreduce.x = ranks;
        a->allreduce.ldx = a->allreduce.width;
        break;
    default:
        break;
    }
}

static int attention_row(const struct ds_explain *e, const struct ds_explain_input *in,
                         double *exact, struct ds_error *err)
{
    struct ds_attention_args a = e->shared.attention;
    const int32_t slots = in->slot + 1 - in->kv_first, page = 0;
    const struct ds_sequence s = {.q_len = 1, .kv_len = slots, .pages = &page};
    double *weights = ds_calloc((size_t)slots * 2, sizeof *weights, "weights", err),
           *unit = ds_calloc((size_t)a.head_dim, sizeof *unit, "error bounds", err);
    int rc = weights && unit ? 0 : -1;
    a.rows = a.n_sequences = a.pages = 1;
    a.page_size = a.max_kv_len = slots;
    a.max_q_len = 1;
    a.q = in->in[0];
    a.ldq = a.heads * a.head_dim;
    a.cache_k = in->k;
    a.cache_v = in->v;
    a.sequences = &s;
    for (int64_t h = 0; h < a.heads && rc == 0; h++) {
        struct ds_attention_exact one = {.y = exact + h * a.head_dim, .unit = unit};
        ds_attention_exact(&a, 0, h, weights, &one);
    }
    free(weights);
    free(unit);
    return rc;
}

int ds_explain_exact(const struct ds_explain *e, double *exact, struct ds_error *err)
{
    const int64_t width = ds_explain_width(e->op, &e->shared);
    const size_t ranks = e->op == DS_OP_ALLREDUCE ? (size_t)e->shared.allreduce.ranks : 1;
    struct ds_truth *t = ds_calloc((size_t)width, sizeof *t, "the exact result", err);
    const float **rank = ds_calloc(ranks, sizeof *rank, "ranks", err);
    int rc = t && rank ? 0 : -1;
    for (size_t r = 0; r < e->n_rows && rc == 0; r++) {
        const struct ds_explain_input *in = &e->rows[r].input[DS_SIDE_A];
        double *to = exact + (int64_t)r * width;
        union ds_any_args a;
        if (e->op == DS_OP_ATTENTION) {
            rc = attention_row(e, in, to, err);
            continue;
        }
        if (e->op == DS_OP_ROUTER) {
            ds_formula_weights(e, in, 1, 0, to);
            continue;
        }
        one_row(e, in, rank, &a);
        const int copies = e->op == DS_OP_CACHE || e->op == DS_OP_PROCESS;
        if (!copies)
            ds_truth_row(e->op, &a, 0, 1, t);
        for (int64_t j = 0; j < width; j++)
            to[j] = copies ? (double)in->in[0][j] : t[j].value;
    }
    free(t);
    free((void *)rank);
    return rc;
}

/* One unit of the last place of the stored format at v. */
static double unit_at(int dtype, double v)
{
    const double f32 = ds_truth_ulp(v);
    return dtype == DS_BF16 ? f32 * 0x1p16 : dtype == DS_F16 ? f32 * 0x1p13 : f32;
}

void ds_explain_accuracy(const struct ds_explain *e, const double *exact,
                         struct ds_explain_accuracy *out)
{
    const int64_t width = ds_explain_width(e->op, &e->shared);
    memset(out, 0, sizeof *out);
    for (size_t r = 0; r < e->n_rows; r++)
        for (int64_t j = 0; j < width; j++) {
            const double want = exact[(int64_t)r * width + j],
                         unit = unit_at(e->side[DS_SIDE_A].dtype, want);
            double off[DS_SIDES];
            for (int s = 0; s < DS_SIDES; s++)
                off[s] = fabs((double)e->rows[r].y[s][j] - want) / unit;
            if (!isfinite(off[DS_SIDE_A]) || !isfinite(off[DS_SIDE_B]))
                continue;
            out->elements++;
            for (int s = 0; s < DS_SIDES; s++) {
                out->mean_ulp[s] += off[s];
                out->max_ulp[s] = off[s] > out->max_ulp[s] ? off[s] : out->max_ulp[s];
            }
            if (ds_f32_bits(e->rows[r].y[DS_SIDE_A][j]) == ds_f32_bits(e->rows[r].y[DS_SIDE_B][j]))
                continue;
            out->nearer[DS_SIDE_A] += off[DS_SIDE_A] < off[DS_SIDE_B];
            out->nearer[DS_SIDE_B] += off[DS_SIDE_B] < off[DS_SIDE_A];
            out->even += off[DS_SIDE_A] == off[DS_SIDE_B];
        }
    for (int s = 0; s < DS_SIDES && out->elements; s++)
        out->mean_ulp[s] /= (double)out->elements;
}
