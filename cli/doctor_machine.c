/* doctor_machine.c: what of this machine and this process can make results differ: CPUs and quota, threads that
 * really run, OpenBLAS's core, the floating-point control word, the claims of the kernel set. Owns the looking;
 * the rules are doctor_rules.c's. */
#include "cli/doctor.h"
#include "cli/require.h"

#include "base/fp_control.h"
#include "base/mem.h"
#include "base/team.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the kernel set ---------------------------------------------------------------------------- */

static int kernel_set(const struct ds_doctor *d, struct ds_kernel_set *set, struct ds_error *err)
{
    return ds_kernel_set_parse(ds_opt_text(d->o, "kernels"), set, err);
}

static int look_claim(struct ds_doctor *d, const struct ds_doctor_rule *r, uint32_t claims,
                      const char *what, struct ds_error *err)
{
    struct ds_kernel_set set;
    struct ds_buf missing = {0};
    if (kernel_set(d, &set, err) != 0)
        return -1;
    const char *name = ds_opt_text(d->o, "kernels");
    const size_t n = ds_claims_missing(&set, NULL, claims, &missing);
    const int rc = missing.failed ? ds_fail(err, "out of memory for kernels")
                   : n            ? ds_doctor_say(d, r, NULL, DS_DOCTOR_FOUND, err,
                                                  "kernel set %s: %s %s not claim that %s", name, missing.data,
                                       n == 1 ? "does" : "do", what)
                                  : ds_doctor_say(d, r, NULL, DS_DOCTOR_FIXED, err,
                                                  "kernel set %s: every kernel claims that %s", name, what);
    ds_buf_free(&missing);
    return rc;
}

int ds_doctor_look_run(struct ds_doctor *d, const struct ds_doctor_rule *r,
                       const struct ds_doctor_command *c, struct ds_error *err)
{
    (void)c;
    return look_claim(d, r, DS_CLAIM_REPEAT, "the same call gives the same bits again", err);
}

int ds_doctor_look_batch(struct ds_doctor *d, const struct ds_doctor_rule *r,
                         const struct ds_doctor_command *c, struct ds_error *err)
{
    (void)c;
    return look_claim(d, r, DS_CLAIM_BATCH | DS_CLAIM_SLOT | DS_CLAIM_CHUNK,
                      "the other rows of a call change nothing", err);
}

int ds_doctor_look_thread(struct ds_doctor *d, const struct ds_doctor_rule *r,
                          const struct ds_doctor_command *c, struct ds_error *err)
{
    (void)c;
    return look_claim(d, r, DS_CLAIM_THREADS, "the number of threads changes nothing", err);
}

static int uses_openblas(const struct ds_kernel_set *set)
{
    const struct ds_kernel *k;
    for (int32_t i = 0; (k = ds_kernel_set_used(set, DS_OP_MATMUL, i)); i++)
        if (strncmp(k->name, "openblas", strlen("openblas")) == 0)
            return 1;
    return 0;
}

/* What only a launch line says, and what asks the engine that it starts. */
int ds_doctor_look_no_command(struct ds_doctor *d, const struct ds_doctor_rule *r,
                              const struct ds_doctor_command *c, struct ds_error *err)
{
    (void)c;
    return ds_doctor_say(
        d, r, NULL, DS_DOCTOR_UNKNOWN, err, "%s",
        strcmp(r->check, "seed") == 0
            ? "no command is given: an engine's seed stands in its launch line, and in requests"
            : "no command is given: temperature, top-k, top-p and penalties of an engine stand in "
              "its "
              "launch line, in the model's files and in requests");
}

int ds_doctor_look_nccl(struct ds_doctor *d, const struct ds_doctor_rule *r,
                        const struct ds_doctor_command *c, struct ds_error *err)
{
    const int algorithm = strcmp(r->check, "ranks.nccl-algo") == 0;
    const char *name = algorithm ? "NCCL_ALGO" : "NCCL_PROTO", *value = getenv(name);
    if (value && *value)
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_FIXED, err, "%s=%s", name, value);
    if (ds_doctor_no_gpu(c))
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_FIXED, err, "no NVIDIA device here");
    return ds_doctor_say(
        d, r, NULL, DS_DOCTOR_UNKNOWN, err,
        "%s is not set: where several ranks run, NCCL's %s follows the size, and so the "
        "rows of the step",
        name, algorithm ? "algorithm" : "protocol");
}

/* ---- CPUs -------------------------------------------------------------------------------------- */

int ds_doctor_look_cpus(struct ds_doctor *d, const struct ds_doctor_rule *r,
                        const struct ds_doctor_command *c, struct ds_error *err)
{
    struct ds_kernel_set set;
    struct ds_buf missing = {0};
    const int allowed = ds_team_cpus();
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    (void)c;
    if (kernel_set(d, &set, err) != 0)
        return -1;
    const int harmless = ds_claims_missing(&set, NULL, DS_CLAIM_THREADS, &missing) == 0;
    ds_buf_free(&missing);
    if (harmless)
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_FIXED, err,
                             "--threads all is %d here, and no kernel of the set goes by it",
                             allowed);
    return ds_doctor_say(
        d, r, NULL, DS_DOCTOR_FOUND, err,
        "--threads all is %d here (%d of %ld CPUs allowed): elsewhere another number", allowed,
        allowed, online);
}

