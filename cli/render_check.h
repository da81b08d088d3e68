/* render_check.h: inside cli/ only: what `driftscope check` found, as text and as JSON. Must not judge
 * anything: failures come from kernels/lab/check.h. */
#ifndef DS_RENDER_CHECK_H
#define DS_RENDER_CHECK_H

#include "cli/cli.h"
#include "kernels/lab/check.h"

/* One variant at all its shapes. */
struct ds_checked {
    const struct ds_kernel *kernel;
    const struct ds_shape *shape; /* [n] */
    const struct ds_check_result *result;
    size_t n;
};

/* Whether anything of it was measured. */
int ds_checked_ran(const struct ds_checked *v);
/* The first failure over all shapes: the property, and where in *at; -1 = none. */
int ds_checked_failure(const struct ds_checked *v, size_t *at);
/* A property over all shapes: broken where it is broken anywhere; *at = the shape of the smallest
 * break. */
int ds_checked_state(const struct ds_checked *v, int property, size_t *at);
int64_t ds_checked_compared(const struct ds_checked *v, int property);
int64_t ds_checked_differ(const struct ds_checked *v, int property);
int64_t ds_checked_not_tried(const struct ds_checked *v, int property);

/* All variants in words; the last line is the verdict. */
void ds_render_check_text(const struct ds_options *o, struct ds_buf *b, const struct ds_checked *v,
                          size_t n);
/* Schema driftscope.check/1. -1 = out of memory. */
int ds_render_check_json(struct ds_buf *b, const struct ds_checked *v, size_t n,
                         struct ds_error *err);

#endif
