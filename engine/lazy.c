/* lazy.c: see lazy.h. Relies on calloc not to touch large fresh memory; must not know what the
 * arrays hold. */
#include "engine/lazy.h"

#include "base/mem.h"

float *ds_lazy_floats(size_t rows, int64_t width, void **memory, const char *what,
                      struct ds_error *err)
{
    enum { ALIGN = 64 };
    size_t row, bytes;
    *memory = NULL;
    if (width < 1 || __builtin_mul_overflow((size_t)width, sizeof(float), &row) ||
        __builtin_mul_overflow(rows, row, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)ALIGN - 1 + DS_LAZY_BEHIND, &bytes)) {
        ds_fail(err, "%s: %zu rows of width %lld do not fit in memory", what, rows,
                (long long)width);
        return NULL;
    }
    *memory = ds_calloc(bytes, 1, what, err);
    return *memory ? (float *)(((uintptr_t)*memory + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1)) : NULL;
}
