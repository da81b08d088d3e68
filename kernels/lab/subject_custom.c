/* subject_custom.c: how a kernel that declares its own tensors is brought into a call. */
#include "kernels/lab/subject_rows.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/content.h"

#include <stdlib.h>
#include <string.h>

enum { TENSOR = DS_STREAM_TENSORS };

static int custom_declare(const struct ds_subject_parts *p, int64_t rows, struct ds_custom_args *a,
                          struct ds_error *err)
{
    char why[256] = "";
    memset(a, 0, sizeof *a);
    if (p->kernel->declare(rows, p->shape->width, a, why, sizeof why - 1) != 0)
        return ds_fail(err, "custom/%s: declare: %s", p->kernel->name, why);
    if (a->n_tensors < 0 || a->n_tensors > DS_CUSTOM_MAX_TENSORS)
        return ds_fail(err, "custom/%s: %d tensors declared, %d are possible", p->kernel->name,
                       a->n_tensors, DS_CUSTOM_MAX_TENSORS);
    for (int i = 0; i < a->n_tensors; i++) {
        const struct ds_custom_tensor *t = &a->tensor[i];
        if (!t->name || t->rows < 0 || t->cols < 1 || t->ld < t->cols ||
            (t->per_row && t->rows != rows) || t->dtype < DS_ELEMENT_F32 ||
            t->dtype > DS_ELEMENT_I32 || t->role < DS_TENSOR_IN || t->role > DS_TENSOR_IN_OUT)
            return ds_fail(err,
                           "custom/%s: tensor %d is declared with sizes or a type that make no "
                           "sense",
                           p->kernel->name, i);
    }
    return 0;
}

static int custom_open(struct ds_subject_parts *p, struct ds_error *err)
{
    return custom_declare(p, 1, &p->args.custom, err);
}

/* One row of f32 content in the tensor's own format; small whole numbers for i32. */
static void custom_row(const struct ds_custom_tensor *t, void *row, float *values)
{
    static const int dtype[] = {DS_F32, DS_F16, DS_BF16};
    if (t->dtype != DS_ELEMENT_I32) {
        ds_round_row(dtype[t->dtype], row, values, (size_t)t->cols);
        return;
    }
    for (int64_t j = 0; j < t->cols; j++)
        ((int32_t *)row)[j] = (int32_t)(ds_f32_bits(values[j]) >> 3 & 7u);
}

static int custom_fill(const struct ds_subject_parts *p, const struct ds_call *c, int i,
                       const struct ds_custom_tensor *t, struct ds_error *err)
{
    const size_t element = t->dtype == DS_ELEMENT_F32 || t->dtype == DS_ELEMENT_I32 ? 4 : 2;
    unsigned char *at = t->data;
    float *values = ds_calloc((size_t)t->cols, sizeof *values, "a custom tensor's row", err);
    if (!values)
        return -1;
    if (!t->per_row)
        for (int64_t r = 0; r < t->rows; r++, at += (size_t)t->ld * element) {
            ds_content_row(values, t->cols, p->seed, TENSOR + i, -1, (int32_t)r, DS_CONTENT_PLAIN);
            custom_row(t, at, values);
        }
    for (int64_t s = 0; t->per_row && s < c->n_segments; s++)
        for (int32_t j = 0; j < c->segment[s].length; j++, at += (size_t)t->ld * element) {
            ds_content_row(values, t->cols, p->seed, TENSOR + i, c->segment[s].sequence,
                           c->segment[s].first + j, c->segment[s].content);
            custom_row(t, at, values);
        }
    free(values);
    return 0;
}

/* The kernel says how far rows are apart, so gaps are its own. */
static int custom_build(struct ds_subject_parts *p, const struct ds_call *c, struct ds_error *err)
{
    static const int roles[] = {DS_ARRAY_IN, DS_ARRAY_OUT, DS_ARRAY_IN_OUT};
    struct ds_custom_args *a = &p->args.custom;
    if (custom_declare(p, ds_call_rows(c), a, err) != 0)
        return -1;
    a->rows = ds_call_rows(c);
    for (int i = 0; i < a->n_tensors; i++) {
        struct ds_custom_tensor *t = &a->tensor[i];
        int element = t->dtype == DS_ELEMENT_F32 || t->dtype == DS_ELEMENT_I32 ? 4 : 2;
        t->data = ds_arena_place(&p->arena, t->name, roles[t->role], element, t->rows, t->cols,
                                 t->ld, c->place, err);
        if (!t->data ||
            (t->role != DS_TENSOR_OUT && !p->arena.bare && custom_fill(p, c, i, t, err) != 0))
            return -1;
    }
    return 0;
}

static int custom_parts(const struct ds_subject_parts *p, const struct ds_call *c,
                        struct ds_output_part part[DS_MOST_PARTS])
{
    const struct ds_custom_args *a = &p->args.custom;
    int n = 0;
    (void)c;
    for (int i = 0; i < a->n_tensors; i++)
        if (a->tensor[i].role != DS_TENSOR_IN && a->tensor[i].per_row)
            part[n++] =
                (struct ds_output_part){a->tensor[i].name, a->tensor[i].dtype, a->tensor[i].cols};
    return n;
}

static double custom_work(const struct ds_subject_parts *p, const struct ds_call *c)
{
    const struct ds_custom_args *a = &p->args.custom;
    double n = 0;
    for (int i = 0; i < a->n_tensors; i++)
        n += (double)a->tensor[i].cols *
             (double)(a->tensor[i].per_row ? ds_call_rows(c) : a->tensor[i].rows);
    return n;
}

static double custom_bytes(const struct ds_subject_parts *p, const struct ds_call *c)
{
    return 4.0 * custom_work(p, c);
}

const struct ds_subject_ops ds_subject_custom_ops = {.open = custom_open,
                                                     .build = custom_build,
                                                     .parts = custom_parts,
                                                     .work = custom_work,
                                                     .bytes = custom_bytes};
