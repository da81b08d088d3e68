/* fingerprint_pair.c: which response of one file belongs to which of the other, whether their tokens are the same,
 * and the arrays that the numbers are computed from. Tokens come first: log-probabilities of other tokens, or of
 * tokens at other places, say nothing about each other. */
#include "cli/fingerprint.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *ds_fp_match_name(int match)
{
    static const char *const names[DS_FP_MATCHES] = {
        "equal", "other-token", "other-prompt", "missing-bos", "shifted", "re-tokenised", "ended"};
    return names[match];
}

/* ---- two sequences ------------------------------------------------------------------------------------ */

static int same_token(const struct ds_fp_token *a, const struct ds_fp_token *b)
{
    return a->id >= 0 && b->id >= 0 ? a->id == b->id : a->key == b->key;
}

/* How many tokens are equal from a[i], b[k] on, to the end of the shorter one. */
static size_t equal_from(const struct ds_fp_sequence *a, size_t i, const struct ds_fp_sequence *b,
                         size_t k)
{
    size_t n = 0;
    while (i + n < a->n_tokens && k + n < b->n_tokens &&
           same_token(&a->tokens[i + n], &b->tokens[k + n]))
        n++;
    return n;
}

static int is_bos(const struct ds_fp_token *t)
{
    static const char *const names[] = {
        "<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>", "[BOS]"};
    for (size_t i = 0; t->text && i < sizeof names / sizeof names[0]; i++)
        if (t->len == strlen(names[i]) && memcmp(t->text, names[i], t->len) == 0)
            return 1;
    return isnan(t->logprob); /* nothing stands before it */
}

/* One of them has up to eight tokens more at its beginning, and then all is equal. 1 if so. */
static int find_shift(struct ds_fp_pair *p)
{
    enum { MOST = 8, ENOUGH = 4 };
    for (size_t by = 1; by <= MOST; by++)
        for (int longer = 0; longer < 2; longer++) {
            const struct ds_fp_sequence *x = longer ? p->b : p->a, *y = longer ? p->a : p->b;
            if (x->n_tokens < by + ENOUGH || y->n_tokens < ENOUGH)
                continue;
            const size_t left = x->n_tokens - by, all = left < y->n_tokens ? left : y->n_tokens;
            if (equal_from(x, by, y, 0) < all)
                continue;
            p->match = by == 1 && is_bos(&x->tokens[0]) ? DS_FP_BOS : DS_FP_SHIFTED;
            p->by = by;
            p->longer = longer;
            p->equal = 0;
            return 1;
        }
    return 0;
}

/* The byte at some place of all tokens from `at` on; -1: behind them, or of a token whose text is not known. */
struct reader {
    const struct ds_fp_sequence *s;
    size_t token, byte;
};

static int next_byte(struct reader *r)
{
    while (r->token < r->s->n_tokens && r->s->tokens[r->token].text &&
           r->byte == r->s->tokens[r->token].len) {
        r->token++;
        r->byte = 0;
    }
    if (r->token >= r->s->n_tokens || !r->s->tokens[r->token].text)
        return -1;
    return (unsigned char)r->s->tokens[r->token].text[r->byte++];
}

/* Whether the bytes go on equal beyond the two tokens that differ. */
static int same_text(const struct ds_fp_pair *p)
{
    struct reader a = {p->a, p->equal, 0}, b = {p->b, p->equal, 0};
    for (;;) {
        const int x = next_byte(&a), y = next_byte(&b);
        if (x < 0 || y < 0)
            return (x < 0 || a.token > p->equal) && (y < 0 || b.token > p->equal) &&
                   (a.token > p->equal || b.token > p->equal);
        if (x != y)
            return 0;
        if (a.token > p->equal && b.token > p->equal)
            return 1;
    }
}

/* By the ids of the prompts, where both are known. 1: they are not the same. */
static int find_prompt(struct ds_fp_pair *p)
{
    const struct ds_fp_sequence *a = p->a, *b = p->b;
    size_t i = 0;
    if (!a->n_prompt || !b->n_prompt)
        return 0;
    while (i < a->n_prompt && i < b->n_prompt && a->prompt[i] == b->prompt[i])
        i++;
    if (i == a->n_prompt && i == b->n_prompt)
        return 0;
    p->in_prompt = 1;
    p->match = DS_FP_PROMPT;
    p->at = i;
    p->equal = 0;
    for (int longer = 0; longer < 2; longer++) {
        const struct ds_fp_sequence *x = longer ? b : a, *y = longer ? a : b;
        if (x->n_prompt == y->n_prompt + 1 &&
            memcmp(x->prompt + 1, y->prompt, y->n_prompt * sizeof *y->prompt) == 0) {
            p->match = DS_FP_BOS;
            p->by = 1;
            p->longer = longer;
        }
    }
    return 1;
}

