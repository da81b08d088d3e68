/* lock_agree.c: whether a lock agrees with itself. Git merges locks line by line and people edit them: a line that was
 * lost, or one of the question that was changed, must not make an answer green that nobody gave. Pure. */
#include "dumps/lock_internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- the key --------------------------------------------------------------------------------- */

/* Over what was asked and which kernels answered: equal keys ask for equal bits. Not over their number of
 * comparisons, the platform, the model's name, or what the lock says of the prompts' texts. */
int ds_lock_key(const struct ds_lock_lines *question, const struct ds_lock_lines *entry,
                char key[17], struct ds_error *err)
{
    struct ds_buf b = {0};
    for (size_t i = 0; i < question->n; i++)
        if (!ds_lock_is(&question->at[i], "text") && strcmp(question->at[i].key, "model name") != 0)
            ds_buf_printf(&b, "%s %s\n", question->at[i].key, question->at[i].value);
    for (size_t i = 0; i < entry->n; i++)
        if (ds_lock_is(&entry->at[i], "kernel"))
            ds_buf_printf(&b, "%s\n", entry->at[i].key);
    const int rc = b.failed ? ds_fail(err, "out of memory for a lock") : 0;
    if (rc == 0)
        snprintf(key, 17, "%016" PRIx64, (uint64_t)XXH3_64bits(b.data ? b.data : "", b.len));
    ds_buf_free(&b);
    return rc;
}

/* ---- how many lines there are ---------------------------------------------------------------- */

static size_t lines_of(const struct ds_lock_lines *l, const char *kind)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        n += (size_t)ds_lock_is(&l->at[i], kind);
    return n;
}

/* In the order of their names. */
static const struct {
    const char *key, *kind;
} counted[] = {{"count classes", "class"},  {"count environment", "env"},
               {"count kernels", "kernel"}, {"count nonfinite", "nonfinite"},
               {"count origins", "origin"}, {"count runs", "run"},
               {"count steps", "step"},     {"count tensors", "tensor"}};
enum { COUNTED = sizeof counted / sizeof counted[0] };

int ds_lock_count_lines(const struct ds_lock_lines *rest, struct ds_lock_lines *out,
                        struct ds_error *err)
{
    for (size_t i = 0; i < COUNTED; i++)
        if (ds_lock_addf(out, err, counted[i].key, "%zu",
                         lines_of(rest, counted[i].kind) + lines_of(out, counted[i].kind)) != 0)
            return -1;
    return 0;
}

/* ---- what must agree ------------------------------------------------------------------------- */

struct agreeing {
    const struct ds_lock *lock;
    const struct ds_lock_entry *entry;
    struct ds_error *err;
};

static int disagree(const struct agreeing *a, size_t line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int disagree(const struct agreeing *a, size_t line, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    line = line ? line : a->entry->line;
    if (line == 0) /* made, and not read */
        return ds_fail(a->err, "entry %.100s would not agree with itself: %s", a->entry->name,
                       text);
    ds_fail(a->err, "%.200s:%zu: entry %.100s does not agree with itself: %s", a->lock->file, line,
            a->entry->name, text);
    return ds_hint(a->err, "a line was lost or changed: `git diff` shows which; "
                           "`driftscope lock --update` makes the entry anew");
}

static int check_key(const struct agreeing *a)
{
    const struct ds_lock_line *x = ds_lock_find(&a->entry->lines, "key");
    char key[17];
    if (!x)
        return disagree(a, 0, "it has no key");
    if (ds_lock_key(&a->lock->question, &a->entry->lines, key, a->err) != 0)
        return -1;
    return strcmp(key, x->value) == 0
               ? 0
               : disagree(a, x->line, "its key is %s, the question and its kernels have %s",
                          x->value, key);
}

/* A lock of an earlier version has none of these lines, and nothing to hold its lines against. */
static int check_counts(const struct agreeing *a)
{
    static const char *const others[] = {"count arms", "count digests", "count rows", "count sites",
                                         "count trials"};
    const struct ds_lock_lines *l = &a->entry->lines;
    size_t there = 0;
    for (size_t i = 0; i < COUNTED; i++)
        there += ds_lock_find(l, counted[i].key) != NULL;
    for (size_t i = 0; there && i < sizeof others / sizeof others[0]; i++)
        if (!ds_lock_find(l, others[i]))
            return disagree(a, 0, "it has no '%s'", others[i]);
    for (size_t i = 0; there && i < COUNTED; i++) {
        const struct ds_lock_line *x = ds_lock_find(l, counted[i].key);
        const size_t n = lines_of(l, counted[i].kind);
        if (!x)
            return disagree(a, 0, "it has no '%s'", counted[i].key);
        if (strtoull(x->value, NULL, 10) != n)
            return disagree(a, x->line, "'%s' is %s, and it has %zu", x->key, x->value, n);
    }
    return 0;
}

/* Every arm has a run, and every run an arm. */
static int check_runs(const struct agreeing *a)
{
    const struct ds_lock_lines *q = &a->lock->question, *l = &a->entry->lines;
    const struct ds_lock_line *count = ds_lock_find(l, "count arms");
    const size_t arms = lines_of(q, "arm");
    char key[40];
    for (size_t i = 0; i < l->n; i++) {
        const struct ds_lock_line *x = &l->at[i];
        snprintf(key, sizeof key, "arm %.30s", ds_lock_is(x, "run") ? x->key + 4 : "0");
        if (ds_lock_is(x, "run") && !ds_lock_find(q, key))
            return disagree(a, x->line, "'%.40s' is of no arm", x->key);
    }
    if (count && strtoull(count->value, NULL, 10) != arms)
        return disagree(a, count->line, "'count arms' is %s, and the question has %zu",
                        count->value, arms);
    for (size_t i = 0; i < q->n; i++) {
        snprintf(key, sizeof key, "run %.30s",
                 ds_lock_is(&q->at[i], "arm") ? q->at[i].key + 4 : "0");
        if (ds_lock_is(&q->at[i], "arm") && !ds_lock_find(l, key))
            return disagree(a, 0, "it has no '%s'", key);
    }
    return 0;
}

static int check_steps(const struct agreeing *a)
{
    const size_t n = lines_of(&a->entry->lines, "step");
    char key[32];
    for (size_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "step %zu", i);
        if (!ds_lock_find(&a->entry->lines, key))
            return disagree(a, 0, "it has no '%s'", key);
    }
    return 0;
}

