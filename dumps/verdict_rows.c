/* verdict_rows.c: at which row counts M does a kernel change its bits? Not a question about arms:
 * every call of every arm that gave the kernel the same input bits for a row, at the same place in
 * the call, is evidence, whatever factor made the call that large. Prefill of 24 tokens at batch 2
 * and at batch 1 are M = 48 and 24.
 *
 * For kernels that read one row at a time (all edges of kind row) batch, chunk, mode and padding
 * only change M. A kernel that reads other rows (attention) also sees the number of query rows, so
 * there only the batch may vary.
 *
 * One row gives, for every two neighbouring M at which it was seen, "changed" or "quiet" between
 * them. A library chooses its code by shape, so quiet stretches of the same shape and slot narrow a
 * change down, and the fewest M that explain all changes of a shape are reported, each the lowest M
 * seen after the change. */
#include "dumps/verdict_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sample {
    uint16_t kernel;
    uint32_t group,
        sub; /* setting of the other factors; and of chunk, mode, padding where those count */
    int32_t slot;
    uint32_t m;
    uint64_t inputs, digest;
};

struct step { /* what one row showed between two neighbouring row counts: low < M <= high */
    uint32_t kernel, group, width, terms, sub;
    int32_t slot;
    uint32_t quiet, low, high;
};

struct rows_work {
    struct ds_analysis *a;
    uint32_t *group, *sub; /* [n_arms] number of the first arm with the same setting */
    uint64_t *inputs; /* [n_arms][n_rows] hash of the input digests at the site, 0 = not usable */
    struct input_walk walk;
    struct sample *samples;
    uint8_t *healed; /* [n_healed][cells] labels of heal trials */
    struct step *steps;
    size_t n_steps, cap, tidy_at;
    uint32_t width, terms; /* shape at the site at work */
};

static int changes_m(const char *factor)
{
    return strcmp(factor, "batch") == 0 || strcmp(factor, "chunk") == 0 ||
           strcmp(factor, "mode") == 0 || strcmp(factor, "padding") == 0 ||
           strcmp(factor, "prefix") == 0 || strcmp(factor, "rollback") == 0;
}

static int same_setting(const struct ds_analysis *a, uint32_t x, uint32_t y, int only_batch)
{
    for (size_t f = 0; f < a->h->n_factors; f++) {
        const char *name = a->h->factors[f];
        int free_factor = only_batch ? strcmp(name, "batch") == 0 : changes_m(name);
        if (!free_factor && a->value[x * a->h->n_factors + f] != a->value[y * a->h->n_factors + f])
            return 0;
    }
    return 1;
}

static void group_arms(struct rows_work *w)
{
    const struct ds_analysis *a = w->a;
    for (uint32_t i = 0; i < a->h->n_arms; i++)
        for (uint32_t j = 0; j <= i; j++) {
            if (j == i || (w->group[j] == j && same_setting(a, i, j, 0))) {
                w->group[i] = j;
                break;
            }
        }
    for (uint32_t i = 0; i < a->h->n_arms; i++)
        for (uint32_t j = 0; j <= i; j++) {
            if (j == i || (w->sub[j] == j && same_setting(a, i, j, 1))) {
                w->sub[i] = j;
                break;
            }
        }
}

/* 1 if all inputs are rows, 0 if some are causal, -1 if the whole call is read: not to be judged
 * here. */
static int site_reads_rows(const struct ds_analysis *a, size_t site)
{
    int rows = 1;
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++) {
        if (a->in_kind[e] != DS_EDGE_ROW && a->in_kind[e] != DS_EDGE_CAUSAL)
            return -1;
        rows &= a->in_kind[e] == DS_EDGE_ROW;
    }
    return rows;
}

static int sample_cmp(const void *pa, const void *pb)
{
    const struct sample *a = pa, *b = pb;
    if (a->kernel != b->kernel)
        return a->kernel < b->kernel ? -1 : 1;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->sub != b->sub)
        return a->sub < b->sub ? -1 : 1;
    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    if (a->inputs != b->inputs)
        return a->inputs < b->inputs ? -1 : 1;
    if (a->m != b->m)
        return a->m < b->m ? -1 : 1;
    return (a->digest > b->digest) - (a->digest < b->digest);
}

