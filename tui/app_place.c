/* app_place.c: the place that all views share (arm, reference, site, row), and the stack of views. */
#include "tui/app.h"

#include <string.h>

/* ---- the stack ------------------------------------------------------------------------------- */

struct tui_view *tui_app_view(struct tui_app *a)
{
    return &a->views[a->stack[a->depth - 1].view];
}

static void keep(struct tui_app *a, const struct tui_place *left)
{
    struct tui_stop *s = &a->stack[a->depth - 1];
    const struct tui_table *t = &a->views[s->view].table;
    s->place = *left;
    s->cursor = t->cursor;
    s->top = t->top;
    s->column = t->column;
    s->pan = t->pan;
}

void tui_app_open(struct tui_app *a, int view, int beside, const struct tui_place *left)
{
    if (a->stack[a->depth - 1].view == view)
        return;
    keep(a, left);
    a->drawn = 0;
    if (beside && a->depth > 1)
        a->depth--;
    if (beside && a->stack[a->depth - 1].view == view) {
        a->entered = 1;
        return;
    }
    if (a->depth == TUI_STACK) { /* forgets the oldest but the first */
        memmove(a->stack + 1, a->stack + 2, (TUI_STACK - 2) * sizeof a->stack[0]);
        a->depth--;
    }
    a->stack[a->depth++] = (struct tui_stop){.view = view};
    a->entered = 1;
    a->given_up = 0;
}

int tui_app_back(struct tui_app *a)
{
    if (a->depth == 1)
        return 0;
    int help = a->stack[a->depth - 1].view == TUI_HELP_VIEW;
    struct tui_place now = a->place;
    a->depth--;
    if (!help)
        a->place = a->stack[a->depth - 1].place;
    /* How things are shown is no place. */
    a->place.metric = now.metric;
    a->place.number = now.number;
    a->entered = 2;
    a->given_up = 0;
    a->drawn = 0;
    return 1;
}

/* ---- arms ------------------------------------------------------------------------------------ */

static int has_trials(const struct tui_whole *w, uint32_t arm)
{
    for (size_t i = 0; i < w->n_trials; i++)
        if (w->trials[i]->arm == arm && w->trials[i]->pass == DS_PASS_NATURAL)
            return 1;
    return 0;
}

/* What an arm is compared with: the arm that differs in one factor only; else the arm itself, which compares its
 * repeats. */
static uint32_t own_ref(const struct tui_whole *w, uint32_t arm)
{
    const struct ds_header *h = w->header;
    const struct ds_verdict *v = w->verdict;
    for (size_t f = 0; v && f < v->n_factors; f++) {
        const struct ds_finding *first = &v->factors[f].phase[DS_VERDICT_ALL].first;
        if (first->found && first->arm == arm)
            return first->ref_arm;
    }
    for (size_t f = 0; f < h->n_factors; f++) {
        int64_t ref = ds_arm_reference(h, arm, (uint32_t)f);
        if (ref >= 0 && has_trials(w, (uint32_t)ref))
            return (uint32_t)ref;
    }
    return arm;
}

int tui_app_go_arm(struct tui_app *a, int64_t arm, struct ds_error *err)
{
    const struct ds_header *h = a->whole->header;
    if (!h)
        return ds_fail(err, "no record yet");
    if (arm < 0 || (uint64_t)arm >= h->n_arms)
        return ds_fail(err, "there is no arm %lld: the record has 0 to %zu", (long long)arm,
                       h->n_arms - 1);
    if (!has_trials(a->whole, (uint32_t)arm))
        return ds_fail(err, "arm %lld has no complete trial", (long long)arm);
    a->place.arm = (uint32_t)arm;
    a->place.ref = own_ref(a->whole, (uint32_t)arm);
    a->placed = 3;
    a->drawn = 0;
    return 0;
}

