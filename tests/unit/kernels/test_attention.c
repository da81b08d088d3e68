/* test_attention.c: pinned attention equals the transcription of PINNED.md; it does not depend on
 * chunks, pages, padding, batch or threads; every variant is accurate; the vendor variant splits
 * exactly where it says. */
#include "tests/unit/kernels/attention_world.h"
#include "tests/unit/kernels/oracle.h"

static void test_equals_transcription(void **state)
{
    static const struct {
        int64_t heads, kv_heads, dim, page;
        int32_t kv[2], first[2];
        unsigned special;
    } cases[] = {
        {9, 3, 64, 1024, {40, 17}, {0, 5}, 0}, {2, 1, 1, 3, {20, 7}, {0, 7}, 0},
        {4, 2, 17, 5, {258, 33}, {1, 0}, 0},   {1, 1, 96, 16, {530, 3}, {0, 1}, 0},
        {3, 3, 40, 7, {300, 260}, {3, 2}, 0},  {2, 2, 128, 64, {90, 1}, {0, 0}, 0},
        {4, 2, 24, 8, {280, 60}, {9, 0}, 500}, {2, 1, 64, 32, {60, 50}, {0, 3}, 100},
    };
    const struct ds_kernel *k = kernel(DS_OP_ATTENTION, "pinned");
    use_isa(state);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct world w = world_new(cases[c].heads, cases[c].kv_heads, cases[c].dim, cases[c].page,
                                   2, cases[c].kv, cases[c].first, cases[c].special);
        struct matrix want[4], y[4];
        new_results(&w, want), new_results(&w, y);
        for (int i = 0; i < 2; i++) {
            struct ds_sequence s = {i, 0, w.kv[i], w.kv[i], w.first[i], w.page_of[i]};
            struct ds_attention_args a = {
                w.kv[i], w.heads,     w.kv_heads, w.dim, SCALE, w.q[i].p, w.q[i].ld, w.k.p,
                w.v.p,   w.page_size, w.pages,    &s,    1,     NULL,     w.kv[i],   w.kv[i],
                NULL,    0,           0,          0,     NULL,  NULL,     0};
            for (int64_t r = 0; r < w.kv[i]; r++)
                for (int64_t h = 0; h < w.heads; h++)
                    o_attention(&a, &s, r, h, want[i].p + (r * w.heads + h) * w.dim);
        }
        prefill(&w, k, (int)(c % 4) + 1, y);
        assert_same("attention", &w, y, want);
        free_results(&w, want), free_results(&w, y);
        world_free(&w);
    }
}

static void test_prefill_decode_chunks_threads(void **state)
{
    static const int32_t kv[] = {600, 270, 33}, first[] = {0, 4, 1}, chunks[] = {1, 7, 64, 256};
    const struct ds_kernel *k = kernel(DS_OP_ATTENTION, "pinned");
    use_isa(state);
    struct world w = world_new(2, 1, 20, 48, 3, kv, first, 0);
    struct matrix want[4];
    new_results(&w, want);
    prefill(&w, k, 1, want);
    for (int c = 0; c < 4; c++) {
        struct matrix y[4];
        new_results(&w, y);
        chunked(&w, k, chunks[c], c + 1, y);
        assert_same("chunked attention", &w, y, want);
        free_results(&w, y);
    }
    /* one request alone */
    struct matrix y[4];
    int32_t from[4] = {0, 3, 0}, to[4] = {0, 200, 0};
    new_results(&w, y);
    attend(&w, k, from, to, 2, y);
    for (int64_t j = 3 * 40; j < 200 * 40; j++)
        assert_bits_equal("alone", j, y[1].p[j], want[1].p[j]);
    free_results(&w, y), free_results(&w, want);
    world_free(&w);
}

