/* rename.c: see rename.h. */
#include "base/rename.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int ds_rename_new(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    /* The file system cannot say it in one step: a hard link never replaces either. */
    if (link(from, to) == 0)
        return unlink(from);
    struct stat st;
    if (errno == EEXIST || lstat(to, &st) == 0) {
        errno = EEXIST;
        return -1;
    }
    return rename(from, to);
}

const char *ds_file_kept(const char *path)
{
    static const char record[8] = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
    char head[sizeof record];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof head);
    if (fd >= 0)
        close(fd);
    if (n == (ssize_t)sizeof head && memcmp(head, record, sizeof record) == 0)
        return "a record";
    return n >= 4 && memcmp(head, "GGUF", 4) == 0 ? "a model" : NULL;
}
