/* forward_plan.c: the planning of a call: which rows it has, where they stand, which are recorded,
 * which need logits; and the count of slots afterwards. Must not know the order of the stages, what a
 * schedule makes of the plan, sweeps or records. */
#include "engine/forward_private.h"

#include <string.h>

static int check_seq(const struct ds_forward *f, const struct ds_batch_seq *s, int32_t rows_before,
                     struct ds_error *err)
{
    int r = s->request, n = s->n_tokens;
    if (r < 0 || r >= f->config.n_requests)
        return ds_fail(err, "request %d: there are requests 0 to %d", r,
                       (int)f->config.n_requests - 1);
    if (f->seen[r] == f->call)
        return ds_fail(err, "request %d: twice in one call", r);
    if (n < 1 || n > f->config.max_rows - rows_before)
        return ds_fail(err, "request %d: %d tokens after %d other rows; a call holds 1 to %d rows",
                       r, n, (int)rows_before, (int)f->config.max_rows);
    int32_t used = f->cache.used[r];
    if (n > f->cache.capacity - used)
        return ds_fail(err,
                       "request %d: %d new tokens after %d do not fit the cache capacity of %d", r,
                       n, (int)used, (int)f->cache.capacity);
    if (s->n_pad < 0 || s->n_pad > n)
        return ds_fail(err, "request %d: %d padding rows among %d tokens", r, (int)s->n_pad, n);
    if (s->n_extra < 0 || s->n_extra > n - s->n_pad)
        return ds_fail(err, "request %d: %d rows to be given back among %d tokens", r,
                       (int)s->n_extra, n);
    if (s->n_pad && f->state[r].used)
        return ds_fail(err, "request %d: left padding is possible in a request's first call only",
                       r);
    if (s->logits_from < s->n_pad || s->logits_from > n)
        return ds_fail(err,
                       "request %d: logits from token %d on, of %d tokens with %d padding rows", r,
                       (int)s->logits_from, n, (int)s->n_pad);
    int64_t positions =
        (int64_t)f->config.position_offset + f->state[r].used - f->state[r].pads + n - s->n_pad;
    if (f->m->hp.context > 0 && positions > f->m->hp.context)
        return ds_fail(err, "request %d: %lld positions, but the model's context has %d", r,
                       (long long)positions, (int)f->m->hp.context);
    for (int i = 0; i < n; i++)
        if (s->tokens[i] < 0 || s->tokens[i] >= f->vocab)
            return ds_fail(err,
                           "request %d: token id %d at index %d is not in the vocabulary of %lld",
                           r, (int)s->tokens[i], i, (long long)f->vocab);
    return 0;
}

/* Row i of a sequence: what it is and where it truly stands. */
static struct ds_row row_of(const struct ds_forward *f, const struct ds_batch_seq *s, int32_t i,
                            int32_t from_start)
{
    int32_t step = s->prompt ? s->step : s->step + (i > s->logits_from ? i - s->logits_from : 0);
    int extra = i >= s->n_tokens - s->n_extra, pad = from_start < 0 || (extra && !s->drafts);
    const struct ds_batch_row *named = s->rows ? &s->rows[i] : NULL;
    step = named ? named->step : step;
    return (struct ds_row){
        .request = named ? named->request : s->request,
        .position = f->config.position_offset + from_start,
        /* of two the one that stays comes later, and is the one that others have */
        .occurrence = named ? named->occurrence : extra,
        .step = step,
        .slot = f->rows,
        .q_len = s->n_tokens,
        .kv_len = from_start >= 0 ? from_start + 1 : 0,
        .kind = pad        ? DS_ROW_PAD
                : step > 0 ? DS_ROW_GENERATED
                           : DS_ROW_PROMPT};
}

/* The number of the row among the recorded ones, or UINT32_MAX. */
static uint32_t record_row(struct ds_forward *f, const struct ds_batch_seq *s, int32_t i,
                           const struct ds_row *row)
{
    int extra = i >= s->n_tokens - s->n_extra;
    if (row->kind == DS_ROW_PAD ? !s->record_pads : extra || !s->record)
        return UINT32_MAX;
    f->rec[f->n_rec] = *row;
    return f->n_rec++;
}

/* One more logits row: what op process must know of it. */
static void plan_logits(struct ds_forward *f, const struct ds_batch_seq *s,
                        const struct ds_row *row, uint32_t number, int32_t from_start)
{
    int32_t n = f->n_logits++;
    f->logit_row[n] = f->rows;
    f->logit_rec[n] = number;
    if (!f->processed)
        return;
    f->choice.requests[n] = row->request;
    f->choice.positions[n] = row->position;
    f->choice.steps[n] = row->step;
    f->choice.cached[n] = 0;
    f->choice.n_tokens[n] = from_start + 1;
    f->choice.streams[n] = s->stream;
    /* by its place in the cache: the row may be known by another request's number */
    f->choice.tokens[n] = f->history + (int64_t)s->request * f->config.capacity;
}

