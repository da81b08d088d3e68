/* order_rows.c: see order_rows.h. With the same numbers in every row two rows differ only if their
 * order of addition does. */
#include "kernels/lab/order_rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { REPEATS = 5, SUMS_WANTED = 16 };

static int repeat_one(const struct ds_order_rows *o, uint64_t seed, float *first, int *agreeing,
                      struct ds_error *err)
{
    const size_t bytes = (size_t)(o->rows * o->width) * sizeof *o->y;
    *agreeing = 0;
    o->fill(o->self, seed, 0);
    for (int i = 0; i < REPEATS; i++) {
        if (o->launch(o->self, err) != 0)
            return -1;
        if (i == 0)
            memcpy(first, o->y, bytes);
        *agreeing += memcmp(first, o->y, bytes) == 0;
    }
    return 0;
}

/* A row shows one sum only, and two orders often round it alike: few rows are asked with more data.
 * The data that agree least are what counts. */
int ds_order_rows_repeat(const struct ds_order_rows *o, struct ds_order_sum *s,
                         struct ds_error *err)
{
    float *first = ds_calloc((size_t)(o->rows * o->width), sizeof *first, "outputs", err);
    int rc = first ? 0 : -1;
    s->repeats = s->agreeing = REPEATS;
    for (int64_t set = 1; rc == 0 && (set == 1 || set * o->rows <= SUMS_WANTED); set++) {
        int agreeing = 0;
        rc = repeat_one(o, (uint64_t)set, first, &agreeing, err);
        s->agreeing = agreeing < s->agreeing ? agreeing : s->agreeing;
    }
    s->fixed = rc == 0 && s->agreeing == REPEATS;
    free(first);
    return rc;
}

/* One set: a row whose class is split goes to the first of its likes. */
static void refine(const struct ds_order_rows *o, struct ds_order_sum *s)
{
    const size_t bytes = (size_t)o->width * sizeof *o->y;
    for (int64_t r = o->rows - 1; r >= 0; r--) {
        int64_t like = 0;
        while (s->class_of[like] != s->class_of[r] ||
               memcmp(o->y + like * o->width, o->y + r * o->width, bytes) != 0)
            like++;
        s->classes[r].row = like;
    }
    for (int64_t r = 0; r < o->rows; r++)
        s->class_of[r] = (int32_t)s->classes[r].row;
}

/* Class of every row: the first row that gives the same on all sets; then counted from 0. */
int ds_order_rows_classify(const struct ds_order_rows *o, struct ds_order_sum *s,
                           struct ds_error *err)
{
    s->class_of = ds_calloc((size_t)o->rows, sizeof *s->class_of, "classes", err);
    s->classes = ds_calloc((size_t)o->rows, sizeof *s->classes, "classes", err);
    if (!s->class_of || !s->classes)
        return -1;
    for (int set = 0; set < DS_ORDER_ROW_SETS; set++) {
        o->fill(o->self, DS_ORDER_ROW_SEED + (uint64_t)set, 1);
        if (o->launch(o->self, err) != 0)
            return -1;
        refine(o, s);
    }
    for (int64_t r = 0; r < o->rows; r++) {
        if (s->class_of[r] == r) {
            s->classes[s->n_classes] = (struct ds_order_class){.tree = -1, .row = r};
            s->class_of[r] = (int32_t)s->n_classes++;
        } else {
            s->class_of[r] = s->class_of[s->class_of[r]];
        }
        s->classes[s->class_of[r]].positions++;
    }
    return 0;
}
