/* test_variants.c: the matmul variants that drift on purpose or are less exact. Each has the bits of
 * its second definition (oracle_parts.h), and what it claims, no more and no less, is what is
 * measured. */
#include "tests/unit/kernels/harness.h"
#include "tests/unit/kernels/oracle_parts.h"

#include "kernels/cpu/q8_tile.h"

#include <sched.h>
#include <stdatomic.h>

static struct ds_matmul_args call_of(const struct matrix *x, const struct matrix *w,
                                     const struct matrix *y, const float *bias,
                                     const void *prepared)
{
    return (struct ds_matmul_args){.rows = x->rows,
                                   .n = w->rows,
                                   .k = w->cols,
                                   .x = x->p,
                                   .ldx = x->ld,
                                   .w = {.data = w->p, .n = w->rows, .k = w->cols},
                                   .prepared = prepared,
                                   .bias = bias,
                                   .y = y->p,
                                   .ldy = y->ld};
}

static void *prepare(const struct ds_kernel *k, const struct ds_weight_view *w)
{
    char why[256] = "";
    void *prepared = NULL;
    size_t bytes = 0;
    if (!k->prepare)
        return NULL;
    if (k->prepare(w, &prepared, &bytes, why, sizeof why) != 0)
        fail_msg("%s: %s", k->name, why);
    assert_non_null(prepared);
    return prepared;
}

/* A launch with a seed and, perhaps, a pause; on a team of its own. */
struct how {
    int threads;
    uint64_t seed;
    void (*pause)(void *arg, int thread);
    void *pause_arg;
};

