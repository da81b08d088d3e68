/* cublaslt.cc: the cublasLt of cublasLt.h for the tests: a heuristic whose choice depends on the number of rows, the workspace,
 * the reduction schemes that are allowed and how arrays are aligned, and matmuls that do what was chosen. It is no
 * model of NVIDIA's library: it has what must show when the device cuda is asked what the library did. Stricter where
 * that finds mistakes: arrays that are not aligned as an algorithm wants, a workspace that is too small, a context
 * made inside of a capture.
 *
 *   algorithm 20   arrays at multiples of 16 bytes: tiles of 64x64 (rows of y <= 8: 64x8); for up to 4 rows and k of 256 or
 *                  more K in 3 parts, added as y's type (scheme 4) where that is allowed, else in f32 (scheme 2)
 *   algorithm 21   any arrays: tiles of 32x32, K in one part
 *
 * A part is one fma chain in ascending k from +0; parts are added in ascending order. */
#include "tests/cuda/cublasLt.h"

extern "C" {
#include "base/dtype.h"
}

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ds_test_blas {
    int made;
};
struct ds_test_matmul {
    cublasComputeType_t compute;
    int transposed, bias;
    const void *bias_at;
};
struct ds_test_layout {
    cudaDataType_t type;
    int64_t rows, cols, ld;
};
struct ds_test_preference {
    size_t workspace;
    uint32_t schemes, aligned[4];
};

