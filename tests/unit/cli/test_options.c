/* test_options.c: the parse of the command line, its suggestions, and what is made from the option
 * table. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "cli/options.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ARGS = 16 };

/* Splits at blanks; "" in the text stands for an empty argument. */
static int split(char *line, char **argv)
{
    int argc = 0;
    for (char *save = NULL, *p = strtok_r(line, " ", &save); p && argc < MAX_ARGS;
         p = strtok_r(NULL, " ", &save))
        argv[argc++] = strcmp(p, "\"\"") == 0 ? p + 2 : p;
    argv[argc] = NULL;
    return argc;
}

static char args_space[512];
static char *args[MAX_ARGS + 1];

static int parse(const char *line, struct ds_options *o, struct ds_error *err)
{
    snprintf(args_space, sizeof args_space, "driftscope %s", line);
    memset(err, 0, sizeof *err);
    return ds_options_parse(split(args_space, args), args, o, err);
}

static void test_every_syntax_gives_the_value(void **state)
{
    (void)state;
    static const struct {
        const char *line, *option, *value;
    } cases[] = {
        {"run --steps 5", "steps", "5"},
        {"run --steps=5", "steps", "5"},
        {"run -n 5", "steps", "5"},
        {"run -n5", "steps", "5"},
        {"run -qn5", "steps", "5"},
        {"run -qn 5", "steps", "5"},
        {"run -n 4 -n 5", "steps", "5"},
        {"run", "steps", "8"},
        {"run", "blas-core", NULL},
        {"run -- ", "batch", "1,2,3,4,8,16"},
        {"run --batch 1,7", "batch", "1,7"},
        {"run --slot first,3,last", "slot", "first,3,last"},
        {"run --threads 1,all", "threads", "1,all"},
        {"run --hold 512M", "hold", "512M"},
        {"run -p \"\"", "prompt", ""},
        {"run --prompt=--chat", "prompt", "--chat"},
        {"run --prompt=a=b", "prompt", "a=b"},
        {"run -p -", "prompt", "-"},
        {"-o x run", "output", "x"},
        {"run -o x", "output", "x"},
        {"--color=never run", "color", "never"},
        {"run --kernels vendor,vendor+attention=pinned,pinned", "kernels",
         "vendor,vendor+attention=pinned,pinned"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_options o;
        struct ds_error err;
        if (parse(cases[i].line, &o, &err) != 0)
            fail_msg("%s: %s", cases[i].line, err.msg);
        const char *got = ds_opt_text(&o, cases[i].option);
        if ((got == NULL) != (cases[i].value == NULL) || (got && strcmp(got, cases[i].value) != 0))
            fail_msg("%s: --%s is '%s'", cases[i].line, cases[i].option, got ? got : "(null)");
        ds_options_free(&o);
    }
}

static void test_flags_repeats_and_operands(void **state)
{
    (void)state;
    struct ds_options o;
    struct ds_error err;
    assert_ok(parse("--json run -p a --prompt b --free -pc --no-free -q", &o, &err), err);
    assert_true(ds_opt_flag(&o, "json"));
    assert_true(ds_opt_flag(&o, "quiet"));
    assert_false(ds_opt_flag(&o, "free"));
    assert_true(ds_opt_given(&o, "free"));
    assert_false(ds_opt_given(&o, "batch"));
    assert_int_equal(ds_opt_count(&o, "prompt"), 3);
    assert_string_equal(ds_opt_at(&o, "prompt", 0), "a");
    assert_string_equal(ds_opt_at(&o, "prompt", 2), "c");
    assert_null(ds_opt_at(&o, "prompt", 3));
    ds_options_free(&o);

    assert_ok(parse("run --no-record", &o, &err), err);
    assert_true(ds_opt_flag(&o, "no-record"));
    ds_options_free(&o);

    assert_ok(parse("help -q -- kernels", &o, &err), err);
    assert_int_equal(ds_opt_operands(&o), 1);
    assert_string_equal(ds_opt_operand(&o, 0), "kernels");
    assert_null(ds_opt_operand(&o, 1));
    ds_options_free(&o);
}

static void test_numbers_and_sizes(void **state)
{
    (void)state;
    struct ds_options o;
    struct ds_error err;
    int64_t n;
    uint64_t bytes;
    assert_ok(parse("run -n 12 --hold 3K", &o, &err), err);
    assert_ok(ds_opt_int(&o, "steps", 0, 100, &n, &err), err);
    assert_int_equal(n, 12);
    assert_int_equal(ds_opt_int(&o, "steps", 0, 11, &n, &err), -1);
    assert_non_null(strstr(err.msg, "--steps"));
    assert_ok(ds_opt_size(&o, "hold", &bytes, &err), err);
    assert_int_equal(bytes, 3072);
    ds_options_free(&o);
    static const struct {
        const char *line;
        uint64_t bytes;
    } sizes[] = {{"run", 2ull << 30},           {"run --hold 17", 17},
                 {"run --hold 1g", 1ull << 30}, {"run --hold 8T", 8ull << 40},
                 {"run --hold 0", 0},           {"run --hold 9223372036854775807", INT64_MAX}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_ok(parse(sizes[i].line, &o, &err), err);
        assert_ok(ds_opt_size(&o, "hold", &bytes, &err), err);
        assert_true(bytes == sizes[i].bytes);
        ds_options_free(&o);
    }
}

/* What is wrong, and what the message and the hint must name. */
static void test_mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *line, *msg, *hint;
    } cases[] = {
        {"", "no verb given", "driftscope -h"},
        {"rnu", "unknown verb 'rnu'", "'run'"},
        {"kernel", "unknown verb 'kernel'", "'kernels'"},
        {"ker", "unknown verb 'ker'", "'kernels'"},
        {"zzzzzz", "unknown verb", "lists the verbs"},
        {"run --bacth 1", "unknown option '--bacth'", "'--batch'"},
        {"run --neigh copies", "unknown option '--neigh'", "'--neighbours'"},
        {"run --no-sutch", "unknown option '--no-sutch'", "lists the options"},
        {"run --no-batch", "unknown option '--no-batch'", "'--batch'"},
        {"show --no-help", "unknown option '--no-help'", "'--help'"},
        {"run --no-help", "unknown option '--no-help'", "'--help'"},
        {"run --no-hold", "unknown option '--no-hold'", "'--hold'"},
        {"run --no-hael", "unknown option '--no-hael'", "'--no-heal'"},
        {"run -Z", "unknown option '-Z'", "lists the options"},
        {"run --batch", "needs a value", "--batch LIST"},
        {"run --batch --json", "'--json' follows", "--batch=--json"},
        {"run -p -q", "'-q' follows", "--prompt=-q"},
        {"run --batch=", "'--batch'", "LIST"},
        {"run --batch 1,,2", "'--batch' has an empty value", "LIST"},
        {"run --batch 1,", "'--batch' has an empty value", "LIST"},
        {"run --batch 0", "bad value '0'", "1..4096"},
        {"run --batch 1,x", "bad value 'x'", "1..4096"},
        {"run --batch 99999999999999999999", "bad value", "1..4096"},
        {"run --batch +1", "bad value '+1'", "1..4096"},
        {"run --batch 0x4", "bad value '0x4'", "1..4096"},
        {"run --batch 4,1,4", "value '4' is there twice", "--repeat"},
        {"run --batch 4,04", "is there twice", "--repeat"},
        {"run --slot frist", "bad value 'frist'", "'first'"},
        {"run --mode prefil", "bad value 'prefil'", "'prefill'"},
        {"run --dump everything", "bad value 'everything'", "none, first, origins or all"},
        {"run --hold 2X", "bad value '2X'", "512M or 2G"},
        {"run --hold -1", "bad value '-1'", "512M or 2G"},
        {"run --hold G", "bad value 'G'", "512M or 2G"},
        {"run --hold 9999999999T", "bad value", "512M or 2G"},
        {"run --json=1", "'--json' takes no value", ""},
        {"run --color=sometimes", "bad value 'sometimes'", "auto, always or never"},
        {"run --error-exit 1", "bad value '1'", "2..255"},
        {"run x", "'run' has no use for 'x'", "usage: driftscope run"},
        {"help --batch 1", "'help' takes no option '--batch'", "run, bisect, lock"},
        {"--batch 1 run", "comes before the verb", "driftscope run --batch"},
        {"-n 1 run", "comes before the verb", "driftscope run -n"},
        {"run -o", "'--output' needs a value", "FILE"},
        {"run -o \"\"", "'--output' has an empty value", "FILE"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_options o;
        struct ds_error err;
        if (parse(cases[i].line, &o, &err) != -1)
            fail_msg("'%s' is accepted", cases[i].line);
        if (!strstr(err.msg, cases[i].msg) || !strstr(err.hint, cases[i].hint))
            fail_msg("'%s': %s (hint: %s)", cases[i].line, err.msg, err.hint);
        ds_options_free(&o);
    }
}