int tui_app_go_ref(struct tui_app *a, int64_t ref, struct ds_error *err)
{
    const struct ds_header *h = a->whole->header;
    if (!h)
        return ds_fail(err, "no record yet");
    if (ref < 0 || (uint64_t)ref >= h->n_arms)
        return ds_fail(err, "there is no arm %lld: the record has 0 to %zu", (long long)ref,
                       h->n_arms - 1);
    if (!has_trials(a->whole, (uint32_t)ref))
        return ds_fail(err, "arm %lld has no complete trial", (long long)ref);
    a->place.ref = (uint32_t)ref;
    a->placed = 3;
    a->drawn = 0;
    return 0;
}

/* ---- where it begins ------------------------------------------------------------------------- */

static void at_finding(struct tui_app *a, const struct ds_finding *f)
{
    a->place.arm = f->arm;
    a->place.ref = f->ref_arm;
    a->place.site = f->site;
    a->seek = 1;
    a->seek_request = f->request;
    a->seek_position = f->position;
}

static void guess(struct tui_app *a)
{
    const struct tui_whole *w = a->whole;
    for (uint32_t arm = 0; arm < w->header->n_arms; arm++) {
        uint32_t ref = has_trials(w, arm) ? own_ref(w, arm) : arm;
        if (ref != arm || (arm == 0 && has_trials(w, 0))) {
            a->place.arm = arm;
            a->place.ref = ref;
        }
        if (ref != arm)
            return;
    }
}

/* What the command line asks for. */
static void as_asked(struct tui_app *a)
{
    struct ds_error err;
    if ((a->o->arm >= 0 && tui_app_go_arm(a, a->o->arm, &err) != 0) ||
        (a->o->ref >= 0 && tui_app_go_ref(a, a->o->ref, &err) != 0) ||
        (a->o->site && tui_app_go_site(a, a->o->site, &err) != 0))
        tui_app_say_error(a, &err);
}

static void find_row(struct tui_app *a)
{
    const struct tui_pair *p = tui_data_pair(a->data, a->place.arm, a->place.ref, NULL);
    if (!p)
        return;
    for (size_t i = 0; i < p->n_rows; i++)
        if (p->keys[i].request == a->seek_request && p->keys[i].position == a->seek_position) {
            a->place.row = i;
            break;
        }
    a->seek = 0;
}

void tui_app_begin(struct tui_app *a)
{
    const struct tui_whole *w = a->whole;
    if (!w->header)
        return;
    if (a->place.site >= w->header->n_sites)
        a->place.site = 0;
    if (a->place.arm >= w->header->n_arms || a->place.ref >= w->header->n_arms)
        a->place.arm = a->place.ref = 0;
    /* While a record is followed, the first drift may turn out to be another one. */
    const struct ds_finding *f = w->verdict ? &w->verdict->first : NULL;
    int other = f && f->found &&
                (f->arm != a->begun.arm || f->ref_arm != a->begun.ref || f->site != a->begun.site);
    if (f && (a->placed < 2 || (a->placed == 2 && other))) {
        a->begun = (struct tui_place){.arm = f->arm, .ref = f->ref_arm, .site = f->site};
        if (f->found)
            at_finding(a, f);
        else
            guess(a);
        a->placed = 2;
        as_asked(a);
    } else if (a->placed == 0 && w->n_trials) {
        guess(a);
        a->placed = 1;
    }
    if (a->seek)
        find_row(a);
}

void tui_app_first_drift(struct tui_app *a)
{
    const struct ds_verdict *v = a->whole->verdict;
    if (!v)
        tui_app_say(a, TUI_PLAIN,
                    a->whole->error ? "there is no verdict" : "the verdict is being made");
    else if (!v->first.found)
        tui_app_say(a, TUI_PLAIN, "nothing drifts in this record");
    else
        at_finding(a, &v->first);
}

/* ---- moving about ---------------------------------------------------------------------------- */

