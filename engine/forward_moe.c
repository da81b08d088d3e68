/* forward_moe.c: the feed-forward part of a layer with experts: router, each expert's matmuls on
 * the rows that chose it, the expert that every row passes, and their sum. Owns the order in which
 * rows are gathered: by expert, ascending in the call's rows, which is what an engine's grouped
 * matmul sees. Must not know what stands before and after it in a layer.
 *
 * A row has one site for each of its top_k choices, best first ("e0", "e1", ...), whichever expert
 * that is, so that rows compare by key; the launch stored with it is that of its expert, whose M is
 * the number of rows that chose it. Sites are shown once a stage is complete for all experts, so
 * what a probe writes there is read by the next stage. Kernels that read rows before rounding are
 * given rounded ones by experts. */
#include "engine/forward_private.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* What the host keeps of experts: choices, weights, lists. */
int ds_forward_moe_new(struct ds_forward *f, struct ds_error *err)
{
    const struct ds_hparams *hp = &f->m->hp;
    struct ds_moe *e = &f->moe;
    size_t rows = (size_t)f->config.max_rows, top_k = (size_t)hp->top_k, pairs;
    if (hp->n_experts == 0)
        return 0;
    if (__builtin_mul_overflow(rows, top_k, &pairs) || pairs > INT32_MAX)
        return ds_fail(err, "%zu rows with %zu experts each are too many", rows, top_k);
    e->addends = hp->top_k + (hp->d_ff_shared > 0);
    const size_t experts = (size_t)hp->n_experts, addends = (size_t)e->addends,
                 shown = (size_t)(hp->d_ff_expert > f->d ? hp->d_ff_expert : f->d);
    /* Outputs of the router, which are guarded as those on the desk are: see forward_guard.c. */
    const size_t guard = DS_GUARD_BYTES / sizeof *e->chosen;
    return (e->chosen = ds_calloc(pairs + guard, sizeof *e->chosen, "router weights", err)) &&
                   (e->weights =
                        ds_calloc(rows, addends * sizeof *e->weights, "router weights", err)) &&
                   (e->on_rank =
                        ds_calloc(rows, addends * sizeof *e->on_rank, "router weights", err)) &&
                   (e->two_weights = ds_calloc(2 * rows + guard, sizeof *e->two_weights,
                                               "router weights", err)) &&
                   (e->shown =
                        ds_alloc_aligned(rows, shown * sizeof *e->shown, "rows of experts", err)) &&
                   (e->ids = ds_calloc(pairs, sizeof *e->ids, "expert ids", err)) &&
                   (e->two_ids = ds_calloc(rows, 2 * sizeof *e->two_ids, "expert ids", err)) &&
                   (e->pair = ds_calloc(pairs, sizeof *e->pair, "rows of experts", err)) &&
                   (e->place = ds_calloc(pairs, sizeof *e->place, "rows of experts", err)) &&
                   (e->list = ds_calloc(pairs, sizeof *e->list, "rows of experts", err)) &&
                   (e->only = ds_calloc(rows, sizeof *e->only, "rows of experts", err)) &&
                   (e->from = ds_calloc(rows, sizeof *e->from, "rows of experts", err)) &&
                   (e->rec_of = ds_calloc(rows, sizeof *e->rec_of, "recorded rows", err)) &&
                   (e->first = ds_calloc(experts + 1, sizeof *e->first, "experts", err)) &&
                   (e->launch = ds_calloc(experts, sizeof *e->launch, "experts", err))
               ? 0
               : -1;
}

