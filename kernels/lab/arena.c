/* arena.c: see arena.h. Every array has a mapping of its own, whose first and last page are
 * PROT_NONE; it is reused from call to call and grows by doubling. What surrounds an array within
 * AROUND bytes is filled and looked at again; further away only the guard pages stand. */
#include "kernels/lab/arena.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/plural.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A multiple of every page size in use; guard pages cost address space only. */
enum { PAGE = 65536, AROUND = 1024, BULK = 65536 };
static const uint32_t SENTINEL = 0xc0ffee11u;

/* ---- filling --------------------------------------------------------------------------------- */

/* A 32-bit pattern as an element: two-byte formats take a NaN (or huge value) of theirs. */
static uint32_t as_element(uint32_t bits, int element)
{
    return element == 4   ? bits
           : element == 2 ? (bits >> 16) | (bits & 0x8u ? 3u : 5u)
                          : bits & 0xffu;
}

static void fill(void *at, int64_t n, int element, uint32_t bits)
{
    uint32_t v = as_element(bits, element);
    if (element == 4)
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)at)[i] = v;
    else if (element == 2)
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)at)[i] = (uint16_t)v;
    else
        memset(at, (int)v, (size_t)n);
}

static uint32_t element_at(const void *at, int64_t i, int element)
{
    return element == 4   ? ((const uint32_t *)at)[i]
           : element == 2 ? ((const uint16_t *)at)[i]
                          : ((const uint8_t *)at)[i];
}

/* How many of the n words at the start are surely not what is looked for: whole blocks, each looked at
 * without a branch in it. */
static int64_t skip_words(const uint32_t *at, int64_t n, uint32_t v, int want_equal)
{
    enum { BLOCK = 64 };
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        uint32_t differ = 0, equal = 0;
        for (int j = 0; j < BLOCK; j++) {
            differ |= at[i + j] ^ v;
            equal |= (uint32_t)(at[i + j] == v);
        }
        if (want_equal ? equal : differ)
            break;
    }
    return i;
}

/* The first of n elements that is (want_equal) or is not the pattern; -1 = none. */
static int64_t search(const void *at, int64_t n, int element, uint32_t bits, int want_equal)
{
    const uint32_t v = as_element(bits, element);
    for (int64_t i = element == 4 ? skip_words(at, n, v, want_equal) : 0; i < n; i++)
        if ((element_at(at, i, element) == v) == want_equal)
            return i;
    return -1;
}

static unsigned char *row_at(const struct ds_array *x, int64_t r)
{
    return (unsigned char *)x->data + (size_t)r * (size_t)x->ld * (size_t)x->element;
}

int64_t ds_arena_span(const struct ds_array *x)
{
    return x->rows > 0 && x->cols > 0 ? (x->rows - 1) * x->ld + x->cols : 0;
}

/* The stretch before and behind the array that is filled: whole elements. */
static int64_t room_before(const struct ds_array *x)
{
    int64_t n = (unsigned char *)x->data - (x->map + PAGE);
    return (n < AROUND ? n : AROUND) / x->element;
}

static int64_t room_behind(const struct ds_array *x)
{
    int64_t n =
        x->map + x->map_bytes - PAGE - ((unsigned char *)x->data + ds_arena_span(x) * x->element);
    return (n < AROUND ? n : AROUND) / x->element;
}

void ds_arena_around(const struct ds_array *x, int64_t *before, int64_t *behind)
{
    *before = room_before(x) * x->element;
    *behind = room_behind(x) * x->element;
}

int ds_arena_is_bulk(const struct ds_arena *a, const struct ds_array *x)
{
    return a->device && x->role == DS_ARRAY_SCRATCH && ds_arena_span(x) * x->element > BULK;
}

