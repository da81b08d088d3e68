/* test_check_mistakes.c: kernels with mistakes as people make them, right in nearly every call: each is
 * caught and named. Many claim no more than that they repeat: what is wrong, and not only different, is
 * told of them all the same. Every fault follows from the calls that were made, never from chance. */
#include "tests/unit/kernels/harness.h"

#include "base/dtype.h"
#include "kernels/lab/check.h"

typedef int (*launch_fn)(const void *, const struct ds_exec *, char *, size_t);

#define LAUNCH(name, type, body)                                                                   \
    static int name(const void *args, const struct ds_exec *e, char *why, size_t size)             \
    {                                                                                              \
        const struct type *a = args;                                                               \
        (void)e, (void)why, (void)size;                                                            \
        body;                                                                                      \
        return 0;                                                                                  \
    }

/* ---- matmul ------------------------------------------------------------------------------------------ */

/* From k = 0 on, or from the end. */
static float dot(const float *x, const float *w, int64_t k, int down)
{
    float s = 0.0f;
    for (int64_t i = 0; i < k; i++) {
        const int64_t at = down ? k - 1 - i : i;
        s += x[at] * w[at];
    }
    return s;
}

static void product(const struct ds_matmul_args *a, int64_t k, int down)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const float s = dot(a->x + r * a->ldx, a->w.data + j * a->k, k, down);
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
}

/* Columns from..n-1 of row r are multiplied by a factor, or get more of the bias. */
static void spoil(const struct ds_matmul_args *a, int64_t r, int64_t from, float factor, float bias)
{
    for (int64_t j = from; j < a->n && r < a->rows; j++) {
        float *y = &a->y[r * a->ldy + j];
        *y = *y * factor + (a->bias ? bias * a->bias[j] : 0.0f);
    }
}

static void spoil_rows(const struct ds_matmul_args *a, int64_t from, float factor, float bias)
{
    product(a, a->k, 0);
    for (int64_t r = from; r < a->rows; r++)
        spoil(a, r, 0, factor, bias);
}

static void tail_of_9(const struct ds_matmul_args *a)
{
    product(a, a->k, 0);
    for (int64_t r = 0; r < a->rows && a->n % 16 == 9; r++)
        spoil(a, r, a->n - 9, 2.0f, 0.0f);
}
LAUNCH(tail_of_9_twice, ds_matmul_args, tail_of_9(a))
LAUNCH(short_of_one, ds_matmul_args, product(a, a->k > 32 && a->k % 32 == 19 ? a->k - 1 : a->k, 0))
LAUNCH(row_12_of_13, ds_matmul_args,
       spoil_rows(a, a->rows > 8 && a->rows % 8 == 5 ? a->rows - 1 : a->rows, 0.5f, 0.0f))
LAUNCH(row_511, ds_matmul_args, spoil_rows(a, 511, 0.5f, 0.0f))
LAUNCH(larger_at_64, ds_matmul_args, spoil_rows(a, a->rows == 64 ? 0 : a->rows, 1.01f, 0.0f))
LAUNCH(bias_twice, ds_matmul_args, spoil_rows(a, a->rows > 16 ? 0 : a->rows, 1.0f, 1.0f))
LAUNCH(no_bias_on_3, ds_matmul_args, spoil_rows(a, e->threads == 3 ? 0 : a->rows, 1.0f, -0.5f))
static void last_is_zero(const struct ds_matmul_args *a, int when)
{
    product(a, a->k, 0);
    if (when)
        spoil(a, 0, a->n - 1, 0.0f, 0.0f);
}
LAUNCH(zero_on_3, ds_matmul_args, last_is_zero(a, e->threads == 3))
LAUNCH(one_less_at_offset_3, ds_matmul_args,
       product(a, a->rows > 3 && (uintptr_t)a->y / 4 % 4 == 3 ? a->k - 1 : a->k, 0))
LAUNCH(by_scratch, ds_matmul_args, product(a, a->k, (int)((uintptr_t)e->scratch / 64 % 2)))

static size_t page_of_scratch(const void *args, int threads)
{
    (void)args, (void)threads;
    return 4096;
}

