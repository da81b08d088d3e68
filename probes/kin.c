/* kin.c: rows of one trial that were made of equal inputs, whatever their requests: where several ask the same, what drift does
 * to one of them. Owns a copy of the first row of each family at each chosen site; the first one whose bits are others
 * becomes a drift against the trial's own arm, so that its size is known. One a family and site: sizes are wanted,
 * not a list. Knows no prompts: the caller says which rows are kin. */
#include "probes/probe_internal.h"

#include "base/mem.h"
#include "dumps/stats.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 64 << 20, FIRST_SLOTS = 256 };

void probe_kin_free(struct ds_probe *p)
{
    free(p->kin.of);
    free(p->kin.list);
    free(p->kin.index);
    free(p->kin.bytes);
}

void probe_kin_forget(struct ds_probe *p)
{
    p->kin.n = p->kin.n_bytes = 0;
    if (p->kin.index)
        memset(p->kin.index, 0, p->kin.slots * sizeof *p->kin.index);
}

int probe_kin_call(struct ds_probe *p, struct ds_error *err)
{
    if (!p->c.kin)
        return 0;
    if (ds_grow(&p->kin.of, &p->kin.cap_of, p->call_rows, sizeof *p->kin.of, "families", err))
        return -1;
    for (uint32_t i = 0; i < p->call_rows; i++)
        p->kin.of[i] = p->c.kin(p->c.kin_ctx, &p->t.rows[p->call_first + i]);
    return 0;
}

/* The place of a family at a site: its row, or the free place where it belongs. */
static size_t place_of(const struct ds_probe *p, uint64_t family, uint32_t site)
{
    size_t at = (size_t)((family ^ site * 0x9e3779b97f4a7c15u) >> 7) & (p->kin.slots - 1);
    for (; p->kin.index[at]; at = (at + 1) & (p->kin.slots - 1)) {
        const struct kin_row *x = &p->kin.list[p->kin.index[at] - 1];
        if (x->family == family && x->site == site)
            break;
    }
    return at;
}

/* Keeps the index at most half full. */
static int grow_index(struct ds_probe *p, struct ds_error *err)
{
    if (2 * (p->kin.n + 1) <= p->kin.slots)
        return 0;
    const size_t slots = p->kin.slots ? 2 * p->kin.slots : FIRST_SLOTS;
    uint32_t *index = ds_calloc(slots, sizeof *index, "index of families", err);
    if (!index)
        return -1;
    free(p->kin.index);
    p->kin.index = index;
    p->kin.slots = slots;
    for (size_t i = 0; i < p->kin.n; i++)
        index[place_of(p, p->kin.list[i].family, p->kin.list[i].site)] = (uint32_t)i + 1;
    return 0;
}

/* The first of its family. Where there is no room for more, sizes of fewer are known. */
static int keep_row(struct ds_probe *p, const struct probe_rows *r, uint32_t i, uint64_t family,
                    struct ds_error *err)
{
    struct probe_kin *k = &p->kin;
    if (k->n_bytes + r->row_bytes > MOST_BYTES)
        return 0;
    if (grow_index(p, err) ||
        ds_grow(&k->list, &k->cap, k->n + 1, sizeof *k->list, "families", err) ||
        ds_grow(&k->bytes, &k->cap_bytes, k->n_bytes + r->row_bytes, 1, "rows of families", err))
        return -1;
    k->list[k->n] = (struct kin_row){
        .family = family, .site = r->site, .digest = r->digests[i], .at = k->n_bytes};
    memcpy(k->bytes + k->n_bytes, probe_row_bytes(p, r, i), r->row_bytes);
    k->n_bytes += r->row_bytes;
    k->index[place_of(p, family, r->site)] = (uint32_t)++k->n;
    return 0;
}

int probe_kin(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err)
{
    struct ds_trial_data *t = &p->t;
    for (uint32_t i = 0; i < r->n; i++) {
        const uint32_t row = probe_row_number(r, i);
        const uint64_t family = p->kin.of[row];
        if (family == 0)
            continue;
        const size_t place = p->kin.slots ? place_of(p, family, r->site) : 0;
        if (!p->kin.slots || !p->kin.index[place]) {
            if (keep_row(p, r, i, family, err))
                return -1;
            continue;
        }
        struct kin_row *first = &p->kin.list[p->kin.index[place] - 1];
        if (first->sized || first->digest == r->digests[i])
            continue;
        if (ds_grow(&t->drifts, &p->cap.drifts, t->n_drifts + 1, sizeof *t->drifts, "drifting rows",
                    err))
            return -1;
        struct ds_drift *d = &t->drifts[t->n_drifts++];
        *d = (struct ds_drift){.site = r->site, .row = p->call_first + row, .ref_arm = t->info.arm};
        ds_stats_row(p->site[r->site].dtype, probe_row_bytes(p, r, i), p->kin.bytes + first->at,
                     r->width, d);
        d->digest = r->digests[i];
        d->ref_digest = first->digest;
        first->sized = 1;
    }
    return 0;
}
