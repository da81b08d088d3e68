/* options.h: inside cli/ only: the tables of verbs and options, and what main and help need of a
 * parsed command line. */
#ifndef DS_CLI_OPTIONS_H
#define DS_CLI_OPTIONS_H

#include "cli/cli.h"

/* Values are bit numbers in ds_option_def.verbs. A verb is known to the program when ds_verbs[]
 * lists it. */
enum ds_verb_id {
    DS_VERB_NONE = 0,
    DS_VERB_RUN,
    DS_VERB_SHOW,
    DS_VERB_DIFF,
    DS_VERB_TUI,
    DS_VERB_KERNELS,
    DS_VERB_CHECK,
    DS_VERB_BENCH,
    DS_VERB_ORDER,
    DS_VERB_SELFTEST,
    DS_VERB_EXPLAIN,
    DS_VERB_BISECT,
    DS_VERB_STORM,
    DS_VERB_REPLAY,
    DS_VERB_TABLE,
    DS_VERB_ONPOLICY,
    DS_VERB_LOCK,
    DS_VERB_VERIFY,
    DS_VERB_REPORT,
    DS_VERB_RISK,
    DS_VERB_DOCTOR,
    DS_VERB_FINGERPRINT,
    DS_VERB_HELP
};

/* What people come for: the help lists verbs under these. */
enum ds_verb_group {
    DS_GROUP_FIND,
    DS_GROUP_SERVE,
    DS_GROUP_ELSEWHERE,
    DS_GROUP_HOLD,
    DS_GROUP_KERNEL,
    DS_GROUP_SELF,
    DS_GROUPS
};
extern const char *const ds_group_headings[DS_GROUPS];

struct ds_verb_def {
    enum ds_verb_id id;
    enum ds_verb_group group;
    const char *name;
    const char *operands;      /* as shown in the usage line; "" for none */
    const char *operand_words; /* "a|b": what shells complete for an operand; NULL: files, unless
                                  there are no operands */
    size_t min_operands, max_operands;
    int output_is_record;        /* -o names the record, so results go to stdout */
    const char *summary;         /* one line */
    const char *text;            /* some lines for --help and the man page */
    const char *const *examples; /* pairs: command, what it does; NULL-terminated */
    /* What exit codes 0, 1 and 2 mean, where the first is not NULL; else what they mean everywhere.
     * A NULL behind it: the verb does not end so. */
    const char *exits[3];
};

/* In the order of the help: those of a group stand together. */
extern const struct ds_verb_def ds_verbs[];
extern const size_t ds_verb_count;

enum {
    DS_OPT_NUMBER = 1,   /* a whole number min..max is allowed */
    DS_OPT_SIZE = 2,     /* bytes, with K, M, G or T */
    DS_OPT_LIST = 4,     /* comma-separated values, each checked alone */
    DS_OPT_DISTINCT = 8, /* ... none twice (the values of a factor) */
    DS_OPT_MANY = 16,    /* the option may be given several times and all values count */
    DS_OPT_FILE = 32     /* shells complete file names */
};

struct ds_option_def {
    const char *name;  /* long name without dashes */
    char letter;       /* 0: none */
    const char *arg;   /* what the value is called in the help; NULL: a flag */
    uint32_t verbs;    /* 1 << enum ds_verb_id; DS_ANY_VERB: a global option */
    const char *dflt;  /* NULL: none */
    unsigned shape;    /* DS_OPT_* */
    const char *words; /* "first|middle|last": words allowed; with neither words, NUMBER nor SIZE
                          any text is */
    int64_t min, max;
    const char *help; /* lower case, one sentence without a full stop */
};
#define DS_ANY_VERB 0xffffffffu

/* In the order of the help; sections by ds_option_section. */
extern const struct ds_option_def ds_option_defs[];
extern const size_t ds_option_count;

/* The heading under which an option is listed. */
const char *ds_option_section(const struct ds_option_def *d);

/* Whether the verb takes the option; DS_VERB_NONE takes the global ones. */
int ds_option_takes(enum ds_verb_id verb, const struct ds_option_def *d);
/* The option of that long name (n bytes) or letter that the verb takes; NULL if there is none. */
const struct ds_option_def *ds_option_find(enum ds_verb_id verb, const char *name, size_t n);
const struct ds_option_def *ds_option_letter(enum ds_verb_id verb, char letter);
const struct ds_verb_def *ds_verb_find(const char *name);
const struct ds_verb_def *ds_verb_by_id(enum ds_verb_id id);

/* ---- a parsed command line ------------------------------------------------------------------- */

enum ds_action { DS_ACTION_VERB, DS_ACTION_HELP_SHORT, DS_ACTION_HELP_LONG, DS_ACTION_VERSION };

struct ds_option_value {
    const struct ds_option_def *def;
    const char *text; /* borrowed from argv; NULL for a flag */
    int off;          /* --no-NAME */
};

struct ds_options {
    enum ds_verb_id verb;
    enum ds_action action;
    int error_exit;
    struct ds_option_value *values;
    size_t n_values, cap_values;
    const char **operands;
    size_t n_operands, cap_operands;
    size_t n_plain; /* operands before "--"; n_operands without one */
    char *command;
};

/* Fills *o, which borrows from argv and is released with ds_options_free also after -1. Stops at
 * the first -h, --help or
 * --version. o->error_exit holds even when the parse fails. */
int ds_options_parse(int argc, char **argv, struct ds_options *o, struct ds_error *err);
void ds_options_free(struct ds_options *o);
/* Says so, with the nearest verb as the hint; -1. */
int ds_unknown_verb(const char *word, struct ds_error *err);

/* ---- help.c ---------------------------------------------------------------------------------- */

/* verb DS_VERB_NONE: the whole program. */
void ds_help_short(struct ds_buf *b, enum ds_verb_id verb);
void ds_help_long(struct ds_buf *b, enum ds_verb_id verb);
void ds_help_man(struct ds_buf *b);
/* The table of docs/OPTIONS.md. */
void ds_help_markdown(struct ds_buf *b);
/* completion.c: shell is "bash", "zsh" or "fish"; -1 for another. */
int ds_help_completion(struct ds_buf *b, const char *shell);
int ds_verb_help(const struct ds_options *o);

/* ---- output.c -------------------------------------------------------------------------------- */

/* Opens the closed ones of file descriptors 0, 1, 2 so that no file the program opens can take
 * their place. */
void ds_cli_guard_descriptors(void);

#endif
