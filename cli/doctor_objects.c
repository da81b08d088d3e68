/* doctor_objects.c: shared objects that change the floating-point control word of whoever loads them: what
 * crtfastmath.o does in a library linked with -ffast-math or -Ofast. Owns two ways to see it: by loading the
 * object in a child process, and by its code, which needs no loading. Objects are those that this process has
 * loaded and those that the user names. */
#include "cli/doctor.h"

#include "base/fp_control.h"
#include "base/mem.h"
#include "kernels/lab/contain.h"
#include "kernels/shared_object.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- its code ----------------------------------------------------------------------------------- */

/* stmxcsr MEM, then within a few bytes the constant 0x8040 (results and inputs at once), then ldmxcsr MEM: GCC's
 * set_fast_math (libgcc, config/i386/crtfastmath.c), inlined or not. Programs that set one bit on request, as
 * PyTorch's set_flush_denormal, use other constants. */
static int sets_flush(const unsigned char *p, size_t n)
{
    enum { REACH = 48 };
    static const unsigned char both[4] = {0x40, 0x80, 0, 0};
    for (size_t i = 0; i + 3 <= n; i++) {
        if (p[i] != 0x0f || p[i + 1] != 0xae || (p[i + 2] & 0x38) != 0x18 || p[i + 2] >= 0xc0)
            continue;
        int constant = 0;
        for (size_t k = i + 3; k + 3 <= n && k < i + REACH; k++) {
            constant |= k + 4 <= n && memcmp(p + k, both, 4) == 0;
            if (constant && p[k] == 0x0f && p[k + 1] == 0xae && (p[k + 2] & 0x38) == 0x10 &&
                p[k + 2] < 0xc0)
                return 1;
        }
    }
    return 0;
}

int ds_doctor_scan_object(const unsigned char *bytes, size_t n)
{
    Elf64_Ehdr h;
    if (n < sizeof h)
        return -1;
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
        h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_machine != EM_X86_64 ||
        h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phoff > n ||
        (n - h.e_phoff) / sizeof(Elf64_Phdr) < h.e_phnum)
        return -1;
    for (size_t i = 0; i < h.e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, bytes + h.e_phoff + i * sizeof p, sizeof p);
        if (p.p_type == PT_LOAD && (p.p_flags & PF_X) && p.p_offset <= n &&
            p.p_filesz <= n - p.p_offset && sets_flush(bytes + p.p_offset, p.p_filesz))
            return 1;
    }
    return 0;
}

/* 1, 0, or -1 where the file cannot be read or is no such object. */
static int scan_file(const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int found = -1;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED) {
            found = ds_doctor_scan_object(bytes, (size_t)st.st_size);
            munmap(bytes, (size_t)st.st_size);
        }
    }
    if (fd >= 0)
        close(fd);
    return found;
}

/* ---- loading it ---------------------------------------------------------------------------------- */

struct trial {
    const char *path;
    uint32_t before, after;
    int loaded;
};

static void load(void *arg)
{
    struct trial *t = arg;
    struct ds_error why;
    t->before = ds_fp_control();
    t->loaded = ds_so_open("object", t->path, &why) != NULL;
    t->after = ds_fp_control();
}

