/* far.c: see far.h. */
#include "kernels/lab/far.h"

#include "base/mem.h"
#include "kernels/cpu/file_weights.h"
#include "kernels/device_open.h"
#include "kernels/sim/mma.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* ---- the device ------------------------------------------------------------------------------------- */

static int number[DS_DEVICE_KINDS];
static struct {
    struct ds_device *dev;
    pid_t pid;               /* who opened it */
    int32_t multiprocessors; /* asked once: a device takes its time to tell all of itself */
} opened[DS_DEVICE_KINDS];

void ds_lab_use_device(int kind, int n)
{
    number[kind] = n;
    if (kind == DS_DEVICE_SIM) /* it may be open already */
        (void)ds_sim_mma_choose(n);
}

int ds_lab_device_of(int kind, struct ds_device **out, struct ds_error *err)
{
    *out = NULL;
    if (kind == DS_DEVICE_CPU)
        return 0;
    /* What a parent opened is not this process's to close either. */
    if (opened[kind].pid != getpid()) {
        struct ds_device *dev;
        struct ds_device_info info;
        if (ds_device_open(kind, number[kind], &dev, err) != 0)
            return -1;
        if (ds_device_check(dev, dev->info(dev, &info), err) != 0) {
            ds_device_close(dev);
            return -1;
        }
        opened[kind].dev = dev;
        opened[kind].pid = getpid();
        opened[kind].multiprocessors = info.multiprocessors;
    }
    *out = opened[kind].dev;
    return 0;
}

void ds_lab_device_exec(const struct ds_device *dev, struct ds_exec *exec)
{
    exec->stream = dev->stream;
    exec->memory = dev->memory;
    exec->multiprocessors = opened[dev->kind].multiprocessors;
}

/* ---- which members are arrays ---------------------------------------------------------------------------- */

struct fields {
    struct ds_far_field *f;
    int n;
};

enum { READ = 0, WRITTEN };

static void add(struct fields *l, size_t at, int64_t rows, int64_t cols, int64_t ld, int stored,
                int written)
{
    const int64_t element = stored == DS_ELEMENT_F16 || stored == DS_ELEMENT_BF16 ? 2 : 4;
    const int64_t elements = rows > 0 && cols > 0 ? (rows - 1) * ld + cols : 0;
    l->f[l->n++] = (struct ds_far_field){at, (size_t)(elements * element), written};
}

/* An array without gaps, of f32 or i32. */
static void add_plain(struct fields *l, size_t at, int64_t rows, int64_t cols, int written)
{
    add(l, at, rows, cols, cols, DS_ELEMENT_F32, written);
}

#define AT(STRUCT, MEMBER) offsetof(struct ds_##STRUCT##_args, MEMBER)

static void matmul_fields(struct fields *l, const struct ds_matmul_args *a)
{
    const struct ds_file_layout *layout = ds_file_layout(a->w.file_type);
    const int64_t blocks = layout ? (a->k + layout->block - 1) / layout->block : 0;
    add(l, AT(matmul, x), a->rows, a->k, a->ldx, a->stored, READ);
    add_plain(l, AT(matmul, w) + offsetof(struct ds_weight_view, data), a->n, a->k, READ);
    l->f[l->n++] =
        (struct ds_far_field){AT(matmul, w) + offsetof(struct ds_weight_view, file_data),
                              layout ? (size_t)(a->n * blocks * layout->block_bytes) : 0, READ};
    l->f[l->n++] = (struct ds_far_field){AT(matmul, prepared), SIZE_MAX, READ};
    add_plain(l, AT(matmul, bias), 1, a->n, READ);
    add(l, AT(matmul, y), a->rows, a->n, a->ldy, a->y_stored, WRITTEN);
}

static void attention_fields(struct fields *l, const struct ds_attention_args *a)
{
    const int64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
    add(l, AT(attention, q), a->rows, q, a->ldq, a->stored, READ);
    add(l, AT(attention, cache_k), a->pages * a->page_size, kv, kv, a->stored, READ);
    add(l, AT(attention, cache_v), a->pages * a->page_size, kv, kv, a->stored, READ);
    add(l, AT(attention, y), a->rows, q, a->ldy, a->stored, WRITTEN);
    add_plain(l, AT(attention, sinks), 1, a->heads, READ);
    add_plain(l, AT(attention, lse), a->rows, a->heads, WRITTEN);
}

static void rope_fields(struct fields *l, const struct ds_rope_args *a)
{
    const int64_t width = a->heads * a->head_dim;
    add_plain(l, AT(rope, positions), 1, a->rows, READ);
    add_plain(l, AT(rope, cos_sin), a->table_positions, a->rope_dim / 2 * 2, READ);
    add(l, AT(rope, x), a->rows, width, a->ldx, a->stored, READ);
    add(l, AT(rope, y), a->rows, width, a->ldy, a->stored, WRITTEN);
}