/* ---- words that stand twice ------------------------------------------------------------------ */

/* A class, an origin or a tensor is of a kernel that was at work. */
static int check_kernel(const struct agreeing *a, const struct ds_lock_line *x)
{
    const int in_key = ds_lock_is(x, "class") || ds_lock_is(x, "origin");
    const char *name = in_key ? strchr(x->key, ' ') + 1 : x->value;
    struct ds_buf key = {0};
    ds_buf_printf(&key, "kernel %.*s", (int)strcspn(name, " "), name);
    int rc = key.failed ? ds_fail(a->err, "out of memory for a lock") : 0;
    if (rc == 0 && !ds_lock_find(&a->entry->lines, key.data))
        rc = disagree(a, x->line, "'%.80s' is of %.80s, which is none of its kernels", x->key,
                      key.data + strlen("kernel "));
    ds_buf_free(&key);
    return rc;
}

/* Whether an arm is set to a value: "batch=4 threads=2" over n bytes of "4". */
static int is_set(const char *settings, const char *factor, const char *value, size_t n)
{
    const size_t name = strlen(factor);
    for (const char *p = settings; *p;) {
        const size_t all = strcspn(p, " ");
        if (all == name + 1 + n && memcmp(p, factor, name) == 0 && p[name] == '=' &&
            memcmp(p + name + 1, value, n) == 0)
            return 1;
        p += all + (p[all] == ' ');
    }
    return 0;
}

/* The values of a class are values of arms. */
static int check_class(const struct agreeing *a, const struct ds_lock_line *x)
{
    static const char *const words[] = {"same", "unstable", "?"};
    const struct ds_lock_lines *q = &a->lock->question;
    const char *factor = strrchr(x->key, ' ') + 1;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(x->value, words[i]) == 0)
            return 0;
    for (const char *p = x->value;; p++) {
        const size_t n = strcspn(p, ",|");
        int found = 0;
        for (size_t i = 0; !found && i < q->n; i++)
            found = ds_lock_is(&q->at[i], "arm") && is_set(q->at[i].value, factor, p, n);
        if (!found)
            return disagree(a, x->line, "no arm has %.60s %.*s, of '%.80s'", factor,
                            (int)(n < 60 ? n : 60), p, x->key);
        p += n;
        if (!*p)
            return 0;
    }
}

static int is_unstable(const struct ds_lock_line *x)
{
    const char *blank = strrchr(x->value, ' ');
    return strcmp(blank ? blank + 1 : x->value, "unstable") == 0;
}

/* Where bits are unstable a kernel is. */
static int check_unstable(const struct agreeing *a)
{
    const struct ds_lock_lines *l = &a->entry->lines;
    const struct ds_lock_line *first = NULL;
    for (size_t i = 0; i < l->n; i++) {
        const struct ds_lock_line *x = &l->at[i];
        if (ds_lock_is(x, "class") && is_unstable(x))
            return 0;
        if (!first && (ds_lock_is(x, "run") || ds_lock_is(x, "tensor")) && is_unstable(x))
            first = x;
    }
    return first ? disagree(a, first->line, "'%.80s' is unstable, and none of its kernels is",
                            first->key)
                 : 0;
}

static int check_words(const struct agreeing *a)
{
    for (size_t i = 0; i < a->entry->lines.n; i++) {
        const struct ds_lock_line *x = &a->entry->lines.at[i];
        const int class = ds_lock_is(x, "class");
        if ((class || ds_lock_is(x, "origin") || ds_lock_is(x, "tensor") ||
             ds_lock_is(x, "nonfinite")) &&
            check_kernel(a, x) != 0)
            return -1;
        if (class && check_class(a, x) != 0)
            return -1;
    }
    return check_unstable(a);
}

int ds_lock_agrees(const struct ds_lock *l, struct ds_error *err)
{
    for (size_t i = 0; i < l->n_entries; i++) {
        const struct agreeing a = {l, &l->entries[i], err};
        if (check_key(&a) != 0 || check_counts(&a) != 0 || check_runs(&a) != 0 ||
            check_steps(&a) != 0 || check_words(&a) != 0)
            return -1;
    }
    return 0;
}
