/* forward.c: the life of a forward pass: memory, reset, one call from plan to end. Must not know the
 * order of the stages (forward_pass.c), sweeps or records. */
#include "engine/forward_private.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "engine/lazy.h"
#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void run_team(void *team, void (*fn)(void *arg, int thread, int threads), void *arg)
{
    ds_team_run(team, fn, arg);
}

/* The window as the attention kernel is given it, in the layers that have one: 0 where no slot can be
 * outside it. */
static int32_t window_of(const struct ds_model *m, const struct ds_forward_config *c)
{
    for (int32_t i = 0; i < m->hp.n_layers && m->hp.window < c->capacity; i++)
        if (ds_window_of_layer(&m->hp, i))
            return m->hp.window;
    return 0;
}

static int check_attention(const struct ds_model *m, const struct ds_forward_config *c,
                           struct ds_error *err)
{
    const struct ds_kernel *k;
    for (int32_t i = 0; (k = ds_kernel_set_used(&c->kernels, DS_OP_ATTENTION, i)); i++) {
        const char *lacks =
            window_of(m, c) && !(k->features & DS_FEATURE_WINDOW)           ? "a sliding window"
            : m->hp.soft_cap > 0.0f && !(k->features & DS_FEATURE_SOFT_CAP) ? "a soft cap of scores"
                                                                            : NULL;
        if (!lacks)
            continue;
        ds_fail(err, "%.200s has %s, which attention/%s cannot do", m->name, lacks, k->name);
        return ds_hint(err, "use a kernel set whose attention has it, such as pinned or "
                            "vendor+attention=pinned");
    }
    return 0;
}

/* Every kernel belongs to the device of its layer. */
static int check_places(const struct ds_model *m, const struct ds_forward_config *c,
                        struct ds_error *err)
{
    const int32_t n = m->hp.n_layers;
    for (int32_t layer = -1; layer <= n; layer++) {
        const int32_t at = layer < 0 ? 0 : layer == n ? n - 1 : layer;
        const int kind = c->placement.n ? ds_placement_kind(ds_placement_device(&c->placement, at),
                                                            c->kernels.device)
                                        : c->kernels.device;
        for (int op = 0; op < DS_OP_COUNT; op++) {
            const struct ds_kernel *k = ds_kernel_set_in(&c->kernels, op, layer);
            if (k && k->device != kind)
                return ds_fail(err, "layer %d lies on %s, and its %s is %s/%s of %s", (int)layer,
                               ds_device_name(kind), ds_op_name(op), ds_op_name(op), k->name,
                               ds_device_name(k->device));
        }
    }
    return 0;
}

/* What is done on the host only. */
static int check_device(const struct ds_model *m, const struct ds_forward_config *c,
                        struct ds_error *err)
{
    const struct ds_kernel *k;
    int all_cpu = c->kernels.device == DS_DEVICE_CPU;
    for (int32_t i = 0; i < c->placement.n; i++)
        all_cpu &=
            ds_placement_kind(c->placement.part[i].device, c->kernels.device) == DS_DEVICE_CPU;
    if (all_cpu)
        return 0;
    if (m->keep == DS_WEIGHTS_FILE) {
        ds_fail(err, "%.200s: weights as their file has them are for kernels of the CPU", m->name);
        return ds_hint(err, "use --weights f32");
    }
    if (c->mutation)
        return ds_fail(err, "changes to rows are made on the CPU only");
    for (int32_t i = 0; (k = ds_kernel_set_used(&c->kernels, DS_OP_MATMUL, i)); i++)
        if (k->prepare && k->device != DS_DEVICE_CPU)
            return ds_fail(err, "matmul/%s packs weights, which is done for the CPU only", k->name);
    return 0;
}

