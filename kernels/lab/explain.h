/* explain.h: why two calls of a kernel gave a row other bits. Given arrays: what the kernel read for
 * the row, what it wrote in both calls, and where the row stood in them. Knows no record and no
 * model, and prints nothing. Start at ds_explain_run. */
#ifndef DS_LAB_EXPLAIN_H
#define DS_LAB_EXPLAIN_H

#include "base/choice.h"
#include "base/error.h"
#include "kernels/lab/any_args.h"
#include "kernels/lab/order_tree.h"

#include <stddef.h>
#include <stdint.h>

/* A is the reference, B the side that differs from it. */
enum { DS_SIDE_A = 0, DS_SIDE_B, DS_SIDES };

/* What a kernel reads for one row, beside what all rows share. Borrowed. */
struct ds_explain_input {
    const float *in[2]; /* x; or gate and up, a and b, q; combine: x and weights */
    int32_t number;     /* rope: position in the table; embed: token id; process: position */
    const float *k,
        *v;           /* attention: visible slots kv_first .. slot, [slots][kv_heads * head_dim] */
    int32_t slot;     /* attention: of the row, pads counted */
    int32_t kv_first; /* attention: its pads */
    /* process: the tokens of the row's request up to the row itself; 1: the row was not computed in
     * this call but is in the cache of prefixes */
    const int32_t *tokens;
    int32_t n_tokens, request, step, cached;
};

/* Where the row stood in one side's call. */
struct ds_explain_at {
    uint32_t call;                  /* rows with the same number were in one call */
    int64_t rows;                   /* of the call, as the kernel saw it */
    int64_t row;                    /* the row's own */
    int32_t n_sequences;            /* attention, cache: of the call */
    int32_t q_first, q_len, kv_len; /* of the row's own sequence */
};

struct ds_explain_row {
    struct ds_explain_input input[DS_SIDES];
    struct ds_explain_at at[DS_SIDES];
    const float *y[DS_SIDES]; /* as stored, made f32; ids as bits */
};

struct ds_explain_side {
    const struct ds_kernel *kernel; /* NULL: not here */
    int threads;
    int dtype; /* enum ds_dtype to which outputs are rounded */
    int stored; /* enum ds_dtype in which a device has activations, where all of its kernels take that; f32 else */
    char core[24]; /* OpenBLAS core; "" = the library's choice */
    int device,
        device_number; /* enum ds_device_kind, and which of its kind; CPU: whichever is in use */
    int32_t ranks;     /* matmul: that share K, each with a partial sum of its own; 0: none */
    const struct ds_kernel *reduce; /* what adds those up */
    int draws;                      /* process, sample: by this sampler; else the largest logit */
    struct ds_sampler sampler;
};

/* Weights of the model that have the sizes of a matmul's own. Borrowed. */
struct ds_explain_weight {
    const char *name;
    const float *data;
};

struct ds_explain {
    int op;
    union ds_any_args shared; /* sizes, weights, tables; no rows */
    int64_t page_size;        /* attention, cache; 0 = one page a request */
    /* attention: the pages of a replay are numbered from here on, in reverse if turned; not known of a record. */
    int32_t first_page, pages_turned;
    struct ds_explain_side side[DS_SIDES];
    struct ds_explain_row *rows;
    size_t n_rows;
    int weights; /* router: the outputs are the weights of its choices, not their ids */
    const struct ds_explain_weight *others; /* matmul: what it may have read instead */
    size_t n_others;
    /* NULL, or of every row of a call 1: it holds something else, four times as large. The rows given are then
     * those of one call. */
    const uint8_t *vary;
};

/* Whether a row of this op can be brought into a call again. */
int ds_explain_knows(int op);
/* Whether its outputs are choices: ids (as bits), not values. */
int ds_explain_chooses(int op);
/* Elements of input i of a row (0: the op has no such input), and of the output. */
int64_t ds_explain_width_in(int op, const union ds_any_args *shared, int i);
int64_t ds_explain_width(int op, const union ds_any_args *shared);

/* Launches of this process are on the side's device from now on: for a child process that does nothing else. */
void ds_explain_take_device(const struct ds_explain_side *s);

