/* inputs_read.c: a file of --inputs from its text to a checked document that needs no other file, and back; and what
 * differs between two. Owns the structure; texts are inputs_texts.c's. Errors name the place: line and column where it is
 * no JSON, else the request and the turn. See inputs.h and INPUTS.md. */
#include "cli/inputs.h"

#include "base/mem.h"
#include "cli/cli.h"
#include "engine/serve.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MOST = 256 << 20, ID_MOST = 128, TURNS_MOST = 100000, IDS_MOST = 1 << 24 };

/* ---- turns ------------------------------------------------------------------------------------- */

static int check_ids(const json_t *ids, const char *name, struct ds_error *err)
{
    const size_t n = json_array_size(ids);
    if (n == 0 || n > IDS_MOST)
        return ds_fail(err, "\"%s\" is no list of token ids", name);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return ds_fail(err, "\"%s\": number %zu is no token id", name, i);
    }
    return 0;
}

static int check_role(const json_t *role, struct ds_error *err)
{
    const char *text = json_string_value(role);
    if (!role)
        return 0;
    if (!text || !*text || strlen(text) > ID_MOST || strpbrk(text, "<>|\r\n\t"))
        return ds_fail(err, "\"role\" is no name of a role");
    return 0;
}

/* A turn of the model: "expect", or neither that nor anything that is fed. */
static int check_model(const json_t *turn, int last, struct ds_error *err)
{
    const json_t *expect = json_object_get(turn, "expect"),
                 *finish = json_object_get(turn, "finish");
    const char *how = json_string_value(finish);
    if (!expect && !last) {
        ds_fail(err, "the model's turn has no \"expect\", and a turn follows it");
        return ds_hint(err, "what follows was said after what the model had said: record that");
    }
    if (!expect)
        return finish ? ds_fail(err, "\"finish\" without \"expect\"") : 0;
    if (!json_is_string(expect))
        return finish ? ds_fail(err, "\"finish\" goes with a text; token ids say where they end")
                      : check_ids(expect, "expect", err);
    if (finish && (!how || (strcmp(how, "stop") != 0 && strcmp(how, "length") != 0)))
        return ds_fail(err, "\"finish\" is neither \"stop\" nor \"length\"");
    return *json_string_value(expect) || !how || strcmp(how, "stop") == 0
               ? 0
               : ds_fail(err, "\"expect\" is empty");
}

static int check_turn(const struct ds_inputs_scope *scope, const json_t *turn, int last,
                      struct ds_error *err)
{
    const json_t *content = json_object_get(turn, "content"), *name = json_object_get(turn, "text"),
                 *tokens = json_object_get(turn, "tokens");
    struct ds_buf said = {0};
    if (!json_is_object(turn))
        return ds_fail(err, "it is no object");
    if (ds_inputs_members(turn, "role|content|text|tokens|expect|finish", err) != 0 ||
        check_role(json_object_get(turn, "role"), err) != 0)
        return -1;
    if (!content && !name && !tokens)
        return check_model(turn, last, err);
    if (!!content + !!name + !!tokens + !!json_object_get(turn, "expect") > 1)
        return ds_fail(err, "it has to have one of \"content\", \"text\", \"tokens\", \"expect\"");
    if (json_object_get(turn, "finish"))
        return ds_fail(err, "\"finish\" without \"expect\"");
    if (tokens)
        return json_object_get(turn, "role") ? ds_fail(err, "\"tokens\" are in no role")
                                             : check_ids(tokens, "tokens", err);
    if (!json_is_string(content ? content : name))
        return ds_fail(err, "\"%s\" is no text", content ? "content" : "text");
    int rc = ds_inputs_said(scope, turn, &said, err);
    ds_buf_free(&said);
    return rc;
}

