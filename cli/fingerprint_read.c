/* fingerprint_read.c: a response with log-probabilities, or a piece of one that was streamed. Owns its forms: OpenAI's chat and
 * completion, a batch's envelope, vLLM's token ids. Lines and files are fingerprint_lines.c's. Fields as in the OpenAI API reference (chat: logprobs.content[]
 * of token, logprob, bytes, top_logprobs; completions: logprobs.tokens, token_logprobs, top_logprobs) and in vLLM's
 * OpenAI-compatible server (prompt_token_ids, choices[].token_ids, return_tokens_as_token_ids: "token_id:N"). And the
 * servers' own: SGLang's /generate (meta_info.output_token_logprobs and output_top_logprobs, lists of [logprob, id,
 * text or null]) and llama.cpp's /completion (completion_probabilities of id, token, bytes, logprob, top_logprobs, or
 * with post_sampling_probs prob and top_probs: its tools/server/README.md). */
#include "cli/fingerprint.h"

#include "base/mem.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- tokens ----------------------------------------------------------------------------------------- */

/* N of "token_id:N"; -1: it is text. */
static int64_t written_id(const char *text)
{
    static const char start[] = "token_id:";
    char *end;
    if (strncmp(text, start, sizeof start - 1) != 0 || !text[sizeof start - 1])
        return -1;
    errno = 0;
    const long long id = strtoll(text + sizeof start - 1, &end, 10);
    return *end || errno || id < 0 ? -1 : id;
}

/* A member that is there, and neither null nor a list. */
static int is_no_list(const json_t *x)
{
    return x && !json_is_null(x) && !json_is_array(x);
}

static int check_bytes(const json_t *bytes, struct ds_error *err)
{
    if (is_no_list(bytes))
        return ds_fail(err, "\"bytes\" is no list");
    for (size_t i = 0; i < json_array_size(bytes); i++) {
        const json_t *x = json_array_get(bytes, i);
        if (!json_is_integer(x) || json_integer_value(x) < 0 || json_integer_value(x) > 255)
            return ds_fail(err, "\"bytes\": number %zu is no byte", i);
    }
    return 0;
}

/* The bytes of a token: of "bytes", which a part of a character needs, else of its text. malloc'ed. */
static char *token_bytes(const json_t *text, const json_t *bytes, size_t *len, struct ds_error *err)
{
    const size_t listed = json_array_size(bytes), n = listed ? listed : json_string_length(text);
    char *out = check_bytes(bytes, err) == 0 ? ds_calloc(n + 1, 1, "a token", err) : NULL;
    for (size_t i = 0; out && i < n; i++)
        out[i] = listed ? (char)json_integer_value(json_array_get(bytes, i))
                        : json_string_value(text)[i];
    *len = n;
    return out;
}

/* null: there is none, NaN. Log-probabilities that were rounded to a coarse format may be a little above 0. */
static int read_logprob(const json_t *x, double *out, struct ds_error *err)
{
    static const double most = 0.5;
    const double value = json_is_number(x) ? json_number_value(x) : (double)NAN;
    if (!json_is_number(x) && !json_is_null(x))
        return ds_fail(err, "the log-probability of a token is no number");
    if (value > most)
        return ds_fail(err, "a log-probability of %.9g: it cannot be above 0", value);
    /* -9999.0 is how OpenAI and vLLM write that a token has no probability. */
    *out = value <= -9999 ? (double)-INFINITY : value;
    return 0;
}

static int read_alternative(const json_t *text, const json_t *bytes, const json_t *logprob,
                            struct ds_fp_alternative *out, struct ds_error *err)
{
    size_t len;
    char *copy = token_bytes(text, bytes, &len, err);
    if (!copy)
        return -1;
    out->key = XXH3_64bits(copy, len);
    free(copy);
    return read_logprob(logprob, &out->logprob, err);
}

