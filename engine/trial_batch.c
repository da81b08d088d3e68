/* trial_batch.c: see trial_batch.h.
 *
 * Padding makes the batch a rectangle: every request is filled up to the length of the longest, the
 * subject counted with the padding asked for. Left padding stands before the first call's tokens and
 * stays in the cache, seen by nobody; right padding stands behind the last call's and leaves nothing.
 *
 * Drafts are wrong for the subject, always the same ones; varied neighbours keep as many as their
 * number says (0, 1, .. all, 0, ..), so that the rows of a batch give back unlike numbers of slots. */
#include "engine/trial_batch.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Prompt tokens of a request in one call. */
static int32_t chunk_of(const struct ds_setting *s)
{
    return s->mode == DS_MODE_DECODE ? 1 : s->chunk > 0 ? s->chunk : INT32_MAX;
}

void ds_trial_batch_free(struct ds_trial_batch *b)
{
    free(b->member);
    free(b->seqs);
    free(b->space);
}

/* Who sits where. */
static int place_members(const struct ds_sweep *sw, const struct ds_setting *s,
                         struct ds_trial_batch *b, struct ds_error *err)
{
    int32_t place = s->slot == DS_SLOT_FIRST    ? 0
                    : s->slot == DS_SLOT_MIDDLE ? b->n / 2
                    : s->slot == DS_SLOT_LAST   ? b->n - 1
                                                : s->slot;
    if (place >= b->n)
        return ds_fail(err, "slot %d does not exist in a batch of %d", place, b->n);
    int32_t neighbour = 0; /* number of the last one placed */
    for (int32_t i = 0; i < b->n; i++) {
        struct ds_member *m = &b->member[i];
        m->subject = i == place;
        m->request = m->subject ? 0 : ++neighbour;
        if (s->neighbours == DS_NEIGHBOURS_VARIED && m->request >= sw->n_requests)
            return ds_fail(err, "batch %d needs %d neighbours; only %d are there", b->n, b->n - 1,
                           sw->n_requests - 1);
        int own = m->subject || s->neighbours == DS_NEIGHBOURS_COPIES;
        const struct ds_sweep_request *r = &sw->requests[own ? 0 : m->request];
        m->prompt = r->tokens;
        m->n_prompt = r->n_prompt;
        m->feed = own ? NULL : r->tokens;
        m->accepts = own ? 0 : m->request % (s->rollback + 1);
    }
    return 0;
}

/* Padding of every request. */
static int pad_members(const struct ds_setting *s, struct ds_trial_batch *b, struct ds_error *err)
{
    int64_t width = 0;
    if (s->padding == 0)
        return 0;
    for (int32_t i = 0; i < b->n; i++) {
        int64_t own = (int64_t)b->member[i].n_prompt + (b->member[i].subject ? s->padding : 0);
        width = own > width ? own : width;
    }
    if (width > INT32_MAX / 4)
        return ds_fail(err, "a padded request of %lld rows is too long", (long long)width);
    for (int32_t i = 0; i < b->n; i++)
        b->member[i].n_pad = (int32_t)width - b->member[i].n_prompt;
    return 0;
}

/* Memory for the largest call, and cache slots of the longest request. */
static int size_calls(const struct ds_sweep *sw, const struct ds_setting *s,
                      struct ds_trial_batch *b, struct ds_error *err)
{
    const int scheduled = ds_kernel_set_changes(&s->kernels, DS_OP_SCHEDULE);
    int64_t rows = 0, decode = (int64_t)b->n * (s->rollback + 1);
    for (int32_t i = 0; i < b->n; i++) {
        const struct ds_member *m = &b->member[i];
        int64_t later = (int64_t)sw->options.steps * (m->accepts + 1) + s->rollback;
        if (scheduled) /* a wrong length is a finding as long as there is room for it */
            later += (int64_t)sw->options.steps * (s->rollback + 1);
        int64_t behind = s->pad_right && m->n_pad > later ? m->n_pad : later;
        int64_t slots = (s->pad_right ? 0 : m->n_pad) + (int64_t)m->n_prompt + behind;
        rows += (m->n_prompt < chunk_of(s) ? m->n_prompt : chunk_of(s)) + m->n_pad;
        if (slots > INT32_MAX / 2)
            return ds_fail(err, "a request of %lld tokens is too long", (long long)slots);
        b->capacity = slots > b->capacity ? (int32_t)slots : b->capacity;
    }
    rows = rows > decode ? rows : decode;
    if (rows > INT32_MAX / 2)
        return ds_fail(err, "a call of %lld rows is too large", (long long)rows);
    b->max_rows = (int32_t)rows;
    b->space = ds_calloc((size_t)rows, sizeof *b->space, "call tokens", err);
    return b->space ? 0 : -1;
}

