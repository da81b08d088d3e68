/* explain_model.c: what other orders of addition and other formats of the inputs make of given rows:
 * measured on these very inputs, since bounds (gamma_K) contain every effect of TF32 and prove
 * nothing. explain_formula.c evaluates; this samples, and measures distances. */
#include "kernels/lab/explain_formula.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/truth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENTS = 4096 };
static const double MOST_WORK = 2e6; /* multiply-adds of one evaluation */

struct stats {
    struct ds_formula m;
    const double *exact;
    int64_t step; /* every step-th column */
    double *row;
    size_t n;              /* elements */
    double *want, *got;    /* [n] */
    float *side[DS_SIDES]; /* [n] */
    double *order_off;     /* [n] the most that an order was off */
    double *most_off;      /* [n] the most that anything was off */
    double *off;           /* [n] room to sort in */
    float *orders;         /* [DS_EXPLAIN_ORDERS][n] */
};

static int64_t terms_of(const struct ds_explain *e)
{
    const union ds_any_args *s = &e->shared;
    switch (e->op) {
    case DS_OP_MATMUL:
        return s->matmul.k;
    case DS_OP_COMBINE:
        return s->combine.top_k;
    case DS_OP_ALLREDUCE:
        return s->allreduce.ranks;
    case DS_OP_RMSNORM:
    case DS_OP_SOFTMAX:
        return ds_explain_width_in(e->op, s, 0);
    case DS_OP_ROUTER:
        return s->router.experts;
    case DS_OP_ATTENTION:
        return e->rows[0].input[DS_SIDE_A].slot + 1 - e->rows[0].input[DS_SIDE_A].kv_first;
    case DS_OP_ROPE:
        return 2;
    default:
        return 0;
    }
}

/* Multiply-adds of one element, and whether single columns can be left out. */
static double work_of(const struct ds_explain *e, int64_t terms)
{
    return e->op == DS_OP_ATTENTION ? 2.0 * (double)terms : terms > 0 ? (double)terms : 1.0;
}

static int64_t largest_room(const struct ds_explain *e)
{
    int64_t most = ds_explain_width(e->op, &e->shared), n;
    for (int i = 0; i < 2; i++)
        most = (n = ds_explain_width_in(e->op, &e->shared, i)) > most ? n : most;
    for (size_t r = 0; r < e->n_rows && e->op == DS_OP_ATTENTION; r++)
        most = (n = e->rows[r].input[DS_SIDE_A].slot + 1) > most ? n : most;
    n = terms_of(e);
    return n > most ? n : most;
}

static void evaluate(struct stats *t, const struct ds_formula_spec *s)
{
    const struct ds_explain *e = t->m.e;
    const int dtype = e->side[DS_SIDE_A].dtype;
    size_t at = 0;
    t->m.n_turn = -1;
    for (size_t r = 0; r < e->n_rows; r++) {
        ds_formula_row(&t->m, s, &e->rows[r].input[DS_SIDE_A], t->step, t->row);
        for (int64_t c = 0; c < t->m.width; c += t->step) {
            double v = t->row[c];
            if (!s->in_double)
                v = dtype == DS_BF16  ? (double)ds_bf16_value(ds_bf16_round((float)v))
                    : dtype == DS_F16 ? (double)ds_f16_value(ds_f16_round((float)v))
                                      : v;
            t->got[at++] = v;
        }
    }
}

/* Root of the mean square of a[i] - b[i], where both are finite. */
static double rms(const double *a, const double *b, size_t n)
{
    double sum = 0;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = a[i] - (b ? b[i] : 0);
        if (!isfinite(d))
            continue;
        sum += d * d;
        used++;
    }
    return used ? sqrt(sum / (double)used) : 0;
}

static double rms_side(const float *a, const double *b, size_t n)
{
    double sum = 0;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - b[i];
        if (!isfinite(d))
            continue;
        sum += d * d;
        used++;
    }
    return used ? sqrt(sum / (double)used) : 0;
}