/* Tunes itself: behind most of the calls that are made, or by the first call of a process. */
static int calls, first_rows;
LAUNCH(tunes_late, ds_matmul_args, product(a, a->k, ++calls > 900))
static int first_of(int64_t rows)
{
    return first_rows = first_rows ? first_rows : (int)rows;
}
static int launches;
LAUNCH(seldom, ds_matmul_args, product(a, a->k, ++launches % 397 == 0))
LAUNCH(tunes_once, ds_matmul_args, product(a, a->k, first_of(a->rows) > 16))

/* Every prepare writes into the same place, and every launch reads it. */
static float packed[1 << 16];
static int64_t packed_n, packed_k;

static int prepare_in_place(const struct ds_weight_view *w, void **prepared, size_t *bytes,
                            char *why, size_t size)
{
    (void)why, (void)size;
    packed_n = w->n, packed_k = w->k;
    if (w->n * w->k <= 1 << 16)
        memcpy(packed, w->data, (size_t)(w->n * w->k) * sizeof *packed);
    *bytes = 64;
    *prepared = calloc(1, *bytes);
    return *prepared ? 0 : -1;
}

static void product_of_packed(const struct ds_matmul_args *a)
{
    struct ds_matmul_args b = *a;
    if (packed_n == a->n && packed_k == a->k && a->n * a->k <= 1 << 16)
        b.w.data = packed;
    product(&b, b.k, 0);
}
LAUNCH(of_the_last_prepared, ds_matmul_args, product_of_packed(a))

/* ---- ops of one row after the other ---------------------------------------------------------------------- */

/* b is left out of a tail of 13, or taken from other rows behind row 300. */
static void add(const struct ds_add_args *a, int tail, int64_t wraps)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            const int left_out = tail && a->width % 16 == 13 && i >= a->width - 13;
            a->y[r * a->ldy + i] =
                a->a[r * a->lda + i] + (left_out ? 0.0f : a->b[r % wraps * a->ldb + i]);
        }
}
static void add_by_one_stride(const struct ds_add_args *a)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = a->a[r * a->lda + i] + a->b[r * a->lda + i];
}
LAUNCH(add_one_stride, ds_add_args, add_by_one_stride(a))
static void softmax_by_one_stride(const struct ds_softmax_args *a)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        float *y = a->y + r * a->ldx, max = x[0], sum = 0;
        for (int64_t i = 1; i < a->width; i++)
            max = x[i] > max || isnan(x[i]) ? x[i] : max;
        for (int64_t i = 0; i < a->width; i++)
            sum += y[i] = expf(x[i] - max);
        for (int64_t i = 0; i < a->width; i++)
            y[i] /= sum;
    }
}
LAUNCH(softmax_one_stride, ds_softmax_args, softmax_by_one_stride(a))
LAUNCH(add_without_tail_of_13, ds_add_args, add(a, 1, INT64_MAX))
LAUNCH(add_of_row_0, ds_add_args, add(a, 0, 300))

static void exp_of_all(const struct ds_softmax_args *a)
{
    for (int64_t r = 0; r < a->rows; r++) {
        float sum = 0.0f, *y = a->y + r * a->ldy;
        for (int64_t i = 0; i < a->width; i++)
            sum += y[i] = expf(a->x[r * a->ldx + i]);
        for (int64_t i = 0; i < a->width; i++)
            y[i] /= sum;
    }
}
LAUNCH(exp_without_max, ds_softmax_args, exp_of_all(a))

/* Positions as the kernel has them. */
static void rotate(const struct ds_rope_args *a, int32_t mask, int half_float)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t h = 0; h < a->heads; h++) {
            const int64_t half = a->rope_dim / 2, step = a->neox ? 1 : 2,
                          apart = a->neox ? half : 1;
            const float *x = a->x + r * a->ldx + h * a->head_dim;
            float *y = a->y + r * a->ldy + h * a->head_dim;
            int64_t p = a->positions[r] & mask;
            if (half_float && p > 2048)
                p = p / 32 * 32;
            const float *cs = a->cos_sin + p * half * 2;
            memcpy(y, x, (size_t)a->head_dim * sizeof *y);
            for (int64_t i = 0; i < half; i++) {
                const float x0 = x[i * step], x1 = x[i * step + apart];
                y[i * step] = x0 * cs[2 * i] - x1 * cs[2 * i + 1];
                y[i * step + apart] = x0 * cs[2 * i + 1] + x1 * cs[2 * i];
            }
        }
}
LAUNCH(positions_of_16_bits, ds_rope_args, rotate(a, 0xffff, 0))
LAUNCH(positions_in_half, ds_rope_args, rotate(a, -1, 1))

