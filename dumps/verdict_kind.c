/* verdict_kind.c: what kind a drift is, with the evidence in words. Claims nothing without bytes,
 * sizes or digests that show it.
 *
 * The size of reordering. Adding K products in f32 in two orders: every partial sum is rounded with
 * a relative error of at most u = 2^-24, random in sign, so the two results differ by c * u *
 * sqrt(K), relative to the rms of the result. Measured on normal numbers, K = 64..16384, chain
 * against blocks, lanes and reversed order: c = 0.3..0.45 for every K. Sums that cancel, as those
 * of real activations do, have more: the bound takes c = 3. For storage with spacing s (2^-8 bf16,
 * 2^-11 f16, relative) a difference d flips the last place of about d / s of the elements by s: rms
 * sqrt(d * s) on top. TF32 (10 bits: 3e-4) and bf16 inputs (3e-3) are far outside for every K up to
 * 65536, and no row alone may exceed four times the bound, so that one wrong row cannot hide among
 * many good ones. */
#include "dumps/evidence.h"

#include "base/dtype.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define UNIT_F32     0x1p-24
#define ORDER_FACTOR 3.0
/* Inputs of 4 bits in blocks give 0.12; beyond this no number format explains a difference. */
#define NO_PRECISION 0.16

/* ---- measures -------------------------------------------------------------------------------- */

/* Width of the widest input. */
static uint32_t widest_of(const struct ds_analysis *a, size_t site)
{
    uint32_t widest = 0;
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++) {
        const uint32_t width = a->h->sites[a->in_from[e]].width;
        widest = width > widest ? width : widest;
    }
    return widest;
}

/* The same; behind a sum of ranks that of what the ranks read. One step back and no further: a record may
 * have sums of sums, and as many ways through them as it likes. */
static uint32_t widest_input(const struct ds_analysis *a, size_t site)
{
    uint32_t widest = 0;
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++) {
        const size_t from = a->in_from[e];
        uint32_t width = a->h->sites[from].width;
        if (strcmp(a->h->sites[from].op, "allreduce") == 0 &&
            a->in_start[from] < a->in_start[from + 1])
            width = widest_of(a, a->in_from[a->in_start[from]]);
        widest = width > widest ? width : widest;
    }
    return widest;
}

/* How many terms the kernel adds for one element; 0 = it does not add, or not known. */
double terms_added(const struct ds_analysis *a, const struct ds_finding *f)
{
    const struct ds_site *s = &a->h->sites[f->site];
    const uint32_t widest = widest_input(a, f->site);
    if (strcmp(s->op, "allreduce") == 0)
        return (double)ranks_of(a, f);
    if (strcmp(s->op, "combine") == 0) /* of a few rows, or of ranks' sums of them */
        return (double)(a->in_start[f->site + 1] - a->in_start[f->site]) + (double)ranks_of(a, f);
    if (strcmp(s->op, "matmul") == 0 || strcmp(s->op, "rmsnorm") == 0 ||
        strcmp(s->op, "router") == 0)
        return (double)widest;
    if (strcmp(s->op, "attention") ==
        0) /* a score of head_dim products, then a sum over the visible keys */
        return (double)f->position + 1 + (a->h->head_dim > 0 ? a->h->head_dim : 0);
    if (strcmp(s->op, "softmax") == 0)
        return (double)f->position + 1;
    return 0;
}

static double storage_spacing(const char *dtype)
{
    return strcmp(dtype, "bf16") == 0 ? 0x1p-8 : strcmp(dtype, "f16") == 0 ? 0x1p-11 : 0.0;
}

static double reorder_bound(double terms, const char *dtype)
{
    double d = ORDER_FACTOR * UNIT_F32 * sqrt(terms);
    return d + sqrt(d * storage_spacing(dtype));
}

/* Each partial sum is off by up to half a spacing, and so are both results. Shares of a sum are about
 * as large as the sum over the square root of their number; twice that is allowed. */
static double partials_bound(uint32_t ranks, const char *dtype)
{
    return storage_spacing(dtype) * sqrt((double)ranks + 2.0);
}

/* ---- evidence -------------------------------------------------------------------------------- */

struct case_at_hand {
    const struct ds_analysis *a;
    struct ds_finding *f;
    const struct size *z;
    const struct ds_structure *structure;
    const char *dtype;
    double relative; /* rms of the difference over the reference's, all rows */
    double terms;    /* added for one element; 0: none, or not known */
    double bound;    /* what reordering them gives; 0 without terms */
    double share;    /* of the elements of drifting rows that differ */
};

