/* matrix.c: the kernel x condition matrix. Lays out what the verdict says; judges nothing. 100 columns; all
 * names escaped. */
#include "report/report_internal.h"

#include <stdlib.h>
#include <string.h>

/* Characters that text takes on a terminal (one a code point: names are not expected to be wider).
 */
static size_t shown_width(const char *s, size_t n)
{
    size_t width = 0;
    for (size_t i = 0; i < n; i++)
        width += ((unsigned char)s[i] & 0xc0) != 0x80;
    return width;
}

static void pad_to(struct ds_buf *out, size_t from, size_t width)
{
    if (out->failed || !out->data)
        return;
    size_t have = shown_width(out->data + from, out->len - from);
    for (; have < width; have++)
        ds_buf_puts(out, " ");
}

/* One class: runs of three or more neighbouring values as first-last, the rest with commas. */
static void add_class(const struct ds_factor_verdict *f, const uint32_t *class_of, uint32_t c,
                      struct ds_buf *out)
{
    int some = 0;
    for (uint32_t i = 0; i < f->n_values;) {
        if (class_of[i] != c) {
            i++;
            continue;
        }
        uint32_t end = i;
        while (end + 1 < f->n_values && class_of[end + 1] == c)
            end++;
        ds_buf_puts(out, some++ ? "," : "");
        ds_report_name(out, f->values[i]);
        if (end > i + 1 || (end == i + 1 && f->values[i][0] >= '0' && f->values[i][0] <= '9')) {
            ds_buf_puts(out, "-");
            ds_report_name(out, f->values[end]);
        } else if (end == i + 1) {
            ds_buf_puts(out, ",");
            ds_report_name(out, f->values[end]);
        }
        i = end + 1;
    }
}

void ds_report_classes(const struct ds_factor_verdict *f, const uint32_t *class_of, size_t most,
                       struct ds_buf *out)
{
    struct ds_buf b = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_values; i++)
        n = class_of[i] != DS_NO_CLASS && class_of[i] >= n ? class_of[i] + 1 : n;
    for (uint32_t c = 0; c < n; c++) {
        ds_buf_puts(&b, c ? "|" : "");
        add_class(f, class_of, c, &b);
    }
    if (b.failed)
        out->failed = 1;
    else if (n == 1 && b.len > most)
        ds_buf_puts(out, "alike");
    else if (b.len > most)
        ds_buf_printf(out, "%u classes", n);
    else if (b.len)
        ds_buf_add(out, b.data, b.len);
    ds_buf_free(&b);
}

/* ---- kernel x condition ---------------------------------------------------------------------- */

enum { NAME_LEAST = 22, CELL_MOST = 18, LINE_MOST = 100 };

static int in_play(const struct ds_factor_verdict *f)
{
    return f->arms > 0 || f->arms_alone > 0;
}

void ds_report_cell_count(const struct ds_verdict *v, size_t k, size_t f, struct ds_buf *out)
{
    if (v->kernels[k].condition[f] == DS_COND_DRIFT && v->kernels[k].count[f].sites)
        ds_buf_printf(out, "%u", (unsigned)v->kernels[k].count[f].sites);
}

void ds_report_cell(const struct ds_verdict *v, size_t k, size_t f, size_t most, struct ds_buf *out)
{
    const struct ds_kernel_verdict *x = &v->kernels[k];
    switch (x->condition[f]) {
    case DS_COND_SAME:
        ds_buf_puts(out, "same");
        break;
    case DS_COND_WITHIN:
        ds_buf_puts(out, "within");
        break;
    case DS_COND_UNSTABLE:
        ds_buf_puts(out, "unstable");
        break;
    case DS_COND_UNKNOWN:
        ds_buf_puts(out, "?");
        break;
    case DS_COND_DRIFT:
        ds_report_classes(&v->factors[f], x->class_of[f], most, out);
        break;
    default:
        ds_buf_puts(out, "-");
        break;
    }
}

static size_t column_width(const struct ds_verdict *v, size_t f, struct ds_buf *out)
{
    size_t width = strlen(v->factors[f].name);
    for (size_t k = 0; k < v->n_kernels; k++) {
        struct ds_buf b = {0};
        ds_report_cell(v, k, f, CELL_MOST, &b);
        size_t w = b.data ? shown_width(b.data, b.len) : 0;
        width = w > width ? w : width;
        out->failed |= b.failed;
        ds_buf_free(&b);
    }
    return width + 2;
}

/* Wide enough for the longest op/variant and a space. */
static size_t name_width(const struct ds_verdict *v)
{
    size_t width = NAME_LEAST;
    for (size_t k = 0; k < v->n_kernels; k++) {
        size_t w = strlen(v->kernels[k].op) + strlen(v->kernels[k].variant) + 2;
        width = w > width ? w : width;
    }
    return width;
}

