/* test_serve.c: the scheduler of the serving simulation, with no model: over thousands of random settings
 * every request gets exactly its tokens, no call and no cache is overfull, nobody overtakes, and the plan
 * is the seed's alone. Plans made elsewhere are checked. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "engine/serve.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PROMPTS = 4, LONGEST = 12, MOST = 24 };

struct fixture {
    int32_t tokens[MOST_PROMPTS][LONGEST];
    struct ds_serve_prompt prompts[MOST_PROMPTS];
    int32_t n_prompts, n_requests;
    struct ds_serve_config c;
};

static uint32_t rnd(uint64_t *s, uint32_t n)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33) % n;
}

/* Prompts of two letters, so that many begin alike. */
static void make(struct fixture *f, uint64_t seed)
{
    uint64_t s = seed * 0x9e3779b97f4a7c15u + 1;
    memset(f, 0, sizeof *f);
    f->n_prompts = 1 + (int32_t)rnd(&s, MOST_PROMPTS);
    f->n_requests = 1 + (int32_t)rnd(&s, MOST);
    for (int32_t p = 0; p < f->n_prompts; p++) {
        f->prompts[p] =
            (struct ds_serve_prompt){.tokens = f->tokens[p], .n = 1 + (int32_t)rnd(&s, LONGEST)};
        for (int32_t i = 0; i < LONGEST; i++)
            f->tokens[p][i] = i < 4 ? 7 : (int32_t)rnd(&s, 2);
    }
    f->c = (struct ds_serve_config){.max_batch = 1 + (int32_t)rnd(&s, 8),
                                    .chunk = rnd(&s, 3) ? 1 + (int32_t)rnd(&s, 20) : 0,
                                    .tokens = 1 + (int32_t)rnd(&s, 10),
                                    .rate = rnd(&s, 3) ? (int64_t)rnd(&s, 3000000) : 0,
                                    .seed = s,
                                    .reuse = (int)rnd(&s, 2)};
    /* Calls of conversations: as many tokens as were recorded, one after the other. */
    for (int32_t p = 0; p < f->n_prompts && seed % 3 == 0; p++) {
        f->prompts[p].generates = (int32_t)rnd(&s, (uint32_t)f->c.tokens + 1);
        f->prompts[p].follows = p > 0 && rnd(&s, 2);
    }
    if (rnd(&s, 2))
        f->c.cache_rows = LONGEST + f->c.tokens + (int32_t)rnd(&s, 40);
}

static int32_t tokens_of(const struct fixture *f, int32_t request)
{
    const int32_t own = f->prompts[request % f->n_prompts].generates;
    return own > 0 ? own : f->c.tokens;
}

static void plan(const struct fixture *f, struct ds_serve_plan *p)
{
    struct ds_error err;
    assert_ok(ds_serve_plan_new(&f->c, f->prompts, f->n_prompts, f->n_requests, p, &err), err);
}

/* Counts everything again, from the pieces alone. */
struct count {
    int32_t has[MOST], made[MOST], first[MOST], last[MOST], alone[MOST], slot_of[MOST];
    int running[MOST];
    int32_t hits;
};

static void count_piece(const struct fixture *f, const struct ds_serve_piece *p, int32_t step,
                        struct count *c)
{
    int32_t r = p->request, prompt = f->prompts[r % f->n_prompts].n;
    assert_true(r >= 0 && r < f->n_requests && p->n_tokens >= 1);
    assert_true(p->slot >= 0 && p->slot < f->c.max_batch);
    if (p->takes) {
        assert_true(p->cached <= prompt && p->cached < prompt + c->made[r]);
        assert_true(p->cached == 0 || f->c.reuse);
        assert_int_equal(p->copy, -1);
        c->hits += p->cached > 0;
    } else {
        assert_int_equal(p->cached, c->has[r]);
        assert_int_equal(p->slot, c->slot_of[r]);
    }
    if (c->first[r] < 0)
        c->first[r] = step;
    c->last[r] = step;
    c->slot_of[r] = p->slot;
    c->has[r] = p->cached + p->n_tokens;
    assert_true(c->has[r] <= prompt + c->made[r]);
    assert_int_equal(p->chooses, c->has[r] == prompt + c->made[r]);
    c->made[r] += p->chooses;
    c->running[r] = c->made[r] < tokens_of(f, r);
}

