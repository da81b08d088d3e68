/* forward_inputs.c: whether a kernel leaves what it reads as it was. A kernel that writes into its input
 * changes rows that were shown already, and whatever reads them next would be blamed in its place. Looked at
 * around every launch of a kernel that is not the project's own, on the host and on sim, while rows are shown; on a GPU
 * with --poison, which waits for every launch anyway. Weights and tables of the host are mapped read-only where a plugin
 * runs, so they are not looked at. */
#include "engine/forward_private.h"

#include "base/hash.h"

static size_t element_bytes(int32_t stored)
{
    return stored == DS_ELEMENT_F16 || stored == DS_ELEMENT_BF16 ? 2 : 4;
}

/* Of rows so far and one more. */
static uint64_t joined(uint64_t rows, uint64_t row)
{
    const uint64_t both[] = {rows, row};
    return ds_hash(both, sizeof both);
}

int ds_inputs_wanted(const struct ds_pass *p, const struct ds_kernel *k)
{
    const struct ds_forward *f = p->f;
    if (!p->probe || ds_kernel_built_in(k))
        return 0;
    return ds_forward_host(f) ||
           (!f->config.graph && (f->at.dev->kind == DS_DEVICE_SIM || f->config.poison));
}

/* A stretch of a row at a time; what a device does not give back has the digest of nothing, before and afterwards. */
static uint64_t digest_of(const struct ds_inputs *in, const char *data, size_t bytes)
{
    char here[4096];
    uint64_t h = 0;
    if (!in->dev)
        return ds_hash(data, bytes);
    for (size_t at = 0; at < bytes; at += sizeof here) {
        const size_t some = bytes - at < sizeof here ? bytes - at : sizeof here;
        if (in->dev->copy_from(in->dev, here, data + at, some) == 0)
            h = joined(h, ds_hash(here, some));
    }
    return h;
}

static void look(struct ds_inputs *in, const char *name, const void *data, int64_t rows,
                 int64_t width, int64_t ld, int32_t stored)
{
    uint64_t h = 0;
    const size_t bytes = element_bytes(stored);
    for (int64_t r = 0; r < rows; r++)
        h = joined(
            h, digest_of(in, (const char *)data + (size_t)(r * ld) * bytes, (size_t)width * bytes));
    in->at[in->n++] = (struct ds_input){name, h};
}

/* The slots in use of every sequence: all that attention may read. */
static void look_at_cache(struct ds_inputs *in, const char *name, const float *cache,
                          const struct ds_attention_args *a)
{
    uint64_t h = 0;
    const size_t row = (size_t)(a->kv_heads * a->head_dim) * element_bytes(a->stored);
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t slot = 0; slot < s->kv_len; slot++) {
            int64_t at = s->pages[slot / a->page_size] * a->page_size + slot % a->page_size;
            h = joined(h, digest_of(in, (const char *)cache + (size_t)at * row, row));
        }
    }
    in->at[in->n++] = (struct ds_input){name, h};
}

static void look_at_attention(struct ds_inputs *in, const struct ds_attention_args *a)
{
    look(in, "q", a->q, a->rows, a->heads * a->head_dim, a->ldq, a->stored);
    look_at_cache(in, "cache_k", a->cache_k, a);
    look_at_cache(in, "cache_v", a->cache_v, a);
}

static void look_at_ranks(struct ds_inputs *in, const struct ds_allreduce_args *a)
{
    uint64_t h = 0;
    for (int64_t i = 0; i < a->ranks; i++) {
        look(in, "x", a->x[i], a->rows, a->width, a->ldx, a->stored);
        h = joined(h, in->at[--in->n].digest);
    }
    in->at[in->n++] = (struct ds_input){"x", h};
}

/* Ops whose arguments are the host's plan (schedule) or that the engine never launches have none. */
void ds_inputs_look(struct ds_inputs *in, int op, const void *args)
{
    const struct ds_rmsnorm_args *norm = args;
    const struct ds_matmul_args *mm = args;
    const struct ds_rope_args *rope = args;
    const struct ds_cache_args *cache = args;
    const struct ds_silu_mul_args *silu = args;
    const struct ds_add_args *add = args;
    const struct ds_router_args *router = args;
    const struct ds_combine_args *sum = args;
    const struct ds_transfer_args *copy = args;
    const struct ds_process_args *process = args;
    const struct ds_sample_args *sample = args;
    in->n = 0;
    switch (op) {
    case DS_OP_RMSNORM:
        look(in, "x", norm->x, norm->rows, norm->width, norm->ldx, norm->stored);
        break;
    case DS_OP_MATMUL:
        look(in, "x", mm->x, mm->rows, mm->k, mm->ldx, mm->stored);
        break;
    case DS_OP_ROPE:
        look(in, "x", rope->x, rope->rows, rope->heads * rope->head_dim, rope->ldx, rope->stored);
        break;
    case DS_OP_CACHE:
        look(in, "x", cache->x, cache->rows, cache->width, cache->ldx, cache->stored);
        break;
    case DS_OP_ATTENTION:
        look_at_attention(in, args);
        break;
    case DS_OP_SILU_MUL:
        look(in, "gate", silu->gate, silu->rows, silu->width, silu->ldx, silu->stored);
        look(in, "up", silu->up, silu->rows, silu->width, silu->ldx, silu->stored);
        break;
    case DS_OP_ADD:
        look(in, "a", add->a, add->rows, add->width, add->lda, add->stored);
        look(in, "b", add->b, add->rows, add->width, add->ldb, add->stored);
        break;
    case DS_OP_ROUTER:
        look(in, "logits", router->logits, router->rows, router->experts, router->ldx,
             router->stored);
        break;
    case DS_OP_COMBINE:
        look(in, "x", sum->x, sum->rows * sum->top_k, sum->width, sum->ldx, sum->stored);
        look(in, "weights", sum->weights, sum->rows, sum->top_k, sum->top_k, DS_ELEMENT_F32);
        break;
    case DS_OP_ALLREDUCE:
        look_at_ranks(in, args);
        break;
    case DS_OP_TRANSFER:
        look(in, "x", copy->x, copy->rows, copy->width, copy->ldx, copy->stored);
        break;
    case DS_OP_PROCESS:
        look(in, "logits", process->logits, process->rows, process->vocab, process->ldx,
             DS_ELEMENT_F32);
        break;
    case DS_OP_SAMPLE:
        look(in, "logits", sample->logits, sample->rows, sample->vocab, sample->ldx,
             DS_ELEMENT_F32);
        break;
    default:
        break;
    }
}

const char *ds_inputs_changed(const struct ds_inputs *before, int op, const void *args)
{
    struct ds_inputs now = {.dev = before->dev};
    ds_inputs_look(&now, op, args);
    for (int i = 0; i < now.n; i++)
        if (now.at[i].digest != before->at[i].digest)
            return now.at[i].name;
    return NULL;
}
