/* test_doctor_shell.c: launch lines as a shell reads them: words, variables, commands. */
#include "tests/unit/cli/doctor_lines.h"

static void test_words_are_those_of_a_shell(void **state)
{
    (void)state;
    static const struct {
        const char *text, *flag, *want; /* want NULL: the flag is not there */
    } cases[] = {
        {"vllm serve m --seed 7", "--seed=", "7"},
        {"vllm serve m --seed=7", "--seed=", "7"},
        {"vllm serve m --seed 1 --seed 7", "--seed=", "7"},
        {"vllm serve m --seed '7'", "--seed=", "7"},
        {"vllm serve m --seed \"7\"", "--seed=", "7"},
        {"vllm serve m --se\\ed 7", "--seed=", "7"},
        {"vllm serve m \\\n  --seed 7", "--seed=", "7"},
        {"vllm serve m \\\r\n  --seed 7", "--seed=", "7"},
        {"vllm serve m # --seed 7", "--seed=", NULL},
        {"vllm serve m#1 --seed 7", "--seed=", "7"},
        {"vllm serve m '# --seed' --seed 7", "--seed=", "7"},
        {"vllm serve m >log --seed 7 2>&1", "--seed=", "7"},
        {"vllm serve m --seed 7>log", "--seed=", ""}, /* 7> is a redirection */
        {"vllm serve m &>'a log' --seed 7", "--seed=", "7"},
        {"vllm serve m; echo --seed 7", "--seed=", NULL},
        {"vllm serve m && echo --seed 7", "--seed=", NULL},
        {"vllm serve m --max_num_seqs 4", "--max-num-seqs=", "4"},
        {"vllm serve m --name=--seed 7", "--seed=", NULL},
        {"llama-cli -m m -s -1", "--seed=|-s=", "-1"},
        {"llama-cli -m m -fa -ngl 3", "--flash-attn=|-fa=", ""},
        {"llama-server -m m --no-cache-prompt", "--cache-prompt|!--no-cache-prompt", "off"},
        {"llama-server --no-cache-prompt --cache-prompt", "--cache-prompt|!--no-cache-prompt",
         "on"},
        {"S=7\nvllm serve m --seed $S", "--seed=", "7"},
        {"S=7\nvllm serve m --seed ${S}1", "--seed=", "71"},
        {"S=7\nvllm serve m --seed \"$S\"", "--seed=", "7"},
        {"S=7\nvllm serve m --seed '$S'", "--seed=", "$S"},
        {"vllm serve m --seed ${NOBODY_SET_THIS:-9}", "--seed=", "9"},
        {"S=\nvllm serve m --seed ${S:-9}", "--seed=", "9"},
        {"S=\nvllm serve m --seed ${S-9}", "--seed=", ""},
        {"vllm serve m --seed $NOBODY_SET_THIS", "--seed=", "$NOBODY_SET_THIS"},
        {"vllm serve m --seed $(( 1 + $RANK ))", "--seed=", "$(( 1 + $RANK ))"},
        {"vllm serve m --seed `cat seed`", "--seed=", "`cat seed`"},
        {"python3 -m vllm.entrypoints.openai.api_server --seed 7", "--seed=", "7"},
        {"/opt/bin/python -m sglang.launch_server --random-seed 7", "--random-seed=", "7"},
        {"numactl -N 0 nice -n 5 /usr/bin/llama-server --seed 7", "--seed=", "7"},
        {"for i in 0 1; do vllm serve m --seed $i; done", "--seed=", "$i"},
        {"docker run --gpus all vllm/vllm-openai:v0.11.0 --model m --seed 7", "--seed=", "7"},
        {"docker run lmsysorg/sglang python3 -m sglang.launch_server --seed 7", "--seed=", "7"},
        {"(vllm serve m --seed 7)", "--seed=", "7"},
        /* $NAME without quotes is as many words as it holds, or none */
        {"A='--seed 7'\nvllm serve m $A", "--seed=", "7"},
        {"A='--seed 7 --x'\nvllm serve m ${A}", "--seed=", "7"},
        {"A='--seed 7'\nvllm serve m \"$A\"", "--seed=", NULL},
        {"A='x y'\nB=$A\nvllm serve m --seed \"$B\"", "--seed=", "x y"},
        {"A='x y'\nexport B=$A\nvllm serve m --seed \"$B\"", "--seed=", "x y"},
        {"A=\nvllm serve m $A --seed 7", "--seed=", "7"},
        {"vllm serve m ${NOBODY_SET_THIS:---seed 9}", "--seed=", "9"},
        /* argparse takes the beginning of a flag, and vLLM a key of JSON; llama.cpp neither */
        {"vllm serve m --max-num-se=3", "--max-num-seqs=", "3"},
        {"sglang serve --tensor-parallel 2", "--tensor-parallel-size=|--tp-size=|--tp=", "2"},
        {"llama-cli --see 7", "--seed=|-s=", NULL},
        {"vllm serve m --disable-cuda-graph", "--disable-cuda-graph-padding", "on"},
        {"sglang serve --disable-cuda-graph", "--disable-cuda-graph-padding", NULL},
        {"vllm serve m --speculative-config.method=ngram", "--speculative-config=", "method=ngram"},
        {"vllm serve m --speculative_config.method ngram", "--speculative-config=", "method"},
        {"sglang serve --speculative-config.method ngram", "--speculative-config=", NULL},
        /* here-documents are no commands, unless they are scripts; nor is what a shell is given */
        {"cat <<EOF >x\ndon't\nEOF\nvllm serve m --seed 7", "--seed=", "7"},
        {"cat <<-'E F'\n\tdon't\n\tE F\nvllm serve m --seed 7", "--seed=", "7"},
        {"cat <<A; cat <<\\B\n'\nA\n\"\nB\nvllm serve m --seed 7", "--seed=", "7"},
        {"cat <<<'a b' && vllm serve m --seed 7", "--seed=", "7"},
        {"S=7\nbash <<EOF\nvllm serve m --seed $S\nEOF\n", "--seed=", "7"},
        {"bash <<EOF\nvllm serve m --seed 7", "--seed=", "7"},
        {"bash -lc 'vllm serve m --seed 7'", "--seed=", "7"},
        {"export S=7\nsh -c 'vllm serve m --seed $S'", "--seed=", "7"},
        {"S=6\nsh -c 'vllm serve m --seed ${S:-7}'", "--seed=", "7"},
        {"srun --gpus 1 bash -c \"cd x && exec vllm serve m --seed 7\"", "--seed=", "7"},
        {"sh -c \"sh -c 'vllm serve m --seed 7'\"", "--seed=", "7"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct ds_doctor_commands c;
        const char *want = cases[i].want;
        parse(cases[i].text, &c);
        assert_int_equal(c.n, 1);
        const char *got = ds_doctor_flag(&c.at[0], cases[i].flag);
        if ((got == NULL) != (want == NULL) || (got && strcmp(got, want) != 0)) {
            print_error("%s: got %s, want %s\n", cases[i].text, got ? got : "nothing",
                        want ? want : "nothing");
            fail();
        }
        ds_doctor_commands_free(&c);
    }
}

static void test_variables_are_those_that_the_command_gets(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"DS_TEST=a vllm serve m", "a"},
        {"DS_TEST=a nohup vllm serve m", "a"},
        {"env DS_TEST=a vllm serve m", "a"},
        {"export DS_TEST=a\nvllm serve m", "a"},
        {"DS_TEST=a\nexport DS_TEST\nvllm serve m", "a"},
        {"DS_TEST=a\nvllm serve m", "outer"},
        {"export DS_TEST=a; DS_TEST=b vllm serve m", "b"},
        {"vllm serve m", "outer"},
        {"env -i vllm serve m", NULL},
        {"env -u DS_TEST vllm serve m", NULL},
        {"vllm serve DS_TEST=a", "outer"},
        {"docker run vllm/vllm-openai --model m", NULL},
        {"docker run -e DS_TEST=a vllm/vllm-openai --model m", "a"},
        {"docker run --env=DS_TEST=a vllm/vllm-openai --model m", "a"},
        {"docker run --env DS_TEST vllm/vllm-openai --model m", "outer"},
        {"docker run -eDS_TEST=a vllm/vllm-openai --model m", "a"},
        {"docker run -e=DS_TEST=a vllm/vllm-openai --model m", "a"},
        {"docker run -e DS_TEST=a x bash -c 'vllm serve m'", "a"},
        {"docker run x bash -c 'vllm serve m'", NULL},
        {"docker run -e DS_TEST=a x bash -c 'DS_TEST=b vllm serve m'", "b"},
        {"env --unset=DS_TEST vllm serve m", NULL},
        {"export DS_TEST=a\nunset DS_TEST\nvllm serve m", NULL},
        {"unset DS_TEST\nvllm serve m", NULL},
        {"unset DS_TEST\nexport DS_TEST=b\nvllm serve m", "b"},
        {"unset DS_TEST\nbash -c 'vllm serve m'", NULL},
        {"declare -x DS_TEST=a\nvllm serve m", "a"},
        {"declare DS_TEST=a\nvllm serve m", "outer"},
        {"set -a\nDS_TEST=a\nvllm serve m", "a"},
        {"set -a\nset +a\nDS_TEST=a\nvllm serve m", "outer"},
        {"set -ex\nDS_TEST=a\nvllm serve m", "outer"},
        {"DS_TEST=a bash -c 'vllm serve m'", "a"},
        {"export DS_TEST=a\nbash -c 'vllm serve m'", "a"},
        {"DS_TEST=a\nbash -c 'vllm serve m'", "outer"},
        /* what a subshell sets is gone behind it */
        {"(export DS_TEST=a)\nvllm serve m", "outer"},
        {"(export DS_TEST=a; vllm serve m)", "a"},
        {"(cd x; (export DS_TEST=a); vllm serve m)", "outer"},
        {"export DS_TEST=b\n(unset DS_TEST; DS_TEST=a)\nvllm serve m", "b"},
        {"f() { echo; }\nexport DS_TEST=a\nvllm serve m", "a"},
        {"case x in\na) export DS_TEST=a;;\nesac\nvllm serve m", "a"},
        {"(export DS_TEST=a\nvllm serve m", "a"},
    };
    setenv("DS_TEST", "outer", 1);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct ds_doctor_commands c;
        parse(cases[i].text, &c);
        assert_int_equal(c.n, 1);
        const char *got = ds_doctor_variable(&c.at[0], "DS_TEST");
        if ((got == NULL) != (cases[i].want == NULL) || (got && strcmp(got, cases[i].want) != 0)) {
            print_error("%s: got %s\n", cases[i].text, got ? got : "nothing");
            fail();
        }
        ds_doctor_commands_free(&c);
    }
    unsetenv("DS_TEST");
}

