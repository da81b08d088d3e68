/* lock_values.c: what keys a lock's lines have and what their values look like; words, in which no text can break a
 * line. */
#include "dumps/lock_internal.h"

#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ----------------------------------------------------------------------------------- */

void ds_lock_word(struct ds_buf *b, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p <= ' ' || *p > '~' || strchr(",|\\", *p))
            ds_buf_printf(b, "\\x%02x", *p);
        else
            ds_buf_add(b, p, 1);
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void ds_lock_unword(struct ds_buf *b, const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int code = word[i] == '\\' && i + 3 < n && word[i + 1] == 'x'
                             ? hex(word[i + 2]) * 16 + hex(word[i + 3])
                             : -1;
        const char c = code > 0 ? (char)code : word[i];
        ds_buf_add(b, &c, 1);
        i += code > 0 ? 3 : 0;
    }
}

int ds_lock_is(const struct ds_lock_line *x, const char *kind)
{
    const size_t n = strlen(kind);
    return strncmp(x->key, kind, n) == 0 && (x->key[n] == ' ' || !x->key[n]);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int read_count(const char **p, uint64_t most, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)**p))
        return -1;
    errno = 0;
    const unsigned long long v = strtoull(*p, &end, 10);
    if (errno || v > most)
        return -1;
    *out = v;
    *p = end;
    return 0;
}

static int read_real(const char **p, double *out)
{
    char *end;
    if (isspace((unsigned char)**p))
        return -1;
    *out = strtod(*p, &end);
    if (end == *p)
        return -1;
    *p = end;
    return 0;
}

/* Takes `text` off the front; -1: something else is there. */
static int skip(const char **p, const char *text)
{
    const size_t n = strlen(text);
    if (strncmp(*p, text, n) != 0)
        return -1;
    *p += n;
    return 0;
}

static int read_top(const char **p, struct ds_lock_step *s)
{
    uint64_t id;
    do {
        if (s->n_top == DS_TOP || read_count(p, INT32_MAX, &id) != 0 || skip(p, ":") != 0 ||
            read_real(p, &s->logprobs[s->n_top]) != 0 || !isfinite(s->logprobs[s->n_top]))
            return -1;
        s->ids[s->n_top++] = (int32_t)id;
    } while (skip(p, ",") == 0);
    return 0;
}

int ds_lock_read_step(const char *value, struct ds_lock_step *out)
{
    const char *p = value;
    uint64_t token;
    memset(out, 0, sizeof *out);
    if (skip(&p, "token=") != 0 || read_count(&p, INT32_MAX, &token) != 0 ||
        skip(&p, " margin=") != 0 || read_real(&p, &out->margin) != 0 || skip(&p, " noise=") != 0 ||
        read_real(&p, &out->noise) != 0)
        return -1;
    out->token = (int32_t)token;
    if (skip(&p, " top=") == 0 && read_top(&p, out) != 0)
        return -1;
    return *p ? -1 : 0;
}

int ds_lock_read_origin(const char *value, struct ds_lock_origin *out)
{
    const char *p = value;
    uint64_t layers;
    memset(out, 0, sizeof *out);
    if (skip(&p, "kind=") != 0)
        return -1;
    const size_t n = strcspn(p, " ");
    if (n == 0 || n >= sizeof out->kind)
        return -1;
    memcpy(out->kind, p, n);
    p += n;
    if (skip(&p, " max_ulp=") != 0)
        return -1;
    out->sized = skip(&p, "?") != 0;
    if ((out->sized && read_count(&p, UINT64_MAX, &out->max_ulp) != 0) ||
        skip(&p, " layers=") != 0 || read_count(&p, UINT32_MAX, &layers) != 0)
        return -1;
    out->layers = (uint32_t)layers;
    return *p ? -1 : 0;
}

int ds_lock_read_ids(const char *value, int32_t **ids, size_t *n, struct ds_error *err)
{
    size_t cap = 0;
    *ids = NULL;
    *n = 0;
    if (strcmp(value, "-") == 0)
        return 0;
    for (const char *p = value;; p++) {
        uint64_t id;
        if (read_count(&p, INT32_MAX, &id) != 0 || (*p && *p != ',')) {
            free(*ids);
            *ids = NULL;
            return ds_fail(err, "no token ids, separated by commas");
        }
        if (ds_grow(ids, &cap, *n + 1, sizeof **ids, "token ids", err) != 0)
            return -1;
        (*ids)[(*n)++] = (int32_t)id;
        if (!*p)
            return 0;
    }
}

