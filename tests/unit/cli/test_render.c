/* test_render.c: the verdict as JSON: the fixed names are all there, hostile names are escaped, memory
 * that runs out is an error. */
#include "tests/unit/report/made.h"

#include "cli/render_json.h"

#include <jansson.h>
#include <math.h>

static void assert_has(json_t *j, const char *names)
{
    char copy[512], *save = NULL;
    assert_true(json_is_object(j));
    snprintf(copy, sizeof copy, "%s", names);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        if (!json_object_get(j, w))
            print_error("no member %s\n", w);
        assert_non_null(json_object_get(j, w));
    }
}

static const char *str(json_t *j, const char *name)
{
    return json_string_value(json_object_get(j, name));
}

static json_t *parse(struct made *m)
{
    struct ds_error err;
    json_error_t bad;
    assert_ok(ds_render_verdict_json(&m->r, &m->out, &err), err);
    json_t *j = json_loads(m->out.data, JSON_REJECT_DUPLICATES, &bad);
    if (!j)
        print_error("line %d: %s\n", bad.line, bad.text);
    assert_non_null(j);
    return j;
}

static void test_json_has_every_fixed_name(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    make_usual(&s, &m, openblas, 3);
    json_t *j = parse(&m), *first = json_object_get(j, "first_drift");
    assert_has(j, "schema result stable reference counts first_drift factors kernels "
                  "first_nonfinite first_discrete tokens probe");
    assert_string_equal(str(j, "schema"), "driftscope.verdict/1");
    assert_string_equal(str(j, "result"), "drift");
    assert_true(json_is_true(json_object_get(j, "stable")));
    assert_has(json_object_get(j, "reference"), "arm trial");
    assert_has(json_object_get(j, "counts"), "arms trials sites rows digests_compared");
    assert_has(first, "layer stage op variant factor value arm label phase rows_in_call step "
                      "request position rows elements max_ulp "
                      "max_abs kind");
    assert_string_equal(str(first, "stage"), "q_proj");
    assert_string_equal(str(first, "variant"), "openblas");
    assert_string_equal(str(first, "factor"), "batch");
    assert_string_equal(str(first, "kind"), "rounding-order");
    assert_string_equal(str(first, "label"), "origin");
    assert_int_equal(strlen(str(first, "digest")), 16);
    json_t *factor = NULL, *f;
    size_t i, seen = 0;
    json_array_foreach(json_object_get(j, "factors"), i, f)
    {
        assert_has(f, "factor phase classes switches first_drift");
        if (strcmp(str(f, "factor"), "batch") == 0 && strcmp(str(f, "phase"), "all") == 0)
            factor = f;
        seen++;
    }
    assert_int_equal(seen, 4 * 3);
    char *classes = json_dumps(json_object_get(factor, "classes"), JSON_COMPACT);
    char *switches = json_dumps(json_object_get(factor, "switches"), JSON_COMPACT);
    assert_string_equal(classes, "[[\"1\"],[\"2\",\"3\"],[\"4\"],[\"8\"]]");
    assert_string_equal(switches, "[\"2\",\"4\",\"8\"]");
    free(classes);
    free(switches);
    json_array_foreach(json_object_get(j, "kernels"), i, f)
    {
        assert_has(f, "op variant conditions switches_rows origins healed inherited compared");
        assert_has(json_object_get(f, "conditions"), "repeat batch slot threads");
        if (strcmp(str(f, "op"), "matmul") == 0) {
            assert_string_equal(str(json_object_get(f, "conditions"), "batch"), "drift");
            assert_string_equal(str(json_object_get(f, "conditions"), "threads"), "same");
            assert_int_equal(json_array_size(json_object_get(f, "switches_rows")),
                             2); /* 8 explains prefill's 6 against 12 */
            assert_int_equal(
                json_integer_value(json_array_get(json_object_get(f, "switches_rows"), 1)), 8);
        }
    }
    assert_has(json_object_get(j, "tokens"), "same first_divergence");
    assert_true(json_is_null(json_object_get(json_object_get(j, "tokens"), "first_divergence")));
    assert_has(json_object_get(j, "probe"), "overhead_prefill overhead_decode disturbs");
    assert_close("overhead", 0,
                 json_real_value(json_object_get(json_object_get(j, "probe"), "overhead_decode")),
                 0.004, 1e-9);
    json_decref(j);
    done(&m);
    sweep_free(&s);
}

