/* subject_attention.c: brings attention into a call: sequences, pages, contents of
 * slots that were written and poison in those that were not. Judges nothing. */
#include "kernels/lab/subject_attention.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/content.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

float ds_attention_scale(int64_t head_dim)
{
    return (float)(4.0 / sqrt((double)head_dim));
}

/* ---- contents, kept from call to call ------------------------------------------------------------
 */

struct kept {
    int32_t sequence, content;
    int64_t slots; /* rows in k and v */
    float *k, *v;
};
struct own {
    struct kept *kept;
    size_t n, cap;
    int64_t floats;
};
enum { MOST_FLOATS = 48 << 20 };

static void forget(struct own *own)
{
    for (size_t i = 0; i < own->n; i++) {
        free(own->kept[i].k);
        free(own->kept[i].v);
    }
    own->n = 0;
    own->floats = 0;
}

static int open_own(struct ds_subject_parts *p, struct ds_error *err)
{
    return (p->own = ds_calloc(1, sizeof(struct own), "contents", err)) ? 0 : -1;
}

static void close_own(struct ds_subject_parts *p)
{
    struct own *own = p->own;
    if (own) {
        forget(own);
        free(own->kept);
    }
    free(own);
    p->own = NULL;
}

static int64_t kv_width(const struct ds_subject_parts *p)
{
    return p->shape->kv_heads * p->shape->head_dim;
}

static struct kept *kept_of(struct own *own, int32_t sequence, int32_t content,
                            struct ds_error *err)
{
    for (size_t i = 0; i < own->n; i++)
        if (own->kept[i].sequence == sequence && own->kept[i].content == content)
            return &own->kept[i];
    if (ds_grow(&own->kept, &own->cap, own->n + 1, sizeof *own->kept, "contents", err) != 0)
        return NULL;
    own->kept[own->n] = (struct kept){.sequence = sequence, .content = content};
    return &own->kept[own->n++];
}

/* Keys and values of slots 0..slots-1. */
static const struct kept *contents(struct ds_subject_parts *p, const struct ds_segment *seg,
                                   int64_t slots, struct ds_error *err)
{
    struct own *own = p->own;
    const int64_t width = kv_width(p);
    if (own->floats > MOST_FLOATS)
        forget(own);
    struct kept *e = kept_of(own, seg->sequence, seg->content, err);
    if (!e || e->slots >= slots)
        return e;
    int64_t room = e->slots * 2 > slots ? e->slots * 2 : slots;
    float *k = realloc(e->k, (size_t)(room * width) * sizeof *k);
    float *v = k ? realloc(e->v, (size_t)(room * width) * sizeof *v) : NULL;
    e->k = k ? k : e->k;
    if (!v) {
        ds_fail(err, "out of memory: contents of %lld cache slots", (long long)room);
        return NULL;
    }
    e->v = v;
    own->floats += 2 * (room - e->slots) * width;
    for (int64_t t = e->slots; t < room; t++) {
        ds_content_row(k + t * width, width, p->seed, DS_STREAM_K, seg->sequence, (int32_t)t,
                       seg->content);
        ds_content_row(v + t * width, width, p->seed, DS_STREAM_V, seg->sequence, (int32_t)t,
                       seg->content);
    }
    e->slots = room;
    return e;
}

/* ---- pages -----------------------------------------------------------------------------------------
 */

struct layout {
    int64_t page_size, pages, longest; /* longest list of pages */
    int32_t *order; /* [pages]: the pages in the order in which they are given out */
};

static int64_t list_pages(const struct ds_call *c, int64_t i, int64_t page_size)
{
    int64_t slots = ds_segment_kv_len(&c->segment[i]) + c->spare_slots;
    return (slots + page_size - 1) / page_size;
}

