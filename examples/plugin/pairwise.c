/* pairwise.c: a plugin with one kernel, matmul/pairwise: up to 8 terms x[k] * w[k] are added in
 * ascending k, product and sum rounded; a longer sum is that of its first half (rounded up to a
 * multiple of 8) plus that of the rest. It looks at one row at a time, so it makes every claim. */
#include "driftscope_kernel.h"

static float pairwise(const float *x, const float *w, int64_t n)
{
    float s = 0.0f;
    if (n > 8) {
        int64_t half = (n / 2 + 7) / 8 * 8;
        return pairwise(x, w, half) + pairwise(x + half, w + half, n - half);
    }
    for (int64_t k = 0; k < n; k++)
        s += x[k] * w[k];
    return s;
}

/* Every thread takes its share of the columns. */
static void share(void *arg, int thread, int threads)
{
    const struct ds_matmul_args *a = arg;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = thread; j < a->n; j += threads) {
            float s = pairwise(a->x + r * a->ldx, a->w.data + j * a->k, a->k);
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
}

static int launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)why, (void)why_size; /* for a reason, should it have to return -1 */
    exec->run(exec->team, share, (void *)args);
    return 0;
}

static const struct ds_kernel kernel = {.abi = DS_KERNEL_ABI,
                                        .op = DS_OP_MATMUL,
                                        .name = "pairwise",
                                        .summary = "halves added, down to 8 terms in order",
                                        .claims = DS_CLAIM_ALL,
                                        .launch = launch};

const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
    static const struct ds_kernel *const all[] = {&kernel, NULL};
    return abi == DS_KERNEL_ABI ? all : NULL;
}
