/* order_softmax_rows.c: the order in which softmax adds exp(x - max), asked as order_softmax.c asks
 * attention's denominator: a term of 1, two that it swallows one by one but not together, all others
 * 0.
 *
 * Replayed with the terms that order_softmax_exp.c reads from the outputs: a whole row's sum is what the
 * tree makes of the e, and every output is held against e divided by it. */
#include "kernels/lab/order_softmax_rows.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/order_rows.h"

#include <stdlib.h>
#include <string.h>

static const float SMALL = -17.14641f; /* log(0.6 * 2^-24) */
enum { WANTED = 4096, SUMS_WANTED = 16, MOST_PROOFS = 16 };
/* Sums that a tree is held against before it counts: fewer of long ones, which differ more. */
enum { FEWEST_SETS = 24, MOST_SETS = 192, SEEN_ELEMENTS = 1 << 21 };

static const char NOT_REPLAYED[] = "not replayed: no exp is to be told from the outputs";
static const char REPLAYED[] = "replayed with the exp that its outputs show";

float ds_soft_finish(int form, float e, float sum)
{
    return form == 0 ? e / sum : e * (1.0f / sum);
}

uint32_t ds_soft_draw(struct ds_soft *s)
{
    s->rng = s->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s->rng >> 32);
}

float ds_soft_unit(struct ds_soft *s)
{
    return (float)(ds_soft_draw(s) >> 8) * 0x1p-24f;
}

int ds_soft_launch(void *self, struct ds_error *err)
{
    struct ds_soft *s = self;
    s->launches++;
    return ds_order_launch(&s->call, &s->a, err);
}

static void fill(void *self, uint64_t seed, int same_rows)
{
    struct ds_soft *s = self;
    s->rng = seed * 0x9e3779b97f4a7c15u + 7;
    for (int64_t i = 0; i < s->rows * s->width; i++)
        s->x[i] = same_rows && i >= s->width ? s->x[i - s->width] : ds_soft_unit(s) * 4.0f - 2.0f;
}

void ds_soft_clear(struct ds_soft *s)
{
    for (int64_t i = 0; i < s->rows * s->width; i++)
        s->x[i] = DS_SOFT_LOW;
}

/* ---- questions ------------------------------------------------------------------------------- */

static int below(void *self, int32_t i, int32_t j, int32_t k, struct ds_error *err)
{
    struct ds_soft *s = self;
    float *x = s->x + s->row * s->width;
    const float *y = s->y + s->row * s->width + i;
    x[i] = 0.0f;
    x[j] = x[k] = SMALL;
    int rc = ds_soft_launch(s, err), answer = -1;
    if (rc == 0)
        answer = *y == 1.0f ? 0 : *y == 1.0f / (1.0f + 0x1p-23f) ? 1 : -1;
    x[i] = x[j] = x[k] = DS_SOFT_LOW;
    if (rc == 0 && answer < 0)
        ds_fail(err, "terms %d, %d and %d gave %.9g, not 1 over a sum", i, j, k, (double)*y);
    return rc == 0 && answer < 0 ? DS_NO_ORDER : answer;
}

/* What the row that is asked gives on sets of terms. */
struct seen {
    int sets, most_sets, alive[DS_SOFT_FORMS];
    int64_t width;
    float *e[DS_SOFT_FORMS], *y, *ones; /* [sets][width]; [width] */
};

static int reserve_seen(struct seen *s, int64_t width, struct ds_error *err)
{
    const int64_t fit = SEEN_ELEMENTS / width;
    const int sets = fit < FEWEST_SETS ? FEWEST_SETS : fit > MOST_SETS ? MOST_SETS : (int)fit;
    const size_t size = (size_t)(sets * width);
    *s = (struct seen){.width = width, .most_sets = sets};
    for (int f = 0; f < DS_SOFT_FORMS; f++)
        s->e[f] = ds_calloc(size, sizeof *s->e[f], "samples", err);
    s->y = ds_calloc(size, sizeof *s->y, "samples", err);
    s->ones = ds_alloc_aligned((size_t)width, sizeof *s->ones, "samples", err);
    for (int64_t i = 0; i < width && s->ones; i++)
        s->ones[i] = 1.0f;
    return s->e[0] && s->e[1] && s->y && s->ones ? 0 : -1;
}

static void free_seen(struct seen *s)
{
    for (int f = 0; f < DS_SOFT_FORMS; f++)
        free(s->e[f]);
    free(s->y);
    free(s->ones);
}

