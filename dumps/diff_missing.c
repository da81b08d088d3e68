/* diff_missing.c: the work of one record that the other lacks. Owns the rule which of it makes "nothing differs"
 * no answer: equal as far as both go is not equal.
 *
 * Missing are arms, layers and rows that one side does not have; rows after which both were fed other tokens; sites
 * that a side knows and did not digest; and of a site that it does not know, or has not at a row, what shows in
 * nothing behind it that both have at that row and that is compared (--only, --ignore). Not missing are: what a fused kernel, ranks or a transfer make and
 * another way of computing has not, where what follows from it is compared; padding rows; positions and lengths;
 * what is only recomputed beside a kernel; and what only serves the choice of a token at a row where the other side
 * made none (logits exist where they are needed, and a prefix hit has none). */
#include "dumps/diff_internal.h"
#include "dumps/verdict_internal.h"

#include "base/plural.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct work {
    struct ds_diff *d;
    struct ds_analysis *a;
    const struct ds_header *h[2];
    uint8_t *
        covered; /* [cells] of the pair at work: both have it, or something of the row behind it that is compared */
    uint8_t *counts; /* [n_sites] its digests are a kernel's and were asked for */
    uint8_t *choice; /* [n_sites] no other row reads what follows from it */
    uint8_t *seen;   /* [n_sites] of the pair: covered at some row */
    uint8_t *has[2]; /* [n_sites], by place: the side digested the stage in some pair */
    uint8_t *sites;  /* [n_sites] bit 1 << side: something of it is missing on the other */
    uint8_t *rows;   /* [n_rows] the same; bit 2: fed with other tokens */
};

enum { PARTED = 4 };

static int has_cell(const struct arm_table *t, size_t cell)
{
    return t->state[cell] != CELL_ABSENT;
}

static void mark_sites(struct work *w)
{
    struct ds_analysis *a = w->a;
    for (uint32_t s = 0; s < a->n_sites; s++) {
        const struct ds_site *x = &a->h->sites[s];
        w->counts[s] = !ds_site_recomputed(x) && strcmp(x->op, "schedule") != 0 &&
                       !(w->d->ignored && w->d->ignored[s]);
        w->choice[s] = 1;
        for (uint32_t arm = 0; arm < 2 * w->d->pairs; arm++)
            w->has[arm % 2][a->place_of[s]] |= (uint8_t)ds_analysis_has_site(a, arm, s);
    }
    for (size_t s = a->n_sites; s-- > 0;)
        for (uint32_t e = a->in_start[s]; e < a->in_start[s + 1]; e++)
            if (a->in_from[e] < s)
                w->choice[a->in_from[e]] &= a->in_kind[e] == DS_EDGE_ROW && w->choice[s];
}

static void cover(struct work *w, const struct arm_table *t, const struct arm_table *r)
{
    struct ds_analysis *a = w->a;
    const size_t rows = a->n_rows;
    memset(w->covered, 0, a->cells);
    for (size_t s = a->n_sites; s-- > 0;) {
        uint8_t *here = w->covered + s * rows;
        const int compared = !(w->d->ignored && w->d->ignored[s]);
        w->seen[s] = 0;
        for (size_t i = 0; i < rows; i++) {
            const size_t cell = s * rows + i;
            here[i] |= compared && !a->skip[i] && has_cell(t, cell) && has_cell(r, cell);
            w->seen[s] |= here[i];
        }
        for (uint32_t e = a->in_start[s]; e < a->in_start[s + 1]; e++) {
            uint8_t *from = w->covered + (size_t)a->in_from[e] * rows;
            for (size_t i = 0; a->in_from[e] < s && i < rows; i++)
                from[i] |= here[i];
        }
    }
}

/* Whether a layer of the joined sites is one that the side does not have at all. */
static int lacks_layer(const struct work *w, int side, int32_t layer)
{
    return w->h[side]->n_layers > 0 && layer >= w->h[side]->n_layers &&
           layer < w->d->header.n_layers;
}

static int is_missing(const struct work *w, int side, size_t s, size_t cell)
{
    const int other = !side, knows = w->d->site_only[s] != side + 1;
    if (lacks_layer(w, other, w->a->h->sites[s].layer) ||
        (knows && !w->has[other][w->a->place_of[s]]))
        return 1;
    return !w->covered[cell] && !(w->choice[s] && (w->seen[s] || w->has[other][w->a->place_of[s]]));
}

