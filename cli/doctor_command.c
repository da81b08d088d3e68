/* doctor_command.c: launch lines of engines as their authors wrote them: the words that a shell would make of
 * a text, the variables that a command would get, and which engine it starts. Runs nothing, expands no
 * `command`; what it cannot know ($NAME of another shell) stays in the word as it was written. */
#include "cli/doctor.h"

#include "base/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shell {
    const char *name, *text;
    size_t len, at, line;
    struct ds_doctor_variable *variables; /* of the shell */
    int *exported;
    size_t n_variables, cap_variables, cap_exported;
    struct ds_buf word;
    int has_word; /* '' is a word, too */
    char **words; /* of the command that is being read */
    size_t n_words, cap_words, words_line;
    struct ds_doctor_commands *out;
};

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

/* The length of NAME in "NAME=value"; 0: it is none. */
static size_t assigned(const char *word)
{
    const char *eq = strchr(word, '=');
    return eq && is_name(word, (size_t)(eq - word)) ? (size_t)(eq - word) : 0;
}

static int put_variable(struct ds_doctor_variable **list, size_t *n, size_t *cap, const char *name,
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

static void free_variables(struct ds_doctor_variable *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(list[i].name);
        free(list[i].value);
    }
    free(list);
}

/* A variable of the text's shell, else of this process. */
static const char *shell_value(const struct shell *s, const char *name, size_t n)
{
    char copy[128];
    for (size_t i = 0; i < s->n_variables; i++)
        if (strncmp(s->variables[i].name, name, n) == 0 && s->variables[i].name[n] == '\0')
            return s->variables[i].value;
    snprintf(copy, sizeof copy, "%.*s", (int)(n < sizeof copy ? n : sizeof copy - 1), name);
    return n < sizeof copy ? getenv(copy) : NULL;
}

