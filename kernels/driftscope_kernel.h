/* driftscope_kernel.h: the contract between driftscope and a kernel.
 *
 * Usable alone, from C and C++: it includes nothing of the project. All pointers are borrowed for
 * the call; a kernel owns only what its own `prepare` returned. Sizes are in elements unless the
 * name says bytes. Matrices are row-major; a row is one token. Kernels never print, never exit, and
 * leave the floating-point environment as they found it.
 *
 * Every kernel states, in its head comment, the order in which it adds and where it rounds.
 */
#ifndef DRIFTSCOPE_KERNEL_H
#define DRIFTSCOPE_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DS_KERNEL_ABI 5

/* The kernel families. */
enum ds_op {
    DS_OP_EMBED = 0,
    DS_OP_RMSNORM,
    DS_OP_MATMUL,
    DS_OP_ROPE,
    DS_OP_CACHE,
    DS_OP_ATTENTION,
    DS_OP_SOFTMAX,
    DS_OP_SILU_MUL,
    DS_OP_ADD,
    DS_OP_ROUTER,
    DS_OP_COMBINE,
    DS_OP_ALLREDUCE,
    DS_OP_SAMPLE, /* argmax, or a token drawn */
    DS_OP_CUSTOM, /* anything else: the kernel declares its tensors */
    DS_OP_TRANSFER,
    DS_OP_SCHEDULE, /* where the rows of a call stand: positions, lengths, cache pages */
    DS_OP_PROCESS,  /* logits -> the logits that a token is chosen from */
    DS_OP_COUNT
};

/* How elements are stored. f16 and bf16 are rounded to nearest even from f32, subnormals kept; every
 * NaN is stored as 7e00 or 7fc0.
 *
 * An op's struct says in `stored` how the activations among its arrays lie in memory: the rows that
 * it reads and writes, and the KV cache. They are declared float *, which holds for f32 (0, the
 * default); else they point at 16-bit elements. Sizes and leading dimensions count elements either
 * way. A caller stores in 16 bits only where the kernel has DS_FEATURE_STORED; any other kernel gets
 * f32 arrays, and the caller rounds what it wrote. Both give the same bits: a kernel computes and
 * adds in f32 and rounds once, when it stores (but see DS_FEATURE_OWN_FORMATS). Weights, tables, biases,
 * logits that a token is chosen from, the weights of experts and log-sum-exp are f32 always. */
enum ds_element { DS_ELEMENT_F32 = 0, DS_ELEMENT_F16, DS_ELEMENT_BF16, DS_ELEMENT_I32 };

/* Where a kernel runs. A variant belongs to one device: matmul/pinned of the CPU and matmul/pinned of sim
 * are two. sim runs the text of CUDA kernels on the CPU, thread by thread. */
enum ds_device_kind { DS_DEVICE_CPU = 0, DS_DEVICE_SIM, DS_DEVICE_CUDA, DS_DEVICE_KINDS };

/* Where the arrays of the arguments lie that a kernel reads and writes. */
enum ds_memory_space {
    DS_MEMORY_HOST = 0, /* this machine's memory: on the CPU and on sim */
    DS_MEMORY_DEVICE    /* the device's: not to be touched by the launch function itself */
};

/* What a kernel promises about its output bits; `check` holds it to them. */
enum ds_claim {
    DS_CLAIM_REPEAT = 1,  /* the same call gives the same bits again */
    DS_CLAIM_BATCH = 2,   /* a row's bits do not depend on the number of rows in the call */
    DS_CLAIM_SLOT = 4,    /* ... nor on its position in the call or on its neighbours' content */
    DS_CLAIM_THREADS = 8, /* ... nor on the number of threads */
    DS_CLAIM_CHUNK = 16,  /* ... nor on how a sequence was cut into calls (prefill = decode) */
    DS_CLAIM_ALL = 31
};

/* What a kernel can do beyond its op's plain form. A caller asks for nothing that is not declared
 * here. */
