/* test_storm.c: what dumps/storm says of trials made by hand: completions and their sizes, the reference, the
 * first row with other bits and its batch, inherited prefixes, partings, ties, and the forecast. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "dumps/storm.h"

#include <stdlib.h>
#include <string.h>

enum { SITES = 3, MOST_ROWS = 64, MOST_STEPS = 64 };

/* Rows are added call by call; every site of every row gets the digest `position * 10 + site`, unless it is
 * changed afterwards. */
struct made {
    struct ds_header h;
    struct ds_prompt prompts[3];
    int32_t tokens[3][2];
    struct ds_site sites[SITES];
    struct ds_call calls[16];
    struct ds_row rows[MOST_ROWS];
    struct ds_capture captures[16 * SITES];
    uint64_t digests[MOST_ROWS * SITES];
    struct ds_step steps[MOST_STEPS];
    struct ds_launch launch;
    struct ds_trial_data t;
};

static void begin(struct made *m, size_t n_prompts)
{
    memset(m, 0, sizeof *m);
    for (size_t i = 0; i < n_prompts; i++) {
        m->tokens[i][0] = (int32_t)i;
        m->prompts[i] =
            (struct ds_prompt){.request = (int32_t)i, .tokens = m->tokens[i], .n_tokens = 2};
    }
    m->h = (struct ds_header){
        .prompts = m->prompts, .n_prompts = n_prompts, .sites = m->sites, .n_sites = SITES};
    m->t = (struct ds_trial_data){.calls = m->calls,
                                  .rows = m->rows,
                                  .launches = &m->launch,
                                  .n_launches = 1,
                                  .captures = m->captures,
                                  .digests = m->digests,
                                  .steps = m->steps};
}

struct key {
    int32_t request, position, occurrence;
};

static void call(struct made *m, const struct key *keys, size_t n)
{
    const uint32_t c = (uint32_t)m->t.n_calls++, first = (uint32_t)m->t.n_rows;
    uint32_t sequences = 0;
    for (size_t i = 0; i < n; i++) {
        sequences += i == 0 || keys[i].request != keys[i - 1].request;
        m->rows[m->t.n_rows++] = (struct ds_row){.call = c,
                                                 .request = keys[i].request,
                                                 .position = keys[i].position,
                                                 .occurrence = keys[i].occurrence};
    }
    m->calls[c] = (struct ds_call){.index = c,
                                   .m = (uint32_t)n,
                                   .sequences = sequences,
                                   .first_row = first,
                                   .rows = (uint32_t)n};
    for (uint32_t s = 0; s < SITES; s++) {
        m->captures[m->t.n_captures++] = (struct ds_capture){.call = c,
                                                             .site = s,
                                                             .first_row = first,
                                                             .rows = (uint32_t)n,
                                                             .first_digest = m->t.n_digests};
        for (size_t i = 0; i < n; i++)
            m->digests[m->t.n_digests++] = (uint64_t)keys[i].position * 10 + s;
    }
}

/* Gives a row another digest at a site. */
static void change(struct made *m, uint32_t row, uint32_t site)
{
    const uint32_t c = m->rows[row].call;
    const struct ds_capture *x = &m->captures[c * SITES + site];
    m->digests[x->first_digest + row - x->first_row] ^= 1;
}

static void step(struct made *m, int32_t request, int32_t number, int32_t token, float margin)
{
    struct ds_step *s = &m->steps[m->t.n_steps++];
    *s = (struct ds_step){
        .request = request, .step = number, .token = token, .forced = token, .margin = margin};
    for (int k = 0; k < DS_TOP; k++)
        s->ids[k] = k < 2 ? (token + k) % 2 : -1;
    s->logits[0] = 1 + margin;
    s->logits[1] = 1;
    s->ties = margin > 0 ? 1 : 2;
    s->digest = (uint64_t)token;
}

static struct ds_storm look(struct made *m, size_t n, const struct ds_storm_hit *hits,
                            size_t n_hits)
{
    struct ds_storm s;
    struct ds_error err;
    assert_ok(ds_storm_make(&m->h, &m->t, n, hits, n_hits, &s, &err), err);
    return s;
}

/* Three requests of one prompt; requests 0 and 2 agree, request 1 parts at its second token. */
static void three(struct made *m)
{
    static const struct key first[] = {{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}},
                            second[] = {{0, 2, 0}, {1, 2, 0}, {2, 0, 0}, {2, 1, 0}},
                            third[] = {{2, 2, 0}};
    begin(m, 1);
    call(m, first, 4);
    call(m, second, 4);
    call(m, third, 1);
    for (int32_t r = 0; r < 3; r++)
        step(m, r, 0, 0, 0.5f);
    step(m, 0, 1, 0, 0.25f);
    step(m, 1, 1, 1, 0.125f);
    step(m, 2, 1, 0, 0.25f);
}

