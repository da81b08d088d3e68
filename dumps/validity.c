/* validity.c: see validity.h. What can be told from digests alone: equal rows are equal digests, and
 * the digest of a row of zeros, of poison or of one NaN can be computed. */
#include "dumps/validity.h"

#include "dumps/census.h"
#include "dumps/verdict_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

/* Rows that must agree before they count as a constant. */
enum { FEW_ROWS = 4 };

const char *ds_validity_name(int kind)
{
    static const char *const names[DS_VALIDITY_KINDS] = {
        "all-zero",         "constant",       "poisoned", "all-nan",        "equal-layers",
        "equals-its-input", "probes-disturb", "warm-up",  "unlike-history", "inert-fixture"};
    return kind >= 0 && kind < DS_VALIDITY_KINDS ? names[kind] : "unknown";
}

void ds_validity_free(struct ds_validity *v)
{
    if (!v)
        return;
    free(v->items);
    free(v->proves_nothing);
    free(v);
}

/* ---- patterns -------------------------------------------------------------------------------- */

static int digest_cmp(const void *pa, const void *pb)
{
    uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return (a > b) - (a < b);
}

struct patterns {
    uint32_t width;
    uint64_t zero[2], poison; /* rows of 4 and of 2 bytes an element; f32 */
};

struct work {
    struct ds_analysis *a;
    struct ds_validity *v;
    struct patterns *patterns;
    size_t n_patterns, cap_patterns;
    uint64_t *nan; /* digests of rows that are NaN throughout, ascending */
    size_t n_nan, cap_nan, cap_items;
    uint8_t *copied; /* [n_sites] */
};

static const struct patterns *patterns_of(struct work *w, uint32_t width, struct ds_error *err)
{
    enum { MOST = 1 << 22 };
    for (size_t i = 0; i < w->n_patterns; i++)
        if (w->patterns[i].width == width)
            return &w->patterns[i];
    if (width > MOST || ds_grow(&w->patterns, &w->cap_patterns, w->n_patterns + 1,
                                sizeof *w->patterns, "patterns", err) != 0)
        return NULL;
    uint32_t *row = ds_calloc(width, sizeof *row, "a row", err);
    if (!row)
        return NULL;
    struct patterns *p = &w->patterns[w->n_patterns++];
    p->width = width;
    p->zero[0] = XXH3_64bits(row, (size_t)width * 4);
    p->zero[1] = XXH3_64bits(row, (size_t)width * 2);
    for (uint32_t i = 0; i < width; i++)
        row[i] = DS_POISON_BITS;
    p->poison = XXH3_64bits(row, (size_t)width * 4);
    free(row);
    return p;
}

static const struct ds_capture *capture_of(const struct arm_table *t, size_t cell)
{
    return &t->rep->captures[t->capture[cell]];
}

/* Digests of rows that the probes saw to be NaN throughout. */
static int collect_nan(struct work *w, struct ds_error *err)
{
    const struct ds_analysis *a = w->a;
    for (uint32_t arm = 0; arm < a->h->n_arms; arm++) {
        const struct arm_table *t = &a->arms[arm];
        for (size_t i = 0; t->n_trials && i < t->rep->n_nonfinites; i++) {
            const struct ds_nonfinite *n = &t->rep->nonfinites[i];
            if (n->site >= a->n_sites || n->row >= t->rep->n_rows)
                continue;
            uint32_t row = row_of_key(a, &t->rep->rows[n->row], n->row);
            if (row == NONE)
                continue;
            size_t cell = n->site * a->n_rows + row;
            if (t->state[cell] == CELL_ABSENT || n->nan == 0 ||
                n->nan != capture_of(t, cell)->width)
                continue;
            if (ds_grow(&w->nan, &w->cap_nan, w->n_nan + 1, sizeof *w->nan, "digests", err) != 0)
                return -1;
            w->nan[w->n_nan++] = t->digest[cell];
        }
    }
    if (w->n_nan)
        qsort(w->nan, w->n_nan, sizeof *w->nan, digest_cmp);
    return 0;
}