enum ds_feature {
    DS_FEATURE_WINDOW = 1,        /* attention: sliding window */
    DS_FEATURE_SOFT_CAP = 2,      /* attention: soft_cap * tanh(score / soft_cap) */
    DS_FEATURE_SINKS = 4,         /* attention: one more logit a head in the denominator */
    DS_FEATURE_LSE = 8,           /* attention: writes the log-sum-exp of every row and head */
    DS_FEATURE_UNROUNDED = 16,    /* reads its inputs as they were before they were rounded to the
                                  activation type, as a kernel fused with its producer does */
    DS_FEATURE_FILE_WEIGHTS = 32, /* matmul: prepare and launch need w.file_data only, w.data may be
                                     NULL, and give the bits that they give on those f32 numbers: how
                                     weights are kept changes no result. File types that it does not
                                     read are refused: by prepare, or by launch where there is none */
    DS_FEATURE_STORED =
        64, /* takes activations that are stored as bf16 or f16, with the bits that it gives on f32
               arrays of the same values: see enum ds_element */
    DS_FEATURE_SAMPLER =
        128, /* process, sample: does what args.sampler says at temperatures above 0 */
    DS_FEATURE_PACKED =
        256, /* matmul: once a weight was prepared, launch reads what prepare made of it
                                and nothing else: w.data may be NULL by then */
    DS_FEATURE_OWN_FORMATS =
        512 /* with STORED or FILE_WEIGHTS: another format is another problem to it, with bits of its own
                (libraries that choose an algorithm by it); without, it promises equal bits */
};

/* Where a kernel runs and what it may use. `run` executes fn(arg, i, threads) once for every i in
 * 0..threads-1, in parallel, and returns when all are done; it must not be nested. */
struct ds_exec {
    int threads;
    void *team;
    void (*run)(void *team, void (*fn)(void *arg, int thread, int threads), void *arg);
    uint64_t seed; /* differs from call to call; only for kernels that imitate races */
    /* Not NULL when schedules are disturbed: a kernel whose threads meet may call it, on any
     * thread, wherever another thread may overtake. */
    void (*pause)(void *pause_arg, int thread);
    void *pause_arg;
    int32_t dtype; /* enum ds_element: the activation type. The caller rounds outputs to it; inputs
                      hold values of it, unless the kernel has DS_FEATURE_UNROUNDED */
    void *scratch; /* the workspace: at least what the kernel's scratch_bytes() asked for, 64-byte
                      aligned, contents undefined; in the memory of the arguments' arrays */
    size_t scratch_bytes;
    void *
        stream; /* a device's queue, on which a launch is put in order (CUDA: a cudaStream_t); NULL on
                     the CPU and on sim, where a launch is done when it returns */
    int32_t shown;  /* 1: what is computed is shown to a probe. Engines that are asked for hidden
                      states or log-probabilities take other paths; a kernel may imitate that */
    int32_t memory; /* enum ds_memory_space */
    int32_t multiprocessors; /* that a launch may fill, for kernels that split their work by it;
                                0 = all that the device has */
};

/* The launch choice made for given arguments, stored with every capture. Zero or "" = does not
 * apply. */
struct ds_launch_info {
    int32_t tile_rows, tile_cols, tile_k;
    int32_t split;   /* parts into which a sum is cut */
    int32_t threads; /* threads that take part, as far as the kernel knows; 0 = unknown */
    char algo[32];   /* algorithm or library core, e.g. "Haswell" */
};

/* Weights of one matmul as the model holds them: f32 [n][k], row-major, immutable for the model's
 * life; and, where they come from a file, the same values as they lie in it, n rows of whole
 * blocks. */
struct ds_weight_view {
    const float *data; /* NULL only for kernels with DS_FEATURE_FILE_WEIGHTS */
    int64_t n, k;
    const void *file_data; /* NULL when unknown */
    int32_t file_type;     /* number of the tensor type as GGUF defines it: 0 F32, 1 F16, 2 Q4_0,
                              3 Q4_1, 8 Q8_0, 30 BF16; meaningless without file_data */
};

/* y[r][:] = table[ids[r]][:] */
struct ds_embed_args {
    const float *table; /* [vocab][width] */
    int64_t vocab, width, rows;
    const int32_t *ids; /* [rows], each in 0..vocab-1 (checked by the caller) */
    float *y;           /* [rows][ldy] */
    int64_t ldy;
    int32_t stored; /* enum ds_element: of y */
};

/* y[r][i] = x[r][i] / sqrt(mean(x[r]^2) + eps) * weight[i] */
struct ds_rmsnorm_args {
    int64_t rows, width;
    const float *x;
    int64_t ldx;
    const float *weight; /* [width] */
    float eps;
    float *y;
    int64_t ldy;
    int32_t stored; /* enum ds_element: of x and y */
};

