/* render_census.c: the census of repeats as text and as JSON. Lays out; judges nothing. */
#include "cli/render_census.h"

#include "cli/render_json.h"
#include "cli/render_matrix.h"
#include "dumps/census.h"

#include <inttypes.h>
#include <string.h>

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void add_site(const struct ds_render *r, uint32_t site, struct ds_buf *out)
{
    const struct ds_site *s = &r->header->sites[site];
    ds_render_place(out, s->layer, s->stage, s->part);
}

/* "9 runs, 3 different, 6 of them alike" */
static void add_counts(const struct ds_render *r, const struct ds_census_arm *c, struct ds_buf *out)
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
                  plural(c->modal));
    ds_buf_printf(out,
                  "%14s%u trial%s with the mode (%.3g %%, 95 %% Wilson interval %.3g to "
                  "%.3g %%)\n",
                  "", c->disagree, c->disagree == 1 ? " disagrees" : "s disagree",
                  100.0 * c->disagree / c->trials, 100 * c->low, 100 * c->high);
    if (ds_render_until_stable(r))
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
    ds_render_place(out, f->layer, f->stage, f->part);
    ds_buf_puts(out, ", ");
    ds_render_kernel(out, f->op, f->variant);
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

static void add_pairs(const struct ds_render *r, const struct ds_census_arm *c, uint32_t most,
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

static void add_thresholds(const struct ds_render *r, struct ds_buf *out)
{
    const struct ds_census *c = r->v->census;
    for (size_t i = 0; i < c->n_thresholds; i++) {
        const struct ds_census_threshold *t = &c->thresholds[i];
        int rows = strcmp(t->measure, "rows") == 0;
        ds_render_head(r, "unstable", out);
        ds_render_kernel(out, t->op, t->variant);
        ds_buf_printf(out,
                      rows ? " only in calls %s %u row%s, not with %u"
                           : " only %s %u visible token%s, not with %u",
                      t->edge == DS_CENSUS_FROM ? "from"
                      : rows                    ? "of up to"
                                                : "up to",
                      t->at, plural(t->at), t->stable);
        if (t->setting[0]) {
            ds_buf_puts(out, " (");
            ds_render_name(out, t->setting);
            ds_buf_puts(out, ")");
        }
        ds_buf_puts(out, "\n");
    }
}

void ds_render_excluded(const struct ds_render *r, struct ds_buf *out)
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
        ds_buf_printf(
            out,
            ";\n%14snot the %.6g %% that --until-stable asked for: that takes %u equal trials, and "
            "%u arm%s fewer",
            "", 100 * c->asked, c->asked_trials, c->arms_short,
            c->arms_short == 1 ? " has" : "s have");
}

/* An arm's number in its own record; *side: which of two records, "" for one. */
static uint32_t own_arm(const struct ds_render *r, uint32_t arm, const char **side)
{
    *side = !r->diff ? "" : arm % 2 ? " (B)" : " (A)";
    return r->diff && r->diff->arm_of && arm < r->diff->header.n_arms ? r->diff->arm_of[arm] : arm;
}

static void add_arm(const struct ds_render *r, const struct ds_census_arm *c, uint32_t pairs,
                    struct ds_buf *out)
{
    char name[32];
    const char *side;
    uint32_t arm = own_arm(r, c->arm, &side);
    snprintf(name, sizeof name, "arm %u%s", arm, side);
    ds_render_head(r, name, out);
    add_counts(r, c, out);
    add_first(c, out);
    add_pairs(r, c, pairs, out);
}

void ds_render_census(const struct ds_render *r, struct ds_buf *out)
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
                      plural(unstable - 1));
    add_thresholds(r, out);
}