static int read_line(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "r");
    const int ok = f && fgets(line, (int)size, f);
    if (f)
        fclose(f);
    return ok ? 0 : -1;
}

/* CPUs that the group's quota pays for; 0: no quota, -1: nobody says. */
static double quota(void)
{
    char line[128];
    double most, period;
    if (read_line("/sys/fs/cgroup/cpu.max", line, sizeof line) == 0)
        return strncmp(line, "max", 3) == 0                                 ? 0
               : sscanf(line, "%lf %lf", &most, &period) == 2 && period > 0 ? most / period
                                                                            : -1;
    if (read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", line, sizeof line) != 0)
        return -1;
    most = strtod(line, NULL);
    if (most < 0)
        return 0;
    return read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", line, sizeof line) == 0 &&
                   (period = strtod(line, NULL)) > 0
               ? most / period
               : -1;
}

int ds_doctor_look_quota(struct ds_doctor *d, const struct ds_doctor_rule *r,
                         const struct ds_doctor_command *c, struct ds_error *err)
{
    const double cpus = quota();
    const int allowed = ds_team_cpus();
    (void)c;
    if (cpus < 0)
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_UNKNOWN, err,
                             "no group says whether there is a quota of CPU time");
    if (cpus > 0 && cpus < allowed)
        return ds_doctor_say(
            d, r, NULL, DS_DOCTOR_FOUND, err,
            "a quota of %.3g CPUs of the %d allowed: programs that count one or the "
            "other take other numbers of threads",
            cpus, allowed);
    return ds_doctor_say(d, r, NULL, DS_DOCTOR_FIXED, err, "no quota below the %d CPUs allowed",
                         allowed);
}

/* ---- OpenBLAS ---------------------------------------------------------------------------------- */

int ds_doctor_look_blas_core(struct ds_doctor *d, const struct ds_doctor_rule *r,
                             const struct ds_doctor_command *c, struct ds_error *err)
{
    struct ds_kernel_set set;
    struct ds_error why;
    (void)c;
    if (kernel_set(d, &set, err) != 0)
        return -1;
    if (!uses_openblas(&set))
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_FIXED, err, "kernel set %s uses no OpenBLAS",
                             ds_opt_text(d->o, "kernels"));
    if (ds_blas_open(NULL, &why) != 0)
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_UNKNOWN, err, "%s", why.msg);
    const char *asked = getenv("OPENBLAS_CORETYPE");
    if (asked && *asked)
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_FIXED, err, "OPENBLAS_CORETYPE=%s: %s", asked,
                             ds_blas_config());
    return ds_doctor_say(
        d, r, NULL, DS_DOCTOR_FOUND, err,
        "OpenBLAS takes the core %s by this CPU: another CPU adds in another order "
        "(%s)",
        ds_blas_core(), ds_blas_config());
}

static int threads_here(void)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *e;
    int n = 0;
    while (tasks && (e = readdir(tasks)))
        n += e->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return n;
}

/* How many threads multiply when so many are asked for: those that come and stay. */
static int real_threads(int asked, struct ds_error *err)
{
    enum { N = 256 };
    float *x = ds_calloc((size_t)3 * N * N, sizeof *x, "a product", err);
    if (!x)
        return -1;
    const int before = threads_here();
    ds_blas_set_threads(asked);
    ds_blas_sgemm_nt(N, N, N, x, N, x + N * N, N, x + 2 * N * N, N);
    free(x);
    /* A team that was there before has been counted already. */
    return before > 1 ? before : threads_here();
}

int ds_doctor_look_blas_threads(struct ds_doctor *d, const struct ds_doctor_rule *r,
                                const struct ds_doctor_command *c, struct ds_error *err)
{
    struct ds_kernel_set set;
    const int asked = ds_team_cpus();
    (void)c;
    if (kernel_set(d, &set, err) != 0)
        return -1;
    if (!uses_openblas(&set))
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_FIXED, err, "kernel set %s uses no OpenBLAS",
                             ds_opt_text(d->o, "kernels"));
    if (!ds_blas_is_open())
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_UNKNOWN, err,
                             "how many threads OpenBLAS runs is not known");
    const int real = real_threads(asked, err);
    if (real < 0)
        return -1;
    return ds_doctor_say(d, r, NULL, real == asked ? DS_DOCTOR_FIXED : DS_DOCTOR_FOUND, err,
                         "OpenBLAS was asked for %d thread%s, and %d run (at most %d)", asked,
                         asked == 1 ? "" : "s", real, ds_blas_max_threads());
}

/* ---- arithmetic, devices ----------------------------------------------------------------------- */

int ds_doctor_look_control(struct ds_doctor *d, const struct ds_doctor_rule *r,
                           const struct ds_doctor_command *c, struct ds_error *err)
{
    const uint32_t control = ds_fp_control();
    const char *effect = ds_fp_effect(control);
    (void)c;
    return ds_doctor_say(d, r, NULL, *effect ? DS_DOCTOR_FOUND : DS_DOCTOR_FIXED, err,
                         "mxcsr is 0x%04x: %s", (unsigned)control,
                         *effect ? effect : "subnormals are kept, rounding is to nearest even");
}

int ds_doctor_no_gpu(const struct ds_doctor_command *c)
{
    (void)c;
    return access("/dev/nvidiactl", F_OK) != 0 && access("/proc/driver/nvidia/version", F_OK) != 0;
}
