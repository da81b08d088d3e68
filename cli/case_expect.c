/* case_expect.c: paths into a JSON answer, and the comparisons of a case. */
#include "cli/case_expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- paths ----------------------------------------------------------------------------------- */

static int has_word(json_t *element, const char *word, size_t n)
{
    const char *key;
    json_t *v;
    json_object_foreach(element, key, v)
    {
        const char *s = json_string_value(v);
        if (s && strlen(s) == n && strncmp(s, word, n) == 0)
            return 1;
    }
    const char *op = json_string_value(json_object_get(element, "op")),
               *variant = json_string_value(json_object_get(element, "variant"));
    char both[128];
    if (!op || !variant)
        return 0;
    int len = snprintf(both, sizeof both, "%s/%s", op, variant);
    return (size_t)len == n && strncmp(both, word, n) == 0;
}

static int matches(json_t *element, const char *words, size_t n)
{
    while (n) {
        const char *comma = memchr(words, ',', n);
        size_t one = comma ? (size_t)(comma - words) : n;
        if (!has_word(element, words, one))
            return 0;
        words += comma ? one + 1 : one;
        n -= comma ? one + 1 : one;
    }
    return 1;
}

static json_t *select_one(json_t *array, const char *text, size_t n)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text + n)
        return number < 0 ? NULL : json_array_get(array, (size_t)number);
    size_t i;
    json_t *element;
    json_array_foreach(array, i, element)
    {
        if (matches(element, text, n))
            return element;
    }
    return NULL;
}

json_t *ds_case_value(json_t *answer, const char *path)
{
    json_t *at = answer;
    while (at && *path) {
        if (*path == '.') {
            path++;
        } else if (*path == '[') {
            size_t n = strcspn(++path, "]");
            at = select_one(at, path, n);
            path += n + (path[n] == ']');
        } else {
            char key[64];
            size_t n = strcspn(path, ".[");
            if (n >= sizeof key)
                return NULL;
            memcpy(key, path, n);
            key[n] = '\0';
            at = json_object_get(at, key);
            path += n;
        }
    }
    return at;
}

/* ---- who is blamed --------------------------------------------------------------------------- */

static int is_blamed(json_t *kernel)
{
    const char *factor;
    json_t *condition;
    if (json_integer_value(json_object_get(kernel, "origins")) > 0)
        return 1;
    json_object_foreach(json_object_get(kernel, "conditions"), factor, condition)
    {
        const char *s = json_string_value(condition);
        if (s && (strcmp(s, "drift") == 0 || strcmp(s, "unstable") == 0))
            return 1;
    }
    return 0;
}

/* Adds the kernels of a verdict that drift or are unstable somewhere: "matmul/x, add/y". */
static void add_blamed(json_t *answer, struct ds_buf *out)
{
    size_t i, n = 0;
    json_t *k;
    json_array_foreach(json_object_get(answer, "kernels"), i, k)
    {
        const char *op = json_string_value(json_object_get(k, "op")),
                   *variant = json_string_value(json_object_get(k, "variant"));
        if (op && variant && is_blamed(k))
            ds_buf_printf(out, "%s%s/%s", n++ ? ", " : "", op, variant);
    }
}

/* Every word of `want` is in the other list; both are separated by ", " or blanks. */
static int all_in(const char *want, const char *list)
{
    const char *p = want;
    for (;;) {
        p += strspn(p, ", ");
        size_t n = strcspn(p, ", ");
        if (!n)
            return 1;
        int found = 0;
        for (const char *q = list; !found; q += strcspn(q, ", ")) {
            q += strspn(q, ", ");
            if (!*q)
                break;
            found = strcspn(q, ", ") == n && strncmp(p, q, n) == 0;
        }
        if (!found)
            return 0;
        p += n;
    }
}