/* y[r][j] = sum_k x[r][k] * w[j][k] (+ bias[j], added last) */
struct ds_matmul_args {
    int64_t rows, n, k;
    const float *x;
    int64_t ldx;
    struct ds_weight_view w;
    const void *prepared; /* what this kernel's prepare returned for w; NULL if it has none */
    const float *bias;    /* [n] or NULL */
    float *y;
    int64_t ldy;
    int32_t stored;   /* enum ds_element: of x */
    int32_t y_stored; /* of y: as x, or f32 (logits, partial sums) */
};

/* Rotates pairs of the first rope_dim channels of every head in place of a copy: y = rotate(x).
 * Channels from rope_dim on are copied. cos_sin holds for each table position p and pair i: cos,
 * sin at [(p * rope_dim/2 + i) * 2]. */
struct ds_rope_args {
    int64_t rows, heads, head_dim, rope_dim;
    int neox;                 /* 0: pairs (2i, 2i+1); 1: pairs (i, i + rope_dim/2) */
    const int32_t *positions; /* [rows], each < table_positions */
    const float *cos_sin;
    int64_t table_positions;
    const float *x;
    int64_t ldx;
    float *y;
    int64_t ldy;
    int32_t stored; /* enum ds_element: of x and y */
};

/* One request's part of a call, as attention and the cache see it. Query rows
 * q_first..q_first+q_len-1 of the call belong to it and sit at cache slots kv_len-q_len..kv_len-1.
 * Slot s is visible to the query at slot t iff kv_first <= s <= t. Slots below kv_first are left
 * padding: a query row there sees nothing. Slot s lives in cache row pages[s / page_size] *
 * page_size + s % page_size. */
struct ds_sequence {
    int32_t request;
    int32_t q_first, q_len;
    int32_t kv_len;   /* slots in use after this call's rows were written */
    int32_t kv_first; /* first visible slot = number of left-padding rows */
    const int32_t *pages;
};

/* What the engine knows of a sequence's past when it plans a call. */
struct ds_schedule_past {
    int32_t before;  /* slots in use before the call */
    int32_t trimmed; /* slots given back since the request's last call: of rejected drafts, of right
                        padding */
    int32_t cached;  /* slots of the call's prompt that an earlier pass left in the cache (a prefix
                        hit), in the first call that uses them; else 0 */
    int32_t extra; /* so many of the call's rows, the last ones, are drafts or right padding: their
                        slots are given back after it */
};

/* Says where the rows of a call stand, before it runs. In and out: the engine fills everything in,
 * rightly; a variant may change positions, the sequences' kv_len and kv_first, and page numbers. The
 * engine checks what comes back (positions inside the table, q_len <= kv_len <= capacity, kv_first
 * within kv_len, pages inside the cache) and ends the trial with an error where it does not hold;
 * else it goes by it, in this call and in its count of slots in use. Row i of a sequence is written
 * to slot kv_len - q_len + i. */
struct ds_schedule_args {
    int64_t rows;
    int32_t *positions; /* [rows], each < table_positions */
    int64_t table_positions;
    struct ds_sequence *sequences; /* request, q_first, q_len and pages (the pointer) stay */
    int64_t n_sequences;
    const struct ds_schedule_past *past; /* [n_sequences] */
    int32_t *page_table; /* [n_sequences][pages_each]: what the sequences' pages point at */
    int64_t pages_each, page_size, pages; /* as in struct ds_cache_args */
    int64_t capacity;                     /* slots a sequence may have */
    int32_t phase;                        /* 0 prefill, 1 decode */
    int32_t call;                         /* number of the call in its trial, from 0 */
};

/* Writes this call's k or v rows into the cache. */
struct ds_cache_args {
    int64_t rows, width;
    const float *x;
    int64_t ldx;
    float *cache; /* [pages * page_size][width] */
    int64_t page_size, pages;
    const struct ds_sequence *sequences; /* the host's, as in struct ds_attention_args */
    int64_t n_sequences;
    const struct ds_sequence *device_sequences;
    int64_t head_dim; /* width = heads side by side, each of so many channels; 0 = one head */
    int32_t stored;   /* enum ds_element: of x and cache */
};

/* Causal softmax attention with grouped KV heads: head h reads KV head h / (heads / kv_heads).
 * y[row][h] = sum_s softmax_s(scale * q.k_s) v_s over the visible slots; a row with none gives +0.
 */