/* Adds one sequence's rows to the call. */
static void plan_seq(struct ds_forward *f, const struct ds_batch_seq *s)
{
    const struct ds_request_state *r = &f->state[s->request];
    int32_t pads = r->used ? r->pads : s->n_pad, used = f->cache.used[s->request];
    int32_t logits_end = s->drafts ? s->n_tokens : s->n_tokens - s->n_extra;
    f->past[f->n_seqs] = (struct ds_schedule_past){
        .before = used, .trimmed = r->trimmed, .cached = r->cached, .extra = s->n_extra};
    f->seqs[f->n_seqs++] =
        (struct ds_sequence){.request = s->request,
                             .q_first = f->rows,
                             .q_len = s->n_tokens,
                             .kv_len = used + s->n_tokens,
                             .kv_first = r->used ? f->cache.pads[s->request] : s->n_pad,
                             .pages = ds_kv_cache_pages(&f->cache, s->request)};
    if (s->n_tokens > f->max_q_len)
        f->max_q_len = s->n_tokens;
    for (int32_t i = 0; i < s->n_tokens; i++, f->rows++) {
        int32_t from_start = r->used + i - pads;
        struct ds_row row = row_of(f, s, i, from_start);
        f->ids[f->rows] = s->tokens[i];
        f->positions[f->rows] = f->config.position_offset + (from_start > 0 ? from_start : 0);
        if (f->history && from_start >= 0)
            f->history[(int64_t)s->request * f->config.capacity + from_start] = s->tokens[i];
        uint32_t number = record_row(f, s, i, &row);
        if (i >= s->logits_from && i < logits_end)
            plan_logits(f, s, &row, number, from_start);
    }
}

int ds_forward_plan(struct ds_forward *f, const struct ds_batch *batch, struct ds_error *err)
{
    if (batch->n_seqs < 1)
        return ds_fail(err, "a call needs at least one sequence");
    f->call++;
    f->rows = f->n_seqs = f->n_logits = f->max_q_len = f->max_kv_len = 0;
    f->n_rec = 0;
    f->phase = batch->phase;
    for (int32_t i = 0; i < batch->n_seqs; i++) {
        if (check_seq(f, &batch->seqs[i], f->rows, err) != 0)
            return -1;
        f->seen[batch->seqs[i].request] = f->call;
        plan_seq(f, &batch->seqs[i]);
    }
    return 0;
}

/* The call is over: slots in use, as they are and as the schedule has them. */
static void count_slots(struct ds_forward *f, const struct ds_batch_seq *s,
                        const struct ds_sequence *scheduled)
{
    struct ds_request_state *r = &f->state[s->request];
    int32_t left = scheduled->kv_len - s->n_extra;
    r->pads = r->used ? r->pads : s->n_pad;
    r->used += s->n_tokens - s->n_extra;
    r->trimmed = s->n_extra;
    r->cached = 0;
    f->cache.used[s->request] = left > 0 ? left : 0;
    f->cache.pads[s->request] = scheduled->kv_first;
}

void ds_forward_count(struct ds_forward *f, const struct ds_batch *batch)
{
    for (int32_t i = 0; i < f->n_seqs; i++)
        count_slots(f, &batch->seqs[i], &f->seqs[i]);
}

void ds_forward_keep(struct ds_forward *f, int32_t request, int32_t n)
{
    struct ds_request_state *r = &f->state[request];
    r->pads = n ? r->pads : 0;
    r->used = n ? r->pads + n : 0;
    r->trimmed = 0;
    r->cached = n;
    f->cache.used[request] = r->used;
    f->cache.pads[request] = r->pads;
}

/* Rows of one layer's K or V, as many at a time as lie side by side in both pages. */
static int copy_rows(struct ds_forward *f, float *base, int32_t to, int32_t from, int32_t n,
                     struct ds_error *err)
{
    const struct ds_kv_cache *c = &f->cache;
    struct ds_device *dev = f->at.dev;
    const size_t row = (size_t)c->width * ds_forward_element(f);
    for (int32_t s = 0, run; s < n; s += run) {
        const int64_t dst = ds_kv_cache_row(c, to, s), src = ds_kv_cache_row(c, from, s);
        for (run = 1; s + run < n && ds_kv_cache_row(c, to, s + run) == dst + run &&
                      ds_kv_cache_row(c, from, s + run) == src + run;
             run++)
            ;
        if (ds_device_check(dev,
                            dev->copy_within(dev, ds_forward_behind(f, base, dst * c->width),
                                             ds_forward_behind(f, base, src * c->width),
                                             (size_t)run * row),
                            err) != 0)
            return ds_prefix(err, "cache rows of another request");
    }
    return 0;
}

int ds_forward_copy(struct ds_forward *f, int32_t to, int32_t from, int32_t n, struct ds_error *err)
{
    for (int32_t l = 0; l < f->cache.n_layers; l++) {
        ds_forward_to_device(f, ds_placement_device(&f->config.placement, l));
        if (copy_rows(f, f->layer_k[l], to, from, n, err) != 0 ||
            copy_rows(f, f->layer_v[l], to, from, n, err) != 0)
            return -1;
    }
    if (f->history)
        memcpy(f->history + (int64_t)to * f->config.capacity,
               f->history + (int64_t)from * f->config.capacity, (size_t)n * sizeof *f->history);
    ds_forward_keep(f, to, n);
    return 0;
}
