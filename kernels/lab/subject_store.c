/* subject_store.c: activations in 16 bits: what a call's arrays become when it asks for it. The op's
 * builder has made them as f32; here inputs take values of the format, and a kernel with
 * DS_FEATURE_STORED gets arrays of 16-bit elements in their place. Must not know formulas. */
#include "kernels/lab/subject_rows.h"

#include "base/dtype.h"

#include <string.h>

/* Where an op's struct says how its activations are stored, and which pointers they are. */
enum { MOST_FIELDS = 4 };
static const struct activations {
    size_t stored, field[MOST_FIELDS];
    int n;
} ops[DS_OP_COUNT] = {
#define AT(STRUCT, MEMBER) offsetof(struct ds_##STRUCT##_args, MEMBER)
    [DS_OP_EMBED] = {AT(embed, stored), {AT(embed, y)}, 1},
    [DS_OP_RMSNORM] = {AT(rmsnorm, stored), {AT(rmsnorm, x), AT(rmsnorm, y)}, 2},
    [DS_OP_MATMUL] = {AT(matmul, stored), {AT(matmul, x), AT(matmul, y)}, 2},
    [DS_OP_ROPE] = {AT(rope, stored), {AT(rope, x), AT(rope, y)}, 2},
    [DS_OP_CACHE] = {AT(cache, stored), {AT(cache, x), AT(cache, cache)}, 2},
    [DS_OP_ATTENTION] = {AT(attention, stored),
                         {AT(attention, q), AT(attention, cache_k), AT(attention, cache_v),
                          AT(attention, y)},
                         4},
    [DS_OP_SOFTMAX] = {AT(softmax, stored), {AT(softmax, x), AT(softmax, y)}, 2},
    [DS_OP_SILU_MUL] = {AT(silu_mul, stored),
                        {AT(silu_mul, gate), AT(silu_mul, up), AT(silu_mul, y)},
                        3},
    [DS_OP_ADD] = {AT(add, stored), {AT(add, a), AT(add, b), AT(add, y)}, 3},
    [DS_OP_ROUTER] = {AT(router, stored), {AT(router, logits)}, 1},
    [DS_OP_COMBINE] = {AT(combine, stored), {AT(combine, x), AT(combine, y)}, 2},
    [DS_OP_ALLREDUCE] = {AT(allreduce, stored), {AT(allreduce, y)}, 1},
    [DS_OP_TRANSFER] = {AT(transfer, stored), {AT(transfer, x), AT(transfer, y)}, 2},
#undef AT
};

int ds_subject_stored(const struct ds_subject_parts *p, const struct ds_call *c)
{
    const int wide = c->wide && p->kernel->op == DS_OP_MATMUL;
    return ops[p->kernel->op].n && !wide ? c->stored : DS_ELEMENT_F32;
}

static int dtype_of(int element)
{
    return element == DS_ELEMENT_F16 ? DS_F16 : DS_BF16;
}

uint32_t ds_subject_rounded(int element, uint32_t f32)
{
    uint16_t half;
    const float v = ds_f32_from_bits(f32);
    ds_round_row(dtype_of(element), &half, &v, 1);
    return half;
}

/* The array of this call that begins at `data`. */
static struct ds_array *array_at(struct ds_arena *a, const void *data)
{
    for (int i = a->held; i < a->n; i++)
        if (a->array[i].data == data)
            return &a->array[i];
    return NULL;
}

/* Rows of f32 take values of the format; `half`, if there, takes their bits. */
static void round_rows(const struct ds_array *x, int dtype, uint16_t *half)
{
    float *at = x->data;
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t j = 0; j < x->cols; j++) {
            uint16_t bits;
            ds_round_row(dtype, &bits, &at[r * x->ld + j], 1);
            ds_widen_row(dtype, &at[r * x->ld + j], &bits, 1);
            if (half)
                half[r * x->ld + j] = bits;
        }
}

static int store_array(struct ds_subject_parts *p, const struct ds_call *c, float **pointer,
                       struct ds_error *err)
{
    struct ds_array *x = array_at(&p->arena, *pointer);
    const int dtype = dtype_of(c->stored);
    uint16_t *half = NULL;
    if (!x)
        return 0;
    if (p->kernel->features & DS_FEATURE_STORED) {
        half =
            ds_arena_place(&p->arena, x->name, x->role, 2, x->rows, x->cols, x->ld, c->place, err);
        uint8_t *mask = half && x->written ? ds_arena_row_mask(&p->arena, err) : NULL;
        if (!half || (x->written && !mask))
            return -1;
        if (mask)
            memcpy(mask, x->written, (size_t)x->rows);
        *pointer = (float *)(void *)half;
    }
    if (x->role == DS_ARRAY_IN && !p->arena.bare)
        round_rows(x, dtype, half);
    if (half) { /* in its place, since outputs are found in their order */
        struct ds_array *new = &p->arena.array[p->arena.n - 1], keep = *x;
        keep.role = DS_ARRAY_IN; /* nobody writes it now */
        *x = *new;
        *new = keep;
    }
    return 0;
}

int ds_subject_store(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    const struct activations *op = &ops[p->kernel->op];
    unsigned char *args = (unsigned char *)&p->args;
    struct ds_allreduce_args *ranks = p->kernel->op == DS_OP_ALLREDUCE ? &p->args.allreduce : NULL;
    const int32_t stored = p->kernel->features & DS_FEATURE_STORED ? c->stored : DS_ELEMENT_F32;
    if (!op->n)
        return 0;
    memcpy(args + op->stored, &stored, sizeof stored);
    if (p->kernel->op == DS_OP_MATMUL)
        p->args.matmul.y_stored = c->wide ? DS_ELEMENT_F32 : stored;
    if (c->stored == DS_ELEMENT_F32)
        return 0;
    for (int i = 0; i < op->n; i++)
        if (!(c->wide && p->kernel->op == DS_OP_MATMUL && i == 1) &&
            store_array(p, c, (float **)(void *)(args + op->field[i]), err) != 0)
            return -1;
    for (int64_t i = 0; ranks && i < ranks->ranks; i++)
        if (store_array(p, c, &((float **)(uintptr_t)ranks->x)[i], err) != 0)
            return -1;
    return 0;
}
