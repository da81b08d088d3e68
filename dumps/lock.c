/* lock.c: the lines of a lock: reading them as hostile input, writing, looking one up. Which keys there are and what
 * their values look like is in lock_values.c. */
#include "dumps/lock_internal.h"

#include "base/mem.h"
#include "base/names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a list of lines ------------------------------------------------------------------------- */

static int add_line(struct ds_lock_lines *l, char *key, char *value, size_t line,
                    struct ds_error *err)
{
    if (!key || !value ||
        ds_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at, "lines of a lock", err) != 0) {
        free(key);
        free(value);
        return ds_fail(err, "out of memory for a lock");
    }
    l->at[l->n++] = (struct ds_lock_line){key, value, line};
    free(l->order);
    l->order = NULL;
    return 0;
}

int ds_lock_add(struct ds_lock_lines *l, const char *key, const char *value, struct ds_error *err)
{
    return add_line(l, strdup(key), strdup(value), 0, err);
}

int ds_lock_addf(struct ds_lock_lines *l, struct ds_error *err, const char *key, const char *fmt,
                 ...)
{
    char *value = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&value, fmt, ap) < 0)
        value = NULL;
    va_end(ap);
    return add_line(l, strdup(key), value, 0, err);
}

static int by_key(const void *pa, const void *pb, void *ctx)
{
    const struct ds_lock_lines *l = ctx;
    const size_t a = *(const size_t *)pa, b = *(const size_t *)pb;
    const int c = strcmp(l->at[a].key, l->at[b].key);
    return c ? c : (a > b) - (a < b);
}

int ds_lock_sort(struct ds_lock_lines *l, struct ds_error *err)
{
    free(l->order);
    if (!(l->order = ds_calloc(l->n, sizeof *l->order, "lines of a lock", err)))
        return -1;
    for (size_t i = 0; i < l->n; i++)
        l->order[i] = i;
    qsort_r(l->order, l->n, sizeof *l->order, by_key, l);
    return 0;
}

const struct ds_lock_line *ds_lock_find(const struct ds_lock_lines *l, const char *key)
{
    for (size_t low = 0, high = l->order ? l->n : 0; low < high;) {
        const size_t mid = low + (high - low) / 2;
        const struct ds_lock_line *x = &l->at[l->order[mid]];
        const int c = strcmp(key, x->key);
        if (c == 0)
            return x;
        low = c > 0 ? mid + 1 : low;
        high = c > 0 ? high : mid;
    }
    return NULL;
}

const char *ds_lock_get(const struct ds_lock_lines *l, const char *key)
{
    const struct ds_lock_line *x = ds_lock_find(l, key);
    return x ? x->value : NULL;
}

void ds_lock_lines_free(struct ds_lock_lines *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->at[i].key);
        free(l->at[i].value);
    }
    free(l->at);
    free(l->order);
    memset(l, 0, sizeof *l);
}

struct ds_lock_entry *ds_lock_new_entry(struct ds_lock *l, const char *name, struct ds_error *err)
{
    char *copy = strdup(name);
    if (!copy || ds_grow(&l->entries, &l->cap_entries, l->n_entries + 1, sizeof *l->entries,
                         "entries of a lock", err) != 0) {
        free(copy);
        ds_fail(err, "out of memory for a lock");
        return NULL;
    }
    l->entries[l->n_entries] = (struct ds_lock_entry){.name = copy};
    return &l->entries[l->n_entries++];
}

struct ds_lock_entry *ds_lock_entry(const struct ds_lock *l, const char *name)
{
    for (size_t i = 0; i < l->n_entries; i++)
        if (strcmp(l->entries[i].name, name) == 0)
            return &l->entries[i];
    return NULL;
}

