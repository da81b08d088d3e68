/* site_map.h: the sites of a model and the edges between them as data, made of the table of stages,
 * the model, and what the arms of a sweep want; and where in such a list a stage's site is. Knows
 * no values and no buffers.
 *
 * To add a stage: a row in stages.c with its `when` (and here, if an arm must ask for it, a member
 * of struct ds_site_wants and its line in ds_site_parts). The forward pass shows it with the stage's
 * number; a list without such a site makes that a no-op. */
#ifndef DS_SITE_MAP_H
#define DS_SITE_MAP_H

#include "base/error.h"
#include "dumps/record.h"
#include "engine/stages.h"

#include <stddef.h>
#include <stdint.h>

/* What the arms want to see beyond the model's own stages, all arms together: their sites are the
 * union, and an arm that has no use for a site does not show it. All zero: the plain pass. */
struct ds_site_wants {
    uint64_t unrounded; /* stages with one more site of part "unrounded" (always f32) before their
                           own: what a kernel reads must be seen, or it is blamed for what it was
                           given. See ds_forward_unrounded. */
    int32_t ranks;      /* the most tensor parallel ranks; below 2: no partial sums */
    const uint8_t *boundary; /* [n_layers] not zero: the layer's input comes from another device;
                                NULL: none does */
    int watched;             /* cache rows that a write had no business with */
    int slots;               /* the rows' cache slots */
    int32_t score_keys;      /* attention scores and their softmax, of so many keys a head: the most
                                that a row of the subject sees, padding not counted; 0: neither */
};

/* Sites a stage has in a layer: 0, 1, or as many as it has numbered parts. `layer` is of no meaning
 * outside the layers. */
uint32_t ds_site_parts(int stage, int32_t layer, const struct ds_hparams *hp,
                       const struct ds_site_wants *wants);

/* The sites in execution order, activations stored as `dtype`, and the edges between them.
 * malloc'ed; the caller frees both. */
int ds_site_list(const struct ds_hparams *hp, int dtype, const struct ds_site_wants *wants,
                 struct ds_site **sites, uint32_t *n_sites, struct ds_edge **edges,
                 uint32_t *n_edges, struct ds_error *err);

/* The same sites with activations stored as `dtype`, but those of the stages f32_at (DS_STAGE_BITs), which are f32
 * in every arm; malloc'ed. */
struct ds_site *ds_site_stored_as(const struct ds_site *sites, size_t n, int dtype, uint64_t f32_at,
                                  struct ds_error *err);
/* "final_norm,logits=f32" as DS_STAGE_BITs: stages that are not rounded to a 16-bit activation type. Not those of
 * the cache, which holds that type. */
int ds_stages_parse(const char *text, uint64_t *f32_at, struct ds_error *err);

/* The stages whose rows the kernels of these ops (bit 1 << op) read, as DS_STAGE_BITs, as far as
 * rows before rounding are kept of them: what the cache stores, what experts compute and shared
 * experts is not. */
uint64_t ds_site_read_by(const struct ds_hparams *hp, uint32_t ops);

/* ---- where a stage's site is ----------------------------------------------------------------- */

struct ds_site_map;
#define DS_NO_SITE UINT32_MAX

/* Finds the stages' sites in a list. Sites that no stage has are nobody's. Fails where the parts of
 * a stage do not follow each other. */
int ds_site_map_new(const struct ds_site *sites, size_t n, int32_t n_layers,
                    struct ds_site_map **out, struct ds_error *err);
void ds_site_map_free(struct ds_site_map *map);

/* Index of a site, or DS_NO_SITE when the list has none. `layer` is ignored for stages outside the
 * layers; `part` is 0, or the number of a numbered part. */
uint32_t ds_site_map_at(const struct ds_site_map *map, int stage, int32_t layer, uint32_t part);
/* Index of the stage's site of part "unrounded", or DS_NO_SITE. */
uint32_t ds_site_map_unrounded(const struct ds_site_map *map, int stage, int32_t layer);

/* Whether some layer of the model has the stage, whatever arms want to see. */
int ds_stage_in_model(int stage, const struct ds_hparams *hp);

#endif