/* What the arm of `side` has at row i. */
static void count_row(struct work *w, const struct arm_table *mine, const struct arm_table *other,
                      int side, size_t i)
{
    const struct ds_analysis *a = w->a;
    if (mine->row[i] == NONE || mine->rep->rows[mine->row[i]].kind == DS_ROW_PAD)
        return;
    const int there = other->row[i] != NONE;
    for (size_t s = 0; s < a->n_sites; s++) {
        const size_t cell = s * a->n_rows + i;
        if (!w->counts[s] || !has_cell(mine, cell))
            continue;
        if (there && a->skip[i])
            w->rows[i] |= PARTED;
        else if (!there)
            w->rows[i] |= (uint8_t)(1 << side);
        else if (!has_cell(other, cell) && is_missing(w, side, s, cell))
            w->sites[s] |= (uint8_t)(1 << side);
    }
}

static void count_pair(struct work *w, uint32_t p)
{
    struct ds_analysis *a = w->a;
    const struct arm_table *t = &a->arms[2 * p], *r = &a->arms[2 * p + 1];
    const struct pair pair = {.t = r, .r = t, .arm = 2 * p + 1, .ref = 2 * p};
    const uint64_t cut = a->tokens_cut;
    if (!t->n_trials || !r->n_trials)
        return;
    find_skipped(a, &pair);
    a->tokens_cut = cut; /* counted when the pair was compared */
    cover(w, t, r);
    for (size_t i = 0; i < a->n_rows; i++) {
        count_row(w, t, r, 0, i);
        count_row(w, r, t, 1, i);
    }
}

/* ---- in words -------------------------------------------------------------------------------- */

static void say(char *text, size_t size, size_t *at, const char *lead, uint64_t n, const char *what,
                const char *first)
{
    if (!n || *at >= size)
        return;
    int k = snprintf(text + *at, size - *at, "%s%" PRIu64 " %s%s (%s%s)", lead, n, what,
                     ds_plural((long long)n), n > 1 ? "from " : "", first);
    *at += k > 0 ? (size_t)k : 0;
}

static void row_name(const struct work *w, int bits, char *text, size_t size)
{
    size_t i = 0;
    while (i + 1 < w->a->n_rows && !(w->rows[i] & bits))
        i++;
    const struct ds_row_key *k = ds_analysis_row(w->a, i);
    snprintf(text, size, "request %d, position %d", k ? k->request : 0, k ? k->position : 0);
    if (k && k->occurrence)
        snprintf(text + strlen(text), size - strlen(text), " again");
}

static void site_name(const struct work *w, int side, int layers, char *text, size_t size)
{
    for (uint32_t s = 0; s < w->a->n_sites; s++) {
        const struct ds_site *x = &w->a->h->sites[s];
        if (!(w->sites[s] & 1 << side) || lacks_layer(w, !side, x->layer) != layers)
            continue;
        if (layers)
            snprintf(text, size, "layer %d", x->layer);
        else
            ds_site_words(x, text, size);
        return;
    }
}

/* Of a long name as many factors as fit: a value that ends in its middle is another value. */
static void put_arm(const char *name, char *text, size_t size)
{
    enum { MOST = 70 };
    size_t n = strlen(name);
    if (n > MOST)
        for (n = MOST; n && strncmp(name + n, ", ", 2) != 0;)
            n--;
    snprintf(text, size, "%.*s%s", (int)(n ? n : MOST), name, name[n] && n ? ", ..." : "");
}

/* The first arm without a partner that has a complete trial, or has none. */
static void arm_name(const struct ds_diff *d, int side, int made, char *text, size_t size)
{
    text[0] = '\0';
    for (size_t i = 0; i < d->n_items && !text[0]; i++) {
        const struct ds_diff_item *x = &d->items[i];
        const char *why = side ? x->b : x->a;
        if (x->kind == DS_DIFF_ARM && why && (strcmp(why, diff_no_trial) != 0) == made)
            put_arm(x->name, text, size);
    }
}

