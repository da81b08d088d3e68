/* subject_rows.c: the arrays of every op whose rows stand alone. Inputs of a row are a function of
 * its key (content.h); weights and tables are shared by all calls. Must not know what is judged. */
#include "kernels/lab/subject_rows.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/cpu/file_weights.h"
#include "kernels/lab/content.h"
#include "kernels/lab/file_content.h"
#include "kernels/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Streams of content: the first array of a call, the second, those of all calls, ranks and the
 * tensors of a custom kernel from TENSOR on. */
enum { FIRST = 0, SECOND, WEIGHTS, BIAS, IDS, TENSOR = DS_STREAM_TENSORS };
/* More than 16 bits count, and a half has steps of 32 there. */
enum { ROPE_POSITIONS = 66000, NEAR_END = 512 };

/* ---- rows of the pool --------------------------------------------------------------------------- */

void ds_subject_fill(const struct ds_subject_parts *p, const struct ds_call *c, int stream,
                     float *at, int64_t cols, int64_t ld)
{
    for (int64_t i = 0; i < c->n_segments && !p->arena.bare; i++) {
        const struct ds_segment *s = &c->segment[i];
        for (int32_t j = 0; j < s->length; j++, at += ld)
            ds_pool_row(p->pool, p->seed, at, cols, stream, s->sequence, s->first + j, s->content);
    }
}

/* An f32 array of the call with a row for each of its rows. */
static float *place(struct ds_subject_parts *p, const struct ds_call *c, const char *name, int role,
                    int64_t rows, int64_t cols, int gap, struct ds_error *err)
{
    return ds_arena_place(&p->arena, name, role, 4, rows, cols, cols + ds_call_gap(c, gap),
                          c->place, err);
}

static float *second_input(struct ds_subject_parts *p, const struct ds_call *c, const char *name,
                           int stream, int64_t cols, int gap, struct ds_error *err)
{
    float *x = place(p, c, name, DS_ARRAY_IN, ds_call_rows(c), cols, gap, err);
    if (x)
        ds_subject_fill(p, c, stream, x, cols, cols + ds_call_gap(c, gap));
    return x;
}

static float *input(struct ds_subject_parts *p, const struct ds_call *c, const char *name,
                    int stream, int64_t cols, struct ds_error *err)
{
    return second_input(p, c, name, stream, cols, DS_GAP_FIRST, err);
}

static float *output(struct ds_subject_parts *p, const struct ds_call *c, int64_t cols,
                     struct ds_error *err)
{
    return place(p, c, "y", DS_ARRAY_OUT, ds_call_rows(c), cols, DS_GAP_OUTPUT, err);
}

/* An f32 array of all calls, [rows][cols], ending at its guard page. */
static float *shared(struct ds_subject_parts *p, const char *name, int64_t rows, int64_t cols,
                     int stream, struct ds_error *err)
{
    float *w = ds_arena_place(&p->arena, name, DS_ARRAY_IN, 4, rows, cols, cols,
                              p->moved           ? p->moved
                              : rows * cols % 16 ? DS_PLACE_END
                                                 : 0,
                              err);
    for (int64_t r = 0; w && r < rows; r++)
        ds_content_row(w + r * cols, cols, p->seed, stream, -1, (int32_t)r, p->weights);
    return w;
}

static int one_part(struct ds_output_part *part, int dtype, int64_t cols)
{
    *part = (struct ds_output_part){"y", dtype, cols};
    return 1;
}

/* Most ops: one f32 output as wide as the shape, work and traffic per element. */
static int width_parts(const struct ds_subject_parts *p, const struct ds_call *c,
                       struct ds_output_part part[DS_MOST_PARTS])
{
    (void)c;
    return one_part(part, DS_ELEMENT_F32, p->shape->width);
}

static double width_work(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return (double)ds_call_rows(c) * (double)p->shape->width;
}

static double two_bytes(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return 8.0 * width_work(p, c);
}

static double three_bytes(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return 12.0 * width_work(p, c);
}

/* ---- embed ---------------------------------------------------------------------------------------- */

