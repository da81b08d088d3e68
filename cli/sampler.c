/* sampler.c: the sampler of `run`, `storm` and `replay`: from options, into a record's options, and back. What
 * the numbers mean is the kernels' (kernels/PINNED.md), whether they mean something the engine's. */
#include "cli/run_plan_internal.h"

#include "cli/options.h"
#include "engine/sampler.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    const char *option, *kept; /* on the command line; in the record */
    size_t at;
    int whole; /* int32_t; -1: the seed; 0: float */
};
static const struct entry entries[] = {
    {"temperature", "temperature", offsetof(struct ds_sampler, temperature), 0},
    {"top-k", "top_k", offsetof(struct ds_sampler, top_k), 1},
    {"top-p", "top_p", offsetof(struct ds_sampler, top_p), 0},
    {"min-p", "min_p", offsetof(struct ds_sampler, min_p), 0},
    {"repetition-penalty", "repetition_penalty", offsetof(struct ds_sampler, repetition_penalty),
     0},
    {"sample-seed", "sample_seed", offsetof(struct ds_sampler, seed), -1},
};
enum { ENTRIES = sizeof entries / sizeof entries[0] };

/* 0, or -1 where the text is no number of that kind. */
static int parse(const struct entry *e, const char *text, struct ds_sampler *s)
{
    char *to = (char *)s + e->at, *end;
    if (e->whole) {
        const long long v = strtoll(text, &end, 10);
        const int fits = v >= 0 && (e->whole < 0 || v <= INT32_MAX);
        const int32_t small = (int32_t)v;
        const uint64_t large = (uint64_t)v;
        if (end == text || *end || !fits)
            return -1;
        memcpy(to, e->whole < 0 ? (const void *)&large : &small,
               e->whole < 0 ? sizeof large : sizeof small);
        return 0;
    }
    const float v = strtof(text, &end);
    if (end == text || *end || !isfinite(v) || (v == 0 && strtod(text, NULL) != 0))
        return -1; /* 1e-60 is no f32, and 0 means something else */
    memcpy(to, &v, sizeof v);
    return 0;
}

int ds_cli_sampler(const struct ds_options *o, struct ds_sampler *s, struct ds_error *err)
{
    if (s->repetition_penalty == 0.0f) /* nobody filled it */
        *s = DS_SAMPLER_DEFAULT;
    for (size_t i = 0; i < ENTRIES; i++) {
        const struct entry *e = &entries[i];
        const char *text = ds_option_find(o->verb, e->option, strlen(e->option))
                               ? ds_opt_text(o, e->option)
                               : NULL;
        if (text && parse(e, text, s) != 0)
            return ds_fail(err, "--%s '%.40s' is no number that it could be", e->option, text);
    }
    /* What does nothing at temperature 0 is asked for all the same: a number that could not be is a mistake. */
    struct ds_sampler drawing = *s;
    if (s->temperature == 0.0f)
        drawing.temperature = 1;
    return ds_sampler_check(&drawing, NULL, err);
}

int ds_sampler_keep(struct ds_header *h, const struct ds_sampler *given, struct ds_error *err)
{
    /* nobody filled it: the largest logit */
    const struct ds_sampler none = DS_SAMPLER_DEFAULT,
                            *s = given->repetition_penalty == 0.0f ? &none : given;
    for (size_t i = 0; i < ENTRIES; i++) {
        const struct entry *e = &entries[i];
        const char *from = (const char *)s + e->at;
        char text[40];
        float f;
        int32_t n;
        uint64_t seed;
        if (e->whole < 0) {
            memcpy(&seed, from, sizeof seed);
            snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
        } else if (e->whole) {
            memcpy(&n, from, sizeof n);
            snprintf(text, sizeof text, "%d", n);
        } else {
            memcpy(&f, from, sizeof f);
            /* the shortest text that is read as the same number: 0.8 and not 0.800000012 */
            for (int digits = 1; digits < 10; digits++) {
                snprintf(text, sizeof text, "%.*g", digits, (double)f);
                if (strtof(text, NULL) == f)
                    break;
            }
        }
        if (ds_plan_add_option(h, e->kept, strdup(text), err) != 0)
            return -1;
    }
    return 0;
}

int ds_sampler_recorded(const struct ds_header *h, struct ds_sampler *s, struct ds_error *err)
{
    *s = DS_SAMPLER_DEFAULT;
    for (size_t i = 0; i < h->n_options; i++)
        for (size_t k = 0; k < ENTRIES; k++)
            if (strcmp(h->options[i].name, entries[k].kept) == 0 &&
                parse(&entries[k], h->options[i].value, s) != 0)
                return ds_fail(err, "the record's option %s is no number that it could be",
                               entries[k].kept);
    return ds_sampler_check(s, NULL, err) != 0 ? ds_prefix(err, "the record has") : 0;
}

int ds_sampler_fits(const struct ds_header *h, const struct ds_sampler *s, struct ds_error *err)
{
    for (size_t a = 0; a < h->n_arms && s->temperature > 0.0f; a++) {
        struct ds_setting arm;
        if (ds_setting_parse(h->arms[a].values, &arm, err) != 0 ||
            ds_sampler_check(s, &arm.kernels, err) != 0)
            return -1;
    }
    return 0;
}
