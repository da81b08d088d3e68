/* validity_site.c: what one site shows by itself: rows of zeros, of poison, of NaN, all alike, or those of
 * its input. */
#include "dumps/validity_internal.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

/* Rows that must agree before they count as a constant. */
enum { FEW_ROWS = 4 };

/* ---- patterns -------------------------------------------------------------------------------- */

static int digest_cmp(const void *pa, const void *pb)
{
    uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return (a > b) - (a < b);
}

static const struct row_patterns *patterns_of(struct validity_work *w, uint32_t width,
                                              struct ds_error *err)
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
    struct row_patterns *p = &w->patterns[w->n_patterns++];
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
int validity_collect_nan(struct validity_work *w, struct ds_error *err)
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

int validity_is_nan(const struct validity_work *w, uint64_t digest)
{
    return w->n_nan && bsearch(&digest, w->nan, w->n_nan, sizeof digest, digest_cmp);
}

/* ---- one site of one arm --------------------------------------------------------------------- */

enum { IS_ZERO = 1, IS_CONSTANT = 2, IS_POISON = 4, IS_NAN = 8, HAS_POISON = 16 };

int validity_may_repeat(const struct ds_analysis *a, const struct arm_table *t, size_t site)
{
    const struct ds_site *s = &a->h->sites[site];
    if (strcmp(s->op, "router") != 0 || strcmp(s->part, "weights") != 0)
        return ds_site_recomputed(s) && strcmp(s->stage, "attn_probs") == 0;
    for (size_t cell = site * a->n_rows; cell < (site + 1) * a->n_rows; cell++)
        if (t->state[cell] != CELL_ABSENT)
            return capture_of(t, cell)->width == 1;
    return 0;
}

/* What all rows of the site have in common; *varies: two rows differ. */
static unsigned look_at(struct validity_work *w, const struct arm_table *t, size_t site,
                        uint32_t *rows, struct ds_error *err)
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
        const struct row_patterns *p = patterns_of(w, capture_of(t, cell)->width, err);
        first = n++ ? first : digest;
        equal += digest == first;
        if (!p || (digest != p->zero[0] && digest != p->zero[1]))
            is &= ~(unsigned)IS_ZERO;
        if (!p || digest != p->poison)
            is &= ~(unsigned)IS_POISON;
        else
            has = HAS_POISON;
        if (!validity_is_nan(w, digest))
            is &= ~(unsigned)IS_NAN;
    }
    *rows = n;
    return n ? is | has | (equal == n && n >= FEW_ROWS ? IS_CONSTANT : 0) : 0;
}

int validity_varies(const struct ds_analysis *a, const struct arm_table *t, size_t site)
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
        if (!validity_varies(a, t, a->in_from[e]))
            return 0;
    return from < to;
}

/* Whether some input has a row that is not zero. */
static int inputs_not_zero(struct validity_work *w, const struct arm_table *t, size_t site,
                           struct ds_error *err)
{
    const struct ds_analysis *a = w->a;
    uint32_t rows;
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++)
        if (!(look_at(w, t, a->in_from[e], &rows, err) & IS_ZERO) && rows)
            return 1;
    return 0;
}

size_t validity_common_rows(const struct ds_analysis *a, const struct arm_table *t, size_t x,
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

uint32_t validity_equal_input(const struct ds_analysis *a, const struct arm_table *t, size_t site)
{
    size_t equal;
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++)
        if (a->in_kind[e] == DS_EDGE_ROW && t->shares[a->in_from[e]] == 0 &&
            a->h->sites[a->in_from[e]].width == a->h->sites[site].width &&
            validity_common_rows(a, t, site, a->in_from[e], &equal) == equal && equal >= 2 &&
            validity_varies(a, t, site))
            return a->in_from[e] + 1;
    return 0;
}

/* The kinds that one site shows by itself. In one arm it is a finding; only where every arm shows
 * it, equal digests prove nothing: else the arm that shows it differs from the others. */
int validity_judge_site(struct validity_work *w, size_t site, struct ds_error *err)
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
                   : is & IS_CONSTANT && !validity_may_repeat(a, t, site) && inputs_vary(a, t, site)
                       ? DS_VALIDITY_CONSTANT
                   : must_change(a->h->sites[site].op) && validity_equal_input(a, t, site)
                       ? DS_VALIDITY_INPUT
                       : -1;
        if (kind >= 0 && shown[kind]++ == 0)
            where[kind] = arm;
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int kind = kinds[k], nothing = kind != DS_VALIDITY_INPUT && shown[kind] == arms;
        nothing &= kind != DS_VALIDITY_POISON || written == 0;
        if (shown[kind] && validity_add_site(w, kind, where[kind], site, nothing, err) != 0)
            return -1;
    }
    return 0;
}
