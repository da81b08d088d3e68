/* serving.c: what stands between the kernels of an engine, with one known fault each: bookkeeping,
 * caches, copies between devices, sums over ranks, results handed out. */
#include "specimen.h"

/* ---- bookkeeping ----------------------------------------------------------------------------- */

/* O-12b: after rejected drafts one slot too many is given back: the new row takes the place of the
 * last good one. */
static int trim_one_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_schedule_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        struct ds_sequence *s = &a->sequences[i];
        if (a->past[i].trimmed == 0 || s->kv_len - s->q_len < 1)
            continue;
        s->kv_len--;
        for (int32_t r = s->q_first; r < s->q_first + s->q_len; r++)
            a->positions[r]--;
    }
    return 0;
}

/* The same with the length right and the positions of the rows too high by what was rejected. */
static int late_positions_launch(const void *args, const struct ds_exec *exec, char *why,
                                 size_t why_size)
{
    const struct ds_schedule_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int32_t r = s->q_first; r < s->q_first + s->q_len; r++)
            if (a->positions[r] + a->past[i].trimmed < a->table_positions)
                a->positions[r] += a->past[i].trimmed;
    }
    return 0;
}

/* ---- results --------------------------------------------------------------------------------- */

static void copy_row(const struct ds_process_args *a, int64_t r)
{
    memcpy(a->y + r * a->ldy, a->logits + r * a->ldx, (size_t)a->vocab * sizeof *a->y);
}

/* O-12.b: rows of a prefix hit are not written: they hold what the buffer held before. */
static int unfilled_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_process_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        if (!a->cached[r])
            copy_row(a, r);
    return 0;
}

static int as_they_are_launch(const void *args, const struct ds_exec *exec, char *why,
                              size_t why_size)
{
    const struct ds_process_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        copy_row(a, r);
    return 0;
}

/* O-36: a repetition penalty although the temperature is 0. */
static int penalty_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_process_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++) {
        copy_row(a, r);
        for (int32_t t = 0; t < a->n_tokens[r]; t++)
            a->y[r * a->ldy + a->tokens[r][t]] -= 0.5f;
    }
    return 0;
}

/* ---- caches ---------------------------------------------------------------------------------- */

/* O-37: 4 bits a value, one scale for 8 channels: a block with a large channel loses the others. */
static float coarse(float v, float scale)
{
    return scale > 0.0f ? nearbyintf(v / scale) * scale : v;
}

static int q4_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_cache_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t r = 0; r < s->q_len; r++) {
            int64_t slot = (int64_t)s->kv_len - s->q_len + r;
            float *to = a->cache + ((int64_t)s->pages[slot / a->page_size] * a->page_size +
                                    slot % a->page_size) *
                                       a->width;
            const float *x = a->x + (s->q_first + r) * a->ldx;
            for (int64_t b = 0; b < a->width; b += 8) {
                float most = 0.0f;
                for (int64_t d = b; d < b + 8 && d < a->width; d++)
                    most = fmaxf(most, fabsf(x[d]));
                for (int64_t d = b; d < b + 8 && d < a->width; d++)
                    to[d] = coarse(x[d], most / 7.0f);
            }
        }
    }
    return 0;
}

/* ---- devices and ranks ----------------------------------------------------------------------- */

/* O-18: the copy of a row is not visible yet when the other device reads it, one time in four. */
static int late_copy_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    const struct ds_transfer_args *a = args;
    (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        if (specimen_mix(exec->seed ^ (uint64_t)r) % 4)
            memcpy(a->y + r * a->ldy, a->x + r * a->ldx, (size_t)a->width * sizeof *a->y);
        else
            memset(a->y + r * a->ldy, 0, (size_t)a->width * sizeof *a->y);
    return 0;
}

/* O-34.a: large messages are added as a tree, small ones along a chain. */
static int by_size_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_allreduce_args *a = args;
    (void)exec, (void)why, (void)why_size;
    int tree = a->ranks == 4 && a->rows * a->width >= 512;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            int64_t at = r * a->ldx + i;
            float s = a->x[0][at];
            if (tree) {
                float other = a->x[2][at] + a->x[3][at];
                s = (s + a->x[1][at]) + other;
            } else {
                for (int64_t k = 1; k < a->ranks; k++)
                    s += a->x[k][at];
            }
            a->y[r * a->ldy + i] = s;
        }
    return 0;
}

/* O-35: what travels from rank to rank is bf16 after every addition. */
static int bf16_steps_launch(const void *args, const struct ds_exec *exec, char *why,
                             size_t why_size)
{
    const struct ds_allreduce_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float s = a->x[0][r * a->ldx + i];
            for (int64_t k = 1; k < a->ranks; k++)
                s = specimen_short(s + a->x[k][r * a->ldx + i], 16);
            a->y[r * a->ldy + i] = s;
        }
    return 0;
}