static void launch_as(const struct ds_kernel *k, const void *args, const struct how *how)
{
    char why[256] = "";
    struct ds_error err;
    struct ds_team *team = ds_team_new(how->threads, &err);
    assert_non_null(team);
    struct ds_exec exec = {.threads = how->threads,
                           .team = team,
                           .run = run_team,
                           .seed = how->seed,
                           .pause = how->pause,
                           .pause_arg = how->pause_arg};
    exec.scratch_bytes = k->scratch_bytes ? k->scratch_bytes(args, how->threads) : 0;
    exec.scratch = aligned_alloc(64, (exec.scratch_bytes + 63) / 64 * 64 + 64);
    assert_non_null(exec.scratch);
    fill_bits(exec.scratch, exec.scratch_bytes / 4, POISON);
    if (k->launch(args, &exec, why, sizeof why) != 0)
        fail_msg("%s: %s", k->name, why);
    free(exec.scratch);
    ds_team_free(team);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static const struct variant {
    const char *name;
    o_fn oracle;
} variants[] = {
    {"split-k", o_split_k}, {"stream-k", o_stream_k},
    {"ticket", o_ticket},   {"bf16-partials", o_bf16_partials},
    {"tf32", o_tf32},       {"q8", o_q8},
};
enum { N_VARIANTS = sizeof variants / sizeof variants[0] };

struct shape {
    int64_t rows, n, k;
    int skew, bias;
    unsigned special;
};

static void check_bits(const struct variant *v, const struct shape *s)
{
    const struct ds_kernel *k = kernel(DS_OP_MATMUL, v->name);
    struct matrix x = matrix_random(s->rows, s->k, s->k + s->skew, s->skew, s->special),
                  w = matrix_random(s->n, s->k, s->k, s->skew, s->special * 4),
                  b = matrix_random(1, s->n, s->n, s->skew, s->special);
    void *prepared = prepare(k, &(struct ds_weight_view){.data = w.p, .n = s->n, .k = s->k});
    for (int threads = 1; threads <= 4; threads++) {
        char what[120];
        struct matrix y = matrix_new(s->rows, s->n, s->n + 3 * s->skew, 2 * s->skew);
        struct ds_matmul_args a = call_of(&x, &w, &y, s->bias ? b.p : NULL, prepared);
        snprintf(what, sizeof what, "%s M=%d N=%d K=%d threads=%d", v->name, (int)s->rows,
                 (int)s->n, (int)s->k, threads);
        launch_named(k, &a, threads);
        matrix_check(what, &y);
        for (int64_t r = 0; r < s->rows; r++)
            for (int64_t j = 0; j < s->n; j++) {
                struct o_output o = {
                    x.p + r * x.ld, w.p + j * w.ld, s->bias ? b.p + j : NULL, r, j, s->rows, s->n,
                    s->k,           threads};
                assert_bits_equal(what, r * s->n + j, y.p[r * y.ld + j], v->oracle(&o));
            }
        matrix_free(&y);
    }
    free(prepared);
    matrix_free(&x), matrix_free(&w), matrix_free(&b);
}

static void test_bits(void **state)
{
    static const struct shape shapes[] = {
        {1, 1, 1, 0, 0, 0},     {1, 16, 31, 1, 1, 0},    {1, 130, 576, 0, 1, 0},
        {2, 63, 64, 1, 0, 0},   {3, 65, 1537, 1, 1, 0},  {4, 40, 300, 0, 0, 0},
        {5, 100, 257, 1, 1, 0}, {7, 2049, 40, 0, 0, 0},  {8, 64, 128, 2, 1, 0},
        {9, 70, 600, 1, 1, 0},  {16, 33, 520, 1, 0, 0},  {17, 80, 96, 0, 1, 0},
        {33, 20, 70, 1, 1, 0},  {1, 100, 300, 1, 1, 60}, {6, 70, 260, 0, 1, 300},
        {19, 33, 2, 1, 1, 9},
    };
    use_isa(state);
    for (size_t v = 0; v < N_VARIANTS; v++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            check_bits(&variants[v], &shapes[i]);
}

/* Weights that come as Q8_0 are taken as they are: integers and scales of the file, -128 too. */
static void test_q8_takes_the_files_blocks(void **state)
{
    enum { N = 21, K = 96, B = K / 32 };
    const struct ds_kernel *q8 = kernel(DS_OP_MATMUL, "q8");
    static uint8_t file[N * B][34];
    struct matrix x = matrix_random(3, K, K, 0, 0), y = matrix_new(3, N, N, 0);
    (void)state;
    for (int i = 0; i < N * B; i++) {
        const uint16_t d = ds_f16_round(rng_unit());
        file[i][0] = (uint8_t)d, file[i][1] = (uint8_t)(d >> 8);
        for (int q = 0; q < 32; q++)
            file[i][2 + q] = (uint8_t)rng();
    }
    file[5][9] = 0x80;
    struct ds_weight_view view = {.n = N, .k = K, .file_data = file, .file_type = 8};
    void *prepared = prepare(q8, &view);
    struct ds_matmul_args a = {3, N, K, x.p, K, view, prepared, NULL, y.p, N, 0, 0};
    launch_named(q8, &a, 1);
    for (int64_t r = 0; r < 3; r++)
        for (int64_t j = 0; j < N; j++) {
            float total = 0.0f;
            for (int64_t b = 0; b < B; b++) {
                const uint8_t *block = file[j * B + b];
                double q[32], sum = 0.0;
                float dx = o_quantise(x.p + r * K + 32 * b, 32, q);
                float dw = ds_f16_value((uint16_t)(block[0] | block[1] << 8)), t = dx * dw;
                for (int i = 0; i < 32; i++)
                    sum += q[i] * (int8_t)block[2 + i];
                float v = (float)sum * t;
                total += v;
            }
            assert_bits_equal("q8 of Q8_0", r * N + j, y.p[r * N + j], total);
        }
    free(prepared);
    matrix_free(&x), matrix_free(&y);
}

/* As an ordinary quantiser writes them, the file's blocks and its values are the same weights. */
/* Integers of full size and of any size, scales of any size, NaN among them; every number of rows. */
static void test_q8_codes_agree_on_tiles(void **state)
{
    enum { BLOCKS = 9, TERMS = BLOCKS * DS_Q8_BLOCK };
    static int8_t w[TERMS * DS_Q8_PANEL];
    static int16_t q[DS_Q8_MOST_ROWS][TERMS];
    static float d[DS_Q8_MOST_ROWS][BLOCKS], scale[BLOCKS * DS_Q8_PANEL];
    (void)state;
    if (!__builtin_cpu_supports("avx2"))
        skip();
    rng_state = 31;
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < TERMS * DS_Q8_PANEL; i++)
            w[i] = (int8_t)(round == 0 ? 0x80u : rng() & 0xffu);
        for (int i = 0; i < BLOCKS * DS_Q8_PANEL; i++)
            scale[i] =
                ds_f32_from_bits(round % 4 == 3 ? (uint32_t)rng() : 0x3c000000u + (uint32_t)i);
        for (int r = 0; r < DS_Q8_MOST_ROWS; r++) {
            for (int i = 0; i < TERMS; i++)
                q[r][i] = (int16_t)(round == 0 ? (r % 2 ? 127 : -127) : (int)(rng() % 255) - 127);
            for (int b = 0; b < BLOCKS; b++)
                d[r][b] =
                    ds_f32_from_bits(round % 4 == 3 ? (uint32_t)rng() : 0x3d000001u + (uint32_t)b);
        }
        for (int rows = 1; rows <= DS_Q8_MOST_ROWS; rows++) {
            float s[DS_Q8_MOST_ROWS][DS_Q8_PANEL], one[DS_Q8_MOST_ROWS][DS_Q8_PANEL];
            struct ds_q8_rows all = {.n = rows};
            for (int r = 0; r < rows; r++)
                all.q[r] = q[r], all.d[r] = d[r];
            ds_q8_avx2.tile(&all, w, scale, BLOCKS, s);
            for (int r = 0; r < rows; r++) {
                struct ds_q8_rows single = {.q = {q[r]}, .d = {d[r]}, .n = 1};
                ds_q8_plain.tile(&single, w, scale, BLOCKS, one);
                for (int j = 0; j < DS_Q8_PANEL; j++) /* which NaN is settled when it is stored */
                    if (s[r][j] == s[r][j] || one[0][j] == one[0][j])
                        assert_bits_equal("q8 tile", r * DS_Q8_PANEL + j, s[r][j], one[0][j]);
            }
        }
    }
}

