/* explain_judge.c: from what was measured to one claim, or none. Pure. A claim needs its evidence: bits
 * that a replay gives, or sizes inside (or far outside) what was measured on these inputs. */
#include "kernels/lab/explain_each.h"

#include "base/dtype.h"
#include "kernels/lab/order_tree.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *ds_explain_kind_name(int kind)
{
    static const char *const names[] = {
        "unknown",    "rounding-order", "lower-precision", "different-algorithm",
        "wrong-data", "non-finite",     "selection-only",  "same-values"};
    return kind >= 0 && kind <= DS_EXPLAIN_SAME_VALUES ? names[kind] : "unknown";
}

static void claim(struct ds_explain_verdict *v, int kind, int basis, int side, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
static void claim(struct ds_explain_verdict *v, int kind, int basis, int side, const char *fmt, ...)
{
    va_list args;
    v->kind = kind;
    v->basis = basis;
    v->side = side;
    v->format = -1;
    va_start(args, fmt);
    vsnprintf(v->why, sizeof v->why, fmt, args);
    va_end(args);
}

static char name(int side)
{
    return side == DS_SIDE_A ? 'A' : 'B';
}

static int reproduced(const struct ds_explain_order *o, int side)
{
    return o->replayed && o->match.same[side] == o->match.elements;
}

/* What a side's trees round to fewer bits than f32; "" for nothing. */
static const char *narrow(const struct ds_explain_order *o)
{
    if (o->ranks && o->rounded != DS_F32)
        return o->rounded == DS_BF16 ? "partial sums of ranks rounded to bf16"
                                     : "partial sums of ranks rounded to f16";
    for (size_t i = 0; i < o->n_trees; i++) {
        const struct ds_tree *t = &o->trees[i].tree;
        if (!o->trees[i].elements)
            continue;
        if (t->inputs != DS_INPUTS_F32)
            return t->inputs == DS_INPUTS_BF16 ? "inputs rounded to bf16"
                                               : "inputs rounded to TF32";
        for (int32_t n = 0; n < t->n; n++)
            if (t->node[n].flags & (DS_TREE_BF16 | DS_TREE_F16))
                return t->node[n].flags & DS_TREE_BF16 ? "sums rounded to bf16"
                                                       : "sums rounded to f16";
    }
    return "";
}

/* The format of that, as far as formats have a name. */
static int narrow_format(const struct ds_explain_order *o)
{
    const char *text = narrow(o);
    const int sums = strstr(text, "sums") != NULL;
    return strstr(text, "TF32")   ? DS_FORMAT_TF32
           : strstr(text, "bf16") ? (sums ? DS_FORMAT_BF16_SUMS : DS_FORMAT_BF16)
           : sums                 ? DS_FORMAT_F16_SUMS
                                  : -1;
}

/* As near to the exact result as f32 in some order is. */
static int is_f32(const struct ds_explain_noise *n, int side)
{
    return n->error[side] <= 2 * n->order_error.most && n->outside[side] == 0;
}

const struct ds_explain_rounded *ds_explain_format_of(const struct ds_explain_noise *n, int side)
{
    const struct ds_explain_rounded *best = NULL;
    for (size_t i = 0; i < n->n_rounded; i++)
        if (!best || n->rounded[i].rest[side] < best->rest[side])
            best = &n->rounded[i];
    if (!best || !(n->error[side] >= 4 * n->order_error.most) ||
        !(best->rest[side] <= fmax(2 * n->order_error.most, n->error[side] / 64)))
        return NULL;
    return best;
}

/* What a format was tried on: inputs 1 and 2 of the op, or both. */
static const char *which_text(int op, int which)
{
    enum { OF_PRODUCTS, OF_TWO, OF_ATTENTION, OF_SHARES, OF_ROWS, KINDS };
    static const char *const text[KINDS][3] = {
        [OF_PRODUCTS] = {"x", "the weights", "x and weights"},
        [OF_TWO] = {"the first input", "the second input", "both inputs"},
        [OF_ATTENTION] = {"q and probabilities", "keys and values", "all inputs"},
        [OF_SHARES] = {"the ranks' shares", "the ranks' shares", "the ranks' shares"},
        [OF_ROWS] = {"the factors", "the rows that are added", "rows and factors"}};
    const int kind = op == DS_OP_ADD || op == DS_OP_SILU_MUL ? OF_TWO
                     : op == DS_OP_ATTENTION                 ? OF_ATTENTION
                     : op == DS_OP_ALLREDUCE                 ? OF_SHARES
                     : op == DS_OP_COMBINE                   ? OF_ROWS
                                                             : OF_PRODUCTS;
    return text[kind][which - 1];
}

/* The name of a format; of f16 with it where that leaves as little: within its range it is TF32. */
static const char *format_text(const struct ds_explain_noise *n, const struct ds_explain_rounded *f,
                               int side)
{
    for (size_t i = 0; i < n->n_rounded && f->format == DS_FORMAT_TF32; i++)
        if (n->rounded[i].format == DS_FORMAT_F16 && n->rounded[i].which == f->which &&
            n->rounded[i].rest[side] <= f->rest[side])
            return "TF32 or f16";
    return ds_explain_format_name(f->format);
}

/* Whether both sides use the same trees. */
static int add_alike(const struct ds_explain_order *order)
{
    for (int s = 0; s < DS_SIDES; s++)
        for (size_t i = 0; i < order[s].n_trees; i++) {
            const struct ds_explain_order *o = &order[DS_SIDE_A + DS_SIDE_B - s];
            size_t j = 0;
            while (j < o->n_trees && (o->trees[j].tree.digest != order[s].trees[i].tree.digest ||
                                      !o->trees[j].elements))
                j++;
            if (order[s].trees[i].elements && j == o->n_trees)
                return 0;
        }
    return 1;
}

/* Every bit of both norms comes out: by another formula behind the same sum, or with a rounding that
 * the other side does not make there. */
static int judge_norm_forms(const struct ds_explain *e, const struct ds_explain_order *order,
                            struct ds_explain_verdict *v)
{
    const int form[DS_SIDES] = {order[DS_SIDE_A].form, order[DS_SIDE_B].form},
              cast[DS_SIDES] = {form[DS_SIDE_A] >= DS_NORM_FORMS, form[DS_SIDE_B] >= DS_NORM_FORMS};
    if (e->op != DS_OP_RMSNORM || form[DS_SIDE_A] == form[DS_SIDE_B] ||
        (cast[DS_SIDE_A] == cast[DS_SIDE_B] && !add_alike(order)))
        return 0;
    claim(v, DS_EXPLAIN_DIFFERENT_ALGORITHM, DS_BASIS_BITS,
          cast[DS_SIDE_A] == cast[DS_SIDE_B] ? -1
          : cast[DS_SIDE_A]                  ? DS_SIDE_A
                                             : DS_SIDE_B,
          "every bit of both sides comes out when %s, and A is %s, B %s",
          add_alike(order) ? "both add alike" : "each adds in its measured order",
          ds_norm_form_text(form[DS_SIDE_A]), ds_norm_form_text(form[DS_SIDE_B]));
    return 1;
}

/* The same of softmax and attention: the way from scores to outputs. */
static int judge_weigh_forms(const struct ds_explain *e, const struct ds_explain_order *order,
                             struct ds_explain_verdict *v)
{
    char a[160], b[160];
    if (!ds_explain_weighs(e->op) || order[DS_SIDE_A].form == order[DS_SIDE_B].form)
        return 0;
    ds_weigh_form_text(order[DS_SIDE_A].form, a, sizeof a);
    ds_weigh_form_text(order[DS_SIDE_B].form, b, sizeof b);
    if (add_alike(order))
        claim(v, DS_EXPLAIN_DIFFERENT_ALGORITHM, DS_BASIS_BITS, -1,
              "every bit of both sides comes out when both add alike, A with %s, B with %s", a, b);
    else
        claim(
            v, DS_EXPLAIN_ROUNDING_ORDER, DS_BASIS_BITS, -1,
            "the measured orders, in f32 on the same inputs, give every bit of both sides, A with "
            "%s, B with %s",
            a, b);
    return 1;
}

/* Elements that stand alone: computed in two ways, one of which may keep something in fewer bits. */
static int judge_each(const struct ds_explain *e, const struct ds_explain_order *order,
                      struct ds_explain_verdict *v)
{
    char way[DS_SIDES][128];
    int shorter = -1;
    if (order[DS_SIDE_A].form == order[DS_SIDE_B].form)
        return 0;
    for (int s = 0; s < DS_SIDES; s++) {
        ds_each_text(e->op, order[s].form, way[s], sizeof way[s]);
        if (e->side[s].dtype == DS_F32 && ds_each_cast(order[s].form) != DS_F32)
            shorter = s;
    }
    claim(v, shorter < 0 ? DS_EXPLAIN_DIFFERENT_ALGORITHM : DS_EXPLAIN_LOWER_PRECISION,
          DS_BASIS_BITS, shorter, "every bit of both sides comes out when A is %s, B %s",
          way[DS_SIDE_A], way[DS_SIDE_B]);
    return 1;
}

static int judge_trees(const struct ds_explain *e, const struct ds_explain_order *order,
                       struct ds_explain_verdict *v)
{
    for (int s = 0; s < DS_SIDES; s++)
        if (!reproduced(&order[s], s))
            return 0;
    if (ds_explain_stands_alone(e->op))
        return judge_each(e, order, v);
    if (judge_norm_forms(e, order, v) || judge_weigh_forms(e, order, v))
        return 1;
    if (narrow(&order[DS_SIDE_A])[0] && narrow(&order[DS_SIDE_B])[0] &&
        strcmp(narrow(&order[DS_SIDE_A]), narrow(&order[DS_SIDE_B])) != 0) {
        claim(v, DS_EXPLAIN_LOWER_PRECISION, DS_BASIS_BITS, -1,
              "the measured orders give every bit of both sides, and A's has %s, B's has %s",
              narrow(&order[DS_SIDE_A]), narrow(&order[DS_SIDE_B]));
        return 1; /* the size of the difference is that of no one format */
    }
    for (int s = 0; s < DS_SIDES; s++)
        if (narrow(&order[s])[0]) {
            claim(v, DS_EXPLAIN_LOWER_PRECISION, DS_BASIS_BITS, s,
                  "the measured orders give every bit of both sides, and %c's has %s", name(s),
                  narrow(&order[s]));
            v->format = narrow_format(&order[s]);
            return 1;
        }
    claim(v, DS_EXPLAIN_ROUNDING_ORDER, DS_BASIS_BITS, -1,
          "the measured orders, in f32 on the same inputs, give every bit of both sides");
    return 1;
}

static int judge_formats(int op, const struct ds_explain_noise *n, struct ds_explain_verdict *v)
{
    for (int s = DS_SIDE_B; s >= DS_SIDE_A; s--) {
        const struct ds_explain_rounded *f = ds_explain_format_of(n, s);
        if (!f || !is_f32(n, DS_SIDE_A + DS_SIDE_B - s))
            continue;
        claim(v, DS_EXPLAIN_LOWER_PRECISION, DS_BASIS_FIT, s,
              "%c is %.3g off the exact result, and %.3g off the one with %s in %s; f32 orders are "
              "up to %.3g off",
              name(s), n->error[s], f->rest[s], which_text(op, f->which), format_text(n, f, s),
              n->order_error.most);
        v->format = f->format;
        return 1;
    }
    return 0;
}

/* One side handed its rows on, the other did not: zeros in their place, or rounded ones. */
static int judge_copy(const struct ds_explain *e, const struct ds_explain_noise *n,
                      struct ds_explain_verdict *v)
{
    for (int s = DS_SIDE_B; s >= DS_SIDE_A && ds_explain_copies(e->op); s--) {
        const struct ds_explain_copy *c = &n->copy[s];
        char text[160];
        if (!c->others || n->copy[DS_SIDE_A + DS_SIDE_B - s].others)
            continue;
        const int zeros = c->zeros == c->others,
                  rounded = c->bf16 == c->others || c->f16 == c->others;
        if (!zeros && !rounded)
            continue;
        ds_explain_copy_text(e, c, text, sizeof text);
        claim(v, zeros ? DS_EXPLAIN_WRONG_DATA : DS_EXPLAIN_LOWER_PRECISION, DS_BASIS_FIT, s,
              "of %c %s", name(s), text);
        return 1;
    }
    return 0;
}

/* A copy into a format of blocks. */
static int judge_blocks(const struct ds_explain_noise *n, struct ds_explain_verdict *v)
{
    for (int s = DS_SIDE_B; s >= DS_SIDE_A; s--) {
        if (!n->block_bits[s] || n->block_bits[DS_SIDE_A + DS_SIDE_B - s] == n->block_bits[s])
            continue;
        claim(
            v, DS_EXPLAIN_LOWER_PRECISION, DS_BASIS_FIT, s,
            "every value of %c is a whole number of steps of its block's scale, %d bits in blocks "
            "of %d, and within a step of what was read",
            name(s), n->block_bits[s], n->block_size[s]);
        return 1;
    }
    return 0;
}

/* Partial sums in a format of so few bits show beside f32 orders: by far, or where the results are
 * stored in 16 bits, so that every order is off by that, because orders alone change hardly any. */
static int sums_show(const struct ds_explain *e, const struct ds_explain_noise *n,
                     const struct ds_explain_range *r, int side)
{
    if (r->least > 8 * n->order_error.most)
        return 1;
    return e->side[side].dtype != DS_F32 && r->least > 1.25 * n->order_error.most &&
           n->error[side] > 1.25 * n->order_error.most &&
           n->difference > 4 * n->order_difference.most;
}

static int judge_sums(const struct ds_explain *e, const struct ds_explain_noise *n,
                      struct ds_explain_verdict *v)
{
    for (int s = DS_SIDE_B; s >= DS_SIDE_A; s--)
        for (int f = 0; f < DS_FORMAT_COUNT - DS_FORMAT_INPUTS; f++) {
            const struct ds_explain_range *r = &n->sums_error[f];
            if (!sums_show(e, n, r, s) || !is_f32(n, DS_SIDE_A + DS_SIDE_B - s) || n->beyond[s] ||
                !(n->error[s] >= r->least / 2) || !(n->error[s] <= 2 * r->most))
                continue;
            claim(v, DS_EXPLAIN_LOWER_PRECISION, DS_BASIS_SIZE, s,
                  "%c is %.3g off the exact result: %s give %.3g to %.3g, f32 orders up to %.3g",
                  name(s), n->error[s], ds_explain_format_name(DS_FORMAT_INPUTS + f), r->least,
                  r->most, n->order_error.most);
            v->format = DS_FORMAT_INPUTS + f;
            return 1;
        }
    return 0;
}

/* Whether no number of the guess was fitted: what gives the values is in the model. */
static int is_named(const struct ds_explain_guess *g)
{
    return g->kind == DS_GUESS_BIAS || g->kind == DS_GUESS_TRANSPOSED ||
           g->kind == DS_GUESS_WEIGHTS || g->kind == DS_GUESS_TOKENS || g->kind == DS_GUESS_NORM ||
           g->kind == DS_GUESS_FEW_BITS;
}

/* named: only what needs no fitted number, which says more than a format that leaves as little over. */
static int judge_data(const struct ds_explain_noise *n, int named, struct ds_explain_verdict *v)
{
    /* beyond it no other way to compute the same is meant */
    static const double most = 0.16;
    for (int s = DS_SIDE_B; s >= DS_SIDE_A; s--) {
        if (named && !is_named(&n->guess[s]))
            continue;
        if (n->guess[s].text[0])
            claim(v, n->guess[s].precision ? DS_EXPLAIN_LOWER_PRECISION : DS_EXPLAIN_WRONG_DATA,
                  is_named(&n->guess[s]) ? DS_BASIS_NAMED : DS_BASIS_FIT, s,
                  "%c is explained when %s", name(s), n->guess[s].text);
        else if (n->ratio[s] != 0)
            claim(v,
                  fabs(n->ratio[s] - 1) <= most ? DS_EXPLAIN_DIFFERENT_ALGORITHM
                                                : DS_EXPLAIN_WRONG_DATA,
                  DS_BASIS_SIZE, s,
                  "each row of %c is the exact one times a factor, %.9g at most: another scale or "
                  "epsilon",
                  name(s), n->ratio[s]);
        else if (n->beyond[s] > 0)
            claim(
                v, DS_EXPLAIN_WRONG_DATA, DS_BASIS_SIZE, s,
                "%llu of %zu elements of %c are off by more than 8 times what any order or format "
                "makes of them",
                (unsigned long long)n->beyond[s], n->elements, name(s));
        else
            continue;
        if (n->guess[s].kind == DS_GUESS_PART)
            v->format = (int)n->guess[s].value;
        return 1;
    }
    return 0;
}

/* Most elements are as near as f32 orders are, some are far off: no format does that. */
static int judge_few(const struct ds_explain_noise *n, struct ds_explain_verdict *v)
{
    for (int s = DS_SIDE_B; s >= DS_SIDE_A; s--) {
        if (!n->outside[s] || n->typical[s] > 4)
            continue;
        claim(v, DS_EXPLAIN_WRONG_DATA, n->guess[s].text[0] ? DS_BASIS_FIT : DS_BASIS_SIZE, s,
              "%llu of %zu elements of %c are off by more than 16 times what f32 orders make of "
              "them, the others are not%s%s",
              (unsigned long long)n->outside[s], n->elements, name(s),
              n->guess[s].text[0] ? ": explained when " : "", n->guess[s].text);
        return 1;
    }
    return 0;
}

/* Neither side is what the formula gives, and they are as near to each other as f32 orders are: both add
 * up the same other thing (a term more, rounded inputs), which is not what differs. */
static int judge_common(const struct ds_explain_noise *n, struct ds_explain_verdict *v)
{
    if (n->terms <= 2 || is_f32(n, DS_SIDE_A) || is_f32(n, DS_SIDE_B) ||
        !(n->difference <= 2 * n->order_difference.most))
        return 0;
    claim(
        v, DS_EXPLAIN_ROUNDING_ORDER, DS_BASIS_SIZE, -1,
        "neither side is what these inputs alone give (A is %.3g off, B %.3g), and B - A (%.3g) is "
        "within what two f32 orders differ by (up to %.3g): both add up the same terms in another "
        "order",
        n->error[DS_SIDE_A], n->error[DS_SIDE_B], n->difference, n->order_difference.most);
    return 1;
}

/* One kernel is fused with the one before it: it reads what the other reads rounded. */
static int judge_unrounded(const struct ds_explain *e, struct ds_explain_verdict *v)
{
    const struct ds_kernel *a = e->side[DS_SIDE_A].kernel, *b = e->side[DS_SIDE_B].kernel;
    if (!a || !b || !((a->features ^ b->features) & DS_FEATURE_UNROUNDED) ||
        (e->side[DS_SIDE_A].dtype != DS_BF16 && e->side[DS_SIDE_A].dtype != DS_F16))
        return 0;
    const int side = b->features & DS_FEATURE_UNROUNDED ? DS_SIDE_B : DS_SIDE_A;
    claim(v, DS_EXPLAIN_DIFFERENT_ALGORITHM, DS_BASIS_FIT, side,
          "%c's kernel reads its inputs as they were before they were rounded to %s, the other as "
          "they are stored: one rounding fewer, so it is the more precise",
          name(side), ds_dtype_name(e->side[side].dtype));
    return 1;
}

static void judge(const struct ds_explain *e, const struct ds_explain_order *order,
                  const struct ds_explain_noise *n, struct ds_explain_verdict *v)
{
    *v = (struct ds_explain_verdict){.side = -1, .format = -1};
    for (int s = 0; s < DS_SIDES; s++)
        if (n->nonfinite[s] && !n->nonfinite[DS_SIDE_A + DS_SIDE_B - s]) {
            claim(v, DS_EXPLAIN_NON_FINITE, DS_BASIS_BITS, s,
                  "%llu of %zu elements of %c are NaN or infinite where the exact result is not",
                  (unsigned long long)n->nonfinite[s], n->elements, name(s));
            return;
        }
    if (judge_unrounded(e, v) || judge_trees(e, order, v) || judge_copy(e, n, v) ||
        judge_blocks(n, v) || judge_common(n, v) || judge_few(n, v) || judge_data(n, 1, v) ||
        judge_formats(e->op, n, v) || judge_data(n, 0, v) || judge_sums(e, n, v))
        return;
    if (!is_f32(n, DS_SIDE_A) || !is_f32(n, DS_SIDE_B)) {
        claim(
            v, DS_EXPLAIN_UNKNOWN, DS_BASIS_NONE, -1,
            "A is %.3g off the exact result, B %.3g, f32 orders up to %.3g: no format explains it",
            n->error[DS_SIDE_A], n->error[DS_SIDE_B], n->order_error.most);
        return;
    }
    if (n->terms > 0 && n->difference <= 2 * n->order_difference.most)
        claim(
            v, DS_EXPLAIN_ROUNDING_ORDER, DS_BASIS_SIZE, -1,
            "both sides are as near to the exact result as f32 orders are (A %.3g, B %.3g, orders "
            "up to %.3g), and B - A (%.3g) is within what two orders differ by (up to %.3g)",
            n->error[DS_SIDE_A], n->error[DS_SIDE_B], n->order_error.most, n->difference,
            n->order_difference.most);
    else if (n->terms <= 0)
        claim(
            v, DS_EXPLAIN_DIFFERENT_ALGORITHM, DS_BASIS_SIZE, -1,
            "both sides are as near to the exact result as f32 is (A %.3g, B %.3g), and nothing is "
            "added up: the formula is evaluated in another way",
            n->error[DS_SIDE_A], n->error[DS_SIDE_B]);
    else
        claim(v, DS_EXPLAIN_DIFFERENT_ALGORITHM, DS_BASIS_SIZE, -1,
              "both sides are as near to the exact result as f32 is (A %.3g, B %.3g), and B - A "
              "(%.3g) is more than two orders of addition differ by (up to %.3g): the formula is "
              "evaluated in another way",
              n->error[DS_SIDE_A], n->error[DS_SIDE_B], n->difference, n->order_difference.most);
}

/* What was claimed of one side is not all where the other is off the exact result as well. */
static void tell_other_side(const struct ds_explain_order *order, const struct ds_explain_noise *n,
                            struct ds_explain_verdict *v)
{
    const int other = DS_SIDE_A + DS_SIDE_B - v->side;
    const size_t at = strlen(v->why);
    if (v->side < 0 || v->basis == DS_BASIS_BITS || v->kind == DS_EXPLAIN_NON_FINITE ||
        reproduced(&order[other], other) || is_f32(n, other) || n->nonfinite[other] ||
        !(n->error[other] > 8 * n->order_error.most))
        return;
    if (n->guess[other].text[0])
        snprintf(v->why + at, sizeof v->why - at, "; and %c is off, too: explained when %s",
                 name(other), n->guess[other].text);
    else
        snprintf(v->why + at, sizeof v->why - at,
                 "; and %c is off the exact result, too: %.3g, %c %.3g, f32 orders up to %.3g",
                 name(other), n->error[other], name(v->side), n->error[v->side],
                 n->order_error.most);
}

void ds_explain_judge(const struct ds_explain *e, const struct ds_explain_order *order,
                      const struct ds_explain_noise *n, struct ds_explain_verdict *v)
{
    judge(e, order, n, v);
    tell_other_side(order, n, v);
    const size_t at = strlen(v->why);
    for (int s = DS_SIDE_A; s < DS_SIDES && v->basis <= DS_BASIS_SIZE; s++)
        if (n->guess[s].rows_wanted && !is_f32(n, s)) {
            snprintf(
                v->why + at, sizeof v->why - at,
                "; whether blocks of 32 weights have other scales takes %lld rows to tell, and "
                "%zu are dumped: record with --dump-rows %lld",
                (long long)n->guess[s].rows_wanted, e->n_rows, (long long)n->guess[s].rows_wanted);
            return;
        }
}

void ds_explain_judge_others(const struct ds_explain *e, const struct ds_explain_order *order,
                             int side, const struct ds_explain_others *o, const char *who,
                             struct ds_explain_verdict *v)
{
    const struct ds_explain_at *at = &e->rows[o->target].at[side];
    char which[160] = "";
    if (reproduced(&order[DS_SIDE_A], DS_SIDE_A) && reproduced(&order[DS_SIDE_B], DS_SIDE_B))
        return;
    if (o->guilty >= 0 && o->needed == 1 && o->alone == at->rows - 1)
        snprintf(which, sizeof which, "; any other row of the %lld is enough", (long long)at->rows);
    else if (o->guilty >= 0 && o->needed == 1)
        snprintf(which, sizeof which,
                 "; row %lld of the call's %lld by row %lld alone%s%s, %lld row%s would do",
                 (long long)at->row, (long long)at->rows, (long long)o->guilty, *who ? ", " : "",
                 who, (long long)o->alone, o->alone == 1 ? "" : "s");
    else if (o->guilty >= 0)
        snprintf(which, sizeof which,
                 "; row %lld of the call's %lld by %lld rows together, from row %lld on",
                 (long long)at->row, (long long)at->rows, (long long)o->needed,
                 (long long)o->guilty);
    claim(v, DS_EXPLAIN_WRONG_DATA, DS_BASIS_BITS, side,
          "a row of %c depends on what the other rows of its call hold: with others beside them "
          "%llu of %llu elements come out otherwise%s",
          name(side), (unsigned long long)o->moved, (unsigned long long)o->elements, which);
}
