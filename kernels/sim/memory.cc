/* memory.cc: see memory.h. One reserved range; blocks are kept in ascending order and a new one takes the
 * first gap that is large enough. What was never used costs no memory of the machine. Opening and closing costs a
 * system a visit to every page that is opened, so a launch opens what it works on only, and large blocks are made of
 * huge pages. */
#include "kernels/sim/memory.h"

#include "kernels/device.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace
{

/* HUGE: what the processor and the system may treat as one page; blocks of MANY bytes or more have whole ones. WATCHED:
 * how much beside a block is looked at after a launch. LISTS: larger blocks are not looked through for addresses. */
enum : size_t {
    ALIGN = 256,
    PAGE = 4096,
    HUGE = (size_t)2 << 20,
    MANY = HUGE / 4,
    WATCHED = PAGE,
    LISTS = (size_t)1 << 20
};
const uint32_t POISON = 0x7fc0deadu;

struct block {
    size_t first, last;  /* its pages: bytes first..last-1 of the range */
    size_t begin, bytes; /* what was asked for */
    int open;            /* by how many */
    char what[56];
};

struct guarded {
    size_t begin, end;
    int access;
};

struct memory {
    char *base;
    size_t size, limit, allocated;
    struct block *block;
    size_t n, cap;
    struct guarded *guard; /* in ascending order */
    size_t n_guards, cap_guards;
    /* Of the launch that runs: where the blocks that it opened begin; room for all of them. */
    size_t *reached, n_reached, cap_reached;
} memory;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
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
        abort(); /* the range is this file's: only a system without memory for its own tables says no */
}

size_t limit(void)
{
    return memory.limit && memory.limit < memory.size ? memory.limit : memory.size;
}

