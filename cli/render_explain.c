/* render_explain.c: see render_explain.h. Judges nothing. */
#include "cli/render_explain.h"

#include "cli/verdict.h"
#include "kernels/lab/explain_each.h"
#include "kernels/lab/order.h"
#include "kernels/registry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void head(const struct ds_explanation *x, const char *name, struct ds_buf *out)
{
    struct ds_report r = {0};
    ds_cli_report(x->o, &r);
    ds_report_head(&r, name, out);
}

static void share(uint64_t part, uint64_t whole, char *text, size_t size)
{
    if (whole && part == whole)
        snprintf(text, size, "all");
    else if (part == 0)
        snprintf(text, size, "none");
    else
        snprintf(text, size, "%" PRIu64, part);
}

static void add_side(const struct ds_explanation *x, int side, struct ds_buf *out)
{
    const struct ds_case *c = x->c;
    const struct ds_case_side *s = &c->side[side];
    const struct ds_explain_side *e = &c->e.side[side];
    head(x, side == DS_SIDE_A ? "A" : "B", out);
    ds_report_name(out, c->f.factor);
    ds_buf_puts(out, " ");
    ds_report_name(out, side == DS_SIDE_A ? c->f.ref_value : c->f.value);
    ds_buf_puts(out, ": ");
    ds_report_kernel(out, c->f.op, s->variant);
    if (strcmp(s->variant, "openblas") == 0 && e->core[0]) {
        ds_buf_puts(out, ", core ");
        ds_report_name(out, e->core);
    }
    ds_buf_printf(out, ", %" PRId64, s->rows_least);
    if (s->rows_most != s->rows_least)
        ds_buf_printf(out, " to %" PRId64, s->rows_most);
    ds_buf_printf(out, " row%s in the call, %d thread%s", s->rows_most == 1 ? "" : "s", e->threads,
                  e->threads == 1 ? "" : "s");
    if (e->ranks) {
        ds_buf_printf(out, ", shared among %d ranks, which ", (int)e->ranks);
        ds_report_kernel(out, "allreduce", e->reduce->name);
        ds_buf_puts(out, " adds");
    }
    ds_buf_puts(out, "\n");
    if (s->missing[0]) {
        ds_buf_printf(out, "%14snot replayed: ", "");
        ds_report_name(out, s->missing);
        ds_buf_puts(out, "\n");
    }
}

size_t ds_explanation_rows(const struct ds_case *c)
{
    return c->e.n_rows / (size_t)(c->heads > 1 ? c->heads : 1);
}

static void add_values(const struct ds_explanation *x, struct ds_buf *out)
{
    const struct ds_case *c = x->c;
    uint64_t elements = 0, drifting = 0;
    struct ds_explain_match m;
    ds_explain_match(&c->e, NULL, &m);
    elements = m.elements;
    drifting = m.drifting;
    head(x, "values", out);
    ds_buf_printf(out, "%zu of %zu drifting rows are dumped", ds_explanation_rows(c),
                  c->drifting_rows);
    if (c->expert >= 0) {
        ds_buf_printf(out, " and went to expert %d", c->expert);
        if (c->other_experts)
            ds_buf_printf(out, ", %zu went to others or are not known", c->other_experts);
    }
    if (elements)
        ds_buf_printf(out, ": %" PRIu64 " elements, %" PRIu64 " differ", elements, drifting);
    ds_buf_puts(out, c->inputs_equal ? "; their inputs are equal\n" : "; their inputs differ\n");
}

/* A place whose calls are not made again. */
static void add_plain(const struct ds_explanation *x, struct ds_buf *out)
{
    const struct ds_case_numbers *n = &x->c->numbers;
    head(x, "replay", out);
    ds_buf_printf(out, "not replayed: %s\n", x->c->not_replayed);
    if (!n->rows)
        return;
    head(x, "numbers", out);
    ds_buf_printf(out, "request %d, position %d: A %d, B %d", n->first.request, n->first.position,
                  n->number[DS_SIDE_A], n->number[DS_SIDE_B]);
    if (n->known)
        ds_buf_printf(
            out,
            ", where the row stands %d\n%14sas the rows stand: A in %zu of %zu rows, B in "
            "%zu",
            n->right_number, "", n->right[DS_SIDE_A], n->rows, n->right[DS_SIDE_B]);
    ds_buf_puts(out, "\n");
}

