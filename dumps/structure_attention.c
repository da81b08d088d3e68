/* structure_attention.c: which keys an attention row saw, found by computing it again from its query
 * and the cached rows. Owns the hypotheses window, length, missing and extra keys, empty slots, head
 * map, scale. First the reference must come out of it, so that nothing is claimed of an attention
 * that works otherwise.
 *
 * Sums in double, keys in ascending position. */
#include "dumps/structure_internal.h"

#include <math.h>
#include <stdio.h>

enum { MOST_KEYS = 2048, MOST_EMPTY = 64, MOST_KV_HEADS = 64 };

/* Which keys. Numbers are relative to the row's own position, so that one hypothesis can hold for
 * all rows. */
enum family {
    ALL,     /* 0..position */
    WINDOW,  /* the last n */
    SHORTER, /* all but the last n */
    FIRST,   /* the first n, whatever the position */
    BUT_AGO, /* all but the one n positions ago */
    BUT_AT,  /* all but the one at n */
    BEYOND,  /* n more, of later positions */
    EMPTY,   /* n more that hold zeros */
    PADS,    /* the last n of padding before the first token, too */
    ONE_HEAD /* all, but every head reads cached head n */,
    MODULO /* all; head h reads cached head h % kv_heads */,
    REVERSE, /* all; cached heads from the last to the first */
    SCALED   /* all; scores times a number */
};

struct keys {
    int family;
    int64_t n;
    double factor; /* SCALED */
};

static const struct keys plain = {ALL, 0, 1};

static uint32_t heads_of(const struct task *t)
{
    return t->s->width / t->s->head_dim;
}

static uint32_t cached_head(const struct task *t, const struct keys *k, uint32_t head)
{
    uint32_t kv = t->s->kv_heads;
    switch (k->family) {
    case ONE_HEAD:
        return (uint32_t)k->n % kv;
    case MODULO:
        return head % kv;
    case REVERSE:
        return kv - 1 - head / (heads_of(t) / kv);
    default:
        return head / (heads_of(t) / kv);
    }
}

static int sees(const struct keys *k, int64_t position, int64_t key)
{
    switch (k->family) {
    case WINDOW:
        return key <= position && key > position - k->n;
    case SHORTER:
        return key <= position - k->n;
    case FIRST:
        return key <= position && key < k->n;
    case BUT_AGO:
        return key <= position && key != position - k->n;
    case BUT_AT:
        return key <= position && key != k->n;
    case BEYOND:
        return key <= position + k->n;
    default:
        return key <= position;
    }
}

/* One head of row r over the keys, into out[head_dim]. -1: a key is not at hand. */
static int attend(const struct task *t, size_t r, uint32_t head, const struct keys *k, double *out)
{
    const struct ds_structure_row *row = &t->rows[r];
    uint32_t d = t->s->head_dim, at = cached_head(t, k, head) * d;
    const float *q = row->input + head * d;
    double sum = 0, most = -INFINITY, scale = (k->family == SCALED ? k->factor : 1) / sqrt(d);
    int64_t last = (int64_t)row->position + (k->family == BEYOND ? k->n : 0);
    const int64_t pads = k->family == PADS ? k->n : 0;
    if (last >= (int64_t)row->n_keys || pads > (int64_t)row->n_pads)
        return -1;
    for (uint32_t c = 0; c < d; c++)
        out[c] = 0;
    for (int64_t key = -pads; key <= last; key++) {
        double score = 0;
        if (!sees(k, row->position, key))
            continue;
        const float *key_row = key < 0 ? row->pad_k[row->n_pads + key] : row->k[key],
                    *value_row = key < 0 ? row->pad_v[row->n_pads + key] : row->v[key];
        if (!key_row || !value_row)
            return -1;
        for (uint32_t c = 0; c < d; c++)
            score += (double)q[c] * (double)key_row[at + c];
        score *= scale;
        if (score > most) { /* what was added so far shrinks */
            double shrink = exp(most - score);
            sum *= shrink;
            for (uint32_t c = 0; c < d; c++)
                out[c] *= shrink;
            most = score;
        }
        double weight = exp(score - most);
        sum += weight;
        for (uint32_t c = 0; c < d; c++)
            out[c] += weight * (double)value_row[at + c];
    }
    if (k->family == EMPTY) {
        double top = most > 0 ? most : 0;
        double shrink = exp(most - top);
        for (uint32_t c = 0; c < d; c++)
            out[c] *= shrink;
        sum = sum * shrink + (double)k->n * exp(-top);
    }
    for (uint32_t c = 0; c < d && sum > 0; c++)
        out[c] /= sum;
    return 0;
}