static int set_token(struct ds_fp_token *t, const json_t *text, const json_t *bytes,
                     const json_t *logprob, struct ds_error *err)
{
    if (!json_is_string(text))
        return ds_fail(err, "a token is no text");
    t->id = written_id(json_string_value(text));
    if (read_logprob(logprob, &t->logprob, err) != 0)
        return -1;
    t->text = token_bytes(text, t->id < 0 ? bytes : NULL, &t->len, err);
    if (!t->text)
        return -1;
    t->key = XXH3_64bits(t->text, t->len);
    if (t->id >= 0) { /* what was written is no text of the token */
        free(t->text);
        t->text = NULL;
        t->len = 0;
    }
    return 0;
}

/* A log-probability, or llama.cpp's probability after sampling; *made: to be released. NULL: out of memory, or neither. */
static const json_t *logprob_in(const json_t *x, json_t **made, struct ds_error *err)
{
    const json_t *p = json_object_get(x, "prob"), *logprob = json_object_get(x, "logprob");
    *made = NULL;
    if (!json_is_number(p)) {
        if (!logprob)
            ds_fail(err, "a token has no log-probability");
        return logprob;
    }
    if (!(json_number_value(p) >= 0))
        ds_fail(err, "a probability of %.9g: it cannot be below 0", json_number_value(p));
    else if (!(*made = json_real(fmax(log(json_number_value(p)), -1e308))))
        ds_fail(err, "out of memory for a token");
    return *made;
}

static int read_listed(const json_t *y, struct ds_fp_token *t, struct ds_error *err)
{
    json_t *made;
    if (!json_is_string(json_object_get(y, "token")))
        return ds_fail(err, "an alternative of top_logprobs has no token");
    const json_t *value = logprob_in(y, &made, err);
    const int rc = !value
                       ? -1
                       : read_alternative(json_object_get(y, "token"), json_object_get(y, "bytes"),
                                          value, &t->alternatives[t->n_alternatives], err);
    json_decref(made);
    t->n_alternatives += rc == 0;
    return rc;
}

/* Room for n tokens more, and for one that is begun. */
static int more_tokens(struct ds_fp_sequence *s, size_t n, struct ds_error *err)
{
    return ds_grow(&s->tokens, &s->cap_tokens, s->n_tokens + n + 1, sizeof *s->tokens, "tokens",
                   err);
}

static int read_chat_token(const json_t *x, struct ds_fp_token *t, struct ds_error *err)
{
    const json_t *top = json_object_get(x, "top_logprobs"), *id = json_object_get(x, "id");
    json_t *made;
    top = json_is_array(top) ? top : json_object_get(x, "top_probs");
    if (is_no_list(json_object_get(x, "top_logprobs")) || is_no_list(top))
        return ds_fail(err, "\"top_logprobs\" is no list");
    const json_t *value = logprob_in(x, &made, err);
    const int rc =
        value ? set_token(t, json_object_get(x, "token"), json_object_get(x, "bytes"), value, err)
              : -1;
    json_decref(made);
    if (rc != 0 || !(t->alternatives = ds_calloc(json_array_size(top), sizeof *t->alternatives,
                                                 "alternatives", err)))
        return -1;
    if (t->id < 0 && json_is_integer(id) && json_integer_value(id) >= 0)
        t->id = json_integer_value(id);
    for (size_t i = 0; i < json_array_size(top); i++)
        if (read_listed(json_array_get(top, i), t, err) != 0)
            return -1;
    return 0;
}

/* logprobs.content of a chat; llama.cpp has the same, with ids, as completion_probabilities. */
static int read_chat(const json_t *content, struct ds_fp_sequence *s, struct ds_error *err)
{
    const size_t n = json_array_size(content);
    if (more_tokens(s, n, err) != 0)
        return -1;
    for (size_t i = 0; i < n; i++, s->n_tokens++)
        if (read_chat_token(json_array_get(content, i), &s->tokens[s->n_tokens], err) != 0)
            return ds_prefix(err, "token %zu", s->n_tokens);
    return 0;
}

static int read_dict(json_t *top, struct ds_fp_token *t, struct ds_error *err)
{
    const char *name;
    json_t *value;
    if (top && !json_is_null(top) && !json_is_object(top))
        return ds_fail(err, "its \"top_logprobs\" are no object");
    t->alternatives =
        ds_calloc(json_object_size(top), sizeof *t->alternatives, "alternatives", err);
    if (!t->alternatives)
        return -1;
    json_object_foreach(top, name, value)
    {
        struct ds_fp_alternative *x = &t->alternatives[t->n_alternatives++];
        x->key = XXH3_64bits(name, strlen(name));
        if (read_logprob(value, &x->logprob, err) != 0)
            return -1;
    }
    return 0;
}

