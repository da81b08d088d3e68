/* forward_pass.c: the stages of one call, in order: launch the kernel, round and show its output (forward_show.c). A kernel
 * with DS_FEATURE_UNROUNDED is given what its producer left before that was rounded; everybody else reads the rounded rows.
 * Owns the order of things; must not know how a call was planned, nor what a probe is. */
#include "engine/forward_private.h"

#include "kernels/call.h"

#include <string.h>

static int emit(struct ds_pass *p, int stage, float *y)
{
    return ds_pass_emit(p, stage, 0, y);
}

/* ---- the ops --------------------------------------------------------------------------------- */

static int rmsnorm(struct ds_pass *p, int stage, const float *x, const struct ds_weight *w,
                   float *y)
{
    struct ds_forward *f = p->f;
    struct ds_rmsnorm_args a = {.rows = f->rows,
                                .width = f->d,
                                .x = ds_forward_input(f, stage, x),
                                .ldx = f->d,
                                .weight = ds_desk_weight(f, w),
                                .eps = f->m->hp.rms_eps,
                                .y = y,
                                .ldy = f->d,
                                .stored = f->at.stored};
    return ds_pass_launch(p, stage, &a, y, (size_t)(f->rows * f->d)) != 0 ? -1 : emit(p, stage, y);
}

/* Every head is a row. */
static int rmsnorm_heads(struct ds_pass *p, int stage, const float *x, int64_t heads,
                         const struct ds_weight *w, float *y)
{
    struct ds_forward *f = p->f;
    const int64_t width = f->m->hp.head_dim;
    struct ds_rmsnorm_args a = {.rows = f->rows * heads,
                                .width = width,
                                .x = ds_forward_input(f, stage, x),
                                .ldx = width,
                                .weight = ds_desk_weight(f, w),
                                .eps = f->m->hp.rms_eps,
                                .y = y,
                                .ldy = width,
                                .stored = f->at.stored};
    return ds_pass_launch(p, stage, &a, y, (size_t)(a.rows * width)) != 0 ? -1 : emit(p, stage, y);
}

void ds_pass_matmul_args(const struct ds_forward *f, const struct ds_weight *w,
                         const struct ds_weight *bias, int64_t rows, const float *x, float *y,
                         struct ds_matmul_args *a)
{
    const struct ds_weight_view view =
        ds_forward_host(f) ? ds_weight_view(w) : ds_desk_matrix(f, w);
    *a = (struct ds_matmul_args){.rows = rows,
                                 .n = w->rows,
                                 .k = w->cols,
                                 .x = x,
                                 .ldx = w->cols,
                                 .w = view,
                                 .prepared = ds_model_prepared(f->m, f->kernel[DS_OP_MATMUL], w),
                                 .bias = ds_desk_weight(f, bias),
                                 .y = y,
                                 .ldy = w->rows,
                                 .stored = f->at.stored,
                                 .y_stored = f->at.stored};
}

int ds_pass_matmul(struct ds_pass *p, int stage, const float *x, const struct ds_weight *w,
                   const struct ds_weight *bias, float *y)
{
    struct ds_matmul_args a;
    if (p->f->rank_weights && (stage == DS_ST_O_PROJ || stage == DS_ST_DOWN))
        return ds_pass_ranks(p, stage, x, w, bias, y);
    ds_pass_matmul_args(p->f, w, bias, p->f->rows, ds_forward_input(p->f, stage, x), y, &a);
    return ds_pass_launch(p, stage, &a, y, (size_t)(a.rows * a.n)) != 0 ? -1 : emit(p, stage, y);
}

static int rope(struct ds_pass *p, int stage, const float *x, int32_t heads, float *y)
{
    struct ds_forward *f = p->f;
    const struct ds_hparams *hp = &f->m->hp;
    int64_t width = (int64_t)heads * hp->head_dim;
    struct ds_rope_args a = {.rows = f->rows,
                             .heads = heads,
                             .head_dim = hp->head_dim,
                             .rope_dim = hp->rope_dim,
                             .neox = hp->rope_neox,
                             .positions = f->at.positions,
                             .cos_sin = f->at.rope_table ? f->at.rope_table : f->m->rope_table,
                             .table_positions =
                                 f->at.rope_table ? f->at.rope_positions : f->m->rope_positions,
                             .x = ds_forward_input(f, stage, x),
                             .ldx = width,
                             .y = y,
                             .ldy = width,
                             .stored = f->at.stored};
    return ds_pass_launch(p, stage, &a, y, (size_t)(f->rows * width)) != 0 ? -1 : emit(p, stage, y);
}

