/* site_long.c: one site of a pair, all of it: rows with sizes and classes, launches, inputs. Judges nothing. */
#include "report/report_internal.h"
#include "report/value.h"

#include "base/mem.h"
#include "dumps/site_sums.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct site_long {
    const struct ds_report_view *w;
    uint32_t site;
    size_t rows;
    uint8_t *labels;                /* [n_sites][rows] */
    const struct ds_drift **drifts; /* [rows] the probe's entry; NULL: none */
};

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Entries of the digests that are compared; of repeats the first of any. */
static void find_drifts(const struct site_long *z)
{
    const struct ds_report_view *w = z->w;
    for (size_t i = 0; i < w->s->n_trials; i++) {
        const struct ds_trial *info = w->s->info(w->s->ctx, i);
        const struct ds_trial_data *t = info->arm == w->arm && info->pass == DS_PASS_NATURAL
                                            ? w->s->get(w->s->ctx, i, NULL)
                                            : NULL;
        for (size_t k = 0; t && k < t->n_drifts; k++) {
            const struct ds_drift *x = &t->drifts[k];
            if (x->site != z->site || x->ref_arm != w->ref || x->row >= t->n_rows)
                continue;
            size_t row = ds_analysis_row_of(w->a, &t->rows[x->row], 0);
            uint64_t digests[2];
            int has[2];
            if (row == SIZE_MAX || z->drifts[row])
                continue;
            ds_report_row_digests(w, z->site, row, has, digests);
            if (x->digest == digests[1] && x->ref_digest == digests[0])
                z->drifts[row] = x;
        }
    }
}

static void add_sizes(const struct ds_drift *x, int label, struct ds_buf *out)
{
    const char *none = label == DS_LABEL_SAME || label == DS_LABEL_HEALED ? "=" : ".";
    struct ds_site_sum sum = {0};
    char text[2][32] = {".", "."};
    if (!x) {
        ds_buf_printf(out, " %9s %11s %11s %11s", none, none, none, none);
        return;
    }
    ds_site_sum_add(&sum, x);
    ds_size_text(x->max_abs, text[0], sizeof text[0]);
    ds_size_text(ds_site_sum_relative(&sum), text[1], sizeof text[1]);
    ds_buf_printf(out, " %9u ", x->elements);
    if (x->max_ulp == UINT64_MAX)
        ds_buf_printf(out, "%11s", ".");
    else
        ds_buf_printf(out, "%11" PRIu64, x->max_ulp);
    ds_buf_printf(out, " %11s %11s", text[0], text[1]);
}

/* ---- classes --------------------------------------------------------------------------------- */

char ds_report_class_letter(uint32_t class_of)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    if (class_of == UINT32_MAX)
        return '.';
    return class_of < sizeof letters - 1 ? letters[class_of] : '*';
}

