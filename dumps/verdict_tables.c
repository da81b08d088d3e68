/* verdict_tables.c: reads every trial once and lays its digests out as one table per arm: modal
 * digest and stability of every cell. Owns struct ds_analysis; knows nothing of factors' meaning.
 */
#include "dumps/verdict_internal.h"

#include <stdlib.h>
#include <string.h>

static int key_cmp(const void *pa, const void *pb)
{
    const struct ds_row_key *a = pa, *b = pb;
    if (a->request != b->request)
        return a->request < b->request ? -1 : 1;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    return (a->occurrence > b->occurrence) - (a->occurrence < b->occurrence);
}

uint32_t row_of_key(const struct ds_analysis *a, const struct ds_row *r, uint32_t guess)
{
    struct ds_row_key want = {r->request, r->position, r->occurrence};
    if (guess < a->n_rows && key_cmp(&a->keys[guess], &want) == 0)
        return guess;
    const struct ds_row_key *k = bsearch(&want, a->keys, a->n_rows, sizeof want, key_cmp);
    return k ? (uint32_t)(k - a->keys) : NONE;
}

size_t ds_analysis_row_of(const struct ds_analysis *a, const struct ds_row *r, size_t guess)
{
    uint32_t at = row_of_key(a, r, guess < NONE ? (uint32_t)guess : NONE);
    return at == NONE ? SIZE_MAX : at;
}

/* The reader has checked indices already; memory sources are checked here, since all later code
 * relies on it. */
static int check_trial(const struct ds_analysis *a, const struct ds_trial_data *t, size_t index,
                       struct ds_error *err)
{
    for (size_t i = 0; i < t->n_rows; i++)
        if (t->rows[i].call >= t->n_calls)
            return ds_fail(err, "trial %zu: row %zu names call %u of %zu", index, i,
                           t->rows[i].call, t->n_calls);
    for (size_t i = 0; i < t->n_captures; i++) {
        const struct ds_capture *c = &t->captures[i];
        if (c->site >= a->n_sites || c->call >= t->n_calls || c->launch >= t->n_launches ||
            (uint64_t)c->first_row + c->rows > t->n_rows || c->first_digest > t->n_digests ||
            c->rows > t->n_digests - c->first_digest)
            return ds_fail(err, "trial %zu: capture %zu points outside the trial", index, i);
    }
    return 0;
}

static int trial_order(const struct ds_source *s, size_t x, size_t y)
{
    const struct ds_trial *a = s->info(s->ctx, x), *b = s->info(s->ctx, y);
    return a->repeat != b->repeat ? a->repeat < b->repeat : x < y;
}

void table_add_trial(const struct ds_source *s, struct arm_table *t, size_t i)
{
    uint32_t at = t->n_trials++;
    for (; at > 0 && trial_order(s, i, t->trials[at - 1]); at--)
        t->trials[at] = t->trials[at - 1];
    t->trials[at] = i;
}

static int collect_trials(struct ds_analysis *a, struct ds_error *err)
{
    const struct ds_source *s = a->src;
    for (size_t i = 0; i < s->n_trials; i++) {
        const struct ds_trial *info = s->info(s->ctx, i);
        if (info->arm >= a->h->n_arms)
            return ds_fail(err, "trial %zu: arm %u of %zu", i, info->arm, a->h->n_arms);
        if (info->pass == DS_PASS_NATURAL)
            a->arms[info->arm].n_trials++;
    }
    for (size_t i = 0; i < a->h->n_arms; i++) {
        a->arms[i].trials = ds_calloc(a->arms[i].n_trials, sizeof(size_t), "trials", err);
        if (!a->arms[i].trials)
            return -1;
        a->arms[i].n_trials = 0;
    }
    for (size_t i = 0; i < s->n_trials; i++) {
        const struct ds_trial *info = s->info(s->ctx, i);
        if (info->pass != DS_PASS_NATURAL)
            continue;
        table_add_trial(s, &a->arms[info->arm], i);
        a->n_natural++;
    }
    return 0;
}

