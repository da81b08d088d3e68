/* order_triples.c: the tree of a sum of terms that cannot be negative, where no mask can be taken
 * back. Owns the choice of triples.
 *
 * A task is a set of terms under a known node, as in order_recover.c; its pivot's meetings with the
 * others are not counted but compared: a meets the pivot before b does iff a and the pivot meet
 * below b. A merge sort by that costs n log n questions, and n - 1 where the terms are met in the
 * order in which they come. */
#include "kernels/lab/order_recover.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct task {
    int32_t from, n, parent;
    int32_t outside; /* a term beyond the parent's side; -1: none */
};

struct search {
    const struct ds_triples *q;
    struct ds_tree *t;
    struct task *task;
    size_t n_tasks, cap;
    int32_t *set, *room;
    int32_t root, pivot;
    struct ds_error *err;
    int failed;          /* 1: no order; -1: an error */
    int64_t asked, most; /* questions; most 0: no limit */
};

/* What finding one order may cost: some ten seconds. */
static const double MOST_WORK = 2e10;

static int below(struct search *s, int32_t i, int32_t j, int32_t k)
{
    if (!s->failed && s->most && s->asked++ >= s->most) {
        ds_fail(
            s->err,
            "it is none of the regular orders, and %lld questions, the most that are asked of %lld "
            "terms, do not show which",
            (long long)s->most, (long long)s->q->terms);
        s->failed = 1;
    }
    int answer = s->failed ? 0 : s->q->below(s->q->self, i, j, k, s->err);
    if (answer < 0)
        s->failed = answer == DS_NO_ORDER ? 1 : -1;
    return answer > 0;
}

/* -1, 0, 1: a meets the pivot before b, at the same node, after b. */
static int compare(struct search *s, int32_t a, int32_t b)
{
    if (below(s, b, a, s->pivot))
        return -1;
    return below(s, a, b, s->pivot) ? 1 : 0;
}

static void merge(struct search *s, int32_t *a, int32_t left, int32_t n)
{
    int32_t i = 0, j = left, k = 0;
    if (compare(s, a[left - 1], a[left]) <= 0)
        return;
    memcpy(s->room, a, (size_t)left * sizeof *a);
    while (i < left && j < n)
        a[k++] = compare(s, s->room[i], a[j]) <= 0 ? s->room[i++] : a[j++];
    while (i < left)
        a[k++] = s->room[i++];
}

static void sort_by_meeting(struct search *s, int32_t *a, int32_t n)
{
    if (n < 2 || s->failed)
        return;
    sort_by_meeting(s, a, n / 2);
    sort_by_meeting(s, a + n / 2, n - n / 2);
    merge(s, a, n / 2, n);
}

static int add_task(struct search *s, struct task t)
{
    if (ds_grow(&s->task, &s->cap, s->n_tasks + 1, sizeof *s->task, "tasks", s->err) != 0)
        return -1;
    s->task[s->n_tasks++] = t;
    return 0;
}

/* Attaches what was built on the pivot; what is left met it at the parent and is another child. */
static int close_task(struct search *s, const struct task *t, int32_t cur, int32_t own)
{
    if (t->parent < 0)
        s->root = cur;
    else
        ds_tree_attach(s->t, t->parent, cur);
    if (own == t->n)
        return 0;
    return add_task(s, (struct task){t->from + own, t->n - own, t->parent, t->outside});
}

static int solve(struct search *s, struct task t)
{
    int32_t *a = s->set + t.from, at = 1;
    s->pivot = a[0];
    sort_by_meeting(s, a + 1, t.n - 1);
    int32_t cur = ds_tree_leaf(s->t, s->pivot);
    while (at < t.n && !s->failed) {
        int32_t end = at + 1;
        while (end < t.n && compare(s, a[at], a[end]) == 0)
            end++;
        if (end == t.n && t.outside >= 0 && !below(s, t.outside, s->pivot, a[at]))
            return close_task(s, &t, cur, at);
        int32_t up = ds_tree_inner(s->t);
        ds_tree_attach(s->t, up, cur);
        if (add_task(s, (struct task){t.from + at, end - at, up, s->pivot}) != 0)
            return -1;
        cur = up;
        at = end;
    }
    return s->failed ? s->failed : close_task(s, &t, cur, t.n);
}

/* Sums kept wider than f32 swallow nothing: then every pair of three terms is below the third. */
static int all_below(struct search *s)
{
    uint64_t rng = 3;
    int32_t n = (int32_t)s->q->terms;
    for (int trial = 0; trial < 20 && n >= 3; trial++) {
        int32_t v[3];
        for (int i = 0; i < 3; i++) {
            rng = rng * 6364136223846793005u + 1442695040888963407u;
            v[i] = (int32_t)((rng >> 33) % (uint64_t)n);
        }
        if (v[0] == v[1] || v[1] == v[2] || v[0] == v[2])
            continue;
        if (!below(s, v[0], v[1], v[2]) || !below(s, v[1], v[0], v[2]) ||
            !below(s, v[2], v[0], v[1]))
            return 0;
    }
    return n >= 3;
}

/* One sum in double: what cannot be seen is taken to ascend. */
static void build_wide(struct search *s)
{
    int32_t cur = ds_tree_leaf(s->t, 0);
    for (int32_t i = 1; i < s->q->terms; i++) {
        cur = ds_tree_join(s->t, cur, ds_tree_leaf(s->t, i));
        if (i + 1 < s->q->terms)
            s->t->node[cur].flags |= DS_TREE_WIDE;
    }
    s->root = cur;
}

/* ---- is it that tree ------------------------------------------------------------------------- */

