/* check_attention.c: the plan of check for attention: base results of rows alone, scenes held
 * against them, lengths at which the launch choice changes. The properties themselves are in
 * check_attention_*.c. */
#include "kernels/lab/check_attention.h"

#include "base/mem.h"
#include "kernels/lab/content.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- base results ----------------------------------------------------------------------------------
 */

struct key {
    const struct ds_subject *subject;
    int32_t sequence, slot, content, threads, window;
    uint32_t features, soft_cap;
};
struct ds_alone {
    struct key key; /* subject NULL: free */
    uint32_t *bits; /* NULL: there is no result */
    int64_t width;
    struct ds_launch_info launch;
};

static int open_own(struct ds_check *c)
{
    return (c->own = ds_calloc(1, sizeof(struct ds_attention_own), "base results", c->err)) ? 0
                                                                                            : -1;
}

static void close_own(struct ds_check *c)
{
    struct ds_attention_own *own = c->own;
    if (!own)
        return;
    for (size_t i = 0; i < own->alone_cap; i++)
        free(own->alone[i].bits);
    free(own->alone);
    ds_output_free(&own->out);
    ds_output_free(&own->base);
    ds_output_free(&own->one);
    free(own);
    c->own = NULL;
}

/* The place of a key in a table that has free places. */
static struct ds_alone *find(struct ds_alone *table, size_t cap, const struct key *key)
{
    uint64_t h = ds_content_hash((uint64_t)(uint32_t)key->sequence << 32 | (uint32_t)key->slot,
                                 (uint64_t)(uint32_t)key->threads << 32 | key->features);
    for (size_t i = h % cap;; i = (i + 1) % cap)
        if (!table[i].key.subject || memcmp(&table[i].key, key, sizeof *key) == 0)
            return &table[i];
}

static int make_room(struct ds_attention_own *own, struct ds_error *err)
{
    if (own->alone_cap > 2 * own->n_alone)
        return 0;
    const size_t cap = own->alone_cap ? 2 * own->alone_cap : 1024;
    struct ds_alone *table = ds_calloc(cap, sizeof *table, "base results", err);
    if (!table)
        return -1;
    for (size_t i = 0; i < own->alone_cap; i++)
        if (own->alone[i].key.subject)
            *find(table, cap, &own->alone[i].key) = own->alone[i];
    free(own->alone);
    own->alone = table;
    own->alone_cap = cap;
    return 0;
}

static int run_alone(struct ds_check *c, const struct ds_call *like, const struct key *key,
                     struct ds_alone *a)
{
    struct ds_attention_own *own = c->own;
    const struct ds_segment seg = {
        .sequence = key->sequence, .first = key->slot, .length = 1, .content = key->content};
    struct ds_call call = ds_check_call(c, &seg, 1);
    call.threads = key->threads;
    call.page_size = DS_BASE_PAGE;
    call.features = like->features;
    call.window = like->window;
    call.soft_cap = like->soft_cap;
    int rc = ds_check_launch_base(c, &call, &own->one);
    a->key = *key;
    a->bits = NULL;
    own->n_alone++;
    if (rc <= 0)
        return rc;
    a->width = own->one.width;
    a->launch = own->one.launch;
    a->bits = malloc((size_t)a->width * sizeof *a->bits);
    if (!a->bits)
        return ds_fail(c->err, "out of memory: base results");
    memcpy(a->bits, own->one.bits, (size_t)a->width * sizeof *a->bits);
    return 1;
}

/* The row of a segment alone, in the same form: 1 = *bits and *launch, until the next one is asked for; 0 =
 * it has no result, -1. */
static int alone(struct ds_check *c, const struct ds_call *like, const struct ds_segment *seg,
                 int32_t slot, const uint32_t **bits, const struct ds_launch_info **launch)
{
    struct ds_attention_own *own = c->own;
    struct key key;
    memset(&key, 0, sizeof key);
    key.subject = c->subject;
    key.sequence = seg->sequence;
    key.slot = slot;
    key.content = seg->content;
    key.threads = own->ref_threads ? own->ref_threads : like->threads;
    key.features = like->features;
    key.window = like->window;
    memcpy(&key.soft_cap, &like->soft_cap, sizeof key.soft_cap);
    if (make_room(own, c->err) != 0)
        return -1;
    struct ds_alone *a = find(own->alone, own->alone_cap, &key);
    int rc = a->key.subject ? a->bits != NULL : run_alone(c, like, &key, a);
    *bits = a->bits;
    *launch = &a->launch;
    return rc;
}

/* ---- scenes ------------------------------------------------------------------------------------------
 */

