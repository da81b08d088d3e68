/* online.c: the choice of code for ds_online_fn, and small helpers of its users. Order: online.h. */
#include "kernels/cpu/online.h"

#include "kernels/cpu/pinned.h"

ds_online_fn ds_online_code(void)
{
    return ds_pinned_code() == &ds_pinned_scalar ? ds_online_plain : ds_online_avx2;
}

ds_tiles_fn ds_tiles_code(void)
{
    return ds_pinned_code() == &ds_pinned_scalar ? ds_tiles_plain : ds_tiles_avx2;
}

void ds_online_divide(float *y, float by, int64_t n)
{
    for (int64_t d = 0; d < n; d++)
        y[d] /= by;
}

int ds_online_check(const struct ds_attention_args *a, char *why, size_t why_size)
{
    if (a->kv_heads < 1 || a->heads % a->kv_heads)
        return ds_cpu_refuse(why, why_size, "%lld heads do not share %lld KV heads evenly",
                             (long long)a->heads, (long long)a->kv_heads);
    return ds_cpu_check_sequences(a->sequences, a->n_sequences, a->rows, a->page_size, a->pages,
                                  why, why_size);
}

double ds_online_work(const struct ds_attention_args *a)
{
    return (double)a->rows * (double)a->heads * (double)a->max_kv_len * (double)a->head_dim;
}
