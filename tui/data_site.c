/* data_site.c: one site of one pair: every row in every arm, sizes, launches, inputs. And dumped rows. Runs in the
 * worker's thread. */
#include "tui/data_internal.h"

#include "dumps/site_sums.h"

#include <stdlib.h>
#include <string.h>

/* ---- dumped rows ----------------------------------------------------------------------------- */

/* Arm 2p of two records is of A, 2p + 1 of B; a row that both made has one digest, and either may have
 * dumped it. */
int blob_of(const struct book *b, uint32_t arm, uint64_t digest, struct ds_blob *out,
            struct ds_error *err)
{
    const int first = b->n_sides == 2 ? (int)(arm & 1) : 0;
    int rc = ds_record_blob(b->side[first].record, digest, out, err);
    return rc == 0 && b->n_sides == 2 ? ds_record_blob(b->side[!first].record, digest, out, err)
                                      : rc;
}

int is_dumped(const struct book *b, uint64_t digest)
{
    struct ds_error ignored;
    for (int k = 0; k < b->n_sides; k++)
        if (ds_record_dumped(b->side[k].record, digest, &ignored) == 1)
            return 1;
    return 0;
}

int make_values(const struct book *b, const struct want *w, struct result *out,
                struct ds_error *err)
{
    struct tui_values *v = &out->u.values;
    if (blob_of(b, w->arm, w->digest, &v->mine, err) < 0 ||
        blob_of(b, w->ref, w->ref_digest, &v->ref, err) < 0)
        return -1;
    out->bytes = (uint64_t)v->mine.bytes + v->ref.bytes;
    return 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct site_work {
    struct judged *j;
    const struct want *w;
    int finish; /* the arms that the analysis does not have are read, too */
    size_t n_rows, n_arms;
    const struct ds_row_key *keys;
    uint8_t *labels; /* [n_sites][n_rows] */
    struct tui_row_fact *facts;
};

static void fill_facts(const struct site_work *s)
{
    const struct ds_analysis *a = s->j->analysis;
    const struct want *w = s->w;
    for (size_t i = 0; i < s->n_rows; i++) {
        struct tui_row_fact *f = &s->facts[i];
        uint32_t at;
        f->has = ds_analysis_digest(a, w->arm, w->site, i, &f->digest) != 0;
        f->ref_has = ds_analysis_digest(a, w->ref, w->site, i, &f->ref_digest) != 0;
        if (ds_analysis_find_row(a, w->arm, i, &at))
            f->row = ds_analysis_trial(a, w->arm)->rows[at];
        else if (ds_analysis_find_row(a, w->ref, i, &at))
            f->row = ds_analysis_trial(a, w->ref)->rows[at];
        f->dumped = f->has && is_dumped(s->j->book, f->digest);
        f->ref_dumped = f->ref_has && is_dumped(s->j->book, f->ref_digest);
    }
}

/* The probes' entries of the digests that are compared; of repeats, any. */
static int add_entries(const struct site_work *s, struct ds_error *err)
{
    const struct ds_source *src = &s->j->source;
    for (size_t i = 0; i < src->n_trials; i++) {
        const struct ds_trial *info = src->info(src->ctx, i);
        if (!info || info->arm != s->w->arm || info->pass != DS_PASS_NATURAL)
            continue;
        const struct ds_trial_data *t = src->get(src->ctx, i, err);
        if (!t)
            return -1;
        for (size_t k = 0; k < t->n_drifts; k++) {
            const struct ds_drift *x = &t->drifts[k];
            if (x->site != s->w->site || x->ref_arm != s->w->ref || x->row >= t->n_rows)
                continue;
            size_t row = ds_analysis_row_of(s->j->analysis, &t->rows[x->row], 0);
            if (row == SIZE_MAX || s->facts[row].sized)
                continue;
            struct tui_row_fact *f = &s->facts[row];
            if (s->w->arm != s->w->ref &&
                (x->digest != f->digest || x->ref_digest != f->ref_digest))
                continue;
            f->drift = *x;
            f->sized = 1;
            if (s->w->arm ==
                s->w->ref) { /* the repeat that disagrees, and what it was held against */
                f->digest = x->digest;
                f->ref_digest = x->ref_digest;
                f->dumped = is_dumped(s->j->book, f->digest);
                f->ref_dumped = is_dumped(s->j->book, f->ref_digest);
            }
        }
    }
    return 0;
}

/* Sizes of rows that no probe held the other side of, where both are dumped. */
static int add_from_dumps(const struct site_work *s, struct ds_error *err)
{
    for (size_t i = 0; i < s->n_rows; i++) {
        struct tui_row_fact *f = &s->facts[i];
        if (f->sized || !f->dumped || !f->ref_dumped || f->digest == f->ref_digest)
            continue;
        if (data_stopped(s->j->book->side[0].data))
            return ds_fail(err, "given up");
        f->drift = (struct ds_drift){.site = s->w->site,
                                     .ref_arm = s->w->ref,
                                     .digest = f->digest,
                                     .ref_digest = f->ref_digest};
        f->sized = size_from_dumps(s->j->book, s->w, f->digest, f->ref_digest, &f->drift);
    }
    return 0;
}

/* ---- classes --------------------------------------------------------------------------------- */

/* Of a record whose verdict does not fit into memory: the site's rows in the first trial of every arm. */
struct arm_digests {
    uint64_t *digest; /* [n_rows][n_arms]; NULL: the analysis has them */
    uint8_t *has;
};

static void read_arm(const struct site_work *s, const struct ds_trial_data *t,
                     const struct arm_digests *all)
{
    size_t row = SIZE_MAX;
    for (size_t i = 0; i < t->n_captures; i++) {
        const struct ds_capture *c = &t->captures[i];
        for (uint32_t k = 0; c->site == s->w->site && k < c->rows; k++) {
            row = ds_analysis_row_of(s->j->analysis, &t->rows[c->first_row + k],
                                     row == SIZE_MAX ? 0 : row + 1);
            const size_t cell = row * s->n_arms + t->info.arm;
            if (row == SIZE_MAX || all->has[cell])
                continue;
            all->has[cell] = 1;
            all->digest[cell] = t->digests[c->first_digest + k];
        }
    }
}

static int read_arms(const struct site_work *s, struct arm_digests *all, struct ds_error *err)
{
    struct book_side *side = &s->j->book->side[0];
    const size_t cells = s->n_rows * s->n_arms; /* fits: see make_classes */
    uint8_t *seen = ds_calloc(s->n_arms, 1, "arms", err);
    all->digest = seen ? ds_calloc(cells, sizeof *all->digest, "classes", err) : NULL;
    all->has = all->digest ? ds_calloc(cells, 1, "classes", err) : NULL;
    int rc = all->has ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < side->n_use; i++) {
        const struct ds_trial *info = ds_record_trial(side->record, side->use[i]);
        if (info->pass != DS_PASS_NATURAL || seen[info->arm])
            continue;
        if (data_stopped(side->data)) {
            rc = ds_fail(err, "given up");
            break;
        }
        seen[info->arm] = 1;
        const struct ds_trial_data *t = side_load(side, side->use[i], 0, err);
        if (t)
            read_arm(s, t, all);
        else
            rc = -1;
    }
    free(seen);
    return rc;
}

