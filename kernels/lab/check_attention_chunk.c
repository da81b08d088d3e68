/* check_attention_chunk.c: whether a row of attention depends on how its sequence was cut into
 * calls, on pages and their order, on left padding and on addresses, and on memory that nobody
 * wrote. */
#include "kernels/lab/check_attention.h"

#include "base/plural.h"

#include <stdio.h>

/* Rows slot-q+1..slot of sequence 0. */
static void chunk_scene(const struct ds_check *c, struct ds_scene *s, const struct ds_form *f,
                        int threads, int32_t slot, int32_t q)
{
    ds_scene_begin(c, s, f, threads);
    ds_scene_add(s, 0, slot - q + 1, q);
    if (q == 1)
        ds_scene_text(s, "alone");
    else
        ds_scene_text(s, "in a chunk of %d rows, slots %d-%d", q, slot - q + 1, slot);
}

/* ---- chunk -------------------------------------------------------------------------------------------
 */

/* Chunks of every length are asked about, and a few borders are run. */
enum { DEEP = 1023, LONGEST = 512, MOST_EDGES = 8 };

static int choice_deep(struct ds_check *c, const struct ds_choice_of *of, int32_t q,
                       struct ds_launch_info *info)
{
    struct ds_scene s;
    chunk_scene(c, &s, NULL, of->threads, DEEP, q);
    return ds_check_describe(c, &s.call, info);
}

/* A row as the last (or the first) of chunks of every length up to `most`. */
static int chunk_lengths(struct ds_check *c, const struct ds_form *f, int threads, int32_t slot,
                         int32_t most, int first, struct ds_best_classes *best)
{
    struct ds_classes k = {.n = 0};
    const double before = ds_classes_begin(c);
    int32_t q[DS_GRID_MOST], edge[2 * MOST_EDGES];
    const struct ds_choice_of of = {.threads = threads};
    int n = ds_grid_q(q);
    const int edges = ds_attention_edges(c, &of, choice_deep, LONGEST, edge, MOST_EDGES);
    for (int i = 0; i < edges; i++)
        n = ds_grid_insert(q, n, edge[i]);
    for (int i = 0; i < n && (first || q[i] <= slot + 1); i++) {
        struct ds_scene s;
        if (q[i] > most && !c->opt->full) {
            c->property->not_tried++;
            continue;
        }
        chunk_scene(c, &s, f, threads, first ? slot + q[i] - 1 : slot, q[i]);
        int rc = ds_scene_hold_alone(c, &s, -1);
        if (rc < 0)
            return -1;
        if (rc)
            ds_classes_add(&k, q[i], ds_scene_row(c, &s, 0, slot),
                           ((struct ds_attention_own *)c->own)->out.width);
    }
    ds_classes_best(c, best, &k, before, "the row at slot %d, the %s of its chunk, %d thread%s",
                    slot, first ? "first" : "last", threads, threads == 1 ? "" : "s");
    return edges < 0 ? -1 : 0;
}

/* Chunks of q rows that end at every KV length (or at every `step`-th above 64), first of two rows
 * where the launch choice for a row alone changes. */
static int chunk_kv(struct ds_check *c, int threads, int32_t q, int step, struct ds_spans *spans)
{
    const struct ds_kv_list *l = ds_attention_kv(c, threads);
    int32_t all_q[DS_GRID_MOST];
    const int n_q = ds_grid_q(all_q);
    struct ds_scene s;
    for (int i = 0; l && i < l->n_edges; i++) {
        chunk_scene(c, &s, NULL, threads, l->edge[i] - 1, l->edge[i] < 2 ? 1 : 2);
        if (ds_scene_hold_alone(c, &s, -1) < 0)
            return -1;
    }
    for (int i = 0; l && i < l->n; i++) {
        c->property->not_tried += n_q - 1; /* of the grid of query and KV lengths */
        if (l->kv[i] < q || (l->kv[i] > 64 && i % step && !c->opt->full))
            continue;
        chunk_scene(c, &s, NULL, threads, l->kv[i] - 1, q);
        int rc = ds_scene_hold_alone(c, &s, -1);
        if (rc < 0)
            return -1;
        if (rc)
            ds_spans_add(spans, l->kv[i], ((struct ds_attention_own *)c->own)->differs);
    }
    return l ? 0 : -1;
}