/* What a block counts for. */
size_t cost(size_t bytes)
{
    return bytes ? round_up(bytes, ALIGN) : (size_t)ALIGN;
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

size_t offset_of(const void *p)
{
    return (size_t)(static_cast<const char *>(p) - memory.base);
}

/* The last block whose pages begin at or before that; null: there is none. */
struct block *block_before(size_t at)
{
    size_t low = 0, high = memory.n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (memory.block[middle].first <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &memory.block[low - 1] : nullptr;
}

/* The block in whose pages p lies. */
struct block *block_of(const void *p)
{
    if (!ds_sim_memory_is(p))
        return nullptr;
    const size_t at = offset_of(p);
    struct block *b = block_before(at);
    return b && at < b->last ? b : nullptr;
}

/* ---- opening and closing -------------------------------------------------------------------------- */

/* The first guarded stretch that ends behind that. */
size_t guard_behind(size_t at)
{
    size_t low = 0, high = memory.n_guards;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (memory.guard[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void open_guarded(const struct block *b)
{
    size_t at = b->first;
    for (size_t i = guard_behind(at); i < memory.n_guards && memory.guard[i].begin < b->last; i++) {
        const struct guarded *g = &memory.guard[i];
        protect(at, g->begin, PROT_READ | PROT_WRITE);
        protect(g->begin, g->end, g->access == DS_ACCESS_READ ? PROT_READ : PROT_NONE);
        at = g->end;
    }
    protect(at, b->last, PROT_READ | PROT_WRITE);
}

void open_block(struct block *b)
{
    if (b && b->open++ == 0)
        protect(b->first, b->last, PROT_READ | PROT_WRITE);
}

void close_block(struct block *b)
{
    if (b && --b->open == 0)
        protect(b->first, b->last, PROT_NONE);
}

/* ---- beside a block ------------------------------------------------------------------------------- */

/* What lies in its pages before it and behind it, and is looked at: whole words, since blocks are aligned and filled in
 * words. */
size_t watched_from(const struct block *b)
{
    return b->begin - b->first > WATCHED ? b->begin - WATCHED : b->first;
}

__attribute__((no_sanitize("address"))) void poison(size_t begin, size_t end)
{
    uint32_t *word = reinterpret_cast<uint32_t *>(memory.base + begin);
    for (size_t i = 0; i < (end - begin) / sizeof *word; i++)
        word[i] = POISON;
}

/* Where the first byte that is no poison's lies; end: nowhere. */
size_t first_written(size_t begin, size_t end)
{
    const unsigned char *bytes = reinterpret_cast<const unsigned char *>(memory.base);
    uint32_t word, others = 0;
    for (size_t at = round_up(begin, sizeof word); at < end; at += sizeof word) {
        memcpy(&word, bytes + at, sizeof word);
        others |= word ^ POISON;
    }
    for (size_t at = begin; at < end && (others || at % sizeof word); at++)
        if (bytes[at] != (unsigned char)(POISON >> 8 * (at % sizeof word)))
            return at;
    return end;
}

/* "wrote byte 576 of residual rows, which has 576": bytes are counted from 0. */
void tell_place(const struct block *b, size_t at, const char *verb, char *out, size_t size)
{
    snprintf(out, size, "%sbyte %s%zu of %s, which has %zu", verb, at < b->begin ? "-" : "",
             at < b->begin ? b->begin - at : at - b->begin, b->what, b->bytes);
}

/* -1: a launch wrote there. What it wrote stays told once. */
int look_beside(const struct block *b, char *out, size_t size)
{
    const size_t end = b->begin + b->bytes, from = watched_from(b);
    const size_t before = first_written(from, b->begin), behind = first_written(end, b->last);
    if (before == b->begin && behind == b->last)
        return 0;
    tell_place(b, before < b->begin ? before : behind, "wrote ", out, size);
    poison(from, b->begin);
    poison(round_up(end, sizeof POISON), b->last);
    return -1;
}

/* ---- lists ---------------------------------------------------------------------------------------- */

/* What was said of that stretch is forgotten. */
void forget_guards(size_t begin, size_t end)
{
    size_t kept = 0;
    for (size_t i = 0; i < memory.n_guards; i++)
        if (memory.guard[i].end <= begin || memory.guard[i].begin >= end)
            memory.guard[kept++] = memory.guard[i];
    memory.n_guards = kept;
}

/* Where a block of so many bytes of pages can lie, between pages that stay closed; its place in the list. -1: nowhere. */
int find_gap(size_t pages, size_t unit, size_t *place, size_t *first)
{
    size_t end = 16 * HUGE - PAGE; /* what lies before the first block is the range's, too */
    for (*place = 0; *place < memory.n; ++*place) {
        *first = round_up(end + PAGE, unit);
        if (*first + pages + PAGE <= memory.block[*place].first)
            return 0;
        end = memory.block[*place].last;
    }
    *first = round_up(end + PAGE, unit);
    return *first <= memory.size && pages + PAGE <= memory.size - *first ? 0 : -1;
}

/* The closed pages beside a block are not of its kind (what kind does not matter): the system keeps it as a thing of its
 * own then, and need not part it from its neighbours and join them again each time it is opened. */
void set_apart(const struct block *b)
{
    (void)madvise(memory.base + b->first - PAGE, PAGE, MADV_DONTDUMP);
    (void)madvise(memory.base + b->first, b->last - b->first, MADV_DODUMP);
    (void)madvise(memory.base + b->last, PAGE, MADV_DONTDUMP);
}

struct block *take(size_t bytes, const char *what)
{
    const size_t unit = bytes >= MANY ? HUGE : PAGE, all = cost(bytes);
    size_t place, first;
    if ((!memory.base && reserve() != 0) || make_room(&memory.block, memory.n, &memory.cap) != 0 ||
        make_room(&memory.reached, memory.n, &memory.cap_reached) != 0 ||
        all > limit() - memory.allocated ||
        find_gap(round_up(all, unit), unit, &place, &first) != 0)
        return nullptr;
    memmove(&memory.block[place + 1], &memory.block[place],
            (memory.n - place) * sizeof *memory.block);
    struct block *b = &memory.block[place];
    memory.n++;
    memory.allocated += all;
    /* It ends where its last page ends; what it does not need of the first huge one stays closed. */
    const size_t last = first + round_up(all, unit);
    *b = {last - round_up(all, PAGE), last, last - all, bytes, 0, ""};
    snprintf(b->what, sizeof b->what, "%s", what);
    set_apart(b);
    open_block(b);
    poison(watched_from(b), b->last);
    close_block(b);
    return b;
}

void give_back(struct block *b)
{
    const size_t place = (size_t)(b - memory.block);
    forget_guards(b->first, b->last);
    memory.allocated -= cost(b->bytes);
    protect(b->first, b->last, PROT_NONE);
    (void)madvise(memory.base + b->first, b->last - b->first, MADV_DONTNEED); /* for other uses */
    memory.n--;
    memmove(b, b + 1, (memory.n - place) * sizeof *b);
}

} /* namespace */

void *ds_sim_memory_new(size_t bytes, const char *what)
{
    if (bytes > SIZE_MAX / 2)
        return nullptr;
    pthread_mutex_lock(&lock);
    const struct block *b = take(bytes, what);
    void *p = b ? memory.base + b->begin : nullptr;
    pthread_mutex_unlock(&lock);
    return p;
}

int ds_sim_memory_release(void *p)
{
    if (!p)
        return 0;
    pthread_mutex_lock(&lock);
    struct block *b = block_of(p);
    const int rc = b && offset_of(p) == b->begin ? 0 : -1;
    if (rc == 0)
        give_back(b);
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
    pthread_mutex_lock(&lock);
    const struct block *b = block_of(p);
    const size_t at = b ? offset_of(p) : 0;
    const int has =
        b && at >= b->begin && at - b->begin <= b->bytes && bytes <= b->bytes - (at - b->begin);
    pthread_mutex_unlock(&lock);
    return has;
}

int ds_sim_memory_in_block(const void *p)
{
    pthread_mutex_lock(&lock);
    const int is = block_of(p) != nullptr;
    pthread_mutex_unlock(&lock);
    return is;
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
    for (size_t i = 0; i < memory.n; i++)
        open_block(&memory.block[i]);
    pthread_mutex_unlock(&lock);
}

void ds_sim_memory_close(void)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < memory.n; i++)
        close_block(&memory.block[i]);
    pthread_mutex_unlock(&lock);
}

void ds_sim_memory_open_at(const void *p)
{
    pthread_mutex_lock(&lock);
    open_block(block_of(p));
    pthread_mutex_unlock(&lock);
}

void ds_sim_memory_close_at(const void *p)
{
    pthread_mutex_lock(&lock);
    close_block(block_of(p));
    pthread_mutex_unlock(&lock);
}

/* ---- a launch ----------------------------------------------------------------------------------------- */

namespace
{

/* Opens the block, if the launch has not; whether it has now and had not. */
int reach(struct block *b)
{
    for (size_t i = 0; i < memory.n_reached; i++)
        if (memory.reached[i] == b->first)
            return 0;
    memory.reached[memory.n_reached++] = b->first;
    b->open++;
    open_guarded(b);
    return 1;
}

/* Whether a word of bytes from..end-1 of the range is an address in the pages of that block. */
__attribute__((no_sanitize("address"))) int has_address(size_t from, size_t end,
                                                        const struct block *to)
{
    const uintptr_t base = reinterpret_cast<uintptr_t>(memory.base);
    for (from = round_up(from, sizeof base); from + sizeof base <= end; from += sizeof base) {
        uintptr_t word;
        memcpy(&word, memory.base + from, sizeof word);
        if (word - base >= to->first && word - base < to->last)
            return 1;
    }
    return 0;
}

/* The same of what a launch may read of a block. A list of arrays is short: long blocks are none. */
int points_to(const struct block *b, const struct block *to)
{
    const size_t end = b->begin + b->bytes;
    size_t at = b->begin;
    if (b->bytes > LISTS)
        return 0;
    for (size_t i = guard_behind(at); i < memory.n_guards && memory.guard[i].begin < end; i++) {
        if (memory.guard[i].access == DS_ACCESS_READ)
            continue;
        if (has_address(at, memory.guard[i].begin, to))
            return 1;
        at = memory.guard[i].end;
    }
    return has_address(at, end, to);
}

/* Whether something that the launch has does. */
int is_pointed_to(const struct block *to)
{
    for (size_t i = 0; i < memory.n_reached; i++) {
        const struct block *b = block_of(memory.base + memory.reached[i]);
        if (b && points_to(b, to))
            return 1;
    }
    return 0;
}

} /* namespace */

int ds_sim_memory_reach(const void *p)
{
    pthread_mutex_lock(&lock);
    struct block *b = block_of(p);
    const int is_new = b && is_pointed_to(b) && reach(b);
    pthread_mutex_unlock(&lock);
    return is_new;
}

void ds_sim_memory_begin(const void *arg, size_t bytes)
{
    memory.n_reached = 0;
    for (size_t i = 0; i + sizeof(void *) <= bytes; i += sizeof(void *)) {
        const void *p;
        memcpy(&p, static_cast<const char *>(arg) + i, sizeof p);
        if (!ds_sim_memory_is(p))
            continue;
        pthread_mutex_lock(&lock);
        struct block *b = block_of(p);
        if (b)
            (void)reach(b);
        pthread_mutex_unlock(&lock);
    }
}

int ds_sim_memory_end(char *out, size_t size)
{
    int rc = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < memory.n_reached; i++) {
        struct block *b = block_of(memory.base + memory.reached[i]);
        if (b && look_beside(b, out, rc ? 0 : size) != 0)
            rc = -1;
        if (b && b->open > 1) /* by somebody whom guards do not bind */
            protect(b->first, b->last, PROT_READ | PROT_WRITE);
        close_block(b);
    }
    memory.n_reached = 0;
    pthread_mutex_unlock(&lock);
    return rc;
}

void ds_sim_memory_where(const void *p, char *out, size_t size)
{
    const size_t at = offset_of(p);
    pthread_mutex_lock(&lock);
    const struct block *b = block_before(at);
    const struct block *next = b ? b + 1 : memory.block;
    if (next == memory.block + memory.n)
        next = nullptr;
    const size_t end = b ? b->begin + b->bytes : 0;
    if (next && (!b || (at >= end && at - end > next->begin - at)))
        b = next;
    if (b)
        tell_place(b, at, "", out, size);
    else
        snprintf(out, size, "in memory that was released");
    pthread_mutex_unlock(&lock);
}

int ds_sim_memory_guard(void *p, size_t bytes, int access)
{
    if (bytes % PAGE || reinterpret_cast<uintptr_t>(p) % PAGE || !ds_sim_memory_has(p, bytes))
        return -1;
    pthread_mutex_lock(&lock);
    const size_t begin = offset_of(p);
    int rc = 0;
    forget_guards(begin, begin + bytes);
    if (bytes && access != DS_ACCESS_ALL) {
        rc = make_room(&memory.guard, memory.n_guards, &memory.cap_guards);
        const size_t at = guard_behind(begin);
        if (rc == 0) {
            memmove(&memory.guard[at + 1], &memory.guard[at],
                    (memory.n_guards - at) * sizeof *memory.guard);
            memory.guard[at] = {begin, begin + bytes, access};
            memory.n_guards++;
        }
    }
    pthread_mutex_unlock(&lock);
    return rc;
}