/* Numbers the repeats: the values of the factor "repeat". */
static int index_repeats(struct ds_analysis *a, struct ds_error *err)
{
    size_t cap = 0;
    for (size_t i = 0; i < a->h->n_arms; i++) {
        struct arm_table *t = &a->arms[i];
        if (!(t->value_of = ds_calloc(t->n_trials, sizeof *t->value_of, "repeats", err)) ||
            !(t->hash = ds_calloc(t->n_trials, sizeof *t->hash, "repeats", err)))
            return -1;
        for (uint32_t j = 0; j < t->n_trials; j++) {
            uint32_t repeat = a->src->info(a->src->ctx, t->trials[j])->repeat;
            size_t k = 0;
            while (k < a->n_repeats && a->repeats[k] != repeat)
                k++;
            if (k == a->n_repeats) {
                if (ds_grow(&a->repeats, &cap, k + 1, sizeof *a->repeats, "repeats", err) != 0)
                    return -1;
                a->repeats[a->n_repeats++] = repeat;
            }
            t->value_of[j] = (uint32_t)k;
        }
    }
    return 0;
}

/* Bytes a cell: of one table, and beside them: status, prefix, labels, and what repeats are counted with. */
enum { TABLE_BYTES = 15, SCRATCH_BYTES = 18 };

static int check_memory(struct ds_analysis *a, uint64_t tables, struct ds_error *err)
{
    uint64_t need;
    const uint64_t table = TABLE_BYTES + (a->options.recorded != NULL);
    if (__builtin_mul_overflow(a->cells, tables * table + SCRATCH_BYTES, &need))
        need = UINT64_MAX;
    a->bytes = need;
    if (!a->options.memory || need <= a->options.memory)
        return 0;
    char words[DS_BYTES_WORDS];
    return ds_fail(err, "%llu tables of %zu sites and %zu rows take %s of memory",
                   (unsigned long long)tables, a->n_sites, a->n_rows, ds_bytes_words(need, words));
}

/* The distinct row keys of all trials, ascending. */
static int collect_keys(struct ds_analysis *a, struct ds_error *err)
{
    struct ds_row_key *keys = NULL;
    size_t n = 0, cap = 0;
    uint64_t digests = 0;
    for (size_t i = 0; i < a->src->n_trials; i++) {
        if (a->src->info(a->src->ctx, i)->pass == DS_PASS_BARE)
            continue;
        const struct ds_trial_data *t = a->src->get(a->src->ctx, i, err);
        if (!t || check_trial(a, t, i, err) != 0 ||
            ds_grow(&keys, &cap, n + t->n_rows, sizeof *keys, "row keys", err) != 0) {
            free(keys);
            return -1;
        }
        digests += t->n_digests;
        for (size_t r = 0; r < t->n_rows; r++) {
            keys[n] =
                (struct ds_row_key){t->rows[r].request, t->rows[r].position, t->rows[r].occurrence};
            if (r >= n || key_cmp(&keys[r], &keys[n]) !=
                              0) /* most trials have the rows of the first, in its order */
                n++;
        }
    }
    if (n)
        qsort(keys, n, sizeof *keys, key_cmp);
    size_t unique = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || key_cmp(&keys[i], &keys[unique - 1]) != 0)
            keys[unique++] = keys[i];
    a->keys = keys;
    a->n_rows = unique;
    if (__builtin_mul_overflow(a->n_sites, a->n_rows, &a->cells))
        return ds_fail(err, "record: %zu sites times %zu rows do not fit in memory", a->n_sites,
                       a->n_rows);
    /* The tables are dense; a hostile record must not turn a small file into a huge allocation. */
    uint64_t tables = a->n_healed;
    for (size_t i = 0; i < a->h->n_arms; i++)
        tables += a->arms[i].n_trials != 0;
    if (a->cells && tables > (UINT64_C(1) << 22) / a->cells && tables > (digests * 64) / a->cells)
        return ds_fail(
            err, "record: %zu sites, %zu distinct rows and %llu arms for only %llu digests",
            a->n_sites, a->n_rows, (unsigned long long)tables, (unsigned long long)digests);
    return check_memory(a, tables, err);
}

int kernel_index(struct ds_analysis *a, const struct ds_launch *l, uint16_t *out,
                 struct ds_error *err)
{
    for (size_t i = 0; i < a->n_kernels; i++)
        if (strcmp(a->kernels[i].op, l->op) == 0 &&
            strcmp(a->kernels[i].variant, l->variant) == 0) {
            *out = (uint16_t)i;
            return 0;
        }
    if (a->n_kernels >= 4096)
        return ds_fail(err, "record: more than 4096 kernel variants");
    if (ds_grow(&a->kernels, &a->cap_kernels, a->n_kernels + 1, sizeof *a->kernels, "kernels",
                err) != 0)
        return -1;
    a->kernels[a->n_kernels] = (struct kernel_id){l->op, l->variant};
    *out = (uint16_t)a->n_kernels++;
    return 0;
}

