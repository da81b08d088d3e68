/* inputs_texts.c: the named texts of --inputs and the placeholders that put them, and the clock, into what turns say.
 * Owns both; a placeholder is looked for where it was written, never in what took its place: what a tool answered is
 * not read as a program. See inputs.h and INPUTS.md. */
#include "cli/inputs.h"

#include "base/hash.h"
#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MOST = 64, TEXT_MOST = 64 << 20 };

int ds_inputs_members(const json_t *object, const char *words, struct ds_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        const size_t n = strlen(name);
        const char *at = words;
        while (at && (strncmp(at, name, n) != 0 || (at[n] && at[n] != '|')))
            at = (at = strchr(at, '|')) ? at + 1 : NULL;
        if (!at || n == 0 || strchr(name, '|')) {
            ds_fail(err, "\"%.80s\" is not known here", name);
            return ds_hint(err, "known are: %s", words);
        }
    }
    return 0;
}

/* ---- named texts ------------------------------------------------------------------------------- */

static int is_name(const char *name, size_t n)
{
    return n > 0 && n <= NAME_MOST &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") >= n;
}

/* Reads the file of a text into the object, in the place of its name, which stays as "from". */
static int take_file(json_t *text, const char *folder, struct ds_error *err)
{
    const char *file = json_string_value(json_object_get(text, "file"));
    struct ds_buf path = {0}, b = {0};
    if (!file || !*file)
        return ds_fail(err, "\"file\" is no name of a file");
    if (!folder)
        return ds_fail(err, "a recorded text names no file, but has its \"text\"");
    if (*file != '/')
        ds_buf_printf(&path, "%s/", folder);
    ds_buf_puts(&path, file);
    int rc = path.failed ? ds_fail(err, "out of memory for a name")
                         : ds_cli_read_file("text", path.data, TEXT_MOST, &b, err);
    json_t *content = rc == 0 ? json_stringn(b.data ? b.data : "", b.len) : NULL;
    if (rc == 0 && (!content || strlen(json_string_value(content)) != b.len))
        rc = ds_fail(err, "'%s' is no text: it has a NUL byte, or bytes that are not UTF-8", file);
    if (rc == 0 &&
        (json_object_set(text, "from", json_object_get(text, "file")) != 0 ||
         json_object_set(text, "text", content) != 0 || json_object_del(text, "file") != 0))
        rc = ds_fail(err, "out of memory for a text");
    json_decref(content);
    ds_buf_free(&path);
    ds_buf_free(&b);
    return rc;
}

/* Whether the digest that is given is that of the text; where none is given, it is added. */
static int check_digest(json_t *text, struct ds_error *err)
{
    const json_t *t = json_object_get(text, "text"), *said = json_object_get(text, "digest");
    char is[24];
    snprintf(is, sizeof is, "%016" PRIx64, ds_hash(json_string_value(t), json_string_length(t)));
    if (!said)
        return json_object_set_new(text, "digest", json_string(is)) == 0
                   ? 0
                   : ds_fail(err, "out of memory for a text");
    if (json_is_string(said) && strcmp(json_string_value(said), is) == 0)
        return 0;
    if (!json_is_string(said) || json_string_length(said) != 16)
        return ds_fail(err, "\"digest\" is no XXH3-64 of 16 hex digits");
    const char *from = json_string_value(json_object_get(text, "from"));
    ds_fail(err, "the text%s%.200s%s has digest %s, but %s was recorded", from ? " in '" : "",
            from ? from : "", from ? "'" : "", is, json_string_value(said));
    return ds_hint(err, "it has changed since; take \"digest\" out to go on with the text as it is "
                        "now");
}

static int check_text(json_t *text, const char *folder, struct ds_error *err)
{
    if (!json_is_object(text))
        return ds_fail(err, "it is no object with \"text\" or \"file\"");
    if (ds_inputs_members(text, "text|file|digest|template|from", err) != 0)
        return -1;
    const json_t *template = json_object_get(text, "template"),
                 *from = json_object_get(text, "from");
    if (template && !json_is_boolean(template))
        return ds_fail(err, "\"template\" is neither true nor false");
    if (!json_object_get(text, "text") == !json_object_get(text, "file"))
        return ds_fail(err, "it has to have \"text\" or \"file\", one of them");
    if (from && (!json_is_string(from) || json_object_get(text, "file")))
        return ds_fail(err, "\"from\" is where a \"text\" came from");
    if (json_object_get(text, "file") && take_file(text, folder, err) != 0)
        return -1;
    if (!json_is_string(json_object_get(text, "text")))
        return ds_fail(err, "\"text\" is no text");
    return check_digest(text, err);
}

