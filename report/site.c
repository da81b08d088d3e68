/* site.c: one site of one arm: its rows, and the values of both sides where they are dumped. Reads dumped
 * bytes by digest; judges nothing. */
#include "report/report_internal.h"
#include "report/value.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/plural.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_LISTED = 24, ROWS_SHOWN = 4, ELEMENTS_SHOWN = 12 };

/* ---- values ---------------------------------------------------------------------------------- */

static void add_value(int dtype, uint32_t bits, struct ds_buf *out)
{
    static const int wide[DS_VALUE_FORMATS] = {15, 15, 8};
    for (int format = 0; format < DS_VALUE_FORMATS; format++) {
        char text[DS_VALUE_TEXT] = "";
        if (dtype != DS_I32 || format != DS_VALUE_A)
            ds_value_text(dtype, bits, format, text);
        ds_buf_printf(out, "%s%*s", format ? " " : "", wide[format], text);
    }
}

static void add_elements(const struct ds_blob *ref, const struct ds_blob *mine, struct ds_buf *out)
{
    struct ds_values v;
    size_t shown = 0, last = 0;
    ds_values_look(&v, ref, mine);
    if (!v.comparable || ref->bytes != mine->bytes) {
        ds_buf_puts(out, "    the dumped rows have other formats or lengths\n");
        return;
    }
    const char *ulp = v.dtype[0] == DS_I32 ? "distance" : "ULP";
    for (size_t i = 0; i < ds_values_elements(&v); i++) {
        uint32_t x, y;
        if (ds_values_bin(&v, i) <= DS_BIN_EQUAL)
            continue;
        last = i;
        if (shown == ELEMENTS_SHOWN || !ds_values_bits(&v, DS_VALUES_REF, i, &x) ||
            !ds_values_bits(&v, DS_VALUES_MINE, i, &y))
            continue;
        if (shown++ == 0)
            ds_buf_printf(out, "    %6s %15s %15s %-8s  %15s %15s %-8s  %s\n", "index", "reference",
                          "", "bits", "this", "", "bits", ulp);
        ds_buf_printf(out, "    %6zu ", i);
        add_value(v.dtype[0], x, out);
        ds_buf_puts(out, "  ");
        add_value(v.dtype[0], y, out);
        ds_buf_puts(out, "  ");
        ds_report_ulp(ds_value_ulp(v.dtype[0], x, y), out);
        ds_buf_puts(out, "\n");
    }
    if (v.differ > shown)
        ds_buf_printf(out, "    and %zu more of %zu elements differ, the last at %zu\n",
                      v.differ - shown, ds_values_elements(&v), last);
}

