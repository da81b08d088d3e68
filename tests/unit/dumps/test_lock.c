/* test_lock.c: lines of locks, read and written; one entry held against another, case by case; memory that runs out. What
 * lock and verify make of whole runs is in tests/cli/test_lock.sh. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "dumps/lock.h"

#include <stdlib.h>
#include <string.h>

static const char question[] = "driftscope.lock 1\n"
                               "model digest 0123456789abcdef\n"
                               "arm 0 batch=1 kernels=vendor\n"
                               "arm 1 batch=4\n"
                               "prompt 0 1,2,3\n"
                               "text 0 two words \xc3\xa9\n"
                               "forced -\n";
static const char answer[] =
    "\nentry zen\n"
    "key 0123456789abcdef\n"
    "env blas_core Zen\n"
    "env kernel Linux\n"
    "kernel matmul/openblas 10\n"
    "class matmul/openblas batch 1,2|4\n"
    "class matmul/openblas repeat same\n"
    "class rope/reference batch ?\n"
    "origin matmul/openblas q_proj kind=rounding-order max_ulp=7 layers=2\n"
    "origin matmul/openblas gate kind=rounding-order max_ulp=? layers=2\n"
    "count rows 4\n"
    "run 0 0123456789abcdef\n"
    "run 1 unstable\n"
    "step 0 token=5 margin=0.5 noise=0 top=5:-0.5,7:-1\n"
    "step 1 token=9 margin=1e-3 noise=0\n"
    "tensor -1 embed embed/reference 0000000000000001\n"
    "tensor 0 q_proj matmul/openblas 0000000000000002\n"
    "tensor 0 kv_write/k cache/reference 0000000000000003\n"
    "tensor 0 up matmul/openblas unstable\n"
    "\nend\n";

static void read_lock(struct ds_lock *l, const char *text)
{
    struct ds_error err = {{0}, {0}};
    assert_ok(ds_lock_parse("a.lock", text, strlen(text), l, &err), err);
}

/* The question, and the answer with `from` (the first time that it stands there) as `to`. */
static void make_text(struct ds_buf *b, const char *from, const char *to)
{
    ds_buf_puts(b, question);
    const char *at = from ? strstr(answer, from) : NULL;
    assert_true(!from || at);
    if (at) {
        ds_buf_add(b, answer, (size_t)(at - answer));
        ds_buf_puts(b, to);
        ds_buf_puts(b, at + strlen(from));
    } else {
        ds_buf_puts(b, answer);
    }
    assert_false(b->failed);
}

static void test_what_is_written_is_what_was_read(void **state)
{
    (void)state;
    struct ds_buf text = {0}, out = {0};
    struct ds_lock l;
    make_text(&text, NULL, NULL);
    read_lock(&l, text.data);
    assert_int_equal(l.n_entries, 1);
    assert_string_equal(l.entries[0].name, "zen");
    assert_string_equal(ds_lock_get(&l.question, "text 0"), "two words \xc3\xa9");
    assert_string_equal(ds_lock_get(&l.entries[0].lines, "tensor 0 q_proj"),
                        "matmul/openblas 0000000000000002");
    assert_int_equal(ds_lock_find(&l.question, "arm 1")->line, 4);
    assert_null(ds_lock_get(&l.question, "arm"));
    ds_lock_text(&l, &out);
    assert_string_equal(out.data, text.data);
    ds_buf_free(&out);
    ds_buf_free(&text);
    ds_lock_free(&l);
}

static void test_words(void **state)
{
    (void)state;
    static const char *const texts[] = {"plain", "two words", "a,b|c\\x20", "\xc3\xa9\n\x7f",
                                        "layers=0-14:cpu0;15-:cpu1"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct ds_buf word = {0}, back = {0};
        ds_lock_word(&word, texts[i]);
        assert_null(strpbrk(word.data, " ,|\n"));
        ds_lock_unword(&back, word.data, word.len);
        assert_string_equal(back.data, texts[i]);
        ds_buf_free(&word);
        ds_buf_free(&back);
    }
}