struct ds_attention_args {
    int64_t rows, heads, kv_heads, head_dim;
    float scale;
    const float *q; /* [rows][ldq], heads side by side */
    int64_t ldq;
    const float *cache_k, *cache_v; /* [pages * page_size][kv_heads * head_dim] */
    int64_t page_size, pages;
    /* In ascending q_first, covering all rows. They and their pages are the host's, for the launch
     * function; what a kernel on a device reads is the same again in the device's memory, pages
     * included. NULL where the arrays are the host's: then there is one copy for both. */
    const struct ds_sequence *sequences;
    int64_t n_sequences;
    const struct ds_sequence *device_sequences;
    int32_t max_q_len, max_kv_len;
    float *y; /* [rows][ldy] */
    int64_t ldy;
    /* Beyond the plain form: see enum ds_feature. */
    int32_t window;     /* the query at slot t sees slots above t - window only; 0 = all */
    float soft_cap;     /* scores become soft_cap * tanh(score / soft_cap); 0 = none */
    const float *sinks; /* [heads]: exp(sink) joins the denominator, no value; NULL = none */
    float *lse;         /* [rows][heads]: log of the denominator, -infinity for a row that sees
                           nothing; NULL = not wanted */
    int32_t stored;     /* enum ds_element: of q, cache_k, cache_v and y */
};

/* y[r][i] = exp(x[r][i] - max) / sum over the row */
struct ds_softmax_args {
    int64_t rows, width;
    const float *x;
    int64_t ldx;
    float *y;
    int64_t ldy;
    int32_t stored; /* enum ds_element: of x and y */
};

/* y = silu(gate) * up, silu(g) = g / (1 + exp(-g)) */
struct ds_silu_mul_args {
    int64_t rows, width;
    const float *gate, *up;
    int64_t ldx;
    float *y;
    int64_t ldy;
    int32_t stored; /* enum ds_element: of gate, up and y */
};

/* y = a + b */
struct ds_add_args {
    int64_t rows, width;
    const float *a, *b;
    int64_t lda, ldb;
    float *y;
    int64_t ldy;
    int32_t stored; /* enum ds_element: of a, b and y */
};

/* The top_k experts of each row by logit, best first; the lower index wins a tie, NaN never wins.
 * weights: softmax over all experts, of the chosen ones; divided by their sum if `normalise`. */
struct ds_router_args {
    int64_t rows, experts, top_k;
    const float *logits;
    int64_t ldx;
    int normalise;
    int32_t *ids;   /* [rows][top_k] */
    float *weights; /* [rows][top_k] */
    int32_t stored; /* enum ds_element: of logits */
};

/* y[r] = sum over e of weights[r][e] * x[r * top_k + e] */
struct ds_combine_args {
    int64_t rows, width, top_k;
    const float *x; /* [rows * top_k][ldx] */
    int64_t ldx;
    const float *weights; /* [rows][top_k] */
    float *y;
    int64_t ldy;
    int32_t stored; /* enum ds_element: of x and y */
};

/* y = sum over ranks of x[rank] */
struct ds_allreduce_args {
    int64_t rows, width, ranks;
    const float *const *x; /* [ranks], each [rows][ldx]; the list itself is the host's */
    int64_t ldx;
    float *y;
    int64_t ldy;
    int32_t stored; /* enum ds_element: of x and y */
};

/* y[r][i] = x[r][i]: rows go from one device to another. The built-in devices are all this machine;
 * their numbers say which buffers belong together. */
struct ds_transfer_args {
    int64_t rows, width;
    const float *x; /* on device src */
    int64_t ldx;
    float *y; /* on device dst */
    int64_t ldy;
    int32_t src, dst;
    int32_t stored; /* enum ds_element: of x and y */
};

/* How a token is chosen. At temperature 0 it is the largest logit, whatever the rest says. Above 0
 * op process makes the logits that are chosen from, in this order: repetition penalty, temperature,
 * top-k, top-p, min-p; what is filtered out becomes -infinity. Op sample draws among what is left
 * with noise that depends on seed, request, step and token alone. The formulas are in
 * kernels/PINNED.md. */
struct ds_sampler {
    float temperature;        /* 0: the largest logit */
    int32_t top_k;            /* 0: off */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float repetition_penalty; /* 1: off */
    uint64_t seed;
};

/* y[r] = logits[r], or what penalties and masks make of them. A row is that of one token; its result
 * may depend on the tokens of its request so far. logits and y lie where exec->memory says, the rest in
 * the host's memory. */
