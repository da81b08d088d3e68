/* cblas.c: see cblas.h. Owns the handle of the one library, and what is known of each family: how
 * it tells its version and takes its number of threads. */
#include "kernels/cblas.h"

#include "base/fp_control.h"
#include "kernels/shared_object.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char WHAT[] = "blas library";

/* Sizes are passed as 64 bits: right for a library with 64-bit integers, and one with 32-bit
 * integers reads the lower half of the same register or stack slot. */
typedef void (*sgemm_fn)(int64_t order, int64_t trans_a, int64_t trans_b, int64_t m, int64_t n,
                         int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                         int64_t ldb, float beta, float *c, int64_t ldc);
/* The three of MKL. m is no part of what is packed: every call brings its own. */
typedef size_t (*pack_size_fn)(int64_t identifier, int64_t m, int64_t n, int64_t k);
typedef void (*pack_fn)(int64_t order, int64_t identifier, int64_t trans, int64_t m, int64_t n,
                        int64_t k, float alpha, const float *src, int64_t ld, float *packed);
typedef void (*compute_fn)(int64_t order, int64_t trans_a, int64_t trans_b, int64_t m, int64_t n,
                           int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb,
                           float beta, float *c, int64_t ldc);
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112, PACKED = 151, B_MATRIX = 162, PACK_ROWS = 64 };

/* What the child that tries the library has to say. */
struct report {
    struct ds_error err;
    int failed;
    uint32_t fp_after;
    char config[80];
    int packs;
};

static struct {
    const char *path;
    uint64_t digest;
    struct report report;
    void *handle;
    sgemm_fn sgemm;
    void (*set_threads)(int64_t threads);
    int (*get_threads)(void);
    pack_size_fn pack_size;
    pack_fn pack;
    compute_fn compute;
} lib;

/* ---- families -------------------------------------------------------------------------------- */

static const struct {
    const char *set, *get; /* functions that set and tell the number of threads */
} thread_functions[] = {
    {"openblas_set_num_threads", "openblas_get_num_threads"},
    {"bli_thread_set_num_threads", "bli_thread_get_num_threads"},
    {"MKL_Set_Num_Threads", NULL}, /* what MKL_Get_Max_Threads says may be less: it knows cores */
};

static void *function(void *handle, const char *name)
{
    return name ? dlsym(handle, name) : NULL;
}

static void find_thread_functions(void *handle)
{
    for (size_t i = 0; i < sizeof thread_functions / sizeof thread_functions[0]; i++) {
        void *set = function(handle, thread_functions[i].set),
             *get = function(handle, thread_functions[i].get);
        if (!set)
            continue;
        memcpy(&lib.set_threads, &set, sizeof set);
        memcpy(&lib.get_threads, &get, sizeof get);
        return;
    }
}

static const char *text_of(void *handle, const char *name)
{
    const char *(*ask)(void);
    void *symbol = dlsym(handle, name);
    memcpy(&ask, &symbol, sizeof ask);
    const char *text = symbol ? ask() : NULL;
    return text;
}

static int blis_says(void *handle, char *out, size_t size)
{
    const char *version = text_of(handle, "bli_info_get_version_str"), *arch = NULL;
    int (*query)(void);
    const char *(*name)(int id);
    void *id = dlsym(handle, "bli_arch_query_id"), *string = dlsym(handle, "bli_arch_string");
    memcpy(&query, &id, sizeof id);
    memcpy(&name, &string, sizeof string);
    if (!version)
        return 0;
    if (id && string)
        arch = name(query());
    snprintf(out, size, "BLIS %s%s%s", version, arch ? " " : "", arch ? arch : "");
    return 1;
}

/* "Intel(R) oneAPI Math Kernel Library Version 2026.2-Product Build 20260915 for ..." */
static int mkl_says(void *handle, char *out, size_t size)
{
    char text[256] = "";
    void (*ask)(char *text, int size);
    void *symbol = dlsym(handle, "MKL_Get_Version_String");
    memcpy(&ask, &symbol, sizeof ask);
    if (!symbol)
        return 0;
    ask(text, sizeof text - 1);
    char *version = strstr(text, "Version "), *end = version ? strstr(version, " for ") : NULL;
    if (end)
        *end = '\0';
    snprintf(out, size, "MKL %.60s", version ? version + strlen("Version ") : "");
    return 1;
}

static void describe(void *handle, char *out, size_t size)
{
    const char *config = text_of(handle, "openblas_get_config");
    if (config)
        snprintf(out, size, "%.70s", config);
    else if (!blis_says(handle, out, size) && !mkl_says(handle, out, size))
        snprintf(out, size, "unknown");
}

