/* explain_sequences.c: attention and cache of a call again: where the row's own sequence stood among the
 * others, and the pages of the cache. */
#include "kernels/lab/explain_call.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <string.h>

/* The row's own sequence stands where it stood; the other rows of the call are shared out among the
 * other sequences as evenly as they go, with as many slots in use. Their bits are not looked at. */
static int lay_sequences(struct ds_explain_call *c, struct ds_error *err)
{
    const struct ds_explain_at *at = &c->first->at[c->side];
    const int64_t others = at->n_sequences - 1, rest = c->rows - at->q_len;
    if (at->q_first < 0 || at->q_len < 1 || at->q_first + at->q_len > c->rows || others < 0 ||
        rest < others || (others == 0 && rest > 0) || at->kv_len < at->q_len)
        return ds_fail(err, "the call's sequences do not fit its %lld rows", (long long)c->rows);
    c->sequences = ds_calloc((size_t)at->n_sequences, sizeof *c->sequences, "sequences", err);
    if (!c->sequences)
        return -1;
    /* How many of the others stand before it: as many as their even share fills. */
    int64_t before = rest ? (at->q_first * others + rest / 2) / rest : 0;
    if (at->q_first == 0)
        before = 0;
    else if (before == 0)
        before = 1;
    if (at->q_first + at->q_len == c->rows)
        before = others;
    else if (before == others && others)
        before = others - 1;
    int32_t q = 0;
    for (int64_t i = 0; i < at->n_sequences; i++) {
        struct ds_sequence *s = &c->sequences[i];
        int own = i == before;
        int64_t left = i < before ? before - i : at->n_sequences - i,
                room = i < before ? at->q_first - q : c->rows - q;
        s->request = (int32_t)i;
        s->q_first = q;
        s->q_len = own ? at->q_len : (int32_t)(room / left);
        s->kv_len = own || at->kv_len > s->q_len ? at->kv_len : s->q_len;
        s->kv_first = own ? c->first->input[c->side].kv_first : 0;
        q += s->q_len;
        if (s->q_len < 1 || (own && s->q_first != at->q_first))
            return ds_fail(err, "the call's sequences do not fit its %lld rows",
                           (long long)c->rows);
    }
    return q == c->rows ? 0 : ds_fail(err, "the call's sequences do not fill its rows");
}

static int32_t most_slots(const struct ds_explain_call *c)
{
    int32_t most = 0;
    for (int32_t i = 0; i < c->first->at[c->side].n_sequences; i++)
        most = c->sequences[i].kv_len > most ? c->sequences[i].kv_len : most;
    return most;
}

/* All sequences share the pages of the row's own: what they read does not matter. */
static int lay_pages(struct ds_explain_call *c, int64_t *page_size, int64_t *pages,
                     struct ds_error *err)
{
    const int64_t slots = most_slots(c);
    *page_size = c->e->page_size > 0 ? c->e->page_size : slots;
    const int64_t own = (slots + *page_size - 1) / *page_size;
    *pages = own + c->e->first_page;
    c->pages = ds_calloc((size_t)own, sizeof *c->pages, "pages", err);
    if (!c->pages)
        return -1;
    for (int64_t i = 0; i < own; i++)
        c->pages[i] = (int32_t)(c->e->first_page + (c->e->pages_turned ? own - 1 - i : i));
    for (int32_t i = 0; i < c->first->at[c->side].n_sequences; i++)
        c->sequences[i].pages = c->pages;
    return 0;
}

int ds_explain_bind_attention(struct ds_explain_call *c, struct ds_error *err)
{
    struct ds_attention_args *a = &c->args.attention;
    const struct ds_explain_at *at = &c->first->at[c->side];
    const int64_t kv = a->kv_heads * a->head_dim;
    if (lay_sequences(c, err) != 0 || lay_pages(c, &a->page_size, &a->pages, err) != 0)
        return -1;
    const size_t slots = (size_t)(a->page_size * a->pages);
    c->k = ds_alloc_aligned(slots * (size_t)kv, sizeof *c->k, "keys", err);
    c->v = ds_alloc_aligned(slots * (size_t)kv, sizeof *c->v, "values", err);
    if (!c->k || !c->v)
        return -1;
    /* Slots that no row writes are zeros; of pages that nobody has, NaN: whoever reads there shows it. */
    const size_t nobody = (size_t)(c->e->first_page * a->page_size) * (size_t)kv;
    for (size_t i = 0; i < slots * (size_t)kv; i++)
        c->k[i] = c->v[i] = i < nobody ? ds_f32_from_bits(0x7fc00000u) : 0.0f;
    /* The longest row knows all slots that a shorter one of the same call sees. */
    for (size_t j = 0; j < c->e->n_rows; j++) {
        const struct ds_explain_row *row = &c->e->rows[j];
        const struct ds_explain_input *in = &row->input[c->side];
        if (!ds_explain_in_call(c, row))
            continue;
        for (int64_t slot = in->kv_first; slot <= in->slot; slot++) {
            const int64_t at_row =
                              c->pages[slot / a->page_size] * a->page_size + slot % a->page_size,
                          from = (slot - in->kv_first) * kv;
            memcpy(c->k + at_row * kv, in->k + from, (size_t)kv * sizeof *c->k);
            memcpy(c->v + at_row * kv, in->v + from, (size_t)kv * sizeof *c->v);
        }
    }
    a->rows = c->rows;
    a->q = c->in[0];
    a->ldq = a->ldy = c->width;
    a->cache_k = c->k;
    a->cache_v = c->v;
    a->sequences = c->sequences;
    a->n_sequences = at->n_sequences;
    a->max_q_len = 0;
    for (int32_t i = 0; i < at->n_sequences; i++)
        if (c->sequences[i].q_len > a->max_q_len)
            a->max_q_len = c->sequences[i].q_len;
    a->max_kv_len = most_slots(c);
    a->y = c->y;
    return 0;
}

/* Each sequence has its own pages here: they are written. The output is read back. */
int ds_explain_bind_cache(struct ds_explain_call *c, struct ds_error *err)
{
    struct ds_cache_args *a = &c->args.cache;
    const int32_t n = c->first->at[c->side].n_sequences;
    if (lay_sequences(c, err) != 0)
        return -1;
    const int64_t slots = most_slots(c);
    a->page_size = c->e->page_size > 0 ? c->e->page_size : slots;
    const int64_t each = (slots + a->page_size - 1) / a->page_size;
    a->pages = each * n;
    c->pages = ds_calloc((size_t)a->pages, sizeof *c->pages, "pages", err);
    c->k =
        ds_alloc_aligned((size_t)(a->pages * a->page_size * a->width), sizeof *c->k, "cache", err);
    if (!c->pages || !c->k)
        return -1;
    for (int64_t i = 0; i < a->pages; i++)
        c->pages[i] = (int32_t)i;
    for (int32_t i = 0; i < n; i++)
        c->sequences[i].pages = c->pages + i * each;
    a->rows = c->rows;
    a->x = c->in[0];
    a->ldx = a->width;
    a->cache = c->k;
    a->sequences = c->sequences;
    a->n_sequences = n;
    return 0;
}

void ds_explain_read_cache(struct ds_explain_call *c)
{
    const struct ds_cache_args *a = &c->args.cache;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int32_t r = 0; r < s->q_len; r++) {
            const int64_t slot = s->kv_len - s->q_len + r,
                          row = s->pages[slot / a->page_size] * a->page_size + slot % a->page_size;
            memcpy(c->y + (s->q_first + r) * a->width, a->cache + row * a->width,
                   (size_t)a->width * sizeof *c->y);
        }
    }
}
