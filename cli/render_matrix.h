/* render_matrix.h: inside cli/ only: pieces that the text renderers share. */
#ifndef DS_RENDER_MATRIX_H
#define DS_RENDER_MATRIX_H

#include "cli/render_verdict.h"

/* "" without options or colour. */
const char *ds_render_color(const struct ds_render *r, enum ds_role role);
/* Escaped. */
void ds_render_name(struct ds_buf *out, const char *text);
/* "layer 3 k_rope", "layer 3 kv_write/k"; "matmul/openblas"; the name of a paragraph, padded. */
void ds_render_place(struct ds_buf *out, int32_t layer, const char *stage, const char *part);
void ds_render_kernel(struct ds_buf *out, const char *op, const char *variant);
void ds_render_head(const struct ds_render *r, const char *name, struct ds_buf *out);
/* "7 of 9 arms". */
void ds_render_arms(const struct ds_verdict *v, struct ds_buf *out);
/* Whether arms end at their first trial that disagrees. */
int ds_render_until_stable(const struct ds_render *r);
/* Trials that the plan of the record has; those of both where two are compared. */
uint64_t ds_render_planned(const struct ds_render *r);
/* What beside its place is said of a finding: factor, value, label. */
void ds_render_rest(const struct ds_render *r, const struct ds_finding *f, struct ds_buf *out);
/* The paragraph with the next useful command; nothing where there is none. */
void ds_render_next(const struct ds_render *r, struct ds_buf *out);
/* render_failed.c: the arms that were lost; the first of them for the last line. */
void ds_render_failed(const struct ds_render *r, struct ds_buf *out);
void ds_render_failed_words(const struct ds_render *r, struct ds_buf *out);
void ds_render_matrix(const struct ds_render *r, struct ds_buf *out);

#endif
