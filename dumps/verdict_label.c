/* verdict_label.c: origin, inherited or healed, for every cell of one arm against another, and
 * which kernels are unstable.
 *
 * The rule that keeps an unstable kernel from being blamed on a factor: a modal digest of a row
 * whose repeats disagree is chance, so such a cell, and every difference that has such a cell among
 * its differing inputs, is labelled unstable. A row that agreed in all repeats of both arms is
 * evidence whatever stands above it.
 *
 * With a tolerance an output counts as differing only beyond it, but its inputs by their bits: what has grown
 * out of differences that the tolerance excuses is no origin.
 *
 * A site that one of the two arms never captured is no wall: what is known of its inputs stands for
 * it, row by row, so that a kernel's inputs are the nearest sites that both have. A difference found
 * across such a gap is an origin, but of the gap, not of the kernel alone: it is marked. */
#include "dumps/verdict_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Expected disagreements below which an arm that showed none does not count as free of a kernel's
 * instability. */
#define ENOUGH_EXPECTED 5.0
/* Chance of agreeing trials above which their agreement may be luck. */
#define LUCK 0.02

static const uint8_t status_of_label[] = {
    [DS_LABEL_ABSENT] = IN_UNKNOWN,  [DS_LABEL_SAME] = IN_EQUAL,
    [DS_LABEL_HEALED] = IN_EQUAL,    [DS_LABEL_WITHIN] = IN_NEAR,
    [DS_LABEL_ORIGIN] = IN_DIFFERS,  [DS_LABEL_INHERITED] = IN_DIFFERS,
    [DS_LABEL_UNKNOWN] = IN_DIFFERS, [DS_LABEL_UNSTABLE] = IN_TAINTED,
};

/* Rows that cannot be compared: absent on a side, or after a token that is not the same on both. */
void find_skipped(struct ds_analysis *a, const struct pair *p)
{
    const struct arm_table *t = p->t, *r = p->r;
    const uint32_t arm = p->arm, ref = p->ref;
    int32_t request = 0, until = INT32_MAX;
    int vary = arm != ref && prompts_vary(a);
    int known = 0, alike = t == r || (!vary && fed_alike(t, r));
    for (size_t i = 0; i < a->n_rows; i++) {
        a->skip[i] = t->row[i] == NONE || r->row[i] == NONE;
        if (alike || a->skip[i])
            continue;
        int by_place = vary && a->keys[i].request == 0;
        if (!known || a->keys[i].request != request) {
            request = a->keys[i].request;
            until = by_place ? parted_at(a, arm, ref) : fed_until(t, r, request);
            known = 1;
        }
        if (by_place ? place_in_stream(a, arm, arm_row(t, i)) >= until ||
                           place_in_stream(a, ref, arm_row(r, i)) >= until
                     : arm_row(t, i)->step > until) {
            a->skip[i] = 1;
            a->tokens_cut++;
        }
    }
}

/* prefix[row] = worst status of the rows of the same request up to it. A row that neither side
 * recorded says nothing; one that only one side has makes the rest unknown, unless it is padding, which
 * nobody reads. */
void fill_prefix(const struct ds_analysis *a, const struct pair *p, size_t site)
{
    const struct arm_table *t = p->t, *r = p->r;
    const uint8_t *status = a->status + site * a->n_rows;
    uint8_t *prefix = a->prefix + site * a->n_rows, worst = IN_EQUAL;
    int open = a->open[site] != SITE_SHARED;
    for (size_t i = 0; i < a->n_rows; i++) {
        if (i == 0 || a->keys[i].request != a->keys[i - 1].request)
            worst = IN_EQUAL;
        size_t cell = site * a->n_rows + i;
        int here = open ? t->row[i] != NONE : t->state[cell] != CELL_ABSENT,
            there = open ? r->row[i] != NONE : r->state[cell] != CELL_ABSENT;
        int pad = (here || there) && arm_row(here ? t : r, i)->kind == DS_ROW_PAD;
        if (here && there && !pad && status[i] > worst)
            worst = status[i];
        if (here != there && !pad && worst < IN_UNKNOWN)
            worst = IN_UNKNOWN;
        prefix[i] = worst;
    }
}

