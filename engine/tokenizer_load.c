/* tokenizer_load.c: builds a tokenizer from a file's metadata. Owns every check of what the file
 * says; knows no text to encode.
 *
 * What is allocated is in proportion to strings and arrays that are really in the file (gguf.c has
 * checked their lengths). */
#include "engine/tokenizer_impl.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

/* No vocabulary in use has a token of 1 KiB; one beyond this is a damaged file. */
enum { MAX_TOKEN_BYTES = 65535 };

/* ---- small readers --------------------------------------------------------------------------- */

static int missing(const struct ds_gguf *g, const char *key, struct ds_error *err)
{
    return ds_fail(err, "%s: %s: missing", ds_gguf_name(g), key);
}

static int read_flag(const struct ds_gguf *g, const char *key, int *flag, struct ds_error *err)
{
    uint64_t value = 0;
    if (ds_gguf_get_u64(g, key, &value, err) < 0)
        return -1;
    *flag = value != 0;
    return 0;
}

static int read_id(const struct ds_gguf *g, const char *key, int32_t n_tokens, int32_t *id,
                   struct ds_error *err)
{
    uint64_t value = 0;
    int found = ds_gguf_get_u64(g, key, &value, err);
    if (found < 0)
        return -1;
    *id = -1;
    if (found == 0)
        return 0;
    if (value >= (uint64_t)n_tokens)
        return ds_fail(err, "%s: %s: id %llu is outside the vocabulary of %d tokens",
                       ds_gguf_name(g), key, (unsigned long long)value, n_tokens);
    *id = (int32_t)value;
    return 0;
}

