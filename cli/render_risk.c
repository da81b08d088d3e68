/* render_risk.c: what `risk` found, in words. Owns how it is told; judges nothing. */
#include "cli/risk.h"
#include "cli/storm.h"
#include "cli/verdict.h"

#include "base/mem.h"
#include "base/plural.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ds_header *header(const struct ds_risk_result *r)
{
    return ds_record_header(r->own.record);
}

static const char *kernels(const struct ds_risk_result *r, size_t group)
{
    const struct ds_header *h = header(r);
    for (size_t f = 0; f < h->n_factors; f++)
        if (strcmp(h->factors[f], "kernels") == 0)
            return h->arms[r->risk.groups[group].arm].values[f];
    return "";
}

static void head(struct ds_buf *out, const struct ds_risk_result *r, const char *name)
{
    ds_buf_printf(out, "%s%-14s%s", ds_cli_color(r->o, DS_ROLE_HEAD), name,
                  ds_cli_color(r->o, DS_ROLE_PLAIN));
}

static void add_kernels(struct ds_buf *out, const struct ds_risk_result *r, size_t group)
{
    ds_buf_escape(out, kernels(r, group), (size_t)-1);
}

int ds_risk_code(const struct ds_risk_result *r)
{
    for (size_t i = 0; i < r->risk.n_groups; i++)
        if (r->risk.groups[i].within[2] > 0 || r->risk.groups[i].flips.seen > 0)
            return DS_EXIT_DRIFT;
    for (size_t i = 0; i < r->risk.n_groups; i++)
        if (r->risk.groups[i].blind || r->risk.groups[i].nan)
            return DS_EXIT_ERROR;
    return DS_EXIT_SAME;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static void add_group(struct ds_buf *out, const struct ds_risk_result *r, size_t i)
{
    const struct ds_risk_group *g = &r->risk.groups[i];
    const struct ds_flips *f = &g->flips;
    head(out, r, "margins");
    add_kernels(out, r, i);
    if (g->blind && g->blind == g->n_choices) {
        ds_buf_printf(out, ": %zu choices, and no margin: their logits are NaN\n", g->n_choices);
        return;
    }
    ds_buf_printf(
        out,
        ": %zu choice%s; smallest %.3g nats, 1 %% below %.3g, 10 %% below %.3g, half below "
        "%.3g",
        g->n_choices, ds_plural((long long)g->n_choices), g->margin[0], g->margin[1], g->margin[2],
        g->margin[3]);
    if (g->ties)
        ds_buf_printf(out, "; %llu tied", (unsigned long long)g->ties);
    if (g->blind)
        ds_buf_printf(out, "; %llu without a margin: NaN", (unsigned long long)g->blind);
    if (g->nan)
        ds_buf_printf(out, "; %llu with a NaN or +Inf among the logits",
                      (unsigned long long)g->nan);
    ds_buf_puts(out, "\n");
    if (f->choices == 0) {
        ds_buf_printf(out, "%-14sno choice was made twice with these kernels: no drift is known\n",
                      "");
        return;
    }
    ds_buf_printf(out,
                  "%-14sdrift: half up to %.3g, 99 %% up to %.3g, all up to %.3g; of the choices "
                  "%.2f %%, %.2f %%\n%-14sand %.2f %% have no larger margin\n",
                  "", f->drift_median, g->drift_99, f->drift_most, 100 * g->within[0],
                  100 * g->within[1], "", 100 * g->within[2]);
    ds_buf_printf(out, "%-14sflips in 1,000 choices: %.3g expected", "", g->per_1000);
    if (f->bounded)
        ds_buf_printf(out, " (95 %%: %.3g to %.3g)", g->low, g->high);
    else
        ds_buf_puts(out, " (one prompt: no interval)");
    ds_buf_printf(out, ", %.3g seen (%llu of %llu)\n", g->seen_per_1000,
                  (unsigned long long)f->seen, (unsigned long long)f->choices);
}

static void token(struct ds_buf *out, const struct ds_risk_result *r, int32_t id)
{
    const struct ds_storm_setup s = {.plan = {.tokenizer = r->plan.tokenizer}};
    ds_storm_token(&s, id, out);
}

static void add_choices(struct ds_buf *out, const struct ds_risk_result *r, size_t i)
{
    const struct ds_risk_group *g = &r->risk.groups[i];
    int reached = 1;
    for (size_t k = 0; k < g->n_choices && k < r->most; k++) {
        const struct ds_risk_choice *c = &g->choices[k];
        if (isnan(c->ref->margin))
            break; /* these stand last, and are counted above */
        const int in = c->chance > 0;
        /* Where a margin is beyond all drift, or no drift is known, the nearest ones are the riskiest. */
        head(out, r, k && in == reached ? "" : in ? "at risk" : "nearest");
        if (k == 0 || in != reached) {
            add_kernels(out, r, i);
            ds_buf_printf(out, "%s\n%-14s",
                          in                 ? ""
                          : g->flips.choices ? ": beyond the drift"
                                             : ": by their margins",
                          "");
        }
        reached = in;
        if (r->risk.n_prompts > 1)
            ds_buf_printf(out, "prompt %d, ", c->prompt);
        ds_buf_printf(out, "token %d: ", c->ref->step);
        token(out, r, c->ref->ids[0]);
        ds_buf_puts(out, " before ");
        token(out, r, c->ref->ids[1]);
        ds_buf_printf(out, " by %.3g", (double)c->ref->margin);
        if (c->drift >= 0)
            ds_buf_printf(out, ", moved by up to %.3g", c->drift);
        if (c->pairs)
            ds_buf_printf(out, "; another token in %u of %u", c->seen, c->pairs);
        if (c->nan)
            ds_buf_puts(out, "; NaN or +Inf among the logits");
        ds_buf_puts(out, "\n");
    }
}

/* Layers in steps, so that all of a deep model fit a screen: the first, the last and some between. */
static void add_layers(struct ds_buf *out, const struct ds_risk_result *r, size_t i)
{
    enum { SHOWN = 8 };
    const struct ds_risk_group *g = &r->risk.groups[i];
    const size_t stride = (g->n_layers + SHOWN - 1) / SHOWN;
    if (g->n_layers == 0 && g->n_choices > g->blind) {
        head(out, r, "by layer");
        add_kernels(out, r, i);
        ds_buf_puts(out, g->flips.choices == 0 ? ": not known: no choice was made twice\n"
                         : g->flips.drift_most > 0
                             ? ": not known: the record has no sizes of rows that choose\n"
                             : ": no logits drifted, so no layer's drift leads to another token\n");
    }
    for (size_t k = 0; k < g->n_layers; k++) {
        const struct ds_risk_layer *l = &g->layers[k];
        if (stride > 1 && k % stride && k + 1 < g->n_layers)
            continue;
        head(out, r, k ? "" : "by layer");
        if (k == 0) {
            add_kernels(out, r, i);
            ds_buf_printf(out,
                          ": relative drift measured, and what would turn over the choice nearest "
                          "to it\n%-14s",
                          "");
        }
        if (l->layer < header(r)->n_layers)
            ds_buf_printf(out, "L%02d         ", l->layer);
        else
            ds_buf_puts(out, "final_norm  ");
        ds_buf_printf(out, "%.2e  %.2e  (%.3g times, at ", l->median, l->needed,
                      l->median > 0 ? l->needed / l->median : (double)INFINITY);
        if (r->risk.n_prompts > 1)
            ds_buf_printf(out, "prompt %d, ", l->prompt);
        ds_buf_printf(out, "token %d)\n", l->step);
    }
}

/* ---- which kernel to pin first ---------------------------------------------------------------- */

static void add_gain(struct ds_buf *out, const struct ds_risk_gain *x, const char *verdict)
{
    ds_buf_printf(out, ": %.3g flips in 1,000 instead of %.3g expected, %.3g instead of %.3g seen",
                  x->expected[1], x->expected[0], x->seen[1], x->seen[0]);
    if (x->verdict == DS_GAIN_ALL)
        ds_buf_puts(out, ": no choice is moved");
    else if (!x->bounded)
        ds_buf_puts(out, " (one prompt: no interval)");
    else if (x->low < 0 || x->high > 0)
        ds_buf_printf(out, "\n%-14sfewer by %.3g (95 %%: %.3g to %.3g)%s", "", x->fewer, x->low,
                      x->high, verdict);
    ds_buf_puts(out, "\n");
}

/* What stages in f32 change, of records that have them. */
static void add_precision(struct ds_buf *out, const struct ds_risk_result *r)
{
    static const char *const verdicts[] = {": it makes more", ": no help seen", ": it helps", ""};
    for (size_t i = 0; i < r->n_precise; i++) {
        const struct ds_risk_precise *p = &r->precise[i];
        head(out, r, i ? "" : "precision");
        add_kernels(out, r, p->g.group);
        ds_buf_puts(out, ", ");
        ds_buf_escape(out, p->stages, (size_t)-1);
        ds_buf_puts(out, " (");
        ds_buf_escape(out, p->path, (size_t)-1);
        ds_buf_puts(out, ")");
        add_gain(out, &p->g, verdicts[p->g.verdict - DS_GAIN_LOSS]);
    }
}

static void add_ranking(struct ds_buf *out, const struct ds_risk_result *r)
{
    static const char *const heads[] = {"makes more", "no help seen", "pin first", "pin first"};
    int before = DS_GAIN_LOSS - 1;
    for (size_t k = 0; k < r->n_gains; k++) {
        const struct ds_risk_gain *x = &r->gains[k];
        const int verdict = x->verdict == DS_GAIN_ALL ? DS_GAIN_SOME : x->verdict;
        head(out, r, verdict == before ? "" : heads[verdict - DS_GAIN_LOSS]);
        ds_buf_escape(out, x->exchanged, (size_t)-1);
        add_gain(out, x, "");
        before = verdict;
    }
    if (r->n_gains && r->gains[0].verdict < DS_GAIN_SOME &&
        r->risk.groups[0].flips.drift_most > 0) {
        head(out, r, "pin first");
        ds_buf_puts(out,
                    "none of these alone: driftscope bisect finds a smallest set of kernels\n");
    }
}

static void add_tests(struct ds_buf *out, const struct ds_risk_result *r)
{
    for (size_t i = 0; i < r->n_tests; i++) {
        const struct ds_risk_test *t = &r->tests[i].t;
        const int in = (double)t->seen >= t->low && (double)t->seen <= t->high;
        head(out, r, i ? "" : "foretold");
        ds_buf_escape(out, r->tests[i].path, (size_t)-1);
        ds_buf_puts(out, ", ");
        add_kernels(out, r, t->group);
        if (!t->known) {
            ds_buf_puts(out, ": not known, since nothing drifted in ");
            ds_buf_escape(out, r->own.path, (size_t)-1);
            ds_buf_printf(out, "; of %llu requests %llu parted\n", (unsigned long long)t->requests,
                          (unsigned long long)t->seen);
            continue;
        }
        ds_buf_printf(
            out, ": of %llu requests %.1f part (95 %%: %.0f to %.0f), %llu did: %s the interval\n",
            (unsigned long long)t->requests, t->expected, t->low, t->high,
            (unsigned long long)t->seen, in ? "within" : "outside");
    }
}

void ds_risk_text(struct ds_buf *out, const struct ds_risk_result *r)
{
    head(out, r, "risk");
    ds_buf_escape(out, header(r)->model_name, (size_t)-1);
    ds_buf_printf(out, ", %zu prompt%s\n", r->risk.n_prompts, r->risk.n_prompts == 1 ? "" : "s");
    head(out, r, "sampler");
    ds_report_sampler(header(r), out);
    for (size_t i = 0; i < r->risk.n_groups; i++) {
        add_group(out, r, i);
        add_choices(out, r, i);
        add_layers(out, r, i);
    }
    add_ranking(out, r);
    add_precision(out, r);
    add_tests(out, r);
    const int code = ds_risk_code(r);
    ds_buf_puts(out, ds_cli_color(r->o, code ? DS_ROLE_DRIFT : DS_ROLE_SAME));
    ds_buf_puts(out, code == DS_EXIT_DRIFT ? "risk: choices are within the drift:"
                     : code == DS_EXIT_SAME
                         ? "risk: no choice is within the drift:"
                         : "risk: incomparable: NaN among the logits of choices:");
    for (size_t i = 0; i < r->risk.n_groups; i++) {
        const struct ds_risk_group *g = &r->risk.groups[i];
        ds_buf_printf(out, "%s ", i ? "," : "");
        add_kernels(out, r, i);
        if (g->blind + g->nan)
            ds_buf_printf(out, " %llu of %zu have NaN", (unsigned long long)(g->blind + g->nan),
                          g->n_choices);
        else if (g->flips.choices)
            ds_buf_printf(out, " %.3g flips in 1,000", g->per_1000);
        else
            ds_buf_puts(out, " not known");
    }
    ds_buf_printf(out, "%s\n", ds_cli_color(r->o, DS_ROLE_PLAIN));
}
