/* random_spec.h: a "random:" spec as numbers: what its keys are and what they say. Knows no weights.
 * Not for other rooms. */
#ifndef DS_RANDOM_SPEC_H
#define DS_RANDOM_SPEC_H

#include "engine/model_priv.h"

enum {
    K_LAYERS,
    K_HIDDEN,
    K_HEADS,
    K_KV_HEADS,
    K_HEAD_DIM,
    K_FFN,
    K_VOCAB,
    K_CTX,
    K_ROPE_DIM,
    K_TIED,
    K_BIAS,
    K_EXPERTS,
    K_TOP_K,
    K_EXPERT_FFN,
    K_SHARED_FFN,
    K_NORM_TOP_K,
    K_WINDOW,
    K_WINDOW_EVERY,
    K_DENSE_LAYERS,
    K_EXPERT_EVERY,
    K_HEADS_ALIKE,
    K_HEAD_SEED,
    K_INTEGERS,
    K_SEED = K_INTEGERS,
    K_ROPE_BASE,
    K_ROPE_SCALE,
    K_EPS,
    K_SOFTCAP,
    K_EMBED_SCALE,
    K_ROUTER_SCALE,
    K_LOUD,
    K_LAST_REAL = K_LOUD,
    K_K_BIAS,
    K_WINDOW_LAYERS,
    K_COUNT
};

enum { MOST_CHANNELS = 16 };
struct channel_bias {
    int32_t channel;
    float value;
};

/* What was asked for. */
struct spec {
    const char *arch; /* in the caller's copy of the text */
    int32_t integer[K_INTEGERS];
    uint64_t seed;
    float real[K_LAST_REAL - K_ROPE_BASE + 1];
    float loud; /* factor of gate, up and down in layer loud_layer */
    int32_t loud_layer;
    struct channel_bias k_bias[MOST_CHANNELS];
    int32_t n_k_bias;
    uint64_t window_map[DS_LISTED_LAYERS / 64];
    unsigned given; /* bit per key, to refuse one given twice */
};

/* Reads what follows "random:"; `text` is cut in place and stays behind s->arch. */
int ds_random_spec_parse(char *text, struct spec *s, struct ds_error *err);
/* Fills and checks the hyperparameters. */
int ds_random_spec_hparams(const struct spec *s, const struct model_arch *arch,
                           struct ds_hparams *hp, struct ds_error *err);

#endif