static int predict_keys(const struct task *t, size_t r, const void *how)
{
    uint32_t d = t->s->head_dim;
    if (!t->rows[r].input || !t->rows[r].k)
        return -1;
    for (uint32_t h = 0; h < heads_of(t); h++) {
        if (attend(t, r, h, how, t->sorted) != 0)
            return -1;
        for (uint32_t c = 0; c < d; c++)
            t->guess[h * d + c] = (float)t->sorted[c];
    }
    return 1;
}

/* Whether this is what the reference saw, in every row. */
static int is_reference(struct task *t, const struct keys *k)
{
    uint64_t n = 0, good = 0;
    for (size_t r = 0; r < t->n_rows; r++) {
        if (!t->off_in_row[r])
            continue;
        if (predict_keys(t, r, k) != 1)
            continue;
        for (uint32_t i = 0; i < t->s->width; i++)
            good += fabs((double)t->guess[i] - (double)t->rows[r].ref[i]) <=
                    2 * ds_structure_slack(t->s, t->rows[r].ref[i], t->rows[r].ref[i], t->rms[r]);
        n += t->s->width;
        if (good * 100 < n * 97)
            return 0;
    }
    return n > 0;
}

static void tell_keys(const struct keys *k, char *text, size_t size)
{
    const char *s = k->n == 1 ? "" : "s";
    long long n = (long long)k->n;
    switch (k->family) {
    case ALL:
        snprintf(text, size, "all keys");
        break;
    case WINDOW:
        snprintf(text, size, "the last %lld key%s", n, s);
        break;
    case SHORTER:
        snprintf(text, size, "all keys but the last %lld", n);
        break;
    case FIRST:
        snprintf(text, size, "only the first %lld key%s", n, s);
        break;
    case BUT_AGO:
        snprintf(text, size, "all keys but the one %lld before", n);
        break;
    case BUT_AT:
        snprintf(text, size, "all keys but that of position %lld", n);
        break;
    case BEYOND:
        snprintf(text, size, "%lld key%s of later positions too", n, s);
        break;
    case EMPTY:
        snprintf(text, size, "%lld empty key%s too", n, s);
        break;
    case PADS:
        if (n == 1)
            snprintf(text, size, "1 padding key too (position -1)");
        else
            snprintf(text, size, "%lld padding keys too (positions %lld to -1)", n, -n);
        break;
    case ONE_HEAD:
        snprintf(text, size, "every head reads cached head %lld", n);
        break;
    case MODULO:
        snprintf(text, size, "head h reads cached head h %% kv_heads");
        break;
    case REVERSE:
        snprintf(text, size, "head h reads cached heads in reverse order");
        break;
    default:
        text[0] = '\0';
    }
}

/* A quick look at one head of one row, before all are computed. */
static int is_plausible(const struct task *t, size_t r, const struct keys *k)
{
    uint32_t d = t->s->head_dim, i = 0, off = 0, back = 0;
    while (i < t->s->width && !is_off(t, r, i))
        i++;
    if (i == t->s->width || attend(t, r, i / d, k, t->sorted) != 0)
        return 0;
    for (uint32_t c = 0, at = i / d * d; c < d; c++) {
        off += (uint32_t)is_off(t, r, at + c);
        back += is_off(t, r, at + c) && fits(t, r, at + c, t->sorted[c]);
    }
    return 10 * back >= 8 * off;
}

