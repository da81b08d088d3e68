/* check_first.c: see check_first.h. */
#include "kernels/lab/check_first.h"

#include <string.h>

/* Behind every pair that other calls show: those say more. */
static const double COST = 1e12;

/* One row alone, and four: of attention the row of slot 32 and a chunk. */
static struct ds_call first_call(const struct ds_check *c, struct ds_segment *seg, int i)
{
    *seg = (struct ds_segment){.first = 32, .length = i ? 4 : 1};
    struct ds_call call = ds_check_call(c, seg, 1);
    call.page_size = ds_subject_kernel(c->subject)->op == DS_OP_ATTENTION ? 16 : 0;
    return call;
}

static int64_t width_of(const struct ds_output *out)
{
    return out->width < DS_FIRST_WORDS ? out->width : DS_FIRST_WORDS;
}

int ds_first_keep(struct ds_check *c, struct ds_first *f)
{
    struct ds_output out = {0};
    int rc = 0;
    for (int i = 0; i < DS_FIRST_CALLS && rc >= 0; i++) {
        struct ds_segment seg;
        const struct ds_call call = first_call(c, &seg, i);
        rc = ds_check_launch_base(c, &call, &out);
        f->kept[i] = rc == 1;
        if (rc == 1)
            memcpy(f->bits[i], out.bits, (size_t)width_of(&out) * sizeof *out.bits);
    }
    ds_output_free(&out);
    return rc < 0 ? -1 : 0;
}

int ds_first_hold(struct ds_check *c, const struct ds_first *f, const char *when)
{
    struct ds_output out = {0};
    int rc = 0;
    for (int i = 0; i < DS_FIRST_CALLS && rc >= 0; i++) {
        struct ds_segment seg;
        const struct ds_call call = first_call(c, &seg, i);
        if (!f->kept[i])
            continue;
        rc = ds_check_launch_base(c, &call, &out);
        if (rc == 1 && ds_check_differs(c, f->bits[i], out.bits, width_of(&out), COST + i))
            ds_check_pair(c, "row 0 of %d row%s %s", seg.length, i ? "s" : "", when);
    }
    ds_output_free(&out);
    return rc < 0 ? -1 : 0;
}

int ds_first_insist(struct ds_check *c, const struct ds_first *f)
{
    enum { MOST = 1000 };
    const struct ds_property_result *p = c->property;
    for (int i = 0; i < MOST && !p->differ; i++)
        if (ds_first_hold(c, f, "again, unchanged") != 0)
            return -1;
    return 0;
}

int ds_first_others(struct ds_check *c)
{
    enum { MANY = 8 };
    const int attention = ds_subject_kernel(c->subject)->op == DS_OP_ATTENTION;
    struct ds_segment seg[MANY];
    for (int i = 0; i < MANY; i++)
        seg[i] = (struct ds_segment){.sequence = attention ? i : 0,
                                     .first = 600 + 40 * i,
                                     .length = i ? MANY : 1,
                                     .content = DS_CONTENT_OTHER};
    struct ds_call call = ds_check_call(c, seg, MANY);
    struct ds_output out = {0};
    call.threads = c->opt->threads[c->opt->n_threads - 1];
    int rc = ds_check_launch_base(c, &call, &out);
    ds_output_free(&out);
    return rc < 0 ? -1 : 0;
}