/* The row of the table that a key looks up: rows v with v % DS_CONTENT_COUNT == content hold that content. */
static int32_t embed_id(const struct ds_subject_parts *p, const struct ds_segment *s, int32_t slot)
{
    const uint64_t u = ds_content_hash(ds_content_hash(p->seed, IDS),
                                       ((uint64_t)(uint32_t)s->sequence << 32) | (uint32_t)slot);
    const int64_t groups = p->shape->vocab / DS_CONTENT_COUNT;
    return groups ? (int32_t)(u % (uint64_t)groups * DS_CONTENT_COUNT) + s->content
                  : (int32_t)(u % (uint64_t)p->shape->vocab);
}

static int embed_open(struct ds_subject_parts *p, struct ds_error *err)
{
    const struct ds_shape *s = p->shape;
    float *t = ds_arena_place(&p->arena, "table", DS_ARRAY_IN, 4, s->vocab, s->width, s->width,
                              p->moved ? p->moved : DS_PLACE_END, err);
    for (int64_t v = 0; t && v < s->vocab; v++)
        ds_content_row(t + v * s->width, s->width, p->seed, WEIGHTS, -1, (int32_t)v,
                       s->vocab >= DS_CONTENT_COUNT ? (int)(v % DS_CONTENT_COUNT) : 0);
    p->args.embed.table = t;
    return t ? 0 : -1;
}

static int embed_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_embed_args *a = &p->args.embed;
    const int64_t rows = ds_call_rows(c);
    int32_t *ids = ds_arena_place(&p->arena, "ids", DS_ARRAY_IN, 4, 1, rows, rows, c->place, err);
    if (!ids)
        return -1;
    for (int64_t i = 0, r = 0; i < c->n_segments; i++)
        for (int32_t j = 0; j < c->segment[i].length; j++)
            ids[r++] = embed_id(p, &c->segment[i], c->segment[i].first + j);
    a->vocab = p->shape->vocab, a->width = p->shape->width, a->rows = rows, a->ids = ids;
    a->ldy = a->width + ds_call_gap(c, DS_GAP_OUTPUT);
    a->y = output(p, c, a->width, err);
    return a->y ? 0 : -1;
}

/* ---- rmsnorm, softmax, transfer ------------------------------------------------------------------------------ */

static int rmsnorm_open(struct ds_subject_parts *p, struct ds_error *err)
{
    p->args.rmsnorm.weight = shared(p, "weight", 1, p->shape->width, WEIGHTS, err);
    return p->args.rmsnorm.weight ? 0 : -1;
}

static int rmsnorm_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_rmsnorm_args *a = &p->args.rmsnorm;
    a->rows = ds_call_rows(c), a->width = p->shape->width, a->eps = 1e-5f;
    a->ldx = a->width + c->gap, a->ldy = a->width + ds_call_gap(c, DS_GAP_OUTPUT);
    a->x = input(p, c, "x", FIRST, a->width, err);
    a->y = a->x ? output(p, c, a->width, err) : NULL;
    return a->y ? 0 : -1;
}

static int softmax_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_softmax_args *a = &p->args.softmax;
    a->rows = ds_call_rows(c), a->width = p->shape->width;
    a->ldx = a->width + c->gap, a->ldy = a->width + ds_call_gap(c, DS_GAP_OUTPUT);
    a->x = input(p, c, "x", FIRST, a->width, err);
    a->y = a->x ? output(p, c, a->width, err) : NULL;
    return a->y ? 0 : -1;
}

static int transfer_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_transfer_args *a = &p->args.transfer;
    a->rows = ds_call_rows(c), a->width = p->shape->width;
    a->ldx = a->width + c->gap, a->ldy = a->width + ds_call_gap(c, DS_GAP_OUTPUT);
    a->src = 0, a->dst = 1;
    a->x = input(p, c, "x", FIRST, a->width, err);
    a->y = a->x ? output(p, c, a->width, err) : NULL;
    return a->y ? 0 : -1;
}

/* ---- matmul ----------------------------------------------------------------------------------------- */

