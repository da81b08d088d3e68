/* alloc_fail.c: the whole program, in which allocation number DS_FAIL_AT fails, once in every process of it. At its
 * end the first process writes to the file DS_FAIL_LEFT how many allocations were left until then. Linked with
 * cli/main.c; driven by tests/tools/alloc_sweep. */
#include "base/mem.h"

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

static void arm(void) __attribute__((constructor));
static void arm(void)
{
    const char *at = getenv("DS_FAIL_AT");
    first_process = getpid();
    ds_mem_fail_at(at ? strtol(at, NULL, 10) : 0);
    atexit(tell);
}