static void say(struct ds_finding *f, int kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct ds_finding *f, int kind, const char *fmt, ...)
{
    va_list ap;
    f->kind = kind;
    f->basis = kind == DS_KIND_UNKNOWN ? DS_KIND_BY_NOTHING : DS_KIND_BY_SIZE;
    va_start(ap, fmt);
    vsnprintf(f->why, sizeof f->why, fmt, ap);
    va_end(ap);
}

/* Whether something accounts for the values that small differences of the inputs cannot have brought about: what
 * they differ by is within a tolerance that the user chose, so sizes say nothing. */
static int accounts_alone(const struct case_at_hand *c)
{
    const uint8_t *data = c->a->options.data_differs;
    return c->f->inputs_within && (c->structure->found || (data && data[c->f->site]));
}

/* What needs no measure: 1 if it is said. */
static int judge_bits(const struct case_at_hand *c)
{
    struct ds_finding *f = c->f;
    const struct size *z = c->z;
    if (z->one_sided) {
        say(f, DS_KIND_NON_FINITE, "%.0f row%s non-finite on one side only", (double)z->one_sided,
            z->one_sided == 1 ? " is" : "s are");
        f->basis = DS_KIND_BY_FACT;
    } else if (z->flags & (DS_DRIFT_VALUES_EQUAL | DS_DRIFT_NAN_BITS)) {
        say(f, DS_KIND_SAME_VALUES, "%s",
            z->flags & DS_DRIFT_VALUES_EQUAL
                ? "only the signs of zeros differ (-0 and +0): bits differ, values equal"
                : "only the bits of NaNs differ");
        f->basis = DS_KIND_BY_FACT;
    } else if (z->nonfinite || z->ref_nonfinite)
        say(f, DS_KIND_UNKNOWN, "both sides hold non-finite values");
    else if (!isfinite(c->relative) && !c->structure->found)
        say(f, DS_KIND_WRONG_DATA,
            "the reference's values are zero, these are not: not written there, or cleared");
    else if (f->label == DS_LABEL_INHERITED && !accounts_alone(c))
        say(f, DS_KIND_UNKNOWN, "an input differs already%s; relative rms %.3g",
            f->inputs_within ? ", within the tolerance" : "", c->relative);
    else
        return 0;
    return 1;
}

/* The size of the middle row, within a factor of two. */
static double middle_row(const struct size *z)
{
    uint64_t seen = 0;
    for (int i = 0; i < 64; i++)
        if (2 * (seen += z->of_size[i]) > z->rows)
            return ldexp(1.0, i - 62);
    return 0;
}

/* One row far from the others, and far from what rounding gives. */
static int is_outlier(const struct case_at_hand *c)
{
    double floor = fmax(fmax(1e-3, 64 * c->bound), 8 * storage_spacing(c->dtype));
    return c->z->rows > 1 && c->z->worst_row > floor && c->z->worst_row > 32 * middle_row(c->z);
}

/* Few elements beyond rounding, by much: no order and no precision picks its elements. A kernel that computes every
 * element by itself has no sums that cancel: there a thousandth of one element is as much. */
static int is_spotty(const struct case_at_hand *c)
{
    const struct ds_structure *s = c->structure;
    if (c->terms == 0 && storage_spacing(c->dtype) == 0 && c->share < 0.2 && c->f->max_ulp > 1024 &&
        (s->of == 0 || (s->off && 4 * s->off < s->of)))
        return 1;
    if (s->of == 0)
        return c->share < 0.2 && c->relative > 64 * c->bound && c->relative > 0.01;
    return s->off && 4 * s->off < s->of && s->worst > 0.02;
}

/* Kernels that scale a row by a root or a quotient of their own. */
static int divides(const char *op)
{
    static const char *const ops[] = {"rmsnorm", "attention", "softmax", "router"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(op, ops[i]) == 0)
            return 1;
    return 0;
}

void data_text(const struct ds_analysis *a, uint32_t site, char *text, size_t size)
{
    const struct ds_analysis_options *o = &a->options;
    text[0] = '\0';
    if (o->data_what)
        o->data_what(o->data_ctx, site, text, size);
    if (!text[0])
        snprintf(text, size, "its weights or hyperparameters differ");
}