static int digest_of(const struct site_work *s, const struct arm_digests *all, uint32_t arm,
                     size_t row, uint64_t *digest)
{
    if (!all->digest)
        return ds_analysis_digest(s->j->analysis, arm, s->w->site, row, digest);
    *digest = all->digest[row * s->n_arms + arm];
    return all->has[row * s->n_arms + arm];
}

/* Class 0 is the base arm's; without it the first arm's that has the row is 1. */
static void class_row(const struct site_work *s, const struct arm_digests *all, size_t row,
                      uint32_t *class_of, uint64_t *digests)
{
    uint64_t digest;
    uint32_t n = 0;
    if (digest_of(s, all, 0, row, &digest))
        digests[n++] = digest;
    const uint32_t base = n ? 0 : 1;
    for (uint32_t arm = 0; arm < s->n_arms; arm++) {
        class_of[arm] = UINT32_MAX;
        if (!digest_of(s, all, arm, row, &digest))
            continue;
        uint32_t k = 0;
        while (k < n && digests[k] != digest)
            k++;
        if (k == n)
            digests[n++] = digest;
        class_of[arm] = k + base;
    }
}

static uint32_t *make_classes(const struct site_work *s, struct ds_error *err)
{
    size_t cells;
    if (__builtin_mul_overflow(s->n_rows, s->n_arms, &cells)) {
        ds_fail(err, "%zu rows times %zu arms do not fit in memory", s->n_rows, s->n_arms);
        return NULL;
    }
    uint32_t *class_of = ds_calloc(cells, sizeof *class_of, "classes", err);
    uint64_t *digests = ds_calloc(s->n_arms, sizeof *digests, "classes", err);
    struct arm_digests all = {0};
    if (class_of && digests && s->finish && read_arms(s, &all, err) != 0) {
        free(digests);
        digests = NULL;
    }
    for (size_t i = 0; class_of && digests && i < s->n_rows; i++)
        class_row(s, &all, i, class_of + i * s->n_arms, digests);
    free(all.digest);
    free(all.has);
    if (!digests) {
        free(class_of);
        class_of = NULL;
    }
    free(digests);
    return class_of;
}