static int check_turns(const struct ds_inputs *in, size_t number, const json_t *turns,
                       struct ds_error *err)
{
    struct ds_inputs_scope scope;
    const size_t n = json_array_size(turns);
    if (n == 0 || n > TURNS_MOST)
        return ds_fail(err, "\"turns\" is no list with at least one turn");
    if (ds_inputs_scope_of(in, number, &scope, err) != 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (check_turn(&scope, json_array_get(turns, i), i + 1 == n, err) != 0)
            return ds_prefix(err, "turn %zu", i);
    return 0;
}

/* ---- requests ---------------------------------------------------------------------------------- */

static int check_request(struct ds_inputs *in, size_t number, json_t *r, const char *folder,
                         struct ds_error *err)
{
    const char *id = json_string_value(json_object_get(r, "id"));
    if (!json_is_object(r))
        return ds_fail(err, "request %zu: it is no object", number);
    if (!id || !*id || strlen(id) > ID_MOST)
        return ds_fail(err, "request %zu: \"id\" is no text of 1 to %d bytes", number, ID_MOST);
    if (ds_inputs_members(r, "id|clock|texts|turns", err) != 0 ||
        ds_inputs_check_texts(json_object_get(r, "texts"), folder, &in->n_texts, err) != 0 ||
        check_turns(in, number, json_object_get(r, "turns"), err) != 0)
        return ds_prefix(err, "request '%s'", id);
    return 0;
}

static int check_unique(const json_t *requests, struct ds_error *err)
{
    json_t *seen = json_object();
    int rc = seen ? 0 : ds_fail(err, "out of memory for the requests");
    for (size_t i = 0; rc == 0 && i < json_array_size(requests); i++) {
        const char *id = json_string_value(json_object_get(json_array_get(requests, i), "id"));
        if (json_object_get(seen, id))
            rc = ds_fail(err, "request '%s' is there twice", id);
        else if (json_object_set_new(seen, id, json_true()) != 0)
            rc = ds_fail(err, "out of memory for the requests");
    }
    json_decref(seen);
    return rc;
}

static int check(struct ds_inputs *in, const char *folder, struct ds_error *err)
{
    json_t *doc = in->doc, *requests = json_object_get(doc, "requests");
    const char *schema = json_string_value(json_object_get(doc, "schema"));
    struct ds_inputs_clock clock;
    in->n_requests = json_array_size(requests);
    if (!schema || strcmp(schema, DS_INPUTS_SCHEMA) != 0) {
        ds_fail(err, "it does not say \"schema\": \"" DS_INPUTS_SCHEMA "\"");
        return ds_hint(err, "cli/INPUTS.md describes the file");
    }
    if (ds_inputs_members(doc, "schema|clock|texts|requests", err) != 0 ||
        ds_inputs_clock_parse(json_object_get(doc, "clock"), &clock, err) != 0 ||
        ds_inputs_check_texts(json_object_get(doc, "texts"), folder, &in->n_texts, err) != 0)
        return -1;
    if (in->n_requests == 0 || in->n_requests > DS_SERVE_MOST_REQUESTS)
        return ds_fail(err, "\"requests\" is no list with at least one request");
    for (size_t i = 0; i < in->n_requests; i++)
        if (check_request(in, i, json_array_get(requests, i), folder, err) != 0)
            return -1;
    return check_unique(requests, err);
}

int ds_inputs_parse(const char *name, const char *text, size_t len, const char *folder,
                    struct ds_inputs *in, struct ds_error *err)
{
    json_error_t why;
    memset(in, 0, sizeof *in);
    in->doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (!in->doc && why.line < 0)
        return ds_fail(err, "%s: %s", name, why.text);
    if (!in->doc)
        return ds_fail(err, "%s, line %d, column %d: no JSON: %s", name, why.line, why.column,
                       why.text);
    if (!json_is_object(in->doc) ? ds_fail(err, "it is no JSON object") != 0
                                 : check(in, folder, err) != 0) {
        ds_inputs_free(in);
        return ds_prefix(err, "%s", name);
    }
    return 0;
}

int ds_inputs_read(const char *path, struct ds_inputs *in, struct ds_error *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash > path ? (size_t)(slash - path) : 1) : strdup(".");
    struct ds_buf b = {0};
    memset(in, 0, sizeof *in);
    int rc = folder ? ds_cli_read_file("file of inputs", path, FILE_MOST, &b, err)
                    : ds_fail(err, "out of memory for a name");
    if (rc == 0)
        rc = ds_inputs_parse(path, b.data ? b.data : "", b.len, folder, in, err);
    free(folder);
    ds_buf_free(&b);
    return rc;
}

void ds_inputs_free(struct ds_inputs *in)
{
    json_decref(in->doc);
    memset(in, 0, sizeof *in);
}

int ds_inputs_text(const struct ds_inputs *in, struct ds_buf *out, struct ds_error *err)
{
    char *text = json_dumps(in->doc, JSON_INDENT(1));
    if (text) {
        ds_buf_puts(out, text);
        ds_buf_puts(out, "\n");
    }
    const int failed = !text || out->failed;
    free(text);
    return failed ? ds_fail(err, "out of memory for the inputs") : 0;
}

