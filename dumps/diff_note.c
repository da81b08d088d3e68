/* diff_note.c: what is listed once two records have been compared: rows without a partner, and how
 * the kernels at the first drift were launched. Judges nothing. */
#include "dumps/diff_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- rows ------------------------------------------------------------------------------------ */

enum { ROW_BOTH = 0, ROW_ONLY_A, ROW_ONLY_B, ROW_APART };

/* Whether some pair has the row on both sides. APART: both sides have it, but never in one pair. */
static int row_sides(const struct ds_diff *d, size_t row)
{
    int seen = 0;
    for (uint32_t p = 0; p < d->pairs; p++) {
        int a = ds_analysis_has_row(d->analysis, 2 * p, row),
            b = ds_analysis_has_row(d->analysis, 2 * p + 1, row);
        if (a && b)
            return ROW_BOTH;
        seen |= a | b << 1;
    }
    return seen == 1 ? ROW_ONLY_A : seen == 2 ? ROW_ONLY_B : ROW_APART;
}

static int note_range(struct ds_diff *d, const struct ds_row_key *first,
                      const struct ds_row_key *last, int sides, struct ds_error *err)
{
    char name[96];
    if (first->position == last->position)
        snprintf(name, sizeof name, "request %d, position %d", first->request, first->position);
    else
        snprintf(name, sizeof name, "request %d, positions %d to %d", first->request,
                 first->position, last->position);
    return diff_add(d, DS_DIFF_ROWS, name, sides != ROW_ONLY_B ? "recorded" : NULL,
                    sides != ROW_ONLY_A ? "recorded" : NULL, err);
}

/* Sites that both records know and only one ever digested in the arms compared. Those that a record
 * does not know are listed already. */
static int note_sites(struct ds_diff *d, struct ds_error *err)
{
    for (uint32_t s = 0; s < d->header.n_sites; s++) {
        int seen[2] = {0, 0};
        char name[DS_SITE_WORDS];
        const struct ds_site *x = &d->header.sites[s];
        for (uint32_t arm = 0; arm < 2 * d->pairs; arm++)
            seen[arm % 2] |= ds_analysis_has_site(d->analysis, arm, s);
        if (seen[0] == seen[1])
            continue;
        ds_site_words(x, name, sizeof name);
        if (d->site_only[s] == 0 && diff_add(d, DS_DIFF_SITE, name, seen[0] ? "recorded" : NULL,
                                             seen[1] ? "recorded" : NULL, err) != 0)
            return -1;
    }
    return 0;
}

/* Repeats are no other work: each trial of one side is held against the other's most frequent digests. */
static int note_repeats(struct ds_diff *d, struct ds_error *err)
{
    const uint32_t of[2] = {ds_analysis_trials(d->analysis, 0), ds_analysis_trials(d->analysis, 1)};
    int alike = d->pairs > 1;
    for (uint32_t arm = 0; arm < 2 * d->pairs; arm++)
        alike &= ds_analysis_trials(d->analysis, arm) == of[arm % 2];
    for (uint32_t p = 0; p < (alike ? 1 : d->pairs); p++) {
        const uint32_t a = ds_analysis_trials(d->analysis, 2 * p),
                       b = ds_analysis_trials(d->analysis, 2 * p + 1);
        char name[200] = "each arm", x[16], y[16];
        if (a == b)
            continue;
        if (!alike)
            ds_analysis_arm_name(d->analysis, 2 * p, name, sizeof name);
        snprintf(x, sizeof x, "%u", a);
        snprintf(y, sizeof y, "%u", b);
        if (diff_add(d, DS_DIFF_REPEATS, name, x, y, err) != 0)
            return -1;
    }
    return 0;
}

int diff_note_rows(struct ds_diff *d, struct ds_error *err)
{
    const struct ds_row_key *first = NULL, *last = NULL;
    int sides = ROW_BOTH;
    size_t n = ds_analysis_rows(d->analysis);
    for (size_t i = 0; i <= n; i++) {
        const struct ds_row_key *key = i < n ? ds_analysis_row(d->analysis, i) : NULL;
        int here = key ? row_sides(d, i) : ROW_BOTH;
        if (first && (here != sides || key->request != last->request ||
                      (int64_t)key->position > (int64_t)last->position + 1)) {
            if (note_range(d, first, last, sides, err) != 0)
                return -1;
            first = NULL;
        }
        if (here != ROW_BOTH) {
            first = first ? first : key;
            last = key;
            sides = here;
        }
    }
    if (note_repeats(d, err) != 0 || note_sites(d, err) != 0)
        return -1;
    for (uint32_t p = 0; p < d->pairs; p++)
        ds_analysis_unpaired(d->analysis, 2 * p, 2 * p + 1, d->unpaired);
    return 0;
}

/* ---- launches -------------------------------------------------------------------------------- */

