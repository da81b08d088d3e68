/* model_priv.h: what the files that build a model share. Not for other rooms: they include model.h.
 *
 * A model is built in three steps that GGUF files and random: specs share: hyperparameters
 * (model_hparams.c or random_model.c), then the list of weights (ds_model_layout, which walks the
 * architecture's slots and asks a source for each), then the numbers (ds_model_fill). */
#ifndef DS_MODEL_PRIV_H
#define DS_MODEL_PRIV_H

#include "engine/model.h"

#include <stddef.h>
#include <stdint.h>

/* A weight's size in words of the hyperparameters. */
enum model_dim {
    DIM_ONE,
    DIM_MODEL,      /* d_model */
    DIM_Q,          /* n_heads * head_dim */
    DIM_KV,         /* n_kv_heads * head_dim */
    DIM_FF,         /* d_ff */
    DIM_VOCAB,      /* vocab */
    DIM_ROPE_PAIRS, /* rope_dim / 2 */
    DIM_HEAD,       /* head_dim */
    DIM_EXPERTS,    /* n_experts */
    DIM_FF_EXPERT,  /* d_ff_expert */
    DIM_FF_SHARED   /* d_ff_shared */
};

/* What a weight is used for: decides its random values and how the model points to it. */
enum model_role {
    ROLE_EMBED,
    ROLE_HEAD,
    ROLE_MATRIX,
    ROLE_ROUTER, /* a matrix, too */
    ROLE_NORM,
    ROLE_BIAS,
    ROLE_ROPE_FREQS
};

/* Which models have a weight. */
enum model_when { WHEN_ALWAYS, WHEN_DENSE, WHEN_EXPERTS, WHEN_SHARED };

struct model_slot {
    const char *name; /* tensor name; in a layer, what follows "blk.N." */
    size_t member;    /* offset of the pointer in struct ds_layer or struct ds_model */
    enum model_dim rows, cols;
    enum model_role role;
    int required;
    enum model_when when;
    int per_expert; /* the tensor holds one such matrix for every expert */
};

/* One row per architecture. */
struct model_arch {
    const char *name;
    int rope_neox;
    int qk_norm, shared_expert, norm_top_k; /* what its metadata does not say */
    int has_experts, needs_experts;
    const struct model_slot *before, *layer, *after;
    size_t n_before, n_layer, n_after;
    /* Tensors that may lie in a file and hold nothing that is computed with: suffix after "blk.N.".
     */
    const char *const *ignorable;
    size_t n_ignorable;
};

/* NULL and err (with the nearest known name) when there is no such architecture. */
const struct model_arch *ds_model_arch_find(const char *name, struct ds_error *err);
/* The fewest tensors that a model of this many layers needs. */
uint64_t ds_model_arch_min_tensors(const struct model_arch *arch, const struct ds_hparams *hp);
/* The most experts of a layer, in a file or a spec. */
enum { MODEL_MOST_EXPERTS = 4096 };

/* Reads and checks all hyperparameters of a GGUF file into *hp (model_hparams.c). */
int ds_model_read_hparams(const struct ds_gguf *g, const struct model_arch *arch,
                          struct ds_hparams *hp, struct ds_error *err);
/* The checks that hold for every source: divisibility, ranges. `what` begins the message. */
int ds_model_check_hparams(const struct ds_hparams *hp, const char *what, struct ds_error *err);
/* Of every layer, not 0 where it has the window: as a rule if one says it, else as a list. */
int ds_hparams_list_windows(struct ds_hparams *hp, const int64_t *layers, const char *what,
                            struct ds_error *err);

/* Where weights come from. pick: 1 = the source has this weight (w->file_dtype set, and file_data
 * if it is to stay in its file), 0 = it has none, -1 = error; index is the weight's place in
 * m->weights if taken. fill: writes elements
 * from..from+n-1 of weight `index`, called from several threads; `from` is a multiple of
 * MODEL_CHUNK. done: weight `index` has been read to its end; may be NULL. */
struct model_source {
    int (*pick)(void *ctx, size_t index, const struct model_slot *slot, struct ds_weight *w,
                struct ds_error *err);
    void (*fill)(void *ctx, size_t index, int64_t from, int64_t n, float *dst);
    /* The bytes in the file that hold those elements, n_bytes of them. NULL: not from a file. */
    const void *(*bytes)(void *ctx, size_t index, int64_t from, int64_t n, size_t *n_bytes);
    void (*done)(void *ctx, size_t index);
    void *ctx;
};

enum { MODEL_CHUNK = 16384 }; /* 64 KiB of f32: hashed while still in cache */

/* Fills m->weights (names, shapes; no data yet), m->layers and every pointer, m->arena_bytes. */
int ds_model_layout(struct ds_model *m, const struct model_arch *arch,
                    const struct model_source *src, struct ds_error *err);
/* Maps the arena, fills it with `threads` threads, computes all digests. */
int ds_model_fill(struct ds_model *m, const struct model_source *src, int threads,
                  struct ds_error *err);

/* Builds a model from an open file, whose ownership it takes, also on failure. */
int ds_model_from_gguf(struct ds_gguf *g, int keep, int threads, struct ds_model **out,
                       struct ds_error *err);
/* Builds a model from a spec that begins with "random:". */
int ds_model_from_random(const char *spec, int threads, struct ds_model **out,
                         struct ds_error *err);

/* Releases what ds_model_prepare made. */
void ds_model_drop_prepared(struct ds_model *m);
void ds_model_drop_uploaded(struct ds_model *m);

#endif