/* The same request with left padding: rows that are no pads keep their bits, pads give +0. */
static void test_left_padding(void **state)
{
    enum { N = 300, PAD = 37, WIDTH = 3 * 24 };
    static const int32_t plain_kv[] = {N}, padded_kv[] = {N + PAD}, zero[] = {0}, pad[] = {PAD};
    static const char *const names[] = {"pinned", "reference", "vendor"};
    use_isa(state);
    struct world a = world_new(3, 1, 24, 16, 1, plain_kv, zero, 0),
                 b = world_new(3, 1, 24, 8, 1, padded_kv, pad, 0);
    for (int64_t t = 0; t < N; t++) {
        int64_t from = a.page_of[0][t / 16] * 16 + t % 16,
                to = b.page_of[0][(t + PAD) / 8] * 8 + (t + PAD) % 8;
        memcpy(b.k.p + to * b.k.ld, a.k.p + from * a.k.ld, 24 * 4);
        memcpy(b.v.p + to * b.v.ld, a.v.p + from * a.v.ld, 24 * 4);
        memcpy(b.q[0].p + (t + PAD) * WIDTH, a.q[0].p + t * WIDTH, WIDTH * 4);
    }
    for (int v = 0; v < 3; v++) {
        struct matrix ya[4], yb[4];
        new_results(&a, ya), new_results(&b, yb);
        prefill(&a, kernel(DS_OP_ATTENTION, names[v]), 2, ya);
        prefill(&b, kernel(DS_OP_ATTENTION, names[v]), 2, yb);
        for (int64_t j = 0; j < PAD * WIDTH; j++)
            assert_int_equal(ds_f32_bits(yb[0].p[j]), 0);
        for (int64_t j = 0; j < N * WIDTH; j++)
            assert_bits_equal(names[v], j, yb[0].p[PAD * WIDTH + j], ya[0].p[j]);
        /* a call of pads alone */
        int32_t some = PAD / 2;
        fill_bits(yb[0].p, PAD * WIDTH, POISON);
        attend(&b, kernel(DS_OP_ATTENTION, names[v]), zero, &some, 2, yb);
        for (int64_t j = 0; j < some * WIDTH; j++)
            assert_int_equal(ds_f32_bits(yb[0].p[j]), 0);
        free_results(&a, ya), free_results(&b, yb);
    }
    world_free(&a), world_free(&b);
}

/* A whole block of scores of -infinity before a finite one counts as nothing; only such scores give
 * NaN. */
static void test_minus_infinite_scores(void **state)
{
    static const int32_t kv[] = {520}, zero[] = {0};
    static const char *const names[] = {"pinned", "reference", "vendor"};
    use_isa(state);
    struct world w = world_new(1, 1, 16, 600, 1, kv, zero, 0);
    for (int64_t t = 0; t < 520; t++)
        for (int64_t d = 0; d < 16; d++) {
            w.q[0].p[t * 16 + d] = d ? 0.0f : 1.0f;
            w.k.p[t * 16 + d] = d ? 0.0f : t < 300 ? -INFINITY : 1.0f;
            w.v.p[t * 16 + d] = t < 300 ? 7.0f : 2.0f;
        }
    for (int v = 0; v < 3; v++) {
        struct matrix y[4];
        new_results(&w, y);
        prefill(&w, kernel(DS_OP_ATTENTION, names[v]), 2, y);
        for (int64_t t = 0; t < 520; t++)
            for (int64_t d = 0; d < 16; d++)
                assert_true(t < 300 ? isnan(y[0].p[t * 16 + d]) : y[0].p[t * 16 + d] == 2.0f);
        free_results(&w, y);
    }
    world_free(&w);
}

/* Against long double: |y - exact| <= bound * max |v|. With scores of size |s| the largest error of
 * a weight is about
 * (|s| + dim) u relative for each of the two sums. */
static void test_accuracy(void **state)
{
    static const int32_t kv[] = {700, 40}, first[] = {0, 2};
    static const char *const names[] = {"pinned", "reference", "vendor"};
    (void)state;
    struct world w = world_new(3, 1, 64, 32, 2, kv, first, 0);
    for (int v = 0; v < 3; v++) {
        struct matrix y[4];
        new_results(&w, y);
        prefill(&w, kernel(DS_OP_ATTENTION, names[v]), 2, y);
        double worst = 0;
        for (int i = 0; i < 2; i++) {
            for (int64_t r = first[i]; r < kv[i]; r += 13) {
                for (int64_t h = 0; h < 3; h++) {
                    const float *q = w.q[i].p + (r * 3 + h) * 64;
                    long double sum = 0, acc[64] = {0};
                    for (int64_t t = first[i]; t <= r; t++) {
                        int64_t at = (w.page_of[i][t / 32] * 32 + t % 32) * 64;
                        long double s = 0;
                        for (int64_t d = 0; d < 64; d++)
                            s += (long double)q[d] * (long double)w.k.p[at + d];
                        long double e = expl(s * (long double)SCALE);
                        sum += e;
                        for (int64_t d = 0; d < 64; d++)
                            acc[d] += e * (long double)w.v.p[at + d];
                    }
                    for (int64_t d = 0; d < 64; d++) {
                        double diff = fabs(
                            (double)(acc[d] / sum - (long double)y[i].p[(r * 3 + h) * 64 + d]));
                        worst = diff > worst || isnan(diff) ? diff : worst;
                    }
                }
            }
        }
        print_message("attention/%s: largest error %.2e\n", names[v], worst);
        assert_true(worst <= 6e-7);
        free_results(&w, y);
    }
    world_free(&w);
}

