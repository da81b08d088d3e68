/* command.c: see command.h. */
#include "tui/command.h"

#include "base/names.h"
#include "tui/keys.h"

#include <stdio.h>
#include <string.h>

enum { MOST_NAMES = 128 };

/* clang-format off */
static const struct tui_command_def commands[] = {
    {TUI_CMD_GOTO, "goto", "LAYER,STAGE[/PART]", {TUI_WORD_SITE, TUI_WORD_TEXT}, 1, 0, "to a site"},
    {TUI_CMD_ARM, "arm", "N", {TUI_WORD_TEXT, TUI_WORD_TEXT}, 1, 0, "look at this arm, with its own reference"},
    {TUI_CMD_REF, "ref", "N", {TUI_WORD_TEXT, TUI_WORD_TEXT}, 1, 0, "compare with this arm"},
    {TUI_CMD_VIEW, "view", "NAME", {TUI_WORD_VIEW, TUI_WORD_TEXT}, 1, 0, "to a view"},
    {TUI_CMD_SET, "set", "metric|number|ascii VALUE", {TUI_WORD_SETTING, TUI_WORD_VALUE}, 2, 0, "how things are shown"},
    {TUI_CMD_SORT, "sort", "COLUMN [desc]", {TUI_WORD_COLUMN, TUI_WORD_ORDER}, 0, 0, "sort by a column; without one: as the rows come"},
    {TUI_CMD_FILTER, "filter", "[TEXT]", {TUI_WORD_TEXT, TUI_WORD_TEXT}, 0, 1, "show only what has all these words; without any: all"},
    {TUI_CMD_SEARCH, "search", "TEXT", {TUI_WORD_TEXT, TUI_WORD_TEXT}, 1, 1, "to the next line that has it"},
    {TUI_CMD_EXPORT, "export", "FILE [text|tsv|json]", {TUI_WORD_FILE, TUI_WORD_FORMAT}, 1, 0, "write the marked lines, or all shown; export! replaces a file"},
    {TUI_CMD_KEY, "key", "NAME", {TUI_WORD_TEXT, TUI_WORD_TEXT}, 1, 0, "press a key: e, ^D, PgDn, Enter"},
    {TUI_CMD_KEYS, "keys", "KEYS", {TUI_WORD_TEXT, TUI_WORD_TEXT}, 1, 1, "press keys: jjj<Enter>, <lt> for <"},
    {TUI_CMD_SIZE, "size", "COLUMNSxLINES", {TUI_WORD_TEXT, TUI_WORD_TEXT}, 1, 0, "another size (scripts)"},
    {TUI_CMD_SAVE_DISPLAY, "save-display", "FILE [attributes]", {TUI_WORD_FILE, TUI_WORD_ATTRIBUTES}, 1, 0, "write what is on the screen to a file"},
    {TUI_CMD_WAIT, "wait", "", {TUI_WORD_TEXT, TUI_WORD_TEXT}, 0, 0, "until nothing is being read"},
};
/* clang-format on */

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

const struct tui_command_def *tui_commands(size_t *n)
{
    *n = N_COMMANDS;
    return commands;
}

static const struct tui_command_def *find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

/* All names of commands and requests; returns how many. */
static size_t all_names(const char *names[MOST_NAMES])
{
    size_t n = 0, n_bindings;
    const struct tui_binding *b = tui_bindings(&n_bindings);
    for (size_t i = 0; i < N_COMMANDS; i++)
        names[n++] = commands[i].name;
    for (size_t i = 0; i < n_bindings && n < MOST_NAMES; i++)
        names[n++] = b[i].name;
    return n;
}

static int unknown(const char *name, struct ds_error *err)
{
    const char *names[MOST_NAMES];
    int near = ds_nearest(name, names, all_names(names));
    ds_fail(err, "unknown command '%.60s'", name);
    return near >= 0 ? ds_hint(err, "did you mean '%s'?", names[near])
                     : ds_hint(err, "? lists keys and commands");
}