static void check_step(const struct fixture *f, const struct ds_serve_plan *p, size_t s,
                       struct count *c)
{
    int32_t rows = 0, prompts_begun = 0, running = 0;
    int64_t cache = 0;
    for (size_t k = p->first[s]; k < p->first[s + 1]; k++) {
        const struct ds_serve_piece *x = &p->pieces[k];
        int decode = !x->takes && x->n_tokens == 1 && x->chooses && c->made[x->request] > 0;
        assert_false(decode && prompts_begun); /* decode rows first */
        prompts_begun |= !decode;
        rows += x->n_tokens;
        assert_true(p->arrival[x->request] <= (int32_t)s);
        for (size_t l = p->first[s]; l < k; l++) {
            assert_int_not_equal(p->pieces[l].request, x->request);
            assert_int_not_equal(p->pieces[l].slot, x->slot);
        }
        count_piece(f, x, (int32_t)s, c);
    }
    assert_true(rows >= 1 && rows <= p->max_rows);
    assert_true(f->c.chunk == 0 || rows <= f->c.chunk);
    for (int32_t r = 0; r < f->n_requests; r++) {
        /* A request that begins again later holds nothing meanwhile; which one that is shows later. */
        int in = 0;
        for (size_t k = p->first[s]; k < p->first[s + 1]; k++)
            in |= p->pieces[k].request == r;
        cache += in ? c->has[r] : 0;
        running += in;
    }
    assert_true(running <= f->c.max_batch);
    assert_true(f->c.cache_rows == 0 || cache <= f->c.cache_rows);
}

static void check_plan(const struct fixture *f, const struct ds_serve_plan *p)
{
    struct count c = {0};
    for (int32_t r = 0; r < MOST; r++)
        c.first[r] = c.slot_of[r] = -1;
    for (size_t s = 0; s < p->n_steps; s++)
        check_step(f, p, s, &c);
    int32_t most = 0;
    for (int32_t r = 0, before = 0; r < f->n_requests; r++) {
        const int32_t tokens = tokens_of(f, r);
        most = tokens > most ? tokens : most;
        assert_int_equal(c.made[r], tokens);
        assert_int_equal(c.has[r], f->prompts[r % f->n_prompts].n + tokens - 1);
        if (f->prompts[r % f->n_prompts].follows)
            assert_int_equal(p->arrival[r], c.last[r - 1] + 1);
        else {
            assert_true(p->arrival[r] >= p->arrival[before]);
            before = r;
        }
        for (int32_t q = 0; q < f->n_requests; q++) /* first come, first served */
            assert_true(p->arrival[q] >= p->arrival[r] || c.first[q] <= c.first[r]);
    }
    assert_int_equal(c.hits, p->hits);
    assert_int_equal(p->tokens, most);
    assert_true(p->slots <= f->c.max_batch);
}

static void test_ten_thousand_plans_hold_what_they_promise(void **state)
{
    (void)state;
    int32_t preempted = 0, hit = 0, chunked = 0, followed = 0;
    for (uint64_t seed = 0; seed < 10000; seed++) {
        struct fixture f;
        struct ds_serve_plan p;
        make(&f, seed);
        plan(&f, &p);
        check_plan(&f, &p);
        preempted += p.preemptions > 0;
        hit += p.hits > 0;
        chunked += f.c.chunk > 0;
        for (int32_t r = 0; r < f.n_requests; r++)
            followed += f.prompts[r % f.n_prompts].follows;
        ds_serve_plan_free(&p);
    }
    /* What was not in any plan was not tested. */
    assert_true(preempted > 300);
    assert_true(hit > 1000);
    assert_true(chunked > 1000);
    assert_true(followed > 1000);
}

