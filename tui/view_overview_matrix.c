/* view_overview_matrix.c: kernel by factor: what a cell says, and where Enter on it goes. */
#include "tui/view_overview.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VIEW_LAYERS = 1, CLASSES_MOST = 18, NAME_NARROW = 34, NAME_MOST = 48 };

int overview_is_drift(const struct overview_cell *c)
{
    return c->condition == DS_COND_DRIFT || c->condition == DS_COND_UNSTABLE;
}

/* ---- texts ------------------------------------------------------------------------------------- */

static size_t unstable_kernels(const struct ds_verdict *v)
{
    size_t n = 0;
    for (size_t k = 0; k < v->n_kernels; k++)
        n += v->kernels[k].condition[0] == DS_COND_UNSTABLE;
    return n;
}

/* The first value whose bits are not those of the first one. */
static const char *first_other(const struct ds_factor_verdict *f, const uint32_t *class_of)
{
    for (uint32_t i = 1; i < f->n_values; i++)
        if (class_of[i] != DS_NO_CLASS && class_of[i] != class_of[0])
            return f->values[i];
    return NULL;
}

static void cell_text(const struct ds_verdict *v, size_t k, size_t f, char out[OVERVIEW_CELL])
{
    const struct ds_kernel_verdict *x = &v->kernels[k];
    struct ds_buf b = {0};
    int condition = x->condition[f];
    const char *from =
        condition == DS_COND_DRIFT ? first_other(&v->factors[f], x->class_of[f]) : NULL;
    ds_report_cell(v, k, f, CLASSES_MOST, &b);
    if (from && b.data && strstr(b.data, " classes")) { /* too many to list */
        b.len = 0;
        ds_buf_puts(&b, "drift from ");
        ds_report_name(&b, from);
    } else if (condition == DS_COND_UNSTABLE && f == 0 && unstable_kernels(v) == 1) {
        ds_buf_printf(&b, " %" PRIu32 " of %" PRIu32, v->unstable.disagree, v->unstable.trials);
    }
    snprintf(out, OVERVIEW_CELL, "%s", b.data ? b.data : "");
    ds_buf_free(&b);
}

/* ---- where it goes ----------------------------------------------------------------------------- */

static struct overview_goal goal_of(const struct ds_verdict *v, size_t k, size_t f)
{
    const struct ds_kernel_verdict *x = &v->kernels[k];
    const struct ds_kernel_first *first = &x->first[f];
    struct overview_goal g = {.view = -1};
    if (first->found)
        return (struct overview_goal){VIEW_LAYERS, first->arm,     first->ref_arm,
                                      first->site, first->request, first->position};
    /* Repeats: an arm against itself. */
    for (size_t i = 0; f == 0 && x->condition[0] == DS_COND_UNSTABLE && i < v->n_origins; i++) {
        const struct ds_origin *o = &v->origins[i];
        if (o->arm == o->ref_arm && strcmp(o->op, x->op) == 0 &&
            strcmp(o->variant, x->variant) == 0)
            return (struct overview_goal){VIEW_LAYERS, o->arm, o->ref_arm, o->site, 0, -1};
    }
    const struct ds_finding *u = &v->factors[f].phase[DS_VERDICT_ALL].first;
    if (u->found && (x->condition[f] == DS_COND_DRIFT || x->condition[f] == DS_COND_UNSTABLE) &&
        strcmp(u->op, x->op) == 0 && strcmp(u->variant, x->variant) == 0)
        return (struct overview_goal){VIEW_LAYERS, u->arm,     u->ref_arm,
                                      u->site,     u->request, u->position};
    return g;
}

/* ---- rows and columns -------------------------------------------------------------------------- */

static int in_play(const struct ds_factor_verdict *f)
{
    return f->arms > 0 || f->arms_alone > 0;
}

