/* sizes.c: a line for each site of a pair that drifts: how much, and what it adds on equal inputs. Judges
 * nothing. */
#include "report/report_internal.h"
#include "report/value.h"

#include "base/mem.h"
#include "dumps/site_sums.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct sizes {
    uint8_t *labels, *healed;
    struct ds_site_sum *sums, *added;
    int some_added;
};

static void add_size(double size, int known, struct ds_buf *out)
{
    char text[32];
    ds_size_text(size, text, sizeof text);
    ds_buf_printf(out, " %11s", known ? text : ".");
}

static void add_site(const struct ds_report_view *w, const struct sizes *z, size_t site,
                     struct ds_buf *out)
{
    const size_t rows = ds_analysis_rows(w->a);
    const struct ds_site *s = &w->s->header->sites[site];
    const struct ds_site_sum *sum = &z->sums[site], *added = &z->added[site];
    int label = DS_LABEL_ABSENT, healed = DS_LABEL_ABSENT;
    size_t differ = 0;
    for (size_t i = 0; i < rows; i++) {
        int one = z->labels[site * rows + i];
        label = ds_label_graver(label, one);
        differ += one >= DS_LABEL_ORIGIN;
        if (z->healed)
            healed = ds_label_graver(healed, z->healed[site * rows + i]);
    }
    if (!differ)
        return;
    struct ds_buf name = {0};
    ds_report_place(&name, s->layer, s->stage, s->part);
    ds_buf_printf(out, "%-26s %-10s %5zu %9" PRIu64, name.data ? name.data : "",
                  ds_label_name(label), differ, sum->elements);
    ds_buf_free(&name);
    if (sum->sized)
        ds_buf_printf(out, " %11" PRIu64, sum->max_ulp);
    else
        ds_buf_printf(out, " %11s", ".");
    add_size(sum->max_abs, sum->sized > 0, out);
    add_size(ds_site_sum_relative(sum), sum->sized > 0, out);
    if (z->some_added && healed == DS_LABEL_ORIGIN)
        ds_buf_printf(out, " %11" PRIu64, added->max_ulp);
    else
        ds_buf_printf(out, " %11s", healed == DS_LABEL_SAME ? "nothing" : ".");
    add_size(ds_site_sum_relative(added), z->some_added && healed == DS_LABEL_ORIGIN, out);
    ds_buf_puts(out, "\n");
}

static int make(const struct ds_report_view *w, struct sizes *z, struct ds_error *err)
{
    const size_t n = w->s->header->n_sites;
    z->sums = ds_calloc(n, sizeof *z->sums, "sites", err);
    z->added = z->sums ? ds_calloc(n, sizeof *z->added, "sites", err) : NULL;
    if (!z->added || ds_analysis_labels(w->a, w->arm, w->ref, &z->labels, err) != 0 ||
        ds_analysis_healed(w->a, w->arm, w->ref, &z->healed, err) < 0 ||
        ds_site_sums(w->a, w->s, w->arm, w->ref, z->labels, z->sums, err) != 0)
        return -1;
    z->some_added = ds_site_sums_healed(w->a, w->s, w->arm, w->ref, z->healed, z->added, err);
    return z->some_added < 0 ? -1 : 0;
}

int ds_report_sizes(const struct ds_report_view *w, struct ds_buf *out, struct ds_error *err)
{
    struct sizes z = {0};
    int rc = make(w, &z, err);
    if (rc == 0) {
        ds_report_pair_words(w, out);
        ds_buf_printf(out, "%-26s %-10s %5s %9s %11s %11s %11s %11s %11s\n", "site", "label",
                      "rows", "elements", "max ULP", "max abs", "rel rms", "adds ULP", "adds rel");
        for (size_t i = 0; i < w->s->header->n_sites; i++)
            add_site(w, &z, i, out);
        ds_buf_puts(out, "\n");
    }
    free(z.labels);
    free(z.healed);
    free(z.sums);
    free(z.added);
    return rc;
}
