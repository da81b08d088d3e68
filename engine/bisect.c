/* bisect.c: see bisect.h. Every tried set is one small sweep of two arms, in a worker. */
#include "engine/bisect.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- atoms and sets -------------------------------------------------------------------------- */

/* Two variants of one code have the same bits: no need to name one. */
static int same_code(const struct ds_kernel *a, const struct ds_kernel *b)
{
    return a == b || (a && b && a->launch == b->launch && a->prepare == b->prepare &&
                      a->features == b->features);
}

static int add_atom(struct ds_bisect *b, size_t *cap, int op, int32_t layer, struct ds_error *err)
{
    for (size_t i = 0; i < b->n_atoms; i++)
        if (b->atoms[i].op == op && b->atoms[i].layer == layer)
            return 0;
    if (ds_grow(&b->atoms, cap, b->n_atoms + 1, sizeof *b->atoms, "kernels", err) != 0)
        return -1;
    b->atoms[b->n_atoms++] = (struct ds_bisect_atom){op, layer};
    return 0;
}

static int atom_cmp(const void *pa, const void *pb)
{
    const struct ds_bisect_atom *a = pa, *b = pb;
    if (a->op != b->op)
        return a->op < b->op ? -1 : 1;
    return (a->layer > b->layer) - (a->layer < b->layer);
}

int ds_bisect_atoms(struct ds_bisect *b, struct ds_error *err)
{
    const struct ds_header *h = b->sweep->header;
    size_t cap = 0;
    if (b->from.n_at || b->to.n_at)
        return ds_fail(err, "sets with kernels for single layers (@) cannot be bisected");
    free(b->atoms);
    b->atoms = NULL;
    b->n_atoms = 0;
    for (size_t i = 0; i < h->n_sites; i++) {
        int op = ds_op_parse(h->sites[i].op);
        if (op < 0 || !b->from.op[op] || !b->to.op[op] || same_code(b->from.op[op], b->to.op[op]))
            continue;
        int32_t layer = b->per_layer && h->sites[i].layer >= 0 && op != DS_OP_SAMPLE &&
                                op != DS_OP_EMBED && op != DS_OP_PROCESS
                            ? h->sites[i].layer
                            : DS_BISECT_EVERYWHERE;
        if (add_atom(b, &cap, op, layer, err) != 0)
            return -1;
    }
    if (b->n_atoms == 0)
        return ds_fail(err, "the two kernel sets are the same");
    qsort(b->atoms, b->n_atoms, sizeof *b->atoms, atom_cmp);
    return 0;
}

static const struct ds_kernel *kernel_of(const struct ds_bisect *b, const uint8_t *set, size_t i)
{
    return (set[i] ? b->to : b->from).op[b->atoms[i].op];
}

/* "+matmul=pinned@0-3": layers of one op, from atom i to `end`, whose kernel is not `plain`. */
static void add_layers(const struct ds_bisect *b, const uint8_t *set, size_t i, size_t end,
                       const struct ds_kernel *plain, struct ds_buf *out)
{
    while (i < end) {
        const struct ds_kernel *k = kernel_of(b, set, i);
        size_t next = i + 1;
        while (next < end && kernel_of(b, set, next) == k &&
               b->atoms[next].layer == b->atoms[next - 1].layer + 1)
            next++;
        if (k != plain) {
            ds_buf_printf(out, "+%s=%s@%d", ds_op_name(k->op), k->name, b->atoms[i].layer);
            if (next > i + 1)
                ds_buf_printf(out, "-%d", b->atoms[next - 1].layer);
        }
        i = next;
    }
}

/* Whether a pass of this model may run the op. Bookkeeping is always there, with sites or without. */
static int is_run(const struct ds_bisect *b, int op)
{
    const struct ds_header *h = b->sweep->header;
    for (size_t i = 0; i < h->n_sites; i++)
        if (ds_op_parse(h->sites[i].op) == op)
            return 1;
    return op == DS_OP_SCHEDULE || op == DS_OP_PROCESS;
}