void ds_forward_attention_args(const struct ds_forward *f, int32_t layer,
                               struct ds_attention_args *a)
{
    const struct ds_hparams *hp = &f->m->hp;
    *a = (struct ds_attention_args){.rows = f->rows,
                                    .heads = hp->n_heads,
                                    .kv_heads = hp->n_kv_heads,
                                    .head_dim = hp->head_dim,
                                    .scale = f->scale,
                                    .q = ds_forward_input(f, DS_ST_ATTN_OUT, f->at.q_rope),
                                    .ldq = f->q_dim,
                                    .cache_k = f->layer_k[layer],
                                    .cache_v = f->layer_v[layer],
                                    .page_size = f->cache.page_size,
                                    .pages = f->cache.pages,
                                    .sequences = f->seqs,
                                    .n_sequences = f->n_seqs,
                                    .device_sequences = f->at.sequences,
                                    .max_q_len = f->max_q_len,
                                    .max_kv_len = f->config.graph ? (int32_t)f->config.capacity
                                                                  : f->max_kv_len,
                                    .window = f->window ? ds_window_of_layer(hp, layer) : 0,
                                    .soft_cap = f->m->hp.soft_cap,
                                    .y = f->at.attn_out,
                                    .ldy = f->q_dim,
                                    .stored = f->at.stored};
}

static int attention(struct ds_pass *p)
{
    struct ds_attention_args a;
    ds_forward_attention_args(p->f, p->layer, &a);
    size_t n = (size_t)(p->f->rows * p->f->q_dim);
    return ds_pass_launch(p, DS_ST_ATTN_OUT, &a, a.y, n) != 0 ? -1 : emit(p, DS_ST_ATTN_OUT, a.y);
}

static int add(struct ds_pass *p, int stage, const float *x, const float *delta, float *y)
{
    struct ds_forward *f = p->f;
    struct ds_add_args a = {.rows = f->rows,
                            .width = f->d,
                            .a = ds_forward_input(f, stage, x),
                            .b = ds_forward_input(f, stage, delta),
                            .lda = f->d,
                            .ldb = f->d,
                            .y = y,
                            .ldy = f->d,
                            .stored = f->at.stored};
    return ds_pass_launch(p, stage, &a, y, (size_t)(f->rows * f->d)) != 0 ? -1 : emit(p, stage, y);
}

static int silu_mul(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    struct ds_silu_mul_args a = {.rows = f->rows,
                                 .width = f->d_ff,
                                 .gate = ds_forward_input(f, DS_ST_ACT, f->at.gate),
                                 .up = ds_forward_input(f, DS_ST_ACT, f->at.up),
                                 .ldx = f->d_ff,
                                 .y = f->at.act,
                                 .ldy = f->d_ff,
                                 .stored = f->at.stored};
    return ds_pass_launch(p, DS_ST_ACT, &a, f->at.act, (size_t)(f->rows * f->d_ff)) != 0
               ? -1
               : emit(p, DS_ST_ACT, f->at.act);
}

/* ---- the order of things --------------------------------------------------------------------- */

/* A table that stays in its file is given as the rows that the call wants, in norm, which nobody
 * uses yet. */
static int embed(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    struct ds_embed_args a = {.table = ds_desk_weight(f, f->m->embed),
                              .vocab = f->vocab,
                              .width = f->d,
                              .rows = f->rows,
                              .ids = f->at.ids,
                              .y = f->at.resid[0],
                              .ldy = f->d,
                              .stored = f->at.stored};
    if (!a.table) {
        ds_model_embed_rows(f->m, f->ids, f->rows, f->at.norm);
        a.table = f->at.norm;
        a.vocab = f->rows;
        a.ids = f->own_row;
    }
    return ds_pass_launch(p, DS_ST_EMBED, &a, a.y, (size_t)(f->rows * f->d)) != 0
               ? -1
               : emit(p, DS_ST_EMBED, a.y);
}