/* Inputs read by the whole call: equal only if every recorded row of it agrees. */
static void add_whole_call(struct ds_analysis *a, const struct arm_table *t, size_t from)
{
    memset(a->call_status, IN_EQUAL, t->rep->n_calls);
    for (size_t i = 0; i < a->n_rows; i++) {
        uint8_t s = a->status[from * a->n_rows + i];
        if (t->row[i] == NONE)
            continue;
        if (s == IN_DIFFERS || s == IN_NEAR)
            s = IN_UNKNOWN; /* which row mattered is not known */
        uint8_t *c = &a->call_status[arm_row(t, i)->call];
        *c = s > *c ? s : *c;
    }
    for (size_t i = 0; i < a->n_rows; i++)
        if (t->row[i] != NONE && a->call_status[arm_row(t, i)->call] > a->inputs[i])
            a->inputs[i] = a->call_status[arm_row(t, i)->call];
}

static void add_input(struct ds_analysis *a, const struct pair *p, uint32_t edge)
{
    const size_t from = a->in_from[edge];
    if (a->in_kind[edge] != DS_EDGE_ROW && a->in_kind[edge] != DS_EDGE_CAUSAL) {
        if (p->healed)
            add_neighbours(a, p->healed, from);
        else
            add_whole_call(a, p->t, from);
        return;
    }
    const uint8_t *in =
        (a->in_kind[edge] == DS_EDGE_ROW ? a->status : a->prefix) + from * a->n_rows;
    for (size_t i = 0; i < a->n_rows; i++)
        a->inputs[i] = in[i] > a->inputs[i] ? in[i] : a->inputs[i];
}

/* Notes the places at which both arms captured an input of `site`, for stands_beside. */
static void note_places(const struct ds_analysis *a, size_t site)
{
    const uint64_t look = ++a->beside[a->n_sites];
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++)
        if (a->open[a->in_from[e]] == SITE_SHARED)
            a->beside[a->place_of[a->in_from[e]]] = look;
}

/* Whether another input of the site whose places were noted is the same stage and was captured by both
 * arms: the stage before its rows were rounded, beside the rounded one. Then nothing of it is missing. */
static int stands_beside(const struct ds_analysis *a, size_t from)
{
    return a->beside[a->place_of[from]] == a->beside[a->n_sites];
}

/* Whether `from` is a part of the place `site` itself: a partial sum of a rank, their sum, a value
 * before rounding. To lack it is no gap. */
static int same_place(const struct ds_analysis *a, size_t from, size_t site)
{
    const struct ds_site *x = &a->h->sites[from], *y = &a->h->sites[site];
    return x->layer == y->layer &&
           (strcmp(x->stage, y->stage) == 0 || strcmp(x->part, y->stage) == 0 ||
            strcmp(x->stage, y->part) == 0);
}

/* known: how many of the site's inputs say something. */
static uint8_t site_of_pair(const struct ds_analysis *a, const struct pair *p, size_t site,
                            uint32_t known)
{
    if (both_have(p->t, p->r, site))
        return SITE_SHARED;
    if (!known)
        return SITE_LOST;
    /* What other arms of the record have and these two have not is no part of their pass. */
    return p->t->has[site] || p->r->has[site] || !a->shown[site] ? SITE_GAP : SITE_OPEN;
}

uint8_t gather_inputs(struct ds_analysis *a, const struct pair *p, size_t site)
{
    uint8_t bridged = 0;
    uint32_t known = 0;
    memset(a->inputs, IN_EQUAL, a->n_rows);
    note_places(a, site);
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++) {
        size_t from = a->in_from[e];
        if (a->open[from] == SITE_LOST || (a->open[from] != SITE_SHARED && stands_beside(a, from)))
            continue;
        known++;
        if (a->open[from] == SITE_GAP || (a->open[from] == SITE_OPEN && a->gap[from]))
            bridged |= a->gap[from] || !same_place(a, from, site) ? LABEL_BRIDGED : 0;
        add_input(a, p, e);
    }
    if (!known && a->in_start[site + 1] > a->in_start[site])
        memset(a->inputs, IN_UNKNOWN, a->n_rows); /* it has inputs, and none of them is known */
    a->open[site] = site_of_pair(a, p, site, known);
    a->gap[site] = bridged != 0;
    return bridged;
}