static int is_digest(const char *s)
{
    for (int i = 0; i < 16; i++)
        if (hex(s[i]) < 0)
            return 0;
    return !s[16];
}

static int is_digest_or_not(const char *s)
{
    return strcmp(s, "unstable") == 0 || is_digest(s);
}

/* "matmul/openblas 0123456789abcdef" */
static int is_tensor(const char *s)
{
    const size_t n = strcspn(s, " ");
    return n > 0 && s[n] == ' ' && memchr(s, '/', n) && is_digest_or_not(s + n + 1);
}

static int is_step(const char *s)
{
    struct ds_lock_step step;
    return ds_lock_read_step(s, &step) == 0;
}

static int is_origin(const char *s)
{
    struct ds_lock_origin o;
    return ds_lock_read_origin(s, &o) == 0;
}

static int is_number(const char *s)
{
    uint64_t v;
    return read_count(&s, UINT64_MAX, &v) == 0 && !*s;
}

static int is_ids(const char *s)
{
    uint64_t id;
    if (strcmp(s, "-") == 0)
        return 1;
    for (;; s++) {
        if (read_count(&s, INT32_MAX, &id) != 0)
            return 0;
        if (*s != ',')
            return !*s;
    }
}

/* "1,2|4": words apart by commas and bars, none of them empty, none twice. */
static int is_classes(const char *s)
{
    const char *at[DS_LOCK_MOST_VALUES];
    size_t len[DS_LOCK_MOST_VALUES], n = 0;
    for (const char *p = s;; p++) {
        const size_t size = strcspn(p, ",| ");
        if (size == 0 || n == DS_LOCK_MOST_VALUES)
            return 0;
        for (size_t i = 0; i < n; i++)
            if (len[i] == size && memcmp(at[i], p, size) == 0)
                return 0;
        at[n] = p;
        len[n++] = size;
        p += size;
        if (!*p || *p == ' ')
            return !*p;
    }
}

/* "batch=4 threads=2", or "-". */
static int is_settings(const char *s)
{
    if (strcmp(s, "-") == 0)
        return 1;
    for (const char *p = s;; p++) {
        const size_t n = strcspn(p, " "), name = strcspn(p, "= ");
        if (name == 0 || name + 1 >= n || p[name] != '=')
            return 0;
        p += n;
        if (!*p)
            return 1;
    }
}

static int is_text(const char *s)
{
    (void)s;
    return 1;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static const struct ds_lock_kind kinds[] = {
    {"model", 1, 0, 0, is_text, "text"},
    {"hparam", 1, 0, 0, is_text, "text"},
    {"option", 1, 0, 0, is_text, "text"},
    {"arm", 1, DS_LOCK_INDEX, 0, is_settings, "FACTOR=VALUE ..."},
    {"prompt", 1, DS_LOCK_INDEX, 0, is_ids, "token ids, separated by commas"},
    {"text", 1, DS_LOCK_INDEX, 0, is_text, "text"},
    {"forced", 0, 0, 0, is_ids, "token ids, separated by commas"},
    {"key", 0, 0, 1, is_digest, "16 hex digits"},
    {"env", 1, 0, 1, is_text, "text"},
    {"count", 1, 0, 1, is_number, "a whole number"},
    {"kernel", 1, 0, 1, is_number, "a whole number"},
    {"class", 2, 0, 1, is_classes,
     "up to 1024 values of a factor, none twice: ',' within a class, '|' between two"},
    {"origin", 2, 0, 1, is_origin, "kind=KIND max_ulp=N layers=N"},
    {"nonfinite", 2, DS_LOCK_LAYER, 1, is_text, "text"},
    {"run", 1, DS_LOCK_INDEX, 1, is_digest_or_not, "16 hex digits, or 'unstable'"},
    {"step", 1, DS_LOCK_INDEX, 1, is_step, "token=ID margin=X noise=X top=ID:LOGPROB,..."},
    {"tensor", 2, DS_LOCK_LAYER, 1, is_tensor, "OP/VARIANT and 16 hex digits, or 'unstable'"},
};
_Static_assert(sizeof kinds / sizeof kinds[0] == DS_LOCK_KINDS, "all kinds of lines");

const struct ds_lock_kind *ds_lock_kind_of(const char *word, size_t n)
{
    for (size_t i = 0; i < DS_LOCK_KINDS; i++)
        if (strlen(kinds[i].word) == n && memcmp(kinds[i].word, word, n) == 0)
            return &kinds[i];
    return NULL;
}

const struct ds_lock_kind *ds_lock_kind_at(size_t i)
{
    return &kinds[i];
}