static int blames(const char *want, json_t *answer, struct ds_buf *why)
{
    struct ds_buf got = {0};
    add_blamed(answer, &got);
    const char *list = got.data ? got.data : "";
    int same = !got.failed && all_in(want, list) && all_in(list, want);
    if (!same)
        ds_buf_printf(why, "blames %s; it should blame %s", *list ? list : "nobody",
                      *want ? want : "nobody");
    ds_buf_free(&got);
    return same;
}

/* ---- comparisons ----------------------------------------------------------------------------- */

/* A text with `part` in it, or a list with such a text. */
static int says(json_t *v, const char *part)
{
    const char *s = json_string_value(v);
    size_t i;
    json_t *one;
    if (s)
        return strstr(s, part) != NULL;
    json_array_foreach(v, i, one)
    {
        if (says(one, part))
            return 1;
    }
    return 0;
}

static void found_instead(const struct ds_expect *e, json_t *v, struct ds_buf *why)
{
    static const char *const words[] = {[DS_EXPECT_IS] = "be",
                                        [DS_EXPECT_NOT] = "not be",
                                        [DS_EXPECT_HAS] = "say",
                                        [DS_EXPECT_AT_LEAST] = "be at least",
                                        [DS_EXPECT_AT_MOST] = "be at most",
                                        [DS_EXPECT_ABSENT] = "be absent"};
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    ds_buf_printf(why, "%s is %.300s; it should %s%s%s", e->path, text ? text : "absent",
                  words[e->kind], *e->value ? " " : "", e->value);
    free(text);
}

static int equals(const char *text, json_t *v)
{
    json_error_t ignored;
    json_t *want = json_loads(text, JSON_DECODE_ANY, &ignored);
    int same = want && v && json_equal(want, v);
    if (want && v && json_is_number(want) && json_is_number(v))
        same = json_number_value(want) == json_number_value(v);
    json_decref(want);
    return same;
}

int ds_case_holds(const struct ds_expect *e, json_t *answer, int exit_code, struct ds_buf *why)
{
    if (e->kind == DS_EXPECT_EXIT) {
        if (exit_code == (int)e->number)
            return 1;
        ds_buf_printf(why, "exit code %d; it should be %d", exit_code, (int)e->number);
        return 0;
    }
    if (!answer) {
        ds_buf_puts(why, "no JSON answer");
        return 0;
    }
    if (e->kind == DS_EXPECT_BLAMES)
        return blames(e->value, answer, why);
    json_t *v = ds_case_value(answer, e->path);
    int holds = 0;
    switch (e->kind) {
    case DS_EXPECT_IS:
        holds = equals(e->value, v);
        break;
    case DS_EXPECT_NOT:
        holds = !equals(e->value, v);
        break;
    case DS_EXPECT_HAS:
        holds = says(v, e->value);
        break;
    case DS_EXPECT_AT_LEAST:
        holds = json_is_number(v) && json_number_value(v) >= e->number;
        break;
    case DS_EXPECT_AT_MOST:
        holds = json_is_number(v) && json_number_value(v) <= e->number;
        break;
    case DS_EXPECT_ABSENT:
        holds = !v || json_is_null(v);
        break;
    default:
        break;
    }
    if (!holds)
        found_instead(e, v, why);
    return holds;
}

int ds_case_healthy(json_t *answer, int exit_code, struct ds_buf *why)
{
    if (exit_code != 0) {
        ds_buf_printf(why, "exit code %d with healthy kernels", exit_code);
        return 0;
    }
    if (!answer) {
        ds_buf_puts(why, "no JSON answer");
        return 0;
    }
    static const char *const nothing[] = {"first_drift", "first_nonfinite", "first_discrete",
                                          "unstable"};
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++) {
        json_t *v = json_object_get(answer, nothing[i]);
        if (v && !json_is_null(v)) {
            ds_buf_printf(why, "there is a %s with healthy kernels", nothing[i]);
            return 0;
        }
    }
    return blames("", answer, why);
}