static uint8_t label_cell(struct ds_analysis *a, const struct arm_table *t,
                          const struct arm_table *r, size_t site, size_t cell, uint8_t in,
                          uint8_t bridged)
{
    uint8_t judged = bridged ? bridged : LABEL_JUDGED;
    if (t->state[cell] == CELL_ABSENT || r->state[cell] == CELL_ABSENT)
        return DS_LABEL_ABSENT;
    int differs;
    if (t == r) {
        differs = t->state[cell] == CELL_UNSTABLE;
    } else {
        if (t->state[cell] == CELL_UNSTABLE || r->state[cell] == CELL_UNSTABLE)
            return DS_LABEL_UNSTABLE;
        differs = t->digest[cell] != r->digest[cell];
        const int own = t->has[site] == HAS_CAPTURES && r->has[site] == HAS_CAPTURES;
        if (differs && own &&
            t->rep->captures[t->capture[cell]].width != r->rep->captures[r->capture[cell]].width) {
            a->shape_mismatch++;
            return DS_LABEL_ABSENT;
        }
    }
    if (!differs && is_near(t, r, cell))
        return in == IN_EQUAL ? DS_LABEL_WITHIN | judged : DS_LABEL_WITHIN;
    if (!differs)
        return in == IN_DIFFERS || in == IN_NEAR ? DS_LABEL_HEALED
               : in == IN_EQUAL                  ? DS_LABEL_SAME | judged
                                                 : DS_LABEL_SAME;
    if (in == IN_TAINTED)
        return DS_LABEL_UNSTABLE;
    if (in == IN_DIFFERS)
        return DS_LABEL_INHERITED;
    if (in == IN_NEAR)
        return DS_LABEL_INHERITED | LABEL_NEAR;
    if (t != r && (t->excluded[family(a, t, site, cell)] || r->excluded[family(a, r, site, cell)]))
        return DS_LABEL_UNSTABLE;
    return in == IN_EQUAL ? DS_LABEL_ORIGIN | judged : DS_LABEL_UNKNOWN;
}

void pass_through(struct ds_analysis *a, size_t site, uint8_t *labels)
{
    uint8_t *status = a->status + site * a->n_rows;
    memset(labels + site * a->n_rows, DS_LABEL_ABSENT, a->n_rows);
    for (size_t i = 0; i < a->n_rows; i++)
        status[i] = a->skip[i] ? IN_UNKNOWN : a->inputs[i];
}

static void label_all(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint8_t *labels)
{
    const struct arm_table *t = &a->arms[arm], *r = &a->arms[ref];
    const struct pair p = {.t = t, .r = r, .arm = arm, .ref = ref};
    a->last.known = 0;
    find_skipped(a, &p);
    for (size_t site = 0; site < a->n_sites && !is_stopped(a); site++) {
        size_t first = site * a->n_rows;
        const uint8_t bridged = gather_inputs(a, &p, site);
        const int neither = t->has[site] != HAS_CAPTURES && r->has[site] != HAS_CAPTURES;
        if (a->open[site] != SITE_SHARED)
            pass_through(a, site, labels);
        for (size_t i = 0; a->open[site] == SITE_SHARED && i < a->n_rows; i++) {
            uint8_t label = a->skip[i]
                                ? DS_LABEL_ABSENT
                                : label_cell(a, t, r, site, first + i, a->inputs[i], bridged);
            labels[first + i] = neither ? DS_LABEL_ABSENT : label;
            a->status[first + i] = status_of_label[label & LABEL_MASK];
        }
        if (a->feeds_causal[site])
            fill_prefix(a, &p, site);
    }
}

void label_pair(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint8_t *labels)
{
    label_all(a, arm, ref, labels);
    for (size_t site = 0; a->options.ignored && site < a->n_sites; site++)
        if (is_ignored(a, site))
            memset(labels + site * a->n_rows, DS_LABEL_ABSENT, a->n_rows);
}

uint32_t sites_between(const struct ds_analysis *a, uint32_t site, uint32_t *first)
{
    uint32_t n = 0;
    uint8_t *marks = a->marks;
    memset(marks, 0, a->n_sites);
    marks[site] = 1;
    *first = site;
    for (size_t s = (size_t)site + 1; s-- > 0;) {
        if (marks[s])
            note_places(a, s);
        for (uint32_t e = a->in_start[s]; marks[s] && e < a->in_start[s + 1]; e++)
            if (a->open[a->in_from[e]] != SITE_SHARED && !stands_beside(a, a->in_from[e]))
                marks[a->in_from[e]] = 1;
        if (marks[s] && s != site && a->open[s] != SITE_OPEN) {
            n++;
            *first = (uint32_t)s;
        }
    }
    return n;
}

