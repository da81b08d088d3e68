/* diff_arms.c: which arm of A is held against which arm of B.
 *
 * Arms are paired by equal values of every factor that both records vary over common values. A factor
 * whose values have nothing in common (batch 1 in A, batch 4 in B) is what is being compared: it is
 * named, and of it only the base values are paired. If no two arms agree, the base arms are paired.
 * Formats are never paired with other formats: there are no bits in common. */
#include "dumps/diff_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char diff_no_trial[] = "no complete trial";

struct factor {
    const char *name;
    int64_t in[2]; /* index in each header, -1 = not there: its arms count as having the other
                      side's base value */
    int is_key;    /* arms are paired by it */
    int single[2]; /* all arms of the side have one value */
};

struct arm_key {
    uint64_t hash; /* of the values of the key factors */
    uint32_t arm;
};

struct pairing {
    struct ds_diff *d;
    const struct ds_header *h[2];
    struct factor *factors;
    size_t n, n_keys;
    uint8_t *run[2]; /* [n_arms] has a complete trial */
    uint32_t **joined;
};

static int64_t factor_index(const struct ds_header *h, const char *name)
{
    for (size_t f = 0; f < h->n_factors; f++)
        if (strcmp(h->factors[f], name) == 0)
            return (int64_t)f;
    return -1;
}

/* NULL where the record has no arm. */
static char *value_of(const struct pairing *p, const struct factor *f, int side, size_t arm)
{
    int from = f->in[side] >= 0 ? side : !side;
    size_t at = from == side ? arm : 0;
    return at < p->h[from]->n_arms ? p->h[from]->arms[at].values[f->in[from]] : NULL;
}

static int is_base(const struct pairing *p, const struct factor *f, int side, size_t arm)
{
    return f->in[side] < 0 || strcmp(value_of(p, f, side, arm), value_of(p, f, side, 0)) == 0;
}

static int one_valued(const struct pairing *p, const struct factor *f, int side)
{
    for (size_t i = 1; i < p->h[side]->n_arms; i++)
        if (!is_base(p, f, side, i))
            return 0;
    return 1;
}

static int text_cmp(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Distinct values of a factor on a side, sorted; malloc'ed. */
static char **values_of(const struct pairing *p, const struct factor *f, int side, size_t *n,
                        struct ds_error *err)
{
    size_t arms = p->h[side]->n_arms;
    char **list = ds_calloc(arms, sizeof *list, "factor values", err);
    *n = 0;
    for (size_t i = 0; list && i < arms; i++)
        list[i] = value_of(p, f, side, i);
    if (list && arms)
        qsort(list, arms, sizeof *list, text_cmp);
    for (size_t i = 0; list && i < arms; i++)
        if (i == 0 || strcmp(list[i], list[*n - 1]) != 0)
            list[(*n)++] = list[i];
    return list;
}

/* 1 if the sides have a value in common, 0 if not, -1. */
static int share_value(const struct pairing *p, const struct factor *f, struct ds_error *err)
{
    size_t n[2], i = 0, j = 0;
    int found = 0;
    char **a = values_of(p, f, 0, &n[0], err), **b = values_of(p, f, 1, &n[1], err);
    while (a && b && !found && i < n[0] && j < n[1]) {
        int c = strcmp(a[i], b[j]);
        found = c == 0;
        i += c < 0;
        j += c > 0;
    }
    int failed = !a || !b;
    free(a);
    free(b);
    return failed ? -1 : found;
}

/* "1,2,4": the values of a factor on a side in order of first appearance, cut where the text ends. */
static void list_values(const struct pairing *p, const struct factor *f, int side, char *text,
                        size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < p->h[side]->n_arms && at < size; i++) {
        const char *v = value_of(p, f, side, i);
        size_t seen = 0;
        while (seen < i && strcmp(value_of(p, f, side, seen), v) != 0)
            seen++;
        if (seen == i)
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? "," : "", v);
        if (i > 64) /* enough to name it; nothing may take the square of a record's size */
            break;
    }
}

static int name_factor(struct pairing *p, const struct factor *f, struct ds_error *err)
{
    char a[128], b[128];
    list_values(p, f, 0, a, sizeof a);
    list_values(p, f, 1, b, sizeof b);
    return diff_add(p->d, DS_DIFF_FACTOR, f->name, a, b, err);
}

/* A factor with one value in each record is no key: if the values differ, it is what is being
 * compared. Nor is one without a common value. */
