/* attach.c: `--attach NAME=FILE`: digests of what belongs to a run and is no part of the model (chat template, retrieval index, tool
 * schema, guardrails, evaluation set) among the record's options, so that it can be told later whether they were
 * the same. The files themselves are not kept. */
#include "cli/run_plan_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { NAME_MOST = 40, PIECE = 1 << 16 };

static int digest_open(int fd, const char *path, uint64_t *digest, uint64_t *size,
                       struct ds_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ds_fail(err, "--attach: cannot read '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return ds_fail(err, "--attach: '%s' is no regular file", path);
    /* Read, not mapped: a file that shrinks meanwhile must end no process, and one of /proc has no size. */
    XXH3_state_t *state = XXH3_createState();
    char *piece = state ? malloc(PIECE) : NULL;
    ssize_t n = -1;
    *size = 0;
    if (piece)
        XXH3_64bits_reset(state);
    while (piece && ((n = read(fd, piece, PIECE)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0) {
            XXH3_64bits_update(state, piece, (size_t)n);
            *size += (uint64_t)n;
        }
    if (n == 0)
        *digest = XXH3_64bits_digest(state);
    const int rc = n == 0   ? 0
                   : !piece ? ds_fail(err, "out of memory for what is attached")
                            : ds_fail(err, "--attach: cannot read '%s': %s", path, strerror(errno));
    free(piece);
    XXH3_freeState(state);
    return rc;
}

static int digest_of(const char *path, uint64_t *digest, uint64_t *size, struct ds_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ds_fail(err, "--attach: cannot read '%s': %s", path, strerror(errno));
    const int rc = digest_open(fd, path, digest, size, err);
    close(fd);
    return rc;
}

/* "template=chat.jinja": the name, of letters, digits and -_. */
static int name_of(const char *text, char name[NAME_MOST + 16], struct ds_error *err)
{
    const size_t n =
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
    if (n == 0 || n > NAME_MOST || text[n] != '=' || !text[n + 1]) {
        ds_fail(err, "--attach '%.80s' is not NAME=FILE", text);
        return ds_hint(
            err,
            "as in --attach template=chat.jinja; a name has at most %d letters, digits, -, _ and .",
            NAME_MOST);
    }
    snprintf(name, NAME_MOST + 16, "attached %.*s", (int)n, text);
    return 0;
}

int ds_plan_attach(const struct ds_options *o, struct ds_header *h, struct ds_error *err)
{
    for (size_t i = 0; i < ds_opt_count(o, "attach"); i++) {
        const char *text = ds_opt_at(o, "attach", i);
        char name[NAME_MOST + 16], *value = NULL;
        uint64_t digest = 0, size = 0;
        if (name_of(text, name, err) != 0 ||
            digest_of(strchr(text, '=') + 1, &digest, &size, err) != 0)
            return -1;
        for (size_t k = 0; k < h->n_options; k++)
            if (strcmp(h->options[k].name, name) == 0)
                return ds_fail(err, "--attach: '%s' twice", name + strlen("attached "));
        if (asprintf(&value, "%016" PRIx64 ", %" PRIu64 " bytes", digest, size) < 0)
            value = NULL;
        if (ds_plan_add_option(h, name, value, err) != 0)
            return -1;
    }
    return 0;
}