struct evidence { /* of one family, over all arms that show its instability */
    uint64_t unstable, judged;
    double pairs, agree; /* of trials; only of arms with three or more: two that show it disagree */
    int seen;
};

/* A kernel that is unstable in one arm may agree with itself in another by luck, and then a
 * difference between the two arms would look like drift. An arm counts as free of it only if, at
 * the rate seen elsewhere, it should have shown it. Two rates count: of digests, where each row has
 * its own luck; and of trials, where one choice decides a whole pass (a race between two orders, a
 * choice by timing), so that a thousand agreeing digests are one lucky event. */
static void suspect(struct ds_analysis *a, const struct evidence *all, const uint64_t *mine)
{
    for (size_t i = 0; i < a->h->n_arms; i++) {
        struct arm_table *t = &a->arms[i];
        for (size_t k = 0; t->n_trials && k < a->n_families; k++) {
            if (!all[k].seen || t->excluded[k])
                continue;
            double here = (double)mine[i * a->n_families + k];
            double rate = all[k].judged ? (double)all[k].unstable / (double)all[k].judged : 1.0;
            double alike = (all[k].agree + 1.0) / (all[k].pairs + 2.0);
            if (!(rate * here >= ENOUGH_EXPECTED))
                t->excluded[k] = here > 0 ? EXCLUDED_LUCK : EXCLUDED_ABSENT;
            else if (!(pow(alike, (double)t->n_trials - 1) <= LUCK))
                t->excluded[k] = EXCLUDED_LUCK;
        }
    }
}

/* What each trial of the arm gave where a kernel disagrees with itself on stable inputs, as one
 * hash for each family: hash[family][trial]. */
static int hash_trials(const struct ds_analysis *a, const struct arm_table *t,
                       const uint8_t *labels, uint64_t *hash, struct ds_error *err)
{
    for (uint32_t k = 0; k < t->n_trials; k++) {
        const struct ds_trial_data *d = a->src->get(a->src->ctx, t->trials[k], err);
        if (!d)
            return -1;
        for (size_t i = 0; i < d->n_captures; i++) {
            const struct ds_capture *c = &d->captures[i];
            uint32_t row = NONE;
            for (uint32_t j = 0; j < c->rows; j++) {
                row = row_of_key(a, &d->rows[c->first_row + j], row == NONE ? 0 : row + 1);
                size_t cell = c->site * a->n_rows + row;
                if (row == NONE || (labels[cell] & LABEL_MASK) != DS_LABEL_ORIGIN)
                    continue;
                uint64_t x =
                    (d->digests[c->first_digest + j] ^ cell) * UINT64_C(0xff51afd7ed558ccd);
                hash[family(a, t, c->site, cell) * t->n_trials + k] += x ^ x >> 32;
            }
        }
    }
    return 0;
}

/* Pairs of trials of an arm, and those that agree in all of a family. */
static int count_pairs(const struct ds_analysis *a, const struct arm_table *t,
                       const uint8_t *labels, struct evidence *all, struct ds_error *err)
{
    size_t n = t->n_trials, cells;
    if (n < 3)
        return 0;
    if (__builtin_mul_overflow(a->n_families, n, &cells))
        return ds_fail(err, "record: too many trials and kernels");
    uint64_t *hash = ds_calloc(cells, sizeof *hash, "trials", err);
    int rc = hash ? hash_trials(a, t, labels, hash, err) : -1;
    for (size_t k = 0; rc == 0 && k < a->n_families; k++) {
        const uint64_t *h = hash + k * n;
        double agree = 0, pairs = (double)n * (double)(n - 1) / 2;
        for (size_t x = 0; x < n; x++)
            for (size_t y = 0; y < x; y++)
                agree += h[x] == h[y];
        if (agree == pairs)
            continue; /* not unstable here */
        all[k].pairs += pairs;
        all[k].agree += agree;
    }
    free(hash);
    return rc;
}

/* A disagreement of family k in this arm, at a cell. fresh: not counted yet. */
static void blame(struct ds_analysis *a, struct arm_table *t, size_t k, size_t cell, int fresh,
                  struct evidence *all)
{
    t->excluded[k] = EXCLUDED_SEEN;
    a->kernel_unstable[k / a->n_stages] |= !is_ignored(a, cell / a->n_rows);
    all[k].seen = 1;
    all[k].unstable += fresh != 0;
}

