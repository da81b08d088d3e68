/* test_lock_lines.c: every line of a lock lost, doubled, exchanged with the next one, and changed: what becomes of it must
 * be an error that names a line, a finding, or something that is told; what is none of these is listed here with the
 * reason why it is harmless. */
#include "tests/unit/testing.h"

#include "dumps/lock.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char path[] = "tests/data/fuzz/lock_counted";

struct text {
    char *line[400];
    size_t n;
};

static char *whole(size_t *len)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = calloc(1, 1 << 16);
    assert_non_null(text);
    *len = fread(text, 1, (1 << 16) - 1, f);
    fclose(f);
    return text;
}

static void split(char *text, struct text *out)
{
    out->n = 0;
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        if (rest) {
            assert_true(out->n < 400);
            out->line[out->n++] = line;
        }
}

/* ---- what a mutation comes to ----------------------------------------------------------------- */

enum outcome { REFUSED, DRIFT, TOLD, SILENT };

static enum outcome outcome_of(const char *text, const struct ds_lock *good, struct ds_error *err)
{
    const struct ds_lock_terms terms = {.what = DS_ASSERT_BITS};
    struct ds_lock l;
    struct ds_lock_verdict v = {0};
    enum outcome found = REFUSED;
    *err = (struct ds_error){{0}, {0}};
    if (ds_lock_parse("a.lock", text, strlen(text), &l, err) == 0 && ds_lock_agrees(&l, err) == 0) {
        assert_ok(ds_lock_judge(&l.entries[0].lines, &good->entries[0].lines, &terms, &v, err),
                  *err);
        found = v.n_counting ? DRIFT : v.n_findings || v.n_suspects ? TOLD : SILENT;
    }
    if (found == REFUSED)
        assert_memory_equal(err->msg, "a.lock:", 7);
    ds_lock_verdict_free(&v);
    ds_lock_free(&l);
    return found;
}

static void add(struct ds_buf *b, const char *line)
{
    ds_buf_puts(b, line);
    ds_buf_puts(b, "\n");
}

/* Line `at` left out, doubled, exchanged with the next, or with another text. */
static void mutate(const struct text *t, size_t at, const char *how, const char *instead,
                   struct ds_buf *out)
{
    out->len = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (i != at) {
            add(out, t->line[i]);
            continue;
        }
        if (strcmp(how, "double") == 0)
            add(out, t->line[i]);
        if (strcmp(how, "exchange") == 0)
            add(out, t->line[++i]);
        if (strcmp(how, "lose") != 0)
            add(out, instead ? instead : t->line[at]);
    }
    assert_false(out->failed);
}