static int check_config(const struct ds_model *m, const struct ds_forward_config *c,
                        struct ds_error *err)
{
    if (c->dtype != DS_F32 && c->dtype != DS_BF16 && c->dtype != DS_F16)
        return ds_fail(err, "activation dtype %d is not one of f32, bf16, f16", c->dtype);
    if (c->max_rows < 1 || c->n_requests < 1 || c->capacity < 1)
        return ds_fail(err,
                       "forward pass: %d rows, %d requests, capacity %d: each must be positive",
                       (int)c->max_rows, (int)c->n_requests, (int)c->capacity);
    for (int s = 0; s < DS_ST_COUNT; s++) {
        int op = ds_stage(s)->op;
        if (op >= 0 && ds_stage_in_model(s, &m->hp) &&
            (!c->kernels.op[op] || !c->kernels.op[op]->launch))
            return ds_fail(err, "forward pass: the kernel set has no %s", ds_op_name(op));
    }
    for (int32_t i = 0; i < c->kernels.n_at; i++)
        if (c->kernels.at[i].last > m->hp.n_layers &&
            c->kernels.at[i].last != DS_KERNEL_SET_MOST_LAYER)
            return ds_fail(err, "forward pass: the kernel set names layer %d of %d",
                           c->kernels.at[i].last, m->hp.n_layers);
    if (ds_kernel_set_available(&c->kernels, err) != 0 || check_attention(m, c, err) != 0 ||
        check_device(m, c, err) != 0 || ds_graph_check(&m->hp, c, err) != 0 ||
        ds_sampler_check(&c->sampler, &c->kernels, err) != 0)
        return -1;
    const struct ds_hparams *h = &m->hp;
    if (h->n_layers < 1 || h->d_model < 1 || h->n_heads < 1 || h->n_kv_heads < 1 ||
        h->head_dim < 1 || h->d_ff < 1 || h->vocab < 1 || h->n_heads % h->n_kv_heads)
        return ds_fail(err, "%s: hyperparameters do not make a model", m->name);
    if ((c->ranks > 1 && !c->kernels.op[DS_OP_ALLREDUCE]) ||
        (c->placement.n && !c->kernels.op[DS_OP_TRANSFER]))
        return ds_fail(err, "forward pass: the kernel set has no %s",
                       ds_op_name(c->ranks > 1 ? DS_OP_ALLREDUCE : DS_OP_TRANSFER));
    return ds_placement_check(&c->placement, h->n_layers, err) != 0 ? -1 : check_places(m, c, err);
}

/* Rows that buffers have room for. */
static int32_t most_rows(const struct ds_forward_config *c)
{
    return c->max_rows > c->most_kept ? c->max_rows : c->most_kept;
}

/* One activation buffer. The row count times the width is checked inside. */
static int rows_of(struct ds_forward *f, float **out, int64_t width, const char *what,
                   struct ds_error *err)
{
    size_t row;
    if (width < 1 || __builtin_mul_overflow((size_t)width, ds_forward_element(f), &row))
        return ds_fail(err, "%s: width %lld", what, (long long)width);
    return ds_desk_new(f, (size_t)most_rows(&f->config), row, what, out, err);
}

/* ---- sites ----------------------------------------------------------------------------------- */

int ds_forward_sites(const struct ds_model *m, int dtype, struct ds_site **sites, uint32_t *n_sites,
                     struct ds_edge **edges, uint32_t *n_edges, struct ds_error *err)
{
    static const struct ds_site_wants plain;
    return ds_site_list(&m->hp, dtype, &plain, sites, n_sites, edges, n_edges, err);
}

uint64_t ds_forward_unrounded(const struct ds_model *m, const struct ds_kernel_set *kernels)
{
    uint32_t ops = 0;
    const struct ds_kernel *k;
    for (int op = 0; op < DS_OP_COUNT; op++)
        for (int32_t i = 0; (k = ds_kernel_set_used(kernels, op, i)); i++)
            if (k->features & DS_FEATURE_UNROUNDED)
                ops |= 1u << op;
    return ds_site_read_by(&m->hp, ops);
}

