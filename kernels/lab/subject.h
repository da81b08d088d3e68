/* subject.h: one kernel at one shape with a pool of rows, runnable in any arrangement. Owns the
 * contents of the rows, the arrays of a call and the launch; judges nothing. Knows no model.
 *
 * The pool: a row is known by its key (sequence, slot, content), and its input bits are a function
 * of (seed of the subject, key) alone, whatever the call. Ops whose rows stand alone (all but
 * attention and cache) take sequence 0, slot = number of the row in the pool. For attention the row
 * at slot t of a sequence reads K and V of slots 0..t of that sequence, which are a function of
 * (seed, sequence, slot, content) too: slots below the segment's first are in the cache already.
 *
 * A subject is used in a process that may die: see contain.h. */
#ifndef DS_LAB_SUBJECT_H
#define DS_LAB_SUBJECT_H

#include "base/error.h"
#include "kernels/driftscope_kernel.h"
#include "kernels/lab/any_args.h"
#include "kernels/lab/arena.h"
#include "kernels/lab/pool.h"
#include "kernels/lab/shape.h"

#include <stdint.h>

/* What the rows of a sequence hold. */
enum ds_content {
    DS_CONTENT_PLAIN = 0, /* about -1..1, no two alike */
    DS_CONTENT_OTHER,     /* the same kind, other values */
    DS_CONTENT_ZERO,      /* of both signs */
    DS_CONTENT_HUGE,      /* about +-1e38: sums overflow */
    DS_CONTENT_NAN,       /* quiet NaNs with payloads of both signs */
    DS_CONTENT_TINY,      /* subnormals, and values whose products are */
    DS_CONTENT_SPECIAL,   /* PLAIN with -0, subnormals, infinities and NaNs strewn in */
    DS_CONTENT_MIXED,     /* magnitudes over 2^-20..2^20, much cancellation */
    DS_CONTENT_TIED,      /* four numbers, all negative: the largest is there many times */
    DS_CONTENT_COUNT
};
const char *ds_content_name(int content);

/* Rows first..first+length-1 of one sequence, side by side in the call. A call has each sequence at
 * most once for attention and cache; any row any number of times for other ops. */
struct ds_segment {
    int32_t sequence, first, length;
    int32_t content; /* of the whole sequence */
    /* Attention, cache: so many left-padding rows lie before slot 0 in the cache; keys do not
     * change. */
    int32_t padding;
};

struct ds_call {
    const struct ds_segment *segment;
    int64_t n_segments;
    int threads;
    int place;           /* of every array: 0..15 or enum ds_place */
    int gap;             /* elements added to every leading dimension */
    int bias;            /* matmul: with a bias; router: weights are not divided by their sum */
    uint32_t poison;     /* DS_POISON_NAN (0 = this one), DS_POISON_HUGE */
    uint64_t seed;       /* exec->seed */
    uint64_t disturb;    /* 0: as scheduled; else the seed of a disturbed schedule */
    int32_t page_size;   /* attention, cache: 0 = one page for each sequence */
    uint64_t permute;    /* 0: pages in ascending order; else the seed of a permutation */
    int32_t spare_slots; /* attention, cache: poisoned slots behind the last of each sequence */
    uint32_t spoil;      /* attention: mask of 1 << enum ds_area whose poison is exchanged */
    uint32_t features;   /* enum ds_feature asked for; only those that the kernel has */
    int32_t window;      /* with DS_FEATURE_WINDOW */
    float soft_cap;      /* with DS_FEATURE_SOFT_CAP */
    int32_t stored; /* enum ds_element: the activation type. Inputs hold values of it, outputs are
                            rounded to it: by a kernel with DS_FEATURE_STORED, which has arrays of it,
                            else by the lab */
    int wide;       /* matmul: y stays f32 */
};

/* Outputs of a row side by side, each element in one 32-bit word: f32 and i32 as they are, f16 and
 * bf16 in the low half. */
enum { DS_MOST_PARTS = DS_CUSTOM_MAX_TENSORS };
struct ds_output_part {
    const char *name;
    int dtype; /* enum ds_element */
    int64_t cols;
};

struct ds_output {
    int64_t rows, width; /* width: words a row, the sum of all parts' cols */
    uint32_t *bits;      /* [rows][width], rows in the order of the call; owned by the output */
    size_t cap;          /* the output's own: words that bits has room for */
    struct ds_fault fault;
    struct ds_launch_info launch; /* what describe said; zero without one */
};

struct ds_subject;

/* Whether the lab can run an op by itself: not one that has no rows of its own (schedule). */
int ds_subject_known(int op);

/* Holds what every call shares: weights, tables, what prepare made of them. *k and *shape are
 * borrowed for its life. seed: of the pool. */
struct ds_subject *ds_subject_new(const struct ds_kernel *k, const struct ds_shape *shape,
                                  uint64_t seed, struct ds_error *err);
/* The same with weights (matmul, rmsnorm) of another content than plain, row r that of slot r. */
struct ds_subject *ds_subject_new_weights(const struct ds_kernel *k, const struct ds_shape *shape,
                                          uint64_t seed, int weights, struct ds_error *err);
/* matmul: weights of a file's tensor type (file_content.h). from_file: the kernel sees the file's bytes
 * alone, else the numbers that they stand for alone. k is whole blocks of the type. */
struct ds_subject *ds_subject_new_file(const struct ds_kernel *k, const struct ds_shape *shape,
                                       uint64_t seed, int weights, int32_t file_type, int from_file,
                                       struct ds_error *err);
/* The same as ds_subject_new with what all calls share (weights, tables) `offset` floats, 1..15, behind a
 * boundary of 64 bytes. */
