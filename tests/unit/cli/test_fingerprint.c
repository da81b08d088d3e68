/* test_fingerprint.c: the forms of responses, how sequences stand to each other, and causes at their edges. What
 * causes look like is tested with whole files: tests/cli/test_fingerprint.sh. */
#include "tests/unit/testing.h"

#include "cli/fingerprint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static void read_text(const char *text, struct ds_fp_file *f)
{
    struct ds_error err;
    *f = (struct ds_fp_file){.path = "x.jsonl"};
    assert_ok(ds_fp_read_line(text, strlen(text), 1, f, &err), err);
}

static void test_forms(void **state)
{
    (void)state;
    struct ds_fp_file f;
    read_text(
        "{\"id\": \"c-1\", \"choices\": [{\"index\": 0, \"logprobs\": {\"content\": ["
        "{\"token\": \"a\", \"logprob\": -0.5, \"bytes\": [97], \"top_logprobs\": ["
        "{\"token\": \"a\", \"logprob\": -0.5}, {\"token\": \"b\", \"logprob\": -Infinity}]}]}}]}",
        &f);
    assert_int_equal(f.n, 1);
    assert_string_equal(f.sequences[0].request, "c-1");
    assert_int_equal(f.sequences[0].n_tokens, 1);
    assert_int_equal(f.sequences[0].tokens[0].n_alternatives, 2);
    assert_close("logprob", 0, f.sequences[0].tokens[0].logprob, -0.5, 0);
    assert_true(isinf(f.sequences[0].tokens[0].alternatives[1].logprob));
    assert_true(f.sequences[0].tokens[0].alternatives[0].key == f.sequences[0].tokens[0].key);
    ds_fp_file_free(&f);

    /* A part of a character has its bytes, not its text. */
    read_text("{\"choices\": [{\"logprobs\": {\"content\": ["
              "{\"token\": \"?\", \"logprob\": -1, \"bytes\": [226, 130]},"
              "{\"token\": \"?\", \"logprob\": -1, \"bytes\": [172]}]}}]}",
              &f);
    assert_false(f.sequences[0].tokens[0].key == f.sequences[0].tokens[1].key);
    assert_int_equal(f.sequences[0].tokens[0].len, 2);
    assert_null(f.sequences[0].request);
    ds_fp_file_free(&f);

    /* A completion with its prompt: nothing stands before the first token. */
    read_text("{\"custom_id\": \"q\", \"response\": {\"body\": {\"id\": \"z\", "
              "\"prompt_token_ids\": [1, 7],"
              "\"choices\": [{\"index\": 1, \"token_ids\": [8, 9], \"logprobs\": {"
              "\"tokens\": [\"<s>\", \"NaN \\\"x\", \"y\"], \"token_logprobs\": [null, NaN, -2],"
              "\"top_logprobs\": [null, {\"NaN\": -1, \"y\": -2}, null]}}]}}}",
              &f);
    const struct ds_fp_sequence *s = &f.sequences[0];
    assert_string_equal(s->request, "q");
    assert_true(s->custom && s->choice == 1 && s->n_prompt == 2 && s->prompt[1] == 7);
    assert_int_equal(s->n_tokens, 3);
    assert_true(isnan(s->tokens[0].logprob) && isnan(s->tokens[1].logprob));
    assert_string_equal(s->tokens[1].text, "NaN \"x");
    assert_true(s->tokens[0].id == -1 && s->tokens[1].id == 8 && s->tokens[2].id == 9);
    assert_int_equal(s->tokens[1].n_alternatives, 2);
    ds_fp_file_free(&f);

    read_text("{\"choices\": [{\"logprobs\": {\"tokens\": [\"token_id:5\", \"token_id:x\"], "
              "\"token_logprobs\": [-1, -2]}}, {\"index\": 1, \"logprobs\": {\"tokens\": [], "
              "\"token_logprobs\": []}}]}",
              &f);
    assert_int_equal(f.n, 2);
    assert_true(f.sequences[0].tokens[0].id == 5 && !f.sequences[0].tokens[0].text);
    assert_true(f.sequences[0].tokens[1].id == -1);
    ds_fp_file_free(&f);
}