/* tokens, token_logprobs, top_logprobs of a completion. */
static int read_completion(const json_t *l, struct ds_fp_sequence *s, struct ds_error *err)
{
    const json_t *tokens = json_object_get(l, "tokens"),
                 *values = json_object_get(l, "token_logprobs"),
                 *top = json_object_get(l, "top_logprobs");
    const size_t n = json_array_size(tokens);
    if (json_array_size(values) != n)
        return ds_fail(err, "%zu tokens and %zu token_logprobs", n, json_array_size(values));
    if (is_no_list(top))
        return ds_fail(err, "\"top_logprobs\" is no list");
    if (json_is_array(top) && json_array_size(top) != n)
        return ds_fail(err, "%zu tokens and %zu top_logprobs", n, json_array_size(top));
    if (more_tokens(s, n, err) != 0)
        return -1;
    for (size_t i = 0; i < n; i++, s->n_tokens++)
        if (set_token(&s->tokens[s->n_tokens], json_array_get(tokens, i), NULL,
                      json_array_get(values, i), err) != 0 ||
            read_dict(json_array_get(top, i), &s->tokens[s->n_tokens], err) != 0)
            return ds_prefix(err, "token %zu", s->n_tokens);
    return 0;
}

/* ---- a response --------------------------------------------------------------------------------------- */

static int read_ids(const json_t *list, int64_t **out, size_t *n, struct ds_error *err)
{
    *n = json_array_size(list);
    *out = ds_calloc(*n, sizeof **out, "token ids", err);
    if (!*out)
        return -1;
    for (size_t i = 0; i < *n; i++) {
        (*out)[i] = json_integer_value(json_array_get(list, i));
        if (!json_is_integer(json_array_get(list, i)) || (*out)[i] < 0)
            return ds_fail(err, "token id %zu is no whole number from 0 on", i);
    }
    return 0;
}

/* SGLang's [log-probability, id, text or null]: by id. */
static int read_triple(const json_t *x, int64_t *id, uint64_t *key, double *logprob,
                       struct ds_error *err)
{
    char name[32];
    const json_t *text = json_array_get(x, 2);
    if (!json_is_integer(json_array_get(x, 1)) || json_integer_value(json_array_get(x, 1)) < 0)
        return ds_fail(err, "a token of output_token_logprobs is not [logprob, id, text]");
    *id = json_integer_value(json_array_get(x, 1));
    snprintf(name, sizeof name, "token_id:%lld", (long long)*id);
    *key = json_is_string(text) ? XXH3_64bits(json_string_value(text), json_string_length(text))
                                : XXH3_64bits(name, strlen(name));
    return read_logprob(json_array_get(x, 0), logprob, err);
}

static int read_sglang_token(const json_t *x, const json_t *top, struct ds_fp_token *t,
                             struct ds_error *err)
{
    const json_t *text = json_array_get(x, 2);
    int64_t id;
    if (read_triple(x, &t->id, &t->key, &t->logprob, err) != 0)
        return -1;
    if (is_no_list(top))
        return ds_fail(err, "its output_top_logprobs are no list");
    if (json_is_string(text) && !(t->text = token_bytes(text, NULL, &t->len, err)))
        return -1;
    if (!(t->alternatives =
              ds_calloc(json_array_size(top), sizeof *t->alternatives, "alternatives", err)))
        return -1;
    for (; t->n_alternatives < json_array_size(top); t->n_alternatives++) {
        struct ds_fp_alternative *y = &t->alternatives[t->n_alternatives];
        if (read_triple(json_array_get(top, t->n_alternatives), &id, &y->key, &y->logprob, err) !=
            0)
            return -1;
    }
    return 0;
}

