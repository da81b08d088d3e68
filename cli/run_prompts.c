/* run_prompts.c: prompts of a sweep: what the user gave, else a default subject; and neighbours
 * unlike it. */
#include "cli/run_plan_internal.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char default_subject[] =
    "Floating-point addition is not associative, so the order in which a kernel adds its "
    "terms decides the last bits of the result.";

/* Neighbours are slices of this text: plain prose, digits, punctuation, other alphabets, so that
 * their rows are unlike. */
static const char corpus[] =
    "A small stone bridge crosses the river below the mill, and every spring the water reaches its "
    "second arch. "
    "In 1847 the miller cut a mark for the height of the flood; there are 31 marks now, the "
    "highest at 2.74 m. "
    "def area(r):\n    return 3.14159 * r ** 2\n\nprint(area(2.5))\n"
    "Der Zug nach Bern f\xc3\xa4hrt um 8:15 Uhr ab. \xc2\xbf"
    "Cu\xc3\xa1ndo llega el barco? "
    "She counted the cups twice: seven on the shelf, two in the sink, none broken. "
    "The committee, which had not met since the autumn, voted 9 to 4 against the plan. "
    "SELECT name, SUM(amount) FROM orders WHERE day >= '2021-03-01' GROUP BY name; "
    "Salt, flour, lukewarm water; knead for ten minutes, rest for an hour, fold, and bake at 230 "
    "degrees. "
    "If x > y and y > z then x > z, whatever the numbers are. ";

enum { DEFAULT_IDS = 24 };

/* Token ids of a model without a tokenizer: a fixed scramble of the index. */
static int32_t scrambled(uint64_t i, int32_t vocab)
{
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z ^= z >> 29;
    z *= 0xbf58476d1ce4e5b9u;
    return (int32_t)((z >> 32) % (uint64_t)vocab);
}

int ds_plan_add_prompt(struct ds_run_plan *p, const char *text, int32_t *tokens, size_t n,
                       struct ds_error *err)
{
    struct ds_prompt *q = &p->header.prompts[p->header.n_prompts];
    q->request = (int32_t)p->header.n_prompts;
    q->tokens = tokens;
    q->n_tokens = (uint32_t)n;
    p->header.n_prompts++;
    if (!(q->text = strdup(text)))
        return ds_fail(err, "out of memory");
    if (n == 0)
        return ds_fail(err, "prompt %d has no tokens", q->request);
    if (n > (size_t)p->model->hp.context)
        return ds_fail(err, "prompt %d has %zu tokens; the model's context is %d", q->request, n,
                       p->model->hp.context);
    return 0;
}

static int encode(const struct ds_run_plan *p, const char *text, size_t len, int special,
                  int32_t **ids, size_t *n, struct ds_error *err)
{
    size_t unknown = 0;
    if (!p->tokenizer) {
        ds_fail(err, "this model has no tokenizer, so a prompt cannot be text");
        return ds_hint(err, "give token ids with --tokens 1,2,3");
    }
    if (ds_tokenizer_encode(p->tokenizer, text, len, 1, special, ids, n, &unknown, err) != 0)
        return -1;
    if (unknown > 0) {
        free(*ids);
        return ds_fail(err, "the model's vocabulary has no token for %zu bytes of the prompt",
                       unknown);
    }
    return 0;
}

int ds_plan_add_text(struct ds_run_plan *p, const char *text, size_t len, int as_chat,
                     struct ds_error *err)
{
    struct ds_buf chat = {0};
    int32_t *ids;
    size_t n;
    if (as_chat) {
        if (memchr(text, '\0', len))
            return ds_fail(err, "a prompt with NUL bytes cannot be put into a chat form");
        if (!p->tokenizer)
            return encode(p, text, len, 0, &ids, &n, err);
        if (ds_tokenizer_chat(p->tokenizer, text, &chat, err) != 0) {
            ds_buf_free(&chat);
            return -1;
        }
    }
    int rc = chat.data ? encode(p, chat.data, chat.len, 1, &ids, &n, err)
                       : encode(p, text, len, 0, &ids, &n, err);
    if (rc == 0)
        rc = ds_plan_add_prompt(p, chat.data ? chat.data : text, ids, n, err);
    ds_buf_free(&chat);
    return rc;
}

static int add_file(const struct ds_options *o, struct ds_run_plan *p, const char *path,
                    struct ds_error *err)
{
    enum { LIMIT = 64 << 20 };
    struct ds_buf b = {0};
    int rc = ds_cli_read_file("prompt file", path, LIMIT, &b, err);
    if (rc == 0 && b.len == 0 && !ds_opt_flag(o, "chat"))
        rc = ds_fail(err, "prompt file '%s' is empty", path);
    else if (rc == 0)
        rc = ds_plan_add_text(p, b.data ? b.data : "", b.len, ds_opt_flag(o, "chat"), err);
    ds_buf_free(&b);
    return rc;
}

