/* table_sort.c: the order of rows by one column. Each cell is asked once and its key kept, so that a sort costs
 * as many cells as rows. */
#include "tui/table_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In this order whichever the direction: what is not a number must not hide the numbers above it. */
enum { GROUP_NUMBER = 0, GROUP_TEXT, GROUP_NAN, GROUP_UNKNOWN };

struct key {
    double number;
    const char *text; /* while the texts still grow: a place in them */
    size_t row, came;
    int group;
};

struct direction {
    int descending;
};

/* Digits in a text count as the number they write: L2 before L10. */
static int compare_keys(const void *pa, const void *pb, void *ctx)
{
    const struct key *a = pa, *b = pb;
    const struct direction *d = ctx;
    int order = 0;

    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->group == GROUP_NUMBER)
        order = (a->number > b->number) - (a->number < b->number);
    else if (a->group == GROUP_TEXT)
        order = strverscmp(a->text, b->text);
    if (order)
        return d->descending ? -order : order;
    return a->came < b->came ? -1 : 1;
}

static int read_keys(struct tui_table *t, const struct tui_source *s, const size_t *rows, size_t n,
                     size_t column, struct key *keys, struct ds_buf *texts)
{
    struct tui_value v;

    for (size_t i = 0; i < n; i++) {
        struct key *k = &keys[i];
        tui_row_cell(s, rows[i], column, &v);
        k->row = rows[i];
        k->came = i;
        k->group = v.null              ? GROUP_UNKNOWN
                   : !v.numeric        ? GROUP_TEXT
                   : isnan(v.key) != 0 ? GROUP_NAN
                                       : GROUP_NUMBER;
        k->number = v.key;
        if (k->group == GROUP_TEXT) {
            k->number = (double)texts->len; /* exact: no texts are that long */
            ds_buf_add(texts, v.text, strlen(v.text) + 1);
        }
        if (tui_table_stopped(t, i))
            return -1;
    }
    for (size_t i = 0; i < n && !texts->failed; i++)
        if (keys[i].group == GROUP_TEXT)
            keys[i].text = texts->data + (size_t)keys[i].number;
    return texts->failed ? -1 : 0;
}

int tui_rows_sort(struct tui_table *t, const struct tui_source *s, size_t *rows, size_t n,
                  size_t column, int descending, struct ds_error *err)
{
    struct ds_buf texts = {0};
    struct direction d = {descending};
    struct key *keys = ds_calloc(n, sizeof *keys, "sorting a table", err);

    if (!keys)
        return -1;
    int rc = read_keys(t, s, rows, n, column, keys, &texts);
    if (!rc) {
        qsort_r(keys, n, sizeof *keys, compare_keys, &d);
        for (size_t i = 0; i < n; i++)
            rows[i] = keys[i].row;
    } else if (t->stopped) {
        ds_fail(err, "stopped");
    } else {
        ds_fail(err, "out of memory: sorting a table");
    }
    free(keys);
    ds_buf_free(&texts);
    return rc;
}