static int map_rows(const struct ds_analysis *a, const struct ds_trial_data *t, uint32_t **out,
                    struct ds_error *err)
{
    uint32_t *map = ds_calloc(t->n_rows, sizeof *map, "row map", err);
    if (!map)
        return -1;
    for (size_t r = 0; r < t->n_rows; r++)
        map[r] = row_of_key(a, &t->rows[r], r ? map[r - 1] + 1 : 0);
    *out = map;
    return 0;
}

const uint64_t *recorded_of(const struct ds_analysis *a, size_t trial,
                            const struct ds_trial_data *d)
{
    const uint64_t *const *all = a->options.recorded;
    return all && all[trial] ? all[trial] : d->digests;
}

int recorded_digest(const struct ds_analysis *a, const struct arm_table *t, size_t cell,
                    uint64_t *digest)
{
    const struct ds_capture *c = &t->rep->captures[t->capture[cell]];
    const uint32_t row = t->row[cell % a->n_rows];
    if (row == NONE || row < c->first_row || row - c->first_row >= c->rows)
        return 0;
    *digest = recorded_of(a, t->trials[0], t->rep)[c->first_digest + (row - c->first_row)];
    return 1;
}

/* Notes what a further trial's replaced digests hide of a cell. */
static void note_near(const struct ds_analysis *a, struct arm_table *t, size_t cell,
                      uint64_t recorded, uint64_t digest)
{
    uint64_t first;
    if (recorded != digest)
        t->near[cell] |= NEAR_REFERENCE;
    if (recorded_digest(a, t, cell, &first) && first != recorded)
        t->near[cell] |= NEAR_REPEATS;
}

/* Adds one digest to a trial's hashes; the sum does not depend on the order of captures. */
static void hash_cell(const struct ds_trial_data *d, const struct ds_capture *c, uint64_t hash[],
                      size_t cell, uint64_t digest)
{
    uint64_t x =
        (digest ^ (cell + 1) * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    x ^= x >> 33;
    hash[DS_VERDICT_ALL] += x;
    hash[d->calls[c->call].phase == DS_PHASE_DECODE ? DS_VERDICT_DECODE : DS_VERDICT_PREFILL] += x;
}

/* Fills the arm's table from its first trial. */
static int fill_first(struct ds_analysis *a, struct arm_table *t, const uint32_t *map,
                      struct ds_error *err)
{
    const struct ds_trial_data *d = t->rep;
    const uint64_t *recorded = recorded_of(a, t->trials[0], d);
    uint16_t *kernel = ds_calloc(d->n_launches, sizeof *kernel, "launch kernels", err);
    if (!kernel)
        return -1;
    for (size_t i = 0; i < d->n_launches; i++)
        if (kernel_index(a, &d->launches[i], &kernel[i], err) != 0) {
            free(kernel);
            return -1;
        }
    for (size_t r = 0; r < a->n_rows; r++)
        t->row[r] = NONE;
    for (size_t r = d->n_rows; r-- > 0;) /* backwards, so that the first of a repeated key wins */
        t->row[map[r]] = (uint32_t)r;
    for (size_t i = 0; i < d->n_captures; i++) {
        const struct ds_capture *c = &d->captures[i];
        t->has[c->site] |= c->rows != 0;
        for (uint32_t j = 0; j < c->rows; j++) {
            size_t cell = c->site * a->n_rows + map[c->first_row + j];
            if (t->state[cell] != CELL_ABSENT)
                continue;
            t->state[cell] = CELL_STABLE;
            t->digest[cell] = d->digests[c->first_digest + j];
            t->capture[cell] = (uint32_t)i;
            t->kernel[cell] = kernel[c->launch];
            if (t->near && recorded[c->first_digest + j] != t->digest[cell])
                t->near[cell] = NEAR_REFERENCE;
            if (!is_ignored(a, c->site))
                hash_cell(d, c, t->hash[0], cell, t->digest[cell]);
        }
    }
    free(kernel);
    for (size_t r = 0; r < d->n_rows;
         r++) /* rows ascend in slot, so a request's rows of a call are neighbours */
        t->requests[d->rows[r].call] += r == 0 || d->rows[r - 1].call != d->rows[r].call ||
                                        d->rows[r - 1].request != d->rows[r].request;
    return 0;
}

struct odd { /* a digest that differs from the first trial's */
    size_t cell;
    uint64_t digest;
    uint32_t trial;
};

static int odd_cmp(const void *pa, const void *pb)
{
    const struct odd *a = pa, *b = pb;
    if (a->cell != b->cell)
        return a->cell < b->cell ? -1 : 1;
    if (a->digest != b->digest)
        return a->digest < b->digest ? -1 : 1;
    return (a->trial > b->trial) - (a->trial < b->trial);
}

/* One unstable cell: odds[0..n-1] of it, `votes` trials that have it. Chooses the mode (ties: the
 * earliest trial). disagrees NULL: it does not count. */
static void settle_cell(struct arm_table *t, const struct odd *odds, size_t n, uint32_t votes,
                        uint8_t *disagrees)
{
    size_t cell = odds[0].cell;
    uint32_t best = votes - (uint32_t)n, best_trial = 0;
    uint64_t first = t->digest[cell], mode = first;
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i; j < n && odds[j].digest == odds[i].digest; j++)
            continue;
        if (j - i > best || (j - i == best && odds[i].trial < best_trial)) {
            best = (uint32_t)(j - i);
            best_trial = odds[i].trial;
            mode = odds[i].digest;
        }
    }
    struct odd_one one = {.trial = UINT32_MAX, .mode_trial = best_trial};
    for (size_t i = 0; i < n; i++) {
        if (odds[i].digest == mode)
            continue;
        if (disagrees)
            disagrees[odds[i].trial] = 1;
        if (odds[i].trial < one.trial)
            one.trial = odds[i].trial, one.digest = odds[i].digest;
    }
    if (mode != first) {
        if (disagrees)
            disagrees[0] = 1;
        one.trial = 0;
        one.digest = first;
    }
    one.trial++;
    t->odd[cell] = one;
    t->digest[cell] = mode;
    t->state[cell] = CELL_UNSTABLE;
    t->unstable_cells += disagrees != NULL;
}