static void fill_all(const struct ds_arena *a, const struct ds_array *x)
{
    const int input = x->role == DS_ARRAY_IN;
    const uint32_t gap = input ? ds_poison_gap(a->poison) : SENTINEL;
    const int64_t before = room_before(x);
    fill((unsigned char *)x->data - before * x->element, before, x->element, gap);
    fill((unsigned char *)x->data + ds_arena_span(x) * x->element, room_behind(x), x->element, gap);
    for (int64_t r = 0; r < x->rows; r++) {
        if (x->role == DS_ARRAY_OUT)
            fill(row_at(x, r), x->cols, x->element, a->poison);
        else if (ds_arena_is_bulk(a, x))
            continue;
        else if (x->role == DS_ARRAY_SCRATCH)
            fill(row_at(x, r), x->cols, x->element, ds_poison_gap(a->poison));
        else
            memset(row_at(x, r), 0, (size_t)x->cols * (size_t)x->element);
        if (r + 1 < x->rows)
            fill(row_at(x, r) + x->cols * x->element, x->ld - x->cols, x->element, gap);
    }
}

/* ---- placing --------------------------------------------------------------------------------- */

void ds_arena_begin(struct ds_arena *a, uint32_t poison)
{
    for (int i = a->held; i < a->n; i++) {
        free(a->array[i].written);
        a->array[i].written = NULL;
    }
    a->n = a->held;
    a->poison = poison ? poison : DS_POISON_NAN;
}

