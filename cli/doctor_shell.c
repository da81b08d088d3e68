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
            return s->variables[i].value; /* NULL: it was taken away */
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

int ds_shell_unset(struct ds_shell *s, const char *name, struct ds_error *err)
{
    struct ds_buf word = {0};
    ds_buf_printf(&word, "%s=", name);
    int rc = word.failed ? ds_fail(err, "out of memory for variables")
                         : ds_shell_set(s, word.data, strlen(name), 1, err);
    ds_buf_free(&word);
    for (size_t i = 0; rc == 0 && i < s->n_variables; i++)
        if (strcmp(s->variables[i].name, name) == 0) {
            free(s->variables[i].value);
            s->variables[i].value = NULL;
        }
    return rc;
}

/* What a shell that this one starts has: its variables, those that it hands on. */
static int inherit(struct ds_shell *s, const struct ds_shell *from, int all, struct ds_error *err)
{
    for (size_t i = 0; i < from->n_variables; i++) {
        const struct ds_doctor_variable *x = &from->variables[i];
        struct ds_buf word = {0};
        if (!all && !from->exported[i])
            continue;
        ds_buf_printf(&word, "%s=%s", x->name, x->value ? x->value : "");
        int rc = word.failed ? ds_fail(err, "out of memory for variables")
                 : x->value  ? ds_shell_set(s, word.data, strlen(x->name), from->exported[i], err)
                             : ds_shell_unset(s, x->name, err);
        ds_buf_free(&word);
        if (rc != 0)
            return -1;
    }
    return 0;
}

/* ---- subshells -------------------------------------------------------------------------------- */

/* "( ...": what is set in there is gone behind it. */
static int open_subshell(struct ds_shell *s, struct ds_error *err)
{
    if (s->n_open == DS_SHELL_MOST_OPEN)
        return ds_fail(err, "%s, line %zu: more than %d subshells in each other", s->name, s->line,
                       DS_SHELL_MOST_OPEN);
    struct ds_shell_saved *x = &s->saved[s->n_open];
    *x = (struct ds_shell_saved){
        .variables = ds_calloc(s->n_variables, sizeof *x->variables, "variables", err),
        .exported = ds_calloc(s->n_variables, sizeof *x->exported, "variables", err)};
    s->n_open++; /* whole or not, it is freed */
    if (!x->variables || !x->exported)
        return -1;
    for (; x->n < s->n_variables; x->n++) {
        const struct ds_doctor_variable *from = &s->variables[x->n];
        struct ds_doctor_variable *to = &x->variables[x->n];
        to->name = strdup(from->name);
        to->value = from->value ? strdup(from->value) : NULL;
        x->exported[x->n] = s->exported[x->n];
        if (!to->name || (from->value && !to->value)) {
            x->n++;
            return ds_fail(err, "out of memory for variables");
        }
    }
    return 0;
}

/* A ")" that closes none is a pattern's of case. */
static void close_subshell(struct ds_shell *s)
{
    if (s->n_open == 0)
        return;
    const struct ds_shell_saved *x = &s->saved[--s->n_open];
    ds_variables_free(s->variables, s->n_variables);
    free(s->exported);
    s->variables = x->variables;
    s->exported = x->exported;
    s->n_variables = s->cap_variables = s->cap_exported = x->n;
}

/* ---- words ------------------------------------------------------------------------------------ */

static int end_word(struct ds_shell *s, struct ds_error *err);

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

/* Whether what is being read is the value of an assignment, which is never split: A=$B, export A=$B. */
static int in_assignment(const struct ds_shell *s)
{
    static const char *const builtins[] = {"export", "declare", "typeset", "readonly", "local"};
    if (!s->has_word || !ds_shell_assigned(s->word.data))
        return 0;
    for (size_t i = 0; s->n_words && i < sizeof builtins / sizeof builtins[0]; i++)
        if (strcmp(s->words[0], builtins[i]) == 0)
            return 1;
    for (size_t i = 0; i < s->n_words; i++)
        if (!ds_shell_assigned(s->words[i]))
            return 0;
    return 1;
}