/* Launches `kernel` as one side's calls were: as many rows, the given ones in their places with that
 * side's inputs, others beside them, `threads` threads. y: [n_rows][width], rounded to the side's
 * dtype. `seed`: of kernels that imitate races. -1: the kernel refused, or no memory. */
int ds_explain_run(const struct ds_explain *e, int side, const struct ds_kernel *kernel,
                   uint64_t seed, float *y, struct ds_error *err);

/* The same in a child process with that side's OpenBLAS core: a crash or a hang has a text. 0: y is
 * filled; 1: it could not be run, `why` says why; -1: the lab failed. The caller has no other
 * thread. */
int ds_explain_replay(const struct ds_explain *e, int side, const struct ds_kernel *kernel,
                      uint64_t seed, float *y, char *why, size_t why_size, struct ds_error *err);

/* How many elements of all rows a replay gives bit for bit. */
struct ds_explain_match {
    uint64_t elements, drifting;   /* in all; where A and B differ */
    uint64_t same[DS_SIDES];       /* of all elements: those with A's bits, with B's bits */
    uint64_t drift_same[DS_SIDES]; /* of the drifting ones */
};
/* y NULL: only counts the elements. */
void ds_explain_match(const struct ds_explain *e, const float *y, struct ds_explain_match *out);

/* ---- in which order a side added (explain_order.c) ------------------------------------------- */

struct ds_explain_tree {
    struct ds_tree tree;
    char sum[16], unit[16]; /* "products", "k" */
    char words[1024];
    uint64_t elements; /* of the rows explained that are added so */
};

struct ds_explain_order {
    char why[256];                /* why nothing was measured; "" */
    int broke_off;                /* it was begun: `why` is how the kernel, or its process, ended */
    int fixed, repeats, agreeing; /* of calls repeated on the same data */
    struct ds_explain_tree *trees;
    size_t n_trees;
    int borrowed; /* the trees are the other side's: they give every bit of this side, too */
    int ranks;    /* of a matmul that ranks share: the trees are of one rank, then of their sum */
    int rounded;  /* there: the format of partial sums, enum ds_dtype */
    int replayed; /* y is filled */
    int32_t *tree_of; /* [n_rows][width]; -1: its order was not found */
    int32_t *den_of,
        *scores_of;  /* softmax, attention: [n_rows] of the denominator, of q.k; else -1 */
    int32_t *cut_of; /* the same: in which of several ways its tree is cut into parts */
    int32_t *sum_of; /* with ranks: [n_rows][width] the tree of the sum over them; else NULL */
    int clipped; /* attention with a window: trees of the slots in it, not of all up to the row */
    char not_replayed[128]; /* why y is not filled although there are trees; "" */
    float *y; /* [n_rows][width]: each element added on the row's own inputs by its tree */
    int form; /* rmsnorm: how the output follows from the sum, ds_norm_finish; softmax, attention: from
                 the scores, ds_weigh_form_text; of ops that add nothing up: how an element is computed,
                 ds_each_text */
    struct ds_explain_match match;
};

/* How rmsnorm gets from the sum s of squares to the output: the mean by division or by a product
 * with 1 / width, then one of three ways to scale. Forms from DS_NORM_FORMS on are the same with the
 * first product, or the quotient, rounded to `dtype` (enum ds_dtype) before it goes on. */
enum { DS_NORM_FORMS = 6, DS_NORM_CAST_FORMS = 12 };
float ds_norm_finish(int form, int dtype, float sum, int64_t width, float eps, float x,
                     float weight);
/* "x * (1 / sqrt(s / n + eps)) * w" */
const char *ds_norm_form_text(int form);

/* Measures the order of one side's kernel as it was launched, in a child process, then adds the
 * rows' inputs in that order. A kernel whose order cannot be measured is a result, not an error. */
int ds_explain_order(const struct ds_explain *e, int side, struct ds_explain_order *out,
                     struct ds_error *err);
/* Of a side whose order cannot be seen from outside, as where a norm's output is rounded to few bits on
 * the way: the other side's trees, if they give every bit of it. */
