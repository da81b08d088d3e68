/* matmul.c: y = x * w^T (+ bias), the reference and the pinned variant.
 *
 * reference  s = s + x[k]*w[k] in ascending k from +0, product and sum rounded; bias added last.
 * pinned     K in blocks of 256 from k = 0; in a block one chain s = fmaf(x[k], w[k], s) in
 * ascending k from +0; block sums added in ascending order, the first assigned; bias added last;
 * NaN as 7fc00000. prepare packs the weights as [ceil(n/16)][k][16], one layout for every
 * instruction set; weights given in their file's format only are packed as they are
 * (file_weights.h) and made f32 where they are used, exactly as a dequantiser does. */
#define _GNU_SOURCE
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/file_weights.h"
#include "kernels/cpu/matmul_parts.h"
#include "kernels/cpu/pinned.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int check(const struct ds_matmul_args *a, char *why, size_t why_size)
{
    if (a->w.n != a->n || a->w.k != a->k)
        return ds_cpu_refuse(why, why_size, "weights are %lld x %lld, the call says %lld x %lld",
                             (long long)a->w.n, (long long)a->w.k, (long long)a->n,
                             (long long)a->k);
    return 0;
}

static double work(const struct ds_matmul_args *a)
{
    return (double)a->rows * (double)a->n * (double)a->k;
}

/* ---- reference ------------------------------------------------------------------------------- */

/* Four outputs side by side (each still one chain in ascending k): a single chain would wait for
 * every addition. */
static void reference_columns(const void *args, const struct ds_exec *exec, int thread,
                              int64_t begin, int64_t end)
{
    const struct ds_matmul_args *a = args;
    (void)exec, (void)thread;
    for (int64_t j = begin; j < end; j += 4) {
        int64_t n = end - j < 4 ? end - j : 4;
        for (int64_t r = 0; r < a->rows; r++) {
            const float *x = a->x + r * a->ldx;
            const float *w[4];
            float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            for (int64_t i = 0; i < 4; i++)
                w[i] = a->w.data + (j + (i < n ? i : 0)) * a->k;
            for (int64_t k = 0; k < a->k; k++) {
                s[0] += x[k] * w[0][k];
                s[1] += x[k] * w[1][k];
                s[2] += x[k] * w[2][k];
                s[3] += x[k] * w[3][k];
            }
            for (int64_t i = 0; i < n; i++)
                a->y[r * a->ldy + j + i] = a->bias ? s[i] + a->bias[j + i] : s[i];
        }
    }
}

static int reference_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    const struct ds_matmul_args *a = args;
    if (check(a, why, why_size) != 0)
        return -1;
    ds_cpu_split(exec, a, a->n, 4, work(a), reference_columns);
    return 0;
}

static int reference_describe(const void *args, const struct ds_exec *exec,
                              struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = args;
    *out = (struct ds_launch_info){.tile_rows = 1,
                                   .tile_cols = 4,
                                   .split = 1,
                                   .threads = ds_cpu_threads(exec, (a->n + 3) / 4, work(a))};
    return 0;
}

/* ---- pinned ---------------------------------------------------------------------------------- */

/* Sixteen rows of w at a time, in squares of 16 x 16, so that reads and writes both use whole cache
 * lines. */
static void pack_panel(float *dst, const float *w, int64_t k, int64_t columns)
{
    if (columns < DS_PINNED_LANES)
        memset(dst, 0, (size_t)k * DS_PINNED_LANES * sizeof *dst);
    for (int64_t k0 = 0; k0 < k; k0 += 16) {
        int64_t kn = k - k0 < 16 ? k - k0 : 16;
        for (int64_t c = 0; c < columns; c++)
            for (int64_t i = 0; i < kn; i++)
                dst[(k0 + i) * 16 + c] = w[c * k + k0 + i];
    }
}

/* Memory for packed weights, not zeroed: every byte is written once. Large blocks ask for huge
 * pages, which halves the time to fill them and spares TLB misses when they are streamed; a refusal
 * does not matter. */