/* O-34.b: ranks are added as they arrive. */
static int by_arrival_launch(const void *args, const struct ds_exec *exec, char *why,
                             size_t why_size)
{
    const struct ds_allreduce_args *a = args;
    int64_t order[64];
    (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++) {
        uint64_t seed = exec->seed ^ specimen_mix((uint64_t)r);
        int64_t n = a->ranks < 64 ? a->ranks : 64;
        for (int64_t k = 0; k < n; k++)
            order[k] = k;
        for (int64_t k = n; k > 1; k--) {
            seed = specimen_mix(seed);
            int64_t pick = (int64_t)(seed % (uint64_t)k), kept = order[k - 1];
            order[k - 1] = order[pick];
            order[pick] = kept;
        }
        for (int64_t i = 0; i < a->width; i++) {
            float s = 0.0f;
            for (int64_t k = 0; k < n; k++)
                s += a->x[order[k]][r * a->ldx + i];
            a->y[r * a->ldy + i] = s;
        }
    }
    return 0;
}

/* ---- experts --------------------------------------------------------------------------------- */

/* O-38: the router's logits are rounded to bf16 before the best are chosen. */
static int route(const struct ds_router_args *a, int rounded)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->logits + r * a->ldx;
        float max = -INFINITY, all = 0.0f, chosen = 0.0f;
        for (int64_t e = 0; e < a->experts; e++)
            max = fmaxf(max, x[e]);
        for (int64_t e = 0; e < a->experts; e++)
            all += expf(x[e] - max);
        for (int64_t k = 0; k < a->top_k; k++) {
            int64_t best = -1;
            float most = -INFINITY;
            for (int64_t e = 0; e < a->experts; e++) {
                int taken = 0;
                for (int64_t j = 0; j < k; j++)
                    taken |= a->ids[r * a->top_k + j] == e;
                float v = rounded ? specimen_short(x[e], 16) : x[e];
                if (!taken && v > most) {
                    most = v;
                    best = e;
                }
            }
            a->ids[r * a->top_k + k] = (int32_t)best;
            a->weights[r * a->top_k + k] = expf(x[best] - max) / all;
            chosen += a->weights[r * a->top_k + k];
        }
        for (int64_t k = 0; a->normalise && k < a->top_k; k++)
            a->weights[r * a->top_k + k] /= chosen;
    }
    return 0;
}

static int bf16_router_launch(const void *args, const struct ds_exec *exec, char *why,
                              size_t why_size)
{
    (void)exec, (void)why, (void)why_size;
    return route(args, 1);
}

static int plain_router_launch(const void *args, const struct ds_exec *exec, char *why,
                               size_t why_size)
{
    (void)exec, (void)why, (void)why_size;
    return route(args, 0);
}

const struct ds_kernel specimen_serving[] = {
    SPECIMEN(DS_OP_SCHEDULE, "trim-one", "one slot too many given back after a rejection",
             trim_one_launch, .claims = 0),
    SPECIMEN(DS_OP_SCHEDULE, "late-positions", "positions go on after rejected drafts",
             late_positions_launch, .claims = 0),
    SPECIMEN(DS_OP_PROCESS, "unfilled", "rows of a prefix hit are not written", unfilled_launch,
             .claims = 0),
    SPECIMEN(DS_OP_PROCESS, "as-they-are", "a copy: nothing wrong", as_they_are_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_PROCESS, "penalty", "a penalty on repeated tokens", penalty_launch, .claims = 0),
    SPECIMEN(DS_OP_CACHE, "four-bits", "4 bits a value, a scale for 8 channels", q4_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_TRANSFER, "late-copy", "now and then a row has not arrived", late_copy_launch,
             .claims = 0),
    SPECIMEN(DS_OP_ALLREDUCE, "by-size", "a tree for large messages, a chain for small",
             by_size_launch, .claims = 0),
    SPECIMEN(DS_OP_ALLREDUCE, "bf16-steps", "every addition is rounded to bf16", bf16_steps_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ALLREDUCE, "by-arrival", "ranks in order of arrival", by_arrival_launch,
             .claims = 0),
    SPECIMEN(DS_OP_ROUTER, "bf16", "logits rounded to bf16 before the choice", bf16_router_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ROUTER, "plain", "nothing wrong", plain_router_launch, .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ROUTER, "plain-too", "the same as plain", plain_router_launch,
             .claims = DS_CLAIM_ALL),
    {.name = NULL}};
