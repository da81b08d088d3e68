/* render_risk_json.c: what `risk` found, as JSON. */
#include "cli/render_json.h"
#include "cli/risk.h"

#include <string.h>

static const char *factor(const struct ds_header *h, uint32_t arm, const char *name)
{
    for (size_t f = 0; f < h->n_factors; f++)
        if (strcmp(h->factors[f], name) == 0)
            return h->arms[arm].values[f];
    return "";
}

static json_t *choice_json(const struct ds_risk_choice *c)
{
    json_t *j = json_object(), *ids = json_array(), *logits = json_array();
    json_object_set_new(j, "prompt", json_integer(c->prompt));
    json_object_set_new(j, "request", json_integer(c->ref->request));
    json_object_set_new(j, "step", json_integer(c->ref->step));
    json_object_set_new(j, "margin", ds_json_real((double)c->ref->margin));
    json_object_set_new(j, "drift", ds_json_real(c->drift));
    json_object_set_new(j, "chance", ds_json_real(c->chance));
    json_object_set_new(j, "pairs", json_integer(c->pairs));
    json_object_set_new(j, "seen", json_integer(c->seen));
    for (int k = 0; k < DS_TOP && c->ref->ids[k] >= 0; k++) {
        json_array_append_new(ids, json_integer(c->ref->ids[k]));
        json_array_append_new(logits, ds_json_real((double)c->ref->logits[k]));
    }
    json_object_set_new(j, "ids", ids);
    json_object_set_new(j, "logits", logits);
    return j;
}