struct ds_process_args {
    int64_t rows, vocab;
    const float *logits; /* [rows][ldx] */
    int64_t ldx;
    float *y; /* [rows][ldy] */
    int64_t ldy;
    const int32_t *requests, *positions, *steps; /* [rows]; step 0 is the prompt's */
    /* [rows] 1: not computed in this call; logits of the pass that filled the prefix cache. */
    const int32_t *cached;
    const int32_t *const *tokens;     /* [rows] tokens of the row's request up to the row itself */
    const int32_t *n_tokens;          /* [rows] how many */
    const struct ds_sampler *sampler; /* NULL: temperature 0 */
};

/* ids[r] = the index of the largest logit of the row; the lowest index wins a tie; NaN never wins;
 * all NaN gives 0. With a sampler whose temperature is not 0: the index of the largest score, which
 * is the logit plus the token's noise. */
struct ds_sample_args {
    int64_t rows, vocab;
    const float *logits;
    int64_t ldx;
    int32_t *ids;
    const struct ds_sampler *sampler; /* NULL: temperature 0 */
    const int32_t *streams, *steps;   /* [rows] what the noise of a row depends on beside the seed:
                                             equal requests with one stream draw alike */
    /* [rows][ldx] scores of the tokens that can be among the best eight, -infinity for all
     * others; NULL: not wanted. */
    float *scores;
};

/* One array of a custom kernel, as its `declare` describes it. A per-row tensor has a row for each
 * row of the call, and row r of an output may depend on row r of the inputs (and on whole shared
 * tensors) only. */
enum ds_tensor_role { DS_TENSOR_IN = 0, DS_TENSOR_OUT, DS_TENSOR_IN_OUT };
struct ds_custom_tensor {
    const char *name; /* lives as long as the kernel */
    int32_t role;     /* enum ds_tensor_role */
    int32_t dtype;    /* enum ds_element */
    int32_t per_row;  /* 0: `rows` rows whatever the call */
    int64_t rows, cols, ld;
    void *data; /* filled in by the caller */
};
enum { DS_CUSTOM_MAX_TENSORS = 8, DS_CUSTOM_MAX_SCALARS = 8 };
struct ds_custom_args {
    int64_t rows; /* of the call */
    int32_t n_tensors, n_scalars;
    struct ds_custom_tensor tensor[DS_CUSTOM_MAX_TENSORS];
    double scalar[DS_CUSTOM_MAX_SCALARS];
};

/* One variant of an op. `args` is the struct of the op above. Functions return 0, or -1 with a
 * short reason in `why` (never NULL, why_size >= 1, NUL-terminated). Members may be NULL except
 * launch. */
struct ds_kernel {
    uint32_t abi;        /* DS_KERNEL_ABI */
    int op;              /* enum ds_op */
    const char *name;    /* variant, e.g. "pinned" */
    const char *summary; /* one line: what it is and in which order it adds */
    uint32_t claims;     /* enum ds_claim */
    uint32_t features;   /* enum ds_feature */

    /* Whether it can run here (CPU features, libraries). */
    int (*available)(char *why, size_t why_size);

    /* matmul only: repacks weights once. *bytes_out is the size; the result is freed with free().
     * Depends on the weights only, never on this machine, so that it may be shared between
     * processes. */
    int (*prepare)(const struct ds_weight_view *w, void **prepared, size_t *bytes_out, char *why,
                   size_t why_size);

    /* Scratch memory needed for these arguments with this many threads. */
    size_t (*scratch_bytes)(const void *args, int threads);

    int (*launch)(const void *args, const struct ds_exec *exec, char *why, size_t why_size);

    /* The choice launch would make for these arguments; does not run anything. Asked after a launch with
     * them, so that a kernel that tunes itself then knows what it chose; and without one. */
    int (*describe)(const void *args, const struct ds_exec *exec, struct ds_launch_info *out);

    /* custom only, and needed there: the tensors and scalars of a call of so many rows. `width` is
     * what the user asked for with --shape width=N, or 0 for the kernel's own choice. data is left
     * NULL. */
    int (*declare)(int64_t rows, int64_t width, struct ds_custom_args *out, char *why,
                   size_t why_size);

    int device; /* enum ds_device_kind */
};

/* A plugin (.so) exports this function: a NULL-terminated array, or NULL when it does not know the
 * host's abi. */
#define DS_PLUGIN_SYMBOL "ds_plugin_kernels"
typedef const struct ds_kernel *const *(*ds_plugin_kernels_fn)(uint32_t abi);
const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi);

#ifdef __cplusplus
}
#endif
#endif