/* The last of equals, or the first of the first of eight lanes; 0 is there already. */
static void largest(const struct ds_sample_args *a, int last, int64_t lanes, float start)
{
    for (int64_t r = 0; r < a->rows; r++) {
        float most = start;
        a->ids[r] = 0;
        for (int64_t lane = 0; lane < lanes; lane++)
            for (int64_t i = lane; i < a->vocab; i += lanes) {
                const float x = a->logits[r * a->ldx + i];
                if (x > most || (last && x == most)) {
                    most = x;
                    a->ids[r] = (int32_t)i;
                }
            }
    }
}
LAUNCH(last_of_equals, ds_sample_args, largest(a, 1, 1, -INFINITY))
LAUNCH(first_lane, ds_sample_args, largest(a, 0, 8, -INFINITY))
LAUNCH(never_negative, ds_sample_args, largest(a, 0, 1, 0.0f))

static int normalises_always(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    struct ds_router_args a = *(const struct ds_router_args *)args;
    a.normalise = 1;
    return kernel(DS_OP_ROUTER, "reference")->launch(&a, e, why, size);
}

static void combine(const struct ds_combine_args *a, int64_t most)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float s = 0.0f;
            for (int64_t k = 0; k < a->top_k && k < most; k++)
                s += a->weights[r * a->top_k + k] * a->x[(r * a->top_k + k) * a->ldx + i];
            a->y[r * a->ldy + i] = s;
        }
}
LAUNCH(combines_eight, ds_combine_args, combine(a, 8))

static void reduce(const struct ds_allreduce_args *a, int64_t most)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float s = 0.0f;
            for (int64_t k = 0; k < a->ranks && k < most; k++)
                s += a->x[k][r * a->ldx + i];
            a->y[r * a->ldy + i] = s;
        }
}
LAUNCH(four_ranks, ds_allreduce_args, reduce(a, 4))

/* Arrays of 16 bits, if the call has them; with bf16 the sum is rounded, or larger before that. */
static void add_stored(const struct ds_add_args *a, int larger)
{
    const int dtype = a->stored == DS_ELEMENT_F16 ? DS_F16 : DS_BF16;
    if (a->stored == DS_ELEMENT_F32) {
        add(a, 0, INT64_MAX);
        return;
    }
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float x, y;
            ds_widen_row(dtype, &x, (const uint16_t *)(const void *)a->a + r * a->lda + i, 1);
            ds_widen_row(dtype, &y, (const uint16_t *)(const void *)a->b + r * a->ldb + i, 1);
            y += x;
            if (larger && dtype == DS_BF16)
                y *= 1.01f;
            ds_round_row(dtype, (uint16_t *)(void *)a->y + r * a->ldy + i, &y, 1);
        }
}
LAUNCH(add_rounded, ds_add_args, add_stored(a, 0))
LAUNCH(add_larger, ds_add_args, add_stored(a, 1))

/* ---- attention: the reference, and one thing wrong ---------------------------------------------------------- */

static int reference(const struct ds_attention_args *a, const struct ds_exec *e, char *why,
                     size_t size)
{
    return kernel(DS_OP_ATTENTION, "reference")->launch(a, e, why, size);
}

static void sees_less(const struct ds_attention_args *a, const struct ds_exec *e, int64_t i,
                      int64_t j)
{
    struct ds_attention_args b = *a;
    const struct ds_sequence *s = &a->sequences[i];
    const int64_t row = s->q_first + j;
    struct ds_sequence one = *s;
    char why[64];
    one.q_first = 0, one.q_len = 1;
    one.kv_len = s->kv_len - s->q_len + (int32_t)j; /* one less than the row's own */
    b.rows = b.n_sequences = b.max_q_len = 1;
    b.max_kv_len = one.kv_len;
    b.sequences = &one;
    b.q = a->q + row * a->ldq;
    b.y = a->y + row * a->ldy;
    assert_int_equal(reference(&b, e, why, sizeof why), 0);
}

