/* explain_call.c: given rows in a call again: as many rows as it had, each given one in its place.
 * Owns how a row of each op is laid out; judges nothing. What stands in the other rows is the given
 * one with its elements turned, so of its size: the bits of a row depend on its neighbours' number
 * only, not on what they hold (`check` tests that: "neighbours"). */
#include "kernels/lab/explain.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/team.h"
#include "kernels/registry.h"

#include <stdlib.h>
#include <string.h>

/* ---- sizes ----------------------------------------------------------------------------------- */

int ds_explain_knows(int op)
{
    switch (op) {
    case DS_OP_EMBED:
    case DS_OP_RMSNORM:
    case DS_OP_MATMUL:
    case DS_OP_ROPE:
    case DS_OP_CACHE:
    case DS_OP_ATTENTION:
    case DS_OP_SOFTMAX:
    case DS_OP_SILU_MUL:
    case DS_OP_ADD:
    case DS_OP_COMBINE:
    case DS_OP_ALLREDUCE:
        return 1;
    default:
        return 0;
    }
}

int64_t ds_explain_width_in(int op, const union ds_any_args *s, int i)
{
    switch (op) {
    case DS_OP_RMSNORM:
        return i == 0 ? s->rmsnorm.width : 0;
    case DS_OP_MATMUL:
        return i == 0 ? s->matmul.k : 0;
    case DS_OP_ROPE:
        return i == 0 ? s->rope.heads * s->rope.head_dim : 0;
    case DS_OP_CACHE:
        return i == 0 ? s->cache.width : 0;
    case DS_OP_ATTENTION:
        return i == 0 ? s->attention.heads * s->attention.head_dim : 0;
    case DS_OP_SOFTMAX:
        return i == 0 ? s->softmax.width : 0;
    case DS_OP_SILU_MUL:
        return s->silu_mul.width;
    case DS_OP_ADD:
        return s->add.width;
    case DS_OP_COMBINE:
        return i == 0 ? s->combine.top_k * s->combine.width : s->combine.top_k;
    case DS_OP_ALLREDUCE:
        return i == 0 ? s->allreduce.ranks * s->allreduce.width : 0;
    default:
        return 0;
    }
}

int64_t ds_explain_width(int op, const union ds_any_args *s)
{
    switch (op) {
    case DS_OP_EMBED:
        return s->embed.width;
    case DS_OP_MATMUL:
        return s->matmul.n;
    case DS_OP_COMBINE:
        return s->combine.width;
    case DS_OP_ALLREDUCE:
        return s->allreduce.width;
    default:
        return ds_explain_width_in(op, s, 0);
    }
}

/* ---- one call -------------------------------------------------------------------------------- */

struct call {
    const struct ds_explain *e;
    int side;
    const struct ds_kernel *kernel;
    const struct ds_explain_row *first; /* of this call */
    int64_t rows, in_width[2], width;
    float *in[2], *y, *k, *v;
    int32_t *numbers;
    const float **ranks;
    struct ds_sequence *sequences;
    int32_t *pages;
    void *prepared, *scratch;
    union ds_any_args args;
};

static void call_free(struct call *c)
{
    for (int i = 0; i < 2; i++)
        free(c->in[i]);
    free(c->y);
    free(c->k);
    free(c->v);
    free(c->numbers);
    free((void *)c->ranks);
    free(c->sequences);
    free(c->pages);
    free(c->prepared);
    free(c->scratch);
}

static int in_call(const struct call *c, const struct ds_explain_row *r)
{
    return r->at[c->side].call == c->first->at[c->side].call;
}

/* Row `to` of n elements: those of `from`, turned by the row's number. */
static void turned(float *to, const float *from, int64_t n, int64_t row)
{
    int64_t by = n > 1 ? (row * 7 + 1) % n : 0;
    memcpy(to, from + by, (size_t)(n - by) * sizeof *to);
    memcpy(to + (n - by), from, (size_t)by * sizeof *to);
}

/* Rope: positions that a call would have, one after the other from the first of the row's own
 * sequence on. */
static int32_t other_number(const struct call *c, const struct ds_explain_input *model, int64_t row)
{
    const struct ds_explain_at *at = &c->first->at[c->side];
    if (c->e->op != DS_OP_ROPE || at->q_len < 1)
        return model->number;
    const int64_t first = model->number - (at->row - at->q_first),
                  number = first + (row + at->q_len - at->q_first % at->q_len) % at->q_len;
    return number < 0 || number >= c->e->shared.rope.table_positions ? model->number
                                                                     : (int32_t)number;
}