static int is_nan(const struct work *w, uint64_t digest)
{
    return w->n_nan && bsearch(&digest, w->nan, w->n_nan, sizeof digest, digest_cmp);
}

/* ---- one site of one arm --------------------------------------------------------------------- */

enum { IS_ZERO = 1, IS_CONSTANT = 2, IS_POISON = 4, IS_NAN = 8, HAS_POISON = 16 };

static int is_whole_number(const struct ds_analysis *a, size_t site)
{
    return strcmp(a->h->sites[site].dtype, "i32") == 0;
}

/* Weights that a softmax gives keys may rightly be alike in all rows, and in all layers: all of it to
 * the first key. */
static int may_repeat(const struct ds_analysis *a, size_t site)
{
    return ds_site_recomputed(&a->h->sites[site]) &&
           strcmp(a->h->sites[site].stage, "attn_probs") == 0;
}

/* What all rows of the site have in common; *varies: two rows differ. */
static unsigned look_at(struct work *w, const struct arm_table *t, size_t site, uint32_t *rows,
                        struct ds_error *err)
{
    const struct ds_analysis *a = w->a;
    unsigned is = IS_ZERO | IS_POISON | IS_NAN, has = 0;
    uint64_t first = 0;
    uint32_t n = 0, equal = 0;
    for (size_t i = 0; i < a->n_rows; i++) {
        size_t cell = site * a->n_rows + i;
        if (t->state[cell] == CELL_ABSENT)
            continue;
        uint64_t digest = t->digest[cell];
        const struct patterns *p = patterns_of(w, capture_of(t, cell)->width, err);
        first = n++ ? first : digest;
        equal += digest == first;
        if (!p || (digest != p->zero[0] && digest != p->zero[1]))
            is &= ~(unsigned)IS_ZERO;
        if (!p || digest != p->poison)
            is &= ~(unsigned)IS_POISON;
        else
            has = HAS_POISON;
        if (!is_nan(w, digest))
            is &= ~(unsigned)IS_NAN;
    }
    *rows = n;
    return n ? is | has | (equal == n && n >= FEW_ROWS ? IS_CONSTANT : 0) : 0;
}

/* Whether two rows of the site differ. */
static int varies(const struct ds_analysis *a, const struct arm_table *t, size_t site)
{
    const uint8_t *state = t->state + site * a->n_rows;
    const uint64_t *digest = t->digest + site * a->n_rows;
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < a->n_rows; i++) {
        if (state[i] == CELL_ABSENT)
            continue;
        if (first != SIZE_MAX && digest[i] != digest[first])
            return 1;
        first = first == SIZE_MAX ? i : first;
    }
    return 0;
}

/* Each input varies, so that no correct kernel could give one row's bits for all. */
static int inputs_vary(const struct ds_analysis *a, const struct arm_table *t, size_t site)
{
    uint32_t from = a->in_start[site], to = a->in_start[site + 1];
    for (uint32_t e = from; e < to; e++)
        if (!varies(a, t, a->in_from[e]))
            return 0;
    return from < to;
}

/* Whether some input has a row that is not zero. */
static int inputs_not_zero(struct work *w, const struct arm_table *t, size_t site,
                           struct ds_error *err)
{
    const struct ds_analysis *a = w->a;
    uint32_t rows;
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++)
        if (!(look_at(w, t, a->in_from[e], &rows, err) & IS_ZERO) && rows)
            return 1;
    return 0;
}

/* Rows of x and y that both sites have; *equal of them are equal. */
static size_t common_rows(const struct ds_analysis *a, const struct arm_table *t, size_t x,
                          size_t y, size_t *equal)
{
    size_t n = 0;
    *equal = 0;
    for (size_t i = 0; i < a->n_rows; i++) {
        size_t cx = x * a->n_rows + i, cy = y * a->n_rows + i;
        if (t->state[cx] == CELL_ABSENT || t->state[cy] == CELL_ABSENT)
            continue;
        n++;
        *equal += t->digest[cx] == t->digest[cy];
        if (n > *equal)
            break;
    }
    return n;
}

/* Whether the op cannot hand a row on as it came. An addition of zero can, a rotation by nothing
 * at position 0, attention to one token. */
