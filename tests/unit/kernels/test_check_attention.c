/* test_check_attention.c: the attention part of check. Kernels that are false on purpose, one fault
 * each, are caught under the right property and named; the built-in variants keep what they claim;
 * the grid, the exact result and the arrangement of a call are what they say. */
#include "tests/unit/kernels/harness.h"

#include "kernels/lab/attention_exact.h"
#include "kernels/lab/attention_grid.h"
#include "kernels/lab/check.h"
#include "kernels/lab/subject_attention.h"

/* ---- one kernel with a switch for every fault -------------------------------------------------------
 */

enum fault {
    HONEST,
    TILE_BY_QLEN,   /* KV tile 32 for q_len <= 2, else 64 */
    TILE_BY_ROWS,   /* ... by the number of rows in the call */
    TILE_BY_THREAD, /* ... by the number of threads */
    TILE_BY_PLACE,  /* ... by the row's place in the call */
    SPLIT_FROM_777, /* two parts for a row alone from KV 777 on, and describe says so */
    SPLIT_BRIEFLY,  /* ... at KV 2001 to 2003 alone, and describe says so */
    TILE_BY_FIRST,  /* ... by the length of the first sequence */
    TILE_BY_ID,     /* ... by the request's id */
    SPLIT_BY_MAX,   /* KV cut into parts by the longest sequence of the call */
    EMPTY_PART,     /* parts of the longest sequence; one with no slot counts with lse 0 */
    RACING,         /* parts merged in an order that differs from call to call */
    LONGEST,        /* every sequence as long as the longest */
    ROUNDED_UP,     /* kv_len rounded up to a multiple of 4, where a page is one */
    CONTIGUOUS,     /* pages taken for neighbours */
    HEAD_MAP,       /* three heads share the wrong KV head */
    WINDOW_ONE_OFF, /* one slot more than the window */
    NO_SOFT_CAP,    /* asked for, ignored */
    LSE_OF_EMPTY,   /* 0 instead of -infinity for a row that sees nothing */
    MASKED_NAN,     /* 0/0 for a row that sees nothing */
    PAST_QUERY,     /* reads one element behind q */
    SKIPS_LAST,     /* leaves the last element unwritten */
    FAULTS
};

struct state {
    float max, sum, acc[256];
};

static void merge(struct state *to, const struct state *from, int64_t n)
{
    float m = from->max > to->max ? from->max : to->max;
    float f = to->max == -INFINITY ? 0.0f : expf(to->max - m),
          g = from->max == -INFINITY ? 0.0f : expf(from->max - m);
    to->max = m;
    to->sum = to->sum * f + from->sum * g;
    for (int64_t d = 0; d < n; d++)
        to->acc[d] = to->acc[d] * f + from->acc[d] * g;
}

static int64_t kv_at(enum fault x, const struct ds_attention_args *a, const struct ds_sequence *s,
                     int64_t t, int64_t head)
{
    int64_t group = a->heads / a->kv_heads, kv = head / group;
    int64_t row = s->pages[t / a->page_size] * a->page_size + t % a->page_size;
    if (x == CONTIGUOUS)
        row = (s->pages[0] * a->page_size + t) % (a->pages * a->page_size);
    if (x == HEAD_MAP && group == 3)
        kv = head % a->kv_heads;
    return (row * a->kv_heads + kv) * a->head_dim;
}

/* Slots begin..end-1, one after the other, from nothing. */
static void part(enum fault x, const struct ds_attention_args *a, const struct ds_sequence *s,
                 int64_t row, int64_t head, int64_t begin, int64_t end, struct state *o)
{
    const float *q = a->q + row * a->ldq + head * a->head_dim;
    *o = (struct state){.max = -INFINITY};
    for (int64_t t = begin; t < end; t++) {
        const int64_t at = kv_at(x, a, s, t, head);
        float score = 0.0f, old = 1.0f, e = 1.0f;
        for (int64_t d = 0; d < a->head_dim; d++)
            score += q[d] * a->cache_k[at + d];
        score *= a->scale;
        if (a->soft_cap > 0 && x != NO_SOFT_CAP)
            score = a->soft_cap * tanhf(score / a->soft_cap);
        if (score > o->max) {
            old = expf(o->max - score);
            o->max = score;
        } else {
            e = score == -INFINITY ? 0.0f : expf(score - o->max);
        }
        o->sum = o->sum * old + e;
        for (int64_t d = 0; d < a->head_dim; d++)
            o->acc[d] = o->acc[d] * old + e * a->cache_v[at + d];
    }
}