static int fill_inputs(struct call *c, struct ds_error *err)
{
    const struct ds_explain *e = c->e;
    const struct ds_explain_input *model = &c->first->input[c->side];
    c->numbers = ds_calloc((size_t)c->rows, sizeof *c->numbers, "rows of a call", err);
    if (!c->numbers)
        return -1;
    for (int64_t r = 0; r < c->rows; r++)
        c->numbers[r] = other_number(c, model, r);
    for (int i = 0; i < 2; i++) {
        const int64_t n = c->in_width[i];
        c->in[i] =
            ds_alloc_aligned((size_t)c->rows * (size_t)n, sizeof(float), "rows of a call", err);
        if (!c->in[i])
            return -1;
        for (int64_t r = 0; r < c->rows && n; r++)
            turned(c->in[i] + r * n, model->in[i], n, r);
        for (int64_t j = 0; j < c->rows * n && e->others; j++)
            c->in[i][j] *= 4.0f;
    }
    for (size_t j = 0; j < e->n_rows; j++) {
        const struct ds_explain_row *row = &e->rows[j];
        const int64_t at = row->at[c->side].row;
        if (!in_call(c, row))
            continue;
        c->numbers[at] = row->input[c->side].number;
        for (int i = 0; i < 2; i++)
            if (c->in_width[i])
                memcpy(c->in[i] + at * c->in_width[i], row->input[c->side].in[i],
                       (size_t)c->in_width[i] * sizeof(float));
    }
    return 0;
}

static void bind_simple(struct call *c)
{
    union ds_any_args *a = &c->args;
    switch (c->e->op) {
    case DS_OP_EMBED:
        a->embed.rows = c->rows;
        a->embed.ids = c->numbers;
        a->embed.y = c->y;
        a->embed.ldy = c->width;
        break;
    case DS_OP_RMSNORM:
        a->rmsnorm.rows = c->rows;
        a->rmsnorm.x = c->in[0];
        a->rmsnorm.ldx = a->rmsnorm.ldy = c->width;
        a->rmsnorm.y = c->y;
        break;
    case DS_OP_MATMUL:
        a->matmul.rows = c->rows;
        a->matmul.x = c->in[0];
        a->matmul.ldx = c->in_width[0];
        a->matmul.y = c->y;
        a->matmul.ldy = c->width;
        a->matmul.prepared = c->prepared;
        break;
    case DS_OP_ROPE:
        a->rope.rows = c->rows;
        a->rope.positions = c->numbers;
        a->rope.x = c->in[0];
        a->rope.ldx = a->rope.ldy = c->width;
        a->rope.y = c->y;
        break;
    case DS_OP_SOFTMAX:
        a->softmax.rows = c->rows;
        a->softmax.x = c->in[0];
        a->softmax.ldx = a->softmax.ldy = c->width;
        a->softmax.y = c->y;
        break;
    case DS_OP_SILU_MUL:
        a->silu_mul.rows = c->rows;
        a->silu_mul.gate = c->in[0];
        a->silu_mul.up = c->in[1];
        a->silu_mul.ldx = a->silu_mul.ldy = c->width;
        a->silu_mul.y = c->y;
        break;
    case DS_OP_ADD:
        a->add.rows = c->rows;
        a->add.a = c->in[0];
        a->add.b = c->in[1];
        a->add.lda = a->add.ldb = a->add.ldy = c->width;
        a->add.y = c->y;
        break;
    default:
        a->combine.rows = c->rows;
        a->combine.x = c->in[0];
        a->combine.weights = c->in[1];
        a->combine.ldx = a->combine.ldy = c->width;
        a->combine.y = c->y;
        break;
    }
}

