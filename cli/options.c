/* options.c: turns argv into values checked against the table. Owns the syntax of the command line
 * (--name VALUE, --name=VALUE, -n VALUE, -nVALUE, bundled letters, --no-NAME, --, options on both
 * sides of the verb); must not know what any option means.
 */
#include "cli/options.h"

#include "base/mem.h"
#include "base/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LIST = 256, MAX_NAMES = 128 };

/* ---- suggestions ----------------------------------------------------------------------------- */

/* The nearest of names[0..n-1], or the only one that begins with `word`; NULL. */
static const char *suggest(const char *word, const char *const *names, size_t n)
{
    size_t len = strlen(word), hits = 0, hit = 0;
    for (size_t i = 0; len >= 2 && i < n; i++)
        if (strncmp(names[i], word, len) == 0) {
            hits++;
            hit = i;
        }
    if (hits == 1)
        return names[hit];
    int best = ds_nearest(word, names, n);
    return best < 0 ? NULL : names[best];
}

/* "--no-batch", of an option that cannot be turned off, means that option, however near the name of
 * another one is. */
static const char *suggest_option(enum ds_verb_id verb, const char *word)
{
    const char *names[MAX_NAMES];
    const char *stem = strncmp(word, "no-", 3) == 0 ? word + 3 : "";
    const struct ds_option_def *d = ds_option_find(verb, stem, strlen(stem));
    if (d)
        return d->name;
    size_t n = 0;
    for (size_t i = 0; i < ds_option_count && n < MAX_NAMES; i++)
        if (ds_option_takes(verb, &ds_option_defs[i]))
            names[n++] = ds_option_defs[i].name;
    return suggest(word, names, n);
}

int ds_unknown_verb(const char *word, struct ds_error *err)
{
    const char *names[MAX_NAMES];
    size_t n = 0;
    for (size_t i = 0; i < ds_verb_count && n < MAX_NAMES; i++)
        names[n++] = ds_verbs[i].name;
    const char *near = suggest(word, names, n);
    ds_fail(err, "unknown verb '%.80s'", word);
    if (strpbrk(word, "./") && access(word, F_OK) == 0)
        return ds_hint(err,
                       "for a record: driftscope show %.80s; for a model: driftscope run -m %.80s",
                       word, word);
    return near ? ds_hint(err, "did you mean '%s'?", near)
                : ds_hint(err, "driftscope -h lists the verbs");
}

/* "run, lock": the verbs that take an option of that name. */
static const char *takers(const char *name, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < ds_verb_count; i++) {
        if (!ds_option_find(ds_verbs[i].id, name, strlen(name)))
            continue;
        int n = snprintf(out + at, size - at, "%s%s", at ? ", " : "", ds_verbs[i].name);
        if (n < 0 || (size_t)n >= size - at)
            break;
        at += (size_t)n;
    }
    return out;
}