static void test_help_stops_the_parse(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum ds_action action;
        enum ds_verb_id verb;
    } cases[] = {
        {"-h", DS_ACTION_HELP_SHORT, DS_VERB_NONE},
        {"--help", DS_ACTION_HELP_LONG, DS_VERB_NONE},
        {"run -h", DS_ACTION_HELP_SHORT, DS_VERB_RUN},
        {"run -qh", DS_ACTION_HELP_SHORT, DS_VERB_RUN},
        {"-h run", DS_ACTION_HELP_SHORT, DS_VERB_RUN},
        {"run --help --bogus", DS_ACTION_HELP_LONG, DS_VERB_RUN},
        {"--version", DS_ACTION_VERSION, DS_VERB_NONE},
        {"run --version", DS_ACTION_VERSION, DS_VERB_RUN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_options o;
        struct ds_error err;
        assert_ok(parse(cases[i].line, &o, &err), err);
        assert_int_equal(o.action, cases[i].action);
        assert_int_equal(o.verb, cases[i].verb);
        ds_options_free(&o);
    }
}

static void test_error_exit_holds_for_earlier_mistakes(void **state)
{
    (void)state;
    struct ds_options o;
    struct ds_error err;
    assert_int_equal(parse("run --bogus --error-exit=125", &o, &err), -1);
    assert_int_equal(o.error_exit, 125);
    ds_options_free(&o);
    assert_int_equal(parse("rnu --error-exit 77", &o, &err), -1);
    assert_int_equal(o.error_exit, 77);
    ds_options_free(&o);
    assert_int_equal(parse("run --error-exit 0", &o, &err), -1);
    assert_int_equal(o.error_exit, 2);
    ds_options_free(&o);
}