static void test_q8_codes_agree_on_the_quantiser(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx2"))
        skip();
    rng_state = 32;
    for (int round = 0; round < 3000; round++) {
        float v[DS_Q8_BLOCK];
        int16_t fast[DS_Q8_BLOCK], slow[DS_Q8_BLOCK];
        for (int i = 0; i < DS_Q8_BLOCK; i++) {
            const uint32_t u = (uint32_t)rng();
            const uint32_t bits = round % 3 ? u & 0x8000001fu : u; /* subnormals, zeros; anything */
            v[i] = ds_f32_from_bits(bits);
        }
        if (round % 3 == 2) /* halves of d: ties */
            for (int i = 0; i < DS_Q8_BLOCK; i++)
                v[i] = i == 5 ? 127.0f : (float)((int)(rng() % 255) - 127) / 2;
        memset(fast, 0x55, sizeof fast);
        const float a = ds_q8_avx2.quantise(v, fast), b = ds_q8_plain.quantise(v, slow);
        assert_bits_equal("q8 scale", round, a, b);
        assert_memory_equal(fast, slow, sizeof fast);
    }
}

static void test_q8_of_values_and_of_the_file(void **state)
{
    enum { N = 18, K = 64, B = K / 32 };
    const struct ds_kernel *q8 = kernel(DS_OP_MATMUL, "q8");
    static uint8_t file[N * B][34];
    static float values[N * K];
    (void)state;
    for (int i = 0; i < N * B; i++) {
        const uint16_t d = i == 7 ? 0 : ds_f16_round(fabsf(rng_unit()) + 1e-3f);
        file[i][0] = (uint8_t)d, file[i][1] = (uint8_t)(d >> 8);
        for (int q = 0; q < 32; q++) {
            const int v = i == 7        ? 0
                          : q == i % 32 ? (i % 2 ? 127 : -127)
                                        : (int)(rng() % 255) - 127;
            file[i][2 + q] = (uint8_t)v;
            values[i * 32 + q] = ds_f16_value(d) * (float)v;
        }
    }
    void *a = prepare(q8, &(struct ds_weight_view){.data = values, .n = N, .k = K});
    void *b =
        prepare(q8, &(struct ds_weight_view){.n = N, .k = K, .file_data = file, .file_type = 8});
    assert_memory_equal(a, b, 32 * K + 32 * B * 4);
    free(a);
    free(b);
}