static int begins(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

/* For readers alone. */
static int is_for_readers(const char *line)
{
    return !*line || begins(line, "model name ") || begins(line, "text ") || begins(line, "entry ");
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void each_line(void (*fn)(const struct text *t, size_t at, const struct ds_lock *good))
{
    struct ds_error err = {{0}, {0}};
    struct ds_lock good;
    struct text t;
    size_t len;
    char *text = whole(&len);
    assert_ok(ds_lock_parse(path, text, len, &good, &err), err);
    assert_ok(ds_lock_agrees(&good, &err), err);
    assert_int_equal(outcome_of(text, &good, &err), SILENT);
    split(text, &t);
    assert_true(t.n > 150);
    for (size_t i = 0; i < t.n; i++)
        fn(&t, i, &good);
    ds_lock_free(&good);
    free(text);
}

static void require(const struct text *t, size_t at, const char *how, enum outcome got,
                    enum outcome most)
{
    if (got > most)
        fail_msg("line %zu, '%.60s', %s: %s", at + 1, t->line[at], how,
                 got == SILENT ? "nobody is told" : "it is only told");
}

static void lose(const struct text *t, size_t at, const struct ds_lock *good)
{
    struct ds_buf b = {0};
    struct ds_error err;
    mutate(t, at, "lose", NULL, &b);
    const enum outcome got = outcome_of(b.data, good, &err);
    if (begins(t->line[at], "entry ") || !is_for_readers(t->line[at]))
        require(t, at, "lost", got, REFUSED);
    ds_buf_free(&b);
}

static void test_a_line_that_was_lost(void **state)
{
    (void)state;
    each_line(lose);
}

static void twice(const struct text *t, size_t at, const struct ds_lock *good)
{
    struct ds_buf b = {0};
    struct ds_error err;
    mutate(t, at, "double", NULL, &b);
    require(t, at, "doubled", outcome_of(b.data, good, &err), *t->line[at] ? REFUSED : SILENT);
    ds_buf_free(&b);
}

static void test_a_line_that_stands_twice(void **state)
{
    (void)state;
    each_line(twice);
}

/* Order says nothing within an entry, and in the question it belongs to the key. */
static void exchange(const struct text *t, size_t at, const struct ds_lock *good)
{
    struct ds_buf b = {0};
    struct ds_error err;
    if (at + 1 == t->n)
        return;
    mutate(t, at, "exchange", NULL, &b);
    const enum outcome got = outcome_of(b.data, good, &err);
    if (got == DRIFT || got == TOLD)
        fail_msg("line %zu, '%.60s', exchanged with the next one is %d", at + 1, t->line[at], got);
    ds_buf_free(&b);
}

static void test_lines_in_another_order(void **state)
{
    (void)state;
    each_line(exchange);
}

/* The last number of a line counted on by `by`; NULL: it has none. */
static char *with_number(const char *line, int by)
{
    size_t end = strlen(line), begin;
    while (end > 0 && !isdigit((unsigned char)line[end - 1]))
        end--;
    for (begin = end; begin > 0 && isdigit((unsigned char)line[begin - 1]);)
        begin--;
    if (begin == end)
        return NULL;
    char *out = strdup(line);
    assert_non_null(out);
    out[end - 1] = (char)('0' + (out[end - 1] - '0' + by + 10) % 10);
    return out;
}

/* How a changed line may come out at most. */
static enum outcome allowed(const char *line, int by)
{
    if (is_for_readers(line))
        return SILENT;
    /* More sites, rows or digests compared, or an arm that may drift with other bits: told. */
    if (begins(line, "env ") || begins(line, "kernel ") || begins(line, "run 1") ||
        begins(line, "count rows") || begins(line, "count sites") || begins(line, "count trials") ||
        begins(line, "count digests"))
        return TOLD;
    if (begins(line, "origin "))
        return by > 0 ? SILENT : DRIFT; /* a bound that was raised */
    if (begins(line, "step "))
        return SILENT; /* the tenth digit: another machine's rounding */
    return DRIFT;
}

static void count_on(const struct text *t, size_t at, const struct ds_lock *good)
{
    for (int by = -1; by <= 1; by += 2) {
        struct ds_buf b = {0};
        struct ds_error err;
        char *line = with_number(t->line[at], by);
        if (line) {
            mutate(t, at, "change", line, &b);
            require(t, at, line, outcome_of(b.data, good, &err), allowed(line, by));
        }
        ds_buf_free(&b);
        free(line);
    }
}

static void test_another_number(void **state)
{
    (void)state;
    each_line(count_on);
}

static void test_what_the_lines_say(void **state)
{
    (void)state;
    static const struct {
        const char *line, *from, *to;
        enum outcome most;
    } cases[] = {
        {"class matmul/split-k batch", "1|8", "1,8", DRIFT},
        {"class matmul/split-k batch", "1|8", "1", DRIFT},
        {"class matmul/split-k batch", "1|8", "1|9", REFUSED},
        {"class matmul/split-k batch", "1|8", "?", DRIFT},
        {"class rope/reference batch", "1,8", "1|8", TOLD}, /* it allows more */
        {"class rope/reference repeat", "same", "unstable", TOLD},
        {"class rope/reference batch", "rope/reference", "rope/other", REFUSED},
        {"origin matmul/split-k up", "split-k", "split-j", REFUSED},
        {"origin matmul/split-k up", "layers=2", "layers=1", DRIFT},
        {"origin matmul/split-k up", "rounding-order", "wrong-data", DRIFT},
        {"tensor 0 q_proj", "split-k", "split-j", REFUSED},
        {"tensor 1 up", " up ", " gate2 ", SILENT}, /* as of a program with other sites */
        {"run 1", "run 1", "run 2", REFUSED},
        {"run 0", "run 0 1ab642ff1364afb2", "run 0 unstable", REFUSED},
        {"tensor 1 up", "6c9fe9df2148d64e", "unstable", REFUSED},
        {"step 1", "token=489", "token=488", DRIFT},
        {"step 1", "489:-4.56891", "489:-4.57891", DRIFT},
        {"step 1", "margin=0.196004868", "margin=0.196004869", DRIFT},
        {"step 1", "step 1", "step 9", REFUSED},
        {"step 1", "noise=0", "noise=1",
         SILENT}, /* told with the log-probabilities, if they differ */
        {"option steps", "3", "2", REFUSED},
        {"option weights", "f32", "file", REFUSED},
        {"arm 1", "batch=8", "batch=4", REFUSED},
        {"arm 0", "threads=1", "threads=2", REFUSED},
        {"forced", "345", "346", REFUSED},
        {"hparam rope_base", "10000", "500000", REFUSED},
        {"kernel rope/reference", "rope", "rope2", REFUSED},
    };
    struct ds_error err = {{0}, {0}};
    struct ds_lock good;
    struct text t;
    size_t len;
    char *text = whole(&len);
    assert_ok(ds_lock_parse(path, text, len, &good, &err), err);
    split(text, &t);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_buf b = {0}, line = {0};
        size_t at = 0;
        while (at < t.n && !begins(t.line[at], cases[i].line))
            at++;
        assert_true(at < t.n);
        const char *from = strstr(t.line[at], cases[i].from);
        if (!from)
            fail_msg("'%s' has no '%s'", t.line[at], cases[i].from);
        ds_buf_add(&line, t.line[at], (size_t)(from - t.line[at]));
        ds_buf_puts(&line, cases[i].to);
        ds_buf_puts(&line, from + strlen(cases[i].from));
        mutate(&t, at, "change", line.data, &b);
        const enum outcome got = outcome_of(b.data, &good, &err);
        if (got != cases[i].most)
            fail_msg("'%s': outcome %d, not %d", line.data, got, cases[i].most);
        ds_buf_free(&line);
        ds_buf_free(&b);
    }
    ds_lock_free(&good);
    free(text);
}

/* All lines of a kind. */
static void test_a_kind_that_was_lost(void **state)
{
    (void)state;
    static const char *const kinds[] = {"class ", "origin ", "tensor ", "step ",
                                        "run ",   "env ",    "kernel "};
    struct ds_error err = {{0}, {0}};
    struct ds_lock good;
    struct text t;
    size_t len;
    char *text = whole(&len);
    assert_ok(ds_lock_parse(path, text, len, &good, &err), err);
    split(text, &t);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct ds_buf b = {0};
        for (size_t i = 0; i < t.n; i++)
            if (!begins(t.line[i], kinds[k]))
                add(&b, t.line[i]);
        const enum outcome got = outcome_of(b.data, &good, &err);
        if (got != REFUSED)
            fail_msg("an entry without its lines '%s': outcome %d", kinds[k], got);
        ds_buf_free(&b);
    }
    ds_lock_free(&good);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_that_was_lost),
        cmocka_unit_test(test_a_line_that_stands_twice),
        cmocka_unit_test(test_lines_in_another_order),
        cmocka_unit_test(test_another_number),
        cmocka_unit_test(test_what_the_lines_say),
        cmocka_unit_test(test_a_kind_that_was_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
