/* environment.c: what decides bits outside the model and the options: processor, floating-point
 * state, compiler, libraries, a few variables. Owns the whitelist; nothing else of the environment
 * enters a record, no host name, no user, no folder. */
#include "cli/cli.h"

#include "base/fp_control.h"
#include "base/mem.h"
#include "dumps/record.h"
#include "kernels/cblas.h"
#include "kernels/plugin.h"
#include "kernels/registry.h"

#include "build_info.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fenv.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>

#define DS_VERSION "0.1.0"

/* Variables that change which code runs or how a sum is split. */
static const char *const variables[] = {
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "OPENBLAS_DEFAULT_NUM_THREADS",
    "OPENBLAS_MAIN_FREE",
    "OPENBLAS_BLOCK_FACTOR",
    "OPENBLAS_THREAD_TIMEOUT",
    "OPENBLAS_ADAPTIVE",
    "OPENBLAS_VERBOSE",
    "GOTO_NUM_THREADS",
    "GOTOBLAS_MAIN_FREE",
    "OMP_NUM_THREADS",
    "OMP_DYNAMIC",
    "OMP_SCHEDULE",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "OMP_WAIT_POLICY",
    "OMP_THREAD_LIMIT",
    "OMP_MAX_ACTIVE_LEVELS",
    "OMP_NESTED",
    "GOMP_CPU_AFFINITY",
    "GOMP_SPINCOUNT",
    "MKL_NUM_THREADS",
    "MKL_DYNAMIC",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_THREADING_LAYER",
    "MKL_NUM_STRIPES",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY",
};

/* CPU flags that decide which arithmetic code can run; the other hundred only cost space. */
static const char *const flag_starts[] = {"sse", "ssse",  "avx", "fma", "f16c", "amx",
                                          "bmi", "asimd", "fp",  "sve", "bf16", "vsx"};

struct list {
    struct ds_text *lines;
    size_t n, cap;
    struct ds_error *err;
    int failed;
};

static void add(struct list *l, const char *name, const char *value)
{
    if (l->failed)
        return;
    char *copy_name = strdup(name), *copy_value = strdup(value);
    if (!copy_name || !copy_value ||
        ds_grow(&l->lines, &l->cap, l->n + 1, sizeof *l->lines, "environment", l->err) != 0) {
        free(copy_name);
        free(copy_value);
        l->failed = 1;
        ds_fail(l->err, "out of memory for the environment");
        return;
    }
    l->lines[l->n].name = copy_name;
    l->lines[l->n++].value = copy_value;
}

static void add_format(struct list *l, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void add_format(struct list *l, const char *name, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    add(l, name, text);
}

/* ---- processor ------------------------------------------------------------------------------- */

static void add_cpu_flags(struct list *l, char *flags)
{
    struct ds_buf b = {0};
    for (char *save = NULL, *p = strtok_r(flags, " \t\n", &save); p;
         p = strtok_r(NULL, " \t\n", &save))
        for (size_t i = 0; i < sizeof flag_starts / sizeof flag_starts[0]; i++)
            /* x86 has a flag "fpu", which says nothing; arm's "fp" and "fphp" do. */
            if (strncmp(p, flag_starts[i], strlen(flag_starts[i])) == 0 && strcmp(p, "fpu") != 0) {
                ds_buf_printf(&b, "%s%s", b.len ? " " : "", p);
                break;
            }
    add(l, "cpu_flags", b.data && !b.failed ? b.data : "unknown");
    ds_buf_free(&b);
}

/* The first processor's entry; a machine with unlike cores is not told apart here. */
static void add_cpu(struct list *l)
{
    static const struct {
        const char *field, *name;
    } wanted[] = {{"model name", "cpu_model"},
                  {"cpu family", "cpu_family"},
                  {"model", "cpu_model_number"},
                  {"stepping", "cpu_stepping"},
                  {"microcode", "cpu_microcode"}};
    FILE *f = fopen("/proc/cpuinfo", "r");
    char *line = NULL;
    size_t cap = 0;
    int seen = 0;
    while (f && getline(&line, &cap, f) > 1) {
        char *colon = strchr(line, ':');
        if (!colon)
            continue;
        char *end = colon;
        while (end > line && (end[-1] == '\t' || end[-1] == ' '))
            end--;
        *end = '\0';
        char *value = colon + 1 + strspn(colon + 1, " \t");
        value[strcspn(value, "\n")] = '\0';
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
            if (strcmp(line, wanted[i].field) == 0) {
                add(l, wanted[i].name, value);
                seen |= i == 0;
            }
        if (strcmp(line, "flags") == 0 || strcmp(line, "Features") == 0)
            add_cpu_flags(l, value);
    }
    free(line);
    if (f)
        fclose(f);
    if (!seen)
        add(l, "cpu_model", "unknown");
}

static void add_machine(struct list *l)
{
    struct utsname u;
    cpu_set_t set;
    if (uname(&u) == 0) {
        add_format(l, "kernel", "%s %s", u.sysname, u.release);
        add(l, "machine", u.machine);
    }
    add_format(l, "cpus_online", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        add_format(l, "cpus_allowed", "%d", CPU_COUNT(&set));
}

static void add_float_state(struct list *l)
{
    int mode = fegetround();
    add(l, "rounding",
        mode == FE_TONEAREST  ? "nearest"
        : mode == FE_UPWARD   ? "up"
        : mode == FE_DOWNWARD ? "down"
                              : "zero");
    const unsigned control = ds_fp_control();
    add_format(l, "mxcsr", "0x%04x", control);
    add(l, "flush_to_zero", control & 0x8000u ? "on" : "off");
    add(l, "denormals_are_zero", control & 0x0040u ? "on" : "off");
}

/* ---- software -------------------------------------------------------------------------------- */

static void add_libraries(struct list *l)
{
    unsigned xxh = XXH_versionNumber();
    char pcre[64] = "", hdf5[32];
    add(l, "libc", gnu_get_libc_version());
    ds_record_library(hdf5, sizeof hdf5);
    add(l, "hdf5", hdf5);
    add_format(l, "xxhash", "%u.%u.%u", xxh / 10000, xxh / 100 % 100, xxh % 100);
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) <= (int)sizeof pcre &&
        pcre2_config(PCRE2_CONFIG_VERSION, pcre) > 0)
        add(l, "pcre2", pcre);
    add(l, "jansson", JANSSON_VERSION);
    add(l, "pinned_isa", ds_isa_name());
}

