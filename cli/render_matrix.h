/* render_matrix.h: inside cli/ only: pieces that the text renderers share. */
#ifndef DS_RENDER_MATRIX_H
#define DS_RENDER_MATRIX_H

#include "cli/render_verdict.h"

/* "" without options or colour. */
const char *ds_render_color(const struct ds_render *r, enum ds_role role);
/* Escaped. */
void ds_render_name(struct ds_buf *out, const char *text);
void ds_render_matrix(const struct ds_render *r, struct ds_buf *out);

#endif