/* All three or none. */
static void find_packing(void *handle)
{
    void *size = dlsym(handle, "cblas_sgemm_pack_get_size"),
         *pack = dlsym(handle, "cblas_sgemm_pack"), *compute = dlsym(handle, "cblas_sgemm_compute");
    if (!size || !pack || !compute)
        return;
    memcpy(&lib.pack_size, &size, sizeof size);
    memcpy(&lib.pack, &pack, sizeof pack);
    memcpy(&lib.compute, &compute, sizeof compute);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Row 1 is too far down to be read if rows and columns were mixed up. */
static const float small_x[2][4] = {{1, 2, 3, 9}, {4, 5, 6, 9}},
                   small_w[2][3] = {{7, 8, 9}, {1, 0, -1}},
                   small_y[2][3] = {{50, -2, -1}, {122, -2, -1}};

static int multiply_small(struct ds_error *err)
{
    float y[2][3] = {{-1, -1, -1}, {-1, -1, -1}};
    if (ds_cblas_set_threads(1) < 0)
        return ds_fail(err, "%s %s: does not take 1 thread", WHAT, lib.path);
    lib.sgemm(ROW_MAJOR, NO_TRANS, TRANS, 2, 2, 3, 1.0f, small_x[0], 4, small_w[0], 3, 0.0f, y[0],
              3);
    if (memcmp(y, small_y, sizeof y) != 0)
        return ds_fail(err, "%s %s: its cblas_sgemm gives a wrong product of two small matrices",
                       WHAT, lib.path);
    return 0;
}

/* ds_cblas_packs of the library, by the same matrices. */
static int pack_small(void)
{
    float y[2][3] = {{-1, -1, -1}, {-1, -1, -1}};
    const size_t bytes = ds_cblas_packed_bytes(2, 3);
    float *packed = bytes ? aligned_alloc(DS_CBLAS_PACKED_ALIGN, bytes) : NULL;
    if (!packed)
        return 0;
    ds_cblas_pack(2, 3, small_w[0], 3, packed);
    ds_cblas_sgemm_packed(2, 2, 3, small_x[0], 4, packed, y[0], 3);
    free(packed);
    return memcmp(y, small_y, sizeof y) == 0 ? 1 : -1;
}

int ds_cblas_open(struct ds_error *err)
{
    if (lib.handle)
        return 0;
    if (!lib.path) {
        ds_fail(err, "no library was given for matmul/cblas");
        return ds_hint(err, "name one with --blas FILE.so");
    }
    const uint32_t fp = ds_fp_control();
    void *handle = ds_so_open(WHAT, lib.path, err);
    lib.report.fp_after = ds_fp_control();
    ds_fp_restore(fp);
    if (lib.report.fp_after == fp)
        lib.report.fp_after = 0;
    if (!handle)
        return -1;
    void *symbol = dlsym(handle, "cblas_sgemm");
    if (!symbol)
        return ds_fail(err, "%s %s: has no function cblas_sgemm", WHAT, lib.path);
    memcpy(&lib.sgemm, &symbol, sizeof symbol);
    find_thread_functions(handle);
    find_packing(handle);
    lib.handle = handle;
    return 0;
}

/* Everything that can go wrong, in the child. */
static void rehearse(void *arg)
{
    struct report *r = arg;
    r->failed = ds_cblas_open(&r->err) != 0 || multiply_small(&r->err) != 0;
    r->fp_after = lib.report.fp_after;
    if (r->failed)
        return;
    describe(lib.handle, r->config, sizeof r->config);
    r->packs = pack_small();
}

int ds_cblas_choose(const char *path, int seconds, struct ds_error *err)
{
    if (ds_so_read(WHAT, path, &lib.digest, err) != 0)
        return -1;
    struct report *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return ds_fail(err, "%s %s: out of memory", WHAT, path);
    lib.path = path;
    int rc = ds_so_try(WHAT, path, seconds, rehearse, shared, err);
    lib.report = *shared;
    munmap(shared, sizeof *shared);
    if (rc == 0 && lib.report.failed) {
        if (err)
            *err = lib.report.err;
        rc = -1;
    }
    if (rc != 0)
        lib.path = NULL;
    return rc;
}

/* ---- use ------------------------------------------------------------------------------------- */

const char *ds_cblas_path(void)
{
    return lib.path ? lib.path : "";
}

const char *ds_cblas_file(void)
{
    const char *slash = lib.path ? strrchr(lib.path, '/') : NULL;
    return slash ? slash + 1 : ds_cblas_path();
}

uint64_t ds_cblas_digest(void)
{
    return lib.path ? lib.digest : 0;
}

const char *ds_cblas_config(void)
{
    return lib.path ? lib.report.config : "";
}

uint32_t ds_cblas_fp_changed(void)
{
    return lib.path ? lib.report.fp_after : 0;
}

int ds_cblas_set_threads(int threads)
{
    if (!lib.sgemm || threads < 1)
        return -1;
    if (!lib.set_threads)
        return 1;
    lib.set_threads(threads);
    return !lib.get_threads || lib.get_threads() == threads ? 0 : -1;
}

int ds_cblas_sgemm_nt(int64_t m, int64_t n, int64_t k, const float *x, int64_t ldx, const float *w,
                      int64_t ldw, float *y, int64_t ldy)
{
    if (!lib.handle)
        return -1;
    lib.sgemm(ROW_MAJOR, NO_TRANS, TRANS, m, n, k, 1.0f, x, ldx, w, ldw, 0.0f, y, ldy);
    return 0;
}

int ds_cblas_packs(void)
{
    return lib.path ? lib.report.packs : 0;
}

size_t ds_cblas_packed_bytes(int64_t n, int64_t k)
{
    const size_t bytes = lib.pack_size ? lib.pack_size(B_MATRIX, PACK_ROWS, n, k) : 0,
                 page = DS_CBLAS_PACKED_ALIGN;
    return bytes > PTRDIFF_MAX - page ? 0 : (bytes + page - 1) / page * page;
}

void ds_cblas_pack(int64_t n, int64_t k, const float *w, int64_t ldw, float *packed)
{
    lib.pack(ROW_MAJOR, B_MATRIX, TRANS, PACK_ROWS, n, k, 1.0f, w, ldw, packed);
}

void ds_cblas_sgemm_packed(int64_t m, int64_t n, int64_t k, const float *x, int64_t ldx,
                           const float *packed, float *y, int64_t ldy)
{
    lib.compute(ROW_MAJOR, NO_TRANS, PACKED, m, n, k, x, ldx, packed, k, 0.0f, y, ldy);
}
