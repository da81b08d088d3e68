/* cublaslt.cu: matmul by cublasLt, which is opened with dlopen when it is first asked for.
 *
 *   cublaslt         what an engine gets: for every shape the first choice of the library's heuristic, asked for
 *                    once a shape. It may cut K in parts and have other tiles for other row counts: the bits
 *                    depend on rows in the call as the library sees fit.
 *   cublaslt-pinned  one algorithm for each n and k, whatever the number of rows: the heuristic's choice
 *                    for PIN_ROWS rows among those that do not cut K, checked for every number of rows before
 *                    it runs; where the library says that it cannot do one, that is an error. What it adds in
 *                    which order is the library's secret: `check` and `order` measure it.
 *
 *   cublaslt-tf32    as cublaslt, with inputs of 10 bits on tensor cores (CUBLAS_COMPUTE_32F_FAST_TF32): what an
 *                    engine gets that allows TF32.
 *   cublaslt-small   as cublaslt, with no workspace: what cuts K needs one, and is left out or done in place.
 *   cublaslt-sums    as cublaslt, with parts of K added in f32 whatever y is: the others may add them as y's 16 bits
 *                    (PyTorch's allow_bf16_reduced_precision_reduction; reduction schemes 1 and 4 in describe).
 *
 * Inputs are of x's type: f32, or with 16-bit activations bf16 or f16, on tensor cores. Weights of another type are made
 * of it first, in scratch memory (f32 weights are rounded to nearest), and so is the bias where y has 16 bits, as
 * the library wants it. Sums are f32 (CUBLAS_COMPUTE_32F), but for f32 with TF32. What was done is in describe: tile, parts of K, and as
 * text MATH aID tTILE sSTAGES rREDUCTION cCLUSTER wWORKSPACE(KiB) iINNER xSWIZZLE, the library's own numbers; MATH is f32,
 * tf32, bf16 or f16.
 *
 * The library chooses by how arrays are aligned, too: it is told, and a choice is for that alignment. Two of
 * cublaslt-pinned's: arrays that begin at multiples of 16 bytes, and others. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/library/library.h"
#include "kernels/cuda/weights.cuh"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

namespace
{

#ifndef DS_CUBLASLT_WORKSPACE
#define DS_CUBLASLT_WORKSPACE (32 << 20) /* what PyTorch gives it on an H100 */
#endif

enum {
    WORKSPACE = DS_CUBLASLT_WORKSPACE,
    PIN_ROWS = 128,
    MOST_CHOICES = 512,
    MOST_DEVICES = 64,
    ASKED = 32
};

/* ---- the library ------------------------------------------------------------------------------------- */

struct functions {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtGetStatusString) status;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtMatmulAlgoCheck) algo_check;
    decltype(&cublasLtMatmulAlgoConfigGetAttribute) algo_get;
};

struct library {
    void *handle;
    struct functions f;
    cublasLtHandle_t context[MOST_DEVICES];
} lib;

template <class F> int find(F *out, const char *name)
{
    void *p = dlsym(lib.handle, name);
    memcpy(out, &p, sizeof p);
    return p ? 0 : -1;
}

int find_all(void)
{
    struct functions *f = &lib.f;
    return find(&f->create, "cublasLtCreate") || find(&f->status, "cublasLtGetStatusString") ||
                   find(&f->matmul, "cublasLtMatmul") ||
                   find(&f->desc_create, "cublasLtMatmulDescCreate") ||
                   find(&f->desc_destroy, "cublasLtMatmulDescDestroy") ||
                   find(&f->desc_set, "cublasLtMatmulDescSetAttribute") ||
                   find(&f->layout_create, "cublasLtMatrixLayoutCreate") ||
                   find(&f->layout_destroy, "cublasLtMatrixLayoutDestroy") ||
                   find(&f->preference_create, "cublasLtMatmulPreferenceCreate") ||
                   find(&f->preference_destroy, "cublasLtMatmulPreferenceDestroy") ||
                   find(&f->preference_set, "cublasLtMatmulPreferenceSetAttribute") ||
                   find(&f->heuristic, "cublasLtMatmulAlgoGetHeuristic") ||
                   find(&f->algo_check, "cublasLtMatmulAlgoCheck") ||
                   find(&f->algo_get, "cublasLtMatmulAlgoConfigGetAttribute")
               ? -1
               : 0;
}

