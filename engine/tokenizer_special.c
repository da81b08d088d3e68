/* tokenizer_special.c: finds special tokens written out in a text. Knows token texts and types;
 * knows no patterns.
 *
 * As in llama.cpp: the longest special token is taken out of the whole text first, then the next in
 * what is left between, so
 * "<|a|>" wins over "|a|" even where the shorter one starts earlier. User-defined tokens are always
 * taken out, control and unknown tokens only when special tokens are to be parsed. */
#include "engine/tokenizer_impl.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct named {
    const char *text;
    size_t len;
    struct ds_special special;
};

static int by_text(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->text, y->text, n);
    return order != 0 ? order : x->len < y->len ? -1 : x->len > y->len;
}

static int by_length(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    if (x->len != y->len)
        return x->len > y->len ? -1 : 1;
    return x->special.token < y->special.token ? -1 : x->special.token > y->special.token;
}

static int is_special(int type)
{
    return type == DS_TOKEN_CONTROL || type == DS_TOKEN_USER || type == DS_TOKEN_UNKNOWN;
}

/* Of tokens with the same text only the lowest id counts, and an empty one never. */
static int counts(const struct ds_tokenizer *t, int32_t id)
{
    const struct ds_piece *piece = &t->pieces.list[t->token_piece[id]];
    return is_special(t->token_type[id]) && piece->len > 0 && piece->token == id;
}

int ds_specials_init(struct ds_tokenizer *t, struct ds_error *err)
{
    struct ds_specials *s = &t->specials;
    size_t n = 0;
    for (int32_t id = 0; id < t->n_tokens; id++)
        n += (size_t)counts(t, id);
    struct named *all = ds_calloc(n, sizeof *all, "special tokens", err);
    s->by_text = ds_calloc(n, sizeof *s->by_text, "special tokens", err);
    s->by_order = ds_calloc(n, sizeof *s->by_order, "special tokens", err);
    if (all == NULL || s->by_text == NULL || s->by_order == NULL) {
        free(all);
        return -1;
    }
    for (int32_t id = 0; id < t->n_tokens; id++)
        if (counts(t, id)) {
            struct named *one = &all[s->count++];
            one->text = ds_token_text(t, id, &one->len);
            one->special = (struct ds_special){id, 0, t->token_type[id] == DS_TOKEN_USER};
        }
    qsort(all, n, sizeof *all, by_length);
    for (size_t i = 0; i < n; i++)
        all[i].special.order = (uint32_t)i;
    qsort(all, n, sizeof *all, by_text);
    for (size_t i = 0; i < n; i++) {
        s->by_text[i] = all[i].special;
        s->by_order[all[i].special.order] = (uint32_t)i;
    }
    free(all);
    return 0;
}

/* ---- which of them occur at all -------------------------------------------------------------- */

static size_t special_text(const struct ds_tokenizer *t, size_t i, const char **text)
{
    size_t len;
    *text = ds_token_text(t, t->specials.by_text[i].token, &len);
    return len;
}

/* First of [lo, hi), all equal in their first `depth` bytes, whose next byte is at least (or, if
 * `above`, greater than) c. */
static size_t narrow(const struct ds_tokenizer *t, size_t lo, size_t hi, size_t depth,
                     unsigned char c, int above)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const char *text;
        size_t len = special_text(t, mid, &text);
        if (len > depth &&
            ((unsigned char)text[depth] > c || (!above && (unsigned char)text[depth] == c)))
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* Marks every special token that begins at text[0]: walks down the sorted table byte by byte. */
static void mark_at(const struct ds_tokenizer *t, const char *text, size_t n, unsigned char *seen)
{
    size_t lo = 0, hi = t->specials.count;
    for (size_t depth = 0; depth < n && lo < hi; depth++) {
        lo = narrow(t, lo, hi, depth, (unsigned char)text[depth], 0);
        hi = narrow(t, lo, hi, depth, (unsigned char)text[depth], 1);
        const char *first;
        if (lo < hi && special_text(t, lo, &first) == depth + 1)
            seen[lo] = 1;
    }
}

static void mark_all(const struct ds_tokenizer *t, const char *text, size_t n, unsigned char *seen)
{
    unsigned char starts[256] = {0};
    for (size_t i = 0; i < t->specials.count; i++) {
        const char *first;
        special_text(t, i, &first);
        starts[(unsigned char)first[0]] = 1;
    }
    for (size_t i = 0; i < n; i++)
        if (starts[(unsigned char)text[i]])
            mark_at(t, text + i, n - i, seen);
}

/* ---- taking them out ------------------------------------------------------------------------- */

struct fragments {
    struct ds_fragment *list;
    size_t count, cap;
};

static int add(struct fragments *f, size_t begin, size_t end, int32_t token, struct ds_error *err)
{
    if (begin == end)
        return 0;
    if (f->count == f->cap &&
        ds_grow(&f->list, &f->cap, f->count + 1, sizeof *f->list, "text fragments", err) != 0)
        return -1;
    f->list[f->count++] = (struct ds_fragment){begin, end, token};
    return 0;
}

static int take_out(const struct ds_tokenizer *t, int32_t token, const char *text,
                    const struct fragments *in, struct fragments *out, struct ds_error *err)
{
    size_t len;
    const char *name = ds_token_text(t, token, &len);
    out->count = 0;
    for (size_t i = 0; i < in->count; i++) {
        struct ds_fragment f = in->list[i];
        const char *hit;
        while (f.token < 0 && (hit = memmem(text + f.begin, f.end - f.begin, name, len)) != NULL) {
            size_t at = (size_t)(hit - text);
            if (add(out, f.begin, at, -1, err) != 0 || add(out, at, at + len, token, err) != 0)
                return -1;
            f.begin = at + len;
        }
        if (add(out, f.begin, f.end, f.token, err) != 0)
            return -1;
    }
    return 0;
}

static int split(const struct ds_tokenizer *t, const char *text, size_t n, int parse_special,
                 const unsigned char *seen, struct fragments *now, struct ds_error *err)
{
    struct fragments next = {0};
    int rc = add(now, 0, n, -1, err);
    for (size_t k = 0; k < t->specials.count && rc == 0; k++) {
        size_t i = t->specials.by_order[k];
        const struct ds_special *s = &t->specials.by_text[i];
        if (!seen[i] || !(parse_special || s->always))
            continue;
        rc = take_out(t, s->token, text, now, &next, err);
        struct fragments old = *now;
        *now = next;
        next = old;
    }
    free(next.list);
    return rc;
}

int ds_specials_split(const struct ds_tokenizer *t, const char *text, size_t n, int parse_special,
                      struct ds_fragment **out, size_t *count, struct ds_error *err)
{
    struct fragments now = {0};
    unsigned char *seen = ds_calloc(t->specials.count, 1, "special tokens", err);
    if (seen == NULL)
        return -1;
    mark_all(t, text, n, seen);
    int rc = split(t, text, n, parse_special, seen, &now, err);
    free(seen);
    if (rc != 0) {
        free(now.list);
        return -1;
    }
    *out = now.list;
    *count = now.count;
    return 0;
}
