/* blas.c: OpenBLAS, opened with dlopen so that no binary links a BLAS, with a core of one's choice.
 * Owns the one library handle of the process. Knows no kernel. */
#define _GNU_SOURCE
#include "base/fp_control.h"
#include "base/names.h"
#include "kernels/cpu/openblas.h"
#include "kernels/registry.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Fixed names only: a path never comes from the environment. Fedora's threaded build has a name of
 * its own; the last is Debian's place when the alternatives system set no link. */
static const char *const library_names[] = {
    "libopenblas.so.0",
    "libopenblasp.so.0",
    "libopenblas.so",
    "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
};

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

struct symbols {
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    char *(*get_config)(void);
    char *(*get_corename)(void);
    void (*set_num_threads)(int threads);
    int (*get_num_threads)(void);
};

static struct {
    void *handle;
    struct symbols f;
    char core[64];
    char config[256];
    int max_threads;
} lib;

/* ---- cores ----------------------------------------------------------------------------------- */

enum {
    SSE3 = 1,
    SSSE3 = 2,
    SSE41 = 4,
    SSE42 = 8,
    SSE4A = 16,
    AVX = 32,
    FMA4 = 64,
    FMA = 128,
    AVX2 = 256,
    AVX512 = 512,
    AVX512_BF16 = 1024
};

static const struct {
    const char *name;
    unsigned needs;
} cores[] = {
    {"Prescott", SSE3},
    {"Core2", SSE3 | SSSE3},
    {"Atom", SSE3 | SSSE3},
    {"Penryn", SSE3 | SSSE3 | SSE41},
    {"Dunnington", SSE3 | SSSE3 | SSE41},
    {"Nehalem", SSE3 | SSSE3 | SSE42},
    {"Barcelona", SSE3 | SSE4A},
    {"Bobcat", SSE3 | SSSE3 | SSE4A},
    {"Sandybridge", AVX},
    {"Bulldozer", AVX | FMA4},
    {"Piledriver", AVX | FMA4 | FMA},
    {"Steamroller", AVX | FMA4 | FMA},
    {"Excavator", AVX | FMA4 | FMA | AVX2},
    {"Haswell", AVX | FMA | AVX2},
    {"Zen", AVX | FMA | AVX2},
    {"SkylakeX", AVX | FMA | AVX2 | AVX512},
    {"Cooperlake", AVX | FMA | AVX2 | AVX512 | AVX512_BF16},
    {"SapphireRapids", AVX | FMA | AVX2 | AVX512 | AVX512_BF16},
};
enum { N_CORES = sizeof cores / sizeof cores[0] };

static unsigned cpu_features(void)
{
    unsigned f = 0;
    __builtin_cpu_init();
    f |= __builtin_cpu_supports("sse3") ? SSE3 : 0;
    f |= __builtin_cpu_supports("ssse3") ? SSSE3 : 0;
    f |= __builtin_cpu_supports("sse4.1") ? SSE41 : 0;
    f |= __builtin_cpu_supports("sse4.2") ? SSE42 : 0;
    f |= __builtin_cpu_supports("sse4a") ? SSE4A : 0;
    f |= __builtin_cpu_supports("avx") ? AVX : 0;
    f |= __builtin_cpu_supports("fma4") ? FMA4 : 0;
    f |= __builtin_cpu_supports("fma") ? FMA : 0;
    f |= __builtin_cpu_supports("avx2") ? AVX2 : 0;
    f |= __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl")
             ? AVX512
             : 0;
    f |= __builtin_cpu_supports("avx512bf16") ? AVX512_BF16 : 0;
    return f;
}

int ds_blas_core_runs_here(const char *core)
{
    for (int i = 0; i < N_CORES; i++)
        if (strcasecmp(core, cores[i].name) == 0)
            return (cores[i].needs & ~cpu_features()) == 0;
    return -1;
}

int ds_blas_core_known(const char *core, struct ds_error *err)
{
    const char *names[N_CORES];
    if (ds_blas_core_runs_here(core) >= 0)
        return 0;
    for (int i = 0; i < N_CORES; i++)
        names[i] = cores[i].name;
    ds_fail(err, "unknown openblas core '%.40s'", core);
    int near = ds_nearest(core, names, N_CORES);
    return near >= 0
               ? ds_hint(err, "did you mean %s?", names[near])
               : ds_hint(err, "for example Haswell, Zen, SkylakeX, Sandybridge, Nehalem, Prescott");
}

static int check_core(const char *core, struct ds_error *err)
{
    if (ds_blas_core_known(core, err) != 0)
        return -1;
    return ds_blas_core_runs_here(core)
               ? 0
               : ds_fail(err, "openblas core %s: this CPU lacks instructions that it needs", core);
}

/* ---- loading --------------------------------------------------------------------------------- */

static int find_symbols(void *handle, struct symbols *f, struct ds_error *err)
{
    static const char *const names[] = {"cblas_sgemm", "openblas_get_config",
                                        "openblas_get_corename", "openblas_set_num_threads",
                                        "openblas_get_num_threads"};
    void *found[5];
    for (int i = 0; i < 5; i++) {
        found[i] = dlsym(handle, names[i]);
        if (!found[i])
            return ds_fail(err,
                           "the BLAS library has no function %s: it is not a complete OpenBLAS",
                           names[i]);
    }
    memcpy(&f->sgemm, &found[0], sizeof found[0]);
    memcpy(&f->get_config, &found[1], sizeof found[1]);
    memcpy(&f->get_corename, &found[2], sizeof found[2]);
    memcpy(&f->set_num_threads, &found[3], sizeof found[3]);
    memcpy(&f->get_num_threads, &found[4], sizeof found[4]);
    return 0;
}