void ds_render_runs(const struct ds_render *r, struct ds_buf *out)
{
    const struct ds_census *c = r->v->census;
    if (!c || !c->n_arms)
        ds_buf_puts(out, "no arm has two trials\n");
    for (size_t i = 0; c && i < c->n_arms; i++)
        add_arm(r, &c->arms[i], DS_CENSUS_PAIRS, out);
    if (c)
        add_thresholds(r, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void set_site(const struct ds_render *r, json_t *j, uint32_t site)
{
    const struct ds_site *s = &r->header->sites[site];
    json_object_set_new(j, "layer", json_integer(s->layer));
    json_object_set_new(j, "stage", ds_json_text(s->stage));
    json_object_set_new(j, "part", ds_json_text(s->part));
}

static json_t *first_json(const struct ds_render *r, const struct ds_census_arm *c)
{
    const struct ds_finding *f = &c->first;
    if (!f->found)
        return json_null();
    json_t *j = json_object();
    set_site(r, j, f->site);
    json_object_set_new(j, "op", ds_json_text(f->op));
    json_object_set_new(j, "variant", ds_json_text(f->variant));
    json_object_set_new(j, "label", ds_json_text(ds_label_name(f->label)));
    json_object_set_new(j, "request", json_integer(f->request));
    json_object_set_new(j, "position", json_integer(f->position));
    json_object_set_new(j, "rows_in_call", json_integer(f->rows_in_call));
    json_object_set_new(j, "agree", json_integer(c->agree));
    json_object_set_new(j, "values", json_integer(c->values));
    return j;
}

static json_t *pairs_json(const struct ds_render *r, const struct ds_census_arm *c)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->n_pairs; i++) {
        const struct ds_census_pair *p = &c->pairs[i];
        json_t *j = json_object();
        json_object_set_new(j, "a", json_integer(p->a));
        json_object_set_new(j, "b", json_integer(p->b));
        set_site(r, j, p->site);
        json_object_set_new(j, "request", json_integer(p->request));
        json_object_set_new(j, "position", json_integer(p->position));
        json_object_set_new(j, "step", json_integer(p->step));
        json_object_set_new(j, "digests", ds_json_whole(p->digests));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *places_json(const struct ds_render *r, const struct ds_census_arm *c)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->n_places; i++) {
        json_t *j = json_object();
        set_site(r, j, c->places[i].site);
        json_object_set_new(j, "pairs", ds_json_whole(c->places[i].pairs));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *arm_json(const struct ds_render *r, const struct ds_census_arm *c)
{
    json_t *j = json_object(), *interval = json_array();
    json_array_append_new(interval, ds_json_real(c->low));
    json_array_append_new(interval, ds_json_real(c->high));
    const char *side;
    json_object_set_new(j, "arm", json_integer(own_arm(r, c->arm, &side)));
    if (r->diff)
        json_object_set_new(j, "record", json_string(c->arm % 2 ? "B" : "A"));
    json_object_set_new(j, "trials", json_integer(c->trials));
    json_object_set_new(j, "distinct_runs", json_integer(c->distinct));
    json_object_set_new(j, "modal_runs", json_integer(c->modal));
    json_object_set_new(j, "disagree", json_integer(c->disagree));
    json_object_set_new(j, "rate", ds_json_real((double)c->disagree / c->trials));
    json_object_set_new(j, "wilson95", interval);
    json_object_set_new(j, "excluded_above", c->disagree ? json_null() : ds_json_real(c->excluded));
    json_object_set_new(j, "digests", ds_json_whole(c->rows));
    json_object_set_new(j, "unstable_digests", ds_json_whole(c->unstable));
    json_object_set_new(j, "most_values", json_integer(c->most));
    json_object_set_new(j, "all_runs_counted", json_boolean(c->counted));
    json_object_set_new(j, "only_first_trial", json_boolean(c->first_trial));
    json_object_set_new(j, "first", first_json(r, c));
    json_object_set_new(j, "pairs", pairs_json(r, c));
    json_object_set_new(j, "of_pairs", ds_json_whole(c->of_pairs));
    json_object_set_new(j, "pairs_not_compared", ds_json_whole(c->unseen));
    json_object_set_new(j, "first_differ_at", places_json(r, c));
    json_object_set_new(j, "first_differ_elsewhere", ds_json_whole(c->elsewhere));
    return j;
}

json_t *ds_json_census(const struct ds_render *r)
{
    const struct ds_census *c = r->v->census;
    if (!c || !c->n_arms || !r->header)
        return json_null();
    json_t *j = json_object(), *arms = json_array(), *thresholds = json_array();
    for (size_t i = 0; i < c->n_arms; i++)
        json_array_append_new(arms, arm_json(r, &c->arms[i]));
    for (size_t i = 0; i < c->n_thresholds; i++) {
        const struct ds_census_threshold *t = &c->thresholds[i];
        json_t *one = json_object();
        json_object_set_new(one, "op", ds_json_text(t->op));
        json_object_set_new(one, "variant", ds_json_text(t->variant));
        json_object_set_new(one, "measure", ds_json_text(t->measure));
        json_object_set_new(one, "setting", ds_json_text(t->setting));
        json_object_set_new(one, "edge", json_string(t->edge == DS_CENSUS_FROM ? "from" : "up-to"));
        json_object_set_new(one, "at", json_integer(t->at));
        json_object_set_new(one, "stable_at", json_integer(t->stable));
        json_array_append_new(thresholds, one);
    }
    json_t *rate = c->asked > 0 ? json_object() : json_null();
    if (c->asked > 0) {
        json_object_set_new(rate, "rate", ds_json_real(c->asked));
        json_object_set_new(rate, "trials", json_integer(c->asked_trials));
        json_object_set_new(rate, "reached", json_boolean(c->arms_short == 0));
        json_object_set_new(rate, "arms_short", json_integer(c->arms_short));
    }
    json_object_set_new(j, "until_stable", rate);
    json_object_set_new(j, "arms", arms);
    json_object_set_new(j, "thresholds", thresholds);
    return j;
}
