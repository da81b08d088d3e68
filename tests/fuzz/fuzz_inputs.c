/* fuzz_inputs.c: files of --inputs as hostile text. What must hold: no crash; an error that names the file; or inputs that
 * are written and read again as the same text, differ from themselves in nothing, and whose calls stand in the file's order. */
#include "tests/fuzz/fuzz.h"

#include "cli/inputs.h"

#include <stdlib.h>
#include <string.h>

static void is_read_again(const struct ds_inputs *in)
{
    struct ds_inputs second;
    struct ds_buf text = {0}, again = {0}, changes = {0};
    struct ds_error err = {{0}, {0}};
    require(ds_inputs_text(in, &text, &err) == 0);
    require(ds_inputs_parse("g", text.data, text.len, NULL, &second, &err) == 0);
    require(ds_inputs_text(&second, &again, &err) == 0);
    require(text.len == again.len && memcmp(text.data, again.data, text.len) == 0);
    require(ds_inputs_changes(in, &second, &changes, &err) == 0 && changes.len == 0);
    ds_inputs_free(&second);
    ds_buf_free(&text);
    ds_buf_free(&again);
    ds_buf_free(&changes);
}

/* Without a tokenizer: texts are refused, ids are calls. */
static void has_calls(const struct ds_inputs *in)
{
    struct ds_inputs_call *calls;
    size_t n;
    struct ds_error err = {{0}, {0}};
    if (ds_inputs_calls(in, NULL, 1000, &calls, &n, &err) != 0) {
        require(err.msg[0] != '\0');
        return;
    }
    require(n >= in->n_requests);
    for (size_t i = 0; i < n; i++) {
        require(calls[i].n_prompt > 0 && calls[i].first >= 0 && (size_t)calls[i].first <= i);
        for (size_t k = 0; k < calls[i].n_expect; k++)
            require(calls[i].expect[k] >= 0 && calls[i].expect[k] < 1000);
    }
    ds_inputs_calls_free(calls, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ds_inputs in;
    struct ds_error err = {{0}, {0}};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    if (ds_inputs_parse("f", text, size, NULL, &in, &err) == 0) {
        is_read_again(&in);
        has_calls(&in);
        ds_inputs_free(&in);
    } else {
        require(strncmp(err.msg, "f", 1) == 0 && (err.msg[1] == ':' || err.msg[1] == ','));
    }
    free(text);
    return 0;
}
