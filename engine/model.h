/* model.h: a model in memory: hyperparameters and weights, as f32 or as their file has them. Knows files and seeds, not kernels'
 * inner layout, not calls. */
#ifndef DS_MODEL_H
#define DS_MODEL_H

#include "base/error.h"
#include "engine/gguf.h"
#include "kernels/driftscope_kernel.h"

#include <stdint.h>

/* How the weights of matmuls and the embedding are kept: dequantised, or as they lie in the mapped
 * file, for kernels that make them f32 where they use them. Numbers, digests and results are the
 * same; vectors (norms, biases) are f32 in both. */
enum ds_weights { DS_WEIGHTS_F32, DS_WEIGHTS_FILE };

/* One weight tensor, row-major [rows][cols] (a vector has rows = 1). `digest`: XXH3-64, seed 0,
 * over the f32 bytes, however the weight is kept. */
struct ds_weight {
    char name[64];      /* as in the GGUF file: "blk.0.attn_q.weight"; of one expert of several:
                           "blk.0.ffn_up_exps.weight[3]" */
    char file_dtype[8]; /* "q4_1", "f32"; "random" for seeded models */
    int64_t rows, cols;
    float *data; /* f32, owned by the model, in memory shared with forked workers; NULL for a weight
                    that is kept as the file has it */
    const void *file_data; /* then: its blocks in the mapped file */
    int32_t file_type;     /* and their type's number in GGUF */
    int32_t expert; /* its number among the experts that one tensor of the file holds, -1: the whole
                       tensor */
    uint64_t digest;
    uint64_t loaded; /* XXH3-64, seed 0, over the tensor's bytes in its file; 0 = not from a file */
};

/* Pointers into the model's weights; NULL where the model has none. */
struct ds_layer {
    const struct ds_weight *attn_norm, *q, *k, *v, *o, *ffn_norm, *gate, *up, *down;
    const struct ds_weight *q_norm, *k_norm; /* [head_dim] */
    /* With experts: router, then experts 0.. one after the other, and the one that all rows pass. */
    const struct ds_weight *router, *gate_exps, *up_exps, *down_exps;
    const struct ds_weight *router_shared, *gate_shared, *up_shared, *down_shared;
    const struct ds_weight *q_bias, *k_bias, *v_bias, *o_bias, *gate_bias, *up_bias, *down_bias;
};

enum { DS_LISTED_LAYERS = 512 }; /* as many layers a list of windows may have */

struct ds_hparams {
    char arch[32];
    int32_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, vocab, context;
    int32_t rope_dim;
    float rope_base;
    float rope_scale;  /* linear: positions are divided by it; 1 = none */
    int32_t rope_neox; /* 0: interleaved pairs (2i, 2i+1), as llama GGUF files are stored */
    float rms_eps;
    int32_t tied;         /* the output head is the embedding table */
    int32_t n_experts;    /* 0: one feed-forward part for all rows, of width d_ff */
    int32_t dense_layers; /* the first layers that have no experts though the model has */
    int32_t top_k;        /* experts of a row */
    int32_t d_ff_expert;
    int32_t d_ff_shared;  /* of the expert that every row passes; 0 = none */
    int32_t norm_top_k;   /* the weights of a row's experts are divided by their sum */
    int32_t qk_norm;      /* q and k are normalised per head */
    int32_t window;       /* a query sees so many slots, its own included; 0 = all */
    int32_t window_every; /* of so many layers the last has no window; 0: every layer has it */
    /* Of so many layers the last has experts, if it is none of the first that have none; 0, 1:
     * each. */
    int32_t expert_every;
    /* Which layers have the window, where no such rule says it: bit `layer`. */
    int32_t window_listed;
    uint64_t window_map[8];
    float soft_cap; /* of attention's scores; 0 = none */
};

static inline int ds_layer_has_experts(const struct ds_hparams *hp, int32_t layer)
{
    return hp->n_experts > 0 && layer >= hp->dense_layers &&
           (hp->expert_every <= 1 || (layer + 1) % hp->expert_every == 0);
}

/* The window of one layer. */
static inline int32_t ds_window_of_layer(const struct ds_hparams *hp, int32_t layer)
{
    const int listed = hp->window_listed && layer >= 0 && layer < DS_LISTED_LAYERS &&
                       (hp->window_map[layer / 64] >> (layer % 64) & 1);
    if (hp->window_listed)
        return listed ? hp->window : 0;
    return hp->window_every > 0 && layer % hp->window_every == hp->window_every - 1 ? 0
                                                                                    : hp->window;
}

struct ds_model {
    char name[256];  /* short: file name or the random: spec */
    char path[4096]; /* what was opened; "" for random: */
    struct ds_hparams hp;
    /* All of them, in a fixed order: embed, layers ascending, final norm, head. */
    struct ds_weight *weights;
    size_t n_weights;
    struct ds_layer *layers;                           /* [n_layers] */
    const struct ds_weight *embed, *final_norm, *head; /* head == embed when tied */
    const float *rope_freqs; /* [rope_dim/2] divisors from rope_freqs.weight, or NULL */
    /* [context_used][rope_dim/2][2] cos, sin; see ds_model_rope_table */
    float *rope_table;
    int64_t rope_positions;
    uint64_t digest;      /* XXH3-64 over name and digest of every weight, in order */
    struct ds_gguf *gguf; /* stays open for the tokenizer and for weights kept as the file has them;
                             NULL for random: */
    int keep;             /* enum ds_weights */
    void **prepared;      /* [n_weights] what `prepared_by` made of each weight, or NULL */
    size_t *prepared_bytes;
    const struct ds_kernel *prepared_by;
    /* The same for a second kernel, where one pass has two that repack. */
    void **also_prepared;
    size_t *also_bytes;
    const struct ds_kernel *also_by;
    struct ds_uploaded *uploaded; /* copies on devices, of this process */
    void *arena;                  /* one shared mapping that holds all f32 weights */
    size_t arena_bytes;
};