/* A mapping with room for `bytes` between its guard pages. */
static int provide(struct ds_array *x, size_t bytes, struct ds_error *err)
{
    size_t need = (bytes + 2 * AROUND + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
    if (x->map && x->map_bytes >= need)
        return 0;
    if (x->map)
        need = need > 2 * x->map_bytes ? need : 2 * x->map_bytes;
    if (ds_memory_lacks(bytes))
        return ds_fail(err, "array %s needs %.2f GiB, but only %.2f GiB of memory are available",
                       x->name, (double)bytes / 0x1p30, (double)ds_memory_available() / 0x1p30);
    unsigned char *map =
        mmap(NULL, need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return ds_fail(err, "cannot map %zu bytes for array %s: %s", need, x->name,
                       strerror(errno));
    if (mprotect(map, PAGE, PROT_NONE) != 0 || mprotect(map + need - PAGE, PAGE, PROT_NONE) != 0) {
        munmap(map, need);
        return ds_fail(err, "cannot guard array %s: %s", x->name, strerror(errno));
    }
    if (x->map)
        munmap(x->map, x->map_bytes);
    x->map = map;
    x->map_bytes = need;
    return 0;
}

void *ds_arena_place(struct ds_arena *a, const char *name, int role, int element, int64_t rows,
                     int64_t cols, int64_t ld, int place, struct ds_error *err)
{
    size_t bytes;
    if (a->n == DS_ARENA_MOST) {
        ds_fail(err, "array %s: a call of more than %d arrays", name, DS_ARENA_MOST);
        return NULL;
    }
    struct ds_array *x = &a->array[a->n];
    x->name = name, x->role = role, x->element = element;
    x->rows = rows, x->cols = cols, x->ld = ld;
    if (rows < 0 || cols < 0 || ld < cols ||
        __builtin_mul_overflow((size_t)(rows ? rows : 1), (size_t)ld, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)element, &bytes) || bytes > PTRDIFF_MAX / 4) {
        ds_fail(err, "array %s: %lld row%s of %lld elements, %lld apart, do not fit in memory",
                name, (long long)rows, ds_plural(rows), (long long)cols, (long long)ld);
        return NULL;
    }
    bytes = (size_t)(ds_arena_span(x) * element);
    if (provide(x, bytes, err) != 0)
        return NULL;
    unsigned char *end = x->map + x->map_bytes - PAGE;
    if (place == DS_PLACE_START)
        x->data = x->map + PAGE;
    else if (place == DS_PLACE_END)
        x->data = end - bytes;
    else {
        size_t skew = (size_t)place * (size_t)element;
        x->data = (unsigned char *)((uintptr_t)(end - bytes - skew) / 64 * 64) + skew;
    }
    a->n++;
    if (!a->bare)
        fill_all(a, x);
    return x->data;
}

uint8_t *ds_arena_row_mask(struct ds_arena *a, struct ds_error *err)
{
    struct ds_array *x = &a->array[a->n - 1];
    x->written = ds_calloc((size_t)x->rows, 1, "rows of an output", err);
    return x->written;
}

/* ---- protection ------------------------------------------------------------------------------ */

/* The pages of the mapping that the array and its surroundings touch: the mapping may be far larger
 * than this call needs. */
static unsigned char *first_page(const struct ds_array *x)
{
    const size_t before = (size_t)room_before(x) * (size_t)x->element;
    return x->map + (size_t)((unsigned char *)x->data - before - x->map) / PAGE * PAGE;
}

static int protect(struct ds_arena *a, int from, int to, int prot, struct ds_error *err)
{
    for (int i = from; i < to; i++) {
        struct ds_array *x = &a->array[i];
        if (x->role != DS_ARRAY_IN)
            continue;
        unsigned char *begin = first_page(x), *end = x->map + x->map_bytes - PAGE;
        const size_t used = (size_t)((unsigned char *)x->data - begin) +
                            (size_t)ds_arena_span(x) * (size_t)x->element;
        if ((size_t)(end - begin) > used + AROUND)
            end = begin + (used + AROUND + PAGE - 1) / PAGE * PAGE;
        if (mprotect(begin, (size_t)(end - begin), prot) != 0)
            return ds_fail(err, "cannot protect array %s: %s", x->name, strerror(errno));
    }
    return 0;
}

int ds_arena_hold(struct ds_arena *a, struct ds_error *err)
{
    int from = a->held;
    a->held = a->n;
    return protect(a, from, a->n, PROT_READ, err);
}

int ds_arena_seal(struct ds_arena *a, struct ds_error *err)
{
    return a->device ? 0 : protect(a, a->held, a->n, PROT_READ, err);
}

int ds_arena_unseal(struct ds_arena *a, struct ds_error *err)
{
    return a->device ? 0 : protect(a, a->held, a->n, PROT_READ | PROT_WRITE, err);
}

void ds_arena_free(struct ds_arena *a)
{
    ds_arena_free_far(a);
    for (int i = 0; i < DS_ARENA_MOST; i++) {
        free(a->array[i].written);
        if (a->array[i].map)
            munmap(a->array[i].map, a->array[i].map_bytes);
    }
    memset(a, 0, sizeof *a);
}

/* ---- what was broken ------------------------------------------------------------------------- */

static int found(const struct ds_array *x, int kind, int64_t row, int64_t col, struct ds_fault *f)
{
    *f = (struct ds_fault){.kind = kind, .write = 1, .row = row, .col = col};
    size_t n = strlen(x->name);
    memcpy(f->array, x->name, n < sizeof f->array ? n : sizeof f->array - 1);
    return 1;
}

/* Surroundings and gaps of an array that may be written. */
static int check_near(const struct ds_array *x, struct ds_fault *f)
{
    const int64_t before = room_before(x);
    int64_t at =
        search((unsigned char *)x->data - before * x->element, before, x->element, SENTINEL, 0);
    if (at >= 0)
        return found(x, DS_FAULT_WROTE_NEAR, 0, at - before, f);
    at = search((unsigned char *)x->data + ds_arena_span(x) * x->element, room_behind(x),
                x->element, SENTINEL, 0);
    if (at >= 0)
        return found(x, DS_FAULT_WROTE_NEAR, x->rows - 1, x->cols + at, f);
    for (int64_t r = 0; r + 1 < x->rows && x->ld > x->cols; r++) {
        at = search(row_at(x, r) + x->cols * x->element, x->ld - x->cols, x->element, SENTINEL, 0);
        if (at >= 0)
            return found(x, DS_FAULT_WROTE_NEAR, r, x->cols + at, f);
    }
    return 0;
}

int ds_arena_check(const struct ds_arena *a, struct ds_fault *f)
{
    for (int i = a->held; i < a->n; i++) {
        const struct ds_array *x = &a->array[i];
        if (x->role == DS_ARRAY_IN)
            continue;
        if (check_near(x, f))
            return 1;
        for (int64_t r = 0; r < x->rows && x->role == DS_ARRAY_OUT; r++) {
            int mine = !x->written || x->written[r];
            int64_t at = search(row_at(x, r), x->cols, x->element, a->poison, mine);
            if (at >= 0)
                return found(x, mine ? DS_FAULT_UNWRITTEN : DS_FAULT_WROTE_OTHER, r, at, f);
        }
    }
    f->kind = DS_FAULT_NONE;
    return 0;
}

void ds_arena_blame(const struct ds_array *x, int kind, int64_t at, struct ds_fault *f)
{
    if (kind != DS_FAULT_OUT_OF_BOUNDS)
        found(x, kind, x->ld > 0 ? at / x->ld : 0, x->ld > 0 ? at % x->ld : 0, f);
    else if (at < 0)
        found(x, kind, 0, at, f);
    else
        found(x, kind, x->rows - 1, at - ds_arena_span(x) + 1, f);
}

int ds_arena_locate(const struct ds_arena *a, const void *address, int write, struct ds_fault *f)
{
    const unsigned char *p = address;
    for (int i = 0; i < a->n; i++) {
        const struct ds_array *x = &a->array[i];
        if (p < x->map || p >= x->map + x->map_bytes)
            continue;
        const unsigned char *data = x->data;
        const int64_t at = p - data;
        if (p < data && p < x->map + PAGE)
            ds_arena_blame(x, DS_FAULT_OUT_OF_BOUNDS, -((-at + x->element - 1) / x->element), f);
        else
            ds_arena_blame(x,
                           p >= x->map + x->map_bytes - PAGE ? DS_FAULT_OUT_OF_BOUNDS
                                                             : DS_FAULT_WROTE_INPUT,
                           at / x->element, f);
        f->write = write;
        return 1;
    }
    return ds_arena_locate_far(a, address, write, f);
}

/* ---- in words -------------------------------------------------------------------------------- */

static void print_bounds(struct ds_buf *b, const struct ds_fault *f)
{
    int64_t n = f->col < 0 ? -f->col : f->col;
    ds_buf_printf(b, "%s %s of %s (%lld element%s %s)", f->write ? "writes" : "reads",
                  f->col < 0 ? "before the start" : "past the end", f->array, (long long)n,
                  n == 1 ? "" : "s", f->col < 0 ? "before it" : "behind it");
}

void ds_fault_print(struct ds_buf *b, const struct ds_fault *f)
{
    switch (f->kind) {
    case DS_FAULT_NONE:
        ds_buf_puts(b, "nothing");
        return;
    case DS_FAULT_UNWRITTEN:
        ds_buf_printf(b, "leaves %s unwritten at row %lld, element %lld", f->array,
                      (long long)f->row, (long long)f->col);
        return;
    case DS_FAULT_WROTE_NEAR:
        ds_buf_printf(b, "writes outside of %s, at row %lld, element %lld", f->array,
                      (long long)f->row, (long long)f->col);
        return;
    case DS_FAULT_WROTE_OTHER:
        ds_buf_printf(b, "writes row %lld of %s, which is not of this call", (long long)f->row,
                      f->array);
        return;
    case DS_FAULT_OUT_OF_BOUNDS:
        print_bounds(b, f);
        return;
    case DS_FAULT_WROTE_INPUT:
        ds_buf_printf(b, "writes into its input %s, at row %lld, element %lld", f->array,
                      (long long)f->row, (long long)f->col);
        return;
    case DS_FAULT_FP_CONTROL:
        ds_buf_puts(b, "leaves the floating-point control word changed");
        return;
    case DS_FAULT_REFUSED:
        ds_buf_puts(b, "refuses: ");
        ds_buf_escape(b, f->text, (size_t)-1);
        return;
    case DS_FAULT_CRASH:
        ds_buf_printf(b, "crashes (%s)", f->signal ? strsignal(f->signal) : "unknown signal");
        return;
    case DS_FAULT_HANG:
        ds_buf_puts(b, "does not return");
        return;
    case DS_FAULT_FROM_HOST:
        ds_buf_printf(b, "%s %s, which is on the device, from the host's code",
                      f->write ? "writes" : "reads", f->array);
        return;
    case DS_FAULT_DEVICE:
        ds_buf_puts(b, "fails on the device: ");
        ds_buf_escape(b, f->text, (size_t)-1);
        return;
    default:
        ds_buf_puts(b, "ends the process");
        return;
    }
}
