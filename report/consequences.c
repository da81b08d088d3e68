/* consequences.c: what a drift leads to: kernels at fault and innocent ones, growth, experts, tokens, range and
 * values that are not finite. Judges nothing. */
#include "report/report_internal.h"

#include "base/dtype.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Text under a head, broken at spaces to 100 columns. */
static void add_wrapped(const char *text, struct ds_buf *out)
{
    size_t column = 14;
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column > 14 && column + 1 + word > 100) {
            ds_buf_printf(out, "\n%14s", "");
            column = 14;
        } else if (column > 14) {
            ds_buf_puts(out, " ");
            column++;
        }
        ds_buf_add(out, text, word);
        column += word;
        text += word + (text[word] == ' ');
    }
    ds_buf_puts(out, "\n");
}

/* Whether a kernel was judged, and never gave other bits. */
static int is_innocent(const struct ds_kernel_verdict *x)
{
    return x->judged && !x->within && !x->origins && !x->unknown && !x->unstable &&
           x->condition[0] != DS_COND_UNSTABLE;
}

/* A list of kernels with a count each; nothing when there is none. */
static void add_innocent(const struct ds_report *r, struct ds_buf *out)
{
    size_t column = 14, some = 0;
    for (size_t k = 0; k < r->v->n_kernels; k++) {
        const struct ds_kernel_verdict *x = &r->v->kernels[k];
        struct ds_buf item = {0};
        if (!is_innocent(x))
            continue;
        ds_report_kernel(&item, x->op, x->variant);
        ds_buf_printf(&item, " (%" PRIu64 ")", x->judged);
        if (some == 0)
            ds_report_head(r, "bit-identical", out);
        ds_report_item(out, DS_REPORT_INDENT, &item, some++ == 0, &column);
        ds_buf_free(&item);
    }
    ds_buf_puts(out, some ? "\n" : "");
}

/* Parts of one stage are held against each other as in struct ds_added. */
static int adds_more(const struct ds_origin *x, const struct ds_origin *most)
{
    if (strcmp(x->stage, most->stage) == 0 && x->at.found && most->at.found)
        return x->at.rms > most->at.rms;
    return x->relative_rms > most->relative_rms;
}

/* A relative size. Beside a reference of zeros everything is infinitely large, which is no number to read. */
static void put_relative(struct ds_buf *out, double x)
{
    if (isinf(x))
        ds_buf_puts(out, "values instead of zeros");
    else
        ds_buf_printf(out, "%.1e", x);
}

/* Where a kernel is an origin: its stages, and the largest error that it adds. */
static void add_stages(const struct ds_report *r, const struct ds_kernel_verdict *x,
                       struct ds_buf *out)
{
    const struct ds_origin *largest = NULL;
    uint32_t layers = 0, n = 0;
    for (size_t i = 0; i < r->v->n_origins; i++) {
        const struct ds_origin *o = &r->v->origins[i];
        if (strcmp(o->op, x->op) != 0 || strcmp(o->variant, x->variant) != 0)
            continue;
        ds_buf_puts(out, n++ ? " " : ": ");
        ds_report_name(out, o->stage);
        if (o->part[0]) {
            ds_buf_puts(out, "/");
            ds_report_name(out, o->part);
        }
        layers = o->layers > layers ? o->layers : layers;
        if (o->sized && o->relative_rms > 0 && (!largest || adds_more(o, largest)))
            largest = o;
    }
    if (n)
        ds_buf_printf(out, " in %u layer%s", layers, layers == 1 ? "" : "s");
    if (largest) {
        ds_buf_puts(out, isinf(largest->relative_rms) ? ", adds " : ", adds up to ");
        put_relative(out, largest->relative_rms);
        ds_buf_puts(out, " (");
        ds_report_place(out, largest->largest_layer, largest->stage, largest->part);
        ds_buf_puts(out, ")");
    }
}