namespace
{

enum field { ID, TILE, SPLIT, SCHEME, ALIGNED };
enum { TILE_64_8 = 10, TILE_32_32 = 11, TILE_64_64 = 15 };

/* tests/cuda/runtime.cc's: runs, or records, body(arg) as one thread of a kernel. */
typedef cudaError_t (*run_fn)(const char *name, cudaStream_t s, void (*body)(const void *),
                              const void *arg, size_t bytes);
typedef int (*capturing_fn)(void);

template <class F> F of_runtime(const char *name)
{
    const char *text = getenv(name);
    void *p = nullptr;
    F f = nullptr;
    if (text && sscanf(text, "%p", &p) == 1)
        memcpy(&f, &p, sizeof f);
    return f;
}

size_t bytes_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

struct job {
    const void *w, *x, *bias;
    void *y;
    int64_t n, k, rows, ldw, ldx, ldy;
    int in, out, tf32, split, scheme;
};

float element(const void *p, int type, int64_t i)
{
    return type == CUDA_R_32F    ? static_cast<const float *>(p)[i]
           : type == CUDA_R_16BF ? ds_bf16_value(static_cast<const uint16_t *>(p)[i])
                                 : ds_f16_value(static_cast<const uint16_t *>(p)[i]);
}

float rounded(float v, int type)
{
    return type == CUDA_R_32F    ? v
           : type == CUDA_R_16BF ? ds_bf16_value(ds_bf16_round(v))
                                 : ds_f16_value(ds_f16_round(v));
}

float tf32(float v)
{
    return ds_f32_from_bits((ds_f32_bits(v) + 0xfffu + (ds_f32_bits(v) >> 13 & 1u)) & ~0x1fffu);
}

float one(const struct job *j, int64_t r, int64_t c)
{
    const int64_t share = (j->k + j->split - 1) / j->split;
    float sum = 0;
    for (int part = 0; part < j->split; part++) {
        float s = 0;
        for (int64_t i = part * share; i < (part + 1) * share && i < j->k; i++) {
            const float a = element(j->x, j->in, r * j->ldx + i),
                        b = element(j->w, j->in, c * j->ldw + i);
            s = j->tf32 ? fmaf(tf32(a), tf32(b), s) : fmaf(a, b, s);
        }
        s = j->scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE ? rounded(s, j->out) : s;
        sum = part ? sum + s : s;
    }
    return j->bias ? sum + element(j->bias, j->out, c) : sum;
}

void compute(const void *arg)
{
    struct job j;
    memcpy(&j, arg, sizeof j);
    for (int64_t r = 0; r < j.rows; r++)
        for (int64_t c = 0; c < j.n; c++) {
            const float v = one(&j, r, c);
            const int64_t at = r * j.ldy + c;
            if (j.out == CUDA_R_32F)
                static_cast<float *>(j.y)[at] = isnan(v) ? ds_f32_from_bits(0x7fc00000u) : v;
            else
                static_cast<uint16_t *>(j.y)[at] =
                    j.out == CUDA_R_16BF ? ds_bf16_round(v) : ds_f16_round(v);
        }
}

/* What the description is not: y^T = w x^T with w transposed, all sizes alike. */
int wrong(const struct ds_test_matmul *d, const struct ds_test_layout *a,
          const struct ds_test_layout *b, const struct ds_test_layout *y)
{
    return !d->transposed || a->rows != b->rows || a->cols != y->rows || b->cols != y->cols ||
           a->ld < a->rows || b->ld < b->rows || y->ld < y->rows || a->type != b->type ||
           (y->type != CUDA_R_32F && y->type != a->type) || a->rows < 1 || a->cols < 1 ||
           b->cols < 1;
}

size_t workspace_of(const cublasLtMatmulAlgo_t *algo, const struct ds_test_layout *y)
{
    return algo->data[SPLIT] < 2 ? 0
                                 : algo->data[SPLIT] * (size_t)(y->rows * y->cols) *
                                       (algo->data[SCHEME] == 4 ? bytes_of(y->type) : 4);
}

void choose(const struct ds_test_preference *p, const struct ds_test_layout *a,
            const struct ds_test_layout *y, cublasLtMatmulHeuristicResult_t *out)
{
    int aligned = (a->ld * (int64_t)bytes_of(a->type)) % 16 == 0;
    for (int i = 0; i < 4; i++)
        aligned &= p->aligned[i] >= 16;
    const uint32_t scheme = y->type != CUDA_R_32F && p->schemes & 4 ? 4 : p->schemes & 2 ? 2 : 0;
    memset(out, 0, sizeof *out);
    out->algo.data[ID] = aligned ? 20 : 21;
    out->algo.data[TILE] = !aligned ? TILE_32_32 : y->cols <= 8 ? TILE_64_8 : TILE_64_64;
    out->algo.data[SPLIT] = 1;
    out->algo.data[ALIGNED] = aligned ? 16 : 1;
    if (aligned && scheme && y->cols <= 4 && a->rows >= 256) {
        out->algo.data[SPLIT] = 3;
        out->algo.data[SCHEME] = scheme;
        if (workspace_of(&out->algo, y) > p->workspace)
            out->algo.data[SPLIT] = 1, out->algo.data[SCHEME] = 0;
    }
    out->workspaceSize = workspace_of(&out->algo, y);
}

/* Whether DS_TEST_CUDA says that this call of the function fails: "fails=cublasLtMatmul:2", the second one. */
int fails(const char *function = __builtin_FUNCTION())
{
    static int calls;
    const char *asked = getenv("DS_TEST_CUDA"), *at = asked ? strstr(asked, "fails=") : nullptr;
    const size_t n = strlen(function);
    if (!at || strncmp(at + 6, function, n) != 0 || (at[6 + n] && !strchr(":,", at[6 + n])))
        return 0;
    return ++calls == (at[6 + n] == ':' ? atoi(at + 7 + n) : 1);
}

} /* namespace */

size_t cublasLtGetVersion(void)
{
    return 130000;
}