/* Compares the arm's further trials with the first. */
static int fill_repeats(struct ds_analysis *a, struct arm_table *t, struct ds_error *err)
{
    struct odd *odds = NULL;
    size_t n = 0, cap = 0;
    uint32_t *votes = ds_calloc(a->cells, sizeof *votes, "repeat counts", err);
    uint8_t *disagrees = ds_calloc(t->n_trials, 1, "trials", err);
    int rc = votes && disagrees ? 0 : -1;
    for (uint32_t k = 1; rc == 0 && k < t->n_trials; k++) {
        const struct ds_trial_data *d = a->src->get(a->src->ctx, t->trials[k], err);
        const uint64_t *recorded = d ? recorded_of(a, t->trials[k], d) : NULL;
        uint32_t *map = NULL;
        if (!d || map_rows(a, d, &map, err) != 0) {
            rc = -1;
            break;
        }
        for (size_t i = 0; rc == 0 && i < d->n_captures; i++) {
            const struct ds_capture *c = &d->captures[i];
            for (uint32_t j = 0; j < c->rows; j++) {
                size_t cell = c->site * a->n_rows + map[c->first_row + j];
                uint64_t digest = d->digests[c->first_digest + j];
                if (t->state[cell] == CELL_ABSENT || votes[cell] >= k)
                    continue;
                votes[cell]++;
                if (t->near)
                    note_near(a, t, cell, recorded[c->first_digest + j], digest);
                if (!is_ignored(a, c->site)) {
                    t->repeat_compared++;
                    hash_cell(d, c, t->hash[k], cell, digest);
                }
                if (digest == t->digest[cell])
                    continue;
                if ((rc = ds_grow(&odds, &cap, n + 1, sizeof *odds, "disagreeing digests", err)) !=
                    0)
                    break;
                odds[n++] = (struct odd){cell, digest, k};
            }
        }
        free(map);
    }
    for (size_t i = 0; rc == 0 && i < a->cells; i++)
        t->repeated_cells += votes[i] != 0 && !is_ignored(a, i / a->n_rows);
    if (rc == 0 && n) {
        qsort(odds, n, sizeof *odds, odd_cmp);
        t->odd = ds_calloc(a->cells, sizeof *t->odd, "unstable rows", err);
        rc = t->odd ? 0 : -1;
    }
    for (size_t i = 0, j; rc == 0 && i < n; i = j) {
        for (j = i; j < n && odds[j].cell == odds[i].cell; j++)
            continue;
        settle_cell(t, &odds[i], j - i, votes[odds[i].cell] + 1,
                    is_ignored(a, odds[i].cell / a->n_rows) ? NULL : disagrees);
    }
    for (uint32_t k = 0; rc == 0 && k < t->n_trials; k++)
        t->disagree += disagrees[k];
    free(odds);
    free(votes);
    free(disagrees);
    return rc;
}