void ds_fp_align(struct ds_fp_pair *p)
{
    const struct ds_fp_sequence *a = p->a, *b = p->b;
    if (find_prompt(p))
        return;
    p->equal = p->at = equal_from(a, 0, b, 0);
    p->match = DS_FP_EQUAL;
    if (p->equal == a->n_tokens || p->equal == b->n_tokens) {
        const struct ds_fp_sequence *shorter = a->n_tokens < b->n_tokens ? a : b;
        if (a->n_tokens != b->n_tokens && shorter->stopped)
            p->match = DS_FP_ENDED;
        return;
    }
    if (p->equal <= 1 && find_shift(p))
        return;
    p->match = same_text(p) ? DS_FP_RETOKENIZED : DS_FP_OTHER_TOKEN;
}

/* ---- two files ---------------------------------------------------------------------------------------- */

static int same_request(const struct ds_fp_sequence *a, const struct ds_fp_sequence *b)
{
    return a->request && b->request && a->choice == b->choice &&
           strcmp(a->request, b->request) == 0;
}

static int by_request(const void *pa, const void *pb)
{
    const struct ds_fp_sequence *const *a = pa, *const *b = pb;
    const int c = strcmp((*a)->request, (*b)->request);
    return c                              ? c
           : (*a)->choice != (*b)->choice ? ((*a)->choice < (*b)->choice ? -1 : 1)
           : (*a)->line < (*b)->line      ? -1
                                          : (*a)->line > (*b)->line;
}

/* In the order of their requests; NULL in *out: some have none. */
static int sorted(const struct ds_fp_file *f, const struct ds_fp_sequence ***out,
                  struct ds_error *err)
{
    *out = NULL;
    for (size_t i = 0; i < f->n; i++)
        if (!f->sequences[i].request)
            return 0;
    *out = ds_calloc(f->n, sizeof **out, "responses", err);
    if (!*out)
        return -1;
    for (size_t i = 0; i < f->n; i++)
        (*out)[i] = &f->sequences[i];
    qsort(*out, f->n, sizeof **out, by_request);
    return 0;
}

static void add_pair(struct ds_fp_result *r, const struct ds_fp_sequence *a,
                     const struct ds_fp_sequence *b)
{
    if (a->failed || b->failed)
        return; /* neither has a partner */
    struct ds_fp_pair *p = &r->pairs[r->n_pairs++];
    *p = (struct ds_fp_pair){.a = a, .b = b};
    ds_fp_align(p);
    r->matches[p->match]++;
    if (p->match == DS_FP_EQUAL) {
        r->alone_a += a->n_tokens - p->equal;
        r->alone_b += b->n_tokens - p->equal;
    }
}

static void join(struct ds_fp_result *r, const struct ds_fp_sequence **a,
                 const struct ds_fp_sequence **b)
{
    size_t i = 0, k = 0;
    while (i < r->a->n && k < r->b->n) {
        if (same_request(a[i], b[k]))
            add_pair(r, a[i++], b[k++]);
        else if (by_request(&a[i], &b[k]) < 0)
            i++;
        else
            k++;
    }
}

/* A name that stands several times in a file says no more than the order does which of them belongs to whom. */
static size_t count_repeated(struct ds_fp_result *r, const struct ds_fp_sequence **list, size_t n)
{
    size_t repeated = 0;
    for (size_t i = 1; i < n; i++)
        if (same_request(list[i - 1], list[i])) {
            r->repeated = r->repeated ? r->repeated : list[i]->request;
            repeated++;
        }
    return repeated;
}

static int by_line(const void *pa, const void *pb)
{
    const struct ds_fp_pair *a = pa, *b = pb;
    return a->a < b->a ? -1 : a->a > b->a;
}

