/* fingerprint_read.c: JSONL files of OpenAI-style responses with log-probabilities. Owns their forms: chat and
 * completion, a batch's envelope, vLLM's token ids. Fields as in the OpenAI API reference (chat: logprobs.content[]
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

/* The bytes of a token: of "bytes", which a part of a character needs, else of its text. malloc'ed. */
static char *token_bytes(const json_t *text, const json_t *bytes, size_t *len, struct ds_error *err)
{
    const size_t n = json_is_array(bytes) ? json_array_size(bytes) : json_string_length(text);
    char *out = ds_calloc(n + 1, 1, "a token", err);
    for (size_t i = 0; out && i < n; i++) {
        const json_t *x = json_is_array(bytes) ? json_array_get(bytes, i) : NULL;
        out[i] = x ? (char)json_integer_value(x) : json_string_value(text)[i];
    }
    *len = n;
    return out;
}

static double logprob_of(const json_t *x)
{
    /* -9999.0 is how OpenAI and vLLM write that a token has no probability. */
    const double value = json_is_number(x) ? json_number_value(x) : (double)NAN;
    return value <= -9999 ? (double)-INFINITY : value;
}

static int read_alternative(const json_t *text, const json_t *bytes, const json_t *logprob,
                            struct ds_fp_alternative *out, struct ds_error *err)
{
    size_t len;
    char *copy = token_bytes(text, bytes, &len, err);
    if (!copy)
        return -1;
    *out = (struct ds_fp_alternative){XXH3_64bits(copy, len), logprob_of(logprob)};
    free(copy);
    return 0;
}

