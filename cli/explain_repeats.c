/* explain_repeats.c: repeats of one setting that disagree: the digests that the rows explained had in all
 * trials, and which of them a replay gives. Needs no dumped bytes. */
#include "cli/render_explain.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "probes/driftscope_probe.h"

#include <stdlib.h>
#include <string.h>

static int add(struct ds_case_repeats *p, uint32_t row, uint64_t digest, struct ds_error *err)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->row[i] == row && p->digest[i] == digest)
            return 0;
    if (ds_grow_by_one(&p->row, p->n, sizeof *p->row, "digests", err) != 0 ||
        ds_grow_by_one(&p->digest, p->n, sizeof *p->digest, "digests", err) != 0)
        return -1;
    p->row[p->n] = row;
    p->digest[p->n++] = digest;
    return 0;
}

static int add_trial(struct ds_case_repeats *p, const struct ds_case *c,
                     const struct ds_trial_data *t, struct ds_error *err)
{
    struct ds_site_row *rows;
    size_t n;
    if (ds_site_rows(t, c->f.site, &rows, &n, err) != 0)
        return -1;
    int rc = 0;
    for (size_t i = 0; i < c->e.n_rows && rc == 0; i++) {
        const struct ds_site_row *r = ds_site_find_row(rows, n, &c->rows[DS_SIDE_A][i].key);
        if (r)
            rc = add(p, (uint32_t)i, r->digest, err);
    }
    free(rows);
    p->trials++;
    return rc;
}

int ds_repeats_collect(struct ds_case_repeats *p, const struct ds_case *c, struct ds_error *err)
{
    memset(p, 0, sizeof *p);
    if (c->f.arm != c->f.ref_arm || c->heads > 1 || c->e.weights || c->not_replayed[0])
        return 0;
    for (size_t i = 0; i < c->s->n_trials; i++) {
        const struct ds_trial *info = c->s->info(c->s->ctx, i);
        if (info->arm != c->f.arm || info->pass != DS_PASS_NATURAL)
            continue;
        const struct ds_trial_data *t = c->s->get(c->s->ctx, i, err);
        if (!t || add_trial(p, c, t, err) != 0)
            return -1;
    }
    return (p->seen = ds_calloc(p->n, 1, "digests", err)) ? 0 : -1;
}

void ds_repeats_free(struct ds_case_repeats *p)
{
    free(p->row);
    free(p->digest);
    free(p->seen);
    memset(p, 0, sizeof *p);
}

/* Whether the row, as it would be stored, has that digest. */
static int has_digest(const struct ds_case *c, const float *y, size_t width, uint16_t *half,
                      uint64_t digest)
{
    const int dtype = c->e.side[DS_SIDE_A].dtype;
    if (dtype != DS_BF16 && dtype != DS_F16)
        return ds_digest(y, width * sizeof *y) == digest;
    ds_round_row(dtype, half, y, width);
    return ds_digest(half, width * sizeof *half) == digest;
}

int ds_repeats_count(struct ds_case_repeats *p, const struct ds_case *c, const float *y,
                     uint64_t *given, struct ds_error *err)
{
    const size_t width = (size_t)ds_explain_width(c->e.op, &c->e.shared);
    *given = 0;
    if (!p->n)
        return 0;
    uint16_t *half = ds_calloc(width, sizeof *half, "a row", err);
    if (!half)
        return -1;
    for (size_t i = 0; i < p->n; i++)
        if (has_digest(c, y + p->row[i] * width, width, half, p->digest[i])) {
            ++*given;
            p->seen[i] = 1;
        }
    free(half);
    return 0;
}

uint64_t ds_repeats_seen(struct ds_case_repeats *p)
{
    uint64_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += p->seen[i];
    memset(p->seen, 0, p->n);
    return n;
}
