/* explain_reproduce.c: `--reproducer DIR`: a C program and a small HDF5 file that show the difference
 * with nothing else. Owns the two files and their folder; the program's text is in reproduce/. What is shown
 * explain_reproduce_choose.c decides, and for each family of ops a file gathers it. */
#include "cli/explain_reproduce.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "dumps/arrays.h"
#include "reproduce_text.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char program_name[] = "reproduce.c", data_name[] = "reproduce.h5";

/* ---- the files ------------------------------------------------------------------------------- */

static void add_orders(const struct ds_explanation *x, int side, struct ds_buf *out)
{
    const struct ds_explain_order *o = &x->order[side];
    for (size_t i = 0; i < o->n_trees; i++) {
        if (!o->trees[i].elements)
            continue;
        ds_buf_printf(out, " * %c adds: ", 'A' + side);
        for (const char *p = o->trees[i].words; *p; p++)
            ds_buf_puts(out, *p == '\n' ? "\n *         " : (char[]){*p, 0});
        ds_buf_puts(out, "\n");
    }
}

/* Only what ends no comment and no line. */
static void printable(char *text)
{
    for (char *p = text; *p; p++)
        if (*p < 32 || *p > 126 || *p == '\\' || (*p == '*' && p[1] == '/'))
            *p = '?';
}

/* "batch 4: matmul/openblas, core Haswell, 44 rows in the call, 1 thread" */
static void says(const struct ds_shown *s, int side, char *text, size_t size)
{
    const struct ds_case *c = s->x->c;
    const long long rows = (long long)c->e.rows[s->rows[0]].at[side].rows;
    snprintf(text, size, "%.40s %.60s: %.16s/%.31s%s%.23s, %lld row%s in the call, %d thread%s",
             c->f.factor, side == DS_SIDE_A ? c->f.ref_value : c->f.value, c->f.op,
             c->side[side].variant, c->e.side[side].core[0] ? ", core " : "", c->e.side[side].core,
             rows, rows == 1 ? "" : "s", c->e.side[side].threads,
             c->e.side[side].threads == 1 ? "" : "s");
    printable(text);
}

static void place_text(const struct ds_explanation *x, char *text, size_t size)
{
    snprintf(text, size, "layer %d %.24s%s%.12s", x->c->f.layer, x->c->f.stage,
             x->c->f.part[0] ? "/" : "", x->c->f.part);
    printable(text);
}

static void claim_text(const struct ds_explanation *x, char *text, size_t size)
{
    snprintf(text, size, "%s: %.480s", ds_explain_kind_name(x->kind), x->why);
    printable(text);
}

static int write_program(const struct ds_shown *s, const char *path, struct ds_error *err)
{
    struct ds_buf out = {0};
    char place[96], side[DS_SIDES][256];
    place_text(s->x, place, sizeof place);
    ds_buf_printf(&out, "/* reproduce.c: %s of A and B differ.\n *\n", place);
    for (int i = 0; i < DS_SIDES; i++) {
        says(s, i, side[i], sizeof side[i]);
        ds_buf_printf(&out, " * %c: %s\n", 'A' + i, side[i]);
        if (s->known[i])
            add_orders(s->x, i, &out);
    }
    ds_buf_puts(&out, reproduce_common);
    ds_buf_puts(&out, s->program);
    ds_buf_puts(&out, reproduce_main);
    FILE *f = out.failed ? NULL : fopen(path, "wxe");
    int failed = !f || fwrite(out.data, 1, out.len, f) != out.len;
    failed |= f && fclose(f) != 0;
    ds_buf_free(&out);
    return failed ? ds_fail(err, "cannot write '%s': %s", path, strerror(errno)) : 0;
}

/* What both sides ran, and what is claimed of them. */
static void add_facts(struct ds_shown *s, char said[DS_SIDES][256], const char *place,
                      const char *claim)
{
    const struct ds_case *c = s->x->c;
    ds_shown_text(s, "op", -1, c->f.op);
    ds_shown_text(s, "dtype", -1, ds_dtype_name(c->e.side[DS_SIDE_A].dtype));
    ds_shown_text(s, "place", -1, place);
    ds_shown_text(s, "claim", -1, claim);
    ds_shown_number(s, "width", -1, (double)s->width);
    ds_shown_array(s, "row", -1, DS_ARRAY_I32, s->n, 0, s->row);
    ds_shown_array(s, "column", -1, DS_ARRAY_I32, s->n, 0, s->column);
    for (int i = 0; i < DS_SIDES; i++) {
        const struct ds_explain_side *side = &c->e.side[i];
        says(s, i, said[i], sizeof said[i]);
        ds_shown_array(s, "", i, DS_ARRAY_F32, s->n, 0, s->y[i]);
        ds_shown_text(s, "says", i, said[i]);
        ds_shown_text(s, "variant", i, c->side[i].variant);
        ds_shown_text(s, "core", i, side->core);
        ds_shown_text(s, "unknown", i, s->unknown[i]);
        ds_shown_text(s, "guess", i, s->guess[i]);
        ds_shown_number(s, "threads", i, side->threads);
        ds_shown_number(s, "rows", i, (double)c->e.rows[s->rows[0]].at[i].rows);
        ds_shown_number(s, "known", i, s->known[i]);
        ds_shown_number(s, "form", i, s->form[i]);
        ds_shown_number(s, "near", i, s->near[i]);
    }
}