/* A whole sequence cut into chunks of every size, from two rows to all at once. */
static int whole_sequence(struct ds_check *c, const struct ds_form *f, int threads, int32_t length)
{
    int32_t size[DS_GRID_MOST];
    int n = ds_grid_q(size);
    size[n++] = length;
    for (int i = 1; i < n; i++) {
        if (!c->opt->full && length > 100 && size[i] % 64 && size[i] != 7 && size[i] != length)
            continue;
        for (int32_t at = 0; at < length && size[i] <= length; at += size[i]) {
            struct ds_scene s;
            const int32_t rows = at + size[i] < length ? size[i] : length - at;
            chunk_scene(c, &s, f, threads, at + rows - 1, rows);
            if (rows == length)
                ds_scene_text(&s, "in one prefill of %d rows", length);
            if (ds_scene_hold_alone(c, &s, -1) < 0)
                return -1;
        }
    }
    return 0;
}

static int chunk_on(struct ds_check *c, const struct ds_form *f, int threads,
                    struct ds_best_classes *best)
{
    static const struct {
        int32_t slot, most; /* longest chunk */
        int first;
    } rows[] = {{15, 16, 0},   {255, 9, 0},  {127, 128, 0}, {511, 128, 0},
                {DEEP, 16, 0}, {92, 128, 1}, {506, 9, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (chunk_lengths(c, f, threads, rows[i].slot, rows[i].most, rows[i].first, best) != 0)
            return -1;
    return whole_sequence(c, f, threads, 70) != 0 || whole_sequence(c, f, threads, 300) != 0 ? -1
                                                                                             : 0;
}

int ds_attention_chunk(struct ds_check *c)
{
    struct ds_best_classes best = {.cost = 0};
    struct ds_spans spans = {.of = "kv_len"};
    struct ds_form form[2];
    int threads[2];
    const int n_threads = ds_attention_threads(c, threads), n_forms = ds_attention_forms(c, form);
    ds_attention_budget(c);
    /* Where a kernel splits, it does so on many threads. */
    if (chunk_kv(c, threads[n_threads - 1], 3, 1, &spans) != 0)
        return -1;
    for (int t = n_threads - 1; t >= 0; t--) {
        struct ds_spans plain = {.of = "kv_len"};
        for (int f = 0; f < n_forms; f++)
            if (chunk_on(c, &form[f], threads[t], &best) != 0)
                return -1;
        if (t + 1 < n_threads && chunk_kv(c, threads[t], 2, 3, &plain) != 0)
            return -1;
        if (!ds_spans_any(&spans))
            spans = plain;
    }
    ds_classes_done(c, &best, "rows");
    ds_spans_print(c, &spans);
    return 0;
}

/* ---- alignment: addresses, leading dimensions, pages, padding ----------------------------------------
 */

static const int32_t PAGE_KV[] = {1, 15, 16, 17, 63, 64, 65, 256, 257, 600};
enum { N_PAGE_KV = sizeof PAGE_KV / sizeof PAGE_KV[0] };

static int page_sizes(struct ds_check *c, const struct ds_form *f, int threads,
                      struct ds_best_classes *best)
{
    int32_t size[DS_GRID_MOST];
    const int n = ds_grid_pages(size);
    for (int i = 0; i < N_PAGE_KV; i++) {
        struct ds_classes k = {.n = 0};
        const double before = ds_classes_begin(c);
        for (int p = 0; p < 3 * n; p++) {
            struct ds_scene s;
            const int32_t rows = i % 2 && PAGE_KV[i] > 3 ? 3 : 1;
            chunk_scene(c, &s, f, threads, PAGE_KV[i] - 1, rows);
            if (rows == 1)
                ds_scene_add(&s, 1, 21, 1);
            s.call.page_size = size[p / 3];
            s.call.permute = (uint64_t)(p % 3);
            s.call.spare_slots = p % 3 == 2 ? 9 : 0;
            ds_scene_text(&s, "with pages of %d%s", size[p / 3],
                          s.call.permute ? " in another order" : "");
            struct ds_scene base;
            chunk_scene(c, &base, f, threads, PAGE_KV[i] - 1, rows);
            if (rows == 1)
                ds_scene_add(&base, 1, 21, 1);
            ds_scene_text(&base, "with pages of %d", DS_BASE_PAGE);
            int rc = p == 0 ? ds_scene_base(c, &base) : 1;
            int got = rc > 0 ? ds_scene_hold(c, &base, &s, -1) : rc;
            if (got < 0)
                return -1;
            if (rc == 0)
                break;
            if (got && p % 3 == 0)
                ds_classes_add(&k, size[p / 3], ds_scene_row(c, &s, 0, PAGE_KV[i] - 1),
                               ((struct ds_attention_own *)c->own)->out.width);
        }
        ds_classes_best(c, best, &k, before, "the row at slot %d, %d thread%s", PAGE_KV[i] - 1,
                        threads, threads == 1 ? "" : "s");
    }
    return 0;
}

static int addresses(struct ds_check *c, const struct ds_form *f, int threads)
{
    static const int gaps[] = {0, 1, 3, 16}, chunk[] = {1, 5, 33};
    for (int kind = 0; kind < 3; kind++) {
        struct ds_scene base, s;
        chunk_scene(c, &base, f, threads, 70, chunk[kind]);
        ds_scene_add(&base, 1, 20, 1);
        ds_scene_text(&base, "at aligned addresses");
        int rc = ds_scene_base(c, &base);
        for (int place = 0; place <= DS_PLACE_START && rc > 0; place++)
            for (int g = 0; g < 4; g++) {
                chunk_scene(c, &s, f, threads, 70, chunk[kind]);
                ds_scene_add(&s, 1, 20, 1);
                s.call.place = place;
                s.call.gap = gaps[g];
                ds_scene_text(&s, "at offset %d with %d between rows", place, gaps[g]);
                if (place >= DS_PLACE_END)
                    ds_scene_text(&s, "where arrays %s at a page",
                                  place == DS_PLACE_END ? "end" : "start");
                if (ds_scene_hold(c, &base, &s, -1) < 0)
                    return -1;
            }
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int paddings(struct ds_check *c, const struct ds_form *f, int threads)
{
    static const int32_t padding[] = {1, 3, 16, 37, 64}, kv[] = {5, 40, 300, 513};
    for (int i = 0; i < 20; i++) {
        struct ds_scene base, s;
        const int32_t slot = kv[i / 5] - 1, rows = i % 2 ? 4 : 1;
        chunk_scene(c, &base, f, threads, slot, rows);
        chunk_scene(c, &s, f, threads, slot, rows);
        s.segment[0].padding = padding[i % 5];
        ds_scene_text(&s, "behind %d row%s of padding", padding[i % 5], ds_plural(padding[i % 5]));
        ds_scene_text(&base, "without padding");
        int rc = ds_scene_base(c, &base);
        if (rc < 0 || (rc > 0 && ds_scene_hold(c, &base, &s, -1) < 0))
            return -1;
    }
    return 0;
}

int ds_attention_alignment(struct ds_check *c)
{
    struct ds_best_classes best = {.cost = 0};
    struct ds_form form[2];
    int threads[2];
    const int n_threads = ds_attention_threads(c, threads), n_forms = ds_attention_forms(c, form);
    ds_attention_budget(c);
    for (int run = 0; run < n_threads * n_forms; run++) {
        const struct ds_form *f = &form[run / n_threads];
        const int t = threads[run % n_threads];
        if (addresses(c, f, t) != 0 || page_sizes(c, f, t, &best) != 0 || paddings(c, f, t) != 0)
            return -1;
    }
    ds_classes_done(c, &best, "page size");
    return 0;
}

/* ---- memory --------------------------------------------------------------------------------------------
 */

static const char *area_read(int area)
{
    static const char *const texts[DS_AREA_COUNT] = {
        "reads a slot beyond kv_len", "reads a slot below kv_first (left padding)",
        "reads a slot before the window", "reads a page of no sequence of the call"};
    return texts[area];
}

/* Unlike lengths, so that the longest is far from the shortest; padding; a chunk. */
static int memory_scene(const struct ds_check *c, struct ds_scene *s, const struct ds_form *f,
                        int threads, int i)
{
    struct ds_segment *seg;
    ds_scene_begin(c, s, f, threads);
    switch (i) {
    case 0: /* a row alone */
        ds_scene_add(s, 0, 8, 1)->padding = 3;
        break;
    case 1: /* short beside long */
        seg = ds_scene_add(s, 0, 4, 1);
        seg->padding = 5;
        ds_scene_add(s, 1, 300, 1);
        break;
    case 2: /* a chunk beside decode rows */
        ds_scene_add(s, 0, 21, 7)->padding = 2;
        ds_scene_add(s, 1, 90, 1);
        ds_scene_add(s, 2, 0, 1);
        break;
    case 3: /* a first chunk, so that a whole length given for its own reads far */
        ds_scene_add(s, 0, 0, 4);
        ds_scene_add(s, 1, 530, 1)->padding = 1;
        break;
    case 4: /* deep */
        ds_scene_add(s, 0, 600, 3)->padding = 17;
        break;
    default:
        return 0;
    }
    s->call.page_size = i % 2 ? 8 : 64;
    s->call.permute = (uint64_t)i;
    s->call.spare_slots = 640; /* lists of pages hold more slots than any sequence has */
    return 1;
}

static int spoiled(struct ds_check *c, const struct ds_form *f, int threads, int i)
{
    struct ds_scene base, s;
    if (!memory_scene(c, &base, f, threads, i))
        return 0;
    int rc = ds_scene_base(c, &base);
    for (int area = 0; area < DS_AREA_COUNT && rc > 0; area++) {
        memory_scene(c, &s, f, threads, i);
        s.call.spoil = 1u << area;
        ds_scene_text(&s, "when it holds other values: %s", area_read(area));
        if (ds_scene_hold(c, &base, &s, -1) < 0)
            return -1;
    }
    /* Scratch and gaps, too; and lists of pages with nothing behind them, held against the same lists: without spare
     * pages sequences have pages of other numbers, and what changes with those is no matter of memory. */
    for (int last = 0; last < 4 && rc > 0; last++) {
        if (last == 1) {
            memory_scene(c, &base, f, threads, i);
            base.call.spare_slots = 0;
            ds_scene_text(&base, "in memory that holds numbers");
            if ((rc = ds_scene_base(c, &base)) <= 0)
                break;
        }
        memory_scene(c, &s, f, threads, i);
        s.call.place = last ? DS_PLACE_END + last - 2 : 0;
        s.call.place = last == 1 ? 0 : s.call.place;
        s.call.poison = last ? DS_POISON_NAN : DS_POISON_HUGE;
        s.call.spare_slots = last ? 0 : s.call.spare_slots;
        ds_scene_text(&s, last ? "without spare pages" : "with other values in unwritten memory");
        if (ds_scene_hold(c, &base, &s, -1) < 0)
            return -1;
    }
    return rc < 0 ? -1 : 1;
}

int ds_attention_memory(struct ds_check *c)
{
    struct ds_form form[2];
    int threads[2];
    const int n_threads = ds_attention_threads(c, threads), n_forms = ds_attention_forms(c, form);
    ds_attention_budget(c);
    for (int run = 0; run < n_threads * n_forms; run++) {
        int rc = 1;
        for (int i = 0; rc > 0; i++)
            rc = spoiled(c, &form[run / n_threads], threads[run % n_threads], i);
        if (rc < 0)
            return -1;
    }
    return 0;
}