/* meta_info of SGLang's /generate: output_token_logprobs, output_top_logprobs. */
static int read_sglang(const json_t *info, struct ds_fp_sequence *s, struct ds_error *err)
{
    const json_t *list = json_object_get(info, "output_token_logprobs"),
                 *tops = json_object_get(info, "output_top_logprobs");
    const size_t n = json_array_size(list);
    if (more_tokens(s, n, err) != 0)
        return -1;
    for (; s->n_tokens < n; s->n_tokens++)
        if (read_sglang_token(json_array_get(list, s->n_tokens), json_array_get(tops, s->n_tokens),
                              &s->tokens[s->n_tokens], err) != 0)
            return ds_prefix(err, "token %zu", s->n_tokens);
    return 0;
}

/* vLLM's ids of the tokens that were generated: the last ones, where the prompt was echoed. */
static int give_ids(const json_t *choice, struct ds_fp_sequence *s, struct ds_error *err)
{
    const json_t *list = json_object_get(choice, "token_ids");
    int64_t *ids;
    size_t n;
    if (!json_is_array(list))
        return 0;
    if (read_ids(list, &ids, &n, err) != 0)
        return -1;
    for (size_t i = 0; n <= s->n_tokens && i < n; i++)
        s->tokens[s->n_tokens - n + i].id = ids[i];
    free(ids);
    return 0;
}

/* "stop", "eos": the model's end, or a stop word; "length" is a limit. SGLang writes {"type": "stop"}. */
static int is_stop(const json_t *reason)
{
    const char *text =
        json_string_value(json_is_object(reason) ? json_object_get(reason, "type") : reason);
    return text && (strcmp(text, "stop") == 0 || strcmp(text, "eos") == 0);
}

/* ---- responses and their pieces ------------------------------------------------------------------------ */

/* What a line says of itself, beside its choices. */
struct place {
    const char *request;
    int custom; /* request is a custom_id */
    int piece;  /* of a stream */
    int32_t concurrency;
    size_t line;
};

static struct ds_fp_sequence *new_sequence(struct ds_fp_file *out, const struct place *p,
                                           struct ds_error *err)
{
    if (ds_grow(&out->sequences, &out->cap, out->n + 1, sizeof *out->sequences, "responses", err) !=
        0)
        return NULL;
    struct ds_fp_sequence *s = &out->sequences[out->n++];
    *s = (struct ds_fp_sequence){
        .custom = p->custom, .concurrency = p->concurrency, .line = p->line, .open = p->piece};
    if (p->request && !(s->request = strdup(p->request))) {
        ds_fail(err, "out of memory for responses");
        return NULL;
    }
    return s;
}

/* The one that a piece goes on with: the last that has not ended, of that name and choice. */
static struct ds_fp_sequence *find_open(struct ds_fp_file *out, const struct place *p,
                                        int64_t choice)
{
    for (size_t i = out->n; p->piece && i-- > 0;) {
        struct ds_fp_sequence *s = &out->sequences[i];
        if (s->open && s->choice == choice && !s->request == !p->request &&
            (!s->request || strcmp(s->request, p->request) == 0))
            return s;
    }
    return NULL;
}

static int no_logprobs(struct ds_error *err)
{
    ds_fail(err, "a choice has no log-probabilities");
    return ds_hint(err, "ask for them: logprobs=true, top_logprobs=5 (chat), logprobs=5 "
                        "(completions), return_logprob=true (SGLang's /generate), n_probs=5 "
                        "(llama.cpp's /completion)");
}

static int read_index(const json_t *choice, int64_t *out, struct ds_error *err)
{
    const json_t *index = json_object_get(choice, "index");
    *out = json_integer_value(index);
    return !index || json_is_null(index) || (json_is_integer(index) && *out >= 0)
               ? 0
               : ds_fail(err, "the index of a choice is no whole number from 0 on");
}

