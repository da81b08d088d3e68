/* sampler.h: whether a sampler's numbers mean something, and whether kernels can do what it says. The
 * sampler itself is op process and op sample: kernels/driftscope_kernel.h. */
#ifndef DS_SAMPLER_H
#define DS_SAMPLER_H

#include "base/error.h"
#include "kernels/registry.h"

/* What is on where nothing is said: the largest logit, and, once a temperature is given, nothing but that. */
#define DS_SAMPLER_DEFAULT                                                                         \
    ((struct ds_sampler){.top_p = 1.0f, .repetition_penalty = 1.0f, .seed = 1})

/* kernels: may be NULL. A sampler of zeros is the default one. */
int ds_sampler_check(const struct ds_sampler *s, const struct ds_kernel_set *kernels,
                     struct ds_error *err);

/* A built-in kernel of a device that draws no tokens has one of the CPU under its name that does; a kernel of the CPU that
 * draws is its own. NULL: there is none. */
const struct ds_kernel *ds_sampler_stand_in(const struct ds_kernel *k);
/* Whether these do the drawing for such a set: it draws, some kernel cannot, and all have one. */
int ds_sampler_on_host(const struct ds_sampler *s, const struct ds_kernel_set *kernels);

#endif