static float *packed_memory(size_t bytes)
{
    enum { HUGE_PAGE = 2 << 20 };
    const size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
    if (bytes > PTRDIFF_MAX - align)
        return NULL;
    void *p = NULL;
    if (posix_memalign(&p, align, bytes ? bytes : align) != 0)
        return NULL;
    if (align == HUGE_PAGE)
        madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static int file_prepare(const struct ds_weight_view *w, void **prepared, size_t *bytes_out,
                        char *why, size_t why_size)
{
    const struct ds_file_layout *l = ds_file_layout(w->file_type);
    size_t bytes;
    if (!l)
        return ds_cpu_refuse(why, why_size, "weights of file type %d are not read",
                             (int)w->file_type);
    if (w->n < 0 || w->k < 0 || w->k % l->block)
        return ds_cpu_refuse(why, why_size, "%s weights of %lld x %lld", l->name, (long long)w->n,
                             (long long)w->k);
    /* Never more than the f32 form, which is refused here when it does not fit. */
    if (__builtin_mul_overflow(((size_t)w->n + 15) / 16 * 64, (size_t)w->k + 1, &bytes))
        return ds_cpu_refuse(why, why_size, "weights of %lld x %lld do not fit in memory",
                             (long long)w->n, (long long)w->k);
    const size_t panel = ds_file_panel_bytes(l, w->k);
    bytes = ((size_t)w->n + 15) / 16 * panel;
    void *p = packed_memory(bytes);
    if (!p)
        return ds_cpu_refuse(why, why_size, "out of memory: %zu bytes for packed weights", bytes);
    for (int64_t j = 0; j < (w->n + 15) / 16; j++)
        ds_file_pack_panel(l, w, j, (unsigned char *)p + (size_t)j * panel);
    *prepared = p;
    *bytes_out = bytes;
    return 0;
}

int ds_pinned_prepare(const struct ds_weight_view *w, void **prepared, size_t *bytes_out, char *why,
                      size_t why_size)
{
    size_t columns, bytes;
    if (ds_file_weights_used(w))
        return file_prepare(w, prepared, bytes_out, why, why_size);
    if (!w->data && w->n && w->k)
        return ds_cpu_refuse(why, why_size, "there are no weights");
    if (w->n < 0 || w->k < 0)
        return ds_cpu_refuse(why, why_size, "weights of %lld x %lld", (long long)w->n,
                             (long long)w->k);
    columns = ((size_t)w->n + 15) / 16 * 16;
    if (__builtin_mul_overflow(columns, (size_t)w->k, &bytes) ||
        __builtin_mul_overflow(bytes, sizeof(float), &bytes))
        return ds_cpu_refuse(why, why_size, "weights of %lld x %lld do not fit in memory",
                             (long long)w->n, (long long)w->k);
    float *p = packed_memory(bytes);
    if (!p)
        return ds_cpu_refuse(why, why_size, "out of memory: %zu bytes for packed weights", bytes);
    for (int64_t j = 0; j < w->n; j += 16)
        pack_panel(p + j * w->k, w->data + j * w->k, w->k, w->n - j < 16 ? w->n - j : 16);
    *prepared = p;
    *bytes_out = bytes;
    return 0;
}

/* Work is cut over panels; over rows too where panels alone make unequal shares. Item i is row part
 * i / panels of panel i % panels, so that a thread's share is a few runs of panels. */
struct grid {
    const struct ds_matmul_args *a;
    void (*run)(const struct ds_matmul_args *a, int64_t row0, int64_t row1, int64_t panel0,
                int64_t panel1, float *work);
    int64_t panels;
    int64_t row_parts;
};

static void pinned_columns(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                           int64_t end)
{
    const struct grid *g = args;
    const int64_t floats = ds_pinned_matmul_floats(g->a->rows);
    float *work = floats ? ds_cpu_scratch_of(exec, floats, thread) : NULL;
    for (int64_t i = begin, stop; i < end; i = stop) {
        int64_t part = i / g->panels;
        stop = (part + 1) * g->panels < end ? (part + 1) * g->panels : end;
        g->run(g->a, g->a->rows * part / g->row_parts, g->a->rows * (part + 1) / g->row_parts,
               i - part * g->panels, stop - part * g->panels, work);
    }
}

/* Every row part reads all weights again, so there are just enough of them that the largest share
 * is an eighth above the others at most, and each has rows enough for several tiles; with fewer
 * panels than threads, as many as keep every thread busy. */
static int64_t row_parts(int64_t rows, int64_t panels, int threads)
{
    int64_t parts = 1, most = rows / (4 * (int64_t)ds_pinned_code()->tile_rows);
    if (panels < 1 || panels % threads == 0)
        return 1;
    if (panels < threads) {
        parts = (threads + panels - 1) / panels;
        return parts < rows ? parts : rows;
    }
    while (parts < most && parts * panels % threads && parts * panels < 8 * (int64_t)threads)
        parts++;
    return parts;
}

static void pinned_grid(const struct ds_matmul_args *a, const struct ds_exec *exec, struct grid *g)
{
    g->a = a;
    g->run = ds_file_weights_used(&a->w) ? ds_pinned_code()->matmul_file : ds_pinned_code()->matmul;
    g->panels = (a->n + 15) / 16;
    g->row_parts = row_parts(a->rows, g->panels, exec->threads);
}

static size_t pinned_scratch(const void *args, int threads)
{
    const struct ds_matmul_args *a = args;
    return ds_cpu_scratch(ds_pinned_matmul_floats(a->rows), threads);
}

static int pinned_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    struct grid g;
    if (check(a, why, why_size) != 0)
        return -1;
    if (!a->prepared)
        return ds_cpu_refuse(why, why_size, "weights were not packed (prepare was not called)");
    if (ds_cpu_check_scratch(exec, pinned_scratch(a, exec->threads), why, why_size) != 0)
        return -1;
    if (a->rows < 1)
        return 0;
    pinned_grid(a, exec, &g);
    ds_cpu_split(exec, &g, g.panels * g.row_parts, 1, 0.25 * work(a), pinned_columns);
    return 0;
}

