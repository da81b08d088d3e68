/* diff_filter.c: which sites count in a diff: the texts of `only` and `ignore`. Owns their syntax. */
#include "dumps/diff_internal.h"

#include "base/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum key { LAYERS = 0, STAGES, PARTS, OPS, N_KEYS };
static const char *const key_names[] = {"layers", "stages", "parts", "ops"};

enum { WORD = 64 };

struct clause { /* one text at work */
    const struct ds_header *h;
    const char *option, *text;
    uint8_t *hit; /* [n_sites] bit per key */
    unsigned given;
};

static int find_key(const char *word, const char *option, struct ds_error *err)
{
    for (int k = 0; k < N_KEYS; k++)
        if (strcmp(word, key_names[k]) == 0)
            return k;
    int near = ds_nearest(word, key_names, N_KEYS);
    ds_fail(err, "%s: no key %s", option, word);
    if (near >= 0)
        return ds_hint(err, "did you mean %s?", key_names[near]);
    return ds_hint(err, "keys are layers, stages, parts and ops");
}

/* "3", "0-3", "4-", "-1" (before the layers). */
static int parse_range(const char *word, long *low, long *high)
{
    char *end;
    *low = strtol(word, &end, 10);
    *high = *low;
    if (end == word)
        return -1;
    if (*end == '-' && end[1] == 0) {
        *high = INT32_MAX;
        return 0;
    }
    if (*end == '-') {
        const char *from = end + 1;
        *high = strtol(from, &end, 10);
        if (end == from)
            return -1;
    }
    return *end ? -1 : 0;
}

static int add_layers(struct clause *c, const char *word, struct ds_error *err)
{
    long low, high;
    if (parse_range(word, &low, &high) != 0 || high < low) {
        ds_fail(err, "%s %s: %s is no layer and no range of layers", c->option, c->text, word);
        return ds_hint(err, "as in layers=0-3,7 or layers=12-");
    }
    for (size_t s = 0; s < c->h->n_sites; s++)
        if (c->h->sites[s].layer >= low && c->h->sites[s].layer <= high)
            c->hit[s] |= 1u << LAYERS;
    return 0;
}

static const char *name_of(const struct ds_site *s, int key)
{
    return key == STAGES ? s->stage : key == PARTS ? s->part : s->op;
}

/* A stage may be given with its part: kv_write/k. */
static int fits(const struct ds_site *s, int key, const char *word)
{
    const char *slash = key == STAGES ? strchr(word, '/') : NULL;
    if (!slash)
        return strcmp(name_of(s, key), word) == 0;
    return strlen(s->stage) == (size_t)(slash - word) &&
           strncmp(s->stage, word, (size_t)(slash - word)) == 0 && strcmp(s->part, slash + 1) == 0;
}

static int add_name(struct clause *c, int key, const char *word, struct ds_error *err)
{
    size_t n = 0;
    for (size_t s = 0; s < c->h->n_sites; s++)
        if (fits(&c->h->sites[s], key, word)) {
            c->hit[s] |= (uint8_t)(1u << key);
            n++;
        }
    if (n)
        return 0;
    const char **names = ds_calloc(c->h->n_sites, sizeof *names, "site names", err);
    if (!names)
        return -1;
    for (size_t s = 0; s < c->h->n_sites; s++)
        if (*name_of(&c->h->sites[s], key))
            names[n++] = name_of(&c->h->sites[s], key);
    int near = ds_nearest(word, names, n);
    ds_fail(err, "%s %s: the records have no site with %.*s %s", c->option, c->text,
            (int)strlen(key_names[key]) - 1, key_names[key], word);
    if (near >= 0)
        ds_hint(err, "did you mean %s?", names[near]);
    free(names);
    return -1;
}

/* Sets fit[s] for the sites that fit the text. */
static int read_clause(struct clause *c, uint8_t *fit, struct ds_error *err)
{
    int key = STAGES;
    memset(c->hit, 0, c->h->n_sites);
    c->given = 0;
    for (const char *p = c->text;; p++) {
        char word[WORD];
        size_t n = strcspn(p, ",=");
        if (n == 0 || n >= sizeof word)
            return ds_fail(err, "%s %s: a name is missing or too long", c->option, c->text);
        memcpy(word, p, n);
        word[n] = 0;
        p += n;
        if (*p == '=') {
            if ((key = find_key(word, c->option, err)) < 0)
                return -1;
            continue;
        }
        c->given |= 1u << key;
        if (key == LAYERS ? add_layers(c, word, err) != 0 : add_name(c, key, word, err) != 0)
            return -1;
        if (!*p)
            break;
    }
    for (size_t s = 0; s < c->h->n_sites; s++)
        fit[s] |= (c->hit[s] & c->given) == c->given;
    return 0;
}

static int read_texts(const struct ds_header *h, const char *option, const char *const *texts,
                      size_t n, uint8_t *hit, uint8_t *fit, struct ds_error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct clause c = {.h = h, .option = option, .text = texts[i], .hit = hit};
        if (read_clause(&c, fit, err) != 0)
            return -1;
    }
    return 0;
}

int diff_filter(struct ds_diff *d, struct ds_error *err)
{
    const struct ds_diff_options *o = &d->options;
    size_t n = d->header.n_sites;
    if (!o->n_only && !o->n_ignore)
        return 0;
    uint8_t *hit = ds_calloc(n, 1, "sites", err), *only = ds_calloc(n, 1, "sites", err);
    d->ignored = ds_calloc(n, 1, "sites", err);
    int rc = hit && only && d->ignored ? 0 : -1;
    rc = rc ? rc : read_texts(&d->header, "--only", o->only, o->n_only, hit, only, err);
    rc = rc ? rc : read_texts(&d->header, "--ignore", o->ignore, o->n_ignore, hit, d->ignored, err);
    for (size_t s = 0; rc == 0 && s < n; s++) {
        d->ignored[s] |= o->n_only && !only[s];
        d->n_ignored += d->ignored[s];
    }
    free(hit);
    free(only);
    if (rc == 0 && d->n_ignored == n) {
        snprintf(d->verdict.reason, sizeof d->verdict.reason,
                 "--only and --ignore leave no site to compare");
        rc = 1;
    }
    return rc;
}
