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

/* The sequence of a row of the call. */
static int32_t sequence_of(const struct ds_forward *f, int32_t row)
{
    int32_t i = 0;
    while (i + 1 < f->n_seqs && f->seqs[i + 1].q_first <= row)
        i++;
    return i;
}

/* A row whose length or slot is not what the sequences say was overwritten: the sequence becomes what
 * the row now says, and so does what the kernels are given. */
static int follow_row(struct ds_forward *f, const struct ds_row *r)
{
    const int32_t i = sequence_of(f, r->slot);
    struct ds_sequence *s = &f->seqs[i];
    const int32_t first = f->planned[i].kv_first, k = r->slot - s->q_first;
    const int32_t slot = s->kv_len - s->q_len + k;
    const int32_t visible = slot >= s->kv_first ? slot - s->kv_first + 1 : 0;
    const int32_t *pages = ds_kv_cache_pages(&f->cache, s->request);
    int changed = 0;
    if (f->kv_len[r->slot] != visible) {
        s->kv_first = first;
        s->kv_len = first + f->kv_len[r->slot] - 1 + s->q_len - k;
        changed = 1;
    }
    if (f->own_schedule && f->own_slot[r->slot] >= 0 &&
        s->pages[(first + f->own_slot[r->slot]) / f->cache.page_size] !=
            pages[(first + f->own_slot[r->slot]) / f->cache.page_size]) {
        int32_t *own = f->page_table + (size_t)i * (size_t)f->cache.pages_each;
        memcpy(own, pages, (size_t)f->cache.pages_each * sizeof *own);
        changed = 1;
    }
    return changed;
}

int ds_forward_follow(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    int changed = 0;
    for (uint32_t i = 0; p->probe && i < f->n_rec; i++)
        if (f->rec[i].kind != DS_ROW_PAD)
            changed |= follow_row(f, &f->rec[i]);
    if (!changed)
        return 0;
    if (check(p) != 0)
        return -1;
    place_rows(f);
    return 0;
}
