/* explain_choice.c: choices again, from the logits that each side read: the largest, by a rule of how the
 * logits are rounded first and which index wins a tie. Pure; knows no kernel. */
#include "kernels/lab/explain_formula.h"

#include "base/choice.h"
#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How logits are seen. */
enum { AS_READ, IN_TF32, IN_BF16, IN_F16, SHARES_BF16, SHARES_F16, SIGHTS };
_Static_assert(DS_CHOICE_RULES == 2 * SIGHTS, "every sight with both ties");

void ds_explain_rule_text(int rule, int64_t n, char *text, size_t size)
{
    static const char *const sight[SIGHTS] = {"of the logits",
                                              "of the logits rounded to TF32",
                                              "of the logits rounded to bf16",
                                              "of the logits rounded to f16",
                                              "of their softmax rounded to bf16",
                                              "of their softmax rounded to f16"};
    char most[32] = "the largest";
    if (rule < 0 || rule >= DS_CHOICE_RULES) {
        snprintf(text, size, "no rule");
        return;
    }
    if (n > 1)
        snprintf(most, sizeof most, "the %lld largest", (long long)n);
    snprintf(text, size, "%s %s%s", most, sight[rule / 2],
             rule % 2 ? ", the highest index where they tie" : "");
}

/* The row's logits as a rule sees them. */
static void see(int sight, const float *x, int64_t n, float *out)
{
    double sum = 0, max = -INFINITY;
    if (sight < SHARES_BF16) {
        const int format[] = {-1, DS_FORMAT_TF32, DS_FORMAT_BF16, DS_FORMAT_F16};
        if (sight == AS_READ)
            memcpy(out, x, (size_t)n * sizeof *out);
        else
            ds_format_factors(format[sight], 0, out, x, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        max = (double)x[i] > max ? (double)x[i] : max;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    for (int64_t i = 0; i < n; i++) {
        const float p = (float)(exp((double)x[i] - max) / sum);
        out[i] =
            sight == SHARES_BF16 ? ds_bf16_value(ds_bf16_round(p)) : ds_f16_value(ds_f16_round(p));
    }
}

/* Whether index i comes before j: larger, NaN last; of equals the lower index, or the higher one. */
static int before(const float *v, int64_t i, int64_t j, int highest)
{
    const int i_nan = isnan(v[i]), j_nan = isnan(v[j]);
    if (i_nan != j_nan)
        return j_nan;
    if (!i_nan && v[i] != v[j])
        return v[i] > v[j];
    return highest ? i > j : i < j;
}

static void choose(const float *v, int64_t n, int64_t top, int highest, int32_t *ids)
{
    for (int64_t k = 0; k < top; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++)
            if ((k == 0 || before(v, ids[k - 1], i, highest)) &&
                (best < 0 || before(v, i, best, highest)))
                best = i;
        ids[k] = (int32_t)best;
    }
}

static int32_t id_of(const struct ds_explain_row *r, int side, int64_t k)
{
    return (int32_t)ds_f32_bits(r->y[side][k]);
}

/* The first ids of a row in which both sides differ, and how they stand to each other in A's logits. */
static void look_at_row(const struct ds_explain *e, size_t row, int64_t n, int64_t top,
                        struct ds_explain_choice *out)
{
    const struct ds_explain_row *r = &e->rows[row];
    const float *x = r->input[DS_SIDE_A].in[0];
    for (int64_t k = 0; k < top; k++) {
        const int32_t a = id_of(r, DS_SIDE_A, k), b = id_of(r, DS_SIDE_B, k);
        if (a == b)
            continue;
        out->differing++;
        if (a < 0 || b < 0 || a >= n || b >= n)
            return;
        out->tied += x[a] == x[b];
        if (out->differing > 1)
            return;
        out->row = row;
        out->a = a;
        out->b = b;
        out->margin = (double)x[a] - (double)x[b];
        return;
    }
}

/* Whether a row's choices are of the same values as those of the first rule. */
static int by_value(const struct ds_explain_row *r, int side, const int32_t *ids, int64_t n,
                    int64_t top)
{
    const float *x = r->input[side].in[0];
    for (int64_t k = 0; k < top; k++) {
        const int32_t id = id_of(r, side, k);
        if (id < 0 || id >= n || x[id] != x[ids[k]])
            return 0;
    }
    return 1;
}

/* Rows of both sides that each rule gives. */
static void count_rules(const struct ds_explain *e, int64_t n, int64_t top, float *seen,
                        int32_t *ids, struct ds_explain_choice *out)
{
    for (size_t r = 0; r < e->n_rows; r++)
        for (int s = 0; s < DS_SIDES; s++)
            for (int rule = 0; rule < DS_CHOICE_RULES; rule++) {
                int same = 1;
                if (rule % 2 == 0)
                    see(rule / 2, e->rows[r].input[s].in[0], n, seen);
                choose(seen, n, top, rule % 2, ids);
                if (rule == 0)
                    out->by_value[s] += (uint64_t)by_value(&e->rows[r], s, ids, n, top);
                for (int64_t k = 0; k < top && same; k++)
                    same = id_of(&e->rows[r], s, k) == ids[k];
                out->given[s][rule] += (uint64_t)same;
            }
}

/* Sides whose choices no rule gives: whether they are the largest of a part of the logits. */
static int look_for_parts(const struct ds_explain *e, int64_t n, int64_t top,
                          struct ds_explain_choice *out, struct ds_error *err)
{
    struct ds_choice_row *rows = ds_calloc(e->n_rows, sizeof *rows, "choices", err);
    int32_t *ids = ds_calloc(e->n_rows * (size_t)top, sizeof *ids, "choices", err);
    uint8_t *used = ds_calloc((size_t)n, 1, "choices", err);
    const int rc = rows && ids && used ? 0 : -1;
    for (int s = 0; s < DS_SIDES && rc == 0; s++) {
        for (size_t r = 0; r < e->n_rows; r++) {
            for (int64_t k = 0; k < top; k++)
                ids[(int64_t)r * top + k] = id_of(&e->rows[r], s, k);
            rows[r] = (struct ds_choice_row){e->rows[r].input[s].in[0], ids + (int64_t)r * top};
        }
        if (out->rule[s] < 0)
            ds_choice_part(rows, e->n_rows, n, top, e->op == DS_OP_ROUTER ? "experts" : "tokens",
                           used, out->part[s]);
    }
    free(rows);
    free(ids);
    free(used);
    return rc;
}

int ds_explain_choose(const struct ds_explain *e, struct ds_explain_choice *out,
                      struct ds_error *err)
{
    const int64_t n = ds_explain_width_in(e->op, &e->shared, 0),
                  top = ds_explain_width(e->op, &e->shared);
    memset(out, 0, sizeof *out);
    if (top > n)
        return ds_fail(err, "%lld choices among %lld logits", (long long)top, (long long)n);
    float *seen = ds_alloc_aligned((size_t)n, sizeof *seen, "logits", err);
    int32_t *ids = ds_calloc((size_t)top, sizeof *ids, "choices", err);
    int rc = seen && ids ? 0 : -1;
    if (rc == 0)
        count_rules(e, n, top, seen, ids, out);
    out->rows = e->n_rows;
    for (size_t r = 0; r < e->n_rows && rc == 0; r++)
        look_at_row(e, r, n, top, out);
    for (int s = 0; s < DS_SIDES; s++) {
        out->rule[s] = -1;
        for (int rule = DS_CHOICE_RULES - 1; rule >= 0; rule--)
            if (out->given[s][rule] == out->rows)
                out->rule[s] = rule;
    }
    rc = rc ? rc : look_for_parts(e, n, top, out, err);
    free(seen);
    free(ids);
    return rc;
}

/* The choice of sides whose logits differ: each by one rule, or not. */
static void judge_unlike(const struct ds_explain_choice *c, int64_t top,
                         struct ds_explain_verdict *v)
{
    char rule[96] = "";
    if (c->rule[DS_SIDE_A] < 0 || c->rule[DS_SIDE_A] != c->rule[DS_SIDE_B])
        return;
    ds_explain_rule_text(c->rule[DS_SIDE_A], top, rule, sizeof rule);
    snprintf(v->why, sizeof v->why, "each side chose %s, and its logits are others", rule);
}

void ds_explain_judge_choice(const struct ds_explain *e, const struct ds_explain_choice *c,
                             int inputs_equal, struct ds_explain_verdict *v)
{
    const int64_t top = ds_explain_width(e->op, &e->shared);
    char a[96], b[96], tie[96] = "";
    *v = (struct ds_explain_verdict){.side = -1};
    if (!inputs_equal) {
        judge_unlike(c, top, v);
        return;
    }
    v->kind = DS_EXPLAIN_SELECTION_ONLY;
    if (c->tied)
        snprintf(tie, sizeof tie, "; %llu of %llu rows exchange ids whose logits are equal",
                 (unsigned long long)c->tied, (unsigned long long)c->differing);
    else if (c->differing)
        snprintf(tie, sizeof tie, "; %d instead of %d, margin %.9g", c->b, c->a, c->margin);
    for (int s = 0; s < DS_SIDES; s++)
        if (c->rule[s] < 0) {
            v->side = s;
            if (c->by_value[s] == c->rows) {
                v->basis = DS_BASIS_BITS;
                snprintf(v->why, sizeof v->why,
                         "from equal logits %c chose the largest, of equal ones now the lowest "
                         "index, now "
                         "another%s",
                         s ? 'B' : 'A', tie);
                return;
            }
            v->basis = DS_BASIS_FIT;
            if (c->part[s][0]) {
                snprintf(v->why, sizeof v->why, "from equal logits %c chose %s%s", s ? 'B' : 'A',
                         c->part[s], tie);
                return;
            }
            snprintf(
                v->why, sizeof v->why,
                "from equal logits %c chose what no rule gives: neither the largest nor those of "
                "rounded logits, with ties either way%s",
                s ? 'B' : 'A', tie);
            return;
        }
    ds_explain_rule_text(c->rule[DS_SIDE_A], top, a, sizeof a);
    ds_explain_rule_text(c->rule[DS_SIDE_B], top, b, sizeof b);
    v->basis = DS_BASIS_BITS;
    v->side = c->rule[DS_SIDE_A] < c->rule[DS_SIDE_B] ? DS_SIDE_B : DS_SIDE_A;
    snprintf(v->why, sizeof v->why, "from equal logits A chose %s, B %s%s", a, b, tie);
}
