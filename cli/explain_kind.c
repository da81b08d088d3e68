/* explain_kind.c: one kind for one place. What the verdict says of it and what was found out here are held
 * side by side; where they differ the stronger evidence decides, and it is said why. */
#include "cli/render_explain.h"

#include <stdio.h>
#include <string.h>

/* What the verdict says of the rows that were explained: of the pass that was healed where they are of it. */
static int ask_verdict(struct ds_explanation *x, struct ds_analysis *a, struct ds_error *err)
{
    const struct ds_case *c = x->c;
    if (c->named && !c->healed) {
        x->said = c->f;
        return 0;
    }
    return ds_analysis_judged(a, c->f.arm, c->f.ref_arm, c->f.site, c->healed, &x->said, err);
}

static void take_own(struct ds_explanation *x)
{
    x->kind = x->verdict.kind;
    snprintf(x->why, sizeof x->why, "%s", x->verdict.why);
}

static void take_said(struct ds_explanation *x)
{
    x->kind = x->said.kind;
    snprintf(x->why, sizeof x->why, "%s", x->said.why);
}

/* Two kinds, each with evidence. */
static void decide(struct ds_explanation *x)
{
    if (x->verdict.basis < DS_BASIS_NAMED && x->said.basis >= DS_KIND_BY_VALUES) {
        take_said(x);
        return;
    }
    take_own(x);
    snprintf(
        x->overruled, sizeof x->overruled, "%s",
        x->verdict.basis == DS_BASIS_BITS
            ? "it goes by the difference as it is recorded, this by what replays give bit for bit"
        : x->verdict.basis == DS_BASIS_NAMED
            ? "it fits numbers to the values, this names what in the model gives them"
        : x->verdict.basis == DS_BASIS_FIT
            ? "it goes by the size of the difference, this accounts for the values themselves"
            : "it holds the size of the difference against a bound for any data, this against "
              "what orders and formats make of these very rows");
}

/* One kind from both: the better evidence of it. */
static void join(struct ds_explanation *x)
{
    if (x->verdict.basis >= DS_BASIS_FIT || x->said.basis < DS_KIND_BY_VALUES)
        take_own(x);
    else
        take_said(x);
}

int ds_explanation_settle(struct ds_explanation *x, struct ds_analysis *a, struct ds_error *err)
{
    if (ask_verdict(x, a, err) != 0)
        return -1;
    const int own = x->judged || x->chosen || x->drawn ? x->verdict.kind : DS_EXPLAIN_UNKNOWN,
              said = x->said.found ? x->said.kind : DS_KIND_UNKNOWN;
    x->overruled[0] = '\0';
    if (own == DS_EXPLAIN_UNKNOWN && said == DS_KIND_UNKNOWN) {
        x->kind = DS_EXPLAIN_UNKNOWN;
        snprintf(x->why, sizeof x->why, "%s",
                 x->verdict.why[0]     ? x->verdict.why
                 : !x->c->inputs_equal ? "its inputs differ already"
                 : x->said.why[0]      ? x->said.why
                                       : "nothing that was tried explains it");
    } else if (own == DS_EXPLAIN_UNKNOWN) {
        take_said(x);
    } else if (said == DS_KIND_UNKNOWN) {
        take_own(x);
    } else if (own == said) {
        join(x);
    } else {
        decide(x);
    }
    return 0;
}