/* One line for each kernel that gave other bits on equal inputs, wrapped at spaces. */
static int add_guilty(const struct ds_report *r, struct ds_buf *out)
{
    int some = 0;
    for (size_t k = 0; k < r->v->n_kernels; k++) {
        const struct ds_kernel_verdict *x = &r->v->kernels[k];
        struct ds_buf item = {0};
        int has = x->origins != 0;
        for (size_t i = 0; i < r->v->n_origins && !has; i++)
            has = strcmp(r->v->origins[i].op, x->op) == 0 &&
                  strcmp(r->v->origins[i].variant, x->variant) == 0;
        if (!has)
            continue;
        ds_report_kernel(&item, x->op, x->variant);
        if (x->origins)
            ds_buf_printf(&item, " %" PRIu64, x->origins);
        else /* what differs across sites that only one side has is counted for no kernel */
            ds_buf_puts(&item, x->unstable ? " unstable" : " or a kernel before it");
        add_stages(r, x, &item);
        ds_report_head(r, some++ ? "" : "origins", out);
        add_wrapped(item.data ? item.data : "", out);
        out->failed |= item.failed;
        ds_buf_free(&item);
    }
    return some > 0;
}

/* What two records would need to say more than where the first difference is. */
static void add_depth_hint(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_finding *f = &r->v->first;
    if (!r->diff || !r->v->stable || !f->found ||
        (f->label != DS_LABEL_ORIGIN && !f->inputs_within) || r->v->counts.heal_trials)
        return;
    ds_report_head(r, "hint", out);
    ds_buf_printf(
        out,
        "behind it inputs differ: where both records have a base arm that agrees, as of\n%s"
        "`run --kernels pinned,vendor`, their heal trials judge every kernel at every depth\n",
        DS_REPORT_INDENT);
}

void ds_report_origins(const struct ds_report *r, struct ds_buf *out)
{
    if (add_guilty(r, out))
        add_innocent(r, out);
    add_depth_hint(r, out);
}

void ds_report_growth(const struct ds_report *r, struct ds_buf *out)
{
    size_t n = r->v->n_growth, step = n > 6 ? (n + 4) / 5 : 1; /* six fit a line */
    if (n == 0)
        return;
    ds_report_head(r, "growth", out);
    for (size_t i = 0; i < n; i++) {
        if (i % step && i + 1 != n)
            continue;
        ds_buf_printf(out, "%sL%d ", i ? "  " : "", r->v->growth[i].layer);
        put_relative(out, r->v->growth[i].relative_rms);
    }
    ds_buf_puts(out, "\n");
    if (r->v->n_added == 0)
        return;
    ds_report_head(r, "added", out); /* of each layer the site that adds most */
    for (size_t i = 0; i < n; i++) {
        const struct ds_growth *g = &r->v->growth[i];
        if (i % step && i + 1 != n)
            continue;
        ds_buf_printf(out, "%sL%d ", i ? "  " : "", g->layer);
        if (g->added_rows)
            put_relative(out, g->added_relative_rms);
        else
            ds_buf_puts(out, "nothing");
    }
    ds_buf_puts(out, "\n");
}

void ds_report_precisions(const struct ds_report *r, struct ds_buf *out)
{
    for (size_t i = 0; i < r->v->n_precisions; i++) {
        const struct ds_precisions *x = &r->v->precisions[i];
        ds_report_head(r, "formats", out);
        ds_report_name(out, x->factor);
        for (uint32_t k = 0; k < x->n; k++) {
            ds_buf_puts(out, k ? ", " : ": ");
            ds_report_name(out, x->of[k].dtype);
            ds_buf_puts(out, " ");
            if (x->of[k].rows)
                put_relative(out, x->of[k].relative_rms);
            else
                ds_buf_puts(out, "no difference");
        }
        if (r->header && x->site < r->header->n_sites)
            ds_buf_printf(out, " at %s", r->header->sites[x->site].stage);
        ds_buf_puts(out, x->verdict == DS_PRECISION_SHRINKS
                             ? ": shrinks with the format, as rounding does\n"
                         : x->verdict == DS_PRECISION_ALIKE
                             ? ": as large in every format, which rounding is not\n"
                             : "\n");
    }
}

