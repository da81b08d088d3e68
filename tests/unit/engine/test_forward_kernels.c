/* test_forward_kernels.c: kernels that fail or meddle with the floating-point unit are named; what
 * they say about their launch choice reaches the probe. */
#include "tests/unit/engine/forward_calls.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- kernels that misbehave ------------------------------------------------------------------ */

static int counted; /* launches of the kernel below; it misbehaves at the third */
static int how;

static int odd_silu(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    int rc = ds_kernel_find(DS_OP_SILU_MUL, "reference")->launch(args, exec, why, why_size);
    if (++counted < 2)
        return rc;
#if defined(__x86_64__)
    if (how == 1)
        _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, as fast-math start-up code does */
#endif
    if (how == 0)
        snprintf(why, why_size, "the moon is wrong");
    return how == 0 ? -1 : rc;
}

#if defined(__x86_64__)
static void flush_member(void *arg, int thread, int threads)
{
    (void)arg;
    if (thread == threads - 1)
        _mm_setcsr(_mm_getcsr() | 0x8000);
}

static int flush_silu(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    exec->run(exec->team, flush_member, NULL);
    return ds_kernel_find(DS_OP_SILU_MUL, "reference")->launch(args, exec, why, why_size);
}
#endif

static struct fixture with_silu(const struct ds_kernel *k, int threads, int poison)
{
    struct setting s = plain;
    s.threads = threads;
    s.poison = poison;
    struct fixture x = {.m = open_model(call_model)};
    struct ds_forward_config c = config_of(&s, 8, 1, 8);
    c.kernels.op[DS_OP_SILU_MUL] = k;
    assert_ok(ds_forward_new(x.m, &c, &x.f, &x.err), x.err);
    x.p = keeper_new(x.m, DS_F32);
    return x;
}

static void test_a_failing_kernel_is_named(void **state)
{
    (void)state;
    static const struct ds_kernel odd = {
        .abi = DS_KERNEL_ABI, .op = DS_OP_SILU_MUL, .name = "odd", .launch = odd_silu};
    struct fixture x = with_silu(&odd, 1, 0);
    struct ds_batch_seq seq = {.tokens = text, .n_tokens = 2, .logits_from = 2};
    counted = how = 0;
    assert_int_equal(run_call(&x, &seq, 1), -1);
    assert_string_equal(x.err.msg, "layer 1 act: silu_mul/odd: the moon is wrong");
    x.p->fail_at = site_of(x.p, 1, "gate", "");
    seq.record = 1;
    counted = 0;
    assert_int_equal(run_call(&x, &seq, 1), -1);
    assert_string_equal(x.err.msg, "the probe fails here");
    x.p->fail_at = -1;
    fixture_free(&x);
}

/* Each writes into one array that it reads, behind its own result. */
static int norm_writes(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_rmsnorm_args *a = args;
    int rc = ds_kernel_find(DS_OP_RMSNORM, "pinned")->launch(args, exec, why, size);
    ((float *)a->x)[(a->rows - 1) * a->ldx + a->width - 1] += 1.0f;
    return rc;
}

static int add_writes(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_add_args *a = args;
    int rc = ds_kernel_find(DS_OP_ADD, "pinned")->launch(args, exec, why, size);
    ((float *)a->b)[0] = -1.0f;
    return rc;
}

static int attention_writes(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_attention_args *a = args;
    const struct ds_sequence *s = &a->sequences[a->n_sequences - 1];
    int64_t slot = s->kv_len - 1,
            at = s->pages[slot / a->page_size] * a->page_size + slot % a->page_size;
    int rc = ds_kernel_find(DS_OP_ATTENTION, "pinned")->launch(args, exec, why, size);
    ((float *)a->cache_v)[at * a->kv_heads * a->head_dim] += 1.0f;
    return rc;
}

/* Past the end of its output, by one element and by a row. */
static int norm_runs_on(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_rmsnorm_args *a = args;
    a->y[(a->rows - 1) * a->ldy + a->width] = 1.0f;
    return ds_kernel_find(DS_OP_RMSNORM, "pinned")->launch(args, exec, why, size);
}

static int matmul_runs_on(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_matmul_args *a = args;
    int rc = ds_kernel_find(DS_OP_MATMUL, "pinned")->launch(args, exec, why, size);
    for (int64_t i = 2; i < 4; i++)
        a->y[a->rows * a->ldy + i] = 0.0f;
    return rc;
}

