/* doctor_judge.c: the rules of doctor_rules.c against one command or this machine. Owns how a value is found and fits a
 * pattern; knows no single rule. */
#include "cli/doctor.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *ds_doctor_status_name(int status)
{
    static const char *const names[] = {"found", "cannot-tell", "fixed"};
    return names[status];
}

size_t ds_doctor_number(const struct ds_doctor *d, const struct ds_doctor_command *c)
{
    return c ? (size_t)(c - d->commands.at) + 1 : 0;
}

int ds_doctor_say(struct ds_doctor *d, const struct ds_doctor_rule *r,
                  const struct ds_doctor_command *c, int status, struct ds_error *err,
                  const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    if (!text ||
        ds_grow(&d->lines, &d->cap_lines, d->n_lines + 1, sizeof *d->lines, "lines", err) != 0) {
        free(text);
        return ds_fail(err, "out of memory for what was found");
    }
    d->lines[d->n_lines++] =
        (struct ds_doctor_line){.check = r->check,
                                .status = status,
                                .command = ds_doctor_number(d, c),
                                .text = text,
                                .remedy = status == DS_DOCTOR_FIXED ? "" : r->remedy};
    return 0;
}

void ds_doctor_free(struct ds_doctor *d)
{
    for (size_t i = 0; i < d->n_lines; i++)
        free(d->lines[i].text);
    free(d->lines);
    ds_doctor_commands_free(&d->commands);
    memset(d, 0, sizeof *d);
}

/* ---- values ----------------------------------------------------------------------------------- */

int ds_doctor_same_value(const char *a, size_t na, const char *b)
{
    char copy[64], *end_a, *end_b;
    if (na == strlen(b) && strncasecmp(a, b, na) == 0)
        return 1;
    if (na == 0 || na >= sizeof copy || !*b)
        return 0;
    snprintf(copy, sizeof copy, "%.*s", (int)na, a);
    const double x = strtod(copy, &end_a), y = strtod(b, &end_b);
    return !*end_a && !*end_b && fabs(x - y) <= 0;
}

int ds_doctor_fits(const char *pattern, const char *value)
{
    if (strcmp(pattern, "unset") == 0)
        return value == NULL;
    if (!value)
        return 0;
    if (pattern[0] == '<') {
        char *end;
        const double x = strtod(value, &end);
        return end != value && !*end && x < strtod(pattern + 1, NULL);
    }
    if (pattern[0] == '~')
        return strcasestr(value, pattern + 1) != NULL;
    if (pattern[0] != '=')
        return 1;
    for (const char *p = pattern + 1;; p++) {
        const size_t n = strcspn(p, "|");
        if (ds_doctor_same_value(p, n, value))
            return 1;
        p += n;
        if (*p == '\0')
            return 0;
    }
}

const char *ds_doctor_value(const struct ds_doctor_command *c, const char *source)
{
    char one[512];
    for (const char *p = source; *p; p += strspn(p, " ")) {
        const size_t n = strcspn(p, " ");
        const char *value = NULL;
        snprintf(one, sizeof one, "%.*s", (int)n, p);
        if (strncmp(one, "env:", 4) == 0)
            value = ds_doctor_variable(c, one + 4);
        else if (c)
            value = ds_doctor_flag(c, one);
        if (value)
            return value;
        p += n;
    }
    return NULL;
}

int ds_doctor_is_open(const char *value)
{
    return value && (strchr(value, '$') || strchr(value, '`'));
}

/* ---- one rule --------------------------------------------------------------------------------- */

static unsigned scope_of(const struct ds_doctor_command *c)
{
    return c ? c->engine : DS_DOCTOR_MACHINE;
}

static const char *settings_file(const struct ds_doctor_command *c)
{
    return c && (c->engine & DS_DOCTOR_GPU_ENGINES) && c->config != DS_DOCTOR_CONFIG_READ
               ? ds_doctor_flag(c, "--config=")
               : NULL;
}

const char *ds_doctor_elsewhere(const struct ds_doctor_command *c, const char **why)
{
    const char *file = settings_file(c), *preset = c ? ds_doctor_preset(c) : NULL,
               *open = c ? ds_doctor_open_word(c) : NULL;
    *why = file && c->config == DS_DOCTOR_CONFIG_PART ? "not all of it was understood"
           : file                                     ? "it was not read"
           : preset                                   ? "it stands for settings of its own"
                                                      : "what it is here is not known";
    return file ? file : preset ? preset : open;
}

/* A setting that the command does not have, while it names something that may have it. */
static const char *set_elsewhere(const struct ds_doctor_command *c, const char *source,
                                 const char **why)
{
    if (!c || !source || ds_doctor_value(c, source))
        return NULL;
    const char *what = strncmp(source, "env:", 4) == 0 ? NULL : ds_doctor_elsewhere(c, why);
    if (what || !strstr(source, "env:") || (!c->env_file && !c->sourced))
        return what;
    *why = "it was not read";
    return c->env_file ? "the container's --env-file" : c->sourced;
}

