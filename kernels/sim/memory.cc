/* memory.cc: see memory.h. One reserved range; blocks are kept in ascending order and a new one takes the
 * first gap that is large enough. What was never used costs no memory of the machine. */
#include "kernels/sim/memory.h"

#include "kernels/device.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

namespace
{

/* HUGE: what the processor and the system may treat as one page. Each launch opens and closes all that is used,
 * which costs a system that has it in small pages a visit to each of them, twice. */
enum : size_t { ALIGN = 256, PAGE = 4096, HUGE = (size_t)2 << 20 };
const uint32_t POISON = 0x7fc0deadu;

struct block {
    size_t begin, bytes;
};

struct guarded {
    size_t begin, end;
    int access;
};

struct memory {
    char *base;
    size_t size, limit;
    size_t
        used; /* the end of the last block that there ever was: no huge page behind it was touched */
    struct block *block;
    size_t n, cap, allocated;
    struct guarded *guard;
    size_t n_guards, cap_guards;
    int open;
} memory;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

size_t huge_end(size_t at)
{
    return (at + HUGE - 1) / HUGE * HUGE;
}

/* As large a range as the process may have. */
int reserve(void)
{
    for (size_t size = (size_t)64 << 30; !memory.base && size >= (size_t)64 << 20; size /= 2) {
        void *p = mmap(nullptr, size + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
        if (p == MAP_FAILED)
            continue;
        const uintptr_t at = reinterpret_cast<uintptr_t>(p);
        memory.base = static_cast<char *>(p) + (HUGE - at % HUGE) % HUGE;
        memory.size = size;
        (void)madvise(memory.base, size, MADV_HUGEPAGE); /* without, all is as it was, but slower */
    }
    return memory.base ? 0 : -1;
}

void protect(size_t begin, size_t end, int how)
{
    if (end > begin && mprotect(memory.base + begin, end - begin, how) != 0)
        abort(); /* the range is this file's: only a broken system says no */
}

size_t limit(void)
{
    return memory.limit && memory.limit < memory.size ? memory.limit : memory.size;
}

/* The place in the list and the address of a gap of so many bytes; -1: none. */
int find_gap(size_t bytes, size_t *at, size_t *begin)
{
    size_t end = 0;
    for (*at = 0; *at < memory.n; ++*at) {
        if (memory.block[*at].begin - end >= bytes)
            break;
        end = memory.block[*at].begin + memory.block[*at].bytes;
    }
    *begin = end;
    return bytes <= limit() && end <= limit() - bytes ? 0 : -1;
}

/* Room for one more in a list of n. */
template <class T> int make_room(T **list, size_t n, size_t *cap)
{
    if (n < *cap)
        return 0;
    const size_t more = *cap ? *cap * 2 : 64;
    void *grown = realloc(*list, more * sizeof **list);
    if (!grown)
        return -1;
    *list = static_cast<T *>(grown);
    *cap = more;
    return 0;
}

void forget_guards(size_t begin, size_t end)
{
    size_t kept = 0;
    for (size_t i = 0; i < memory.n_guards; i++)
        if (memory.guard[i].end <= begin || memory.guard[i].begin >= end)
            memory.guard[kept++] = memory.guard[i];
    memory.n_guards = kept;
}

/* The block that holds the address, or its place in the list - 1. */
const struct block *block_at(size_t at)
{
    size_t low = 0, high = memory.n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (memory.block[middle].begin <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &memory.block[low - 1] : nullptr;
}

void *take(size_t bytes)
{
    size_t at, begin;
    if ((!memory.base && reserve() != 0) || make_room(&memory.block, memory.n, &memory.cap) != 0 ||
        find_gap(bytes, &at, &begin) != 0)
        return nullptr;
    for (size_t i = memory.n; i > at; i--)
        memory.block[i] = memory.block[i - 1];
    memory.block[at] = {begin, bytes};
    memory.n++;
    memory.allocated += bytes;
    if (begin + bytes > memory.used) {
        if (memory.open)
            protect(huge_end(memory.used), huge_end(begin + bytes), PROT_READ | PROT_WRITE);
        memory.used = begin + bytes;
    }
    return memory.base + begin;
}

} /* namespace */

void *ds_sim_memory_new(size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return nullptr;
    bytes = bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : (size_t)ALIGN;
    pthread_mutex_lock(&lock);
    void *p = take(bytes);
    pthread_mutex_unlock(&lock);
    if (!p)
        return nullptr;
    ds_sim_memory_open();
    uint32_t *word = static_cast<uint32_t *>(p);
    for (size_t i = 0; i < bytes / sizeof *word; i++)
        word[i] = POISON;
    ds_sim_memory_close();
    return p;
}

int ds_sim_memory_release(void *p)
{
    int rc = -1;
    if (!p)
        return 0;
    pthread_mutex_lock(&lock);
    const size_t at = (size_t)(static_cast<char *>(p) - memory.base);
    const struct block *b = ds_sim_memory_is(p) ? block_at(at) : nullptr;
    if (b && b->begin == at) {
        const size_t first = huge_end(b->begin), last = (b->begin + b->bytes) / HUGE * HUGE;
        rc = 0;
        forget_guards(b->begin, b->begin + b->bytes);
        memory.allocated -= b->bytes;
        if (last >
            first) /* the machine has other uses for it; a part of a huge page would tear it up */
            (void)madvise(memory.base + first, last - first, MADV_DONTNEED);
        for (size_t i = (size_t)(b - memory.block); i + 1 < memory.n; i++)
            memory.block[i] = memory.block[i + 1];
        memory.n--;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int ds_sim_memory_is(const void *p)
{
    return memory.base && static_cast<const char *>(p) >= memory.base &&
           static_cast<const char *>(p) < memory.base + memory.size;
}

int ds_sim_memory_has(const void *p, size_t bytes)
{
    int has = 0;
    pthread_mutex_lock(&lock);
    if (ds_sim_memory_is(p)) {
        const size_t at = (size_t)(static_cast<const char *>(p) - memory.base);
        const struct block *b = block_at(at);
        has = b && at - b->begin <= b->bytes && bytes <= b->bytes - (at - b->begin);
    }
    pthread_mutex_unlock(&lock);
    return has;
}

size_t ds_sim_memory_size(void)
{
    pthread_mutex_lock(&lock);
    const size_t size = memory.base || reserve() == 0 ? limit() : 0;
    pthread_mutex_unlock(&lock);
    return size;
}

size_t ds_sim_memory_free(void)
{
    const size_t size = ds_sim_memory_size();
    return memory.allocated < size ? size - memory.allocated : 0;
}

void ds_sim_memory_limit(size_t bytes)
{
    memory.limit = bytes;
}

void ds_sim_memory_open(void)
{
    pthread_mutex_lock(&lock);
    if (memory.open++ == 0)
        protect(0, huge_end(memory.used), PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&lock);
}

void ds_sim_memory_open_guarded(void)
{
    ds_sim_memory_open();
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < memory.n_guards; i++)
        protect(memory.guard[i].begin, memory.guard[i].end,
                memory.guard[i].access == DS_ACCESS_READ ? PROT_READ : PROT_NONE);
    pthread_mutex_unlock(&lock);
}

int ds_sim_memory_guard(void *p, size_t bytes, int access)
{
    if (bytes % PAGE || reinterpret_cast<uintptr_t>(p) % PAGE || !ds_sim_memory_has(p, bytes))
        return -1;
    pthread_mutex_lock(&lock);
    const size_t begin = (size_t)(static_cast<char *>(p) - memory.base);
    int rc = 0;
    forget_guards(begin, begin + bytes);
    if (bytes && access != DS_ACCESS_ALL) {
        rc = make_room(&memory.guard, memory.n_guards, &memory.cap_guards);
        if (rc == 0)
            memory.guard[memory.n_guards++] = {begin, begin + bytes, access};
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

void ds_sim_memory_close(void)
{
    pthread_mutex_lock(&lock);
    if (--memory.open == 0)
        protect(0, huge_end(memory.used), PROT_NONE);
    pthread_mutex_unlock(&lock);
}
