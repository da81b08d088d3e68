/* explain_place.c: which place of a record is explained, of which arms, and the two trials that stand for
 * them. Reads no values. */
#include "cli/explain_case.h"

#include "report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ds_case_factor(const struct ds_header *h, uint32_t arm, const char *factor)
{
    for (size_t f = 0; f < h->n_factors && arm < h->n_arms; f++)
        if (strcmp(h->factors[f], factor) == 0)
            return h->arms[arm].values[f];
    return "";
}

int64_t ds_case_number(const struct ds_case *c, uint32_t arm, const char *factor, int64_t most)
{
    char *end;
    const char *text = ds_case_setting(c, arm, factor);
    errno = 0;
    long long v = strtoll(text, &end, 10);
    return errno || end == text || *end || v < 0 || v > most ? 0 : v;
}

/* ---- the place ------------------------------------------------------------------------------- */

static int is_drift(int label)
{
    return label == DS_LABEL_ORIGIN || label == DS_LABEL_INHERITED || label == DS_LABEL_UNKNOWN;
}

/* Fills c->f with the first row of `site` in `arm` against `ref` that differs; origins first. 1
 * found, 0 none. */
static int find_in_arm(struct ds_case *c, uint32_t site, uint32_t arm, uint32_t ref,
                       const char *factor, const char *value, struct ds_error *err)
{
    uint8_t *labels;
    const size_t rows = ds_analysis_rows(c->a);
    if (ds_analysis_labels(c->a, arm, ref, &labels, err) != 0)
        return -1;
    int best = -1;
    for (size_t i = 0; i < rows; i++) {
        int label = labels[(size_t)site * rows + i];
        if (!is_drift(label) || (best >= 0 && (label != DS_LABEL_ORIGIN || best == label)))
            continue;
        const struct ds_row_key *k = ds_analysis_row(c->a, i);
        best = label;
        c->f.request = k->request;
        c->f.position = k->position;
        c->f.occurrence = k->occurrence;
    }
    free(labels);
    if (best < 0)
        return 0;
    c->f.found = 1;
    c->f.label = best;
    c->f.site = site;
    c->f.layer = c->h->sites[site].layer;
    c->f.stage = c->h->sites[site].stage;
    c->f.part = c->h->sites[site].part;
    c->f.op = c->h->sites[site].op;
    c->f.arm = arm;
    c->f.ref_arm = ref;
    c->f.factor = factor;
    c->f.value = value;
    c->f.ref_value = ds_case_factor(c->h, ref, factor);
    return best == DS_LABEL_ORIGIN ? 2 : 1;
}

/* Of two records every arm of the second stands against the same of the first, and nothing else is a pair:
 * arms of one record are that record's business. */
static int pair_of(const struct ds_case *c, uint32_t arm, uint32_t *ref, const char **factor,
                   const char **value)
{
    if (!c->records->joined)
        return ds_analysis_pair(c->a, arm, ref, factor, value);
    if (arm % 2 == 0 || !ds_analysis_trial(c->a, arm) || !ds_analysis_trial(c->a, arm - 1))
        return 0;
    *ref = arm - 1;
    *factor = "record";
    *value = ds_case_factor(c->h, arm, "record");
    return 1;
}

/* Of an arm whose rows inherit: whether some of them differ where the arm was healed, which tells more. */
static int is_origin_when_healed(struct ds_case *c, struct ds_error *err)
{
    uint8_t *labels;
    const size_t rows = ds_analysis_rows(c->a);
    int is = 0;
    if (!c->records->joined)
        return 0;
    if (ds_analysis_healed(c->a, c->f.arm, c->f.ref_arm, &labels, err) < 0)
        return -1;
    for (size_t i = 0; i < rows && labels; i++)
        is |= labels[(size_t)c->f.site * rows + i] == DS_LABEL_ORIGIN;
    free(labels);
    return is;
}

static int find_site(struct ds_case *c, uint32_t site, int64_t only, struct ds_error *err)
{
    struct ds_finding inherited = {0};
    int best = 0;
    for (uint32_t arm = 0; arm < c->h->n_arms; arm++) {
        uint32_t ref;
        const char *factor, *value;
        if ((only >= 0 && ds_case_own_arm(c, arm) != only) ||
            !pair_of(c, arm, &ref, &factor, &value))
            continue;
        int rc = find_in_arm(c, site, arm, ref, factor, value, err);
        if (rc < 0 || rc == 2)
            return rc < 0 ? -1 : 0;
        const int healed = rc == 1 ? is_origin_when_healed(c, err) : 0;
        if (healed < 0)
            return -1;
        if (rc == 1 && (!inherited.found || healed > best)) {
            inherited = c->f;
            best = healed;
        }
    }
    c->f = inherited;
    if (inherited.found)
        return 0;
    const struct ds_site *s = &c->h->sites[site];
    if (only >= 0)
        return ds_fail(err, "layer %d %.24s: no row differs in arm %" PRId64, s->layer, s->stage,
                       only);
    return ds_fail(err, "layer %d %.24s: no row differs in any arm", s->layer, s->stage);
}

