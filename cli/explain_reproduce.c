/* explain_reproduce.c: `--reproducer DIR`: a C program and a small HDF5 file that show the difference
 * with nothing else. Owns which elements are taken, the two files and their folder; the program's
 * text is reproduce.c.in. The orders as steps are explain_reproduce_steps.c's. */
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

/* ---- which elements -------------------------------------------------------------------------- */

static int usable(const struct ds_explanation *x, size_t row, int64_t c, int64_t width)
{
    const size_t i = row * (size_t)width + (size_t)c;
    const struct ds_explain_row *r = &x->c->e.rows[row];
    if (ds_f32_bits(r->y[DS_SIDE_A][c]) == ds_f32_bits(r->y[DS_SIDE_B][c]))
        return 0;
    for (int s = 0; s < DS_SIDES; s++)
        if (x->order[s].tree_of[i] < 0 || ds_f32_bits(x->order[s].y[i]) != ds_f32_bits(r->y[s][c]))
            return 0;
    return 1;
}

/* Rows of one call on both sides: the program makes one call of a library. */
static size_t rows_together(const struct ds_explain *e, size_t rows[DS_SHOWN_ROWS])
{
    size_t n = 0;
    for (size_t r = 0; r < e->n_rows && n < DS_SHOWN_ROWS; r++) {
        int together = 1;
        for (int s = 0; s < DS_SIDES; s++)
            together &= e->rows[r].at[s].call == e->rows[0].at[s].call;
        if (together)
            rows[n++] = r;
    }
    return n;
}

/* Spread over the rows and their columns. */
static void choose(struct ds_shown *s)
{
    size_t together[DS_SHOWN_ROWS];
    const size_t rows = rows_together(&s->x->c->e, together);
    for (size_t i = 0; i < rows; i++) {
        const size_t row = together[i];
        uint64_t there = 0, seen = 0;
        const size_t most = DS_SHOWN_ELEMENTS / rows;
        size_t taken = 0;
        for (int64_t c = 0; c < s->width; c++)
            there += (uint64_t)usable(s->x, row, c, s->width);
        for (int64_t c = 0; c < s->width && taken < most; c++) {
            if (!usable(s->x, row, c, s->width) || seen++ * most < taken * there)
                continue;
            s->row[s->n] = (int32_t)s->n_rows;
            s->from_row[s->n] = row;
            s->column[s->n++] = (int32_t)c;
            taken++;
        }
        if (taken)
            s->rows[s->n_rows++] = row;
    }
}

/* ---- factors --------------------------------------------------------------------------------- */

static const struct ds_explain_input *input_of(const struct ds_shown *s, size_t row)
{
    return &s->x->c->e.rows[row].input[DS_SIDE_A];
}

static float row_factor(const struct ds_shown *s, size_t row, int64_t k)
{
    const int op = s->x->c->e.op;
    return op == DS_OP_ALLREDUCE ? 1.0f : input_of(s, row)->in[op == DS_OP_COMBINE][k];
}

static float column_factor(const struct ds_shown *s, size_t row, int64_t c, int64_t k)
{
    switch (s->x->c->e.op) {
    case DS_OP_MATMUL:
        return s->x->c->e.shared.matmul.w.data[c * s->terms + k];
    case DS_OP_RMSNORM:
        return input_of(s, row)->in[0][k];
    default:
        return input_of(s, row)->in[0][k * s->width + c];
    }
}

/* Two elements that multiply with the same row of w: of one column, or of one row (rmsnorm). */
static int same_weight(const struct ds_shown *s, size_t i, size_t j)
{
    switch (s->x->c->e.op) {
    case DS_OP_MATMUL:
        return s->column[i] == s->column[j];
    case DS_OP_RMSNORM:
        return s->row[i] == s->row[j];
    default:
        return s->row[i] == s->row[j] && s->column[i] == s->column[j];
    }
}

static int gather(struct ds_shown *s, struct ds_error *err)
{
    const struct ds_explain *e = &s->x->c->e;
    const size_t terms = (size_t)s->terms;
    s->factors_x = ds_alloc_aligned(s->n_rows * terms, sizeof(float), "the reproducer", err);
    s->factors_w = ds_alloc_aligned(s->n * terms, sizeof(float), "the reproducer", err);
    if (!s->factors_x || !s->factors_w)
        return -1;
    for (size_t r = 0; r < s->n_rows; r++)
        for (size_t k = 0; k < terms; k++)
            s->factors_x[r * terms + k] = row_factor(s, s->rows[r], (int64_t)k);
    for (size_t i = 0; i < s->n; i++) {
        const struct ds_explain_row *row = &e->rows[s->from_row[i]];
        const int32_t c = s->column[i];
        size_t j = 0;
        while (j < i && !same_weight(s, i, j))
            j++;
        s->weight[i] = j < i ? s->weight[j] : (int32_t)s->n_weights;
        for (size_t k = 0; j == i && k < terms; k++)
            s->factors_w[s->n_weights * terms + k] =
                column_factor(s, s->from_row[i], c, (int64_t)k);
        s->n_weights += j == i;
        s->a[i] = row->y[DS_SIDE_A][c];
        s->b[i] = row->y[DS_SIDE_B][c];
        if (e->op == DS_OP_MATMUL && e->shared.matmul.bias)
            s->bias[i] = e->shared.matmul.bias[c];
        if (e->op == DS_OP_RMSNORM) {
            s->scale[i] = e->shared.rmsnorm.weight[c];
            s->at[i] = row->input[DS_SIDE_A].in[0][c];
        }
    }
    return 0;
}

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

