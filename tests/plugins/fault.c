/* fault.c: a plugin with one fault, chosen by -DFAULT_NAME; with none of them it is a sound one with
 * add/mine and matmul/mine. test_plugin.sh builds it against the public header alone. */
#include "driftscope_kernel.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xmmintrin.h>

/* The place of a fault at run time: rows of this call. */
#ifndef FROM_ROWS
#define FROM_ROWS 0
#endif

#if defined(FAULT_CRASH_ON_LOAD)
__attribute__((constructor)) static void on_load(void)
{
    raise(SIGSEGV);
}
#elif defined(FAULT_HANG_ON_LOAD)
__attribute__((constructor)) static void on_load(void)
{
    for (;;)
        pause();
}
#elif defined(FAULT_EXIT_ON_LOAD)
__attribute__((constructor)) static void on_load(void)
{
    exit(0);
}
#elif defined(FAULT_PRINT_ON_LOAD)
__attribute__((constructor)) static void on_load(void)
{
    if (write(STDOUT_FILENO, "printed\n", 8) != 8)
        abort();
}
#elif defined(FAULT_FLUSH_ON_LOAD)
/* What crtfastmath.o does in a library linked with -ffast-math. */
__attribute__((constructor)) static void on_load(void)
{
    _mm_setcsr(_mm_getcsr() | 0x8040);
}
#elif defined(FAULT_SET_UP_PROCESS_ON_LOAD)
/* What a runtime does that takes the process for its own. */
__attribute__((constructor)) static void on_load(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    signal(SIGTERM, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    setlocale(LC_ALL, "C.UTF-8");
    umask(0777);
    if (chdir("/") != 0)
        abort();
}
#elif defined(FAULT_AT_THE_END)
static void at_the_end(void)
{
    _exit(7);
}
__attribute__((constructor)) static void on_load(void)
{
    atexit(at_the_end);
}
__attribute__((destructor)) static void on_unload(void)
{
    raise(SIGSEGV);
}
#elif defined(FAULT_SIGNAL_ON_LOAD)
__attribute__((constructor)) static void on_load(void)
{
    raise(SIGTERM);
}
#elif defined(FAULT_LEAVE_A_PROCESS_ON_LOAD)
/* The process that stays behind holds whatever this one had open. */
__attribute__((constructor)) static void on_load(void)
{
    if (fork() != 0)
        raise(SIGSEGV);
    alarm(60);
    for (;;)
        pause();
}
#elif defined(FAULT_UNRESOLVED)
void nobody_has_this_function(void);
__attribute__((constructor)) static void on_load(void)
{
    nobody_has_this_function();
}
#endif

static int available(char *why, size_t why_size)
{
    (void)why, (void)why_size;
#if defined(FAULT_CRASH_WHEN_ASKED)
    raise(SIGBUS);
#elif defined(FAULT_CANNOT_RUN)
    strncpy(why, "needs a device that is not here", why_size - 1);
    return -1;
#elif defined(FAULT_REASON_WITHOUT_END)
    memset(why, 'x', why_size);
    return -1;
#endif
    return 0;
}

#if defined(FAULT_CRASH_IN_PREPARE)
static int prepare(const struct ds_weight_view *w, void **prepared, size_t *bytes_out, char *why,
                   size_t why_size)
{
    (void)w, (void)prepared, (void)bytes_out, (void)why, (void)why_size;
    raise(SIGFPE);
    return -1;
}
#define PREPARE prepare
#elif defined(FAULT_HANG_IN_PREPARE)
/* Says that it has come this far: a file of the name in $FAULT_REACHED. */
static int prepare(const struct ds_weight_view *w, void **prepared, size_t *bytes_out, char *why,
                   size_t why_size)
{
    (void)w, (void)prepared, (void)bytes_out, (void)why, (void)why_size;
    close(open(getenv("FAULT_REACHED"), O_CREAT | O_WRONLY, 0600));
    for (;;)
        pause();
    return -1;
}
#define PREPARE prepare
#else
#define PREPARE NULL
#endif

static int add(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_add_args *a = args;
    (void)exec, (void)why, (void)why_size;
    if (a->rows >= FROM_ROWS) {
#if defined(FAULT_CRASH_IN_LAUNCH)
        raise(SIGSEGV);
#elif defined(FAULT_HANG_IN_LAUNCH)
        for (;;)
            pause();
#elif defined(FAULT_EXIT_IN_LAUNCH)
        _exit(3);
#elif defined(FAULT_INTERRUPT_IN_LAUNCH)
        raise(SIGINT);
        raise(SIGTERM);
        raise(SIGHUP);
#elif defined(FAULT_INTERRUPT_PARENT_IN_LAUNCH)
        static int sent;
        if (!sent++) /* twice would be an abort */
            kill(getppid(), SIGTERM);
#elif defined(FAULT_END_IN_LAUNCH)
        exit(0);
#elif defined(FAULT_PRINT_IN_LAUNCH)
        puts("printed");
        fflush(stdout);
#elif defined(FAULT_CLOSE_IN_LAUNCH)
        for (int fd = CLOSE_FROM; fd < 64; fd++)
            close(fd);
#elif defined(FAULT_LEAVE_A_PROCESS_IN_LAUNCH)
        if (fork() != 0)
            raise(SIGSEGV);
        alarm(60);
        for (;;)
            pause();
#elif defined(FAULT_FLUSH_IN_LAUNCH)
        _mm_setcsr(_mm_getcsr() | 0x8000);
#elif defined(FAULT_REFUSE)
        strncpy(why, "no \033[31m today", why_size - 1);
        return -1;
#endif
    }
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = a->a[r * a->lda + i] + a->b[r * a->ldb + i];
    return 0;
}

#if defined(FAULT_CRASH_IN_DESCRIBE)
static int describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    (void)args, (void)exec, (void)out;
    raise(SIGSEGV);
    return 0;
}
#define DESCRIBE describe
#else
#define DESCRIBE NULL
#endif