static int pinned_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = args;
    const struct ds_pinned_code *code = ds_pinned_code();
    struct grid g;
    pinned_grid(a, exec, &g);
    *out = (struct ds_launch_info){
        .tile_rows = a->rows < code->tile_rows ? (int32_t)a->rows : code->tile_rows,
        .tile_cols = DS_PINNED_LANES * code->tile_panels,
        .tile_k = DS_PINNED_BLOCK,
        .split = (int32_t)((a->k + DS_PINNED_BLOCK - 1) / DS_PINNED_BLOCK),
        .threads = ds_cpu_threads(exec, g.panels * g.row_parts, 0.25 * work(a)),
    };
    strncpy(out->algo, code->name, sizeof out->algo - 1);
    return 0;
}

const struct ds_kernel ds_matmul_reference = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_MATMUL,
    .name = "reference",
    .claims = DS_CLAIM_ALL,
    .launch = reference_launch,
    .describe = reference_describe,
    .summary = "one sum in ascending k, product and sum rounded"};
const struct ds_kernel ds_matmul_pinned = {.abi = DS_KERNEL_ABI,
                                           .op = DS_OP_MATMUL,
                                           .name = "pinned",
                                           .claims = DS_CLAIM_ALL,
                                           .features = DS_FEATURE_FILE_WEIGHTS | DS_FEATURE_PACKED,
                                           .prepare = ds_pinned_prepare,
                                           .scratch_bytes = pinned_scratch,
                                           .launch = pinned_launch,
                                           .describe = pinned_describe,
                                           .summary =
                                               "K in blocks of 256, one fma chain a block in "
                                               "ascending k, block sums added in ascending order"};
