/* stale_attention.cu: attention in two variants, for tests of captured graphs. `fresh` reads how long a sequence
 * is where it lies on the device; the launch function of `stale` hands it over by value, as it is on the host
 * when the kernel is launched: in a captured call that is the length of the capture, for good. */
#include "kernels/cuda/kernels.cuh"

namespace
{

/* One thread a row and head: two passes over the slots that the row sees, in ascending order. */
__global__ void attend(struct ds_attention_args a, int64_t sequence, int kv_len)
{
    const struct ds_sequence *s = &a.device_sequences[sequence];
    const int64_t i = blockIdx.x, row = s->q_first + i, head = blockIdx.y,
                  kv_head = head / (a.heads / a.kv_heads), width = a.kv_heads * a.head_dim;
    const int64_t end = (kv_len < 0 ? s->kv_len : kv_len) - s->q_len + i + 1;
    const float *q = a.q + row * a.ldq + head * a.head_dim;
    float *y = a.y + row * a.ldy + head * a.head_dim, most = -1e30f, sum = 0.0f;
    for (int64_t d = 0; d < a.head_dim; d++)
        y[d] = 0.0f;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t t = s->kv_first; t < end; t++) {
            const int64_t at = (s->pages[t / a.page_size] * a.page_size + t % a.page_size) * width +
                               kv_head * a.head_dim;
            float score = 0.0f;
            for (int64_t d = 0; d < a.head_dim; d++)
                score = ds_fma(q[d], a.cache_k[at + d], score);
            score *= a.scale;
            if (pass == 0)
                most = score > most ? score : most;
            const float e = pass ? expf(score - most) : 0.0f;
            for (int64_t d = 0; pass && d < a.head_dim; d++)
                y[d] = ds_fma(e, a.cache_v[at + d], y[d]);
            sum += e;
        }
    for (int64_t d = 0; d < a.head_dim; d++)
        y[d] = sum > 0.0f ? y[d] / sum : 0.0f;
}

int launch(const void *args, const struct ds_exec *exec, int stale, char *why, size_t why_size)
{
    const struct ds_attention_args *a = static_cast<const struct ds_attention_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    struct ds_attention_args d = *a;
    d.sequences = nullptr;
    for (int64_t i = 0; i < a->n_sequences; i++)
        if (DS_LAUNCH(call, attend, dim3((unsigned)a->sequences[i].q_len, (unsigned)a->heads), 1, 0,
                      d, i, stale ? a->sequences[i].kv_len : -1) != 0)
            return -1;
    return 0;
}

int fresh(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    return launch(args, exec, 0, why, why_size);
}

int stale(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    return launch(args, exec, 1, why, why_size);
}

} /* namespace */

DS_DEVICE_VARIANT(attention_fresh, DS_OP_ATTENTION, "fresh", DS_CLAIM_ALL, fresh,
                  "lengths from the device");
DS_DEVICE_VARIANT(attention_stale, DS_OP_ATTENTION, "stale", DS_CLAIM_ALL, stale,
                  "lengths from the host");

extern "C" const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
    static const struct ds_kernel *const all[] = {&DS_DEVICE_KERNEL(attention_fresh),
                                                  &DS_DEVICE_KERNEL(attention_stale), nullptr};
    return abi == DS_KERNEL_ABI ? all : nullptr;
}
