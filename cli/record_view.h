/* record_view.h: inside cli/ only: what `show` and `diff` print beside the verdict: one site, one row of it, the grid
 * of sites, the tokens, what the records were made with, the repeats. */
#ifndef DS_CLI_RECORD_VIEW_H
#define DS_CLI_RECORD_VIEW_H

#include "cli/cli.h"
#include "report/environment.h"
#include "report/weights.h"

enum ds_view {
    DS_VIEW_VERDICT = 0,
    DS_VIEW_SITE,
    DS_VIEW_SITES,
    DS_VIEW_RUNS,
    DS_VIEW_TOKENS,
    DS_VIEW_WEIGHTS,
    DS_VIEW_ENVIRONMENT
};
/* The view that the options ask for. runs: the verb has --runs. -1: two of
 * them, or options of another one. */
int ds_view_chosen(const struct ds_options *o, int runs, enum ds_view *out, struct ds_error *err);
/* Those that show one arm against another: SITE (JSON, too), SITES, TOKENS. */
int ds_view_pair(const struct ds_options *o, enum ds_view view, const struct ds_report_view *w,
                 struct ds_buf *out, struct ds_error *err);
/* WEIGHTS: of one record (b NULL) or of two: their own sources. */
int ds_view_weights(const struct ds_options *o, const struct ds_report *r,
                    const struct ds_source *a, const struct ds_source *b, struct ds_buf *out,
                    struct ds_error *err);
/* ENVIRONMENT: of one record (b NULL) or of two; s: the source that r's verdict is made from. */
int ds_view_environment(const struct ds_options *o, const struct ds_report *r,
                        const struct ds_source *s, const struct ds_header *a,
                        const struct ds_header *b, struct ds_buf *out, struct ds_error *err);

#endif