static double rms_floats(const float *a, const float *b, size_t n)
{
    double sum = 0;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        if (!isfinite(d))
            continue;
        sum += d * d;
        used++;
    }
    return used ? sqrt(sum / (double)used) : 0;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct ds_explain_range range_of(double *v, size_t n)
{
    qsort(v, n, sizeof *v, compare_doubles);
    return n ? (struct ds_explain_range){v[0], v[n / 2], v[n - 1]} : (struct ds_explain_range){0};
}

/* The most that element i was off the exact value, in one of several evaluations. */
static void note_off(const struct stats *t, double *most)
{
    for (size_t i = 0; i < t->n; i++) {
        const double d = fabs(t->got[i] - t->want[i]);
        if (d > most[i])
            most[i] = d;
    }
}

static void run_orders(struct stats *t, struct ds_explain_noise *out)
{
    double error[DS_EXPLAIN_ORDERS], pair[DS_EXPLAIN_ORDERS * DS_EXPLAIN_ORDERS / 2];
    size_t pairs = 0;
    for (int o = 0; o < DS_EXPLAIN_ORDERS; o++) {
        const struct ds_formula_spec s = ds_formula_order(o, -1);
        evaluate(t, &s);
        error[o] = rms(t->got, t->want, t->n);
        note_off(t, t->order_off);
        float *keep = t->orders + (size_t)o * t->n;
        for (size_t i = 0; i < t->n; i++)
            keep[i] = (float)t->got[i];
        for (int p = 0; p < o; p++)
            pair[pairs++] = rms_floats(keep, t->orders + (size_t)p * t->n, t->n);
    }
    out->order_error = range_of(error, DS_EXPLAIN_ORDERS);
    out->order_difference = range_of(pair, pairs);
    memcpy(t->most_off, t->order_off, t->n * sizeof *t->most_off);
    for (int f = DS_FORMAT_INPUTS; f < DS_FORMAT_COUNT && out->terms > 2; f++) {
        for (int o = 0; o < 8; o++) {
            const struct ds_formula_spec s = ds_formula_order(o, f);
            evaluate(t, &s);
            error[o] = rms(t->got, t->want, t->n);
            note_off(t, t->most_off);
        }
        out->sums_error[f - DS_FORMAT_INPUTS] = range_of(error, 8);
    }
}

/* Of formats with one scale for all weights; 0: the op has no weights. */
static float largest_weight(const struct ds_explain *e)
{
    const struct ds_matmul_args *a = &e->shared.matmul;
    float most = 0;
    for (int64_t i = 0; e->op == DS_OP_MATMUL && i < a->n * a->k; i++)
        most = fmaxf(most, fabsf(a->w.data[i]));
    return isfinite(most) ? most : 0;
}

/* How far off the elements are in t->got, or those of a side: sorted into t->off. */
static struct ds_explain_range spread(const struct stats *t, const float *side)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        const double d = fabs((side ? (double)side[i] : t->got[i]) - t->want[i]);
        if (isfinite(d))
            t->off[n++] = d;
    }
    return range_of(t->off, n);
}

static void run_format(struct stats *t, const struct ds_formula_spec *s,
                       struct ds_explain_noise *out)
{
    struct ds_explain_rounded *r = &out->rounded[out->n_rounded];
    evaluate(t, s);
    *r = (struct ds_explain_rounded){
        .format = s->format, .which = s->which, .shift = rms(t->got, t->want, t->n)};
    if (!(r->shift > 0))
        return; /* the op has no such input, or it holds such numbers only */
    for (int side = 0; side < DS_SIDES; side++)
        r->rest[side] = rms_side(t->side[side], t->got, t->n);
    const struct ds_explain_range off = spread(t, NULL);
    r->middle = off.median;
    r->most = off.most;
    if (s->format < DS_FORMAT_Q4) /* so coarse ones count only where a side is: see `tail` */
        note_off(t, t->most_off);
    out->n_rounded++;
}

static void run_formats(struct stats *t, struct ds_explain_noise *out)
{
    const float largest = largest_weight(t->m.e);
    for (int f = 0; f < DS_FORMAT_INPUTS; f++)
        for (int which = 1; which <= 3; which++) {
            const int by_tensor = ds_format_by_tensor(f);
            const struct ds_formula_spec s = {.in_double = 1,
                                              .format = f,
                                              .which = which,
                                              .largest = by_tensor ? largest : 0,
                                              .sums = -1};
            if (!by_tensor || (largest > 0 && which != 1))
                run_format(t, &s, out);
        }
}

