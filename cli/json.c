/* json.c: values of JSON as every verb prints them, and the print itself. Knows nothing of what they
 * mean. */
#include "cli/json.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A value that could not be made would be left out without a word: jansson's "set new" swallows it.
 * So its allocations are watched, and ours. */
static int out_of_memory;

json_t *ds_json_text(const char *s)
{
    struct ds_buf b = {0};
    if (!s)
        return json_null();
    ds_buf_escape(&b, s, (size_t)-1);
    out_of_memory |= b.failed;
    json_t *j = json_string(b.failed || !b.data ? "" : b.data);
    ds_buf_free(&b);
    return j;
}

json_t *ds_json_buf(struct ds_buf *b)
{
    out_of_memory |= b->failed;
    json_t *j = ds_json_text(b->failed ? NULL : b->data);
    ds_buf_free(b);
    return j;
}

json_t *ds_json_real(double x)
{
    return isfinite(x) ? json_real(x) : json_string(isnan(x) ? "NaN" : x > 0 ? "Inf" : "-Inf");
}

json_t *ds_json_whole(uint64_t x)
{
    return json_integer(x > INT64_MAX ? INT64_MAX : (json_int_t)x);
}

json_t *ds_json_digest(uint64_t x)
{
    char hex[24];
    snprintf(hex, sizeof hex, "%016" PRIx64, x);
    return json_string(hex);
}

static void *watched_malloc(size_t n)
{
    void *p = ds_calloc(n, 1, "JSON", NULL);
    out_of_memory |= p == NULL;
    return p;
}

void ds_json_begin(void)
{
    out_of_memory = 0;
    json_set_alloc_funcs(watched_malloc, free);
}

static int print(json_t *j, size_t layout, struct ds_buf *out, struct ds_error *err)
{
    char *dump = j ? json_dumps(j, layout | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(j);
    if (!dump || out_of_memory) {
        free(dump);
        return ds_fail(err, "out of memory for the JSON text");
    }
    ds_buf_puts(out, dump);
    ds_buf_puts(out, "\n");
    free(dump);
    return out->failed ? ds_fail(err, "out of memory for the JSON text") : 0;
}

int ds_json_print(json_t *j, struct ds_buf *out, struct ds_error *err)
{
    return print(j, JSON_INDENT(1), out, err);
}

int ds_json_print_line(json_t *j, struct ds_buf *out, struct ds_error *err)
{
    return print(j, JSON_COMPACT, out, err);
}
