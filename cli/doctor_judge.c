/* doctor_judge.c: the rules of doctor_rules.c against one command, against this machine, and several commands
 * against each other. Owns how a value is found and fits a pattern; knows no single rule but the two that
 * compare workers. */
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

static int same_value(const char *a, size_t na, const char *b)
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
        if (same_value(p, n, value))
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

/* Part of a value that only the shell which starts the command knows. */
static int is_open(const char *value)
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

static const char *not_known(const struct ds_doctor_command *c)
{
    return c->config == DS_DOCTOR_CONFIG_PART ? "not all of it was understood" : "it was not read";
}

/* A flag that the command does not have, while it names a file that may have it. */
static int may_be_elsewhere(const struct ds_doctor_command *c, const char *source)
{
    return settings_file(c) && source && strncmp(source, "env:", 4) != 0 &&
           !ds_doctor_value(c, source);
}

static const struct ds_doctor_guard *guarded(const struct ds_doctor_rule *r,
                                             const struct ds_doctor_command *c)
{
    for (size_t i = 0; r->unless && i < ds_doctor_guard_count; i++) {
        const struct ds_doctor_guard *g = &ds_doctor_guards[i];
        const char *at = strstr(r->unless, g->name);
        if (at && (g->scope & scope_of(c)) && !may_be_elsewhere(c, g->source) &&
            (g->holds ? g->holds(c) : ds_doctor_fits(g->pattern, ds_doctor_value(c, g->source))))
            return g;
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
    if (may_be_elsewhere(c, r->source))
        return ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err, "%s may set it: %s", settings_file(c),
                             not_known(c));
    if (is_open(value))
        return ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err, "what %s is here is not known",
                             value);
    return o ? say_outcome(d, r, c, o, value, err) : 0;
}

/* What a function looked for and did not find in the command may be in its file of settings. */
static int look(struct ds_doctor *d, const struct ds_doctor_rule *r,
                const struct ds_doctor_command *c, struct ds_error *err)
{
    const size_t first = d->n_lines;
    if (r->look(d, r, c, err) != 0)
        return -1;
    for (size_t i = first; settings_file(c) && i < d->n_lines; i++) {
        struct ds_doctor_line *x = &d->lines[i];
        char *text = NULL;
        if (x->status != DS_DOCTOR_FIXED)
            continue;
        if (asprintf(&text, "%s; but %s may say otherwise: %s", x->text, settings_file(c),
                     not_known(c)) < 0)
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

/* ---- several workers -------------------------------------------------------------------------- */

static const struct ds_doctor_rule *rule_named(const char *check, unsigned scope)
{
    for (size_t i = 0; i < ds_doctor_rule_count; i++)
        if (strcmp(ds_doctor_rules[i].check, check) == 0 &&
            (scope == 0 || (ds_doctor_rules[i].scope & scope)))
            return &ds_doctor_rules[i];
    return NULL;
}

/* The seed that a command gives its engine; NULL: another one at every start. */
static const char *seed_of(const struct ds_doctor_command *c)
{
    const char *value = ds_doctor_value(c, rule_named("seed", c->engine)->source);
    if (!value)
        return c->engine == DS_DOCTOR_VLLM ? "0" : NULL;
    return (c->engine & DS_DOCTOR_LLAMA) && ds_doctor_fits("=-1|4294967295", value) ? NULL : value;
}

static int same_text(const char *a, const char *b)
{
    return a && b ? same_value(a, strlen(a), b) : a == b;
}

static int compare_seeds(struct ds_doctor *d, const struct ds_doctor_command *a,
                         const struct ds_doctor_command *b, struct ds_error *err)
{
    const struct ds_doctor_rule *r = rule_named("workers.seed", 0);
    const char *x = seed_of(a), *y = seed_of(b);
    const size_t na = ds_doctor_number(d, a), nb = ds_doctor_number(d, b);
    if (is_open(x) || is_open(y))
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_UNKNOWN, err,
                             "commands %zu and %zu have the seeds %s and %s", na, nb,
                             x ? x : "that are drawn", y ? y : "that are drawn");
    if (!x || !y)
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_FOUND, err,
                             "command %zu draws its seed, so that command %zu has another",
                             x ? nb : na, x ? na : nb);
    if (!same_text(x, y))
        return ds_doctor_say(d, r, NULL, DS_DOCTOR_FOUND, err,
                             "commands %zu and %zu have the seeds %s and %s", na, nb, x, y);
    return ds_doctor_say(d, r, NULL, DS_DOCTOR_FIXED, err, "commands %zu and %zu have the seed %s",
                         na, nb, x);
}

static int compare_settings(struct ds_doctor *d, const struct ds_doctor_command *a,
                            const struct ds_doctor_command *b, struct ds_error *err)
{
    const struct ds_doctor_rule *say = rule_named("workers.settings", 0);
    const size_t na = ds_doctor_number(d, a), nb = ds_doctor_number(d, b);
    int differ = 0;
    for (size_t i = 0; i < ds_doctor_rule_count; i++) {
        const struct ds_doctor_rule *r = &ds_doctor_rules[i];
        if (!r->source || !(r->scope & a->engine) || strcmp(r->check, "seed") == 0)
            continue;
        const char *x = ds_doctor_value(a, r->source), *y = ds_doctor_value(b, r->source);
        if (same_text(x, y))
            continue;
        differ = 1;
        if (ds_doctor_say(d, say, NULL, DS_DOCTOR_FOUND, err,
                          "commands %zu and %zu differ in %s: %s and %s", na, nb, r->check,
                          x ? x : "the default", y ? y : "the default") != 0)
            return -1;
    }
    return differ ? 0
                  : ds_doctor_say(d, say, NULL, DS_DOCTOR_FIXED, err,
                                  "commands %zu and %zu differ in nothing that is looked at here",
                                  na, nb);
}

int ds_doctor_compare(struct ds_doctor *d, struct ds_error *err)
{
    for (size_t i = 1; i < d->commands.n; i++)
        for (size_t k = 0; k < i; k++) {
            const struct ds_doctor_command *a = &d->commands.at[k], *b = &d->commands.at[i];
            if (a->engine != b->engine)
                continue;
            if (compare_seeds(d, a, b, err) != 0 || compare_settings(d, a, b, err) != 0)
                return -1;
            break; /* every worker against the first of its engine */
        }
    return 0;
}
