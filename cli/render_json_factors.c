/* render_json_factors.c: of the verdict's JSON, what it says of each factor and each kernel. Must not judge
 * anything. */
#include "cli/render_json.h"

#include <string.h>

static json_t *(*const text)(const char *) = ds_json_text;
static json_t *(*const real)(double) = ds_json_real;
static json_t *(*const whole)(uint64_t) = ds_json_whole;

static json_t *classes_json(const struct ds_factor_verdict *f, const uint32_t *class_of,
                            uint32_t n_classes)
{
    json_t *list = json_array();
    for (uint32_t c = 0; c < n_classes; c++) {
        json_t *one = json_array();
        for (uint32_t i = 0; i < f->n_values; i++)
            if (class_of[i] == c)
                json_array_append_new(one, text(f->values[i]));
        json_array_append_new(list, one);
    }
    return list;
}

/* Values whose class is not that of the value before. */
static json_t *switches_json(const struct ds_factor_verdict *f, const uint32_t *class_of)
{
    json_t *list = json_array();
    uint32_t last = DS_NO_CLASS;
    for (uint32_t i = 0; i < f->n_values; i++) {
        if (class_of[i] == DS_NO_CLASS)
            continue;
        if (last != DS_NO_CLASS && class_of[i] != last)
            json_array_append_new(list, text(f->values[i]));
        last = class_of[i];
    }
    return list;
}

json_t *ds_json_factors(const struct ds_report *r)
{
    static const char *const names[DS_VERDICT_PHASES] = {"all", "prefill", "decode"};
    json_t *list = json_array();
    for (size_t i = 0; i < r->v->n_factors; i++)
        for (int p = 0; p < DS_VERDICT_PHASES; p++) {
            const struct ds_factor_verdict *f = &r->v->factors[i];
            const struct ds_factor_phase *x = &f->phase[p];
            json_t *j = json_object();
            json_object_set_new(j, "factor", text(f->name));
            json_object_set_new(j, "phase", text(names[p]));
            json_object_set_new(j, "classes", classes_json(f, x->class_of, x->n_classes));
            json_object_set_new(j, "switches", switches_json(f, x->class_of));
            json_object_set_new(j, "first_drift", ds_json_finding(r, &x->first));
            json_object_set_new(j, "compared", whole(x->compared));
            json_object_set_new(j, "drifted", whole(x->drifted));
            json_object_set_new(j, "unstable", whole(x->unstable));
            json_object_set_new(j, "rows", json_integer(x->rows));
            json_object_set_new(j, "arms", json_integer(f->arms));
            json_object_set_new(j, "arms_missing", json_integer(f->arms_alone));
            json_array_append_new(list, j);
        }
    return list;
}

static json_t *rows_json(const struct ds_switches *s)
{
    json_t *list = json_array();
    for (uint32_t i = 0; s && i < s->n; i++)
        json_array_append_new(list, json_integer(s->rows[i]));
    return list;
}

json_t *ds_json_kernels(const struct ds_verdict *v)
{
    json_t *list = json_array();
    for (size_t k = 0; k < v->n_kernels; k++) {
        const struct ds_kernel_verdict *x = &v->kernels[k];
        json_t *j = json_object(), *conditions = json_object(), *by = json_array(),
               *sites = json_object(), *layers = json_object();
        const struct ds_switches *base = NULL;
        for (size_t f = 0; f < v->n_factors; f++)
            json_object_set_new(conditions, v->factors[f].name,
                                text(ds_condition_name(x->condition[f])));
        for (size_t f = 1; f < v->n_factors; f++) {
            json_object_set_new(sites, v->factors[f].name, json_integer(x->count[f].sites));
            json_object_set_new(layers, v->factors[f].name, json_integer(x->count[f].layers));
        }
        for (uint32_t i = 0; i < x->n_switches; i++) {
            json_t *one = json_object();
            if (!x->switches[i].setting[0])
                base = &x->switches[i];
            json_object_set_new(one, "setting", text(x->switches[i].setting));
            json_object_set_new(one, "rows", rows_json(&x->switches[i]));
            json_array_append_new(by, one);
        }
        json_object_set_new(j, "op", text(x->op));
        json_object_set_new(j, "variant", text(x->variant));
        json_object_set_new(j, "conditions", conditions);
        json_object_set_new(j, "origin_sites", sites);
        json_object_set_new(j, "origin_layers", layers);
        json_object_set_new(j, "switches_rows", rows_json(base));
        json_object_set_new(j, "switches_by_setting", by);
        json_object_set_new(j, "origins", whole(x->origins));
        json_object_set_new(j, "healed", whole(x->healed));
        json_object_set_new(j, "within", whole(x->within));
        json_object_set_new(j, "inherited", whole(x->inherited));
        json_object_set_new(j, "unknown", whole(x->unknown));
        json_object_set_new(j, "unstable", whole(x->unstable));
        json_object_set_new(j, "compared", whole(x->compared));
        json_object_set_new(j, "on_equal_inputs", whole(x->judged));
        json_array_append_new(list, j);
    }
    return list;
}

json_t *ds_json_precisions(const struct ds_verdict *v)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->n_precisions; i++) {
        const struct ds_precisions *x = &v->precisions[i];
        json_t *j = json_object(), *of = json_array();
        for (uint32_t k = 0; k < x->n; k++) {
            json_t *one = json_object();
            json_object_set_new(one, "dtype", text(x->of[k].dtype));
            json_object_set_new(one, "arms", json_integer(x->of[k].arms));
            json_object_set_new(one, "rows", json_integer(x->of[k].rows));
            json_object_set_new(one, "relative_rms", real(x->of[k].relative_rms));
            json_array_append_new(of, one);
        }
        json_object_set_new(j, "factor", text(x->factor));
        json_object_set_new(j, "site", json_integer(x->site));
        json_object_set_new(j, "verdict", text(ds_precision_name(x->verdict)));
        json_object_set_new(j, "formats", of);
        json_array_append_new(list, j);
    }
    return list;
}

json_t *ds_json_bands(const struct ds_verdict *v)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->n_bands; i++) {
        const struct ds_band *x = &v->bands[i];
        json_t *j = json_object();
        json_object_set_new(j, "op", text(x->op));
        json_object_set_new(j, "variant", text(x->variant));
        json_object_set_new(j, "factor", text(x->factor));
        json_object_set_new(j, "phase", text(ds_phase_name(x->phase)));
        json_object_set_new(j, "measure", text(x->measure));
        json_object_set_new(j, "differ", text(x->differ));
        json_object_set_new(j, "equal", text(x->equal));
        json_array_append_new(list, j);
    }
    return list;
}