static void add_setting(const struct ds_discrete *d, struct ds_buf *out)
{
    ds_report_name(out, d->factor);
    ds_buf_puts(out, " ");
    ds_report_name(out, d->value);
    ds_buf_puts(out, ")");
}

/* The first row that passes other experts. */
static void add_experts(const struct ds_report *r, const struct ds_discrete *d, struct ds_buf *out)
{
    struct ds_buf item = {0};
    ds_buf_printf(&item, "first others at layer %d, position %d, step %d", d->layer, d->position,
                  d->step);
    for (uint32_t i = 0; i < d->n_swapped; i++) {
        ds_buf_printf(&item, "%s expert %d instead of %d", i ? "," : ":", d->swapped[i].b,
                      d->swapped[i].a);
        if (isfinite(d->swapped[i].margin))
            ds_buf_printf(&item, ", margin %.9g nats", d->swapped[i].margin);
    }
    ds_buf_puts(&item, d->n_swapped ? " (" : "; which ones was not dumped (");
    add_setting(d, &item);
    ds_report_head(r, "experts", out);
    add_wrapped(item.data ? item.data : "", out);
    out->failed |= item.failed;
    ds_buf_free(&item);
}

enum { TIGHT_BITS = 6 };

/* Between which layers the largest value grows most, where it grows by much. */
static void add_jump(const struct ds_report *r, struct ds_buf *out)
{
    enum { MUCH = 8 };
    double before = 0, most = 0, low = 0, high = 0;
    int32_t layer = 0, at = 0;
    for (size_t i = 0; i <= r->v->n_ranges; i++) {
        const struct ds_range_at *x = i < r->v->n_ranges ? &r->v->ranges[i] : NULL;
        const int32_t next = x ? r->header->sites[x->site].layer : INT32_MAX;
        if (next != layer) {
            if (before > 0 && most > MUCH * before && (low <= 0 || most / before > high / low)) {
                low = before;
                high = most;
                at = layer;
            }
            before = layer >= 0 ? most : before;
            most = 0;
            layer = next;
        }
        most = x && (double)x->max_abs > most ? (double)x->max_abs : most;
    }
    if (low > 0)
        ds_buf_printf(out, "%14sit jumps in layer %d: %.3g before, %.3g there\n", "", at, low,
                      high);
}

void ds_report_headroom(const struct ds_header *h, uint32_t arm, const struct ds_range_at *x,
                        struct ds_buf *out)
{
    const int own = ds_dtype_parse(ds_site_dtype(h, x->site, arm));
    const double f16 = ds_headroom((double)x->max_abs, DS_F16),
                 bits = own >= 0 ? ds_headroom((double)x->max_abs, own) : 0;
    if (f16 < 0)
        ds_buf_puts(out, "f16 overflows (65504)");
    else
        ds_buf_printf(out, "%.1f bits below the end of f16", f16);
    if (own == DS_F32 || own == DS_BF16)
        ds_buf_printf(out, ", %.1f %s %s", bits, f16 < 0 ? "bits are left of" : "of",
                      ds_dtype_name(own));
}

/* The largest value, when f16 is near or something is not finite: told before it overflows. */
void ds_report_range(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_range_at *x = NULL;
    for (size_t i = 0; i < r->v->n_ranges; i++)
        x = !x || r->v->ranges[i].max_abs > x->max_abs ? &r->v->ranges[i] : x;
    double bits = x ? ds_headroom((double)x->max_abs, DS_F16) : 0;
    if (!x || !r->header || (bits > TIGHT_BITS && !r->v->nonfinite.at.found))
        return;
    const struct ds_site *s = &r->header->sites[x->site];
    ds_report_head(r, "range", out);
    ds_buf_printf(out, "up to %.6g at ", (double)x->max_abs);
    ds_report_place(out, s->layer, s->stage, s->part);
    ds_buf_printf(out, ", position %d: ", x->position);
    ds_report_headroom(r->header, r->v->ref_arm, x, out);
    ds_buf_puts(out, "\n");
    if (r->v->nonfinite.at.found)
        add_jump(r, out);
}

