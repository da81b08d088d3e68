/* check_places.c: where the arrays of a call lie, how far their rows are apart, and what lies around them, for ops
 * whose rows stand alone. */
#include "kernels/lab/check_rows.h"

#include "base/plural.h"

#include <stdio.h>

/* ---- alignment ----------------------------------------------------------------------------------------- */

static int aligned(struct ds_check *c, struct ds_call *call, int64_t rows)
{
    struct ds_rows_own *o = c->own;
    char what[96];
    int rc = ds_check_launch(c, call, &o->out);
    if (call->place == DS_PLACE_END)
        snprintf(what, sizeof what, "at a 64-byte boundary against flush with a page's end");
    else
        snprintf(what, sizeof what, "packed at a 64-byte boundary against offset %d, gap %d",
                 call->place, call->gap);
    if (rc == 1)
        rc = ds_rows_compare(c, call, (double)rows + 1e-2 * (call->place + call->gap), what, NULL);
    return rc < 0 ? -1 : 0;
}

/* Arrays that all calls share, some floats behind a boundary. They are made anew: not where that costs more
 * than the rest. */
static int moved_weights(struct ds_check *c, const struct ds_shape *shape, int64_t rows, int offset)
{
    struct ds_rows_own *o = c->own;
    struct ds_subject *own = c->subject;
    struct ds_error refused;
    struct ds_segment seg;
    struct ds_call call = ds_rows_call(c, &seg, 0, rows);
    char what[96];
    int rc = ds_check_launch(c, &call, &o->ref);
    if (rc != 1)
        return rc;
    snprintf(what, sizeof what, "with %s in place against %d float%s behind a 64-byte boundary",
             shape->op == DS_OP_ROPE || shape->op == DS_OP_EMBED ? "its table" : "weights", offset,
             ds_plural(offset));
    c->subject =
        ds_subject_new_moved(ds_subject_kernel(own), shape, c->opt->seed, offset, &refused);
    c->property->not_tried += c->subject ? 0 : 1;
    rc = c->subject ? ds_check_launch(c, &call, &o->out) : 0;
    if (rc == 1)
        rc = ds_rows_compare(c, &call, (double)rows + 1e-2 * (40 + offset), what, NULL);
    ds_subject_free(c->subject);
    c->subject = own;
    return rc < 0 ? -1 : 0;
}

static int move_weights(struct ds_check *c)
{
    static const int offsets[] = {1, 4, 8};
    static const double MOST = 1e6;
    const struct ds_shape *s = ds_subject_shape(c->subject);
    const int shares = s->op == DS_OP_MATMUL || s->op == DS_OP_RMSNORM || s->op == DS_OP_ROPE ||
                       s->op == DS_OP_EMBED;
    const double weights = (double)s->n * (double)s->k + (double)s->vocab * (double)s->width;
    for (size_t i = 0; i < 2 * sizeof offsets / sizeof offsets[0] && shares; i++) {
        if (weights > MOST && !c->opt->full)
            c->property->not_tried++;
        else if (moved_weights(c, s, i % 2 ? 8 : 1, offsets[i / 2]) != 0)
            return -1;
    }
    return 0;
}

int ds_rows_alignment(struct ds_check *c)
{
    static const int64_t rows[] = {1, 3, 4, 8, 17};
    static const int gaps[] = {1, 3, 16, 29};
    struct ds_rows_own *o = c->own;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ds_segment seg;
        struct ds_call call = ds_rows_call(c, &seg, 0, rows[i]);
        int rc = ds_check_launch(c, &call, &o->ref);
        if (rc < 0)
            return -1;
        for (call.place = 1; rc == 1 && call.place <= DS_PLACE_END; call.place++)
            if (aligned(c, &call, rows[i]) != 0)
                return -1;
        for (size_t g = 0; rc == 1 && g < sizeof gaps / sizeof gaps[0]; g++) {
            call.gap = gaps[g];
            for (call.place = 0; call.place < 16; call.place += 5)
                if (aligned(c, &call, rows[i]) != 0)
                    return -1;
        }
    }
    return move_weights(c);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Whether an element is NaN on one side only: no order of arrival does that. */
static int nan_on_one_side(const struct ds_check *c, const struct ds_call *call,
                           const struct ds_output *a, const struct ds_output *b)
{
    struct ds_output_part part[DS_MOST_PARTS];
    ds_subject_parts(c->subject, call, part);
    for (int64_t i = 0; part[0].dtype == DS_ELEMENT_F32 && i < a->rows * a->width; i++)
        if (((a->bits[i] & 0x7fffffffu) > 0x7f800000u) !=
            ((b->bits[i] & 0x7fffffffu) > 0x7f800000u))
            return 1;
    return 0;
}

/* The same call with unwritten memory that holds NaN and that holds huge values: equal bits, or some
 * of it was used. Damage and crashes are noted by the launch itself. */
static int poisoned(struct ds_check *c, struct ds_call *call, int64_t rows)
{
    struct ds_rows_own *o = c->own;
    call->poison = DS_POISON_NAN;
    int rc = ds_check_launch(c, call, &o->ref);
    if (rc != 1)
        return rc;
    call->poison = DS_POISON_HUGE;
    rc = ds_check_launch(c, call, &o->out);
    /* A kernel that does not repeat gives other bits by itself. */
    if (rc == 1 && c->out->property[DS_PROPERTY_REPEAT].differ &&
        !nan_on_one_side(c, call, &o->ref, &o->out)) {
        c->property->compared += o->ref.rows;
        return 0;
    }
    if (rc == 1)
        rc = ds_rows_compare(c, call, (double)rows + 0.5 * call->gap,
                             "where unwritten memory holds NaN against where it holds 1e30", NULL);
    return rc < 0 ? -1 : 0;
}

int ds_rows_memory(struct ds_check *c)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 64};
    static const int places[] = {DS_PLACE_END, DS_PLACE_START, 0, 3};
    const int op = ds_subject_kernel(c->subject)->op;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int j = 0; j < 4; j++) {
            struct ds_segment seg;
            struct ds_call call = ds_rows_call(c, &seg, 0, rows[i]);
            call.place = places[j];
            call.gap = j == 2 ? 5 : j == 1 ? 1 : 0;
            call.threads = i % 2 ? ds_rows_last_threads(c) : c->opt->threads[0];
            call.bias = op == DS_OP_MATMUL && j % 2;
            call.page_size = j == 0 ? 1 : j == 1 ? 64 : 0;
            call.permute = (uint64_t)j;
            call.spare_slots = 3 * j;
            seg.padding = op == DS_OP_CACHE ? 2 * j : 0;
            if (poisoned(c, &call, rows[i]) < 0)
                return -1;
        }
    return 0;
}