/* ---- what differs ------------------------------------------------------------------------------ */

static void say(struct ds_buf *out, const char *where, const char *name, const char *was,
                const char *is)
{
    ds_buf_escape(out, where, (size_t)-1);
    ds_buf_escape(out, name, (size_t)-1);
    ds_buf_puts(out, " was ");
    ds_buf_escape(out, was, (size_t)-1);
    ds_buf_puts(out, ", is ");
    ds_buf_escape(out, is, (size_t)-1);
    ds_buf_puts(out, "\n");
}

static const char *digest_of(const json_t *text)
{
    const char *digest = json_string_value(json_object_get(text, "digest"));
    return digest ? digest : "not there";
}

static void changed_texts(json_t *was, json_t *is, const char *where, struct ds_buf *out)
{
    const char *name;
    json_t *text;
    json_object_foreach(was, name, text)
    {
        const json_t *now = json_object_get(is, name);
        if (strcmp(digest_of(text), digest_of(now)) != 0 ||
            json_is_true(json_object_get(text, "template")) !=
                json_is_true(json_object_get(now, "template")))
            say(out, where, name, digest_of(text), digest_of(now));
    }
    json_object_foreach(is, name, text)
    {
        if (!json_object_get(was, name))
            say(out, where, name, "not there", digest_of(text));
    }
}

static void changed_clock(const json_t *was, const json_t *is, const char *where,
                          struct ds_buf *out)
{
    struct ds_inputs_clock a, b;
    struct ds_error unused;
    if (ds_inputs_clock_parse(was, &a, &unused) != 0 ||
        ds_inputs_clock_parse(is, &b, &unused) != 0 || strcmp(a.text, b.text) == 0)
        return;
    say(out, where, "clock", a.given ? a.text : "not there", b.given ? b.text : "not there");
}

static void changed_request(const json_t *was, const json_t *is, struct ds_buf *out)
{
    const json_t *before = json_object_get(was, "turns"), *now = json_object_get(is, "turns");
    const char *id = json_string_value(json_object_get(was, "id"));
    char where[ID_MOST + 40], turn[40];
    snprintf(where, sizeof where, "request '%s': ", id);
    changed_clock(json_object_get(was, "clock"), json_object_get(is, "clock"), where, out);
    changed_texts(json_object_get(was, "texts"), json_object_get(is, "texts"), where, out);
    for (size_t i = 0; i < json_array_size(before) || i < json_array_size(now); i++) {
        const json_t *a = json_array_get(before, i), *b = json_array_get(now, i);
        if (a && b && json_equal(a, b))
            continue;
        snprintf(turn, sizeof turn, "turn %zu", i);
        say(out, where, turn, a ? "another one" : "not there", b ? "this one" : "not there");
    }
}

static const json_t *request_of(const json_t *requests, const char *id)
{
    for (size_t i = 0; i < json_array_size(requests); i++) {
        const json_t *r = json_array_get(requests, i);
        if (strcmp(json_string_value(json_object_get(r, "id")), id) == 0)
            return r;
    }
    return NULL;
}

int ds_inputs_changes(const struct ds_inputs *was, const struct ds_inputs *is, struct ds_buf *out,
                      struct ds_error *err)
{
    const json_t *before = json_object_get(was->doc, "requests"),
                 *now = json_object_get(is->doc, "requests");
    ds_buf_puts(out, "");
    changed_clock(json_object_get(was->doc, "clock"), json_object_get(is->doc, "clock"), "", out);
    changed_texts(json_object_get(was->doc, "texts"), json_object_get(is->doc, "texts"), "text ",
                  out);
    for (size_t i = 0; i < json_array_size(before); i++) {
        const json_t *r = json_array_get(before, i);
        const char *id = json_string_value(json_object_get(r, "id"));
        const json_t *other = request_of(now, id);
        if (other)
            changed_request(r, other, out);
        else
            say(out, "request ", id, "there", "not there");
    }
    for (size_t i = 0; i < json_array_size(now); i++) {
        const char *id = json_string_value(json_object_get(json_array_get(now, i), "id"));
        if (!request_of(before, id))
            say(out, "request ", id, "not there", "there");
    }
    return out->failed ? ds_fail(err, "out of memory for what differs") : 0;
}