static int set_shell(struct shell *s, const char *word, size_t name_len, int exported,
                     struct ds_error *err)
{
    if (put_variable(&s->variables, &s->n_variables, &s->cap_variables, word, name_len,
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

static int peek(const struct shell *s, size_t ahead)
{
    return s->at + ahead < s->len ? (unsigned char)s->text[s->at + ahead] : -1;
}

static void take(struct shell *s)
{
    s->line += s->text[s->at] == '\n';
    ds_buf_add(&s->word, s->text + s->at++, 1);
    s->has_word = 1;
}

/* The bytes up to and with the bracket that closes the one at `at`, as they are. */
static void take_brackets(struct shell *s, char open, char close)
{
    int depth = 0;
    do {
        const int c = peek(s, 0);
        depth += c == open ? 1 : c == close ? -1 : 0;
        take(s);
    } while (depth > 0 && s->at < s->len);
}

/* At "${": NAME, NAME:-word and NAME-word are resolved, the rest stays as it is. */
static void take_braced(struct shell *s)
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
    const char *rest = from + n, *value = shell_value(s, from, n);
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
static void take_dollar(struct shell *s)
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
        is_name(s->text + s->at + 1, n) ? shell_value(s, s->text + s->at + 1, n) : NULL;
    if (value) {
        ds_buf_puts(&s->word, value);
        s->at += n + 1;
        s->has_word = 1;
    } else
        take(s);
}

static int take_quoted(struct shell *s, char quote, struct ds_error *err)
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

static int end_word(struct shell *s, struct ds_error *err)
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
static int skip_redirection(struct shell *s, struct ds_error *err)
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

/* ---- which engine ------------------------------------------------------------------------------ */

static const char *last_part(const char *word)
{
    const char *slash = strrchr(word, '/');
    return slash ? slash + 1 : word;
}

static int begins(const char *word, const char *with)
{
    return strncmp(word, with, strlen(with)) == 0;
}

/* The engine that words i and i+1 start, and how many words that are; 0: none. */
static unsigned started(const char *word, const char *next, size_t *used)
{
    static const struct {
        const char *name;
        unsigned engine;
    } programs[] = {{"llama-server", DS_DOCTOR_LLAMA_SERVER},
                    {"llama-cli", DS_DOCTOR_LLAMA_CLI},
                    {"llama-completion", DS_DOCTOR_LLAMA_CLI}};
    const char *name = last_part(word);
    *used = 1;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        if (strcmp(name, programs[i].name) == 0)
            return programs[i].engine;
    *used = 2;
    if (next && strcmp(next, "serve") == 0)
        return strcmp(name, "vllm") == 0     ? DS_DOCTOR_VLLM
               : strcmp(name, "sglang") == 0 ? DS_DOCTOR_SGLANG
                                             : 0;
    if (next && strcmp(word, "-m") == 0)
        return begins(next, "vllm.entrypoints.") ? DS_DOCTOR_VLLM
               : strcmp(next, "sglang.launch_server") == 0 ||
                       strcmp(next, "sglang_router.launch_server") == 0
                   ? DS_DOCTOR_SGLANG
                   : 0;
    return 0;
}

/* Images whose entry point is the engine: its arguments follow. */
static unsigned image(const char *word)
{
    return strstr(word, "vllm/vllm-openai") || begins(word, "vllm-openai:") ? DS_DOCTOR_VLLM
           : strstr(word, "llama.cpp:server")                               ? DS_DOCTOR_LLAMA_SERVER
                                                                            : 0;
}

static unsigned find_engine(char *const *words, size_t n, size_t *first)
{
    size_t used;
    for (size_t i = 0; i < n; i++) {
        const unsigned engine = started(words[i], i + 1 < n ? words[i + 1] : NULL, &used);
        if (engine) {
            *first = i + used;
            return engine;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (image(words[i])) {
            *first = i + 1;
            return image(words[i]);
        }
    return 0;
}

/* ---- a command --------------------------------------------------------------------------------- */

static int give(struct ds_doctor_command *c, const char *word, size_t name_len,
                struct ds_error *err)
{
    return put_variable(&c->variables, &c->n_variables, &c->cap_variables, word, name_len,
                        word + name_len + 1, err);
}

/* A variable that is handed on by name alone (docker run -e NAME). */
static int hand_on(const struct shell *s, struct ds_doctor_command *c, const char *name,
                   struct ds_error *err)
{
    const char *value = shell_value(s, name, strlen(name));
    return value ? put_variable(&c->variables, &c->n_variables, &c->cap_variables, name,
                                strlen(name), value, err)
                 : 0;
}

/* Not set for the command, whatever this process has. */
static int take_away(struct ds_doctor_command *c, const char *name, struct ds_error *err)
{
    if (put_variable(&c->variables, &c->n_variables, &c->cap_variables, name, strlen(name), "",
                     err) != 0)
        return -1;
    for (size_t i = 0; i < c->n_variables; i++)
        if (strcmp(c->variables[i].name, name) == 0) {
            free(c->variables[i].value);
            c->variables[i].value = NULL;
        }
    return 0;
}

/* Words before the engine: assignments, env and its options, docker run and its. */
static int read_prefix(const struct shell *s, struct ds_doctor_command *c, struct ds_error *err)
{
    int docker = 0, env = 0;
    for (size_t i = 0; i < c->first && i < c->n_words; i++) {
        const char *w = c->words[i], *name = last_part(w), *value = NULL;
        docker |= strcmp(name, "docker") == 0 || strcmp(name, "podman") == 0;
        env |= strcmp(name, "env") == 0;
        if (docker && (strcmp(w, "-e") == 0 || strcmp(w, "--env") == 0) && i + 1 < c->first)
            value = c->words[++i];
        else if (docker && begins(w, "--env="))
            value = w + strlen("--env=");
        else if (!docker && env && (strcmp(w, "-i") == 0 || strcmp(w, "-") == 0))
            c->sealed = 1;
        else if (!docker && env && strcmp(w, "-u") == 0 && i + 1 < c->first) {
            if (take_away(c, c->words[++i], err) != 0)
                return -1;
        } else if (!docker)
            value = w;
        if (value && assigned(value) ? give(c, value, assigned(value), err)
                                     : docker && value && hand_on(s, c, value, err))
            return -1;
    }
    c->sealed |= docker;
    return 0;
}

static int add_command(struct shell *s, unsigned engine, size_t first, struct ds_error *err)
{
    struct ds_doctor_commands *out = s->out;
    if (ds_grow(&out->at, &out->cap, out->n + 1, sizeof *out->at, "commands", err) != 0)
        return -1;
    struct ds_doctor_command *c = &out->at[out->n++];
    *c = (struct ds_doctor_command){.engine = engine, .first = first, .line = s->words_line};
    c->words = s->words;
    c->n_words = s->n_words;
    c->cap_words = s->cap_words;
    s->words = NULL;
    s->n_words = s->cap_words = 0;
    for (size_t i = 0; i < s->n_variables; i++)
        if (s->exported[i] &&
            put_variable(&c->variables, &c->n_variables, &c->cap_variables, s->variables[i].name,
                         strlen(s->variables[i].name), s->variables[i].value, err) != 0)
            return -1;
    return read_prefix(s, c, err);
}

/* export A=b, A=b alone. */
static int set_variables(struct shell *s, int *did, struct ds_error *err)
{
    const int exported = s->n_words > 0 && strcmp(s->words[0], "export") == 0;
    *did = exported;
    for (size_t i = exported; i < s->n_words; i++)
        if (!exported && !assigned(s->words[i]))
            return 0;
    *did = 1;
    for (size_t i = exported; i < s->n_words; i++) {
        const char *w = s->words[i];
        if (assigned(w) && set_shell(s, w, assigned(w), exported, err) != 0)
            return -1;
        for (size_t k = 0; exported && k < s->n_variables; k++)
            s->exported[k] |= strcmp(s->variables[k].name, w) == 0;
    }
    return 0;
}

static int end_command(struct shell *s, struct ds_error *err)
{
    size_t first = 0;
    int did = 0;
    if (end_word(s, err) != 0)
        return -1;
    if (s->n_words == 0)
        return 0;
    const unsigned engine = find_engine(s->words, s->n_words, &first);
    if (engine ? add_command(s, engine, first, err) : set_variables(s, &did, err))
        return -1;
    s->out->others += !engine && !did;
    for (size_t i = 0; i < s->n_words; i++)
        free(s->words[i]);
    s->n_words = 0;
    return 0;
}

/* ---- the text ---------------------------------------------------------------------------------- */

static int step(struct shell *s, struct ds_error *err)
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
        int rc = end_command(s, err);
        s->line += c == '\n';
        s->at++;
        return rc;
    }
    if (c == ' ' || c == '\t' || c == '\r') {
        s->at++;
        return end_word(s, err);
    }
    if (c == '~' && !s->has_word && (peek(s, 1) == '/' || peek(s, 1) <= ' ') &&
        shell_value(s, "HOME", strlen("HOME"))) {
        ds_buf_puts(&s->word, shell_value(s, "HOME", strlen("HOME")));
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

static void free_shell(struct shell *s)
{
    for (size_t i = 0; i < s->n_words; i++)
        free(s->words[i]);
    free(s->words);
    free_variables(s->variables, s->n_variables);
    free(s->exported);
    ds_buf_free(&s->word);
}

int ds_doctor_parse(const char *name, const char *text, size_t len, struct ds_doctor_commands *out,
                    struct ds_error *err)
{
    struct shell s = {.name = name, .text = text, .len = len, .line = 1, .out = out};
    int rc = 0;
    while (rc == 0 && s.at < s.len)
        rc = step(&s, err);
    if (rc == 0)
        rc = end_command(&s, err);
    free_shell(&s);
    return rc;
}

int ds_doctor_argv(const char *const *words, size_t n, struct ds_doctor_commands *out,
                   struct ds_error *err)
{
    struct shell s = {.name = "the command", .out = out};
    int rc = 0;
    if (n == 1 && strpbrk(words[0], " \t\n"))
        return ds_doctor_parse("the command", words[0], strlen(words[0]), out, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        ds_buf_puts(&s.word, words[i]);
        s.has_word = 1;
        rc = end_word(&s, err);
    }
    if (rc == 0)
        rc = end_command(&s, err);
    free_shell(&s);
    return rc;
}

void ds_doctor_commands_free(struct ds_doctor_commands *c)
{
    for (size_t i = 0; i < c->n; i++) {
        for (size_t k = 0; k < c->at[i].n_words; k++)
            free(c->at[i].words[k]);
        free(c->at[i].words);
        free_variables(c->at[i].variables, c->at[i].n_variables);
    }
    free(c->at);
    memset(c, 0, sizeof *c);
}

/* ---- flags and variables of a command ----------------------------------------------------------- */

const char *ds_doctor_engine(unsigned engine)
{
    switch (engine) {
    case DS_DOCTOR_VLLM:
        return "vLLM";
    case DS_DOCTOR_SGLANG:
        return "SGLang";
    case DS_DOCTOR_LLAMA_SERVER:
        return "llama-server";
    case DS_DOCTOR_LLAMA_CLI:
        return "llama-cli";
    default:
        return "this machine";
    }
}

/* Whether the first n bytes of a word are that flag: all three engines read _ of a long one as -. */
static int is_flag(const char *word, size_t n, const char *flag, size_t flag_len)
{
    if (n != flag_len)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (word[i] != flag[i] && !(word[i] == '_' && flag[i] == '-' && i >= 2))
            return 0;
    return 1;
}

/* A word that can be no value: another flag. "-1" and "-0.5" are values. */
static int looks_like_flag(const char *word)
{
    return word[0] == '-' && (isalpha((unsigned char)word[1]) || word[1] == '-');
}

const char *ds_doctor_flag(const struct ds_doctor_command *c, const char *spec)
{
    const char *found = NULL;
    for (size_t i = c->first; i < c->n_words; i++) {
        const char *w = c->words[i];
        const size_t n = strcspn(w, "=");
        for (const char *p = spec; *p;) {
            const size_t len = strcspn(p, "|");
            const int off = *p == '!', takes = len > 0 && p[len - 1] == '=';
            if (is_flag(w, n, p + off, len - (size_t)off - (size_t)takes)) {
                const char *next = i + 1 < c->n_words ? c->words[i + 1] : "-x";
                found = !takes && w[n] != '='   ? off ? "off" : "on"
                        : w[n] == '='           ? w + n + 1
                        : looks_like_flag(next) ? ""
                                                : next;
            }
            p += len + (p[len] == '|');
        }
    }
    return found;
}

const char *ds_doctor_variable(const struct ds_doctor_command *c, const char *name)
{
    for (size_t i = 0; c && i < c->n_variables; i++)
        if (strcmp(c->variables[i].name, name) == 0)
            return c->variables[i].value;
    return c && c->sealed ? NULL : getenv(name);
}
