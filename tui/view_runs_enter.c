/* view_runs_enter.c: Enter in Runs: to the site where a run, a pair of runs or an arm first differs. */
#include "tui/view_runs.h"

#include "dumps/census.h"

enum { VIEW_LAYERS = 1, VIEW_SITE = 2 };

static int go(const struct tui_context *c, uint32_t arm, uint32_t ref, uint32_t site,
              int32_t request, int32_t position, int *next)
{
    c->place->arm = arm;
    c->place->ref = ref;
    c->place->element = 0;
    c->place->row = 0;
    if (site >= c->whole->header->n_sites) {
        *next = VIEW_LAYERS;
        return 2;
    }
    c->place->site = site;
    const struct tui_pair *p = tui_data_pair(c->data, arm, ref, NULL);
    for (size_t i = 0; p && i < p->n_rows; i++)
        if (p->keys[i].request == request && p->keys[i].position == position) {
            c->place->row = i;
            break;
        }
    *next = VIEW_SITE;
    return 2;
}

static const struct ds_census_arm *census_arm(const struct tui_whole *w, uint32_t arm)
{
    const struct ds_census *c = w->verdict ? w->verdict->census : NULL;
    for (size_t i = 0; c && i < c->n_arms; i++)
        if (c->arms[i].arm == arm)
            return &c->arms[i];
    return NULL;
}

/* What an arm is held against: the arm that differs from it in one factor only. */
static uint32_t reference_of(const struct ds_header *h, uint32_t arm)
{
    for (uint32_t f = 0; f < h->n_factors; f++) {
        int64_t ref = ds_arm_reference(h, arm, f);
        if (ref >= 0)
            return (uint32_t)ref;
    }
    return 0;
}

static int drifts(int label)
{
    return label == DS_LABEL_ORIGIN || label == DS_LABEL_INHERITED || label == DS_LABEL_UNKNOWN ||
           label == DS_LABEL_UNSTABLE;
}

/* The first site of an arm that differs from its reference's; where that is still being read, its layers. */
static int go_arm(const struct tui_context *c, uint32_t arm, int *next, struct ds_error *err)
{
    uint32_t ref = reference_of(c->whole->header, arm);
    const char *error;
    if (ref == arm)
        return ds_fail(err, "the other arms are held against this one, and its repeats agree");
    const struct tui_pair *p = tui_data_pair(c->data, arm, ref, &error);
    if (!p && error)
        return ds_fail(err, "%s", error);
    for (uint32_t site = 0; p && site < p->n_sites; site++)
        for (size_t i = 0; i < p->n_rows; i++)
            if (drifts(p->labels[site * p->n_rows + i]))
                return go(c, arm, ref, site, p->keys[i].request, p->keys[i].position, next);
    if (p)
        return ds_fail(err, "no row of it differs from arm %u",
                       ds_report_own_arm(&c->whole->report, ref));
    return go(c, arm, ref, UINT32_MAX, 0, 0, next);
}

static int go_finding(const struct tui_context *c, const struct ds_census_arm *a, int *next)
{
    return go(c, a->arm, a->arm, a->first.found ? a->first.site : UINT32_MAX, a->first.request,
              a->first.position, next);
}

/* An arm whose repeats part is its own reference: where this run leaves the most frequent one. */
static int go_trial(const struct runs_own *o, const struct tui_context *c, uint32_t trial,
                    int *next, struct ds_error *err)
{
    const struct tui_whole *w = c->whole;
    const struct ds_trial *t = w->trials[trial];
    const struct ds_census_arm *a = census_arm(w, t->arm);
    const struct ds_failed_arm *f = runs_failure(w, t);
    if (t->pass == DS_PASS_FAILED)
        return go(c, t->arm, reference_of(w->header, t->arm), f ? f->at->site : UINT32_MAX, 0,
                  f ? f->at->first : 0, next);
    if (t->pass == DS_PASS_HEAL)
        return go(c, t->arm, t->healed_to, UINT32_MAX, 0, 0, next);
    if (!a || a->distinct < 2)
        return go_arm(c, t->arm, next, err);
    uint32_t mine = o->class_of[trial], modal = o->groups[o->group_of[trial]].modal;
    for (uint32_t i = 0; i < a->n_pairs && mine != modal && mine != UINT32_MAX; i++) {
        const struct ds_census_pair *p = &a->pairs[i];
        uint32_t x = runs_class(o, w, t->arm, p->a), y = runs_class(o, w, t->arm, p->b);
        if ((x == mine && y == modal) || (x == modal && y == mine))
            return go(c, t->arm, t->arm, p->site, p->request, p->position, next);
    }
    return go_finding(c, a, next);
}

int runs_enter(const struct tui_view *v, const struct tui_context *c, int *next,
               struct ds_error *err)
{
    const struct runs_own *o = v->own;
    size_t row = tui_table_row(&v->table);
    if (!o || row >= o->n || !runs_whole(o))
        return 1;
    const struct runs_row *r = &o->rows[row];
    const struct ds_verdict *verdict = c->whole->verdict;
    if (r->section == RUNS_TRIALS)
        return go_trial(o, c, r->at, next, err);
    if (r->section == RUNS_LOST) {
        const struct ds_failed_arm *f = &verdict->failed[r->at];
        return go(c, f->arm, f->ref_arm, f->at->site, 0, f->at->first, next);
    }
    if (r->section != RUNS_REPEATS && r->section != RUNS_PAIRS)
        return ds_fail(err, "this line leads nowhere");
    const struct ds_census_arm *a = &verdict->census->arms[r->at];
    if (r->section == RUNS_PAIRS && r->part < a->n_pairs)
        return go(c, a->arm, a->arm, a->pairs[r->part].site, a->pairs[r->part].request,
                  a->pairs[r->part].position, next);
    return a->distinct > 1 ? go_finding(c, a, next) : go_arm(c, a->arm, next, err);
}