/* ---- launches and inputs --------------------------------------------------------------------- */

static const struct ds_launch *launch_of(const struct site_work *s, uint32_t arm, size_t row)
{
    const struct ds_trial_data *t = ds_analysis_trial(s->j->analysis, arm);
    uint32_t at;
    if (!t || !ds_analysis_find_row(s->j->analysis, arm, row, &at))
        return NULL;
    for (size_t i = 0; i < t->n_captures; i++) {
        const struct ds_capture *c = &t->captures[i];
        if (c->site == s->w->site && at >= c->first_row && at - c->first_row < c->rows &&
            c->launch < t->n_launches)
            return &t->launches[c->launch];
    }
    return NULL;
}

static void fill_launches(const struct site_work *s, struct result *out)
{
    const uint8_t *labels = s->labels + (size_t)s->w->site * s->n_rows;
    size_t row = 0;
    for (size_t i = s->n_rows; i-- > 0;) {
        if (labels[i] == DS_LABEL_ORIGIN || labels[i] == DS_LABEL_INHERITED ||
            labels[i] == DS_LABEL_UNKNOWN || labels[i] == DS_LABEL_UNSTABLE)
            row = i + 1;
    }
    for (size_t i = 0; !row && i < s->n_rows; i++) /* none drifts: the first that both have */
        if (s->facts[i].has || s->facts[i].ref_has)
            row = i + 1;
    if (!row)
        return;
    const struct ds_launch *mine = launch_of(s, s->w->arm, row - 1),
                           *ref = launch_of(s, s->w->ref, row - 1);
    if (mine) {
        out->launch[0] = *mine;
        out->u.site.launch = &out->launch[0];
    }
    if (ref) {
        out->launch[1] = *ref;
        out->u.site.ref_launch = &out->launch[1];
    }
}

static int fill_inputs(const struct site_work *s, struct tui_site *site, struct ds_error *err)
{
    const struct ds_header *h = s->j->source.header;
    struct tui_input *inputs = NULL;
    for (size_t i = 0; i < h->n_edges; i++) {
        const struct ds_edge *e = &h->edges[i];
        if (e->to != s->w->site || e->from >= h->n_sites)
            continue;
        if (ds_grow_by_one(&inputs, site->n_inputs, sizeof *inputs, "inputs", err) != 0) {
            free(inputs);
            site->n_inputs = 0;
            return -1;
        }
        struct tui_input *x = &inputs[site->n_inputs++];
        *x = (struct tui_input){.site = e->from, .edge = (int)e->kind};
        for (size_t r = 0; r < s->n_rows; r++)
            x->label = ds_label_graver(x->label, s->labels[e->from * s->n_rows + r]);
    }
    site->inputs = inputs;
    return 0;
}

/* ---- the profile's finding ------------------------------------------------------------------- */

static void keep_text(const char **text, char **at)
{
    if (!*text)
        return;
    size_t n = strlen(*text) + 1;
    memcpy(*at, *text, n);
    *text = *at;
    *at += n;
}