/* The set written as changes of a named one. */
static void write_set(const struct ds_bisect *b, const uint8_t *set, const char *name,
                      const struct ds_kernel_set *plain, struct ds_buf *out)
{
    ds_buf_puts(out, name);
    for (int op = 0; op < DS_OP_COUNT; op++) {
        size_t i = 0, end;
        while (i < b->n_atoms && b->atoms[i].op != op)
            i++;
        for (end = i; end < b->n_atoms && b->atoms[end].op == op;)
            end++;
        int whole = i == end || b->atoms[i].layer == DS_BISECT_EVERYWHERE;
        const struct ds_kernel *k = i == end ? b->from.op[op] : kernel_of(b, set, i);
        if (!whole && plain->op[op] != b->from.op[op] && plain->op[op] != b->to.op[op])
            k = b->from.op[op];
        else if (!whole)
            k = plain->op[op];
        if (k && !same_code(k, plain->op[op]) && is_run(b, op))
            ds_buf_printf(out, "+%s=%s", ds_op_name(op), k->name);
        if (!whole)
            add_layers(b, set, i, end, k, out);
    }
    ds_buf_add(out, "", 1);
}

char *ds_bisect_set_text(const struct ds_bisect *b, const uint8_t *set, struct ds_error *err)
{
    struct ds_buf best = {0};
    const int device = b->from.device;
    for (size_t k = 0; k < ds_kernel_set_count_on(device); k++) {
        struct ds_kernel_set plain;
        struct ds_buf out = {0};
        if (ds_kernel_set_parse_on(device, ds_kernel_set_name_on(device, k), &plain, err) != 0)
            break;
        write_set(b, set, ds_kernel_set_name_on(device, k), &plain, &out);
        if (best.data && (out.failed || out.len >= best.len)) {
            ds_buf_free(&out);
            continue;
        }
        ds_buf_free(&best);
        best = out;
    }
    if (best.failed || !best.data) {
        ds_buf_free(&best);
        ds_fail(err, "out of memory for a kernel set");
        return NULL;
    }
    return best.data;
}

/* ---- one set --------------------------------------------------------------------------------- */

/* What the trials of the two arms gave. */
struct outcome {
    const struct ds_bisect *b;
    uint64_t first[2], other; /* digest of the answer of each arm's first trial */
    int seen[2], unstable;
    uint64_t trials;
};

