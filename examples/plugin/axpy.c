/* axpy.c: a plugin with a kernel of no op of the forward pass, custom/axpy: y = a * x + y, product
 * and sum rounded. `declare` says which arrays a call has; driftscope makes and fills them. */
#include "driftscope_kernel.h"

static int declare(int64_t rows, int64_t width, struct ds_custom_args *out, char *why,
                   size_t why_size)
{
    const int64_t n = width > 0 ? width : 576;
    (void)why, (void)why_size;
    *out = (struct ds_custom_args){
        .rows = rows,
        .n_tensors = 2,
        .tensor = {{"x", DS_TENSOR_IN, DS_ELEMENT_F32, 1, rows, n, n, NULL},
                   {"y", DS_TENSOR_IN_OUT, DS_ELEMENT_F32, 1, rows, n, n, NULL}},
        .n_scalars = 1,
        .scalar = {0.75}};
    return 0;
}

static int launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_custom_args *c = args;
    const struct ds_custom_tensor *x = &c->tensor[0], *y = &c->tensor[1];
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t i = 0; i < x->cols; i++) {
            float *out = (float *)y->data + r * y->ld + i;
            *out = (float)c->scalar[0] * ((const float *)x->data)[r * x->ld + i] + *out;
        }
    return 0;
}

static const struct ds_kernel kernel = {.abi = DS_KERNEL_ABI,
                                        .op = DS_OP_CUSTOM,
                                        .name = "axpy",
                                        .summary = "y = a * x + y, product and sum rounded",
                                        .claims = DS_CLAIM_ALL,
                                        .launch = launch,
                                        .declare = declare};

const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
    static const struct ds_kernel *const all[] = {&kernel, NULL};
    return abi == DS_KERNEL_ABI ? all : NULL;
}