/* Every beginning of a response is an error, or one like any other, and nothing is left behind. */
static void test_cut_responses(void **state)
{
    (void)state;
    static const char whole[] =
        "{\"custom_id\":\"q\",\"prompt_token_ids\":[1],\"choices\":[{\"token_ids\":[3],"
        "\"logprobs\":{\"tokens\":[\"a\"],"
        "\"token_logprobs\":[-1],\"top_logprobs\":[{\"a\":-1,\"b\":-2}]}}]}";
    struct ds_error err;
    for (size_t n = 0; n < sizeof whole; n++) {
        char text[sizeof whole];
        struct ds_fp_file f = {.path = "x.jsonl"};
        memcpy(text, whole, n);
        text[n] = '\0';
        const int rc = ds_fp_read_line(text, n, 4, &f, &err);
        assert_int_equal(rc, n == sizeof whole - 1 ? 0 : -1);
        if (rc != 0)
            assert_non_null(strstr(err.msg, "x.jsonl, line 4: "));
        ds_fp_file_free(&f);
    }
    static const char *const wrong[] = {
        "[]",
        "7",
        "{}",
        "{\"choices\": 3}",
        "{\"choices\": []}",
        "{\"choices\": [5]}",
        "{\"choices\": [{\"logprobs\": {\"content\": [5]}}]}",
        "{\"choices\": [{\"logprobs\": {\"content\": [{\"token\": 5, \"logprob\": -1}]}}]}",
        "{\"choices\": [{\"logprobs\": {\"content\": [{\"token\": \"a\"}]}}]}",
        "{\"choices\": [{\"logprobs\": {\"content\": [{\"token\": \"a\", \"logprob\": \"x\"}]}}]}",
        "{\"choices\": [{\"logprobs\": {\"content\": [{\"token\": \"a\", \"logprob\": -1, "
        "\"top_logprobs\": [{}]}]}}]}",
        "{\"choices\": [{\"logprobs\": {\"tokens\": [\"a\"], \"token_logprobs\": [-1], "
        "\"top_logprobs\": []}}]}",
        "{\"prompt_token_ids\": [\"x\"], \"choices\": [{\"logprobs\": {\"tokens\": [], "
        "\"token_logprobs\": []}}]}",
#define CONTENT(x) "{\"choices\": [{\"logprobs\": {\"content\": [" x "]}}]}"
        CONTENT("{\"token\": \"a\", \"logprob\": 5}"),
        CONTENT("{\"token\": \"a\", \"logprob\": Infinity}"),
        CONTENT("{\"token\": \"a\", \"prob\": -0.5}"),
        CONTENT("{\"token\": \"a\", \"prob\": 2}"),
        CONTENT("{\"token\": \"a\", \"logprob\": -1, \"bytes\": [300]}"),
        CONTENT("{\"token\": \"a\", \"logprob\": -1, \"bytes\": [-1]}"),
        CONTENT("{\"token\": \"a\", \"logprob\": -1, \"bytes\": [\"a\"]}"),
        CONTENT("{\"token\": \"a\", \"logprob\": -1, \"bytes\": \"a\"}"),
        CONTENT("{\"token\": \"a\", \"logprob\": -1, \"top_logprobs\": {}}"),
        CONTENT("{\"token\": \"a\", \"logprob\": -1, \"top_logprobs\": [{\"token\": \"b\"}]}"),
        CONTENT("{\"token\": \"a\", \"logprob\": -1, \"top_logprobs\": [{\"token\": \"b\", "
                "\"logprob\": 9}]}"),
        "{\"choices\": [{\"index\": \"0\", \"logprobs\": {\"content\": []}}]}",
        "{\"choices\": [{\"index\": -1, \"logprobs\": {\"content\": []}}]}",
        "{\"choices\": [{\"logprobs\": {\"tokens\": [\"a\"], \"token_logprobs\": [-1], "
        "\"top_logprobs\": [[]]}}]}",
        "{\"choices\": [{\"logprobs\": {\"tokens\": [\"a\"], \"token_logprobs\": [-1], "
        "\"top_logprobs\": [{\"b\": \"x\"}]}}]}",
        "{\"prompt_token_ids\": [-1], \"choices\": [{\"logprobs\": {\"tokens\": [], "
        "\"token_logprobs\": []}}]}",
        "{\"custom_id\": 5, \"choices\": [{\"logprobs\": {\"content\": []}}]}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct ds_fp_file f = {.path = "x.jsonl"};
        if (ds_fp_read_line(wrong[i], strlen(wrong[i]), 1, &f, &err) != -1) {
            print_error("taken: %s\n", wrong[i]);
            fail();
        }
        ds_fp_file_free(&f);
    }
}

