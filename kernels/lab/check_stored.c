/* check_stored.c: activations that lie in memory as bf16 and f16. A kernel that takes them so
 * (DS_FEATURE_STORED) gives the bits that it gives on f32 arrays of the same values, rounded once. */
#include "kernels/lab/check_plan.h"

#include "base/dtype.h"

#include <stdio.h>

enum { ROWS = 4, ELEMENTS = 2 };

/* A call of n rows; of attention a chunk beside a decode row. */
static struct ds_call stored_call(const struct ds_check *c, struct ds_segment seg[2], int32_t n)
{
    const int attention = ds_subject_kernel(c->subject)->op == DS_OP_ATTENTION;
    seg[0] = (struct ds_segment){.first = 40, .length = n};
    seg[1] = (struct ds_segment){.sequence = 1, .first = 75, .length = 1};
    struct ds_call call = ds_check_call(c, seg, attention ? 2 : 1);
    call.page_size = attention ? 16 : 0;
    return call;
}

/* The kernel on f32 arrays first, in `plain`; c->subject has those of 16 bits. */
static int same_call(struct ds_check *c, struct ds_subject *plain, const struct ds_call *call,
                     const char *format)
{
    struct ds_subject *own = c->subject;
    struct ds_output ref = {0}, got = {0};
    c->subject = plain;
    int rc = ds_check_launch(c, call, &ref);
    c->subject = own;
    if (rc == 1)
        rc = ds_check_launch(c, call, &got);
    for (int64_t r = 0; rc == 1 && r < ref.rows; r++)
        if (ds_check_differs(c, ref.bits + r * ref.width, got.bits + r * got.width, ref.width,
                             ds_subject_work(own, call) + 1e-4 * (double)r))
            ds_check_pair(c, "row %lld of %lld row%s of %s in f32 arrays against in its own",
                          (long long)r, (long long)ref.rows, ref.rows == 1 ? "" : "s", format);
    ds_output_free(&ref);
    ds_output_free(&got);
    return rc < 0 ? -1 : 0;
}

int ds_check_takes_stored(const struct ds_check *c)
{
    return (ds_subject_kernel(c->subject)->features & DS_FEATURE_STORED) != 0;
}

int ds_check_stored(struct ds_check *c)
{
    static const int32_t rows[ROWS] = {1, 3, 8, 17},
                         element[ELEMENTS] = {DS_ELEMENT_BF16, DS_ELEMENT_F16};
    static const char *const name[ELEMENTS] = {"bf16", "f16"};
    struct ds_kernel plain = *ds_subject_kernel(c->subject);
    struct ds_error refused;
    int rc = 0;
    if (!ds_check_takes_stored(c))
        return 0;
    plain.features &= ~(uint32_t)DS_FEATURE_STORED;
    struct ds_subject *f32 =
        ds_subject_new(&plain, ds_subject_shape(c->subject), c->opt->seed, &refused);
    if (!f32) {
        c->property->not_tried += 2 * ROWS * ELEMENTS;
        snprintf(c->property->note, sizeof c->property->note, "%.190s", refused.msg);
        return 0;
    }
    for (int i = 0; i < 2 * ROWS * ELEMENTS && rc == 0; i++) {
        struct ds_segment seg[2];
        struct ds_call call = stored_call(c, seg, rows[i % ROWS]);
        call.stored = element[i / ROWS % ELEMENTS];
        call.threads = c->opt->threads[i % 2 ? c->opt->n_threads - 1 : 0];
        call.wide = plain.op == DS_OP_MATMUL && i >= ROWS * ELEMENTS;
        call.place = i >= ROWS * ELEMENTS ? DS_PLACE_END : 0;
        call.gap = i % 3;
        rc = same_call(c, f32, &call, name[i / ROWS % ELEMENTS]);
    }
    ds_subject_free(f32);
    return rc;
}