static void claim_keys(struct task *t, const struct keys *mine, const struct keys *ref)
{
    char seen[64], instead[64];
    if (!is_plausible(t, t->probe, mine))
        return;
    double share = explains(t, predict_keys, mine);
    tell_keys(mine, seen, sizeof seen);
    tell_keys(ref, instead, sizeof instead);
    if (mine->family == ONE_HEAD || mine->family == MODULO || mine->family == REVERSE)
        claim(t, share, 0, "%s, not that of its group", seen);
    else if (mine->family == SCALED)
        claim(t, share, 0, "attention multiplies its scores by %.4g", mine->factor);
    else
        claim(t, share, 0, "attention sees %s where the reference sees %s", seen, instead);
}

/* The row with the fewest keys that has something to explain: it rules out most, soonest. */
static int64_t first_row(const struct task *t)
{
    int64_t best = -1;
    for (size_t r = 0; r < t->n_rows; r++)
        if (t->off_in_row[r] && t->rows[r].input && t->rows[r].k &&
            (best < 0 || t->rows[r].position < t->rows[best].position))
            best = (int64_t)r;
    return best;
}

/* What the reference saw: all keys, or a window. */
static int find_reference(struct task *t, struct keys *ref)
{
    int64_t r = first_row(t);
    *ref = plain;
    if (r < 0 || t->rows[r].position >= MOST_KEYS)
        return 0;
    if (is_reference(t, ref))
        return 1;
    for (int64_t n = 1; n <= t->rows[r].position; n++) {
        *ref = (struct keys){WINDOW, n, 1};
        if (is_reference(t, ref))
            return 1;
    }
    return 0;
}

/* The factor on the scores: the difference shrinks towards it from both sides, so it is found by
 * halving in the first head that is off. Squared distance at this factor: */
static double distance(const struct task *t, size_t r, double factor)
{
    struct keys k = {SCALED, 0, factor};
    double sum = 0;
    if (predict_keys(t, r, &k) != 1)
        return INFINITY;
    for (uint32_t i = 0; i < t->s->width; i++) {
        double x = (double)t->guess[i] - (double)t->rows[r].mine[i];
        sum += x * x;
    }
    return sum;
}

static double find_factor(const struct task *t, size_t r)
{
    double best = 1, least = INFINITY, step = 2;
    for (int e = -16; e <= 16; e++) {
        double x = distance(t, r, exp2(e / 4.0));
        if (x < least) {
            least = x;
            best = exp2(e / 4.0);
        }
    }
    for (step = exp2(0.125); step > 1 + 1e-9; step = sqrt(step))
        for (int side = -1; side <= 1; side += 2) {
            double f = side < 0 ? best / step : best * step, x = distance(t, r, f);
            if (x < least) {
                least = x;
                best = f;
            }
        }
    return best;
}

/* The last row that has something to explain: in it the most can be seen. */
static size_t last_row(const struct task *t, size_t first)
{
    size_t best = first;
    for (size_t r = 0; r < t->n_rows; r++)
        if (t->off_in_row[r] && t->rows[r].input && t->rows[r].k &&
            t->rows[r].position > t->rows[best].position)
            best = r;
    return best;
}

/* How many keys, from the first on, row r seems to have seen; 0: no number fits. */
static int64_t length_seen(const struct task *t, size_t r)
{
    for (int64_t n = t->rows[r].position; n >= 1; n--) {
        struct keys k = {FIRST, n, 1};
        if (is_plausible(t, r, &k))
            return n;
    }
    return 0;
}

static int predict_length(const struct task *t, size_t r, const void *how)
{
    (void)how;
    struct keys k = {FIRST, t->rows[r].input && t->rows[r].k ? length_seen(t, r) : 0, 1};
    return k.n ? predict_keys(t, r, &k) : 0;
}