/* Weights of a file's type and what they stand for, both ending at their guard pages. */
static int file_weights_open(struct ds_subject_parts *p, struct ds_error *err)
{
    struct ds_matmul_args *a = &p->args.matmul;
    const struct ds_file_layout *l = ds_file_layout(p->file_type);
    const int64_t row_bytes = a->k / l->block * l->block_bytes;
    unsigned char *file = ds_arena_place(&p->arena, "file weights", DS_ARRAY_IN, 1, a->n, row_bytes,
                                         row_bytes, DS_PLACE_END, err);
    float *w =
        file ? ds_arena_place(&p->arena, "w", DS_ARRAY_IN, 4, a->n, a->k, a->k, DS_PLACE_END, err)
             : NULL;
    if (!w)
        return -1;
    for (int64_t r = 0; r < a->n; r++)
        ds_file_content_row(p->file_type, file + r * row_bytes, w + r * a->k, a->k, p->seed,
                            (int32_t)r, p->weights);
    p->w = w;
    a->w = (struct ds_weight_view){.data = p->from_file ? NULL : w, .n = a->n, .k = a->k};
    a->w.file_data = p->from_file ? (const void *)file : w;
    a->w.file_type = p->from_file ? p->file_type : 0;
    return 0;
}

static int matmul_open(struct ds_subject_parts *p, struct ds_error *err)
{
    struct ds_matmul_args *a = &p->args.matmul;
    const struct ds_shape *s = p->shape;
    a->n = s->n, a->k = s->k;
    if (p->file_type)
        return file_weights_open(p, err);
    /* The file's form of f32 weights is the same bytes (type 0). */
    a->w = (struct ds_weight_view){
        .data = shared(p, "w", s->n, s->k, WEIGHTS, err), .n = s->n, .k = s->k};
    a->w.file_data = a->w.data;
    return a->w.data ? 0 : -1;
}

static int matmul_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_matmul_args *a = &p->args.matmul;
    a->rows = ds_call_rows(c);
    a->ldx = a->k + c->gap, a->ldy = a->n + ds_call_gap(c, DS_GAP_OUTPUT);
    a->x = input(p, c, "x", FIRST, a->k, err);
    if (!a->x)
        return -1;
    a->bias = NULL;
    if (c->bias) {
        float *bias =
            ds_arena_place(&p->arena, "bias", DS_ARRAY_IN, 4, 1, a->n, a->n, c->place, err);
        if (!bias)
            return -1;
        if (!p->arena.bare)
            ds_content_fill(bias, a->n, p->seed, BIAS);
        a->bias = bias;
    }
    a->y = output(p, c, a->n, err);
    return a->y ? 0 : -1;
}

static int matmul_parts(const struct ds_subject_parts *p, const struct ds_call *c,
                        struct ds_output_part part[DS_MOST_PARTS])
{
    (void)c;
    return one_part(part, DS_ELEMENT_F32, p->shape->n);
}

static double matmul_work(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return (double)ds_call_rows(c) * (double)p->shape->n * (double)p->shape->k;
}

static double matmul_bytes(const struct ds_subject_parts *p, const struct ds_call *c)
{
    const double n = (double)p->shape->n, k = (double)p->shape->k;
    return 4.0 * (n * k + (double)ds_call_rows(c) * (n + k));
}

/* ---- rope -------------------------------------------------------------------------------------------- */

/* A table so long is no small thing to send to a device. */
static int64_t rope_positions(const struct ds_subject_parts *p)
{
    return p->kernel->device == DS_DEVICE_CPU ? ROPE_POSITIONS : 2 * NEAR_END;
}

/* Of the table the first and the last NEAR_END positions hold angles, and rows stand at those alone; a
 * kernel that counts positions in few bits reads zeros between them. */
static int64_t rope_position(const struct ds_subject_parts *p, int64_t slot)
{
    const int64_t at = slot % (2 * NEAR_END);
    return at < NEAR_END ? at : rope_positions(p) - 2 * NEAR_END + at;
}

