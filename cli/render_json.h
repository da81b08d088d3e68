/* render_json.h: inside cli/ only: values of JSON that its renderers share. */
#ifndef DS_RENDER_JSON_H
#define DS_RENDER_JSON_H

#include "cli/render_verdict.h"

#include <jansson.h>

/* Escaped; null for NULL. */
json_t *ds_json_text(const char *s);
/* NaN and Inf as strings. */
json_t *ds_json_real(double x);
json_t *ds_json_whole(uint64_t x);

/* A finding of the verdict; null when nothing was found. */
json_t *ds_json_finding(const struct ds_render *r, const struct ds_finding *f);
/* Before an object is made: from here on memory that runs out is noticed by ds_json_print. */
void ds_json_begin(void);
/* Prints one object with a newline, and lets it go. -1: memory ran out on the way. */
int ds_json_print(json_t *j, struct ds_buf *out, struct ds_error *err);

/* render_census.c: the section "repeat"; null when no arm has two trials. */
json_t *ds_json_census(const struct ds_render *r);

#endif
