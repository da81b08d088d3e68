/* test_forward_calls.c: what one call does with its batch: which rows get logits, records and keys;
 * what is refused; what happens when an allocation fails. */
#include "tests/unit/engine/forward_calls.h"

#include "engine/kv_cache.h"

/* ---- rows and logits ------------------------------------------------------------------------- */

static void test_logits_exist_where_asked_for(void **state)
{
    (void)state;
    struct fixture all = fixture_new(&plain, 16, 4, 8), some = fixture_new(&plain, 16, 4, 8);
    struct ds_batch_seq seqs[] = {
        {.request = 2, .tokens = text, .n_tokens = 4, .record = 1},
        {.request = 0, .tokens = text + 3, .n_tokens = 3, .record = 0},
        {.request = 3, .tokens = text + 5, .n_tokens = 5, .record = 1},
        {.request = 1, .tokens = text + 9, .n_tokens = 2, .record = 1},
    };
    assert_ok(run_call(&all, seqs, 4), all.err);
    assert_int_equal(all.n, 14);
    const int32_t from[] = {4, 1, 2, 1};
    for (int i = 0; i < 4; i++)
        seqs[i].logits_from = from[i];
    assert_ok(run_call(&some, seqs, 4), some.err);
    assert_int_equal(some.n, 2 + 3 + 1);
    static const int32_t rows[] = {5, 6, 9, 10, 11, 13};
    for (int i = 0; i < 6; i++) {
        assert_memory_equal(some.logits + i * 67, all.logits + rows[i] * 67, 67 * sizeof(float));
        assert_int_equal(some.tokens[i], all.tokens[rows[i]]);
        for (int j = 0; j < 67; j++)
            assert_true(some.logits[i * 67 + j] <= some.logits[i * 67 + some.tokens[i]]);
    }
    /* The probe got those of recorded requests only, under the right keys. */
    uint32_t site = site_of(some.p, 2, "logits", ""), tokens = site_of(some.p, 2, "token", "");
    for (int32_t request = 0; request < 4; request++)
        for (int32_t pos = 0; pos < 8; pos++) {
            int want = (request == 3 && pos >= 2 && pos < 5) || (request == 1 && pos == 1);
            assert_int_equal(*row_at(some.p, site, request, pos) != NULL, want);
            assert_int_equal(*row_at(some.p, tokens, request, pos) != NULL, want);
            if (want)
                assert_memory_equal(*row_at(some.p, site, request, pos),
                                    *row_at(all.p, site, request, pos), 67 * 4);
        }
    assert_int_equal(some.p->m, 14);
    assert_int_equal(some.p->sequences, 4);
    assert_int_equal(some.p->n_rows, 11);
    fixture_free(&all);
    fixture_free(&some);
}

static void test_row_keys_and_steps(void **state)
{
    (void)state;
    struct fixture x = fixture_new(&plain, 16, 2, 16);
    struct ds_batch_seq seqs[] = {
        {.request = 1, .tokens = text, .n_tokens = 3, .n_pad = 1, .logits_from = 3},
        {.request = 0, .tokens = text, .n_tokens = 7, .n_pad = 2, .record = 1, .logits_from = 4}};
    assert_ok(run_call(&x, seqs, 2), x.err);
    assert_int_equal(x.p->n_rows, 5); /* pads are not recorded */
    for (int i = 0; i < 5; i++) {
        const struct ds_row *r = &x.p->rows[i];
        int step = i > 2 ? i - 2 : 0; /* the third token gives the first logits */
        assert_int_equal(r->request, 0);
        assert_int_equal(r->position, i);
        assert_int_equal(r->occurrence, 0);
        assert_int_equal(r->slot, 3 + 2 + i);
        assert_int_equal(r->step, step);
        assert_int_equal(r->kind, step ? DS_ROW_GENERATED : DS_ROW_PROMPT);
    }
    assert_int_equal(x.n, 3);
    seqs[1] =
        (struct ds_batch_seq){.request = 0, .tokens = text, .n_tokens = 1, .record = 1, .step = 3};
    assert_ok(run_call(&x, seqs + 1, 1), x.err);
    const struct ds_row *r = &x.p->rows[0];
    assert_true(x.p->n_rows == 1 && r->position == 5 && r->step == 3 && r->slot == 0 &&
                r->kind == DS_ROW_GENERATED);
    int32_t seen;
    memcpy(&seen, *row_at(x.p, 1, 0, 5), sizeof seen);
    assert_int_equal(seen, 6); /* visible keys: the two pads are not */
    fixture_free(&x);
}