static void test_commands_are_told_apart(void **state)
{
    (void)state;
    struct ds_doctor_commands c;
    struct ds_error err;
    parse(
        "#!/bin/sh\ncd /srv\nexport A=1\n\nvllm serve m &\nllama-server -m m \\\n -s 1 | tee log\n"
        "sglang serve --model-path m\nllama-cli -m m\nllama-completion -m m\n",
        &c);
    assert_int_equal(c.n, 5);
    assert_int_equal(c.others, 2); /* cd, tee */
    static const unsigned engines[] = {DS_DOCTOR_VLLM, DS_DOCTOR_LLAMA_SERVER, DS_DOCTOR_SGLANG,
                                       DS_DOCTOR_LLAMA_CLI, DS_DOCTOR_LLAMA_CLI};
    static const size_t lines[] = {5, 6, 8, 9, 10};
    for (size_t i = 0; i < c.n; i++) {
        assert_int_equal(c.at[i].engine, engines[i]);
        assert_int_equal(c.at[i].line, lines[i]);
    }
    ds_doctor_commands_free(&c);
    const char *const one[] = {"vllm serve 'a b' --seed 2"}, *const split[] = {"vllm", "serve",
                                                                               "a b"};
    assert_ok(ds_doctor_argv(one, 1, &c, &err), err);
    assert_int_equal(c.n, 1);
    assert_string_equal(c.at[0].words[2], "a b");
    ds_doctor_commands_free(&c);
    assert_ok(ds_doctor_argv(split, 3, &c, &err), err);
    assert_int_equal(c.n, 1);
    assert_string_equal(c.at[0].words[2], "a b");
    ds_doctor_commands_free(&c);
    const char *open = "cd\nvllm serve 'm\n--seed 1";
    assert_int_equal(ds_doctor_parse("s.sh", open, strlen(open), &c, &err), -1);
    assert_non_null(strstr(err.msg, "s.sh, line 2: a quote (') is not closed"));
    ds_doctor_commands_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_are_those_of_a_shell),
        cmocka_unit_test(test_variables_are_those_that_the_command_gets),
        cmocka_unit_test(test_commands_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