/* What to say of an option that this verb does not take. `word` has no dashes. */
static int unknown_option(enum ds_verb_id verb, const char *word, const char *shown,
                          struct ds_error *err)
{
    const struct ds_verb_def *v = ds_verb_by_id(verb);
    char list[256];
    for (size_t i = 0; i < ds_option_count; i++) {
        const struct ds_option_def *d = &ds_option_defs[i];
        if (strcmp(d->name, word) != 0 && !(word[0] == d->letter && word[1] == '\0' && d->letter))
            continue;
        for (size_t j = 0; j < ds_verb_count; j++) {
            if (!ds_option_takes(ds_verbs[j].id, d))
                continue;
            if (!v) {
                ds_fail(err, "option '%.80s' comes before the verb", shown);
                return ds_hint(err, "write it after the verb: driftscope %s %.80s",
                               ds_verbs[j].name, shown);
            }
            ds_fail(err, "'%s' takes no option '%.80s'", v->name, shown);
            return ds_hint(err, "it belongs to %s", takers(d->name, list, sizeof list));
        }
    }
    const char *near = strlen(word) > 1 ? suggest_option(verb, word) : NULL;
    ds_fail(err, "unknown option '%.80s'", shown);
    if (near)
        return ds_hint(err, "did you mean '--%s'?", near);
    return ds_hint(err, "driftscope %s%s-h lists the options", v ? v->name : "", v ? " " : "");
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Plain decimal digits with an optional minus, nothing else. */
static int parse_int(const char *text, size_t n, int64_t *out)
{
    char copy[24];
    if (n == 0 || n >= sizeof copy || !(text[n - 1] >= '0' && text[n - 1] <= '9'))
        return -1;
    for (size_t i = 0; i < n; i++)
        if (!(text[i] >= '0' && text[i] <= '9') && !(i == 0 && text[i] == '-'))
            return -1;
    memcpy(copy, text, n);
    copy[n] = '\0';
    errno = 0;
    *out = strtoll(copy, NULL, 10);
    return errno ? -1 : 0;
}

static int parse_size(const char *text, size_t n, uint64_t *out)
{
    int shift = 0;
    int64_t value;
    switch (n ? text[n - 1] : '\0') {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    case 't':
    case 'T':
        shift = 40;
        break;
    default:
        break;
    }
    if (parse_int(text, n - (shift ? 1 : 0), &value) != 0 || value < 0 ||
        value > INT64_MAX >> shift)
        return -1;
    *out = (uint64_t)value << shift;
    return 0;
}

/* A word that ends in ":N" stands for any whole number of up to three digits there. */
static int fits_word(const char *word, size_t len, const char *text, size_t n)
{
    if (len < 2 || memcmp(word + len - 2, ":N", 2) != 0)
        return len == n && memcmp(word, text, n) == 0;
    const size_t before = len - 1;
    return n > before && n - before <= 3 && memcmp(word, text, before) == 0 &&
           strspn(text + before, "0123456789") >= n - before;
}

static int is_word(const char *words, const char *text, size_t n)
{
    for (const char *p = words; p && *p;) {
        size_t len = strcspn(p, "|");
        if (fits_word(p, len, text, n))
            return 1;
        p += len + (p[len] == '|');
    }
    return 0;
}

/* "first, middle, last or a whole number 0..7": what an option accepts. */
static void describe_values(const struct ds_option_def *d, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (const char *p = d->words; p && *p && n < size;) {
        size_t len = strcspn(p, "|");
        int last = p[len] != '|' && !(d->shape & DS_OPT_NUMBER);
        n += (size_t)snprintf(out + n, size - n, "%s%.*s",
                              p == d->words ? ""
                              : last        ? " or "
                                            : ", ",
                              (int)len, p);
        p += len + (p[len] == '|');
    }
    if (n < size && (d->shape & DS_OPT_NUMBER))
        snprintf(out + n, size - n, "%sa whole number %lld..%lld", n ? " or " : "",
                 (long long)d->min, (long long)d->max);
    else if (n < size && (d->shape & DS_OPT_SIZE))
        snprintf(out + n, size - n, "bytes, such as 512M or 2G");
}

static int bad_value(const struct ds_option_def *d, const char *text, size_t n,
                     struct ds_error *err)
{
    char space[256], allowed[256], word[64];
    const char *names[16];
    size_t n_names = 0;
    snprintf(space, sizeof space, "%s", d->words ? d->words : "");
    for (char *save = NULL, *p = strtok_r(space, "|", &save); p && n_names < 16;
         p = strtok_r(NULL, "|", &save))
        names[n_names++] = p;
    snprintf(word, sizeof word, "%.*s", (int)(n < 63 ? n : 63), text);
    const char *near = suggest(word, names, n_names);
    describe_values(d, allowed, sizeof allowed);
    ds_fail(err, "option '--%s': bad value '%.*s'", d->name, (int)(n < 80 ? n : 80), text);
    if (near)
        return ds_hint(err, "did you mean '%s'? it takes %s", near, allowed);
    return ds_hint(err, "it takes %s%s", allowed,
                   d->shape & DS_OPT_LIST ? ", separated by commas" : "");
}

static int check_one(const struct ds_option_def *d, const char *text, size_t n,
                     struct ds_error *err)
{
    int64_t number;
    uint64_t bytes;
    if (d->words && is_word(d->words, text, n))
        return 0;
    if ((d->shape & DS_OPT_NUMBER) && parse_int(text, n, &number) == 0 && number >= d->min &&
        number <= d->max)
        return 0;
    if ((d->shape & DS_OPT_SIZE) && parse_size(text, n, &bytes) == 0)
        return 0;
    if (!d->words && !(d->shape & (DS_OPT_NUMBER | DS_OPT_SIZE)) && n > 0)
        return 0;
    if (n == 0) {
        ds_fail(err, "option '--%s' has an empty value", d->name);
        return ds_hint(err, "it takes %s", d->arg);
    }
    return bad_value(d, text, n, err);
}

static int same_value(const struct ds_option_def *d, const char *a, size_t na, const char *b,
                      size_t nb)
{
    int64_t x, y;
    if ((d->shape & DS_OPT_NUMBER) && parse_int(a, na, &x) == 0 && parse_int(b, nb, &y) == 0)
        return x == y;
    return na == nb && memcmp(a, b, na) == 0;
}

static int check_list(const struct ds_option_def *d, const char *text, struct ds_error *err)
{
    const char *starts[MAX_LIST];
    size_t lens[MAX_LIST], n = 0;
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        if (check_one(d, p, len, err) != 0)
            return -1;
        if (d->shape & DS_OPT_DISTINCT) {
            if (n == MAX_LIST)
                return ds_fail(err, "option '--%s' has more than %d values", d->name, MAX_LIST);
            for (size_t i = 0; i < n; i++)
                if (same_value(d, starts[i], lens[i], p, len)) {
                    ds_fail(err, "option '--%s': value '%.*s' is there twice", d->name,
                            (int)(len < 80 ? len : 80), p);
                    return ds_hint(err, "to run everything again use --repeat");
                }
            starts[n] = p;
            lens[n++] = len;
        }
        p += len;
        if (*p == '\0')
            return 0;
    }
}