static void test_padding_rows_are_finite(void **state)
{
    (void)state;
    struct setting s = plain;
    s.poison = 1;
    struct fixture x = fixture_new(&s, 16, 2, 16);
    struct ds_batch_seq seq = {
        .request = 1, .tokens = text, .n_tokens = 9, .n_pad = 4, .record = 1, .logits_from = 4};
    assert_ok(run_call(&x, &seq, 1), x.err);
    for (uint32_t site = 2; site + 1 < x.p->n_sites; site++)
        for (int pos = 0; pos < 5; pos++)
            for (uint32_t i = 0; i < x.p->sites[site].width; i++) {
                float v;
                memcpy(&v, *row_at(x.p, site, 1, pos) + 4 * (size_t)i, 4);
                assert_close(x.p->sites[site].stage, i, v, v, 0);
            }
    /* All rows padding: nothing to record, nothing chosen, and the next call goes on from position
     * 0. */
    seq = (struct ds_batch_seq){
        .request = 0, .tokens = text, .n_tokens = 2, .n_pad = 2, .record = 1, .logits_from = 2};
    assert_ok(run_call(&x, &seq, 1), x.err);
    assert_true(x.n == 0 && x.p->n_rows == 0);
    seq = (struct ds_batch_seq){.request = 0, .tokens = text + 4, .n_tokens = 5, .record = 1};
    assert_ok(run_call(&x, &seq, 1), x.err);
    assert_same_rows(x.p, 0, x.p, 1, 5, "padding in a call of its own");
    fixture_free(&x);
}

static void test_reset_forgets(void **state)
{
    (void)state;
    struct fixture x = fixture_new(&plain, 16, 1, 16);
    float first[67];
    struct ds_batch_seq seq = {.tokens = text, .n_tokens = 8, .logits_from = 7};
    assert_ok(run_call(&x, &seq, 1), x.err);
    memcpy(first, x.logits, sizeof first);
    assert_ok(run_call(&x, &seq, 1), x.err);
    assert_memory_not_equal(first, x.logits, sizeof first);
    ds_forward_reset(x.f);
    assert_ok(run_call(&x, &seq, 1), x.err);
    assert_memory_equal(first, x.logits, sizeof first);
    fixture_free(&x);
}

/* Two passes over one model with different matmul kernels, in turns: each keeps its own packed
 * weights. */
static void test_two_passes_share_a_model(void **state)
{
    (void)state;
    struct fixture x = fixture_new(&plain, 8, 1, 8);
    struct setting s = {.kernels = "pinned", .threads = 2};
    struct ds_forward_config c = config_of(&s, 8, 1, 8);
    struct ds_forward *reference = x.f, *pinned;
    assert_ok(ds_forward_new(x.m, &c, &pinned, &x.err), x.err);
    float got[2][67];
    struct ds_batch_seq seq = {.tokens = text, .n_tokens = 8, .logits_from = 7};
    for (int turn = 0; turn < 4; turn++) {
        x.f = turn % 2 ? pinned : reference;
        ds_forward_reset(x.f);
        assert_ok(run_call(&x, &seq, 1), x.err);
        for (int j = 0; j < 67; j++)
            assert_close("logits", j, x.logits[j], turn ? got[0][j] : x.logits[j], 1e-4);
        if (turn >= 2)
            assert_memory_equal(got[turn % 2], x.logits, sizeof got[0]);
        memcpy(got[turn % 2], x.logits, sizeof got[0]);
    }
    x.f = reference;
    ds_forward_free(pinned);
    fixture_free(&x);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void test_wrong_batches_are_refused(void **state)
{
    (void)state;
    static const int32_t bad[] = {1, 67}, negative[] = {-1};
    static const struct {
        struct ds_batch_seq seq;
        const char *says;
    } cases[] = {
        {{.request = 2, .tokens = text, .n_tokens = 1}, "request 2"},
        {{.request = -1, .tokens = text, .n_tokens = 1}, "request -1"},
        {{.request = 1, .tokens = text, .n_tokens = 0}, "0 tokens"},
        {{.request = 1, .tokens = text, .n_tokens = -3}, "-3 tokens"},
        {{.request = 1, .tokens = text, .n_tokens = 21}, "1 to 20 rows"},
        {{.request = 1, .tokens = text, .n_tokens = INT32_MAX}, "1 to 20 rows"},
        {{.request = 0, .tokens = text, .n_tokens = 19}, "capacity of 28"},
        {{.request = 0, .tokens = text, .n_tokens = 15}, "context has 24"},
        {{.request = 0, .tokens = text, .n_tokens = 2, .n_pad = 1, .logits_from = 2},
         "first call only"},
        {{.request = 1, .tokens = text, .n_tokens = 2, .n_pad = 3, .logits_from = 2},
         "3 padding rows"},
        {{.request = 1, .tokens = text, .n_tokens = 2, .n_pad = -1}, "-1 padding rows"},
        {{.request = 1, .tokens = text, .n_tokens = 2, .n_pad = 1, .logits_from = 0},
         "logits from token 0"},
        {{.request = 1, .tokens = text, .n_tokens = 2, .logits_from = 3}, "logits from token 3"},
        {{.request = 1, .tokens = bad, .n_tokens = 2}, "token id 67 at index 1"},
        {{.request = 1, .tokens = negative, .n_tokens = 1}, "token id -1"},
    };
    struct fixture x = fixture_new(&plain, 20, 2, 28);
    struct ds_batch_seq first = {
        .request = 0, .tokens = text, .n_tokens = 10, .record = 1, .logits_from = 10};
    assert_ok(run_call(&x, &first, 1), x.err);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_batch_seq seq = cases[i].seq;
        assert_int_equal(run_call(&x, &seq, 1), -1);
        if (!strstr(x.err.msg, cases[i].says))
            fail_msg("'%s' does not say '%s'", x.err.msg, cases[i].says);
    }
    struct ds_batch_seq twice[] = {{.request = 1, .tokens = text, .n_tokens = 1},
                                   {.request = 1, .tokens = text, .n_tokens = 1}};
    assert_int_equal(run_call(&x, twice, 2), -1);
    assert_non_null(strstr(x.err.msg, "twice"));
    struct ds_batch_seq many[] = {{.request = 0, .tokens = text, .n_tokens = 10},
                                  {.request = 1, .tokens = text, .n_tokens = 11}};
    assert_int_equal(run_call(&x, many, 2), -1);
    assert_non_null(strstr(x.err.msg, "1 to 20 rows"));
    assert_int_equal(run_call(&x, NULL, 0), -1);
    /* Nothing of that moved the cache: the next tokens continue from position 10. */
    struct ds_batch_seq next = {.request = 0, .tokens = text, .n_tokens = 1, .record = 1};
    assert_ok(run_call(&x, &next, 1), x.err);
    assert_int_equal(x.p->rows[0].position, 10);
    fixture_free(&x);
}

