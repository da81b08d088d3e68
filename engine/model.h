/* model.h: a model in memory: hyperparameters and f32 weights. Knows files and seeds, not kernels'
 * inner layout, not calls. */
#ifndef DS_MODEL_H
#define DS_MODEL_H

#include "base/error.h"
#include "engine/gguf.h"
#include "kernels/driftscope_kernel.h"

#include <stdint.h>

/* One weight tensor, f32, row-major [rows][cols] (a vector has rows = 1). `digest`: XXH3-64, seed
 * 0, over the f32 bytes. */
struct ds_weight {
    char name[64];      /* as in the GGUF file: "blk.0.attn_q.weight" */
    char file_dtype[8]; /* "q4_1", "f32"; "random" for seeded models */
    int64_t rows, cols;
    float *data; /* owned by the model, in memory shared with forked workers */
    uint64_t digest;
};

/* Pointers into the model's weights; NULL where the model has none. */
struct ds_layer {
    const struct ds_weight *attn_norm, *q, *k, *v, *o, *ffn_norm, *gate, *up, *down;
    const struct ds_weight *q_bias, *k_bias, *v_bias, *o_bias, *gate_bias, *up_bias, *down_bias;
};

struct ds_hparams {
    char arch[32];
    int32_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, vocab, context;
    int32_t rope_dim;
    float rope_base;
    float rope_scale;  /* linear: positions are divided by it; 1 = none */
    int32_t rope_neox; /* 0: interleaved pairs (2i, 2i+1), as llama GGUF files are stored */
    float rms_eps;
    int32_t tied; /* the output head is the embedding table */
};

struct ds_model {
    char name[256];  /* short: file name or the random: spec */
    char path[4096]; /* what was opened; "" for random: */
    struct ds_hparams hp;
    struct ds_weight
        *weights; /* all of them, in a fixed order: embed, layers ascending, final norm, head */
    size_t n_weights;
    struct ds_layer *layers;                           /* [n_layers] */
    const struct ds_weight *embed, *final_norm, *head; /* head == embed when tied */
    const float *rope_freqs; /* [rope_dim/2] divisors from rope_freqs.weight, or NULL */
    /* [context_used][rope_dim/2][2] cos, sin; see ds_model_rope_table */
    float *rope_table;
    int64_t rope_positions;
    uint64_t digest;      /* XXH3-64 over name and digest of every weight, in order */
    struct ds_gguf *gguf; /* stays open for the tokenizer; NULL for random: */
    void **prepared;      /* [n_weights] what `prepared_by` made of each weight, or NULL */
    size_t *prepared_bytes;
    const struct ds_kernel *prepared_by;
    void *arena; /* one shared mapping that holds all weights */
    size_t arena_bytes;
};

/* Opens MODEL: a .gguf file, `random:ARCH,key=value,...`, or a name in the cache ("smollm2").
 * Weights are dequantised with `threads` threads into one mapping shared with later forks. -1: the
 * message names the file and the field. */
int ds_model_open(const char *spec, int threads, struct ds_model **out, struct ds_error *err);
void ds_model_close(struct ds_model *m);

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

/* Lets a matmul kernel repack every matmul weight once, into shared memory; a no-op if already done
 * by the same kernel or if the kernel has no prepare. Replaces an earlier kernel's packing, so that
 * at most two copies exist. */
int ds_model_prepare(struct ds_model *m, const struct ds_kernel *matmul, int threads,
                     struct ds_error *err);
/* What kernel `matmul` prepared for weight w, or NULL. */
const void *ds_model_prepared(const struct ds_model *m, const struct ds_kernel *matmul,
                              const struct ds_weight *w);

/* Hyperparameter i as name and text for the record and for diff; -1 past the end. */
int ds_hparam_text(const struct ds_hparams *hp, size_t i, const char **name, char *text,
                   size_t size);

#endif