int ds_explain_order_borrow(const struct ds_explain *e, int side, struct ds_explain_order *o,
                            const struct ds_explain_order *other, struct ds_error *err);
void ds_explain_order_free(struct ds_explain_order *o);
int ds_explain_order_copy(const struct ds_explain_order *from, size_t elements,
                          struct ds_explain_order *to, struct ds_error *err);
/* explain_ranks.c: the two above for a side whose matmul is shared among ranks. */
int ds_explain_ranks_run(const struct ds_explain *e, int side, const struct ds_kernel *kernel,
                         uint64_t seed, float *y, struct ds_error *err);
int ds_explain_ranks_order(const struct ds_explain *e, int side, struct ds_explain_order *out,
                           struct ds_error *err);
/* explain_add.c: fills o->y from trees and tree_of, on that side's inputs. */
int ds_explain_add(const struct ds_explain *e, int side, struct ds_explain_order *o,
                   struct ds_error *err);

/* explain_weigh.c: of softmax and attention: looks for the way from scores to outputs that gives this
 * side's bits along its trees, and fills o->y only if it gives all of them. */
int ds_explain_weighs(int op);
int ds_explain_weigh(const struct ds_explain *e, int side, struct ds_explain_order *o,
                     struct ds_error *err);
/* "exp of libm, one maximum, divided by the sum" */
void ds_weigh_form_text(int form, char *text, size_t size);

/* explain_each.c: of ops whose elements stand alone, rope, silu_mul, add and copies: looks for the way to
 * compute one that gives every bit of this side, and fills o->y only if there is one. */
int ds_explain_stands_alone(int op);
int ds_explain_each(const struct ds_explain *e, int side, struct ds_explain_order *o,
                    struct ds_error *err);

/* ---- against the exact result (explain_exact.c) ---------------------------------------------- */

/* What the formula gives for every element of the rows on A's inputs, with no rounding that matters.
 * exact: [n_rows][width]. */
int ds_explain_exact(const struct ds_explain *e, double *exact, struct ds_error *err);

struct ds_explain_accuracy {
    uint64_t elements; /* where both sides and the exact value are finite */
    double mean_ulp[DS_SIDES], max_ulp[DS_SIDES]; /* of the stored format */
    uint64_t nearer[DS_SIDES], even;              /* of the elements that differ */
};
void ds_explain_accuracy(const struct ds_explain *e, const double *exact,
                         struct ds_explain_accuracy *out);

/* explain_copy.c: ops that hand rows on as they are: elements of a side that are not what was read. */
struct ds_explain_copy {
    uint64_t elements, others, rows; /* rows: with others */
    int64_t first, last;             /* columns of the others */
    uint64_t zeros, bf16, f16;       /* of the others: 0; what was read, rounded */
};
int ds_explain_copies(int op);
void ds_explain_copied(const struct ds_explain *e, int side, struct ds_explain_copy *out);
/* "128 of 768 elements are not what was read: in 2 of 8 rows, elements 0 to 63; they are 0" */
void ds_explain_copy_text(const struct ds_explain *e, const struct ds_explain_copy *c, char *text,
                          size_t size);

/* ---- how large a difference other orders and other formats make (explain_model.c) ------------- */

/* How factors are rounded before they are multiplied; the last two round partial sums instead. Of few
 * bits: with a scale for each block, row, or for all weights (x is by row then); fp8 also without. */
enum ds_explain_format {
    DS_FORMAT_TF32 = 0,
    DS_FORMAT_TF32_CUT,
    DS_FORMAT_BF16,
    DS_FORMAT_F16,
    DS_FORMAT_FP8, /* by row */
    DS_FORMAT_FP8_BARE,
    DS_FORMAT_FP8_TENSOR,
    DS_FORMAT_Q8,
    DS_FORMAT_Q8_ROW,
    DS_FORMAT_Q8_TENSOR,
    DS_FORMAT_Q4,
    DS_FORMAT_Q4_ROW,
    DS_FORMAT_Q4_TENSOR,
    DS_FORMAT_INPUTS, /* so many of inputs */
    DS_FORMAT_BF16_SUMS = DS_FORMAT_INPUTS,
    DS_FORMAT_F16_SUMS,
    DS_FORMAT_COUNT
};
const char *ds_explain_format_name(int format); /* "TF32", "bf16 partial sums" */

