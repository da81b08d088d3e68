/* render_profile.h: inside cli/ only: where and how much a site differs, per head, channel and
 * position. */
#ifndef DS_RENDER_PROFILE_H
#define DS_RENDER_PROFILE_H

#include "cli/render_site.h"

/* As text: the finding in a few lines, then a table each. Nothing when no row drifts. */
int ds_render_profile(const struct ds_site_view *w, uint32_t site, struct ds_buf *out,
                      struct ds_error *err);
/* The site as one object, driftscope.site/1. */
int ds_render_site_json(const struct ds_site_view *w, uint32_t site, struct ds_buf *out,
                        struct ds_error *err);

#endif
