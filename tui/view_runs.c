/* view_runs.c: Runs: every trial, what the repeats of each arm gave, which of them part where, and what was lost.
 * view_runs_cells.c is what its rows say. */
#include "tui/view_runs.h"

#include "base/mem.h"
#include "dumps/census.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which runs are alike -------------------------------------------------------------------- */

static int compare_trials(const void *pa, const void *pb, void *ctx)
{
    const struct ds_trial *const *trials = ctx;
    const uint32_t i = *(const uint32_t *)pa, k = *(const uint32_t *)pb;
    const struct ds_trial *a = trials[i], *b = trials[k];
    const uint32_t x[] = {a->arm, a->pass, a->healed_to, a->repeat, i};
    const uint32_t y[] = {b->arm, b->pass, b->healed_to, b->repeat, k};
    for (size_t f = 0; f < sizeof x / sizeof *x; f++)
        if (x[f] != y[f])
            return x[f] < y[f] ? -1 : 1;
    return 0;
}

struct run_seen {
    uint64_t digest;
    uint32_t at, n; /* place in the group where it came first; how often it did */
    uint32_t class_of;
};

static int compare_digests(const void *pa, const void *pb)
{
    const struct run_seen *a = pa, *b = pb;
    if (a->digest != b->digest)
        return a->digest < b->digest ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static int compare_places(const void *pa, const void *pb)
{
    const struct run_seen *a = pa, *b = pb;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Letters in the order in which runs came. `seen` has room for all of them. */
static void class_group(struct runs_own *o, const struct tui_whole *w, struct runs_group *g,
                        struct run_seen *seen)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++)
        seen[i] = (struct run_seen){w->trials[o->order[g->first + i]]->run_digest, i, 1, 0};
    qsort(seen, g->n, sizeof *seen, compare_digests);
    for (uint32_t i = 0; i < g->n; i++) {
        if (n && seen[n - 1].digest == seen[i].digest)
            seen[n - 1].n++;
        else
            seen[n++] = seen[i];
    }
    qsort(seen, n, sizeof *seen, compare_places);
    uint32_t most = 0;
    for (uint32_t c = 0; c < n; c++) {
        seen[c].class_of = c;
        if (seen[c].n > most) {
            most = seen[c].n;
            g->modal = c;
        }
    }
    g->classes = n;
    qsort(seen, n, sizeof *seen, compare_digests);
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t trial = o->order[g->first + i], lo = 0, hi = n;
        while (hi - lo > 1) {
            uint32_t mid = lo + (hi - lo) / 2;
            if (seen[mid].digest <= w->trials[trial]->run_digest)
                lo = mid;
            else
                hi = mid;
        }
        o->class_of[trial] = seen[lo].class_of;
    }
}

static int same_group(const struct ds_trial *a, const struct ds_trial *b)
{
    return a->arm == b->arm && a->pass == b->pass && a->healed_to == b->healed_to;
}

static int has_digests(const struct ds_trial *t)
{
    return t->pass == DS_PASS_NATURAL || t->pass == DS_PASS_HEAL;
}

