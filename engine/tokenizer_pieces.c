/* tokenizer_pieces.c: interned texts and merge ranks. Owns both hash tables and the spelling of
 * bytes as characters; knows nothing of files, patterns and special tokens.
 *
 * Merges are looked up by a pair of piece numbers, not by text, so one step of the encoder costs
 * one probe. A merge whose result is no token is a piece all the same: later merges may build on it
 * (llama.cpp does so too). */
#include "engine/tokenizer_impl.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* The slot that holds the text, or the empty one where it belongs. */
static size_t probe(const struct ds_pieces *p, const char *text, size_t n)
{
    size_t mask = p->n_slots - 1, i = (size_t)XXH3_64bits(text, n) & mask;
    for (; p->slots[i] != 0; i = (i + 1) & mask) {
        const struct ds_piece *have = &p->list[p->slots[i] - 1];
        if (have->len == n && memcmp(p->text + have->at, text, n) == 0)
            break;
    }
    return i;
}

static int grow_slots(struct ds_pieces *p, struct ds_error *err)
{
    if (p->n_slots != 0 && p->count + 1 <= p->n_slots / 2)
        return 0;
    struct ds_pieces bigger = *p;
    bigger.n_slots = p->n_slots == 0 ? 1024 : p->n_slots * 2;
    bigger.slots = ds_calloc(bigger.n_slots, sizeof *bigger.slots, "token hash table", err);
    if (bigger.slots == NULL)
        return -1;
    for (size_t i = 0; i < p->count; i++)
        bigger.slots[probe(&bigger, p->text + p->list[i].at, p->list[i].len)] = (uint32_t)i + 1;
    free(p->slots);
    *p = bigger;
    return 0;
}

int ds_pieces_add(struct ds_pieces *p, const char *a, size_t na, const char *b, size_t nb,
                  uint32_t *piece, struct ds_error *err)
{
    size_t len = na + nb;
    if (p->count >= DS_NO_PIECE - 1 || len > UINT32_MAX - 1 - p->text_len)
        return ds_fail(err, "the token texts together are too long (4 GiB at most)");
    if (grow_slots(p, err) != 0 ||
        ds_grow(&p->text, &p->text_cap, p->text_len + len + 1, 1, "token texts", err) != 0 ||
        ds_grow(&p->list, &p->cap, p->count + 1, sizeof *p->list, "tokens", err) != 0)
        return -1;
    /* Joined behind the texts there are; it stays there only if it is new. */
    char *text = p->text + p->text_len;
    if (na != 0)
        memcpy(text, a, na);
    if (nb != 0)
        memcpy(text + na, b, nb);
    size_t slot = probe(p, text, len);
    if (p->slots[slot] == 0) {
        p->list[p->count] = (struct ds_piece){(uint32_t)p->text_len, (uint32_t)len, -1};
        p->text_len += len;
        p->slots[slot] = (uint32_t)++p->count;
    }
    *piece = p->slots[slot] - 1;
    return 0;
}

/* ---- merges ---------------------------------------------------------------------------------- */

int ds_pieces_reserve_merges(struct ds_pieces *p, size_t count, struct ds_error *err)
{
    size_t slots = 16;
    while (slots < count * 2)
        slots *= 2;
    p->merges = ds_calloc(slots, sizeof *p->merges, "merge hash table", err);
    if (p->merges == NULL)
        return -1;
    for (size_t i = 0; i < slots; i++)
        p->merges[i].left = DS_NO_PIECE;
    p->n_merge_slots = slots;
    return 0;
}

static size_t probe_merge(const struct ds_pieces *p, uint32_t left, uint32_t right)
{
    /* Multiplicative hashing (Knuth); the high bits are the good ones. */
    uint64_t key = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);
    size_t mask = p->n_merge_slots - 1, i = (size_t)(key ^ key >> 32) & mask;
    while (p->merges[i].left != DS_NO_PIECE &&
           (p->merges[i].left != left || p->merges[i].right != right))
        i = (i + 1) & mask;
    return i;
}

void ds_pieces_add_merge(struct ds_pieces *p, uint32_t left, uint32_t right, uint32_t rank,
                         uint32_t result)
{
    struct ds_merge *m = &p->merges[probe_merge(p, left, right)];
    if (m->left == DS_NO_PIECE)
        *m = (struct ds_merge){left, right, rank, result};
}

const struct ds_merge *ds_pieces_merge(const struct ds_pieces *p, uint32_t left, uint32_t right)
{
    const struct ds_merge *m = &p->merges[probe_merge(p, left, right)];
    return m->left == DS_NO_PIECE ? NULL : m;
}

void ds_pieces_free(struct ds_pieces *p)
{
    free(p->text);
    free(p->list);
    free(p->slots);
    free(p->merges);
    *p = (struct ds_pieces){0};
}

/* ---- bytes as characters --------------------------------------------------------------------- */

/* GPT-2's encoder.py, bytes_to_unicode: printable bytes of Latin-1 stand for themselves; the other
 * 68, in ascending order, are the characters from U+0100 on. */
static int prints_as_itself(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The n-th byte that does not print: 0x00-0x20, 0x7f-0xa0, 0xad. */
static int hidden_byte(unsigned n)
{
    return n <= 0x20 ? (int)n : n <= 0x42 ? (int)(n - 0x21 + 0x7f) : n == 0x43 ? 0xad : -1;
}

int ds_byte_spell(uint8_t byte, char out[2])
{
    unsigned c = byte;
    if (!prints_as_itself(byte))
        c = 0x100u + (byte <= 0x20 ? byte : byte == 0xad ? 0x43u : byte - 0x7fu + 0x21u);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

int ds_byte_unspell(const char *text, size_t n, int *len)
{
    *len = ds_utf8_len(text, n);
    unsigned first = (unsigned char)text[0];
    if (*len == 1)
        return prints_as_itself((int)first) ? (int)first : -1;
    if (*len != 2)
        return -1;
    unsigned c = (first & 0x1f) << 6 | ((unsigned char)text[1] & 0x3f);
    if (c >= 0x100)
        return hidden_byte(c - 0x100);
    return prints_as_itself((int)c) ? (int)c : -1;
}