/* Values, and whether they are taken. */
static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        int good;
    } cases[] = {
        {"1,2|4", "1|2|4", 1},
        {"1,2|4", "1,,4", 0},
        {"1,2|4", "|1", 0},
        {"1,2|4", "1 2", 0},
        {"1,2|4", "2|1,2", 0},
        {"max_ulp=7", "max_ulp=18446744073709551615", 1},
        {"max_ulp=7", "max_ulp=18446744073709551616", 0},
        {"max_ulp=7", "max_ulp=", 0},
        {"kind=rounding-order", "kind=", 0},
        {"kind=rounding-order", "kind=a-kind-that-is-longer-than-any", 0},
        {"layers=2", "layers=2 more", 0},
        {"layers=2", "layers=4294967296", 0},
        {"token=5 ", "token=2147483648 ", 0},
        {"margin=0.5", "margin=nan", 1},
        {"margin=0.5", "margin= 1", 0},
        {"top=5:-0.5,7:-1", "top=5:-0.5,", 0},
        {"top=5:-0.5,7:-1", "top=5:-0.5,7:-5E09213", 0}, /* infinitely far: no lock has it */
        {"top=5:-0.5,7:-1", "top=5:-0.5,7:nan", 0},
        {"top=5:-0.5,7:-1", "top=1:0,2:0,3:0,4:0,5:0,6:0,7:0,8:0", 1},
        {"top=5:-0.5,7:-1", "top=1:0,2:0,3:0,4:0,5:0,6:0,7:0,8:0,9:0", 0},
        {"run 1 unstable", "run 1 000000000000000G", 0},
        {"run 1 unstable", "run 1 00000000000000001", 0},
        {"run 1 unstable", "run 01 0000000000000001", 0},
        {"run 1 unstable", "run 1000000 0000000000000001", 0},
        {"tensor -1 embed embed/reference 0", "tensor -1 embed embed-reference 0", 0},
        {"tensor -1 embed embed/reference 0", "tensor -1 embed  embed/reference 0", 0},
        {"kernel matmul/openblas 10", "kernel matmul/openblas -1", 0},
        {"kernel matmul/openblas 10", "kernel matmul/openblas ", 0},
        {"entry zen", "entry zen\nentry zen", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_error err = {{0}, {0}};
        struct ds_buf text = {0};
        struct ds_lock l;
        make_text(&text, cases[i].from, cases[i].to);
        const int rc = ds_lock_parse("a.lock", text.data, text.len, &l, &err);
        if ((rc == 0) != cases[i].good)
            fail_msg("'%s' was %s", cases[i].to, rc == 0 ? "taken" : err.msg);
        if (rc != 0 && strncmp(err.msg, "a.lock:", 7) != 0)
            fail_msg("'%s': %s", cases[i].to, err.msg);
        ds_lock_free(&l);
        ds_buf_free(&text);
    }
}

/* Every beginning of a lock is refused, with a place. */
static void test_cut_anywhere(void **state)
{
    (void)state;
    struct ds_buf text = {0};
    make_text(&text, NULL, NULL);
    for (size_t n = 0; n + 1 < text.len; n++) {
        struct ds_error err = {{0}, {0}};
        struct ds_lock l;
        if (ds_lock_parse("a.lock", text.data, n, &l, &err) == 0)
            fail_msg("the first %zu bytes are taken for a lock", n);
        assert_memory_equal(err.msg, "a.lock:", 7);
        ds_lock_free(&l);
    }
    ds_buf_free(&text);
}

static void test_memory_that_runs_out(void **state)
{
    (void)state;
    struct ds_buf text = {0};
    make_text(&text, NULL, NULL);
    long n = 1;
    for (int done = 0; !done; n++) {
        struct ds_error err = {{0}, {0}};
        struct ds_lock l;
        struct ds_lock_verdict v = {0};
        const struct ds_lock_terms terms = {.what = DS_ASSERT_BITS};
        ds_mem_fail_at(n);
        int rc = ds_lock_parse("a.lock", text.data, text.len, &l, &err);
        if (rc == 0)
            rc = ds_lock_judge(&l.entries[0].lines, &l.entries[0].lines, &terms, &v, &err);
        done = rc == 0 && ds_mem_fail_left() > 0;
        ds_mem_fail_at(0);
        if (rc != 0)
            assert_true(ds_error_is_memory(&err));
        ds_lock_verdict_free(&v);
        ds_lock_free(&l);
    }
    assert_true(n > 8);
    ds_buf_free(&text);
}

/* ---- one entry against another --------------------------------------------------------------- */

static int ends_in_proj(void *ctx, const char *key)
{
    (void)ctx;
    return strlen(key) > 5 && strcmp(key + strlen(key) - 5, "_proj") == 0;
}

/* What is found when the answer has `to` instead of `from`; "" nothing: "KIND+ " for what counts, "KIND " for what does not,
 * in the order of the verdict. */
