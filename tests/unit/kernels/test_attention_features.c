/* test_attention_features.c: sliding window, soft cap, sinks and log-sum-exp: pinned equals the
 * transcription of PINNED.md, pinned and reference are accurate, and what has no effect changes no
 * bit. */
#include "tests/unit/kernels/harness.h"
#include "tests/unit/kernels/oracle.h"

enum { HEADS = 4, KV_HEADS = 2, DIM = 20, SLOTS = 600, WIDTH = HEADS * DIM, KV = KV_HEADS * DIM };

/* One sequence of SLOTS slots, one query row each, one page. */
struct one {
    struct matrix q, k, v, y, lse, sinks;
    int32_t page;
    struct ds_sequence s;
    struct ds_attention_args a;
};

static void one_new(struct one *o, int32_t kv_first, unsigned special)
{
    o->q = matrix_random(SLOTS, WIDTH, WIDTH, 0, special);
    o->k = matrix_random(SLOTS, KV, KV, 1, special ? special * 40 : 0);
    o->v = matrix_random(SLOTS, KV, KV, 0, special ? special * 40 : 0);
    o->sinks = matrix_random(1, HEADS, HEADS, 1, 0);
    o->y = matrix_new(SLOTS, WIDTH, WIDTH, 0);
    o->lse = matrix_new(SLOTS, HEADS, HEADS, 1);
    o->page = 0;
    o->s = (struct ds_sequence){0, 0, SLOTS, SLOTS, kv_first, &o->page};
    for (int64_t i = 0; i < SLOTS * WIDTH; i++)
        o->q.p[i] *= 6;
    o->a = (struct ds_attention_args){.rows = SLOTS,
                                      .heads = HEADS,
                                      .kv_heads = KV_HEADS,
                                      .head_dim = DIM,
                                      .scale = 0.25f,
                                      .q = o->q.p,
                                      .ldq = WIDTH,
                                      .cache_k = o->k.p,
                                      .cache_v = o->v.p,
                                      .page_size = SLOTS,
                                      .pages = 1,
                                      .sequences = &o->s,
                                      .n_sequences = 1,
                                      .max_q_len = SLOTS,
                                      .max_kv_len = SLOTS,
                                      .y = o->y.p,
                                      .ldy = WIDTH,
                                      .lse = o->lse.p};
}

static void one_free(struct one *o)
{
    struct matrix *const m[] = {&o->q, &o->k, &o->v, &o->sinks, &o->y, &o->lse};
    for (size_t i = 0; i < sizeof m / sizeof m[0]; i++)
        matrix_free(m[i]);
}

static const struct setting {
    int32_t window;
    float soft_cap;
    int sinks;
    int32_t kv_first;
    unsigned special;
} SETTINGS[] = {{0, 0, 0, 0, 0},     {1, 0, 0, 0, 0},    {100, 0, 0, 3, 0},   {256, 0, 0, 0, 0},
                {300, 0, 1, 0, 0},   {0, 3, 0, 0, 0},    {0, 50, 0, 7, 0},    {0, 0, 1, 0, 0},
                {270, 5, 1, 600, 0}, {90, 2, 1, 20, 30}, {600, 30, 1, 0, 100}};
enum { N_SETTINGS = sizeof SETTINGS / sizeof SETTINGS[0] };

static void set(struct one *o, const struct setting *t)
{
    o->a.window = t->window;
    o->a.soft_cap = t->soft_cap;
    o->a.sinks = t->sinks ? o->sinks.p : NULL;
}

static void test_equals_transcription(void **state)
{
    use_isa(state);
    for (int i = 0; i < N_SETTINGS; i++) {
        struct one o;
        one_new(&o, SETTINGS[i].kv_first, SETTINGS[i].special);
        set(&o, &SETTINGS[i]);
        launch_named(kernel(DS_OP_ATTENTION, "pinned"), &o.a, 1 + i % 3);
        matrix_check("y", &o.y), matrix_check("lse", &o.lse);
        for (int64_t r = i; r < SLOTS; r += 17)
            for (int64_t h = 0; h < HEADS; h++) {
                float y[DIM], lse;
                o_attention_lse(&o.a, &o.s, r, h, y, &lse);
                assert_bits_equal("lse", r * HEADS + h, o.lse.p[r * HEADS + h], lse);
                for (int64_t d = 0; d < DIM; d++)
                    assert_bits_equal("y", r * WIDTH + h * DIM + d, o.y.p[r * WIDTH + h * DIM + d],
                                      y[d]);
            }
        one_free(&o);
    }
}

/* Asking for the log-sum-exp, a window that hides nothing and a sink of -infinity change no bit of
 * y. */
