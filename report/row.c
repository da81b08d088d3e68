/* row.c: one row of a site in full: every element on both sides, as it is stored. Reads dumped bytes by digest;
 * judges nothing. */
#include "report/report_internal.h"
#include "report/value.h"

#include "base/dtype.h"
#include "dumps/profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int ds_report_find_row(const struct ds_analysis *a, const char *what, const char *text, size_t *row,
                       struct ds_error *err)
{
    struct ds_row key = {0};
    int n = 0;
    if ((sscanf(text, "%d:%d#%d%n", &key.request, &key.position, &key.occurrence, &n) != 3 ||
         text[n]) &&
        (key.occurrence = 0,
         sscanf(text, "%d:%d%n", &key.request, &key.position, &n) != 2 || text[n]))
        return ds_fail(err, "%s: '%s' is no row: REQUEST:POSITION, or REQUEST:POSITION#OCCURRENCE",
                       what, text);
    *row = ds_analysis_row_of(a, &key, 0);
    if (*row != SIZE_MAX)
        return 0;
    size_t rows = ds_analysis_rows(a);
    ds_fail(err, "%s: no trial has the row %s", what, text);
    if (rows == 0)
        return -1;
    const struct ds_row_key *last = ds_analysis_row(a, rows - 1);
    return ds_hint(err, "the last one is %d:%d", last->request, last->position);
}

/* ---- the table ------------------------------------------------------------------------------- */

struct row {
    struct ds_values v;
    uint32_t heads, head_dim;
};

static void add_heading(const struct row *r, struct ds_buf *out)
{
    ds_buf_printf(out, "%7s", "index");
    if (r->heads)
        ds_buf_printf(out, " %4s %7s", "head", "channel");
    for (int side = 0; side < 2; side++)
        ds_buf_printf(out, "%s%17s %17s %8s", side ? "    " : " ", side ? "this" : "reference",
                      "%a", "bits");
    ds_buf_printf(out, " %12s %12s %10s  %s\n", "difference", "relative",
                  r->v.dtype[0] == DS_I32 ? "distance" : "ULP", "note");
}

static void add_side(const struct ds_values *v, int side, size_t i, struct ds_buf *out)
{
    static const int wide[DS_VALUE_FORMATS] = {17, 17, 8};
    uint32_t bits;
    int there = ds_values_bits(v, side, i, &bits);
    for (int format = 0; format < DS_VALUE_FORMATS; format++) {
        char text[DS_VALUE_TEXT] = ".";
        if (there)
            ds_value_text(v->dtype[side], bits, format, text);
        ds_buf_printf(out, " %*s", wide[format], text);
    }
}

/* Nothing where bits are equal: what differs stands out. */
static void add_element(const struct row *r, size_t i, struct ds_buf *out)
{
    const struct ds_values *v = &r->v;
    uint32_t mine, ref;
    int bin = ds_values_bin(v, i);
    ds_buf_printf(out, "%7zu", i);
    if (r->heads)
        ds_buf_printf(out, " %4zu %7zu", i / r->head_dim, i % r->head_dim);
    add_side(v, DS_VALUES_REF, i, out);
    ds_buf_puts(out, bin == DS_BIN_EQUAL  ? "  ="
                     : bin == DS_BIN_ZERO ? "  ~"
                     : bin < 0            ? "   "
                                          : " !=");
    add_side(v, DS_VALUES_MINE, i, out);
    if (bin == DS_BIN_EQUAL && ds_values_bits(v, DS_VALUES_MINE, i, &mine)) {
        const char *note = ds_value_note(v->dtype[0], mine, mine);
        if (note[0])
            ds_buf_printf(out, " %12s %12s %10s  %s", "", "", "", note);
    }
    if (bin > DS_BIN_EQUAL && ds_values_bits(v, DS_VALUES_MINE, i, &mine) &&
        ds_values_bits(v, DS_VALUES_REF, i, &ref)) {
        char absolute[32], relative[32];
        const char *note = ds_value_note(v->dtype[0], mine, ref);
        ds_size_text(ds_values_difference(v, i, 0), absolute, sizeof absolute);
        ds_size_text(ds_values_difference(v, i, 1), relative, sizeof relative);
        uint64_t ulp = ds_value_ulp(v->dtype[0], mine, ref);
        ds_buf_printf(out, " %12s %12s ", absolute, relative);
        if (ulp == UINT64_MAX)
            ds_buf_printf(out, "%10s", "NaN");
        else
            ds_buf_printf(out, "%10" PRIu64, ulp);
        ds_buf_printf(out, "%s%s", note[0] ? "  " : "", note);
    }
    ds_buf_puts(out, "\n");
}

