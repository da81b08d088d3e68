/* doctor_flags.c: what the words of a launch line say: the values of flags, as each engine reads them, and whether there are words of
 * which nobody but the shell that starts it knows what they are. */
#include "cli/doctor.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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

/* One alternative of "--seed=|-s=|!--no-x": its name, whether a value follows, whether it says "off". The next one, or NULL. */
static const char *next_name(const char *spec, const char **name, size_t *n, int *takes, int *off)
{
    spec += strspn(spec, " ");
    if (!*spec || strncmp(spec, "env:", 4) == 0)
        return NULL;
    const size_t len = strcspn(spec, "| ");
    *off = *spec == '!';
    *takes = len > 0 && spec[len - 1] == '=';
    *name = spec + *off;
    *n = len - (size_t)*off - (size_t)*takes;
    return spec + len + (spec[len] == '|');
}

/* Whether a rule of the engine knows the first n bytes of a word as a flag; *takes: with a value. */
int ds_doctor_known_flag(const struct ds_doctor_command *c, const char *word, size_t n, int *takes)
{
    for (size_t i = 0; i < ds_doctor_rule_count; i++) {
        const struct ds_doctor_rule *r = &ds_doctor_rules[i];
        const char *name, *p = r->source && (r->scope & c->engine) ? r->source : "";
        size_t len;
        int off;
        while ((p = next_name(p, &name, &len, takes, &off)))
            if (is_flag(word, n, name, len))
                return 1;
    }
    return 0;
}

/* Python's argparse, which vLLM and SGLang have, takes the beginning of a long flag for it, where only one begins so. */
static int is_shortened(const struct ds_doctor_command *c, const char *word, size_t n,
                        const char *flag, size_t flag_len)
{
    int takes;
    return (c->engine & DS_DOCTOR_GPU_ENGINES) && n > 3 && n < flag_len && word[0] == '-' &&
           word[1] == '-' && !memchr(flag, '.', flag_len) && is_flag(word, n, flag, n) &&
           !ds_doctor_known_flag(c, word, n, &takes);
}

/* "--speculative-config.method ngram": vLLM's form for one key of a flag whose value is JSON. */
static int is_key_of(const struct ds_doctor_command *c, const char *word, size_t n,
                     const char *flag, size_t flag_len)
{
    return c->engine == DS_DOCTOR_VLLM && n > flag_len + 1 && word[flag_len] == '.' &&
           is_flag(word, flag_len, flag, flag_len);
}

/* A word that can be no value: another flag. "-1" and "-0.5" are values. */
int ds_doctor_looks_like_flag(const char *word)
{
    return word[0] == '-' && (isalpha((unsigned char)word[1]) || word[1] == '-');
}

int ds_doctor_means(const struct ds_doctor_command *c, const char *word, const char *spec)
{
    const size_t n = strcspn(word, "=");
    const char *name;
    size_t len;
    int takes, off;
    while ((spec = next_name(spec, &name, &len, &takes, &off)))
        if (is_flag(word, n, name, len) || is_shortened(c, word, n, name, len) ||
            (takes && is_key_of(c, word, n, name, len)))
            return 1;
    return 0;
}

const char *ds_doctor_flag(const struct ds_doctor_command *c, const char *spec)
{
    const char *found = NULL;
    for (size_t i = c->first; i < c->n_words; i++) {
        const char *w = c->words[i], *name, *p = spec;
        const size_t n = strcspn(w, "=");
        size_t len;
        int takes, off;
        while ((p = next_name(p, &name, &len, &takes, &off))) {
            if (is_flag(w, n, name, len) || is_shortened(c, w, n, name, len)) {
                const char *next = i + 1 < c->n_words ? c->words[i + 1] : "-x";
                found = !takes && w[n] != '='             ? off ? "off" : "on"
                        : w[n] == '='                     ? w + n + 1
                        : ds_doctor_looks_like_flag(next) ? ""
                                                          : next;
            } else if (takes && is_key_of(c, w, n, name, len))
                found = w + len + 1; /* the key says what there is to know */
        }
    }
    return found;
}

const char *ds_doctor_key(const struct ds_doctor_command *c, const char *flag, size_t *at,
                          const char **value)
{
    const size_t len = strlen(flag);
    for (size_t i = *at < c->first ? c->first : *at; i < c->n_words; i++) {
        const char *w = c->words[i];
        const size_t n = strcspn(w, "=");
        if (!is_key_of(c, w, n, flag, len))
            continue;
        *at = i + 1;
        *value = w[n] == '=' ? w + n + 1 : i + 1 < c->n_words ? c->words[i + 1] : "";
        return w + len + 1;
    }
    return NULL;
}

/* "$EXTRA", "${ARGS[@]}", "$@", `cat flags`: what the shell puts there may be flags. */
static int is_open_word(const char *w)
{
    return (w[0] == '$' && w[1]) || w[0] == '`';
}

/* Whether word i can be nothing but the value of the word before it, or the model that a command begins with. */
static int is_value(const struct ds_doctor_command *c, size_t i)
{
    static const char *const lists[] = {"$@", "$*", "[@]", "[*]"};
    int takes;
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++)
        if (strstr(c->words[i], lists[k]))
            return 0;
    if (i == c->first)
        return c->engine == DS_DOCTOR_VLLM;
    const char *before = c->words[i - 1];
    return ds_doctor_looks_like_flag(before) && !strchr(before, '=') &&
           (!ds_doctor_known_flag(c, before, strlen(before), &takes) || takes);
}

const char *ds_doctor_open_word(const struct ds_doctor_command *c)
{
    for (size_t i = c->first; i < c->n_words; i++)
        if (is_open_word(c->words[i]) && !is_value(c, i))
            return c->words[i];
    return NULL;
}

/* Flags of llama-server that stand for a whole list of settings: --gpt-oss-20b-default, --fim-qwen-7b-spec. */
const char *ds_doctor_preset(const struct ds_doctor_command *c)
{
    static const char *const ends[] = {"-default", "-spec"};
    for (size_t i = c->first; (c->engine & DS_DOCTOR_LLAMA) && i < c->n_words; i++)
        for (size_t k = 0; k < sizeof ends / sizeof ends[0]; k++) {
            const char *w = c->words[i];
            const size_t n = strlen(w), end = strlen(ends[k]);
            if (w[0] == '-' && w[1] == '-' && n > end + 2 && strcmp(w + n - end, ends[k]) == 0 &&
                strcmp(w, "--spec-default") != 0) /* it has a rule */
                return w;
        }
    return c->engine == DS_DOCTOR_LLAMA_SERVER ? ds_doctor_flag(c, "--models-preset=") : NULL;
}

const char *ds_doctor_variable(const struct ds_doctor_command *c, const char *name)
{
    for (size_t i = 0; c && i < c->n_variables; i++)
        if (strcmp(c->variables[i].name, name) == 0)
            return c->variables[i].value;
    return c && c->sealed ? NULL : getenv(name);
}
