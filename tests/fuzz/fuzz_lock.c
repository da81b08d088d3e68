/* fuzz_lock.c: locks as hostile text. What must hold: no crash; an error that names file and line; or a lock that is
 * written and read again as the same text, and that agrees with itself. */
#include "tests/fuzz/fuzz.h"

#include "dumps/lock.h"

#include <stdlib.h>
#include <string.h>

static int any_field(void *ctx, const char *key)
{
    (void)ctx;
    return key[0] != 'e';
}

static void agrees_with_itself(const struct ds_lock *l)
{
    for (int what = DS_ASSERT_BITS; what <= DS_ASSERT_FIELDS; what++)
        for (size_t i = 0; i < l->n_entries; i++) {
            const struct ds_lock_terms terms = {.what = what, .same_text = 1, .field = any_field};
            struct ds_lock_verdict v;
            struct ds_error err = {{0}, {0}};
            require(ds_lock_judge(&l->entries[i].lines, &l->entries[i].lines, &terms, &v, &err) ==
                    0);
            require(v.n_counting == 0 && v.n_suspects == 0 && !v.first && v.first_token < 0);
            ds_lock_verdict_free(&v);
            require(ds_lock_nearest(l, &l->entries[i].lines) >= 0);
        }
}

static void is_read_again(const struct ds_lock *l)
{
    struct ds_buf text = {0}, again = {0};
    struct ds_lock second;
    struct ds_error err = {{0}, {0}};
    ds_lock_text(l, &text);
    require(!text.failed && ds_lock_parse("f", text.data, text.len, &second, &err) == 0);
    ds_lock_text(&second, &again);
    require(again.len == text.len && memcmp(again.data, text.data, text.len) == 0);
    ds_lock_free(&second);
    ds_buf_free(&again);
    ds_buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ds_lock l;
    struct ds_error err = {{0}, {0}};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    if (ds_lock_parse("f", text, size, &l, &err) == 0) {
        agrees_with_itself(&l);
        struct ds_error why = {{0}, {0}};
        require(ds_lock_agrees(&l, &why) == 0 || strncmp(why.msg, "f:", 2) == 0);
        is_read_again(&l);
    } else {
        require(strncmp(err.msg, "f:", 2) == 0 && err.msg[2] >= '1' && err.msg[2] <= '9');
    }
    ds_lock_free(&l);
    free(text);
    return 0;
}
