/* placement.h: which layers lie on which device, as text and as numbers. Knows no buffers. */
#ifndef DS_PLACEMENT_H
#define DS_PLACEMENT_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { DS_MOST_DEVICES = 8, DS_MOST_PLACES = 16, DS_MOST_RANKS = 8 };

/* n = 0: one device has all layers. */
struct ds_placement {
    int32_t n;
    struct {
        int32_t first, last; /* layers; last < 0: to the end */
        int32_t device;
    } part[DS_MOST_PLACES];
};

/* "one", or "layers=0-14:cpu0;15-:cpu1" (a comma does as well as ';'): ascending ranges without gaps
 * that begin with layer 0 and whose last one is open or, when the model is known, ends with its last
 * layer. */
int ds_placement_parse(const char *text, struct ds_placement *out, struct ds_error *err);
/* The text in its shortest form. */
void ds_placement_print(const struct ds_placement *p, char *text, size_t size);
/* Whether it fits a model of so many layers. */
int ds_placement_check(const struct ds_placement *p, int32_t n_layers, struct ds_error *err);

int32_t ds_placement_device(const struct ds_placement *p, int32_t layer);
/* Whether the rows that enter this layer come from another device. */
int ds_placement_boundary(const struct ds_placement *p, int32_t layer);

#endif
