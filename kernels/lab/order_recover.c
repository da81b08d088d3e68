/* order_recover.c: the tree of a sum of terms of any sign. Owns the choice of questions.
 *
 * One task is a set of terms that lie together under a child (or several children) of a known node.
 * Its first term, the pivot, is asked against all others: the size of the subtree where the two
 * meet. Terms of one size meet the pivot at one node: they are that node's other side, and a task of
 * their own. All tasks of a round are asked at once. */
#include "kernels/lab/order_recover.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NO_TREE = 1 };

/* Magnitudes, by what the kernel's partial sums can hold. `group` ones are counted exactly and
 * swallowed by `big`. */
static const struct gear {
    float big, unit;
    int64_t group;
} gears[] = {
    {0x1p127f, 1.0f, 1 << 24}, /* f32 */
    {0x1p127f, 1.0f, 128},     /* partial sums in bf16 */
    {0x1p14f, 0x1p-6f, 128},   /* f16 */
};
enum { N_GEARS = sizeof gears / sizeof gears[0] };

/* A set of terms whose place under `parent` is looked for. */
struct task {
    int32_t from, n; /* terms: set[from..from+n-1], the pivot first */
    int32_t parent;  /* node, -1: the root */
    int32_t parent_size;
    int tries; /* how often the pivot split little off */
};

struct recovery {
    const struct ds_oracle *o;
    struct gear gear;
    int64_t groups;
    struct ds_tree *t;
    struct task *task, *next;
    size_t n_tasks, n_next, cap_task, cap_next;
    int32_t *set;
    uint64_t rng;
    int32_t root;
};

/* ---- magnitudes ------------------------------------------------------------------------------ */

enum { TRIALS = 24 };

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

/* Counts of random ranges are exact, and a pair of masks leaves nothing. */
static int gear_fits(const struct ds_oracle *o, const struct gear *g, int *fits,
                     struct ds_error *err)
{
    struct ds_probe p[TRIALS];
    uint64_t rng = 11;
    memset(p, 0, sizeof p);
    *fits = 1;
    for (int i = 0; i < TRIALS; i++) {
        int64_t most = o->terms < g->group ? o->terms : g->group;
        int64_t len = i == 0 ? most : 1 + (int64_t)(draw(&rng) % (uint32_t)most);
        p[i].lo = (int64_t)(draw(&rng) % (uint32_t)(o->terms - len + 1));
        p[i].hi = p[i].lo + len;
        p[i].fill = g->unit;
        if (i % 4 == 3 && o->terms > 1) {
            p[i].fill = 0.0f;
            p[i].n = 2;
            p[i].term[0] = (int32_t)(draw(&rng) % (uint32_t)o->terms);
            p[i].term[1] =
                (int32_t)((p[i].term[0] + 1 + (int64_t)(draw(&rng) % (uint32_t)(o->terms - 1))) %
                          o->terms);
            p[i].value[0] = g->big;
            p[i].value[1] = -g->big;
        }
    }
    if (o->ask(o->self, 1.0f, p, TRIALS, err) != 0)
        return -1;
    for (int i = 0; i < TRIALS; i++) {
        float want = p[i].n ? 0.0f : (float)(p[i].hi - p[i].lo) * g->unit;
        *fits &= p[i].result == want;
    }
    return 0;
}

static int choose_gear(struct recovery *r, struct ds_error *err)
{
    for (int i = 0; i < N_GEARS; i++) {
        int fits;
        if (gear_fits(r->o, &gears[i], &fits, err) != 0)
            return -1;
        if (!fits)
            continue;
        r->gear = gears[i];
        r->groups = (r->o->terms + r->gear.group - 1) / r->gear.group;
        return 0;
    }
    ds_fail(err, "its sums of small whole numbers are not exact: no sum of products, or no fixed "
                 "order");
    return NO_TREE;
}

/* ---- questions of a round -------------------------------------------------------------------- */

static void write_probe(const struct recovery *r, struct ds_probe *p, int32_t i, int32_t j,
                        int64_t group)
{
    const int64_t terms = r->o->terms;
    memset(p, 0, sizeof *p);
    p->lo = group * r->gear.group;
    p->hi = p->lo + r->gear.group < terms ? p->lo + r->gear.group : terms;
    p->fill = r->gear.unit;
    p->n = 2;
    p->term[0] = i;
    p->term[1] = j;
    p->value[0] = r->gear.big;
    p->value[1] = -r->gear.big;
}

/* Which term of a set is asked against the others. The first one solves an ascending chain at one
 * go, the last one a descending chain; a random one halves whatever is left. */
static void choose_pivot(struct recovery *r, const struct task *t)
{
    int32_t *set = r->set + t->from;
    int32_t at = t->tries == 0   ? 0
                 : t->tries == 1 ? t->n - 1
                                 : (int32_t)(draw(&r->rng) % (uint32_t)t->n);
    int32_t pivot = set[at];
    memmove(set + 1, set, (size_t)at * sizeof *set);
    set[0] = pivot;
}

static int ask_round(struct recovery *r, struct ds_probe **out, struct ds_error *err)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < r->n_tasks; i++)
        n += (size_t)(r->task[i].n - 1) * (size_t)r->groups;
    struct ds_probe *p = ds_calloc(n, sizeof *p, "questions", err);
    if (!p)
        return -1;
    for (size_t i = 0; i < r->n_tasks; i++) {
        const struct task *t = &r->task[i];
        choose_pivot(r, t);
        for (int32_t j = 1; j < t->n; j++)
            for (int64_t g = 0; g < r->groups; g++)
                write_probe(r, &p[at++], r->set[t->from], r->set[t->from + j], g);
    }
    if (n && r->o->ask(r->o->self, 1.0f, p, n, err) != 0) {
        free(p);
        return -1;
    }
    *out = p;
    return 0;
}