int ds_trial_batch_new(const struct ds_sweep *sw, const struct ds_setting *s,
                       struct ds_trial_batch *b, struct ds_error *err)
{
    memset(b, 0, sizeof *b);
    b->n = s->batch;
    b->vocab = sw->model->hp.vocab;
    b->all_logits = sw->options.all_logits;
    b->member = ds_calloc((size_t)b->n, sizeof *b->member, "batch", err);
    b->seqs = ds_calloc((size_t)b->n, sizeof *b->seqs, "batch", err);
    if (!b->member || !b->seqs)
        return -1;
    return place_members(sw, s, b, err) != 0 || pad_members(s, b, err) != 0 ||
                   size_calls(sw, s, b, err) != 0
               ? -1
               : 0;
}

void ds_trial_batch_rewind(struct ds_trial_batch *b, int32_t prefix)
{
    for (int32_t i = 0; i < b->n; i++)
        b->member[i].fed = b->member[i].subject ? prefix : 0;
}

/* Logits of a chunk: of the last prompt row, or of all the subject's. */
static void want_logits(struct ds_trial_batch *b, const struct ds_member *m, int last,
                        int32_t *so_far, struct ds_batch_seq *seq)
{
    int32_t end = seq->n_tokens - seq->n_extra;
    seq->logits_from = m->subject && b->all_logits ? seq->n_pad : last ? end - 1 : end;
    int32_t n = end - seq->logits_from;
    if (m->subject) {
        b->first_logits = *so_far;
        b->n_logits = n;
        b->choice = last ? *so_far + n - 1 : -1;
    }
    *so_far += n;
}

int32_t ds_trial_next_chunk(struct ds_trial_batch *b, const struct ds_setting *s)
{
    int32_t n_seqs = 0, used = 0, logits_rows = 0;
    b->first_logits = b->choice = -1;
    b->n_logits = 0;
    for (int32_t i = 0; i < b->n; i++) {
        struct ds_member *m = &b->member[i];
        int32_t left = m->n_prompt - m->fed, take = left < chunk_of(s) ? left : chunk_of(s);
        if (take == 0)
            continue;
        int32_t before = m->fed == 0 && !s->pad_right ? m->n_pad : 0;
        int32_t behind = take == left && s->pad_right ? m->n_pad : 0;
        int32_t *tokens = b->space + used;
        for (int32_t k = 0; k < before + take + behind; k++)
            tokens[k] = m->prompt[0]; /* any token: pad rows are seen by nobody */
        memcpy(tokens + before, m->prompt + m->fed, (size_t)take * sizeof *tokens);
        m->fed += take;
        struct ds_batch_seq *seq = &b->seqs[n_seqs++];
        *seq = (struct ds_batch_seq){.request = m->request,
                                     .tokens = tokens,
                                     .n_tokens = before + take + behind,
                                     .n_pad = before,
                                     .n_extra = behind,
                                     .record = m->subject,
                                     .record_pads = m->subject,
                                     .prompt = 1,
                                     .stream = m->request};
        want_logits(b, m, m->fed == m->n_prompt, &logits_rows, seq);
        used += seq->n_tokens;
    }
    return n_seqs;
}

/* A token that is not `right`, if there is another. */
static int32_t wrong_token(const struct ds_trial_batch *b, int64_t start, int32_t right)
{
    int32_t t = (int32_t)(start % b->vocab);
    return t == right ? (t + 1) % b->vocab : t;
}

int32_t ds_trial_next_step(struct ds_trial_batch *b, const struct ds_setting *s, int32_t step,
                           int32_t subject_token, int32_t next)
{
    const int32_t each = s->rollback + 1;
    for (int32_t i = 0; i < b->n; i++) {
        struct ds_member *m = &b->member[i];
        int32_t *tokens = b->space + (int64_t)i * each;
        for (int32_t k = 0; k < each; k++) {
            int32_t right = k == 0 ? subject_token : k == 1 ? next : -1;
            if (m->feed)
                right = m->feed[(m->decoded + k) % m->n_prompt];
            tokens[k] = k <= m->accepts
                            ? right
                            : wrong_token(b, (int64_t)subject_token + step + 7 * k, right);
        }
        m->decoded += 1 + m->accepts;
        b->seqs[i] = (struct ds_batch_seq){.request = m->request,
                                           .tokens = tokens,
                                           .n_tokens = each,
                                           .n_extra = s->rollback - m->accepts,
                                           .drafts = 1,
                                           .record = m->subject,
                                           .logits_from = 0,
                                           .step = step,
                                           .stream = m->request};
        if (m->subject) {
            b->first_logits = b->choice = i * each;
            b->n_logits = 1;
        }
    }
    return b->n;
}
