/* mutate.h: can this model and prompt show a fault at all? A fixture with identical heads, or a prompt
 * of one token, cannot: swapped heads or positions leave every bit as it was, and a test made of it
 * passes whatever the kernel does. So one known change is made at each stage in turn, and what reads
 * the stage must differ. */
#ifndef DS_MUTATE_H
#define DS_MUTATE_H

#include "engine/model.h"
#include "engine/site_map.h"

enum ds_mutation_kind {
    DS_MUTATE_HEADS = 0, /* the first and the last head of every row change places */
    DS_MUTATE_ROWS,      /* the first and the last row change places */
    DS_MUTATE_SHIFT,     /* every row moves one position on; the last comes first */
    DS_MUTATE_CHANNELS,  /* the first two elements of every row change places */
    DS_MUTATION_KINDS
};

struct ds_mutation {
    uint32_t site; /* DS_NO_SITE: none */
    int kind;
    size_t head_dim;
    int applied; /* set when it was made */
};

/* Makes the change in rows of row_bytes, one after the other, of elements of that size. */
void ds_mutate_rows(struct ds_mutation *m, void *data, size_t rows, size_t row_bytes,
                    size_t element);

struct ds_mutate_result {
    uint32_t made, seen; /* changes */
    char *inert; /* those that nobody saw, a line each: "a swap of two heads at q_rope, layer 0";
                            malloc'ed, "" when all were seen */
};

/* Tries all changes that fit, in the first layer and outside the layers, on one prompt. Runs in this
 * process, with kernels that need no library; leaves no thread behind. */
int ds_mutate_fixture(struct ds_model *m, const int32_t *tokens, int32_t n, int dtype, int threads,
                      struct ds_mutate_result *out, struct ds_error *err);

#endif
