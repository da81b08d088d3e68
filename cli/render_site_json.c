/* render_site_json.c: one site, driftscope.site/1: the finding, and sizes per head, channel and position.
 * Judges nothing. */
#include "cli/render_json.h"

#include "dumps/census.h"

#include <stdlib.h>

static json_t *parts_json(const char *name, const struct ds_profile_part *parts, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *j = json_object();
        json_object_set_new(j, name, json_integer(parts[i].index));
        json_object_set_new(j, "rows", json_integer(parts[i].rows));
        json_object_set_new(j, "elements", ds_json_whole(parts[i].elements));
        json_object_set_new(j, "max_ulp", ds_json_whole(parts[i].max_ulp));
        json_object_set_new(j, "max_abs", ds_json_real(parts[i].max_abs));
        json_object_set_new(j, "rms", ds_json_real(parts[i].rms));
        json_object_set_new(j, "relative_rms", ds_json_real(parts[i].relative_rms));
        json_array_append_new(list, j);
    }
    return list;
}

/* What the kernels say of the order in which they add. */
static int add_kernels(json_t *j, const struct ds_report_view *w, uint32_t site,
                       struct ds_error *err)
{
    struct ds_report_kernel k[2];
    const struct ds_launch *launch[2];
    uint8_t *labels;
    if (ds_analysis_labels(w->a, w->arm, w->ref, &labels, err) != 0)
        return -1;
    ds_report_site_launches(w, site, labels, launch);
    free(labels);
    const size_t n = ds_report_kernel_list(w->r, launch[0], w->ref, launch[1], w->arm, k);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *one = json_object();
        json_object_set_new(one, "op", ds_json_text(k[i].launch->op));
        json_object_set_new(one, "variant", ds_json_text(k[i].launch->variant));
        json_object_set_new(one, "summary", ds_json_text(k[i].text));
        json_object_set_new(one, "other_build", json_boolean(k[i].other_build));
        json_array_append_new(list, one);
    }
    json_object_set_new(j, "kernels", list);
    return 0;
}

static json_t *rows_json(const struct ds_report_view *w, const struct ds_census_site *c)
{
    json_t *list = json_array();
    for (size_t i = 0; c->unstable && i < ds_analysis_rows(w->a); i++) {
        const struct ds_census_row *x = &c->rows[i];
        const struct ds_row_key *k = ds_analysis_row(w->a, i);
        if (x->values < 2)
            continue;
        json_t *j = json_object();
        json_object_set_new(j, "request", json_integer(k->request));
        json_object_set_new(j, "position", json_integer(k->position));
        json_object_set_new(j, "occurrence", json_integer(k->occurrence));
        json_object_set_new(j, "trials", json_integer(x->trials));
        json_object_set_new(j, "values", json_integer(x->values));
        json_object_set_new(j, "modal", json_integer(x->modal));
        json_object_set_new(j, "digest", ds_json_digest(x->digest));
        json_array_append_new(list, j);
    }
    return list;
}

/* What the repeats of both arms gave there; of one arm, where they are held against each other. */
static int add_repeats(json_t *j, const struct ds_report_view *w, uint32_t site,
                       struct ds_error *err)
{
    const uint32_t arms[2] = {w->ref, w->arm};
    json_t *list = json_array();
    json_object_set_new(j, "repeats", list);
    for (int i = w->arm == w->ref; i < 2; i++) {
        struct ds_census_site c;
        if (ds_analysis_trials(w->a, arms[i]) < 2)
            continue;
        if (ds_census_site(w->a, arms[i], site, &c, err) != 0)
            return -1;
        json_t *one = json_object();
        json_object_set_new(one, "arm", json_integer(ds_report_own_arm(w->r, arms[i])));
        if (w->r->diff)
            json_object_set_new(one, "record", json_string(arms[i] % 2 ? "B" : "A"));
        json_object_set_new(one, "trials", json_integer(c.trials));
        json_object_set_new(one, "rows", json_integer(c.with));
        json_object_set_new(one, "unstable_rows", json_integer(c.unstable));
        json_object_set_new(one, "most_values", json_integer(c.most));
        json_object_set_new(one, "least_modal", c.unstable ? json_integer(c.least) : json_null());
        json_object_set_new(one, "unstable", rows_json(w, &c));
        json_array_append_new(list, one);
        ds_census_site_free(&c);
    }
    return 0;
}

int ds_render_site_json(const struct ds_report_view *w, uint32_t site, struct ds_buf *out,
                        struct ds_error *err)
{
    const struct ds_site *s = &w->s->header->sites[site];
    struct ds_site_profile p;
    if (ds_analysis_site(w->a, w->arm, w->ref, site, &p, err) != 0)
        return -1;
    ds_json_begin();
    json_t *j = json_object();
    if (add_kernels(j, w, site, err) != 0 || add_repeats(j, w, site, err) != 0) {
        json_decref(j);
        ds_site_profile_free(&p);
        return -1;
    }
    json_object_set_new(j, "schema", json_string("driftscope.site/1"));
    json_object_set_new(j, "layer", json_integer(s->layer));
    json_object_set_new(j, "stage", ds_json_text(s->stage));
    json_object_set_new(j, "part", ds_json_text(s->part));
    json_object_set_new(j, "op", ds_json_text(s->op));
    json_object_set_new(j, "dtype", ds_json_text(s->dtype));
    json_object_set_new(j, "width", json_integer(s->width));
    json_object_set_new(j, "max_abs", json_null());
    json_object_set_new(j, "range", json_null());
    for (size_t i = 0; i < w->r->v->n_ranges; i++)
        if (w->r->v->ranges[i].site == site && w->r->header) {
            json_object_set_new(j, "max_abs", ds_json_real((double)w->r->v->ranges[i].max_abs));
            json_object_set_new(j, "range", ds_json_range_at(w->r, &w->r->v->ranges[i]));
        }
    json_object_set_new(j, "finding", ds_json_finding(w->r, &p.at));
    json_object_set_new(j, "per_head", parts_json("head", p.heads, p.n_heads));
    json_object_set_new(j, "per_channel", parts_json("channel", p.channels, p.n_channels));
    json_object_set_new(j, "per_position", parts_json("position", p.positions, p.n_positions));
    ds_site_profile_free(&p);
    return ds_json_print(j, out, err);
}