static int set_token(struct ds_fp_token *t, const json_t *text, const json_t *bytes,
                     const json_t *logprob, struct ds_error *err)
{
    if (!json_is_string(text))
        return ds_fail(err, "a token is no text");
    t->id = written_id(json_string_value(text));
    t->logprob = logprob_of(logprob);
    if (!json_is_number(logprob) && !json_is_null(logprob))
        return ds_fail(err, "the log-probability of a token is no number");
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

/* A log-probability, or llama.cpp's probability after sampling; *made: to be released. */
static const json_t *logprob_in(const json_t *x, json_t **made)
{
    const json_t *p = json_object_get(x, "prob");
    *made = json_is_number(p) ? json_real(fmax(log(json_number_value(p)), -1e308)) : NULL;
    return *made ? *made : json_object_get(x, "logprob");
}

static int read_listed(const json_t *y, struct ds_fp_token *t, struct ds_error *err)
{
    json_t *made;
    if (!json_is_string(json_object_get(y, "token")))
        return ds_fail(err, "an alternative of top_logprobs has no token");
    const json_t *value = logprob_in(y, &made);
    const int rc = read_alternative(json_object_get(y, "token"), json_object_get(y, "bytes"), value,
                                    &t->alternatives[t->n_alternatives], err);
    json_decref(made);
    t->n_alternatives += rc == 0;
    return rc;
}

/* logprobs.content of a chat; llama.cpp has the same, with ids, as completion_probabilities. */
static int read_chat(const json_t *content, struct ds_fp_sequence *s, struct ds_error *err)
{
    s->tokens = ds_calloc(json_array_size(content) + 1, sizeof *s->tokens, "tokens", err);
    if (!s->tokens)
        return -1;
    for (; s->n_tokens < json_array_size(content); s->n_tokens++) {
        const json_t *x = json_array_get(content, s->n_tokens),
                     *top = json_object_get(x, "top_logprobs"), *id = json_object_get(x, "id");
        struct ds_fp_token *t = &s->tokens[s->n_tokens];
        json_t *made;
        top = json_is_array(top) ? top : json_object_get(x, "top_probs");
        const json_t *value = logprob_in(x, &made);
        const int rc =
            set_token(t, json_object_get(x, "token"), json_object_get(x, "bytes"), value, err);
        json_decref(made);
        if (rc != 0 || !(t->alternatives = ds_calloc(json_array_size(top), sizeof *t->alternatives,
                                                     "alternatives", err)))
            return -1;
        if (t->id < 0 && json_is_integer(id) && json_integer_value(id) >= 0)
            t->id = json_integer_value(id);
        for (size_t i = 0; i < json_array_size(top); i++)
            if (read_listed(json_array_get(top, i), t, err) != 0)
                return -1;
    }
    return 0;
}

static int read_dict(json_t *top, struct ds_fp_token *t, struct ds_error *err)
{
    const char *name;
    json_t *value;
    t->alternatives =
        ds_calloc(json_object_size(top), sizeof *t->alternatives, "alternatives", err);
    if (!t->alternatives)
        return -1;
    json_object_foreach(top, name, value)
    {
        t->alternatives[t->n_alternatives++] =
            (struct ds_fp_alternative){XXH3_64bits(name, strlen(name)), logprob_of(value)};
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
    if (json_is_array(top) && json_array_size(top) != n)
        return ds_fail(err, "%zu tokens and %zu top_logprobs", n, json_array_size(top));
    if (!(s->tokens = ds_calloc(n + 1, sizeof *s->tokens, "tokens", err)))
        return -1;
    for (; s->n_tokens < n; s->n_tokens++)
        if (set_token(&s->tokens[s->n_tokens], json_array_get(tokens, s->n_tokens), NULL,
                      json_array_get(values, s->n_tokens), err) != 0 ||
            read_dict(json_array_get(top, s->n_tokens), &s->tokens[s->n_tokens], err) != 0)
            return -1;
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
        if (!json_is_integer(json_array_get(list, i)))
            return ds_fail(err, "a token id is no whole number");
        (*out)[i] = json_integer_value(json_array_get(list, i));
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
    *logprob = logprob_of(json_array_get(x, 0));
    return 0;
}

/* meta_info of SGLang's /generate: output_token_logprobs, output_top_logprobs. */
static int read_sglang(const json_t *info, struct ds_fp_sequence *s, struct ds_error *err)
{
    const json_t *list = json_object_get(info, "output_token_logprobs"),
                 *tops = json_object_get(info, "output_top_logprobs");
    const size_t n = json_array_size(list);
    if (!(s->tokens = ds_calloc(n + 1, sizeof *s->tokens, "tokens", err)))
        return -1;
    for (; s->n_tokens < n; s->n_tokens++) {
        struct ds_fp_token *t = &s->tokens[s->n_tokens];
        const json_t *x = json_array_get(list, s->n_tokens),
                     *top = json_array_get(tops, s->n_tokens), *text = json_array_get(x, 2);
        int64_t id;
        if (read_triple(x, &t->id, &t->key, &t->logprob, err) != 0)
            return -1;
        if (json_is_string(text) && !(t->text = token_bytes(text, NULL, &t->len, err)))
            return -1;
        if (!(t->alternatives =
                  ds_calloc(json_array_size(top), sizeof *t->alternatives, "alternatives", err)))
            return -1;
        for (; t->n_alternatives < json_array_size(top); t->n_alternatives++) {
            struct ds_fp_alternative *y = &t->alternatives[t->n_alternatives];
            if (read_triple(json_array_get(top, t->n_alternatives), &id, &y->key, &y->logprob,
                            err) != 0)
                return -1;
        }
    }
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

static struct ds_fp_sequence *new_sequence(struct ds_fp_file *out, const char *request, int custom,
                                           size_t line, struct ds_error *err)
{
    if (ds_grow(&out->sequences, &out->cap, out->n + 1, sizeof *out->sequences, "responses", err) !=
        0)
        return NULL;
    struct ds_fp_sequence *s = &out->sequences[out->n++];
    *s = (struct ds_fp_sequence){.custom = custom, .line = line};
    if (request && !(s->request = strdup(request))) {
        ds_fail(err, "out of memory for responses");
        return NULL;
    }
    return s;
}

static int no_logprobs(struct ds_error *err)
{
    ds_fail(err, "a choice has no log-probabilities");
    return ds_hint(err, "ask for them: logprobs=true, top_logprobs=5 (chat), logprobs=5 "
                        "(completions), return_logprob=true (SGLang's /generate), n_probs=5 "
                        "(llama.cpp's /completion)");
}

static int read_choice(const json_t *body, const json_t *choice, const char *request, int custom,
                       size_t line, struct ds_fp_file *out, struct ds_error *err)
{
    const json_t *l = json_object_get(choice, "logprobs"), *content = json_object_get(l, "content");
    const json_t *prompt = json_object_get(choice, "prompt_token_ids");
    if (!json_is_array(content) && !json_is_array(json_object_get(l, "tokens")))
        return no_logprobs(err);
    struct ds_fp_sequence *s = new_sequence(out, request, custom, line, err);
    if (!s)
        return -1;
    s->stopped = is_stop(json_object_get(choice, "finish_reason"));
    s->choice = json_integer_value(json_object_get(choice, "index"));
    if (!json_is_array(prompt))
        prompt = json_object_get(body, "prompt_token_ids");
    if (json_is_array(prompt) && read_ids(prompt, &s->prompt, &s->n_prompt, err) != 0)
        return -1;
    return (json_is_array(content) ? read_chat(content, s, err) : read_completion(l, s, err)) != 0
               ? -1
               : give_ids(choice, s, err);
}

/* What a server gives at an address of its own: one response, no choices. 1: it is none of these. */
static int read_native(const json_t *body, const char *request, int custom, size_t line,
                       struct ds_fp_file *out, struct ds_error *err)
{
    const json_t *info = json_object_get(body, "meta_info"),
                 *llama = json_object_get(body, "completion_probabilities"),
                 *type = json_object_get(body, "stop_type"), *id = json_object_get(info, "id");
    if (!json_is_array(llama))
        llama = json_object_get(body, "probs");
    if (!json_is_object(info) && !json_is_array(llama) && !json_is_string(type))
        return 1;
    if (!json_is_array(llama) && !json_is_array(json_object_get(info, "output_token_logprobs")))
        return no_logprobs(err);
    struct ds_fp_sequence *s =
        new_sequence(out, request ? request : json_string_value(id), custom, line, err);
    if (!s)
        return -1;
    s->stopped = json_is_object(info)
                     ? is_stop(json_object_get(info, "finish_reason"))
                     : is_stop(type) ||
                           (json_is_string(type) && strcmp(json_string_value(type), "word") == 0);
    return json_is_array(llama) ? read_chat(llama, s, err) : read_sglang(info, s, err);
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

static int read_response(const json_t *j, size_t line, struct ds_fp_file *out, struct ds_error *err)
{
    const json_t *inner = json_object_get(json_object_get(j, "response"), "body");
    const json_t *body = json_is_object(inner) ? inner : j,
                 *choices = json_object_get(body, "choices");
    const char *custom = json_string_value(json_object_get(j, "custom_id")),
               *id = json_string_value(json_object_get(body, "id"));
    if (read_origin(body, out, err) != 0)
        return -1;
    if (!json_is_array(choices) || json_array_size(choices) == 0) {
        const int rc = read_native(body, custom ? custom : id, custom != NULL, line, out, err);
        return rc <= 0 ? rc : ds_fail(err, "no response with choices");
    }
    for (size_t i = 0; i < json_array_size(choices); i++)
        if (read_choice(body, json_array_get(choices, i), custom ? custom : id, custom != NULL,
                        line, out, err) != 0)
            return -1;
    return 0;
}

/* ---- lines ---------------------------------------------------------------------------------------------- */

/* Python writes NaN and Infinity, which JSON has not: outside of texts they become null and numbers far away. And a token
 * may be the byte 0, which no name of a JSON object can be here: it becomes a code point that is no character. */
static void tame(const char *text, size_t len, struct ds_buf *out)
{
    static const struct {
        const char *word, *instead;
    } words[] = {{"-Infinity", "-1e308"}, {"Infinity", "1e308"}, {"NaN", "null"}};
    int quoted = 0;
    for (size_t i = 0; i < len; i++) {
        size_t w = 0;
        if (quoted && len - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0) {
            ds_buf_puts(out, "\\ufdd0");
            i += 5;
            continue;
        }
        if (quoted && text[i] == '\\' && i + 1 < len)
            ds_buf_add(out, text + i++, 1);
        else if (text[i] == '"')
            quoted = !quoted;
        while (!quoted && w < 3 && strncmp(text + i, words[w].word, strlen(words[w].word)) != 0)
            w++;
        if (!quoted && w < 3) {
            ds_buf_puts(out, words[w].instead);
            i += strlen(words[w].word) - 1;
        } else
            ds_buf_add(out, text + i, 1);
    }
}

int ds_fp_read_line(const char *text, size_t len, size_t line, struct ds_fp_file *out,
                    struct ds_error *err)
{
    struct ds_buf clean = {0};
    json_error_t why;
    int rc;
    tame(text, len, &clean);
    json_t *j = clean.failed ? NULL : json_loadb(clean.data ? clean.data : "", clean.len, 0, &why);
    if (clean.failed)
        rc = ds_fail(err, "out of memory for a response");
    else if (!j)
        rc = ds_fail(err, "no JSON: %s (column %d)", why.text, why.column);
    else
        rc = read_response(j, line, out, err);
    json_decref(j);
    ds_buf_free(&clean);
    return rc == 0 ? 0 : ds_prefix(err, "%s, line %zu", out->path, line);
}

int ds_fp_read(const char *path, struct ds_fp_file *out, struct ds_error *err)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    size_t cap = 0, line = 0;
    ssize_t n;
    int rc = 0;
    *out = (struct ds_fp_file){.path = path};
    if (!f)
        return ds_fail(err, "cannot read '%s': %s", path, strerror(errno));
    while (rc == 0 && (n = getline(&text, &cap, f)) >= 0) {
        line++;
        if (text[strspn(text, " \t\r\n")])
            rc = ds_fp_read_line(text, (size_t)n, line, out, err);
    }
    if (rc == 0 && ferror(f))
        rc = ds_fail(err, "cannot read '%s': %s", path, strerror(errno));
    free(text);
    fclose(f);
    return rc == 0 && out->n == 0 ? ds_fail(err, "%s: no responses", path) : rc;
}

void ds_fp_file_free(struct ds_fp_file *f)
{
    for (size_t i = 0; i < f->n; i++) {
        struct ds_fp_sequence *s = &f->sequences[i];
        for (size_t k = 0; s->tokens && k <= s->n_tokens; k++) { /* one may have been begun */
            free(s->tokens[k].text);
            free(s->tokens[k].alternatives);
        }
        free(s->tokens);
        free(s->prompt);
        free(s->request);
    }
    free(f->sequences);
    free(f->model);
    free(f->system);
    *f = (struct ds_fp_file){.path = f->path};
}