static void test_command_reads_back_in_a_shell(void **state)
{
    (void)state;
    char *argv[] = {"driftscope", "run",        "-p", "it's \"so\" $HOME", "-p", "",
                    "-o",         "plain/a.h5", "-p", "\xc3\xa9",          NULL};
    char *odd[] = {"driftscope", "run", "-p", "a\x1b[2J\\'\xff\n", NULL};
    struct ds_options o;
    struct ds_error err;
    assert_ok(ds_options_parse(10, argv, &o, &err), err);
    assert_string_equal(
        ds_opt_command(&o),
        "driftscope run -p 'it'\\''s \"so\" $HOME' -p '' -o plain/a.h5 -p '\xc3\xa9'");
    ds_options_free(&o);
    assert_ok(ds_options_parse(4, odd, &o, &err), err);
    assert_string_equal(ds_opt_command(&o), "driftscope run -p $'a\\x1b[2J\\\\\\'\\xff\\n'");
    ds_options_free(&o);
}

static void test_huge_and_broken_arguments(void **state)
{
    (void)state;
    enum { N = 20000, LONG = 200000 };
    struct ds_options o;
    struct ds_error err;
    char **argv = calloc(N + 3, sizeof *argv), *text = malloc(LONG + 1);
    assert_non_null(argv);
    assert_non_null(text);
    argv[0] = "driftscope";
    argv[1] = "run";
    for (int i = 2; i < N + 2; i += 2) {
        argv[i] = "-p";
        argv[i + 1] = "x";
    }
    assert_ok(ds_options_parse(N + 2, argv, &o, &err), err);
    assert_int_equal(ds_opt_count(&o, "prompt"), N / 2);
    ds_options_free(&o);

    static const char *const before[] = {
        "--", "-", "", "--batch=", "--kernels=", "--hold=", "--slot="};
    for (size_t k = 0; k < sizeof before / sizeof before[0]; k++)
        for (int fill = 0; fill < 3; fill++) {
            memset(text, "7\xff,"[fill], LONG);
            memcpy(text, before[k], strlen(before[k]));
            text[LONG] = '\0';
            char *line[] = {"driftscope", "run", text, NULL};
            int rc = ds_options_parse(3, line, &o, &err);
            /* A kernel set may have any name; nothing else here means anything. */
            assert_int_equal(rc, k == 4 && fill < 2 ? 0 : -1);
            ds_options_free(&o);
        }
    /* More values than a factor may have: "1,2,3,...". */
    size_t n = (size_t)snprintf(text, LONG, "--batch=1");
    for (int i = 2; i <= 300; i++)
        n += (size_t)snprintf(text + n, LONG - n, ",%d", i);
    char *line[] = {"driftscope", "run", text, NULL};
    assert_int_equal(ds_options_parse(3, line, &o, &err), -1);
    assert_non_null(strstr(err.msg, "more than 256"));
    ds_options_free(&o);
    free(argv);
    free(text);
}

