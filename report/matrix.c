/* matrix.c: the kernel x condition matrix and the layer x stage grid in text. Lays out what
 * the verdict says; judges nothing. 100 columns; all names escaped. */
#include "report/report_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ds_report_color(const struct ds_report *r, enum ds_role role)
{
    return r->color ? r->color(r->color_ctx, role) : "";
}

void ds_report_name(struct ds_buf *out, const char *text)
{
    ds_buf_escape(out, text ? text : "", (size_t)-1);
}

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

static void cell_text(const struct ds_verdict *v, size_t k, size_t f, struct ds_buf *out)
{
    const struct ds_kernel_verdict *x = &v->kernels[k];
    switch (x->condition[f]) {
    case DS_COND_SAME:
        ds_buf_puts(out, "same");
        break;
    case DS_COND_UNSTABLE:
        ds_buf_puts(out, "unstable");
        break;
    case DS_COND_UNKNOWN:
        ds_buf_puts(out, "?");
        break;
    case DS_COND_DRIFT:
        ds_report_classes(&v->factors[f], x->class_of[f], CELL_MOST, out);
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
        cell_text(v, k, f, &b);
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

static enum ds_role cell_role(int condition)
{
    return condition == DS_COND_SAME       ? DS_ROLE_SAME
           : condition == DS_COND_DRIFT    ? DS_ROLE_DRIFT
           : condition == DS_COND_UNSTABLE ? DS_ROLE_UNSTABLE
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
        cell_text(v, k, columns[c], &b);
        ds_buf_puts(out, ds_report_color(r, cell_role(v->kernels[k].condition[columns[c]])));
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
    for (size_t k = 0; k < r->v->n_kernels && !out->failed; k++)
        matrix_row(r, k, columns, widths, n, out);
}

void ds_report_matrix(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    size_t *columns = calloc(v->n_factors + 1, sizeof *columns),
           *widths = calloc(v->n_factors + 1, sizeof *widths);
    size_t n = 0, line = name_width(v);
    int unknown = 0;
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
            unknown |= v->kernels[k].condition[f] == DS_COND_UNKNOWN;
    }
    if (n)
        matrix_block(r, columns, widths, n, out);
    if (unknown)
        ds_buf_printf(
            out,
            "%s(? = its inputs differed already or were not compared, so it was not judged)%s\n",
            ds_report_color(r, DS_ROLE_DIM), ds_report_color(r, DS_ROLE_PLAIN));
    free(columns);
    free(widths);
}

/* ---- layer x stage --------------------------------------------------------------------------- */

/* Short headings of the usual stages; parts of a stage have theirs. */
static const char *short_stage(const struct ds_site *s)
{
    static const struct {
        const char *stage, *part, *text;
    } names[] = {
        {"attn_norm", "", "norm"},   {"q_proj", "", "q"},        {"k_proj", "", "k"},
        {"v_proj", "", "v"},         {"q_norm", "", "qn"},       {"k_norm", "", "kn"},
        {"q_rope", "", "qr"},        {"k_rope", "", "kr"},       {"kv_write", "k", "ck"},
        {"kv_write", "v", "cv"},     {"attn_scores", "", "qk"},  {"attn_probs", "", "p"},
        {"attn_out", "", "attn"},    {"o_proj", "", "o"},        {"resid_attn", "", "add"},
        {"ffn_norm", "", "norm"},    {"gate", "", "gate"},       {"up", "", "up"},
        {"act", "", "act"},          {"down", "", "down"},       {"resid_ffn", "", "add"},
        {"router_logits", "", "rl"}, {"router_ids", "", "ri"},   {"router_ids", "weights", "rw"},
        {"expert_out", "", "out"},   {"moe_combine", "", "moe"}, {"allreduce", "o_proj", "sum"},
        {"allreduce", "down", "sum"}};
    /* A chosen expert's sites have its number as their part: e0, e1, ... */
    int expert = s->part[0] == 'e' && s->part[1] >= '0' && s->part[1] <= '9';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].stage, s->stage) == 0 &&
            (expert ? !*names[i].part : strcmp(names[i].part, s->part) == 0))
            return names[i].text;
    if (strcmp(s->part, "unrounded") == 0) /* stands before its stage's own column */
        return "raw";
    return s->part[0] ? s->part : s->stage;
}

/* The most telling label of a site's rows. */
static char grid_cell(const struct ds_report *r, const struct ds_analysis *a, size_t site,
                      const uint8_t *labels, const uint8_t *bad)
{
    size_t rows = ds_analysis_rows(a);
    int seen[8] = {0}, healed = 0; /* it gives other bits on equal inputs, too */
    for (size_t i = 0; i < rows; i++) {
        seen[labels[site * rows + i] & 7] = 1;
        healed |= r->healed && r->healed[site * rows + i] == DS_LABEL_ORIGIN;
    }
    if (bad && bad[site])
        return '!';
    if (seen[DS_LABEL_UNSTABLE])
        return '~';
    if (seen[DS_LABEL_ORIGIN])
        return '#';
    if (healed)
        return 'o';
    if (seen[DS_LABEL_INHERITED])
        return '-';
    if (seen[DS_LABEL_UNKNOWN])
        return 'x';
    return seen[DS_LABEL_SAME] || seen[DS_LABEL_HEALED] ? '.' : '?';
}

