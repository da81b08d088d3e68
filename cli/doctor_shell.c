/* doctor_shell.c: a text as a shell reads it: words, quotes, variables, redirections, commands. Runs nothing, expands
 * no `command`; what it cannot know ($NAME of another shell) stays in the word as it was written. */
#include "cli/doctor_shell.h"

#include "base/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- variables -------------------------------------------------------------------------------- */

static int is_name(const char *s, size_t n)
{
    if (n == 0 || isdigit((unsigned char)s[0]))
        return 0;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && s[i] != '_')
            return 0;
    return 1;
}

size_t ds_shell_assigned(const char *word)
{
    const char *eq = strchr(word, '=');
    return eq && is_name(word, (size_t)(eq - word)) ? (size_t)(eq - word) : 0;
}

int ds_variable_put(struct ds_doctor_variable **list, size_t *n, size_t *cap, const char *name,
                    size_t name_len, const char *value, struct ds_error *err)
{
    size_t i = 0;
    while (i < *n &&
           (strncmp((*list)[i].name, name, name_len) != 0 || (*list)[i].name[name_len] != '\0'))
        i++;
    char *copy = strdup(value);
    if (!copy || (i == *n && ds_grow(list, cap, *n + 1, sizeof **list, "variables", err) != 0)) {
        free(copy);
        return ds_fail(err, "out of memory for variables");
    }
    if (i == *n) {
        if (!((*list)[i].name = strndup(name, name_len))) {
            free(copy);
            return ds_fail(err, "out of memory for variables");
        }
        ++*n;
    }
    free((*list)[i].value);
    (*list)[i].value = copy;
    return 0;
}

void ds_variables_free(struct ds_doctor_variable *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(list[i].name);
        free(list[i].value);
    }
    free(list);
}

const char *ds_shell_value(const struct ds_shell *s, const char *name, size_t n)
{
    char copy[128];
    for (size_t i = 0; i < s->n_variables; i++)
        if (strncmp(s->variables[i].name, name, n) == 0 && s->variables[i].name[n] == '\0')
            return s->variables[i].value;
    snprintf(copy, sizeof copy, "%.*s", (int)(n < sizeof copy ? n : sizeof copy - 1), name);
    return n < sizeof copy ? getenv(copy) : NULL;
}

int ds_shell_set(struct ds_shell *s, const char *word, size_t name_len, int exported,
                 struct ds_error *err)
{
    if (ds_variable_put(&s->variables, &s->n_variables, &s->cap_variables, word, name_len,
                        word + name_len + 1, err) != 0 ||
        ds_grow(&s->exported, &s->cap_exported, s->cap_variables, sizeof *s->exported, "variables",
                err) != 0)
        return -1;
    for (size_t i = 0; i < s->n_variables; i++)
        if (strncmp(s->variables[i].name, word, name_len) == 0 &&
            s->variables[i].name[name_len] == '\0')
            s->exported[i] |= exported;
    return 0;
}

/* ---- words ------------------------------------------------------------------------------------ */

static int peek(const struct ds_shell *s, size_t ahead)
{
    return s->at + ahead < s->len ? (unsigned char)s->text[s->at + ahead] : -1;
}

static void take(struct ds_shell *s)
{
    s->line += s->text[s->at] == '\n';
    ds_buf_add(&s->word, s->text + s->at++, 1);
    s->has_word = 1;
}

/* The bytes up to and with the bracket that closes the one at `at`, as they are. */
static void take_brackets(struct ds_shell *s, char open, char close)
{
    int depth = 0;
    do {
        const int c = peek(s, 0);
        depth += c == open ? 1 : c == close ? -1 : 0;
        take(s);
    } while (depth > 0 && s->at < s->len);
}

/* At "${": NAME, NAME:-word and NAME-word are resolved, the rest stays as it is. */
static void take_braced(struct ds_shell *s)
{
    const char *from = s->text + s->at + 2;
    const char *end = memchr(from, '}', s->len - s->at - 2);
    size_t n = 0;
    while (end && from + n < end && (isalnum((unsigned char)from[n]) || from[n] == '_'))
        n++;
    if (!end || !is_name(from, n)) {
        take(s);
        take_brackets(s, '{', '}');
        return;
    }
    const char *rest = from + n, *value = ds_shell_value(s, from, n);
    const int colon = *rest == ':';
    if (rest == end && value)
        ds_buf_puts(&s->word, value);
    else if (rest[colon] == '-' && value && (!colon || *value))
        ds_buf_puts(&s->word, value);
    else if (rest[colon] == '-')
        ds_buf_add(&s->word, rest + colon + 1, (size_t)(end - rest - colon - 1));
    else
        ds_buf_add(&s->word, from - 2, (size_t)(end - from) + 3);
    s->at = (size_t)(end - s->text) + 1;
    s->has_word = 1;
}

/* At '$'. */
static void take_dollar(struct ds_shell *s)
{
    size_t n = 0;
    if (peek(s, 1) == '{') {
        take_braced(s);
        return;
    }
    if (peek(s, 1) == '(') {
        take(s);
        take_brackets(s, '(', ')');
        return;
    }
    while (isalnum(peek(s, 1 + n)) || peek(s, 1 + n) == '_')
        n++;
    const char *value =
        is_name(s->text + s->at + 1, n) ? ds_shell_value(s, s->text + s->at + 1, n) : NULL;
    if (value) {
        ds_buf_puts(&s->word, value);
        s->at += n + 1;
        s->has_word = 1;
    } else
        take(s);
}