/* ---- arrival --------------------------------------------------------------------------------- */

/* The order of the parts in which every output of rows 0..rows-1 and columns j0..j1-1 was summed:
 * its number among the permutations, or -1. */
static int order_of(const struct matrix *x, const struct matrix *w, const struct matrix *y,
                    int64_t j0, int64_t j1)
{
    const int64_t k = w->cols, parts = o_race_parts(k);
    int found = -1;
    assert_true(parts == 3 || parts == 4);
    for (int code = 0; code < (parts == 3 ? 27 : 256); code++) {
        int order[4], used = 0, all = 1;
        for (int64_t p = 0, c = code; p < parts; p++, c /= parts)
            used |= 1 << (order[p] = (int)(c % parts));
        if (used != (1 << parts) - 1)
            continue;
        for (int64_t r = 0; r < x->rows && all; r++)
            for (int64_t j = j0; j < j1 && all; j++) {
                struct o_output o = {.x = x->p + r * x->ld, .w = w->p + j * w->ld, .k = k};
                float s = o_race_part(&o, order[0]);
                for (int64_t p = 1; p < parts; p++)
                    s += o_race_part(&o, order[p]);
                all = ds_f32_bits(s) == ds_f32_bits(y->p[r * y->ld + j]);
            }
        /* The first two commute: each order has a twin. The lower code is taken. */
        if (all && found < 0)
            found = code;
    }
    return found;
}

static void test_atomic_adds_whole_parts_in_some_order(void **state)
{
    enum { N = 130, M = 40 };
    use_isa(state);
    for (int64_t k = 25; k <= 33; k += 8) { /* 3 and 4 parts */
        struct matrix x = matrix_random(M, k, k, 1, 0), w = matrix_random(N, k, k, 0, 0);
        const struct ds_kernel *atomic = kernel(DS_OP_MATMUL, "atomic");
        void *prepared = prepare(atomic, &(struct ds_weight_view){.data = w.p, .n = N, .k = k});
        unsigned seen = 0, orders = 0;
        for (uint64_t seed = 1; seed <= 12; seed++)
            for (int threads = 1; threads <= 3; threads++) {
                struct matrix y = matrix_new(M, N, N, 1);
                struct ds_matmul_args a = call_of(&x, &w, &y, NULL, prepared);
                launch_as(atomic, &a, &(struct how){.threads = threads, .seed = seed});
                matrix_check("atomic", &y);
                for (int64_t j = 0; j < N; j += 64) {
                    int order = order_of(&x, &w, &y, j, j + 64 < N ? j + 64 : N);
                    assert_true(order >= 0); /* one order for the whole group */
                    if (threads == 1 && !(seen >> order % 32 & 1))
                        seen |= 1u << order % 32, orders++;
                }
                matrix_free(&y);
            }
        assert_true(orders >= 3); /* the seed alone brings every order out */
        free(prepared);
        matrix_free(&x), matrix_free(&w);
    }
}

/* The first to be ready waits until another thread has added two parts and come with the third. */
static void overtaken(void *arg, int thread)
{
    atomic_int *calls = arg;
    (void)thread;
    if (atomic_fetch_add(calls, 1) == 0)
        while (atomic_load(calls) < 4)
            sched_yield();
}

static void test_atomic_adds_by_arrival(void **state)
{
    enum { M = 80, N = 64, K = 32 };
    const struct ds_kernel *atomic = kernel(DS_OP_MATMUL, "atomic");
    struct matrix x = matrix_random(M, K, K, 0, 0), w = matrix_random(N, K, K, 0, 0);
    void *prepared = prepare(atomic, &(struct ds_weight_view){.data = w.p, .n = N, .k = K});
    struct matrix alone = matrix_new(M, N, N, 0), raced = matrix_new(M, N, N, 0);
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct ds_matmul_args a = call_of(&x, &w, &alone, NULL, prepared);
        struct ds_matmul_args b = call_of(&x, &w, &raced, NULL, prepared);
        atomic_int calls = 0;
        launch_as(atomic, &a, &(struct how){.threads = 1, .seed = seed});
        launch_as(
            atomic, &b,
            &(struct how){.threads = 2, .seed = seed, .pause = overtaken, .pause_arg = &calls});
        assert_int_equal(atomic_load(&calls), 4);
        /* Handed out as A B C D on one thread and on two, added as B C before A and D. */
        const int queue = order_of(&x, &w, &alone, 0, N), arrival = order_of(&x, &w, &raced, 0, N);
        assert_true(queue >= 0 && arrival >= 0 && queue != arrival);
    }
    free(prepared);
    matrix_free(&x), matrix_free(&w), matrix_free(&alone), matrix_free(&raced);
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* Row `subject` of x, computed in calls of rows first..first+rows-1. */
struct measured {
    const struct ds_kernel *k;
    struct matrix x, w, y;
    void *prepared;
    uint64_t seed; /* another one for each launch */
};
enum { MOST = 40, WIDTH = 150, DEPTH = 320 };