static int make_map(struct ds_forward *f, struct ds_error *err)
{
    const struct ds_forward_config *c = &f->config;
    struct ds_site *own = NULL;
    struct ds_edge *edges = NULL;
    uint32_t n_own = 0, n_edges;
    if (!c->sites && ds_forward_sites(f->m, c->dtype, &own, &n_own, &edges, &n_edges, err) != 0)
        return -1;
    const struct ds_site *sites = own ? own : c->sites;
    const size_t n = own ? n_own : c->n_sites;
    int rc = ds_site_map_new(sites, n, f->m->hp.n_layers, &f->map, err);
    if (rc == 0)
        rc = ds_forward_scores_new(f, sites, n, err);
    free(own);
    free(edges);
    f->config.sites = NULL;
    return rc;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int allocate_activations(struct ds_forward *f, struct ds_error *err)
{
    const struct ds_hparams *hp = &f->m->hp;
    const int64_t dense = ds_layer_has_experts(hp, 0) ? 0 : f->d_ff;
    const struct {
        float **out;
        int64_t width; /* 0: this model has none */
        const char *what;
        int stage; /* one that writes it; the others have the same readers. -1: none */
    } list[] = {
        {&f->at.resid[0], f->d, "residual rows", DS_ST_RESID_FFN},
        {&f->at.resid[1], f->d, "residual rows", DS_ST_RESID_ATTN},
        {&f->at.norm, f->d, "norm rows", DS_ST_FFN_NORM},
        {&f->at.q, f->q_dim, "q rows", DS_ST_Q_PROJ},
        {&f->at.k, f->kv_dim, "k rows", DS_ST_K_PROJ},
        {&f->at.v, f->kv_dim, "v rows", -1},
        {&f->at.q_rope, f->q_dim, "q_rope rows", DS_ST_Q_ROPE},
        {&f->at.k_rope, f->kv_dim, "k_rope rows", -1},
        {&f->at.attn_out, f->q_dim, "attn_out rows", DS_ST_ATTN_OUT},
        {&f->at.proj, f->d, "projection rows", DS_ST_O_PROJ},
        {&f->at.gate, dense, "gate rows", DS_ST_GATE},
        {&f->at.up, dense, "up rows", DS_ST_UP},
        {&f->at.act, dense, "act rows", DS_ST_ACT},
        {&f->at.q_norm, hp->qk_norm ? f->q_dim : 0, "q_norm rows", DS_ST_Q_NORM},
        {&f->at.k_norm, hp->qk_norm ? f->kv_dim : 0, "k_norm rows", DS_ST_K_NORM},
    };
    const uint64_t unrounded =
        f->config.dtype == DS_F32 ? 0 : ds_forward_unrounded(f->m, &f->config.kernels);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if (list[i].width == 0)
            continue;
        if (rows_of(f, list[i].out, list[i].width, list[i].what, err) != 0)
            return -1;
        if (f->config.poison &&
            ds_forward_poison_rows(f, *list[i].out,
                                   (size_t)f->config.max_rows * (size_t)list[i].width, err) != 0)
            return -1;
        if (list[i].stage >= 0 && unrounded & DS_STAGE_BIT(list[i].stage)) {
            int n = f->at.n_twins++;
            f->at.twin[n].rounded = *list[i].out;
            if (rows_of(f, &f->at.twin[n].unrounded, list[i].width, "rows before rounding", err) !=
                0)
                return -1;
        }
    }
    return 0;
}

/* What stands between kernels and probes. */
static int allocate_staging(struct ds_forward *f, struct ds_error *err)
{
    const int64_t widths[] = {f->d, f->q_dim, f->kv_dim, f->d_ff};
    int64_t widest = ds_forward_moe_widest(f);
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        widest = widths[i] > widest ? widths[i] : widest;
    if (f->at.stored != DS_ELEMENT_F32)
        return 0;
    if (rows_of(f, &f->at.kv_back, f->kv_dim, "cache rows read back", err) != 0)
        return -1;
    if (f->config.poison &&
        ds_forward_poison(f, f->at.kv_back, (size_t)f->config.max_rows * (size_t)f->kv_dim, err) !=
            0)
        return -1;
    if (f->config.dtype == DS_F32)
        return 0;
    return ds_desk_new(f, (size_t)most_rows(&f->config), (size_t)widest * sizeof *f->at.half,
                       "16-bit rows", &f->at.half, err);
}

