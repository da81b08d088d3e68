/* gguf.c: opens a GGUF file by memory map (or takes bytes in memory), answers look-ups of metadata
 * and tensors. Owns the map; the byte layout is gguf_parse.c's.
 *
 * The map is private and read-only. If another process cuts the file while it is open, reading
 * beyond the new end raises SIGBUS, as with every mapped file. */
#include "engine/gguf_priv.h"

#include "base/buf.h"
#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The name as messages show it: escaped, and short enough that the field that is wrong still fits.
 */
static int make_label(const char *name, char *label, size_t size, struct ds_error *err)
{
    size_t n = strlen(name), keep = 120;
    struct ds_buf b = {0};
    ds_buf_puts(&b, n > keep ? "..." : "");
    ds_buf_escape(&b, n > keep ? name + n - keep : name, n > keep ? keep : n);
    int failed = b.failed || !b.data;
    if (!failed)
        snprintf(label, size, "%s", b.data);
    ds_buf_free(&b);
    return failed ? ds_fail(err, "gguf file name: out of memory") : 0;
}

static struct ds_gguf *new_gguf(const char *name, struct ds_error *err)
{
    struct ds_gguf *g = ds_calloc(1, sizeof *g, "gguf file", err);
    if (g && make_label(name, g->label, sizeof g->label, err)) {
        free(g);
        return NULL;
    }
    return g;
}

/* The system's reason in the style of the other messages. */
static int failed(const struct ds_gguf *g, const char *doing, struct ds_error *err)
{
    char why[128];
    snprintf(why, sizeof why, "%s", strerror(errno));
    why[0] = (char)tolower((unsigned char)why[0]);
    return ds_fail(err, "%s: %s%s", g->label, doing, why);
}

/* Opens a regular file without ever waiting (a FIFO would) and maps it. */
static int map_file(struct ds_gguf *g, const char *path, struct ds_error *err)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        int absent = errno == ENOENT;
        failed(g, "", err);
        return absent ? ds_hint(err, "a model is a .gguf file on this machine; what a hub calls it "
                                     "is not looked up")
                      : -1;
    }
    struct stat st;
    int rc = 0;
    if (fstat(fd, &st) != 0)
        rc = failed(g, "", err);
    else if (S_ISDIR(st.st_mode)) {
        rc = ds_fail(err, "%s: is a directory, not a GGUF file", g->label);
        ds_hint(err, "name the .gguf file; of a folder as Hugging Face has them, llama.cpp's "
                     "convert_hf_to_gguf.py makes one");
    } else if (!S_ISREG(st.st_mode))
        rc = ds_fail(err, "%s: is not a regular file", g->label);
    else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            rc = failed(g, "cannot map the file: ", err);
        } else {
            g->bytes = p;
            g->size = (size_t)st.st_size;
            g->mapped = 1;
        }
    }
    close(fd);
    return rc;
}

int ds_gguf_open(const char *path, struct ds_gguf **out, struct ds_error *err)
{
    struct ds_gguf *g = new_gguf(path, err);
    if (!g)
        return -1;
    if (map_file(g, path, err) || ds_gguf_parse(g, err)) {
        ds_gguf_close(g);
        return -1;
    }
    *out = g;
    return 0;
}

int ds_gguf_open_bytes(const void *bytes, size_t size, const char *name, struct ds_gguf **out,
                       struct ds_error *err)
{
    struct ds_gguf *g = new_gguf(name, err);
    if (!g)
        return -1;
    g->bytes = bytes;
    g->size = size;
    if (ds_gguf_parse(g, err)) {
        ds_gguf_close(g);
        return -1;
    }
    *out = g;
    return 0;
}

void ds_gguf_close(struct ds_gguf *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->cap_entries; i++) {
        free(g->entries[i].key);
        free(g->entries[i].offsets);
    }
    free(g->entries);
    free(g->entry_order);
    free(g->tensors);
    free(g->names);
    free(g->tensor_order);
    if (g->mapped)
        munmap((void *)(uintptr_t)g->bytes, g->size);
    free(g);
}

void ds_gguf_release(const struct ds_gguf *g, const void *bytes, size_t n)
{
    if (!g->mapped)
        return;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)bytes & ~(uintptr_t)(page - 1);
    (void)madvise((void *)from, (uintptr_t)bytes + n - from, MADV_DONTNEED);
}

const char *ds_gguf_name(const struct ds_gguf *g)
{
    return g->label;
}

size_t ds_gguf_size(const struct ds_gguf *g)
{
    return g->size;
}

/* ---- look-up by name: binary search in the sorted order -------------------------------------- */

const struct gguf_entry *ds_gguf_entry(const struct ds_gguf *g, const char *key)
{
    for (size_t low = 0, high = g->n_entries; low < high;) {
        size_t middle = low + (high - low) / 2;
        const struct gguf_entry *e = &g->entries[g->entry_order[middle]];
        int order = strcmp(key, e->key);
        if (order == 0)
            return e;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

size_t ds_gguf_tensor_count(const struct ds_gguf *g)
{
    return g->n_tensors;
}

const struct ds_gguf_tensor *ds_gguf_tensor_at(const struct ds_gguf *g, size_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const struct ds_gguf_tensor *ds_gguf_tensor_find(const struct ds_gguf *g, const char *name)
{
    for (size_t low = 0, high = g->n_tensors; low < high;) {
        size_t middle = low + (high - low) / 2;
        const struct ds_gguf_tensor *t = &g->tensors[g->tensor_order[middle]];
        int order = strcmp(name, t->name);
        if (order == 0)
            return t;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