/* Launches rows first..first+rows-1 and leaves the bits of row `at` of the call in out. */
static void row_of(struct measured *m, int64_t first, int64_t rows, int64_t at, int threads,
                   float *out)
{
    struct matrix x = m->x, y = m->y;
    x.p += first * x.ld, x.rows = y.rows = rows;
    struct ds_matmul_args a = call_of(&x, &m->w, &y, NULL, m->prepared);
    launch_as(m->k, &a, &(struct how){.threads = threads, .seed = ++m->seed});
    memcpy(out, y.p + at * y.ld, WIDTH * sizeof *out);
}

static int same(const float *a, const float *b)
{
    return memcmp(a, b, WIDTH * sizeof *a) == 0;
}

/* The claims that hold, from launches alone. Row 0 and row 20 of x are equal, so that a row can be
 * looked at in two places of one call. */
static uint32_t measure(struct measured *m)
{
    static const int64_t counts[] = {2, 3, 4, 5, 8, 9, 16, 17, 33, 40};
    float one[WIDTH], other[WIDTH];
    uint32_t held = DS_CLAIM_ALL;
    for (int threads = 1; threads <= 3; threads++) {
        row_of(m, 0, 24, 5, threads, one);
        for (int i = 0; i < 8; i++) {
            row_of(m, 0, 24, 5, threads, other);
            held &= same(one, other) ? ~0u : ~(uint32_t)DS_CLAIM_REPEAT;
        }
        row_of(m, 0, 1, 0, threads, one);
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            row_of(m, 0, counts[i], 0, threads, other);
            held &= same(one, other) ? ~0u : ~(uint32_t)DS_CLAIM_BATCH;
        }
        for (int64_t rows = 21; rows <= 40; rows++) {
            row_of(m, 0, rows, 0, threads, one);
            row_of(m, 0, rows, 20, threads, other);
            held &= same(one, other) ? ~0u : ~(uint32_t)DS_CLAIM_SLOT;
            row_of(m, MOST - rows, rows, 20 - (MOST - rows), threads, other); /* other neighbours */
            held &= same(one, other) ? ~0u : ~(uint32_t)DS_CLAIM_SLOT;
        }
        for (int64_t cut = 1; cut <= 20; cut++) { /* rows 0..23, or from row `cut` on */
            row_of(m, 0, 24, 20, threads, one);
            row_of(m, cut, 24 - cut, 20 - cut, threads, other);
            held &= same(one, other) ? ~0u : ~(uint32_t)DS_CLAIM_CHUNK;
        }
    }
    for (int64_t rows = 1; rows <= 40; rows += 3) {
        row_of(m, 0, rows, 0, 1, one);
        for (int threads = 2; threads <= 4; threads++) {
            row_of(m, 0, rows, 0, threads, other);
            held &= same(one, other) ? ~0u : ~(uint32_t)DS_CLAIM_THREADS;
        }
    }
    return held;
}