/* With pages of a given size one belongs to nobody at either end. */
static int layout_new(const struct ds_call *c, uint64_t seed, struct layout *l,
                      struct ds_error *err)
{
    *l = (struct layout){.page_size = c->page_size, .pages = c->page_size ? 2 : 0};
    for (int64_t i = 0; i < c->n_segments && !c->page_size; i++) {
        int64_t slots = ds_segment_kv_len(&c->segment[i]) + c->spare_slots;
        l->page_size = slots > l->page_size ? slots : l->page_size;
    }
    l->page_size += !l->page_size;
    for (int64_t i = 0; i < c->n_segments; i++) {
        int64_t n = list_pages(c, i, l->page_size);
        l->pages += n;
        l->longest = n > l->longest ? n : l->longest;
    }
    if (!(l->order = ds_calloc((size_t)l->pages, sizeof *l->order, "pages", err)))
        return -1;
    for (int64_t i = 0; i < l->pages; i++) /* the first one given out is page 1, if 0 is nobody's */
        l->order[i] = (int32_t)((i + (c->page_size != 0)) % l->pages);
    for (int64_t i = l->pages - 1; i > 0 && c->permute; i--) {
        int64_t o = (int64_t)(ds_content_hash(seed ^ c->permute, (uint64_t)i) % (uint64_t)(i + 1));
        int32_t t = l->order[i];
        l->order[i] = l->order[o], l->order[o] = t;
    }
    return 0;
}

static void fill(float *p, int64_t n, uint32_t bits)
{
    const float x = ds_f32_from_bits(bits);
    for (int64_t i = 0; i < n; i++)
        p[i] = x;
}

static uint32_t poison_of(const struct ds_subject_parts *p, const struct ds_call *c, int area)
{
    int other = (int)(c->spoil >> area & 1);
    uint32_t nan = p->arena.poison == DS_POISON_NAN;
    return ds_poison_gap((nan ^ (uint32_t)other) ? DS_POISON_NAN : DS_POISON_HUGE);
}

/* The area of a cache slot, or -1 if it holds a key and a value. */
static int area_of(const struct ds_subject_parts *p, const struct ds_call *c,
                   const struct ds_segment *seg, int64_t slot)
{
    int64_t seen_from = 0;
    if ((c->features & DS_FEATURE_WINDOW) && (p->kernel->features & DS_FEATURE_WINDOW) && c->window)
        seen_from = (seg->first > 0 ? seg->first : 0) - (int64_t)c->window + 1;
    if (slot >= ds_segment_kv_len(seg))
        return DS_AREA_BEHIND;
    if (slot < seg->padding)
        return DS_AREA_PADDING;
    return slot - seg->padding < seen_from ? DS_AREA_PASSED : -1;
}

static int fill_cache(struct ds_subject_parts *p, const struct ds_call *c, const struct layout *l,
                      const int32_t *lists, int64_t ld, float *k, float *v, struct ds_error *err)
{
    const int64_t width = kv_width(p), per_page = l->page_size * width;
    for (int64_t g = 0; g < l->pages; g++)
        fill(k + g * per_page, per_page, poison_of(p, c, DS_AREA_NOBODY)),
            fill(v + g * per_page, per_page, poison_of(p, c, DS_AREA_NOBODY));
    for (int64_t i = 0; i < c->n_segments; i++) {
        const struct ds_segment *seg = &c->segment[i];
        const struct kept *e = contents(p, seg, (int64_t)seg->first + seg->length, err);
        if (!e)
            return -1;
        for (int64_t t = 0; t < list_pages(c, i, l->page_size) * l->page_size; t++) {
            int64_t to =
                (lists[i * ld + t / l->page_size] * l->page_size + t % l->page_size) * width;
            int area = area_of(p, c, seg, t);
            if (area >= 0) {
                fill(k + to, width, poison_of(p, c, area));
                fill(v + to, width, poison_of(p, c, area));
                continue;
            }
            memcpy(k + to, e->k + (t - seg->padding) * width, (size_t)width * sizeof *k);
            memcpy(v + to, e->v + (t - seg->padding) * width, (size_t)width * sizeof *v);
        }
    }
    return 0;
}

/* The lists of pages and the sequences that point to them. A shorter list goes on with a page of
 * nobody; where there is none, and behind the longest, lie numbers that are no page. */
