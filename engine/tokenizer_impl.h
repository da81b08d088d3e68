/* tokenizer_impl.h: what the tokenizer's own files share; nothing outside engine/tokenizer*.c
 * includes it.
 *
 *     tokenizer.c              public calls: encode, decode
 *     tokenizer_load.c         metadata of the file -> struct ds_tokenizer, with all checks
 *     tokenizer_pieces.c       text -> piece and (piece, piece) -> merge, two hash tables
 *     tokenizer_pretokenize.c  text -> words, the table of pre-tokenizers (PCRE2)
 *     tokenizer_bpe.c          word -> token ids
 *     tokenizer_special.c      text -> fragments between special tokens
 *     tokenizer_chat.c         the chat form
 */
#ifndef DS_TOKENIZER_IMPL_H
#define DS_TOKENIZER_IMPL_H

#include "engine/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* Values of tokenizer.ggml.token_type. */
enum {
    DS_TOKEN_NORMAL = 1,
    DS_TOKEN_UNKNOWN,
    DS_TOKEN_CONTROL,
    DS_TOKEN_USER,
    DS_TOKEN_UNUSED,
    DS_TOKEN_BYTE
};

#define DS_NO_PIECE UINT32_MAX

/* ---- pieces and merges ----------------------------------------------------------------------- */

/* Every text that can stand between two merges is a piece: a token's text, a merge's half or its
 * result. */
struct ds_piece {
    uint32_t at; /* in ds_pieces.text: the file's spelling, bytes written as GPT-2 characters */
    uint32_t len;
    int32_t token; /* lowest id with this text, or -1 */
};

struct ds_merge {
    uint32_t left, right; /* pieces; left == DS_NO_PIECE: an empty slot */
    uint32_t rank, result;
};

struct ds_pieces {
    char *text;
    size_t text_len, text_cap;
    struct ds_piece *list;
    size_t count, cap;
    uint32_t *slots; /* piece + 1, or 0 */
    size_t n_slots;  /* power of two */
    struct ds_merge *merges;
    size_t n_merge_slots; /* power of two, at least twice the merges */
};

/* The piece whose text is a followed by b, made if it is new. */
int ds_pieces_add(struct ds_pieces *p, const char *a, size_t na, const char *b, size_t nb,
                  uint32_t *piece, struct ds_error *err);
int ds_pieces_reserve_merges(struct ds_pieces *p, size_t count, struct ds_error *err);
/* Of two merges of the same pair the first (lower rank) stays. Room must have been reserved. */
void ds_pieces_add_merge(struct ds_pieces *p, uint32_t left, uint32_t right, uint32_t rank,
                         uint32_t result);
/* NULL when the pair does not merge. */
const struct ds_merge *ds_pieces_merge(const struct ds_pieces *p, uint32_t left, uint32_t right);
void ds_pieces_free(struct ds_pieces *p);

/* ---- GPT-2's spelling of bytes as printable characters --------------------------------------- */

/* Writes the character that stands for `byte`; returns its length in UTF-8, 1 or 2. */
int ds_byte_spell(uint8_t byte, char out[2]);
/* The byte that the character at text stands for, its length in *len; -1 if it stands for none. */
int ds_byte_unspell(const char *text, size_t n, int *len);

/* ---- pre-tokenizers -------------------------------------------------------------------------- */

struct ds_pretokenizer;

int ds_pretokenizer_new(const char *name, size_t n, struct ds_pretokenizer **out,
                        struct ds_error *err);
void ds_pretokenizer_free(struct ds_pretokenizer *p);

/* A text ready for matching. `bytes`: what is encoded, invalid UTF-8 replaced; `match`: what the
 * patterns see, the same length and the same character borders. `ends`: word ends, ascending, the
 * last is `len`; `spare`: those being found. */
struct ds_words {
    char *bytes, *match;
    size_t len, bytes_cap, match_cap;
    size_t *ends, *spare;
    size_t count, ends_cap, spare_cap;
};

int ds_pretokenize(const struct ds_pretokenizer *p, const char *text, size_t n, struct ds_words *w,
                   struct ds_error *err);
void ds_words_free(struct ds_words *w);

/* ---- special tokens -------------------------------------------------------------------------- */

struct ds_special {
    int32_t token;
    uint32_t order; /* place in the order in which they are taken out of a text */
    int always;     /* user-defined: taken out even when special tokens are not parsed */
};

struct ds_specials {
    struct ds_special *by_text; /* sorted by text, byte by byte, shorter first */
    uint32_t *by_order;         /* indices into by_text, longest text first, then lowest id */
    size_t count;
};

struct ds_fragment {
    size_t begin, end;
    int32_t token; /* -1: plain text */
};

int ds_specials_init(struct ds_tokenizer *t, struct ds_error *err);
/* *out is malloc'ed; fragments cover the text in order. */
int ds_specials_split(const struct ds_tokenizer *t, const char *text, size_t n, int parse_special,
                      struct ds_fragment **out, size_t *count, struct ds_error *err);

/* ---- the tokenizer --------------------------------------------------------------------------- */

struct ds_tokenizer {
    char *name; /* of the file, for messages */
    struct ds_pieces pieces;
    uint32_t *token_piece; /* [n_tokens] */
    uint8_t *token_type;   /* [n_tokens] */
    int32_t n_tokens;
    int32_t bos, eos;
    int add_bos, add_eos;
    uint32_t byte_piece[256];
    struct ds_pretokenizer *pre;
    struct ds_specials specials;
    int chatml;           /* the template is ChatML */
    struct ds_buf system; /* its default system message, markers included; empty if it has none */
};

/* Text of a token as the file spells it. */
static inline const char *ds_token_text(const struct ds_tokenizer *t, int32_t id, size_t *len)
{
    const struct ds_piece *piece = &t->pieces.list[t->token_piece[id]];
    *len = piece->len;
    return t->pieces.text + piece->at;
}

int ds_chat_init(struct ds_tokenizer *t, const char *template_text, size_t n, struct ds_error *err);

/* ---- byte pair encoding ---------------------------------------------------------------------- */

struct ds_ids {
    int32_t *list;
    size_t count, cap;
};

int ds_ids_add(struct ds_ids *ids, int32_t id, struct ds_error *err);

struct ds_bpe_symbol {
    uint32_t piece; /* DS_NO_PIECE: merged into the one before */
    int32_t prev, next;
};

struct ds_bpe_candidate {
    uint64_t key; /* rank << 32 | index of the left symbol: the order in which merges happen */
    uint32_t left, right, result;
};

/* Working memory, kept from word to word. */
struct ds_bpe {
    struct ds_bpe_symbol *symbols;
    struct ds_bpe_candidate *heap;
    size_t symbols_cap, heap_cap, heap_count;
};

int ds_bpe_word(const struct ds_tokenizer *t, struct ds_bpe *b, const char *word, size_t n,
                struct ds_ids *ids, size_t *unknown, struct ds_error *err);
void ds_bpe_free(struct ds_bpe *b);

#endif
