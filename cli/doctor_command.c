/* doctor_command.c: launch lines of engines: which engine a command starts, and the variables that it gets. The words are
 * doctor_shell.c's, what flags say doctor_flags.c's. */
#include "cli/doctor_shell.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

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
    return ds_variable_put(&c->variables, &c->n_variables, &c->cap_variables, word, name_len,
                           word + name_len + 1, err);
}

/* A variable that is handed on by name alone (docker run -e NAME). */
static int hand_on(const struct ds_shell *s, struct ds_doctor_command *c, const char *name,
                   struct ds_error *err)
{
    const char *value = ds_shell_value(s, name, strlen(name));
    return value ? ds_variable_put(&c->variables, &c->n_variables, &c->cap_variables, name,
                                   strlen(name), value, err)
                 : 0;
}

/* Not set for the command, whatever this process has. */
static int take_away(struct ds_doctor_command *c, const char *name, struct ds_error *err)
{
    if (ds_variable_put(&c->variables, &c->n_variables, &c->cap_variables, name, strlen(name), "",
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
static int read_prefix(const struct ds_shell *s, struct ds_doctor_command *c, struct ds_error *err)
{
    int docker = 0, env = 0;
    for (size_t i = 0; i < c->first && i < c->n_words; i++) {
        const char *w = c->words[i], *name = last_part(w), *value = NULL;
        docker |= strcmp(name, "docker") == 0 || strcmp(name, "podman") == 0;
        env |= strcmp(name, "env") == 0;
        c->env_file |= docker && (strcmp(w, "--env-file") == 0 || begins(w, "--env-file="));
        if (docker && (strcmp(w, "-e") == 0 || strcmp(w, "--env") == 0) && i + 1 < c->first)
            value = c->words[++i];
        else if (docker && begins(w, "--env="))
            value = w + strlen("--env=");
        else if (docker && begins(w, "-e") && w[2])
            value = w + 2 + (w[2] == '=');
        else if (!docker && env &&
                 (strcmp(w, "-i") == 0 || strcmp(w, "-") == 0 ||
                  strcmp(w, "--ignore-environment") == 0))
            c->sealed = 1;
        else if (!docker && env && begins(w, "--unset=")) {
            if (take_away(c, w + strlen("--unset="), err) != 0)
                return -1;
        } else if (!docker && env && (strcmp(w, "-u") == 0 || strcmp(w, "--unset") == 0) &&
                   i + 1 < c->first) {
            if (take_away(c, c->words[++i], err) != 0)
                return -1;
        } else if (!docker)
            value = w;
        if (value && ds_shell_assigned(value) ? give(c, value, ds_shell_assigned(value), err)
                                              : docker && value && hand_on(s, c, value, err))
            return -1;
    }
    c->sealed |= docker;
    return 0;
}

static int add_command(struct ds_shell *s, unsigned engine, size_t first, struct ds_error *err)
{
    struct ds_doctor_commands *out = s->ctx;
    if (ds_grow(&out->at, &out->cap, out->n + 1, sizeof *out->at, "commands", err) != 0)
        return -1;
    struct ds_doctor_command *c = &out->at[out->n++];
    *c = (struct ds_doctor_command){.engine = engine, .first = first, .line = s->words_line};
    c->words = s->words;
    c->n_words = s->n_words;
    c->cap_words = s->cap_words;
    if (s->sourced && !(c->sourced = strdup(s->sourced)))
        return ds_fail(err, "out of memory for commands");
    s->words = NULL;
    s->n_words = s->cap_words = 0;
    for (size_t i = 0; i < s->n_variables; i++) {
        const struct ds_doctor_variable *x = &s->variables[i];
        if (s->exported[i] &&
            (x->value ? ds_variable_put(&c->variables, &c->n_variables, &c->cap_variables, x->name,
                                        strlen(x->name), x->value, err)
                      : take_away(c, x->name, err)) != 0)
            return -1;
    }
    return read_prefix(s, c, err);
}

/* unset A, set -a, set +a. 1: it is one of them. */
static int take_setting(struct ds_shell *s, struct ds_error *err)
{
    const char *what = s->n_words ? s->words[0] : "";
    if (strcmp(what, "set") == 0 && s->n_words > 1) {
        s->exports =
            strcmp(s->words[1], "-a") == 0 || (s->exports && strcmp(s->words[1], "+a") != 0);
        return 1;
    }
    if (strcmp(what, "unset") != 0)
        return 0;
    for (size_t i = 1; i < s->n_words; i++)
        if (s->words[i][0] != '-' && ds_shell_unset(s, s->words[i], err) != 0)
            return -1;
    return 1;
}

/* source FILE, . FILE: read by the shell, and not here. */
static int take_source(struct ds_shell *s, struct ds_error *err)
{
    if (s->n_words < 2 || (strcmp(s->words[0], "source") != 0 && strcmp(s->words[0], ".") != 0))
        return 0;
    free(s->sourced);
    return (s->sourced = strdup(s->words[1])) ? 0 : ds_fail(err, "out of memory for commands");
}

/* Whether a word of declare hands its variables on: -x, -gx. */
static int hands_on(const struct ds_shell *s)
{
    for (size_t i = 1; i < s->n_words; i++)
        if (s->words[i][0] == '-' && strchr(s->words[i], 'x'))
            return 1;
    return 0;
}

/* export A=b, declare -x A=b, A=b alone. */
static int set_variables(struct ds_shell *s, int *did, struct ds_error *err)
{
    const char *what = s->n_words ? s->words[0] : "";
    const int export = strcmp(what, "export") == 0,
              declare = strcmp(what, "declare") == 0 || strcmp(what, "typeset") == 0 ||
                        strcmp(what, "readonly") == 0 || strcmp(what, "local") == 0,
              exported = export || s->exports || (declare && hands_on(s));
    *did = export || declare;
    for (size_t i = (size_t)*did; i < s->n_words; i++)
        if (!*did && !ds_shell_assigned(s->words[i]))
            return 0;
    const size_t first = (size_t)*did;
    *did = 1;
    for (size_t i = first; i < s->n_words; i++) {
        const char *w = s->words[i];
        if (ds_shell_assigned(w) && ds_shell_set(s, w, ds_shell_assigned(w), exported, err) != 0)
            return -1;
        for (size_t k = 0; exported && k < s->n_variables; k++)
            s->exported[k] |= strcmp(s->variables[k].name, w) == 0;
    }
    return 0;
}

/* The word that a shell among the words reads (bash -c WORD), *shell: where that stands; 0: there is none. */
static size_t inner_text(char *const *words, size_t n, size_t *shell)
{
    static const char *const shells[] = {"bash", "sh", "zsh", "dash", "ksh"};
    for (*shell = 0; *shell < n; ++*shell)
        for (size_t k = 0; k < sizeof shells / sizeof shells[0]; k++) {
            size_t at = *shell + 1;
            int reads = 0;
            if (strcmp(last_part(words[*shell]), shells[k]) != 0)
                continue;
            for (; at < n && words[at][0] == '-'; at++)
                reads |= words[at][1] != '-' && strchr(words[at], 'c') != NULL;
            if (reads && at < n)
                return at;
        }
    return 0;
}

/* What the words before a shell give to the commands that it starts. */
static int give_prefix(const struct ds_doctor_command *outer, struct ds_doctor_command *c,
                       struct ds_error *err)
{
    for (size_t i = 0; i < outer->n_variables; i++) {
        const struct ds_doctor_variable *x = &outer->variables[i];
        size_t k = 0;
        while (k < c->n_variables && strcmp(c->variables[k].name, x->name) != 0)
            k++;
        if (k == c->n_variables &&
            (x->value ? ds_variable_put(&c->variables, &c->n_variables, &c->cap_variables, x->name,
                                        strlen(x->name), x->value, err)
                      : take_away(c, x->name, err)) != 0)
            return -1;
    }
    c->sealed |= outer->sealed;
    c->env_file |= outer->env_file;
    return 0;
}

/* bash -c 'vllm serve ...': its engines are this command's. *did: there were some. */
static int take_inner(struct ds_shell *s, int *did, struct ds_error *err)
{
    struct ds_doctor_commands *out = s->ctx;
    struct ds_doctor_command outer = {.words = s->words, .n_words = s->n_words};
    const size_t before = out->n, others = out->others,
                 text = inner_text(s->words, s->n_words, &outer.first);
    if (!text)
        return 0;
    int rc = read_prefix(s, &outer, err);
    if (rc == 0)
        rc = ds_shell_inner(s, s->words[text], strlen(s->words[text]), s->words_line, 0, err);
    for (size_t i = before; rc == 0 && i < out->n; i++)
        rc = give_prefix(&outer, &out->at[i], err);
    ds_variables_free(outer.variables, outer.n_variables);
    *did = out->n > before;
    out->others = others;
    return rc;
}

/* A finished command: an engine's is kept. */
static int take_command(struct ds_shell *s, struct ds_error *err)
{
    struct ds_doctor_commands *out = s->ctx;
    size_t first = 0;
    int did = 0;
    const unsigned engine = find_engine(s->words, s->n_words, &first);
    if (engine ? add_command(s, engine, first, err) : (did = take_setting(s, err)) < 0)
        return -1;
    if (!engine && !did &&
        (take_source(s, err) != 0 || take_inner(s, &did, err) != 0 ||
         (!did && set_variables(s, &did, err) != 0)))
        return -1;
    out->others += !engine && !did;
    return 0;
}

int ds_doctor_parse(const char *name, const char *text, size_t len, struct ds_doctor_commands *out,
                    struct ds_error *err)
{
    struct ds_shell s = {
        .name = name, .text = text, .len = len, .line = 1, .command = take_command, .ctx = out};
    const int rc = ds_shell_read(&s, err);
    ds_shell_free(&s);
    return rc;
}

int ds_doctor_argv(const char *const *words, size_t n, struct ds_doctor_commands *out,
                   struct ds_error *err)
{
    struct ds_shell s = {.name = "the command", .command = take_command, .ctx = out};
    int rc = 0;
    if (n == 1 && strpbrk(words[0], " \t\n"))
        return ds_doctor_parse("the command", words[0], strlen(words[0]), out, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = ds_shell_add_word(&s, words[i], err);
    if (rc == 0)
        rc = ds_shell_end_command(&s, err);
    ds_shell_free(&s);
    return rc;
}

void ds_doctor_commands_free(struct ds_doctor_commands *c)
{
    for (size_t i = 0; i < c->n; i++) {
        for (size_t k = 0; k < c->at[i].n_words; k++)
            free(c->at[i].words[k]);
        free(c->at[i].words);
        free(c->at[i].sourced);
        ds_variables_free(c->at[i].variables, c->at[i].n_variables);
    }
    free(c->at);
    memset(c, 0, sizeof *c);
}