static int add_row_values(const struct ds_report_view *w, uint64_t ref, uint64_t mine,
                          struct ds_buf *out, struct ds_error *err)
{
    struct ds_blob x = {0}, y = {0};
    int have_x = w->blob ? w->blob(w->ctx, 0, ref, &x, err) : 0;
    int have_y = have_x >= 0 && w->blob ? w->blob(w->ctx, 1, mine, &y, err) : 0;
    int rc = have_x < 0 || have_y < 0 ? -1 : 0;
    if (rc == 0 && have_x && have_y)
        add_elements(&x, &y, out);
    else if (rc == 0)
        ds_buf_printf(out, "    values not dumped on %s\n",
                      have_x || have_y ? (have_x ? "this side" : "the reference side")
                                       : "either side");
    free(x.data);
    free(y.data);
    return rc;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The digest of the row in the first trial of the arm whose bits are not the modal ones; 0 if all
 * agree. */
static int odd_digest(const struct ds_report_view *w, uint32_t site, const struct ds_row_key *k,
                      uint64_t modal, uint64_t *out)
{
    for (size_t i = 0; i < w->s->n_trials; i++) {
        const struct ds_trial *info = w->s->info(w->s->ctx, i);
        const struct ds_trial_data *t = info->arm == w->arm && info->pass == DS_PASS_NATURAL
                                            ? w->s->get(w->s->ctx, i, NULL)
                                            : NULL;
        for (size_t c = 0; t && c < t->n_captures; c++)
            for (uint32_t j = 0; t->captures[c].site == site && j < t->captures[c].rows; j++) {
                const struct ds_row *r = &t->rows[t->captures[c].first_row + j];
                uint64_t d = t->digests[t->captures[c].first_digest + j];
                if (r->request == k->request && r->position == k->position &&
                    r->occurrence == k->occurrence && d != modal) {
                    *out = d;
                    return 1;
                }
            }
    }
    return 0;
}

/* The entry that a probe made of a repeat that disagrees; 0 if there is none. */
static int odd_entry(const struct ds_report_view *w, uint32_t site, size_t row, uint64_t digests[2])
{
    for (size_t i = 0; i < w->s->n_trials; i++) {
        const struct ds_trial *info = w->s->info(w->s->ctx, i);
        const struct ds_trial_data *t = info->arm == w->arm && info->pass == DS_PASS_NATURAL
                                            ? w->s->get(w->s->ctx, i, NULL)
                                            : NULL;
        for (size_t k = 0; t && k < t->n_drifts; k++) {
            const struct ds_drift *x = &t->drifts[k];
            if (x->site != site || x->ref_arm != w->ref || x->row >= t->n_rows ||
                ds_analysis_row_of(w->a, &t->rows[x->row], row) != row)
                continue;
            digests[0] = x->ref_digest;
            digests[1] = x->digest;
            return 1;
        }
    }
    return 0;
}

void ds_report_row_digests(const struct ds_report_view *w, uint32_t site, size_t row, int has[2],
                           uint64_t digests[2])
{
    digests[0] = digests[1] = 0;
    has[0] = ds_analysis_digest(w->a, w->ref, site, row, &digests[0]) != 0;
    has[1] = ds_analysis_digest(w->a, w->arm, site, row, &digests[1]) != 0;
    if (w->arm == w->ref && has[0] && !odd_entry(w, site, row, digests))
        odd_digest(w, site, ds_analysis_row(w->a, row), digests[0], &digests[1]);
}

/* Lists one row; 1 if it differs, with both digests. */
static int add_row(const struct ds_report_view *w, uint32_t site, size_t row, int label, int print,
                   uint64_t digests[2], struct ds_buf *out)
{
    const struct ds_row_key *k = ds_analysis_row(w->a, row);
    int has[2];
    ds_report_row_digests(w, site, row, has, digests);
    uint64_t mine = digests[1], ref = digests[0];
    const int have = has[1], have_ref = has[0];
    if (!have && !have_ref)
        return 0;
    int unlike = have && have_ref && label == DS_LABEL_ABSENT && w->arm != w->ref;
    if (print) {
        ds_buf_printf(out, "%8d %9d  ", k->request, k->position);
        if (have_ref)
            ds_buf_printf(out, "%016" PRIx64 "  ", ref);
        else
            ds_buf_printf(out, "%-16s  ", "absent");
        if (have)
            ds_buf_printf(out, "%016" PRIx64 "  %s\n", mine,
                          unlike ? "not compared: other tokens before it" : ds_label_name(label));
        else
            ds_buf_printf(out, "%-16s  %s\n", "absent", ds_label_name(label));
    }
    return have && have_ref && !unlike && mine != ref;
}

void ds_report_site_head(const struct ds_site *s, struct ds_buf *out)
{
    ds_report_place(out, s->layer, s->stage, s->part);
    ds_buf_puts(out, " (");
    ds_report_name(out, s->op);
    ds_buf_puts(out, ", ");
    ds_report_name(out, s->dtype);
    ds_buf_printf(out, ", %u wide)\n", s->width);
}

/* The list of rows. Where it must be short it has only those that differ: they are what is looked
 * for. Returns how many differ. */
static size_t add_rows(const struct ds_report_view *w, uint32_t site, const uint8_t *labels,
                       struct ds_buf *out)
{
    size_t rows = ds_analysis_rows(w->a), present = 0, differ = 0, listed = 0;
    uint64_t d[2];
    for (size_t i = 0; i < rows; i++) {
        differ += (size_t)add_row(w, site, i, labels[i], 0, d, out);
        present += ds_analysis_digest(w->a, w->arm, site, i, &d[1]) ||
                   ds_analysis_digest(w->a, w->ref, site, i, &d[0]);
    }
    int all = w->all || present <= ROWS_LISTED, only = !all && differ > 0;
    size_t most = all ? present : ROWS_LISTED;
    ds_buf_printf(out, "%8s %9s  %-16s  %-16s  %s\n", "request", "position", "reference", "this",
                  "label");
    for (size_t i = 0; i < rows && listed < most; i++) {
        size_t before = out->len;
        if (only && !add_row(w, site, i, labels[i], 0, d, out))
            continue;
        add_row(w, site, i, labels[i], 1, d, out);
        listed += out->len != before;
    }
    if (only && differ > listed)
        ds_buf_printf(out, "%8s and %zu more that differ\n", "...", differ - listed);
    else if (!only && present > listed)
        ds_buf_printf(out, "%8s and %zu more that do not differ\n", "...", present - listed);
    if (only && present > differ)
        ds_buf_printf(out, "%8s not listed: %zu row%s without a difference\n", "", present - differ,
                      ds_plural((long long)(present - differ)));
    return differ;
}

/* Whether both sides of a row are in the record: such rows are shown before the others. */
static int has_values(const struct ds_report_view *w, const uint64_t digests[2],
                      struct ds_error *err)
{
    int have = 1;
    for (int side = 0; side < 2 && have > 0; side++) {
        struct ds_blob blob = {0};
        have = w->blob ? w->blob(w->ctx, side, digests[side], &blob, err) : 0;
        free(blob.data);
    }
    return have;
}

/* Values of the first differing rows that have them; of the first rows at all when none has. */
static int add_values(const struct ds_report_view *w, uint32_t site, const uint8_t *labels,
                      size_t *shown, struct ds_buf *out, struct ds_error *err)
{
    size_t rows = ds_analysis_rows(w->a);
    uint64_t d[2];
    for (int need = 1; need >= 0 && *shown == 0; need--)
        for (size_t i = 0; i < rows && *shown < (need ? (size_t)ROWS_SHOWN : 1); i++) {
            if (!add_row(w, site, i, labels[i], 0, d, out))
                continue;
            int have = need ? has_values(w, d, err) : 1;
            if (have < 0)
                return -1;
            if (have == 0)
                continue;
            const struct ds_row_key *k = ds_analysis_row(w->a, i);
            ds_buf_printf(out, "\nrequest %d, position %d\n", k->request, k->position);
            if (add_row_values(w, d[0], d[1], out, err) != 0)
                return -1;
            ++*shown;
        }
    return 0;
}

int ds_report_site(const struct ds_report_view *w, uint32_t site, struct ds_buf *out,
                   struct ds_error *err)
{
    size_t rows = ds_analysis_rows(w->a), shown = 0;
    uint8_t *labels;
    if (ds_analysis_labels(w->a, w->arm, w->ref, &labels, err) != 0)
        return -1;
    ds_report_site_head(&w->s->header->sites[site], out);
    ds_report_pair_words(w, out);
    size_t differ = add_rows(w, site, labels + site * rows, out), within = 0;
    for (size_t i = 0; i < rows; i++)
        within += labels[site * rows + i] == DS_LABEL_WITHIN;
    int rc = add_values(w, site, labels + site * rows, &shown, out, err);
    free(labels);
    if (rc != 0)
        return -1;
    if (differ > shown)
        ds_buf_printf(out, "\nand %zu more row%s differ%s\n", differ - shown,
                      differ - shown == 1 ? "" : "s", differ - shown == 1 ? "s" : "");
    if (ds_report_site_repeats(w, site, out, err) != 0 || ds_report_profile(w, site, out, err) != 0)
        return -1;
    ds_buf_printf(out, "%s%zu of %zu row%s differ at this site", differ ? "\n" : "", differ, rows,
                  ds_plural(rows));
    if (within)
        ds_buf_printf(out, ", %zu of them within the tolerance", within);
    ds_buf_puts(out, "\n");
    return 0;
}

/* ---- all sites ------------------------------------------------------------------------------- */

/* Whether a trial says where the arm is not finite. A row that equals its reference's is not looked
 * at again, so the reference speaks for it, and the base arm for both. */
static int watched(const struct ds_report_view *w, const struct ds_trial *info)
{
    int speaks = info->arm == w->arm || info->arm == w->ref || (info->arm == 0 && !w->r->diff);
    return speaks && info->pass == DS_PASS_NATURAL;
}

static void mark_nonfinite(const struct ds_trial_data *t, uint8_t *bad, size_t n_sites)
{
    for (size_t k = 0; t && k < t->n_nonfinites; k++)
        if (t->nonfinites[k].site < n_sites)
            bad[t->nonfinites[k].site] = 1;
}

int ds_report_sites(const struct ds_report_view *w, struct ds_buf *out, struct ds_error *err)
{
    uint8_t *labels = NULL, *bad = ds_calloc(w->s->header->n_sites, 1, "sites", err);
    if (!bad || ds_analysis_labels(w->a, w->arm, w->ref, &labels, err) != 0) {
        free(bad);
        return -1;
    }
    for (size_t i = 0; i < w->s->n_trials; i++)
        if (watched(w, w->s->info(w->s->ctx, i)))
            mark_nonfinite(w->s->get(w->s->ctx, i, NULL), bad, w->s->header->n_sites);
    struct ds_report r = *w->r;
    uint8_t *healed = NULL;
    if (ds_analysis_healed(w->a, w->arm, w->ref, &healed, err) < 0) {
        free(labels);
        free(bad);
        return -1;
    }
    r.healed = healed;
    if (w->arm == w->ref && ds_analysis_trials(w->a, w->arm) < 2) /* one trial is no comparison */
        memset(labels, DS_LABEL_ABSENT, r.header->n_sites * ds_analysis_rows(w->a));
    ds_report_pair_words(w, out);
    ds_report_grid(&r, w->a, labels, bad, out);
    free(healed);
    free(labels);
    free(bad);
    return 0;
}
