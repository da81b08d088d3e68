/* output.c: what reaches stdout, stderr and -o files: results, errors, notes, colours. Owns the
 * rule that results go to stdout or to a file that appears complete or not at all; must not know
 * what is printed. The progress bar is in progress.c. */
#include "cli/options.h"

#include "base/rename.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

void ds_cli_guard_descriptors(void)
{
    /* Read-only for 1: a result written to a stdout that was closed must fail, not vanish. */
    static const int mode[3] = {O_RDWR, O_RDONLY, O_RDWR};
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", mode[fd]) < 0)
            return;
}

/* Where results go: 1, or what it was before it was put aside. */
static int results = STDOUT_FILENO;

void ds_cli_stdout_aside(void)
{
    const int fd = results == STDOUT_FILENO ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3) : -1;
    if (fd >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0)
        results = fd;
    else if (fd >= 0)
        close(fd);
}

void ds_cli_stdout_back(void)
{
    if (results == STDOUT_FILENO)
        return;
    fflush(stdout);
    if (dup2(results, STDOUT_FILENO) < 0) {
        /* A kernel has closed it: a result must fail, not go where else stdout leads to now. */
        const int nowhere = open("/dev/null", O_RDONLY);
        if (nowhere >= 0 && nowhere != STDOUT_FILENO)
            dup2(nowhere, STDOUT_FILENO);
    }
    close(results);
    results = STDOUT_FILENO;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* One write, so that lines of several processes do not mix; where stderr is gone there is no one to tell. */
static void write_line(const char *data, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = write(STDERR_FILENO, data + done, n - done);
        if (got < 0 && errno != EINTR)
            break;
        done += got > 0 ? (size_t)got : 0;
    }
}

/* What is to be told may be that there is no memory. */
static void write_without_memory(const char *kind, const char *text)
{
    char line[sizeof((struct ds_error *)0)->msg + 64];
    int n = snprintf(line, sizeof line - 1, "driftscope: %s%s", kind, text);
    n = n < 0 ? 0 : n < (int)sizeof line - 1 ? n : (int)sizeof line - 2;
    for (int i = 0; i < n; i++)
        if (line[i] < ' ' || line[i] > '~')
            line[i] = '?';
    line[n] = '\n';
    write_line(line, (size_t)n + 1);
}

static void message(const char *kind, const char *text)
{
    struct ds_buf b = {0};
    ds_buf_puts(&b, "driftscope: ");
    ds_buf_puts(&b, kind);
    ds_buf_escape(&b, text, (size_t)-1);
    ds_buf_puts(&b, "\n");
    ds_cli_progress(NULL, NULL, -1, 0);
    if (b.data && !b.failed)
        write_line(b.data, b.len);
    else
        write_without_memory(kind, text);
    ds_buf_free(&b);
}

int ds_cli_error(const struct ds_options *o, const struct ds_error *err)
{
    /* A file that took long to open (a pipe whose other end nobody opened), which Ctrl-C broke off. */
    if (*ds_cli_stop() && strstr(err->msg, strerror(EINTR))) {
        ds_cli_note(o, "interrupted");
        return DS_EXIT_INTERRUPTED;
    }
    message("", err->msg);
    if (err->hint[0])
        message("hint: ", err->hint);
    return ds_cli_exit(o, DS_EXIT_ERROR);
}

int ds_cli_exit(const struct ds_options *o, int code)
{
    return code == DS_EXIT_ERROR && o && o->error_exit ? o->error_exit : code;
}

void ds_cli_note(const struct ds_options *o, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    if (o && ds_opt_flag(o, "quiet"))
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    message("", text);
}

/* The end of a path that is too long for a message. */
static const char *shown(const char *path)
{
    size_t n = strlen(path);
    return n > 300 ? path + n - 300 : path;
}

/* ---- results --------------------------------------------------------------------------------- */

