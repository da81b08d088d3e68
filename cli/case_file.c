/* case_file.c: reads cases. A line is a comment (#), a word of the case (case, title, needs),
 * options for the commands that follow (with), a command ($), or, below a command, what it must say. */
#include "cli/case_file.h"

#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_LINE = 4096 };

struct reader {
    const char *path;
    int line;
    struct ds_case_step with; /* options of every `run` that does not give them itself */
    struct ds_case **cases;
    size_t *n;
    struct ds_error *err;
};

static int wrong(const struct reader *r, const char *what)
{
    return ds_fail(r->err, "%s, line %d: %s", r->path, r->line, what);
}

static char *copy(const char *text, size_t n, struct ds_error *err)
{
    char *s = ds_calloc(n + 1, 1, "case", err);
    if (s)
        memcpy(s, text, n);
    return s;
}

static char *rest(const char *text, struct ds_error *err)
{
    while (isspace((unsigned char)*text))
        text++;
    return copy(text, strlen(text), err);
}

static void step_free(struct ds_case_step *s)
{
    for (size_t i = 0; i < s->argc; i++)
        free(s->argv[i]);
    for (size_t i = 0; i < s->n_expects; i++) {
        free(s->expects[i].path);
        free(s->expects[i].value);
    }
    free(s->argv);
    free(s->expects);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* The next word of a command; '...' and "..." keep blanks. 1: one was read, 0: none is left. */
static int next_word(const char **at, char *word)
{
    const char *p = *at;
    while (isspace((unsigned char)*p))
        p++;
    if (!*p)
        return 0;
    char quote = 0;
    for (; *p && (quote || !isspace((unsigned char)*p)); p++) {
        if (quote ? *p == quote : *p == '\'' || *p == '"')
            quote = quote ? 0 : *p;
        else
            *word++ = *p;
    }
    *word = '\0';
    *at = p;
    return quote ? -1 : 1;
}

static int add_word(struct ds_case_step *s, const char *word, struct ds_error *err)
{
    if (ds_grow_by_one(&s->argv, s->argc, sizeof *s->argv, "case", err) != 0)
        return -1;
    s->argv[s->argc] = copy(word, strlen(word), err);
    return s->argv[s->argc++] ? 0 : -1;
}

static int read_words(struct reader *r, struct ds_case_step *s, const char *text)
{
    char word[LONGEST_LINE];
    int got;
    while ((got = next_word(&text, word)) == 1)
        if (add_word(s, word, r->err) != 0)
            return -1;
    return got < 0 ? wrong(r, "a quote is not closed") : 0;
}

static int gives(const struct ds_case_step *s, const char *option)
{
    for (size_t i = 0; i < s->argc; i++)
        if (strcmp(s->argv[i], option) == 0)
            return 1;
    return 0;
}

/* The options of `with` that the command does not give. */
static int add_with(struct reader *r, struct ds_case_step *s)
{
    size_t own = s->argc;
    int skip = 0;
    for (size_t i = 0; i < r->with.argc; i++) {
        const char *word = r->with.argv[i];
        if (word[0] == '-') {
            struct ds_case_step given = {.argv = s->argv, .argc = own};
            skip = gives(&given, word);
        }
        if (!skip && add_word(s, word, r->err) != 0)
            return -1;
    }
    return 0;
}

static int read_command(struct reader *r, struct ds_case *c, const char *text)
{
    if (ds_grow_by_one(&c->steps, c->n_steps, sizeof *c->steps, "case", r->err) != 0)
        return -1;
    struct ds_case_step *s = &c->steps[c->n_steps++];
    memset(s, 0, sizeof *s);
    s->line = r->line;
    if (read_words(r, s, text) != 0)
        return -1;
    size_t verb = ds_case_verb(s);
    if (verb == s->argc)
        return wrong(r, "a command without a verb");
    return strcmp(s->argv[verb], "run") == 0 ? add_with(r, s) : 0;
}

/* ---- expectations ---------------------------------------------------------------------------- */

static int read_number(struct reader *r, const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    while (isspace((unsigned char)*end))
        end++;
    return end == text || *end ? wrong(r, "a number is missing") : 0;
}

static const struct {
    const char *word;
    enum ds_expect_kind kind;
} relations[] = {{"is", DS_EXPECT_IS},      {"not", DS_EXPECT_NOT},
                 {"has", DS_EXPECT_HAS},    {">=", DS_EXPECT_AT_LEAST},
                 {"<=", DS_EXPECT_AT_MOST}, {"absent", DS_EXPECT_ABSENT}};

/* PATH RELATION [VALUE] */
static int read_relation(struct reader *r, struct ds_expect *e, const char *text)
{
    size_t path = strcspn(text, " \t");
    const char *word = text + path + strspn(text + path, " \t");
    size_t n = strcspn(word, " \t");
    for (size_t i = 0; i < sizeof relations / sizeof relations[0]; i++) {
        if (n != strlen(relations[i].word) || strncmp(word, relations[i].word, n) != 0)
            continue;
        e->kind = relations[i].kind;
        e->path = copy(text, path, r->err);
        e->value = rest(word + n, r->err);
        if (!e->path || !e->value)
            return -1;
        size_t len = strlen(e->value);
        if (e->kind == DS_EXPECT_HAS && len >= 2 && e->value[0] == '"' &&
            e->value[len - 1] == '"') {
            memmove(e->value, e->value + 1, len - 2);
            e->value[len - 2] = '\0';
        }
        if ((e->kind == DS_EXPECT_ABSENT) != (e->value[0] == '\0'))
            return wrong(r, e->value[0] ? "'absent' takes no value" : "a value is missing");
        if (e->kind == DS_EXPECT_AT_LEAST || e->kind == DS_EXPECT_AT_MOST)
            return read_number(r, e->value, &e->number);
        return 0;
    }
    return wrong(r, "not known: a relation is one of is, not, has, >=, <=, absent");
}

static int read_expect(struct reader *r, struct ds_case *c, const char *text)
{
    if (c->n_steps == 0)
        return wrong(r, "an expectation before the first command");
    struct ds_case_step *s = &c->steps[c->n_steps - 1];
    if (ds_grow_by_one(&s->expects, s->n_expects, sizeof *s->expects, "case", r->err) != 0)
        return -1;
    struct ds_expect *e = &s->expects[s->n_expects++];
    memset(e, 0, sizeof *e);
    e->line = r->line;
    if (strncmp(text, "exit ", 5) == 0) {
        e->kind = DS_EXPECT_EXIT;
        return read_number(r, text + 5, &e->number);
    }
    if (strncmp(text, "blames", 6) == 0 && (!text[6] || isspace((unsigned char)text[6]))) {
        e->kind = DS_EXPECT_BLAMES;
        e->value = rest(text + 6, r->err);
        return e->value ? 0 : -1;
    }
    return read_relation(r, e, text);
}

/* ---- the file -------------------------------------------------------------------------------- */

static int begin_case(struct reader *r, const char *id)
{
    if (ds_grow_by_one(r->cases, *r->n, sizeof **r->cases, "cases", r->err) != 0)
        return -1;
    struct ds_case *c = &(*r->cases)[(*r->n)++];
    memset(c, 0, sizeof *c);
    c->id = rest(id, r->err);
    c->title = copy("", 0, r->err);
    return !c->id || !c->title ? -1 : c->id[0] ? 0 : wrong(r, "a case without a name");
}

static int set_word(struct reader *r, char **word, const char *text)
{
    char *s = rest(text, r->err);
    if (!s)
        return -1;
    free(*word);
    *word = s;
    return 0;
}

static int read_line(struct reader *r, char *text)
{
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    while (isspace((unsigned char)*text))
        text++;
    if (!*text || *text == '#')
        return 0;
    if (strncmp(text, "with ", 5) == 0) {
        step_free(&r->with);
        memset(&r->with, 0, sizeof r->with);
        return read_words(r, &r->with, text + 5);
    }
    if (strncmp(text, "case ", 5) == 0)
        return begin_case(r, text + 5);
    if (*r->n == 0)
        return wrong(r, "a file begins with 'case NAME'");
    struct ds_case *c = &(*r->cases)[*r->n - 1];
    if (strncmp(text, "title ", 6) == 0)
        return set_word(r, &c->title, text + 6);
    if (strncmp(text, "needs ", 6) == 0)
        return set_word(r, &c->needs, text + 6);
    if (*text == '$')
        return read_command(r, c, text + 1);
    return read_expect(r, c, text);
}

/* A line that ends in a backslash goes on in the next. -1: the file ended. */
static int gather(FILE *f, struct reader *r, char *line, size_t size)
{
    size_t n = 0;
    for (;;) {
        if (!fgets(line + n, (int)(size - n), f))
            return n ? 1 : -1;
        r->line++;
        n = strlen(line);
        if (n + 1 >= size)
            return wrong(r, "a line is too long"), 0;
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = '\0';
        if (!n || line[n - 1] != '\\')
            return 1;
        line[n - 1] = ' ';
    }
}

int ds_case_read(const char *path, struct ds_case **cases, size_t *n, struct ds_error *err)
{
    struct reader r = {.path = path, .cases = cases, .n = n, .err = err};
    size_t before = *n;
    char line[LONGEST_LINE];
    FILE *f = fopen(path, "r");
    if (!f)
        return ds_fail(err, "cannot read %s: %s", path, strerror(errno));
    int got = 0, rc = 0;
    while (rc == 0 && (got = gather(f, &r, line, sizeof line)) == 1)
        rc = read_line(&r, line);
    if (got == 0)
        rc = -1;
    if (rc == 0 && ferror(f))
        rc = ds_fail(err, "cannot read %s: %s", path, strerror(errno));
    fclose(f);
    step_free(&r.with);
    for (size_t i = before; rc == 0 && i < *n; i++)
        if ((*cases)[i].n_steps == 0)
            rc = ds_fail(err, "%s: case %s has no command", path, (*cases)[i].id);
    return rc;
}

void ds_cases_free(struct ds_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < cases[i].n_steps; k++)
            step_free(&cases[i].steps[k]);
        free(cases[i].steps);
        free(cases[i].id);
        free(cases[i].title);
        free(cases[i].needs);
    }
    free(cases);
}

size_t ds_case_verb(const struct ds_case_step *s)
{
    size_t i = 0;
    while (i < s->argc && strchr(s->argv[i], '=') && s->argv[i][0] != '-')
        i++;
    return i;
}

int ds_case_has_choice(const char *text)
{
    const char *open = strchr(text, '{'), *bar = open ? strchr(open, '|') : NULL;
    return bar && strchr(bar, '}');
}

char *ds_case_argument(const char *text, int healthy)
{
    char *out = ds_calloc(strlen(text) + 1, 1, "case", NULL), *to = out;
    while (out && *text) {
        const char *bar = *text == '{' ? strchr(text, '|') : NULL,
                   *close = bar ? strchr(bar, '}') : NULL;
        if (!close) {
            *to++ = *text++;
            continue;
        }
        const char *from = healthy ? bar + 1 : text + 1, *until = healthy ? close : bar;
        memcpy(to, from, (size_t)(until - from));
        to += until - from;
        text = close + 1;
    }
    return out;
}
