/* arena.h: the arrays of one kernel call, each in memory of its own between two pages that nobody
 * may touch. Owns placing, poison, sentinels and the search for what was broken; must not know what
 * the arrays mean. One thread uses an arena at a time. */
#ifndef DS_LAB_ARENA_H
#define DS_LAB_ARENA_H

#include "base/error.h"
#include "kernels/device.h"

#include <stddef.h>
#include <stdint.h>

/* What unwritten memory holds. Outputs hold the poison itself, gaps between rows, scratch and what
 * else a kernel must not use hold ds_poison_gap(poison), so that an output left alone is told from
 * one made of unwritten memory. */
#define DS_POISON_NAN  0x7fc0deadu /* a NaN: spreads through sums */
#define DS_POISON_HUGE 0x7149f2cau /* about 1e30: spreads through comparisons that NaN loses */
static inline uint32_t ds_poison_gap(uint32_t poison)
{
    return poison ^ 0x00001111u;
}

enum ds_array_role {
    DS_ARRAY_IN = 0, /* read-only during the launch */
    DS_ARRAY_OUT,    /* every element must be written, nothing else */
    DS_ARRAY_IN_OUT, /* may be written */
    DS_ARRAY_SCRATCH
};

/* Where an array lies between its two guard pages: 0..15 = so many elements behind a 64-byte
 * boundary; END = its last element touches the guard page behind it; START = its first touches the
 * one before it. */
enum ds_place { DS_PLACE_END = 16, DS_PLACE_START = 17 };

/* The array's place on a device: whole pages, of which the first is that of `from` in the host's memory. */
struct ds_twin_array {
    void *base; /* as allocated; NULL: none */
    size_t room;
    unsigned char *pages;
    size_t bytes;
    const unsigned char *from;
};

struct ds_array {
    const char *name; /* borrowed: a literal, or lives as long as the kernel */
    int role;
    int element;            /* bytes: 1, 2 or 4 */
    int64_t rows, cols, ld; /* in elements; (rows - 1) * ld + cols of them exist */
    void *data;
    /* OUT: rows that the call must leave alone have a 0 here; NULL = it writes all. Owned by the
     * arena when set through ds_arena_row_mask. */
    uint8_t *written;
    /* the arena's own */
    unsigned char *map;
    size_t map_bytes;
    struct ds_twin_array twin; /* where the arena has a device */
};

/* Sixteen ranks and their sum, as f32 and as 16 bits; the scratch. */
enum { DS_ARENA_MOST = 40 };
struct ds_arena {
    struct ds_array array[DS_ARENA_MOST];
    int n;    /* of this call */
    int held; /* the first `held` are shared: placed once, read-only until ds_arena_free */
    uint32_t poison;
    int bare;                 /* arrays get their places and nothing is filled: nobody will look */
    struct ds_device *device; /* NULL: kernels read the host's memory; set before the first array */
    int far_held;             /* so many of the held ones are on the device */
};

/* What a launch did that no kernel may do. */
enum ds_fault_kind {
    DS_FAULT_NONE = 0,
    DS_FAULT_UNWRITTEN,     /* left an output element as it was */
    DS_FAULT_WROTE_NEAR,    /* wrote before, behind or between the rows of an output */
    DS_FAULT_WROTE_OTHER,   /* wrote a row that does not belong to the call */
    DS_FAULT_OUT_OF_BOUNDS, /* touched a guard page: reads or writes outside */
    DS_FAULT_WROTE_INPUT,
    DS_FAULT_FP_CONTROL, /* left MXCSR changed */
    DS_FAULT_REFUSED,    /* launch returned -1 */
    DS_FAULT_CRASH,      /* another signal, or an address of no array */
    DS_FAULT_HANG,
    DS_FAULT_EXIT,      /* ended the process */
    DS_FAULT_FROM_HOST, /* the launch function itself touched an array on the device */
    DS_FAULT_DEVICE     /* the device itself says that something went wrong; it is of no more use */
};
struct ds_fault {
    int kind;
    char array[32];
    int write;        /* OUT_OF_BOUNDS: a write (if the machine tells) */
    int64_t row, col; /* of the element; OUT_OF_BOUNDS: elements behind the end (col >= 1) or before
                         the start (col < 0) */
    int signal;
    char text[320]; /* REFUSED: the kernel's reason; DEVICE: the device's */
};