static uint64_t answer_of(const struct ds_bisect *b, const struct ds_trial_data *t)
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < t->n_steps; i++) {
        uint64_t x = b->tokens ? (uint64_t)(uint32_t)t->steps[i].token : t->steps[i].digest;
        h = (h ^ x) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

static int take_trial(void *ctx, const struct ds_trial_data *t, struct ds_error *err)
{
    struct outcome *o = ctx;
    if (t->info.pass == DS_PASS_FAILED)
        return 0; /* the sweep's result says why */
    if (t->info.arm > 1 || t->n_steps == 0)
        return ds_fail(err, "a trial gave no answer to compare");
    uint64_t answer = answer_of(o->b, t);
    o->trials++;
    if (!o->seen[t->info.arm]++)
        o->first[t->info.arm] = answer;
    else if (o->first[t->info.arm] != answer)
        o->unstable = 1;
    return 0;
}

/* Bare passes and heal passes are not needed. */
static int only_natural(void *ctx, const struct ds_trial *t)
{
    (void)ctx;
    return t->pass != DS_PASS_NATURAL;
}

static size_t kernels_factor(const struct ds_header *h)
{
    size_t f = 0;
    while (f < h->n_factors && strcmp(h->factors[f], ds_factor_names[DS_FACTOR_KERNELS]) != 0)
        f++;
    return f;
}

/* Which arms an error that numbers them speaks of. */
static void explain_arms(const struct ds_bisect *b, const char *arm_a, const char *arm_b,
                         struct ds_error *err)
{
    const struct ds_header *h = b->sweep->header;
    size_t f = 0, kernels = kernels_factor(h);
    while (f < h->n_factors && (f == kernels || strcmp(b->a[f], b->b[f]) == 0))
        f++;
    if (!err || err->hint[0])
        return;
    if (f < h->n_factors)
        ds_hint(err, "base arm: %s %s, arm 1: %s %s, both with --kernels %.300s", h->factors[f],
                b->a[f], h->factors[f], b->b[f], arm_b);
    else
        ds_hint(err, "base arm: --kernels %.200s, arm 1: --kernels %.200s", arm_a, arm_b);
}

/* Runs the two arms with these kernels. */
static int run_arms(struct ds_bisect *b, char *arm_a, char *arm_b, struct outcome *o,
                    struct ds_error *err)
{
    struct ds_header h = *b->sweep->header; /* all but the arms is borrowed */
    size_t f = kernels_factor(&h);
    char **values = ds_calloc(2 * h.n_factors, sizeof *values, "arms", err);
    if (!values || f == h.n_factors) {
        free(values);
        return values ? ds_fail(err, "the plan has no factor kernels") : -1;
    }
    struct ds_arm arms[2] = {{values}, {values + h.n_factors}};
    for (size_t k = 0; k < h.n_factors; k++) {
        arms[0].values[k] = k == f ? arm_a : b->a[k];
        arms[1].values[k] = k == f ? arm_b : b->b[k];
    }
    h.arms = arms;
    h.n_arms = 2;
    struct ds_sweep s = *b->sweep;
    struct ds_sweep_result result;
    *o = (struct outcome){.b = b};
    s.header = &h;
    s.ctx = o;
    s.sink = take_trial;
    s.have = only_natural;
    s.recall = NULL;
    s.progress = NULL;
    int rc = ds_sweep_run(&s, &result, err);
    free(values);
    b->trials += o->trials;
    if (rc == 0 && result.interrupted)
        return DS_TRY_STOP;
    if (rc == 0 && result.failed && err)
        *err = result.first_failure;
    if (rc != 0 || result.failed) {
        explain_arms(b, arm_a, arm_b, err);
        return -1;
    }
    return o->seen[0] && o->seen[1] ? 0 : ds_fail(err, "an arm gave no trial");
}

static int remember(struct ds_bisect *b, const uint8_t *set, int outcome, struct ds_error *err)
{
    char *text = ds_calloc(b->n_atoms + 1, 1, "a set", err);
    if (!text || ds_grow(&b->known, &b->cap_known, b->n_known + 1, sizeof *b->known, "known sets",
                         err) != 0) {
        free(text);
        return -1;
    }
    for (size_t i = 0; i < b->n_atoms; i++)
        text[i] = set[i] ? '1' : '0';
    b->known[b->n_known++] = (struct ds_bisect_known){text, outcome};
    return b->tried ? b->tried(b->ctx, b, err) : 0;
}

static const struct ds_bisect_known *recall(const struct ds_bisect *b, const uint8_t *set)
{
    for (size_t k = 0; k < b->n_known; k++) {
        size_t i = 0;
        while (i < b->n_atoms && (b->known[k].set[i] == '1') == (set[i] != 0))
            i++;
        if (i == b->n_atoms)
            return &b->known[k];
    }
    return NULL;
}

/* Do the arms agree with these atoms from `to`? enum ds_bisect_outcome, -1, or -2: interrupted. */
static int outcome_of(struct ds_bisect *b, const uint8_t *set, struct ds_error *err)
{
    const struct ds_bisect_known *known = recall(b, set);
    if (known) {
        b->sets_known++;
        if (known->outcome == DS_BISECT_UNSTABLE && !b->unstable_set)
            b->unstable_set = ds_bisect_set_text(b, set, err);
        return known->outcome;
    }
    uint8_t *none = ds_calloc(b->n_atoms, 1, "a set", err);
    char *with = ds_bisect_set_text(b, set, err),
         *without = none ? ds_bisect_set_text(b, none, err) : NULL;
    struct outcome o;
    int rc = with && without ? run_arms(b, b->condition ? with : without, with, &o, err) : -1;
    free(none);
    free(without);
    if (rc == 0) {
        rc = o.unstable                 ? DS_BISECT_UNSTABLE
             : o.first[0] == o.first[1] ? DS_BISECT_AGREES
                                        : DS_BISECT_DIFFERS;
        b->sets_tried++;
        if (rc == DS_BISECT_UNSTABLE && !b->unstable_set) {
            b->unstable_set = with;
            with = NULL;
        }
        if (remember(b, set, rc, err) != 0)
            rc = -1;
    } else if (rc == DS_TRY_STOP) {
        rc = -2;
    }
    free(with);
    return rc;
}

/* ---- the search ------------------------------------------------------------------------------ */

struct question {
    struct ds_bisect *b;
    int agree;      /* what is asked for: 1 the arms agree, 0 they do not */
    int complement; /* the set is what is left as in `from` */
    /* [n_atoms] which element of the search an atom belongs to; SIZE_MAX: none. */
    const size_t *part;
    uint8_t *full; /* scratch [n_atoms] */
};

static int ask(void *ctx, const uint8_t *set, struct ds_error *err)
{
    struct question *q = ctx;
    for (size_t i = 0; i < q->b->n_atoms; i++) {
        int chosen = q->part[i] != SIZE_MAX && set[q->part[i]];
        q->full[i] = (uint8_t)(chosen != q->complement);
    }
    int outcome = outcome_of(q->b, q->full, err);
    if (outcome == -1)
        return -1;
    if (outcome == -2 || outcome == DS_BISECT_UNSTABLE) {
        q->b->result = outcome == -2 ? DS_BISECT_INTERRUPTED : DS_BISECT_NOT_STABLE;
        return DS_TRY_STOP;
    }
    return (outcome == DS_BISECT_AGREES) == q->agree ? DS_TRY_YES : DS_TRY_NO;
}

/* A minimal set of atoms for which the answer is yes, into out. First whole ops, then the layers
 * of those that are needed. */
static int smallest(struct ds_bisect *b, int agree, int complement, uint8_t *out, size_t *n_out,
                    struct ds_error *err)
{
    struct question q = {.b = b, .agree = agree, .complement = complement};
    size_t *part = ds_calloc(b->n_atoms, sizeof *part, "kernels", err), n = 0;
    uint8_t *in = ds_calloc(b->n_atoms, 1, "kernels", err);
    q.full = ds_calloc(b->n_atoms, 1, "kernels", err);
    q.part = part;
    int rc = part && in && q.full ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < b->n_atoms; i++) {
        n += i > 0 && b->atoms[i].op != b->atoms[i - 1].op;
        part[i] = n;
    }
    if (rc == 0)
        rc = ds_ddmin(n + 1, ask, &q, in, err);
    if (rc == 0 && n + 1 < b->n_atoms) {
        n = 0;
        for (size_t i = 0; i < b->n_atoms; i++)
            part[i] = in[part[i]] ? n++ : SIZE_MAX;
        rc = ds_ddmin(n, ask, &q, in, err);
    }
    *n_out = 0;
    for (size_t i = 0; rc == 0 && i < b->n_atoms; i++) {
        out[i] = part[i] != SIZE_MAX && in[part[i]];
        *n_out += out[i];
    }
    free(part);
    free(in);
    free(q.full);
    return rc;
}