static int64_t tile_of(enum fault x, const struct ds_attention_args *a, const struct ds_sequence *s,
                       int64_t row, int threads)
{
    const int64_t longest = ((int64_t)a->max_kv_len + 3) / 4;
    switch (x) {
    case TILE_BY_QLEN:
        return s->q_len <= 2 ? 32 : 64;
    case TILE_BY_ROWS:
        return a->rows < 4 ? 32 : 64;
    case TILE_BY_THREAD:
        return 32 * threads;
    case TILE_BY_PLACE:
        return row % 8 == 3 ? 64 : 32;
    case SPLIT_FROM_777:
        return a->rows == 1 && a->max_kv_len >= 777 ? 600 : 2000;
    case SPLIT_BRIEFLY:
        return a->rows == 1 && a->max_kv_len >= 2001 && a->max_kv_len <= 2003 ? 600 : 20000;
    case TILE_BY_FIRST:
        return a->sequences[0].kv_len > 500 ? 64 : 32;
    case TILE_BY_ID:
        return s->request % 2 ? 64 : 32;
    case SPLIT_BY_MAX:
    case EMPTY_PART:
        return longest;
    default:
        return 32;
    }
}

static void finish(enum fault x, const struct ds_attention_args *a, int64_t row, int64_t head,
                   struct state *o)
{
    const int seen = o->sum > 0 || isnan(o->sum);
    float *y = a->y + row * a->ldy + head * a->head_dim;
    if (a->sinks && seen)
        merge(o, &(struct state){.max = a->sinks[head], .sum = 1.0f}, a->head_dim);
    for (int64_t d = 0; d < a->head_dim; d++)
        if (x != SKIPS_LAST || row + 1 < a->rows || head + 1 < a->heads || d + 1 < a->head_dim)
            y[d] = seen || x == MASKED_NAN ? o->acc[d] / o->sum : 0.0f;
    if (a->lse)
        a->lse[row * a->heads + head] = seen                ? o->max + logf(o->sum)
                                        : x == LSE_OF_EMPTY ? 0.0f
                                                            : -INFINITY;
}

static void one_head(enum fault x, const struct ds_attention_args *a, const struct ds_sequence *s,
                     int64_t row, int64_t head, const struct ds_exec *exec)
{
    int64_t kv_len = x == LONGEST ? a->max_kv_len : s->kv_len;
    int64_t end = kv_len - s->q_len + (row - s->q_first) + 1, begin = s->kv_first;
    const int64_t tile = tile_of(x, a, s, row, exec->threads);
    const int64_t window = a->window + (x == WINDOW_ONE_OFF);
    struct state total = {.max = -INFINITY};
    if (x == ROUNDED_UP && end == kv_len && a->page_size % 4 == 0)
        end = (end + 3) / 4 * 4;
    if (a->window && end - window > begin)
        begin = end - window;
    const int64_t parts = x == EMPTY_PART ? 4 : (end - begin + tile - 1) / tile;
    for (int64_t i = 0; i < parts; i++) {
        const int64_t p = x == RACING ? (i + (int64_t)(exec->seed % 3)) % parts : i;
        const int64_t from = begin + p * tile, to = from + tile < end ? from + tile : end;
        struct state o;
        part(x, a, s, row, head, from, to, &o);
        if (x == EMPTY_PART && from >= to && end > begin)
            o.max = 0.0f, o.sum = 1.0f;
        merge(&total, &o, a->head_dim);
    }
    finish(x, a, row, head, &total);
}

static int launch_false(enum fault x, const struct ds_attention_args *a, const struct ds_exec *exec)
{
    if (x == PAST_QUERY)
        ((volatile const float *)a->q)[(a->rows - 1) * a->ldq + a->heads * a->head_dim];
    for (int64_t i = 0; i < a->n_sequences; i++)
        for (int64_t r = 0; r < a->sequences[i].q_len; r++)
            for (int64_t h = 0; h < a->heads; h++)
                one_head(x, a, &a->sequences[i], a->sequences[i].q_first + r, h, exec);
    return 0;
}