/* From the last norm to the token, where that is computed. On the host what it is read from there. */
static int allocate_head(struct ds_forward *f, struct ds_error *err)
{
    const size_t rows = (size_t)f->config.max_rows, row = (size_t)f->vocab * sizeof(float);
    if (f->device != ds_placement_device(&f->config.placement, f->m->hp.n_layers - 1))
        return 0;
    if (rows_of(f, &f->at.head_in, f->d, "head input rows", err) != 0 ||
        (f->config.poison &&
         ds_forward_poison_rows(f, f->at.head_in, rows * (size_t)f->d, err) != 0))
        return -1;
    if (ds_forward_host(f)) {
        f->at.logits = f->logits;
        f->at.processed = f->processed;
        f->at.tokens = f->tokens;
        return 0;
    }
    if (ds_desk_new(f, rows, row, "logits", &f->at.logits, err) != 0 ||
        (f->processed && ds_desk_new(f, (size_t)most_rows(&f->config), row, "processed logits",
                                     &f->at.processed, err) != 0))
        return -1;
    return ds_desk_new(f, rows, sizeof *f->at.tokens, "tokens", &f->at.tokens, err);
}

/* The cache of the layers that lie on the device at work. */
static int place_cache(struct ds_forward *f, struct ds_error *err)
{
    const struct ds_kv_cache *c = &f->cache;
    const size_t layer = (size_t)(c->pages * c->page_size) * (size_t)c->width;
    const size_t element = ds_forward_element(f);
    int64_t n = 0, i = 0;
    float *k, *v;
    for (int32_t l = 0; l < c->n_layers; l++)
        n += ds_placement_device(&f->config.placement, l) == f->device;
    if (ds_forward_host(f))
        k = v = NULL;
    else if (ds_desk_new(f, (size_t)n * layer, element, "kv cache (k)", &k, err) != 0 ||
             ds_desk_new(f, (size_t)n * layer, element, "kv cache (v)", &v, err) != 0)
        return -1;
    for (int32_t l = 0; l < c->n_layers; l++) {
        if (ds_placement_device(&f->config.placement, l) != f->device)
            continue;
        f->on_host |= !k;
        f->layer_k[l] =
            k ? ds_forward_behind(f, k, i * (int64_t)layer) : ds_kv_cache_layer(c, c->k, l);
        f->layer_v[l] =
            v ? ds_forward_behind(f, v, i * (int64_t)layer) : ds_kv_cache_layer(c, c->v, l);
        i++;
    }
    return 0;
}

/* All that lies on one device. */
static int set_up_desk(struct ds_forward *f, struct ds_error *err)
{
    return place_cache(f, err) != 0 || allocate_activations(f, err) != 0 ||
                   allocate_staging(f, err) != 0 || allocate_head(f, err) != 0 ||
                   ds_forward_moe_rows(f, err) != 0 || ds_forward_ranks_rows(f, err) != 0 ||
                   ds_desk_set_up(f, err) != 0
               ? -1
               : 0;
}

