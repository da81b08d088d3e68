/* hold.c: rows of reference arms, in memory that forked workers share. Owns the layout, the spill
 * file and the rule that a slot is visible only when complete. Knows sites as widths; no
 * comparison, no statistics.
 *
 * One mapping: first a table per slot (counts, keys, digests), then the rows' bytes, slot by slot,
 * site by site. The tables and the bytes up to the budget are anonymous shared memory; the rest of
 * the same mapping is a file that has no name any more and whose blocks are all allocated, so that
 * a full disk is an error here and not a SIGBUS later.
 *
 * A slot is filled under a robust mutex: when a worker dies in the middle, the kernel tells the
 * next one that tries, which starts it anew. `complete` is stored with release and read with
 * acquire, after which nothing is written. */
#include "probes/hold.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 64 };

struct slot_head {
    pthread_mutex_t filling;
    _Atomic uint32_t complete;
};

struct held_site {
    uint32_t rows;     /* room */
    size_t row_bytes;  /* 0: not held */
    size_t row_stride; /* row_bytes rounded up, so that every row starts on a cache line */
    size_t entries_at; /* in the slot's table */
    size_t bytes_at;   /* in the slot's bytes */
};

struct ds_hold {
    char *base;
    size_t size, in_memory;
    struct held_site *site;
    uint32_t n_sites;
    uint32_t *arms;
    uint32_t n_arms;
    size_t table_size, bytes_size; /* of one slot */
    size_t bytes_at;               /* where the first slot's bytes begin */
};

/* ---- layout ---------------------------------------------------------------------------------- */

/* *sum += count * size, rounded up to `align`; -1 when it does not fit. */
static int add_size(size_t *sum, size_t count, size_t size, size_t align)
{
    size_t bytes, total;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(*sum, bytes, &total) || total > PTRDIFF_MAX - align)
        return -1;
    *sum = (total + align - 1) / align * align;
    return 0;
}

static int layout_site(struct held_site *s, const struct ds_site *site, uint32_t rows,
                       size_t *table, size_t *bytes)
{
    s->entries_at = *table;
    s->bytes_at = *bytes;
    size_t elem = ds_dtype_size(ds_dtype_parse(site->dtype));
    if (site->width == 0 || rows == 0)
        return 0;
    s->rows = rows;
    s->row_bytes = elem * site->width; /* at most 2^34 */
    s->row_stride = (s->row_bytes + ALIGN - 1) / ALIGN * ALIGN;
    return add_size(table, rows, sizeof(struct ds_hold_row), ALIGN) ||
           add_size(bytes, rows, s->row_stride, ALIGN);
}

static int layout(struct ds_hold *h, const struct ds_hold_config *c, struct ds_error *err)
{
    size_t table = 0, bytes = 0, all = 0;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (add_size(&table, 1, sizeof(struct slot_head), ALIGN) ||
        add_size(&table, c->n_sites, sizeof(uint32_t), ALIGN))
        return ds_fail(err, "held rows: %u sites do not fit in memory", c->n_sites);
    for (uint32_t i = 0; i < c->n_sites; i++) {
        if (ds_dtype_parse(c->sites[i].dtype) < 0)
            return ds_fail(err, "held rows: site %u (%s) has unknown dtype '%.8s'", i,
                           c->sites[i].stage, c->sites[i].dtype);
        if (layout_site(&h->site[i], &c->sites[i], c->site_rows[i], &table, &bytes))
            return ds_fail(err, "held rows: %u rows at site %u (%s) do not fit in memory",
                           c->site_rows[i], i, c->sites[i].stage);
    }
    h->table_size = table;
    h->bytes_size = bytes;
    if (add_size(&all, h->n_arms, table, page))
        return ds_fail(err, "held rows: tables of %u arms do not fit in memory", h->n_arms);
    h->bytes_at = all;
    if (add_size(&all, h->n_arms, bytes, page))
        return ds_fail(err, "held rows: %u arms of %zu bytes do not fit in memory", h->n_arms,
                       bytes);
    h->size = all ? all : page;
    size_t budget = c->budget < h->size ? (size_t)c->budget / page * page : h->size;
    h->in_memory = budget > h->bytes_at ? budget : h->bytes_at;
    return 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Opens an unlinked file in dir with `size` bytes allocated. */
static int spill_file(const char *dir, size_t size, struct ds_error *err)
{
    if (!dir || !*dir)
        dir = getenv("TMPDIR");
    if (!dir || !*dir)
        dir = "/tmp";
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/driftscope-hold-XXXXXX", dir);
    if (n < 0 || (size_t)n >= sizeof path)
        return ds_fail(err, "held rows: the name of folder '%.200s...' is too long", dir);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        ds_fail(err, "held rows: cannot create a file in '%s': %s", dir, strerror(errno));
        return ds_hint(err, "set TMPDIR to a folder with %zu bytes free, or hold more in memory",
                       size);
    }
    unlink(path);
    int rc;
    while ((rc = posix_fallocate(fd, 0, (off_t)size)) == EINTR)
        ;
    if (rc) {
        close(fd);
        ds_fail(err, "held rows: cannot reserve %zu bytes in '%s': %s", size, dir, strerror(rc));
        return ds_hint(err, "set TMPDIR to a folder with %zu bytes free, or hold more in memory",
                       size);
    }
    return fd;
}