/* "batch 4: matmul/openblas, core Haswell, 44 rows in the call, 1 thread"; only what is printable and
 * ends no comment. */
static void says(const struct ds_shown *s, int side, char *text, size_t size)
{
    const struct ds_case *c = s->x->c;
    const long long rows = (long long)c->e.rows[s->rows[0]].at[side].rows;
    snprintf(text, size, "%.40s %.60s: %.16s/%.31s%s%.23s, %lld row%s in the call, %d thread%s",
             c->f.factor, side == DS_SIDE_A ? c->f.ref_value : c->f.value, c->f.op,
             c->side[side].variant, c->e.side[side].core[0] ? ", core " : "", c->e.side[side].core,
             rows, rows == 1 ? "" : "s", c->e.side[side].threads,
             c->e.side[side].threads == 1 ? "" : "s");
    for (char *p = text; *p; p++)
        if (*p < 32 || *p > 126 || *p == '\\' || (*p == '*' && p[1] == '/'))
            *p = '?';
}

static void place_text(const struct ds_explanation *x, char *text, size_t size)
{
    snprintf(text, size, "layer %d %.24s%s%.12s", x->c->f.layer, x->c->f.stage,
             x->c->f.part[0] ? "/" : "", x->c->f.part);
    for (char *p = text; *p; p++)
        if (*p < 32 || *p > 126 || *p == '\\' || (*p == '*' && p[1] == '/'))
            *p = '?';
}

static int write_program(const struct ds_shown *s, const char *path, struct ds_error *err)
{
    const struct ds_explanation *x = s->x;
    struct ds_buf out = {0};
    char place[96], side[DS_SIDES][256];
    place_text(x, place, sizeof place);
    for (int i = 0; i < DS_SIDES; i++)
        says(s, i, side[i], sizeof side[i]);
    ds_buf_printf(&out, "/* reproduce.c: two orders of addition give %s other bits.\n *\n", place);
    for (int i = 0; i < DS_SIDES; i++) {
        ds_buf_printf(&out, " * %c: %s\n", 'A' + i, side[i]);
        add_orders(x, i, &out);
    }
    ds_buf_puts(&out, reproduce_text);
    FILE *f = out.failed ? NULL : fopen(path, "wxe");
    int failed = !f || fwrite(out.data, 1, out.len, f) != out.len;
    failed |= f && fclose(f) != 0;
    ds_buf_free(&out);
    return failed ? ds_fail(err, "cannot write '%s': %s", path, strerror(errno)) : 0;
}

/* Adds "NAME_a" or "NAME_b". */
struct names {
    char text[64][24];
    size_t n;
};
static const char *side_name(struct names *names, const char *what, int side)
{
    char *to = names->text[names->n++];
    snprintf(to, sizeof names->text[0], "%s%s%c", what, *what ? "_" : "", 'a' + side);
    return to;
}

