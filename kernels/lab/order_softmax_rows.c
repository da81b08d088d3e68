/* order_softmax_rows.c: the order in which softmax adds exp(x - max), asked as order_softmax.c asks
 * attention's denominator: a term of 1, two that it swallows one by one but not together, all others
 * 0.
 *
 * The replay needs the terms' bits, and exp is the kernel's own. They are read from its outputs: in a
 * row of 0, one d and otherwise terms of 0 the sum is 1 + e, whatever the order, and the outputs are
 * 1/(1 + e) and e/(1 + e) rounded. Only a d whose two outputs belong to one single float e is used;
 * e is read in the row and at the place where it is used, since lanes and tails may have an exp each.
 * Then the whole row has these d: its sum is what the tree makes of the e, and every output is
 * held against e divided by it.
 *
 * That is a launch or two for every place. Most kernels have one exp: so some d are read at one place and
 * used at all of them, and only if that does not give every output, each place is read. */
#include "kernels/lab/order_ops.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/order_replay.h"
#include "kernels/lab/order_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float LOW = -200.0f;
static const float SMALL = -17.14641f; /* log(0.6 * 2^-24) */
enum {
    WANTED = 4096,
    SUMS_WANTED = 16,
    MOST_PROOFS = 16,
    TRIES = 16,
    NEAR = 64,
    FORMS = 2,
    SHARED = 96
};

static const char NOT_REPLAYED[] = "not replayed: no exp is to be told from the outputs";
static const char REPLAYED[] = "replayed with the exp that its outputs show";

struct soft {
    struct ds_order_call call;
    struct ds_softmax_args a;
    float *x, *y;
    int64_t rows, width;
    int64_t row; /* the one that is asked */
    uint64_t launches, rng;
    /* The replay: */
    float *e[FORMS]; /* [rows][width], by how the outputs follow from them */
    float *d;        /* [rows][width] */
    int64_t *most;   /* [rows]: where the 0 is */
    int alive[FORMS];
    int by_place; /* one exp for all places did not do */
};

static float finish(int form, float e, float sum)
{
    return form == 0 ? e / sum : e * (1.0f / sum);
}

static uint32_t draw(struct soft *s)
{
    s->rng = s->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s->rng >> 32);
}

static float unit(struct soft *s) /* 0..1, 24 bits */
{
    return (float)(draw(s) >> 8) * 0x1p-24f;
}

static int launch(void *self, struct ds_error *err)
{
    struct soft *s = self;
    s->launches++;
    return ds_order_launch(&s->call, &s->a, err);
}

static void fill(void *self, uint64_t seed, int same_rows)
{
    struct soft *s = self;
    s->rng = seed * 0x9e3779b97f4a7c15u + 7;
    for (int64_t i = 0; i < s->rows * s->width; i++)
        s->x[i] = same_rows && i >= s->width ? s->x[i - s->width] : unit(s) * 4.0f - 2.0f;
}

static void clear(struct soft *s)
{
    for (int64_t i = 0; i < s->rows * s->width; i++)
        s->x[i] = LOW;
}

/* ---- questions ------------------------------------------------------------------------------- */

static int below(void *self, int32_t i, int32_t j, int32_t k, struct ds_error *err)
{
    struct soft *s = self;
    float *x = s->x + s->row * s->width;
    const float *y = s->y + s->row * s->width + i;
    x[i] = 0.0f;
    x[j] = x[k] = SMALL;
    int rc = launch(s, err), answer = -1;
    if (rc == 0)
        answer = *y == 1.0f ? 0 : *y == 1.0f / (1.0f + 0x1p-23f) ? 1 : -1;
    x[i] = x[j] = x[k] = LOW;
    if (rc == 0 && answer < 0)
        ds_fail(err, "terms %d, %d and %d gave %.9g, not 1 over a sum", i, j, k, (double)*y);
    return rc == 0 && answer < 0 ? DS_NO_ORDER : answer;
}

static int measure_tree(struct soft *s, struct ds_order_class *cls, struct ds_order_library *lib,
                        struct ds_error *err)
{
    struct ds_triples q = {s, s->width, below};
    struct ds_tree t;
    struct ds_error why = {{0}, {0}};
    s->row = cls->row;
    clear(s);
    int known = ds_order_find_triples(&q, lib, &cls->tree, err);
    if (known)
        return known < 0 ? -1 : 0;
    int rc = ds_recover_triples(&q, &t, &why);
    if (rc > 0)
        memcpy(cls->why, why.msg, sizeof cls->why - 1);
    else if (rc < 0)
        *err = why;
    if (rc != 0)
        return rc > 0 ? 0 : -1;
    /* No term is -0: a start from +0 leaves no trace. */
    t.zero_start = 0;
    ds_tree_seal(&t);
    cls->tree = ds_order_library_put(lib, &t, err);
    return cls->tree < 0 ? -1 : 0;
}