static int describe_777(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_attention_args *a = args;
    (void)exec;
    *out = (struct ds_launch_info){.split = a->rows == 1 && a->max_kv_len >= 777 ? 2 : 1};
    return 0;
}

static int describe_2001(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_attention_args *a = args;
    (void)exec;
    *out = (struct ds_launch_info){
        .split = a->rows == 1 && a->max_kv_len >= 2001 && a->max_kv_len <= 2003 ? 4 : 1};
    return 0;
}

#define FALSE_LAUNCH(fault)                                                                        \
    static int launch_##fault(const void *args, const struct ds_exec *exec, char *why, size_t n)   \
    {                                                                                              \
        (void)why, (void)n;                                                                        \
        return launch_false(fault, args, exec);                                                    \
    }
#define EACH_FAULT(X)                                                                              \
    X(HONEST)                                                                                      \
    X(TILE_BY_QLEN)                                                                                \
    X(TILE_BY_ROWS)                                                                                \
    X(TILE_BY_THREAD)                                                                              \
    X(TILE_BY_PLACE)                                                                               \
    X(SPLIT_FROM_777)                                                                              \
    X(SPLIT_BRIEFLY)                                                                               \
    X(TILE_BY_FIRST)                                                                               \
    X(TILE_BY_ID)                                                                                  \
    X(SPLIT_BY_MAX)                                                                                \
    X(EMPTY_PART)                                                                                  \
    X(RACING)                                                                                      \
    X(LONGEST)                                                                                     \
    X(ROUNDED_UP)                                                                                  \
    X(CONTIGUOUS)                                                                                  \
    X(HEAD_MAP)                                                                                    \
    X(WINDOW_ONE_OFF)                                                                              \
    X(NO_SOFT_CAP)                                                                                 \
    X(LSE_OF_EMPTY)                                                                                \
    X(MASKED_NAN)                                                                                  \
    X(PAST_QUERY)                                                                                  \
    X(SKIPS_LAST)
EACH_FAULT(FALSE_LAUNCH)
#define FALSE_ENTRY(fault) [fault] = launch_##fault,
static int (*const launches[FAULTS])(const void *, const struct ds_exec *, char *,
                                     size_t) = {EACH_FAULT(FALSE_ENTRY)};

#define P(name) (1u << DS_PROPERTY_##name)

/* ---- running a check ---------------------------------------------------------------------------------
 */

static struct ds_check_result check(const struct ds_kernel *k, const char *shape, uint32_t only)
{
    static const int threads[] = {1, 2};
    const struct ds_check_options opt = {
        .threads = threads, .n_threads = 2, .no_speed = 1, .only = only, .seed = 11};
    struct ds_check_result r;
    struct ds_shape s;
    struct ds_error err;
    assert_int_equal(ds_shape_parse(DS_OP_ATTENTION, shape, &s, &err), 0);
    assert_int_equal(ds_check_run(k, &s, &opt, &r, &err), 0);
    assert_string_equal(r.why_not, "");
    return r;
}

static struct ds_check_result check_false(enum fault x, uint32_t features, const char *shape,
                                          uint32_t only)
{
    const struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                                .op = DS_OP_ATTENTION,
                                .name = "false",
                                .summary = "false on purpose",
                                .claims = DS_CLAIM_ALL,
                                .features = features,
                                .launch = launches[x],
                                .describe = x == SPLIT_FROM_777  ? describe_777
                                            : x == SPLIT_BRIEFLY ? describe_2001
                                                                 : NULL};
    return check(&k, shape, only);
}

static void expect(const struct ds_check_result *r, uint32_t broken, const char *why)
{
    for (int p = 0; p < DS_PROPERTY_COUNT; p++) {
        const struct ds_property_result *x = &r->property[p];
        if ((x->state == DS_STATE_BROKEN) == (int)(broken >> p & 1))
            continue;
        print_error("%s: %s is %s (compared %lld, differ %lld: %s)\n", why, ds_property_name(p),
                    x->state == DS_STATE_BROKEN ? "broken" : "not broken", (long long)x->compared,
                    (long long)x->differ, x->smallest);
        fail();
    }
}