#define DS_TEXT_(X) #X
#define DS_TEXT(X)  DS_TEXT_(X)

/* Where the system looks, then where the toolkit is. */
void *open_in(const char *name)
{
    const char *home = getenv("CUDA_HOME");
    const char *const folders[] = {home ? home : "/usr/local/cuda", "/usr/local/cuda"};
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; i < 2 && !handle; i++) {
        char path[1100];
        snprintf(path, sizeof path, "%.1000s/lib64/%s", folders[i], name);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return handle;
}

/* The one of this build's major version: others have other structs. */
int available(char *why, size_t size)
{
    static const char name[] = "libcublasLt.so." DS_TEXT(CUBLAS_VER_MAJOR);
    if (lib.handle)
        return 0;
    lib.handle = open_in(name);
    if (!lib.handle) {
        snprintf(
            why, size,
            "%s is not where the system looks, nor in $CUDA_HOME/lib64 or /usr/local/cuda/lib64",
            name);
        return -1;
    }
    if (find_all() == 0)
        return 0;
    snprintf(why, size, "%s lacks functions that are needed", name);
    dlclose(lib.handle);
    lib.handle = nullptr;
    return -1;
}

} /* namespace */

void ds_cublaslt_version(char *out, size_t size)
{
    char why[256];
    size_t (*version)(void) = nullptr;
    snprintf(out, size, "%s", "");
    if (available(why, sizeof why) == 0 && find(&version, "cublasLtGetVersion") == 0)
        snprintf(out, size, "cublasLt %zu", version());
}

namespace
{

/* Context of the thread's current device. */
int context_of(const struct ds_device_call &call, cublasLtHandle_t *out)
{
    int device = 0;
    if (available(call.why, call.why_size) != 0)
        return -1;
    if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= MOST_DEVICES)
        return ds_device_refuse(call, "cublasLt: no current device");
    if (!lib.context[device]) {
        const cublasStatus_t s = lib.f.create(&lib.context[device]);
        if (s != CUBLAS_STATUS_SUCCESS)
            return ds_device_refuse(call, "cublasLtCreate: %s", lib.f.status(s));
    }
    *out = lib.context[device];
    return 0;
}

/* ---- one matmul as the library sees it: column-major, y^T = w x^T --------------------------------------- */

struct problem {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t w, x, y;
};

void forget(struct problem *p)
{
    if (p->op)
        lib.f.desc_destroy(p->op);
    cublasLtMatrixLayout_t const layouts[] = {p->w, p->x, p->y};
    for (cublasLtMatrixLayout_t l : layouts)
        if (l)
            lib.f.layout_destroy(l);
}

/* How the library is asked. */
struct mode {
    int number; /* they differ in it */
    int pinned;
    int tf32;         /* where inputs are f32 */
    uint32_t schemes; /* how parts of K may be added */
    size_t workspace;
};
const struct mode HEURISTIC = {0, 0, 0, CUBLASLT_REDUCTION_SCHEME_MASK, WORKSPACE};
const struct mode PINNED = {1, 1, 0, CUBLASLT_REDUCTION_SCHEME_NONE, WORKSPACE};
const struct mode TF32 = {2, 0, 1, CUBLASLT_REDUCTION_SCHEME_MASK, WORKSPACE};
const struct mode SMALL = {3, 0, 0, CUBLASLT_REDUCTION_SCHEME_MASK, 0};
const struct mode SUMS = {4, 0, 0, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, WORKSPACE};

/* ---- types ------------------------------------------------------------------------------------------------ */

size_t size_of(int element)
{
    return element == DS_ELEMENT_F32 ? 4 : 2;
}

cudaDataType_t type_of(int element)
{
    return element == DS_ELEMENT_F32    ? CUDA_R_32F
           : element == DS_ELEMENT_BF16 ? CUDA_R_16BF
                                        : CUDA_R_16F;
}