/* Where the rows stand, shown and then brought to the device. */
static int plan_call(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    int failed = ds_forward_schedule(p) ||
                 ds_pass_show_host(p, DS_ST_POSITIONS, f->positions, sizeof *f->positions) ||
                 ds_pass_show_host(p, DS_ST_KV_LEN, f->kv_len, sizeof *f->kv_len) ||
                 ds_pass_show_host(p, DS_ST_SLOTS, f->own_slot, sizeof *f->own_slot) ||
                 ds_forward_follow_schedule(p) || ds_desk_plan(f, p->err);
    return -failed;
}

static int feed_forward(struct ds_pass *p, const struct ds_layer *w)
{
    struct ds_forward *f = p->f;
    int failed = ds_pass_matmul(p, DS_ST_GATE, f->at.norm, w->gate, w->gate_bias, f->at.gate) ||
                 ds_pass_matmul(p, DS_ST_UP, f->at.norm, w->up, w->up_bias, f->at.up) ||
                 silu_mul(p) ||
                 ds_pass_matmul(p, DS_ST_DOWN, f->at.act, w->down, w->down_bias, f->at.proj);
    return -failed;
}

static int layer(struct ds_pass *p, const struct ds_layer *w)
{
    struct ds_forward *f = p->f;
    const struct ds_hparams *hp = &f->m->hp;
    if (ds_pass_enter_layer(p) != 0)
        return -1;
    float *in = f->at.resid[0], *mid = f->at.resid[1], *q = f->at.q, *k = f->at.k;
    int failed = rmsnorm(p, DS_ST_ATTN_NORM, in, w->attn_norm, f->at.norm) ||
                 ds_pass_matmul(p, DS_ST_Q_PROJ, f->at.norm, w->q, w->q_bias, f->at.q) ||
                 ds_pass_matmul(p, DS_ST_K_PROJ, f->at.norm, w->k, w->k_bias, f->at.k) ||
                 ds_pass_matmul(p, DS_ST_V_PROJ, f->at.norm, w->v, w->v_bias, f->at.v);
    if (hp->qk_norm) {
        q = f->at.q_norm;
        k = f->at.k_norm;
        failed = failed || rmsnorm_heads(p, DS_ST_Q_NORM, f->at.q, hp->n_heads, w->q_norm, q) ||
                 rmsnorm_heads(p, DS_ST_K_NORM, f->at.k, hp->n_kv_heads, w->k_norm, k);
    }
    failed = failed || rope(p, DS_ST_Q_ROPE, q, hp->n_heads, f->at.q_rope) ||
             rope(p, DS_ST_K_ROPE, k, hp->n_kv_heads, f->at.k_rope) ||
             ds_pass_cache_write(p, DS_ST_KV_WRITE_K, f->at.k_rope, f->layer_k[p->layer]) ||
             ds_pass_cache_write(p, DS_ST_KV_WRITE_V, f->at.v, f->layer_v[p->layer]) ||
             ds_pass_scores(p) || attention(p) ||
             ds_pass_matmul(p, DS_ST_O_PROJ, f->at.attn_out, w->o, w->o_bias, f->at.proj) ||
             add(p, DS_ST_RESID_ATTN, in, f->at.proj, mid) ||
             rmsnorm(p, DS_ST_FFN_NORM, mid, w->ffn_norm, f->at.norm) ||
             (ds_layer_has_experts(hp, p->layer) ? ds_pass_experts(p, w) : feed_forward(p, w)) ||
             add(p, DS_ST_RESID_FFN, mid, f->at.proj, in);
    return -failed;
}

int ds_pass_process(struct ds_pass *p, const float *logits)
{
    struct ds_forward *f = p->f;
    struct ds_process_args a = {.rows = f->n_logits,
                                .vocab = f->vocab,
                                .logits = logits,
                                .ldx = f->vocab,
                                .y = f->at.processed,
                                .ldy = f->vocab,
                                .requests = f->choice.requests,
                                .positions = f->choice.positions,
                                .steps = f->choice.steps,
                                .cached = f->choice.cached,
                                .tokens = f->choice.tokens,
                                .n_tokens = f->choice.n_tokens,
                                .sampler = f->drawn ? &f->config.sampler : NULL};
    if (ds_pass_launch(p, DS_ST_LOGITS_PROCESSED, &a, a.y, (size_t)(a.rows * a.vocab)) != 0)
        return -1;
    return ds_pass_show_chosen(p, DS_ST_LOGITS_PROCESSED, f->at.processed, sizeof *f->at.processed);
}

