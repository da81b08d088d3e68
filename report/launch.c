/* launch.c: how a kernel was launched, in words, and what differs between two launches. */
#include "report/report_internal.h"

#include <stdio.h>
#include <string.h>

void ds_report_launch(const struct ds_launch *l, const char *core, struct ds_buf *out)
{
    if (!l) {
        ds_buf_puts(out, "unknown");
        return;
    }
    ds_report_name(out, l->variant);
    if (l->algo[0]) {
        ds_buf_puts(out, " ");
        ds_report_name(out, l->algo);
    } else if (core && core[0] && strcmp(l->op, "matmul") == 0) {
        ds_buf_puts(out, " ");
        ds_report_name(out, core);
    }
    if (l->tile_rows || l->tile_cols || l->tile_k)
        ds_buf_printf(out, ", tile %dx%dx%d", l->tile_rows, l->tile_cols, l->tile_k);
    if (l->split > 1)
        ds_buf_printf(out, ", split %d", l->split);
    if (l->threads > 0)
        ds_buf_printf(out, ", %d thread%s", l->threads, l->threads == 1 ? "" : "s");
}

/* ---- two of them ----------------------------------------------------------------------------- */

/* A name; "none" where only the other side has one; NULL: not known. */
static void name_text(const char *x, const char *other, char *out, size_t size)
{
    struct ds_buf b = {0};
    if (x && x[0])
        ds_report_name(&b, x);
    snprintf(out, size, "%s",
             !x                    ? "unknown"
             : b.data && !b.failed ? b.data
             : other && other[0]   ? "none"
                                   : "");
    ds_buf_free(&b);
}

static size_t add_names(const char *name, const char *a, const char *b,
                        struct ds_report_launch_field *f)
{
    if (!(a && a[0]) && !(b && b[0]))
        return 0;
    f->name = name;
    name_text(a, b, f->text[0], sizeof f->text[0]);
    name_text(b, a, f->text[1], sizeof f->text[1]);
    f->differs = a && b && strcmp(a, b) != 0;
    return 1;
}

/* Numbers below `least` are not known, which says nothing. */
static size_t add_numbers(const char *name, int32_t a, int32_t b, int32_t least,
                          struct ds_report_launch_field *f)
{
    if (a < least && b < least)
        return 0;
    f->name = name;
    snprintf(f->text[0], sizeof f->text[0], a < least ? "unknown" : "%d", a);
    snprintf(f->text[1], sizeof f->text[1], b < least ? "unknown" : "%d", b);
    f->differs = a != b && a >= least && b >= least;
    return 1;
}

size_t ds_report_launch_fields(const struct ds_launch *a, const struct ds_launch *b,
                               struct ds_report_launch_field fields[DS_REPORT_LAUNCH_FIELDS])
{
    static const struct ds_launch none = {
        .rows = -1, .tile_rows = -1, .tile_cols = -1, .tile_k = -1, .split = -1, .threads = -1};
    size_t n = 0;
    n += add_names("op", a ? a->op : NULL, b ? b->op : NULL, &fields[n]);
    n += add_names("variant", a ? a->variant : NULL, b ? b->variant : NULL, &fields[n]);
    n += add_names("algorithm", a ? a->algo : NULL, b ? b->algo : NULL, &fields[n]);
    a = a ? a : &none;
    b = b ? b : &none;
    n += add_numbers("rows", a->rows, b->rows, 1, &fields[n]);
    int rows = a->tile_rows > 0 || b->tile_rows > 0, cols = a->tile_cols > 0 || b->tile_cols > 0,
        k = a->tile_k > 0 || b->tile_k > 0, one = rows + cols + k == 1;
    if (rows)
        n += add_numbers(one ? "tile" : "tile rows", a->tile_rows, b->tile_rows, 0, &fields[n]);
    if (cols)
        n += add_numbers(one ? "tile" : "tile columns", a->tile_cols, b->tile_cols, 0, &fields[n]);
    if (k)
        n += add_numbers(one ? "tile" : "tile k", a->tile_k, b->tile_k, 0, &fields[n]);
    n += add_numbers("split", a->split, b->split, 0, &fields[n]);
    return n + add_numbers("threads", a->threads, b->threads, 1, &fields[n]);
}

size_t ds_report_launch_difference(const struct ds_launch *a, const struct ds_launch *b,
                                   struct ds_buf *out)
{
    struct ds_report_launch_field f[DS_REPORT_LAUNCH_FIELDS];
    size_t n = a && b ? ds_report_launch_fields(a, b, f) : 0, differ = 0;
    for (size_t i = 0; i < n; i++)
        if (f[i].differs)
            ds_buf_printf(out, "%s%s %s against %s", differ++ ? ", " : "", f[i].name, f[i].text[0],
                          f[i].text[1]);
    return differ;
}

/* ---- what the kernels say of themselves ------------------------------------------------------ */

static const char *device_of(const struct ds_report *r, uint32_t arm)
{
    const struct ds_header *h = r->header;
    for (size_t f = 0; f < h->n_factors && arm < h->n_arms; f++)
        if (strcmp(h->factors[f], "device") == 0)
            return h->arms[arm].values[f];
    return r->diff ? ""
                   : "cpu"; /* of two records it may be unlike; of one before there were others */
}

size_t ds_report_kernel_list(const struct ds_report *r, const struct ds_launch *a, uint32_t arm_a,
                             const struct ds_launch *b, uint32_t arm_b,
                             struct ds_report_kernel out[2])
{
    const struct ds_report_caller *c = r->caller;
    size_t n = 0;
    if (!c || !c->kernel || !c->build || !r->header)
        return 0;
    const int other = strcmp(c->build(), r->header->build) != 0;
    for (int side = 0; side < 2; side++) {
        const struct ds_launch *l = side ? b : a;
        const char *text =
            l ? c->kernel(device_of(r, side ? arm_b : arm_a), l->op, l->variant) : NULL;
        if (text && !(n && text == out[0].text))
            out[n++] = (struct ds_report_kernel){l, text, other};
    }
    return n;
}

size_t ds_report_kernels(const struct ds_report *r, const struct ds_launch *a, uint32_t arm_a,
                         const struct ds_launch *b, uint32_t arm_b, struct ds_buf *out)
{
    struct ds_report_kernel k[2];
    const size_t n = ds_report_kernel_list(r, a, arm_a, b, arm_b, k);
    for (size_t i = 0; i < n; i++) {
        ds_report_name(out, k[i].launch->op);
        ds_buf_puts(out, "/");
        ds_report_name(out, k[i].launch->variant);
        ds_buf_puts(out, ": ");
        ds_report_name(out, k[i].text);
        ds_buf_puts(out, k[i].other_build ? " (in this program; the record is of another build)\n"
                                          : "\n");
    }
    return n;
}
