/* fingerprint_lines.c: files of responses, a line each: JSON, or an event of a stream as servers send it ("data: {...}",
 * WHATWG HTML, 9.2 "Server-sent events"). Owns lines; what is in one is fingerprint_read.c's. */
#include "cli/fingerprint.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MOST = 256 << 20 };

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

static int read_json(const char *text, size_t len, size_t line, int streamed,
                     struct ds_fp_file *out, struct ds_error *err)
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
        rc = ds_fp_read_response(j, line, streamed, out, err);
    json_decref(j);
    ds_buf_free(&clean);
    return rc;
}

/* The field "data" of an event, its other fields left out: *text and *len move to what it has. 0: nothing is in the line. */
static int take_event(const char **text, size_t *len, int *streamed)
{
    static const char *const others[] = {":", "event:", "id:", "retry:"};
    static const char data[] = "data:", done[] = "[DONE]";
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strncmp(*text, others[i], strlen(others[i])) == 0)
            return 0;
    if (strncmp(*text, data, sizeof data - 1) != 0)
        return 1;
    *text += sizeof data - 1;
    *len -= sizeof data - 1;
    const size_t blank = strspn(*text, " \t");
    *text += blank;
    *len -= blank;
    *streamed = 1;
    return strncmp(*text, done, sizeof done - 1) != 0 && (*text)[strspn(*text, " \t\r\n")];
}

int ds_fp_read_line(const char *text, size_t len, size_t line, struct ds_fp_file *out,
                    struct ds_error *err)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8 */
    int streamed = 0;
    if (line == 1 && strncmp(text, mark, sizeof mark - 1) == 0) {
        text += sizeof mark - 1;
        len -= sizeof mark - 1;
    }
    if (!take_event(&text, &len, &streamed))
        return 0;
    return read_json(text, len, line, streamed, out, err) == 0
               ? 0
               : ds_prefix(err, "%s, line %zu", out->path, line);
}

/* The next line, with its end and a NUL behind it: 1, 0 at the file's end, -1. */
static int next_line(FILE *f, struct ds_buf *out)
{
    int c = 0;
    out->len = 0;
    while (c != '\n' && (c = getc_unlocked(f)) != EOF && out->len < LINE_MOST && !out->failed) {
        const char byte = (char)c;
        ds_buf_add(out, &byte, 1);
    }
    return out->failed || out->len == LINE_MOST ? -1 : out->len > 0;
}

int ds_fp_read(const char *path, struct ds_fp_file *out, struct ds_error *err)
{
    FILE *f = fopen(path, "rb");
    struct ds_buf text = {0};
    size_t line = 0;
    int rc = 0, more = 0;
    *out = (struct ds_fp_file){.path = path};
    if (!f)
        return ds_fail(err, "cannot read '%s': %s", path, strerror(errno));
    while (rc == 0 && (more = next_line(f, &text)) > 0) {
        line++;
        if (text.data[strspn(text.data, " \t\r\n")])
            rc = ds_fp_read_line(text.data, text.len, line, out, err);
    }
    if (rc == 0 && more < 0)
        rc = text.failed ? ds_fail(err, "out of memory for '%s', line %zu", path, line + 1)
                         : ds_fail(err, "%s, line %zu: is longer than %d MiB", path, line + 1,
                                   LINE_MOST >> 20);
    if (rc == 0 && ferror(f))
        rc = ds_fail(err, "cannot read '%s': %s", path, strerror(errno));
    ds_buf_free(&text);
    fclose(f);
    if (rc == 0 && out->n == 0)
        return ds_fail(err, "%s: no responses", path);
    return rc == 0 && out->n == out->n_failed
               ? ds_fail(err, "%s: no responses, only errors of the server; line %zu: '%.200s'",
                         path, out->failed_line, out->failure ? out->failure : "")
               : rc;
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
    free(f->failure);
    free(f->model);
    free(f->system);
    *f = (struct ds_fp_file){.path = f->path};
}
