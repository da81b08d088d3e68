/* render_check_json.c: what `driftscope check` found as one JSON object, schema driftscope.check/1. */
#include "cli/json.h"
#include "cli/render_check.h"

#include "kernels/registry.h"

#include <string.h>

static void set(json_t *to, const char *name, json_t *value)
{
    json_object_set_new(to, name, value);
}

static void append(json_t *to, json_t *value)
{
    json_array_append_new(to, value);
}

static json_t *(*const text)(const char *) = ds_json_text;
static json_t *(*const real)(double) = ds_json_real;
static json_t *(*const whole)(uint64_t) = ds_json_whole;

static json_t *shape_text(const struct ds_shape *s)
{
    struct ds_buf b = {0};
    ds_shape_print(&b, s);
    return ds_json_buf(&b);
}

/* "1-3 | 4-7 | 8-" as a list. */
static json_t *classes(const char *s)
{
    json_t *list = json_array();
    while (*s) {
        const char *end = strstr(s, " | ");
        size_t len = end ? (size_t)(end - s) : strlen(s);
        append(list, json_stringn(s, len));
        s += end ? len + 3 : len;
    }
    return list;
}

static json_t *smallest(const struct ds_property_result *p, const struct ds_shape *shape)
{
    if (p->state != DS_STATE_BROKEN)
        return json_null();
    json_t *j = json_object();
    set(j, "pair", text(p->smallest));
    set(j, "shape", shape_text(shape));
    set(j, "elements", json_integer(p->smallest_size.elements));
    set(j, "max_ulp", whole(p->smallest_size.max_ulp));
    set(j, "max_abs", real(p->smallest_size.max_abs));
    set(j, "launches",
        p->choice[0][0] ? json_pack("[s, s]", p->choice[0], p->choice[1]) : json_null());
    set(j, "same_launch", p->choice[0][0] ? json_boolean(p->same_choice) : json_null());
    set(j, "values_equal",
        json_boolean(p->smallest_size.values_equal && p->smallest_size.elements));
    return j;
}

/* What is counted, at one shape or over all. */
struct counts {
    int64_t compared, differ, not_tried;
};

/* `of` is the result from which classes and the break are taken, state and counts are given. */
static json_t *property(const struct ds_kernel *k, int i, int state, const struct counts *n,
                        const struct ds_property_result *of, const struct ds_shape *shape)
{
    static const char *const states[] = {"not-run", "not-applicable", "holds", "broken"};
    json_t *j = json_object();
    set(j, "property", text(ds_property_name(i)));
    set(j, "claimed", json_boolean((k->claims & ds_property_claim(i)) != 0));
    set(j, "holds", state < DS_STATE_HOLDS ? json_null() : json_boolean(state == DS_STATE_HOLDS));
    set(j, "state", text(states[state]));
    set(j, "compared", json_integer(n->compared));
    set(j, "differ", json_integer(n->differ));
    set(j, "not_tried", json_integer(n->not_tried));
    set(j, "classes", classes(of->classes));
    set(j, "classes_of", text(of->classes_of));
    set(j, "classes_at", text(of->classes_at));
    set(j, "smallest_break", smallest(of, shape));
    set(j, "note", text(of->note));
    return j;
}

static json_t *faults(const struct ds_check_result *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_faults; i++) {
        const struct ds_check_fault *x = &r->fault[i];
        json_t *j = json_object();
        struct ds_buf b = {0};
        ds_fault_print(&b, &x->fault);
        set(j, "what", ds_json_buf(&b));
        set(j, "array", text(x->fault.array));
        set(j, "setting", text(x->setting));
        set(j, "property", text(ds_property_name(x->property)));
        set(j, "times", json_integer(x->times));
        append(list, j);
    }
    return list;
}

