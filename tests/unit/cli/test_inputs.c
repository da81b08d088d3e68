/* test_inputs.c: the frozen clock, placeholders, what differs between two files, and whether a trial follows a recording;
 * the file as a whole is tests/cli/test_inputs.sh's and tests/fuzz/fuzz_inputs.c's. */
#include "tests/unit/testing.h"

#include "cli/inputs.h"

#include <math.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void test_clocks(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text, *format, *said; /* text NULL: no time */
    } cases[] = {
        {"\"2024-06-03T14:32:00Z\"", "2024-06-03T14:32:00Z", "%A, %d %B %Y",
         "Monday, 03 June 2024"},
        {"\"2024-06-03T14:32Z\"", "2024-06-03T14:32Z", "%d %b %Y", "03 Jun 2024"},
        {"\"2024-02-29T23:59:59.123456+13:45\"", "2024-02-29T23:59:59.123456+13:45", "%F %T|%j",
         "2024-02-29 23:59:59|060"},
        {"\"1969-12-31T00:00:00-05:00\"", "1969-12-31T00:00:00-05:00", "%e.%m.%y %I%p %%",
         "31.12.69 12AM %"},
        {"0", "1970-01-01T00:00:00Z", "%a %H:%M", "Thu 00:00"},
        {"1717425120", "2024-06-03T14:32:00Z", "x", "x"},
        {"253402300799", "9999-12-31T23:59:59Z", "", ""},
        {"253402300800", NULL, NULL, NULL},
        {"-1", NULL, NULL, NULL},
        {"1.5", NULL, NULL, NULL},
        {"true", NULL, NULL, NULL},
        {"\"\"", NULL, NULL, NULL},
        {"\"2023-02-29T00:00:00Z\"", NULL, NULL, NULL},
        {"\"2024-13-01T00:00:00Z\"", NULL, NULL, NULL},
        {"\"2024-06-03T24:00:00Z\"", NULL, NULL, NULL},
        {"\"2024-06-03T14:32:60Z\"", NULL, NULL, NULL},
        {"\"2024-06-03T14:32:00\"", NULL, NULL, NULL},
        {"\"2024-06-03 14:32:00Z\"", NULL, NULL, NULL},
        {"\"2024-06-03T14:32:00.Z\"", NULL, NULL, NULL},
        {"\"2024-06-03T14:32:00+2:00\"", NULL, NULL, NULL},
        {"\"2024-06-03T14:32:00+24:00\"", NULL, NULL, NULL},
        {"\"2024-06-03T14:32:00Zz\"", NULL, NULL, NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ds_inputs_clock c;
        struct ds_error err;
        struct ds_buf out = {0};
        json_t *v = json_loads(cases[i].json, JSON_DECODE_ANY, NULL);
        assert_non_null(v);
        const int rc = ds_inputs_clock_parse(v, &c, &err);
        json_decref(v);
        if (!cases[i].text) {
            if (rc == 0)
                print_error("%s is taken for a time\n", cases[i].json);
            assert_int_equal(rc, -1);
            continue;
        }
        assert_ok(rc, err);
        assert_string_equal(c.text, cases[i].text);
        ds_buf_puts(&out, "");
        assert_ok(ds_inputs_clock_text(&c, cases[i].format, strlen(cases[i].format), &out, &err),
                  err);
        assert_string_equal(out.data, *cases[i].format ? cases[i].said : cases[i].text);
        ds_buf_free(&out);
    }
}

/* ---- placeholders ------------------------------------------------------------------------------ */