int ds_inputs_check_texts(json_t *texts, const char *folder, size_t *n, struct ds_error *err)
{
    const char *name;
    json_t *text;
    if (!texts)
        return 0;
    if (!json_is_object(texts))
        return ds_fail(err, "\"texts\" is no object of names");
    json_object_foreach(texts, name, text)
    {
        if (!is_name(name, strlen(name)))
            return ds_fail(err, "texts: '%.80s' is no name of 1 to %d letters, digits, -, _ and .",
                           name, NAME_MOST);
        if (check_text(text, folder, err) != 0)
            return ds_prefix(err, "text '%s'", name);
        (*n)++;
    }
    return 0;
}

/* ---- placeholders ------------------------------------------------------------------------------ */

int ds_inputs_scope_of(const struct ds_inputs *in, size_t request, struct ds_inputs_scope *s,
                       struct ds_error *err)
{
    const json_t *r = json_array_get(json_object_get(in->doc, "requests"), request),
                 *clock = json_object_get(r, "clock");
    s->own = json_object_get(r, "texts");
    s->shared = json_object_get(in->doc, "texts");
    return ds_inputs_clock_parse(clock ? clock : json_object_get(in->doc, "clock"), &s->clock, err);
}

static int add_checked(struct ds_buf *out, const char *text, size_t n, struct ds_error *err)
{
    if (n > TEXT_MOST || out->len > TEXT_MOST - n)
        return ds_fail(err, "what it says is longer than %d bytes", TEXT_MOST);
    ds_buf_add(out, text, n);
    return out->failed ? ds_fail(err, "out of memory for a text") : 0;
}

static int add_named(const struct ds_inputs_scope *s, const char *name, size_t n, int depth,
                     struct ds_buf *out, struct ds_error *err);

/* depth: 0 of a turn, 1 of a template. */
static int fill(const struct ds_inputs_scope *s, const char *text, size_t n, int depth,
                struct ds_buf *out, struct ds_error *err)
{
    for (size_t at = 0; at < n;) {
        const char *begin = memmem(text + at, n - at, "{{", 2);
        const size_t plain = begin ? (size_t)(begin - text) - at : n - at;
        if (add_checked(out, text + at, plain, err) != 0)
            return -1;
        if (!begin)
            return 0;
        at += plain + 2;
        const char *end = memmem(text + at, n - at, "}}", 2), *name = text + at;
        const size_t len = end ? (size_t)(end - name) : 0;
        int rc;
        if (len == 5 && memcmp(name, "clock", 5) == 0)
            rc = ds_inputs_clock_text(&s->clock, NULL, 0, out, err);
        else if (len > 6 && memcmp(name, "clock:", 6) == 0)
            rc = ds_inputs_clock_text(&s->clock, name + 6, len - 6, out, err);
        else if (len > 5 && memcmp(name, "text:", 5) == 0)
            rc = add_named(s, name + 5, len - 5, depth, out, err);
        else {
            ds_fail(err, "'{{%.*s' is no placeholder", len > 60 || !end ? 20 : (int)len + 2, name);
            rc = ds_hint(err, "{{clock}}, {{clock:%%Y-%%m-%%d}} and {{text:NAME}} are; what is to "
                              "stay as it is goes into a named text");
        }
        if (rc != 0)
            return -1;
        at += len + 2;
    }
    return 0;
}

static int add_named(const struct ds_inputs_scope *s, const char *name, size_t n, int depth,
                     struct ds_buf *out, struct ds_error *err)
{
    char key[NAME_MOST + 1];
    const json_t *text = NULL;
    if (is_name(name, n)) {
        memcpy(key, name, n);
        key[n] = '\0';
        text = json_object_get(s->own, key);
        text = text ? text : json_object_get(s->shared, key);
    }
    if (!text)
        return ds_fail(err, "there is no text '%.*s'", n > 80 ? 80 : (int)n, name);
    const json_t *content = json_object_get(text, "text");
    if (!json_is_true(json_object_get(text, "template")))
        return add_checked(out, json_string_value(content), json_string_length(content), err);
    if (depth > 0)
        return ds_fail(err, "text '%s' is a template, which a template cannot take in", key);
    return fill(s, json_string_value(content), json_string_length(content), 1, out, err) != 0
               ? ds_prefix(err, "text '%s'", key)
               : 0;
}

int ds_inputs_said(const struct ds_inputs_scope *s, const json_t *turn, struct ds_buf *out,
                   struct ds_error *err)
{
    const json_t *content = json_object_get(turn, "content"), *name = json_object_get(turn, "text");
    ds_buf_puts(out, "");
    if (content)
        return fill(s, json_string_value(content), json_string_length(content), 0, out, err);
    return add_named(s, json_string_value(name), json_string_length(name), 0, out, err);
}
