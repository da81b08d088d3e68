/* rope.cu: rotary position embedding from the table of cosines and sines that the host computed.
 *
 *   pinned  y0 = fma(x0, cos, -(x1*sin)), y1 = fma(x1, cos, x0*sin): the product with sin is
 *           rounded first; the store rounds (device.cuh). A block a row and head, a thread a pair. */
#include "kernels/cuda/kernels.cuh"

namespace
{

template <class T> __global__ void rope_pinned(struct ds_rope_args a)
{
    const int64_t r = blockIdx.x, h = blockIdx.y, half = a.rope_dim / 2;
    const float *cs = a.cos_sin + (int64_t)a.positions[r] * half * 2;
    const T *x = ds_as<T>(a.x) + r * a.ldx + h * a.head_dim;
    T *y = ds_as<T>(a.y) + r * a.ldy + h * a.head_dim;
    for (int64_t i = threadIdx.x; i < half; i += blockDim.x) {
        const int64_t i0 = a.neox ? i : 2 * i, i1 = a.neox ? i + half : 2 * i + 1;
        const float x0 = ds_load(x[i0]), x1 = ds_load(x[i1]), c = cs[2 * i], s = cs[2 * i + 1];
        ds_store(&y[i0], ds_fma(x0, c, -(x1 * s)));
        ds_store(&y[i1], ds_fma(x1, c, x0 * s));
    }
    for (int64_t i = 2 * half + threadIdx.x; i < a.head_dim; i += blockDim.x)
        ds_store(&y[i], ds_load(x[i]));
}

template <class T> int launch_as(const struct ds_device_call &call, const struct ds_rope_args &a)
{
    return DS_LAUNCH(call, rope_pinned<T>, dim3((unsigned)a.rows, (unsigned)a.heads), 32, 0, a);
}

int launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_rope_args *a = static_cast<const struct ds_rope_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    if (a->rope_dim < 0 || a->rope_dim % 2 || a->rope_dim > a->head_dim)
        return ds_device_refuse(call, "rope_dim %lld does not fit heads of %lld channels",
                                (long long)a->rope_dim, (long long)a->head_dim);
    for (int64_t r = 0; exec->memory == DS_MEMORY_HOST && r < a->rows; r++)
        if (a->positions[r] < 0 || a->positions[r] >= a->table_positions)
            return ds_device_refuse(call, "row %lld: position %d is not in the table of %lld",
                                    (long long)r, a->positions[r], (long long)a->table_positions);
    if (a->rows < 1 || a->heads < 1)
        return 0;
    return DS_BY_STORED(call, a->stored, launch_as, call, *a);
}

} /* namespace */

DS_DEVICE_VARIANT_STORED(rope_pinned, DS_OP_ROPE, "pinned", DS_CLAIM_ALL, launch,
                         "fma(x0, cos, -(x1*sin)), fma(x1, cos, x0*sin)");