/* Which rows of the trial. */
static void add_nonfinite_rows(const struct ds_finding *f, struct ds_buf *out)
{
    if (f->rows == 1)
        ds_buf_printf(out, "1 row, position %d\n", f->position);
    else
        ds_buf_printf(out, "%u rows, positions %s\n", f->rows, f->at_positions);
}

static void add_nonfinite(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_nonfinite_finding *n = &r->v->nonfinite;
    const struct ds_finding *own = &n->own;
    ds_report_head(r, "non-finite", out);
    ds_buf_puts(out, "first at ");
    ds_report_place(out, n->at.layer, n->at.stage, n->at.part);
    ds_buf_printf(out, ", %sposition %d, arm %u: %u NaN, %u Inf; inputs %s%s\n",
                  n->at.row_kind == DS_ROW_PAD ? "a padding row, " : "", n->at.position, n->at.arm,
                  n->nan, n->inf, n->inputs ? "finite" : "not finite",
                  n->only_padding ? "; in padding rows only" : "");
    ds_buf_printf(out, "%14s", "");
    add_nonfinite_rows(&n->at, out);
    if (!r->header || !ds_site_recomputed(&r->header->sites[n->at.site]))
        return;
    ds_buf_printf(out,
                  "%14srecomputed beside the attention kernel, which may store none of it;\n%14s",
                  "", "");
    if (!own->found) {
        ds_buf_puts(out, "all that the kernels gave is finite\n");
        return;
    }
    ds_buf_puts(out, "first given by a kernel: ");
    ds_report_place(out, own->layer, own->stage, own->part);
    ds_buf_puts(out, ", ");
    ds_report_name(out, own->op);
    ds_buf_puts(out, "/");
    ds_report_name(out, own->variant);
    ds_buf_printf(out, ", arm %u, %s; ", own->arm, ds_phase_name(own->phase));
    add_nonfinite_rows(own, out);
}

/* The first drift is the earliest kernel of a pass that differs, in whatever step it does so first: a later
 * kernel may have differed, and a token with it, steps before. */
static void add_order(const struct ds_verdict *v, struct ds_buf *out)
{
    const struct ds_discrete *d = &v->token_change;
    if (d->found && v->first.found && d->step < v->first.step)
        ds_buf_printf(out,
                      "%14swhich is before step %d, where the first drift begins: \"first\" is the "
                      "earliest kernel\n%14sof a pass, and a later kernel differed in an earlier "
                      "step\n",
                      "", v->first.step, "");
}

void ds_report_tokens(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    if (v->tokens_compared) {
        ds_report_head(r, "tokens", out);
        ds_buf_printf(out, "%" PRIu64 " of %" PRIu64 " choices equal", v->tokens_same,
                      v->tokens_compared);
        if (v->ties)
            ds_buf_printf(out, ", %" PRIu64 " of %" PRIu64 " of the reference tied", v->ties,
                          v->choices);
        const struct ds_discrete *d = &v->token_change;
        if (d->found) {
            ds_buf_printf(out,
                          ";\n%14sfirst other at step %d: %d instead of %d, margin %.9g nats (", "",
                          d->step, d->b, d->a, d->margin);
            add_setting(d, out);
        }
        if (d->found && d->drift > 0)
            ds_buf_printf(out, "\n%14slogits there drift by up to %.3g", "", d->drift);
        else if (d->found && isfinite(d->drift))
            ds_buf_printf(out, "\n%14sfrom equal logits", "");
        ds_buf_puts(out, "\n");
        add_order(v, out);
    } else if (v->ties) {
        ds_report_head(r, "tokens", out);
        ds_buf_printf(out, "%" PRIu64 " of %" PRIu64 " choices tied: the lowest id won\n", v->ties,
                      v->choices);
    }
    if (v->expert_change.found)
        add_experts(r, &v->expert_change, out);
    if (v->nonfinite.at.found)
        add_nonfinite(r, out);
}