static int allocate_plan(struct ds_forward *f, struct ds_error *err)
{
    size_t rows = (size_t)most_rows(&f->config), requests = (size_t)f->config.n_requests;
    int ok =
        (f->seqs = ds_calloc(requests, sizeof *f->seqs, "sequences", err)) &&
        (f->seen = ds_calloc(requests, sizeof *f->seen, "requests of a call", err)) &&
        (f->ids = ds_calloc(rows, sizeof *f->ids, "token ids", err)) &&
        (f->positions = ds_calloc(rows, sizeof *f->positions, "positions", err)) &&
        (f->kv_len = ds_calloc(rows, sizeof *f->kv_len, "visible lengths", err)) &&
        (f->cache_row = ds_calloc(rows, sizeof *f->cache_row, "cache row numbers", err)) &&
        (f->own_slot = ds_calloc(rows, sizeof *f->own_slot, "slots", err)) &&
        (f->state = ds_calloc(requests, sizeof *f->state, "requests", err)) &&
        (f->past = ds_calloc(requests, sizeof *f->past, "requests of a call", err)) &&
        (f->planned = ds_calloc(requests, sizeof *f->planned, "sequences", err)) &&
        (f->rec = ds_calloc(rows, sizeof *f->rec, "recorded rows", err)) &&
        (f->logit_row = ds_calloc(rows, sizeof *f->logit_row, "logits row numbers", err)) &&
        (f->logit_rec = ds_calloc(rows, sizeof *f->logit_rec, "recorded logits rows", err)) &&
        (f->own_row = ds_calloc(rows, sizeof *f->own_row, "row numbers", err)) &&
        (f->tokens = ds_calloc(rows, sizeof *f->tokens, "tokens", err)) &&
        (f->staged = ds_calloc(requests, sizeof *f->staged, "sequences", err)) &&
        (f->staged_pages =
             ds_calloc((size_t)f->cache.pages, sizeof *f->staged_pages, "page tables", err)) &&
        (f->staged_rows = ds_calloc(rows, sizeof *f->staged_rows, "row numbers", err)) &&
        (f->half_row =
             ds_alloc_aligned((size_t)f->kv_dim, sizeof *f->half_row, "16-bit row", err)) &&
        (f->layer_k = ds_calloc((size_t)f->m->hp.n_layers, sizeof *f->layer_k, "kv cache", err)) &&
        (f->layer_v = ds_calloc((size_t)f->m->hp.n_layers, sizeof *f->layer_v, "kv cache", err));
    for (int32_t i = 0; ok && i < f->config.max_rows; i++)
        f->own_row[i] = i;
    return ok ? 0 : -1;
}

/* What op process is given, where its site is shown, and op sample, where tokens are drawn. */
static int allocate_choice(struct ds_forward *f, struct ds_error *err)
{
    const struct ds_forward_config *c = &f->config;
    if (ds_site_map_at(f->map, DS_ST_LOGITS_PROCESSED, 0, 0) == DS_NO_SITE &&
        !(c->sampler.temperature > 0.0f))
        return 0;
    size_t rows = (size_t)most_rows(c);
    f->processed = ds_lazy_floats(rows, f->vocab, &f->processed_memory, "processed logits", err);
    f->history = f->processed ? ds_calloc((size_t)c->n_requests * (size_t)c->capacity,
                                          sizeof *f->history, "tokens so far", err)
                              : NULL;
    f->choice.requests =
        f->history ? ds_calloc(6 * rows, sizeof *f->choice.requests, "logits rows", err) : NULL;
    f->choice.tokens =
        f->choice.requests ? ds_calloc(rows, sizeof *f->choice.tokens, "tokens so far", err) : NULL;
    f->choice.positions = f->choice.requests + rows;
    f->choice.steps = f->choice.requests + 2 * rows;
    f->choice.n_tokens = f->choice.requests + 3 * rows;
    f->choice.cached = f->choice.requests + 4 * rows;
    f->choice.streams = f->choice.requests + 5 * rows;
    if (!f->choice.tokens || !(c->sampler.temperature > 0.0f))
        return f->choice.tokens ? 0 : -1;
    f->drawn = ds_lazy_floats(rows, f->vocab, &f->drawn_memory, "scores of the choice", err);
    return f->drawn ? 0 : -1;
}

