/* command.h: the command language of the `:` prompt and of scripts: one table of commands, how a line is taken
 * apart, and what could complete it. Pure; app.c does what the commands say. */
#ifndef DS_TUI_COMMAND_H
#define DS_TUI_COMMAND_H

#include "base/buf.h"

enum tui_command_id {
    TUI_CMD_NONE = 0, /* an empty line or a comment */
    TUI_CMD_REQUEST,  /* a request of keys.h by its name */
    TUI_CMD_GOTO,
    TUI_CMD_ARM,
    TUI_CMD_REF,
    TUI_CMD_VIEW,
    TUI_CMD_SET,
    TUI_CMD_SORT,
    TUI_CMD_FILTER,
    TUI_CMD_SEARCH,
    TUI_CMD_EXPORT,
    TUI_CMD_KEY,
    TUI_CMD_KEYS,
    TUI_CMD_SIZE,
    TUI_CMD_SAVE_DISPLAY,
    TUI_CMD_WAIT
};

/* What an argument names; the words behind it complete and are checked by app.c. */
enum tui_word_kind {
    TUI_WORD_TEXT = 0,
    TUI_WORD_COMMAND,
    TUI_WORD_SITE,
    TUI_WORD_VIEW,
    TUI_WORD_COLUMN,
    TUI_WORD_SETTING,
    TUI_WORD_VALUE, /* of the setting before it */
    TUI_WORD_FORMAT,
    TUI_WORD_ORDER,
    TUI_WORD_ATTRIBUTES,
    TUI_WORD_FILE
};

struct tui_command_def {
    int id;
    const char *name;
    const char *arguments; /* as shown: "LAYER,STAGE[/PART]" */
    int kinds[2];          /* of its words */
    int least;             /* words that it needs */
    int whole;             /* what follows the name is one text */
    const char *help;
};
const struct tui_command_def *tui_commands(size_t *n);

struct tui_line {
    const struct tui_command_def *def; /* NULL for a request and for nothing */
    int id, request;
    int force;         /* "export! FILE" */
    char word[2][512]; /* "" where there is none */
    int n_words;
};
/* Takes a line apart; a ':' before it counts for nothing, '#' begins a comment line. -1: an unknown command, with the
 * nearest name as the hint, or too few or too many words. */
int tui_command_parse(const char *text, struct tui_line *out, struct ds_error *err);

/* Takes the next key off "jjj<Enter>": its name in keys.h goes to `name` (16 bytes). 1 there is one, 0 the end, -1 a
 * name without its '>' or one that is no key. */
int tui_command_next_key(const char **text, char name[16], struct ds_error *err);

/* Names that only the caller knows: the i-th of a kind, NULL after the last. */
struct tui_names {
    const char *(*name)(void *ctx, int kind, const char *before, size_t i);
    void *ctx;
};
/* What could stand for the word that ends at byte `at`: names, "\n" after each; *begin is where the word does. */
void tui_command_complete(const char *text, size_t at, const struct tui_names *names, size_t *begin,
                          struct ds_buf *out);

#endif
