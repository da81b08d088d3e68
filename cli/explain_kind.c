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

/* Of which of the formats that a size can point to it is. */
static unsigned size_of(int format)
{
    switch (format) {
    case DS_FORMAT_TF32:
    case DS_FORMAT_TF32_CUT:
    case DS_FORMAT_F16:
    case DS_FORMAT_F16_SUMS:
        return DS_SIZE_OF_TF32;
    case DS_FORMAT_BF16:
    case DS_FORMAT_BF16_SUMS:
        return DS_SIZE_OF_BF16;
    case DS_FORMAT_Q8:
    case DS_FORMAT_Q8_ROW:
    case DS_FORMAT_Q8_TENSOR:
        return DS_SIZE_OF_8_BITS;
    default:
        return DS_SIZE_OF_4_BITS;
    }
}

/* What the verdict took from the size alone, beside what accounts for the values. */
static void hold_size(struct ds_explanation *x)
{
    const int format = x->verdict.format;
    const char *found = x->verdict.basis == DS_BASIS_BITS
                            ? "here replays give every bit"
                            : "here something accounts for the values";
    if (x->said.formats && format >= 0 && !(size_of(format) & x->said.formats))
        snprintf(x->overruled, sizeof x->overruled,
                 "its size is that of other formats; what gives the values is %s",
                 ds_explain_format_name(format));
    else
        snprintf(x->sharpened, sizeof x->sharpened,
                 "it goes by the size of the difference, which %s; %s",
                 x->said.formats ? "leaves open which numbers have few bits"
                                 : "tells a kind and no cause",
                 found);
}

/* One kind from both: the better evidence of it. */
static void join(struct ds_explanation *x)
{
    if (x->verdict.basis >= DS_BASIS_FIT || x->said.basis < DS_KIND_BY_VALUES)
        take_own(x);
    else
        take_said(x);
    if (x->said.basis == DS_KIND_BY_SIZE && x->verdict.basis >= DS_BASIS_FIT)
        hold_size(x);
}

int ds_explanation_settle(struct ds_explanation *x, struct ds_analysis *a, struct ds_error *err)
{
    if (ask_verdict(x, a, err) != 0)
        return -1;
    const int own = x->judged || x->chosen || x->drawn ? x->verdict.kind : DS_EXPLAIN_UNKNOWN,
              said = x->said.found ? x->said.kind : DS_KIND_UNKNOWN;
    x->overruled[0] = x->sharpened[0] = x->unconfirmed[0] = '\0';
    if (own == DS_EXPLAIN_UNKNOWN && said == DS_KIND_UNKNOWN) {
        x->kind = DS_EXPLAIN_UNKNOWN;
        snprintf(x->why, sizeof x->why, "%s",
                 x->verdict.why[0]     ? x->verdict.why
                 : !x->c->inputs_equal ? "its inputs differ already"
                 : x->said.why[0]      ? x->said.why
                                       : "nothing that was tried explains it");
    } else if (own == DS_EXPLAIN_UNKNOWN) {
        take_said(x);
        if (x->judged && x->said.formats)
            snprintf(x->unconfirmed, sizeof x->unconfirmed,
                     "it goes by the size of the difference; of the formats that were tried, of "
                     "inputs and of sums, none gives these values");
    } else if (said == DS_KIND_UNKNOWN) {
        take_own(x);
    } else if (own == said) {
        join(x);
    } else {
        decide(x);
    }
    return 0;
}