static int must_change(const char *op)
{
    static const char *const ops[] = {"rmsnorm", "matmul", "rope", "silu_mul"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(op, ops[i]) == 0)
            return 1;
    return 0;
}

/* An input that the site equals in two rows or more, and in all: its number + 1, else 0. A sum of
 * ranks is no such input: it is what the stage gives. */
static uint32_t equal_input(const struct ds_analysis *a, const struct arm_table *t, size_t site)
{
    size_t equal;
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++)
        if (a->in_kind[e] == DS_EDGE_ROW && t->shares[a->in_from[e]] == 0 &&
            a->h->sites[a->in_from[e]].width == a->h->sites[site].width &&
            common_rows(a, t, site, a->in_from[e], &equal) == equal && equal >= 2 &&
            varies(a, t, site))
            return a->in_from[e] + 1;
    return 0;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* "blk.3.ffn_up.weight" is of layer 3; -1: of none. */
static long layer_of_weight(const char *name, const char **rest)
{
    const char *p = strchr(name, '.');
    char *end;
    if (!p || p[1] < '0' || p[1] > '9')
        return -1;
    long layer = strtol(p + 1, &end, 10);
    *rest = end;
    return *end == '.' ? layer : -1;
}

/* Whether the same weight of the two layers differs anywhere. */
static int weights_differ(const struct ds_header *h, int32_t x, int32_t y)
{
    const char *rx, *ry;
    for (size_t i = 0; i < h->n_weights; i++)
        for (size_t k = 0; layer_of_weight(h->weights[i].name, &rx) == x && k < h->n_weights; k++)
            if (layer_of_weight(h->weights[k].name, &ry) == y && strcmp(rx, ry) == 0 &&
                h->weights[i].digest != h->weights[k].digest)
                return 1;
    return 0;
}

static int has_weights(const char *op)
{
    return strcmp(op, "matmul") == 0 || strcmp(op, "rmsnorm") == 0;
}

/* The k-th input of x and of y: whether some pair of them differs in some row. */
static int inputs_differ(const struct ds_analysis *a, const struct arm_table *t, size_t x, size_t y)
{
    uint32_t n = a->in_start[x + 1] - a->in_start[x];
    if (n != a->in_start[y + 1] - a->in_start[y])
        return 1;
    for (uint32_t e = 0; e < n; e++) {
        size_t equal;
        if (common_rows(a, t, a->in_from[a->in_start[x] + e], a->in_from[a->in_start[y] + e],
                        &equal) > equal)
            return 1;
    }
    return 0;
}

/* Whether a later layer of the same stage has the same bits although it should not. */
static int is_copied(const struct ds_analysis *a, const struct arm_table *t, size_t x, size_t y)
{
    size_t equal, n = common_rows(a, t, x, y, &equal);
    if (n < 2 || equal < n || !varies(a, t, x) || equal_input(a, t, x) || equal_input(a, t, y))
        return 0;
    return inputs_differ(a, t, x, y) ||
           (has_weights(a->h->sites[x].op) &&
            weights_differ(a->h, a->h->sites[x].layer, a->h->sites[y].layer));
}

/* ---- findings -------------------------------------------------------------------------------- */

