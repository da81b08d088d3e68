/* inputs_calls.c: the calls of the model that a recorded conversation is made of: for each of its turns the prompt, which
 * is all that was said before, and the tokens that were recorded. Owns how turns become tokens. See inputs.h.
 *
 * What engines do: a call gets the whole conversation, so what the model said and what tools answered is put into one text
 * and tokenised anew. Parts that are given as ids stay these ids, and texts on both sides of them are tokenised alone. */
#include "cli/inputs.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 1 << 24 };

struct ids {
    int32_t *id;
    size_t n, cap;
};

struct reader {
    const struct ds_tokenizer *tokenizer;
    int32_t vocab;
    struct ds_chat_form form; /* begin NULL: not asked for yet */
    struct ids ids;           /* what stands fast */
    struct ds_buf text;       /* what follows it, not tokenised yet */
    int plain;                /* everything so far is in `text` */
    struct ds_inputs_call *calls;
    size_t n, cap;
};

/* ---- tokens ------------------------------------------------------------------------------------ */

static int add_id(struct ids *list, int64_t id, int32_t vocab, struct ds_error *err)
{
    if (id >= vocab)
        return ds_fail(err, "token %lld is outside the model's vocabulary of %d", (long long)id,
                       vocab);
    if (list->n >= MOST_TOKENS)
        return ds_fail(err, "more than %d tokens", MOST_TOKENS);
    if (ds_grow(&list->id, &list->cap, list->n + 1, sizeof *list->id, "token ids", err) != 0)
        return -1;
    list->id[list->n++] = (int32_t)id;
    return 0;
}

static int add_ids(struct ids *list, const json_t *ids, int32_t vocab, struct ds_error *err)
{
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (add_id(list, json_integer_value(json_array_get(ids, i)), vocab, err) != 0)
            return -1;
    return 0;
}

/* The tokens of a text behind those of the list; special tokens that are written out are these tokens, as everywhere
 * in a chat form. */
static int add_text(const struct reader *r, struct ids *list, const char *text, size_t len,
                    int starts, struct ds_error *err)
{
    int32_t *ids;
    size_t n, unknown = 0;
    if (len == 0)
        return 0;
    if (!r->tokenizer) {
        ds_fail(err, "this model has no tokenizer, so nothing can be text");
        return ds_hint(err, "give token ids: \"tokens\" instead of \"content\", and a list as "
                            "\"expect\"");
    }
    if (ds_tokenizer_encode(r->tokenizer, text, len, starts, 1, &ids, &n, &unknown, err) != 0)
        return -1;
    int rc =
        unknown ? ds_fail(err, "the model's vocabulary has no token for %zu bytes", unknown) : 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_id(list, ids[i], r->vocab, err);
    free(ids);
    return rc;
}

static int flush(struct reader *r, struct ds_error *err)
{
    const int rc = add_text(r, &r->ids, r->text.data, r->text.len, r->ids.n == 0, err);
    r->text.len = 0;
    r->plain = 0;
    return rc;
}

/* ---- the chat form ----------------------------------------------------------------------------- */

static int ask_form(struct reader *r, struct ds_error *err)
{
    if (r->form.begin)
        return 0;
    if (!r->tokenizer)
        return add_text(r, &r->ids, "x", 1, 1, err);
    return ds_tokenizer_chat_form(r->tokenizer, &r->form, err) != 0
               ? ds_hint(err, "a turn without a role is taken as it is: write the form out")
               : 0;
}

/* Begins a message, the form's own system message before the first if that is another one. */
static int begin_message(struct reader *r, const char *role, size_t turn, struct ds_error *err)
{
    if (ask_form(r, err) != 0)
        return -1;
    if (turn == 0 && strcmp(role, "system") != 0)
        ds_buf_add(&r->text, r->form.system, r->form.n_system);
    ds_buf_printf(&r->text, "%s%s\n", r->form.begin, role);
    return 0;
}

static void end_message(struct reader *r)
{
    ds_buf_printf(&r->text, "%s\n", r->form.end);
}

static int feed(struct reader *r, const struct ds_inputs_scope *scope, const json_t *turn,
                size_t number, struct ds_error *err)
{
    const json_t *tokens = json_object_get(turn, "tokens");
    const char *role = json_string_value(json_object_get(turn, "role"));
    if (tokens)
        return flush(r, err) != 0 ? -1 : add_ids(&r->ids, tokens, r->vocab, err);
    struct ds_buf said = {0};
    int rc = role ? begin_message(r, role, number, err) : 0;
    if (rc == 0 && (rc = ds_inputs_said(scope, turn, &said, err)) == 0) {
        ds_buf_add(&r->text, said.data, said.len);
        if (role)
            end_message(r);
    }
    ds_buf_free(&said);
    return rc;
}

/* ---- the model's turns ------------------------------------------------------------------------- */

/* The token that ends what the model says. */
static int end_token(const struct reader *r, int chat, int64_t *end, struct ds_error *err)
{
    struct ids list = {0};
    if (!chat) {
        *end = ds_tokenizer_eos(r->tokenizer);
        if (*end >= 0)
            return 0;
        ds_fail(err, "the model has no token that ends a text");
        return ds_hint(err, "\"finish\": \"length\" says that the recorded one was cut off");
    }
    int rc = add_text(r, &list, r->form.end, strlen(r->form.end), 0, err);
    if (rc == 0 && list.n != 1)
        rc = ds_fail(err, "'%s' is no single token of the model", r->form.end);
    *end = rc == 0 ? list.id[0] : -1;
    free(list.id);
    return rc;
}