void ds_forward_moe_free(struct ds_forward *f)
{
    struct ds_moe *e = &f->moe;
    void *owned[] = {e->chosen, e->weights, e->on_rank, e->two_weights, e->shown,
                     e->ids,    e->two_ids, e->pair,    e->place,       e->list,
                     e->only,   e->from,    e->rec_of,  e->first,       e->launch};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

/* What the host has as well is on the CPU the host's own. */
static int shared_rows(struct ds_forward *f, struct ds_error *err)
{
    struct ds_moe *e = &f->moe;
    struct ds_moe_rows *y = &f->at.moe;
    const size_t rows = (size_t)f->config.max_rows, top_k = (size_t)f->m->hp.top_k,
                 weights = rows * (size_t)e->addends * sizeof *e->weights;
    return ds_desk_copy_of(f, e->chosen, rows * top_k * sizeof *e->chosen, "router weights",
                           &y->chosen, err) != 0 ||
                   ds_desk_copy_of(f, e->weights, weights, "router weights", &y->weights, err) !=
                       0 ||
                   ds_desk_copy_of(f, e->on_rank, weights, "router weights", &y->on_rank, err) !=
                       0 ||
                   ds_desk_copy_of(f, e->two_weights, 2 * rows * sizeof *e->two_weights,
                                   "router weights", &y->two_weights, err) != 0 ||
                   ds_desk_copy_of(f, e->ids, rows * top_k * sizeof *e->ids, "expert ids", &y->ids,
                                   err) != 0 ||
                   ds_desk_copy_of(f, e->two_ids, 2 * rows * sizeof *e->two_ids, "expert ids",
                                   &y->two_ids, err) != 0
               ? -1
               : 0;
}

int ds_forward_moe_rows(struct ds_forward *f, struct ds_error *err)
{
    const struct ds_hparams *hp = &f->m->hp;
    struct ds_moe_rows *e = &f->at.moe;
    const size_t rows = (size_t)f->config.max_rows, pairs = rows * (size_t)hp->top_k;
    if (hp->n_experts == 0)
        return 0;
    const struct {
        float **out;
        size_t rows;
        int64_t width;
        const char *what;
    } list[] = {
        {&e->logits, rows, hp->n_experts, "router logits"},
        {&e->x, pairs, f->d, "rows of experts"},
        {&e->gate, pairs, hp->d_ff_expert, "gate rows of experts"},
        {&e->up, pairs, hp->d_ff_expert, "up rows of experts"},
        {&e->act, pairs, hp->d_ff_expert, "act rows of experts"},
        {&e->y, pairs, f->d, "output rows of experts"},
        {&e->sum_of, rows * (size_t)f->moe.addends, f->d, "rows to be combined"},
        {&e->shared_logits, rows, hp->d_ff_shared ? 1 : 0, "router logits"},
        {&e->two, rows, hp->d_ff_shared ? 2 : 0, "router logits"},
        {&e->gate_shared, rows, hp->d_ff_shared, "gate rows"},
        {&e->up_shared, rows, hp->d_ff_shared, "up rows"},
        {&e->act_shared, rows, hp->d_ff_shared, "act rows"},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const size_t bytes = (size_t)list[i].width * ds_forward_element(f);
        if (list[i].width == 0)
            continue;
        if (ds_desk_new(f, list[i].rows, bytes, list[i].what, list[i].out, err) != 0 ||
            (f->config.poison &&
             ds_forward_poison_rows(f, *list[i].out, list[i].rows * (size_t)list[i].width, err) !=
                 0))
            return -1;
    }
    return shared_rows(f, err);
}

int64_t ds_forward_moe_widest(const struct ds_forward *f)
{
    const struct ds_hparams *hp = &f->m->hp;
    int64_t widths[] = {hp->n_experts, hp->d_ff_shared, (int64_t)hp->top_k * hp->d_ff_expert,
                        (int64_t)hp->top_k * f->d},
            widest = 1;
    for (size_t i = 0; i < sizeof widths / sizeof widths[0] && hp->n_experts; i++)
        widest = widths[i] > widest ? widths[i] : widest;
    return widest;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* Launches the router kernel. With one logit the second is 0, and the softmax of both is the
 * logit's logistic function: the weight of the expert that every row passes. */
static int launch_router(struct ds_pass *p, const float *logits, int64_t experts, int64_t top_k,
                         int normalise, int32_t *ids, float *weights)
{
    struct ds_router_args a = {.rows = p->f->rows,
                               .experts = experts,
                               .top_k = top_k,
                               .logits = logits,
                               .ldx = experts,
                               .normalise = normalise,
                               .ids = ids,
                               .weights = weights,
                               .stored = p->f->at.stored};
    return ds_pass_launch(p, DS_ST_ROUTER_IDS, &a, weights, (size_t)(a.rows * top_k));
}

static int check_ids(struct ds_pass *p)
{
    const struct ds_forward *f = p->f;
    const struct ds_hparams *hp = &f->m->hp;
    for (int64_t i = 0; i < (int64_t)f->rows * hp->top_k; i++)
        if (f->moe.ids[i] < 0 || f->moe.ids[i] >= hp->n_experts) {
            ds_fail(p->err, "row %d chose expert %d of %d", (int)(i / hp->top_k),
                    (int)f->moe.ids[i], (int)hp->n_experts);
            return ds_pass_blame(p, DS_ST_ROUTER_IDS);
        }
    return 0;
}

/* The weight of the expert that every row passes, as the last addend of every row. */
static int weigh_shared(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    struct ds_moe *e = &f->moe;
    struct ds_moe_rows *y = &f->at.moe;
    struct ds_device *dev = f->at.dev;
    const size_t two = 2 * (size_t)f->rows;
    const int64_t element = (int64_t)ds_forward_element(f);
    const struct ds_device_rows first = {.n = f->rows,
                                         .row_bytes = element,
                                         .x = y->shared_logits,
                                         .x_stride = element,
                                         .y = y->two,
                                         .y_stride = 2 * element};
    if (ds_device_check(dev, dev->fill(dev, y->two, 0, two * (size_t)element / sizeof(uint32_t)),
                        p->err) != 0 ||
        ds_desk_rows(f, &first, p->err) != 0 ||
        launch_router(p, y->two, 2, 2, 0, y->two_ids, y->two_weights) != 0 ||
        ds_desk_from(f, e->two_ids, y->two_ids, two * sizeof *e->two_ids, p->err) != 0 ||
        ds_desk_from(f, e->two_weights, y->two_weights, two * sizeof *e->two_weights, p->err) != 0)
        return -1;
    for (int32_t r = 0; r < f->rows; r++)
        e->weights[(r + 1) * e->addends - 1] = e->two_weights[2 * r + (e->two_ids[2 * r] != 0)];
    return 0;
}

/* Chooses the experts of every row and weighs them: what the host must know to go on. */
static int route(struct ds_pass *p, const struct ds_layer *w)
{
    struct ds_forward *f = p->f;
    const struct ds_hparams *hp = &f->m->hp;
    struct ds_moe *e = &f->moe;
    struct ds_moe_rows *y = &f->at.moe;
    const size_t pairs = (size_t)f->rows * (size_t)hp->top_k;
    if (ds_pass_matmul(p, DS_ST_ROUTER_LOGITS, f->at.norm, w->router, NULL, y->logits) != 0 ||
        (w->router_shared && ds_pass_matmul(p, DS_ST_ROUTER_LOGITS_SHARED, f->at.norm,
                                            w->router_shared, NULL, y->shared_logits) != 0) ||
        launch_router(p, y->logits, hp->n_experts, hp->top_k, hp->norm_top_k, y->ids, y->chosen) !=
            0 ||
        ds_desk_from(f, e->ids, y->ids, pairs * sizeof *e->ids, p->err) != 0 ||
        ds_desk_from(f, e->chosen, y->chosen, pairs * sizeof *e->chosen, p->err) != 0)
        return -1;
    for (int32_t r = 0; r < f->rows; r++)
        memcpy(e->weights + r * e->addends, e->chosen + r * hp->top_k,
               (size_t)hp->top_k * sizeof *e->chosen);
    if (w->router_shared && weigh_shared(p) != 0)
        return -1;
    f->launch[DS_ST_ROUTER_WEIGHTS] = f->launch[DS_ST_ROUTER_IDS];
    f->launch_known[DS_ST_ROUTER_WEIGHTS] = f->launch_known[DS_ST_ROUTER_IDS];
    if (ds_pass_show_host(p, DS_ST_ROUTER_IDS, e->ids, sizeof *e->ids) != 0 ||
        ds_pass_show_host(p, DS_ST_ROUTER_WEIGHTS, e->weights, sizeof *e->weights) != 0 ||
        ds_desk_to(f, y->weights, e->weights, (size_t)(f->rows * e->addends) * sizeof *e->weights,
                   p->err) != 0)
        return -1;
    return check_ids(p);
}

/* ---- gathering and showing ------------------------------------------------------------------- */

/* Sorts the pairs (row, choice) by expert; within one they stay in the call's order. Gathers the
 * rows that each expert reads. */
static int gather(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    const struct ds_hparams *hp = &f->m->hp;
    struct ds_moe *e = &f->moe;
    int32_t pairs = f->rows * hp->top_k;
    memset(e->first, 0, ((size_t)hp->n_experts + 1) * sizeof *e->first);
    for (int32_t i = 0; i < pairs; i++)
        e->first[e->ids[i] + 1]++;
    for (int32_t x = 0; x < hp->n_experts; x++)
        e->first[x + 1] += e->first[x];
    for (int32_t i = 0; i < pairs; i++) {
        int32_t at = e->first[e->ids[i]]++;
        e->pair[at] = i;
        e->place[i] = at;
        e->list[at] = i / hp->top_k;
    }
    for (int32_t x = hp->n_experts; x > 0; x--)
        e->first[x] = e->first[x - 1];
    e->first[0] = 0;
    for (int32_t r = 0; r < f->rows; r++)
        e->rec_of[r] = UINT32_MAX;
    for (uint32_t i = 0; i < f->n_rec; i++)
        e->rec_of[f->rec[i].slot] = i;
    const int64_t row = f->d * (int64_t)ds_forward_element(f);
    const struct ds_device_rows r = {.n = pairs,
                                     .row_bytes = row,
                                     .x = f->at.norm,
                                     .x_stride = row,
                                     .x_at = ds_desk_list(f, 0, e->list, (size_t)pairs, p->err),
                                     .y = f->at.moe.x,
                                     .y_stride = row};
    return r.x_at ? ds_desk_rows(f, &r, p->err) : -1;
}

/* Shows the rows listed in `only`, which lie at places `from`; takes back what a probe wrote. */
static int show_listed(struct ds_pass *p, int stage, uint32_t site, const struct ds_launch *launch,
                       void *data, size_t element, uint32_t width, uint32_t n)
{
    struct ds_forward *f = p->f;
    struct ds_moe *e = &f->moe;
    const size_t stride = width * element;
    char *shown = (char *)e->shown, *rows = data;
    if (n == 0)
        return 0;
    if (!ds_forward_host(f)) {
        const struct ds_shown s = {.data = data,
                                   .stride = stride,
                                   .element = element,
                                   .index = ds_desk_list(f, 0, e->from, n, p->err),
                                   .only = e->only,
                                   .n = n,
                                   .width = width};
        f->launch[stage] = *launch;
        return s.index ? ds_log_show(p, stage, site, &s) : -1;
    }
    for (uint32_t i = 0; i < n; i++)
        memcpy(shown + i * stride, rows + (size_t)e->from[i] * stride, stride);
    if (ds_probe_site(p->probe, site, launch, shown, stride, width, e->only, n, p->err) != 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        memcpy(rows + (size_t)e->from[i] * stride, shown + i * stride, stride);
    return 0;
}

/* Shows the recorded rows of a stage, choice by choice. each: every expert had a launch of its own;
 * else all rows had the stage's. */
static int show_experts(struct ds_pass *p, int stage, void *data, size_t element, int each)
{
    struct ds_forward *f = p->f;
    const struct ds_hparams *hp = &f->m->hp;
    struct ds_moe *e = &f->moe;
    const uint32_t width = (uint32_t)ds_stage_width_of(stage, hp);
    if (!p->probe || !f->n_rec)
        return 0;
    for (int32_t k = 0; k < hp->top_k; k++) {
        uint32_t site = ds_site_map_at(f->map, stage, p->layer, (uint32_t)k), n = 0;
        for (uint32_t i = 0; !each && i < f->n_rec && site != DS_NO_SITE; i++) {
            e->only[n] = i;
            e->from[n++] = e->place[f->rec[i].slot * hp->top_k + k];
        }
        if (show_listed(p, stage, site, &f->launch[stage], data, element, width, n) != 0)
            return -1;
        for (int32_t x = 0; each && x < hp->n_experts && site != DS_NO_SITE; x++) {
            n = 0;
            for (int32_t at = e->first[x]; at < e->first[x + 1]; at++) {
                uint32_t rec = e->rec_of[e->pair[at] / hp->top_k];
                if (e->pair[at] % hp->top_k != k || rec == UINT32_MAX)
                    continue;
                e->only[n] = rec;
                e->from[n++] = at;
            }
            if (show_listed(p, stage, site, &e->launch[x], data, element, width, n) != 0)
                return -1;
        }
    }
    return 0;
}

/* As ds_pass_emit, for the rows of all experts. */
static int emit_experts(struct ds_pass *p, int stage, float *y, int each)
{
    struct ds_forward *f = p->f;
    int64_t n = (int64_t)f->rows * f->m->hp.top_k * ds_stage_width_of(stage, &f->m->hp);
    if (f->config.dtype == DS_F32 || f->at.stored != DS_ELEMENT_F32)
        return show_experts(p, stage, y, ds_forward_element(f), each);
    if (ds_pass_convert(p, y, n, DS_CONVERT_ROUND) != 0 ||
        show_experts(p, stage, f->at.half, sizeof *f->at.half, each) != 0)
        return -1;
    return ds_pass_convert(p, y, n, DS_CONVERT_WIDEN);
}

/* ---- the experts ----------------------------------------------------------------------------- */

/* Each expert's matrix on the rows that chose it; experts without rows launch nothing. */
static int matmul_experts(struct ds_pass *p, int stage, const float *x, const struct ds_weight *w,
                          float *y)
{
    struct ds_forward *f = p->f;
    struct ds_moe *e = &f->moe;
    int rc = 0;
    for (int32_t i = 0; i < f->m->hp.n_experts && rc == 0; i++) {
        int32_t at = e->first[i], n = e->first[i + 1] - at;
        struct ds_matmul_args a;
        if (n == 0)
            continue;
        ds_pass_matmul_args(f, &w[i], NULL, n, ds_forward_behind(f, x, at * w[i].cols),
                            ds_forward_behind(f, y, at * w[i].rows), &a);
        f->launch_rows = n;
        f->launch_known[stage] = 0;
        rc = ds_pass_launch(p, stage, &a, a.y, (size_t)(a.rows * a.n));
        e->launch[i] = f->launch[stage];
    }
    f->launch_rows = 0;
    return rc != 0 ? -1 : emit_experts(p, stage, y, 1);
}

static int act_experts(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    struct ds_moe_rows *e = &f->at.moe;
    const int64_t width = f->m->hp.d_ff_expert;
    struct ds_silu_mul_args a = {.rows = (int64_t)f->rows * f->m->hp.top_k,
                                 .width = width,
                                 .gate = e->gate,
                                 .up = e->up,
                                 .ldx = width,
                                 .y = e->act,
                                 .ldy = width,
                                 .stored = f->at.stored};
    f->launch_rows = (int32_t)a.rows;
    int rc = ds_pass_launch(p, DS_ST_ACT_EXPERT, &a, a.y, (size_t)(a.rows * width));
    f->launch_rows = 0;
    return rc != 0 ? -1 : emit_experts(p, DS_ST_ACT_EXPERT, e->act, 0);
}

/* The expert that every row passes; its output becomes the last addend. */
static int shared_expert(struct ds_pass *p, const struct ds_layer *w)
{
    struct ds_forward *f = p->f;
    struct ds_moe_rows *e = &f->at.moe;
    const int64_t width = f->m->hp.d_ff_shared;
    struct ds_silu_mul_args a = {.rows = f->rows,
                                 .width = width,
                                 .gate = e->gate_shared,
                                 .up = e->up_shared,
                                 .ldx = width,
                                 .y = e->act_shared,
                                 .ldy = width,
                                 .stored = f->at.stored};
    if (ds_pass_matmul(p, DS_ST_GATE_SHARED, f->at.norm, w->gate_shared, NULL, e->gate_shared) !=
            0 ||
        ds_pass_matmul(p, DS_ST_UP_SHARED, f->at.norm, w->up_shared, NULL, e->up_shared) != 0 ||
        ds_pass_launch(p, DS_ST_ACT_SHARED, &a, a.y, (size_t)(a.rows * width)) != 0 ||
        ds_pass_emit(p, DS_ST_ACT_SHARED, 0, e->act_shared) != 0 ||
        ds_pass_matmul(p, DS_ST_EXPERT_OUT_SHARED, e->act_shared, w->down_shared, NULL,
                       f->at.proj) != 0)
        return -1;
    const int64_t row = f->d * (int64_t)ds_forward_element(f), addends = f->moe.addends;
    const struct ds_device_rows last = {.n = f->rows,
                                        .row_bytes = row,
                                        .x = f->at.proj,
                                        .x_stride = row,
                                        .y = ds_forward_behind(f, e->sum_of, (addends - 1) * f->d),
                                        .y_stride = addends * row};
    return ds_desk_rows(f, &last, p->err);
}

/* Whether a choice of a row belongs to a rank: experts live there in contiguous shares; the one that every
 * row passes is the first rank's. */
static int lives_on(const struct ds_forward *f, int32_t row, int64_t choice, int32_t rank)
{
    const struct ds_hparams *hp = &f->m->hp;
    if (choice >= hp->top_k)
        return rank == 0;
    const int64_t id = f->moe.ids[(int64_t)row * hp->top_k + choice];
    return id * f->config.ranks / hp->n_experts == rank;
}

/* Every rank's share of the sums, then their sum. What lives elsewhere has weight 0, as where ranks mask
 * their router's weights. */
static int combine_ranks(struct ds_pass *p, struct ds_combine_args a)
{
    struct ds_forward *f = p->f;
    struct ds_moe *e = &f->moe;
    float *sum = a.y;
    for (int32_t rank = 0; rank < f->config.ranks; rank++) {
        for (int32_t r = 0; r < f->rows; r++)
            for (int64_t k = 0; k < e->addends; k++)
                e->on_rank[r * e->addends + k] =
                    lives_on(f, r, k, rank) ? e->weights[r * e->addends + k] : 0.0f;
        a.weights = f->at.moe.on_rank;
        a.y = f->at.partial[rank];
        if (ds_desk_to(f, f->at.moe.on_rank, e->on_rank,
                       (size_t)(f->rows * e->addends) * sizeof *e->on_rank, p->err) != 0 ||
            ds_pass_launch(p, DS_ST_MOE_PARTIAL, &a, a.y, (size_t)(f->rows * f->d)) != 0 ||
            ds_pass_emit(p, DS_ST_MOE_PARTIAL, (uint32_t)rank, a.y) != 0)
            return -1;
    }
    return ds_pass_allreduce(p, DS_ST_MOE_COMBINE, DS_ST_MOE_PARTIAL, DS_ST_MOE_ALLREDUCE, sum);
}

static int combine(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    struct ds_moe *e = &f->moe;
    const int32_t top_k = f->m->hp.top_k;
    const size_t pairs = (size_t)f->rows * (size_t)top_k;
    const int64_t row = f->d * (int64_t)ds_forward_element(f);
    for (int32_t i = 0; i < f->rows * top_k; i++)
        e->list[i] = (int32_t)(i / top_k * e->addends + i % top_k);
    const struct ds_device_rows r = {.n = (int64_t)pairs,
                                     .row_bytes = row,
                                     .x = f->at.moe.y,
                                     .x_stride = row,
                                     .x_at = ds_desk_list(f, 0, e->place, pairs, p->err),
                                     .y = f->at.moe.sum_of,
                                     .y_stride = row,
                                     .y_at = ds_desk_list(f, 1, e->list, pairs, p->err)};
    if (!r.x_at || !r.y_at || ds_desk_rows(f, &r, p->err) != 0)
        return -1;
    struct ds_combine_args a = {.rows = f->rows,
                                .width = f->d,
                                .top_k = e->addends,
                                .x = f->at.moe.sum_of,
                                .ldx = f->d,
                                .weights = f->at.moe.weights,
                                .y = f->at.proj,
                                .ldy = f->d,
                                .stored = f->at.stored};
    if (f->config.ranks > 1)
        return combine_ranks(p, a);
    return ds_pass_launch(p, DS_ST_MOE_COMBINE, &a, a.y, (size_t)(f->rows * f->d)) != 0
               ? -1
               : ds_pass_emit(p, DS_ST_MOE_COMBINE, 0, f->at.proj);
}

int ds_pass_experts(struct ds_pass *p, const struct ds_layer *w)
{
    struct ds_moe_rows *e = &p->f->at.moe;
    if (route(p, w) != 0 || gather(p) != 0)
        return -1;
    int failed = matmul_experts(p, DS_ST_GATE_EXPERT, e->x, w->gate_exps, e->gate) ||
                 matmul_experts(p, DS_ST_UP_EXPERT, e->x, w->up_exps, e->up) || act_experts(p) ||
                 matmul_experts(p, DS_ST_EXPERT_OUT, e->act, w->down_exps, e->y) ||
                 (w->router_shared && shared_expert(p, w)) || combine(p);
    return -failed;
}