static void expect_text(const char *text, const char *want)
{
    if (strstr(text, want))
        return;
    print_error("'%s' does not say '%s'\n", text, want);
    fail();
}

static const char SMALL[] = "heads=4,kv_heads=2,head_dim=8";

static void test_honest_kernel(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(
        HONEST, DS_FEATURE_WINDOW | DS_FEATURE_SOFT_CAP | DS_FEATURE_SINKS | DS_FEATURE_LSE, SMALL,
        0);
    expect(&r, 0, "honest");
    for (int p = 0; p < DS_PROPERTY_COUNT; p++) {
        if (p == DS_PROPERTY_FORMATS) { /* attention has no weights */
            assert_int_equal(r.property[p].state, DS_STATE_NOT_APPLICABLE);
            continue;
        }
        assert_int_equal(r.property[p].state, DS_STATE_HOLDS);
        assert_true(r.property[p].compared >= 400);
    }
    assert_int_equal(r.n_faults, 0);
    assert_true(r.accuracy.elements > 1000 && r.accuracy.max_bound < 1);
}

static void test_tile_by_query_length(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(TILE_BY_QLEN, 0, SMALL, 0);
    const struct ds_property_result *p = &r.property[DS_PROPERTY_CHUNK];
    expect_text(p->smallest, "alone against the same row in a chunk of 3 rows, slots ");
    expect_text(p->classes, "1-2 | 3-");
    assert_string_equal(p->classes_of, "rows");
    expect_text(p->classes, "same"); /* up to one tile of 32 */
    assert_true(p->smallest_size.elements > 0 && p->smallest_size.max_ulp > 0);
    expect(&r, P(CHUNK), "tile by q_len");
}

static void test_tile_by_rows(void **state)
{
    (void)state;
    struct ds_check_result r =
        check_false(TILE_BY_ROWS, 0, SMALL, P(BATCH) | P(CHUNK) | P(THREADS));
    expect(&r, P(BATCH) | P(CHUNK), "tile by rows");
    expect_text(r.property[DS_PROPERTY_BATCH].classes, "1-3 | 4-");
    expect_text(r.property[DS_PROPERTY_BATCH].smallest, "among 4 sequences");
}

static void test_tile_by_threads(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(TILE_BY_THREAD, 0, SMALL, P(THREADS) | P(REPEAT));
    expect(&r, P(THREADS), "tile by threads");
    expect_text(r.property[DS_PROPERTY_THREADS].classes, "1 | 2; kv_len 1-");
    expect_text(r.property[DS_PROPERTY_THREADS].smallest, "on 2 threads");
}

/* 777 lies between two lengths of the grid; describe tells. */
static void test_edges_of_the_launch_choice(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(SPLIT_FROM_777, 0, SMALL, P(BATCH) | P(CHUNK));
    expect(&r, P(BATCH) | P(CHUNK), "split from 777");
    expect_text(r.property[DS_PROPERTY_BATCH].smallest,
                "the row at slot 776 alone against the same row among 2 sequences");
    expect_text(r.property[DS_PROPERTY_BATCH].classes, "1-776 same | 777-32768 differ");
    expect_text(r.property[DS_PROPERTY_CHUNK].smallest, "the row at slot 776 alone");
    expect_text(r.property[DS_PROPERTY_CHUNK].classes, "3-776 same | 777-32768 differ");
}

/* A choice that is taken back three slots later, far from the lengths of the grid. */
static void test_a_choice_for_a_few_lengths(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(SPLIT_BRIEFLY, 0, SMALL, P(BATCH));
    const struct ds_property_result *p = &r.property[DS_PROPERTY_BATCH];
    expect(&r, P(BATCH), "split at a few lengths");
    expect_text(p->smallest, "the row at slot 2000 alone against the same row among 2 sequences");
    expect_text(p->classes, "1-2000 same | 2001-2003 differ | 2004-32768 same");
    assert_string_equal(p->choice[0], "4 parts");
    assert_string_equal(p->choice[1], "1 part");
    assert_false(p->same_choice);
}

