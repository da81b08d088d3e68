/* check.h: what one variant of an op keeps of what it should, at one shape: properties measured by
 * launching it in a child process. Owns the results as plain numbers and texts; prints nothing. */
#ifndef DS_LAB_CHECK_H
#define DS_LAB_CHECK_H

#include "base/error.h"
#include "kernels/driftscope_kernel.h"
#include "kernels/lab/arena.h"
#include "kernels/lab/shape.h"

#include <stdint.h>

enum ds_property {
    DS_PROPERTY_REPEAT = 0, /* the same call again, also under disturbed schedules and seeds */
    DS_PROPERTY_BATCH,      /* other numbers of rows in the call */
    DS_PROPERTY_SLOT,       /* other positions in the call */
    DS_PROPERTY_NEIGHBOURS, /* other contents of the other rows */
    DS_PROPERTY_THREADS,
    DS_PROPERTY_CHUNK,     /* attention: cut into calls, prefill against decode */
    DS_PROPERTY_ALIGNMENT, /* other addresses, leading dimensions, pages */
    DS_PROPERTY_SIZES,     /* right results at sizes that are multiples of nothing */
    DS_PROPERTY_MEMORY,    /* nothing read or written outside, nothing left unwritten, nothing
                              unwritten used, MXCSR as it was */
    DS_PROPERTY_SPECIAL,   /* subnormals, -0, NaN, infinities come out as the formula has them */
    DS_PROPERTY_FORMATS,   /* matmul: weights as they lie in a file give the bits of the f32 numbers
                              that they stand for, for every type that loads; activations of 16
                              bits those of f32 arrays */
    DS_PROPERTY_COUNT
};
/* "repeat", "batch", "slot", "neighbours", "threads", "chunk", "alignment", "sizes", "memory",
 * "special", "formats". */
const char *ds_property_name(int property);
/* The claim that promises it (enum ds_claim); 0: none does. */
uint32_t ds_property_claim(int property);
/* Whether a break is a failure although no claim promises it: memory, sizes; formats, which the features
 * that say that a kernel takes them promise. */
int ds_property_always(const struct ds_kernel *k, int property);

enum ds_property_state {
    DS_STATE_NOT_RUN = 0,
    DS_STATE_NOT_APPLICABLE,
    DS_STATE_HOLDS, /* over `compared` comparisons, no more than that */
    DS_STATE_BROKEN
};

/* How far two rows are apart. */
struct ds_difference {
    int64_t elements; /* with other bits */
    uint64_t max_ulp; /* UINT64_MAX: a NaN on one side; of float elements */
    double max_abs;
    int values_equal; /* only -0 and +0, or payloads of NaN, differ */
};

struct ds_property_result {
    int state;
    int64_t compared;     /* rows compared */
    int64_t differ;       /* of them with other bits (or a wrong result) */
    int64_t not_tried;    /* settings left out: over the budget, or behind a crash */
    char smallest[192];   /* BROKEN: the smallest breaking pair: "row 0 alone against row 0 of 4
                             rows" */
    double smallest_cost; /* what made it the smallest */
    struct ds_difference smallest_size, worst;
    char choice[2][96];  /* what describe says of the launches of that pair: "tile k 256, 2 parts";
                           "" where it says nothing or there is one launch only */
    int same_choice;     /* ... and both are one choice: the bits depend on more than it says */
    char classes[256];   /* "1-3 | 4-7 | 8-"; "" where it makes no sense */
    char classes_of[16]; /* what the numbers are: "rows", "threads", "position" */
    char classes_at
        [64]; /* whose bits they are classes of: "row 2, 3 threads", the pair's row where classes of
                            that are known; "" = row 0 on the base threads */
    char note[192]; /* NOT_APPLICABLE, NOT_RUN: why */
};

/* Output elements against the exact result, rounded once at the end. */
struct ds_accuracy {
    int64_t elements; /* compared; 0 = not measured */
    int64_t wrong;    /* of them: another id, NaN or infinity where none belongs, or none where one
                         does; the rest is measured below */
    double max_ulp, rms_ulp;
    /* matmul: of the error in units of gamma_K * sum |x w|, the most that any order of addition can
     * be off (Higham); < 0 = does not apply. */
    double max_bound, rms_bound;
    char worst_at[96];
};

struct ds_speed_point {
    int64_t rows;
    int threads;
    int32_t kv_len;     /* attention: the longest sequence */
    double seconds;     /* a launch: median of the rounds; CPU time for one thread that waits for
                           nothing, else wall time */
    double work, bytes; /* multiply-adds; least traffic */
    double ratio;       /* vendor's seconds over these; 0 = no vendor variant */
    double low, high;   /* of the ratio, its quartiles over the rounds */
    double noise;       /* how far two runs of the vendor's lie apart: see timing.h */
};
enum { DS_MOST_SPEEDS = 4, DS_MOST_FAULTS = 8 };

struct ds_check_fault {
    struct ds_fault fault;
    char setting[160]; /* "4 rows, gap 3": the first with fewest rows of those where it was seen */
    int64_t rows;      /* of that setting; 0: outside of any launch */
    int property;      /* that was measured when it happened */
    int64_t times;
};

/* Plain old data: it lies in memory shared with the child that fills it. */
struct ds_check_result {
    struct ds_property_result property[DS_PROPERTY_COUNT];
    struct ds_accuracy accuracy;
    struct ds_speed_point speed[DS_MOST_SPEEDS];
    int n_speeds;
    char vendor[32]; /* the variant of the ratios */
    struct ds_check_fault fault[DS_MOST_FAULTS];
    int n_faults;
    int64_t launches;
    char why_not[256]; /* not empty: it cannot run here at all, or the check had to stop */
};

struct ds_check_options {
    const int *threads; /* thread counts, ascending, the first is the base; >= 1 entry */
    int n_threads;
    int full;                       /* every setting, whatever it costs */
    int no_speed;                   /* leave speed out */
    uint32_t only;                  /* mask of 1 << property: no other is measured; 0 = all */
    int only_speed;                 /* ... or everything else */
    int not_first;                  /* another job measures what does not depend on the shape */
    double budget;                  /* work units for one property at one shape; 0 = the default */
    double launch_seconds;          /* a launch that takes longer hangs; 0 = the default, 20 */
    const struct ds_kernel *vendor; /* to be compared with in speed; NULL = none */
    uint64_t seed;
};

/* Measures everything about k at *shape. *out says what was found, crashes included; -1 only when
 * the lab itself failed (memory, fork). The caller must have no other thread. */
int ds_check_run(const struct ds_kernel *k, const struct ds_shape *shape,
                 const struct ds_check_options *opt, struct ds_check_result *out,
                 struct ds_error *err);

/* One variant at one shape. */
struct ds_check_job {
    const struct ds_kernel *kernel;
    const struct ds_shape *shape;
    const struct ds_kernel *vendor; /* instead of the options' */
    struct ds_check_result *result;
};

/* Measures all jobs, so many at a time in processes of their own; speed at the end, alone.
 * progress(arg, done) is called now and then, done in 0..1; may be NULL. */
int ds_check_many(const struct ds_check_job *job, size_t n, const struct ds_check_options *opt,
                  int workers, void (*progress)(void *arg, double done), void *arg,
                  struct ds_error *err);

/* The first property that is broken and must not be (a claim, or one that always counts); -1 =
 * none. A fault of memory counts as DS_PROPERTY_MEMORY. */
int ds_check_failure(const struct ds_kernel *k, const struct ds_check_result *r);

/* Whether a launch ended its process in another way than by touching memory of an array. */
int ds_check_died(const struct ds_check_result *r);

#endif
