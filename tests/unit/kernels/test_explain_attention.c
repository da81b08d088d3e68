/* test_explain_attention.c: attention along measured orders where something stands between the scores and the
 * sums: a window, a soft cap, sinks; and a kernel that counts from its window's first slot. */
#include "tests/unit/testing.h"

#include "kernels/cpu/pinned.h"
#include "kernels/lab/content.h"
#include "kernels/lab/explain_weigh.h"
#include "kernels/lab/subject.h"
#include "kernels/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, KV = 2, DIM = 8, WIDTH = HEADS * DIM, SLOTS = 11, ROWS = 3 };

/* ---- a kernel -------------------------------------------------------------------------------- */

/* p summed in three interleaved lanes, from the first slot in the window on. */
static void lanes_head(const struct ds_attention_args *a, const struct ds_sequence *s, int64_t row,
                       int64_t h)
{
    const int64_t end = s->kv_len - s->q_len + (row - s->q_first) + 1,
                  kv = h / (a->heads / a->kv_heads),
                  begin =
                      a->window && end - a->window > s->kv_first ? end - a->window : s->kv_first;
    const float *q = a->q + row * a->ldq + h * DIM;
    float *y = a->y + row * a->ldy + h * DIM, p[64], max = -INFINITY, lane[3] = {0, 0, 0};
    for (int64_t t = begin; t < end; t++) {
        p[t] = 0;
        for (int64_t d = 0; d < DIM; d++)
            p[t] += q[d] * a->cache_k[(t * a->kv_heads + kv) * DIM + d];
        p[t] *= a->scale;
        max = p[t] > max ? p[t] : max;
    }
    memset(y, 0, DIM * sizeof *y);
    for (int64_t t = begin; t < end; t++) {
        const float e = expf(p[t] - max);
        lane[(t - begin) % 3] += e;
        for (int64_t d = 0; d < DIM; d++)
            y[d] += e * a->cache_v[(t * a->kv_heads + kv) * DIM + d];
    }
    for (int64_t d = 0; d < DIM; d++)
        y[d] /= lane[0] + lane[1] + lane[2];
}

static int lanes_launch(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_attention_args *a = args;
    (void)exec, (void)why, (void)size;
    for (int64_t i = 0; i < a->n_sequences; i++)
        for (int64_t r = 0; r < a->sequences[i].q_len; r++)
            for (int64_t h = 0; h < a->heads; h++)
                lanes_head(a, &a->sequences[i], a->sequences[i].q_first + r, h);
    return 0;
}

static const struct ds_kernel lanes = {
    .op = DS_OP_ATTENTION, .name = "lanes", .features = DS_FEATURE_WINDOW, .launch = lanes_launch};

/* ---- rows ------------------------------------------------------------------------------------ */

struct world {
    struct ds_explain e;
    struct ds_explain_row row[ROWS];
    float q[ROWS][WIDTH], k[SLOTS * KV * DIM], v[SLOTS * KV * DIM], y[ROWS * WIDTH], sinks[HEADS];
};

static struct world *world_new(const struct ds_kernel *kernel, int32_t window, float cap, int sinks)
{
    struct world *s = calloc(1, sizeof *s);
    assert_non_null(s);
    ds_content_fill(s->k, SLOTS * KV * DIM, 5, 1);
    ds_content_fill(s->v, SLOTS * KV * DIM, 5, 2);
    ds_content_fill(s->sinks, HEADS, 5, 3);
    s->e = (struct ds_explain){.op = DS_OP_ATTENTION, .rows = s->row, .n_rows = ROWS};
    s->e.shared.attention = (struct ds_attention_args){.heads = HEADS,
                                                       .kv_heads = KV,
                                                       .head_dim = DIM,
                                                       .scale = 1.5f,
                                                       .window = window,
                                                       .soft_cap = cap,
                                                       .sinks = sinks ? s->sinks : NULL};
    for (int r = 0; r < ROWS; r++) {
        ds_content_row(s->q[r], WIDTH, 5, 4, 0, r, DS_CONTENT_PLAIN);
        for (int side = 0; side < DS_SIDES; side++) {
            s->row[r].input[side].in[0] = s->q[r];
            s->row[r].input[side].k = s->k;
            s->row[r].input[side].v = s->v;
            s->row[r].input[side].slot = SLOTS - ROWS + r;
            s->row[r].at[side] = (struct ds_explain_at){
                .rows = ROWS, .row = r, .n_sequences = 1, .q_len = ROWS, .kv_len = SLOTS};
            s->row[r].y[side] = s->y + r * WIDTH;
            s->e.side[side].threads = 1;
            s->e.side[side].kernel = kernel;
        }
    }
    return s;
}

static void expect_replay(const struct ds_kernel *kernel, int32_t window, float cap, int sinks)
{
    struct world *s = world_new(kernel, window, cap, sinks);
    struct ds_explain_order o;
    struct ds_error err;
    double exact[ROWS * WIDTH];
    assert_ok(ds_explain_run(&s->e, DS_SIDE_A, kernel, 1, s->y, &err), err);
    assert_ok(ds_explain_order(&s->e, DS_SIDE_A, &o, &err), err);
    if (!o.replayed || o.match.same[DS_SIDE_A] != ROWS * WIDTH) {
        print_error("%s, window %d, cap %g, sinks %d: %s%s\n", kernel->name, window, (double)cap,
                    sinks, o.why, o.not_replayed);
        fail();
    }
    assert_int_equal(o.clipped, kernel == &lanes && window > 0);
    assert_ok(ds_explain_exact(&s->e, exact, &err), err);
    for (int i = 0; i < ROWS * WIDTH; i++)
        assert_true(fabs(exact[i] - (double)s->y[i]) <= 1e-5);
    ds_explain_order_free(&o);
    free(s);
}

static void test_between_scores_and_sums(void **state)
{
    static const struct {
        int32_t window;
        float cap;
        int sinks;
    } cases[] = {{4, 0, 0}, {0, 0.75f, 0}, {0, 0, 1}, {5, 2.5f, 1}, {11, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_replay(ds_kernel_find(DS_OP_ATTENTION, "pinned"), cases[i].window, cases[i].cap,
                      cases[i].sinks);
        expect_replay(ds_kernel_find(DS_OP_ATTENTION, "reference"), cases[i].window, cases[i].cap,
                      cases[i].sinks);
    }
}

static void test_counted_from_the_window(void **state)
{
    (void)state;
    expect_replay(&lanes, 0, 0, 0);
    expect_replay(&lanes, 5, 0, 0);
}

/* The exp here is written down a second time on purpose; it has the bits of the kernels' own. */
static void test_exp_of_the_page(void **state)
{
    float x[256], y[256];
    (void)state;
    for (int i = 0; i < 256; i++)
        x[i] = i < 128 ? -0.83f * (float)i : 0.71f * (float)(i - 128) + 0x1p-9f * (float)i;
    ds_pinned_code()->exp(y, x, 256);
    for (int i = 0; i < 256; i++)
        assert_bits_equal("exp", i, ds_weigh_exp(DS_EXP_PINNED, x[i]), y[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_between_scores_and_sums),
        cmocka_unit_test(test_counted_from_the_window),
        cmocka_unit_test(test_exp_of_the_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
