/* forward_schedule.c: where the rows of a call stand: what the op schedule is asked, and the check of
 * what it answers. Nothing it says is believed before it was held against the table of positions,
 * the cache and the call. Must not know stages, probes or what a row holds. */
#include "engine/forward_private.h"

#include <string.h>

/* Lengths, cache rows and slots of all rows, from the call's sequences. */
static void place_rows(struct ds_forward *f)
{
    f->max_kv_len = 0;
    for (int32_t i = 0; i < f->n_seqs; i++) {
        const struct ds_sequence *s = &f->seqs[i];
        f->max_kv_len = s->kv_len > f->max_kv_len ? s->kv_len : f->max_kv_len;
        for (int32_t k = 0; k < s->q_len; k++) {
            int32_t row = s->q_first + k, slot = s->kv_len - s->q_len + k;
            f->kv_len[row] = slot >= s->kv_first ? slot - s->kv_first + 1 : 0;
            f->cache_row[row] = s->pages[slot / f->cache.page_size] * f->cache.page_size +
                                slot % f->cache.page_size;
            int32_t own = ds_kv_cache_slot_in(&f->cache, s->request, f->cache_row[row]);
            f->own_slot[row] = own < 0 ? own : own - f->planned[i].kv_first;
        }
    }
}

static int bad(struct ds_pass *p, int32_t request, const char *what, int64_t value)
{
    ds_fail(p->err, "request %d: %s %lld is impossible", (int)request, what, (long long)value);
    return ds_pass_blame(p, DS_ST_POSITIONS);
}

static int check_sequence(struct ds_pass *p, int32_t i)
{
    struct ds_forward *f = p->f;
    const struct ds_sequence *s = &f->seqs[i], *was = &f->planned[i];
    if (s->request != was->request || s->q_first != was->q_first || s->q_len != was->q_len ||
        s->pages != was->pages)
        return bad(p, was->request, "a changed place in the call: sequence", i);
    if (s->kv_len < s->q_len || s->kv_len > f->cache.capacity)
        return bad(p, s->request, "kv_len", s->kv_len);
    if (s->kv_first < 0 || s->kv_first > s->kv_len)
        return bad(p, s->request, "kv_first", s->kv_first);
    for (int32_t k = 0; k < f->cache.pages_each; k++)
        if (s->pages[k] < 0 || s->pages[k] >= f->cache.pages)
            return bad(p, s->request, "page", s->pages[k]);
    return 0;
}

static int check(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    for (int32_t i = 0; i < f->n_seqs; i++)
        if (check_sequence(p, i) != 0)
            return -1;
    for (int32_t i = 0; i < f->n_seqs; i++)
        for (int32_t k = 0; k < f->seqs[i].q_len; k++) {
            int32_t position = f->positions[f->seqs[i].q_first + k];
            if (position < 0 || position >= f->m->rope_positions)
                return bad(p, f->seqs[i].request, "position", position);
        }
    return 0;
}

int ds_forward_schedule(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    const size_t each = (size_t)f->cache.pages_each;
    struct ds_schedule_args a = {.rows = f->rows,
                                 .positions = f->positions,
                                 .table_positions = f->m->rope_positions,
                                 .sequences = f->seqs,
                                 .n_sequences = f->n_seqs,
                                 .past = f->past,
                                 .page_table = f->page_table,
                                 .pages_each = f->cache.pages_each,
                                 .page_size = f->cache.page_size,
                                 .pages = f->cache.pages,
                                 .capacity = f->cache.capacity,
                                 .phase = f->phase,
                                 .call = f->trial_call++};
    memcpy(f->planned, f->seqs, (size_t)f->n_seqs * sizeof *f->planned);
    if (f->own_schedule) {
        for (int32_t i = 0; i < f->n_seqs; i++) {
            int32_t *pages = f->page_table + (size_t)i * each;
            memcpy(pages, f->seqs[i].pages, each * sizeof *pages);
            f->seqs[i].pages = f->planned[i].pages = pages;
        }
        if (ds_pass_launch(p, DS_ST_POSITIONS, &a, NULL, 0) != 0 || check(p) != 0)
            return -1;
    }
    for (int s = DS_ST_POSITIONS; p->probe && s <= DS_ST_SLOTS; s++)
        ds_pass_describe(f, s, &a);
    place_rows(f);
    return 0;
}

/* ---- healing --------------------------------------------------------------------------------- */