static void put_words(struct work *w)
{
    struct ds_diff *d = w->d;
    char *text = d->missing_words, name[DS_SITE_WORDS + 16];
    const size_t size = sizeof d->missing_words;
    size_t at = 0;
    for (int side = 0; side < 2; side++) {
        const struct ds_missing *m = &d->missing[side];
        const size_t start = at;
        char lead[32];
        snprintf(lead, sizeof lead, "%smissing in %c: ", at ? "; " : "", side ? 'A' : 'B');
        arm_name(d, side, 1, name, sizeof name);
        say(text, size, &at, lead, m->arms, "arm", name);
        site_name(w, side, 1, name, sizeof name);
        say(text, size, &at, at == start ? lead : ", ", m->layers, "layer", name);
        row_name(w, 1 << side, name, sizeof name);
        say(text, size, &at, at == start ? lead : ", ", m->rows, "row", name);
        site_name(w, side, 0, name, sizeof name);
        say(text, size, &at, at == start ? lead : ", ", m->sites, "site", name);
    }
    for (int side = 0; side < 2; side++) {
        char lead[48];
        snprintf(lead, sizeof lead, "%swithout a complete trial in %c: ", at ? "; " : "",
                 side ? 'B' : 'A');
        arm_name(d, side, 0, name, sizeof name);
        if (d->missing[!side].arms == 0) /* else it may be one of these */
            say(text, size, &at, lead, d->unmade[side], "arm", name);
    }
    row_name(w, PARTED, name, sizeof name);
    if (d->parted && at < size)
        snprintf(text + at, size - at, "%s%" PRIu64 " row%s fed with other tokens (%s%s)",
                 at ? "; " : "", d->parted, ds_plural((long long)d->parted),
                 d->parted > 1 ? "from " : "", name);
}

static void count(struct work *w)
{
    struct ds_diff *d = w->d;
    for (int side = 0; side < 2; side++) {
        struct ds_missing *m = &d->missing[side];
        int32_t last = -2;
        for (size_t i = 0; i < w->a->n_rows; i++)
            m->rows += w->rows[i] >> side & 1;
        for (size_t s = 0; s < w->a->n_sites; s++) {
            const int32_t layer = w->a->h->sites[s].layer;
            if (!(w->sites[s] >> side & 1))
                continue;
            const int whole = lacks_layer(w, !side, layer);
            m->layers += whole && layer != last;
            m->sites += !whole;
            last = layer;
        }
        d->partial |= d->unmade[side] || m->arms || m->rows || m->layers || m->sites;
    }
    for (size_t i = 0; i < w->a->n_rows; i++)
        d->parted += (w->rows[i] & PARTED) != 0;
    d->partial |= d->parted != 0;
}

static int work_begin(struct work *w, struct ds_error *err)
{
    struct ds_analysis *a = w->a;
    const size_t n = a->n_sites;
    a->last.known = 0; /* its scratch is used */
    w->covered = a->status;
    return (w->counts = ds_calloc(n, 1, "sites", err)) &&
                   (w->choice = ds_calloc(n, 1, "sites", err)) &&
                   (w->seen = ds_calloc(n, 1, "sites", err)) &&
                   (w->has[0] = ds_calloc(n, 1, "sites", err)) &&
                   (w->has[1] = ds_calloc(n, 1, "sites", err)) &&
                   (w->sites = ds_calloc(n, 1, "sites", err)) &&
                   (w->rows = ds_calloc(a->n_rows, 1, "rows", err))
               ? 0
               : -1;
}

static void work_end(struct work *w)
{
    free(w->counts);
    free(w->choice);
    free(w->seen);
    free(w->has[0]);
    free(w->has[1]);
    free(w->sites);
    free(w->rows);
}

int diff_missing(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
                 struct ds_error *err)
{
    struct work w = {.d = d, .a = d->analysis, .h = {a->header, b->header}};
    if (!d->unpaired[0] && !d->unpaired[1] && !d->alone[0] && !d->alone[1] &&
        !d->analysis->tokens_cut)
        return 0;
    int rc = work_begin(&w, err);
    if (rc == 0) {
        mark_sites(&w);
        for (uint32_t p = 0; p < d->pairs; p++)
            count_pair(&w, p);
        count(&w);
        put_words(&w);
    }
    work_end(&w);
    return rc;
}