static const char *skip_spaces(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

/* A part of a word would name another file, or type fewer keys. */
static int too_long(const struct tui_line *l, const char *p, struct ds_error *err)
{
    return ds_fail(err, "'%s': '%.40s...' is longer than %zu bytes", l->def->name, p,
                   sizeof l->word[0] - 1);
}

/* The next word, which quotes may hold together; returns what follows, or NULL where it does not fit. */
static const char *take_word(struct tui_line *l, const char *p, struct ds_error *err)
{
    const char quote = *p == '"' || *p == '\'' ? *p++ : '\0', *const begin = p;
    char *out = l->word[l->n_words];
    while (*p && (quote ? *p != quote : *p != ' ' && *p != '\t'))
        p++;
    const size_t n = (size_t)(p - begin);
    if (n >= sizeof l->word[0]) {
        too_long(l, begin, err);
        return NULL;
    }
    memcpy(out, begin, n);
    out[n] = '\0';
    l->n_words++;
    return skip_spaces(quote && *p ? p + 1 : p);
}

/* All that follows the name, without spaces at its end. */
static int take_rest(struct tui_line *l, const char *p, struct ds_error *err)
{
    size_t n = strlen(p);
    while (n && strchr(" \t\r", p[n - 1]))
        n--;
    if (n >= sizeof l->word[0])
        return too_long(l, p, err);
    memcpy(l->word[0], p, n);
    l->word[0][n] = '\0';
    l->n_words = n > 0;
    return 0;
}

static int take_words(struct tui_line *l, const char *p, struct ds_error *err)
{
    int most = l->def->kinds[1] != TUI_WORD_TEXT ? 2 : l->def->arguments[0] ? 1 : 0;
    if (l->def->whole) {
        if (take_rest(l, p, err) != 0)
            return -1;
    } else {
        while (*p && l->n_words < most)
            if (!(p = take_word(l, p, err)))
                return -1;
        if (*p)
            return ds_fail(err, "'%s' has no use for '%.60s'", l->def->name, p);
    }
    if (l->n_words < l->def->least)
        return ds_fail(err, "'%s' needs %s", l->def->name, l->def->arguments);
    return 0;
}

int tui_command_parse(const char *text, struct tui_line *out, struct ds_error *err)
{
    char name[64];
    memset(out, 0, sizeof *out);
    const char *p = skip_spaces(text);
    if (*p == ':')
        p = skip_spaces(p + 1);
    if (*p == '\0' || *p == '#')
        return 0;
    size_t n = strcspn(p, " \t");
    snprintf(name, sizeof name, "%.*s", (int)(n < 60 ? n : 60), p);
    p = skip_spaces(p + n);
    if (strcmp(name, "export!") == 0) {
        out->force = 1;
        name[strlen(name) - 1] = '\0';
    }
    out->def = find(name);
    /* "search" alone asks for the text, as its key does. */
    if (out->def) {
        out->id = out->def->id;
        return take_words(out, p, err);
    }
    out->request = tui_request_of_name(name);
    if (!out->request)
        return unknown(name, err);
    out->id = TUI_CMD_REQUEST;
    return *p ? ds_fail(err, "'%s' has no use for '%.60s'", name, p) : 0;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int is_key(const char *name)
{
    static const char *const others[] = {"Del", "Ins", "Unknown"};
    int len = ds_utf8_len(name, strlen(name));
    if (len && name[len] == '\0')
        return (unsigned char)name[0] > 0x20 && name[0] != 0x7f;
    if (name[0] == '^' && name[1] >= '@' && name[1] <= '_' && name[2] == '\0')
        return 1;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(others[i], name) == 0)
            return 1;
    return tui_request_of_key(name) != TUI_NONE;
}

int tui_command_next_key(const char **text, char name[16], struct ds_error *err)
{
    const char *p = *text;
    if (!*p)
        return 0;
    if (*p != '<') {
        int len = ds_utf8_len(p, strlen(p));
        if (len == 0 || (unsigned char)*p < 0x20 || *p == 0x7f)
            return ds_fail(err, "a character that is no key");
        snprintf(name, 16, "%.*s", len, *p == ' ' ? "Space" : p);
        if (*p == ' ')
            snprintf(name, 16, "Space");
        *text = p + len;
        return 1;
    }
    size_t n = strcspn(p, ">");
    if (!p[n] || n < 2 || n > 15)
        return ds_fail(err, "'%.20s' is no key: write <Enter>, <^D>, <lt>", p);
    snprintf(name, 16, "%.*s", (int)n - 1, p + 1);
    if (strcmp(name, "lt") == 0)
        snprintf(name, 16, "<");
    if (!is_key(name))
        return ds_fail(err, "'<%s>' is no key", name);
    *text = p + n + 1;
    return 1;
}

/* ---- completion ------------------------------------------------------------------------------ */

static void offer(struct ds_buf *out, const char *word, size_t n, const char *name)
{
    if (strncmp(name, word, n) == 0)
        ds_buf_printf(out, "%s\n", name);
}

static void offer_list(struct ds_buf *out, const char *word, size_t n, const char *const *names)
{
    for (size_t i = 0; names[i]; i++)
        offer(out, word, n, names[i]);
}

void tui_command_complete(const char *text, size_t at, const struct tui_names *names, size_t *begin,
                          struct ds_buf *out)
{
    static const char *const settings[] = {"metric", "number", "ascii", NULL},
                             *const formats[] = {"text", "tsv", "json", NULL},
                             *const orders[] = {"desc", NULL},
                             *const attributes[] = {"attributes", NULL};
    struct tui_line line = {0};
    char before[2][512] = {{0}};
    size_t word = at, index = 0;
    while (word > 0 && text[word - 1] != ' ')
        word--;
    *begin = word;
    /* The words before it: the command and the first argument. */
    for (size_t i = 0; i < word; index++) {
        size_t n = strcspn(text + i, " ");
        if (index < 2)
            snprintf(before[index], sizeof before[0], "%.*s", (int)(n < 500 ? n : 500), text + i);
        i += n;
        while (i < word && text[i] == ' ')
            i++;
    }
    const char *w = text + word;
    size_t n = at - word;
    if (index == 0) {
        const char *all[MOST_NAMES];
        size_t count = all_names(all);
        for (size_t i = 0; i < count; i++)
            offer(out, w, n, all[i]);
        return;
    }
    if (strcmp(before[0], "export!") == 0)
        before[0][6] = '\0';
    line.def = find(before[0]);
    if (!line.def || index > 2 || line.def->whole)
        return;
    int kind = line.def->kinds[index - 1];
    if (kind == TUI_WORD_SETTING)
        offer_list(out, w, n, settings);
    else if (kind == TUI_WORD_FORMAT)
        offer_list(out, w, n, formats);
    else if (kind == TUI_WORD_ORDER)
        offer_list(out, w, n, orders);
    else if (kind == TUI_WORD_ATTRIBUTES)
        offer_list(out, w, n, attributes);
    else if (kind != TUI_WORD_TEXT && kind != TUI_WORD_FILE && names) {
        const char *name;
        for (size_t i = 0; i < 100000 && (name = names->name(names->ctx, kind, before[1], i)); i++)
            offer(out, w, n, name);
    }
}
