/* doctor_config.c: the file of settings that a launch line names (--config FILE of vLLM and SGLang). Its plain lines, "name:
 * value", become flags before those of the command line, which win, as both engines do it (docs.vllm.ai,
 * configuration/serve_args; sglang, server_args_config_parser.py). Owns what counts as plain; a file with anything
 * else is one that may say more than is known. */
#include "cli/doctor.h"

#include "base/mem.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 20 };

static int is_one_of(const char *s, size_t n, const char *const *words)
{
    for (size_t i = 0; words[i]; i++)
        if (strlen(words[i]) == n && strncasecmp(words[i], s, n) == 0)
            return 1;
    return 0;
}

static size_t trimmed(const char *s, size_t n)
{
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    return n;
}

/* The value of a line: 'x', "x" or plain, a comment behind it left out. 0: it is none of these. */
static int plain_value(const char **s, size_t *n)
{
    const char quote = **s;
    if (quote == '\'' || quote == '"') {
        const char *end = memchr(*s + 1, quote, *n - 1);
        if (!end || (quote == '"' && memchr(*s, '\\', *n)))
            return 0;
        const char *rest = end + 1;
        const size_t left = *n - (size_t)(rest - *s), blank = strspn(rest, " \t");
        *n = (size_t)(end - *s) - 1;
        ++*s;
        return blank >= left || rest[blank] == '#';
    }
    for (size_t i = 1; i < *n; i++)
        if ((*s)[i] == '#' && isspace((unsigned char)(*s)[i - 1]))
            *n = i;
    *n = trimmed(*s, *n);
    return *n > 0 && !strchr("[]{}|>&*!%@`,?-#", quote);
}

/* One line as a flag in *out; nothing for an empty one. 0: it is not plain. */
static int as_flag(const char *line, size_t n, struct ds_buf *out)
{
    static const char *const yes[] = {"true", "yes", "on", NULL}, *const no[] = {"false", "no",
                                                                                 "off",   "null",
                                                                                 "~",     NULL};
    size_t name = 0;
    n = trimmed(line, n);
    if (n == 0 || line[0] == '#' || (n == 3 && memcmp(line, "---", 3) == 0))
        return 1;
    while (name < n &&
           (isalnum((unsigned char)line[name]) || line[name] == '-' || line[name] == '_'))
        name++;
    if (name == 0 || line[0] == '-' || name + 1 >= n || line[name] != ':' ||
        !isspace((unsigned char)line[name + 1]))
        return 0;
    const char *value = line + name + 1;
    size_t len = n - name - 1;
    for (; len > 0 && isspace((unsigned char)*value); len--)
        value++;
    const int quoted = len > 0 && (*value == '\'' || *value == '"');
    /* A number below 0 begins as an entry of a list would. */
    const int number = len > 1 && *value == '-' && isdigit((unsigned char)value[1]);
    if (len == 0 || (!number && !plain_value(&value, &len)) || memchr(value, '\0', len))
        return 0;
    if (!quoted && is_one_of(value, len, no))
        return 0; /* the default, or its opposite: engines and their versions differ */
    ds_buf_printf(out, "--%.*s", (int)name, line);
    if (quoted || !is_one_of(value, len, yes))
        ds_buf_printf(out, "=%.*s", (int)len, value);
    return 1;
}

static int insert(struct ds_doctor_command *c, size_t at, char *word, struct ds_error *err)
{
    if (!word ||
        ds_grow(&c->words, &c->cap_words, c->n_words + 1, sizeof *c->words, "words", err) != 0) {
        free(word);
        return ds_fail(err, "out of memory for a file of settings");
    }
    memmove(&c->words[at + 1], &c->words[at], (c->n_words - at) * sizeof *c->words);
    c->words[at] = word;
    c->n_words++;
    return 0;
}

static int read_lines(struct ds_doctor_command *c, const char *text, size_t n, struct ds_error *err)
{
    /* Behind a model that stands without a flag. */
    size_t at = c->first + (c->first < c->n_words && c->words[c->first][0] != '-');
    c->config = DS_DOCTOR_CONFIG_READ;
    for (size_t i = 0, end; i < n; i = end + 1) {
        const char *stop = memchr(text + i, '\n', n - i);
        struct ds_buf flag = {0};
        end = stop ? (size_t)(stop - text) : n;
        if (!as_flag(text + i, end - i, &flag))
            c->config = DS_DOCTOR_CONFIG_PART;
        if (flag.failed || (flag.len && insert(c, at++, strdup(flag.data), err) != 0)) {
            ds_buf_free(&flag);
            return ds_fail(err, "out of memory for a file of settings");
        }
        ds_buf_free(&flag);
    }
    return 0;
}

int ds_doctor_read_config(struct ds_doctor_command *c, struct ds_error *err)
{
    struct ds_buf text = {0};
    struct ds_error why;
    const char *path = c->engine & DS_DOCTOR_GPU_ENGINES ? ds_doctor_flag(c, "--config=") : NULL;
    if (!path || !*path || c->sealed) /* a container has files of its own */
        return 0;
    const int rc = ds_cli_read_file("settings", path, LARGEST, &text, &why) == 0
                       ? read_lines(c, text.data ? text.data : "", text.len, err)
                       : 0; /* it is not here: what it sets is not known */
    ds_buf_free(&text);
    return rc;
}
