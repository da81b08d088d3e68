/* explain_case.c: see explain_case.h. Owns the choice of place, trials and rows, and where a row stood in
 * its call; explain_inputs.c reads values. A record is hostile: every number that becomes an index or
 * a size is checked here or was by the reader. */
#include "cli/explain_case.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/registry.h"
#include "report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POSITION = 1 << 24 };

const char *ds_case_factor(const struct ds_header *h, uint32_t arm, const char *factor)
{
    for (size_t f = 0; f < h->n_factors && arm < h->n_arms; f++)
        if (strcmp(h->factors[f], factor) == 0)
            return h->arms[arm].values[f];
    return "";
}

static int64_t factor_number(const struct ds_header *h, uint32_t arm, const char *factor,
                             int64_t most)
{
    char *end;
    const char *text = ds_case_factor(h, arm, factor);
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

static int find_site(struct ds_case *c, uint32_t site, int64_t only, struct ds_error *err)
{
    struct ds_finding inherited = {0};
    for (uint32_t arm = 0; arm < c->h->n_arms; arm++) {
        uint32_t ref;
        const char *factor, *value;
        if ((only >= 0 && arm != only) || !ds_analysis_pair(c->a, arm, &ref, &factor, &value))
            continue;
        int rc = find_in_arm(c, site, arm, ref, factor, value, err);
        if (rc < 0 || rc == 2)
            return rc < 0 ? -1 : 0;
        if (rc == 1 && !inherited.found)
            inherited = c->f;
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
    if (site && ds_report_find_site(c->h, "--site", site, &s, err) != 0)
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

/* The trials of the pair. */
static int find_trials(struct ds_case *c, struct ds_error *err)
{
    const struct ds_finding *f = &c->f;
    c->read_from[DS_SIDE_B] = DS_SIDE_B;
    c->side[DS_SIDE_A].arm = f->ref_arm;
    c->side[DS_SIDE_B].arm = f->arm;
    c->side[DS_SIDE_A].t = ds_analysis_trial(c->a, f->ref_arm);
    c->side[DS_SIDE_B].t = ds_analysis_trial(c->a, f->arm);
    if (f->arm == f->ref_arm && find_repeats(c, err) != 0)
        return -1;
    if (!c->side[DS_SIDE_A].t || !c->side[DS_SIDE_B].t)
        return ds_fail(err, "the record lacks a trial of arm %u or %u", f->ref_arm, f->arm);
    return 0;
}

/* The kernel of a side, from the launch of its rows. */
static void find_kernel(struct ds_case *c, int side)
{
    struct ds_case_side *s = &c->side[side];
    struct ds_explain_side *e = &c->e.side[side];
    char why[256] = "", core[sizeof e->core];
    snprintf(s->variant, sizeof s->variant, "%.31s", s->launch->variant);
    e->kernel = ds_kernel_find(c->e.op, s->variant);
    e->threads = s->t->info.threads_asked;
    if (e->threads < 1 || e->threads > 1024)
        e->threads = 1;
    e->dtype = ds_case_stored_as(c, c->f.site, s->arm);
    snprintf(core, sizeof core, "%.23s", s->t->info.blas_core);
    memcpy(e->core, core, sizeof core);
    if (!e->kernel)
        snprintf(s->missing, sizeof s->missing,
                 "this program has no such variant: give its library with --plugin or --blas");
    else if (strcmp(s->variant, "openblas") == 0 && e->core[0] &&
             ds_blas_core_runs_here(e->core) == 0)
        snprintf(s->missing, sizeof s->missing, "this processor cannot run the core %s", core);
    else if (ds_kernel_available(e->kernel, why, sizeof why) != 0)
        snprintf(s->missing, sizeof s->missing, "it cannot run here: %.200s", why);
    if (s->missing[0])
        e->kernel = NULL;
}

/* ---- where a row stood ----------------------------------------------------------------------- */

/* The rows of the request in the row's call, and all up to them. The record may claim any place: one
 * that no call can have is refused before it is counted with. */
static int own_sequence(const struct ds_case *c, int side, const struct ds_row *key,
                        struct ds_explain_at *at, int32_t *kv_first, struct ds_error *err)
{
    enum { FARTHEST = 1 << 28 };
    const struct ds_trial_data *t = c->side[side].t;
    int32_t pads =
        key->request == 0 ? (int32_t)factor_number(c->h, c->side[side].arm, "padding", 1 << 20) : 0;
    int32_t low = key->slot, high = key->slot, last = key->position, first_call = 1;
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct ds_row *r = &t->rows[i];
        if (r->request != key->request)
            continue;
        first_call &= r->call >= key->call;
        if (r->call != key->call)
            continue;
        if (r->slot < 0 || r->slot > FARTHEST || r->position < -FARTHEST || r->position > FARTHEST)
            return ds_fail(err, "a row stands at place %d of a call, at position %d", r->slot,
                           r->position);
        low = r->slot < low ? r->slot : low;
        high = r->slot > high ? r->slot : high;
        last = r->position > last ? r->position : last;
    }
    *kv_first = pads;
    at->q_first = low - (first_call ? pads : 0);
    at->q_len = high + 1 - at->q_first;
    at->kv_len = pads + last + 1;
    return 0;
}

/* The head sees one row of each sequence that has logits; the row's place among them is that of its
 * sequence in the call. */
static int64_t head_row(const struct ds_explain_at *at, const struct ds_row *key, uint32_t m,
                        uint32_t sequences)
{
    if (at->rows == m)
        return key->slot;
    int64_t others = (int64_t)sequences - 1, rest = (int64_t)m - at->q_len;
    int64_t place = rest > 0 ? (at->q_first * others + rest / 2) / rest : 0;
    return place < at->rows ? place : at->rows - 1;
}

static int place_row(struct ds_case *c, int side, const struct ds_site_row *r,
                     struct ds_explain_at *at, int32_t *kv_first, struct ds_error *err)
{
    const struct ds_trial_data *t = c->side[side].t;
    const struct ds_call *call = &t->calls[r->key.call];
    const struct ds_launch *l = &t->launches[r->launch];
    if (call->sequences < 1 || call->sequences > call->m)
        return ds_fail(err, "a call of %u rows cannot have %u sequences", call->m, call->sequences);
    if (own_sequence(c, side, &r->key, at, kv_first, err) != 0)
        return -1;
    /* Rows of one request in one call stand together. */
    at->call = (uint32_t)c->e.n_rows;
    for (size_t i = c->e.n_rows; i-- > 0;)
        if (c->rows[side][i].key.call == r->key.call &&
            c->rows[side][i].key.request == r->key.request)
            at->call = c->e.rows[i].at[side].call;
    at->rows = l->rows > 0 ? l->rows : (int64_t)call->m;
    at->n_sequences = call->sequences > INT32_MAX ? INT32_MAX : (int32_t)call->sequences;
    at->row = head_row(at, &r->key, call->m, call->sequences);
    if (c->choice >= 0 && ds_case_place_in_expert(c, side, r, at, err) != 0)
        return -1;
    if (at->row < 0 || at->row >= at->rows || at->rows > 1 << 20)
        return ds_fail(err, "a row stands at place %lld of a call of %lld rows", (long long)at->row,
                       (long long)at->rows);
    return 0;
}

/* ---- the rows -------------------------------------------------------------------------------- */

/* What a kernel uses as an index. */
static int check_number(const struct ds_case *c, int32_t number, struct ds_error *err)
{
    if (c->e.op == DS_OP_EMBED && (number < 0 || number >= c->model->hp.vocab))
        return ds_fail(err, "token %d is not in the model's vocabulary", number);
    if (c->e.op == DS_OP_ROPE && (number < 0 || number > 1 << 24))
        return ds_fail(err, "position %d is out of range", number);
    return 0;
}

/* One row of both sides: 1 taken, 0 not dumped. */
static int take_row(struct ds_case *c, const struct ds_site_row *const r[DS_SIDES],
                    struct ds_error *err)
{
    struct ds_explain_row *row = &c->e.rows[c->e.n_rows];
    uint64_t digests[DS_SIDES] = {0, 0};
    for (int side = 0; side < DS_SIDES; side++)
        if (r[side]->key.position < 0 || r[side]->key.position > MOST_POSITION)
            return 0;
    for (int side = 0; side < DS_SIDES && c->choice >= 0; side++) {
        int rc = ds_case_same_expert(c, side, &r[side]->key, err);
        c->other_experts += rc == 0;
        if (rc != 1)
            return rc;
    }
    memset(row, 0, sizeof *row);
    for (int side = 0; side < DS_SIDES; side++) {
        float *y;
        struct ds_explain_input *in = &row->input[side];
        int rc = ds_case_values(c, c->f.site, c->side[side].arm, r[side]->digest,
                                c->h->sites[c->f.site].width, &y, err);
        if (rc == 1)
            rc = ds_case_inputs(c, side, &r[c->read_from[side]]->key, in, &digests[side], err);
        if (rc != 1)
            return rc;
        row->y[side] = y;
        if (check_number(c, in->number, err) != 0 ||
            place_row(c, side, r[side], &row->at[side], &in->kv_first, err) != 0)
            return -1;
        in->slot = in->kv_first + r[side]->key.position;
        c->rows[side][c->e.n_rows] = *r[side];
        c->side[side].launch = &c->side[side].t->launches[r[side]->launch];
    }
    if (digests[DS_SIDE_A] != digests[DS_SIDE_B]) {
        c->differing_inputs++;
        if (c->e.n_rows && c->inputs_equal)
            return 0; /* origins are there: only those */
        c->inputs_equal = 0;
    }
    c->e.n_rows++;
    return 1;
}

static int64_t rows_of(const struct ds_case *c, int side, int least)
{
    int64_t v = c->e.rows[0].at[side].rows;
    for (size_t i = 1; i < c->e.n_rows; i++) {
        int64_t r = c->e.rows[i].at[side].rows;
        v = least ? (r < v ? r : v) : (r > v ? r : v);
    }
    return v;
}

static int not_dumped(const struct ds_case *c, struct ds_error *err)
{
    ds_fail(err,
            "layer %d %.24s: the record has no values of both sides and of what the kernel read",
            c->f.layer, c->f.stage);
    return ds_hint(
        err, c->f.arm == c->f.ref_arm
                 ? "repeats of one setting: record with --dump all, and --dump-rows for more rows"
             : c->f.label == DS_LABEL_ORIGIN
                 ? "record with --dump origins (the default), or --dump all"
                 : "its inputs differ already; record with --dump all to have them");
}

/* Rope's table is as long as a sweep makes it (its length is among the arguments), and reaches every
 * row's position. */
static int extend_table(struct ds_case *c, struct ds_error *err)
{
    int64_t need = c->model->hp.context < 8192 ? c->model->hp.context : 8192;
    for (size_t i = 0; i < c->e.n_rows; i++)
        for (int s = 0; s < DS_SIDES; s++)
            if (c->e.rows[i].input[s].number >= need)
                need = (int64_t)c->e.rows[i].input[s].number + 1;
    if (need < 1 || ds_model_rope_table(c->model, need, err) != 0)
        return need < 1 ? ds_fail(err, "the record has no position") : -1;
    c->e.shared.rope.cos_sin = c->model->rope_table;
    c->e.shared.rope.table_positions = c->model->rope_positions;
    return 0;
}

static int take_rows(struct ds_case *c, struct ds_error *err)
{
    struct ds_site_row *rows[DS_SIDES] = {NULL, NULL};
    size_t n[DS_SIDES] = {0, 0};
    int rc = 0;
    c->inputs_equal = 1;
    for (int s = 0; s < DS_SIDES && rc == 0; s++)
        rc = ds_site_rows(c->side[s].t, c->f.site, &rows[s], &n[s], err);
    for (size_t i = 0; i < n[DS_SIDE_B] && rc == 0; i++) {
        const struct ds_site_row *b = &rows[DS_SIDE_B][i],
                                 *a = ds_site_find_row(rows[DS_SIDE_A], n[DS_SIDE_A], &b->key);
        if (!a || a->digest == b->digest)
            continue;
        c->drifting_rows++;
        if (c->e.n_rows == DS_EXPLAIN_MOST_ROWS)
            continue;
        const struct ds_site_row *const pair[DS_SIDES] = {a, b};
        int taken = take_row(c, pair, err);
        c->undumped += taken == 0;
        rc = taken < 0 ? -1 : 0;
    }
    free(rows[0]);
    free(rows[1]);
    return rc;
}

static int saw_drift(const struct ds_trial_data *t, uint32_t site)
{
    for (size_t i = 0; i < t->n_drifts; i++)
        if (t->drifts[i].site == site)
            return 1;
    return 0;
}

static int take_again(struct ds_case *c, const struct ds_trial_data *b, int healed,
                      struct ds_error *err)
{
    c->side[DS_SIDE_B].t = b;
    c->healed = healed;
    c->read_from[DS_SIDE_B] = healed ? DS_SIDE_A : DS_SIDE_B;
    c->e.n_rows = c->drifting_rows = c->undumped = c->differing_inputs = c->other_experts = 0;
    if (c->choice >= 0 && ds_case_bind(c, err) != 0) /* other rows may be dumped there */
        return -1;
    return take_rows(c, err);
}

/* Rows that inherit a difference were healed in another trial of the arm, where the site's own error
 * shows: there its kernel read the reference's rows. Rows that are explained by their own, unlike
 * inputs (with_rows) are kept where no trial healed has any. */
static int take_healed(struct ds_case *c, struct ds_error *err)
{
    const struct ds_trial_data *natural = c->side[DS_SIDE_B].t;
    const int with_rows = c->e.n_rows > 0;
    size_t healed = 0;
    for (size_t i = 0; i < c->s->n_trials && !(c->healed && c->e.n_rows); i++) {
        const struct ds_trial *info = c->s->info(c->s->ctx, i);
        if (info->pass != DS_PASS_HEAL || info->arm != c->f.arm || info->healed_to != c->f.ref_arm)
            continue;
        const struct ds_trial_data *t = c->s->get(c->s->ctx, i, err);
        if (!t)
            return -1;
        healed++;
        if (saw_drift(t, c->f.site) && take_again(c, t, 1, err) != 0)
            return -1;
    }
    if (with_rows && !(c->healed && c->e.n_rows))
        return take_again(c, natural, 0, err);
    if (!healed || c->healed)
        return 0;
    ds_fail(err,
            "layer %d %.24s only inherits: in the pass that was healed, on the reference's inputs, "
            "it gives the reference's bits",
            c->f.layer, c->f.stage);
    return ds_hint(err, "the first drift, and the origins that the verdict counts, have reasons");
}

/* The run's --page-size. */
static int64_t page_size_of(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, "page_size") == 0) {
            long long n = strtoll(h->options[i].value, NULL, 10);
            return n > 0 && n <= 1000000 ? n : 0;
        }
    return 0;
}