struct ds_explain_range {
    double least, median, most;
};

/* What inputs in one format give, in double. */
struct ds_explain_rounded {
    int format, which;     /* which: 1 x, 2 w, 3 both */
    double shift;          /* rms of (rounded inputs - inputs) over the elements */
    double middle, most;   /* median and largest of it */
    double rest[DS_SIDES]; /* rms of (side - rounded inputs) */
};

/* Wrong data that accounts for all values of a side (explain_data.c). */
enum ds_guess_kind {
    DS_GUESS_NONE = 0,
    DS_GUESS_ROW,     /* row `a` of those explained is what row `b` should be */
    DS_GUESS_COLUMNS, /* element i is what element i + a should be */
    DS_GUESS_BIAS,    /* the bias of column j is `value` times that of column j + a, in circles */
    DS_GUESS_TERMS,   /* the terms a..b-1 are there once more (value 1), or are not (-1) */
    DS_GUESS_WEIGHT,  /* of column a the weight of term b is `value` */
    DS_GUESS_TRANSPOSED, /* weights are read the other way round */
    DS_GUESS_WEIGHTS,    /* they are those of others[a] */
    DS_GUESS_BLOCKS,     /* blocks of `b` weights are unpacked wrongly: enum ds_block_fault a */
    DS_GUESS_SCALES, /* blocks of `b` weights have other scales or zero points: enum ds_scales a */
    DS_GUESS_TOKENS, /* embed: rows are other tokens' vectors, the first that of a, not b */
    DS_GUESS_NORM,   /* a norm's weight is left out (a 0), applied twice (1), has 1 added (2) */
    DS_GUESS_FEW_BITS, /* a bias, or a norm's weight, is rounded */
    /* The terms a, a + b, a + 2b, ... are missing. */
    DS_GUESS_STRIDED,
    /* Factors are cut, or lack their sign, before they are multiplied; a bias goes by the row. */
    DS_GUESS_FACTORS,
    DS_GUESS_PART /* of the terms a..b-1 alone the factors are rounded, to the format `value` */
};
/* All weights are `value` steps of their block off; each block has a factor, or an offset, of its own. */
enum ds_scales { DS_SCALES_STEPS, DS_SCALES_FACTORS, DS_SCALES_OFFSETS };
/* Of the blocks into which a row of quantised weights is cut: the scale is that of the next block, or of the
 * one before; the two halves are exchanged; neighbours are; the row begins a block too late. */
enum ds_block_fault {
    DS_BLOCK_NEXT_SCALE,
    DS_BLOCK_SCALE_BEFORE,
    DS_BLOCK_HALVES,
    DS_BLOCK_PAIRS,
    DS_BLOCK_NEXT,
    DS_BLOCK_FAULTS
};
enum { DS_GUESS_MOST_ROWS = 4096 };
struct ds_explain_guess {
    int kind; /* enum ds_guess_kind */
    int64_t a, b;
    double value;
    /* Of which it holds: a bit for each row explained. The others are what they should be. */
    uint64_t rows[DS_GUESS_MOST_ROWS / 64];
    int precision; /* it is fewer bits, no other data */
    /* nothing was found, and so many rows would tell scales of blocks of weights; 0: they would not */
    int64_t rows_wanted;
    char text[160]; /* "the terms k = 568..575 are missing"; "" */
};

