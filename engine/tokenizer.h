/* tokenizer.h: GPT-2 style byte-level BPE from the metadata of a GGUF file. Knows no model and no
 * forward pass. */
#ifndef DS_TOKENIZER_H
#define DS_TOKENIZER_H

#include "base/buf.h"
#include "base/error.h"
#include "engine/gguf.h"

#include <stdint.h>

struct ds_tokenizer;

/* Built from tokenizer.ggml.{model,pre,tokens,token_type,merges,...}. -1: the message names the
 * file and the field (an unknown model or pre-tokenizer among them). */
int ds_tokenizer_new(const struct ds_gguf *g, struct ds_tokenizer **out, struct ds_error *err);
void ds_tokenizer_free(struct ds_tokenizer *t);

int32_t ds_tokenizer_vocab(const struct ds_tokenizer *t);
/* Special token ids, -1 when the file names none. */
int32_t ds_tokenizer_bos(const struct ds_tokenizer *t);
int32_t ds_tokenizer_eos(const struct ds_tokenizer *t);
/* The file's add_bos_token flag; when set, encode with add_special puts bos first. */
int ds_tokenizer_adds_bos(const struct ds_tokenizer *t);

/* Encodes n bytes of text. Invalid UTF-8 bytes become U+FFFD. parse_special: control tokens written
 * out in the text
 * ("<|im_start|>") become their ids; else they are plain text. *ids is malloc'ed (valid even when
 * *count is 0); the caller frees it. *unknown (may be NULL) counts bytes for which the vocabulary
 * has no token: they are skipped. */
int ds_tokenizer_encode(const struct ds_tokenizer *t, const char *text, size_t n, int add_special,
                        int parse_special, int32_t **ids, size_t *count, size_t *unknown,
                        struct ds_error *err);

/* Appends the bytes of one token to out (may be a part of a UTF-8 character). Control tokens give
 * nothing unless `special`. -1 for an id outside the vocabulary. */
int ds_tokenizer_decode(const struct ds_tokenizer *t, int32_t id, int special, struct ds_buf *out,
                        struct ds_error *err);

/* The prompt text for one user message in the model's chat form. Only ChatML models (a chat
 * template with <|im_start|> and
 * <|im_end|>) are known: else -1. The default system message of the template is included if the
 * template has one. */
int ds_tokenizer_chat(const struct ds_tokenizer *t, const char *user, struct ds_buf *out,
                      struct ds_error *err);
/* The parts of that form, for whole conversations: a message is BEGIN role "\n" text END "\n", and the model goes on
 * behind BEGIN "assistant\n". system: the template's default message, whole, for conversations that begin with
 * another role. Borrowed from the tokenizer. */
struct ds_chat_form {
    const char *begin, *end, *system;
    size_t n_system;
};
int ds_tokenizer_chat_form(const struct ds_tokenizer *t, struct ds_chat_form *out,
                           struct ds_error *err);

#endif
