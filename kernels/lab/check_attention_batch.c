/* check_attention_batch.c: whether a row of attention depends on what else is in its call: how many
 * rows, in which order, what the others hold and how long they are, threads, and nothing at all
 * (repeat). */
#include "kernels/lab/check_attention.h"

#include <stdio.h>

/* Slot of the decode row of neighbour i: unlike lengths, all short. */
static int32_t neighbour_slot(int i)
{
    return i * 7 % 40;
}

/* Sequence 0 at `slot` and n - 1 neighbours, as decode rows. */
static void add_decode(struct ds_scene *s, int32_t slot, int n)
{
    ds_scene_add(s, 0, slot, 1);
    for (int i = 1; i < n; i++)
        ds_scene_add(s, i, neighbour_slot(i), 1);
}

/* ---- batch ---------------------------------------------------------------------------------------
 */

enum { MOST_SEQUENCES = 64, MOST_EDGES = 16 };

static int choice_among(struct ds_check *c, const struct ds_choice_of *of, int32_t n,
                        struct ds_launch_info *info)
{
    struct ds_scene s;
    ds_scene_begin(c, &s, NULL, of->threads);
    add_decode(&s, of->slot, n);
    return ds_check_describe(c, &s.call, info);
}

/* Whether a number of sequences is tried where not all of them are. */
static int is_tried(const int32_t *edge, int edges, int32_t n)
{
    int at_edge = n <= 4 || n % 16 <= 1;
    for (int i = 0; i < edges && !at_edge; i++)
        at_edge = edge[i] == n;
    return at_edge;
}

/* One row among 1..64 sequences; where not all, those at which the launch choice changes. */
static int batch_counts(struct ds_check *c, const struct ds_form *f, int threads, int32_t slot,
                        int all, struct ds_best_classes *best)
{
    struct ds_classes k = {.n = 0};
    const double before = ds_classes_begin(c);
    const struct ds_choice_of of = {threads, slot};
    int32_t count[DS_GRID_MOST], edge[2 * MOST_EDGES];
    const int n = ds_grid_sequences(count),
              edges = ds_attention_edges(c, &of, choice_among, MOST_SEQUENCES, edge, MOST_EDGES);
    for (int i = 0; i < n && edges >= 0; i++) {
        struct ds_scene s;
        if (!all && !c->opt->full && !is_tried(edge, edges, count[i])) {
            c->property->not_tried++;
            continue;
        }
        ds_scene_begin(c, &s, f, threads);
        add_decode(&s, slot, count[i]);
        ds_scene_text(&s, "among %d sequences", count[i]);
        int rc = ds_scene_hold_alone(c, &s, all ? -1 : 0);
        if (rc < 0)
            return -1;
        if (rc)
            ds_classes_add(&k, count[i], ds_scene_row(c, &s, 0, slot),
                           ((struct ds_attention_own *)c->own)->out.width);
    }
    ds_classes_best(c, best, &k, before, "the row at slot %d, %d thread%s", slot, threads,
                    threads == 1 ? "" : "s");
    return edges < 0 ? -1 : 0;
}

/* A decode row beside a prefill of every length, before and behind it. */
static int batch_prefill(struct ds_check *c, const struct ds_form *f, int threads, int32_t slot)
{
    int32_t q[DS_GRID_MOST];
    const int n = ds_grid_q(q);
    for (int i = 0; i < 2 * n; i++) {
        struct ds_scene s;
        ds_scene_begin(c, &s, f, threads);
        if (i % 2 == 0)
            ds_scene_add(&s, 0, slot, 1);
        ds_scene_add(&s, 1, 0, q[i / 2]);
        if (i % 2)
            ds_scene_add(&s, 0, slot, 1);
        ds_scene_text(&s, "%s a prefill of %d row%s", i % 2 ? "behind" : "before", q[i / 2],
                      q[i / 2] == 1 ? "" : "s");
        if (ds_scene_hold_alone(c, &s, 0) < 0)
            return -1;
    }
    return 0;
}

