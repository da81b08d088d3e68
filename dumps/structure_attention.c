/* structure_attention.c: which keys an attention row saw, found by computing it again from its query
 * and the cached rows. Owns the hypotheses window, length, missing and extra keys, empty slots, head
 * map, scale; structure_scores.c has more. First the reference must come out of it, so that nothing is
 * claimed of an attention that works otherwise; where it does not and the other side does, the sides are
 * exchanged, and what is found is the reference's. */
#include "dumps/profile.h"
#include "dumps/structure_attend.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_KEYS = 2048,
    FEW_KEYS = 512,
    MOST_EMPTY = 64,
    MOST_KV_HEADS = 64,
    MOST_BLOCK = 256,
    MOST_ROWS = 64
};

static const char *const coarse_text[COARSE_WAYS] = {"weights of the values",
                                                     "weights of the values",
                                                     "probabilities",
                                                     "scores",
                                                     "queries",
                                                     "keys",
                                                     "values"};
static const char *const few_bits_text[FEW_BITS] = {
    "bf16", "f16", "fp8-e4m3", "fp8-e4m3 (scaled by 448)", "fp8-e4m3 (scaled by 256)", "fp8-e5m2"};

static const struct keys plain = {.family = ALL};

/* Whether this is what the reference saw, in every row. */
static int is_reference(struct task *t, const struct keys *k)
{
    uint64_t n = 0, good = 0;
    for (size_t r = 0; r < t->n_rows; r++) {
        if (!t->off_in_row[r])
            continue;
        if (structure_predict_keys(t, r, k) != 1)
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

static const char *part_of(const struct keys *k)
{
    return k->parts == OF_KEYS ? "keys of " : k->parts == OF_VALUES ? "values of " : "";
}

void structure_tell_keys(const struct keys *k, int64_t first, char *text, size_t size)
{
    const char *s = k->n == 1 ? "" : "s";
    long long n = (long long)k->n;
    switch (k->family) {
    case ALL:
        snprintf(text, size, "all keys");
        break;
    case WINDOW:
        if (n == 1)
            snprintf(text, size, "the last key");
        else
            snprintf(text, size, "the last %lld keys", n);
        break;
    case SHORTER:
        snprintf(text, size, "all keys but the last %lld", n);
        break;
    case FIRST:
        if (n == 1)
            snprintf(text, size, "only the first key");
        else
            snprintf(text, size, "only the first %lld keys", n);
        break;
    case SINCE:
        snprintf(text, size, "only keys from position %lld on", n + (long long)first);
        break;
    case BUT_AGO:
        snprintf(text, size, "all keys but the one %lld before", n);
        break;
    case BUT_AT:
        snprintf(text, size, "all keys but that of position %lld", n + (long long)first);
        break;
    case BEYOND:
        snprintf(text, size, "%lld key%s of later positions too", n, s);
        break;
    case EMPTY:
        snprintf(text, size, "%lld empty key%s too", n, s);
        break;
    case PADS:
        if (n == 1)
            snprintf(text, size, "1 padding key too (position %lld)", (long long)first - 1);
        else
            snprintf(text, size, "%lld padding keys too (positions %lld to %lld)", n,
                     (long long)first - n, (long long)first - 1);
        break;
    case ONE_HEAD:
        snprintf(text, size, "every head reads %scached head %lld", part_of(k), n);
        break;
    case MODULO:
        snprintf(text, size, "head h reads %scached head h %% kv_heads", part_of(k));
        break;
    case REVERSE:
        snprintf(text, size, "head h reads %scached heads in reverse order", part_of(k));
        break;
    case TURNED_ON:
        snprintf(text, size, "heads read %sthe cached head %lld further on", part_of(k), n);
        break;
    default:
        text[0] = '\0';
    }
}

/* A quick look at one head of one row, before all are computed. */
int structure_plausible(const struct task *t, size_t r, const struct keys *k)
{
    uint32_t d = t->s->head_dim, i = 0, off = 0, back = 0;
    while (i < t->s->width && !is_off(t, r, i))
        i++;
    if (i == t->s->width || structure_attend(t, r, i / d, k, t->sorted) != 0)
        return 0;
    for (uint32_t c = 0, at = i / d * d; c < d; c++) {
        off += (uint32_t)is_off(t, r, at + c);
        back += is_off(t, r, at + c) && fits(t, r, at + c, t->sorted[c]);
    }
    return 10 * back >= 8 * off;
}

/* The row that is looked at first: the last one whose keys are at hand. */
size_t structure_probe_for(const struct task *t, const struct keys *k)
{
    const struct ds_structure_row *row = &t->rows[t->probe];
    size_t best = t->probe;
    int32_t last = -1;
    if (k->family != BEYOND || row->position + k->n < row->n_keys)
        if (k->family != BEYOND || row->k[row->position + k->n])
            return best;
    for (size_t r = 0; r < t->n_rows; r++) {
        row = &t->rows[r];
        if (t->off_in_row[r] && row->input && row->k && row->position > last &&
            row->position + k->n < row->n_keys && row->k[row->position + k->n]) {
            best = r;
            last = row->position;
        }
    }
    return best;
}

/* Where one cached head explains it and not all heads that should read another are off: which do. */
static int claim_heads(struct task *t, const struct keys *mine, double share)
{
    const uint32_t heads = heads_of(t), group = heads / t->s->kv_heads;
    char which[DS_PROFILE_TEXT];
    const uint32_t off = structure_heads_off(t, which);
    uint32_t others = 0;
    for (uint32_t h = 0; h < heads; h++)
        others += h / group != (uint32_t)mine->n;
    if (off >= others)
        return 0;
    claim(t, share, 0, "head%s %s read%s %scached head %lld, not that of %s group",
          off == 1 ? "" : "s", which, off == 1 ? "s" : "", part_of(mine), (long long)mine->n,
          off == 1 ? "its" : "their");
    return 1;
}

static void claim_keys(struct task *t, const struct keys *mine, const struct keys *ref)
{
    char seen[64], instead[64];
    if (!structure_sees_any(t, mine) || !structure_plausible(t, structure_probe_for(t, mine), mine))
        return;
    double share = explains(t, structure_predict_keys, mine);
    structure_tell_keys(t->turned ? ref : mine, t->s->first, seen, sizeof seen);
    structure_tell_keys(t->turned ? mine : ref, t->s->first, instead, sizeof instead);
    const char *whose = t->turned ? "the reference's attention" : "attention",
               *but = t->turned ? ", this one does not" : "";
    if (mine->family == ONE_HEAD && !t->turned && claim_heads(t, mine, share))
        return;
    if (mine->family == ONE_HEAD || mine->family == MODULO || mine->family == REVERSE ||
        mine->family == TURNED_ON) {
        structure_tell_keys(mine, t->s->first, seen, sizeof seen);
        claim(t, share, 0, "%s%s, not that of its group", t->turned ? "in the reference " : "",
              seen);
    } else if (mine->family == SCALED)
        claim(t, share, 0, "%s multiplies its scores by %.4g%s", whose, mine->factor, but);
    else if (mine->family == CAPPED)
        claim(t, share, 0, "%s caps its scores at %.4g, by a tanh%s", whose, mine->factor, but);
    else if (mine->family == COARSE)
        t->best->precision |= claim(t, share, 0, "%s rounds the %s to %s%s", whose,
                                    coarse_text[mine->n], few_bits_text[mine->dtype], but);
    else
        claim(t, share, 0, "attention sees %s where the reference sees %s", seen, instead);
}

/* The row with the fewest keys that has something to explain: it rules out most, soonest. */
int64_t structure_first_row(const struct task *t)
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
    int64_t r = structure_first_row(t);
    *ref = plain;
    if (r < 0 || t->rows[r].position >= MOST_KEYS)
        return 0;
    if (is_reference(t, ref))
        return 1;
    for (int64_t n = 1; n <= t->rows[r].position; n++) {
        *ref = (struct keys){.family = WINDOW, .n = n};
        if (is_reference(t, ref))
            return 1;
    }
    return 0;
}

static int is_head_off(const struct task *t, size_t r, uint32_t head)
{
    for (uint32_t c = 0; c < t->s->head_dim; c++)
        if (is_off(t, r, head * t->s->head_dim + c))
            return 1;
    return 0;
}

/* Squared distance of a head of row r, or of the whole row, to what k gives. */
static double distance(const struct task *t, size_t r, const struct keys *k, int64_t head)
{
    const uint32_t d = t->s->head_dim, heads = heads_of(t);
    double sum = 0;
    for (uint32_t h = 0; h < heads; h++) {
        if (head >= 0 ? h != (uint32_t)head : !is_head_off(t, r, h))
            continue; /* heads that are as they should be have no say in a number of the others */
        if (structure_attend(t, r, h, k, t->sorted) != 0)
            return INFINITY;
        for (uint32_t c = 0; c < d; c++) {
            double x = t->sorted[c] - (double)t->rows[r].mine[h * d + c];
            sum += x * x;
        }
    }
    return sum;
}

/* The difference shrinks towards the right number from both sides, so it is found by halving. */
double structure_fit(const struct task *t, size_t r, struct keys *k, double *number, int64_t head,
                     double from, int n)
{
    double best = from, least = INFINITY;
    for (int e = 0; e <= n; e++) {
        *number = from * exp2(e / 4.0);
        double x = distance(t, r, k, head);
        best = x < least ? *number : best;
        least = fmin(x, least);
    }
    for (double step = exp2(0.125); step > 1 + 1e-9; step = sqrt(step))
        for (int side = -1; side <= 1; side += 2) {
            *number = side < 0 ? best / step : best * step;
            double x = distance(t, r, k, head);
            best = x < least ? *number : best;
            least = fmin(x, least);
        }
    *number = best;
    return least;
}

double structure_find_factor(const struct task *t, size_t r, int family)
{
    struct keys k = {.family = family, .factor = 1};
    structure_fit(t, r, &k, &k.factor, -1, exp2(-4), 32);
    return k.factor;
}

/* The last row that has something to explain: in it the most can be seen. */
size_t structure_last_row(const struct task *t, size_t first)
{
    size_t best = first;
    for (size_t r = 0; r < t->n_rows; r++)
        if (t->off_in_row[r] && t->rows[r].input && t->rows[r].k &&
            t->rows[r].position > t->rows[best].position)
            best = r;
    return best;
}

/* The number that a family has for row r, as it seems: how many keys from the first on (FIRST, UPTO), or
 * from which position on (SINCE); 0: none fits. */
static int64_t number_seen(const struct task *t, size_t r, int family)
{
    for (int64_t n = t->rows[r].position + 2; family == UPTO && n <= t->rows[r].n_keys; n++) {
        struct keys k = {.family = family, .n = n};
        if (!t->rows[r].k[n - 1])
            return 0;
        if (structure_plausible(t, r, &k))
            return n;
    }
    if (family == UPTO)
        return 0;
    for (int64_t n = t->rows[r].position; n >= 1; n--) {
        struct keys k = {.family = family, .n = n};
        if (structure_plausible(t, r, &k))
            return n;
    }
    return 0;
}

static int predict_numbers(const struct task *t, size_t r, const void *how)
{
    const int family = *(const int *)how;
    struct keys k = {.family = family,
                     .n = t->rows[r].input && t->rows[r].k ? number_seen(t, r, family) : 0};
    return k.n ? structure_predict_keys(t, r, &k) : 0;
}

/* The size of blocks of keys that the rows' numbers are whole ones of: cut off (up 0), or filled up (1), at most to
 * `most`. All rows at positions between them must be as they should be there, or else be off, too. 0: none; one number
 * alone is none of blocks. */
static int64_t block_of(const struct task *t, const int64_t *number, int64_t most, int up)
{
    int32_t low = INT32_MAX, high = -1;
    int apart = 0;
    for (size_t r = 0; r < t->n_rows; r++)
        if (t->off_in_row[r]) {
            low = t->rows[r].position < low ? t->rows[r].position : low;
            high = t->rows[r].position > high ? t->rows[r].position : high;
            apart |= number[r] != most;
        }
    for (int64_t unit = 2; unit <= MOST_BLOCK && apart; unit++) {
        int fits = 1;
        for (int32_t p = low; p <= high && fits; p++) {
            const int64_t cut = (p + 1) / unit * unit,
                          full = (p + unit) / unit * unit < most ? (p + unit) / unit * unit : most;
            size_t r = 0;
            while (r < t->n_rows && (t->rows[r].position != p || !t->off_in_row[r]))
                r++;
            fits = r < t->n_rows ? number[r] == (up ? full : cut) : (up ? full : cut) == p + 1;
        }
        if (fits)
            return unit;
    }
    return 0;
}

struct kept { /* the longest run of rows that saw one number of keys */
    int64_t n;
    int32_t from, to; /* positions */
    uint32_t rows;
};

/* The numbers of all rows that are off, and the size of blocks that they are whole ones of (0: of none). 0: one has no
 * number. */
static int all_numbers(const struct task *t, int family, int64_t *least, int64_t *most,
                       struct kept *longest, int64_t *block)
{
    struct kept run = {0};
    int64_t number[MOST_ROWS];
    *block = 0;
    if (t->n_rows > MOST_ROWS)
        return 0;
    *least = INT64_MAX;
    *most = 0;
    for (size_t r = 0; r < t->n_rows; r++) {
        if (!t->off_in_row[r])
            continue;
        int64_t n = t->rows[r].input && t->rows[r].k ? number_seen(t, r, family) : 0;
        if (n == 0)
            return 0;
        number[r] = n;
        *least = n < *least ? n : *least;
        *most = n > *most ? n : *most;
        if (n != run.n)
            run = (struct kept){.n = n, .from = t->rows[r].position};
        run.to = t->rows[r].position;
        run.rows++;
        *longest = run.rows > longest->rows ? run : *longest;
    }
    *block = *most ? block_of(t, number, *most, family == UPTO) : 0;
    return 1;
}

/* A length that was true once and is not renewed, the same for some rows, then another; or a beginning:
 * rows of a chunk that see nothing of those before it. */
static void try_lengths(struct task *t, const struct keys *ref)
{
    int64_t least, most, block;
    struct kept longest = {0};
    int family = FIRST;
    char instead[64], still[80] = "";
    structure_tell_keys(ref, t->s->first, instead, sizeof instead);
    if (all_numbers(t, family, &least, &most, &longest, &block)) {
        if (block)
            claim(t, explains(t, predict_numbers, &family), 0,
                  "attention sees only whole blocks of %lld keys where the reference sees %s: what "
                  "is left over is not seen",
                  (long long)block, instead);
        if (longest.rows > 1 && longest.to > longest.from)
            snprintf(still, sizeof still,
                     ": %lld at positions %d to %d, the length of an earlier call",
                     (long long)longest.n, t->s->first + longest.from, t->s->first + longest.to);
        claim(t, explains(t, predict_numbers, &family), 0,
              "attention sees only the first %lld to %lld keys where the reference sees %s%s",
              (long long)least, (long long)most, instead, still);
        return;
    }
    family = SINCE;
    longest = (struct kept){0};
    if (all_numbers(t, family, &least, &most, &longest, &block) && longest.rows > 1)
        claim(
            t, explains(t, predict_numbers, &family), 0,
            "attention sees only keys from position %lld on at positions %d to %d (elsewhere from "
            "%lld to %lld) where the reference sees %s",
            (long long)longest.n + t->s->first, t->s->first + longest.from,
            t->s->first + longest.to, (long long)least + t->s->first, (long long)most + t->s->first,
            instead);
}

/* No mask: each row sees its whole call, or all that is in the cache by then. */
static void try_unmasked(struct task *t)
{
    const int family = UPTO;
    int64_t least, most, block;
    struct kept longest = {0};
    if (!all_numbers(t, family, &least, &most, &longest, &block))
        return;
    const double share = explains(t, predict_numbers, &family);
    if (block)
        claim(
            t, share, 0,
            "attention is not causal: rows see whole blocks of %lld keys, those of later positions "
            "too",
            (long long)block);
    else if (least == most)
        claim(t, share, 0,
              "attention is not causal: every row sees the first %lld keys, those of later "
              "positions too",
              (long long)least);
    else
        claim(t, share, 0,
              "attention is not causal: rows see the first %lld to %lld keys, those of later "
              "positions too",
              (long long)least, (long long)most);
}

static void try_sets(struct task *t, const struct keys *ref, size_t last)
{
    static const int alone[] = {WINDOW, SHORTER, FIRST, BUT_AGO, BUT_AT, SINCE};
    int64_t most = t->rows[last].position + 1;
    if (ref->family != ALL)
        claim_keys(t, &plain, ref);
    for (int64_t n = t->rows[last].n_pads; n >= 1 && ref->family == ALL && !t->best->found; n--) {
        struct keys padding = {.family = PADS, .n = n};
        claim_keys(t, &padding, ref);
    }
    for (size_t f = 0; f < sizeof alone / sizeof *alone && most < MOST_KEYS; f++)
        for (int64_t n = alone[f] == BUT_AGO || alone[f] == BUT_AT ? 0 : 1;
             n <= most && !t->best->found; n++) {
            struct keys k = {.family = alone[f], .n = n};
            if (k.family != ref->family || k.n != ref->n)
                claim_keys(t, &k, ref);
        }
    for (int64_t n = 1; n <= MOST_EMPTY && !t->best->found; n++) {
        struct keys empty = {.family = EMPTY, .n = n}, beyond = {.family = BEYOND, .n = n};
        claim_keys(t, &beyond, ref);
        claim_keys(t, &empty, ref);
    }
}

/* Another arithmetic between scores and values. */
static void try_scores(struct task *t, const struct keys *ref, size_t last)
{
    struct keys capped = {.family = CAPPED, .factor = structure_find_factor(t, last, CAPPED)};
    claim_keys(t, &capped, ref);
    for (int bits = 0; bits < FEW_BITS; bits++)
        for (int way = 0; way < COARSE_WAYS && !t->best->found; way++) {
            struct keys coarse = {.family = COARSE, .n = way, .dtype = bits};
            claim_keys(t, &coarse, ref);
        }
}

/* Which cached head is read, or only its keys, or only its values. */
static void try_head_maps(struct task *t, const struct keys *ref, int parts)
{
    const uint32_t heads = t->s->kv_heads;
    for (uint32_t n = 0; n < heads && !t->best->found; n++) {
        struct keys one = {.family = ONE_HEAD, .parts = parts, .n = n};
        claim_keys(t, &one, ref);
    }
    struct keys modulo = {.family = MODULO, .parts = parts},
                reverse = {.family = REVERSE, .parts = parts};
    claim_keys(t, &modulo, ref);
    claim_keys(t, &reverse, ref);
    for (uint32_t n = 1; n < heads && !t->best->found; n++) {
        struct keys turned = {.family = TURNED_ON, .parts = parts, .n = n};
        claim_keys(t, &turned, ref);
    }
}

static void try_keys(struct task *t, const struct keys *ref, size_t last)
{
    if (ref->family == ALL) {
        for (int parts = 0; parts < PARTS && t->s->kv_heads > 1; parts++)
            try_head_maps(t, ref, parts);
        struct keys scaled = {.family = SCALED, .factor = structure_find_factor(t, last, SCALED)};
        if (fabs(scaled.factor - 1) > 1e-3)
            claim_keys(t, &scaled, ref);
        if (!t->best->found && t->rows[last].position < FEW_KEYS)
            try_scores(t, ref, last);
    }
    if (!t->best->found)
        try_sets(t, ref, last);
}

/* All hypotheses, if the reference's rows are what is expected of attention. 1: they are; -1: out of memory. */
static int try_side(struct task *t, struct ds_error *err)
{
    struct keys ref;
    if (!find_reference(t, &ref))
        return 0;
    const size_t first = (size_t)structure_first_row(t), last = structure_last_row(t, first);
    t->probe = last;
    try_keys(t, &ref, last);
    if (!t->best->found && t->rows[last].position < MOST_KEYS && !t->turned)
        try_unmasked(t);
    if (!t->best->found && t->rows[last].position < MOST_KEYS && !t->turned)
        try_lengths(t, &ref);
    if (!t->best->found && t->rows[last].position < FEW_KEYS && ref.family == ALL) {
        try_cached_rows(t, first, last);
        if (!t->best->found)
            try_weights(t, first, last);
        if (!t->best->found && try_other_scores(t, last, err) != 0)
            return -1;
    }
    return 1;
}

static void exchange(struct ds_structure_row *rows, size_t n)
{
    for (size_t r = 0; r < n; r++) {
        const float *mine = rows[r].mine;
        rows[r].mine = rows[r].ref;
        rows[r].ref = mine;
    }
}

/* Where what was found is so of some heads only, it is said of which: those that are off, if the others are as they
 * should be. */
static void tell_which_heads(struct task *t)
{
    char which[DS_PROFILE_TEXT];
    const uint32_t off = t->best->found ? structure_heads_off(t, which) : UINT32_MAX;
    const size_t n = strlen(t->best->text);
    if (off == UINT32_MAX || off == 0 || off == heads_of(t) || strstr(t->best->text, " head"))
        return;
    snprintf(t->best->text + n, sizeof t->best->text - n, " (head%s %s only)", off == 1 ? "" : "s",
             which);
}

int try_attention(struct task *t, struct ds_error *err)
{
    const struct ds_structure_row *rows = t->rows;
    if (t->s->head_dim == 0 || t->s->kv_heads == 0 || t->s->kv_heads > MOST_KV_HEADS ||
        heads_of(t) % t->s->kv_heads)
        return 0;
    int rc = try_side(t, err);
    tell_which_heads(t);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    struct ds_structure_row *turned = ds_calloc(t->n_rows, sizeof *turned, "structure", err);
    if (!turned)
        return -1;
    memcpy(turned, rows, t->n_rows * sizeof *turned);
    exchange(turned, t->n_rows);
    t->rows = turned;
    t->turned = 1;
    structure_look(t);
    rc = try_side(t, err);
    tell_which_heads(t);
    t->rows = rows;
    t->turned = 0;
    structure_look(t);
    if (rc == 0)
        try_both(t, turned);
    free(turned);
    return rc < 0 ? -1 : 0;
}
