/* render_damage_json.c: what of a record could not be believed, as the JSON of a verdict. */
#include "cli/render_json.h"

enum { MOST_LISTED = 1000 };

static json_t *one_json(const struct ds_report *r, int side, const struct ds_damage *x)
{
    const int t = x->trial != SIZE_MAX;
    const struct ds_site *site = x->dumped && t ? &r->damage[side].header->sites[x->site] : NULL;
    json_t *j = json_object();
    json_object_set_new(j, "what", json_string(x->dumped ? "row" : "trial"));
    if (r->diff)
        json_object_set_new(j, "record", json_string(side ? "B" : "A"));
    json_object_set_new(j, "trial", t ? ds_json_whole(x->trial) : json_null());
    json_object_set_new(j, "arm", t ? json_integer(x->arm) : json_null());
    json_object_set_new(j, "repeat", t ? json_integer(x->repeat) : json_null());
    json_object_set_new(j, "layer", site ? json_integer(site->layer) : json_null());
    json_object_set_new(j, "stage", site ? ds_json_text(site->stage) : json_null());
    json_object_set_new(j, "part", site ? ds_json_text(site->part) : json_null());
    json_object_set_new(j, "request", site ? json_integer(x->request) : json_null());
    json_object_set_new(j, "position", site ? json_integer(x->position) : json_null());
    json_object_set_new(j, "occurrence", site ? json_integer(x->occurrence) : json_null());
    json_object_set_new(j, "rows", ds_json_whole(x->rows));
    json_object_set_new(j, "digest", x->dumped ? ds_json_digest(x->digest) : json_null());
    json_object_set_new(j, "found", x->found ? ds_json_digest(x->found) : json_null());
    json_object_set_new(j, "why", ds_json_text(x->why));
    return j;
}

json_t *ds_json_damage(const struct ds_report *r)
{
    uint64_t rows, trials, unread, bytes;
    json_t *j = json_object(), *list = json_array();
    ds_report_damage_count(r, &rows, &trials);
    ds_report_unread(r, &unread, &bytes);
    for (int side = 0; r->damage && side < 2; side++)
        for (size_t i = 0; i < r->damage[side].n && json_array_size(list) < MOST_LISTED; i++)
            json_array_append_new(list, one_json(r, side, &r->damage[side].list[i]));
    json_object_set_new(
        j, "verified",
        json_boolean(r->damage && r->damage[0].verified && (!r->diff || r->damage[1].verified)));
    json_object_set_new(j, "rows", ds_json_whole(rows));
    json_object_set_new(j, "trials", ds_json_whole(trials));
    json_object_set_new(j, "unread_rows", ds_json_whole(unread));
    json_object_set_new(j, "unread_bytes", ds_json_whole(bytes));
    json_object_set_new(j, "listed", list);
    return j;
}