static int emit_stdout(const struct ds_buf *text, struct ds_error *err)
{
    ds_cli_stdout_back();
    if (ds_buf_write(text, STDOUT_FILENO) != 0 && errno != EPIPE)
        return ds_fail(err, "cannot write to stdout: %s", strerror(errno));
    return 0;
}

static int emit_in_place(const char *path, const struct ds_buf *text, struct ds_error *err)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return ds_fail(err, "%s: cannot open for writing: %s", shown(path), strerror(errno));
    int rc = ds_buf_write(text, fd), saved = errno;
    if (close(fd) != 0 && rc == 0) {
        rc = -1;
        saved = errno;
    }
    if (rc != 0 && saved != EPIPE)
        return ds_fail(err, "%s: cannot write: %s", shown(path), strerror(saved));
    return 0;
}

/* The mode a new file gets, or the mode of the file that is replaced. */
static mode_t result_mode(const struct stat *old)
{
    if (old)
        return old->st_mode & 07777;
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static int emit_beside(const char *path, const struct stat *old, const struct ds_buf *text,
                       struct ds_error *err)
{
    size_t n = strlen(path);
    char *beside = malloc(n + sizeof ".XXXXXX");
    if (!beside)
        return ds_fail(err, "%s: out of memory", shown(path));
    memcpy(beside, path, n);
    memcpy(beside + n, ".XXXXXX", sizeof ".XXXXXX");
    ds_cli_temporary(beside);
    int fd = mkstemp(beside), saved = errno;
    if (fd < 0) {
        ds_cli_temporary(NULL);
        free(beside);
        return ds_fail(err, "%s: cannot create: %s", shown(path), strerror(saved));
    }
    int rc = ds_buf_write(text, fd) != 0 || fchmod(fd, result_mode(old)) != 0 ? -1 : 0;
    saved = errno;
    /* Some file systems report a full disk only at close. */
    if (close(fd) != 0 && rc == 0) {
        rc = -1;
        saved = errno;
    }
    if (rc == 0 && rename(beside, path) != 0) {
        rc = -1;
        saved = errno;
    }
    if (rc != 0) {
        unlink(beside);
        ds_fail(err, "%s: cannot write: %s", shown(path), strerror(saved));
    }
    ds_cli_temporary(NULL);
    free(beside);
    return rc;
}

/* What was given for a text, by its first bytes; NULL: they say nothing. */
static const char *other_kind(const struct ds_buf *b)
{
    if (b->len >= 4 && memcmp(b->data, "\x89HDF", 4) == 0)
        return "a record (HDF5)";
    return b->len >= 4 && memcmp(b->data, "GGUF", 4) == 0 ? "a model (GGUF)" : NULL;
}

int ds_cli_read_file(const char *what, const char *path, size_t limit, struct ds_buf *out,
                     struct ds_error *err)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return ds_fail(err, "cannot read %s '%s': %s", what, path, strerror(errno));
    char block[65536];
    size_t got;
    /* A signal ends a read: what came before it is no reason to wait for more. */
    do {
        got = fread(block, 1, sizeof block, f);
        ds_buf_add(out, block, got);
    } while (got > 0 && out->len < limit && !ferror(f) && !*ds_cli_stop());
    int bad = ferror(f) || *ds_cli_stop(), e = *ds_cli_stop() ? EINTR : errno;
    fclose(f);
    if (bad)
        return ds_fail(err, "cannot read %s '%s': %s", what, path, strerror(e));
    if (out->failed)
        return ds_fail(err, "out of memory for %s '%s'", what, path);
    const char *kind = other_kind(out);
    if (kind)
        return ds_fail(err, "'%s' is %s, no %s", path, kind, what);
    return out->len < limit ? 0 : ds_fail(err, "%s '%s' is too large", what, path);
}

/* Hours of a machine's work, or a download: a text never takes their place. */
static int check_kept(const char *path, struct ds_error *err)
{
    const char *kept = ds_file_kept(path);
    if (!kept)
        return 0;
    ds_fail(err, "%s: is %s, which is not replaced by a text", shown(path), kept);
    return ds_hint(err, "give another name with -o");
}