static int read_choice(const json_t *body, const json_t *choice, const struct place *p,
                       struct ds_fp_file *out, struct ds_error *err)
{
    const json_t *l = json_object_get(choice, "logprobs"), *content = json_object_get(l, "content"),
                 *reason = json_object_get(choice, "finish_reason"),
                 *prompt = json_object_get(choice, "prompt_token_ids");
    const int has = json_is_array(content) || json_is_array(json_object_get(l, "tokens"));
    int64_t index;
    /* The first piece of a chat has a role, its last one a reason: neither has tokens. */
    if (!has && (!p->piece || !json_is_object(choice)))
        return no_logprobs(err);
    if (read_index(choice, &index, err) != 0)
        return -1;
    struct ds_fp_sequence *s = find_open(out, p, index);
    if (!s && !(s = new_sequence(out, p, err)))
        return -1;
    s->choice = index;
    s->stopped = is_stop(reason);
    s->open &= !reason || json_is_null(reason);
    if (!json_is_array(prompt))
        prompt = json_object_get(body, "prompt_token_ids");
    if (json_is_array(prompt) && !s->prompt && read_ids(prompt, &s->prompt, &s->n_prompt, err) != 0)
        return -1;
    if (!has)
        return 0;
    return (json_is_array(content) ? read_chat(content, s, err) : read_completion(l, s, err)) != 0
               ? -1
               : give_ids(choice, s, err);
}

/* SGLang's own: a piece of a stream has all that came before once more, or has not, by a setting. */
static int read_own_sglang(const json_t *info, const struct place *p, struct ds_fp_file *out,
                           struct ds_error *err)
{
    const json_t *reason = json_object_get(info, "finish_reason");
    if (json_is_null(reason)) {
        ds_fail(err, "a piece of a stream of SGLang's /generate");
        return ds_hint(err, "ask for it without stream, or keep the last piece alone");
    }
    if (!json_is_array(json_object_get(info, "output_token_logprobs")))
        return no_logprobs(err);
    struct ds_fp_sequence *s = new_sequence(out, p, err);
    if (!s)
        return -1;
    s->stopped = is_stop(reason);
    return read_sglang(info, s, err);
}

/* llama.cpp's own: "stop" is false in every piece of a stream but the last, which has no tokens. */
static int read_own_llama(const json_t *body, const json_t *list, struct place *p,
                          struct ds_fp_file *out, struct ds_error *err)
{
    const json_t *type = json_object_get(body, "stop_type"), *stop = json_object_get(body, "stop");
    int64_t index;
    if (read_index(body, &index, err) != 0)
        return -1;
    p->piece = json_is_false(stop) || !json_is_array(list);
    struct ds_fp_sequence *s = find_open(out, p, index);
    if (!s && !json_is_array(list))
        return no_logprobs(err);
    if (!s && !(s = new_sequence(out, p, err)))
        return -1;
    s->choice = index;
    s->open &= json_is_false(stop);
    s->stopped =
        is_stop(type) || (json_is_string(type) && strcmp(json_string_value(type), "word") == 0);
    return json_is_array(list) ? read_chat(list, s, err) : 0;
}

/* What a server gives at an address of its own: one response, no choices. 1: it is none of these. */
static int read_native(const json_t *body, struct place *p, struct ds_fp_file *out,
                       struct ds_error *err)
{
    const json_t *info = json_object_get(body, "meta_info"),
                 *llama = json_object_get(body, "completion_probabilities"),
                 *id = json_object_get(info, "id");
    if (!json_is_array(llama))
        llama = json_object_get(body, "probs");
    if (!json_is_object(info) && !json_is_array(llama) &&
        !json_is_string(json_object_get(body, "stop_type")))
        return 1;
    p->request = p->request ? p->request : json_string_value(id);
    return json_is_object(info) ? read_own_sglang(info, p, out, err)
                                : read_own_llama(body, llama, p, out, err);
}

/* OpenAI's streams name their pieces, those of completions do not. */
static int is_piece(const json_t *body, int streamed)
{
    const char *object = json_string_value(json_object_get(body, "object"));
    const size_t n = object ? strlen(object) : 0, end = strlen(".chunk");
    return streamed || (n > end && strcmp(object + n - end, ".chunk") == 0);
}

static int keep_text(const json_t *text, char **out, struct ds_error *err)
{
    if (*out || !json_is_string(text))
        return 0;
    return (*out = strdup(json_string_value(text))) ? 0 : ds_fail(err, "out of memory for a name");
}

