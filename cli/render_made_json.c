/* render_made_json.c: what records were made with: driftscope.environment/1 and driftscope.weights/1. Judges
 * nothing. */
#include "cli/render_json.h"

#include <inttypes.h>
#include <stdio.h>

static json_t *text_or_null(const char *s)
{
    return s ? ds_json_text(s) : json_null();
}

int ds_render_environment_json(const struct ds_env_of *w, struct ds_buf *out, struct ds_error *err)
{
    struct ds_env e;
    struct ds_env_texts x;
    char heading[512];
    int rc = ds_env_make(&e, w, err);
    if (rc != 0) {
        ds_env_free(&e);
        return rc;
    }
    ds_json_begin();
    json_t *j = json_object(), *lists = json_array(), *entries = NULL;
    for (size_t i = 0; i < e.n; i++) {
        const struct ds_env_row *r = &e.rows[i];
        if (r->kind == DS_ENV_HEADING || !entries) {
            ds_env_heading(&e, r, heading);
            json_t *list = json_object();
            entries = json_array();
            json_object_set_new(list, "list", ds_json_text(heading));
            json_object_set_new(list, "entries", entries);
            json_array_append_new(lists, list);
            if (r->kind == DS_ENV_HEADING)
                continue;
        }
        ds_env_row_texts(&e, w, r, &x);
        json_t *one = json_object();
        json_object_set_new(one, "name", ds_json_text(x.name));
        json_object_set_new(one, "a", text_or_null(x.text[0]));
        json_object_set_new(one, "b", text_or_null(e.two && r->equal ? x.text[0] : x.text[1]));
        json_array_append_new(entries, one);
    }
    json_object_set_new(j, "schema", json_string("driftscope.environment/1"));
    json_object_set_new(j, "records", json_integer(1 + e.two));
    json_object_set_new(j, "lists", lists);
    json_object_set_new(j, "differ", e.two ? json_integer((json_int_t)e.n_differ) : json_null());
    json_object_set_new(j, "equal", e.two ? json_integer((json_int_t)e.n_equal) : json_null());
    ds_env_free(&e);
    return ds_json_print(j, out, err);
}

static json_t *digest_json(uint64_t digest)
{
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, digest);
    return json_string(text);
}

static json_t *side_json(const struct ds_weight_row *r, int side)
{
    const struct ds_record_weight *w = r->w[side];
    if (!w)
        return json_null();
    json_t *j = json_object(), *packed = json_array();
    for (size_t i = 0; i < r->n_packed[side]; i++) {
        const struct ds_packed *p = &r->packed[side][i];
        json_t *one = json_object();
        json_object_set_new(one, "variant", ds_json_text(p->variant));
        json_object_set_new(one, "rank", p->rank >= 0 ? json_integer(p->rank) : json_null());
        json_object_set_new(one, "bytes", ds_json_whole(p->bytes));
        json_object_set_new(one, "digest", digest_json(p->digest));
        json_array_append_new(packed, one);
    }
    json_object_set_new(j, "dtype", ds_json_text(w->dtype));
    json_object_set_new(j, "rows", json_integer(w->rows));
    json_object_set_new(j, "cols", json_integer(w->cols));
    json_object_set_new(j, "loaded", w->loaded ? digest_json(w->loaded) : json_null());
    json_object_set_new(j, "dequantised", digest_json(w->digest));
    json_object_set_new(j, "packed", packed);
    return j;
}

int ds_render_weights_json(const struct ds_weight_list *o, struct ds_buf *out, struct ds_error *err)
{
    ds_json_begin();
    json_t *j = json_object(), *list = json_array(), *held = json_array();
    for (size_t i = 0; i < o->n; i++) {
        const struct ds_weight_row *r = &o->rows[i];
        json_t *one = json_object(), *differs = json_array();
        for (int stage = 0; stage < DS_WEIGHT_STAGES; stage++)
            if (r->differs >> stage & 1u)
                json_array_append_new(differs, json_string(ds_weight_stage(stage)));
        json_object_set_new(one, "name", ds_json_text(r->w[0] ? r->w[0]->name : r->w[1]->name));
        json_object_set_new(one, "a", side_json(r, 0));
        json_object_set_new(one, "b", side_json(r, 1));
        json_object_set_new(one, "differs", differs);
        json_array_append_new(list, one);
    }
    for (int stage = 0; o->two && stage < DS_WEIGHT_STAGES; stage++) {
        json_t *one = json_object();
        json_object_set_new(one, "stage", json_string(ds_weight_stage(stage)));
        json_object_set_new(one, "compared", json_integer((json_int_t)o->held[stage]));
        json_object_set_new(one, "differ", json_integer((json_int_t)o->n_differ[stage]));
        json_array_append_new(held, one);
    }
    json_object_set_new(j, "schema", json_string("driftscope.weights/1"));
    json_object_set_new(j, "records", json_integer(1 + o->two));
    json_object_set_new(j, "weights", list);
    json_object_set_new(j, "stages", held);
    json_object_set_new(j, "in_one_only", json_integer((json_int_t)o->alone));
    return ds_json_print(j, out, err);
}