static int judge_data(const struct case_at_hand *c)
{
    struct ds_finding *f = c->f;
    const struct ds_structure *s = c->structure;
    const struct ds_row_key *worst = c->z->rows ? &c->a->keys[c->z->worst] : NULL;
    int other = strcmp(f->variant, f->ref_variant) != 0;
    const int data_differs = c->a->options.data_differs && c->a->options.data_differs[f->site];
    if (data_differs) {
        char what[120];
        data_text(c->a, f->site, what, sizeof what);
        say(f, DS_KIND_WRONG_DATA, "%s; relative rms %.3g", what, c->relative);
    } else if (s->found && other && s->scale > 0 && s->scale < 1e-3 && divides(f->op))
        say(f, DS_KIND_DIFFERENT_ALGORITHM, "%s: another root or division%s", s->text,
            strcmp(f->op, "rmsnorm") == 0 ? ", or another sum of squares" : "");
    else if (s->found)
        say(f,
            s->precision   ? DS_KIND_LOWER_PRECISION
            : s->algorithm ? DS_KIND_DIFFERENT_ALGORITHM
                           : DS_KIND_WRONG_DATA,
            "%s", s->text);
    else if (c->relative >= NO_PRECISION && f->between)
        say(f, DS_KIND_WRONG_DATA,
            "relative rms %.3g: no precision explains that, and one side lacks sites before it",
            c->relative);
    else if (c->relative >= NO_PRECISION)
        say(f, DS_KIND_WRONG_DATA, "relative rms %.3g: no precision explains that", c->relative);
    else if (is_outlier(c))
        say(f, DS_KIND_WRONG_DATA,
            "request %d, position %d: relative rms %.3g, where half of the rows have at most %.2g",
            worst->request, worst->position, c->z->worst_row, middle_row(c->z));
    else if (is_spotty(c))
        say(f, DS_KIND_WRONG_DATA,
            "few elements (%.3g %%) are beyond rounding, by up to %.2g of their row's rms",
            s->of ? 100.0 * (double)s->off / (double)s->of : 100 * c->share,
            s->of ? s->worst : c->relative);
    else
        return 0;
    f->basis = data_differs ? DS_KIND_BY_FACT : s->found ? DS_KIND_BY_VALUES : DS_KIND_BY_SIZE;
    return 1;
}

/* Storage of 16 bits shows a reordering as now and then an element that falls on the other side of a
 * step. Rows that differ are picked by that, so they alone would make it look frequent: all elements
 * that were compared count, and few events scatter (three times their root, and two more). */
static int is_flips(const struct case_at_hand *c)
{
    const struct size *z = c->z;
    double spacing = storage_spacing(c->dtype), rows = (double)z->rows,
           all = (double)z->compared > rows ? (double)z->compared : rows,
           width = (double)z->width_sum / rows, n = all * width,
           expected = n * 8 * ORDER_FACTOR * UNIT_F32 * sqrt(c->terms) / spacing;
    /* one step of an element four times as large as its row's rms, relative to the row */
    double one = 8 * spacing / sqrt(width);
    return (double)z->elements <= expected + 3 * sqrt(expected) + 2 &&
           c->relative * sqrt(rows / all) <= c->bound + one * sqrt(2 / all) &&
           z->worst_row <= fmax(4 * c->bound, 1.5 * one);
}

static int judge_order(const struct case_at_hand *c)
{
    if (!(c->bound > 0) || c->z->rows == 0 || c->z->width_sum == 0)
        return 0;
    if (storage_spacing(c->dtype) > 0) {
        if (!is_flips(c))
            return 0;
        say(c->f, DS_KIND_ROUNDING_ORDER,
            "%llu element%s in %llu of %llu rows, as %s shows reordering; relative rms %.3g",
            (unsigned long long)c->z->elements, c->z->elements == 1 ? "" : "s",
            (unsigned long long)c->z->rows,
            (unsigned long long)(c->z->compared > c->z->rows ? c->z->compared : c->z->rows),
            c->dtype, c->relative);
        return 1;
    }
    if (!(c->relative <= c->bound) || !(c->z->worst_row <= 4 * c->bound))
        return 0;
    say(c->f, DS_KIND_ROUNDING_ORDER, "relative rms %.3g, reordering gives up to %.3g", c->relative,
        c->bound);
    return 1;
}

static int judge_partials(const struct case_at_hand *c)
{
    uint32_t ranks = ranks_of(c->a, c->f);
    double most = ranks ? partials_bound(ranks, c->dtype) : 0;
    if (!(c->relative <= most) || most == 0)
        return 0;
    say(c->f, DS_KIND_LOWER_PRECISION,
        "partial sums of %u ranks are rounded to %s: relative rms %.3g in %.0f %% of the elements, "
        "they give up to %.3g",
        (unsigned)ranks, c->dtype, c->relative, 100 * c->share, most);
    return 1;
}

