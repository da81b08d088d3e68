/* tokenizer.c: the public calls: ids of a text, bytes of an id. Knows how the parts play together,
 * not how they work. */
#include "engine/tokenizer.h"

#include "engine/tokenizer_impl.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int32_t ds_tokenizer_vocab(const struct ds_tokenizer *t)
{
    return t->n_tokens;
}

int32_t ds_tokenizer_bos(const struct ds_tokenizer *t)
{
    return t->bos;
}

int32_t ds_tokenizer_eos(const struct ds_tokenizer *t)
{
    return t->eos;
}

int ds_tokenizer_adds_bos(const struct ds_tokenizer *t)
{
    return t->add_bos;
}

/* ---- encode ---------------------------------------------------------------------------------- */

struct encoder {
    const struct ds_tokenizer *t;
    struct ds_words words;
    struct ds_bpe bpe;
    struct ds_ids ids;
    size_t unknown;
};

static int encode_plain(struct encoder *e, const char *text, size_t n, struct ds_error *err)
{
    if (ds_pretokenize(e->t->pre, text, n, &e->words, err) != 0)
        return -1;
    size_t begin = 0;
    for (size_t i = 0; i < e->words.count; i++) {
        size_t end = e->words.ends[i];
        if (ds_bpe_word(e->t, &e->bpe, e->words.bytes + begin, end - begin, &e->ids, &e->unknown,
                        err) != 0)
            return -1;
        begin = end;
    }
    return 0;
}

static int encode_all(struct encoder *e, const char *text, size_t n, int add_special,
                      int parse_special, struct ds_error *err)
{
    struct ds_fragment *fragments = NULL;
    size_t count = 0;
    if (add_special && e->t->add_bos && ds_ids_add(&e->ids, e->t->bos, err) != 0)
        return -1;
    if (n > 0 && ds_specials_split(e->t, text, n, parse_special, &fragments, &count, err) != 0)
        return -1;
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++) {
        const struct ds_fragment *f = &fragments[i];
        rc = f->token >= 0 ? ds_ids_add(&e->ids, f->token, err)
                           : encode_plain(e, text + f->begin, f->end - f->begin, err);
    }
    free(fragments);
    if (rc == 0 && add_special && e->t->add_eos)
        rc = ds_ids_add(&e->ids, e->t->eos, err);
    return rc;
}

int ds_tokenizer_encode(const struct ds_tokenizer *t, const char *text, size_t n, int add_special,
                        int parse_special, int32_t **ids, size_t *count, size_t *unknown,
                        struct ds_error *err)
{
    *ids = NULL;
    *count = 0;
    if (unknown != NULL)
        *unknown = 0;
    /* An invalid byte becomes three, and a symbol's index is an int32_t. */
    if (n > INT32_MAX / 4)
        return ds_fail(err, "the text is too long: %zu bytes, at most %d", n, INT32_MAX / 4);
    struct encoder e = {.t = t};
    int rc = encode_all(&e, text, n, add_special, parse_special, err);
    if (rc == 0 && e.ids.list == NULL &&
        (e.ids.list = ds_calloc(1, sizeof *e.ids.list, "token ids", err)) == NULL)
        rc = -1;
    ds_words_free(&e.words);
    ds_bpe_free(&e.bpe);
    if (rc != 0) {
        free(e.ids.list);
        return -1;
    }
    *ids = e.ids.list;
    *count = e.ids.count;
    if (unknown != NULL)
        *unknown = e.unknown;
    return 0;
}

/* ---- decode ---------------------------------------------------------------------------------- */

/* "<0x0A>": the spelling of a byte token (type 6), which only foreign vocabularies have. -1: not of
 * that form. */
static int byte_token(const char *text, size_t n)
{
    static const char digits[] = "0123456789ABCDEF";
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    const char *high = memchr(digits, text[3], 16), *low = memchr(digits, text[4], 16);
    return high == NULL || low == NULL ? -1 : (int)(high - digits) * 16 + (int)(low - digits);
}

static void add_bytes(struct ds_buf *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        int len, byte = ds_byte_unspell(text + i, n - i, &len);
        if (len == 0)
            len = 1;
        char c = (char)byte;
        /* A character that stands for no byte cannot come from encoding; it is shown as it is. */
        ds_buf_add(out, byte < 0 ? text + i : &c, byte < 0 ? (size_t)len : 1);
        i += (size_t)len;
    }
}

int ds_tokenizer_decode(const struct ds_tokenizer *t, int32_t id, int special, struct ds_buf *out,
                        struct ds_error *err)
{
    if (id < 0 || id >= t->n_tokens)
        return ds_fail(err, "%s: token id %d is outside the vocabulary of %d tokens", t->name, id,
                       t->n_tokens);
    size_t n;
    const char *text = ds_token_text(t, id, &n);
    switch (t->token_type[id]) {
    case DS_TOKEN_NORMAL:
        add_bytes(out, text, n);
        break;
    case DS_TOKEN_USER:
        ds_buf_add(out, text, n);
        break;
    case DS_TOKEN_CONTROL:
    case DS_TOKEN_UNKNOWN:
        if (special)
            ds_buf_add(out, text, n);
        break;
    case DS_TOKEN_BYTE: {
        int byte = byte_token(text, n);
        char c = (char)byte;
        if (byte >= 0)
            ds_buf_add(out, &c, 1);
        break;
    }
    default: /* unused and untyped tokens have no text, as in llama.cpp */
        break;
    }
    return out->failed ? ds_fail(err, "decoded text: out of memory") : 0;
}