static int write_data(struct ds_shown *s, const char *path, struct ds_error *err)
{
    char place[96], claim[600], said[DS_SIDES][256];
    place_text(s->x, place, sizeof place);
    claim_text(s->x, claim, sizeof claim);
    add_facts(s, said, place, claim);
    ds_shown_add_steps(s);
    return ds_arrays_write(path, s->array, s->n_arrays, s->value, s->n_values, err);
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Removes what this program writes; a folder with anything else in it stays, and that is an error. */
static int remove_folder(const char *dir, struct ds_error *err)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, program_name);
    unlink(path);
    snprintf(path, sizeof path, "%s/%s", dir, data_name);
    unlink(path);
    return rmdir(dir) == 0 ? 0 : ds_fail(err, "cannot remove '%s': %s", dir, strerror(errno));
}

/* Written anew only if nothing else is lost. */
static int check_content(const char *dir, struct ds_error *err)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int rc = d ? 0 : ds_fail(err, "cannot read the folder '%s': %s", dir, strerror(errno));
    while (rc == 0 && (e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, program_name) != 0 && strcmp(e->d_name, data_name) != 0)
            rc = ds_fail(err, "--reproducer: '%s' has other files in it, such as '%.60s'", dir,
                         e->d_name);
    if (d)
        closedir(d);
    return rc;
}

int ds_reproducer_check(const char *dir, int force, struct ds_error *err)
{
    struct stat st;
    if (!*dir || strlen(dir) > 3900)
        return ds_fail(err, "--reproducer: '%.60s' is no name of a folder", dir);
    if (lstat(dir, &st) != 0)
        return errno == ENOENT ? 0 : ds_fail(err, "'%s': %s", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return ds_fail(err, "--reproducer: '%s' is there, and is no folder", dir);
    if (force)
        return check_content(dir, err);
    ds_fail(err, "--reproducer: the folder '%s' is there already", dir);
    return ds_hint(err, "--force writes it anew");
}

/* The new folder takes the old one's name; what was written wins only when it is complete. */
static int take_place(const char *beside, const char *dir, int force, struct ds_error *err)
{
    char old[4200];
    snprintf(old, sizeof old, "%s.old-%ld", dir, (long)getpid());
    if (force && rename(dir, old) != 0 && errno != ENOENT)
        return ds_fail(err, "cannot rename '%s': %s", dir, strerror(errno));
    if (rename(beside, dir) != 0) {
        ds_fail(err, "cannot rename '%s' to '%s': %s", beside, dir, strerror(errno));
        rename(old, dir);
        return -1;
    }
    return force && access(old, F_OK) == 0 ? remove_folder(old, err) : 0;
}

static int write_folder(struct ds_shown *s, const char *dir, int force, struct ds_error *err)
{
    char beside[4000], path[4100];
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    snprintf(beside, sizeof beside, "%.*s.new-%ld", (int)n, dir, (long)getpid());
    if (mkdir(beside, 0777) != 0)
        return ds_fail(err, "cannot make '%s': %s", beside, strerror(errno));
    snprintf(path, sizeof path, "%s/%s", beside, program_name);
    ds_cli_tidying(1);
    int rc = write_program(s, path, err);
    if (rc == 0) {
        snprintf(path, sizeof path, "%s/%s", beside, data_name);
        rc = write_data(s, path, err);
    }
    if (rc == 0) {
        snprintf(path, sizeof path, "%.*s", (int)n, dir);
        rc = take_place(beside, path, force, err);
    }
    if (rc != 0)
        remove_folder(beside, NULL);
    ds_cli_tidying(0);
    return rc;
}

/* What has no formula here that its outputs follow from. */
static int check(const struct ds_explanation *x, struct ds_error *err)
{
    const int op = x->c->e.op;
    if (x->c->not_replayed[0])
        return ds_fail(err, "--reproducer: %s", x->c->not_replayed);
    if (!x->c->inputs_equal)
        return ds_fail(err, "--reproducer: the inputs of both sides differ already");
    if (ds_explain_chooses(op) || op == DS_OP_CUSTOM)
        return ds_fail(err, "--reproducer: %s",
                       op == DS_OP_CUSTOM ? "the formula of this op is not known"
                                          : "outputs of this op are choices, not values");
    return 0;
}

/* At least one side's bits, or what accounts for a side's values. */
static int shows(const struct ds_shown *s, struct ds_error *err)
{
    for (int i = 0; i < DS_SIDES; i++)
        if (s->known[i] || s->guess[i][0])
            return 0;
    return ds_fail(err, "--reproducer: no side's bits come out of any order or formula: %s",
                   s->unknown[DS_SIDE_A]);
}

int ds_reproducer_write(const struct ds_explanation *x, const char *dir, int force,
                        struct ds_error *err)
{
    const int op = x->c->e.op;
    if (check(x, err) != 0)
        return -1;
    struct ds_shown *s = ds_calloc(1, sizeof *s, "the reproducer", err);
    if (!s)
        return -1;
    s->x = x;
    s->width = ds_explain_width(op, &x->c->e.shared);
    ds_shown_know(s);
    int rc;
    if (ds_explain_weighs(op)) {
        s->program = reproduce_weigh;
        rc = ds_shown_weigh(s, err);
    } else if (ds_explain_stands_alone(op)) {
        s->program = reproduce_each;
        rc = ds_shown_each(s, err);
    } else {
        s->program = reproduce_sums;
        rc = ds_shown_sums(s, err);
    }
    if (rc == 0)
        rc = shows(s, err);
    if (rc == 0)
        rc = write_folder(s, dir, force, err);
    ds_shown_free(s);
    free(s);
    return rc;
}
