/* render_json.h: inside cli/ only: parts of the verdict's JSON that its renderers share. */
#ifndef DS_RENDER_JSON_H
#define DS_RENDER_JSON_H

#include "cli/json.h"
#include "cli/render_verdict.h"

/* A finding of the verdict; null when nothing was found. */
json_t *ds_json_finding(const struct ds_render *r, const struct ds_finding *f);

/* The arm's number in the record that it belongs to. */
uint32_t ds_json_own_arm(const struct ds_render *r, uint32_t arm);
/* render_json_sizes.c: growth by layer; error added, site by site; independent origins; range, or null. */
/* Adds where a finding differs, what it is and why. */
void ds_json_evidence(json_t *j, const struct ds_finding *f);
json_t *ds_json_growth(const struct ds_verdict *v);
json_t *ds_json_added(const struct ds_verdict *v);
json_t *ds_json_origins(const struct ds_render *r);
json_t *ds_json_range(const struct ds_render *r);
/* render_census.c: the section "repeat"; null when no arm has two trials. */
json_t *ds_json_census(const struct ds_render *r);
/* render_failed.c: the arms that were lost, an array. */
json_t *ds_json_failed(const struct ds_render *r);

#endif