static int batch_length(struct ds_check *c, int threads, int32_t kv)
{
    struct ds_scene s;
    ds_scene_begin(c, &s, NULL, threads);
    add_decode(&s, kv - 1, 2);
    ds_scene_text(&s, "among 2 sequences");
    return ds_scene_hold_alone(c, &s, 0);
}

/* Beside one other row, at every KV length; first where the launch choice changes. */
static int batch_lengths(struct ds_check *c, int threads, struct ds_spans *spans)
{
    const struct ds_kv_list *l = ds_attention_kv(c, threads);
    for (int i = 0; l && i < l->n_edges; i++)
        if (batch_length(c, threads, l->edge[i]) < 0)
            return -1;
    for (int i = 0; l && i < l->n; i++) {
        int rc = batch_length(c, threads, l->kv[i]);
        if (rc < 0)
            return -1;
        if (rc)
            ds_spans_add(spans, l->kv[i], ((struct ds_attention_own *)c->own)->differs);
    }
    return l ? 0 : -1;
}

int ds_attention_batch(struct ds_check *c)
{
    static const int32_t slots[] = {0, 92, 255, 511, 1023};
    struct ds_best_classes best = {.cost = 0};
    struct ds_spans broken = {.of = "kv_len"};
    struct ds_form form[2];
    int threads[2];
    const int n_threads = ds_attention_threads(c, threads), n_forms = ds_attention_forms(c, form);
    ds_attention_budget(c);
    /* Where a kernel splits, it does so on many threads. */
    for (int t = n_threads - 1; t >= 0; t--) {
        struct ds_spans spans = {.of = "kv_len"};
        if (batch_lengths(c, threads[t], &spans) != 0)
            return -1;
        for (int f = 0; f < n_forms; f++) {
            for (int i = 0; i < 5; i++)
                if (batch_counts(c, &form[f], threads[t], slots[i], f == 0 && i % 3 == 1, &best) !=
                    0)
                    return -1;
            if (batch_prefill(c, &form[f], threads[t], 92) != 0 ||
                batch_prefill(c, &form[f], threads[t], 511) != 0)
                return -1;
        }
        if (!ds_spans_any(&broken))
            broken = spans;
    }
    ds_classes_done(c, &best, "sequences");
    ds_spans_print(c, &broken);
    return 0;
}

/* ---- slot ----------------------------------------------------------------------------------------
 */

/* n sequences, the first one `turn` places on; sequence 2 brings five rows, if it is there. */
static void add_turned(struct ds_scene *s, int n, int turn)
{
    for (int i = 0; i < n; i++) {
        const int who = ((i - turn) % n + n) % n;
        ds_scene_add(s, who,
                     who == 0   ? 599
                     : who == 1 ? 280
                                : neighbour_slot(who),
                     who == 2 ? 5 : 1);
    }
}

int ds_attention_slot(struct ds_check *c)
{
    static const int counts[] = {2, 5, 8, 32};
    struct ds_best_classes best = {.cost = 0};
    struct ds_form form[2];
    int threads[2];
    const int n_threads = ds_attention_threads(c, threads), n_forms = ds_attention_forms(c, form);
    ds_attention_budget(c);
    for (int run = 0; run < n_threads * n_forms * 4; run++) {
        const int n = counts[run % 4], t = threads[run / 4 % n_threads];
        const struct ds_form *f = &form[run / 4 / n_threads];
        struct ds_classes k = {.n = 0};
        const double before = ds_classes_begin(c);
        struct ds_scene base, s;
        ds_scene_begin(c, &base, f, t);
        add_turned(&base, n, 0);
        ds_scene_text(&base, "in its place among %d sequences", n);
        int rc = ds_scene_base(c, &base);
        if (rc < 0)
            return -1;
        for (int turn = 0; rc && turn < n; turn++) {
            ds_scene_begin(c, &s, f, t);
            add_turned(&s, n, turn);
            ds_scene_text(&s, "%d place%s on", turn, turn == 1 ? "" : "s");
            int got = ds_scene_hold(c, &base, &s, -1);
            if (got < 0)
                return -1;
            if (got)
                ds_classes_add(&k, turn, ds_scene_row(c, &s, 0, 599),
                               ((struct ds_attention_own *)c->own)->out.width);
        }
        ds_classes_best(c, &best, &k, before, "the row at slot 599 among %d sequences", n);
    }
    ds_classes_done(c, &best, "place");
    return 0;
}