int ds_case_load(struct ds_case *c, struct ds_error *err)
{
    c->e.op = ds_op_parse(c->f.op);
    c->e.page_size = page_size_of(c->h);
    if (!ds_explain_knows(c->e.op))
        return ds_fail(err, "layer %d %.24s: %.16s is nothing that can be replayed", c->f.layer,
                       c->f.stage, c->f.op);
    c->e.rows = ds_calloc(DS_EXPLAIN_MOST_ROWS, sizeof *c->e.rows, "rows", err);
    for (int s = 0; s < DS_SIDES && c->e.rows; s++)
        c->rows[s] = ds_calloc(DS_EXPLAIN_MOST_ROWS, sizeof **c->rows, "rows", err);
    if (!c->e.rows || !c->rows[0] || !c->rows[1] || find_trials(c, err) != 0 ||
        ds_case_bind(c, err) != 0)
        return -1;
    /* Which kernel it was must be known before its inputs are read; all rows of a site in a trial
     * are of one variant. */
    for (int s = 0; s < DS_SIDES; s++) {
        struct ds_site_row *rows;
        size_t n;
        if (ds_site_rows(c->side[s].t, c->f.site, &rows, &n, err) != 0)
            return -1;
        if (n)
            c->side[s].launch = &c->side[s].t->launches[rows[0].launch];
        free(rows);
        if (!n)
            return ds_fail(err, "the record has no row of that site in arm %u", c->side[s].arm);
        find_kernel(c, s);
        ds_case_look_for_ranks(c, s);
    }
    if (take_rows(c, err) != 0 ||
        ((c->e.n_rows == 0 || !c->inputs_equal) && take_healed(c, err) != 0))
        return -1;
    if (c->e.n_rows == 0)
        return not_dumped(c, err);
    for (int s = 0; s < DS_SIDES; s++) {
        c->side[s].rows_least = rows_of(c, s, 1);
        c->side[s].rows_most = rows_of(c, s, 0);
    }
    if (c->heads > 1 && ds_case_split_heads(c, err) != 0)
        return -1;
    return c->e.op == DS_OP_ROPE ? extend_table(c, err) : 0;
}

void ds_case_free(struct ds_case *c)
{
    for (size_t i = 0; i < c->n_owned; i++)
        free(c->owned[i]);
    free(c->owned);
    free(c->e.rows);
    free(c->rows[0]);
    free(c->rows[1]);
}