static int note_text(struct ds_diff *d, const char *name, const char *a, const char *b,
                     struct ds_error *err)
{
    return strcmp(a, b) == 0 ? 0
                             : diff_add(d, DS_DIFF_LAUNCH, name, *a ? a : NULL, *b ? b : NULL, err);
}

static int note_number(struct ds_diff *d, const char *name, int32_t a, int32_t b,
                       struct ds_error *err)
{
    char x[16], y[16];
    if (a == b || a < 0 || b < 0) /* unknown says nothing */
        return 0;
    snprintf(x, sizeof x, "%d", a);
    snprintf(y, sizeof y, "%d", b);
    return diff_add(d, DS_DIFF_LAUNCH, name, x, y, err);
}

/* A tile has one, two or three sizes: the one that counts is called "tile" where it is the only
 * one. */
static int note_tile(struct ds_diff *d, const struct ds_launch *a, const struct ds_launch *b,
                     struct ds_error *err)
{
    int rows = a->tile_rows || b->tile_rows, cols = a->tile_cols || b->tile_cols,
        k = a->tile_k || b->tile_k, one = rows + cols + k == 1;
    int rc = note_number(d, one ? "tile" : "tile rows", a->tile_rows, b->tile_rows, err);
    rc = rc ? rc : note_number(d, one ? "tile" : "tile columns", a->tile_cols, b->tile_cols, err);
    return rc ? rc : note_number(d, one ? "tile" : "tile k", a->tile_k, b->tile_k, err);
}

static const char *core_name(const struct ds_trial *a, const struct ds_trial *b)
{
    return strstr(a->blas_config, "OpenBLAS") && strstr(b->blas_config, "OpenBLAS")
               ? "OpenBLAS core"
               : "BLAS core";
}

static int note_kernel(struct ds_diff *d, const struct ds_launch *a, const struct ds_launch *b,
                       const struct ds_trial *ta, const struct ds_trial *tb, struct ds_error *err)
{
    /* A library's algorithm is called after its core, where it has no name of its own. */
    int core = ta->blas_core[0] && tb->blas_core[0] && strcmp(a->algo, ta->blas_core) == 0 &&
               strcmp(b->algo, tb->blas_core) == 0;
    int rc = note_text(d, "op", a->op, b->op, err);
    rc = rc ? rc : note_text(d, "variant", a->variant, b->variant, err);
    rc = rc ? rc : note_tile(d, a, b, err);
    rc = rc ? rc : note_number(d, "split", a->split, b->split, err);
    if (rc == 0 && a->threads > 0 && b->threads > 0) /* 0: the library does not say */
        rc = note_number(d, "threads", a->threads, b->threads, err);
    return rc ? rc : note_text(d, core ? core_name(ta, tb) : "algorithm", a->algo, b->algo, err);
}

/* How many were seen is a clue where it is not as asked: one side alone had more, or other numbers were asked for and
 * were not at work. A library's idle threads make it vary by one or two, and a busy machine lets fewer do all the
 * work. */
static int seen_tells(const struct ds_trial *a, const struct ds_trial *b)
{
    const int x = ds_threads_used(a), y = ds_threads_used(b);
    if (a->threads_asked != b->threads_asked)
        return x != DS_THREADS_AS_ASKED || y != DS_THREADS_AS_ASKED;
    return (x == DS_THREADS_MORE) != (y == DS_THREADS_MORE);
}

static int note_threads(struct ds_diff *d, const struct ds_trial *a, const struct ds_trial *b,
                        struct ds_error *err)
{
    int rc = note_number(d, "threads asked", a->threads_asked, b->threads_asked, err);
    if (a->threads_max != a->threads_asked || b->threads_max != b->threads_asked)
        rc = rc ? rc : note_number(d, "threads at most", a->threads_max, b->threads_max, err);
    if (seen_tells(a, b))
        rc = rc ? rc : note_number(d, "threads seen", a->threads_seen, b->threads_seen, err);
    return rc;
}

int diff_note_launch(struct ds_diff *d, struct ds_error *err)
{
    const struct ds_finding *f = &d->verdict.first;
    if (!f->found || f->arm == f->ref_arm)
        return 0;
    const struct ds_trial *a = &ds_analysis_trial(d->analysis, f->ref_arm)->info,
                          *b = &ds_analysis_trial(d->analysis, f->arm)->info;
    int rc = f->launch && f->ref_launch ? note_kernel(d, f->ref_launch, f->launch, a, b, err) : 0;
    if (strcmp(f->op, "matmul") == 0 && rc == 0) {
        /* A library's algorithm is called after the core, where it has no other name. */
        int told = f->launch && f->ref_launch && strcmp(f->ref_launch->algo, a->blas_core) == 0 &&
                   strcmp(f->launch->algo, b->blas_core) == 0;
        rc = told ? 0 : note_text(d, core_name(a, b), a->blas_core, b->blas_core, err);
        rc = rc ? rc : note_number(d, "BLAS threads", a->blas_threads, b->blas_threads, err);
    }
    return rc ? rc : note_threads(d, a, b, err);
}
