/* mem.c: see mem.h. */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_long fail_at;

void ds_mem_fail_at(long n)
{
    atomic_store(&fail_at, n);
}

long ds_mem_fail_left(void)
{
    const long n = atomic_load(&fail_at);
    return n > 0 ? n : 0;
}

int ds_error_is_memory(const struct ds_error *err)
{
    return strstr(err->msg, "out of memory") || strstr(err->msg, "do not fit in memory");
}

/* ---- what the machine has ------------------------------------------------------------------------ */

/* One number from a text file such as /proc/meminfo: what follows `key`, or -1. */
static long long read_number(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    char line[256];
    long long value = -1;
    while (fgets(line, sizeof line, f) && value < 0)
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%lld", &value) != 1)
            value = -1;
    fclose(f);
    return value;
}

uint64_t ds_memory_available(void)
{
    long long kib = read_number("/proc/meminfo", "MemAvailable:");
    uint64_t bytes = kib >= 0 ? (uint64_t)kib * 1024u : UINT64_MAX;
    long long group = read_number("/sys/fs/cgroup/memory.max", ""); /* "max" = no limit */
    return group >= 0 && (uint64_t)group < bytes ? (uint64_t)group : bytes;
}

/* More than there is would be given, and end the process when it is touched. Small requests are not worth
 * the question. */
int ds_memory_lacks(size_t bytes)
{
    return bytes >= (size_t)1 << 28 && bytes > ds_memory_available();
}

/* ---- allocation -------------------------------------------------------------------------------------- */

/* True when this allocation is the one chosen to fail. */
static int injected(void)
{
    if (atomic_load_explicit(&fail_at, memory_order_relaxed) == 0)
        return 0;
    return atomic_fetch_sub(&fail_at, 1) == 1;
}

void *ds_calloc(size_t count, size_t size, const char *what, struct ds_error *err)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX) {
        ds_fail(err, "%s: %zu elements of %zu bytes do not fit in memory", what, count, size);
        return NULL;
    }
    void *p = injected() || ds_memory_lacks(bytes) ? NULL : calloc(1, bytes ? bytes : 1);
    if (!p)
        ds_fail(err, "%s: out of memory (%zu bytes)", what, bytes);
    return p;
}

void *ds_alloc(size_t bytes, const char *what, struct ds_error *err)
{
    void *p = injected() || bytes > PTRDIFF_MAX || ds_memory_lacks(bytes)
                  ? NULL
                  : malloc(bytes ? bytes : 1);
    if (!p)
        ds_fail(err, "%s: out of memory (%zu bytes)", what, bytes);
    return p;
}

void ds_memory_touched_whole(void *p, size_t bytes)
{
    const uintptr_t large = (uintptr_t)2 << 20, first = ((uintptr_t)p + large - 1) & ~(large - 1),
                    end = ((uintptr_t)p + bytes) & ~(large - 1);
    if (p && end > first)
        (void)madvise((void *)first, end - first, MADV_HUGEPAGE); /* a wish: no is an answer */
}

int ds_grow(void *ptr, size_t *cap, size_t need, size_t size, const char *what,
            struct ds_error *err)
{
    if (need <= *cap)
        return 0;
    size_t want = *cap < 8 ? 8 : *cap;
    while (want < need)
        if (__builtin_mul_overflow(want, (size_t)2, &want))
            return ds_fail(err, "%s: %zu elements do not fit in memory", what, need);
    size_t bytes;
    if (__builtin_mul_overflow(want, size, &bytes) || bytes > PTRDIFF_MAX)
        return ds_fail(err, "%s: %zu elements of %zu bytes do not fit in memory", what, want, size);
    void *old;
    memcpy(&old, ptr, sizeof old);
    void *p = injected() || ds_memory_lacks(bytes) ? NULL : realloc(old, bytes);
    if (!p)
        return ds_fail(err, "%s: out of memory (%zu bytes)", what, bytes);
    memset((char *)p + *cap * size, 0, (want - *cap) * size);
    memcpy(ptr, &p, sizeof p);
    *cap = want;
    return 0;
}

int ds_grow_by_one(void *ptr, size_t n, size_t size, const char *what, struct ds_error *err)
{
    /* ds_grow takes room in powers of two from 8 on: full exactly when n is one of them, or 0. */
    size_t cap = n;
    int full = n == 0 || (n >= 8 && (n & (n - 1)) == 0);
    return full ? ds_grow(ptr, &cap, n + 1, size, what, err) : 0;
}

void *ds_alloc_aligned(size_t count, size_t size, const char *what, struct ds_error *err)
{
    size_t bytes, padded;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)63, &padded) || padded > PTRDIFF_MAX) {
        ds_fail(err, "%s: %zu elements of %zu bytes do not fit in memory", what, count, size);
        return NULL;
    }
    padded &= ~(size_t)63;
    void *p = injected() || ds_memory_lacks(bytes) ? NULL : aligned_alloc(64, padded ? padded : 64);
    if (!p) {
        ds_fail(err, "%s: out of memory (%zu bytes)", what, bytes);
        return NULL;
    }
    return memset(p, 0, padded ? padded : 64);
}

const char *ds_bytes_words(uint64_t bytes, char out[DS_BYTES_WORDS])
{
    static const char *const units[] = {"KB", "MB", "GB", "TB", "PB", "EB"};
    double x = (double)bytes / 1000;
    size_t unit = 0;
    if (bytes < 1000) {
        snprintf(out, DS_BYTES_WORDS, "%d byte%s", (int)bytes, bytes == 1 ? "" : "s");
        return out;
    }
    for (; x >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        x /= 1000;
    snprintf(out, DS_BYTES_WORDS, "%.3g %s", x, units[unit]);
    return out;
}