static int write_data(const struct ds_shown *s, const struct ds_shown_steps t[DS_SIDES],
                      const char *path, struct ds_error *err)
{
    const struct ds_case *c = s->x->c;
    struct names names = {.n = 0};
    char place[96], said[DS_SIDES][256];
    struct ds_named_array array[32] = {
        {"x", DS_ARRAY_F32, s->n_rows, (uint64_t)s->terms, s->factors_x},
        {"w", DS_ARRAY_F32, s->n_weights, (uint64_t)s->terms, s->factors_w},
        {"bias", DS_ARRAY_F32, s->n, 0, s->bias},
        {"scale", DS_ARRAY_F32, s->n, 0, s->scale},
        {"at", DS_ARRAY_F32, s->n, 0, s->at},
        {"row", DS_ARRAY_I32, s->n, 0, s->row},
        {"column", DS_ARRAY_I32, s->n, 0, s->column},
        {"weight", DS_ARRAY_I32, s->n, 0, s->weight},
    };
    struct ds_named_value value[32] = {
        {"op", c->f.op, 0},
        {"dtype", ds_dtype_name(c->e.side[DS_SIDE_A].dtype), 0},
        {"width", NULL, (double)s->width},
        {"terms", NULL, (double)s->terms},
        {"has_bias", NULL, c->e.op == DS_OP_MATMUL && c->e.shared.matmul.bias},
        {"eps", NULL, c->e.op == DS_OP_RMSNORM ? (double)c->e.shared.rmsnorm.eps : 0},
        {"place", place, 0},
    };
    size_t n = 8, v = 7;
    place_text(s->x, place, sizeof place);
    for (int i = 0; i < DS_SIDES; i++) {
        const struct ds_shown_steps *p = &t[i];
        const struct ds_explain_side *side = &c->e.side[i];
        const struct ds_named_array own[] = {
            {side_name(&names, "", i), DS_ARRAY_F32, s->n, 0, i ? s->b : s->a},
            {side_name(&names, "tree", i), DS_ARRAY_I32, s->n, 0, p->tree},
            {side_name(&names, "place", i), DS_ARRAY_I32, s->n_rows, 0, p->place},
            {side_name(&names, "first_step", i), DS_ARRAY_I32, p->n_trees + 1, 0, p->first},
            {side_name(&names, "zero_start", i), DS_ARRAY_I32, p->n_trees, 0, p->zero_start},
            {side_name(&names, "inputs", i), DS_ARRAY_I32, p->n_trees, 0, p->inputs},
            {side_name(&names, "step_kind", i), DS_ARRAY_U8, p->n, 0, p->kind},
            {side_name(&names, "step_flags", i), DS_ARRAY_U8, p->n, 0, p->flags},
            {side_name(&names, "step_term", i), DS_ARRAY_I32, p->n, 0, p->term},
        };
        says(s, i, said[i], sizeof said[i]);
        const struct ds_named_value ours[] = {
            {side_name(&names, "says", i), said[i], 0},
            {side_name(&names, "variant", i), c->side[i].variant, 0},
            {side_name(&names, "core", i), side->core, 0},
            {side_name(&names, "threads", i), NULL, side->threads},
            {side_name(&names, "rows", i), NULL, (double)c->e.rows[s->rows[0]].at[i].rows},
            {side_name(&names, "form", i), NULL, s->x->order[i].form},
        };
        memcpy(array + n, own, sizeof own);
        memcpy(value + v, ours, sizeof ours);
        n += sizeof own / sizeof own[0];
        v += sizeof ours / sizeof ours[0];
    }
    return ds_arrays_write(path, array, n, value, v, err);
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

static int write_folder(const struct ds_shown *s, const struct ds_shown_steps t[DS_SIDES],
                        const char *dir, int force, struct ds_error *err)
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
        rc = write_data(s, t, path, err);
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

static int check(const struct ds_explanation *x, struct ds_error *err)
{
    if (!x->c->inputs_equal)
        return ds_fail(err, "--reproducer: the inputs of both sides differ already");
    if (ds_explain_weighs(x->c->e.op))
        return ds_fail(err, "--reproducer: outputs of this op do not follow from one sum: scores, "
                            "weights and values are added up one after the other, which is not "
                            "shown");
    for (int s = 0; s < DS_SIDES; s++)
        if (x->order[s].ranks)
            return ds_fail(err,
                           "--reproducer: %c is a sum over ranks, which is not shown; the site's "
                           "allreduce is",
                           'A' + s);
    for (int s = 0; s < DS_SIDES; s++)
        if (!x->order[s].replayed) {
            ds_fail(err, "--reproducer: %c has no order of addition that could be shown: %s",
                    'A' + s,
                    x->order[s].why[0]   ? x->order[s].why
                    : !x->order[s].fixed ? "it is not fixed"
                                         : "outputs of this op do not follow from one sum");
            return -1;
        }
    return 0;
}

int ds_reproducer_write(const struct ds_explanation *x, const char *dir, int force,
                        struct ds_error *err)
{
    if (check(x, err) != 0)
        return -1;
    struct ds_shown s = {.x = x,
                         .width = ds_explain_width(x->c->e.op, &x->c->e.shared),
                         .terms = x->order[DS_SIDE_A].trees[0].tree.terms};
    struct ds_shown_steps t[DS_SIDES];
    memset(t, 0, sizeof t);
    choose(&s);
    int rc = s.n ? gather(&s, err)
                 : ds_fail(err, "--reproducer: the measured orders give no element of both sides");
    for (int i = 0; i < DS_SIDES && rc == 0; i++)
        rc = ds_reproduce_compile(&s, i, &t[i], err) == 0 ? ds_reproduce_shows(&s, i, &t[i], err)
                                                          : -1;
    if (rc == 0)
        rc = write_folder(&s, t, dir, force, err);
    for (int i = 0; i < DS_SIDES; i++)
        ds_reproduce_free(&t[i]);
    free(s.factors_x);
    free(s.factors_w);
    return rc;
}