static void test_tile_by_place(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(TILE_BY_PLACE, 0, SMALL, P(SLOT) | P(NEIGHBOURS));
    assert_int_equal(r.property[DS_PROPERTY_SLOT].state, DS_STATE_BROKEN);
    assert_int_equal(r.property[DS_PROPERTY_NEIGHBOURS].state, DS_STATE_HOLDS);
    expect_text(r.property[DS_PROPERTY_SLOT].smallest, "in its place among 5 sequences against");
    assert_string_equal(r.property[DS_PROPERTY_SLOT].classes_of, "place");
}

static void test_tile_by_first_sequence(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(TILE_BY_FIRST, 0, SMALL, P(SLOT) | P(NEIGHBOURS));
    assert_int_equal(r.property[DS_PROPERTY_SLOT].state, DS_STATE_BROKEN);
    assert_int_equal(r.property[DS_PROPERTY_NEIGHBOURS].state, DS_STATE_BROKEN);
    expect_text(r.property[DS_PROPERTY_NEIGHBOURS].smallest, "between kv_len 1 and 1 against");
    expect_text(r.property[DS_PROPERTY_NEIGHBOURS].classes,
                "kv_len beside 1-497 same | 511-32768 differ");
}

static void test_tile_by_request(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(TILE_BY_ID, 0, SMALL, P(REPEAT) | P(SLOT) | P(THREADS));
    expect(&r, P(SLOT), "tile by request");
}

static void test_split_by_longest(void **state)
{
    (void)state;
    struct ds_check_result r =
        check_false(SPLIT_BY_MAX, 0, SMALL, P(SLOT) | P(NEIGHBOURS) | P(SIZES));
    const struct ds_property_result *p = &r.property[DS_PROPERTY_NEIGHBOURS];
    assert_int_equal(p->state, DS_STATE_BROKEN);
    assert_int_equal(r.property[DS_PROPERTY_SLOT].state, DS_STATE_HOLDS);
    assert_int_equal(r.property[DS_PROPERTY_SIZES].state, DS_STATE_HOLDS);
    assert_string_equal(p->classes_of, "kv_len beside");
    expect_text(p->smallest, "against the same row between kv_len");
}

static void test_empty_part_with_lse_0(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(EMPTY_PART, 0, SMALL, P(NEIGHBOURS) | P(SIZES));
    assert_int_equal(r.property[DS_PROPERTY_NEIGHBOURS].state, DS_STATE_BROKEN);
    assert_int_equal(r.property[DS_PROPERTY_SIZES].state, DS_STATE_BROKEN);
    assert_int_equal(
        ds_check_failure(&(struct ds_kernel){.claims = DS_CLAIM_REPEAT | DS_CLAIM_THREADS}, &r),
        DS_PROPERTY_SIZES);
}

static void test_racing_merge(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(RACING, 0, SMALL, P(REPEAT));
    assert_int_equal(r.property[DS_PROPERTY_REPEAT].state, DS_STATE_BROKEN);
    expect_text(r.property[DS_PROPERTY_REPEAT].smallest, "again");
}

static void test_longest_for_all(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(LONGEST, 0, SMALL, P(MEMORY) | P(SIZES) | P(ALIGNMENT));
    assert_int_equal(r.property[DS_PROPERTY_MEMORY].state, DS_STATE_BROKEN);
    expect_text(r.property[DS_PROPERTY_MEMORY].smallest, "reads a slot beyond kv_len");
    assert_int_equal(r.property[DS_PROPERTY_SIZES].state, DS_STATE_BROKEN);
    assert_int_equal(r.property[DS_PROPERTY_CHUNK].state, DS_STATE_NOT_RUN);
    assert_int_equal(r.n_faults, 0);
}

static void test_rounded_up_length(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(ROUNDED_UP, 0, SMALL, P(MEMORY) | P(SIZES));
    assert_int_equal(r.property[DS_PROPERTY_MEMORY].state, DS_STATE_BROKEN);
    expect_text(r.property[DS_PROPERTY_MEMORY].smallest, "reads a slot beyond kv_len");
    assert_int_equal(r.property[DS_PROPERTY_SIZES].state, DS_STATE_BROKEN);
}