/* ---- neighbours ------------------------------------------------------------------------------------
 */

/* `rows` rows of sequence 0, the last at `slot`, between two neighbours. */
static void between(const struct ds_check *c, struct ds_scene *s, const struct ds_form *f,
                    int threads, int32_t slot, int32_t rows, int32_t before, int32_t behind)
{
    ds_scene_begin(c, s, f, threads);
    ds_scene_add(s, 1, before, 1);
    ds_scene_add(s, 0, slot - rows + 1, rows);
    ds_scene_add(s, 2, behind, 1);
    ds_scene_text(s, "between kv_len %d and %d", before + 1, behind + 1);
}

static int neighbour_lengths(struct ds_check *c, const struct ds_form *f, int threads, int32_t slot,
                             int all, struct ds_best_classes *best, struct ds_spans *spans)
{
    struct ds_classes k = {.n = 0};
    const double before = ds_classes_begin(c);
    struct ds_scene base, s;
    const struct ds_kv_list *l = ds_attention_kv(c, threads);
    between(c, &base, f, threads, slot, 1, 0, 0);
    int rc = l ? ds_scene_base(c, &base) : -1;
    for (int i = 0; rc > 0 && i < l->n; i++) {
        if (!all && !c->opt->full && (i % 8 || l->kv[i] > 4096)) {
            c->property->not_tried++;
            continue;
        }
        between(c, &s, f, threads, slot, 1, l->kv[i] - 1, l->kv[i] - 1);
        int got = ds_scene_hold(c, &base, &s, 0);
        if (got < 0)
            return -1;
        if (got && all)
            ds_spans_add(spans, l->kv[i], ((struct ds_attention_own *)c->own)->differs);
        if (got && i % 3 == 0)
            ds_classes_add(&k, l->kv[i], ds_scene_row(c, &s, 0, slot),
                           ((struct ds_attention_own *)c->own)->out.width);
    }
    ds_classes_best(c, best, &k, before, "the row at slot %d, %d thread%s", slot, threads,
                    threads == 1 ? "" : "s");
    return rc < 0 ? -1 : 0;
}

static int neighbour_contents(struct ds_check *c, const struct ds_form *f, int threads,
                              int32_t slot, int32_t rows)
{
    struct ds_scene base, s;
    between(c, &base, f, threads, slot, rows, 6, 70);
    ds_scene_text(&base, "beside plain neighbours");
    int rc = ds_scene_base(c, &base);
    for (int content = 1; content < DS_CONTENT_TIED && rc > 0; content++) {
        between(c, &s, f, threads, slot, rows, 6, 70);
        s.segment[0].content = s.segment[2].content = content;
        ds_scene_text(&s, "beside neighbours of %s", ds_content_name(content));
        if (ds_scene_hold(c, &base, &s, 0) < 0)
            return -1;
    }
    /* The same number of rows, dealt in another way; padding in front of a neighbour. */
    for (int i = 0; i < 6 && rc > 0; i++) {
        between(c, &s, f, threads, slot, rows, 6, 70);
        if (i < 3)
            s.segment[2].padding = 1 + i * 20;
        else
            s.segment[0].first = 70 * (i - 2);
        ds_scene_text(&s, "between kv_len %lld and %lld",
                      (long long)ds_segment_kv_len(&s.segment[0]),
                      (long long)ds_segment_kv_len(&s.segment[2]));
        if (ds_scene_hold(c, &base, &s, 0) < 0)
            return -1;
    }
    return rc < 0 ? -1 : 0;
}