static void test_claims_are_what_is_measured(void **state)
{
    static const char *const names[] = {"reference", "pinned",        "split-k",
                                        "stream-k",  "atomic",        "ticket",
                                        "tf32",      "bf16-partials", "q8"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct measured m = {.k = kernel(DS_OP_MATMUL, names[i]),
                             .x = matrix_random(MOST, DEPTH, DEPTH, 0, 0),
                             .w = matrix_random(WIDTH, DEPTH, DEPTH, 0, 0),
                             .y = matrix_new(MOST, WIDTH, WIDTH, 0)};
        memcpy(m.x.p + 20 * DEPTH, m.x.p, DEPTH * sizeof *m.x.p);
        m.prepared = prepare(m.k, &(struct ds_weight_view){.data = m.w.p, .n = WIDTH, .k = DEPTH});
        const uint32_t held = measure(&m);
        if (held != m.k->claims)
            print_error("%s claims %#x, %#x holds\n", names[i], m.k->claims, held);
        assert_int_equal(held, m.k->claims);
        free(m.prepared);
        matrix_free(&m.x), matrix_free(&m.w), matrix_free(&m.y);
    }
}

/* Where split-k changes, and what it is where it does not split. */
static void test_split_k_classes(void **state)
{
    static const int64_t last_of_class[] = {4, 8, 16, 40};
    static const int32_t parts[] = {8, 4, 2, 1};
    float alone[4][WIDTH], row[WIDTH];
    struct measured m = {.k = kernel(DS_OP_MATMUL, "split-k"),
                         .x = matrix_random(MOST, DEPTH, DEPTH, 0, 0),
                         .w = matrix_random(WIDTH, DEPTH, DEPTH, 0, 0),
                         .y = matrix_new(MOST, WIDTH, WIDTH, 0)};
    (void)state;
    m.prepared = prepare(m.k, &(struct ds_weight_view){.data = m.w.p, .n = WIDTH, .k = DEPTH});
    for (int64_t c = 0, rows = 1; c < 4; c++) {
        row_of(&m, 0, last_of_class[c], 0, 1, alone[c]);
        for (int64_t d = 0; d < c; d++)
            assert_false(same(alone[c], alone[d]));
        for (; rows <= last_of_class[c]; rows++) {
            struct ds_matmul_args a = {.rows = rows, .n = WIDTH, .k = DEPTH};
            struct ds_exec exec = {.threads = 1};
            struct ds_launch_info info;
            assert_int_equal(m.k->describe(&a, &exec, &info), 0);
            assert_int_equal(info.split, parts[c]);
            row_of(&m, 0, rows, 0, 1, row);
            assert_true(same(row, alone[c]));
        }
    }
    /* The packed weights are those of pinned: it gives the bits of the last class. */
    m.k = kernel(DS_OP_MATMUL, "pinned");
    row_of(&m, 0, 1, 0, 1, row);
    assert_true(same(row, alone[3]));
    m.k = kernel(DS_OP_MATMUL, "bf16-partials");
    row_of(&m, 0, 40, 0, 1, row);
    assert_true(same(row, alone[3]));
    row_of(&m, 0, 1, 0, 1, row);
    assert_false(same(row, alone[0]));
    free(m.prepared);
    matrix_free(&m.x), matrix_free(&m.w), matrix_free(&m.y);
}