/* Opens MODEL: a .gguf file, `random:ARCH,key=value,...`, or a name in the cache ("smollm2").
 * Weights are dequantised with `threads` threads into one mapping shared with later forks. -1: the
 * message names the file and the field. */
int ds_model_open(const char *spec, int threads, struct ds_model **out, struct ds_error *err);
/* The same with the weights kept as `keep` says. DS_WEIGHTS_FILE needs a file, so random: is
 * refused. */
int ds_model_open_as(const char *spec, int keep, int threads, struct ds_model **out,
                     struct ds_error *err);
void ds_model_close(struct ds_model *m);

/* What a random: name that somebody else wrote may ask for. `listed` is asked for each of the model's weights, in their
 * order, and says -1 where it may not be; NULL: not asked. */
struct ds_random_bounds {
    uint64_t most_bytes; /* of all weights as f32 */
    uint64_t n_weights;  /* exactly; 0: any number up to `most_weights` */
    uint64_t most_weights;
    int (*listed)(void *ctx, uint64_t index, const char *name, int64_t rows, int64_t cols,
                  struct ds_error *err);
    void *ctx;
};
/* Whether the name is well-formed and its model within the bounds, before anything of it is built. */
int ds_model_random_fits(const char *name, const struct ds_random_bounds *bounds,
                         struct ds_error *err);

/* Makes the weights read-only from here on, in this process and in those it forks: a kernel that
 * writes through a wild pointer ends its worker instead of changing the model for every later
 * trial. */
void ds_model_seal(struct ds_model *m);

/* Where a named model lies: writes the path of the cache file for a known name ("smollm2") to path.
 * 0; 1 when the name is known but the file is not there; -1 when the name is not known. The folder
 * is $DRIFTSCOPE_CACHE, else $XDG_CACHE_HOME/driftscope, else $HOME/.cache/driftscope. */
int ds_model_cache_path(const char *name, char *path, size_t size);

/* Computes cos and sin for positions 0..positions-1 (double precision, rounded once to f32),
 * keeping what is there. */
int ds_model_rope_table(struct ds_model *m, int64_t positions, struct ds_error *err);

/* The kernel's view of a weight: f32, or the file's bytes. */
static inline struct ds_weight_view ds_weight_view(const struct ds_weight *w)
{
    return (struct ds_weight_view){.data = w->data,
                                   .n = w->rows,
                                   .k = w->cols,
                                   .file_data = w->file_data,
                                   .file_type = w->file_type};
}

/* Embedding rows ids[0..n-1] (each in the vocabulary) as f32, [n][d_model]. */
void ds_model_embed_rows(const struct ds_model *m, const int32_t *ids, int64_t n, float *out);

/* Fails unless the matmul kernel can read weights that are kept as `keep` says. */
int ds_model_check_kernel(int keep, const struct ds_kernel *matmul, struct ds_error *err);

/* Lets a matmul kernel repack every matmul weight once, into shared memory; a no-op if already done
 * by the same kernel or if the kernel has no prepare. Fails when the kernel cannot read the weights
 * as they are kept. Replaces an earlier kernel's packing, so that
 * at most two copies exist. */
int ds_model_prepare(struct ds_model *m, const struct ds_kernel *matmul, int threads,
                     struct ds_error *err);
/* The same where from here on nothing but kernels that pack alike, have DS_FEATURE_PACKED and run on the CPU reads these
 * weights: their f32 numbers are given back as they are packed (data becomes NULL), but for an embedding that is the
 * head, too. After a failure some are gone. */
int ds_model_prepare_alone(struct ds_model *m, const struct ds_kernel *matmul, int threads,
                           struct ds_error *err);
struct ds_kernel_set;
/* The same for every matmul kernel that a set uses: at most two may repack, and then both packings
 * are kept, three copies in all. */
int ds_model_prepare_set(struct ds_model *m, const struct ds_kernel_set *set, int threads,
                         struct ds_error *err);
/* What kernel `matmul` prepared for weight w, or NULL. */
const void *ds_model_prepared(const struct ds_model *m, const struct ds_kernel *matmul,
                              const struct ds_weight *w);

/* A weight in the memory of a device (enum ds_device_kind and number), as f32 or as the 16-bit type that its file has
 * (`type`: 0, or ds_model_half_type's answer). It goes there the first time and stays until the model is
 * closed. What stands there is digested by the device: NULL when that is not the digest of what was sent, or
 * there is no room. */
const void *ds_model_upload(struct ds_model *m, int kind, int number, const struct ds_weight *w,
                            int32_t type, struct ds_error *err);
/* GGUF's number of F16 or BF16 where that is what the weight's file has, so that 16 bits hold it exactly; else 0. */
int32_t ds_model_half_type(const struct ds_weight *w);

/* Hyperparameter i as name and text for the record and for diff; -1 past the end. */
int ds_hparam_text(const struct ds_hparams *hp, size_t i, const char **name, char *text,
                   size_t size);

#endif