static int rope_open(struct ds_subject_parts *p, struct ds_error *err)
{
    const int64_t pairs = p->shape->rope_dim / 2;
    float *t = ds_arena_place(&p->arena, "cos_sin", DS_ARRAY_IN, 4, rope_positions(p), 2 * pairs,
                              2 * pairs, p->moved, err);
    for (int64_t at = 0; t && at < 2 * NEAR_END; at++)
        for (int64_t i = 0; i < pairs; i++) {
            const int64_t pos = rope_position(p, at);
            double angle = (double)pos * pow(10000.0, -2.0 * (double)i / (2.0 * (double)pairs));
            t[(pos * pairs + i) * 2] = (float)cos(angle);
            t[(pos * pairs + i) * 2 + 1] = (float)sin(angle);
        }
    p->args.rope.cos_sin = t;
    p->args.rope.table_positions = rope_positions(p);
    return t ? 0 : -1;
}

static int rope_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_rope_args *a = &p->args.rope;
    const struct ds_shape *s = p->shape;
    a->rows = ds_call_rows(c), a->heads = s->heads, a->head_dim = s->head_dim;
    a->rope_dim = s->rope_dim, a->neox = (int)s->neox;
    a->ldx = s->heads * s->head_dim + c->gap;
    a->ldy = s->heads * s->head_dim + ds_call_gap(c, DS_GAP_OUTPUT);
    int32_t *positions =
        ds_arena_place(&p->arena, "positions", DS_ARRAY_IN, 4, 1, a->rows, a->rows, c->place, err);
    if (!positions)
        return -1;
    for (int64_t i = 0, r = 0; i < c->n_segments; i++)
        for (int32_t j = 0; j < c->segment[i].length; j++)
            positions[r++] = (int32_t)rope_position(p, c->segment[i].first + j);
    a->positions = positions;
    a->x = input(p, c, "x", FIRST, s->heads * s->head_dim, err);
    a->y = a->x ? output(p, c, s->heads * s->head_dim, err) : NULL;
    return a->y ? 0 : -1;
}

static int rope_parts(const struct ds_subject_parts *p, const struct ds_call *c,
                      struct ds_output_part part[DS_MOST_PARTS])
{
    (void)c;
    return one_part(part, DS_ELEMENT_F32, p->shape->heads * p->shape->head_dim);
}

static double rope_work(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return (double)ds_call_rows(c) * (double)(p->shape->heads * p->shape->head_dim);
}

static double rope_bytes(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return 8.0 * rope_work(p, c);
}

/* ---- silu_mul, add --------------------------------------------------------------------------------------- */

static int silu_mul_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_silu_mul_args *a = &p->args.silu_mul;
    a->rows = ds_call_rows(c), a->width = p->shape->width;
    a->ldx = a->width + c->gap, a->ldy = a->width + ds_call_gap(c, DS_GAP_OUTPUT);
    a->gate = input(p, c, "gate", FIRST, a->width, err);
    a->up = a->gate ? input(p, c, "up", SECOND, a->width, err) : NULL;
    a->y = a->up ? output(p, c, a->width, err) : NULL;
    return a->y ? 0 : -1;
}

static int add_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_add_args *a = &p->args.add;
    a->rows = ds_call_rows(c), a->width = p->shape->width;
    a->lda = a->width + c->gap;
    a->ldb = a->width + ds_call_gap(c, DS_GAP_SECOND);
    a->ldy = a->width + ds_call_gap(c, DS_GAP_OUTPUT);
    a->a = input(p, c, "a", FIRST, a->width, err);
    a->b = a->a ? second_input(p, c, "b", SECOND, a->width, DS_GAP_SECOND, err) : NULL;
    a->y = a->b ? output(p, c, a->width, err) : NULL;
    return a->y ? 0 : -1;
}

/* ---- router, combine ------------------------------------------------------------------------------------- */