static int map_spill(struct ds_hold *h, const char *dir, struct ds_error *err)
{
    size_t size = h->size - h->in_memory;
    int fd = spill_file(dir, size, err);
    if (fd < 0)
        return -1;
    void *p =
        mmap(h->base + h->in_memory, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    int why = errno;
    close(fd); /* the mapping keeps it */
    if (p == MAP_FAILED)
        return ds_fail(err, "held rows: cannot map %zu bytes of the spill file: %s", size,
                       strerror(why));
    return 0;
}

static int map_all(struct ds_hold *h, const char *dir, struct ds_error *err)
{
    void *p = mmap(NULL, h->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return ds_fail(err, "held rows: cannot map %zu bytes: %s", h->size, strerror(errno));
    h->base = p;
    if (h->in_memory) {
        p = mmap(h->base, h->in_memory, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        if (p == MAP_FAILED)
            return ds_fail(err, "held rows: cannot map %zu bytes of shared memory: %s",
                           h->in_memory, strerror(errno));
    }
    return h->in_memory < h->size ? map_spill(h, dir, err) : 0;
}

static struct slot_head *head_of(const struct ds_hold *h, long slot)
{
    return (struct slot_head *)(void *)(h->base + (size_t)slot * h->table_size);
}

static uint32_t *counts_of(const struct ds_hold *h, long slot)
{
    size_t at = (sizeof(struct slot_head) + ALIGN - 1) / ALIGN * ALIGN;
    return (uint32_t *)(void *)(h->base + (size_t)slot * h->table_size + at);
}

static struct ds_hold_row *entries_of(const struct ds_hold *h, long slot, uint32_t site)
{
    return (struct ds_hold_row *)(void *)(h->base + (size_t)slot * h->table_size +
                                          h->site[site].entries_at);
}

static char *bytes_of(const struct ds_hold *h, long slot, uint32_t site, uint32_t i)
{
    const struct held_site *s = &h->site[site];
    return h->base + h->bytes_at + (size_t)slot * h->bytes_size + s->bytes_at + i * s->row_stride;
}

static int init_locks(struct ds_hold *h, struct ds_error *err)
{
    pthread_mutexattr_t attr;
    int rc = pthread_mutexattr_init(&attr);
    if (rc)
        return ds_fail(err, "held rows: cannot make a lock: %s", strerror(rc));
    if (!(rc = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED)))
        rc = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    for (uint32_t i = 0; i < h->n_arms && !rc; i++)
        rc = pthread_mutex_init(&head_of(h, i)->filling, &attr);
    pthread_mutexattr_destroy(&attr);
    return rc ? ds_fail(err, "held rows: cannot make a lock shared by processes: %s", strerror(rc))
              : 0;
}

/* ---- public ---------------------------------------------------------------------------------- */

int ds_hold_new(const struct ds_hold_config *c, struct ds_hold **out, struct ds_error *err)
{
    *out = NULL;
    struct ds_hold *h = ds_calloc(1, sizeof *h, "held rows", err);
    if (!h)
        return -1;
    h->n_sites = c->n_sites;
    h->n_arms = c->n_arms;
    h->site = ds_calloc(c->n_sites, sizeof *h->site, "held sites", err);
    h->arms = h->site ? ds_calloc(c->n_arms, sizeof *h->arms, "held arms", err) : NULL;
    if (!h->arms)
        goto fail;
    if (c->n_arms)
        memcpy(h->arms, c->arms, c->n_arms * sizeof *h->arms);
    if (layout(h, c, err) || map_all(h, c->spill_dir, err) || init_locks(h, err))
        goto fail;
    *out = h;
    return 0;
fail:
    ds_hold_free(h);
    return -1;
}

void ds_hold_free(struct ds_hold *h)
{
    if (!h)
        return;
    if (h->base) /* the locks are not destroyed: other processes may still use theirs */
        munmap(h->base, h->size);
    free(h->site);
    free(h->arms);
    free(h);
}

uint64_t ds_hold_spilled(const struct ds_hold *h)
{
    return h->size - h->in_memory;
}

int ds_hold_has(const struct ds_hold *h, uint32_t arm)
{
    long slot = ds_hold_slot(h, arm);
    return slot >= 0 && ds_hold_complete(h, slot);
}

/* ---- for the probe --------------------------------------------------------------------------- */

long ds_hold_slot(const struct ds_hold *h, uint32_t arm)
{
    for (uint32_t i = 0; i < h->n_arms; i++)
        if (h->arms[i] == arm)
            return i;
    return -1;
}

int ds_hold_complete(const struct ds_hold *h, long slot)
{
    return atomic_load_explicit(&head_of(h, slot)->complete, memory_order_acquire) != 0;
}

int ds_hold_keeps(const struct ds_hold *h, uint32_t site)
{
    return site < h->n_sites && h->site[site].row_bytes != 0;
}

/* Makes the pages of a slot's bytes present, in one system call instead of a fault for each page in
 * the middle of a forward pass. Only a matter of time: where the kernel cannot (before 5.14), pages
 * come as they are touched. */
static void make_present(const struct ds_hold *h, long slot)
{
#ifdef MADV_POPULATE_WRITE
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t begin = (h->bytes_at + (size_t)slot * h->bytes_size) / page * page;
    size_t end = (h->bytes_at + ((size_t)slot + 1) * h->bytes_size + page - 1) / page * page;
    if (end > begin && end <= h->size)
        (void)madvise(h->base + begin, end - begin, MADV_POPULATE_WRITE);
#else
    (void)h;
    (void)slot;
#endif
}

int ds_hold_begin(struct ds_hold *h, long slot)
{
    struct slot_head *head = head_of(h, slot);
    if (ds_hold_complete(h, slot))
        return 0;
    int rc = pthread_mutex_trylock(&head->filling);
    if (rc == EOWNERDEAD)
        rc = pthread_mutex_consistent(&head->filling);
    if (rc)
        return 0;
    if (ds_hold_complete(h, slot)) { /* by another process, in between */
        pthread_mutex_unlock(&head->filling);
        return 0;
    }
    memset(counts_of(h, slot), 0, h->n_sites * sizeof(uint32_t));
    make_present(h, slot);
    return 1;
}

int ds_hold_store(struct ds_hold *h, long slot, uint32_t site, const struct ds_row *key,
                  uint64_t digest, const void *bytes, struct ds_error *err)
{
    const struct held_site *s = &h->site[site];
    uint32_t *count = &counts_of(h, slot)[site];
    if (*count >= s->rows)
        return ds_fail(
            err, "held rows: arm %u records more rows at site %u than the %u there is room for",
            h->arms[slot], site, s->rows);
    struct ds_hold_row *e = &entries_of(h, slot, site)[*count];
    e->request = key->request;
    e->position = key->position;
    e->occurrence = key->occurrence;
    e->ranked = *count;
    e->digest = digest;
    memcpy(bytes_of(h, slot, site, *count), bytes, s->row_bytes);
    ++*count;
    return 0;
}

static int compare_keys(const void *a, const void *b)
{
    const struct ds_hold_row *x = a, *y = b;
    if (x->request != y->request)
        return x->request < y->request ? -1 : 1;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return (x->occurrence > y->occurrence) - (x->occurrence < y->occurrence);
}

/* Fills `ranked` where rows did not come in ascending order (several requests in one batch). */
static int rank_site(struct ds_hold_row *e, uint32_t n, struct ds_error *err)
{
    uint32_t i = 1;
    while (i < n && compare_keys(&e[i - 1], &e[i]) < 0)
        i++;
    if (i >= n)
        return 0;
    struct ds_hold_row *sorted = ds_calloc(n, sizeof *sorted, "ranking of held rows", err);
    if (!sorted)
        return -1;
    memcpy(sorted, e, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_keys);
    for (i = 0; i < n; i++)
        e[i].ranked = sorted[i].ranked;
    free(sorted);
    return 0;
}

int ds_hold_commit(struct ds_hold *h, long slot, struct ds_error *err)
{
    struct slot_head *head = head_of(h, slot);
    for (uint32_t i = 0; i < h->n_sites; i++)
        if (rank_site(entries_of(h, slot, i), counts_of(h, slot)[i], err)) {
            ds_hold_abandon(h, slot);
            return -1;
        }
    atomic_store_explicit(&head->complete, 1, memory_order_release);
    pthread_mutex_unlock(&head->filling);
    return 0;
}

void ds_hold_abandon(struct ds_hold *h, long slot)
{
    pthread_mutex_unlock(&head_of(h, slot)->filling);
}

const struct ds_hold_row *ds_hold_rows(const struct ds_hold *h, long slot, uint32_t site,
                                       uint32_t *n)
{
    *n = counts_of(h, slot)[site];
    return entries_of(h, slot, site);
}

void ds_hold_prefetch(const struct ds_hold *h, long slot, uint32_t site, const uint32_t *guess)
{
    __builtin_prefetch(&counts_of(h, slot)[site]);
    __builtin_prefetch(&entries_of(h, slot, site)[*guess]);
}

const void *ds_hold_bytes(const struct ds_hold *h, long slot, uint32_t site, uint32_t i)
{
    return bytes_of(h, slot, site, i);
}

long ds_hold_find(const struct ds_hold *h, long slot, uint32_t site, const struct ds_row *key,
                  uint32_t guess)
{
    const struct ds_hold_row want = {key->request, key->position, key->occurrence, 0, 0};
    const struct ds_hold_row *e = entries_of(h, slot, site);
    uint32_t n = counts_of(h, slot)[site], low = 0, high = n;
    if (guess < n && compare_keys(&e[guess], &want) == 0)
        return guess;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (compare_keys(&e[e[mid].ranked], &want) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (low < n && compare_keys(&e[e[low].ranked], &want) == 0)
        return e[low].ranked;
    return -1;
}