int keep_finding(struct result *r, struct ds_finding *f, struct ds_error *err)
{
    const char **texts[] = {&f->stage,  &f->part,  &f->op,        &f->variant,   &f->ref_variant,
                            &f->factor, &f->value, &f->ref_value, &f->blas_core, &f->ref_blas_core};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        bytes += *texts[i] ? strlen(*texts[i]) + 1 : 0;
    if (!(r->texts = ds_alloc(bytes + 1, "texts", err)))
        return -1;
    char *at = r->texts;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        keep_text(texts[i], &at);
    if (f->launch) {
        r->launch[2] = *f->launch;
        f->launch = &r->launch[2];
    }
    if (f->ref_launch) {
        r->launch[3] = *f->ref_launch;
        f->ref_launch = &r->launch[3];
    }
    return 0;
}

/* What repeats gave, where they disagree; of an arm alone also where not. Trials are read for it: only once all may
 * be. */
static int fill_repeats(const struct site_work *s, struct tui_site *site, struct ds_error *err)
{
    const uint32_t arms[2] = {s->w->ref, s->w->arm};
    if (s->j->partial && !s->finish)
        return 0;
    for (int i = arms[0] == arms[1]; i < 2; i++)
        if (ds_analysis_trials(s->j->analysis, arms[i]) > 1 &&
            ds_census_site(s->j->analysis, arms[i], s->w->site, &site->repeats[i], err) != 0)
            return -1;
    return 0;
}

/* ---- the site -------------------------------------------------------------------------------- */

static int copy_rows(struct site_work *s, struct tui_site *site, struct ds_error *err)
{
    struct ds_row_key *keys = ds_calloc(s->n_rows, sizeof *keys, "rows", err);
    uint8_t *labels = ds_calloc(s->n_rows, 1, "rows", err);
    site->keys = keys;
    site->labels = labels;
    site->facts = s->facts = ds_calloc(s->n_rows, sizeof *s->facts, "rows", err);
    if (!keys || !labels || !s->facts)
        return -1;
    for (size_t i = 0; i < s->n_rows; i++) {
        keys[i] = *ds_analysis_row(s->j->analysis, i);
        labels[i] = s->labels[(size_t)s->w->site * s->n_rows + i];
    }
    return 0;
}

int make_site(struct judged *j, const struct want *w, int finish, struct result *out,
              struct ds_error *err)
{
    struct tui_site *site = &out->u.site;
    struct site_work s = {.j = j,
                          .w = w,
                          .finish = finish && j->partial && !j->has_diff,
                          .n_rows = ds_analysis_rows(j->analysis),
                          .n_arms = j->source.header->n_arms};
    out->unfinished = j->partial && !j->has_diff && !finish;
    if (w->site >= j->source.header->n_sites)
        return ds_fail(err, "site %u of %zu", w->site, j->source.header->n_sites);
    *site = (struct tui_site){.arm = w->arm,
                              .ref = w->ref,
                              .site = w->site,
                              .n_rows = s.n_rows,
                              .n_arms = s.n_arms,
                              .profile = &out->profile};
    if (ds_analysis_labels(j->analysis, w->arm, w->ref, &s.labels, err) != 0)
        return -1;
    int rc = copy_rows(&s, site, err);
    if (rc == 0) {
        fill_facts(&s);
        rc = (site->class_of = make_classes(&s, err)) ? 0 : -1;
    }
    rc = rc == 0 ? add_entries(&s, err) : rc;
    rc = rc == 0 ? add_from_dumps(&s, err) : rc;
    rc = rc == 0 ? fill_inputs(&s, site, err) : rc;
    rc = rc == 0 ? fill_repeats(&s, site, err) : rc;
    rc = rc == 0 ? ds_analysis_site(j->analysis, w->arm, w->ref, w->site, &out->profile, err) : rc;
    rc = rc == 0 ? keep_finding(out, &out->profile.at, err) : rc;
    if (rc == 0)
        fill_launches(&s, out);
    free(s.labels);
    out->bytes = s.n_rows * (sizeof *s.facts + sizeof *site->keys + 1 + s.n_arms * 4 +
                             2 * sizeof *site->repeats[0].rows) +
                 (out->profile.n_heads + out->profile.n_channels + out->profile.n_positions) *
                     sizeof *out->profile.heads;
    return rc;
}