/* Rank i's rows lie together, as every rank has its own array. */
static int bind_allreduce(struct call *c, struct ds_error *err)
{
    struct ds_allreduce_args *a = &c->args.allreduce;
    const size_t ranks = (size_t)a->ranks, width = (size_t)a->width, rows = (size_t)c->rows;
    float *by_rank = ds_alloc_aligned(ranks * rows * width, sizeof *by_rank, "ranks", err);
    c->ranks = ds_calloc(ranks, sizeof *c->ranks, "ranks", err);
    if (!by_rank || !c->ranks) {
        free(by_rank);
        return -1;
    }
    for (size_t i = 0; i < ranks; i++) {
        c->ranks[i] = by_rank + i * rows * width;
        for (size_t r = 0; r < rows; r++)
            memcpy(by_rank + (i * rows + r) * width, c->in[0] + (r * ranks + i) * width,
                   width * sizeof *by_rank);
    }
    free(c->in[0]);
    c->in[0] = by_rank;
    a->rows = c->rows;
    a->x = c->ranks;
    a->ldx = a->ldy = a->width;
    a->y = c->y;
    return 0;
}

/* ---- sequences ------------------------------------------------------------------------------- */

/* The row's own sequence stands where it stood; the other rows of the call are shared out among the
 * other sequences as evenly as they go, with as many slots in use. Their bits are not looked at. */
static int lay_sequences(struct call *c, struct ds_error *err)
{
    const struct ds_explain_at *at = &c->first->at[c->side];
    const int64_t others = at->n_sequences - 1, rest = c->rows - at->q_len;
    if (at->q_first < 0 || at->q_len < 1 || at->q_first + at->q_len > c->rows || others < 0 ||
        rest < others || (others == 0 && rest > 0) || at->kv_len < at->q_len)
        return ds_fail(err, "the call's sequences do not fit its %lld rows", (long long)c->rows);
    c->sequences = ds_calloc((size_t)at->n_sequences, sizeof *c->sequences, "sequences", err);
    if (!c->sequences)
        return -1;
    /* How many of the others stand before it: as many as their even share fills. */
    int64_t before = rest ? (at->q_first * others + rest / 2) / rest : 0;
    if (at->q_first == 0)
        before = 0;
    else if (before == 0)
        before = 1;
    if (at->q_first + at->q_len == c->rows)
        before = others;
    else if (before == others && others)
        before = others - 1;
    int32_t q = 0;
    for (int64_t i = 0; i < at->n_sequences; i++) {
        struct ds_sequence *s = &c->sequences[i];
        int own = i == before;
        int64_t left = i < before ? before - i : at->n_sequences - i,
                room = i < before ? at->q_first - q : c->rows - q;
        s->request = (int32_t)i;
        s->q_first = q;
        s->q_len = own ? at->q_len : (int32_t)(room / left);
        s->kv_len = own || at->kv_len > s->q_len ? at->kv_len : s->q_len;
        s->kv_first = own ? c->first->input[c->side].kv_first : 0;
        q += s->q_len;
        if (s->q_len < 1 || (own && s->q_first != at->q_first))
            return ds_fail(err, "the call's sequences do not fit its %lld rows",
                           (long long)c->rows);
    }
    return q == c->rows ? 0 : ds_fail(err, "the call's sequences do not fill its rows");
}

static int32_t most_slots(const struct call *c)
{
    int32_t most = 0;
    for (int32_t i = 0; i < c->first->at[c->side].n_sequences; i++)
        most = c->sequences[i].kv_len > most ? c->sequences[i].kv_len : most;
    return most;
}

/* All sequences share the pages of the row's own: what they read does not matter. */
static int lay_pages(struct call *c, int64_t *page_size, int64_t *pages, struct ds_error *err)
{
    const int64_t slots = most_slots(c);
    *page_size = c->e->page_size > 0 ? c->e->page_size : slots;
    *pages = (slots + *page_size - 1) / *page_size;
    c->pages = ds_calloc((size_t)*pages, sizeof *c->pages, "pages", err);
    if (!c->pages)
        return -1;
    for (int64_t i = 0; i < *pages; i++)
        c->pages[i] = (int32_t)i;
    for (int32_t i = 0; i < c->first->at[c->side].n_sequences; i++)
        c->sequences[i].pages = c->pages;
    return 0;
}