/* What the caller is given lies on the host. */
static int bring_results(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    const size_t n = (size_t)f->n_logits, row = (size_t)f->vocab * sizeof(float);
    if (f->drawer.dev) /* all of it is there */
        return 0;
    return ds_desk_from(f, f->tokens, f->at.tokens, n * sizeof *f->tokens, p->err) != 0 ||
                   ds_desk_from(f, f->logits, f->at.logits, n * row, p->err) != 0 ||
                   (f->processed &&
                    ds_desk_from(f, f->processed, f->at.processed, n * row, p->err) != 0)
               ? -1
               : 0;
}

/* From logits to tokens. */
static int choose(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    struct ds_sample_args s = {.rows = f->n_logits,
                               .vocab = f->vocab,
                               .logits = f->processed ? f->at.processed : f->at.logits,
                               .ldx = f->vocab,
                               .ids = f->at.tokens,
                               .sampler = f->drawn ? &f->config.sampler : NULL,
                               .streams = f->choice.streams,
                               .steps = f->choice.steps,
                               .scores = f->drawn};
    if (f->processed && ds_pass_process(p, f->at.logits) != 0)
        return -1;
    return ds_pass_launch(p, DS_ST_TOKEN, &s, NULL, 0) != 0
               ? -1
               : ds_pass_show_chosen(p, DS_ST_TOKEN, f->at.tokens, sizeof *f->at.tokens);
}

/* Logits and tokens, of the rows that need them only: M of this matmul is their number. */
static int choose_tokens(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    if (!f->n_logits)
        return 0;
    const int64_t row = f->d * (int64_t)ds_forward_element(f);
    const struct ds_device_rows wanted = {.n = f->n_logits,
                                          .row_bytes = row,
                                          .x = ds_forward_input(f, DS_ST_LOGITS, f->at.norm),
                                          .x_stride = row,
                                          .x_at = f->at.logit_row,
                                          .y = f->at.head_in,
                                          .y_stride = row};
    struct ds_matmul_args a;
    ds_pass_matmul_args(f, f->m->head, NULL, f->n_logits, f->at.head_in, f->at.logits, &a);
    a.y_stored = DS_ELEMENT_F32;
    if (ds_desk_rows(f, &wanted, p->err) != 0 ||
        ds_pass_launch(p, DS_ST_LOGITS, &a, a.y, (size_t)(a.rows * a.n)) != 0 ||
        ds_pass_show_chosen(p, DS_ST_LOGITS, f->at.logits, sizeof *f->at.logits) != 0 ||
        ds_pass_begin_draw(p) != 0)
        return -1;
    const int rc = choose(p);
    ds_pass_end_draw(p);
    return rc;
}

static int take_results(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    if (!f->n_logits)
        return ds_device_check(f->at.dev, f->at.dev->wait(f->at.dev), p->err);
    if (bring_results(p) != 0)
        return -1;
    for (int32_t i = 0; i < f->n_logits; i++)
        if (f->tokens[i] < 0 || f->tokens[i] >= f->vocab) {
            ds_fail(p->err, "chose token %d of a vocabulary of %lld", (int)f->tokens[i],
                    (long long)f->vocab);
            return ds_pass_blame(p, DS_ST_TOKEN);
        }
    return 0;
}

/* From the tokens' ids to the ids of new tokens. On a device nothing is waited for, but for what the host
 * must know meanwhile. */
static int from_ids_to_ids(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    p->layer = -1;
    ds_forward_enter(f, p->layer);
    if (embed(p) != 0)
        return -1;
    for (p->layer = 0; p->layer < f->m->hp.n_layers; p->layer++) {
        ds_forward_enter(f, p->layer);
        if (layer(p, &f->m->layers[p->layer]) != 0)
            return -1;
    }
    ds_forward_enter(f, p->layer);
    return rmsnorm(p, DS_ST_FINAL_NORM, f->at.resid[0], f->m->final_norm, f->at.norm) != 0
               ? -1
               : choose_tokens(p);
}