static void test_contiguous_pages(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(CONTIGUOUS, 0, SMALL, P(ALIGNMENT) | P(SIZES));
    assert_int_equal(r.property[DS_PROPERTY_ALIGNMENT].state, DS_STATE_BROKEN);
    assert_int_equal(r.property[DS_PROPERTY_SIZES].state, DS_STATE_BROKEN);
    expect_text(r.property[DS_PROPERTY_ALIGNMENT].smallest, "in another order");
}

static void test_head_map(void **state)
{
    static const char *const shapes[] = {"heads=6,kv_heads=2,head_dim=8", SMALL,
                                         "heads=3,kv_heads=1,head_dim=8"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct ds_check_result r =
            check_false(HEAD_MAP, 0, shapes[i], P(SIZES) | P(SPECIAL) | P(SLOT));
        expect(&r, P(SIZES) | (i ? 0 : P(SPECIAL)), shapes[i]);
        expect_text(r.property[DS_PROPERTY_SIZES].smallest, "head 1: channel");
        if (i)
            expect_text(r.property[DS_PROPERTY_SIZES].smallest, "6 heads on 2 KV heads: ");
    }
}

static void test_window_one_off(void **state)
{
    (void)state;
    struct ds_check_result r =
        check_false(WINDOW_ONE_OFF, DS_FEATURE_WINDOW, SMALL, P(SIZES) | P(MEMORY));
    assert_int_equal(r.property[DS_PROPERTY_SIZES].state, DS_STATE_BROKEN);
    expect_text(r.property[DS_PROPERTY_SIZES].smallest, "window 5");
    assert_int_equal(r.property[DS_PROPERTY_MEMORY].state, DS_STATE_BROKEN);
    expect_text(r.property[DS_PROPERTY_MEMORY].smallest, "reads a slot before the window");
}

static void test_ignored_soft_cap(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(NO_SOFT_CAP, DS_FEATURE_SOFT_CAP, SMALL, P(SIZES));
    assert_int_equal(r.property[DS_PROPERTY_SIZES].state, DS_STATE_BROKEN);
    expect_text(r.property[DS_PROPERTY_SIZES].smallest, "soft cap: ");
}

static void test_rows_that_see_nothing(void **state)
{
    (void)state;
    struct ds_check_result r =
        check_false(LSE_OF_EMPTY, DS_FEATURE_LSE, SMALL, P(SPECIAL) | P(SIZES) | P(MEMORY));
    expect(&r, P(SPECIAL), "lse of an empty row");
    expect_text(r.property[DS_PROPERTY_SPECIAL].smallest, "rows of padding");
    expect_text(r.property[DS_PROPERTY_SPECIAL].smallest, "lse is 0, not -inf");
    r = check_false(MASKED_NAN, 0, SMALL, P(SPECIAL) | P(SIZES) | P(MEMORY));
    expect(&r, P(SPECIAL), "0/0");
    expect_text(r.property[DS_PROPERTY_SPECIAL].smallest, "is NaN, not 0");
}

static void test_memory_faults(void **state)
{
    (void)state;
    struct ds_check_result r = check_false(PAST_QUERY, 0, SMALL, P(MEMORY));
    assert_int_equal(r.property[DS_PROPERTY_MEMORY].state, DS_STATE_BROKEN);
    expect_text(r.property[DS_PROPERTY_MEMORY].smallest, "of q");
    r = check_false(SKIPS_LAST, 0, SMALL, P(MEMORY));
    assert_int_equal(r.property[DS_PROPERTY_MEMORY].state, DS_STATE_BROKEN);
    expect_text(r.property[DS_PROPERTY_MEMORY].smallest, "unwritten");
}

/* ---- the built-in variants ----------------------------------------------------------------------------
 */

