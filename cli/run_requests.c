/* run_requests.c: --requests-from FILE: a file of requests as the prompts of a storm, a line a request: text, or an object
 * as clients send it (prompt, or one message of a user), or a line of a batch around one (body). Owns the lines' form;
 * prompts are run_prompts.c's. */
#include "cli/json.h"
#include "cli/run_plan_internal.h"

#include "base/mem.h"
#include "engine/serve.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 256 << 20 };

static int take_ids(struct ds_run_plan *p, const json_t *list, struct ds_error *err)
{
    const size_t n = json_array_size(list);
    int32_t *ids = ds_calloc(n, sizeof *ids, "token ids", err);
    int rc = ids ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const json_t *x = json_array_get(list, i);
        const json_int_t v = json_is_integer(x) ? json_integer_value(x) : -1;
        if (v < 0 || v >= p->model->hp.vocab)
            rc = ds_fail(err, "\"prompt\" has something that is no token id from 0 to %d",
                         p->model->hp.vocab - 1);
        else
            ids[i] = (int32_t)v;
    }
    if (rc == 0)
        return ds_plan_add_prompt(p, "", ids, n, err); /* which owns them */
    free(ids);
    return rc;
}

static int take_messages(struct ds_run_plan *p, const json_t *list, struct ds_error *err)
{
    const json_t *message = json_array_get(list, 0), *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    if (json_array_size(list) != 1 || !role || strcmp(role, "user") != 0 ||
        !json_is_string(content)) {
        ds_fail(err, "\"messages\" is not one message of a user with text");
        return ds_hint(err, "conversations are for --inputs (cli/INPUTS.md)");
    }
    return ds_plan_add_text(p, json_string_value(content), json_string_length(content), 1, err);
}

static int take_object(const struct ds_options *o, struct ds_run_plan *p, const json_t *j,
                       struct ds_error *err)
{
    const json_t *body = json_object_get(j, "body");
    body = json_is_object(body) ? body : j;
    const json_t *prompt = json_object_get(body, "prompt"),
                 *messages = json_object_get(body, "messages");
    if (prompt && messages)
        return ds_fail(err, "both \"prompt\" and \"messages\"");
    if (json_is_array(messages))
        return take_messages(p, messages, err);
    if (json_is_string(prompt))
        return ds_plan_add_text(p, json_string_value(prompt), json_string_length(prompt),
                                ds_opt_flag(o, "chat"), err);
    if (json_is_array(prompt) && json_array_size(prompt) > 0)
        return take_ids(p, prompt, err);
    ds_fail(err, "no \"prompt\" (text or token ids) and no \"messages\"");
    return ds_hint(err,
                   "a line is a text, {\"prompt\": \"...\"}, {\"messages\": [{\"role\": \"user\", "
                   "\"content\": \"...\"}]}, or {\"body\": ...} around one");
}

/* What lines ask for beside their prompt is the storm's to say: told once each. */
static void note_members(const struct ds_options *o, const json_t *j, unsigned *told)
{
    static const char *const names[] = {
        "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k",
        "min_p",      "repetition_penalty",    "seed",        "stop",  "n"};
    const json_t *body = json_object_get(j, "body");
    body = json_is_object(body) ? body : j;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (json_object_get(body, names[i]) && !(*told & 1u << i)) {
            *told |= 1u << i;
            ds_cli_note(o, "\"%s\" of the requests is not taken: options say it for all of them",
                        names[i]);
        }
}

static int take_line(const struct ds_options *o, struct ds_run_plan *p, const char *text,
                     size_t len, unsigned *told, struct ds_error *err)
{
    json_error_t why;
    if (text[0] != '{')
        return ds_plan_add_text(p, text, len, ds_opt_flag(o, "chat"), err);
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (!j)
        return ds_fail(err, "no JSON object: %s", why.text);
    const int rc = take_object(o, p, j, err);
    if (rc == 0)
        note_members(o, j, told);
    json_decref(j);
    return rc;
}

/* The next line that is not empty, with a NUL behind it; its number counts all of them. NULL: there is none. */
static char *next_line(char **at, char *end, size_t *line, size_t *len)
{
    while (*at < end) {
        char *text = *at, *stop = memchr(text, '\n', (size_t)(end - text));
        *len = (size_t)((stop ? stop : end) - text);
        *at = stop ? stop + 1 : end;
        ++*line;
        if (*len && text[*len - 1] == '\r')
            --*len;
        text[*len] = '\0';
        if (*len)
            return text;
    }
    return NULL;
}

static int take_lines(const struct ds_options *o, struct ds_run_plan *p, const char *path,
                      struct ds_buf *b, struct ds_error *err)
{
    size_t line = 0, len;
    unsigned told = 0;
    char *text, *at = b->data;
    while ((text = next_line(&at, b->data + b->len, &line, &len))) {
        if (p->header.n_prompts >= DS_SERVE_MOST_REQUESTS)
            return ds_fail(err, "%s, line %zu: more than %d requests", path, line,
                           DS_SERVE_MOST_REQUESTS);
        if (ds_grow_by_one(&p->header.prompts, p->header.n_prompts, sizeof *p->header.prompts,
                           "requests", err) != 0)
            return -1;
        p->header.prompts[p->header.n_prompts] = (struct ds_prompt){0};
        if (take_line(o, p, text, len, &told, err) != 0)
            return ds_prefix(err, "%s, line %zu", path, line);
    }
    return p->header.n_prompts ? 0 : ds_fail(err, "%s: no line has a request", path);
}

int ds_run_requests(const struct ds_options *o, struct ds_run_plan *p, const char *path,
                    struct ds_error *err)
{
    static const char *const other[] = {"prompt", "file", "tokens", "inputs"};
    struct ds_buf b = {0};
    for (size_t i = 0; i < 4; i++)
        if (ds_opt_given(o, other[i]))
            return ds_fail(err, "--requests-from and --%s: give one of them", other[i]);
    int rc = ds_cli_read_file("file of requests", path, MOST_BYTES, &b, err);
    if (rc == 0) {
        ds_buf_puts(&b, ""); /* there is a NUL, also in an empty one */
        rc =
            b.failed ? ds_fail(err, "out of memory for requests") : take_lines(o, p, path, &b, err);
    }
    ds_buf_free(&b);
    return rc;
}