int ds_case_find(struct ds_case *c, const struct ds_verdict *v, const char *site, int64_t arm,
                 struct ds_error *err)
{
    uint32_t s = v->first.site;
    if (!site && !v->first.found)
        return ds_fail(err, "nothing to explain: %s",
                       v->result == DS_RESULT_INCOMPARABLE ? v->reason : "no row differs");
    if (!site && arm < 0) {
        c->f = v->first;
        c->named = 1;
        return 0;
    }
    if (site && ds_report_find_site(c->h, "SITE", site, &s, err) != 0)
        return -1;
    return find_site(c, s, arm, err);
}

/* ---- both sides ------------------------------------------------------------------------------ */

/* The digest of a row at the explained site in a natural trial of the arm: 1 found. *t: the trial. */
static int digest_in(struct ds_case *c, size_t i, const struct ds_row *key,
                     const struct ds_trial_data **t, uint64_t *digest, struct ds_error *err)
{
    const struct ds_trial *info = c->s->info(c->s->ctx, i);
    struct ds_site_row *rows;
    size_t n;
    if (info->arm != c->f.arm || info->pass != DS_PASS_NATURAL)
        return 0;
    *t = c->s->get(c->s->ctx, i, err);
    if (!*t || ds_site_rows(*t, c->f.site, &rows, &n, err) != 0)
        return -1;
    const struct ds_site_row *r = ds_site_find_row(rows, n, key);
    if (r)
        *digest = r->digest;
    free(rows);
    return r != NULL;
}

/* Repeats of one arm against each other: two trials in which the row has these digests. 1 found. */
static int take_pair(struct ds_case *c, const struct ds_row *key, uint64_t a, uint64_t b,
                     struct ds_error *err)
{
    const struct ds_trial_data *t, *side[DS_SIDES] = {NULL, NULL};
    for (size_t i = 0; i < c->s->n_trials; i++) {
        uint64_t digest;
        int rc = digest_in(c, i, key, &t, &digest, err);
        if (rc < 0)
            return -1;
        if (rc == 1 && digest == a && !side[DS_SIDE_A])
            side[DS_SIDE_A] = t;
        else if (rc == 1 && digest == b && !side[DS_SIDE_B])
            side[DS_SIDE_B] = t;
    }
    if (!side[DS_SIDE_A] || !side[DS_SIDE_B])
        return 0;
    c->side[DS_SIDE_A].t = side[DS_SIDE_A];
    c->side[DS_SIDE_B].t = side[DS_SIDE_B];
    return 1;
}

/* A trial that was sized against another one of its arm is best: both sides' values are dumped for
 * those. */
static int find_repeats(struct ds_case *c, struct ds_error *err)
{
    const struct ds_finding *f = &c->f;
    for (size_t i = 0; i < c->s->n_trials; i++) {
        const struct ds_trial *info = c->s->info(c->s->ctx, i);
        if (info->arm != f->arm || info->pass != DS_PASS_NATURAL)
            continue;
        const struct ds_trial_data *t = c->s->get(c->s->ctx, i, err);
        for (size_t d = 0; t && d < t->n_drifts; d++) {
            if (t->drifts[d].site != f->site || t->drifts[d].ref_arm != f->arm)
                continue;
            int rc = take_pair(c, &t->rows[t->drifts[d].row], t->drifts[d].ref_digest,
                               t->drifts[d].digest, err);
            if (rc != 0)
                return rc < 0 ? -1 : 0;
            break;
        }
        if (!t)
            return -1;
    }
    const struct ds_row key = {
        .request = f->request, .position = f->position, .occurrence = f->occurrence};
    return take_pair(c, &key, f->ref_digest, f->digest, err) < 0 ? -1 : 0;
}

int ds_case_find_trials(struct ds_case *c, struct ds_error *err)
{
    const struct ds_finding *f = &c->f;
    c->side[DS_SIDE_A].arm = f->ref_arm;
    c->side[DS_SIDE_B].arm = f->arm;
    c->side[DS_SIDE_A].t = ds_analysis_trial(c->a, f->ref_arm);
    c->side[DS_SIDE_B].t = ds_analysis_trial(c->a, f->arm);
    if (f->arm == f->ref_arm && find_repeats(c, err) != 0)
        return -1;
    if (!c->side[DS_SIDE_A].t || !c->side[DS_SIDE_B].t)
        return ds_fail(err, "the record lacks a trial of arm %u or %u", f->ref_arm, f->arm);
    for (int s = 0; s < DS_SIDES; s++)
        c->read[s] = (struct ds_case_read){c->side[s].t, c->side[s].arm};
    return 0;
}