static int add_ids(struct ds_run_plan *p, const char *text, struct ds_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0, cap = 0;
    for (const char *s = text;; s++) {
        char *end;
        errno = 0;
        long v = strtol(s, &end, 10);
        if (end == s || errno || v < 0 || v >= p->model->hp.vocab || (*end && *end != ',')) {
            free(ids);
            return ds_fail(err, "--tokens: '%.40s' does not begin with a token id from 0 to %d", s,
                           p->model->hp.vocab - 1);
        }
        if (ds_grow(&ids, &cap, n + 1, sizeof *ids, "token ids", err) != 0) {
            free(ids);
            return -1;
        }
        ids[n++] = (int32_t)v;
        s = end;
        if (!*s)
            break;
    }
    return ds_plan_add_prompt(p, "", ids, n, err);
}

/* What the user gave, in the order prompts, files, ids; else the default. */
static int add_given(const struct ds_options *o, struct ds_run_plan *p, struct ds_error *err)
{
    for (size_t i = 0; i < ds_opt_count(o, "prompt"); i++) {
        const char *text = ds_opt_at(o, "prompt", i);
        if (ds_plan_add_text(p, text, strlen(text), ds_opt_flag(o, "chat"), err) != 0)
            return -1;
    }
    for (size_t i = 0; i < ds_opt_count(o, "file"); i++)
        if (add_file(o, p, ds_opt_at(o, "file", i), err) != 0)
            return -1;
    for (size_t i = 0; i < ds_opt_count(o, "tokens"); i++)
        if (add_ids(p, ds_opt_at(o, "tokens", i), err) != 0)
            return -1;
    if (p->header.n_prompts > 0)
        return 0;
    if (p->tokenizer)
        return ds_plan_add_text(p, default_subject, strlen(default_subject), ds_opt_flag(o, "chat"),
                                err);
    if (ds_opt_flag(o, "chat"))
        return ds_fail(err, "--chat: this model has no tokenizer, and so no chat form");
    int32_t room = p->model->hp.context - p->options.steps,
            n = room < DEFAULT_IDS ? room : DEFAULT_IDS;
    if (n < 1)
        return ds_fail(
            err, "the model's context of %d leaves no room for a prompt beside %d decode steps",
            p->model->hp.context, p->options.steps);
    int32_t *ids = ds_calloc((size_t)n, sizeof *ids, "prompt", err);
    if (!ids)
        return -1;
    for (int32_t i = 0; i < n; i++)
        ids[i] = scrambled((uint64_t)i, p->model->hp.vocab);
    return ds_plan_add_prompt(p, "", ids, (size_t)n, err);
}

/* Built-in neighbours: slices of the corpus, each with its own start and length around the
 * subject's. */
static int add_builtin(struct ds_run_plan *p, int32_t neighbours, struct ds_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (p->tokenizer && encode(p, corpus, sizeof corpus - 1, 0, &ids, &n, err) != 0)
        return -1;
    int64_t subject = p->header.prompts[0].n_tokens, room = p->model->hp.context - p->options.steps;
    if (subject > room) {
        free(ids);
        return ds_fail(
            err, "prompt of %lld tokens and %d decode steps do not fit the model's context of %d",
            (long long)subject, p->options.steps, p->model->hp.context);
    }
    int rc = 0;
    while (rc == 0 && (int32_t)p->header.n_prompts <= neighbours) {
        uint64_t j = p->header.n_prompts;
        int64_t len = subject + (int64_t)(j * 7 % 13) - 6;
        len = len < 1 ? 1 : len > room ? room : len;
        int32_t *slice = ds_calloc((size_t)len, sizeof *slice, "neighbour", err);
        for (int64_t i = 0; slice && i < len; i++)
            slice[i] = n ? ids[(j * 29 + (uint64_t)i) % n]
                         : scrambled(j * 100003 + (uint64_t)i, p->model->hp.vocab);
        rc = slice ? ds_plan_add_prompt(p, "", slice, (size_t)len, err) : -1;
    }
    free(ids);
    return rc;
}

int ds_run_prompts(const struct ds_options *o, struct ds_run_plan *p, int32_t neighbours,
                   struct ds_error *err)
{
    if (p->inputs.file.doc)
        return ds_plan_inputs_prompts(o, p, neighbours, 1, err) != 0
                   ? -1
                   : add_builtin(p, neighbours, err);
    size_t given = ds_opt_count(o, "prompt") + ds_opt_count(o, "file") + ds_opt_count(o, "tokens");
    if (ds_opt_flag(o, "chat") && ds_opt_count(o, "tokens") > 0) {
        ds_fail(err, "--chat puts text into the model's chat form; --tokens is no text");
        return ds_hint(err,
                       "give the prompt with -p or -f, or the form's own tokens with --tokens");
    }
    size_t most = (given ? given : 1) + (size_t)(neighbours > 0 ? neighbours : 0);
    if (!(p->header.prompts = ds_calloc(most, sizeof *p->header.prompts, "prompts", err)))
        return -1;
    if (add_given(o, p, err) != 0)
        return -1;
    return add_builtin(p, neighbours, err);
}