static int attention_leaves(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    return ds_kernel_find(DS_OP_ATTENTION, "pinned")->launch(args, exec, why, size);
}

static void test_a_kernel_that_writes_elsewhere_is_an_error(void **state)
{
    (void)state;
    static const struct {
        int op;
        int (*launch)(const void *args, const struct ds_exec *exec, char *why, size_t size);
        const char *says; /* NULL: nothing is wrong */
    } cases[] = {
        {DS_OP_RMSNORM, norm_writes,
         "layer 0 attn_norm: rmsnorm/odd: the kernel wrote into its input x"},
        {DS_OP_ADD, add_writes, "layer 0 resid_attn: add/odd: the kernel wrote into its input b"},
        {DS_OP_ATTENTION, attention_writes,
         "layer 0 attn_out: attention/odd: the kernel wrote into its input cache_v"},
        {DS_OP_RMSNORM, norm_runs_on,
         "layer 0 attn_norm: rmsnorm/odd: the kernel wrote past the end of its output: 4 of the 64 "
         "bytes behind it are changed, from byte 0 on"},
        {DS_OP_MATMUL, matmul_runs_on,
         "layer 0 q_proj: matmul/odd: the kernel wrote past the end of its output: 8 of the 64 "
         "bytes behind it are changed, from byte 8 on"},
        {DS_OP_ATTENTION, attention_leaves, NULL},
    };
    struct ds_batch_seq seq = {.tokens = text, .n_tokens = 3, .logits_from = 3, .record = 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_kernel odd = *ds_kernel_find(cases[i].op, "pinned"); /* and its scratch */
        odd.name = "odd";
        odd.launch = cases[i].launch;
        struct fixture x = {.m = open_model(call_model)};
        struct ds_forward_config c = config_of(&plain, 8, 1, 8);
        c.kernels.op[cases[i].op] = &odd;
        assert_ok(ds_forward_new(x.m, &c, &x.f, &x.err), x.err);
        x.p = keeper_new(x.m, DS_F32);
        int rc = run_call(&x, &seq, 1);
        if (cases[i].says) {
            assert_int_equal(rc, -1);
            assert_string_equal(x.err.msg, cases[i].says);
        } else {
            assert_ok(rc, x.err);
        }
        fixture_free(&x);
    }
}

static void test_a_changed_control_word_is_an_error(void **state)
{
    (void)state;
#if defined(__x86_64__)
    static const struct ds_kernel odd = {
        .abi = DS_KERNEL_ABI, .op = DS_OP_SILU_MUL, .name = "odd", .launch = odd_silu};
    static const struct ds_kernel flush = {
        .abi = DS_KERNEL_ABI, .op = DS_OP_SILU_MUL, .name = "flush", .launch = flush_silu};
    struct ds_batch_seq seq = {.tokens = text, .n_tokens = 2, .logits_from = 2};
    unsigned before = _mm_getcsr() & 0xffc0;
    struct fixture x = with_silu(&odd, 1, 0);
    counted = 0;
    how = 1;
    assert_int_equal(run_call(&x, &seq, 1), -1);
    assert_non_null(
        strstr(x.err.msg,
               "layer 1 act: silu_mul/odd: the kernel changed the floating-point control word"));
    assert_int_equal(_mm_getcsr() & 0xffc0, before);
    fixture_free(&x);
    for (int poison = 0; poison < 2; poison++) { /* on another thread than the caller's */
        x = with_silu(&flush, 2, poison);
        assert_int_equal(run_call(&x, &seq, 1), -1);
        assert_non_null(strstr(x.err.msg, "control word of 1 thread"));
        assert_int_equal(strstr(x.err.msg, "layer 0 act: silu_mul/flush") != NULL, poison);
        fixture_free(&x);
    }
    x = fixture_new(&plain, 8, 1, 8);
    _mm_setcsr(_mm_getcsr() | 0x8000);
    int rc = run_call(&x, &seq, 1);
    _mm_setcsr((_mm_getcsr() & 0x3f) | before);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(x.err.msg, "flushed to zero"));
    assert_ok(run_call(&x, &seq, 1), x.err);
    fixture_free(&x);
#else
    skip();
#endif
}

/* ---- launches -------------------------------------------------------------------------------- */

