/* doctor.h: inside cli/ only: what on this machine, or in the launch line of an engine, can make results
 * differ. doctor_rules.c is the one table of what is looked for; doctor_command.c reads launch lines, doctor_flags.c
 * their flags, doctor_judge.c holds both against each other, doctor_workers.c commands against each other, the other files
 * look where a table cannot. */
#ifndef DS_DOCTOR_H
#define DS_DOCTOR_H

#include "cli/cli.h"

/* ---- launch lines (doctor_command.c, doctor_flags.c) ---------------------------------------------------------- */

/* Whom a rule is for; of a command one bit, of a rule any. */
enum {
    DS_DOCTOR_MACHINE = 1,
    DS_DOCTOR_VLLM = 2,
    DS_DOCTOR_SGLANG = 4,
    DS_DOCTOR_LLAMA_SERVER = 8,
    DS_DOCTOR_LLAMA_CLI = 16,
    DS_DOCTOR_LLAMA = DS_DOCTOR_LLAMA_SERVER | DS_DOCTOR_LLAMA_CLI,
    DS_DOCTOR_GPU_ENGINES = DS_DOCTOR_VLLM | DS_DOCTOR_SGLANG,
    DS_DOCTOR_ENGINES = DS_DOCTOR_GPU_ENGINES | DS_DOCTOR_LLAMA
};
/* "this machine", "vLLM", "SGLang", "llama-server", "llama-cli". */
const char *ds_doctor_engine(unsigned engine);

struct ds_doctor_variable {
    char *name, *value;
};

/* What is known of the file of settings that a command names. */
enum { DS_DOCTOR_CONFIG_UNREAD, DS_DOCTOR_CONFIG_PART, DS_DOCTOR_CONFIG_READ };

/* A simple command of a shell line that starts an engine. */
struct ds_doctor_command {
    unsigned engine;
    char **words; /* of the whole command, quotes and known $NAMES resolved */
    size_t n_words, cap_words;
    size_t first;                         /* the engine's first argument */
    struct ds_doctor_variable *variables; /* set for this command */
    size_t n_variables, cap_variables;
    int config;   /* DS_DOCTOR_CONFIG_ */
    int sealed;   /* it does not get this process's environment: env -i, docker run */
    int env_file; /* docker run --env-file: what it sets is not known */
    char *sourced; /* a file that its script read before (source FILE): what it sets is not known; NULL: none */
    size_t line;  /* of the text, from 1; 0: argv */
};

struct ds_doctor_commands {
    struct ds_doctor_command *at;
    size_t n, cap;
    size_t others; /* commands that start no engine */
};

/* Reads text as a shell would up to running it: quotes, backslashes, comments, redirections, ; && || | &,
 * assignments, export, env, docker run -e, $NAME. `name`: of the file, for errors (an open quote). */
int ds_doctor_parse(const char *name, const char *text, size_t len, struct ds_doctor_commands *out,
                    struct ds_error *err);
/* The same of words that a shell has split already; one word with spaces in it is a text. */
int ds_doctor_argv(const char *const *words, size_t n, struct ds_doctor_commands *out,
                   struct ds_error *err);
/* Puts what --config FILE sets before the command's own flags (doctor_config.c). */
int ds_doctor_read_config(struct ds_doctor_command *c, struct ds_error *err);
void ds_doctor_commands_free(struct ds_doctor_commands *c);

/* Whether a word, up to its '=', is one of these flags, as the engine reads it: also by its beginning, or as a key of it. */
int ds_doctor_means(const struct ds_doctor_command *c, const char *word, const char *spec);
/* The value of "--seed=|-s=": of a flag that takes one, the last one given ("" where it has none); of one
 * that does not ("--cache-prompt|!--no-cache-prompt") "on", or "off" behind a '!'. NULL: not given. */
const char *ds_doctor_flag(const struct ds_doctor_command *c, const char *spec);
/* Keys of a flag whose value is JSON, "--flag.key value", from word *at on; NULL: no more. The text ends at a '=', or at the word's
 * end. */
const char *ds_doctor_key(const struct ds_doctor_command *c, const char *flag, size_t *at,
                          const char **value);
/* A word that may be any flags, as nobody but the shell that starts the command knows what it is: "$EXTRA"; NULL: there is none. */
const char *ds_doctor_open_word(const struct ds_doctor_command *c);
/* A flag that stands for a list of settings; NULL: there is none. */
const char *ds_doctor_preset(const struct ds_doctor_command *c);
/* Whether a word can be no value. */
int ds_doctor_looks_like_flag(const char *word);
/* Whether a rule of the engine reads the first n bytes of a word; *takes: with a value. */
int ds_doctor_known_flag(const struct ds_doctor_command *c, const char *word, size_t n, int *takes);
/* Of an environment variable, as the command gets it; NULL: not set. c NULL: of this process. */
const char *ds_doctor_variable(const struct ds_doctor_command *c, const char *name);

/* ---- what is found ---------------------------------------------------------------------------- */

enum ds_doctor_status { DS_DOCTOR_FOUND, DS_DOCTOR_UNKNOWN, DS_DOCTOR_FIXED };
/* "found", "cannot-tell", "fixed". */
const char *ds_doctor_status_name(int status);

struct ds_doctor_line {
    const char *check; /* the rule's name */
    int status;
    size_t command; /* from 1; 0: this machine, or several commands */
    char *text;
    const char *remedy; /* "": none is needed, or there is none */
};