/* Inputs rounded to m explicit mantissa bits, both of them, give a sum of products with a relative
 * rms of 2.36e-3 * 2^(7 - m) (measured: 2.95e-4 at m = 10, for K = 1024); one rounded side 0.7 of
 * it. Nearly every element of every row changes, by about the same amount. Blocks of whole numbers of
 * 8 bits lie between bf16 and fp8. */
struct band {
    double low, high;
    const char *text;
    int values; /* only where values were looked at, and no structure was found in them */
    unsigned formats;
};

static const struct band *precision_of(const struct case_at_hand *c)
{
    static const struct band bands[] = {
        {1.5e-4, 6e-4, "a 10-bit mantissa (TF32 or f16)", 0, DS_SIZE_OF_TF32},
        {1.2e-3, 3.4e-3, "a 7-bit mantissa (bf16)", 0, DS_SIZE_OF_BF16},
        {3.4e-3, 4.8e-3, "8 bits (int8), or to a 7-bit mantissa (bf16) by cutting", 0,
         DS_SIZE_OF_8_BITS | DS_SIZE_OF_BF16},
        {4.8e-3, 1.4e-2, "8 bits in blocks (q8, int8)", 1, DS_SIZE_OF_8_BITS},
        {1.8e-2, 8e-2, "a 3-bit mantissa (fp8), or of weights to 4 bits in blocks (q4)", 1,
         DS_SIZE_OF_4_BITS},
    };
    /* What attention reads is at hand, and its formats of few bits were tried on it: none gives these values. */
    const int tried = strcmp(c->a->h->sites[c->f->site].op, "attention") == 0;
    double coarsest = 2 * storage_spacing(c->dtype);
    if (c->z->rows == 0 || c->z->worst_row > 4 * c->z->least_row ||
        (c->share < 0.9 && coarsest == 0) || c->share < 0.5)
        return NULL;
    for (size_t i = 0; i < sizeof bands / sizeof *bands; i++)
        if (c->relative >= bands[i].low && c->relative <= bands[i].high &&
            bands[i].low > coarsest && (!bands[i].values || (c->structure->of && !tried)))
            return &bands[i];
    return NULL;
}

static int multiplies(const struct ds_site *s)
{
    static const char *const ops[] = {"matmul", "attention", "router", "combine"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(s->op, ops[i]) == 0)
            return 1;
    return 0;
}

static int judge_precision(const struct case_at_hand *c)
{
    const struct band *b = multiplies(&c->a->h->sites[c->f->site]) ? precision_of(c) : NULL;
    /* The weights are not at hand here: whether a block has few bits or a wrong scale is for explain to say. */
    const int blocks =
        b && strstr(b->text, "in blocks") && strcmp(c->a->h->sites[c->f->site].op, "matmul") == 0;
    if (!b)
        return 0;
    say(c->f, DS_KIND_LOWER_PRECISION,
        "relative rms %.3g in %s elements: about what rounding to %s gives, of inputs, of a part "
        "of "
        "them or of sums on the way: its size does not tell which%s",
        c->relative, c->share > 0.999 ? "all" : "nearly all", b->text,
        blocks ? ", nor whether blocks of weights have wrong scales" : "");
    c->f->formats = b->formats;
    return 1;
}

/* Values that all fit a short mantissa, where the other side's do not, and differ by no more than a
 * few roundings to it: results in another format, kept as f32. */
static int judge_mantissa(const struct case_at_hand *c)
{
    enum { ENOUGH_VALUES = 16, SHORT = 12, FULL = 16, ROUNDINGS = 8 };
    const struct ds_structure *s = c->structure;
    const int mine = s->mine_bits < s->ref_bits, bits = mine ? s->mine_bits : s->ref_bits,
              others = mine ? s->ref_bits : s->mine_bits;
    if (s->of < ENOUGH_VALUES || bits > SHORT || bits < 1 || others < FULL || c->share < 0.5 ||
        !(c->relative <= ROUNDINGS * ldexp(0.5, -bits)))
        return 0;
    say(c->f, DS_KIND_LOWER_PRECISION, "%s values fit in a %d-bit mantissa%s, %s do not",
        mine ? "its" : "the reference's", bits,
        bits == 7    ? " (bf16)"
        : bits == 10 ? " (f16, TF32)"
        : bits == 3  ? " (fp8)"
                     : "",
        mine ? "the reference's" : "its own");
    c->f->basis = DS_KIND_BY_VALUES;
    return 1;
}