static int describe_rows(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    const struct ds_matmul_args *a = args;
    memset(out, 0, sizeof *out);
    out->tile_rows = (int32_t)a->rows;
    out->tile_cols = (int32_t)a->n;
    out->tile_k = (int32_t)a->k;
    out->split = 3;
    out->threads = exec->threads;
    memcpy(out->algo, "of the test", 12);
    return 0;
}

static void test_launches_tell_the_choice_of_each_call(void **state)
{
    (void)state;
    struct ds_kernel k = *ds_kernel_find(DS_OP_MATMUL, "reference");
    k.name = "told";
    k.describe = describe_rows;
    struct fixture x = {.m = open_model(call_model)};
    struct setting s = plain;
    s.threads = 2;
    struct ds_forward_config c = config_of(&s, 8, 1, 16);
    c.kernels.op[DS_OP_MATMUL] = &k;
    assert_ok(ds_forward_new(x.m, &c, &x.f, &x.err), x.err);
    x.p = keeper_new(x.m, DS_F32);
    for (int32_t call = 0, done = 0; call < 3; call++) {
        int32_t rows = call == 0 ? 5 : call;
        struct ds_batch_seq seq = {
            .tokens = text + done, .n_tokens = rows, .record = 1, .logits_from = rows - 1};
        assert_ok(run_call(&x, &seq, 1), x.err);
        done += rows;
        const struct ds_launch *up = &x.p->launch[site_of(x.p, 1, "up", "")];
        const struct ds_launch *head = &x.p->launch[site_of(x.p, 2, "logits", "")];
        assert_string_equal(up->op, "matmul");
        assert_string_equal(up->variant, "told");
        assert_string_equal(up->algo, "of the test");
        assert_true(up->tile_rows == rows && up->tile_cols == 48 && up->tile_k == 32 &&
                    up->split == 3 && up->threads == 2);
        assert_true(head->tile_rows == 1 &&
                    head->tile_cols == 67); /* M of the head is the rows that need it */
        assert_string_equal(x.p->launch[0].op, "schedule");
        assert_string_equal(x.p->launch[0].variant, "reference");
    }
    fixture_free(&x);
}

/* ---- what kernels are given ------------------------------------------------------------------ */

static int lazy_silu(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    struct ds_silu_mul_args a = *(const struct ds_silu_mul_args *)args;
    a.rows--; /* leaves the last row unwritten */
    return a.rows ? ds_kernel_find(DS_OP_SILU_MUL, "reference")->launch(&a, exec, why, why_size)
                  : 0;
}

static void test_poison_shows_what_was_not_written(void **state)
{
    (void)state;
    static const struct ds_kernel lazy = {
        .abi = DS_KERNEL_ABI, .op = DS_OP_SILU_MUL, .name = "lazy", .launch = lazy_silu};
    for (int poison = 0; poison < 2; poison++) {
        struct fixture x = with_silu(&lazy, 1, poison);
        struct ds_batch_seq seq = {.tokens = text, .n_tokens = 3, .record = 1, .logits_from = 3};
        assert_ok(run_call(&x, &seq, 1), x.err);
        ds_forward_reset(x.f);
        for (int layer = 0; layer < 2; layer++)
            for (int pos = 0; pos < 3; pos++) {
                float v;
                memcpy(&v, *row_at(x.p, site_of(x.p, layer, "act", ""), 0, pos), sizeof v);
                /* Without poison the row holds what was there before; a later layer is spoiled by
                 * the first. */
                if (pos < 2 || !poison)
                    assert_true(v == v);
                else
                    assert_true(v != v);
            }
        fixture_free(&x);
    }
}

static struct ds_attention_args attention_seen;

static int watch_attention(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    attention_seen = *(const struct ds_attention_args *)args;
    assert_int_equal((uintptr_t)exec->scratch % 64, 0);
    return ds_kernel_find(DS_OP_ATTENTION, "reference")->launch(args, exec, why, why_size);
}

static size_t watch_scratch(const void *args, int threads)
{
    return ds_kernel_find(DS_OP_ATTENTION, "reference")->scratch_bytes(args, threads);
}