enum { DS_EXPLAIN_ORDERS = 32, DS_EXPLAIN_ROUNDED = 3 * DS_FORMAT_INPUTS };
struct ds_explain_noise {
    int64_t terms;                      /* of a sum; 0: the op adds nothing up */
    size_t elements;                    /* sampled */
    double size;                        /* rms of the exact values */
    double error[DS_SIDES], difference; /* rms: of a side off the exact value, of B - A */
    struct ds_explain_range order_error, order_difference; /* f32, random orders, this input */
    struct ds_explain_range sums_error[DS_FORMAT_COUNT - DS_FORMAT_INPUTS];
    struct ds_explain_rounded rounded[DS_EXPLAIN_ROUNDED];
    size_t n_rounded;
    double gamma[DS_SIDES];     /* largest |error| / (gamma_K * sum |x w|): above 1 excludes f32 */
    uint64_t outside[DS_SIDES]; /* elements off by 16 times what any of the orders gave */
    double typical[DS_SIDES];   /* median of that multiple */
    /* Elements off by 8 times what any order or format gave them, and by twice what formats that are
     * as far off as this side gave any. */
    uint64_t beyond[DS_SIDES];
    uint64_t nonfinite[DS_SIDES];
    /* Each row is the exact one times a factor: the farthest from 1; 0: no. */
    double ratio[DS_SIDES];
    int block_bits[DS_SIDES], block_size[DS_SIDES]; /* ds_explain_blocks */
    struct ds_explain_copy copy[DS_SIDES];          /* where the op copies */
    struct ds_explain_guess guess[DS_SIDES];        /* wrong data that would give these values */
};
int ds_explain_noise(const struct ds_explain *e, const double *exact, struct ds_explain_noise *out,
                     struct ds_error *err);

/* explain_data.c: looks for simple wrong data that explains a side's values: terms left out or added
 * twice, another row, other columns, a bias left out or another one, one wrong weight. noise: how far
 * off f32 may be. */
int ds_guess_has(const struct ds_explain_guess *g, size_t row);
int ds_explain_data(const struct ds_explain *e, const double *exact, int side, double noise,
                    struct ds_explain_guess *guess, struct ds_error *err);

/* explain_weights.c: of a matmul: whether other weights give all values of the guess's rows, off by no more than
 * noise: 1, and "the weights are those of blk.1.attn_k.weight"; -1: no memory. */
int ds_explain_weights(const struct ds_explain *e, int side, double noise,
                       struct ds_explain_guess *guess, struct ds_error *err);
/* explain_scales.c: of a matmul: the same of blocks whose scales or zero points are off. */
int ds_explain_scales(const struct ds_explain *e, int side, double noise,
                      struct ds_explain_guess *guess, struct ds_error *err);
/* explain_factors.c: of a matmul: the same of factors that were changed one by one. */
int ds_explain_factors(const struct ds_explain *e, const double *exact, int side, double noise,
                       struct ds_explain_guess *guess, struct ds_error *err);
/* explain_part.c: of a matmul: the same of factors that are rounded in one stretch of terms. */
int ds_explain_part(const struct ds_explain *e, const double *exact, int side, double noise,
                    struct ds_explain_guess *guess, struct ds_error *err);
/* explain_tables.c: the same of an embedding's rows, and of a norm's weight. 1 or 0. */
int ds_explain_tables(const struct ds_explain *e, const double *exact, int side, double noise,
                      struct ds_explain_guess *guess);
/* A row of k weights in blocks that are unpacked so. A block's scale is its largest weight. */
void ds_explain_block_weights(int fault, int64_t size, const float *w, int64_t k, float *to);

/* explain_data.c: of a copy of rows (cache): whether all values of a side are whole steps of a scale
 * that their block has, none further than a step from what was read. *bits 0: no. */
void ds_explain_blocks(const struct ds_explain *e, int side, int *bits, int *size);

/* ---- what follows (explain_judge.c; pure) ---------------------------------------------------- */

enum ds_explain_kind {
    DS_EXPLAIN_UNKNOWN = 0,
    DS_EXPLAIN_ROUNDING_ORDER,
    DS_EXPLAIN_LOWER_PRECISION,
    DS_EXPLAIN_DIFFERENT_ALGORITHM,
    DS_EXPLAIN_WRONG_DATA,
    DS_EXPLAIN_NON_FINITE,
    DS_EXPLAIN_SELECTION_ONLY,
    DS_EXPLAIN_SAME_VALUES /* bits differ, values do not */
};
/* What a claim rests on, weakest first: the size of a difference; something that accounts for the
 * values, and leaves only rounding over; the same without any number that was fitted, since the model has what
 * gives them; bits, which a replay gives. */