int tui_app_go_site(struct tui_app *a, const char *text, struct ds_error *err)
{
    uint32_t site;
    if (!a->whole->header)
        return ds_fail(err, "no record yet");
    if (ds_report_find_site(a->whole->header, "goto", text, &site, err) != 0)
        return -1;
    a->place.site = site;
    a->placed = 3;
    a->drawn = 0;
    return 0;
}

/* The next layer's site of the same stage and part; where it has none, its first one. */
static void go_layer(struct tui_app *a, int step)
{
    const struct ds_header *h = a->whole->header;
    const struct ds_site *now = &h->sites[a->place.site];
    int64_t layer = INT64_MAX, best = -1, same = -1;
    for (size_t i = 0; i < h->n_sites; i++) { /* the nearest layer on that side */
        int64_t away = ((int64_t)h->sites[i].layer - now->layer) * step;
        if (away > 0 && away < layer)
            layer = away;
    }
    for (size_t i = 0; i < h->n_sites && layer != INT64_MAX; i++) {
        const struct ds_site *s = &h->sites[i];
        if (s->layer != now->layer + layer * step)
            continue;
        best = best < 0 ? (int64_t)i : best;
        if (strcmp(s->stage, now->stage) == 0 && strcmp(s->part, now->part) == 0)
            same = (int64_t)i;
    }
    if (best < 0)
        tui_app_say(a, TUI_PLAIN, step > 0 ? "this is the last layer" : "this is the first layer");
    else
        a->place.site = (uint32_t)(same >= 0 ? same : best);
}

static int on_site(const struct tui_pair *p, uint32_t site, size_t row)
{
    return site < p->n_sites && p->labels[(size_t)site * p->n_rows + row] != DS_LABEL_ABSENT;
}

static void go_row(struct tui_app *a, int step)
{
    const char *error = NULL;
    const struct tui_pair *p = tui_data_pair(a->data, a->place.arm, a->place.ref, &error);
    if (!p) {
        tui_app_say(a, TUI_PLAIN, "%s", error ? error : "reading ...");
        return;
    }
    size_t row = a->place.row < p->n_rows ? a->place.row : 0;
    while (step > 0 ? row + 1 < p->n_rows : row > 0) {
        row = step > 0 ? row + 1 : row - 1;
        if (on_site(p, a->place.site, row)) {
            a->place.row = row;
            return;
        }
    }
    tui_app_say(a, TUI_PLAIN,
                step > 0 ? "this is the last row of the site"
                         : "this is the first row of the site");
}

static void go_next_arm(struct tui_app *a, int step, int reference)
{
    const struct tui_whole *w = a->whole;
    int64_t n = (int64_t)w->header->n_arms, arm = reference ? a->place.ref : a->place.arm;
    struct ds_error err;
    for (int64_t i = 1; i < n; i++) {
        int64_t next = (arm + step * i + n * (i / n + 1)) % n;
        if (!has_trials(w, (uint32_t)next))
            continue;
        if (reference)
            tui_app_go_ref(a, next, &err);
        else
            tui_app_go_arm(a, next, &err);
        return;
    }
    tui_app_say(a, TUI_PLAIN, "the record has no other arm");
}

int tui_app_move_place(struct tui_app *a, int request)
{
    if (!a->whole->header || !a->whole->header->n_sites)
        return 0;
    switch (request) {
    case TUI_NEXT_LAYER:
    case TUI_PREVIOUS_LAYER:
        go_layer(a, request == TUI_NEXT_LAYER ? 1 : -1);
        break;
    case TUI_NEXT_ROW:
    case TUI_PREVIOUS_ROW:
        go_row(a, request == TUI_NEXT_ROW ? 1 : -1);
        break;
    case TUI_NEXT_ARM:
    case TUI_PREVIOUS_ARM:
        go_next_arm(a, request == TUI_NEXT_ARM ? 1 : -1, 0);
        break;
    case TUI_SWAP:
        go_next_arm(a, 1, 1);
        break;
    default:
        return 0;
    }
    a->placed = 3;
    return 1;
}