static int same_plan(const struct ds_serve_plan *a, const struct ds_serve_plan *b)
{
    if (a->n_steps != b->n_steps || a->n_pieces != b->n_pieces)
        return 0;
    for (size_t k = 0; k < a->n_pieces; k++) {
        const struct ds_serve_piece *x = &a->pieces[k], *y = &b->pieces[k];
        if (x->request != y->request || x->cached != y->cached || x->n_tokens != y->n_tokens ||
            x->slot != y->slot)
            return 0;
    }
    return memcmp(a->first, b->first, (a->n_steps + 1) * sizeof *a->first) == 0 &&
           memcmp(a->arrival, b->arrival, (size_t)a->n_requests * sizeof *a->arrival) == 0;
}

static void test_a_plan_is_its_seed(void **state)
{
    (void)state;
    int others = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct fixture f;
        struct ds_serve_plan a, b, c;
        make(&f, seed);
        f.c.rate = 500000;
        f.n_requests = MOST;
        plan(&f, &a);
        plan(&f, &b);
        f.c.seed++;
        plan(&f, &c);
        assert_true(same_plan(&a, &b));
        others += !same_plan(&a, &c);
        ds_serve_plan_free(&a);
        ds_serve_plan_free(&b);
        ds_serve_plan_free(&c);
    }
    assert_true(others > 190);
}

static void test_arrivals_have_the_rate(void **state)
{
    (void)state;
    static const int64_t rates[] = {250000, 1000000, 2500000};
    static int32_t token = 1;
    const struct ds_serve_prompt prompt = {.tokens = &token, .n = 1};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        struct ds_serve_config c = {
            .max_batch = 4096, .tokens = 400, .rate = rates[i], .seed = 3 + i};
        struct ds_serve_plan p;
        struct ds_error err;
        const int32_t n = 4000;
        assert_ok(ds_serve_plan_new(&c, &prompt, 1, n, &p, &err), err);
        double steps = p.arrival[n - 1] - p.arrival[0] + 1, expected = n * 1e6 / (double)rates[i];
        assert_true(steps > 0.9 * expected && steps < 1.1 * expected);
        /* Poisson: as often nobody as exp(-rate) says, and the variance of a step is its mean. */
        double sum = 0, squares = 0;
        for (int32_t s = p.arrival[0], r = 0; s <= p.arrival[n - 1]; s++) {
            double here = 0;
            for (; r < n && p.arrival[r] == s; r++)
                here++;
            sum += here;
            squares += here * here;
        }
        double mean = sum / steps, variance = squares / steps - mean * mean;
        assert_true(variance > 0.85 * mean && variance < 1.15 * mean);
        ds_serve_plan_free(&p);
    }
}

/* ---- plans made elsewhere -------------------------------------------------------------------- */

static int32_t ids[] = {5, 6, 7, 8};
static const struct ds_serve_prompt one = {.tokens = ids, .n = 4};

struct line {
    int32_t step, request, n, cached;
};

static int check_lines(const struct line *lines, size_t n, struct ds_serve_plan *p, size_t *step,
                       struct ds_error *err)
{
    memset(p, 0, sizeof *p);
    for (size_t i = 0; i < n; i++) {
        struct ds_serve_piece x = {.request = lines[i].request,
                                   .n_tokens = lines[i].n,
                                   .cached = lines[i].cached,
                                   .slot = -1};
        if ((size_t)lines[i].step == p->n_steps)
            assert_ok(ds_serve_add_step(p, err), *err);
        assert_ok(ds_serve_add_piece(p, &x, err), *err);
    }
    return ds_serve_check(p, &one, 1, step, err);
}

static void test_a_foreign_plan_is_completed(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {0, 0, 4, 0}, {1, 0, 1, 4}, {1, 1, 2, 2}, {2, 1, 1, 4}, {3, 2, 1, 3}, {4, 0, 5, 0},
    };
    struct ds_serve_plan p;
    struct ds_error err;
    assert_ok(check_lines(lines, 6, &p, NULL, &err), err);
    assert_int_equal(p.n_requests, 3);
    assert_int_equal(p.max_rows, 5);
    assert_int_equal(p.pieces[2].from, 0); /* request 1 begins with request 0's rows, which runs */
    assert_int_equal(p.pieces[2].copy, p.pieces[0].slot);
    assert_true(p.pieces[5].takes); /* request 0 begins again */
    assert_int_equal(p.pieces[5].chooses, 0);
    assert_int_equal(p.arrival[2], 3);
    struct ds_serve_plan only;
    assert_ok(ds_serve_only(&p, 1, &one, 1, &only, &err), err);
    assert_int_equal(only.n_steps, 2);
    assert_int_equal(only.pieces[0].n_tokens, 4);
    assert_int_equal(only.pieces[0].cached, 0);
    ds_serve_plan_free(&only);
    ds_serve_plan_free(&p);
}