static void test_wrong_configurations_are_refused(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_model *m = open_model(call_model);
    struct ds_forward_config good = config_of(&plain, 4, 2, 8);
    struct ds_forward *f;
    for (int i = 0; i < 10; i++) {
        struct ds_forward_config c = good;
        switch (i) {
        case 0:
            c.dtype = DS_I32;
            break;
        case 1:
            c.threads = 0;
            break;
        case 2:
            c.max_rows = 0;
            break;
        case 3:
            c.n_requests = -1;
            break;
        case 4:
            c.capacity = 0;
            break;
        case 5:
            c.page_size = -1;
            break;
        case 6:
            c.kernels.op[DS_OP_ROPE] = NULL;
            break;
        case 7:
            c.capacity = c.n_requests = INT32_MAX;
            break;
        case 8:
            c.capacity = 1 << 30, c.n_requests = 1 << 20, c.page_size = 1 << 30;
            break;
        default:
            c.capacity = c.page_size = INT32_MAX;
            break;
        }
        err.msg[0] = '\0';
        assert_int_equal(ds_forward_new(m, &c, &f, &err), -1);
        assert_true(strlen(err.msg) > 10);
    }
    ds_model_close(m);
}

static void test_failed_allocations_are_errors(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_model *m = open_model(call_model);
    struct setting s = {.kernels = "pinned", .dtype = DS_BF16, .threads = 2};
    struct ds_forward_config c = config_of(&s, 4, 2, 8);
    long n = 1;
    for (;; n++) {
        struct ds_forward *f = NULL;
        ds_mem_fail_at(n);
        int rc = ds_forward_new(m, &c, &f, &err);
        ds_mem_fail_at(0);
        if (rc == 0) {
            ds_forward_free(f);
            break;
        }
        assert_non_null(strstr(err.msg, "memory"));
        assert_true(n < 200);
    }
    assert_true(n > 25);
    for (n = 1;; n++) {
        struct ds_site *sites;
        struct ds_edge *edges;
        uint32_t ns, ne;
        ds_mem_fail_at(n);
        int rc = ds_forward_sites(m, DS_F32, &sites, &ns, &edges, &ne, &err);
        ds_mem_fail_at(0);
        if (rc == 0) {
            free(sites);
            free(edges);
            break;
        }
    }
    assert_int_equal(n, 6);
    ds_model_close(m);
}

static void test_pages_of_requests_interleave(void **state)
{
    (void)state;
    struct ds_error err;
    struct ds_kv_cache c;
    assert_ok(ds_kv_cache_init(&c, 2, 3, 10, 4, 6, &err), err);
    assert_true(c.pages == 9 && c.pages_each == 3);
    char used[36] = {0};
    for (int r = 0; r < 3; r++)
        for (int slot = 0; slot < 10; slot++) {
            int64_t row = ds_kv_cache_row(&c, r, slot);
            assert_true(row >= 0 && row < 36 && !used[row]);
            used[row] = 1;
        }
    assert_true(ds_kv_cache_row(&c, 0, 4) != 4);
    assert_ptr_equal(ds_kv_cache_layer(&c, c.v, 1), c.v + 36 * 6);
    ds_kv_cache_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_exist_where_asked_for),
        cmocka_unit_test(test_row_keys_and_steps),
        cmocka_unit_test(test_padding_rows_are_finite),
        cmocka_unit_test(test_reset_forgets),
        cmocka_unit_test(test_two_passes_share_a_model),
        cmocka_unit_test(test_wrong_batches_are_refused),
        cmocka_unit_test(test_wrong_configurations_are_refused),
        cmocka_unit_test(test_failed_allocations_are_errors),
        cmocka_unit_test(test_pages_of_requests_interleave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
