/* stages.c: the table of stages. Owns which stage follows which and what it reads; must not know
 * buffers or kernels. */
#include "engine/stages.h"

#include "dumps/record.h"
#include "kernels/registry.h"

/* clang-format off */
#define ROW(s) {DS_ST_##s, DS_EDGE_ROW}
#define CAUSAL(s) {DS_ST_##s, DS_EDGE_CAUSAL}

enum { ENGINE = -1 };

/* The embedding reads token ids only, which are no site: they are the request itself. */
static const struct ds_stage_info table[DS_ST_COUNT] = {
    [DS_ST_POSITIONS] = {"positions", "", ENGINE, DS_WIDTH_ONE, DS_STORE_I32, 0, {{0, 0}}},
    [DS_ST_KV_LEN] = {"kv_len", "", ENGINE, DS_WIDTH_ONE, DS_STORE_I32, 0, {{0, 0}}},
    [DS_ST_EMBED] = {"embed", "", DS_OP_EMBED, DS_WIDTH_MODEL, DS_STORE_ACTIVATION, 0, {{0, 0}}},
    [DS_ST_ATTN_NORM] = {"attn_norm", "", DS_OP_RMSNORM, DS_WIDTH_MODEL, DS_STORE_ACTIVATION, 1,
        {ROW(RESID_IN)}},
    [DS_ST_Q_PROJ] = {"q_proj", "", DS_OP_MATMUL, DS_WIDTH_Q, DS_STORE_ACTIVATION, 1,
        {ROW(ATTN_NORM)}},
    [DS_ST_K_PROJ] = {"k_proj", "", DS_OP_MATMUL, DS_WIDTH_KV, DS_STORE_ACTIVATION, 1,
        {ROW(ATTN_NORM)}},
    [DS_ST_V_PROJ] = {"v_proj", "", DS_OP_MATMUL, DS_WIDTH_KV, DS_STORE_ACTIVATION, 1,
        {ROW(ATTN_NORM)}},
    [DS_ST_Q_ROPE] = {"q_rope", "", DS_OP_ROPE, DS_WIDTH_Q, DS_STORE_ACTIVATION, 2,
        {ROW(POSITIONS), ROW(Q_PROJ)}},
    [DS_ST_K_ROPE] = {"k_rope", "", DS_OP_ROPE, DS_WIDTH_KV, DS_STORE_ACTIVATION, 2,
        {ROW(POSITIONS), ROW(K_PROJ)}},
    [DS_ST_KV_WRITE_K] = {"kv_write", "k", DS_OP_CACHE, DS_WIDTH_KV, DS_STORE_ACTIVATION, 1,
        {ROW(K_ROPE)}},
    [DS_ST_KV_WRITE_V] = {"kv_write", "v", DS_OP_CACHE, DS_WIDTH_KV, DS_STORE_ACTIVATION, 1,
        {ROW(V_PROJ)}},
    [DS_ST_ATTN_OUT] = {"attn_out", "", DS_OP_ATTENTION, DS_WIDTH_Q, DS_STORE_ACTIVATION, 4,
        {ROW(KV_LEN), ROW(Q_ROPE), CAUSAL(KV_WRITE_K), CAUSAL(KV_WRITE_V)}},
    [DS_ST_O_PROJ] = {"o_proj", "", DS_OP_MATMUL, DS_WIDTH_MODEL, DS_STORE_ACTIVATION, 1,
        {ROW(ATTN_OUT)}},
    [DS_ST_RESID_ATTN] = {"resid_attn", "", DS_OP_ADD, DS_WIDTH_MODEL, DS_STORE_ACTIVATION, 2,
        {ROW(RESID_IN), ROW(O_PROJ)}},
    [DS_ST_FFN_NORM] = {"ffn_norm", "", DS_OP_RMSNORM, DS_WIDTH_MODEL, DS_STORE_ACTIVATION, 1,
        {ROW(RESID_ATTN)}},
    [DS_ST_GATE] = {"gate", "", DS_OP_MATMUL, DS_WIDTH_FFN, DS_STORE_ACTIVATION, 1,
        {ROW(FFN_NORM)}},
    [DS_ST_UP] = {"up", "", DS_OP_MATMUL, DS_WIDTH_FFN, DS_STORE_ACTIVATION, 1, {ROW(FFN_NORM)}},
    [DS_ST_ACT] = {"act", "", DS_OP_SILU_MUL, DS_WIDTH_FFN, DS_STORE_ACTIVATION, 2,
        {ROW(GATE), ROW(UP)}},
    [DS_ST_DOWN] = {"down", "", DS_OP_MATMUL, DS_WIDTH_MODEL, DS_STORE_ACTIVATION, 1, {ROW(ACT)}},
    [DS_ST_RESID_FFN] = {"resid_ffn", "", DS_OP_ADD, DS_WIDTH_MODEL, DS_STORE_ACTIVATION, 2,
        {ROW(RESID_ATTN), ROW(DOWN)}},
    [DS_ST_FINAL_NORM] = {"final_norm", "", DS_OP_RMSNORM, DS_WIDTH_MODEL, DS_STORE_ACTIVATION, 1,
        {ROW(RESID_IN)}},
    [DS_ST_LOGITS] = {"logits", "", DS_OP_MATMUL, DS_WIDTH_VOCAB, DS_STORE_F32, 1,
        {ROW(FINAL_NORM)}},
    [DS_ST_TOKEN] = {"token", "", DS_OP_SAMPLE, DS_WIDTH_ONE, DS_STORE_I32, 1, {ROW(LOGITS)}},
};
/* clang-format on */