static struct ds_validity_item *add_item(struct work *w, int kind, struct ds_error *err,
                                         const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static struct ds_validity_item *add_item(struct work *w, int kind, struct ds_error *err,
                                         const char *fmt, ...)
{
    va_list ap;
    if (ds_grow(&w->v->items, &w->cap_items, w->v->n_items + 1, sizeof *w->v->items, "findings",
                err) != 0)
        return NULL;
    struct ds_validity_item *x = &w->v->items[w->v->n_items++];
    *x = (struct ds_validity_item){.kind = kind};
    va_start(ap, fmt);
    vsnprintf(x->text, sizeof x->text, fmt, ap);
    va_end(ap);
    return x;
}

static const char *const sentence[] = {
    [DS_VALIDITY_ZERO] = "all rows are zero, although their inputs are not",
    [DS_VALIDITY_CONSTANT] = "all rows have the same bits, although their inputs vary: a dead or "
                             "stale buffer",
    [DS_VALIDITY_POISON] = "rows hold the poison pattern: nobody wrote them",
    [DS_VALIDITY_NAN] = "every element of every row is NaN: to be equal says nothing",
    [DS_VALIDITY_LAYERS] = "layers have the same bits in every row: one buffer captured for all?",
    [DS_VALIDITY_INPUT] = "every row has the bits of its input: captured before the kernel ran?",
};

/* Adds the finding, or one more layer to that of its stage. */
static int add_site(struct work *w, int kind, uint32_t arm, size_t site, int proves_nothing,
                    struct ds_error *err)
{
    const struct ds_site *s = &w->a->h->sites[site];
    if (proves_nothing)
        w->v->proves_nothing[site] = 1;
    for (size_t i = 0; i < w->v->n_items; i++) {
        struct ds_validity_item *x = &w->v->items[i];
        const struct ds_site *other = &w->a->h->sites[x->site];
        if (x->kind == kind && x->located && strcmp(other->stage, s->stage) == 0 &&
            strcmp(other->part, s->part) == 0) {
            x->sites++;
            x->proves_nothing |= proves_nothing;
            return 0;
        }
    }
    struct ds_validity_item *x = add_item(w, kind, err, "layer %d %.23s%s%.11s: %s", s->layer,
                                          s->stage, s->part[0] ? "/" : "", s->part, sentence[kind]);
    if (!x)
        return -1;
    x->located = 1;
    x->site = (uint32_t)site;
    x->sites = 1;
    x->arm = arm;
    x->proves_nothing = proves_nothing;
    return 0;
}

/* The kinds that one site shows by itself. In one arm it is a finding; only where every arm shows
 * it, equal digests prove nothing: else the arm that shows it differs from the others. */
static int judge_site(struct work *w, size_t site, struct ds_error *err)
{
    static const int kinds[] = {DS_VALIDITY_ZERO, DS_VALIDITY_CONSTANT, DS_VALIDITY_POISON,
                                DS_VALIDITY_NAN, DS_VALIDITY_INPUT};
    const struct ds_analysis *a = w->a;
    uint32_t shown[DS_VALIDITY_KINDS] = {0}, where[DS_VALIDITY_KINDS] = {0}, arms = 0,
             written = 0; /* arms in which somebody wrote some row */
    for (uint32_t arm = 0; arm < a->h->n_arms; arm++) {
        const struct arm_table *t = &a->arms[arm];
        uint32_t rows = 0;
        unsigned is = t->n_trials ? look_at(w, t, site, &rows, err) : 0;
        if (!rows)
            continue;
        arms++;
        written += !(is & IS_POISON);
        int kind = is & IS_POISON || is & HAS_POISON                  ? DS_VALIDITY_POISON
                   : is & IS_NAN                                      ? DS_VALIDITY_NAN
                   : is & IS_ZERO && inputs_not_zero(w, t, site, err) ? DS_VALIDITY_ZERO
                   : is & IS_ZERO                                     ? -1
                   : is & IS_CONSTANT && !may_repeat(a, site) && inputs_vary(a, t, site)
                       ? DS_VALIDITY_CONSTANT
                   : must_change(a->h->sites[site].op) && equal_input(a, t, site)
                       ? DS_VALIDITY_INPUT
                       : -1;
        if (kind >= 0 && shown[kind]++ == 0)
            where[kind] = arm;
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int kind = kinds[k], nothing = kind != DS_VALIDITY_INPUT && shown[kind] == arms;
        nothing &= kind != DS_VALIDITY_POISON || written == 0;
        if (shown[kind] && add_site(w, kind, where[kind], site, nothing, err) != 0)
            return -1;
    }
    return 0;
}

/* The first later layer whose rows are those of site x. next: [n_sites] of the same stage. */
static int judge_layers(struct work *w, size_t x, const uint32_t *next, struct ds_error *err)
{
    const struct ds_analysis *a = w->a;
    for (uint32_t y = next[x]; y != NONE; y = next[y]) {
        uint32_t shown = 0, arms = 0, where = 0;
        if (a->h->sites[y].layer <= a->h->sites[x].layer)
            continue;
        for (uint32_t arm = 0; arm < a->h->n_arms; arm++) {
            if (!a->arms[arm].n_trials)
                continue;
            arms++;
            if (is_copied(a, &a->arms[arm], x, y))
                where = shown++ ? where : arm;
            else if (arm == 0)
                break; /* the usual case: one look is enough */
        }
        if (!shown)
            continue;
        int nothing = shown == arms, first = !w->copied[x];
        w->copied[x] = w->copied[y] = 1;
        if (first && add_site(w, DS_VALIDITY_LAYERS, where, x, nothing, err) != 0)
            return -1;
        return add_site(w, DS_VALIDITY_LAYERS, where, y, nothing, err);
    }
    return 0;
}

static int judge_all_layers(struct work *w, struct ds_error *err)
{
    const struct ds_analysis *a = w->a;
    uint32_t *next = ds_calloc(a->n_sites, sizeof *next, "stages", err),
             *last = ds_calloc(a->n_stages, sizeof *last, "stages", err);
    w->copied = ds_calloc(a->n_sites, 1, "stages", err);
    int rc = next && last && w->copied ? 0 : -1;
    for (size_t k = 0; rc == 0 && k < a->n_stages; k++)
        last[k] = NONE;
    for (size_t site = a->n_sites; rc == 0 && site-- > 0;) {
        next[site] = last[a->stage_of[site]];
        last[a->stage_of[site]] = (uint32_t)site;
    }
    for (size_t site = 0; rc == 0 && site < a->n_sites; site++)
        if (!is_whole_number(a, site) && !may_repeat(a, site) && a->h->sites[site].layer >= 0)
            rc = judge_layers(w, site, next, err);
    free(next);
    free(last);
    free(w->copied);
    return rc;
}

/* Digests compared at sites where that proves nothing, and equal rows of NaN elsewhere. */
static void count_void(struct work *w)
{
    const struct ds_analysis *a = w->a;
    for (uint32_t arm = 0; arm < a->h->n_arms; arm++) {
        const struct arm_table *t = &a->arms[arm];
        for (size_t cell = 0; t->n_trials && cell < a->cells; cell++)
            if (t->state[cell] != CELL_ABSENT &&
                (w->v->proves_nothing[cell / a->n_rows] || is_nan(w, t->digest[cell])))
                w->v->void_digests++;
    }
}

/* ---- trials and fixtures --------------------------------------------------------------------- */

static int judge_probes(struct work *w, const struct ds_verdict *v, struct ds_error *err)
{
    if (v->disturbs != 1)
        return 0;
    struct ds_validity_item *x =
        add_item(w, DS_VALIDITY_DISTURBED, err, "%s: the final digests are others without probes",
                 v->disturber == DS_DISTURBS_DUMP     ? "dumping rows changes the answer, digests "
                                                        "alone do not"
                 : v->disturber == DS_DISTURBS_DIGEST ? "taking digests changes the answer"
                                                      : "taking digests or dumping changes the "
                                                        "answer");
    if (x)
        x->proves_nothing = 1;
    return x ? 0 : -1;
}

static int judge_warm_up(struct work *w, const struct ds_verdict *v, struct ds_error *err)
{
    for (size_t i = 0; v->census && i < v->census->n_arms; i++) {
        if (!v->census->arms[i].first_trial)
            continue;
        struct ds_validity_item *x =
            add_item(w, DS_VALIDITY_WARM_UP, err,
                     "arm %u: only the first trial that its process ran is unlike the others: a "
                     "warm-up was captured",
                     v->census->arms[i].arm);
        if (!x)
            return -1;
        x->arm = v->census->arms[i].arm;
        return 0;
    }
    return 0;
}

/* Trials that ran earlier in the process of this one. In a joined source arms of A are even, of B
 * odd, and the numbers of their processes mean nothing to each other. */
static size_t trials_before(const struct ds_analysis *a, const struct ds_trial *t)
{
    size_t n = 0;
    for (size_t i = 0; i < a->src->n_trials; i++) {
        const struct ds_trial *x = a->src->info(a->src->ctx, i);
        n += x->worker == t->worker && x->start_s < t->start_s && x->arm % 2 == t->arm % 2;
    }
    return n;
}

/* Of two records only: in a sweep one arm runs after the other, and repeats tell whether that
 * matters. */
static int judge_histories(struct work *w, const struct ds_verdict *v, struct ds_error *err)
{
    const struct ds_finding *f = &v->first;
    if (!w->a->options.only_factor || !f->found || f->arm == f->ref_arm)
        return 0;
    size_t mine = trials_before(w->a, &w->a->arms[f->arm].rep->info),
           theirs = trials_before(w->a, &w->a->arms[f->ref_arm].rep->info);
    if (mine == theirs)
        return 0;
    struct ds_validity_item *x =
        add_item(w, DS_VALIDITY_HISTORY, err,
                 "the two trials have unlike histories: %zu trials ran before in one process, %zu "
                 "in the other",
                 theirs, mine);
    if (x)
        x->arm = f->arm;
    return x ? 0 : -1;
}

/* What the run found before its first trial, one mutation to a line. */
static int judge_fixture(struct work *w, struct ds_error *err)
{
    const struct ds_header *h = w->a->h;
    for (size_t i = 0; i < h->n_options; i++) {
        if (strcmp(h->options[i].name, "inert") != 0)
            continue;
        for (const char *p = h->options[i].value; *p;) {
            size_t n = strcspn(p, "\n");
            if (n && !add_item(w, DS_VALIDITY_INERT, err, "the fixture is inert under %.*s",
                               (int)(n < 150 ? n : 150), p))
                return -1;
            p += n + (p[n] == '\n');
        }
    }
    return 0;
}

static int item_cmp(const void *pa, const void *pb)
{
    const struct ds_validity_item *a = pa, *b = pb;
    if (a->proves_nothing != b->proves_nothing)
        return a->proves_nothing ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return a->site != b->site ? (a->site < b->site ? -1 : 1) : strcmp(a->text, b->text);
}

int judge_validity(struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    struct work w = {.a = a, .v = ds_calloc(1, sizeof *w.v, "validity", err)};
    v->validity = w.v;
    if (!w.v || !(w.v->proves_nothing = ds_calloc(a->n_sites, 1, "validity", err)))
        return -1;
    int rc = collect_nan(&w, err);
    for (size_t site = 0; rc == 0 && site < a->n_sites; site++)
        if (!is_whole_number(a, site))
            rc = judge_site(&w, site, err);
    if (rc == 0)
        rc = judge_all_layers(&w, err);
    if (rc == 0)
        rc = judge_probes(&w, v, err) != 0 || judge_warm_up(&w, v, err) != 0 ||
                     judge_histories(&w, v, err) != 0 || judge_fixture(&w, err) != 0
                 ? -1
                 : 0;
    if (rc == 0) {
        count_void(&w);
        if (w.v->n_items)
            qsort(w.v->items, w.v->n_items, sizeof *w.v->items, item_cmp);
    }
    free(w.patterns);
    free(w.nan);
    return rc;
}

/* Whether equal digests of this record would be no evidence: those of the answer prove nothing, or
 * those of most sites. Returns the finding to blame. */
const struct ds_validity_item *validity_objection(const struct ds_analysis *a,
                                                  const struct ds_validity *v)
{
    size_t sites = 0, bad = 0, last = SIZE_MAX;
    if (!v || !v->n_items || !v->items[0].proves_nothing)
        return NULL;
    if (!v->items[0].located)
        return &v->items[0];
    for (size_t s = 0; s < a->n_sites; s++) {
        if (is_whole_number(a, s))
            continue;
        sites++;
        bad += v->proves_nothing[s];
        last = s;
    }
    for (size_t i = 0; i < v->n_items; i++) /* a stage that is dead in every layer */
        if (v->items[i].proves_nothing && v->items[i].located && v->items[i].sites > 1 &&
            (int64_t)v->items[i].sites >= a->h->n_layers)
            return &v->items[i];
    return last != SIZE_MAX && (v->proves_nothing[last] || 2 * bad > sites) ? &v->items[0] : NULL;
}
