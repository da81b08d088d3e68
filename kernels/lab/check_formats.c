/* check_formats.c: weights as they lie in a file. A kernel that takes them so gives the bits that it
 * gives on the f32 numbers they stand for (else a model drifts with how its weights are kept), and
 * right results. */
#include "kernels/lab/check_rows.h"

#include "kernels/cpu/file_weights.h"
#include "kernels/lab/file_content.h"

#include <stdio.h>

enum { MOST_SHAPES = 5, COLUMNS = 97 };

static int takes_files(const struct ds_check *c)
{
    return (ds_subject_kernel(c->subject)->features & DS_FEATURE_FILE_WEIGHTS) != 0;
}

/* The given shape cut to whole blocks, and odd ones. */
static int shapes_of(const struct ds_check *c, const struct ds_file_layout *l,
                     struct ds_shape shape[MOST_SHAPES])
{
    static const struct {
        int64_t n, blocks;
    } odd[] = {{1, 1}, {17, 1}, {33, 9}, {16, 3}};
    const struct ds_shape *given = ds_subject_shape(c->subject);
    shape[0] = *given;
    shape[0].k = given->k < l->block ? l->block : given->k / l->block * l->block;
    if (shape[0].n > COLUMNS && !c->opt->full)
        shape[0].n = COLUMNS;
    for (int i = 1; i < MOST_SHAPES; i++) {
        shape[i] = *given;
        shape[i].n = odd[i - 1].n;
        shape[i].k = odd[i - 1].blocks * l->block;
    }
    return MOST_SHAPES;
}

static void not_taken(struct ds_check *c, const char *why, int64_t settings)
{
    c->property->not_tried += settings;
    if (!c->property->note[0])
        snprintf(c->property->note, sizeof c->property->note, "%.190s", why);
}

/* ---- bits ------------------------------------------------------------------------------------------ */

/* One call of both subjects; c->subject is the file's afterwards. */
static int same_call(struct ds_check *c, struct ds_subject *numbers, struct ds_subject *file,
                     const struct ds_call *call, const char *name)
{
    struct ds_rows_own *o = c->own;
    const int64_t rows = ds_call_rows(call);
    c->subject = numbers;
    int rc = ds_check_launch(c, call, &o->ref);
    c->subject = file;
    if (rc == 1)
        rc = ds_check_launch(c, call, &o->out);
    for (int64_t r = 0; rc == 1 && r < rows; r++)
        if (ds_check_differs(c, o->ref.bits + r * o->ref.width, o->out.bits + r * o->out.width,
                             o->ref.width, ds_subject_work(file, call) + 1e-4 * (double)r))
            ds_check_pair(c, "row %lld of %lld row%s with f32 weights against %s weights",
                          (long long)r, (long long)rows, rows == 1 ? "" : "s", name);
    return rc < 0 ? -1 : 0;
}

static int same_at(struct ds_check *c, const struct ds_shape *shape, const struct ds_file_layout *l)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 8, 13, 16, 17, 33, 64};
    enum { N_ROWS = sizeof rows / sizeof rows[0] };
    struct ds_subject *own = c->subject;
    const struct ds_kernel *k = ds_subject_kernel(own);
    struct ds_error refused;
    int rc = 0;
    struct ds_subject *numbers = ds_subject_new_file(k, shape, c->opt->seed, DS_CONTENT_PLAIN,
                                                     l->type, 0, &refused),
                      *file = numbers ? ds_subject_new_file(k, shape, c->opt->seed,
                                                            DS_CONTENT_PLAIN, l->type, 1, &refused)
                                      : NULL;
    if (!file)
        not_taken(c, refused.msg, 2 * N_ROWS);
    for (int i = 0; i < 2 * N_ROWS && file && rc == 0; i++) {
        struct ds_segment seg;
        c->subject = file;
        struct ds_call call = ds_rows_call(c, &seg, 0, rows[i / 2]);
        call.threads = i % 2 ? c->opt->threads[c->opt->n_threads - 1] : c->opt->threads[0];
        call.place = i % 3 ? DS_PLACE_END : 0;
        call.bias = i % 5 == 4;
        rc = same_call(c, numbers, file, &call, l->name);
    }
    ds_subject_free(file);
    ds_subject_free(numbers);
    c->subject = own;
    return rc;
}

int ds_rows_formats(struct ds_check *c)
{
    if (!takes_files(c) && !ds_check_takes_stored(c)) {
        ds_check_not_applicable(c, "takes f32 weights alone");
        return 0;
    }
    int rc = ds_check_stored(c);
    for (int t = 0; t < DS_FILE_CONTENTS && rc == 0 && takes_files(c); t++) {
        const struct ds_file_layout *l = ds_file_layout(ds_file_content_types[t]);
        struct ds_shape shape[MOST_SHAPES];
        for (int i = 0; i < shapes_of(c, l, shape) && rc == 0; i++)
            rc = same_at(c, &shape[i], l);
    }
    return rc;
}

/* ---- right or wrong ---------------------------------------------------------------------------------- */

/* fn on weights of every type at every shape. */
int ds_rows_each_format(struct ds_check *c, int content,
                        int (*fn)(struct ds_check *c, const struct ds_shape *shape,
                                  const char *format))
{
    struct ds_subject *own = c->subject;
    int rc = 0;
    for (int t = 0; t < DS_FILE_CONTENTS && rc == 0 && takes_files(c); t++) {
        const struct ds_file_layout *l = ds_file_layout(ds_file_content_types[t]);
        struct ds_shape shape[MOST_SHAPES];
        for (int i = 0; i < shapes_of(c, l, shape) && rc == 0; i++) {
            struct ds_error refused;
            c->subject = ds_subject_new_file(ds_subject_kernel(own), &shape[i], c->opt->seed,
                                             content, l->type, 1, &refused);
            if (c->subject)
                rc = fn(c, &shape[i], l->name);
            else
                not_taken(c, refused.msg, 1);
            ds_subject_free(c->subject);
            c->subject = own;
        }
    }
    return rc;
}