static void test_builtin_variants_keep_their_claims(void **state)
{
    (void)state;
    for (size_t i = 0; i < ds_kernel_count(); i++) {
        const struct ds_kernel *k = ds_kernel_at(i);
        if (k->op != DS_OP_ATTENTION)
            continue;
        struct ds_check_result r = check(k, SMALL, 0);
        for (int p = 0; p < DS_PROPERTY_COUNT; p++) {
            const struct ds_property_result *x = &r.property[p];
            if (x->state != DS_STATE_BROKEN ||
                (ds_property_claim(p) && !(k->claims & ds_property_claim(p))))
                continue;
            print_error("attention/%s: %s: %s\n", k->name, ds_property_name(p), x->smallest);
            fail();
        }
        /* What the vendor variant does not claim, it does not keep. */
        if (strcmp(k->name, "vendor") == 0) {
            const struct ds_property_result *x = &r.property[DS_PROPERTY_THREADS];
            assert_int_equal(x->state, DS_STATE_BROKEN);
            expect_text(x->smallest, "the row at slot 511 alone against the same row on 2 threads");
            expect_text(x->classes, "kv_len 1-511 same | 512-32768 differ");
            assert_int_equal(r.property[DS_PROPERTY_CHUNK].state, DS_STATE_BROKEN);
            assert_int_equal(r.property[DS_PROPERTY_BATCH].state, DS_STATE_BROKEN);
        }
    }
}

/* ---- the parts ------------------------------------------------------------------------------------------
 */

static void test_grid(void **state)
{
    int32_t list[DS_GRID_MOST];
    struct ds_shape given, shape[DS_GRID_MOST];
    struct ds_error err;
    (void)state;
    int n = ds_grid_kv(list);
    assert_true(n > 230 && n < DS_GRID_MOST);
    for (int i = 0; i < n; i++) {
        assert_true(i == 0 || list[i] > list[i - 1]);
        assert_true(i >= 64 || list[i] == i + 1);
    }
    static const int32_t must[] = {65, 79, 80, 81, 511, 512, 513, 1023, 1024, 1025, 4096, 32768};
    for (size_t m = 0; m < sizeof must / sizeof must[0]; m++) {
        int there = 0;
        for (int i = 0; i < n; i++)
            there |= list[i] == must[m];
        assert_true(there);
    }
    assert_int_equal(ds_grid_q(list), 18);
    assert_int_equal(list[17], 128);
    assert_int_equal(ds_grid_sequences(list), 64);
    assert_int_equal(ds_grid_pages(list), 4);
    assert_int_equal(ds_shape_parse(DS_OP_ATTENTION, "", &given, &err), 0);
    n = ds_grid_shapes(&given, shape);
    assert_int_equal(n, 7); /* 4 other head_dims, 3 other groups */
    for (int i = 0; i < n; i++)
        assert_int_equal(shape[i].heads % shape[i].kv_heads, 0);
}

/* By hand: two slots, one channel. */
static void test_exact_attention(void **state)
{
    const float q[] = {1, 1}, k[] = {0, 0.693147180559945f, 9}, v[] = {3, 6, NAN}, sink = 0;
    const int32_t page = 0;
    double weights[8], y, unit;
    const struct ds_sequence s = {0, 0, 1, 2, 0, &page};
    struct ds_attention_args a = {.rows = 1,
                                  .heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = 1,
                                  .scale = 1,
                                  .q = q,
                                  .ldq = 1,
                                  .cache_k = k,
                                  .cache_v = v,
                                  .page_size = 3,
                                  .pages = 1,
                                  .sequences = &s,
                                  .n_sequences = 1,
                                  .max_q_len = 1,
                                  .max_kv_len = 2};
    struct ds_attention_exact e = {.y = &y, .unit = &unit};
    (void)state;
    ds_attention_exact(&a, 0, 0, weights, &e); /* weights 1/3 and 2/3 */
    assert_int_equal(e.slots, 2);
    assert_true(fabs(y - 5) < 1e-7 && fabs(e.lse - log(3)) < 1e-7 && unit > 1e-8 && unit < 1e-5);
    a.window = 1;
    ds_attention_exact(&a, 0, 0, weights, &e);
    assert_true(e.slots == 1 && fabs(y - 6) < 1e-12 && fabs(e.lse - log(2)) < 1e-7);
    a.window = 0, a.sinks = &sink; /* 1 : 2 : 1 */
    ds_attention_exact(&a, 0, 0, weights, &e);
    assert_true(fabs(y - 15.0 / 4) < 1e-7 && fabs(e.lse - log(4)) < 1e-7);
    a.sinks = NULL, a.soft_cap = 0.5f;
    ds_attention_exact(&a, 0, 0, weights, &e);
    double w = exp(0.5 * tanh(2 * log(2)));
    assert_true(fabs(y - (3 + 6 * w) / (1 + w)) < 1e-7);
    const struct ds_sequence masked = {0, 0, 1, 1, 1, &page};
    a.sequences = &masked;
    ds_attention_exact(&a, 0, 0, weights, &e);
    assert_true(e.slots == 0 && y == 0 && e.lse == (double)-INFINITY);
}

