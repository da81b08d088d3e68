/* weights.cuh: weights of a matmul as kernels of a device read them: f32, or the F16 and BF16 of a file, as
 * they lie. The host's side. */
#ifndef DS_WEIGHTS_CUH
#define DS_WEIGHTS_CUH

#include "kernels/cuda/device.cuh"

/* The element type of weights that are read as they lie; -1: others. */
static inline int ds_weights_element(const struct ds_weight_view *w)
{
    enum { F32 = 0, F16 = 1, BF16 = 30 }; /* GGUF's numbers */
    if (w->data || (w->file_data && w->file_type == F32))
        return DS_ELEMENT_F32;
    return !w->file_data          ? -1
           : w->file_type == F16  ? DS_ELEMENT_F16
           : w->file_type == BF16 ? DS_ELEMENT_BF16
                                  : -1;
}

static inline int ds_weights_check(const struct ds_device_call &call,
                                   const struct ds_matmul_args *a)
{
    if (a->n && a->k && ds_weights_element(&a->w) < 0)
        return ds_device_refuse(call, "reads weights of F32, F16 and BF16, not of type %d",
                                a->w.file_type);
    if (a->stored > DS_ELEMENT_BF16 || a->stored < 0 || a->y_stored > DS_ELEMENT_BF16 ||
        a->y_stored < 0)
        return ds_device_refuse(call, "activations of type %d and %d", a->stored, a->y_stored);
    if (a->w.n != a->n || a->w.k != a->k)
        return ds_device_refuse(call, "weights are %lld x %lld, the call says %lld x %lld",
                                (long long)a->w.n, (long long)a->w.k, (long long)a->n,
                                (long long)a->k);
    return 0;
}

#endif
