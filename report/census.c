/* census.c: the census of repeats. Lays out; judges nothing. */
#include "report/report_internal.h"

#include "dumps/census.h"

#include "base/plural.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void add_site(const struct ds_report *r, uint32_t site, struct ds_buf *out)
{
    const struct ds_site *s = &r->header->sites[site];
    ds_report_place(out, s->layer, s->stage, s->part);
}

/* "9 runs, 3 different, 6 of them alike" */
static void add_counts(const struct ds_report *r, const struct ds_census_arm *c, struct ds_buf *out)
{
    ds_buf_printf(out, "%u trials, ", c->trials);
    if (c->distinct == 1) {
        const struct ds_census *all = r->v->census;
        ds_buf_printf(out, "all alike; a flake rate above %.3g %% is excluded at 95 %%",
                      100 * c->excluded);
        if (all->asked_trials > c->trials)
            ds_buf_printf(out, ", not the %.6g %%\n%14sthat was asked for, which takes %u",
                          100 * all->asked, "", all->asked_trials);
        ds_buf_puts(out, "\n");
        return;
    }
    ds_buf_printf(out, "%u different runs, the most frequent %u time%s\n", c->distinct, c->modal,
                  ds_plural(c->modal));
    ds_buf_printf(out,
                  "%14s%u trial%s with the mode (%.3g %%, 95 %% Wilson interval %.3g to "
                  "%.3g %%)\n",
                  "", c->disagree, c->disagree == 1 ? " disagrees" : "s disagree",
                  100.0 * c->disagree / c->trials, 100 * c->low, 100 * c->high);
    if (ds_report_until_stable(r))
        ds_buf_printf(out, "%14sit ended at the first of them, which makes the rate look larger\n",
                      "");
    ds_buf_printf(
        out, "%14s%" PRIu64 " of %" PRIu64 " digests have several values, one row %s%u of them\n",
        "", c->unstable, c->rows, c->counted ? "up to " : "at least ", c->most);
}

static void add_first(const struct ds_census_arm *c, struct ds_buf *out)
{
    const struct ds_finding *f = &c->first;
    if (!f->found)
        return;
    ds_buf_printf(out, "%14sfirst at ", "");
    ds_report_place(out, f->layer, f->stage, f->part);
    ds_buf_puts(out, ", ");
    ds_report_kernel(out, f->op, f->variant);
    ds_buf_printf(out, ", position %d%s:\n%14s%u of %u trials agree there, %s%u values\n",
                  f->position,
                  f->label == DS_LABEL_ORIGIN ? ", its inputs equal in all trials" : "", "",
                  c->agree, c->trials, c->counted ? "" : "at least ", c->values);
    if (c->first_trial)
        ds_buf_printf(out,
                      "%14sonly the first trial that its process ran is unlike the others: what "
                      "warms up?\n",
                      "");
}

static void add_pattern(const struct ds_census_arm *c, struct ds_buf *out)
{
    if (c->pattern == DS_CENSUS_IN_TURNS)
        ds_buf_printf(
            out, "%14strials give two results in turns: what is kept from one to the next?\n", "");
    if (c->pattern == DS_CENSUS_GROWING)
        ds_buf_printf(out,
                      "%14sit grows with every trial, from %.2g to %.2g off the first: what is "
                      "never reset?\n",
                      "", c->grows[0], c->grows[1]);
}

static void add_pairs(const struct ds_report *r, const struct ds_census_arm *c, uint32_t most,
                      struct ds_buf *out)
{
    for (uint32_t i = 0; i < c->n_pairs && i < most; i++) {
        const struct ds_census_pair *p = &c->pairs[i];
        ds_buf_printf(out, "%14srepeats %u and %u first differ at ", "", p->a, p->b);
        add_site(r, p->site, out);
        ds_buf_printf(out, ", position %d; %" PRIu64 " digests\n", p->position, p->digests);
    }
    if (c->of_pairs <= most || !c->n_places)
        return;
    ds_buf_printf(out, "%14sof %" PRIu64 " pairs of different runs", "", c->of_pairs - c->unseen);
    for (uint32_t i = 0; i < c->n_places && i < 3; i++) {
        ds_buf_printf(out, "%s %" PRIu64 " at ", i ? "," : ",", c->places[i].pairs);
        add_site(r, c->places[i].site, out);
    }
    uint64_t rest = c->elsewhere;
    for (uint32_t i = 3; i < c->n_places; i++)
        rest += c->places[i].pairs;
    if (rest)
        ds_buf_printf(out, ", %" PRIu64 " elsewhere", rest);
    if (c->unseen)
        ds_buf_printf(out, "; %" PRIu64 " not compared", c->unseen);
    ds_buf_puts(out, "\n");
}

void ds_report_threshold(const struct ds_census_threshold *t, struct ds_buf *out)
{
    int rows = strcmp(t->measure, "rows") == 0;
    ds_report_kernel(out, t->op, t->variant);
    ds_buf_printf(out,
                  rows ? " only in calls %s %u row%s, not with %u"
                       : " only %s %u visible token%s, not with %u",
                  t->edge == DS_CENSUS_FROM ? "from"
                  : rows                    ? "of up to"
                                            : "up to",
                  t->at, ds_plural(t->at), t->stable);
    if (t->setting[0]) {
        ds_buf_puts(out, " (");
        ds_report_name(out, t->setting);
        ds_buf_puts(out, ")");
    }
}