static enum ds_role grid_role(char c)
{
    return c == '.'                           ? DS_ROLE_SAME
           : c == '#' || c == 'o' || c == '!' ? DS_ROLE_DRIFT
           : c == '~'                         ? DS_ROLE_UNSTABLE
                                              : DS_ROLE_PLAIN;
}

static void add_mark(const struct ds_report *r, char c, size_t width, struct ds_buf *out)
{
    ds_buf_printf(out, "%s%c%s%*s", ds_report_color(r, grid_role(c)), c,
                  ds_report_color(r, DS_ROLE_PLAIN), (int)width - 1, "");
}

static int same_stage(const struct ds_site *a, const struct ds_site *b)
{
    return strcmp(a->stage, b->stage) == 0 && strcmp(a->part, b->part) == 0;
}

/* The stages of all layers as one list, each by one of its sites: those that only some layers have
 * (copies between devices, experts beside dense layers) stand where such a layer has them. */
static size_t grid_columns(const struct ds_report *r, uint32_t *columns)
{
    const struct ds_site *sites = r->header->sites;
    size_t n = 0, at = 0;
    for (size_t s = 0; s < r->header->n_sites; s++) {
        if (sites[s].layer < 0 || sites[s].layer >= r->header->n_layers)
            continue;
        if (s > 0 && sites[s].layer != sites[s - 1].layer)
            at = 0;
        size_t c = 0;
        while (c < n && !same_stage(&sites[columns[c]], &sites[s]))
            c++;
        if (c == n) {
            memmove(columns + at + 1, columns + at, (n++ - at) * sizeof *columns);
            columns[at] = (uint32_t)s;
            c = at;
        }
        at = c + 1;
    }
    return n;
}

static void grid_layer(const struct ds_report *r, const struct ds_analysis *a,
                       const uint8_t *labels, const uint8_t *bad, const uint32_t *columns,
                       size_t n_columns, size_t at, struct ds_buf *out)
{
    const struct ds_site *sites = r->header->sites;
    size_t n = r->header->n_sites;
    char name[16];
    snprintf(name, sizeof name, "L%02d", sites[at].layer);
    ds_buf_printf(out, "%-6s", name);
    for (size_t c = 0; c < n_columns; c++) {
        const struct ds_site *column = &sites[columns[c]];
        size_t width = strlen(short_stage(column)) + 1, s = at;
        while (s < n && sites[s].layer == sites[at].layer && !same_stage(&sites[s], column))
            s++;
        if (s < n && sites[s].layer == sites[at].layer)
            add_mark(r, grid_cell(r, a, s, labels, bad), width, out);
        else
            ds_buf_printf(out, "%*s", (int)width, "");
    }
    ds_buf_puts(out, "\n");
}

/* The sites before the layers, or those after them, by name. */
static void grid_outside(const struct ds_report *r, const struct ds_analysis *a,
                         const uint8_t *labels, const uint8_t *bad, int after, struct ds_buf *out)
{
    const struct ds_site *sites = r->header->sites;
    for (size_t s = 0; s < r->header->n_sites; s++)
        if (after ? sites[s].layer >= r->header->n_layers : sites[s].layer < 0) {
            ds_buf_puts(out, "      ");
            add_mark(r, grid_cell(r, a, s, labels, bad), 2, out);
            ds_report_name(out, sites[s].stage);
            ds_buf_puts(out, "\n");
        }
}

void ds_report_grid(const struct ds_report *r, const struct ds_analysis *a, const uint8_t *labels,
                    const uint8_t *bad, struct ds_buf *out)
{
    const struct ds_site *sites = r->header->sites;
    uint32_t *columns = calloc(r->header->n_sites + 1, sizeof *columns);
    if (!columns) {
        out->failed = 1;
        return;
    }
    const size_t n = grid_columns(r, columns);
    grid_outside(r, a, labels, bad, 0, out);
    ds_buf_printf(out, "%s%-6s", ds_report_color(r, DS_ROLE_HEAD), "layer");
    for (size_t c = 0; c < n; c++) {
        ds_report_name(out, short_stage(&sites[columns[c]]));
        ds_buf_puts(out, " ");
    }
    ds_buf_printf(out, "%s\n", ds_report_color(r, DS_ROLE_PLAIN));
    for (size_t s = 0; s < r->header->n_sites; s++)
        if (sites[s].layer >= 0 && sites[s].layer < r->header->n_layers &&
            (s == 0 || sites[s].layer != sites[s - 1].layer))
            grid_layer(r, a, labels, bad, columns, n, s, out);
    free(columns);
    grid_outside(r, a, labels, bad, 1, out);
    ds_buf_puts(out,
                ". same  # origin  o origin when healed  - inherited  x drift, inputs not known\n"
                "~ unstable  ! non-finite  ? not compared\n");
}