struct ds_doctor {
    const struct ds_options *o; /* NULL in tests of command lines */
    struct ds_doctor_commands commands;
    struct ds_doctor_line *lines;
    size_t n_lines, cap_lines;
};

struct ds_doctor_rule;
/* Adds a line for a rule. -1: out of memory. */
int ds_doctor_say(struct ds_doctor *d, const struct ds_doctor_rule *r,
                  const struct ds_doctor_command *c, int status, struct ds_error *err,
                  const char *fmt, ...) __attribute__((format(printf, 6, 7)));
void ds_doctor_free(struct ds_doctor *d);

/* ---- rules ------------------------------------------------------------------------------------ */

/* The first outcome whose pattern fits counts. Patterns: "unset"; "=a|b": one of these, numbers by value,
 * words whatever their case; "<0": a number below it; "~text": contains it; "*": set. In a text {} stands for the
 * value. */
struct ds_doctor_outcome {
    const char *pattern;
    int status;
    const char *text;
};
enum { DS_DOCTOR_MOST_OUTCOMES = 4 };

struct ds_doctor_rule {
    const char *check;
    unsigned scope;
    const char *
        source; /* flags as for ds_doctor_flag, then "env:NAME", in order of precedence; NULL: look */
    struct ds_doctor_outcome outcomes[DS_DOCTOR_MOST_OUTCOMES];
    const char *remedy;
    const char *unless; /* guards, separated by spaces: one that holds makes it fixed */
    int (*look)(struct ds_doctor *d, const struct ds_doctor_rule *r,
                const struct ds_doctor_command *c, struct ds_error *err);
};
extern const struct ds_doctor_rule ds_doctor_rules[];
extern const size_t ds_doctor_rule_count;

/* A setting that makes others harmless: holds if the source's value fits the pattern. */
struct ds_doctor_guard {
    const char *name;
    unsigned scope;
    const char *source, *pattern;
    const char *text;                                /* what makes it harmless */
    int (*holds)(const struct ds_doctor_command *c); /* instead of source and pattern */
};
extern const struct ds_doctor_guard ds_doctor_guards[];
extern const size_t ds_doctor_guard_count;

/* ---- judging (doctor_judge.c) ----------------------------------------------------------------- */

/* Whether a value (NULL: not set) fits a pattern. */
int ds_doctor_fits(const char *pattern, const char *value);
/* Whether the first na bytes of a are b: numbers by value, words whatever their case. */
int ds_doctor_same_value(const char *a, size_t na, const char *b);
/* Whether a part of a value is known to nobody but the shell that starts the command. */
int ds_doctor_is_open(const char *value);
/* What may set flags that the command does not have; NULL: nothing. *why it is not known whether it does. */
const char *ds_doctor_elsewhere(const struct ds_doctor_command *c, const char **why);
/* The model that a command names; NULL: it names none. */
const char *ds_doctor_model(const struct ds_doctor_command *c);
/* The value that counts of a source; NULL: none is set. c NULL: this machine. */
const char *ds_doctor_value(const struct ds_doctor_command *c, const char *source);
/* Holds one rule that has a source against a command or, c NULL, this process's environment. */
int ds_doctor_apply(struct ds_doctor *d, const struct ds_doctor_rule *r,
                    const struct ds_doctor_command *c, struct ds_error *err);
/* Holds every rule of its scope against a command; c NULL: against this machine. */
int ds_doctor_judge(struct ds_doctor *d, const struct ds_doctor_command *c, struct ds_error *err);
/* Several commands of one engine: their seeds, then whatever other settings differ. */
int ds_doctor_compare(struct ds_doctor *d, struct ds_error *err);
/* 1 + the index of a command; 0 for NULL. */
size_t ds_doctor_number(const struct ds_doctor *d, const struct ds_doctor_command *c);

/* ---- looking ---------------------------------------------------------------------------------- */

typedef int ds_doctor_look(struct ds_doctor *d, const struct ds_doctor_rule *r,
                           const struct ds_doctor_command *c, struct ds_error *err);
/* doctor_options.c: options that are not known here */
ds_doctor_look ds_doctor_look_options;
/* doctor_machine.c */
ds_doctor_look ds_doctor_look_no_command, ds_doctor_look_nccl, ds_doctor_look_cpus, ds_doctor_look_quota, ds_doctor_look_blas_core,
    ds_doctor_look_blas_threads, ds_doctor_look_control, ds_doctor_look_run, ds_doctor_look_batch,
    ds_doctor_look_thread;
int ds_doctor_no_gpu(const struct ds_doctor_command *c);
/* doctor_objects.c: shared objects that set flush-to-zero when they are loaded */
ds_doctor_look ds_doctor_look_objects;
/* Whether code among these bytes of an ELF file does what crtfastmath.o does: 1, 0; -1: no ELF file of this
 * processor. */
int ds_doctor_scan_object(const unsigned char *bytes, size_t n);
/* doctor_model.c: chat templates, sampling defaults and formats of the model that is meant */
ds_doctor_look ds_doctor_look_filters, ds_doctor_look_clock, ds_doctor_look_quantization, ds_doctor_look_defaults,
    ds_doctor_look_override, ds_doctor_look_version;

/* ---- output ----------------------------------------------------------------------------------- */

void ds_doctor_text(struct ds_buf *out, const struct ds_doctor *d);
int ds_doctor_json(struct ds_buf *out, const struct ds_doctor *d, struct ds_error *err);

#endif