/* How far from the root two nodes meet. */
static int32_t meeting(const int32_t *parent, const int32_t *depth, int32_t a, int32_t b)
{
    while (a != b) {
        if (depth[a] >= depth[b])
            a = parent[a];
        else
            b = parent[b];
    }
    return depth[a];
}

/* parent, depth of every node, and the leaf of every term, in one array. */
static int32_t *places(const struct ds_tree *t, struct ds_error *err)
{
    int32_t *p = ds_calloc((size_t)t->n * 3, sizeof *p, "places", err);
    int32_t *depth = p + t->n, *leaf = depth + t->n;
    for (int32_t i = t->n - 1; i >= 0 && p; i--) {
        if (t->node[i].term >= 0)
            leaf[t->node[i].term] = i;
        for (int32_t c = t->node[i].first; c >= 0; c = t->node[c].next) {
            p[c] = i;
            depth[c] = depth[i] + 1;
        }
    }
    return p;
}

static uint64_t draw(uint64_t *rng, uint64_t below)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return (*rng >> 20) % below;
}

/* Terms so many powers of two apart, which tells numbers of lanes and sizes of blocks from their doubles;
 * near ones; far ones; ones at the end, where orders have their tails. */
static void sample(uint64_t *rng, int64_t terms, int32_t out[3])
{
    enum { SHORTEST_END = 4, NEAR = 20, STEPS = 6, POWERS = 14 };
    const uint64_t n = (uint64_t)terms, kind = draw(rng, 5), power = draw(rng, POWERS),
                   end = (uint64_t)SHORTEST_END << 2 * draw(rng, 3), last = n < end ? n : end;
    out[0] = (int32_t)(kind == 4 ? n - 1 - draw(rng, last) : draw(rng, n));
    for (int i = 1; i < 3; i++)
        out[i] = kind == 4   ? (int32_t)(n - 1 - draw(rng, last))
                 : kind == 3 ? (int32_t)draw(rng, n)
                 : kind == 2
                     ? (int32_t)(((uint64_t)out[0] + 1 + draw(rng, NEAR)) % n)
                     : (int32_t)(((uint64_t)out[0] + ((1 + draw(rng, STEPS)) << power)) % n);
}

int ds_triples_like(const struct ds_triples *q, const struct ds_tree *t, int samples,
                    struct ds_error *err)
{
    int32_t *parent = places(t, err), v[3];
    int alike = parent ? 1 : -1;
    uint64_t rng = 17;
    for (int s = 0; s < samples && alike == 1; s++) {
        const int32_t *depth = parent + t->n, *leaf = depth + t->n;
        sample(&rng, q->terms, v);
        if (v[0] == v[1] || v[1] == v[2] || v[0] == v[2])
            continue;
        int want = meeting(parent, depth, leaf[v[1]], leaf[v[2]]) >
                   meeting(parent, depth, leaf[v[0]], leaf[v[1]]);
        int got = q->below(q->self, v[0], v[1], v[2], err);
        alike = got == -1 ? -1 : got == want;
    }
    free(parent);
    return alike;
}

static int search(struct search *s)
{
    const int32_t n = (int32_t)s->q->terms;
    s->set = ds_calloc((size_t)n, sizeof *s->set, "terms", s->err);
    s->room = ds_calloc((size_t)n, sizeof *s->room, "terms", s->err);
    if (!s->set || !s->room)
        return -1;
    for (int32_t i = 0; i < n; i++)
        s->set[i] = i;
    if (all_below(s)) {
        build_wide(s);
        return ds_tree_finish(s->t, s->root, s->err);
    }
    if (s->failed || add_task(s, (struct task){0, n, -1, -1}) != 0)
        return s->failed ? s->failed : -1;
    /* Every task places a term. */
    for (int64_t done = 0; s->n_tasks; done++) {
        if (done > n) {
            ds_fail(s->err, "the answers belong to no tree");
            return 1;
        }
        int rc = solve(s, s->task[--s->n_tasks]);
        if (rc != 0)
            return rc;
    }
    return ds_tree_finish(s->t, s->root, s->err);
}

int ds_recover_exact(int64_t terms, struct ds_tree *t, struct ds_error *err)
{
    const struct ds_triples q = {.terms = terms};
    struct search s = {.q = &q, .t = t, .root = -1, .err = err};
    if (ds_tree_init(t, terms, err) != 0)
        return -1;
    build_wide(&s);
    return ds_tree_finish(t, s.root, err);
}

/* Few of all triples were asked: others have to agree. */
static int holds_elsewhere(const struct ds_triples *q, const struct ds_tree *t,
                           struct ds_error *err)
{
    enum { ELSEWHERE = 60 };
    const int alike = ds_triples_like(q, t, ELSEWHERE, err);
    if (alike == 0)
        ds_fail(err, "the answers belong to no tree");
    return alike < 0 ? -1 : !alike;
}

int ds_recover_triples_fully(const struct ds_triples *q, struct ds_tree *t, struct ds_error *err)
{
    struct search s = {.q = q, .t = t, .root = -1, .err = err};
    if (q->work > 0 && ds_triples_are_sampled(q->terms))
        s.most = MOST_WORK > q->work ? (int64_t)(MOST_WORK / q->work) : 1;
    if (ds_tree_init(t, q->terms, err) != 0)
        return -1;
    int rc = search(&s);
    if (rc == 0 && !ds_tree_multiway(t))
        rc = holds_elsewhere(q, t, err);
    free(s.set);
    free(s.room);
    free(s.task);
    if (rc != 0)
        ds_tree_free(t);
    return rc;
}

int ds_recover_triples(const struct ds_triples *q, struct ds_tree *t, struct ds_error *err)
{
    const int regular = ds_recover_regular(q, t, err);
    return regular == 0 ? ds_recover_triples_fully(q, t, err) : regular < 0 ? -1 : 0;
}