static void custom_fields(struct fields *l, const struct ds_custom_args *a)
{
    for (int i = 0; i < a->n_tensors; i++) {
        const struct ds_custom_tensor *t = &a->tensor[i];
        add(l, AT(custom, tensor) + (size_t)i * sizeof *t + offsetof(struct ds_custom_tensor, data),
            t->rows, t->cols, t->ld, t->dtype, t->role != DS_TENSOR_IN);
    }
}

/* Ops of a row of the call alone, by their width. */
static void row_fields(struct fields *l, int op, const union ds_any_args *u)
{
    switch (op) {
    case DS_OP_EMBED:
        add_plain(l, AT(embed, table), u->embed.vocab, u->embed.width, READ);
        add_plain(l, AT(embed, ids), 1, u->embed.rows, READ);
        add(l, AT(embed, y), u->embed.rows, u->embed.width, u->embed.ldy, u->embed.stored, WRITTEN);
        return;
    case DS_OP_RMSNORM:
        add(l, AT(rmsnorm, x), u->rmsnorm.rows, u->rmsnorm.width, u->rmsnorm.ldx, u->rmsnorm.stored,
            READ);
        add_plain(l, AT(rmsnorm, weight), 1, u->rmsnorm.width, READ);
        add(l, AT(rmsnorm, y), u->rmsnorm.rows, u->rmsnorm.width, u->rmsnorm.ldy, u->rmsnorm.stored,
            WRITTEN);
        return;
    case DS_OP_SOFTMAX:
        add(l, AT(softmax, x), u->softmax.rows, u->softmax.width, u->softmax.ldx, u->softmax.stored,
            READ);
        add(l, AT(softmax, y), u->softmax.rows, u->softmax.width, u->softmax.ldy, u->softmax.stored,
            WRITTEN);
        return;
    case DS_OP_TRANSFER:
        add(l, AT(transfer, x), u->transfer.rows, u->transfer.width, u->transfer.ldx,
            u->transfer.stored, READ);
        add(l, AT(transfer, y), u->transfer.rows, u->transfer.width, u->transfer.ldy,
            u->transfer.stored, WRITTEN);
        return;
    case DS_OP_SILU_MUL:
        add(l, AT(silu_mul, gate), u->silu_mul.rows, u->silu_mul.width, u->silu_mul.ldx,
            u->silu_mul.stored, READ);
        add(l, AT(silu_mul, up), u->silu_mul.rows, u->silu_mul.width, u->silu_mul.ldx,
            u->silu_mul.stored, READ);
        add(l, AT(silu_mul, y), u->silu_mul.rows, u->silu_mul.width, u->silu_mul.ldy,
            u->silu_mul.stored, WRITTEN);
        return;
    default: /* add */
        add(l, AT(add, a), u->add.rows, u->add.width, u->add.lda, u->add.stored, READ);
        add(l, AT(add, b), u->add.rows, u->add.width, u->add.ldb, u->add.stored, READ);
        add(l, AT(add, y), u->add.rows, u->add.width, u->add.ldy, u->add.stored, WRITTEN);
        return;
    }
}

static void router_fields(struct fields *l, const struct ds_router_args *a)
{
    add(l, AT(router, logits), a->rows, a->experts, a->ldx, a->stored, READ);
    add_plain(l, AT(router, ids), a->rows, a->top_k, WRITTEN);
    add_plain(l, AT(router, weights), a->rows, a->top_k, WRITTEN);
}

static void combine_fields(struct fields *l, const struct ds_combine_args *a)
{
    add(l, AT(combine, x), a->rows * a->top_k, a->width, a->ldx, a->stored, READ);
    add_plain(l, AT(combine, weights), a->rows, a->top_k, READ);
    add(l, AT(combine, y), a->rows, a->width, a->ldy, a->stored, WRITTEN);
}

int ds_far_fields(int op, const void *args, struct ds_far_field f[DS_FAR_FIELDS])
{
    const union ds_any_args *u = args;
    struct fields l = {.f = f};
    switch (op) {
    case DS_OP_MATMUL:
        matmul_fields(&l, &u->matmul);
        break;
    case DS_OP_ATTENTION:
        attention_fields(&l, &u->attention);
        break;
    case DS_OP_ROPE:
        rope_fields(&l, &u->rope);
        break;
    case DS_OP_CACHE:
        add(&l, AT(cache, x), u->cache.rows, u->cache.width, u->cache.ldx, u->cache.stored, READ);
        add(&l, AT(cache, cache), u->cache.pages * u->cache.page_size, u->cache.width,
            u->cache.width, u->cache.stored, WRITTEN);
        break;
    case DS_OP_ROUTER:
        router_fields(&l, &u->router);
        break;
    case DS_OP_COMBINE:
        combine_fields(&l, &u->combine);
        break;
    case DS_OP_ALLREDUCE:
        add(&l, AT(allreduce, y), u->allreduce.rows, u->allreduce.width, u->allreduce.ldy,
            u->allreduce.stored, WRITTEN);
        break;
    case DS_OP_PROCESS: /* what else it has is the host's */
        add(&l, AT(process, logits), u->process.rows, u->process.vocab, u->process.ldx,
            DS_ELEMENT_F32, READ);
        add(&l, AT(process, y), u->process.rows, u->process.vocab, u->process.ldy, DS_ELEMENT_F32,
            WRITTEN);
        break;
    case DS_OP_SAMPLE:
        add(&l, AT(sample, logits), u->sample.rows, u->sample.vocab, u->sample.ldx, DS_ELEMENT_F32,
            READ);
        add_plain(&l, AT(sample, ids), 1, u->sample.rows, WRITTEN);
        break;
    case DS_OP_CUSTOM:
        custom_fields(&l, &u->custom);
        break;
    default:
        row_fields(&l, op, u);
    }
    return l.n;
}