/* ---- exp, read from outputs ------------------------------------------------------------------ */

/* How many floats e near exp(d) explain both outputs; *e: one of them. */
static int explain(int form, float d, float y_most, float y, float *e)
{
    uint32_t bits = ds_f32_bits((float)exp((double)d));
    int found = 0;
    for (uint32_t b = bits - NEAR; b <= bits + NEAR; b++) {
        float f = ds_f32_from_bits(b), sum = 1.0f + f;
        if (ds_f32_bits(finish(form, 1.0f, sum)) == ds_f32_bits(y_most) &&
            ds_f32_bits(finish(form, f, sum)) == ds_f32_bits(y)) {
            *e = f;
            found++;
        }
    }
    return found;
}

/* What row r shows of the term at i. 1: known under every formula that is left. */
static int read_term(struct soft *s, int64_t r, int64_t i)
{
    const float *y = s->y + r * s->width;
    int known = 1;
    for (int f = 0; f < FORMS; f++) {
        int n = s->alive[f] ? explain(f, s->d[r * s->width + i], y[s->most[r]], y[i],
                                      &s->e[f][r * s->width + i])
                            : 1;
        s->alive[f] &= n > 0;
        known &= n <= 1;
    }
    return known;
}

/* The terms at place i of all rows. One that stays unknown is left out: LOW, and 0. */
static int read_place(struct soft *s, int64_t i, struct ds_error *err)
{
    int64_t left = 0;
    for (int64_t r = 0; r < s->rows; r++) {
        s->d[r * s->width + i] = s->most[r] == i ? 0.0f : LOW;
        for (int f = 0; f < FORMS; f++)
            s->e[f][r * s->width + i] = s->most[r] == i ? 1.0f : 0.0f;
        left += s->most[r] != i;
    }
    for (int t = 0; t < TRIES && left > 0; t++) {
        for (int64_t r = 0; r < s->rows; r++)
            if (s->d[r * s->width + i] == LOW)
                s->x[r * s->width + i] = -2.1f - 2.0f * unit(s);
        if (launch(s, err) != 0)
            return -1;
        for (int64_t r = 0; r < s->rows; r++) {
            int64_t at = r * s->width + i;
            if (s->d[at] != LOW)
                continue;
            s->d[at] = s->x[at];
            if (read_term(s, r, i)) {
                s->x[at] = LOW;
                left--;
                continue;
            }
            s->d[at] = LOW;
            for (int f = 0; f < FORMS; f++)
                s->e[f][at] = 0.0f;
        }
    }
    for (int64_t r = 0; r < s->rows; r++)
        s->x[r * s->width + i] = s->most[r] == i ? 0.0f : LOW;
    return 0;
}

/* A row of inputs for every row of the call, with their terms. */
static int read_terms(struct soft *s, uint64_t seed, struct ds_error *err)
{
    int rc = 0;
    s->rng = seed * 0x9e3779b97f4a7c15u + 7;
    clear(s);
    for (int64_t r = 0; r < s->rows; r++) {
        s->most[r] = (int64_t)(draw(s) % (uint64_t)s->width);
        s->x[r * s->width + s->most[r]] = 0.0f;
    }
    for (int64_t i = 0; i < s->width && rc == 0 && (s->alive[0] || s->alive[1]); i++)
        rc = read_place(s, i, err);
    return rc;
}

/* Some d with their e, each read in the first row that is free; returns how many, or -1. */
static int read_some(struct soft *s, float d[SHARED], float e[FORMS][SHARED], struct ds_error *err)
{
    const int64_t at = 0, most = 1;
    int n = 0;
    clear(s);
    for (int64_t r = 0; r < s->rows; r++) {
        s->most[r] = most;
        s->x[r * s->width + most] = 0.0f;
    }
    for (int t = 0; t < SHARED * 2 && n < SHARED && (s->alive[0] || s->alive[1]); t++) {
        for (int64_t r = 0; r < s->rows; r++)
            s->x[r * s->width + at] = -2.1f - 2.0f * unit(s);
        if (launch(s, err) != 0)
            return -1;
        for (int64_t r = 0; r < s->rows && n < SHARED; r++) {
            const int64_t place = r * s->width + at;
            s->d[place] = s->x[place];
            if (!read_term(s, r, at))
                continue;
            d[n] = s->d[place];
            for (int f = 0; f < FORMS; f++)
                e[f][n] = s->e[f][place];
            n++;
        }
    }
    return n;
}