struct kept { /* the longest run of rows that saw one number of keys */
    int64_t n;
    int32_t from, to; /* positions */
    uint32_t rows;
};

/* A length that was true once and is not renewed: the same for some rows, then another. */
static void try_lengths(struct task *t, const struct keys *ref)
{
    int64_t least = INT64_MAX, most = 0;
    struct kept run = {0}, longest = {0};
    for (size_t r = 0; r < t->n_rows; r++) {
        if (!t->off_in_row[r])
            continue;
        int64_t n = t->rows[r].input && t->rows[r].k ? length_seen(t, r) : 0;
        if (n == 0)
            return;
        least = n < least ? n : least;
        most = n > most ? n : most;
        if (n != run.n)
            run = (struct kept){.n = n, .from = t->rows[r].position};
        run.to = t->rows[r].position;
        run.rows++;
        longest = run.rows > longest.rows ? run : longest;
    }
    char instead[64], still[80] = "";
    tell_keys(ref, instead, sizeof instead);
    if (longest.rows > 1 && longest.to > longest.from)
        snprintf(still, sizeof still, ": %lld at positions %d to %d, the length of an earlier call",
                 (long long)longest.n, longest.from, longest.to);
    claim(t, explains(t, predict_length, NULL), 0,
          "attention sees only the first %lld to %lld keys where the reference sees %s%s",
          (long long)least, (long long)most, instead, still);
}

static void try_sets(struct task *t, const struct keys *ref, size_t last)
{
    static const int alone[] = {WINDOW, SHORTER, FIRST, BUT_AGO, BUT_AT};
    int64_t most = t->rows[last].position + 1;
    if (ref->family != ALL)
        claim_keys(t, &plain, ref);
    for (int64_t n = t->rows[last].n_pads; n >= 1 && ref->family == ALL && !t->best->found; n--) {
        struct keys padding = {PADS, n, 1};
        claim_keys(t, &padding, ref);
    }
    for (size_t f = 0; f < sizeof alone / sizeof *alone && most < MOST_KEYS; f++)
        for (int64_t n = alone[f] == BUT_AGO || alone[f] == BUT_AT ? 0 : 1;
             n <= most && !t->best->found; n++) {
            struct keys k = {alone[f], n, 1};
            if (k.family != ref->family || k.n != ref->n)
                claim_keys(t, &k, ref);
        }
    for (int64_t n = 1; n <= MOST_EMPTY && !t->best->found; n++) {
        struct keys empty = {EMPTY, n, 1}, beyond = {BEYOND, n, 1};
        claim_keys(t, &beyond, ref);
        claim_keys(t, &empty, ref);
    }
}

void try_attention(struct task *t)
{
    struct keys ref;
    if (t->s->head_dim == 0 || t->s->kv_heads == 0 || t->s->kv_heads > MOST_KV_HEADS ||
        heads_of(t) % t->s->kv_heads || !find_reference(t, &ref))
        return;
    size_t first = (size_t)first_row(t), last = last_row(t, first);
    t->probe = last;
    if (ref.family == ALL) {
        for (uint32_t n = 0; n < t->s->kv_heads && t->s->kv_heads > 1; n++) {
            struct keys one = {ONE_HEAD, n, 1};
            claim_keys(t, &one, &ref);
        }
        struct keys modulo = {MODULO, 0, 1}, reverse = {REVERSE, 0, 1};
        if (t->s->kv_heads > 1) {
            claim_keys(t, &modulo, &ref);
            claim_keys(t, &reverse, &ref);
        }
        struct keys scaled = {SCALED, 0, find_factor(t, last)};
        if (fabs(scaled.factor - 1) > 1e-3)
            claim_keys(t, &scaled, &ref);
    }
    if (!t->best->found)
        try_sets(t, &ref, last);
    if (!t->best->found && t->rows[last].position < MOST_KEYS)
        try_lengths(t, &ref);
}
