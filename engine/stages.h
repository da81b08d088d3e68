/* stages.h: the stages of the forward pass as one table: name, op, width, and what each reads.
 * Knows no values. */
#ifndef DS_STAGES_H
#define DS_STAGES_H

#include "engine/model.h"

#include <stdint.h>

/* In execution order. The first three stand before the layers, the last three after them. */
enum ds_stage {
    DS_ST_POSITIONS = 0,
    DS_ST_KV_LEN,
    DS_ST_EMBED,
    DS_ST_ATTN_NORM,
    DS_ST_Q_PROJ,
    DS_ST_K_PROJ,
    DS_ST_V_PROJ,
    DS_ST_Q_ROPE,
    DS_ST_K_ROPE,
    DS_ST_KV_WRITE_K,
    DS_ST_KV_WRITE_V,
    DS_ST_ATTN_OUT,
    DS_ST_O_PROJ,
    DS_ST_RESID_ATTN,
    DS_ST_FFN_NORM,
    DS_ST_GATE,
    DS_ST_UP,
    DS_ST_ACT,
    DS_ST_DOWN,
    DS_ST_RESID_FFN,
    DS_ST_FINAL_NORM,
    DS_ST_LOGITS,
    DS_ST_TOKEN,
    DS_ST_COUNT,
    /* Only as an input: the residual stream that enters the layer: embed in layer 0, else the
       previous layer's resid_ffn. */
    DS_ST_RESID_IN = DS_ST_COUNT
};
enum {
    DS_ST_FIRST_OF_LAYER = DS_ST_ATTN_NORM,
    DS_ST_FIRST_AFTER = DS_ST_FINAL_NORM,
    DS_STAGES_PER_LAYER = DS_ST_FINAL_NORM - DS_ST_ATTN_NORM
};

enum ds_stage_width {
    DS_WIDTH_ONE,
    DS_WIDTH_MODEL,
    DS_WIDTH_Q,
    DS_WIDTH_KV,
    DS_WIDTH_FFN,
    DS_WIDTH_VOCAB
};
/* How a stage's rows are stored: the activation dtype, always f32, or i32. */
enum ds_stage_store { DS_STORE_ACTIVATION, DS_STORE_F32, DS_STORE_I32 };

enum { DS_STAGE_MAX_INPUTS = 4 };

struct ds_stage_info {
    const char *name, *part;
    int op; /* enum ds_op, or -1: made by the engine itself, op name "custom" */
    uint8_t width, store;
    uint8_t n_inputs;
    struct {
        uint8_t stage; /* enum ds_stage or DS_ST_RESID_IN; of the same layer where it is a layer's
                          stage */
        uint8_t kind;  /* enum ds_edge_kind */
    } inputs[DS_STAGE_MAX_INPUTS];
};

/* Row s of the table, 0 <= s < DS_ST_COUNT. */
const struct ds_stage_info *ds_stage(int s);
/* "rmsnorm", "matmul", ...; "custom" for the whole-number stages that describe the call itself. */
const char *ds_stage_op_name(int s);
/* Elements of a row. */
int64_t ds_stage_width_of(int s, const struct ds_hparams *hp);
/* The stages whose rows a kernel of one of these ops (bit 1 << op) reads, as a bit for each stage.
 * The cache is left out: what it stores is rounded. */
uint32_t ds_stages_read_by(uint32_t ops);

/* The site's index in execution order; `layer` is ignored for stages outside the layers.
 * `unrounded`: a bit for each stage that has a site for its rows before rounding, too, right before
 * its own. */
uint32_t ds_stage_site(int s, int32_t layer, int32_t n_layers, uint32_t unrounded);

#endif