/* None where no exp is seen, or where each place has one of its own. */
static int take_samples(struct ds_soft *s, struct seen *seen, struct ds_error *err)
{
    static const uint64_t SEED = 500;
    struct ds_soft_exps *exps = ds_calloc(1, sizeof *exps, "samples", err);
    s->alive[0] = s->alive[1] = 1;
    int rc = exps ? ds_soft_read(s, SEED, exps, err) : -1;
    memcpy(seen->alive, s->alive, sizeof seen->alive);
    for (; rc == 1 && seen->sets < seen->most_sets; seen->sets++) {
        const size_t bytes = (size_t)s->width * sizeof *s->y;
        const int64_t to = seen->sets * s->width, from = s->row * s->width;
        ds_soft_deal(s, exps, seen->sets % 2);
        memcpy(s->x, s->d, (size_t)(s->rows * s->width) * sizeof *s->x);
        if (ds_soft_launch(s, err) != 0)
            rc = -1;
        for (int f = 0; f < DS_SOFT_FORMS; f++)
            memcpy(seen->e[f] + to, s->e[f] + from, bytes);
        memcpy(seen->y + to, s->y + from, bytes);
    }
    free(exps);
    ds_soft_clear(s);
    return rc < 0 ? -1 : 0;
}

static int gives_set(const struct seen *s, const struct ds_replay *r, int set, int form,
                     float *room)
{
    const float *e = s->e[form] + set * s->width, *y = s->y + set * s->width,
                total = ds_replay_one(r, e, s->ones, room);
    int64_t i = 0;
    while (i < s->width && ds_f32_bits(y[i]) == ds_f32_bits(ds_soft_finish(form, e[i], total)))
        i++;
    return i == s->width;
}

static int fits(void *self, const struct ds_tree *t, struct ds_error *err)
{
    const struct seen *s = self;
    struct ds_replay r;
    int any = 0;
    if (ds_replay_compile(t, t->root, &r, err) != 0)
        return -1;
    float *room = ds_alloc_aligned(ds_replay_room(&r), sizeof *room, "the replay", err);
    for (int f = 0; f < DS_SOFT_FORMS && room && !any; f++) {
        int set = 0;
        while (s->alive[f] && set < s->sets && gives_set(s, &r, set, f, room))
            set++;
        any = s->alive[f] && set == s->sets;
    }
    ds_replay_free(&r);
    free(room);
    return room ? any : -1;
}

static int finish_tree(void *self, struct ds_tree *t, struct ds_error *err)
{
    (void)self, (void)err;
    /* No term is -0: a start from +0 leaves no trace. */
    t->zero_start = 0;
    ds_tree_seal(t);
    return 0;
}

/* The tree of the library that answers like the row that is asked, and gives what it gave. 1, 0, -1. */
static int find_known(const struct ds_triples *q, struct seen *seen,
                      const struct ds_order_library *lib, int32_t *tree, struct ds_error *err)
{
    int known = seen->sets ? 0 : ds_order_find_triples(q, lib, tree, err);
    for (size_t i = 0; i < lib->n && seen->sets && known == 0; i++) {
        if (lib->tree[i]->terms != q->terms || lib->tree[i]->joins)
            continue;
        known = fits(seen, lib->tree[i], err);
        *tree = known == 1 ? (int32_t)i : *tree;
    }
    return known;
}

/* Held against whole rows, where these can be had. */
static int find_tree(const struct ds_triples *q, struct seen *seen, struct ds_order_class *cls,
                     struct ds_order_library *lib, struct ds_error *err)
{
    const struct ds_sum_samples samples = {seen, q->terms, 0, fits};
    struct ds_tree t;
    struct ds_error why = {{0}, {0}};
    const int known = find_known(q, seen, lib, &cls->tree, err);
    if (known != 0)
        return known < 0 ? -1 : 0;
    const int missed = ds_recover_triples(q, &t, &why);
    int state = missed < 0 ? -1 : missed ? DS_SETTLED_NONE : DS_SETTLED_UNFIT;
    if (missed < 0)
        *err = why;
    else if (seen->sets)
        state = ds_order_settle(q, &samples, finish_tree, !missed, &t, &why, err);
    else if (!missed)
        finish_tree(NULL, &t, err);
    if (state == DS_SETTLED_NONE)
        memcpy(cls->why, why.msg, sizeof cls->why - 1);
    if (state <= DS_SETTLED_NONE)
        return state < 0 ? -1 : 0;
    cls->tree = ds_order_library_put(lib, &t, err);
    return cls->tree < 0 ? -1 : 0;
}

static int measure_tree(struct ds_soft *s, struct ds_order_class *cls, struct ds_order_library *lib,
                        struct ds_error *err)
{
    const struct ds_triples q = {
        .self = s, .terms = s->width, .work = (double)(s->rows * s->width), .below = below};
    struct seen seen;
    s->row = cls->row;
    int rc = reserve_seen(&seen, s->width, err);
    if (rc == 0)
        rc = take_samples(s, &seen, err);
    if (rc == 0)
        rc = find_tree(&q, &seen, cls, lib, err);
    free_seen(&seen);
    return rc;
}