static json_t *accuracy(const struct ds_accuracy *a)
{
    if (!a->elements)
        return json_null();
    json_t *j = json_object();
    set(j, "elements", json_integer(a->elements));
    set(j, "wrong", json_integer(a->wrong));
    set(j, "max_ulp", real(a->max_ulp));
    set(j, "rms_ulp", real(a->rms_ulp));
    set(j, "max_bound", a->max_bound < 0 ? json_null() : real(a->max_bound));
    set(j, "rms_bound", a->max_bound < 0 ? json_null() : real(a->rms_bound));
    set(j, "worst", text(a->worst_at));
    return j;
}

static json_t *speeds(const struct ds_check_result *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_speeds; i++) {
        const struct ds_speed_point *p = &r->speed[i];
        json_t *j = json_object();
        set(j, "rows", json_integer(p->rows));
        set(j, "threads", json_integer(p->threads));
        if (p->kv_len)
            set(j, "kv_len", json_integer(p->kv_len));
        set(j, "seconds", real(p->seconds));
        set(j, "gflops", real(2 * p->work / p->seconds / 1e9));
        set(j, "gbytes", real(p->bytes / p->seconds / 1e9));
        set(j, "vendor", text(r->vendor));
        set(j, "ratio_to_vendor", p->ratio > 0 ? real(p->ratio) : json_null());
        set(j, "low", real(p->low));
        set(j, "high", real(p->high));
        append(list, j);
    }
    return list;
}

static json_t *at_shape(const struct ds_kernel *k, const struct ds_shape *s,
                        const struct ds_check_result *r)
{
    json_t *j = json_object(), *list = json_array();
    for (int p = 0; p < DS_PROPERTY_COUNT; p++) {
        const struct ds_property_result *x = &r->property[p];
        const struct counts here = {x->compared, x->differ, x->not_tried};
        append(list, property(k, p, x->state, &here, x, s));
    }
    set(j, "shape", shape_text(s));
    set(j, "stages", text(s->name));
    set(j, "reason", text(r->why_not));
    set(j, "properties", list);
    set(j, "accuracy", accuracy(&r->accuracy));
    set(j, "speed", speeds(r));
    set(j, "faults", faults(r));
    set(j, "launches", json_integer(r->launches));
    return j;
}

static json_t *variant(const struct ds_checked *v)
{
    static const char *const names[] = {"repeat", "batch", "slot", "threads", "chunk"};
    json_t *j = json_object(), *claims = json_array(), *list = json_array(), *shapes = json_array();
    size_t at;
    int failure = ds_checked_failure(v, &at);
    for (int i = 0; i < 5; i++)
        if (v->kernel->claims >> i & 1)
            append(claims, json_string(names[i]));
    set(j, "op", text(ds_op_name(v->kernel->op)));
    set(j, "variant", text(v->kernel->name));
    set(j, "claims", claims);
    set(j, "ran", json_boolean(ds_checked_ran(v)));
    set(j, "failure", failure < 0 ? json_null() : text(ds_property_name(failure)));
    for (int p = 0; p < DS_PROPERTY_COUNT && v->n; p++) {
        int state = ds_checked_state(v, p, &at);
        const struct counts all = {ds_checked_compared(v, p), ds_checked_differ(v, p),
                                   ds_checked_not_tried(v, p)};
        append(list,
               property(v->kernel, p, state, &all, &v->result[at].property[p], &v->shape[at]));
    }
    set(j, "properties", list);
    for (size_t i = 0; i < v->n; i++)
        append(shapes, at_shape(v->kernel, &v->shape[i], &v->result[i]));
    set(j, "shapes", shapes);
    return j;
}

int ds_render_check_json(struct ds_buf *b, const struct ds_checked *v, size_t n,
                         struct ds_error *err)
{
    ds_json_begin();
    json_t *top = json_object(), *list = json_array();
    size_t at, ran = 0, broken = 0;
    for (size_t i = 0; i < n; i++) {
        ran += (size_t)ds_checked_ran(&v[i]);
        broken += ds_checked_failure(&v[i], &at) >= 0;
        append(list, variant(&v[i]));
    }
    set(top, "schema", json_string("driftscope.check/1"));
    set(top, "result", json_string(broken ? "broken" : ran ? "holds" : "nothing"));
    set(top, "variants", list);
    return ds_json_print(top, b, err);
}
