/* pair.c: which two arms to look at, and at which site. */
#include "report/report_internal.h"

#include "base/mem.h"
#include "base/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the site -------------------------------------------------------------------------------- */

static int unknown_stage(const struct ds_header *h, const char *what, const char *text,
                         const char *stage, struct ds_error *err)
{
    const char **names = ds_calloc(h->n_sites, sizeof *names, "stage names", err);
    if (!names)
        return -1;
    for (size_t i = 0; i < h->n_sites; i++)
        names[i] = h->sites[i].stage;
    int near = ds_nearest(stage, names, h->n_sites);
    ds_fail(err, "%s %s: the record has no such site", what, text);
    if (near >= 0 && strcmp(names[near], stage) != 0)
        ds_hint(err, "did you mean %d,%s?", h->sites[near].layer, names[near]);
    else if (near >= 0)
        ds_hint(err, "layers go from %d to %d; some stages have parts: %d,%s%s%s",
                h->sites[0].layer, h->n_sites ? h->sites[h->n_sites - 1].layer : 0,
                h->sites[near].layer, names[near], h->sites[near].part[0] ? "/" : "",
                h->sites[near].part);
    free(names);
    return -1;
}

int ds_report_find_site(const struct ds_header *h, const char *what, const char *text,
                        uint32_t *site, struct ds_error *err)
{
    const char *stage = text;
    char *end;
    long layer = strtol(text, &end, 10);
    int any_layer = end == text || *end != ',';
    if (!any_layer)
        stage = end + 1;
    const char *slash = strchr(stage, '/');
    size_t n = slash ? (size_t)(slash - stage) : strlen(stage);
    for (size_t i = 0; i < h->n_sites; i++) {
        const struct ds_site *s = &h->sites[i];
        if (strlen(s->stage) == n && memcmp(s->stage, stage, n) == 0 &&
            strcmp(s->part, slash ? slash + 1 : "") == 0 && (any_layer || s->layer == layer)) {
            *site = (uint32_t)i;
            return 0;
        }
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", n < 60 ? (int)n : 60, stage);
    return unknown_stage(h, what, text, name, err);
}

/* ---- the arms -------------------------------------------------------------------------------- */

uint32_t ds_report_reference(const struct ds_verdict *v, const struct ds_analysis *a, uint32_t arm)
{
    const char *factor, *value;
    uint32_t ref = arm;
    for (size_t f = v->n_factors; f-- > 0;) {
        const struct ds_finding *first = &v->factors[f].phase[DS_VERDICT_ALL].first;
        if (first->found && first->arm == arm)
            return first->ref_arm;
    }
    ds_analysis_pair(a, arm, &ref, &factor, &value);
    return ref;
}

int ds_report_pair(const struct ds_verdict *v, const struct ds_analysis *a, size_t n_arms,
                   uint32_t *arm, uint32_t *ref)
{
    const char *factor, *value;
    if (v->first.found) {
        *arm = v->first.arm;
        *ref = v->first.ref_arm;
        return 1;
    }
    for (uint32_t i = 0; i < n_arms; i++)
        if (ds_analysis_pair(a, i, ref, &factor, &value)) {
            *arm = i;
            return 1;
        }
    if (v->result == DS_RESULT_INCOMPARABLE)
        return 0;
    *arm = *ref = v->ref_arm;
    return 1;
}

static int varied(const struct ds_header *h, size_t f)
{
    for (size_t i = 1; i < h->n_arms; i++)
        if (strcmp(h->arms[i].values[f], h->arms[0].values[f]) != 0)
            return 1;
    return 0;
}

void ds_report_pair_words(const struct ds_report_view *w, struct ds_buf *out)
{
    const struct ds_header *h = w->s->header;
    int some = 0;
    ds_buf_printf(out, "arm %u", w->arm);
    for (size_t f = 0; f < h->n_factors; f++) {
        if (!varied(h, f))
            continue;
        ds_buf_puts(out, some++ ? ", " : " (");
        ds_report_name(out, h->factors[f]);
        ds_buf_puts(out, " ");
        ds_report_name(out, h->arms[w->arm].values[f]);
    }
    ds_buf_puts(out, some ? ")" : "");
    if (w->arm == w->ref) {
        ds_buf_puts(out, w->a && ds_analysis_trials(w->a, w->arm) < 2
                             ? ", one trial: nothing to compare it with\n"
                             : ", its own repeats against each other\n");
        return;
    }
    ds_buf_printf(out, " against arm %u", w->ref);
    for (size_t f = 0, n = 0; f < h->n_factors; f++)
        if (strcmp(h->arms[w->arm].values[f], h->arms[w->ref].values[f]) != 0) {
            ds_buf_puts(out, n++ ? ", " : ": ");
            ds_report_name(out, h->factors[f]);
            ds_buf_puts(out, " ");
            ds_report_name(out, h->arms[w->ref].values[f]);
        }
    ds_buf_puts(out, "\n");
}

void ds_report_arm_values(const struct ds_header *h, uint32_t arm, struct ds_buf *out)
{
    int n = 0;
    for (size_t f = 0; arm < h->n_arms && f < h->n_factors; f++)
        if (strcmp(h->arms[arm].values[f], h->arms[0].values[f]) != 0)
            ds_buf_printf(out, "%s%s %s", n++ ? ", " : "", h->factors[f], h->arms[arm].values[f]);
    if (n == 0)
        ds_buf_puts(out, "base arm");
}