/* Heal trials of one arm as further repeats, all on equal inputs: those healed to the arm's own rows
 * must give them, those healed to another arm's must agree with each other, and where the natural
 * trial had that arm's inputs by itself, with it. natural: labels of the arm's repeats. */
static void count_healed(struct ds_analysis *a, const struct heal_table *h, const uint8_t *natural,
                         uint8_t *labels, struct evidence *all, uint64_t *mine)
{
    struct arm_table *t = &a->arms[h->arm];
    int own = h->arm == h->ref;
    label_healed(a, h, labels);
    for (size_t cell = 0; cell < a->cells && (own || h->t.n_trials > 1); cell++) {
        uint8_t label = labels[cell] & LABEL_MASK, before = natural[cell];
        if (label != DS_LABEL_UNSTABLE && !(labels[cell] & LABEL_JUDGED))
            continue;
        size_t k = family(a, &h->t, cell / a->n_rows, cell);
        if (!(before & LABEL_JUDGED)) {
            mine[k]++;
            a->kernel_repeats[h->t.kernel[cell]]++;
        }
        if (label == DS_LABEL_UNSTABLE ? own || labels[cell] & LABEL_JUDGED
                                       : own && label == DS_LABEL_ORIGIN)
            blame(a, t, k, cell, (before & LABEL_MASK) != DS_LABEL_ORIGIN, all);
    }
}

/* One arm's repeats: mine[family] = digests judged on stable inputs. */
static int count_repeats(struct ds_analysis *a, uint32_t arm, uint8_t *labels, uint8_t *healed,
                         struct evidence *all, uint64_t *mine, struct ds_error *err)
{
    struct arm_table *t = &a->arms[arm];
    int shown = 0;
    label_all(a, arm, arm, labels);
    for (size_t cell = 0; cell < a->cells; cell++) {
        uint8_t label = labels[cell] & LABEL_MASK;
        if (label == DS_LABEL_ABSENT)
            continue;
        size_t k = family(a, t, cell / a->n_rows, cell);
        if (labels[cell] & LABEL_JUDGED) {
            mine[k]++;
            a->kernel_repeats[t->kernel[cell]]++;
        }
        if (label != DS_LABEL_ORIGIN && label != DS_LABEL_UNKNOWN)
            continue;
        blame(a, t, k, cell, label == DS_LABEL_ORIGIN && labels[cell] & LABEL_JUDGED, all);
        shown = 1;
    }
    for (size_t i = 0; i < a->n_healed; i++)
        if (a->healed[i].arm == arm)
            count_healed(a, &a->healed[i], labels, healed, all, mine);
    for (size_t k = 0; k < a->n_families; k++)
        all[k].judged += t->excluded[k] ? mine[k] : 0;
    return shown ? count_pairs(a, t, labels, all, err) : 0;
}

int find_unstable_kernels(struct ds_analysis *a, uint8_t *labels, struct ds_error *err)
{
    size_t n;
    if (__builtin_mul_overflow(a->h->n_arms, a->n_families, &n))
        return ds_fail(err, "record: too many arms and kernels");
    uint64_t *mine = ds_calloc(n, sizeof *mine, "kernel repeats", err);
    struct evidence *all = ds_calloc(a->n_families, sizeof *all, "kernel repeats", err);
    uint8_t *healed = ds_calloc(a->cells, 1, "labels", err);
    int rc = mine && all && healed ? 0 : -1;
    for (uint32_t i = 0; rc == 0 && i < a->h->n_arms; i++)
        if (a->arms[i].n_trials >= 2)
            rc = count_repeats(a, i, labels, healed, all, mine + i * a->n_families, err);
    if (rc == 0)
        suspect(a, all, mine);
    free(healed);
    free(mine);
    free(all);
    return rc;
}

int ds_analysis_labels(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint8_t **out,
                       struct ds_error *err)
{
    if (arm >= a->h->n_arms || ref >= a->h->n_arms || !a->arms[arm].n_trials ||
        !a->arms[ref].n_trials)
        return ds_fail(err, "arm %u or %u has no complete trial", arm, ref);
    uint8_t *labels = ds_calloc(a->cells, 1, "labels", err);
    if (!labels)
        return -1;
    const uint8_t *known = a->options.ignored ? NULL : last_labels(a, arm, ref, err);
    if (!known)
        label_all(a, arm, ref, labels);
    for (size_t i = 0; i < a->cells; i++)
        labels[i] = (known ? known[i] : labels[i]) & LABEL_MASK;
    *out = labels;
    return 0;
}
