/* lock_borders.c: two lists of classes, "1,2|4" and "1|2|4": which borders between values are new, which are gone. */
#include "dumps/lock_internal.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct class_value {
    const char *at;
    size_t n;
    uint32_t of; /* number of its class */
};

/* The values of "1,2|4"; malloc'ed. */
static int read_classes(const char *text, struct class_value **out, size_t *n, struct ds_error *err)
{
    uint32_t of = 0;
    size_t cap = 0;
    *out = NULL;
    *n = 0;
    for (const char *p = text;; p++) {
        const size_t len = strcspn(p, ",|");
        if (ds_grow(out, &cap, *n + 1, sizeof **out, "classes", err) != 0)
            return -1;
        (*out)[(*n)++] = (struct class_value){p, len, of};
        p += len;
        if (!*p)
            return 0;
        of += *p == '|';
    }
}

static const struct class_value *find_value(const struct class_value *x, size_t n,
                                            const struct class_value *like)
{
    for (size_t i = 0; i < n; i++)
        if (x[i].n == like->n && memcmp(x[i].at, like->at, like->n) == 0)
            return &x[i];
    return NULL;
}

static int shown(const struct class_value *x)
{
    return x->n < 40 ? (int)x->n : 40;
}

static void add_border(struct ds_lock_borders *out, const struct class_value *a,
                       const struct class_value *b)
{
    if (!out->added++)
        snprintf(out->apart, sizeof out->apart, "%.*s and %.*s", shown(a), a->at, shown(b), b->at);
}

/* A class of values that the lock does not have: it agrees with none of those that it has. */
static void find_new(const struct class_value *was, size_t n, const struct class_value *is,
                     size_t m, struct ds_lock_borders *out)
{
    const struct class_value *known = NULL;
    for (size_t i = 0; !known && i < m; i++)
        known = find_value(was, n, &is[i]) ? &is[i] : NULL;
    for (size_t i = 0, end; known && i < m; i = end) {
        int new = 1;
        for (end = i; end < m && is[end].of == is[i].of; end++)
            new &= !find_value(was, n, &is[end]);
        if (new) {
            out->judged += !out->added;
            add_border(out, known, &is[i]);
        }
    }
}

/* other: [n] the same value of the other side, or NULL. */
static void compare_borders(const struct class_value *was, const struct class_value **other,
                            size_t n, struct ds_lock_borders *out)
{
    *out = (struct ds_lock_borders){0};
    for (size_t i = 0; i < n; i++) {
        out->missing += !other[i];
        out->compared += other[i] != NULL;
        for (size_t k = 0; other[i] && k < i; k++) {
            if (!other[k])
                continue;
            const int apart = was[i].of != was[k].of, now = other[i]->of != other[k]->of;
            out->kept += apart && now;
            out->gone += apart && !now;
            if (!apart && now)
                add_border(out, &was[k], &was[i]);
        }
    }
}

int ds_lock_compare_classes(const char *was, const char *is, struct ds_lock_borders *out,
                            struct ds_error *err)
{
    struct class_value *x, *y = NULL;
    size_t n, m = 0;
    const struct class_value **other = NULL;
    int rc = read_classes(was, &x, &n, err);
    rc = rc == 0 ? read_classes(is, &y, &m, err) : rc;
    if (rc == 0 && !(other = ds_calloc(n, sizeof *other, "classes", err)))
        rc = -1;
    for (size_t i = 0; rc == 0 && i < n; i++)
        other[i] = find_value(y, m, &x[i]);
    if (rc == 0)
        compare_borders(x, other, n, out);
    if (rc == 0)
        find_new(x, n, y, m, out);
    free(other);
    free(x);
    free(y);
    return rc;
}