static void check(const char *from, const char *to, int what, const char *want)
{
    struct ds_buf text = {0}, got = {0};
    struct ds_error err = {{0}, {0}};
    struct ds_lock was, is;
    struct ds_lock_verdict v;
    const struct ds_lock_terms terms = {.what = what, .field = ends_in_proj};
    make_text(&text, NULL, NULL);
    read_lock(&was, text.data);
    ds_buf_free(&text);
    make_text(&text, from, to);
    read_lock(&is, text.data);
    assert_ok(ds_lock_judge(&was.entries[0].lines, &is.entries[0].lines, &terms, &v, &err), err);
    ds_buf_puts(&got, "");
    for (size_t i = 0; i < v.n_findings; i++)
        ds_buf_printf(&got, "%s%s ", ds_lock_finding_name(v.findings[i].kind),
                      v.findings[i].counts ? "+" : "");
    if (strcmp(got.data, want) != 0)
        fail_msg("'%s' for '%s': '%s', not '%s'", to, from ? from : "", got.data, want);
    assert_int_equal(v.compared, 1);
    ds_lock_verdict_free(&v);
    ds_lock_free(&was);
    ds_lock_free(&is);
    ds_buf_free(&text);
    ds_buf_free(&got);
}

static void test_findings(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *want;
    } cases[] = {
        {NULL, "", ""},
        {"batch 1,2|4", "batch 1|2,4", "class+ "},
        {"batch 1,2|4", "batch 1|2|4", "class+ "},
        {"batch 1,2|4", "batch 1,2,4", "gone "},
        {"batch 1,2|4", "batch 4|2,1", ""},
        {"batch 1,2|4", "batch 1,2|4,8", ""}, /* a value that the lock does not have says nothing */
        {"batch 1,2|4", "batch 1,2|4|8", "class+ "}, /* unless it agrees with none */
        {"batch 1,2|4", "batch 8|16", ""},
        {"batch 1,2|4", "batch 1|4", ""},
        {"batch 1,2|4", "batch ?", ""},
        {"batch 1,2|4", "batch unstable", "unstable+ "},
        {"repeat same", "repeat unstable", "unstable+ "},
        {"batch ?", "batch 1,4", ""},
        {"batch ?", "batch 1|4", "class+ "},
        {"class rope/reference batch ?\n",
         "class rope/reference batch ?\nclass rope/mine batch 1|4\n", "class+ "},
        {"class rope/reference batch ?\n",
         "class rope/reference batch ?\nclass rope/mine batch 1,4\n", ""},
        {"class rope/reference batch ?\n",
         "class rope/reference batch ?\nclass rope/reference slot a|b\n", ""},
        {"max_ulp=7", "max_ulp=8", "bound+ "},
        {"max_ulp=7", "max_ulp=6", ""},
        {"max_ulp=7", "max_ulp=?", ""},
        {"max_ulp=?", "max_ulp=9", ""},
        {"kind=rounding-order", "kind=wrong-data", "kind+ "},
        {"layers=2", "layers=3", "origin+ "},
        {"layers=2", "layers=1", ""},
        {"origin matmul/openblas gate", "origin matmul/openblas down", "origin+ gone "},
        {"token=5 ", "token=7 ", "token+ "},
        {"embed/reference 0000000000000001", "embed/reference 0000000000000009", "tensor+ "},
        {"matmul/openblas 0000000000000002", "matmul/openblas unstable", ""},
        {"matmul/openblas unstable", "matmul/openblas 0000000000000002", ""},
        {"matmul/openblas 0000000000000002", "matmul/pinned 0000000000000002", ""},
        {"kernel matmul/openblas", "kernel matmul/pinned", "kernel kernel "},
        {"kernel matmul/openblas 10", "kernel matmul/openblas 11", "count "},
        {"run 0 0", "run 0 1", "base+ "}, /* no tensor that both have tells */
        {"count rows 4\nrun 0 0", "count rows 5\nrun 0 1",
         "count "}, /* other rows: another number */
        {"run 1 unstable", "run 1 0123456789abcdef", ""},
        {"run 0 0123456789abcdef\n", "nonfinite 0 up matmul/openblas\nrun 0 0123456789abcdef\n",
         "nonfinite+ "},
        {"env blas_core Zen", "env blas_core Haswell", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(cases[i].from, cases[i].to, DS_ASSERT_BITS, cases[i].want);
}

static void test_what_is_asserted(void **state)
{
    (void)state;
    check("max_ulp=7", "max_ulp=8", DS_ASSERT_TOKENS, "bound ");
    check("token=5 ", "token=7 ", DS_ASSERT_TOKENS, "token+ ");
    check("token=5 ", "token=7 ", DS_ASSERT_TEXT, "token+ "); /* same_text 0 */
    check("token=5 ", "token=7 ", DS_ASSERT_FIELDS, "token ");
    check("max_ulp=7", "max_ulp=6", DS_ASSERT_FIELDS, "field+ ");
    check("tensor 0 q_proj", "tensor 0 o_proj", DS_ASSERT_FIELDS, "field+ field+ ");
    check("tensor 0 kv_write/k", "tensor 0 kv_write/v", DS_ASSERT_FIELDS, "");
}

static void test_the_nearest_entry(void **state)
{
    (void)state;
    struct ds_error err = {{0}, {0}};
    struct ds_lock l = {0};
    struct ds_lock_lines is = {0};
    static const char *const entries[][3] = {
        {"a", "Zen", "Linux 6"}, {"b", "Haswell", "Linux 5"}, {"c", "Zen", "Linux 5"}};
    for (size_t i = 0; i < 3; i++) {
        struct ds_lock_entry *e = ds_lock_new_entry(&l, entries[i][0], &err);
        assert_ok(ds_lock_add(&e->lines, "env blas_core", entries[i][1], &err), err);
        assert_ok(ds_lock_add(&e->lines, "env kernel", entries[i][2], &err), err);
        assert_ok(ds_lock_sort(&e->lines, &err), err);
    }
    assert_ok(ds_lock_add(&is, "env blas_core", "Haswell", &err), err);
    assert_ok(ds_lock_add(&is, "env kernel", "Linux 6", &err), err);
    assert_ok(ds_lock_sort(&is, &err), err);
    assert_int_equal(ds_lock_nearest(&l, &is), 1); /* the core weighs more than the system */
    free(is.at[0].value);
    is.at[0].value = strdup("Zen");
    assert_int_equal(ds_lock_nearest(&l, &is), 0);
    assert_int_equal(ds_lock_distance(&l.entries[0].lines, &is), 0);
    assert_true(ds_lock_distance(&l.entries[2].lines, &is) > 0);
    ds_lock_lines_free(&is);
    ds_lock_free(&l);
    assert_int_equal(ds_lock_nearest(&l, &is), -1);
}

/* Suspects: what decides which code runs first. */
static void test_suspects_and_coverage(void **state)
{
    (void)state;
    struct ds_buf text = {0};
    struct ds_error err = {{0}, {0}};
    struct ds_lock was, is;
    struct ds_lock_verdict v;
    const struct ds_lock_terms terms = {.what = DS_ASSERT_BITS};
    make_text(&text, NULL, NULL);
    read_lock(&was, text.data);
    ds_buf_free(&text);
    make_text(&text, "env blas_core Zen\nenv kernel Linux\n",
              "env OMP_NUM_THREADS 3\nenv blas_core Nehalem\nenv kernel BSD\n");
    read_lock(&is, text.data);
    assert_ok(ds_lock_judge(&was.entries[0].lines, &is.entries[0].lines, &terms, &v, &err), err);
    assert_int_equal(v.n_suspects, 3);
    assert_int_equal(v.n_environment, 3);
    assert_string_equal(v.suspects[0].name, "blas_core");
    assert_string_equal(v.suspects[1].name, "OMP_NUM_THREADS");
    assert_null(v.suspects[1].was);
    assert_string_equal(v.suspects[2].is, "BSD");
    assert_int_equal(v.counts.tensors, 3);
    assert_int_equal(v.counts.tensors_unstable, 1);
    assert_int_equal(v.counts.runs, 1);
    assert_int_equal(v.counts.classes, 2);
    assert_int_equal(v.allowed_classes, 1);
    assert_int_equal(v.allowed_origins, 2);
    assert_int_equal(v.counts.steps, 2);
    assert_int_equal(v.logprobs.n, 1);
    assert_int_equal(v.first_logprob, -1);
    assert_true(v.logprobs.max == 0 && v.kl == 0 && v.noise.p == 1);
    ds_lock_verdict_free(&v);
    ds_lock_free(&was);
    ds_lock_free(&is);
    ds_buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_what_was_read),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_memory_that_runs_out),
        cmocka_unit_test(test_findings),
        cmocka_unit_test(test_what_is_asserted),
        cmocka_unit_test(test_the_nearest_entry),
        cmocka_unit_test(test_suspects_and_coverage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