static int make_columns(struct overview_own *o, const struct ds_verdict *v, struct ds_error *err)
{
    o->columns = ds_calloc(v->n_factors + 1, sizeof *o->columns, "matrix", err);
    o->names = ds_calloc(v->n_factors + 1, sizeof *o->names, "matrix", err);
    o->factors = ds_calloc(v->n_factors + 1, sizeof *o->factors, "matrix", err);
    if (!o->columns || !o->names || !o->factors)
        return -1;
    o->columns[0] = (struct tui_column){"kernel", TUI_LEFT, TUI_COLUMN_FIXED, 12, NAME_MOST};
    snprintf(o->names[0], sizeof o->names[0], "kernel");
    o->n_columns = 1;
    for (size_t f = 0; f < v->n_factors; f++) {
        if (!in_play(&v->factors[f]))
            continue;
        snprintf(o->names[o->n_columns], sizeof o->names[0], "%.31s", v->factors[f].name);
        o->columns[o->n_columns] = (struct tui_column){o->names[o->n_columns], TUI_LEFT, 0, 4, 0};
        o->factors[o->n_columns++ - 1] = f;
    }
    return 0;
}

static int alike(const struct overview_own *o, const struct ds_verdict *v, size_t a, size_t b)
{
    size_t n = o->n_columns - 1;
    if (strcmp(v->kernels[a].variant, v->kernels[b].variant) != 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (o->cells[a * n + i].condition != o->cells[b * n + i].condition ||
            strcmp(o->cells[a * n + i].text, o->cells[b * n + i].text) != 0)
            return 0;
    return 1;
}

/* "rope silu_mul add/reference"; where that is too long "rope silu_mul +4/reference". */
static void name_row(const struct ds_verdict *v, size_t k, uint32_t n, int most, struct ds_buf *out)
{
    size_t variant = strlen(v->kernels[k].variant), left = n,
           room = variant < (size_t)most ? (size_t)most - variant : 0;
    for (; left > 0; left--, k++) {
        size_t op = strlen(v->kernels[k].op);
        if (left < n && left > 1 && out->len + op + 6 > room) {
            ds_buf_printf(out, "+%zu/", left);
            ds_report_name(out, v->kernels[k].variant);
            return;
        }
        if (left == 1) {
            ds_report_kernel(out, v->kernels[k].op, v->kernels[k].variant);
        } else {
            ds_report_name(out, v->kernels[k].op);
            ds_buf_puts(out, " ");
        }
    }
}

static int add_row(struct overview_own *o, const struct ds_verdict *v, size_t k, uint32_t n)
{
    struct ds_buf name = {0};
    name_row(v, k, n, o->screen < 100 ? NAME_NARROW : NAME_MOST, &name);
    int rc = overview_add(o, TUI_ROW, TUI_PLAIN, name.data ? name.data : "", NULL);
    ds_buf_free(&name);
    if (rc == 0) {
        o->lines[o->n_lines - 1].kernel = k;
        o->lines[o->n_lines - 1].joined = n;
    }
    return rc;
}

int overview_matrix(struct overview_own *o, const struct tui_whole *w, struct ds_error *err)
{
    const struct ds_verdict *v = w->verdict;
    if (make_columns(o, v, err) != 0)
        return -1;
    size_t n = o->n_columns - 1;
    o->n_kernels = v->n_kernels;
    if (n && v->n_kernels > SIZE_MAX / n / sizeof *o->cells)
        return ds_fail(err, "too many kernels");
    if (!(o->cells = ds_calloc(v->n_kernels * n, sizeof *o->cells, "matrix", err)))
        return -1;
    for (size_t k = 0; k < v->n_kernels; k++)
        for (size_t i = 0; i < n; i++) {
            struct overview_cell *c = &o->cells[k * n + i];
            c->condition = v->kernels[k].condition[o->factors[i]];
            cell_text(v, k, o->factors[i], c->text);
            c->goal = goal_of(v, k, o->factors[i]);
            o->of[c->condition]++;
        }
    if (v->n_kernels == 0 || n == 0)
        return 0;
    if (overview_add(o, TUI_ROW_HEADS, TUI_HEAD, "kernel", NULL) != 0)
        return ds_fail(err, "out of memory");
    for (size_t k = 0, joined; k < v->n_kernels; k += joined) {
        joined = 1;
        while (!o->apart && k + joined < v->n_kernels && alike(o, v, k, k + joined))
            joined++;
        if (add_row(o, v, k, (uint32_t)joined) != 0)
            return ds_fail(err, "out of memory");
    }
    return 0;
}