/* Each variant's error lies where its precision puts it: no less and no more. */
static void test_precision(void **state)
{
    static const struct {
        const char *name;
        double least, most; /* rms error over the rms of the output */
    } cases[] = {
        {"pinned", 1e-9, 1e-6},        {"split-k", 1e-9, 1e-6}, {"stream-k", 1e-9, 1e-6},
        {"atomic", 1e-9, 1e-6},        {"ticket", 1e-9, 1e-6},  {"tf32", 5e-5, 1e-3},
        {"bf16-partials", 5e-4, 1e-2}, {"q8", 1e-3, 3e-2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double error = 0.0, size = 0.0;
        struct measured m = {.k = kernel(DS_OP_MATMUL, cases[i].name),
                             .x = matrix_random(2, DEPTH, DEPTH, 0, 0),
                             .w = matrix_random(WIDTH, DEPTH, DEPTH, 0, 0),
                             .y = matrix_new(2, WIDTH, WIDTH, 0)};
        float row[WIDTH];
        m.prepared = prepare(m.k, &(struct ds_weight_view){.data = m.w.p, .n = WIDTH, .k = DEPTH});
        row_of(&m, 0, 2, 1, 1, row);
        for (int64_t j = 0; j < WIDTH; j++) {
            double exact = 0.0;
            for (int64_t k = 0; k < DEPTH; k++)
                exact += (double)m.x.p[DEPTH + k] * (double)m.w.p[j * DEPTH + k];
            error += ((double)row[j] - exact) * ((double)row[j] - exact), size += exact * exact;
        }
        const double relative = sqrt(error / size);
        if (!(relative >= cases[i].least && relative <= cases[i].most))
            fail_msg("%s: relative rms error %g", cases[i].name, relative);
        free(m.prepared);
        matrix_free(&m.x), matrix_free(&m.w), matrix_free(&m.y);
    }
}

/* ---- the frame ------------------------------------------------------------------------------- */

static void count_pause(void *arg, int thread)
{
    (void)thread;
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void test_pause_is_called_where_threads_meet(void **state)
{
    static const char *const names[] = {"atomic", "ticket"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct ds_kernel *k = kernel(DS_OP_MATMUL, names[i]);
        struct matrix x = matrix_random(8, 320, 320, 0, 0), w = matrix_random(64, 320, 320, 0, 0),
                      y = matrix_new(8, 64, 64, 0);
        void *prepared = prepare(k, &(struct ds_weight_view){.data = w.p, .n = 64, .k = 320});
        struct ds_matmul_args a = call_of(&x, &w, &y, NULL, prepared);
        atomic_int calls = 0;
        launch_as(
            k, &a,
            &(struct how){.threads = 2, .seed = 1, .pause = count_pause, .pause_arg = &calls});
        assert_int_equal(atomic_load(&calls), i == 0 ? 8 : 2); /* each part; each thread's turn */
        free(prepared);
        matrix_free(&x), matrix_free(&w), matrix_free(&y);
    }
}

static void test_bad_calls_are_refused(void **state)
{
    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v++) {
        const struct ds_kernel *k = kernel(DS_OP_MATMUL, variants[v].name);
        float x[4 * 64] = {0}, y[16];
        char why[200] = "";
        void *prepared = prepare(k, &(struct ds_weight_view){.data = x, .n = 4, .k = 64});
        struct ds_exec exec = {.threads = 1};
        struct ds_matmul_args a = {.rows = 1, .n = 4, .k = 64, .x = x, .ldx = 64, .y = y, .ldy = 4};
        a.w = (struct ds_weight_view){.data = x, .n = 4, .k = 64};
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), -1);
        assert_non_null(strstr(why, "packed"));
        a.prepared = prepared;
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), -1);
        assert_non_null(strstr(why, "scratch"));
        a.w.n = 5;
        assert_int_equal(k->launch(&a, &exec, why, sizeof why), -1);
        assert_non_null(strstr(why, "5 x 64"));
        struct ds_weight_view none = {.n = 4, .k = 64}, negative = {.data = x, .n = -1, .k = 64};
        void *p;
        size_t bytes;
        assert_int_equal(k->prepare(&none, &p, &bytes, why, sizeof why), -1);
        assert_non_null(strstr(why, "weights"));
        if (k->prepare ==
            kernel(DS_OP_MATMUL, "pinned")->prepare) { /* which packs a file's bytes, too */
            a.w = (struct ds_weight_view){.file_data = x, .n = 4, .k = 64};
            assert_int_equal(k->launch(&a, &exec, why, sizeof why), -1);
            assert_non_null(strstr(why, "f32"));
        }
        assert_int_equal(k->prepare(&negative, &p, &bytes, why, sizeof why), -1);
        free(prepared);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PER_ISA(test_bits),
        PER_ISA(test_atomic_adds_whole_parts_in_some_order),
        cmocka_unit_test(test_q8_takes_the_files_blocks),
        cmocka_unit_test(test_q8_of_values_and_of_the_file),
        cmocka_unit_test(test_q8_codes_agree_on_tiles),
        cmocka_unit_test(test_q8_codes_agree_on_the_quantiser),
        cmocka_unit_test(test_atomic_adds_by_arrival),
        cmocka_unit_test(test_claims_are_what_is_measured),
        cmocka_unit_test(test_split_k_classes),
        cmocka_unit_test(test_precision),
        cmocka_unit_test(test_pause_is_called_where_threads_meet),
        cmocka_unit_test(test_bad_calls_are_refused),
    };
    return cmocka_run_group_tests_name("variants", tests, NULL, NULL);
}