static json_t *layers_json(const struct ds_risk_group *g)
{
    json_t *list = json_array();
    for (size_t i = 0; i < g->n_layers; i++) {
        const struct ds_risk_layer *l = &g->layers[i];
        json_t *j = json_object();
        json_object_set_new(j, "layer", json_integer(l->layer));
        json_object_set_new(j, "rows", ds_json_whole(l->rows));
        json_object_set_new(j, "relative_rms_median", ds_json_real(l->median));
        json_object_set_new(j, "relative_rms_needed", ds_json_real(l->needed));
        json_object_set_new(j, "request", json_integer(l->request));
        json_object_set_new(j, "step", json_integer(l->step));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *group_json(const struct ds_risk_result *r, const struct ds_risk_group *g)
{
    const struct ds_header *h = ds_record_header(r->own.record);
    static const char *const margins[] = {"min", "p1", "p10", "p50", "max"};
    static const char *const within[] = {"drift_p50", "drift_p99", "drift_max"};
    json_t *j = json_object(), *m = json_object(), *w = json_object(), *choices = json_array();
    for (int i = 0; i < 5; i++)
        json_object_set_new(m, margins[i], ds_json_real(g->margin[i]));
    for (int i = 0; i < 3; i++)
        json_object_set_new(w, within[i], ds_json_real(g->within[i]));
    for (size_t k = 0; k < g->n_choices && k < r->most; k++)
        json_array_append_new(choices, choice_json(&g->choices[k]));
    json_object_set_new(j, "arm", json_integer(g->arm));
    json_object_set_new(j, "kernels", ds_json_text(factor(h, g->arm, "kernels")));
    json_object_set_new(j, "dtype", ds_json_text(factor(h, g->arm, "dtype")));
    json_object_set_new(j, "choices", ds_json_whole(g->n_choices));
    json_object_set_new(j, "ties", ds_json_whole(g->ties));
    json_object_set_new(j, "not_finite", ds_json_whole(g->blind));
    json_object_set_new(j, "nan_among_logits", ds_json_whole(g->nan));
    json_object_set_new(j, "margin", m);
    json_object_set_new(j, "pairs", ds_json_whole(g->flips.choices));
    json_object_set_new(j, "drift_p50", ds_json_real(g->flips.drift_median));
    json_object_set_new(j, "drift_p99", ds_json_real(g->drift_99));
    json_object_set_new(j, "drift_max", ds_json_real(g->flips.drift_most));
    json_object_set_new(j, "within", w);
    json_object_set_new(j, "expected_per_1000", ds_json_real(g->per_1000));
    json_object_set_new(j, "low_per_1000", g->flips.bounded ? ds_json_real(g->low) : json_null());
    json_object_set_new(j, "high_per_1000", g->flips.bounded ? ds_json_real(g->high) : json_null());
    json_object_set_new(j, "seen", ds_json_whole(g->flips.seen));
    json_object_set_new(j, "seen_per_1000", ds_json_real(g->seen_per_1000));
    json_object_set_new(j, "at_risk", choices);
    json_object_set_new(j, "layers", layers_json(g));
    return j;
}

static json_t *gain_json(const struct ds_risk_gain *x, const char *exchanged)
{
    json_t *j = json_object();
    json_object_set_new(j, "group", json_integer((json_int_t)x->group));
    json_object_set_new(j, "exchanged", ds_json_text(exchanged));
    json_object_set_new(j, "expected_per_1000", ds_json_real(x->expected[1]));
    json_object_set_new(j, "fewer_per_1000", ds_json_real(x->fewer));
    json_object_set_new(j, "low_per_1000", x->bounded ? ds_json_real(x->low) : json_null());
    json_object_set_new(j, "high_per_1000", x->bounded ? ds_json_real(x->high) : json_null());
    static const char *const helps[] = {"makes_more", "not_seen", "yes", "nothing_moves"};
    json_object_set_new(j, "helps", json_string(helps[x->verdict - DS_GAIN_LOSS]));
    return j;
}

static json_t *test_json(const struct ds_risk_result *r, const struct ds_risk_foretold *x)
{
    const struct ds_header *h = ds_record_header(r->own.record);
    const struct ds_risk_test *t = &x->t;
    json_t *j = json_object();
    json_object_set_new(j, "record", ds_json_text(x->path));
    json_object_set_new(j, "kernels",
                        ds_json_text(factor(h, r->risk.groups[t->group].arm, "kernels")));
    json_object_set_new(j, "requests", ds_json_whole(t->requests));
    json_object_set_new(j, "expected", t->known ? ds_json_real(t->expected) : json_null());
    json_object_set_new(j, "low", t->known ? ds_json_real(t->low) : json_null());
    json_object_set_new(j, "high", t->known ? ds_json_real(t->high) : json_null());
    json_object_set_new(j, "seen", ds_json_whole(t->seen));
    const int within = (double)t->seen >= t->low && (double)t->seen <= t->high;
    json_object_set_new(j, "within", t->known ? json_boolean(within) : json_null());
    return j;
}

int ds_risk_json(struct ds_buf *out, const struct ds_risk_result *r, struct ds_error *err)
{
    const struct ds_header *h = ds_record_header(r->own.record);
    ds_json_begin();
    json_t *j = json_object(), *groups = json_array(), *tests = json_array(), *gains = json_array(),
           *precise = json_array();
    for (size_t i = 0; i < r->n_gains; i++)
        json_array_append_new(gains, gain_json(&r->gains[i], r->gains[i].exchanged));
    for (size_t i = 0; i < r->risk.n_groups; i++)
        json_array_append_new(groups, group_json(r, &r->risk.groups[i]));
    for (size_t i = 0; i < r->n_tests; i++)
        json_array_append_new(tests, test_json(r, &r->tests[i]));
    for (size_t i = 0; i < r->n_precise; i++) {
        json_t *x = gain_json(&r->precise[i].g, r->precise[i].stages);
        json_object_set_new(x, "record", ds_json_text(r->precise[i].path));
        json_array_append_new(precise, x);
    }
    json_object_set_new(j, "schema", json_string("driftscope.risk/1"));
    const int code = ds_risk_code(r);
    json_object_set_new(j, "result",
                        json_string(code == DS_EXIT_DRIFT  ? "drift"
                                    : code == DS_EXIT_SAME ? "same"
                                                           : "incomparable"));
    json_object_set_new(j, "model", ds_json_text(h->model_name));
    json_object_set_new(j, "record", ds_json_text(r->own.path));
    json_object_set_new(j, "prompts", ds_json_whole(r->risk.n_prompts));
    json_object_set_new(j, "sampler", ds_json_sampler(h));
    json_object_set_new(j, "groups", groups);
    json_object_set_new(j, "pin_first", gains);
    json_object_set_new(j, "precision", precise);
    json_object_set_new(j, "foretold", tests);
    return ds_json_print(j, out, err);
}