static int bind_attention(struct call *c, struct ds_error *err)
{
    struct ds_attention_args *a = &c->args.attention;
    const struct ds_explain_at *at = &c->first->at[c->side];
    const int64_t kv = a->kv_heads * a->head_dim;
    if (lay_sequences(c, err) != 0 || lay_pages(c, &a->page_size, &a->pages, err) != 0)
        return -1;
    const size_t slots = (size_t)(a->page_size * a->pages);
    c->k = ds_alloc_aligned(slots * (size_t)kv, sizeof *c->k, "keys", err);
    c->v = ds_alloc_aligned(slots * (size_t)kv, sizeof *c->v, "values", err);
    if (!c->k || !c->v)
        return -1;
    /* The longest row knows all slots that a shorter one of the same call sees. */
    for (size_t j = 0; j < c->e->n_rows; j++) {
        const struct ds_explain_row *row = &c->e->rows[j];
        const struct ds_explain_input *in = &row->input[c->side];
        if (!in_call(c, row))
            continue;
        const size_t n = (size_t)(in->slot + 1 - in->kv_first) * (size_t)kv;
        memcpy(c->k + in->kv_first * kv, in->k, n * sizeof *c->k);
        memcpy(c->v + in->kv_first * kv, in->v, n * sizeof *c->v);
    }
    a->rows = c->rows;
    a->q = c->in[0];
    a->ldq = a->ldy = c->width;
    a->cache_k = c->k;
    a->cache_v = c->v;
    a->sequences = c->sequences;
    a->n_sequences = at->n_sequences;
    a->max_q_len = 0;
    for (int32_t i = 0; i < at->n_sequences; i++)
        if (c->sequences[i].q_len > a->max_q_len)
            a->max_q_len = c->sequences[i].q_len;
    a->max_kv_len = most_slots(c);
    a->y = c->y;
    return 0;
}

/* Each sequence has its own pages here: they are written. The output is read back. */
static int bind_cache(struct call *c, struct ds_error *err)
{
    struct ds_cache_args *a = &c->args.cache;
    const int32_t n = c->first->at[c->side].n_sequences;
    if (lay_sequences(c, err) != 0)
        return -1;
    const int64_t slots = most_slots(c);
    a->page_size = c->e->page_size > 0 ? c->e->page_size : slots;
    const int64_t each = (slots + a->page_size - 1) / a->page_size;
    a->pages = each * n;
    c->pages = ds_calloc((size_t)a->pages, sizeof *c->pages, "pages", err);
    c->k =
        ds_alloc_aligned((size_t)(a->pages * a->page_size * a->width), sizeof *c->k, "cache", err);
    if (!c->pages || !c->k)
        return -1;
    for (int64_t i = 0; i < a->pages; i++)
        c->pages[i] = (int32_t)i;
    for (int32_t i = 0; i < n; i++)
        c->sequences[i].pages = c->pages + i * each;
    a->rows = c->rows;
    a->x = c->in[0];
    a->ldx = a->width;
    a->cache = c->k;
    a->sequences = c->sequences;
    a->n_sequences = n;
    return 0;
}

static void read_cache(struct call *c)
{
    const struct ds_cache_args *a = &c->args.cache;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int32_t r = 0; r < s->q_len; r++) {
            const int64_t slot = s->kv_len - s->q_len + r,
                          row = s->pages[slot / a->page_size] * a->page_size + slot % a->page_size;
            memcpy(c->y + (s->q_first + r) * a->width, a->cache + row * a->width,
                   (size_t)a->width * sizeof *c->y);
        }
    }
}

/* ---- launching ------------------------------------------------------------------------------- */

static void run_team(void *team, void (*fn)(void *, int, int), void *arg)
{
    ds_team_run(team, fn, arg);
}

static int refused(const struct ds_kernel *k, const char *why, struct ds_error *err)
{
    return ds_fail(err, "%s/%s refused the call: %s", ds_op_name(k->op), k->name,
                   *why ? why : "it gave no reason");
}

static int prepare(struct call *c, struct ds_error *err)
{
    const struct ds_kernel *k = c->kernel;
    char why[256] = "";
    size_t bytes;
    if (c->e->op != DS_OP_MATMUL || !k->prepare)
        return 0;
    if (k->prepare(&c->args.matmul.w, &c->prepared, &bytes, why, sizeof why - 1) == 0)
        return 0;
    c->prepared = NULL;
    return refused(k, why, err);
}

static int build(struct call *c, struct ds_error *err)
{
    c->args = c->e->shared;
    c->rows = c->first->at[c->side].rows;
    c->width = ds_explain_width(c->e->op, &c->args);
    for (int i = 0; i < 2; i++)
        c->in_width[i] = ds_explain_width_in(c->e->op, &c->args, i);
    c->y =
        ds_alloc_aligned((size_t)c->rows * (size_t)c->width, sizeof *c->y, "rows of a call", err);
    if (!c->y || fill_inputs(c, err) != 0 || prepare(c, err) != 0)
        return -1;
    switch (c->e->op) {
    case DS_OP_ATTENTION:
        return bind_attention(c, err);
    case DS_OP_CACHE:
        return bind_cache(c, err);
    case DS_OP_ALLREDUCE:
        return bind_allreduce(c, err);
    default:
        bind_simple(c);
        return 0;
    }
}

