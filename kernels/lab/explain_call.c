/* explain_call.c: given rows in a call again: as many rows as it had, each given one in its place.
 * Owns the sizes of each op, the launch, and what is compared with it; judges nothing. explain_bind.c and
 * explain_sequences.c lay out the arguments. */
#include "kernels/lab/explain_call.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/team.h"
#include "kernels/call.h"
#include "kernels/lab/far.h"
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
    case DS_OP_TRANSFER:
    case DS_OP_PROCESS:
        return 1;
    default:
        return ds_explain_chooses(op);
    }
}

int ds_explain_chooses(int op)
{
    return op == DS_OP_ROUTER || op == DS_OP_SAMPLE;
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
    case DS_OP_TRANSFER:
        return i == 0 ? s->transfer.width : 0;
    case DS_OP_PROCESS:
        return i == 0 ? s->process.vocab : 0;
    case DS_OP_ROUTER:
        return i == 0 ? s->router.experts : 0;
    case DS_OP_SAMPLE:
        return i == 0 ? s->sample.vocab : 0;
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
    case DS_OP_ROUTER:
        return s->router.top_k;
    case DS_OP_SAMPLE:
        return 1;
    case DS_OP_CUSTOM: /* only its outputs are given */
        return s->custom.tensor[0].cols;
    default:
        return ds_explain_width_in(op, s, 0);
    }
}

