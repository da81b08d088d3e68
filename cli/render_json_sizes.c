/* render_json_sizes.c: the verdict's JSON about sizes: growth, error added and by whom, the range of the
 * values. */
#include "cli/render_json.h"

#include "base/dtype.h"

static json_t *(*const text)(const char *) = ds_json_text;
static json_t *(*const real)(double) = ds_json_real;
static json_t *(*const whole)(uint64_t) = ds_json_whole;

static json_t *layer_added_json(const struct ds_verdict *v, const struct ds_growth *g)
{
    if (v->n_added == 0)
        return json_null();
    json_t *j = json_object();
    json_object_set_new(j, "rows", json_integer(g->added_rows));
    json_object_set_new(j, "stage", text(g->added_stage));
    json_object_set_new(j, "part", text(g->added_part));
    json_object_set_new(j, "max_ulp", whole(g->added_max_ulp));
    json_object_set_new(j, "relative_rms", real(g->added_relative_rms));
    json_object_set_new(j, "rms", real(g->added_rms));
    return j;
}

json_t *ds_json_growth(const struct ds_verdict *v)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->n_growth; i++) {
        json_t *j = json_object();
        json_object_set_new(j, "layer", json_integer(v->growth[i].layer));
        json_object_set_new(j, "rows", json_integer(v->growth[i].rows));
        json_object_set_new(j, "max_ulp", whole(v->growth[i].max_ulp));
        json_object_set_new(j, "relative_rms", real(v->growth[i].relative_rms));
        json_object_set_new(j, "added", layer_added_json(v, &v->growth[i]));
        json_array_append_new(list, j);
    }
    return list;
}

/* Of the pair of the first drift, site by site: what it adds on equal inputs, and what stands there. */
json_t *ds_json_added(const struct ds_verdict *v)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->n_added; i++) {
        const struct ds_added *x = &v->added[i];
        json_t *j = json_object(), *natural = json_object();
        json_object_set_new(j, "site", json_integer(x->site));
        json_object_set_new(j, "layer", json_integer(x->layer));
        json_object_set_new(j, "stage", text(x->stage));
        json_object_set_new(j, "part", text(x->part));
        json_object_set_new(j, "rows", json_integer(x->rows));
        json_object_set_new(j, "max_ulp", whole(x->max_ulp));
        json_object_set_new(j, "relative_rms", real(x->relative_rms));
        json_object_set_new(j, "rms", real(x->rms));
        json_object_set_new(natural, "rows", json_integer(x->natural_rows));
        json_object_set_new(natural, "max_ulp", whole(x->natural_max_ulp));
        json_object_set_new(natural, "relative_rms", real(x->natural_relative_rms));
        json_object_set_new(natural, "rms", real(x->natural_rms));
        json_object_set_new(j, "natural", natural);
        json_array_append_new(list, j);
    }
    return list;
}

json_t *ds_json_origins(const struct ds_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->v->n_origins; i++) {
        const struct ds_origin *o = &r->v->origins[i];
        json_t *j = json_object(), *added = o->sized ? json_object() : json_null();
        json_object_set_new(j, "op", text(o->op));
        json_object_set_new(j, "variant", text(o->variant));
        json_object_set_new(j, "stage", text(o->stage));
        json_object_set_new(j, "part", text(o->part));
        json_object_set_new(j, "digests", whole(o->digests));
        json_object_set_new(j, "layers", json_integer(o->layers));
        json_object_set_new(j, "site", json_integer(o->site));
        json_object_set_new(j, "layer", json_integer(o->layer));
        json_object_set_new(j, "factor", text(o->factor));
        json_object_set_new(j, "value", text(o->value));
        json_object_set_new(j, "arm", json_integer(ds_report_own_arm(r, o->arm)));
        json_object_set_new(j, "reference_arm", json_integer(ds_report_own_arm(r, o->ref_arm)));
        if (o->sized) {
            json_object_set_new(added, "relative_rms", real(o->relative_rms));
            json_object_set_new(added, "layer", json_integer(o->largest_layer));
            json_object_set_new(added, "max_ulp", whole(o->max_ulp));
        }
        json_object_set_new(j, "added", added);
        if (o->at.found) {
            json_object_set_new(j, "evidence_pass", json_string(o->healed ? "heal" : "natural"));
            json_object_set_new(j, "rows", json_integer(o->at.rows));
            ds_json_evidence(j, &o->at);
        }
        json_array_append_new(list, j);
    }
    return list;
}

json_t *ds_json_range_at(const struct ds_report *r, const struct ds_range_at *x)
{
    const struct ds_site *s = &r->header->sites[x->site];
    json_t *j = json_object();
    json_object_set_new(j, "layer", json_integer(s->layer));
    json_object_set_new(j, "stage", text(s->stage));
    json_object_set_new(j, "part", text(s->part));
    json_object_set_new(j, "max_abs", real((double)x->max_abs));
    const int own = ds_dtype_parse(ds_site_dtype(r->header, x->site, r->v->ref_arm));
    json_object_set_new(j, "dtype", own < 0 ? json_null() : json_string(ds_dtype_name(own)));
    json_object_set_new(j, "headroom_bits",
                        own < 0 || own == DS_I32 ? json_null()
                                                 : real(ds_headroom((double)x->max_abs, own)));
    json_object_set_new(j, "f16_headroom_bits", real(ds_headroom((double)x->max_abs, DS_F16)));
    json_object_set_new(j, "request", json_integer(x->request));
    json_object_set_new(j, "position", json_integer(x->position));
    return j;
}

/* The largest value of all, and of each layer. */
json_t *ds_json_range(const struct ds_report *r)
{
    const struct ds_verdict *v = r->v;
    const struct ds_range_at *largest = NULL, *of_layer = NULL;
    if (v->n_ranges == 0 || !r->header)
        return json_null();
    json_t *j = json_object(), *layers = json_array();
    for (size_t i = 0; i < v->n_ranges; i++) {
        const struct ds_range_at *x = &v->ranges[i];
        int32_t layer = r->header->sites[x->site].layer;
        if (of_layer && r->header->sites[of_layer->site].layer != layer) {
            json_array_append_new(layers, ds_json_range_at(r, of_layer));
            of_layer = NULL;
        }
        of_layer = !of_layer || x->max_abs > of_layer->max_abs ? x : of_layer;
        largest = !largest || x->max_abs > largest->max_abs ? x : largest;
    }
    json_array_append_new(layers, ds_json_range_at(r, of_layer));
    json_object_set_new(j, "largest", ds_json_range_at(r, largest));
    json_object_set_new(j, "layers", layers);
    return j;
}
