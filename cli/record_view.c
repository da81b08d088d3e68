/* record_view.c: see record_view.h. */
#include "cli/record_view.h"

#include "base/mem.h"
#include "cli/render_json.h"

#include <stdlib.h>

static int given(const struct ds_options *o, enum ds_view view)
{
    switch (view) {
    case DS_VIEW_SITE:
        return ds_opt_given(o, "site");
    case DS_VIEW_SITES:
        return ds_opt_flag(o, "sites");
    case DS_VIEW_RUNS:
        return ds_opt_flag(o, "runs");
    case DS_VIEW_TOKENS:
        return ds_opt_flag(o, "tokens");
    case DS_VIEW_WEIGHTS:
        return ds_opt_flag(o, "weights");
    default:
        return ds_opt_flag(o, "environment");
    }
}

int ds_view_chosen(const struct ds_options *o, int runs, enum ds_view *out, struct ds_error *err)
{
    *out = DS_VIEW_VERDICT;
    for (enum ds_view v = DS_VIEW_SITE; v <= DS_VIEW_ENVIRONMENT; v++) {
        if ((v == DS_VIEW_RUNS && !runs) || !given(o, v))
            continue;
        if (*out != DS_VIEW_VERDICT)
            return ds_fail(err, "--site, --sites, --runs, --tokens, --weights and --environment "
                                "are views: give one");
        *out = v;
    }
    int pair = *out == DS_VIEW_SITE || *out == DS_VIEW_SITES || *out == DS_VIEW_TOKENS;
    if (!pair && ds_opt_given(o, "arm"))
        return ds_fail(err, "--arm needs --site, --sites or --tokens: %s is about all arms",
                       *out == DS_VIEW_VERDICT ? "the verdict" : "this view");
    if (ds_opt_given(o, "against") && !ds_opt_given(o, "arm"))
        return ds_fail(err, "--against needs --arm: the arm that is held against it");
    if (ds_opt_flag(o, "long") && *out != DS_VIEW_SITES && *out != DS_VIEW_SITE &&
        *out != DS_VIEW_RUNS)
        return ds_fail(err, "--long needs %s: it says more of them",
                       runs ? "--site, --sites or --runs" : "--site or --sites");
    if (ds_opt_given(o, "row") && *out != DS_VIEW_SITE)
        return ds_fail(err, "--row needs --site: the site that has it");
    if (ds_opt_flag(o, "json") && *out != DS_VIEW_VERDICT && *out != DS_VIEW_ENVIRONMENT &&
        *out != DS_VIEW_WEIGHTS && (*out != DS_VIEW_SITE || ds_opt_given(o, "row")))
        return ds_fail(err, "--json prints the verdict, one --site, --environment or "
                            "--weights; the other views are text");
    return 0;
}

static int one_site(const struct ds_options *o, const struct ds_report_view *view,
                    struct ds_buf *out, struct ds_error *err)
{
    struct ds_report_view all = *view, *w = &all;
    uint32_t site;
    size_t row;
    all.all = ds_opt_flag(o, "long");
    if (ds_report_find_site(w->s->header, "--site", ds_opt_text(o, "site"), &site, err) != 0)
        return -1;
    if (ds_opt_flag(o, "json"))
        return ds_render_site_json(w, site, out, err);
    if (ds_opt_flag(o, "long") && ds_report_site_long(w, site, out, err) != 0)
        return -1;
    if (!ds_opt_given(o, "row"))
        return ds_report_site(w, site, out, err);
    return ds_report_find_row(w->a, "--row", ds_opt_text(o, "row"), &row, err) != 0
               ? -1
               : ds_report_row(w, site, row, out, err);
}

static int all_sites(const struct ds_options *o, const struct ds_report_view *w, struct ds_buf *out,
                     struct ds_error *err)
{
    if (ds_opt_flag(o, "long") && ds_report_sizes(w, out, err) != 0)
        return -1;
    return ds_report_sites(w, out, err);
}

int ds_view_pair(const struct ds_options *o, enum ds_view view, const struct ds_report_view *w,
                 struct ds_buf *out, struct ds_error *err)
{
    int rc = view == DS_VIEW_SITE    ? one_site(o, w, out, err)
             : view == DS_VIEW_SITES ? all_sites(o, w, out, err)
                                     : ds_report_steps(w, out, err);
    if (rc == 0 && !ds_opt_flag(o, "json")) {
        ds_report_sentence(w->r, out);
        ds_buf_puts(out, "\n");
    }
    return rc;
}

int ds_view_weights(const struct ds_options *o, const struct ds_report *r,
                    const struct ds_source *a, const struct ds_source *b, struct ds_buf *out,
                    struct ds_error *err)
{
    struct ds_weight_list w;
    int rc = ds_weight_list_make(&w, a, b, err);
    if (rc == 0 && ds_opt_flag(o, "json")) {
        rc = ds_render_weights_json(&w, out, err);
    } else if (rc == 0) {
        ds_weight_list_text(&w, out);
        ds_report_sentence(r, out);
        ds_buf_puts(out, "\n");
    }
    ds_weight_list_free(&w);
    return rc;
}

int ds_view_environment(const struct ds_options *o, const struct ds_report *r,
                        const struct ds_source *s, const struct ds_header *a,
                        const struct ds_header *b, struct ds_buf *out, struct ds_error *err)
{
    const size_t n = s ? s->n_trials : 0;
    const struct ds_trial **trials = ds_calloc(n, sizeof *trials, "trials", err);
    if (!trials)
        return -1;
    for (size_t i = 0; i < n; i++)
        trials[i] = s->info(s->ctx, i);
    const struct ds_env_of of = {.report = r,
                                 .sides = {a, b},
                                 .trials = trials,
                                 .n_trials = n,
                                 .incomplete = r->incomplete,
                                 .damaged = r->damaged,
                                 .verdict = r->v,
                                 .diff = r->diff};
    const int json = ds_opt_flag(o, "json");
    int rc =
        json ? ds_render_environment_json(&of, out, err) : ds_report_environment(&of, out, err);
    free((void *)trials);
    if (rc == 0 && !json) {
        ds_report_sentence(r, out);
        ds_buf_puts(out, "\n");
    }
    return rc;
}
