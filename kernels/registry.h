/* registry.h: the variants, built in and added, sets of them, and the BLAS library. Knows no model
 * and no probe. */
#ifndef DS_REGISTRY_H
#define DS_REGISTRY_H

#include "base/error.h"
#include "kernels/driftscope_kernel.h"

/* "embed rmsnorm matmul rope cache attention softmax silu_mul add router combine allreduce sample
 * custom transfer schedule process"; NULL for an unknown value. */
const char *ds_op_name(int op);
/* -1 for an unknown name; "argmax" is sample. */
int ds_op_parse(const char *name);

/* "cpu", "sim", "cuda" of enum ds_device_kind; NULL for an unknown value. */
const char *ds_device_name(int device);
/* The kind of "cpu", "sim", "sim:80", "cuda", "cuda:1". -1 with the nearest name as a hint, or with what is missing: of
 * cuda the library, the driver or the device, which is asked for in a child process. */
int ds_device_parse(const char *name, struct ds_error *err);

/* The variants of a device, in the order they are listed: the built-in ones, then those added. NULL
 * behind the last, and where the op has no such variant. */
size_t ds_kernel_count_on(int device);
const struct ds_kernel *ds_kernel_at_on(int device, size_t i);
const struct ds_kernel *ds_kernel_find_on(int device, int op, const char *variant);

/* Those of the CPU, in the order they are listed: the built-in ones, then those added. Kernel i of
 * 0..count-1. */
size_t ds_kernel_count(void);
const struct ds_kernel *ds_kernel_at(size_t i);
/* NULL when the op has no such variant. */
const struct ds_kernel *ds_kernel_find(int op, const char *variant);

/* Adds a variant to those above for the rest of the process: one of a plugin, or of a test. *k and
 * all it points to are borrowed and must stay as they are. Refused, with an error that names the
 * variant and the member: another abi, an op that does not exist, no launch, unknown claims or
 * features, a device that does not exist, features or members of another op, a name that no option or record could hold (1 to 31 of a-z 0-9 . _ -, a letter or digit first), a name
 * that its op has already. Not thread-safe: add before the first launch and before a worker is
 * forked. */
int ds_kernel_add(const struct ds_kernel *k, struct ds_error *err);
/* Whether it is one of the project's own, of whatever device: neither a plugin's nor a test's. */
int ds_kernel_built_in(const struct ds_kernel *k);

/* One variant for every op; NULL for an op that has none (custom). Single layers may have another
 * one: the last entry of `at` that fits an op and a layer counts. */
enum { DS_KERNEL_SET_LAYERS = 96, DS_KERNEL_SET_MOST_LAYER = 32000 };
struct ds_kernel_set {
    const struct ds_kernel *op[DS_OP_COUNT];
    struct ds_kernel_at_layers {
        const struct ds_kernel *kernel;
        int16_t first, last; /* layers, both included; the number of layers: after them */
    } at[DS_KERNEL_SET_LAYERS];
    int32_t n_at;
    int32_t device; /* enum ds_device_kind of all of them */
};

/* The variant of an op in a layer (-1: before the layers; their number: after them). */
const struct ds_kernel *ds_kernel_set_in(const struct ds_kernel_set *set, int op, int32_t layer);
/* Variant number i, from 0, of those that the set uses for an op; NULL: no more. Variants given for
 * layers only come last, and may come twice. */
const struct ds_kernel *ds_kernel_set_used(const struct ds_kernel_set *set, int op, int32_t i);
/* Whether it uses op/variant anywhere. */
int ds_kernel_set_uses(const struct ds_kernel_set *set, int op, const char *variant);
/* Whether it uses a matmul of the library of --blas. */
int ds_kernel_set_uses_cblas(const struct ds_kernel_set *set);

/* Opens the library of the device cuda, so that its variants and sets are known; whether they are. */
int ds_kernel_know_cuda(void);
/* The named sets of a device, 0..count-1, in the order they are listed; without one, of the CPU. */
size_t ds_kernel_set_count_on(int device);
const char *ds_kernel_set_name_on(int device, size_t i);
size_t ds_kernel_set_count(void);
const char *ds_kernel_set_name(size_t i);

/* Parses the name of a set, such as "vendor" or "pinned", and overrides of single ops:
 * "vendor+attention=pinned+matmul=reference", or of an op in single layers: "vendor+matmul=pinned@0-3"
 * (layer 0 to 3; @5: that one; the number of layers: the head's), as often as one likes. Unknown names: -1 and an error with the nearest known
 * name as its hint. Does not ask for availability. */
int ds_kernel_set_parse(const char *spec, struct ds_kernel_set *out, struct ds_error *err);
/* The same on another device: its sets, its variants. */
int ds_kernel_set_parse_on(int device, const char *spec, struct ds_kernel_set *out,
                           struct ds_error *err);

/* 0, or what `available` says with the reason; whatever it does to `why`, that is a text. */
int ds_kernel_available(const struct ds_kernel *k, char *why, size_t why_size);
/* Whether the set's variant of an op does something else than the built-in one: for ops whose built-in
 * variants do nothing (schedule, process). */
int ds_kernel_set_changes(const struct ds_kernel_set *set, int op);
/* Whether the set uses a variant of the op that was added: by a plugin, or a test. */
int ds_kernel_set_added(const struct ds_kernel_set *set, int op);
/* Checks that every variant of the set can run here. */
int ds_kernel_set_available(const struct ds_kernel_set *set, struct ds_error *err);

/* The instruction set used by the pinned kernels: "avx512", "avx2" or "scalar", the best this CPU
 * has. Bits are equal in all. */
const char *ds_isa_name(void);
/* Forces one ("auto" undoes it); -1 if unknown or the CPU lacks it. Not thread-safe: call before
 * any launch. */
int ds_isa_force(const char *name, struct ds_error *err);

/* ---- OpenBLAS, opened with dlopen(RTLD_LOCAL | RTLD_NOW), once per process ------------------- */

/* Opens OpenBLAS with the given core ("" or NULL = its own choice; else OPENBLAS_CORETYPE is set
 * for the load). A second call with the same core is a no-op, with another core an error: the core
 * of a loaded library cannot change. Fails when the CPU cannot run the core, or when the library
 * then reports another core than asked for. */
int ds_blas_open(const char *core, struct ds_error *err);
int ds_blas_is_open(void);
/* As reported by the library: e.g. "Haswell"; "" when not open. */
const char *ds_blas_core(void);
/* e.g. "OpenBLAS 0.3.21 DYNAMIC_ARCH NO_AFFINITY Haswell MAX_THREADS=64" */
const char *ds_blas_config(void);
int ds_blas_set_threads(int threads);
int ds_blas_max_threads(void);
/* Whether this CPU has the instructions that the named OpenBLAS core needs: 1, 0, or -1 if the name
 * is unknown. */
int ds_blas_core_runs_here(const char *core);
/* 0 if the name is known, whether or not it runs here; else -1 with the nearest name as a hint. */
int ds_blas_core_known(const char *core, struct ds_error *err);
/* The cblas_sgemm of the open library (row-major: y[m][n] = x[m][k] * w[n][k]^T), for direct
 * comparison in tests. */
int ds_blas_sgemm_nt(int m, int n, int k, const float *x, int ldx, const float *w, int ldw,
                     float *y, int ldy);

#endif