/* A cache adds nothing and moves whole rows: rows that went astray are off by as much as they are
 * large, and some are, not all. So a small difference in most elements of every row, alike in size,
 * is a format of fewer bits (four bits in a block are off by up to 1/8 of its largest). */
static int judge_cache(const struct case_at_hand *c)
{
    if (strcmp(c->a->h->sites[c->f->site].op, "cache") != 0 || c->z->rows == 0 ||
        strcmp(c->f->variant, c->f->ref_variant) == 0 || c->relative > 0.125 || c->share < 0.5 ||
        c->z->worst_row > 8 * c->z->least_row)
        return 0;
    say(c->f, DS_KIND_LOWER_PRECISION,
        "relative rms %.3g, about the same in every row, as another cache format gives it",
        c->relative);
    return 1;
}

/* A kernel that hands rows on, and does not: no rounding to a format of few bits, which was looked for. */
static int judge_handed_on(const struct case_at_hand *c)
{
    static const double most = 0.07; /* three mantissa bits, and a scale */
    const char *op = c->a->h->sites[c->f->site].op;
    if ((strcmp(op, "embed") != 0 && strcmp(op, "transfer") != 0) || c->relative <= most)
        return 0;
    say(c->f, DS_KIND_WRONG_DATA,
        "relative rms %.3g in a kernel that only hands rows on: other values", c->relative);
    return 1;
}

/* Steps of the storage format: nearly all of those that differ, by one; the storage hides what is
 * smaller, so this is another place of a rounding, not another order of a sum. */
static int is_one_step(const struct case_at_hand *c)
{
    uint64_t steps = c->f->value_rows ? c->f->p99_ulp : c->f->max_ulp;
    return storage_spacing(c->dtype) > 0 && c->share >= 0.01 && steps <= 1 &&
           c->relative <= 2 * storage_spacing(c->dtype);
}

static int judge_algorithm(const struct case_at_hand *c)
{
    struct ds_finding *f = c->f;
    double size = c->bound > 0 ? c->bound : reorder_bound(1, c->dtype);
    int other = strcmp(f->variant, f->ref_variant) != 0;
    if (is_one_step(c))
        say(f, DS_KIND_DIFFERENT_ALGORITHM,
            "%.1f %% of the elements differ, by one step of %s, from equal inputs: casts in "
            "another "
            "order, or one left out",
            100 * c->share, c->dtype);
    else if (c->terms == 0 && storage_spacing(c->dtype) > 0 && c->share >= 0.01 &&
             c->relative <= storage_spacing(c->dtype) && c->z->worst_row <= 4 * c->relative)
        say(f, DS_KIND_DIFFERENT_ALGORITHM,
            "relative rms %.3g in %.1f %% of the elements: parts are rounded to %s on one side "
            "only",
            c->relative, 100 * c->share, c->dtype);
    else if (other && c->relative <= 64 * size)
        say(f, DS_KIND_DIFFERENT_ALGORITHM,
            "another variant; relative rms %.3g, above the size of reordering", c->relative);
    else if (c->terms == 0 && f->max_ulp <= 4 && storage_spacing(c->dtype) == 0)
        say(f, DS_KIND_DIFFERENT_ALGORITHM,
            "at most %llu ULP in a kernel that adds no long sums: another rounding of its steps",
            (unsigned long long)f->max_ulp);
    else
        return 0;
    return 1;
}

void judge_kind(const struct ds_analysis *a, struct ds_finding *f, const struct size *z,
                const struct ds_structure *structure)
{
    struct case_at_hand c = {.a = a,
                             .f = f,
                             .z = z,
                             .structure = structure,
                             .dtype = ds_site_dtype(a->h, f->site, f->arm),
                             .relative = size_ratio(z->diff_sq, z->ref_sq),
                             .terms = terms_added(a, f)};
    c.bound = c.terms > 0 ? reorder_bound(c.terms, c.dtype) : 0;
    c.share = z->width_sum ? (double)z->elements / (double)z->width_sum : 0;
    if (judge_bits(&c) || judge_data(&c) || judge_order(&c) || judge_partials(&c) ||
        judge_mantissa(&c) || judge_precision(&c) || judge_cache(&c) || judge_handed_on(&c) ||
        judge_algorithm(&c))
        return;
    if (c.bound > 0)
        say(f, DS_KIND_UNKNOWN, "relative rms %.3g, more than the %.3g of reordering", c.relative,
            c.bound);
    else
        say(f, DS_KIND_UNKNOWN, "relative rms %.3g in a kernel that adds no long sums", c.relative);
}