/* What was recorded, as tokens; and behind the conversation, for the calls that follow. */
static int expect(struct reader *r, const json_t *turn, struct ids *out, struct ds_error *err)
{
    const json_t *text = json_object_get(turn, "expect");
    const char *how = json_string_value(json_object_get(turn, "finish"));
    const int chat = json_object_get(turn, "role") != NULL, cut = how && strcmp(how, "length") == 0;
    int64_t end = -1;
    if (!text)
        return 0;
    if (json_is_string(text)) {
        if (add_text(r, out, json_string_value(text), json_string_length(text), 0, err) != 0 ||
            (!cut && (end_token(r, chat, &end, err) != 0 || add_id(out, end, r->vocab, err) != 0)))
            return -1;
        ds_buf_puts(&r->text, json_string_value(text));
        if (chat)
            end_message(r);
        return 0;
    }
    if (add_ids(out, text, r->vocab, err) != 0 || flush(r, err) != 0 ||
        add_ids(&r->ids, text, r->vocab, err) != 0 || (chat && end_token(r, chat, &end, err) != 0))
        return -1;
    if (chat && out->id[out->n - 1] == end)
        ds_buf_puts(&r->text, "\n");
    else if (chat)
        end_message(r);
    return 0;
}

static int take_call(struct reader *r, const char *id, size_t turn, size_t first,
                     struct ids *prompt, struct ids *expected, char *text, struct ds_error *err)
{
    if (!text)
        return ds_fail(err, "out of memory for a prompt");
    if (ds_grow(&r->calls, &r->cap, r->n + 1, sizeof *r->calls, "calls", err) != 0) {
        free(text);
        return -1;
    }
    r->calls[r->n++] = (struct ds_inputs_call){.id = id,
                                               .turn = (int32_t)turn,
                                               .first = (int32_t)first,
                                               .text = text,
                                               .prompt = prompt->id,
                                               .n_prompt = prompt->n,
                                               .expect = expected->id,
                                               .n_expect = expected->n};
    *prompt = *expected = (struct ids){0};
    return 0;
}

static int call(struct reader *r, const char *id, size_t number, const json_t *turn, size_t first,
                struct ds_error *err)
{
    struct ids prompt = {0}, expected = {0};
    const char *role = json_string_value(json_object_get(turn, "role"));
    char *text = NULL;
    int rc = role ? begin_message(r, role, number, err) : 0;
    for (size_t i = 0; rc == 0 && i < r->ids.n; i++)
        rc = add_id(&prompt, r->ids.id[i], r->vocab, err);
    if (rc == 0)
        rc = add_text(r, &prompt, r->text.data, r->text.len, prompt.n == 0, err);
    if (rc == 0 && r->text.failed)
        rc = ds_fail(err, "out of memory for a prompt");
    if (rc == 0 && prompt.n == 0)
        rc = ds_fail(err, "nothing comes before what the model says");
    text = strdup(r->plain && r->text.data ? r->text.data : "");
    if (rc == 0)
        rc = expect(r, turn, &expected, err);
    if (rc == 0)
        rc = take_call(r, id, number, first, &prompt, &expected, text, err);
    else
        free(text);
    free(prompt.id);
    free(expected.id);
    return rc;
}

/* ---- conversations ----------------------------------------------------------------------------- */

static int is_model(const json_t *turn)
{
    return !json_object_get(turn, "content") && !json_object_get(turn, "text") &&
           !json_object_get(turn, "tokens");
}

/* Behind the last turn, if that is not the model's, it is the model's turn. */
static int read_turns(struct reader *r, const struct ds_inputs_scope *scope, const char *id,
                      const json_t *turns, struct ds_error *err)
{
    const size_t n = json_array_size(turns), first = r->n;
    for (size_t i = 0; i < n; i++) {
        const json_t *turn = json_array_get(turns, i);
        if (is_model(turn) ? call(r, id, i, turn, first, err) != 0
                           : feed(r, scope, turn, i, err) != 0)
            return ds_prefix(err, "turn %zu", i);
    }
    const json_t *last = json_array_get(turns, n - 1);
    if (is_model(last))
        return 0;
    json_t *own = json_object();
    if (json_object_get(last, "role") && own)
        json_object_set_new(own, "role", json_string("assistant"));
    int rc = own ? call(r, id, n, own, first, err) : ds_fail(err, "out of memory for a turn");
    json_decref(own);
    return rc != 0 ? ds_prefix(err, "turn %zu", n) : 0;
}

int ds_inputs_calls(const struct ds_inputs *in, const struct ds_tokenizer *tokenizer, int32_t vocab,
                    struct ds_inputs_call **calls, size_t *n, struct ds_error *err)
{
    struct reader r = {.tokenizer = tokenizer, .vocab = vocab};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < in->n_requests; i++) {
        const json_t *request = json_array_get(json_object_get(in->doc, "requests"), i);
        const char *id = json_string_value(json_object_get(request, "id"));
        struct ds_inputs_scope scope;
        r.ids.n = r.text.len = 0;
        r.plain = 1;
        rc = ds_inputs_scope_of(in, i, &scope, err);
        rc = rc == 0 ? read_turns(&r, &scope, id, json_object_get(request, "turns"), err) : rc;
        if (rc != 0)
            ds_prefix(err, "request '%s'", id);
    }
    free(r.ids.id);
    ds_buf_free(&r.text);
    if (rc != 0) {
        ds_inputs_calls_free(r.calls, r.n);
        return -1;
    }
    *calls = r.calls;
    *n = r.n;
    return 0;
}

void ds_inputs_calls_free(struct ds_inputs_call *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(calls[i].text);
        free(calls[i].prompt);
        free(calls[i].expect);
    }
    free(calls);
}
