/* subject_cache.c: how the cache's writer is brought into a call. Each segment is a request of its own
 * whose rows fill the last slots of its pages; slots count from the segment's first row. */
#include "kernels/lab/subject_rows.h"

#include "base/mem.h"
#include "kernels/lab/content.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 16 };

struct cache_own {
    int32_t *pages;  /* in the arena, as the sequences are */
    int64_t *row_of; /* row of the call -> row of the cache */
};

static int cache_open(struct ds_subject_parts *p, struct ds_error *err)
{
    p->own = ds_calloc(1, sizeof(struct cache_own), "cache call", err);
    return p->own ? 0 : -1;
}

static void cache_clear(struct cache_own *o)
{
    free(o->row_of);
    memset(o, 0, sizeof *o);
}

static void cache_close(struct ds_subject_parts *p)
{
    if (p->own)
        cache_clear(p->own);
    free(p->own);
}

static int64_t cache_slots(const struct ds_segment *s)
{
    return (int64_t)s->padding + s->length;
}

/* Pages are dealt out in ascending or permuted order. */
static void cache_pages(struct cache_own *o, int64_t n, uint64_t permute)
{
    for (int64_t i = 0; i < n; i++)
        o->pages[i] = (int32_t)i;
    for (int64_t i = n - 1; permute && i > 0; i--) {
        int64_t j = (int64_t)(ds_content_hash(permute, (uint64_t)i) % (uint64_t)(i + 1));
        int32_t keep = o->pages[i];
        o->pages[i] = o->pages[j];
        o->pages[j] = keep;
    }
}

static int cache_arrange(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_cache_args *a = &p->args.cache;
    struct cache_own *o = p->own;
    int64_t page = c->page_size ? c->page_size : PAGE, pages = 0, r = 0;
    for (int64_t i = 0; i < c->n_segments; i++)
        pages += (cache_slots(&c->segment[i]) + c->spare_slots + page - 1) / page;
    cache_clear(o);
    const int64_t words = sizeof(struct ds_sequence) / 4;
    struct ds_sequence *sequences =
        ds_arena_place(&p->arena, "sequences", DS_ARRAY_IN, 4, c->n_segments, words, words,
                       c->place < DS_PLACE_END ? c->place & ~1 : c->place, err); /* of 8 bytes */
    o->pages = sequences ? ds_arena_place(&p->arena, "pages", DS_ARRAY_IN, 4, 1, pages, pages,
                                          c->place, err)
                         : NULL;
    o->row_of = ds_calloc((size_t)a->rows, sizeof *o->row_of, "rows", err);
    if (!o->pages || !o->row_of)
        return -1;
    cache_pages(o, pages, c->permute);
    const int32_t *next = o->pages;
    for (int64_t i = 0; i < c->n_segments; i++) {
        const struct ds_segment *s = &c->segment[i];
        sequences[i] = (struct ds_sequence){.request = (int32_t)i,
                                            .q_first = (int32_t)r,
                                            .q_len = s->length,
                                            .kv_len = (int32_t)cache_slots(s),
                                            .kv_first = s->padding,
                                            .pages = next};
        for (int64_t j = 0; j < s->length; j++) {
            int64_t slot = s->padding + j;
            o->row_of[r++] = next[slot / page] * page + slot % page;
        }
        next += (cache_slots(s) + c->spare_slots + page - 1) / page;
    }
    a->page_size = page, a->pages = pages;
    a->sequences = sequences, a->n_sequences = c->n_segments;
    return 0;
}

static int cache_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    struct ds_cache_args *a = &p->args.cache;
    const struct cache_own *o = p->own;
    a->rows = ds_call_rows(c), a->width = p->shape->width, a->ldx = a->width + c->gap;
    if (cache_arrange(p, c, err) != 0)
        return -1;
    float *x =
        ds_arena_place(&p->arena, "x", DS_ARRAY_IN, 4, a->rows, a->width, a->ldx, c->place, err);
    if (!x)
        return -1;
    ds_subject_fill(p, c, 0, x, a->width, a->ldx);
    a->x = x;
    a->cache = ds_arena_place(&p->arena, "y", DS_ARRAY_OUT, 4, a->pages * a->page_size, a->width,
                              a->width, c->place, err);
    uint8_t *mask = a->cache ? ds_arena_row_mask(&p->arena, err) : NULL;
    if (!mask)
        return -1;
    for (int64_t r = 0; r < a->rows; r++)
        mask[o->row_of[r]] = 1;
    return 0;
}

static int64_t cache_row_of(const struct ds_subject_parts *p, const struct ds_call *c, int part,
                            int64_t r)
{
    (void)c, (void)part;
    return ((const struct cache_own *)p->own)->row_of[r];
}

static int cache_parts(const struct ds_subject_parts *p, const struct ds_call *c,
                       struct ds_output_part part[DS_MOST_PARTS])
{
    (void)c;
    part[0] = (struct ds_output_part){"y", DS_ELEMENT_F32, p->shape->width};
    return 1;
}

static double cache_work(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return (double)ds_call_rows(c) * (double)p->shape->width;
}

static double cache_bytes(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return 8.0 * cache_work(p, c);
}

const struct ds_subject_ops ds_subject_cache_ops = {.open = cache_open,
                                                    .close = cache_close,
                                                    .build = cache_build,
                                                    .parts = cache_parts,
                                                    .row_of = cache_row_of,
                                                    .work = cache_work,
                                                    .bytes = cache_bytes};