static int router_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_router_args *a = &p->args.router;
    const struct ds_shape *s = p->shape;
    a->rows = ds_call_rows(c), a->experts = s->experts, a->top_k = s->top_k;
    a->ldx = s->experts + c->gap, a->normalise = !c->bias;
    a->logits = input(p, c, "logits", FIRST, s->experts, err);
    a->ids = a->logits ? ds_arena_place(&p->arena, "ids", DS_ARRAY_OUT, 4, a->rows, s->top_k,
                                        s->top_k, c->place, err)
                       : NULL;
    a->weights = a->ids ? ds_arena_place(&p->arena, "weights", DS_ARRAY_OUT, 4, a->rows, s->top_k,
                                         s->top_k, c->place, err)
                        : NULL;
    return a->weights ? 0 : -1;
}

static int router_parts(const struct ds_subject_parts *p, const struct ds_call *c,
                        struct ds_output_part part[DS_MOST_PARTS])
{
    (void)c;
    part[0] = (struct ds_output_part){"ids", DS_ELEMENT_I32, p->shape->top_k};
    part[1] = (struct ds_output_part){"weights", DS_ELEMENT_F32, p->shape->top_k};
    return 2;
}

static double router_work(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return (double)ds_call_rows(c) * (double)p->shape->experts;
}

static double router_bytes(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return 4.0 * (double)ds_call_rows(c) * (double)(p->shape->experts + 2 * p->shape->top_k);
}

static int combine_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_combine_args *a = &p->args.combine;
    const struct ds_shape *s = p->shape;
    a->rows = ds_call_rows(c), a->width = s->width, a->top_k = s->top_k;
    a->ldx = s->width + c->gap, a->ldy = s->width + ds_call_gap(c, DS_GAP_OUTPUT);
    float *x = place(p, c, "x", DS_ARRAY_IN, a->rows * s->top_k, s->width, DS_GAP_FIRST, err);
    if (!x)
        return -1;
    for (int64_t i = 0, r = 0; i < c->n_segments && !p->arena.bare; i++)
        for (int32_t j = 0; j < c->segment[i].length; j++)
            for (int64_t e = 0; e < s->top_k; e++, r++)
                ds_pool_row(p->pool, p->seed, x + r * a->ldx, s->width, TENSOR + (int)e,
                            c->segment[i].sequence, c->segment[i].first + j, c->segment[i].content);
    a->x = x;
    float *w = ds_arena_place(&p->arena, "weights", DS_ARRAY_IN, 4, a->rows, s->top_k, s->top_k,
                              c->place, err);
    if (!w)
        return -1;
    ds_subject_fill(p, c, SECOND, w, s->top_k, s->top_k);
    a->weights = w;
    a->y = output(p, c, s->width, err);
    return a->y ? 0 : -1;
}

static double combine_work(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return width_work(p, c) * (double)p->shape->top_k;
}

static double combine_bytes(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return 4.0 * width_work(p, c) * (double)(p->shape->top_k + 1);
}

/* ---- allreduce ------------------------------------------------------------------------------------------- */

enum { MOST_RANKS = 16 };

static int allreduce_open(struct ds_subject_parts *p, struct ds_error *err)
{
    if (p->shape->ranks > MOST_RANKS)
        return ds_fail(err, "shape: ranks %lld; the lab has memory for %d",
                       (long long)p->shape->ranks, MOST_RANKS);
    p->own = ds_calloc(MOST_RANKS, sizeof(const float *), "ranks", err);
    p->args.allreduce.x = p->own;
    return p->own ? 0 : -1;
}

static void own_close(struct ds_subject_parts *p)
{
    free(p->own);
}

static int allreduce_build(struct ds_subject_parts *p, const struct ds_call *c,
                           struct ds_error *err)
{
    static const char *const names[MOST_RANKS] = {
        "x[0]", "x[1]", "x[2]",  "x[3]",  "x[4]",  "x[5]",  "x[6]",  "x[7]",
        "x[8]", "x[9]", "x[10]", "x[11]", "x[12]", "x[13]", "x[14]", "x[15]"};
    struct ds_allreduce_args *a = &p->args.allreduce;
    const float **x = p->own;
    a->rows = ds_call_rows(c), a->width = p->shape->width, a->ranks = p->shape->ranks;
    a->ldx = a->width + c->gap, a->ldy = a->width + ds_call_gap(c, DS_GAP_OUTPUT);
    for (int i = 0; i < a->ranks; i++) {
        x[i] = input(p, c, names[i], TENSOR + i, a->width, err);
        if (!x[i])
            return -1;
    }
    a->y = output(p, c, a->width, err);
    return a->y ? 0 : -1;
}