static void test_no_effect_no_change(void **state)
{
    static const char *const names[] = {"pinned", "reference"};
    (void)state;
    for (int v = 0; v < 2; v++) {
        const struct ds_kernel *k = kernel(DS_OP_ATTENTION, names[v]);
        struct one o;
        one_new(&o, 5, 0);
        o.a.lse = NULL;
        launch_named(k, &o.a, 2);
        struct matrix plain = o.y;
        o.y = matrix_new(SLOTS, WIDTH, WIDTH, 0);
        for (int64_t h = 0; h < HEADS; h++)
            o.sinks.p[h] = -INFINITY;
        o.a.y = o.y.p, o.a.lse = o.lse.p, o.a.sinks = o.sinks.p, o.a.window = SLOTS;
        launch_named(k, &o.a, 2);
        for (int64_t i = 0; i < SLOTS * WIDTH; i++)
            assert_bits_equal(names[v], i, o.y.p[i], plain.p[i]);
        matrix_free(&plain);
        one_free(&o);
    }
}

/* The largest difference from the sums in double, over every setting without special values. */
static void compare_with_double(const struct one *o, double *worst_y, double *worst_lse)
{
    for (int64_t r = o->s.kv_first; r < SLOTS; r += 11)
        for (int64_t h = 0; h < HEADS; h++) {
            int64_t from = o->a.window && r + 1 - o->a.window > o->s.kv_first ? r + 1 - o->a.window
                                                                              : o->s.kv_first;
            double sum = o->a.sinks ? exp((double)o->sinks.p[h]) : 0, acc[DIM] = {0};
            for (int64_t t = from; t <= r; t++) {
                const int64_t at = t * KV + h / (HEADS / KV_HEADS) * DIM;
                double s = 0;
                for (int64_t d = 0; d < DIM; d++)
                    s += (double)o->q.p[r * WIDTH + h * DIM + d] * (double)o->k.p[at + d];
                s *= 0.25;
                s = o->a.soft_cap > 0 ? (double)o->a.soft_cap * tanh(s / (double)o->a.soft_cap) : s;
                sum += exp(s);
                for (int64_t d = 0; d < DIM; d++)
                    acc[d] += exp(s) * (double)o->v.p[at + d];
            }
            *worst_lse = fmax(*worst_lse, fabs(log(sum) - (double)o->lse.p[r * HEADS + h]));
            for (int64_t d = 0; d < DIM; d++)
                *worst_y =
                    fmax(*worst_y, fabs(acc[d] / sum - (double)o->y.p[r * WIDTH + h * DIM + d]));
            assert_false(isnan(o->lse.p[r * HEADS + h]) || isnan(o->y.p[r * WIDTH + h * DIM]));
        }
}

static void test_accuracy(void **state)
{
    static const char *const names[] = {"pinned", "reference"};
    (void)state;
    for (int v = 0; v < 2; v++) {
        double worst_y = 0, worst_lse = 0;
        for (int i = 0; i < N_SETTINGS; i++) {
            struct one o;
            if (SETTINGS[i].special)
                continue;
            one_new(&o, SETTINGS[i].kv_first, 0);
            set(&o, &SETTINGS[i]);
            launch_named(kernel(DS_OP_ATTENTION, names[v]), &o.a, 2);
            compare_with_double(&o, &worst_y, &worst_lse);
            one_free(&o);
        }
        print_message("attention/%s: largest error of y %.2e, of lse %.2e\n", names[v], worst_y,
                      worst_lse);
        assert_true(worst_y <= 2e-6 && worst_lse <= 3e-6);
    }
}

/* A row that sees nothing: +0 and -infinity, with a sink, too. */
static void test_empty_rows(void **state)
{
    static const char *const names[] = {"pinned", "reference"};
    (void)state;
    for (int v = 0; v < 2; v++) {
        struct one o;
        one_new(&o, 12, 0);
        o.a.sinks = o.sinks.p, o.a.window = 4, o.a.soft_cap = 9;
        launch_named(kernel(DS_OP_ATTENTION, names[v]), &o.a, 2);
        for (int64_t i = 0; i < 12 * WIDTH; i++)
            assert_bits_equal("y", i, o.y.p[i], 0.0f);
        for (int64_t i = 0; i < 13 * HEADS; i++)
            assert_int_equal(o.lse.p[i] == -INFINITY, i < 12 * HEADS);
        one_free(&o);
    }
}

static void test_senseless_features_are_refused(void **state)
{
    static const struct setting bad[] = {
        {-1, 0, 0, 0, 0}, {0, -1, 0, 0, 0}, {0, NAN, 0, 0, 0}, {0, INFINITY, 0, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct one o;
        struct ds_exec exec = {.threads = 1};
        char why[200] = "";
        one_new(&o, 0, 0);
        set(&o, &bad[i]);
        const struct ds_kernel *k = kernel(DS_OP_ATTENTION, "pinned");
        assert_int_equal(k->launch(&o.a, &exec, why, sizeof why), -1);
        assert_non_null(strstr(why, "make no sense"));
        one_free(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PER_ISA(test_equals_transcription),
        cmocka_unit_test(test_no_effect_no_change),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_empty_rows),
        cmocka_unit_test(test_senseless_features_are_refused),
    };
    return cmocka_run_group_tests_name("attention features", tests, NULL, NULL);
}
