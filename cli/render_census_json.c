/* render_census_json.c: the census of repeats and the arms that were lost as JSON. Judges nothing. */
#include "cli/render_json.h"

#include "dumps/census.h"

#include <string.h>

static void set_site(const struct ds_report *r, json_t *j, uint32_t site)
{
    const struct ds_site *s = &r->header->sites[site];
    json_object_set_new(j, "layer", json_integer(s->layer));
    json_object_set_new(j, "stage", ds_json_text(s->stage));
    json_object_set_new(j, "part", ds_json_text(s->part));
}

static json_t *first_json(const struct ds_report *r, const struct ds_census_arm *c)
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

static json_t *pairs_json(const struct ds_report *r, const struct ds_census_arm *c)
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

static json_t *places_json(const struct ds_report *r, const struct ds_census_arm *c)
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

static json_t *arm_json(const struct ds_report *r, const struct ds_census_arm *c)
{
    json_t *j = json_object(), *interval = json_array();
    json_array_append_new(interval, ds_json_real(c->low));
    json_array_append_new(interval, ds_json_real(c->high));
    json_object_set_new(j, "arm", json_integer(ds_report_own_arm(r, c->arm)));
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
    json_object_set_new(j, "pattern", json_string(ds_census_pattern_name(c->pattern)));
    json_object_set_new(j, "first", first_json(r, c));
    json_object_set_new(j, "pairs", pairs_json(r, c));
    json_object_set_new(j, "of_pairs", ds_json_whole(c->of_pairs));
    json_object_set_new(j, "pairs_not_compared", ds_json_whole(c->unseen));
    json_object_set_new(j, "first_differ_at", places_json(r, c));
    json_object_set_new(j, "first_differ_elsewhere", ds_json_whole(c->elsewhere));
    return j;
}

json_t *ds_json_census(const struct ds_report *r)
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

json_t *ds_json_failed(const struct ds_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->v->n_failed; i++) {
        const struct ds_failed_arm *f = &r->v->failed[i];
        json_t *j = json_object();
        json_object_set_new(j, "arm", json_integer(f->arm));
        json_object_set_new(j, "repeat", json_integer(f->repeat));
        json_object_set_new(j, "factor", f->factor ? ds_json_text(f->factor) : json_null());
        json_object_set_new(j, "value", f->factor ? ds_json_text(f->value) : json_null());
        json_object_set_new(j, "how", ds_json_text(ds_report_failed_how(f->at->how)));
        json_object_set_new(j, "layer", f->site ? json_integer(f->site->layer) : json_null());
        json_object_set_new(j, "stage", f->site ? ds_json_text(f->site->stage) : json_null());
        json_object_set_new(j, "part", f->site ? ds_json_text(f->site->part) : json_null());
        json_object_set_new(j, "op", ds_json_text(f->at->op));
        json_object_set_new(j, "variant", ds_json_text(f->at->variant));
        json_object_set_new(j, "rows", json_integer(f->at->rows));
        json_object_set_new(j, "phase", ds_json_text(ds_phase_name(f->at->phase)));
        json_object_set_new(j, "call", json_integer(f->at->call));
        json_object_set_new(j, "rows_in_call", json_integer(f->at->m));
        json_object_set_new(j, "positions",
                            f->at->last >= f->at->first
                                ? json_pack("[i,i]", f->at->first, f->at->last)
                                : json_null());
        json_object_set_new(j, "why", ds_json_text(f->at->why));
        json_array_append_new(list, j);
    }
    return list;
}