/* What took the place of $NAME: several words, unless it is quoted, or none. */
static int put_value(struct ds_shell *s, const char *value, size_t n, int quoted,
                     struct ds_error *err)
{
    if (quoted || in_assignment(s)) {
        ds_buf_add(&s->word, value, n);
        s->has_word = 1;
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        if (value[i] == ' ' || value[i] == '\t' || value[i] == '\n') {
            if (end_word(s, err) != 0)
                return -1;
        } else {
            ds_buf_add(&s->word, value + i, 1);
            s->has_word = 1;
        }
    return 0;
}

/* At "${": NAME, NAME:-word and NAME-word are resolved, the rest stays as it is. */
static int take_braced(struct ds_shell *s, int quoted, struct ds_error *err)
{
    const char *from = s->text + s->at + 2;
    const char *end = memchr(from, '}', s->len - s->at - 2);
    size_t n = 0;
    while (end && from + n < end && (isalnum((unsigned char)from[n]) || from[n] == '_'))
        n++;
    if (!end || !is_name(from, n)) {
        take(s);
        take_brackets(s, '{', '}');
        return 0;
    }
    const char *rest = from + n, *value = ds_shell_value(s, from, n);
    const int colon = *rest == ':';
    s->at = (size_t)(end - s->text) + 1;
    if (value && (rest == end || (rest[colon] == '-' && (!colon || *value))))
        return put_value(s, value, strlen(value), quoted, err);
    if (rest != end && rest[colon] == '-')
        return put_value(s, rest + colon + 1, (size_t)(end - rest - colon - 1), quoted, err);
    ds_buf_add(&s->word, from - 2, (size_t)(end - from) + 3);
    s->has_word = 1;
    return 0;
}

/* At '$'. */
static int take_dollar(struct ds_shell *s, int quoted, struct ds_error *err)
{
    size_t n = 0;
    if (peek(s, 1) == '{')
        return take_braced(s, quoted, err);
    if (peek(s, 1) == '(') {
        take(s);
        take_brackets(s, '(', ')');
        return 0;
    }
    while (isalnum(peek(s, 1 + n)) || peek(s, 1 + n) == '_')
        n++;
    const char *value =
        is_name(s->text + s->at + 1, n) ? ds_shell_value(s, s->text + s->at + 1, n) : NULL;
    if (!value) {
        take(s);
        return 0;
    }
    s->at += n + 1;
    return put_value(s, value, strlen(value), quoted, err);
}

static int take_quoted(struct ds_shell *s, char quote, struct ds_error *err)
{
    const size_t line = s->line;
    s->has_word = 1;
    for (s->at++; s->at < s->len && s->text[s->at] != quote;) {
        const int c = peek(s, 0), next = peek(s, 1);
        if (quote == '"' && c == '$') {
            if (take_dollar(s, 1, err) != 0)
                return -1;
        } else if (quote == '"' && c == '\\' && next == '\n') {
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

/* "<<WORD": the lines behind this one, up to one that is WORD, are no commands of this shell. */
static int note_here(struct ds_shell *s, int tabs, struct ds_error *err)
{
    struct ds_buf *end = &s->here_end[s->n_here];
    if (s->n_here == DS_SHELL_MOST_HERE)
        return ds_fail(err, "%s, line %zu: more than %d here-documents", s->name, s->line,
                       DS_SHELL_MOST_HERE);
    end->len = 0;
    ds_buf_puts(end, "");
    for (size_t i = 0; i < s->word.len; i++)
        if (s->word.data[i] != '\\')
            ds_buf_add(end, s->word.data + i, 1);
    s->here_tabs[s->n_here++] = tabs;
    return end->failed ? ds_fail(err, "out of memory for words") : 0;
}

static int is_here_end(const char *line, size_t n, const struct ds_buf *end, int tabs)
{
    for (; tabs && n && *line == '\t'; n--)
        line++;
    n -= n && line[n - 1] == '\r';
    return n == end->len && (n == 0 || memcmp(line, end->data, n) == 0);
}

/* Behind the end of a line: the here-documents that it began. A script that is written or sent that way counts where it can be
 * read as one. */
static int take_here(struct ds_shell *s, struct ds_error *err)
{
    const int n = s->n_here;
    s->n_here = 0;
    for (int i = 0; i < n; i++) {
        const size_t from = s->at, line = s->line;
        size_t to = from;
        for (int ended = 0; !ended && s->at < s->len;) {
            const char *begin = s->text + s->at, *stop = memchr(begin, '\n', s->len - s->at);
            const size_t size = stop ? (size_t)(stop - begin) : s->len - s->at;
            ended = is_here_end(begin, size, &s->here_end[i], s->here_tabs[i]);
            s->at += size + (stop != NULL);
            s->line += stop != NULL;
            to = ended ? to : s->at;
        }
        if (ds_shell_inner(s, s->text + from, to - from, line, 1, err) != 0)
            return -1;
    }
    return 0;
}

/* At '<' or '>': the redirection and the word that it names are left out. */
static int skip_redirection(struct ds_shell *s, struct ds_error *err)
{
    size_t digits = 0;
    const int here = peek(s, 0) == '<' && peek(s, 1) == '<' && peek(s, 2) != '<',
              tabs = here && peek(s, 2) == '-';
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
    s->at += (size_t)tabs;
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
    const int rc = here && s->has_word ? note_here(s, tabs, err) : 0;
    s->word.len = 0;
    s->has_word = 0;
    return rc;
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
        if (rc == 0 && c == '(')
            rc = open_subshell(s, err);
        if (c == ')')
            close_subshell(s);
        s->line += c == '\n';
        s->at++;
        return rc == 0 && c == '\n' && s->n_here ? take_here(s, err) : rc;
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
        return take_dollar(s, 0, err);
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

int ds_shell_inner(const struct ds_shell *s, const char *text, size_t len, size_t line, int all,
                   struct ds_error *err)
{
    struct ds_shell inner = {.name = s->name,
                             .text = text,
                             .len = len,
                             .line = line,
                             .depth = s->depth + 1,
                             .sourced = s->sourced ? strdup(s->sourced) : NULL,
                             .command = s->command,
                             .ctx = s->ctx};
    struct ds_error why;
    int rc = s->depth < DS_SHELL_MOST_DEPTH ? inherit(&inner, s, all, err) : 0;
    if (rc == 0 && s->depth < DS_SHELL_MOST_DEPTH && ds_shell_read(&inner, &why) != 0)
        rc = ds_error_is_memory(&why) ? ds_fail(err, "%s", why.msg) : 0; /* it was no script */
    ds_shell_free(&inner);
    return rc;
}

void ds_shell_free(struct ds_shell *s)
{
    for (size_t i = 0; i < DS_SHELL_MOST_HERE; i++)
        ds_buf_free(&s->here_end[i]);
    for (size_t i = 0; i < s->n_words; i++)
        free(s->words[i]);
    free(s->words);
    ds_variables_free(s->variables, s->n_variables);
    free(s->exported);
    while (s->n_open > 0) {
        const struct ds_shell_saved *x = &s->saved[--s->n_open];
        ds_variables_free(x->variables, x->n);
        free(x->exported);
    }
    free(s->sourced);
    ds_buf_free(&s->word);
}