int ds_attention_forms(const struct ds_check *c, struct ds_form form[2])
{
    const uint32_t of_attention =
        DS_FEATURE_WINDOW | DS_FEATURE_SOFT_CAP | DS_FEATURE_SINKS | DS_FEATURE_LSE;
    const uint32_t has = ds_subject_kernel(c->subject)->features & of_attention;
    form[0] = (struct ds_form){0};
    form[1] = (struct ds_form){.features = has,
                               .window = has & DS_FEATURE_WINDOW ? 37 : 0,
                               .soft_cap = has & DS_FEATURE_SOFT_CAP ? 3.0f : 0.0f};
    return has ? 2 : 1;
}

int ds_attention_threads(const struct ds_check *c, int threads[2])
{
    threads[0] = c->opt->threads[0];
    threads[1] = c->opt->threads[c->opt->n_threads - 1];
    return threads[1] == threads[0] ? 1 : 2;
}

void ds_scene_begin(const struct ds_check *c, struct ds_scene *s, const struct ds_form *f,
                    int threads)
{
    s->call = ds_check_call(c, s->segment, 0);
    s->call.threads = threads;
    s->call.page_size = DS_BASE_PAGE;
    if (f) {
        s->call.features = f->features;
        s->call.window = f->window;
        s->call.soft_cap = f->soft_cap;
    }
    s->text[0] = '\0';
}

struct ds_segment *ds_scene_add(struct ds_scene *s, int32_t sequence, int32_t first, int32_t length)
{
    struct ds_segment *seg = &s->segment[s->call.n_segments++];
    *seg = (struct ds_segment){.sequence = sequence, .first = first, .length = length};
    return seg;
}

void ds_scene_text(struct ds_scene *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->text, sizeof s->text, fmt, ap);
    va_end(ap);
}

/* Settings that both sides of a pair share: ", 2 threads, window 37". */
static void shared(const struct ds_check *c, const struct ds_call *call, char *text, size_t size)
{
    const struct ds_attention_own *own = c->own;
    int n = 0;
    text[0] = '\0';
    if (call->threads != c->opt->threads[0] && !own->ref_threads)
        n += snprintf(text, size, ", %d threads", call->threads);
    if (call->features & DS_FEATURE_WINDOW && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, ", window %d", call->window);
    if (call->features & DS_FEATURE_SOFT_CAP && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, ", soft cap %g", (double)call->soft_cap);
    if (call->features & DS_FEATURE_SINKS && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, ", sinks");
    if (call->features & DS_FEATURE_LSE && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, ", lse");
}

/* The fewer rows and the shorter the sequence, the smaller the pair. */
static double cost_of(const struct ds_call *call, int32_t slot)
{
    return (double)ds_call_rows(call) * 65536.0 + slot;
}

/* Row j of n of a chunk: is it looked at? Those at either side of a tile's border are. */
static int chosen(int32_t j, int32_t n)
{
    return n <= 16 || j < 3 || j >= n - 3 || j % 21 == 0 || (j + 1) % 32 < 2;
}

/* 1: the row differs and is the smallest pair so far. What differs may be wrong, too. */
static int differs(struct ds_check *c, const struct ds_scene *s, const struct ds_segment *seg,
                   int32_t slot, const uint32_t *got, const uint32_t *ref, const char *other)
{
    struct ds_attention_own *own = c->own;
    const int64_t before = c->property->differ;
    const int smallest = ds_check_differs(c, ref, got, own->out.width, cost_of(&s->call, slot));
    if (c->property->differ == before)
        return 0;
    own->differs++;
    return ds_attention_is_right(c, s, seg, slot, got, ref, other) != 0 ? -1 : smallest;
}

static const char *where(int32_t sequence)
{
    return sequence ? " of a neighbour" : "";
}

int ds_scene_hold_alone(struct ds_check *c, const struct ds_scene *s, int32_t sequence)
{
    struct ds_attention_own *own = c->own;
    int64_t row = 0;
    int rc = ds_check_launch(c, &s->call, &own->out);
    own->differs = 0;
    if (rc <= 0)
        return rc;
    for (int64_t i = 0; i < s->call.n_segments; i++) {
        const struct ds_segment *seg = &s->segment[i];
        for (int32_t j = 0; j < seg->length; j++, row++) {
            const uint32_t *got = own->out.bits + row * own->out.width, *ref;
            const struct ds_launch_info *launch;
            const int32_t slot = seg->first + j;
            char more[96];
            if (slot < 0 || (sequence >= 0 && seg->sequence != sequence) || !chosen(j, seg->length))
                continue;
            if ((rc = alone(c, &s->call, seg, slot, &ref, &launch)) < 0)
                return -1;
            if (rc == 0)
                continue;
            if ((rc = differs(c, s, seg, slot, got, ref, "alone")) < 0)
                return -1;
            if (rc == 0)
                continue;
            shared(c, &s->call, more, sizeof more);
            ds_check_pair(c, "the row at slot %d%s alone against the same row %s%s", slot,
                          where(seg->sequence), s->text, more);
            ds_check_choices(c, launch, &own->out.launch);
        }
    }
    return 1;
}