static double allreduce_work(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return width_work(p, c) * (double)p->shape->ranks;
}

static double allreduce_bytes(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return 4.0 * width_work(p, c) * (double)(p->shape->ranks + 1);
}

/* ---- sample ---------------------------------------------------------------------------------------------- */

static int sample_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_sample_args *a = &p->args.sample;
    a->rows = ds_call_rows(c), a->vocab = p->shape->vocab, a->ldx = a->vocab + c->gap;
    a->logits = input(p, c, "logits", FIRST, a->vocab, err);
    a->ids = a->logits
                 ? ds_arena_place(&p->arena, "y", DS_ARRAY_OUT, 4, a->rows, 1, 1, c->place, err)
                 : NULL;
    return a->ids ? 0 : -1;
}

static int sample_parts(const struct ds_subject_parts *p, const struct ds_call *c,
                        struct ds_output_part part[DS_MOST_PARTS])
{
    (void)p, (void)c;
    return one_part(part, DS_ELEMENT_I32, 1);
}

static double sample_work(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return (double)ds_call_rows(c) * (double)p->shape->vocab;
}

static double sample_bytes(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return 4.0 * sample_work(p, c);
}

/* ---- the table --------------------------------------------------------------------------------------------- */

static const struct ds_subject_ops table[DS_OP_COUNT] = {
    [DS_OP_EMBED] = {.open = embed_open,
                     .build = embed_build,
                     .parts = width_parts,
                     .work = width_work,
                     .bytes = two_bytes},
    [DS_OP_RMSNORM] = {.open = rmsnorm_open,
                       .build = rmsnorm_build,
                       .parts = width_parts,
                       .work = width_work,
                       .bytes = two_bytes},
    [DS_OP_MATMUL] = {.open = matmul_open,
                      .build = matmul_build,
                      .parts = matmul_parts,
                      .work = matmul_work,
                      .bytes = matmul_bytes},
    [DS_OP_ROPE] = {.open = rope_open,
                    .build = rope_build,
                    .parts = rope_parts,
                    .work = rope_work,
                    .bytes = rope_bytes},
    [DS_OP_SOFTMAX] = {.build = softmax_build,
                       .parts = width_parts,
                       .work = width_work,
                       .bytes = two_bytes},
    [DS_OP_TRANSFER] = {.build = transfer_build,
                        .parts = width_parts,
                        .work = width_work,
                        .bytes = two_bytes},
    [DS_OP_SILU_MUL] = {.build = silu_mul_build,
                        .parts = width_parts,
                        .work = width_work,
                        .bytes = three_bytes},
    [DS_OP_ADD] = {.build = add_build,
                   .parts = width_parts,
                   .work = width_work,
                   .bytes = three_bytes},
    [DS_OP_ROUTER] = {.build = router_build,
                      .parts = router_parts,
                      .work = router_work,
                      .bytes = router_bytes},
    [DS_OP_COMBINE] = {.build = combine_build,
                       .parts = width_parts,
                       .work = combine_work,
                       .bytes = combine_bytes},
    [DS_OP_ALLREDUCE] = {.open = allreduce_open,
                         .close = own_close,
                         .build = allreduce_build,
                         .parts = width_parts,
                         .work = allreduce_work,
                         .bytes = allreduce_bytes},
    [DS_OP_SAMPLE] = {.build = sample_build,
                      .parts = sample_parts,
                      .work = sample_work,
                      .bytes = sample_bytes},
};

const struct ds_subject_ops *ds_subject_rows_ops(int op)
{
    return op == DS_OP_CACHE     ? &ds_subject_cache_ops
           : op == DS_OP_CUSTOM  ? &ds_subject_custom_ops
           : op == DS_OP_PROCESS ? &ds_subject_process_ops
                                 : &table[op];
}