/* A response of these tokens, words of a text. */
static void make(const char *words, const char *prompt, struct ds_fp_file *f)
{
    char text[2048], *p = text, copy[256], *save = NULL;
    char values[512] = "";
    snprintf(copy, sizeof copy, "%s", words);
    p += snprintf(p, 200, "{\"prompt_token_ids\": %s, \"choices\": [{\"logprobs\": {\"tokens\": [",
                  *prompt ? prompt : "null");
    size_t n = 0;
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save), n++) {
        p += snprintf(p, 64, "%s\"%s\"", n ? "," : "", w);
        snprintf(values + strlen(values), 16, "%s-1", n ? "," : "");
    }
    snprintf(p, 600, "], \"token_logprobs\": [%s]}}]}", values);
    read_text(text, f);
}

static void test_alignment(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b, *prompt_a, *prompt_b;
        int match;
        size_t equal, at, by;
        int longer;
    } cases[] = {
        {"a b c d e", "a b c d e", "", "", DS_FP_EQUAL, 5, 5, 0, 0},
        {"a b c d e", "a b", "", "", DS_FP_EQUAL, 2, 2, 0, 0},
        {"a b c d e", "a b x d e", "", "", DS_FP_OTHER_TOKEN, 2, 2, 0, 0},
        {"a b c d e", "b c d e f", "", "", DS_FP_SHIFTED, 0, 0, 1, 0},
        {"c d e f", "a b c d e f", "", "", DS_FP_SHIFTED, 0, 0, 2, 1},
        {"<s> b c d e", "b c d e", "", "", DS_FP_BOS, 0, 0, 1, 0},
        {"b c d e", "<|begin_of_text|> b c d e", "", "", DS_FP_BOS, 0, 0, 1, 1},
        {"<s> b c", "b c", "", "", DS_FP_OTHER_TOKEN, 0, 0, 0, 0}, /* too short to tell */
        {"ab c d e f", "a b c d e f", "", "", DS_FP_RETOKENIZED, 0, 0, 0, 0},
        {"x ab c", "x a bc", "", "", DS_FP_RETOKENIZED, 1, 1, 0, 0},
        {"x ab cd", "x a b c", "", "", DS_FP_RETOKENIZED, 1, 1, 0, 0},
        {"x ab", "x ac", "", "", DS_FP_OTHER_TOKEN, 1, 1, 0, 0},
        {"a a a a a a", "a a a a a b", "", "", DS_FP_OTHER_TOKEN, 5, 5, 0, 0},
        {"a b", "a b", "[1,2]", "[1,2]", DS_FP_EQUAL, 2, 2, 0, 0},
        {"a b", "a b", "[1,2]", "", DS_FP_EQUAL, 2, 2, 0, 0},
        {"a b", "a b", "[9,1,2]", "[1,2]", DS_FP_BOS, 0, 0, 1, 0},
        {"a b", "a b", "[1,2]", "[9,1,2]", DS_FP_BOS, 0, 0, 1, 1},
        {"a b", "a b", "[1,2]", "[1,3]", DS_FP_PROMPT, 0, 1, 0, 0},
        {"a b", "a b", "[1,2]", "[1,2,3]", DS_FP_PROMPT, 0, 2, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct ds_fp_file a, b;
        make(cases[i].a, cases[i].prompt_a, &a);
        make(cases[i].b, cases[i].prompt_b, &b);
        struct ds_fp_pair p = {.a = &a.sequences[0], .b = &b.sequences[0]};
        ds_fp_align(&p);
        if (p.match != cases[i].match || p.equal != cases[i].equal || p.at != cases[i].at ||
            p.by != cases[i].by || p.longer != cases[i].longer) {
            print_error("'%s' and '%s': %s, equal %zu, at %zu, by %zu, longer %d\n", cases[i].a,
                        cases[i].b, ds_fp_match_name(p.match), p.equal, p.at, p.by, p.longer);
            fail();
        }
        ds_fp_file_free(&a);
        ds_fp_file_free(&b);
    }
}

/* ---- causes at their edges -------------------------------------------------------------------------------- */

enum { POSITIONS = 40, EACH = 5 };