int fill_arm(struct ds_analysis *a, struct arm_table *t, struct ds_error *err)
{
    t->rep = a->src->get(a->src->ctx, t->trials[0], err);
    uint32_t *map = NULL;
    if (!t->rep || !(t->digest = ds_calloc(a->cells, sizeof *t->digest, "digest table", err)) ||
        !(t->capture = ds_calloc(a->cells, sizeof *t->capture, "capture table", err)) ||
        !(t->kernel = ds_calloc(a->cells, sizeof *t->kernel, "kernel table", err)) ||
        !(t->state = ds_calloc(a->cells, 1, "state table", err)) ||
        (a->options.recorded && !(t->near = ds_calloc(a->cells, 1, "state table", err))) ||
        !(t->has = ds_calloc(a->n_sites, 1, "state table", err)) ||
        !(t->shares = ds_calloc(a->n_sites, sizeof *t->shares, "state table", err)) ||
        !(t->row = ds_calloc(a->n_rows, sizeof *t->row, "row table", err)) ||
        !(t->requests = ds_calloc(t->rep->n_calls, sizeof *t->requests, "call table", err)) ||
        map_rows(a, t->rep, &map, err) != 0)
        return -1;
    int rc = fill_first(a, t, map, err);
    free(map);
    if (rc == 0)
        count_shares(a, t);
    if (rc == 0 && t->n_trials > 1)
        rc = fill_repeats(a, t, err);
    return rc;
}

uint32_t capture_m(const struct arm_table *t, size_t row, uint32_t capture)
{
    int32_t rows = t->rep->launches[t->rep->captures[capture].launch].rows;
    return rows > 0 ? (uint32_t)rows : arm_call(t, row)->m;
}

int analysis_build(struct ds_analysis *a, struct ds_error *err)
{
    if (!(a->arms = ds_calloc(a->h->n_arms, sizeof *a->arms, "arms", err)) ||
        collect_trials(a, err) != 0 || collect_healed(a, err) != 0 || index_repeats(a, err) != 0 ||
        collect_keys(a, err) != 0 || index_edges(a, err) != 0 || index_values(a, err) != 0 ||
        index_stages(a, err) != 0 || index_places(a, err) != 0)
        return -1;
    size_t calls = 0;
    for (size_t i = 0; i < a->h->n_arms; i++) {
        if (a->arms[i].n_trials && fill_arm(a, &a->arms[i], err) != 0)
            return -1;
        if (a->arms[i].rep && a->arms[i].rep->n_calls > calls)
            calls = a->arms[i].rep->n_calls;
    }
    if (fill_copies(a, err) != 0)
        return -1;
    if (!(a->origin_seen = ds_calloc(a->n_sites, sizeof *a->origin_seen, "sites", err)) ||
        fill_healed(a, err) != 0)
        return -1;
    for (size_t i = 0; i < a->n_healed; i++)
        if (a->healed[i].t.rep->n_calls > calls)
            calls = a->healed[i].t.rep->n_calls;
    a->n_families = a->n_kernels * a->n_stages;
    if (!(a->kernel_unstable = ds_calloc(a->n_kernels, 1, "kernels", err)) ||
        !(a->kernel_repeats = ds_calloc(a->n_kernels, sizeof *a->kernel_repeats, "kernels", err)) ||
        !(a->status = ds_calloc(a->cells, 1, "labels", err)) ||
        !(a->prefix = ds_calloc(a->cells, 1, "labels", err)) ||
        !(a->skip = ds_calloc(a->n_rows, 1, "labels", err)) ||
        !(a->inputs = ds_calloc(a->n_rows, 1, "labels", err)) ||
        !(a->gap = ds_calloc(a->n_sites, 1, "labels", err)) ||
        !(a->open = ds_calloc(a->n_sites, 1, "labels", err)) ||
        !(a->marks = ds_calloc(a->n_sites, 1, "labels", err)) ||
        !(a->beside = ds_calloc(a->n_sites + 1, sizeof *a->beside, "labels", err)) ||
        !(a->call_status = ds_calloc(calls, 1, "labels", err)))
        return -1;
    for (size_t i = 0; i < a->h->n_arms; i++)
        if (!(a->arms[i].excluded = ds_calloc(a->n_families, 1, "kernels", err)))
            return -1;
    return 0;
}
