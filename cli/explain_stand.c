/* explain_stand.c: where a row stood in its call: how many rows and sequences it had, and which of them
 * were the row's own. The record is hostile: a place that no call can have is refused before it is
 * counted with. */
#include "cli/explain_case.h"

#include <stdint.h>

/* The rows of the request in the row's call, and all up to them. The record may claim any place: one
 * that no call can have is refused before it is counted with. */
static int own_sequence(const struct ds_case *c, int side, const struct ds_row *key,
                        struct ds_explain_at *at, int32_t *kv_first, struct ds_error *err)
{
    enum { FARTHEST = 1 << 28 };
    const struct ds_trial_data *t = c->side[side].t;
    int32_t pads =
        key->request == 0 ? (int32_t)ds_case_number(c, c->side[side].arm, "padding", 1 << 20) : 0;
    int32_t low = key->slot, high = key->slot, most = key->kv_len, first_call = 1;
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct ds_row *r = &t->rows[i];
        if (r->request != key->request)
            continue;
        first_call &= r->call >= key->call;
        if (r->call != key->call)
            continue;
        if (r->slot < 0 || r->slot > FARTHEST || r->kv_len < 0 || r->kv_len > FARTHEST)
            return ds_fail(err, "a row stands at place %d of a call, with %d slots before it",
                           r->slot, r->kv_len);
        low = r->slot < low ? r->slot : low;
        high = r->slot > high ? r->slot : high;
        most = r->kv_len > most ? r->kv_len : most;
    }
    *kv_first = pads;
    at->q_first = low - (first_call ? pads : 0);
    at->q_len = high + 1 - at->q_first;
    at->kv_len = pads + most;
    return 0;
}

/* The head sees one row of each sequence that has logits; the row's place among them is that of its
 * sequence in the call. */
static int64_t head_row(const struct ds_explain_at *at, const struct ds_row *key, uint32_t m,
                        uint32_t sequences)
{
    if (at->rows == m)
        return key->slot;
    int64_t others = (int64_t)sequences - 1, rest = (int64_t)m - at->q_len;
    int64_t place = rest > 0 ? (at->q_first * others + rest / 2) / rest : 0;
    return place < at->rows ? place : at->rows - 1;
}

int ds_case_stand(struct ds_case *c, int side, const struct ds_site_row *r,
                  struct ds_explain_at *at, int32_t *kv_first, struct ds_error *err)
{
    const struct ds_trial_data *t = c->side[side].t;
    const struct ds_call *call = &t->calls[r->key.call];
    const struct ds_launch *l = &t->launches[r->launch];
    if (call->m == 0) { /* rows of an earlier pass, shown by themselves */
        at->call = r->key.call;
        at->rows = l->rows > 0 ? l->rows : (int64_t)call->rows;
        at->row = r->key.slot;
        return at->row >= 0 && at->row < at->rows && at->rows <= 1 << 20
                   ? 0
                   : ds_fail(err, "a row stands at place %lld of %lld", (long long)at->row,
                             (long long)at->rows);
    }
    if (call->sequences < 1 || call->sequences > call->m)
        return ds_fail(err, "a call of %u rows cannot have %u sequences", call->m, call->sequences);
    if (own_sequence(c, side, &r->key, at, kv_first, err) != 0)
        return -1;
    /* Rows of one request in one call stand together. */
    at->call = (uint32_t)c->e.n_rows;
    for (size_t i = c->e.n_rows; i-- > 0;)
        if (c->rows[side][i].key.call == r->key.call &&
            c->rows[side][i].key.request == r->key.request)
            at->call = c->e.rows[i].at[side].call;
    at->rows = l->rows > 0 ? l->rows : (int64_t)call->m;
    at->n_sequences = call->sequences > INT32_MAX ? INT32_MAX : (int32_t)call->sequences;
    at->row = head_row(at, &r->key, call->m, call->sequences);
    if (c->choice >= 0 && ds_case_place_in_expert(c, side, r, at, err) != 0)
        return -1;
    if (at->row < 0 || at->row >= at->rows || at->rows > 1 << 20)
        return ds_fail(err, "a row stands at place %lld of a call of %lld rows", (long long)at->row,
                       (long long)at->rows);
    return 0;
}