/* ---- whether there is a smaller one -----------------------------------------------------------
 *
 * Nothing can be left out of a set that delta debugging found, and yet another one may have fewer: where two
 * effects cancel, or act only together. All smaller sets are tried, if they are few. */

enum { MOST_SMALLER = 64 };

/* Sets of fewer than `size` of n; more than MOST_SMALLER is as good as any. */
static size_t count_smaller(size_t n, size_t size)
{
    size_t all = 0, of_size = 1; /* n over k */
    for (size_t k = 0; k < size && all <= MOST_SMALLER; k++) {
        all += of_size;
        of_size = of_size * (n - k) / (k + 1);
    }
    return all;
}

/* The next choice of k of n in `at`, ascending; 0: there is none. */
static int next_choice(size_t *at, size_t k, size_t n)
{
    size_t i = k;
    while (i > 0 && at[i - 1] == n - k + i - 1)
        i--;
    if (i == 0)
        return 0;
    at[i - 1]++;
    for (; i < k; i++)
        at[i] = at[i - 1] + 1;
    return 1;
}

/* Whether the atoms `at` do it. An unstable set does not. */
static int does(struct ds_bisect *b, const size_t *at, size_t k, int agree, int complement,
                uint8_t *set, struct ds_error *err)
{
    memset(set, complement, b->n_atoms);
    for (size_t i = 0; i < k; i++)
        set[at[i]] = (uint8_t)!complement;
    const int outcome = outcome_of(b, set, err);
    if (outcome == -1)
        return -1;
    if (outcome == -2) {
        b->result = DS_BISECT_INTERRUPTED;
        return DS_TRY_STOP;
    }
    return outcome != DS_BISECT_UNSTABLE && (outcome == DS_BISECT_AGREES) == agree ? DS_TRY_YES
                                                                                   : DS_TRY_NO;
}