static void test_equal_requests_are_one_completion(void **state)
{
    (void)state;
    struct made m;
    three(&m);
    m.steps[4].token = 0;
    struct ds_storm s = look(&m, 3, NULL, 0);
    assert_int_equal(s.n_completions, 1);
    assert_int_equal(s.completions[0].size, 3);
    assert_int_equal(s.n_prompts, 1);
    assert_int_equal(s.drifting, 0);
    assert_int_equal(s.first_drift, -1);
    assert_int_equal(s.first_parting, -1);
    assert_int_equal(s.compared, 2 * 3 * SITES);
    ds_storm_free(&s);
    /* A prompt that was given three times is one; with other tokens each, they are three. */
    for (int other = 0; other < 2; other++) {
        three(&m);
        m.steps[4].token = 0;
        m.h.n_prompts = 3;
        for (int i = 0; i < 3; i++) {
            m.tokens[i][0] = other * i;
            m.prompts[i] = (struct ds_prompt){.request = i, .tokens = m.tokens[i], .n_tokens = 2};
        }
        s = look(&m, 3, NULL, 0);
        assert_int_equal(s.n_prompts, other ? 3 : 1);
        assert_int_equal(s.n_completions, other ? 3 : 1);
        assert_int_equal(s.compared, other ? 0 : 2 * 3 * SITES);
        ds_storm_free(&s);
    }
}

static void test_the_first_row_and_its_batch(void **state)
{
    (void)state;
    struct made m;
    three(&m);
    change(&m, 5, 2); /* request 1, position 2, last site */
    change(&m, 5, 1); /* and before it */
    struct ds_storm s = look(&m, 3, NULL, 0);
    assert_int_equal(s.n_completions, 2);
    assert_int_equal(s.completions[0].size, 2);
    assert_int_equal(s.completions[0].request, 0);
    assert_int_equal(s.completions[1].request, 1);
    assert_int_equal(s.requests[1].completion, 1);
    assert_int_equal(s.drifting, 1);
    assert_int_equal(s.first_drift, 1);
    const struct ds_storm_place *p = &s.requests[1].place;
    assert_int_equal(p->site, 1);
    assert_int_equal(p->position, 2);
    assert_int_equal(p->call, 1);
    assert_int_equal(p->m, 4);
    assert_int_equal(p->requests, 3);
    assert_int_equal(p->from, -1);
    assert_int_equal(s.first_parting, 1);
    assert_int_equal(s.requests[1].parted, 1);
    assert_int_equal(s.requests[1].token, 1);
    assert_int_equal(s.requests[1].other_token, 0);
    assert_close("drift", 1, s.requests[1].drift, 0.375, 1e-12);
    assert_int_equal(s.requests[1].tie, 0);
    ds_storm_free(&s);
}

/* The commonest completion is the reference's, wherever it stands. */
static void test_the_odd_one_out_is_not_the_reference(void **state)
{
    (void)state;
    struct made m;
    three(&m);
    m.steps[3].token = 1; /* request 0 now agrees with request 1 against 2 */
    change(&m, 8, 0);     /* request 2, position 2 */
    struct ds_storm s = look(&m, 3, NULL, 0);
    assert_int_equal(s.requests[2].reference, 0);
    assert_int_equal(s.requests[2].parted, 1);
    assert_int_equal(s.first_drift, 2);
    assert_int_equal(s.requests[2].place.call, 2);
    assert_int_equal(s.requests[2].place.other_call, 1);
    ds_storm_free(&s);
}

/* What was fed another token has other bits, and nobody drifted. */
static void test_rows_behind_the_parting_are_not_compared(void **state)
{
    (void)state;
    struct made m;
    three(&m);
    static const struct key later[] = {{0, 3, 0}, {1, 3, 0}};
    call(&m, later, 2);
    change(&m, 10, 0);
    struct ds_storm s = look(&m, 3, NULL, 0);
    assert_int_equal(s.drifting, 0);
    assert_int_equal(s.parted, 1);
    ds_storm_free(&s);
}