static const struct ds_doctor_guard *guarded(const struct ds_doctor_rule *r,
                                             const struct ds_doctor_command *c)
{
    for (size_t i = 0; r->unless && i < ds_doctor_guard_count; i++) {
        const struct ds_doctor_guard *g = &ds_doctor_guards[i];
        const char *at = strstr(r->unless, g->name), *why;
        if (at && (g->scope & scope_of(c)) && !set_elsewhere(c, g->source, &why) &&
            (g->holds ? g->holds(c) : ds_doctor_fits(g->pattern, ds_doctor_value(c, g->source))))
            return g;
    }
    return NULL;
}

/* A variable that would make the rule's findings harmless, and that a file which was not read may set. */
static const char *guard_elsewhere(const struct ds_doctor_rule *r,
                                   const struct ds_doctor_command *c, const char **file)
{
    for (size_t i = 0; r->unless && i < ds_doctor_guard_count; i++) {
        const struct ds_doctor_guard *g = &ds_doctor_guards[i];
        const char *why;
        if (strstr(r->unless, g->name) && (g->scope & scope_of(c)) && g->source &&
            strncmp(g->source, "env:", 4) == 0 && (*file = set_elsewhere(c, g->source, &why)))
            return g->source + 4;
    }
    return NULL;
}

static int say_outcome(struct ds_doctor *d, const struct ds_doctor_rule *r,
                       const struct ds_doctor_command *c, const struct ds_doctor_outcome *o,
                       const char *value, struct ds_error *err)
{
    const char *hole = strstr(o->text, "{}");
    if (!hole)
        return ds_doctor_say(d, r, c, o->status, err, "%s", o->text);
    if (value && !*value)
        return ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err, "it is given without a value");
    return ds_doctor_say(d, r, c, o->status, err, "%.*s%s%s", (int)(hole - o->text), o->text,
                         value ? value : "", hole + 2);
}

int ds_doctor_apply(struct ds_doctor *d, const struct ds_doctor_rule *r,
                    const struct ds_doctor_command *c, struct ds_error *err)
{
    const char *value = ds_doctor_value(c, r->source);
    const struct ds_doctor_guard *g = guarded(r, c);
    const struct ds_doctor_outcome *o = NULL;
    for (int i = 0; !o && i < DS_DOCTOR_MOST_OUTCOMES && r->outcomes[i].pattern; i++)
        if (ds_doctor_fits(r->outcomes[i].pattern, value))
            o = &r->outcomes[i];
    if (g && (!o || o->status != DS_DOCTOR_FIXED))
        return ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err, "%s", g->text);
    const char *why, *what = set_elsewhere(c, r->source, &why);
    if (what)
        return ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err, "%s may set it: %s", what, why);
    const char *file,
        *guard = o && o->status == DS_DOCTOR_FOUND ? guard_elsewhere(r, c, &file) : NULL;
    if (guard)
        return ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err,
                             "harmless if %s sets %s, which was not read; else found", file, guard);
    if (ds_doctor_is_open(value))
        return ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err, "what %s is here is not known",
                             value);
    return o       ? say_outcome(d, r, c, o, value, err)
           : value ? ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err, "'%s' is not understood", value)
                   : 0;
}

/* What a function looked for and did not find in the command may be in its file of settings. */
static int look(struct ds_doctor *d, const struct ds_doctor_rule *r,
                const struct ds_doctor_command *c, struct ds_error *err)
{
    const size_t first = d->n_lines;
    const char *why, *what = ds_doctor_elsewhere(c, &why);
    if (r->look(d, r, c, err) != 0)
        return -1;
    for (size_t i = first; what && i < d->n_lines; i++) {
        struct ds_doctor_line *x = &d->lines[i];
        char *text = NULL;
        if (x->status != DS_DOCTOR_FIXED)
            continue;
        if (asprintf(&text, "%s; but %s may say otherwise: %s", x->text, what, why) < 0)
            return ds_fail(err, "out of memory for what was found");
        free(x->text);
        x->text = text;
        x->status = DS_DOCTOR_UNKNOWN;
        x->remedy = r->remedy;
    }
    return 0;
}

int ds_doctor_judge(struct ds_doctor *d, const struct ds_doctor_command *c, struct ds_error *err)
{
    for (size_t i = 0; i < ds_doctor_rule_count; i++) {
        const struct ds_doctor_rule *r = &ds_doctor_rules[i];
        if ((r->scope & scope_of(c)) &&
            (r->look ? look(d, r, c, err) : ds_doctor_apply(d, r, c, err)) != 0)
            return -1;
    }
    return 0;
}