static void test_attention_is_told_the_whole_batch(void **state)
{
    (void)state;
    static const struct ds_kernel watch = {.abi = DS_KERNEL_ABI,
                                           .op = DS_OP_ATTENTION,
                                           .name = "watch",
                                           .scratch_bytes = watch_scratch,
                                           .launch = watch_attention};
    struct fixture x = {.m = open_model(call_model)};
    struct setting s = plain;
    s.page_size = 4;
    struct ds_forward_config c = config_of(&s, 16, 3, 12);
    c.kernels.op[DS_OP_ATTENTION] = &watch;
    assert_ok(ds_forward_new(x.m, &c, &x.f, &x.err), x.err);
    x.p = keeper_new(x.m, DS_F32);
    struct ds_batch_seq first = {
        .request = 2, .tokens = text, .n_tokens = 6, .n_pad = 2, .logits_from = 6};
    assert_ok(run_call(&x, &first, 1), x.err);
    struct ds_batch_seq seqs[] = {{.request = 2, .tokens = text, .n_tokens = 2, .logits_from = 2},
                                  {.request = 0, .tokens = text, .n_tokens = 4, .logits_from = 4}};
    assert_ok(run_call(&x, seqs, 2), x.err);
    const struct ds_attention_args *a = &attention_seen;
    assert_true(a->rows == 6 && a->n_sequences == 2 && a->max_q_len == 4 && a->max_kv_len == 8);
    assert_true(a->heads == 4 && a->kv_heads == 1 && a->head_dim == 8 && a->page_size == 4 &&
                a->pages == 9);
    const struct ds_sequence *q = a->sequences;
    assert_true(q[0].request == 2 && q[0].q_first == 0 && q[0].q_len == 2 && q[0].kv_len == 8 &&
                q[0].kv_first == 2);
    assert_true(q[1].request == 0 && q[1].q_first == 2 && q[1].q_len == 4 && q[1].kv_len == 4 &&
                q[1].kv_first == 0);
    fixture_free(&x);
}

static int counting_prepare(const struct ds_weight_view *w, void **prepared, size_t *bytes,
                            char *why, size_t why_size)
{
    (void)why, (void)why_size;
    *bytes = sizeof w->data;
    *prepared = malloc(*bytes);
    assert_non_null(*prepared);
    memcpy(*prepared, &w->data, sizeof w->data);
    return 0;
}

/* Every matmul gets what this kernel made of its own weights. */
static int prepared_matmul(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    const float *mine = NULL;
    if (a->prepared)
        memcpy(&mine, a->prepared, sizeof mine);
    if (mine != a->w.data) {
        snprintf(why, why_size, "not what was prepared");
        return -1;
    }
    return ds_kernel_find(DS_OP_MATMUL, "reference")->launch(args, exec, why, why_size);
}

static void test_prepared_weights_are_those_of_the_kernel(void **state)
{
    (void)state;
    struct ds_kernel one = {.abi = DS_KERNEL_ABI,
                            .op = DS_OP_MATMUL,
                            .name = "one",
                            .prepare = counting_prepare,
                            .launch = prepared_matmul};
    struct ds_kernel two = one;
    struct fixture x = {.m = open_model(call_model)};
    struct ds_forward_config c = config_of(&plain, 8, 1, 8);
    struct ds_forward *pass[2];
    struct ds_batch_seq seq = {.tokens = text, .n_tokens = 3, .logits_from = 2};
    for (int i = 0; i < 2; i++) {
        c.kernels.op[DS_OP_MATMUL] = i ? &two : &one;
        assert_ok(ds_forward_new(x.m, &c, &pass[i], &x.err), x.err);
    }
    x.p = keeper_new(x.m, DS_F32);
    for (int turn = 0; turn < 4;
         turn++) { /* the other pass has prepared the weights anew each time */
        x.f = pass[turn % 2];
        ds_forward_reset(x.f);
        assert_ok(run_call(&x, &seq, 1), x.err);
    }
    ds_forward_free(pass[0]);
    x.f = pass[1];
    fixture_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_failing_kernel_is_named),
        cmocka_unit_test(test_a_kernel_that_writes_elsewhere_is_an_error),
        cmocka_unit_test(test_a_changed_control_word_is_an_error),
        cmocka_unit_test(test_poison_shows_what_was_not_written),
        cmocka_unit_test(test_attention_is_told_the_whole_batch),
        cmocka_unit_test(test_prepared_weights_are_those_of_the_kernel),
        cmocka_unit_test(test_launches_tell_the_choice_of_each_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
