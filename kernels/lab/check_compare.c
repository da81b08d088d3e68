/* check_compare.c: rows held against rows: what differs, by how much, the smallest pair, and classes of
 * equal bits. Launches nothing. */
#include "kernels/lab/check_plan.h"

#include "base/buf.h"
#include "base/dtype.h"
#include "base/hash.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- comparing ------------------------------------------------------------------------------ */

static void measure(const struct ds_check *c, const uint32_t *a, const uint32_t *b, int64_t width,
                    struct ds_difference *d)
{
    struct ds_output_part part[DS_MOST_PARTS];
    static const int dtypes[] = {DS_F32, DS_F16, DS_BF16, DS_I32};
    int n = ds_subject_parts(c->subject, &(struct ds_call){.threads = 1}, part), i = 0;
    int64_t left = n > 0 ? part[0].cols : width;
    *d = (struct ds_difference){.values_equal = 1};
    for (int64_t j = 0; j < width; j++, left--) {
        while (left == 0 && i + 1 < n)
            left = part[++i].cols;
        if (a[j] == b[j])
            continue;
        const int dtype = dtypes[n > 0 ? part[i].dtype : 0];
        d->elements++;
        if (dtype == DS_I32) {
            d->values_equal = 0;
            continue;
        }
        float x, y;
        ds_widen_row(dtype, &x, &a[j], 1); /* little-endian: the low half is first */
        ds_widen_row(dtype, &y, &b[j], 1);
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        d->values_equal = 0;
        uint64_t ulp = ds_ulp_distance(dtype, a[j], b[j]);
        double abs = fabs((double)x - (double)y);
        d->max_ulp = ulp > d->max_ulp ? ulp : d->max_ulp;
        if (!(abs <= d->max_abs))
            d->max_abs = abs;
    }
}

static int smaller(struct ds_property_result *p, double cost)
{
    if (p->smallest_cost > 0 && cost >= p->smallest_cost)
        return 0;
    p->smallest_cost = cost;
    return 1;
}

int ds_check_differs(struct ds_check *c, const uint32_t *ref, const uint32_t *got, int64_t width,
                     double cost)
{
    struct ds_property_result *p = c->property;
    struct ds_difference d;
    p->compared++;
    if (memcmp(ref, got, (size_t)width * sizeof *ref) == 0)
        return 0;
    p->differ++;
    measure(c, ref, got, width, &d);
    if (p->differ == 1)
        p->worst = d;
    else {
        p->worst.elements = d.elements > p->worst.elements ? d.elements : p->worst.elements;
        p->worst.max_ulp = d.max_ulp > p->worst.max_ulp ? d.max_ulp : p->worst.max_ulp;
        if (!(d.max_abs <= p->worst.max_abs))
            p->worst.max_abs = d.max_abs;
        p->worst.values_equal &= d.values_equal;
    }
    if (!smaller(p, cost))
        return 0;
    p->smallest_size = d;
    return 1;
}

int ds_check_wrong(struct ds_check *c, int wrong, double cost)
{
    c->property->compared++;
    if (!wrong)
        return 0;
    c->property->differ++;
    return smaller(c->property, cost);
}

int ds_check_far_apart(const uint32_t *a, const uint32_t *b, int64_t width)
{
    float most = 0, apart = 0;
    for (int64_t j = 0; j < width; j++) {
        const float x = ds_f32_from_bits(a[j]), y = ds_f32_from_bits(b[j]);
        if (isnan(x) != isnan(y))
            return 1;
        most = fmaxf(most, fabsf(x));
        apart = fmaxf(apart, fabsf(x - y));
    }
    return !(apart <= most * 0x1p-8f);
}

int ds_check_may_judge(const struct ds_check *c, struct ds_purse *p, int far_apart, double cost)
{
    static const double FULL[2] = {5e7, 1e8};
    if (p->of != c->property) {
        p->of = c->property;
        memcpy(p->left, FULL, sizeof FULL);
    }
    if (cost > p->left[far_apart] && !c->opt->full)
        return 0;
    p->left[far_apart] -= cost;
    return 1;
}

void ds_check_pair(struct ds_check *c, const char *fmt, ...)
{
    va_list ap;
    c->property->choice[0][0] = c->property->choice[1][0] = '\0';
    c->property->same_choice = 0;
    va_start(ap, fmt);
    vsnprintf(c->property->smallest, sizeof c->property->smallest, fmt, ap);
    va_end(ap);
}

void ds_check_not_applicable(struct ds_check *c, const char *why)
{
    c->property->state = DS_STATE_NOT_APPLICABLE;
    snprintf(c->property->note, sizeof c->property->note, "%s", why);
}

/* ---- classes --------------------------------------------------------------------------------- */

void ds_classes_add(struct ds_classes *k, int64_t value, const uint32_t *row, int64_t width)
{
    if (k->n == DS_CLASS_VALUES)
        return;
    const uint64_t h = ds_hash(row, (size_t)width * sizeof *row);
    int i = k->n++;
    for (; i > 0 && k->value[i - 1] > value; i--) {
        k->value[i] = k->value[i - 1];
        k->bits[i] = k->bits[i - 1];
    }
    k->value[i] = value;
    k->bits[i] = h;
}

/* The numbers of one class: runs of neighbours in the list become "1-3", the last run "8-". */
static void print_class(struct ds_buf *b, const struct ds_classes *k, uint64_t bits)
{
    const char *space = "";
    for (int i = 0; i < k->n; i++) {
        if (k->bits[i] != bits)
            continue;
        int end = i;
        while (end + 1 < k->n && k->bits[end + 1] == bits &&
               (!k->apart || k->value[end] > k->apart || k->value[end + 1] <= k->apart))
            end++;
        ds_buf_printf(b, "%s%lld", space, (long long)k->value[i]);
        if (end + 1 == k->n && end > i) /* the last of the list, and on */
            ds_buf_puts(b, "-");
        else if (end > i)
            ds_buf_printf(b, "-%lld", (long long)k->value[end]);
        space = " ";
        i = end;
    }
}

void ds_classes_print(struct ds_check *c, const struct ds_classes *k, const char *of)
{
    struct ds_property_result *p = c->property;
    struct ds_buf b = {0};
    int n = 0;
    ds_classes_drop(c);
    for (int i = 0; i < k->n && n <= DS_CLASS_MOST; i++) {
        int first = 1;
        for (int j = 0; j < i; j++)
            first &= k->bits[j] != k->bits[i];
        if (!first)
            continue;
        if (n++)
            ds_buf_puts(&b, " | ");
        if (n > DS_CLASS_MOST)
            ds_buf_puts(&b, "...");
        else
            print_class(&b, k, k->bits[i]);
    }
    if (n > 1 && b.data) {
        size_t len = b.len < sizeof p->classes ? b.len : sizeof p->classes - 4;
        memcpy(p->classes, b.data, len);
        memcpy(p->classes + len, b.len > len ? "..." : "", b.len > len ? 4 : 1);
        snprintf(p->classes_of, sizeof p->classes_of, "%s", of);
        snprintf(p->classes_at, sizeof p->classes_at, "%s", k->at);
    }
    ds_buf_free(&b);
}

void ds_classes_drop(struct ds_check *c)
{
    c->property->classes[0] = c->property->classes_of[0] = c->property->classes_at[0] = '\0';
}