/* By what names requests, where names are shared (a server makes up an id of its own for each), else in order. */
static int make_pairs(struct ds_fp_result *r, struct ds_error *err)
{
    const struct ds_fp_sequence **a = NULL, **b = NULL;
    const size_t least = r->a->n < r->b->n ? r->a->n : r->b->n;
    r->pairs = ds_calloc(least + 1, sizeof *r->pairs, "pairs", err);
    int rc = r->pairs && sorted(r->a, &a, err) == 0 && sorted(r->b, &b, err) == 0 ? 0 : -1;
    if (rc == 0 && a && b) {
        join(r, a, b);
        r->repeated_a = r->n_pairs ? count_repeated(r, a, r->a->n) : 0;
        r->repeated_b = r->n_pairs ? count_repeated(r, b, r->b->n) : 0;
    }
    r->paired_by = rc == 0 && r->n_pairs && r->a->sequences[0].custom ? "custom_id" : "id";
    if (rc == 0 && r->n_pairs == 0) {
        if (r->a->sequences[0].custom && r->b->sequences[0].custom)
            rc = ds_fail(err, "%s and %s share no custom_id", r->a->path, r->b->path);
        r->paired_by = "order";
        for (size_t i = 0; rc == 0 && i < least; i++)
            add_pair(r, &r->a->sequences[i], &r->b->sequences[i]);
    }
    qsort(r->pairs, r->n_pairs, sizeof *r->pairs, by_line);
    r->unpaired_a = r->a->n - r->n_pairs;
    r->unpaired_b = r->b->n - r->n_pairs;
    free(a);
    free(b);
    return rc;
}

/* ---- the numbers -------------------------------------------------------------------------------------- */

static struct ds_lp_alternative *find_key(struct ds_lp_pairs *p, size_t first, uint64_t key)
{
    for (size_t i = first; i < p->n_alternatives; i++)
        if (p->alternatives[i].key == key)
            return &p->alternatives[i];
    return NULL;
}

/* The tokens that a sequence has had: open addressing, more than half of it empty. */
struct seen {
    uint64_t *keys;
    unsigned char *used;
    size_t mask;
};

static size_t seen_place(const struct seen *s, uint64_t key)
{
    size_t i = (size_t)key & s->mask;
    while (s->used[i] && s->keys[i] != key)
        i = (i + 1) & s->mask;
    return i;
}

static int seen_new(struct seen *s, size_t n, struct ds_error *err)
{
    size_t size = 8;
    while (size < 2 * n + 2)
        size *= 2;
    s->mask = size - 1;
    s->keys = ds_calloc(size, sizeof *s->keys, "tokens", err);
    s->used = ds_calloc(size, 1, "tokens", err);
    return s->keys && s->used ? 0 : -1;
}

static void seen_free(struct seen *s)
{
    free(s->keys);
    free(s->used);
}

static int put_alternative(struct ds_lp_pairs *p, size_t first, uint64_t key, double value,
                           int side, struct ds_error *err)
{
    struct ds_lp_alternative *x = find_key(p, first, key);
    if (!x) {
        if (ds_grow(&p->alternatives, &p->cap_alternatives, p->n_alternatives + 1,
                    sizeof *p->alternatives, "alternatives", err) != 0)
            return -1;
        x = &p->alternatives[p->n_alternatives++];
        *x = (struct ds_lp_alternative){key, (double)NAN, (double)NAN, 0};
    }
    *(side ? &x->b : &x->a) = value;
    return 0;
}

/* Position k of a pair: the chosen token, unless another one was chosen there, and the alternatives. */
static int put_position(struct ds_fp_result *r, size_t pair, size_t k, int chosen,
                        struct seen *before, struct ds_error *err)
{
    struct ds_lp_pairs *p = &r->positions;
    const struct ds_fp_token *t[2] = {&r->pairs[pair].a->tokens[k], &r->pairs[pair].b->tokens[k]};
    if (ds_grow(&p->positions, &p->cap, p->n + 1, sizeof *p->positions, "positions", err) != 0)
        return -1;
    struct ds_lp_position *q = &p->positions[p->n++];
    *q = (struct ds_lp_position){.sequence = (uint32_t)pair,
                                 .position = (uint32_t)k,
                                 .key = t[0]->key,
                                 .a = chosen ? t[0]->logprob : (double)NAN,
                                 .b = chosen ? t[1]->logprob : (double)NAN,
                                 .first = p->n_alternatives,
                                 .listed_a = (uint32_t)t[0]->n_alternatives,
                                 .listed_b = (uint32_t)t[1]->n_alternatives};
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < t[side]->n_alternatives; i++) {
            const struct ds_fp_alternative *x = &t[side]->alternatives[i];
            *(side ? &q->sum_b : &q->sum_a) += isnan(x->logprob) ? 0 : exp(x->logprob);
            if (put_alternative(p, q->first, x->key, x->logprob, side, err) != 0)
                return -1;
        }
    q->n = p->n_alternatives - q->first;
    for (size_t i = q->first; i < p->n_alternatives; i++)
        p->alternatives[i].seen = before->used[seen_place(before, p->alternatives[i].key)];
    const size_t here = seen_place(before, q->key);
    before->keys[here] = q->key;
    before->used[here] = 1;
    return 0;
}

