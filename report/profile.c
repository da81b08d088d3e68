/* profile.c: where and how much a site differs, per head, channel and position. Judges nothing. */
#include "report/report_internal.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_LISTED = 12 };

static int by_size(const void *a, const void *b)
{
    double x = (*(const struct ds_profile_part *const *)a)->relative_rms,
           y = (*(const struct ds_profile_part *const *)b)->relative_rms;
    return (x < y) - (x > y);
}

static int by_index(const void *a, const void *b)
{
    int32_t x = (*(const struct ds_profile_part *const *)a)->index,
            y = (*(const struct ds_profile_part *const *)b)->index;
    return (x > y) - (x < y);
}

/* The parts that differ; of many the largest, in their order, or all. */
static int add_parts(const char *name, int all, const struct ds_profile_part *parts, size_t n,
                     struct ds_buf *out, struct ds_error *err)
{
    const struct ds_profile_part **some = ds_calloc(n, sizeof *some, "profile", err);
    size_t differ = 0;
    if (!some)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (parts[i].elements)
            some[differ++] = &parts[i];
    size_t listed = !all && differ > PARTS_LISTED ? PARTS_LISTED : differ;
    if (differ > listed) {
        qsort(some, differ, sizeof *some, by_size);
        qsort(some, listed, sizeof *some, by_index);
    }
    if (differ)
        ds_buf_printf(out, "\n%10s %8s %9s %12s %15s %12s\n", name, "rows", "elements", "max ULP",
                      "max abs", "relative rms");
    for (size_t i = 0; i < listed; i++)
        ds_buf_printf(out, "%10d %8u %9" PRIu64 " %12" PRIu64 " %15.6g %12.6g\n", some[i]->index,
                      some[i]->rows, some[i]->elements, some[i]->max_ulp, some[i]->max_abs,
                      some[i]->relative_rms);
    if (differ > listed)
        ds_buf_printf(out, "%10s the largest of %zu that differ\n", "...", differ);
    free(some);
    return 0;
}

static void add_finding(const struct ds_report_view *w, const struct ds_finding *f,
                        struct ds_buf *out)
{
    ds_buf_puts(out, "\n");
    ds_report_kind(f, "", out);
    ds_report_size(w->r, f, "", out);
    if (f->value_rows) {
        ds_buf_printf(out, "99 %% within %" PRIu64 " ULP ", f->p99_ulp);
        ds_report_of_rows(f->value_rows, f->rows, out);
        ds_buf_puts(out,
                    f->value_rows < f->rows ? ", dumped; what stands above is of all\n" : "\n");
    }
    if (f->structure[0] && !strstr(f->why, f->structure)) {
        ds_report_wrapped(out, "", 0, f->structure);
        ds_buf_puts(out, "\n");
    }
    ds_buf_printf(out, "%spositions %s", f->beyond_rounding ? "beyond rounding: " : "",
                  f->at_positions);
    if (f->heads[0])
        ds_buf_printf(out, "; heads %s", f->heads);
    if (f->channels[0])
        ds_buf_printf(out, "; channels %s", f->channels);
    ds_buf_puts(out, "\n");
    ds_report_ends(f, "", out);
    if (f->mask_rows && f->mask_rows < f->rows)
        ds_buf_printf(
            out,
            "heads, channels and elements are those of the %u of %u rows whose inputs are "
            "equal\n",
            f->mask_rows, f->rows);
    else if (!f->mask_rows && f->value_rows && f->value_rows < f->rows)
        ds_buf_printf(
            out,
            "heads, channels and elements are those of %u of the %u rows: the others are not "
            "dumped (--dump-rows)\n",
            f->value_rows, f->rows);
}

/* How near the site comes to the end of f16 and of its own format, in the reference arm. */
static void add_range(const struct ds_report_view *w, uint32_t site, struct ds_buf *out)
{
    for (size_t i = 0; i < w->r->v->n_ranges; i++) {
        const struct ds_range_at *x = &w->r->v->ranges[i];
        if (x->site != site)
            continue;
        ds_buf_printf(out, "\nlargest value %.9g at position %d: ", (double)x->max_abs,
                      x->position);
        ds_report_headroom(w->s->header, w->r->v->ref_arm, x, out);
        ds_buf_puts(out, "\n");
    }
}

int ds_report_profile(const struct ds_report_view *w, uint32_t site, struct ds_buf *out,
                      struct ds_error *err)
{
    struct ds_site_profile p;
    if (ds_analysis_site(w->a, w->arm, w->ref, site, &p, err) != 0)
        return -1;
    int rc = 0;
    add_range(w, site, out);
    if (p.at.found) {
        add_finding(w, &p.at, out);
        rc = add_parts("head", w->all, p.heads, p.n_heads, out, err) != 0 ||
                     add_parts("channel", w->all, p.channels, p.n_channels, out, err) != 0 ||
                     add_parts("position", w->all, p.positions, p.n_positions, out, err) != 0
                 ? -1
                 : 0;
    }
    ds_site_profile_free(&p);
    return rc;
}
