/* fingerprint_read.c: JSONL files of OpenAI-style responses with log-probabilities. Owns their forms: chat and
 * completion, a batch's envelope, vLLM's token ids. Fields as in the OpenAI API reference (chat: logprobs.content[]
 * of token, logprob, bytes, top_logprobs; completions: logprobs.tokens, token_logprobs, top_logprobs) and in vLLM's
 * OpenAI-compatible server (prompt_token_ids, choices[].token_ids, return_tokens_as_token_ids: "token_id:N"). */
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
    const double value = json_is_number(x) ? json_number_value(x) : (double)NAN;
    return value <= -1e300 ? (double)-INFINITY : value;
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

/* logprobs.content of a chat. */
static int read_chat(const json_t *content, struct ds_fp_sequence *s, struct ds_error *err)
{
    s->tokens = ds_calloc(json_array_size(content) + 1, sizeof *s->tokens, "tokens", err);
    if (!s->tokens)
        return -1;
    for (; s->n_tokens < json_array_size(content); s->n_tokens++) {
        const json_t *x = json_array_get(content, s->n_tokens),
                     *top = json_object_get(x, "top_logprobs");
        struct ds_fp_token *t = &s->tokens[s->n_tokens];
        if (set_token(t, json_object_get(x, "token"), json_object_get(x, "bytes"),
                      json_object_get(x, "logprob"), err) != 0 ||
            !(t->alternatives =
                  ds_calloc(json_array_size(top), sizeof *t->alternatives, "alternatives", err)))
            return -1;
        for (; t->n_alternatives < json_array_size(top); t->n_alternatives++) {
            const json_t *y = json_array_get(top, t->n_alternatives);
            if (!json_is_string(json_object_get(y, "token")))
                return ds_fail(err, "an alternative of top_logprobs has no token");
            if (read_alternative(json_object_get(y, "token"), json_object_get(y, "bytes"),
                                 json_object_get(y, "logprob"), &t->alternatives[t->n_alternatives],
                                 err) != 0)
                return -1;
        }
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

static int read_choice(const json_t *body, const json_t *choice, const char *request, int custom,
                       size_t line, struct ds_fp_file *out, struct ds_error *err)
{
    const json_t *l = json_object_get(choice, "logprobs"), *content = json_object_get(l, "content");
    const json_t *prompt = json_object_get(choice, "prompt_token_ids");
    if (!json_is_array(content) && !json_is_array(json_object_get(l, "tokens"))) {
        ds_fail(err, "a choice has no log-probabilities");
        return ds_hint(err, "ask for them: logprobs=true, top_logprobs=5 (chat), logprobs=5 "
                            "(completions)");
    }
    if (ds_grow(&out->sequences, &out->cap, out->n + 1, sizeof *out->sequences, "responses", err) !=
        0)
        return -1;
    struct ds_fp_sequence *s = &out->sequences[out->n++];
    *s = (struct ds_fp_sequence){.custom = custom, .line = line};
    s->choice = json_integer_value(json_object_get(choice, "index"));
    if (request && !(s->request = strdup(request)))
        return ds_fail(err, "out of memory for responses");
    if (!json_is_array(prompt))
        prompt = json_object_get(body, "prompt_token_ids");
    if (json_is_array(prompt) && read_ids(prompt, &s->prompt, &s->n_prompt, err) != 0)
        return -1;
    return (json_is_array(content) ? read_chat(content, s, err) : read_completion(l, s, err)) != 0
               ? -1
               : give_ids(choice, s, err);
}

static int read_response(const json_t *j, size_t line, struct ds_fp_file *out, struct ds_error *err)
{
    const json_t *inner = json_object_get(json_object_get(j, "response"), "body");
    const json_t *body = json_is_object(inner) ? inner : j,
                 *choices = json_object_get(body, "choices");
    const char *custom = json_string_value(json_object_get(j, "custom_id")),
               *id = json_string_value(json_object_get(body, "id"));
    if (!json_is_array(choices) || json_array_size(choices) == 0)
        return ds_fail(err, "no response with choices");
    for (size_t i = 0; i < json_array_size(choices); i++)
        if (read_choice(body, json_array_get(choices, i), custom ? custom : id, custom != NULL,
                        line, out, err) != 0)
            return -1;
    return 0;
}

/* ---- lines ---------------------------------------------------------------------------------------------- */

/* Python writes NaN and Infinity, which JSON has not: outside of texts they become null and numbers far away. */
static void tame(const char *text, size_t len, struct ds_buf *out)
{
    static const struct {
        const char *word, *instead;
    } words[] = {{"-Infinity", "-1e308"}, {"Infinity", "1e308"}, {"NaN", "null"}};
    int quoted = 0;
    for (size_t i = 0; i < len; i++) {
        size_t w = 0;
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
    *f = (struct ds_fp_file){.path = f->path};
}