static void test_allocation_failures_are_errors(void **state)
{
    (void)state;
    struct ds_options o;
    struct ds_error err;
    int rc = -1;
    for (int n = 1; n < 40 && rc != 0; n++) {
        ds_mem_fail_at(n);
        rc = parse("-q help -q kernels", &o, &err);
        ds_mem_fail_at(0);
        if (rc != 0)
            assert_non_null(strstr(err.msg, "out of memory"));
        ds_options_free(&o);
    }
    assert_int_equal(rc, 0);
}

static void test_table_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; i < ds_option_count; i++) {
        const struct ds_option_def *d = &ds_option_defs[i];
        for (size_t j = i + 1; j < ds_option_count; j++) {
            const struct ds_option_def *e = &ds_option_defs[j];
            if (!(d->verbs & e->verbs))
                continue;
            assert_string_not_equal(d->name, e->name);
            assert_false(d->letter && d->letter == e->letter);
        }
        assert_true(d->help[0] != '\0' && d->help[strlen(d->help) - 1] != '.');
        assert_true(d->arg || (!d->dflt && !d->words && !d->shape));
        assert_true(ds_option_section(d)[0] != '\0');
        /* Every default must pass its own check. */
        for (size_t v = 0; d->dflt && v < ds_verb_count; v++)
            if (ds_option_takes(ds_verbs[v].id, d) && ds_verbs[v].min_operands == 0) {
                struct ds_options o;
                struct ds_error err;
                char line[128];
                snprintf(line, sizeof line, "%s --%s=%s", ds_verbs[v].name, d->name, d->dflt);
                assert_ok(parse(line, &o, &err), err);
                ds_options_free(&o);
            }
    }
    for (size_t v = 0; v < ds_verb_count; v++)
        for (const char *const *e = ds_verbs[v].examples; e[0]; e += 2) {
            assert_non_null(e[1]);
            assert_memory_equal(e[0], "driftscope ", 11);
        }
}

/* An example is a command that the parser takes, up to where the shell reads on ("> FILE"). */
static void test_examples_are_commands(void **state)
{
    (void)state;
    for (size_t v = 0; v < ds_verb_count; v++)
        for (const char *const *e = ds_verbs[v].examples; e[0]; e += 2) {
            char line[512];
            struct ds_options o;
            struct ds_error err;
            assert_non_null(e[1]);
            snprintf(line, sizeof line, "%s", e[0] + strlen("driftscope "));
            line[strcspn(line, ">")] = '\0';
            /* A text in quotes with blanks in it: one word is enough here. */
            for (char *q = strchr(line, '\''), *end; q && (end = strchr(q + 1, '\'')); q = NULL)
                memset(q, 'x', (size_t)(end - q) + 1);
            if (parse(line, &o, &err) != 0)
                fail_msg("%s: %s", e[0], err.msg);
            assert_int_equal(o.verb, ds_verbs[v].id);
            assert_true(ds_opt_operands(&o) >= (size_t)ds_verbs[v].min_operands);
            ds_options_free(&o);
        }
}