static void test_a_tie_is_called_one(void **state)
{
    (void)state;
    struct made m;
    three(&m);
    m.steps[4].ties = 2;
    struct ds_storm s = look(&m, 3, NULL, 0);
    assert_int_equal(s.parted, 1);
    assert_int_equal(s.ties, 1);
    assert_int_equal(s.requests[1].tie, 1);
    ds_storm_free(&s);
}

/* Request 2 begins with request 1's rows, whose bits are other ones: it did not make them. */
static void test_a_prefix_brings_its_bits_along(void **state)
{
    (void)state;
    static const struct key first[] = {{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}},
                            second[] = {{2, 1, 0}};
    static const struct ds_storm_hit hit = {1, 2, 1, 1};
    struct made m;
    begin(&m, 1);
    call(&m, first, 4);
    call(&m, second, 1);
    for (int32_t r = 0; r < 3; r++)
        step(&m, r, 0, 0, 0.5f);
    change(&m, 2, 1); /* request 1, position 0 */
    change(&m, 4, 0); /* request 2, position 1: it reads that row */
    struct ds_storm s = look(&m, 3, &hit, 1);
    assert_int_equal(s.drifting, 2);
    assert_int_equal(s.first_drift, 1);
    assert_int_equal(s.requests[2].place.from, 1);
    assert_int_equal(s.requests[2].place.site, 1);
    assert_int_equal(s.requests[2].place.position, 0);
    assert_int_equal(s.requests[2].place.m, 4); /* of the call that computed it */
    ds_storm_free(&s);
}

/* Rows that are computed again are held against the reference's, too. */
static void test_recomputed_rows_are_compared(void **state)
{
    (void)state;
    static const struct key again[] = {{1, 0, 1}, {1, 1, 1}, {1, 2, 1}};
    struct made m;
    three(&m);
    m.steps[4].token = 0;
    call(&m, again, 3);
    change(&m, 10, 0);
    struct ds_storm s = look(&m, 3, NULL, 0);
    assert_int_equal(s.first_drift, 1);
    assert_int_equal(s.requests[1].place.occurrence, 1);
    assert_int_equal(s.requests[1].place.call, 3);
    ds_storm_free(&s);
}

/* Of each prompt's eleven requests six share one answer and five another, by 0.1 and by 0.3: a mean of 0.2, off by 0.1 * sqrt(2).
 * It goes below 0 where both the mean and the answer are off that way: one answer alone leaves at a step with probability
 * 1/4, both with 1/8. So they part with 1/4 + 5/8 * 1/4, and then the five have. */
static void test_partings_are_forecast(void **state)
{
    (void)state;
    enum { REQUESTS = 22, STEPS = 2 };
    struct made m;
    begin(&m, 2);
    for (int32_t r = 0; r < REQUESTS; r++)
        for (int32_t k = 0; k < STEPS; k++) {
            step(&m, r, k, 0, 0.1f);
            if (r >= 2 && r % 4 < 2) { /* half of the requests of each prompt: not so near */
                m.steps[m.t.n_steps - 1].logits[0] += 0.2f;
                m.steps[m.t.n_steps - 1].digest = 7;
            }
        }
    struct ds_storm s = look(&m, REQUESTS, NULL, 0);
    assert_int_equal(s.forecast.choices, (REQUESTS - 2) * STEPS);
    assert_close("expected", 0, s.forecast.expected, 2 * 5 * 0.40625, 0.3);
    assert_int_equal(s.forecast.bounded, 1);
    assert_close("low", 0, s.forecast.low, 0, 1e-9);
    assert_close("high", 0, s.forecast.high, 10, 1e-9);
    ds_storm_free(&s);
}

/* At the first step all requests share an answer with gap 0.1, at the second one there are two, 0.1 and 0.3: drifts are 0.14 one way
 * or the other. With probability 1/4 all leave together at the first step; what they do at the second one is what those do that have
 * not left: with 1/4 one half leaves. */
static void test_who_left_together_may_part_later(void **state)
{
    (void)state;
    enum { REQUESTS = 20, STEPS = 2 };
    struct made m;
    begin(&m, 2);
    for (int32_t r = 0; r < REQUESTS; r++)
        for (int32_t k = 0; k < STEPS; k++) {
            step(&m, r, k, 0, 0.1f);
            if (k == 1 && r % 4 < 2) {
                m.steps[m.t.n_steps - 1].logits[0] += 0.2f;
                m.steps[m.t.n_steps - 1].digest = 7;
            }
        }
    struct ds_storm s = look(&m, REQUESTS, NULL, 0);
    /* 5 of 10 with 1/4, in each prompt; 3/4 of it where leaving is for ever */
    assert_close("expected", 0, s.forecast.expected, 2 * 5 * 0.25, 0.3);
    ds_storm_free(&s);
}