static int check_value(const struct ds_option_def *d, const char *text, struct ds_error *err)
{
    if (d->shape & DS_OPT_LIST)
        return check_list(d, text, err);
    /* An empty prompt is a text like any other; an empty file name is not. */
    if (text[0] == '\0' && (d->shape & DS_OPT_MANY))
        return 0;
    return check_one(d, text, strlen(text), err);
}

/* ---- the parse ------------------------------------------------------------------------------- */

static int keep(struct ds_options *o, const struct ds_option_def *d, const char *text, int off,
                struct ds_error *err)
{
    if (text && check_value(d, text, err) != 0)
        return -1;
    if (ds_grow(&o->values, &o->cap_values, o->n_values + 1, sizeof *o->values, "options", err) !=
        0)
        return -1;
    o->values[o->n_values++] = (struct ds_option_value){d, text, off};
    if (strcmp(d->name, "help") == 0)
        o->action = text || off ? o->action : DS_ACTION_HELP_LONG;
    if (strcmp(d->name, "version") == 0)
        o->action = DS_ACTION_VERSION;
    return 0;
}

/* A value that is spelled like an option of this verb is nearly always a forgotten value. */
static int looks_like_option(enum ds_verb_id verb, const char *word)
{
    if (word[0] != '-' || word[1] == '\0')
        return 0;
    if (word[1] == '-')
        return word[2] != '\0' && ds_option_find(verb, word + 2, strcspn(word + 2, "=")) != NULL;
    return word[2] == '\0' && ds_option_letter(verb, word[1]) != NULL;
}

/* Takes the value of `d` from the next argument. */
static int next_value(const struct ds_options *o, const struct ds_option_def *d, int argc,
                      char **argv, int *i, const char **value, struct ds_error *err)
{
    if (*i + 1 >= argc) {
        ds_fail(err, "option '--%s' needs a value", d->name);
        return ds_hint(err, "--%s %s: %s", d->name, d->arg, d->help);
    }
    if (looks_like_option(o->verb, argv[*i + 1])) {
        ds_fail(err, "option '--%s' needs a value, but '%.80s' follows", d->name, argv[*i + 1]);
        return ds_hint(err, "if that is the value, write --%s=%.80s", d->name, argv[*i + 1]);
    }
    *value = argv[++*i];
    return 0;
}

static int parse_long(struct ds_options *o, int argc, char **argv, int *i, struct ds_error *err)
{
    const char *name = argv[*i] + 2, *value = NULL;
    size_t n = strcspn(name, "=");
    int off = 0;
    const struct ds_option_def *d = ds_option_find(o->verb, name, n);
    if (!d && n > 3 && strncmp(name, "no-", 3) == 0) {
        d = ds_option_find(o->verb, name + 3, n - 3);
        off = d && !d->arg && strcmp(d->name, "help") != 0 && strcmp(d->name, "version") != 0;
        d = off ? d : NULL;
    }
    if (!d) {
        char word[MAX_NAMES], shown[MAX_NAMES + 2];
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word - 1 ? n : sizeof word - 1), name);
        snprintf(shown, sizeof shown, "--%s", word);
        return unknown_option(o->verb, word, shown, err);
    }
    if (name[n] == '=') {
        if (!d->arg)
            return ds_fail(err, "option '--%.*s' takes no value", (int)n, name);
        value = name + n + 1;
    } else if (d->arg && next_value(o, d, argc, argv, i, &value, err) != 0)
        return -1;
    return keep(o, d, value, off, err);
}

static int parse_letters(struct ds_options *o, int argc, char **argv, int *i, struct ds_error *err)
{
    /* "-model x" would be -m with the value "odel", and blamed for that. */
    const char *name = argv[*i] + 1;
    size_t n = strcspn(name, "=");
    if (n > 2 && ds_option_find(o->verb, name, n)) {
        ds_fail(err, "unknown option '-%.*s'", (int)n, name);
        return ds_hint(err, "did you mean '--%.*s'?", (int)n, name);
    }
    for (const char *p = argv[*i] + 1; *p; p++) {
        const struct ds_option_def *d = ds_option_letter(o->verb, *p);
        const char *value = NULL;
        if (!d) {
            int len = ds_utf8_len(p, strlen(p));
            char word[8], shown[8];
            snprintf(word, sizeof word, "%.*s", len > 0 ? len : 1, p);
            snprintf(shown, sizeof shown, "-%.5s", word);
            return unknown_option(o->verb, word, shown, err);
        }
        if (d->arg && p[1] != '\0')
            value = p + 1;
        else if (d->arg && next_value(o, d, argc, argv, i, &value, err) != 0)
            return -1;
        if (keep(o, d, value, 0, err) != 0)
            return -1;
        if (*p == 'h')
            o->action = DS_ACTION_HELP_SHORT;
        if (value || o->action != DS_ACTION_VERB)
            return 0;
    }
    return 0;
}

