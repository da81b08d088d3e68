/* attention_grid.c: the lists of attention_grid.h. */
#include "kernels/lab/attention_grid.h"

#include <string.h>

/* Keeps the list ascending and free of repetitions. */
static int add(int32_t *list, int n, int32_t x)
{
    if (x < 1 || (n && list[n - 1] >= x))
        return n;
    list[n] = x;
    return n + 1;
}

int ds_grid_insert(int32_t *list, int n, int32_t value)
{
    int at = n;
    while (at > 0 && list[at - 1] > value)
        at--;
    if ((at > 0 && list[at - 1] == value) || n == DS_GRID_MOST)
        return n;
    memmove(list + at + 1, list + at, (size_t)(n - at) * sizeof *list);
    list[at] = value;
    return n + 1;
}

int ds_grid_kv(int32_t kv[DS_GRID_MOST])
{
    int n = 0;
    for (int32_t x = 1; x <= 64; x++)
        n = add(kv, n, x);
    for (int32_t x = 64; x <= 1024; x += 16)
        for (int32_t near = x - 1; near <= x + 1; near++)
            n = add(kv, n, near);
    n = add(kv, n, 4096);
    return add(kv, n, 32768);
}

int ds_grid_q(int32_t q[DS_GRID_MOST])
{
    int n = 0;
    for (int32_t x = 1; x <= 16; x++)
        n = add(q, n, x);
    n = add(q, n, 64);
    return add(q, n, 128);
}

int ds_grid_sequences(int32_t list[DS_GRID_MOST])
{
    int n = 0;
    for (int32_t x = 1; x <= 64; x++)
        n = add(list, n, x);
    return n;
}

int ds_grid_pages(int32_t size[DS_GRID_MOST])
{
    static const int32_t sizes[] = {1, 16, 64, 256};
    memcpy(size, sizes, sizeof sizes);
    return (int)(sizeof sizes / sizeof sizes[0]);
}

int ds_grid_shapes(const struct ds_shape *given, struct ds_shape shape[DS_GRID_MOST])
{
    static const int64_t dims[] = {64, 80, 128, 192, 256}, groups[] = {1, 3, 4, 8};
    const int64_t group = given->heads / given->kv_heads;
    int n = 0;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        shape[n] = *given;
        shape[n].head_dim = dims[i];
        shape[n].kv_heads = given->kv_heads < 2 ? given->kv_heads : 2;
        shape[n].heads = shape[n].kv_heads * group;
        n += dims[i] != given->head_dim;
    }
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        shape[n] = *given;
        shape[n].kv_heads = 2;
        shape[n].heads = 2 * groups[i];
        n += groups[i] != group || given->kv_heads < 2;
    }
    return n;
}