static int step_cmp(const void *pa, const void *pb)
{
    const struct step *a = pa, *b = pb;
    const uint32_t x[] = {a->kernel,         a->group, a->width, a->terms, a->sub,
                          (uint32_t)a->slot, a->quiet, a->high,  a->low};
    const uint32_t y[] = {b->kernel,         b->group, b->width, b->terms, b->sub,
                          (uint32_t)b->slot, b->quiet, b->high,  b->low};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Sorts and drops what is there twice: most rows of most sites show the same. */
static void tidy(struct rows_work *w)
{
    if (w->n_steps == 0)
        return;
    qsort(w->steps, w->n_steps, sizeof *w->steps, step_cmp);
    size_t unique = 1;
    for (size_t i = 1; i < w->n_steps; i++)
        if (step_cmp(&w->steps[i], &w->steps[unique - 1]) != 0)
            w->steps[unique++] = w->steps[i];
    w->n_steps = unique;
    w->tidy_at = 2 * unique + 4096;
}

static int add_step(struct rows_work *w, const struct sample *low, const struct sample *high,
                    struct ds_error *err)
{
    if (w->n_steps >= w->tidy_at)
        tidy(w);
    if (ds_grow(&w->steps, &w->cap, w->n_steps + 1, sizeof *w->steps, "switches", err) != 0)
        return -1;
    w->steps[w->n_steps++] = (struct step){low->kernel,
                                           low->group,
                                           w->width,
                                           w->terms,
                                           low->sub,
                                           low->slot,
                                           low->digest == high->digest,
                                           low->m,
                                           high->m};
    return 0;
}

/* The row's place in the call; at a site that has only some rows (logits), its place among those.
 */
static int32_t sample_slot(const struct arm_table *t, size_t row, size_t cell)
{
    const struct ds_capture *c = &t->rep->captures[t->capture[cell]];
    return c->rows < arm_call(t, row)->rows ? (int32_t)(t->row[row] - c->first_row)
                                            : arm_row(t, row)->slot;
}

/* Whether the row's place in the launch is known. An expert's matmul gathers the rows that chose it,
 * and of those the record may have some only. */
static int place_known(const struct ds_analysis *a, const struct arm_table *t, size_t site,
                       size_t cell)
{
    const char *part = a->h->sites[site].part;
    const struct ds_capture *c = &t->rep->captures[t->capture[cell]];
    return part[0] != 'e' || part[1] < '0' || part[1] > '9' ||
           (int64_t)c->rows == t->rep->launches[c->launch].rows;
}

/* samples[0..n-1] belong to one row at one site. */
static int compare_samples(struct rows_work *w, size_t n, struct ds_error *err)
{
    qsort(w->samples, n, sizeof *w->samples, sample_cmp);
    const struct sample *low = NULL;
    for (size_t i = 0, j; i < n; i = j) {
        const struct sample *s = &w->samples[i];
        int clear = 1; /* one M, one digest; else something other than M changed the bits */
        for (j = i + 1; j < n; j++) {
            struct sample next = w->samples[j];
            if (next.digest != s->digest) {
                next.digest = s->digest;
                if (sample_cmp(&next, s) == 0)
                    clear = 0;
                else
                    break;
            } else if (sample_cmp(&next, s) != 0) {
                break;
            }
        }
        if (!clear)
            continue;
        if (low && low->kernel == s->kernel && low->group == s->group && low->sub == s->sub &&
            low->slot == s->slot && low->inputs == s->inputs && add_step(w, low, s, err) != 0)
            return -1;
        low = s;
    }
    return 0;
}

/* A row of arm `arm` that had the inputs of arm `from`: in its natural trial its own, in a heal trial
 * those of the reference. 0: it says nothing. */
static size_t take_sample(const struct rows_work *w, const struct arm_table *t, uint32_t arm,
                          uint32_t from, size_t row, size_t cell, int reads_rows,
                          struct sample *out)
{
    const struct ds_analysis *a = w->a;
    uint64_t inputs = w->inputs[(size_t)from * a->n_rows + row];
    if (t->state[cell] != CELL_STABLE || !inputs || !place_known(a, t, cell / a->n_rows, cell) ||
        a->arms[arm].excluded[family(a, t, cell / a->n_rows, cell)])
        return 0;
    *out = (struct sample){t->kernel[cell],
                           w->group[arm],
                           reads_rows ? 0 : w->sub[arm],
                           sample_slot(t, row, cell),
                           capture_m(t, row, t->capture[cell]),
                           inputs,
                           t->digest[cell]};
    return 1;
}

static int visit_site(struct rows_work *w, size_t site, struct ds_error *err)
{
    struct ds_analysis *a = w->a;
    int reads_rows = site_reads_rows(a, site);
    if (reads_rows < 0)
        return 0;
    w->width = a->h->sites[site].width;
    w->terms = 0;
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++)
        w->terms += a->h->sites[a->in_from[e]].width;
    for (uint32_t i = 0; i < a->h->n_arms; i++) {
        const struct arm_table *t = &a->arms[i];
        if (t->n_trials)
            hash_inputs(a, t, site, &w->walk, w->inputs + (size_t)i * a->n_rows);
    }
    for (size_t r = 0; r < a->n_rows; r++) {
        size_t n = 0, cell = site * a->n_rows + r;
        for (uint32_t i = 0; i < a->h->n_arms; i++)
            if (a->arms[i].n_trials)
                n += take_sample(w, &a->arms[i], i, i, r, cell, reads_rows, &w->samples[n]);
        for (size_t k = 0; k < a->n_healed; k++) {
            const struct heal_table *h = &a->healed[k];
            uint8_t label = w->healed[k * a->cells + cell];
            if (h->arm != h->ref && label & LABEL_JUDGED &&
                (label & LABEL_MASK) != DS_LABEL_UNSTABLE)
                n += take_sample(w, &h->t, h->arm, h->ref, r, cell, reads_rows, &w->samples[n]);
        }
        if (n > 1 && compare_samples(w, n, err) != 0)
            return -1;
    }
    return 0;
}

