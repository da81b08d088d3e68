/* record_place.c: see record_place.h. */
#include "dumps/record_place.h"

#include "base/mem.h"
#include "base/rename.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

int ds_place_distrust;

int ds_place_swmr_works(unsigned long magic)
{
    /* SWMR needs writes to become visible in the order in which they were made. Values:
     * linux/magic.h and the file systems' own sources. The list names those known not to order
     * them; an unknown one is trusted. */
    static const unsigned long promises_nothing[] = {
        0x6969,     /* NFS */
        0x0bd00bd0, /* Lustre */
        0x65735546, /* FUSE (sshfs, s3fs, glusterfs, ...) */
        0xff534d42, /* CIFS */
        0xfe534d42, /* SMB2 */
        0x517b,     /* SMB */
        0x01021997, /* 9p */
        0x00c36400, /* Ceph */
        0x5346414f, /* AFS */
        0x6b414653, /* kAFS */
        0x73757245, /* Coda */
        0x47504653, /* GPFS */
        0x19830326, /* BeeGFS */
        0xaad7aaea, /* PanFS */
        0x20030528, /* OrangeFS */
        0x7461636f, /* OCFS2 */
        0x01161970, /* GFS2 */
        0x786f4256, /* VirtualBox shared folder */
    };
    for (size_t i = 0; i < sizeof promises_nothing / sizeof promises_nothing[0]; i++)
        if ((magic & 0xffffffffu) == promises_nothing[i])
            return 0;
    return 1;
}

/* ---- who is writing -------------------------------------------------------------------------- */

void ds_place_mark(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    (void)fcntl(fd, F_SETLK, &whole);
}

static int busy(const char *path, int fd, struct ds_error *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int known = fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    ds_fail(err, "%s: is being written by another process (%ld)", path,
            known ? (long)whole.l_pid : -1L);
    return ds_hint(err, "wait until that run has ended, or interrupt it");
}

int ds_place_unmarked(const char *path, struct ds_error *err)
{
    struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 0; /* who may not read it cannot ask */
    int rc = fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type == F_WRLCK ? busy(path, fd, err) : 0;
    close(fd);
    return rc;
}

int ds_place_claim(const char *path, struct ds_error *err)
{
    /* Of a file that may only be read one can ask whether it is being written, not claim it. */
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC), writes = fd >= 0;
    if (!writes)
        fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return ds_fail(err, "%s: %s", path, strerror(errno));
    struct flock whole = {.l_type = writes ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};
    struct stat now, mine;
    int rc = 0;
    if (fcntl(fd, F_SETLK, &whole) != 0 && (errno == EACCES || errno == EAGAIN))
        rc = busy(path, fd, err);
    else if (fstat(fd, &mine) != 0 || stat(path, &now) != 0 || mine.st_ino != now.st_ino ||
             mine.st_dev != now.st_dev)
        rc = ds_fail(err, "%s: another process has just replaced it", path);
    if (rc == 0)
        return fd;
    close(fd);
    return -1;
}

/* ---- names ----------------------------------------------------------------------------------- */

static char *join(const char *a, const char *b, const char *c, struct ds_error *err)
{
    size_t n = strlen(a) + strlen(b) + strlen(c) + 1;
    char *text = ds_calloc(n, 1, "file name", err);
    if (text)
        snprintf(text, n, "%s%s%s", a, b, c);
    return text;
}

/* The process in NAME.new-PID-N; 0: it is no such name. */
static long writer_of(const char *file, const char *name)
{
    const size_t n = strlen(name);
    long pid, number;
    int end = 0;
    if (strncmp(file, name, n) != 0 ||
        sscanf(file + n, ".new-%9ld-%9ld%n", &pid, &number, &end) != 2 || file[n + (size_t)end])
        return 0;
    return pid > 0 && number >= 0 ? pid : 0;
}

/* A writer that was killed while it made its record left the file there: nobody has it open, its process is
 * gone, and it is not young (a process of another namespace is gone to this one, and may not have marked
 * what it has just made). */
static int is_left_over(const char *path, long pid)
{
    enum { YOUNG_SECONDS = 60 };
    struct stat st;
    struct ds_error ignored;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && kill((pid_t)pid, 0) != 0 &&
           errno == ESRCH && time(NULL) - st.st_mtime > YOUNG_SECONDS &&
           ds_place_unmarked(path, &ignored) == 0;
}

/* Removes what killed writers of this record left beside it. What cannot be seen or removed stays. */
static void clear_left_overs(const char *prefix)
{
    const char *slash = strrchr(prefix, '/'), *name = slash ? slash + 1 : prefix;
    char path[4096];
    const int folder = slash ? (int)(slash - prefix) + 1 : 0;
    if (snprintf(path, sizeof path, "%.*s", folder, prefix) >= (int)sizeof path || !*name)
        return;
    DIR *d = opendir(folder ? path : ".");
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        const long pid = writer_of(e->d_name, name);
        if (pid &&
            snprintf(path, sizeof path, "%.*s%s", folder, prefix, e->d_name) < (int)sizeof path &&
            is_left_over(path, pid))
            (void)unlink(path);
    }
    if (d)
        closedir(d);
}

/* A new empty file PREFIX.new-PID-N, private to this writer. */
static int create_temporary(const char *prefix, struct ds_place *p, struct ds_error *err)
{
    clear_left_overs(prefix);
    for (unsigned n = 0; n < 1000; n++) {
        char tail[48];
        snprintf(tail, sizeof tail, ".new-%ld-%u", (long)getpid(), n);
        char *name = join(prefix, tail, "", err);
        if (!name)
            return -1;
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            close(fd);
            p->file = name;
            return 0;
        }
        int why = errno;
        free(name);
        if (why != EEXIST)
            return ds_fail(err, "%s: cannot be created: %s", p->target, strerror(why));
    }
    return ds_fail(err, "%s: cannot be created: a thousand unfinished files lie beside it",
                   p->target);
}

