/* tokenizer_chat.c: the prompt of one user message in ChatML. Owns what is read out of a chat
 * template; does not run it.
 *
 * A chat template is a Jinja program. One fact decides here: does it hold the ChatML markers? And
 * one more is read out: the default system message, a text that runs from "<|im_start|>system" to
 * "<|im_end|>" without interruption, either inside one quoted string (SmolLM2:
 * '<|im_start|>system\nYou are ...<|im_end|>\n') or as plain template text. */
#include "engine/tokenizer_impl.h"

#include <string.h>

#define BEGIN  "<|im_start|>"
#define END    "<|im_end|>"
#define SYSTEM BEGIN "system"

struct text {
    const char *at;
    size_t n;
};

static const char *find(struct text t, const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; i + len <= t.n; i++)
        if (memcmp(t.at + i, word, len) == 0)
            return t.at + i;
    return NULL;
}

static int starts(struct text t, const char *word)
{
    size_t len = strlen(word);
    return t.n >= len && memcmp(t.at, word, len) == 0;
}

/* One character of template text into `out`; returns how many bytes it took, 0 if the text is
 * interrupted here. */
static size_t take(struct text t, char quote, struct ds_buf *out)
{
    if (quote == 0 && (starts(t, "{{") || starts(t, "{%") || starts(t, "{#")))
        return 0;
    if (quote != 0 && *t.at == quote)
        return 0;
    if (quote == 0 || *t.at != '\\' || t.n < 2) {
        ds_buf_add(out, t.at, 1);
        return 1;
    }
    char c = t.at[1], plain = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
    if (plain == c && c != '\\' && c != '\'' && c != '"')
        ds_buf_add(out, "\\", 1); /* no escape of a Jinja string: the backslash stays */
    ds_buf_add(out, &plain, 1);
    return 2;
}

/* Reads the system message that begins at t.at. 1 and the message in `out` (with its closing marker
 * and newline) if it runs through to its end; else 0. */
static int read_system(struct text t, char quote, struct ds_buf *out)
{
    out->len = 0;
    while (t.n > 0) {
        /* A second beginning: not one message. It also keeps the search linear, whatever the
         * template. */
        if (out->len > 0 && starts(t, BEGIN))
            return 0;
        if (starts(t, END)) {
            ds_buf_puts(out, END "\n");
            return out->len > strlen(SYSTEM "\n" END) &&
                   memcmp(out->data, SYSTEM "\n", strlen(SYSTEM "\n")) == 0;
        }
        size_t used = take(t, quote, out);
        if (used == 0 || out->failed)
            return 0;
        t = (struct text){t.at + used, t.n - used};
    }
    return 0;
}

int ds_chat_init(struct ds_tokenizer *t, const char *template_text, size_t n, struct ds_error *err)
{
    struct text all = {template_text, n};
    if (n == 0 || find(all, BEGIN) == NULL || find(all, END) == NULL)
        return 0;
    t->chatml = 1;
    for (struct text rest = all; rest.n > 0;) {
        const char *at = find(rest, SYSTEM);
        if (at == NULL)
            break;
        char before = at == template_text ? 0 : at[-1];
        char quote = before == '\'' || before == '"' ? before : 0;
        rest = (struct text){at, n - (size_t)(at - template_text)};
        if (read_system(rest, quote, &t->system))
            break;
        t->system.len = 0;
        rest = (struct text){at + 1, rest.n - 1};
    }
    return t->system.failed ? ds_fail(err, "%s: tokenizer.chat_template: out of memory", t->name)
                            : 0;
}

static int known_form(const struct ds_tokenizer *t, struct ds_error *err)
{
    return t->chatml ? 0
                     : ds_fail(err,
                               "%s: tokenizer.chat_template: missing, or not ChatML (no " BEGIN
                               " and " END ")",
                               t->name);
}

int ds_tokenizer_chat_form(const struct ds_tokenizer *t, struct ds_chat_form *out,
                           struct ds_error *err)
{
    if (known_form(t, err) != 0)
        return -1;
    *out = (struct ds_chat_form){
        .begin = BEGIN, .end = END, .system = t->system.data, .n_system = t->system.len};
    return 0;
}

int ds_tokenizer_chat(const struct ds_tokenizer *t, const char *user, struct ds_buf *out,
                      struct ds_error *err)
{
    if (known_form(t, err) != 0)
        return ds_hint(err, "give the prompt without --chat");
    ds_buf_add(out, t->system.data, t->system.len);
    ds_buf_puts(out, BEGIN "user\n");
    ds_buf_puts(out, user);
    ds_buf_puts(out, END "\n" BEGIN "assistant\n");
    return out->failed ? ds_fail(err, "chat prompt: out of memory") : 0;
}