void ds_lock_free(struct ds_lock *l)
{
    for (size_t i = 0; i < l->n_entries; i++) {
        free(l->entries[i].name);
        ds_lock_lines_free(&l->entries[i].lines);
    }
    free(l->entries);
    ds_lock_lines_free(&l->question);
    free(l->file);
    memset(l, 0, sizeof *l);
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reading {
    struct ds_lock *lock;
    const char *at, *end;
    size_t line; /* of what was taken last */
    struct ds_error *err;
};

static int fail_at(const struct reading *r, size_t line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int fail_at(const struct reading *r, size_t line, const char *fmt, ...)
{
    char text[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return ds_fail(r->err, "%.200s:%zu: %s", r->lock->file, line, text);
}

/* The next line that is not empty: 1, 0 at the end, -1. No control characters, valid UTF-8. */
static int take_line(struct reading *r, const char **line, size_t *n)
{
    do {
        if (r->at == r->end)
            return 0;
        const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
        r->line++;
        *line = r->at;
        *n = (size_t)((stop ? stop : r->end) - r->at);
        r->at = stop ? stop + 1 : r->end;
    } while (*n == 0);
    for (size_t i = 0; i < *n;) {
        const int len = ds_utf8_len(*line + i, *n - i);
        if (len == 0 || (unsigned char)(*line)[i] < ' ' || (*line)[i] == 0x7f)
            return fail_at(r, r->line, "byte 0x%02x in column %zu is no text",
                           (unsigned char)(*line)[i], i + 1);
        i += (size_t)len;
    }
    return 1;
}

static int read_first(struct reading *r)
{
    const char *line;
    size_t n, len = strlen(DS_LOCK_FORMAT);
    const int rc = take_line(r, &line, &n);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return fail_at(r, 1, "the lock is empty");
    if (n <= len || memcmp(line, DS_LOCK_FORMAT " ", len + 1) != 0) {
        fail_at(r, r->line, "is no lock: it does not begin with '%s %d'", DS_LOCK_FORMAT,
                DS_LOCK_VERSION);
        return ds_hint(r->err, "driftscope lock -o FILE makes one");
    }
    if (n != len + 2 || line[len + 1] != '0' + DS_LOCK_VERSION) {
        fail_at(r, r->line, "is a lock of version %.*s; this program reads version %d",
                (int)(n - len - 1 > 20 ? 20 : n - len - 1), line + len + 1, DS_LOCK_VERSION);
        return ds_hint(r->err, "a newer driftscope made it");
    }
    return 0;
}

/* Where the key ends: behind the kind's word and its further words. 0: words are missing. */
static size_t key_end(const struct ds_lock_kind *k, const char *line, size_t n)
{
    size_t at = strlen(k->word);
    for (int i = 0; i < k->words; i++) {
        const size_t from = at + 1;
        if (at >= n || line[at] != ' ')
            return 0;
        for (at = from; at < n && line[at] != ' ';)
            at++;
        if (at == from)
            return 0;
    }
    return at < n && line[at] == ' ' && at + 1 < n ? at : 0;
}

static int is_index(const char *s, size_t n)
{
    if (n == 0 || n > 6 || (n > 1 && s[0] == '0'))
        return 0;
    for (size_t i = 0; i < n; i++)
        if (!isdigit((unsigned char)s[i]))
            return 0;
    return 1;
}

/* What the word behind a kind's has to be. */
static int is_number(const struct ds_lock_kind *k, const char *s, size_t n)
{
    return is_index(s, n) || (k->number == DS_LOCK_LAYER && n == 2 && memcmp(s, "-1", 2) == 0);
}

static size_t word_len(const char *s, size_t n)
{
    const char *blank = memchr(s, ' ', n);
    return blank ? (size_t)(blank - s) : n;
}

static int unknown_word(const struct reading *r, const char *line, size_t n)
{
    const char *names[DS_LOCK_KINDS];
    char word[32];
    snprintf(word, sizeof word, "%.*s", (int)(n < 31 ? n : 31), line);
    if (strncmp(word, "<<<<<<<", 7) == 0 || strncmp(word, "=======", 7) == 0 ||
        strncmp(word, ">>>>>>>", 7) == 0) {
        fail_at(r, r->line, "a merge that was not finished");
        return ds_hint(r->err, "keep the lines of one side, or make the entry anew: driftscope "
                               "lock --update -o FILE");
    }
    for (size_t i = 0; i < DS_LOCK_KINDS; i++)
        names[i] = ds_lock_kind_at(i)->word;
    fail_at(r, r->line, "unknown word '%s'", word);
    const int near = ds_nearest(word, names, DS_LOCK_KINDS);
    return near >= 0 ? ds_hint(r->err, "did you mean '%s'?", names[near]) : -1;
}

static int read_entry(struct reading *r, const char *line, size_t n)
{
    struct ds_lock *l = r->lock;
    char name[128];
    const char *word = line + strlen("entry ");
    const size_t len = n > strlen("entry ") ? n - strlen("entry ") : 0;
    if (len == 0 || len >= sizeof name || memchr(word, ' ', len))
        return fail_at(r, r->line, "an entry has one word as its name, of 1 to %zu characters",
                       sizeof name - 1);
    memcpy(name, word, len);
    name[len] = '\0';
    if (ds_lock_entry(l, name))
        return fail_at(r, r->line, "entry %s is there already, in line %zu", name,
                       ds_lock_entry(l, name)->line);
    struct ds_lock_entry *e = ds_lock_new_entry(l, name, r->err);
    if (!e)
        return -1;
    e->line = r->line;
    return 0;
}

static int read_line(struct reading *r, const char *line, size_t n)
{
    struct ds_lock *l = r->lock;
    const char *blank = memchr(line, ' ', n);
    const size_t word = blank ? (size_t)(blank - line) : n;
    if (word == 5 && memcmp(line, "entry", 5) == 0)
        return read_entry(r, line, n);
    const struct ds_lock_kind *k = ds_lock_kind_of(line, word);
    if (!k)
        return unknown_word(r, line, word);
    if (k->in_entry != (l->n_entries > 0))
        return fail_at(r, r->line, "'%s' belongs %s", k->word,
                       k->in_entry ? "into an entry" : "before the first entry");
    const size_t end = key_end(k, line, n);
    if (end == 0)
        return fail_at(r, r->line, "'%s' has %d word%s and a value behind it", k->word, k->words,
                       k->words == 1 ? "" : "s");
    if (k->number && !is_number(k, blank + 1, word_len(blank + 1, end - word - 1)))
        return fail_at(r, r->line, "'%s' is followed by a number from %d to 999999", k->word,
                       k->number == DS_LOCK_LAYER ? -1 : 0);
    char *key = strndup(line, end), *value = strndup(line + end + 1, n - end - 1);
    if (value && !k->fits(value)) {
        free(key);
        free(value);
        return fail_at(r, r->line, "the value of '%.*s' is not %s", (int)(end < 80 ? end : 80),
                       line, k->form);
    }
    return add_line(l->n_entries ? &l->entries[l->n_entries - 1].lines : &l->question, key, value,
                    r->line, r->err);
}

static int no_line_twice(const struct reading *r, struct ds_lock_lines *l)
{
    if (ds_lock_sort(l, r->err) != 0)
        return -1;
    for (size_t i = 1; i < l->n; i++) {
        const struct ds_lock_line *a = &l->at[l->order[i - 1]], *b = &l->at[l->order[i]];
        if (strcmp(a->key, b->key) == 0)
            return fail_at(r, b->line, "'%.80s' stands in line %zu already", a->key, a->line);
    }
    return 0;
}

static int read_all(struct reading *r)
{
    const char *line;
    size_t n;
    int more, ended = 0;
    if (read_first(r) != 0)
        return -1;
    while ((more = take_line(r, &line, &n)) > 0) {
        if (ended)
            return fail_at(r, r->line, "there is something behind 'end'");
        ended = n == 3 && memcmp(line, "end", 3) == 0;
        if (!ended && read_line(r, line, n) != 0)
            return -1;
    }
    if (more < 0)
        return -1;
    if (!ended)
        return fail_at(r, r->line, "the lock was cut short: its last line is not 'end'");
    if (r->lock->n_entries == 0)
        return fail_at(r, r->line, "the lock has no entry");
    int rc = no_line_twice(r, &r->lock->question);
    for (size_t i = 0; rc == 0 && i < r->lock->n_entries; i++)
        rc = no_line_twice(r, &r->lock->entries[i].lines);
    return rc;
}

int ds_lock_parse(const char *file, const char *text, size_t len, struct ds_lock *out,
                  struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    if (!(out->file = strdup(file)))
        return ds_fail(err, "out of memory for a lock");
    struct reading r = {.lock = out, .at = text, .end = text + len, .err = err};
    return read_all(&r);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void add_lines(const struct ds_lock_lines *l, struct ds_buf *out)
{
    for (size_t i = 0; i < l->n; i++)
        ds_buf_printf(out, "%s %s\n", l->at[i].key, l->at[i].value);
}

static int by_name(const void *pa, const void *pb)
{
    return strcmp((*(const struct ds_lock_entry *const *)pa)->name,
                  (*(const struct ds_lock_entry *const *)pb)->name);
}

void ds_lock_text(const struct ds_lock *l, struct ds_buf *out)
{
    const struct ds_lock_entry **order =
        ds_calloc(l->n_entries, sizeof *order, "entries of a lock", NULL);
    if (!order) {
        ds_buf_lose(out);
        return;
    }
    for (size_t i = 0; i < l->n_entries; i++)
        order[i] = &l->entries[i];
    if (l->n_entries)
        qsort(order, l->n_entries, sizeof *order, by_name);
    ds_buf_printf(out, "%s %d\n", DS_LOCK_FORMAT, DS_LOCK_VERSION);
    add_lines(&l->question, out);
    for (size_t i = 0; i < l->n_entries; i++) {
        ds_buf_printf(out, "\nentry %s\n", order[i]->name);
        add_lines(&order[i]->lines, out);
    }
    ds_buf_puts(out, "\nend\n");
    free(order);
}
