/* fuzz_screen.c: lines of the terminal UI's language, as a script or somebody at the prompt may write them: commands, keys, the words
 * of a filter and of a search, and what could complete a word. What must hold: no crash; a message; or a line of which nothing
 * was lost. */
#include "tests/fuzz/fuzz.h"

#include "tui/command.h"
#include "tui/table_internal.h"

#include <string.h>

static int holds(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

static void keys(const char *text)
{
    char name[16];
    struct ds_error err = {{0}, {0}};
    for (;;) {
        const char *before = text;
        const int rc = tui_command_next_key(&text, name, &err);
        if (rc < 0)
            require(err.msg[0] != '\0');
        if (rc <= 0)
            return;
        require(text > before && name[0] && memchr(name, '\0', sizeof name));
    }
}

static void words(const char *text, int with_columns)
{
    static struct tui_terms terms;
    struct ds_error err = {{0}, {0}};
    if (strlen(text) >= sizeof((struct tui_table *)0)->filter) /* which a table does not take */
        return;
    if (tui_terms_parse(text, with_columns, &terms, &err) != 0) {
        require(err.msg[0] != '\0');
        return;
    }
    require(terms.n <= TUI_TERMS);
    for (size_t i = 0; i < terms.n; i++)
        require(holds(text, terms.term[i].word) && holds(text, terms.term[i].name));
}

static const char *a_name(void *ctx, int kind, const char *before, size_t i)
{
    (void)ctx;
    (void)before;
    return i < 2 ? (kind == TUI_WORD_SITE ? "0,q_proj" : "name") : NULL;
}

static void completions(const char *text)
{
    const struct tui_names names = {a_name, NULL};
    const size_t len = strlen(text);
    for (size_t at = 0; at <= len; at += 1 + len / 8) {
        struct ds_buf out = {0};
        size_t begin = 0;
        tui_command_complete(text, at, &names, &begin, &out);
        require(begin <= at);
        ds_buf_free(&out);
    }
}

static void one_line(const char *text)
{
    struct tui_line l;
    struct ds_error err = {{0}, {0}};
    completions(text);
    if (tui_command_parse(text, &l, &err) != 0) {
        require(err.msg[0] && memchr(err.msg, '\0', sizeof err.msg));
        return;
    }
    require(l.n_words >= 0 && l.n_words <= 2);
    for (int i = 0; i < l.n_words; i++)
        require(memchr(l.word[i], '\0', sizeof l.word[i]) && holds(text, l.word[i]));
    if (l.id == TUI_CMD_KEY || l.id == TUI_CMD_KEYS)
        keys(l.word[0]);
    if (l.id == TUI_CMD_FILTER || l.id == TUI_CMD_SEARCH)
        words(l.word[0], l.id == TUI_CMD_FILTER);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *p = text, *end; *p; p = end) {
        end = p + strcspn(p, "\n");
        end += *end ? (*end = '\0', 1) : 0;
        one_line(p);
        keys(p);
        words(p, 0);
        words(p, 1);
    }
    free(text);
    return 0;
}