/* Row j of every sequence for which `when` holds sees one slot less. */
#define ROWS_SEE_LESS(name, when)                                                                  \
    static int name(const void *args, const struct ds_exec *e, char *why, size_t size)             \
    {                                                                                              \
        const struct ds_attention_args *a = args;                                                  \
        if (reference(a, e, why, size) != 0)                                                       \
            return -1;                                                                             \
        for (int64_t i = 0; i < a->n_sequences; i++) {                                             \
            const struct ds_sequence *s = &a->sequences[i];                                        \
            for (int64_t j = 0; j < s->q_len; j++)                                                 \
                if ((when) && s->kv_len - s->q_len + j > s->kv_first)                              \
                    sees_less(a, e, i, j);                                                         \
        }                                                                                          \
        return 0;                                                                                  \
    }
ROWS_SEE_LESS(less_on_pages_of_256, a->page_size == 256 && s->kv_len > 256)
ROWS_SEE_LESS(less_in_row_64, j == 64)
ROWS_SEE_LESS(less_behind_128_rows, j >= 128)
ROWS_SEE_LESS(less_from_800_on, s->kv_len > 800)

static int stride_of_chunks(const void *args, const struct ds_exec *e, char *why, size_t size)
{
    struct ds_attention_args a = *(const struct ds_attention_args *)args;
    if (a.rows >= 30)
        a.ldq = a.heads * a.head_dim;
    return reference(&a, e, why, size);
}

/* ---- what must be found ------------------------------------------------------------------------------------- */

struct mistake {
    const char *name;
    launch_fn launch;
    int op;
    const char *shape;
    uint32_t claims;
    int failure;      /* the property that ends with exit code 1 */
    const char *says; /* in the words of that property */
};

static struct ds_check_result check(const struct ds_kernel *k, const char *shape_text)
{
    static const int threads[] = {1, 2, 3};
    const struct ds_check_options opt = {
        .threads = threads, .n_threads = 3, .no_speed = 1, .seed = 1, .launch_seconds = 20};
    struct ds_shape shape;
    struct ds_check_result r;
    struct ds_error err;
    assert_ok(ds_shape_parse(k->op, shape_text, &shape, &err), err);
    assert_ok(ds_check_run(k, &shape, &opt, &r, &err), err);
    assert_string_equal(r.why_not, "");
    return r;
}

static void expect(const struct mistake *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                              .op = m[i].op,
                              .name = m[i].name,
                              .claims = m[i].claims,
                              .launch = m[i].launch};
        k.scratch_bytes = m[i].launch == by_scratch ? page_of_scratch : NULL;
        if (k.op == DS_OP_ATTENTION || k.op == DS_OP_ROUTER) /* the reference does their work */
            k.scratch_bytes = kernel(k.op, "reference")->scratch_bytes;
        k.prepare = m[i].launch == of_the_last_prepared ? prepare_in_place : NULL;
        const struct ds_check_result r = check(&k, m[i].shape);
        const int failure = ds_check_failure(&k, &r);
        assert_int_equal(r.property[DS_PROPERTY_BATCH].not_tried + r.n_faults > 0 &&
                             r.property[DS_PROPERTY_BATCH].compared == 0,
                         0); /* it does run */
        const struct ds_property_result *p = &r.property[m[i].failure];
        if (failure == m[i].failure && strstr(p->smallest, m[i].says))
            continue;
        print_error("%s: fails %s, want %s: '%s'\n", m[i].name,
                    failure < 0 ? "nothing" : ds_property_name(failure),
                    ds_property_name(m[i].failure), m[i].says);
        for (int q = 0; q < DS_PROPERTY_COUNT; q++)
            if (r.property[q].state == DS_STATE_BROKEN)
                print_error("  %s: %s\n", ds_property_name(q), r.property[q].smallest);
        fail();
    }
}
#define EXPECT(list) expect(list, sizeof list / sizeof list[0])

