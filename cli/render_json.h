/* render_json.h: inside cli/ only: parts of the verdict's JSON that its renderers share. */
#ifndef DS_RENDER_JSON_H
#define DS_RENDER_JSON_H

#include "cli/json.h"
#include "report/environment.h"
#include "report/report.h"
#include "report/weights.h"

/* The verdict as one object, driftscope.verdict/1, with a newline. */
int ds_render_verdict_json(const struct ds_report *r, struct ds_buf *out, struct ds_error *err);
/* render_site_json.c: a site as one object, driftscope.site/1, likewise. */
int ds_render_site_json(const struct ds_report_view *w, uint32_t site, struct ds_buf *out,
                        struct ds_error *err);

/* A finding of the verdict; null when nothing was found. */
json_t *ds_json_finding(const struct ds_report *r, const struct ds_finding *f);

/* render_json_factors.c: arrays of factors, kernels, formats, sizes at which bits change. */
json_t *ds_json_factors(const struct ds_report *r);
json_t *ds_json_kernels(const struct ds_verdict *v);
json_t *ds_json_precisions(const struct ds_verdict *v);
json_t *ds_json_bands(const struct ds_verdict *v);
/* render_json_sizes.c: growth by layer; error added, site by site; independent origins; range, or null. */
/* Adds where a finding differs, what it is and why. */
void ds_json_evidence(json_t *j, const struct ds_finding *f);
json_t *ds_json_growth(const struct ds_verdict *v);
json_t *ds_json_added(const struct ds_verdict *v);
json_t *ds_json_origins(const struct ds_report *r);
/* render_made_json.c */
int ds_render_environment_json(const struct ds_env_of *w, struct ds_buf *out, struct ds_error *err);
int ds_render_weights_json(const struct ds_weight_list *o, struct ds_buf *out,
                           struct ds_error *err);
json_t *ds_json_range(const struct ds_report *r);
json_t *ds_json_range_at(const struct ds_report *r, const struct ds_range_at *x);
/* render_census_json.c: the section "repeat"; null when no arm has two trials. */
json_t *ds_json_census(const struct ds_report *r);
/* The arms that were lost, an array. */
json_t *ds_json_failed(const struct ds_report *r);
/* render_sampler_json.c: how tokens were chosen, from the options of a record; null where it does not say. h may
 * be NULL. */
json_t *ds_json_sampler(const struct ds_header *h);
/* render_damage_json.c: the object "damage". */
json_t *ds_json_damage(const struct ds_report *r);

#endif