static int choose_keys(struct pairing *p, struct ds_error *err)
{
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < p->h[side]->n_factors; i++) {
            const char *name = p->h[side]->factors[i];
            struct factor f = {.name = name,
                               .in = {factor_index(p->h[0], name), factor_index(p->h[1], name)}};
            if (side == 1 && f.in[0] >= 0)
                continue;
            if (!p->h[0]->n_arms || !p->h[1]->n_arms)
                continue;
            int common = share_value(p, &f, err);
            if (common < 0)
                return -1;
            if (!common && strcmp(name, "dtype") == 0) {
                char a[64], b[64];
                list_values(p, &f, 0, a, sizeof a);
                list_values(p, &f, 1, b, sizeof b);
                snprintf(p->d->verdict.reason, sizeof p->d->verdict.reason,
                         "rows are stored in other formats: %s in A, %s in B", a, b);
                return 1;
            }
            for (int k = 0; k < 2; k++)
                f.single[k] = one_valued(p, &f, k);
            f.is_key = common && !(f.single[0] && f.single[1]);
            if (!common && name_factor(p, &f, err) != 0)
                return -1;
            p->n_keys += (size_t)f.is_key;
            p->factors[p->n++] = f;
        }
    return 0;
}

static uint64_t hash_text(uint64_t h, const char *s)
{
    do
        h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    while (*s++);
    return h;
}

static int key_cmp(const void *pa, const void *pb)
{
    const struct arm_key *a = pa, *b = pb;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return (a->arm > b->arm) - (a->arm < b->arm);
}

/* The arms of a side that may be paired, by the hash of their key values; *n of them. */
static struct arm_key *sort_arms(const struct pairing *p, int side, size_t *n, struct ds_error *err)
{
    struct arm_key *keys = ds_calloc(p->h[side]->n_arms, sizeof *keys, "arms", err);
    *n = 0;
    for (size_t i = 0; keys && i < p->h[side]->n_arms; i++) {
        struct arm_key k = {UINT64_C(0xcbf29ce484222325), (uint32_t)i};
        int fits = p->run[side][i];
        for (size_t f = 0; fits && f < p->n; f++)
            if (p->factors[f].is_key)
                k.hash = hash_text(k.hash, value_of(p, &p->factors[f], side, i));
            else
                fits = is_base(p, &p->factors[f], side, i);
        if (fits)
            keys[(*n)++] = k;
    }
    if (keys && *n)
        qsort(keys, *n, sizeof *keys, key_cmp);
    return keys;
}

static int equal_keys(const struct pairing *p, size_t a, size_t b)
{
    for (size_t f = 0; f < p->n; f++)
        if (p->factors[f].is_key &&
            strcmp(value_of(p, &p->factors[f], 0, a), value_of(p, &p->factors[f], 1, b)) != 0)
            return 0;
    return 1;
}

/* Puts a pair at the end of the joined arms; its key values are A's. */
static int add_pair(struct pairing *p, size_t a, size_t b, struct ds_error *err)
{
    static char name_a[] = "A", name_b[] = "B";
    struct ds_header *h = &p->d->header;
    for (int side = 0; side < 2; side++) {
        size_t at = h->n_arms, k = 0;
        if (!(h->arms[at].values = ds_calloc(p->n_keys + 1, sizeof(char *), "arms", err)))
            return -1;
        h->n_arms++;
        for (size_t f = 0; f < p->n; f++)
            if (p->factors[f].is_key)
                h->arms[at].values[k++] = value_of(p, &p->factors[f], 0, a);
        h->arms[at].values[k] = side ? name_b : name_a;
        p->d->arm_of[at] = (uint32_t)(side ? b : a);
        if (p->d->prompts[0])
            p->d->prompt_of[at] = p->d->prompts[side];
        p->joined[side][side ? b : a] = (uint32_t)at;
    }
    p->d->pairs++;
    return 0;
}

/* Each arm of A, in its order, takes the first free arm of B with the same key values. */
static int pair_equal(struct pairing *p, struct ds_error *err)
{
    size_t n_a, n_b;
    struct arm_key *a = sort_arms(p, 0, &n_a, err), *b = a ? sort_arms(p, 1, &n_b, err) : NULL;
    uint32_t *partner = b ? ds_calloc(p->h[0]->n_arms, sizeof *partner, "arms", err) : NULL;
    int rc = partner ? 0 : -1;
    for (size_t i = 0, j = 0; rc == 0 && i < n_a && j < n_b;) {
        int order = a[i].hash < b[j].hash ? -1 : a[i].hash > b[j].hash;
        if (order == 0 && equal_keys(p, a[i].arm, b[j].arm))
            partner[a[i].arm] = b[j].arm + 1;
        i += order <= 0;
        j += order >= 0;
    }
    for (size_t i = 0; rc == 0 && i < p->h[0]->n_arms; i++)
        if (partner[i])
            rc = add_pair(p, i, partner[i] - 1, err);
    free(a);
    free(b);
    free(partner);
    return rc;
}