/* Class 0 is the base arm's; without it the first arm's that has the row is 1. seen: [n_arms]. */
static void add_classes(const struct site_long *z, size_t row, uint64_t *seen, struct ds_buf *out)
{
    const size_t n_arms = z->w->s->header->n_arms;
    uint32_t n = 0;
    uint64_t digest;
    if (ds_analysis_digest(z->w->a, 0, z->site, row, &digest))
        seen[n++] = digest;
    const uint32_t base = n ? 0 : 1;
    for (uint32_t arm = 0; arm < n_arms; arm++) {
        uint32_t k = 0;
        int has = ds_analysis_digest(z->w->a, arm, z->site, row, &digest);
        while (has && k < n && seen[k] != digest)
            k++;
        if (has && k == n)
            seen[n++] = digest;
        ds_buf_printf(out, "%s%c", arm ? " " : "",
                      ds_report_class_letter(has ? k + base : UINT32_MAX));
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void add_row(const struct site_long *z, size_t row, uint64_t *seen, struct ds_buf *out)
{
    const struct ds_report_view *w = z->w;
    const struct ds_row_key *k = ds_analysis_row(w->a, row);
    uint64_t digests[2];
    uint32_t at;
    int has[2], label = z->labels[z->site * z->rows + row];
    char key[40];
    ds_report_row_digests(w, z->site, row, has, digests);
    if (!has[0] && !has[1])
        return;
    uint32_t arm = ds_analysis_find_row(w->a, w->arm, row, &at) ? w->arm : w->ref;
    if (!ds_analysis_find_row(w->a, arm, row, &at))
        return;
    const struct ds_row *r = &ds_analysis_trial(w->a, arm)->rows[at];
    int n = snprintf(key, sizeof key, "%d:%d", k->request, k->position);
    if (k->occurrence && n > 0)
        snprintf(key + n, sizeof key - (size_t)n, "#%d", k->occurrence);
    int alone = w->arm == w->ref && ds_analysis_trials(w->a, w->arm) < 2;
    ds_buf_printf(out, "%10s %-9s %4d  %-12s", key, ds_row_kind_name(r->kind), r->step,
                  alone                      ? "recorded"
                  : label != DS_LABEL_ABSENT ? ds_label_name(label)
                  : has[0] && has[1]         ? "not compared"
                  : has[1]                   ? "this only"
                                             : "reference only");
    add_sizes(z->drifts[row], alone ? DS_LABEL_ABSENT : label, out);
    for (int side = 0; side < 2; side++) {
        ds_buf_puts(out, "  ");
        if (has[side])
            ds_report_digest(digests[side], out);
        else
            ds_buf_printf(out, "%-16s", "absent");
    }
    ds_buf_puts(out, "  ");
    add_classes(z, row, seen, out);
    ds_buf_puts(out, "\n");
}

static int add_rows(const struct site_long *z, struct ds_buf *out, struct ds_error *err)
{
    uint64_t *seen = ds_calloc(z->w->s->header->n_arms + 1, sizeof *seen, "classes", err);
    if (!seen)
        return -1;
    ds_buf_printf(out, "%10s %-9s %4s  %-12s %9s %11s %11s %11s  %-16s  %-16s  %s\n", "row", "kind",
                  "step", "label", "elements", "max ULP", "max abs", "rel rms", "reference", "this",
                  "arms 0, 1, ... that share bits");
    for (size_t i = 0; i < z->rows; i++)
        add_row(z, i, seen, out);
    free(seen);
    return 0;
}

/* ---- launches and inputs --------------------------------------------------------------------- */

static const struct ds_launch *launch_of(const struct ds_report_view *w, uint32_t site,
                                         uint32_t arm, size_t row)
{
    const struct ds_trial_data *t = ds_analysis_trial(w->a, arm);
    uint32_t at;
    if (!t || !ds_analysis_find_row(w->a, arm, row, &at))
        return NULL;
    for (size_t i = 0; i < t->n_captures; i++) {
        const struct ds_capture *c = &t->captures[i];
        if (c->site == site && at >= c->first_row && at - c->first_row < c->rows &&
            c->launch < t->n_launches)
            return &t->launches[c->launch];
    }
    return NULL;
}

void ds_report_site_launches(const struct ds_report_view *w, uint32_t site, const uint8_t *labels,
                             const struct ds_launch *out[2])
{
    const size_t rows = ds_analysis_rows(w->a);
    uint64_t digest;
    size_t row = rows, any = rows;
    for (size_t i = rows; i-- > 0;) {
        if (labels[site * rows + i] >= DS_LABEL_ORIGIN)
            row = i;
        if (ds_analysis_digest(w->a, w->arm, site, i, &digest) ||
            ds_analysis_digest(w->a, w->ref, site, i, &digest))
            any = i;
    }
    row = row < rows ? row : any;
    out[0] = row < rows ? launch_of(w, site, w->ref, row) : NULL;
    out[1] = row < rows ? launch_of(w, site, w->arm, row) : NULL;
}

static void add_launches(const struct site_long *z, struct ds_buf *out)
{
    struct ds_report_launch_field field[DS_REPORT_LAUNCH_FIELDS];
    const struct ds_launch *of[2];
    ds_report_site_launches(z->w, z->site, z->labels, of);
    size_t n = of[0] || of[1] ? ds_report_launch_fields(of[0], of[1], field) : 0;
    if (n)
        ds_buf_printf(out, "\n%-12s %-40s    %s\n", "launch", "reference", "this");
    for (size_t i = 0; i < n; i++)
        ds_buf_printf(out, "%-12s %-40s %2s %s\n", field[i].name, field[i].text[0],
                      field[i].differs ? "!=" : "", field[i].text[1]);
    struct ds_buf kernels = {0};
    if (n && ds_report_kernels(z->w->r, of[0], z->w->ref, of[1], z->w->arm, &kernels) &&
        !kernels.failed)
        for (const char *p = kernels.data; *p; p += strcspn(p, "\n") + 1)
            ds_buf_printf(out, "%-12s %.*s\n", "kernel", (int)strcspn(p, "\n"), p);
    out->failed |= kernels.failed;
    ds_buf_free(&kernels);
}

static void add_inputs(const struct site_long *z, struct ds_buf *out)
{
    static const char *const edges[] = {"same row", "rows up to it", "all rows"};
    const struct ds_header *h = z->w->s->header;
    int some = 0;
    for (size_t i = 0; i < h->n_edges; i++) {
        const struct ds_edge *e = &h->edges[i];
        int label = DS_LABEL_ABSENT;
        if (e->to != z->site || e->from >= h->n_sites)
            continue;
        for (size_t r = 0; r < z->rows; r++)
            label = ds_label_graver(label, z->labels[e->from * z->rows + r]);
        if (!some++)
            ds_buf_puts(out, "\ninputs\n");
        struct ds_buf name = {0};
        const struct ds_site *s = &h->sites[e->from];
        ds_report_place(&name, s->layer, s->stage, s->part);
        ds_buf_printf(out, "%-30s %-14s %s\n", name.data ? name.data : "",
                      e->kind < 3 ? edges[e->kind] : "?", ds_label_name(label));
        ds_buf_free(&name);
    }
}

int ds_report_site_long(const struct ds_report_view *w, uint32_t site, struct ds_buf *out,
                        struct ds_error *err)
{
    struct site_long z = {.w = w, .site = site, .rows = ds_analysis_rows(w->a)};
    if (ds_analysis_labels(w->a, w->arm, w->ref, &z.labels, err) != 0)
        return -1;
    z.drifts = ds_calloc(z.rows, sizeof *z.drifts, "rows", err);
    int rc = z.drifts ? 0 : -1;
    if (rc == 0) {
        find_drifts(&z);
        rc = add_rows(&z, out, err);
        add_launches(&z, out);
        add_inputs(&z, out);
        ds_buf_puts(out, "\n");
    }
    free(z.labels);
    free((void *)z.drifts);
    return rc;
}