struct ds_subject *ds_subject_new_moved(const struct ds_kernel *k, const struct ds_shape *shape,
                                        uint64_t seed, int offset, struct ds_error *err);
void ds_subject_free(struct ds_subject *s);

const struct ds_kernel *ds_subject_kernel(const struct ds_subject *s);
const struct ds_shape *ds_subject_shape(const struct ds_subject *s);
int ds_subject_parts(const struct ds_subject *s, const struct ds_call *c,
                     struct ds_output_part part[DS_MOST_PARTS]);
int64_t ds_call_rows(const struct ds_call *c);
/* Multiply-adds (or elements, where nothing is multiplied) of a call: what a budget counts. */
double ds_subject_work(const struct ds_subject *s, const struct ds_call *c);
/* Bytes that a call must at least read and write. */
double ds_subject_bytes(const struct ds_subject *s, const struct ds_call *c);

/* Runs the call once. *out is zeroed or was used before; its memory is reused. 0: out holds the
 * result and out->fault what the launch did wrong (FAULT_NONE if nothing; REFUSED: no result).
 * -1: the lab itself failed. */
int ds_subject_run(struct ds_subject *s, const struct ds_call *c, struct ds_output *out,
                   struct ds_error *err);
void ds_output_free(struct ds_output *out);

/* Asks describe alone: 1 = *info is filled, 0 = the kernel has none (or refused), -1 = the lab
 * failed. Launches nothing; rows, weights of experts and the cache have addresses and hold nothing. */
int ds_subject_describe(struct ds_subject *s, const struct ds_call *c, struct ds_launch_info *info,
                        struct ds_error *err);

/* For timing several subjects in turn: the call's arrays are made and stay; then each `again`
 * launches it once more, unchecked, with another seed. Any other call of the subject ends it. */
int ds_subject_ready(struct ds_subject *s, const struct ds_call *c, struct ds_error *err);
int ds_subject_again(struct ds_subject *s, struct ds_error *err);
/* What describe says of the ready call: 1 = *info is filled, 0 = the kernel has none. */
int ds_subject_ready_launch(struct ds_subject *s, struct ds_launch_info *info);
/* On a device: from now on the ready call is captured and launched as a graph; how long so many of it take by
 * the device's own clock, with its L2 cache as the last one left it or flushed (stopwatch.h). */
int ds_subject_capture(struct ds_subject *s, struct ds_error *err);
int ds_subject_time(struct ds_subject *s, long calls, int flushed, double *seconds,
                    struct ds_error *err);
/* Each thread of the ready call's team, but the caller, to a CPU of its own; returns how many. */
int ds_subject_bind(struct ds_subject *s, const int *cpus, int n);
/* What the kernel's prepare took when the subject was made; 0 without one. */
double ds_subject_prepare_seconds(const struct ds_subject *s);

/* "4 rows, 2 threads, gap 3": the settings that differ from the plain ones. */
struct ds_buf;
void ds_call_print(struct ds_buf *b, const struct ds_call *c);

/* Where the running launch's arrays are, for the handler of contain.h. */
const struct ds_arena *ds_subject_arena(const struct ds_subject *s);
/* The args struct of the call built last: its op's struct (for whoever computes the exact result: it
 * has the f32 weights also where the kernel sees the file's alone). */
const void *ds_subject_args(const struct ds_subject *s);

/* ---- how an op is brought into a call: one per op, in subject_rows.c and subject_attention.c -- */

/* What a builder sees of a subject. */
struct ds_subject_parts {
    const struct ds_kernel *kernel;
    const struct ds_shape *shape;
    uint64_t seed;
    int weights;       /* enum ds_content */
    int32_t file_type; /* matmul: of the weights, as GGUF numbers it; 0 = F32 */
    int from_file;     /* ... and the kernel sees them only so */
    const float *w;    /* ... what they stand for */
    int moved;         /* shared arrays are placed at this offset; 0 = where they show most */
    struct ds_arena arena;
    union ds_any_args args;
    struct ds_pool *pool;
    void *own; /* of the builder */
};

/* Floats behind a row of an array of the call: where it has any, other arrays have other numbers, since a
 * kernel may take one's distance for another's. */
enum { DS_GAP_FIRST = 0, DS_GAP_SECOND, DS_GAP_OUTPUT };
static inline int64_t ds_call_gap(const struct ds_call *c, int array)
{
    return c->gap ? c->gap + array : 0;
}

struct ds_subject_ops {
    /* Places shared arrays and sets their pointers in p->args; they are held after it. May be NULL.
     */
    int (*open)(struct ds_subject_parts *p, struct ds_error *err);
    void (*close)(struct ds_subject_parts *p); /* frees p->own; may be NULL */
    /* Places the arrays of this call by ds_arena_place (inputs first, outputs in the order of
     * `parts`), fills the inputs by pool.h (where the arena is bare only what says where rows
     * stand), sets p->args. */
    int (*build)(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err);
    /* The outputs of a row; returns how many parts. */
    int (*parts)(const struct ds_subject_parts *p, const struct ds_call *c,
                 struct ds_output_part part[DS_MOST_PARTS]);
    /* NULL: row r of the call is row r of every OUT array. Else the row of the OUT array (part i)
     * where row r of the call lies. */
    int64_t (*row_of)(const struct ds_subject_parts *p, const struct ds_call *c, int part,
                      int64_t r);
    double (*work)(const struct ds_subject_parts *p, const struct ds_call *c);
    double (*bytes)(const struct ds_subject_parts *p, const struct ds_call *c);
};

/* The table of subject.c: ops by enum ds_op. */
extern const struct ds_subject_ops ds_subject_attention_ops;

#endif