const char *cublasLtGetStatusString(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS            ? "CUBLAS_STATUS_SUCCESS"
           : s == CUBLAS_STATUS_NOT_INITIALIZED  ? "CUBLAS_STATUS_NOT_INITIALIZED"
           : s == CUBLAS_STATUS_INVALID_VALUE    ? "CUBLAS_STATUS_INVALID_VALUE"
           : s == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                                 : "CUBLAS_STATUS_NOT_SUPPORTED";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    if (fails())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    const capturing_fn capturing = of_runtime<capturing_fn>("DS_TEST_CUDA_CAPTURING");
    if (!capturing || capturing())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *out = new ds_test_blas{1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute_type,
                                        cudaDataType_t scale)
{
    if (fails())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = new ds_test_matmul{compute_type, 0, 0, nullptr};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    delete d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    if (fails())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    int number = 0;
    if (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER) {
        if (bytes != sizeof d->bias_at)
            return CUBLAS_STATUS_INVALID_VALUE;
        memcpy(&d->bias_at, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    if (bytes != sizeof number)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&number, value, bytes);
    if (what == CUBLASLT_MATMUL_DESC_TRANSA)
        d->transposed = number == CUBLAS_OP_T;
    else if (what == CUBLASLT_MATMUL_DESC_EPILOGUE)
        d->bias = number == CUBLASLT_EPILOGUE_BIAS;
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    if (fails())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *out = new ds_test_layout{type, (int64_t)rows, (int64_t)cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    if (fails())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *out = new ds_test_preference{0, 7, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    if (fails())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    const int wide = what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    if (bytes != (wide ? sizeof(size_t) : sizeof(uint32_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (wide)
        memcpy(&p->workspace, value, bytes);
    else if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        memcpy(&p->schemes, value, bytes);
    else
        memcpy(&p->aligned[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t y,
                                              cublasLtMatmulPreference_t p, int asked,
                                              cublasLtMatmulHeuristicResult_t *out, int *n)
{
    if (fails())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *n = 0;
    if (wrong(d, a, b, y) || asked < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    choose(p, a, y, out);
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t y,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *out)
{
    if (fails())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (wrong(d, a, b, y))
        return CUBLAS_STATUS_INVALID_VALUE;
    out->algo = *algo;
    out->workspaceSize = workspace_of(algo, y);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    void *value, size_t bytes, size_t *written)
{
    if (fails())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    const int shorts = what == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                       what == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    const uint32_t v = what == CUBLASLT_ALGO_CONFIG_ID           ? (uint32_t)algo->data[ID]
                       : what == CUBLASLT_ALGO_CONFIG_TILE_ID    ? (uint32_t)algo->data[TILE]
                       : what == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? (uint32_t)algo->data[SPLIT]
                       : what == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME
                           ? (uint32_t)algo->data[SCHEME]
                           : 0;
    *written = bytes;
    if (bytes != (shorts ? sizeof(uint16_t) : sizeof v))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &v, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *,
                              cublasLtMatrixLayout_t, void *y, cublasLtMatrixLayout_t ly,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    if (fails())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    const uintptr_t all = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) |
                          reinterpret_cast<uintptr_t>(y);
    const run_fn run = of_runtime<run_fn>("DS_TEST_CUDA_RUN");
    const size_t need = workspace_of(algo, ly);
    if (!run || wrong(d, la, lb, ly) || *static_cast<const float *>(alpha) != 1.0f ||
        *static_cast<const float *>(beta) != 0.0f || (d->bias && !d->bias_at) ||
        all % algo->data[ALIGNED] ||
        (need &&
         (workspace_bytes < need || !workspace || reinterpret_cast<uintptr_t>(workspace) % 256)))
        return CUBLAS_STATUS_INVALID_VALUE;
    struct job j;
    memset(&j, 0, sizeof j);
    j.w = a;
    j.x = b;
    j.bias = d->bias ? d->bias_at : nullptr;
    j.y = y;
    j.n = ly->rows;
    j.k = la->rows;
    j.rows = ly->cols;
    j.ldw = la->ld;
    j.ldx = lb->ld;
    j.ldy = ly->ld;
    j.in = la->type;
    j.out = ly->type;
    j.tf32 = d->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    j.split = (int)algo->data[SPLIT];
    j.scheme = (int)algo->data[SCHEME];
    return run("cublasLt", stream, compute, &j, sizeof j) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