static int take_quoted(struct ds_shell *s, char quote, struct ds_error *err)
{
    const size_t line = s->line;
    s->has_word = 1;
    for (s->at++; s->at < s->len && s->text[s->at] != quote;) {
        const int c = peek(s, 0), next = peek(s, 1);
        if (quote == '"' && c == '$')
            take_dollar(s);
        else if (quote == '"' && c == '\\' && next == '\n') {
            s->line++;
            s->at += 2;
        } else {
            if (quote == '"' && c == '\\' &&
                (next == '"' || next == '\\' || next == '$' || next == '`'))
                s->at++;
            take(s);
        }
    }
    if (s->at >= s->len)
        return ds_fail(err, "%s, line %zu: a quote (%c) is not closed", s->name, line, quote);
    s->at++;
    return 0;
}

static int end_word(struct ds_shell *s, struct ds_error *err)
{
    if (!s->has_word)
        return 0;
    if (s->word.failed ||
        ds_grow(&s->words, &s->cap_words, s->n_words + 1, sizeof *s->words, "words", err) != 0)
        return ds_fail(err, "out of memory for words");
    char *copy = strndup(s->word.data ? s->word.data : "", s->word.len);
    if (!copy)
        return ds_fail(err, "out of memory for words");
    if (s->n_words == 0)
        s->words_line = s->line;
    s->words[s->n_words++] = copy;
    s->word.len = 0;
    s->has_word = 0;
    return 0;
}

/* At '<' or '>': the redirection and the word that it names are left out. */
static int skip_redirection(struct ds_shell *s, struct ds_error *err)
{
    size_t digits = 0;
    while (digits < s->word.len && isdigit((unsigned char)s->word.data[digits]))
        digits++;
    if (s->has_word && digits == s->word.len) {
        s->word.len = 0;
        s->has_word = 0;
    }
    if (end_word(s, err) != 0)
        return -1;
    while (peek(s, 0) == '<' || peek(s, 0) == '>' || peek(s, 0) == '&')
        s->at++;
    while (peek(s, 0) == ' ' || peek(s, 0) == '\t')
        s->at++;
    while (s->at < s->len && !strchr(" \t\n;|&<>()", s->text[s->at])) {
        const char c = s->text[s->at];
        if (c == '\'' || c == '"') {
            if (take_quoted(s, c, err) != 0)
                return -1;
        } else
            take(s);
    }
    s->word.len = 0;
    s->has_word = 0;
    return 0;
}

/* ---- commands ---------------------------------------------------------------------------------- */

int ds_shell_add_word(struct ds_shell *s, const char *word, struct ds_error *err)
{
    ds_buf_puts(&s->word, word);
    s->has_word = 1;
    return end_word(s, err);
}

int ds_shell_end_command(struct ds_shell *s, struct ds_error *err)
{
    if (end_word(s, err) != 0)
        return -1;
    if (s->n_words == 0)
        return 0;
    const int rc = s->command(s, err);
    for (size_t i = 0; i < s->n_words; i++)
        free(s->words[i]);
    s->n_words = 0;
    return rc;
}

static int step(struct ds_shell *s, struct ds_error *err)
{
    const int c = peek(s, 0);
    if (c == '\'' || c == '"')
        return take_quoted(s, (char)c, err);
    if (c == '\\' && (peek(s, 1) == '\n' || (peek(s, 1) == '\r' && peek(s, 2) == '\n'))) {
        s->at += peek(s, 1) == '\n' ? 2 : 3;
        s->line++;
        return 0;
    }
    if (c == '#' && !s->has_word) {
        while (s->at < s->len && s->text[s->at] != '\n')
            s->at++;
        return 0;
    }
    if (c == '<' || c == '>' || (c == '&' && peek(s, 1) == '>'))
        return skip_redirection(s, err);
    if (c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')') {
        int rc = ds_shell_end_command(s, err);
        s->line += c == '\n';
        s->at++;
        return rc;
    }
    if (c == ' ' || c == '\t' || c == '\r') {
        s->at++;
        return end_word(s, err);
    }
    if (c == '~' && !s->has_word && (peek(s, 1) == '/' || peek(s, 1) <= ' ') &&
        ds_shell_value(s, "HOME", strlen("HOME"))) {
        ds_buf_puts(&s->word, ds_shell_value(s, "HOME", strlen("HOME")));
        s->has_word = 1;
        s->at++;
    } else if (c == '$')
        take_dollar(s);
    else if (c == '`') {
        do
            take(s);
        while (s->at < s->len && s->text[s->at] != '`');
        if (s->at < s->len)
            take(s);
    } else {
        if (c == '\\' && s->at + 1 < s->len)
            s->at++;
        take(s);
    }
    return 0;
}

int ds_shell_read(struct ds_shell *s, struct ds_error *err)
{
    int rc = 0;
    while (rc == 0 && s->at < s->len)
        rc = step(s, err);
    return rc == 0 ? ds_shell_end_command(s, err) : rc;
}

void ds_shell_free(struct ds_shell *s)
{
    for (size_t i = 0; i < s->n_words; i++)
        free(s->words[i]);
    free(s->words);
    ds_variables_free(s->variables, s->n_variables);
    free(s->exported);
    ds_buf_free(&s->word);
}
