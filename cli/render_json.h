/* render_json.h: inside cli/ only: values of JSON that its renderers share. Memory that runs out is
 * noticed by ds_render_verdict_json. */
#ifndef DS_RENDER_JSON_H
#define DS_RENDER_JSON_H

#include "cli/render_verdict.h"

#include <jansson.h>

/* Escaped; null for NULL. */
json_t *ds_json_text(const char *s);
/* NaN and Inf as strings. */
json_t *ds_json_real(double x);
json_t *ds_json_whole(uint64_t x);

/* render_census.c: the section "repeat"; null when no arm has two trials. */
json_t *ds_json_census(const struct ds_render *r);

#endif
