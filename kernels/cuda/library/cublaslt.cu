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
 *
 * f32 in and out; but for the TF32 one CUBLAS_COMPUTE_32F. What was done is in describe: tile, parts of K, and as
 * text MATH aID tTILE sSTAGES rREDUCTION cCLUSTER wWORKSPACE(KiB) iINNER xSWIZZLE, the library's own numbers; MATH is f32 or
 * tf32. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/library/library.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <string.h>

namespace
{

enum { WORKSPACE = 32 << 20, PIN_ROWS = 128, MOST_CHOICES = 512, MOST_DEVICES = 64, ASKED = 32 };

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

/* The one of this build's major version: others have other structs. */
int available(char *why, size_t size)
{
    static const char name[] = "libcublasLt.so." DS_TEXT(CUBLAS_VER_MAJOR);
    if (lib.handle)
        return 0;
    lib.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!lib.handle) {
        snprintf(why, size, "%.200s", dlerror());
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
    for (cublasLtMatrixLayout_t l : {p->w, p->x, p->y})
        if (l)
            lib.f.layout_destroy(l);
}

/* How the library is asked. */
struct mode {
    int number; /* they differ in it */
    int pinned;
    cublasComputeType_t compute;
    size_t workspace;
};
const struct mode HEURISTIC = {0, 0, CUBLAS_COMPUTE_32F, WORKSPACE};
const struct mode PINNED = {1, 1, CUBLAS_COMPUTE_32F, WORKSPACE};
const struct mode TF32 = {2, 0, CUBLAS_COMPUTE_32F_FAST_TF32, WORKSPACE};
const struct mode SMALL = {3, 0, CUBLAS_COMPUTE_32F, 0};

cublasStatus_t describe_problem(const struct mode *m, const struct ds_matmul_args *a, int64_t rows,
                                struct problem *p)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
    cublasStatus_t s = lib.f.desc_create(&p->op, m->compute, CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lib.f.desc_set(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (s == CUBLAS_STATUS_SUCCESS && a->bias)
        s = lib.f.desc_set(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias, sizeof bias);
    if (s == CUBLAS_STATUS_SUCCESS && a->bias)
        s = lib.f.desc_set(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &a->bias, sizeof a->bias);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lib.f.layout_create(&p->w, CUDA_R_32F, (uint64_t)a->k, (uint64_t)a->n, a->k);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lib.f.layout_create(&p->x, CUDA_R_32F, (uint64_t)a->k, (uint64_t)rows, a->ldx);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lib.f.layout_create(&p->y, CUDA_R_32F, (uint64_t)a->n, (uint64_t)rows, a->ldy);
    return s;
}

/* The heuristic's first choice; pinned: the first that does not cut K. */
cublasStatus_t ask(cublasLtHandle_t h, const struct problem *p, const struct mode *m,
                   cublasLtMatmulHeuristicResult_t *out)
{
    const int unsplit = m->pinned;
    cublasLtMatmulHeuristicResult_t results[ASKED];
    cublasLtMatmulPreference_t preference = nullptr;
    const size_t workspace = m->workspace;
    const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    int n = 0;
    cublasStatus_t s = lib.f.preference_create(&preference);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lib.f.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                 sizeof workspace);
    if (s == CUBLAS_STATUS_SUCCESS && unsplit)
        s = lib.f.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none,
                                 sizeof none);
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
    int device, mode, bias;
    int64_t rows, n, k, ldx, ldy; /* rows 0: all */
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
} choices[MOST_CHOICES];
int n_choices;

struct choice key_of(const struct ds_matmul_args *a, const struct mode *m)
{
    struct choice c;
    memset(&c, 0, sizeof c);
    (void)cudaGetDevice(&c.device);
    c.mode = m->number;
    c.bias = a->bias != nullptr;
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
            c->rows == key->rows && c->n == key->n && c->k == key->k && c->ldx == key->ldx &&
            c->ldy == key->ldy)
            return c;
    }
    return nullptr;
}

/* The choice for these arguments: as it was made, or made now. */
int choose(const struct ds_device_call &call, cublasLtHandle_t h, const struct ds_matmul_args *a,
           const struct mode *m, struct choice *out)
{
    struct choice key = key_of(a, m);
    const struct choice *there = find_choice(&key);
    if (there) {
        *out = *there;
        return 0;
    }
    struct problem p = {};
    cublasLtMatmulHeuristicResult_t r;
    cublasStatus_t s = describe_problem(m, a, m->pinned ? (int64_t)PIN_ROWS : a->rows, &p);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = ask(h, &p, m, &r);
    forget(&p);
    if (s != CUBLAS_STATUS_SUCCESS)
        return ds_device_refuse(
            call, "cublasLtMatmulAlgoGetHeuristic for %lld rows, n %lld, k %lld: %s",
            (long long)a->rows, (long long)a->n, (long long)a->k, lib.f.status(s));
    key.algo = r.algo;
    key.workspace = r.workspaceSize;
    choices[n_choices % MOST_CHOICES] = key; /* full: the oldest is asked for again */
    n_choices = n_choices < MOST_CHOICES ? n_choices + 1 : (int)MOST_CHOICES;
    *out = key;
    return 0;
}

/* ---- the kernels --------------------------------------------------------------------------------------------- */

