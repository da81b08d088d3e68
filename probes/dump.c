/* dump.c: bytes of drifting rows and of what their kernel read. Owns the trial's blobs (each
 * content once, found by digest) and the copies of drifting rows that later dumps may need as
 * inputs. Knows no file; the record stores blobs.
 *
 * A dump of a row is both sides' bytes and the kernel's input rows. Where this side's input equals
 * the reference's, they are one blob, taken from the hold. Where it differs, this side's bytes were
 * overwritten long ago, so with dump=all every drifting row is copied when it is seen and let go
 * when no site ahead reads it: at the end of its readers in the call, or, when they read earlier
 * calls' rows too (keys and values), at the end of the trial. */
#include "probes/probe_internal.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- blobs ----------------------------------------------------------------------------------- */

/* The place of a digest in the index: its blob, or the free place where it belongs. */
static size_t blob_place(const struct ds_probe *p, uint64_t digest)
{
    size_t at = (size_t)digest & (p->blob_slots - 1);
    while (p->blob_index[at] && p->t.blobs[p->blob_index[at] - 1].digest != digest)
        at = (at + 1) & (p->blob_slots - 1);
    return at;
}

/* Keeps the index at most half full. */
static int grow_index(struct ds_probe *p, struct ds_error *err)
{
    if (p->t.n_blobs >= UINT32_MAX / 4)
        return ds_fail(err, "dump: more than %zu rows in one trial", p->t.n_blobs);
    if (2 * (p->t.n_blobs + 1) <= p->blob_slots)
        return 0;
    size_t slots = p->blob_slots ? 2 * p->blob_slots : 256;
    uint32_t *index = ds_calloc(slots, sizeof *index, "index of dumped rows", err);
    if (!index)
        return -1;
    free(p->blob_index);
    p->blob_index = index;
    p->blob_slots = slots;
    for (size_t i = 0; i < p->t.n_blobs; i++)
        index[blob_place(p, p->t.blobs[i].digest)] = (uint32_t)i + 1;
    return 0;
}

int probe_add_blob(struct ds_probe *p, uint32_t site, uint64_t digest, const void *bytes,
                   struct ds_error *err)
{
    struct ds_trial_data *t = &p->t;
    if (grow_index(p, err))
        return -1;
    size_t place = blob_place(p, digest);
    if (p->blob_index[place])
        return 0;
    if (ds_grow(&t->blobs, &p->cap.blobs, t->n_blobs + 1, sizeof *t->blobs, "dumped rows", err))
        return -1;
    size_t n = p->c.sites[site].width * p->site[site].element_size;
    if (n > UINT32_MAX)
        return ds_fail(err, "dump: a row of %s has %zu bytes", p->c.sites[site].stage, n);
    void *data = ds_alloc(n, "dumped row", err); /* written in full, and once */
    if (!data)
        return -1;
    memcpy(data, bytes, n);
    struct ds_blob *b = &t->blobs[t->n_blobs++];
    *b = (struct ds_blob){
        .digest = digest, .elements = p->c.sites[site].width, .bytes = (uint32_t)n, .data = data};
    memcpy(b->dtype, p->c.sites[site].dtype, sizeof b->dtype);
    p->blob_index[place] = (uint32_t)t->n_blobs;
    return 0;
}

/* ---- kept rows ------------------------------------------------------------------------------- */

int probe_keep_row(struct ds_probe *p, const struct probe_rows *r, uint32_t i, struct ds_error *err)
{
    struct kept_site *k = &p->kept[r->site];
    if (k->n == 0 && !p->site[r->site].causal_source) {
        if (ds_grow(&p->live, &p->live_cap, p->n_live + 1, sizeof *p->live, "kept rows", err))
            return -1;
        p->live[p->n_live++] = r->site;
    }
    if (ds_grow(&k->rows, &k->cap, k->n + 1, sizeof *k->rows, "kept rows", err))
        return -1;
    void *bytes = ds_calloc(1, r->row_bytes, "kept row", err);
    if (!bytes)
        return -1;
    memcpy(bytes, probe_row_bytes(p, r, i), r->row_bytes);
    k->rows[k->n++] =
        (struct kept_row){p->call_first + probe_row_number(r, i), r->digests[i], bytes};
    return 0;
}

static void release_site(struct kept_site *k)
{
    for (size_t i = 0; i < k->n; i++)
        free(k->rows[i].bytes);
    k->n = 0;
}

void probe_release(struct ds_probe *p, uint32_t site)
{
    size_t left = 0;
    for (size_t i = 0; i < p->n_live; i++) {
        if (p->links[p->live[i]].last_reader < site)
            release_site(&p->kept[p->live[i]]);
        else
            p->live[left++] = p->live[i];
    }
    p->n_live = left;
}

void probe_release_all(struct ds_probe *p)
{
    for (uint32_t s = 0; s < p->c.n_sites && p->kept; s++)
        release_site(&p->kept[s]);
    p->n_live = 0;
}

/* ---- a dump ---------------------------------------------------------------------------------- */

/* Row number `row` of this call as `site` gave it: the reference's bytes, and this side's where
 * they differ. */