/* The vendor variant: one row alone over 512 visible slots or more depends on the number of
 * threads, and only then. */
static void test_vendor_splits_where_it_says(void **state)
{
    static const int32_t kv[] = {900, 900}, first[] = {0, 100};
    const struct ds_kernel *k = kernel(DS_OP_ATTENTION, "vendor");
    (void)state;
    struct world w = world_new(2, 1, 32, 64, 2, kv, first, 0);
    struct matrix want[4], y[4];
    new_results(&w, want), new_results(&w, y);
    prefill(&w, k, 1, want);
    static const struct {
        int32_t slot, request;
        int threads, differs;
    } cases[] = {{510, 0, 4, 0}, {511, 0, 4, 1}, {511, 0, 1, 0}, {610, 1, 4, 0},
                 {611, 1, 4, 1}, {899, 0, 3, 1}, {899, 1, 1, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int32_t from[4] = {0}, to[4] = {0}, i = cases[c].request, slot = cases[c].slot;
        from[i] = slot, to[i] = slot + 1;
        attend(&w, k, from, to, cases[c].threads, y);
        int same = memcmp(y[i].p + slot * 64, want[i].p + slot * 64, 64 * 4) == 0;
        assert_int_equal(same, !cases[c].differs);
        for (int64_t d = 0; d < 64; d++)
            assert_close("split", d, y[i].p[slot * 64 + d], want[i].p[slot * 64 + d], 1e-6);
        /* beside another request's row: no split */
        from[1 - i] = slot, to[1 - i] = slot + 1;
        attend(&w, k, from, to, cases[c].threads, y);
        assert_memory_equal(y[i].p + slot * 64, want[i].p + slot * 64, 64 * 4);
    }
    free_results(&w, want), free_results(&w, y);
    world_free(&w);
}

static void test_bad_arguments_are_refused(void **state)
{
    static const char *const names[] = {"pinned", "reference", "vendor"};
    float x[64] = {0}, y[64];
    int32_t page[] = {0, 9};
    struct ds_sequence good = {7, 0, 1, 1, 0, page};
    (void)state;
    for (int v = 0; v < 3; v++) {
        const struct ds_kernel *k = kernel(DS_OP_ATTENTION, names[v]);
        char why[200];
        struct ds_exec exec = {.threads = 1};
        struct ds_sequence s = good;
        struct ds_attention_args a = {1, 2,    1, 8, 1, x,  16, x, x,    4,    1, &s,
                                      1, NULL, 1, 8, y, 16, 0,  0, NULL, NULL, 0};
        _Alignas(64) float scratch[8192];
        assert_true(!k->scratch_bytes || k->scratch_bytes(&a, 1) <= sizeof scratch);
        exec.scratch = scratch, exec.scratch_bytes = sizeof scratch;
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), 0);
        s.kv_len = 5;
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), -1);
        assert_non_null(strstr(why, "request 7: page 9"));
        s = good, s.q_len = 2;
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), -1);
        s = good, s.q_first = 1;
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), -1);
        s = good, a.kv_heads = 3;
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), -1);
        a.kv_heads = 1, exec.scratch_bytes = 8;
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), v == 2 ? 0 : -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PER_ISA(test_equals_transcription),
        PER_ISA(test_prefill_decode_chunks_threads),
        PER_ISA(test_left_padding),
        PER_ISA(test_minus_infinite_scores),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_vendor_splits_where_it_says),
        cmocka_unit_test(test_bad_arguments_are_refused),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