/* Count of an array of strings that must be there. */
static int string_array(const struct ds_gguf *g, const char *key, size_t *count,
                        struct ds_error *err)
{
    int type = 0, found = ds_gguf_get_array(g, key, &type, count, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return missing(g, key, err);
    if (type != DS_GGUF_STRING)
        return ds_fail(err, "%s: %s: not an array of strings (element type %d)", ds_gguf_name(g),
                       key, type);
    return 0;
}

static int element(const struct ds_gguf *g, const char *key, size_t i, struct ds_gguf_str *s,
                   struct ds_error *err)
{
    int found = ds_gguf_array_str(g, key, i, s, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return missing(g, key, err);
    if (s->len > MAX_TOKEN_BYTES)
        return ds_fail(err, "%s: %s[%zu]: %zu bytes long, %d at most", ds_gguf_name(g), key, i,
                       s->len, MAX_TOKEN_BYTES);
    if (s->len != 0 && memchr(s->data, 0, s->len) != NULL)
        return ds_fail(err, "%s: %s[%zu]: holds a NUL byte", ds_gguf_name(g), key, i);
    return 0;
}

/* ---- the parts ------------------------------------------------------------------------------- */

static int load_model_name(const struct ds_gguf *g, struct ds_error *err)
{
    struct ds_gguf_str model = {0};
    int found = ds_gguf_get_str(g, KEY("model"), &model, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return missing(g, KEY("model"), err);
    if (model.len == 4 && memcmp(model.data, "gpt2", 4) == 0)
        return 0;
    struct ds_buf shown = {0};
    ds_buf_escape(&shown, model.data, model.len < 64 ? model.len : 64);
    ds_fail(err, "%s: %s: unknown tokenizer model '%s'", ds_gguf_name(g), KEY("model"),
            shown.len == 0 ? "" : shown.data);
    ds_buf_free(&shown);
    return ds_hint(
        err, "only gpt2 (byte-level BPE) is known; give token ids with --tokens instead of a text");
}

static int load_pre(struct ds_tokenizer *t, const struct ds_gguf *g, struct ds_error *err)
{
    struct ds_gguf_str pre = {0};
    int found = ds_gguf_get_str(g, KEY("pre"), &pre, err);
    if (found < 0)
        return -1;
    if (found == 0) /* files from before the field existed */
        pre = (struct ds_gguf_str){"default", strlen("default")};
    if (ds_pretokenizer_new(pre.data, pre.len, &t->pre, err) != 0)
        return ds_prefix(err, "%s", ds_gguf_name(g));
    return 0;
}

static int load_tokens(struct ds_tokenizer *t, const struct ds_gguf *g, struct ds_error *err)
{
    size_t n = 0;
    if (string_array(g, KEY("tokens"), &n, err) != 0)
        return -1;
    if (n == 0 || n > INT32_MAX)
        return ds_fail(err, "%s: %s: %zu tokens, expected 1 to %d", ds_gguf_name(g), KEY("tokens"),
                       n, INT32_MAX);
    t->n_tokens = (int32_t)n;
    t->token_piece = ds_calloc(n, sizeof *t->token_piece, "tokens", err);
    if (t->token_piece == NULL)
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct ds_gguf_str s = {0};
        if (element(g, KEY("tokens"), i, &s, err) != 0)
            return -1;
        if (ds_pieces_add(&t->pieces, s.data, s.len, "", 0, &t->token_piece[i], err) != 0)
            return ds_prefix(err, "%s: %s", ds_gguf_name(g), KEY("tokens"));
        struct ds_piece *piece = &t->pieces.list[t->token_piece[i]];
        if (piece->token < 0) /* of tokens with the same text the first is used */
            piece->token = (int32_t)i;
    }
    for (int byte = 0; byte < 256; byte++) {
        char text[2];
        int len = ds_byte_spell((uint8_t)byte, text);
        if (ds_pieces_add(&t->pieces, text, (size_t)len, "", 0, &t->byte_piece[byte], err) != 0)
            return ds_prefix(err, "%s: %s", ds_gguf_name(g), KEY("tokens"));
    }
    return 0;
}

static int load_types(struct ds_tokenizer *t, const struct ds_gguf *g, struct ds_error *err)
{
    size_t n = (size_t)t->n_tokens, count = 0;
    int elem = 0, found = ds_gguf_get_array(g, KEY("token_type"), &elem, &count, err);
    if (found < 0)
        return -1;
    t->token_type = ds_calloc(n, 1, "token types", err);
    if (t->token_type == NULL)
        return -1;
    if (found == 0) {
        memset(t->token_type, DS_TOKEN_NORMAL, n);
        return 0;
    }
    if (count != n)
        return ds_fail(err, "%s: %s: %zu entries for %zu tokens", ds_gguf_name(g),
                       KEY("token_type"), count, n);
    int64_t *types = NULL;
    found = ds_gguf_array_i64(g, KEY("token_type"), &types, &count, err);
    if (found <= 0)
        return found < 0 ? -1 : missing(g, KEY("token_type"), err);
    for (size_t i = 0; i < n && i < count; i++) {
        if (types[i] < 0 || types[i] > DS_TOKEN_BYTE) {
            ds_fail(err, "%s: %s[%zu]: %lld is no token type (1 to %d)", ds_gguf_name(g),
                    KEY("token_type"), i, (long long)types[i], DS_TOKEN_BYTE);
            free(types);
            return -1;
        }
        t->token_type[i] = (uint8_t)types[i];
    }
    free(types);
    return 0;
}

static int load_merge(struct ds_tokenizer *t, const struct ds_gguf *g, size_t i,
                      struct ds_error *err)
{
    struct ds_gguf_str s = {0};
    if (element(g, KEY("merges"), i, &s, err) != 0)
        return -1;
    /* The space that parts the two halves; a half has at least one character. */
    const char *space = s.len < 3 ? NULL : memchr(s.data + 1, ' ', s.len - 1);
    if (space == NULL || space == s.data + s.len - 1) {
        struct ds_buf shown = {0};
        ds_buf_escape(&shown, s.data, s.len < 64 ? s.len : 64);
        ds_fail(err, "%s: %s[%zu]: '%s' is not two texts with a space between", ds_gguf_name(g),
                KEY("merges"), i, shown.len == 0 ? "" : shown.data);
        ds_buf_free(&shown);
        return -1;
    }
    size_t left_len = (size_t)(space - s.data), right_len = s.len - left_len - 1;
    uint32_t left, right, result;
    if (ds_pieces_add(&t->pieces, s.data, left_len, "", 0, &left, err) != 0 ||
        ds_pieces_add(&t->pieces, space + 1, right_len, "", 0, &right, err) != 0 ||
        ds_pieces_add(&t->pieces, s.data, left_len, space + 1, right_len, &result, err) != 0)
        return ds_prefix(err, "%s: %s", ds_gguf_name(g), KEY("merges"));
    ds_pieces_add_merge(&t->pieces, left, right, (uint32_t)i, result);
    return 0;
}

static int load_merges(struct ds_tokenizer *t, const struct ds_gguf *g, struct ds_error *err)
{
    size_t n = 0;
    if (string_array(g, KEY("merges"), &n, err) != 0)
        return -1;
    if (n > INT32_MAX)
        return ds_fail(err, "%s: %s: %zu merges, at most %d", ds_gguf_name(g), KEY("merges"), n,
                       INT32_MAX);
    if (ds_pieces_reserve_merges(&t->pieces, n, err) != 0)
        return ds_prefix(err, "%s: %s", ds_gguf_name(g), KEY("merges"));
    for (size_t i = 0; i < n; i++)
        if (load_merge(t, g, i, err) != 0)
            return -1;
    return 0;
}

static int load_special_ids(struct ds_tokenizer *t, const struct ds_gguf *g, struct ds_error *err)
{
    if (read_id(g, KEY("bos_token_id"), t->n_tokens, &t->bos, err) != 0 ||
        read_id(g, KEY("eos_token_id"), t->n_tokens, &t->eos, err) != 0 ||
        read_flag(g, KEY("add_bos_token"), &t->add_bos, err) != 0 ||
        read_flag(g, KEY("add_eos_token"), &t->add_eos, err) != 0)
        return -1;
    if (t->add_bos && t->bos < 0)
        return ds_fail(err, "%s: %s is set, but %s is missing", ds_gguf_name(g),
                       KEY("add_bos_token"), KEY("bos_token_id"));
    if (t->add_eos && t->eos < 0)
        return ds_fail(err, "%s: %s is set, but %s is missing", ds_gguf_name(g),
                       KEY("add_eos_token"), KEY("eos_token_id"));
    return 0;
}

static int load_chat(struct ds_tokenizer *t, const struct ds_gguf *g, struct ds_error *err)
{
    struct ds_gguf_str text = {0};
    int found = ds_gguf_get_str(g, "tokenizer.chat_template", &text, err);
    if (found <= 0)
        return found;
    return ds_chat_init(t, text.data, text.len, err);
}

static int load(struct ds_tokenizer *t, const struct ds_gguf *g, struct ds_error *err)
{
    size_t len = strlen(ds_gguf_name(g)) + 1;
    t->name = ds_calloc(len, 1, "file name", err);
    if (t->name == NULL)
        return -1;
    memcpy(t->name, ds_gguf_name(g), len);
    if (load_model_name(g, err) != 0 || load_pre(t, g, err) != 0 || load_tokens(t, g, err) != 0 ||
        load_types(t, g, err) != 0 || load_merges(t, g, err) != 0 ||
        load_special_ids(t, g, err) != 0 || load_chat(t, g, err) != 0)
        return -1;
    return ds_specials_init(t, err);
}

int ds_tokenizer_new(const struct ds_gguf *g, struct ds_tokenizer **out, struct ds_error *err)
{
    *out = NULL;
    struct ds_tokenizer *t = ds_calloc(1, sizeof *t, "tokenizer", err);
    if (t == NULL)
        return -1;
    if (load(t, g, err) != 0) {
        ds_tokenizer_free(t);
        return -1;
    }
    *out = t;
    return 0;
}

void ds_tokenizer_free(struct ds_tokenizer *t)
{
    if (t == NULL)
        return;
    free(t->name);
    ds_pieces_free(&t->pieces);
    free(t->token_piece);
    free(t->token_type);
    ds_pretokenizer_free(t->pre);
    free(t->specials.by_text);
    free(t->specials.by_order);
    ds_buf_free(&t->system);
    free(t);
}