static void add_replay(const struct ds_explanation *x, struct ds_buf *out)
{
    head(x, "replay", out);
    ds_buf_puts(out, "elements that come out bit for bit, of those that differ\n");
    ds_buf_printf(out, "%14s%-18s %-24s %s\n", "", "", "in A's call", "in B's call");
    for (size_t i = 0; i < x->n_replays; i++) {
        const struct ds_case_replay *r = &x->replay[i];
        const int device = r->kernel->device;
        const char *on = device == DS_DEVICE_CPU ? NULL : ds_device_name(device);
        char name[64];
        snprintf(name, sizeof name, "%.40s%s%s", r->kernel->name, on ? " on " : "", on ? on : "");
        ds_buf_printf(out, "%14s%-18s", "", name);
        for (int s = 0; s < DS_SIDES; s++) {
            char a[24], b[24], text[64];
            const struct ds_explain_match *m = &r->match[s];
            share(m->drift_same[DS_SIDE_A], m->drifting, a, sizeof a);
            share(m->drift_same[DS_SIDE_B], m->drifting, b, sizeof b);
            snprintf(text, sizeof text, "A %s, B %s", a, b);
            ds_buf_printf(out, s == 0 ? " %-24s" : " %s", r->run[s] ? text : "not run");
        }
        ds_buf_puts(out, "\n");
        for (int s = 0; s < DS_SIDES; s++)
            if (!r->run[s] && r->why[s][0]) {
                ds_buf_printf(out, "%16s", "");
                ds_report_name(out, r->why[s]);
                ds_buf_puts(out, "\n");
                break;
            }
    }
}

/* Which of the results that repeats had come out again. */
static void add_repeats(const struct ds_explanation *x, struct ds_buf *out)
{
    const struct ds_case_repeats *p = &x->repeats;
    int n = 0;
    if (!p->n)
        return;
    head(x, "repeats", out);
    ds_buf_printf(out, "%zu trials gave these %zu rows %zu digests; of those come out", p->trials,
                  x->c->e.n_rows, p->n);
    for (size_t i = 0; i < x->n_replays; i++)
        if (x->replay[i].given)
            ds_buf_printf(out, "%s %s %" PRIu64, n++ ? "," : ":", x->replay[i].kernel->name,
                          x->replay[i].given);
    if (!n)
        ds_buf_puts(out, ": none in one launch of any variant");
    if (x->launches)
        ds_buf_printf(out, "\n%14sin %d launches of its own kernel %" PRIu64, "", x->launches,
                      p->launched);
    for (int s = 0; s < DS_SIDES; s++)
        if (x->order[s].replayed)
            ds_buf_printf(out, "%s along the order of %c %" PRIu64, s ? ";" : "\n             ",
                          'A' + s, p->along[s]);
    ds_buf_puts(out, "\n");
}

/* The side's own variant, launched as that side's calls were. */
static const struct ds_case_replay *own_replay(const struct ds_explanation *x, int side)
{
    for (size_t i = 0; i < x->n_replays; i++)
        if (x->replay[i].kernel == x->c->e.side[side].kernel && x->replay[i].run[side])
            return &x->replay[i];
    return NULL;
}