const struct ds_sequence *ds_far_sequences(int op, const void *args, int64_t *n, int64_t *page_size)
{
    const union ds_any_args *u = args;
    *n = op == DS_OP_ATTENTION ? u->attention.n_sequences
         : op == DS_OP_CACHE   ? u->cache.n_sequences
                               : 0;
    *page_size = op == DS_OP_ATTENTION ? u->attention.page_size
                 : op == DS_OP_CACHE   ? u->cache.page_size
                                       : 0;
    return op == DS_OP_ATTENTION ? u->attention.sequences
           : op == DS_OP_CACHE   ? u->cache.sequences
                                 : NULL;
}

/* ---- the same arguments, there ------------------------------------------------------------------------------- */

struct mapping {
    void *(*where)(void *arg, const void *host);
    void *arg;
    struct ds_error *err;
};

/* NULL is nowhere, and stays it. */
static int move_pointer(const struct mapping *m, const void *host, void **far)
{
    *far = host ? m->where(m->arg, host) : NULL;
    if (!host || *far)
        return 0;
    return ds_fail(m->err, "an array of the call has no place on the device");
}

static int move_ranks(const struct mapping *m, struct ds_allreduce_args *a, const float ***ranks)
{
    const float **list = ds_calloc((size_t)a->ranks, sizeof *list, "ranks", m->err);
    *ranks = list;
    for (int64_t i = 0; list && i < a->ranks; i++) {
        void *far;
        if (move_pointer(m, a->x[i], &far) != 0)
            return -1;
        list[i] = far;
    }
    a->x = list;
    return list ? 0 : -1;
}

size_t ds_far_bytes(int op)
{
    static const size_t bytes[DS_OP_COUNT] = {
        [DS_OP_EMBED] = sizeof(struct ds_embed_args),
        [DS_OP_RMSNORM] = sizeof(struct ds_rmsnorm_args),
        [DS_OP_MATMUL] = sizeof(struct ds_matmul_args),
        [DS_OP_ROPE] = sizeof(struct ds_rope_args),
        [DS_OP_CACHE] = sizeof(struct ds_cache_args),
        [DS_OP_ATTENTION] = sizeof(struct ds_attention_args),
        [DS_OP_SOFTMAX] = sizeof(struct ds_softmax_args),
        [DS_OP_SILU_MUL] = sizeof(struct ds_silu_mul_args),
        [DS_OP_ADD] = sizeof(struct ds_add_args),
        [DS_OP_ROUTER] = sizeof(struct ds_router_args),
        [DS_OP_COMBINE] = sizeof(struct ds_combine_args),
        [DS_OP_ALLREDUCE] = sizeof(struct ds_allreduce_args),
        [DS_OP_SAMPLE] = sizeof(struct ds_sample_args),
        [DS_OP_CUSTOM] = sizeof(struct ds_custom_args),
        [DS_OP_TRANSFER] = sizeof(struct ds_transfer_args),
        [DS_OP_PROCESS] = sizeof(struct ds_process_args),
    };
    return bytes[op];
}

int ds_far_args(int op, const void *host, union ds_any_args *far, const float ***ranks,
                void *(*where)(void *arg, const void *host), void *arg, struct ds_error *err)
{
    const struct mapping m = {where, arg, err};
    struct ds_far_field f[DS_FAR_FIELDS];
    const int n = ds_far_fields(op, host, f);
    void *there = NULL;
    memcpy(far, host, ds_far_bytes(op));
    *ranks = NULL;
    for (int i = 0; i < n; i++) {
        void *pointer;
        memcpy(&pointer, (const char *)host + f[i].at, sizeof pointer);
        if (move_pointer(&m, pointer, &there) != 0)
            return -1;
        memcpy((char *)far + f[i].at, &there, sizeof there);
    }
    int64_t n_sequences, page_size;
    const struct ds_sequence *sequences = ds_far_sequences(op, host, &n_sequences, &page_size);
    if (move_pointer(&m, sequences, &there) != 0)
        return -1;
    if (op == DS_OP_ATTENTION)
        far->attention.device_sequences = there;
    else if (op == DS_OP_CACHE)
        far->cache.device_sequences = there;
    return op == DS_OP_ALLREDUCE ? move_ranks(&m, &far->allreduce, ranks) : 0;
}