static int parse_word(struct ds_options *o, const char *word, struct ds_error *err)
{
    if (o->verb == DS_VERB_NONE) {
        const struct ds_verb_def *v = ds_verb_find(word);
        if (!v)
            return ds_unknown_verb(word, err);
        o->verb = v->id;
        return 0;
    }
    if (ds_grow(&o->operands, &o->cap_operands, o->n_operands + 1, sizeof *o->operands, "arguments",
                err) != 0)
        return -1;
    o->operands[o->n_operands++] = word;
    return 0;
}

static int check_operands(const struct ds_options *o, struct ds_error *err)
{
    const struct ds_verb_def *v = ds_verb_by_id(o->verb);
    if (!v) {
        ds_fail(err, "no verb given");
        return ds_hint(err, "driftscope -h lists the verbs");
    }
    if (o->n_operands < v->min_operands)
        ds_fail(err, "'%s' needs %s", v->name, v->operands);
    else if (o->n_operands > v->max_operands)
        ds_fail(err, "'%s' has no use for '%.80s'", v->name, o->operands[v->max_operands]);
    else
        return 0;
    return ds_hint(err, "usage: driftscope %s [OPTION...]%s%s", v->name, v->operands[0] ? " " : "",
                   v->operands);
}

/* --error-exit holds for errors in the options before it, too. */
static int find_error_exit(int argc, char **argv)
{
    static const char name[] = "--error-exit";
    int code = DS_EXIT_ERROR;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        int64_t n;
        const char *text = NULL;
        if (strncmp(argv[i], name, sizeof name - 1) != 0)
            continue;
        if (argv[i][sizeof name - 1] == '=')
            text = argv[i] + sizeof name;
        else if (argv[i][sizeof name - 1] == '\0' && i + 1 < argc)
            text = argv[i + 1];
        if (text && parse_int(text, strlen(text), &n) == 0 && n >= 2 && n <= 255)
            code = (int)n;
    }
    return code;
}

static const char *program = "driftscope";

void ds_cli_called(const char *argv0)
{
    if (argv0 && strchr(argv0, '/'))
        program = argv0;
}

void ds_cli_program(struct ds_buf *b)
{
    ds_buf_quote(b, program);
}

static int keep_command(struct ds_options *o, int argc, char **argv, struct ds_error *err)
{
    struct ds_buf b = {0};
    ds_buf_puts(&b, "driftscope");
    for (int i = 1; i < argc; i++) {
        ds_buf_puts(&b, " ");
        ds_buf_quote(&b, argv[i]);
    }
    if (b.failed) {
        ds_buf_free(&b);
        return ds_fail(err, "out of memory for the command line");
    }
    o->command = b.data;
    return 0;
}

int ds_options_parse(int argc, char **argv, struct ds_options *o, struct ds_error *err)
{
    int words_only = 0;
    memset(o, 0, sizeof *o);
    o->error_exit = find_error_exit(argc, argv);
    if (keep_command(o, argc, argv, err) != 0)
        return -1;
    for (int i = 1; i < argc && o->action == DS_ACTION_VERB; i++) {
        const char *arg = argv[i];
        int rc;
        if (!words_only && strcmp(arg, "--") == 0) {
            words_only = 1;
            o->n_plain = o->n_operands;
            continue;
        }
        if (!words_only && arg[0] == '-' && arg[1] == '-')
            rc = parse_long(o, argc, argv, &i, err);
        else if (!words_only && arg[0] == '-' && arg[1] != '\0')
            rc = parse_letters(o, argc, argv, &i, err);
        else
            rc = parse_word(o, arg, err);
        if (rc != 0)
            return -1;
    }
    /* -h may stand before the verb whose help is wanted. */
    for (int i = 1; o->action != DS_ACTION_VERB && o->verb == DS_VERB_NONE && i < argc; i++) {
        const struct ds_verb_def *v = ds_verb_find(argv[i]);
        o->verb = v ? v->id : DS_VERB_NONE;
    }
    if (!words_only)
        o->n_plain = o->n_operands;
    return o->action == DS_ACTION_VERB ? check_operands(o, err) : 0;
}

void ds_options_free(struct ds_options *o)
{
    free(o->values);
    free(o->operands);
    free(o->command);
    memset(o, 0, sizeof *o);
}
