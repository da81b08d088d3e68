/* lock_question.c: whether two answers answer the same question. See lock.h. */
#include "cli/lock.h"

#include <stdio.h>
#include <string.h>

/* What a line that is not there would say: a hyperparameter that one side does not know was not recorded then, an
 * option was not there, and so off. */
static const char *value_without(const struct ds_lock_line *x)
{
    static const char *const ones[] = {"option top_p", "option repetition_penalty",
                                       "option sample_seed"};
    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++)
        if (strcmp(x->key, ones[i]) == 0)
            return "1";
    if (strcmp(x->key, "option weights") == 0)
        return "f32";
    if (strcmp(x->key, "option dtype_at") == 0)
        return "none";
    return ds_lock_is(x, "option") ? "0" : ds_lock_is(x, "hparam") ? x->value : "unknown";
}

/* Other values of these give other rows, rows with another content, or other choices. */
int ds_lock_comparable(const struct ds_lock *l, const struct ds_lock_lines *mine,
                       struct ds_error *err)
{
    static const char *const keys[] = {"prompt 0",
                                       "option steps",
                                       "option position_offset",
                                       "option all_logits",
                                       "option temperature",
                                       "option top_k",
                                       "option top_p",
                                       "option min_p",
                                       "option repetition_penalty",
                                       "option sample_seed",
                                       "option dtype_at",
                                       "option weights",
                                       "forced"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct ds_lock_line *was = ds_lock_find(&l->question, keys[i]),
                                  *is = ds_lock_find(mine, keys[i]);
        if (!was && !is)
            continue;
        const char *a = was ? was->value : value_without(is),
                   *b = is ? is->value : value_without(was);
        if (strcmp(a, b) == 0)
            continue;
        ds_lock_fail(l, was, err,
                     "nothing to compare: the lock's '%s' is %.120s, here it is %.120s", keys[i], a,
                     b);
        return strcmp(keys[i], "option steps") == 0
                   ? ds_hint(err, "-n %.20s", a)
                   : ds_hint(err, "verify asks what the lock asked");
    }
    return 0;
}

/* Names and texts are for readers; arms are compared whole. */
static int is_asked(const struct ds_lock_line *x)
{
    return !ds_lock_is(x, "text") && !ds_lock_is(x, "arm") && strcmp(x->key, "model name") != 0;
}

/* 1: neither has an arm of that number. */
static int same_arm(const struct ds_lock *l, const struct ds_lock *other, size_t i,
                    struct ds_error *err)
{
    char *a[DS_FACTOR_COUNT] = {NULL}, *b[DS_FACTOR_COUNT] = {NULL}, key[32];
    const int x = ds_lock_arm(l, i, a, err), y = x < 0 ? x : ds_lock_arm(other, i, b, err);
    int rc = x < 0 || y < 0 ? -1 : x && y;
    snprintf(key, sizeof key, "arm %zu", i);
    if (rc == 0 && x != y)
        rc = ds_lock_fail(l, ds_lock_find(&l->question, key), err, "%.100s has %s arm %zu",
                          other->file, x ? "an" : "no", i);
    for (int f = 0; rc == 0 && f < DS_FACTOR_COUNT; f++)
        if (strcmp(a[f], b[f]) != 0)
            rc = ds_lock_fail(l, ds_lock_find(&l->question, key), err,
                              "arm %zu has %s %.60s, in %.100s %.60s", i, ds_factor_names[f], a[f],
                              other->file, b[f]);
    ds_lock_free_values(a);
    ds_lock_free_values(b);
    return rc;
}

static int same_lines(const struct ds_lock *l, const struct ds_lock_lines *q, const char *file,
                      struct ds_error *err)
{
    for (size_t i = 0; i < l->question.n; i++) {
        const struct ds_lock_line *was = &l->question.at[i];
        const char *is = ds_lock_get(q, was->key);
        is = is ? is : value_without(was);
        if (is_asked(was) && strcmp(is, was->value) != 0)
            return ds_lock_fail(l, was, err, "'%.60s' is %.100s, in %.100s it is %.100s", was->key,
                                was->value, file, is);
    }
    for (size_t i = 0; i < q->n; i++)
        if (is_asked(&q->at[i]) && !ds_lock_find(&l->question, q->at[i].key) &&
            strcmp(value_without(&q->at[i]), q->at[i].value) != 0)
            return ds_lock_fail(l, NULL, err, "'%.60s' is unknown, in %.100s it is %.100s",
                                q->at[i].key, file, q->at[i].value);
    return 0;
}

int ds_lock_same_question(const struct ds_lock *l, const struct ds_lock_lines *q, const char *file,
                          struct ds_error *err)
{
    const struct ds_lock other = {.file = (char *)file, .question = *q}; /* borrowed */
    int rc = same_lines(l, q, file, err);
    for (size_t i = 0; rc == 0; i++)
        rc = same_arm(l, &other, i, err);
    return rc < 0 ? -1 : 0;
}