/* Twice the most that an element is off in any of the formats whose typical element is as far off as
 * this side's; 0: there is none. By medians: a few elements far off choose no wider format. */
static double tail(const struct stats *t, int side, const struct ds_explain_noise *noise)
{
    const double middle = spread(t, t->side[side]).median;
    double most = 0;
    for (size_t i = 0; i < noise->n_rounded; i++) {
        const struct ds_explain_rounded *r = &noise->rounded[i];
        if (r->middle >= middle / 3 && r->middle <= 2 * middle)
            most = fmax(most, 2 * r->most);
    }
    return most;
}

/* Multiples of what the orders gave, element by element. */
static void look_at_elements(struct stats *t, int side, struct ds_explain_noise *out)
{
    const double most = tail(t, side, out);
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        const double off = fabs((double)t->side[side][i] - t->want[i]),
                     unit = fmax(fmax(t->order_off[i], out->order_error.median),
                                 ds_truth_ulp(t->want[i]) / 2);
        if (!isfinite((double)t->side[side][i]) && isfinite(t->want[i]))
            out->nonfinite[side]++;
        if (!isfinite(off) || !(unit > 0))
            continue;
        out->outside[side] += off > 16 * unit;
        out->beyond[side] += off > fmax(8 * fmax(t->most_off[i], unit), most);
        t->got[n++] = off / unit;
    }
    out->typical[side] = range_of(t->got, n).median;
}

/* Each row's elements are the exact ones times one factor: that of its largest element, held by the
 * others, and it leaves over a quarter of the error at most. Of the rows' factors the one farthest
 * from 1; 0: it is not so. */
static double ratio_of(const struct stats *t, int side, const struct ds_explain_noise *noise)
{
    const size_t rows = t->m.e->n_rows, n = t->n / rows;
    double worst = 1, left = 0;
    for (size_t r = 0; r < rows; r++) {
        const double *want = t->want + r * n;
        const float *got = t->side[side] + r * n;
        double ratio = 0, most = 0;
        for (size_t i = 0; i < n; i++)
            if (fabs(want[i]) > most) {
                most = fabs(want[i]);
                ratio = (double)got[i] / want[i];
            }
        for (size_t i = 0; i < n; i++) {
            const double d = fabs((double)got[i] - ratio * want[i]);
            if (!(d <= 8 * noise->order_error.most + fabs(want[i]) * 0x1p-20))
                return 0;
            left += d * d;
        }
        if (fabs(ratio - 1) > fabs(worst - 1))
            worst = ratio;
    }
    left = sqrt(left / (double)t->n);
    return n > 2 && isfinite(worst) && worst != 1 && 4 * left <= noise->error[side] ? worst : 0;
}

static void gamma_share(const struct stats *t, struct ds_explain_noise *out)
{
    const struct ds_explain *e = t->m.e;
    const double u = 0x1p-24, k = (double)out->terms, gamma = k * u / (1 - k * u);
    size_t at = 0;
    for (size_t r = 0; r < e->n_rows && e->op == DS_OP_MATMUL; r++)
        for (int64_t c = 0; c < t->m.width; c += t->step, at++) {
            const float *x = e->rows[r].input[DS_SIDE_A].in[0],
                        *w = e->shared.matmul.w.data + c * e->shared.matmul.k;
            double size = 0;
            for (int64_t i = 0; i < e->shared.matmul.k; i++)
                size += fabs((double)x[i] * (double)w[i]);
            for (int s = 0; s < DS_SIDES && size > 0; s++)
                out->gamma[s] = fmax(out->gamma[s],
                                     fabs((double)t->side[s][at] - t->want[at]) / (gamma * size));
        }
}

