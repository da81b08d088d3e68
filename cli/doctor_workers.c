/* doctor_workers.c: several commands of one engine against each other: seeds, models, every setting that a rule reads, and what no
 * rule reads. */
#include "cli/doctor.h"

#include <stdio.h>
#include <string.h>

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
    return a && b ? ds_doctor_same_value(a, strlen(a), b) : a == b;
}

static int compare_seeds(struct ds_doctor *d, const struct ds_doctor_command *a,
                         const struct ds_doctor_command *b, struct ds_error *err)
{
    const struct ds_doctor_rule *r = rule_named("workers.seed", 0);
    const char *x = seed_of(a), *y = seed_of(b), *why;
    const size_t na = ds_doctor_number(d, a), nb = ds_doctor_number(d, b);
    for (int i = 0; i < 2; i++) {
        const struct ds_doctor_command *c = i ? b : a;
        const char *what = ds_doctor_value(c, rule_named("seed", c->engine)->source)
                               ? NULL
                               : ds_doctor_elsewhere(c, &why);
        if (what)
            return ds_doctor_say(d, r, NULL, DS_DOCTOR_UNKNOWN, err,
                                 "the seed of command %zu may be set by %s: %s",
                                 ds_doctor_number(d, c), what, why);
    }
    if (ds_doctor_is_open(x) || ds_doctor_is_open(y))
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

static int compare_models(struct ds_doctor *d, const struct ds_doctor_command *a,
                          const struct ds_doctor_command *b, int *differ, struct ds_error *err)
{
    const char *x = ds_doctor_model(a), *y = ds_doctor_model(b);
    if (same_text(x, y))
        return 0;
    *differ = 1;
    return ds_doctor_say(d, rule_named("workers.settings", 0), NULL, DS_DOCTOR_FOUND, err,
                         "commands %zu and %zu start other models: %s and %s",
                         ds_doctor_number(d, a), ds_doctor_number(d, b), x ? x : "none named",
                         y ? y : "none named");
}

/* Where a server listens, and what it calls itself. */
static int is_address(const char *word, size_t n)
{
    static const char *const names[] = {
        "--host", "--port", "--api-key",  "--served-model-name", "--alias",
        "-a",     "--uds",  "--log-file", "--node-rank",         "--nccl-port"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == n && memcmp(names[i], word, n) == 0)
            return 1;
    return 0;
}

/* Flag i of a command with its value; a flag that a rule reads, a value, an address is none of these. */
static int is_other(const struct ds_doctor_command *c, size_t i, const char **value)
{
    static const char *const models[] = {"--model",   "--model-path", "-m",
                                         "--hf-repo", "-hf",          "-hfr"};
    const char *w = c->words[i];
    const size_t n = strcspn(w, "=");
    int takes;
    if (!ds_doctor_looks_like_flag(w) || is_address(w, n) || ds_doctor_known_flag(c, w, n, &takes))
        return 0;
    for (size_t k = 0; k < sizeof models / sizeof models[0]; k++)
        if (strlen(models[k]) == n && memcmp(models[k], w, n) == 0)
            return 0;
    *value = w[n]                                                                ? w + n + 1
             : i + 1 < c->n_words && !ds_doctor_looks_like_flag(c->words[i + 1]) ? c->words[i + 1]
                                                                                 : "";
    return 1;
}

static int has(const struct ds_doctor_command *c, const char *word, const char *value)
{
    const size_t n = strcspn(word, "=");
    const char *its;
    for (size_t i = c->first; i < c->n_words; i++)
        if (strcspn(c->words[i], "=") == n && memcmp(c->words[i], word, n) == 0 &&
            is_other(c, i, &its) && same_text(its, value))
            return 1;
    return 0;
}

/* Flags of a that b has not, or with another value: no rule knows what they do. */
static void list_others(const struct ds_doctor_command *a, const struct ds_doctor_command *b,
                        struct ds_buf *out)
{
    const char *value;
    for (size_t i = a->first; i < a->n_words; i++) {
        if (!is_other(a, i, &value) || has(b, a->words[i], value))
            continue;
        ds_buf_printf(out, "%s%.*s", out->len ? ", " : "", (int)strcspn(a->words[i], "="),
                      a->words[i]);
    }
}

static int compare_others(struct ds_doctor *d, const struct ds_doctor_command *a,
                          const struct ds_doctor_command *b, int *differ, struct ds_error *err)
{
    struct ds_buf names = {0};
    int rc = 0;
    list_others(a, b, &names);
    list_others(b, a, &names);
    if (names.failed)
        rc = ds_fail(err, "out of memory for what was found");
    else if (names.len) {
        *differ = 1;
        rc = ds_doctor_say(d, rule_named("workers.settings", 0), NULL, DS_DOCTOR_UNKNOWN, err,
                           "commands %zu and %zu differ in %s: what that changes is not known",
                           ds_doctor_number(d, a), ds_doctor_number(d, b), names.data);
    }
    ds_buf_free(&names);
    return rc;
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
    if (compare_models(d, a, b, &differ, err) != 0 || compare_others(d, a, b, &differ, err) != 0)
        return -1;
    const char *why, *what = ds_doctor_elsewhere(a, &why);
    what = what ? what : ds_doctor_elsewhere(b, &why);
    if (differ)
        return 0;
    if (what)
        return ds_doctor_say(d, say, NULL, DS_DOCTOR_UNKNOWN, err,
                             "commands %zu and %zu differ in nothing that can be read here, but %s "
                             "may set more: %s",
                             na, nb, what, why);
    return ds_doctor_say(d, say, NULL, DS_DOCTOR_FIXED, err,
                         "commands %zu and %zu differ in nothing that is looked at here", na, nb);
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