int ds_cli_write_file(const char *path, const struct ds_buf *text, struct ds_error *err)
{
    struct stat st;
    ds_cli_stdout_back(); /* it may be what the path means */
    if (stat(path, &st) != 0)
        return emit_beside(path, NULL, text, err);
    if (S_ISDIR(st.st_mode))
        return ds_fail(err, "%s: is a folder", shown(path));
    if (!S_ISREG(st.st_mode))
        return emit_in_place(path, text, err);
    if (check_kept(path, err) != 0)
        return -1;
    /* A symbolic link stays one: the file it names is replaced. */
    char *real = realpath(path, NULL);
    if (!real)
        return ds_fail(err, "%s: %s", shown(path), strerror(errno));
    int rc = emit_beside(real, &st, text, err);
    free(real);
    return rc;
}

int ds_cli_check_file(const char *path, struct ds_error *err)
{
    struct stat st;
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return ds_fail(err, "%s: is a folder", shown(path));
        if (!S_ISREG(st.st_mode))
            return access(path, W_OK) == 0 ? 0
                                           : ds_fail(err, "%s: cannot open for writing: %s",
                                                     shown(path), strerror(errno));
        if (check_kept(path, err) != 0)
            return -1;
    }
    /* It is written beside and renamed: the folder is what counts. A dangling link is replaced. */
    char *real = realpath(path, NULL), *folder = strdup(real ? real : path);
    free(real);
    if (!folder)
        return ds_fail(err, "%s: out of memory", shown(path));
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int rc = access(slash ? folder : ".", W_OK | X_OK), saved = errno;
    free(folder);
    return rc == 0 ? 0 : ds_fail(err, "%s: cannot create: %s", shown(path), strerror(saved));
}

/* NULL: the result goes to stdout. */
static const char *result_file(const struct ds_options *o)
{
    const struct ds_verb_def *v = ds_verb_by_id(o->verb);
    const char *path = v && v->output_is_record ? NULL : ds_opt_text(o, "output");
    return path && strcmp(path, "-") != 0 ? path : NULL;
}

int ds_cli_check_output(const struct ds_options *o, struct ds_error *err)
{
    const char *path = result_file(o);
    return path ? ds_cli_check_file(path, err) : 0;
}

int ds_cli_emit(const struct ds_options *o, const struct ds_buf *text, struct ds_error *err)
{
    const char *path = result_file(o);
    if (text->failed || ds_buf_lost())
        return ds_fail(err, "out of memory for the result");
    ds_cli_progress(o, NULL, -1, 0);
    if (text->len == 0 && !path)
        return 0;
    return path ? ds_cli_write_file(path, text, err) : emit_stdout(text, err);
}

/* ---- the terminal ---------------------------------------------------------------------------- */

static int color_wanted(const struct ds_options *o)
{
    const char *when = ds_opt_text(o, "color"), *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (strcmp(when, "always") == 0)
        return 1;
    return strcmp(when, "auto") == 0 && !(no && no[0]) && term && term[0] &&
           strcmp(term, "dumb") != 0 && !result_file(o) && isatty(results);
}

const char *ds_cli_color(const struct ds_options *o, enum ds_role role)
{
    if (!color_wanted(o) || ds_opt_flag(o, "json"))
        return "";
    switch (role) {
    case DS_ROLE_SAME:
        return "\033[32m";
    case DS_ROLE_DRIFT:
        return "\033[1;31m";
    case DS_ROLE_UNSTABLE:
        return "\033[1;35m";
    case DS_ROLE_DIM:
        return "\033[2m";
    case DS_ROLE_HEAD:
        return "\033[1m";
    case DS_ROLE_PLAIN:
        break;
    }
    return "\033[0m";
}

int ds_cli_columns(void)
{
    struct winsize size;
    if (isatty(results) && ioctl(results, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col < 20 ? 20 : size.ws_col;
    return 100;
}