/* A file that the user names: what loading it does, else what its code shows. */
static int look_file(struct ds_doctor *d, const struct ds_doctor_rule *r, const char *path,
                     struct ds_error *err)
{
    struct ds_error why = {{0}, {0}};
    uint64_t digest;
    int64_t seconds;
    if (ds_so_read("object", path, &digest, err) != 0 ||
        ds_opt_int(d->o, "plugin-timeout", 1, 86400, &seconds, err) != 0)
        return -1;
    struct trial *t = ds_contain_map(sizeof *t, err);
    if (!t)
        return -1;
    t->path = path;
    const int code = scan_file(path);
    const int ran = ds_so_try("object", path, (int)seconds, load, t, &why);
    const struct trial seen = *t;
    munmap(t, sizeof *t);
    if (ran == 0 && seen.loaded && seen.after != seen.before)
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_FOUND, err, "loading %s sets mxcsr 0x%04x%s%s",
                             path, (unsigned)seen.after, *ds_fp_effect(seen.after) ? ": " : "",
                             ds_fp_effect(seen.after));
    if (ran == 0 && seen.loaded)
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_FIXED, err, "loading %s leaves mxcsr as it is",
                             path);
    if (code == 1)
        return ds_doctor_say(
            d, r, NULL, DS_DOCTOR_FOUND, err,
            "%s has code that sets flush-to-zero, as a link with -ffast-math brings it", path);
    return ds_doctor_say(d, r, NULL, DS_DOCTOR_UNKNOWN, err,
                         "%s cannot be loaded here; its own code does not set flush-to-zero", path);
}

/* ---- many ---------------------------------------------------------------------------------------- */

struct many {
    size_t looked, found;
    struct ds_buf names;
};

static void count_file(struct many *m, const char *path)
{
    const int code = scan_file(path);
    m->looked += code >= 0;
    if (code != 1)
        return;
    ds_buf_puts(&m->names, m->found++ ? ", " : "");
    ds_buf_puts(&m->names, path);
}

static int say_many(struct ds_doctor *d, const struct ds_doctor_rule *r, struct many *m,
                    const char *where, struct ds_error *err)
{
    const int rc =
        m->names.failed ? ds_fail(err, "out of memory for names")
        : m->found
            ? ds_doctor_say(d, r, NULL, DS_DOCTOR_FOUND, err,
                            "%zu of %zu shared objects %s have code that sets flush-to-zero, as a "
                            "link with -ffast-math brings it: %s",
                            m->found, m->looked, where, m->names.data)
            : ds_doctor_say(d, r, NULL, DS_DOCTOR_FIXED, err,
                            "none of %zu shared objects %s has code that sets flush-to-zero",
                            m->looked, where);
    ds_buf_free(&m->names);
    return rc;
}

static int is_object_name(const char *name)
{
    const char *at = strstr(name, ".so");
    return at && (at[3] == '\0' || at[3] == '.');
}

static int look_folder(struct ds_doctor *d, const struct ds_doctor_rule *r, const char *path,
                       struct ds_error *err)
{
    char *copy = strdup(path), *const roots[] = {copy, NULL};
    struct many m = {0};
    FTS *tree = copy ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
    if (!tree) {
        free(copy);
        return ds_fail(err, "cannot read folder '%s': %s", path, strerror(errno));
    }
    for (FTSENT *e; (e = fts_read(tree));)
        if (e->fts_info == FTS_F && is_object_name(e->fts_name))
            count_file(&m, e->fts_path);
    fts_close(tree);
    free(copy);
    char *where = NULL;
    if (asprintf(&where, "in %s", path) < 0) {
        ds_buf_free(&m.names);
        return ds_fail(err, "out of memory for names");
    }
    const int rc = say_many(d, r, &m, where, err);
    free(where);
    return rc;
}

static int count_loaded(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct many *m = arg;
    (void)size;
    if (info->dlpi_name && info->dlpi_name[0] == '/')
        count_file(m, info->dlpi_name);
    return 0;
}

int ds_doctor_look_objects(struct ds_doctor *d, const struct ds_doctor_rule *r,
                           const struct ds_doctor_command *c, struct ds_error *err)
{
    struct many loaded = {0};
    (void)c;
    dl_iterate_phdr(count_loaded, &loaded);
    if (say_many(d, r, &loaded, "that this process has loaded", err) != 0)
        return -1;
    for (size_t i = 0; i < ds_opt_operands_plain(d->o); i++) {
        const char *path = ds_opt_operand(d->o, i);
        struct stat st;
        const int folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
        if ((folder ? look_folder(d, r, path, err) : look_file(d, r, path, err)) != 0)
            return -1;
    }
    return 0;
}