/* Every option and verb appears in every text made from the table. */
static void test_generated_texts_name_everything(void **state)
{
    (void)state;
    struct ds_buf texts[5];
    memset(texts, 0, sizeof texts);
    ds_help_man(&texts[0]);
    ds_help_markdown(&texts[1]);
    assert_int_equal(ds_help_completion(&texts[2], "bash"), 0);
    assert_int_equal(ds_help_completion(&texts[3], "zsh"), 0);
    assert_int_equal(ds_help_completion(&texts[4], "fish"), 0);
    assert_int_equal(ds_help_completion(&texts[4], "csh"), -1);
    for (int t = 0; t < 5; t++) {
        assert_false(texts[t].failed);
        for (size_t v = 0; v < ds_verb_count; v++)
            assert_non_null(strstr(texts[t].data, ds_verbs[v].name));
        for (size_t i = 0; i < ds_option_count; i++) {
            const struct ds_option_def *d = &ds_option_defs[i];
            int shown = 0;
            char word[64], roff[128], *p = roff;
            for (size_t v = 0; v < ds_verb_count; v++)
                shown |= ds_option_takes(ds_verbs[v].id, d);
            snprintf(word, sizeof word, t == 4 ? "-l %s " : "--%s", d->name);
            for (const char *q = word; *q; q++) {
                if (t == 0 && *q == '-')
                    *p++ = '\\';
                *p++ = *q;
            }
            *p = '\0';
            if (shown && !strstr(texts[t].data, roff))
                fail_msg("text %d lacks %s", t, roff);
        }
        ds_buf_free(&texts[t]);
    }
    /* The verbs of a group stand together, so that its heading is there once. */
    struct ds_buf all = {0};
    ds_help_short(&all, DS_VERB_NONE);
    for (int g = 0; g < DS_GROUPS; g++) {
        const char *at = strstr(all.data, ds_group_headings[g]);
        assert_non_null(at);
        assert_null(strstr(at + 1, ds_group_headings[g]));
    }
    ds_buf_free(&all);
    for (size_t v = 0; v < ds_verb_count; v++) {
        struct ds_buf brief = {0}, full = {0};
        ds_help_short(&brief, ds_verbs[v].id);
        ds_help_long(&full, ds_verbs[v].id);
        for (size_t i = 0; i < ds_option_count; i++)
            if (ds_option_takes(ds_verbs[v].id, &ds_option_defs[i])) {
                assert_non_null(strstr(brief.data, ds_option_defs[i].name));
                assert_non_null(strstr(full.data, ds_option_defs[i].name));
            }
        /* Examples first, exit codes after the options. */
        assert_true(strstr(full.data, "Examples:") < strstr(full.data, "usage:"));
        assert_true(strstr(full.data, "Exit codes:") > strstr(full.data, "--version"));
        for (const char *line = full.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
            assert_true(end - line <= 100 && (end == line || end[-1] != ' '));
        ds_buf_free(&brief);
        ds_buf_free(&full);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_syntax_gives_the_value),
        cmocka_unit_test(test_flags_repeats_and_operands),
        cmocka_unit_test(test_numbers_and_sizes),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_help_stops_the_parse),
        cmocka_unit_test(test_error_exit_holds_for_earlier_mistakes),
        cmocka_unit_test(test_command_reads_back_in_a_shell),
        cmocka_unit_test(test_huge_and_broken_arguments),
        cmocka_unit_test(test_allocation_failures_are_errors),
        cmocka_unit_test(test_table_is_sound),
        cmocka_unit_test(test_examples_are_commands),
        cmocka_unit_test(test_generated_texts_name_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