static void test_two_trials_of_one_plan(void **state)
{
    (void)state;
    struct made a, b;
    struct ds_storm_match x;
    struct ds_error err;
    three(&a);
    three(&b);
    assert_ok(ds_storm_match(&a.h, &a.t, &b.t, 3, -1, NULL, 0, &x, &err), err);
    assert_int_equal(x.compared, 9 * SITES);
    assert_int_equal(x.differ + x.missing + x.tokens_differ, 0);
    assert_int_equal(x.tokens, 6);
    assert_int_equal(x.differs, 0);
    change(&b, 5, 2);
    change(&b, 7, 1);     /* another request, an earlier site of the same call */
    b.steps[5].token = 1; /* another choice, and yet the same token fed: the texts do not part */
    assert_ok(ds_storm_match(&a.h, &a.t, &b.t, 3, -1, NULL, 0, &x, &err), err);
    assert_int_equal(x.tokens_differ, 1);
    assert_int_equal(x.parted_request, -1);
    b.steps[5].forced = 1;
    assert_ok(ds_storm_match(&a.h, &a.t, &b.t, 3, -1, NULL, 0, &x, &err), err);
    assert_int_equal(x.differ, 2);
    assert_int_equal(x.site, 1);
    assert_int_equal(x.request, 2);
    assert_int_equal(x.parted_request, 2);
    assert_int_equal(x.parted_step, 1);
    assert_ok(ds_storm_match(&a.h, &a.t, &b.t, 3, 1, NULL, 0, &x, &err), err);
    assert_int_equal(x.differ, 1);
    assert_int_equal(x.site, 2);
    assert_int_equal(x.request, 1);
    assert_int_equal(x.parted_request, -1);
}

static void test_what_is_no_serving_run_is_refused(void **state)
{
    (void)state;
    static const struct ds_storm_hit bad[] = {
        {0, 0, 9, 1}, {0, 9, 0, 1}, {0, 0, 1, -1}, {0, 0, 1, 99}};
    struct made m;
    struct ds_storm s;
    struct ds_error err;
    three(&m);
    assert_int_equal(ds_storm_make(&m.h, &m.t, 2, NULL, 0, &s, &err), -1);
    m.rows[0].position = -1;
    assert_int_equal(ds_storm_make(&m.h, &m.t, 3, NULL, 0, &s, &err), -1);
    three(&m);
    m.steps[0].request = 3;
    assert_int_equal(ds_storm_make(&m.h, &m.t, 3, NULL, 0, &s, &err), -1);
    three(&m);
    m.steps[0].step = 5;
    assert_int_equal(ds_storm_make(&m.h, &m.t, 3, NULL, 0, &s, &err), -1);
    three(&m);
    m.captures[0].call = 1;
    assert_int_equal(ds_storm_make(&m.h, &m.t, 3, NULL, 0, &s, &err), -1);
    three(&m);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(ds_storm_make(&m.h, &m.t, 3, &bad[i], 1, &s, &err), -1);
}

static void test_memory_that_runs_out_is_an_error(void **state)
{
    (void)state;
    static const struct ds_storm_hit hit = {1, 2, 1, 1};
    struct made m;
    struct ds_storm s;
    struct ds_error err;
    three(&m);
    int rc = -1;
    for (long n = 1; n < 100 && rc != 0; n++) {
        ds_mem_fail_at(n);
        rc = ds_storm_make(&m.h, &m.t, 3, &hit, 1, &s, &err);
    }
    ds_mem_fail_at(0);
    assert_int_equal(rc, 0);
    ds_storm_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_requests_are_one_completion),
        cmocka_unit_test(test_the_first_row_and_its_batch),
        cmocka_unit_test(test_the_odd_one_out_is_not_the_reference),
        cmocka_unit_test(test_rows_behind_the_parting_are_not_compared),
        cmocka_unit_test(test_a_tie_is_called_one),
        cmocka_unit_test(test_a_prefix_brings_its_bits_along),
        cmocka_unit_test(test_recomputed_rows_are_compared),
        cmocka_unit_test(test_partings_are_forecast),
        cmocka_unit_test(test_who_left_together_may_part_later),
        cmocka_unit_test(test_two_trials_of_one_plan),
        cmocka_unit_test(test_what_is_no_serving_run_is_refused),
        cmocka_unit_test(test_memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