const struct ds_stage_info *ds_stage(int s)
{
    return &table[s];
}

const char *ds_stage_op_name(int s)
{
    return table[s].op < 0 ? "custom" : ds_op_name(table[s].op);
}

int64_t ds_stage_width_of(int s, const struct ds_hparams *hp)
{
    switch (table[s].width) {
    case DS_WIDTH_MODEL:
        return hp->d_model;
    case DS_WIDTH_Q:
        return (int64_t)hp->n_heads * hp->head_dim;
    case DS_WIDTH_KV:
        return (int64_t)hp->n_kv_heads * hp->head_dim;
    case DS_WIDTH_FFN:
        return hp->d_ff;
    case DS_WIDTH_VOCAB:
        return hp->vocab;
    default:
        return 1;
    }
}

uint32_t ds_stages_read_by(uint32_t ops)
{
    uint32_t stages = 0;
    ops &= ~(1u << DS_OP_CACHE);
    for (int s = 0; s < DS_ST_COUNT; s++)
        for (int i = 0; table[s].op >= 0 && ops >> table[s].op & 1 && i < table[s].n_inputs; i++) {
            int from = table[s].inputs[i].stage;
            stages |= from == DS_ST_RESID_IN ? 1u << DS_ST_EMBED | 1u << DS_ST_RESID_FFN
                      : table[from].store == DS_STORE_ACTIVATION ? 1u << from
                                                                 : 0u;
        }
    return stages & ~(1u << DS_ST_KV_WRITE_K | 1u << DS_ST_KV_WRITE_V);
}

/* Sites of stages begin..end-1 of one layer. */
static uint32_t sites_of(int begin, int end, uint32_t unrounded)
{
    uint32_t bits = unrounded >> begin & ((1u << (end - begin)) - 1);
    return (uint32_t)(end - begin + __builtin_popcount(bits));
}

uint32_t ds_stage_site(int s, int32_t layer, int32_t n_layers, uint32_t unrounded)
{
    const uint32_t before = sites_of(0, DS_ST_FIRST_OF_LAYER, unrounded),
                   each = sites_of(DS_ST_FIRST_OF_LAYER, DS_ST_FIRST_AFTER, unrounded);
    if (s < DS_ST_FIRST_OF_LAYER)
        return sites_of(0, s + 1, unrounded) - 1;
    if (s >= DS_ST_FIRST_AFTER)
        return before + (uint32_t)n_layers * each + sites_of(DS_ST_FIRST_AFTER, s + 1, unrounded) -
               1;
    return before + (uint32_t)layer * each + sites_of(DS_ST_FIRST_OF_LAYER, s + 1, unrounded) - 1;
}