/* Three requests that arrive at steps 0, 1 and 3, and have their first token at the ends of steps 0, 2 and 3. */
static void test_waits_for_the_first_token(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {0, 0, 4, 0}, {1, 1, 2, 0}, {2, 0, 1, 4}, {2, 1, 2, 2}, {3, 2, 4, 0}, {4, 1, 1, 4},
    };
    static const double seconds[] = {1, 2, 4, 8, 16};
    struct ds_serve_plan p;
    struct ds_serve_wait w;
    struct ds_error err;
    assert_ok(check_lines(lines, 6, &p, NULL, &err), err);
    assert_ok(ds_serve_waits(&p, seconds, &w, &err), err);
    assert_close("median_steps", 0, w.median_steps, 1, 0);
    assert_close("most_steps", 0, w.most_steps, 2, 0);
    assert_close("median_s", 0, w.median_s, 6, 0); /* of 1, 2 + 4 and 8 */
    assert_close("most_s", 0, w.most_s, 8, 0);
    for (long n = 1; n <= 4; n++) {
        ds_mem_fail_at(n);
        assert_int_equal(ds_serve_waits(&p, seconds, &w, &err), -1);
    }
    ds_mem_fail_at(0);
    ds_serve_plan_free(&p);
}

static void test_a_wrong_plan_is_refused(void **state)
{
    (void)state;
    static const struct {
        struct line lines[3];
        size_t n, step;
        const char *says;
    } cases[] = {
        {{{0, 0, 5, 0}}, 1, 0, "it has 4 in all"},
        {{{0, 0, 4, 0}, {1, 0, 2, 4}}, 2, 1, "it has 5 in all"},
        {{{0, 0, 4, 0}, {1, 0, 1, 5}}, 2, 1, "it has 4"},
        {{{0, 0, 0, 0}}, 1, 0, "0 new tokens"},
        {{{0, 0, 1, -1}}, 1, 0, "-1 cached"},
        {{{0, 0, 2, 0}, {0, 0, 2, 2}}, 2, 0, "twice in one step"},
        {{{0, 0, 2, 2}}, 1, 0, "stand in no slot"},
        {{{0, -1, 2, 0}}, 1, 0, "request -1"},
        {{{0, 0, INT32_MAX, 1}}, 1, 0, "new tokens"},
        {{{0, 0, 2, 0}, {1, 100000, 2, 0}}, 2, 1, "request 100000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_serve_plan p;
        struct ds_error err;
        size_t step = 0;
        assert_int_equal(check_lines(cases[i].lines, cases[i].n, &p, &step, &err), -1);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("case %zu says: %s", i, err.msg);
        assert_int_equal(step, cases[i].step);
        ds_serve_plan_free(&p);
    }
}

static void test_memory_that_runs_out_is_an_error(void **state)
{
    (void)state;
    struct fixture f;
    struct ds_serve_plan p;
    struct ds_error err;
    make(&f, 5);
    int rc = -1;
    for (long n = 1; n < 1000 && rc != 0; n++) {
        ds_mem_fail_at(n);
        rc = ds_serve_plan_new(&f.c, f.prompts, f.n_prompts, f.n_requests, &p, &err);
    }
    ds_mem_fail_at(0);
    assert_int_equal(rc, 0);
    check_plan(&f, &p);
    ds_serve_plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_thousand_plans_hold_what_they_promise),
        cmocka_unit_test(test_a_plan_is_its_seed),
        cmocka_unit_test(test_arrivals_have_the_rate),
        cmocka_unit_test(test_a_foreign_plan_is_completed),
        cmocka_unit_test(test_waits_for_the_first_token),
        cmocka_unit_test(test_a_wrong_plan_is_refused),
        cmocka_unit_test(test_memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