struct made {
    struct ds_lp_position at[POSITIONS];
    struct ds_lp_alternative alternatives[POSITIONS * EACH];
    struct ds_lp_pairs pairs;
};

/* Alternatives a that are all unlike, and b the same. */
static void make_pairs(struct made *m)
{
    memset(m, 0, sizeof *m);
    m->pairs = (struct ds_lp_pairs){.positions = m->at,
                                    .n = POSITIONS,
                                    .alternatives = m->alternatives,
                                    .n_alternatives = (size_t)POSITIONS * EACH};
    for (size_t k = 0; k < POSITIONS; k++) {
        m->at[k] = (struct ds_lp_position){.sequence = (uint32_t)(k / 10),
                                           .position = (uint32_t)(k % 10),
                                           .key = k,
                                           .a = -0.7,
                                           .b = -0.7,
                                           .first = k * EACH,
                                           .n = EACH,
                                           .listed_a = EACH,
                                           .listed_b = EACH,
                                           .sum_a = 0.8,
                                           .sum_b = 0.8};
        for (size_t i = 0; i < EACH; i++) {
            const double x = -0.7 - 0.61803398875 * (double)i - 0.0137 * (double)k;
            m->alternatives[k * EACH + i] =
                (struct ds_lp_alternative){.key = k * 100 + i, .a = x, .b = x};
        }
    }
}

static size_t causes_of(const struct made *m, struct ds_lp_cause *out)
{
    struct ds_error err;
    size_t n;
    assert_ok(ds_lp_causes(&m->pairs, out, &n, &err), err);
    return n;
}

static void test_causes_need_evidence(void **state)
{
    (void)state;
    struct made m;
    struct ds_lp_cause c[DS_LP_CAUSES];
    make_pairs(&m);
    assert_int_equal(causes_of(&m, c), 0);
    m.pairs.n = m.pairs.n_alternatives = 0; /* nothing at all */
    assert_int_equal(causes_of(&m, c), 0);

    make_pairs(&m); /* one number that is not one, and one alternative that only A lists */
    m.alternatives[3].b = (double)NAN;
    m.at[1].a = (double)NAN;
    assert_int_equal(causes_of(&m, c), 0);

    make_pairs(&m); /* one ratio, but at too few positions */
    for (size_t i = 0; i < 4 * EACH; i++)
        m.alternatives[i].b *= 2;
    m.pairs.n = 4;
    m.pairs.n_alternatives = 4 * EACH;
    assert_int_equal(causes_of(&m, c), 0);
    make_pairs(&m); /* and everywhere */
    for (size_t i = 0; i < m.pairs.n_alternatives; i++)
        m.alternatives[i].b *= 2;
    assert_int_equal(causes_of(&m, c), 1);
    assert_int_equal(c[0].kind, DS_LP_TEMPERATURE);
    assert_close("temperature", 0, c[0].value, 0.5, 1e-9);

    make_pairs(&m); /* certain tokens are 0 on both sides: no padding */
    for (size_t k = 0; k < 10; k++)
        m.at[k].a = m.at[k].b = 0;
    assert_int_equal(causes_of(&m, c), 0);
    make_pairs(&m); /* in the middle of a sequence: none either */
    m.at[4].b = m.at[5].b = m.at[6].b = 0;
    assert_int_equal(causes_of(&m, c), 0);
    make_pairs(&m); /* at the beginning, as on the left */
    m.at[0].b = m.at[1].b = m.at[10].b = 0;
    assert_int_equal(causes_of(&m, c), 1);
    assert_int_equal(c[0].kind, DS_LP_PADDING);
    assert_int_equal(c[0].n, 3);

    make_pairs(&m); /* everything is on a grid on both sides: no coarse head */
    for (size_t i = 0; i < m.pairs.n_alternatives; i++)
        m.alternatives[i].a = m.alternatives[i].b = -0.25 * (double)(i % 7);
    assert_int_equal(causes_of(&m, c), 0);
    make_pairs(&m); /* masked where the other side has hardly any probability: no filter */
    for (size_t k = 0; k < POSITIONS; k++) {
        m.alternatives[k * EACH + 4].a = -80;
        m.alternatives[k * EACH + 4].b = (double)-INFINITY;
    }
    assert_int_equal(causes_of(&m, c), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_cut_responses),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_causes_need_evidence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