static int lost(struct ds_pass *p, int32_t request)
{
    ds_fail(p->err, "request %d: the reference's positions, lengths and slots do not fit this arm",
            (int)request);
    return ds_pass_blame(p, DS_ST_POSITIONS);
}

/* The length that a sequence has if a row of it sees `visible` keys. */
static int32_t length_for(const struct ds_sequence *s, int32_t row, int32_t visible)
{
    return visible + s->kv_first + s->q_len - 1 - (row - s->q_first);
}

/* The slot in the request's own count where a row of the sequence stands, as place_rows has it. */
static int32_t slot_of(const struct ds_forward *f, int32_t i, int32_t row)
{
    const struct ds_sequence *s = &f->seqs[i];
    int32_t slot = s->kv_len - s->q_len + row - s->q_first;
    int32_t at =
        s->pages[slot / f->cache.page_size] * f->cache.page_size + slot % f->cache.page_size;
    int32_t own = ds_kv_cache_slot_in(&f->cache, s->request, at);
    return own < 0 ? own : own - f->planned[i].kv_first;
}

/* Whether the recorded rows of sequence i stand where the slots that were written say. */
static int stands(const struct ds_forward *f, int32_t i)
{
    for (uint32_t k = 0; k < f->n_rec; k++) {
        int32_t row = f->rec[k].slot, in = row - f->seqs[i].q_first;
        if (f->rec[k].kind != DS_ROW_PAD && in >= 0 && in < f->seqs[i].q_len &&
            slot_of(f, i, row) != f->own_slot[row])
            return 0;
    }
    return 1;
}

/* Takes the length of sequence i from its recorded rows, which must agree on it. */
static int follow_length(struct ds_pass *p, int32_t i)
{
    struct ds_forward *f = p->f;
    struct ds_sequence *s = &f->seqs[i];
    int32_t length = s->kv_len, seen = 0;
    for (uint32_t k = 0; k < f->n_rec; k++) {
        int32_t row = f->rec[k].slot, in = row - s->q_first;
        if (f->rec[k].kind == DS_ROW_PAD || in < 0 || in >= s->q_len)
            continue;
        int32_t visible = f->kv_len[row];
        if (visible < 0 || visible > f->cache.capacity)
            return lost(p, s->request);
        int32_t wants = length_for(s, row, visible);
        if (seen++ && wants != length)
            return lost(p, s->request);
        length = wants;
    }
    if (length < s->q_len || length > f->cache.capacity)
        return lost(p, s->request);
    s->kv_len = length;
    return 0;
}

static int is_recorded(const struct ds_forward *f, const struct ds_sequence *s)
{
    for (uint32_t k = 0; k < f->n_rec; k++)
        if (f->rec[k].slot >= s->q_first && f->rec[k].slot < s->q_first + s->q_len)
            return 1;
    return 0;
}

/* Who is not recorded is not healed; but a request that stands where the schedule wrongly put it writes
 * over the one that was put right. */
static void restore_others(struct ds_forward *f)
{
    for (int32_t i = 0; i < f->n_seqs; i++)
        if (!is_recorded(f, &f->seqs[i])) {
            f->seqs[i].kv_len = f->planned[i].kv_len;
            f->seqs[i].kv_first = f->planned[i].kv_first;
        }
}

static void restore_pages(struct ds_forward *f)
{
    const size_t each = (size_t)f->cache.pages_each;
    for (int32_t i = 0; i < f->n_seqs && f->own_schedule; i++)
        memcpy(f->page_table + (size_t)i * each, ds_kv_cache_pages(&f->cache, f->seqs[i].request),
               each * sizeof *f->page_table);
}

int ds_forward_follow_schedule(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    int changed = 0;
    if (!p->probe || !ds_probe_heals(p->probe))
        return 0;
    for (int32_t i = 0; i < f->n_seqs; i++) {
        int32_t length = f->seqs[i].kv_len;
        if (follow_length(p, i) != 0)
            return -1;
        changed |= f->seqs[i].kv_len != length || !stands(f, i);
    }
    if (changed) { /* the requests' own pages are the only other ones known */
        restore_pages(f);
        restore_others(f);
    }
    for (int32_t i = 0; i < f->n_seqs; i++)
        if (!stands(f, i))
            return lost(p, f->seqs[i].request);
    if (check(p) != 0)
        return -1;
    place_rows(f);
    return 0;
}