static void call_free(struct ds_explain_call *c)
{
    for (int i = 0; i < 2; i++)
        free(c->in[i]);
    free(c->y);
    free(c->k);
    free(c->v);
    free(c->numbers);
    free(c->ids);
    free(c->facts);
    free(c->weights);
    free((void *)c->tokens);
    free((void *)c->ranks);
    free(c->sequences);
    free(c->pages);
    free(c->prepared);
    free(c->scratch);
    ds_far_free(c->far);
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

static int prepare(struct ds_explain_call *c, struct ds_error *err)
{
    const struct ds_kernel *k = c->kernel;
    char why[256] = "";
    size_t bytes;
    if (c->e->op != DS_OP_MATMUL || !k->prepare)
        return 0;
    if (ds_call_prepare(k, &c->args.matmul.w, &c->prepared, &bytes, why, sizeof why) == 0) {
        c->prepared_bytes = bytes;
        return 0;
    }
    return refused(k, why, err);
}

static int build(struct ds_explain_call *c, struct ds_error *err)
{
    c->args = c->e->shared;
    c->rows = c->first->at[c->side].rows;
    c->width = ds_explain_width(c->e->op, &c->args);
    for (int i = 0; i < 2; i++)
        c->in_width[i] = ds_explain_width_in(c->e->op, &c->args, i);
    c->y =
        ds_alloc_aligned((size_t)c->rows * (size_t)c->width, sizeof *c->y, "rows of a call", err);
    if (!c->y || ds_explain_fill_inputs(c, err) != 0 || prepare(c, err) != 0)
        return -1;
    const size_t elements = (size_t)c->rows * (size_t)c->width;
    if (ds_explain_chooses(c->e->op) &&
        (!(c->ids = ds_calloc(elements, sizeof *c->ids, "choices", err)) ||
         !(c->weights = ds_calloc(elements, sizeof *c->weights, "weights", err))))
        return -1;
    switch (c->e->op) {
    case DS_OP_ATTENTION:
        return ds_explain_bind_attention(c, err);
    case DS_OP_CACHE:
        return ds_explain_bind_cache(c, err);
    default:
        return ds_explain_bind_rows(c, err);
    }
}

static int32_t element_of(int dtype)
{
    return dtype == DS_BF16 ? DS_ELEMENT_BF16 : dtype == DS_F16 ? DS_ELEMENT_F16 : DS_ELEMENT_F32;
}

/* Whether the kernel was given rows of 16 bits: a vendor's matmul of those is another one than that of f32 rows that hold the
 * same values. All other kernels widen them, and it makes no difference. */
static int takes_halves(const struct ds_explain_call *c)
{
    const int stored = c->e->side[c->side].stored;
    return c->e->op == DS_OP_MATMUL && c->kernel->features & DS_FEATURE_STORED &&
           (stored == DS_BF16 || stored == DS_F16);
}

/* The same call on rows of 16 bits, which hold the values exactly; what comes of it is f32 again. */
static int launch_halves(struct ds_explain_call *c, const struct ds_exec *exec, char *why,
                         size_t why_size, struct ds_error *err)
{
    const struct ds_explain_side *s = &c->e->side[c->side];
    struct ds_matmul_args a = c->args.matmul;
    const int stays_f32 = s->dtype == DS_F32; /* logits */
    const size_t n = (size_t)(a.rows * a.n);
    uint16_t *x = ds_alloc_aligned((size_t)(a.rows * a.k), sizeof *x, "rows of a call", err),
             *y = x ? ds_alloc_aligned(n, sizeof *y, "rows of a call", err) : NULL;
    for (int64_t r = 0; y && r < a.rows; r++)
        ds_round_row(s->stored, x + r * a.k, a.x + r * a.ldx, (size_t)a.k);
    a.x = (const float *)(const void *)x;
    a.ldx = a.k;
    a.stored = element_of(s->stored);
    if (!stays_f32) {
        a.y = (float *)(void *)y;
        a.ldy = a.n;
        a.y_stored = a.stored;
    }
    int rc = y ? ds_far_launch(&c->far, c->kernel, &a, c->prepared_bytes, exec, why, why_size) : -1;
    if (rc == 0 && !stays_f32)
        ds_widen_row(s->stored, c->y, y, n);
    free(x);
    free(y);
    return rc;
}

static int launch(struct ds_explain_call *c, int threads, void *team, uint64_t seed,
                  struct ds_error *err)
{
    const struct ds_kernel *k = c->kernel;
    const int here = k->device == DS_DEVICE_CPU;
    char why[256] = "";
    size_t need = here ? ds_call_scratch(k, &c->args, threads) : 0;
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
    if ((here ? ds_call_launch(k, &c->args, &exec, why, sizeof why)
         : takes_halves(c)
             ? launch_halves(c, &exec, why, sizeof why, err)
             : ds_far_launch(&c->far, k, &c->args, c->prepared_bytes, &exec, why, sizeof why)) != 0)
        return refused(k, why, err);
    if (c->e->op == DS_OP_CACHE)
        ds_explain_read_cache(c);
    if (ds_explain_chooses(c->e->op))
        memcpy(c->y, c->e->weights ? (const void *)c->weights : c->ids,
               (size_t)(c->rows * c->width) * sizeof *c->y);
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
    struct ds_explain_call c = {.e = e, .side = side, .kernel = kernel, .first = &e->rows[first]};
    int rc = build(&c, err);
    if (rc == 0)
        rc = launch(&c, e->side[side].threads, team, seed, err);
    for (size_t j = first; j < e->n_rows && rc == 0; j++)
        if (ds_explain_in_call(&c, &e->rows[j]))
            store(e->side[side].dtype, y + (int64_t)j * c.width,
                  c.y + e->rows[j].at[side].row * c.width, c.width);
    call_free(&c);
    return rc;
}

int ds_explain_run(const struct ds_explain *e, int side, const struct ds_kernel *kernel,
                   uint64_t seed, float *y, struct ds_error *err)
{
    if (e->side[side].ranks)
        return ds_explain_ranks_run(e, side, kernel, seed, y, err);
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
                           got = y ? ds_f32_bits(y[(int64_t)r * n + i]) : 0;
            const int drifts = a != b;
            out->elements++;
            out->drifting += (uint64_t)drifts;
            if (!y)
                continue;
            out->same[DS_SIDE_A] += got == a;
            out->same[DS_SIDE_B] += got == b;
            out->drift_same[DS_SIDE_A] += drifts && got == a;
            out->drift_same[DS_SIDE_B] += drifts && got == b;
        }
}