int ds_explanation_reproduced(const struct ds_explanation *x, int side)
{
    const struct ds_case_replay *r = own_replay(x, side);
    return r && r->match[side].same[side] == r->match[side].elements;
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* A tree in words, continued below where a line is full; `column`: where the text begins. */
static void add_words(const char *words, size_t column, struct ds_buf *out)
{
    enum { INDENT = 16, LINE = 100 };
    while (*words) {
        const size_t n = strcspn(words, " \n");
        if (column + n > LINE && column > INDENT) {
            while (out->len && out->data[out->len - 1] == ' ')
                out->len--;
            ds_buf_printf(out, "\n%*s", INDENT, "");
            column = INDENT;
        }
        ds_buf_add(out, words, n);
        column += n;
        words += n;
        if (*words == '\n') {
            ds_buf_printf(out, "\n%*s", INDENT, "");
            column = INDENT;
            words += 1 + strspn(words + 1, " ");
        } else if (*words == ' ') {
            ds_buf_puts(out, " ");
            column++;
            words++;
        }
    }
}

static void add_tree(const struct ds_explain_tree *t, uint64_t elements, struct ds_buf *out)
{
    char before[96] = "";
    if (elements && t->elements != elements)
        snprintf(before, sizeof before, "%" PRIu64 " of %" PRIu64 " elements: ", t->elements,
                 elements);
    else if (strcmp(t->sum, "products") != 0)
        snprintf(before, sizeof before, "%s: ", t->sum);
    ds_buf_puts(out, before);
    add_words(t->words, 14 + strlen(before), out);
    ds_buf_puts(out, "\n");
}

/* Of sums whose length differs from row to row the longest one of each name stands for all. */
static int is_shown(const struct ds_explanation *x, const struct ds_explain_order *o, size_t i)
{
    for (size_t k = 0; k < o->n_trees && ds_explain_weighs(x->c->e.op); k++)
        if (k != i && strcmp(o->trees[k].sum, o->trees[i].sum) == 0 &&
            (o->trees[k].tree.terms > o->trees[i].tree.terms ||
             (o->trees[k].tree.terms == o->trees[i].tree.terms && k < i)))
            return 0;
    return 1;
}

static void add_order(const struct ds_explanation *x, int side, struct ds_buf *out)
{
    const struct ds_explain_order *o = &x->order[side];
    const struct ds_explain_match *m = &o->match;
    const int weighs = ds_explain_weighs(x->c->e.op);
    int lines = 0;
    head(x, side == DS_SIDE_A ? "order of A" : "order of B", out);
    if (o->why[0]) {
        ds_buf_puts(out, o->broke_off ? "not known, the measurement failed: " : "not measured: ");
        ds_report_name(out, o->why);
        ds_buf_puts(out, "\n");
        return;
    }
    if (!o->fixed) {
        ds_buf_printf(out, "none: %d of %d calls on the same data agree\n", o->agreeing,
                      o->repeats);
        if (x->n_replays && x->launches)
            ds_buf_printf(
                out,
                "%14sin %d launches %" PRIu64 " of the %" PRIu64
                " differing elements had %c's bits at least once\n",
                "", x->launches, x->seen_once[side],
                x->replay[0].match[x->replay[0].run[DS_SIDE_A] ? DS_SIDE_A : DS_SIDE_B].drifting,
                'A' + side);
        return;
    }
    for (size_t i = 0; i < o->n_trees; i++) {
        if ((o->replayed && !o->trees[i].elements) || !is_shown(x, o, i))
            continue;
        if (lines++)
            ds_buf_printf(out, "%14s", "");
        add_tree(&o->trees[i], o->replayed && !weighs ? m->elements : 0, out);
    }
    if (!lines)
        ds_buf_puts(out, "not found\n");
    if (o->borrowed)
        ds_buf_printf(out, "%14sas the other side adds: its own cannot be seen from outside\n", "");
    if (x->c->e.op == DS_OP_RMSNORM && o->replayed)
        ds_buf_printf(out, "%14s%s\n", "", ds_norm_form_text(o->form));
    if (ds_explain_weighs(x->c->e.op) && o->replayed) {
        char way[160];
        ds_weigh_form_text(o->form, way, sizeof way);
        ds_buf_printf(out, "%14s%s\n", "", way);
    }
    if (lines && !o->replayed)
        ds_buf_printf(out, "%14snot replayed: %s\n", "",
                      o->not_replayed[0] ? o->not_replayed
                                         : "no element follows from these sums alone");
    if (o->replayed) {
        char a[24], b[24];
        share(m->drift_same[DS_SIDE_A], m->drifting, a, sizeof a);
        share(m->drift_same[DS_SIDE_B], m->drifting, b, sizeof b);
        ds_buf_printf(out,
                      "%14sadding so gives %s of A's bits, %s of B's; %" PRIu64 " of %" PRIu64
                      " elements are %c's\n",
                      "", a, b, m->same[side], m->elements, side == DS_SIDE_A ? 'A' : 'B');
    }
}

/* Ops whose elements stand alone and are computed. */
static int has_formula(int op)
{
    return ds_explain_stands_alone(op) && !ds_explain_copies(op);
}

/* How an element is computed. */
static void add_formula(const struct ds_explanation *x, int side, struct ds_buf *out)
{
    const struct ds_explain_order *o = &x->order[side];
    char text[128];
    head(x, side == DS_SIDE_A ? "formula of A" : "formula of B", out);
    ds_each_text(x->c->e.op, o->form, text, sizeof text);
    ds_buf_printf(out, "%s\n", o->replayed ? text : "no known way gives its bits");
}

/* How a side's tokens were drawn. */
static void add_sampler(const struct ds_explanation *x, int side, struct ds_buf *out)
{
    const struct ds_explain_side *s = &x->c->e.side[side];
    char text[160];
    head(x, side == DS_SIDE_A ? "sampler of A" : "sampler of B", out);
    ds_case_sampler_text(&s->sampler, text, sizeof text);
    ds_buf_printf(out, "%s%s\n", text, s->draws ? "" : ": the largest logit, nothing of it acts");
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void add_exact(const struct ds_explanation *x, struct ds_buf *out)
{
    const struct ds_explain_accuracy *a = &x->accuracy;
    const uint64_t differ = a->nearer[DS_SIDE_A] + a->nearer[DS_SIDE_B] + a->even;
    head(x, "exact result", out);
    ds_buf_printf(out, "A is off by %.3g ULP on average, %.4g at most; B by %.3g, %.4g\n",
                  a->mean_ulp[DS_SIDE_A], a->max_ulp[DS_SIDE_A], a->mean_ulp[DS_SIDE_B],
                  a->max_ulp[DS_SIDE_B]);
    if (differ)
        ds_buf_printf(out, "%14sof the elements that differ A is nearer in %.3g %%, B in %.3g %%\n",
                      "", 100.0 * (double)a->nearer[DS_SIDE_A] / (double)differ,
                      100.0 * (double)a->nearer[DS_SIDE_B] / (double)differ);
}

/* Of each format the rounding of both inputs, in one of its scalings. */
static void add_formats(const struct ds_explain_noise *n, struct ds_buf *out)
{
    int some = 0;
    for (size_t i = 0; i < n->n_rounded; i++) {
        const struct ds_explain_rounded *r = &n->rounded[i];
        int last = i + 1 == n->n_rounded || n->rounded[i + 1].format != r->format;
        if (!last || r->format == DS_FORMAT_TF32_CUT || r->format == DS_FORMAT_FP8_BARE ||
            r->format == DS_FORMAT_FP8_TENSOR || r->format == DS_FORMAT_Q8_ROW ||
            r->format == DS_FORMAT_Q8_TENSOR || r->format == DS_FORMAT_Q4_ROW ||
            r->format == DS_FORMAT_Q4_TENSOR)
            continue;
        ds_buf_printf(out, "%s%s %.2g", some++ ? ", " : "", ds_explain_format_name(r->format),
                      r->shift);
    }
    ds_buf_puts(out, some ? "\n" : "none changes anything\n");
}

/* Which rules give the choices of each side, from the logits that it read. */
static void add_choice(const struct ds_explanation *x, struct ds_buf *out)
{
    const struct ds_explain_choice *c = &x->choice;
    const int64_t n = ds_explain_width(x->c->e.op, &x->c->e.shared);
    for (int s = 0; s < DS_SIDES; s++) {
        char rule[96];
        int shown = 0;
        head(x, s ? "choice of B" : "choice of A", out);
        for (int i = 0; i < DS_CHOICE_RULES; i++) {
            if (c->given[s][i] != c->rows)
                continue;
            ds_explain_rule_text(i, n, rule, sizeof rule);
            ds_buf_printf(out, "%s%s", shown++ ? "; or " : "", rule);
            if (shown == 2)
                break; /* of rounded logits there may be many */
        }
        if (!shown && c->part[s][0]) {
            ds_buf_puts(out, c->part[s]);
        } else if (!shown) {
            ds_explain_rule_text(0, n, rule, sizeof rule);
            ds_buf_printf(out, "no rule gives all rows; %s: %" PRIu64 " of %" PRIu64, rule,
                          c->given[s][0], c->rows);
        }
        ds_buf_puts(out, "\n");
    }
    if (c->differing)
        ds_buf_printf(out,
                      "%14sfirst other choice: %d instead of %d, whose logits are %.9g apart; "
                      "%" PRIu64 " of %" PRIu64 " rows exchange equal logits\n",
                      "", c->b, c->a, c->margin, c->tied, c->differing);
}

/* Of a copy: what of each side is not what was read. */
static void add_copy(const struct ds_explanation *x, struct ds_buf *out)
{
    const struct ds_explain *e = &x->c->e;
    for (int s = 0; s < DS_SIDES; s++) {
        char words[160];
        ds_explain_copy_text(e, &x->noise.copy[s], words, sizeof words);
        head(x, s ? "copy of B" : "copy of A", out);
        ds_buf_printf(out, "%s\n", words);
    }
}

static void add_noise(const struct ds_explanation *x, struct ds_buf *out)
{
    const struct ds_explain_noise *n = &x->noise;
    head(x, "noise", out);
    ds_buf_printf(out, "B - A is %.3g rms, of values of %.3g\n", n->difference, n->size);
    if (n->terms > 2)
        ds_buf_printf(out,
                      "%14stwo of %d f32 orders at K = %" PRId64
                      " differ by %.3g to %.3g (median %.3g) on these inputs\n",
                      "", DS_EXPLAIN_ORDERS, n->terms, n->order_difference.least,
                      n->order_difference.most, n->order_difference.median);
    ds_buf_printf(out, "%14soff the exact result: A %.3g, B %.3g; f32 %.3g to %.3g\n", "",
                  n->error[DS_SIDE_A], n->error[DS_SIDE_B], n->order_error.least,
                  n->order_error.most);
    ds_buf_printf(out, "%14sinputs rounded: ", "");
    add_formats(n, out);
    if (n->terms > 2)
        ds_buf_printf(out, "%14spartial sums rounded: bf16 %.2g to %.2g, f16 %.2g to %.2g\n", "",
                      n->sums_error[0].least, n->sums_error[0].most, n->sums_error[1].least,
                      n->sums_error[1].most);
}

/* What the record's verdict makes of the same rows. */
static void add_said(const struct ds_explanation *x, struct ds_buf *out)
{
    if (!x->said.found)
        return;
    head(x, "verdict", out);
    ds_buf_printf(out, "%s%s", ds_kind_name(x->said.kind), x->said.why[0] ? ": " : "");
    ds_buf_escape(out, x->said.why, (size_t)-1);
    ds_buf_puts(out, "\n");
    if (x->overruled[0])
        ds_buf_printf(out, "%14soverruled: %s\n", "", x->overruled);
    if (x->sharpened[0])
        ds_buf_printf(out, "%14ssharpened: %s\n", "", x->sharpened);
    if (x->unconfirmed[0])
        ds_buf_printf(out, "%14snot confirmed: %s\n", "", x->unconfirmed);
}

int ds_explanation_depends_on_more(const struct ds_explanation *x, int side)
{
    return own_replay(x, side) && !ds_explanation_reproduced(x, side) && x->order[side].fixed &&
           !x->others[side].moved;
}

/* The side's kernel, launched again as its calls were, agrees with the other side. */
static int gives_other_side(const struct ds_explanation *x, int side)
{
    const struct ds_explain_match *m = &own_replay(x, side)->match[side];
    return m->same[DS_SIDE_B - side] == m->elements;
}

int ds_explanation_in_situ(const struct ds_explanation *x)
{
    return x->c->f.arm == x->c->f.ref_arm && (ds_explanation_depends_on_more(x, DS_SIDE_A) ||
                                              ds_explanation_depends_on_more(x, DS_SIDE_B));
}

/* Which pages hold the keys is no input of attention: that it moves bits is a fault by itself. */
static void add_pages(const struct ds_explain_pages *p, char side, struct ds_buf *out)
{
    if (!p->moved)
        return;
    ds_buf_printf(out,
                  "; %c's bits depend on the numbers of the cache's pages: with the same keys on "
                  "pages numbered from %d on%s %" PRIu64 " of %" PRIu64 " elements are others",
                  side, p->first, p->turned ? ", in reverse," : "", p->moved, p->elements);
    if (p->own == p->elements)
        ds_buf_printf(out, ", and all are %c's", side);
}

static void last_line(const struct ds_explanation *x, struct ds_buf *out)
{
    const struct ds_case *c = x->c;
    const int a = ds_explanation_reproduced(x, DS_SIDE_A),
              b = ds_explanation_reproduced(x, DS_SIDE_B);
    ds_buf_puts(out, "explain: ");
    ds_report_place(out, c->f.layer, c->f.stage, c->f.part);
    ds_buf_puts(out, ": ");
    if (x->judged || x->chosen || x->drawn || x->kind != DS_EXPLAIN_UNKNOWN) {
        ds_buf_printf(out, "%s: ", ds_explain_kind_name(x->kind));
        ds_buf_escape(out, x->why, (size_t)-1);
        if (x->unconfirmed[0])
            ds_buf_puts(out, "; not confirmed: no format that was tried gives these values");
        for (int s = 0; s < DS_SIDES; s++)
            if (ds_explanation_depends_on_more(x, s) && ds_explanation_in_situ(x))
                ds_buf_printf(out,
                              "; unstable only in situ: on the recorded inputs %d of %d launches "
                              "agree, and none gives %c's bits",
                              x->order[s].agreeing, x->order[s].repeats, 'A' + s);
            else if (ds_explanation_depends_on_more(x, s) && gives_other_side(x, s))
                ds_buf_printf(
                    out,
                    "; launched again, %c's own kernel gives %c's bits: its own depend on "
                    "more than this call",
                    'A' + s, 'B' - s);
            else if (ds_explanation_depends_on_more(x, s))
                ds_buf_printf(out,
                              "; %c's own kernel does not give its bits from this row alone: they "
                              "depend on more",
                              'A' + s);
        for (int s = 0; s < DS_SIDES; s++)
            add_pages(&x->pages[s], 'A' + s, out);
        ds_buf_puts(out, "\n");
        return;
    }
    ds_buf_printf(out, "its inputs differ already; %s\n",
                  a && b ? "each side's own kernel gives its bits on its own inputs"
                  : a    ? "a replay gives A's bits, not B's"
                  : b    ? "a replay gives B's bits, not A's"
                         : "a replay gives neither side's bits");
}

void ds_render_explain_text(const struct ds_explanation *x, struct ds_buf *out)
{
    const struct ds_finding *f = &x->c->f;
    head(x, "place", out);
    ds_report_place(out, f->layer, f->stage, f->part);
    ds_buf_puts(out, f->arm == f->ref_arm ? ", repeats of one arm" : "");
    ds_buf_printf(out, ": %s%s\n", ds_label_name(f->label),
                  x->c->healed ? "; here from the pass that was healed, where its inputs are A's"
                               : "");
    add_side(x, DS_SIDE_A, out);
    add_side(x, DS_SIDE_B, out);
    add_values(x, out);
    if (x->c->not_replayed[0])
        add_plain(x, out);
    else
        add_replay(x, out);
    add_repeats(x, out);
    if (ds_order_knows(x->c->e.op)) {
        add_order(x, DS_SIDE_A, out);
        add_order(x, DS_SIDE_B, out);
    }
    for (int s = 0; s < DS_SIDES; s++)
        if (!x->c->not_replayed[0] && has_formula(x->c->e.op))
            add_formula(x, s, out);
    for (int s = 0; s < DS_SIDES; s++)
        if (x->drawn)
            add_sampler(x, s, out);
    if (x->chosen)
        add_choice(x, out);
    if (x->judged && ds_explain_copies(x->c->e.op))
        add_copy(x, out);
    if (x->judged) {
        add_exact(x, out);
        add_noise(x, out);
    }
    add_said(x, out);
    if (x->reproducer) {
        head(x, "reproducer", out);
        ds_buf_quote(out, x->reproducer);
        ds_buf_puts(out, "/reproduce.c: its first lines say how to compile it\n");
    }
    last_line(x, out);
}
