/* placement.h: which layers lie on which device, as text and as numbers. Knows no buffers. */
#ifndef DS_PLACEMENT_H
#define DS_PLACEMENT_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Devices by number: 0 to 7 are cpu0 to cpu7, of the kind that the arm's kernels are for; then one each for
 * cpu, sim and cuda:0 to cuda:5. */
enum { DS_MOST_DEVICES = 16, DS_OWN_DEVICES = 8, DS_MOST_PLACES = 16, DS_MOST_RANKS = 8 };

/* n = 0: one device has all layers. */
struct ds_placement {
    int32_t n;
    struct {
        int32_t first, last; /* layers; last < 0: to the end */
        int32_t device;
    } part[DS_MOST_PLACES];
};

/* "one", or "layers=0-14:cpu0;15-:cpu1" or "layers=0-14:sim;15-:cpu" (a comma does as well as ';'): ascending ranges without gaps
 * that begin with layer 0 and whose last one is open or, when the model is known, ends with its last
 * layer. */
int ds_placement_parse(const char *text, struct ds_placement *out, struct ds_error *err);
/* The text in its shortest form. */
void ds_placement_print(const struct ds_placement *p, char *text, size_t size);
/* Whether it fits a model of so many layers. */
int ds_placement_check(const struct ds_placement *p, int32_t n_layers, struct ds_error *err);

int32_t ds_placement_device(const struct ds_placement *p, int32_t layer);
/* The kind of a device (enum ds_device_kind) and its number among those; own: of cpu0 to cpu7, and of sim where
 * those are sim. */
int ds_placement_kind(int32_t device, int own);
int ds_placement_number(int32_t device, int own_kind, int own);
/* Whether rows that go from one to the other go through the host's memory. */
int ds_placement_through_host(int32_t from, int32_t to, int own);
/* Whether the rows that enter this layer come from another device. */
int ds_placement_boundary(const struct ds_placement *p, int32_t layer);

#endif
