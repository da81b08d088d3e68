/* tokenizer_bpe.c: byte pair encoding of one word. Knows pieces and merges; knows no patterns and
 * no special tokens.
 *
 * Of all neighbouring pairs that merge, the one of lowest rank is merged first, the leftmost of
 * equals; until none is left. Candidates wait in a heap, so a word of n bytes costs O(n log n)
 * however hostile it is. */
#include "engine/tokenizer_impl.h"

#include "base/mem.h"

#include <stdlib.h>

int ds_ids_add(struct ds_ids *ids, int32_t id, struct ds_error *err)
{
    if (ids->count == ids->cap &&
        ds_grow(&ids->list, &ids->cap, ids->count + 1, sizeof *ids->list, "token ids", err) != 0)
        return -1;
    ids->list[ids->count++] = id;
    return 0;
}

static int heap_push(struct ds_bpe *b, struct ds_bpe_candidate c, struct ds_error *err)
{
    if (b->heap_count == b->heap_cap && ds_grow(&b->heap, &b->heap_cap, b->heap_count + 1,
                                                sizeof *b->heap, "merge candidates", err) != 0)
        return -1;
    size_t i = b->heap_count++;
    for (; i > 0 && b->heap[(i - 1) / 2].key > c.key; i = (i - 1) / 2)
        b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = c;
    return 0;
}

static struct ds_bpe_candidate heap_pop(struct ds_bpe *b)
{
    struct ds_bpe_candidate top = b->heap[0], last = b->heap[--b->heap_count];
    size_t i = 0, n = b->heap_count;
    for (size_t child = 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && b->heap[child + 1].key < b->heap[child].key)
            child++;
        if (b->heap[child].key >= last.key)
            break;
        b->heap[i] = b->heap[child];
        i = child;
    }
    b->heap[i] = last;
    return top;
}

/* Offers the pair of symbol `left` and its right neighbour, if it merges. */
static int offer(const struct ds_tokenizer *t, struct ds_bpe *b, int32_t left, struct ds_error *err)
{
    if (left < 0 || b->symbols[left].next < 0)
        return 0;
    uint32_t lp = b->symbols[left].piece, rp = b->symbols[b->symbols[left].next].piece;
    const struct ds_merge *m = ds_pieces_merge(&t->pieces, lp, rp);
    if (m == NULL)
        return 0;
    return heap_push(
        b, (struct ds_bpe_candidate){(uint64_t)m->rank << 32 | (uint32_t)left, lp, rp, m->result},
        err);
}

static int merge_all(const struct ds_tokenizer *t, struct ds_bpe *b, struct ds_error *err)
{
    while (b->heap_count > 0) {
        struct ds_bpe_candidate c = heap_pop(b);
        int32_t left = (int32_t)(uint32_t)c.key;
        struct ds_bpe_symbol *l = &b->symbols[left];
        /* Outdated: one of the two has been merged since. A left symbol that kept its piece kept
         * its neighbour too, though that may have grown. */
        if (l->piece != c.left || l->next < 0 || b->symbols[l->next].piece != c.right)
            continue;
        struct ds_bpe_symbol *r = &b->symbols[l->next];
        l->piece = c.result;
        l->next = r->next;
        r->piece = DS_NO_PIECE;
        if (l->next >= 0)
            b->symbols[l->next].prev = left;
        if (offer(t, b, l->prev, err) != 0 || offer(t, b, left, err) != 0)
            return -1;
    }
    return 0;
}

/* The ids of a finished symbol: its token, or, where the vocabulary has none for the whole, those
 * of its bytes. */
static int emit(const struct ds_tokenizer *t, uint32_t piece, struct ds_ids *ids, size_t *unknown,
                struct ds_error *err)
{
    const struct ds_piece *p = &t->pieces.list[piece];
    if (p->token >= 0)
        return ds_ids_add(ids, p->token, err);
    int len = 0;
    for (uint32_t i = 0; i < p->len; i += (uint32_t)len) {
        int byte = ds_byte_unspell(t->pieces.text + p->at + i, p->len - i, &len);
        int32_t id = byte < 0 ? -1 : t->pieces.list[t->byte_piece[byte]].token;
        if (len == 0)
            len = 1;
        if (id < 0)
            ++*unknown;
        else if (ds_ids_add(ids, id, err) != 0)
            return -1;
    }
    return 0;
}

int ds_bpe_word(const struct ds_tokenizer *t, struct ds_bpe *b, const char *word, size_t n,
                struct ds_ids *ids, size_t *unknown, struct ds_error *err)
{
    if (n == 0)
        return 0;
    if (n > b->symbols_cap &&
        ds_grow(&b->symbols, &b->symbols_cap, n, sizeof *b->symbols, "symbols of a word", err) != 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        b->symbols[i] = (struct ds_bpe_symbol){t->byte_piece[(unsigned char)word[i]],
                                               (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1};
    b->heap_count = 0;
    for (size_t i = 0; i + 1 < n; i++)
        if (offer(t, b, (int32_t)i, err) != 0)
            return -1;
    if (merge_all(t, b, err) != 0)
        return -1;
    for (int32_t i = 0; i >= 0; i = b->symbols[i].next)
        if (emit(t, b->symbols[i].piece, ids, unknown, err) != 0)
            return -1;
    return 0;
}

void ds_bpe_free(struct ds_bpe *b)
{
    free(b->symbols);
    free(b->heap);
    *b = (struct ds_bpe){0};
}