/* ---- replay ---------------------------------------------------------------------------------- */

struct tally {
    uint64_t compared, reproduced[DS_SOFT_FORMS];
};

static int prove_class(struct ds_soft *s, const struct ds_order_sum *sum, int32_t c,
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
        for (int f = 0; f < DS_SOFT_FORMS && tree >= 0; f++) {
            const float *e = s->e[f] + r * s->width, *y = s->y + r * s->width;
            float total = s->alive[f] ? ds_replay_one(&replay, e, ones, room) : 0.0f;
            for (int64_t i = 0; i < s->width && s->alive[f]; i++)
                tally->reproduced[f] +=
                    ds_f32_bits(y[i]) == ds_f32_bits(ds_soft_finish(f, e[i], total));
        }
    }
    free(ones);
    free(room);
    ds_replay_free(&replay);
    return rc;
}

/* The formula that explains most is the kernel's. */
static void count(const struct ds_soft *s, struct ds_order_sum *sum, const struct tally *tally)
{
    uint64_t of[DS_SOFT_FORMS] = {0};
    for (size_t c = 0; c < sum->n_classes; c++)
        for (int f = 0; f < DS_SOFT_FORMS; f++)
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
static int prove_rows(struct ds_soft *s, const struct ds_order_library *lib,
                      struct ds_order_sum *sum, struct tally *tally, struct ds_error *err)
{
    memcpy(s->x, s->d, (size_t)(s->rows * s->width) * sizeof *s->x);
    int rc = ds_soft_launch(s, err);
    for (size_t c = 0; c < sum->n_classes && rc == 0; c++)
        rc = prove_class(s, sum, (int32_t)c, lib, &tally[c], err);
    return rc;
}

/* Whether one formula explains all outputs of all classes. */
static int explains_all(const struct ds_soft *s, const struct ds_order_sum *sum,
                        const struct tally *tally)
{
    int all[DS_SOFT_FORMS];
    for (int f = 0; f < DS_SOFT_FORMS; f++) {
        all[f] = s->alive[f];
        for (size_t c = 0; c < sum->n_classes; c++)
            all[f] &= tally[c].reproduced[f] == tally[c].compared;
    }
    return all[0] || all[1];
}

/* With one exp for all places: 1 = every output came out, and *tally has it; 0: it is of no use here. */
static int prove_shared(struct ds_soft *s, const struct ds_order_library *lib,
                        struct ds_order_sum *sum, uint64_t seed, struct tally *tally,
                        struct ds_error *err)
{
    const int alive[DS_SOFT_FORMS] = {s->alive[0], s->alive[1]};
    struct tally *own = ds_calloc(sum->n_classes, sizeof *own, "the replay", err);
    struct ds_soft_exps *exps = ds_calloc(1, sizeof *exps, "the replay", err);
    int rc = own && exps ? ds_soft_read(s, seed, exps, err) : -1;
    if (rc == 1) {
        ds_soft_deal(s, exps, 0);
        rc = prove_rows(s, lib, sum, own, err) == 0 ? explains_all(s, sum, own) : -1;
    }
    for (size_t c = 0; c < sum->n_classes && rc == 1; c++) {
        tally[c].compared += own[c].compared;
        for (int f = 0; f < DS_SOFT_FORMS; f++)
            tally[c].reproduced[f] += own[c].reproduced[f];
    }
    free(own);
    free(exps);
    if (rc == 0)
        memcpy(s->alive, alive, sizeof alive);
    return rc;
}

/* A row shows one sum, however many outputs it has; where each place is read that is dear. */
static int wants_more(const struct ds_soft *s, int p)
{
    return p == 0 || p * s->rows * s->width < WANTED || (!s->by_place && p * s->rows < SUMS_WANTED);
}

static int prove(struct ds_soft *s, const struct ds_order_library *lib, struct ds_order_sum *sum,
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
        rc = ds_soft_read_places(s, 200 + (uint64_t)p, err);
        if (rc != 0 || (!s->alive[0] && !s->alive[1]))
            break;
        rc = prove_rows(s, lib, sum, tally, err);
    }
    if (rc == 0)
        count(s, sum, tally);
    free(tally);
    return rc;
}

static int measure(struct ds_soft *s, struct ds_order_library *lib, struct ds_order_sum *sum,
                   struct ds_error *err)
{
    const struct ds_order_rows rows = {s->rows, s->width, s->y, s, fill, ds_soft_launch};
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

static int reserve(struct ds_soft *s, struct ds_error *err)
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
    struct ds_soft s = {.call = {.kernel = set->kernel, .threads = set->threads, .team = set->team},
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
