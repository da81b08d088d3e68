/* option_values.c: how a verb asks for the value of an option. Owns the accessors of cli.h; must
 * not know the syntax of the command line. Asking for an option that the verb does not have is a
 * mistake in the program and ends it. */
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ds_option_def *need(const struct ds_options *o, const char *name)
{
    const struct ds_option_def *d = ds_option_find(o->verb, name, strlen(name));
    if (!d) {
        const struct ds_verb_def *v = ds_verb_by_id(o->verb);
        fprintf(stderr, "driftscope: internal error: verb '%s' has no option '--%s'\n",
                v ? v->name : "", name);
        abort();
    }
    return d;
}

static const struct ds_option_value *last(const struct ds_options *o, const struct ds_option_def *d)
{
    for (size_t i = o->n_values; i-- > 0;)
        if (o->values[i].def == d)
            return &o->values[i];
    return NULL;
}

const char *ds_opt_text(const struct ds_options *o, const char *name)
{
    const struct ds_option_def *d = need(o, name);
    const struct ds_option_value *v = last(o, d);
    return v ? v->text : d->dflt;
}

int ds_opt_given(const struct ds_options *o, const char *name)
{
    return last(o, need(o, name)) != NULL;
}

int ds_opt_flag(const struct ds_options *o, const char *name)
{
    const struct ds_option_value *v = last(o, need(o, name));
    return v && !v->off;
}

int ds_opt_int(const struct ds_options *o, const char *name, int64_t min, int64_t max, int64_t *out,
               struct ds_error *err)
{
    const char *text = ds_opt_text(o, name);
    char *end;
    if (!text)
        return ds_fail(err, "option '--%s' is needed", name);
    /* Digits alone were checked by the parse; defaults come from the table. */
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || value < min || value > max) {
        ds_fail(err, "option '--%s': bad value '%.80s'", name, text);
        return ds_hint(err, "it takes a whole number %lld..%lld", (long long)min, (long long)max);
    }
    *out = value;
    return 0;
}

int ds_opt_size(const struct ds_options *o, const char *name, uint64_t *out, struct ds_error *err)
{
    static const char letters[] = "KMGT";
    const char *text = ds_opt_text(o, name);
    char *end;
    if (!text)
        return ds_fail(err, "option '--%s' is needed", name);
    unsigned long long value = strtoull(text, &end, 10);
    int shift = 0;
    if (end != text && *end != '\0' && end[1] == '\0') {
        char upper = *end >= 'a' && *end <= 'z' ? (char)(*end - 'a' + 'A') : *end;
        const char *at = strchr(letters, upper);
        shift = at ? 10 * (int)(at - letters + 1) : -1;
    } else if (end == text || *end != '\0')
        shift = -1;
    if (shift < 0 || text[0] == '-' || value > (unsigned long long)INT64_MAX >> shift) {
        ds_fail(err, "option '--%s': bad value '%.80s'", name, text);
        return ds_hint(err, "it takes bytes, such as 512M or 2G");
    }
    *out = (uint64_t)value << shift;
    return 0;
}

size_t ds_opt_count(const struct ds_options *o, const char *name)
{
    const struct ds_option_def *d = need(o, name);
    size_t n = 0;
    for (size_t i = 0; i < o->n_values; i++)
        n += o->values[i].def == d;
    return n;
}

const char *ds_opt_at(const struct ds_options *o, const char *name, size_t i)
{
    const struct ds_option_def *d = need(o, name);
    for (size_t j = 0; j < o->n_values; j++)
        if (o->values[j].def == d && i-- == 0)
            return o->values[j].text;
    return NULL;
}

size_t ds_opt_operands(const struct ds_options *o)
{
    return o->n_operands;
}

size_t ds_opt_operands_plain(const struct ds_options *o)
{
    return o->n_plain;
}

const char *ds_opt_operand(const struct ds_options *o, size_t i)
{
    return i < o->n_operands ? o->operands[i] : NULL;
}

const char *ds_opt_command(const struct ds_options *o)
{
    return o->command;
}
