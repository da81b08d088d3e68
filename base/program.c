/* program.c: see program.h. */
#include "base/program.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

int ds_program_file(char *out, size_t size, struct ds_error *err)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n > 0) {
        path[n] = '\0';
    } else {
        /* What execve was given; it holds as long as nobody has changed the working folder. */
        const char *started = (const char *)(uintptr_t)getauxval(AT_EXECFN);
        if (!started || !realpath(started, path))
            return ds_fail(err, "cannot tell where this program lies: %s", strerror(errno));
    }
    int len = snprintf(out, size, "%s", path);
    return len >= 0 && (size_t)len < size ? 0
                                          : ds_fail(err, "the path of this program is too long");
}

int ds_program_beside(const char *relative, char *out, size_t size, struct ds_error *err)
{
    char path[PATH_MAX];
    if (ds_program_file(path, sizeof path, err) != 0)
        return -1;
    *strrchr(path, '/') = '\0';
    int len = snprintf(out, size, "%s/%s", path, relative);
    if (len < 0 || (size_t)len >= size)
        return ds_fail(err, "the path of this program is too long");
    return access(out, F_OK) == 0 ? 0 : ds_fail(err, "no %s", out);
}