static void test_placeholders(void **state)
{
    (void)state;
    static const struct {
        const char *content, *said, *error;
    } cases[] = {
        {"plain", "plain", NULL},
        {"", "", NULL},
        {"{ {} }} {", "{ {} }} {", NULL},
        {"{{clock}}{{clock:%d}}", "2024-06-03T14:32:00Z03", NULL},
        {"a {{text:doc}} b", "a {{clock}} {{text:none}} b", NULL}, /* not read again */
        {"{{text:sys}}", "Today is 03.", NULL},
        {"{{text:both}}", "own", NULL},
        {"{{text:nest}}", NULL, "text 'nest': text 'sys' is a template"},
        {"{{text:self}}", NULL, "text 'self': text 'self' is a template"},
        {"{{text:none}}", NULL, "there is no text 'none'"},
        {"{{text:}}", NULL, "is no placeholder"},
        {"{{clock:%Q}}", NULL, "'%Q' is not known"},
        {"{{clock:%}}", NULL, "'%' is not known"},
        {"{{", NULL, "is no placeholder"},
        {"{{clock", NULL, "is no placeholder"},
        {"{{ clock }}", NULL, "is no placeholder"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        static const char form[] =
            "{\"schema\": \"" DS_INPUTS_SCHEMA
            "\", \"clock\": \"2024-06-03T14:32:00Z\", \"texts\": {"
            "\"doc\": {\"text\": \"{{clock}} {{text:none}}\"}, \"both\": {\"text\": \"shared\"},"
            "\"sys\": {\"text\": \"Today is {{clock:%%d}}.\", \"template\": true},"
            "\"nest\": {\"text\": \"{{text:sys}}\", \"template\": true},"
            "\"self\": {\"text\": \"{{text:self}}\", \"template\": true}},"
            "\"requests\": [{\"id\": \"a\", \"texts\": {\"both\": {\"text\": \"own\"}},"
            "\"turns\": [{\"content\": \"%s\"}]}]}";
        char text[2048];
        struct ds_inputs in;
        struct ds_inputs_scope scope;
        struct ds_error err;
        struct ds_buf out = {0};
        const int n = snprintf(text, sizeof text, form, cases[i].content);
        const int rc = ds_inputs_parse("f", text, (size_t)n, NULL, &in, &err);
        if (cases[i].error) {
            if (rc == 0 || !strstr(err.msg, cases[i].error))
                print_error("'%s': %s\n", cases[i].content, rc == 0 ? "taken" : err.msg);
            assert_int_equal(rc, -1);
            assert_non_null(strstr(err.msg, cases[i].error));
            assert_non_null(strstr(err.msg, "f: request 'a': turn 0: "));
            continue;
        }
        assert_ok(rc, err);
        const json_t *turn = json_array_get(
            json_object_get(json_array_get(json_object_get(in.doc, "requests"), 0), "turns"), 0);
        assert_ok(ds_inputs_scope_of(&in, 0, &scope, &err), err);
        assert_ok(ds_inputs_said(&scope, turn, &out, &err), err);
        assert_string_equal(out.data, cases[i].said);
        ds_buf_free(&out);
        ds_inputs_free(&in);
    }
}

/* ---- following --------------------------------------------------------------------------------- */

/* Calls of two conversations: two calls, of which the first has 2 tokens recorded and the second 1; and one call of 1.
 * Steps of their requests, copy by copy. */
static void test_following(void **state)
{
    (void)state;
    static int32_t one[] = {4, 5}, two[] = {6}, other[] = {7};
    const struct ds_inputs_call calls[] = {
        {.id = "a", .turn = 1, .first = 0, .expect = one, .n_expect = 2},
        {.id = "a", .turn = 3, .first = 0, .expect = two, .n_expect = 1},
        {.id = "b", .turn = 1, .first = 2, .expect = other, .n_expect = 1}};
    static const struct {
        int32_t request, step, token;
    } said[] = {{0, 0, 4}, {0, 1, 5}, {1, 0, 6}, {2, 0, 7}, /* follows; follows */
                {3, 0, 4}, {3, 1, 9}, {4, 0, 6}, {5, 0, 8}, /* stops at token 1; at token 0 */
                {6, 0, 4}, {6, 1, 5}, {7, 0, 9}, {8, 0, 7}, /* stops at its second call; follows */
                {9, 0, 4}};                                 /* cut short */
    struct ds_step steps[COUNT(said)];
    struct ds_trial_data t = {.steps = steps, .n_steps = COUNT(said)};
    struct ds_inputs_followed *f;
    struct ds_error err;
    size_t n;
    for (size_t i = 0; i < COUNT(said); i++) {
        steps[i] = (struct ds_step){
            .request = said[i].request, .step = said[i].step, .token = said[i].token, .ties = 1};
        for (int k = 0; k < DS_TOP; k++)
            steps[i].ids[k] = k == 0 ? said[i].token : -1;
    }
    steps[5].ids[2] = 5; /* the recorded token stands third */
    steps[5].logits[0] = 3.0f;
    steps[5].logits[2] = 2.5f;
    steps[5].margin = 0.25f;
    assert_ok(ds_inputs_judge(calls, 3, &t, 10, &f, &n, &err), err);
    assert_int_equal(n, 2);
    assert_int_equal(f[0].copies, 4);
    assert_int_equal(f[0].followed, 1);
    assert_int_equal(f[0].parted, 2);
    assert_int_equal(f[0].judged, 2 + 1 + 2);
    assert_int_equal(f[0].left_out, 1 + 2); /* behind the parting; the copy that was cut short */
    assert_int_equal(f[0].call, 0);
    assert_int_equal(f[0].request, 3);
    assert_int_equal(f[0].token, 1);
    assert_int_equal(f[0].id, 9);
    assert_int_equal(f[0].expected, 5);
    assert_close("margin", 0, (double)f[0].margin, 0.25, 0);
    assert_close("behind", 0, f[0].behind, 0.5, 0);
    assert_int_equal(f[1].copies, 3);
    assert_int_equal(f[1].followed, 2);
    assert_int_equal(f[1].parted, 1);
    assert_true(isnan(f[1].behind));
    free(f);
}

static void test_what_differs(void **state)
{
    (void)state;
    static const char
        a[] = "{\"schema\": \"" DS_INPUTS_SCHEMA "\", \"clock\": 0, \"texts\": {\"t\": "
              "{\"text\": \"x\"}, \"gone\": {\"text\": \"y\"}}, \"requests\": [{\"id\": \"r\", "
              "\"turns\": [{\"tokens\": [1]}]}, {\"id\": \"s\", \"turns\": [{\"tokens\": [1]}]}]}",
        b[] = "{\"schema\": \"" DS_INPUTS_SCHEMA "\", \"clock\": 1, \"texts\": {\"t\": "
              "{\"text\": \"z\"}, \"new\": {\"text\": \"y\"}}, \"requests\": [{\"id\": \"r\", "
              "\"turns\": [{\"tokens\": [1]}, {\"expect\": [2]}]}, {\"id\": \"q\", \"turns\": "
              "[{\"tokens\": [1]}]}]}";
    static const char *const lines[] = {"clock was 1970-01-01T00:00:00Z, is 1970-01-01T00:00:01Z\n",
                                        "text t was ",
                                        "text gone was ",
                                        ", is not there\n",
                                        "text new was not there, is ",
                                        "request 'r': turn 1 was not there, is this one\n",
                                        "request s was there, is not there\n",
                                        "request q was not there, is there\n"};
    struct ds_inputs x, y;
    struct ds_error err;
    struct ds_buf out = {0};
    assert_ok(ds_inputs_parse("a", a, strlen(a), NULL, &x, &err), err);
    assert_ok(ds_inputs_parse("b", b, strlen(b), NULL, &y, &err), err);
    assert_ok(ds_inputs_changes(&x, &y, &out, &err), err);
    for (size_t i = 0; i < COUNT(lines); i++)
        assert_non_null(strstr(out.data, lines[i]));
    ds_buf_free(&out);
    ds_inputs_free(&x);
    ds_inputs_free(&y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clocks),
        cmocka_unit_test(test_placeholders),
        cmocka_unit_test(test_following),
        cmocka_unit_test(test_what_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
