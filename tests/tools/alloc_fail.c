/* alloc_fail.c: the whole program, in which allocation number DS_FAIL_AT fails in its first process, and number
 * DS_FAIL_CHILD_AT of every process that it forks, counted from there. At its end the first process writes to the file DS_FAIL_LEFT how many allocations were left until then. Linked with
 * cli/main.c; driven by tests/tools/alloc_sweep. */
#include "base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long first_process;

static void tell(void)
{
    const char *path = getenv("DS_FAIL_LEFT");
    FILE *f = path && getpid() == first_process ? fopen(path, "we") : NULL;
    if (!f)
        return;
    fprintf(f, "%ld\n", ds_mem_fail_left());
    fclose(f);
}

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

static void arm_child(void)
{
    ds_mem_fail_at(number("DS_FAIL_CHILD_AT"));
}

static void arm(void) __attribute__((constructor));
static void arm(void)
{
    first_process = getpid();
    ds_mem_fail_at(number("DS_FAIL_AT"));
    pthread_atfork(NULL, NULL, arm_child);
    atexit(tell);
}