/* A row's inputs are a function of (sequence, slot), whatever pages and padding. */
static void test_contents_follow_the_key(void **state)
{
    struct ds_shape shape;
    struct ds_error err;
    (void)state;
    assert_int_equal(ds_shape_parse(DS_OP_ATTENTION, SMALL, &shape, &err), 0);
    struct ds_subject *s = ds_subject_new(kernel(DS_OP_ATTENTION, "reference"), &shape, 5, &err);
    assert_non_null(s);
    float seen[3][2][8];
    for (int i = 0; i < 3; i++) {
        const struct ds_segment seg[] = {
            {.sequence = 7, .first = 3, .length = 2, .padding = i},
            {.sequence = 2, .first = 11, .length = 1, .padding = 2 * i}};
        const struct ds_call call = {.segment = seg + (i == 2),
                                     .n_segments = i == 2 ? 1 : 2,
                                     .threads = 1,
                                     .page_size = i * 4,
                                     .permute = (uint64_t)i,
                                     .spare_slots = i};
        struct ds_output out = {0};
        assert_int_equal(ds_subject_run(s, &call, &out, &err), 0);
        assert_int_equal(out.fault.kind, DS_FAULT_NONE);
        const struct ds_attention_args *a = ds_subject_args(s);
        const struct ds_sequence *q = ds_attention_sequence(a, a->rows - 1);
        assert_int_equal(q->request, i == 2 ? 0 : 1); /* by place in the call */
        assert_int_equal(q->kv_first, 2 * i);
        assert_int_equal(q->kv_len, 12 + 2 * i);
        const int64_t slot = 5 + 2 * i,
                      row = q->pages[slot / a->page_size] * a->page_size + slot % a->page_size;
        memcpy(seen[i][0], a->cache_k + row * 16, sizeof seen[i][0]);
        memcpy(seen[i][1], a->q + (a->rows - 1) * a->ldq, sizeof seen[i][1]);
        if (i) /* poison below kv_first */
            assert_true(isnan(a->cache_v[q->pages[0] * a->page_size * 16]));
        assert_memory_equal(seen[i], seen[0], sizeof seen[0]);
        ds_output_free(&out);
    }
    ds_subject_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_exact_attention),
        cmocka_unit_test(test_contents_follow_the_key),
        cmocka_unit_test(test_honest_kernel),
        cmocka_unit_test(test_tile_by_query_length),
        cmocka_unit_test(test_tile_by_rows),
        cmocka_unit_test(test_tile_by_threads),
        cmocka_unit_test(test_edges_of_the_launch_choice),
        cmocka_unit_test(test_a_choice_for_a_few_lengths),
        cmocka_unit_test(test_tile_by_place),
        cmocka_unit_test(test_tile_by_first_sequence),
        cmocka_unit_test(test_tile_by_request),
        cmocka_unit_test(test_split_by_longest),
        cmocka_unit_test(test_empty_part_with_lse_0),
        cmocka_unit_test(test_racing_merge),
        cmocka_unit_test(test_longest_for_all),
        cmocka_unit_test(test_rounded_up_length),
        cmocka_unit_test(test_contiguous_pages),
        cmocka_unit_test(test_head_map),
        cmocka_unit_test(test_window_one_off),
        cmocka_unit_test(test_ignored_soft_cap),
        cmocka_unit_test(test_rows_that_see_nothing),
        cmocka_unit_test(test_memory_faults),
        cmocka_unit_test(test_builtin_variants_keep_their_claims),
    };
    return cmocka_run_group_tests_name("check of attention", tests, NULL, NULL);
}