static int setup(struct stats *t, const struct ds_explain *e, struct ds_error *err)
{
    const size_t room = (size_t)largest_room(e);
    const double all = (double)e->n_rows * (double)t->m.width;
    const double most = fmin(MOST_ELEMENTS, MOST_WORK / work_of(e, terms_of(e)));
    t->step = all > most ? (int64_t)(all / most) + 1 : 1;
    if (t->step > t->m.width)
        t->step = t->m.width;
    if (t->step % 2 == 0 && t->step < t->m.width)
        t->step++; /* columns of all kinds, not those of one lane */
    t->n = e->n_rows * (size_t)((t->m.width + t->step - 1) / t->step);
    float **floats[] = {&t->m.x, &t->m.w, &t->m.p, &t->m.one, &t->m.column};
    int ok = 1;
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
        ok &= (*floats[i] = ds_alloc_aligned(room, sizeof(float), "the model", err)) != NULL;
    double **doubles[] = {&t->want, &t->got, &t->order_off, &t->most_off, &t->off};
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++)
        ok &= (*doubles[i] = ds_calloc(t->n, sizeof(double), "the model", err)) != NULL;
    for (int s = 0; s < DS_SIDES; s++)
        ok &= (t->side[s] = ds_calloc(t->n, sizeof(float), "the model", err)) != NULL;
    ok &= (t->row = ds_calloc((size_t)t->m.width, sizeof *t->row, "the model", err)) != NULL;
    ok &= (t->m.pd = ds_calloc(room, sizeof *t->m.pd, "the model", err)) != NULL;
    ok &= (t->m.turn = ds_calloc(room, sizeof *t->m.turn, "the model", err)) != NULL;
    ok &= (t->orders = ds_calloc(t->n * DS_EXPLAIN_ORDERS, sizeof *t->orders, "the model", err)) !=
          NULL;
    for (size_t i = 0; i < room && t->m.one; i++)
        t->m.one[i] = 1.0f;
    return ok ? 0 : -1;
}

static void release(struct stats *t)
{
    void *all[] = {
        t->m.x,  t->m.w,    t->m.p,       t->m.one,    t->m.column,        t->want,
        t->got,  t->row,    t->order_off, t->most_off, t->side[DS_SIDE_A], t->side[DS_SIDE_B],
        t->m.pd, t->m.turn, t->orders,    t->off};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void take_sides(struct stats *t)
{
    const struct ds_explain *e = t->m.e;
    size_t at = 0;
    for (size_t r = 0; r < e->n_rows; r++)
        for (int64_t c = 0; c < t->m.width; c += t->step, at++) {
            t->want[at] = t->exact[(int64_t)r * t->m.width + c];
            for (int s = 0; s < DS_SIDES; s++)
                t->side[s][at] = e->rows[r].y[s][c];
        }
}

int ds_explain_noise(const struct ds_explain *e, const double *exact, struct ds_explain_noise *out,
                     struct ds_error *err)
{
    struct stats t = {.m = {.e = e, .width = ds_explain_width(e->op, &e->shared)}, .exact = exact};
    memset(out, 0, sizeof *out);
    if (setup(&t, e, err) != 0) {
        release(&t);
        return -1;
    }
    take_sides(&t);
    out->terms = terms_of(e);
    out->elements = t.n;
    out->size = rms(t.want, NULL, t.n);
    for (int s = 0; s < DS_SIDES; s++)
        out->error[s] = rms_side(t.side[s], t.want, t.n);
    out->difference = rms_floats(t.side[DS_SIDE_B], t.side[DS_SIDE_A], t.n);
    run_orders(&t, out);
    run_formats(&t, out);
    for (int s = 0; s < DS_SIDES; s++) {
        look_at_elements(&t, s, out);
        out->ratio[s] = ratio_of(&t, s, out);
    }
    gamma_share(&t, out);
    release(&t);
    int rc = 0;
    for (int s = 0; s < DS_SIDES && rc == 0; s++)
        if (out->error[s] > 2 * out->order_error.most || out->outside[s])
            rc = ds_explain_data(e, exact, s, out->order_error.most, &out->guess[s], err);
    for (int s = 0; s < DS_SIDES && ds_explain_copies(e->op); s++)
        ds_explain_copied(e, s, &out->copy[s]);
    for (int s = 0; s < DS_SIDES; s++)
        ds_explain_blocks(e, s, &out->block_bits[s], &out->block_size[s]);
    return rc;
}
