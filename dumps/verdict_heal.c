/* verdict_heal.c: what heal trials say. In one, every row that drifted from the reference arm was
 * overwritten with its row at once, so a kernel that differs there differs on equal inputs, however
 * deep it stands: an error added, not inherited. Owns the tables of heal trials and their labels; knows
 * nothing of factors.
 *
 * A cell's digest in a heal trial is the one before healing, and the trial's drift entries say what was
 * healed: they, not a comparison with the reference's table, since the rows that were held are of one
 * trial of the reference, and it may be unstable. After its site a healed row counts as equal. Not so
 * where the whole call is read: neighbours are not recorded and nobody heals them, so there natural
 * agreement of the recorded rows is asked for, too. */
#include "dumps/verdict_internal.h"

#include <stdlib.h>
#include <string.h>

const struct heal_table *healed_table(const struct ds_analysis *a, uint32_t arm, uint32_t ref)
{
    for (size_t i = 0; i < a->n_healed; i++)
        if (a->healed[i].arm == arm && a->healed[i].ref == ref)
            return &a->healed[i];
    return NULL;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static struct heal_table *table_for(struct ds_analysis *a, const struct ds_trial *info)
{
    size_t i = 0;
    while (i < a->n_healed &&
           (a->healed[i].arm != info->arm || a->healed[i].ref != info->healed_to))
        i++;
    if (i == a->n_healed)
        a->healed[a->n_healed++] = (struct heal_table){.arm = info->arm, .ref = info->healed_to};
    return &a->healed[i];
}

/* A heal trial of an arm that has no natural one, or whose reference has none, says nothing. */
static int is_of_use(const struct ds_analysis *a, const struct ds_trial *info)
{
    return info->pass == DS_PASS_HEAL && info->healed_to < a->h->n_arms &&
           a->arms[info->arm].n_trials && a->arms[info->healed_to].n_trials;
}

int collect_healed(struct ds_analysis *a, struct ds_error *err)
{
    const struct ds_source *s = a->src;
    size_t n = 0;
    for (size_t i = 0; i < s->n_trials; i++)
        n += is_of_use(a, s->info(s->ctx, i)) != 0;
    if (!(a->healed = ds_calloc(n, sizeof *a->healed, "heal trials", err)))
        return -1;
    for (size_t i = 0; i < s->n_trials; i++)
        if (is_of_use(a, s->info(s->ctx, i)))
            table_for(a, s->info(s->ctx, i))->t.n_trials++;
    for (size_t k = 0; k < a->n_healed; k++) {
        struct arm_table *t = &a->healed[k].t;
        if (!(t->trials = ds_calloc(t->n_trials, sizeof *t->trials, "heal trials", err)) ||
            !(t->hash = ds_calloc(t->n_trials, sizeof *t->hash, "heal trials", err)))
            return -1;
        t->n_trials = 0;
    }
    for (size_t i = 0; i < s->n_trials; i++)
        if (is_of_use(a, s->info(s->ctx, i)))
            table_add_trial(s, &table_for(a, s->info(s->ctx, i))->t, i);
    return 0;
}

/* Marks the cells that some trial of the table healed. */
static int mark_drifts(struct ds_analysis *a, struct heal_table *h, struct ds_error *err)
{
    uint64_t *held = ds_calloc(a->cells, sizeof *held, "healed rows", err);
    int rc = held && (h->drift = ds_calloc(a->cells, 1, "healed rows", err)) ? 0 : -1;
    for (uint32_t k = 0; k < h->t.n_trials && rc == 0; k++) {
        const struct ds_trial_data *d = a->src->get(a->src->ctx, h->t.trials[k], err);
        uint32_t row = NONE;
        rc = d ? 0 : -1;
        for (size_t i = 0; d && i < d->n_drifts; i++) {
            const struct ds_drift *x = &d->drifts[i];
            if (x->site >= a->n_sites || x->row >= d->n_rows || x->ref_arm != h->ref)
                continue;
            row = row_of_key(a, &d->rows[x->row], row == NONE ? 0 : row + 1);
            if (row == NONE)
                continue;
            size_t cell = x->site * a->n_rows + row;
            h->mixed |= h->drift[cell] && held[cell] != x->ref_digest;
            h->drift[cell] = 1;
            held[cell] = x->ref_digest;
        }
    }
    free(held);
    return rc;
}

int fill_healed(struct ds_analysis *a, struct ds_error *err)
{
    for (size_t k = 0; k < a->n_healed; k++)
        if (fill_arm(a, &a->healed[k].t, err) != 0 || mark_drifts(a, &a->healed[k], err) != 0)
            return -1;
    return 0;
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* Whether the row still differs from the reference's after the site: nothing was held for it. */
static int left_alone(const struct heal_table *h, const struct arm_table *r, size_t cell)
{
    return !h->drift[cell] &&
           (h->t.state[cell] == CELL_UNSTABLE ||
            (r->state[cell] == CELL_STABLE && h->t.digest[cell] != r->digest[cell]));
}

static uint8_t label_healed_cell(const struct ds_analysis *a, const struct heal_table *h,
                                 size_t site, size_t cell, uint8_t in, uint8_t bridged)
{
    const uint8_t judged = bridged ? bridged : LABEL_JUDGED;
    const struct arm_table *t = &h->t, *r = &a->arms[h->ref], *own = &a->arms[h->arm];
    if (t->state[cell] == CELL_ABSENT || r->state[cell] == CELL_ABSENT)
        return DS_LABEL_ABSENT;
    size_t k = family(a, t, site, cell);
    int differs = h->drift[cell] || left_alone(h, r, cell);
    if (in == IN_EQUAL && t->state[cell] == CELL_UNSTABLE && !h->mixed)
        return DS_LABEL_UNSTABLE | judged;
    if (!differs)
        return in == IN_EQUAL     ? DS_LABEL_SAME | judged
               : in == IN_DIFFERS ? DS_LABEL_HEALED
                                  : DS_LABEL_SAME;
    if (in != IN_EQUAL)
        return in == IN_DIFFERS ? DS_LABEL_INHERITED : DS_LABEL_UNKNOWN;
    if (own->excluded && (own->excluded[k] || r->excluded[k]))
        return DS_LABEL_UNSTABLE;
    return DS_LABEL_ORIGIN | judged;
}

/* What this site's rows are as inputs of one that reads rows. */
static uint8_t status_after(const struct ds_analysis *a, const struct heal_table *h, size_t cell)
{
    const struct arm_table *t = &h->t, *r = &a->arms[h->ref];
    if (t->state[cell] == CELL_ABSENT || r->state[cell] == CELL_ABSENT)
        return IN_UNKNOWN;
    if (t->state[cell] == CELL_UNSTABLE && !h->drift[cell])
        return IN_UNKNOWN; /* nothing was held for it, and it was not the same in every trial */
    return left_alone(h, r, cell) ? IN_DIFFERS : IN_EQUAL;
}

/* Inputs of a site that reads the whole call: the recorded rows must agree by themselves, here and in
 * the natural trial, or the neighbours probably do not. */
void add_neighbours(struct ds_analysis *a, const struct heal_table *h, size_t from)
{
    const struct arm_table *own = &a->arms[h->arm], *r = &a->arms[h->ref];
    memset(a->call_status, IN_EQUAL, h->t.rep->n_calls);
    for (size_t i = 0; i < a->n_rows; i++) {
        size_t cell = from * a->n_rows + i;
        if (h->t.row[i] == NONE)
            continue;
        if (h->t.state[cell] == CELL_ABSENT || h->drift[cell] || left_alone(h, r, cell) ||
            own->state[cell] != CELL_STABLE || r->state[cell] != CELL_STABLE ||
            own->digest[cell] != r->digest[cell] || is_near(own, r, cell))
            a->call_status[arm_row(&h->t, i)->call] = IN_UNKNOWN;
    }
    for (size_t i = 0; i < a->n_rows; i++)
        if (h->t.row[i] != NONE && a->call_status[arm_row(&h->t, i)->call] > a->inputs[i])
            a->inputs[i] = a->call_status[arm_row(&h->t, i)->call];
}

/* A site that the reference has not cannot be healed: where it is not the same in every trial, what reads
 * it has had no equal inputs. */
static void taint_unhealed(struct ds_analysis *a, const struct heal_table *h, size_t site)
{
    uint8_t *status = a->status + site * a->n_rows;
    for (size_t i = 0; i < a->n_rows; i++)
        if (h->t.state[site * a->n_rows + i] == CELL_UNSTABLE && status[i] < IN_UNKNOWN)
            status[i] = IN_UNKNOWN;
}

void label_healed(struct ds_analysis *a, const struct heal_table *h, uint8_t *labels)
{
    const struct arm_table *t = &h->t, *r = &a->arms[h->ref];
    uint64_t cut = a->tokens_cut;
    const struct pair p = {.t = t, .r = r, .healed = h, .arm = h->arm, .ref = h->ref};
    a->last.known = 0;
    find_skipped(a, &p);
    a->tokens_cut = cut; /* counted when the arms were compared */
    for (size_t site = 0; site < a->n_sites && !is_stopped(a); site++) {
        size_t first = site * a->n_rows;
        const uint8_t bridged = gather_inputs(a, &p, site);
        const int shared = a->open[site] == SITE_SHARED &&
                           (t->has[site] == HAS_CAPTURES || r->has[site] == HAS_CAPTURES);
        if (a->open[site] != SITE_SHARED) {
            pass_through(a, site, labels);
            taint_unhealed(a, h, site);
        }
        for (size_t i = 0; a->open[site] == SITE_SHARED && i < a->n_rows; i++) {
            labels[first + i] = a->skip[i] || !shared ? DS_LABEL_ABSENT
                                                      : label_healed_cell(a, h, site, first + i,
                                                                          a->inputs[i], bridged);
            a->status[first + i] = a->skip[i] ? IN_UNKNOWN : status_after(a, h, first + i);
        }
        if (a->feeds_causal[site])
            fill_prefix(a, &p, site);
    }
}

void label_unstable(struct ds_analysis *a, const struct heal_table *h, uint8_t *labels)
{
    label_healed(a, h, labels);
    for (size_t cell = 0; cell < a->cells; cell++)
        if ((labels[cell] & LABEL_MASK) == DS_LABEL_UNSTABLE)
            labels[cell] = DS_LABEL_ORIGIN | LABEL_JUDGED;
}

/* ---- two arms healed to the same reference --------------------------------------------------- */

/* labels: where `arm` had the inputs of `base`, judged, and what it gave then: in its heal trial, or,
 * where it never drifted from base, in its natural one. Returns that table. */
static const struct arm_table *view_of(struct ds_analysis *a, uint32_t arm, uint32_t base,
                                       uint8_t *labels)
{
    const struct heal_table *h = healed_table(a, arm, base);
    if (h) {
        label_healed(a, h, labels);
        return &h->t;
    }
    uint64_t shapes = a->shape_mismatch, tokens = a->tokens_cut;
    label_pair(a, arm, base, labels);
    a->shape_mismatch = shapes;
    a->tokens_cut = tokens;
    return &a->arms[arm];
}

/* What both gave on equal inputs, by the bits that were recorded; with a tolerance, by the values. */
static uint8_t hold_against(const struct ds_analysis *a, const struct arm_table *mine,
                            const struct arm_table *theirs, size_t cell)
{
    uint64_t x = mine->digest[cell], y = theirs->digest[cell];
    if (mine->near && mine->near[cell] && !recorded_digest(a, mine, cell, &x))
        return DS_LABEL_ABSENT;
    if (theirs->near && theirs->near[cell] && !recorded_digest(a, theirs, cell, &y))
        return DS_LABEL_ABSENT;
    const int within =
        x == y || !a->options.within ? 0 : a->options.within(a->options.within_ctx, y, x);
    return x == y       ? DS_LABEL_SAME | LABEL_JUDGED
           : within < 0 ? DS_LABEL_ABSENT
           : within     ? DS_LABEL_WITHIN | LABEL_JUDGED
                        : DS_LABEL_ORIGIN | LABEL_JUDGED;
}

/* base, ref_base: to which arm and ref were healed; the same one, or two that agree in every row. */
static int judge_both(struct ds_analysis *a, uint32_t arm, uint32_t base, uint32_t ref,
                      uint32_t ref_base, uint8_t *labels, uint8_t *other)
{
    if (!healed_table(a, arm, base) && !healed_table(a, ref, ref_base))
        return 0;
    const struct arm_table *mine = view_of(a, arm, base, labels),
                           *theirs = view_of(a, ref, ref_base, other);
    for (size_t cell = 0; cell < a->cells; cell++) {
        uint8_t x = labels[cell], y = other[cell];
        int judged = x & y & LABEL_JUDGED && (x & LABEL_MASK) != DS_LABEL_UNSTABLE &&
                     (y & LABEL_MASK) != DS_LABEL_UNSTABLE;
        labels[cell] = judged ? hold_against(a, mine, theirs, cell) : DS_LABEL_ABSENT;
    }
    return 1;
}

int judge_healed_pair(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint32_t base,
                      uint8_t *labels, uint8_t *other)
{
    const uint32_t *to = a->options.healed_to;
    if (to)
        return to[arm] != NONE && to[ref] != NONE &&
               judge_both(a, arm, to[arm], ref, to[ref], labels, other);
    if (base == ref) {
        const struct heal_table *h = healed_table(a, arm, ref);
        if (h)
            label_healed(a, h, labels);
        return h != NULL;
    }
    return !a->arms[base].unstable_cells && judge_both(a, arm, base, ref, base, labels, other);
}

int ds_analysis_healed(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint8_t **out,
                       struct ds_error *err)
{
    const struct heal_table *h = healed_table(a, arm, ref);
    *out = NULL;
    if (!h)
        return 0;
    if (!(*out = ds_calloc(a->cells, 1, "labels", err)))
        return -1;
    label_healed(a, h, *out);
    for (size_t i = 0; i < a->cells; i++) {
        uint8_t label = (*out)[i] & LABEL_MASK;
        (*out)[i] =
            label == DS_LABEL_UNSTABLE || (*out)[i] & LABEL_JUDGED ? label : DS_LABEL_ABSENT;
    }
    return 1;
}