static struct ds_sequence *place_sequences(struct ds_subject_parts *p, const struct ds_call *c,
                                           const struct layout *l, const int32_t **lists_out,
                                           int64_t *ld_out, struct ds_error *err)
{
    const int64_t ld = l->longest + 1, words = sizeof(struct ds_sequence) / 4;
    /* Pointers want 8 bytes. */
    const int place = c->place < DS_PLACE_END ? c->place & ~1 : c->place;
    int32_t *lists = ds_arena_place(&p->arena, "pages", DS_ARRAY_IN, 4, c->n_segments, l->longest,
                                    ld, c->place, err);
    struct ds_sequence *seqs = lists ? ds_arena_place(&p->arena, "sequences", DS_ARRAY_IN, 4,
                                                      c->n_segments, words, words, place, err)
                                     : NULL;
    const int32_t nobody = c->page_size ? l->order[l->pages - 1] : INT32_MAX / 2;
    int32_t row = 0;
    int64_t next = 0;
    if (!seqs)
        return NULL;
    for (int64_t i = 0; i < c->n_segments; i++) {
        const struct ds_segment *seg = &c->segment[i];
        int64_t n = list_pages(c, i, l->page_size);
        for (int64_t g = 0; g < l->longest; g++)
            lists[i * ld + g] = g < n ? l->order[next + g] : nobody;
        next += n;
        seqs[i] = (struct ds_sequence){.request = (int32_t)i,
                                       .q_first = row,
                                       .q_len = seg->length,
                                       .kv_len = (int32_t)ds_segment_kv_len(seg),
                                       .kv_first = seg->padding,
                                       .pages = lists + i * ld};
        row += seg->length;
    }
    *lists_out = lists;
    *ld_out = ld;
    return seqs;
}

/* ---- attention --------------------------------------------------------------------------------------
 */

static uint32_t asked(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return c->features & p->kernel->features;
}

/* Rows of one stream as the call has them. */
static float *place_rows(struct ds_subject_parts *p, const struct ds_call *c, const char *name,
                         int stream, int64_t width, int64_t ld, struct ds_error *err)
{
    float *x =
        ds_arena_place(&p->arena, name, DS_ARRAY_IN, 4, ds_call_rows(c), width, ld, c->place, err);
    int64_t row = 0;
    for (int64_t i = 0; x && i < c->n_segments && !p->arena.bare; i++)
        for (int32_t j = 0; j < c->segment[i].length; j++, row++)
            ds_pool_row(p->pool, p->seed, x + row * ld, width, stream, c->segment[i].sequence,
                        c->segment[i].first + j, c->segment[i].content);
    return x;
}

static int place_outputs(struct ds_subject_parts *p, const struct ds_call *c,
                         struct ds_attention_args *a, struct ds_error *err)
{
    const int64_t width = a->heads * a->head_dim;
    a->ldy = width + ds_call_gap(c, DS_GAP_OUTPUT);
    a->y = ds_arena_place(&p->arena, "y", DS_ARRAY_OUT, 4, a->rows, width, a->ldy, c->place, err);
    if (!a->y)
        return -1;
    a->lse = asked(p, c) & DS_FEATURE_LSE
                 ? ds_arena_place(&p->arena, "lse", DS_ARRAY_OUT, 4, a->rows, a->heads, a->heads,
                                  c->place, err)
                 : NULL;
    return asked(p, c) & DS_FEATURE_LSE && !a->lse ? -1 : 0;
}

static int place_sinks(struct ds_subject_parts *p, const struct ds_call *c,
                       struct ds_attention_args *a, struct ds_error *err)
{
    float *sinks;
    a->sinks = NULL;
    if (!(asked(p, c) & DS_FEATURE_SINKS))
        return 0;
    sinks =
        ds_arena_place(&p->arena, "sinks", DS_ARRAY_IN, 4, 1, a->heads, a->heads, c->place, err);
    if (!sinks)
        return -1;
    ds_content_row(sinks, a->heads, p->seed, DS_STREAM_SINKS, 0, 0, DS_CONTENT_PLAIN);
    for (int64_t h = 0; h < a->heads; h++)
        sinks[h] *= 4.0f;
    a->sinks = sinks;
    return 0;
}

