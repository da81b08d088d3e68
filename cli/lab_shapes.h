/* lab_shapes.h: inside cli/ only: the shapes at which the lab judges an op, from -m or --shape. */
#ifndef DS_CLI_LAB_SHAPES_H
#define DS_CLI_LAB_SHAPES_H

#include "cli/cli.h"
#include "engine/model.h"
#include "kernels/lab/shape.h"

/* What the user asked for: --shape, else the shapes of -m. Without a model in the cache the sizes of
 * SmolLM2-135M are used, and a note says so. *model is what -m names ("" with --shape). */
int ds_lab_shapes(const struct ds_options *o, int op, struct ds_shape **out, size_t *n, char *model,
                  size_t model_size, struct ds_error *err);

#endif