/* The neighbours' rows are dealt in another way: 1 and 5, 3 and 3, 5 and 1. */
static int neighbour_rows(struct ds_check *c, const struct ds_form *f, int threads, int32_t slot)
{
    struct ds_scene scene[3];
    int rc = 1;
    for (int i = 0; i < 3 && rc > 0; i++) {
        ds_scene_begin(c, &scene[i], f, threads);
        ds_scene_add(&scene[i], 0, slot, 1);
        ds_scene_add(&scene[i], 1, 40, 1 + 2 * i);
        ds_scene_add(&scene[i], 2, 40, 5 - 2 * i);
        ds_scene_text(&scene[i], "beside chunks of %d and %d rows", 1 + 2 * i, 5 - 2 * i);
        rc = i ? ds_scene_hold(c, &scene[0], &scene[i], 0) : ds_scene_base(c, &scene[0]);
    }
    return rc < 0 ? -1 : 0;
}

int ds_attention_neighbours(struct ds_check *c)
{
    static const int32_t slots[] = {92, 511, 700};
    struct ds_best_classes best = {.cost = 0};
    struct ds_spans spans = {.of = "kv_len beside"};
    struct ds_form form[2];
    int threads[2];
    const int n_threads = ds_attention_threads(c, threads), n_forms = ds_attention_forms(c, form);
    ds_attention_budget(c);
    for (int f = 0; f < n_forms; f++)
        for (int t = n_threads - 1; t >= 0; t--)
            for (int i = 0; i < 3; i++)
                if (neighbour_contents(c, &form[f], threads[t], slots[i], 1) != 0 ||
                    neighbour_contents(c, &form[f], threads[t], slots[i], 5) != 0 ||
                    neighbour_rows(c, &form[f], threads[t], slots[i]) != 0 ||
                    neighbour_lengths(c, &form[f], threads[t], slots[i],
                                      f == 0 && i == 0 && t == n_threads - 1, &best, &spans) != 0)
                    return -1;
    ds_classes_done(c, &best, "kv_len beside");
    ds_spans_print(c, &spans);
    return 0;
}

/* ---- threads ----------------------------------------------------------------------------------------
 */

/* Scenes of all kinds, i = 0..; 0 = there is none so numbered. */
static int some_scene(const struct ds_check *c, struct ds_scene *s, const struct ds_form *f,
                      int threads, int i)
{
    ds_scene_begin(c, s, f, threads);
    switch (i) {
    case 0:
        ds_scene_add(s, 0, 32, 1);
        return 1;
    case 1:
        ds_scene_add(s, 0, 1023, 1);
        return 1;
    case 2:
        add_decode(s, 599, 5);
        return 1;
    case 3:
        ds_scene_add(s, 0, 0, 40);
        return 1;
    case 4:
        ds_scene_add(s, 0, 500, 20);
        ds_scene_add(s, 1, 37, 1);
        return 1;
    case 5:
        add_decode(s, 20, 33);
        return 1;
    case 6:
        ds_scene_add(s, 0, 0, 128);
        return 1;
    default:
        return 0;
    }
}

static const char *kind_of(int i)
{
    static const char *const kinds[] = {"alone",
                                        "alone",
                                        "among 5 sequences",
                                        "in a prefill of 40 rows",
                                        "in a chunk beside a decode row",
                                        "among 33 sequences",
                                        "in a prefill of 128 rows"};
    return kinds[i];
}