/* When, and by what, as OpenAI's responses say it. */
static int read_origin(const json_t *body, struct ds_fp_file *out, struct ds_error *err)
{
    const json_int_t created = json_integer_value(json_object_get(body, "created"));
    if (created > 0 && created <= INT64_C(253402300799) &&
        (out->created == 0 || created < out->created))
        out->created = created;
    return keep_text(json_object_get(body, "model"), &out->model, err) != 0 ||
                   keep_text(json_object_get(body, "system_fingerprint"), &out->system, err) != 0
               ? -1
               : 0;
}

/* How many were under way at a time: beside the response, or among what a client wrote on its request. */
static int read_concurrency(const json_t *line, const json_t *body, int32_t *out,
                            struct ds_error *err)
{
    const json_t *x = json_object_get(line, "concurrency");
    x = x ? x : json_object_get(json_object_get(body, "metadata"), "concurrency");
    if (!x || json_is_null(x))
        return 0;
    char *end = NULL;
    const char *text = json_string_value(x);
    const long long n = json_is_integer(x) ? json_integer_value(x)
                        : text             ? strtoll(text, &end, 10)
                                           : 0;
    if (n < 1 || n > 1000000 || (text && (*end || end == text)))
        return ds_fail(err, "\"concurrency\" is no whole number from 1 to 1000000");
    *out = (int32_t)n;
    return 0;
}

/* An error instead of a response: OpenAI's {"error": {"message": ...}}, also in a batch's line, whose status says so, too;
 * vLLM's {"object": "error", "message": ...}. *message: what it says, or NULL. */
static int is_failure(const json_t *line, const json_t *body, const char **message)
{
    const json_t *errors[] = {json_object_get(body, "error"), json_object_get(line, "error")},
                 *status = json_object_get(json_object_get(line, "response"), "status_code");
    const char *object = json_string_value(json_object_get(body, "object"));
    int failed = json_is_integer(status) && json_integer_value(status) >= 400;
    *message = NULL;
    if (object && strcmp(object, "error") == 0) {
        *message = json_string_value(json_object_get(body, "message"));
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        const char *text = json_is_string(errors[i])
                               ? json_string_value(errors[i])
                               : json_string_value(json_object_get(errors[i], "message"));
        failed |= errors[i] && !json_is_null(errors[i]);
        *message = *message ? *message : text;
    }
    return failed;
}

static int keep_failure(const char *message, const struct place *p, struct ds_fp_file *out,
                        struct ds_error *err)
{
    struct ds_fp_sequence *s = new_sequence(out, p, err);
    if (!s)
        return -1;
    s->failed = 1;
    s->open = 0;
    if (out->n_failed++ > 0)
        return 0;
    out->failed_line = p->line;
    return !message || (out->failure = strdup(message))
               ? 0
               : ds_fail(err, "out of memory for an error");
}

int ds_fp_read_response(const json_t *j, size_t line, int streamed, struct ds_fp_file *out,
                        struct ds_error *err)
{
    const json_t *inner = json_object_get(json_object_get(j, "response"), "body");
    const json_t *body = json_is_object(inner) ? inner : j,
                 *choices = json_object_get(body, "choices"),
                 *custom = json_object_get(j, "custom_id");
    const char *id = json_string_value(json_object_get(body, "id"));
    struct place p = {.request = custom ? json_string_value(custom) : id,
                      .custom = json_is_string(custom),
                      .piece = is_piece(body, streamed),
                      .line = line};
    if (read_concurrency(j, body, &p.concurrency, err) != 0)
        return -1;
    if (custom && !json_is_string(custom))
        return ds_fail(err, "\"custom_id\" is no text");
    if (read_origin(body, out, err) != 0)
        return -1;
    if (p.piece && json_is_array(choices) && json_array_size(choices) == 0)
        return 0; /* what was used, behind the last piece */
    if (!json_is_array(choices) || json_array_size(choices) == 0) {
        const char *message;
        const int rc = is_failure(j, body, &message) ? keep_failure(message, &p, out, err)
                                                     : read_native(body, &p, out, err);
        return rc <= 0 ? rc : ds_fail(err, "no response with choices");
    }
    for (size_t i = 0; i < json_array_size(choices); i++)
        if (read_choice(body, json_array_get(choices, i), &p, out, err) != 0)
            return json_array_size(choices) > 1 ? ds_prefix(err, "choice %zu", i) : -1;
    return 0;
}