/* Nothing agrees: the base arms, and every factor in which they differ is named. */
static int pair_bases(struct pairing *p, struct ds_error *err)
{
    if (!p->h[0]->n_arms || !p->h[1]->n_arms || !p->run[0][0] || !p->run[1][0])
        return 0;
    for (size_t f = 0; f < p->n; f++) {
        const struct factor *x = &p->factors[f];
        const char *a = value_of(p, x, 0, 0), *b = value_of(p, x, 1, 0);
        if (!x->is_key || strcmp(a, b) == 0)
            continue;
        if (strcmp(x->name, "dtype") == 0)
            return 0;
        if (diff_add(p->d, DS_DIFF_FACTOR, x->name, a, b, err) != 0)
            return -1;
    }
    return add_pair(p, 0, 0, err);
}

/* What all arms have in common does not tell them apart. */
static int note_arm(struct pairing *p, int side, size_t arm, struct ds_error *err)
{
    char text[512];
    size_t at = 0;
    const char *why = p->run[side][arm] ? "only here" : diff_no_trial;
    for (size_t i = 0; i < p->n && at < sizeof text; i++) {
        const struct factor *f = &p->factors[i];
        if (!f->single[side])
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %s", at ? ", " : "", f->name,
                                   value_of(p, f, side, arm));
    }
    return diff_add(p->d, DS_DIFF_ARM, at ? text : "the only arm", side == 0 ? why : NULL,
                    side == 1 ? why : NULL, err);
}

static int note_alone(struct pairing *p, struct ds_error *err)
{
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < p->h[side]->n_arms; i++)
            if (p->joined[side][i] == UINT32_MAX) {
                const int counts = !p->d->options.some_arms;
                p->d->alone[side]++;
                p->d->missing[side].arms += counts && p->run[side][i];
                p->d->unmade[side] += counts && !p->run[side][i];
                if (note_arm(p, side, i, err) != 0)
                    return -1;
            }
    return 0;
}

static int find_run(struct pairing *p, const struct ds_source *s, int side, struct ds_error *err)
{
    const struct ds_header *h = p->h[side];
    p->run[side] = ds_calloc(h->n_arms, 1, "arms", err);
    p->joined[side] = ds_calloc(h->n_arms, sizeof *p->joined[side], "arms", err);
    if (!p->run[side] || !p->joined[side])
        return -1;
    for (size_t i = 0; i < h->n_arms; i++)
        p->joined[side][i] = UINT32_MAX;
    for (size_t i = 0; i < s->n_trials; i++) {
        const struct ds_trial *info = s->info(s->ctx, i);
        if (info->arm >= h->n_arms)
            return ds_fail(err, "record %s: trial %zu names arm %u of %zu", side ? "B" : "A", i,
                           info->arm, h->n_arms);
        if (info->pass == DS_PASS_NATURAL)
            p->run[side][info->arm] = 1;
    }
    return 0;
}

static int name_joined(struct pairing *p, struct ds_error *err)
{
    static char record[] = "record";
    struct ds_diff *d = p->d;
    size_t least = p->h[0]->n_arms < p->h[1]->n_arms ? p->h[0]->n_arms : p->h[1]->n_arms, k = 0;
    if (!(d->header.factors =
              ds_calloc(p->n_keys + 1, sizeof *d->header.factors, "factors", err)) ||
        !(d->header.arms = ds_calloc(2 * least + 1, sizeof *d->header.arms, "arms", err)) ||
        !(d->arm_of = ds_calloc(2 * least + 1, sizeof *d->arm_of, "arms", err)))
        return -1;
    d->header.n_factors = p->n_keys + 1;
    if (d->prompts[0] &&
        !(d->prompt_of = ds_calloc(2 * least + 1, sizeof *d->prompt_of, "arms", err)))
        return -1;
    for (size_t f = 0; f < p->n; f++) {
        const struct factor *x = &p->factors[f];
        int side = x->in[0] < 0;
        if (x->is_key)
            d->header.factors[k++] = p->h[side]->factors[x->in[side]];
    }
    d->header.factors[k] = record;
    return 0;
}

int diff_pair_arms(struct ds_diff *d, const struct ds_source *s[2], uint32_t *joined[2],
                   struct ds_error *err)
{
    struct pairing p = {.d = d, .h = {s[0]->header, s[1]->header}, .joined = joined};
    p.factors = ds_calloc(p.h[0]->n_factors + p.h[1]->n_factors, sizeof *p.factors, "factors", err);
    int rc = p.factors ? 0 : -1;
    for (int side = 0; rc == 0 && side < 2; side++)
        rc = find_run(&p, s[side], side, err);
    rc = rc ? rc : choose_keys(&p, err);
    rc = rc ? rc : name_joined(&p, err);
    rc = rc ? rc : pair_equal(&p, err);
    if (rc == 0 && d->pairs == 0)
        rc = pair_bases(&p, err);
    if (rc == 0 && d->pairs == 0) {
        snprintf(d->verdict.reason, sizeof d->verdict.reason,
                 "the records share no arm with a complete trial on both sides");
        rc = 1;
    }
    rc = rc ? rc : note_alone(&p, err);
    free(p.run[0]);
    free(p.run[1]);
    free(p.factors);
    return rc;
}