static int place_cache(struct ds_subject_parts *p, const struct ds_call *c, const struct layout *l,
                       struct ds_attention_args *a, struct ds_error *err)
{
    const int64_t width = kv_width(p), rows = l->pages * l->page_size;
    const int32_t *lists;
    int64_t ld;
    float *k =
        ds_arena_place(&p->arena, "cache_k", DS_ARRAY_IN, 4, rows, width, width, c->place, err);
    float *v =
        k ? ds_arena_place(&p->arena, "cache_v", DS_ARRAY_IN, 4, rows, width, width, c->place, err)
          : NULL;
    a->sequences = v ? place_sequences(p, c, l, &lists, &ld, err) : NULL;
    if (!a->sequences)
        return -1;
    a->n_sequences = c->n_segments;
    a->page_size = l->page_size;
    a->pages = l->pages;
    a->cache_k = k;
    a->cache_v = v;
    return p->arena.bare ? 0 : fill_cache(p, c, l, lists, ld, k, v, err);
}

static int attention_build(struct ds_subject_parts *p, const struct ds_call *c,
                           struct ds_error *err)
{
    const struct ds_shape *s = p->shape;
    struct ds_attention_args *a = &p->args.attention;
    struct layout l;
    *a = (struct ds_attention_args){.rows = ds_call_rows(c),
                                    .heads = s->heads,
                                    .kv_heads = s->kv_heads,
                                    .head_dim = s->head_dim,
                                    .scale = ds_attention_scale(s->head_dim),
                                    .ldq = s->heads * s->head_dim + c->gap,
                                    .window = asked(p, c) & DS_FEATURE_WINDOW ? c->window : 0,
                                    .soft_cap =
                                        asked(p, c) & DS_FEATURE_SOFT_CAP ? c->soft_cap : 0.0f};
    for (int64_t i = 0; i < c->n_segments; i++) {
        int32_t kv = (int32_t)ds_segment_kv_len(&c->segment[i]), q = c->segment[i].length;
        a->max_q_len = q > a->max_q_len ? q : a->max_q_len;
        a->max_kv_len = kv > a->max_kv_len ? kv : a->max_kv_len;
    }
    if (layout_new(c, p->seed, &l, err) != 0)
        return -1;
    a->q = place_rows(p, c, "q", DS_STREAM_Q, s->heads * s->head_dim, a->ldq, err);
    int rc = a->q && place_cache(p, c, &l, a, err) == 0 && place_sinks(p, c, a, err) == 0 &&
                     place_outputs(p, c, a, err) == 0
                 ? 0
                 : -1;
    free(l.order);
    return rc;
}

static int attention_parts(const struct ds_subject_parts *p, const struct ds_call *c,
                           struct ds_output_part part[DS_MOST_PARTS])
{
    part[0] = (struct ds_output_part){"y", DS_ELEMENT_F32, p->shape->heads * p->shape->head_dim};
    part[1] = (struct ds_output_part){"lse", DS_ELEMENT_F32, p->shape->heads};
    return asked(p, c) & DS_FEATURE_LSE ? 2 : 1;
}

static double attention_work(const struct ds_subject_parts *p, const struct ds_call *c)
{
    double pairs = 0;
    for (int64_t i = 0; i < c->n_segments; i++) {
        const struct ds_segment *s = &c->segment[i];
        for (int32_t j = 0; j < s->length; j++) {
            int64_t seen = (int64_t)s->first + j + 1;
            if (asked(p, c) & DS_FEATURE_WINDOW && c->window && seen > c->window)
                seen = c->window;
            pairs += seen > 0 ? (double)seen : 0;
        }
    }
    return 2 * pairs * (double)(p->shape->heads * p->shape->head_dim);
}

static double attention_bytes(const struct ds_subject_parts *p, const struct ds_call *c)
{
    double slots = 0;
    for (int64_t i = 0; i < c->n_segments; i++)
        slots += (double)c->segment[i].first + (double)c->segment[i].length;
    return 4 * (2 * slots * (double)kv_width(p) +
                2 * (double)ds_call_rows(c) * (double)(p->shape->heads * p->shape->head_dim));
}

const struct ds_subject_ops ds_subject_attention_ops = {.open = open_own,
                                                        .close = close_own,
                                                        .build = attention_build,
                                                        .parts = attention_parts,
                                                        .work = attention_work,
                                                        .bytes = attention_bytes};
