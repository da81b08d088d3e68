/* grid.c: layer x stage, a mark for each site. Lays out what the verdict says; judges nothing. */
#include "report/report_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ds_report_stage_short(const struct ds_site *s)
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

char ds_report_rows_mark(const uint8_t *labels, const uint8_t *healed, size_t rows, int bad)
{
    int seen[8] = {0}, own = 0; /* it gives other bits on equal inputs, too */
    for (size_t i = 0; i < rows; i++) {
        seen[labels[i] & 7] = 1;
        own |= healed && healed[i] == DS_LABEL_ORIGIN;
    }
    if (bad)
        return '!';
    if (seen[DS_LABEL_UNSTABLE])
        return '~';
    if (seen[DS_LABEL_ORIGIN])
        return '#';
    if (own)
        return 'o';
    if (seen[DS_LABEL_INHERITED])
        return '-';
    if (seen[DS_LABEL_UNKNOWN])
        return 'x';
    if (seen[DS_LABEL_WITHIN])
        return '=';
    return seen[DS_LABEL_SAME] || seen[DS_LABEL_HEALED] ? '.' : '?';
}

char ds_report_mark(const struct ds_report *r, const struct ds_analysis *a, size_t site,
                    const uint8_t *labels, const uint8_t *bad)
{
    size_t rows = ds_analysis_rows(a), at = site * rows;
    return ds_report_rows_mark(labels + at, r->healed ? r->healed + at : NULL, rows,
                               bad && bad[site]);
}

static enum ds_role mark_role(char c)
{
    return c == '.' || c == '='               ? DS_ROLE_SAME
           : c == '#' || c == 'o' || c == '!' ? DS_ROLE_DRIFT
           : c == '~'                         ? DS_ROLE_UNSTABLE
                                              : DS_ROLE_PLAIN;
}

static void add_mark(const struct ds_report *r, char c, size_t width, struct ds_buf *out)
{
    ds_buf_printf(out, "%s%c%s%*s", ds_report_color(r, mark_role(c)), c,
                  ds_report_color(r, DS_ROLE_PLAIN), (int)width - 1, "");
}

static int same_stage(const struct ds_site *a, const struct ds_site *b)
{
    return strcmp(a->stage, b->stage) == 0 && strcmp(a->part, b->part) == 0;
}

size_t ds_report_stages(const struct ds_header *h, uint32_t *columns)
{
    const struct ds_site *sites = h->sites;
    size_t n = 0, at = 0;
    for (size_t s = 0; s < h->n_sites; s++) {
        if (sites[s].layer < 0 || sites[s].layer >= h->n_layers)
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
        size_t width = strlen(ds_report_stage_short(column)) + 1, s = at;
        while (s < n && sites[s].layer == sites[at].layer && !same_stage(&sites[s], column))
            s++;
        if (s < n && sites[s].layer == sites[at].layer)
            add_mark(r, ds_report_mark(r, a, s, labels, bad), width, out);
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
            add_mark(r, ds_report_mark(r, a, s, labels, bad), 2, out);
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
    const size_t n = ds_report_stages(r->header, columns);
    grid_outside(r, a, labels, bad, 0, out);
    ds_buf_printf(out, "%s%-6s", ds_report_color(r, DS_ROLE_HEAD), "layer");
    for (size_t c = 0; c < n; c++) {
        ds_report_name(out, ds_report_stage_short(&sites[columns[c]]));
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
                "~ unstable  ! non-finite  ? not compared");
    ds_buf_puts(out, r->diff && ds_tolerance_given(&r->diff->options.tolerance)
                         ? "  = differs within the tolerance\n"
                         : "\n");
}