static void add_histogram(const struct ds_values *v, struct ds_buf *out)
{
    ds_buf_printf(out, "elements by %s\n", v->dtype[0] == DS_I32 ? "distance" : "ULP");
    for (int bin = 0; bin < DS_BINS; bin++) {
        char name[24];
        if (!v->bins[bin])
            continue;
        ds_values_bin_name(v, bin, name, sizeof name);
        ds_buf_printf(out, "%16s %9zu\n", name, v->bins[bin]);
    }
}

/* ---- the row --------------------------------------------------------------------------------- */

static void add_digests(const int has[2], const uint64_t digests[2], struct ds_buf *out)
{
    for (int side = 0; side < 2; side++) {
        ds_buf_printf(out, "%-10s ", side ? "this" : "reference");
        if (has[side])
            ds_report_digest(digests[side], out);
        else
            ds_buf_puts(out, "absent");
        ds_buf_puts(out, "\n");
    }
}

static void add_words(const struct ds_report_view *w, size_t row, int label, const struct row *r,
                      struct ds_buf *out)
{
    static const char *const names[2] = {"reference", "this"};
    const struct ds_row_key *k = ds_analysis_row(w->a, row);
    uint32_t at, arm = w->arm;
    if (!ds_analysis_find_row(w->a, arm, row, &at))
        arm = w->ref;
    ds_buf_printf(out, "request %d, position %d", k->request, k->position);
    if (k->occurrence)
        ds_buf_printf(out, ", computed again (%d)", k->occurrence);
    ds_buf_printf(out, ": %s", ds_label_name(label));
    if (ds_analysis_find_row(w->a, arm, row, &at))
        ds_buf_printf(out, ", %s row",
                      ds_row_kind_name(ds_analysis_trial(w->a, arm)->rows[at].kind));
    ds_buf_puts(out, ": ");
    if (r->v.dtype[0] < 0 && r->v.dtype[1] < 0)
        ds_buf_puts(
            out,
            "its values are on neither side (run --dump all --dump-rows N keeps N rows of a site)");
    else
        ds_values_words(&r->v, names, out);
    ds_buf_puts(out, "\n");
}

static void add_row(const struct ds_report_view *w, uint32_t site, size_t row, int label,
                    const struct ds_blob blob[2], struct ds_buf *out)
{
    const struct ds_header *h = w->s->header;
    struct row r = {.heads = 0};
    ds_values_look(&r.v, &blob[0], &blob[1]);
    size_t n = ds_values_elements(&r.v);
    if (n == h->sites[site].width)
        r.heads = ds_site_heads(h, site);
    r.head_dim = r.heads ? h->sites[site].width / r.heads : 0;
    add_words(w, row, label, &r, out);
    if (!n)
        return;
    add_heading(&r, out);
    for (size_t i = 0; i < n; i++)
        add_element(&r, i, out);
    if (r.v.comparable)
        add_histogram(&r.v, out);
}

int ds_report_row(const struct ds_report_view *w, uint32_t site, size_t row, struct ds_buf *out,
                  struct ds_error *err)
{
    struct ds_blob blob[2] = {{0}, {0}};
    uint64_t digests[2];
    uint8_t *labels;
    int has[2], rc = 0;
    if (ds_analysis_labels(w->a, w->arm, w->ref, &labels, err) != 0)
        return -1;
    int label = labels[site * ds_analysis_rows(w->a) + row];
    free(labels);
    ds_report_row_digests(w, site, row, has, digests);
    for (int side = 0; side < 2 && rc >= 0; side++)
        rc = has[side] && w->blob ? w->blob(w->ctx, side, digests[side], &blob[side], err) : 0;
    if (rc >= 0) {
        ds_report_site_head(&w->s->header->sites[site], out);
        ds_report_pair_words(w, out);
        add_digests(has, digests, out);
        add_row(w, site, row, label, blob, out);
    }
    free(blob[0].data);
    free(blob[1].data);
    return rc < 0 ? -1 : 0;
}