/* Takes a smaller set if there is one; *proven: all smaller ones than that of `out` are known. */
static int look_for_smaller(struct ds_bisect *b, int agree, int complement, uint8_t *out,
                            size_t *n_out, int *proven, struct ds_error *err)
{
    size_t at[MOST_SMALLER];
    uint8_t *set = ds_calloc(b->n_atoms, 1, "kernels", err);
    int rc = set ? DS_TRY_NO : -1;
    *proven = 0;
    if (count_smaller(b->n_atoms, *n_out) <= MOST_SMALLER)
        for (size_t k = 0; k < *n_out && rc == DS_TRY_NO; k++) {
            for (size_t i = 0; i < k; i++)
                at[i] = i;
            do
                rc = does(b, at, k, agree, complement, set, err);
            while (rc == DS_TRY_NO && next_choice(at, k, b->n_atoms));
            for (size_t i = 0; rc == DS_TRY_YES && i < b->n_atoms; i++)
                out[i] = set[i] != complement;
            *n_out = rc == DS_TRY_YES ? k : *n_out;
        }
    *proven = rc >= 0 && rc != DS_TRY_STOP && count_smaller(b->n_atoms, *n_out) <= MOST_SMALLER;
    free(set);
    return rc == DS_TRY_YES ? 0 : rc;
}

/* The two ends: with no atom exchanged, and with all of them. 0: go on. */
static int try_ends(struct ds_bisect *b, struct ds_error *err)
{
    uint8_t *set = ds_calloc(b->n_atoms, 1, "kernels", err);
    int end[2] = {-1, -1};
    for (int all = 0; set && all < 2; all++) {
        memset(set, all, b->n_atoms);
        end[all] = outcome_of(b, set, err);
        if (end[all] < 0 || end[all] == DS_BISECT_UNSTABLE)
            break;
        if (b->condition && !all && end[0] == DS_BISECT_AGREES)
            break;
    }
    free(set);
    if (end[0] == -1 || (end[0] != -2 && end[0] != DS_BISECT_UNSTABLE && end[1] == -1 &&
                         !(b->condition && end[0] == DS_BISECT_AGREES)))
        return -1;
    b->result = end[0] == -2 || end[1] == -2 ? DS_BISECT_INTERRUPTED
                : end[0] == DS_BISECT_UNSTABLE || end[1] == DS_BISECT_UNSTABLE
                    ? DS_BISECT_NOT_STABLE
                : (b->condition ? end[0] : end[1]) == DS_BISECT_AGREES ? DS_BISECT_SAME
                : (b->condition ? end[1] : end[0]) != DS_BISECT_AGREES ? DS_BISECT_UNCURED
                                                                       : DS_BISECT_FOUND;
    return 0;
}

int ds_bisect_run(struct ds_bisect *b, struct ds_error *err)
{
    if (ds_bisect_atoms(b, err) != 0)
        return -1;
    free(b->cure);
    free(b->cause);
    b->cure = ds_calloc(b->n_atoms, 1, "kernels", err);
    b->cause = ds_calloc(b->n_atoms, 1, "kernels", err);
    if (!b->cure || !b->cause || try_ends(b, err) != 0)
        return -1;
    if (b->result != DS_BISECT_FOUND)
        return 0;
    /* Under a condition the cure is what must come from `to`, and the cause what alone as in `from`
     * brings the difference in. Between two sets it is the other way round: what `to` has is the
     * cause, and the cure is what must stay as in `from`. */
    int rc = smallest(b, 0, b->condition, b->cause, &b->n_cause, err);
    if (rc == 0)
        rc = look_for_smaller(b, 0, b->condition, b->cause, &b->n_cause, &b->smallest[0], err);
    if (rc == 0)
        rc = smallest(b, 1, !b->condition, b->cure, &b->n_cure, err);
    if (rc == 0)
        rc = look_for_smaller(b, 1, !b->condition, b->cure, &b->n_cure, &b->smallest[1], err);
    return rc < 0 ? -1 : 0;
}

void ds_bisect_free(struct ds_bisect *b)
{
    for (size_t i = 0; i < b->n_known; i++)
        free(b->known[i].set);
    free(b->known);
    free(b->atoms);
    free(b->cure);
    free(b->cause);
    free(b->unstable_set);
    b->known = NULL;
    b->atoms = NULL;
    b->cure = b->cause = NULL;
    b->unstable_set = NULL;
    b->n_known = b->cap_known = b->n_atoms = 0;
}