static int all_stages(struct ds_forward *f, struct ds_probe *probe, struct ds_error *err)
{
    struct ds_pass p = {
        .f = f, .probe = probe, .err = err, .layer = -1, .fp_control = ds_fp_control()};
    memset(f->launch_known, 0, sizeof f->launch_known);
    f->plans++;
    ds_forward_to_device(f, ds_placement_device(&f->config.placement, 0));
    ds_forward_enter(f, p.layer);
    if (plan_call(&p) != 0 ||
        (ds_graph_wanted(&p) ? ds_graph_call(&p, from_ids_to_ids) : from_ids_to_ids(&p)) != 0 ||
        take_results(&p) != 0 || ds_log_flush(&p) != 0)
        return -1;
    int changed = ds_pass_restore_team(&p);
    if (changed) {
        ds_fail(err,
                "a kernel changed the floating-point control word of %d thread(s) during the call",
                changed);
        return ds_hint(err, "poisoning checks after every launch and names the kernel");
    }
    return 0;
}

int ds_forward_stages(struct ds_forward *f, struct ds_probe *probe, struct ds_error *err)
{
    const int rc = all_stages(f, probe, err);
    struct ds_device *dev = f->at.dev;
    ds_log_drop(f);
    /* A device that is of no use any more says so again. */
    if (rc != 0 && !ds_forward_host(f) && !f->config.poison && dev->wait(dev) != 0)
        ds_hint(err, "run --poison waits for every launch, so that a fault is told of its kernel");
    return rc;
}

/* ---- scratch, asked for ahead ---------------------------------------------------------------- */

int ds_forward_reserve(struct ds_forward *f, int64_t rows, struct ds_error *err)
{
    const struct ds_hparams *hp = &f->m->hp;
    const struct ds_kernel *const *k = f->config.kernels.op;
    const struct ds_layer *l = &f->m->layers[0];
    const struct ds_weight *weights[] = {
        l->q,           l->k,         l->v,           l->o,
        l->gate,        l->up,        l->down,        l->router,
        l->gate_exps,   l->up_exps,   l->down_exps,   f->m->head,
        l->gate_shared, l->up_shared, l->down_shared, l->router_shared};
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        struct ds_matmul_args a;
        if (!weights[i])
            continue;
        ds_pass_matmul_args(f, weights[i], NULL, rows, f->at.norm, f->at.proj, &a);
        if (ds_forward_scratch(f, k[DS_OP_MATMUL], &a, err) != 0)
            return -1;
        /* A library opens itself when it is first asked, which it cannot do inside of a capture. */
        struct ds_launch_info info;
        if (f->config.graph)
            (void)ds_call_describe(k[DS_OP_MATMUL], &a, &f->exec, &info);
    }
    struct ds_rmsnorm_args norm = {.rows = rows,
                                   .width = f->d,
                                   .x = f->at.norm,
                                   .ldx = f->d,
                                   .weight = l->attn_norm->data,
                                   .eps = hp->rms_eps,
                                   .y = f->at.proj,
                                   .ldy = f->d,
                                   .stored = f->at.stored};
    struct ds_attention_args attn;
    ds_forward_attention_args(f, 0, &attn);
    struct ds_silu_mul_args experts = {.rows = rows * hp->top_k,
                                       .width = hp->d_ff_expert,
                                       .gate = f->at.moe.gate,
                                       .up = f->at.moe.up,
                                       .ldx = hp->d_ff_expert,
                                       .y = f->at.moe.act,
                                       .ldy = hp->d_ff_expert,
                                       .stored = f->at.stored};
    struct ds_silu_mul_args silu = {.rows = rows,
                                    .width = f->d_ff,
                                    .gate = f->at.gate,
                                    .up = f->at.up,
                                    .ldx = f->d_ff,
                                    .y = f->at.act,
                                    .ldy = f->d_ff,
                                    .stored = f->at.stored};
    struct ds_add_args sum = {.rows = rows,
                              .width = f->d,
                              .a = f->at.norm,
                              .b = f->at.proj,
                              .lda = f->d,
                              .ldb = f->d,
                              .y = f->at.resid[1],
                              .ldy = f->d,
                              .stored = f->at.stored};
    int failed =
        ds_forward_scratch(f, k[DS_OP_RMSNORM], &norm, err) ||
        ds_forward_scratch(f, k[DS_OP_ATTENTION], &attn, err) ||
        (!ds_layer_has_experts(hp, 0) && ds_forward_scratch(f, k[DS_OP_SILU_MUL], &silu, err)) ||
        (hp->n_experts && ds_forward_scratch(f, k[DS_OP_SILU_MUL], &experts, err)) ||
        ds_forward_scratch(f, k[DS_OP_ADD], &sum, err);
    return -failed;
}