static int put_pair(struct ds_fp_result *r, size_t pair, struct ds_error *err)
{
    const struct ds_fp_pair *p = &r->pairs[pair];
    struct seen before = {0};
    int rc = seen_new(&before, p->equal + 1, err);
    for (size_t k = 0; rc == 0 && k < p->equal; k++)
        rc = put_position(r, pair, k, 1, &before, err);
    if (rc == 0 && p->match == DS_FP_OTHER_TOKEN)
        rc = put_position(r, pair, p->equal, 0, &before, err);
    seen_free(&before);
    return rc;
}

static int put_positions(struct ds_fp_result *r, struct ds_error *err)
{
    for (size_t i = 0; i < r->n_pairs; i++)
        if (put_pair(r, i, err) != 0)
            return -1;
    return 0;
}

/* The least log-probability that a side lists beside the chosen token, which stands there whatever it has; a side that lists
 * nothing lacks nothing. */
static double least_listed(const struct ds_lp_pairs *p, const struct ds_lp_position *q, int side)
{
    double least = (double)INFINITY;
    for (size_t i = q->first; i < q->first + q->n; i++) {
        const double x = side ? p->alternatives[i].b : p->alternatives[i].a;
        if (p->alternatives[i].key != q->key && x < least)
            least = x;
    }
    return least;
}

/* Whether the alternatives of a position cannot be those of one distribution: another value of the same token, or one side
 * lacks a token that comes before one which it lists. */
static int other_alternatives(const struct ds_lp_pairs *p, const struct ds_lp_position *q)
{
    const double least[2] = {least_listed(p, q, 0), least_listed(p, q, 1)};
    for (size_t i = q->first; i < q->first + q->n; i++) {
        const struct ds_lp_alternative *x = &p->alternatives[i];
        if (isnan(x->a) ? x->b > least[0] : isnan(x->b) ? x->a > least[1] : x->a != x->b)
            return 1;
    }
    return 0;
}

static void count_alternatives(struct ds_fp_result *r)
{
    for (size_t i = 0; i < r->positions.n; i++)
        if (other_alternatives(&r->positions, &r->positions.positions[i]))
            r->others_at = r->others++ ? r->others_at : i;
}

static void count_one_sided(struct ds_fp_result *r)
{
    for (size_t i = 0; i < r->positions.n; i++) {
        const struct ds_lp_position *q = &r->positions.positions[i];
        if (q->position == 0 || !isnan(q->a) == !isnan(q->b))
            continue;
        r->one_sided_at = r->one_sided++ ? r->one_sided_at : i;
    }
}

struct columns {
    double *a, *b;
    size_t *at; /* index of the position */
    size_t n;
};

/* Of an infinity that both sides gave there is nothing to subtract: they are equal. */
static int equally_infinite(const struct ds_lp_position *q)
{
    return isinf(q->a) && q->a == q->b;
}

static void take(const struct ds_fp_result *r, size_t i, struct columns *c)
{
    const struct ds_lp_position *q = &r->positions.positions[i];
    if (isnan(q->a) || isnan(q->b))
        return;
    c->a[c->n] = equally_infinite(q) ? 0 : q->a;
    c->b[c->n] = equally_infinite(q) ? 0 : q->b;
    c->at[c->n++] = i;
}

/* All chosen tokens at positions `from` to `to`. */
static void collect(const struct ds_fp_result *r, size_t from, size_t to, struct columns *c)
{
    c->n = 0;
    for (size_t i = 0; i < r->positions.n; i++)
        if (r->positions.positions[i].position >= from && r->positions.positions[i].position <= to)
            take(r, i, c);
}

/* Sums of the tokens of each pair that was compared: log-probabilities of whole sequences. */
static void collect_sums(const struct ds_fp_result *r, struct columns *c)
{
    c->n = 0;
    size_t last = (size_t)-1;
    for (size_t i = 0; i < r->positions.n; i++) {
        const struct ds_lp_position *q = &r->positions.positions[i];
        if (isnan(q->a) || isnan(q->b))
            continue;
        if (q->sequence != last) {
            c->a[c->n] = c->b[c->n] = 0;
            c->n++;
            last = q->sequence;
        }
        c->a[c->n - 1] += equally_infinite(q) ? 0 : q->a;
        c->b[c->n - 1] += equally_infinite(q) ? 0 : q->b;
    }
}