/* What may be replaced, and by whom. Follows a link, so that --force replaces the record and not
 * the link to it. */
static int check_target(const char *path, int force, struct ds_place *p, struct ds_error *err)
{
    struct stat st;
    if (path[0] == '\0')
        return ds_fail(err, "the record's file name is empty");
    if (lstat(path, &st) != 0) {
        p->target = join(path, "", "", err);
        return p->target ? 0 : -1;
    }
    if (!force) {
        ds_fail(err, "%s: exists already", path);
        return ds_hint(err, "--force replaces it");
    }
    char *real = S_ISLNK(st.st_mode) ? realpath(path, NULL) : NULL;
    p->target = join(real ? real : path, "", "", err);
    free(real);
    if (!p->target)
        return -1;
    if (stat(p->target, &st) != 0 || !S_ISREG(st.st_mode))
        return ds_fail(err, "%s: is not a regular file and is not replaced", path);
    const char *kept = ds_file_kept(p->target);
    if (kept && strcmp(kept, "a model") == 0)
        return ds_fail(err, "%s: is a model, which is not replaced", path);
    return ds_place_unmarked(p->target, err);
}

/* The folder part of a path, "" when it has none, with its slash. */
static char *folder_of(const char *path, struct ds_error *err)
{
    const char *slash = strrchr(path, '/');
    char *text = ds_calloc(slash ? (size_t)(slash - path) + 2 : 1, 1, "file name", err);
    if (text && slash)
        memcpy(text, path, (size_t)(slash - path) + 1);
    return text;
}

int ds_place_open(const char *path, int force, struct ds_place *p, struct ds_error *err)
{
    memset(p, 0, sizeof *p);
    p->force = force;
    if (check_target(path, force, p, err) != 0) {
        ds_place_free(p);
        return -1;
    }
    char *folder = folder_of(p->target, err);
    struct statfs fs;
    int failed = folder == NULL;
    if (!failed && statfs(folder[0] ? folder : ".", &fs) != 0)
        failed = ds_fail(err, "%s: cannot be created: %s", p->target, strerror(errno));
    p->local = !failed && (ds_place_distrust || !ds_place_swmr_works((unsigned long)fs.f_type));
    if (!failed && p->local) {
        const char *tmp = getenv("TMPDIR");
        char *prefix = join(tmp && tmp[0] ? tmp : "/tmp", "/", p->target + strlen(folder), err);
        failed = prefix == NULL || create_temporary(prefix, p, err) != 0;
        free(prefix);
    } else if (!failed) {
        failed = create_temporary(p->target, p, err) != 0;
    }
    free(folder);
    if (failed)
        ds_place_free(p);
    return failed ? -1 : 0;
}

static int settle(struct ds_place *p, const char *from, struct ds_error *err)
{
    if ((p->force ? rename(from, p->target) : ds_rename_new(from, p->target)) == 0)
        return 0;
    if (errno == EXDEV)
        return 1;
    return ds_fail(err, "%s: cannot take its name: %s", p->target, strerror(errno));
}

int ds_place_born(struct ds_place *p, struct ds_error *err)
{
    if (!p->local) {
        char *name = join(p->target, "", "", err);
        if (!name)
            return -1;
        int rc = settle(p, p->file, err);
        if (rc != 0) {
            free(name);
            return rc < 0
                       ? -1
                       : ds_fail(err, "%s: cannot take its name: %s", p->target, strerror(EXDEV));
        }
        free(p->file);
        p->file = name;
    }
    p->born = 1;
    return 0;
}

static int copy_bytes(int from, int to)
{
    char buffer[65536];
    for (;;) {
        ssize_t n = read(from, buffer, sizeof buffer);
        if (n == 0)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        for (ssize_t done = 0; done < n;) {
            ssize_t w = write(to, buffer + done, (size_t)(n - done));
            if (w < 0 && errno != EINTR)
                return -1;
            done += w > 0 ? w : 0;
        }
    }
}

/* Across file systems: copies beside the target, makes the copy durable, then renames. */
static int move_across(struct ds_place *p, struct ds_error *err)
{
    struct ds_place beside = {.target = p->target};
    if (create_temporary(p->target, &beside, err) != 0)
        return -1;
    int from = open(p->file, O_RDONLY | O_CLOEXEC), to = open(beside.file, O_WRONLY | O_CLOEXEC);
    int failed = from < 0 || to < 0 || copy_bytes(from, to) != 0 || fsync(to) != 0;
    int why = errno;
    if (from >= 0)
        close(from);
    if (to >= 0 && close(to) != 0 && !failed) {
        failed = 1;
        why = errno;
    }
    if (failed)
        ds_fail(err, "%s: cannot be written: %s", p->target, strerror(why));
    else
        failed = settle(p, beside.file, err) != 0;
    if (failed)
        unlink(beside.file);
    else
        unlink(p->file);
    free(beside.file);
    return failed ? -1 : 0;
}

int ds_place_close(struct ds_place *p, struct ds_error *err)
{
    if (!p->local)
        return 0;
    int rc = settle(p, p->file, err);
    if (rc > 0)
        rc = move_across(p, err);
    if (rc != 0)
        ds_hint(err, "the record is complete in %s", p->file);
    return rc;
}

void ds_place_free(struct ds_place *p)
{
    if (p->file && !p->born)
        unlink(p->file);
    free(p->target);
    free(p->file);
    memset(p, 0, sizeof *p);
}