static void add_thresholds(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_census *c = r->v->census;
    for (size_t i = 0; i < c->n_thresholds; i++) {
        ds_report_head(r, "unstable", out);
        ds_report_threshold(&c->thresholds[i], out);
        ds_buf_puts(out, "\n");
    }
}

void ds_report_excluded(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_census *c = r->v->census;
    double excluded = 0;
    for (size_t i = 0; c && i < c->n_arms; i++)
        excluded = c->arms[i].excluded > excluded ? c->arms[i].excluded : excluded;
    if (excluded > 0 && excluded < 1)
        ds_buf_printf(out,
                      ";\n%14sa flake rate above %.3g %% of an arm's trials is excluded at 95 %%",
                      "", 100 * excluded);
    if (c && c->arms_short)
        ds_buf_printf(out,
                      ";\n%14snot the %.6g %% that --until-stable asked for: that takes %u equal "
                      "trials, and %u arm%s fewer",
                      "", 100 * c->asked, c->asked_trials, c->arms_short,
                      c->arms_short == 1 ? " has" : "s have");
}

static void arm_name(const struct ds_report *r, uint32_t arm, char *text, size_t size)
{
    snprintf(text, size, "arm %u%s", ds_report_own_arm(r, arm),
             !r->diff  ? ""
             : arm % 2 ? " (B)"
                       : " (A)");
}

static void add_arm(const struct ds_report *r, const struct ds_census_arm *c, uint32_t pairs,
                    struct ds_buf *out)
{
    char name[32];
    arm_name(r, c->arm, name, sizeof name);
    ds_report_head(r, name, out);
    add_counts(r, c, out);
    add_first(c, out);
    add_pattern(c, out);
    add_pairs(r, c, pairs, out);
}

void ds_report_census(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_census *c = r->v->census;
    size_t unstable = 0;
    if (!c || r->v->stable)
        return;
    for (size_t i = 0; i < c->n_arms; i++)
        if (c->arms[i].distinct > 1 && unstable++ == 0)
            add_arm(r, &c->arms[i], 2, out);
    if (unstable > 1)
        ds_buf_printf(out, "%14sand %zu more arm%s like it (show --runs)\n", "", unstable - 1,
                      ds_plural(unstable - 1));
    add_thresholds(r, out);
}

void ds_report_runs(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_census *c = r->v->census;
    if (!c || !c->n_arms)
        ds_buf_puts(out, "no arm has two trials\n");
    for (size_t i = 0; c && i < c->n_arms; i++)
        add_arm(r, &c->arms[i], DS_CENSUS_PAIRS, out);
    if (c)
        add_thresholds(r, out);
}

/* ---- one site -------------------------------------------------------------------------------- */

enum { ROWS_TOLD = 24 };

void ds_report_census_row(const struct ds_census_row *r, struct ds_buf *out)
{
    ds_buf_printf(out, "%u of %u trials gave ", r->modal, r->trials);
    ds_report_digest(r->digest, out);
    ds_buf_printf(out, ", %u different digest%s", r->values, ds_plural(r->values));
}

void ds_report_census_site(const struct ds_census_site *c, struct ds_buf *out)
{
    ds_buf_printf(out, "%u trials, ", c->trials);
    if (c->unstable == 0) {
        ds_buf_printf(out, "each of %u row%s has one digest", c->with, ds_plural(c->with));
        return;
    }
    ds_buf_printf(out,
                  "%u of %u row%s %s several digests, up to %u; at least %u of them gave a row's "
                  "most frequent one",
                  c->unstable, c->with, ds_plural(c->with), c->unstable == 1 ? "has" : "have",
                  c->most, c->least);
}

static int add_site_repeats(const struct ds_report_view *w, uint32_t site, uint32_t arm, int always,
                            struct ds_buf *out, struct ds_error *err)
{
    struct ds_census_site c;
    char name[32];
    size_t told = 0;
    if (ds_census_site(w->a, arm, site, &c, err) != 0)
        return -1;
    const size_t most = w->all ? c.unstable : ROWS_TOLD;
    if (c.with && (c.unstable || always)) {
        arm_name(w->r, arm, name, sizeof name);
        ds_buf_printf(out, "\nrepeats of %s: ", name);
        ds_report_census_site(&c, out);
        ds_buf_puts(out, "\n");
    }
    for (size_t i = 0; c.unstable && i < ds_analysis_rows(w->a) && told < most; i++) {
        if (c.rows[i].values < 2)
            continue;
        ds_buf_puts(out, "    row ");
        ds_report_row_key(ds_analysis_row(w->a, i), out);
        ds_buf_puts(out, ": ");
        ds_report_census_row(&c.rows[i], out);
        ds_buf_puts(out, "\n");
        told++;
    }
    if (c.unstable > told)
        ds_buf_printf(out, "    and %zu more (--long lists all)\n", c.unstable - told);
    ds_census_site_free(&c);
    return 0;
}

int ds_report_site_repeats(const struct ds_report_view *w, uint32_t site, struct ds_buf *out,
                           struct ds_error *err)
{
    const uint32_t arms[2] = {w->ref, w->arm};
    for (int i = w->arm == w->ref; i < 2; i++)
        if (ds_analysis_trials(w->a, arms[i]) > 1 &&
            add_site_repeats(w, site, arms[i], w->arm == w->ref, out, err) != 0)
            return -1;
    return 0;
}