int ds_scene_base(struct ds_check *c, const struct ds_scene *base)
{
    struct ds_attention_own *own = c->own;
    return ds_check_launch_base(c, &base->call, &own->base);
}

/* The row number of (sequence, slot) in a call, or -1. */
static int64_t row_in(const struct ds_scene *s, int32_t sequence, int32_t slot)
{
    int64_t row = 0;
    for (int64_t i = 0; i < s->call.n_segments; i++) {
        const struct ds_segment *seg = &s->segment[i];
        if (seg->sequence == sequence && slot >= seg->first && slot < seg->first + seg->length)
            return row + slot - seg->first;
        row += seg->length;
    }
    return -1;
}

const uint32_t *ds_scene_row(const struct ds_check *c, const struct ds_scene *s, int32_t sequence,
                             int32_t slot)
{
    const struct ds_attention_own *own = c->own;
    const int64_t row = row_in(s, sequence, slot);
    return row >= 0 && row < own->out.rows ? own->out.bits + row * own->out.width : NULL;
}

int ds_scene_hold(struct ds_check *c, const struct ds_scene *base, const struct ds_scene *s,
                  int32_t sequence)
{
    struct ds_attention_own *own = c->own;
    int64_t row = 0;
    int rc = ds_check_launch(c, &s->call, &own->out);
    own->differs = 0;
    if (rc <= 0)
        return rc;
    for (int64_t i = 0; i < s->call.n_segments; i++) {
        const struct ds_segment *seg = &s->segment[i];
        for (int32_t j = 0; j < seg->length; j++, row++) {
            const int32_t slot = seg->first + j;
            const int64_t at = row_in(base, seg->sequence, slot);
            char more[96];
            if ((sequence >= 0 && seg->sequence != sequence) || at < 0)
                continue;
            const uint32_t *got = own->out.bits + row * own->out.width,
                           *ref = own->base.bits + at * own->base.width;
            if ((rc = differs(c, s, seg, slot, got, ref, base->text)) < 0)
                return -1;
            if (rc == 0)
                continue;
            shared(c, &s->call, more, sizeof more);
            ds_check_pair(c, "the row at slot %d%s%s%s against the same row %s%s", slot,
                          where(seg->sequence), base->text[0] ? " " : "", base->text, s->text,
                          more);
            ds_check_choices(c, &own->base.launch, &own->out.launch);
        }
    }
    return 1;
}

/* ---- classes and spans --------------------------------------------------------------------------------
 */

static int distinct(const struct ds_classes *k)
{
    int n = 0;
    for (int i = 0; i < k->n; i++) {
        int seen = 0;
        for (int j = 0; j < i; j++)
            seen |= k->bits[j] == k->bits[i];
        n += !seen;
    }
    return n;
}

void ds_classes_best(const struct ds_check *c, struct ds_best_classes *best, struct ds_classes *k,
                     double before, const char *fmt, ...)
{
    const double now = c->property->smallest_cost;
    const int found = now != before;
    va_list ap;
    if (distinct(k) < 2 || (!found && (best->cost > 0 || distinct(k) <= distinct(&best->k))))
        return;
    va_start(ap, fmt);
    vsnprintf(k->at, sizeof k->at, fmt, ap);
    va_end(ap);
    best->k = *k;
    best->cost = found ? now : 0;
}

void ds_classes_done(struct ds_check *c, const struct ds_best_classes *best, const char *of)
{
    if (distinct(&best->k) > 1)
        ds_classes_print(c, &best->k, of);
}

void ds_spans_add(struct ds_spans *s, int32_t value, int differs)
{
    const int most = (int)(sizeof s->from / sizeof s->from[0]);
    differs = differs != 0;
    if (s->n && s->differs[s->n - 1] == differs) {
        s->to[s->n - 1] = value;
        return;
    }
    if (s->n == most) {
        s->cut = 1;
        return;
    }
    s->from[s->n] = s->to[s->n] = value;
    s->differs[s->n++] = differs;
}

int ds_spans_any(const struct ds_spans *s)
{
    int any = 0;
    for (int i = 0; i < s->n; i++)
        any |= s->differs[i];
    return any;
}