/* Narrows a change with the quiet stretches of its own shape and slot, steps[first..end-1]. One
 * that covers the whole change contradicts it (a row of zeros shows nothing) and is left out. */
static struct step narrowed(const struct rows_work *w, struct step x, size_t first, size_t end)
{
    for (int again = 1; again;) {
        again = 0;
        for (size_t i = first; i < end; i++) {
            const struct step *q = &w->steps[i];
            if (!q->quiet)
                continue;
            if (q->low > x.low && q->low < x.high && q->high >= x.high) {
                x.high = q->low;
                again = 1;
            } else if (q->low <= x.low && q->high > x.low && q->high < x.high) {
                x.low = q->high;
                again = 1;
            }
        }
    }
    return x;
}

static int same_chain(const struct step *x, const struct step *y)
{
    return x->kernel == y->kernel && x->group == y->group && x->width == y->width &&
           x->terms == y->terms && x->sub == y->sub && x->slot == y->slot;
}

static int by_high(const void *pa, const void *pb)
{
    const struct step *a = pa, *b = pb;
    if (a->kernel != b->kernel || a->group != b->group || a->width != b->width ||
        a->terms != b->terms) {
        struct step x = *a, y = *b;
        x.sub = y.sub = x.quiet = y.quiet = x.low = y.low = x.high = y.high = 0;
        x.slot = y.slot = 0;
        return step_cmp(&x, &y);
    }
    return a->high != b->high ? (a->high < b->high ? -1 : 1)
                              : (a->low < b->low) - (a->low > b->low);
}

/* Replaces the steps by the fewest changes that explain them: of a shape's changes in order of
 * `high`, each that holds none of the M chosen so far adds its own `high`. */
static void explain_changes(struct rows_work *w)
{
    size_t n = 0;
    tidy(w);
    struct step *changes = w->steps; /* written behind what is still read */
    for (size_t i = 0, j; i < w->n_steps; i = j) {
        for (j = i; j < w->n_steps && same_chain(&w->steps[j], &w->steps[i]); j++)
            continue;
        size_t changed = i; /* changes sort before quiet stretches */
        while (changed < j && !w->steps[changed].quiet)
            changed++;
        for (size_t k = i; k < changed; k++)
            changes[n++] = narrowed(w, w->steps[k], changed, j);
    }
    if (n)
        qsort(changes, n, sizeof *changes, by_high);
    size_t kept = 0;
    uint32_t last = 0;
    for (size_t i = 0; i < n; i++) {
        int fresh = i == 0 || changes[i].kernel != changes[i - 1].kernel ||
                    changes[i].group != changes[i - 1].group ||
                    changes[i].width != changes[i - 1].width ||
                    changes[i].terms != changes[i - 1].terms;
        struct step x = changes[i];
        if (fresh || x.low >= last) {
            last = x.high;
            w->steps[kept] = x;
            kept++;
        }
    }
    w->n_steps = kept;
}