static int thread_scenes(struct ds_check *c, const struct ds_form *f, struct ds_best_classes *best)
{
    struct ds_scene base, s;
    for (int i = 0; some_scene(c, &base, f, c->opt->threads[0], i); i++) {
        struct ds_classes k = {.n = 0};
        const double before = ds_classes_begin(c);
        const struct ds_segment *seg = &base.segment[0];
        ds_scene_text(&base, "%s", kind_of(i));
        int rc = ds_scene_base(c, &base);
        for (int t = 0; t < c->opt->n_threads && rc > 0; t++) {
            some_scene(c, &s, f, c->opt->threads[t], i);
            ds_scene_text(&s, "on %d thread%s", c->opt->threads[t],
                          c->opt->threads[t] == 1 ? "" : "s");
            int got = ds_scene_hold(c, &base, &s, -1);
            if (got < 0)
                return -1;
            if (got)
                ds_classes_add(&k, c->opt->threads[t],
                               ds_scene_row(c, &s, 0, seg->first + seg->length - 1),
                               ((struct ds_attention_own *)c->own)->out.width);
        }
        if (rc < 0)
            return -1;
        ds_classes_best(c, best, &k, before, "the row at slot %d %s", seg->first + seg->length - 1,
                        kind_of(i));
    }
    return 0;
}

static int thread_length(struct ds_check *c, int threads, int32_t kv)
{
    struct ds_scene s;
    ds_scene_begin(c, &s, NULL, threads);
    ds_scene_add(&s, 0, kv - 1, 1);
    ds_scene_text(&s, "on %d threads", threads);
    return ds_scene_hold_alone(c, &s, -1);
}

/* A row alone at every KV length, on the last thread count; first where the launch choice changes. */
static int thread_lengths(struct ds_check *c, struct ds_spans *spans)
{
    const int threads = c->opt->threads[c->opt->n_threads - 1];
    const struct ds_kv_list *l = ds_attention_kv(c, threads);
    for (int i = 0; l && i < l->n_edges; i++)
        if (thread_length(c, threads, l->edge[i]) < 0)
            return -1;
    for (int i = 0; l && i < l->n; i++) {
        int rc = thread_length(c, threads, l->kv[i]);
        if (rc < 0)
            return -1;
        if (rc)
            ds_spans_add(spans, l->kv[i], ((struct ds_attention_own *)c->own)->differs);
    }
    return l ? 0 : -1;
}

int ds_attention_thread_counts(struct ds_check *c)
{
    struct ds_attention_own *own = c->own;
    struct ds_best_classes best = {.cost = 0};
    struct ds_spans spans = {.of = "kv_len"};
    struct ds_form form[2];
    const int n_forms = ds_attention_forms(c, form);
    if (c->opt->n_threads < 2) {
        ds_check_not_applicable(c, "only one thread count was asked for");
        return 0;
    }
    ds_attention_budget(c);
    own->ref_threads = c->opt->threads[0];
    int rc = thread_lengths(c, &spans);
    for (int f = 0; f < n_forms && rc == 0; f++)
        rc = thread_scenes(c, &form[f], &best);
    own->ref_threads = 0;
    ds_classes_done(c, &best, "threads");
    ds_spans_print(c, &spans);
    return rc;
}

/* ---- repeat -----------------------------------------------------------------------------------------
 */

enum { PLAIN_REPEATS = 3, DISTURBED_REPEATS = 8 };

int ds_attention_repeat(struct ds_check *c)
{
    struct ds_form form[2];
    int threads[2];
    const int n_threads = ds_attention_threads(c, threads), n_forms = ds_attention_forms(c, form);
    ds_attention_budget(c);
    for (int run = 0; run < n_threads * n_forms; run++) {
        const struct ds_form *f = &form[run / n_threads];
        struct ds_scene base, s;
        for (int i = 0; some_scene(c, &base, f, threads[run % n_threads], i); i++) {
            ds_scene_text(&base, "%s", kind_of(i));
            int rc = ds_scene_base(c, &base);
            for (int r = 1; r <= PLAIN_REPEATS + DISTURBED_REPEATS && rc > 0; r++) {
                some_scene(c, &s, f, threads[run % n_threads], i);
                s.call.seed = base.call.seed + (uint64_t)r * 7919;
                s.call.disturb = r > PLAIN_REPEATS ? (uint64_t)r * 104729 : 0;
                ds_scene_text(&s, "again%s", s.call.disturb ? ", with a disturbed schedule" : "");
                if (ds_scene_hold(c, &base, &s, -1) < 0)
                    return -1;
            }
            if (rc < 0)
                return -1;
        }
    }
    return 0;
}