enum { ONCE = DS_CLAIM_REPEAT, ALL = DS_CLAIM_ALL, WRONG = DS_PROPERTY_SIZES };
#define SMALL "n=24,k=48"

static void test_matmul(void **state)
{
    static const struct mistake list[] = {
        {"tail-of-9", tail_of_9_twice, DS_OP_MATMUL, SMALL, ALL, WRONG, "n="},
        {"short-of-one", short_of_one, DS_OP_MATMUL, SMALL, ALL, WRONG, "k=51: row"},
        {"row-12-of-13", row_12_of_13, DS_OP_MATMUL, SMALL, ONCE, WRONG, "13 rows: row 12 of 13"},
        {"row-511", row_511, DS_OP_MATMUL, SMALL, ONCE, WRONG, "512 rows, 257 places on: row 254"},
        {"larger-at-64", larger_at_64, DS_OP_MATMUL, SMALL, ONCE, WRONG, "64 rows: row "},
        {"bias-twice", bias_twice, DS_OP_MATMUL, SMALL, ALL, DS_PROPERTY_BATCH,
         "of 3 rows against"},
        {"no-bias-on-3", no_bias_on_3, DS_OP_MATMUL, SMALL, ONCE, WRONG, "3 threads, bias: row"},
        {"zero-on-3", zero_on_3, DS_OP_MATMUL, SMALL, ONCE, WRONG,
         "1 row, 3 threads: row 0 of 1, element 23 is 0 where"},
        {"offset-3", one_less_at_offset_3, DS_OP_MATMUL, SMALL, ALL, WRONG,
         "4 rows, offset 3: row"},
        {"last-prepared", of_the_last_prepared, DS_OP_MATMUL, SMALL, ALL & ~DS_CLAIM_REPEAT, WRONG,
         "n=24,k=48: row"},
    };
    (void)state;
    EXPECT(list);
}

/* What the process did before. */
static void test_history(void **state)
{
    static const struct mistake list[] = {
        {"tunes-late", tunes_late, DS_OP_MATMUL, SMALL, ALL, DS_PROPERTY_REPEAT,
         "row 0 of 1 row again, after all other calls"},
        {"tunes-once", tunes_once, DS_OP_MATMUL, SMALL, ALL, DS_PROPERTY_REPEAT,
         "row 0 of 1 row again, in a process that began with a call of many rows"},
        /* Between two calls of whatever is changed. */
        {"seldom", seldom, DS_OP_MATMUL, SMALL, ALL, DS_PROPERTY_REPEAT, "again, unchanged"},
    };
    (void)state;
    EXPECT(list);
}

/* Nothing promises that bits do not depend on where the scratch lies, but it is told. */
static void test_scratch(void **state)
{
    const struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                                .op = DS_OP_MATMUL,
                                .name = "by-scratch",
                                .claims = DS_CLAIM_ALL,
                                .scratch_bytes = page_of_scratch,
                                .launch = by_scratch};
    (void)state;
    const struct ds_check_result r = check(&k, SMALL);
    assert_int_equal(ds_check_failure(&k, &r), -1);
    assert_int_equal(r.property[DS_PROPERTY_ALIGNMENT].state, DS_STATE_BROKEN);
}

/* Nor on where weights lie. */
LAUNCH(by_weights, ds_matmul_args, product(a, a->k, (uintptr_t)a->w.data / 4 % 16 == 4))
static void test_weights_moved(void **state)
{
    const struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                                .op = DS_OP_MATMUL,
                                .name = "by-weights",
                                .claims = DS_CLAIM_ALL,
                                .launch = by_weights};
    (void)state;
    const struct ds_check_result r = check(&k, SMALL);
    assert_int_equal(ds_check_failure(&k, &r), -1);
    assert_string_equal(r.property[DS_PROPERTY_ALIGNMENT].smallest,
                        "row 0 of 1 row with weights in place against 4 floats behind a 64-byte "
                        "boundary");
}