/* A large scratch of a device: nobody looks at what is in it, so it is filled there and not sent, and the host's has no
 * contents. */
int ds_arena_is_bulk(const struct ds_arena *a, const struct ds_array *x);

/* Starts another call: all arrays but the held ones are gone. */
void ds_arena_begin(struct ds_arena *a, uint32_t poison);

/* Places an array (ld >= cols, rows and cols >= 0) and returns its first element: gaps and
 * surroundings are filled, IN elements are zero until the caller writes them, OUT and SCRATCH are
 * poisoned. NULL on exhaustion. Memory is reused from call to call. */
void *ds_arena_place(struct ds_arena *a, const char *name, int role, int element, int64_t rows,
                     int64_t cols, int64_t ld, int place, struct ds_error *err);
/* For the array placed last, an OUT: a byte for each row, all 0 (= leave it alone). NULL on
 * exhaustion. */
uint8_t *ds_arena_row_mask(struct ds_arena *a, struct ds_error *err);

/* All arrays placed so far become read-only and stay for the life of the arena. */
int ds_arena_hold(struct ds_arena *a, struct ds_error *err);

/* Before and after a launch. seal: inputs become read-only. unseal: writable again. */
int ds_arena_seal(struct ds_arena *a, struct ds_error *err);
int ds_arena_unseal(struct ds_arena *a, struct ds_error *err);

/* The first damage done by the launch: 0 = none, 1 = *f says what. */
int ds_arena_check(const struct ds_arena *a, struct ds_fault *f);

/* Which array an address belongs to or is beside of (a fault at a guard page or in an input):
 * 1 and *f filled, else 0. Safe in a signal handler. */
int ds_arena_locate(const struct ds_arena *a, const void *address, int write, struct ds_fault *f);

void ds_arena_free(struct ds_arena *a);

/* ---- on a device (arena_far.c); a->device is not NULL ------------------------------------------------ */

/* A place there for every array of the call; what is held is copied, once. */
int ds_arena_place_far(struct ds_arena *a, struct ds_error *err);
/* Where a place in an array is there; NULL: it is in none. As `where` of ds_far_args with the arena as
 * its argument. */
void *ds_arena_far(const struct ds_arena *a, const void *host);
/* Copies the arrays of the call there, all that is filled around them, too; or one. */
int ds_arena_send(struct ds_arena *a, struct ds_error *err);
int ds_arena_send_one(struct ds_arena *a, int i, struct ds_error *err);
/* After a launch: what may have been written comes back; inputs that the device cannot guard are compared, and
 * *f says which was changed. */
int ds_arena_fetch(struct ds_arena *a, struct ds_fault *f, struct ds_error *err);

/* Between the two files: bytes that are filled before and behind an array, its elements with the gaps,
 * a finding (`at` in elements from the first one: in the array, behind it or before it), addresses there, the end. */
void ds_arena_around(const struct ds_array *x, int64_t *before, int64_t *behind);
int64_t ds_arena_span(const struct ds_array *x);
void ds_arena_blame(const struct ds_array *x, int kind, int64_t at, struct ds_fault *f);
int ds_arena_locate_far(const struct ds_arena *a, const void *address, int write,
                        struct ds_fault *f);
void ds_arena_free_far(struct ds_arena *a);

/* "reads past the end of x (1 element behind it)". */
struct ds_buf;
void ds_fault_print(struct ds_buf *b, const struct ds_fault *f);

#endif
