/* explain_bind.c: the rows of a call and the arguments of ops whose rows stand alone. What stands in the
 * rows that are not given is a given one with its elements turned, so of its size: the bits of a row
 * depend on its neighbours' number only, not on what they hold (`check` tests that: "neighbours"). */
#include "kernels/lab/explain_call.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Row `to` of n elements: those of `from`, turned by the row's number. */
static void turned(float *to, const float *from, int64_t n, int64_t row)
{
    int64_t by = n > 1 ? (row * 7 + 1) % n : 0;
    memcpy(to, from + by, (size_t)(n - by) * sizeof *to);
    memcpy(to + (n - by), from, (size_t)by * sizeof *to);
}

/* Rope: positions that a call would have, one after the other from the first of the row's own
 * sequence on. */
static int32_t other_number(const struct ds_explain_call *c, const struct ds_explain_input *model,
                            int64_t row)
{
    const struct ds_explain_at *at = &c->first->at[c->side];
    if (c->e->op != DS_OP_ROPE || at->q_len < 1)
        return model->number;
    const int64_t first = model->number - (at->row - at->q_first),
                  number = first + (row + at->q_len - at->q_first % at->q_len) % at->q_len;
    return number < 0 || number >= c->e->shared.rope.table_positions ? model->number
                                                                     : (int32_t)number;
}

int ds_explain_fill_inputs(struct ds_explain_call *c, struct ds_error *err)
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
    }
    for (size_t j = 0; j < e->n_rows; j++) {
        const struct ds_explain_row *row = &e->rows[j];
        const int64_t at = row->at[c->side].row;
        if (!ds_explain_in_call(c, row))
            continue;
        c->numbers[at] = row->input[c->side].number;
        for (int i = 0; i < 2; i++)
            if (c->in_width[i])
                memcpy(c->in[i] + at * c->in_width[i], row->input[c->side].in[i],
                       (size_t)c->in_width[i] * sizeof(float));
    }
    for (int i = 0; i < 2 && e->vary; i++)
        for (int64_t r = 0; r < c->rows; r++)
            for (int64_t j = 0; j < c->in_width[i] && e->vary[r]; j++)
                c->in[i][r * c->in_width[i] + j] *= 4.0f;
    return 0;
}

/* What is known of the row at a place of the call: of rows that are not given, what is of the first. */
static const struct ds_explain_input *input_at(const struct ds_explain_call *c, int64_t row)
{
    for (size_t j = 0; j < c->e->n_rows; j++)
        if (ds_explain_in_call(c, &c->e->rows[j]) && c->e->rows[j].at[c->side].row == row)
            return &c->e->rows[j].input[c->side];
    return &c->first->input[c->side];
}

/* The sampler of this side; NULL: the largest logit. */
static const struct ds_sampler *sampler_of(const struct ds_explain_call *c)
{
    const struct ds_explain_side *s = &c->e->side[c->side];
    return s->draws ? &s->sampler : NULL;
}

static int bind_sample(struct ds_explain_call *c, struct ds_error *err)
{
    struct ds_sample_args *a = &c->args.sample;
    if (!(c->facts = ds_calloc(2 * (size_t)c->rows, sizeof *c->facts, "rows of a call", err)))
        return -1;
    for (int64_t r = 0; r < c->rows; r++) {
        c->facts[r] = input_at(c, r)->request;
        c->facts[c->rows + r] = input_at(c, r)->step;
    }
    a->rows = c->rows;
    a->logits = c->in[0];
    a->ldx = a->vocab;
    a->ids = c->ids;
    a->sampler = sampler_of(c);
    a->streams = c->facts;
    a->steps = c->facts + c->rows;
    return 0;
}

static void bind_router(struct ds_explain_call *c)
{
    struct ds_router_args *a = &c->args.router;
    a->rows = c->rows;
    a->logits = c->in[0];
    a->ldx = a->experts;
    a->ids = c->ids;
    a->weights = c->weights;
}

static void bind_simple(struct ds_explain_call *c)
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
    case DS_OP_TRANSFER:
        a->transfer.rows = c->rows;
        a->transfer.x = c->in[0];
        a->transfer.ldx = a->transfer.ldy = c->width;
        a->transfer.y = c->y;
        break;
    case DS_OP_ROUTER:
        bind_router(c);
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

/* The given rows with what is known of their requests; the others are like the first of them. */
static int bind_process(struct ds_explain_call *c, struct ds_error *err)
{
    struct ds_process_args *a = &c->args.process;
    const size_t rows = (size_t)c->rows;
    enum { REQUEST, POSITION, STEP, CACHED, TOKENS, FACTS };
    c->facts = ds_calloc(FACTS * rows, sizeof *c->facts, "rows of a call", err);
    c->tokens = ds_calloc(rows, sizeof *c->tokens, "rows of a call", err);
    if (!c->facts || !c->tokens)
        return -1;
    for (size_t r = 0; r < rows; r++) {
        const struct ds_explain_input *in = input_at(c, (int64_t)r);
        c->facts[REQUEST * rows + r] = in->request;
        c->facts[POSITION * rows + r] = in->number;
        c->facts[STEP * rows + r] = in->step;
        c->facts[CACHED * rows + r] = in->cached;
        c->facts[TOKENS * rows + r] = in->n_tokens;
        c->tokens[r] = in->tokens;
    }
    a->rows = c->rows;
    a->logits = c->in[0];
    a->ldx = a->ldy = a->vocab;
    a->y = c->y;
    a->requests = c->facts + REQUEST * rows;
    a->positions = c->facts + POSITION * rows;
    a->steps = c->facts + STEP * rows;
    a->cached = c->facts + CACHED * rows;
    a->n_tokens = c->facts + TOKENS * rows;
    a->tokens = c->tokens;
    a->sampler = sampler_of(c);
    return 0;
}

/* Rank i's rows lie together, as every rank has its own array. */
static int bind_allreduce(struct ds_explain_call *c, struct ds_error *err)
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

int ds_explain_bind_rows(struct ds_explain_call *c, struct ds_error *err)
{
    if (c->e->op == DS_OP_ALLREDUCE)
        return bind_allreduce(c, err);
    if (c->e->op == DS_OP_SAMPLE)
        return bind_sample(c, err);
    if (c->e->op == DS_OP_PROCESS)
        return bind_process(c, err);
    bind_simple(c);
    return 0;
}