/* That 16-bit arrays give what f32 arrays of their values give is what DS_FEATURE_STORED promises. */
static void test_stored(void **state)
{
    (void)state;
    for (int larger = 0; larger < 2; larger++) {
        const struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                                    .op = DS_OP_ADD,
                                    .name = larger ? "larger" : "rounded",
                                    .claims = DS_CLAIM_ALL,
                                    .features = DS_FEATURE_STORED,
                                    .launch = larger ? add_larger : add_rounded};
        const struct ds_check_result r = check(&k, "width=48");
        const struct ds_property_result *p = &r.property[DS_PROPERTY_FORMATS];
        assert_int_equal(ds_check_failure(&k, &r), larger ? DS_PROPERTY_FORMATS : -1);
        assert_int_equal(p->compared, 116);
        assert_int_equal(p->state, larger ? DS_STATE_BROKEN : DS_STATE_HOLDS);
        if (larger)
            assert_non_null(strstr(p->smallest, "of bf16 in f32 arrays against in its own"));
    }
}

static void test_other_ops(void **state)
{
    static const struct mistake list[] = {
        {"tail-of-13", add_without_tail_of_13, DS_OP_ADD, "width=48", ALL, WRONG, "width=13: row"},
        {"one-stride", add_one_stride, DS_OP_ADD, "width=48", ALL, DS_PROPERTY_MEMORY,
         "rows where unwritten memory holds NaN"},
        {"one-stride", softmax_one_stride, DS_OP_SOFTMAX, "width=48", ALL, DS_PROPERTY_MEMORY,
         "writes outside of y, at row 0, element 49"},
        {"row-0", add_of_row_0, DS_OP_ADD, "width=48", ONCE, WRONG, "512 rows, 257 places on: row"},
        {"without-max", exp_without_max, DS_OP_SOFTMAX, "width=48", ALL, WRONG,
         "mixed values: row"},
        {"16-bits", positions_of_16_bits, DS_OP_ROPE, "heads=1,head_dim=8,rope_dim=8", ALL, WRONG,
         "heads="},
        {"half", positions_in_half, DS_OP_ROPE, "heads=1,head_dim=8,rope_dim=8", ALL, WRONG,
         "heads="},
        {"last", last_of_equals, DS_OP_SAMPLE, "vocab=90", ALL, WRONG, "tied values: row"},
        {"first-lane", first_lane, DS_OP_SAMPLE, "vocab=90", ALL, WRONG, "tied values: row"},
        {"never-negative", never_negative, DS_OP_SAMPLE, "vocab=90", ALL, WRONG, " is 0 where"},
        {"always", normalises_always, DS_OP_ROUTER, "experts=8,top_k=2", ALL, WRONG, "experts="},
        {"eight", combines_eight, DS_OP_COMBINE, "width=20,top_k=2", ALL, WRONG, "top_k=9: row"},
        {"four-ranks", four_ranks, DS_OP_ALLREDUCE, "width=20", ALL, WRONG, "ranks=5: row"},
    };
    (void)state;
    EXPECT(list);
}

static void test_attention(void **state)
{
#define TINY "heads=2,kv_heads=1,head_dim=8"
    static const struct mistake list[] = {
        {"pages-of-256", less_on_pages_of_256, DS_OP_ATTENTION, TINY, ALL, WRONG,
         "with pages of 256, head 0"},
        {"row-64", less_in_row_64, DS_OP_ATTENTION, TINY, ONCE, WRONG, "the row at slot"},
        {"behind-128", less_behind_128_rows, DS_OP_ATTENTION, TINY, ONCE, WRONG, "the row at slot"},
        {"from-800", less_from_800_on, DS_OP_ATTENTION, TINY, ONCE, WRONG, "the row at slot"},
        {"stride", stride_of_chunks, DS_OP_ATTENTION, TINY, ALL, WRONG, "between rows, head"},
    };
    (void)state;
    EXPECT(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),    cmocka_unit_test(test_history),
        cmocka_unit_test(test_scratch),   cmocka_unit_test(test_weights_moved),
        cmocka_unit_test(test_stored),    cmocka_unit_test(test_other_ops),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests_name("check: mistakes", tests, NULL, NULL);
}