static int32_t element_of(int dtype)
{
    return dtype == DS_BF16 ? DS_ELEMENT_BF16 : dtype == DS_F16 ? DS_ELEMENT_F16 : DS_ELEMENT_F32;
}

static int launch(struct call *c, int threads, void *team, uint64_t seed, struct ds_error *err)
{
    const struct ds_kernel *k = c->kernel;
    char why[256] = "";
    size_t need = k->scratch_bytes ? k->scratch_bytes(&c->args, threads) : 0;
    c->scratch = need ? ds_alloc_aligned(need, 1, "scratch memory", err) : NULL;
    if (need && !c->scratch)
        return -1;
    struct ds_exec exec = {.threads = threads,
                           .team = team,
                           .run = run_team,
                           .seed = seed,
                           .dtype = element_of(c->e->side[c->side].dtype),
                           .scratch = c->scratch,
                           .scratch_bytes = need};
    if (k->launch(&c->args, &exec, why, sizeof why - 1) != 0)
        return refused(k, why, err);
    if (c->e->op == DS_OP_CACHE)
        read_cache(c);
    return 0;
}

/* A row as the engine stores it. */
static void store(int dtype, float *to, const float *from, int64_t n)
{
    uint16_t half[256];
    memcpy(to, from, (size_t)n * sizeof *to);
    if (dtype != DS_BF16 && dtype != DS_F16)
        return;
    for (int64_t i = 0; i < n; i += 256) {
        size_t m = n - i < 256 ? (size_t)(n - i) : 256;
        ds_round_row(dtype, half, from + i, m);
        ds_widen_row(dtype, to + i, half, m);
    }
}

/* The call in which row `first` stood; rows of it are written to y. */
static int run_call(const struct ds_explain *e, int side, const struct ds_kernel *kernel,
                    size_t first, void *team, uint64_t seed, float *y, struct ds_error *err)
{
    struct call c = {.e = e, .side = side, .kernel = kernel, .first = &e->rows[first]};
    int rc = build(&c, err);
    if (rc == 0)
        rc = launch(&c, e->side[side].threads, team, seed, err);
    for (size_t j = first; j < e->n_rows && rc == 0; j++)
        if (in_call(&c, &e->rows[j]))
            store(e->side[side].dtype, y + (int64_t)j * c.width,
                  c.y + e->rows[j].at[side].row * c.width, c.width);
    call_free(&c);
    return rc;
}

int ds_explain_run(const struct ds_explain *e, int side, const struct ds_kernel *kernel,
                   uint64_t seed, float *y, struct ds_error *err)
{
    struct ds_team *team = ds_team_new(e->side[side].threads, err);
    int rc = team ? 0 : -1;
    for (size_t i = 0; i < e->n_rows && rc == 0; i++) {
        int done = 0;
        for (size_t j = 0; j < i; j++)
            done |= e->rows[j].at[side].call == e->rows[i].at[side].call;
        if (!done)
            rc = run_call(e, side, kernel, i, team, seed + i, y, err);
    }
    ds_team_free(team);
    return rc;
}

void ds_explain_match(const struct ds_explain *e, const float *y, struct ds_explain_match *out)
{
    const int64_t n = ds_explain_width(e->op, &e->shared);
    memset(out, 0, sizeof *out);
    for (size_t r = 0; r < e->n_rows; r++)
        for (int64_t i = 0; i < n; i++) {
            const uint32_t a = ds_f32_bits(e->rows[r].y[DS_SIDE_A][i]),
                           b = ds_f32_bits(e->rows[r].y[DS_SIDE_B][i]),
                           got = ds_f32_bits(y[(int64_t)r * n + i]);
            const int drifts = a != b;
            out->elements++;
            out->drifting += (uint64_t)drifts;
            out->same[DS_SIDE_A] += got == a;
            out->same[DS_SIDE_B] += got == b;
            out->drift_same[DS_SIDE_A] += drifts && got == a;
            out->drift_same[DS_SIDE_B] += drifts && got == b;
        }
}