/* The size of the subtree where a pair meets, from its answers. */
static int meeting_size(const struct recovery *r, const struct ds_probe *p, int32_t *size,
                        struct ds_error *err)
{
    int64_t outside = 0;
    for (int64_t g = 0; g < r->groups; g++) {
        float count = p[g].result / r->gear.unit;
        if (!(count >= 0.0f && count <= (float)(p[g].hi - p[g].lo)) || count != floorf(count)) {
            ds_fail(err,
                    "terms %d and %d masked left %.9g of %lld ones: not what a fixed order "
                    "of f32 additions gives",
                    p->term[0], p->term[1], (double)count, (long long)(p[g].hi - p[g].lo));
            return NO_TREE;
        }
        outside += (int64_t)count;
    }
    *size = (int32_t)(r->o->terms - outside);
    return 0;
}

/* ---- building -------------------------------------------------------------------------------- */

struct met {
    int32_t size, term;
};

static int by_size(const void *a, const void *b)
{
    const struct met *x = a, *y = b;
    return x->size != y->size ? (x->size > y->size) - (x->size < y->size)
                              : (x->term > y->term) - (x->term < y->term);
}

static int add_task(struct recovery *r, struct task t, struct ds_error *err)
{
    if (ds_grow(&r->next, &r->cap_next, r->n_next + 1, sizeof *r->next, "tasks", err) != 0)
        return -1;
    r->next[r->n_next++] = t;
    return 0;
}

static int contradiction(struct ds_error *err)
{
    ds_fail(err, "the answers belong to no tree: the order is not the same twice, or sums are not "
                 "rounded one by one");
    return NO_TREE;
}

/* The chain of nodes above the pivot, each with a task for its other side; what meets the pivot at
 * the parent only is another child of the parent. */
static int place(struct recovery *r, const struct task *t, const struct met *m,
                 struct ds_error *err)
{
    int32_t cur = ds_tree_leaf(r->t, r->set[t->from]), *set = r->set + t->from, at = 0;
    const int32_t n = t->n - 1;
    int32_t own = n;
    while (own > 0 && t->parent >= 0 && m[own - 1].size >= t->parent_size)
        own--;
    for (int32_t i = 0; i < n; i++) /* the terms in the order of their sizes, behind the pivot */
        set[i + 1] = m[i].term;
    while (at < own) {
        int32_t end = at;
        while (end < own && m[end].size == m[at].size)
            end++;
        int32_t up = ds_tree_inner(r->t);
        if (up < 0 || m[at].size != end + 1)
            return contradiction(err);
        ds_tree_attach(r->t, up, cur);
        struct task sub = {.from = t->from + 1 + at,
                           .n = end - at,
                           .parent = up,
                           .parent_size = m[at].size,
                           .tries = (end - at) * 4 >= n * 3 ? t->tries + 1 : 0};
        if (add_task(r, sub, err) != 0)
            return -1;
        cur = up;
        at = end;
    }
    if (t->parent < 0)
        r->root = cur;
    else
        ds_tree_attach(r->t, t->parent, cur);
    struct task rest = *t;
    rest.from += own + 1;
    rest.n = n - own;
    return rest.n ? add_task(r, rest, err) : 0;
}

static int one_round(struct recovery *r, struct ds_error *err)
{
    struct ds_probe *p;
    size_t at = 0;
    int rc = ask_round(r, &p, err);
    if (rc != 0)
        return -1;
    struct met *m = ds_calloc((size_t)r->o->terms, sizeof *m, "sizes", err);
    rc = m ? 0 : -1;
    for (size_t i = 0; i < r->n_tasks && rc == 0; i++) {
        const struct task *t = &r->task[i];
        for (int32_t j = 1; j < t->n && rc == 0; j++, at += (size_t)r->groups) {
            m[j - 1].term = r->set[t->from + j];
            rc = meeting_size(r, p + at, &m[j - 1].size, err);
        }
        if (rc == 0) {
            qsort(m, (size_t)(t->n - 1), sizeof *m, by_size);
            rc = place(r, t, m, err);
        }
    }
    free(m);
    free(p);
    return rc;
}

static int all_rounds(struct recovery *r, struct ds_error *err)
{
    struct task all = {.n = (int32_t)r->o->terms, .parent = -1};
    r->set = ds_calloc((size_t)r->o->terms, sizeof *r->set, "terms", err);
    int rc = r->set ? choose_gear(r, err) : -1;
    if (rc != 0 || add_task(r, all, err) != 0)
        return rc != 0 ? rc : -1;
    for (int32_t i = 0; i < all.n; i++)
        r->set[i] = i;
    /* A term is placed with every task: more rounds than terms mean that nothing is. */
    for (int64_t rounds = 0; r->n_next; rounds++) {
        struct task *swap = r->task;
        size_t cap = r->cap_task;
        r->task = r->next, r->cap_task = r->cap_next, r->n_tasks = r->n_next;
        r->next = swap, r->cap_next = cap, r->n_next = 0;
        if (rounds > r->o->terms)
            return contradiction(err);
        if ((rc = one_round(r, err)) != 0)
            return rc;
    }
    return ds_tree_finish(r->t, r->root, err);
}

int ds_recover_signed(const struct ds_oracle *o, struct ds_tree *t, struct ds_error *err)
{
    struct recovery r = {.o = o, .t = t, .rng = 5, .root = -1};
    if (ds_tree_init(t, o->terms, err) != 0)
        return -1;
    int rc = all_rounds(&r, err);
    free(r.set);
    free(r.task);
    free(r.next);
    if (rc != 0)
        ds_tree_free(t);
    return rc;
}