void ds_spans_print(struct ds_check *c, const struct ds_spans *s)
{
    char *text = c->property->classes;
    const size_t size = sizeof c->property->classes;
    if (!ds_spans_any(s))
        return;
    size_t n = strlen(text);
    if (n == 0)
        snprintf(c->property->classes_of, sizeof c->property->classes_of, "%s", s->of);
    else
        n += (size_t)snprintf(text + n, size - n, "; %s ", s->of);
    for (int i = 0; i < s->n && n < size; i++) {
        n += (size_t)snprintf(text + n, size - n, "%s%d", i ? " | " : "", s->from[i]);
        if (n < size && s->to[i] != s->from[i])
            n += (size_t)snprintf(text + n, size - n, "-%d", s->to[i]);
        if (n < size)
            n += (size_t)snprintf(text + n, size - n, " %s", s->differs[i] ? "differ" : "same");
    }
    if (s->cut && n < size)
        snprintf(text + n, size - n, " ...");
}

/* ---- where the launch choice changes --------------------------------------------------------------
 */

/* KV lengths up to which a border costs little, and how many borders are taken on either side of it. */
enum { SHORT = 1025, MOST_SHORT = 48, MOST_LONG = 4, LONGEST = 32768 };

static int choice_alone(struct ds_check *c, const struct ds_choice_of *of, int32_t kv,
                        struct ds_launch_info *info)
{
    struct ds_scene s;
    ds_scene_begin(c, &s, NULL, of->threads);
    ds_scene_add(&s, 0, kv - 1, 1);
    return ds_check_describe(c, &s.call, info);
}

int ds_attention_edges(struct ds_check *c, const struct ds_choice_of *of, ds_choice_fn ask,
                       int32_t to, int32_t *edge, int most)
{
    const int from_short = most < MOST_SHORT ? most : MOST_SHORT,
              from_long = most - from_short < MOST_LONG ? most - from_short : MOST_LONG;
    struct ds_borders borders;
    int32_t at[MOST_SHORT + MOST_LONG];
    int rc = ds_borders_find(c, of, ask, to, &borders), n = 0;
    if (rc == 0) {
        size_t picked = ds_borders_pick(&borders, 1, SHORT, (size_t)from_short, at);
        picked += ds_borders_pick(&borders, SHORT, to, (size_t)from_long, at + picked);
        for (size_t i = 0; i < picked; i++) {
            edge[n++] = at[i] - 1;
            edge[n++] = at[i];
        }
        c->property->not_tried += 2 * (int64_t)(borders.n - picked);
    }
    ds_borders_free(&borders);
    return rc < 0 ? -1 : n;
}

const struct ds_kv_list *ds_attention_kv(struct ds_check *c, int threads)
{
    struct ds_attention_own *own = c->own;
    struct ds_kv_list *l = &own->list[threads != c->opt->threads[0]];
    const struct ds_choice_of of = {.threads = threads};
    if (l->threads == threads)
        return l;
    l->n = ds_grid_kv(l->kv);
    l->n_edges = ds_attention_edges(c, &of, choice_alone, LONGEST, l->edge, DS_MOST_EDGES);
    if (l->n_edges < 0)
        return NULL;
    for (int i = 0; i < l->n_edges; i++)
        l->n = ds_grid_insert(l->kv, l->n, l->edge[i]);
    /* Long ones come last, in their place in the list. */
    while (l->n_edges && l->edge[l->n_edges - 1] > SHORT)
        l->n_edges--;
    l->threads = threads;
    return l;
}

void ds_attention_budget(struct ds_check *c)
{
    if (!(c->opt->budget > 0))
        c->budget *= 8;
}

static int formats(struct ds_check *c)
{
    if (!ds_check_takes_stored(c))
        ds_check_not_applicable(c, "does not apply to this op");
    return ds_check_stored(c);
}

const struct ds_check_plan ds_check_attention_plan = {
    .open = open_own,
    .close = close_own,
    .property = {[DS_PROPERTY_REPEAT] = ds_attention_repeat,
                 [DS_PROPERTY_BATCH] = ds_attention_batch,
                 [DS_PROPERTY_SLOT] = ds_attention_slot,
                 [DS_PROPERTY_NEIGHBOURS] = ds_attention_neighbours,
                 [DS_PROPERTY_THREADS] = ds_attention_thread_counts,
                 [DS_PROPERTY_CHUNK] = ds_attention_chunk,
                 [DS_PROPERTY_ALIGNMENT] = ds_attention_alignment,
                 [DS_PROPERTY_SIZES] = ds_attention_sizes,
                 [DS_PROPERTY_MEMORY] = ds_attention_memory,
                 [DS_PROPERTY_SPECIAL] = ds_attention_special,
                 [DS_PROPERTY_FORMATS] = formats},
    .accuracy = ds_attention_accuracy,
    .speed = ds_attention_speed,
};