int run(const struct ds_device_call &call, cublasLtHandle_t h, const struct ds_matmul_args *a,
        const struct mode *m, const struct choice *c)
{
    const float one = 1.0f, zero = 0.0f;
    struct problem p = {};
    cublasLtMatmulHeuristicResult_t r;
    const char *what = "cublasLtMatmulDescCreate";
    cublasStatus_t s = describe_problem(m, a, a->rows, &p);
    if (s == CUBLAS_STATUS_SUCCESS && m->pinned) {
        what =
            "the algorithm that is pinned is not for this number of rows: cublasLtMatmulAlgoCheck";
        s = lib.f.algo_check(h, p.op, p.w, p.x, p.y, p.y, &c->algo, &r);
        if (s == CUBLAS_STATUS_SUCCESS && r.workspaceSize > call.exec->scratch_bytes)
            s = CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (s == CUBLAS_STATUS_SUCCESS) {
        what = "cublasLtMatmul";
        s = lib.f.matmul(h, p.op, &one, a->w.data, p.w, a->x, p.x, &zero, a->y, p.y, a->y, p.y,
                         &c->algo, m->workspace ? call.exec->scratch : nullptr, m->workspace,
                         static_cast<cudaStream_t>(call.exec->stream));
    }
    forget(&p);
    if (s != CUBLAS_STATUS_SUCCESS)
        return ds_device_refuse(call, "%s: %s (%lld rows, n %lld, k %lld)", what, lib.f.status(s),
                                (long long)a->rows, (long long)a->n, (long long)a->k);
    return ds_device_launched(call, "cublasLtMatmul");
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
    if (ds_device_check_scratch(call, m->workspace) != 0 || context_of(call, &h) != 0 ||
        choose(call, h, a, m, &c) != 0)
        return -1;
    return run(call, h, a, m, &c);
}

size_t workspace_bytes(const void *, int)
{
    return WORKSPACE;
}

/* Rows and columns of a tile, as the library names them: of y^T. */
const struct {
    int rows, columns;
} tiles[] = {{0, 0},     {8, 8},     {8, 16},    {16, 8},   {8, 32},   {16, 16},
             {32, 8},    {8, 64},    {16, 32},   {32, 16},  {64, 8},   {32, 32},
             {32, 64},   {64, 32},   {32, 128},  {64, 64},  {128, 32}, {64, 128},
             {128, 64},  {64, 256},  {128, 128}, {256, 64}, {64, 512}, {128, 256},
             {256, 128}, {512, 64},  {64, 96},   {96, 64},  {96, 128}, {128, 160},
             {160, 128}, {192, 128}, {128, 192}, {128, 96}, {32, 256}, {256, 32}};

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
    if (a->rows < 1 || a->n < 1 || context_of(call, &h) != 0 || choose(call, h, a, m, &c) != 0)
        return -1;
    const int tile = attribute(&c, CUBLASLT_ALGO_CONFIG_TILE_ID, 4);
    if (tile > 0 && tile < (int)(sizeof tiles / sizeof tiles[0])) {
        out->tile_rows = tiles[tile].columns;
        out->tile_cols = tiles[tile].rows;
    }
    out->split = attribute(&c, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4);
    char text[160] = "";
    snprintf(text, sizeof text, "%s a%d t%d s%d r%d c%d w%zu i%d x%d",
             m->compute == CUBLAS_COMPUTE_32F ? "f32" : "tf32",
             attribute(&c, CUBLASLT_ALGO_CONFIG_ID, 4), tile,
             attribute(&c, CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
             attribute(&c, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
             attribute(&c, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2), c.workspace >> 10,
             attribute(&c, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
             attribute(&c, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4));
    memcpy(out->algo, text, sizeof out->algo - 1); /* the last ones may fall off */
    return 0;
}

size_t no_bytes(const void *, int)
{
    return 0;
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

#define VARIANT(NAME, VARIANT_NAME, CLAIMS, MODE, BYTES, SUMMARY)                                  \
    extern "C" const struct ds_kernel ds_cuda_##NAME;                                              \
    const struct ds_kernel ds_cuda_##NAME = {.abi = DS_KERNEL_ABI,                                 \
                                             .op = DS_OP_MATMUL,                                   \
                                             .name = VARIANT_NAME,                                 \
                                             .summary = SUMMARY,                                   \
                                             .claims = CLAIMS,                                     \
                                             .features = 0,                                        \
                                             .available = available,                               \
                                             .prepare = nullptr,                                   \
                                             .scratch_bytes = BYTES,                               \
                                             .launch = launch<&MODE>,                              \
                                             .describe = describe<&MODE>,                          \
                                             .declare = nullptr,                                   \
                                             .device = DS_DEVICE_CUDA}
VARIANT(matmul_cublaslt, "cublaslt", DS_CLAIM_REPEAT, HEURISTIC, workspace_bytes,
        "cublasLt with its heuristic's choice for the shape: tiles, parts of K and order are the "
        "library's");
VARIANT(matmul_cublaslt_pinned, "cublaslt-pinned",
        DS_CLAIM_REPEAT | DS_CLAIM_BATCH | DS_CLAIM_SLOT | DS_CLAIM_THREADS, PINNED,
        workspace_bytes,
        "cublasLt with one algorithm for each n and k, which does not cut K, for all row counts");
VARIANT(matmul_cublaslt_tf32, "cublaslt-tf32", DS_CLAIM_REPEAT, TF32, workspace_bytes,
        "as cublaslt, with inputs of 10 bits on tensor cores (TF32): less exact");
VARIANT(matmul_cublaslt_small, "cublaslt-small", DS_CLAIM_REPEAT, SMALL, no_bytes,
        "as cublaslt, with no workspace for parts of K");
