/* parts.c: see parts.h. */
#include "dumps/parts.h"

#include "base/child.h"
#include "base/team.h"

#include <sys/mman.h>
#include <unistd.h>

enum {
    MOST_PARTS = 4,       /* more wait for memory */
    LEAST_BYTES = 8 << 20 /* of a part: a process costs as much as reading a megabyte */
};

void *ds_parts_memory(size_t bytes)
{
    void *p =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void ds_parts_release(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes ? bytes : 1);
}

static int set_parts;

void ds_parts_set(int parts)
{
    set_parts = parts;
}

int ds_parts_worth(size_t bytes)
{
    if (set_parts > 0)
        return set_parts < MOST_PARTS ? set_parts : MOST_PARTS;
    const int cpus = ds_team_cpus(), most = cpus < MOST_PARTS ? cpus : MOST_PARTS;
    const size_t worth = bytes / LEAST_BYTES;
    return worth < 1 ? 1 : worth < (size_t)most ? (int)worth : most;
}

void ds_parts_run(void (*fn)(void *ctx, int part, int parts), void *ctx, int parts)
{
    pid_t child[MOST_PARTS] = {0};
    int status;
    parts = parts < MOST_PARTS ? parts : MOST_PARTS;
    for (int i = 1; i < parts; i++)
        if ((child[i] = fork()) == 0) {
            fn(ctx, i, parts);
            _exit(0);
        }
    fn(ctx, 0, parts);
    for (int i = 1; i < parts; i++) {
        if (child[i] < 0)
            fn(ctx, i, parts);
        else
            ds_child_wait(child[i], &status);
    }
}