enum ds_role ds_report_cell_role(int condition)
{
    return condition == DS_COND_SAME || condition == DS_COND_WITHIN ? DS_ROLE_SAME
           : condition == DS_COND_DRIFT                             ? DS_ROLE_DRIFT
           : condition == DS_COND_UNSTABLE                          ? DS_ROLE_UNSTABLE
                                                                    : DS_ROLE_DIM;
}

static void matrix_row(const struct ds_report *r, size_t k, const size_t *columns,
                       const size_t *widths, size_t n, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    size_t from = out->len;
    ds_report_name(out, v->kernels[k].op);
    ds_buf_puts(out, "/");
    ds_report_name(out, v->kernels[k].variant);
    if (out->failed)
        return;
    pad_to(out, from, name_width(v));
    for (size_t c = 0; c < n; c++) {
        struct ds_buf b = {0};
        ds_report_cell(v, k, columns[c], CELL_MOST, &b);
        ds_buf_puts(out,
                    ds_report_color(r, ds_report_cell_role(v->kernels[k].condition[columns[c]])));
        from = out->len;
        out->failed |= b.failed;
        if (b.len)
            ds_buf_add(out, b.data, b.len);
        ds_buf_free(&b);
        if (out->failed)
            return;
        size_t end = out->len;
        if (c + 1 < n)
            pad_to(out, from, widths[c]);
        if (end)
            ds_buf_puts(out, ds_report_color(r, DS_ROLE_PLAIN));
    }
    ds_buf_puts(out, "\n");
}

/* Below a kernel that is an origin, at how many sites it is that along each factor: a line of its own, for it would make
 * every column wider. */
static void count_row(const struct ds_report *r, size_t k, const size_t *columns,
                      const size_t *widths, size_t n, struct ds_buf *out)
{
    size_t last = 0;
    for (size_t c = 0; c < n; c++)
        if (r->v->kernels[k].condition[columns[c]] == DS_COND_DRIFT &&
            r->v->kernels[k].count[columns[c]].sites)
            last = c + 1;
    if (!last)
        return;
    ds_buf_puts(out, ds_report_color(r, DS_ROLE_DIM));
    size_t from = out->len;
    ds_buf_puts(out, "  origin at sites");
    pad_to(out, from, name_width(r->v));
    for (size_t c = 0; c < last && !out->failed; c++) {
        from = out->len;
        ds_report_cell_count(r->v, k, columns[c], out);
        if (c + 1 < last)
            pad_to(out, from, widths[c]);
    }
    ds_buf_puts(out, ds_report_color(r, DS_ROLE_PLAIN));
    ds_buf_puts(out, "\n");
}

static void matrix_block(const struct ds_report *r, const size_t *columns, const size_t *widths,
                         size_t n, struct ds_buf *out)
{
    size_t from;
    ds_buf_puts(out, ds_report_color(r, DS_ROLE_HEAD));
    from = out->len;
    ds_buf_puts(out, "kernel");
    if (out->failed)
        return;
    pad_to(out, from, name_width(r->v));
    for (size_t c = 0; c < n && !out->failed; c++) {
        from = out->len;
        ds_report_name(out, r->v->factors[columns[c]].name);
        if (c + 1 < n && !out->failed)
            pad_to(out, from, widths[c]);
    }
    ds_buf_puts(out, ds_report_color(r, DS_ROLE_PLAIN));
    ds_buf_puts(out, "\n");
    for (size_t k = 0; k < r->v->n_kernels && !out->failed; k++) {
        matrix_row(r, k, columns, widths, n, out);
        if (!out->failed)
            count_row(r, k, columns, widths, n, out);
    }
}

static void add_note(const struct ds_report *r, const char *text, struct ds_buf *out)
{
    ds_buf_printf(out, "%s(%s)%s\n", ds_report_color(r, DS_ROLE_DIM), text,
                  ds_report_color(r, DS_ROLE_PLAIN));
}

void ds_report_matrix(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    size_t *columns = calloc(v->n_factors + 1, sizeof *columns),
           *widths = calloc(v->n_factors + 1, sizeof *widths);
    size_t n = 0, line = name_width(v);
    int seen[DS_CONDITIONS] = {0};
    if (!columns || !widths)
        out->failed = 1;
    for (size_t f = 0; columns && widths && f < v->n_factors; f++) {
        if (!in_play(&v->factors[f]))
            continue;
        size_t width = column_width(v, f, out);
        if (n && line + width > LINE_MOST) { /* more factors than fit: a second block below */
            matrix_block(r, columns, widths, n, out);
            n = 0;
            line = name_width(v);
        }
        columns[n] = f;
        widths[n++] = width;
        line += width;
        for (size_t k = 0; k < v->n_kernels; k++)
            seen[v->kernels[k].condition[f]] = 1;
    }
    if (n)
        matrix_block(r, columns, widths, n, out);
    if (seen[DS_COND_UNKNOWN])
        add_note(r, "? = its inputs differed already or were not compared, so it was not judged",
                 out);
    if (seen[DS_COND_WITHIN])
        add_note(r, "within = its bits differ, nowhere by more than the tolerance", out);
    free(columns);
    free(widths);
}
