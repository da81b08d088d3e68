/* cpu.h: what the CPU kernels share: the list of variants, running over threads, and error texts.
 * Private to kernels/. */
#ifndef DS_KERNELS_CPU_H
#define DS_KERNELS_CPU_H

#include "kernels/driftscope_kernel.h"

#include <stddef.h>
#include <stdint.h>

extern const struct ds_kernel ds_embed_reference, ds_embed_pinned;
extern const struct ds_kernel ds_rmsnorm_reference, ds_rmsnorm_pinned, ds_rmsnorm_rows;
extern const struct ds_kernel ds_rmsnorm_split, ds_rmsnorm_tail, ds_rmsnorm_cast_first,
    ds_rmsnorm_fused;
extern const struct ds_kernel ds_matmul_reference, ds_matmul_pinned, ds_matmul_openblas;
extern const struct ds_kernel ds_matmul_split_k, ds_matmul_stream_k, ds_matmul_atomic;
extern const struct ds_kernel ds_matmul_ticket, ds_matmul_bf16_partials, ds_matmul_tf32;
extern const struct ds_kernel ds_matmul_q8, ds_matmul_cblas, ds_matmul_cblas_packed;
extern const struct ds_kernel ds_rope_reference, ds_rope_pinned, ds_rope_fused;
extern const struct ds_kernel ds_cache_reference, ds_cache_pinned, ds_cache_f16, ds_cache_bf16;
extern const struct ds_kernel ds_cache_fp8_e4m3, ds_cache_q8, ds_cache_q4;
extern const struct ds_kernel ds_attention_reference, ds_attention_pinned, ds_attention_vendor;
extern const struct ds_kernel ds_attention_split_kv, ds_attention_stock, ds_attention_tile_by_qlen;
extern const struct ds_kernel ds_softmax_reference, ds_softmax_pinned;
extern const struct ds_kernel ds_silu_mul_reference, ds_silu_mul_pinned, ds_silu_mul_fused;
extern const struct ds_kernel ds_add_reference, ds_add_pinned;
extern const struct ds_kernel ds_router_reference, ds_router_pinned;
extern const struct ds_kernel ds_combine_reference, ds_combine_pinned;
extern const struct ds_kernel ds_allreduce_reference, ds_allreduce_pinned;
extern const struct ds_kernel ds_transfer_reference, ds_transfer_pinned;
extern const struct ds_kernel ds_sample_reference, ds_sample_pinned;
extern const struct ds_kernel ds_schedule_reference, ds_schedule_pinned;
extern const struct ds_kernel ds_process_reference, ds_process_pinned;

/* A part of a call: fn(args, begin, end) does items begin..end-1 of it. `thread` is for scratch. */
typedef void (*ds_cpu_part_fn)(const void *args, const struct ds_exec *exec, int thread,
                               int64_t begin, int64_t end);

/* Runs fn over items 0..items-1 in contiguous shares of whole `grain`s, on all threads of exec, or
 * on the caller alone when `work` (elementary operations of the whole call) is too small to be
 * worth waking the others. */
void ds_cpu_split(const struct ds_exec *exec, const void *args, int64_t items, int64_t grain,
                  double work, ds_cpu_part_fn fn);
/* The same with item i on thread i % threads, one at a time, for items of unequal cost. */
void ds_cpu_deal(const struct ds_exec *exec, const void *args, int64_t items, double work,
                 ds_cpu_part_fn fn);
/* 1 if so much work is done sooner by one thread, else `threads`: how finely to cut. */
int ds_cpu_worth(int threads, double work);
/* Threads that the two above use for so much work. */
int ds_cpu_threads(const struct ds_exec *exec, int64_t units, double work);

/* Writes the reason and returns -1. */
int ds_cpu_refuse(char *why, size_t why_size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Multiplies sizes of scratch memory, 64 bytes a unit; SIZE_MAX when it does not fit. */
size_t ds_cpu_scratch(int64_t floats_per_thread, int threads);
/* The part of exec->scratch of one thread. */
float *ds_cpu_scratch_of(const struct ds_exec *exec, int64_t floats_per_thread, int thread);
int ds_cpu_check_scratch(const struct ds_exec *exec, size_t need, char *why, size_t why_size);

/* One row of softmax/reference; y may be x. */
void ds_cpu_softmax_reference(float *y, const float *x, int64_t n);

/* The sequence that owns a query row, or NULL. */
const struct ds_sequence *ds_cpu_sequence_of(const struct ds_attention_args *a, int64_t row);
/* Checks that every slot of every sequence lies in a page of the cache and that the rows are
 * covered once, in order. */
int ds_cpu_check_sequences(const struct ds_sequence *seqs, int64_t n, int64_t rows,
                           int64_t page_size, int64_t pages, char *why, size_t why_size);

#endif
