/* pool.c: see pool.h. A table by key that is emptied when it is full: what is asked for next is likely
 * to be asked for again soon. */
#include "kernels/lab/pool.h"

#include "kernels/lab/content.h"

#include <stdlib.h>
#include <string.h>

enum { FEWEST = 64, MOST_ROWS = 1 << 13, MOST_FLOATS = 6 << 20 };

struct key {
    int64_t n;
    int32_t stream, sequence, slot, content;
};
struct kept {
    struct key key;
    float *row; /* NULL: the place is free */
};
struct ds_pool {
    uint64_t seed;
    int64_t floats;
    size_t rows, places; /* places: a power of two, more than twice as many as rows */
    struct kept *at;
};

struct ds_pool *ds_pool_new(uint64_t seed)
{
    struct ds_pool *p = calloc(1, sizeof *p);
    if (p)
        p->seed = seed;
    return p;
}

static void empty(struct ds_pool *p)
{
    for (size_t i = 0; p->rows && i < p->places; i++) {
        p->rows -= p->at[i].row != NULL;
        free(p->at[i].row);
        p->at[i].row = NULL;
    }
    p->floats = 0;
}

void ds_pool_free(struct ds_pool *p)
{
    if (!p)
        return;
    empty(p);
    free(p->at);
    free(p);
}

static struct kept *find(struct kept *at, size_t places, const struct key *k)
{
    uint64_t h = ds_content_hash((uint64_t)(uint32_t)k->sequence << 32 | (uint32_t)k->slot,
                                 (uint64_t)k->n << 20 | (uint64_t)(k->stream * 64 + k->content));
    size_t i = h & (places - 1);
    while (at[i].row && memcmp(&at[i].key, k, sizeof *k) != 0)
        i = (i + 1) & (places - 1);
    return &at[i];
}

/* 0: there is a free place. */
static int make_room(struct ds_pool *p)
{
    if (2 * (p->rows + 1) < p->places)
        return 0;
    const size_t places = p->places ? 2 * p->places : FEWEST;
    struct kept *at = calloc(places, sizeof *at);
    if (!at)
        return -1;
    for (size_t i = 0; i < p->places; i++)
        if (p->at[i].row)
            *find(at, places, &p->at[i].key) = p->at[i];
    free(p->at);
    p->at = at;
    p->places = places;
    return 0;
}

static void keep(struct ds_pool *p, const struct key *k, const float *row)
{
    const size_t bytes = (size_t)k->n * sizeof *row;
    if (p->rows == MOST_ROWS || p->floats + k->n > MOST_FLOATS)
        empty(p);
    float *copy = make_room(p) == 0 ? malloc(bytes ? bytes : 1) : NULL;
    if (!copy) /* it is made again the next time */
        return;
    memcpy(copy, row, bytes);
    *find(p->at, p->places, k) = (struct kept){*k, copy};
    p->rows++;
    p->floats += k->n;
}

void ds_pool_row(struct ds_pool *p, uint64_t seed, float *row, int64_t n, int stream,
                 int32_t sequence, int32_t slot, int content)
{
    const struct key k = {n, stream, sequence, slot, content};
    const int keeps = p && p->seed == seed && n <= MOST_FLOATS / 64;
    const struct kept *at = keeps && p->places ? find(p->at, p->places, &k) : NULL;
    if (at && at->row) {
        memcpy(row, at->row, (size_t)n * sizeof *row);
        return;
    }
    ds_content_row(row, n, seed, stream, sequence, slot, content);
    if (keeps)
        keep(p, &k, row);
}