/* The census says where. */
static void test_census_of_repeats(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    make_usual(&s, &m, one_odd_run, 5);
    json_t *j = parse(&m), *census = json_object_get(j, "repeat"),
           *arm = json_array_get(json_object_get(census, "arms"), 0), *pair;
    assert_int_equal(json_array_size(json_object_get(census, "arms")), 7);
    assert_has(arm, "arm trials distinct_runs modal_runs disagree rate wilson95 excluded_above "
                    "digests unstable_digests most_values first pairs of_pairs");
    assert_int_equal(json_integer_value(json_object_get(arm, "distinct_runs")), 2);
    assert_int_equal(json_integer_value(json_object_get(arm, "modal_runs")), 4);
    pair = json_array_get(json_object_get(arm, "pairs"), 0);
    assert_string_equal(str(pair, "stage"), "q_proj");
    assert_int_equal(json_integer_value(json_object_get(pair, "b")), 1);
    assert_string_equal(str(json_object_get(arm, "first"), "label"), "origin");
    json_decref(j);
    done(&m);
    sweep_free(&s);
}

static void test_json_without_trials(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    usual(&s);
    make(&s, &m);
    json_t *j = parse(&m);
    assert_string_equal(str(j, "result"), "incomparable");
    assert_true(json_is_null(json_object_get(j, "first_drift")));
    assert_true(json_is_array(json_object_get(j, "kernels")));
    assert_non_null(str(j, "reason"));
    json_decref(j);
    done(&m);
    sweep_free(&s);
}

static void test_json_writes_nan_and_inf_as_strings(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    usual(&s);
    s.tag = openblas;
    sweep_run(&s, 1);
    for (size_t t = 0; t < s.n_trials; t++)
        for (size_t i = 0; i < s.trials[t].n_drifts; i++)
            s.trials[t].drifts[i].max_abs = 1e308 * 10;
    make(&s, &m);
    json_t *j = parse(&m);
    assert_string_equal(str(json_object_get(j, "first_drift"), "max_abs"), "Inf");
    json_decref(j);
    done(&m);
    sweep_free(&s);
}

/* Other experts come before another token; both are told, each with its own margin. */
static void test_experts_that_changed(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    make_usual(&s, &m, openblas, 1);
    change_experts(&m.v);
    json_t *j = parse(&m), *first = json_object_get(j, "first_discrete"),
           *swapped = json_object_get(first, "swapped"),
           *tokens = json_object_get(json_object_get(j, "tokens"), "first_divergence");
    assert_string_equal(str(first, "stage"), "router_ids");
    assert_has(first, "layer position step request a b margin factor value");
    assert_int_equal(json_array_size(swapped), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(swapped, 1), "b")), 3);
    assert_string_equal(str(json_array_get(swapped, 1), "margin"), "NaN");
    assert_string_equal(str(tokens, "stage"), "token");
    assert_int_equal(json_integer_value(json_object_get(tokens, "b")), 60);
    json_decref(j);
    done(&m);
    sweep_free(&s);
}

static void test_hostile_names_are_escaped(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    usual(&s);
    s.tag = openblas;
    strcpy(s.header.model_name, "m\033[2J\xff");
    strcpy(s.header.sites[2].stage, "q\033]0;x\007");
    free(s.header.arms[3].values[0]);
    s.header.arms[3].values[0] = sweep_text("4\n\033[31m\xc3");
    free(s.header.factors[0]);
    s.header.factors[0] = sweep_text("batch\033");
    sweep_run(&s, 2);
    make(&s, &m);
    json_t *j = parse(&m);
    assert_string_equal(str(j, "model"), "m\\x1b[2J\\xff");
    json_decref(j);
    done(&m);
    sweep_free(&s);
}

/* jansson leaves out what it cannot make, without a word: every allocation must be watched. */
static void test_json_is_whole_or_an_error(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    make_usual(&s, &m, openblas, 3);
    struct ds_error err;
    struct ds_buf whole = {0};
    int failures = 0;
    assert_ok(ds_render_verdict_json(&m.r, &whole, &err), err);
    for (long n = 1; n < 4000; n += 7) {
        struct ds_buf part = {0};
        ds_mem_fail_at(n);
        int rc = ds_render_verdict_json(&m.r, &part, &err);
        ds_mem_fail_at(0);
        int same = rc == 0 && strcmp(part.data, whole.data) == 0;
        if (rc == 0 && !same)
            print_error("allocation %ld of the JSON text failed unseen\n", n);
        assert_true(rc != 0 || same);
        failures += rc != 0;
        ds_buf_free(&part);
    }
    assert_true(failures > 100);
    ds_buf_free(&whole);
    done(&m);
    sweep_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_has_every_fixed_name),
        cmocka_unit_test(test_census_of_repeats),
        cmocka_unit_test(test_json_without_trials),
        cmocka_unit_test(test_json_writes_nan_and_inf_as_strings),
        cmocka_unit_test(test_experts_that_changed),
        cmocka_unit_test(test_hostile_names_are_escaped),
        cmocka_unit_test(test_json_is_whole_or_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