static int group_trials(struct runs_own *o, const struct tui_whole *w, struct ds_error *err)
{
    size_t n = w->n_trials;
    o->n_trials = n;
    o->order = ds_calloc(n, sizeof *o->order, "runs", err);
    o->class_of = ds_calloc(n, sizeof *o->class_of, "runs", err);
    o->group_of = ds_calloc(n, sizeof *o->group_of, "runs", err);
    o->groups = ds_calloc(n, sizeof *o->groups, "runs", err);
    struct run_seen *seen = ds_calloc(n, sizeof *seen, "runs", err);
    if (!o->order || !o->class_of || !o->group_of || !o->groups || !seen) {
        free(seen);
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        o->order[i] = (uint32_t)i;
    qsort_r(o->order, n, sizeof *o->order, compare_trials, (void *)(uintptr_t)w->trials);
    for (size_t i = 0; i < n; i++) {
        const struct ds_trial *t = w->trials[o->order[i]];
        if (i == 0 || !same_group(t, w->trials[o->order[i - 1]]))
            o->groups[o->n_groups++].first = (uint32_t)i;
        o->groups[o->n_groups - 1].n++;
        o->group_of[o->order[i]] = (uint32_t)(o->n_groups - 1);
        o->class_of[o->order[i]] = UINT32_MAX;
    }
    for (size_t g = 0; g < o->n_groups; g++)
        if (has_digests(w->trials[o->order[o->groups[g].first]]))
            class_group(o, w, &o->groups[g], seen);
    free(seen);
    return 0;
}

/* ---- which rows there are -------------------------------------------------------------------- */

static int add_row(struct runs_own *o, int section, int kind, size_t at, size_t part,
                   struct ds_error *err)
{
    if (ds_grow(&o->rows, &o->cap, o->n + 1, sizeof *o->rows, "runs", err))
        return -1;
    o->rows[o->n++] = (struct runs_row){.at = (uint32_t)at,
                                        .part = (uint32_t)part,
                                        .section = (uint8_t)section,
                                        .kind = (uint8_t)kind};
    return 0;
}

static int add_rows(struct runs_own *o, int section, int heading, int kind, size_t n,
                    struct ds_error *err)
{
    if (n && add_row(o, section, heading, 0, 0, err))
        return -1;
    for (size_t i = 0; i < n; i++)
        if (add_row(o, section, kind, i, 0, err))
            return -1;
    return 0;
}

static int add_pairs(struct runs_own *o, const struct ds_census *c, struct ds_error *err)
{
    int any = 0;
    for (size_t i = 0; i < c->n_arms; i++) {
        const struct ds_census_arm *a = &c->arms[i];
        if (a->n_pairs && !any++ && add_row(o, RUNS_PAIRS, TUI_ROW_HEADS, 0, 0, err))
            return -1;
        for (uint32_t p = 0; p < a->n_pairs; p++)
            if (add_row(o, RUNS_PAIRS, TUI_ROW, i, p, err))
                return -1;
        if (a->of_pairs > a->n_pairs && a->n_pairs &&
            add_row(o, RUNS_PAIRS, TUI_ROW_TEXT, i, RUNS_ALL_PAIRS, err))
            return -1;
    }
    return 0;
}

static int make_rows(struct runs_own *o, const struct tui_whole *w, struct ds_error *err)
{
    const struct ds_verdict *v = w->verdict;
    const struct ds_census *c = v ? v->census : NULL;
    if (add_rows(o, RUNS_TRIALS, TUI_ROW_HEADS, TUI_ROW, w->n_trials, err))
        return -1;
    if (c && (add_rows(o, RUNS_REPEATS, TUI_ROW_HEADS, TUI_ROW, c->n_arms, err) ||
              add_pairs(o, c, err) ||
              add_rows(o, RUNS_SIZES, TUI_ROW_SECTION, TUI_ROW_TEXT, c->n_thresholds, err)))
        return -1;
    if (!v)
        return w->n_trials ? add_row(o, RUNS_WHY, TUI_ROW_TEXT, 0, 0, err) : 0;
    return add_rows(o, RUNS_LOST, TUI_ROW_HEADS, TUI_ROW, v->n_failed, err);
}

static void empty(struct runs_own *o)
{
    free(o->rows);
    free(o->order);
    free(o->class_of);
    free(o->group_of);
    free(o->groups);
    memset(o, 0, sizeof *o);
}

static void free_own(struct tui_view *v)
{
    if (v->own)
        empty(v->own);
    free(v->own);
    v->own = NULL;
}

/* ---- heading lines --------------------------------------------------------------------------- */

static void count_passes(const struct tui_whole *w, size_t n[4])
{
    for (size_t i = 0; i < w->n_trials; i++)
        n[w->trials[i]->pass < 4 ? w->trials[i]->pass : 3]++;
}

static void head_counts(struct tui_view *v, const struct tui_whole *w)
{
    size_t n[4] = {0};
    struct ds_buf b = {0};
    count_passes(w, n);
    ds_buf_printf(&b, "%zu arm%s, %zu trial%s", w->header->n_arms,
                  w->header->n_arms == 1 ? "" : "s", n[DS_PASS_NATURAL],
                  n[DS_PASS_NATURAL] == 1 ? "" : "s");
    if (!w->diff)
        ds_buf_printf(&b, " (%u planned an arm)", w->header->repeats);
    if (n[DS_PASS_HEAL])
        ds_buf_printf(&b, ", %zu heal", n[DS_PASS_HEAL]);
    if (n[DS_PASS_BARE])
        ds_buf_printf(&b, ", %zu without probes", n[DS_PASS_BARE]);
    if (n[DS_PASS_FAILED])
        ds_buf_printf(&b, ", %zu lost", n[DS_PASS_FAILED]);
    if (w->incomplete)
        ds_buf_printf(&b, "; %zu incomplete", w->incomplete);
    if (w->damaged)
        ds_buf_printf(&b, "; %zu damaged", w->damaged);
    tui_view_head(v, 0, w->damaged || n[DS_PASS_FAILED] ? TUI_ERROR : TUI_PLAIN, "%s",
                  b.data && !b.failed ? b.data : "");
    ds_buf_free(&b);
}

static void head_repeats(struct tui_view *v, const struct ds_verdict *verdict)
{
    const struct ds_unstable *u = &verdict->unstable;
    double excluded = 0;
    const struct ds_census *c = verdict->census;
    for (size_t i = 0; c && i < c->n_arms; i++)
        excluded = c->arms[i].excluded > excluded ? c->arms[i].excluded : excluded;
    if (!c || !c->n_arms)
        tui_view_head(v, 1, TUI_PLAIN, "no arm has two trials: repeats say nothing here");
    else if (u->arms)
        tui_view_head(v, 1, TUI_UNSTABLE,
                      "repeats disagree in %u arm%s: %u of %u trials with the mode, %.3g %% (%.3g "
                      "to %.3g %%)",
                      u->arms, u->arms == 1 ? "" : "s", u->disagree, u->trials,
                      u->trials ? 100.0 * u->disagree / u->trials : 0.0, 100 * u->low,
                      100 * u->high);
    else
        tui_view_head(
            v, 1, TUI_SAME,
            "all repeats agree; a flake rate above %.3g %% of an arm's trials is excluded "
            "at 95 %%",
            100 * excluded);
}

/* ---- loading --------------------------------------------------------------------------------- */

static int load(struct tui_view *v, const struct tui_context *c, char why[256])
{
    struct ds_error err = {.msg = ""};
    const struct tui_whole *w = c->whole;
    struct runs_own *o = v->own;
    if (!w->header)
        return TUI_WAITING;
    if (o && v->seen == w->generation)
        return o->n ? TUI_READY : TUI_EMPTY;
    if (!o && !(v->own = o = ds_calloc(1, sizeof *o, "runs", &err)))
        return snprintf(why, 256, "%.250s", err.msg), TUI_EMPTY;
    struct runs_own made = {.data = c->data, .generation = w->generation};
    struct tui_source source;
    int rc = group_trials(&made, w, &err) || make_rows(&made, w, &err);
    size_t row = tui_table_row(&v->table);
    /* The table asks for cells while it takes over its source. */
    struct runs_own before = *o;
    *o = made;
    runs_source(o, &source);
    if (rc || tui_view_heads(v, w->verdict ? 2 : 1) || tui_table_source(&v->table, &source, &err)) {
        empty(o);
        *o = before;
        snprintf(why, 256, "%.250s", err.msg[0] ? err.msg : "out of memory");
        return TUI_EMPTY;
    }
    tui_table_keep(&v->table, row, before.rows, before.n, o->rows, o->n, sizeof *o->rows);
    empty(&before);
    head_counts(v, w);
    if (w->verdict)
        head_repeats(v, w->verdict);
    v->seen = w->generation;
    v->at = *c->place;
    if (o->n)
        return TUI_READY;
    snprintf(why, 256, w->live ? "no trial is complete yet" : "the record holds no complete trial");
    return TUI_EMPTY;
}

static void want(const struct tui_view *v, const struct tui_context *c, struct tui_want *out)
{
    (void)c;
    *out = (struct tui_want){.head_lines = v->n_head};
}

/* ---- keys -------------------------------------------------------------------------------- */

static int request(struct tui_view *v, const struct tui_context *c, int request, int *next,
                   struct ds_error *err)
{
    switch (request) {
    case TUI_ENTER:
        return runs_enter(v, c, next, err);
    case TUI_NEXT_LAYER:
    case TUI_PREVIOUS_LAYER:
        return tui_view_section(v, request == TUI_NEXT_LAYER ? 1 : -1, err);
    default:
        return 0;
    }
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* The record that the row under the cursor is of. */
static void command(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    const struct ds_report *r = &c->whole->report;
    const struct runs_own *o = v->own;
    size_t row = tui_table_row(&v->table);
    uint32_t arm = 0;
    if (!r->path)
        return;
    if (o && row < o->n && runs_whole(o)) {
        const struct runs_row *at = &o->rows[row];
        arm = at->section == RUNS_TRIALS ? c->whole->trials[at->at]->arm
              : at->section == RUNS_LOST ? c->whole->verdict->failed[at->at].arm
              : at->section == RUNS_REPEATS || at->section == RUNS_PAIRS
                  ? c->whole->verdict->census->arms[at->at].arm
                  : 0;
    }
    ds_report_command(r->caller, "show", NULL, out);
    ds_buf_quote(out, r->path_b && arm % 2 ? r->path_b : r->path);
    ds_buf_puts(out, " --runs --long");
}

static void status(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    const struct ds_verdict *verdict = c->whole->verdict;
    size_t agree = 0, part = 0;
    (void)v;
    if (!verdict) {
        ds_buf_puts(out, c->whole->error ? "no verdict" : "verdict being made");
        return;
    }
    for (size_t i = 0; verdict->census && i < verdict->census->n_arms; i++)
        *(verdict->census->arms[i].distinct > 1 ? &part : &agree) += 1;
    ds_buf_printf(out, "arms: %zu stable, %zu unstable", agree, part);
    if (verdict->n_failed)
        ds_buf_printf(out, ", %zu lost", verdict->n_failed);
}

const struct tui_view_ops tui_view_runs = {
    .name = "runs",
    .hints = "enter next-drift filter-prompt sort-next command",
    .load = load,
    .want = want,
    .request = request,
    .command = command,
    .status = status,
    .free_own = free_own,
};