/* Every row of these d at random. 1: d and e are filled; 0: too few could be read. */
static int read_shared(struct soft *s, uint64_t seed, struct ds_error *err)
{
    float d[SHARED], e[FORMS][SHARED];
    s->rng = seed * 0x9e3779b97f4a7c15u + 7;
    const int n = s->width > 1 ? read_some(s, d, e, err) : 0;
    if (n < SHARED / 2)
        return n < 0 ? -1 : 0;
    for (int64_t r = 0; r < s->rows; r++) {
        s->most[r] = (int64_t)(draw(s) % (uint64_t)s->width);
        for (int64_t i = 0; i < s->width; i++) {
            const uint32_t which = draw(s) % (uint32_t)n;
            s->d[r * s->width + i] = i == s->most[r] ? 0.0f : d[which];
            for (int f = 0; f < FORMS; f++)
                s->e[f][r * s->width + i] = i == s->most[r] ? 1.0f : e[f][which];
        }
    }
    return 1;
}

/* ---- replay ---------------------------------------------------------------------------------- */

struct tally {
    uint64_t compared, reproduced[FORMS];
};

static int prove_class(struct soft *s, const struct ds_order_sum *sum, int32_t c,
                       const struct ds_order_library *lib, struct tally *tally,
                       struct ds_error *err)
{
    const int32_t tree = sum->classes[c].tree;
    struct ds_replay replay = {0};
    if (tree >= 0 && ds_replay_compile(lib->tree[tree], lib->tree[tree]->root, &replay, err) != 0)
        return -1;
    float *ones = ds_alloc_aligned((size_t)s->width, sizeof *ones, "the replay", err);
    float *room = ds_alloc_aligned(ds_replay_room(&replay) + 1, sizeof *room, "the replay", err);
    int rc = ones && room ? 0 : -1;
    for (int64_t i = 0; i < s->width && rc == 0; i++)
        ones[i] = 1.0f;
    for (int64_t r = 0; r < s->rows && rc == 0; r++) {
        if (sum->class_of[r] != c)
            continue;
        tally->compared += (uint64_t)s->width;
        for (int f = 0; f < FORMS && tree >= 0; f++) {
            const float *e = s->e[f] + r * s->width, *y = s->y + r * s->width;
            float total = s->alive[f] ? ds_replay_one(&replay, e, ones, room) : 0.0f;
            for (int64_t i = 0; i < s->width && s->alive[f]; i++)
                tally->reproduced[f] += ds_f32_bits(y[i]) == ds_f32_bits(finish(f, e[i], total));
        }
    }
    free(ones);
    free(room);
    ds_replay_free(&replay);
    return rc;
}

/* The formula that explains most is the kernel's. */
static void count(const struct soft *s, struct ds_order_sum *sum, const struct tally *tally)
{
    uint64_t of[FORMS] = {0};
    for (size_t c = 0; c < sum->n_classes; c++)
        for (int f = 0; f < FORMS; f++)
            of[f] += s->alive[f] ? tally[c].reproduced[f] : 0;
    const int form = of[1] > of[0];
    for (size_t c = 0; c < sum->n_classes && (s->alive[0] || s->alive[1]); c++) {
        sum->classes[c].compared = tally[c].compared;
        sum->classes[c].reproduced = s->alive[form] ? tally[c].reproduced[form] : 0;
        sum->compared += sum->classes[c].compared;
        sum->reproduced += sum->classes[c].reproduced;
    }
    sum->note = sum->compared ? REPLAYED : NOT_REPLAYED;
}

/* The rows that d says, launched and replayed. */
static int prove_rows(struct soft *s, const struct ds_order_library *lib, struct ds_order_sum *sum,
                      struct tally *tally, struct ds_error *err)
{
    memcpy(s->x, s->d, (size_t)(s->rows * s->width) * sizeof *s->x);
    int rc = launch(s, err);
    for (size_t c = 0; c < sum->n_classes && rc == 0; c++)
        rc = prove_class(s, sum, (int32_t)c, lib, &tally[c], err);
    return rc;
}

/* Whether one formula explains all outputs of all classes. */
static int explains_all(const struct soft *s, const struct ds_order_sum *sum,
                        const struct tally *tally)
{
    int all[FORMS];
    for (int f = 0; f < FORMS; f++) {
        all[f] = s->alive[f];
        for (size_t c = 0; c < sum->n_classes; c++)
            all[f] &= tally[c].reproduced[f] == tally[c].compared;
    }
    return all[0] || all[1];
}