/* Scratch for the largest call and for the small ones, where kernels that split a row need most. */
static int reserve_scratch(struct ds_forward *f, struct ds_error *err)
{
    int32_t max = f->config.max_rows;
    for (int32_t rows = 1; rows <= max; rows = rows < 16                      ? rows + 1
                                               : rows > max / 2 && rows < max ? max
                                                                              : rows * 2) {
        int32_t n = rows < f->config.n_requests ? rows : f->config.n_requests;
        for (int32_t s = 0; s < n; s++) {
            int32_t q_len = s == 0 ? rows - (n - 1) : 1;
            f->seqs[s] = (struct ds_sequence){.request = s,
                                              .q_first = s == 0 ? 0 : rows - n + s,
                                              .q_len = q_len,
                                              .kv_len = f->config.capacity,
                                              .pages = ds_kv_cache_pages(&f->cache, s)};
        }
        f->n_seqs = n;
        f->rows = rows;
        f->max_q_len = rows - (n - 1);
        f->max_kv_len = f->config.capacity;
        if (ds_forward_reserve(f, rows, err) != 0)
            return -1;
        if (rows > INT32_MAX / 2)
            break;
    }
    return 0;
}

static int make_rope_table(struct ds_forward *f, struct ds_error *err)
{
    const struct ds_forward_config *c = &f->config;
    const int32_t context = f->m->hp.context;
    int64_t positions = (int64_t)c->position_offset + c->capacity;
    if (context > 0 && context < positions)
        positions = context;
    if (c->position_offset >= positions)
        return ds_fail(err, "positions from %d on: the model's context has %d",
                       (int)c->position_offset, (int)context);
    return ds_model_rope_table(f->m, positions, err);
}

static int set_up(struct ds_forward *f, struct ds_error *err)
{
    const struct ds_hparams *hp = &f->m->hp;
    f->d = hp->d_model;
    f->q_dim = (int64_t)hp->n_heads * hp->head_dim;
    f->kv_dim = (int64_t)hp->n_kv_heads * hp->head_dim;
    f->d_ff = hp->d_ff;
    f->vocab = hp->vocab;
    f->window = window_of(f->m, &f->config);
    f->scale = (float)(1.0 / sqrt((double)hp->head_dim));
    const struct ds_forward_config *c = &f->config;
    f->team = ds_team_new(c->threads, err);
    if (!f->team)
        return -1;
    ds_forward_enter(f, -1);
    f->exec = (struct ds_exec){.threads = c->threads,
                               .team = f->team,
                               .run = run_team,
                               .dtype = c->dtype == DS_BF16  ? DS_ELEMENT_BF16
                                        : c->dtype == DS_F16 ? DS_ELEMENT_F16
                                                             : DS_ELEMENT_F32};
    if (ds_kv_cache_init(&f->cache, hp->n_layers, c->n_requests, c->capacity, c->page_size,
                         f->kv_dim, err) != 0)
        return -1;
    if (make_map(f, err) != 0)
        return -1;
    if (ds_forward_watch_cache(f, err) != 0)
        return -1;
    f->own_schedule = ds_kernel_set_changes(&c->kernels, DS_OP_SCHEDULE);
    if (f->own_schedule &&
        !(f->page_table = ds_calloc((size_t)f->cache.pages, sizeof *f->page_table,
                                    "page table of a call", err)))
        return -1;
    f->logits = ds_lazy_floats((size_t)c->max_rows, f->vocab, &f->logits_memory, "logits", err);
    if (!f->logits || make_rope_table(f, err) != 0 || allocate_plan(f, err) != 0 ||
        allocate_choice(f, err) != 0 || ds_forward_moe_new(f, err) != 0 ||
        ds_forward_draw_new(f, err) != 0 || ds_forward_devices_new(f, set_up_desk, err) != 0)
        return -1;
    if (c->place)
        *c->place = (struct ds_place){.doing = DS_DOING_PREPARE, .op = DS_OP_MATMUL};
    if (ds_model_prepare_set(f->m, &c->kernels, c->threads, err) != 0 ||
        ds_forward_ranks_new(f, err) != 0 || reserve_scratch(f, err) != 0)
        return -1;
    if (c->place)
        c->place->doing = DS_DOING_NOTHING;
    ds_forward_reset(f);
    return 0;
}