size_t rounded_up(size_t bytes)
{
    return (bytes + 255) & ~(size_t)255;
}

/* What is made of the call's weights and bias, behind the workspace. */
size_t weight_bytes(const struct ds_matmul_args *a)
{
    return ds_weights_element(&a->w) == a->stored
               ? 0
               : rounded_up((size_t)a->n * (size_t)a->k * size_of(a->stored));
}

size_t bias_bytes(const struct ds_matmul_args *a)
{
    return a->bias && a->y_stored != DS_ELEMENT_F32 ? rounded_up((size_t)a->n * 2) : 0;
}

template <class T, class S> __global__ void convert(T *y, const S *x, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        ds_store(&y[i], ds_load(x[i]));
}

template <class T, class S>
int convert_as(const struct ds_device_call &call, void *y, const void *x, int64_t n)
{
    const int64_t blocks = ds_ceil_div(n, 1024);
    return DS_LAUNCH(call, (convert<T, S>), (unsigned)(blocks < 4096 ? blocks : 4096), 256, 0,
                     static_cast<T *>(y), static_cast<const S *>(x), n);
}

template <class T>
int convert_to(const struct ds_device_call &call, void *y, const void *x, int from, int64_t n)
{
    return from == DS_ELEMENT_F32    ? convert_as<T, float>(call, y, x, n)
           : from == DS_ELEMENT_BF16 ? convert_as<T, __nv_bfloat16>(call, y, x, n)
                                     : convert_as<T, __half>(call, y, x, n);
}

int convert_any(const struct ds_device_call &call, void *y, int to, const void *x, int from,
                int64_t n)
{
    return to == DS_ELEMENT_F32    ? convert_to<float>(call, y, x, from, n)
           : to == DS_ELEMENT_BF16 ? convert_to<__nv_bfloat16>(call, y, x, from, n)
                                   : convert_to<__half>(call, y, x, from, n);
}

/* A matmul's arrays as the library is given them. */
struct arrays {
    const void *w, *x, *bias;
    void *y;
};

/* The library wants it to begin at a multiple of 256. */
char *workspace_of(const struct ds_exec *exec)
{
    return reinterpret_cast<char *>(
        rounded_up((size_t) reinterpret_cast<uintptr_t>(exec->scratch)));
}

/* With the parts of scratch that follow the workspace. */
struct arrays arrays_of(const struct mode *m, const struct ds_matmul_args *a,
                        const struct ds_exec *exec)
{
    char *made = workspace_of(exec) + m->workspace;
    const void *w = a->w.data ? static_cast<const void *>(a->w.data) : a->w.file_data;
    return {weight_bytes(a) ? made : w, a->x,
            bias_bytes(a) ? static_cast<const void *>(made + weight_bytes(a)) : a->bias, a->y};
}

int make_arrays(const struct ds_device_call &call, const struct ds_matmul_args *a,
                const struct arrays *to)
{
    const void *w = a->w.data ? static_cast<const void *>(a->w.data) : a->w.file_data;
    if (weight_bytes(a) && convert_any(call, const_cast<void *>(to->w), a->stored, w,
                                       ds_weights_element(&a->w), a->n * a->k) != 0)
        return -1;
    return bias_bytes(a) ? convert_any(call, const_cast<void *>(to->bias), a->y_stored, a->bias,
                                       DS_ELEMENT_F32, a->n)
                         : 0;
}

uint32_t alignment(const void *p)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(p) | 256;
    return (uint32_t)(at & (~at + 1));
}