/* By file name, no folder, and by content: a plugin built anew is another plugin. */
static void add_plugins(struct list *l)
{
    for (size_t i = 0; i < ds_plugin_count(); i++) {
        const struct ds_plugin *p = ds_plugin_at(i);
        struct ds_buf value = {0};
        char name[32];
        snprintf(name, sizeof name, "plugin_%zu", i + 1);
        ds_buf_escape(&value, p->file, (size_t)-1);
        ds_buf_printf(&value, " %016" PRIx64, p->digest);
        if (p->fp_after != p->fp_before)
            ds_buf_printf(&value, ", loading it set mxcsr 0x%04x", (unsigned)p->fp_after);
        if (value.failed)
            l->failed = 1;
        else
            add(l, name, value.data);
        ds_buf_free(&value);
    }
}

/* The library of matmul/cblas, in the same way, and what it says of itself. */
static void add_cblas(struct list *l)
{
    struct ds_buf value = {0};
    if (!*ds_cblas_path())
        return;
    ds_buf_escape(&value, ds_cblas_file(), (size_t)-1);
    ds_buf_printf(&value, " %016" PRIx64 " ", ds_cblas_digest());
    ds_buf_escape(&value, ds_cblas_config(), (size_t)-1);
    if (ds_cblas_fp_changed())
        ds_buf_printf(&value, ", loading it sets mxcsr 0x%04x", (unsigned)ds_cblas_fp_changed());
    if (value.failed)
        l->failed = 1;
    else
        add(l, "cblas", value.data);
    ds_buf_free(&value);
}

int ds_cli_environment(struct ds_text **lines, size_t *n, struct ds_error *err)
{
    struct list l = {.err = err};
    add(&l, "version", DS_VERSION);
    add(&l, "build", DS_BUILD_GIT);
    add(&l, "compiler", DS_BUILD_COMPILER);
    add(&l, "flags", DS_BUILD_FLAGS);
    add_machine(&l);
    add_cpu(&l);
    add_float_state(&l);
    add_libraries(&l);
    add_plugins(&l);
    add_cblas(&l);
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (value)
            add(&l, variables[i], value);
    }
    if (l.failed) {
        for (size_t i = 0; i < l.n; i++) {
            free(l.lines[i].name);
            free(l.lines[i].value);
        }
        free(l.lines);
        return -1;
    }
    *lines = l.lines;
    *n = l.n;
    return 0;
}

const char *ds_cli_version(void)
{
    return DS_VERSION;
}

const char *ds_cli_build(void)
{
    return DS_BUILD_GIT;
}
