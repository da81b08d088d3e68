/* fuzz_fingerprint.c: responses of other systems as hostile text: two files, apart by a line "====". What must hold: no crash; an
 * error that names file and line; or a result whose numbers add up and that can be printed, and a file that is the
 * same as itself. */
#include "tests/fuzz/fuzz.h"

#include "cli/fingerprint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lines of text, each in memory of its own size. */
static int read_lines(const char *text, size_t n, struct ds_fp_file *out, struct ds_error *err)
{
    int rc = 0;
    size_t number = 0;
    for (size_t at = 0; rc == 0 && at < n;) {
        const char *stop = memchr(text + at, '\n', n - at);
        const size_t len = stop ? (size_t)(stop - text) - at : n - at;
        char *line = malloc(len + 1);
        require(line != NULL);
        memcpy(line, text + at, len);
        line[len] = '\0';
        rc = ds_fp_read_line(line, len, ++number, out, err);
        if (rc != 0)
            require(strncmp(err->msg, "f, line ", 8) == 0);
        free(line);
        at += len + 1;
    }
    return rc;
}

static void compare(const struct ds_fp_file *a, const struct ds_fp_file *b, int same)
{
    struct ds_fp_result r;
    struct ds_error err = {{0}, {0}};
    struct ds_buf out = {0};
    size_t pairs = 0;
    if (ds_fp_compare(a, b, 0.2, &r, &err) == 0) {
        for (int m = 0; m < DS_FP_MATCHES; m++)
            pairs += r.matches[m];
        require(pairs == r.n_pairs && r.n_worst <= DS_FP_WORST && r.n_causes <= DS_LP_CAUSES);
        require(r.n_pairs + r.unpaired_a == a->n && r.n_pairs + r.unpaired_b == b->n);
        require(ds_fp_json(&out, &r, &err) == 0 && out.len > 0);
        if (same)
            require(r.tokens.max <= 0 && !r.one_sided && !r.alone_a && !r.alone_b &&
                    r.matches[DS_FP_EQUAL] == r.n_pairs);
    }
    ds_fp_result_free(&r);
    ds_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char border[] = "\n====\n";
    const char *text = (const char *)data,
               *at = size ? memmem(text, size, border, sizeof border - 1) : NULL;
    const size_t first = at ? (size_t)(at - text) : size,
                 second = at ? first + sizeof border - 1 : size;
    struct ds_fp_file a = {.path = "f"}, b = {.path = "f"};
    struct ds_error err = {{0}, {0}};
    const int one = read_lines(text, first, &a, &err),
              two = read_lines(text + second, size - second, &b, &err);
    if (one == 0 && two == 0 && a.n && b.n)
        compare(&a, &b, 0);
    if (one == 0 && a.n)
        compare(&a, &a, 1);
    ds_fp_file_free(&a);
    ds_fp_file_free(&b);
    return 0;
}
