/* stages.c: the table of stages. Owns which stage follows which and what it reads; must not know
 * buffers or kernels. */
#include "engine/stages.h"

#include "dumps/record.h"
#include "kernels/registry.h"

/* clang-format off */
#define ROW(s) {DS_ST_##s, DS_EDGE_ROW, 0}
#define CAUSAL(s) {DS_ST_##s, DS_EDGE_CAUSAL, 0}
#define MAYBE(s) {DS_ST_##s, DS_EDGE_ROW, 1}
#define MAYBE_CAUSAL(s) {DS_ST_##s, DS_EDGE_CAUSAL, 1}

enum { ENGINE = -1 };

#define STAGE(s, name, part, op, width, store, when, parts) \
    [DS_ST_##s] = {name, part, op, DS_WIDTH_##width, DS_STORE_##store, DS_WHEN_##when, \
        DS_PARTS_##parts,
#define READS(n, ...) n, {__VA_ARGS__}}
#define READS_NOTHING 0, {{0, 0, 0}}}

/* The embedding reads token ids only, which are no site: they are the request itself. */
static const struct ds_stage_info table[DS_ST_COUNT] = {
    STAGE(POSITIONS, "positions", "", DS_OP_SCHEDULE, ONE, I32, ALWAYS, ONE) READS_NOTHING,
    STAGE(KV_LEN, "kv_len", "", DS_OP_SCHEDULE, ONE, I32, ALWAYS, ONE) READS_NOTHING,
    STAGE(SLOTS, "slots", "", DS_OP_SCHEDULE, ONE, I32, SLOTS, ONE) READS_NOTHING,
    STAGE(EMBED, "embed", "", DS_OP_EMBED, MODEL, ACTIVATION, ALWAYS, ONE) READS_NOTHING,

    STAGE(TRANSFER_SRC, "transfer", "src", ENGINE, MODEL, ACTIVATION, BOUNDARY, ONE)
        READS(1, ROW(RESID_IN)),
    STAGE(TRANSFER_DST, "transfer", "dst", DS_OP_TRANSFER, MODEL, ACTIVATION, BOUNDARY, ONE)
        READS(1, ROW(TRANSFER_SRC)),
    STAGE(ATTN_NORM, "attn_norm", "", DS_OP_RMSNORM, MODEL, ACTIVATION, ALWAYS, ONE)
        READS(1, ROW(TRANSFER_DST)),
    STAGE(Q_PROJ, "q_proj", "", DS_OP_MATMUL, Q, ACTIVATION, ALWAYS, ONE) READS(1, ROW(ATTN_NORM)),
    STAGE(K_PROJ, "k_proj", "", DS_OP_MATMUL, KV, ACTIVATION, ALWAYS, ONE) READS(1, ROW(ATTN_NORM)),
    STAGE(V_PROJ, "v_proj", "", DS_OP_MATMUL, KV, ACTIVATION, ALWAYS, ONE) READS(1, ROW(ATTN_NORM)),
    STAGE(Q_NORM, "q_norm", "", DS_OP_RMSNORM, Q, ACTIVATION, QK_NORM, ONE) READS(1, ROW(Q_PROJ)),
    STAGE(K_NORM, "k_norm", "", DS_OP_RMSNORM, KV, ACTIVATION, QK_NORM, ONE) READS(1, ROW(K_PROJ)),
    STAGE(Q_ROPE, "q_rope", "", DS_OP_ROPE, Q, ACTIVATION, ALWAYS, ONE)
        READS(2, ROW(POSITIONS), ROW(Q_NORM)),
    STAGE(K_ROPE, "k_rope", "", DS_OP_ROPE, KV, ACTIVATION, ALWAYS, ONE)
        READS(2, ROW(POSITIONS), ROW(K_NORM)),
    STAGE(KV_WRITE_K, "kv_write", "k", DS_OP_CACHE, KV, ACTIVATION, ALWAYS, ONE)
        READS(2, MAYBE(SLOTS), ROW(K_ROPE)),
    STAGE(KV_KEPT_K, "kv_write", "k-kept", DS_OP_CACHE, ONE, I32, WATCHED, ONE)
        READS(2, MAYBE(SLOTS), ROW(K_ROPE)),
    STAGE(KV_WRITE_V, "kv_write", "v", DS_OP_CACHE, KV, ACTIVATION, ALWAYS, ONE)
        READS(2, MAYBE(SLOTS), ROW(V_PROJ)),
    STAGE(KV_KEPT_V, "kv_write", "v-kept", DS_OP_CACHE, ONE, I32, WATCHED, ONE)
        READS(2, MAYBE(SLOTS), ROW(V_PROJ)),
    /* Nobody reads these two: a probe must not choose another kernel. */
    STAGE(ATTN_SCORES, "attn_scores", "", ENGINE, SCORES, ACTIVATION, SCORES, ONE)
        READS(4, ROW(KV_LEN), ROW(Q_ROPE), CAUSAL(KV_WRITE_K), MAYBE_CAUSAL(KV_KEPT_K)),
    STAGE(ATTN_PROBS, "attn_probs", "", ENGINE, SCORES, ACTIVATION, SCORES, ONE)
        READS(2, ROW(KV_LEN), ROW(ATTN_SCORES)),
    STAGE(ATTN_OUT, "attn_out", "", DS_OP_ATTENTION, Q, ACTIVATION, ALWAYS, ONE)
        READS(6, ROW(KV_LEN), ROW(Q_ROPE), CAUSAL(KV_WRITE_K), CAUSAL(KV_WRITE_V),
            MAYBE_CAUSAL(KV_KEPT_K), MAYBE_CAUSAL(KV_KEPT_V)),
    STAGE(O_PARTIAL, "o_proj", "", DS_OP_MATMUL, MODEL, ACTIVATION, RANKS, RANKS)
        READS(1, ROW(ATTN_OUT)),
    STAGE(O_ALLREDUCE, "allreduce", "o_proj", DS_OP_ALLREDUCE, MODEL, ACTIVATION, RANKS, ONE)
        READS(1, ROW(O_PARTIAL)),
    STAGE(O_PROJ, "o_proj", "", DS_OP_MATMUL, MODEL, ACTIVATION, ALWAYS, ONE)
        READS(1, ROW(O_ALLREDUCE)),
    STAGE(RESID_ATTN, "resid_attn", "", DS_OP_ADD, MODEL, ACTIVATION, ALWAYS, ONE)
        READS(2, ROW(TRANSFER_DST), ROW(O_PROJ)),
    STAGE(FFN_NORM, "ffn_norm", "", DS_OP_RMSNORM, MODEL, ACTIVATION, ALWAYS, ONE)
        READS(1, ROW(RESID_ATTN)),

    STAGE(GATE, "gate", "", DS_OP_MATMUL, FFN, ACTIVATION, DENSE, ONE) READS(1, ROW(FFN_NORM)),
    STAGE(UP, "up", "", DS_OP_MATMUL, FFN, ACTIVATION, DENSE, ONE) READS(1, ROW(FFN_NORM)),
    STAGE(ACT, "act", "", DS_OP_SILU_MUL, FFN, ACTIVATION, DENSE, ONE) READS(2, ROW(GATE), ROW(UP)),
    STAGE(DOWN_PARTIAL, "down", "", DS_OP_MATMUL, MODEL, ACTIVATION, RANKS, RANKS)
        READS(1, ROW(ACT)),
    STAGE(DOWN_ALLREDUCE, "allreduce", "down", DS_OP_ALLREDUCE, MODEL, ACTIVATION, RANKS, ONE)
        READS(1, ROW(DOWN_PARTIAL)),
    STAGE(DOWN, "down", "", DS_OP_MATMUL, MODEL, ACTIVATION, DENSE, ONE)
        READS(1, ROW(DOWN_ALLREDUCE)),

    STAGE(ROUTER_LOGITS, "router_logits", "", DS_OP_MATMUL, EXPERTS, ACTIVATION, EXPERTS, ONE)
        READS(1, ROW(FFN_NORM)),
    STAGE(ROUTER_LOGITS_SHARED, "router_logits", "shared", DS_OP_MATMUL, ONE, ACTIVATION, SHARED,
        ONE)
        READS(1, ROW(FFN_NORM)),
    STAGE(ROUTER_IDS, "router_ids", "", DS_OP_ROUTER, TOP_K, I32, EXPERTS, ONE)
        READS(1, ROW(ROUTER_LOGITS)),
    STAGE(ROUTER_WEIGHTS, "router_ids", "weights", DS_OP_ROUTER, ADDENDS, F32, EXPERTS, ONE)
        READS(3, ROW(ROUTER_LOGITS), MAYBE(ROUTER_LOGITS_SHARED), ROW(ROUTER_IDS)),
    STAGE(GATE_EXPERT, "gate", "", DS_OP_MATMUL, FFN_EXPERT, ACTIVATION, EXPERTS, CHOSEN)
        READS(2, ROW(FFN_NORM), ROW(ROUTER_IDS)),
    STAGE(UP_EXPERT, "up", "", DS_OP_MATMUL, FFN_EXPERT, ACTIVATION, EXPERTS, CHOSEN)
        READS(2, ROW(FFN_NORM), ROW(ROUTER_IDS)),
    STAGE(ACT_EXPERT, "act", "", DS_OP_SILU_MUL, FFN_EXPERT, ACTIVATION, EXPERTS, CHOSEN)
        READS(2, ROW(GATE_EXPERT), ROW(UP_EXPERT)),
    STAGE(EXPERT_OUT, "expert_out", "", DS_OP_MATMUL, MODEL, ACTIVATION, EXPERTS, CHOSEN)
        READS(2, ROW(ACT_EXPERT), ROW(ROUTER_IDS)),
    STAGE(GATE_SHARED, "gate", "shared", DS_OP_MATMUL, FFN_SHARED, ACTIVATION, SHARED, ONE)
        READS(1, ROW(FFN_NORM)),
    STAGE(UP_SHARED, "up", "shared", DS_OP_MATMUL, FFN_SHARED, ACTIVATION, SHARED, ONE)
        READS(1, ROW(FFN_NORM)),
    STAGE(ACT_SHARED, "act", "shared", DS_OP_SILU_MUL, FFN_SHARED, ACTIVATION, SHARED, ONE)
        READS(2, ROW(GATE_SHARED), ROW(UP_SHARED)),
    STAGE(EXPERT_OUT_SHARED, "expert_out", "shared", DS_OP_MATMUL, MODEL, ACTIVATION, SHARED, ONE)
        READS(1, ROW(ACT_SHARED)),
    STAGE(MOE_PARTIAL, "moe_combine", "", DS_OP_COMBINE, MODEL, ACTIVATION, RANKS, RANKS)
        READS(3, ROW(ROUTER_WEIGHTS), ROW(EXPERT_OUT), MAYBE(EXPERT_OUT_SHARED)),
    STAGE(MOE_ALLREDUCE, "allreduce", "moe_combine", DS_OP_ALLREDUCE, MODEL, ACTIVATION, RANKS, ONE)
        READS(1, ROW(MOE_PARTIAL)),
    STAGE(MOE_COMBINE, "moe_combine", "", DS_OP_COMBINE, MODEL, ACTIVATION, EXPERTS, ONE)
        READS(1, ROW(MOE_ALLREDUCE)),
    STAGE(RESID_FFN, "resid_ffn", "", DS_OP_ADD, MODEL, ACTIVATION, ALWAYS, ONE)
        READS(3, ROW(RESID_ATTN), MAYBE(DOWN), MAYBE(MOE_COMBINE)),

    STAGE(FINAL_NORM, "final_norm", "", DS_OP_RMSNORM, MODEL, ACTIVATION, ALWAYS, ONE)
        READS(1, ROW(RESID_IN)),
    STAGE(LOGITS, "logits", "", DS_OP_MATMUL, VOCAB, F32, ALWAYS, ONE) READS(1, ROW(FINAL_NORM)),
    STAGE(LOGITS_PROCESSED, "logits_processed", "", DS_OP_PROCESS, VOCAB, F32, ALWAYS, ONE)
        READS(1, ROW(LOGITS)),
    STAGE(TOKEN, "token", "", DS_OP_SAMPLE, ONE, I32, ALWAYS, ONE) READS(1, ROW(LOGITS_PROCESSED)),
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
    case DS_WIDTH_EXPERTS:
        return hp->n_experts;
    case DS_WIDTH_TOP_K:
        return hp->top_k;
    case DS_WIDTH_ADDENDS:
        return hp->top_k + (hp->d_ff_shared > 0);
    case DS_WIDTH_FFN_EXPERT:
        return hp->d_ff_expert;
    case DS_WIDTH_FFN_SHARED:
        return hp->d_ff_shared;
    case DS_WIDTH_SCORES:
        return hp->n_heads;
    default:
        return 1;
    }
}