static void *open_first(struct ds_error *err)
{
    char first[256] = "";
    for (size_t i = 0; i < sizeof library_names / sizeof library_names[0]; i++) {
        void *handle = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL);
        if (handle)
            return handle;
        if (!first[0])
            snprintf(first, sizeof first, "%s", dlerror());
    }
    ds_fail(err, "openblas cannot be opened: %s", first);
    ds_hint(err, "install it, for example: apt-get install libopenblas0-pthread");
    return NULL;
}

/* Loading code can change the floating-point mode of the thread that loads it; that would change
 * every result after. */
static void *open_checked(struct symbols *f, struct ds_error *err)
{
    const uint32_t before = ds_fp_control();
    void *handle = open_first(err);
    const uint32_t after = ds_fp_control();
    const int changed = ds_fp_restore(before);
    if (!handle)
        return NULL;
    if (changed) {
        ds_fail(err, "loading openblas changed the floating-point mode (MXCSR %04x to %04x)",
                (unsigned)before, (unsigned)after);
    } else if (find_symbols(handle, f, err) == 0) {
        return handle;
    }
    dlclose(handle);
    return NULL;
}

/* Opens the library with OPENBLAS_CORETYPE set to `core` (NULL: as it is), then puts the variable
 * back. */
static void *open_with_core(const char *core, struct symbols *f, struct ds_error *err)
{
    static const char variable[] = "OPENBLAS_CORETYPE";
    const char *now = getenv(variable);
    char *old = now ? strdup(now) : NULL;
    void *handle = NULL;
    if (now && !old)
        ds_fail(err, "out of memory");
    else if (core && setenv(variable, core, 1) != 0)
        ds_fail(err, "%s cannot be set: out of memory", variable);
    else
        handle = open_checked(f, err);
    if (core && old)
        setenv(variable, old, 1);
    else if (core)
        unsetenv(variable);
    free(old);
    return handle;
}

int ds_blas_probe(struct ds_error *err)
{
    struct symbols f;
    if (lib.handle)
        return 0;
    void *handle = open_with_core(NULL, &f, err);
    if (!handle)
        return -1;
    dlclose(handle);
    return 0;
}

/* "... MAX_THREADS=64": the library's own limit. */
static int read_max_threads(const char *config)
{
    const char *at = strstr(config, "MAX_THREADS=");
    long n = at ? strtol(at + strlen("MAX_THREADS="), NULL, 10) : 0;
    return n > 0 && n < 1 << 20 ? (int)n : 1;
}

static int check_loaded(const char *asked, const char *reported, struct ds_error *err)
{
    if (asked && strcasecmp(asked, reported) != 0) {
        ds_fail(err, "openblas was asked for core %s and took %s", asked, reported);
        return ds_hint(err, "this build of the library has no %s kernels", asked);
    }
    if (ds_blas_core_runs_here(reported) == 0) {
        ds_fail(err, "openblas took core %s, whose instructions this CPU lacks", reported);
        return ds_hint(err, "is OPENBLAS_CORETYPE set in the environment?");
    }
    return 0;
}

int ds_blas_open(const char *core, struct ds_error *err)
{
    struct symbols f;
    if (core && !core[0])
        core = NULL;
    if (lib.handle) {
        if (!core || strcasecmp(core, lib.core) == 0)
            return 0;
        ds_fail(err, "openblas is open with core %s; %s needs a process of its own", lib.core,
                core);
        return -1;
    }
    if (core && check_core(core, err) != 0)
        return -1;
    void *handle = open_with_core(core, &f, err);
    if (!handle)
        return -1;
    if (check_loaded(core, f.get_corename(), err) != 0) {
        dlclose(handle);
        return -1;
    }
    snprintf(lib.core, sizeof lib.core, "%s", f.get_corename());
    /* openblas_get_parallel: 0 sequential, 1 its own threads, 2 OpenMP. */
    static const char *const layers[] = {"sequential", "pthreads", "openmp"};
    int (*parallel)(void) = NULL;
    void *symbol = dlsym(handle, "openblas_get_parallel");
    memcpy(&parallel, &symbol, sizeof parallel);
    int layer = parallel ? parallel() : -1;
    snprintf(lib.config, sizeof lib.config, "%s %s", f.get_config(),
             layer >= 0 && layer < 3 ? layers[layer] : "unknown threads");
    lib.max_threads = read_max_threads(lib.config);
    lib.f = f;
    lib.handle = handle;
    return 0;
}

/* ---- use ------------------------------------------------------------------------------------- */

int ds_blas_is_open(void)
{
    return lib.handle != NULL;
}

const char *ds_blas_core(void)
{
    return lib.core;
}

const char *ds_blas_config(void)
{
    return lib.config;
}

int ds_blas_max_threads(void)
{
    return lib.max_threads;
}

int ds_blas_set_threads(int threads)
{
    if (!lib.handle || threads < 1 || threads > lib.max_threads)
        return -1;
    if (lib.f.get_num_threads() != threads)
        lib.f.set_num_threads(threads);
    return lib.f.get_num_threads() == threads ? 0 : -1;
}

int ds_blas_sgemm_nt(int m, int n, int k, const float *x, int ldx, const float *w, int ldw,
                     float *y, int ldy)
{
    if (!lib.handle)
        return -1;
    lib.f.sgemm(ROW_MAJOR, NO_TRANS, TRANS, m, n, k, 1.0f, x, ldx, w, ldw, 0.0f, y, ldy);
    return 0;
}