static int rows_cmp(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void name_setting(const struct ds_analysis *a, uint32_t arm, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (size_t f = 0; f < a->h->n_factors && at < size; f++)
        if (!changes_m(a->h->factors[f]) && a->value[arm * a->h->n_factors + f] != 0)
            at += (size_t)snprintf(text + at, size - at, "%s%s %s", at ? ", " : "",
                                   a->h->factors[f], a->h->arms[arm].values[f]);
}

/* Switches of kernel k at the setting of arm `group`, appended to its list. */
static int add_switches(struct rows_work *w, struct ds_kernel_verdict *kv, size_t k, uint32_t group,
                        struct ds_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n_steps; i++)
        n += w->steps[i].kernel == k && w->steps[i].group == group;
    if (n == 0 && group != 0)
        return 0;
    struct ds_switches *s = &kv->switches[kv->n_switches];
    if (!(s->rows = ds_calloc(n, sizeof *s->rows, "switches", err)))
        return -1;
    kv->n_switches++;
    name_setting(w->a, group, s->setting, sizeof s->setting);
    for (size_t i = 0; i < w->n_steps; i++) {
        const struct step *x = &w->steps[i];
        if (x->kernel == k && x->group == group)
            s->rows[s->n++] = x->high;
    }
    if (s->n)
        qsort(s->rows, s->n, sizeof *s->rows, rows_cmp);
    uint32_t unique = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (i == 0 || s->rows[i] != s->rows[unique - 1])
            s->rows[unique++] = s->rows[i];
    s->n = unique;
    return 0;
}

int find_switches(struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    size_t arms = a->h->n_arms, n, healed;
    struct rows_work w = {.a = a};
    if (__builtin_mul_overflow(arms, a->n_rows, &n) ||
        __builtin_mul_overflow(a->n_healed, a->cells, &healed))
        return ds_fail(err, "record: too many arms and rows");
    int rc =
        (w.group = ds_calloc(arms, sizeof *w.group, "settings", err)) &&
                (w.sub = ds_calloc(arms, sizeof *w.sub, "settings", err)) &&
                (w.inputs = ds_calloc(n, sizeof *w.inputs, "input digests", err)) &&
                (w.walk.seen = ds_calloc(a->n_sites, sizeof *w.walk.seen, "sites", err)) &&
                (w.walk.open = ds_calloc(a->n_sites, sizeof *w.walk.open, "sites", err)) &&
                (w.healed = ds_calloc(healed, 1, "labels", err)) &&
                (w.samples = ds_calloc(arms + a->n_healed, sizeof *w.samples, "row counts", err))
            ? 0
            : -1;
    if (rc == 0 && !a->options.only_factor) {
        group_arms(&w);
        for (size_t k = 0; k < a->n_healed; k++)
            label_healed(a, &a->healed[k], w.healed + k * a->cells);
        for (size_t s = 0; rc == 0 && s < a->n_sites && !is_stopped(a); s++)
            rc = visit_site(&w, s, err);
        explain_changes(&w);
    }
    for (size_t k = 0; rc == 0 && k < a->n_kernels; k++) {
        uint32_t groups = 0;
        for (uint32_t i = 0; i < arms; i++)
            groups += w.group[i] == i;
        if (!(v->kernels[k].switches =
                  ds_calloc((size_t)groups + 1, sizeof(struct ds_switches), "switches", err)))
            rc = -1;
        for (uint32_t i = 0; rc == 0 && i < arms; i++)
            if (w.group[i] == i)
                rc = add_switches(&w, &v->kernels[k], k, i, err);
    }
    free(w.group);
    free(w.sub);
    free(w.inputs);
    free(w.walk.seen);
    free(w.walk.open);
    free(w.samples);
    free(w.healed);
    free(w.steps);
    return rc;
}