cublasStatus_t describe_problem(const struct mode *m, const struct ds_matmul_args *a,
                                const void *bias_at, int64_t rows, struct problem *p)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
    const int tf32 = m->tf32 && a->stored == DS_ELEMENT_F32;
    const cudaDataType_t in = type_of(a->stored), out = type_of(a->y_stored);
    cublasStatus_t s = lib.f.desc_create(
        &p->op, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lib.f.desc_set(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (s == CUBLAS_STATUS_SUCCESS && a->bias)
        s = lib.f.desc_set(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias, sizeof bias);
    if (s == CUBLAS_STATUS_SUCCESS && a->bias)
        s = lib.f.desc_set(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias_at, sizeof bias_at);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lib.f.layout_create(&p->w, in, (uint64_t)a->k, (uint64_t)a->n, a->k);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lib.f.layout_create(&p->x, in, (uint64_t)a->k, (uint64_t)rows, a->ldx);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lib.f.layout_create(&p->y, out, (uint64_t)a->n, (uint64_t)rows, a->ldy);
    return s;
}

/* The heuristic's first choice; pinned: the first that does not cut K. */
cublasStatus_t ask(cublasLtHandle_t h, const struct problem *p, const struct mode *m,
                   const uint32_t *aligned, cublasLtMatmulHeuristicResult_t *out)
{
    static const cublasLtMatmulPreferenceAttributes_t of[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const int unsplit = m->pinned;
    cublasLtMatmulHeuristicResult_t results[ASKED];
    cublasLtMatmulPreference_t preference = nullptr;
    const size_t workspace = m->workspace;
    int n = 0;
    cublasStatus_t s = lib.f.preference_create(&preference);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lib.f.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                 sizeof workspace);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lib.f.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                 &m->schemes, sizeof m->schemes);
    for (int i = 0; i < 4 && s == CUBLAS_STATUS_SUCCESS; i++) /* y is C and D */
        s = lib.f.preference_set(preference, of[i], &aligned[i < 2 ? i : 2], sizeof *aligned);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lib.f.heuristic(h, p->op, p->w, p->x, p->y, p->y, preference, unsplit ? ASKED : 1,
                            results, &n);
    if (preference)
        lib.f.preference_destroy(preference);
    for (int i = 0; s == CUBLAS_STATUS_SUCCESS && i < n; i++) {
        int split = 0;
        size_t written;
        if (results[i].state != CUBLAS_STATUS_SUCCESS)
            continue;
        (void)lib.f.algo_get(&results[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split,
                             sizeof split, &written);
        if (unsplit && split > 1)
            continue;
        *out = results[i];
        return CUBLAS_STATUS_SUCCESS;
    }
    return s == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : s;
}

/* ---- choices that were made ------------------------------------------------------------------------------- */

struct choice {
    int device, mode, bias, x_type, y_type;
    uint32_t aligned[3];          /* w, x, y: bytes */
    int64_t rows, n, k, ldx, ldy; /* rows 0: all */
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
} choices[MOST_CHOICES];
int n_choices, next_choice;

struct choice key_of(const struct ds_matmul_args *a, const struct mode *m, const struct arrays *at)
{
    struct choice c;
    memset(&c, 0, sizeof c);
    (void)cudaGetDevice(&c.device);
    c.mode = m->number;
    c.bias = a->bias != nullptr;
    c.x_type = a->stored;
    c.y_type = a->y_stored;
    const void *const of[] = {at->w, at->x, at->y};
    int all = 1;
    for (int i = 0; i < 3; i++) {
        c.aligned[i] = alignment(of[i]);
        all &= c.aligned[i] >= 16;
    }
    for (int i = 0; m->pinned && i < 3; i++)
        c.aligned[i] = all ? 16 : (uint32_t)size_of(i < 2 ? a->stored : a->y_stored);
    c.rows = m->pinned ? 0 : a->rows;
    c.n = a->n;
    c.k = a->k;
    c.ldx = a->ldx;
    c.ldy = a->ldy;
    return c;
}

const struct choice *find_choice(const struct choice *key)
{
    for (int i = 0; i < n_choices; i++) {
        const struct choice *c = &choices[i];
        if (c->device == key->device && c->mode == key->mode && c->bias == key->bias &&
            c->x_type == key->x_type && c->y_type == key->y_type && c->rows == key->rows &&
            c->n == key->n && c->k == key->k && c->ldx == key->ldx && c->ldy == key->ldy &&
            memcmp(c->aligned, key->aligned, sizeof c->aligned) == 0)
            return c;
    }
    return nullptr;
}

/* The choice for these arguments: as it was made, or made now. */
int choose(const struct ds_device_call &call, cublasLtHandle_t h, const struct ds_matmul_args *a,
           const struct mode *m, const struct arrays *at, struct choice *out)
{
    struct choice key = key_of(a, m, at);
    const struct choice *there = find_choice(&key);
    if (there) {
        *out = *there;
        return 0;
    }
    struct problem p = {};
    cublasLtMatmulHeuristicResult_t r;
    cublasStatus_t s =
        describe_problem(m, a, at->bias, m->pinned ? (int64_t)PIN_ROWS : a->rows, &p);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = ask(h, &p, m, key.aligned, &r);
    forget(&p);
    if (s != CUBLAS_STATUS_SUCCESS)
        return ds_device_refuse(
            call, "cublasLtMatmulAlgoGetHeuristic for %lld rows, n %lld, k %lld: %s",
            (long long)a->rows, (long long)a->n, (long long)a->k, lib.f.status(s));
    key.algo = r.algo;
    key.workspace = r.workspaceSize;
    choices[next_choice] = key; /* full: the oldest is asked for again */
    next_choice = (next_choice + 1) % MOST_CHOICES;
    n_choices += n_choices < MOST_CHOICES;
    *out = key;
    return 0;
}

/* ---- the kernels --------------------------------------------------------------------------------------------- */

int run(const struct ds_device_call &call, cublasLtHandle_t h, const struct ds_matmul_args *a,
        const struct mode *m, const struct arrays *at, const struct choice *c)
{
    const float one = 1.0f, zero = 0.0f;
    struct problem p = {};
    cublasLtMatmulHeuristicResult_t r;
    const char *what = "cublasLtMatmulDescCreate";
    cublasStatus_t s = describe_problem(m, a, at->bias, a->rows, &p);
    if (s == CUBLAS_STATUS_SUCCESS && m->pinned) {
        what =
            "the algorithm that is pinned is not for this number of rows: cublasLtMatmulAlgoCheck";
        s = lib.f.algo_check(h, p.op, p.w, p.x, p.y, p.y, &c->algo, &r);
        if (s == CUBLAS_STATUS_SUCCESS && r.workspaceSize > m->workspace)
            s = CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (s == CUBLAS_STATUS_SUCCESS) {
        what = "cublasLtMatmul";
        (void)cudaGetLastError(); /* what another call left is not this one's */
        s = lib.f.matmul(h, p.op, &one, at->w, p.w, at->x, p.x, &zero, at->y, p.y, at->y, p.y,
                         &c->algo, m->workspace ? workspace_of(call.exec) : nullptr, m->workspace,
                         static_cast<cudaStream_t>(call.exec->stream));
    }
    forget(&p);
    if (s != CUBLAS_STATUS_SUCCESS)
        return ds_device_refuse(call, "%s: %s (%lld rows, n %lld, k %lld)", what, lib.f.status(s),
                                (long long)a->rows, (long long)a->n, (long long)a->k);
    return ds_device_launched(call, "cublasLtMatmul");
}

size_t scratch_of(const struct mode *m, const struct ds_matmul_args *a)
{
    const size_t need = m->workspace + weight_bytes(a) + bias_bytes(a);
    return need ? need + 255 : 0;
}

int launch_as(const void *args, const struct ds_exec *exec, const struct mode *m, char *why,
              size_t why_size)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    const struct ds_device_call call = {exec, why, why_size};
    cublasLtHandle_t h;
    struct choice c;
    if (a->rows < 1 || a->n < 1)
        return 0;
    if (a->k < 1)
        return ds_device_refuse(call, "cublasLt: k %lld", (long long)a->k);
    if (ds_weights_check(call, a) != 0)
        return -1;
    if (a->y_stored != DS_ELEMENT_F32 && a->y_stored != a->stored)
        return ds_device_refuse(call, "cublasLt: activations of type %d and %d", a->stored,
                                a->y_stored);
    if (ds_device_check_scratch(call, scratch_of(m, a)) != 0 || context_of(call, &h) != 0)
        return -1;
    const struct arrays at = arrays_of(m, a, exec);
    if (choose(call, h, a, m, &at, &c) != 0 || make_arrays(call, a, &at) != 0)
        return -1;
    return run(call, h, a, m, &at, &c);
}

/* Rows and columns of a tile, as the library names them: of y^T. */
struct tile {
    int rows, columns;
};
constexpr struct tile FIRST_TILES[] = {
    {0, 0},     {8, 8},    {8, 16},   {16, 8},   {8, 32},    {16, 16},   {32, 8},    {8, 64},
    {16, 32},   {32, 16},  {64, 8},   {32, 32},  {32, 64},   {64, 32},   {32, 128},  {64, 64},
    {128, 32},  {64, 128}, {128, 64}, {64, 256}, {128, 128}, {256, 64},  {64, 512},  {128, 256},
    {256, 128}, {512, 64}, {64, 96},  {96, 64},  {96, 128},  {128, 160}, {160, 128}, {192, 128},
    {128, 192}, {128, 96}, {32, 256}, {256, 32}};
constexpr struct tile LAST_TILES[] = {{256, 512}, {256, 1024}, {512, 512}, {512, 1024}};

constexpr int is_first(int rows, int columns)
{
    for (const struct tile &t : FIRST_TILES)
        if (t.rows == rows && t.columns == columns)
            return 1;
    return 0;
}

/* Two series follow the first ones: rows by 8 and columns by 64 with up to 49152 elements, then rows by 64 and columns by 8 with up
 * to 65536; by rows, both up to 768, without those that there were before. */
constexpr int in_series(int series, int rows, int columns)
{
    return (series == 0 ? columns % 64 == 0 && rows * columns <= 49152
                        : rows % 64 == 0 && rows * columns <= 65536) &&
           !is_first(rows, columns);
}

struct tiles {
    struct tile of[640];
    int n;
};

constexpr struct tiles all_tiles(void)
{
    struct tiles t = {};
    for (const struct tile &first : FIRST_TILES)
        t.of[t.n++] = first;
    for (int series = 0; series < 2; series++)
        for (int rows = 8; rows <= 768; rows += 8)
            for (int columns = 8; columns <= 768; columns += 8)
                if (in_series(series, rows, columns) &&
                    !(series == 1 && in_series(0, rows, columns)))
                    t.of[t.n++] = {rows, columns};
    for (const struct tile &last : LAST_TILES)
        t.of[t.n++] = last;
    return t;
}
constexpr struct tiles TILES = all_tiles();

/* The library's own names. */
#if defined(__CUDACC__) && CUDART_VERSION >= 13000
constexpr int is_named(int id, int rows, int columns)
{
    return TILES.of[id].rows == rows && TILES.of[id].columns == columns;
}
#define NAMED(ROWS, COLUMNS)                                                                       \
    static_assert(is_named(CUBLASLT_MATMUL_TILE_##ROWS##x##COLUMNS, ROWS, COLUMNS))
NAMED(8, 8);
NAMED(64, 512);
NAMED(256, 32);
NAMED(8, 128);
NAMED(32, 192);
NAMED(128, 384);
NAMED(160, 256);
NAMED(256, 192);
NAMED(768, 64);
NAMED(64, 16);
NAMED(64, 760);
NAMED(128, 8);
NAMED(128, 448);
NAMED(192, 336);
NAMED(256, 256);
NAMED(768, 80);
NAMED(256, 512);
NAMED(512, 1024);
#endif

int attribute(const struct choice *c, cublasLtMatmulAlgoConfigAttributes_t what, size_t bytes)
{
    uint32_t value = 0; /* some are 16 bits: little-endian, so the rest is 0 */
    size_t written;
    return lib.f.algo_get(&c->algo, what, &value, bytes, &written) == CUBLAS_STATUS_SUCCESS
               ? (int)value
               : 0;
}

int describe_as(const void *args, const struct ds_exec *exec, const struct mode *m,
                struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = static_cast<const struct ds_matmul_args *>(args);
    char why[256] = "";
    const struct ds_device_call call = {exec, why, sizeof why};
    cublasLtHandle_t h;
    struct choice c;
    memset(out, 0, sizeof *out);
    if (a->rows < 1 || a->n < 1 || context_of(call, &h) != 0)
        return -1;
    const struct arrays at = arrays_of(m, a, exec);
    if (choose(call, h, a, m, &at, &c) != 0)
        return -1;
    const int tile = attribute(&c, CUBLASLT_ALGO_CONFIG_TILE_ID, 4);
    if (tile > 0 && tile < TILES.n) {
        out->tile_rows = TILES.of[tile].columns;
        out->tile_cols = TILES.of[tile].rows;
    }
    out->split = attribute(&c, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4);
    char text[160] = "";
    snprintf(text, sizeof text, "%s a%d t%d s%d r%d c%d w%zu i%d x%d",
             a->stored == DS_ELEMENT_BF16  ? "bf16"
             : a->stored == DS_ELEMENT_F16 ? "f16"
             : m->tf32                     ? "tf32"
                                           : "f32",
             attribute(&c, CUBLASLT_ALGO_CONFIG_ID, 4), tile,
             attribute(&c, CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
             attribute(&c, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
             attribute(&c, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2), c.workspace >> 10,
             attribute(&c, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
             attribute(&c, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4));
    memcpy(out->algo, text, sizeof out->algo - 1); /* the last ones may fall off */
    return 0;
}

template <const struct mode *M> size_t scratch(const void *args, int)
{
    return scratch_of(M, static_cast<const struct ds_matmul_args *>(args));
}

template <const struct mode *M>
int launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    return launch_as(args, exec, M, why, why_size);
}

template <const struct mode *M>
int describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    return describe_as(args, exec, M, out);
}

} /* namespace */

#define VARIANT(NAME, VARIANT_NAME, CLAIMS, MODE, SUMMARY)                                         \
    extern "C" const struct ds_kernel ds_cuda_##NAME;                                              \
    const struct ds_kernel ds_cuda_##NAME = {                                                      \
        .abi = DS_KERNEL_ABI,                                                                      \
        .op = DS_OP_MATMUL,                                                                        \
        .name = VARIANT_NAME,                                                                      \
        .summary = SUMMARY,                                                                        \
        .claims = CLAIMS,                                                                          \
        .features = DS_FEATURE_STORED | DS_FEATURE_FILE_WEIGHTS | DS_FEATURE_OWN_FORMATS,          \
        .available = available,                                                                    \
        .prepare = nullptr,                                                                        \
        .scratch_bytes = scratch<&MODE>,                                                           \
        .launch = launch<&MODE>,                                                                   \
        .describe = describe<&MODE>,                                                               \
        .declare = nullptr,                                                                        \
        .device = DS_DEVICE_CUDA}
VARIANT(matmul_cublaslt, "cublaslt", DS_CLAIM_REPEAT, HEURISTIC,
        "cublasLt with its heuristic's choice for the shape: tiles, parts of K and order are the "
        "library's");
VARIANT(matmul_cublaslt_pinned, "cublaslt-pinned",
        DS_CLAIM_REPEAT | DS_CLAIM_BATCH | DS_CLAIM_SLOT | DS_CLAIM_THREADS, PINNED,
        "cublasLt with one algorithm for each n and k, which does not cut K, for all row counts");
VARIANT(matmul_cublaslt_tf32, "cublaslt-tf32", DS_CLAIM_REPEAT, TF32,
        "as cublaslt, with inputs of 10 bits on tensor cores (TF32): less exact");
VARIANT(matmul_cublaslt_small, "cublaslt-small", DS_CLAIM_REPEAT, SMALL,
        "as cublaslt, with no workspace for parts of K");
VARIANT(matmul_cublaslt_sums, "cublaslt-sums", DS_CLAIM_REPEAT, SUMS,
        "as cublaslt, with parts of K added in f32 where y has 16 bits");
