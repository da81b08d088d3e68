/* render_census.h: inside cli/ only: the census of repeats as text. */
#ifndef DS_RENDER_CENSUS_H
#define DS_RENDER_CENSUS_H

#include "cli/render_verdict.h"

/* Of the verdict: the first unstable arms in short, and thresholds; nothing when all is stable. */
void ds_render_census(const struct ds_render *r, struct ds_buf *out);
/* Which flake rate the agreeing trials of every arm exclude; nothing where an arm has none. */
void ds_render_excluded(const struct ds_render *r, struct ds_buf *out);
/* All arms with two trials or more (`show --runs`). */
void ds_render_runs(const struct ds_render *r, struct ds_buf *out);

#endif