int ds_forward_new(struct ds_model *m, const struct ds_forward_config *config,
                   struct ds_forward **out, struct ds_error *err)
{
    if (check_config(m, config, err) != 0 || ds_fp_check_entry(err) != 0)
        return -1;
    struct ds_forward *f = ds_calloc(1, sizeof *f, "forward pass", err);
    if (!f)
        return -1;
    f->m = m;
    f->config = *config;
    if (set_up(f, err) != 0) {
        ds_forward_free(f);
        return -1;
    }
    *out = f;
    return 0;
}

void ds_forward_free(struct ds_forward *f)
{
    if (!f)
        return;
    ds_graphs_drop(f);
    ds_forward_devices_free(f);
    ds_forward_ranks_free(f);
    ds_forward_scores_free(f);
    void *owned[] = {
        f->logits_memory, f->mirror,           f->crossing,     f->staged,   f->staged_pages,
        f->staged_rows,   f->layer_k,          f->layer_v,      f->score_q,  f->score_k,
        f->half_row,      f->bounce,           f->seqs,         f->seen,     f->ids,
        f->positions,     f->kv_len,           f->cache_row,    f->rec,      f->logit_row,
        f->logit_rec,     f->tokens,           f->own_row,      f->own_slot, f->before,
        f->written,       f->changed,          f->state,        f->past,     f->planned,
        f->page_table,    f->processed_memory, f->drawn_memory, f->history,  f->choice.requests,
        f->choice.tokens};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
    ds_kv_cache_free(&f->cache);
    ds_forward_moe_free(f);
    ds_site_map_free(f->map);
    ds_team_free(f->team);
    free(f);
}

struct ds_team *ds_forward_team(struct ds_forward *f)
{
    return f->team;
}

const float *ds_forward_logits(const struct ds_forward *f)
{
    return f->logits;
}

const float *ds_forward_drawn(const struct ds_forward *f)
{
    return f->drawn;
}

void ds_forward_seed(struct ds_forward *f, uint64_t seed)
{
    f->seed = seed;
    f->launches = 0;
}

void ds_forward_reset(struct ds_forward *f)
{
    const float fill = ds_f32_from_bits(DS_POISON_BITS);
    memset(f->state, 0, (size_t)f->config.n_requests * sizeof *f->state);
    f->trial_call = 0;
    ds_kv_cache_reset(&f->cache, f->config.poison && f->on_host ? &fill : NULL);
    if (f->config.poison)
        ds_forward_poison_cache(f);
}

/* ---- a call ------------------------------------------------------------------------------------ */

/* Says which call is under way, should it be the last. */
static void keep_call(const struct ds_forward *f)
{
    struct ds_place *at = f->config.place;
    if (!at)
        return;
    at->phase = f->phase;
    at->call = f->trial_call;
    at->m = f->rows;
    at->first = 0;
    at->last = -1;
    for (uint32_t i = 0; i < f->n_rec; i++)
        if (f->rec[i].kind != DS_ROW_PAD) {
            at->first = at->last < at->first ? f->rec[i].position : at->first;
            at->last = f->rec[i].position;
        }
}

int ds_forward_run(struct ds_forward *f, const struct ds_batch *batch, struct ds_probe *probe,
                   const float **logits, const int32_t **tokens, int32_t *n, struct ds_error *err)
{
    if (ds_forward_plan(f, batch, err) != 0 || ds_fp_check_entry(err) != 0)
        return -1;
    /* A no-op unless another pass over the same model prepared its weights for another kernel in
     * between. */
    if (ds_model_prepare_set(f->m, &f->config.kernels, f->config.threads, err) != 0)
        return -1;
    if (probe && ds_probe_begin_call(probe, (uint32_t)batch->phase, (uint32_t)f->rows,
                                     (uint32_t)f->n_seqs, f->rec, f->n_rec, err) != 0)
        return -1;
    keep_call(f);
    if (ds_forward_stages(f, probe, err) != 0)
        return -1;
    ds_forward_count(f, batch);
    *logits = f->processed ? f->processed : f->logits;
    *tokens = f->tokens;
    *n = f->n_logits;
    return 0;
}