enum ds_explain_basis {
    DS_BASIS_NONE = 0,
    DS_BASIS_SIZE,
    DS_BASIS_FIT,
    DS_BASIS_NAMED,
    DS_BASIS_BITS
};
const char *ds_explain_kind_name(int kind); /* "rounding-order" */

struct ds_explain_verdict {
    int kind;
    int basis;     /* enum ds_explain_basis */
    int side;      /* whose fault it is; -1: neither, or not known */
    int format;    /* lower-precision: of whose numbers, enum ds_explain_format; -1 not known */
    char why[400]; /* the evidence, one sentence without a full stop */
};
/* The format that explains a side: what it leaves over is f32 noise, without it there is more. NULL: none. */
const struct ds_explain_rounded *ds_explain_format_of(const struct ds_explain_noise *n, int side);
/* order: [DS_SIDES]. */
void ds_explain_judge(const struct ds_explain *e, const struct ds_explain_order *order,
                      const struct ds_explain_noise *noise, struct ds_explain_verdict *out);
/* ---- choices (explain_choice.c; pure) --------------------------------------------------------- */

enum { DS_CHOICE_RULES = 12 };
struct ds_explain_choice {
    uint64_t rows, differing, tied; /* rows whose choices differ; tied: the first ids exchanged
                                        there have equal logits on A's side */
    uint64_t given[DS_SIDES]
                  [DS_CHOICE_RULES]; /* rows whose ids a rule gives, from that side's logits */
    /* Rows whose choices have the values of the largest, whatever wins a tie. */
    uint64_t by_value[DS_SIDES];
    int rule[DS_SIDES]; /* the simplest rule that gives all rows; -1: none */
    size_t row;         /* the first row that differs: A chose a where B chose b */
    int32_t a, b;
    double margin; /* of their logits, A's side */
    /* Where no rule gives a side's: of which part of the logits they are the largest; "". */
    char part[DS_SIDES][DS_CHOICE_TEXT];
};
/* Of ops that choose (ds_explain_chooses). */
int ds_explain_choose(const struct ds_explain *e, struct ds_explain_choice *out,
                      struct ds_error *err);
/* "the 2 largest of the logits rounded to bf16" */
void ds_explain_rule_text(int rule, int64_t n, char *text, size_t size);
void ds_explain_judge_choice(const struct ds_explain *e, const struct ds_explain_choice *c,
                             int inputs_equal, struct ds_explain_verdict *out);

/* ---- what the other rows of a call do (explain_others.c) ------------------------------------- */

struct ds_explain_others {
    uint64_t elements,
        moved;      /* of the rows asked about; that come out otherwise with other rows beside */
    size_t target;  /* the first row that does, and of its call: */
    int64_t guilty; /* a row that must change for that; -1: none was found */
    int64_t needed; /* so many rows must change together; 1: the guilty one is enough */
    int64_t alone;  /* rows each of which is enough */
};
/* Of a side's kernel, which is here, whose launches agree. */
int ds_explain_others(const struct ds_explain *e, int side, struct ds_explain_others *out,
                      struct ds_error *err);
/* ---- which pages hold the keys (explain_pages.c) --------------------------------------------- */

/* Attention: whether a side's own kernel gives other bits when the same keys and values lie on other pages of the cache. */
struct ds_explain_pages {
    uint64_t elements, moved; /* of all rows; that come out otherwise with the first numbers that move any */
    uint64_t own;             /* elements that then have the side's recorded bits: the most, over all numbers */
    int32_t first, turned;    /* those numbers: from `first` on, in reverse */
};
/* Of a side's kernel, which is here, whose launches agree. moved 0: none was found, or it could not be asked. */
int ds_explain_pages(const struct ds_explain *e, int side, struct ds_explain_pages *out,
                     struct ds_error *err);

/* What replaces a claim that was made of the rows alone, unless the measured orders gave both sides. who:
 * what is known of the guilty row, such as "padding"; "". */
void ds_explain_judge_others(const struct ds_explain *e, const struct ds_explain_order *order,
                             int side, const struct ds_explain_others *others, const char *who,
                             struct ds_explain_verdict *out);

#endif