#if defined(FAULT_ROUND_IN_PREPARE)
static int prepare_rounding(const struct ds_weight_view *w, void **prepared, size_t *bytes_out,
                            char *why, size_t why_size)
{
    (void)w, (void)why, (void)why_size;
    *prepared = malloc(*bytes_out = 8);
    _mm_setcsr(_mm_getcsr() | 0x4000);
    return 0;
}
#undef PREPARE
#define PREPARE prepare_rounding
#endif

static int matmul(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            float s = 0.0f;
            for (int64_t k = a->k; k-- > 0;)
                s += a->x[r * a->ldx + k] * a->w.data[j * a->k + k];
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
#if defined(FAULT_NAN_FROM)
            if (a->n >=
                FAULT_NAN_FROM) /* outputs: those of the logits alone, where the vocabulary is larger than all */
                a->y[r * a->ldy + j] = __builtin_nanf("");
#endif
        }
    return 0;
}

#if !defined(NAME)
#define NAME "mine"
#endif
#if !defined(FEATURES)
#define FEATURES 0
#endif
#if !defined(ABI)
#define ABI DS_KERNEL_ABI
#endif

static const struct ds_kernel kernels[] = {{.abi = ABI,
                                            .op = DS_OP_ADD,
                                            .name = NAME,
                                            .summary = "a + b",
                                            .claims = DS_CLAIM_ALL,
                                            .features = FEATURES,
                                            .available = available,
                                            .launch = add,
                                            .describe = DESCRIBE},
                                           {.abi = ABI,
                                            .op = DS_OP_MATMUL,
                                            .name = "mine",
                                            .summary = "one sum in descending k",
                                            .claims = DS_CLAIM_ALL,
                                            .prepare = PREPARE,
                                            .launch = matmul}};

#if defined(FAULT_NO_SYMBOL)
int ds_plugin_kernel(void);
int ds_plugin_kernel(void)
{
    return kernels[0].op;
}
#else
const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
#if defined(FAULT_TWICE)
    static const struct ds_kernel *const all[] = {&kernels[0], &kernels[0], NULL};
#elif defined(FAULT_EMPTY)
    static const struct ds_kernel *const all[] = {NULL, &kernels[0]};
#else
    static const struct ds_kernel *const all[] = {&kernels[0], &kernels[1], NULL};
#endif
#if defined(FAULT_OTHER_ABI)
    abi = 1;
#elif defined(FAULT_CRASH_IN_FUNCTION)
    abort();
#endif
    return abi == DS_KERNEL_ABI ? all : NULL;
}
#endif