/* With one exp for all places: 1 = every output came out, and *tally has it; 0: it is of no use here. */
static int prove_shared(struct soft *s, const struct ds_order_library *lib,
                        struct ds_order_sum *sum, uint64_t seed, struct tally *tally,
                        struct ds_error *err)
{
    const int alive[FORMS] = {s->alive[0], s->alive[1]};
    struct tally *own = ds_calloc(sum->n_classes, sizeof *own, "the replay", err);
    int rc = own ? read_shared(s, seed, err) : -1;
    if (rc == 1)
        rc = prove_rows(s, lib, sum, own, err) == 0 ? explains_all(s, sum, own) : -1;
    for (size_t c = 0; c < sum->n_classes && rc == 1; c++) {
        tally[c].compared += own[c].compared;
        for (int f = 0; f < FORMS; f++)
            tally[c].reproduced[f] += own[c].reproduced[f];
    }
    free(own);
    if (rc == 0)
        memcpy(s->alive, alive, sizeof alive);
    return rc;
}

/* A row shows one sum, however many outputs it has; where each place is read that is dear. */
static int wants_more(const struct soft *s, int p)
{
    return p == 0 || p * s->rows * s->width < WANTED || (!s->by_place && p * s->rows < SUMS_WANTED);
}

static int prove(struct soft *s, const struct ds_order_library *lib, struct ds_order_sum *sum,
                 struct ds_error *err)
{
    struct tally *tally = ds_calloc(sum->n_classes, sizeof *tally, "the replay", err);
    int rc = tally ? 0 : -1;
    s->alive[0] = s->alive[1] = 1;
    for (int p = 0; p < MOST_PROOFS && rc == 0 && wants_more(s, p); p++) {
        const int shared =
            s->by_place ? 0 : prove_shared(s, lib, sum, 200 + (uint64_t)p, tally, err);
        if (shared != 0) {
            rc = shared < 0 ? -1 : 0;
            continue;
        }
        s->by_place = 1;
        rc = read_terms(s, 200 + (uint64_t)p, err);
        if (rc != 0 || (!s->alive[0] && !s->alive[1]))
            break;
        rc = prove_rows(s, lib, sum, tally, err);
    }
    if (rc == 0)
        count(s, sum, tally);
    free(tally);
    return rc;
}

static int measure(struct soft *s, struct ds_order_library *lib, struct ds_order_sum *sum,
                   struct ds_error *err)
{
    const struct ds_order_rows rows = {s->rows, s->width, s->y, s, fill, launch};
    if (ds_order_rows_repeat(&rows, sum, err) != 0)
        return -1;
    if (!sum->fixed)
        return 0;
    if (ds_order_rows_classify(&rows, sum, err) != 0)
        return -1;
    for (size_t c = 0; c < sum->n_classes; c++)
        if (measure_tree(s, &sum->classes[c], lib, err) != 0)
            return -1;
    return prove(s, lib, sum, err);
}

static int reserve(struct soft *s, struct ds_error *err)
{
    const size_t size = (size_t)(s->rows * s->width);
    s->x = ds_alloc_aligned(size, sizeof *s->x, "inputs", err);
    s->y = ds_alloc_aligned(size, sizeof *s->y, "outputs", err);
    s->d = ds_alloc_aligned(size, sizeof *s->d, "inputs", err);
    s->e[0] = ds_alloc_aligned(size, sizeof *s->e[0], "terms", err);
    s->e[1] = ds_alloc_aligned(size, sizeof *s->e[1], "terms", err);
    s->most = ds_calloc((size_t)s->rows, sizeof *s->most, "rows", err);
    return s->x && s->y && s->d && s->e[0] && s->e[1] && s->most ? 0 : -1;
}

int ds_order_softmax(const struct ds_order_setting *set, struct ds_order_library *lib,
                     struct ds_order *out, struct ds_error *err)
{
    struct soft s = {.call = {.kernel = set->kernel, .threads = set->threads, .team = set->team},
                     .rows = set->rows,
                     .width = set->shape.width};
    out->sum[0] = (struct ds_order_sum){.name = "denominator",
                                        .unit = "terms",
                                        .note = "",
                                        .terms = s.width,
                                        .rows = s.rows,
                                        .columns = 1};
    out->n_sums = 1;
    int rc = reserve(&s, err);
    s.a = (struct ds_softmax_args){
        .rows = s.rows, .width = s.width, .x = s.x, .ldx = s.width, .y = s.y, .ldy = s.width};
    if (rc == 0)
        rc = measure(&s, lib, &out->sum[0], err);
    out->launches += s.launches;
    ds_order_call_free(&s.call);
    free(s.x);
    free(s.y);
    free(s.d);
    free(s.e[0]);
    free(s.e[1]);
    free(s.most);
    return rc;
}