static int dump_input_row(struct ds_probe *p, const struct probe_ref *ref, uint32_t site,
                          uint32_t row, struct ds_error *err)
{
    const struct ds_row *key = &p->t.rows[p->call_first + row];
    uint32_t n, at = probe_held_at(p, ref, site);
    long held =
        ds_hold_find(p->c.hold, ref->slot, at, key, ref->guess[site] ? ref->guess[site] - 1 : 0);
    if (held >= 0 &&
        probe_add_blob(p, site, ds_hold_rows(p->c.hold, ref->slot, at, &n)[held].digest,
                       ds_hold_bytes(p->c.hold, ref->slot, at, (uint32_t)held), err))
        return -1;
    const struct kept_site *k = &p->kept[site];
    for (size_t i = 0; i < k->n; i++)
        if (k->rows[i].row == p->call_first + row &&
            probe_add_blob(p, site, k->rows[i].digest, k->rows[i].bytes, err))
            return -1;
    return 0;
}

/* The last position whose rows the kernel may have read for a row, rightly or not: what the call wrote of
 * the request is in the cache, and a kernel without its mask sees it. No more than a few behind the row. */
static int32_t last_written(const struct ds_probe *p, const struct ds_row *key)
{
    enum { MOST_BEHIND = 64 };
    int32_t last = key->position;
    for (uint32_t i = 0; i < p->call_rows; i++) {
        const struct ds_row *row = &p->t.rows[p->call_first + i];
        if (row->request == key->request && row->position > last)
            last = row->position;
    }
    return last - key->position > MOST_BEHIND ? key->position + MOST_BEHIND : last;
}

/* All rows of the request up to there, of all calls so far. */
static int dump_causal_rows(struct ds_probe *p, const struct probe_ref *ref, uint32_t site,
                            const struct ds_row *key, struct ds_error *err)
{
    uint32_t n;
    const int32_t last = last_written(p, key);
    const struct ds_hold_row *held = ds_hold_rows(p->c.hold, ref->slot, site, &n);
    for (uint32_t i = 0; i < n; i++)
        if (held[i].request == key->request && held[i].position <= last &&
            probe_add_blob(p, site, held[i].digest, ds_hold_bytes(p->c.hold, ref->slot, site, i),
                           err))
            return -1;
    const struct kept_site *k = &p->kept[site];
    for (size_t i = 0; i < k->n; i++) {
        const struct ds_row *row = &p->t.rows[k->rows[i].row];
        if (row->request == key->request && row->position <= last &&
            probe_add_blob(p, site, k->rows[i].digest, k->rows[i].bytes, err))
            return -1;
    }
    return 0;
}

static int dump_inputs(struct ds_probe *p, const struct probe_ref *ref, uint32_t site, uint32_t row,
                       struct ds_error *err);

/* One side has no such row, as the sum of ranks where only one arm has ranks: there the kernel read
 * what the other side's sum was made of. */
static int is_one_sided(const struct ds_probe *p, const struct probe_ref *ref, uint32_t site,
                        uint32_t row)
{
    return p->site[site].launch == NO_LAUNCH ||
           ds_hold_find(p->c.hold, ref->slot, site, &p->t.rows[p->call_first + row], 0) < 0;
}

static int dump_input(struct ds_probe *p, const struct probe_ref *ref, const struct probe_input *in,
                      uint32_t row, struct ds_error *err)
{
    if (!p->site[in->from].held)
        return 0;
    if (in->kind == DS_EDGE_ROW && is_one_sided(p, ref, in->from, row) &&
        dump_inputs(p, ref, in->from, row, err) != 0)
        return -1;
    if (in->kind == DS_EDGE_ROW)
        return dump_input_row(p, ref, in->from, row, err);
    if (in->kind == DS_EDGE_CAUSAL)
        return dump_causal_rows(p, ref, in->from, &p->t.rows[p->call_first + row], err);
    for (uint32_t i = 0; i < p->call_rows; i++)
        if (dump_input_row(p, ref, in->from, i, err))
            return -1;
    return 0;
}

static int dump_inputs(struct ds_probe *p, const struct probe_ref *ref, uint32_t site, uint32_t row,
                       struct ds_error *err)
{
    const struct probe_input *in = p->inputs + p->links[site].first_input;
    for (uint32_t k = 0; k < p->links[site].n_inputs; k++)
        if (dump_input(p, ref, &in[k], row, err) != 0)
            return -1;
    return 0;
}

/* Row i of the set against entry `held` of the reference. */
int probe_dump_row(struct ds_probe *p, const struct probe_ref *ref, const struct probe_rows *r,
                   uint32_t i, uint32_t held, struct ds_error *err)
{
    uint32_t n, row = probe_row_number(r, i), at = probe_held_at(p, ref, r->site);
    uint64_t ref_digest = ds_hold_rows(p->c.hold, ref->slot, at, &n)[held].digest;
    if (probe_add_blob(p, r->site, r->digests[i], probe_row_bytes(p, r, i), err) ||
        probe_add_blob(p, r->site, ref_digest, ds_hold_bytes(p->c.hold, ref->slot, at, held), err))
        return -1;
    return dump_inputs(p, ref, r->site, row, err);
}

int probe_dump_alone(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err)
{
    uint32_t *dumped = &p->links[r->site].dumped;
    if (p->c.sites[r->site].width == 0)
        return 0; /* rows of any length: add_blob takes the site's width */
    for (uint32_t i = 0; i < r->n && *dumped < p->c.dump_rows; i++, ++*dumped)
        if (probe_add_blob(p, r->site, r->digests[i], probe_row_bytes(p, r, i), err))
            return -1;
    return 0;
}
