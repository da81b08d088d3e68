/* stages.h: the stages of the forward pass as one table: name, op, width, when it exists, and what
 * it reads. Knows no values. */
#ifndef DS_STAGES_H
#define DS_STAGES_H

#include "engine/model.h"

#include <stdint.h>

/* In execution order. The first group stands before the layers, the last one after them. */
enum ds_stage {
    DS_ST_POSITIONS = 0,
    DS_ST_KV_LEN,
    DS_ST_SLOTS,
    DS_ST_EMBED,
    /* a layer */
    DS_ST_TRANSFER_SRC, /* the residual stream as it leaves one device ... */
    DS_ST_TRANSFER_DST, /* ... and as it arrives at the next */
    DS_ST_ATTN_NORM,
    DS_ST_Q_PROJ,
    DS_ST_K_PROJ,
    DS_ST_V_PROJ,
    DS_ST_Q_NORM,
    DS_ST_K_NORM,
    DS_ST_Q_ROPE,
    DS_ST_K_ROPE,
    DS_ST_KV_WRITE_K,
    DS_ST_KV_KEPT_K, /* cache rows that the write changed beside its own: none, when it is right */
    DS_ST_KV_WRITE_V,
    DS_ST_KV_KEPT_V,
    DS_ST_ATTN_SCORES, /* recomputed beside the attention kernel, which does not show its own */
    DS_ST_ATTN_PROBS,
    DS_ST_ATTN_OUT,
    DS_ST_O_PARTIAL, /* a rank's share of o_proj's sum */
    DS_ST_O_ALLREDUCE,
    DS_ST_O_PROJ,
    DS_ST_RESID_ATTN,
    DS_ST_FFN_NORM,
    DS_ST_GATE, /* the feed-forward part of a model without experts */
    DS_ST_UP,
    DS_ST_ACT,
    DS_ST_DOWN_PARTIAL,
    DS_ST_DOWN_ALLREDUCE,
    DS_ST_DOWN,
    DS_ST_ROUTER_LOGITS, /* of one with experts */
    DS_ST_ROUTER_LOGITS_SHARED,
    DS_ST_ROUTER_IDS,
    DS_ST_ROUTER_WEIGHTS,
    DS_ST_GATE_EXPERT,
    DS_ST_UP_EXPERT,
    DS_ST_ACT_EXPERT,
    DS_ST_EXPERT_OUT,
    DS_ST_GATE_SHARED,
    DS_ST_UP_SHARED,
    DS_ST_ACT_SHARED,
    DS_ST_EXPERT_OUT_SHARED,
    DS_ST_MOE_PARTIAL, /* a rank's share: the experts that live on it */
    DS_ST_MOE_ALLREDUCE,
    DS_ST_MOE_COMBINE,
    DS_ST_RESID_FFN,
    /* after the layers */
    DS_ST_FINAL_NORM,
    DS_ST_LOGITS,
    DS_ST_LOGITS_PROCESSED,
    DS_ST_TOKEN,
    DS_ST_COUNT,
    /* Only as an input: the residual stream that enters the layer: embed in layer 0, else the
       previous layer's resid_ffn. */
    DS_ST_RESID_IN = DS_ST_COUNT
};
enum { DS_ST_FIRST_OF_LAYER = DS_ST_TRANSFER_SRC, DS_ST_FIRST_AFTER = DS_ST_FINAL_NORM };
_Static_assert(DS_ST_COUNT <= 64, "sets of stages are kept in 64 bits");

#define DS_STAGE_BIT(s) ((uint64_t)1 << (s))

enum ds_stage_width {
    DS_WIDTH_ONE,
    DS_WIDTH_MODEL,
    DS_WIDTH_Q,
    DS_WIDTH_KV,
    DS_WIDTH_FFN,
    DS_WIDTH_VOCAB,
    DS_WIDTH_EXPERTS,
    DS_WIDTH_TOP_K,
    DS_WIDTH_ADDENDS, /* of moe_combine: top_k, one more with a shared expert */
    DS_WIDTH_FFN_EXPERT,
    DS_WIDTH_FFN_SHARED,
    DS_WIDTH_SCORES /* of one key: times ds_site_wants.score_keys */
};
/* How a stage's rows are stored: the activation dtype, always f32, or i32. */
enum ds_stage_store { DS_STORE_ACTIVATION, DS_STORE_F32, DS_STORE_I32 };

/* When a stage has sites: always, or with such a model, or when an arm of the sweep has need of it
 * (struct ds_site_wants). */
enum ds_stage_when {
    DS_WHEN_ALWAYS,
    DS_WHEN_DENSE,    /* a model without experts */
    DS_WHEN_EXPERTS,  /* a model with experts */
    DS_WHEN_SHARED,   /* ... one of which every row passes */
    DS_WHEN_QK_NORM,  /* q and k are normalised per head */
    DS_WHEN_RANKS,    /* tensor parallel */
    DS_WHEN_BOUNDARY, /* the layer's input comes from another device */
    DS_WHEN_WATCHED,  /* a kernel that writes the cache and is not a built-in one */
    DS_WHEN_SLOTS,    /* a schedule that may move rows */
    DS_WHEN_SCORES    /* attention scores are asked for */
};

/* A stage may have numbered parts: "e0", "e1", ... for the experts chosen for a row, best first;
 * "r0", "r1", ... for the ranks. */
enum ds_stage_parts { DS_PARTS_ONE, DS_PARTS_CHOSEN, DS_PARTS_RANKS };

enum { DS_STAGE_MAX_INPUTS = 6 };

struct ds_stage_info {
    const char *name, *part;
    int op;        /* enum ds_op, or -1: made by the engine itself, op name "custom" */
    uint8_t width; /* enum ds_stage_width */
    uint8_t store, when, parts;
    uint8_t n_inputs;
    struct {
        uint8_t stage; /* enum ds_stage or DS_ST_RESID_IN; of the same layer where it is a layer's
                             stage */
        uint8_t kind;  /* enum ds_edge_kind */
        uint8_t optional; /* An input that does not exist is replaced with what it would read
                             itself; an optional one is left out. */
    } inputs[DS_STAGE_MAX_INPUTS];
};

/* Row s of the table, 0 <= s < DS_ST_COUNT. */
const struct ds_stage_info *ds_stage(int s);
/* "rmsnorm", "matmul", ...; "custom" for the whole-number stages that describe the call itself. */
const char *ds_stage_op_name(int s);
/* Elements of a row (of scores: see DS_WIDTH_SCORES). */
int64_t ds_stage_width_of(int s, const struct ds_hparams *hp);

#endif