static void find_worst(struct ds_fp_result *r, const struct columns *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct ds_lp_position *q = &r->positions.positions[c->at[i]];
        const double d = fabs(q->a - q->b);
        size_t k = r->n_worst;
        while (k > 0 && !(fabs(r->worst[k - 1].a - r->worst[k - 1].b) >= d))
            k--;
        if (k == DS_FP_WORST || !(d > 0))
            continue;
        const size_t kept = r->n_worst < DS_FP_WORST ? r->n_worst : DS_FP_WORST - 1;
        memmove(&r->worst[k + 1], &r->worst[k], (kept - k) * sizeof *r->worst);
        r->worst[k] = (struct ds_fp_worst){q->sequence, q->position, q->a, q->b};
        r->n_worst = kept + 1;
    }
}

/* 0, 1, 2-3, 4-7, ... */
static int fill_buckets(struct ds_fp_result *r, struct columns *c, struct ds_error *err)
{
    size_t most = 0;
    for (size_t i = 0; i < r->positions.n; i++)
        most =
            r->positions.positions[i].position > most ? r->positions.positions[i].position : most;
    for (size_t from = 0; from <= most && r->n_buckets < DS_FP_MOST_BUCKETS;
         from = from ? 2 * from : 1) {
        struct ds_fp_bucket *b = &r->buckets[r->n_buckets];
        b->from = from;
        b->to = from ? 2 * from - 1 : 0;
        collect(r, b->from, b->to, c);
        if (ds_logprob_compare(c->a, c->b, c->n, r->eps, &b->stats, err) != 0)
            return -1;
        r->n_buckets += c->n > 0;
    }
    return 0;
}

static int measure(struct ds_fp_result *r, struct columns *c, struct ds_error *err)
{
    collect(r, 0, (size_t)-1, c);
    if (ds_logprob_compare(c->a, c->b, c->n, r->eps, &r->tokens, err) != 0)
        return -1;
    find_worst(r, c);
    for (size_t pair = 0, i = 0; pair < r->n_pairs; pair++) {
        for (c->n = 0; i < r->positions.n && r->positions.positions[i].sequence == pair; i++)
            take(r, i, c);
        if (ds_logprob_compare(c->a, c->b, c->n, r->eps, &r->each[pair], err) != 0)
            return -1;
    }
    if (fill_buckets(r, c, err) != 0)
        return -1;
    collect_sums(r, c);
    return ds_logprob_compare(c->a, c->b, c->n, r->eps, &r->sequences, err);
}

int ds_fp_compare(const struct ds_fp_file *a, const struct ds_fp_file *b, double eps,
                  struct ds_fp_result *out, struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    out->a = a;
    out->b = b;
    out->eps = eps;
    if (make_pairs(out, err) != 0 || put_positions(out, err) != 0 ||
        !(out->each = ds_calloc(out->n_pairs + 1, sizeof *out->each, "pairs", err)))
        return -1;
    count_one_sided(out);
    count_alternatives(out);
    const size_t n = out->positions.n + 1;
    struct columns c = {ds_calloc(n, sizeof *c.a, "tokens", err),
                        ds_calloc(n, sizeof *c.b, "tokens", err),
                        ds_calloc(n, sizeof *c.at, "tokens", err), 0};
    int rc = c.a && c.b && c.at ? measure(out, &c, err) : -1;
    if (rc == 0)
        rc = ds_lp_causes(&out->positions, out->causes, &out->n_causes, err);
    free(c.a);
    free(c.b);
    free(c.at);
    return rc;
}

void ds_fp_result_free(struct ds_fp_result *r)
{
    free(r->pairs);
    free(r->each);
    ds_lp_pairs_free(&r->positions);
    memset(r, 0, sizeof *r);
}

int ds_fp_differs(const struct ds_fp_result *r)
{
    for (int m = DS_FP_OTHER_TOKEN; m < DS_FP_MATCHES; m++)
        if (r->matches[m])
            return 1;
    return r->tokens.first != (size_t)-1 || r->tokens.not_finite || r->one_sided || r->others;
}

int ds_fp_incomplete(const struct ds_fp_result *r)
{
    return r->unpaired_a || r->unpaired_b || r->alone_a || r->alone_b;
}
