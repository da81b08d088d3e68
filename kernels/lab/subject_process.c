/* subject_process.c: how logits on their way to the choice are brought into a call. A row's tokens so
 * far are a function of its key, like its logits. */
#include "kernels/lab/subject_rows.h"

#include "base/dtype.h"
#include "kernels/lab/content.h"

enum { TOKENS = 4, MOST_TOKENS = 12 }; /* stream of content; tokens so far, however long the text */

static int32_t *numbers(struct ds_subject_parts *p, const struct ds_call *c, const char *name,
                        int64_t cols, struct ds_error *err)
{
    return ds_arena_place(&p->arena, name, DS_ARRAY_IN, 4, ds_call_rows(c), cols, cols, c->place,
                          err);
}

/* The row's history: the same tokens and as many in every call that has it. */
static void fill_row(struct ds_subject_parts *p, const struct ds_segment *s, int32_t slot,
                     int32_t *tokens, int32_t *n)
{
    *n = slot < MOST_TOKENS ? slot + 1 : MOST_TOKENS;
    for (int32_t t = 0; t < *n; t++)
        tokens[t] = (int32_t)(ds_content_hash(ds_content_hash(p->seed, TOKENS),
                                              ((uint64_t)(uint32_t)s->sequence << 32) |
                                                  (uint32_t)(slot - *n + 1 + t)) %
                              (uint64_t)p->shape->vocab);
}

static int process_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_process_args *a = &p->args.process;
    const int64_t rows = ds_call_rows(c);
    int32_t *requests = numbers(p, c, "requests", 1, err), *positions, *steps, *n_tokens, *tokens;
    positions = requests ? numbers(p, c, "positions", 1, err) : NULL;
    steps = positions ? numbers(p, c, "steps", 1, err) : NULL;
    int32_t *cached = steps ? numbers(p, c, "cached", 1, err) : NULL;
    n_tokens = cached ? numbers(p, c, "n_tokens", 1, err) : NULL;
    tokens = n_tokens ? numbers(p, c, "tokens of a row", MOST_TOKENS, err) : NULL;
    const int32_t **lists = tokens ? ds_arena_place(&p->arena, "tokens", DS_ARRAY_IN, 4, rows, 2, 2,
                                                    0, err) /* two words each, aligned */
                                   : NULL;
    float *logits = lists ? ds_arena_place(&p->arena, "logits", DS_ARRAY_IN, 4, rows,
                                           p->shape->vocab, p->shape->vocab + c->gap, c->place, err)
                          : NULL;
    if (!logits)
        return -1;
    ds_subject_fill(p, c, 0, logits, p->shape->vocab, p->shape->vocab + c->gap);
    for (int64_t i = 0, r = 0; i < c->n_segments; i++)
        for (int32_t j = 0; j < c->segment[i].length; j++, r++) {
            const int32_t slot = c->segment[i].first + j;
            requests[r] = c->segment[i].sequence;
            positions[r] = slot;
            steps[r] = slot % 3;
            cached[r] = 0;
            lists[r] = tokens + r * MOST_TOKENS;
            fill_row(p, &c->segment[i], slot, tokens + r * MOST_TOKENS, &n_tokens[r]);
        }
    *a = (struct ds_process_args){.rows = rows,
                                  .vocab = p->shape->vocab,
                                  .logits = logits,
                                  .ldx = p->shape->vocab + c->gap,
                                  .ldy = p->shape->vocab + ds_call_gap(c, DS_GAP_OUTPUT),
                                  .requests = requests,
                                  .positions = positions,
                                  .steps = steps,
                                  .cached = cached,
                                  .tokens = lists,
                                  .n_tokens = n_tokens};
    a->y = ds_arena_place(&p->arena, "y", DS_ARRAY_OUT, 4, rows, a->vocab, a->ldy, c->place, err);
    return a->y ? 0 : -1;
}

static int process_parts(const struct ds_subject_parts *p, const struct ds_call *c,
                         struct ds_output_part part[DS_MOST_PARTS])
{
    (void)c;
    part[0] = (struct ds_output_part){"y", DS_ELEMENT_F32, p->shape->vocab};
    return 1;
}

static double process_work(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return (double)ds_call_rows(c) * (double)p->shape->vocab;
}

static double process_bytes(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return 8.0 * process_work(p, c);
}

const struct ds_subject_ops ds_subject_process_ops = {
    .build = process_build, .parts = process_parts, .work = process_work, .bytes = process_bytes};
