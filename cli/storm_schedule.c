/* storm_schedule.c: a serving plan as text, a line a step, and back. Errors name the line. Owns the format
 * only; whether the plan can be run is ds_serve_check's to say. */
#include "cli/storm.h"

#include "base/mem.h"
#include "cli/inputs.h"
#include "cli/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT = 256 << 20 };

/* A whole number of the object; absent: `otherwise`, if that may be. */
static int whole(const json_t *o, const char *name, int64_t otherwise, int32_t *out,
                 struct ds_error *err)
{
    const json_t *v = json_object_get(o, name);
    if (!v && otherwise >= INT32_MIN) {
        *out = (int32_t)otherwise;
        return 0;
    }
    if (!v)
        return ds_fail(err, "a request of the batch has no \"%s\"", name);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX / 2)
        return ds_fail(err, "\"%s\" is no whole number from 0 to %d", name, INT32_MAX / 2);
    *out = (int32_t)json_integer_value(v);
    return 0;
}

static int add_piece(const json_t *o, struct ds_serve_plan *p, struct ds_error *err)
{
    struct ds_serve_piece piece = {.slot = -1};
    const json_t *begins = json_object_get(o, "begins");
    if (!json_is_object(o))
        return ds_fail(err, "the batch has something that is no object");
    if (ds_inputs_members(o, "request|new|cached|slot|begins", err) != 0)
        return -1;
    if (begins && !json_is_boolean(begins))
        return ds_fail(err, "\"begins\" is neither true nor false");
    if (whole(o, "request", INT64_MIN, &piece.request, err) != 0 ||
        whole(o, "new", INT64_MIN, &piece.n_tokens, err) != 0 ||
        whole(o, "cached", INT64_MIN, &piece.cached, err) != 0 ||
        whole(o, "slot", -1, &piece.slot, err) != 0)
        return -1;
    piece.begins = json_is_true(begins);
    return ds_serve_add_piece(p, &piece, err);
}

static int add_line(const char *text, size_t len, struct ds_serve_plan *p, struct ds_error *err)
{
    json_error_t why;
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (!j)
        return ds_fail(err, "no JSON object: %s", why.text);
    const json_t *batch = json_object_get(j, "batch");
    int rc = json_is_array(batch) && json_array_size(batch) > 0
                 ? ds_serve_add_step(p, err)
                 : ds_fail(err, "no \"batch\" with at least one request");
    for (size_t i = 0; rc == 0 && i < json_array_size(batch); i++)
        rc = add_piece(json_array_get(batch, i), p, err);
    json_decref(j);
    return rc == 0 || err->hint[0]
               ? rc
               : ds_hint(err, "a line is a step: {\"batch\": [{\"request\": 0, \"new\": 24, "
                              "\"cached\": 0}]}");
}

int ds_schedule_parse(const char *name, const char *text, size_t len, struct ds_serve_plan *p,
                      struct ds_error *err)
{
    memset(p, 0, sizeof *p);
    size_t line = 1;
    for (const char *at = text, *end = text + len; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if (at + strspn(at, " \t\r\n") >= end)
            break; /* nothing follows */
        if (add_line(at, (size_t)(stop - at), p, err) != 0) {
            ds_serve_plan_free(p);
            return ds_prefix(err, "%s, line %zu", name, line);
        }
        at = stop + 1;
    }
    if (p->n_steps == 0)
        return ds_fail(err, "%s: the schedule has no steps", name);
    return 0;
}

int ds_schedule_read(const char *path, struct ds_serve_plan *p, struct ds_error *err)
{
    struct ds_buf b = {0};
    int rc = ds_cli_read_file("schedule", path, LIMIT, &b, err);
    if (rc == 0)
        rc = ds_schedule_parse(path, b.data ? b.data : "", b.len, p, err);
    ds_buf_free(&b);
    return rc;
}

void ds_schedule_text(const struct ds_serve_plan *p, struct ds_buf *out)
{
    for (size_t s = 0; s < p->n_steps; s++) {
        ds_buf_puts(out, "{\"batch\":[");
        for (size_t k = p->first[s]; k < p->first[s + 1]; k++) {
            const struct ds_serve_piece *x = &p->pieces[k];
            ds_buf_printf(out, "%s{\"request\":%d,\"new\":%d,\"cached\":%d,\"slot\":%d%s}",
                          k > p->first[s] ? "," : "", x->request, x->n_tokens, x->cached, x->slot,
                          x->takes || x->begins ? ",\"begins\":true" : "");
        }
        ds_buf_puts(out, "]}\n");
    }
}
